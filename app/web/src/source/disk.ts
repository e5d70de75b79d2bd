/*
 * disk.ts - file: addresses under Node and Deno.
 *
 * Owns reading ranges of a file on disk through node:fs, which both have. Browsers never get here:
 * the module's name is made at run time so that no bundler looks for it.
 */
import { BerylError } from "../error.js";
import { checkRange, orAborted, type ByteSource } from "./source.js";

interface DiskFile {
    read(to: Uint8Array, start: number, size: number, offset: number): Promise<{ bytesRead: number }>;
    stat(): Promise<{ size: number }>;
    close(): Promise<void>;
}
interface DiskModule { open(path: URL, flags: string): Promise<DiskFile>; readFile(path: URL): Promise<Uint8Array> }

async function disk(): Promise<DiskModule> {
    const name = ["node:fs", "promises"].join("/");
    return await import(/* @vite-ignore */ /* webpackIgnore: true */ name) as DiskModule;
}

/** True where files can be read by path: Node, Deno, Bun; not in a browser. */
export function hasDisk(): boolean {
    const host = globalThis as { process?: { versions?: { node?: string } } };
    return typeof host.process?.versions?.node === "string";
}

/** A whole small file, as the module. */
export async function readDisk(url: URL): Promise<Uint8Array> {
    return (await disk()).readFile(url);
}

/** Opens the file at a file: address. */
export async function openDisk(url: URL): Promise<ByteSource> {
    const name = decodeURIComponent(url.pathname.split("/").pop() ?? "file");
    let file: DiskFile;
    let size: number;
    try {
        file = await (await disk()).open(url, "r");
        size = (await file.stat()).size;
    } catch (thrown) {
        throw new BerylError("NOT_FOUND", `${name} cannot be opened: ${(thrown as Error).message}`);
    }
    const source: ByteSource = {
        size,
        name,
        async read(offset, count, signal) {
            checkRange(source, offset, count);
            const to = new Uint8Array(count);
            for (let done = 0; done < count;) {
                const { bytesRead } = await orAborted(file.read(to, done, count - done, offset + done), signal);
                if (bytesRead === 0) throw new BerylError("IO", `${name} ended at byte ${offset + done}`, "", offset + done);
                done += bytesRead;
            }
            return to;
        },
        close() {
            file.close().catch(() => undefined);
        },
    };
    return source;
}
