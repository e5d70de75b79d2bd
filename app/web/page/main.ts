/**
 * main.ts - the page: which conversation is shown, what is being answered, which model answers. The one place that knows
 * all the parts; each part knows none of the others.
 */
import { button, byId, el, fill } from "./dom";
import { attach, Attachments, kindOf, preview, Recorder, Shelf } from "./media";
import { modelsOpen } from "./models";
import { Runtime, type Choice } from "./runtime";
import { settingsOpen } from "./settings";
import { Conversations, newId, openRead, openWrite, settingsRead, settingsWrite, type Attachment, type Conversation, type Message, type Settings } from "./store";
import { Thread, figuresText } from "./thread";
import type { Tune } from "./tune";

const STARTERS = ["Tell me a very short story.", "A story about a red lantern.", "Who lives in the village?"];

const page = {
    skip: byId("skip", "a"),
    side: byId("side", "nav"),
    sideOpen: byId("side-open", "button"),
    sideClose: byId("side-close", "button"),
    scrim: byId("scrim", "div"),
    main: byId("main", "main"),
    title: byId("title", "h1"),
    conversations: byId("conversations", "ul"),
    modelName: byId("model-name", "span"),
    contextLabel: byId("context-label", "label"),
    contextText: byId("context-text", "span"),
    context: byId("context", "meter"),
    scroller: byId("scroller", "div"),
    hello: byId("hello", "div"),
    where: byId("where", "p"),
    starters: byId("starters", "div"),
    log: byId("log", "div"),
    loading: byId("loading", "div"),
    loadingWhat: byId("loading-what", "span"),
    loadingBar: byId("loading-bar", "progress"),
    composer: byId("composer", "form"),
    prompt: byId("prompt", "textarea"),
    attached: byId("attached", "ul"),
    attach: byId("attach", "button"),
    files: byId("files", "input"),
    record: byId("record", "button"),
    send: byId("send", "button"),
    stop: byId("stop", "button"),
    speed: byId("speed", "span"),
    adapter: byId("adapter", "span"),
    drop: byId("drop", "div"),
    status: byId("status", "p"),
    models: byId("models", "dialog"),
    settings: byId("settings", "dialog"),
    tune: byId("tune", "dialog"),
};

/* The page itself opens without a net from its next visit on. */
function keepPage(): void {
    if ("serviceWorker" in navigator && import.meta.env.PROD) navigator.serviceWorker.register("./sw.js").catch(() => undefined);
}

class App {
    readonly #settings: Settings = settingsRead();
    readonly #runtime = new Runtime();
    readonly #conversations = new Conversations();
    readonly #thread: Thread;
    readonly #shelf = new Shelf();
    readonly #attachments = new Attachments(page.attached, this.#shelf, () => page.prompt.focus());
    readonly #recorder = new Recorder();
    #taking: Promise<unknown> = Promise.resolve(); // files that are to be attached
    #current = this.#conversations.make();
    #before = openRead(); // what this tab showed before it was loaded anew
    #answering: { controller: AbortController; answer: Message } | null = null;
    #tuning: Promise<Tune> | null = null;

    /** All is wired before anything is waited for: what is asked meanwhile is shown, and answered when it can be. */
    constructor() {
        const loaded = this.#load(this.#settings.model === "builtin" ? { kind: "builtin" } : { kind: "url", url: this.#settings.model });
        void loaded.then(keepPage); // not before: it fetches all files again
        this.#thread = new Thread(page.log, page.scroller, {
            retry: (message) => this.#again(message),
            edit: (question, text) => this.#edit(question, text),
            goOn: (answer) => void this.#answer(answer),
            elsewhere: (answer) => this.#conversations.elsewhere(answer),
            preview: (attachment) => preview(attachment, this.#shelf),
        });
        this.#theme();
        this.#wire();
        this.#show();
        this.#runtimeChanged();
        this.#runtime.addEventListener("change", () => this.#runtimeChanged());
        this.#conversations.addEventListener("change", () => this.#conversationsChanged());
        this.#conversations.addEventListener("read", () => void this.#shelf.sweep(this.#conversations.list().flatMap(({ messages }) => messages)));
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
        this.#thread.show(messages, this.#answering?.answer ?? null);
        this.#list();
        this.#meters();
        page.send.hidden = this.#answering !== null;
        page.stop.hidden = this.#answering === null;
        page.title.textContent = messages.length ? this.#current.title : "Beryl";
        document.title = messages.length ? `${this.#current.title} – Beryl` : "Beryl";
        openWrite(messages.length ? this.#current.id : "");
    }

