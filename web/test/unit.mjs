/* unit.mjs - translates unit.test.ts and runs it. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";
import { run } from "./tap.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "headlight-web-"));
try {
    const outfile = join(folder, "unit.mjs");
    await build({
        entryPoints: [join(root, "test/unit.test.ts")],
        bundle: true,
        platform: "node",
        format: "esm",
        outfile,
        logLevel: "error",
        jsx: "automatic",
        jsxImportSource: "preact",
    });
    process.env.HEADLIGHT_WEB = root;
    const { declare } = await import(pathToFileURL(outfile).href);
    declare(await import("./tap.mjs"));
    await run();
} finally {
    rmSync(folder, { recursive: true });
}
