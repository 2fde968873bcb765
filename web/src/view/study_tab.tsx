/* study_tab.tsx - a text measured by the running model: what may be wrong, and the heads that show it. */
import type { ComponentChildren } from "preact";
import { plural } from "../base/format";
import type { LiveSource } from "../live/source";
import type { Work } from "../live/study";
import { useStore } from "../store";
import { DiagnosisTab } from "./diagnosis_tab";
import { HeadsTab } from "./heads_tab";
import { Nothing, Panel } from "./pieces";

export function StudyTab({ source }: { source: LiveSource }) {
    const { store } = useStore();
    const { profile } = source.study;
    const show = (selected: string[]) => {
        store.set({ selected, type: "" });
        document.getElementById("heads")?.scrollIntoView({ block: "center" });
    };
    return (
        <>
            <StudyBox
                source={source}
                work="measuring"
                name="Measure"
                onGo={() => void source.study.measure(source.tested)}
            />
            {profile ? (
                <>
                    <DiagnosisTab profile={profile} onHeads={show} />
                    <HeadsTab profile={profile} />
                </>
            ) : (
                <Panel title="No measurement yet" class="wide">
                    <Nothing title="Press Measure to run the checks on the text">
                        Eight checks look for known problems of attention and name the heads that show them.
                    </Nothing>
                </Panel>
            )}
        </>
    );
}

const WORDS: Record<Work, string> = {
    "": "",
    measuring: "measuring…",
    ranking: "ranking heads and measuring what disabling them costs…",
    recommending: "trying the three best orders on held-out text…",
    trying: "trying…",
};

/* The text that is put to the test, and what with it. */
export function StudyBox({
    source,
    work,
    name,
    onGo,
    children,
}: {
    source: LiveSource;
    work: Work;
    name: string;
    onGo: () => void;
    children?: ComponentChildren;
}) {
    const { study, run } = source;
    const busy = study.work !== "";
    const { store } = useStore();
    const resting = run !== null && run.state !== "streaming";
    return (
        <form
            class="panel prompt"
            onSubmit={(event) => {
                event.preventDefault();
                onGo();
            }}>
            <textarea
                id="study-text"
                aria-label="Text to test"
                rows={2}
                value={source.draft.own}
                onInput={(event) => {
                    source.setDraft({ own: event.currentTarget.value });
                    store.set({});
                }}
                placeholder={
                    run?.tokens.length
                        ? `Paste a text, or leave empty to use the generated one (${plural(run.tokens.length, "token")})`
                        : "Paste a text (longer is better), or generate one first"
                }
            />
            <div class="prompt-row">
                {children}
                <span aria-live="polite">{WORDS[study.work]}</span>
                <span class="prompt-go">
                    <button
                        type="submit"
                        class="main"
                        disabled={
                            !source.tested || (!source.draft.own.trim() && !resting) || study.work === work
                        }>
                        {name}
                    </button>
                    <button type="button" disabled={!busy} onClick={() => study.stop()}>
                        Stop
                    </button>
                </span>
            </div>
            {study.problem ? (
                <p class="problem" role="alert">
                    {study.problem}
                </p>
            ) : null}
        </form>
    );
}
