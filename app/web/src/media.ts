/*
 * media.ts - pictures and sound of messages, from what a caller gives to what can be posted to a host.
 *
 * Owns reading of addresses and, since workers have no AudioContext, decoding of sound: at the rate that its file has, so that
 * the engine alone resamples. WAV files go as they are. Refuses what this place cannot decode, by its name. Pictures are decoded
 * by the host (pixels.ts).
 */
import type { PlainMedia, PlainPicture } from "./calls.js";
import type { ContentPart, MediaPart, Message, PictureSource, SoundSource } from "./chat.js";
import { BerylError } from "./error.js";
import { orAborted, type Progress } from "./source/source.js";

const CLIP = 30; // seconds of sound that a model takes at once
const REST = 0.1; // seconds behind the last whole clip that are left out
const SPEECH = 16_000; // samples a second, of samples that come without a rate
const USUAL = 48_000; // of files that do not tell

type Sound = Extract<PlainMedia, { kind: "audio" }>;

/** What has been fetched and decoded: one file is read once. Freed with its owner. */
export class Gathered {
    readonly #fetched = new Map<string, Promise<Blob>>();
    readonly #decoded = new WeakMap<Blob, Promise<Sound[]>>();

    /** A conversation for the engine, with a place for each of the media. */
    async messages(messages: readonly Message[], signal?: AbortSignal, tell?: (progress: Progress) => void): Promise<{ messages: object[]; media: PlainMedia[] }> {
        const media: PlainMedia[] = [], plain: object[] = [];
        for (const message of messages) {
            if (!hasParts(message)) {
                plain.push(message);
                continue;
            }
            const content: object[] = [];
            for (const part of message.content) {
                const found = part.type === "text" ? null : await this.part(part, signal, tell);
                content.push(...found ? found.map(({ kind }) => ({ type: kind })) : [part]);
                media.push(...found ?? []);
            }
            plain.push({ ...message, content });
        }
        return { messages: plain, media };
    }

    /** One part: a picture, or one or more clips. */
    async part(part: MediaPart, signal?: AbortSignal, tell?: (progress: Progress) => void): Promise<PlainMedia[]> {
        const found = this.#part(part);
        const media = await orAborted(found, signal).catch((thrown: unknown) => { throw BerylError.from(thrown, "BAD_INPUT"); });
        if (media.length > 1) tell?.({ what: `sound longer than ${CLIP} s: read in ${media.length} clips`, done: 0, total: media.length });
        return media;
    }

