/* heatmap.tsx - every head as a cell that can be pointed at, chosen and read.
 *
 * One picture on a canvas; beside it, for those who do not see it, a grid that has the one
 * cell the keyboard is on.  Arrows move, Enter chooses, Shift+Enter adds, X marks as off. */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Axis } from "../base/axis";
import { headName, number } from "../base/format";
import type { MapName } from "../base/palette";
import type { Theme } from "../data/quantity";
import { attends, drawHeat } from "./heat_draw";
import { cellAt, cellBox, layOut, type HeatLayout } from "./heat_layout";
import { useWidth } from "./pieces";
import { colorsOf, sized } from "./theme";

export interface HeatmapProps {
    label: string;
    id: string;
    nLayers: number;
    nHeads: number;
    values: Float32Array;
    axis: Axis;
    map: MapName;
    unit: string;
    theme: Theme;
    selected: number[];
    off: Set<number>;
    dimmed?: ((index: number) => boolean) | null;
    marginals?: boolean;
    mostHeight?: number;
    describe?: (index: number) => string;
    onSelect: (layer: number, head: number, add: boolean) => void;
    onOff?: (layer: number, head: number) => void;
    onBlock?: (cells: Cell[]) => void; /* heads in a rectangle that was drawn with the mouse */
    onActive?: (index: number | null) => void;
}

export interface Cell {
    layer: number;
    head: number;
}

export function Heatmap(props: HeatmapProps) {
    const { nLayers, nHeads } = props;
    const [holder, width] = useWidth<HTMLDivElement>();
    const canvas = useRef<HTMLCanvasElement>(null);
    const [hovered, setHovered] = useState<Cell | null>(null);
    const [focused, setFocused] = useState(false);
    const [drawn, setDrawn] = useState<Block | null>(null);
    const blocked = useRef(false); /* the click that ends a rectangle selects nothing */
    const first = props.selected[0] ?? 0;
    const [cursor, setCursor] = useCursor({ layer: Math.floor(first / nHeads), head: first % nHeads });
    const layout = layOut(
        Math.max(width, 120),
        nLayers,
        nHeads,
        props.mostHeight ?? 520,
        props.marginals ?? true,
    );
    const active = hovered ?? (focused ? cursor.current : null);

    useEffect(() => setCursor({ layer: Math.floor(first / nHeads), head: first % nHeads }), [first, nHeads]);
    useEffect(
        () => props.onActive?.(active ? active.layer * nHeads + active.head : null),
        [active?.layer, active?.head],
    );
    useLayoutEffect(() => {
        if (!width || !canvas.current) return;
        const pen = sized(canvas.current, layout.width, layout.height);
        drawHeat(
            pen,
            layout,
            {
                values: props.values,
                axis: props.axis,
                map: props.map,
                selected: props.selected,
                off: props.off,
                dimmed: props.dimmed ?? null,
                active,
                focused,
            },
            colorsOf(props.theme),
        );
        if (!performance.getEntriesByName("heatmap").length) performance.mark("heatmap");
    });

    const key = (event: KeyboardEvent) => {
        if (event.ctrlKey || event.metaKey || event.altKey) return;
        const steps: Record<string, [number, number]> = {
            ArrowLeft: [-1, 0],
            ArrowRight: [1, 0],
            ArrowUp: [0, 1],
            ArrowDown: [0, -1],
            Home: [-nLayers, 0],
            End: [nLayers, 0],
            PageUp: [0, nHeads],
            PageDown: [0, -nHeads],
        };
        const step = steps[event.key];
        if (step) setCursor(move(cursor.current, step, nLayers, nHeads));
        else if (event.key === "Enter" || event.key === " ")
            props.onSelect(cursor.current.layer, cursor.current.head, event.shiftKey);
        else if (event.key === "x" || event.key === "X")
            props.onOff?.(cursor.current.layer, cursor.current.head);
        else return;
        setHovered(null);
        event.preventDefault();
    };

    const point = (event: PointerEvent) => {
        const cell = cellUnder(event, layout);
        setHovered(cell);
        if (drawn && cell && !sameCell(cell, drawn.to)) setDrawn({ ...drawn, to: cell });
    };
    const begin = (event: PointerEvent) => {
        const cell = cellUnder(event, layout);
        setHovered(cell);
        if (cell && props.onBlock && event.pointerType === "mouse" && event.button === 0)
            setDrawn({ from: cell, to: cell });
    };
    const end = () => {
        if (drawn && !sameCell(drawn.from, drawn.to)) {
            blocked.current = true;
            props.onBlock?.(cellsOf(drawn));
        }
        setDrawn(null);
    };
    const press = (event: MouseEvent) => {
        if (blocked.current) {
            blocked.current = false;
            return;
        }
        const cell = cellUnder(event, layout);
        if (cell) {
            setCursor(cell);
            props.onSelect(cell.layer, cell.head, event.shiftKey);
        }
    };

    return (
        <div ref={holder} class="heatmap" style={{ minHeight: `${layout.height}px` }}>
            <div
                class="grid"
                role="grid"
                tabIndex={0}
                id={props.id}
                aria-label={props.label}
                aria-rowcount={nHeads}
                aria-colcount={nLayers}
                aria-multiselectable="true"
                aria-activedescendant={`${props.id}-cell`}
                onKeyDown={key}
                onFocus={() => setFocused(true)}
                onBlur={() => setFocused(false)}>
                <canvas
                    ref={canvas}
                    aria-hidden="true"
                    onPointerMove={point}
                    onPointerDown={begin}
                    onPointerUp={end}
                    onPointerLeave={() => {
                        setHovered(null);
                        setDrawn(null);
                    }}
                    onClick={press}
                />
                <GridCell {...props} cursor={cursor.current} />
            </div>
            {drawn && !sameCell(drawn.from, drawn.to) && (
                <i class="block" style={blockStyle(drawn, layout)} />
            )}
            {hovered && <Tip {...props} cell={hovered} layout={layout} />}
        </div>
    );
}

