/**
 * gpt_worker.ts - a transformer that learns a text, character by character, as examples/gpt.js does: a graph with gradients and
 * adamw, and a second one that writes with copies of its parameters. In a worker, so that the page stays responsive.
 */
import { Graph, type Value } from "beryl-gpu/graph";

const BATCH = 8, TIME = 32, WIDTH = 64, HEADS = 4, LAYERS = 2, CHARS = 128;
const SAMPLE_EVERY = 4000, LETTERS = 48; // milliseconds; characters

/** What the page asks for. */
export type Asked = { text: string; rate: number } | "stop";
/** What it is told. */
export type Told = { device: string | null; parameters: number } | { step: number; loss: number } | { sample: string } | { failed: string } | { stopped: true };

interface Model { graph: Graph; scores: Value; parameters: { value: Value; dims: number[] }[] }

const tell = (told: Told): void => postMessage(told);
let stopping = false;

/* Scores of the next character at each place, [batch, TIME, CHARS]. */
async function openModel(batch: number): Promise<Model> {
    const graph = await Graph.open("gpu" in navigator ? {} : { device: "reference" }), parameters: Model["parameters"] = [];
    const parameter = (...dims: number[]): Value => {
        const value = graph.state(`p${parameters.length}`, "f32", dims);
        parameters.push({ value, dims });
        return value;
    };
    const inHeads = (x: Value): Value => x.linear(parameter(WIDTH, WIDTH)).reshape([batch, TIME, HEADS, WIDTH / HEADS]).permute([0, 2, 1, 3]);
    const table = parameter(CHARS, WIDTH);
    let x = table.gatherRows(graph.input("ids", "i32", [batch, TIME]), 1).add(parameter(TIME, WIDTH));
    for (let i = 0; i < LAYERS; i++) {
        const h = x.rmsNorm(parameter(WIDTH), 1e-5), q = inHeads(h), k = inHeads(h), v = inHeads(h);
        const seen = q.sdpa(k, v, null, { causal: true }).permute([0, 2, 1, 3]).reshape([batch, TIME, WIDTH]);
        x = x.add(seen.linear(parameter(WIDTH, WIDTH)));
        const wide = x.rmsNorm(parameter(WIDTH), 1e-5).linear(parameter(4 * WIDTH, WIDTH)).geluTanh();
        x = x.add(wide.linear(parameter(WIDTH, 4 * WIDTH)));
    }
    return { graph, scores: x.rmsNorm(null, 1e-5).linear(table), parameters };
}

async function openLearner(): Promise<Model> {
    const model = await openModel(BATCH), { graph, scores, parameters } = model;
    const next = graph.input("next", "i32", [BATCH, TIME]), rate = graph.input("rate", "f32", []), values = parameters.map(({ value }) => value);
    const loss = scores.reshape([BATCH * TIME, CHARS]).crossEntropy(next.reshape([BATCH * TIME])).mean();
    graph.optimise(values, loss.gradient(values), rate, { kind: "adamw", weightDecay: 0.01 });
    graph.output(loss, "loss");
    for (const { value, dims } of parameters)
        await graph.setState(value, new Float32Array(dims.reduce((a, b) => a * b, 1)).map(() => dims.length === 1 ? 1 : 0.2 * (Math.random() - 0.5)));
    return model;
}

/* A character by softmax at temperature 1/2. */
function choose(scores: Float32Array): number {
    const most = Math.max(...scores), odds = scores.map((score) => Math.exp(2 * (score - most)));
    let left = Math.random() * odds.reduce((a, b) => a + b, 0), c = 0;
    while (c < CHARS - 1 && (left -= odds[c]!) > 0) c++;
    return c;
}

/* Goes on with a piece of the text. */
async function write(learner: Model, writer: Model, text: Int32Array): Promise<string> {
    for (const [i, { value }] of learner.parameters.entries()) await writer.graph.setState(writer.parameters[i]!.value, await learner.graph.getState(value));
    const ids = text.slice(0, TIME);
    let told = "";
    while (told.length < LETTERS && !stopping) {
        const { scores } = await writer.graph.run({ ids }) as { scores: Float32Array };
        const c = choose(scores.subarray((TIME - 1) * CHARS));
        told += String.fromCharCode(c);
        ids.copyWithin(0, 1);
        ids[TIME - 1] = c;
    }
    return told;
}

async function learn(text: Int32Array, rate: number): Promise<void> {
    const open: Model[] = [];
    try {
        const learner = await openLearner();
        open.push(learner);
        const writer = await openModel(1);
        open.push(writer);
        writer.graph.output(writer.scores, "scores");
        tell({ device: learner.graph.device?.name ?? null, parameters: learner.parameters.reduce((sum, { dims }) => sum + dims.reduce((a, b) => a * b, 1), 0) });
        const ids = new Int32Array(BATCH * TIME), next = new Int32Array(BATCH * TIME);
        for (let step = 1, wrote = performance.now(); !stopping; step++) {
            for (let b = 0; b < BATCH; b++) {
                const from = Math.floor(Math.random() * (text.length - TIME));
                ids.set(text.subarray(from, from + TIME), b * TIME);
                next.set(text.subarray(from + 1, from + TIME + 1), b * TIME);
            }
            const { loss } = await learner.graph.run({ ids, next, rate: Float32Array.of(rate) });
            tell({ step, loss: Number(loss![0]) });
            if (performance.now() - wrote < SAMPLE_EVERY) continue;
            tell({ sample: await write(learner, writer, text) });
            wrote = performance.now();
        }
    } finally {
        for (const { graph } of open) graph.close();
    }
}

addEventListener("message", ({ data: asked }: MessageEvent<Asked>) => {
    stopping = asked === "stop";
    if (asked === "stop") return;
    const text = Int32Array.from(asked.text, (letter) => Math.min(letter.charCodeAt(0), CHARS - 1));
    learn(text, asked.rate).then(() => tell({ stopped: true }), (thrown: unknown) => tell({ failed: thrown instanceof Error ? thrown.message : String(thrown) }));
});
