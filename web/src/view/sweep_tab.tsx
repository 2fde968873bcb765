/* sweep_tab.tsx - what disabling heads costs, by every ranker, beside chance. */
import { useMemo } from "preact/hooks";
import type { RawSweep, Sheet } from "../data/format";
import { sheetTable } from "../data/tables";
import { useStore } from "../store";
import { Nothing, Panel } from "./pieces";
import { Legend, Plot, type Line } from "./plot";
import { Sheets, TableButton } from "./table";
import { colorsOf, type Colors } from "./theme";

export function SweepTab({ sweep }: { sweep: RawSweep }) {
    const tables = sweep.tables ?? {};
    return (
        <>
            <CostPanel sweep={sweep} />
            {sweep.verdict?.length ? (
                <Panel title="Conclusions" class="wide">
                    <ul class="verdict">
                        {sweep.verdict.map((line) => (
                            <li key={line}>{line}</li>
                        ))}
                    </ul>
                </Panel>
            ) : null}
            <Sheets sheets={tables} name="sweep" />
        </>
    );
}

/* The loss against the number of disabled heads, one line per order. */
export function CostPanel({ sweep }: { sweep: RawSweep }) {
    const { state } = useStore();
    const tables = sweep.tables ?? {};
    const colors = colorsOf(state.theme);
    const [x, lines] = useMemo(() => curvesOf(tables, colors), [sweep, state.theme]);
    return (
        <Panel
            title="Loss with heads disabled"
            class="wide"
            note={sweep.note ?? ""}
            actions={
                tables.points ? <TableButton table={() => sheetTable(tables.points, "sweep-points")} /> : null
            }>
            {lines.length ? (
                <>
                    <Plot
                        label="Loss by share of heads disabled"
                        x={x}
                        lines={lines}
                        height={300}
                        theme={state.theme}
                        xLabel="share of heads disabled"
                        yLabel="loss (nats per token)"
                        xTicks={(ratio) => `${Math.round(100 * ratio)}%`}
                    />
                    <Legend lines={[...lines].sort((a, b) => placeOf(a) - placeOf(b))} />
                </>
            ) : (
                <Nothing title="This sweep has no points" />
            )}
        </Panel>
    );
}

const COLORED = 4;
const THIN = 0.75;

/* In the legend: orders in color, random orders, the others. */
const placeOf = ({ dash, width }: Line) => (width === THIN ? 2 : dash ? 1 : 0);

/* One line per order; random orders are a band around their median.  The orders that cost least have
 * colors, the best of them a wide line; nobody distinguishes more than five colors, so the others
 * are gray and share a name. */
function curvesOf(tables: Record<string, Sheet>, colors: Colors): [number[], Line[]] {
    const points = (tables.points?.rows ?? []) as {
        order: string;
        ratio: number;
        nll: number;
        low?: number;
        high?: number;
    }[];
    const random = (tables.random?.rows ?? []) as {
        ratio: number;
        least: number;
        most: number;
        median: number;
    }[];
    const x = [...new Set([...points, ...random].map((row) => row.ratio))].sort((a, b) => a - b);
    const column = <T extends { ratio: number }>(rows: T[], of: (row: T) => number) =>
        x.map((ratio) => {
            const row = rows.find((one) => one.ratio === ratio);
            return row ? of(row) : NaN;
        });
    const lines: Line[] = [];
    if (random.length)
        lines.push({
            label: "random orders",
            color: colors.bar,
            dash: [4, 3],
            values: column(random, (row) => row.median),
            low: column(random, (row) => row.least),
            high: column(random, (row) => row.most),
        });
    const orders = [...new Set(points.map((row) => row.order))];
    const cost = (order: string) => {
        const own = points.filter((row) => row.order === order);
        return own.reduce((sum, row) => sum + row.nll, 0) / own.length;
    };
    orders.sort((a, b) => cost(a) - cost(b));
    const others = orders.length - COLORED;
    orders.forEach((order, i) => {
        const own = points.filter((row) => row.order === order);
        const band = own.some((row) => row.low !== undefined && row.high !== undefined);
        const values = column(own, (row) => row.nll);
        if (i >= COLORED) {
            const label = others === 1 ? order : i === COLORED ? `${others} other orders` : "";
            lines.unshift({ label, color: colors.bar, width: THIN, values });
            return;
        }
        lines.push({
            label: i === 0 && orders.length > 1 ? `${order}, costs least` : order,
            color: colors.series[i],
            width: i === 0 ? 2.75 : undefined,
            values,
            ...(band && {
                low: column(own, (row) => row.low ?? row.nll),
                high: column(own, (row) => row.high ?? row.nll),
            }),
        });
    });
    return [x, lines];
}
