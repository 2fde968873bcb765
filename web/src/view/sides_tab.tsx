/* sides_tab.tsx - this text and the one before it, and where they part. */
import { useMemo, useState } from "preact/hooks";
import { axisAround } from "../base/axis";
import { number, plural, visible } from "../base/format";
import { extent, mean } from "../data/arrays";
import { keyOf, unitFactor, unitName } from "../data/quantity";
import { tokenMeans } from "../data/trace";
import type { RowKind } from "../live/client";
import { rowKind, type Run } from "../live/run";
import type { LiveSource } from "../live/source";
import { selectedHeads, useStore } from "../store";
import { Nothing, Panel } from "./pieces";
import { ProfileHeatmap } from "./profile_heatmap";
import { EntropyScale, entropyColor, Scale } from "./scale";
import { TokenText } from "./token_text";

export function SidesTab({ source }: { source: LiveSource }) {
    const [chosen, setChosen] = useState<[number, number]>([0, 0]); /* their numbers; 0: the newest two */
    const runOf = (number: number, otherwise: number): Run | undefined =>
        source.runs.find((run) => run.number === number) ?? source.runs[otherwise];
    const [now, before] = [runOf(chosen[0], 0), runOf(chosen[1], 1)];
    const choose = (which: 0 | 1, label: string, run: Run) => (
        <label>
            {label}{" "}
            <select
                class="history"
                value={String(run.number)}
                onChange={(event) => {
                    const number = Number(event.currentTarget.value);
                    setChosen(which ? [chosen[0], number] : [number, chosen[1]]);
                }}>
                {source.runs.map((one) => (
                    <option key={one.number} value={String(one.number)}>
                        {one.label}
                    </option>
                ))}
            </select>
        </label>
    );
    if (!now || !before)
        return (
            <Panel title="Side by side" class="wide">
                <Nothing title="Two texts are needed to compare">
                    Generate once, disable a head with X, and generate again.
                </Nothing>
            </Panel>
        );
    return (
        <>
            {source.runs.length > 2 ? (
                <p class="lead choice">
                    {choose(1, "Before", before)} {choose(0, "Now", now)}
                </p>
            ) : null}
            <Texts now={now} before={before} />
            <Heads source={source} now={now} before={before} />
        </>
    );
}

/* What a run's numbers are shown in; `shares`, which color the texts, are normalized in every unit. */
function useShown(...runs: Run[]) {
    const { state } = useStore();
    const kind = rowKind(state.unit, state.sink);
    const traces = runs.map((run) => run.traceOf(kind));
    const normalized = state.unit === "normalized";
    return {
        kind,
        traces,
        factor: normalized ? 1 : unitFactor(state.unit),
        unit: unitName("entropy", state.unit),
        shares: runs.map((run) => run.traceOf(rowKind("normalized", state.sink))),
        term: keyOf("entropy", "normalized", state.sink),
    };
}

/* Both texts, and where they part. */
export function Texts({ now, before }: { now: Run; before: Run }) {
    const { traces, factor, unit, shares, term } = useShown(before, now);
    const means = useMemo(
        () => traces.map((trace) => tokenMeans(trace.entropies!, trace.n, []).map((value) => value * factor)),
        [...traces, factor],
    );
    const colored = useMemo(
        () => shares.map((trace) => tokenMeans(trace.entropies!, trace.n, [])),
        [...shares],
    );
    const axis = axisAround(0, 1);
    const parts = firstDifference(now, before);
    const side = (i: number, run: Run, id: string, title: string) => (
        <Panel
            title={title}
            note={`${run.settings.off.length ? `disabled: ${run.settings.off.join(", ")}` : "all heads enabled"} · mean ${number(mean(means[i]))} ${unit} · log-probability ${number(mean(traces[i].logprob ?? []))}`}>
            <TokenText
                id={id}
                label={title}
                texts={traces[i].texts}
                kinds={traces[i].kinds}
                token={-1}
                spikes={new Set(traces[i].spikes)}
                parts={parts}
                color={(token) => entropyColor(axis, colored[i][token])}
                spoken={(token) => `${visible(traces[i].texts[token])}, ${number(means[i][token])} ${unit}`}
                onToken={() => undefined}
            />
            <EntropyScale label="Mean normalized entropy of all heads" term={term} unit="" axis={axis} />
        </Panel>
    );
    return (
        <>
            <p class="lead">
                {parts < 0 ? (
                    "Both texts are identical."
                ) : (
                    <>
                        Outputs diverge at token {parts}: <b>{visible(traces[0].texts[parts] ?? "")}</b>{" "}
                        became <b>{visible(traces[1].texts[parts] ?? "")}</b>;{" "}
                        {plural(changed(now, before), "token")} differ.
                    </>
                )}
            </p>
            <div class="columns halves">
                <div class="column">{side(0, before, "side-before", "Before")}</div>
                <div class="column">{side(1, now, "side-now", "Now")}</div>
            </div>
        </>
    );
}

function Heads({ source, now, before }: { source: LiveSource; now: Run; before: Run }) {
    const profile = source.profiles[0];
    const { kind, traces, factor, unit } = useShown(before, now);
    const difference = useMemo(() => {
        const earlier = headMeans(before, kind);
        return headMeans(now, kind).map((value, i) => (value - earlier[i]) * factor);
    }, [...traces, factor]);
    const far = axisAround(0, Math.max(...extent(difference).map(Math.abs), 1e-6)).high;
    const axis = { low: -far, high: far, step: far / 2 };
    return (
        <Panel title="Heads, now − before" class="wide" note="mean entropy of every head over its text">
            <ProfileHeatmap
                id="sides"
                label="Difference of every head"
                profile={profile}
                values={difference}
                axis={axis}
                map="difference"
                unit={unit}
                off={new Set(selectedHeads(profile, now.settings.off).map((head) => head.index))}
                marginals={false}
                mostHeight={340}
            />
            <Scale
                label="Difference"
                unit={unit}
                axis={axis}
                map="difference"
                ends={["more focused", "more spread out"]}
            />
        </Panel>
    );
}

const headMeans = (run: Run, kind: RowKind): Float32Array => {
    const { n, entropies } = run.traceOf(kind);
    if (n === 0) return new Float32Array(run.size).fill(NaN);
    return Float32Array.from({ length: entropies!.length / Math.max(n, 1) }, (_, head) =>
        mean(entropies!.subarray(head * n, (head + 1) * n)),
    );
};

function firstDifference(a: Run, b: Run): number {
    const [left, right] = [a.ids, b.ids];
    for (let i = 0; i < Math.max(left.length, right.length); i++) if (left[i] !== right[i]) return i;
    return -1;
}

const changed = (a: Run, b: Run) => {
    const right = b.ids;
    return a.ids.filter((id, i) => id !== right[i]).length;
};
