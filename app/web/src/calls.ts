/*
 * calls.ts - the calls between a model and the host of its engine, as data that can be posted.
 */
import type { ImageBudget, RgbPicture } from "./chat.js";
import type { EngineEvent, EngineInfo, EngineStats, GenerateOptions, GenerateResult, GpuFeature, LogLevel, PowerPreference } from "./engine.js";
import type { PlainError } from "./error.js";
import type { Call } from "./rpc.js";
import type { RequestOptions, RetryOptions } from "./source/http.js";
import type { CacheMode, PlainSource, Progress } from "./source/index.js";

/** Options of a load that cross the border. */
export interface PlainLoad {
    source: PlainSource;
    /** The towers of pictures and sound, where they have a file of their own. */
    mmproj?: PlainSource | undefined;
    /** The module: its address, or itself. */
    module: string | WebAssembly.Module | BufferSource;
    /** That is the full one. */
    full?: boolean | undefined;
    device?: PowerPreference | undefined;
    context?: number | undefined;
    sessions?: number | undefined;
    precision?: "fast" | "exact" | undefined;
    kv?: "f32" | "f16" | "q8" | undefined;
    memory?: number | undefined;
    piece?: number | undefined;
    vocabularyOnly?: boolean | undefined;
    without?: readonly GpuFeature[] | undefined;
    sha256?: string | undefined;
    cache?: CacheMode | undefined;
    request?: RequestOptions | undefined;
    retry?: RetryOptions | undefined;
}

/** How a model is. "lost": its GPU went away, and it is being loaded again; "failed": that did not work. */
export type ModelState = "ready" | "lost" | "failed" | "closed";

/** What a host tells unasked. */
export type HostEvent =
    | { kind: "progress"; progress: Progress }
    | { kind: "log"; level: LogLevel; line: string }
    | { kind: "state"; state: ModelState; info: EngineInfo | null; error: PlainError | null };

/** A picture that a host can decode. */
export type PlainPicture = Blob | ImageBitmap | ImageData | RgbPicture;

/** A picture, samples, or a WAV file. */
export type PlainMedia = { kind: "image"; from: PlainPicture } | { kind: "audio"; from: Blob | Float32Array; rate: number };

/** Pictures and sound for a prompt, in the order of their places. */
export interface PlainMediaList { media?: PlainMedia[]; budget?: ImageBudget | undefined }

/** A prompt as messages or as tokens. */
export type Prompt = PlainMediaList & ({ chat: object } | { tokens: ArrayLike<number> });

/** The border's calls. Sessions are numbers that the caller gives to `open`: calls then need not wait for its answer, and keep their order. */
export interface HostCalls {
    hello: Call<null, { gpu: boolean }>;
    /** Never ends before the host does. */
    watch: Call<null, null, HostEvent>;
    load: Call<PlainLoad, EngineInfo>;
    close: Call<null, null>;
    stats: Call<null, EngineStats>;
    describe: Call<{ tensors: boolean }, unknown>;
    tokenize: Call<{ text: string; special: boolean }, Int32Array>;
    detokenize: Call<{ tokens: ArrayLike<number>; special: boolean }, string>;
    render: Call<{ chat: object }, string>;
    renderTokens: Call<{ chat: object } & PlainMediaList, Int32Array>;
    embed: Call<PlainMediaList, Float32Array, EngineEvent>;
    prepare: Call<{ kind: number }, null>;
    selftest: Call<null, null, EngineEvent>;
    open: Call<{ session: number }, null>;
    generate: Call<{ session: number; prompt: Prompt; options: GenerateOptions }, GenerateResult, EngineEvent>;
    tokens: Call<{ session: number }, Int32Array>;
    rewind: Call<{ session: number; count: number }, null>;
    save: Call<{ session: number }, Blob>;
    restore: Call<{ session: number; snapshot: Blob }, null>;
    drop: Call<{ session: number }, null>;
}
