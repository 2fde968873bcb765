/* palette.ts - colors of numbers: the formulas of src/render/palette.c, to the byte.
 *
 * Maps are formulas in Oklab (Ottosson 2020), where equal distances look alike.  Figures and
 * page must agree, so this file changes with that one; test/palette.test.ts compares them. */

export type Rgb = readonly [number, number, number];
export type MapName = "entropy" | "blues" | "difference" | "bluesDark";
type Lab = readonly [number, number, number];

const DEGREE = Math.PI / 180;
export const LEVELS = 256;

const fromLinear = (part: number) =>
    part <= 0.0031308 ? 12.92 * part : 1.055 * Math.pow(part, 1 / 2.4) - 0.055;

/* Linear light; outside 0 to 1 where no screen shows it. */
function linearOf([L, a, b]: Lab): Rgb {
    const l = Math.pow(L + 0.3963377774 * a + 0.2158037573 * b, 3);
    const m = Math.pow(L - 0.1055613458 * a - 0.0638541728 * b, 3);
    const s = Math.pow(L - 0.0894841775 * a - 1.291485548 * b, 3);
    return [
        +4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
        -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
        -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
    ];
}

const canBeShown = (lab: Lab) => linearOf(lab).every((part) => part >= -1e-6 && part <= 1 + 1e-6);
const toByte = (linear: number) => Math.round(255 * fromLinear(Math.min(Math.max(linear, 0), 1)));

/* Colors that a screen cannot show lose chroma, not lightness. */
function colorOf(lab: Lab): Rgb {
    let kept = 1;
    if (!canBeShown(lab)) {
        kept = 0;
        for (let i = 0, step = 0.5; i < 16; i++, step /= 2)
            if (canBeShown([lab[0], (kept + step) * lab[1], (kept + step) * lab[2]])) kept += step;
    }
    const [red, green, blue] = linearOf([lab[0], kept * lab[1], kept * lab[2]]);
    return [toByte(red), toByte(green), toByte(blue)];
}

const polar = (lightness: number, chroma: number, hue: number): Rgb =>
    colorOf([lightness, chroma * Math.cos(hue * DEGREE), chroma * Math.sin(hue * DEGREE)]);

const formulas: Record<MapName, (t: number) => Rgb> = {
    entropy: (t) => polar(0.26 + 0.66 * t, 0.095 + 0.15 * (t - 0.5) * (t - 0.5), 308 - 205 * t),
    blues: (t) => polar(0.975 - 0.65 * t, 0.012 + 0.36 * t * (1 - t) + 0.09 * t * t, 248 + 14 * t),
    bluesDark: (t) => polar(0.27 + 0.66 * t, 0.03 + 0.36 * t * (1 - t) + 0.01 * t * t, 264 - 22 * t),
    difference: (t) => {
        const far = Math.abs(2 * t - 1);
        return polar(0.965 - 0.49 * far, 0.14 * far, t < 0.5 ? 252 : 32);
    },
};

const tables = new Map<MapName, Rgb[]>();

/* All levels of a map, first to last. */
export function levelsOf(map: MapName): Rgb[] {
    let table = tables.get(map);
    if (!table) {
        table = Array.from({ length: LEVELS }, (_, i) => formulas[map](i / (LEVELS - 1)));
        tables.set(map, table);
    }
    return table;
}

/* share is clamped to 0..1. */
export const mapColor = (map: MapName, share: number): Rgb =>
    levelsOf(map)[Math.round(Math.min(Math.max(share, 0), 1) * (LEVELS - 1))];

export const css = ([red, green, blue]: Rgb) => `rgb(${red},${green},${blue})`;

/* The levels as pixels of an ImageData (little endian: A B G R). */
export const pixelsOf = (map: MapName): Uint32Array =>
    Uint32Array.from(
        levelsOf(map),
        ([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0,
    );

/* Is dark text easier to read on it than light?  Black and white contrast alike at luminance 0.179. */
export function isLight([red, green, blue]: Rgb): boolean {
    const linear = [red, green, blue].map((byte) => {
        const part = byte / 255;
        return part <= 0.04045 ? part / 12.92 : Math.pow((part + 0.055) / 1.055, 2.4);
    });
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] > 0.179;
}

/* Pure ones: on middle colors anything less is too faint. */
export const inkOn = (color: Rgb) => (isLight(color) ? "#000" : "#fff");
