/* live.mjs - the live page, against `headlight serve` with the demo model. */
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, realpathSync, statSync } from "node:fs";
import { connect, createServer } from "node:net";
import { dirname, join } from "node:path";
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

/* A test with such a line, which ends with it, however that went: nothing keeps the process. */
async function overSlowLine(browser, url, body) {
    const line = await slowLine(url);
    try {
        await body(browser, line);
    } finally {
        line.end();
    }
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
        await page.getByRole("button", { name: "Disable" }).click();
    }
    assert.match(await fragmentOf(page), /off=L0H0,L0H1,L0H2,L1H1,L2H2/);
    await page.getByRole("button", { name: "Generate again" }).click();
    await page.waitForFunction(
        () => /^24 tokens; disabled/.test(document.querySelector(".live-text .note")?.innerText ?? ""),
        null,
        { timeout: 60000 },
    );
    assert.notEqual(await textOf(page), first, "without five heads the text is another");
    await page.getByRole("tab", { name: "Side by side" }).click();
    assert.match(await page.locator(".lead").innerText(), /[Oo]utputs diverge at token \d+/);
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
    assert.ok(await measure.isDisabled(), "there is not text yet");
    await sound(page);
    await page.fill("#study-text", TALE);
    await measure.click();
    await page.waitForSelector(".diagnosis .chips [data-head]", { timeout: 60000 });
    assert.match(await page.locator(".lead").innerText(), /alarm|observation/);
    assert.match(await page.locator("header .of").innerText(), /\d+ tokens/);
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

/* Heads are ranked, some disabled, tried on the text and side by side; by hand one is taken back. */
async function pruning(browser, url, options) {
    const { page, check } = await start(browser, url, options);
    await generate(page, "He said that", 24);
    await rests(page);
    await page.getByRole("tab", { name: "Prune" }).click();
    await sound(page);
    await page.fill("#study-text", TALE + TALE);
    await page.getByLabel("Ranker").selectOption("normalized");
    await page.getByRole("button", { name: "Rank heads" }).click();
    await page.waitForSelector("#order canvas", { timeout: 60000 });
    const offs = async () => (/cut=([LH\d,]+)/.exec(await fragmentOf(page))?.[1] ?? "").split(",");
    assert.equal((await offs()).length, 13, "a fifth of 64");
    await page.locator(".ratio input").focus();
    await page.keyboard.press("ArrowRight");
    assert.equal((await offs()).length, 16, "a quarter of 64");
    await page.locator(".chips button").first().click();
    const off = await offs();
    assert.equal(off.length, 15);
    const command = await page.locator("#prune-command").innerText();
    const path = realpathSync(join(ROOT, "models/demo"));
    assert.equal(command, `headlight prune ${path} --heads ${off.join(",")} --as compact -o demo-pruned`);
    if (!options) assert.ok(saves(command, path) < 0.97);
    await page.getByRole("button", { name: "Try it" }).click();
    await page.waitForSelector(".trial", { timeout: 60000 });
    await page.waitForFunction(() => document.querySelectorAll("#side-now [data-token]").length >= 27, null, {
        timeout: 60000,
    });
    const cell = (name, column) =>
        page.locator(".trial tbody tr", { hasText: name }).locator("td").nth(column).innerText();
    assert.notEqual((await cell("Loss", 0)).split(" ")[0], (await cell("Loss", 1)).split(" ")[0]);
    assert.match(await cell("Most likely token", 1), /^\d[\d.]*%$/);
    assert.match(await cell("95% interval", 1), /^[+−]?[\d.]+ to [+−]?[\d.]+$/);
    assert.match(await page.locator("#side-before").innerText(), /He said that/);
    await settled(page);
    await sound(page);
    await page.getByRole("tab", { name: "Live" }).click();
    assert.equal(await note(page), "24 tokens", "Live has its own text");
    assert.equal(await page.locator(".off-list").count(), 0, "nothing is disabled in Live");
    await page.getByRole("tab", { name: "Prune" }).click();
    await page.getByRole("button", { name: "Disable in Live" }).click();
    assert.match(await page.locator(".off-list").innerText(), /^15 heads disabled: L\d/);
    await page.getByRole("button", { name: "Generate again" }).click();
    await page.waitForFunction(
        () => /^24 tokens; disabled: L/.test(document.querySelector(".live-text .note")?.innerText ?? ""),
        null,
        { timeout: 60000 },
    );
    await sound(page);
    await page.getByRole("button", { name: "Enable all" }).click();
    assert.equal(await page.locator(".off-list").count(), 0);
    await check();
}

