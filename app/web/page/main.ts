/**
 * main.ts - the page: which conversation is shown, what is being answered, which model answers. The one place that knows
 * all the parts; each part knows none of the others.
 */
import { button, byId, el, fill } from "./dom";
import { modelsOpen } from "./models";
import { Runtime, type Choice, type RuntimeState } from "./runtime";
import { settingsOpen } from "./settings";
import { Conversations, settingsRead, settingsWrite, type Conversation, type Message, type Settings } from "./store";
import { Thread, figuresText } from "./thread";

const STARTERS = ["Tell me a very short story.", "A story about a red lantern.", "Who lives in the village?"];

const page = {
    side: byId("side", "nav"),
    conversations: byId("conversations", "ul"),
    modelName: byId("model-name", "span"),
    contextLabel: byId("context-label", "label"),
    contextText: byId("context-text", "span"),
    context: byId("context", "meter"),
    scroller: byId("scroller", "div"),
    hello: byId("hello", "div"),
    starters: byId("starters", "div"),
    log: byId("log", "div"),
    loading: byId("loading", "div"),
    loadingWhat: byId("loading-what", "span"),
    loadingBar: byId("loading-bar", "progress"),
    composer: byId("composer", "form"),
    prompt: byId("prompt", "textarea"),
    send: byId("send", "button"),
    stop: byId("stop", "button"),
    speed: byId("speed", "span"),
    adapter: byId("adapter", "span"),
    drop: byId("drop", "div"),
    status: byId("status", "p"),
    models: byId("models", "dialog"),
    settings: byId("settings", "dialog"),
};

class App {
    readonly #settings: Settings = settingsRead();
    readonly #runtime = new Runtime();
    readonly #thread: Thread;
    #current: Conversation;
    #answering: AbortController | null = null;

