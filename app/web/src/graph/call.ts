/*
 * call.ts - calls of beryl_graph.h by the words of ops.ts: arguments to numbers and memory, and what comes back to numbers.
 *
 * Owns the layout of lists, dimensions and structures in the module's memory, which each call takes for itself and gives back.
 * What cannot be such an argument is refused before the call; what the numbers mean is C's to judge.
 */
import { BerylError } from "../error.js";
import { ENUMS, STRUCTS, TYPES } from "./ops.js";

/** A dimension as C has it: an extent's number, 0 for a constant. */
export interface PlainDim { size: number; extent: number }

/** Memory of the module. */
export interface Heap { readonly memory: WebAssembly.Memory; take(size: number): number; give(at: number): void }

/** What a call gave: value handles, a dimension, an extent's number; then its further results in order. */
export interface Given { first: number | PlainDim; more: (number | number[])[] }

type Arg = number | bigint;

const encoder = new TextEncoder();

function refuse(what: string): never {
    throw new BerylError("MISUSE", what, "");
}

function whole(value: unknown, least: number, most: number, what: string): number {
    if (typeof value !== "number" || !Number.isInteger(value) || value < least || value > most)
        refuse(`${what} must be a whole number from ${least} to ${most}, not ${String(value)}`);
    return value as number;
}

const u32 = (value: unknown, what: string): number => whole(value, 0, 2 ** 32 - 1, what);

function placeOf(value: unknown, words: readonly string[], what: string): number {
    const at = words.indexOf(value as string);
    return at >= 0 ? at : refuse(`${what} must be one of ${words.join(", ")}, not ${String(value)}`);
}

/** The number of a type's name. */
export function typeNumber(type: unknown): number {
    return placeOf(type, TYPES, "a type");
}

function listOf(value: unknown, what: string): readonly unknown[] {
    return Array.isArray(value) ? value as unknown[] : refuse(`${what} must be a list`);
}

