/*
 * host.ts - where the engine lives: in a worker, or in place.
 *
 * Owns one engine, its source, the queue before it and its sessions, which answer at the same time. Engines can be lost with
 * their device; the host loads the model again from the same source, and every session goes on
 * from the tokens that it had. The one idea: a session here is its list of tokens, and what the
 * engine holds for it can be dropped and made again, since a prompt is always given whole. So
 * there may be more sessions than the engine holds, and a lost device costs time, not words.
 */
import type { HostCalls, HostEvent, ModelState, PlainLoad, PlainMedia, PlainMediaList } from "./calls.js";
import type { Engine, EngineEvent, EngineInfo, EngineOptions, EngineSession, KeptTexts, GenerateResult, LogLevel, WebGpu } from "./engine.js";
import { BerylError, throwIfAborted } from "./error.js";
import type { AdaptedSlot, HostInside } from "./full_host.js";
import { showRoom, whatFits, type Room } from "./fit.js";
import { Queue } from "./queue.js";
import { openKept } from "./kept.js";
import { fetchModule } from "./module.js";
import { contentName, rawMedia } from "./pixels.js";
import type { Handlers } from "./rpc.js";
import { BlobSource } from "./source/blob.js";
import { openSource, VerifiedSource, type ByteSource, type FillableSource, type PlainSource, type Progress } from "./source/index.js";
import { orAborted, within } from "./source/source.js";
import { browserStorage, type StorageHost } from "./source/store.js";

/** What a host needs of its surroundings; tests bring their own. */
export interface HostParts {
    loadEngine: typeof Engine.load;
    /** Default navigator.gpu. */
    gpu?: WebGpu | undefined;
    storage?: StorageHost | undefined;
    /** Where the file is read; default in place. */
    openSource?: typeof openSource;
}

/** More losses than this within LOSS_SPAN, and the model is given up. */
const MOST_LOSSES = 3;
const LOSS_SPAN = 60_000; // milliseconds
/** How long may be tried what would fit. */
const ADVICE = 5_000; // milliseconds
/** Pictures and clips that stay encoded, more only where one prompt has more. */
const MEDIA_KEPT = 16;
/** How long an engine may take to end before it is left alone. */
const CLOSE_WAIT = 2_000; // milliseconds
/** Milliseconds between two reports of the same. */
const TELL = 50;

const IDLE: GenerateResult = { end: "cancelled", nPrompt: 0, nReused: 0, nGenerated: 0, prefillSeconds: 0, firstTokenSeconds: 0, decodeSeconds: 0 };

/* A session: what it holds, and the engine's part of it while there is one; `media`: its last prompt had some. */
interface Slot extends AdaptedSlot { tokens: Int32Array; used: number; busy: boolean; media: boolean }

/** Makes the handlers of a host; one host holds one model. */
export function makeHost(parts: HostParts): Handlers<HostCalls> {
    return new Host(parts).handlers();
}

class Host implements HostInside {
    readonly #parts: HostParts;
    readonly queue = new Queue();
    readonly #slots = new Map<number, Slot>();
    readonly #ending = new AbortController();
    #watchers: ((event: HostEvent) => void)[] = [];
    #load: PlainLoad | null = null;
    #source: ByteSource | FillableSource | null = null;
    #mmproj: ByteSource | FillableSource | null = null;
    #module: WebAssembly.Module | BufferSource | null = null;
    readonly #encoded = new Map<string, number>(); // pictures and sound in the engine, by their contents
    #encoding: Promise<unknown> = Promise.resolve(); // one at a time: they share the towers' plans
    #kept: KeptTexts | null = null;
    #engine: Engine | null = null;
    #state: ModelState = "closed";
    ready: Promise<Engine> = Promise.reject(new BerylError("MISUSE", "no model is loaded"));
    #losses: number[] = []; // when
    #clock = 0;

    constructor(parts: HostParts) {
        this.#parts = parts;
        this.ready.catch(() => undefined);
    }

