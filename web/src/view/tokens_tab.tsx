/* tokens_tab.tsx - one prompt: how sharply each token looks, and where. */
import { useMemo, useState } from "preact/hooks";
import { axisAround } from "../base/axis";
import { headName, number, percent, visible } from "../base/format";
import { extent } from "../data/arrays";
import { rowOf, type AttentionMap, type TokenView } from "../data/attention";
import { unitFactor, unitName } from "../data/quantity";
import type { Profile } from "../data/profile";
import { tokensTable } from "../data/tables";
import { headsAt, tokenMeans } from "../data/trace";
import { ofFirst, selectedHeads, useStore } from "../store";
import { AttentionView } from "./attention_map";
import { Nothing, Panel } from "./pieces";
import { ProfileHeatmap } from "./profile_heatmap";
import { attentionColor, AttentionScale, entropyColor, EntropyScale } from "./scale";
import { TableButton } from "./table";
import { TokenText } from "./token_text";

export function TokensTab({ tokens, profile }: { tokens: TokenView; profile: Profile | null }) {
    const { store, state } = useStore();
    const [pointed, setPointed] = useState(-1);
    const heads = useMemo(
        () => (profile ? selectedHeads(profile, state.selected) : []),
        [profile, state.selected],
    );
    const factor = unitFactor(state.unit);
    const rows = tokens.entropies;
    const means = useMemo(
        () =>
            (rows
                ? tokenMeans(
                      rows,
                      tokens.n,
                      heads.map((head) => head.index),
                  )
                : tokens.meanEntropies
            )?.map((value) => value * factor) ?? null,
        [rows, heads, factor],
    );
    const top = useMemo(() => extent(rows ?? tokens.meanEntropies ?? [1])[1] * factor, [rows, factor]);
    const axis = axisAround(0, Math.max(top, 1e-6));
    const first = heads[0];
    const own = useMemo(() => (first ? tokens.map(first.layer, first.head) : null), [tokens, first?.index]);
    const map = own ?? tokens.mean;
    const at = pointed >= 0 ? pointed : state.token;
    const row = useMemo(() => (map && at >= 0 && at < tokens.n ? rowOf(map, at) : null), [map, at]);
    const name = own && first ? headName(first.layer, first.head) : "the mean of all heads";
    const unit = unitName("renyi2", state.unit);

    const color = (token: number, from: number) => {
        if (from >= 0 && map) {
            const looks = from === at && row ? row : rowOf(map, from);
            return attentionColor(state.theme, looks, token);
        }
        return entropyColor(axis, means?.[token]);
    };
    return (
        <div class="columns">
            <div class="column">
                <Panel
                    title={`Text${ofFirst(store)}`}
                    note={
                        at >= 0
                            ? `where “${visible(tokens.texts[at] ?? "")}” looks, by ${name}`
                            : `${means ? `entropy of ${rows && heads.length ? state.selected.slice(0, 3).join(", ") : "all heads"}; ` : ""}point at a token to see where it looks`
                    }
                    actions={<TableButton table={() => tokensTable(tokens, means, row)} />}>
                    <TokenText
                        id="text"
                        label="The tokens of the prompt"
                        texts={tokens.texts}
                        kinds={tokens.kinds}
                        token={state.token}
                        color={color}
                        spoken={(token) =>
                            `${visible(tokens.texts[token])}, ${means ? number(means[token]) : "–"} ${unit}`
                        }
                        onToken={(token) => store.set({ token })}
                        onPoint={setPointed}
                    />
                    {at >= 0 ? (
                        <AttentionScale theme={state.theme} />
                    ) : !means ? null : (
                        <EntropyScale unit={unit} axis={axis} />
                    )}
                </Panel>
                <RowPanel tokens={tokens} row={row} at={at} name={name} />
                {rows && profile && (
                    <SnapshotPanel
                        profile={profile}
                        rows={rows}
                        n={tokens.n}
                        at={at}
                        texts={tokens.texts}
                        unit={unit}
                    />
                )}
            </div>
            <div class="column">
                <MapPanel
                    tokens={tokens}
                    map={map}
                    name={name}
                    wanted={first && !own ? headName(first.layer, first.head) : ""}
                    at={at}
                />
            </div>
        </div>
    );
}

