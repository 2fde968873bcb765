/* source.ts - a running model as a source of views: it grows while a text is made.
 *
 *     generate --> streaming --> done
 *                    |   |--> stopped            by the reader
 *                    |--> lost --> streaming     asked again from the last token on
 *                    '--> failed                 the server said no                       */
import { Lens } from "../data/lens";
import { Profile } from "../data/profile";
import type { Source } from "../data/source";
import { TokenView, type AttentionMap } from "../data/attention";
import type { Definition } from "../data/format";
import type { Trace } from "../data/trace";
import { keepDraft, readDraft, type Draft } from "./draft";
import { Client, Refused, type ModelInfo, type TokensAnswer } from "./client";
import { Run, type Settings } from "./run";
import { Study } from "./study";

const REDRAW = 60; /* milliseconds, at the least */
const RETRY = 1000;
const MOST_RUNS = 8;
const MOST_MAPPED = 128; /* tokens of the first text in maps */

export class LiveSource implements Source {
    readonly kind = "live";
    readonly title = "";
    readonly definitions: Record<string, Definition>;
    profiles: Profile[]; /* one: bare, until a text was measured */
    readonly study: Study;
    readonly tokens: TokenView | null;
    readonly compare = null;
    readonly sweep = null;
    readonly version: string;
    lens: Lens | null = null;
    runs: Run[] = []; /* the newest first */
    shown = 0; /* the one that Live shows */
    private begun = 0;
    tried: Run[] = []; /* of the Prune tab: without some heads, and with all of them */
    draft: Draft = readDraft(() => sessionStorage);
    private listeners = new Set<() => void>();
    private timer = 0;
    private abort = new AbortController();
    private maps = new Map<string, AttentionMap>();
    private firstMaps = new Map<string, AttentionMap>();

    constructor(
        readonly client: Client,
        readonly model: ModelInfo,
    ) {
        this.version = model.version;
        this.tokens = model.tokens ? new TokenView(model.tokens) : null;
        this.definitions = model.definitions;
        this.study = new Study(client, model, () => {
            if (this.study.profile) this.profiles = [this.study.profile];
            this.changed();
        });
        if (model.profile) {
            this.profiles = [new Profile(model.profile, 0)];
            return;
        }
        const blank = model.layers.map(() => new Array<null>(model.n_heads).fill(null));
        this.profiles = [
            new Profile(
                {
                    name: model.id,
                    model: { family: model.family, dtype: model.dtype, kv_heads: model.n_kv_heads },
                    corpus: { context: model.n_ctx },
                    means: { entropy: blank },
                    n_heads: model.layers.map((layer) => layer.n_heads),
                },
                0,
            ),
        ];
    }

    get run(): Run | null {
        return this.runs[this.shown] ?? null;
    }

    /* What is put to the test: the reader's own text, or the one that was generated. */
    get tested(): string {
        return this.draft.own.trim() ? this.draft.own : (this.run?.whole ?? this.firstText);
    }

    /* The text that the model was measured on when it was tried. */
    private get firstText(): string {
        return (this.tokens?.texts ?? []).join("").replace(/·/g, " ").replace(/⏎/g, "\n");
    }

    setDraft(change: Partial<Draft>): void {
        this.draft = { ...this.draft, ...change };
        keepDraft(() => sessionStorage, this.draft);
        this.changed();
    }

    get trace(): Trace | null {
        return this.run?.trace ?? null;
    }

    listen(changed: () => void): () => void {
        this.listeners.add(changed);
        return () => this.listeners.delete(changed);
    }

    /* Tells views, but not more often than eyes can follow. */
    private changed(): void {
        this.timer ||= window.setTimeout(() => {
            this.timer = 0;
            this.listeners.forEach((listener) => listener());
        }, REDRAW);
    }

    stop(): void {
        this.abort.abort();
    }

    async generate(settings: Settings): Promise<void> {
        this.stop();
        const run = new Run(settings, this.model.n_layers, this.model.n_heads, ++this.begun);
        this.runs = [run, ...this.runs].slice(0, MOST_RUNS);
        this.show(0);
        await this.write(run);
    }

    /* Shows an earlier text again, or the newest. */
    show(index: number): void {
        this.shown = index;
        this.lens = null;
        this.maps.clear();
        this.changed();
    }

    /* The same text with all heads and without some, beside the texts of the Live tab. */
    async tryWithout(settings: Settings, off: string[]): Promise<void> {
        this.stop();
        const [all, less] = [[], off].map(
            (heads) => new Run({ ...settings, off: heads }, this.model.n_layers, this.model.n_heads),
        );
        this.tried = [less, all];
        await this.write(all);
        if (all.state === "done") await this.write(less);
    }

