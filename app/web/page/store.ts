/**
 * store.ts - what the page keeps on this machine: conversations in IndexedDB, choices in localStorage. Nothing leaves it.
 *
 * Any number of tabs may hold one conversation. None of them writes a conversation as it knows it: it writes what it
 * changes, and the change is applied to what is stored then, within one transaction. So the rule of merging is that of
 * Conversations.apply: what a tab removes is what it has shown; what comes new goes to the end, an answer behind its
 * question; an answer whose question was removed goes with it, and a conversation that was removed does not come back.
 * After each write the other tabs are told by a BroadcastChannel, and read again.
 */
import { createStore, del, entries, get, type UseStore } from "idb-keyval";

export interface Figures {
    tokensPerSecond: number;
    firstTokenSeconds: number;
    nPrompt: number;
    nReused: number;
    nGenerated: number;
}

/** A picture or sound of a message; the file itself lies in media.ts's store, by this id. */
export interface Attachment {
    id: string;
    kind: "image" | "audio";
    name: string;
    /** Of a picture. */
    thumb?: Blob;
    /** Of sound: its length, and its loudness from 0 to 100. */
    seconds?: number;
    peaks?: number[];
}

export interface Message {
    id: string;
    role: "user" | "assistant";
    content: string;
    media?: Attachment[];
    /** The question that an answer answers. */
    to?: string;
    thought?: string;
    thoughtSeconds?: number;
    /** Why the answer ended where it did, if not by itself. "open": it is being written, or was when its page was closed. */
    ended?: "open" | "stopped" | "length" | "context" | "failed";
    figures?: Figures;
}

export interface Conversation {
    id: string;
    title: string;
    changed: number;
    messages: Message[];
}

/** A change of a conversation: messages that go, by their ids, and messages that come or have grown. */
export interface Change {
    without?: readonly string[];
    put?: readonly Message[];
}

export interface Settings {
    theme: "auto" | "light" | "dark";
    system: string;
    temperature: number;
    topK: number;
    topP: number;
    minP: number;
    maxTokens: number;
    context: number;
    think: boolean;
    /** What was loaded last: "builtin" or a URL. */
    model: string;
}

/** Numbers of 0 mean the model's own default. */
export const DEFAULTS: Settings = {
    theme: "auto",
    system: "",
    temperature: 0,
    topK: 0,
    topP: 0,
    minP: 0,
    maxTokens: 0,
    context: 0,
    think: false,
    model: "builtin",
};

const KEY = "beryl-settings";

function fits<T>(value: unknown, like: T): value is T {
    return typeof value === typeof like && (typeof value !== "number" || Number.isFinite(value));
}

/** The settings as they were left; whatever does not fit becomes the default. */
export function settingsRead(): Settings {
    const settings = { ...DEFAULTS };
    try {
        const found: unknown = JSON.parse(localStorage.getItem(KEY) ?? "{}");
        if (typeof found !== "object" || found === null) return settings;
        for (const [name, value] of Object.entries(found)) {
            if (!(name in settings)) continue;
            const key = name as keyof Settings;
            if (fits(value, settings[key])) Object.assign(settings, { [key]: value });
        }
        if (!["auto", "light", "dark"].includes(settings.theme)) settings.theme = "auto";
    } catch {
        /* a page without storage, or one that was edited: the defaults serve */
    }
    return settings;
}

export function settingsWrite(settings: Settings): void {
    try {
        localStorage.setItem(KEY, JSON.stringify(settings));
    } catch {
        /* private windows may refuse: the settings then last as long as the page */
    }
}

const OPEN = "beryl-open";

/** The conversation that this tab has open, by its id: a tab that is loaded anew goes on with it. */
export function openRead(): string {
    try {
        return sessionStorage.getItem(OPEN) ?? "";
    } catch {
        return "";
    }
}

export function openWrite(id: string): void {
    try {
        sessionStorage.setItem(OPEN, id);
    } catch {
        /* as for the settings */
    }
}

