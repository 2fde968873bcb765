/* app.tsx - the page around the views: names, switches, tabs, keys. */
import { useEffect, useRef, useState } from "preact/hooks";
import { count, plural } from "../base/format";
import type { Profile } from "../data/profile";
import { tabsOf, useStore, writeFragment, type Tab } from "../store";
import { CompareTab } from "./compare_tab";
import { DiagnosisTab } from "./diagnosis_tab";
import { HeadsTab } from "./heads_tab";
import { LiveSource } from "../live/source";
import { LensTab } from "./lens_tab";
import { LiveTab } from "./live_tab";
import { Keys } from "./keys";
import { Nothing, Segmented } from "./pieces";
import { PruneTab } from "./prune_tab";
import { SidesTab } from "./sides_tab";
import { StudyTab } from "./study_tab";
import { SweepTab } from "./sweep_tab";
import { TokensTab } from "./tokens_tab";
import { TraceTab } from "./trace_tab";

const TAB_NAMES: Record<Tab, string> = {
    live: "Live",
    sides: "Side by side",
    heads: "Heads",
    tokens: "Tokens",
    trace: "Over time",
    lens: "Lens",
    diagnosis: "Diagnosis",
    compare: "Compare",
    sweep: "Prune",
};

export function App() {
    const { store, state } = useStore();
    const [keys, setKeys] = useState(false);
    usePageState();
    useGrowth();
    usePageKeys(() => setKeys(true));
    return (
        <>
            <a
                class="skip"
                href="#main"
                onClick={(event) => {
                    event.preventDefault();
                    document.getElementById("main")?.focus();
                }}>
                Skip to the figures
            </a>
            <Header onKeys={() => setKeys(true)} />
            <main>
                <Tabs />
                <div id="main" tabIndex={-1} role="tabpanel" aria-labelledby={`tab-${state.tab}`}>
                    <View tab={state.tab} />
                </div>
            </main>
            <footer>
                headlight {store.source.version}{" "}
                {store.source.kind === "report"
                    ? " · one file, no network · "
                    : " · data goes to its own server only · "}{" "}
                <button type="button" class="link" onClick={() => setKeys(true)}>
                    keys
                </button>
            </footer>
            {keys && <Keys onClose={() => setKeys(false)} />}
        </>
    );
}

function View({ tab }: { tab: Tab }) {
    const { store } = useStore();
    const { source, profile } = store;
    if (source instanceof LiveSource) return <LiveView tab={tab} source={source} />;
    if (tab === "heads" && profile) return <HeadsTab profile={profile} />;
    if (tab === "tokens" && source.tokens) return <TokensTab tokens={source.tokens} profile={profile} />;
    if (tab === "trace" && source.trace) return <TraceTab trace={source.trace} profile={profile} />;
    if (tab === "lens" && source.lens) return <LensTab lens={source.lens} />;
    if (tab === "diagnosis" && profile) return <DiagnosisTab profile={profile} />;
    if (tab === "compare") return <CompareTab compare={source.compare} />;
    if (tab === "sweep" && source.sweep) return <SweepTab sweep={source.sweep} />;
    return <Nothing title="There is nothing to show here">The report has no data of this kind.</Nothing>;
}

function LiveView({ tab, source }: { tab: Tab; source: LiveSource }) {
    const [problem, setProblem] = useState("");
    const ready = source.run && source.run.state !== "streaming" ? source.run : null;
    useEffect(() => {
        setProblem("");
        if (tab === "lens" && ready && !source.lens)
            source.readLens().catch((error: Error) => setProblem(error.message));
    }, [tab, ready]);
    if (tab === "heads") return <HeadsTab profile={source.profiles[0]} />;
    if (tab === "sides") return <SidesTab source={source} />;
    if (tab === "diagnosis") return <StudyTab source={source} />;
    if (tab === "sweep") return <PruneTab source={source} />;
    if (tab !== "lens") return <LiveTab source={source} />;
    if (source.lens) return <LensTab key={source.lens.nTokens} lens={source.lens} />;
    return (
        <Nothing
            title={
                problem || (source.run ? "Computing the prediction of each layer…" : "Generate a text first")
            }>
            {source.run ? "" : "Generate one first."}
        </Nothing>
    );
}

/* ------------------------------------------------------------------------ header */