    constructor(private readonly conversations: Conversations) {
        this.#current = conversations.make();
        this.#thread = new Thread(page.log, page.scroller, {
            retry: (index) => void this.#answerFrom(index),
            edit: (index, text) => void this.#edit(index, text),
        });
        this.#theme();
        this.#wire();
        this.#show();
        this.#runtime.addEventListener("change", () => this.#runtimeChanged(this.#runtime.state));
        void this.#load(this.#settings.model === "builtin" ? { kind: "builtin" } : { kind: "url", url: this.#settings.model });
    }

    // ---- what is shown ----

    #theme(): void {
        if (this.#settings.theme === "auto") delete document.documentElement.dataset["theme"];
        else document.documentElement.dataset["theme"] = this.#settings.theme;
    }

    #say(text: string): void {
        page.status.textContent = text;
    }

    #show(): void {
        const messages = this.#current.messages;
        page.hello.hidden = messages.length > 0;
        this.#thread.show(messages, this.#answering !== null);
        this.#list();
        this.#meters();
        page.send.hidden = this.#answering !== null;
        page.stop.hidden = this.#answering === null;
        document.title = messages.length ? `${this.#current.title} – Beryl` : "Beryl";
    }

    #list(): void {
        fill(
            page.conversations,
            ...this.conversations.list().map((conversation) => {
                const current = conversation === this.#current;
                const title = button(conversation.title, () => this.#open(conversation.id), "title", conversation.title);
                if (current) title.setAttribute("aria-current", "true");
                const remove = button("✕", () => void this.#remove(conversation), "remove", "Delete");
                remove.setAttribute("aria-label", `Delete “${conversation.title}”`);
                const row = el("li", {}, title, remove);
                row.dataset["current"] = String(current);
                return row;
            }),
        );
    }

    #meters(): void {
        const state = this.#runtime.state;
        const last = this.#current.messages.findLast((m) => m.figures)?.figures;
        const limit = state.kind === "ready" ? state.context : 0;
        page.contextLabel.hidden = !limit;
        if (limit) {
            const used = last ? last.nPrompt + last.nGenerated : 0;
            page.context.value = Math.min(1, used / limit);
            page.contextText.textContent = `${used.toLocaleString("en")} of ${limit.toLocaleString("en")} tokens`;
            page.contextLabel.title = page.contextText.textContent;
        }
        page.speed.textContent = last ? figuresText(last) : "";
    }

    #runtimeChanged(state: RuntimeState): void {
        page.loading.hidden = state.kind !== "loading";
        page.modelName.textContent = state.kind === "none" ? "No model" : state.name;
        page.adapter.textContent = state.kind === "ready" ? state.adapter : "";
        page.adapter.title = page.adapter.textContent;
        if (state.kind === "loading") {
            page.loadingWhat.textContent = `${state.name}: ${state.what}`;
            if (state.total > 0) page.loadingBar.value = state.done / state.total;
            else page.loadingBar.removeAttribute("value");
        }
        if (state.kind === "failed" && this.#answering === null) {
            page.hello.hidden = true;
            this.#thread.notice(state.message, state.hint, state.again ? () => void this.#load(state.again as Choice) : undefined);
        }
        this.#meters();
    }

    // ---- conversations ----

    #open(id: string): void {
        const found = this.conversations.find(id);
        if (!found) return;
        this.#answering?.abort();
        this.#answering = null;
        this.#current = found;
        this.#side(false);
        this.#show();
        page.prompt.focus();
    }

    #begin(): void {
        this.#answering?.abort();
        this.#answering = null;
        this.#current = this.conversations.make();
        this.#side(false);
        this.#show();
        page.prompt.focus();
    }

    async #remove(conversation: Conversation): Promise<void> {
        await this.conversations.remove(conversation.id);
        if (conversation === this.#current) this.#begin();
        else this.#list();
        this.#say("Conversation deleted");
    }

    // ---- answering ----

    async #send(text: string): Promise<void> {
        if (!text || this.#answering) return;
        this.#current.messages.push({ role: "user", content: text });
        await this.#answer();
    }

    async #edit(index: number, text: string): Promise<void> {
        const message = this.#current.messages[index];
        if (!message || this.#answering) return;
        this.#current.messages.splice(index);
        this.#current.messages.push({ role: "user", content: text });
        await this.#answer();
    }

    async #answerFrom(index: number): Promise<void> {
        if (this.#answering) return;
        this.#current.messages.splice(index);
        await this.#answer();
    }

    /** Answers the last message of the current conversation, into a message of its own. */
    async #answer(): Promise<void> {
        const conversation = this.#current;
        const answer: Message = { role: "assistant", content: "" };
        const controller = new AbortController();
        const asked = conversation.messages.slice();
        conversation.messages.push(answer);
        this.#answering = controller;
        this.#show();
        let problem: { message: string; hint: string } | null = null;
        const began = performance.now();
        try {
            const result = await this.#runtime.chat(asked, this.#settings, controller.signal, (part) => {
                if (part.type === "thought") {
                    answer.thought = (answer.thought ?? "") + part.text;
                    answer.thoughtSeconds = (performance.now() - began) / 1000;
                } else {
                    answer.content += part.text;
                }
                if (conversation === this.#current) this.#thread.changed();
            });
            answer.figures = result.figures;
            if (result.ended) answer.ended = result.ended;
        } catch (error) {
            problem = Runtime.explain(error);
            answer.ended = controller.signal.aborted ? "stopped" : "failed";
        }
        if (!answer.content && !answer.thought) conversation.messages.splice(conversation.messages.indexOf(answer), 1);
        await this.conversations.keep(conversation);
        if (this.#answering === controller) this.#answering = null;
        if (conversation !== this.#current) {
            this.#list();
            return;
        }
        this.#show();
        if (problem && !controller.signal.aborted) this.#thread.notice(problem.message, problem.hint, () => void this.#answerFrom(conversation.messages.length));
        else this.#say(answer.ended === "stopped" ? "Answer stopped" : "Answer complete");
    }

    // ---- models ----

    async #load(choice: Choice): Promise<void> {
        this.#answering?.abort();
        if (choice.kind !== "file") this.#settings.model = choice.kind === "url" ? choice.url : "builtin";
        settingsWrite(this.#settings);
        this.#show();
        await this.#runtime.load(choice, this.#settings);
        if (this.#runtime.state.kind === "ready") this.#say(`${this.#runtime.state.name} is ready`);
    }

    #settingChanged(key: keyof Settings): void {
        settingsWrite(this.#settings);
        if (key === "theme") this.#theme();
        if (key === "context" && this.#runtime.choice) void this.#load(this.#runtime.choice);
    }

    // ---- wiring ----

    #side(open: boolean): void {
        page.side.classList.toggle("open", open);
        byId("side-open", "button").setAttribute("aria-expanded", String(open));
    }

    #wire(): void {
        for (const text of STARTERS) page.starters.append(button(text, () => void this.#send(text)));
        page.composer.addEventListener("submit", (event) => {
            event.preventDefault();
            const text = page.prompt.value.trim();
            if (!text || this.#answering) return;
            page.prompt.value = "";
            this.#grow();
            void this.#send(text);
        });
        page.prompt.addEventListener("input", () => this.#grow());
        page.prompt.addEventListener("keydown", (event) => {
            if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
            event.preventDefault();
            page.composer.requestSubmit();
        });
        page.stop.addEventListener("click", () => this.#stop());
        document.addEventListener("keydown", (event) => {
            if (event.key !== "Escape" || event.defaultPrevented || page.models.open || page.settings.open) return;
            if (page.side.classList.contains("open")) this.#side(false);
            else this.#stop();
        });
        byId("new", "button").addEventListener("click", () => this.#begin());
        byId("side-open", "button").addEventListener("click", () => {
            this.#side(true);
            byId("side-close", "button").focus();
        });
        byId("side-close", "button").addEventListener("click", () => {
            this.#side(false);
            byId("side-open", "button").focus();
        });
        byId("loading-stop", "button").addEventListener("click", () => this.#runtime.cancel());
        byId("settings-open", "button").addEventListener("click", () => settingsOpen(page.settings, this.#settings, (key) => this.#settingChanged(key)));
        byId("model", "button").addEventListener("click", () => {
            modelsOpen(page.models, this.#runtime.state.kind === "ready" ? this.#runtime.state.name : "", {
                choose: (choice) => void this.#load(choice),
                kept: () => Runtime.kept(),
                remove: (kept) => Runtime.remove(kept),
                persist: () => Runtime.persist(),
            });
        });
        this.#wireDrop();
    }

    #stop(): void {
        if (!this.#answering) return;
        this.#answering.abort();
        page.prompt.focus();
    }

    #grow(): void {
        page.prompt.rows = Math.min(12, Math.max(1, page.prompt.value.split("\n").length));
    }

    #wireDrop(): void {
        const carriesFile = (event: DragEvent): boolean => event.dataTransfer?.types.includes("Files") ?? false;
        window.addEventListener("dragover", (event) => {
            if (!carriesFile(event)) return;
            event.preventDefault();
            page.drop.hidden = false;
        });
        window.addEventListener("dragleave", (event) => {
            if (!event.relatedTarget) page.drop.hidden = true;
        });
        window.addEventListener("drop", (event) => {
            page.drop.hidden = true;
            const file = event.dataTransfer?.files[0];
            if (!file) return;
            event.preventDefault();
            void this.#load({ kind: "file", file });
        });
    }
}

new App(await Conversations.open());
if ("serviceWorker" in navigator && import.meta.env.PROD) void navigator.serviceWorker.register("./sw.js").catch(() => undefined);
