/* heat_layout.ts - where the parts of a heatmap lie, and which cell is where.
 *
 *            layer means
 *        +------------------+
 *   head |                  | head
 *    up  |      cells       | means      head 0 is the lowest row
 *        +------------------+
 *           layer across                                              */

export interface HeatLayout {
    width: number;
    height: number;
    left: number;
    top: number;
    cellWidth: number;
    cellHeight: number;
    nLayers: number;
    nHeads: number;
    bars: number; /* length of the longest bar; 0: no bars */
}

const LABELS_LEFT = 36;
const LABELS_BELOW = 34;
const MOST_CELL = 58;

export function layOut(
    width: number,
    nLayers: number,
    nHeads: number,
    mostHeight: number,
    marginals: boolean,
): HeatLayout {
    const bars = marginals ? Math.min(44, Math.max(24, width * 0.07)) : 0;
    const left = LABELS_LEFT;
    const top = bars ? bars + 8 : 4;
    const roomAcross = Math.max(width - left - (bars ? bars + 8 : 2), 40);
    const roomUp = Math.max(mostHeight - top - LABELS_BELOW, 60);
    const cellWidth = Math.min(MOST_CELL * 1.5, roomAcross / nLayers);
    const cellHeight = Math.min(MOST_CELL, roomUp / nHeads, Math.max(cellWidth, 5));
    return {
        width,
        left,
        top,
        bars,
        nLayers,
        nHeads,
        cellWidth,
        cellHeight: Math.max(cellHeight, 2),
        height: Math.ceil(top + Math.max(cellHeight, 2) * nHeads + LABELS_BELOW),
    };
}

export interface Box {
    x: number;
    y: number;
    width: number;
    height: number;
}

/* On whole pixels, so that cells have sharp edges. */
export function cellBox(layout: HeatLayout, layer: number, head: number): Box {
    const x = Math.round(layout.left + layer * layout.cellWidth);
    const y = Math.round(layout.top + (layout.nHeads - 1 - head) * layout.cellHeight);
    return {
        x,
        y,
        width: Math.round(layout.left + (layer + 1) * layout.cellWidth) - x,
        height: Math.round(layout.top + (layout.nHeads - head) * layout.cellHeight) - y,
    };
}

export function cellAt(layout: HeatLayout, x: number, y: number): { layer: number; head: number } | null {
    const layer = Math.floor((x - layout.left) / layout.cellWidth);
    const head = layout.nHeads - 1 - Math.floor((y - layout.top) / layout.cellHeight);
    const inside = layer >= 0 && layer < layout.nLayers && head >= 0 && head < layout.nHeads;
    return inside ? { layer, head } : null;
}
