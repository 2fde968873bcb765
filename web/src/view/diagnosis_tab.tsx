/* diagnosis_tab.tsx - what may be wrong, why that is said, and the heads that show it. */
import { useEffect, useState } from "preact/hooks";
import { headName, number, plural } from "../base/format";
import type { Cause } from "../data/format";
import type { Diagnosis, Profile } from "../data/profile";
import { useStore } from "../store";
import { Ask, Nothing } from "./pieces";

const FIRST = 16;

type Go = (heads: string[]) => void;

/* Chosen heads are gone to on the map of the Heads tab, or as `onHeads` has it. */
export function DiagnosisTab({
    profile,
    onHeads,
}: {
    profile: Profile;
    onHeads?: (names: string[]) => void;
}) {
    const { store, state } = useStore();
    useEffect(() => showCheck(state.check), [state.check, profile]);
    const go =
        onHeads ??
        ((names) => {
            store.set({ tab: "heads", selected: names, type: "" });
            window.scrollTo({ top: 0 });
        });
    const all = profile.diagnoses;
    const rank = (one: Diagnosis) => (isObservation(one) ? 2 : one.severity === "serious" ? 0 : 1);
    const found = all.filter((one) => one.fired).sort((a, b) => rank(a) - rank(b));
    const alarms = found.filter((one) => !isObservation(one)).length;
    const passed = all.filter((one) => !one.fired && one.ran);
    const notRun = all.filter((one) => !one.fired && !one.ran);
    if (!all.length) return <Nothing title="This profile has no diagnoses" />;
    return (
        <>
            <p class="lead">
                <b>{alarms ? plural(alarms, "alarm") : "No problems found"}</b>
                {found.length > alarms ? ` and ${plural(found.length - alarms, "observation")}` : ""} in{" "}
                {profile.name}: {plural(passed.length, "check")} passed
                {notRun.length ? `, ${notRun.length} not run` : ""}.
                <Ask term="diagnosis" />
            </p>
            <div class="diagnoses">
                {found.map((one) => (
                    <Card key={one.name} diagnosis={one} go={go} />
                ))}
            </div>
            <Checks title="Not found" checks={passed} go={go} />
            <Checks title="Not run" checks={notRun} go={go} />
        </>
    );
}

/* Brings a check into view, and opens its line. */
function showCheck(name: string): void {
    const found = name ? document.getElementById(`check-${name}`) : null;
    if (found instanceof HTMLDetailsElement) found.open = true;
    found?.scrollIntoView({ block: "center" });
}

/* Checks that found nothing, or had nothing to look at: a line each, which opens. */
function Checks({ title, checks, go }: { title: string; checks: Diagnosis[]; go: Go }) {
    if (!checks.length) return null;
    return (
        <section class="panel asked" aria-label={title}>
            <h2>{title}</h2>
            {checks.map((one) => (
                <details key={one.name} id={`check-${one.name}`} class={stateOf(one)}>
                    <summary>
                        <b>{titleOf(one)}</b>
                        <span>{findingOf(one)}</span>
                        <span class="badge">{title.toLowerCase()}</span>
                    </summary>
                    <Card diagnosis={one} go={go} bare />
                </details>
            ))}
        </section>
    );
}

const titleOf = (d: Diagnosis) =>
    (d.title && d.title !== d.name ? d.title : d.name.replace(/-/g, " ")).replace(/^./, (c) =>
        c.toUpperCase(),
    );
const isObservation = (d: Diagnosis) => d.class === "observation";
const stateOf = (d: Diagnosis) => (d.fired ? "found" : d.ran ? "not-found" : "not-run");
const kindOf = (d: Diagnosis) => /literature|heuristic/.exec(`${d.kind ?? ""} ${d.evidence ?? ""}`)?.[0];
const findingOf = (d: Diagnosis) => d.finding ?? (d.evidence && d.evidence !== kindOf(d) ? d.evidence : "");

