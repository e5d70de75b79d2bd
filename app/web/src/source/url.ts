/*
 * url.ts - a model at a web address: read by ranges, kept on the way, resumed later.
 *
 * Owns the pieces in memory, the reading ahead, and the filling of the store. Memory is bounded:
 * at most #most pieces, in flight or held, whatever the file's size; fetching, writing and the reader's work go on side by
 * side within that. Where another thread keeps the pieces, fetching begins at once and goes to the file's end, whatever the reader
 * does: what it is not there for yet goes through the store. A reader is served from memory, else from the store, else from the
 * network; far, small reads (one row of a table) go to the network as they are. A server without ranges is read once from its start into the store. What does
 * not begin as a GGUF does is refused before anything of it is kept.
 */
import { BerylError } from "../error.js";
import { release } from "../release.js";
import { HttpFile, sameVersion, type HttpOptions } from "./http.js";
import { checkRange, orAborted, showBytes, sleep, type ByteSource, type Progress } from "./source.js";
import { BlobSource } from "./blob.js";
import { browserStorage, noRoomFor, PIECE, removeModel, Store, withLock, type ReadPiece, type StorageHost, type WritePiece } from "./store.js";

/** Pieces in memory at most, on their way, in use or being written: 24 MiB. A read touches two of them; a write takes as long as two or three of
 *  them take to come. Where those that come do not wait for their reader, half as many do. */
const MOST = 6;
const MOST_KEPT = 3;
/** Pieces asked for ahead of a reader that goes forward. */
const AHEAD = 6;
/** Pieces that `fill` fetches side by side. */
const LANES = 3;
/** So many pieces fetched in a row (more than a header has), and one request asks for several: as many as there were, and at most LONG. */
const ROW = 8;
const LONG = 64;
/** Milliseconds between two reports of progress. */
const TELL = 50;
/** Milliseconds between two looks at what another tab has brought. */
const LOOK = 100;
const PATIENCE = 5_000;
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
    /** Milliseconds without anything new after which the tab that writes is not waited for; default 5,000. */
    patience?: number;
    /** What a user should know but need not act on. */
    onWarning?: (line: string) => void;
    /** Writes pieces in another thread, and reads them there while others come; without it, all is done here. */
    keeper?: Keeper;
}

/** The store's pieces by way of another thread. */
export interface Keeper {
    /** Takes a piece's bytes away, writes them, and gives them back with what hindered it. */
    write(...piece: Parameters<WritePiece>): Promise<{ bytes: Uint8Array; failure: DOMException | null }>;
    /** As Store.read, with `room` taken away. */
    read: ReadPiece;
}

/** A source that can go on loading what nobody has read yet. */
export interface FillableSource extends ByteSource {
    /** Loads the rest into the store; true if the store then has everything. */
    fill(signal?: AbortSignal): Promise<boolean>;
    /** Ends all reading, and removes what is kept: it is no model. */
    forget(): Promise<void>;
    /** Some of it was kept before: the server may have another by now. */
    readonly old: boolean;
    /** The SHA-256 that the whole file, as it is kept, was found to have; else null. */
    readonly sha256: string | null;
    /** Writes that down. */
    found(sha256: string): Promise<void>;
}

/** The same with what is kept at hand; null where nothing is. */
export interface StoredSource extends FillableSource { readonly store: Store | null }

