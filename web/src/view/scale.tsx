/* scale.tsx - the colors of a map and the numbers they stand for: always on screen. */
import { shareOf, tickText, ticksOf, type Axis } from "../base/axis";
import { css, levelsOf, mapColor, type MapName, type Rgb } from "../base/palette";
import { bluesOf, type Theme } from "../data/quantity";
import { Ask } from "./pieces";

const STOPS = 32;

/* Of shares of attention: by their roots, so that small ones are seen. */
const ATTENTION: Axis = { low: 0, high: 1, step: 0.05 };
const ROOT_TICKS = [0, 0.05, 0.25, 0.5, 1];
const attentionShare = (p: number) => Math.sqrt(p);

const gradientOf = (map: MapName) => {
    const levels = levelsOf(map);
    const stops = Array.from({ length: STOPS + 1 }, (_, i) => css(levels[Math.round((i * 255) / STOPS)]));
    return `linear-gradient(90deg, ${stops.join(", ")})`;
};

export function Scale(props: {
    label: string;
    term?: string;
    unit: string;
    axis: Axis;
    map: MapName;
    ends?: [string, string];
    root?: boolean; /* colors go by the root of the share */
    at?: number; /* a value that is pointed at */
}) {
    const { axis } = props;
    const place = (value: number) => {
        const share = Math.min(Math.max(shareOf(axis, value), 0), 1);
        return `${100 * (props.root ? attentionShare(share) : share)}%`;
    };
    const seen = props.at !== undefined && !Number.isNaN(props.at);
    return (
        <div class="scale">
            <span class="name">
                {props.label}
                {props.unit ? ` (${props.unit})` : ""}
                {props.term ? <Ask term={props.term} /> : null}
            </span>
            <div class="ramp">
                {props.ends ? <span class="end">{props.ends[0]}</span> : null}
                <div class="bar" style={{ background: gradientOf(props.map) }}>
                    {seen && <i class="needle" style={{ left: place(props.at!) }} />}
                    {(props.root ? ROOT_TICKS : ticksOf(axis)).map((tick) => (
                        <span key={tick} class="tick" style={{ left: place(tick) }}>
                            {props.root ? tick : tickText(tick, axis.step)}
                        </span>
                    ))}
                </div>
                {props.ends ? <span class="end">{props.ends[1]}</span> : null}
            </div>
        </div>
    );
}

/* Entropy of rows, from focused to diffuse, of heads and of tokens. */
export function EntropyScale(props: {
    label?: string;
    term?: string;
    unit: string;
    axis: Axis;
    at?: number;
}) {
    return (
        <Scale
            {...props}
            label={props.label ?? "Entropy of the row"}
            term={props.term ?? "entropy"}
            map="entropy"
            ends={["focused", "diffuse"]}
        />
    );
}

export function AttentionScale({ label = "Attention", theme }: { label?: string; theme: Theme }) {
    return <Scale label={label} term="pattern" unit="" axis={ATTENTION} map={bluesOf(theme)} root />;
}

/* A token's color on these two scales; null: it has no such number.  Neither has red, which is the
 * color of spikes. */
export const entropyColor = (axis: Axis, value: number | undefined): Rgb | null =>
    value === undefined || Number.isNaN(value) ? null : mapColor("entropy", shareOf(axis, value));

export const attentionColor = (theme: Theme, row: Float32Array, key: number): Rgb | null =>
    key < row.length ? mapColor(bluesOf(theme), attentionShare(row[key])) : null;
