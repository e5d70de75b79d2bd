import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { MessageChannel, type MessagePort } from "node:worker_threads";
import { BerylError } from "../src/error.js";
import { makeHost } from "../src/host.js";
import { Beryl } from "../src/index.js";
import { serve, type Port } from "../src/rpc.js";
import { doubleLoader, makeWorld, type World } from "./engine_double.js";
import { noise } from "./server.js";
import { Disk } from "./storage.js";

const EMPTY_MODULE = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]);
const FILE = new Blob([noise(500_000)]);
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

let world: World;
let workers: DoubleWorker[];
let broken: boolean;

/* A worker as a page sees it, with a double of the engine in it. */
class DoubleWorker extends EventTarget {
    readonly #port: MessagePort;
    readonly #ports: MessagePort[];
    ended = false;
    constructor() {
        super();
        const { port1, port2 } = new MessageChannel();
        this.#port = port1;
        this.#ports = [port1, port2];
        workers.push(this);
        if (broken) {
            queueMicrotask(() => this.die("no such script"));
            return;
        }
        serve(port2 as unknown as Port, makeHost({ loadEngine: doubleLoader(world), gpu: { requestAdapter: () => Promise.resolve(null) } as unknown as GPU, storage: new Disk().host() }));
        port1.on("message", (data: unknown) => this.dispatchEvent(new MessageEvent("message", { data })));
    }
    postMessage(message: unknown): void { this.#port.postMessage(message); }
    terminate(): void {
        this.ended = true;
        for (const port of this.#ports) port.close();
    }
    die(message: string): void { this.dispatchEvent(Object.assign(new Event("error"), { message })); }
}

function fails(status: string, message?: RegExp): (error: unknown) => boolean {
    return (error) => error instanceof BerylError && error.status === status && (!message || message.test(error.message));
}

beforeEach(() => {
    world = makeWorld();
    workers = [];
    broken = false;
    Object.assign(globalThis, { Worker: DoubleWorker });
});
afterEach(() => {
    for (const worker of workers) worker.terminate();
    Reflect.deleteProperty(globalThis, "Worker");
});

test("load/in-a-worker", async () => {
    const seen: string[] = [];
    const model = await Beryl.load(FILE, { module: EMPTY_MODULE, onProgress: ({ what }) => seen.push(what) });
    assert.ok(seen.includes("loading weights"));
    const answer = model.chat([{ role: "user", content: "a b" }]);
    assert.equal(await answer.text(), "a b");
    await model.close();
    assert.ok(workers[0]?.ended);
    assert.ok(world.log.includes("close"));
});

test("load/a-closed-model-leaves-no-timer", async () => {
    const timers = (): number => process.getActiveResourcesInfo().filter((name) => name === "Timeout").length;
    const before = timers();
    const model = await Beryl.load(FILE, { module: EMPTY_MODULE });
    await model.close();
    assert.ok(timers() <= before);
});

test("load/an-abort-ends-the-worker", async () => {
    const controller = new AbortController();
    const loading = Beryl.load(new Blob([noise(30_000_000)]), { module: EMPTY_MODULE, signal: controller.signal });
    setTimeout(() => controller.abort(), 10);
    await assert.rejects(loading, fails("CANCELLED"));
    for (let i = 0; i < 200 && !workers[0]?.ended; i++) await pause(5);
    assert.ok(workers[0]?.ended);
});

test("load/a-failure-ends-the-worker", async () => {
    world.refuse = new BerylError("BAD_FILE", "no GGUF");
    await assert.rejects(Beryl.load(FILE, { module: EMPTY_MODULE }), fails("BAD_FILE", /GGUF/));
    for (let i = 0; i < 200 && !workers[0]?.ended; i++) await pause(5);
    assert.ok(workers[0]?.ended);
});

test("load/a-worker-that-does-not-start-is-replaced", async () => {
    broken = true;
    const lines: string[] = [];
    const loading = Beryl.load(FILE, { module: EMPTY_MODULE, onLog: (_, line) => lines.push(line) });
    await assert.rejects(loading, fails("NO_DEVICE")); // in place there is no WebGPU under Node
    assert.match(lines.join(), /does not start.*no such script/);
});

test("load/a-worker-that-dies-takes-the-model", async () => {
    const model = await Beryl.load(FILE, { module: EMPTY_MODULE });
    const states: string[] = [];
    model.onstatechange = ({ state, error }) => states.push(`${state} ${error?.status}`);
    world.pace = 50;
    const answer = model.chat([{ role: "user", content: "a b c d" }]);
    await pause(20);
    workers[0]?.die("out of memory");
    await assert.rejects(answer.result, fails("IO", /out of memory/));
    await assert.rejects(model.tokenize("x"), fails("IO", /out of memory/));
    assert.deepEqual(states, ["failed IO"]);
    await model.close();
});
