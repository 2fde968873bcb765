/* prune_tab.tsx - which heads could go: an order, a choice of them, what they cost, and the text without
 * them.  The model that lacks them is made by the command that stands below; a server writes none. */
import { useMemo, useState } from "preact/hooks";
import { axisAround } from "../base/axis";
import { number, parseHead, percent, plural, signed } from "../base/format";
import { extent } from "../data/arrays";
import { bluesOf } from "../data/quantity";
import type { Table } from "../data/tables";
import type { RankAnswer } from "../live/client";
import type { Settings } from "../live/run";
import type { LiveSource } from "../live/source";
import { RANKERS, type Trial } from "../live/study";
import { selectedHeads, useStore } from "../store";
import { Nothing, Panel } from "./pieces";
import { ProfileHeatmap } from "./profile_heatmap";
import { Scale } from "./scale";
import { Texts } from "./sides_tab";
import { StudyBox } from "./study_tab";
import { CostPanel } from "./sweep_tab";
import { TableButton } from "./table";

const IN_NATS = ["entropy", "nosink", "renyi2"];
const FIRST_RATIO = 0.2;
const DEFAULTS: Settings = { prompt: "Once upon a time", maxTokens: 48, temperature: 0, seed: 0, off: [] };

export function PruneTab({ source }: { source: LiveSource }) {
    const { store } = useStore();
    const { study } = source;
    const [ranker, setRanker] = useState("entropy");
    const [ratio, setRatio] = useState(FIRST_RATIO);
    const pick = (wanted: number) => {
        setRatio(wanted);
        const choice = study.choiceAt(wanted);
        if (choice) store.set({ off: choice.off });
    };
    const rank = async () => {
        await study.rank(source.tested, ranker);
        if (study.ranking?.ranker === ranker && !study.problem) pick(ratio);
    };
    return (
        <>
            <StudyBox source={source} work="ranking" name="Rank heads" onGo={() => void rank()}>
                <label>
                    by{" "}
                    <select
                        aria-label="Ranker"
                        value={ranker}
                        onChange={(event) => setRanker(event.currentTarget.value)}>
                        {RANKERS.map((name) => (
                            <option key={name}>{name}</option>
                        ))}
                    </select>
                </label>
                <RatioSlider source={source} ratio={ratio} onRatio={pick} />
            </StudyBox>
            {study.ranking && study.sweep ? (
                <>
                    <div class="columns halves">
                        <div class="column">
                            <OrderPanel source={source} ranking={study.ranking} />
                        </div>
                        <div class="column">
                            <CostPanel sweep={study.sweep} />
                        </div>
                    </div>
                    <TrialPanels source={source} />
                </>
            ) : (
                <Panel title="No heads are ranked yet" class="wide">
                    <Nothing title="Press Rank heads to see which could go">
                        They are ordered by what they do on the text, switched off step by step, and compared
                        with an order by chance.
                    </Nothing>
                </Panel>
            )}
        </>
    );
}

function RatioSlider({
    source,
    ratio,
    onRatio,
}: {
    source: LiveSource;
    ratio: number;
    onRatio: (ratio: number) => void;
}) {
    const { ratios } = source.study;
    const at = Math.max(
        ratios.findIndex((one) => one >= ratio - 1e-6),
        0,
    );
    return (
        <label class="ratio">
            off{" "}
            <input
                type="range"
                min={0}
                max={Math.max(ratios.length - 1, 0)}
                step={1}
                value={at}
                aria-valuetext={`${percent(ratios[at] ?? 0)} of the heads`}
                onInput={(event) => onRatio(ratios[Number(event.currentTarget.value)])}
            />{" "}
            <output>{percent(ratios[at] ?? 0)}</output>
        </label>
    );
}

/* -------------------------------------------------------------------------- the order */

function orderTable(ranking: RankAnswer): Table {
    return {
        name: `ranking-${ranking.ranker}`,
        title: `Heads by ${ranking.ranker}, the first to go first`,
        columns: ["rank", "head", "score"],
        rows: ranking.heads.map(({ head, score }, i) => [i + 1, head, score]),
    };
}

/* Every head, coloured by when it would go; hatched are those that are off. */
function OrderPanel({ source, ranking }: { source: LiveSource; ranking: RankAnswer }) {
    const { state } = useStore();
    const profile = source.profiles[0];
    const scores = useMemo(() => {
        const values = new Float32Array(profile.nLayers * profile.nHeads).fill(NaN);
        for (const { head, score } of ranking.heads) {
            const at = parseHead(head);
            if (at && score !== null) values[profile.at(at[0], at[1])] = score;
        }
        return values;
    }, [ranking, profile]);
    const places = useMemo(
        () => new Map(ranking.heads.map(({ head }, i) => [indexOf(head, profile.nHeads), i + 1])),
        [ranking, profile],
    );
    const [low, high] = extent(scores);
    const axis = axisAround(Math.min(low, 0), Math.max(high, 1e-6));
    const nats = IN_NATS.includes(ranking.ranker);
    const map = nats ? "entropy" : bluesOf(state.theme);
    const off = useMemo(
        () => new Set(selectedHeads(profile, state.off).map((head) => head.index)),
        [profile, state.off],
    );
    return (
        <Panel
            title={`Heads by ${ranking.ranker}`}
            class="first"
            note={`${ranking.highest_first ? "highest" : "lowest"} first; X switches the chosen head off`}
            actions={<TableButton table={() => orderTable(ranking)} />}>
            <ProfileHeatmap
                id="order"
                label={`Score of every head by ${ranking.ranker}`}
                profile={profile}
                values={scores}
                axis={axis}
                map={map}
                unit={nats ? "nats" : ""}
                off={off}
                marginals={false}
                mostHeight={300}
                describe={(index) => `goes as number ${places.get(index) ?? "–"}`}
            />
            <Scale
                label="Score"
                unit={nats ? "nats" : ""}
                axis={axis}
                map={map}
                ends={nats ? ["focused", "diffuse"] : undefined}
            />
        </Panel>
    );
}

