/*
 * honest.test.ts - never silently wrong: what a page is told where there is no WebGPU, too little memory, or a driver that
 * computes wrong numbers. Faults are put into the browser's own WebGPU, before the package sees it.
 */
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import type { Browser, BrowserContext, Page } from "playwright-core";
import { leftOut } from "../draw.js";
import { referenceCases, wideSource } from "../reference.js";
import { serveFile } from "../server.js";
import { executable, FIXTURES, freshPage, launch, openSite, type Site } from "./chromium.js";
import { openLab, type Lab } from "./lab.js";

const LONG = 300_000;

/* Buffers of a device beyond `most` bytes ask for as much as no allocation gets; `once`: only the first of them. Runs in the page. */
function lackMemory({ most, once }: { most: number; once: boolean }): void {
    const make = GPUDevice.prototype.createBuffer, used = new WeakMap<GPUDevice, number>();
    let refused = 0;
    GPUDevice.prototype.createBuffer = function (descriptor) {
        const after = (used.get(this) ?? 0) + descriptor.size;
        if (!(descriptor.usage & 0x80)) return make.call(this, descriptor);
        if (after > most && !(once && refused++)) return make.call(this, { ...descriptor, size: this.limits.maxBufferSize });
        const buffer = make.call(this, descriptor), destroy = buffer.destroy.bind(buffer);
        used.set(this, after);
        buffer.destroy = () => {
            used.set(this, (used.get(this) ?? 0) - descriptor.size);
            destroy();
        };
        return buffer;
    };
}

/* The adapter's compiler takes `from` for `to`; where it is not `plain`, it passes for a GPU. Runs in the page or its worker. */
function lieAbout({ from, to, plain }: { from: string; to: string; plain?: boolean }): void {
    const make = GPUDevice.prototype.createShaderModule;
    if (!plain) Object.defineProperty(GPUAdapter.prototype, "info", { get: () => ({ vendor: "test", architecture: "one", device: "", description: "A test's GPU", isFallbackAdapter: false }) });
    GPUDevice.prototype.createShaderModule = function (descriptor) {
        return make.call(this, { ...descriptor, code: descriptor.code.replaceAll(from, to) });
    };
}

interface Outcome { status: string; message: string; hint: string; tokens: number[]; did: string[]; said: string[] }

/* Loads in the page itself, where the faults are, and answers. */
async function loadAndAnswer({ url, options, prompt, n }: { url: string; options: object; prompt: number[]; n: number }): Promise<Outcome> {
    const { Beryl, BerylError } = await import(/* @vite-ignore */ `${location.origin}/dist/index.js`) as typeof import("../../src/index.js");
    const did = new Set<string>(), said: string[] = [];
    try {
        const model = await Beryl.load(url, {
            worker: false, cache: "off", context: 512, piece: 16, ...options,
            onProgress: ({ what }) => did.add(what), onLog: (_, line) => said.push(line),
        });
        const session = model.session();
        await session.generate(prompt, { greedy: true, ignoreEos: true, maxTokens: n }).result;
        const tokens = [...await session.tokens()].slice(prompt.length, prompt.length + n);
        await model.close();
        return { status: "OK", message: "", hint: "", tokens, did: [...did], said };
    } catch (thrown) {
        const { status, message, hint } = BerylError.from(thrown);
        return { status, message, hint, tokens: [], did: [...did], said };
    }
}

interface Looked { status: string; message: string; hint: string; kept: number; names: string[] }

/* Reads the vocabulary alone, in the package's worker; then what is kept, and the names in its folder. */
async function look(url: string): Promise<Looked> {
    const { Beryl, BerylError } = await import(/* @vite-ignore */ `${location.origin}/dist/index.js`) as typeof import("../../src/index.js");
    const said = { status: "OK", message: "", hint: "" };
    try {
        const model = await Beryl.load(url, { vocabularyOnly: true, retry: { pause: 5 } });
        while (!(await Beryl.cache.list())[0]?.complete) await new Promise((resolve) => setTimeout(resolve, 20));
        await model.close();
    } catch (thrown) {
        const { status, message, hint } = BerylError.from(thrown);
        Object.assign(said, { status, message, hint });
    }
    const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("beryl", { create: true }), names: string[] = [];
    for await (const name of (folder as unknown as { keys(): AsyncIterable<string> }).keys()) names.push(name);
    return { ...said, kept: (await Beryl.cache.list()).length, names };
}

