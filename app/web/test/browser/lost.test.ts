/*
 * lost.test.ts - a device that somebody else destroys: the answer fails as when the GPU's process dies, and the model comes back.
 */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Browser } from "playwright-core";
import { leftOut } from "../draw.js";
import { executable, launch } from "./chromium.js";
import { openLab, type Lab } from "./lab.js";

const LONG = 300_000;

interface Seen { statuses: string[]; hints: string[]; states: string[]; text: string; before: string }

/* In the page, with the engine in place. Every device that is made is at hand. */
async function destroyInAnswer(url: string): Promise<Seen> {
    const devices: GPUDevice[] = [], request = GPUAdapter.prototype.requestDevice;
    GPUAdapter.prototype.requestDevice = async function (...args) {
        const device = await request.apply(this, args);
        devices.push(device);
        return device;
    };
    const { Beryl, BerylError } = await import(/* @vite-ignore */ `${location.origin}/dist/index.js`) as typeof import("../../src/index.js");
    const model = await Beryl.load(url, { worker: false, precision: "exact", context: 512 });
    const seen: Seen = { statuses: [], hints: [], states: [], text: "", before: "" };
    model.onstatechange = ({ state }) => seen.states.push(state);
    const ask = (session = model.session()) => session.generate([2, 5, 7, 9], { greedy: true, ignoreEos: true, maxTokens: 12 });
    const session = model.session();
    await ask(session).result;
    seen.before = String(await session.tokens());
    const end = (thrown: unknown): void => {
        if (thrown instanceof BerylError) [seen.statuses, seen.hints] = [[...seen.statuses, thrown.status], [...seen.hints, thrown.hint]];
        else throw thrown;
    };
    const running = session.generate([2, 5, 7, 9, 11], { greedy: true, ignoreEos: true, maxTokens: 400 });
    for await (const part of running) {
        void part;
        break; // an answer is under way
    }
    const answer = session.generate([2, 5, 7, 9, 13], { greedy: true, ignoreEos: true, maxTokens: 400 });
    setTimeout(() => devices.at(-1)?.destroy(), 50);
    await answer.result.catch(end);
    const again = model.session();
    await ask(again).result;
    seen.text = String(await again.tokens());
    await model.close();
    return seen;
}

describe("a device that is destroyed", { skip: executable ? leftOut(2, 4) : "no Chromium is installed", timeout: 2 * LONG }, () => {
    let lab: Lab, browser: Browser;
    before(async () => { [lab, browser] = [await openLab(), await launch()]; });
    after(async () => {
        await browser.close();
        await lab.close();
    });

    test("lost/a-destroyed-device-is-a-lost-one", { timeout: LONG }, async () => {
        const context = await browser.newContext(), page = await context.newPage();
        await page.goto(lab.url);
        const seen = await page.evaluate(destroyInAnswer, `${lab.url}repository/tests/data/dense-31b.gguf`);
        assert.deepEqual(seen.statuses, ["DEVICE_LOST"]);
        assert.match(seen.hints[0] ?? "", /loaded again by itself/);
        assert.deepEqual(seen.states, ["lost", "ready", "closed"]);
        assert.equal(seen.text, seen.before);
        await context.close();
    });
});
