/**
 * media.ts - pictures and sound on the page: what is attached to a message, how it looks, and where it is kept.
 * Owns the store of files, which conversations name by id, and the list in the composer. The model never hears of it here.
 */
import { createStore, delMany, get, keys, set, type UseStore } from "idb-keyval";
import { button, el, fill } from "./dom";
import { newId, type Attachment, type Message } from "./store";

const THUMB = 320; // pixels of a thumbnail's longer side
const BARS = 40; // of a waveform
const CLIP = 30; // seconds that a model takes at once
const OLD = 3_600_000; // milliseconds from which on a file that nobody names is removed: another tab may be about to name it

/** Files by id. Storage that is refused leaves them for this visit. */
export class Shelf {
    readonly #here = new Map<string, Blob>();
    #store: UseStore | null = null;

    constructor() {
        try {
            this.#store = createStore("beryl-media", "files");
        } catch {
            /* for this visit alone */
        }
    }

    put(id: string, file: Blob): void {
        this.#here.set(id, file);
        if (this.#store) set(id, file, this.#store).catch(() => undefined);
    }

    /** The same Blob each time: what is made of it is made once. */
    async get(id: string): Promise<Blob | undefined> {
        const found = this.#here.get(id) ?? (this.#store && (await get<Blob>(id, this.#store).catch(() => undefined)));
        if (found) this.#here.set(id, found);
        return found ?? undefined;
    }

    /** Removes what no message names. */
    async sweep(messages: readonly Message[]): Promise<void> {
        if (!this.#store) return;
        const named = new Set(messages.flatMap(({ media = [] }) => media.map(({ id }) => id)));
        const all = await keys<string>(this.#store).catch((): string[] => []);
        const gone = all.filter((id) => !named.has(id) && !(Date.now() - parseInt(id, 36) < OLD));
        await delMany(gone, this.#store).catch(() => undefined);
        for (const id of gone) this.#here.delete(id);
    }
}

/** What a file may be attached as; null: neither a picture nor sound. */
export function kindOf({ type }: { type: string }): Attachment["kind"] | null {
    return type.startsWith("image/") ? "image" : type.startsWith("audio/") ? "audio" : null;
}

/** Looks into a file. Throws a sentence where the browser cannot decode it. */
export async function attach(file: Blob, name: string, kind: Attachment["kind"], shelf: Shelf): Promise<Attachment> {
    const attachment: Attachment = { id: `${Date.now().toString(36)}-${newId()}`, kind, name };
    try {
        if (kind === "image") attachment.thumb = await thumbOf(file);
        else Object.assign(attachment, await waveOf(file));
    } catch {
        throw new Error(`${name} cannot be decoded by this browser.`);
    }
    shelf.put(attachment.id, file);
    return attachment;
}

async function thumbOf(file: Blob): Promise<Blob> {
    const bitmap = await createImageBitmap(file), scale = Math.min(1, THUMB / Math.max(bitmap.width, bitmap.height));
    const canvas = el("canvas", { width: Math.max(1, Math.round(bitmap.width * scale)), height: Math.max(1, Math.round(bitmap.height * scale)) });
    canvas.getContext("2d")?.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    bitmap.close();
    return await new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error())), "image/webp", 0.8));
}

async function waveOf(file: Blob): Promise<{ seconds: number; peaks: number[] }> {
    const buffer = await new OfflineAudioContext(1, 1, 16_000).decodeAudioData(await file.arrayBuffer());
    const samples = buffer.getChannelData(0), step = samples.length / BARS;
    const peaks = Array.from({ length: BARS }, (_, i) => samples.subarray(i * step, (i + 1) * step).reduce((most, x) => Math.max(most, Math.abs(x)), 0));
    const most = Math.max(...peaks, 0.01);
    return { seconds: buffer.duration, peaks: peaks.map((x) => Math.round((100 * x) / most)) };
}

