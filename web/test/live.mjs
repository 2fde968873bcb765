/* live.mjs - the live page, against `headlight serve` with the demo model. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { Transform } from "node:stream";
import { fileURLToPath } from "node:url";
import { cellOf, findBrowser, folder, fragmentOf, open, openBrowser, settled, sound } from "./drive.mjs";
import { run, test } from "./tap.mjs";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

/* A server, once it says where it is. */
async function serve(port = 0, more = []) {
    const program = join(ROOT, process.env.HEADLIGHT ?? "build/headlight");
    const child = spawn(
        program,
        ["serve", "models/demo", "--port", String(port), "--threads", "1", ...more],
        { cwd: ROOT, stdio: ["ignore", "pipe", "ignore"] },
    );
    const url = await new Promise((done, fail) => {
        let said = "";
        child.stdout.on("data", (part) => {
            said += part;
            const found = /http:\/\/\S+/.exec(said);
            if (found) done(found[0]);
        });
        child.on("exit", (code) => fail(new Error(`the server ended with ${code}: ${said}`)));
    });
    const end = (signal = "SIGTERM") =>
        new Promise((done) => {
            child.removeAllListeners("exit");
            child.on("exit", done);
            child.kill(signal);
        });
    return { url, end };
}

/* A line to a server that is slow, so that a text takes its time, and that can be cut. */
async function slowLine(target) {
    const sockets = new Set();
    let isCut = false;
    const line = createServer((near) => {
        if (isCut) return near.destroy();
        const far = connect(Number(new URL(target).port), "127.0.0.1");
        const slow = new Transform({
            highWaterMark: 2048,
            transform: (part, _, done) => setTimeout(done, part.length / 300, null, part),
        });
        for (const socket of [near, far])
            sockets.add(
                socket
                    .on("error", () => undefined)
                    .on("close", () => {
                        near.destroy();
                        far.destroy();
                    }),
            );
        near.pipe(far).pipe(slow).pipe(near);
    });
    await new Promise((done) => line.listen(0, "127.0.0.1", done));
    const drop = () => sockets.forEach((socket) => socket.destroy());
    return {
        url: `http://127.0.0.1:${line.address().port}/`,
        cut: () => {
            isCut = true;
            drop();
        },
        mend: () => (isCut = false),
        end: () => {
            drop();
            line.close();
        },
    };
}

const TALE =
    "He said that it was so, and that it had been so for as long as he could say. She went to the door and " +
    "looked at the garden, where nobody had been that day. He said that it was so, and she went to the door.";

const note = (page) => page.locator(".live-text .note").innerText();
const textOf = async (page) => (await page.locator("#live-text").innerText()).replace(/\s+/g, " ");
const rests = (page) =>
    page.waitForFunction(
        () => /^\d+ tokens?/.test(document.querySelector(".live-text .note")?.innerText ?? ""),
        null,
        { timeout: 60000 },
    );

async function start(browser, url, options = {}) {
    const origin = new URL(url).origin;
    const opened = await open(browser, url, { ...options, allowed: new RegExp(`^(blob|data):|^${origin}/`) });
    await opened.page.waitForSelector("#prompt");
    return opened;
}

async function generate(page, prompt, tokens) {
    await page.fill("#prompt", prompt);
    await page.getByLabel("tokens").fill(String(tokens));
    await page.getByRole("button", { name: /^Generate/ }).click();
}

async function wholeRound(browser, url, options) {
    const { page, check } = await start(browser, url, options);
    await generate(page, "He said that", 24);
    await rests(page);
    const first = await textOf(page);
    assert.match(first, /^He said that/);
    assert.ok((await page.locator("#live-text [data-token]").count()) >= 27);
    await sound(page);
    const place = await cellOf(page, 3, 2, { id: "snapshot" });
    await page.mouse.click(place.x, place.y);
    await page.waitForSelector("#live-map canvas");
    assert.equal(await page.locator(".card h2").innerText(), "L3H2");
    await page.locator("#live-text [data-token]").nth(6).hover();
    assert.match(await page.locator(".live-text .scale .name").innerText(), /Where L3H2 looks/);
    for (const head of ["L0H0", "L0H1", "L0H2", "L1H1", "L2H2"]) {
        const [, layer, row] = /L(\d)H(\d)/.exec(head);
        const at = await cellOf(page, Number(layer), Number(row), { id: "snapshot" });
        await page.mouse.click(at.x, at.y);
        await settled(page);
        await page.getByRole("button", { name: "Switch off" }).click();
    }
    assert.match(await fragmentOf(page), /off=L0H0,L0H1,L0H2,L1H1,L2H2/);
    await page.getByRole("button", { name: "Generate again" }).click();
    await page.waitForFunction(
        () => /^24 tokens; off/.test(document.querySelector(".live-text .note")?.innerText ?? ""),
        null,
        { timeout: 60000 },
    );
    assert.notEqual(await textOf(page), first, "without five heads the text is another");
    await page.getByRole("tab", { name: "Side by side" }).click();
    assert.match(await page.locator(".lead").innerText(), /part at token \d+/);
    assert.ok((await page.locator("#side-before .parts").count()) === 1);
    await sound(page);
    await page.getByRole("tab", { name: "Lens" }).click();
    await page.waitForSelector("#lens [role=gridcell]");
    await sound(page);
    await page.getByRole("tab", { name: "Live" }).click();
    const [file] = await Promise.all([
        page.waitForEvent("download"),
        page.getByRole("button", { name: "Trace" }).click(),
    ]);
    await file.saveAs(join(folder, "trace.jsonl"));
    const lines = readFileSync(join(folder, "trace.jsonl"), "utf8").trim().split("\n").map(JSON.parse);
    assert.equal(lines.filter((line) => line.kind === "generated").length, 24);
    assert.equal(lines[5].rows.entropy.length, 8);
    await check();
}

