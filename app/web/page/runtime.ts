/**
 * runtime.ts - the page's one model: loading, asking, losing, and how each of these looks to a person. The only file that
 * knows the package.
 */
import { Beryl, BerylError, type CachedModel, type FullModel, type MediaPart, type Message as ChatMessage, type Model } from "beryl-gpu";
import builtin from "../dist/default.gguf?url";
import wasm from "../dist/beryl.wasm?url";
import type { Shelf } from "./media";
import { nameKeep, namesRead, type Attachment, type Figures, type Message, type Settings } from "./store";

export { showBytes } from "beryl-gpu";

/** What to load. */
export type Choice = { kind: "builtin" } | { kind: "url"; url: string; sha256?: string } | { kind: "file"; file: File };

/** A model that this browser keeps; `title` is the name that its file gives it. */
export type Kept = CachedModel & { title: string };

/** How far something is; `total` is 0 where that is not known. */
export interface Step {
    name: string;
    what: string;
    done: number;
    total: number;
}

/** What the loaded model's file says of sampling. */
export interface Sampling {
    temperature: number;
    topK: number;
    topP: number;
}

export interface Problem {
    message: string;
    hint: string;
}

export type RuntimeState =
    | { kind: "none" }
    | ({ kind: "loading" } & Step)
    | { kind: "ready"; name: string; context: number; adapter: string; software: boolean; sampling: Sampling; sees: boolean; hears: boolean }
    | ({ kind: "failed"; name: string; again: Choice | null } & Problem);

/** A piece of an answer, or what it waits for. */
export interface Said {
    type: "text" | "thought" | "waits";
    text: string;
}

export interface Answered {
    figures: Figures;
    ended: Message["ended"] | null;
}

function choiceName(choice: Choice): string {
    if (choice.kind === "builtin") return "Beryl’s small model";
    if (choice.kind === "file") return choice.file.name;
    try {
        return decodeURIComponent(new URL(choice.url, location.href).pathname.split("/").pop() ?? "") || choice.url;
    } catch {
        return choice.url; // that it is no address is said by the load
    }
}

function sourceOf(choice: Choice): string | File {
    return choice.kind === "builtin" ? "builtin" : choice.kind === "url" ? choice.url : choice.file;
}

function addressOf(url: string): string {
    return new URL(url, location.href).href;
}

async function partOf({ id, kind, name }: Attachment, shelf: Shelf): Promise<MediaPart> {
    const file = await shelf.get(id);
    if (!file) throw new BerylError("NOT_FOUND", `${name} is no longer kept in this browser`, "Attach it again in a new message.");
    return kind === "image" ? { type: "image", image: file } : { type: "audio", audio: file };
}

const CANCELLED: Problem = { message: "Loading was cancelled.", hint: "What has arrived is kept." };

const ENDS = { stop: null, length: "length", context: "context", cancelled: "stopped" } as const;

/* Compiled while the worker starts; where that fails, the package fetches it itself and says why it cannot. */
const compiled = WebAssembly.compileStreaming(fetch(wasm)).catch(() => wasm);

/** Tells "change" whenever its state is another. */
export class Runtime extends EventTarget {
    #state: RuntimeState = { kind: "none" };
    #check: Step | null = null;
    #model: Model | null = null;
    #checking: AbortController | null = null;
    #loading: AbortController | null = null;
    #ready: Promise<unknown> = Promise.resolve();
    #asked: Choice | null = null;
    #worked: { choice: Choice; context: number; full: boolean } | null = null; // what was loaded last
    #full = false; // with the full module, once that is asked for

    get state(): RuntimeState {
        return this.#state;
    }

    /** A model that is looked into while the one that is there goes on. */
    get check(): Step | null {
        return this.#check;
    }

    /** What was asked for last, and the context that the loaded model was given. */
    get choice(): Choice | null {
        return this.#asked;
    }

    get model(): Model | null {
        return this.#model;
    }

