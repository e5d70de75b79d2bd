/*
 * error.ts - the one kind of error that this package throws.
 *
 * Owns BerylError: the status of the C library by name, its message, and a sentence that says what
 * to do about it. The statuses are those of beryl.h; a failure that is born in JavaScript takes
 * the one that fits, so that a caller has one list to switch over.
 */

/** The statuses of `beryl.h` that are errors. */
export type BerylStatus =
    | "CANCELLED" | "MISUSE" | "UNSUPPORTED" | "NOT_FOUND" | "IO" | "BAD_FILE" | "BAD_INPUT" | "NO_MEMORY"
    | "NO_DEVICE_MEMORY" | "NO_DEVICE" | "DEVICE" | "DEVICE_LOST" | "CONTEXT_FULL";

const HINTS: Record<BerylStatus, string> = {
    CANCELLED: "",
    MISUSE: "Look at the message, then at the caller.",
    UNSUPPORTED: "",
    NOT_FOUND: "Check the address or the file's name.",
    IO: "Check the connection or the disk, then load again: what has arrived is kept.",
    BAD_FILE: "The file is not a GGUF that Beryl reads, or is damaged: fetch it again.",
    BAD_INPUT: "",
    NO_MEMORY: "Close other tabs, or take a smaller model.",
    NO_DEVICE_MEMORY: "Take a smaller `context`, `kv: \"q8\"`, or a smaller model.",
    NO_DEVICE: "Beryl.devices() says what this browser has and what would help.",
    DEVICE: "The adapter or its driver failed: update the driver, or try another browser.",
    DEVICE_LOST: "The GPU went away. The model is loaded again by itself: ask once more.",
    CONTEXT_FULL: "Start a new conversation, leave out old messages, or load with a larger `context` (up to info.contextMax).",
};

/** What crosses a worker's border in place of an error. */
export interface PlainError { status: string; message: string; hint: string; at: number }

/** Every failure of this package: what happened (`message`), which kind (`status`), what to do (`hint`). */
export class BerylError extends Error {
    /** A status of `beryl.h`, as "BAD_FILE". */
    readonly status: BerylStatus;
    /** Byte offset in the file or text that is to blame, else 0. */
    readonly at: number;
    /** One sentence: what to do. May be empty where the message says it all. */
    readonly hint: string;

    constructor(status: BerylStatus, message: string, hint?: string, at = 0) {
        super(message);
        this.name = "BerylError";
        this.status = status;
        this.hint = hint ?? HINTS[status] ?? "";
        this.at = at;
    }

    /** The error as data that can be posted. */
    toPlain(): PlainError {
        return { status: this.status, message: this.message, hint: this.hint, at: this.at };
    }

    /** The error again on the other side. */
    static fromPlain(plain: PlainError): BerylError {
        return new BerylError(isStatus(plain.status) ? plain.status : "IO", plain.message, plain.hint, plain.at);
    }

    /** Whatever was thrown, as a BerylError; what is one already stays itself. */
    static from(thrown: unknown, status: BerylStatus = "IO"): BerylError {
        if (thrown instanceof BerylError) return thrown;
        if (isAbort(thrown)) return new BerylError("CANCELLED", "cancelled");
        const message = thrown instanceof Error ? thrown.message : String(thrown);
        const error = new BerylError(status, message);
        error.cause = thrown;
        return error;
    }
}

/** True for the name of an error status of `beryl.h`. */
export function isStatus(name: string): name is BerylStatus {
    return Object.hasOwn(HINTS, name);
}

/** True for what fetch and friends throw when their signal was aborted. */
export function isAbort(thrown: unknown): boolean {
    return thrown instanceof Error && (thrown.name === "AbortError" || (thrown instanceof BerylError && thrown.status === "CANCELLED"));
}

/** Throws CANCELLED if the signal was aborted. */
export function throwIfAborted(signal: AbortSignal | undefined): void {
    if (signal?.aborted) throw new BerylError("CANCELLED", "cancelled");
}
