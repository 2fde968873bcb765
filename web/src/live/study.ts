/* study.ts - a text put to the test: what its heads do on it, which could go, and what that costs.
 *
 *     measure    --> profile                             the Diagnosis tab
 *     rank       --> ranking, choices by ratio, sweep    the Prune tab
 *     recommend  --> frontier, heads within a budget     the Prune tab
 *     price      --> trial                               what one choice of heads costs
 *
 * One of them at a time; whoever comes next ends the one before. */
import { plural } from "../base/format";
import type { RawSweep } from "../data/format";
import { Profile } from "../data/profile";
import type { Choice, Client, Cost, EvaluateAnswer, FrontierAnswer, ModelInfo, RankAnswer } from "./client";

export type Work = "" | "measuring" | "ranking" | "recommending" | "trying";

/* What was recommended, and for what. */
export interface Recommendation extends FrontierAnswer {
    budget: number; /* nats per token */
    text: string;
}

/* What a text costs without some heads, and what with all of them. */
export interface Trial {
    off: string[];
    tokens: number;
    before: number; /* nats per token */
    nll: number;
    agreement: number;
    kl: number;
    interval?: [number, number] | null; /* of the difference */
}

/* "": the server's default, which its answer names. */
export const RANKERS = [
    "",
    "output-norm",
    "gradient",
    "weight",
    "entropy",
    "normalized",
    "entropy-nosink",
    "renyi2",
    "entropy-gradient",
    "sink",
    "random",
];

/* What sweeps of ours say of a ranker; servers say it too. */
export const VERDICTS: Record<string, string> = { entropy: "worse than a random order in our sweeps" };

const STEP = 0.05;
const MOST_RATIOS = 15;

export class Study {
    work: Work = "";
    problem = "";
    profile: Profile | null = null;
    ranking: RankAnswer | null = null;
    usual = ""; /* the server's default ranker, once it was named */
    sweep: RawSweep | null = null;
    trial: Trial | null = null;
    advice: Recommendation | null = null;
    private abort = new AbortController();

    constructor(
        private readonly client: Client,
        private readonly model: ModelInfo,
        private readonly changed: () => void,
    ) {}

    /* Ratios that leave a head in every layer. */
    get ratios(): number[] {
        const total = this.model.layers.reduce((sum, layer) => sum + layer.n_heads, 0);
        const most = 1 - this.model.layers.filter((layer) => layer.n_heads > 0).length / total;
        return Array.from({ length: MOST_RATIOS }, (_, i) => Number(((i + 1) * STEP).toFixed(2))).filter(
            (ratio) => Math.round(ratio * total) >= 1 && Math.round(ratio * total) <= most * total + 1e-9,
        );
    }

    choiceAt(ratio: number): Choice | null {
        return this.ranking?.choices.find((choice) => Math.abs(choice.ratio - ratio) < 1e-6) ?? null;
    }

    stop(): void {
        this.abort.abort();
    }

    measure(text: string): Promise<void> {
        return this.do("measuring", async (signal) => {
            const answer = await this.client.measure(text, signal);
            this.profile = new Profile(answer.report, 0);
        });
    }

    /* Beside the order that was asked for, one by chance: what is no better is worth nothing. */
    rank(text: string, ranker: string): Promise<void> {
        return this.do("ranking", async (signal) => {
            const { ratios } = this;
            const ranking = await this.client.rank(text, ranker, ratios, signal);
            if (!ranker) this.usual = ranking.ranker;
            const chance = await this.client.rank(text, "random", ratios, signal);
            const orders = [ranking, ...(ranking.ranker === "random" ? [] : [chance])];
            const points = orders.flatMap(({ ranker, choices }) =>
                choices.filter((_, i) => i % 2 === 1).map((choice) => ({ order: ranker, ...choice })),
            );
            const cost = await this.client.evaluate(
                text,
                points.map((point) => point.off),
                signal,
            );
            this.ranking = ranking;
            this.trial = null;
            this.sweep = sweepOf(orders, points, cost);
        });
    }

