/* heat_draw.ts - a heatmap on a canvas: cells, means at the sides, marks. */
import { shareOf, thin, type Axis } from "../base/axis";
import { number } from "../base/format";
import { css, inkOn, mapColor, type MapName } from "../base/palette";
import { mean } from "../data/arrays";
import { cellBox, type Box, type HeatLayout } from "./heat_layout";
import type { Colors } from "./theme";

export interface HeatPicture {
    values: Float32Array; /* (layers, heads) */
    axis: Axis;
    map: MapName;
    selected: number[];
    off: Set<number>;
    dimmed: ((index: number) => boolean) | null;
    active: { layer: number; head: number } | null;
    focused: boolean; /* the keyboard is here */
}

type Pen = CanvasRenderingContext2D;

export function drawHeat(pen: Pen, layout: HeatLayout, picture: HeatPicture, colors: Colors): void {
    pen.clearRect(0, 0, layout.width, layout.height);
    for (let layer = 0; layer < layout.nLayers; layer++)
        if (!attends(picture.values, layout.nHeads, layer)) drawOther(pen, layout, colors, layer);
    for (let layer = 0; layer < layout.nLayers; layer++)
        for (let head = 0; head < layout.nHeads; head++) drawCell(pen, layout, picture, colors, layer, head);
    if (layout.bars) drawMeans(pen, layout, picture, colors);
    drawLabels(pen, layout, picture, colors);
    drawMarks(pen, layout, picture, colors);
}

/* ----------------------------------------------------------------- other layers */

/* Has any head of the layer a value?  Layers with a state and no attention have none. */
export const attends = (values: Float32Array, nHeads: number, layer: number) =>
    values.subarray(layer * nHeads, (layer + 1) * nHeads).some((value) => !Number.isNaN(value));

/* A gray column with a line, as in the figures. */
function drawOther(pen: Pen, layout: HeatLayout, colors: Colors, layer: number) {
    const top = cellBox(layout, layer, layout.nHeads - 1);
    const height = layout.nHeads * layout.cellHeight;
    pen.fillStyle = pen.strokeStyle = colors.bar;
    pen.globalAlpha = 0.16;
    pen.fillRect(top.x, top.y, top.width, height);
    pen.globalAlpha = 0.8;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(Math.round(top.x + top.width / 2) + 0.5, top.y);
    pen.lineTo(Math.round(top.x + top.width / 2) + 0.5, top.y + height);
    pen.stroke();
    pen.globalAlpha = 1;
}

/* ------------------------------------------------------------------------ cells */

function drawCell(pen: Pen, layout: HeatLayout, p: HeatPicture, colors: Colors, layer: number, head: number) {
    const index = layer * layout.nHeads + head;
    const value = p.values[index];
    if (Number.isNaN(value)) return;
    const gap = Math.min(layout.cellWidth, layout.cellHeight) >= 9 ? 1 : 0;
    const cell = cellBox(layout, layer, head);
    const box = { x: cell.x, y: cell.y, width: cell.width - gap, height: cell.height - gap };
    const color = mapColor(p.map, shareOf(p.axis, value));
    pen.globalAlpha = p.dimmed?.(index) ? 0.16 : 1;
    pen.fillStyle = css(color);
    pen.fillRect(box.x, box.y, box.width, box.height);
    if (p.off.has(index)) hatch(pen, box, colors);
    else if (box.width >= 36 && box.height >= 20) {
        pen.fillStyle = inkOn(color);
        pen.font = `${box.width >= 48 ? 12 : 11}px ${colors.font}`;
        pen.textAlign = "center";
        pen.textBaseline = "middle";
        pen.fillText(cellText(value), box.x + box.width / 2, box.y + box.height / 2 + 0.5);
    }
    pen.globalAlpha = 1;
}

/* Two digits; what rounds to nothing is 0. */
const cellText = (value: number) =>
    Math.abs(value) < 0.005
        ? "0"
        : Math.abs(value) < 0.0995
          ? value.toFixed(2).replace("-", "−")
          : number(value, 2);

function hatch(pen: Pen, box: Box, colors: Colors) {
    pen.save();
    pen.beginPath();
    pen.rect(box.x, box.y, box.width, box.height);
    pen.clip();
    pen.fillStyle = colors.background;
    pen.globalAlpha = 0.72;
    pen.fill();
    pen.globalAlpha = 1;
    pen.strokeStyle = colors.hatch;
    pen.lineWidth = 1.25;
    const step = Math.max(4, Math.min(box.width, box.height) / 4);
    pen.beginPath();
    for (let at = -box.height; at < box.width; at += step) {
        pen.moveTo(box.x + at, box.y + box.height);
        pen.lineTo(box.x + at + box.height, box.y);
    }
    pen.stroke();
    pen.restore();
}

