/*
 * reference.ts - what the tests compare with: files of tests/data, read here without the engine.
 *
 * A small reader of GGUF, for whole files that are ours. Nothing of Node but in files.ts, since browsers run it too.
 */
import type { ByteSource } from "../src/engine.js";
import { readRepository } from "./files.js";

/** A file of the repository as a source; `cut`: only so many bytes of it. */
export function fileSource(path: string, cut?: number): ByteSource {
    const whole = readRepository(path);
    const bytes = cut === undefined ? whole : whole.subarray(0, cut);
    return bytesSource(path, bytes);
}

export function bytesSource(name: string, bytes: Uint8Array): ByteSource {
    return {
        name, size: bytes.length,
        read: async (offset, size) => {
            if (offset < 0 || offset + size > bytes.length) throw new Error(`${name}: a range outside`);
            return bytes.slice(offset, offset + size);
        },
    };
}

interface Tensor { shape: number[]; type: number; offset: number }

/** One prompt of the reference: logits from `first` on, and what greedy decoding adds. With media: its file, and its soft tokens. */
export interface ReferenceCase {
    tokens: Int32Array; first: number; logits: Float32Array; nVocab: number; greedy: Int32Array;
    /** With adapters: their names, and how much is taken of each. */
    adapters: string[]; scales: number[];
    file: string; soft: Float32Array;
}

type Value = string | number | (string | number)[];

/** A GGUF file of tests/data: its pairs, and its tensors, each of words. */
export interface Reference { pairs: Map<string, Value>; words(name: string): { shape: number[]; bytes: ArrayBuffer } }

export function openReference(path: string): Reference {
    const bytes = readRepository(`tests/data/${path}`), decoder = new TextDecoder();
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    let at = 4;
    const u32 = (): number => view.getUint32((at += 4) - 4, true);
    const u64 = (): number => Number(view.getBigUint64((at += 8) - 8, true));
    const text = (): string => {
        const size = u64();
        return decoder.decode(bytes.subarray(at, at += size));
    };
    const sizes: Record<number, number> = { 0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8 };
    const value = (type: number): Value => {
        if (type === 8) return text();
        if (type === 4) return u32();
        if (type === 10) return u64();
        if (type === 6) return view.getFloat32((at += 4) - 4, true);
        if (type === 9) {
            const of = u32();
            return Array.from({ length: u64() }, () => value(of) as string | number);
        }
        at += sizes[type] ?? 0;
        return 0;
    };
    u32(); // version
    const nTensor = u64(), nPair = u64();
    const pairs = new Map<string, Value>(), tensors = new Map<string, Tensor>();
    for (let i = 0; i < nPair; i++) {
        const key = text();
        pairs.set(key, value(u32()));
    }
    for (let i = 0; i < nTensor; i++) {
        const tensor = text(), shape = Array.from({ length: u32() }, u64), type = u32();
        tensors.set(tensor, { shape, type, offset: u64() });
    }
    const data = Math.ceil(at / 32) * 32;
    const words = (name: string): { shape: number[]; bytes: ArrayBuffer } => {
        const tensor = tensors.get(name);
        if (!tensor) throw new Error(`no ${name}`);
        const size = 4 * tensor.shape.reduce((a, b) => a * b, 1), start = bytes.byteOffset + data + tensor.offset;
        return { shape: tensor.shape, bytes: bytes.buffer.slice(start, start + size) as ArrayBuffer };
    };
    return { pairs, words };
}

/** The cases of tests/data/NAME.ref.gguf of that kind: "text", "image" or "audio". */
export function referenceCases(name: string, kind = "text"): ReferenceCase[] {
    const { pairs, words } = openReference(`${name}.ref.gguf`), cases: ReferenceCase[] = [];
    for (let i = 0; i < Number(pairs.get("cases")); i++) {
        if (pairs.get(`case.${i}.kind`) !== kind) continue;
        const logits = words(`case.${i}.logits`);
        cases.push({
            tokens: new Int32Array(words(`case.${i}.tokens`).bytes), first: Number(pairs.get(`case.${i}.logits_row`) ?? 0),
            logits: new Float32Array(logits.bytes), nVocab: logits.shape[0] ?? 0, greedy: new Int32Array(words(`case.${i}.greedy`).bytes),
            adapters: (pairs.get(`case.${i}.adapters`) ?? []) as string[], scales: (pairs.get(`case.${i}.scales`) ?? []) as number[],
            file: String(pairs.get(`case.${i}.${kind === "image" ? "resized" : kind}`)),
            soft: kind === "text" ? new Float32Array(0) : new Float32Array(words(`case.${i}.soft_tokens`).bytes),
        });
    }
    return cases;
}

