/*
 * engine.test.ts - the engine under Node, on Dawn (npm `webgpu`), where that is installed and finds an adapter.
 *
 * Dawn wants more than Debian's lavapipe has; Chromium's SwiftShader serves.
 */
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { after, test } from "node:test";
import { leftOut } from "./draw.js";
import { CASES } from "./engine.cases.js";
import { repository } from "./files.js";

const DRIVERS = ["/usr/lib/chromium/vk_swiftshader_icd.json", "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json"];

/* All are run by Deno or by Chromium, which has the same Dawn inside; here too with BERYL_TEST_SLOW=1. */
const ENOUGH = ["engine/pictures-and-sound-e2b-mm", ...process.env["BERYL_TEST_ALL"] ? ["engine/logits-and-answers-dense-31b", "engine/default-model"] : []];

interface Dawn { create(options: string[]): GPU }

async function findGpu(): Promise<GPU | string> {
    const driver = DRIVERS.find(existsSync);
    if (driver) process.env["VK_ICD_FILENAMES"] = process.env["VK_DRIVER_FILES"] = driver;
    process.env["XDG_RUNTIME_DIR"] ??= "/tmp";
    for (const name of ["webgpu", pathToFileURL(repository("third_party/node_modules/webgpu/index.js")).href]) {
        const dawn = await (import(name) as Promise<Dawn>).catch(() => null);
        if (!dawn) continue;
        const gpu = dawn.create(["enable-dawn-features=allow_unsafe_apis"]);
        return await gpu.requestAdapter() ? gpu : "Dawn finds no adapter";
    }
    return "the npm package webgpu is not there: tools/setup test";
}

const wasm = process.env["BERYL_WASM"] ?? "dist/beryl.wasm";
const full = process.env["BERYL_FULL_WASM"] ?? "dist/beryl-full.wasm";
const gpu = existsSync(wasm) ? await findGpu() : `${wasm} is not there: make web-module`;
for (const [name, run] of Object.entries(CASES)) {
    if (!ENOUGH.includes(name) && !process.env["BERYL_TEST_SLOW"]) continue;
    test(name, { skip: typeof gpu === "string" ? gpu : leftOut(0, 2), timeout: 600_000 }, async (t) => {
        if (typeof gpu === "string") return;
        await run({ gpu, module: await WebAssembly.compile(readFileSync(wasm)), say: (line) => t.diagnostic(line) });
    });
}
test("engine/the-full-module-has-all-of-the-small-one", { skip: existsSync(full) && existsSync(wasm) ? false : "the modules are not there: make web-module" }, async () => {
    const names = async (path: string): Promise<string[]> =>
        WebAssembly.Module.exports(await WebAssembly.compile(readFileSync(path))).map(({ name, kind }) => `${kind} ${name}`);
    const has = new Set(await names(full)), small = await names(wasm);
    assert.deepEqual(small.filter((name) => !has.has(name)), []);
    assert.ok(has.has("function graph_open") && has.size > small.length);
});
after(() => { if (typeof gpu !== "string") setTimeout(() => process.exit(), 200); }); // Dawn keeps Node alive
