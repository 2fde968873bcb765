/* live_tab.tsx - a prompt, the text as it comes, all heads as they look, and both over time. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { axisAround } from "../base/axis";
import { headName, number, percent, plural, visible } from "../base/format";
import { extent, mean } from "../data/arrays";
import { rowOf } from "../data/attention";
import { keyOf, unitFactor, unitName } from "../data/quantity";
import { download, traceTable } from "../data/tables";
import { tokenMeans, type Trace } from "../data/trace";
import { rowKind, type Run } from "../live/run";
import type { LiveSource } from "../live/source";
import { selectedHeads, useStore } from "../store";
import { AttentionView } from "./attention_map";
import { Nothing, Panel } from "./pieces";
import { PromptBox } from "./prompt_box";
import { attentionColor, AttentionScale, entropyColor, EntropyScale } from "./scale";
import { TableButton } from "./table";
import { TokenText } from "./token_text";
import { SnapshotPanel } from "./tokens_tab";
import { OverTime, Readout } from "./trace_tab";

export function LiveTab({ source }: { source: LiveSource }) {
    const { run } = source;
    const [pointed, setPointed] = useState(-1);
    return (
        <>
            <PromptBox source={source} />
            {run ? (
                <LiveViews source={source} run={run} pointed={pointed} onPoint={setPointed} />
            ) : (
                <Panel title="No output yet" class="wide">
                    <Nothing title="Type a prompt and press Generate">
                        Every token comes with the entropy of every head: dark cells look at one place, light
                        ones everywhere.
                    </Nothing>
                </Panel>
            )}
        </>
    );
}

function LiveViews({
    source,
    run,
    pointed,
    onPoint,
}: {
    source: LiveSource;
    run: Run;
    pointed: number;
    onPoint: (token: number) => void;
}) {
    const { state } = useStore();
    const profile = source.profiles[0];
    const normalized = state.unit === "normalized";
    const trace = run.traceOf(rowKind(state.unit, state.sink));
    const rows = trace.entropies!;
    const streaming = run.state === "streaming";
    const factor = normalized ? 1 : unitFactor(state.unit);
    const unit = normalized ? "" : unitName("entropy", state.unit);
    const most = normalized ? 1 : run.most;
    useFirstHead(run, rows, trace.n);
    const heads = selectedHeads(profile, state.selected).map((head) => head.index);
    const all = useMemo(() => tokenMeans(rows, trace.n, []).map((value) => value * factor), [trace, factor]);
    const chosen = useMemo(
        () => (heads.length ? tokenMeans(rows, trace.n, heads).map((value) => value * factor) : null),
        [trace, factor, state.selected],
    );
    /* The text is colored by normalized entropy in every unit: nats grow with the text. */
    const shares = useMemo(
        () => tokenMeans(run.traceOf(rowKind("normalized", state.sink)).entropies!, trace.n, heads),
        [trace, state.sink, state.selected],
    );
    /* While a text grows, the newest token that has a row: it led to the last one. */
    const at = pointed >= 0 ? pointed : streaming ? trace.n - 2 : state.token;
    return (
        <>
            <div class="columns">
                <div class="column">
                    <TextPanel
                        source={source}
                        run={run}
                        trace={trace}
                        means={chosen ?? all}
                        shares={shares}
                        unit={unit}
                        at={pointed >= 0 ? pointed : state.token}
                        onPoint={onPoint}
                    />
                </div>
                <div class="column">
                    <SnapshotPanel
                        profile={profile}
                        rows={rows}
                        n={trace.n}
                        at={at < trace.n ? at : -1}
                        texts={trace.texts}
                        unit={unit}
                        most={most}
                        term={keyOf("entropy", state.unit, state.sink)}
                    />
                    <MapPanel source={source} run={run} at={pointed >= 0 ? pointed : state.token} />
                </div>
            </div>
            <OverTime
                trace={trace}
                all={all}
                chosen={chosen}
                name={state.selected.join(", ")}
                onPoint={onPoint}
                unit={unit}
            />
        </>
    );
}

/* When the first text stands, the most focused head is there to look at. */
function useFirstHead(run: Run, rows: Float32Array, n: number) {
    const { store, state } = useStore();
    const resting = run.state === "done" || run.state === "stopped";
    useEffect(() => {
        if (!resting || state.selected.length || !n) return;
        const means = Array.from({ length: rows.length / n }, (_, head) =>
            mean(rows.subarray(head * n, (head + 1) * n)),
        );
        const best = means.indexOf(extent(means)[0]);
        if (best >= 0) store.select(Math.floor(best / store.profile!.nHeads), best % store.profile!.nHeads);
    }, [resting]);
}

const WORDS: Record<Run["state"], string> = {
    streaming: "generating…",
    stopped: "stopped",
    done: "",
    lost: "the connection was lost; trying again…",
    failed: "",
};

