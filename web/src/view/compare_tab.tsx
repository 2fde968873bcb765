/* compare_tab.tsx - two models, head by head, on one scale; and what differs. */
import { useMemo } from "preact/hooks";
import { axisAround } from "../base/axis";
import { headName, number, plural, signed } from "../base/format";
import { extent } from "../data/arrays";
import type { RawCompare, Sheet } from "../data/format";
import { quantityOf, quantityValues, type Quantity } from "../data/quantity";
import type { Profile } from "../data/profile";
import { selectedHeads, useStore } from "../store";
import { Heatmap } from "./heatmap";
import { Panel } from "./pieces";
import { ProfileHeatmap } from "./profile_heatmap";
import { Scale } from "./scale";
import { Sheets } from "./table";

const base = (path: string | undefined) =>
    (path ?? "")
        .split("/")
        .pop()
        ?.replace(/\.(profile|safetensors)$/, "") ?? "";

export function CompareTab({ compare }: { compare: RawCompare | null }) {
    const { store } = useStore();
    const [a, b] = pairOf(store.source.profiles, compare);
    const names = [
        a?.name ?? base(compare?.names?.[0] ?? compare?.a),
        b?.name ?? base(compare?.names?.[1] ?? compare?.b),
    ];
    const said =
        compare?.significant !== undefined && compare.heads
            ? `${plural(compare.significant, "head")} of ${compare.heads} differ (false discovery rate under 5%)${compare.kind ? `, ${compare.kind}` : ""}.`
            : "";
    return (
        <>
            <p class="lead">
                <b>{names[0]}</b> and <b>{names[1]}</b>, head by head. {said}
            </p>
            {a && b && <Pair a={a} b={b} />}
            {!a && compare?.tables?.heads && <FromTable sheet={compare.tables.heads} />}
            <Sheets sheets={compare?.tables ?? {}} name="compare" />
        </>
    );
}

/* The two that are compared: by name, else the first two. */
function pairOf(profiles: Profile[], compare: RawCompare | null): [Profile | null, Profile | null] {
    const named = (path: string | undefined) =>
        profiles.find((profile) => path && profile.name === base(path));
    const a = named(compare?.a) ?? profiles[0] ?? null;
    const b = named(compare?.b) ?? profiles[1] ?? null;
    const alike = a && b && a !== b && a.nLayers === b.nLayers && a.nHeads === b.nHeads;
    return alike ? [a, b] : [null, null];
}

function Pair({ a, b }: { a: Profile; b: Profile }) {
    const { state } = useStore();
    const both = [a, b];
    const of = (profile: Profile) => quantityOf(both, profile, state.metric, state.unit, state.sink);
    const [left, right] = useMemo(() => both.map(of), [a, b, state.metric, state.unit, state.sink]);
    const difference = useMemo(() => {
        const from = quantityValues(a, state.metric, state.unit, state.sink);
        const to = quantityValues(b, state.metric, state.unit, state.sink);
        return from && to ? to.map((value, i) => value - from[i]) : null;
    }, [a, b, state.metric, state.unit, state.sink]);
    if (!left || !right || !difference) return null;
    const far = Math.max(...extent(difference).map(Math.abs), 1e-6);
    const top = axisAround(0, far).high;
    const axis = { low: -top, high: top, step: top / 2 };
    const show = (profile: Profile, id: string, quantity: Quantity) => (
        <ProfileHeatmap
            {...common(profile, id)}
            label={`${quantity.label} of ${profile.name}`}
            values={quantity.values}
            axis={quantity.axis}
            map={quantity.map(state.theme)}
            unit={quantity.unit}
        />
    );
    const common = (profile: Profile, id: string) => ({
        id,
        profile,
        fixed: true,
        marginals: false,
        mostHeight: 300,
        off: profile.off,
        describe: (index: number) => profile.typeName(index),
    });
    return (
        <div class="thirds">
            <Panel title={a.name}>
                {show(a, "compare-a", left)}
                <Scale
                    label={left.label}
                    term={left.definition}
                    unit={left.unit}
                    axis={left.axis}
                    map={left.map(state.theme)}
                />
            </Panel>
            <Panel title={b.name}>
                {show(b, "compare-b", right)}
                <Scale
                    label={right.label}
                    term={right.definition}
                    unit={right.unit}
                    axis={right.axis}
                    map={right.map(state.theme)}
                />
            </Panel>
            <Panel title="Difference" note={`${b.name} − ${a.name}`}>
                <ProfileHeatmap
                    {...common(a, "compare-difference")}
                    label="Difference"
                    values={difference}
                    axis={axis}
                    map="difference"
                    unit={left.unit}
                />
                <Scale
                    label="Difference"
                    unit={left.unit}
                    axis={axis}
                    map="difference"
                    ends={["less", "more"]}
                />
            </Panel>
            <Chosen a={a} b={b} left={left} right={right} />
        </div>
    );
}

/* The selected heads in words. */
function Chosen({ a, b, left, right }: { a: Profile; b: Profile; left: Quantity; right: Quantity }) {
    const { state } = useStore();
    const heads = selectedHeads(a, state.selected).slice(0, 4);
    return (
        <p class="extremes wide" aria-live="polite">
            {heads.map(({ layer, head, index }) => (
                <span key={index}>
                    <b>{headName(layer, head)}</b> {number(left.values[index])} →{" "}
                    {number(right.values[index])} ({signed(right.values[index] - left.values[index])}){" "}
                    {left.unit}
                    {a.types && b.types ? `, ${a.types[index]} → ${b.types[index]}` : ""}.{" "}
                </span>
            ))}
        </p>
    );
}

/* Without profiles: the table's differences as a map. */
function FromTable({ sheet }: { sheet: Sheet }) {
    const { store, state } = useStore();
    const rows = sheet.rows as { layer: number; head: number; difference: number }[];
    const nLayers = Math.max(...rows.map((row) => row.layer)) + 1;
    const nHeads = Math.max(...rows.map((row) => row.head)) + 1;
    const values = new Float32Array(nLayers * nHeads).fill(NaN);
    rows.forEach((row) => (values[row.layer * nHeads + row.head] = row.difference));
    const top = axisAround(0, Math.max(...rows.map((row) => Math.abs(row.difference)), 1e-6)).high;
    const axis = { low: -top, high: top, step: top / 2 };
    return (
        <Panel title="Difference of every head" class="wide">
            <Heatmap
                id="compare-difference"
                label="Difference of every head"
                nLayers={nLayers}
                nHeads={nHeads}
                values={values}
                axis={axis}
                map="difference"
                unit=""
                theme={state.theme}
                selected={[]}
                off={new Set()}
                onSelect={(layer, head, add) => store.select(layer, head, add)}
                marginals={false}
            />
            <Scale label="Difference" unit="" axis={axis} map="difference" ends={["less", "more"]} />
        </Panel>
    );
}
