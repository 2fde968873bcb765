/* attention.ts - where the tokens of a text look: whole rows of some heads, entropies of all.
 *
 * A map has a row for each token, each byte a probability relative to the row's largest
 * (row_peak).  A triangle leaves out the keys that a causal model never sees:
 *
 *     row 0   a                   row i begins at i (i + 1) / 2
 *     row 1   b c
 *     row 2   d e f                                                                        */
import { rawOf, values, shapeOf, isPacked, type ArrayLike } from "./arrays";
import type { HeadRef, RawTokens } from "./format";

export interface AttentionMap {
    n: number; /* tokens */
    triangle: boolean;
    bytes: Uint8Array;
    peaks: Float32Array | null; /* (n) */
}

export const rowStart = (map: Pick<AttentionMap, "n" | "triangle">, row: number) =>
    map.triangle ? (row * (row + 1)) / 2 : row * map.n;

export const rowLength = (map: Pick<AttentionMap, "n" | "triangle">, row: number) =>
    map.triangle ? row + 1 : map.n;

/* Probabilities of one row. */
export function rowOf(map: AttentionMap, row: number): Float32Array {
    const start = rowStart(map, row);
    const raw = map.bytes.subarray(start, start + rowLength(map, row));
    const out = Float32Array.from(raw, (byte) => byte / 255);
    const sum = out.reduce((total, p) => total + p, 0);
    const factor = map.peaks ? map.peaks[row] : sum > 0 ? 1 / sum : 0;
    return out.map((p) => p * factor);
}

/* A row in which a head puts much on one token beside the first. */
export interface ActiveRow {
    row: number;
    key: number;
    attention: number;
}

export class TokenView {
    readonly texts: string[];
    readonly kinds: number[];
    private maps: { bytes: Uint8Array; peaks: Float32Array | null } | null = null;
    private meanMap: AttentionMap | null | undefined;
    private rows: Float32Array | null | undefined;
    private activeRows: Float32Array[] | null = null;
    readonly meanEntropies: Float32Array | null; /* (tokens) over all heads */

    constructor(private readonly raw: RawTokens) {
        this.texts = raw.texts;
        this.kinds = raw.kinds ?? raw.texts.map(() => 0);
        this.meanEntropies = values(raw.mean_entropy);
    }

    get n(): number {
        return this.texts.length;
    }

    get heads(): HeadRef[] {
        return this.raw.maps?.heads ?? [];
    }

    /* Row entropies of all heads: (layers, heads, tokens). */
    get entropies(): Float32Array | null {
        if (this.rows === undefined) this.rows = values(this.raw.entropy);
        return this.rows;
    }

    /* Where a head is most active, the clearest row first. */
    active(layer: number, head: number): ActiveRow[] {
        const { active } = this.raw;
        if (!active) return [];
        const [, heads, n] = shapeOf(active.row);
        this.activeRows ??= [values(active.row)!, values(active.key)!, values(active.attention)!];
        const [row, key, attention] = this.activeRows;
        return Array.from({ length: n }, (_, i) => (layer * heads + head) * n + i)
            .filter((at) => row[at] >= 0 && row[at] < this.n && key[at] < this.n)
            .map((at) => ({ row: row[at], key: key[at], attention: attention[at] }));
    }

    /* The map of one head; null where the report holds none. */
    map(layer: number, head: number): AttentionMap | null {
        const maps = this.raw.maps;
        const index = this.heads.findIndex(([l, h]) => l === layer && h === head);
        if (!maps || index < 0) return null;
        this.maps ??= { bytes: rawOf(maps.data), peaks: values(maps.row_peak) };
        const triangle = maps.packed !== "square";
        const size = triangle ? (this.n * (this.n + 1)) / 2 : this.n * this.n;
        return {
            n: this.n,
            triangle,
            bytes: this.maps.bytes.subarray(index * size, (index + 1) * size),
            peaks: this.maps.peaks?.subarray(index * this.n, (index + 1) * this.n) ?? null,
        };
    }

    /* The mean over all heads. */
    get mean(): AttentionMap | null {
        if (this.meanMap === undefined)
            this.meanMap = this.raw.mean
                ? meanMapOf(this.raw.mean, this.n, values(this.raw.mean_peak))
                : null;
        return this.meanMap;
    }
}

/* Bytes of rows relative to their largest, as maps of heads have them. */
function meanMapOf(array: ArrayLike, n: number, peaks: Float32Array | null): AttentionMap {
    const shape = shapeOf(array);
    const bytes =
        isPacked(array) && array.dtype === "u8"
            ? rawOf(array)
            : Uint8Array.from(values(array)!, (p) => Math.round(255 * p));
    return { n, triangle: shape[shape.length - 1] !== n, bytes, peaks };
}
