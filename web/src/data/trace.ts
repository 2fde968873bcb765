/* trace.ts - what was seen of every token while a text was generated. */
import { mean, values } from "./arrays";
import type { RawTrace } from "./format";

export class Trace {
    readonly texts: string[];
    readonly kinds: number[];
    readonly vocabEntropy: Float32Array | null;
    readonly varentropy: Float32Array | null;
    readonly logprob: Float32Array | null;
    readonly spike: Float32Array | null;
    readonly threshold: number;
    readonly spikes: number[];
    private rows: Float32Array | null | undefined;

    constructor(private readonly raw: RawTrace) {
        this.texts = raw.texts;
        this.kinds = raw.kinds ?? raw.texts.map(() => 2);
        this.vocabEntropy = values(raw.vocab_entropy);
        this.varentropy = values(raw.varentropy);
        this.logprob = values(raw.logprob);
        this.spike = values(raw.spike);
        this.threshold = raw.spike_threshold ?? 3;
        this.spikes = raw.spikes ?? [];
    }

    get n(): number {
        return this.texts.length;
    }

    /* Of a text that is being made: they come decoded. */
    setEntropies(rows: Float32Array): void {
        this.rows = rows;
    }

    /* (layers, tokens) */
    get layers(): Float32Array | null {
        return values(this.raw.layer_H);
    }

    /* (layers, heads, tokens) */
    get entropies(): Float32Array | null {
        if (this.rows === undefined) this.rows = values(this.raw.H);
        return this.rows;
    }
}

/* Means over all heads from means of layers, where a trace is too long to hold every head. */
export function layerMeans(trace: Trace): Float32Array | null {
    const rows = trace.layers;
    if (!rows) return null;
    return tokenMeans(rows, trace.n, []);
}

/* Mean over some heads (all of them: none given) for every token. */
export function tokenMeans(rows: Float32Array, n: number, heads: number[]): Float32Array {
    const which = heads.length ? heads : Array.from({ length: rows.length / n }, (_, i) => i);
    return Float32Array.from({ length: n }, (_, token) => mean(which.map((head) => rows[head * n + token])));
}

/* All heads at one token. */
export const headsAt = (rows: Float32Array, n: number, token: number): Float32Array =>
    Float32Array.from({ length: rows.length / n }, (_, head) => rows[head * n + token]);
