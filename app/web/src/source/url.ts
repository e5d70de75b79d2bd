/*
 * url.ts - a model at a web address: read by ranges, kept on the way, resumed later.
 *
 * Owns the pieces in memory, the reading ahead, and the filling of the store. Memory is bounded:
 * at most MOST pieces, in flight or held, whatever the file's size. A reader is served from memory,
 * else from the store, else from the network; far, small reads (one row of a table) go to the
 * network as they are. A server without ranges is read once from its start into the store.
 */
import { BerylError } from "../error.js";
import { release } from "../release.js";
import { HttpFile, sameVersion, type HttpOptions } from "./http.js";
import { checkRange, orAborted, showBytes, sleep, type ByteSource, type Progress } from "./source.js";
import { BlobSource } from "./blob.js";
import { browserStorage, noRoomFor, PIECE, Store, storeKey, withLock, type StorageHost } from "./store.js";

/** Pieces in memory at most: 24 MiB. */
const MOST = 6;
/** Pieces asked for ahead of a reader that goes forward. */
const AHEAD = 3;
/** Milliseconds between two reports of progress. */
const TELL = 50;
/** A far read up to this size is not worth a piece. */
const SMALL = 256 * 1024;
/** What a server without ranges and a browser without storage may send at most. */
const MOST_AS_BLOB = 512 * 1024 * 1024;

/** "auto": kept where there is room; "required": an error where not; "off": never kept nor looked for. */
export type CacheMode = "auto" | "required" | "off";

export interface UrlOptions extends HttpOptions {
    cache?: CacheMode;
    storage?: StorageHost;
    onProgress?: (progress: Progress) => void;
    /** What a user should know but need not act on. */
    onWarning?: (line: string) => void;
}

/** A source that can go on loading what nobody has read yet. */
export interface FillableSource extends ByteSource {
    /** Loads the rest into the store; true if the store then has everything. */
    fill(signal?: AbortSignal): Promise<boolean>;
    /** What was written down about it, null where nothing is kept. */
    readonly store: Store | null;
}

/** Opens a model at an http(s) address. */
export async function openUrl(url: string, options: UrlOptions = {}, signal?: AbortSignal): Promise<FillableSource> {
    const host = options.storage ?? browserStorage;
    const mode = options.cache ?? "auto";
    const kept = mode === "off" ? null : await Store.find(host, url);
    if (kept?.note.complete) {
        await kept.annotate({ used: Date.now() }).catch(() => undefined); // a full disk does not hinder reading
        return new UrlSource(null, kept, options);
    }
    const from = kept ? firstMissing(kept) : 0;
    const file = await HttpFile.open(url, options, from * PIECE, kept?.pieceSize(from) ?? PIECE, signal);
    let store = kept;
    if (kept && !sameVersion(kept.note, file)) { // it was changed since: what is there belongs to the old file
        store = null;
    }
    if (mode !== "off" && file.size > 0) store = await keep(store, file, host, mode, options);
    if (file.size === 0) throw new BerylError("BAD_FILE", `${file.name} is empty`);
    if (file.ranges) return new UrlSource(file, store, options);
    if (store) return new UrlSource(file, store, options);
    return await asBlob(file, options, signal);
}

function firstMissing(store: Store): number {
    for (let i = 0; i < store.count; i++) if (!store.has(i)) return i;
    return 0;
}

/* The store to write to, or null with a warning (an error under "required"). */
async function keep(store: Store | null, file: HttpFile, host: StorageHost, mode: CacheMode, options: UrlOptions): Promise<Store | null> {
    const missing = file.size - (store?.stored ?? 0);
    let why = await noRoomFor(host, missing);
    if (!why) {
        try {
            if (!store) await withLock(host, `${storeKey(file.url)}/make`, true, async () => {
                const other = await Store.find(host, file.url); // another tab may have been quicker
                store = other && sameVersion(other.note, file) ? other : await Store.make(host, file.url, file.name, file);
            });
        } catch (thrown) {
            why = (thrown as Error).message;
        }
        if (store) return store;
        why ??= "this browser keeps no files for this page";
    }
    if (mode === "required") {
        file.close();
        throw new BerylError("NO_MEMORY", `${file.name} cannot be kept: ${why}`,
            "Remove models that are not needed (Beryl.cache.remove), or load with cache: \"auto\".");
    }
    options.onWarning?.(`${file.name} is used without being kept: ${why}`);
    return null;
}