/* A text of one's own is measured; a finding leads to its heads, on the map below. */
async function diagnosing(browser, url, options) {
    const { page, check } = await start(browser, url, options);
    await page.getByRole("tab", { name: "Diagnosis" }).click();
    const measure = page.getByRole("button", { name: "Measure" });
    assert.ok(await measure.isDisabled(), "there is no text yet");
    await sound(page);
    await page.fill("#study-text", TALE);
    await measure.click();
    await page.waitForSelector(".diagnosis .chips [data-head]", { timeout: 60000 });
    assert.match(await page.locator(".lead").innerText(), /finding/);
    assert.match(await page.locator("header .of").innerText(), /\d+ tokens/);
    assert.equal(Number(await page.locator("#tab-diagnosis .badge").innerText()) > 0, true);
    await sound(page);
    const chip = page.locator(".diagnosis .chips [data-head]").first();
    const head = await chip.getAttribute("data-head");
    await chip.click();
    assert.match(await fragmentOf(page), new RegExp(`sel=${head}`));
    assert.match(await page.locator(".card h2").innerText(), new RegExp(head));
    const seen = await page.evaluate(() => document.querySelector("#heads").getBoundingClientRect().top);
    assert.ok(seen > -200 && seen < 860, `the map is in sight, at ${seen}`);
    await page.fill("#study-text", " ");
    assert.ok(await measure.isDisabled(), "blanks are no text");
    await check();
}

/* Heads are ranked, some switched off, tried on the text and side by side; by hand one is taken back. */
async function pruning(browser, url, options) {
    const { page, check } = await start(browser, url, options);
    await generate(page, "He said that", 24);
    await rests(page);
    await page.getByRole("tab", { name: "Prune" }).click();
    await sound(page);
    await page.getByLabel("Ranker").selectOption("fair");
    await page.getByRole("button", { name: "Rank heads" }).click();
    await page.waitForSelector("#order canvas", { timeout: 60000 });
    const offs = async () => (/off=([LH\d,]+)/.exec(await fragmentOf(page))?.[1] ?? "").split(",");
    assert.equal((await offs()).length, 13, "a fifth of 64");
    await page.locator(".ratio input").focus();
    await page.keyboard.press("ArrowRight");
    assert.equal((await offs()).length, 16, "a quarter of 64");
    await page.locator(".chips button").first().click();
    const off = await offs();
    assert.equal(off.length, 15);
    assert.equal(
        await page.locator("#prune-command").innerText(),
        `headlight prune demo --heads ${off.join(",")} -o demo-pruned`,
    );
    await page.getByRole("button", { name: "Try it" }).click();
    await page.waitForSelector(".trial", { timeout: 60000 });
    await page.waitForFunction(() => document.querySelectorAll("#side-now [data-token]").length >= 27, null, {
        timeout: 60000,
    });
    const cell = (row, column) =>
        page.locator(`.trial tbody tr:nth-child(${row}) td:nth-child(${column})`).innerText();
    assert.notEqual((await cell(1, 2)).split(" ")[0], (await cell(1, 3)).split(" ")[0]);
    assert.match(await cell(3, 3), /^\d[\d.]*%$/);
    assert.match(await page.locator("#side-before").innerText(), /He said that/);
    await settled(page);
    await sound(page);
    await page.getByRole("tab", { name: "Live" }).click();
    assert.match(await note(page), /^24 tokens; off: /);
    await check();
}

