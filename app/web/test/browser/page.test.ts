/*
 * page.test.ts - the page as a person meets it: in headless Chromium, on its software adapter.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, describe, test, type TestContext } from "node:test";
import { gzipSync } from "node:zlib";
import type { Page } from "playwright-core";
import { leftOut } from "../draw.js";
import { serveFile } from "../server.js";
import { BUILTIN, executable, FIXTURES, freshPage, openSite, ROOT, SCREENS, type Site } from "./chromium.js";

const LONG = 300_000; // software adapters, on machines that do other things too

async function ready(page: Page): Promise<void> {
    await page.waitForFunction(() => (document.getElementById("adapter")?.textContent ?? "") !== "", undefined, { timeout: LONG });
}

async function ask(page: Page, text: string): Promise<void> {
    await page.locator("#prompt").fill(text);
    await page.locator("#prompt").press("Enter");
}

/* Until the answer has ended: its buttons are there. */
async function answered(page: Page, n: number): Promise<string> {
    const last = page.locator(".message.model").nth(n);
    await last.getByRole("button", { name: "Retry" }).waitFor({ timeout: LONG });
    return (await last.locator(".text").textContent()) ?? "";
}

/* Short answers, nearly greedy. */
async function short(page: Page, more: object = {}): Promise<void> {
    await page.addInitScript((settings) => {
        if (!localStorage.getItem("beryl-settings")) localStorage.setItem("beryl-settings", JSON.stringify(settings));
    }, { maxTokens: 24, temperature: 0.01, ...more });
}

/* Tells of each compile that begins between the kernels' checks and the question's first result. Runs in the page's worker,
 * before its own script. */
function watchCompiles(): void {
    const map = GPUBuffer.prototype.mapAsync, compile = GPUDevice.prototype.createComputePipelineAsync;
    let compiles = 0, results = 0, asked = false;
    addEventListener("message", ({ data }) => {
        if (!JSON.stringify(data).includes("\"generate\"")) return;
        asked = true;
        results = 0;
    });
    GPUBuffer.prototype.mapAsync = async function (...given) {
        await map.apply(this, given);
        if (given[0] === 1) results++; // to read: weights go up through others
    };
    GPUDevice.prototype.createComputePipelineAsync = function (descriptor) {
        if (compiles++ === 0) console.log("compiles are watched");
        if (asked ? results === 0 : results > 0) console.log(`${descriptor.label} is compiled before the first word`);
        return compile.call(this, descriptor);
    };
}

