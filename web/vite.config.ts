/* vite.config.ts - headlight.html and everything it needs, as one file: dist/headlight.html. */
import { defineConfig } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";

export default defineConfig({
    esbuild: { jsx: "automatic", jsxImportSource: "preact", legalComments: "none" },
    build: {
        target: "es2022",
        outDir: "dist",
        emptyOutDir: true,
        reportCompressedSize: false,
        rollupOptions: { input: "headlight.html" },
    },
    worker: { format: "iife" },
    plugins: [viteSingleFile({ removeViteModuleLoader: true })],
});
