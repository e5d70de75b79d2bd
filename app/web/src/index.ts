/*
 * index.ts - the package's face: Beryl.load, Beryl.devices, Beryl.cache.
 */
import { makeCache, type Cache } from "./cache.js";
import { devices, type AdapterInfo } from "./devices.js";
import type { WebGpu } from "./gpu.js";
import { load } from "./load.js";

export { BerylError, type BerylStatus } from "./error.js";
export { Answer, type AnswerOptions, type AnswerResult, type ChatOptions, type ContentPart, type ImageBudget, type MediaPart, type Message, type Part, type PictureSource,
    type RgbPicture, type SoundSource, type TokenOptions, type Tool } from "./chat.js";
export { Model, Session, type StateChange } from "./model.js";
export type { Cache, CachedModel, CacheSize } from "./cache.js";
export type { ModelState } from "./calls.js";
export type { AdapterInfo } from "./devices.js";
export type { DeviceInfo, EngineInfo, EngineStats, GenerateOptions, GenerateResult, GpuCounts, GpuFeature, LogLevel, PowerPreference, WebGpu } from "./engine.js";
export type { AdapterForm, TrainingReport } from "./full_calls.js";
export type { Adapter, Adapters, AdapterSource, FullModel, FullSession, TrainingSession, TrainOptions } from "./full_model.js";
export type { LoadOptions, ModelSource } from "./load.js";
export type { RequestOptions, RetryOptions } from "./source/http.js";
export type { CacheMode, Progress } from "./source/index.js";
export { showBytes } from "./source/source.js";

/** Everything starts here. */
export const Beryl: {
    /** The version, that of `beryl.h`. */
    readonly version: string;
    /** Loads a model from an address, a File, a Blob, a file handle, or "builtin", the one that comes with the package. */
    load: typeof load;
    /** The adapters of this browser, or why there is none and what would help. */
    devices(gpu?: WebGpu): Promise<AdapterInfo[]>;
    /** The models that this origin keeps. */
    readonly cache: Cache;
} = { version: "0.1.0", load, devices, cache: makeCache() };
