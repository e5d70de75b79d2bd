/*
 * engine.ts - one engine: an instance of the module on a GPU device, and the pump that steps its tasks.
 *
 * Owns the module's instance, its memory's layout (app/web/module.c has the other half) and the life of
 * tasks. Nothing is queued, cached or fetched here. C never waits: a step that gives
 * PENDING is made again once a map, a compile or a range has ended, or the caller has cancelled.
 */
import { BerylError } from "./error.js";
import { Bell, Gpu, type GpuCounts, type GpuFeature, type GpuModule, type PowerPreference, type WebGpu } from "./gpu.js";
import type { RawMedia } from "./pixels.js";
import { SinkWriter, SourceReader, type ByteSource } from "./ranges.js";
import { forPages, statusName, STATUS } from "./status.js";
import { libcImports, wasiImports } from "./wasi.js";

export type { ByteSource, GpuCounts, GpuFeature, PowerPreference, WebGpu };

export type LogLevel = "error" | "warning" | "info" | "debug";

/** A store of small texts by name; a Map is one. */
export interface KeptTexts { get(name: string): string | undefined; set(name: string, text: string): unknown }

/** What an engine is made of; all but `source` and `module` may be left out. */
export interface EngineOptions {
    /** The GGUF file. The engine owns it. */
    source: ByteSource;
    /** The towers of pictures and sound, where they have a file of their own. The engine owns it. */
    mmproj?: ByteSource;
    /** Default navigator.gpu. */
    gpu?: WebGpu;
    /** The module, or its bytes. */
    module: WebAssembly.Module | BufferSource;
    powerPreference?: PowerPreference;
    /** Tokens that a session can hold; default the smaller of the file's and 8,192. */
    context?: number;
    /** Sessions open at once; default 1. */
    sessions?: number;
    /** Default fast: int8 activations where the device has dot products. */
    precision?: "fast" | "exact";
    /** Type of the cache; default f32 under exact, else f16. */
    kv?: "f32" | "f16" | "q8";
    /** Bytes of device memory that may be used; default what the device has. */
    memory?: number;
    /** Most tokens of a prompt in one step. */
    piece?: number;
    /** Tokenizer and metadata alone: no weights, no device. */
    vocabularyOnly?: boolean;
    /** Small texts that outlive the page (which kernels were found right on this adapter): asked for at a load, and set after it. */
    kept?: KeptTexts;
    /** Capabilities to leave alone although the adapter has them. */
    without?: readonly GpuFeature[];
    /** For tests: the kernels of GPUs on an adapter in software. */
    hard?: boolean;
    log?(level: LogLevel, line: string): void;
}

/** What a task tells on its way. */
export type EngineEvent =
    | { kind: "progress"; what: string; done: number; total: number }
    | { kind: "token"; token: number; part: "text" | "thought" | "call" | "control"; text: string }
    | { kind: "call"; name: string; arguments: unknown }
    | { kind: "test"; name: string; ok: boolean; error: number };

/** How tokens are chosen and when an answer ends. What is left out is as in beryl.h. */
export interface GenerateOptions {
    greedy?: boolean;
    temperature?: number;
    topK?: number;
    topP?: number;
    minP?: number;
    repetitionPenalty?: number;
    presencePenalty?: number;
    frequencyPenalty?: number;
    seed?: number;
    maxTokens?: number;
    stop?: string[];
    ignoreEos?: boolean;
}

export interface GenerateResult {
    end: "stop" | "length" | "context" | "cancelled";
    nPrompt: number;
    nReused: number;
    nGenerated: number;
    prefillSeconds: number;
    firstTokenSeconds: number;
    decodeSeconds: number;
}

export interface DeviceInfo {
    backend: string; index: number; name: string; driver: string; kind: "discrete" | "integrated" | "software" | "host";
    usable: boolean; whyNot: string; memory: number; bufferMax: number; bindingMax: number; subgroupSize: number;
    f16: boolean; dotI8: boolean; timestamps: boolean;
}

