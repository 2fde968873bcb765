/* lens_tab.tsx - what the model would say after each layer: the word in the cell, its doubt as color.
 * Only the columns that are in sight are in the document. */
import { useEffect, useRef, useState } from "preact/hooks";
import { axisAround, shareOf } from "../base/axis";
import { number, visible } from "../base/format";
import { css, inkOn, mapColor } from "../base/palette";
import { extent } from "../data/arrays";
import type { Lens } from "../data/lens";
import { unitFactor, unitName } from "../data/quantity";
import { lensTable } from "../data/tables";
import { ofFirst, useStore } from "../store";
import { Panel, useWidth } from "./pieces";
import { Scale } from "./scale";
import { TableButton } from "./table";

const CELL = 74;
const HEIGHT = 25;
const LEFT = 44;

export function LensTab({ lens }: { lens: Lens }) {
    const { store, state } = useStore();
    const texts = lens.texts.length ? lens.texts : (store.source.tokens?.texts ?? []);
    const [holder, width] = useWidth<HTMLDivElement>();
    const [left, setLeft] = useState(0);
    const [cursor, setCursor] = useState({
        row: lens.nRows - 1,
        token: Math.max(Math.min(state.token - lens.first, lens.nTokens - 1), 0),
    });
    const [pointed, setPointed] = useState<{ row: number; token: number } | null>(null);
    const scroll = useRef(0);
    const unit = unitName("renyi2", state.unit);
    const factor = unitFactor(state.unit);
    const axis = axisAround(0, Math.max(extent(lens.entropy)[1] * factor, 1e-6));
    const value = (row: number, token: number) => lens.entropy[row * lens.nTokens + token] * factor;
    const at = pointed ?? cursor;
    const from = Math.max(0, Math.floor(left / CELL) - 2);
    const to = Math.min(lens.nTokens, Math.ceil((left + Math.max(width, 300)) / CELL) + 2);

    const key = (event: KeyboardEvent) => {
        const steps: Record<string, [number, number]> = {
            ArrowLeft: [0, -1],
            ArrowRight: [0, 1],
            ArrowUp: [1, 0],
            ArrowDown: [-1, 0],
        };
        const step = steps[event.key];
        if (event.key === "Enter") store.set({ token: cursor.token + lens.first });
        if (!step) return;
        event.preventDefault();
        setPointed(null);
        const next = {
            row: clamp(cursor.row + step[0], lens.nRows),
            token: clamp(cursor.token + step[1], lens.nTokens),
        };
        setCursor(next);
        const node = holder.current!;
        if (next.token * CELL < node.scrollLeft) node.scrollLeft = next.token * CELL;
        if ((next.token + 1) * CELL + LEFT > node.scrollLeft + node.clientWidth)
            node.scrollLeft = (next.token + 1) * CELL + LEFT - node.clientWidth;
    };
    /* The chosen token is in sight from the start. */
    useEffect(() => {
        if (holder.current) holder.current.scrollLeft = Math.max(0, (cursor.token - 2) * CELL);
    }, []);
    const rowsDown = Array.from({ length: lens.nRows }, (_, i) => lens.nRows - 1 - i);
    return (
        <Panel
            title={`Lens${ofFirst(store)}`}
            term="lens"
            class="wide"
            note={`rows are layers, the last on top, emb is the embedding; the bottom row is the input token${lens.hits ? "; framed: the token that follows in the text" : ""}`}
            actions={<TableButton table={() => lensTable(lens, texts)} />}>
            <div
                ref={holder}
                class="lens"
                role="grid"
                id="lens"
                tabIndex={0}
                aria-label="What each layer would say"
                aria-rowcount={lens.nRows}
                aria-colcount={lens.nTokens}
                aria-activedescendant="lens-cell"
                onKeyDown={key}
                onScroll={(event) => {
                    scroll.current = event.currentTarget.scrollLeft;
                    setLeft(scroll.current);
                }}
                onPointerLeave={() => setPointed(null)}>
                <div
                    class="lens-sheet"
                    role="presentation"
                    style={{
                        width: `${LEFT + lens.nTokens * CELL}px`,
                        height: `${(lens.nRows + 1) * HEIGHT}px`,
                    }}>
                    {rowsDown.map((row, down) => (
                        <div key={row} role="row" aria-rowindex={row + 1}>
                            <span
                                role="rowheader"
                                class="lens-layer"
                                style={{
                                    top: `${down * HEIGHT}px`,
                                    height: `${HEIGHT}px`,
                                    transform: `translateX(${left}px)`,
                                }}>
                                {row === 0 ? "emb" : row - 1}
                            </span>
                            {Array.from({ length: Math.max(to - from, 0) }, (_, i) => from + i).map(
                                (token) => {
                                    const color = mapColor("difference", shareOf(axis, value(row, token)));
                                    const here = row === at.row && token === at.token;
                                    return (
                                        <span
                                            key={token}
                                            role="gridcell"
                                            id={
                                                row === cursor.row && token === cursor.token
                                                    ? "lens-cell"
                                                    : undefined
                                            }
                                            class={`${here ? "here" : ""} ${lens.hits?.[row * lens.nTokens + token] ? "hit" : ""}`.trim()}
                                            aria-colindex={token + 1}
                                            style={{
                                                left: `${LEFT + token * CELL}px`,
                                                top: `${down * HEIGHT}px`,
                                                background: css(color),
                                                color: inkOn(color),
                                            }}
                                            onPointerEnter={() => setPointed({ row, token })}
                                            onClick={() => {
                                                setCursor({ row, token });
                                                store.set({ token: token + lens.first });
                                            }}>
                                            {visible(lens.word(row, token))}
                                        </span>
                                    );
                                },
                            )}
                        </div>
                    ))}
                    <div role="row">
                        {Array.from({ length: Math.max(to - from, 0) }, (_, i) => from + i).map((token) => (
                            <span
                                key={token}
                                role="gridcell"
                                class={`lens-token ${token + lens.first === state.token ? "chosen" : ""}`}
                                style={{ left: `${LEFT + token * CELL}px`, top: `${lens.nRows * HEIGHT}px` }}>
                                {visible(texts[token] ?? "")}
                            </span>
                        ))}
                    </div>
                </div>
            </div>
            <p class="readout" aria-live="polite">
                {at.row === 0 ? "embedding" : `layer ${at.row - 1}`}, at “{visible(texts[at.token] ?? "")}” (
                {at.token}): says “{visible(lens.word(at.row, at.token))}”, {number(value(at.row, at.token))}{" "}
                {unit}
            </p>
            <Scale
                label="Entropy over the vocabulary"
                term="lens"
                unit={unit}
                axis={axis}
                map="difference"
                ends={["sure", "undecided"]}
                at={value(at.row, at.token)}
            />
        </Panel>
    );
}

const clamp = (at: number, n: number) => Math.min(Math.max(at, 0), n - 1);
