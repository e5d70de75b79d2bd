/*
 * engine.deno.ts - the engine under Deno, on wgpu, which gives f16 on software Vulkan too:
 * `deno run -A --unstable-webgpu out/test/engine.deno.js [NAME ...]`. deno.test.ts calls it for each case.
 */
import { readFileSync } from "node:fs";
import { argv, env, exit } from "node:process";
import { CASES, GPU_CASES } from "./engine.cases.js";
import { GRAPH_CASES } from "./graph.cases.js";

/* Deno's compiler knows subgroups but not yet the line that asks for them, so its adapters do not offer them, though their
 * devices have them. For the cases that want both, adapters offer them and the line is left out. */
function withSubgroups(gpu: GPU): GPU {
    return {
        wgslLanguageFeatures: gpu.wgslLanguageFeatures,
        requestAdapter: async (options: GPURequestAdapterOptions) => {
            const adapter = await gpu.requestAdapter(options);
            if (!adapter) return null;
            const open = adapter.requestDevice.bind(adapter);
            Object.defineProperty(adapter, "features", { value: new Set([...adapter.features, "subgroups"]) });
            adapter.requestDevice = async (descriptor) => {
                const device = await open(descriptor), compile = device.createShaderModule.bind(device);
                device.createShaderModule = (module) => compile({ ...module, code: module.code.replaceAll(/^enable subgroups;/gm, "") });
                return device;
            };
            return adapter;
        },
    } as GPU;
}

const gpu = (globalThis.navigator as Navigator | undefined)?.gpu;
const wasm = env["BERYL_WASM"] ?? "dist/beryl.wasm", full = env["BERYL_FULL_WASM"] ?? "dist/beryl-full.wasm", names = argv.slice(2);
let failed = 0;
if (!gpu || !await gpu.requestAdapter()) {
    console.log("skip: no WebGPU adapter here");
    exit(0);
}
for (const [name, run] of Object.entries({ ...CASES, ...GPU_CASES, ...GRAPH_CASES })) {
    if (names.length && !names.some((prefix) => name.startsWith(prefix))) continue;
    const start = performance.now();
    try {
        const module = await WebAssembly.compile(readFileSync(name in GRAPH_CASES ? full : wasm));
        await run({ gpu: name in GPU_CASES ? withSubgroups(gpu) : gpu, module, say: (line) => console.log(`    ${line}`) });
        console.log(`ok   ${name} (${((performance.now() - start) / 1000).toFixed(1)} s)`);
    } catch (thrown) {
        failed++;
        console.log(`FAIL ${name}:`, thrown);
    }
}
exit(failed ? 1 : 0);
