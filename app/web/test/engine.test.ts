/*
 * engine.test.ts - the engine under Node, on Dawn (npm `webgpu`), where that is installed and finds an adapter.
 *
 * Dawn wants more than Debian's lavapipe has; Chromium's SwiftShader serves.
 */
import { existsSync, readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { after, test } from "node:test";
import { CASES } from "./engine.cases.js";
import { repository } from "./files.js";

const DRIVERS = ["/usr/lib/chromium/vk_swiftshader_icd.json", "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json"];

/* Minutes on SwiftShader, which takes kernels for GPUs badly; Deno runs them (engine.deno.ts), and BERYL_TEST_SLOW=1 here.
 * The others are Chromium's to run (browser/engine.test.ts), which has the same Dawn inside. */
const SLOW = ["engine/kernels-are-checked-once", "engine/logits-and-answers-e2b-q4km", "engine/logits-and-answers-dense-31b", "engine/logits-and-answers-moe-26b"];

interface Dawn { create(options: string[]): GPU }

async function findGpu(): Promise<GPU | string> {
    process.env["VK_ICD_FILENAMES"] ??= DRIVERS.find(existsSync) ?? "";
    process.env["XDG_RUNTIME_DIR"] ??= "/tmp";
    for (const name of ["webgpu", pathToFileURL(repository("third_party/node_modules/webgpu/index.js")).href]) {
        const dawn = await (import(name) as Promise<Dawn>).catch(() => null);
        if (!dawn) continue;
        const gpu = dawn.create(["enable-dawn-features=allow_unsafe_apis"]);
        return await gpu.requestAdapter() ? gpu : "Dawn finds no adapter";
    }
    return "the npm package webgpu is not there: npm install --prefix third_party webgpu";
}

const wasm = process.env["BERYL_WASM"] ?? "dist/beryl.wasm";
const gpu = existsSync(wasm) ? await findGpu() : `${wasm} is not there: make web-module`;
for (const [name, run] of Object.entries(CASES)) {
    const slow = SLOW.includes(name) && !process.env["BERYL_TEST_SLOW"] && "left to Deno or Chromium";
    test(name, { skip: typeof gpu === "string" ? gpu : slow, timeout: 600_000 }, async (t) => {
        if (typeof gpu === "string") return;
        await run({ gpu, module: await WebAssembly.compile(readFileSync(wasm)), say: (line) => t.diagnostic(line) });
    });
}
after(() => { if (typeof gpu !== "string") setTimeout(() => process.exit(), 200); }); // Dawn keeps Node alive
