/*
 * ranges.ts - what C reads from and writes to, when it asks.
 *
 * C asks for a range and is told "pending" until it is there; then it asks again with the same
 * numbers. Long reads go through blocks, some of them ahead, since weights are read nearly in the order of the file; short ones
 * are asked for as they are. A sink takes one piece at a time.
 */
import type { Bell } from "./gpu.js";
import { BerylError } from "./error.js";
import { release } from "./release.js";
import { statusNumber, STATUS } from "./status.js";

/** Bytes that answer ranges later: a file, an address, a blob. */
export interface ByteSource {
    /** Bytes of the whole. */
    readonly size: number;
    /** For messages. */
    readonly name: string;
    /** Exactly the bytes of [offset, offset + size), which always lie inside; they are the reader's own. `room`: a buffer of that size to take for them, or not. */
    read(offset: number, size: number, signal?: AbortSignal, room?: Uint8Array): Promise<Uint8Array>;
    close?(): void | Promise<void>;
}

const BLOCK = 4 << 20; // bytes: a piece of what is read from an address, which then need not be copied (source/url.ts)
const AHEAD = 2; // blocks
const SPARE = 1; // buffers of blocks that were read, for others
const SHORT = 64 << 10; // reads up to here are not rounded to blocks
const SHORTS = 64; // of them that are kept for who asked

interface Range { offset: number; size: number; bytes: Uint8Array | null; failure: BerylError | null }

/** A source as C sees it. */
export class SourceReader {
    /** What the source threw, once it did. */
    failure: BerylError | null = null;
    readonly #source: ByteSource;
    readonly #bell: Bell;
    readonly #stop = new AbortController();
    #blocks = new Map<number, Range>(); // by number
    readonly #short = new Map<string, Range>(); // by place, of several tasks
    readonly #spare: Uint8Array[] = [];
    #outstanding = 0;

    constructor(source: ByteSource, bell: Bell) {
        this.#source = source;
        this.#bell = bell;
    }

    /** Reads under way. */
    get outstanding(): number {
        return this.#outstanding;
    }

    /** Copies the range to `to`, or says PENDING. */
    read(offset: number, to: Uint8Array): number {
        const size = to.length, first = Math.floor(offset / BLOCK), last = Math.floor((offset + size - 1) / BLOCK);
        let whole = true;
        if (size <= SHORT && !this.#blocks.get(first)?.bytes) return this.#readShort(offset, to);
        for (let number = first; number <= Math.max(last, first + AHEAD) && number * BLOCK < this.#source.size; number++) { // of two that are read none more: the first one's memory serves then
            let block = this.#blocks.get(number);
            if (!block) {
                const start = number * BLOCK;
                block = this.#ask(start, Math.min(BLOCK, this.#source.size - start));
                this.#blocks.set(number, block);
            }
            if (number > last) continue;
            if (block.failure) return this.#fail(block.failure);
            whole &&= block.bytes !== null;
        }
        if (!whole) return STATUS.PENDING;
        for (let number = first; number <= last; number++) {
            const start = number * BLOCK, bytes = this.#blocks.get(number)?.bytes;
            if (!bytes) return STATUS.IO;
            const from = Math.max(offset, start), end = Math.min(offset + size, start + bytes.length);
            to.set(bytes.subarray(from - start, end - start), from - offset);
        }
        for (const [number, { bytes }] of this.#blocks) {
            if (number >= last && number <= last + 2 * AHEAD) continue;
            this.#blocks.delete(number);
            if (bytes) this.#keep(bytes);
        }
        return STATUS.OK;
    }

    close(): void {
        this.#stop.abort();
        this.#blocks.clear();
        this.#spare.length = 0;
        void this.#source.close?.();
    }

    #keep(bytes: Uint8Array): void {
        if (bytes.length === BLOCK && this.#spare.length < SPARE) this.#spare.push(bytes);
        else release(bytes);
    }

    #readShort(offset: number, to: Uint8Array): number {
        const place = `${offset} ${to.length}`, range = this.#short.get(place) ?? this.#ask(offset, to.length);
        this.#short.set(place, range);
        if (!range.failure && !range.bytes) {
            for (const [other, { bytes }] of this.#short) if (bytes && this.#short.size > SHORTS) this.#short.delete(other); // whose task has ended
            return STATUS.PENDING;
        }
        this.#short.delete(place);
        if (!range.bytes) return this.#fail(range.failure ?? new BerylError("IO", `${this.#source.name} gave nothing at ${offset}`));
        to.set(range.bytes);
        release(range.bytes);
        return STATUS.OK;
    }

    #fail(failure: BerylError): number {
        this.failure = failure;
        return statusNumber(failure.status);
    }

    #ask(offset: number, size: number): Range {
        const range: Range = { offset, size, bytes: null, failure: null };
        this.#outstanding++;
        const read = async (): Promise<void> => {
            try {
                const room = size === BLOCK ? this.#spare.pop() : undefined, bytes = await this.#source.read(offset, size, this.#stop.signal, room);
                if (room && room !== bytes) this.#keep(room); // or what its way has left of it
                if (bytes.length === size) range.bytes = bytes;
                else range.failure = new BerylError("IO", `${this.#source.name}: ${bytes.length} bytes came of ${size} at ${offset}`, undefined, offset);
            } catch (thrown) {
                range.failure = BerylError.from(thrown);
            }
            this.#outstanding--;
            this.#bell.ring();
        };
        void read();
        return range;
    }
}

/** A function that takes pieces, as C sees it. */
export class SinkWriter {
    failure: BerylError | null = null;
    readonly #write: (chunk: Uint8Array) => void | Promise<void>;
    readonly #bell: Bell;
    #state: "free" | "busy" | "taken" = "free";

    constructor(write: (chunk: Uint8Array) => void | Promise<void>, bell: Bell) {
        this.#write = write;
        this.#bell = bell;
    }

    get outstanding(): number {
        return this.#state === "busy" ? 1 : 0;
    }

    /** Takes a copy of the bytes; PENDING until they are written. */
    write(bytes: Uint8Array): number {
        if (this.failure) return statusNumber(this.failure.status);
        if (this.#state === "busy") return STATUS.PENDING;
        if (this.#state === "taken") {
            this.#state = "free";
            return STATUS.OK;
        }
        this.#state = "busy";
        const run = async (): Promise<void> => {
            try {
                await this.#write(bytes.slice());
            } catch (thrown) {
                this.failure = BerylError.from(thrown);
            }
            this.#state = "taken";
            this.#bell.ring();
        };
        void run();
        return STATUS.PENDING;
    }
}
