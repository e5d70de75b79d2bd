/*
 * source/index.ts - from what a caller names to a source that is open.
 */
import { BerylError } from "../error.js";
import { BlobSource, openHandle } from "./blob.js";
import { hasDisk, openDisk } from "./disk.js";
import { orAborted, type ByteSource } from "./source.js";
import { openUrl, type FillableSource, type UrlOptions } from "./url.js";

export { VerifiedSource } from "./verify.js";
export type { ByteSource, Progress } from "./source.js";
export type { CacheMode, FillableSource, StoredSource, UrlOptions } from "./url.js";

/** What a model can be loaded from, once addresses are absolute: it can be posted to a worker. */
export type PlainSource = string | Blob | FileSystemFileHandle;

/** Opens any of them. */
export async function openSource(source: PlainSource, options: UrlOptions, signal?: AbortSignal): Promise<ByteSource | FillableSource> {
    if (source instanceof Blob) return new BlobSource(source);
    if (typeof source !== "string") return await openHandle(source);
    const url = new URL(source);
    if (url.protocol === "http:" || url.protocol === "https:") return await openUrl(url.href, options, signal);
    if (url.protocol === "file:" && hasDisk()) return await openDisk(url);
    if (url.protocol === "blob:" || url.protocol === "data:") {
        const blob = orAborted(fetch(url).then((response) => response.blob()), signal);
        return new BlobSource(await blob.catch((thrown: unknown) => { throw BerylError.from(thrown, "NOT_FOUND"); }));
    }
    throw new BerylError("UNSUPPORTED", `addresses that begin with ${url.protocol} cannot be read here`,
        "Give an http(s) address, a File, a Blob or a handle.");
}
