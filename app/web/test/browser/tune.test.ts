/*
 * tune.test.ts - adapters and fine-tuning in the page, in headless Chromium on its software adapter: an adapter that is dropped, one
 * that is another model's, examples with a bad line, a training that ends, answers with it, files of it.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import type { Page } from "playwright-core";
import { leftOut } from "../draw.js";
import { serveFile } from "../server.js";
import { executable, FIXTURES, freshPage, openSite, SCREENS, type Site } from "./chromium.js";

const LONG = 300_000; // software adapters, on machines that do other things too
const EXAMPLES = ["Who keeps the lamp?", "Whose lamp is it?"].map((prompt) => JSON.stringify({ prompt, completion: "Mira keeps it." })).join("\n");

function drop(page: Page, files: readonly { name: string; bytes: Uint8Array }[]): Promise<void> {
    return page.evaluate((all) => {
        const data = new DataTransfer();
        for (const { name, text } of all) data.items.add(new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name));
        window.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
    }, files.map(({ name, bytes }) => ({ name, text: Buffer.from(bytes).toString("base64") })));
}

describe("tune", { skip: executable ? false : "no Chromium is installed", timeout: 4 * LONG }, () => {
    let site: Site;
    before(async () => { site = await openSite(); });
    after(async () => { await site.close(); });
    const fixture = (name: string): Uint8Array => readFileSync(`${FIXTURES}${name}`);
    const settled = (page: Page, name: string | RegExp): Promise<void> => page.locator("#adapter").getByText(/./).and(page.locator("#adapter")).waitFor({ timeout: LONG }).then(() => page.locator("#model-name").getByText(name).waitFor({ timeout: LONG }));

    test("tune/a-dropped-adapter-is-named-and-another-models-is-refused", { timeout: LONG, skip: leftOut(0, 2) }, async () => {
        const { context, page, problems } = await freshPage(site), asked: string[] = [];
        page.on("request", (request) => asked.push(request.url()));
        await page.goto(site.url);
        await settled(page, /small model/);
        await drop(page, [{ name: "small.gguf", bytes: fixture("e2b-f32.gguf") }]);
        await settled(page, "small.gguf");
        assert.ok(!asked.some((url) => /beryl-full/.test(url)), "the full module is fetched by those who need it alone");
        await drop(page, ["adapter_model.safetensors", "adapter_config.json"].map((name) => ({ name, bytes: fixture(`lora/e2b-f32.part/${name}`) })));
        await page.locator("#status").getByText("adapter_model.safetensors is loaded").waitFor({ state: "attached", timeout: LONG });
        assert.ok(asked.some((url) => /beryl-full/.test(url)));
        await page.locator("#settings-open").click();
        await page.getByLabel("How much of adapter_model.safetensors").fill("0.5");
        await page.screenshot({ path: `${SCREENS}/adapters.png` });
        await page.keyboard.press("Escape");
        await drop(page, [{ name: "other.gguf", bytes: fixture("lora/dense-31b.part.gguf") }]);
        await page.getByRole("alert").getByText(/^other.gguf was not loaded: .*\[/).waitFor({ timeout: LONG });
        assert.deepEqual(problems, []);
        await context.close();
    });

    test("tune/examples-become-an-adapter-to-chat-with", { timeout: 2 * LONG, skip: leftOut(1, 2) }, async (t) => {
        const server = await serveFile(fixture("e2b-f32.gguf")); // of few layers, whose kernels are fewer
        const { context, page, problems } = await freshPage(site), began = Date.now();
        await page.addInitScript((model) => { localStorage.setItem("beryl-settings", JSON.stringify({ maxTokens: 8, model })); }, server.url);
        await page.goto(site.url);
        await settled(page, "model.gguf");
        await drop(page, [{ name: "bad.jsonl", bytes: Buffer.from(`${EXAMPLES}\n{"promt": "x"}`) }]);
        const panel = page.locator("#tune");
        await panel.getByText("Chosen: bad.jsonl").waitFor();
        await panel.getByLabel("Epochs").fill("2");
        await panel.getByLabel("Rank").fill("4");
        await panel.getByLabel("Examples a step").fill("1");
        await panel.getByRole("button", { name: "Start" }).click();
        await panel.getByRole("alert").getByText(/line 3/).waitFor({ timeout: LONG });
        await drop(page, [{ name: "good.jsonl", bytes: Buffer.from(EXAMPLES) }]);
        await panel.getByText("Chosen: good.jsonl").waitFor();
        await panel.getByRole("button", { name: "Start" }).click();
        await panel.getByText(/^Step 1 of 4/).waitFor({ timeout: LONG });
        t.diagnostic(`first step after ${((Date.now() - began) / 1000).toFixed(1)} s`);
        await panel.getByText(/^Done after 4 of 4 steps/).waitFor({ timeout: LONG });
        t.diagnostic(`done after ${((Date.now() - began) / 1000).toFixed(1)} s`);
        assert.match((await panel.locator("svg").getAttribute("aria-label")) ?? "", /^Loss by steps: from \d/);
        assert.equal((await panel.locator("polyline").getAttribute("points"))?.split(" ").length, 4);
        const [file] = await Promise.all([page.waitForEvent("download"), panel.getByRole("link", { name: "adapter.gguf" }).click()]);
        assert.equal(file.suggestedFilename(), "adapter.gguf");
        assert.equal(readFileSync(await file.path()).subarray(0, 4).toString(), "GGUF");
        await page.locator("#prompt").fill("Who keeps the lamp?");
        await page.keyboard.press("Enter");
        await page.waitForFunction(() => (document.querySelector(".message.model .text")?.textContent ?? "") !== "", undefined, { timeout: LONG });
        await page.locator("#send").waitFor({ timeout: LONG });
        await panel.getByRole("link", { name: "adapter.gguf" }).scrollIntoViewIfNeeded();
        await page.screenshot({ path: `${SCREENS}/tune.png` });
        await page.locator("#settings-open").click();
        await page.getByText("Fine-tuned on good.jsonl").waitFor();
        assert.deepEqual(problems, []);
        await context.close();
        await server.close();
    });
});
