/* tiles.ts - which tiles there are, and who makes them.  Drawing never waits: where a tile is
 * not there yet, a coarser one stands in for it. */

import type { AttentionMap } from "../data/attention";
import { levelsFor, tilePixels, TILE, type Level } from "./pyramid";
import TileWorker from "./tiles.worker?worker&inline";

const IN_PLACE = 1024; /* larger maps go to a worker */

interface Tile {
    image: CanvasImageSource;
    width: number;
    height: number;
}

export interface View {
    x: number; /* the map's coordinates (keys) at the left edge */
    y: number; /* (rows) at the top */
    scale: number; /* pixels a token */
}

export class TileSet {
    readonly sizes: number[] = []; /* tokens a side, of each level */
    private tiles = new Map<string, Tile | null>(); /* null: asked for */
    private worker: Worker | null = null;
    private levels: Level[] | null = null;
    private waiting = new Map<number, string>();
    private nextId = 0;

    constructor(
        private readonly map: AttentionMap,
        private readonly colors: Uint32Array,
        private readonly arrived: () => void,
    ) {
        for (let n = map.n; ; n = Math.ceil(n / 2)) {
            this.sizes.push(n);
            if (n <= TILE) break;
        }
        if (map.n > IN_PLACE) this.startWorker();
        this.need(this.sizes.length - 1, 0, 0);
    }

    private startWorker(): void {
        try {
            this.worker = new TileWorker();
            const { n, triangle, bytes } = this.map;
            this.worker.onmessage = ({ data }: MessageEvent<{ id: number; bitmap: ImageBitmap }>) => {
                const key = this.waiting.get(data.id);
                this.waiting.delete(data.id);
                if (key)
                    this.tiles.set(key, {
                        image: data.bitmap,
                        width: data.bitmap.width,
                        height: data.bitmap.height,
                    });
                this.arrived();
            };
            this.worker.postMessage({ map: { n, triangle, bytes: bytes.slice() }, colors: this.colors });
        } catch {
            this.worker = null; /* some browsers forbid workers to files: then in place */
        }
    }

    close(): void {
        this.worker?.terminate();
        this.tiles.clear();
    }

    private need(level: number, across: number, down: number): Tile | null {
        const key = `${level}/${across}/${down}`;
        const found = this.tiles.get(key);
        if (found !== undefined) return found;
        this.tiles.set(key, null);
        if (this.worker) {
            this.waiting.set(this.nextId, key);
            this.worker.postMessage({ id: this.nextId++, level, across, down });
            return null;
        }
        return this.make(key, level, across, down);
    }

    private make(key: string, level: number, across: number, down: number): Tile {
        this.levels ??= levelsFor(this.map);
        const pixels = tilePixels(this.map, this.levels[level], across, down, this.colors);
        const canvas = document.createElement("canvas");
        canvas.width = pixels.width;
        canvas.height = pixels.height;
        canvas.getContext("2d")!.putImageData(pixels, 0, 0);
        const tile = { image: canvas, width: pixels.width, height: pixels.height };
        this.tiles.set(key, tile);
        return tile;
    }

    /* Everything that is seen, coarse first. */
    draw(pen: CanvasRenderingContext2D, view: View, width: number, height: number, ratio: number): void {
        const wanted = Math.floor(Math.log2(Math.max(1 / (view.scale * ratio), 1)) + 0.01);
        const best = Math.min(wanted, this.sizes.length - 1);
        pen.imageSmoothingEnabled = view.scale * ratio * 2 ** best < 1;
        if (!this.drawLevel(pen, best, view, width, height, false))
            for (let level = this.sizes.length - 1; level >= best; level--)
                this.drawLevel(pen, level, view, width, height, true);
    }

    /* True if no tile was missing.  Coarser levels are drawn with what there is. */
    private drawLevel(
        pen: CanvasRenderingContext2D,
        level: number,
        view: View,
        width: number,
        height: number,
        paint: boolean,
    ): boolean {
        const span = TILE * 2 ** level; /* tokens a tile */
        const last = Math.ceil(this.sizes[level] / TILE) - 1;
        const clamp = (at: number) => Math.min(Math.max(Math.floor(at / span), 0), last);
        const found: [Tile, number, number][] = [];
        let whole = true;
        for (let down = clamp(view.y); down <= clamp(view.y + height / view.scale); down++)
            for (let across = clamp(view.x); across <= clamp(view.x + width / view.scale); across++) {
                if (this.map.triangle && across > down) continue;
                const tile = this.need(level, across, down);
                if (tile) found.push([tile, across, down]);
                else whole = false;
            }
        if (!whole && !paint) return false;
        const side = 2 ** level * view.scale; /* screen pixels a pixel of the tile */
        for (const [tile, across, down] of found)
            pen.drawImage(
                tile.image,
                (across * span - view.x) * view.scale,
                (down * span - view.y) * view.scale,
                tile.width * side,
                tile.height * side,
            );
        return whole;
    }
}