    handlers(): Handlers<HostCalls> {
        const handlers: Handlers<HostCalls> = {
            hello: () => Promise.resolve({ gpu: this.#gpu() !== undefined }),
            watch: (_, { signal, emit }) => new Promise((resolve) => {
                this.#watchers.push(emit);
                for (const end of [signal, this.#ending.signal]) end.addEventListener("abort", () => {
                    this.#watchers = this.#watchers.filter((other) => other !== emit);
                    resolve(null);
                });
            }),
            load: async (args, { signal }) => {
                if (args.full) Object.assign(handlers, (await import("./full_host.js")).fullHandlers(this));
                return this.#start(args, signal);
            },
            close: () => this.#close(),
            stats: async () => (await this.ready).stats(),
            describe: async ({ tensors }) => (await this.ready).describe(tensors),
            tokenize: async ({ text, special }) => (await this.ready).tokenize(text, special).slice(),
            detokenize: async ({ tokens, special }) => (await this.ready).detokenize(tokens, special),
            render: async ({ chat }) => (await this.ready).render(chat),
            renderTokens: (args) => this.#renderTokens(args),
            embed: (args, { signal, emit }) => this.queue.run(null, signal, () => this.#embed(args, signal, emit)),
            prepare: async ({ kind }, { signal }) => (await this.ready).prepareMedia(kind, signal), // beside answers
            selftest: (_, { signal, emit }) => this.queue.run(null, signal, async () => {
                const engine = await this.ready;
                for await (const event of engine.selftest(signal)) emit(event);
                return null;
            }),
            open: ({ session }) => {
                this.#slots.set(session, { engine: null, tokens: new Int32Array(0), used: 0, busy: false, media: false });
                return Promise.resolve(null);
            },
            generate: (args, context) => this.#generate(args, context),
            tokens: ({ session }) => Promise.resolve(this.slot(session).tokens.slice()),
            rewind: ({ session, count }) => this.queue.run(session, undefined, () => this.#rewind(this.slot(session), count)),
            save: ({ session }, { signal }) => this.queue.run(session, signal, () => this.#save(this.slot(session), signal)),
            restore: ({ session, snapshot }, { signal }) =>
                this.queue.run(session, signal, () => this.#restore(this.slot(session), snapshot, signal)),
            drop: ({ session }) => this.queue.run(session, undefined, () => this.#drop(session)),
        };
        return handlers;
    }

    #gpu(): WebGpu | undefined {
        return this.#parts.gpu ?? (globalThis.navigator as Navigator | undefined)?.gpu;
    }

    #tell(event: HostEvent): void {
        for (const watcher of this.#watchers) watcher(event);
    }

    #log(level: LogLevel, line: string): void {
        this.#tell({ kind: "log", level, line });
    }

    #enter(state: ModelState, info: EngineInfo | null, error: BerylError | null): void {
        this.#state = state;
        this.#tell({ kind: "state", state, info, error: error?.toPlain() ?? null });
    }

    /* ---- loading ------------------------------------------------------------------------------ */

    async #start(load: PlainLoad, signal: AbortSignal): Promise<EngineInfo> {
        if (this.#load) throw new BerylError("MISUSE", "this host has its model already");
        this.#load = load;
        this.queue.widen(load.sessions ?? 1); // they decode together
        const stop = AbortSignal.any([signal, this.#ending.signal]);
        try {
            const storage = this.#parts.storage ?? browserStorage;
            const module = fetchModule(load.module, stop), kept = openKept(); // beside the file's beginning
            module.catch(() => undefined);
            if (!load.vocabularyOnly) void this.#gpu()?.requestAdapter(load.device ? { powerPreference: load.device } : {}).catch(() => undefined); // the first is long in coming
            const openAny = (source: PlainSource): Promise<ByteSource | FillableSource> => (this.#parts.openSource ?? openSource)(source, {
                storage,
                cache: load.cache ?? "auto",
                ...(load.request && { request: load.request }),
                ...(load.retry && { retry: load.retry }),
                onProgress: (progress) => this.#tell({ kind: "progress", progress }),
                onWarning: (line) => this.#log("warning", line),
            }, stop);
            const open = (): Promise<ByteSource | FillableSource> => openAny(load.source);
            this.#source = await open();
            if (load.mmproj !== undefined) this.#mmproj = await openAny(load.mmproj);
            this.#module = await module;
            this.#kept = await kept;
            const engine = await this.#read(this.#source, load, stop).catch(async (thrown: unknown) => {
                if (!await this.#forget(thrown)) throw thrown;
                this.#source = await open(); // what was kept is no model, but the server may have one by now
                return await this.#read(this.#source, load, stop);
            });
            this.#adopt(engine);
            return engine.info();
        } catch (thrown) {
            const cancelled = stop.aborted;
            if (!cancelled) await this.#forget(thrown);
            await this.#close();
            throw cancelled ? new BerylError("CANCELLED", "the load was cancelled") : thrown;
        }
    }

    /* From an open source to an engine; the rest of what is to be kept goes on after that, unless it must be kept. */
    async #read(source: ByteSource | FillableSource, load: PlainLoad, stop: AbortSignal): Promise<Engine> {
        const sha256 = load.sha256?.toLowerCase() ?? null;
        const known = "sha256" in source && source.sha256 === sha256;
        const unchecked = sha256 !== null && !known ? new VerifiedSource(source) : null;
        const engine = await this.#open(unchecked ?? source, stop).catch(async (thrown: unknown) => {
            throw thrown instanceof BerylError && thrown.status === "NO_DEVICE_MEMORY" ? await this.#advise(thrown, source, stop) : thrown;
        });
        if (unchecked && sha256) await unchecked.finish(sha256, stop, (progress) => this.#tell({ kind: "progress", progress }));
        const towers = this.#mmproj;
        if (towers && "fill" in towers) towers.fill(this.#ending.signal).catch((thrown: unknown) => {
            if (!this.#ending.signal.aborted) this.#log("warning", `not all of ${towers.name} is kept yet: ${(thrown as Error).message}`);
        });
        if (!("fill" in source)) return engine;
        if (load.cache === "required") await this.#fill(source, sha256, stop);
        else this.#fill(source, sha256, this.#ending.signal).catch((thrown: unknown) => {
            if (!this.#ending.signal.aborted) this.#log("warning", `not all of ${source.name} is kept yet: ${(thrown as Error).message}`);
        });
        return engine;
    }

    /* What is no model is not kept, nor what has begun to come and is none of Beryl's. True if the server may have another by now. */
    async #forget(thrown: unknown): Promise<boolean> {
        const source = this.#source, status = thrown instanceof BerylError ? thrown.status : "";
        if (!source || !("forget" in source) || !(status === "BAD_FILE" || (status === "UNSUPPORTED" && !source.old))) return false;
        this.#source = null;
        await this.#engine?.close().catch(() => undefined);
        this.#engine = null;
        await source.forget();
        return source.old;
    }

