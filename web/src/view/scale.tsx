/* scale.tsx - the colours of a map and the numbers they stand for: always on screen. */
import { shareOf, tickText, ticksOf, type Axis } from "../base/axis";
import { css, levelsOf, type MapName } from "../base/palette";
import { Ask } from "./pieces";

const STOPS = 32;

export const gradientOf = (map: MapName) => {
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
    at?: number; /* a value that is pointed at */
}) {
    const { axis } = props;
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
                    {seen && (
                        <i
                            class="needle"
                            style={{ left: `${100 * Math.min(Math.max(shareOf(axis, props.at!), 0), 1)}%` }}
                        />
                    )}
                    {ticksOf(axis).map((tick) => (
                        <span key={tick} class="tick" style={{ left: `${100 * shareOf(axis, tick)}%` }}>
                            {tickText(tick, axis.step)}
                        </span>
                    ))}
                </div>
                {props.ends ? <span class="end">{props.ends[1]}</span> : null}
            </div>
        </div>
    );
}
