/* store.ts - the one state that all views share: what is selected, and how numbers are shown.
 *
 * It is kept in the URL fragment, so that a view can be sent: #tab=heads&unit=bits&sel=L5H3 */
import { createContext } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";
import { headName, parseHead } from "./base/format";
import { METRICS, type Metric, type Sink, type Theme, type Unit } from "./data/quantity";
import type { Profile } from "./data/profile";
import type { Source } from "./data/source";

export type Tab =
    "live" | "sides" | "heads" | "tokens" | "lens" | "diagnosis" | "trace" | "compare" | "sweep";

export interface State {
    tab: Tab;
    profile: number;
    metric: Metric;
    unit: Unit;
    sink: Sink;
    theme: Theme;
    selected: string[]; /* names of heads; the last one chosen is first */
    off: string[]; /* disabled by the reader */
    cut: string[]; /* chosen in the live page's Prune tab: disabled there alone */
    type: string; /* heads of other types are dimmed; "": none are */
    layers: string; /* "3-6": the others are dimmed; "": none are */
    check: string; /* the check to show in Diagnosis; "": all */
    token: number; /* -1: none */
}

const DEFAULTS: Omit<State, "theme"> = {
    tab: "heads",
    profile: 0,
    metric: "entropy",
    unit: "nats",
    sink: "in",
    selected: [],
    off: [],
    cut: [],
    type: "",
    layers: "",
    check: "",
    token: -1,
};

const NOTHING: string[] = [];
const UNITS = ["nats", "bits", "normalized"];
const METRIC_NAMES = Object.keys(METRICS);
const TABS = ["live", "sides", "heads", "tokens", "lens", "diagnosis", "trace", "compare", "sweep"];

const oneOf = <T extends string>(value: string | null, allowed: string[], otherwise: T): T =>
    value !== null && allowed.includes(value) ? (value as T) : otherwise;

const listOf = (value: string | null): string[] =>
    (value ?? "")
        .split(",")
        .filter(parseHead)
        .map((name) => name.toUpperCase());

