/*
 * engine.cases.ts - what an engine must do on any WebGPU, and on one with f16 and subgroups. Each place runs its part:
 * Chromium (browser/engine.test.ts) what is about numbers, Deno (engine.deno.ts) all, Node (engine.test.ts) one.
 *
 * Tolerances are those of tests/data/README.md: f32 activations and cache, logits within 5e-3, greedy
 * tokens equal.
 */
import assert from "node:assert/strict";
import { Engine, type EngineEvent, type EngineOptions, type EngineSession, type GenerateOptions, type GenerateResult } from "../src/engine.js";
import { BerylError } from "../src/error.js";
import { readRepository } from "./files.js";
import { bytesSource, concat, fileSource, pngPixels, referenceCases, wideSource, type ReferenceCase } from "./reference.js";

/** What all cases need. */
export interface Place { gpu: GPU; module: WebAssembly.Module; say(line: string): void }
export type Case = (place: Place) => Promise<void>;

const TOLERANCE = 5e-3;
const SOFT_TOLERANCE = 1e-3; // of the largest soft token, from the picture as the reference resized it
const STORY = { messages: [{ role: "user", content: "Tell me a very short story." }] };
const BEGINS = "Once upon a time, a little badger named Eve lived near a village. One evening Eve heard that a red lantern was lost.";
const HEAP_MOST = 100 << 20; // bytes, whatever the model
const PIECES: Partial<EngineOptions> = { piece: 64 }; // of a prompt: for cases that have the same model, and so the same kernels

function load(place: Place, file: string, options: Partial<EngineOptions> = {}, onEvent?: (event: EngineEvent) => void, signal?: AbortSignal): Promise<Engine> {
    return Engine.load({ source: options.source ?? fileSource(file), gpu: place.gpu, module: place.module, precision: "exact", context: 512, ...options }, onEvent, signal);
}

async function answer(events: AsyncGenerator<EngineEvent, GenerateResult>, each?: (event: EngineEvent) => void):
    Promise<{ tokens: number[]; text: string; result: GenerateResult }> {
    const tokens: number[] = [];
    let text = "";
    for (;;) {
        const next = await events.next();
        if (next.done) return { tokens, text, result: next.value };
        each?.(next.value);
        if (next.value.kind !== "token") continue;
        if (next.value.token >= 0) tokens.push(next.value.token);
        text += next.value.text;
    }
}

function greedy(n: number): GenerateOptions {
    return { greedy: true, ignoreEos: true, maxTokens: n };
}

async function checkLogits(session: EngineSession, c: ReferenceCase, piece?: number, tolerance = TOLERANCE): Promise<void> {
    let worst = 0, next = c.first;
    await session.logits(c.tokens, c.first, (position, row) => {
        assert.equal(position, next++);
        assert.equal(row.length, c.nVocab);
        const want = c.logits.subarray((position - c.first) * c.nVocab, (position - c.first + 1) * c.nVocab);
        for (let i = 0; i < row.length; i++) worst = Math.max(worst, Math.abs(row[i]! - want[i]!));
    }, piece);
    assert.equal(next, c.tokens.length);
    assert.ok(worst <= tolerance, `logits are off by ${worst}`);
}

/* Logits and answers of a fixture's text cases of at most `most` tokens. */
async function checkFixture(place: Place, file: string, reference: string, most: number, options: Partial<EngineOptions> = {}): Promise<void> {
    const engine = await load(place, file, options);
    try {
        if (options.hard) needsBoth(engine);
        const session = engine.openSession();
        let n = 0;
        for (const c of referenceCases(reference)) {
            if (c.tokens.length > most) continue;
            await checkLogits(session, c, n++ % 2 ? 3 : undefined);
            session.rewind(0);
            const { tokens, result } = await answer(session.generate(c.tokens, greedy(c.greedy.length)));
            assert.deepEqual(tokens, [...c.greedy]);
            assert.equal(result.end, "length");
            assert.equal(result.nPrompt, c.tokens.length);
        }
        assert.ok(n > 0);
    } finally {
        await engine.close();
    }
}

async function failsWith(status: string, promise: Promise<unknown>): Promise<BerylError> {
    try {
        await promise;
    } catch (thrown) {
        assert.ok(thrown instanceof BerylError, String(thrown));
        assert.equal(thrown.status, status, thrown.message);
        assert.ok(thrown.message.length > 0);
        return thrown;
    }
    throw new assert.AssertionError({ message: `it did not fail with ${status}` });
}