/* A server without ranges, and nowhere to keep the file: the browser holds it as a Blob, outside the heap. */
async function asBlob(file: HttpFile, options: UrlOptions, signal?: AbortSignal): Promise<FillableSource> {
    const tooLarge = (): BerylError => new BerylError("UNSUPPORTED",
        `the server does not answer ranges of ${file.name}, and there is no room to keep ${file.size > 0 ? showBytes(file.size) : "it"}`,
        "Use a server with byte ranges, or download the file and open it from disk.");
    if (file.size > MOST_AS_BLOB) {
        file.close();
        throw tooLarge();
    }
    for (let attempt = 1; ; attempt++) {
        const parts: Blob[] = [];
        let done = 0;
        try {
            for await (const piece of file.stream(signal)) {
                parts.push(new Blob([piece as Uint8Array<ArrayBuffer>]));
                done += piece.length;
                if (done > MOST_AS_BLOB) throw tooLarge();
                options.onProgress?.({ what: "downloading", done, total: Math.max(file.size, 0) });
            }
            if (file.size >= 0 && done !== file.size) throw new Error(`the connection ended at byte ${done} of ${file.size}`);
        } catch (thrown) {
            const fatal = thrown instanceof BerylError;
            if (fatal || attempt === (options.retry?.attempts ?? 6)) throw fatal ? thrown : BerylError.from(thrown);
            await sleep((options.retry?.pause ?? 250) * 2 ** attempt, signal);
            continue;
        }
        const blob = new BlobSource(new Blob(parts), file.name);
        return Object.assign(blob, { fill: () => Promise.resolve(false), store: null });
    }
}

/* A piece on its way or there. Its memory is given back when it is left behind and has no users. */
interface Piece { bytes: Promise<Uint8Array<ArrayBuffer>>; done: boolean; users: number }

class UrlSource implements FillableSource {
    readonly size: number;
    readonly name: string;
    store: Store | null;
    readonly #file: HttpFile | null; // null: the store has all
    readonly #options: UrlOptions;
    readonly #ending = new AbortController();
    readonly #pieces = new Map<number, Piece>(); // in memory, oldest first
    #last = -1; // piece of the last read
    #run = 0; // how many pieces the reader has gone forward
    #arrived: number; // bytes, for progress
    #told = 0; // when
    #filling = false; // nobody waits for what comes now
    #writing: Promise<boolean> | null = null; // whether this tab is the one that writes
    #leave: () => void = () => undefined;
    #streaming: Promise<void> | null = null;
    #landed: (() => void)[] = []; // those who wait for a piece of the stream

    constructor(file: HttpFile | null, store: Store | null, options: UrlOptions) {
        this.#file = file;
        this.store = store;
        this.size = file?.size ?? store?.note.size ?? 0;
        this.name = file?.name ?? store?.note.name ?? "";
        this.#options = options;
        this.#arrived = store?.stored ?? 0;
    }

