/* sides_tab.tsx - this text and the one before it, and where they part. */
import { useMemo } from "preact/hooks";
import { axisAround, shareOf } from "../base/axis";
import { number, plural, visible } from "../base/format";
import { mapColour } from "../base/palette";
import { extent, mean } from "../data/arrays";
import { unitFactor, unitName } from "../data/quantity";
import { tokenMeans } from "../data/trace";
import type { Run } from "../live/run";
import type { LiveSource } from "../live/source";
import { selectedHeads, useStore } from "../store";
import { Heatmap } from "./heatmap";
import { Nothing, Panel } from "./pieces";
import { Scale } from "./scale";
import { TokenText } from "./token_text";

export function SidesTab({ source }: { source: LiveSource }) {
    const { store, state } = useStore();
    const [now, before] = source.runs;
    const profile = source.profiles[0];
    const factor = unitFactor(state.unit);
    const unit = unitName("renyi2", state.unit);
    const means = useMemo(
        () =>
            [before, now].map((run) =>
                run
                    ? tokenMeans(run.trace.entropies!, run.trace.n, []).map((value) => value * factor)
                    : new Float32Array(),
            ),
        [now?.trace, before?.trace, factor],
    );
    const difference = useMemo(() => {
        if (!now || !before) return new Float32Array();
        const earlier = headMeans(before);
        return headMeans(now).map((value, i) => (value - earlier[i]) * factor);
    }, [now?.trace, before?.trace, factor]);
    if (!now || !before)
        return (
            <Panel title="Side by side" class="wide">
                <Nothing title="Two texts are needed">
                    Generate once, switch a head off with X, and generate again.
                </Nothing>
            </Panel>
        );
    const top = Math.max(extent(means[0])[1], extent(means[1])[1], 1e-6);
    const axis = axisAround(0, top);
    const parts = firstDifference(now, before);
    const far = axisAround(0, Math.max(...extent(difference).map(Math.abs), 1e-6)).high;
    const side = (run: Run, list: Float32Array, id: string, title: string) => (
        <Panel
            title={title}
            note={`${run.settings.off.length ? `off: ${run.settings.off.join(", ")}` : "all heads on"} · mean ${number(mean(list))} ${unit} · log-probability ${number(mean(run.trace.logprob ?? []))}`}>
            <TokenText
                id={id}
                label={title}
                texts={run.trace.texts}
                kinds={run.trace.kinds}
                token={-1}
                spikes={new Set(run.trace.spikes)}
                parts={parts}
                colour={(token) =>
                    Number.isNaN(list[token]) ? null : mapColour("difference", shareOf(axis, list[token]))
                }
                spoken={(token) => `${visible(run.trace.texts[token])}, ${number(list[token])} ${unit}`}
                onToken={() => undefined}
            />
            <Scale
                label="Mean entropy of all heads"
                term="H"
                unit={unit}
                axis={axis}
                map="difference"
                ends={["focused", "diffuse"]}
            />
        </Panel>
    );
    return (
        <>
            <p class="lead">
                {parts < 0 ? (
                    "Both texts are the same."
                ) : (
                    <>
                        The texts part at token {parts}: <b>{visible(before.trace.texts[parts] ?? "")}</b>{" "}
                        became <b>{visible(now.trace.texts[parts] ?? "")}</b>;{" "}
                        {plural(changed(now, before), "token")} differ.
                    </>
                )}
            </p>
            <div class="columns halves">
                <div class="column">{side(before, means[0], "side-before", "Before")}</div>
                <div class="column">{side(now, means[1], "side-now", "Now")}</div>
            </div>
            <Panel title="Heads, now − before" class="wide" note="mean entropy of every head over its text">
                <Heatmap
                    id="sides"
                    label="Difference of every head"
                    nLayers={profile.nLayers}
                    nHeads={profile.nHeads}
                    values={difference}
                    axis={{ low: -far, high: far, step: far / 2 }}
                    map="difference"
                    unit={unit}
                    theme={state.theme}
                    selected={selectedHeads(profile, state.selected).map((head) => head.index)}
                    off={new Set(selectedHeads(profile, now.settings.off).map((head) => head.index))}
                    marginals={false}
                    mostHeight={340}
                    onSelect={(layer, head, add) => store.select(layer, head, add)}
                    onOff={(layer, head) => store.toggleOff(layer, head)}
                />
                <Scale
                    label="Difference"
                    unit={unit}
                    axis={{ low: -far, high: far, step: far / 2 }}
                    map="difference"
                    ends={["more focused", "more diffuse"]}
                />
            </Panel>
        </>
    );
}

const headMeans = (run: Run): Float32Array => {
    const { n, entropies } = run.trace;
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
