/*
 * verify.ts - a source whose SHA-256 is checked as its bytes go by.
 *
 * Owns the running hash. The one idea: readers go mostly forward, so bytes are hashed as they are
 * read; what a reader jumped over is read once more at the end, from the store where there is one.
 */
import { sha256 } from "@noble/hashes/sha2.js";
import { BerylError } from "../error.js";
import { release } from "../release.js";
import { hexOf, type ByteSource, type Progress } from "./source.js";

const STEP = 4 * 1024 * 1024;

/** Wraps a source; `finish` says whether the whole file has the hash. */
export class VerifiedSource implements ByteSource {
    readonly size: number;
    readonly name: string;
    readonly #source: ByteSource;
    readonly #hash = sha256.create();
    #hashed = 0; // bytes from the start

    constructor(source: ByteSource) {
        this.#source = source;
        this.size = source.size;
        this.name = source.name;
    }

    async read(offset: number, size: number, signal?: AbortSignal, room?: Uint8Array): Promise<Uint8Array> {
        const bytes = await this.#source.read(offset, size, signal, room);
        if (offset <= this.#hashed && offset + size > this.#hashed) {
            this.#hash.update(bytes.subarray(this.#hashed - offset));
            this.#hashed = offset + size;
        }
        return bytes;
    }

    async close(): Promise<void> {
        await this.#source.close?.();
    }

    /** Reads what is left and compares. BAD_FILE if the file is another. Call once. */
    async finish(expected: string, signal?: AbortSignal, onProgress?: (progress: Progress) => void): Promise<void> {
        while (this.#hashed < this.size) {
            release(await this.read(this.#hashed, Math.min(STEP, this.size - this.#hashed), signal));
            onProgress?.({ what: "checking the file", done: this.#hashed, total: this.size });
        }
        const found = hexOf(this.#hash.digest());
        if (found !== expected.toLowerCase())
            throw new BerylError("BAD_FILE", `${this.name} has the SHA-256 ${found}, not ${expected.toLowerCase()}`,
                "It is damaged or another file than expected: compare the address and the hash.");
    }
}
