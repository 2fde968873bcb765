/* card_parts.tsx - of a head's card: where it ranks, where it is most active, what it is worth, and how
 * to send it. */
import { useEffect, useState } from "preact/hooks";
import { headName, number, percent, signed, visible } from "../base/format";
import { rankOf } from "../data/arrays";
import type { ActiveRow, TokenView } from "../data/attention";
import type { Profile } from "../data/profile";
import { unitFactor, unitName } from "../data/quantity";
import { save } from "../data/tables";
import { LiveSource } from "../live/source";
import { useStore, writeFragment, type State } from "../store";
import { cardPng, cardSvg } from "./card_svg";
import type { HeadAt } from "./head_card";
import { Ask } from "./pieces";

/* "3rd most focused of 64 heads; 41st in pruning order by output norm" */
export function Rank({ profile, head }: { profile: Profile; head: HeadAt }) {
    const entropy = profile.mean("normalized") ?? profile.mean("entropy");
    const focused = entropy && rankOf(entropy, head.index);
    const norm = profile.mean("output_norm");
    const order = norm && rankOf(norm, head.index);
    const parts = [
        focused ? `${ordinal(focused.rank)} most focused of ${focused.n} heads` : "",
        order ? `${ordinal(order.rank)} in pruning order by output norm` : "",
    ].filter(Boolean);
    return parts.length ? <p class="rank">{parts.join("; ")}</p> : null;
}

export function ordinal(n: number): string {
    const ends = ["th", "st", "nd", "rd"];
    const rest = n % 100;
    return `${n}${ends[(rest - 20) % 10] ?? ends[rest] ?? ends[0]}`;
}

/* ----------------------------------------------------------------------- examples */

const AROUND = 4;

/* Where in the text of the report the head puts most on one token. */
export function Examples({ tokens, head }: { tokens: TokenView; head: HeadAt }) {
    const { store, state } = useStore();
    const active = tokens.active(head.layer, head.head);
    if (!active.length) return null;
    return (
        <figure class="examples">
            <figcaption>
                Most active
                <Ask term="active" />
            </figcaption>
            <ol>
                {active.map((one) => (
                    <li key={one.row}>
                        <button
                            type="button"
                            aria-pressed={state.token === one.row}
                            title={spoken(tokens, one)}
                            onClick={() => store.set({ token: state.token === one.row ? -1 : one.row })}>
                            <b>{percent(one.attention)}</b>
                            <Snippet texts={tokens.texts} of={one} />
                        </button>
                    </li>
                ))}
            </ol>
        </figure>
    );
}

const spoken = ({ texts }: TokenView, { row, key, attention }: ActiveRow) =>
    `${visible(texts[row])} (${row}) puts ${percent(attention)} on ${visible(texts[key])} (${key})`;

/* The two tokens with their surroundings; far apart, what is between them is left out. */
function Snippet({ texts, of: { row, key } }: { texts: string[]; of: ActiveRow }) {
    const [first, last] = [Math.min(row, key), Math.max(row, key)];
    const near = last - first <= 3 * AROUND;
    const pieces = near
        ? [[first - AROUND / 2, last + 1]]
        : [
              [first - AROUND / 2, first + 2],
              [last - AROUND, last + 1],
          ];
    const word = (i: number) => (
        <span key={i} class={i === row ? "row" : i === key ? "key" : undefined}>
            {texts[i].replace(/·/g, " ")}
        </span>
    );
    return (
        <span class="snippet">
            {pieces.map(([from, to], at) => (
                <>
                    {at || from > 0 ? "…" : ""}
                    {Array.from({ length: to - Math.max(from, 0) }, (_, i) => word(Math.max(from, 0) + i))}
                </>
            ))}
        </span>
    );
}

/* -------------------------------------------------------------------------- worth */

