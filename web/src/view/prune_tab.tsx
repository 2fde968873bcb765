/* prune_tab.tsx - which heads could go: what a budget recommends, an order, a choice of heads, what they
 * cost, and the text without them.  The model that lacks them is made by the command that stands below; a
 * server writes none. */
import { useMemo, useState } from "preact/hooks";
import { axisAround } from "../base/axis";
import { number, parseHead, percent, plural, signed } from "../base/format";
import { extent } from "../data/arrays";
import { bluesOf } from "../data/quantity";
import { download, type Table } from "../data/tables";
import type { RankAnswer } from "../live/client";
import type { LiveSource } from "../live/source";
import { pruneCommand, pruneScript, RANKERS, VERDICTS, type Trial } from "../live/study";
import { selectedHeads, useStore } from "../store";
import { AdvicePanel } from "./advice";
import { Nothing, Panel } from "./pieces";
import { ProfileHeatmap } from "./profile_heatmap";
import { Scale } from "./scale";
import { Texts } from "./sides_tab";
import { StudyBox } from "./study_tab";
import { CostPanel } from "./sweep_tab";
import { TableButton } from "./table";

const IN_NATS = ["entropy", "entropy-nosink", "renyi2"];
const FIRST_RATIO = 0.2;

export function PruneTab({ source }: { source: LiveSource }) {
    const { store } = useStore();
    const { study } = source;
    const [ranker, setRanker] = useState(RANKERS[0]);
    const [ratio, setRatio] = useState(FIRST_RATIO);
    const pick = (wanted: number) => {
        setRatio(wanted);
        const choice = study.choiceAt(wanted);
        if (choice) store.set({ cut: choice.off });
    };
    const rank = async () => {
        const before = study.ranking;
        await study.rank(source.tested, ranker);
        if (study.ranking !== before && !study.problem) pick(ratio);
    };
    const named = (name: string) => {
        if (name) return VERDICTS[name] ? `${name} (${VERDICTS[name]})` : name;
        return study.usual ? `default: ${study.usual}` : "the server’s default";
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
                            <option key={name} value={name}>
                                {named(name)}
                            </option>
                        ))}
                    </select>
                </label>
                <RatioSlider source={source} ratio={ratio} onRatio={pick} />
            </StudyBox>
            <AdvicePanel source={source} />
            {study.ranking && study.sweep ? (
                <div class="columns halves">
                    <div class="column">
                        <OrderPanel source={source} ranking={study.ranking} />
                    </div>
                    <div class="column">
                        <CostPanel sweep={study.sweep} />
                    </div>
                </div>
            ) : null}
            {study.ranking || study.advice ? (
                <TrialPanels source={source} />
            ) : (
                <Panel title="No heads ranked yet" class="wide">
                    <Nothing title="Or press Rank heads to choose by an order of your own">
                        Heads are put in pruning order by what they do on the text, disabled step by step, and
                        compared with a random order. Nothing here changes the Live tab.
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
            disable{" "}
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
        title: `Heads in pruning order, by ${ranking.ranker}`,
        columns: ["rank", "head", "score"],
        rows: ranking.heads.map(({ head, score }, i) => [i + 1, head, score]),
    };
}