/* ---------------------------------------------------------------------- rectangles */

interface Block {
    from: Cell;
    to: Cell;
}

const sameCell = (a: Cell, b: Cell) => a.layer === b.layer && a.head === b.head;

const span = (a: number, b: number): number[] =>
    Array.from({ length: Math.abs(a - b) + 1 }, (_, i) => Math.min(a, b) + i);

const cellsOf = ({ from, to }: Block): Cell[] =>
    span(from.layer, to.layer).flatMap((layer) => span(from.head, to.head).map((head) => ({ layer, head })));

function blockStyle({ from, to }: Block, layout: HeatLayout) {
    const a = cellBox(layout, Math.min(from.layer, to.layer), Math.max(from.head, to.head));
    const b = cellBox(layout, Math.max(from.layer, to.layer), Math.min(from.head, to.head));
    return {
        left: `${a.x}px`,
        top: `${a.y}px`,
        width: `${b.x + b.width - a.x}px`,
        height: `${b.y + b.height - a.y}px`,
    };
}

/* Where the keyboard is: known at once, though the picture follows a little later. */
function useCursor(first: Cell): [{ current: Cell }, (cell: Cell) => void] {
    const cursor = useRef(first);
    const [, redraw] = useState(0);
    return [
        cursor,
        (cell) => {
            cursor.current = cell;
            redraw((n) => n + 1);
        },
    ];
}

const move = (from: Cell, [across, up]: [number, number], nLayers: number, nHeads: number): Cell => ({
    layer: Math.min(Math.max(from.layer + across, 0), nLayers - 1),
    head: Math.min(Math.max(from.head + up, 0), nHeads - 1),
});

function cellUnder(event: MouseEvent, layout: HeatLayout): Cell | null {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    return cellAt(layout, event.clientX - box.left, event.clientY - box.top);
}

/* "L5H3 0.42 nats, previous" */
function spoken(props: HeatmapProps, cell: Cell): string {
    const index = cell.layer * props.nHeads + cell.head;
    const value = props.values[index];
    const parts = [
        attends(props.values, props.nHeads, cell.layer)
            ? `${headName(cell.layer, cell.head)} ${Number.isNaN(value) ? "no value" : number(value)} ${props.unit}`.trim()
            : `layer ${cell.layer} has no attention`,
    ];
    if (props.describe?.(index)) parts.push(props.describe(index));
    if (props.off.has(index)) parts.push("off");
    return parts.join(", ");
}

function GridCell(props: HeatmapProps & { cursor: Cell }) {
    const { cursor } = props;
    return (
        <div class="unseen" role="row" aria-rowindex={cursor.head + 1}>
            <div
                role="gridcell"
                id={`${props.id}-cell`}
                aria-colindex={cursor.layer + 1}
                aria-selected={props.selected.includes(cursor.layer * props.nHeads + cursor.head)}>
                {spoken(props, cursor)}
            </div>
        </div>
    );
}

function Tip(props: HeatmapProps & { cell: Cell; layout: HeatLayout }) {
    const { cell, layout } = props;
    const index = cell.layer * props.nHeads + cell.head;
    const x = layout.left + (cell.layer + 0.5) * layout.cellWidth;
    const y = layout.top + (layout.nHeads - 1 - cell.head) * layout.cellHeight;
    const side = x < 80 ? "start" : x > layout.width - 80 ? "end" : "middle";
    return (
        <div
            class={`tip ${side} ${y < 64 ? "under" : ""}`}
            aria-hidden="true"
            style={{ left: `${x}px`, top: `${y < 64 ? y + layout.cellHeight : y}px` }}>
            {attends(props.values, props.nHeads, cell.layer) ? (
                <>
                    <b>{headName(cell.layer, cell.head)}</b> {number(props.values[index])} {props.unit}
                </>
            ) : (
                `layer ${cell.layer}: no attention`
            )}
            {props.off.has(index) ? " · off" : ""}
            {props.describe?.(index) ? <small>{props.describe(index)}</small> : null}
        </div>
    );
}
