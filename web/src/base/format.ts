/* format.ts - numbers for eyes: three significant digits, a real minus, thousands apart. */

export const NONE = "–";

/* Three significant digits, and never an exponent where a person would not write one. */
export function number(value: number | null | undefined, digits = 3): string {
    if (value === null || value === undefined || Number.isNaN(value)) return NONE;
    if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
    if (value === 0) return "0";
    const size = Math.abs(value);
    let text: string;
    if (size >= 1e7 || size < 1e-4) text = size.toExponential(digits - 1).replace("e+", "e");
    else if (Math.round(size) >= Math.pow(10, digits)) text = Math.round(size).toLocaleString("en-US");
    else text = Number(size.toPrecision(digits)).toFixed(decimalsOf(size, digits));
    return value < 0 ? `−${text}` : text;
}

/* The number of decimals that leaves `digits` significant digits; a rounding up to the next power of ten counts. */
function decimalsOf(size: number, digits: number): number {
    const rounded = Number(size.toPrecision(digits));
    return Math.max(0, digits - 1 - Math.floor(Math.log10(rounded)));
}

export const signed = (value: number, digits = 3) =>
    value > 0 ? `+${number(value, digits)}` : number(value, digits);

export const count = (value: number | undefined) =>
    value === undefined ? NONE : value.toLocaleString("en-US");

export const percent = (share: number) =>
    Number.isNaN(share) ? NONE : `${number(100 * share, share < 0.01 ? 2 : 3)}%`;

export const plural = (n: number, one: string, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

export const headName = (layer: number, head: number) => `L${layer}H${head}`;

/* "L5H3" to its numbers; null for anything else. */
export function parseHead(name: string): [number, number] | null {
    const match = /^L(\d{1,4})H(\d{1,4})$/i.exec(name.trim());
    return match ? [Number(match[1]), Number(match[2])] : null;
}

/* Blanks and control characters of a token, so that they can be seen. */
export const visible = (text: string) =>
    text.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/ /g, "·") || "∅";
