/* head_card.tsx - all about the chosen head; of several heads, their differences. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { headName, number } from "../base/format";
import type { AttentionMap } from "../data/attention";
import { METRICS, unitFactor, unitName, type Metric } from "../data/quantity";
import type { Profile } from "../data/profile";
import { curvesTable } from "../data/tables";
import { LiveSource } from "../live/source";
import { ofFirst, selectedHeads, useStore, type State, type Store } from "../store";
import { AttentionView } from "./attention_map";
import { Examples, Rank, Send, Worth } from "./card_parts";
import { Histogram } from "./histogram";
import { Ask, Nothing, Panel } from "./pieces";
import { Legend, Plot, type Line } from "./plot";
import { TableButton } from "./table";
import { colorsOf } from "./theme";

export interface HeadAt {
    layer: number;
    head: number;
    index: number;
}

const MOST_CURVES = 6;

export function HeadCard({ profile }: { profile: Profile }) {
    const { store, state } = useStore();
    const heads = useMemo(() => selectedHeads(profile, state.selected), [profile, state.selected]);
    if (!heads.length)
        return (
            <Panel title="No head selected" class="card">
                <Nothing title="Click a cell to see what its head does">
                    Arrow keys move over the map, Enter selects; Shift adds another head to compare.
                </Nothing>
            </Panel>
        );
    const first = heads[0];
    const live = store.source.kind === "live";
    const type = profile.typeName(first.index);
    return (
        <Panel
            class="card"
            title={
                <>
                    {heads.length === 1 ? headName(first.layer, first.head) : `${heads.length} heads`}
                    {heads.length === 1 && type ? (
                        <span class="type">
                            {type}
                            {profile.isUncertain(first.index) ? " (uncertain)" : ""}
                            <Ask term="type" />
                        </span>
                    ) : null}
                </>
            }
            actions={
                <>
                    {heads.length === 1 ? <Send profile={profile} head={first} /> : null}
                    {store.offHere ? (
                        <button
                            type="button"
                            class="quiet"
                            aria-pressed={isOff(store, first)}
                            onClick={() => store.toggleOff(first.layer, first.head)}>
                            {isOff(store, first)
                                ? live
                                    ? "Enable"
                                    : "Mark as on"
                                : live
                                  ? "Disable"
                                  : "Mark as off"}
                        </button>
                    ) : null}
                    <TableButton table={() => curvesTable(profile, heads)} />
                </>
            }>
            {heads.length === 1 ? (
                <Facts profile={profile} head={first} state={state} />
            ) : (
                <Several profile={profile} heads={heads} />
            )}
            {heads.length === 1 ? <Worth head={first} /> : null}
            {store.source.tokens && heads.length === 1 ? (
                <Examples tokens={store.source.tokens} head={first} />
            ) : null}
            <Curves profile={profile} heads={heads.slice(0, MOST_CURVES)} />
            <ByTokenType profile={profile} head={first} />
            <Pattern head={first} />
            <Twins profile={profile} head={first} />
        </Panel>
    );
}

const isOff = (store: Store, { layer, head }: HeadAt) => store.disabled.includes(headName(layer, head));

/* ------------------------------------------------------------------------ numbers */

function Facts({ profile, head, state }: { profile: Profile; head: HeadAt; state: State }) {
    const rule = profile.rule(head.index);
    const interval = profile.interval("entropy");
    const factor = unitFactor(state.unit);
    const entropy = (profile.mean("entropy")?.[head.index] ?? NaN) * factor;
    const half = interval ? ((interval.high[head.index] - interval.low[head.index]) / 2) * factor : NaN;
    const unit = unitName("renyi2", state.unit);
    const rest: Metric[] = ["peak", "self", "previous", "first", "output_norm"];
    const small = (label: string, term: string, value: number | undefined, suffix = "") => (
        <div key={label}>
            <dt>
                {label}
                <Ask term={term} />
            </dt>
            <dd>
                {number(value)}
                {suffix ? <small> {suffix}</small> : null}
            </dd>
        </div>
    );
    return (
        <>
            {rule ? <p class="rule">{rule.charAt(0).toUpperCase() + rule.slice(1)}</p> : null}
            <Rank profile={profile} head={head} />
            <dl class="facts">
                <div>
                    <dt>
                        Entropy
                        <Ask term="entropy" />
                    </dt>
                    <dd>
                        {number(entropy)}
                        {Number.isNaN(half) ? null : <small> ± {number(half, 2)}</small>}
                        <small> {unit}</small>
                    </dd>
                </div>
                {small("Normalized", "normalized", profile.mean("normalized")?.[head.index])}
                {small(
                    "Without first token",
                    "entropy_nosink",
                    (profile.mean("entropy_nosink")?.[head.index] ?? NaN) * factor,
                )}
                {small("Effective keys", "support", Math.exp(profile.mean("entropy")?.[head.index] ?? NaN))}
                {small("Rényi-2", "renyi2", (profile.mean("renyi2")?.[head.index] ?? NaN) * factor)}
                {rest
                    .filter((metric) => profile.mean(METRICS[metric].key))
                    .map((metric) =>
                        small(
                            metric === "first" ? "First (sink)" : METRICS[metric].label,
                            metric,
                            profile.mean(METRICS[metric].key)![head.index],
                        ),
                    )}
            </dl>
        </>
    );
}

