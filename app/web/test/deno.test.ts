/*
 * deno.test.ts - what runs under Deno: the engine's cases, and the examples of the README and of examples/ as they stand.
 *
 * BERYL_DENO names another Deno.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { copyFile, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { tmpdir } from "node:os";
import { cwd } from "node:process";
import { after, before, describe, test } from "node:test";
import { CASES, GPU_CASES } from "./engine.cases.js";
import { GRAPH_CASES } from "./graph.cases.js";
import { leftOut } from "./draw.js";
import { repository } from "./files.js";
import { examples } from "./readme.js";

const places = [process.env["BERYL_DENO"] ?? "", repository("third_party/deno/deno"), ...(process.env["PATH"] ?? "").split(delimiter).map((folder) => join(folder, "deno"))];
const deno = places.find((path) => path && existsSync(path));
const LONG = 600_000;
/* These are run in Chromium, and here with f16 and subgroups; as they are too with BERYL_TEST_SLOW=1. */
const ELSEWHERE = /^engine\/(logits-and-answers|default-model|two-sessions|pictures-and-sound-e2b-mm)/;

describe("deno", { skip: deno ? false : "no Deno is installed" }, () => {
    let scratch: string;
    before(async () => { scratch = await mkdtemp(join(tmpdir(), "beryl-")); });
    after(async () => { await rm(scratch, { recursive: true }); });

    /* Its output, standard and other, or an error that has both. */
    function run(args: string[], folder: string): Promise<string> {
        const env = { ...process.env, DENO_DIR: join(scratch, "deno"), DENO_NO_UPDATE_CHECK: "1", NO_COLOR: "1", XDG_RUNTIME_DIR: scratch };
        return new Promise((resolve, reject) => {
            execFile(deno ?? "", ["run", "--no-lock", "--unstable-webgpu", ...args], { cwd: folder, env, timeout: LONG }, (error, out, messages) => {
                if (error) reject(new Error(`${out}${messages}${error.message}`));
                else resolve(out);
            });
        });
    }

    const names = Object.keys({ ...CASES, ...GPU_CASES, ...GRAPH_CASES }).filter((name) => process.env["BERYL_TEST_SLOW"] || !ELSEWHERE.test(name));
    for (const [i, name] of names.entries()) test(`deno/${name}`, { timeout: LONG, skip: leftOut(i, 3) }, async (t) => {
        const out = await run(["-A", "out/test/engine.deno.js", name], cwd());
        if (out.startsWith("skip: ")) t.skip(out.slice(6).trim());
        for (const [, note] of out.matchAll(/^ {4}(.*)$/gm)) t.diagnostic(`${name}: ${note ?? ""}`);
    });

    test("deno/readme-example", { timeout: LONG, skip: leftOut(0, 3) }, async (t) => {
        const code = (await examples()).get("deno.js") ?? "", folder = join(scratch, "example");
        const [, options] = /^\/\/ deno run (--unstable-webgpu .*) story\.js \[MODEL\.gguf\]$/m.exec(code) ?? [];
        assert.ok(options, "its first line says how it is run");
        await mkdir(join(folder, "node_modules"), { recursive: true });
        await symlink(cwd(), join(folder, "node_modules/beryl-gpu"));
        await writeFile(join(folder, "package.json"), "{}");
        await writeFile(join(folder, "story.js"), code);
        for (const model of [[], [repository("models/default.gguf")]]) {
            const out = await run([...options.split(" "), "story.js", ...model], folder).catch((error: Error) => error.message);
            if (/no adapter/.test(out)) return t.skip("no WebGPU adapter here");
            assert.match(out, / on .+\nOnce upon a time, a little badger named Eve/);
        }
    });

    test("deno/the-example-of-a-character-gpt-learns", { timeout: LONG, skip: leftOut(1, 3) }, async (t) => {
        const folder = join(scratch, "gpt");
        await mkdir(join(folder, "node_modules"), { recursive: true });
        await symlink(cwd(), join(folder, "node_modules/beryl-gpu"));
        await writeFile(join(folder, "package.json"), "{}");
        await copyFile(repository("examples/gpt.js"), join(folder, "gpt.js"));
        const out = await run(["-A", "gpt.js", "", "10", "2"], folder);
        if (out.includes("the reference functions")) return t.skip("no WebGPU adapter here");
        const [first = 0, last = 9] = [...out.matchAll(/loss ([\d.]+)/g)].map(([, loss]) => Number(loss));
        assert.ok(first > 4.5 && first < 5.5 && last < 3, out); // from guessing among 128 to which letters there are
    });
});