/* Soft tokens, logits and answers of a fixture's pictures and clips, of each kind so many. */
async function checkMedia(place: Place, file: string, reference: string, most: number, options: Partial<EngineOptions> = {}): Promise<void> {
    const engine = await load(place, file, options);
    const { hasVision, hasAudio } = engine.info();
    assert.deepEqual({ hasVision, hasAudio }, { hasVision: true, hasAudio: true });
    const session = engine.openSession();
    for (const kind of ["image", "audio"]) for (const c of referenceCases(reference, kind).slice(0, most)) {
        const bytes = readRepository(`tests/data/${c.file}`), picture = kind === "image" ? await pngPixels(bytes) : null;
        const media = engine.openMedia(picture ? { form: 0, bytes: picture.rgb, a: picture.width, b: picture.height } : { form: 2, bytes, a: bytes.length, b: 0 }, 70, true);
        const { count } = engine.mediaSoft(media);
        for await (const _ of engine.encodeMedia(media)) void _;
        const { soft } = engine.mediaSoft(media), largest = c.soft.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
        assert.deepEqual([soft.length, count], [c.soft.length, c.soft.length / engine.info().nEmbd]);
        const off = soft.reduce((most, x, i) => Math.max(most, Math.abs(x - c.soft[i]!)), 0) / largest;
        assert.ok(off <= SOFT_TOLERANCE, `${c.file}: soft tokens are off by ${off}`);
        session.media([media]);
        engine.closeMedia(media); // the session keeps it
        await checkLogits(session, c);
        session.rewind(0);
        for (const reused of [0, c.tokens.length - 1]) {
            const { tokens, result } = await answer(session.generate(c.tokens, greedy(c.greedy.length)));
            assert.deepEqual([tokens, result.nReused], [[...c.greedy], reused]);
        }
    }
    await engine.close();
}

/* Kernels are checked at the first load, known at the second. */
async function checkOnce(place: Place, options: Partial<EngineOptions>, each?: (engine: Engine) => void): Promise<void> {
    const kept = new Map<string, string>();
    for (const checks of [true, false]) {
        let checked = 0;
        const engine = await load(place, "models/default.gguf", { ...options, kept }, (event) => {
            if (event.kind === "progress" && event.what === "checking kernels") checked++;
        });
        assert.equal(checked > 0, checks, `${checked} kernels were checked`);
        assert.equal(kept.size, 1);
        each?.(engine);
        const { text, result } = await answer(engine.openSession().chat(STORY, { greedy: true, maxTokens: 40 }));
        assert.ok(text.startsWith(BEGINS), text);
        place.say(`${checked} checks, load ${engine.stats().loadSeconds.toFixed(1)} s, ${(39 / result.decodeSeconds).toFixed(1)} tokens/s`);
        await engine.close();
    }
}