/** "3.2 s", and what becomes of long sound. */
function lengthText(seconds: number): string {
    return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s${seconds > CLIP ? `, in ${Math.ceil(seconds / CLIP)} clips` : ""}`;
}

function waveform(peaks: readonly number[]): SVGElement {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), path = document.createElementNS(svg.namespaceURI, "path");
    svg.setAttribute("viewBox", `0 0 ${4 * peaks.length} 40`);
    svg.setAttribute("class", "wave");
    svg.setAttribute("aria-hidden", "true");
    path.setAttribute("d", peaks.map((x, i) => `M${4 * i + 2} ${20 - Math.max(1, x * 0.18)}v${Math.max(2, x * 0.36)}`).join(""));
    svg.append(path);
    return svg;
}

const urls = new WeakMap<Blob, string>();

function urlOf(blob: Blob): string {
    const url = urls.get(blob) ?? URL.createObjectURL(blob);
    urls.set(blob, url);
    return url;
}

/** A thumbnail, or a waveform that can be listened to. */
export function preview(attachment: Attachment, shelf: Shelf): HTMLElement {
    const { kind, name, thumb, seconds = 0, peaks = [] } = attachment;
    const figure = el("figure", { className: `media ${kind}` });
    if (kind === "image" && thumb) {
        figure.append(el("img", { src: urlOf(thumb), alt: name }));
        return figure;
    }
    let sound: HTMLAudioElement | null = null;
    const play = button("▶", () => {
        if (sound && !sound.paused) return sound.pause();
        void (async () => {
            const blob = await shelf.get(attachment.id);
            if (!blob) return;
            sound ??= el("audio", { src: urlOf(blob), on: { play: () => (play.textContent = "⏸"), pause: () => (play.textContent = "▶") } });
            await sound.play().catch(() => undefined);
        })();
    }, "quiet small");
    play.setAttribute("aria-label", `Play ${name}`);
    figure.append(play, waveform(peaks), el("figcaption", { className: "small dim", title: name }, lengthText(seconds)));
    return figure;
}

/** What is attached to the message that is being written. */
export class Attachments {
    #all: Attachment[] = [];

    constructor(
        private readonly list: HTMLElement,
        private readonly shelf: Shelf,
        private readonly emptied: () => void,
    ) {}

    get length(): number {
        return this.#all.length;
    }

    add(attachment: Attachment): void {
        this.#all.push(attachment);
        this.#show();
    }

    /** Gives them away. */
    take(): Attachment[] {
        const all = this.#all;
        this.#all = [];
        this.#show();
        return all;
    }

    #show(): void {
        this.list.hidden = !this.#all.length;
        fill(this.list, ...this.#all.map((attachment, i) => {
            const remove = button("✕", () => {
                this.#all.splice(i, 1);
                this.#show();
                const next = this.list.querySelectorAll<HTMLElement>(".remove")[Math.min(i, this.#all.length - 1)];
                if (next) next.focus();
                else this.emptied();
            }, "remove small");
            remove.setAttribute("aria-label", `Remove ${attachment.name}`);
            return el("li", {}, preview(attachment, this.shelf), remove);
        }));
    }
}

/** Sound from the microphone, up to what a model takes at once. */
export class Recorder {
    #recorder: MediaRecorder | null = null;

    static get possible(): boolean {
        return typeof MediaRecorder === "function" && typeof (navigator.mediaDevices as MediaDevices | undefined)?.getUserMedia === "function";
    }

    get recording(): boolean {
        return this.#recorder !== null;
    }

    /** Until `stop`. Throws a sentence where there is none, or it is not allowed. began: it records now. */
    async record(began: () => void): Promise<Blob> {
        const stream = await navigator.mediaDevices.getUserMedia({ audio: true }).catch((thrown: unknown) => {
            const { name } = thrown as Error;
            throw new Error(name === "NotAllowedError" ? "The microphone was not allowed: the browser’s settings for this page can allow it." : "No microphone was found.");
        });
        const recorder = (this.#recorder = new MediaRecorder(stream)), parts: Blob[] = [];
        recorder.addEventListener("dataavailable", ({ data }) => parts.push(data));
        const ended = new Promise((resolve) => recorder.addEventListener("stop", resolve));
        const timer = setTimeout(() => this.stop(), CLIP * 1000);
        recorder.start();
        began();
        await ended;
        clearTimeout(timer);
        this.#recorder = null;
        for (const track of stream.getTracks()) track.stop();
        return new Blob(parts, { type: recorder.mimeType });
    }

    stop(): void {
        if (this.#recorder?.state === "recording") this.#recorder.stop();
    }
}