/** The pixels of a PNG of 8 bits a channel, red, green and blue, that is not interlaced. */
export async function pngPixels(bytes: Uint8Array<ArrayBuffer>): Promise<{ rgb: Uint8Array; width: number; height: number }> {
    const view = new DataView(bytes.buffer, bytes.byteOffset), packed: Uint8Array<ArrayBuffer>[] = [];
    for (let at = 8; at < bytes.length; at += 12 + view.getUint32(at))
        if (view.getUint32(at + 4) === 0x49444154) packed.push(bytes.slice(at + 8, at + 8 + view.getUint32(at))); // IDAT
    const stream = new Blob(packed).stream().pipeThrough(new DecompressionStream("deflate"));
    const lines = new Uint8Array(await new Response(stream).arrayBuffer()), width = view.getUint32(16), height = view.getUint32(20), row = 3 * width;
    if (view.getUint32(24) >>> 16 !== 0x0802) throw new Error("a PNG of another kind");
    const rgb = new Uint8Array(row * height);
    for (let y = 0; y < height; y++) for (let i = 0; i < row; i++) {
        const at = y * row + i, left = i < 3 ? 0 : rgb[at - 3]!, up = y ? rgb[at - row]! : 0, corner = i < 3 || !y ? 0 : rgb[at - row - 3]!;
        const near = [left, up, corner].map((x) => Math.abs(left + up - corner - x)), paeth = near[0]! <= near[1]! && near[0]! <= near[2]! ? left : near[1]! <= near[2]! ? up : corner;
        rgb[at] = lines[y * (row + 1) + 1 + i]! + [0, left, up, left + up >> 1, paeth][lines[y * (row + 1)]!]!;
    }
    return { rgb, width, height };
}

/* GGUF's type numbers as the fixtures use them: elements and bytes of a block. */
const BLOCKS: Record<number, [number, number]> = { 0: [1, 4], 8: [32, 34] };

/** Parts one behind the other. */
export function concat(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
    const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of parts) {
        whole.set(part, at);
        at += part.length;
    }
    return whole;
}

function indexOf(bytes: Uint8Array, text: string): number {
    const wanted = new TextEncoder().encode(text);
    for (let at = 0; (at = bytes.indexOf(wanted[0]!, at)) >= 0; at++) if (wanted.every((byte, i) => bytes[at + i] === byte)) return at;
    throw new Error(`no ${text}`);
}

/* Bytes that are there: at `at` of the made file, those of the fixture from `from` on. All others are zero. */
interface Span { at: number; from: number; size: number }

/**
 * A model of any size that lies nowhere: dense-31b with feed-forward layers of `width`, whose new neurons have no weight.
 * So it answers as dense-31b does.
 */
export function wideSource(width: number): ByteSource {
    const bytes = readRepository("tests/data/dense-31b.gguf"), view = new DataView(bytes.buffer);
    const u64 = (at: number): number => Number(view.getBigUint64(at, true)), align = (n: number): number => Math.ceil(n / 32) * 32;
    const key = "gemma4.feed_forward_length", keyAt = indexOf(bytes, key) + key.length + 4, nTensor = u64(8);
    const old = view.getUint32(keyAt, true), infos = indexOf(bytes, "token_embd.weight") - 8; // the first tensor; pairs lie before it
    const tensors: { wide: Span[]; from: number; size: number; offset: number }[] = [];
    let at = infos, offset = 0;
    view.setUint32(keyAt, width, true);
    for (let i = 0; i < nTensor; i++) {
        const nameSize = u64(at), name = new TextDecoder().decode(bytes.subarray(at + 8, at += 8 + nameSize));
        const nDim = view.getUint32(at, true), dims = at + 4, from = u64(dims + 8 * nDim + 4), isWide = /ffn_(gate|up|down)\.weight/.test(name);
        const [count, block] = BLOCKS[view.getUint32(dims + 8 * nDim, true)] ?? [1, 4];
        const shape = Array.from({ length: nDim }, (_, k) => u64(dims + 8 * k)), row = (shape[0] ?? 0) / count * block;
        const rows = shape.slice(1).reduce((a, b) => a * b, 1), wide = shape.map((n) => isWide && n === old ? width : n);
        const wideRow = (wide[0] ?? 0) / count * block, size = wideRow * wide.slice(1).reduce((a, b) => a * b, 1);
        const spans = row === wideRow ? [{ at: 0, from: 0, size: row * rows }]
            : Array.from({ length: rows }, (_, k) => ({ at: k * wideRow, from: k * row, size: row }));
        wide.forEach((n, k) => view.setBigUint64(dims + 8 * k, BigInt(n), true));
        view.setBigUint64(dims + 8 * nDim + 4, BigInt(offset), true);
        tensors.push({ wide: spans, from, size, offset });
        offset += align(size);
        at = dims + 8 * nDim + 12;
    }
    const data = align(at), spans: Span[] = [{ at: 0, from: 0, size: at }];
    for (const t of tensors) for (const span of t.wide) spans.push({ at: data + t.offset + span.at, from: data + t.from + span.from, size: span.size });
    return {
        name: "a wide model", size: data + offset,
        read: async (start, size) => {
            const part = new Uint8Array(size);
            for (const span of spans) {
                const first = Math.max(span.at, start), end = Math.min(span.at + span.size, start + size);
                if (first < end) part.set(bytes.subarray(span.from + first - span.at, span.from + end - span.at), first - start);
            }
            return part;
        },
    };
}
