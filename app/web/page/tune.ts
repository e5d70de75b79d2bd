/**
 * tune.ts - adapters and fine-tuning: the panel with data, loss and what came of it, and the list of adapters in the settings.
 * Fetched when it is first asked for. Owns which adapters the model answers with; they are its, so another model has none.
 */
import { BerylError, type Adapter, type FullModel, type TrainingReport, type TrainingSession } from "beryl-gpu";
import { button, el, field, fill, numberInput, type NumberField } from "./dom";
import { Runtime } from "./runtime";
import type { Settings } from "./store";

export interface TuneActions {
    /** Tells in a line what was done. */
    say(text: string): void;
    /** Tells what went wrong. */
    problem(text: string): void;
}

interface Held {
    name: string;
    adapter: Adapter;
    scale: number;
}

interface TuneField extends NumberField<"rank" | "epochs" | "rate" | "accumulate"> {
    value: number;
}

const FIELDS: readonly TuneField[] = [
    { key: "epochs", label: "Epochs", hint: "How often each example is seen.", value: 3, min: 1, max: 1000 },
    { key: "rate", label: "Learning rate", hint: "Higher learns faster, too high breaks the model.", value: 0.001, min: 0.0000001, max: 1 },
    { key: "rank", label: "Rank", hint: "How much the adapter can hold.", value: 16, min: 1, max: 1024 },
    { key: "accumulate", label: "Examples a step", hint: "More is steadier, and slower.", value: 4, min: 1, max: 10000 },
];

const TOGETHER = 8;
const WIDTH = 320, HEIGHT = 120, SVG = "http://www.w3.org/2000/svg";
const CHECKED = 4096; // bytes of a file in which it says what it is

/* GGUF files say near their beginning that they are adapters. */
async function isAdapter(file: File): Promise<boolean> {
    if (/\.safetensors$/i.test(file.name)) return true;
    return /\.gguf$/i.test(file.name) && /general\.type.{12}adapter|adapter\.lora\.alpha/s.test(new TextDecoder("latin1").decode(await file.slice(0, CHECKED).arrayBuffer()));
}

function timeLeft(seconds: number): string {
    return seconds < 90 ? `${Math.ceil(seconds)} s left` : `${Math.ceil(seconds / 60)} min left`;
}

export class Tune {
    readonly #dialog: HTMLDialogElement;
    readonly #runtime: Runtime;
    readonly #settings: Settings;
    readonly #actions: TuneActions;
    #model: FullModel | null = null; // whose adapters these are
    #held: Held[] = [];
    #data: File | null = null;
    #training: TrainingSession | null = null;
    #result: Held | null = null;
    #losses: number[] = [];
    #running = false;
    #stopping = false;
    readonly #fields = new Map<string, HTMLInputElement>();
    readonly #dataName = el("p", { className: "dim small" });
    readonly #problem = el("p", { className: "notice", hidden: true, attributes: { role: "alert" } });
    readonly #progress = el("p", { className: "small", attributes: { role: "status" } });
    readonly #bar = el("progress", { max: 1, value: 0, hidden: true, attributes: { "aria-label": "Training" } });
    readonly #curve = document.createElementNS(SVG, "svg");
    readonly #files = el("div");
    readonly #start = button("Start", () => void this.#run(), "primary");
    readonly #stop = button("Stop", () => this.#halt());

    constructor(dialog: HTMLDialogElement, runtime: Runtime, settings: Settings, actions: TuneActions) {
        this.#dialog = dialog;
        this.#runtime = runtime;
        this.#settings = settings;
        this.#actions = actions;
        this.#build();
    }

    /** Opens the panel; the chat goes on beside it. */
    open(): void {
        if (!this.#dialog.open) this.#dialog.show();
        this.#draw();
        this.#fields.get("data")?.focus();
    }

    /** Takes from dropped files what it knows, and gives the others back. */
    async take(files: readonly File[]): Promise<File[]> {
        const kinds = await Promise.all(files.map(async (file) => (await isAdapter(file)) ? "adapter" : /\.jsonl$/i.test(file.name) ? "data" : /\.json$/i.test(file.name) ? "config" : ""));
        const data = files.find((_, i) => kinds[i] === "data"), configs = files.filter((_, i) => kinds[i] === "config");
        if (data) {
            this.#take(data);
            this.open();
        }
        for (const file of files.filter((_, i) => kinds[i] === "adapter")) await this.#add(file, configs);
        return files.filter((_, i) => kinds[i] === "");
    }

    /** The adapters that are in use, for the settings; null: none are. */
    list(): HTMLElement | null {
        if (this.#model !== this.#runtime.model || !this.#held.length) return null;
        const rows = el("ul", { className: "list" }, ...this.#held.map((held) => {
            const scale = el("input", { type: "number", step: "any", value: String(held.scale), attributes: { "aria-label": `How much of ${held.name}` } });
            scale.addEventListener("change", () => {
                const value = Number(scale.value);
                held.scale = scale.value !== "" && Number.isFinite(value) ? value : 1;
                scale.value = String(held.scale);
                void this.#apply();
            });
            const remove = button("✕", () => {
                this.#held = this.#held.filter((other) => other !== held);
                row.remove();
                void this.#apply().then(() => held.adapter.close()).catch(() => undefined);
            }, "quiet small danger");
            remove.setAttribute("aria-label", `Remove ${held.name}`);
            const row = el("li", {}, el("span", { className: "name" }, held.name), scale, remove);
            return row;
        }));
        return el("div", { className: "field adapters" }, el("h3", {}, "Adapters"), rows, el("span", { className: "dim small" }, "The model answers with them, each so much. 1 is all of it."));
    }

