/*
 * graph.test.ts - graphs of a page's own under Node, by the reference functions; and that their table is current.
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { GRAPH_CASES } from "./graph.cases.js";
import { OPS } from "../src/graph/ops.js";
import { repository } from "./files.js";

/* Rows of the table of operations that other calls make. */
const INNER = ["contract", "fourier", "fused", "random", "sample", "arg_largest", "attention_sums", "attention_back"];

const wasm = process.env["BERYL_FULL_WASM"] ?? "dist/beryl-full.wasm";
for (const [name, run] of Object.entries(GRAPH_CASES))
    test(name, { skip: existsSync(wasm) ? false : `${wasm} is not there: make web-module`, timeout: 300_000 }, async (t) => {
        await run({ gpu: null, module: await WebAssembly.compile(readFileSync(wasm)), say: (line) => t.diagnostic(line) });
    });

test("graph/the-table-is-that-of-the-header", () => {
    execFileSync(process.execPath, [repository("app/web/ops.mjs"), "--check"]);
});

test("graph/every-row-of-the-table-of-operations-is-a-method", () => {
    const rows = [...readFileSync(repository("docs/operations.md"), "utf8").matchAll(/^\| `(\w+)` \|/gm)].map(([, name]) => name ?? "");
    assert.ok(rows.length > 100);
    assert.deepEqual(rows.filter((name) => !INNER.includes(name) && !(name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase()) in OPS)), []);
});
