/* pages.mjs - what a reader does with a report: by mouse and by keyboard, in all sizes and themes. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import {
    cellOf,
    dataOf,
    folder,
    fragmentOf,
    openFile,
    realReport,
    ROOT,
    sampleReport,
    settled,
    sound,
} from "./drive.mjs";
import { fillPage, PAGE, sampleData } from "./sample.mjs";
import { Skip, test } from "./tap.mjs";

/* What stands there when the page has come to rest. */
async function textOf(page, selector) {
    await settled(page);
    return page.locator(selector).first().innerText();
}
const title = (page) => textOf(page, ".card h2");
const scale = (page) => textOf(page, ".scale .name");

async function byMouse(browser, options) {
    const { page, check } = await openFile(browser, realReport(), options);
    const place = await cellOf(page, 3, 5);
    await page.mouse.click(place.x, place.y);
    assert.match(await title(page), /^L3H5/);
    assert.match(await fragmentOf(page), /sel=L3H5/);
    assert.match(await scale(page), /nats/);
    await page.getByRole("button", { name: "bits", exact: true }).click();
    assert.match(await scale(page), /bits/);
    await page.getByRole("button", { name: "normalized", exact: true }).click();
    assert.match(await scale(page), /Normalized/i);
    await page.getByRole("button", { name: "exclude first token" }).click();
    assert.match(await scale(page), /without the first token/);
    assert.match(await fragmentOf(page), /unit=normalized.*sink=out/);
    await page.getByRole("button", { name: "demo-sparse" }).click();
    await page.getByRole("tab", { name: /Diagnosis/ }).click();
    const chip = page.locator(".diagnosis.found .chips button[data-head]").first();
    const head = await chip.getAttribute("data-head");
    await chip.click();
    assert.ok((await title(page)).startsWith(head), `the diagnosis leads to ${head}`);
    await sound(page);
    await check();
}

/* As a hand gets there. */
async function tabTo(page, locator, key = "Tab") {
    for (let i = 0; i < 120; i++) {
        if (await locator.evaluate((node) => node === document.activeElement)) return;
        await page.keyboard.press(key);
    }
    assert.fail(`${key} does not lead to ${locator}`);
}

async function byKeyboard(browser, options) {
    const { page, check } = await openFile(browser, realReport(), options);
    const press = async (...keys) => {
        for (const key of keys) await page.keyboard.press(key);
    };
    await press("/");
    await press("Home", "PageDown", "ArrowRight", "ArrowUp", "ArrowUp", "Enter");
    assert.match(await title(page), /^L1H2/);
    assert.match(await page.locator("#heads-cell").innerText(), /^L1H2 [\d.]+ nats/);
    await press("ArrowRight", "Shift+Enter");
    assert.match(await title(page), /^2 heads/);
    await press("x");
    assert.match(await fragmentOf(page), /off=L2H2/);
    await press("x");
    await tabTo(page, page.getByRole("button", { name: "bits", exact: true }), "Shift+Tab");
    await press("Enter");
    assert.match(await scale(page), /bits/);
    await tabTo(page, page.getByRole("button", { name: "exclude first token" }));
    await press("Space");
    assert.match(await scale(page), /without the first token/);
    await tabTo(page, page.getByRole("button", { name: "demo-sparse" }), "Shift+Tab");
    await press("Enter");
    await tabTo(page, page.getByRole("tab", { selected: true }));
    for (
        let i = 0;
        i < 8 && !/Diagnosis/.test(await page.locator("[role=tab][aria-selected=true]").innerText());
        i++
    )
        await press("ArrowRight");
    const chip = page.locator(".diagnosis.found .chips button[data-head]").first();
    const head = await chip.getAttribute("data-head");
    await tabTo(page, chip);
    await press("Enter");
    assert.ok((await title(page)).startsWith(head));
    await press("?");
    await settled(page);
    assert.ok(await page.getByRole("dialog", { name: "Keys" }).isVisible());
    await press("Escape");
    await settled(page);
    assert.equal(await page.getByRole("dialog").count(), 0);
    await check();
}

