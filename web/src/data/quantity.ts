/* quantity.ts - a number of every head, in the unit and with the sink that the reader chose. */
import { axisAround, type Axis } from "../base/axis";
import type { MapName } from "../base/palette";
import { extent } from "./arrays";
import type { Profile } from "./profile";

export type Unit = "nats" | "bits" | "normalized";
export type Sink = "in" | "out";
export type Metric =
    | "entropy"
    | "renyi2"
    | "varentropy"
    | "peak"
    | "self"
    | "previous"
    | "first"
    | "output_norm"
    | "band"
    | "content"
    | "k90"
    | "induction"
    | "duplicate";
export type Theme = "light" | "dark";

/* The map of attention and of shares: it begins at the page's own color. */
export const bluesOf = (theme: Theme): MapName => (theme === "dark" ? "bluesDark" : "blues");

/* How a metric is called, defined and colored.  Of entropies dark is focused; of shares
 * and sizes a stronger blue is more. */
interface Kind {
    label: string;
    definition: string;
    key: string;
    power: 0 | 1 | 2; /* of the unit */
    share: boolean; /* 0 to 1 */
}

export const METRICS: Record<Metric, Kind> = {
    entropy: { label: "Entropy", definition: "entropy", key: "entropy", power: 1, share: false },
    renyi2: { label: "Rényi-2 entropy", definition: "renyi2", key: "renyi2", power: 1, share: false },
    varentropy: { label: "Varentropy", definition: "varentropy", key: "varentropy", power: 2, share: false },
    peak: { label: "Peak", definition: "peak", key: "peak", power: 0, share: true },
    self: { label: "Self", definition: "self", key: "self", power: 0, share: true },
    previous: { label: "Previous token", definition: "previous", key: "previous", power: 0, share: true },
    first: { label: "First token (sink)", definition: "first", key: "first", power: 0, share: true },
    output_norm: {
        label: "Output norm",
        definition: "output_norm",
        key: "output_norm",
        power: 0,
        share: false,
    },
    band: { label: "Band (last 5 tokens)", definition: "band", key: "band", power: 0, share: true },
    content: { label: "Content", definition: "content", key: "content", power: 0, share: true },
    k90: { label: "Keys for 90%", definition: "k90", key: "k90", power: 0, share: true },
    induction: { label: "Induction score", definition: "induction", key: "induction", power: 0, share: true },
    duplicate: { label: "Duplicate score", definition: "duplicate", key: "duplicate", power: 0, share: true },
};

export interface Quantity {
    label: string;
    definition: string;
    unit: string; /* "" where there is none */
    values: Float32Array; /* (layers, heads) */
    axis: Axis;
    map: (theme: Theme) => MapName;
}

export const unitFactor = (unit: Unit, power = 1) => (unit === "bits" ? Math.pow(1 / Math.LN2, power) : 1);

/* The key of the profile's means that a choice stands for. */
export function keyOf(metric: Metric, unit: Unit, sink: Sink): string {
    if (metric !== "entropy") return METRICS[metric].key;
    return (unit === "normalized" ? unit : metric) + (sink === "out" ? "_nosink" : "");
}

export function unitName(metric: Metric, unit: Unit): string {
    const { power } = METRICS[metric];
    if (power === 0 || (metric === "entropy" && unit === "normalized")) return "";
    const name = unit === "bits" ? "bits" : "nats";
    return power === 2 ? `${name}²` : name;
}

function labelOf(metric: Metric, unit: Unit, sink: Sink): string {
    if (metric !== "entropy") return METRICS[metric].label;
    return `${unit === "normalized" ? "Normalized entropy" : "Entropy"}${sink === "out" ? " without the first token" : ""}`;
}

const scaled = (values: Float32Array, factor: number) =>
    factor === 1 ? values : values.map((value) => value * factor);

/* Null where the profile does not hold it. */
export function quantityValues(
    profile: Profile,
    metric: Metric,
    unit: Unit,
    sink: Sink,
): Float32Array | null {
    const values = profile.mean(keyOf(metric, unit, sink));
    return values && scaled(values, unitFactor(unit, METRICS[metric].power));
}

/* The scale is one for all profiles, so that colors can be compared. */
export function quantityOf(
    profiles: Profile[],
    of: Profile,
    metric: Metric,
    unit: Unit,
    sink: Sink,
): Quantity | null {
    const values = quantityValues(of, metric, unit, sink);
    if (!values) return null;
    const normalized = (metric === "entropy" && unit === "normalized") || METRICS[metric].share;
    const tops = profiles.map((profile) => extent(quantityValues(profile, metric, unit, sink) ?? [])[1]);
    const top = normalized ? 1 : Math.max(...tops, 1e-6);
    const blues = METRICS[metric].power === 0;
    return {
        label: labelOf(metric, unit, sink),
        definition: metric === "entropy" ? keyOf(metric, unit, sink) : METRICS[metric].definition,
        unit: unitName(metric, unit),
        values,
        axis: axisAround(0, Number.isFinite(top) ? top : 1),
        map: (theme) => (blues ? bluesOf(theme) : "entropy"),
    };
}

/* The metrics that a profile has, in the order of the menu. */
export const metricsOf = (profile: Profile): Metric[] =>
    (Object.keys(METRICS) as Metric[]).filter((metric) =>
        profile.mean(METRICS[metric].key)?.some((value) => !Number.isNaN(value)),
    );
