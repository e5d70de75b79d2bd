/*
 * pieces.ts - the bytes of one answer, as they arrive.
 *
 * Owns the reading of a stream and the watch over it. Where the host can, bytes are read into one buffer again and again: few
 * large pieces, little for the collector. The one idea: a stream that stands still, or that nobody wants any more, is cancelled, and a
 * read that is under way then ends; so no read needs a timer, a race or a listener of its own.
 */
import { BerylError } from "../error.js";
import { release } from "../release.js";

/** Bytes that are read at once at most. */
const MOST = 1 << 20;

/* Whatever a read brings, it leaves a kilobyte for the collector, and Chromium has one for each 64 KiB of a fast stream. In so many milliseconds
 * ten times as much comes, and its pipe has room for it. A page's own thread may not stand still. */
const PAUSE = 0.3;
let pause = (): unknown => undefined;
try {
    const cell = new Int32Array(new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true }).buffer);
    Atomics.wait(cell, 0, 0, 0);
    pause = () => Atomics.wait(cell, 0, 0, PAUSE);
} catch { /* then without */ }

/** A stream's reader. Bytes that it gives hold until the next read where `lends`. */
export class Pieces {
    readonly lends: boolean;
    #room = new Uint8Array(0); // detached while a read has it
    readonly #own: ReadableStreamBYOBReader | null = null;
    readonly #given: ReadableStreamDefaultReader<Uint8Array> | null = null;
    #whole = true; // the last read has filled what it was given

    constructor(stream: ReadableStream<Uint8Array>) {
        try {
            this.#own = stream.getReader({ mode: "byob" });
        } catch { // no stream of bytes
            this.#given = stream.getReader();
        }
        this.lends = this.#own !== null;
    }

    /** The next bytes, of streams that can say so at most that many; null: there are no more. `room`, of streams that lend: memory to take, to fill
     *  (a browser may give it back before) and to give back with them in it; it is lost where the stream breaks. */
    async read(most = MOST, room?: Uint8Array): Promise<Uint8Array | null> {
        if (this.#given) {
            const { value } = await this.#given.read();
            return value ?? null;
        }
        const size = Math.max(Math.min(most, MOST), 1);
        if (!room && this.#room.length < size) this.#room = new Uint8Array(size);
        if (!this.#whole) pause();
        const { value, done } = await this.#own!.read((room as Uint8Array<ArrayBuffer> | undefined ?? this.#room).subarray(0, size));
        if (value && !room) this.#room = new Uint8Array(value.buffer);
        this.#whole = value?.length === size;
        return done || !value || value.length === 0 ? null : value;
    }

    /** Ends it; what was lent is given back. */
    cancel(): void {
        (this.#own ?? this.#given)!.cancel().catch(() => undefined).then(() => release(this.#room));
    }
}

/** Ends a reader that stands still for `stall` milliseconds, or when the signal is aborted. */
export class Watch {
    #why: Error | null = null;
    #since = 0; // when the read that is under way began; 0: none
    readonly #timer: ReturnType<typeof setInterval>;
    readonly #reader: Pieces;
    readonly #signal: AbortSignal | undefined;
    readonly #abort = (): void => this.#stop(new BerylError("CANCELLED", "cancelled"));

    constructor(reader: Pieces, stall: number, still: () => Error, signal?: AbortSignal) {
        this.#reader = reader;
        this.#signal = signal;
        this.#timer = setInterval(() => {
            if (this.#since && performance.now() - this.#since >= stall) this.#stop(still());
        }, Math.max(stall / 8, 1));
        signal?.addEventListener("abort", this.#abort, { once: true });
        if (signal?.aborted) this.#abort();
    }

    /** As the reader's; throws what ended it. */
    async read(most?: number, room?: Uint8Array): Promise<Uint8Array | null> {
        if (this.#why) throw this.#why;
        this.#since = performance.now();
        try {
            const piece = await this.#reader.read(most, room);
            if (this.#why) throw this.#why;
            return piece;
        } catch (thrown) {
            throw this.#why ?? thrown;
        } finally {
            this.#since = 0;
        }
    }

    /** The reader is left as it is. */
    end(): void {
        clearInterval(this.#timer);
        this.#signal?.removeEventListener("abort", this.#abort);
    }

    #stop(why: Error): void {
        this.#why ??= why;
        this.#reader.cancel();
    }
}
