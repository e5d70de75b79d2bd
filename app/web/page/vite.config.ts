/**
 * vite.config.ts - builds the page into dist-page: the chat with its worker, one service worker that knows every file of it, and the page on which a GPT learns.
 */
import { createHash } from "node:crypto";
import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { defineConfig, type Plugin } from "vite";

const here = fileURLToPath(new URL(".", import.meta.url));

/** What is fetched when it is asked for, not before, and not kept: the model, the full module, the page on which a GPT learns. */
const isLater = (name: string): boolean => /\.gguf$|\/beryl-full-.*\.wasm$|(^|\/)gpt/.test(name);

/** Puts the list of files and its hash into the service worker. The model is the package's to keep. */
function kept(): Plugin {
    return {
        name: "kept-files",
        enforce: "post",
        generateBundle(_options, bundle) {
            const hash = createHash("sha256");
            const files = ["./", ...readdirSync(`${here}public`)];
            for (const [name, item] of Object.entries(bundle).sort(([a], [b]) => (a < b ? -1 : 1))) {
                if (item.type === "chunk" && item.name === "sw") continue;
                hash.update(name).update(item.type === "chunk" ? item.code : item.source);
                if (name !== "index.html" && !isLater(name)) files.push(name);
            }
            const build = JSON.stringify({ version: hash.digest("hex").slice(0, 16), files });
            for (const item of Object.values(bundle))
                if (item.type === "chunk" && item.name === "sw") item.code = item.code.replaceAll("__BUILD__", build);
        },
    };
}

/** The module is on its way before the page's script is. */
function early(): Plugin {
    return {
        name: "early-module",
        transformIndexHtml: {
            order: "post",
            handler: (_html, { path, bundle = {} }) =>
                Object.keys(path === "/index.html" ? bundle : {})
                    .filter((name) => name.endsWith(".wasm") && !isLater(name))
                    .map((name) => ({ tag: "link", attrs: { rel: "preload", href: `./${name}`, as: "fetch", type: "application/wasm", crossorigin: true }, injectTo: "head" as const })),
        },
    };
}

export default defineConfig({
    root: here,
    base: "./",
    plugins: [early(), kept()],
    worker: { format: "es" },
    // The package as its users have it: built.
    resolve: { alias: Object.fromEntries([["beryl-gpu/graph", "graph.js"], ["beryl-gpu", "index.js"]].map(([name, file]) => [name!, fileURLToPath(new URL(`../dist/${file}`, import.meta.url))])) },
    build: {
        outDir: fileURLToPath(new URL("../dist-page", import.meta.url)),
        emptyOutDir: true,
        target: "es2022",
        assetsInlineLimit: 0,
        modulePreload: { polyfill: false },
        rollupOptions: {
            input: { index: `${here}index.html`, gpt: `${here}gpt.html`, sw: `${here}sw.ts` },
            output: { entryFileNames: (chunk) => (chunk.name === "sw" ? "sw.js" : "assets/[name]-[hash].js") },
        },
    },
    preview: {
        headers: {
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Content-Security-Policy": "frame-ancestors 'none'",
        },
    },
});
