/**
 * thread.ts - the conversation as one sees it: messages, the answer while it is written, and what may be done with each.
 * Owns the elements inside the log; the conversation itself belongs to main.ts, which is told what was asked for.
 */
import { button, el, fill } from "./dom";
import { render } from "./markdown";
import type { Figures, Message } from "./store";

export interface ThreadActions {
    /** Answer again what message `index` (an answer) answered. */
    retry(index: number): void;
    /** Message `index` (a question) is to become `text`, and be answered. */
    edit(index: number, text: string): void;
}

const ENDED: Record<NonNullable<Message["ended"]>, string> = {
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

    constructor(
        private readonly log: HTMLElement,
        private readonly scroller: HTMLElement,
        private readonly actions: ThreadActions,
    ) {
        scroller.addEventListener("scroll", () => {
            this.#follows = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 80;
        });
    }

    /** Draws the conversation anew. busy: the last message is being written. */
    show(messages: readonly Message[], busy: boolean): void {
        this.#live = null;
        fill(this.log, ...messages.map((m, i) => this.#row(m, i, busy && i === messages.length - 1, busy)));
        this.log.setAttribute("aria-busy", String(busy));
        this.follow(true);
    }

    /** The last message has more text. */
    changed(): void {
        this.#live?.changed();
    }

    /** A notice below the messages, until the next show. */
    notice(text: string, hint: string, again?: () => void): void {
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

    #row(message: Message, index: number, live: boolean, busy: boolean): HTMLElement {
        return message.role === "user" ? this.#question(message, index, busy) : this.#answer(message, index, live, busy);
    }

    #question(message: Message, index: number, busy: boolean): HTMLElement {
        const row = el("article", { className: "message user", attributes: { "aria-label": "You" } });
        const shown = el("div", { className: "bubble" }, message.content);
        const tools = el("div", { className: "tools" });
        if (!busy) tools.append(button("Edit", () => this.#edit(row, message, index), "quiet small", "Change this message and answer it again"));
        fill(row, shown, tools);
        return row;
    }

    #edit(row: HTMLElement, message: Message, index: number): void {
        const before = [...row.childNodes];
        const close = (): void => {
            row.replaceChildren(...before);
            row.querySelector("button")?.focus();
        };
        const area = el("textarea", { value: message.content, rows: 3, attributes: { "aria-label": "Your message" } });
        const save = (): void => {
            const text = area.value.trim();
            if (text) this.actions.edit(index, text);
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
        fill(row, area, el("div", { className: "tools" }, button("Send", save, "primary small"), button("Cancel", close, "quiet small")));
        area.focus();
        area.setSelectionRange(area.value.length, area.value.length);
    }

    #answer(message: Message, index: number, live: boolean, busy: boolean): HTMLElement {
        const row = el("article", { className: "message model", attributes: { "aria-label": "Model" } });
        const text = el("div", { className: "text" });
        const thought = el("details", { className: "thought", hidden: !message.thought }, el("summary", {}, thoughtSummary(message, live)), el("div", {}, message.thought ?? ""));
        if (message.content) fill(text, render(message.content));
        else if (live) fill(text, el("span", { className: "waiting", attributes: { role: "img", "aria-label": "Waiting for the answer" } }));
        row.append(thought, text);
        if (live) {
            this.#live = new Live(message, row, text, thought, () => this.follow());
            return row;
        }
        if (message.ended) row.append(el("p", { className: "dim small" }, ENDED[message.ended]));
        const copy = button("Copy", () => {
            navigator.clipboard.writeText(message.content).then(
                () => (copy.textContent = "Copied"),
                () => (copy.textContent = "Not allowed"),
            );
        }, "quiet small", "Copy this answer");
        const retry = button("Retry", () => this.actions.retry(index), "quiet small", "Answer again");
        const figures = message.figures ? el("span", { className: "dim small figures" }, figuresText(message.figures)) : null;
        if (!busy) row.append(el("div", { className: "tools" }, copy, retry, figures));
        return row;
    }
}
