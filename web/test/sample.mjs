/* sample.mjs - data of any size in the form of a report, for what real ones are too small for.
 *
 *     node test/sample.mjs LAYERS HEADS TOKENS OUT.html
 *
 * The numbers are drawn with a seed: heads have kinds, and their rows look like them. */
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

export const PAGE = fileURLToPath(new URL("../dist/headlight.html", import.meta.url));
const EMPTY = '<script type="application/json" id="headlight-data">null</script>';

/* mulberry32: 32 bits of state. */
function random(seed) {
    return () => {
        seed = (seed + 0x6d2b79f5) | 0;
        let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
        t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
        return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
}

const base64 = (array) => Buffer.from(array.buffer, array.byteOffset, array.byteLength).toString("base64");
const f32 = (shape, list) => ({ dtype: "f32", shape, data: base64(Float32Array.from(list)) });
const u8 = (shape, bytes, extra = {}) => ({
    dtype: "u8",
    shape,
    ...extra,
    data: base64(Uint8Array.from(bytes)),
});

const TYPES = ["induction", "previous", "self", "sink", "local", "specialist", "global", "mixed"];
const fill = (n, make) => Array.from({ length: n }, (_, i) => make(i));
/* A color for every type: a gray of its own. */
const hues = (lightness) =>
    TYPES.map((_, i) => {
        const byte = Math.round(255 * (lightness - 0.04 * i))
            .toString(16)
            .padStart(2, "0");
        return `#${byte}${byte}${byte}`;
    });

function profileOf(layers, heads, seed, name) {
    const draw = random(seed);
    const n = layers * heads;
    const valley = (i) => 0.25 + 0.6 * Math.abs(Math.floor(i / heads) / Math.max(layers - 1, 1) - 0.45) * 1.6;
    const normalized = fill(n, (i) => Math.min(0.98, Math.max(0.02, valley(i) + 0.35 * (draw() - 0.5))));
    const H = normalized.map((value) => value * 5.2);
    const share = () =>
        f32(
            [layers, heads],
            fill(n, () => draw() ** 3),
        );
    const type = normalized.map((value) =>
        value > 0.7 ? 6 : value < 0.2 ? Math.floor(draw() * 4) : 4 + (Math.floor(draw() * 4) % 4),
    );
    const bump = (i, bin) => Math.exp(-(((bin / 64 - normalized[i]) / 0.11) ** 2)) * 250 + draw() * 5;
    return {
        name,
        model: { family: "sample", layers, heads, kv_heads: heads, dtype: "f16", context: 1024 },
        corpus: { documents: 32, tokens: 32768, rows: 32768, context: 1024, seed: 0 },
        means: {
            entropy: f32([layers, heads], H),
            normalized: f32([layers, heads], normalized),
            renyi2: f32(
                [layers, heads],
                H.map((h) => 0.85 * h),
            ),
            varentropy: f32(
                [layers, heads],
                H.map((h) => h * (1.2 - 0.2 * h)),
            ),
            peak: f32(
                [layers, heads],
                normalized.map((f) => 1 - 0.9 * f),
            ),
            self: share(),
            previous: share(),
            first: share(),
            entropy_nosink: f32(
                [layers, heads],
                H.map((h) => 1.04 * h),
            ),
            normalized_nosink: f32(
                [layers, heads],
                normalized.map((f) => Math.min(1, 1.03 * f)),
            ),
            output_norm: f32(
                [layers, heads],
                fill(n, () => 0.2 + 1.6 * draw()),
            ),
        },
        intervals: {
            entropy: {
                low: f32(
                    [layers, heads],
                    H.map((h) => h - 0.05),
                ),
                high: f32(
                    [layers, heads],
                    H.map((h) => h + 0.05),
                ),
            },
        },
        layers: layersOf(H, layers, heads),
        types: {
            names: TYPES,
            index: u8([layers, heads], type),
            colors: { light: hues(0.4), dark: hues(0.7) },
        },
        type_rules: TYPES.map((one) => `The ${one} rule holds: its mean is above the threshold.`),
        histogram: {
            of: "normalized",
            edges: fill(65, (i) => i / 64),
            counts: u8(
                [layers, heads, 64],
                fill(n * 64, (i) => Math.min(255, bump(Math.floor(i / 64), i % 64))),
            ),
        },
        positions: {
            edges: fill(11, (i) => 2 ** i - 1),
            entropy: f32(
                [layers, heads, 10],
                fill(n * 10, (i) => normalized[Math.floor(i / 10)] * Math.log(2 ** ((i % 10) + 0.5))),
            ),
        },
        twins: {
            head: f32(
                [layers, heads, 3],
                fill(3 * n, () => Math.floor(draw() * heads)),
            ),
            similarity: f32(
                [layers, heads, 3],
                fill(3 * n, (i) => 0.95 - 0.1 * (i % 3) - 0.05 * draw()),
            ),
        },
        token_types: {
            names: ["prompt", "special", "generated"],
            entropy: f32(
                [layers, heads, 3],
                fill(3 * n, (i) => (i % 3 === 1 ? NaN : H[Math.floor(i / 3)] * (1 - 0.2 * (i % 3)))),
            ),
        },
        off: [[layers - 1, 0]],
        diagnoses: [
            {
                name: "sink-heads",
                severity: "notice",
                fired: true,
                ran: true,
                below: false,
                title: "Sink heads",
                rule: "more than 0.3 on the first key in most rows",
                value: 0.41,
                threshold: 0.3,
                evidence: "literature",
                finding: "5 heads rest on the first token",
                kind: "literature",
                counter: "",
                mitigation: "Keep one a layer, or prune with ablation.",
                heads: fill(5, (i) => [i % layers, (3 * i) % heads]),
            },
            {
                name: "entropy-collapse",
                fired: false,
                ran: true,
                below: false,
                severity: "none",
                rule: "more than half of the heads under 0.05",
                value: 0.03,
                threshold: 0.5,
                kind: "literature",
                heads: [],
            },
        ],
    };
}

function layersOf(H, layers, heads) {
    const mean = fill(
        layers,
        (layer) => H.slice(layer * heads, (layer + 1) * heads).reduce((a, b) => a + b, 0) / heads,
    );
    return {
        entropy: mean,
        entropy_low: mean.map((h) => h - 0.12),
        entropy_high: mean.map((h) => h + 0.12),
        variance: mean.map(() => 0.4),
        influence: mean.map((_, i) => 0.5 / (i + 1)),
    };
}

/* Rows that look at themselves, the one before, the first and a few others. */
function triangleOf(n, seed) {
    const draw = random(seed);
    const bytes = new Uint8Array((n * (n + 1)) / 2);
    for (let row = 0, at = 0; row < n; at += ++row) {
        for (let key = 0; key <= row; key++) bytes[at + key] = 20 * draw() * (key % 17 === row % 17 ? 4 : 1);
        bytes[at] = 120;
        bytes[at + row] = 90;
        if (row > 0) bytes[at + row - 1] = 255;
    }
    return bytes;
}

const WORDS =
    "The quick brown fox jumps over the lazy dog and the light goes on before anybody asks why it was dark in there at all".split(
        " ",
    );

export function sampleData({ layers = 8, heads = 8, tokens = 64, maps = 1, profiles = 1 } = {}) {
    const texts = fill(tokens, (i) => (i ? " " : "") + WORDS[i % WORDS.length]);
    const draw = random(7);
    const data = {
        format: "headlight.report/1",
        version: "0",
        definitions: {
            diagnosis: { name: "Diagnosis", text: "A rule with a threshold." },
            entropy: { name: "Shannon entropy", unit: "nats", text: "How attention is divided." },
        },
        profiles: fill(profiles, (i) => profileOf(layers, heads, i + 1, i ? `sample ${i + 1}` : "sample")),
    };
    if (!tokens) return data;
    const triangles = Buffer.concat(fill(maps, (i) => triangleOf(tokens, i + 1)));
    data.tokens = {
        texts,
        kinds: fill(tokens, () => 0),
        entropy:
            tokens <= 512
                ? f32(
                      [layers, heads, tokens],
                      fill(layers * heads * tokens, (i) => draw() * Math.log((i % tokens) + 1)),
                  )
                : undefined,
        maps: {
            heads: fill(maps, (i) => [0, i]),
            packed: "triangle",
            data: {
                dtype: "u8",
                shape: [maps, (tokens * (tokens + 1)) / 2],
                data: triangles.toString("base64"),
            },
            row_peak: f32(
                [maps, tokens],
                fill(maps * tokens, () => 0.5),
            ),
        },
    };
    if (tokens > 512) return data;
    data.lens = {
        strings: WORDS,
        top: fill(layers + 1, () => fill(tokens, () => Math.floor(draw() * WORDS.length))),
        entropy: f32(
            [layers + 1, tokens],
            fill((layers + 1) * tokens, (i) => 9 * draw() * (1 - Math.floor(i / tokens) / (layers + 2))),
        ),
    };
    data.trace = {
        texts,
        kinds: fill(tokens, (i) => (i < tokens / 4 ? 0 : 2)),
        entropy: data.tokens.entropy,
        vocab_entropy: fill(tokens, () => 4 * draw()),
        varentropy: fill(tokens, () => draw()),
        logprob: fill(tokens, () => -3 * draw()),
        spike: fill(tokens, (i) => (i % 23 === 22 ? 4 : draw())),
        spike_threshold: 3,
        spikes: fill(tokens, (i) => i).filter((i) => i % 23 === 22),
    };
    return data;
}

/* The page with these data inside, as `headlight report` writes it. */
export function fillPage(data) {
    const escapes = { "<": "\\u003c", ">": "\\u003e", "&": "\\u0026" };
    const json = JSON.stringify(data).replace(/[<>&]/g, (c) => escapes[c]);
    const page = readFileSync(PAGE, "utf8");
    if (page.split(EMPTY).length !== 2) throw new Error("the page has no single place for data");
    return page.replace(EMPTY, () => EMPTY.replace("null", () => json));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
    const [layers, heads, tokens] = process.argv.slice(2, 5).map(Number);
    writeFileSync(process.argv[5], fillPage(sampleData({ layers, heads, tokens })));
}