/* The three sentences are those of `show`, and each claim leads to what shows it. */
async function summary(browser, options) {
    const path = realReport();
    const told = execFileSync(
        `${ROOT}/${process.env.HEADLIGHT ?? "build/headlight"}`,
        ["show", `${folder}/demo.profile`, "--json"],
        { cwd: ROOT, encoding: "utf8" },
    );
    const { page, check } = await openFile(browser, path, options);
    const sentences = await page.locator(".summary p").allInnerTexts();
    assert.deepEqual(
        sentences.map((text) => text.replace(/\s+/g, " ")),
        JSON.parse(told).summary.map((one) => one.text),
    );
    const parts = JSON.parse(told).summary.flatMap((one) => one.parts);
    const claim = (pattern) =>
        page
            .locator(".summary")
            .getByText(parts.find((one) => pattern.test(one.shows)).text, { exact: true });
    const range = parts[0].shows.replace(/L/g, "").replace(/^(\d+)$/, "$1-$1");
    await claim(/^L\d+(-L\d+)?$/).click();
    assert.match(await fragmentOf(page), new RegExp(`layers=${range}`));
    await claim(/^L\d+(-L\d+)?$/).click();
    assert.doesNotMatch(await fragmentOf(page), /layers=/);
    const head = parts.find((one) => /^L\d+H\d+$/.test(one.shows)).shows;
    await claim(/^L\d+H\d+$/).focus();
    await page.keyboard.press("Enter");
    assert.ok((await title(page)).startsWith(head), `the summary leads to ${head}`);
    await sound(page);
    await claim(/^checks$/).click();
    assert.match(await fragmentOf(page), /tab=diagnosis/);
    assert.equal(await page.locator("h1").count(), 1);
    await page.getByRole("tab", { name: "Heads" }).click();
    await page.getByRole("button", { name: "demo-sparse" }).click();
    await page.locator(".summary").getByText("entropy-collapse").click();
    assert.match(await fragmentOf(page), /check=entropy-collapse/);
    assert.ok(await page.locator("#check-entropy-collapse").isVisible());
    await check();
}

/* The card: rank, examples that lead to their row, a link that opens it again, pictures of it. */
async function card(browser, options) {
    const { page, check } = await openFile(browser, realReport(), { ...options, fragment: "#sel=L7H3" });
    const data = dataOf(realReport());
    assert.match(
        await textOf(page, ".rank"),
        /^\d+(st|nd|rd|th) most focused of 64 heads; \d+\w\w in pruning order/,
    );
    const example = page.locator(".examples li button").first();
    assert.equal(await page.locator(".examples li button").count(), 3);
    const row = Number(/\((\d+)\) puts/.exec(await example.getAttribute("title"))[1]);
    const at = (7 * 8 + 3) * 3;
    const rows = new Float32Array(Uint8Array.from(Buffer.from(data.tokens.active.row.data, "base64")).buffer);
    assert.equal(row, rows[at]);
    await example.click();
    assert.match(await fragmentOf(page), new RegExp(`token=${row}`));
    for (const kind of ["SVG", "PNG"]) {
        const [file] = await Promise.all([
            page.waitForEvent("download"),
            page.getByRole("button", { name: `L7H3 as ${kind}` }).click(),
        ]);
        const path = `${folder}/L7H3.${kind}`;
        await file.saveAs(path);
        const bytes = readFileSync(path);
        if (kind === "SVG") {
            const text = bytes.toString("utf8");
            assert.match(text, /^<svg [^]*L7H3 · induction head[^]*<image [^]*Most active[^]*<\/svg>$/);
            const root = await page.evaluate(
                (svg) => new DOMParser().parseFromString(svg, "image/svg+xml").documentElement.nodeName,
                text,
            );
            assert.equal(root, "svg");
        } else {
            assert.equal(bytes.subarray(1, 4).toString("latin1"), "PNG");
            assert.equal(bytes.readUInt32BE(16), 1440);
        }
    }
    await page.getByRole("button", { name: "Copy a link to L7H3" }).click();
    const fragment = await page.evaluate(() => location.hash);
    await sound(page);
    await check();
    const again = await openFile(browser, realReport(), { ...options, fragment });
    assert.match(await title(again.page), /^L7H3/);
    await again.check();
}

async function everyTab(browser, options) {
    const { page, check } = await openFile(browser, realReport(), options);
    const tabs = await page.getByRole("tab").count();
    assert.ok(tabs >= 6, `${tabs} tabs`);
    for (let i = 0; i < tabs; i++) {
        await page.getByRole("tab").nth(i).click();
        assert.equal(await page.locator(".nothing").filter({ hasText: "There is nothing" }).count(), 0);
        await sound(page);
    }
    await check();
}

