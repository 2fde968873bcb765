/* axis.ts - ticks at round numbers, as src/render/axis.c has them for figures. */

export interface Axis {
    low: number;
    high: number;
    step: number;
}

/* The smallest of 1, 2, 5 times a power of ten that needs at most n steps. */
function stepFor(low: number, high: number, n: number): number {
    const rough = Math.max((high - low) / n, 1e-12);
    const power = Math.pow(10, Math.floor(Math.log10(rough)));
    for (const factor of [1, 2, 5]) if (factor * power >= rough * (1 - 1e-9)) return factor * power;
    return 10 * power;
}

/* Around low and high, both ends on a tick. */
export function axisAround(low: number, high: number, n = 5): Axis {
    const step = stepFor(low, high, n);
    const first = Math.floor(low / step + 1e-9);
    const last = Math.max(Math.ceil(high / step - 1e-9), first + 1);
    return { low: first * step, high: last * step, step };
}

export const shareOf = (axis: Axis, value: number) => (value - axis.low) / (axis.high - axis.low);

export function ticksOf(axis: Axis): number[] {
    const n = Math.round((axis.high - axis.low) / axis.step);
    return Array.from({ length: n + 1 }, (_, i) => Number((axis.low + i * axis.step).toPrecision(10)));
}

/* A tick's number, with as many decimals as the step between ticks needs. */
export function tickText(value: number, step: number): string {
    const decimals = Math.min(Math.max(0, -Math.floor(Math.log10(step) + 1e-9)), 6);
    const extra = Math.abs(step * 10 ** decimals - Math.round(step * 10 ** decimals)) > 1e-6 ? 1 : 0;
    const text = Math.abs(value).toFixed(decimals + extra);
    return value < 0 && Number(text) !== 0 ? `−${text}` : text;
}

/* Every nth index so that labels of such a width do not touch. */
export function thin(n: number, room: number, label: number): number {
    for (const every of [1, 2, 5, 10, 20, 50, 100]) if ((room / n) * every >= label) return every;
    return 200;
}