    async #part(part: MediaPart): Promise<PlainMedia[]> {
        if (part.type === "image") return [{ kind: "image", from: await this.#picture(part.image) }];
        if (part.type === "image_url") {
            const { image_url: at } = part;
            return [{ kind: "image", from: await this.#picture(typeof at === "string" ? at : at.url) }];
        }
        return part.type === "audio" ? await this.#sound(part.audio, part.sampleRate) : await this.#sound(`data:;base64,${part.input_audio.data}`);
    }

    async #picture(from: PictureSource): Promise<PlainPicture> {
        if (typeof from === "string" || from instanceof URL) return await this.#fetch(from);
        if (from instanceof Blob || "rgb" in from || "data" in from) return from;
        if (typeof createImageBitmap !== "function") throw undecoded("pictures");
        return await createImageBitmap(from);
    }

    async #sound(from: SoundSource, rate = SPEECH): Promise<Sound[]> {
        if (from instanceof Float32Array) return clips(from, rate);
        if (typeof from === "object" && "getChannelData" in from) return clips(mixed(from), from.sampleRate);
        const blob = from instanceof Blob ? from : await this.#fetch(from);
        let found = this.#decoded.get(blob);
        if (!found) this.#decoded.set(blob, found = decode(blob));
        return await found;
    }

    #fetch(at: string | URL): Promise<Blob> {
        const url = String(at);
        let found = this.#fetched.get(url);
        if (!found) {
            this.#fetched.set(url, found = read(url));
            found.catch(() => this.#fetched.delete(url));
        }
        return found;
    }
}

/** Whether a message's content is a list of parts. */
export function hasParts(message: Message): message is Message & { content: readonly ContentPart[] } {
    return message.role !== "tool" && Array.isArray(message.content);
}

function undecoded(what: string): BerylError {
    return new BerylError("UNSUPPORTED", `${what} of this kind cannot be decoded here`,
        "Without a browser's decoders there are { rgb, width, height }, Float32Array and WAV.");
}

/* Data is read here: a content security policy may keep a page from fetching it. */
async function read(url: string): Promise<Blob> {
    const data = /^data:[^,]*;base64,/.exec(url);
    if (data) return new Blob([Uint8Array.from(atob(url.slice(data[0].length)), (letter) => letter.charCodeAt(0))]);
    const response = await fetch(url).catch((thrown: unknown) => { throw BerylError.from(thrown); });
    if (!response.ok) throw new BerylError("NOT_FOUND", `${url}: ${response.status} ${response.statusText}`);
    return await response.blob();
}

/* ---- sound -------------------------------------------------------------------------------------------------- */

function clips(samples: Float32Array, rate: number): Sound[] {
    const all: Sound[] = [], step = CLIP * rate;
    for (let at = 0; at === 0 || samples.length - at > REST * rate; at += step) all.push({ kind: "audio", from: samples.slice(at, at + step), rate });
    return all;
}

function mixed(buffer: AudioBuffer): Float32Array {
    const n = buffer.numberOfChannels, sum = buffer.getChannelData(0).slice();
    for (let c = 1; c < n; c++) buffer.getChannelData(c).forEach((x, i) => { sum[i]! += x; });
    return n > 1 ? sum.map((x) => x / n) : sum;
}

async function decode(blob: Blob): Promise<Sound[]> {
    const bytes = await blob.arrayBuffer(), view = new DataView(bytes), mark = nameAt(view, 0);
    if (mark === "RIFF") return wavClips(blob, view);
    if (typeof OfflineAudioContext !== "function") throw undecoded("sound");
    const rate = rateOf(view, mark);
    return clips(mixed(await new OfflineAudioContext(1, 1, rate >= 8000 && rate <= 96_000 ? rate : USUAL).decodeAudioData(bytes)), rate);
}

function nameAt(view: DataView, at: number): string {
    return at + 4 <= view.byteLength ? String.fromCharCode(...new Uint8Array(view.buffer, at, 4)) : "";
}

/* A header before each stretch of data: more than there is, it says, and the engine reads to the end. */
function wavClips(blob: Blob, view: DataView): Sound[] {
    let step = 0;
    for (let at = 12; at + 24 <= view.byteLength; at += 8 + view.getUint32(at + 4, true) + 1 & ~1) {
        const name = nameAt(view, at), start = at + 8, end = Math.min(view.byteLength, start + view.getUint32(at + 4, true));
        if (name === "fmt ") step = CLIP * view.getUint32(at + 12, true) * view.getUint16(at + 20, true);
        if (name !== "data" || !step || end - start <= step) continue;
        const all: Sound[] = [];
        for (let from = start; end - from > step / CLIP * REST; from += step)
            all.push({ kind: "audio", from: new Blob([blob.slice(0, start), blob.slice(from, Math.min(end, from + step))]), rate: 0 });
        return all;
    }
    return [{ kind: "audio", from: blob, rate: 0 }];
}

/* Samples a second, as the first header says: FLAC's STREAMINFO, the identification of Vorbis, a frame of MPEG audio. */
function rateOf(view: DataView, mark: string): number {
    const byte = (at: number): number => at < view.byteLength ? view.getUint8(at) : 0;
    if (mark === "fLaC") return byte(18) << 12 | byte(19) << 4 | byte(20) >> 4;
    if (mark === "OggS") return nameAt(view, 29) === "vorb" && view.byteLength > 44 ? view.getUint32(40, true) : USUAL;
    const start = mark.startsWith("ID3") ? 10 + (byte(6) << 21 | byte(7) << 14 | byte(8) << 7 | byte(9)) : 0;
    if (byte(start) !== 255 || byte(start + 1) < 224) return USUAL;
    const version = byte(start + 1) >> 3 & 3; // 3: MPEG 1, 2: MPEG 2, 0: MPEG 2.5
    return ([44_100, 48_000, 32_000][byte(start + 2) >> 2 & 3] ?? USUAL) / (version === 3 ? 1 : version === 2 ? 2 : 4);
}
