/*
 * helper.ts - a source that lives in a worker of its own, so that its work goes on beside the engine's.
 *
 * Owns that worker, those that keep pieces for it, and both ends of the calls to them. Fetching, keeping and reading of files happen there by the same modules that do
 * it in place; what has been read comes over by transfer, not by copy. The worker is the engine's own script under another
 * name, so that bundlers and a page's rules for workers know no more than they did. Where it does not start (no workers inside of
 * workers), the source is opened in place.
 */
import { BerylError } from "../error.js";
import { remote, serve, type Call, type Caller, type CallTable, type Port } from "../rpc.js";
import { release } from "../release.js";
import type { RequestOptions, RetryOptions } from "./http.js";
import { openSource, type ByteSource, type CacheMode, type FillableSource, type PlainSource, type Progress, type UrlOptions } from "./index.js";
import { orAborted, within } from "./source.js";
import { readPiece, writePiece } from "./store.js";
import type { Keeper } from "./url.js";

/** The worker's name, by which the script knows what it is. */
export const HELPER = "beryl files";
/** The same of those that keep pieces for that one: reading the network, writing files and reading them take a thread each. */
export const KEEPER = "beryl keeper";
const CLOSE_WAIT = 1_000; // milliseconds

interface PlainOptions { cache?: CacheMode; request?: RequestOptions; retry?: RetryOptions }
type Told = { progress: Progress } | { warning: string };
interface Facts { size: number; name: string; kept: { old: boolean; sha256: string | null } | null }

interface SourceCalls {
    hello: Call<null, null>;
    open: Call<{ source: PlainSource; options: PlainOptions }, Facts>;
    /** Never ends before the worker does. */
    watch: Call<null, null, Told>;
    read: Call<{ offset: number; size: number; room: Uint8Array | undefined }, Uint8Array>;
    fill: Call<null, boolean>;
    found: Call<{ sha256: string }, null>;
    forget: Call<null, null>;
    close: Call<null, null>;
}

interface KeeperCalls {
    hello: Call<null, null>;
    /** Gives the bytes back; tells of what hindered it before. */
    write: Call<{ folder: FileSystemDirectoryHandle; name: string; data: Uint8Array }, Uint8Array, { name: string; message: string }>;
    read: Call<{ folder: FileSystemDirectoryHandle; name: string; offset: number; size: number; room: Uint8Array | undefined }, Uint8Array | null>;
}

/** Answers the keeper's calls, in its worker. */
export function serveKeeper(port: Port): void {
    serve<KeeperCalls>(port, {
        hello: () => Promise.resolve(null),
        write: async ({ folder, name, data }, { emit }) => {
            await writePiece(folder, name, data).catch((thrown: Error) => emit({ name: thrown.name, message: thrown.message }));
            return data;
        },
        read: ({ folder, name, offset, size, room }) => readPiece(folder, name, offset, size, room).catch(() => null),
    });
}

/* A worker that writes and one that reads, each started with its first piece: writes take most of a thread. Where none starts, all is done here. */
function openKeeper(): Keeper {
    const lazily = (): () => Promise<Caller<KeeperCalls> | null> => {
        let starting: Promise<Caller<KeeperCalls> | null> | null = null;
        return () => starting ??= launch<KeeperCalls>(KEEPER).catch(() => null);
    };
    const writer = lazily(), reader = lazily();
    return {
        write: async (folder, name, data) => {
            let failure: DOMException | null = null;
            const caller = await writer();
            if (!caller) {
                await writePiece(folder, name, data).catch((thrown: DOMException) => { failure = thrown; });
                return { bytes: data, failure };
            }
            const bytes = await caller.call("write", { folder, name, data }, {
                transfer: [data.buffer], onEvent: (told) => { failure = new DOMException(told.message, told.name); },
            });
            return { bytes, failure };
        },
        read: async (folder, name, offset, size, room) => {
            const caller = await reader();
            return await caller?.call("read", { folder, name, offset, size, room }, { transfer: room ? [room.buffer] : [] }) ?? null;
        },
    };
}

