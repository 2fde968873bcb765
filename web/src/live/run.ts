/* run.ts - one text as it comes, and what was seen of each of its tokens. */
import { Trace } from "../data/trace";
import type { Sink, Unit } from "../data/quantity";
import type { RowKind, TokenEvent } from "./client";

export type RunState = "streaming" | "stopped" | "done" | "lost" | "failed";

export interface Settings {
    prompt: string;
    maxTokens: number;
    temperature: number;
    topP: number;
    topK: number;
    seed: number;
    off: string[];
}

/* The rows that stand for what the reader chose. */
export function rowKind(unit: Unit, sink: Sink): RowKind {
    if (unit === "normalized") return sink === "out" ? "normalized_nosink" : "normalized";
    return sink === "out" ? "entropy_nosink" : "entropy";
}

const KINDS: Record<string, number> = { prompt: 0, special: 1, generated: 2, context: 3 };
const SPIKE = 3;

export class Run {
    state: RunState = "streaming";
    problem = "";
    readonly tokens: TokenEvent[] = [];
    private last: TokenEvent["rows"]; /* the row of the last token, once it was asked for */
    private made = new Map<RowKind, Trace>(); /* of the tokens there are */

    constructor(
        readonly settings: Settings,
        private readonly nLayers: number,
        private readonly nHeads: number,
        readonly number = 0 /* from 1, as they were begun */,
    ) {}

    /* "2: Once upon a time · seed 0 · 3 disabled" */
    get label(): string {
        const { prompt, seed, off } = this.settings;
        const short = prompt.length > 24 ? `${prompt.slice(0, 23)}…` : prompt;
        return `${this.number}: ${short} · seed ${seed}${off.length ? ` · ${off.length} disabled` : ""}`;
    }

    get size(): number {
        return this.nLayers * this.nHeads;
    }

    get ids(): number[] {
        return this.tokens.map((token) => token.id);
    }

    get nGenerated(): number {
        return this.tokens.filter((token) => token.kind === "generated").length;
    }

    get text(): string {
        return this.tokens
            .filter((token) => token.kind === "generated")
            .map((token) => token.text)
            .join("");
    }

    /* All of it that can be read as text. */
    get whole(): string {
        return this.tokens
            .filter((token) => token.kind !== "special")
            .map((token) => token.text)
            .join("");
    }

    get trace(): Trace {
        return this.traceOf("entropy");
    }

    /* What there is so far, in the form that reports have it. */
    traceOf(kind: RowKind): Trace {
        if (this.made.get(kind)?.n !== this.tokens.length) this.made.set(kind, this.build(kind));
        return this.made.get(kind)!;
    }

    /* The largest entropy that the text can reach, so that the scale does not change. */
    get most(): number {
        return Math.log(this.settings.maxTokens + 32);
    }

    private build(kind: RowKind): Trace {
        const { tokens } = this;
        const list = (of: (token: TokenEvent) => number | null) => tokens.map((token) => of(token));
        const trace = new Trace({
            texts: tokens.map((token) => token.text),
            kinds: tokens.map((token) => KINDS[token.kind] ?? 2),
            vocab_entropy: list((token) => token.entropy),
            varentropy: list((token) => token.varentropy),
            logprob: list((token) => token.logprob),
            spike: list((token) => token.spike),
            spike_threshold: SPIKE,
            spikes: tokens.flatMap((token, i) => ((token.spike ?? 0) > SPIKE ? [i] : [])),
        });
        trace.setEntropies(this.rows(kind));
        return trace;
    }

    setLast(rows: TokenEvent["rows"]): void {
        this.last = rows;
        this.made.clear();
    }

    /* (layers, heads, tokens), each token's own row: it came with the next token. */
    private rows(kind: RowKind): Float32Array {
        const n = this.tokens.length;
        const rows = new Float32Array(this.nLayers * this.nHeads * n).fill(NaN);
        for (let t = 0; t < n; t++)
            (t + 1 < n ? this.tokens[t + 1].rows : this.last)?.[kind]?.forEach((heads, layer) =>
                heads.forEach((value, head) => {
                    if (value !== null) rows[(layer * this.nHeads + head) * n + t] = value;
                }),
            );
        return rows;
    }

    /* One line per token, as `headlight generate --trace` has them. */
    toLines(): string {
        return this.tokens.map((token, i) => JSON.stringify({ index: i, ...token })).join("\n") + "\n";
    }
}
