/*
 * model.ts - a loaded model and its sessions, as callers hold them.
 *
 * Owns nothing but the caller's side: every method is one call to the host, which queues them.
 */
import type { HostCalls, HostEvent, ModelState, Prompt } from "./calls.js";
import { Answer, type AnswerOptions, type ChatOptions, type MediaPart, type Message, type TokenOptions } from "./chat.js";
import type { EngineEvent, EngineInfo, EngineStats } from "./engine.js";
import { BerylError } from "./error.js";
import { Gathered, hasParts } from "./media.js";
import { ARGUMENTS, check, checkMedia, checkMessages, checkTokens, OPTIONS, settings } from "./options.js";
import type { Caller } from "./rpc.js";
import type { Progress } from "./source/index.js";

type Rendering = Pick<ChatOptions, "tools" | "think" | "imageBudget">;

/** What a model tells when its state changes; `error` says why where it is not "ready". */
export interface StateChange { state: ModelState; error: BerylError | null }

/** One timeline of tokens: what it has computed of a prompt is not computed again. */
export class Session {
    readonly #caller: Caller<HostCalls>;
    readonly #id: number;
    readonly #answers = new Set<Answer>();
    readonly #gathered = new Gathered();

    /** @internal */
    constructor(caller: Caller<HostCalls>, id: number) {
        this.#caller = caller;
        this.#id = id;
        caller.call("open", { session: id }).catch(() => undefined); // the first use meets what is wrong
    }