    recommend(text: string, budget: number): Promise<void> {
        return this.do("recommending", async (signal) => {
            const found = await this.client.frontier(text, budget, signal);
            this.advice = { ...found, budget, text };
            this.trial = null;
        });
    }

    price(text: string, off: string[]): Promise<void> {
        return this.do("trying", async (signal) => {
            const cost = await this.client.evaluate(text, [off], signal);
            this.trial = { off, tokens: cost.tokens, before: cost.nll, ...cost.settings[0] };
        });
    }

    private async do(work: Work, ask: (signal: AbortSignal) => Promise<void>): Promise<void> {
        this.abort.abort();
        this.abort = new AbortController();
        const { signal } = this.abort;
        this.work = work;
        this.problem = "";
        this.changed();
        try {
            await ask(signal);
        } catch (error) {
            if (!signal.aborted) this.problem = error instanceof Error ? error.message : String(error);
        }
        /* Another may have begun meanwhile. */
        if (this.abort.signal === signal) this.work = "";
        this.changed();
    }
}

/* In the form that a sweep's report has. */
function sweepOf(
    orders: RankAnswer[],
    points: (Choice & { order: string })[],
    cost: EvaluateAnswer,
): RawSweep {
    const none = orders.map(({ ranker }) => ({
        order: ranker,
        ratio: 0,
        heads: 0,
        nll: cost.nll,
        agreement: 1,
        kl: 0,
        ...(cost.settings.some((one) => one.interval) ? { low: cost.nll, high: cost.nll } : {}),
    }));
    const rows = points.map(({ order, ratio, off }, i) => ({
        order,
        ratio,
        heads: off.length,
        ...pointOf(cost.settings[i], cost.nll),
    }));
    return {
        nll: cost.nll,
        note: noteOf(cost),
        tables: { points: { title: "Loss with heads disabled", rows: [...none, ...rows] } },
    };
}

/* The interval of the difference, on the curve. */
function pointOf({ nll, agreement, kl, interval }: Cost, base: number): Record<string, number> {
    const ends: Record<string, number> = interval
        ? { low: base + interval[0], high: base + interval[1] }
        : {};
    return { nll, agreement, kl, ...ends };
}

function noteOf({ tokens, windows, settings }: EvaluateAnswer): string {
    const scored = `scored on ${plural(tokens, "token")}`;
    return settings.some((one) => one.interval)
        ? `${scored} in ${plural(windows ?? 0, "window")}; bands are 95% confidence intervals of the difference from all heads`
        : `${scored}; no confidence interval: the text is one window`;
}

/* How to make that model: what is written is smaller than the model, and lies where the command is run.
 * With a file of text the other heads are repaired on it. */
export function pruneCommand({ id, path, format }: ModelInfo, off: string[], text = ""): string {
    const gguf = format === "gguf" || (path ?? "").endsWith(".gguf");
    const name = `${id.replace(/\.gguf$/, "")}-pruned${gguf ? ".gguf" : ""}`;
    return [
        `headlight prune ${shellWord(path || id)}`,
        `--heads ${off.join(",")}`,
        ...(text ? [`--text ${shellWord(text)}`] : []),
        `--as ${gguf ? "gguf" : "compact"}`,
        `-o ${shellWord(name)}`,
    ].join(" ");
}

/* The command with the text that it repairs on, as one piece for a shell. */
export function pruneScript(model: ModelInfo, off: string[], text: string): string {
    const file = `${model.id.replace(/\.gguf$/, "")}-text.txt`;
    let end = "END_OF_TEXT";
    while (text.split("\n").includes(end)) end += "_";
    return `cat > ${shellWord(file)} <<'${end}'\n${text}\n${end}\n${pruneCommand(model, off, file)}\n`;
}

/* A name that begins with a dash would be read as an option. */
function shellWord(text: string): string {
    const word = text.startsWith("-") ? `./${text}` : text;
    return /^[\w./@%+:,-]+$/.test(word) ? word : `'${word.replace(/'/g, `'\\''`)}'`;
}
