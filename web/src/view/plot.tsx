/* plot.tsx - lines and bands over a shared x, by uPlot, in the page's colors. */
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { tickText } from "../base/axis";
import type { Theme } from "../data/quantity";
import { useWidth } from "./pieces";
import { colorsOf, faint, type Colors } from "./theme";

export interface Line {
    label: string;
    values: ArrayLike<number>;
    color: string;
    dash?: number[];
    width?: number;
    low?: ArrayLike<number>; /* a band around the line */
    high?: ArrayLike<number>;
    scale?: "y" | "right";
    span?: boolean; /* drawn across values that are missing */
}

export interface PlotProps {
    label: string;
    x: number[];
    lines: Line[];
    height: number;
    theme: Theme;
    xLabel: string;
    yLabel: string;
    rightLabel?: string;
    logX?: boolean;
    yFrom?: number | null;
    yTo?: number;
    xTicks?: (value: number) => string;
    marks?: { x: number; color: string }[]; /* lines from top to bottom */
    dots?: { x: ArrayLike<number>; y: ArrayLike<number>; color: string }; /* behind the lines */
    shade?: [number, number] | null; /* from x to x, lightly */
    zoom?: boolean;
    onHover?: (index: number | null) => void;
    onPick?: (index: number) => void;
}

const listOf = (values: ArrayLike<number>) =>
    Array.from(values, (value) => (value === null || Number.isNaN(value) ? null : value));

export function Plot(props: PlotProps) {
    const [holder, width] = useWidth<HTMLDivElement>();
    const latest = useRef(props);
    latest.current = props;
    const plot = useRef<uPlot | null>(null);
    const shape = props.lines
        .map((line) => `${line.label} ${line.color} ${line.dash} ${!!line.low} ${line.values.length < 40}`)
        .join();
    useEffect(() => {
        if (!width || !holder.current) return;
        plot.current = new uPlot(optionsOf(props, width, latest), dataOf(props), holder.current);
        return () => {
            plot.current?.destroy();
            plot.current = null;
        };
    }, [width, props.theme, shape, props.height, props.yLabel]);
    /* A text that grows brings new data, not a new plot. */
    useEffect(
        () => plot.current?.setData(dataOf(props)),
        [props.lines, props.x, props.marks, props.dots, props.shade?.join()],
    );
    return (
        <div
            ref={holder}
            class="plot"
            role="img"
            aria-label={props.label}
            style={{ minHeight: `${props.height}px` }}
        />
    );
}

function dataOf({ x, lines }: PlotProps): uPlot.AlignedData {
    const all: (number | null)[][] = [x];
    for (const line of lines) {
        all.push(listOf(line.values));
        if (line.low && line.high) all.push(listOf(line.high), listOf(line.low));
    }
    return all as uPlot.AlignedData;
}

function seriesOf(lines: Line[], colors: Colors): { series: uPlot.Series[]; bands: uPlot.Band[] } {
    const series: uPlot.Series[] = [{}];
    const bands: uPlot.Band[] = [];
    for (const line of lines) {
        const scale = line.scale ?? "y";
        series.push({
            label: line.label,
            stroke: line.color,
            width: line.width ?? 1.75,
            scale,
            dash: line.dash,
            spanGaps: line.span,
            points: {
                show: line.values.length < 40,
                size: 5,
                fill: colors.background,
                stroke: line.color,
                width: 1.5,
            },
        });
        if (!line.low || !line.high) continue;
        const edge = { scale, stroke: "transparent", width: 0, spanGaps: line.span, points: { show: false } };
        bands.push({ series: [series.length, series.length + 1], fill: faint(line.color, 0.16) });
        series.push(edge, edge);
    }
    return { series, bands };
}

