/*
 * graph.cases.ts - what `beryl-gpu/graph` must do: on any WebGPU (Chromium, Deno) and, without one, by the reference functions (Node).
 *
 * Expected numbers are worked out here in JavaScript's doubles; `near` is 1e-5 of the size where a device may round.
 */
import assert from "node:assert/strict";
import { BerylError, Graph, loadOnnx, OnnxModel, Value, type GraphOptions, type Numbers } from "../src/graph/index.js";
import { OPS } from "../src/graph/ops.js";

/** gpu null: the reference functions. */
export interface GraphPlace { gpu: GPU | null; module: WebAssembly.Module; say(line: string): void }

const NEAR = 1e-5;

const options = ({ gpu, module }: GraphPlace): GraphOptions => gpu ? { gpu, module } : { device: "reference", module };

function near(got: Numbers | undefined, want: readonly number[], tolerance = NEAR): void {
    assert.equal(got?.length, want.length);
    want.forEach((one, i) => {
        const off = Math.abs(Number(got?.[i]) - one);
        assert.ok(off <= tolerance * Math.max(1, Math.abs(one)), `element ${i} is ${String(got?.[i])}, not ${one}`);
    });
}

async function refused(job: () => unknown, status: string, pattern: RegExp): Promise<void> {
    try {
        await job();
    } catch (thrown) {
        assert.ok(thrown instanceof BerylError, `it threw ${String(thrown)}`);
        assert.equal(thrown.status, status, `${thrown.status}: ${thrown.message}`);
        assert.match(thrown.message, pattern);
        return;
    }
    assert.ok(false, "it is not refused");
}

const range = (n: number, of: (i: number) => number = (i) => i): Float32Array => Float32Array.from({ length: n }, (_, i) => of(i));

/* Runs what `build` gives and hands its numbers over. */
async function evaluated(place: GraphPlace, build: (graph: Graph) => Record<string, Value>): Promise<Record<string, Numbers>> {
    const graph = await Graph.open(options(place));
    try {
        for (const [name, value] of Object.entries(build(graph))) graph.output(value, name);
        return await graph.run();
    } finally {
        graph.close();
    }
}

/* ---- ONNX files, written byte by byte ---- */

type Bytes = number[];
const varint = (x: number): Bytes => x < 128 ? [x] : [x % 128 | 128, ...varint(Math.floor(x / 128))];
const number = (field: number, x: number): Bytes => [...varint(field * 8), ...varint(x)];
const data = (field: number, bytes: ArrayLike<number>): Bytes => [...varint(field * 8 + 2), ...varint(bytes.length), ...Array.from(bytes)];
const text = (field: number, x: string): Bytes => data(field, new TextEncoder().encode(x));
const FLOAT = 1, INT64 = 7;

/* A size of 0: unknown. */
const info = (name: string, kind: number, dims: number[]): Bytes => [...text(1, name),
    ...data(2, data(1, [...number(1, kind), ...data(2, dims.flatMap((n) => data(1, n ? number(1, n) : text(2, "n"))))]))];
const tensor = (name: string, kind: number, dims: number[], numbers: ArrayBufferView): Bytes => [...dims.flatMap((n) => number(1, n)), ...number(2, kind), ...text(8, name),
    ...data(9, new Uint8Array(numbers.buffer))];
const node = (op: string, inputs: string[], outputs: string[]): Bytes => [...inputs.flatMap((name) => text(1, name)), ...outputs.flatMap((name) => text(2, name)), ...text(3, `my ${op}`), ...text(4, op)];

function file(nodes: Bytes[], tensors: Bytes[], inputs: Bytes[], outputs: Bytes[]): Uint8Array<ArrayBuffer> {
    const graph = [...nodes.flatMap((one) => data(1, one)), ...tensors.flatMap((one) => data(5, one)), ...inputs.flatMap((one) => data(11, one)), ...outputs.flatMap((one) => data(12, one))];
    return Uint8Array.from([...number(1, 8), ...data(7, graph), ...data(8, number(2, 17))]);
}

