/* current.mjs - the committed page must be what the source makes, to the byte. */
import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import * as prettier from "prettier";
import { build } from "vite";
import { run, test } from "./tap.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const EMPTY = '<script type="application/json" id="headlight-data">null</script>';
const committed = readFileSync(join(root, "dist/headlight.html"), "utf8");

test("the committed page is current: `make web` changes nothing", async () => {
    const folder = mkdtempSync(join(tmpdir(), "headlight-web-"));
    try {
        await build({
            root,
            logLevel: "silent",
            configFile: join(root, "vite.config.ts"),
            build: { outDir: folder, emptyOutDir: true },
        });
        const made = readFileSync(join(folder, "headlight.html"), "utf8");
        assert.ok(
            made === committed,
            `web/dist/headlight.html has ${committed.length} characters, the source makes ${made.length}: run make web and commit it`,
        );
    } finally {
        rmSync(folder, { recursive: true });
    }
});

test("it has one place for data, and names no other file", () => {
    assert.equal(committed.split(EMPTY).length, 2);
    assert.equal(committed.split('id="headlight-data"').length, 2);
    assert.doesNotMatch(committed, /<(script|link|img)[^>]+(src|href)="(?!data:)/);
});

test("every file is laid out as prettier does it (npm run format)", async () => {
    const options = JSON.parse(readFileSync(join(root, ".prettierrc.json"), "utf8"));
    const wrong = [];
    for (const folder of ["src", "test"])
        for (const file of readdirSync(join(root, folder), { recursive: true })) {
            if (!/\.(ts|tsx|mjs|css)$/.test(file)) continue;
            const filepath = join(root, folder, file);
            if (!(await prettier.check(readFileSync(filepath, "utf8"), { ...options, filepath })))
                wrong.push(file);
        }
    assert.deepEqual(wrong, []);
});

test("the lock file names no registry", () => {
    assert.doesNotMatch(readFileSync(join(root, "package-lock.json"), "utf8"), /"resolved"/);
});

await run();
