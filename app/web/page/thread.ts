/**
 * thread.ts - the conversation as one sees it: messages, the answer while it is written, and what may be done with each.
 * Owns the elements inside the log; the conversation itself belongs to main.ts, which is told what was asked for.
 */
import { button, el, fill } from "./dom";
import { render } from "./markdown";
import type { Attachment, Figures, Message } from "./store";

export interface ThreadActions {
    /** Answer again: what this answer answered, or this question. */
    retry(message: Message): void;
    /** This question is to become `text`, and be answered. */
    edit(question: Message, text: string): void;
    /** Write on where this answer ended. */
    goOn(answer: Message): void;
    /** Whether another tab is writing this answer. */
    elsewhere(answer: Message): boolean;
    /** How a picture or sound looks. */
    preview(attachment: Attachment): HTMLElement;
}

const ENDED: Record<NonNullable<Message["ended"]>, string> = {
    open: "The page was closed before the answer ended.",
    stopped: "Stopped.",
    length: "Ended at the length that is set.",
    context: "The context is full: begin a new conversation, or allow a longer context in the settings.",
    failed: "The answer broke off.",
};

/** "41 tok/s, first word after 0.3 s". */
export function figuresText(f: Figures): string {
    const reused = f.nReused > 0 ? `, ${f.nReused} kept` : "";
    return `${f.tokensPerSecond.toFixed(1)} tokens/s · first after ${f.firstTokenSeconds.toFixed(1)} s · prompt ${f.nPrompt} tokens${reused}`;
}

function thoughtSummary(message: Message, live: boolean): string {
    if (live && !message.content) return "Thinking…";
    return message.thoughtSeconds ? `Thought for ${message.thoughtSeconds.toFixed(0)} s` : "Thought";
}

/** The answer that is being written: drawn at most once a frame, less often when it is long. */
class Live {
    #due = 0;
    constructor(
        private readonly message: Message,
        readonly node: HTMLElement,
        private readonly text: HTMLElement,
        private readonly thought: HTMLDetailsElement,
        private readonly drawn: () => void,
    ) {}

