/* lens.ts - what the model would say after each layer: row 0 the embeddings, row l after block l. */
import { isPacked, values } from "./arrays";
import type { RawLens } from "./format";

export class Lens {
    readonly entropy: Float32Array; /* (rows, tokens) nats */
    readonly nRows: number;
    readonly nTokens: number;
    readonly texts: string[];
    readonly first: number; /* the place of its first token in the prompt */
    readonly hits: Float32Array | null; /* (rows, tokens) 1 where the guess is what follows */
    private readonly top: Float32Array;
    private readonly strings: string[];

    constructor(raw: RawLens) {
        this.strings = raw.strings;
        this.texts = raw.texts ?? [];
        this.first = raw.first ?? 0;
        this.hits = values(raw.hits);
        this.entropy = values(raw.entropy)!;
        this.top = values(raw.top as number[][])!;
        this.nTokens = isPacked(raw.entropy)
            ? raw.entropy.shape[1]
            : (raw.entropy as unknown as number[][])[0].length;
        this.nRows = this.entropy.length / this.nTokens;
    }

    word(row: number, token: number): string {
        return this.strings[this.top[row * this.nTokens + token]] ?? "";
    }
}
