/* arrays.ts - arrays as reports carry them: base64 of little-endian numbers, or plain JSON.
 *
 *     {"dtype":"u8","shape":[8,8,64],"scale":0.004,"offset":0,"nan":true,"data":"..."}
 *
 * value = offset + scale * raw; with "nan", the largest u8 or u16 means that there is no value. */

export type Dtype = "f32" | "f16" | "u8" | "u16" | "i32" | "u32";

export interface Packed {
    dtype: Dtype;
    shape: number[];
    data: string;
    scale?: number;
    offset?: number;
    nan?: boolean;
}

type Nested = (number | null | Nested)[];
export type ArrayLike = Packed | Nested;

const BYTES: Record<Dtype, number> = { f32: 4, f16: 2, u8: 1, u16: 2, i32: 4, u32: 4 };

export const isPacked = (value: unknown): value is Packed =>
    typeof value === "object" &&
    value !== null &&
    !Array.isArray(value) &&
    "dtype" in value &&
    "data" in value;

export function bytesOf(base64: string): Uint8Array {
    const text = atob(base64);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
    return bytes;
}

/* Half precision: sign, five bits of exponent, ten of fraction. */
export function halfToNumber(bits: number): number {
    const sign = bits & 0x8000 ? -1 : 1;
    const exponent = (bits >> 10) & 0x1f;
    const fraction = bits & 0x3ff;
    if (exponent === 0) return sign * fraction * 2 ** -24;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

const countOf = (shape: number[]) => shape.reduce((product, n) => product * n, 1);

function reader(view: DataView, dtype: Dtype): (i: number) => number {
    switch (dtype) {
        case "f32":
            return (i) => view.getFloat32(4 * i, true);
        case "f16":
            return (i) => halfToNumber(view.getUint16(2 * i, true));
        case "u8":
            return (i) => view.getUint8(i);
        case "u16":
            return (i) => view.getUint16(2 * i, true);
        case "i32":
            return (i) => view.getInt32(4 * i, true);
        case "u32":
            return (i) => view.getUint32(4 * i, true);
    }
}

/* The raw bytes of a packed array, checked against its shape. */
export function rawOf(packed: Packed): Uint8Array {
    const bytes = bytesOf(packed.data);
    const wanted = countOf(packed.shape) * (BYTES[packed.dtype] ?? NaN);
    if (bytes.length !== wanted)
        throw new Error(
            `an array of ${packed.dtype} [${packed.shape}] has ${bytes.length} bytes, not ${wanted}`,
        );
    return bytes;
}

function unpack(packed: Packed): Float32Array {
    const bytes = rawOf(packed);
    const read = reader(new DataView(bytes.buffer), packed.dtype);
    const nothing = packed.nan ? { u8: 255, u16: 65535 }[packed.dtype as string] : undefined;
    const scale = packed.scale ?? 1;
    const offset = packed.offset ?? 0;
    const out = new Float32Array(countOf(packed.shape));
    for (let i = 0; i < out.length; i++) {
        const raw = read(i);
        out[i] = raw === nothing ? NaN : offset + scale * raw;
    }
    return out;
}

function flatten(value: Nested, out: number[] = []): number[] {
    for (const item of value)
        if (Array.isArray(item)) flatten(item, out);
        else out.push(item === null ? NaN : item);
    return out;
}

/* Row-major values; a missing array is null. */
export function values(array: ArrayLike | null | undefined): Float32Array | null {
    if (array === null || array === undefined) return null;
    return isPacked(array) ? unpack(array) : Float32Array.from(flatten(array));
}

export function shapeOf(array: ArrayLike): number[] {
    if (isPacked(array)) return array.shape;
    const shape: number[] = [];
    for (let at: unknown = array; Array.isArray(at); at = at[0]) shape.push(at.length);
    return shape;
}

/* The place of one value among all, 1 for the lowest, and how many there are; null: it is NaN. */
export function rankOf(list: Float32Array, index: number): { rank: number; n: number } | null {
    const value = list[index];
    if (Number.isNaN(value)) return null;
    let rank = 1;
    let n = 0;
    for (const other of list) {
        if (other < value) rank++;
        if (!Number.isNaN(other)) n++;
    }
    return { rank, n };
}

/* Mean of what is not NaN; NaN of nothing. */
export function mean(list: Iterable<number>): number {
    let sum = 0;
    let n = 0;
    for (const value of list) if (!Number.isNaN(value)) ((sum += value), n++);
    return n ? sum / n : NaN;
}

export function extent(list: Iterable<number>): [number, number] {
    let low = Infinity;
    let high = -Infinity;
    for (const value of list) {
        if (value < low) low = value;
        if (value > high) high = value;
    }
    return [low, high];
}