/** Answers the calls, in the worker. */
export function serveSource(port: Port): void {
    let source: ByteSource | FillableSource | null = null;
    let tell: (told: Told) => void = () => undefined;
    const opened = (): ByteSource | FillableSource => {
        if (!source) throw new BerylError("MISUSE", "no source is open");
        return source;
    };
    const kept = (): FillableSource | null => source && "fill" in source ? source : null;
    serve<SourceCalls>(port, {
        hello: () => Promise.resolve(null),
        open: async ({ source: from, options }, { signal }) => {
            source = await openSource(from, {
                ...options, keeper: openKeeper(), onProgress: (progress) => tell({ progress }), onWarning: (warning) => tell({ warning }),
            }, signal);
            const fillable = kept();
            return { size: source.size, name: source.name, kept: fillable && { old: fillable.old, sha256: fillable.sha256 } };
        },
        watch: (_, { emit }) => {
            tell = emit;
            return new Promise(() => undefined);
        },
        read: async ({ offset, size, room }, { signal }) => {
            const bytes = await opened().read(offset, size, signal, room);
            if (room && room !== bytes) release(room); // unless the source has taken it
            return bytes;
        },
        fill: async (_, { signal }) => await kept()?.fill(signal) ?? false,
        found: async ({ sha256 }) => {
            await kept()?.found(sha256);
            return null;
        },
        forget: async () => {
            await kept()?.forget();
            return null;
        },
        close: async () => {
            await source?.close?.();
            return null;
        },
    });
}

/** Opens a source in a worker of this one, or in place. */
export async function openInHelper(source: PlainSource, options: UrlOptions, signal?: AbortSignal): Promise<ByteSource | FillableSource> {
    const caller = await start(options).catch(() => null);
    if (!caller) return await openSource(source, options, signal);
    const { cache, request, retry } = options, plain = { ...(cache && { cache }), ...(request && { request }), ...(retry && { retry }) };
    try {
        const facts = await orAborted(caller.call("open", { source, options: plain }, { signal }), signal);
        return facts.kept ? new FillableHelped(caller, facts, facts.kept) : new Helped(caller, facts);
    } catch (thrown) {
        caller.close();
        throw thrown;
    }
}

/* A worker of this one's script by that name, once it answers. */
async function launch<T extends CallTable<T> & { hello: Call<null, null> }>(name: string, ready?: (caller: Caller<T>) => void): Promise<Caller<T>> {
    const worker = new Worker(location.href, { type: "module", name });
    const caller = remote<T>(worker, () => worker.terminate());
    worker.addEventListener("error", (event) => {
        event.preventDefault?.();
        caller.fail(new BerylError("IO", `Beryl's worker for files failed: ${event.message || "its script could not be loaded"}`));
    });
    ready?.(caller);
    try {
        await caller.call("hello", null);
    } catch (thrown) {
        caller.close();
        throw thrown;
    }
    return caller;
}

async function start(options: UrlOptions): Promise<Caller<SourceCalls>> {
    return await launch<SourceCalls>(HELPER, (caller) => {
        caller.call("watch", null, { onEvent: (told) => {
            if ("progress" in told) options.onProgress?.(told.progress);
            else options.onWarning?.(told.warning);
        } }).catch(() => undefined);
    });
}

class Helped implements ByteSource {
    readonly size: number;
    readonly name: string;
    protected readonly caller: Caller<SourceCalls>;

    constructor(caller: Caller<SourceCalls>, { size, name }: Facts) {
        this.caller = caller;
        this.size = size;
        this.name = name;
    }

    read(offset: number, size: number, signal?: AbortSignal, room?: Uint8Array): Promise<Uint8Array> {
        return orAborted(this.caller.call("read", { offset, size, room }, { signal, transfer: room ? [room.buffer] : [] }), signal);
    }

    async close(): Promise<void> {
        await within(CLOSE_WAIT, this.caller.call("close", null));
        this.caller.close();
    }
}

class FillableHelped extends Helped implements FillableSource {
    readonly old: boolean;
    readonly sha256: string | null;

    constructor(caller: Caller<SourceCalls>, facts: Facts, { old, sha256 }: { old: boolean; sha256: string | null }) {
        super(caller, facts);
        this.old = old;
        this.sha256 = sha256;
    }

    fill(signal?: AbortSignal): Promise<boolean> {
        return orAborted(this.caller.call("fill", null, { signal }), signal);
    }

    async found(sha256: string): Promise<void> {
        await this.caller.call("found", { sha256 });
    }

    async forget(): Promise<void> {
        await this.caller.call("forget", null);
        this.caller.close();
    }
}