function Card({ diagnosis: d, go, bare }: { diagnosis: Diagnosis; go: Go; bare?: boolean }) {
    const state = stateOf(d);
    const kind = kindOf(d);
    const finding = findingOf(d);
    return (
        <article
            id={bare ? undefined : `check-${d.name}`}
            class={`panel diagnosis ${state} ${d.severity === "serious" ? "serious" : ""} ${isObservation(d) ? "observation" : ""}`}>
            {bare ? null : (
                <header>
                    <h2>{titleOf(d)}</h2>
                    <span class="badge">
                        {d.fired && isObservation(d) ? "observed" : state.replace("-", " ")}
                    </span>
                </header>
            )}
            {finding ? <p class="finding">{finding}</p> : null}
            {d.rule ? (
                <p class="rule">
                    <b>Rule</b> {d.rule}
                    {kind ? (
                        <em>
                            {" "}
                            ({kind}
                            {d.source ? `: ${d.source}` : ""})
                        </em>
                    ) : null}
                </p>
            ) : null}
            <Against diagnosis={d} />
            {d.usual && d.ran ? (
                <p>
                    <b>Usual</b> {d.usual}
                </p>
            ) : null}
            <Heads diagnosis={d} go={go} />
            {d.layers?.length ? (
                <p>
                    <b>Layers</b> {d.layers.join(", ")}
                </p>
            ) : null}
            {d.against ? (
                <p>
                    <b>Counter-evidence</b> {d.against}
                </p>
            ) : null}
            <Causes causes={d.causes ?? []} />
            {d.mitigation && d.fired ? (
                <p>
                    <b>What to do</b> {d.mitigation}
                </p>
            ) : null}
            {d.measure ? (
                <p>
                    <b>{d.ran ? "To confirm it" : "To run it"}</b> <code>{d.measure}</code>
                </p>
            ) : null}
        </article>
    );
}

/* Hypotheses on an alarm: what speaks for and against each, and what to run to tell them apart. */
function Causes({ causes }: { causes: Cause[] }) {
    if (!causes.length) return null;
    return (
        <details class="causes">
            <summary>Possible causes ({causes.length})</summary>
            <dl>
                {causes.map((cause) => (
                    <div key={cause.name}>
                        <dt>{cause.name}</dt>
                        {cause.for ? <dd>For it: {cause.for}</dd> : null}
                        {cause.against ? <dd>Against it: {cause.against}</dd> : null}
                        <dd>To find out: {cause.command}</dd>
                    </div>
                ))}
            </dl>
        </details>
    );
}

/* Value and threshold on one line, with the side of the threshold on which the check finds something. */
function Against({ diagnosis: { value, threshold, below, unit, errors } }: { diagnosis: Diagnosis }) {
    if (value === null || value === undefined || threshold === null || threshold === undefined) return null;
    const top = Math.max(Math.abs(value), Math.abs(threshold), 1e-9) * 1.2;
    const share = (x: number) => `${(100 * Math.abs(x)) / top}%`;
    return (
        <div class="against">
            <span class="meter" aria-hidden="true">
                <s
                    style={
                        below ? { left: 0, width: share(threshold) } : { left: share(threshold), right: 0 }
                    }
                />
                <i style={{ width: share(value) }} />
                <u style={{ left: share(threshold) }} />
            </span>
            <span>
                value <b>{number(value)}</b>
                {unit ? ` ${unit}` : ""}; found {below ? "below" : "above"} {number(threshold)}
                {errors === null || errors === undefined ? "" : `; ${number(errors)} times its uncertainty`}
            </span>
        </div>
    );
}

function Heads({ diagnosis, go }: { diagnosis: Diagnosis; go: Go }) {
    const [all, setAll] = useState(false);
    const { heads } = diagnosis;
    if (!heads.length) return null;
    const shown = all ? heads : heads.slice(0, FIRST);
    return (
        <div class="chips">
            {shown.map(({ layer, head, value }) => (
                <button
                    key={headName(layer, head)}
                    type="button"
                    data-head={headName(layer, head)}
                    onClick={() => go([headName(layer, head)])}>
                    {headName(layer, head)}
                    {value === undefined || value === null ? null : <small> {number(value)}</small>}
                </button>
            ))}
            {heads.length > shown.length && (
                <button type="button" class="quiet" onClick={() => setAll(true)}>
                    {heads.length - shown.length} more
                </button>
            )}
            {heads.length > 1 && (
                <button
                    type="button"
                    class="quiet"
                    onClick={() => go(heads.map(({ layer, head }) => headName(layer, head)))}>
                    Show all on the map →
                </button>
            )}
        </div>
    );
}
