/* prompt_box.tsx - what the model is to go on with, and how. */
import { useState } from "preact/hooks";
import type { LiveSource } from "../live/source";
import { useStore } from "../store";

export function PromptBox({ source }: { source: LiveSource }) {
    const { store, state } = useStore();
    const [prompt, setPrompt] = useState("Once upon a time");
    const [maxTokens, setMaxTokens] = useState(64);
    const [temperature, setTemperature] = useState(0);
    const [seed, setSeed] = useState(0);
    const busy = source.run?.state === "streaming" || source.run?.state === "lost";
    const go = () => {
        if (!prompt) return;
        store.set({ token: -1 });
        void source.generate({ prompt, maxTokens, temperature, seed, off: state.off });
    };
    const key = (event: KeyboardEvent) => {
        if (event.key !== "Enter" || event.shiftKey) return;
        event.preventDefault();
        go();
    };
    const field = (
        label: string,
        value: number,
        set: (value: number) => void,
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
                value={value}
                onInput={(event) => set(Number(event.currentTarget.value) || 0)}
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
                onInput={(event) => setPrompt(event.currentTarget.value)}
                onKeyDown={key}
                placeholder="The beginning of a text"
            />
            <div class="prompt-row">
                {field("tokens", maxTokens, setMaxTokens, 1, source.model.n_ctx)}
                {field("temperature", temperature, setTemperature, 0.1, 5)}
                {field("seed", seed, setSeed, 1, 999999)}
                {state.off.length ? (
                    <span class="off-list">
                        off: {state.off.join(", ")}{" "}
                        <button type="button" class="link" onClick={() => store.set({ off: [] })}>
                            all on
                        </button>
                    </span>
                ) : null}
                <span class="prompt-go">
                    <button type="submit" class="main" disabled={!prompt || maxTokens < 1}>
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