async function tokens(browser) {
    const { page, check } = await openFile(browser, realReport(), { fragment: "#tab=tokens" });
    const spans = page.locator("#text [data-token]");
    assert.match(await page.locator("#text").innerText(), /<\/script>.*<b>/);
    await spans.nth(6).hover();
    assert.match(await page.locator(".row-panel").innerText(), /%/);
    const before = await spans.nth(0).evaluate((node) => node.style.background);
    await spans.nth(9).click();
    assert.match(await fragmentOf(page), /token=9/);
    await page.mouse.move(5, 5);
    const shares = await page.locator(".row-panel .value").allInnerTexts();
    const sum = shares.reduce((total, text) => total + parseFloat(text), 0);
    assert.ok(sum > 30 && sum <= 101, `a row adds up to ${sum}%`);
    assert.ok(before);
    await page.locator("#text").focus();
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("Enter");
    assert.match(await fragmentOf(page), /token=10/);
    await check();
}

async function tables(browser) {
    const { page, check } = await openFile(browser, realReport());
    await page.locator(".first").getByRole("button", { name: "Table" }).click();
    const dialog = page.getByRole("dialog");
    assert.equal(await dialog.locator("tbody tr").count(), 64);
    for (const kind of ["CSV", "JSON"]) {
        const [file] = await Promise.all([
            page.waitForEvent("download"),
            dialog.getByRole("button", { name: kind }).click(),
        ]);
        const path = `${folder}/table.${kind}`;
        await file.saveAs(path);
        const text = readFileSync(path, "utf8");
        if (kind === "CSV") assert.equal(text.trim().split("\n").length, 65);
        else assert.equal(JSON.parse(text).length, 64);
    }
    await sound(page);
    await page.keyboard.press("Escape");
    await page.locator(".first .ask button").first().click();
    assert.match(await page.locator(".definition").innerText(), /entropy/i);
    await check();
}

async function sentView(browser) {
    const { page, check } = await openFile(browser, realReport(), {
        fragment: "#unit=bits&sel=L4H4,L2H1&off=L0H0",
    });
    assert.match(await title(page), /^2 heads/);
    assert.match(await scale(page), /bits/);
    await check();
}

async function emptyPage(browser) {
    const { page, check } = await openFile(browser, PAGE);
    assert.match(await page.locator("h1").innerText(), /has no data/);
    await sound(page);
    await check();
}

async function smallParts(browser) {
    const { page, check } = await openFile(
        browser,
        sampleReport("small", { layers: 2, heads: 3, tokens: 0 }),
        { width: 390 },
    );
    assert.deepEqual(await page.getByRole("tab").allInnerTexts(), ["Heads", "Diagnosis1"]);
    await sound(page);
    await check();
}

/* Everything that is drawn takes the other theme's colors. */
async function otherTheme(browser) {
    const { page, check } = await openFile(browser, realReport());
    const colors = () =>
        page.evaluate(() => [
            getComputedStyle(document.querySelector(".legend i")).backgroundColor,
            getComputedStyle(document.documentElement).getPropertyValue("--series-0"),
        ]);
    const [light] = await colors();
    await page.getByRole("button", { name: "Dark theme" }).click();
    await settled(page);
    const [line, series] = await colors();
    assert.notEqual(line, light);
    assert.equal(line, series);
    await sound(page);
    await check();
}

/* Rows of the lens carry the numbers that layers have everywhere: the embedding, then 0 to L - 1; and
 * the word that a row shows is the one that the report has for that layer. */
