/*
 * store.ts - models kept in the origin private file system.
 *
 * Owns the folder "beryl/KEY" of one model: a note ("note.json": where it came from, which version)
 * and its bytes as numbered pieces of PIECE bytes. The one idea: a piece is written whole and
 * atomically, so the names and sizes in the folder say what is there; no list can disagree with
 * the bytes after a crash, and two tabs that write the same piece of the same version write the
 * same bytes. Pieces never change once they are there, so any number of tabs read them.
 */
import { sha256 } from "@noble/hashes/sha2.js";
import { bytesToHex, utf8ToBytes } from "@noble/hashes/utils.js";
import { BerylError } from "../error.js";
import type { Validator } from "./http.js";
import { showBytes } from "./source.js";

/** Bytes in a piece: one request, one file, one buffer. Large enough that requests are few (250 a GB), small
 *  enough that the several in memory are little beside the module's own. */
export const PIECE = 4 * 1024 * 1024;
const FOLDER = "beryl";
const NOTE = "note.json";

/** The parts of the browser's storage that are used here; tests bring their own. */
export interface StorageHost {
    /** The origin's folder, or null where there is none. */
    root(): Promise<FileSystemDirectoryHandle | null>;
    estimate(): Promise<{ usage?: number; quota?: number }>;
    persisted(): Promise<boolean>;
    persist(): Promise<boolean>;
    locks: LockManager | null;
}

/** The browser's own storage. */
export const browserStorage: StorageHost = {
    async root() {
        const storage = globalThis.navigator?.storage;
        if (typeof storage?.getDirectory !== "function") return null;
        try {
            return await storage.getDirectory();
        } catch {
            return null; // private windows of some browsers, sandboxed frames
        }
    },
    estimate: async () => await globalThis.navigator?.storage?.estimate?.() ?? {},
    persisted: async () => await globalThis.navigator?.storage?.persisted?.() ?? false,
    persist: async () => await globalThis.navigator?.storage?.persist?.() ?? false,
    get locks() {
        return globalThis.navigator?.locks ?? null;
    },
};

/** What is written down about a model in the store. */
export interface Note extends Validator {
    version: 1;
    url: string;
    name: string;
    piece: number;
    /** All pieces are there. */
    complete: boolean;
    /** The SHA-256 that the whole file was found to have, else null. */
    sha256: string | null;
    /** Milliseconds since 1970. */
    created: number;
    used: number;
}

/** The name of a model's folder: 32 hex digits of its address' SHA-256. */
export function storeKey(url: string): string {
    const bare = new URL(url);
    bare.hash = "";
    return bytesToHex(sha256(utf8ToBytes(bare.href))).slice(0, 32);
}

/** Safari before 26 writes files of this file system only so, and only in a worker. */
interface SyncHandle { truncate(size: number): void; write(data: Uint8Array, at: { at: number }): number; flush(): void; close(): void }

async function writeFile(folder: FileSystemDirectoryHandle, name: string, data: Uint8Array<ArrayBuffer>): Promise<void> {
    const handle = await folder.getFileHandle(name, { create: true });
    if (typeof handle.createWritable === "function") {
        const out = await handle.createWritable();
        try {
            await out.write(data);
        } catch (thrown) {
            await out.abort().catch(() => undefined);
            throw thrown;
        }
        await out.close();
        return;
    }
    const open = (handle as unknown as { createSyncAccessHandle?: () => Promise<SyncHandle> }).createSyncAccessHandle;
    if (!open) throw new DOMException("files of this origin cannot be written here", "NotSupportedError");
    const file = await open.call(handle);
    try {
        file.truncate(0);
        if (file.write(data, { at: 0 }) !== data.length) throw new DOMException("no room", "QuotaExceededError");
        file.flush();
    } finally {
        file.close();
    }
}

function isNote(value: unknown): value is Note {
    const note = value as Partial<Note> | null;
    return typeof note === "object" && note !== null && note.version === 1 && typeof note.url === "string"
        && Number.isSafeInteger(note.size) && (note.size ?? 0) > 0 && note.piece === PIECE && typeof note.name === "string";
}

async function readNote(folder: FileSystemDirectoryHandle): Promise<Note | null> {
    try {
        const file = await (await folder.getFileHandle(NOTE)).getFile();
        const value: unknown = JSON.parse(await file.text());
        return isNote(value) ? value : null;
    } catch {
        return null;
    }
}

/** One model in the store. */
export class Store {
    readonly key: string;
    note: Note;
    readonly #folder: FileSystemDirectoryHandle;
    readonly #files = new Map<number, File>();

    private constructor(key: string, folder: FileSystemDirectoryHandle, note: Note) {
        this.key = key;
        this.#folder = folder;
        this.note = note;
    }

    /** The model kept for this address, or null if nothing (readable) is. */
    static async find(host: StorageHost, url: string): Promise<Store | null> {
        const folder = await modelFolder(host, storeKey(url), false);
        const note = folder && await readNote(folder);
        if (!folder || !note) return null;
        const store = new Store(storeKey(url), folder, note);
        await store.#look();
        return store;
    }

