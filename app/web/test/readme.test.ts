import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { OPTIONS, type Rule } from "../src/options.js";
import { examples } from "./readme.js";

test("the README has seven examples, and each is a module", async () => {
    const all = await examples();
    assert.deepEqual([...all.keys()], ["chat.js", "media.js", "worker.js", "deno.js", "node.js", "graph.js", "onnx.js"]);
    const folder = await mkdtemp(join(tmpdir(), "beryl-"));
    for (const [name, code] of all) {
        const file = join(folder, name.replace(".js", ".mjs"));
        await writeFile(file, code);
        await promisify(execFile)(process.execPath, ["--check", file]);
    }
    await rm(folder, { recursive: true });
});

test("the README names each option, and the values of each that has some", async () => {
    const text = await readFile("README.md", "utf8");
    for (const rules of Object.values(OPTIONS) as Record<string, Rule>[]) for (const [name, { allowed }] of Object.entries(rules)) {
        assert.ok(text.includes(`\`${name}\``), name);
        for (const [value] of allowed.startsWith("\"") ? allowed.matchAll(/"[^"]+"/g) : []) assert.ok(text.includes(value), `${name}: ${value}`);
    }
});