async function lensRows(browser) {
    const { lens, profiles } = dataOf(realReport());
    const layers = profiles[0].model.layers;
    const { page, check } = await openFile(browser, realReport(), { fragment: "#tab=lens" });
    const names = await page.locator("#lens [role=rowheader]").allInnerTexts();
    assert.deepEqual(names.reverse(), ["emb", ...Array.from({ length: layers }, (_, i) => String(i))]);
    for (const [row, name] of [
        "embedding",
        "layer 0",
        ...Array(layers - 2),
        `layer ${layers - 1}`,
    ].entries()) {
        if (!name) continue;
        const cell = page.locator(`#lens [role=row][aria-rowindex="${row + 1}"] [aria-colindex="3"]`);
        await cell.hover();
        const said = await textOf(page, ".readout");
        assert.ok(said.startsWith(`${name}, at `), said);
        const word = lens.strings[lens.top[row][2]];
        assert.equal((await cell.innerText()).trim(), word.trim(), `row ${row}`);
    }
    await page.getByRole("button", { name: "Table" }).first().click();
    const [download] = await Promise.all([
        page.waitForEvent("download"),
        page.getByRole("dialog").getByRole("button", { name: "JSON" }).click(),
    ]);
    await download.saveAs(`${folder}/lens.json`);
    const rows = JSON.parse(readFileSync(`${folder}/lens.json`, "utf8"));
    assert.deepEqual(
        [...new Set(rows.map((row) => row.layer))],
        ["embedding", ...Array.from({ length: layers }, (_, i) => i)],
    );
    await check();
}

/* Checks that found something, that found nothing and that did not run stand apart, each in its group,
 * and what is said beside a bar agrees with the side of the threshold on which it ends. */
async function threeGroups(browser, path, profile) {
    const { page, check } = await openFile(browser, path, { fragment: `#tab=diagnosis&profile=${profile}` });
    const { diagnoses, name } = dataOf(path).profiles[profile];
    const groups = { found: [], "not found": [], "not run": [] };
    for (const one of diagnoses) groups[one.verdict].push(one.title);
    assert.ok(
        Object.values(groups).every((group) => group.length),
        JSON.stringify(groups),
    );
    const shown = {
        found: await page.locator(".diagnoses > .diagnosis h2").allInnerTexts(),
        "not found": await page
            .getByRole("region", { name: "Not found" })
            .locator("summary b")
            .allInnerTexts(),
        "not run": await page.getByRole("region", { name: "Not run" }).locator("summary b").allInnerTexts(),
    };
    for (const name of Object.keys(groups)) assert.deepEqual(shown[name].sort(), groups[name].sort(), name);
    for (const [region, word] of [
        ["Not found", "not found"],
        ["Not run", "not run"],
    ])
        for (const badge of await page
            .getByRole("region", { name: region })
            .locator(".badge")
            .allInnerTexts())
            assert.equal(badge, word);
    for (const [region, state] of [
        ["Not found", "not-found"],
        ["Not run", "not-run"],
    ])
        assert.deepEqual(
            await page
                .getByRole("region", { name: region })
                .locator("details")
                .evaluateAll((nodes) => [...new Set(nodes.map((node) => node.className))]),
            [state],
        );
    const observed = diagnoses.filter((one) => one.fired && one.class === "observation").length;
    const alarms = groups.found.length - observed;
    const counted = (n, what) => `${n} ${what}${n > 1 ? "s" : ""}`;
    assert.equal(
        await textOf(page, ".lead"),
        `${alarms ? counted(alarms, "alarm") : "No problems found"}${observed ? ` and ${counted(observed, "observation")}` : ""} ` +
            `in ${name.replace(/\.\w+$/, "")}: ${groups["not found"].length} checks passed, ${groups["not run"].length} not run.?`,
    );
    const badge = page.locator("#tab-diagnosis .badge");
    assert.equal(
        (await badge.count()) ? Number(await badge.innerText()) : 0,
        alarms,
        "the tab counts alarms alone",
    );
    /* Every check says on which side it finds something, and none is found on the other side. */
    for (const one of diagnoses.filter((one) => one.ran && one.value !== null && one.threshold !== null)) {
        const card =
            one.verdict === "found"
                ? page.locator(".diagnosis.found", { hasText: one.title })
                : page.locator("details", { hasText: one.title });
        const line = await card.locator(".against").evaluate((node) => node.textContent);
        assert.match(line, one.below ? /; found below / : /; found above /, one.title);
        const [bar, mark, side] = await card.locator(".meter").evaluate((node) =>
            ["i", "u", "s"].map((name) => {
                const { style } = node.querySelector(name);
                return { width: parseFloat(style.width), left: parseFloat(style.left) };
            }),
        );
        if (one.value !== one.threshold && one.fired)
            assert.equal(bar.width < mark.left, one.below, `${one.title}: ${bar.width}, ${mark.left}`);
        assert.equal(side.left, one.below ? 0 : mark.left, one.title);
    }
    await check();
}

