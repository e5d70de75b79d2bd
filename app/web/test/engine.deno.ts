/*
 * engine.deno.ts - the engine under Deno, on wgpu: `deno run -A --unstable-webgpu out/test/engine.deno.js [NAME ...]`.
 */
import { readFileSync } from "node:fs";
import { argv, env, exit } from "node:process";
import { CASES } from "./engine.cases.js";

const gpu = (globalThis.navigator as Navigator | undefined)?.gpu;
const wasm = env["BERYL_WASM"] ?? "dist/beryl.wasm", names = argv.slice(2);
let failed = 0;
if (!gpu || !await gpu.requestAdapter()) {
    console.log("skip: no WebGPU adapter here");
    exit(0);
}
for (const [name, run] of Object.entries(CASES)) {
    if (names.length && !names.some((prefix) => name.startsWith(prefix))) continue;
    const start = performance.now();
    try {
        await run({ gpu, module: await WebAssembly.compile(readFileSync(wasm)), say: (line) => console.log(`    ${line}`) });
        console.log(`ok   ${name} (${((performance.now() - start) / 1000).toFixed(1)} s)`);
    } catch (thrown) {
        failed++;
        console.log(`FAIL ${name}:`, thrown);
    }
}
exit(failed ? 1 : 0);
