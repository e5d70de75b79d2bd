/*
 * gpt.test.ts - the page on which a GPT learns, in headless Chromium on its software adapter: by the keyboard alone it starts, its loss
 * falls, it writes, and it stops; accessible in light and dark, wide and narrow.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, describe, test } from "node:test";
import { leftOut } from "../draw.js";
import { executable, freshPage, openSite, SCREENS, type Site } from "./chromium.js";

const LONG = 300_000; // software adapters, on machines that do other things too

describe("gpt", { skip: executable ? leftOut(2, 4) : "no Chromium is installed", timeout: LONG }, () => {
    let site: Site;
    before(async () => { site = await openSite(); });
    after(async () => { await site.close(); });

    test("gpt/learns-in-the-page", { timeout: LONG }, async (t) => {
        const { context, page, problems } = await freshPage(site);
        await page.goto(site.url);
        await page.getByRole("link", { name: "Watch a GPT learn" }).click();
        await page.getByRole("heading", { name: "A GPT learns in this tab" }).waitFor();
        const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
        await page.evaluate(axe);
        await page.locator("#start").focus();
        await page.keyboard.press("Enter");
        await page.locator("#where").getByText("which is slow").waitFor({ timeout: LONG });
        const began = Date.now();
        // ln 128 is 4.85, where it begins; three quarters of it are below that
        await page.waitForFunction(() => {
            const [, first, last, n] = /from ([\d.]+) to ([\d.]+) in (\d+)/.exec(document.getElementById("curve")?.getAttribute("aria-label") ?? "") ?? [];
            return Number(n) >= 4 && Number(first) > 4 && Number(last) < 0.75 * Number(first);
        }, undefined, { timeout: LONG });
        await page.waitForFunction(() => (document.getElementById("sample")?.textContent ?? "Nothing yet.") !== "Nothing yet.", undefined, { timeout: LONG });
        t.diagnostic(`after ${((Date.now() - began) / 1000).toFixed(1)} s: ${await page.locator("#figures").textContent() ?? ""}, ${await page.locator("#curve").getAttribute("aria-label") ?? ""}`);
        for (const colorScheme of ["light", "dark"] as const)
            for (const [size, viewport] of [["wide", { width: 1280, height: 900 }], ["narrow", { width: 390, height: 780 }]] as const) {
                await page.emulateMedia({ colorScheme });
                await page.setViewportSize(viewport);
                const { violations } = await page.evaluate(() => (globalThis as unknown as { axe: { run(): Promise<{ violations: { id: string; nodes: { html: string }[] }[] }> } }).axe.run());
                assert.deepEqual(violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(" ")}`), []);
                assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "nothing is wider than the page");
                await page.screenshot({ path: `${SCREENS}/gpt-${colorScheme}-${size}.png` });
            }
        assert.equal(await page.evaluate(() => document.activeElement?.id), "stop");
        await page.keyboard.press("Enter");
        await page.locator("#where").getByText("Stopped.").waitFor({ timeout: LONG });
        await page.locator("#start").waitFor();
        await page.locator("#text").fill("too short");
        await page.locator("#start").click();
        await page.getByRole("alert").getByText("at least 34 characters").waitFor();
        assert.deepEqual(problems, []);
        await context.close();
    });
});
