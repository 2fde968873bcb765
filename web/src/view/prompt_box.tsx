/* prompt_box.tsx - the prompt that the model continues, and the settings. */
import { plural } from "../base/format";
import type { Draft } from "../live/draft";
import type { LiveSource } from "../live/source";
import { useStore } from "../store";

export function PromptBox({ source }: { source: LiveSource }) {
    const { store, state } = useStore();
    const { prompt, maxTokens, temperature, topP, topK, seed } = source.draft;
    const newest = source.runs[0];
    const busy = newest?.state === "streaming" || newest?.state === "lost";
    const go = () => {
        if (!prompt) return;
        store.set({ token: -1 });
        void source.generate({ prompt, maxTokens, temperature, topP, topK, seed, off: state.off });
    };
    const put = (change: Partial<Draft>) => {
        source.setDraft(change);
        store.set({});
    };
    const key = (event: KeyboardEvent) => {
        if (event.key !== "Enter" || event.shiftKey) return;
        event.preventDefault();
        go();
    };
    const field = (
        label: string,
        name: "maxTokens" | "temperature" | "topP" | "topK" | "seed",
        step: number,
        most: number,
    ) => (
        <label>
            {label}{" "}
            <input
                type="number"
                min={0}
                max={most}
                step={step}
                value={source.draft[name]}
                onInput={(event) => put({ [name]: Number(event.currentTarget.value) || 0 })}
            />
        </label>
    );
    return (
        <form
            class="panel prompt"
            onSubmit={(event) => {
                event.preventDefault();
                go();
            }}>
            <textarea
                id="prompt"
                aria-label="Prompt"
                rows={2}
                value={prompt}
                onInput={(event) => put({ prompt: event.currentTarget.value })}
                onKeyDown={key}
                placeholder="Prompt"
            />
            <div class="prompt-row">
                {field("tokens", "maxTokens", 1, source.model.n_ctx)}
                {field("temperature", "temperature", 0.1, 5)}
                {field("top-p", "topP", 0.05, 1)}
                {field("top-k", "topK", 1, 1000000)}
                {field("seed", "seed", 1, 999999)}
                {source.runs.length > 1 ? (
                    <label>
                        history{" "}
                        <select
                            class="history"
                            value={String(source.shown)}
                            onChange={(event) => {
                                store.set({ token: -1 });
                                source.show(Number(event.currentTarget.value));
                            }}>
                            {source.runs.map((run, i) => (
                                <option key={run.number} value={String(i)}>
                                    {run.label}
                                </option>
                            ))}
                        </select>
                    </label>
                ) : null}
                {state.off.length ? (
                    <span class="off-list" role="status">
                        <b>{plural(state.off.length, "head")} disabled:</b> {state.off.join(", ")}{" "}
                        <button type="button" class="link" onClick={() => store.set({ off: [] })}>
                            Enable all
                        </button>
                    </span>
                ) : null}
                <span class="prompt-go">
                    <button
                        type="submit"
                        class="main"
                        disabled={!prompt || maxTokens < 1 || topP <= 0 || topP > 1}>
                        {source.run && state.off.join() !== source.run.settings.off.join()
                            ? "Generate again"
                            : "Generate"}
                    </button>
                    <button type="button" disabled={!busy} onClick={() => source.stop()}>
                        Stop
                    </button>
                </span>
            </div>
        </form>
    );
}
