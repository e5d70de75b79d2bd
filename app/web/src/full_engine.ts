/*
 * full_engine.ts - what an engine of the full module does beside engine.ts: adapters and trainings (app/web/module_lora.c,
 * module_train.c).
 *
 * C does some of it only while nothing runs, and says PENDING before: it is then asked again.
 */
import type { RgbPicture } from "./chat.js";
import type { Engine, EngineSession } from "./engine.js";
import { BerylError } from "./error.js";
import type { AdapterForm, TrainingReport } from "./full_calls.js";

/* As in status.ts and engine.ts, of which nothing is brought along. */
const OK = 0, PENDING = 2, OUT_SIZE = 56;
const AGAIN = 4; // milliseconds
const ADAPTER = "the adapter";

interface FullExports {
    readonly memory: WebAssembly.Memory;
    adapter_open(frame: number, data: number, size: number, config: number): number;
    adapter_close(adapter: number): void;
    session_adapters(frame: number, session: number, adapters: number, scales: number, n: number): number;
    train_open(frame: number, options: number, data: number, size: number, valid: number, validSize: number, pixels: number, pixelsSize: number, from: number): number;
    train_close(frame: number, training: number): void;
    train_report(frame: number, training: number): number;
    train_adapter(training: number): number;
    train_step(frame: number, training: number): number;
    train_measure(frame: number, training: number): number;
    train_show(frame: number, training: number): number;
    train_save(frame: number, training: number, form: number): number;
    train_saved(frame: number, training: number, config: number): number;
}

const encoder = new TextEncoder();

/* Calls the full module; gives what `use` gives. */
function call<T>(engine: Engine, use: (x: FullExports, frame: number) => T): T {
    let given: T | undefined;
    engine.call((x, frame) => {
        given = use(x as unknown as FullExports, frame);
        return OK;
    });
    return given as T;
}

function withText<T>(engine: Engine, text: string, use: (at: number) => T): T {
    return engine.withBytes(encoder.encode(`${text}\0`), use);
}

/* Calls until it is no longer PENDING; gives what the call gave. */
async function whenQuiet(engine: Engine, call: (x: FullExports, frame: number) => number): Promise<number> {
    for (;;) {
        let pending = false;
        const { out } = engine.call((x, frame) => {
            const status = call(x as unknown as FullExports, frame);
            pending = status === PENDING;
            return pending ? OK : status;
        });
        if (!pending) return out();
        await new Promise((resolve) => setTimeout(resolve, AGAIN));
    }
}

/** Reads an adapter and lays it on the device. */
export function openAdapter(engine: Engine, file: Uint8Array, config: string): Promise<number> {
    if (!call(engine, (x) => x.adapter_open)) throw new BerylError("UNSUPPORTED", `${ADAPTER} needs the full module`, "Load the model with `full: true`, or with `module` naming beryl-full.wasm.");
    if (!file.length) throw new BerylError("BAD_FILE", `${ADAPTER} is empty`);
    return whenQuiet(engine, (x, frame) => engine.withBytes(file, (at) => withText(engine, config, (text) => x.adapter_open(frame, at, file.length, text))));
}

/** Sessions that have it keep it. */
export function closeAdapter(engine: Engine, adapter: number): void {
    call(engine, (x) => x.adapter_close(adapter));
}

/** Which adapters the session takes from now on. */
export function sessionAdapters(engine: Engine, session: EngineSession, adapters: readonly number[], scales: readonly number[]): void {
    engine.withBytes(new Uint8Array(Int32Array.from(adapters).buffer), (at) => engine.withBytes(new Uint8Array(Float32Array.from(scales).buffer), (factors) =>
        engine.call((x, frame) => (x as unknown as FullExports).session_adapters(frame, session.session, at, factors, adapters.length))));
}

/** Reads the data and lays out what is trained. `pictures`: by the names that the data has for them. from 0: a new adapter. */
export function openTraining(engine: Engine, options: object, data: Uint8Array, valid: Uint8Array, pictures: readonly [string, RgbPicture][], from: number): Promise<number> {
    const pixels = new Uint8Array(pictures.reduce((sum, [, { rgb }]) => sum + rgb.length, 0));
    pictures.reduce((at, [, { rgb }]) => (pixels.set(rgb, at), at + rgb.length), 0);
    const how = JSON.stringify({ ...options, pictures: pictures.map(([name, { width, height }]) => ({ name, width, height })) });
    return whenQuiet(engine, (x, frame) => withText(engine, how, (o) => engine.withBytes(data, (at) => engine.withBytes(valid, (other) => engine.withBytes(pixels, (seen) =>
        x.train_open(frame, o, at, data.length, other, valid.length, seen, pixels.length, from))))));
}

/** Ends it; an adapter of it that sessions have, they keep. */
export function closeTraining(engine: Engine, training: number): void {
    call(engine, (x, frame) => x.train_close(frame, training));
}

/** The adapter of a training, for sessions. */
export function trainingAdapter(engine: Engine, training: number): number {
    return call(engine, (x) => x.train_adapter(training));
}

export function trainingReport(engine: Engine, training: number): TrainingReport {
    return JSON.parse(engine.call((x, frame) => (x as unknown as FullExports).train_report(frame, training)).text()) as TrainingReport;
}

/** A step, a measurement, or the adapter to the sessions that have it. */
export async function runTraining(engine: Engine, training: number, what: "step" | "measure" | "show", signal?: AbortSignal): Promise<void> {
    const task = engine.call((x, frame) => (x as unknown as FullExports)[`train_${what}`](frame, training)).out();
    for await (const _ of engine.pump(task, signal)) void _;
}

/** The adapter as it is: its file, and of PEFT's form adapter_config.json. */
export async function saveTraining(engine: Engine, training: number, form: AdapterForm, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>[]> {
    const task = withText(engine, form, (at) => engine.call((x, frame) => (x as unknown as FullExports).train_save(frame, training, at)).out());
    for await (const _ of engine.pump(task, signal)) void _;
    return (form === "peft" ? [0, 1] : [0]).map((which) => {
        const { out } = engine.call((x, frame) => (x as unknown as FullExports).train_saved(frame, training, which)), from = out();
        return call(engine, ({ memory: { buffer } }, frame) => new Uint8Array(buffer, from, new DataView(buffer).getUint32(frame + OUT_SIZE, true)).slice());
    });
}
