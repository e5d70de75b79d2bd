/*
 * resume.test.ts - a tab that is closed in the middle of a download: the next one goes on where it was.
 */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import type { CachedModel } from "../../src/index.js";
import { leftOut } from "../draw.js";
import { referenceCases, wideSource } from "../reference.js";
import { serveFile, type FileServer } from "../server.js";
import { executable, launch } from "./chromium.js";
import { openLab, type Lab } from "./lab.js";

const LONG = 300_000;

async function kept(page: Page): Promise<CachedModel | undefined> {
    return await page.evaluate(async () => {
        const { Beryl } = await import(/* @vite-ignore */ `${location.origin}/dist/index.js`) as typeof import("../../src/index.js");
        return (await Beryl.cache.list())[0];
    });
}

/* Loads in the package's worker, and answers. */
async function loadAndAnswer({ url, prompt, n }: { url: string; prompt: number[]; n: number }): Promise<number[]> {
    const { Beryl } = await import(/* @vite-ignore */ `${location.origin}/dist/index.js`) as typeof import("../../src/index.js");
    const model = await Beryl.load(url, { precision: "exact", context: 128, piece: 16 }), session = model.session();
    await session.generate(prompt, { greedy: true, ignoreEos: true, maxTokens: n }).result;
    return [...await session.tokens()].slice(prompt.length, prompt.length + n);
}

describe("a closed tab", { skip: executable ? leftOut(3, 4) : "no Chromium is installed", timeout: 2 * LONG }, () => {
    const source = wideSource(16384), reference = referenceCases("dense-31b")[0]!;
    let lab: Lab, browser: Browser, server: FileServer;
    before(async () => {
        server = await serveFile(await source.read(0, source.size), { slow: 10 });
        [lab, browser] = [await openLab(), await launch()];
    });
    after(async () => {
        await browser.close();
        await lab.close();
        await server.close();
    });

    test("resume/what-had-come-is-not-fetched-again", async (t) => {
        const context = await browser.newContext(), order = { url: server.url, prompt: [...reference.tokens], n: 3 };
        const first = await context.newPage(), watcher = await context.newPage();
        await first.goto(lab.url);
        await watcher.goto(lab.url);
        const broken = first.evaluate(loadAndAnswer, order).then(() => "it was whole", () => "");
        while (((await kept(watcher))?.stored ?? 0) < 3 * 4194304) await new Promise((resolve) => setTimeout(resolve, 20));
        await first.close();
        assert.equal(await broken, "");
        const there = await kept(watcher);
        assert.ok(there && !there.complete && there.size === source.size, JSON.stringify(there));
        const before = server.log.length;
        server.faults.slow = 0;
        assert.deepEqual(await watcher.evaluate(loadAndAnswer, order), [...reference.greedy].slice(0, 3));
        while (!(await kept(watcher))?.complete) await new Promise((resolve) => setTimeout(resolve, 100));
        const asked = server.log.slice(before).map((line) => /^GET (\d+)-(\d+)$/.exec(line)).filter((match) => match !== null);
        const bytes = asked.reduce((sum, [, from, to]) => sum + Number(to) + 1 - Number(from), 0);
        t.diagnostic(`${there.stored} of ${there.size} bytes had come; ${bytes} were fetched then, in ${asked.length} requests`);
        assert.ok(bytes > 0 && bytes <= source.size - there.stored);
        await context.close();
    });
});