/* crypto.randomUUID is for secure pages alone, and a page that is none must still say so. */
export function newId(): string {
    return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const NAMES = "beryl-names";

/** Names of models by their addresses, as their files have them: what is kept in the browser knows its address alone. */
export function namesRead(): Record<string, string> {
    try {
        const found: unknown = JSON.parse(localStorage.getItem(NAMES) ?? "{}");
        return typeof found === "object" && found !== null ? (found as Record<string, string>) : {};
    } catch {
        return {};
    }
}

export function nameKeep(url: string, name: string): void {
    try {
        localStorage.setItem(NAMES, JSON.stringify({ ...namesRead(), [url]: name }));
    } catch {
        /* as for the settings */
    }
}

const GROWS = 500; // milliseconds between two writes of an answer that grows
const lockOf = (message: Message): string => `beryl-answer/${message.id}`;

/** Conversations, kept in memory and written through. Tells "change" when another tab has changed one, "read" (and "change") when they were read. */
export class Conversations extends EventTarget {
    readonly #all = new Map<string, Conversation>();
    readonly #stored = new Set<string>(); // conversations that were in the store
    readonly #gone = new Set<string>(); // conversations that were removed
    readonly #own = new Map<string, { answer: Message; leave: () => void }>(); // answers that this tab is writing
    readonly #elsewhere = new Set<string>(); // answers that others seem to be writing
    readonly #channel = "BroadcastChannel" in globalThis ? new BroadcastChannel("beryl-conversations") : null;
    #store: UseStore | null = null;
    #pending: { id: string; change: Change }[] = []; // not written yet
    #growing: { conversation: Conversation; timer: number } | null = null;

    /** Usable at once. What was kept is read behind, and told as a change. Storage that is refused leaves a list for this visit. */
    constructor() {
        super();
        try {
            this.#store = createStore("beryl", "conversations");
        } catch {
            return;
        }
        this.#channel?.addEventListener("message", ({ data }) => void this.#read(String(data)));
        addEventListener("pagehide", () => this.#flush());
        document.addEventListener("visibilitychange", () => this.#flush());
        entries<string, Conversation>(this.#store).then(
            (kept) => {
                for (const [, value] of kept) this.#take(value);
                this.dispatchEvent(new Event("change"));
                this.dispatchEvent(new Event("read"));
            },
            () => (this.#store = null),
        );
    }

    /** Latest first; those without a message are not listed. */
    list(): Conversation[] {
        return [...this.#all.values()].filter((c) => c.messages.length > 0).sort((a, b) => b.changed - a.changed);
    }

    find(id: string): Conversation | undefined {
        return this.#all.get(id);
    }

    make(): Conversation {
        const conversation: Conversation = { id: newId(), title: "New conversation", changed: Date.now(), messages: [] };
        this.#all.set(conversation.id, conversation);
        return conversation;
    }

    /** Changes a conversation: here at once, in the store as soon as may be. */
    async change(conversation: Conversation, change: Change): Promise<void> {
        const { id } = conversation, entry = { id, change };
        apply(conversation, change);
        Object.assign(conversation, { title: titleOf(conversation), changed: Date.now() });
        this.#pending.push(entry);
        const merged = await this.#write(id, (stored) => {
            if (this.#gone.has(id) || (!stored && this.#stored.has(id))) return null;
            const next: Conversation = stored ? { ...stored, messages: withIds(stored.messages) } : { ...conversation };
            if (stored) apply(next, change);
            return { ...next, title: titleOf(next), changed: conversation.changed };
        }).catch(() => undefined);
        this.#pending.splice(this.#pending.indexOf(entry), 1);
        if (merged) this.#take(merged);
        if (merged === null) this.#forget(id);
        if (merged !== undefined) this.dispatchEvent(new Event("change"));
    }

    /** This tab begins to write an answer: until `close`, what `grow` tells is stored now and then, and other tabs know. */
    open(answer: Message): void {
        let leave = (): void => undefined;
        const left = new Promise<void>((resolve) => (leave = resolve));
        this.#own.set(answer.id, { answer, leave });
        navigator.locks?.request(lockOf(answer), () => left).catch(() => undefined);
    }

    grow(conversation: Conversation): void {
        this.#growing ??= { conversation, timer: window.setTimeout(() => this.#flush(), GROWS) };
    }

    close(answer: Message): void {
        this.#flush();
        this.#own.get(answer.id)?.leave();
        this.#own.delete(answer.id);
    }

    /** Whether another tab is writing this answer. */
    elsewhere(answer: Message): boolean {
        return this.#elsewhere.has(answer.id);
    }

    async remove(id: string): Promise<void> {
        this.#stored.add(id);
        this.#forget(id);
        if (!this.#store) return;
        await del(id, this.#store).catch(() => undefined);
        this.#channel?.postMessage(id);
    }

    #flush(): void {
        if (!this.#growing) return;
        const { conversation, timer } = this.#growing;
        clearTimeout(timer);
        this.#growing = null;
        void this.change(conversation, { put: conversation.messages.filter(({ id }) => this.#own.has(id)) });
    }

    /* What the store holds becomes this; gives that, null where `work` gave it. Undefined where nothing can be kept. */
    async #write(id: string, work: (stored: Conversation | undefined) => Conversation | null): Promise<Conversation | null | undefined> {
        const next = await this.#store?.("readwrite", (conversations) => new Promise<Conversation | null>((resolve, reject) => {
            let made: Conversation | null = null;
            const found = conversations.get(id) as IDBRequest<Conversation | undefined>;
            found.onsuccess = () => {
                made = work(found.result);
                if (made) conversations.put(made, id);
            };
            conversations.transaction.oncomplete = () => resolve(made);
            conversations.transaction.onabort = () => reject(conversations.transaction.error ?? new Error("nothing could be written"));
        }));
        if (next) this.#channel?.postMessage(id);
        return next;
    }

    /* Another tab has changed it. */
    async #read(id: string): Promise<void> {
        const stored = this.#store && await get<Conversation>(id, this.#store).catch(() => undefined);
        if (stored) this.#take(stored);
        else this.#forget(id);
        this.dispatchEvent(new Event("change"));
    }

    /* What is stored takes the place of what is known; answers that are being written here stay the objects that they are. */
    #take(stored: Conversation): void {
        if (this.#gone.has(stored.id)) return;
        const messages = withIds(stored.messages).map((message) => this.#own.get(message.id)?.answer ?? message);
        const conversation = Object.assign(this.#all.get(stored.id) ?? {}, stored, { messages });
        for (const { id, change } of this.#pending) if (id === stored.id) apply(conversation, change);
        this.#all.set(stored.id, conversation);
        this.#stored.add(stored.id);
        for (const message of conversation.messages) if (message.ended === "open" && !this.#own.has(message.id)) this.#watch(message);
    }

    #forget(id: string): void {
        if (!this.#stored.has(id)) return;
        this.#gone.add(id);
        this.#all.delete(id);
    }

    /* Who writes an answer holds its lock: while that cannot be had, another tab is at it. */
    #watch(answer: Message): void {
        if (this.#elsewhere.has(answer.id) || !navigator.locks) return;
        this.#elsewhere.add(answer.id);
        void navigator.locks.request(lockOf(answer), () => {
            this.#elsewhere.delete(answer.id);
            this.dispatchEvent(new Event("change"));
        });
    }
}

/* The rule of merging; see above. */
function apply(conversation: Conversation, { without = [], put = [] }: Change): void {
    conversation.messages = conversation.messages.filter(({ id, to }) => !without.includes(id) && !(to !== undefined && without.includes(to)));
    for (const message of put) {
        const { messages } = conversation;
        const at = messages.findIndex(({ id }) => id === message.id);
        const behind = messages.findLastIndex(({ id, to }) => message.to !== undefined && (id === message.to || to === message.to));
        if (at >= 0) messages[at] = message;
        else if (message.to === undefined) messages.push(message);
        else if (behind >= 0) messages.splice(behind + 1, 0, message);
    }
}

/* Conversations from before messages had ids get the same ones in every tab. */
function withIds(messages: readonly Message[]): Message[] {
    return messages.map((message, i) => (message.id ? message : { ...message, id: String(i), ...(message.role === "assistant" && i > 0 && { to: String(i - 1) }) }));
}

function titleOf({ messages }: Conversation): string {
    const first = messages[0]?.content.trim().replace(/\s+/g, " ") || messages[0]?.media?.[0]?.name || "";
    return first ? (first.length > 60 ? `${first.slice(0, 59)}…` : first) : "New conversation";
}