/** Opens a model at an http(s) address. */
export async function openUrl(url: string, options: UrlOptions = {}, signal?: AbortSignal): Promise<StoredSource> {
    const host = options.storage ?? browserStorage;
    const mode = options.cache ?? "auto";
    const kept = mode === "off" ? null : await Store.find(host, url);
    if (kept?.note.complete) {
        await kept.annotate({ used: Date.now() }).catch(() => undefined); // a full disk does not hinder reading
        return new UrlSource(null, kept, options, true);
    }
    const from = kept ? firstMissing(kept) : 0;
    const file = await HttpFile.open(url, options, from * PIECE, kept?.pieceSize(from) ?? PIECE, signal);
    try {
        if (file.size === 0) throw new BerylError("BAD_FILE", `${file.name} is empty`);
        if (from === 0 || !file.ranges) checkHead(file);
        let store = mode === "off" || file.size < 0 ? null : kept && sameVersion(kept.note, file) ? kept : Store.make(host, url, file.name, file);
        const why = store ? await noRoomFor(host, file.size - store.stored) : "the server does not say how large it is";
        if (why && mode === "required") throw notKept(file.name, why);
        if (why && mode !== "off") options.onWarning?.(`${file.name} is used without being kept: ${why}`);
        if (why) store = null;
        if (file.ranges || store) return new UrlSource(file, store, options, kept !== null);
        return await asBlob(file, options, signal);
    } catch (thrown) {
        file.close();
        throw thrown;
    }
}

function firstMissing(store: Store): number {
    for (let i = 0; i < store.count; i++) if (!store.has(i)) return i;
    return 0;
}

/* What begins otherwise is a web page, a pointer of git-lfs, another format. All else is for the engine to see. */
function checkHead({ head, name }: HttpFile): void {
    const text = String.fromCharCode(...head);
    if (text.startsWith("GGUF")) return;
    throw new BerylError("BAD_FILE", `${name} is no GGUF file: it begins with ${JSON.stringify(text)}`, text.trimStart().startsWith("<")
        ? "The address leads to a web page, not to the file itself. On Hugging Face it has /resolve/ in place of /blob/."
        : "Check the address: it must lead to the file itself.");
}

function notKept(name: string, why: string): BerylError {
    return new BerylError("NO_MEMORY", `${name} cannot be kept, as \`cache: "required"\` asks: ${why}`,
        "Remove models that are not needed (Beryl.cache.remove), or load with `cache: \"auto\"`.");
}

/* A server without ranges, and nowhere to keep the file: the browser holds it as a Blob, outside the heap. */
async function asBlob(file: HttpFile, options: UrlOptions, signal?: AbortSignal): Promise<StoredSource> {
    const tooLarge = (): BerylError => new BerylError("UNSUPPORTED",
        `the server does not answer ranges of ${file.name}, and there is no room to keep ${file.size > 0 ? showBytes(file.size) : "it"}`,
        "Use a server with byte ranges, or download the file and open it from disk.");
    if (file.size > MOST_AS_BLOB) throw tooLarge();
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
        return Object.assign(blob, {
            fill: () => Promise.resolve(false), forget: () => Promise.resolve(), found: () => Promise.resolve(), old: false, sha256: null, store: null,
        });
    }
}

/* A piece on its way or there. Its memory is another's when it is left behind, is kept if it is to be, and has no users. `away`: with the writer until then. */
interface Piece { bytes: Uint8Array<ArrayBuffer> | null; away: Promise<unknown> | null; begun: boolean; arrived: Promise<Uint8Array<ArrayBuffer>>; saved: Promise<void>; users: number }

class UrlSource implements StoredSource {
    readonly size: number;
    readonly name: string;
    store: Store | null;
    readonly #file: HttpFile | null; // null: the store has all
    readonly #options: UrlOptions;
    readonly old: boolean;
    readonly #ending = new AbortController();
    readonly #pieces = new Map<number, Piece>(); // in memory, oldest first
    #spare: Uint8Array<ArrayBuffer>[] = []; // memory of pieces left behind, for others: what was used before costs no page of new memory. With those that have theirs at most #most
    #room: (() => void)[] = []; // those who wait for memory
    #taken = 0; // pieces that have theirs
    readonly #most: number;
    #first = 0; // pieces of the last read
    #last = -1;
    #run = 0; // how many pieces the reader has gone forward
    #fetched = -1; // the last piece that was asked of the network, and how many in a row
    #row = 0;
    #turn: Promise<unknown> = Promise.resolve(); // ends when the piece asked for before has begun to come
    #arrived: number; // bytes, for progress
    #told = 0; // when
    #ahead = false; // all is going to be fetched, one piece after the other
    #filling = false; // nobody waits for what comes now
    #refused: BerylError | null = null; // it had to be kept, and could not
    #mine = false; // this tab is the one that writes
    #asking: Promise<boolean> | null = null; // whether it is
    #waiting: Promise<boolean> | null = null; // until it is
    #patient = true; // with the tab that writes
    #leave: () => void = () => undefined;
    #streaming: Promise<void> | null = null;
    #landed: (() => void)[] = []; // those who wait for a piece of the stream

