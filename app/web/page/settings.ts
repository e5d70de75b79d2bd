/**
 * settings.ts - the panel with system prompt, sampling and looks. Changes are told at once; 0 and an empty field mean the
 * model's own default.
 */
import { button, el, field, fill, numberInput, type NumberField } from "./dom";
import type { Settings } from "./store";

interface SettingField extends NumberField<"temperature" | "topK" | "topP" | "minP" | "maxTokens" | "context"> {
    step: number;
}

const FIELDS: readonly SettingField[] = [
    { key: "temperature", label: "Temperature", hint: "Lower is soberer. Empty: the model’s own.", min: 0.01, max: 5, step: 0.05 },
    { key: "topK", label: "Top k", hint: "Only the k likeliest words. Empty: the model’s own.", min: 1, max: 256, step: 1 },
    { key: "topP", label: "Top p", hint: "Only the likeliest words that together reach p.", min: 0.01, max: 1, step: 0.01 },
    { key: "minP", label: "Min p", hint: "Only words at least p times as likely as the likeliest. Empty: off.", min: 0.001, max: 1, step: 0.01 },
    { key: "maxTokens", label: "Longest answer, tokens", hint: "Empty: until it is done.", min: 1, max: 131072, step: 1 },
    { key: "context", label: "Context, tokens", hint: "How much of a conversation the model sees. More takes more memory. The model is loaded anew.", min: 64, max: 131072, step: 64 },
];

function labelled(label: string, hint: string, input: HTMLElement): HTMLElement {
    return field(`set-${label.toLowerCase().replace(/\W+/g, "-")}`, label, hint, input);
}

function numberField(settings: Settings, f: SettingField, own: Partial<Record<keyof Settings, number>>, changed: (key: keyof Settings) => void): HTMLElement {
    const input = numberInput(f, settings[f.key] ? String(settings[f.key]) : "", own[f.key] === undefined ? "" : String(Number(own[f.key]?.toFixed(3))));
    input.addEventListener("change", () => {
        const value = input.value === "" ? 0 : Math.min(f.max, Math.max(f.min, Number(input.value)));
        if (!Number.isFinite(value)) return;
        settings[f.key] = f.step === 1 || f.step === 64 ? Math.round(value) : value;
        input.value = settings[f.key] ? String(settings[f.key]) : "";
        changed(f.key);
    });
    return labelled(f.label, f.hint, input);
}

/** Fills the panel and opens it. own: what an empty field means with the loaded model. `changed` is told which setting has a new value. */
export function settingsOpen(dialog: HTMLDialogElement, settings: Settings, own: Partial<Record<keyof Settings, number>>, changed: (key: keyof Settings) => void): void {
    const system = el("textarea", { rows: 4, value: settings.system });
    system.addEventListener("change", () => {
        settings.system = system.value.trim();
        changed("system");
    });
    const think = el("input", { type: "checkbox", checked: settings.think, id: "set-think" });
    think.addEventListener("change", () => {
        settings.think = think.checked;
        changed("think");
    });
    const theme = el(
        "select",
        {},
        ...(["auto", "light", "dark"] as const).map((value) =>
            el("option", { value, selected: settings.theme === value }, { auto: "As the system", light: "Light", dark: "Dark" }[value]),
        ),
    );
    theme.addEventListener("change", () => {
        settings.theme = theme.value === "light" || theme.value === "dark" ? theme.value : "auto";
        changed("theme");
    });
    fill(
        dialog,
        el("div", { className: "dialog-head" }, el("h2", { id: "settings-title" }, "Settings"), button("✕", () => dialog.close(), "quiet", "Close")),
        labelled("System prompt", "What the model is told before every conversation.", system),
        el("div", { className: "check" }, think, el("label", { htmlFor: "set-think" }, "Let the model think first. Its thoughts are folded away.")),
        ...FIELDS.map((f) => numberField(settings, f, own, changed)),
        labelled("Looks", "Light, dark, or as the system is set.", theme),
    );
    dialog.querySelector(".dialog-head button")?.setAttribute("aria-label", "Close the settings");
    dialog.showModal();
}
