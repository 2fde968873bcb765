/* tables.ts - every number as rows: what the table view shows and what is downloaded. */
import { headName } from "../base/format";
import type { Sheet } from "./format";
import type { Profile } from "./profile";
import type { TokenView } from "./attention";
import type { Lens } from "./lens";
import type { Trace } from "./trace";

export type Cell = string | number | boolean | null;

export interface Table {
    name: string; /* of the file */
    title: string;
    columns: string[];
    rows: Cell[][];
}

const value = (list: Float32Array | null, i: number): Cell =>
    !list || Number.isNaN(list[i]) ? null : Number(list[i].toPrecision(7));

export function headsTable(profile: Profile): Table {
    const interval = profile.interval("entropy");
    const arrays: [string, Float32Array | null][] = profile.keys.map((key) => [key, profile.mean(key)]);
    if (interval) arrays.push(["entropy_low", interval.low], ["entropy_high", interval.high]);
    const rows: Cell[][] = [];
    for (let layer = 0; layer < profile.nLayers; layer++)
        for (let head = 0; head < profile.nHeads; head++) {
            if (!profile.has(layer, head)) continue;
            const at = profile.at(layer, head);
            rows.push([
                headName(layer, head),
                layer,
                head,
                profile.types?.[at] ?? null,
                ...arrays.map(([, list]) => value(list, at)),
            ]);
        }
    return {
        name: `${profile.name}-heads`,
        title: `Every head of ${profile.name}; entropies in nats`,
        columns: ["name", "layer", "head", "type", ...arrays.map(([key]) => key)],
        rows,
    };
}

export function layersTable(profile: Profile): Table {
    const keys = [
        "entropy",
        "entropy_low",
        "entropy_high",
        "normalized",
        "normalized_low",
        "normalized_high",
        "entropy_nosink",
        "variance",
        "block_influence",
    ].filter((key) => profile.layer(key));
    return {
        name: `${profile.name}-layers`,
        title: `Every layer of ${profile.name}; entropies in nats`,
        columns: ["layer", ...keys],
        rows: Array.from({ length: profile.nLayers }, (_, layer) => [
            layer,
            ...keys.map((key) => value(profile.layer(key), layer)),
        ]),
    };
}

/* One head, or some: what their cards draw. */
export function curvesTable(
    profile: Profile,
    heads: { index: number; layer: number; head: number }[],
): Table {
    const rows: Cell[][] = [];
    for (const { index, layer, head } of heads) {
        const name = headName(layer, head);
        const { positions } = profile;
        const histogram = profile.histogram("in");
        for (let i = 0; histogram && i < histogram.n; i++)
            rows.push([
                name,
                "histogram",
                histogram.edges[i],
                histogram.edges[i + 1],
                value(histogram.values, index * histogram.n + i),
            ]);
        for (let i = 0; positions && i < positions.n; i++)
            rows.push([
                name,
                "position",
                positions.edges[i],
                positions.edges[i + 1] ?? null,
                value(positions.values, index * positions.n + i),
            ]);
    }
    return {
        name: `${profile.name}-curves`,
        title: "Histogram (relative to the largest bin) and entropy by position (nats)",
        columns: ["head", "curve", "from", "to", "value"],
        rows,
    };
}

export function tokensTable(tokens: TokenView, means: Float32Array | null, row: Float32Array | null): Table {
    return {
        name: "tokens",
        title: row
            ? "Every token, its entropy (nats), and the attention of the chosen token to it"
            : "Every token and its entropy (nats)",
        columns: ["index", "text", "entropy", ...(row ? ["attention"] : [])],
        rows: tokens.texts.map((text, i) => [
            i,
            text,
            value(means, i),
            ...(row ? [i < row.length ? value(row, i) : null] : []),
        ]),
    };
}

export function traceTable(trace: Trace, means: Float32Array | null): Table {
    const spikes = new Set(trace.spikes);
    return {
        name: "trace",
        title: "Every token of the trace; nats",
        columns: [
            "index",
            "text",
            "kind",
            "entropy",
            "vocab_entropy",
            "varentropy",
            "logprob",
            "spike",
            "is_spike",
        ],
        rows: trace.texts.map((text, i) => [
            i,
            text,
            ["prompt", "special", "generated", "inserted"][trace.kinds[i]] ?? null,
            value(means, i),
            value(trace.vocabEntropy, i),
            value(trace.varentropy, i),
            value(trace.logprob, i),
            value(trace.spike, i),
            spikes.has(i),
        ]),
    };
}

export function lensTable(lens: Lens, texts: string[]): Table {
    const rows: Cell[][] = [];
    for (let row = 0; row < lens.nRows; row++)
        for (let token = 0; token < lens.nTokens; token++)
            rows.push([
                row === 0 ? "embedding" : row - 1,
                token,
                texts[token] ?? null,
                lens.word(row, token),
                value(lens.entropy, row * lens.nTokens + token),
            ]);
    return {
        name: "lens",
        title: "Prediction after each layer; entropy over the vocabulary in nats",
        columns: ["layer", "index", "token", "says", "entropy"],
        rows,
    };
}

export function sheetTable(sheet: Sheet, name: string): Table {
    const columns = [...new Set(sheet.rows.flatMap((row) => Object.keys(row)))];
    return {
        name,
        title: sheet.title ?? name,
        columns,
        rows: sheet.rows.map((row) => columns.map((column) => row[column] ?? null)),
    };
}

/* ------------------------------------------------------------------- as files */

const quoted = (cell: Cell): string => {
    if (cell === null) return "";
    const text = String(cell);
    return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
};

export const toCsv = (table: Table): string =>
    [table.columns, ...table.rows].map((row) => row.map(quoted).join(",")).join("\n") + "\n";

export const toJson = (table: Table): string =>
    JSON.stringify(
        table.rows.map((row) => Object.fromEntries(table.columns.map((column, i) => [column, row[i]]))),
        null,
        1,
    ) + "\n";

/* A file for the reader's disk; nothing is asked of any server. */
export function download(name: string, type: string, text: string): void {
    save(name, new Blob([text], { type }));
}

export function save(name: string, blob: Blob): void {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name.replace(/[^\w.-]+/g, "-");
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