/* The largest parts of one row. */
function RowPanel({
    tokens,
    row,
    at,
    name,
}: {
    tokens: TokenView;
    row: Float32Array | null;
    at: number;
    name: string;
}) {
    const MOST = 8;
    const { store } = useStore();
    const order = row
        ? Array.from(row.keys())
              .sort((a, b) => row[b] - row[a])
              .slice(0, MOST)
        : [];
    return (
        <Panel
            title={
                row ? (
                    <>
                        Row of <q>{visible(tokens.texts[at])}</q>
                    </>
                ) : (
                    "Row"
                )
            }
            note={row ? `the ${order.length} keys that ${name} gives most` : ""}
            class="row-panel">
            {row ? (
                <ol class="bars">
                    {order.map((key) => (
                        <li key={key}>
                            <button type="button" class="link" onClick={() => store.set({ token: key })}>
                                {visible(tokens.texts[key])}
                                <small> {key}</small>
                            </button>
                            <span class="meter" aria-hidden="true">
                                <i style={{ width: `${100 * row[key]}%` }} />
                            </span>
                            <span class="value">{percent(row[key])}</span>
                        </li>
                    ))}
                </ol>
            ) : (
                <Nothing title="Point at a token, or click to select it">
                    Its row shows how much attention it gives to each token.
                </Nothing>
            )}
        </Panel>
    );
}

function MapPanel({
    tokens,
    map,
    name,
    wanted,
    at,
}: {
    tokens: TokenView;
    map: AttentionMap | null;
    name: string;
    wanted: string;
    at: number;
}) {
    const { store, state } = useStore();
    return (
        <Panel
            title="Pattern"
            term="pattern"
            note={!map ? "" : wanted ? `${wanted} has no map here: ${name}` : name}>
            {tokens.heads.length > 0 && <HeadMenu tokens={tokens} />}
            {map ? (
                <AttentionView
                    id="map"
                    label={`Attention of ${name}`}
                    map={map}
                    texts={tokens.texts}
                    theme={state.theme}
                    token={at}
                    onToken={(token) => store.set({ token })}
                />
            ) : (
                <Nothing
                    title={
                        tokens.heads.length
                            ? `There is no map of ${wanted} here`
                            : "This report has no attention maps"
                    }>
                    {tokens.heads.length ? "Choose one of the heads above." : ""}
                </Nothing>
            )}
        </Panel>
    );
}

/* The heads whose maps are in the report. */
function HeadMenu({ tokens }: { tokens: TokenView }) {
    const { store, state } = useStore();
    const names = tokens.heads.map(([layer, head]) => headName(layer, head));
    const now = names.includes(state.selected[0]) ? state.selected[0] : "";
    return (
        <label class="menu">
            head{" "}
            <select
                value={now}
                onChange={(event) =>
                    store.set({ selected: event.currentTarget.value ? [event.currentTarget.value] : [] })
                }>
                <option value="">{tokens.mean ? "mean of all" : "none"}</option>
                {names.map((name) => (
                    <option key={name} value={name}>
                        {name}
                    </option>
                ))}
            </select>
        </label>
    );
}

/* All heads at the token that is looked at, or on average. */
export function SnapshotPanel({
    profile,
    rows,
    n,
    at,
    texts,
    unit,
    most,
    term,
}: {
    profile: Profile;
    rows: Float32Array; /* (layers, heads, n) */
    n: number;
    at: number;
    texts: string[];
    unit: string;
    most?: number; /* the scale's end, where it is known beforehand */
    term?: string; /* what the rows are */
}) {
    const { state } = useStore();
    const factor = unit === "" ? 1 : unitFactor(state.unit);
    const axis = useMemo(
        () => axisAround(0, Math.max((most ?? extent(rows)[1]) * factor, 1e-6)),
        [most ?? rows, factor],
    );
    const values = useMemo(() => {
        if (n === 0) return new Float32Array(profile.nLayers * profile.nHeads).fill(NaN);
        if (at >= 0 && at < n) return headsAt(rows, n, at).map((value) => value * factor);
        return Float32Array.from(
            { length: rows.length / n },
            (_, head) => averageOf(rows.subarray(head * n, (head + 1) * n)) * factor,
        );
    }, [rows, n, at, factor]);
    const off = useMemo(
        () => new Set(selectedHeads(profile, state.off).map((head) => head.index)),
        [profile, state.off],
    );
    return (
        <Panel
            class="second"
            title={
                at >= 0 ? (
                    <>
                        Heads in the row of <q>{visible(texts[at])}</q>
                    </>
                ) : (
                    "Heads on this text"
                )
            }
            note={
                at < 0
                    ? "mean over all rows"
                    : hasRow(values)
                      ? ""
                      : "no row: no token was generated after it"
            }>
            <ProfileHeatmap
                id="snapshot"
                label="Entropy of every head on this text"
                profile={profile}
                values={values}
                axis={axis}
                map="entropy"
                unit={unit}
                off={off}
                marginals={false}
                mostHeight={320}
                describe={(index) => profile.typeName(index)}
            />
            <EntropyScale term={term} unit={unit} axis={axis} />
        </Panel>
    );
}

const hasRow = (values: Float32Array) => values.some((value) => !Number.isNaN(value));

function averageOf(list: Float32Array): number {
    let sum = 0;
    let n = 0;
    for (const value of list) if (!Number.isNaN(value)) ((sum += value), n++);
    return n ? sum / n : NaN;
}
