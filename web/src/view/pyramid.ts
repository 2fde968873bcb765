/* pyramid.ts - a large attention map at every size it may be looked at.
 *
 *     level 0   n x n bytes, from the triangle itself
 *     level k   a byte for 2^k x 2^k of them: the largest, so that thin lines stay
 *
 * Tiles of TILE x TILE pixels are cut from a level when they are first seen.  A worker runs
 * this for maps that are large; small ones are done in place. */
import { rowLength, rowStart, type AttentionMap } from "../data/attention";

export const TILE = 512;

export interface Level {
    n: number;
    bytes: Uint8Array; /* (n, n); of level 0 the map's own */
    own: boolean;
}

export type MapShape = Pick<AttentionMap, "n" | "triangle" | "bytes">;

const byteAt = (map: MapShape, row: number, key: number) =>
    key < rowLength(map, row) ? map.bytes[rowStart(map, row) + key] : 0;

/* Half the size of what is below. */
function halve(n: number, at: (row: number, key: number) => number): Level {
    const half = Math.ceil(n / 2);
    const bytes = new Uint8Array(half * half);
    for (let row = 0; row < half; row++)
        for (let key = 0; key < half; key++) {
            let most = 0;
            for (let y = 2 * row; y < Math.min(2 * row + 2, n); y++)
                for (let x = 2 * key; x < Math.min(2 * key + 2, n); x++) most = Math.max(most, at(y, x));
            bytes[row * half + key] = most;
        }
    return { n: half, bytes, own: false };
}

export function levelsFor(map: MapShape): Level[] {
    const levels: Level[] = [{ n: map.n, bytes: map.bytes, own: true }];
    if (map.n <= TILE) return levels;
    levels.push(halve(map.n, (row, key) => byteAt(map, row, key)));
    for (let last = levels[1]; last.n > TILE; last = levels[levels.length - 1]) {
        const { n, bytes } = last;
        levels.push(halve(n, (row, key) => bytes[row * n + key]));
    }
    return levels;
}

/* The pixels of one tile; what no token sees stays clear. */
export function tilePixels(
    map: MapShape,
    level: Level,
    across: number,
    down: number,
    colors: Uint32Array,
): ImageData {
    const width = Math.min(TILE, level.n - across * TILE);
    const height = Math.min(TILE, level.n - down * TILE);
    const image = new ImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    for (let y = 0; y < height; y++) {
        const row = down * TILE + y;
        const seen = map.triangle ? Math.min(width, row + 1 - across * TILE) : width;
        const start = level.own ? rowStart(map, row) : row * level.n;
        for (let x = 0; x < seen; x++) pixels[y * width + x] = colors[level.bytes[start + across * TILE + x]];
    }
    return image;
}
