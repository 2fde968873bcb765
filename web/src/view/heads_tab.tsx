/* heads_tab.tsx - the first thing seen: every head, what kinds there are, the chosen one. */
import { useMemo, useState } from "preact/hooks";
import { headName, number, plural } from "../base/format";
import { extent } from "../data/arrays";
import {
    keyOf,
    METRICS,
    metricsOf,
    quantityOf,
    quantityValues,
    unitFactor,
    unitName,
    type Metric,
    type Quantity,
} from "../data/quantity";
import type { Profile } from "../data/profile";
import { headsTable, layersTable } from "../data/tables";
import { layerRange, selectedHeads, useStore, type State } from "../store";
import { HeadCard } from "./head_card";
import { Nothing, Panel } from "./pieces";
import { Legend, Plot, type Line } from "./plot";
import { ProfileHeatmap } from "./profile_heatmap";
import { Scale } from "./scale";
import { Summary } from "./summary";
import { TableButton } from "./table";
import { colorsOf, faint } from "./theme";

export function HeadsTab({ profile }: { profile: Profile }) {
    const { store, state } = useStore();
    const { profiles } = store.source;
    const quantity = useMemo(
        () => quantityOf(profiles, profile, state.metric, state.unit, state.sink),
        [profile, state.metric, state.unit, state.sink],
    );
    return (
        <>
            <Summary profile={profile} />
            <div class="columns">
                <div class="column">
                    <HeadsPanel profile={profile} quantity={quantity} />
                    <Types profile={profile} />
                    <LayerPanel profile={profile} />
                </div>
                <div class="column">
                    <HeadCard profile={profile} />
                </div>
            </div>
        </>
    );
}

function MetricMenu({ profile }: { profile: Profile }) {
    const { store, state } = useStore();
    return (
        <select
            aria-label="Quantity in the cells"
            value={state.metric}
            onChange={(event) => store.set({ metric: event.currentTarget.value as Metric })}>
            {metricsOf(profile).map((metric) => (
                <option key={metric} value={metric}>
                    {METRICS[metric].label}
                </option>
            ))}
        </select>
    );
}

function HeadsPanel({ profile, quantity }: { profile: Profile; quantity: Quantity | null }) {
    const { store, state } = useStore();
    const [pointed, setPointed] = useState<number | null>(null);
    const selected = selectedHeads(profile, state.selected).map((head) => head.index);
    const off = useMemo(
        () => new Set([...profile.off, ...selectedHeads(profile, store.disabled).map((head) => head.index)]),
        [profile, store.disabled],
    );
    const dimmed = useMemo(() => dimmer(profile, state), [profile, state.type, state.layers]);
    const blues = METRICS[state.metric].power === 0;
    return (
        <Panel
            title="Heads"
            class="first"
            actions={
                <>
                    <MetricMenu profile={profile} />
                    <TableButton table={() => headsTable(profile)} />
                </>
            }>
            {quantity ? (
                <>
                    <ProfileHeatmap
                        id="heads"
                        label={`${quantity.label} of every head, layers across, heads up`}
                        profile={profile}
                        values={quantity.values}
                        axis={quantity.axis}
                        map={quantity.map(state.theme)}
                        unit={quantity.unit}
                        off={off}
                        dimmed={dimmed}
                        describe={(index) => profile.typeName(index)}
                        onActive={setPointed}
                    />
                    <Scale
                        label={quantity.label}
                        term={quantity.definition}
                        unit={quantity.unit}
                        axis={quantity.axis}
                        map={quantity.map(state.theme)}
                        ends={blues ? undefined : ["focused", "diffuse"]}
                        at={quantity.values[pointed ?? selected[0] ?? -1]}
                    />
                    <Extremes profile={profile} quantity={quantity} />
                </>
            ) : (
                <Nothing title="This profile does not have this quantity">
                    Choose another quantity or unit.
                </Nothing>
            )}
        </Panel>
    );
}

/* Which heads are not of the chosen type and layers; null: all are. */
function dimmer(profile: Profile, state: State): ((index: number) => boolean) | null {
    const range = layerRange(state);
    if (!state.type && !range) return null;
    return (index) => {
        const layer = Math.floor(index / profile.nHeads);
        const outside = range !== null && (layer < range[0] || layer > range[1]);
        return outside || (state.type !== "" && profile.types?.[index] !== state.type);
    };
}

/* The two ends, one click away. */
function Extremes({ profile, quantity }: { profile: Profile; quantity: Quantity }) {
    const { store } = useStore();
    const [low, high] = extent(quantity.values);
    if (!Number.isFinite(low)) return null;
    const link = (value: number) => {
        const index = quantity.values.indexOf(value);
        const [layer, head] = [Math.floor(index / profile.nHeads), index % profile.nHeads];
        return (
            <button type="button" class="link" onClick={() => store.select(layer, head)}>
                {headName(layer, head)}
            </button>
        );
    };
    return (
        <p class="extremes">
            Lowest {link(low)} <b>{number(low)}</b>
            {quantity.unit ? ` ${quantity.unit}` : ""}
            <span> · </span>highest {link(high)} <b>{number(high)}</b>
        </p>
    );
}