/** Makes a call: `fn` by `words`, after the graph; `handle` and `dim` read values and dimensions. */
export function callBy(heap: Heap, fn: (...args: Arg[]) => unknown, graph: number, name: string, words: readonly string[], given: readonly unknown[],
    handle: (value: unknown, what: string) => number, dim: (value: unknown, what: string) => PlainDim): Given {
    const taken: number[] = [], args: Arg[] = [], outs: { at: number; n: number; list: boolean }[] = [];
    const place = (bytes: Uint8Array): number => {
        const at = heap.take(bytes.length + 8);
        if (!at) throw new BerylError("NO_MEMORY", `no memory for ${bytes.length} bytes`);
        taken.push(at);
        new Uint8Array(heap.memory.buffer, at, bytes.length).set(bytes);
        return at;
    };
    const placeWords = (numbers: readonly number[]): number => place(new Uint8Array(Uint32Array.from(numbers).buffer));
    const dimWords = (value: unknown, what: string): number[] => {
        const { size, extent } = dim(value, what);
        return [size, extent];
    };
    const structure = (kind: string, value: unknown, what: string): Uint8Array => {
        const fields = STRUCTS[kind]!, bytes = new Uint8Array(4 * fields.length), view = new DataView(bytes.buffer);
        const from: Record<string, unknown> = { ...kind === "window" && { size: 0, stride: 1, dilation: 1 }, ...value as object };
        for (const key of Object.keys(from)) if (!fields.some(([field]) => field === key)) refuse(`${what} has no \`${key}\``);
        let at = 0;
        for (const [field, word] of fields) {
            const one = from[field] ?? undefined, label = `${what}.${field}`;
            if (word === "b") {
                bytes[at++] = one ? 1 : 0;
                continue;
            }
            at = Math.ceil(at / 4) * 4;
            if (one !== undefined) {
                if (word === "f") view.setFloat32(at, Number(one), true);
                else view.setUint32(at, word === "v" ? handle(one, label) : word === "u" ? u32(one, label)
                    : word === "i" ? whole(one, -(2 ** 31), 2 ** 31 - 1, label) : placeOf(one, ENUMS[word.slice(2)]!, label), true);
            }
            at += 4;
        }
        return bytes;
    };
    const own = words[1] === "v" ? 1 : 0; // a method's own value is no argument of it
    let next = 0, count = 0;
    try {
        const gives = words[0], to = gives === "d" ? placeWords([0, 0]) : 0;
        if (to) args.push(to);
        args.push(graph);
        for (const word of words.slice(1)) {
            const [kind, detail = ""] = word.split(":");
            if (kind === "o" || kind === "R") {
                const n = kind === "o" ? 1 : whole(count, 0, 65_535, `the number of results of ${name}`), at = placeWords(Array<number>(n).fill(0));
                outs.push({ at, n, list: kind === "R" });
                args.push(at);
                continue;
            }
            const value = given[next], what = `argument ${++next - own} of ${name}`;
            switch (kind) {
            case "v": args.push(handle(value, what)); break;
            case "n": args.push(value === null || value === undefined ? 0 : handle(value, what)); break;
            case "V": case "L": {
                const handles = listOf(value, what).map((one, i) => handle(one, `${what}, [${i}]`));
                if (kind === "L" && handles.length !== count) refuse(`${what} must be a list of ${count}`);
                count = handles.length;
                args.push(...kind === "V" ? [count] : [], placeWords(handles));
                break;
            }
            case "D": {
                const dims = listOf(value, what).flatMap((one, i) => dimWords(one, `${what}, [${i}]`));
                args.push(dims.length / 2, placeWords(dims));
                break;
            }
            case "A": case "a": {
                const numbers = (value === undefined && kind === "a" ? [] : listOf(value, what)).map((one, i) => u32(one, `${what}, [${i}]`));
                count = numbers.length;
                const at = placeWords(numbers);
                args.push(...kind === "A" ? [count, at] : [at, count]);
                break;
            }
            case "m": {
                const numbers = value === null || value === undefined ? null : listOf(value, what).map((one, i) => u32(one, `${what}, [${i}]`));
                if (numbers && numbers.length !== count) refuse(`${what} must be a list of ${count}`);
                args.push(numbers ? placeWords(numbers) : 0);
                break;
            }
            case "W": {
                const windows = listOf(value, what).map((one, i) => structure("window", one, `${what}, [${i}]`));
                count = windows.length;
                const bytes = new Uint8Array(20 * count);
                windows.forEach((one, i) => bytes.set(one, 20 * i));
                args.push(count, place(bytes));
                break;
            }
            case "S": args.push(value === undefined ? 0 : place(structure(detail, value, what))); break;
            case "s":
                if (typeof value !== "string") refuse(`${what} must be text`);
                args.push(place(encoder.encode(`${(value as string).replaceAll("\0", "")}\0`)));
                break;
            case "d": args.push(placeWords(dimWords(value, what))); break;
            case "u": args.push(count = u32(value, what)); break;
            case "i": args.push(whole(value, -(2 ** 31), 2 ** 31 - 1, what)); break;
            case "f":
                if (typeof value !== "number") refuse(`${what} must be a number`);
                args.push(value as number);
                break;
            case "b": args.push(value ? 1 : 0); break;
            case "q": args.push(BigInt.asUintN(64, typeof value === "bigint" ? value : BigInt(whole(value, 0, Number.MAX_SAFE_INTEGER, what)))); break;
            case "t": args.push(typeNumber(value)); break;
            case "e": args.push(value === undefined ? 0 : placeOf(value, ENUMS[detail]!, what)); break;
            }
        }
        if (given.length > next) refuse(`${name} takes ${next - own} arguments`);
        const result = fn(...args), view = new DataView(heap.memory.buffer);
        const word = (at: number): number => view.getUint32(at, true);
        return {
            first: to ? { size: word(to), extent: word(to + 4) } : typeof result === "number" ? result >>> 0 : 0,
            more: outs.map(({ at, n, list }) => list ? Array.from({ length: n }, (_, i) => word(at + 4 * i)) : word(at)),
        };
    } finally {
        for (const at of taken) heap.give(at);
    }
}