    async read(offset: number, size: number, signal?: AbortSignal): Promise<Uint8Array> {
        checkRange(this, offset, size);
        if (this.#ending.signal.aborted) throw new BerylError("CANCELLED", `${this.name} is closed`);
        const first = Math.floor(offset / PIECE);
        const last = Math.max(first, Math.ceil((offset + size) / PIECE) - 1);
        if (first === last) return await orAborted(this.#part(first, offset - first * PIECE, size), signal);
        const whole = new Uint8Array(size);
        for (let i = first; i <= last; i++) {
            const start = Math.max(offset, i * PIECE);
            const end = Math.min(offset + size, (i + 1) * PIECE);
            whole.set(await orAborted(this.#part(i, start - i * PIECE, end - start), signal), start - offset);
        }
        return whole;
    }

    close(): void {
        this.#ending.abort();
        this.#file?.close();
        this.#pieces.clear();
        this.#leave();
    }

    async fill(signal?: AbortSignal): Promise<boolean> {
        const store = this.store;
        if (!store) return false;
        this.#filling = true;
        const stop = signal ? AbortSignal.any([signal, this.#ending.signal]) : this.#ending.signal;
        if (this.#file) {
            if (!this.#file.ranges) await orAborted(this.#stream(), stop);
            await this.#mayWrite(true);
            for (let i = 0; i < store.count && this.store; i++) {
                if (await store.lookFor(i)) continue;
                const held = this.#pieces.get(i); // perhaps from when another tab was the one to write
                await orAborted<unknown>(held ? this.#use(held, (bytes) => this.#save(i, bytes)) : this.#download(i).then(release), stop);
            }
        }
        if (this.store && !store.note.complete) await store.annotate({ used: Date.now() });
        this.#leave(); // all is there: nobody need wait for this tab
        return this.store !== null && store.note.complete;
    }

    /* `size` bytes at `offset` of piece i, from wherever they are nearest. */
    async #part(i: number, offset: number, size: number): Promise<Uint8Array> {
        const onward = i === this.#last || i === this.#last + 1;
        if (i !== this.#last) this.#run = onward ? this.#run + 1 : 0;
        this.#last = i;
        const held = this.#pieces.get(i);
        if (!held && this.store && (this.store.has(i) || await this.store.lookFor(i))) {
            const bytes = await this.store.read(i, offset, size);
            if (bytes?.length === size) return bytes;
        }
        const file = this.#file;
        if (!file) throw new BerylError("IO", `part of ${this.name} was removed from the browser's storage`, "Load it again.");
        if (!file.ranges) return await this.#streamed(i, offset, size);
        if (!held && !onward && size <= SMALL) {
            const far = new Uint8Array(size);
            await file.readInto(far, i * PIECE + offset, this.#ending.signal);
            return far;
        }
        const piece = this.#pieces.get(i) ?? this.#ask(i); // looked for again: another reader may have asked meanwhile
        const part = this.#use(piece, (bytes) => bytes.slice(offset, offset + size));
        for (let k = i + 1; k <= i + Math.min(AHEAD, this.#run) && k * PIECE < this.size; k++)
            if (!this.#pieces.has(k) && !this.store?.has(k)) this.#ask(k);
        return await part;
    }

    async #use<T>(piece: Piece, work: (bytes: Uint8Array<ArrayBuffer>) => T | Promise<T>): Promise<T> {
        piece.users++;
        try {
            return await work(await piece.bytes);
        } finally {
            piece.users--;
        }
    }

    /* Asks for piece i; pieces that the reader has left behind make room. */
    #ask(i: number): Piece {
        for (const [k, piece] of this.#pieces) {
            const left = k < this.#last || k > this.#last + AHEAD;
            if (!piece.done || piece.users || !left || (this.#pieces.size < MOST && !this.store?.has(k))) continue;
            this.#pieces.delete(k);
            void piece.bytes.then(release);
        }
        const piece: Piece = { bytes: this.#download(i), done: false, users: 0 };
        this.#pieces.set(i, piece);
        piece.bytes.then(() => { piece.done = true; }, () => { this.#pieces.delete(i); });
        return piece;
    }

    async #download(i: number): Promise<Uint8Array<ArrayBuffer>> {
        const bytes = new Uint8Array(Math.min(PIECE, this.size - i * PIECE));
        await this.#file?.readInto(bytes, i * PIECE, this.#ending.signal, (n) => this.#count(n));
        await this.#save(i, bytes);
        return bytes;
    }

    #count(bytes: number): void {
        this.#arrived = Math.min(this.#arrived + bytes, this.size);
        const now = Date.now();
        if (now - this.#told < TELL && this.#arrived < this.size) return;
        this.#told = now;
        this.#options.onProgress?.({ what: this.#filling ? "keeping the rest" : "downloading", done: this.#arrived, total: this.size });
    }

    async #save(i: number, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
        if (!this.store || !await this.#mayWrite(false) || !this.store || this.store.has(i)) return;
        try {
            await this.store.write(i, bytes);
        } catch (thrown) {
            const full = (thrown as Error).name === "QuotaExceededError";
            this.store = null;
            const why = full ? "the browser's storage is full" : (thrown as Error).message;
            this.#options.onWarning?.(`${this.name} is used without being kept: ${why}`);
            this.#leave();
        }
    }

    /* One tab writes; the others read what it has written, and the network. True if it is this one. */
    async #mayWrite(wait: boolean): Promise<boolean> {
        const mine = await (this.#writing ??= this.#lock(false));
        if (mine || !wait) return mine;
        this.#writing = this.#lock(true);
        return await this.#writing;
    }

    async #lock(wait: boolean): Promise<boolean> {
        const host = this.#options.storage ?? browserStorage;
        const key = this.store?.key;
        if (key === undefined || this.#ending.signal.aborted) return false;
        return await new Promise<boolean>((answer) => {
            withLock(host, key, wait, async () => {
                const left = new Promise<void>((leave) => {
                    this.#leave = () => {
                        this.#writing = null;
                        leave();
                    };
                });
                answer(true);
                if (host.locks) await left;
            }, this.#ending.signal).catch(() => false).finally(() => answer(false));
        });
    }

    /* ---- servers without ranges ---------------------------------------------------------------- */

    async #streamed(i: number, offset: number, size: number): Promise<Uint8Array> {
        let ended = false;
        const all = this.#stream().finally(() => { ended = true; });
        all.catch(() => undefined);
        while (this.store && !this.store.has(i) && !ended)
            await Promise.race([all, new Promise<void>((resolve) => { this.#landed.push(resolve); })]);
        await (ended ? all : undefined);
        const bytes = await this.store?.read(i, offset, size);
        if (bytes?.length === size) return bytes;
        throw new BerylError("IO", `${this.name} could not be kept, and its server does not answer ranges`,
            "Make room in the browser's storage, or download the file and open it from disk.");
    }

    #stream(): Promise<void> {
        this.#streaming ??= this.#streamAll().catch((thrown: unknown) => {
            this.#streaming = null; // the next reader tries again
            throw thrown;
        });
        return this.#streaming;
    }

    async #streamAll(): Promise<void> {
        const attempts = this.#options.retry?.attempts ?? 6;
        await this.#mayWrite(true); // two tabs would both need the whole stream: one waits
        for (let failures = 0, before = 0; ;) {
            try {
                await this.#streamOnce();
                return;
            } catch (thrown) {
                if (thrown instanceof BerylError) throw thrown;
                const stored = this.store?.stored ?? 0;
                failures = stored > before ? 1 : failures + 1;
                before = stored;
                if (failures >= attempts) throw BerylError.from(thrown);
                await sleep((this.#options.retry?.pause ?? 250) * 2 ** failures, this.#ending.signal);
            }
        }
    }

    async #streamOnce(): Promise<void> {
        const store = this.store;
        if (!store || !this.#file || await this.#complete(store)) return;
        let i = 0;
        let at = 0;
        let piece = new Uint8Array(store.pieceSize(0));
        let seen = 0;
        for await (const arrived of this.#file.stream(this.#ending.signal)) {
            for (let part = arrived; part.length > 0 && i < store.count;) {
                const n = Math.min(part.length, piece.length - at);
                piece.set(part.subarray(0, n), at);
                part = part.subarray(n);
                at += n;
                seen += n;
                if (at < piece.length) continue;
                await this.#save(i, piece);
                if (!this.store) throw this.#noRoom();
                for (const wake of this.#landed.splice(0)) wake();
                release(piece);
                i++;
                at = 0;
                if (i < store.count) piece = new Uint8Array(store.pieceSize(i));
            }
            if (!this.#options.fetch) release(arrived);
            if (seen > this.#arrived) this.#count(seen - this.#arrived);
        }
        if (i < store.count) throw new Error(`the connection ended at byte ${seen} of ${this.size}`);
    }

    async #complete(store: Store): Promise<boolean> {
        for (let i = 0; i < store.count; i++) if (!await store.lookFor(i)) return false;
        return true;
    }

    #noRoom(): BerylError {
        return new BerylError("NO_MEMORY", `${this.name} does not fit into the browser's storage, and its server does not answer ranges`,
            "Make room in the browser's storage, or download the file and open it from disk.");
    }
}
