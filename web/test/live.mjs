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
