/* profile.ts - what was measured of every head of one model, decoded when it is first asked for. */
import { number } from "../base/format";
import { values, shapeOf, type ArrayLike } from "./arrays";
import type { RawDiagnosis, RawProfile, Sentence } from "./format";
import type { Theme } from "./quantity";

export interface Twin {
    layer: number;
    head: number;
    similarity: number;
}

export interface Diagnosis extends Omit<RawDiagnosis, "heads"> {
    heads: { layer: number; head: number; value?: number }[];
    fired: boolean;
    ran: boolean;
}

export interface Curves {
    edges: number[];
    values: Float32Array; /* (heads of all layers, n) */
    n: number;
}

export class Profile {
    readonly name: string;
    readonly model: Record<string, unknown>;
    readonly corpus: Record<string, unknown>;
    readonly nLayers: number;
    readonly nHeads: number;
    readonly off: Set<number>;
    private readonly cache = new Map<string, unknown>();

    constructor(
        private readonly raw: RawProfile,
        index: number,
    ) {
        const shape = shapeOf(raw.means.entropy ?? Object.values(raw.means)[0]);
        this.name = (raw.name || `profile ${index + 1}`).replace(/\.(profile|safetensors)$/, "");
        this.model = raw.model ?? {};
        this.corpus = raw.corpus ?? {};
        this.nLayers = shape[0];
        this.nHeads = shape[1];
        this.off = new Set((raw.off ?? []).map(([layer, head]) => this.at(layer, head)));
    }

    at(layer: number, head: number): number {
        return layer * this.nHeads + head;
    }

    private once<T>(key: string, make: () => T): T {
        if (!this.cache.has(key)) this.cache.set(key, make());
        return this.cache.get(key) as T;
    }

    private array(key: string, array: ArrayLike | undefined): Float32Array | null {
        return this.once(key, () => values(array));
    }

    get keys(): string[] {
        return Object.keys(this.raw.means);
    }

    /* (layers, heads) */
    mean(key: string): Float32Array | null {
        return this.array(`mean ${key}`, this.raw.means[key]);
    }

    interval(key: string): { low: Float32Array; high: Float32Array } | null {
        const of = this.raw.intervals?.[key];
        if (!of) return null;
        return this.once(`interval ${key}`, () => ({ low: values(of.low)!, high: values(of.high)! }));
    }

    /* (layers) */
    layer(key: string): Float32Array | null {
        return this.array(`layer ${key}`, this.raw.layers?.[key]);
    }

    /* Does that layer have that head? */
    has(layer: number, head: number): boolean {
        if (layer < 0 || head < 0 || layer >= this.nLayers || head >= this.nHeads) return false;
        return head < (this.raw.n_heads?.[layer] ?? this.nHeads);
    }

    /* "previous-token head" */
    typeName(index: number): string {
        const type = this.types?.[index];
        return type ? `${type === "previous" ? "previous-token" : type} head` : "";
    }

    get types(): string[] | null {
        const types = this.raw.types;
        if (!types) return null;
        return this.once("types", () =>
            Array.isArray(types)
                ? types
                : Array.from(values(types.index)!, (i) => types.names[i] ?? "unknown"),
        );
    }

    /* A type has one color in each theme, whatever the model; "": none was sent. */
    typeColor(type: string, theme: Theme): string {
        const types = this.raw.types;
        if (!types || Array.isArray(types)) return "";
        return types.colors?.[theme][types.names.indexOf(type)] ?? "";
    }

    /* Could other rows of the text give the head another type? */
    isUncertain(index: number): boolean {
        const types = this.raw.types;
        if (!types || Array.isArray(types)) return false;
        return this.array("uncertain", types.uncertain)?.[index] === 1;
    }

    /* Why a head has its type: what the rule looks at, and how much of that it has. */
    rule(index: number): string {
        const rules = this.raw.type_rules;
        const types = this.raw.types;
        if (!rules || !types) return "";
        if (Array.isArray(types)) return rules.length === types.length ? rules[index] : "";
        const rule = rules[types.names.indexOf(this.types![index])] ?? "";
        const value = this.array("type value", types.value)?.[index] ?? NaN;
        return Number.isNaN(value) ? rule : `${rule}: ${number(value)}`;
    }

    /* Of normalized entropies, with the first key or without. */
    histogram(sink: "in" | "out"): Curves | null {
        const raw = sink === "out" ? (this.raw.histogram_nosink ?? this.raw.histogram) : this.raw.histogram;
        if (!raw) return null;
        return this.once(`histogram ${sink}`, () => ({
            edges: raw.edges,
            values: values(raw.counts)!,
            n: raw.edges.length - 1,
        }));
    }

    get positions(): Curves | null {
        const raw = this.raw.positions;
        if (!raw) return null;
        return this.once("positions", () => {
            const shape = shapeOf(raw.entropy);
            return { edges: raw.edges, values: values(raw.entropy)!, n: shape[shape.length - 1] };
        });
    }

    get tokenTypes(): { names: string[]; values: Float32Array } | null {
        const raw = this.raw.token_types;
        if (!raw) return null;
        return this.once("token types", () => ({ names: raw.names, values: values(raw.entropy)! }));
    }

    /* Those of the same layer that are most like a head. */
    twins(index: number): Twin[] {
        const heads = this.array("twins", this.raw.twins?.head);
        const alike = this.array("alike", this.raw.twins?.similarity);
        if (!heads || !alike) return [];
        const n = heads.length / (this.nLayers * this.nHeads);
        return Array.from({ length: n }, (_, i) => index * n + i)
            .filter((at) => !Number.isNaN(heads[at]) && !Number.isNaN(alike[at]))
            .map((at) => ({
                layer: Math.floor(index / this.nHeads),
                head: heads[at],
                similarity: alike[at],
            }));
    }

    get summary(): Sentence[] {
        return this.raw.summary ?? [];
    }

    get diagnoses(): Diagnosis[] {
        return this.once("diagnoses", () => (this.raw.diagnoses ?? []).map(diagnosisOf));
    }
}

function diagnosisOf(raw: RawDiagnosis): Diagnosis {
    return {
        ...raw,
        fired: raw.fired ?? false,
        ran: raw.ran ?? false,
        heads: (raw.heads ?? []).map((head) =>
            Array.isArray(head) ? { layer: head[0], head: head[1] } : head,
        ),
    };
}
