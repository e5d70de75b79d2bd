/*
 * options.ts - what every public call takes: one table a call, of names and of what their values may be.
 *
 * Owns the checks, and their refusals: a BerylError that names the option and what is allowed. A table has exactly the options
 * of its interface, and a choice exactly the values of its type: the compiler sees to both.
 */
import type { AnswerOptions, ChatOptions, ContentPart, ImageBudget, MediaPart, Message, TokenOptions, Tool } from "./chat.js";
import { BerylError } from "./error.js";
import type { GenerateOptions } from "./engine.js";
import type { GpuFeature, WebGpu } from "./gpu.js";
import type { LoadOptions, ModelSource } from "./load.js";
import { hasParts } from "./media.js";
import type { RequestOptions, RetryOptions } from "./source/http.js";

/** What a value may be. */
export interface Rule<T = unknown> {
    /** In words, for messages. */
    readonly allowed: string;
    /** Throws MISUSE, with the value's name, if it is something else. */
    check(value: unknown, name: string): void;
    /** Never there: holds the type. */
    readonly type?: (value: T) => T;
}

/** The rules of all of a call's options; each may be left out. */
export type Rules<O> = { readonly [K in keyof O]-?: Rule<NonNullable<O[K]>> };

function shown(value: unknown): string {
    if (typeof value === "function") return "a function";
    if (typeof value === "object" && value !== null) return Array.isArray(value) ? "a list" : "an object";
    const text = typeof value === "string" ? JSON.stringify(value) : String(value);
    return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}

function rule<T>(allowed: string, ok: (value: unknown) => boolean): Rule<T> {
    return {
        allowed,
        check(value, name) {
            if (!ok(value)) throw new BerylError("MISUSE", `\`${name}\` must be ${allowed}, not ${shown(value)}`, "");
        },
    };
}

const isObject = (value: unknown): value is object => typeof value === "object" && value !== null;
const number = (allowed: string, ok: (value: number) => boolean): Rule<number> =>
    rule(allowed, (value) => typeof value === "number" && Number.isFinite(Math.fround(value)) && ok(Math.fround(value)));
const whole = (least: number, most = Number.MAX_SAFE_INTEGER): Rule<number> =>
    rule(`a whole number from ${least} to ${most}`, (value) => Number.isInteger(value) && (value as number) >= least && (value as number) <= most);
const one = <T extends string>(...names: T[]): Rule<T> =>
    rule(names.map((name) => JSON.stringify(name)).join(" or "), (value) => (names as unknown[]).includes(value));
const kind = <T>(type: string, allowed: string): Rule<T> => rule(allowed, (value) => typeof value === type);
const truth: Rule<boolean> = kind("boolean", "true or false");
const text: Rule<string> = kind("string", "text");
const callback = <T>(): Rule<T> => kind("function", "a function");
const signal: Rule<AbortSignal> = rule("an AbortSignal", (value) => isObject(value) && "aborted" in value && "addEventListener" in value);

function list<T extends readonly unknown[]>(item: Rule<T[number]>): Rule<T> {
    const allowed = `a list, each of it ${item.allowed}`;
    return {
        allowed,
        check(value, name) {
            if (!Array.isArray(value)) rule(allowed, () => false).check(value, name);
            (value as unknown[]).forEach((one, i) => item.check(one, `${name}[${i}]`));
        },
    };
}

function fields<O>(rules: Rules<O>): Rule<O> {
    return {
        allowed: `an object with ${Object.keys(rules).join(", ")}`,
        check(value, name) {
            if (!isObject(value) || Array.isArray(value)) rule(this.allowed, () => false).check(value, name);
            check(value as O & object, rules, `\`${name}\``, `${name}.`);
        },
    };
}

const budgets: readonly unknown[] = [70, 140, 280, 560, 1120] satisfies ImageBudget[];
const imageBudget: Rule<ImageBudget> = rule(budgets.join(" or "), (value) => budgets.includes(value));
const isAddress = (value: unknown): boolean => value instanceof URL || (typeof value === "string" && value.trim() !== "");