/* Three clicks to a smaller model: the tab, Recommend, Download; the script runs as it stands. */
async function recommending(browser, url, options) {
    const { page, check } = await start(browser, url, options);
    await page.getByRole("tab", { name: "Prune" }).click();
    await page.fill("#study-text", TALE.repeat(8));
    await page.getByRole("button", { name: "Recommend" }).click();
    await page.waitForSelector("#prune-command", { timeout: 240000 });
    const title = await page.locator("h2", { hasText: /^Remove / }).innerText();
    const [, heads, saved] = /^Remove (\d+) heads?: ([\d.]+)% smaller, [+−]?[\d.]+ nats per token$/.exec(
        title,
    );
    const off = (/cut=([LH\d,]+)/.exec(await fragmentOf(page))?.[1] ?? "").split(",");
    assert.equal(off.length, Number(heads), "the recommended heads are chosen");
    assert.match(
        await page.locator(".panel", { hasText: title }).innerText(),
        /95%: .* to .*the heads that stay are repaired/s,
    );
    assert.match(await page.locator(".legend").first().innerText(), /recommended, with 95% intervals/);
    const path = realpathSync(join(ROOT, "models/demo"));
    const command = await page.locator("#prune-command").innerText();
    assert.equal(
        command,
        `headlight prune ${path} --heads ${off.join(",")} --text demo-text.txt --as compact -o demo-pruned`,
    );
    await settled(page);
    await sound(page);
    if (!options) {
        const [file] = await Promise.all([
            page.waitForEvent("download"),
            page.getByRole("button", { name: "Download" }).click(),
        ]);
        const share = saves(readFileSync(await file.path(), "utf8"), path);
        assert.ok(Math.abs(100 * (1 - share) - Number(saved)) < 1, `${saved}% promised, ${share} left`);
    }
    await page.locator(".chips button").first().click();
    assert.ok(
        !(await page.locator("#prune-command").innerText()).includes("--text"),
        "another choice of heads",
    );
    await check();
}

/* The copied command runs as it stands, and what it writes is smaller than the model. */
function saves(command, model) {
    const program = join(ROOT, process.env.HEADLIGHT ?? "build/headlight");
    const cwd = mkdtempSync(join(folder, "pruned-"));
    const PATH = `${dirname(program)}:${process.env.PATH}`;
    execFileSync("/bin/sh", ["-c", command], { cwd, env: { ...process.env, PATH }, stdio: "pipe" });
    const size = (path) => statSync(join(path, "model.safetensors")).size;
    const [before, after] = [size(model), size(join(cwd, "demo-pruned"))];
    assert.ok(after < 0.995 * before, `${after} bytes of ${before}`);
    return after / before;
}

