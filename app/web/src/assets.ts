/*
 * assets.ts - where the package's files lie: beside its script.
 *
 * The addresses are written so that bundlers find them and bring the files along; this package's
 * own build must leave them as they are, which the marks say (they are taken out of the result).
 */

/** The module. */
export function moduleUrl(): string {
    return new URL(/* @vite-ignore */ "./beryl.wasm", import.meta.url).href;
}

/** The worker's script, on the page's own origin or another's. */
export function makeWorker(): Worker {
    const origin = (globalThis.location as Location | undefined)?.origin;
    const own = new URL(import.meta.url);
    if (own.protocol.startsWith("http") && origin?.startsWith("http") && own.origin !== origin) {
        // Workers are started from the page's own origin alone, but may import from others.
        const url = import.meta.url.replace(/[^/]*$/, "worker.js");
        const text = new Blob([`import ${JSON.stringify(url)};`], { type: "text/javascript" });
        return new Worker(URL.createObjectURL(text), { type: "module", name: "beryl" });
    }
    return new Worker(new URL(/* @vite-ignore */ "./worker.js", import.meta.url), { type: "module", name: "beryl" });
}
