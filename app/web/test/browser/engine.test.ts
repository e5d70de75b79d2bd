/*
 * engine.test.ts - the engine's numbers in headless Chromium itself, in a worker, on its software adapter: logits of the text
 * fixtures within tolerance, greedy answers token for token, saved sessions that go on; of the full module adapters and a training.
 */
import { after, before, describe, test } from "node:test";
import type { BrowserContext, Page } from "playwright-core";
import { leftOut } from "../draw.js";
import { executable, launch } from "./chromium.js";
import type { Told } from "./inside.js";
import { openLab, type Lab } from "./lab.js";

const LONG = 600_000; // software adapters, on machines that do other things too

/* The others have nothing of a browser's own, and run under Deno. In an order in which each draw has as much to do. */
const NAMES = [
    // the first one answers with e2b-f32; Deno has the logits of e2b-q4_0
    "full/training-as-peft-first-steps", "engine/default-model", "engine/logits-and-answers-e2b-q4km",
    "engine/logits-and-answers-dense-31b", "engine/logits-and-answers-moe-26b", "full/adapters-as-peft",
    "graph/rows-of-a-run-vary", "graph/every-kind-of-argument", "engine/two-sessions-saved-and-restored",
    "graph/gradients-and-steps", "graph/an-onnx-file-runs", "full/training-with-pictures", "graph/buffers-of-the-gpu-stay-there",
    ...process.env["BERYL_TEST_ALL"] ? ["engine/logits-and-answers-e2b-f32", "engine/logits-and-answers-e2b-q4_0", "full/training-on-pictures", "full/training-as-peft"] : [],
];

describe("engine in Chromium", { skip: executable ? false : "no Chromium is installed", timeout: 2 * LONG }, () => {
    let lab: Lab, context: BrowserContext, page: Page, end: () => Promise<void>;
    before(async () => {
        lab = await openLab();
        const browser = await launch();
        context = await browser.newContext();
        page = await context.newPage();
        end = () => browser.close();
        await page.goto(lab.url);
    });
    after(async () => {
        await end();
        await lab.close();
    });

    for (const [i, name] of NAMES.entries())
        test(name, { timeout: LONG, skip: name.startsWith("graph/") ? false : leftOut(i, 3) }, async (t) => {
            const told = await page.evaluate((which) => new Promise<Told[]>((resolve) => {
                const all: Told[] = [], worker = new Worker("/inside.js", { type: "module" });
                const take = (one: Told): void => {
                    all.push(one);
                    if ("line" in one) return;
                    worker.terminate();
                    resolve(all);
                };
                worker.onmessage = ({ data }: MessageEvent<Told>) => take(data);
                worker.onerror = ({ message }) => take({ failed: message });
                worker.postMessage(which);
            }), name);
            for (const one of told) {
                if ("line" in one) t.diagnostic(one.line);
                if ("failed" in one) throw new Error(one.failed);
            }
        });
});