/* One token, one row: text, heads, map and numbers are those that the server has for that row. */
async function oneRow(browser, url) {
    const { page, check } = await start(browser, url);
    const asked = [];
    page.on("request", (request) => {
        if (request.url().endsWith("/v1/headlight/tokens")) asked.push(request.postDataJSON().input);
    });
    await generate(page, "He said that it was", 24);
    await rests(page);
    const place = await cellOf(page, 3, 2, { id: "snapshot" });
    await page.mouse.click(place.x, place.y);
    await page.waitForSelector("#live-map canvas");
    const ids = asked.at(-1);
    const answer = await fetch(new URL("/v1/headlight/tokens", url), {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ input: ids, heads: ["L3H2", "L5H1"] }),
    });
    const { maps } = await answer.json();
    const map = maps.find((one) => one.name === "L3H2");
    const other = maps.find((one) => one.name === "L5H1");
    const last = ids.length - 1;
    for (const token of [1, 4, 9, 17, last]) {
        await page.locator("#live-text [data-token]").nth(token).click();
        await page.mouse.move(2, 2);
        await settled(page);
        const entropy = await page.locator(".live-text .facts dd").nth(1).innerText();
        assert.ok(near(entropy, map.entropy[token]), `token ${token}: ${entropy}, ${map.entropy[token]}`);
        const [key, share] = [...map.attention[token].entries()].sort((a, b) => b[1] - a[1])[0];
        const top = await page.locator(".card .extremes").innerText();
        const said = /([\d.]+)%/.exec(top)[1];
        assert.ok(Math.abs(said - 100 * share) < 0.3, `token ${token}: ${top}, ${share} on ${key}`);
        /* The text's darkest token is the row's largest key, and none behind the token has attention. */
        const tones = await page.evaluate(() =>
            [...document.querySelectorAll("#live-text [data-token]")].map((span) =>
                /\d+/.exec(getComputedStyle(span).backgroundColor) === null
                    ? 255
                    : Number(/\d+/.exec(getComputedStyle(span).backgroundColor)[0]),
            ),
        );
        assert.equal(tones.indexOf(Math.min(...tones.slice(0, token + 1))), key, `token ${token}: ${tones}`);
        const cell = await cellOf(page, 5, 1, { id: "snapshot" });
        await page.mouse.move(cell.x, cell.y);
        await settled(page);
        const tip = await page.locator(".second").innerText();
        const shown = /L5H1\D*([\d.]+)/.exec(tip)?.[1];
        assert.ok(near(shown, other.entropy[token]), `L5H1 at ${token}: ${tip}, ${other.entropy[token]}`);
        assert.match(await page.locator(".second h2").innerText(), /^Heads in the row of/);
    }
    await check();
}

/* Three significant digits of it. */
const near = (text, value) => Math.abs(Number(text.split(/\s/)[0]) - value) <= 0.006 * Math.max(value, 0.01);

/* A rectangle of heads is disabled and enabled by the mouse; earlier texts are shown again and compared;
 * with top-k 1 every seed gives the same text. */
async function history(browser, url) {
    const { page, check } = await start(browser, url);
    await page.getByLabel("top-k").fill("1");
    await generate(page, "He said that", 8);
    await rests(page);
    const first = await textOf(page);
    await page.getByLabel("seed").fill("5");
    await page.getByRole("button", { name: /^Generate/ }).click();
    await page.waitForFunction(() => document.querySelectorAll(".history option").length === 2);
    await rests(page);
    assert.equal(await textOf(page), first, "the most likely token does not depend on the seed");
    const draw = async () => {
        const from = await cellOf(page, 1, 2, { id: "snapshot" });
        const to = await cellOf(page, 2, 4, { id: "snapshot" });
        await page.mouse.move(from.x, from.y);
        await page.mouse.down();
        await page.mouse.move(to.x, to.y, { steps: 4 });
        await page.mouse.up();
    };
    await draw();
    assert.match(await fragmentOf(page), /off=L1H2,L1H3,L1H4,L2H2,L2H3,L2H4/);
    await draw();
    assert.doesNotMatch(await fragmentOf(page), /off=/);
    await draw();
    await page.getByRole("button", { name: "Generate again" }).click();
    await page.waitForFunction(() => document.querySelectorAll(".history option").length === 3);
    await rests(page);
    const labels = await page.locator(".history option").allInnerTexts();
    assert.deepEqual(
        labels.map((label) => /^(\d): He said that/.exec(label)[1]),
        ["3", "2", "1"],
    );
    assert.match(labels[0], /seed 5 · 6 disabled$/);
    await page.getByLabel("history").selectOption("2");
    await settled(page);
    assert.equal(await textOf(page), first);
    await page.getByRole("tab", { name: "Side by side" }).click();
    await page.locator(".choice select").last().selectOption("2");
    await page.locator(".choice select").first().selectOption("1");
    assert.match(await page.locator(".lead").last().innerText(), /identical/);
    await sound(page);
    await check();
}