/* Every head, colored by its score; hatched are those that are disabled here. */
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
        () => new Set(selectedHeads(profile, state.cut).map((head) => head.index)),
        [profile, state.cut],
    );
    const verdict = ranking.verdict ?? VERDICTS[ranking.ranker];
    return (
        <Panel
            title={`Heads in pruning order, by ${ranking.ranker}`}
            class="first"
            note={`${ranking.score ? `${ranking.score}; ` : ""}${ranking.highest_first ? "highest" : "lowest"} first; X disables the chosen head`}
            actions={<TableButton table={() => orderTable(ranking)} />}>
            {verdict ? <p class="extremes verdict-line">{verdict}</p> : null}
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
                describe={(index) => `number in pruning order: ${places.get(index) ?? "–"}`}
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
    const { store, state } = useStore();
    const { study } = source;
    const [now, before] = source.tried;
    const { cut: off } = state;
    const trial = study.trial?.off.join() === off.join() ? study.trial : null;
    /* The same prompt with all heads, then without these: side by side. */
    const attempt = async () => {
        await study.price(source.tested, off);
        if (!study.problem)
            await source.tryWithout(source.run?.settings ?? { ...source.draft, off: [] }, off);
    };
    return (
        <>
            <Panel
                title={off.length ? `Without ${plural(off.length, "head")}` : "All heads are enabled"}
                class="wide"
                note="disabled in this tab only"
                actions={
                    <>
                        <button
                            type="button"
                            disabled={!off.length}
                            onClick={() => store.set({ off, tab: "live" })}>
                            Disable in Live
                        </button>
                        <button
                            type="button"
                            class="main"
                            disabled={!off.length || study.work !== ""}
                            onClick={() => void attempt()}>
                            Try it
                        </button>
                    </>
                }>
                <OffChips />
                {trial ? (
                    <TrialNumbers trial={trial} />
                ) : (
                    <p class="extremes">
                        Try it: the loss on the text with these heads disabled, and the text that the model
                        then generates.
                    </p>
                )}
                {off.length ? <CommandLine source={source} off={off} /> : null}
            </Panel>
            {trial && now && before && now.settings.off.join() === off.join() ? (
                <Texts now={now} before={before} />
            ) : null}
        </>
    );
}

/* Heads that are disabled; a click takes one back. */
function OffChips() {
    const { store, state } = useStore();
    if (!state.cut.length)
        return <p class="extremes">Choose a share of heads above, or press X on the map.</p>;
    return (
        <div class="chips">
            {state.cut.map((name) => (
                <button
                    key={name}
                    type="button"
                    aria-label={`Enable ${name}`}
                    onClick={() => store.set({ cut: state.cut.filter((other) => other !== name) })}>
                    {name} ✕
                </button>
            ))}
            <button type="button" class="quiet" onClick={() => store.set({ cut: [] })}>
                Enable all
            </button>
        </div>
    );
}

function TrialNumbers({ trial }: { trial: Trial }) {
    const rows: [string, string, string][] = [
        [
            "Loss, nats per token",
            number(trial.before),
            `${number(trial.nll)} (${signed(trial.nll - trial.before)})`,
        ],
        ...(trial.interval
            ? ([["Difference, 95% interval", "0", trial.interval.map((end) => signed(end)).join(" to ")]] as [
                  string,
                  string,
                  string,
              ][])
            : []),
        ["Perplexity", number(Math.exp(trial.before)), number(Math.exp(trial.nll))],
        ["Same most likely token", "100%", percent(trial.agreement)],
        ["KL divergence from all heads, nats", "0", number(trial.kl)],
    ];
    return (
        <table class="trial">
            <caption>Scored on {plural(trial.tokens, "token")}</caption>
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

/* Heads as recommended are repaired as recommended, so the text goes along. */
function CommandLine({ source, off }: { source: LiveSource; off: string[] }) {
    const [copied, setCopied] = useState("");
    const { advice } = source.study;
    const repaired = advice?.repaired && advice.off.join() === off.join();
    const name = source.model.id.replace(/\.gguf$/, "");
    const line = pruneCommand(source.model, off, repaired ? `${name}-text.txt` : "");
    const whole = repaired ? pruneScript(source.model, off, advice.text) : line;
    return (
        <div class="command">
            <p>
                To save this pruned model, run this
                {repaired ? `; Copy and Download bring ${name}-text.txt along, on which it is repaired` : ""}:
            </p>
            <code id="prune-command">{line}</code>{" "}
            <button
                type="button"
                class="quiet"
                onClick={() =>
                    navigator.clipboard.writeText(whole).then(
                        () => setCopied(whole),
                        () => setCopied(""),
                    )
                }>
                {copied === whole ? "Copied" : "Copy"}
            </button>
            {repaired ? (
                <button
                    type="button"
                    class="quiet"
                    onClick={() => download(`prune-${name}.sh`, "text/x-shellscript", whole)}>
                    Download
                </button>
            ) : null}
        </div>
    );
}
