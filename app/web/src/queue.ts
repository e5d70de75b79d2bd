/*
 * queue.ts - who may reach the engine.
 *
 * Owns the order of calls: first come, first served, one at a time of each session, and as many sessions at once as the engine
 * holds. Work of no session runs alone. One that is cancelled while it waits leaves at once.
 */
import { BerylError } from "./error.js";

interface Entry { key: number | null; start: () => void; fail: (error: BerylError) => void }

/** Runs work in the order of its arrival: that of one key one after the other, of different keys beside each other, of none alone. */
export class Queue {
    #waiting: Entry[] = [];
    #running: (number | null)[] = [];
    #width = 1;
    #closed: BerylError | null = null;
    #idle: (() => void)[] = [];

    /** How many wait, the running ones not counted. */
    get length(): number {
        return this.#waiting.length;
    }

    /** How much may run at once; default 1. */
    widen(width: number): void {
        this.#width = width;
        this.#next();
    }

    /** Waits for its turn, then runs `work`. Rejects with CANCELLED if the signal is aborted before that. */
    async run<T>(key: number | null, signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
        await this.#turn(key, signal);
        try {
            return await work();
        } finally {
            this.#running.splice(this.#running.indexOf(key), 1);
            this.#next();
            if (!this.#running.length) for (const wake of this.#idle.splice(0)) wake();
        }
    }

    /** Resolves when nothing runs. */
    idle(): Promise<void> {
        return this.#running.length ? new Promise((resolve) => { this.#idle.push(resolve); }) : Promise.resolve();
    }

    /** Refuses all that wait and all that come; what runs ends by itself. */
    close(error: BerylError): void {
        this.#closed = error;
        for (const entry of this.#waiting.splice(0)) entry.fail(error);
    }

    /* Starts what may run. What needs to be alone holds up all that came after it, so that it comes to its turn. */
    #next(): void {
        for (let at = 0; at < this.#waiting.length && !this.#running.includes(null) && this.#running.length < this.#width;) {
            const entry = this.#waiting[at]!, { key } = entry;
            if (key === null && (at > 0 || this.#running.length)) return;
            if (key !== null && this.#running.includes(key)) { // so are all others of this key behind it
                at++;
                continue;
            }
            this.#waiting.splice(at, 1);
            this.#running.push(key);
            entry.start();
        }
    }

    #turn(key: number | null, signal: AbortSignal | undefined): Promise<void> {
        if (this.#closed) return Promise.reject(this.#closed);
        if (signal?.aborted) return Promise.reject(new BerylError("CANCELLED", "cancelled"));
        return new Promise<void>((resolve, reject) => {
            const leave = (): void => {
                this.#waiting = this.#waiting.filter((other) => other !== entry);
                this.#next();
                reject(new BerylError("CANCELLED", "cancelled"));
            };
            const entry = {
                key,
                start: () => {
                    signal?.removeEventListener("abort", leave);
                    resolve();
                },
                fail: (error: BerylError) => {
                    signal?.removeEventListener("abort", leave);
                    reject(error);
                },
            };
            this.#waiting.push(entry);
            signal?.addEventListener("abort", leave, { once: true });
            this.#next();
        });
    }
}
