/*
 * load.ts - from a source and options to a model: in a worker where there is one, else in place.
 */
import { makeWorker, moduleUrl } from "./assets.js";
import type { HostCalls, HostEvent, PlainLoad } from "./calls.js";
import { devices } from "./devices.js";
import type { GpuFeature, LogLevel, PowerPreference, WebGpu } from "./engine.js";
import { BerylError, throwIfAborted } from "./error.js";
import type { AdapterSource, FullModel } from "./full_model.js";
import { Model, Session } from "./model.js";
import { ARGUMENTS, check, OPTIONS } from "./options.js";
import { remote, type Caller } from "./rpc.js";
import { hasDisk } from "./source/disk.js";
import type { CacheMode, PlainSource, Progress } from "./source/index.js";
import type { RequestOptions, RetryOptions } from "./source/http.js";
import { orAborted, within } from "./source/source.js";
import { browserStorage } from "./source/store.js";

const END_WAIT = 5_000; // milliseconds

/** Where a model comes from. A string is an address, relative to the page (under Node and Deno: a path), or "builtin". */
export type ModelSource = "builtin" | string | URL | Blob | FileSystemFileHandle;

type Module = string | URL | WebAssembly.Module | BufferSource;

/** How a model is loaded. All is optional. */
export interface LoadOptions {
    /** Tokens that a session can hold; default: the smaller of the file's and 8,192. */
    context?: number;
    /** Sessions held on the device at once; default 1. There may be more, see Model.session. */
    sessions?: number;
    /** "fast" (default): int8 activations where the device has dot products; "exact": f32. */
    precision?: "fast" | "exact";
    /** Type of the KV cache; default "f16", under "exact" "f32". */
    kv?: "f32" | "f16" | "q8";
    /** Which adapter, where there are two; default "high-performance". */
    device?: PowerPreference;
    /** Bytes of device memory that may be used; default: what the device has. */
    memory?: number;
    /** Most tokens of a prompt in one step; default: as the device likes. */
    piece?: number;
    /** Tokens and chat format alone: no weights, no device. */
    vocabularyOnly?: boolean;
    /** Capabilities of the adapter to leave alone, as where a driver gets one wrong. */
    without?: readonly GpuFeature[];
    /** The file's SHA-256 in hex: the model is not given before the whole file was found to have it. */
    sha256?: string;
    /** Whether a model from an address is kept for the next start; default "auto": where there is room. */
    cache?: CacheMode;
    /** Headers and credentials for the address. */
    request?: RequestOptions;
    /** How stubborn reading from the address is. */
    retry?: RetryOptions;
    /** Ends the load at once. What has arrived is kept. */
    signal?: AbortSignal;
    /** How far it is: "downloading", "reading the file", "loading weights", "checking the file";
     *  after the load "keeping the rest", what the model has not asked for yet. */
    onProgress?: (progress: Progress) => void;
    /** What may interest a developer. */
    onLog?: (level: LogLevel, line: string) => void;
    /** The engine in a worker of its own; default true where there are workers. */
    worker?: boolean;
    /** A WebGPU implementation (Node); the engine then runs in place. Default navigator.gpu. */
    gpu?: WebGpu;
    /** The full module, which can do what few pages need: adapters and training. Default false: it is not fetched. */
    full?: boolean;
    /** Adapters that the model answers with; takes the full module. */
    lora?: readonly AdapterSource[];
    /** The module, if beryl.wasm does not lie beside the script, or is compiled by the page already. */
    module?: Module | Promise<Module>;
    /** The towers of pictures and sound, where they do not lie in the model's own file; kept like it. */
    mmproj?: ModelSource;
    /** The address of the default model, if it does not lie beside the script. */
    builtin?: string | URL;
}

/** Loads a model. Rejects with a BerylError. */
export function load(source: ModelSource, options: LoadOptions & ({ full: true } | { lora: readonly AdapterSource[] })): Promise<FullModel>;
export function load(source: ModelSource, options?: LoadOptions): Promise<Model>;
export async function load(source: ModelSource, options: LoadOptions = {}): Promise<Model> {
    try {
        check(options, OPTIONS.load, "load");
        ARGUMENTS.source.check(source, "source");
        return await loadChecked(source, options);
    } catch (thrown) { // a part of the package may not have come
        throw BerylError.from(thrown);
    }
}

