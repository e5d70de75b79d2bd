/*
 * reference.ts - what the tests compare with: files of tests/data, read here without the engine.
 *
 * A small reader of GGUF, for whole files that are ours.
 */
import { readFileSync } from "node:fs";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { ByteSource } from "../src/engine.js";

/** Tests are run from app/web, wherever their JavaScript lies. */
export function repository(path: string): string {
    return fileURLToPath(new URL(`../../${path}`, pathToFileURL(`${process.cwd()}/`)));
}

/** A file of the repository as a source; `cut`: only so many bytes of it. */
export function fileSource(path: string, cut?: number): ByteSource {
    const whole = readFileSync(repository(path));
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

/** One text of the reference: a prompt, logits from `first` on, and what greedy decoding adds. */
export interface ReferenceCase { tokens: Int32Array; first: number; logits: Float32Array; nVocab: number; greedy: Int32Array }

/** The text cases of tests/data/NAME.ref.gguf. */
export function referenceCases(name: string): ReferenceCase[] {
    const bytes = readFileSync(repository(`tests/data/${name}.ref.gguf`));
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    let at = 4;
    const u32 = (): number => view.getUint32((at += 4) - 4, true);
    const u64 = (): number => Number(view.getBigUint64((at += 8) - 8, true));
    const text = (): string => {
        const size = u64();
        return bytes.subarray(at, at += size).toString("utf8");
    };
    const sizes: Record<number, number> = { 0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8 };
    const value = (type: number): string | number => {
        if (type === 8) return text();
        if (type === 4) return u32();
        if (type === 10) return u64();
        at += sizes[type] ?? 0;
        return 0;
    };
    u32(); // version
    const nTensor = u64(), nPair = u64();
    const pairs = new Map<string, string | number>(), tensors = new Map<string, Tensor>();
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
    const cases: ReferenceCase[] = [];
    for (let i = 0; i < Number(pairs.get("cases")); i++) {
        if (pairs.get(`case.${i}.kind`) !== "text") continue;
        const logits = words(`case.${i}.logits`);
        cases.push({
            tokens: new Int32Array(words(`case.${i}.tokens`).bytes), first: Number(pairs.get(`case.${i}.logits_row`)),
            logits: new Float32Array(logits.bytes), nVocab: logits.shape[0] ?? 0, greedy: new Int32Array(words(`case.${i}.greedy`).bytes),
        });
    }
    return cases;
}

/* GGUF's type numbers as the fixtures use them: elements and bytes of a block. */
const BLOCKS: Record<number, [number, number]> = { 0: [1, 4], 8: [32, 34] };

/**
 * A model of any size that lies nowhere: dense-31b with feed-forward layers of `width`, every byte of its tensors 0x3c.
 * It loads, and means nothing.
 */
export function largeSource(width: number): ByteSource {
    const bytes = readFileSync(repository("tests/data/dense-31b.gguf"));
    const key = "gemma4.feed_forward_length", keyAt = bytes.indexOf(key);
    const old = bytes.readUInt32LE(keyAt + key.length + 4), nTensor = Number(bytes.readBigUInt64LE(8));
    let at = bytes.indexOf("token_embd.weight") - 8; // the first tensor; pairs lie before it
    const head: Buffer[] = [Buffer.from(bytes.subarray(0, at))];
    head[0]!.writeUInt32LE(width, keyAt + key.length + 4);
    let offset = 0;
    for (let i = 0; i < nTensor; i++) {
        const start = at, nameSize = Number(bytes.readBigUInt64LE(at));
        const name = bytes.toString("utf8", at + 8, at += 8 + nameSize), nDim = bytes.readUInt32LE(at);
        const info = Buffer.from(bytes.subarray(start, at + 4 + 8 * nDim + 12)), dims = at - start + 4;
        at = start + info.length;
        let elements = 1;
        for (let k = 0; k < nDim; k++) {
            if (/ffn_(gate|up|down)\.weight/.test(name) && info.readBigUInt64LE(dims + 8 * k) === BigInt(old))
                info.writeBigUInt64LE(BigInt(width), dims + 8 * k);
            elements *= Number(info.readBigUInt64LE(dims + 8 * k));
        }
        const [count, size] = BLOCKS[info.readUInt32LE(dims + 8 * nDim)] ?? [1, 4];
        info.writeBigUInt64LE(BigInt(offset), dims + 8 * nDim + 4);
        offset += Math.ceil(elements / count * size / 32) * 32;
        head.push(info);
    }
    const whole = Buffer.concat(head), data = Math.ceil(whole.length / 32) * 32;
    return {
        name: "a large model", size: data + offset,
        read: async (from, size) => {
            const part = new Uint8Array(size).fill(0x3c);
            if (from < data) part.fill(0, 0, data - from);
            if (from < whole.length) part.set(whole.subarray(from, Math.min(whole.length, from + size)));
            return part;
        },
    };
}
