/*
 * cache.ts - the models that this origin keeps, for people to see and to remove.
 */
import { BerylError } from "./error.js";
import { browserStorage, listModels, removeModel, storeKey, withLock, type StorageHost } from "./source/store.js";

/** A model in the origin's private file system. */
export interface CachedModel {
    url: string;
    name: string;
    /** Bytes of the whole file. */
    size: number;
    /** Bytes that are there; less than `size` while it is not complete. */
    stored: number;
    /** All of it is there: it loads without a network. */
    complete: boolean;
    /** The SHA-256 that it was checked against, else null. */
    sha256: string | null;
    created: Date;
    used: Date;
}

/** How much room there is. */
export interface CacheSize {
    /** Bytes of models. */
    models: number;
    /** Bytes that the whole origin uses and may use, as the browser estimates them. */
    usage: number;
    quota: number;
    /** The browser has promised not to clear it by itself. */
    persisted: boolean;
}

/** The models that are kept. */
export interface Cache {
    /** All of them, the one used last first; begun ones too. */
    list(): Promise<CachedModel[]>;
    /** Removes one by its address. True if something was there. Refused while a tab is loading it. */
    remove(model: string | URL | CachedModel): Promise<boolean>;
    /** Asks the browser to keep the files until the user removes them. */
    persist(): Promise<boolean>;
    size(): Promise<CacheSize>;
}

/** The cache over a storage. */
export function makeCache(host: StorageHost = browserStorage): Cache {
    const safely = async <T>(work: () => Promise<T>): Promise<T> => {
        try {
            return await work();
        } catch (thrown) {
            throw BerylError.from(thrown);
        }
    };
    const list = async (): Promise<CachedModel[]> => (await listModels(host)).map(({ note, stored }) => ({
        url: note.url,
        name: note.name,
        size: note.size,
        stored,
        complete: note.complete,
        sha256: note.sha256,
        created: new Date(note.created),
        used: new Date(note.used),
    }));
    return {
        list: () => safely(list),
        remove: (model) => safely(async () => {
            const named = typeof model === "object" && model !== null && "url" in model ? model.url : String(model), base = (globalThis.location as Location | undefined)?.href;
            if (!URL.canParse(named, base)) throw new BerylError("MISUSE", `a model is removed by its address, not by ${JSON.stringify(named)}`, "");
            const key = storeKey(new URL(named, base).href);
            const there = (await listModels(host)).some((one) => one.key === key);
            if (!await withLock(host, key, false, () => removeModel(host, key)))
                throw new BerylError("MISUSE", "the model is being loaded just now", "Close the tab that loads it, then remove it.");
            return there;
        }),
        persist: () => safely(() => host.persist()),
        size: () => safely(async () => {
            const { usage = 0, quota = 0 } = await host.estimate();
            const models = (await listModels(host)).reduce((sum, one) => sum + one.stored, 0);
            return { models, usage, quota, persisted: await host.persisted() };
        }),
    };
}
