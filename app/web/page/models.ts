/**
 * models.ts - the dialog in which a model is chosen: the built-in one, a file, an address, or one kept from before.
 */
import { button, el, fill } from "./dom";
import { showBytes, type Choice, type Kept } from "./runtime";

export interface ModelActions {
    choose(choice: Choice): void;
    kept(): Promise<Kept[]>;
    remove(kept: Kept): Promise<void>;
    /** Asks the browser not to clear what is kept; false: it would not promise. */
    persist(): Promise<boolean>;
}

function keptRow(dialog: HTMLDialogElement, kept: Kept, actions: ModelActions, redraw: () => void): HTMLElement {
    const part = kept.complete ? "" : ` · ${Math.floor((100 * kept.stored) / Math.max(1, kept.size))} % there`;
    const use = button(kept.complete ? "Use" : "Go on", () => {
        dialog.close();
        actions.choose({ kind: "url", url: kept.url });
    }, "small");
    const remove = button("Delete", () => void actions.remove(kept).then(redraw), "quiet small danger");
    remove.setAttribute("aria-label", `Delete ${kept.title}`);
    use.setAttribute("aria-label", `${kept.complete ? "Use" : "Go on loading"} ${kept.title}`);
    const file = kept.title === kept.name ? "" : `${kept.name} · `;
    return el("li", {}, el("span", { className: "name" }, kept.title, el("br"), el("span", { className: "dim small" }, `${file}${showBytes(kept.stored)}${part}`)), use, remove);
}

async function drawKept(dialog: HTMLDialogElement, list: HTMLElement, actions: ModelActions): Promise<void> {
    const all = await actions.kept().catch((): Kept[] => []);
    const redraw = (): void => void drawKept(dialog, list, actions);
    if (!all.length) {
        fill(list, el("p", { className: "dim small" }, "None yet. A model from an address is kept here after its first use and then works offline."));
        return;
    }
    const promise = button("Ask the browser to keep these for good", () => {
        void actions.persist().then((granted) => {
            promise.textContent = granted ? "The browser promised to keep them" : "The browser may clear them when space is short";
            promise.disabled = true;
        });
    }, "quiet small");
    fill(list, el("ul", { className: "list" }, ...all.map((kept) => keptRow(dialog, kept, actions, redraw))), promise);
}

/** Fills the dialog and opens it. current: how the loaded model is called. */
export function modelsOpen(dialog: HTMLDialogElement, current: string, actions: ModelActions): void {
    const choose = (choice: Choice): void => {
        dialog.close();
        actions.choose(choice);
    };
    const file = el("input", { type: "file", accept: ".gguf", id: "model-file" });
    file.addEventListener("change", () => {
        const chosen = file.files?.[0];
        if (chosen) choose({ kind: "file", file: chosen });
    });
    const url = el("input", { type: "url", id: "model-url", required: true });
    const sha = el("input", { type: "text", id: "model-sha", pattern: "[0-9a-fA-F]{64}", spellcheck: false });
    const form = el(
        "form",
        {
            on: {
                submit: (event: SubmitEvent) => {
                    event.preventDefault();
                    const sha256 = sha.value.trim().toLowerCase();
                    choose(sha256 ? { kind: "url", url: url.value.trim(), sha256 } : { kind: "url", url: url.value.trim() });
                },
            },
        },
        el("div", { className: "field" }, el("label", { htmlFor: "model-url" }, "Address of a GGUF file"), url),
        el("div", { className: "field" }, el("label", { htmlFor: "model-sha" }, "Its SHA-256, to be checked as it arrives (may be left empty)"), sha),
        el("button", { type: "submit", className: "primary" }, "Load"),
    );
    const kept = el("div");
    fill(
        dialog,
        el("div", { className: "dialog-head" }, el("h2", { id: "models-title" }, "Models"), button("✕", () => dialog.close(), "quiet", "Close")),
        el("p", { className: "dim small" }, current ? `In use: ${current}` : "No model is loaded."),
        el("h3", {}, "Built in"),
        el("ul", { className: "list" }, el("li", {}, el("span", { className: "name" }, "Beryl’s small model", el("br"), el("span", { className: "dim small" }, "12 MB, tells short stories: to see that everything works")), button("Use", () => choose({ kind: "builtin" }), "small"))),
        el("h3", {}, "From this machine"),
        el("div", { className: "field" }, el("label", { htmlFor: "model-file" }, "A Gemma 4 GGUF file: read straight from the disk, not copied. It can also be dropped anywhere on the page."), file),
        el("h3", {}, "From the net"),
        form,
        el("h3", {}, "Kept in this browser"),
        kept,
    );
    dialog.querySelector(".dialog-head button")?.setAttribute("aria-label", "Close the list of models");
    void drawKept(dialog, kept, actions);
    dialog.showModal();
}
