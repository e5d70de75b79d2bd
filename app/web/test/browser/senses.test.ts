/*
 * senses.test.ts - what the built-in model sees and hears in headless Chromium, counted: pictures that are drawn and clips that are
 * spoken by tests/senses.py, with its questions, by the package in a page.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { after, before, describe, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { executable, launch, ROOT } from "./chromium.js";
import { openLab, type Lab } from "./lab.js";

const LONG = 1_200_000; // software adapters, on machines that do other things too
const MANY = process.env["BERYL_TEST_ALL"] ? 60 : 4;

interface Case { kind: string; media: "image" | "audio"; file: string; question: string; answer: string }
interface Made { cases: Case[]; least: Record<string, number> }

/* In the page: the answers, greedy, each in a conversation of its own. */
async function answers(cases: { media: string; data: string; question: string }[]): Promise<string[]> {
    const { Beryl } = await import(/* @vite-ignore */ `${location.origin}/dist/index.js`) as typeof import("../../src/index.js");
    const model = await Beryl.load("builtin"), said: string[] = [];
    for (const { media, data, question } of cases) {
        const file = await (await fetch(data)).blob();
        const part = media === "image" ? { type: "image" as const, image: file } : { type: "audio" as const, audio: file };
        const content = [part, ...question ? [{ type: "text" as const, text: question }] : []];
        said.push((await model.chat([{ role: "user", content }], { maxTokens: 48, temperature: 0 }).text()).trim());
    }
    await model.close();
    return said;
}

describe("senses in Chromium", { skip: executable ? false : "no Chromium is installed", timeout: 4 * LONG }, () => {
    let lab: Lab, folder: string, made: Made, browser: Browser, page: Page;
    before(async () => {
        folder = mkdtempSync(`${tmpdir()}/beryl-senses-`);
        const python = spawnSync("python3", [`${ROOT}../../tests/senses.py`, "make", folder, String(MANY)], { encoding: "utf8" });
        assert.equal(python.status, 0, python.stderr);
        made = JSON.parse(readFileSync(`${folder}/cases.json`, "utf8")) as Made;
        lab = await openLab();
        browser = await launch();
        page = await browser.newPage();
        await page.goto(lab.url);
    }, { timeout: LONG });
    after(async () => {
        await browser.close();
        await lab.close();
        rmSync(folder, { recursive: true });
    });

    for (const kind of ["pictures", "words", "all-words", "questions"])
        test(`senses/${kind}`, { timeout: LONG }, async (t) => {
            const cases = made.cases.filter((c) => c.kind === kind), least = made.least[kind];
            if (least === undefined) {
                t.skip("no espeak-ng");
                return;
            }
            const said = await page.evaluate(answers, cases.map(({ media, file, question }) => ({
                media, question, data: `data:${media === "image" ? "image/png" : "audio/wav"};base64,${readFileSync(file).toString("base64")}`,
            })));
            const wrong = cases.flatMap((c, i) => said[i] === c.answer ? [] : [`${c.question} ${said[i]}, not ${c.answer}`]);
            for (const answer of wrong)
                t.diagnostic(answer);
            t.diagnostic(`${cases.length - wrong.length} of ${cases.length}`);
            assert.ok(cases.length - wrong.length >= least, `at least ${least}: ${wrong.join("; ")}`);
        });
});
