/* trace_tab.tsx - a text as it was generated: what was seen of every token, over time. */
import { useMemo, useState } from "preact/hooks";
import { axisAround } from "../base/axis";
import { number, plural, visible } from "../base/format";
import { extent } from "../data/arrays";
import { unitFactor, unitName } from "../data/quantity";
import type { Profile } from "../data/profile";
import { traceTable } from "../data/tables";
import { layerMeans, tokenMeans, type Trace } from "../data/trace";
import { ofFirst, selectedHeads, useStore } from "../store";
import { Ask, Panel } from "./pieces";
import { Legend, Plot, type Line } from "./plot";
import { entropyColor, EntropyScale } from "./scale";
import { Sheets, TableButton } from "./table";
import { colorsOf } from "./theme";
import { TokenText } from "./token_text";
import { SnapshotPanel } from "./tokens_tab";

export function TraceTab({ trace, profile }: { trace: Trace; profile: Profile | null }) {
    const { store, state } = useStore();
    const [pointed, setPointed] = useState(-1);
    const factor = unitFactor(state.unit);
    const unit = unitName("renyi2", state.unit);
    const rows = trace.entropies;
    const heads = useMemo(
        () => (profile ? selectedHeads(profile, state.selected).map((head) => head.index) : []),
        [profile, state.selected],
    );
    const all = useMemo(
        () =>
            (rows ? tokenMeans(rows, trace.n, []) : layerMeans(trace))?.map((value) => value * factor) ??
            null,
        [rows, factor],
    );
    const chosen = useMemo(
        () => (rows && heads.length ? tokenMeans(rows, trace.n, heads).map((value) => value * factor) : null),
        [rows, heads, factor],
    );
    /* Reports of earlier versions have no normalized entropy. */
    const shares = useMemo(() => trace.normalized, [trace]);
    const shown = shares ?? all;
    const axis = useMemo(() => {
        const [low, high] = extent(shown ?? []);
        return axisAround(shares ? low : 0, Math.max(high, 1e-6));
    }, [shown]);
    const spikes = useMemo(() => new Set(trace.spikes), [trace]);
    const at = pointed >= 0 ? pointed : state.token;
    return (
        <>
            <div class="columns">
                <div class="column">
                    <Panel
                        title={`Text${ofFirst(store)}`}
                        note={`colored by mean ${shares ? "normalized entropy" : "entropy"} of all heads; ${trace.spikes.length ? `${plural(trace.spikes.length, "spike")} in red` : "no spikes"}`}
                        actions={<TableButton table={() => traceTable(trace, all)} />}>
                        <TokenText
                            id="trace-text"
                            label="The tokens of the trace"
                            texts={trace.texts}
                            kinds={trace.kinds}
                            token={state.token}
                            color={(token) => entropyColor(axis, shown?.[token])}
                            spikes={spikes}
                            spoken={(token) =>
                                `${visible(trace.texts[token])}, ${all ? number(all[token]) : "–"} ${unit}${spikes.has(token) ? ", spike" : ""}`
                            }
                            onToken={(token) => store.set({ token })}
                            onPoint={setPointed}
                        />
                        <EntropyScale
                            label={shares ? "Normalized entropy of the row" : undefined}
                            term={shares ? "normalized" : undefined}
                            unit={shares ? "" : unit}
                            axis={axis}
                            at={shown?.[at]}
                        />
                        <Readout trace={trace} entropy={all} at={at} unit={unit} />
                    </Panel>
                </div>
                <div class="column">
                    {rows && profile && (
                        <SnapshotPanel
                            profile={profile}
                            rows={rows}
                            n={trace.n}
                            at={at}
                            texts={trace.texts}
                            unit={unit}
                        />
                    )}
                </div>
            </div>
            <OverTime
                trace={trace}
                all={all}
                chosen={chosen}
                name={state.selected.join(", ")}
                onPoint={setPointed}
                unit={unit}
            />
            <Sheets sheets={trace.tables} name="trace" />
        </>
    );
}

/* What is known of one token; of as many lines, whether there is one or not. */
export function Readout({
    trace,
    entropy,
    at,
    unit,
}: {
    trace: Trace;
    entropy: Float32Array | null;
    at: number;
    unit: string;
}) {
    const of = (list: Float32Array | null) => (at >= 0 && list ? number(list[at]) : "–");
    return (
        <dl class="facts line" aria-live="polite">
            <div>
                <dt>Token</dt>
                <dd>{at >= 0 ? visible(trace.texts[at]) : "–"}</dd>
            </div>
            <div>
                <dt>
                    Entropy
                    <Ask term="entropy" />
                </dt>
                <dd>
                    {of(entropy)}
                    <small> {unit}</small>
                </dd>
            </div>
            <div>
                <dt>
                    Vocabulary
                    <Ask term="vocab_entropy" />
                </dt>
                <dd>
                    {of(trace.vocabEntropy)}
                    <small> nats</small>
                </dd>
            </div>
            <div>
                <dt>
                    Log-prob
                    <Ask term="logprob" />
                </dt>
                <dd>{of(trace.logprob)}</dd>
            </div>
            <div>
                <dt>
                    Spike score
                    <Ask term="spike" />
                </dt>
                <dd class={at >= 0 && trace.spikes.includes(at) ? "warn" : ""}>{of(trace.spike)}</dd>
            </div>
        </dl>
    );
}

export function OverTime({
    trace,
    all,
    chosen,
    name,
    onPoint,
    unit = "nats",
}: {
    trace: Trace;
    all: Float32Array | null;
    chosen: Float32Array | null;
    name: string;
    onPoint: (token: number) => void;
    unit?: string;
}) {
    const { store, state } = useStore();
    const colors = colorsOf(state.theme);
    const x = useMemo(() => Array.from({ length: trace.n }, (_, i) => i), [trace]);
    const prompt = trace.kinds.findIndex((kind) => kind === 2);
    const lines = useMemo(() => {
        const out: Line[] = [];
        if (all)
            out.push({ label: "mean entropy of all heads", values: all, color: colors.series[0], width: 2 });
        if (chosen)
            out.push({
                label: name.length > 30 ? "selected heads" : name,
                values: chosen,
                color: colors.series[1],
            });
        if (trace.vocabEntropy)
            out.push({
                label: "vocabulary entropy",
                values: trace.vocabEntropy,
                color: colors.series[2],
                dash: [5, 3],
                width: 1.25,
            });
        if (trace.logprob)
            out.push({
                label: "log-probability (right)",
                values: trace.logprob,
                color: colors.series[3],
                scale: "right",
                width: 1,
            });
        return out;
    }, [trace, all, chosen, name, state.theme]);
    const marks = useMemo(
        () => trace.spikes.map((spike) => ({ x: spike, color: colors.warn })),
        [trace, state.theme],
    );
    return (
        <Panel
            title="Over time"
            term="spike"
            class="wide"
            note={`spikes (score above ${trace.threshold}) are marked; drag to look closer, double-click to reset`}
            actions={<TableButton table={() => traceTable(trace, all)} />}>
            <Plot
                label="Entropy over time"
                x={x}
                lines={lines}
                height={230}
                theme={state.theme}
                xLabel="token"
                yLabel={unit || "normalized; nats"}
                rightLabel="log-probability"
                marks={marks}
                shade={prompt > 0 ? [0, prompt - 0.5] : null}
                zoom
                onHover={(index) => onPoint(index ?? -1)}
                onPick={(token) => store.set({ token })}
                yFrom={0}
            />
            <Legend lines={lines} />
        </Panel>
    );
}