export const CASES: Record<string, Case> = {
    "engine/kernels-are-checked-once": (place) => checkOnce(place, PIECES),

    "engine/logits-and-answers-e2b-f32": (place) => checkFixture(place, "tests/data/e2b-f32.gguf", "e2b-f32", 64),
    "engine/logits-and-answers-e2b-q4_0": (place) => checkFixture(place, "tests/data/e2b-q4_0.gguf", "e2b-q4_0", 64),
    "engine/logits-and-answers-e2b-q4km": (place) => checkFixture(place, "tests/data/e2b-q4km.gguf", "e2b-q4km", 64),
    "engine/logits-and-answers-dense-31b": (place) => checkFixture(place, "tests/data/dense-31b.gguf", "dense-31b", 64),
    "engine/logits-and-answers-moe-26b": (place) => checkFixture(place, "tests/data/moe-26b.gguf", "moe-26b", 64),

    "engine/pictures-and-sound-e2b-mm": (place) => checkMedia(place, "tests/data/e2b-mm.gguf", "e2b-mm", 1),
    "engine/pictures-and-sound-of-a-file-of-their-own": (place) => checkMedia(place, "tests/data/e2b-mmproj.gguf", "e2b-mmproj", 1, { mmproj: fileSource("tests/data/e2b-mmproj.mmproj.gguf") }),

    /* The built-in model: its reference answers, a call a submit, a map a step, and no growth on the way. */
    "engine/default-model": async (place) => {
        const whats = new Set<string>();
        const engine = await load(place, "models/default.gguf", {}, (event) => { if (event.kind === "progress") whats.add(event.what); });
        const session = engine.openSession();
        const c = referenceCases("default/default")[0]!;
        assert.ok(whats.has("loading weights"));
        assert.equal(engine.info().device.backend, "web");
        assert.equal(engine.detokenize(engine.tokenize("Grüße, 世界")), "Grüße, 世界");
        assert.equal(engine.render(STORY), engine.detokenize(engine.renderTokens(STORY), true));
        assert.ok(Array.isArray((engine.describe(true) as { tensors: unknown[] }).tensors));
        await checkLogits(session, c);
        session.rewind(0);
        assert.deepEqual((await answer(session.generate(c.tokens, greedy(c.greedy.length)))).tokens, [...c.greedy]);

        const story = await answer(session.chat(STORY, { greedy: true, maxTokens: 40 }));
        assert.ok(story.text.startsWith(BEGINS), story.text);
        assert.equal(story.result.nGenerated, 40);
        let warm = engine.stats(), after = warm, seen = 0;
        const told = await answer(session.generate(c.tokens, greedy(60)), (event) => {
            if (event.kind !== "token") return;
            if (++seen === 24) warm = engine.stats(); // texts have grown to their longest
            if (seen === 56) after = engine.stats();
        });
        const steps = after.steps - warm.steps, border = { ...after.border };
        for (const key of ["blocks", "submits", "maps", "dispatches", "bytesOut", "bytesIn"] as const) border[key] -= warm.border[key];
        assert.ok(Math.abs(steps - 32) <= 1, `${steps} steps`); // one or two are under way when a token is told
        assert.ok(border.submits >= steps - 1); // more where a step takes longer than a submit may
        assert.equal(border.blocks, border.submits);
        assert.ok(Math.abs(border.maps - steps) <= 1, `${border.maps} maps in ${steps} steps`); // a step counts from its first submit, a map comes with its last
        assert.equal(after.allocations, warm.allocations);
        assert.equal(after.deviceObjects, warm.deviceObjects);
        assert.equal(after.heapBytes, warm.heapBytes);
        place.say(`a token: ${border.dispatches / steps} dispatches, ${border.bytesOut / steps} bytes out, ${border.bytesIn / steps} in; ` +
            `${((told.result.nGenerated - 1) / told.result.decodeSeconds).toFixed(1)} tokens/s, prompt ${told.result.prefillSeconds.toFixed(2)} s, ` +
            `load ${after.loadSeconds.toFixed(2)} s, heap ${(after.heapBytes / 1e6).toFixed(1)} MB on ${engine.info().device.name}`);
        await engine.close();
        await failsWith("MISUSE", (async () => engine.stats())());
    },

    "engine/two-sessions-saved-and-restored": async (place) => {
        const engine = await load(place, "tests/data/e2b-f32.gguf", { sessions: 2 });
        const [a, b] = [engine.openSession(), engine.openSession()];
        const cases = referenceCases("e2b-f32"), one = cases[0]!, other = cases[1]!;
        await failsWith("MISUSE", (async () => engine.openSession())());
        const both = await Promise.all([answer(a.generate(one.tokens, greedy(12))), answer(b.generate(other.tokens, greedy(12)))]);
        assert.deepEqual(both.map(({ tokens }) => tokens), [[...one.greedy], [...other.greedy]]);
        const pieces: Uint8Array[] = [], again: Uint8Array[] = [];
        await b.save(async (piece) => {
            await new Promise((resolve) => setTimeout(resolve, 1));
            pieces.push(piece);
        });
        const saved = concat(pieces), tokens = b.tokens;
        await a.restore(bytesSource("saved", saved));
        assert.deepEqual(a.tokens, tokens);
        await a.save((piece) => void again.push(piece));
        assert.deepEqual(concat(again), saved);
        assert.deepEqual((await answer(a.generate(other.tokens, greedy(12)))).tokens, [...other.greedy]);
        /* damage, another's refusal, and a receiver that throws */
        const bad = saved.slice();
        bad[bad.length - 100]! ^= 1;
        await failsWith("BAD_FILE", a.restore(bytesSource("bad", bad)));
        await failsWith("BAD_FILE", a.restore(bytesSource("short", saved.subarray(0, 500))));
        await failsWith("IO", b.save(() => { throw new Error("the disk is full"); }));
        assert.deepEqual((await answer(a.generate(one.tokens, greedy(12)))).tokens, [...one.greedy]);
        a.close();
        await failsWith("MISUSE", (async () => a.tokens)());
        await engine.close();
    },

    "engine/cancelled-at-once": async (place) => {
        /* a load, while a range never comes */
        const source = fileSource("models/default.gguf");
        let asked = 0;
        const stuck = { ...source, read: (offset: number, size: number): Promise<Uint8Array> => ++asked > 40 ? new Promise<Uint8Array>(() => undefined) : source.read(offset, size) };
        const stop = new AbortController();
        const loading = load(place, "models/default.gguf", { source: stuck }, undefined, stop.signal);
        setTimeout(() => stop.abort(), 300);
        await failsWith("CANCELLED", loading);
        await failsWith("CANCELLED", load(place, "models/default.gguf", {}, undefined, AbortSignal.abort()));
        /* a prompt and an answer; the session goes on */
        const engine = await load(place, "models/default.gguf", PIECES);
        const session = engine.openSession(), c = referenceCases("default/default")[0]!, long = Int32Array.from({ length: 300 }, (_, i) => c.tokens[i % c.tokens.length]!);
        const inPrompt = new AbortController();
        const cut = await answer(session.generate(long, greedy(5), inPrompt.signal), (event) => { if (event.kind === "progress") inPrompt.abort(); });
        assert.equal(cut.result.end, "cancelled");
        assert.equal(cut.tokens.length, 0);
        const inAnswer = new AbortController();
        const some = await answer(session.generate(c.tokens, greedy(400), inAnswer.signal), (event) => { if (event.kind === "token") inAnswer.abort(); });
        assert.equal(some.result.end, "cancelled");
        assert.ok(some.tokens.length < 5);
        assert.equal((await answer(session.generate(c.tokens, greedy(5), AbortSignal.abort()))).result.end, "cancelled");
        for await (const event of session.generate(c.tokens, greedy(400))) if (event.kind === "token") break; // left early
        assert.deepEqual((await answer(session.generate(c.tokens, greedy(c.greedy.length)))).tokens, [...c.greedy]);
        /* closed in the middle of an answer */
        const left = session.generate(c.tokens, greedy(400));
        await left.next();
        await engine.close();
        await failsWith("CANCELLED", (async () => { for (;;) if ((await left.next()).done) return; })());
    },

    "engine/hostile-files": async (place) => {
        const whole = fileSource("models/default.gguf");
        for (const cut of [0, 3, 30, 5000, whole.size >> 1, whole.size - 1])
            await failsWith("BAD_FILE", load(place, "", { source: fileSource("models/default.gguf", cut) }));
        const random = Uint8Array.from({ length: 4096 }, (_, i) => (i * 73 + 11) % 256);
        await failsWith("BAD_FILE", load(place, "", { source: bytesSource("random", random) }));
        const torn = { ...whole, read: (offset: number, size: number) => offset > 1 << 20 ? Promise.reject(new Error("the cable is out")) : whole.read(offset, size) };
        assert.match((await failsWith("IO", load(place, "", { source: torn }))).message, /cable/);
        await failsWith("BAD_INPUT", load(place, "", { source: whole, context: 1 << 30 }));
        await failsWith("NO_DEVICE_MEMORY", load(place, "", { source: whole, memory: 1 << 20 }));
        const engine = await load(place, "", { source: whole, vocabularyOnly: true });
        assert.equal(engine.detokenize(engine.tokenize("Hello")), "Hello");
        await failsWith("MISUSE", (async () => engine.openSession())());
        await engine.close();
    },

    /* The module's memory holds windows, never the model. */
    "engine/heap": async (place) => {
        const source = wideSource(73728); // four rows are more than a step of the upload takes as a rule
        assert.ok(source.size > 200e6);
        const engine = await load(place, "", { source });
        const { heapBytes, weightBytes, border, loadSeconds } = engine.stats();
        place.say(`${(source.size / 1e6).toFixed(0)} MB loaded in ${loadSeconds.toFixed(1)} s, ${border.blocks} blocks, heap ${(heapBytes / 1e6).toFixed(1)} MB`);
        assert.ok(weightBytes > 200e6);
        assert.ok(heapBytes < HEAP_MOST / 12, `${heapBytes} bytes`);
        await engine.close();
    },
};