/* What the text costs without the head; measured by the server, on request. */
export function Worth({ head }: { head: HeadAt }) {
    const { store } = useStore();
    const { source } = store;
    const name = headName(head.layer, head.head);
    const [state, setState] = useState<{ of: string; text: string; busy: boolean }>({
        of: "",
        text: "",
        busy: false,
    });
    const shown = state.of === name ? state : { of: name, text: "", busy: false };
    if (!(source instanceof LiveSource)) return null;
    const ask = async () => {
        setState({ of: name, text: "", busy: true });
        const text = await source.worthOf(name).then(
            ({ tokens, rise, interval }) =>
                `${signed(rise)} nats per token${interval ? ` (95%: ${signed(interval[0])} to ${signed(interval[1])})` : ""}, on ${tokens} tokens`,
            (error: Error) => error.message,
        );
        setState({ of: name, text, busy: false });
    };
    return (
        <p class="worth" aria-live="polite">
            <b>Loss without it</b>{" "}
            {shown.text || (
                <button type="button" disabled={shown.busy || !source.tested} onClick={() => void ask()}>
                    {shown.busy ? "measuring…" : source.tested ? "Measure" : "Generate a text first"}
                </button>
            )}
        </p>
    );
}

/* -------------------------------------------------------------------------- sending */

/* A link to the card, and the card as a picture. */
export function Send({ profile, head }: { profile: Profile; head: HeadAt }) {
    const { store, state } = useStore();
    const [copied, setCopied] = useState(false);
    const name = headName(head.layer, head.head);
    useEffect(() => setCopied(false), [name]);
    const svg = () => cardSvg(pictureOf(profile, head, store.source.tokens, state));
    const link = () => {
        const fragment = writeFragment({ ...state, tab: "heads", selected: [name] });
        history.replaceState(null, "", fragment || location.pathname + location.search);
        void navigator.clipboard?.writeText(location.href).then(
            () => setCopied(true),
            () => undefined,
        );
    };
    return (
        <>
            <button
                type="button"
                class="quiet"
                onClick={link}
                aria-label={copied ? undefined : `Copy a link to ${name}`}>
                {copied ? "Copied" : "Link"}
            </button>
            <button
                type="button"
                class="quiet"
                aria-label={`${name} as SVG`}
                onClick={() => save(`${name}.svg`, new Blob([svg()], { type: "image/svg+xml" }))}>
                SVG
            </button>
            <button
                type="button"
                class="quiet"
                aria-label={`${name} as PNG`}
                onClick={() => void cardPng(svg()).then((blob) => save(`${name}.png`, blob))}>
                PNG
            </button>
        </>
    );
}

function pictureOf(profile: Profile, head: HeadAt, tokens: TokenView | null, state: State) {
    const factor = unitFactor(state.unit);
    const unit = unitName("renyi2", state.unit);
    const value = (key: string, by = 1) => number((profile.mean(key)?.[head.index] ?? NaN) * by);
    const { positions } = profile;
    const histogram = profile.histogram(state.sink);
    const kept = positions
        ? Array.from({ length: positions.n }, (_, i) => i).filter(
              (i) => !Number.isNaN(positions.values[head.index * positions.n + i]),
          )
        : [];
    const type = profile.typeName(head.index);
    return {
        title: `${headName(head.layer, head.head)}${type ? ` · ${type}` : ""}${profile.isUncertain(head.index) ? " (uncertain)" : ""}`,
        of: `${profile.name} · ${profile.rule(head.index)}`,
        facts: [
            { name: "Entropy", value: `${value("entropy", factor)} ${unit}` },
            { name: "Normalized", value: value("normalized") },
            { name: "Without first token", value: `${value("entropy_nosink", factor)} ${unit}` },
            { name: "Peak", value: value("peak") },
            { name: "Self", value: value("self") },
            { name: "Previous token", value: value("previous") },
            { name: "First token (sink)", value: value("first") },
            { name: "Output norm", value: value("output_norm") },
        ],
        curve: positions
            ? {
                  x: kept.map((i) => Math.max(positions.edges[i], 0) + 1),
                  y: kept.map((i) => positions.values[head.index * positions.n + i] * factor),
                  unit,
              }
            : null,
        bins: histogram
            ? histogram.values.subarray(head.index * histogram.n, (head.index + 1) * histogram.n)
            : null,
        map: tokens?.map(head.layer, head.head) ?? null,
        texts: tokens?.texts ?? [],
        active: tokens?.active(head.layer, head.head) ?? [],
        theme: state.theme,
    };
}
