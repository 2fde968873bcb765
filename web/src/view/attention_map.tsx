/* attention_map.tsx - where every token looks: rows down, keys across; drag to move, wheel to zoom.
 *
 * Keyboard: arrows move over the cells, + and - zoom, 0 shows all, Enter chooses the row's token. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { number, visible } from "../base/format";
import { pixelsOf } from "../base/palette";
import { rowOf, type AttentionMap } from "../data/attention";
import { bluesOf, type Theme } from "../data/quantity";
import { useWidth } from "./pieces";
import { colorsOf, sized, type Colors } from "./theme";
import { TileSet, type View } from "./tiles";

interface Props {
    id: string;
    label: string;
    map: AttentionMap;
    texts: string[];
    theme: Theme;
    token: number; /* its row is marked; -1: none */
    mostSize?: number;
    onToken?: (token: number) => void;
}

interface Place {
    row: number;
    key: number;
}

export function AttentionView(props: Props) {
    const { map, theme } = props;
    const [holder, width] = useWidth<HTMLDivElement>();
    const canvas = useRef<HTMLCanvasElement>(null);
    const side = useRef<HTMLCanvasElement>(null);
    const above = useRef<HTMLCanvasElement>(null);
    const labels = width >= LEAST_LABELED;
    const size = Math.max(Math.min(width - (labels ? LABELS.side : 0), props.mostSize ?? 460), 80);
    const whole = size / map.n;
    const view = useRef<View>({ x: 0, y: 0, scale: whole });
    const [place, setPlace] = useState<Place | null>(null);
    const [, redraw] = useState(0);
    const frame = useRef(0);
    const paint = useRef<() => void>(() => undefined);

    const tiles = useMemo(() => new TileSet(map, pixelsOf(bluesOf(theme)), () => later()), [map, theme]);
    useEffect(() => () => tiles.close(), [tiles]);

    /* At most one drawing a frame. */
    function later() {
        if (frame.current) return;
        frame.current = requestAnimationFrame(() => {
            frame.current = 0;
            paint.current();
        });
    }
    paint.current = () => {
        if (!canvas.current) return;
        const pen = sized(canvas.current, size, size);
        pen.clearRect(0, 0, size, size);
        tiles.draw(pen, view.current, size, size, window.devicePixelRatio || 1);
        drawMarks(pen, view.current, size, map.n, props.token, place, colorsOf(theme));
        if (side.current && above.current)
            drawLabels(side.current, above.current, view.current, size, props, place);
    };
    useEffect(() => {
        view.current = { x: 0, y: 0, scale: whole };
    }, [map, whole]);
    useEffect(() => paint.current());

    const show = (next: View) => {
        view.current = inside(next, size, map.n);
        later();
    };
    const zoom = (factor: number, x: number, y: number) => {
        const { current: from } = view;
        const scale = Math.min(Math.max(from.scale * factor, whole), 48);
        show({ scale, x: from.x + x / from.scale - x / scale, y: from.y + y / from.scale - y / scale });
    };
    const placeAt = (event: PointerEvent | MouseEvent): Place | null => {
        const box = canvas.current!.getBoundingClientRect();
        const key = Math.floor(view.current.x + (event.clientX - box.left) / view.current.scale);
        const row = Math.floor(view.current.y + (event.clientY - box.top) / view.current.scale);
        return row >= 0 && row < map.n && key >= 0 && key < map.n && (!map.triangle || key <= row)
            ? { row, key }
            : null;
    };

    /* The wheel is listened to by hand: it must be able to keep the page from scrolling. */
    useEffect(() => {
        const node = canvas.current;
        const turn = (event: WheelEvent) => {
            if (
                !event.ctrlKey &&
                !event.metaKey &&
                whole >= 1 &&
                view.current.scale === whole &&
                event.deltaY > 0
            )
                return;
            event.preventDefault();
            zoom(Math.exp(-event.deltaY * 0.002), event.offsetX, event.offsetY);
        };
        node?.addEventListener("wheel", turn, { passive: false });
        return () => node?.removeEventListener("wheel", turn);
    });

    const drag = useRef<{ x: number; y: number; from: View; moved: boolean } | null>(null);
    const down = (event: PointerEvent) => {
        canvas.current!.setPointerCapture(event.pointerId);
        drag.current = { x: event.clientX, y: event.clientY, from: view.current, moved: false };
    };
    const moveTo = (event: PointerEvent) => {
        const held = drag.current;
        if (!held) return setPlace(placeAt(event));
        const across = event.clientX - held.x;
        const along = event.clientY - held.y;
        if (Math.abs(across) + Math.abs(along) > 3) held.moved = true;
        if (held.moved)
            show({
                ...view.current,
                x: held.from.x - across / held.from.scale,
                y: held.from.y - along / held.from.scale,
            });
    };
    const up = (event: PointerEvent) => {
        const at = placeAt(event);
        if (drag.current && !drag.current.moved && at) props.onToken?.(at.row);
        drag.current = null;
    };
    const key = (event: KeyboardEvent) => {
        const at = place ?? { row: Math.max(props.token, 0), key: 0 };
        const steps: Record<string, [number, number]> = {
            ArrowLeft: [0, -1],
            ArrowRight: [0, 1],
            ArrowUp: [-1, 0],
            ArrowDown: [1, 0],
        };
        const step = steps[event.key];
        if (step) {
            const row = Math.min(Math.max(at.row + step[0], 0), map.n - 1);
            const last = map.triangle ? row : map.n - 1;
            const next = { row, key: Math.min(Math.max(at.key + step[1], 0), last) };
            setPlace(next);
            show(following(view.current, next, size));
        } else if (event.key === "+" || event.key === "=") zoom(1.5, size / 2, size / 2);
        else if (event.key === "-") zoom(1 / 1.5, size / 2, size / 2);
        else if (event.key === "0") show({ x: 0, y: 0, scale: whole });
        else if (event.key === "Enter") props.onToken?.(at.row);
        else return;
        event.preventDefault();
        redraw((n) => n + 1);
    };

    return (
        <div ref={holder} class="attention-map">
            {labels ? (
                <canvas
                    ref={above}
                    class="labels"
                    aria-hidden="true"
                    style={{ marginLeft: `${LABELS.side}px` }}
                />
            ) : null}
            <div class="labeled">
                {labels ? <canvas ref={side} class="labels" aria-hidden="true" /> : null}
                <div
                    class="grid"
                    role="grid"
                    id={props.id}
                    tabIndex={0}
                    aria-label={`${props.label}. Drag to move, wheel or + and - to zoom.`}
                    aria-rowcount={map.n}
                    aria-colcount={map.n}
                    aria-activedescendant={`${props.id}-cell`}
                    onKeyDown={key}>
                    <canvas
                        ref={canvas}
                        aria-hidden="true"
                        onPointerDown={down}
                        onPointerMove={moveTo}
                        onPointerUp={up}
                        onPointerCancel={() => (drag.current = null)}
                        onPointerLeave={() => setPlace(null)}
                        onDblClick={() => show({ x: 0, y: 0, scale: whole })}
                    />
                    <div class="unseen" role="row">
                        <div role="gridcell" id={`${props.id}-cell`}>
                            {place ? spoken(props, place) : "no cell"}
                        </div>
                    </div>
                </div>
            </div>
            <p class="readout" aria-hidden="true">
                {place
                    ? spoken(props, place)
                    : map.n > 200
                      ? "drag to move, wheel to zoom, double-click to reset"
                      : "point at a cell to see its value"}
            </p>
        </div>
    );
}

