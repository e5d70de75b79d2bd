/*
 * pixels.ts - pictures as the engine takes them: red, green and blue, by the browser's own decoders, over white. Beside that a
 * name of contents, by which a host knows what it has encoded.
 */
import type { PlainMedia, PlainPicture } from "./calls.js";
import type { RgbPicture } from "./chat.js";
import { BerylError } from "./error.js";

/** Media as the module takes it: pixels, samples or a WAV file. */
export interface RawMedia { form: 0 | 1 | 2; bytes: Uint8Array; a: number; b: number }

const bytesOf = (view: ArrayBufferView): Uint8Array<ArrayBuffer> => new Uint8Array(view.buffer as ArrayBuffer, view.byteOffset, view.byteLength);

/** The contents' name. */
export async function contentName(media: PlainMedia, budget: number): Promise<string> {
    const { from } = media;
    const bytes = from instanceof Blob ? await from.arrayBuffer()
        : bytesOf(from instanceof Float32Array ? from : "rgb" in from ? from.rgb : "data" in from ? from.data : (await pixelsOf(from)).rgb);
    const hash = String.fromCharCode(...new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)));
    return `${media.kind === "audio" ? media.rate : `${budget} ${"width" in from ? `${from.width} ${from.height}` : ""}`} ${hash}`;
}

/** What the module is given. */
export async function rawMedia(media: PlainMedia): Promise<RawMedia> {
    if (media.kind === "image") {
        const { rgb, width, height } = await pixelsOf(media.from);
        return { form: 0, bytes: bytesOf(rgb), a: width, b: height };
    }
    const { from, rate } = media;
    if (from instanceof Float32Array) return { form: 1, bytes: bytesOf(from), a: from.length, b: rate };
    return { form: 2, bytes: new Uint8Array(await from.arrayBuffer()), a: from.size, b: 0 };
}

/** The picture in red, green and blue, over white. */
export async function pixelsOf(from: PlainPicture): Promise<RgbPicture> {
    if ("rgb" in from) {
        if (from.rgb.length !== 3 * from.width * from.height)
            throw new BerylError("BAD_INPUT", `${from.rgb.length} bytes are no picture of ${from.width} x ${from.height} in red, green and blue`);
        return from;
    }
    const { data, width, height } = "data" in from ? from : await drawn(from);
    const rgb = new Uint8Array(3 * width * height);
    for (let i = 0, k = 0; k < rgb.length; i += 4)
        for (let c = 0; c < 3; c++) rgb[k++] = (data[i + c]! * data[i + 3]! + 255 * (255 - data[i + 3]!) + 127) / 255;
    return { rgb, width, height };
}

async function drawn(from: Blob | ImageBitmap): Promise<ImageData> {
    if (typeof createImageBitmap !== "function" || typeof OffscreenCanvas !== "function")
        throw new BerylError("UNSUPPORTED", "picture files cannot be decoded here", "Give { rgb, width, height }.");
    try {
        const bitmap = from instanceof Blob ? await createImageBitmap(from) : from;
        const { width, height } = bitmap, context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true })!;
        context.fillStyle = "#fff";
        context.fillRect(0, 0, width, height);
        context.drawImage(bitmap, 0, 0);
        if (bitmap !== from) bitmap.close();
        return context.getImageData(0, 0, width, height);
    } catch (thrown) {
        throw new BerylError("BAD_INPUT", `the picture cannot be decoded: ${(thrown as Error).message}`);
    }
}