    /* Conversations were read, or changed by another tab. */
    #conversationsChanged(): void {
        const before = this.#before && this.#conversations.find(this.#before);
        if (before) this.#before = "";
        if (before && !this.#current.messages.length) this.#turnTo(before);
        if (this.#current.messages.length && this.#conversations.find(this.#current.id) !== this.#current) {
            this.#begin();
            this.#say("This conversation was deleted in another tab");
            return;
        }
        page.hello.hidden ||= this.#current.messages.length > 0;
        this.#thread.refresh(this.#current.messages, this.#answering?.answer ?? null);
        this.#list();
    }

    #list(): void {
        fill(
            page.conversations,
            ...this.#conversations.list().map((conversation) => {
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

    #runtimeChanged(): void {
        const { state, check } = this.#runtime;
        const step = check ?? (state.kind === "loading" ? state : null);
        page.loading.hidden = step === null;
        const { sees = false, hears = false } = state.kind === "ready" ? state : {};
        page.attach.hidden = !sees && !hears;
        page.files.accept = [sees && "image/*", hears && "audio/*"].filter(Boolean).join(",");
        page.record.hidden = !hears || !Recorder.possible;
        page.modelName.textContent = state.kind === "none" ? "No model" : state.name;
        const software = state.kind === "ready" && state.software;
        page.adapter.textContent = state.kind !== "ready" ? "" : software ? `In software, slow: ${state.adapter}` : state.adapter;
        page.adapter.title = page.adapter.textContent;
        page.where.textContent = software
            ? "No graphics card can be used here: the model runs in software, and answers slowly. What you write stays here."
            : "The model runs on this machine’s own graphics card. What you write stays here.";
        if (step) {
            page.loadingWhat.textContent = `${step.name}: ${step.what}`;
            if (step.total > 0) page.loadingBar.value = step.done / step.total;
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
        const found = this.#conversations.find(id);
        if (found) this.#turnTo(found);
    }

    #begin(): void {
        this.#turnTo(this.#conversations.make());
    }

