/* pictures.mjs - the pictures of the README, of doc/pictures: a report and the live page of `serve`.
 *
 *     node test/pictures.mjs                           test that the committed pictures are of this page,
 *                                                      and that both can be drawn, of models/demo
 *     node test/pictures.mjs MODEL NAME HEAD FOLDER    draw both of MODEL into FOLDER
 *
 * pictures.txt, beside them, has the version and hashes of the page and of this script.  If one of these
 * differs, the pictures are out of date. */
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { cellOf, findBrowser, folder, open, openBrowser, openFile, settled } from "./drive.mjs";
import { PAGE } from "./sample.mjs";
import { run, Skip, test } from "./tap.mjs";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const PROGRAM = join(ROOT, process.env.HEADLIGHT ?? "build/headlight");
const KEPT = join(ROOT, "doc/pictures");
const LARGEST = 300 * 1024; /* bytes of a picture */

/* The content of pictures.txt. */
function note() {
    const version = execFileSync(PROGRAM, ["--version"], { encoding: "utf8" }).split("\n")[0];
    const hash = (path) => createHash("sha256").update(readFileSync(path)).digest("hex").slice(0, 16);
    const script = fileURLToPath(import.meta.url);
    return `${version}\npage ${hash(PAGE)}\nscript ${hash(script)}\n`;
}

const shoot = async (page, path) => {
    await page.mouse.move(0, 0);
    await settled(page);
    await page.screenshot({ path });
    const size = statSync(path).size;
    assert.ok(size > 20000 && size < LARGEST, `${path} has ${size} bytes`);
};

/* The report of the README's commands, with one head selected. */
async function report(browser, { model, name, head, to }) {
    const quiet = { cwd: ROOT, stdio: ["ignore", "ignore", "inherit"] };
    const profile = join(folder, `${name}.profile`);
    const page = join(folder, "report.html");
    const text = "models/text/alice.txt";
    execFileSync(
        PROGRAM,
        ["measure", model, text, "--context", "512", "--max-tokens", "4096", "-o", profile, "--quiet"],
        quiet,
    );
    execFileSync(PROGRAM, ["report", profile, "-o", page, "--quiet"], quiet);
    const opened = await openFile(browser, page, { fragment: `#sel=${head}` });
    await shoot(opened.page, join(to, "report.png"));
    await opened.check();
}

/* The live page with a generated text, and where one token looks. */
async function live(browser, { model, name, head, to }) {
    const child = spawn(PROGRAM, ["serve", model, "--name", name, "--port", "0", "--context", "512"], {
        stdio: ["ignore", "pipe", "ignore"],
    });
    try {
        const url = await new Promise((done, fail) => {
            child.stdout.on("data", (part) => {
                const found = /http:\/\/\S+/.exec(part);
                if (found) done(found[0]);
            });
            child.on("exit", (code) => fail(new Error(`the server ended with ${code}`)));
        });
        const allowed = new RegExp(`^(blob|data):|^${new URL(url).origin}/`);
        const { page, check } = await open(browser, url, { allowed, fragment: `#sel=${head}` });
        await page.waitForSelector("#prompt");
        await page.fill("#prompt", "The old man looked out at the sea, and said");
        await page.getByLabel("tokens").fill("60");
        await page.getByRole("button", { name: /^Generate/ }).click();
        await page.waitForFunction(
            () => /^\d+ tokens?/.test(document.querySelector(".live-text .note")?.innerText ?? ""),
            null,
            { timeout: 120000 },
        );
        await page.waitForSelector("#live-map canvas");
        await page.locator("#live-text [data-token]").nth(-5).click();
        await shoot(page, join(to, "live.png"));
        await check();
    } finally {
        child.removeAllListeners("exit");
        child.kill("SIGTERM");
    }
}

async function draw(what) {
    const path = findBrowser();
    if (!path) throw new Skip("there is no Chromium here");
    const browser = await openBrowser(path);
    try {
        await report(browser, what);
        await live(browser, what);
    } finally {
        await browser.close();
    }
}

const [model, name, head, to] = process.argv.slice(2);
if (to) {
    await draw({ model, name, head, to });
    writeFileSync(join(to, "pictures.txt"), note());
} else {
    test("the pictures in doc/pictures are of this page (tools/pictures draws them again)", () =>
        assert.equal(readFileSync(join(KEPT, "pictures.txt"), "utf8"), note()));
    for (const picture of ["report.png", "live.png"])
        test(`doc/pictures/${picture} is small`, () =>
            assert.ok(statSync(join(KEPT, picture)).size < LARGEST));
    test("both pictures can be drawn, of models/demo", () =>
        draw({ model: join(ROOT, "models/demo"), name: "demo", head: "L6H3", to: folder }));
    await run();
}