function Several({ profile, heads }: { profile: Profile; heads: HeadAt[] }) {
    const { store, state } = useStore();
    const colors = colorsOf(state.theme);
    const metrics = (Object.keys(METRICS) as Metric[]).filter((metric) => profile.mean(METRICS[metric].key));
    return (
        <div class="table-holder several" tabIndex={0} role="region" aria-label="The selected heads">
            <table>
                <thead>
                    <tr>
                        <th scope="col">head</th>
                        <th scope="col">type</th>
                        {metrics.map((metric) => (
                            <th key={metric} scope="col">
                                {METRICS[metric].label}
                            </th>
                        ))}
                    </tr>
                </thead>
                <tbody>
                    {heads.map((head, i) => (
                        <tr key={head.index}>
                            <th scope="row">
                                <button
                                    type="button"
                                    class="link"
                                    onClick={() => store.select(head.layer, head.head)}>
                                    <i
                                        class="dot"
                                        style={{
                                            background: i < MOST_CURVES ? colors.series[i] : "transparent",
                                        }}
                                    />
                                    {headName(head.layer, head.head)}
                                </button>
                            </th>
                            <td>{profile.types?.[head.index] ?? "–"}</td>
                            {metrics.map((metric) => (
                                <td key={metric} class="number">
                                    {number(
                                        profile.mean(METRICS[metric].key)![head.index] *
                                            unitFactor(state.unit, METRICS[metric].power),
                                    )}
                                </td>
                            ))}
                        </tr>
                    ))}
                </tbody>
            </table>
        </div>
    );
}

/* ------------------------------------------------------------------------- curves */

function Curves({ profile, heads }: { profile: Profile; heads: HeadAt[] }) {
    const { state } = useStore();
    const { positions } = profile;
    const histogram = profile.histogram(state.sink);
    const colors = colorsOf(state.theme);
    const factor = unitFactor(state.unit);
    const key = heads.map((head) => head.index).join();
    const [x, lines] = useMemo<[number[], Line[]]>(() => {
        if (!positions) return [[], []];
        const { n, edges, values } = positions;
        const filled = Array.from({ length: n }, (_, i) => i).filter((i) =>
            heads.some((head) => !Number.isNaN(values[head.index * n + i])),
        );
        return [
            filled.map((i) => Math.max(edges[i], 0) + 1),
            heads.map((head, i) => ({
                label: headName(head.layer, head.head),
                color: colors.series[i],
                values: filled.map((at) => values[head.index * n + at] * factor),
            })),
        ];
    }, [positions, key, factor, state.theme]);
    return (
        <div class="curves">
            {histogram && (
                <figure>
                    <figcaption>
                        Rows by normalized entropy{state.sink === "out" ? ", first token excluded" : ""}
                        <Ask term="histogram" />
                    </figcaption>
                    <Histogram curves={histogram} heads={heads} theme={state.theme} />
                </figure>
            )}
            {positions && (
                <figure>
                    <figcaption>
                        Entropy by position
                        <Ask term="positions" />
                    </figcaption>
                    <Plot
                        label={`Entropy by position of ${heads.map((head) => headName(head.layer, head.head)).join(", ")}`}
                        x={x}
                        lines={lines}
                        height={150}
                        theme={state.theme}
                        xLabel="position"
                        yLabel={unitName("renyi2", state.unit)}
                        logX
                        yFrom={0}
                        yTo={flatTop(lines)}
                    />
                </figure>
            )}
            {heads.length > 1 && <Legend lines={lines} />}
        </div>
    );
}

