#!/usr/bin/env node
// tint-check.mjs - compiles WGSL texts with Tint, the compiler of Chrome, without a GPU.
//
//   tint-check.mjs DIR       every *.wgsl in DIR; `make test` leaves there what the tests' kernels were compiled from
//
// Needs the npm package `webgpu` (tools/setup test fetches it where there is npm); without it nothing is checked, and it says so.
//
// Texts are compiled by processes of their own, CHUNK at a time. Where one dies or hangs (as the package's threads sometimes do),
// each of its texts gets a process for itself, and a text that does so to two of them has failed.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const CHUNK = 200;
const PATIENCE_MS = 120_000; // a chunk takes three seconds

async function load() {
    for (const name of ['webgpu', pathToFileURL(path.resolve('third_party/node_modules/webgpu/index.js')).href]) {
        try {
            return await import(name);
        } catch { /* the next place */ }
    }
    return null;
}

function done(line, code) {
    console.log(line);
    process.exit(code); // the device keeps node alive
}

// In a process of its own: the errors of each text that has some, as JSON.
async function compile(webgpu, folder, files) {
    Object.assign(globalThis, webgpu.globals);
    const gpu = webgpu.create(['backend=null', 'enable-dawn-features=allow_unsafe_apis']);
    const adapter = await gpu.requestAdapter();
    const wanted = ['shader-f16', 'subgroups'].filter((f) => adapter.features.has(f));
    const device = await adapter.requestDevice({ requiredFeatures: wanted });
    const failed = [];
    const kept = []; // what is collected while others compile is where the package's threads meet
    for (const file of files) {
        const code = fs.readFileSync(path.join(folder, file), 'utf8');
        device.pushErrorScope('validation');
        const module = device.createShaderModule({ code });
        const info = await module.getCompilationInfo();
        await device.popErrorScope();
        kept.push(module, info);
        const errors = info.messages.filter((m) => m.type === 'error').map((m) => ({
            line: m.lineNum, what: m.message, text: code.split('\n')[m.lineNum - 1],
        }));
        if (errors.length > 0) failed.push({ file, errors });
    }
    return failed;
}

// null: the process died.
function compileApart(folder, files) {
    return new Promise((resolve) => {
        const child = spawn(process.execPath, [fileURLToPath(import.meta.url), folder, ...files], {
            stdio: ['ignore', 'pipe', 'inherit'], timeout: PATIENCE_MS, killSignal: 'SIGKILL',
        });
        let out = '';
        child.stdout.on('data', (data) => { out += data; });
        child.on('close', (code) => {
            try {
                resolve(code === 0 ? JSON.parse(out) : null);
            } catch {
                resolve(null);
            }
        });
    });
}

async function compileChunk(folder, files) {
    const failed = await compileApart(folder, files);
    if (failed) return failed;
    console.log(`tint-check: a process died or hung over ${files.length} texts; each gets its own`);
    const all = [];
    for (const file of files) {
        const one = (await compileApart(folder, [file])) ?? (await compileApart(folder, [file]));
        all.push(...(one ?? [{ file, errors: [{ line: 1, what: 'Tint dies of it or does not end, twice', text: '' }] }]));
    }
    return all;
}

const [folder, ...only] = process.argv.slice(2);
if (!folder) done('usage: tint-check DIR', 2);
const webgpu = await load();
if (only.length > 0) done(JSON.stringify(await compile(webgpu, folder, only)), 0);
const files = fs.existsSync(folder) ? fs.readdirSync(folder).filter((f) => f.endsWith('.wgsl')).sort() : [];
if (files.length === 0) done(`skip tint-check (no texts in ${folder}: run make test first)`, 0);
if (!webgpu) done('skip tint-check (the npm package webgpu is not there: tools/setup test)', 0);
const chunks = [];
for (let i = 0; i < files.length; i += CHUNK) chunks.push(files.slice(i, i + CHUNK));
let failed = 0;
await Promise.all(Array.from({ length: Math.min(2, os.availableParallelism()) }, async () => {
    for (let chunk = chunks.shift(); chunk; chunk = chunks.shift()) {
        for (const one of await compileChunk(folder, chunk)) {
            failed++;
            for (const e of one.errors) console.log(`${folder}/${one.file}:${e.line}: ${e.what}\n    ${e.text}`);
        }
    }
}));
done(`tint-check: ${files.length - failed} texts passed, ${failed} failed`, failed > 0 ? 1 : 0);
