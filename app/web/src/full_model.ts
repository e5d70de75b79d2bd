/*
 * full_model.ts - a model of the full module, as callers hold it: with adapters and trainings. In a file of its own, which
 * is fetched with that module. The classes that it extends are given, so that this file brings nothing of the others along.
 */
import type { HostCalls, PlainPicture } from "./calls.js";
import type { Answer, ChatOptions, Message, TokenOptions } from "./chat.js";
import type { EngineEvent, EngineInfo } from "./engine.js";
import { BerylError } from "./error.js";
import type { AdapterForm, FullCalls, PlainAdapter, TrainingReport } from "./full_calls.js";
import type { LoadOptions } from "./load.js";
import type { Model, Session } from "./model.js";
import type { Caller } from "./rpc.js";

/** Where an adapter comes from: an address or a file; of PEFT's form both of its files, or their addresses. */
export type AdapterSource = string | URL | Blob | ArrayBuffer | Uint8Array | readonly (string | URL | Blob)[];

/** An adapter that is open. */
export interface Adapter {
    /** Where it came from. */
    readonly name: string;
    /** How much of it sessions take that say nothing else. */
    readonly scale: number;
    /** Gives its memory back, and takes it from sessions that get another. */
    close(): Promise<void>;
}

/** What a session takes: adapters, added up, each at its own scale or another. */
export type Adapters = readonly (Adapter | { adapter: Adapter; scale: number })[];

/** A session that has adapters. */
export interface FullSession extends Session {
    /** Which adapters its next answers are given with; what it held is read anew. */
    setAdapters(adapters: Adapters): Promise<void>;
}

/** How an adapter is trained. All but `data` may be left out. */
export interface TrainOptions {
    /** Examples, as JSON lines ({"messages": …}, {"prompt": …, "completion": …}, {"text": …}) or plain text: a file, or the text itself. */
    data: Blob | string;
    /** The same, to measure with. */
    valid?: Blob | string;
    /** Pictures, by the names that examples have for them: {"tokens": …, "mask": …, "picture": NAME} (resized already), in chats {"type": "image", "path": NAME}. */
    pictures?: Readonly<Record<string, PlainPicture>>;
    /** Goes on from an adapter, whose ranks and factors are kept; default: a new one. */
    from?: Adapter;
    /** Default 16. */
    rank?: number;
    /** Default twice the rank. */
    alpha?: number;
    /** Matrices; default q, k, v, o, gate, up, down. */
    targets?: readonly string[];
    /** Which layers get adapters, from 0, as "0-3,7"; default: all. */
    layers?: string;
    /** The chance that a number of an adapter's input is dropped; default 0. */
    dropout?: number;
    /** How often each example is seen; default 1. */
    epochs?: number;
    /** Examples of a pass, passes of a step; default 1 each. */
    batch?: number;
    accumulate?: number;
    /** Examples of more tokens are refused; default: what the model can see. */
    context?: number;
    /** The highest learning rate; default 2e-4. */
    rate?: number;
    /** Steps in which the rate rises. */
    warmup?: number;
    /** How it falls then; default "cosine". `cycles`: of restarts. */
    schedule?: "cosine" | "constant" | "linear" | "restarts";
    cycles?: number;
    /** Of AdamW; default 0.9, 0.999, 1e-8, 0. */
    beta1?: number;
    beta2?: number;
    eps?: number;
    weightDecay?: number;
    /** The largest norm of a gradient; default 1; below 0: any. */
    clip?: number;
    /** Of AdamW's two moments: numbers of 32 bits, or of 8; default "f32". */
    moments?: "f32" | "q8";
    /** Of a new adapter and of the order. */
    seed?: number;
    /** For each epoch the numbers of the examples; default: shuffled by the seed. */
    order?: readonly (readonly number[])[];
    /** Ends the opening, and every step: what was not done is as if it had not begun. */
    signal?: AbortSignal;
}

