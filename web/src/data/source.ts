/* source.ts - where the page's data come from.
 *
 * A source has everything that views may ask for.  A report has it from the start; a stream
 * of a running model grows, and notifies its listeners. */
import { TokenView } from "./attention";
import type { Definition, RawCompare, RawLens, RawReport, RawSweep } from "./format";
import { Lens } from "./lens";
import { Profile } from "./profile";
import { Trace } from "./trace";

export interface Source {
    readonly kind: "report" | "live";
    readonly version: string;
    readonly title: string;
    readonly definitions: Record<string, Definition>;
    readonly profiles: Profile[];
    readonly tokens: TokenView | null;
    readonly lens: Lens | null;
    readonly trace: Trace | null;
    readonly compare: RawCompare | null;
    readonly sweep: RawSweep | null;
    /* Calls back when anything above changed; returns how to stop that. */
    listen(changed: () => void): () => void;
}

const FORMAT = "headlight.report/1";

export class ReportSource implements Source {
    readonly kind = "report";
    readonly version: string;
    readonly title: string;
    readonly definitions: Record<string, Definition>;
    readonly profiles: Profile[];
    readonly tokens: TokenView | null;
    readonly lens: Lens | null;
    readonly trace: Trace | null;
    readonly compare: RawCompare | null;
    readonly sweep: RawSweep | null;

    constructor(raw: RawReport) {
        if (raw.format !== FORMAT)
            throw new Error(`the data have format ${JSON.stringify(raw.format)}; this page reads ${FORMAT}`);
        this.version = raw.version;
        this.title = raw.title ?? "";
        this.definitions = raw.definitions ?? {};
        this.profiles = (raw.profiles ?? []).map((profile, i) => new Profile(profile, i));
        this.tokens = raw.tokens ? new TokenView(raw.tokens) : null;
        this.lens = raw.lens ? new Lens(raw.lens as RawLens) : null;
        this.trace = raw.trace ? new Trace(raw.trace) : null;
        this.compare = raw.compare ?? null;
        this.sweep = raw.sweep ?? null;
    }

    listen(): () => void {
        return () => undefined;
    }
}

/* What the file holds: null when the page is bare. */
export function readReport(document: Document): ReportSource | null {
    const text = document.getElementById("headlight-data")?.textContent?.trim() || "null";
    const raw = JSON.parse(text) as RawReport | null;
    return raw === null ? null : new ReportSource(raw);
}
