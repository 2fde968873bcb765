/* unit.test.ts - what needs no browser.  Colors are compared with those of the C library. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { axisAround, shareOf, tickText, ticksOf } from "../src/base/axis";
import { number, parseHead, percent, signed, visible } from "../src/base/format";
import { isLight, levelsOf, mapColor, type MapName } from "../src/base/palette";
import { bytesOf, halfToNumber, shapeOf, values } from "../src/data/arrays";
import { rowOf, TokenView } from "../src/data/attention";
import { Profile } from "../src/data/profile";
import { keyOf, quantityOf, unitName } from "../src/data/quantity";
import { ReportSource } from "../src/data/source";
import { toCsv, toJson } from "../src/data/tables";
import { parseFragment, Store, tabsOf, writeFragment } from "../src/store";
import { Trace } from "../src/data/trace";
import { readDraft, keepDraft, FIRST_DRAFT } from "../src/live/draft";
import { pruneCommand, pruneScript } from "../src/live/study";
import { levelsFor } from "../src/view/pyramid";
import { cellAt, cellBox, layOut } from "../src/view/heat_layout";

interface Tap {
    test: (name: string, body: () => void) => void;
    Skip: new (why: string) => Error;
}

const base64 = (bytes: ArrayBufferLike) => Buffer.from(bytes).toString("base64");

function arrays({ test }: Tap) {
    test("base64 gives the bytes it was made of", () => {
        assert.deepEqual([...bytesOf(base64(Uint8Array.of(0, 127, 128, 255).buffer))], [0, 127, 128, 255]);
    });
    test("half precision: ones, fractions, the smallest, infinity, NaN", () => {
        assert.deepEqual([0x3c00, 0xc000, 0x3555, 0x0001, 0x7c00, 0x8000].map(halfToNumber), [
            1,
            -2,
            0.333251953125,
            2 ** -24,
            Infinity,
            -0,
        ]);
        assert.ok(Number.isNaN(halfToNumber(0x7e00)));
    });
    test("packed arrays of every type, little endian", () => {
        const bytes = Uint8Array.of(1, 0, 0, 0, 255, 255, 255, 255).buffer;
        const of = (dtype: string, shape: number[]) => [
            ...values({ dtype, shape, data: base64(bytes) } as never)!,
        ];
        assert.deepEqual(of("i32", [2]), [1, -1]);
        assert.deepEqual(of("u32", [2]), [1, Math.fround(4294967295)]);
        assert.deepEqual(of("u16", [4]), [1, 0, 65535, 65535]);
        assert.deepEqual(of("u8", [8]), [1, 0, 0, 0, 255, 255, 255, 255]);
        assert.deepEqual(
            [...values({ dtype: "f32", shape: [2], data: base64(Float32Array.of(0.5, -3).buffer) })!],
            [0.5, -3],
        );
    });
    test("scale, offset, and the value that means none", () => {
        const array = {
            dtype: "u8" as const,
            shape: [3],
            scale: 0.5,
            offset: -1,
            nan: true,
            data: base64(Uint8Array.of(0, 4, 255).buffer),
        };
        assert.deepEqual([...values(array)!], [-1, 1, NaN]);
    });
    test("an array of another length than its shape says is refused", () => {
        assert.throws(
            () => values({ dtype: "f32", shape: [3], data: base64(new ArrayBuffer(8)) }),
            /8 bytes, not 12/,
        );
    });
    test("plain lists nest, and null is NaN", () => {
        assert.deepEqual(
            [
                ...values([
                    [1, null],
                    [3, 4],
                ])!,
            ],
            [1, NaN, 3, 4],
        );
        assert.deepEqual(
            shapeOf([
                [1, 2, 3],
                [4, 5, 6],
            ]),
            [2, 3],
        );
    });
}

const printed = (program: string) => execFileSync(program, { encoding: "utf8" }).trim().split("\n");

function colors({ test, Skip }: Tap) {
    test("all 256 levels of all maps are those of the C library", () => {
        const program = process.env.HEADLIGHT_PALETTE ?? "";
        if (!existsSync(program)) throw new Skip("the C program that prints them is not built");
        const lines = printed(program).filter((line) => !/^(series|type) /.test(line));
        assert.equal(lines.length, 4 * 256);
        for (const line of lines) {
            const [map, level, ...rgb] = line.split(" ");
            assert.deepEqual(
                [...levelsOf(map as MapName)[Number(level)]],
                rgb.map(Number),
                `${map} ${level}`,
            );
        }
    });
    test("lines have the C library's colors in both themes", () => {
        const program = process.env.HEADLIGHT_PALETTE ?? "";
        if (!existsSync(program)) throw new Skip("the C program that prints them is not built");
        const css = readFileSync(`${process.env.HEADLIGHT_WEB}/src/style/theme.css`, "utf8");
        const inCss = [...css.matchAll(/--series-(\d): rgb\((\d+), (\d+), (\d+)\)/g)].map((found) =>
            found.slice(1).map(Number),
        );
        const lines = printed(program).filter((line) => line.startsWith("series "));
        assert.deepEqual([lines.length, inCss.length], [8, 16]);
        for (const [i, ...parts] of lines.map((line) => line.split(" ").slice(1).map(Number))) {
            assert.deepEqual(inCss[i], [i, ...parts.slice(0, 3)]);
            assert.deepEqual(inCss[8 + i], [i, ...parts.slice(3)]);
        }
    });
    test("shares outside of 0 to 1 are the ends", () => {
        assert.deepEqual(mapColor("entropy", -1), mapColor("entropy", 0));
        assert.deepEqual(mapColor("entropy", 2), mapColor("entropy", 1));
    });
    test("dark is focused, and text on colors can be read", () => {
        assert.equal(isLight(mapColor("entropy", 0)), false);
        assert.equal(isLight(mapColor("entropy", 1)), true);
        assert.equal(isLight(mapColor("difference", 0.5)), true);
    });
}

function numbers({ test }: Tap) {
    test("three significant digits", () => {
        const pairs: [number, string][] = [
            [0.4213, "0.421"],
            [12.345, "12.3"],
            [999.6, "1,000"],
            [1234.5, "1,235"],
            [0, "0"],
            [-2.5, "−2.50"],
            [0.00012345, "0.000123"],
            [1e-9, "1.00e-9"],
            [9.999, "10.0"],
            [NaN, "–"],
            [Infinity, "∞"],
        ];
        for (const [value, text] of pairs) assert.equal(number(value), text);
        assert.equal(signed(0.5), "+0.500");
        assert.equal(percent(0.123), "12.3%");
    });
    test("names of heads", () => {
        assert.deepEqual(parseHead("L12H3"), [12, 3]);
        assert.equal(parseHead("L12"), null);
        assert.equal(parseHead("L1H2; alert(1)"), null);
    });
    test("axes end on ticks, and ticks have the decimals of their step", () => {
        assert.deepEqual(axisAround(0, 4.87), { low: 0, high: 5, step: 1 });
        assert.deepEqual(
            ticksOf(axisAround(0, 1)).map((tick) => tickText(tick, 0.2)),
            ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"],
        );
        assert.equal(tickText(-0.25, 0.25), "−0.25");
        assert.equal(shareOf({ low: 0, high: 5, step: 1 }, 2.5), 0.5);
    });
    test("blanks of tokens can be seen", () => assert.equal(visible(" a\n\t"), "·a⏎⇥"));
}

const profileOf = () =>
    new Profile(
        {
            name: "small",
            means: {
                entropy: [
                    [1, 2],
                    [3, null],
                ],
                normalized: [
                    [0.25, 0.5],
                    [0.75, null],
                ],
                entropy_nosink: [
                    [1.5, 2],
                    [3, null],
                ],
                peak: [
                    [0.5, 0.5],
                    [0.5, null],
                ],
            },
            n_heads: [2, 1],
            types: {
                names: ["sink", "local"],
                index: [
                    [0, 1],
                    [1, 1],
                ],
                colors: { light: ["#111111", "#222222"], dark: ["#eeeeee", "#dddddd"] },
            },
            type_rules: ["first key", "band"],
            diagnoses: [
                { name: "sink-heads", fired: true, ran: true, heads: [{ layer: 0, head: 1, value: 0.5 }] },
                { name: "x", fired: false, ran: true, heads: [[1, 0]] },
                { name: "y", fired: false, ran: false, severity: "none", heads: [[1, 1]] },
                { name: "z", verdict: "present", severity: "serious", heads: [[1, 1]] },
            ],
        } as never,
        0,
    );

function data({ test }: Tap) {
    test("units and sink choose the numbers", () => {
        const profile = profileOf();
        const of = (unit: "nats" | "bits" | "normalized", sink: "in" | "out") =>
            quantityOf([profile], profile, "entropy", unit, sink);
        assert.equal(of("nats", "in")!.values[1], 2);
        assert.equal(of("bits", "in")!.values[1].toFixed(4), (2 / Math.LN2).toFixed(4));
        assert.equal(of("normalized", "in")!.values[1], 0.5);
        assert.equal(of("nats", "out")!.values[0], 1.5);
        assert.equal(of("normalized", "out"), null);
        assert.deepEqual(
            [keyOf("entropy", "normalized", "out"), unitName("varentropy", "bits"), unitName("peak", "bits")],
            ["normalized_nosink", "bits²", ""],
        );
    });
    test("heads that a layer lacks are not there", () => {
        assert.equal(profileOf().has(1, 1), false);
        assert.equal(profileOf().has(1, 0), true);
        assert.equal(profileOf().has(-1, 0), false);
    });
    test("types and their rules; a type has the color that the report gives its name", () => {
        const profile = profileOf();
        assert.deepEqual([profile.types![0], profile.rule(1)], ["sink", "band"]);
        assert.deepEqual(
            (["light", "dark"] as const).flatMap((theme) =>
                ["sink", "local", "other"].map((type) => profile.typeColor(type, theme)),
            ),
            ["#111111", "#222222", "", "#eeeeee", "#dddddd", ""],
        );
    });
    test("checks: found and run as `fired` and `ran` say, heads in either form", () => {
        assert.deepEqual(
            profileOf().diagnoses.map((d) => [d.name, d.fired, d.ran, d.heads[0].layer]),
            [
                ["sink-heads", true, true, 0],
                ["x", false, true, 1],
                ["y", false, false, 1],
                ["z", false, false, 1],
            ],
        );
    });
    test("rows of a triangle and of a square are probabilities", () => {
        const view = new TokenView({
            texts: ["a", "b", "c"],
            maps: {
                heads: [
                    [0, 0],
                    [0, 1],
                ],
                packed: "triangle",
                data: {
                    dtype: "u8",
                    shape: [2, 6],
                    data: base64(Uint8Array.of(255, 255, 0, 0, 51, 255, 255, 0, 255, 255, 0, 0).buffer),
                },
                row_peak: [
                    [1, 0.9, 0.5],
                    [1, 1, 1],
                ],
            },
        });
        assert.deepEqual(
            [...rowOf(view.map(0, 0)!, 2)].map((p) => p.toFixed(3)),
            ["0.000", "0.100", "0.500"],
        );
        assert.deepEqual([...rowOf(view.map(0, 1)!, 1)], [0, 1]);
        assert.equal(view.map(1, 1), null);
    });
    test("levels of a large map keep its largest values", () => {
        const n = 1030;
        const bytes = new Uint8Array((n * (n + 1)) / 2);
        bytes[(1000 * 1001) / 2 + 17] = 200;
        const levels = levelsFor({ n, triangle: true, bytes });
        assert.deepEqual(
            levels.map((level) => level.n),
            [1030, 515, 258],
        );
        assert.equal(levels[1].bytes[500 * 515 + 8], 200);
        assert.equal(levels[2].bytes[250 * 258 + 4], 200);
    });
    test("a format that is not known is refused by name", () => {
        assert.throws(
            () => new ReportSource({ format: "headlight.report/9", version: "9" }),
            /headlight.report\/9/,
        );
    });
    test("CSV quotes what needs it, JSON has names", () => {
        const table = {
            name: "t",
            title: "",
            columns: ["a", "b"],
            rows: [
                ['x,"y"\n', 1],
                [null, true],
            ],
        };
        assert.equal(toCsv(table), 'a,b\n"x,""y""\n",1\n,true\n');
        assert.deepEqual(JSON.parse(toJson(table))[1], { a: null, b: true });
    });
}

function state({ test }: Tap) {
    const source = () =>
        new ReportSource({
            format: "headlight.report/1",
            version: "0",
            profiles: [
                {
                    means: {
                        entropy: [
                            [3, 1],
                            [2, 4],
                        ],
                    },
                },
            ],
        });
    test("the fragment holds the view, and is read back", () => {
        const store = new Store(source(), "#unit=bits&sink=out&sel=L1H0,L0H1&off=L1H1&token=7", "light");
        assert.deepEqual(
            [store.state.unit, store.state.sink, store.state.selected, store.state.off, store.state.token],
            ["bits", "out", ["L1H0", "L0H1"], ["L1H1"], 7],
        );
        assert.deepEqual(
            parseFragment(writeFragment(store.state)),
            parseFragment("#unit=bits&sink=out&sel=L1H0,L0H1&off=L1H1&token=7"),
        );
    });
    test("what is not understood of a fragment is left out", () => {
        const { unit, selected, token, tab } = parseFragment(
            "#unit=kelvin&sel=L1,<b>,L2H3&token=-4&tab=__proto__",
        );
        assert.deepEqual([unit, selected, token, tab], ["nats", ["L2H3"], -1, "heads"]);
    });
    test("the page opens on the most focused head", () =>
        assert.deepEqual(new Store(source(), "", "light").state.selected, ["L0H1"]));
    test("choosing, adding, taking away", () => {
        const store = new Store(source(), "", "light");
        store.select(1, 1);
        store.select(0, 0, true);
        assert.deepEqual(store.state.selected, ["L0H0", "L1H1"]);
        store.select(1, 1, true);
        store.select(9, 9);
        assert.deepEqual(store.state.selected, ["L0H0"]);
    });
    test("tabs are those there are data for", () => assert.deepEqual(tabsOf(source()), ["heads"]));
    test("a cell is found where it is drawn, head 0 below", () => {
        const layout = layOut(600, 12, 8, 500, true);
        for (const [layer, head] of [
            [0, 0],
            [11, 7],
            [5, 3],
        ]) {
            const box = cellBox(layout, layer, head);
            assert.deepEqual(cellAt(layout, box.x + box.width / 2, box.y + box.height / 2), { layer, head });
        }
        assert.ok(cellBox(layout, 0, 0).y > cellBox(layout, 0, 1).y);
        assert.equal(cellAt(layout, 0, 0), null);
    });
}

function live({ test }: Tap) {
    test("a trace's rows stand with their own tokens, the last of which has none", () => {
        const trace = new Trace({
            texts: ["a", "b", "c"],
            entropy: [[[null, 1, 2]], [[null, 3, 4]]],
            layer_entropy: [
                [null, 1, 2],
                [null, 3, 4],
            ],
            layer_normalized: [
                [null, 0.25, 0.5],
                [null, 0.75, 0.25],
            ],
            logprob: [null, -1, -2],
            spike: [null, null, 5],
            spikes: [2],
        } as never);
        assert.deepEqual([...trace.entropies!], [1, 2, NaN, 3, 4, NaN]);
        assert.deepEqual([...trace.layers!], [1, 2, NaN, 3, 4, NaN]);
        assert.deepEqual([...trace.normalized!], [0.5, 0.375, NaN], "the mean over layers");
        assert.deepEqual([...trace.spike!], [NaN, 5, NaN]);
        assert.deepEqual(trace.spikes, [1]);
        assert.deepEqual([...trace.logprob!], [NaN, -1, -2], "predictions are of the token itself");
    });
    test("what was typed is kept and read back; what is not understood is left out", () => {
        const held = new Map<string, string>();
        const storage = () => ({
            getItem: (key: string) => held.get(key) ?? null,
            setItem: (key: string, value: string) => void held.set(key, value),
        });
        assert.deepEqual(readDraft(storage), FIRST_DRAFT);
        keepDraft(storage, { ...FIRST_DRAFT, prompt: "mine", seed: 7 });
        assert.deepEqual(readDraft(storage), { ...FIRST_DRAFT, prompt: "mine", seed: 7 });
        held.set([...held.keys()][0], '{"prompt": 3, "seed": 5, "other": 1}');
        assert.deepEqual(readDraft(storage), { ...FIRST_DRAFT, seed: 5 });
        held.set([...held.keys()][0], "{");
        assert.deepEqual(readDraft(storage), FIRST_DRAFT);
        const denied = () => {
            throw new Error("denied");
        };
        keepDraft(denied, FIRST_DRAFT);
        assert.deepEqual(readDraft(denied), FIRST_DRAFT);
    });
    test("the command to prune names the model, saves, and is one word where a shell would see more", () => {
        const model = (path: string, more = {}) => ({ id: "m", path, ...more }) as never;
        assert.equal(
            pruneCommand(model("/models/demo"), ["L0H1", "L2H3"]),
            "headlight prune /models/demo --heads L0H1,L2H3 --as compact -o m-pruned",
        );
        assert.equal(
            pruneCommand(model("/my models/it's $HOME;rm -rf"), ["L0H1"]),
            "headlight prune '/my models/it'\\''s $HOME;rm -rf' --heads L0H1 --as compact -o m-pruned",
        );
        assert.equal(
            pruneCommand(model("/x/a.gguf", { id: "-a.gguf", format: "gguf" }), ["L0H1"]),
            "headlight prune /x/a.gguf --heads L0H1 --as gguf -o ./-a-pruned.gguf",
        );
    });
    test("the script to prune holds the text, whatever is in it", () => {
        const model = { id: "m", path: "/models/demo", format: "safetensors" } as Parameters<
            typeof pruneScript
        >[0];
        assert.equal(
            pruneScript(model, ["L0H1"], "$HOME `x`\nEND_OF_TEXT"),
            "cat > m-text.txt <<'END_OF_TEXT_'\n$HOME `x`\nEND_OF_TEXT\nEND_OF_TEXT_\n" +
                "headlight prune /models/demo --heads L0H1 --text m-text.txt --as compact -o m-pruned\n",
        );
    });

    test("heads chosen in the Prune tab of a running model are not those of Live", () => {
        const bare = new ReportSource({ format: "headlight.report/1", version: "1" } as never);
        const store = new Store(Object.assign(Object.create(bare), { kind: "live" }), "#tab=sweep", "light");
        store.toggleOff(0, 1);
        store.set({ tab: "live" });
        store.toggleOff(1, 0);
        store.set({ tab: "diagnosis" });
        store.toggleOff(1, 1);
        assert.deepEqual([store.state.cut, store.state.off], [["L0H1"], ["L1H0"]]);
        assert.deepEqual(store.disabled, [], "all heads are measured");
    });
}

export function declare(tap: Tap): void {
    for (const part of [arrays, colors, numbers, data, state, live]) part(tap);
}
