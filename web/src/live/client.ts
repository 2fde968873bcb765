/* client.ts - what the page asks of `headlight serve`: see doc/serve.md.  All of it from where the
 * page itself came from. */
import type { Definition, RawProfile, RawTokens } from "../data/format";

export interface ModelInfo {
    id: string;
    family: string;
    dtype: string;
    n_layers: number;
    n_heads: number;
    n_kv_heads: number;
    n_ctx: number;
    layers: { n_heads: number }[];
    format?: string; /* "gguf" ... */
    path?: string; /* where it lies; its last part alone for pages from other machines */
    version: string;
    definitions: Record<string, Definition>; /* what "?" opens */
    profile?: RawProfile; /* of `headlight try`: what was measured, and a text that was looked at */
    tokens?: RawTokens & { ids: number[] };
}

/* What is asked of every head: nats and of ln n, with the first key and without. */
export const ROWS = ["entropy", "normalized", "entropy_nosink", "normalized_nosink"] as const;
export type RowKind = (typeof ROWS)[number];

/* One token, as it comes. */
export interface TokenEvent {
    id: number;
    text: string;
    kind: string;
    logprob: number | null;
    entropy: number | null;
    varentropy: number | null;
    attention_entropy: number | null;
    spike: number | null;
    rows?: Partial<Record<RowKind, (number | null)[][]>>;
}

export interface Request {
    prompt: string | number[];
    maxTokens: number;
    temperature: number;
    topP: number;
    topK: number; /* 0: all tokens */
    seed: number;
    off: string[];
    withPrompt: boolean; /* events of the prompt's tokens too */
}

export interface LensAnswer {
    first: number;
    tokens: { text: string }[];
    lens: { text: string[]; entropy: (number | null)[] }[];
}

export interface TokensAnswer {
    causal: boolean;
    tokens: { text: string }[];
    maps: { name: string; attention: number[][] }[];
}

export interface MeasureAnswer {
    tokens: number;
    report: RawProfile;
}

/* Heads that go at a ratio. */
export interface Choice {
    ratio: number;
    off: string[];
}

export interface RankAnswer {
    ranker: string;
    highest_first: boolean;
    tokens: number;
    score?: string; /* what it scores, in words */
    verdict?: string | null; /* what sweeps say against it */
    heads: { head: string; score: number | null }[]; /* in pruning order */
    choices: Choice[];
}

export interface Cost {
    nll: number;
    agreement: number;
    kl: number;
    interval?: [number, number] | null; /* 95%, of nll less that of all heads; null: of one window */
}

export interface EvaluateAnswer {
    tokens: number;
    windows?: number;
    nll: number; /* of all heads */
    settings: Cost[];
}

/* An order of heads, some of it gone, on held-out text. */
export interface FrontierPoint {
    ranker: string;
    heads: number; /* removed */
    bytes: number;
    change: number; /* of the loss, nats per token */
    interval: [number | null, number | null];
    kl: number;
    agreement: number;
    fits: boolean; /* the budget, by the upper end of the interval */
    best: boolean; /* no other is smaller and costs less */
}

export interface FrontierAnswer {
    repaired: boolean; /* the losses are those of models that are solved again */
    tokens: number;
    context: number;
    windows: number;
    nll: number; /* of all heads */
    bytes: number;
    points: FrontierPoint[];
    recommended: number;
    off: string[]; /* heads to remove there */
    all_went: boolean;
}

/* What the server said no with; status 0: it was not reached. */
export class Refused extends Error {
    constructor(
        readonly status: number,
        message: string,
    ) {
        super(message);
    }
}

export class Client {
    token = ""; /* of --token; never stored */

    private async ask(path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
        const headers: Record<string, string> =
            body === undefined ? {} : { "Content-Type": "application/json" };
        if (this.token) headers.Authorization = `Bearer ${this.token}`;
        let response: Response;
        try {
            response = await fetch(path, {
                method: body === undefined ? "GET" : "POST",
                headers,
                body: body === undefined ? undefined : JSON.stringify(body),
                signal,
            });
        } catch (error) {
            if (signal?.aborted) throw error;
            throw new Refused(0, "the server does not answer");
        }
        if (!response.ok) throw new Refused(response.status, await reasonOf(response));
        return response;
    }

    async model(): Promise<ModelInfo> {
        return (await this.ask("/v1/headlight/model")).json();
    }

    async lens(input: number[], off: string[]): Promise<LensAnswer> {
        return (await this.ask("/v1/headlight/lens", { input, off })).json();
    }

    async tokens(input: number[], heads: string[], off: string[]): Promise<TokensAnswer> {
        return (await this.ask("/v1/headlight/tokens", { input, heads, off })).json();
    }

    async measure(input: string, signal: AbortSignal): Promise<MeasureAnswer> {
        return (await this.ask("/v1/measure", { input, report: true }, signal)).json();
    }

    /* ranker "": the server's own choice, which the answer names */
    async rank(input: string, ranker: string, ratios: number[], signal: AbortSignal): Promise<RankAnswer> {
        const by = ranker ? { ranker } : {};
        return (await this.ask("/v1/headlight/rank", { input, ...by, ratios }, signal)).json();
    }

    async evaluate(input: string, settings: string[][], signal: AbortSignal): Promise<EvaluateAnswer> {
        return (await this.ask("/v1/headlight/evaluate", { input, settings }, signal)).json();
    }

    /* until: nats per token */
    async frontier(input: string, until: number, signal: AbortSignal): Promise<FrontierAnswer> {
        return (await this.ask("/v1/headlight/frontier", { input, until_loss: until }, signal)).json();
    }

    /* Events until the end; throws Refused if the connection is lost before. */
    async *generate(request: Request, signal: AbortSignal): AsyncGenerator<TokenEvent> {
        const response = await this.ask(
            "/v1/completions",
            {
                prompt: request.prompt,
                max_tokens: request.maxTokens,
                temperature: request.temperature,
                top_p: request.topP,
                top_k: request.topK,
                seed: request.seed,
                stream: true,
                headlight: { entropy: true, prompt: request.withPrompt, rows: ROWS, off: request.off },
            },
            signal,
        );
        for await (const data of events(response, signal)) {
            if (data === "[DONE]") return;
            const message = JSON.parse(data);
            if (message.error) throw new Refused(500, message.error.message);
            for (const token of message.choices?.[0]?.headlight?.tokens ?? []) yield token as TokenEvent;
        }
        throw new Refused(0, "the connection was lost");
    }
}

async function reasonOf(response: Response): Promise<string> {
    try {
        return (await response.json()).error.message;
    } catch {
        return `the server answers ${response.status}`;
    }
}

/* Server-sent events: lines "data: ...", with blank lines between them. */
async function* events(response: Response, signal: AbortSignal): AsyncGenerator<string> {
    const reader = response.body!.getReader();
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
        let part: ReadableStreamReadResult<Uint8Array>;
        try {
            part = await reader.read();
        } catch (error) {
            if (signal.aborted) throw error;
            throw new Refused(0, "the connection was lost");
        }
        rest += decoder.decode(part.value, { stream: !part.done });
        const lines = rest.split("\n");
        rest = lines.pop()!;
        for (const line of lines) if (line.startsWith("data: ")) yield line.slice(6).trim();
        if (part.done) return;
    }
}
