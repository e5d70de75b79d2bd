/*
 * vite.config.ts - builds the package into dist: index.js, worker.js, and beside them the module,
 * the default model; and the licences for the package.
 *
 * BERYL_WASM names the module; default: dist/beryl.wasm, where `make web` has put it.
 */
import { copyFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { defineConfig, type Plugin } from "vite";

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

/* Addresses of files beside the script are for the user's bundler to resolve, not for this build; they are left in the
 * one form that all bundlers look for, with quotes. */
function leaveAddresses(): Plugin {
    return {
        name: "beryl-addresses",
        // Nothing moves: the source map stays right.
        renderChunk: (code) => ({ code: code.replaceAll(/(?<=new URL\()\s*\/\* @vite-ignore \*\/\s*/g, (mark) => " ".repeat(mark.length)), map: null }),
        generateBundle(_options, bundle) {
            for (const chunk of Object.values(bundle)) if (chunk.type === "chunk")
                chunk.code = chunk.code.replaceAll(/new URL\(`(\.\/[^`$]*)`/g, 'new URL("$1"').replaceAll("{type:`module`", '{type:"module"');
        },
    };
}

/* dist is emptied first, so the module is read before and written again after. */
function addFiles(): Plugin {
    let wasm: Uint8Array = new Uint8Array(0);
    return {
        name: "beryl-files",
        apply: "build",
        buildStart() {
            const from = process.env["BERYL_WASM"] ?? here("dist/beryl.wasm");
            if (!existsSync(from)) this.error(`${from} is not there: run \`make web\`, or name the module in BERYL_WASM`);
            wasm = readFileSync(from);
        },
        writeBundle() {
            writeFileSync(here("dist/beryl.wasm"), wasm);
            copyFileSync(here("../../models/default.gguf"), here("dist/default.gguf"));
            for (const name of ["LICENSE", "THIRD_PARTY_NOTICES.md"]) copyFileSync(here(`../../${name}`), here(name));
        },
    };
}

export default defineConfig({
    plugins: [leaveAddresses(), addFiles()],
    build: {
        target: "es2022",
        outDir: "dist",
        emptyOutDir: true,
        minify: true,
        sourcemap: true,
        lib: { entry: { index: here("src/index.ts"), worker: here("src/worker.ts") }, formats: ["es"] },
        rollupOptions: { output: { entryFileNames: "[name].js", chunkFileNames: "[name].js", minify: true } },
    },
});
