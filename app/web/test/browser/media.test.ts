/*
 * media.test.ts - pictures and sound on the page, with the built-in model, at a phone's width and by keyboard.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, describe, test } from "node:test";
import type { BrowserContext, Page } from "playwright-core";
import { leftOut } from "../draw.js";
import { executable, FIXTURES, freshPage, openSite, SCREENS, type Site } from "./chromium.js";

const LONG = 90_000; // software adapters, on machines that do other things too
const PICTURE = `${FIXTURES}default/default.0.png`, CLIP = `${FIXTURES}default/default.2.wav`;
const SEEN = "The image shows a purple ring.", HEARD = "The opposite of day is night."; // as the model's README has them

describe("pictures and sound", { skip: executable ? leftOut(1, 4) : "no Chromium is installed", timeout: 5 * LONG }, () => {
    let site: Site, context: BrowserContext, page: Page, problems: string[];
    before(async () => {
        site = await openSite(["--enable-unsafe-webgpu", "--use-fake-device-for-media-stream"]);
        ({ context, page, problems } = await freshPage(site, { viewport: { width: 360, height: 740 } }));
        page.on("filechooser", () => undefined); // from now on choosers come as events: a key may be faster than the first wait for one
        await page.addInitScript(() => { // what the engine is told to do, by name
            const own = Worker.prototype.postMessage, told: string[] = Object.assign(window, { told: [] }).told;
            Worker.prototype.postMessage = function (...[message, ...rest]: [unknown]) {
                const { name = "", args = null } = message as { name?: string; args?: unknown };
                if (name === "prepare" || name === "embed") told.push(name === "embed" ? name : JSON.stringify(args));
                own.apply(this, [message, ...rest]);
            };
        });
        await page.addInitScript(() => localStorage.setItem("beryl-settings", JSON.stringify({ maxTokens: 24, temperature: 0.01 })));
        await page.goto(site.url);
        await page.locator("#attach").waitFor({ timeout: LONG });
    });
    after(async () => { await site.close(); });

    const give = (event: "drop" | "paste", path: string, name: string, type: string): Promise<void> => page.evaluate(([kind, text, fileName, fileType]) => {
        const data = new DataTransfer(), init = { bubbles: true, cancelable: true };
        data.items.add(new File([Uint8Array.from(atob(text ?? ""), (c) => c.charCodeAt(0))], fileName ?? "", { type: fileType ?? "" }));
        document.body.dispatchEvent(kind === "drop" ? new DragEvent("drop", { dataTransfer: data, ...init }) : new ClipboardEvent("paste", { clipboardData: data, ...init }));
    }, [event, readFileSync(path).toString("base64"), name, type]);

    /* Sends, and gives the answer and the seconds to its first word. */
    const asked = async (text: string): Promise<{ answer: string; seconds: number }> => {
        await page.locator("#prompt").fill(text);
        const began = Date.now();
        await page.locator("#prompt").press("Enter");
        await page.waitForFunction(() => (document.querySelector(".message.model .text")?.lastChild?.textContent ?? "") !== "" && !document.querySelector(".waiting"), undefined, { timeout: LONG });
        const seconds = (Date.now() - began) / 1000;
        const last = page.locator(".message.model").last();
        await last.getByRole("button", { name: "Retry" }).waitFor({ timeout: LONG });
        return { answer: ((await last.locator(".text").textContent()) ?? "").trim(), seconds };
    };
    const fits = async (): Promise<void> => assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, "nothing is wider than the screen");

    test("media/a-picture-and-a-clip-are-answered-and-kept", async (t) => {
        await give("drop", PICTURE, "ring.png", "image/png");
        await page.locator("#attached img").waitFor();
        await page.screenshot({ path: `${SCREENS}/media-composer-360.png` });
        await fits();
        const seen = await asked("Describe the image.");
        assert.equal(seen.answer, SEEN);
        await page.getByRole("button", { name: "Conversations" }).click();
        await page.locator("#new").click();
        await page.locator("#files").setInputFiles(CLIP); // sent before it has been read
        const heard = await asked(""); // it is a spoken question
        assert.equal(heard.answer, HEARD);
        t.diagnostic(`first word after ${seen.seconds.toFixed(1)} s (picture), ${heard.seconds.toFixed(1)} s (clip)`);
        await page.reload();
        await page.locator(".message.user .wave").waitFor();
        await fits();
        await page.screenshot({ path: `${SCREENS}/media-clip-360.png` });
        await page.getByRole("button", { name: "Conversations" }).click();
        await page.locator("#conversations .title", { hasText: "Describe the image." }).click();
        await page.waitForFunction(() => (document.querySelector<HTMLImageElement>(".message.user img")?.naturalWidth ?? 0) > 0);
        assert.equal(await page.locator(".message.user img").getAttribute("alt"), "ring.png");
        await page.evaluate(readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8"));
        await give("drop", CLIP, "clip.wav", "audio/wav");
        await page.locator("#attached .wave").waitFor();
        const { violations } = await page.evaluate(() => (globalThis as unknown as { axe: { run(): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }> } }).axe.run());
        assert.deepEqual(violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(" ")}`), []);
        await page.screenshot({ path: `${SCREENS}/media-picture-360.png` });
        await page.setViewportSize({ width: 1280, height: 800 });
        await page.screenshot({ path: `${SCREENS}/media-picture-wide.png` });
        await page.setViewportSize({ width: 360, height: 740 });
        await page.locator("#attached .remove").click();
        const again = await page.locator(".message.model").getByRole("button", { name: "Retry" });
        await page.locator("#attach").waitFor({ timeout: LONG });
        await again.click(); // from the file that was kept
        await page.locator(".message.model").getByRole("button", { name: "Copy" }).waitFor({ timeout: LONG });
        assert.equal((await page.locator(".message.model .text").textContent())?.trim(), SEEN);
        assert.deepEqual(problems, []);
    });

    test("media/by-keyboard-and-by-microphone", async () => {
        await page.locator("#attach").waitFor();
        const told = (): Promise<string[]> => page.evaluate(() => (window as unknown as { told: string[] }).told.splice(0));
        await told();
        const choosing = page.waitForEvent("filechooser");
        await page.locator("#attach").press("Enter");
        const chooser = await choosing;
        assert.deepEqual(await told(), ['{"kind":1}'], "a tower is made ready before there is a file");
        await page.evaluate(() => {
            const dataTransfer = new DataTransfer();
            dataTransfer.items.add(new File([], "clip.wav", { type: "audio/wav" }));
            for (let over = 0; over < 2; over++) document.body.dispatchEvent(new DragEvent("dragover", { dataTransfer, bubbles: true, cancelable: true }));
            document.body.dispatchEvent(new DragEvent("dragleave", { bubbles: true }));
        });
        assert.deepEqual(await told(), ['{"kind":2}']);
        await chooser.setFiles([PICTURE, CLIP]);
        await page.waitForFunction(() => document.querySelectorAll("#attached li").length === 2);
        assert.equal(await page.locator("#files").getAttribute("accept"), "image/*,audio/*"); // so phones offer the camera
        await give("paste", PICTURE, "pasted.png", "image/png");
        await page.waitForFunction(() => document.querySelectorAll("#attached li").length === 3);
        for (let left = 3; left > 0; left--) {
            await page.locator("#attached .remove").first().press("Enter");
            assert.equal(await page.locator("#attached li").count(), left - 1);
        }
        await page.waitForFunction(() => document.activeElement?.id === "prompt");
        await give("drop", CLIP.replace(".wav", ".ref.gguf").replace("default.2", "default"), "broken.png", "image/png");
        await page.getByRole("alert").getByText("broken.png cannot be decoded by this browser.").waitFor();
        await page.locator("#record").press("Enter");
        await page.getByRole("alert").getByText("The microphone was not allowed").waitFor();
        await context.grantPermissions(["microphone"]);
        await page.keyboard.press("Enter");
        await page.locator("#record[aria-pressed=true]").waitFor();
        await new Promise((resolve) => setTimeout(resolve, 600));
        await page.keyboard.press("Enter");
        await page.getByRole("button", { name: "Remove Recording" }).click();
    });

    test("media/a-model-without-towers-says-so", async () => {
        await give("drop", `${FIXTURES}e2b-q4_0.gguf`, "small.gguf", "");
        await page.waitForFunction(() => document.getElementById("model-name")?.textContent === "small.gguf" && document.getElementById("adapter")?.textContent !== "", undefined, { timeout: LONG });
        await page.locator("#attach").waitFor({ state: "hidden" });
        assert.equal(await page.locator("#record").isVisible(), false);
        await give("drop", PICTURE, "ring.png", "image/png");
        await page.getByRole("alert").getByText("This model cannot see pictures.").waitFor();
    });
});
