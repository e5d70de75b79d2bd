/*
 * full.cases.ts - what the full module must do on any WebGPU: adapters against what PEFT computed for them, and a training
 * against the run that PEFT made (tests/data/README.md), between whose steps the model answers.
 *
 * Tolerances are those of tests/train_test.c and engine.cases.ts.
 */
import assert from "node:assert/strict";
import { Engine } from "../src/engine.js";
import { BerylError } from "../src/error.js";
import { closeAdapter, openAdapter, openTraining, sessionAdapters } from "../src/full_engine.js";
import type { FullModel } from "../src/full_model.js";
import { load } from "../src/load.js";
import { readRepository } from "./files.js";
import type { Case, Place } from "./engine.cases.js";
import { fileSource, openReference, pngPixels, referenceCases, type ReferenceCase } from "./reference.js";

const LOGITS = 5e-3;
/* Five times what float32 and float64 differ by in the reference runs (their README). */
const LOSS = 5 * 4e-5, NORM = 5 * 1e-4, FINAL = 5 * 9e-5;

const FEW = 3; // steps of eight

const LORA = "tests/data/lora";
const blob = (path: string): Blob => new Blob([readRepository(`${LORA}/${path}`)]);
const peft = (name: string): Blob[] => ["adapter_model.safetensors", "adapter_config.json"].map((file) => blob(`${name}/${file}`));

async function worst(engine: Engine, c: ReferenceCase, adapters: number[], scales: number[]): Promise<number> {
    const session = engine.openSession();
    let most = 0;
    sessionAdapters(engine, session, adapters, scales);
    await session.logits(c.tokens, c.first, (position, row) => {
        for (let i = 0; i < row.length; i++) most = Math.max(most, Math.abs(row[i]! - c.logits[(position - c.first) * c.nVocab + i]!));
    });
    session.close();
    return most;
}

async function fails(status: string, message: RegExp, promise: Promise<unknown>): Promise<void> {
    const thrown: unknown = await promise.then(() => null, (one: unknown) => one);
    assert.ok(thrown instanceof BerylError, `it did not fail with ${status}`);
    assert.equal(thrown.status, status, thrown.message);
    assert.match(thrown.message, message);
}

function open(place: Place, file: string, options: object = {}): Promise<FullModel> {
    const source = new Blob([readRepository(file)]);
    return load(source, { full: true, worker: false, gpu: place.gpu, module: place.module, precision: "exact", context: 64, ...options });
}

/* The F32 tensors of a safetensors file. */
async function tensorsOf(file: Blob): Promise<Map<string, Float32Array>> {
    const bytes = await file.arrayBuffer(), size = Number(new DataView(bytes).getBigUint64(0, true));
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 8, size))) as Record<string, { data_offsets?: [number, number] }>;
    return new Map(Object.entries(head).flatMap(([name, { data_offsets: at }]) => at ? [[name, new Float32Array(bytes.slice(8 + size + at[0], 8 + size + at[1]))] as const] : []));
}

async function greedy(session: { generate: FullModel["generate"] }, tokens: Int32Array): Promise<string> {
    return await session.generate(tokens, { greedy: true, ignoreEos: true, maxTokens: 8 }).text();
}

/* What was saved, against PEFT's. */
async function checkFinal(files: readonly File[], reference: readonly Blob[], rate: number): Promise<void> {
    assert.deepEqual(files.map(({ name }) => name), ["adapter_model.safetensors", "adapter_config.json"]);
    const got = await tensorsOf(files[0]!), want = await tensorsOf(reference[0]!);
    let all = 0, far = 0;
    for (const [name, values] of want) {
        const mine = got.get(name);
        assert.equal(mine?.length, values.length, name);
        for (let i = 0; i < values.length; i++) {
            const off = Math.abs(mine![i]! - values[i]!);
            assert.ok(off <= 2 * rate, `${name}: off by ${off}`);
            far += off > FINAL ? 1 : 0;
            all++;
        }
    }
    assert.ok(all > 0 && far * 1000 <= all, `${far} of ${all} elements are away`);
}

