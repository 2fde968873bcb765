/* summary.tsx - what was found, in three sentences; each claim leads to what shows it. */
import type { Profile } from "../data/profile";
import type { SummaryPart } from "../data/format";
import { useStore, writeFragment, type State, type Store } from "../store";

export function Summary({ profile }: { profile: Profile }) {
    const { store, state } = useStore();
    if (!profile.summary.length) return null;
    return (
        <section class="panel summary" aria-label="What was found">
            {profile.summary.map((sentence, i) => (
                <p key={i}>
                    {sentence.parts.map((part, at) => (
                        <Part key={at} part={part} store={store} state={state} />
                    ))}
                </p>
            ))}
        </section>
    );
}

function Part({ part, store, state }: { part: SummaryPart; store: Store; state: State }) {
    const evidence = part.shows ? evidenceOf(part.shows, state) : null;
    if (!evidence) return <>{part.text}</>;
    const { change, shown } = evidence;
    return (
        <a
            class="claim"
            href={writeFragment({ ...state, ...change }) || "#"}
            aria-current={shown ? "true" : undefined}
            onClick={(event) => {
                event.preventDefault();
                store.set(change);
                if (change.selected) showCard();
                else if (change.tab) window.scrollTo({ top: 0 });
            }}>
            {part.text}
        </a>
    );
}

/* What to show as evidence, and whether it is shown.  Pressed again, layers and types are shown among
 * all others again. */
function evidenceOf(shows: string, state: State): { change: Partial<State>; shown?: boolean } {
    const layers = /^L(\d+)(?:-L(\d+))?$/.exec(shows);
    if (/^L\d+H\d+$/.test(shows))
        return { change: { selected: [shows] }, shown: state.selected.join() === shows };
    if (layers) {
        const range = `${layers[1]}-${layers[2] ?? layers[1]}`;
        const shown = state.layers === range;
        return { change: { layers: shown ? "" : range }, shown };
    }
    if (shows.startsWith("type ")) {
        const shown = state.type === shows.slice(5);
        return { change: { type: shown ? "" : shows.slice(5) }, shown };
    }
    return { change: { tab: "diagnosis", check: shows === "checks" ? "" : shows } };
}

/* Where the card is below the map, it is brought into view. */
function showCard(): void {
    requestAnimationFrame(() => {
        const card = document.querySelector(".card");
        if (card && card.getBoundingClientRect().top > window.innerHeight - 120)
            card.scrollIntoView({ block: "start" });
    });
}