/* What each part of a message has beside its type; the first of them has to be there. */
const PARTS: Record<ContentPart["type"], Record<string, Omit<Rule, "type">>> = {
    text: { text },
    image: {
        image: rule("an address, a Blob, pixels as { rgb, width, height } or ImageData, or what a canvas can draw", (value) =>
            isAddress(value) || (isObject(value) && !Array.isArray(value) && !ArrayBuffer.isView(value))),
    },
    audio: {
        audio: rule("an address, a Blob, an AudioBuffer or a Float32Array", (value) =>
            isAddress(value) || value instanceof Blob || value instanceof Float32Array || (isObject(value) && "getChannelData" in value)),
        sampleRate: whole(1000, 768_000),
    },
    image_url: { image_url: rule("an address or { url }", (value) => isAddress(isObject(value) && "url" in value ? value.url : value)) },
    input_audio: { input_audio: rule("{ data, format }, the data as base64", (value) => isObject(value) && "data" in value && typeof value.data === "string") },
};
const KINDS = Object.keys(PARTS) as ContentPart["type"][];

/* `kinds`: those that may be. */
function checkPart(part: unknown, where: string, kinds: ContentPart["type"][]): void {
    const { type, ...rest } = isObject(part) ? part as { type?: ContentPart["type"] } : {};
    one(...kinds).check(type, `${where}.type`);
    const rules = PARTS[type!], [needed = ""] = Object.keys(rules);
    rules[needed]!.check((rest as Record<string, unknown>)[needed], `${where}.${needed}`);
    check<object>(rest, rules, `\`${where}\``, `${where}.`);
}

/** Refuses what is no picture and no sound. */
export function checkMedia(part: MediaPart, where: string): void {
    checkPart(part, where, KINDS.slice(1));
}

/** The options of an answer. */
const ANSWER: Rules<AnswerOptions> = {
    greedy: truth,
    temperature: number("a number from 0 on", (value) => value >= 0),
    topK: whole(1, 2 ** 32 - 2),
    topP: number("a number above 0 and up to 1", (value) => value > 0 && value <= 1),
    minP: number("a number from 0 to 1", (value) => value >= 0 && value <= 1),
    repetitionPenalty: number("a number above 0", (value) => value > 0),
    presencePenalty: number("a finite number", () => true),
    frequencyPenalty: number("a finite number", () => true),
    seed: whole(0),
    maxTokens: whole(1, 2 ** 32 - 1),
    stop: list(rule<string>("text that is not empty", (value) => typeof value === "string" && value !== "")),
    ignoreEos: truth,
    signal,
    onProgress: callback(),
    imageBudget,
};

const TALK: Rules<Pick<ChatOptions, "tools" | "think">> = { tools: list(rule<Tool>("an object", isObject)), think: truth };

const address: Rule<string | URL> = rule("an address", isAddress);
const model: Rule<ModelSource> = rule("an address, a File, a Blob, a file handle or \"builtin\"", (value) =>
    isAddress(value) || value instanceof Blob || (isObject(value) && "kind" in value && value.kind === "file"));
const webgpu: Rule<WebGpu> = rule("a WebGPU implementation, as `create([])` of the npm package webgpu", (value) =>
    isObject(value) && "requestAdapter" in value && typeof value.requestAdapter === "function");