/* ------------------------------------------------------------------------- types */

function Types({ profile }: { profile: Profile }) {
    const { store, state } = useStore();
    const counts = useMemo(() => {
        const all = new Map<string, number>();
        profile.types?.forEach((type, i) => {
            if (profile.has(Math.floor(i / profile.nHeads), i % profile.nHeads))
                all.set(type, (all.get(type) ?? 0) + 1);
        });
        return [...all].sort((a, b) => b[1] - a[1]);
    }, [profile]);
    if (!counts.length) return null;
    const total = counts.reduce((sum, [, n]) => sum + n, 0);
    return (
        <Panel
            title="Head types"
            term="type"
            class="types"
            note={state.type ? `${state.type} heads only` : plural(total, "head")}>
            <div class="stack" aria-hidden="true">
                {counts.map(([type, n]) => (
                    <i
                        key={type}
                        style={{
                            flexGrow: n,
                            background: profile.typeColor(type, state.theme),
                            opacity: state.type && state.type !== type ? 0.25 : 1,
                        }}
                    />
                ))}
            </div>
            <div class="chips">
                {counts.map(([type, n]) => (
                    <button
                        key={type}
                        type="button"
                        aria-pressed={state.type === type}
                        onClick={() => store.set({ type: state.type === type ? "" : type })}>
                        <i class="dot" style={{ background: profile.typeColor(type, state.theme) }} />
                        {type} <b>{n}</b>
                    </button>
                ))}
            </div>
        </Panel>
    );
}

/* ------------------------------------------------------------------------ layers */

function LayerPanel({ profile }: { profile: Profile }) {
    const { store, state } = useStore();
    const { profiles } = store.source;
    const [x, lines] = useMemo(
        () => layerLines(profiles, profile, state),
        [profile, state.unit, state.sink, state.theme],
    );
    const normalized = state.unit === "normalized";
    const dots = useMemo(
        () => headDots(profile, state, profiles.indexOf(profile)),
        [profile, state.unit, state.sink, state.theme],
    );
    return (
        <Panel
            title="Layer profile"
            term="layers"
            actions={<TableButton table={() => layersTable(profile)} />}>
            <Plot
                label={`Mean entropy of every layer of ${profile.name}`}
                x={x}
                lines={lines}
                dots={dots}
                height={190}
                theme={state.theme}
                xLabel="layer"
                yLabel={normalized ? "normalized" : unitName("entropy", state.unit)}
                yFrom={0}
                yTo={normalized ? 1 : undefined}
                shade={shadeOf(layerRange(state))}
                xTicks={(value) => (Number.isInteger(value) ? String(value) : "")}
            />
            {profiles.length > 1 && <Legend lines={lines} />}
        </Panel>
    );
}

const shadeOf = (range: [number, number] | null): [number, number] | null =>
    range && [range[0] - 0.4, range[1] + 0.4];

/* Every head, behind the means. */
function headDots(profile: Profile, { unit, sink, theme }: State, series: number) {
    const values = quantityValues(profile, "entropy", unit, sink) ?? new Float32Array();
    return {
        x: Array.from(values, (_, i) => Math.floor(i / profile.nHeads)),
        y: values,
        color: faint(colorsOf(theme).series[series % 8], 0.28),
    };
}

function layerLines(profiles: Profile[], shown: Profile, { unit, sink, theme }: State): [number[], Line[]] {
    const colors = colorsOf(theme);
    const factor = unitFactor(unit);
    const key = keyOf("entropy", unit, sink);
    const same = profiles.filter((profile) => profile.nLayers === shown.nLayers);
    const x = Array.from({ length: shown.nLayers }, (_, i) => i);
    const lines: Line[] = [];
    for (const profile of same) {
        const mean = profile.mean(key);
        if (!mean) continue;
        const scaled = (list: Float32Array | null) =>
            list ? list.map((value) => value * factor) : undefined;
        const heads = (layer: number) => mean.subarray(layer * profile.nHeads, (layer + 1) * profile.nHeads);
        lines.push({
            label: profile.name,
            color: colors.series[profiles.indexOf(profile) % 8],
            width: profile === shown ? 2.25 : 1.25,
            dash: profile === shown ? undefined : [4, 3],
            values: scaled(profile.layer(key)) ?? x.map((layer) => average(heads(layer)) * factor),
            low: profile === shown ? scaled(profile.layer(`${key}_low`)) : undefined,
            high: profile === shown ? scaled(profile.layer(`${key}_high`)) : undefined,
        });
    }
    return [x, lines];
}

function average(list: Float32Array): number {
    const kept = list.filter((value) => !Number.isNaN(value));
    return kept.reduce((sum, value) => sum + value, 0) / kept.length;
}