function Header({ onKeys }: { onKeys: () => void }) {
    const { store, state } = useStore();
    const { source, profile } = store;
    const dark = state.theme === "dark";
    return (
        <header class="top">
            <div class="brand">
                <Mark />
                <b>headlight</b>
                {source.title ? <span class="title">{source.title}</span> : null}
            </div>
            {profile && (
                <div class="of">
                    {source.profiles.length > 1 ? (
                        <>
                            <h1 class="unseen">{profile.name}</h1>
                            <Segmented
                                label="Model"
                                value={String(state.profile)}
                                onChange={(value) => store.set({ profile: Number(value), type: "" })}
                                options={source.profiles.map((one, i) => ({
                                    value: String(i),
                                    text: one.name,
                                }))}
                            />
                        </>
                    ) : (
                        <h1>{profile.name}</h1>
                    )}
                    <p>
                        {modelLine(profile)}
                        <br />
                        {corpusLine(profile)}
                    </p>
                </div>
            )}
            <div class="switches">
                <Segmented
                    label="Unit"
                    value={state.unit}
                    onChange={(unit) => store.set({ unit })}
                    options={[
                        { value: "nats", text: "nats" },
                        { value: "bits", text: "bits" },
                        { value: "normalized", text: "normalized" },
                    ]}
                />
                <Segmented
                    label="Sink mass on the first token"
                    value={state.sink}
                    onChange={(sink) => store.set({ sink })}
                    options={[
                        { value: "in", text: "include first token" },
                        { value: "out", text: "exclude first token" },
                    ]}
                />
                <span class="tools">
                    <button
                        type="button"
                        class="round"
                        aria-label={dark ? "Light theme" : "Dark theme"}
                        onClick={() => store.set({ theme: dark ? "light" : "dark" })}>
                        {dark ? "☀" : "☾"}
                    </button>
                    <button type="button" class="round" aria-label="Keys" onClick={onKeys}>
                        ?
                    </button>
                </span>
            </div>
        </header>
    );
}

/* A lamp and its light. */
const Mark = () => (
    <svg width="26" height="20" viewBox="0 0 26 20" aria-hidden="true">
        <path d="M2 10a8 8 0 0 1 8-8v16a8 8 0 0 1-8-8Z" fill="currentColor" />
        <path
            d="M13 4l11-2M13 10h11M13 16l11 2"
            stroke="currentColor"
            stroke-width="2"
            stroke-linecap="round"
            opacity=".55"
        />
    </svg>
);

const text = (value: unknown) =>
    typeof value === "string" || typeof value === "number" ? String(value) : "";

function modelLine({ model, nLayers, nHeads }: Profile): string {
    const kv = Number(model.kv_heads);
    return [
        text(model.family),
        `${nLayers} layers × ${nHeads} heads`,
        kv > 0 && kv < nHeads ? `${kv} KV` : "",
        text(model.dtype),
    ]
        .filter(Boolean)
        .join(" · ");
}

function corpusLine({ corpus }: Profile): string {
    const n = (key: string, one: string) =>
        typeof corpus[key] === "number" ? plural(corpus[key] as number, one) : "";
    const context = typeof corpus.context === "number" ? `context ${count(corpus.context)}` : "";
    return [
        text(corpus.name),
        n("sequences", "sequence") || n("documents", "document"),
        n("tokens", "token"),
        context,
    ]
        .filter(Boolean)
        .join(" · ");
}

/* -------------------------------------------------------------------------- tabs */

function Tabs() {
    const { store, state } = useStore();
    const tabs = tabsOf(store.source);
    const list = useRef<HTMLDivElement>(null);
    const findings =
        store.profile?.diagnoses.filter((one) => one.fired && one.class !== "observation").length ?? 0;
    const key = (event: KeyboardEvent) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        const next = tabs[(tabs.indexOf(state.tab) + step + tabs.length) % tabs.length];
        store.set({ tab: next });
        list.current?.querySelector<HTMLElement>(`#tab-${next}`)?.focus();
        event.preventDefault();
    };
    useEffect(() => {
        const node = list.current?.querySelector<HTMLElement>(`#tab-${state.tab}`);
        if (node && list.current) list.current.scrollLeft = node.offsetLeft - 40;
    }, [state.tab]);
    return (
        <div ref={list} class="tabs" role="tablist" aria-label="Views" onKeyDown={key}>
            {tabs.map((tab) => (
                <button
                    key={tab}
                    type="button"
                    role="tab"
                    id={`tab-${tab}`}
                    aria-selected={tab === state.tab}
                    aria-controls="main"
                    tabIndex={tab === state.tab ? 0 : -1}
                    onClick={() => store.set({ tab })}>
                    {TAB_NAMES[tab]}
                    {tab === "diagnosis" && findings ? <span class="badge">{findings}</span> : null}
                </button>
            ))}
        </div>
    );
}

/* ------------------------------------------------------------------------- state */

/* The fragment follows the state. */
function usePageState() {
    const { state } = useStore();
    const first = useRef(true);
    useEffect(() => {
        if (first.current) {
            first.current = false;
            return;
        }
        const fragment = writeFragment(state);
        if (fragment !== location.hash)
            history.replaceState(null, "", fragment || location.pathname + location.search);
    }, [state]);
}

/* A source that grows is drawn again. */
function useGrowth() {
    const { store } = useStore();
    useEffect(() => store.source.listen(() => store.set({})), [store]);
}

/* Keys that work everywhere: / to the map, ? for the list. */
function usePageKeys(showKeys: () => void) {
    const { store } = useStore();
    useEffect(() => {
        const key = (event: KeyboardEvent) => {
            const typing = /^(INPUT|TEXTAREA|SELECT)$/.test((event.target as HTMLElement).tagName);
            if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
            if (event.key === "?") showKeys();
            else if (event.key === "/") {
                const grid =
                    document.querySelector<HTMLElement>("#prompt") ??
                    document.querySelector<HTMLElement>("main [role=grid], main [role=listbox]");
                if (!grid) store.set({ tab: "heads" });
                grid?.focus();
            } else return;
            event.preventDefault();
        };
        document.addEventListener("keydown", key);
        return () => document.removeEventListener("keydown", key);
    }, [store]);
}
