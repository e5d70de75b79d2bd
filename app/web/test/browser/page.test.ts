/*
 * page.test.ts - the page as a person meets it: in headless Chromium, on its software adapter.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, describe, test } from "node:test";
import type { Page } from "playwright-core";
import { serveFile } from "../server.js";
import { BUILTIN, executable, FIXTURES, freshPage, openSite, SCREENS, type Site } from "./chromium.js";

const LONG = 90_000; // software adapters, on machines that do other things too

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

describe("page", { skip: executable ? false : "no Chromium is installed", timeout: 20 * LONG }, () => {
    let site: Site;
    before(async () => { site = await openSite(); });
    after(async () => { await site.close(); });

    test("page/first-visit-answers-with-the-built-in-model", async (t) => {
        const { context, page, problems } = await freshPage(site);
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
        await page.screenshot({ path: `${SCREENS}/first-visit.png` });
        await context.close();
    });

    test("page/stop-retry-and-edit", async () => {
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
        await area.fill("Who lives in the village?");
        await area.press("Enter");
        await page.getByRole("button", { name: "Stop" }).click({ timeout: LONG });
        await page.locator("#send").waitFor();
        assert.equal(await page.locator(".message.user").count(), 1);
        assert.equal(await page.locator(".bubble").textContent(), "Who lives in the village?");
        await context.close();
    });

    test("page/two-conversations-are-kept", async () => {
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

    test("page/a-dropped-file-answers-and-a-hostile-one-is-refused", async () => {
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
        await drop(whole, "small.gguf");
        await page.waitForFunction(() => document.getElementById("model-name")?.textContent === "small.gguf", undefined, { timeout: LONG });
        await ready(page);
        await drop(whole.subarray(0, whole.length / 2), "half.gguf");
        const alert = page.getByRole("alert");
        await alert.waitFor({ timeout: LONG });
        const first = (await alert.textContent()) ?? "";
        assert.match(first, /half.gguf|file|bytes/i);
        await page.screenshot({ path: `${SCREENS}/hostile.png` });
        await drop(Buffer.from("GGUF\x03\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", "latin1"), "lying.gguf");
        await page.waitForFunction((before) => {
            const text = document.querySelector("[role=alert]")?.textContent ?? "";
            return text !== "" && text !== before;
        }, first, { timeout: LONG });
        await page.locator("#model").click();
        await page.getByRole("dialog").getByRole("button", { name: "Use" }).first().click();
        await ready(page);
        await ask(page, "Hello");
        assert.ok((await answered(page, 0)).length > 0);
        await context.close();
    });

    test("page/an-address-with-a-broken-connection-and-then-no-net-at-all", async () => {
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
        await page.getByRole("button", { name: "Use model.gguf" }).waitFor({ timeout: LONG });
        await page.waitForFunction(() => navigator.serviceWorker.controller !== null, undefined, { timeout: LONG });
        await server.close();
        await context.setOffline(true);
        await page.reload();
        await ready(page);
        await ask(page, "Tell me a very short story.");
        assert.match(await answered(page, 0), /^Once upon a time/);
        await page.locator("#model").click();
        await page.getByRole("button", { name: "Use model.gguf" }).waitFor();
        await page.screenshot({ path: `${SCREENS}/models.png` });
        await context.setOffline(false);
        await page.getByRole("dialog").getByRole("button", { name: "Use" }).first().click();
        await page.waitForFunction(() => document.getElementById("model-name")?.textContent !== "model.gguf", undefined, { timeout: LONG });
        await ready(page);
        await page.locator("#model").click();
        await page.getByRole("button", { name: "Delete model.gguf" }).click();
        await page.getByRole("button", { name: "Delete model.gguf" }).waitFor({ state: "detached" });
        await context.close();
    });

    test("page/a-lost-device-comes-back", async () => {
        const { context, page } = await freshPage(site);
        await short(page, { maxTokens: 6 });
        await page.goto(site.url);
        await ask(page, "Hello");
        await answered(page, 0);
        const session = await site.browser.newBrowserCDPSession();
        await session.send("Browser.crashGpuProcess").catch(() => undefined);
        await page.waitForFunction(() => !(document.getElementById("loading") as HTMLElement).hidden, undefined, { timeout: LONG }).catch(() => undefined);
        await ready(page);
        await ask(page, "Tell me a very short story.");
        await page.waitForFunction(() => document.querySelectorAll(".message.model").length === 2, undefined, { timeout: LONG });
        assert.ok((await answered(page, 1)).length > 0);
        await context.close();
    });

    test("page/keyboard-alone", async () => {
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
                    await page.screenshot({ path: `${SCREENS}/chat-${colorScheme}-${size}.png` });
                    const check = async (where: string): Promise<void> => {
                        const found = await page.evaluate(() => (globalThis as unknown as { axe: { run(): Promise<{ violations: { id: string; impact: string; nodes: { html: string }[] }[] }> } }).axe.run());
                        const serious = found.violations.filter((v) => v.impact === "serious" || v.impact === "critical");
                        assert.deepEqual(serious.map((v) => `${where}: ${v.id}: ${v.nodes.map((n) => n.html).join(" ")}`), []);
                    };
                    await check("chat");
                    for (const [id, dialog] of [["model", "models"], ["settings-open", "settings"]] as const) {
                        await page.locator(`#${id}`).click();
                        await check(dialog);
                        await page.screenshot({ path: `${SCREENS}/${dialog}-${colorScheme}-${size}.png` });
                        await page.keyboard.press("Escape");
                    }
                    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, "nothing is wider than the screen");
                });
    });
});