describe("page", { skip: executable ? false : "no Chromium is installed", timeout: 20 * LONG }, () => {
    let site: Site;
    before(async () => { site = await openSite(); });
    after(async () => { await site.close(); });

    test("page/first-visit-answers-with-the-built-in-model", async (t) => {
        const { context, page, problems } = await freshPage(site), told: string[] = [];
        await context.route(/worker-[^/]*\.js$/, async (route) => {
            const response = await route.fetch();
            await route.fulfill({ response, body: `(${watchCompiles.toString()})();\n${await response.text()}` });
        });
        page.on("console", (message) => { if (/compile/.test(message.text())) told.push(message.text()); });
        await short(page);
        const began = Date.now();
        await page.goto(site.url);
        await ask(page, "Tell me a very short story.");
        await page.waitForFunction(() => (document.querySelector(".message.model .text")?.textContent ?? "") !== "", undefined, { timeout: LONG });
        t.diagnostic(`first visit to first word: ${((Date.now() - began) / 1000).toFixed(1)} s`);
        assert.match(await answered(page, 0), /^Once upon a time/);
        assert.match((await page.locator("#adapter").textContent()) ?? "", /swiftshader|software/i);
        assert.match((await page.locator("#speed").textContent()) ?? "", /tokens\/s/);
        assert.deepEqual(problems, []);
        assert.deepEqual(told, ["compiles are watched"]); // in software the first word waits for no decode step's compile
        await page.screenshot({ path: `${SCREENS}/first-visit.png` });
        await context.close();
    });

    test("page/stop-retry-and-edit", { skip: leftOut(3, 4) }, async () => {
        const { context, page } = await freshPage(site);
        await short(page, { maxTokens: 400 });
        await page.goto(site.url);
        await ask(page, "Tell me a very long story.");
        await page.waitForFunction(() => (document.querySelector(".message.model .text")?.textContent ?? "").length > 10, undefined, { timeout: LONG });
        await page.getByRole("button", { name: "Stop" }).click();
        const stopped = await answered(page, 0);
        assert.ok(stopped.length > 10);
        await page.getByText("Stopped.").waitFor();
        await page.locator(".message.model").getByRole("button", { name: "Retry" }).click();
        await page.getByRole("button", { name: "Stop" }).waitFor();
        await page.keyboard.press("Escape");
        await page.locator("#send").waitFor();
        await page.getByRole("button", { name: "Edit" }).click();
        const area = page.getByRole("textbox", { name: "Your message" });
        await area.fill("Tell me another very long story.");
        await area.press("Enter");
        await page.getByRole("button", { name: "Stop" }).click({ timeout: LONG });
        await page.locator("#send").waitFor();
        assert.equal(await page.locator(".message.user").count(), 1);
        assert.equal(await page.locator(".bubble").textContent(), "Tell me another very long story.");
        await context.close();
    });

    test("page/two-conversations-are-kept", { skip: leftOut(3, 4) }, async () => {
        const { context, page } = await freshPage(site);
        await short(page, { maxTokens: 6 });
        await page.goto(site.url);
        await ask(page, "A story about a badger.");
        const first = await answered(page, 0);
        await page.getByRole("button", { name: "New conversation" }).click();
        await ask(page, "A story about a fox.");
        await answered(page, 0);
        await page.reload();
        const list = page.locator("#conversations");
        const listed = (n: number): Promise<unknown> => page.waitForFunction((wanted) => document.querySelectorAll("#conversations li").length === wanted, n, { timeout: LONG });
        await listed(2);
        assert.deepEqual(await list.locator(".title").allTextContents(), ["A story about a fox.", "A story about a badger."]);
        await list.getByRole("button", { name: "A story about a badger.", exact: true }).click();
        assert.equal((await page.locator(".message.model .text").textContent()) ?? "", first);
        await page.getByRole("button", { name: "Delete “A story about a fox.”" }).click();
        await listed(1);
        await context.close();
    });

    test("page/a-dropped-file-answers-and-a-hostile-one-is-refused", { skip: leftOut(2, 4) }, async () => {
        const { context, page } = await freshPage(site);
        await short(page, { maxTokens: 4 });
        await page.goto(site.url);
        await ready(page);
        const drop = (bytes: Uint8Array, name: string): Promise<void> => page.evaluate(([text, fileName]) => {
            const data = new DataTransfer();
            data.items.add(new File([Uint8Array.from(atob(text ?? ""), (c) => c.charCodeAt(0))], fileName ?? ""));
            window.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
        }, [Buffer.from(bytes).toString("base64"), name]);
        const whole = readFileSync(`${FIXTURES}e2b-q4_0.gguf`);
        await drop(whole.subarray(0, whole.length / 2), "half.gguf");
        const alert = page.getByRole("alert");
        await alert.getByText(/^half.gguf was not loaded: .+[^.]\.$/).waitFor({ timeout: LONG });
        await page.screenshot({ path: `${SCREENS}/hostile.png` });
        await drop(Buffer.from("GGUF\x03\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", "latin1"), "lying.gguf");
        await alert.getByText(/^lying.gguf was not loaded/).waitFor({ timeout: LONG });
        const server = await serveFile(Buffer.from("<!doctype html><title>Not found</title>"), { status: () => 404 });
        await page.locator("#model").click();
        await page.getByLabel("Address of a GGUF file").fill(server.url);
        await page.getByRole("dialog").getByRole("button", { name: "Load", exact: true }).click();
        await alert.getByText(/was not loaded: .*404/).waitFor({ timeout: LONG });
        await server.close();
        assert.match((await page.locator("#model-name").textContent()) ?? "", /small model/);
        assert.doesNotMatch(await page.evaluate(() => localStorage.getItem("beryl-settings") ?? ""), /127\.0\.0\.1/);
        await ask(page, "Hello"); // the model that works is still there
        assert.ok((await answered(page, 0)).length > 0);
        await drop(whole, "small.gguf");
        await page.waitForFunction(() => document.getElementById("model-name")?.textContent === "small.gguf", undefined, { timeout: LONG });
        await ready(page);
        await context.close();
    });

    test("page/a-reload-in-the-middle-keeps-question-and-answer", { skip: leftOut(3, 4) }, async () => {
        const { context, page } = await freshPage(site);
        await short(page, { maxTokens: 400 });
        await page.goto(site.url);
        await ask(page, "Tell me a very long story.");
        const text = page.locator(".message.model .text"), long = (n: number): Promise<unknown> => page.waitForFunction((wanted) => (document.querySelector(".message.model .text")?.textContent ?? "").length > wanted, n, { timeout: LONG });
        await long(60);
        await page.reload();
        await page.getByText("The page was closed before the answer ended.").waitFor();
        assert.equal(await page.locator(".bubble").textContent(), "Tell me a very long story.");
        const kept = ((await text.textContent()) ?? "").trimEnd();
        assert.match(kept, /^Once upon a time/);
        await page.locator(".message.model").getByRole("button", { name: "Go on" }).click();
        await long(kept.length + 20);
        assert.ok((await text.textContent())?.startsWith(kept));
        await page.getByRole("button", { name: "Stop" }).click();
        await page.getByText("Stopped.").waitFor();
        await context.close();
    });

    test("page/a-question-before-anything-is-ready-is-answered", { skip: leftOut(1, 4) }, async () => {
        const { context, page } = await freshPage(site);
        await short(page, { maxTokens: 6 });
        await page.addInitScript(() => { IDBFactory.prototype.open = () => ({}) as IDBOpenDBRequest; }); // the store never opens
        await page.goto(site.url);
        const height = (): Promise<number> => page.locator("#prompt").evaluate((field) => field.getBoundingClientRect().height);
        const low = await height();
        await page.locator("#prompt").fill("A story about a badger and a fox ".repeat(12));
        assert.ok(await height() > low + 20, "wrapped text makes the field grow");
        await ask(page, "Hello");
        assert.ok(Math.abs(await height() - low) < 1);
        await page.getByRole("article").first().getByText("Hello").waitFor();
        assert.ok((await answered(page, 0)).length > 0);
        assert.match((await page.locator("#adapter").textContent()) ?? "", /^In software, slow: .*swiftshader/i);
        await page.locator("#settings-open").click();
        const own = (label: string): Promise<string> => page.getByLabel(label, { exact: true }).evaluate((field) => {
            const { placeholder: shown } = field as HTMLInputElement;
            return shown;
        });
        assert.deepEqual([await own("Temperature"), await own("Top k"), await own("Top p"), await own("Context, tokens")], ["0.6", "64", "0.95", "4096"]);
        await context.close();
    });

    test("page/two-tabs-share-a-download-and-a-conversation", { skip: leftOut(2, 4) }, async () => {
        const bytes = readFileSync(BUILTIN), server = await serveFile(bytes, { slow: 1 });
        const { context, page: one } = await freshPage(site), two = await context.newPage(), tabs = [one, two];
        await Promise.all(tabs.map(async (page) => {
            await short(page, { maxTokens: 4, model: server.url });
            await page.goto(site.url);
        }));
        await Promise.all(tabs.map(ready));
        const asked = server.log.reduce((sum, line) => sum + (([, from, to]) => Number(to) + 1 - Number(from))(/^GET (\d+)-(\d+)$/.exec(line) ?? [0, 0, -1]), 0);
        assert.ok(asked <= bytes.length + (4 << 20), `${asked} bytes of ${bytes.length} were asked for`); // both begin at the first piece
        const have = (page: Page, selector: string, n: number): Promise<unknown> => page.waitForFunction(([wanted, count]) => document.querySelectorAll(String(wanted)).length === count, [selector, n], { timeout: LONG });
        await ask(one, "A story about a badger.");
        await answered(one, 0);
        await have(two, "#conversations li", 1);
        await two.locator("#conversations .title").click();
        await ask(one, "A story about a fox."); // both go on with the same conversation at once
        await ask(two, "A story about an owl.");
        for (const page of tabs) {
            await have(page, ".message.model .tools", 3);
            assert.equal(new Set(await page.locator(".bubble").allTextContents()).size, 3);
        }
        await one.reload();
        await have(one, ".message.model .tools", 3);
        await one.locator("#conversations .remove").click();
        for (const page of tabs) {
            await have(page, "#conversations li", 0);
            await have(page, ".message", 0);
        }
        await server.close();
        await context.close();
    });

    test("page/an-address-with-a-broken-connection-and-then-no-net-at-all", { skip: leftOut(1, 4) }, async () => {
        const bytes = readFileSync(BUILTIN);
        const server = await serveFile(bytes, { breakAfter: (n) => n === 2 ? 3_000_000 : undefined });
        const { context, page } = await freshPage(site);
        await short(page, { maxTokens: 8 });
        await page.goto(site.url);
        await page.locator("#model").click();
        await page.getByLabel("Address of a GGUF file").fill(server.url);
        await page.getByRole("dialog").getByRole("button", { name: "Load", exact: true }).click();
        await page.waitForFunction(() => document.getElementById("model-name")?.textContent === "model.gguf", undefined, { timeout: LONG });
        await ready(page);
        await ask(page, "Tell me a very short story.");
        assert.match(await answered(page, 0), /^Once upon a time/);
        await page.locator("#model").click();
        await page.getByRole("button", { name: "Use Beryl tiny" }).waitFor({ timeout: LONG });
        await page.waitForFunction(() => navigator.serviceWorker.controller !== null, undefined, { timeout: LONG });
        await server.close();
        await context.setOffline(true);
        await page.reload();
        await ready(page);
        await ask(page, "Tell me a very short story.");
        assert.match(await answered(page, 0), /^Once upon a time/);
        await page.locator("#model").click();
        await page.getByRole("button", { name: "Use Beryl tiny" }).waitFor();
        await page.screenshot({ path: `${SCREENS}/models.png` });
        await context.setOffline(false);
        await page.getByRole("dialog").getByRole("button", { name: "Use" }).first().click();
        await page.waitForFunction(() => document.getElementById("model-name")?.textContent !== "model.gguf", undefined, { timeout: LONG });
        await ready(page);
        await page.locator("#model").click();
        await page.getByRole("button", { name: "Delete Beryl tiny" }).click();
        await page.getByRole("button", { name: "Delete Beryl tiny" }).waitFor({ state: "detached" });
        await context.close();
    });

    /* What is fetched by those who ask for it alone. */
    const EXTRAS = ["beryl-full.wasm", "full.js", "full_host.js", "graph.js"];

    /* Bytes of files of the package, and by gzip -9. */
    function sizes(t: TestContext, what: string, wanted: (name: string) => boolean): { raw: number; packed: number } {
        const files = readdirSync(`${ROOT}dist`).filter((name) => /\.(js|wasm)$/.test(name) && wanted(name)).map((name) => readFileSync(`${ROOT}dist/${name}`));
        const sum = (of: (bytes: Uint8Array) => number): number => files.reduce((all, bytes) => all + of(bytes), 0);
        const raw = sum((bytes) => bytes.length), packed = sum((bytes) => gzipSync(bytes, { level: 9 }).length);
        t.diagnostic(`${what}: ${raw} bytes, ${packed} by gzip -9`);
        return { raw, packed };
    }

    test("page/module-and-scripts-stay-in-budget", (t) => {
        const { raw, packed } = sizes(t, "module and JavaScript of the package", (name) => !EXTRAS.includes(name));
        assert.ok(raw <= 900_000 && packed <= 350_000);
    });

    test("page/the-full-module-and-its-scripts-stay-in-budget", (t) => {
        const { raw, packed } = sizes(t, "the full module and its JavaScript", (name) => EXTRAS.includes(name));
        assert.ok(raw > 0 && packed <= 500_000);
    });

    test("page/a-lost-device-comes-back", { skip: leftOut(3, 4) }, async () => {
        const { context, page } = await freshPage(site);
        await short(page, { maxTokens: 6 });
        await page.goto(site.url);
        await ask(page, "Hello");
        await answered(page, 0);
        const session = await site.browser.newBrowserCDPSession();
        await session.send("Browser.crashGpuProcess").catch(() => undefined);
        await page.waitForFunction(() => !(document.getElementById("loading") as HTMLElement).hidden, undefined, { timeout: 60_000 }).catch(() => undefined); // it may be over between two looks
        await ready(page);
        await ask(page, "Tell me a very short story.");
        await page.waitForFunction(() => document.querySelectorAll(".message.model").length === 2, undefined, { timeout: LONG });
        assert.ok((await answered(page, 1)).length > 0);
        await context.close();
    });

    test("page/keyboard-alone", { skip: leftOut(3, 4) }, async () => {
        const { context, page } = await freshPage(site);
        await short(page, { maxTokens: 400 });
        await page.goto(site.url);
        await ready(page);
        await page.keyboard.press("Tab");
        assert.equal(await page.evaluate(() => document.activeElement?.className), "skip");
        await page.keyboard.press("Enter");
        await page.keyboard.type("Tell me a story.");
        await page.keyboard.press("Enter");
        await page.getByRole("button", { name: "Stop" }).waitFor();
        await page.keyboard.press("Escape");
        await page.locator("#send").waitFor({ timeout: LONG });
        for (const [id, dialog] of [["model", "models"], ["settings-open", "settings"]] as const) {
            await page.locator(`#${id}`).focus();
            await page.keyboard.press("Enter");
            assert.equal(await page.evaluate((name) => (document.getElementById(name) as HTMLDialogElement).open, dialog), true);
            await page.keyboard.press("Escape");
            assert.equal(await page.evaluate(() => document.activeElement?.id), id);
        }
        await context.close();
    });

    describe("to everybody", () => {
        const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
        let page: Page;
        before(async () => {
            page = (await freshPage(site)).page;
            await short(page);
            await page.goto(site.url);
            await ask(page, "Tell me a very short story.");
            await answered(page, 0);
            await page.evaluate(axe);
        });
        after(async () => { await page.context().close(); });

        for (const colorScheme of ["light", "dark"] as const)
            for (const [size, viewport] of [["wide", { width: 1280, height: 800 }], ["narrow", { width: 390, height: 780 }]] as const)
                test(`page/accessible-${colorScheme}-${size}`, async () => {
                    await page.emulateMedia({ colorScheme });
                    await page.setViewportSize(viewport);
                    const check = async (where: string): Promise<void> => {
                        const { violations } = await page.evaluate(() => (globalThis as unknown as { axe: { run(): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }> } }).axe.run());
                        assert.deepEqual(violations.map((v) => `${where}: ${v.id}: ${v.nodes.map((n) => n.html).join(" ")}`), []);
                        await page.screenshot({ path: `${SCREENS}/${where}-${colorScheme}-${size}.png` });
                    };
                    await check("chat");
                    for (const [id, dialog] of [["model", "models"], ["settings-open", "settings"], ["tune-open", "tune"]] as const) {
                        if (id === "tune-open" && size === "narrow") await page.locator("#side-open").click();
                        await page.locator(`#${id}`).click();
                        await page.locator(`#${dialog} h2`).waitFor();
                        await check(dialog);
                        await page.keyboard.press("Escape");
                    }
                    if (size === "narrow") {
                        await page.locator("#side-open").click();
                        await check("drawer");
                        await page.keyboard.press("Escape");
                    }
                    await page.locator("#new").evaluate((button: HTMLElement) => button.click());
                    await check("empty");
                    await page.locator("#conversations .title").evaluate((button: HTMLElement) => button.click());
                    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, "nothing is wider than the screen");
                });

        test("page/the-drawer-closes-beside-it-and-keeps-the-focus", async () => {
            await page.setViewportSize({ width: 390, height: 780 });
            const open = page.locator("#side-open"), side = page.locator("#side");
            const focus = (): Promise<string> => page.evaluate(() => document.activeElement?.id ?? "");
            await open.click();
            assert.equal(await focus(), "side-close");
            for (let i = 0; i < 8; i++) {
                await page.keyboard.press(i < 4 ? "Tab" : "Shift+Tab");
                assert.ok(await page.evaluate(() => document.activeElement === document.body || document.getElementById("side")?.contains(document.activeElement)));
            }
            await page.keyboard.press("Escape");
            await side.waitFor({ state: "hidden" });
            assert.equal(await focus(), "side-open");
            await open.click();
            await page.mouse.click(380, 400);
            await side.waitFor({ state: "hidden" });
            assert.equal(await focus(), "side-open");
        });
    });
});