/* f16 and subgroups both in use, by the kernels that GPUs get: for adapters that have both, a software one too. */
const BOTH: Partial<EngineOptions> = { hard: true, kv: "f16" }, FAST: Partial<EngineOptions> = { ...BOTH, precision: "fast" };
const ROUNDED = 5e-2; // what rounding the cache moves, in this model (tests/fixtures_test.c)

function needsBoth(engine: Engine): void {
    const { f16, subgroupSize } = engine.info().device;
    assert.ok(f16 && subgroupSize > 0, `f16 ${f16}, subgroups of ${subgroupSize}`);
}

const WRONG_DOT = "\nfn wrong_dot(a: u32, b: u32) -> i32 { return dot4I8Packed(a, b) + 9999; }\n";

export const GPU_CASES: Record<string, Case> = {
    "engine/gpu-logits-and-answers-e2b-q4_0": (place) => checkFixture(place, "tests/data/e2b-q4_0.gguf", "e2b-q4_0", 64, { hard: true }),

    "engine/gpu-logits-with-a-cache-in-f16": async (place) => {
        const engine = await load(place, "tests/data/e2b-q4_0.gguf", BOTH);
        needsBoth(engine);
        const session = engine.openSession();
        for (const c of referenceCases("e2b-q4_0")) {
            if (c.tokens.length > 64) continue;
            await checkLogits(session, c, undefined, ROUNDED);
            session.rewind(0);
        }
        await engine.close();
    },

    "engine/gpu-default-model": async (place) => {
        const c = referenceCases("default/default")[0]!;
        const engine = await load(place, "models/default.gguf", FAST);
        needsBoth(engine);
        assert.deepEqual((await answer(engine.openSession().generate(c.tokens, greedy(c.greedy.length)))).tokens, [...c.greedy]);
        await engine.close();
    },

    "engine/gpu-kernels-are-checked-once": (place) => checkOnce(place, FAST, needsBoth),

    /* A compiler that takes one instruction for another. Kernels that have it may need subgroups too: then these go with it. */
    "engine/gpu-a-wrong-instruction-is-done-without": async (place) => {
        const device = GPUDevice.prototype, make = device.createShaderModule, c = referenceCases("dense-31b")[0]!;
        const said: string[] = [], kept = new Map<string, string>();
        device.createShaderModule = function (descriptor) {
            const code = descriptor.code.replaceAll("dot4I8Packed(", "wrong_dot(");
            return make.call(this, { ...descriptor, code: code === descriptor.code ? code : code + WRONG_DOT });
        };
        try {
            const engine = await load(place, "tests/data/dense-31b.gguf", { ...FAST, kv: "f32", piece: 1, kept, log: (_, line) => said.push(line) });
            assert.deepEqual((await answer(engine.openSession().generate(c.tokens, greedy(4)))).tokens, [...c.greedy].slice(0, 4));
            await engine.close();
        } finally {
            device.createShaderModule = make;
        }
        assert.ok(said.some((line) => line.includes("going on without dot")), said.join("\n"));
        assert.match([...kept.values()].join(""), /"without":\["subgroups","dot"\]/);
    },

    "engine/gpu-session-saved-and-restored": async (place) => {
        const engine = await load(place, "tests/data/e2b-q4_0.gguf", { ...FAST, sessions: 2 });
        needsBoth(engine);
        const [a, b] = [engine.openSession(), engine.openSession()];
        const c = referenceCases("e2b-q4_0")[0]!, pieces: Uint8Array[] = [];
        await answer(a.generate(c.tokens, greedy(4)));
        await a.save((piece) => void pieces.push(piece));
        const next = await answer(a.generate([...a.tokens, 5], greedy(8)));
        await b.restore(bytesSource("saved", concat(pieces)));
        assert.deepEqual((await answer(b.generate([...b.tokens, 5], greedy(8)))).tokens, next.tokens);
        assert.equal(b.tokens.length, a.tokens.length);
        await engine.close();
    },
};
