/* token_text.tsx - a text as its tokens, each on its color; one may be pointed at or chosen.
 *
 * Colors are set on the elements directly: a text may have thousands of tokens, and
 * pointing at one recolors those it looks at. */
import { useEffect, useRef, useState } from "preact/hooks";
import { visible } from "../base/format";
import { css, inkOn, type Rgb } from "../base/palette";

interface Props {
    id: string;
    label: string;
    texts: string[];
    kinds: number[];
    token: number; /* chosen; -1: none */
    color: (
        token: number,
        at: number,
    ) => Rgb | null; /* of a token, while `at` is looked from (-1: none is) */
    spoken: (token: number) => string;
    spikes?: Set<number>;
    parts?: number; /* from this token on it is another text; -1: nowhere */
    onToken: (token: number) => void;
    onPoint?: (token: number) => void;
}

export function TokenText(props: Props) {
    const { texts, kinds } = props;
    const holder = useRef<HTMLDivElement>(null);
    const [pointed, setPointed] = useState(-1);
    const [cursor, setCursor] = useState(Math.max(props.token, 0));
    const at = pointed >= 0 ? pointed : props.token;

    useEffect(() => {
        const spans = holder.current!.querySelectorAll<HTMLElement>("[data-token]");
        spans.forEach((span, i) => {
            const color = props.color(i, at);
            span.style.background = color ? css(color) : "";
            span.style.color = color ? inkOn(color) : "";
            span.classList.toggle("from", i === at);
        });
    });

    const point = (token: number) => {
        setPointed(token);
        props.onPoint?.(token);
    };
    const tokenOf = (event: Event) => {
        const of = (event.target as HTMLElement).closest<HTMLElement>("[data-token]")?.dataset.token;
        return of === undefined ? -1 : Number(of);
    };
    const key = (event: KeyboardEvent) => {
        const steps: Record<string, number> = {
            ArrowLeft: -1,
            ArrowRight: 1,
            ArrowUp: -8,
            ArrowDown: 8,
            Home: -texts.length,
            End: texts.length,
        };
        if (event.key === "Enter" || event.key === " ") props.onToken(cursor === props.token ? -1 : cursor);
        else if (event.key in steps) {
            const next = Math.min(Math.max(cursor + steps[event.key], 0), texts.length - 1);
            setCursor(next);
            point(next);
            document.getElementById(`${props.id}-${next}`)?.scrollIntoView({ block: "nearest" });
        } else return;
        event.preventDefault();
    };
    return (
        <div
            ref={holder}
            class="token-text"
            id={props.id}
            role="listbox"
            tabIndex={0}
            aria-label={props.label}
            aria-activedescendant={`${props.id}-${cursor}`}
            onKeyDown={key}
            onBlur={() => point(-1)}
            onPointerOver={(event) => point(tokenOf(event))}
            onPointerLeave={() => point(-1)}
            onClick={(event) => {
                const token = tokenOf(event);
                if (token < 0) return;
                setCursor(token);
                props.onToken(token === props.token ? -1 : token);
            }}>
            {texts.map((text, i) => (
                <Token
                    key={i}
                    {...props}
                    index={i}
                    text={text}
                    begins={i > 0 && kinds[i] === 2 && kinds[i - 1] !== 2}
                />
            ))}
        </div>
    );
}

function Token(props: Props & { index: number; text: string; begins: boolean }) {
    const { index, text } = props;
    const special = props.kinds[index] === 1;
    const [before, shown] = parted(text);
    const classes = [
        special ? "special" : "",
        props.kinds[index] === 3 ? "inserted" : "",
        props.spikes?.has(index) ? "spike" : "",
        index === props.token ? "chosen" : "",
        index === props.parts ? "parts" : "",
    ];
    return (
        <>
            {props.begins ? (
                <i class="generated-begins" role="presentation" title="generated text begins here" />
            ) : null}
            {special ? null : before}
            <span
                id={`${props.id}-${index}`}
                data-token={index}
                role="option"
                aria-selected={index === props.token}
                aria-label={props.spoken(index)}
                class={classes.join(" ").trim()}>
                {special ? text : shown}
            </span>
            {/[\n⏎]/.test(text) ? <br /> : null}
        </>
    );
}

/* The blank before a word stands outside of its color; of blanks alone the signs are shown.
 * Prompts come with signs for blanks already. */
function parted(text: string): [string, string] {
    const plain = visible(text);
    const blanks = /^·*/.exec(plain)![0];
    const rest = plain.slice(blanks.length).replace(/·/g, " ");
    return rest === "" ? ["", plain] : [blanks.replace(/·/g, " "), rest];
}
