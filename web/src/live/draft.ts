/* draft.ts - what the reader typed: a prompt, how to continue it, a text to test.
 *
 * It outlives tabs of the page and reloads, in the browser's storage of this tab alone, and never
 * goes anywhere but to the page's own server.  Where storage is denied it lives as long as the page. */

export interface Draft {
    prompt: string;
    maxTokens: number;
    temperature: number;
    topP: number;
    topK: number; /* 0: all tokens */
    seed: number;
    own: string; /* a text to test; "": the one that was generated */
}

export const FIRST_DRAFT: Draft = {
    prompt: "Once upon a time",
    maxTokens: 64,
    temperature: 0.8 /* at 0 small models soon repeat themselves */,
    topP: 0.95,
    topK: 0,
    seed: 0,
    own: "",
};

const KEY = "headlight-draft";

type Storage = Pick<globalThis.Storage, "getItem" | "setItem">;

/* Members of another type, from whatever wrote them, are left out. */
export function readDraft(storage: () => Storage): Draft {
    try {
        const kept = JSON.parse(storage().getItem(KEY) ?? "{}") as Record<string, unknown>;
        const same = Object.entries(FIRST_DRAFT).filter(
            ([name, value]) => typeof kept[name] === typeof value,
        );
        return { ...FIRST_DRAFT, ...Object.fromEntries(same.map(([name]) => [name, kept[name]])) };
    } catch {
        return { ...FIRST_DRAFT };
    }
}

export function keepDraft(storage: () => Storage, draft: Draft): void {
    try {
        storage().setItem(KEY, JSON.stringify(draft));
    } catch {
        /* Full or denied: it is kept in memory. */
    }
}
