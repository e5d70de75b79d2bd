/*
 * vite.config.ts - builds the package into dist: index.js, worker.js, and beside them the module,
 * the default model and the licence.
 *
 * BERYL_WASM names the module; default: where `make web` puts it.
 */
import { copyFileSync, existsSync, mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { defineConfig, type Plugin } from "vite";

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
const wasm = process.env["BERYL_WASM"] ?? here("../../build/web/beryl.wasm");

/* Addresses of files beside the script are for the user's bundler to resolve, not for this build. */
function leaveAddresses(): Plugin {
    return {
        name: "beryl-addresses",
        renderChunk: (code) => ({ code: code.replaceAll(/(?<=new URL\()\s*\/\* @vite-ignore \*\/\s*/g, ""), map: null }),
    };
}

function copyFiles(): Plugin {
    return {
        name: "beryl-files",
        closeBundle() {
            mkdirSync(here("dist"), { recursive: true });
            if (!existsSync(wasm)) throw new Error(`${wasm} is not there: run \`make web\`, or name the module in BERYL_WASM`);
            copyFileSync(wasm, here("dist/beryl.wasm"));
            copyFileSync(here("../../models/default.gguf"), here("dist/default.gguf"));
            copyFileSync(here("../../LICENSE"), here("LICENSE"));
        },
    };
}

export default defineConfig({
    plugins: [leaveAddresses(), copyFiles()],
    build: {
        target: "es2022",
        outDir: "dist",
        emptyOutDir: true,
        minify: true,
        lib: { entry: { index: here("src/index.ts"), worker: here("src/worker.ts") }, formats: ["es"] },
        rollupOptions: { output: { entryFileNames: "[name].js", chunkFileNames: "[name].js" } },
    },
});
