/*
 * files.ts - the repository's files for the tests, under Node and Deno. In a browser files_web.ts stands in its place.
 */
import { readFileSync } from "node:fs";
import { fileURLToPath, pathToFileURL } from "node:url";

/** Tests are run from app/web, wherever their JavaScript lies. */
export function repository(path: string): string {
    return fileURLToPath(new URL(`../../${path}`, pathToFileURL(`${process.cwd()}/`)));
}

export function readRepository(path: string): Uint8Array<ArrayBuffer> {
    return new Uint8Array(readFileSync(repository(path)));
}
