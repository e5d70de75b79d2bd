/*
 * large.test.ts - a large model in Chromium, from a file, from an address, and as it was kept, by a worker and in a page: it answers right, JavaScript and
 * WebAssembly together stay below 100 MB on the way, and so does what no heap shows.
 *
 * BERYL_TEST_WIDTH: of the feed-forward layers; the file has about 3.3 KB for each of it. 36,864 makes 121 MB, 184,320
 * makes 604 MB (npm run test:large).
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { after, before, describe, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { leftOut } from "../draw.js";
import { referenceCases, wideSource } from "../reference.js";
import type { ByteSource } from "../../src/engine.js";
import { executable, launch, watchHeap, writeSource } from "./chromium.js";
import { openLab, type Lab } from "./lab.js";

const LONG = 900_000;
const MOST = 100e6; // bytes of JavaScript and WebAssembly
const WIDTH = Number(process.env["BERYL_TEST_WIDTH"] ?? 36864);

/* Ranges of the source, made as they are asked for. */
async function serveSource(source: ByteSource): Promise<Server> {
    const server = createServer((request, response) => {
        const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "") ?? [];
        response.setHeader("Access-Control-Allow-Origin", "*");
        response.setHeader("Access-Control-Allow-Headers", "*");
        response.setHeader("Access-Control-Expose-Headers", "Content-Range, ETag");
        response.setHeader("ETag", "\"wide\"");
        const start = Number(from), end = Math.min(Number(to) + 1, source.size);
        if (!(end > start)) {
            response.writeHead(request.method === "OPTIONS" ? 204 : 400).end();
            return;
        }
        response.writeHead(206, { "Content-Range": `bytes ${start}-${end - 1}/${source.size}`, "Content-Length": end - start });
        void source.read(start, end - start).then((bytes) => response.end(bytes));
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return server;
}

/* Resident bytes of the largest process with a page; -1 where the system does not tell. */
async function residentOf(browser: Browser): Promise<number> {
    const session = await browser.newBrowserCDPSession();
    const { processInfo } = await session.send("SystemInfo.getProcessInfo");
    await session.detach();
    const sizes = processInfo.filter(({ type }) => type === "renderer").map(({ id }) => {
        try {
            return 1024 * Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${id}/status`, "utf8"))?.[1] ?? -1);
        } catch {
            return -1;
        }
    });
    return Math.max(-1, ...sizes);
}

/* In the page: a file that comes faster than it is read. */
async function readSlowly({ url, size }: { url: string; size: number }): Promise<void> {
    const { HttpFile } = await import(/* @vite-ignore */ `${location.origin}/repository/app/web/out/src/source/http.js`) as typeof import("../../src/source/http.js");
    const piece = 4 << 20, file = await HttpFile.open(url, {}, 0, piece);
    for (let at = 0, bytes = new Uint8Array(piece); at < size; at += piece) {
        bytes = await file.readInto(bytes, at, undefined, undefined, size - at - piece) as typeof bytes;
        await new Promise((resolve) => setTimeout(resolve, 50));
    }
}

/* Zeros that begin as a model does. */
async function serveZeros(size: number, noStore: boolean): Promise<Server> {
    const bytes = Buffer.alloc(size);
    bytes.write("GGUF");
    const server = createServer((request, response) => {
        const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "") ?? [];
        response.writeHead(request.method === "OPTIONS" ? 204 : 206, {
            "Access-Control-Allow-Origin": "*", "Access-Control-Allow-Headers": "*", "Access-Control-Expose-Headers": "Content-Range",
            "Content-Range": `bytes ${from}-${to}/${size}`, ...(noStore && { "Cache-Control": "no-store" }),
        }).end(bytes.subarray(Number(from), Number(to) + 1));
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return server;
}

interface Loaded { tokens: number[]; seconds: number; answerSeconds: number; wasm: number; weights: number }

/* In the package's worker; the model stays open. */
async function loadKept({ from, prompt, n }: { from: string; prompt: number[]; n: number }): Promise<{ tokens: number[]; seconds: number; did: string[] }> {
    const { Beryl } = await import(/* @vite-ignore */ `${location.origin}/dist/index.js`) as typeof import("../../src/index.js");
    const did = new Set<string>(), began = performance.now();
    const model = await Beryl.load(from, { cache: "required", precision: "exact", context: 128, piece: 16, onProgress: ({ what }) => did.add(what) });
    const seconds = (performance.now() - began) / 1000, session = model.session();
    if (n) await session.generate(prompt, { greedy: true, ignoreEos: true, maxTokens: n }).result;
    return { tokens: [...await session.tokens()].slice(prompt.length, prompt.length + n), seconds, did: [...did] };
}

/* In the page, with the engine in place, so that one heap has all. `from`: an address, or the page's file input. */
async function loadAndAnswer({ from, prompt, n }: { from: string; prompt: number[]; n: number }): Promise<Loaded> {
    const { Beryl } = await import(/* @vite-ignore */ `${location.origin}/dist/index.js`) as typeof import("../../src/index.js");
    const file = document.querySelector("input")?.files?.[0], began = performance.now();
    const model = await Beryl.load(from || file!, { worker: false, precision: "exact", context: 128, piece: 16 });
    const ready = performance.now(), session = model.session();
    await session.generate(prompt, { greedy: true, ignoreEos: true, maxTokens: n }).result;
    const seconds = (ready - began) / 1000, answerSeconds = (performance.now() - ready) / 1000, { heapBytes: wasm, weightBytes: weights } = await model.stats();
    const tokens = [...await session.tokens()].slice(prompt.length, prompt.length + n);
    await model.close();
    return { tokens, seconds, answerSeconds, wasm, weights };
}

describe("a large model", { skip: executable ? false : "no Chromium is installed", timeout: 4 * LONG }, () => {
    const source = wideSource(WIDTH), reference = referenceCases("dense-31b")[0]!;
    let lab: Lab, browser: Browser, server: Server, folder: string;
    before(async () => {
        folder = await mkdtemp(`${tmpdir()}/beryl-`);
        [lab, server, browser] = [await openLab(), await serveSource(source), await launch()];
    });
    after(async () => {
        await browser.close();
        await lab.close();
        server.close();
        await rm(folder, { recursive: true });
    });

    for (const [i, kind] of ["file", "address"].entries())
        test(`large/${kind}`, { timeout: LONG, skip: leftOut(i, 3) }, async (t) => {
            const context = await browser.newContext(), page: Page = await context.newPage();
            await page.goto(lab.url);
            await page.evaluate(() => { document.body.innerHTML = "<input type=file>"; });
            if (kind === "file") {
                await writeSource(source, `${folder}/wide.gguf`);
                await page.locator("input").setInputFiles(`${folder}/wide.gguf`);
            }
            const heap = watchHeap(await context.newCDPSession(page)), n = 3;
            const from = kind === "file" ? "" : `http://127.0.0.1:${(server.address() as AddressInfo).port}/wide.gguf`;
            const loaded = await page.evaluate(loadAndAnswer, { from, prompt: [...reference.tokens], n });
            const most = await heap.end();
            t.diagnostic(`${(source.size / 1e6).toFixed(0)} MB: loaded in ${loaded.seconds.toFixed(1)} s, answered in ${loaded.answerSeconds.toFixed(1)} s, ` +
                `heap at most ${(most / 1e6).toFixed(1)} MB, and ${(loaded.wasm / 1e6).toFixed(1)} MB of the module`);
            assert.deepEqual(loaded.tokens, [...reference.greedy].slice(0, n));
            assert.ok(loaded.weights > 0.9 * source.size);
            assert.ok(most + loaded.wasm <= MOST, `${most} and ${loaded.wasm} bytes`);
            await context.close();
        });

    for (const [name, noStore, bound] of [["kept by caches", false, 20e6], ["no-store", true, 24e6]] as const)
        test(`large/ahead: ${name}`, { timeout: LONG }, async (t) => { // a browser takes in 100 MB that nobody has read
            const context = await browser.newContext(), page = await context.newPage(), size = 160 << 20, zeros = await serveZeros(size, noStore);
            await page.goto(lab.url);
            const heap = watchHeap(await context.newCDPSession(page));
            await page.evaluate(readSlowly, { url: `http://127.0.0.1:${(zeros.address() as AddressInfo).port}/zeros.gguf`, size });
            const most = await heap.end();
            t.diagnostic(`heap at most ${(most / 1e6).toFixed(1)} MB`);
            assert.ok(most < bound, `${most} bytes`);
            zeros.closeAllConnections();
            zeros.close();
            await context.close();
        });

    test("large/kept", { timeout: LONG, skip: leftOut(2, 3) }, async (t) => {
        const context = await browser.newContext(), from = `http://127.0.0.1:${(server.address() as AddressInfo).port}/wide.gguf`;
        const prompt = [...reference.tokens];
        const open = async (): Promise<Page> => {
            const page = await context.newPage();
            await page.goto(lab.url);
            return page;
        };
        const first = await open(), came = await first.evaluate(loadKept, { from, prompt, n: 0 });
        await first.close();
        const page = await open(), before = await residentOf(browser);
        let after = before, going = true;
        const watch = (async () => {
            for (; going; await new Promise((resolve) => setTimeout(resolve, 50))) after = Math.max(after, await residentOf(browser));
        })();
        const loaded = await page.evaluate(loadKept, { from, prompt, n: 1 });
        going = false;
        await watch;
        assert.deepEqual(loaded.tokens, [...reference.greedy].slice(0, 1));
        assert.ok(!loaded.did.includes("downloading"), loaded.did.join());
        t.diagnostic(`${(source.size / 1e6).toFixed(0)} MB: loaded from its address in ${came.seconds.toFixed(1)} s, as it was kept in ${loaded.seconds.toFixed(1)} s; ` +
            `resident ${((after - before) / 1e6).toFixed(0)} MB more at most than before`);
        if (before < 0) t.skip("the system does not tell what a process has resident");
        else assert.ok(after - before < source.size, `${after - before} bytes`); // the engine and its module alone are about 50 MB
        const inPage = await open(), again = await inPage.evaluate(loadAndAnswer, { from, prompt, n: 1 }); // no handles there: Blobs are read
        assert.deepEqual(again.tokens, [...reference.greedy].slice(0, 1));
        await context.close();
    });
});
