/*
 * bench.ts - `npm run bench`: the package and the page in headless Chromium on its software adapter, and the program on the
 * same driver beside them, as rows for docs/benchmarks.md.
 *
 * BERYL_PROGRAM names the program (default: build/bin/beryl of the repository); without it that column is empty.
 */
import { execFile, execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { loadavg, tmpdir } from "node:os";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import type { Page } from "playwright-core";
import { repository } from "../files.js";
import { wideSource } from "../reference.js";
import { executable, freshPage, launch, openSite, ROOT, watchHeap, writeSource } from "./chromium.js";
import { openLab } from "./lab.js";

const LONG = 600_000;
const DRIVER = "/usr/lib/chromium/vk_swiftshader_icd.json";
const WIDTH = 92160; // makes a file of 300 MB
const VISITS = 3;
const N_PROMPT = 256, N_ANSWER = 48, REPEATS = 3;

const say = (line: string): void => void process.stderr.write(`${line}\n`);
const seconds = (value: number): string => `${value.toFixed(1)} s`;
const megabytes = (value: number): string => `${(value / 1e6).toFixed(1)} MB`;
const speeds = (values: number[]): string => {
    const mean = values.reduce((a, b) => a + b, 0) / values.length;
    return `${mean.toFixed(1)} ± ${Math.sqrt(values.reduce((a, b) => a + (b - mean) ** 2, 0) / Math.max(1, values.length - 1)).toFixed(1)} tok/s`;
};

// ---- in the browser ----

/** From the address to the first word of the answer, and to a ready page at the second visit, in a browser that is new. */
async function visit(): Promise<{ first: number; second: number }> {
    const site = await openSite();
    const { page } = await freshPage(site);
    let began = Date.now();
    await page.goto(site.url);
    await page.locator("#prompt").fill("Tell me a very short story.");
    await page.locator("#prompt").press("Enter");
    await page.waitForFunction(() => (document.querySelector(".message.model .text")?.textContent ?? "") !== "", undefined, { timeout: LONG });
    const first = (Date.now() - began) / 1000;
    began = Date.now();
    await page.reload();
    await page.waitForFunction(() => (document.getElementById("adapter")?.textContent ?? "") !== "", undefined, { timeout: LONG });
    const second = (Date.now() - began) / 1000;
    await site.close();
    return { first, second };
}

interface Measured {
    adapter: string; loadSeconds: number; prompts: number[]; answers: number[]; heapBytes: number;
    /** Of one decode step. */
    step: Record<"blocks" | "submits" | "maps" | "dispatches" | "bytesOut" | "bytesIn", number>;
}

/* Runs in a page; the engine in place, so that its heap can be watched from outside. */
async function measure({ nPrompt, nAnswer, repeats }: { nPrompt: number; nAnswer: number; repeats: number }): Promise<Measured> {
    const { Beryl } = await import(/* @vite-ignore */ `${location.origin}/dist/index.js`) as typeof import("../../src/index.js");
    const began = performance.now(), model = await Beryl.load("builtin", { worker: false });
    const loadSeconds = (performance.now() - began) / 1000, session = model.session();
    const run = async (n: number, maxTokens: number) => {
        const tokens = Int32Array.from({ length: n }, (_, i) => i === 0 ? 2 : 100 + (i * 7919) % (model.info.nVocab - 200));
        await session.rewind(0);
        return await session.generate(tokens, { greedy: true, ignoreEos: true, maxTokens }).result;
    };
    await run(nPrompt, 8); // warm
    const prompts: number[] = [], answers: number[] = [];
    for (let i = 0; i < repeats; i++) {
        prompts.push(nPrompt / (await run(nPrompt, 1)).prefillSeconds);
        answers.push((nAnswer - 1) / (await run(1, nAnswer)).decodeSeconds);
    }
    const counts = [(await model.stats()).border];
    for (const n of [16, 48]) {
        await run(1, n);
        counts.push((await model.stats()).border);
    }
    const [a, b, c] = counts as [typeof counts[0], typeof counts[0], typeof counts[0]];
    const of = (key: keyof Measured["step"]): number => ((c[key] - b[key]) - (b[key] - a[key])) / 32;
    const step = { blocks: of("blocks"), submits: of("submits"), maps: of("maps"), dispatches: of("dispatches"), bytesOut: of("bytesOut"), bytesIn: of("bytesIn") };
    const { heapBytes } = await model.stats(), adapter = model.info.device.name;
    await model.close();
    return { adapter, loadSeconds, prompts, answers, heapBytes, step };
}

/* Runs in a page that has a file input. */
async function loadFile(): Promise<{ seconds: number; bytes: number; heapBytes: number }> {
    const { Beryl } = await import(/* @vite-ignore */ `${location.origin}/dist/index.js`) as typeof import("../../src/index.js");
    const file = document.querySelector("input")?.files?.[0], began = performance.now();
    const model = await Beryl.load(file!, { worker: false, context: 128 });
    const taken = (performance.now() - began) / 1000, { heapBytes, weightBytes } = await model.stats();
    await model.close();
    return { seconds: taken, bytes: weightBytes, heapBytes };
}

async function inBrowser(large: string): Promise<{ version: string; small: Measured; smallHeap: number; file: { seconds: number; bytes: number; heapBytes: number }; fileHeap: number }> {
    const lab = await openLab(), browser = await launch();
    const open = async (): Promise<Page> => {
        const page = await (await browser.newContext()).newPage();
        await page.goto(lab.url);
        return page;
    };
    let page = await open(), heap = watchHeap(await page.context().newCDPSession(page));
    say("the built-in model in Chromium");
    await page.evaluate(loadBuiltin);
    const smallHeap = await heap.end();
    page = await open(); // nobody watches: speeds are taken alone
    const small = await page.evaluate(measure, { nPrompt: N_PROMPT, nAnswer: N_ANSWER, repeats: REPEATS });
    say("a large file in Chromium");
    page = await open();
    await page.evaluate(() => { document.body.innerHTML = "<input type=file>"; });
    await page.locator("input").setInputFiles(large);
    heap = watchHeap(await page.context().newCDPSession(page));
    const file = await page.evaluate(loadFile), fileHeap = await heap.end(), version = browser.version();
    await browser.close();
    await lab.close();
    return { version, small, smallHeap, file, fileHeap };
}

async function loadBuiltin(): Promise<void> {
    const { Beryl } = await import(/* @vite-ignore */ `${location.origin}/dist/index.js`) as typeof import("../../src/index.js");
    const model = await Beryl.load("builtin", { worker: false });
    await model.chat([{ role: "user", content: "Tell me a very short story." }], { greedy: true, maxTokens: 16 }).text();
    await model.close();
}

// ---- beside it ----

interface Row { test: string; samples_ts: number[]; load_s: number; start_to_first_token_s: number; dispatches_per_token: number; host_bytes_peak: number; gpu_info: string }

/** Rows of `beryl bench` on the browser's own Vulkan driver; null where that or the program is missing. */
async function native(args: string[]): Promise<Row[] | null> {
    const program = process.env["BERYL_PROGRAM"] ?? repository("build/bin/beryl");
    if (!existsSync(program) || !existsSync(DRIVER)) return null;
    const { stdout } = await promisify(execFile)(program, ["bench", ...args, "--device", "webgpu", "-o", "json"],
        { env: { ...process.env, VK_ICD_FILENAMES: DRIVER, VK_DRIVER_FILES: DRIVER, XDG_RUNTIME_DIR: process.env["XDG_RUNTIME_DIR"] ?? "/tmp" }, maxBuffer: 1 << 24 });
    return JSON.parse(stdout) as Row[];
}

function packageSize(): { raw: number; packed: number } {
    const files = readdirSync(`${ROOT}dist`).filter((name) => /\.(js|wasm)$/.test(name)).map((name) => readFileSync(`${ROOT}dist/${name}`));
    const sum = (of: (bytes: Uint8Array) => number): number => files.reduce((all, bytes) => all + of(bytes), 0);
    return { raw: sum((bytes) => bytes.length), packed: sum((bytes) => gzipSync(bytes, { level: 9 }).length) };
}

if (!executable) {
    say("no Chromium is installed; BERYL_CHROMIUM names one");
    process.exit(1);
}
const folder = await mkdtemp(`${tmpdir()}/beryl-`), before = loadavg()[0] ?? 0;
try {
    const large = `${folder}/wide.gguf`, source = wideSource(WIDTH), visits: { first: number; second: number }[] = [];
    await writeSource(source, large);
    for (let i = 0; i < VISITS; i++) {
        say(`visit ${i + 1} of ${VISITS}`);
        visits.push(await visit());
    }
    // Before and after: what else the machine does then weighs on both sides.
    say("the program on the same driver");
    const args = ["-p", String(N_PROMPT), "-n", String(N_ANSWER), "-r", String(REPEATS)], rows = await native(args) ?? [];
    const { version, small, smallHeap, file, fileHeap } = await inBrowser(large);
    say("the program again");
    rows.push(...await native(args) ?? []);
    const wide = await native([large, "-p", "0", "-n", "1", "-r", "1"]);
    const rowsOf = (name: string): Row[] => rows.filter(({ test }) => test === name);
    const pp = rowsOf(`pp${N_PROMPT}`), tgs = rowsOf(`tg${N_ANSWER}`), tg = tgs[0], { raw, packed } = packageSize(), { step } = small;
    const each = (of: (row: Row) => number): string => tgs.map((row) => of(row).toFixed(1)).join(", ") + " s";
    const commit = execFileSync("git", ["-C", ROOT, "rev-parse", "--short", "HEAD"], { encoding: "utf8" }).trim();
    const table = [
        ["built-in model, answer of " + N_ANSWER, speeds(small.answers), "half of native", tg ? speeds(tgs.flatMap((row) => row.samples_ts)) : ""],
        ["built-in model, prompt of " + N_PROMPT, speeds(small.prompts), "", pp.length ? speeds(pp.flatMap((row) => row.samples_ts)) : ""],
        [`first visit to first word, ${VISITS} new browsers`, visits.map(({ first }) => first.toFixed(1)).join(", ") + " s", "5 s", tg ? `${each((row) => row.start_to_first_token_s)} from the program's start, by way of a prompt of ${N_PROMPT}` : ""],
        ["second visit to ready, the same", visits.map(({ second }) => second.toFixed(1)).join(", ") + " s", "", tg ? `${each((row) => row.load_s)}, load` : ""],
        ["load of the built-in model by the package", seconds(small.loadSeconds), "", tg ? each((row) => row.load_s) : ""],
        [`load of a file of ${(source.size / 1e6).toFixed(0)} MB, kernels and all`, `${seconds(file.seconds)}: ${(source.size / 1e6 / file.seconds).toFixed(0)} MB/s`, "",
            wide?.[0] ? `${seconds(wide[0].load_s)}: ${(source.size / 1e6 / wide[0].load_s).toFixed(0)} MB/s` : ""],
        ["a decode step: submits, maps, calls from wasm", `${step.submits}, ${step.maps}, ${step.blocks}`, "1, 1", ""],
        ["a decode step: dispatches", String(step.dispatches), "", tg ? String(tg.dispatches_per_token) : ""],
        ["a decode step: bytes out of wasm, and in", `${step.bytesOut}, ${step.bytesIn}`, "", ""],
        ["most memory of JavaScript, and of wasm: built-in model", `${megabytes(smallHeap)}, ${megabytes(small.heapBytes)}`, "100 MB", tg ? `${megabytes(tg.host_bytes_peak)} by Beryl's allocator` : ""],
        [`the same: the file of ${(source.size / 1e6).toFixed(0)} MB`, `${megabytes(fileHeap)}, ${megabytes(file.heapBytes)}`, "100 MB", wide?.[0] ? megabytes(wide[0].host_bytes_peak) : ""],
        ["module and JavaScript of the package", `${(raw / 1000).toFixed(0)} KB; ${(packed / 1000).toFixed(0)} KB by gzip -9`, "900; 320 KB", ""],
    ];
    const load = `${before.toFixed(1)} before, ${(loadavg()[0] ?? 0).toFixed(1)} after`;
    process.stdout.write([
        `## Chromium ${version}, headless, on ${small.adapter}`, "",
        "| what | measured | target | natively on the same driver | commit |", "| --- | ---: | ---: | ---: | --- |",
        ...table.map((cells) => `| ${cells.join(" | ")} | ${commit} |`), "",
        `${new Date().toISOString().slice(0, 10)}, \`npm run bench\` in app/web; load average ${load}; natively: ${tg?.gpu_info ?? "not measured, no program or driver"}.`, "",
    ].join("\n"));
} finally {
    await rm(folder, { recursive: true });
}
process.exit(0);