/** A training: `for await` takes its steps, and gives a report after each. */
export interface TrainingSession extends AsyncIterable<TrainingReport> {
    /** Where it is. */
    readonly report: TrainingReport;
    /** What is trained, for sessions: between steps it is as the last step left it. Stays when the training is closed. */
    readonly adapter: Adapter;
    /** Takes the next step. */
    step(): Promise<TrainingReport>;
    /** The mean loss on `valid`. */
    measure(): Promise<number>;
    /** The adapter's files: "peft" (default): two, which PEFT reads; "gguf": for llama.cpp; "rullama". */
    save(form?: AdapterForm): Promise<File[]>;
    /** Gives the memory of gradients and moments back. */
    close(): Promise<void>;
}

/** A model of the full module. */
export interface FullModel extends Model {
    session(): FullSession;
    /** Reads an adapter of PEFT's, llama.cpp's or rullama's form. Refused if it is not this model's. */
    openAdapter(source: AdapterSource, options?: { scale?: number; signal?: AbortSignal }): Promise<Adapter>;
    /** The same for the model's own session, and for those that `session` makes from then on. */
    setAdapters(adapters: Adapters): Promise<void>;
    /** Begins to train an adapter; the model answers between its steps. While a training is open no adapter is opened. */
    train(options: TrainOptions): Promise<TrainingSession>;
}

const FIRST_SESSION = 2 ** 30; // numbers of sessions, beyond those of the model itself
const CONFIG_MOST = 1 << 24; // bytes
const FILES: Record<AdapterForm, string[]> = { peft: ["adapter_model.safetensors", "adapter_config.json"], gguf: ["adapter.gguf"], rullama: ["adapter.safetensors"] };

type Check = (value: unknown) => boolean;
const count: Check = (value) => Number.isInteger(value) && (value as number) >= 0 && (value as number) < 2 ** 32;
const number: Check = (value) => typeof value === "number" && Number.isFinite(value);
const share: Check = (value) => number(value) && (value as number) > 0 && (value as number) < 1;
const text: Check = (value) => value instanceof Blob || typeof value === "string";
const COUNT = "a whole number from 0 on", NUMBER = "a finite number", SHARE = "a number between 0 and 1", TEXT = "a file or text";

/* What the options of a training may be; C looks at the rest. */
const RULES: Record<keyof TrainOptions, [allowed: string, ok: Check]> = {
    data: [TEXT, text], valid: [TEXT, text], rank: [COUNT, count], epochs: [COUNT, count], batch: [COUNT, count], accumulate: [COUNT, count],
    context: [COUNT, count], warmup: [COUNT, count], cycles: [COUNT, count],
    seed: [COUNT, (value) => Number.isSafeInteger(value) && (value as number) >= 0],
    alpha: [NUMBER, number], rate: [NUMBER, number], eps: [NUMBER, number], weightDecay: [NUMBER, number], clip: [NUMBER, number], beta1: [SHARE, share], beta2: [SHARE, share],
    layers: ["text", (value) => typeof value === "string"],
    dropout: ["a number from 0 on and below 1", (value) => value === 0 || share(value)],
    targets: ["a list of names", (value) => Array.isArray(value) && value.length > 0 && value.every((one) => typeof one === "string")],
    moments: ['"f32" or "q8"', (value) => value === "f32" || value === "q8"],
    schedule: ['"cosine", "constant", "linear" or "restarts"', (value) => ["cosine", "constant", "linear", "restarts"].includes(value as string)],
    order: ["a list of lists of numbers", (value) => Array.isArray(value) && value.every((one) => Array.isArray(one) && one.every(count))],
    pictures: ["an object of names and pictures", (value) => typeof value === "object" && value !== null && Object.values(value).every((one) => typeof one === "object" && one !== null)],
    from: ["an adapter", (value) => value instanceof OpenAdapter],
    signal: ["an AbortSignal", (value) => value instanceof AbortSignal],
};