/* A report with checks of all kinds, found below a threshold and above one. */
function checksReport() {
    const data = sampleData({ layers: 2, heads: 3, tokens: 0 });
    const verdicts = { found: [true, true], "not found": [false, true], "not run": [false, false] };
    const made = [
        ["Low and found", "found", true, 0.2, 0.5],
        ["High and found", "found", false, 0.7, 0.5],
        ["Low and good", "not found", false, 0.2, 0.5],
        ["High and good", "not found", true, 0.7, 0.5],
        ["Never asked", "not run", true, null, 0.5],
    ];
    data.profiles[0].diagnoses = made.map(([title, verdict, below, value, threshold]) => {
        const [fired, ran] = verdicts[verdict];
        return { name: title, title, verdict, fired, ran, below, value, threshold, heads: [] };
    });
    const path = `${folder}/checks.html`;
    writeFileSync(path, fillPage(data));
    return path;
}

/* One type, one color: in either model, whatever the numbers of heads, and the C library's. */
async function typeColors(browser) {
    const program = process.env.HEADLIGHT_PALETTE ?? "";
    if (!existsSync(program)) throw new Skip("the C program that prints them is not built");
    const wanted = {};
    for (const line of execFileSync(program, { encoding: "utf8" }).split("\n")) {
        const [word, type, ...parts] = line.split(" ");
        if (word !== "type") continue;
        wanted[type] = [0, 3].map((at) => `rgb(${parts.slice(at, at + 3).join(", ")})`);
    }
    const orders = new Set();
    for (const [at, theme] of ["light", "dark"].entries()) {
        const { page, check } = await openFile(browser, realReport(), { theme });
        for (const model of ["demo", "demo-sparse"]) {
            await page.getByRole("button", { name: model, exact: true }).click();
            await settled(page);
            const seen = await page
                .locator(".types .chips button")
                .evaluateAll((nodes) =>
                    nodes.map((node) => [
                        node.firstElementChild.nextSibling.textContent.trim(),
                        getComputedStyle(node.querySelector(".dot")).backgroundColor,
                    ]),
                );
            const bars = await page
                .locator(".types .stack i")
                .evaluateAll((nodes) => nodes.map((node) => getComputedStyle(node).backgroundColor));
            assert.ok(seen.length >= 3, `${seen}`);
            for (const [type, color] of seen) assert.equal(color, wanted[type][at], `${type} of ${model}`);
            assert.deepEqual(
                bars,
                seen.map(([, color]) => color),
            );
            orders.add(seen.map(([type]) => type).join());
        }
        await check();
    }
    assert.equal(orders.size, 2, "the two models have their types in other orders");
}

export function pages(browser) {
    for (const width of [1280, 390])
        for (const theme of ["light", "dark"]) {
            const options = { width, theme };
            test(`mouse: head, units, sink, a diagnosis to its head (${width} px, ${theme})`, () =>
                byMouse(browser, options));
            test(`the same by keyboard alone (${width} px, ${theme})`, () => byKeyboard(browser, options));
            test(`the summary: each claim leads to its evidence (${width} px, ${theme})`, () =>
                summary(browser, options));
            test(`a head's card: rank, examples, link, SVG and PNG (${width} px, ${theme})`, () =>
                card(browser, options));
            test(`every tab: no fault by axe-core (${width} px, ${theme})`, () => everyTab(browser, options));
        }
    test("tokens: where they look, rows that add up, markup as text", () => tokens(browser));
    test("every number as a table, as CSV and as JSON; definitions", () => tables(browser));
    test("a view that was sent opens as it was", () => sentView(browser));
    test("the theme can be changed, and all follows", () => otherTheme(browser));
    test("rows of the lens are numbered as layers are", () => lensRows(browser));
    test("checks found, not found and not run stand apart", () => threeGroups(browser, realReport(), 1));
    test("... those found below a threshold, too", () => threeGroups(browser, checksReport(), 0));
    test("one type of heads, one color, in every model and theme", () => typeColors(browser));
    test("a page without data says so", () => emptyPage(browser));
    test("a report with little in it shows what there is", () => smallParts(browser));
}
