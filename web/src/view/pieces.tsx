/* pieces.tsx - small things that all views are made of. */
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useStore } from "../store";

/* One of a few, side by side. */
export function Segmented<T extends string>(props: {
    label: string;
    options: readonly { value: T; text: string }[];
    value: T;
    onChange: (value: T) => void;
}) {
    return (
        <div class="segmented" role="group" aria-label={props.label}>
            {props.options.map(({ value, text }) => (
                <button
                    key={value}
                    type="button"
                    aria-pressed={value === props.value}
                    onClick={() => props.onChange(value)}>
                    {text}
                </button>
            ))}
        </div>
    );
}

/* "?": opens what a name means, and what it is called elsewhere. */
export function Ask({ term }: { term: string }) {
    const { store } = useStore();
    const definition = store.source.definitions[term];
    const [open, setOpen] = useState(false);
    const button = useRef<HTMLButtonElement>(null);
    useDismiss(open, button, () => setOpen(false));
    if (!definition) return null;
    return (
        <span class="ask">
            <button
                ref={button}
                type="button"
                aria-label={`What is ${definition.name}?`}
                aria-expanded={open}
                onClick={() => setOpen(!open)}>
                ?
            </button>
            {open && (
                <span class="definition" role="note" style={placeBelow(button.current)}>
                    <b>{definition.name}</b>
                    {definition.unit ? <i> {definition.unit}</i> : null}
                    <span>{definition.text}</span>
                </span>
            )}
        </span>
    );
}

/* Under the button, inside the window. */
function placeBelow(button: HTMLElement | null): JSX.CSSProperties {
    if (!button) return {};
    const box = button.getBoundingClientRect();
    const width = Math.min(320, window.innerWidth - 24);
    const left = Math.min(Math.max(12, box.left - 16), window.innerWidth - width - 12);
    const below = box.bottom + 170 < window.innerHeight;
    return {
        width: `${width}px`,
        left: `${left}px`,
        ...(below ? { top: `${box.bottom + 6}px` } : { bottom: `${window.innerHeight - box.top + 6}px` }),
    };
}

/* Escape, scrolling, or a press elsewhere. */
function useDismiss(open: boolean, inside: { current: HTMLElement | null }, close: () => void) {
    useEffect(() => {
        if (!open) return;
        const press = (event: Event) => {
            if (!inside.current?.parentElement?.contains(event.target as Node)) close();
        };
        const key = (event: KeyboardEvent) => {
            if (event.key === "Escape") close();
        };
        document.addEventListener("pointerdown", press);
        document.addEventListener("keydown", key);
        window.addEventListener("scroll", close, { passive: true });
        return () => {
            document.removeEventListener("pointerdown", press);
            document.removeEventListener("keydown", key);
            window.removeEventListener("scroll", close);
        };
    }, [open]);
}

export function Panel(props: {
    title: ComponentChildren;
    term?: string;
    note?: ComponentChildren;
    actions?: ComponentChildren;
    class?: string;
    children: ComponentChildren;
}) {
    return (
        <section class={`panel ${props.class ?? ""}`}>
            <header>
                <h2>
                    {props.title}
                    {props.term ? <Ask term={props.term} /> : null}
                </h2>
                {props.note ? <p class="note">{props.note}</p> : null}
                <div class="actions">{props.actions}</div>
            </header>
            {props.children}
        </section>
    );
}

/* What to see where there is nothing, and how to get something. */
export function Nothing({ title, children }: { title: string; children?: ComponentChildren }) {
    return (
        <div class="nothing">
            <svg width="40" height="24" viewBox="0 0 40 24" aria-hidden="true">
                <path
                    d="M3 12a9 9 0 0 1 9-9v18a9 9 0 0 1-9-9Z"
                    fill="none"
                    stroke="currentColor"
                    stroke-width="1.5"
                />
                <path
                    d="M16 5h20M16 12h14M16 19h20"
                    stroke="currentColor"
                    stroke-width="1.5"
                    stroke-dasharray="2 4"
                />
            </svg>
            <p>
                <b>{title}</b>
            </p>
            {children ? <p>{children}</p> : null}
        </div>
    );
}

/* The width that an element has, as it changes. */
export function useWidth<T extends HTMLElement>(): [{ current: T | null }, number] {
    const element = useRef<T>(null);
    const [width, setWidth] = useState(0);
    useLayoutEffect(() => {
        const node = element.current;
        if (!node) return;
        const measure = () => setWidth(Math.floor(node.clientWidth));
        measure();
        const observer = new ResizeObserver(measure);
        observer.observe(node);
        return () => observer.disconnect();
    }, []);
    return [element, width];
}
