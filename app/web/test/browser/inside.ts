/*
 * inside.ts - the engine's cases in a worker of a browser. A message is a case's name; what it says goes back line by line,
 * then how it ended.
 */
import { CASES } from "../engine.cases.js";
import { FULL_CASES } from "../full.cases.js";

/** What comes back. */
export type Told = { line: string } | { failed: string } | { done: true };

addEventListener("message", ({ data: name }: MessageEvent<string>) => {
    const tell = (told: Told): void => postMessage(told);
    const run = async (): Promise<void> => {
        const full = name in FULL_CASES, work = (full ? FULL_CASES : CASES)[name];
        if (!work) throw new Error(`no case ${name}`);
        const module = await WebAssembly.compileStreaming(fetch(`/dist/beryl${full ? "-full" : ""}.wasm`));
        await work({ gpu: navigator.gpu, module, say: (line) => tell({ line }) });
    };
    run().then(() => tell({ done: true }), (thrown: unknown) => tell({ failed: thrown instanceof Error ? `${thrown.message}\n${thrown.stack ?? ""}` : String(thrown) }));
});