    changed(): void {
        if (this.#due) return;
        const wait = Math.min(400, this.message.content.length / 100);
        this.#due = window.setTimeout(() => requestAnimationFrame(() => this.draw()), wait);
    }

    draw(): void {
        clearTimeout(this.#due);
        this.#due = 0;
        const { thought = "", content } = this.message;
        this.thought.hidden = !thought;
        if (thought) {
            const summary = this.thought.querySelector("summary");
            if (summary) summary.textContent = thoughtSummary(this.message, true);
            const body = this.thought.querySelector("div");
            if (body) body.textContent = thought;
        }
        if (content) fill(this.text, render(content));
        this.drawn();
    }
}

export class Thread {
    #live: Live | null = null;
    #follows = true;
    #shown = "";

    constructor(
        private readonly log: HTMLElement,
        private readonly scroller: HTMLElement,
        private readonly actions: ThreadActions,
    ) {
        scroller.addEventListener("scroll", () => {
            this.#follows = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 80;
        });
    }

    /** Draws the conversation anew. writing: the answer that is being written. */
    show(messages: readonly Message[], writing: Message | null): void {
        this.#live = null;
        this.#shown = this.#look(messages, writing);
        fill(this.log, ...messages.map((m, i) => this.#row(m, i === messages.length - 1, writing)));
        this.log.setAttribute("aria-busy", String(writing !== null));
        this.follow(true);
    }

    /** Draws it again if another tab has changed it, unless a message is being edited here. */
    refresh(messages: readonly Message[], writing: Message | null): void {
        if (this.#look(messages, writing) === this.#shown || this.log.querySelector("textarea")) return;
        const followed = this.#follows, at = this.scroller.scrollTop;
        this.show(messages, writing);
        if (!followed) this.scroller.scrollTop = at;
    }

    /* All by which two drawings of a conversation differ. */
    #look(messages: readonly Message[], writing: Message | null): string {
        return JSON.stringify(messages.map((m) => (m === writing ? m.id : [m.id, m.content, m.media?.length, m.thought, m.ended, this.actions.elsewhere(m)])));
    }

    /** The answer that is being written has more text. */
    changed(): void {
        this.#live?.changed();
    }

    /** What the answer waits for. */
    waits(what: string): void {
        const shown = this.#live?.node.querySelector(".waits");
        if (shown) shown.textContent = what;
    }

    /** A notice below the messages, until the next show or another notice. */
    notice(text: string, hint = "", again?: () => void): void {
        this.log.querySelector(".notice")?.remove();
        this.log.append(
            el(
                "div",
                { className: "notice", attributes: { role: "alert" } },
                el("p", {}, text),
                hint ? el("p", { className: "dim" }, hint) : null,
                again ? button("Try again", again, "primary") : null,
            ),
        );
        this.follow(true);
    }

    follow(always = false): void {
        if (always || this.#follows) this.scroller.scrollTop = this.scroller.scrollHeight;
    }

    #row(message: Message, last: boolean, writing: Message | null): HTMLElement {
        return message.role === "user" ? this.#question(message, last, writing !== null) : this.#answer(message, last, writing);
    }

    #question(message: Message, last: boolean, busy: boolean): HTMLElement {
        const row = el("article", { className: "message user" });
        const media = message.media?.length ? el("div", { className: "attached" }, ...message.media.map((one) => this.actions.preview(one))) : null;
        const shown = message.content || !media ? el("div", { className: "bubble" }, message.content) : null;
        const tools = el("div", { className: "tools" });
        if (!busy) tools.append(button("Edit", () => this.#edit(row, message), "quiet small", "Change this message and answer it again"));
        if (!busy && last) tools.append(button("Retry", () => this.actions.retry(message), "quiet small", "Answer this message"));
        fill(row, heading("You"), media, shown, tools);
        return row;
    }

    #edit(row: HTMLElement, message: Message): void {
        const before = [...row.childNodes];
        const close = (): void => {
            row.replaceChildren(...before);
            row.querySelector("button")?.focus();
        };
        const area = el("textarea", { value: message.content, rows: 3, attributes: { "aria-label": "Your message" } });
        const save = (): void => {
            const text = area.value.trim();
            if (text || message.media?.length) this.actions.edit(message, text);
        };
        area.addEventListener("keydown", (event) => {
            if (event.key === "Escape") {
                event.stopPropagation();
                close();
            }
            if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
                event.preventDefault();
                save();
            }
        });
        fill(row, heading("You"), area, el("div", { className: "tools" }, button("Send", save, "primary small"), button("Cancel", close, "quiet small")));
        area.focus();
        area.setSelectionRange(area.value.length, area.value.length);
    }

    #answer(message: Message, last: boolean, writing: Message | null): HTMLElement {
        const live = message === writing;
        const row = el("article", { className: "message model" });
        const text = el("div", { className: "text" });
        const thought = el("details", { className: "thought", hidden: !message.thought }, el("summary", {}, thoughtSummary(message, live)), el("div", {}, message.thought ?? ""));
        if (message.content) fill(text, render(message.content));
        else if (live) fill(text, el("span", { className: "waiting", attributes: { role: "img", "aria-label": "Waiting for the answer" } }), el("span", { className: "waits dim small" }));
        row.append(heading("Model"), thought, text);
        if (live) {
            this.#live = new Live(message, row, text, thought, () => this.follow());
            return row;
        }
        if (this.actions.elsewhere(message)) {
            row.append(el("p", { className: "dim small" }, "Another tab is writing this answer."));
            return row;
        }
        if (message.ended) row.append(el("p", { className: "dim small" }, ENDED[message.ended]));
        const copy = button("Copy", () => {
            navigator.clipboard.writeText(message.content).then(
                () => (copy.textContent = "Copied"),
                () => (copy.textContent = "Not allowed"),
            );
        }, "quiet small", "Copy this answer");
        const retry = button("Retry", () => this.actions.retry(message), "quiet small", "Answer again");
        const cut = last && message.content && message.ended && message.ended !== "context";
        const goOn = cut ? button("Go on", () => this.actions.goOn(message), "quiet small", "Write on from here") : null;
        const figures = message.figures ? el("span", { className: "dim small figures" }, figuresText(message.figures)) : null;
        const tools = el("div", { className: "tools" });
        fill(tools, message.content ? copy : null, goOn, retry, figures);
        if (!writing) row.append(tools);
        return row;
    }
}

/* For those who go from message to message by ear. */
function heading(text: string): HTMLElement {
    return el("h2", { className: "hidden" }, text);
}