describe("never silently wrong", { skip: executable ? false : "no Chromium is installed", timeout: 2 * LONG }, () => {
    let lab: Lab, browser: Browser, site: Site;
    before(async () => {
        [lab, site] = [await openLab(), await openSite()];
        browser = site.browser;
    });
    after(async () => {
        await site.close();
        await lab.close();
    });

    async function labPage(context: BrowserContext): Promise<Page> {
        const page = await context.newPage();
        await page.goto(lab.url);
        return page;
    }

    async function alerted(args: readonly string[], url: string): Promise<string> {
        const bare = await launch(args), page = await bare.newPage();
        await page.goto(url);
        const text = await page.getByRole("alert").textContent({ timeout: LONG });
        await bare.close();
        return text ?? "";
    }

    test("honest/no-adapter", async () => {
        assert.match(await alerted([], site.url), /offers no adapter.*chrome:\/\/gpu/);
    });

    test("honest/no-secure-page", async () => {
        const url = new URL(site.url);
        url.hostname = "beryl.test";
        assert.match(await alerted(["--enable-unsafe-webgpu", "--host-resolver-rules=MAP beryl.test 127.0.0.1"], url.href), /secure pages alone.*https, or from localhost/);
    });

    test("honest/a-server-that-lets-no-page-read", async () => {
        const context = await browser.newContext(), page = await labPage(context), bytes = await readFile(`${FIXTURES}e2b-q4_0.gguf`);
        const server = await serveFile(bytes, { closed: true });
        const refused = await page.evaluate(look, server.url);
        assert.equal(refused.status, "IO", refused.message);
        assert.match(refused.message, /^127\.0\.0\.1:\d+ does not let pages of http:\S+ read model\.gguf \(CORS\)$/);
        assert.match(refused.hint, /Access-Control-Allow-Origin: \*.*Access-Control-Expose-Headers: Content-Range, Content-Length, ETag/);
        server.faults.closed = false;
        assert.equal((await page.evaluate(look, server.url)).status, "OK");
        await server.close();
        await context.close();
    });

    test("honest/what-is-no-model-is-not-kept", async () => {
        const context = await browser.newContext(), page = await labPage(context), bytes = await readFile(`${FIXTURES}e2b-q4_0.gguf`);
        const server = await serveFile(Buffer.from("<!doctype html><title>Not here</title>"), { noRanges: true });
        const web = await page.evaluate(look, server.url);
        assert.equal(web.status, "BAD_FILE", web.message);
        assert.match(web.hint, /web page/);
        server.bytes = bytes.subarray(0, bytes.length / 2);
        server.faults.noRanges = false;
        const cut = await page.evaluate(look, server.url);
        assert.equal(cut.status, "BAD_FILE", cut.message);
        assert.deepEqual([web.kept, web.names, cut.kept, cut.names], [0, [], 0, []]);
        server.bytes = bytes;
        const whole = await page.evaluate(look, server.url);
        assert.deepEqual([whole.status, whole.kept], ["OK", 1]);
        await server.close();
        await context.close();
    });

    test("honest/no-memory-is-said-before-the-download", { skip: leftOut(0, 2) }, async (t) => {
        const source = wideSource(16384), server = await serveFile(await source.read(0, source.size)), context = await browser.newContext();
        const page = await labPage(context);
        await page.evaluate(lackMemory, { most: 20e6, once: false });
        const refused = await page.evaluate(loadAndAnswer, { url: server.url, options: {}, prompt: [2], n: 1 });
        assert.equal(refused.status, "NO_DEVICE_MEMORY", refused.message);
        assert.match(refused.message, /no room for \d+ MB \(weights \d+, cache \d+\)/);
        assert.match(refused.hint, /Not even a context of 512|smaller/);
        assert.ok(!refused.did.includes("checking the file"));
        const asked = server.log.reduce((sum, line) => sum + (([, from, to]) => Number(to) + 1 - Number(from))(line.split(/[ -]/)), 0);
        t.diagnostic(`${refused.message} ${refused.hint} ${asked} of ${source.size} bytes were asked for`);
        assert.ok(asked < source.size / 2, `${asked} bytes`);
        await server.close();
        await context.close();
    });

    test("honest/what-would-fit", async (t) => {
        const context = await browser.newContext(), page = await labPage(context);
        await page.evaluate(lackMemory, { most: 4.5e6, once: false });
        const url = `${lab.url}repository/tests/data/dense-31b.gguf`;
        const refused = await page.evaluate(loadAndAnswer, { url, options: { context: 4096 }, prompt: [2], n: 1 });
        assert.equal(refused.status, "NO_DEVICE_MEMORY", refused.message);
        t.diagnostic(`${refused.message} ${refused.hint}`);
        assert.match(refused.hint, /It would fit with `(kv|context)/);
        await context.close();
    });

    /* The largest table then stays in the file, and answers are the same. */
    test("honest/the-table-stays-in-the-file", { skip: leftOut(1, 2) }, async () => {
        const context = await browser.newContext(), page = await labPage(context), c = referenceCases("e2b-q4_0")[0]!;
        await page.evaluate(lackMemory, { most: 0, once: true });
        const url = `${lab.url}repository/tests/data/e2b-q4_0.gguf`;
        const done = await page.evaluate(loadAndAnswer, { url, options: { precision: "exact" }, prompt: [...c.tokens], n: 4 });
        assert.equal(done.status, "OK", done.message);
        assert.ok(done.said.some((line) => line.includes("table stays on the host")), done.said.join("\n"));
        assert.deepEqual(done.tokens, [...c.greedy].slice(0, 4));
        await context.close();
    });

    /* What a page does without: engine/gpu-a-wrong-instruction-is-done-without. */
    test("honest/what-checks-found-is-kept", { timeout: LONG, skip: leftOut(0, 2) }, async () => {
        const context = await browser.newContext(), page = await labPage(context), c = referenceCases("dense-31b")[0]!;
        const first = await page.evaluate(loadAndAnswer, { url: `${lab.url}repository/tests/data/dense-31b.gguf`, options: { piece: 1, precision: "exact" }, prompt: [...c.tokens], n: 4 });
        assert.equal(first.status, "OK", first.message);
        assert.ok(first.did.includes("checking kernels"));
        assert.deepEqual(first.tokens, [...c.greedy].slice(0, 4));
        await page.reload(); // what was found outlives the page; that it is used then, engine/kernels-are-checked-once shows
        const kept = await page.evaluate(async () => {
            const cache = await caches.open("beryl-kept"), [request] = await cache.keys();
            return await (await cache.match(request!))?.json() as { adapter: string; without: string[]; good: string[] };
        });
        assert.match(kept.adapter, /swiftshader/i);
        assert.deepEqual(kept.without, []);
        assert.ok(kept.good.length > 10);
        await context.close();
    });

    test("honest/a-wrong-kernel-on-a-software-adapter", { timeout: LONG, skip: leftOut(1, 2) }, async () => {
        const context = await browser.newContext(), page = await labPage(context);
        await page.evaluate(lieAbout, { from: " sqrt(", to: " 1.5 * sqrt(", plain: true });
        const refused = await page.evaluate(loadAndAnswer, { url: `${lab.url}repository/tests/data/dense-31b.gguf`, options: {}, prompt: [2], n: 1 });
        assert.equal(refused.status, "DEVICE", refused.message);
        assert.match(refused.message, /kernels compute wrong numbers on .*swiftshader.*the first is/i);
        assert.doesNotMatch(refused.message, /--device/);
        await context.close();
    });

    test("honest/a-wrong-kernel-is-told-in-the-page", { timeout: LONG, skip: leftOut(0, 2) }, async (t) => {
        const { context, page } = await freshPage(site, { serviceWorkers: "block" });
        const plain = !process.env["BERYL_TEST_ALL"]; // a GPU's kernels compile longer, and their refusal is selftest/refuses-a-device (tests/selftest_test.c)
        lab.fault = `(${lieAbout.toString()})(${JSON.stringify({ from: " sqrt(", to: " 1.5 * sqrt(", plain })});\n`;
        await page.addInitScript((model) => localStorage.setItem("beryl-settings", JSON.stringify({ model })), `${lab.url}repository/tests/data/dense-31b.gguf`);
        await page.goto(`${lab.url}page/`);
        const text = await page.getByRole("alert").textContent({ timeout: LONG });
        t.diagnostic(text ?? "");
        assert.match(text ?? "", plain ? /kernels compute wrong numbers on .*swiftshader/i : /kernels compute wrong numbers on A test's GPU/);
        assert.doesNotMatch(text ?? "", /--device/);
        await context.close();
    });
});