/* A head that always looks at one token has a curve of rounding errors: it is drawn as flat. */
function flatTop(lines: Line[]): number | undefined {
    const top = Math.max(
        ...lines.flatMap(({ values }) => Array.from(values)).filter((value) => value > 0),
        0,
    );
    return top < 0.05 ? 0.1 : undefined;
}

/* Where a text has kinds of tokens, the entropy on each. */
function ByTokenType({ profile, head }: { profile: Profile; head: HeadAt }) {
    const { state } = useStore();
    const all = profile.tokenTypes;
    const factor = unitFactor(state.unit);
    const rows = (all?.names ?? [])
        .map((name, i) => ({ name, value: all!.values[head.index * all!.names.length + i] * factor }))
        .filter(({ value }) => !Number.isNaN(value));
    if (rows.length < 2) return null;
    const top = Math.max(...rows.map(({ value }) => value), 1e-6);
    return (
        <figure class="pattern">
            <figcaption>
                Entropy by kind of token
                <Ask term="entropy" />
            </figcaption>
            <ol class="bars">
                {rows.map(({ name, value }) => (
                    <li key={name}>
                        <span>{name}</span>
                        <span class="meter" aria-hidden="true">
                            <i style={{ width: `${(100 * value) / top}%` }} />
                        </span>
                        <span class="value">{number(value)}</span>
                    </li>
                ))}
            </ol>
        </figure>
    );
}

/* ------------------------------------------------------------------ map and twins */

/* The map of the report, or the one that the server makes. */
function usePatternMap({ layer, head, index }: HeadAt): AttentionMap | null {
    const { source } = useStore().store;
    const kept = useMemo(() => source.tokens?.map(layer, head) ?? null, [source.tokens, index]);
    const [fetched, setFetched] = useState<{ index: number; map: AttentionMap | null }>({
        index: -1,
        map: null,
    });
    useEffect(() => {
        let asked = true;
        if (!kept && source instanceof LiveSource)
            source.firstMap(layer, head).then(
                (map) => asked && setFetched({ index, map }),
                () => undefined,
            );
        return () => void (asked = false);
    }, [kept, index]);
    return kept ?? (fetched.index === index ? fetched.map : null);
}

function Pattern({ head }: { head: HeadAt }) {
    const { store, state } = useStore();
    const { tokens } = store.source;
    const map = usePatternMap(head);
    if (!tokens) return null;
    return (
        <figure class="pattern">
            <figcaption>
                Pattern{ofFirst(store)} on {map && map.n < tokens.n ? "the first" : "the prompt of"}{" "}
                {map?.n ?? tokens.n} tokens
                <Ask term="pattern" />
            </figcaption>
            {map ? (
                <AttentionView
                    id="card-map"
                    label={`Attention of ${headName(head.layer, head.head)}`}
                    map={map}
                    texts={tokens.texts}
                    theme={state.theme}
                    token={state.token}
                    mostSize={300}
                    onToken={(token) => store.set({ token })}
                />
            ) : (
                <Nothing
                    title={
                        store.source.kind === "live"
                            ? "Computing the attention map…"
                            : "This report has no attention map of this head"
                    }>
                    {store.source.kind === "live"
                        ? ""
                        : `headlight report … --heads ${headName(head.layer, head.head)} adds it.`}
                </Nothing>
            )}
        </figure>
    );
}

function Twins({ profile, head }: { profile: Profile; head: HeadAt }) {
    const { store } = useStore();
    const twins = profile.twins(head.index);
    if (!twins.length) return null;
    return (
        <div class="twins">
            <h3>
                Most similar heads
                <Ask term="twins" />
            </h3>
            <ul>
                {twins.map((twin) => (
                    <li key={`${twin.layer} ${twin.head}`}>
                        <button type="button" onClick={() => store.select(twin.layer, twin.head)}>
                            <b>{headName(twin.layer, twin.head)}</b>
                            <span class="meter" aria-hidden="true">
                                <i style={{ width: `${100 * twin.similarity}%` }} />
                            </span>
                            {number(twin.similarity)}
                            <small>{profile.types?.[profile.at(twin.layer, twin.head)] ?? ""}</small>
                        </button>
                    </li>
                ))}
            </ul>
        </div>
    );
}