    /* The map of a head over the text that was looked at first, where it did not come with it. */
    async firstMap(layer: number, head: number): Promise<AttentionMap | null> {
        const { tokens } = this;
        const name = `L${layer}H${head}`;
        if (!tokens) return null;
        const kept = tokens.map(layer, head) ?? this.firstMaps.get(name);
        if (kept) return kept;
        const ids = this.model.tokens!.ids.slice(0, MOST_MAPPED);
        const map = mapFrom(await this.client.tokens(ids, [name], []), name);
        this.firstMaps.set(name, map);
        return map;
    }

    /* What the tested text costs without a head, more than with all of them. */
    async worthOf(
        head: string,
    ): Promise<{ tokens: number; rise: number; interval: [number, number] | null }> {
        const cost = await this.client.evaluate(this.tested, [[head]], new AbortController().signal);
        const [one] = cost.settings;
        return { tokens: cost.tokens, rise: one.nll - cost.nll, interval: one.interval ?? null };
    }

    private async write(run: Run): Promise<void> {
        this.abort = new AbortController();
        const { signal } = this.abort;
        this.changed();
        while (run.state === "streaming" || run.state === "lost") await this.attempt(run, signal);
        this.changed();
        await this.readLast(run);
    }

    /* The last token's row leads to a token that is not part of the text: it is asked for alone.  A
     * text that fills the context has none. */
    private async readLast(run: Run): Promise<void> {
        if (!run.tokens.length || run.state === "failed") return;
        const asked = { ...run.settings, prompt: run.ids, maxTokens: 1, withPrompt: false };
        try {
            for await (const token of this.client.generate(asked, new AbortController().signal))
                run.setLast(token.rows);
            this.changed();
        } catch {
            /* The page says that this token has no row. */
        }
    }

    /* From where the text ends. */
    private async attempt(run: Run, signal: AbortSignal): Promise<void> {
        const { prompt, maxTokens, seed, ...rest } = run.settings;
        const begun = run.tokens.length > 0;
        try {
            const events = this.client.generate(
                {
                    ...rest,
                    /* A text that is continued draws other numbers than it began with. */
                    seed: seed + run.nGenerated,
                    prompt: begun ? run.ids : prompt,
                    maxTokens: maxTokens - run.nGenerated,
                    withPrompt: !begun,
                },
                signal,
            );
            for await (const token of events) {
                run.state = "streaming";
                run.tokens.push(token);
                this.changed();
            }
            run.state = "done";
        } catch (error) {
            const lost = error instanceof Refused && error.status === 0;
            run.state = signal.aborted ? "stopped" : lost ? "lost" : "failed";
            run.problem = error instanceof Error ? error.message : String(error);
            this.changed();
            if (run.state === "lost") await new Promise((done) => setTimeout(done, RETRY));
            if (signal.aborted) run.state = "stopped";
        }
    }

    /* ------------------------------------------------------------ views of the text */

    async readLens(): Promise<void> {
        const run = this.run;
        if (!run || !run.tokens.length) return;
        const answer = await this.client.lens(run.ids, run.settings.off);
        const strings = [...new Set(answer.lens.flatMap((row) => row.text))];
        const place = new Map(strings.map((text, i) => [text, i]));
        this.lens = new Lens({
            strings,
            top: answer.lens.map((row) => row.text.map((text) => place.get(text)!)),
            entropy: answer.lens.map((row) => row.entropy),
            texts: answer.tokens.map((token) => token.text),
            first: answer.first,
        });
        this.changed();
    }

    /* The map of a head over the text as it stands; null until it has come. */
    mapOf(head: string): AttentionMap | null {
        return this.maps.get(`${head} ${this.run?.tokens.length}`) ?? null;
    }

    async readMap(head: string): Promise<void> {
        const run = this.run;
        if (!run || run.state === "streaming" || !run.tokens.length || this.mapOf(head)) return;
        const key = `${head} ${run.tokens.length}`;
        const answer = await this.client.tokens(run.ids, [head], run.settings.off);
        this.maps.set(key, mapFrom(answer, head));
        this.changed();
    }
}

/* Rows of numbers to bytes of the row's largest. */
function mapFrom(answer: TokensAnswer, head: string): AttentionMap {
    const rows = (answer.maps.find((map) => map.name === head) ?? answer.maps[answer.maps.length - 1])
        .attention;
    const peaks = Float32Array.from(rows, (row) => Math.max(...row, 1e-12));
    const bytes = Uint8Array.from(rows.flatMap((row, i) => row.map((p) => Math.round((255 * p) / peaks[i]))));
    return { n: rows.length, triangle: answer.causal, bytes, peaks };
}