    constructor(file: HttpFile | null, store: Store | null, options: UrlOptions, old: boolean) {
        this.#file = file;
        this.store = store;
        this.size = file?.size ?? store?.note.size ?? 0;
        this.name = file?.name ?? store?.note.name ?? "";
        this.#options = options;
        this.#most = store && options.keeper ? MOST_KEPT : MOST;
        this.old = old;
        this.#arrived = store?.stored ?? 0;
        void this.#goAhead();
    }

    async read(offset: number, size: number, signal?: AbortSignal, room?: Uint8Array): Promise<Uint8Array> {
        checkRange(this, offset, size);
        this.#check();
        const first = Math.floor(offset / PIECE);
        const last = Math.max(first, Math.ceil((offset + size) / PIECE) - 1);
        if (first === last) return await orAborted(this.#part(first, offset - first * PIECE, size, room), signal);
        const whole = room ?? new Uint8Array(size);
        for (let i = first; i <= last; i++) {
            const start = Math.max(offset, i * PIECE);
            const end = Math.min(offset + size, (i + 1) * PIECE);
            const part = await orAborted(this.#part(i, start - i * PIECE, end - start), signal);
            whole.set(part, start - offset);
            release(part);
        }
        return whole;
    }

    close(): void {
        this.#ending.abort();
        this.#file?.close();
        this.#pieces.clear();
        this.#spare.length = 0;
        this.#wake();
        this.store?.close();
        this.#leave();
    }

    get sha256(): string | null {
        return this.store?.note.sha256 ?? null;
    }

    async found(sha256: string): Promise<void> {
        await this.store?.annotate({ sha256 });
    }

    async forget(): Promise<void> {
        const { store } = this, saved = [...this.#pieces.values()].map((piece) => piece.saved);
        this.close();
        await Promise.all(saved); // what is being written would keep the folder
        if (store) await removeModel(this.#options.storage ?? browserStorage, store.key).catch(() => undefined); // another tab may have it still
    }

    async fill(signal?: AbortSignal): Promise<boolean> {
        try {
            return await this.#fillAll(signal);
        } finally {
            for (const bytes of this.#spare.splice(0)) release(bytes);
            this.#leave(); // all is there, or will not be: nobody need wait for this tab
        }
    }

    async #fillAll(signal?: AbortSignal): Promise<boolean> {
        const store = this.store;
        this.#check();
        if (!store) return false;
        this.#filling = true;
        const stop = signal ? AbortSignal.any([signal, this.#ending.signal]) : this.#ending.signal;
        if (this.#file) {
            if (!this.#file.ranges) await orAborted(this.#stream(), stop);
            await orAborted(this.#mayWrite(true), stop);
            await this.#keepAll(store, stop);
        }
        this.#check();
        if (this.store && !store.note.complete) await store.annotate({ used: Date.now() });
        return this.store !== null && store.note.complete;
    }

    /* Before anybody asks, where that needs no memory and this tab is the one that writes. What fails then, who comes to it meets. */
    async #goAhead(): Promise<void> {
        const { store } = this;
        if (!store || !this.#file?.ranges || !this.#options.keeper || !await this.#mayWrite(false)) return;
        this.#ahead = true;
        await this.#keepAll(store, this.#ending.signal).catch(() => undefined);
        this.#ahead = false;
    }

    async #keepAll(store: Store, stop: AbortSignal): Promise<void> {
        let next = 0;
        const lane = async (): Promise<void> => {
            while (next < store.count && this.store) await this.#keep(next++, stop);
        };
        await Promise.all(Array.from({ length: LANES }, lane));
    }

    async #keep(i: number, stop: AbortSignal): Promise<void> {
        if (await this.#has(i)) return;
        for (;;) {
            const piece = this.#ask(i); // without using it: it is a reader's to take
            await orAborted(piece.arrived.then(() => piece.saved), stop);
            if (!this.store || this.store.has(i)) return;
            if (piece.bytes && this.#pieces.get(i) === piece) // from when another tab was the one to write
                return await orAborted(this.#use(piece, () => this.#savePiece(i, piece)), stop);
        }
    }

    #check(): void {
        if (this.#refused) throw this.#refused;
        if (this.#ending.signal.aborted) throw new BerylError("CANCELLED", `${this.name} is closed`);
    }

    /* The reader is there now. */
    #move(first: number, last: number): void {
        const onward = first >= this.#first && first <= this.#last + 1;
        if (last !== this.#last) this.#run = onward ? this.#run + 1 : 0;
        [this.#first, this.#last] = [first, last];
        this.#wake();
    }

    /* `size` bytes at `offset` of piece i, from wherever they are nearest. */
    async #part(i: number, offset: number, size: number, room?: Uint8Array): Promise<Uint8Array> {
        const onward = i >= this.#first && i <= this.#last + 1;
        this.#move(i, i);
        const held = this.#pieces.get(i);
        if (!held && this.store && await this.#has(i)) {
            this.#lookAhead(i);
            const bytes = await this.store.read(i, offset, size, room, this.#file && size > SMALL ? this.#options.keeper?.read : undefined);
            if (bytes?.length === size) return bytes;
        }
        const file = this.#file;
        if (!file && !held) throw this.#removed();
        if (file && !file.ranges) return await this.#streamed(i, offset, size);
        if (file && !held && !onward && size <= SMALL) {
            return await file.readInto(new Uint8Array(size), i * PIECE + offset, this.#ending.signal);
        }
        const piece = this.#ask(i);
        if (!held) this.#wake(); // those before it may have to make room
        const part = this.#use(piece, (bytes) => {
            if (!room) return bytes.slice(offset, offset + size);
            if (size < bytes.length || piece.users > 1) {
                room.set(bytes.subarray(offset, offset + size));
                return room;
            }
            this.#pieces.delete(i); // a whole one goes to its reader, whose memory serves for another
            this.#taken--;
            this.#spare.push(new Uint8Array(structuredClone(room.buffer, { transfer: [room.buffer] }) as ArrayBuffer));
            return bytes;
        });
        this.#lookAhead(i);
        return await part;
    }

    #removed(): BerylError {
        return new BerylError("IO", `part of ${this.name} was removed from the browser's storage`, "Load it again.");
    }

    /* Beyond piece i, where a reader is who goes forward. */
    #lookAhead(i: number): void {
        for (let k = i + 1; k <= i + Math.min(AHEAD, this.#run) && k * PIECE < this.size; k++)
            if (this.store?.has(k)) void (this.#file && this.#options.keeper ? 0 : this.store.open(k));
            else if (this.#file?.ranges && !this.#pieces.has(k)) this.#ask(k).arrived.catch(() => undefined); // who comes to it meets the error
    }

    async #use<T>(piece: Piece, work: (bytes: Uint8Array<ArrayBuffer>) => T | Promise<T>): Promise<T> {
        piece.users++;
        try {
            await piece.arrived;
            if (this.#options.keeper) await piece.saved;
            await piece.away;
            if (!piece.bytes) throw new BerylError("IO", `the worker that keeps ${this.name} has ended`, "Load it again.");
            return await work(piece.bytes);
        } finally {
            piece.users--;
            this.#wake();
        }
    }

    #ask(i: number): Piece {
        let piece = this.#pieces.get(i);
        if (piece) return piece;
        let saved: () => void = () => undefined;
        let begin: () => void = () => undefined;
        const before = this.#turn;
        this.#turn = new Promise<void>((resolve) => { begin = resolve; });
        const begun = (): void => {
            if (piece) piece.begun = true;
            begin();
        };
        piece = { bytes: null, away: null, begun: false, arrived: before.then(() => this.#bring(i, begun)).finally(begun), saved: new Promise<void>((resolve) => { saved = resolve; }), users: 1 };
        this.#pieces.set(i, piece);
        const { arrived } = piece, own = piece;
        arrived.then(async (bytes) => {
            own.bytes = bytes;
            await this.#savePiece(i, own);
        }).catch(() => {
            if (this.#pieces.get(i) === own) this.#pieces.delete(i);
        }).finally(() => {
            own.users--;
            saved();
            this.#wake();
        });
        return piece;
    }

    /* Memory for piece i, when there is some: of what was left behind, else of what lies farthest ahead and comes after it or is kept, or is
     * in the way of the reader's own. */
    async #take(i: number): Promise<void> {
        const ahead = (): number[] => {
            const own = this.#pieces.get(this.#first), starved = own && !own.begun;
            return [...this.#pieces.keys()].sort((a, b) => b - a).filter((k) => k > i || this.store?.has(k) || (starved && k > this.#last));
        };
        while (this.#taken >= this.#most && !this.#evict() && !(this.#options.keeper && ahead().some((k) => this.#drop(k)))) {
            await new Promise<void>((resolve) => { this.#room.push(resolve); });
            this.#check();
        }
        this.#taken++;
    }

    /* Whoever waits for memory looks again; what is kept and left behind goes at once. */
    #wake(): void {
        while (this.#evict((k) => this.store?.has(k) === true));
        for (const wake of this.#room.splice(0)) wake();
    }

    #evict(which: (k: number) => boolean = () => true): boolean {
        for (const k of this.#pieces.keys())
            if ((k < this.#first || k > this.#last + AHEAD || this.#filling) && which(k) && this.#drop(k)) return true;
        return false;
    }

    /* Piece k, unless it is on its way or in use. */
    #drop(k: number): boolean {
        const piece = this.#pieces.get(k);
        if (!piece?.bytes || piece.users) return false;
        this.#pieces.delete(k);
        this.#taken--;
        if (piece.bytes.length === PIECE && this.#spare.length + this.#taken < this.#most) this.#spare.push(piece.bytes);
        else release(piece.bytes);
        return true;
    }

    /* One after the other until they begin to come: an answer serves pieces in their order. */
    async #bring(i: number, begun: () => void): Promise<Uint8Array<ArrayBuffer>> {
        const size = Math.min(PIECE, this.size - i * PIECE);
        await this.#take(i);
        try {
            const kept = await this.#fromStore(i, size);
            if (kept?.length === size) return kept;
            if (!this.#file) throw this.#removed();
            const bytes = (size === PIECE ? this.#spare.pop() : undefined) ?? new Uint8Array(size);
            const arrived = this.#file.readInto(bytes, i * PIECE, this.#ending.signal, (n) => this.#count(n), this.#behind(i));
            begun();
            return await arrived as Uint8Array<ArrayBuffer>;
        } catch (thrown) {
            this.#taken--;
            throw thrown;
        }
    }

    /* Bytes behind piece i that a request may ask for with it. */
    #behind(i: number): number {
        this.#row = i === this.#fetched + 1 ? this.#row + 1 : 0;
        this.#fetched = i;
        let k = i + 1;
        for (const end = i + (this.#ahead ? Infinity : this.#row < ROW ? 0 : Math.min(this.#row, LONG)); k < end && k * PIECE < this.size; k++)
            if (this.store?.has(k) || this.#pieces.get(k)?.begun) break;
        return Math.min(k * PIECE, this.size) - Math.min((i + 1) * PIECE, this.size);
    }

    /* The store has piece i; while another tab writes, the disk is asked. */
    async #has(i: number): Promise<boolean> {
        return this.store !== null && (this.store.has(i) || (!this.#mine && await this.store.lookFor(i)));
    }

    /* What is kept, or what the tab that writes will have brought soon. It is waited for as long as it goes on. */
    async #fromStore(i: number, size: number): Promise<Uint8Array<ArrayBuffer> | null> {
        const { store } = this;
        for (let since = Date.now(), before = store?.stored; store && !await this.#has(i);) {
            if (!this.#patient || await this.#mayWrite(false)) return null;
            await sleep(LOOK, this.#ending.signal);
            await store.look();
            if (store.stored !== before) since = Date.now();
            before = store.stored;
            this.#patient = Date.now() - since < (this.#options.patience ?? PATIENCE);
        }
        const kept = (await store?.read(i, 0, size) ?? null) as Uint8Array<ArrayBuffer> | null;
        if (kept && store && store.stored > this.#arrived) this.#count(store.stored - this.#arrived);
        return kept;
    }

    #count(bytes: number): void {
        this.#arrived = Math.min(this.#arrived + bytes, this.size);
        const now = Date.now();
        if (now - this.#told < TELL && this.#arrived < this.size) return;
        this.#told = now;
        this.#options.onProgress?.({ what: this.#filling ? "keeping the rest" : "downloading", done: this.#arrived, total: this.size });
    }

    async #savePiece(i: number, piece: Piece): Promise<void> {
        const { keeper } = this.#options, { bytes } = piece;
        if (!bytes) return;
        await this.#save(i, bytes, keeper && (async (...what) => {
            const away = keeper.write(...what);
            [piece.bytes, piece.away] = [null, away];
            try {
                const back = await away;
                piece.bytes = back.bytes as Uint8Array<ArrayBuffer>;
                if (back.failure) throw back.failure;
            } finally {
                piece.away = null;
                if (!piece.bytes && this.#pieces.get(i) === piece) { // lost with the writer
                    this.#pieces.delete(i);
                    this.#taken--;
                }
            }
        }));
    }

    async #save(i: number, bytes: Uint8Array<ArrayBuffer>, write?: WritePiece): Promise<void> {
        if (!this.store || !await this.#mayWrite(false) || !this.store || this.store.has(i)) return;
        try {
            await this.store.write(i, bytes, write);
        } catch (thrown) {
            if (!this.store) return; // another piece has met it
            const full = (thrown as Error).name === "QuotaExceededError";
            const why = full ? "the browser's storage is full" : (thrown as Error).message;
            this.store = null;
            if (this.#options.cache === "required") this.#refused = notKept(this.name, why);
            else this.#options.onWarning?.(`${this.name} is used without being kept: ${why}`);
            this.#leave();
        }
    }

    /* One tab writes; the others read what it has written. True if it is this one. */
    async #mayWrite(wait: boolean): Promise<boolean> {
        if (this.#asking) await this.#asking;
        if (this.#mine) return true;
        if (wait) return await (this.#waiting ??= this.#lock(true).finally(() => { this.#waiting = null; }));
        if (this.#waiting) return false;
        return await (this.#asking = this.#lock(false).finally(() => { this.#asking = null; }));
    }

    async #lock(wait: boolean): Promise<boolean> {
        const host = this.#options.storage ?? browserStorage;
        const key = this.store?.key;
        if (key === undefined || this.#ending.signal.aborted) return false;
        return await new Promise<boolean>((answer) => {
            withLock(host, key, wait, async () => {
                const left = new Promise<void>((leave) => {
                    this.#leave = () => {
                        this.#mine = false;
                        leave();
                    };
                });
                await this.store?.look().catch(() => undefined); // what others have brought until now
                this.#mine = true;
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
        return this.#refused ?? new BerylError("NO_MEMORY", `${this.name} does not fit into the browser's storage, and its server does not answer ranges`,
            "Make room in the browser's storage, or download the file and open it from disk.");
    }
}
