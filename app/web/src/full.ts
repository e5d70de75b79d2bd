/*
 * full.ts - what comes with the full module: its address, and its models. A file of its own, so that only those who ask for it refer to it.
 */
export { fullModel } from "./full_model.js";

/** The module with adapters, training, graphs of one's own and ONNX files. */
export function fullUrl(): string {
    return new URL(/* @vite-ignore */ "./beryl-full.wasm", import.meta.url).href;
}
