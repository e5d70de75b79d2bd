/*
 * readme.ts - the examples of the package's README, by name, as they stand there.
 */
import { readFile } from "node:fs/promises";

export async function examples(): Promise<Map<string, string>> {
    const text = await readFile("README.md", "utf8");
    const found = text.matchAll(/<!-- example: (\S+) -->\n```js\n(.*?)```/gs);
    return new Map([...found].map((match) => [match[1] ?? "", match[2] ?? ""]));
}
