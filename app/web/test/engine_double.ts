/*
 * engine_double.ts - an engine without a model: it repeats the last message word by word. It
 * counts what is asked of it, can lose its device, and refuses what the real one refuses.
 */
import type { Engine, EngineEvent, EngineOptions, EngineSession, GenerateOptions, GenerateResult } from "../src/engine.js";
import { BerylError } from "../src/error.js";

/** What all engines of one test share. */
export interface World {
    /** One line for each thing that happened. */
    log: string[];
    /** Milliseconds a word. */
    pace: number;
    /** Loads fail with it. */
    refuse: BerylError | null;
    /** Whether a file that begins so cannot be parsed. */
    damaged: (bytes: Uint8Array) => boolean;
    /** The largest context that fits. */
    room: number;
    /** The options of the last answer. */
    asked: GenerateOptions;
    /** Takes the device of the newest engine away. */
    lose: (reason: string) => void;
    /** Media that was encoded, by its form and size. */
    encoded: string[];
    /** Sessions open at once, and the most that there were. */
    open: number;
    most: number;
    running: number;
    mostRunning: number;
}

export function makeWorld(): World {
    return { log: [], pace: 1, refuse: null, damaged: () => false, room: Infinity, asked: {}, encoded: [], lose: () => undefined, open: 0, most: 0, running: 0, mostRunning: 0 };
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const tokensOf = (text: string): Int32Array => Int32Array.from(text, (letter) => letter.charCodeAt(0));

class DoubleSession {
    tokens: Int32Array = new Int32Array(0);
    readonly #world: World;
    readonly #lost: () => boolean;
    constructor(world: World, lost: () => boolean) {
        this.#world = world;
        this.#lost = lost;
        world.most = Math.max(world.most, ++world.open);
    }
    media(media: readonly number[]): void { this.#world.log.push(`media ${media.join(" ")}`); }
    async *chat(chat: { messages: { content: string }[]; think?: boolean }, options?: GenerateOptions, signal?: AbortSignal): AsyncGenerator<EngineEvent, GenerateResult> {
        const last: unknown = chat.messages.at(-1)?.content ?? "", text = typeof last === "string" ? last : JSON.stringify(last);
        if (text === "too long") throw new BerylError("CONTEXT_FULL", "the prompt has 9,000 tokens");
        if (chat.think) yield { kind: "token", token: 1, part: "thought", text: "hm" };
        if (text === "call") {
            yield { kind: "token", token: 1, part: "call", text: "call:f{}" };
            yield { kind: "call", name: "f", arguments: { x: 1 } };
        }
        return yield* this.#say(text, tokensOf(JSON.stringify(chat)), options, signal);
    }
    generate(tokens: ArrayLike<number>, options?: GenerateOptions, signal?: AbortSignal): AsyncGenerator<EngineEvent, GenerateResult> {
        return this.#say(String.fromCharCode(...Array.from(tokens)), Int32Array.from(tokens), options, signal);
    }
    async *#say(text: string, prompt: Int32Array, options: GenerateOptions = {}, signal?: AbortSignal): AsyncGenerator<EngineEvent, GenerateResult> {
        this.#world.log.push(`say ${text}`);
        this.#world.asked = options;
        this.#world.mostRunning = Math.max(this.#world.mostRunning, ++this.#world.running);
        const result = { end: "stop" as GenerateResult["end"], nPrompt: prompt.length, nReused: 0, nGenerated: 0, prefillSeconds: 0, firstTokenSeconds: 0, decodeSeconds: 0 };
        try {
            yield { kind: "progress", what: "reading the prompt", done: 1, total: 1 };
            for (const word of text.split(/(?<= )/)) {
                await pause(this.#world.pace);
                if (this.#lost()) await new Promise(() => undefined); // a lost device answers nothing
                if (signal?.aborted) return { ...result, end: "cancelled" };
                if (result.nGenerated === options.maxTokens) return { ...result, end: "length" };
                result.nGenerated++;
                yield { kind: "token", token: 7, part: "text", text: word };
            }
            this.tokens = prompt;
            return result;
        } finally {
            this.#world.running--;
        }
    }
    logits(tokens: ArrayLike<number>, first: number): Promise<void> {
        this.#world.log.push(`logits ${tokens.length} from ${first}`);
        this.tokens = Int32Array.from(tokens);
        return Promise.resolve();
    }
    rewind(n: number): void { this.tokens = this.tokens.slice(0, n); }
    async save(write: (chunk: Uint8Array) => void | Promise<void>): Promise<void> {
        await write(new Uint8Array(this.tokens.buffer));
    }
    async restore(source: { size: number; read(o: number, n: number): Promise<Uint8Array> }): Promise<void> {
        if (source.size % 4) throw new BerylError("BAD_FILE", "no snapshot");
        this.tokens = new Int32Array((await source.read(0, source.size)).slice().buffer);
    }
    close(): void { this.#world.open--; }
}

/** What stands in for Engine.load. */
export function doubleLoader(world: World): typeof Engine.load {
    return async (options: EngineOptions, onEvent, signal) => {
        world.log.push("load");
        if (world.refuse) throw world.refuse;
        if ((options.context ?? 8192) > world.room) throw new BerylError("NO_DEVICE_MEMORY", "needs 9 MB and 7 may be used");
        const { size, read } = options.source;
        if (world.damaged(await read(0, 1000, signal))) throw new BerylError("BAD_FILE", "no room for tensors");
        for (let at = 0; at < size; at += 1_000_000) {
            await read(at, Math.min(1_000_000, size - at), signal);
            if (signal?.aborted) throw new BerylError("CANCELLED", "loading was cancelled");
            onEvent?.({ kind: "progress", what: "loading weights", done: at, total: size });
        }
        let isLost = false, media = 0;
        const opened = new Map<number, string>();
        const lost = new Promise<string>((resolve) => { world.lose = (reason) => { isLost = true; resolve(reason); }; });
        const engine = {
            lost,
            info: () => ({ modelName: options.source.name, context: options.context ?? 8192 }),
            stats: () => ({ heapBytes: 1 }),
            describe: (tensors: boolean) => ({ metadata: {}, ...(tensors && { tensors: [] }) }),
            tokenize: (text: string) => tokensOf(text),
            detokenize: (ids: ArrayLike<number>) => String.fromCharCode(...Array.from(ids)),
            render: (chat: object) => JSON.stringify(chat),
            renderTokens: (chat: object) => tokensOf(JSON.stringify(chat)),
            async *selftest(): AsyncGenerator<EngineEvent, void> {
                await pause(0);
                yield { kind: "test", name: "matvec", ok: true, error: 0 };
            },
            openMedia: ({ form, a, b }: { form: number; a: number; b: number }, budget: number) => {
                opened.set(++media, `${form}: ${a} ${b}, ${budget}`);
                return media;
            },
            async *encodeMedia(one: number): AsyncGenerator<EngineEvent, void> {
                const what = opened.get(one);
                if (what === undefined) return;
                opened.delete(one);
                await pause(0);
                world.encoded.push(what);
                yield { kind: "progress", what: "loading the vision tower", done: 1, total: 1 };
            },
            prepareMedia: async (kind: number) => (world.log.push(`prepare ${kind}`), null),
            mediaSoft: () => ({ count: 2, soft: new Float32Array([1, 2, 3, 4]) }),
            closeMedia: () => undefined,
            openSession: () => new DoubleSession(world, () => isLost) as unknown as EngineSession,
            close: () => { world.log.push("close"); return Promise.resolve(); },
        };
        return engine as unknown as Engine;
    };
}
