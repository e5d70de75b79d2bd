/*
 * blob.ts - files that the browser already holds: Blob, File, and handles of either file system.
 *
 * Owns reading them by slices; nothing is copied as a whole. A handle is read through getFile(),
 * in a page as in a worker: a synchronous access handle would lock the user's file against every
 * other tab for as long as the model is open.
 */
import { BerylError } from "../error.js";
import { checkRange, orAborted, type ByteSource } from "./source.js";

/** Reads a Blob or a File from where it lies. */
export class BlobSource implements ByteSource {
    readonly size: number;
    readonly name: string;
    readonly #blob: Blob;

    constructor(blob: Blob, name?: string) {
        this.#blob = blob;
        this.size = blob.size;
        this.name = name ?? ("name" in blob && typeof blob.name === "string" ? blob.name : "file");
    }

    async read(offset: number, size: number, signal?: AbortSignal): Promise<Uint8Array> {
        checkRange(this, offset, size);
        let bytes: ArrayBuffer;
        try {
            bytes = await orAborted(this.#blob.slice(offset, offset + size).arrayBuffer(), signal);
        } catch (thrown) {
            if (thrown instanceof BerylError) throw thrown;
            throw new BerylError("IO", `${this.name} cannot be read: ${(thrown as Error).message}`,
                "The file was changed, moved or removed after it was chosen: choose it again.", offset);
        }
        if (bytes.byteLength !== size)
            throw new BerylError("IO", `${this.name} ended at byte ${offset + bytes.byteLength} of ${this.size}`,
                "The file was changed after it was chosen: choose it again.", offset + bytes.byteLength);
        return new Uint8Array(bytes);
    }
}

/** Opens the file behind a handle (origin private file system, or a file that the user picked). */
export async function openHandle(handle: FileSystemFileHandle): Promise<ByteSource> {
    try {
        return new BlobSource(await handle.getFile(), handle.name);
    } catch (thrown) {
        const denied = thrown instanceof Error && thrown.name === "NotAllowedError";
        throw new BerylError(denied ? "IO" : "NOT_FOUND", `${handle.name} cannot be opened: ${(thrown as Error).message}`,
            denied ? "Ask for leave to read it (handle.requestPermission) in a click, then load again."
                : "The file is gone: choose it again.");
    }
}