/* ------------------------------------------------------------------------ sides */

function drawMeans(pen: Pen, layout: HeatLayout, p: HeatPicture, colors: Colors) {
    const { nLayers, nHeads } = layout;
    const kept = (index: number) => (p.off.has(index) ? NaN : p.values[index]);
    const length = (value: number) => Math.max(1, shareOf(p.axis, value) * layout.bars);
    const right = Math.round(layout.left + nLayers * layout.cellWidth) + 6;
    for (let layer = 0; layer < nLayers; layer++) {
        const value = mean(Array.from({ length: nHeads }, (_, head) => kept(layer * nHeads + head)));
        if (Number.isNaN(value)) continue;
        const box = cellBox(layout, layer, nHeads - 1);
        pen.fillStyle = p.active?.layer === layer ? colors.accent : colors.bar;
        pen.fillRect(
            box.x + inset(box.width),
            layout.top - 6 - length(value),
            box.width - 2 * inset(box.width),
            length(value),
        );
    }
    for (let head = 0; head < nHeads; head++) {
        const value = mean(Array.from({ length: nLayers }, (_, layer) => kept(layer * nHeads + head)));
        if (Number.isNaN(value)) continue;
        const box = cellBox(layout, 0, head);
        pen.fillStyle = p.active?.head === head ? colors.accent : colors.bar;
        pen.fillRect(right, box.y + inset(box.height), length(value), box.height - 2 * inset(box.height));
    }
}

const inset = (size: number) => (size >= 20 ? Math.floor(size / 5) : size >= 4 ? 1 : 0);

function drawLabels(pen: Pen, layout: HeatLayout, p: HeatPicture, colors: Colors) {
    const everyLayer = thin(layout.nLayers, layout.nLayers * layout.cellWidth, 24);
    const everyHead = thin(layout.nHeads, layout.nHeads * layout.cellHeight, 15);
    const bottom = layout.top + layout.nHeads * layout.cellHeight;
    pen.font = `11px ${colors.font}`;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    for (let head = 0; head < layout.nHeads; head++) {
        const active = p.active?.head === head;
        if (head % everyHead && !active) continue;
        if (p.active && !active && Math.abs(p.active.head - head) * layout.cellHeight < 12) continue;
        const box = cellBox(layout, 0, head);
        pen.fillStyle = active ? colors.text : colors.muted;
        pen.fillText(String(head), layout.left - 6, box.y + box.height / 2);
    }
    pen.textAlign = "center";
    for (let layer = 0; layer < layout.nLayers; layer++) {
        const active = p.active?.layer === layer;
        if (layer % everyLayer && !active) continue;
        if (p.active && !active && Math.abs(p.active.layer - layer) * layout.cellWidth < 18) continue;
        const box = cellBox(layout, layer, 0);
        pen.fillStyle = active ? colors.text : colors.muted;
        pen.fillText(String(layer), box.x + box.width / 2, bottom + 10);
    }
    pen.fillStyle = colors.muted;
    pen.fillText("layer →", layout.left + (layout.nLayers * layout.cellWidth) / 2, bottom + 26);
    pen.save();
    pen.translate(7, layout.top + (layout.nHeads * layout.cellHeight) / 2);
    pen.rotate(-Math.PI / 2);
    pen.fillText("head →", 0, 0);
    pen.restore();
}

/* ------------------------------------------------------------------------ marks */

/* A frame of two lines, which is seen on every color. */
function frame(pen: Pen, box: Box, outer: string, inner: string, width: number) {
    pen.lineWidth = width + 2;
    pen.strokeStyle = inner;
    pen.strokeRect(box.x - 0.5, box.y - 0.5, box.width, box.height);
    pen.lineWidth = width;
    pen.strokeStyle = outer;
    pen.strokeRect(box.x - 0.5, box.y - 0.5, box.width, box.height);
}

function drawMarks(pen: Pen, layout: HeatLayout, p: HeatPicture, colors: Colors) {
    const boxOf = (index: number) =>
        cellBox(layout, Math.floor(index / layout.nHeads), index % layout.nHeads);
    [...p.selected].reverse().forEach((index, i, all) => {
        const first = i === all.length - 1;
        frame(pen, boxOf(index), first ? colors.mark : colors.accent, colors.background, first ? 2.5 : 1.75);
    });
    if (p.active) {
        const box = cellBox(layout, p.active.layer, p.active.head);
        pen.setLineDash(p.focused ? [3, 2] : []);
        frame(
            pen,
            { x: box.x - 1, y: box.y - 1, width: box.width + 2, height: box.height + 2 },
            colors.text,
            colors.background,
            1.25,
        );
        pen.setLineDash([]);
    }
}