/* Whatever is not understood is left out: fragments are written by anybody. */
export function parseFragment(fragment: string): Partial<State> {
    const query = new URLSearchParams(fragment.replace(/^#/, ""));
    const whole = (name: string, otherwise: number) =>
        /^\d{1,6}$/.test(query.get(name) ?? "") ? Number(query.get(name)) : otherwise;
    const theme = query.get("theme");
    return {
        tab: oneOf(query.get("tab"), TABS, DEFAULTS.tab),
        profile: whole("profile", DEFAULTS.profile),
        metric: oneOf(query.get("metric"), METRIC_NAMES, DEFAULTS.metric),
        unit: oneOf(query.get("unit")?.replace("normalised", "normalized") ?? null, UNITS, DEFAULTS.unit),
        sink: oneOf(query.get("sink"), ["in", "out"], DEFAULTS.sink),
        selected: listOf(query.get("sel")),
        off: listOf(query.get("off")),
        cut: listOf(query.get("cut")),
        type: query.get("type") ?? "",
        layers: /^\d{1,4}-\d{1,4}$/.test(query.get("layers") ?? "") ? query.get("layers")! : "",
        check: query.get("check") ?? "",
        token: whole("token", DEFAULTS.token),
        ...(theme === "light" || theme === "dark" ? { theme } : {}),
    };
}

export function writeFragment(state: State): string {
    const query = new URLSearchParams();
    const put = (name: string, value: string | number, usual: string | number) => {
        if (value !== usual) query.set(name, String(value));
    };
    put("tab", state.tab, DEFAULTS.tab);
    put("profile", state.profile, DEFAULTS.profile);
    put("metric", state.metric, DEFAULTS.metric);
    put("unit", state.unit, DEFAULTS.unit);
    put("sink", state.sink, DEFAULTS.sink);
    put("sel", state.selected.join(","), "");
    put("off", state.off.join(","), "");
    put("cut", state.cut.join(","), "");
    put("type", state.type, "");
    put("layers", state.layers, "");
    put("check", state.check, "");
    put("token", state.token, DEFAULTS.token);
    const text = query.toString().replace(/%2C/g, ",");
    return text ? `#${text}` : "";
}

export class Store {
    state: State;
    private listeners = new Set<() => void>();

    constructor(
        readonly source: Source,
        fragment: string,
        theme: Theme,
    ) {
        this.state = { ...DEFAULTS, theme, ...parseFragment(fragment) };
        this.state.profile = Math.min(this.state.profile, Math.max(source.profiles.length - 1, 0));
        if (!tabsOf(source).includes(this.state.tab)) this.state.tab = tabsOf(source)[0] ?? "heads";
        if (!this.state.selected.length) this.state.selected = this.worthALook();
    }

    get profile(): Profile | null {
        return this.source.profiles[this.state.profile] ?? null;
    }

    set(change: Partial<State>): void {
        this.state = { ...this.state, ...change };
        this.listeners.forEach((listener) => listener());
    }

    listen(listener: () => void): () => void {
        this.listeners.add(listener);
        return () => this.listeners.delete(listener);
    }

    /* Alone, or added to those that are selected already; chosen again it goes. */
    select(layer: number, head: number, add = false): void {
        if (this.profile && !this.profile.has(layer, head)) return;
        const name = headName(layer, head);
        const { selected } = this.state;
        if (!add) this.set({ selected: [name] });
        else if (selected.includes(name) && selected.length > 1)
            this.set({ selected: selected.filter((other) => other !== name) });
        else this.set({ selected: [name, ...selected.filter((other) => other !== name)] });
    }

    /* Which list of disabled heads this tab has.  What is tried in the Prune tab of a running model stays
     * there, and its Diagnosis measures all heads. */
    get offHere(): "off" | "cut" | null {
        if (this.source.kind !== "live") return "off";
        return this.state.tab === "sweep" ? "cut" : this.state.tab === "diagnosis" ? null : "off";
    }

    get disabled(): string[] {
        return this.offHere ? this.state[this.offHere] : NOTHING;
    }

    toggleOff(layer: number, head: number): void {
        if (!this.offHere) return;
        const name = headName(layer, head);
        const list = this.disabled;
        this.set({
            [this.offHere]: list.includes(name) ? list.filter((other) => other !== name) : [...list, name],
        });
    }

    /* Disables all of these heads; if they are, enables them. */
    toggleBlock(cells: { layer: number; head: number }[]): void {
        if (!this.offHere) return;
        const names = cells
            .filter(({ layer, head }) => !this.profile || this.profile.has(layer, head))
            .map(({ layer, head }) => headName(layer, head));
        const list = this.disabled;
        const rest = list.filter((name) => !names.includes(name));
        const all = names.every((name) => list.includes(name));
        this.set({ [this.offHere]: all ? rest : [...rest, ...names] });
    }

    /* Something to look at when the page opens: the last head that the summary names, which is the one
     * whose action it describes; else the most focused one. */
    private worthALook(): string[] {
        const named = this.profile?.summary.flatMap((sentence) => sentence.parts) ?? [];
        const told = named.map((part) => parseHead(part.shows)).filter((head) => head !== null);
        const mapped = this.source.tokens?.heads ?? [];
        const last = told[told.length - 1];
        const seen =
            last && (!mapped.length || mapped.some(([layer, head]) => layer === last[0] && head === last[1]));
        return seen ? [headName(...last)] : this.mostFocused();
    }

    private mostFocused(): string[] {
        const profile = this.profile;
        const values = profile?.mean("normalized") ?? profile?.mean("entropy");
        if (!profile || !values) return [];
        const mapped = (this.source.tokens?.heads ?? [])
            .filter(([layer, head]) => profile.has(layer, head))
            .map(([layer, head]) => profile.at(layer, head));
        let best = -1;
        for (const i of mapped.length ? mapped : values.keys())
            if (!Number.isNaN(values[i]) && (best < 0 || values[i] < values[best])) best = i;
        return best < 0 ? [] : [headName(Math.floor(best / profile.nHeads), best % profile.nHeads)];
    }
}

/* The tabs that a source has something for. */
export function tabsOf(source: Source): Tab[] {
    if (source.kind === "live") {
        const heads: Tab[] = source.profiles.some((profile) => profile.summary.length) ? ["heads"] : [];
        return ["live", ...heads, "sides", "lens", "diagnosis", "sweep"];
    }
    const tabs: [Tab, boolean][] = [
        ["heads", source.profiles.length > 0],
        ["tokens", source.tokens !== null],
        ["trace", source.trace !== null],
        ["lens", source.lens !== null],
        ["diagnosis", source.profiles.some((profile) => profile.diagnoses.length > 0)],
        ["compare", source.compare !== null || source.profiles.length > 1],
        ["sweep", source.sweep !== null],
    ];
    return tabs.filter(([, has]) => has).map(([tab]) => tab);
}

/* Prompt, lens and trace are of the first profile's model: said where another one is shown. */
export const ofFirst = ({ source, state }: Store): string =>
    state.profile > 0 ? ` in ${source.profiles[0].name}` : "";

export const StoreContext = createContext<Store | null>(null);

/* The store, and the state as it is: the component is drawn again when it changes. */
export function useStore(): { store: Store; state: State } {
    const store = useContext(StoreContext);
    if (!store) throw new Error("no store above this component");
    const [state, setState] = useState(store.state);
    useEffect(() => {
        setState(store.state);
        return store.listen(() => setState(store.state));
    }, [store]);
    return { store, state: store.state ?? state };
}

/* The layers that are shown among the others; null: all of them. */
export function layerRange({ layers }: State): [number, number] | null {
    const [first, last] = layers.split("-").map(Number);
    return layers ? [first, last] : null;
}

/* The selected heads that this profile has, as indices (layer * heads + head). */
export function selectedHeads(
    profile: Profile,
    names: string[],
): { layer: number; head: number; index: number }[] {
    return names
        .map(parseHead)
        .filter((head): head is [number, number] => head !== null && profile.has(head[0], head[1]))
        .map(([layer, head]) => ({ layer, head, index: profile.at(layer, head) }));
}
