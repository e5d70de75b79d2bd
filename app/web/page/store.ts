/**
 * store.ts - what the page keeps on this machine: conversations in IndexedDB, choices in localStorage. Nothing leaves it.
 */
import { createStore, del, entries, set } from "idb-keyval";

export interface Figures {
    tokensPerSecond: number;
    firstTokenSeconds: number;
    nPrompt: number;
    nReused: number;
    nGenerated: number;
}

export interface Message {
    role: "user" | "assistant";
    content: string;
    thought?: string;
    thoughtSeconds?: number;
    /** Why the answer ended where it did, if not by itself. */
    ended?: "stopped" | "length" | "context" | "failed";
    figures?: Figures;
}

export interface Conversation {
    id: string;
    title: string;
    changed: number;
    messages: Message[];
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

/* crypto.randomUUID is for secure pages alone, and a page that is none must still say so. */
function newId(): string {
    return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Conversations, kept in memory and written through. */
export class Conversations {
    #all = new Map<string, Conversation>();
    #store: ReturnType<typeof createStore> | null = null;

    /** Reads what was kept. Storage that is refused leaves an empty list that works for this visit. */
    static async open(): Promise<Conversations> {
        const it = new Conversations();
        try {
            it.#store = createStore("beryl", "conversations");
            for (const [, value] of await entries<string, Conversation>(it.#store)) it.#all.set(value.id, value);
        } catch {
            it.#store = null;
        }
        return it;
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

    /** Writes a conversation after a change. */
    async keep(conversation: Conversation): Promise<void> {
        const first = conversation.messages[0]?.content.trim().replace(/\s+/g, " ") ?? "";
        conversation.title = first ? (first.length > 60 ? `${first.slice(0, 59)}…` : first) : "New conversation";
        conversation.changed = Date.now();
        if (this.#store) await set(conversation.id, conversation, this.#store).catch(() => undefined);
    }

    async remove(id: string): Promise<void> {
        this.#all.delete(id);
        if (this.#store) await del(id, this.#store).catch(() => undefined);
    }
}
