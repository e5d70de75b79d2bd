/*
 * bench_load.ts - `npm run bench:load [-- FILE]`: how fast a model comes into the engine, beside what it is made of: the wire
 * alone, writing of the kept copy alone, the load over HTTP, and loads of what was kept; and what the heaps of page and workers and
 * the module's memory hold at most in a first load. Without FILE one of 300 MB is made.
 * Of a FILE the speeds too (tg128, pp512, and what a prompt of 512 submits and maps), those of the built-in model, and natively by BERYL_PROGRAM, if it is named.
 *
 * The page asks for its work and tells what came of it; no tool watches its network, which would copy every answer.
 * BERYL_CHROMIUM names the browser, BERYL_CHROMIUM_FLAGS more flags for it. Needs Node and dist, no bundler.
 */
import { execFile } from "node:child_process";
import { createReadStream, existsSync, readFileSync, statSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import type { IncomingMessage, ServerResponse } from "node:http";
import { loadavg, tmpdir } from "node:os";
import { extname } from "node:path";
import { promisify } from "node:util";
import { Bare } from "./bare.js";
import { executable, ROOT, writeSource } from "./chromium.js";

const WIDTH = 92160; // makes a file of 300 MB
const LOADS = 3;
const WARM = 3, REPEATS = 5, N_PROMPT = 512, N_ANSWER = 128;
const TYPES: Record<string, string> = { ".js": "text/javascript", ".wasm": "application/wasm" };

/* In a worker of the page: seconds that each part takes alone, with nothing done with the bytes. */
async function alone(size: number): Promise<Record<string, number>> {
    const took: Record<string, number> = {}, piece = new Uint8Array(4 << 20).fill(7), n = Math.ceil(size / piece.length);
    const time = async (name: string, work: () => Promise<unknown>): Promise<void> => {
        const began = performance.now();
        await work();
        took[name] = (performance.now() - began) / 1000;
    };
    for (const [name, at] of [["wire", "/model.gguf"], ["cached", "/cached/model.gguf"]] as const) await time(name, async () => {
        const reader = (await fetch(at, { cache: "no-store" })).body!.getReader({ mode: "byob" });
        for (let room = new Uint8Array(1 << 20);;) {
            const { value, done } = await reader.read(room);
            if (done || !value) break;
            room = new Uint8Array(value.buffer); // thrown away
        }
    });
    const root = await navigator.storage.getDirectory();
    const write = async (name: string, lanes: number, one: (folder: FileSystemDirectoryHandle, i: number) => Promise<void>): Promise<void> => {
        const folder = await root.getDirectoryHandle("alone", { create: true });
        let next = 0;
        await time(name, () => Promise.all(Array.from({ length: lanes }, async () => { while (next < n) await one(folder, next++); })));
        await root.removeEntry("alone", { recursive: true });
    };
    await write("handles", 2, async (folder, i) => {
        const file = await folder.getFileHandle(String(i), { create: true }) as unknown as {
            createSyncAccessHandle(): Promise<{ write(data: Uint8Array, at: { at: number }): number; close(): void }>;
        };
        const handle = await file.createSyncAccessHandle();
        handle.write(piece, { at: 0 });
        handle.close();
    });
    await write("streams", 6, async (folder, i) => {
        const out = await (await folder.getFileHandle(String(i), { create: true })).createWritable();
        await out.write(piece);
        await out.close();
    });
    return took;
}

function inWorker(): Promise<Record<string, number>> {
    return new Promise((resolve) => {
        new Worker("/alone.js").onmessage = ({ data }) => resolve(data as Record<string, number>);
    });
}

interface Took { whole: number; began: number; weights: number; adapter: string; wasm: number }

/* In the page, by the package's worker. Seconds from the start: the first and the last word of weights, and all. */
async function load({ cache, at = "model.gguf" }: { cache: "required" | "auto"; at?: string }): Promise<Took> {
    if (cache === "required") await caches.delete("beryl-kept"); // a first one checks its kernels
    const { Beryl } = await import(/* @vite-ignore */ `${location.origin}/dist/index.js`) as typeof import("../../src/index.js");
    const start = performance.now(), now = (): number => (performance.now() - start) / 1000;
    let began = 0, weights = 0;
    const model = await Beryl.load(`${location.origin}/${at}`, { cache, onProgress: ({ what }) => {
        if (what === "loading weights") [began, weights] = [began || now(), now()];
    } });
    const took = { whole: now(), began, weights, adapter: model.info.device.name, wasm: (await model.stats()).heapBytes };
    await model.close();
    return took;
}

interface Speeds { prompts: number[]; answers: number[]; submits: number; maps: number; dispatches: number; bytesOut: number }

/* The same, of what was kept: tok/s of prompts and of answers, and what the last prompt took. Cold runs are thrown away. */
async function speeds({ source, nPrompt, nAnswer, warm, repeats }: { source: string; nPrompt: number; nAnswer: number; warm: number; repeats: number }): Promise<Speeds> {
    const { Beryl } = await import(/* @vite-ignore */ `${location.origin}/dist/index.js`) as typeof import("../../src/index.js");
    const model = await Beryl.load(source), session = model.session(), prompts: number[] = [], answers: number[] = [];
    const run = async (n: number, maxTokens: number) => {
        await session.rewind(0);
        const tokens = Int32Array.from({ length: n }, (_, i) => i === 0 ? 2 : 100 + (i * 7919) % (model.info.nVocab - 200));
        return await session.generate(tokens, { greedy: true, ignoreEos: true, maxTokens }).result;
    };
    for (let i = 0; i < warm + repeats; i++) answers.push((nAnswer - 1) / (await run(1, nAnswer)).decodeSeconds);
    let before = (await model.stats()).border, after = before;
    for (let i = 0; i < warm + repeats; i++) {
        before = (await model.stats()).border;
        prompts.push(nPrompt / (await run(nPrompt, 1)).prefillSeconds);
        after = (await model.stats()).border;
    }
    await model.close();
    const of = (key: "submits" | "maps" | "dispatches" | "bytesOut"): number => after[key] - before[key];
    return { prompts: prompts.slice(warm), answers: answers.slice(warm), submits: of("submits"), maps: of("maps"), dispatches: of("dispatches"), bytesOut: of("bytesOut") };
}

/* What the program says of the same by WebGPU. */
async function native(model: string): Promise<string> {
    const program = process.env["BERYL_PROGRAM"];
    if (!program) return "natively: not measured, BERYL_PROGRAM names no program\n";
    const args = ["bench", model, "-p", String(N_PROMPT), "-n", String(N_ANSWER), "-r", String(REPEATS), "--device", "webgpu", "-o", "json"];
    const { stdout } = await promisify(execFile)(program, args, { maxBuffer: 1 << 24 });
    return (JSON.parse(stdout) as { test: string; samples_ts: number[]; gpu_info: string }[]).map(({ test, samples_ts, gpu_info }) => speedRow(`natively, ${test} (${gpu_info})`, samples_ts)).join("");
}

function speedRow(name: string, values: number[]): string {
    const sorted = [...values].sort((a, b) => a - b);
    return `${name.padEnd(52)} ${(sorted[sorted.length >> 1] ?? 0).toFixed(1).padStart(9)} tok/s, of ${values.map((value) => value.toFixed(0)).join(", ")}\n`;
}

function serve(model: string, pathname: string, request: IncomingMessage, response: ServerResponse): void {
    const size = statSync(model).size, file = `${ROOT}${pathname.slice(1)}`;
    if (pathname === "/alone.js") response.setHeader("Content-Type", "text/javascript").end(`(${alone.toString()})(${size}).then(postMessage);`);
    else if (/^\/(again\/|cached\/)?model\.gguf$/.test(pathname)) {
        const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "") ?? [];
        const start = Number(from ?? 0), end = Math.min(Number(to ?? size - 1), size - 1);
        response.writeHead(from ? 206 : 200, { ETag: "\"bench\"", ...(!pathname.startsWith("/cached/") && { "Cache-Control": "no-store" }), "Content-Length": end + 1 - start, ...(from && { "Content-Range": `bytes ${start}-${end}/${size}` }) });
        const stream = createReadStream(model, { start, end, highWaterMark: 1 << 20 });
        stream.pipe(response);
        response.on("close", () => stream.destroy());
    } else if (/^\/dist\/[\w.-]+$/.test(pathname) && existsSync(file)) response.setHeader("Content-Type", TYPES[extname(file)] ?? "application/octet-stream").end(readFileSync(file));
    else response.writeHead(404).end();
}

