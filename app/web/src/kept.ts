/*
 * kept.ts - short texts that outlive the page: what was found of this adapter's kernels. They lie in the browser's cache
 * storage, which pages and workers share; where there is none they last as long as the engine.
 */
import type { KeptTexts } from "./engine.js";

const NAME = "beryl-kept";
const address = (key: string): string => `https://kept.invalid/${encodeURIComponent(key)}`;

/** All texts, read at once, since the engine asks without waiting; what it sets is written behind. */
export async function openKept(): Promise<KeptTexts> {
    const texts = new Map<string, string>();
    const cache = await globalThis.caches?.open(NAME).catch(() => undefined);
    for (const request of await cache?.keys().catch(() => []) ?? []) {
        const text = await cache?.match(request).then((found) => found?.text()).catch(() => undefined);
        if (text !== undefined) texts.set(decodeURIComponent(new URL(request.url).pathname.slice(1)), text);
    }
    return {
        get: (key) => texts.get(key),
        set: (key, text) => {
            texts.set(key, text);
            cache?.put(address(key), new Response(text)).catch(() => undefined);
        },
    };
}