/* What was typed outlives tabs and reloads. */
async function keeping(browser, url) {
    const { page, check } = await start(browser, url);
    assert.equal(await page.getByLabel("temperature").inputValue(), "0.8");
    assert.equal(await page.getByLabel("top-p").inputValue(), "0.95");
    await page.fill("#prompt", "A prompt of my own");
    await page.getByLabel("tokens").fill("12");
    await page.getByLabel("temperature").fill("0.3");
    await page.getByRole("tab", { name: "Diagnosis" }).click();
    await page.fill("#study-text", "A text of my own");
    await page.getByRole("tab", { name: "Live" }).click();
    const typed = async () => [
        await page.inputValue("#prompt"),
        await page.getByLabel("tokens").inputValue(),
        await page.getByLabel("temperature").inputValue(),
    ];
    assert.deepEqual(await typed(), ["A prompt of my own", "12", "0.3"]);
    await settled(page);
    await page.reload();
    await page.waitForSelector("#prompt");
    assert.deepEqual(await typed(), ["A prompt of my own", "12", "0.3"]);
    await page.getByRole("tab", { name: "Diagnosis" }).click();
    assert.equal(await page.inputValue("#study-text"), "A text of my own");
    await page.getByRole("tab", { name: "Live" }).click();
    const [request] = await Promise.all([
        page.waitForRequest("**/v1/completions"),
        page.getByRole("button", { name: /^Generate/ }).click(),
    ]);
    const { prompt, temperature, top_p } = request.postDataJSON();
    assert.deepEqual(
        { prompt, temperature, top_p },
        { prompt: "A prompt of my own", temperature: 0.3, top_p: 0.95 },
    );
    await rests(page);
    await check();
}

/* A text of five letters gives a message and no curve; a longer one says how sure the curve is. */
async function howSure(browser, url) {
    const { page, check } = await start(browser, url);
    await page.getByRole("tab", { name: "Prune" }).click();
    await page.fill("#study-text", "Hello");
    await page.getByRole("button", { name: "Rank heads" }).click();
    await page.waitForSelector("[role=alert]", { timeout: 60000 });
    assert.match(await page.locator("[role=alert]").innerText(), /has \d tokens?, wanted 64 or more/);
    assert.equal(await page.locator(".plot").count(), 0, "no curve");
    /* The server's default ranker is asked for by leaving it out, and named. */
    const bodies = [];
    await page.route("**/v1/headlight/rank", (route) => {
        bodies.push(route.request().postDataJSON());
        return route.continue();
    });
    await page.fill("#study-text", TALE + TALE);
    await page.getByRole("button", { name: "Rank heads" }).click();
    await page.waitForSelector("#order canvas", { timeout: 60000 });
    assert.equal("ranker" in bodies[0], false);
    const title = await page.locator(".first h2").innerText();
    const usual = /^Heads in pruning order, by ([a-z0-9-]+)$/.exec(title)?.[1];
    assert.ok(usual, title);
    const options = await page.getByLabel("Ranker").locator("option").allInnerTexts();
    assert.equal(options[0], `default: ${usual}`);
    assert.ok(options.includes("entropy (worse than a random order in our sweeps)"), `${options}`);
    assert.match(
        await page
            .locator(".panel", { hasText: "Loss with heads disabled" })
            .locator(".note")
            .first()
            .innerText(),
        /scored on \d+ tokens in \d+ windows; bands are 95% confidence intervals/,
    );
    await page
        .locator(".panel", { hasText: "Loss with heads disabled" })
        .getByRole("button", { name: "Table" })
        .first()
        .click();
    const names = await page.locator("dialog thead th").allInnerTexts();
    const rows = await page.locator("dialog tbody tr").allInnerTexts();
    const column = (row, name) => Number(row.split("\t")[names.indexOf(name)]);
    for (const row of rows.filter((row) => column(row, "heads") > 0))
        assert.ok(
            column(row, "low") < column(row, "nll") && column(row, "nll") < column(row, "high"),
            `${names}: ${row}`,
        );
    await page.getByRole("button", { name: "Close" }).click();
    await page.getByLabel("Ranker").selectOption("entropy");
    await page.getByRole("button", { name: "Rank heads" }).click();
    await page.waitForFunction(
        () => /by entropy$/.test(document.querySelector(".first h2").innerText),
        null,
        { timeout: 60000 },
    );
    assert.match(await page.locator(".first .note").innerText(), /highest first/);
    assert.match(await page.locator(".first .verdict-line").innerText(), /random order/);
    await check(/40\d/);
}

