/* histogram.tsx - how often a head's rows have which normalized entropy. */
import type { Curves } from "../data/profile";
import type { Theme } from "../data/quantity";
import { headName } from "../base/format";
import type { HeadAt } from "./head_card";
import { useWidth } from "./pieces";
import { colorsOf } from "./theme";

const HEIGHT = 150;
const BELOW = 36;
const LEFT = 6;

export function Histogram({ curves, heads, theme }: { curves: Curves; heads: HeadAt[]; theme: Theme }) {
    const colors = colorsOf(theme);
    const [holder, measured] = useWidth<HTMLDivElement>();
    const width = Math.max(measured, 120);
    const names = heads.map((head) => headName(head.layer, head.head)).join(", ");
    const across = (share: number) => LEFT + share * (width - 2 * LEFT);
    const bottom = HEIGHT - BELOW;
    return (
        <div ref={holder}>
            <svg
                class="histogram"
                width={width}
                height={HEIGHT}
                role="img"
                aria-label={`Histogram of ${names}`}>
                {heads.map((head, i) => (
                    <path
                        key={head.index}
                        d={outline(curves, head.index, across, bottom)}
                        fill={colors.series[i]}
                        fill-opacity={heads.length > 1 ? 0.22 : 0.5}
                        stroke={colors.series[i]}
                        stroke-width="1.25"
                    />
                ))}
                <line x1={LEFT} x2={width - LEFT} y1={bottom + 0.5} y2={bottom + 0.5} stroke={colors.axis} />
                {[0, 0.25, 0.5, 0.75, 1].map((tick) => (
                    <text
                        key={tick}
                        x={across(tick)}
                        y={bottom + 14}
                        fill={colors.muted}
                        font-size="11"
                        text-anchor={tick === 0 ? "start" : tick === 1 ? "end" : "middle"}>
                        {tick}
                    </text>
                ))}
                <text x={LEFT} y={HEIGHT - 4} fill={colors.muted} font-size="11">
                    focused
                </text>
                <text x={width - LEFT} y={HEIGHT - 4} fill={colors.muted} font-size="11" text-anchor="end">
                    diffuse
                </text>
            </svg>
        </div>
    );
}

/* Steps over the bins, as high as the fullest of them allows. */
function outline(
    { values, n }: Curves,
    index: number,
    across: (share: number) => number,
    bottom: number,
): string {
    const counts = values.subarray(index * n, (index + 1) * n);
    const most = counts.reduce((top, value) => (value > top ? value : top), 0) || 1;
    let path = `M${across(0).toFixed(1)} ${bottom}`;
    counts.forEach((value, i) => {
        const y = (bottom - ((Number.isNaN(value) ? 0 : value) / most) * (bottom - 6)).toFixed(1);
        path += `V${y}H${across((i + 1) / n).toFixed(1)}`;
    });
    return `${path}V${bottom}Z`;
}