/* As callers have it: the run of PEFT, an answer between its steps, its files; not whole: its first steps. */
async function checkTraining(place: Place, whole: boolean): Promise<void> {
    const began = performance.now(), model = await open(place, "tests/data/e2b-f32.gguf", { sessions: 2 }), run = "train-e2b-f32";
    const { pairs, words } = openReference(`lora/${run}/ref.gguf`), n = (key: string): number => pairs.get(key) as number;
    const list = (name: string): Float32Array => new Float32Array(words(name).bytes);
    const [losses, norms, rates, valid] = [list("loss"), list("grad_norm"), list("lr"), list("valid_loss")];
    const order = new Int32Array(words("order").bytes), rows = order.length / n("epochs");
    const initial = await model.openAdapter(peft(`${run}/initial`));
    const text = await blob(`${run}/train.jsonl`).text();
    await fails("BAD_INPUT", /line 2/, model.train({ data: `${text.split("\n")[0]}\n{"tokens":[1,2],"mask":7}\n` }));
    await fails("MISUSE", /train has no `epoch`/, model.train({ data: text, epoch: 2 } as never));
    await fails("MISUSE", /`rank` must be a whole number/, model.train({ data: text, rank: 1.5 }));
    const training = await model.train({
        data: blob(`${run}/train.jsonl`), valid: blob(`${run}/valid.jsonl`), from: initial, epochs: n("epochs"), batch: n("micro_batch"), accumulate: n("accumulate"),
        rate: n("learning_rate"), warmup: n("warmup_steps"), beta1: n("beta1"), beta2: n("beta2"), eps: n("eps"), weightDecay: n("weight_decay"), clip: n("max_grad_norm"),
        order: Array.from({ length: n("epochs") }, (_, i) => [...order.subarray(i * rows, (i + 1) * rows)]),
    });
    assert.equal(training.report.steps, n("steps"));
    await fails("MISUSE", /trains/, model.openAdapter(peft(`${run}/initial`)));
    if (whole) assert.ok(Math.abs(await training.measure() - valid[0]!) <= LOSS);
    const c = referenceCases("e2b-f32")[0]!, learner = model.session(), plain = model.session();
    const before = await greedy(plain, c.tokens);
    await learner.setAdapters([training.adapter]);
    let k = 0;
    for await (const { loss, gradNorm, rate, tokens, step } of training) {
        assert.ok(Math.abs(loss - losses[k]!) <= LOSS, `step ${k}: a loss of ${loss}, not ${losses[k]}`);
        assert.ok(Math.abs(gradNorm - norms[k]!) <= NORM * norms[k]!, `step ${k}: a norm of ${gradNorm}, not ${norms[k]}`);
        assert.ok(Math.abs(rate - rates[k]!) <= 1e-9);
        assert.ok(tokens > 0 && step === ++k);
        if (k === 1) place.say(`first step after ${((performance.now() - began) / 1000).toFixed(1)} s`);
        if (k === 2) await greedy(learner, c.tokens);
        if (!whole && k === FEW) break;
    }
    assert.equal(k, whole ? n("steps") : FEW);
    place.say(`all steps after ${((performance.now() - began) / 1000).toFixed(1)} s`);
    assert.equal(await greedy(plain, c.tokens), before);
    if (whole) {
        assert.ok(Math.abs(await training.measure() - valid[1]!) <= LOSS);
        await checkFinal(await training.save(), peft(`${run}/final`), n("learning_rate"));
    }
    const last = await greedy(learner, c.tokens), gguf = await training.save("gguf");
    await training.close();
    await fails("MISUSE", /closed/, training.step());
    /* the same from its file; and the adapter outlives its training */
    const again = await model.openAdapter(gguf[0]!, { scale: 1 });
    await plain.setAdapters([again]);
    assert.equal(await greedy(plain, c.tokens), last);
    assert.equal(await greedy(learner, c.tokens), last);
    await plain.setAdapters([]);
    assert.equal(await greedy(plain, c.tokens), before);
    await model.close();
}

