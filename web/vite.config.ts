/* vite.config.ts - headlight.html and everything it needs, as one file: dist/headlight.html. */
import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";

export default defineConfig({
    esbuild: { jsx: "automatic", jsxImportSource: "preact", legalComments: "none" },
    build: {
        target: "es2022",
        outDir: "dist",
        emptyOutDir: true,
        reportCompressedSize: false,
        rollupOptions: { input: fileURLToPath(new URL("headlight.html", import.meta.url)) },
    },
    worker: { format: "iife" },
    plugins: [viteSingleFile({ removeViteModuleLoader: true })],
});
