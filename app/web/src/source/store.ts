/*
 * store.ts - models kept in the origin private file system.
 *
 * Owns the folder "beryl/KEY" of one model: a note ("note.json": where it came from, which version)
 * and its bytes as numbered pieces of PIECE bytes. The one idea: a piece that is not whole is too
 * short, so the names and sizes in the folder say what is there; no list can disagree with
 * the bytes after a crash, and two tabs that write the same piece of the same version write the
 * same bytes. Pieces never change once they are there, so any number of tabs read them: in a worker by synchronous
 * handles, which are several times as fast as Blobs and leave no buffers behind.
 */
import { sha256 } from "@noble/hashes/sha2.js";
import { BerylError } from "../error.js";
import { sameVersion, type Validator } from "./http.js";
import { hexOf, showBytes } from "./source.js";

/** Bytes in a piece: one request, one file, one buffer. Large enough that requests are few (250 a GB), small
 *  enough that the several in memory are little beside the module's own. */
export const PIECE = 4 * 1024 * 1024;
/** Files open for reading at most, and how long without being read. */
const OPEN_MOST = 8;
const REST = 1000; // milliseconds
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
    return hexOf(sha256(new TextEncoder().encode(bare.href))).slice(0, 32);
}

/** A file's handle in a worker, which reads and writes without waiting. */
interface SyncHandle {
    read(to: Uint8Array, at: { at: number }): number;
    write(data: Uint8Array, at: { at: number }): number;
    getSize(): number;
    truncate(size: number): void;
    flush(): void;
    close(): void;
}
interface SyncHandles { createSyncAccessHandle?(options?: { mode: "read-only" }): Promise<SyncHandle> }

function writeNow(file: SyncHandle, data: Uint8Array): void {
    try {
        if (file.write(data, { at: 0 }) !== data.length) throw new DOMException("full", "QuotaExceededError");
        if (file.getSize() !== data.length) file.truncate(data.length);
    } finally {
        file.close();
    }
}

/* A worker's handle is several times as fast as a stream; Safari before 26 has nothing else. `whole`: what is there is whole
 * at every moment, the old or the new. */
async function writeFile(folder: FileSystemDirectoryHandle, name: string, data: Uint8Array, whole: boolean): Promise<void> {
    const handle = await folder.getFileHandle(name, { create: true }) as FileSystemFileHandle & SyncHandles;
    if (handle.createSyncAccessHandle && !(whole && handle.createWritable)) {
        writeNow(await handle.createSyncAccessHandle(), data);
        return;
    }
    if (!handle.createWritable) throw new DOMException("not writable", "NotSupportedError");
    const out = await handle.createWritable();
    try {
        await out.write(data as Uint8Array<ArrayBuffer>);
        await out.close();
    } catch (thrown) {
        await out.abort().catch(() => undefined);
        throw thrown;
    }
}

/** Writes a file of that name; one that is not whole is too short. */
export type WritePiece = (folder: FileSystemDirectoryHandle, name: string, data: Uint8Array) => Promise<void>;

/** Bytes [offset, offset + size) of that file, in `room` if that can be; null if they are not there. */
export type ReadPiece = (folder: FileSystemDirectoryHandle, name: string, offset: number, size: number, room?: Uint8Array) => Promise<Uint8Array | null>;

/** By a handle that is open for that long, where the thread has such ones. */
export const readPiece: ReadPiece = async (folder, name, offset, size, room) => {
    const file = await openNow(await folder.getFileHandle(name) as FileSystemFileHandle & SyncHandles);
    if (!file) return null;
    try {
        const bytes = room ?? new Uint8Array(size);
        return file.read(bytes, { at: offset }) === size ? bytes : null;
    } finally {
        file.close();
    }
};

/* Read-only handles leave the file to other tabs too; a browser that knows no modes gives one that does not, so none is held for long. */
async function openNow(handle: SyncHandles): Promise<SyncHandle | null> {
    return await handle.createSyncAccessHandle?.({ mode: "read-only" }) ?? null;
}

