/* advice.tsx - what a budget of quality recommends: the frontier of loss against heads, and one point of
 * it. */
import { useMemo, useState } from "preact/hooks";
import { number, percent, plural, signed } from "../base/format";
import type { Table } from "../data/tables";
import type { FrontierPoint } from "../live/client";
import type { LiveSource } from "../live/source";
import type { Recommendation } from "../live/study";
import { useStore } from "../store";
import { Nothing, Panel } from "./pieces";
import { Legend, Plot, type Line } from "./plot";
import { TableButton } from "./table";
import { colorsOf, type Colors } from "./theme";

const BUDGETS = [0.01, 0.02, 0.05, 0.1, 0.2];
const USUAL = 0.05;

export function AdvicePanel({ source }: { source: LiveSource }) {
    const { store } = useStore();
    const { study } = source;
    const [budget, setBudget] = useState(USUAL);
    const { advice } = study;
    const recommend = async () => {
        const before = study.advice;
        await study.recommend(source.tested, budget);
        if (study.advice && study.advice !== before) store.set({ cut: study.advice.off });
    };
    return (
        <Panel
            title={advice ? titleOf(advice) : "Prune recommends"}
            class="wide"
            note={advice ? noteOf(advice) : ""}
            actions={
                <>
                    {advice ? <TableButton table={() => tableOf(advice)} /> : null}
                    <label>
                        at most{" "}
                        <select
                            aria-label="Budget, nats per token"
                            value={budget}
                            onChange={(event) => setBudget(Number(event.currentTarget.value))}>
                            {BUDGETS.map((one) => (
                                <option key={one} value={one}>
                                    +{one} nats per token
                                </option>
                            ))}
                        </select>
                    </label>
                    <button
                        type="button"
                        class="main"
                        disabled={!source.tested || study.work !== ""}
                        onClick={() => void recommend()}>
                        Recommend
                    </button>
                </>
            }>
            {advice ? (
                <FrontierPlot advice={advice} />
            ) : (
                <Nothing title="Press Recommend to see how many heads a budget of quality allows">
                    Three orders are ranked on one half of the text and tried on the other. The most heads are
                    recommended whose cost stays within the budget, by the upper end of its 95% interval.
                </Nothing>
            )}
        </Panel>
    );
}

const pickOf = (advice: Recommendation): FrontierPoint => advice.points[advice.recommended];

/* "Remove 19 heads: 4.2% smaller, +0.031 nats per token" */
function titleOf(advice: Recommendation): string {
    const pick = pickOf(advice);
    const saved = percent(1 - pick.bytes / advice.bytes);
    return `Remove ${plural(pick.heads, "head")}: ${saved} smaller, ${signed(pick.change)} nats per token`;
}

function noteOf(advice: Recommendation): string {
    const pick = pickOf(advice);
    const [low, high] = pick.interval;
    const range = low === null || high === null ? "" : ` (95%: ${signed(low)} to ${signed(high)})`;
    return [
        `by ${pick.ranker}${range}`,
        advice.repaired
            ? "the heads that stay are repaired"
            : "without a repair: this model cannot be repaired",
        `unpruned ${number(advice.nll)}`,
        `${plural(advice.tokens, "held-out token")} in ${plural(advice.windows, "window")}`,
        ...(advice.all_went ? ["all that may go: the budget is not used up"] : []),
    ].join("; ");
}

function tableOf(advice: Recommendation): Table {
    return {
        name: "frontier",
        title: "What removing heads costs on held-out text",
        columns: ["order", "heads", "bytes", "rise", "low", "high", "kl", "agreement", "fits", "best"],
        rows: advice.points.map((point) => [
            point.ranker,
            point.heads,
            point.bytes,
            point.change,
            point.interval[0],
            point.interval[1],
            point.kl,
            point.agreement,
            point.fits ? "yes" : "no",
            point.best ? "yes" : "no",
        ]),
    };
}

/* One line per order: the recommended one in color with its intervals, the others in gray. */
function FrontierPlot({ advice }: { advice: Recommendation }) {
    const { state } = useStore();
    const colors = colorsOf(state.theme);
    const [x, lines] = useMemo(() => linesOf(advice, colors), [advice, state.theme]);
    return (
        <>
            <Plot
                label="Loss by number of heads removed, on held-out text"
                x={x}
                lines={lines}
                height={260}
                theme={state.theme}
                xLabel="heads removed"
                yLabel="rise of the loss (nats per token)"
                marks={[{ x: pickOf(advice).heads, color: colors.series[0] }]}
            />
            <Legend lines={lines} />
        </>
    );
}

function linesOf(advice: Recommendation, colors: Colors): [number[], Line[]] {
    const { points, budget } = advice;
    const winner = pickOf(advice).ranker;
    const x = [...new Set([0, ...points.map((point) => point.heads)])].sort((a, b) => a - b);
    const column = (order: string, of: (point: FrontierPoint) => number | null) =>
        x.map((heads) => {
            if (heads === 0) return 0;
            const point = points.find((one) => one.ranker === order && one.heads === heads);
            return point ? (of(point) ?? NaN) : NaN;
        });
    const orders = [...new Set(points.map((point) => point.ranker))];
    const others = orders.filter((order) => order !== winner);
    const gray = (order: string, i: number): Line => ({
        label: order,
        color: colors.bar,
        dash: i ? [2, 2] : undefined,
        values: column(order, (point) => point.change),
        span: true,
    });
    return [
        x,
        [
            ...others.map(gray),
            {
                label: `${winner}, recommended, with 95% intervals`,
                color: colors.series[0],
                width: 2.75,
                values: column(winner, (point) => point.change),
                low: column(winner, (point) => point.interval[0]),
                high: column(winner, (point) => point.interval[1]),
                span: true,
            },
            {
                label: `budget +${budget}`,
                color: colors.series[3],
                dash: [6, 4],
                values: x.map(() => budget),
            },
        ],
    ];
}