    /** The model as one of the full module: it is loaded again where it came without. Throws what Runtime.explain explains. */
    async whole(settings: Settings): Promise<FullModel> {
        await this.#ready;
        if (!this.#full && this.#asked) {
            this.#full = true;
            const problem = await this.load(this.#asked, settings);
            if (problem) throw new BerylError("IO", problem.message, problem.hint);
        }
        if (!this.#model) throw new BerylError("MISUSE", "No model is loaded.", "Choose one above.");
        return this.#model as FullModel;
    }

    get context(): number {
        return this.#worked?.context ?? 0;
    }

    /**
     * Takes the place of the model that is there, after a look into the file: what is no model leaves the one that works, and
     * where the load itself fails, that one is loaded again. Gives what went wrong, else null; never throws.
     */
    async load(choice: Choice, { context }: Settings): Promise<Problem | null> {
        this.#checking?.abort();
        if (this.#model || this.#loading) {
            const checking = (this.#checking = new AbortController());
            const problem = await this.#look(choice, checking);
            if (this.#checking !== checking) return null; // another choice came
            this.#checking = null;
            this.#tell(null);
            if (problem) return problem;
        }
        this.#loading?.abort();
        const loading = (this.#loading = new AbortController());
        this.#asked = choice;
        this.#enter({ kind: "loading", name: choiceName(choice), what: "getting ready", done: 0, total: 0 });
        const done = this.#ready.then(() => this.#replace(choice, context, loading));
        this.#ready = done;
        return await done;
    }

    /* The file's beginning, without weights or device. */
    async #look(choice: Choice, { signal }: AbortController): Promise<Problem | null> {
        const name = choiceName(choice);
        const tell = (step: { what: string; done: number; total: number }): void => {
            if (!signal.aborted) this.#tell({ name, ...step });
        };
        tell({ what: "looking into the file", done: 0, total: 0 });
        try {
            const model = await Beryl.load(sourceOf(choice), { vocabularyOnly: true, module: compiled, builtin, signal, onProgress: tell });
            await model.close();
            return null;
        } catch (thrown) {
            return signal.aborted ? CANCELLED : Runtime.explain(thrown);
        }
    }

    async #replace(choice: Choice, context: number, loading: AbortController): Promise<Problem | null> {
        if (loading.signal.aborted) return null;
        await this.#model?.close();
        this.#model = null;
        try {
            await this.#open(choice, context, loading);
            return null;
        } catch (thrown) {
            if (this.#loading !== loading) return null;
            const problem = loading.signal.aborted ? CANCELLED : Runtime.explain(thrown);
            return (await this.#back()) ? problem : this.#failed(problem, choice);
        }
    }

    /* Loads again what worked before. */
    async #back(): Promise<boolean> {
        const worked = this.#worked;
        this.#worked = null;
        if (!worked) return false;
        const loading = (this.#loading = new AbortController());
        this.#asked = worked.choice;
        try {
            this.#full = worked.full;
            await this.#open(worked.choice, worked.context, loading);
            return true;
        } catch {
            return this.#loading !== loading;
        }
    }

    async #open(choice: Choice, context: number, loading: AbortController): Promise<void> {
        const name = choiceName(choice);
        const model = await Beryl.load(sourceOf(choice), {
            signal: loading.signal,
            ...(this.#full ? { full: true } : { module: compiled }),
            builtin,
            ...(context > 0 && { context }),
            ...(choice.kind === "url" && choice.sha256 !== undefined && { sha256: choice.sha256 }),
            onProgress: (step) => {
                if (this.#loading === loading) this.#enter({ kind: "loading", name, ...step });
            },
        });
        this.#model = model;
        this.#loading = null;
        this.#worked = { choice, context, full: this.#full };
        model.onstatechange = ({ state, error }) => {
            if (this.#model !== model) return;
            if (state === "ready") this.#isReady(model, name);
            if (state === "lost") this.#enter({ kind: "loading", name, what: "the GPU was lost: loading again", done: 0, total: 0 });
            if (state === "failed") this.#failed(Runtime.explain(error), choice);
        };
        if (choice.kind === "url") nameKeep(addressOf(choice.url), model.info.modelName || name);
        this.#isReady(model, name);
    }

    /** Ends a look or a load that is under way. */
    cancel(): void {
        (this.#checking ?? this.#loading)?.abort();
    }

    /**
     * The answer to a conversation, part by part; `begun` is what stands of it already. Waits for a load that is under way.
     * Throws what Runtime.explain explains.
     */
    async chat(messages: readonly Message[], shelf: Shelf, begun: string, settings: Settings, signal: AbortSignal, each: (said: Said) => void): Promise<Answered> {
        const stopped = new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
        for (let ready = null; ready !== this.#ready && !signal.aborted; ) await Promise.race([(ready = this.#ready), stopped]);
        const model = this.#model;
        if (signal.aborted) throw new BerylError("CANCELLED", "cancelled");
        if (!model) {
            const state = this.#state;
            throw state.kind === "failed" ? new BerylError("NO_DEVICE", state.message, state.hint) : new BerylError("MISUSE", "No model is loaded.", "Choose one above.");
        }
        const media: MediaPart[] = [], asked: ChatMessage[] = [];
        for (const { role, content, media: attached = [] } of messages) {
            const parts = await Promise.all(attached.map((one) => partOf(one, shelf)));
            media.push(...parts);
            asked.push({ role, content: parts.length ? [...parts, ...(content ? [{ type: "text" as const, text: content }] : [])] : content });
        }
        if (settings.system) asked.unshift({ role: "system", content: settings.system });
        const options = {
            signal,
            onProgress: ({ what }: { what: string }) => { if (media.length) each({ type: "waits", text: `${what.charAt(0).toUpperCase()}${what.slice(1)}…` }); },
            ...(settings.temperature > 0 && { temperature: settings.temperature }),
            ...(settings.topK > 0 && { topK: settings.topK }),
            ...(settings.topP > 0 && { topP: settings.topP }),
            ...(settings.minP > 0 && { minP: settings.minP }),
            ...(settings.maxTokens > 0 && { maxTokens: settings.maxTokens }),
        };
        const answer = begun
            ? model.generate([...(await model.renderTokens(asked)), ...(await model.tokenize(begun))], { ...options, media })
            : model.chat(asked, { ...options, think: settings.think });
        for await (const part of answer) if (part.type !== "call") each(part);
        const { end, nPrompt, nReused, nGenerated, firstTokenSeconds, decodeSeconds } = await answer.result;
        const tokensPerSecond = decodeSeconds > 0 ? Math.max(0, nGenerated - 1) / decodeSeconds : 0;
        return { figures: { tokensPerSecond, firstTokenSeconds, nPrompt, nReused, nGenerated }, ended: ENDS[end] };
    }

    /** A file of this kind is about to come: what reads it is compiled meanwhile. */
    expect(kind: Attachment["kind"]): void {
        this.#model?.prepareMedia(kind).catch(() => undefined); // told when there is a file
    }

    /** Encodes what is attached while its question is written; the question then finds it done. What fails is told there. */
    async prepare(attachment: Attachment, shelf: Shelf): Promise<void> {
        try {
            await this.#model?.embedMedia(await partOf(attachment, shelf));
        } catch {
            /* told when it is asked about */
        }
    }

    /** Whatever was thrown, for a person. */
    static explain(thrown: unknown): Problem {
        const { message, hint } = BerylError.from(thrown);
        const sentence = message.charAt(0).toUpperCase() + message.slice(1);
        return { message: /[.!?]$/.test(sentence) ? sentence : `${sentence}.`, hint };
    }

    static async kept(): Promise<Kept[]> {
        const names = { ...namesRead(), [addressOf(builtin)]: choiceName({ kind: "builtin" }) };
        return (await Beryl.cache.list()).map((kept) => ({ ...kept, title: names[kept.url] ?? kept.name }));
    }

    static async remove(kept: Kept): Promise<void> {
        await Beryl.cache.remove(kept);
    }

    static persist(): Promise<boolean> {
        return Beryl.cache.persist();
    }

    #isReady(model: Model, name: string): void {
        const { context, device, temperature, topK, topP, hasVision: sees, hasAudio: hears } = model.info;
        this.#enter({ kind: "ready", name, context, adapter: device.name, software: device.kind === "software", sampling: { temperature, topK, topP }, sees, hears });
    }

    #failed(problem: Problem, choice: Choice): Problem {
        this.#loading = null;
        this.#enter({ kind: "failed", name: "No model", again: choice, ...problem });
        return problem;
    }

    #tell(check: Step | null): void {
        this.#check = check;
        this.dispatchEvent(new Event("change"));
    }

    #enter(state: RuntimeState): void {
        this.#state = state;
        this.dispatchEvent(new Event("change"));
    }
}