/* The sink out of every unit: normalized rows lie between 0 and 1 and are other ones. */
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
    await page.getByRole("button", { name: "normalized", exact: true }).click();
    const into = await means();
    await page.getByRole("button", { name: "exclude first token" }).click();
    const out = await means();
    const known = out.filter((value) => !Number.isNaN(value));
    assert.ok(known.length >= 16 && known.every((value) => value >= 0 && value <= 1.000001), `${out}`);
    assert.notDeepEqual(out.slice(4), into.slice(4));
    await page.locator(".live-text .ask button").first().click();
    assert.match(await page.locator(".definition").innerText(), /without the first token/i);
    await check();
}

/* A server that says no is quoted, and the page keeps working. */
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

async function stopping(browser, line) {
    const { page, check } = await start(browser, line.url);
    await generate(page, "Once upon a time", 400);
    await page.waitForFunction(() => document.querySelectorAll("#live-text [data-token]").length > 8);
    await page.getByRole("button", { name: "Stop" }).click();
    await page.waitForFunction(() => document.querySelector(".live-text .note").innerText === "stopped");
    const n = await page.locator("#live-text [data-token]").count();
    assert.ok(n < 400, `${n} tokens`);
    await check();
}

/* The connection is cut in the middle of a text; when it is back, the text continues where it was. */
async function losing(browser, line) {
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
    test("one token, one row: text, heads, map and the server's numbers", () => oneRow(browser, url));
    test("top-k, a rectangle of heads, earlier texts", () => history(browser, url));
    test("what was typed outlives tabs and reloads", () => keeping(browser, url));
    test("a short text gives no curve, and a curve says how sure it is", () => howSure(browser, url));
    test("heads are ranked, disabled and tried", () => pruning(browser, url));
    test("the same at 390 px in the dark", () => pruning(browser, url, { width: 390, theme: "dark" }));
    test("a budget recommends heads, and the model is made of what is downloaded", () =>
        recommending(browser, url));
    test("the same at 390 px in the dark", () => recommending(browser, url, { width: 390, theme: "dark" }));
    test("normalized rows without the first token", () => withoutSink(browser, url));
    test("a measurement is refused", () => refusedStudy(browser, url));
    test("by keyboard alone", () => byKeyboard(browser, url));
    test("a text is stopped", () => overSlowLine(browser, url, stopping));
    test("the connection is lost, and found again", () => overSlowLine(browser, url, losing));
    test("a server with a token asks for it", () => tokenWanted(browser));
    try {
        await run();
    } finally {
        await end();
        await browser.close();
    }
}