/** beryl_engine_info. */
export interface EngineInfo {
    version: string; modelName: string; architecture: string; sizeLabel: string; fileType: string; fileSize: number; parameters: number;
    nLayer: number; nEmbd: number; nVocab: number; nHead: number; nExpert: number; nExpertUsed: number; window: number;
    context: number; contextMax: number; hasVision: boolean; hasAudio: boolean; hasPerLayerEmbedding: boolean;
    precision: "fast" | "exact"; kv: "f32" | "f16" | "q8"; device: DeviceInfo; temperature: number; topP: number; topK: number;
}

/** beryl_stats, and what this side knows. */
export interface EngineStats {
    loadSeconds: number; weightBytes: number; kvBytes: number; deviceBytes: number; deviceBytesPeak: number;
    hostBytes: number; hostBytesPeak: number; decodeBytesPerToken: number; decodeDispatches: number;
    steps: number; submits: number; dispatches: number; allocations: number; deviceObjects: number;
    /** Bytes of the module's memory. */
    heapBytes: number;
    /** What crossed its border. */
    border: GpuCounts;
}

/* ---- the module ------------------------------------------------------------------------------------------ */

/** @internal */
export interface Exports extends GpuModule {
    _initialize(): void;
    take(size: number): number;
    give(at: number): void;
    open(): number;
    engine_open(frame: number, options: number, source: number, size: number, mmproj: number, mmprojSize: number): number;
    engine_load(frame: number): number;
    engine_close(frame: number): void;
    engine_selftest(frame: number): number;
    engine_info(frame: number): number;
    engine_stats(frame: number): number;
    engine_describe(frame: number, tensors: number): number;
    tokenize(frame: number, text: number, size: number, special: number): number;
    detokenize(frame: number, tokens: number, n: number, special: number): number;
    render(frame: number, chat: number): number;
    render_tokens(frame: number, chat: number): number;
    session_open(frame: number): number;
    session_close(session: number): void;
    session_tokens(frame: number, session: number): number;
    session_rewind(frame: number, session: number, n: number): number;
    session_generate(frame: number, session: number, tokens: number, n: number, options: number): number;
    session_chat(frame: number, session: number, chat: number, options: number): number;
    session_logits(frame: number, session: number, tokens: number, n: number, first: number, piece: number, key: number): number;
    session_save(frame: number, session: number, sink: number): number;
    session_restore(frame: number, session: number, source: number, size: number): number;
    media_open(frame: number, form: number, data: number, a: number, b: number, budget: number, resized: number): number;
    media_encode(frame: number, media: number): number;
    media_prepare(frame: number, kind: number): number;
    media_soft(frame: number, media: number): number;
    media_close(media: number): void;
    session_media(frame: number, session: number, media: number, n: number): number;
    task_step(frame: number, task: number): number;
    task_cancel(task: number): void;
    task_close(task: number): void;
}

/* Offsets in module.h's frame. */
const FRAME = {
    kind: 0, part: 4, token: 8, ok: 12, text: 16, textSize: 20, what: 24, out: 28, done: 32, total: 40, value: 48, outSize: 56,
    code: 60, message: 64, messageSize: 68, at: 72, end: 80, nPrompt: 84, nReused: 88, nGenerated: 92, prefill: 96, firstToken: 104, decode: 112,
} as const;
const LEVELS = ["error", "warning", "info", "debug"] as const;
const PARTS = ["text", "thought", "call", "control"] as const;
const ENDS = ["stop", "length", "context", "cancelled"] as const;
const LOGITS_BYTES = 4 << 20; // of one step
const NONE = 0xffffffff; // no such text
const TURN = 4; // milliseconds of steps, then others get their turn: less than what a source has ahead

const encoder = new TextEncoder(), decoder = new TextDecoder();

type RowTaker = (position: number, row: Float32Array) => void;

