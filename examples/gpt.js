/*
 * gpt.js - a transformer of two layers learns a text, character by character, and goes on with it: forward pass, gradients, adamw
 * and sampling in one graph of some 100,000 parameters. gpt.c in JavaScript; in a page it is the same without files.
 *     deno run --unstable-webgpu -A gpt.js [TEXT [STEPS [LETTERS]]]
 */
import { Graph } from "beryl-gpu/graph";
import { readFile } from "node:fs/promises";
import { argv, exit } from "node:process";

const BATCH = 8, TIME = 32, WIDTH = 64, HEADS = 4, LAYERS = 2, CHARS = 128;
const LEARNED = "the fox sees the dog. the dog sees the cat. the cat sees the bird. the bird sees the fox. a fox runs. a dog runs. a cat sleeps. ";

let state = 2463534242;
function chance() { // from 0 to 1
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 8) / (1 << 24);
}

/* A parameter is a state; of one dimension it begins as ones. */
const parameters = [];
function parameter(graph, ...dims) {
    const value = graph.state(`p${parameters.length}`, "f32", dims);
    parameters.push({ value, dims });
    return value;
}

/* x [BATCH, TIME, WIDTH] times a parameter -> [BATCH, HEADS, TIME, WIDTH / HEADS] */
function inHeads(graph, x) {
    return x.linear(parameter(graph, WIDTH, WIDTH)).reshape([BATCH, TIME, HEADS, WIDTH / HEADS]).permute([0, 2, 1, 3]);
}

function layer(graph, x) {
    const h = x.rmsNorm(parameter(graph, WIDTH), 1e-5), q = inHeads(graph, h), k = inHeads(graph, h), v = inHeads(graph, h);
    const seen = q.sdpa(k, v, null, { causal: true }).permute([0, 2, 1, 3]).reshape([BATCH, TIME, WIDTH]);
    const y = x.add(seen.linear(parameter(graph, WIDTH, WIDTH)));
    const wide = y.rmsNorm(parameter(graph, WIDTH), 1e-5).linear(parameter(graph, 4 * WIDTH, WIDTH)).geluTanh();
    return y.add(wide.linear(parameter(graph, WIDTH, 4 * WIDTH)));
}

/* A character by softmax at temperature 1/2. */
function choose(scores) {
    const odds = scores.map((score) => Math.exp(2 * score)), sum = odds.reduce((a, b) => a + b, 0);
    let left = chance() * sum, c = 0;
    while (c < CHARS - 1 && (left -= odds[c]) > 0) c++;
    return Math.max(c, 32);
}

const [, , file = "", steps = "60", letters = "32"] = argv;
const text = Int32Array.from(file ? await readFile(file, "latin1") : LEARNED, (letter) => letter.charCodeAt(0) & 127);
if (text.length < TIME + 2) throw new Error(`a text of at least ${TIME + 2} characters is needed`);

const graph = await Graph.open(globalThis.navigator?.gpu ? {} : { device: "reference" });
const ids = graph.input("ids", "i32", [BATCH, TIME]), next = graph.input("next", "i32", [BATCH, TIME]), rate = graph.input("rate", "f32", []);
const table = parameter(graph, CHARS, WIDTH);
let x = table.gatherRows(ids, 1).add(parameter(graph, TIME, WIDTH));
for (let i = 0; i < LAYERS; i++) x = layer(graph, x);
const scores = x.rmsNorm(null, 1e-5).linear(table);
const loss = scores.reshape([BATCH * TIME, CHARS]).crossEntropy(next.reshape([BATCH * TIME])).mean();
const values = parameters.map(({ value }) => value);
graph.optimise(values, loss.gradient(values), rate, { kind: "adamw", weightDecay: 0.01 });
graph.output(loss, "loss");
graph.output(scores, "scores");
for (const { value, dims } of parameters) {
    const numbers = new Float32Array(dims.reduce((a, b) => a * b, 1));
    await graph.setState(value, numbers.map(() => dims.length === 1 ? 1 : 0.2 * (chance() - 0.5)));
}
console.log(`on ${graph.device?.name ?? "the reference functions"}, ${values.length} parameters`);

const read = new Int32Array(BATCH * TIME), right = new Int32Array(BATCH * TIME);
let last = 0;
for (let step = 0; step < Number(steps); step++) {
    for (let b = 0; b < BATCH; b++) {
        const from = Math.floor(chance() * (text.length - TIME - 1));
        read.set(text.subarray(from, from + TIME), b * TIME);
        right.set(text.subarray(from + 1, from + TIME + 1), b * TIME);
    }
    last = (await graph.run({ ids: read, next: right, rate: Float32Array.of(1e-2) })).loss[0];
    if (step % 20 === 0) console.log(`step ${step}: loss ${last.toFixed(3)}`);
}

let told = ""; // it goes on with what it read last
for (let i = 0; i < Number(letters); i++) {
    const { scores: all } = await graph.run({ ids: read, next: right, rate: Float32Array.of(0) });
    const c = choose(all.subarray((TIME - 1) * CHARS, TIME * CHARS));
    told += String.fromCharCode(c);
    read.copyWithin(0, 1, TIME);
    read[TIME - 1] = c;
}
console.log(`${told}\nloss ${last.toFixed(3)}`);
graph.close();
exit();
