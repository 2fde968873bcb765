/* tiles.worker.ts - tiles of a large map, off the main thread. */
import { levelsFor, tilePixels, type Level, type MapShape } from "./pyramid";

export interface TileRequest {
    id: number;
    level: number;
    across: number;
    down: number;
}
export type ToWorker = { map: MapShape; colors: Uint32Array } | { colors: Uint32Array } | TileRequest;

let map: MapShape | null = null;
let levels: Level[] = [];
let colors = new Uint32Array(256);

self.onmessage = async (event: MessageEvent<ToWorker>) => {
    const message = event.data;
    if ("colors" in message) colors = new Uint32Array(message.colors);
    if ("map" in message) {
        map = message.map;
        levels = levelsFor(map);
    }
    if (!("id" in message) || !map) return;
    const { id, level, across, down } = message;
    const bitmap = await createImageBitmap(tilePixels(map, levels[level], across, down, colors));
    (self as unknown as Worker).postMessage({ id, bitmap }, [bitmap]);
};
