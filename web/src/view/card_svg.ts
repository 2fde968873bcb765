/* card_svg.ts - the card of a head as a picture of its own: SVG, or PNG made of it. */
import { number, percent, visible } from "../base/format";
import { mapColor } from "../base/palette";
import { rowOf, type ActiveRow, type AttentionMap } from "../data/attention";
import { bluesOf, type Theme } from "../data/quantity";
import { colorsOf } from "./theme";

export interface CardPicture {
    title: string; /* "L7H3 · induction head" */
    of: string; /* the model, and what it was measured on */
    facts: { name: string; value: string }[];
    curve: { x: number[]; y: number[]; unit: string } | null; /* entropy by position */
    bins: ArrayLike<number> | null; /* rows by normalized entropy, 0 to 255 */
    map: AttentionMap | null;
    texts: string[];
    active: ActiveRow[];
    theme: Theme;
}

const WIDTH = 720;
const MAP = 300;

const escaped = (text: string) =>
    text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]!);

/* The map, a pixel for each pair, as an image in the picture. */
function mapImage({ map, theme }: CardPicture): string {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = map!.n;
    const pen = canvas.getContext("2d")!;
    for (let row = 0; row < map!.n; row++)
        rowOf(map!, row).forEach((p, key) => {
            const [r, g, b] = mapColor(bluesOf(theme), Math.sqrt(p));
            pen.fillStyle = `rgb(${r},${g},${b})`;
            pen.fillRect(key, row, 1, 1);
        });
    return canvas.toDataURL("image/png");
}

export function cardSvg(card: CardPicture): string {
    const colors = colorsOf(card.theme);
    const parts: string[] = [];
    const text = (x: number, y: number, words: string, style = "") =>
        parts.push(`<text x="${x}" y="${y}" ${style}>${escaped(words)}</text>`);
    const small = `font-size="12" fill="${colors.muted}"`;
    text(24, 40, card.title, 'font-size="22" font-weight="650"');
    text(24, 60, card.of, small);
    card.facts.forEach(({ name, value }, i) => {
        const x = 24 + 168 * (i % 4);
        const y = 92 + 44 * Math.floor(i / 4);
        text(x, y, name, small);
        text(x, y + 19, value, 'font-size="16" font-weight="550"');
    });
    let y = 104 + 44 * Math.ceil(card.facts.length / 4);
    const left = card.map ? MAP + 60 : 24;
    const room = WIDTH - left - 24;
    if (card.map) {
        text(24, y, `Attention on ${card.map.n} tokens: rows look at columns`, small);
        parts.push(
            `<image x="24" y="${y + 10}" width="${MAP}" height="${MAP}" style="image-rendering:pixelated" preserveAspectRatio="none" href="${mapImage(card)}"/>`,
            `<rect x="24" y="${y + 10}" width="${MAP}" height="${MAP}" fill="none" stroke="${colors.grid}"/>`,
        );
    }
    if (card.bins) {
        text(left, y, "Rows by normalized entropy: focused to diffuse", small);
        const bar = room / card.bins.length;
        Array.from(card.bins).forEach((count, i) => {
            const height = (count / 255) * 90;
            parts.push(
                `<rect x="${(left + i * bar).toFixed(2)}" y="${(y + 110 - height).toFixed(2)}" width="${Math.max(bar - 0.5, 0.5).toFixed(2)}" height="${height.toFixed(2)}" fill="${colors.series[0]}"/>`,
            );
        });
        parts.push(`<path d="M${left} ${y + 110.5}h${room}" stroke="${colors.axis}"/>`);
    }
    if (card.curve && card.curve.x.length > 1) {
        const { x, y: values, unit } = card.curve;
        const top = y + 150;
        const most = Math.max(...values, 1e-6);
        text(left, top, `Entropy by position: 0 to ${number(most)} ${unit}`, small);
        const at = (i: number) =>
            `${(left + (room * i) / (x.length - 1)).toFixed(1)} ${(top + 110 - (95 * values[i]) / most).toFixed(1)}`;
        parts.push(
            `<path d="M${x.map((_, i) => at(i)).join("L")}" fill="none" stroke="${colors.series[0]}" stroke-width="2"/>`,
            `<path d="M${left} ${top + 110.5}h${room}" stroke="${colors.axis}"/>`,
        );
        text(left, top + 126, `position ${x[0]}`, small);
        text(WIDTH - 24, top + 126, String(x[x.length - 1]), `${small} text-anchor="end"`);
    }
    y += card.map ? MAP + 40 : 300;
    if (card.active.length) text(24, y, "Most active", small);
    for (const { row, key, attention } of card.active) {
        y += 20;
        const from = Math.max(0, Math.min(row, Math.max(row - 9, key - 2)));
        const words = card.texts
            .slice(from, row + 1)
            .map((one) => visible(one))
            .join("")
            .slice(-64);
        text(24, y, percent(attention), 'font-size="13" font-weight="600"');
        text(
            80,
            y,
            `${visible(card.texts[row])} looks at ${visible(card.texts[key])}   …${words}`,
            'font-size="13"',
        );
    }
    const height = y + 28;
    return [
        `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" viewBox="0 0 ${WIDTH} ${height}"`,
        ` font-family="system-ui, sans-serif" fill="${colors.text}" role="img"><title>${escaped(card.title)}</title>`,
        `<rect width="${WIDTH}" height="${height}" fill="${colors.background}"/>`,
        ...parts,
        "</svg>",
    ].join("");
}

/* The same picture in pixels, two for each of the picture's. */
export async function cardPng(svg: string): Promise<Blob> {
    const image = new Image();
    image.src = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
    try {
        await image.decode();
        const canvas = document.createElement("canvas");
        canvas.width = 2 * image.naturalWidth;
        canvas.height = 2 * image.naturalHeight;
        canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
        return await new Promise((done, fail) =>
            canvas.toBlob((blob) => (blob ? done(blob) : fail(new Error("no picture"))), "image/png"),
        );
    } finally {
        URL.revokeObjectURL(image.src);
    }
}
