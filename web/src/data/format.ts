/* format.ts - what `headlight report` writes into the page: see doc/report.md.
 * Everything but format and version may be absent. */
import type { ArrayLike, Packed } from "./arrays";

export type HeadRef = [number, number];

export interface Definition {
    name: string;
    unit?: string;
    text: string;
}

/* What may be behind an alarm, and what would tell it from the other causes. */
export interface Cause {
    name: string;
    for: string;
    against: string;
    command: string;
}

export interface RawDiagnosis {
    name: string;
    class?: string; /* "alarm" or "observation" */
    unit?: string;
    errors?: number | null; /* how sure the value is, in its standard errors */
    usual?: string;
    causes?: Cause[];
    severity?: string;
    fired?: boolean; /* the check found something */
    ran?: boolean; /* the check ran */
    below?: boolean; /* found where value is below threshold, else above */
    title?: string;
    finding?: string;
    rule?: string;
    value?: number | null;
    threshold?: number | null;
    evidence?: string;
    kind?: string;
    source?: string;
    against?: string;
    mitigation?: string;
    measure?: string;
    heads?: (HeadRef | { layer: number; head: number; value?: number })[];
    layers?: number[];
}

/* A piece of a sentence, and what shows it: "L7H3", "L3-L6", "type sink", a check's name, "checks". */
export interface SummaryPart {
    text: string;
    shows: string;
}

export interface Sentence {
    text: string;
    parts: SummaryPart[];
}

export interface RawHistogram {
    of?: string;
    edges: number[];
    counts: ArrayLike;
    max?: ArrayLike;
}

export interface RawProfile {
    name?: string;
    model?: Record<string, unknown>;
    corpus?: Record<string, unknown>;
    means: Record<string, ArrayLike>;
    intervals?: Record<string, { low: ArrayLike; high: ArrayLike }>;
    layers?: Record<string, ArrayLike>;
    types?:
        | string[]
        | {
              names: string[];
              index: ArrayLike;
              value?: ArrayLike;
              uncertain?: ArrayLike;
              colors?: { light: string[]; dark: string[] }; /* of each name */
          };
    type_rules?: string[];
    histogram?: RawHistogram;
    histogram_nosink?: RawHistogram;
    positions?: { edges: number[]; entropy: ArrayLike };
    token_types?: { names: string[]; entropy: ArrayLike };
    twins?: { head: ArrayLike; similarity: ArrayLike };
    off?: HeadRef[];
    n_heads?: number[];
    diagnoses?: RawDiagnosis[];
    summary?: Sentence[];
}

export interface RawTokens {
    texts: string[];
    kinds?: number[];
    entropy?: ArrayLike;
    mean_entropy?: ArrayLike;
    mean?: ArrayLike;
    mean_peak?: ArrayLike;
    active?: { row: ArrayLike; key: ArrayLike; attention: ArrayLike }; /* (layers, heads, n) each */
    maps?: { heads: HeadRef[]; packed?: "triangle" | "square"; data: Packed; row_peak?: ArrayLike };
}

export interface RawLens {
    top: number[][] | ArrayLike;
    strings: string[];
    entropy: ArrayLike;
    texts?: string[];
    hits?: ArrayLike;
    first?: number;
}

export interface RawTrace {
    texts: string[];
    kinds?: number[];
    entropy?: ArrayLike;
    vocab_entropy?: ArrayLike;
    varentropy?: ArrayLike;
    logprob?: ArrayLike;
    spike?: ArrayLike;
    spike_threshold?: number;
    spikes?: number[];
    tables?: Record<string, Sheet>;
    layer_entropy?: ArrayLike;
    layer_normalized?: ArrayLike;
}

/* A table as the command prints it with --json. */
export interface Sheet {
    table?: string;
    title?: string;
    facts?: Record<string, string | number | boolean | null>;
    rows: Record<string, string | number | boolean | null>[];
}

export interface RawCompare {
    a?: string;
    b?: string;
    kind?: string;
    names?: string[];
    heads?: number;
    significant?: number;
    shared_sequences?: number;
    tables?: Record<string, Sheet>;
}

export interface RawSweep {
    model?: string;
    context?: number;
    nll?: number;
    verdict?: string[];
    note?: string; /* how sure the numbers are */
    tables?: Record<string, Sheet>;
}

export interface RawReport {
    format: string;
    version: string;
    title?: string;
    definitions?: Record<string, Definition>;
    profiles?: RawProfile[];
    tokens?: RawTokens;
    lens?: RawLens;
    trace?: RawTrace;
    compare?: RawCompare;
    sweep?: RawSweep;
}
