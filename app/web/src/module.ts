/*
 * module.ts - fetching a module and compiling it, while it arrives where the server lets that be.
 */
import type { PlainLoad } from "./calls.js";
import { BerylError } from "./error.js";
import { hasDisk, readDisk } from "./source/disk.js";
import { orAborted } from "./source/source.js";

/** A module's address becomes a compiled module: once, for the engine that is lost and the one that follows. */
export async function fetchModule(module: PlainLoad["module"], signal: AbortSignal): Promise<WebAssembly.Module | BufferSource> {
    if (typeof module !== "string") return module;
    const url = new URL(module);
    try {
        if (url.protocol === "file:" && hasDisk()) return await WebAssembly.compile(await readDisk(url) as Uint8Array<ArrayBuffer>);
        const response = await orAborted(fetch(url), signal);
        if (!response.ok) throw new Error(`the server answers ${response.status}`);
        const type = response.headers.get("content-type") ?? "";
        if (type.startsWith("application/wasm")) return await orAborted(WebAssembly.compileStreaming(response), signal);
        return await orAborted(response.arrayBuffer().then((bytes) => WebAssembly.compile(bytes)), signal);
    } catch (thrown) {
        if (thrown instanceof BerylError) throw thrown;
        throw new BerylError("NOT_FOUND", `the module ${url.pathname.split("/").pop()} could not be loaded: ${(thrown as Error).message}`,
            "the module must lie beside the package's script, or be named by `module`; a content security policy needs 'wasm-unsafe-eval'.");
    }
}