/* Pictures by the names that rows have for them; whole: the mean loss that PEFT begins with, and its first step. */
async function checkPictures(place: Place, whole: boolean): Promise<void> {
    const model = await open(place, "tests/data/e2b-mm.gguf", { context: 128 }), run = "train-image";
    const { pairs, words } = openReference(`lora/${run}/ref.gguf`), n = (key: string): number => pairs.get(key) as number;
    const first = (name: string): number => new Float32Array(words(name).bytes)[0]!, order = new Int32Array(words("order").bytes);
    const names = ["e2b-mm.0.resized.png", "e2b-mm.1.resized.png"];
    const pictures = Object.fromEntries(await Promise.all(names.map(async (name) => [name, await pngPixels(readRepository(`tests/data/${name}`))] as const)));
    const data = blob(`${run}/train.jsonl`), from = await model.openAdapter(peft(`${run}/initial`));
    await fails("MISUSE", /`pictures` must be/, model.train({ data, pictures: [1] as never }));
    await fails("BAD_INPUT", /line \d+.*e2b-mm\.1\.resized\.png' was not given/, model.train({ data, pictures: { [names[0]!]: pictures[names[0]!]! } }));
    const training = await model.train({
        data, valid: blob(`${run}/valid.jsonl`), pictures, from, epochs: n("epochs"), batch: n("micro_batch"), accumulate: n("accumulate"), rate: n("learning_rate"),
        warmup: n("warmup_steps"), order: Array.from({ length: n("epochs") }, (_, i) => [...order.subarray(i * order.length / n("epochs"), (i + 1) * order.length / n("epochs"))]),
    });
    assert.equal(training.report.rows, order.length / n("epochs"));
    if (whole) {
        assert.ok(Math.abs(await training.measure() - first("valid_loss")) <= LOSS);
        const { loss, gradNorm } = await training.step();
        assert.ok(Math.abs(loss - first("loss")) <= LOSS, `a loss of ${loss}, not ${first("loss")}`);
        assert.ok(Math.abs(gradNorm - first("grad_norm")) <= NORM * first("grad_norm"), `a norm of ${gradNorm}, not ${first("grad_norm")}`);
    }
    await model.close();
}

export const FULL_CASES: Record<string, Case> = {
    /* Of each form, several at once, at scales; swapped in an engine that goes on. */
    "full/adapters-as-peft": async (place) => {
        const engine = await Engine.load({ source: fileSource("tests/data/e2b-f32.gguf"), gpu: place.gpu, module: place.module, precision: "exact", context: 64, sessions: 2 });
        const open = new Map<string, number>();
        for (const [name, files] of [["e2b-f32.rs", peft("e2b-f32.rs")], ["e2b-f32.part", [blob("e2b-f32.part.gguf")]]] as const) {
            const bytes = new Uint8Array(await files[0]!.arrayBuffer());
            open.set(name, await openAdapter(engine, bytes, files[1] ? await files[1].text() : ""));
        }
        let n = 0;
        for (const c of referenceCases("lora/e2b-f32")) {
            if (!c.adapters.every((name) => open.has(name)) || c.tokens.length > 16) continue;
            const far = await worst(engine, c, c.adapters.map((name) => open.get(name)!), c.scales);
            assert.ok(far <= LOGITS, `${c.adapters.join(" + ")}: logits are off by ${far}`);
            n++;
        }
        assert.ok(n >= 5, `${n} cases`);
        for (const number of open.values()) closeAdapter(engine, number);
        await fails("UNSUPPORTED", /'adapter': .*\[.*\]/, (async () => openAdapter(engine, readRepository(`${LORA}/dense-31b.part.gguf`), ""))());
        await fails("BAD_FILE", /adapter/, (async () => openAdapter(engine, readRepository("models/default.gguf").slice(0, 99), ""))());
        const short = { rgb: new Uint8Array(5), width: 9, height: 9 };
        await fails("MISUSE", /picture 1 has fewer pixels/, openTraining(engine, {}, readRepository("tests/data/lora/train-image/train.jsonl"), new Uint8Array(0), [["a.png", short]], 0));
        await engine.close();
    },

    "full/training-with-pictures": (place) => checkPictures(place, false),
    "full/training-on-pictures": (place) => checkPictures(place, true),
    "full/training-as-peft-first-steps": (place) => checkTraining(place, false),
    "full/training-as-peft": (place) => checkTraining(place, true),
};