    // ---- adapters ----

    /* The model with what this file needs; what was held of another is gone. */
    async #whole(): Promise<FullModel> {
        const model = await this.#runtime.whole(this.#settings);
        if (model !== this.#model) {
            this.#held = [];
            this.#training = null;
            this.#result = null;
        }
        return (this.#model = model);
    }

    async #add(file: File, configs: readonly File[]): Promise<void> {
        try {
            const model = await this.#whole(), config = configs.find(({ name }) => name === "adapter_config.json") ?? configs[0];
            const adapter = await model.openAdapter(config ? [file, config] : file);
            this.#held.push({ name: file.name, adapter, scale: 1 });
            await this.#apply();
            this.#actions.say(`${file.name} is loaded: the model answers with it`);
        } catch (thrown) {
            const { message, hint } = Runtime.explain(thrown);
            this.#actions.problem(`${file.name} was not loaded: ${message} ${hint}`.trim());
        }
    }

    async #apply(): Promise<void> {
        await this.#model?.setAdapters(this.#held.map(({ adapter, scale }) => ({ adapter, scale }))).catch((thrown: unknown) => this.#actions.problem(Runtime.explain(thrown).message));
    }

    // ---- training ----

    #take(file: File): void {
        if (this.#running) return;
        this.#data = file;
        this.#draw();
    }

    #build(): void {
        const data = el("input", { type: "file", accept: ".jsonl,.json,.txt", id: "tune-data" });
        data.addEventListener("change", () => {
            if (data.files?.[0]) this.#take(data.files[0]);
        });
        this.#fields.set("data", data);
        const close = button("✕", () => this.#dialog.close(), "quiet", "Close");
        close.setAttribute("aria-label", "Close fine-tuning");
        this.#curve.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
        this.#curve.setAttribute("class", "curve");
        this.#curve.setAttribute("role", "img");
        this.#dialog.addEventListener("keydown", (event) => {
            if (event.key !== "Escape") return;
            event.preventDefault();
            this.#dialog.close();
        });
        fill(
            this.#dialog,
            el("div", { className: "dialog-head" }, el("h2", { id: "tune-title" }, "Fine-tune"), close),
            el("p", { className: "dim small" }, "Teaches the loaded model from examples of yours, on this machine. What comes of it is an adapter: a small file beside the model."),
            el("div", { className: "field" }, el("label", { htmlFor: "tune-data" }, "Examples"), data,
                el("span", { className: "dim small" }, "A line each: {\"prompt\": …, \"completion\": …}, {\"messages\": […]} or {\"text\": …}; or plain text. Can also be dropped on the page."), this.#dataName),
            el("div", { className: "pairs" }, ...FIELDS.map((f) => {
                const input = numberInput(f, String(f.value));
                this.#fields.set(f.key, input);
                return field(`tune-${f.key}`, f.label, f.hint, input);
            })),
            el("div", { className: "row" }, this.#start, this.#stop),
            this.#problem, this.#progress, this.#bar, this.#curve, this.#files,
        );
    }

    #value({ key, min, max, value }: TuneField): number {
        const given = Number(this.#fields.get(key)?.value), whole = key === "rate" ? given : Math.round(given);
        return whole >= min && whole <= max ? whole : value;
    }

    #halt(): void {
        this.#stopping = true;
        this.#progress.textContent = "Stopping after this step…";
    }

    #draw(): void {
        const { report } = this.#training ?? {}, goesOn = report !== undefined && report.step < report.steps;
        this.#dataName.textContent = this.#data ? `Chosen: ${this.#data.name}` : "";
        this.#start.textContent = goesOn ? "Go on" : "Start";
        this.#start.disabled = this.#running || !this.#data;
        this.#stop.disabled = !this.#running;
        for (const input of this.#fields.values()) input.disabled = this.#running || goesOn;
        this.#curve.toggleAttribute("hidden", this.#losses.length === 0);
        this.#drawCurve();
    }

    #drawCurve(): void {
        const losses = this.#losses, steps = Math.max(2, this.#training?.report.steps ?? losses.length), most = Math.max(...losses, 0.01);
        const points = losses.map((loss, i) => `${((i * WIDTH) / (steps - 1)).toFixed(1)},${(HEIGHT - 4 - (loss / most) * (HEIGHT - 12)).toFixed(1)}`);
        const line = document.createElementNS(SVG, "polyline"), ground = document.createElementNS(SVG, "path");
        line.setAttribute("points", points.join(" "));
        ground.setAttribute("d", `M0 ${HEIGHT - 4}H${WIDTH}`);
        fill(this.#curve, ground, line);
        const [first = 0] = losses, last = losses.at(-1) ?? 0;
        this.#curve.setAttribute("aria-label", `Loss by steps: from ${first.toFixed(2)} to ${last.toFixed(2)} in ${losses.length}`);
    }

    #told({ step, steps, loss, tokens, seconds }: TrainingReport): void {
        this.#losses.push(loss);
        this.#bar.value = step / steps;
        this.#progress.textContent = `Step ${step} of ${steps} · loss ${loss.toFixed(3)} · ${(tokens / Math.max(seconds, 1e-3)).toFixed(0)} tokens/s${step < steps ? ` · ${timeLeft((steps - step) * seconds)}` : ""}`;
        this.#draw();
    }

    async #begin(): Promise<TrainingSession> {
        const model = await this.#whole();
        if (this.#result) { // of an earlier training: it stays in the list
            this.#result.name = `${this.#result.name}, earlier`;
            this.#result = null;
        }
        this.#losses = [];
        fill(this.#files);
        const { accumulate = 1, ...numbers } = Object.fromEntries(FIELDS.map((f) => [f.key, this.#value(f)])), data = this.#data!;
        const together = Math.min(accumulate & -accumulate, TOGETHER); // examples of a pass: faster, and more memory
        const begun = (batch: number): Promise<TrainingSession> => model.train({ data, ...numbers, batch, accumulate: accumulate / batch });
        const training = await begun(together).catch((thrown: unknown) => {
            if (BerylError.from(thrown).status !== "NO_DEVICE_MEMORY") throw thrown;
            return begun(1);
        });
        this.#result = { name: `Fine-tuned on ${this.#data!.name}`, adapter: training.adapter, scale: 1 };
        this.#held.push(this.#result);
        await this.#apply();
        return training;
    }

    async #run(): Promise<void> {
        if (this.#running) return;
        this.#running = true;
        this.#stopping = false;
        this.#problem.hidden = true;
        this.#bar.hidden = false;
        this.#progress.textContent = "Getting ready: the first step takes longest…";
        this.#draw();
        try {
            const training = this.#training ??= await this.#begin();
            this.#draw();
            while (!this.#stopping && training.report.step < training.report.steps) this.#told(await training.step());
            const ended = training.report.step === training.report.steps;
            this.#progress.textContent = `${ended ? "Done" : "Stopped"} after ${training.report.step} of ${training.report.steps} steps. The model answers with what it has learned: ask it.`;
            await this.#offer(training);
            if (ended) {
                await training.close();
                this.#training = null;
            }
            this.#actions.say(ended ? "Fine-tuning is done" : "Fine-tuning is stopped");
        } catch (thrown) {
            const { message, hint } = Runtime.explain(thrown);
            this.#problem.textContent = `${message} ${hint}`.trim();
            this.#problem.hidden = false;
            this.#progress.textContent = "";
            if (this.#runtime.model !== this.#model) this.#training = null; // another model took its place
        } finally {
            this.#running = false;
            this.#bar.hidden = true;
            this.#draw();
        }
    }

    /* What was learned so far, as files. */
    async #offer(training: TrainingSession): Promise<void> {
        const files = [...(await training.save("peft")), ...(await training.save("gguf"))];
        const link = (file: File): HTMLElement => el("a", { href: URL.createObjectURL(file), download: file.name }, file.name);
        fill(
            this.#files,
            el("h3", {}, "The adapter"),
            el("ul", { className: "list" }, ...files.map((file) => el("li", {}, link(file), el("span", { className: "dim small" }, file.name.endsWith(".gguf") ? "for llama.cpp and this page" : "for PEFT")))),
        );
    }
}
