/*
 * source.ts - what a model file is to this package: bytes by offset, now or later.
 *
 * Owns the interface that all sources implement and the check that they share. The same shape as
 * the engine's ByteSource; it stands here so that sources know nothing of the engine.
 */
import { BerylError } from "../error.js";

/** A file that answers ranges. Ranges are inside the file. */
export interface ByteSource {
    /** Bytes. */
    readonly size: number;
    /** The file's name, for messages. */
    readonly name: string;
    /** Bytes [offset, offset + size), the reader's own. Rejects with a BerylError; CANCELLED when the signal was aborted. `room`: a buffer
     *  of that size that the source may take and give back filled: memory that was used before costs no page of new one. */
    read(offset: number, size: number, signal?: AbortSignal, room?: Uint8Array): Promise<Uint8Array>;
    /** Ends all reading; what it held is free when the promise, if there is one, has ended. */
    close?(): void | Promise<void>;
}

/** How far a long step is; `total` is 0 where it is not known. */
export interface Progress { what: string; done: number; total: number }

/** Refuses a range that is not inside the file. */
export function checkRange(source: ByteSource, offset: number, size: number): void {
    const whole = Number.isSafeInteger(offset) && Number.isSafeInteger(size);
    if (!whole || offset < 0 || size < 0 || offset > source.size - size)
        throw new BerylError("MISUSE", `${source.name}: bytes ${offset} + ${size} are not in a file of ${source.size}`);
}

/** Settles like `promise`, but rejects at once with CANCELLED when the signal is aborted. */
export function orAborted<T>(promise: Promise<T>, signal?: AbortSignal): Promise<T> {
    if (!signal) return promise;
    return new Promise<T>((resolve, reject) => {
        const stop = (): void => reject(new BerylError("CANCELLED", "cancelled"));
        if (signal.aborted) {
            promise.catch(() => undefined);
            stop();
            return;
        }
        signal.addEventListener("abort", stop, { once: true });
        promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
    });
}

/** Waits; rejects at once with CANCELLED when the signal is aborted. */
export function sleep(milliseconds: number, signal?: AbortSignal): Promise<void> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const wait = new Promise<void>((resolve) => { timer = setTimeout(resolve, milliseconds); });
    return orAborted(wait, signal).finally(() => clearTimeout(timer));
}

/** Waits until it has ended, however, and no longer than that. Leaves no timer behind: one would keep Deno and Node alive. */
export function within(milliseconds: number, promise: Promise<unknown>): Promise<void> {
    return new Promise((resolve) => {
        const timer = setTimeout(resolve, milliseconds);
        const ended = (): void => {
            clearTimeout(timer);
            resolve();
        };
        promise.then(ended, ended);
    });
}

/** Two digits a byte. */
export function hexOf(bytes: Uint8Array): string {
    return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Bytes for people: "3.2 GB". */
export function showBytes(bytes: number): string {
    const units = ["bytes", "KB", "MB", "GB", "TB"];
    let value = bytes;
    let unit = 0;
    while (value >= 1000 && unit < units.length - 1) {
        value /= 1000;
        unit++;
    }
    return `${unit === 0 ? value : value.toFixed(value < 10 ? 1 : 0)} ${units[unit]}`;
}
