/*
 * onnx_page.ts - ONNX models in a page of a headless Chromium, for tools/onnx-check: a line of JSON from standard input is a case,
 * a line to standard output what came of it. All cases run in one page, as long as it lives; one that takes too long ends with its page.
 */
import { createInterface } from "node:readline";
import type { Page } from "playwright-core";
import { executable, launch } from "./chromium.js";
import { openLab } from "./lab.js";

const LONGEST = 120_000; // milliseconds

/** A tensor: its type as the package names it, its numbers as base64. */
interface Tensor { name: string; type: string; dims: number[]; data: string }
/** A model, and numbers for its inputs. */
export interface Case { model: string; inputs: Tensor[] }
/** Its outputs, or why there are none. */
export type Outcome = { outputs: Tensor[] } | { refused: string };

/* In the page. */
async function runCase({ model: file, inputs }: Case): Promise<Outcome> {
    const { loadOnnx, BerylError } = await import(/* @vite-ignore */ `${location.origin}/dist/graph.js`) as typeof import("../../src/graph/index.js");
    const kept = globalThis as { fullModule?: Promise<WebAssembly.Module> };
    const arrays: Record<string, (new(buffer: ArrayBuffer) => ArrayBufferView) | undefined> = {
        f32: Float32Array, f64: Float64Array, f16: Uint16Array, bf16: Uint16Array, i8: Int8Array, i16: Int16Array, i32: Int32Array, i64: BigInt64Array, u16: Uint16Array, u32: Uint32Array };
    const bytesOf = (text: string): Uint8Array<ArrayBuffer> => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const textOf = (bytes: Uint8Array): string => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
    try {
        const module = await (kept.fullModule ??= WebAssembly.compileStreaming(fetch("/dist/beryl-full.wasm")));
        const given = Object.fromEntries(inputs.map(({ name, type, data }) => [name, new (arrays[type] ?? Uint8Array)(bytesOf(data).buffer)]));
        const shapes = Object.fromEntries(inputs.map(({ name, dims }) => [name, dims]));
        const model = await loadOnnx(bytesOf(file), { module, precision: "exact", shapes, constants: given });
        try {
            const found = await model.run(given);
            return { outputs: model.outputs.map(({ name, type, dims }) => {
                const numbers = found[name];
                return { name, type, dims, data: numbers ? textOf(new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength)) : "" };
            }) };
        } finally {
            model.close();
        }
    } catch (thrown) {
        if (thrown instanceof BerylError) return { refused: thrown.message };
        throw thrown;
    }
}

if (!executable) throw new Error("no Chromium is installed");
const lab = await openLab(), browser = await launch();
let page: Page | null = null;
for await (const line of createInterface({ input: process.stdin })) {
    if (!page) {
        page = await browser.newPage();
        await page.goto(lab.url);
    }
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<never>((_, reject) => { timer = setTimeout(() => reject(new Error(`not done after ${LONGEST / 1000} s`)), LONGEST); });
    let outcome: Outcome;
    try {
        outcome = await Promise.race([page.evaluate(runCase, JSON.parse(line) as Case), late]);
    } catch (thrown) {
        outcome = { refused: (thrown as Error).message };
        await page.close();
        page = null;
    }
    clearTimeout(timer);
    process.stdout.write(`${JSON.stringify(outcome)}\n`);
}
await browser.close();
await lab.close();