/* ------------------------------------------------------------------------- labels */

const LABELS = { side: 68, above: 56 };
const LEAST_LABELED = 240;
const LABEL_ROOM = 11; /* pixels for a line of text */

/* The words of the tokens that are in sight, as many as there is room for; that of the place is always
 * among them.  Rows look, columns are looked at. */
function drawLabels(
    side: HTMLCanvasElement,
    above: HTMLCanvasElement,
    view: View,
    size: number,
    { map, texts, theme, token }: Props,
    place: Place | null,
) {
    const colors = colorsOf(theme);
    const pens = [sized(side, LABELS.side, size), sized(above, size, LABELS.above)];
    const every = Math.max(1, Math.ceil(LABEL_ROOM / view.scale));
    pens.forEach((pen, across) => {
        const from = across ? view.x : view.y;
        const pointed = place ? (across ? place.key : place.row) : across ? -1 : token;
        pen.clearRect(0, 0, across ? size : LABELS.side, across ? LABELS.above : size);
        pen.font = `10.5px ${colors.font}`;
        pen.textAlign = across ? "left" : "right";
        pen.textBaseline = "middle";
        for (let i = Math.max(0, Math.floor(from)); i < map.n && (i - from) * view.scale < size; i++) {
            const near = pointed >= 0 && Math.abs(i - pointed) < every;
            if (i !== pointed && (i % every || near)) continue;
            const at = (i + 0.5 - from) * view.scale;
            if (at < 0) continue;
            pen.fillStyle = i === pointed ? colors.text : colors.muted;
            pen.save();
            pen.translate(across ? at : LABELS.side - 5, across ? LABELS.above - 5 : at);
            if (across) pen.rotate(-Math.PI / 3);
            pen.fillText(visible(texts[i] ?? "").slice(0, 10), 0, 0);
            pen.restore();
        }
    });
}

function spoken({ map, texts }: Props, { row, key }: Place): string {
    const name = (i: number) => `${visible(texts[i] ?? "")} (${i})`;
    return `${name(row)} → ${name(key)}: ${number(rowOf(map, row)[key])}`;
}

const inside = (view: View, size: number, n: number): View => {
    const most = Math.max(n - size / view.scale, 0);
    return {
        scale: view.scale,
        x: Math.min(Math.max(view.x, 0), most),
        y: Math.min(Math.max(view.y, 0), most),
    };
};

/* So that the cell stays in sight. */
const following = (view: View, { row, key }: Place, size: number): View => {
    const seen = size / view.scale;
    const keep = (from: number, at: number) => (at < from ? at : at + 1 > from + seen ? at + 1 - seen : from);
    return { scale: view.scale, x: keep(view.x, key), y: keep(view.y, row) };
};

function drawMarks(
    pen: CanvasRenderingContext2D,
    view: View,
    size: number,
    n: number,
    token: number,
    place: Place | null,
    colors: Colors,
) {
    const across = (key: number) => (key - view.x) * view.scale;
    const down = (row: number) => (row - view.y) * view.scale;
    const side = Math.max(view.scale, 1);
    pen.strokeStyle = colors.grid;
    pen.lineWidth = 1;
    pen.strokeRect(0.5, 0.5, size - 1, size - 1);
    if (token >= 0 && token < n) {
        pen.strokeStyle = colors.mark;
        pen.lineWidth = 1.5;
        pen.strokeRect(across(0), down(token) - 0.5, Math.min(across(token + 1) - across(0), size), side + 1);
    }
    if (!place) return;
    pen.strokeStyle = colors.text;
    pen.lineWidth = 1;
    pen.strokeRect(across(place.key) - 0.5, down(place.row) - 0.5, side + 1, side + 1);
    pen.globalAlpha = 0.25;
    pen.fillStyle = colors.accent;
    pen.fillRect(across(0), down(place.row), across(place.key) - across(0), side);
    pen.fillRect(across(place.key), down(place.row) + side, side, size);
    pen.globalAlpha = 1;
}
