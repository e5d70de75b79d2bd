/**
 * runtime.ts - the page's one model: loading, asking, losing, and how each of these looks to a person. The only file that
 * knows the package.
 */
import { Beryl, BerylError, type CachedModel, type Message as ChatMessage, type Model } from "beryl-gpu";
import type { Figures, Message, Settings } from "./store";

export { showBytes } from "beryl-gpu";

/** What to load. */
export type Choice = { kind: "builtin" } | { kind: "url"; url: string; sha256?: string } | { kind: "file"; file: File };

/** A model that this browser keeps. */
export type Kept = CachedModel;

export interface Problem {
    message: string;
    hint: string;
}

export type RuntimeState =
    | { kind: "none" }
    | { kind: "loading"; name: string; what: string; done: number; total: number }
    | { kind: "ready"; name: string; context: number; adapter: string }
    | ({ kind: "failed"; name: string; again: Choice | null } & Problem);

export interface Said {
    type: "text" | "thought";
    text: string;
}

export interface Answered {
    figures: Figures;
    ended: Message["ended"] | null;
}

function choiceName(choice: Choice): string {
    if (choice.kind === "builtin") return "Beryl’s small model";
    if (choice.kind === "file") return choice.file.name;
    return decodeURIComponent(new URL(choice.url, location.href).pathname.split("/").pop() ?? choice.url) || choice.url;
}

const ENDS = { stop: null, length: "length", context: "context", cancelled: "stopped" } as const;

/** Tells "change" whenever its state is another. */
export class Runtime extends EventTarget {
    #state: RuntimeState = { kind: "none" };
    #model: Model | null = null;
    #loading: AbortController | null = null;
    #ready: Promise<void> = Promise.resolve();
    #choice: Choice | null = null;

    get state(): RuntimeState {
        return this.#state;
    }

    /** What was asked for last. */
    get choice(): Choice | null {
        return this.#choice;
    }

    /** Takes the place of the model that is there. Ends ready or failed, and never throws. */
    async load(choice: Choice, settings: Settings): Promise<void> {
        this.#loading?.abort();
        const controller = new AbortController();
        this.#loading = controller;
        this.#choice = choice;
        const before = this.#ready;
        this.#enter({ kind: "loading", name: choiceName(choice), what: "getting ready", done: 0, total: 0 });
        this.#ready = before.then(() => this.#load(choice, settings, controller));
        await this.#ready;
    }

    async #load(choice: Choice, settings: Settings, controller: AbortController): Promise<void> {
        const name = choiceName(choice);
        const { signal } = controller;
        if (signal.aborted) return;
        await this.#model?.close();
        this.#model = null;
        try {
            const source = choice.kind === "builtin" ? "builtin" : choice.kind === "url" ? choice.url : choice.file;
            const model = await Beryl.load(source, {
                signal,
                ...(settings.context > 0 && { context: settings.context }),
                ...(choice.kind === "url" && choice.sha256 !== undefined && { sha256: choice.sha256 }),
                onProgress: ({ what, done, total }) => {
                    if (this.#loading === controller) this.#enter({ kind: "loading", name, what, done, total });
                },
            });
            this.#model = model;
            model.onstatechange = ({ state, error }) => {
                if (this.#model !== model) return;
                if (state === "ready") this.#isReady(model, name);
                if (state === "lost") this.#enter({ kind: "loading", name, what: "the GPU was lost: loading again", done: 0, total: 0 });
                if (state === "failed") this.#failed(error, choice);
            };
            this.#isReady(model, name);
        } catch (thrown) {
            if (this.#loading !== controller) return;
            if (signal.aborted) this.#enter({ kind: "failed", name: "No model", message: "Loading was cancelled.", hint: "What has arrived is kept.", again: choice });
            else this.#failed(thrown, choice);
        }
    }

    /** Ends a load that is under way. */
    cancel(): void {
        this.#loading?.abort();
    }

    /** The answer to a conversation, part by part. Waits for a load that is under way. Throws what Runtime.explain explains. */
    async chat(messages: readonly Message[], settings: Settings, signal: AbortSignal, each: (said: Said) => void): Promise<Answered> {
        await Promise.race([this.#ready, new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }))]);
        const model = this.#model;
        if (signal.aborted) throw new BerylError("CANCELLED", "cancelled");
        if (!model) {
            const state = this.#state;
            throw state.kind === "failed" ? new BerylError("NO_DEVICE", state.message, state.hint) : new BerylError("MISUSE", "No model is loaded.", "Choose one above.");
        }
        const asked: ChatMessage[] = messages.map(({ role, content }) => ({ role, content }));
        if (settings.system) asked.unshift({ role: "system", content: settings.system });
        const answer = model.chat(asked, {
            signal,
            think: settings.think,
            ...(settings.temperature > 0 && { temperature: settings.temperature }),
            ...(settings.topK > 0 && { topK: settings.topK }),
            ...(settings.topP > 0 && { topP: settings.topP }),
            ...(settings.minP > 0 && { minP: settings.minP }),
            ...(settings.maxTokens > 0 && { maxTokens: settings.maxTokens }),
        });
        for await (const part of answer) if (part.type !== "call") each(part);
        const { end, nPrompt, nReused, nGenerated, firstTokenSeconds, decodeSeconds } = await answer.result;
        const tokensPerSecond = decodeSeconds > 0 ? Math.max(0, nGenerated - 1) / decodeSeconds : 0;
        return { figures: { tokensPerSecond, firstTokenSeconds, nPrompt, nReused, nGenerated }, ended: ENDS[end] };
    }

    /** Whatever was thrown, for a person. */
    static explain(thrown: unknown): Problem {
        const { message, hint } = BerylError.from(thrown);
        const sentence = message.charAt(0).toUpperCase() + message.slice(1);
        return { message: /[.!?]$/.test(sentence) ? sentence : `${sentence}.`, hint };
    }

    static kept(): Promise<Kept[]> {
        return Beryl.cache.list();
    }

    static async remove(kept: Kept): Promise<void> {
        await Beryl.cache.remove(kept);
    }

    static persist(): Promise<boolean> {
        return Beryl.cache.persist();
    }

    #isReady(model: Model, name: string): void {
        const { context, device } = model.info;
        this.#enter({ kind: "ready", name, context, adapter: device.name });
    }

    #failed(thrown: unknown, choice: Choice): void {
        this.#enter({ kind: "failed", name: "No model", again: choice, ...Runtime.explain(thrown) });
    }

    #enter(state: RuntimeState): void {
        this.#state = state;
        this.dispatchEvent(new Event("change"));
    }
}