    async #open(source: ByteSource, signal: AbortSignal): Promise<Engine> {
        let before = "", told = 0;
        return this.#engine = await this.#make(source, {}, signal, (event) => {
            const { kind, ...progress } = event, now = Date.now();
            if (kind !== "progress" || (event.what === before && event.done < event.total && now - told < TELL)) return;
            [before, told] = [event.what, now];
            this.#tell({ kind, progress: progress as Progress });
        });
    }

    #make(source: ByteSource, change: Room, signal: AbortSignal, onEvent: (event: EngineEvent) => void): Promise<Engine> {
        const load = this.#load;
        if (!load || !this.#module) throw new BerylError("MISUSE", "no model is loaded");
        const lent = (whole: ByteSource): ByteSource => ({ size: whole.size, name: whole.name, read: (...args) => whole.read(...args) });
        const options: EngineOptions = {
            // The source outlives the engine: a lost device takes the engine, not the file.
            source: lent(source),
            ...(this.#mmproj && { mmproj: lent(this.#mmproj) }),
            module: this.#module,
            log: (level, line) => this.#log(level, line),
            ...(this.#kept && { kept: this.#kept }),
        };
        const gpu = this.#gpu();
        if (gpu) options.gpu = gpu;
        if (load.device) options.powerPreference = load.device;
        for (const key of ["context", "sessions", "precision", "kv", "memory", "piece", "vocabularyOnly", "without"] as const)
            if (load[key] !== undefined) Object.assign(options, { [key]: load[key] });
        return this.#parts.loadEngine(Object.assign(options, change), onEvent, signal);
    }

    /* The same refusal with what would fit, found by trying: a load that comes to its weights has its room, and is left. */
    async #advise(refused: BerylError, source: ByteSource, signal: AbortSignal): Promise<BerylError> {
        const { context, kv, precision } = this.#load ?? {};
        const limit = AbortSignal.any([signal, AbortSignal.timeout(ADVICE)]); // a refusal must not keep anybody waiting
        const room = await whatFits({ context, kv, precision }, async (change) => {
            const enough = new AbortController();
            try {
                const making = this.#make(source, change, AbortSignal.any([limit, enough.signal]), (event) => {
                    if (event.kind === "progress" && event.what === "loading weights") enough.abort();
                });
                making.then((engine) => engine.close(), () => undefined);
                await orAborted(making, limit);
                return true;
            } catch (thrown) {
                if (enough.signal.aborted) return true;
                if (thrown instanceof BerylError && thrown.status === "NO_DEVICE_MEMORY") return false;
                throw thrown;
            }
        }).catch(() => undefined);
        const hint = room === undefined ? undefined : room === null ? "Not even a context of 512 would fit: take a smaller model."
            : `It would fit with ${showRoom(room)}.`;
        return new BerylError(refused.status, refused.message, hint, refused.at);
    }

    /* What nobody has read yet is kept too, so that the next start needs no network. */
    async #fill(source: FillableSource, sha256: string | null, stop: AbortSignal): Promise<void> {
        if (await source.fill(stop) && sha256) await source.found(sha256);
    }

    #adopt(engine: Engine): void {
        this.ready = Promise.resolve(engine);
        this.#enter("ready", engine.info(), null);
        void engine.lost.then((reason) => { if (this.#engine === engine && this.#state === "ready") this.#lose(engine, reason); });
    }

    /* The device is gone: the same model on a new one, or a clear error for all who ask. */
    #lose(engine: Engine, reason: string): void {
        const lost = new BerylError("DEVICE_LOST", `the GPU was lost: ${reason}`);
        this.#enter("lost", null, lost);
        for (const slot of this.#slots.values()) slot.engine = null; // gone with the engine
        this.#encoded.clear();
        this.#encoding = Promise.resolve();
        const now = Date.now();
        this.#losses = [...this.#losses.filter((when) => now - when < LOSS_SPAN), now];
        const again = async (): Promise<Engine> => {
            await within(CLOSE_WAIT, engine.close());
            if (this.#losses.length > MOST_LOSSES)
                throw new BerylError("DEVICE_LOST", `the GPU was lost ${this.#losses.length} times in a minute: ${reason}`,
                    "Close other programs that use the GPU, take a smaller model or context, then load again.");
            if (!this.#source) throw lost;
            return await this.#open(this.#source, this.#ending.signal);
        };
        this.ready = again();
        this.ready.then((next) => {
            if (this.#state === "lost") this.#adopt(next);
        }, (thrown: unknown) => {
            if (this.#state === "lost") this.#enter("failed", null, BerylError.from(thrown));
        });
    }

    async #close(): Promise<null> {
        const closed = new BerylError("CANCELLED", "the model is closed");
        this.#state = "closed";
        this.queue.close(closed);
        this.#ending.abort();
        this.ready = Promise.reject(closed);
        this.ready.catch(() => undefined);
        await within(CLOSE_WAIT, this.queue.idle()); // what runs has been cancelled and ends at its next step
        for (const slot of this.#slots.values()) this.#detach(slot);
        this.#slots.clear();
        const engine = this.#engine;
        this.#engine = null;
        await engine?.close().catch(() => undefined);
        await Promise.all([this.#source?.close?.(), this.#mmproj?.close?.()]);
        return null;
    }

    /* ---- sessions ----------------------------------------------------------------------------- */

    slot(session: number): Slot {
        const slot = this.#slots.get(session);
        if (!slot) throw new BerylError("MISUSE", "the session is closed");
        return slot;
    }

    /* The engine's session of a slot. The idle one unused for longest gives way when there are too many. */
    async #attach(slot: Slot): Promise<EngineSession> {
        const engine = await this.ready;
        if (!slot.engine) {
            const held = [...this.#slots.values()].filter((other) => other.engine);
            const idle = held.filter((other) => !other.busy).sort((a, b) => a.used - b.used);
            const most = this.#load?.sessions ?? 1;
            for (const other of idle.slice(0, Math.max(held.length - most + 1, 0))) this.#detach(other);
            slot.engine = engine.openSession();
        }
        await slot.prepare?.(engine, slot.engine);
        slot.used = ++this.#clock;
        return slot.engine;
    }

    #detach(slot: Slot): void {
        slot.engine?.close();
        slot.engine = null;
    }

    /* Runs `work` on the session's engine; notes what the session then holds. Ends at once when the device is lost. */
    async #with<T>(slot: Slot, work: (session: EngineSession) => Promise<T>): Promise<T> {
        slot.busy = true;
        const session = await this.#attach(slot).catch((thrown: unknown) => {
            slot.busy = false;
            throw thrown;
        });
        const engine = this.#engine;
        const lost = engine?.lost.then((reason) => { throw new BerylError("DEVICE_LOST", `the GPU was lost: ${reason}`); });
        try {
            return await (lost ? Promise.race([work(session), lost]) : work(session));
        } finally {
            slot.busy = false;
            if (slot.engine === session) slot.tokens = session.tokens.slice();
        }
    }

    async #generate(args: HostCalls["generate"]["args"], context: { signal: AbortSignal; emit(event: HostCalls["generate"]["event"]): void }): Promise<GenerateResult> {
        const { emit } = context;
        const signal = AbortSignal.any([context.signal, this.#ending.signal]);
        const slot = this.slot(args.session);
        try {
            return await this.queue.run(args.session, signal, () => this.#with(slot, async (session) => {
                if (args.prompt.media || slot.media) await this.#media(args.prompt, signal, emit, (_, all) => session.media(all));
                slot.media = args.prompt.media !== undefined;
                const run = "chat" in args.prompt ? session.chat(args.prompt.chat, args.options, signal)
                    : session.generate(args.prompt.tokens, args.options, signal);
                for (;;) {
                    const next = await run.next();
                    if (next.done) return next.value;
                    emit(next.value);
                }
            }));
        } catch (thrown) {
            const cancelled = signal.aborted && thrown instanceof BerylError && thrown.status === "CANCELLED";
            if (cancelled) return { ...IDLE };
            throw thrown;
        }
    }

    /* ---- pictures and sound -------------------------------------------------------------------- */

    /* In the engine, and noted by its contents: what is known is taken again. */
    async #openMedia(engine: Engine, media: PlainMedia, budget = 0): Promise<number> {
        const name = await contentName(media, budget), number = this.#encoded.get(name) ?? engine.openMedia(await rawMedia(media), budget);
        this.#encoded.delete(name);
        this.#encoded.set(name, number);
        return number;
    }

    /* Opened and, unless the signal is null, encoded, in order; then used at once, before the oldest go. */
    #media<T>({ media = [], budget }: PlainMediaList, signal: AbortSignal | null, emit: (event: EngineEvent) => void, use: (engine: Engine, all: number[]) => T): Promise<T> {
        const before = this.#encoding;
        const work = (async () => {
            await before;
            const engine = await this.ready, all: number[] = [];
            for (const [done, one] of media.entries()) {
                throwIfAborted(signal ?? undefined);
                if (signal) emit({ kind: "progress", what: "reading pictures and sound", done, total: media.length });
                all.push(await this.#openMedia(engine, one, budget));
                if (signal) for await (const event of engine.encodeMedia(all[done]!, signal)) emit(event);
            }
            const used = use(engine, all);
            for (const [name, number] of this.#encoded) {
                if (this.#encoded.size <= MEDIA_KEPT) break;
                engine.closeMedia(number);
                this.#encoded.delete(name);
            }
            return used;
        })();
        this.#encoding = work.catch(() => undefined);
        return work;
    }

    #embed(list: PlainMediaList, signal: AbortSignal, emit: (event: EngineEvent) => void): Promise<Float32Array> {
        return this.#media(list, signal, emit, (engine, all) => {
            const parts = all.map((number) => engine.mediaSoft(number).soft), whole = new Float32Array(parts.reduce((sum, part) => sum + part.length, 0));
            let at = 0;
            for (const part of parts) whole.set(part, (at += part.length) - part.length);
            return whole;
        });
    }

    /* Places become as long as what stands there. */
    async #renderTokens(args: HostCalls["renderTokens"]["args"]): Promise<Int32Array> {
        const ids = (await this.ready).renderTokens(args.chat).slice();
        return args.media ? await this.#media(args, null, () => undefined, (engine, all) => {
            const forms = ["image", "audio"].map((kind) => engine.tokenize(`<|${kind}><|${kind}|><${kind}|>`, true)), counts = all.map((number) => engine.mediaSoft(number).count);
            return Int32Array.from([...ids].flatMap((id) => {
                const form = forms.find((three) => three[1] === id);
                return form ? [form[0]!, ...Array<number>(counts.shift() ?? 1).fill(id), form[2]!] : [id];
            }));
        }) : ids;
    }

    async #rewind(slot: Slot, count: number): Promise<null> {
        if (!Number.isInteger(count) || count < 0 || count > slot.tokens.length)
            throw new BerylError("MISUSE", `a session of ${slot.tokens.length} tokens cannot be cut to ${count}`);
        slot.engine?.rewind(count);
        slot.tokens = slot.tokens.slice(0, count);
        return null;
    }

    async #save(slot: Slot, signal: AbortSignal): Promise<Blob> {
        const kept = slot.tokens;
        const parts: Blob[] = []; // each piece leaves the heap as soon as it is made
        await this.#with(slot, async (session) => {
            if (session.tokens.length < kept.length) // it gave way or was lost: computed again, without an answer
                await session.logits(kept, kept.length - 1, () => undefined, undefined, signal);
            await session.save((chunk) => { parts.push(new Blob([chunk.slice()])); }, signal);
        });
        return new Blob(parts, { type: "application/x-beryl-session" });
    }

    async #restore(slot: Slot, snapshot: Blob, signal: AbortSignal): Promise<null> {
        await this.#with(slot, (session) => session.restore(new BlobSource(snapshot, "snapshot"), signal));
        return null;
    }

    #drop(session: number): Promise<null> {
        const slot = this.#slots.get(session);
        if (slot) this.#detach(slot);
        this.#slots.delete(session);
        return Promise.resolve(null);
    }
}
