/* trace.ts - what was seen of every token while a text was generated.
 *
 * The row of a token is the one in which it is the query, as in maps of attention and in
 * `measure --rows`.  Files and events have each row with the token that it led to, the next one:
 *
 *     tokens     a  b  c  d
 *     as sent    -  a  b  c     row of a led to b
 *     here       a  b  c  -     the last row is seen only when another token is asked for
 *
 * So entropies and spike scores move by one place.  Log-probability and the entropy over the
 * vocabulary are of the prediction of the token itself, and stay. */
import { mean, values } from "./arrays";
import type { RawTrace, Sheet } from "./format";

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
        this.spike = ownRows(values(raw.spike), raw.texts.length);
        this.threshold = raw.spike_threshold ?? 3;
        this.spikes = (raw.spikes ?? []).map((token) => token - 1).filter((token) => token >= 0);
    }

    get tables(): Record<string, Sheet> {
        return this.raw.tables ?? {};
    }

    get n(): number {
        return this.texts.length;
    }

    /* Of a text that is being made: they come decoded, each with its own token. */
    setEntropies(rows: Float32Array): void {
        this.rows = rows;
    }

    /* (layers, tokens) */
    get layers(): Float32Array | null {
        return ownRows(values(this.raw.layer_entropy), this.n);
    }

    /* (tokens) mean over layers of normalized entropy, which does not grow with the text. */
    get normalized(): Float32Array | null {
        const rows = ownRows(values(this.raw.layer_normalized), this.n);
        return rows && tokenMeans(rows, this.n, []);
    }

    /* (layers, heads, tokens) */
    get entropies(): Float32Array | null {
        if (this.rows === undefined) this.rows = ownRows(values(this.raw.entropy), this.n);
        return this.rows;
    }
}

/* From rows beside the token that they led to, (..., n), to rows beside their own. */
function ownRows(list: Float32Array | null, n: number): Float32Array | null {
    return list && list.map((_, i) => (i % n < n - 1 ? list[i + 1] : NaN));
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