/* y = relu(x w + b), z = the rows of y that `at` names. */
const W = [1, -2, 0.5, 3, 0, -1], B = [0.5, -0.5];
function small(rows = 2): Uint8Array<ArrayBuffer> {
    return file([node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["s"]), node("Relu", ["s"], ["y"]), node("Gather", ["y", "at"], ["z"])],
        [tensor("w", FLOAT, [3, 2], Float32Array.from(W)), tensor("b", FLOAT, [2], Float32Array.from(B)), tensor("at", INT64, [3], BigInt64Array.from([1n, 0n, 1n]))],
        [info("x", FLOAT, [rows, 3])], [info("y", FLOAT, [rows, 2]), info("z", FLOAT, [3, 2])]);
}

export const GRAPH_CASES: Record<string, (place: GraphPlace) => Promise<void>> = {
    "graph/rows-of-a-run-vary": async (place) => {
        const graph = await Graph.open(options(place)), n = graph.extent("n", 64);
        const x = graph.input("x", "f32", [n, 3]), w = graph.weight("w", "f32", [2, 3], Float32Array.of(1, 0, 0, 0, 1, 1));
        const y = x.linear(w).softmax(), [largest, at] = x.topk(2, 1), wide = x.permute([1, 0]).mul(graph.constant("f32", [], Float32Array.of(2)));
        for (const [name, value] of Object.entries({ y, largest, at, wide, both: graph.concat([x, x], 0) })) graph.output(value, name);
        for (const rows of [2, 1, 5]) {
            const numbers = range(3 * rows, (i) => Math.sin(i)), got = await graph.run({ x: numbers }, { n: rows });
            const row = (i: number): number[] => Array.from(numbers.subarray(3 * i, 3 * i + 3)), all = Array.from({ length: rows }, (_, i) => row(i));
            near(got["y"], all.flatMap(([a = 0, b = 0, c = 0]) => [Math.exp(a), Math.exp(b + c)].map((e) => e / (Math.exp(a) + Math.exp(b + c)))));
            near(got["largest"], all.flatMap((one) => [...one].sort((a, b) => b - a).slice(0, 2)));
            assert.deepEqual(Array.from(got["at"]!, Number), all.flatMap((one) => [0, 1, 2].sort((a, b) => one[b]! - one[a]!).slice(0, 2)));
            near(got["wide"], [0, 1, 2].flatMap((k) => all.map((one) => 2 * one[k]!)));
            near(got["both"], [...all, ...all].flat());
            assert.deepEqual(graph.sizes(wide), [3, rows]);
        }
        await refused(() => graph.run({ x: range(3) }, { n: 2 }), "MISUSE", /"x" is f32 \[2, 3\]: Float32Array of 6/);
        await refused(() => graph.run({ x: range(3) }, { n: 65 }), "MISUSE", /"n" must be a whole number from 0 to 64/);
        await refused(() => graph.run({ y: range(3) }, { n: 1 }), "MISUSE", /no input "y"; there is x/);
        await refused(() => x.softmax(), "MISUSE", /compiled/);
        graph.close();
        await refused(() => graph.run({ x: range(3) }, { n: 1 }), "MISUSE", /closed/);
    },

    "graph/sizes-that-a-run-computes": async (place) => {
        const graph = await Graph.open(options(place)), n = graph.extent("n", 9), m = graph.dimSum(graph.dimProduct(n, 2), 1), half = graph.dimQuotient(m, 2);
        const a = graph.input("a", "f32", [2, m]), b = graph.input("b", "f32", [half]), y = a.sum([1]);
        graph.output(y, "y");
        graph.output(a.square(), "squares");
        graph.output(b.neg(), "z");
        for (const rows of [1, 4, 0]) {
            const size = 2 * rows + 1, numbers = range(2 * size, (i) => i + 1), got = await graph.run({ a: numbers, b: range(rows + 1) }, { n: rows });
            near(got["squares"], Array.from(numbers, (one) => one * one));
            near(got["y"], [0, size].map((at) => numbers.subarray(at, at + size).reduce((all, one) => all + one, 0)));
            near(got["z"], Array.from(range(rows + 1), (one) => -one));
            assert.deepEqual([...graph.sizes(a), ...graph.sizes(b)], [2, size, rows + 1]);
        }
        graph.close();
    },

    "graph/every-kind-of-argument": async (place) => {
        const got = await evaluated(place, (g) => {
            const x = g.constant("f32", [2, 3], Float32Array.of(3, 1, 2, -1, 5, 0)), i = g.constant("i32", [3], Int32Array.of(-7, 300, 5));
            const [values, order] = x.sort(1, true), [left, right] = x.narrow(1, 0, 2, 1).split(1, 2), four = g.constant("f32", [1, 1, 4], Float32Array.of(1, 2, 3, 4));
            return {
                sum: x.sum([1], true), total: x.sum(), einsum: g.einsum("ij,ij->i", [x, x]), values, order, left: left!, right: right!, stacked: g.stack([x, x], 0),
                matmul: x.matmul(x, false, true), normed: x.layerNorm(null, null, 1e-5), scan: x.scan(1, "sum", true, true), bytes: i.cast("u8", true), less: x.lt(g.constant("f32", [], Float32Array.of(2))),
                conv: four.conv(g.constant("f32", [1, 1, 2], Float32Array.of(1, -1)), [{ padBefore: 1 }], 1), pool: four.pool([{ size: 2, stride: 2 }], { mean: true }), padded: four.pad(2, 1, 0, 9),
                seen: four.sdpa(four, four, null, { causal: true, scale: 1 }), bits: g.key(7n).randomBits(3, [2]), shape: x.reshape([3, 2]).flip(0),
            };
        });
        near(got["sum"], [6, 4]);
        near(got["total"], [10]);
        near(got["einsum"], [14, 26]);
        near(got["values"], [3, 2, 1, 5, 0, -1]);
        near(got["order"], [0, 2, 1, 1, 2, 0]);
        near(got["left"], [3, -1]);
        near(got["right"], [1, 5]);
        near(got["stacked"], [3, 1, 2, -1, 5, 0, 3, 1, 2, -1, 5, 0]);
        near(got["matmul"], [14, 2, 2, 26]);
        near(got["normed"], [1, -1, 0].map((d) => d / Math.sqrt(2 / 3 + 1e-5)).concat([-7 / 3, 11 / 3, -4 / 3].map((d) => d / Math.sqrt((49 + 121 + 16) / 27 + 1e-5))));
        near(got["scan"], [3, 2, 0, 5, 0, 0]);
        assert.ok(got["bytes"] instanceof Uint8Array && got["less"] instanceof Uint8Array && got["bits"] instanceof Uint32Array && got["order"] instanceof Int32Array);
        near(got["bytes"], [249, 44, 5]);
        near(got["less"], [0, 1, 0, 1, 0, 1]);
        near(got["conv"], [-1, -1, -1, -1]);
        near(got["pool"], [1.5, 3.5]);
        near(got["padded"], [9, 1, 2, 3, 4]);
        near(got["seen"], [1, 2, 3, 4]);
        near(got["shape"], [5, 0, 2, -1, 3, 1]);
    },

    "graph/gradients-and-steps": async (place) => {
        const graph = await Graph.open(options(place)), numbers = range(8, (i) => Math.cos(i)), classes = Int32Array.of(0, 1, 2, 0), first = range(6, (i) => Math.sin(3 * i) / 2);
        const x = graph.input("x", "f32", [4, 2]), t = graph.input("t", "i32", [4]), rate = graph.input("rate", "f32", [1]), w = graph.state("w", "f32", [3, 2]);
        const loss = x.linear(w).crossEntropy(t).mean(), [towards] = loss.gradient([w]);
        graph.optimise([w], [towards!], rate, { kind: "sgd" });
        graph.output(loss, "loss");
        graph.output(towards!, "towards");
        const lossOf = (weights: readonly number[]): number => [0, 1, 2, 3].reduce((sum, row) => {
            const scores = [0, 1, 2].map((k) => weights[2 * k]! * numbers[2 * row]! + weights[2 * k + 1]! * numbers[2 * row + 1]!);
            return sum + Math.log(scores.reduce((all, one) => all + Math.exp(one), 0)) - scores[classes[row]!]!;
        }, 0) / 4;
        const slopes = (weights: readonly number[]): number[] => weights.map((_, k) => {
            const at = (d: number): number => lossOf(weights.map((one, i) => i === k ? one + d : one));
            return (at(1e-4) - at(-1e-4)) / 2e-4;
        });
        await graph.setState(w, first);
        let weights = Array.from(first);
        for (let step = 0; step < 3; step++) {
            const got = await graph.run({ x: numbers, t: classes, rate: Float32Array.of(0.5) }), slope = slopes(weights);
            near(got["loss"], [lossOf(weights)]);
            near(got["towards"], slope);
            weights = weights.map((one, i) => one - 0.5 * slope[i]!);
        }
        near(await graph.getState(w), weights);
        await refused(() => graph.setState(w, range(5)), "MISUSE", /24 bytes/);
        graph.close();
    },

    "graph/buffers-of-the-gpu-stay-there": async (place) => {
        const graph = await Graph.open(options(place)), n = graph.extent("n", 4), x = graph.input("x", "f32", [n, 3]), one = graph.input("one", "f32", [3]);
        graph.output(x.add(one), "y");
        graph.output(x.sum([1]), "sums");
        const device = graph.gpuDevice as GPUDevice | null, ones = Float32Array.of(1, 2, 3);
        if (!device) {
            await refused(() => graph.run({ x: { size: 99, usage: 0, destroy: () => undefined }, one: ones }, { n: 1 }), "UNSUPPORTED", /"x" lies in no buffer of a GPU/);
            graph.close();
            return;
        }
        const make = (usage: number): GPUBuffer => device.createBuffer({ size: 48, usage }), COPY_SRC = 4, COPY_DST = 8, MAP_READ = 1;
        const from = make(COPY_SRC | COPY_DST), to = make(COPY_SRC | COPY_DST), seen = make(MAP_READ | COPY_DST);
        for (const rows of [2, 4, 0]) {
            const numbers = range(3 * rows, (i) => i * i);
            if (rows) device.queue.writeBuffer(from, 0, numbers); // of nothing Deno panics
            const results = await graph.run({ x: from, one: ones }, { n: rows }, { y: to });
            near(results["sums"], Array.from({ length: rows }, (_, i) => numbers[3 * i]! + numbers[3 * i + 1]! + numbers[3 * i + 2]!));
            assert.ok(!("y" in results));
            const encoder = device.createCommandEncoder();
            encoder.copyBufferToBuffer(to, 0, seen, 0, 48);
            device.queue.submit([encoder.finish()]);
            await seen.mapAsync(1);
            near(new Float32Array(seen.getMappedRange().slice(0, 12 * rows)), Array.from(numbers, (value, i) => value + ones[i % 3]!));
            seen.unmap();
        }
        near((await graph.run({ x: Float32Array.of(1, 2, 3) }, { n: 1 }))["sums"], [6]); // and written again
        await refused(() => graph.run({ x: device.createBuffer({ size: 16, usage: 0x4 }) }, { n: 2 }), "MISUSE", /"x" is f32 \[2, 3\]: a typed array, or a GPUBuffer of 24 bytes/);
        await refused(() => graph.run({}, { n: 1 }, { z: to }), "MISUSE", /no output "z"/);
        graph.close();
    },

    "graph/mistakes-name-operation-and-shapes": async (place) => {
        const graph = await Graph.open(options(place)), a = graph.input("a", "f32", [2, 3]), other = await Graph.open(options(place));
        await refused(() => a.linear(other.input("b", "f32", [4, 3])), "MISUSE", /argument 1 of linear must be a value of this graph/);
        await refused(() => a.cast("f31" as "f32"), "MISUSE", /a type must be one of f32, f16/);
        await refused(() => a.sum([-1]), "MISUSE", /argument 1 of sum, \[0\] must be a whole number/);
        await refused(() => a.sdpa(a, a, null, { casual: true } as object), "MISUSE", /has no `casual`/);
        await refused(() => graph.weight("w", "f32", [4], range(3)), "MISUSE", /"w", f32 \[4\], was given 12 bytes/);
        await refused(() => a.matmul(a), "MISUSE", /matmul of \[2, 3\] and \[2, 3\]/);
        graph.close();
        other.close();
    },

    "graph/every-operation-is-in-the-module": async ({ module }) => {
        const names = new Set(WebAssembly.Module.exports(module).map(({ name }) => name));
        assert.deepEqual(Object.keys(OPS).filter((name) => !names.has(`beryl_graph_${name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)}`)), []);
        assert.ok(Object.keys(OPS).every((name) => typeof (Value.prototype as unknown as Record<string, unknown>)[name] === "function"
            || typeof (Graph.prototype as unknown as Record<string, unknown>)[name] === "function"));
    },

    "graph/an-onnx-file-runs": async (place) => {
        const x = [1, 2, 3, -1, 0.5, -2], rows = [0, 3].map((at) => [0, 1].map((k) => Math.max(0, B[k]! + [0, 1, 2].reduce((sum, i) => sum + x[at + i]! * W[2 * i + k]!, 0))));
        for (const [bytes, more] of [[small(), {}], [small(0), { shapes: { x: [2, 3] } }]] as const) {
            const model: OnnxModel = await loadOnnx(bytes, { ...options(place), ...more });
            assert.deepEqual(model.inputs, [{ name: "x", type: "f32", dims: [2, 3], live: true }]);
            assert.deepEqual(model.outputs.map(({ name, dims }) => [name, ...dims]), [["y", 2, 2], ["z", 3, 2]]);
            for (let again = 0; again < 2; again++) {
                const got = await model.run({ x: Float32Array.from(x) });
                near(got["y"], rows.flat());
                near(got["z"], [1, 0, 1].flatMap((i) => rows[i]!));
            }
            await refused(() => model.run({ x: range(5) }), "MISUSE", /"x" is f32 \[2, 3\]/);
            model.close();
        }
    },

    "graph/onnx-files-that-lie-are-refused": async (place) => {
        const whole = small(), how: GraphOptions = { device: "reference", module: place.module };
        const load = async (bytes: Uint8Array<ArrayBuffer>): Promise<void> => (await loadOnnx(bytes, how)).close();
        for (let size = 0; size < whole.length; size += 7) await refused(() => load(whole.slice(0, size)), "BAD_FILE", /./).catch((thrown: unknown) => {
            // what is cut between two fields may still be a file, of less
            if (!/UNSUPPORTED|not refused/.test((thrown as Error).message)) throw thrown;
        });
        for (let at = 0; at < whole.length; at += 3) await load(whole.slice().fill(255, at, at + 1)).catch((thrown: unknown) => {
            assert.ok(thrown instanceof BerylError, `byte ${at}: ${String(thrown)}`);
        });
        await refused(() => load(file([node("Frobnicate", ["x"], ["y"])], [], [info("x", FLOAT, [1])], [info("y", FLOAT, [1])])), "UNSUPPORTED", /my Frobnicate|Frobnicate/);
        await refused(() => load(small(0)), "UNSUPPORTED", /size of dimension 'n' of input 'x' is not given/);
    },
};
