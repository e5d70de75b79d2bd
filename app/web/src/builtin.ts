/*
 * builtin.ts - the address of the model that comes with the package. A file of its own, so that
 * only those who ask for "builtin" refer to it.
 */

/** The small default model. */
export function builtinUrl(): string {
    return new URL(/* @vite-ignore */ "./default.gguf", import.meta.url).href;
}
