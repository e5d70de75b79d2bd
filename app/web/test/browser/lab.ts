/*
 * lab.ts - a bare page to try things in: the built package, the repository's files, and the engine's cases as one script.
 */
import { readFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, normalize } from "node:path";
import { build, type Rollup } from "vite";
import { ROOT } from "./chromium.js";

const TYPES: Record<string, string> = { ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm", ".html": "text/html" };
const PAGE = "<!doctype html><meta charset=\"utf-8\"><link rel=\"icon\" href=\"data:,\"><title>lab</title>";

export interface Lab {
    url: string;
    /** What the page's worker runs before its own script. */
    fault: string;
    close(): Promise<void>;
}

/* Bundled from the sources, with a browser's own assert and files in place of Node's. */
async function bundle(): Promise<string> {
    const here = `${ROOT}test/browser/`;
    const stand: Record<string, string> = { "node:assert/strict": `${here}assert_web.ts`, "./files.js": `${here}files_web.ts` };
    const built = await build({
        configFile: false, logLevel: "error", root: ROOT,
        plugins: [{ name: "stand-in", enforce: "pre", resolveId: (id) => stand[id] ?? null }],
        build: { write: false, minify: false, target: "es2022", lib: { entry: `${here}inside.ts`, formats: ["es"], fileName: "inside" }, rollupOptions: { output: { codeSplitting: false } } },
    });
    const { output } = (Array.isArray(built) ? built[0] : built) as Rollup.RollupOutput;
    return output[0].code;
}

/** Serves the bare page at /, dist at /dist, the built page at /page/, the repository at /repository, the cases at /inside.js. */
export async function openLab(): Promise<Lab> {
    const inside = await bundle(), lab: Lab = { url: "", fault: "", close: () => Promise.resolve() };
    const find = async (path: string): Promise<string | Uint8Array> => {
        if (path === "/") return PAGE;
        if (path === "/inside.js") return inside;
        const [, place = "", rest = ""] = /^\/(dist|page|repository)\/(.*)$/.exec(normalize(path)) ?? [];
        const bytes = await readFile(`${ROOT}${{ dist: "dist", page: "dist-page", repository: "../.." }[place] ?? "none"}/${rest || "index.html"}`);
        return place === "page" && /worker-[^/]*\.js$/.test(rest) ? lab.fault + bytes.toString() : bytes;
    };
    const server: Server = createServer((request, response) => {
        const path = new URL(request.url ?? "/", "http://lab").pathname;
        find(path).then((body) => {
            response.setHeader("Content-Type", TYPES[path.endsWith("/") ? ".html" : extname(path)] ?? "application/octet-stream");
            response.end(body);
        }, () => response.writeHead(404).end());
    });
    await new Promise<void>((resolve) => { server.listen(0, "127.0.0.1", resolve); });
    lab.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    lab.close = () => new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
    });
    return lab;
}
