/* current.mjs - the committed page must be what the source makes, to the byte. */
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";
import { run, test } from "./tap.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const EMPTY = '<script type="application/json" id="headlight-data">null</script>';
const committed = readFileSync(join(root, "dist/headlight.html"), "utf8");

test("the committed page is current: `make web` changes nothing", async () => {
    const folder = mkdtempSync(join(tmpdir(), "headlight-web-"));
    try {
        await build({ root, logLevel: "silent", configFile: join(root, "vite.config.ts"), build: { outDir: folder, emptyOutDir: true } });
        const made = readFileSync(join(folder, "headlight.html"), "utf8");
        assert.ok(made === committed, `web/dist/headlight.html has ${committed.length} characters, the source makes ${made.length}: run make web and commit it`);
    } finally {
        rmSync(folder, { recursive: true });
    }
});

test("it has one place for data, and names no other file", () => {
    assert.equal(committed.split(EMPTY).length, 2);
    assert.equal(committed.split('id="headlight-data"').length, 2);
    assert.doesNotMatch(committed, /<(script|link|img)[^>]+(src|href)="(?!data:)/);
});

test("the lock file names no registry", () => {
    assert.doesNotMatch(readFileSync(join(root, "package-lock.json"), "utf8"), /"resolved"/);
});

await run();