function refuse(name: string, allowed: string): never {
    throw new BerylError("MISUSE", `\`${name}\` must be ${allowed}`, "");
}

class OpenAdapter implements Adapter {
    constructor(readonly number: number, readonly name: string, readonly scale: number, readonly close: () => Promise<void>) {}
}

async function blobOf(source: string | URL | Blob | ArrayBuffer | Uint8Array, signal?: AbortSignal): Promise<Blob> {
    if (source instanceof Blob) return source;
    if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) return new Blob([source as BlobPart]);
    const response = await fetch(source, signal ? { signal } : {});
    if (!response.ok) throw new BerylError(response.status === 404 ? "NOT_FOUND" : "IO", `${String(source)}: the server answers ${response.status}`);
    return await response.blob();
}

async function isConfig(blob: Blob): Promise<boolean> {
    if (blob.size > CONFIG_MOST || !/^\s*\{\s*"/.test(await blob.slice(0, 100).text())) return false;
    return await blob.text().then((whole) => (JSON.parse(whole), true)).catch(() => false);
}

async function adapterOf(source: AdapterSource, signal?: AbortSignal): Promise<PlainAdapter> {
    const parts = await Promise.all((Array.isArray(source) ? source as readonly Blob[] : [source as Blob]).map((one) => blobOf(one, signal)));
    const plain: PlainAdapter = { file: new Blob([]), config: "" };
    for (const part of parts) {
        if (parts.length > 1 && await isConfig(part)) plain.config = await part.text();
        else plain.file = part;
    }
    return plain;
}

function nameOf(source: AdapterSource): string {
    const list = (Array.isArray(source) ? source : [source]) as unknown[], one = list.find((each) => !/\.json$/.test(nameOfOne(each))) ?? list[0];
    return nameOfOne(one);
}

function nameOfOne(source: unknown): string {
    return source instanceof File ? source.name : typeof source === "string" || source instanceof URL ? String(source).split(/[?#]/)[0]!.split("/").pop()! : "adapter";
}

/** The model, with the adapters that its load was given. */
export async function fullModel(Base: typeof Model, BaseSession: typeof Session, parts: readonly [Caller<HostCalls>, EngineInfo, () => Promise<void>],
    { lora, signal }: Pick<LoadOptions, "lora" | "signal">): Promise<FullModel> {
    const [given, info, end] = parts, model = make(Base, BaseSession, given, info, end), adapters: Adapter[] = [];
    for (const one of lora ?? []) adapters.push(await model.openAdapter(one, signal ? { signal } : {}));
    if (lora) await model.setAdapters(adapters);
    return model;
}

function make(Base: typeof Model, BaseSession: typeof Session, given: Caller<HostCalls>, info: EngineInfo, end: () => Promise<void>): FullModel {
    const caller = given as unknown as Caller<FullCalls>;
    let sessions = FIRST_SESSION;

    const plainList = (adapters: Adapters): { adapter: number; scale: number }[] => {
        if (!Array.isArray(adapters)) refuse("adapters", "a list of adapters");
        return adapters.map((one: Adapters[number], i) => {
            const { adapter, scale } = "adapter" in one ? one : { adapter: one, scale: one.scale };
            if (!(adapter instanceof OpenAdapter)) refuse(`adapters[${i}]`, "an adapter, or { adapter, scale }");
            if (!number(scale)) refuse(`adapters[${i}].scale`, NUMBER);
            return { adapter: adapter.number, scale };
        });
    };

    class AdaptedSession extends BaseSession implements FullSession {
        readonly #id: number;
        constructor() {
            const id = ++sessions;
            super(given, id);
            this.#id = id;
        }
        async setAdapters(adapters: Adapters): Promise<void> {
            await caller.call("setAdapters", { session: this.#id, adapters: plainList(adapters) });
        }
    }

    class Training implements TrainingSession {
        constructor(readonly number: number, readonly adapter: Adapter, public report: TrainingReport, readonly signal: AbortSignal | undefined) {}
        async step(): Promise<TrainingReport> {
            return this.report = await caller.call("trainStep", { training: this.number }, { signal: this.signal });
        }
        async measure(): Promise<number> {
            this.report = await caller.call("trainMeasure", { training: this.number }, { signal: this.signal });
            return this.report.validLoss ?? NaN;
        }
        async save(form: AdapterForm = "peft"): Promise<File[]> {
            if (!Object.hasOwn(FILES, form)) refuse("form", '"peft", "gguf" or "rullama"');
            const blobs = await caller.call("trainSave", { training: this.number, form });
            return blobs.map((blob, i) => new File([blob], FILES[form][i]!));
        }
        async close(): Promise<void> {
            await caller.call("trainClose", { training: this.number });
        }
        async *[Symbol.asyncIterator](): AsyncIterator<TrainingReport> {
            while (this.report.step < this.report.steps) yield await this.step();
        }
    }

    return new (class extends Base implements FullModel {
        #default: AdaptedSession | null = null;
        #adapters: Adapters = [];

        override chat(messages: readonly Message[], options?: ChatOptions): Answer {
            return this.#own().chat(messages, options);
        }
        override generate(tokens: ArrayLike<number>, options?: TokenOptions): Answer {
            return this.#own().generate(tokens, options);
        }
        override session(): FullSession {
            this.#open();
            const session = new AdaptedSession();
            if (this.#adapters.length) session.setAdapters(this.#adapters).catch(() => undefined); // the first answer meets what is wrong
            return session;
        }
        async setAdapters(adapters: Adapters): Promise<void> {
            plainList(adapters);
            await this.#own().setAdapters(adapters);
            this.#adapters = adapters;
        }
        async openAdapter(source: AdapterSource, options: { scale?: number; signal?: AbortSignal } = {}): Promise<Adapter> {
            this.#open();
            const { scale = 1, signal } = options;
            if (!number(scale)) refuse("scale", NUMBER);
            try {
                const adapter = await caller.call("openAdapter", await adapterOf(source, signal), { signal });
                return this.#adapter(adapter, nameOf(source), scale);
            } catch (thrown) {
                throw BerylError.from(thrown);
            }
        }
        async train(options: TrainOptions): Promise<TrainingSession> {
            this.#open();
            for (const [name, value] of Object.entries(options)) {
                const rule = RULES[name as keyof TrainOptions] as typeof RULES.data | undefined;
                if (!rule) throw new BerylError("MISUSE", `train has no \`${name}\``, `There are ${Object.keys(RULES).join(", ")}.`);
                if (value !== undefined && !rule[1](value)) refuse(name, rule[0]);
            }
            const { data, valid, pictures = {}, from, signal, targets, order, ...rest } = options;
            if (data === undefined) refuse("data", TEXT);
            const plain = { ...rest, ...(targets && { targets: targets.join() }), ...(order && { order: JSON.stringify(order) }) };
            const onEvent = (_: EngineEvent): void => undefined;
            const { training, adapter, report } = await caller.call("train", {
                data: new Blob([data]), valid: valid === undefined ? null : new Blob([valid]), pictures: Object.entries(pictures), from: (from as OpenAdapter | undefined)?.number ?? 0, options: plain,
            }, { signal, onEvent });
            return new Training(training, this.#adapter(adapter, "training", 1), report, signal);
        }
        #adapter(adapter: number, name: string, scale: number): OpenAdapter {
            return new OpenAdapter(adapter, name, scale, async () => { await caller.call("closeAdapter", { adapter }); });
        }
        #own(): AdaptedSession {
            this.#open();
            return this.#default ??= new AdaptedSession();
        }
        #open(): void {
            if (this.state === "closed") throw new BerylError("MISUSE", "the model is closed");
        }
    })(given, info, end);
}
