/* theme.ts - the colors of style/theme.css, for canvases. */
import type { Theme } from "../data/quantity";

export interface Colors {
    background: string;
    text: string;
    muted: string;
    axis: string;
    grid: string;
    bar: string;
    hatch: string;
    accent: string;
    mark: string;
    warn: string;
    series: string[];
    font: string;
}

const known = new Map<Theme, Colors>();

/* Of the theme that the document has. */
export function colorsOf(theme: Theme): Colors {
    const found = known.get(theme);
    if (found) return found;
    const style = getComputedStyle(document.documentElement);
    const of = (name: string) => style.getPropertyValue(`--${name}`).trim();
    const colors = {
        background: of("panel"),
        text: of("text"),
        muted: of("muted"),
        axis: of("axis"),
        grid: of("grid"),
        bar: of("bar"),
        hatch: of("hatch"),
        accent: of("accent"),
        mark: of("mark"),
        warn: of("warn"),
        series: Array.from({ length: 8 }, (_, i) => of(`series-${i}`)),
        font: of("font"),
    };
    if (document.documentElement.dataset.theme === theme) known.set(theme, colors);
    return colors;
}

/* A color as CSS has it, made see-through. */
export const faint = (color: string, alpha: number) =>
    color.replace(/^rgb\(([^)]+)\)$/, (_, parts: string) => `rgba(${parts}, ${alpha})`);

/* A canvas of that many CSS pixels, sharp on every screen. */
export function sized(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
    const ratio = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
        canvas.width = Math.round(width * ratio);
        canvas.height = Math.round(height * ratio);
        canvas.style.width = `${width}px`;
        canvas.style.height = `${height}px`;
    }
    const pen = canvas.getContext("2d")!;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    return pen;
}
