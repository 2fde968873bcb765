/* drive.mjs - a browser, reports for it, and a page that is watched for every fault. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { chromium } from "playwright-core";
import { fillPage, sampleData } from "./sample.mjs";

export const ROOT = fileURLToPath(new URL("../..", import.meta.url));
export const folder = mkdtempSync(join(tmpdir(), "headlight-report-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const CANDIDATES = [
    "/usr/bin/chromium-headless-shell",
    "/usr/lib/chromium/chromium-headless-shell",
    "/usr/bin/chromium",
    "/usr/bin/chromium-browser",
    "/usr/bin/google-chrome",
];

export const findBrowser = () =>
    [process.env.HEADLIGHT_BROWSER, ...CANDIDATES].find((path) => path && existsSync(path));

/* No sandbox: tests also run as root, and open files of their own alone. */
export const openBrowser = (path) =>
    chromium.launch({ executablePath: path, args: ["--no-sandbox", "--disable-dev-shm-usage"] });

/* ------------------------------------------------------------------------- reports */

let real = null;
/* What the program writes of the demo models. */
export function realReport() {
    if (real) return real;
    const program = process.env.HEADLIGHT ?? "build/headlight";
    const command = (...words) =>
        execFileSync(join(ROOT, program), words, {
            cwd: ROOT,
            stdio: ["ignore", "pipe", "inherit"],
            encoding: "utf8",
        });
    const at = (name) => join(folder, name);
    for (const model of ["demo", "demo-sparse"])
        command(
            "measure",
            `models/${model}`,
            "models/text",
            "-o",
            at(`${model}.profile`),
            "--context",
            "128",
            "--max-tokens",
            "2048",
            "--quiet",
            "--threads",
            "2",
        );
    command(
        "generate",
        "models/demo",
        "Once upon a time",
        "--max-tokens",
        "40",
        "--seed",
        "1",
        "--trace",
        at("trace.safetensors"),
        "--quiet",
    );
    real = at("real.html");
    command(
        "report",
        at("demo.profile"),
        at("demo-sparse.profile"),
        "--model",
        "models/demo",
        "--prompt",
        "The quick brown fox jumps over the lazy dog. The quick brown </script> fox & <b>.",
        "--trace",
        at("trace.safetensors"),
        "-o",
        real,
    );
    return real;
}

/* What a report holds. */
export const dataOf = (path) =>
    JSON.parse(/id="headlight-data">(.*?)<\/script>/s.exec(readFileSync(path, "utf8"))[1]);

export function sampleReport(name, options) {
    const path = join(folder, `${name}.html`);
    if (!existsSync(path)) writeFileSync(path, fillPage(sampleData(options)));
    return path;
}

/* --------------------------------------------------------------------------- pages */

/* Opens a page, a file without a network; `check` at the end says that nothing went wrong. */
export const openFile = (browser, path, options) =>
    open(browser, pathToFileURL(path).href, { ...options, offline: true });

export async function open(
    browser,
    file,
    {
        width = 1280,
        theme = "light",
        fragment = "",
        reducedMotion = "reduce",
        offline = false,
        allowed = /^(blob|data):/,
    } = {},
) {
    const context = await browser.newContext({
        viewport: { width, height: width < 500 ? 844 : 860 },
        colorScheme: theme,
        reducedMotion,
        acceptDownloads: true,
    });
    await context.setOffline(offline);
    const page = await context.newPage();
    const faults = [];
    page.on("console", (message) => {
        if (message.type() === "error" || message.type() === "warning") faults.push(message.text());
    });
    page.on("pageerror", (error) => faults.push(error.message));
    page.on("request", (request) => {
        if (request.url().split("#")[0] !== file && !allowed.test(request.url()))
            faults.push(`asked for ${request.url()}`);
    });
    await page.goto(file + fragment);
    await settled(page);
    const check = async (expected = /^$/) => {
        assert.deepEqual(
            faults.filter((fault) => !expected.test(fault)),
            [],
        );
        await context.close();
    };
    return { page, check };
}

/* Effects have run, and what they changed is drawn. */
export const settled = (page) =>
    page.evaluate(
        () =>
            new Promise((done) =>
                requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(done))),
            ),
    );

export async function fragmentOf(page) {
    await settled(page);
    return page.evaluate(() => decodeURIComponent(location.hash));
}

/* The middle of a head's cell, on the screen. */
export async function cellOf(page, layer, head, { id = "heads", layers = 8, heads = 8 } = {}) {
    return page.evaluate(
        ([layer, head, id, layers, heads]) => {
            const canvas = document.querySelector(`#${id} canvas`);
            canvas.scrollIntoView({ block: "center" });
            const box = canvas.getBoundingClientRect();
            const bars = id === "heads" ? Math.min(44, Math.max(24, box.width * 0.07)) : 0;
            const left = 36,
                top = bars ? bars + 8 : 4;
            const cell = {
                width: Math.min(87, (box.width - left - (bars ? bars + 8 : 2)) / layers),
                height: (box.height - top - 34) / heads,
            };
            return {
                x: box.left + left + (layer + 0.5) * cell.width,
                y: box.top + top + (heads - 0.5 - head) * cell.height,
            };
        },
        [layer, head, id, layers, heads],
    );
}

/* No fault by axe-core, however slight, and nothing wider than the window. */
export async function sound(page) {
    await page.evaluate(axe);
    const found = await page.evaluate(() =>
        window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"] }),
    );
    assert.deepEqual(
        found.violations.map(
            (one) =>
                `${one.id}: ${one.nodes
                    .map((node) => node.html.slice(0, 120))
                    .slice(0, 3)
                    .join(" | ")}`,
        ),
        [],
    );
    const [wide, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(wide <= window, `the page is ${wide} pixels wide, the window ${window}`);
}
