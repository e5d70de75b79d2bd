/*
 * bench_texts.ts - `npm run bench:texts`: what making the kernels of E2B's plans takes in headless Chromium, by
 * bench/texts_bench.c as a module. Its device has what a GPU's would have, and does nothing.
 */
import { readFileSync } from "node:fs";
import { SHARED } from "../../src/gpu.js";
import { repository } from "../files.js";
import { executable, launch } from "./chromium.js";
import { openLab } from "./lab.js";

const REPEATS = 3;
const FACTS = {
    name: "nothing", driver: "", kind: "discrete", f16: true, timestamps: false, dot: true, subgroup: 32,
    maxComputeWorkgroupStorageSize: 32768, maxComputeInvocationsPerWorkgroup: 1024, maxComputeWorkgroupSizeX: 1024,
    maxComputeWorkgroupSizeY: 1024, maxComputeWorkgroupSizeZ: 64, maxComputeWorkgroupsPerDimension: 65535,
    maxStorageBuffersPerShaderStage: 10, maxStorageBufferBindingSize: 2 ** 31 - 4, maxBufferSize: 2 ** 32 - 2 ** 21,
    minStorageBufferOffsetAlignment: 32,
};

interface Plan { name: string; steps: number; programs: number; milliseconds: number }

/* Runs in the page. */
async function run({ code, facts, done, repeats }: { code: string; facts: string; done: number[]; repeats: number }): Promise<Plan[]> {
    const module = await WebAssembly.compile(Uint8Array.from(atob(code), (c) => c.charCodeAt(0)));
    let exports: Record<string, unknown> = {};
    const memory = (): ArrayBuffer => (exports["memory"] as WebAssembly.Memory).buffer;
    const { sin, cos, tan, asin, acos, atan, sinh, cosh, tanh, exp, log, log2, pow, atan2 } = Math;
    const own: Record<string, (...args: number[]) => number> = {
        sin, cos, tan, asin, acos, atan, sinh, cosh, tanh, exp, log, log2, pow, atan2,
        kept_read: () => -1,
        number_read: (at = 0, size = 0) => Number(new TextDecoder().decode(new Uint8Array(memory(), at, size))),
        gpu_open: (_self = 0, shared = 0) => { // all that is ever asked of it is done
            for (const at of done) new DataView(memory()).setFloat64(shared + at, 1e15, true);
            return 0;
        },
        gpu_facts: (to = 0) => new TextEncoder().encodeInto(facts, new Uint8Array(memory(), to)).written,
    };
    const imports: WebAssembly.Imports = {};
    for (const { module: from, name } of WebAssembly.Module.imports(module)) (imports[from] ??= {})[name] = own[name] ?? ((): number => 0);
    imports["wasi_snapshot_preview1"]!["clock_time_get"] = (_clock: number, _precision: bigint, to: number): number => {
        new DataView(memory()).setBigUint64(to, BigInt(Math.round(performance.now() * 1e6)), true);
        return 0;
    };
    exports = (await WebAssembly.instantiate(module, imports)).exports;
    const { _initialize, texts_run, texts_plan } = exports as Record<string, (n?: number) => number>;
    _initialize!();
    const SIZE = 32, plans: Plan[] = []; // of a cost: two doubles, three words
    for (let r = 0; r < repeats; r++) {
        const at = texts_run!();
        if (!at) throw new Error("the plans were not made");
        const view = new DataView(memory());
        for (let i = 0, name; (name = texts_plan!(i)); i++) {
            const text = new Uint8Array(memory(), name), cost = at + i * SIZE;
            const milliseconds = 1000 * (view.getFloat64(cost, true) + view.getFloat64(cost + 8, true));
            if (r) plans[i]!.milliseconds = Math.min(plans[i]!.milliseconds, milliseconds);
            else
                plans[i] = {
                    name: new TextDecoder().decode(text.subarray(0, text.indexOf(0))), steps: view.getUint32(cost + 16, true),
                    programs: view.getUint32(cost + 20, true), milliseconds,
                };
        }
    }
    return plans;
}

if (!executable) throw new Error("no Chromium is installed; BERYL_CHROMIUM names one");
const lab = await openLab(), browser = await launch(), page = await (await browser.newContext()).newPage();
await page.goto(lab.url);
const code = readFileSync(repository("build/web/texts_bench.wasm")).toString("base64");
const plans: Plan[] = await page.evaluate(run, { code, facts: JSON.stringify(FACTS), done: [SHARED.done, SHARED.uploaded, SHARED.settled], repeats: REPEATS });
const sum = (of: (plan: Plan) => number): number => plans.reduce((all, plan) => all + of(plan), 0);
const all: Plan = { name: "all", steps: sum((p) => p.steps), programs: sum((p) => p.programs), milliseconds: sum((p) => p.milliseconds) };
process.stdout.write([
    `E2B's plans in Chromium ${browser.version()}, best of ${REPEATS}`, "",
    "| plan | steps | new programs | ms |", "| --- | ---: | ---: | ---: |",
    ...[...plans, all].map((p) => `| ${p.name} | ${p.steps} | ${p.programs} | ${p.milliseconds.toFixed(1)} |`), "",
].join("\n"));
await browser.close();
await lab.close();
process.exit(0);