/** The options of every call. */
export const OPTIONS = {
    load: {
        context: whole(1, 2 ** 32 - 1),
        sessions: whole(1, 2 ** 32 - 1),
        precision: one("fast", "exact"),
        kv: one("f32", "f16", "q8"),
        device: one("high-performance", "low-power"),
        memory: whole(1),
        piece: whole(1, 2 ** 32 - 1),
        vocabularyOnly: truth,
        without: list(one<GpuFeature>("f16", "subgroups", "dot", "timestamps")),
        sha256: rule("64 hex digits", (value) => typeof value === "string" && /^[0-9a-f]{64}$/i.test(value)),
        cache: one("auto", "required", "off"),
        request: fields<RequestOptions>({
            headers: rule("an object of texts", (value) => isObject(value) && Object.values(value).every((one) => typeof one === "string")),
            credentials: one("omit", "same-origin", "include"),
        }),
        retry: fields<RetryOptions>({
            attempts: whole(1),
            pause: number("a number of milliseconds from 0 on", (value) => value >= 0),
            stall: number("a number of milliseconds above 0", (value) => value > 0),
        }),
        signal,
        onProgress: callback(),
        onLog: callback(),
        worker: truth,
        full: truth,
        lora: rule("a list", Array.isArray),
        gpu: webgpu,
        module: rule("an address, a WebAssembly.Module, its bytes, or a promise of one of them", (value) =>
            isAddress(value) || value instanceof Promise || value instanceof WebAssembly.Module || value instanceof ArrayBuffer || ArrayBuffer.isView(value)),
        builtin: address,
        mmproj: model,
    } satisfies Rules<LoadOptions>,
    chat: { ...ANSWER, ...TALK } satisfies Rules<ChatOptions>,
    generate: { ...ANSWER, media: list<readonly MediaPart[]>({ allowed: "a picture or sound", check: (value, name) => checkMedia(value as MediaPart, name) }) } satisfies Rules<TokenOptions>,
    render: { ...TALK, imageBudget },
    prepareMedia: { signal },
    embedMedia: { signal, onProgress: ANSWER.onProgress, imageBudget },
    tokenize: { special: truth } satisfies Rules<{ special?: boolean }>,
    describe: { tensors: truth } satisfies Rules<{ tensors?: boolean }>,
    save: { signal } satisfies Rules<{ signal?: AbortSignal }>,
} as const;

/** Arguments that are no options. */
export const ARGUMENTS = {
    source: model,
    text,
    count: whole(0),
    blob: rule<Blob>("a Blob", (value) => value instanceof Blob),
    callback: callback<(...args: never[]) => unknown>(),
    webgpu,
    role: one<Message["role"]>("system", "developer", "user", "assistant", "model", "tool"),
};

const token = whole(0, 2 ** 31 - 1);

/** Refuses what a call does not take. `where`: what has them, for messages. */
export function check<O>(options: O, rules: Rules<O>, where: string, prefix = ""): void {
    if (!isObject(options)) throw new BerylError("MISUSE", `the options of ${where} must be an object, not ${shown(options)}`, "");
    for (const [name, value] of Object.entries(options)) {
        if (!Object.hasOwn(rules, name)) {
            throw new BerylError("MISUSE", `${where} has no \`${name}\``, `There ${Object.keys(rules).length === 1 ? "is" : "are"} ${Object.keys(rules).join(", ")}.`);
        }
        if (value !== undefined) rules[name as keyof O].check(value, prefix + name);
    }
}

/** Tokens as they are posted; refuses what are none. */
export function checkTokens(tokens: ArrayLike<number>): Int32Array {
    if (!isObject(tokens) || !Number.isInteger(tokens.length)) throw new BerylError("MISUSE", `\`tokens\` must be a list of ids, not ${shown(tokens)}`, "");
    for (let i = 0; i < tokens.length; i++) token.check(tokens[i], `tokens[${i}]`);
    return Int32Array.from(tokens);
}

/** Refuses what is no conversation, so far as its frame and its parts go: what else the turns hold, the engine looks at. */
export function checkMessages(messages: readonly Message[]): void {
    if (!Array.isArray(messages) || messages.length === 0)
        throw new BerylError("MISUSE", `\`messages\` must be a list of turns that is not empty, not ${shown(messages)}`, "");
    messages.forEach((message: unknown, i) => {
        if (!isObject(message)) throw new BerylError("MISUSE", `\`messages[${i}]\` must be { role, content }, not ${shown(message)}`, "");
        ARGUMENTS.role.check((message as Partial<Message>).role, `messages[${i}].role`);
        const turn = message as Message;
        if (hasParts(turn)) turn.content.forEach((part, k) => checkPart(part, `messages[${i}].content[${k}]`, KINDS));
    });
}

/** What of an answer's options goes to the engine. A temperature of 0 is the likeliest token each time, as everywhere. */
export function settings(options: AnswerOptions): GenerateOptions {
    const { signal: _signal, onProgress: _onProgress, tools: _tools, think: _think, imageBudget: _budget, media: _media, temperature, ...rest }:
        ChatOptions & TokenOptions = options;
    if (temperature === undefined) return rest;
    return Math.fround(temperature) === 0 ? { ...rest, greedy: true } : { ...rest, temperature };
}