/* Who takes the rows of a task, and what it threw: another task's step may have handed them over. */
interface Rows { each: RowTaker; failure: { thrown: unknown } | null }

/** A loaded model on a device. */
export class Engine {
    /** Resolves with the reason when the GPU device is lost. */
    readonly lost: Promise<string>;
    readonly #gpu: Gpu | null;
    readonly #bell: Bell;
    readonly #log: EngineOptions["log"];
    readonly #kept: KeptTexts | undefined;
    readonly #sources = new Map<number, SourceReader>();
    readonly #sinks = new Map<number, SinkWriter>();
    readonly #rows = new Map<number, Rows>();
    readonly #tasks = new Set<number>();
    readonly #sessions = new Set<number>();
    readonly #media = new Set<number>();
    #next = 1; // number of the next source, sink or taker of rows
    #x: Exports | null = null;
    #frame = 0;
    #lastTurn = 0;
    #info: EngineInfo | null = null;

    private constructor(gpu: Gpu | null, bell: Bell, options: EngineOptions) {
        this.#gpu = gpu;
        this.#bell = bell;
        this.#log = options.log;
        this.#kept = options.kept;
        this.lost = gpu ? gpu.lost : new Promise(() => undefined);
    }

    /** Opens a device, then loads the model. Throws CANCELLED when the signal is aborted. */
    static async load(options: EngineOptions, onEvent?: (event: EngineEvent) => void, signal?: AbortSignal): Promise<Engine> {
        const bell = new Bell();
        let engine: Engine | null = null, gpu: Gpu | null = null;
        try {
            const module = options.module instanceof WebAssembly.Module ? options.module : await WebAssembly.compile(options.module);
            if (!options.vocabularyOnly) gpu = await Gpu.open(bell, options);
            if (signal?.aborted) throw new BerylError("CANCELLED", "loading was cancelled");
            engine = new Engine(gpu, bell, options);
            await engine.#start(module, options);
            const task = engine.call((x, frame) => x.engine_load(frame)).out();
            const events = engine.pump(task, signal);
            for (let next; !(next = await events.next()).done; onEvent?.(next.value)) {
                if (!("what" in next.value) || next.value.what !== "making more plans") continue;
                void (async () => { for await (const _ of events); })().catch(() => undefined); // those that fail are made when they are needed
                break;
            }
            return engine;
        } catch (thrown) {
            if (engine) await engine.close();
            else await Promise.all([options.source.close?.(), options.mmproj?.close?.()]);
            gpu?.close();
            throw BerylError.from(thrown, "DEVICE");
        }
    }

    /** What was loaded, and on what. */
    info(): EngineInfo {
        this.#info ??= JSON.parse(this.call((x, frame) => x.engine_info(frame)).text()) as EngineInfo;
        return this.#info;
    }

