/*
 * vite.config.ts - builds the package into dist: index.js, worker.js, graph.js, and beside them the modules,
 * the default model; and the licences for the package.
 *
 * BERYL_WASM and BERYL_FULL_WASM name the modules; default: those in dist, where `make web` has put them.
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

/* dist is emptied first, so the modules are read before and written again after. */
function addFiles(): Plugin {
    const modules = new Map<string, Uint8Array>();
    return {
        name: "beryl-files",
        apply: "build",
        buildStart() {
            for (const [name, variable] of [["beryl.wasm", "BERYL_WASM"], ["beryl-full.wasm", "BERYL_FULL_WASM"]] as const) {
                const from = process.env[variable] ?? here(`dist/${name}`);
                if (!existsSync(from)) this.error(`${from} is not there: run \`make web\`, or name the module in ${variable}`);
                modules.set(name, readFileSync(from));
            }
        },
        writeBundle() {
            for (const [name, bytes] of modules) writeFileSync(here(`dist/${name}`), bytes);
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
        lib: { entry: { index: here("src/index.ts"), worker: here("src/worker.ts"), graph: here("src/graph/index.ts") }, formats: ["es"] },
        rollupOptions: { output: {
            entryFileNames: "[name].js", chunkFileNames: "[name].js", minify: true,
            // As they are without the extras, which take from them, so that the default costs nothing for that.
            codeSplitting: { groups: [
                { name: "rpc", test: /noble|src\/(error|release|rpc|source\/(source|disk|pieces|http|store))\.ts/ },
                { name: "host", test: /src\/(upload|gpu|status|ranges|wasi|engine|fit|queue|kept|pixels|host|module|source\/(blob|url|verify|index))\.ts/ },
            ] },
        } },
    },
});
