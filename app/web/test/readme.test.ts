import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { examples } from "./readme.js";

test("the README has three examples, and each is a module", async () => {
    const all = await examples();
    assert.deepEqual([...all.keys()], ["chat.js", "worker.js", "deno.js"]);
    const folder = await mkdtemp(join(tmpdir(), "beryl-"));
    for (const [name, code] of all) {
        const file = join(folder, name.replace(".js", ".mjs"));
        await writeFile(file, code);
        await promisify(execFile)(process.execPath, ["--check", file]);
    }
    await rm(folder, { recursive: true });
});

test("the README's option table names each option of a load", async () => {
    const text = await readFile("README.md", "utf8");
    const source = await readFile("src/load.ts", "utf8");
    const body = /export interface LoadOptions \{(.*?)\n\}/s.exec(source)?.[1] ?? "";
    const names = [...body.matchAll(/^ {4}(\w+)\?:/gm)].map((match) => match[1] ?? "");
    assert.ok(names.length > 10);
    for (const name of names) assert.ok(text.includes(`\`${name}\``), name);
});
