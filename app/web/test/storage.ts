/*
 * storage.ts - an origin private file system in memory, with the parts of the interface that the
 * package uses, locks between "tabs", and a quota.
 */
import type { StorageHost } from "../src/source/store.js";

class NotFound extends Error { override name = "NotFoundError"; }
class Locked extends Error { override name = "NoModificationAllowedError"; }
class Full extends Error { override name = "QuotaExceededError"; }

class MemoryFile {
    readonly kind = "file";
    readonly name: string;
    bytes = new Uint8Array(0);
    readonly #disk: Disk;
    open = 0; // handles
    createSyncAccessHandle?: (options?: { mode?: string }) => Promise<unknown>;
    constructor(name: string, disk: Disk) {
        this.name = name;
        this.#disk = disk;
        if (disk.handles !== "none") this.createSyncAccessHandle = (options) => this.#openHandle(disk.handles === "shared" && options?.mode === "read-only");
    }
    #openHandle(shared: boolean): Promise<unknown> {
        if (this.open && !shared) return Promise.reject(new Locked(this.name));
        this.#disk.opened += 1;
        this.open++;
        const read = (to: Uint8Array, { at }: { at: number }): number => {
            const part = this.bytes.subarray(at, at + to.length);
            to.set(part);
            return part.length;
        };
        const write = (data: Uint8Array, { at }: { at: number }): number => {
            const old = this.bytes, room = this.#disk.quota - this.#disk.usage() + old.length, n = Math.max(Math.min(data.length, room - at), 0);
            this.bytes = new Uint8Array(Math.max(old.length, at + n));
            this.bytes.set(old);
            this.bytes.set(data.subarray(0, n), at);
            this.#disk.writes.push(this.name);
            return n;
        };
        const getSize = (): number => this.bytes.length, truncate = (size: number): void => { this.bytes = this.bytes.slice(0, size); };
        return Promise.resolve({ read, write, getSize, truncate, close: () => { this.open--; } });
    }
    getFile(): Promise<File> { return Promise.resolve(new File([this.bytes], this.name)); }
    createWritable(): Promise<unknown> {
        let parts: Uint8Array[] = [];
        return Promise.resolve({
            write: async (data: Uint8Array) => {
                await this.#disk.gate;
                if (this.#disk.usage() + data.length > this.#disk.quota) throw new Full("quota");
                parts.push(data.slice());
                await Promise.resolve();
            },
            abort: async () => { parts = []; await Promise.resolve(); },
            close: async () => {
                this.bytes = new Uint8Array(await new Blob(parts as BlobPart[]).arrayBuffer());
                this.#disk.writes.push(this.name);
            },
        });
    }
}

class MemoryFolder {
    readonly kind = "directory";
    readonly name: string;
    readonly #disk: Disk;
    readonly inside = new Map<string, MemoryFile | MemoryFolder>();
    constructor(name: string, disk: Disk) { this.name = name; this.#disk = disk; }
    getFileHandle(name: string, options?: { create?: boolean }): Promise<MemoryFile> {
        return this.#get(name, options, () => new MemoryFile(name, this.#disk)) as Promise<MemoryFile>;
    }
    getDirectoryHandle(name: string, options?: { create?: boolean }): Promise<MemoryFolder> {
        return this.#get(name, options, () => new MemoryFolder(name, this.#disk)) as Promise<MemoryFolder>;
    }
    removeEntry(name: string): Promise<void> {
        return this.inside.delete(name) ? Promise.resolve() : Promise.reject(new NotFound(name));
    }
    async *entries(): AsyncGenerator<[string, MemoryFile | MemoryFolder]> {
        await Promise.resolve();
        yield* this.inside.entries();
    }
    async *keys(): AsyncGenerator<string> {
        await Promise.resolve();
        yield* this.inside.keys();
    }
    #get(name: string, options: { create?: boolean } | undefined, make: () => MemoryFile | MemoryFolder): Promise<MemoryFile | MemoryFolder> {
        let entry = this.inside.get(name);
        if (!entry && options?.create) this.inside.set(name, entry = make());
        return entry ? Promise.resolve(entry) : Promise.reject(new NotFound(name));
    }
}

/** A disk that several "tabs" share. */
export class Disk {
    readonly root: MemoryFolder = new MemoryFolder("", this);
    quota = 1e12;
    /** Synchronous handles: none, as in a page; one at a time, as in a browser that knows no modes; or any number of readers. */
    handles: "none" | "alone" | "shared" = "none";
    /** How many were opened. */
    opened = 0;
    /** Writes wait for it. */
    gate: Promise<void> = Promise.resolve();
    /** Names of files in the order in which they were written. */
    writes: string[] = [];
    readonly #locks = new Map<string, Promise<unknown>>();

    usage(folder: MemoryFolder = this.root): number {
        let sum = 0;
        for (const entry of folder.inside.values()) sum += entry instanceof MemoryFile ? entry.bytes.length : this.usage(entry);
        return sum;
    }

    /** The files of the only model. */
    model(): Map<string, { bytes: Uint8Array; open: number }> {
        const beryl = this.root.inside.get("beryl"), model = beryl instanceof MemoryFolder ? [...beryl.inside.values()][0] : undefined;
        return model instanceof MemoryFolder ? model.inside as unknown as Map<string, { bytes: Uint8Array; open: number }> : new Map();
    }

    /** The storage as one tab sees it. */
    host(): StorageHost {
        const request = async (name: string, options: LockOptions, work: (lock: unknown) => Promise<unknown>): Promise<unknown> => {
            const held = this.#locks.get(name);
            if (held && options.ifAvailable) return await work(null);
            const turn = (held ?? Promise.resolve()).then(() => {
                options.signal?.throwIfAborted();
                return work({ name });
            });
            const tail = turn.catch(() => undefined);
            this.#locks.set(name, tail);
            void tail.then(() => { if (this.#locks.get(name) === tail) this.#locks.delete(name); });
            return await turn;
        };
        return {
            root: () => Promise.resolve(this.root as unknown as FileSystemDirectoryHandle),
            estimate: () => Promise.resolve({ usage: this.usage(), quota: this.quota }),
            persisted: () => Promise.resolve(false),
            persist: () => Promise.resolve(true),
            locks: { request } as unknown as LockManager,
        };
    }
}

/** A browser without such a file system. */
export const nowhere: StorageHost = {
    root: () => Promise.resolve(null),
    estimate: () => Promise.resolve({}),
    persisted: () => Promise.resolve(false),
    persist: () => Promise.resolve(false),
    locks: null,
};