    #turnTo(conversation: Conversation): void {
        this.#answering?.controller.abort();
        this.#answering = null;
        this.#current = conversation;
        this.#side(false);
        this.#show();
        page.prompt.focus();
    }

    async #remove(conversation: Conversation): Promise<void> {
        await this.#conversations.remove(conversation.id);
        if (conversation === this.#current) this.#begin();
        else this.#list();
        this.#say("Conversation deleted");
    }

    // ---- answering ----

    #send(text: string, media: Attachment[] = []): void {
        if ((text || media.length) && !this.#answering) this.#ask({ id: newId(), role: "user", content: text, ...(media.length && { media }) }, []);
    }

    #edit(question: Message, text: string): void {
        if (!this.#answering) this.#ask({ ...question, id: newId(), content: text }, this.#from(question));
    }

    #again(message: Message): void {
        const { messages } = this.#current;
        const question = message.role === "user" ? message : messages.findLast(({ id }) => id === message.to);
        if (!question || this.#answering) return;
        const answers = this.#from(question).filter((id) => id !== question.id);
        this.#ask(question, answers);
    }

    /* The message and all that follow it. */
    #from(message: Message): string[] {
        const { messages } = this.#current;
        const at = messages.findIndex(({ id }) => id === message.id);
        return at < 0 ? [] : messages.slice(at).map(({ id }) => id);
    }

    /* Question and answer are stored together before the model is asked: a page that is closed meanwhile loses neither. */
    #ask(question: Message, without: readonly string[]): void {
        const answer: Message = { id: newId(), role: "assistant", to: question.id, content: "" };
        void this.#conversations.change(this.#current, { without, put: [question, answer] });
        void this.#answer(answer);
    }

    /** Writes an answer of the current conversation, or goes on with one that ended too early. */
    async #answer(answer: Message): Promise<void> {
        if (this.#answering) return;
        const conversation = this.#current, conversations = this.#conversations;
        const answering = { controller: new AbortController(), answer };
        const { signal } = answering.controller;
        const asked = conversation.messages.slice(0, conversation.messages.indexOf(answer));
        const begun = answer.content;
        answer.ended = "open";
        this.#answering = answering;
        conversations.open(answer);
        conversations.grow(conversation);
        this.#show();
        let problem: { message: string; hint: string } | null = null;
        const began = performance.now();
        try {
            const result = await this.#runtime.chat(asked, this.#shelf, begun, this.#settings, signal, (part) => {
                if (part.type === "waits") {
                    if (conversation === this.#current) this.#thread.waits(part.text);
                    return;
                }
                if (part.type === "thought") {
                    answer.thought = (answer.thought ?? "") + part.text;
                    answer.thoughtSeconds = (performance.now() - began) / 1000;
                } else {
                    answer.content += part.text;
                }
                conversations.grow(conversation);
                if (conversation === this.#current) this.#thread.changed();
            });
            answer.figures = result.figures;
            if (result.ended) answer.ended = result.ended;
            else delete answer.ended;
        } catch (error) {
            problem = Runtime.explain(error);
            answer.ended = signal.aborted ? "stopped" : "failed";
        }
        const empty = !answer.content && !answer.thought;
        if (this.#answering === answering) this.#answering = null;
        conversations.close(answer);
        if (conversation.messages.includes(answer)) void conversations.change(conversation, empty ? { without: [answer.id] } : { put: [answer] });
        if (conversation !== this.#current) {
            this.#list();
            return;
        }
        this.#show();
        if (problem && !signal.aborted) this.#thread.notice(problem.message, problem.hint, () => this.#again(answer));
        else this.#say(answer.ended === "stopped" ? "Answer stopped" : "Answer complete");
    }

    // ---- models ----

    async #load(choice: Choice): Promise<void> {
        const problem = await this.#runtime.load(choice, this.#settings);
        const { state } = this.#runtime;
        if (state.kind !== "ready") return;
        if (problem) {
            this.#settings.context = this.#runtime.context;
            this.#thread.notice(`${choice.kind === "file" ? choice.file.name : choice.kind === "url" ? choice.url : "The built-in model"} was not loaded: ${problem.message}`);
        } else if (this.#runtime.choice === choice) {
            if (choice.kind !== "file") this.#settings.model = choice.kind === "url" ? choice.url : "builtin";
            this.#say(`${state.name} is ready`);
        }
        settingsWrite(this.#settings);
    }

    #settingChanged(key: keyof Settings): void {
        settingsWrite(this.#settings);
        if (key === "theme") this.#theme();
        if (key === "context" && this.#runtime.choice) void this.#load(this.#runtime.choice);
    }

    // ---- wiring ----

    /* On narrow screens the list lies over the page; what is below it is out of reach meanwhile. */
    #side(open: boolean): void {
        const was = page.side.classList.contains("open");
        page.side.classList.toggle("open", open);
        page.sideOpen.setAttribute("aria-expanded", String(open));
        page.scrim.hidden = !open;
        for (const below of [page.main, page.skip]) below.inert = open;
        if (open) page.sideClose.focus();
        else if (was) page.sideOpen.focus();
    }

    #wire(): void {
        for (const text of STARTERS) page.starters.append(button(text, () => this.#send(text)));
        page.composer.addEventListener("submit", (event) => {
            event.preventDefault();
            void this.#taking.then(() => this.#submit());
        });
        page.prompt.addEventListener("input", () => this.#grow());
        addEventListener("resize", () => this.#grow());
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
        page.sideOpen.addEventListener("click", () => this.#side(true));
        for (const close of [page.sideClose, page.scrim]) close.addEventListener("click", () => this.#side(false));
        matchMedia("(max-width: 760px)").addEventListener("change", () => this.#side(false));
        byId("loading-stop", "button").addEventListener("click", () => this.#runtime.cancel());
        byId("settings-open", "button").addEventListener("click", () => void this.#openSettings());
        byId("tune-open", "button").addEventListener("click", () => {
            this.#side(false);
            void this.#tune().then((tune) => tune.open(), () => this.#problem("This part of the page did not come: try again."));
        });
        byId("model", "button").addEventListener("click", () => {
            modelsOpen(page.models, this.#runtime.state.kind === "ready" ? this.#runtime.state.name : "", {
                choose: (choice) => void this.#load(choice),
                kept: () => Runtime.kept(),
                remove: (kept) => Runtime.remove(kept),
                persist: () => Runtime.persist(),
            });
        });
        this.#wireDrop();
        this.#wireMedia();
    }

    // ---- adapters and fine-tuning ----

    #tune(): Promise<Tune> {
        const made = this.#tuning ?? import("./tune").then(({ Tune }) => new Tune(page.tune, this.#runtime, this.#settings, {
            say: (text) => this.#say(text),
            problem: (text) => this.#problem(text),
        }));
        this.#tuning = made;
        made.catch(() => { this.#tuning = null; });
        return made;
    }

    async #openSettings(): Promise<void> {
        settingsOpen(page.settings, this.#settings, this.#own(), (key) => this.#settingChanged(key));
        const adapters = (await this.#tuning)?.list();
        if (adapters) page.settings.append(adapters);
    }

    #submit(): void {
        const text = page.prompt.value.trim();
        if ((!text && !this.#attachments.length) || this.#answering) return;
        page.prompt.value = "";
        this.#grow();
        this.#send(text, this.#attachments.take());
    }

    // ---- pictures and sound ----

    /* What is sent before it has been read has it too. */
    #takes(work: Promise<void>): void {
        this.#taking = Promise.allSettled([this.#taking, work]).then(() => undefined);
    }

    /* What is no picture, no sound, no adapter and no examples is taken for a model. */
    async #take(given: readonly File[]): Promise<void> {
        const files = given.every(kindOf) ? given : await this.#tune().then((tune) => tune.take(given), () => given);
        const { state } = this.#runtime, takes = { image: state.kind !== "ready" || state.sees, audio: state.kind !== "ready" || state.hears };
        for (const file of files) {
            const kind = kindOf(file);
            if (!kind) {
                void this.#load({ kind: "file", file });
            } else if (!takes[kind]) {
                this.#problem(`This model cannot ${kind === "image" ? "see pictures" : "hear sound"}.`);
            } else {
                await this.#attach(file, file.name, kind);
            }
        }
    }

    async #attach(file: Blob, name: string, kind: Attachment["kind"]): Promise<void> {
        try {
            this.#runtime.expect(kind);
            const attachment = await attach(file, name, kind, this.#shelf);
            this.#attachments.add(attachment);
            void this.#runtime.prepare(attachment, this.#shelf);
            this.#say(`${name} is attached`);
            page.prompt.focus();
        } catch (error) {
            this.#problem((error as Error).message);
        }
    }

    #problem(text: string): void {
        page.hello.hidden = true;
        this.#thread.notice(text);
    }

    #wireMedia(): void {
        page.attach.addEventListener("click", () => {
            page.files.click();
            this.#runtime.expect(page.files.accept.startsWith("image") ? "image" : "audio");
        });
        page.files.addEventListener("change", () => {
            this.#takes(this.#take([...(page.files.files ?? [])]));
            page.files.value = "";
        });
        document.addEventListener("paste", (event) => {
            const files = [...(event.clipboardData?.files ?? [])].filter(kindOf);
            if (!files.length || event.clipboardData?.types.includes("text/plain")) return;
            event.preventDefault();
            this.#takes(this.#take(files));
        });
        page.record.addEventListener("click", () => {
            if (this.#recorder.recording) this.#recorder.stop();
            else void this.#record();
            this.#runtime.expect("audio");
        });
    }

    async #record(): Promise<void> {
        const look = (recording: boolean): void => {
            page.record.setAttribute("aria-pressed", String(recording));
            this.#say(recording ? "Recording. Press again to end." : "The recording has ended");
        };
        try {
            const sound = await this.#recorder.record(() => look(true));
            look(false);
            this.#takes(this.#attach(sound, "Recording", "audio"));
        } catch (error) {
            this.#problem((error as Error).message);
        }
    }

    #stop(): void {
        if (!this.#answering) return;
        this.#answering.controller.abort();
        page.prompt.focus();
    }

    /* What empty fields of the settings mean. */
    #own(): Partial<Record<keyof Settings, number>> {
        const { state } = this.#runtime;
        return state.kind === "ready" ? { ...state.sampling, context: state.context } : {};
    }

    /* As high as the text; the style sheet knows how high it may become. */
    #grow(): void {
        page.prompt.style.height = "auto";
        page.prompt.style.height = `${page.prompt.scrollHeight + page.prompt.offsetHeight - page.prompt.clientHeight}px`;
    }

    #wireDrop(): void {
        const carriesFile = (event: DragEvent): boolean => event.dataTransfer?.types.includes("Files") ?? false;
        window.addEventListener("dragover", (event) => {
            if (!carriesFile(event)) return;
            event.preventDefault();
            if (!page.drop.hidden) return;
            page.drop.hidden = false;
            for (const item of event.dataTransfer?.items ?? []) {
                const kind = kindOf(item);
                if (kind) this.#runtime.expect(kind);
            }
        });
        window.addEventListener("dragleave", (event) => {
            if (!event.relatedTarget) page.drop.hidden = true;
        });
        window.addEventListener("drop", (event) => {
            page.drop.hidden = true;
            const files = [...(event.dataTransfer?.files ?? [])];
            if (!files.length) return;
            event.preventDefault();
            this.#takes(this.#take(files));
        });
    }
}

new App();
