/*
 * full.ts - the address of the full module. A file of its own, so that only those who ask for it refer to it.
 */

/** The module with adapters, training, graphs of one's own and ONNX files. */
export function fullUrl(): string {
    return new URL(/* @vite-ignore */ "./beryl-full.wasm", import.meta.url).href;
}