/** Where it can, in place and from the start on. */
export const writePiece: WritePiece = (folder, name, data) => writeFile(folder, name, data, false);

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
    readonly #host: StorageHost;
    readonly #there = new Set<number>();
    readonly #open = new Map<number, Promise<SyncHandle | null>>(); // oldest first
    readonly #ready = new Map<number, SyncHandle>(); // those of them that are open by now
    #folder: FileSystemDirectoryHandle | null; // null: nothing is written yet
    #settling: Promise<FileSystemDirectoryHandle> | null = null;
    #writing = 0;
    #handles = true; // the thread has synchronous ones
    #idle: ReturnType<typeof setTimeout> | undefined;

    private constructor(host: StorageHost, folder: FileSystemDirectoryHandle | null, note: Note) {
        this.key = storeKey(note.url);
        this.#host = host;
        this.#folder = folder;
        this.note = note;
    }

    /** The model kept for this address, or null if nothing (readable) is. */
    static async find(host: StorageHost, url: string): Promise<Store | null> {
        const folder = await modelFolder(host, storeKey(url), false);
        const note = folder && await readNote(folder);
        if (!folder || !note) return null;
        const store = new Store(host, folder, note);
        await store.look();
        return store;
    }

    /** A place for this version of the file at this address. Nothing is on the disk before the first piece; then what lay there of another version is removed. */
    static make(host: StorageHost, url: string, name: string, version: Validator): Store {
        const { size, etag, lastModified } = version;
        const now = Date.now();
        return new Store(host, null, { version: 1, url, name, size, etag, lastModified, piece: PIECE, complete: false,
            sha256: null, created: now, used: now });
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
        return this.#there.has(i);
    }

    /** Bytes that are there. */
    get stored(): number {
        let sum = 0;
        for (const i of this.#there) sum += this.pieceSize(i);
        return sum;
    }

    /** Looks on the disk whether another tab has brought piece i meanwhile. */
    async lookFor(i: number): Promise<boolean> {
        if (this.#there.has(i)) return true;
        try {
            const folder = this.#folder ?? await this.#adopt();
            const file = await (await folder?.getFileHandle(pieceName(i)))?.getFile();
            if (file?.size === this.pieceSize(i)) this.#there.add(i);
        } catch { /* it is not there */ }
        return this.#there.has(i);
    }

    /** The same for all pieces. */
    async look(): Promise<void> {
        const looks: Promise<unknown>[] = []; // side by side: there are hundreds
        for await (const name of (this.#folder ?? await this.#adopt())?.keys() ?? []) {
            const i = /^\d{6}$/.test(name) ? Number(name) : -1;
            if (i >= 0 && i < this.count) looks.push(this.lookFor(i));
        }
        await Promise.all(looks);
        this.note.complete = this.#there.size === this.count;
    }

    /** Opens piece i for reading soon. False where that cannot be: in a page, or while another tab has it alone (a browser without modes). */
    async open(i: number): Promise<boolean> {
        if (!this.#handles) return false;
        let opening = this.#open.get(i);
        if (!opening) {
            for (const k of this.#open.keys()) if (this.#open.size >= OPEN_MOST) this.#shut(k);
            this.#open.set(i, opening = this.#openFile(i));
        }
        const handle = await opening;
        if (this.#open.get(i) !== opening) return this.#ready.has(i); // shut again meanwhile
        if (handle) this.#ready.set(i, handle);
        else this.#open.delete(i);
        this.#rest();
        return handle !== null;
    }

    /** Bytes [offset, offset + size) of piece i, in `room` if that can be; null if the piece is not there (any more). `read`: how. */
    async read(i: number, offset: number, size: number, room?: Uint8Array, read?: ReadPiece): Promise<Uint8Array | null> {
        try {
            const far = this.#folder && await read?.(this.#folder, pieceName(i), offset, size, room);
            if (far) return far;
            if (room?.byteLength === 0) room = undefined;
            const bytes = await this.open(i) ? room ?? new Uint8Array(size) : null;
            if (bytes && this.#ready.get(i)?.read(bytes, { at: offset }) === size) return bytes;
            const file = await (await this.#folder?.getFileHandle(pieceName(i)))?.getFile();
            if (file?.size === this.pieceSize(i)) return new Uint8Array(await file.slice(offset, offset + size).arrayBuffer());
        } catch { /* it is not there */ }
        this.#there.delete(i);
        return null;
    }

    /** Writes piece i whole; the caller has the model's lock. Throws what the browser throws (QuotaExceededError when full), and leaves nothing half. */
    async write(i: number, data: Uint8Array, write: WritePiece = writePiece): Promise<void> {
        this.#writing++;
        try {
            const folder = await (this.#settling ??= this.#settle());
            await write(folder, pieceName(i), data).catch(async (thrown: unknown) => {
                await folder.removeEntry(pieceName(i)).catch(() => undefined);
                throw thrown;
            });
            this.#there.add(i);
        } finally {
            if (--this.#writing === 0 && this.#there.size === 0) {
                this.#folder = this.#settling = null;
                await removeModel(this.#host, this.key).catch(() => undefined);
            }
        }
    }

    /** Changes the note, where there is one yet; `complete` follows from the pieces. */
    async annotate(change: Partial<Pick<Note, "sha256" | "used">>): Promise<void> {
        this.note = { ...this.note, ...change, complete: this.#there.size === this.count };
        if (this.#folder) await writeFile(this.#folder, NOTE, new TextEncoder().encode(JSON.stringify(this.note)), true);
    }

    /** Gives back the files that are open. */
    close(): void {
        clearTimeout(this.#idle);
        for (const i of [...this.#open.keys()]) this.#shut(i);
    }

    async #openFile(i: number): Promise<SyncHandle | null> {
        try {
            const handle = await this.#folder?.getFileHandle(pieceName(i)) as SyncHandles | undefined;
            if (handle) this.#handles = handle.createSyncAccessHandle !== undefined;
            return handle ? await openNow(handle) : null;
        } catch {
            return null;
        }
    }

    #shut(i: number): void {
        void this.#open.get(i)?.then((handle) => handle?.close());
        this.#open.delete(i);
        this.#ready.delete(i);
    }

    /* Nobody reads for a while: then the files are nobody's. */
    #rest(): void {
        clearTimeout(this.#idle);
        if (this.#open.size) this.#idle = setTimeout(() => this.close(), REST);
    }

    /* What another tab has begun for the same version is gone on with. */
    async #adopt(): Promise<FileSystemDirectoryHandle | null> {
        const folder = await modelFolder(this.#host, this.key, false), note = folder && await readNote(folder);
        if (!note || !sameVersion(note, this.note)) return null;
        this.note = note;
        return this.#folder = folder;
    }

    async #settle(): Promise<FileSystemDirectoryHandle> {
        const there = this.#folder ?? await this.#adopt();
        if (there) return there;
        await removeModel(this.#host, this.key);
        this.#folder = await modelFolder(this.#host, this.key, true);
        if (!this.#folder) throw new DOMException("this browser keeps no files for this page", "NotSupportedError");
        await this.annotate({});
        return this.#folder;
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
        const { name } = thrown as Error;
        if (name === "NoModificationAllowedError" || name === "InvalidModificationError")
            throw new BerylError("MISUSE", "the model is being read just now", "Close the tab that loads it, then remove it.");
        if (name !== "NotFoundError") throw BerylError.from(thrown);
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
        if (store && store.key === key && store.stored > 0) found.push({ note: store.note, key, stored: store.stored });
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

/** Null if `bytes` more can be kept in the origin's storage, else why not, with the figures. */
export async function noRoomFor(host: StorageHost, bytes: number): Promise<string | null> {
    if (!await host.root()) return "this browser keeps no files for this page";
    const { usage, quota } = await host.estimate();
    if (usage === undefined || quota === undefined || quota - usage >= bytes) return null;
    return `${showBytes(bytes)} more are needed in this site's storage and ${showBytes(Math.max(quota - usage, 0))} are free`;
}