    stats(): EngineStats {
        const stats = JSON.parse(this.call((x, frame) => x.engine_stats(frame)).text()) as EngineStats;
        const border: GpuCounts = this.#gpu ? { ...this.#gpu.counts } : { blocks: 0, submits: 0, dispatches: 0, maps: 0, bytesOut: 0, bytesIn: 0 };
        return { ...stats, heapBytes: this.#live().memory.buffer.byteLength, border };
    }

    /** What the file has: its metadata, and its tensors if asked for. */
    describe(tensors: boolean): unknown {
        return JSON.parse(this.call((x, frame) => x.engine_describe(frame, tensors ? 1 : 0)).text());
    }

    /** Ids of a text, without BOS. special: control literals in it become control tokens. */
    tokenize(text: string, special = false): Int32Array {
        const bytes = encoder.encode(text);
        return this.withBytes(bytes, (at) => this.call((x, frame) => x.tokenize(frame, at, bytes.length, special ? 1 : 0)).ids());
    }

    /** The text of tokens; control tokens are left out unless `special`. */
    detokenize(ids: ArrayLike<number>, special = false): string {
        return this.#withIds(ids, (at, n) => this.call((x, frame) => x.detokenize(frame, at, n, special ? 1 : 0)).text());
    }

    /** The prompt of a conversation, {messages, tools, think, generate}, as text. */
    render(chat: object): string {
        return this.#withText(JSON.stringify(chat), (at) => this.call((x, frame) => x.render(frame, at)).text());
    }

    /** The same as tokens: text of messages never becomes a control token. */
    renderTokens(chat: object): Int32Array {
        return this.#withText(JSON.stringify(chat), (at) => this.call((x, frame) => x.render_tokens(frame, at)).ids());
    }

    /** Runs every kernel that this engine uses against the reference functions; throws DEVICE at the end if one is wrong. */
    async *selftest(signal?: AbortSignal): AsyncGenerator<EngineEvent, void> {
        yield* this.pump(this.call((x, frame) => x.engine_selftest(frame)).out(), signal);
    }

    /** Takes over a picture or a clip, of which `encodeMedia` makes soft tokens. `resized`: its sides are whole soft tokens. */
    openMedia({ form, bytes, a, b }: RawMedia, budget = 0, resized = false): number {
        const media = this.withBytes(bytes, (at) => this.call((x, frame) => x.media_open(frame, form, at, a, b, budget, resized ? 1 : 0)).out());
        this.#media.add(media);
        return media;
    }

    /** Computes the soft tokens of media; the first of a kind loads its tower. */
    async *encodeMedia(media: number, signal?: AbortSignal): AsyncGenerator<EngineEvent, void> {
        yield* this.pump(this.call((x, frame) => x.media_encode(frame, media)).out(), signal);
    }

    /** Loads the tower of pictures (1) or sound (2) and compiles its programs. */
    async prepareMedia(kind: number, signal?: AbortSignal): Promise<null> {
        for await (const _ of this.pump(this.call((x, frame) => x.media_prepare(frame, kind)).out(), signal));
        return null;
    }

    /** How many soft tokens media has, and, once it is encoded, F32 [count, nEmbd]. */
    mediaSoft(media: number): { count: number; soft: Float32Array } {
        this.call((x, frame) => x.media_soft(frame, media));
        const view = this.#view(), at = view.getUint32(this.#frame + FRAME.out, true), count = view.getUint32(this.#frame + FRAME.outSize, true);
        return { count, soft: at ? new Float32Array(view.buffer as ArrayBuffer, at, count * this.info().nEmbd).slice() : new Float32Array(0) };
    }

    /** Sessions that were given it keep what they need. */
    closeMedia(media: number): void {
        if (this.#media.delete(media)) this.#x?.media_close(media);
    }

    openSession(): EngineSession {
        const session = this.call((x, frame) => x.session_open(frame)).out();
        this.#sessions.add(session);
        return new EngineSession(this, session);
    }

    /** Ends all tasks and sessions, and gives the device back. */
    async close(): Promise<void> {
        const x = this.#x;
        this.#x = null;
        if (x) {
            for (const task of this.#tasks) x.task_close(task);
            for (const session of this.#sessions) x.session_close(session);
            for (const media of this.#media) x.media_close(media);
            x.engine_close(this.#frame);
        }
        this.#tasks.clear();
        this.#sessions.clear();
        this.#media.clear();
        for (const source of this.#sources.values()) source.close(); // what C did not come to own
        this.#sources.clear();
        this.#gpu?.close();
        this.#bell.ring(); // generators find the engine closed
    }

    /* ---- for sessions ----------------------------------------------------------------------------------- */

    /** @internal */
    sessionAnswer(session: number, prompt: { chat: object } | { tokens: ArrayLike<number> }, options: GenerateOptions, signal?: AbortSignal):
        AsyncGenerator<EngineEvent, GenerateResult> {
        return this.#answer(session, prompt, options, signal);
    }

    async *#answer(session: number, prompt: { chat: object } | { tokens: ArrayLike<number> }, options: GenerateOptions, signal?: AbortSignal):
        AsyncGenerator<EngineEvent, GenerateResult> {
        const task = this.#withText(JSON.stringify(options), (o) => "chat" in prompt
            ? this.#withText(JSON.stringify(prompt.chat), (at) => this.call((x, frame) => x.session_chat(frame, session, at, o)).out())
            : this.#withIds(prompt.tokens, (at, n) => this.call((x, frame) => x.session_generate(frame, session, at, n, o)).out()));
        try {
            return yield* this.pump(task, signal);
        } catch (thrown) {
            if (this.#x && thrown instanceof BerylError && thrown.status === "CANCELLED") return { ...this.#result(), end: "cancelled" };
            throw thrown;
        }
    }

    /** @internal */
    async sessionLogits(session: number, tokens: ArrayLike<number>, first: number, each: RowTaker, piece?: number, signal?: AbortSignal): Promise<void> {
        const key = this.#next++, few = Math.max(1, Math.floor(LOGITS_BYTES / (4 * this.info().nVocab)));
        const rows: Rows = { each, failure: null };
        this.#rows.set(key, rows);
        try {
            const task = this.#withIds(tokens, (at, n) =>
                this.call((x, frame) => x.session_logits(frame, session, at, n, first, Math.min(piece || few, few), key)).out());
            for await (const _ of this.pump(task, signal, rows)) void _;
        } finally {
            this.#rows.delete(key);
        }
    }

    /** @internal */
    async sessionSave(session: number, write: (chunk: Uint8Array) => void | Promise<void>, signal?: AbortSignal): Promise<void> {
        const number = this.#next++, sink = new SinkWriter(write, this.#bell);
        this.#sinks.set(number, sink);
        try {
            for await (const _ of this.pump(this.call((x, frame) => x.session_save(frame, session, number)).out(), signal)) void _;
        } catch (thrown) {
            throw sink.failure ?? thrown;
        } finally {
            this.#sinks.delete(number);
        }
    }

    /** @internal */
    async sessionRestore(session: number, source: ByteSource, signal?: AbortSignal): Promise<void> {
        const number = this.#addSource(source);
        for await (const _ of this.pump(this.call((x, frame) => x.session_restore(frame, session, number, source.size)).out(), signal)) void _;
    }

    /** @internal */
    sessionMedia(session: number, media: readonly number[]): void {
        this.#withIds(media, (at, n) => this.call((x, frame) => x.session_media(frame, session, at, n)));
    }

    /** @internal */
    sessionTokens(session: number): Int32Array {
        return this.call((x, frame) => x.session_tokens(frame, session)).ids();
    }

    /** @internal */
    sessionRewind(session: number, n: number): void {
        this.call((x, frame) => x.session_rewind(frame, session, n));
    }

    /** @internal */
    sessionClose(session: number): void {
        if (this.#sessions.delete(session)) this.#x?.session_close(session);
        this.#bell.ring();
    }

    /* ---- beginning ------------------------------------------------------------------------------------------ */

    async #start(module: WebAssembly.Module, options: EngineOptions): Promise<void> {
        let exports: Exports | null = null;
        const live = (): Exports => {
            if (!exports) throw new BerylError("MISUSE", "the module is not there yet");
            return exports;
        };
        const none: WebAssembly.ModuleImports = { gpu_facts: () => 0, gpu_open: () => undefined, gpu_run: () => undefined };
        const heap = (): WebAssembly.Memory => live().memory;
        const instance = await WebAssembly.instantiate(module, {
            wasi_snapshot_preview1: wasiImports(heap),
            beryl: { ...libcImports(heap), ...(this.#gpu ? this.#gpu.imports(live) : none), ...this.#imports(live) },
        });
        exports = instance.exports as unknown as Exports;
        exports._initialize();
        this.#frame = exports.open();
        if (!this.#frame) throw new BerylError("NO_MEMORY", "no memory for the engine");
        this.#x = exports;
        const { source, mmproj, context, sessions, precision, kv, memory, piece, vocabularyOnly } = options;
        const json = JSON.stringify({ context, sessions, precision, kv, memory, piece, vocabularyOnly, kept: this.#kept !== undefined });
        const number = this.#addSource(source), towers = mmproj ? this.#addSource(mmproj) : 0;
        this.#withText(json, (at) => this.call((x, frame) => x.engine_open(frame, at, number, source.size, towers, mmproj?.size ?? 0)));
    }

    #addSource(source: ByteSource): number {
        const number = this.#next++;
        this.#sources.set(number, new SourceReader(source, this.#bell));
        return number;
    }

    #imports(live: () => Exports): WebAssembly.ModuleImports {
        const bytes = (at: number, size: number): Uint8Array => new Uint8Array(live().memory.buffer, at, size);
        return {
            source_read: (number: number, offset: number, to: number, size: number): number =>
                this.#sources.get(number)?.read(offset, bytes(to, size)) ?? STATUS.IO,
            source_close: (number: number): void => {
                this.#sources.get(number)?.close();
                this.#sources.delete(number);
            },
            sink_write: (number: number, from: number, size: number): number => this.#sinks.get(number)?.write(bytes(from, size)) ?? STATUS.IO,
            sink_close: (): number => STATUS.OK,
            logits_row: (key: number, position: number, row: number): void => {
                const rows = this.#rows.get(key);
                if (!rows || rows.failure) return;
                try {
                    rows.each(position, new Float32Array(live().memory.buffer, row, this.info().nVocab));
                } catch (thrown) { // an exception must not pass through C
                    rows.failure = { thrown };
                    this.#bell.ring();
                }
            },
            kept_read: (path: number, pathSize: number, to: number, room: number): number => {
                const text = this.#kept?.get(decoder.decode(bytes(path, pathSize).slice()));
                if (text === undefined) return NONE;
                const found = encoder.encode(text);
                if (room >= found.length) bytes(to, found.length).set(found);
                return found.length;
            },
            kept_write: (path: number, pathSize: number, from: number, size: number): number => {
                this.#kept?.set(decoder.decode(bytes(path, pathSize).slice()), decoder.decode(bytes(from, size).slice()));
                return this.#kept ? 1 : 0;
            },
            log_line: (level: number, line: number, size: number): void => this.#log?.(LEVELS[level] ?? "debug", decoder.decode(bytes(line, size).slice())),
        };
    }

    /* ---- calls ------------------------------------------------------------------------------------------------ */

    #live(): Exports {
        if (!this.#x) throw new BerylError("MISUSE", "the engine is closed");
        return this.#x;
    }

    #text(at: number, size: number): string {
        return size ? decoder.decode(new Uint8Array(this.#live().memory.buffer, at, size).slice()) : "";
    }

    #view(): DataView {
        return new DataView(this.#live().memory.buffer);
    }

    /** @internal Calls, throws what failed, and gives readers of what the call gave. */
    call(call: (x: Exports, frame: number) => number): { out(): number; text(): string; ids(): Int32Array } {
        const status = call(this.#live(), this.#frame);
        if (status !== STATUS.OK) throw this.#failure();
        const view = this.#view(), out = view.getUint32(this.#frame + FRAME.out, true), size = view.getUint32(this.#frame + FRAME.outSize, true);
        return {
            out: () => out,
            text: () => this.#text(out, size),
            ids: () => size ? new Int32Array(new Uint8Array(view.buffer, out, 4 * size).slice().buffer) : new Int32Array(0),
        };
    }

    #failure(): BerylError {
        const view = this.#view(), at = this.#frame;
        const status = statusName(view.getUint32(at + FRAME.code, true));
        for (const source of this.#sources.values()) if (source.failure?.status === status) return source.failure;
        const message = forPages(this.#text(view.getUint32(at + FRAME.message, true), view.getUint32(at + FRAME.messageSize, true)));
        return new BerylError(status, message, undefined, view.getFloat64(at + FRAME.at, true));
    }

    /** @internal Bytes in the module's memory for one call. */
    withBytes<T>(bytes: Uint8Array, use: (at: number) => T): T {
        const x = this.#live(), at = x.take(bytes.length);
        if (!at) throw new BerylError("NO_MEMORY", `no memory for ${bytes.length} bytes`);
        try {
            new Uint8Array(x.memory.buffer, at, bytes.length).set(bytes);
            return use(at);
        } finally {
            x.give(at);
        }
    }

    #withText<T>(text: string, use: (at: number) => T): T {
        return this.withBytes(encoder.encode(`${text}\0`), use);
    }

    #withIds<T>(ids: ArrayLike<number>, use: (at: number, n: number) => T): T {
        return this.withBytes(new Uint8Array(Int32Array.from(ids).buffer), (at) => use(at, ids.length));
    }

    /* ---- tasks -------------------------------------------------------------------------------------------------- */

    /* Anything under way that will ring. */
    #outstanding(): number {
        let n = this.#gpu?.outstanding ?? 0;
        for (const source of this.#sources.values()) n += source.outstanding;
        for (const sink of this.#sinks.values()) n += sink.outstanding;
        return n;
    }

    /** @internal Steps a task to its end, beside those of other sessions. An abort is seen at once, whatever is under way. */
    async *pump(task: number, signal?: AbortSignal, rows?: Rows): AsyncGenerator<EngineEvent, GenerateResult> {
        const cancel = (): void => {
            if (this.#tasks.has(task)) this.#x?.task_cancel(task);
            this.#bell.ring();
        };
        this.#tasks.add(task);
        signal?.addEventListener("abort", cancel);
        if (signal?.aborted) cancel();
        try {
            for (let idle = 0;;) {
                if (!this.#tasks.has(task)) throw new BerylError("CANCELLED", "the engine was closed");
                const status = this.#live().task_step(this.#frame, task);
                if (rows?.failure) throw rows.failure.thrown;
                if (status === STATUS.OK) return this.#result();
                if (status === STATUS.EVENT) {
                    idle = 0;
                    yield this.#event();
                    await this.#turn();
                } else if (status !== STATUS.PENDING) {
                    throw this.#failure();
                } else if (this.#outstanding()) {
                    idle = 0;
                    await this.#bell.wait();
                } else if (++idle > 1000) { // nothing will ever ring
                    throw new BerylError("DEVICE", "the engine waits, but nothing is under way: please report this");
                } else {
                    await this.#turn();
                }
            }
        } finally {
            signal?.removeEventListener("abort", cancel);
            if (this.#tasks.delete(task)) this.#x?.task_close(task);
        }
    }

    /* Now and then the others of this thread (an abort, a timer, a paint) get their turn. */
    async #turn(): Promise<void> {
        const now = performance.now();
        if (now - this.#lastTurn < TURN) return;
        await new Promise((resolve) => { // a timer's would be four milliseconds
            const { port1, port2 } = new MessageChannel();
            port1.onmessage = () => resolve(port1.close());
            port2.postMessage(null);
        });
        this.#lastTurn = performance.now();
    }

    #event(): EngineEvent {
        const view = this.#view(), at = this.#frame;
        const text = (): string => this.#text(view.getUint32(at + FRAME.text, true), view.getUint32(at + FRAME.textSize, true));
        switch (view.getUint32(at + FRAME.kind, true)) {
        case 0:
            return {
                kind: "progress", what: this.#zeroEnded(view.getUint32(at + FRAME.what, true)),
                done: view.getFloat64(at + FRAME.done, true), total: view.getFloat64(at + FRAME.total, true),
            };
        case 1:
            return {
                kind: "token", token: view.getInt32(at + FRAME.token, true), part: PARTS[view.getUint32(at + FRAME.part, true)] ?? "text", text: text(),
            };
        case 2: {
            const call = JSON.parse(text()) as { name: string; arguments: unknown };
            return { kind: "call", name: call.name, arguments: call.arguments };
        }
        default:
            return { kind: "test", name: text(), ok: view.getUint32(at + FRAME.ok, true) !== 0, error: view.getFloat64(at + FRAME.value, true) };
        }
    }

    #zeroEnded(at: number): string {
        if (!at) return "";
        const memory = new Uint8Array(this.#live().memory.buffer);
        return this.#text(at, memory.indexOf(0, at) - at);
    }

    #result(): GenerateResult {
        const view = this.#view(), at = this.#frame;
        return {
            end: ENDS[view.getUint32(at + FRAME.end, true)] ?? "stop",
            nPrompt: view.getUint32(at + FRAME.nPrompt, true),
            nReused: view.getUint32(at + FRAME.nReused, true),
            nGenerated: view.getUint32(at + FRAME.nGenerated, true),
            prefillSeconds: view.getFloat64(at + FRAME.prefill, true),
            firstTokenSeconds: view.getFloat64(at + FRAME.firstToken, true),
            decodeSeconds: view.getFloat64(at + FRAME.decode, true),
        };
    }
}

/** One timeline of tokens. The caller always gives the whole prompt; what the session holds of it is not computed again. */
export class EngineSession {
    readonly #engine: Engine;
    /** @internal 0: closed. */
    session: number;

    /** @internal */
    constructor(engine: Engine, session: number) {
        this.#engine = engine;
        this.session = session;
    }

    /** Answers a conversation, {messages, tools, think, generate}. Cancelled, it returns with the end "cancelled". */
    chat(chat: object, options: GenerateOptions = {}, signal?: AbortSignal): AsyncGenerator<EngineEvent, GenerateResult> {
        return this.#engine.sessionAnswer(this.#open(), { chat }, options, signal);
    }

    /** Goes on from a prompt of tokens. */
    generate(tokens: ArrayLike<number>, options: GenerateOptions = {}, signal?: AbortSignal): AsyncGenerator<EngineEvent, GenerateResult> {
        return this.#engine.sessionAnswer(this.#open(), { tokens }, options, signal);
    }

    /** Hands over the logits of positions from `first` on, in order. A row is borrowed until `each` returns. */
    async logits(tokens: ArrayLike<number>, first: number, each: RowTaker, piece?: number, signal?: AbortSignal): Promise<void> {
        await this.#engine.sessionLogits(this.#open(), tokens, first, each, piece, signal);
    }

    /** What stands in the places of its prompts from now on, encoded before, in order. */
    media(media: readonly number[]): void {
        this.#engine.sessionMedia(this.#open(), media);
    }

    /** What the session holds. */
    get tokens(): Int32Array {
        return this.#engine.sessionTokens(this.#open());
    }

    /** Keeps the first n tokens. */
    rewind(n: number): void {
        this.#engine.sessionRewind(this.#open(), n);
    }

    /** Writes the session in pieces of a few MB, each of them the receiver's own. */
    async save(write: (chunk: Uint8Array) => void | Promise<void>, signal?: AbortSignal): Promise<void> {
        await this.#engine.sessionSave(this.#open(), write, signal);
    }

    /** Takes over what `save` wrote; refused if it is of another model, cache type or precision. */
    async restore(source: ByteSource, signal?: AbortSignal): Promise<void> {
        await this.#engine.sessionRestore(this.#open(), source, signal);
    }

    /** Ends an answer of its own; the engine has room for another session. */
    close(): void {
        if (this.session) this.#engine.sessionClose(this.session);
        this.session = 0;
    }

    #open(): number {
        if (!this.session) throw new BerylError("MISUSE", "the session is closed");
        return this.session;
    }
}