    /** The model's answer to a conversation, always given whole. Starts at once, or when its turn comes. */
    chat(messages: readonly Message[], options: ChatOptions = {}): Answer {
        check(options, OPTIONS.chat, "chat");
        checkMessages(messages);
        const { tools, think, imageBudget: budget } = options, more = { ...(tools && { tools }), ...(think !== undefined && { think }) };
        if (!messages.some(hasParts)) return this.#answer({ chat: { messages, ...more } }, options);
        return this.#answer(async (signal, tell) => {
            const { messages: plain, media } = await this.#gathered.messages(messages, signal, tell);
            return { chat: { messages: plain, ...more }, media, budget };
        }, options);
    }

    /** Goes on from tokens, without a chat's form. */
    generate(tokens: ArrayLike<number>, options: TokenOptions = {}): Answer {
        check(options, OPTIONS.generate, "generate");
        const ids = checkTokens(tokens), { media: parts, imageBudget: budget } = options;
        if (!parts?.length) return this.#answer({ tokens: ids }, options);
        return this.#answer(async (signal, tell) => {
            const media = await Promise.all(parts.map((part) => this.#gathered.part(part, signal, tell)));
            return { tokens: ids, media: media.flat(), budget };
        }, options);
    }

    /** The tokens that the session holds. */
    async tokens(): Promise<Int32Array> {
        return await this.#caller.call("tokens", { session: this.#id });
    }

    /** Keeps the first `count` tokens and forgets the others. */
    async rewind(count: number): Promise<void> {
        ARGUMENTS.count.check(count, "count");
        await this.#caller.call("rewind", { session: this.#id, count });
    }

    /** A snapshot that goes on later, also in another tab, with the same model and options. */
    async save(options: { signal?: AbortSignal } = {}): Promise<Blob> {
        check(options, OPTIONS.save, "save");
        return await this.#caller.call("save", { session: this.#id }, options);
    }

    /** Goes on from a snapshot. Refuses one of another model, KV type or precision. */
    async restore(snapshot: Blob, options: { signal?: AbortSignal } = {}): Promise<void> {
        check(options, OPTIONS.save, "restore");
        ARGUMENTS.blob.check(snapshot, "snapshot");
        await this.#caller.call("restore", { session: this.#id, snapshot }, options);
    }

    /** Ends its answers and gives its memory back. */
    async close(): Promise<void> {
        for (const answer of this.#answers) answer.cancel();
        await this.#caller.call("drop", { session: this.#id });
    }

    #answer(prompt: Prompt | ((signal: AbortSignal, tell: (progress: Progress) => void) => Promise<Prompt>), options: AnswerOptions): Answer {
        const args = { session: this.#id, options: settings(options) };
        const answer = new Answer(async (onEvent, signal) => {
            const tell = (progress: Progress): void => onEvent({ kind: "progress", ...progress });
            const given = typeof prompt === "function" ? await prompt(signal, tell) : prompt;
            return await this.#caller.call("generate", { ...args, prompt: given }, { onEvent, signal });
        }, options);
        this.#answers.add(answer);
        answer.result.catch(() => undefined).finally(() => this.#answers.delete(answer));
        return answer;
    }
}

/** A model on its device. */
export class Model {
    /** Called when the GPU was lost, when the model is back, and when it is not coming back. */
    onstatechange: ((change: StateChange) => void) | null = null;
    readonly #caller: Caller<HostCalls>;
    readonly #end: () => Promise<void>;
    #info: EngineInfo;
    #state: ModelState = "ready";
    readonly #gathered = new Gathered();
    #default: Session | null = null;
    #sessions = 0;

    /** @internal */
    constructor(caller: Caller<HostCalls>, info: EngineInfo, end: () => Promise<void>) {
        this.#caller = caller;
        this.#info = info;
        this.#end = end;
    }

    /** @internal What the host tells. */
    heard(event: HostEvent): void {
        if (event.kind !== "state" || this.#state === "closed") return;
        if (event.info) this.#info = event.info;
        this.#state = event.state;
        this.onstatechange?.({ state: event.state, error: event.error && BerylError.fromPlain(event.error) });
    }

    /** The model's name, sizes and device. */
    get info(): EngineInfo {
        return this.#info;
    }

    /** "ready", "lost" while it is loaded again after its GPU went away, "failed", or "closed". */
    get state(): ModelState {
        return this.#state;
    }

    /** The answer to a conversation, in the model's own session. */
    chat(messages: readonly Message[], options: ChatOptions = {}): Answer {
        return this.#own().chat(messages, options);
    }

    /** Goes on from tokens, in the model's own session. */
    generate(tokens: ArrayLike<number>, options: TokenOptions = {}): Answer {
        return this.#own().generate(tokens, options);
    }

    /** A new session. There may be more than `sessions`: the one unused for longest then gives way, and reads its prompt again at its next turn. */
    session(): Session {
        this.#open();
        return new Session(this.#caller, ++this.#sessions);
    }

    /** The ids of a text, without a start token. `special`: control tokens written in the text count as such. */
    async tokenize(text: string, options: { special?: boolean } = {}): Promise<Int32Array> {
        check(options, OPTIONS.tokenize, "tokenize");
        ARGUMENTS.text.check(text, "text");
        return await this.#open().call("tokenize", { text, special: options.special ?? false });
    }

    /** The text of ids. */
    async detokenize(tokens: ArrayLike<number>, options: { special?: boolean } = {}): Promise<string> {
        check(options, OPTIONS.tokenize, "detokenize");
        return await this.#open().call("detokenize", { tokens: checkTokens(tokens), special: options.special ?? false });
    }

    /** The prompt of a conversation as text, as the model reads it. */
    async render(messages: readonly Message[], options: Rendering = {}): Promise<string> {
        check(options, OPTIONS.render, "render");
        return await this.#open().call("render", await this.#chat(messages, options));
    }

    /** The same as tokens: its length is what a conversation takes of the context. */
    async renderTokens(messages: readonly Message[], options: Rendering = {}): Promise<Int32Array> {
        check(options, OPTIONS.render, "renderTokens");
        return await this.#open().call("renderTokens", await this.#chat(messages, options));
    }

    /** What the text model is given for a picture or sound: soft tokens, [n, info.nEmbd]. */
    async embedMedia(part: MediaPart, options: Pick<AnswerOptions, "signal" | "onProgress" | "imageBudget"> = {}): Promise<Float32Array> {
        check(options, OPTIONS.embedMedia, "embedMedia");
        checkMedia(part, "part");
        const { signal, onProgress, imageBudget: budget } = options, caller = this.#open();
        const onEvent = (event: EngineEvent): void => {
            if (event.kind === "progress") onProgress?.({ what: event.what, done: event.done, total: event.total });
        };
        return await caller.call("embed", { media: await this.#gathered.part(part, signal, onProgress), budget }, { onEvent, signal });
    }

    /** Loads and compiles what pictures ("image") or sound ("audio") need, so that the first of them is read sooner. */
    async prepareMedia(kind: "image" | "audio", options: Pick<AnswerOptions, "signal"> = {}): Promise<void> {
        check(options, OPTIONS.prepareMedia, "prepareMedia");
        await this.#open().call("prepare", { kind: kind === "audio" ? 2 : 1 }, options);
    }

    /** Memory, dispatches and times so far. */
    async stats(): Promise<EngineStats> {
        return await this.#open().call("stats", null);
    }

    /** What the file has: its metadata and, if asked for, its tensors. */
    async describe(options: { tensors?: boolean } = {}): Promise<unknown> {
        check(options, OPTIONS.describe, "describe");
        return await this.#open().call("describe", { tensors: options.tensors ?? false });
    }

    /** Runs every kernel against its reference on this adapter; each result is told. Rejects if one is wrong. */
    async selftest(each: (test: { name: string; ok: boolean; error: number }) => void = () => undefined,
        options: { signal?: AbortSignal } = {}): Promise<void> {
        ARGUMENTS.callback.check(each, "each");
        check(options, OPTIONS.save, "selftest");
        const onEvent = (event: EngineEvent): void => {
            if (event.kind === "test") each({ name: event.name, ok: event.ok, error: event.error });
        };
        await this.#open().call("selftest", null, { onEvent, ...options });
    }

    /** Ends everything and gives all memory back. Answers under way end as "cancelled". */
    async close(): Promise<void> {
        if (this.#state === "closed") return;
        this.#state = "closed";
        await this.#end();
        this.onstatechange?.({ state: "closed", error: null });
    }

    #open(): Caller<HostCalls> {
        if (this.#state === "closed") throw new BerylError("MISUSE", "the model is closed");
        return this.#caller;
    }

    async #chat(messages: readonly Message[], { imageBudget: budget, ...options }: Rendering): Promise<Prompt & { chat: object }> {
        checkMessages(messages);
        const { messages: plain, media } = await this.#gathered.messages(messages);
        return { chat: { messages: plain, ...options }, ...(media.length && { media, budget }) };
    }

    #own(): Session {
        this.#open();
        return this.#default ??= new Session(this.#caller, ++this.#sessions);
    }
}