const indexOf = (name: string, nHeads: number): number => {
    const at = parseHead(name);
    return at ? at[0] * nHeads + at[1] : -1;
};

/* -------------------------------------------------------------------------- a trial */

function TrialPanels({ source }: { source: LiveSource }) {
    const { state } = useStore();
    const { study } = source;
    const [now, before] = source.runs;
    const { off } = state;
    const trial = study.trial?.off.join() === off.join() ? study.trial : null;
    /* The same prompt with all heads, then without these: side by side. */
    const attempt = async () => {
        const settings = { ...(source.run?.settings ?? DEFAULTS), off: [] };
        await study.price(source.tested, off);
        if (study.problem) return;
        if (!isRun(source, settings)) await source.generate(settings);
        await source.generate({ ...settings, off });
    };
    return (
        <>
            <Panel
                title={off.length ? `Without ${plural(off.length, "head")}` : "All heads are on"}
                class="wide"
                actions={
                    <button
                        type="button"
                        class="main"
                        disabled={!off.length || study.work !== ""}
                        onClick={() => void attempt()}>
                        Try it
                    </button>
                }>
                <OffChips />
                {trial ? (
                    <TrialNumbers trial={trial} />
                ) : (
                    <p class="extremes">
                        Try it: what the text costs without these heads, and what the model writes then.
                    </p>
                )}
                {off.length ? <CommandLine model={source.model.id} off={off} /> : null}
            </Panel>
            {trial && now && before && now.settings.off.join() === off.join() ? (
                <Texts now={now} before={before} />
            ) : null}
        </>
    );
}

/* Is the newest text this one? */
function isRun({ run }: LiveSource, settings: Settings): boolean {
    if (!run || run.state !== "done") return false;
    return JSON.stringify(run.settings) === JSON.stringify(settings);
}

/* Heads that are off; a click takes one back. */
function OffChips() {
    const { store, state } = useStore();
    if (!state.off.length)
        return <p class="extremes">Choose a share of heads above, or press X on the map.</p>;
    return (
        <div class="chips">
            {state.off.map((name) => (
                <button
                    key={name}
                    type="button"
                    aria-label={`Switch ${name} on`}
                    onClick={() => store.set({ off: state.off.filter((other) => other !== name) })}>
                    {name} ✕
                </button>
            ))}
            <button type="button" class="quiet" onClick={() => store.set({ off: [] })}>
                All on
            </button>
        </div>
    );
}

function TrialNumbers({ trial }: { trial: Trial }) {
    const rows: [string, string, string][] = [
        [
            "Loss, nats a token",
            number(trial.before),
            `${number(trial.nll)} (${signed(trial.nll - trial.before)})`,
        ],
        ["Perplexity", number(Math.exp(trial.before)), number(Math.exp(trial.nll))],
        ["Likeliest token the same", "100%", percent(trial.agreement)],
        ["KL from all heads, nats", "0", number(trial.kl)],
    ];
    return (
        <table class="trial">
            <caption>{plural(trial.tokens, "token")} of the text were foretold</caption>
            <thead>
                <tr>
                    <th scope="col">On the text</th>
                    <th scope="col">all heads</th>
                    <th scope="col">without</th>
                </tr>
            </thead>
            <tbody>
                {rows.map(([name, before, now]) => (
                    <tr key={name}>
                        <th scope="row">{name}</th>
                        <td>{before}</td>
                        <td>{now}</td>
                    </tr>
                ))}
            </tbody>
        </table>
    );
}

/* How to make that model. */
function CommandLine({ model, off }: { model: string; off: string[] }) {
    const [copied, setCopied] = useState("");
    const line = `headlight prune ${shellWord(model)} --heads ${off.join(",")} -o ${shellWord(`${model}-pruned`)}`;
    return (
        <div class="command">
            <p>
                <b>The model without them</b>, where the model lies:
            </p>
            <code id="prune-command">{line}</code>{" "}
            <button
                type="button"
                class="quiet"
                onClick={() =>
                    navigator.clipboard.writeText(line).then(
                        () => setCopied(line),
                        () => setCopied(""),
                    )
                }>
                {copied === line ? "Copied" : "Copy"}
            </button>
        </div>
    );
}

const shellWord = (text: string) =>
    /^[\w./@%+:,-]+$/.test(text) ? text : `'${text.replace(/'/g, `'\\''`)}'`;