    /** A new, empty place for this address; what lay there is removed. Null where there is no such storage. */
    static async make(host: StorageHost, url: string, name: string, version: Validator): Promise<Store | null> {
        const key = storeKey(url);
        await removeModel(host, key);
        const folder = await modelFolder(host, key, true);
        if (!folder) return null;
        const { size, etag, lastModified } = version;
        const now = Date.now();
        const note: Note = { version: 1, url, name, size, etag, lastModified, piece: PIECE, complete: false,
            sha256: null, created: now, used: now };
        const store = new Store(key, folder, note);
        await store.annotate({});
        return store;
    }

    /** Pieces of the whole file. */
    get count(): number {
        return Math.ceil(this.note.size / PIECE);
    }

    /** Bytes of piece i. */
    pieceSize(i: number): number {
        return Math.min(PIECE, this.note.size - i * PIECE);
    }

    has(i: number): boolean {
        return this.#files.has(i);
    }

    /** Bytes that are there. */
    get stored(): number {
        let sum = 0;
        for (const i of this.#files.keys()) sum += this.pieceSize(i);
        return sum;
    }

    /** Looks on the disk whether another tab has brought piece i meanwhile. */
    async lookFor(i: number): Promise<boolean> {
        if (this.#files.has(i)) return true;
        try {
            const file = await (await this.#folder.getFileHandle(pieceName(i))).getFile();
            if (file.size === this.pieceSize(i)) this.#files.set(i, file);
        } catch {
            return false;
        }
        return this.#files.has(i);
    }

    /** Bytes [offset, offset + size) of piece i; null if the piece is not there (any more). */
    async read(i: number, offset: number, size: number): Promise<Uint8Array | null> {
        const file = this.#files.get(i);
        if (!file) return null;
        try {
            return new Uint8Array(await file.slice(offset, offset + size).arrayBuffer());
        } catch {
            this.#files.delete(i);
            return null;
        }
    }

    /** Writes piece i whole. Throws what the browser throws (QuotaExceededError when full). */
    async write(i: number, data: Uint8Array<ArrayBuffer>): Promise<void> {
        await writeFile(this.#folder, pieceName(i), data);
        await this.lookFor(i);
    }

    /** Changes the note; `complete` follows from the pieces. */
    async annotate(change: Partial<Pick<Note, "sha256" | "used" | "etag" | "lastModified">>): Promise<void> {
        this.note = { ...this.note, ...change, complete: this.#files.size === this.count };
        await writeFile(this.#folder, NOTE, utf8ToBytes(JSON.stringify(this.note)) as Uint8Array<ArrayBuffer>);
    }

    async #look(): Promise<void> {
        this.#files.clear();
        const looks: Promise<unknown>[] = []; // side by side: there are hundreds
        for await (const name of this.#folder.keys()) {
            const i = /^\d{6}$/.test(name) ? Number(name) : -1;
            if (i >= 0 && i < this.count) looks.push(this.lookFor(i));
        }
        await Promise.all(looks);
        this.note.complete = this.#files.size === this.count;
    }
}

function pieceName(i: number): string {
    return String(i).padStart(6, "0");
}

async function beryl(host: StorageHost, create: boolean): Promise<FileSystemDirectoryHandle | null> {
    const root = await host.root();
    return root && await root.getDirectoryHandle(FOLDER, { create }).catch(() => null);
}

async function modelFolder(host: StorageHost, key: string, create: boolean): Promise<FileSystemDirectoryHandle | null> {
    const folder = await beryl(host, create);
    return folder && await folder.getDirectoryHandle(key, { create }).catch(() => null);
}

/** Removes a model's folder, if it is there. */
export async function removeModel(host: StorageHost, key: string): Promise<void> {
    const folder = await beryl(host, false);
    await folder?.removeEntry(key, { recursive: true }).catch((thrown: unknown) => {
        if ((thrown as Error).name !== "NotFoundError") throw BerylError.from(thrown);
    });
}

/** All models of the store, whole ones and begun ones. */
export async function listModels(host: StorageHost): Promise<{ note: Note; key: string; stored: number }[]> {
    const folder = await beryl(host, false);
    const found: { note: Note; key: string; stored: number }[] = [];
    if (!folder) return found;
    for await (const [key, handle] of folder.entries()) {
        if (handle.kind !== "directory") continue;
        const store = await readNote(handle as FileSystemDirectoryHandle).then((note) => note && Store.find(host, note.url));
        if (store && store.key === key) found.push({ note: store.note, key, stored: store.stored });
    }
    return found.sort((a, b) => b.note.used - a.note.used);
}

/** Runs `work` while nobody else holds the model's lock for writing. Gives false, and does not run it, if another tab does. */
export async function withLock(host: StorageHost, key: string, wait: boolean, work: () => Promise<void>, signal?: AbortSignal): Promise<boolean> {
    if (!host.locks) {
        await work();
        return true;
    }
    const options: LockOptions = wait ? (signal ? { signal } : {}) : { ifAvailable: true };
    return await host.locks.request(`beryl/${key}`, options, async (lock) => {
        if (!lock) return false;
        await work();
        return true;
    });
}

/** Null if `bytes` more fit into the origin's storage, else a sentence with the figures. */
export async function noRoomFor(host: StorageHost, bytes: number): Promise<string | null> {
    const { usage, quota } = await host.estimate();
    if (usage === undefined || quota === undefined || quota - usage >= bytes) return null;
    return `${showBytes(bytes)} more are needed in this site's storage and ${showBytes(Math.max(quota - usage, 0))} are free`;
}