/* The sink out of every unit: normalised rows lie between 0 and 1 and are other ones. */
async function withoutSink(browser, url) {
    const { page, check } = await start(browser, url);
    await generate(page, "Once upon a time", 16);
    await rests(page);
    const means = async () => {
        await settled(page);
        await page.locator(".live-text").getByRole("button", { name: "Table" }).click();
        const cells = await page.locator("dialog tbody tr td:nth-child(4)").allInnerTexts();
        await page.getByRole("button", { name: "Close" }).click();
        return cells.map(Number);
    };
    await page.getByRole("button", { name: "normalised" }).click();
    const into = await means();
    await page.getByRole("button", { name: "sink out" }).click();
    const out = await means();
    const known = out.filter((value) => !Number.isNaN(value));
    assert.ok(known.length >= 16 && known.every((value) => value >= 0 && value <= 1.000001), `${out}`);
    assert.notDeepEqual(out.slice(4), into.slice(4));
    await page.locator(".live-text .ask button").first().click();
    assert.match(await page.locator(".definition").innerText(), /without the sink/i);
    await check();
}

/* A server that says no is quoted, and the page goes on. */
async function refusedStudy(browser, url) {
    const { page, check } = await start(browser, url);
    await page.getByRole("tab", { name: "Diagnosis" }).click();
    await page.route("**/v1/measure", (route) =>
        route.fulfill({
            status: 429,
            contentType: "application/json",
            body: JSON.stringify({ error: { message: "8 views and measurements wait already" } }),
        }),
    );
    await page.fill("#study-text", TALE);
    await page.getByRole("button", { name: "Measure" }).click();
    await page.waitForSelector("[role=alert]");
    assert.match(await page.locator("[role=alert]").innerText(), /wait already/);
    await sound(page);
    await check(/429/);
}

async function byKeyboard(browser, url) {
    const { page, check } = await start(browser, url);
    await page.keyboard.press("/");
    assert.equal(await page.evaluate(() => document.activeElement.id), "prompt");
    await page.keyboard.press("Control+A");
    await page.keyboard.type("The old man");
    await page.keyboard.press("Enter");
    await rests(page);
    await page.locator("#snapshot").focus();
    for (const key of ["Home", "PageDown", "ArrowRight", "ArrowUp", "Enter", "x"])
        await page.keyboard.press(key);
    assert.match(await fragmentOf(page), /sel=L1H1&off=L1H1/);
    await check();
}

async function stopping(browser, url) {
    const line = await slowLine(url);
    const { page, check } = await start(browser, line.url);
    await generate(page, "Once upon a time", 400);
    await page.waitForFunction(() => document.querySelectorAll("#live-text [data-token]").length > 8);
    await page.getByRole("button", { name: "Stop" }).click();
    await page.waitForFunction(() => document.querySelector(".live-text .note").innerText === "stopped");
    const n = await page.locator("#live-text [data-token]").count();
    assert.ok(n < 400, `${n} tokens`);
    await check();
    line.end();
}

/* The line is cut in the middle of a text, and when it is mended the text goes on where it was. */
async function losing(browser, url) {
    const line = await slowLine(url);
    const { page, check } = await start(browser, line.url);
    await generate(page, "Once upon a time", 200);
    await page.waitForFunction(() => document.querySelectorAll("#live-text [data-token]").length > 8);
    line.cut();
    await page.waitForFunction(() => /lost/.test(document.querySelector(".live-text .note").innerText));
    const kept = (await textOf(page)).trim();
    line.mend();
    await rests(page);
    assert.equal(await note(page), "200 tokens");
    const whole = await textOf(page);
    assert.ok(
        whole.startsWith(kept) && whole.length > kept.length,
        "what there was is still there, and more",
    );
    await check(/ERR_|network/i);
    line.end();
}

async function tokenWanted(browser) {
    const server = await serve(0, ["--token", "sesame"]);
    const { page, check } = await open(browser, server.url, { allowed: /./ });
    await page.waitForSelector("input[type=password]");
    await sound(page);
    await page.fill("input[type=password]", "sesame");
    await page.keyboard.press("Enter");
    await page.waitForSelector("#prompt");
    await server.end();
    await check(/401/);
}

const path = findBrowser();
if (!path) console.log("1..0 # SKIP no chromium is installed here");
else {
    const browser = await openBrowser(path);
    const { url, end } = await serve();
    test("generate, a head, switched off, another text, side by side, lens, trace", () =>
        wholeRound(browser, url));
    test("the same at 390 px in the dark", () => wholeRound(browser, url, { width: 390, theme: "dark" }));
    test("a text is measured, a finding leads to its heads", () => diagnosing(browser, url));
    test("the same at 390 px in the dark", () => diagnosing(browser, url, { width: 390, theme: "dark" }));
    test("heads are ranked, switched off and tried", () => pruning(browser, url));
    test("the same at 390 px in the dark", () => pruning(browser, url, { width: 390, theme: "dark" }));
    test("normalised rows without the sink", () => withoutSink(browser, url));
    test("a measurement is refused", () => refusedStudy(browser, url));
    test("by keyboard alone", () => byKeyboard(browser, url));
    test("a text is stopped", () => stopping(browser, url));
    test("the connection is lost, and found again", () => losing(browser, url));
    test("a server with a token asks for it", () => tokenWanted(browser));
    try {
        await run();
    } finally {
        await end();
        await browser.close();
    }
}
