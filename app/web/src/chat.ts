/*
 * chat.ts - what goes into a conversation and what comes out, in the shape that callers see.
 */
import type { EngineEvent, GenerateOptions, GenerateResult } from "./engine.js";
import type { Progress } from "./source/index.js";

/** Pixels, row by row: red, green, blue, one byte each. */
export interface RgbPicture { rgb: Uint8Array | Uint8ClampedArray; width: number; height: number }

/** A picture. Strings are addresses, `data:` among them. */
export type PictureSource = string | URL | Blob | ImageData | CanvasImageSource | RgbPicture;

/** Sound. Strings are addresses, `data:` among them; a Float32Array has one channel in -1 to 1. */
export type SoundSource = string | URL | Blob | AudioBuffer | Float32Array;

/** A picture or sound in a message; the second two as OpenAI writes them. */
export type MediaPart =
    | { type: "image"; image: PictureSource }
    | { type: "audio"; audio: SoundSource; /** Of a Float32Array; default 16,000. */ sampleRate?: number }
    | { type: "image_url"; image_url: string | { url: string; detail?: string } }
    | { type: "input_audio"; input_audio: { data: string; format?: string } };

/** A part of a message. */
export type ContentPart = { type: "text"; text: string } | MediaPart;

interface Turn {
    /** The calls that the model made in this turn. */
    tool_calls?: { id?: string; type?: "function"; function: { name: string; arguments: unknown } }[];
    /** In a "tool" message: the call that it answers, and the tool's name. */
    tool_call_id?: string;
    name?: string;
}

/** One turn of a conversation. The content of a "tool" message may be any JSON. */
export type Message = Turn & (
    | { role: "system" | "developer" | "user" | "assistant" | "model"; content?: string | readonly ContentPart[] | null }
    | { role: "tool"; content?: unknown });

/** A function that the model may call. */
export interface Tool {
    type?: "function";
    function: { name: string; description?: string; parameters?: unknown; response?: unknown };
}

/** One piece of an answer, as it comes. */
export type Part =
    | { type: "text"; text: string }
    | { type: "thought"; text: string }
    | { type: "call"; name: string; arguments: unknown };

/** How tokens are chosen and when an answer ends; what is left out is as the model's file says. */
export interface AnswerOptions extends GenerateOptions {
    /** Ends the answer at once, also one that waits for its turn. Its result then says "cancelled". */
    signal?: AbortSignal | undefined;
    /** How far the reading of pictures, of sound, of a long prompt is. */
    onProgress?: ((progress: Progress) => void) | undefined;
    /** Most soft tokens of a picture; default as the model's file says, else 280. */
    imageBudget?: ImageBudget | undefined;
}

/** How finely a picture is looked at. */
export type ImageBudget = 70 | 140 | 280 | 560 | 1120;

/** The same for tokens. */
export interface TokenOptions extends AnswerOptions {
    /** What stands in the places of soft tokens, as model.renderTokens leaves them, in order. */
    media?: readonly MediaPart[] | undefined;
}

/** The same for a conversation. */
export interface ChatOptions extends AnswerOptions {
    tools?: Tool[] | undefined;
    /** Lets the model think before it answers; its thoughts come as parts of their own. */
    think?: boolean | undefined;
}

/** A whole answer. */
export interface AnswerResult extends GenerateResult {
    text: string;
    thought: string;
    calls: { name: string; arguments: unknown }[];
    /** The answer as the turn to put behind the messages before the next question. */
    message: Message;
}

/** The events of an engine as parts; null for those that no reader of an answer wants. */
export function partOf(event: EngineEvent): Part | null {
    if (event.kind === "call") return { type: "call", name: event.name, arguments: event.arguments };
    if (event.kind !== "token" || event.text === "") return null;
    if (event.part !== "text" && event.part !== "thought") return null; // a call's text comes again as a whole call
    return { type: event.part, text: event.text };
}

/** All parts together. */
export function sumUp(parts: readonly Part[], result: GenerateResult): AnswerResult {
    const text = parts.map((part) => part.type === "text" ? part.text : "").join("");
    const thought = parts.map((part) => part.type === "thought" ? part.text : "").join("");
    const calls = parts.flatMap((part) => part.type === "call" ? [{ name: part.name, arguments: part.arguments }] : []);
    const message: Message = { role: "assistant", content: text };
    if (calls.length) message.tool_calls = calls.map((call, i) => ({ id: `call_${i}`, type: "function", function: call }));
    return { ...result, text, thought, calls, message };
}

/** An answer on its way: read its parts with `for await`, or wait for the whole. */
export class Answer implements AsyncIterable<Part> {
    /** The whole answer, when it has ended. Rejects with a BerylError if it failed. */
    readonly result: Promise<AnswerResult>;
    readonly #parts: Part[] = [];
    readonly #cancel: AbortController;
    #ended = false;
    #waiting: (() => void)[] = [];

    /** @internal */
    constructor(start: (emit: (event: EngineEvent) => void, signal: AbortSignal) => Promise<GenerateResult>, options: AnswerOptions) {
        this.#cancel = new AbortController();
        const signal = options.signal ? AbortSignal.any([options.signal, this.#cancel.signal]) : this.#cancel.signal;
        this.result = start((event) => {
            if (event.kind === "progress") {
                const { what, done, total } = event;
                options.onProgress?.({ what, done, total });
            }
            const part = signal.aborted ? null : partOf(event);
            if (part) this.#parts.push(part);
            this.#wake();
        }, signal).then((result) => sumUp(this.#parts, result)).finally(() => {
            this.#ended = true;
            this.#wake();
        });
        this.result.catch(() => undefined); // whoever reads the parts meets the error there
    }

    /** Ends the answer; what has come stays. */
    cancel(): void {
        this.#cancel.abort();
    }

    /** The whole text, when it has ended. */
    async text(): Promise<string> {
        return (await this.result).text;
    }

    /** All parts from the first on. Leaving the loop early ends the answer. */
    async *[Symbol.asyncIterator](): AsyncGenerator<Part, AnswerResult> {
        let whole = false;
        try {
            for (let i = 0; ; i++) {
                while (i >= this.#parts.length && !this.#ended)
                    await new Promise<void>((resolve) => { this.#waiting.push(resolve); });
                const part = this.#parts[i];
                if (!part) break;
                yield part;
            }
            whole = true;
            return await this.result;
        } finally {
            if (!whole) this.cancel();
        }
    }

    #wake(): void {
        for (const wake of this.#waiting.splice(0)) wake();
    }
}