function TextPanel({
    source,
    run,
    trace,
    means,
    shares,
    unit,
    at,
    onPoint,
}: {
    source: LiveSource;
    run: Run;
    trace: Trace;
    means: Float32Array; /* (tokens) in the unit */
    shares: Float32Array; /* (tokens) normalized */
    unit: string;
    at: number;
    onPoint: (token: number) => void;
}) {
    const { store, state } = useStore();
    const axis = axisAround(0, 1);
    const spikes = useMemo(() => new Set(trace.spikes), [trace]);
    const map = state.selected[0] ? source.mapOf(state.selected[0]) : null;
    const looks = map && at >= 0 && at < map.n ? rowOf(map, at) : null;
    const color = (token: number, from: number) =>
        from >= 0 && from === at && looks
            ? attentionColor(state.theme, looks, token)
            : entropyColor(axis, shares[token]);
    const note =
        run.state === "failed"
            ? ""
            : `${WORDS[run.state] || plural(run.nGenerated, "token")}${run.settings.off.length ? `; disabled: ${run.settings.off.join(", ")}` : ""}`;
    return (
        <Panel
            title="Text"
            class="first live-text"
            note={<span aria-live="polite">{note}</span>}
            actions={
                <>
                    <button
                        type="button"
                        class="quiet"
                        disabled={!trace.n}
                        onClick={() => download("trace.jsonl", "application/jsonl", run.toLines())}>
                        Trace
                    </button>
                    <TableButton table={() => traceTable(trace, means)} />
                </>
            }>
            {run.state === "failed" ? (
                <p class="problem" role="alert">
                    {run.problem}
                </p>
            ) : null}
            <TokenText
                id="live-text"
                label="The text, token by token"
                texts={trace.texts}
                kinds={trace.kinds}
                token={state.token}
                color={color}
                spikes={spikes}
                spoken={(token) =>
                    `${visible(trace.texts[token])}, ${number(means[token])} ${unit}${spikes.has(token) ? ", spike" : ""}`
                }
                onToken={(token) => store.set({ token })}
                onPoint={onPoint}
            />
            {looks ? (
                <AttentionScale
                    label={`Where ${state.selected[0]} looks in the row of this token`}
                    theme={state.theme}
                />
            ) : (
                <EntropyScale
                    label="Normalized entropy of each token’s row, selected heads; spikes are red"
                    term={keyOf("entropy", "normalized", state.sink)}
                    unit=""
                    axis={axis}
                />
            )}
            <Readout trace={trace} entropy={means} at={at < trace.n ? at : -1} unit={unit} />
        </Panel>
    );
}

/* The attention map of the chosen head over the whole text, when generation has stopped. */
function MapPanel({ source, run, at }: { source: LiveSource; run: Run; at: number }) {
    const { store, state } = useStore();
    const name = state.selected[0] ?? "";
    const resting = run.state === "done" || run.state === "stopped";
    const [problem, setProblem] = useState("");
    useEffect(() => {
        setProblem("");
        if (name && resting) source.readMap(name).catch((error: Error) => setProblem(error.message));
    }, [name, resting, run]);
    const map = name ? source.mapOf(name) : null;
    const first = selectedHeads(source.profiles[0], state.selected)[0];
    const off = first ? state.off.includes(headName(first.layer, first.head)) : false;
    return (
        <Panel
            class="card"
            title={name || "No head selected"}
            note={map && run.settings.off.length ? `disabled: ${run.settings.off.join(", ")}` : ""}
            actions={
                first ? (
                    <button
                        type="button"
                        class="quiet"
                        aria-pressed={off}
                        onClick={() => store.toggleOff(first.layer, first.head)}>
                        {off ? "Enable" : "Disable"}
                    </button>
                ) : null
            }>
            {map ? (
                <AttentionView
                    id="live-map"
                    label={`Attention of ${name}`}
                    map={map}
                    texts={run.trace.texts}
                    theme={state.theme}
                    token={at}
                    mostSize={380}
                    onToken={(token) => store.set({ token })}
                />
            ) : (
                <Nothing
                    title={
                        problem ||
                        (!name
                            ? "Click a head to see its attention over the text"
                            : resting
                              ? "Computing the attention map…"
                              : "The attention map appears when generation finishes")
                    }
                />
            )}
            {map && at >= 0 && at < map.n ? (
                <p class="extremes">{topOf(rowOf(map, at), run.trace.texts)}</p>
            ) : null}
        </Panel>
    );
}

const topOf = (row: Float32Array, texts: string[]) =>
    Array.from(row.keys())
        .sort((a, b) => row[b] - row[a])
        .slice(0, 4)
        .map((key) => `${visible(texts[key])} ${percent(row[key])}`)
        .join(" · ");
