/*
 * inside.ts - the engine's and the graphs' cases in a worker of a browser. A message is a case's name; what it says goes back line by line,
 * then how it ended.
 */
import { CASES } from "../engine.cases.js";
import { FULL_CASES } from "../full.cases.js";
import { GRAPH_CASES } from "../graph.cases.js";

const LARGE = { ...FULL_CASES, ...GRAPH_CASES }; // of the full module

/** What comes back. */
export type Told = { line: string } | { failed: string } | { done: true };

addEventListener("message", ({ data: name }: MessageEvent<string>) => {
    const tell = (told: Told): void => postMessage(told);
    const run = async (): Promise<void> => {
        const work = CASES[name] ?? LARGE[name];
        if (!work) throw new Error(`no case ${name}`);
        const module = await WebAssembly.compileStreaming(fetch(name in LARGE ? "/dist/beryl-full.wasm" : "/dist/beryl.wasm"));
        await work({ gpu: navigator.gpu, module, say: (line) => tell({ line }) });
    };
    run().then(() => tell({ done: true }), (thrown: unknown) => tell({ failed: thrown instanceof Error ? `${thrown.message}\n${thrown.stack ?? ""}` : String(thrown) }));
});