if (!executable) {
    process.stderr.write("no Chromium is installed; BERYL_CHROMIUM names one\n");
    process.exit(1);
}
const folder = await mkdtemp(`${tmpdir()}/beryl-`);
let model = process.argv[2];
if (!model) await writeSource((await import("../reference.js")).wideSource(WIDTH), model = `${folder}/wide.gguf`);
const path = model, size = statSync(path).size, rows: string[] = [];
const page = await Bare.open(`${folder}/profile`, (pathname, request, response) => serve(path, pathname, request, response));
const row = (name: string, seconds: number, note = ""): void => {
    rows.push(`${name.padEnd(52)} ${seconds.toFixed(2).padStart(7)} s ${(size / seconds / 1e9).toFixed(2).padStart(6)} GB/s${note}`);
};
try {
    const took = await page.run(inWorker, null);
    row("the wire alone, one stream", took["wire"]!);
    row("the same, of a file that caches may keep", took["cached"]!);
    row("writing alone, pieces by synchronous handles", took["handles"]!);
    row("writing alone, pieces by streams", took["streams"]!);
    let adapter = "";
    for (let i = 0; i <= LOADS; i++) {
        const { whole, began, weights, adapter: name } = await page.run(load, { cache: i ? "auto" : "required" });
        if (i) row("load of what was kept: its weights", weights - began, `, from ${began.toFixed(2)} to ${weights.toFixed(2)} s, ready after ${whole.toFixed(2)} s`);
        else row("load over HTTP and keeping, to the last weight", weights, `, ready after ${whole.toFixed(2)} s`);
        adapter = name;
    }
    for (const [at, note] of [["again/model.gguf", ""], ["cached/model.gguf", ", of a file that caches may keep"]] as const) {
        const { value: { wasm, weights }, most } = await page.watched(load, { cache: "required", at });
        rows.push(`most memory of a load over HTTP${note}: scripts ${(most / 1e6).toFixed(1)}, module ${(wasm / 1e6).toFixed(1)} MB (watched, ${weights.toFixed(2)} s)`);
    }
    process.stdout.write(`${(size / 1e9).toFixed(2)} GB on ${adapter}, load average ${(loadavg()[0] ?? 0).toFixed(1)}\n${rows.join("\n")}\n`);
    if (process.argv[2]) {
        for (const source of ["builtin", "/model.gguf"]) {
            const { prompts, answers, ...prompt } = await page.run(speeds, { source, nPrompt: N_PROMPT, nAnswer: N_ANSWER, warm: WARM, repeats: REPEATS });
            const name = `in the page, ${source === "builtin" ? "the built-in model, " : ""}`;
            process.stdout.write(speedRow(`${name}tg${N_ANSWER}`, answers) + speedRow(`${name}pp${N_PROMPT}`, prompts) + `a prompt of ${N_PROMPT}: ${JSON.stringify(prompt)}\n`);
        }
        process.stdout.write(await native(path));
    }
} finally {
    await page.close();
    await rm(folder, { recursive: true, force: true });
}
