/*
 * senses.test.ts - what the built-in model sees and hears in headless Chromium, counted: pictures that are drawn and clips that are
 * spoken by tests/senses.py, with its questions, by the package in a page.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { after, before, describe, test } from "node:test";
import type { Browser, JSHandle, Page } from "playwright-core";
import type { Model } from "../../src/index.js";
import { leftOut } from "../draw.js";
import { executable, launch, ROOT } from "./chromium.js";
import { openLab, type Lab } from "./lab.js";

const LONG = 1_200_000; // software adapters, on machines that do other things too
const MANY = process.env["BERYL_TEST_ALL"] ? 60 : 4;

interface Case { kind: string; media: "image" | "audio"; file: string; question: string; answer: string }
interface Made { cases: Case[]; least: Record<string, number> }

const dataOf = ({ media, file }: Case): string => `data:${media === "image" ? "image/png" : "audio/wav"};base64,${readFileSync(file).toString("base64")}`;

/* In the page. */
async function load(): Promise<Model> {
    const { Beryl } = await import(/* @vite-ignore */ `${location.origin}/dist/index.js`) as typeof import("../../src/index.js");
    return await Beryl.load("builtin");
}

/* In the page: the answers, greedy, each in a conversation of its own. */
async function answers({ model, cases }: { model: Model; cases: { media: string; data: string; question: string }[] }): Promise<string[]> {
    const said: string[] = [];
    for (const { media, data, question } of cases) {
        const file = await (await fetch(data)).blob();
        const part = media === "image" ? { type: "image" as const, image: file } : { type: "audio" as const, audio: file };
        const content = [part, ...question ? [{ type: "text" as const, text: question }] : []];
        said.push((await model.chat([{ role: "user", content }], { maxTokens: 48, temperature: 0 }).text()).trim());
    }
    return said;
}

/* In the page: how far soft tokens of a picture and of a clip, in each form that a page has them in, are from those of their files. */
async function forms({ model, picture, clip }: { model: Model; picture: string; clip: string }): Promise<Record<string, number>> {
    const blobs = await Promise.all([picture, clip].map(async (data) => await (await fetch(data)).blob())), apart: Record<string, number> = {};
    const [image = new Blob(), audio = new Blob()] = blobs, bitmap = await createImageBitmap(image);
    const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
    context?.drawImage(bitmap, 0, 0);
    const buffer = await new OfflineAudioContext(1, 1, 22_050).decodeAudioData(await audio.arrayBuffer()), samples = buffer.getChannelData(0);
    await model.prepareMedia("image"); // programs, buffers and all: the picture adds nothing
    const { deviceObjects } = await model.stats();
    const seen = await model.embedMedia({ type: "image", image });
    apart["what a prepared picture makes"] = (await model.stats()).deviceObjects - deviceObjects;
    const heard = await model.embedMedia({ type: "audio", audio });
    const compare = (name: string, a: Float32Array, b: Float32Array): void => {
        apart[name] = a.length === b.length ? Math.max(...a.map((x, i) => Math.abs(x - (b[i] ?? NaN)))) / Math.max(...b.map(Math.abs)) : Infinity;
    };
    compare("File", await model.embedMedia({ type: "image", image: new File([image], "picture.png") }), seen);
    compare("address", await model.embedMedia({ type: "image", image: picture }), seen);
    compare("ImageData", await model.embedMedia({ type: "image", image: context?.getImageData(0, 0, bitmap.width, bitmap.height) ?? "" }), seen);
    compare("ImageBitmap", await model.embedMedia({ type: "image", image: bitmap }), seen);
    compare("AudioBuffer", await model.embedMedia({ type: "audio", audio: buffer }), heard);
    compare("Float32Array", await model.embedMedia({ type: "audio", audio: samples, sampleRate: 22_050 }), heard);
    return apart;
}

describe("senses in Chromium", { skip: executable ? leftOut(0, 4) : "no Chromium is installed", timeout: 4 * LONG }, () => {
    let lab: Lab, folder: string, made: Made, browser: Browser, page: Page, model: JSHandle<Model>;
    before(async () => {
        folder = mkdtempSync(`${tmpdir()}/beryl-senses-`);
        const python = spawnSync("python3", [`${ROOT}../../tests/senses.py`, "make", folder, String(MANY)], { encoding: "utf8" });
        assert.equal(python.status, 0, python.stderr);
        made = JSON.parse(readFileSync(`${folder}/cases.json`, "utf8")) as Made;
        lab = await openLab();
        browser = await launch();
        page = await browser.newPage();
        await page.goto(lab.url);
        model = await page.evaluateHandle(load); // one for all
    }, { timeout: LONG });
    after(async () => {
        await browser.close();
        await lab.close();
        rmSync(folder, { recursive: true });
    });

    test("senses/forms", { timeout: LONG }, async (t) => {
        const [picture, clip] = ["image", "audio"].map((media) => made.cases.find((c) => c.media === media));
        if (!picture || !clip) {
            t.skip("no espeak-ng");
            return;
        }
        const apart = await page.evaluate(forms, { model, picture: dataOf(picture), clip: dataOf(clip) });
        for (const [form, difference] of Object.entries(apart))
            assert.ok(difference <= 1e-4, `${form}: ${difference}`); // the same pixels, the same samples
    });

    for (const kind of ["pictures", "words", "all-words", "questions"])
        test(`senses/${kind}`, { timeout: LONG }, async (t) => {
            const cases = made.cases.filter((c) => c.kind === kind), least = made.least[kind];
            if (least === undefined) {
                t.skip("no espeak-ng");
                return;
            }
            const said = await page.evaluate(answers, { model, cases: cases.map((c) => ({ media: c.media, question: c.question, data: dataOf(c) })) });
            const wrong = cases.flatMap((c, i) => said[i] === c.answer ? [] : [`${c.question} ${said[i]}, not ${c.answer}`]);
            for (const answer of wrong)
                t.diagnostic(answer);
            t.diagnostic(`${cases.length - wrong.length} of ${cases.length}`);
            assert.ok(cases.length - wrong.length >= least, `at least ${least}: ${wrong.join("; ")}`);
        });
});