async function loadChecked(source: ModelSource, options: LoadOptions): Promise<Model> {
    const { signal, onProgress, onLog } = options;
    throwIfAborted(signal);
    const plain = await plainLoad(source, options);
    const connecting = connect(options);
    const caller = await orAborted(connecting, signal).catch((thrown: unknown) => {
        connecting.then((late) => late.close(), () => undefined);
        throw thrown;
    });
    try {
        let model: Model | null = null;
        const hear = (event: HostEvent): void => {
            if (event.kind === "progress") onProgress?.(event.progress);
            else if (event.kind === "log") onLog?.(event.level, event.line);
            else model?.heard(event);
        };
        caller.call("watch", null, { onEvent: hear }).catch((thrown: unknown) => { // the worker is gone, with all that it held
            hear({ kind: "state", state: "failed", info: null, error: BerylError.from(thrown).toPlain() });
        });
        if (typeof plain.source === "string" && plain.source.startsWith("http") && options.cache !== "off")
            browserStorage.persist().catch(() => undefined); // pages alone may ask, workers not
        const full = plain.full && await import("./full.js");
        const module = absolute(await orAborted(Promise.resolve(options.module ?? (full ? full.fullUrl() : moduleUrl())), signal));
        const loaded = caller.call("load", { ...plain, module }, { signal });
        const parts = [caller, await orAborted(loaded, signal), () => end(caller)] as const;
        model = full ? await full.fullModel(Model, Session, parts, options) : new Model(...parts);
        return model;
    } catch (thrown) {
        void end(caller);
        throw await explained(BerylError.from(thrown), options.gpu);
    }
}

/* Where there is nothing to compute on: why, and what would help in this browser. */
async function explained(error: BerylError, gpu: WebGpu | undefined): Promise<BerylError> {
    if (error.status !== "NO_DEVICE") return error;
    const [first] = await devices(gpu);
    return first && !first.usable ? new BerylError("NO_DEVICE", first.whyNot, first.hint) : error;
}

/* Asks the host to end, and ends it if it does not answer. */
async function end(caller: Caller<HostCalls>): Promise<void> {
    await within(END_WAIT, caller.call("close", null));
    caller.close();
}

async function plainLoad(source: ModelSource, options: LoadOptions): Promise<Omit<PlainLoad, "module">> {
    const { signal: _signal, onProgress: _onProgress, onLog: _onLog, worker: _worker, gpu: _gpu, module: _module, builtin: _builtin, lora, full, mmproj, ...rest } = options;
    return { ...rest, full: full || !!lora, source: await plainSource(source, options), ...(mmproj !== undefined && { mmproj: await plainSource(mmproj, options) }) };
}

async function plainSource(source: ModelSource, options: LoadOptions): Promise<PlainSource> {
    if (source === "builtin")
        return options.builtin !== undefined ? absolute(options.builtin) : (await import("./builtin.js")).builtinUrl();
    return absolute(source);
}

/* An address as the page means it, since a worker's own base is another; what is no address stays. */
function absolute<T>(address: T): Exclude<T, URL> | string {
    if (typeof address !== "string" && !(address instanceof URL)) return address as Exclude<T, URL>;
    const page = (globalThis.location as Location | undefined)?.href;
    const host = globalThis as { process?: { cwd(): string } };
    const base = page?.startsWith("http") || !hasDisk() ? page : `file://${host.process?.cwd() ?? ""}/`;
    try {
        return new URL(address, base).href;
    } catch {
        throw new BerylError("MISUSE", `"${String(address)}" is not an address`);
    }
}

async function connect(options: LoadOptions): Promise<Caller<HostCalls>> {
    const needed = options.vocabularyOnly !== true;
    const here = options.gpu ?? (globalThis.navigator as Navigator | undefined)?.gpu;
    const log = options.onLog ?? (() => undefined);
    if (options.worker !== false && options.gpu === undefined && typeof Worker === "function") {
        const started = await startWorker().catch((thrown: unknown) => {
            log("warning", `the worker does not start, the engine runs in the page: ${(thrown as Error).message}`);
            return null;
        });
        if (started && (started.gpu || !needed)) return started.caller;
        if (started && here) log("warning", "workers of this browser have no WebGPU, the engine runs in the page");
        started?.caller.close();
    }
    if (!here && needed) throw await explained(new BerylError("NO_DEVICE", "there is no WebGPU here"), undefined);
    return (await import("./place.js")).inPlace(options.gpu);
}

async function startWorker(): Promise<{ caller: Caller<HostCalls>; gpu: boolean }> {
    const worker = makeWorker();
    const caller = remote<HostCalls>(worker, () => worker.terminate());
    worker.addEventListener("error", (event) => {
        event.preventDefault?.();
        const what = event.message || "its script could not be loaded";
        caller.fail(new BerylError("IO", `Beryl's worker failed: ${what}`, "Look at the console; a content security policy needs worker-src 'self'."));
    });
    try {
        return { caller, gpu: (await caller.call("hello", null)).gpu };
    } catch (thrown) {
        caller.close();
        throw thrown;
    }
}
