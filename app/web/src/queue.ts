/*
 * queue.ts - one after another.
 *
 * Owns the order in which calls reach the engine: first come, first served, one at a time. One that
 * is cancelled while it waits leaves at once.
 */
import { BerylError } from "./error.js";

/** Runs tasks one at a time in the order of their arrival. */
export class Queue {
    #waiting: { start: () => void; fail: (error: BerylError) => void }[] = [];
    #busy = false;
    #closed: BerylError | null = null;
    #idle: (() => void)[] = [];

    /** How many wait, the running one not counted. */
    get length(): number {
        return this.#waiting.length;
    }

    /** Waits for its turn, then runs `work`. Rejects with CANCELLED if the signal is aborted before that. */
    async run<T>(signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
        await this.#turn(signal);
        try {
            return await work();
        } finally {
            this.#busy = false;
            this.#waiting.shift()?.start();
            if (!this.#busy) for (const wake of this.#idle.splice(0)) wake();
        }
    }

    /** Resolves when nothing runs. */
    idle(): Promise<void> {
        return this.#busy ? new Promise((resolve) => { this.#idle.push(resolve); }) : Promise.resolve();
    }

    /** Refuses all that wait and all that come; the running one ends by itself. */
    close(error: BerylError): void {
        this.#closed = error;
        for (const entry of this.#waiting.splice(0)) entry.fail(error);
    }

    #turn(signal: AbortSignal | undefined): Promise<void> {
        if (this.#closed) return Promise.reject(this.#closed);
        if (signal?.aborted) return Promise.reject(new BerylError("CANCELLED", "cancelled"));
        if (!this.#busy) {
            this.#busy = true;
            return Promise.resolve();
        }
        return new Promise<void>((resolve, reject) => {
            const leave = (): void => {
                this.#waiting = this.#waiting.filter((other) => other !== entry);
                reject(new BerylError("CANCELLED", "cancelled"));
            };
            const entry = {
                start: () => {
                    signal?.removeEventListener("abort", leave);
                    this.#busy = true;
                    resolve();
                },
                fail: (error: BerylError) => {
                    signal?.removeEventListener("abort", leave);
                    reject(error);
                },
            };
            this.#waiting.push(entry);
            signal?.addEventListener("abort", leave, { once: true });
        });
    }
}