function optionsOf(props: PlotProps, width: number, latest: { current: PlotProps }): uPlot.Options {
    const colors = colorsOf(props.theme);
    const { series, bands } = seriesOf(props.lines, colors);
    const font = `11px ${colors.font}`;
    const axis = {
        stroke: colors.muted,
        font,
        labelFont: font,
        labelGap: 0,
        ticks: { stroke: colors.grid, size: 4 },
    };
    const right = props.lines.some((line) => line.scale === "right");
    const numbers = (_: uPlot, values: number[]) => ticks(values);
    return {
        width,
        height: props.height,
        series,
        bands,
        legend: { show: false },
        cursor: {
            points: { size: 7 },
            y: false,
            drag: { x: props.zoom ?? false, y: false, setScale: props.zoom ?? false },
        },
        scales: {
            x: { time: false, distr: props.logX ? 3 : 1, log: 2 },
            y: {
                range: (_, low, high) =>
                    rangeOf(low, withDots(high, latest.current), latest.current.yFrom, latest.current.yTo),
            },
            right: { range: (_, low, high) => rangeOf(low, high, null) },
        },
        axes: [
            {
                ...axis,
                label: props.xLabel,
                labelSize: 18,
                size: 26,
                grid: { show: false },
                values: (_, values) =>
                    values.map((value) => (value === null ? "" : (props.xTicks ?? String)(value))),
            },
            {
                ...axis,
                label: props.yLabel,
                labelSize: 18,
                size: 44,
                grid: { stroke: colors.grid, width: 1 },
                values: numbers,
            },
            ...(right
                ? [
                      {
                          ...axis,
                          scale: "right",
                          side: 1 as const,
                          label: props.rightLabel,
                          labelSize: 18,
                          size: 44,
                          grid: { show: false },
                          values: numbers,
                      },
                  ]
                : []),
        ],
        hooks: {
            setCursor: [(plot) => latest.current.onHover?.(plot.cursor.idx ?? null)],
            drawClear: [(plot) => drawBehind(plot, latest.current, colors)],
            drawAxes: [(plot) => drawDots(plot, latest.current)],
            ready: [
                (plot) =>
                    plot.over.addEventListener("click", () => {
                        if (plot.cursor.idx !== null && plot.cursor.idx !== undefined)
                            latest.current.onPick?.(plot.cursor.idx);
                    }),
            ],
        },
    };
}

/* All ticks of an axis with the same decimals. */
function ticks(values: (number | null)[]): string[] {
    const known = values.filter((value): value is number => value !== null);
    const step = known.length > 1 ? known[1] - known[0] : Math.abs(known[0]) || 1;
    return values.map((value) => (value === null ? "" : tickText(value, step)));
}

const withDots = (high: number | null, { dots }: PlotProps) =>
    Array.from(dots?.y ?? []).reduce<number | null>((top, y) => (top === null || y > top ? y : top), high);

function rangeOf(
    low: number | null,
    high: number | null,
    from?: number | null,
    to?: number,
): [number, number] {
    const bottom = from ?? low ?? 0;
    const top = to ?? high ?? 1;
    const room = Math.max((top - bottom) * 0.06, 1e-6);
    return [from ?? bottom - room, to ?? top + room];
}

/* The prompt's part, and lines that mark places. */
function drawBehind(plot: uPlot, props: PlotProps, colors: Colors) {
    const { ctx: pen, bbox: box } = plot;
    pen.save();
    pen.beginPath();
    pen.rect(box.left, box.top, box.width, box.height);
    pen.clip();
    if (props.shade) {
        const [from, to] = props.shade.map((x) => plot.valToPos(x, "x", true));
        pen.fillStyle = faint(colors.bar, 0.14);
        pen.fillRect(from, box.top, to - from, box.height);
    }
    for (const mark of props.marks ?? []) {
        pen.fillStyle = faint(mark.color, 0.55);
        pen.fillRect(Math.round(plot.valToPos(mark.x, "x", true)) - 1, box.top, 2, box.height);
    }
    pen.restore();
}

/* Single values, under the lines. */
function drawDots(plot: uPlot, { dots }: PlotProps) {
    if (!dots) return;
    const { ctx: pen } = plot;
    const radius = 2 * (window.devicePixelRatio || 1);
    pen.fillStyle = dots.color;
    pen.beginPath();
    for (let i = 0; i < dots.x.length; i++) {
        if (Number.isNaN(dots.y[i])) continue;
        const x = plot.valToPos(dots.x[i], "x", true);
        const y = plot.valToPos(dots.y[i], "y", true);
        pen.moveTo(x + radius, y);
        pen.arc(x, y, radius, 0, 2 * Math.PI);
    }
    pen.fill();
}

/* Names beside their colors: outside of the picture, where they can wrap. */
export function Legend({ lines }: { lines: Line[] }) {
    return (
        <ul class="legend">
            {lines
                .filter((line) => line.label)
                .map((line) => (
                    <li key={line.label}>
                        <i
                            style={{
                                background: line.dash
                                    ? `repeating-linear-gradient(90deg, ${line.color} 0 4px, transparent 4px 7px)`
                                    : line.color,
                            }}
                        />
                        {line.label}
                    </li>
                ))}
        </ul>
    );
}
