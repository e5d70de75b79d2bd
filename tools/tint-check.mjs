#!/usr/bin/env node
// tint-check.mjs - compiles WGSL texts with Tint, the compiler of Chrome, without a GPU.
//
//   tint-check.mjs DIR       every *.wgsl in DIR; `make test` leaves there what the tests' kernels were compiled from
//
// Needs the npm package `webgpu` (tools/setup test fetches it where there is npm); without it nothing is checked, and it says so.
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

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

const folder = process.argv[2];
if (!folder) done('usage: tint-check DIR', 2);
const files = fs.existsSync(folder) ? fs.readdirSync(folder).filter((f) => f.endsWith('.wgsl')).sort() : [];
if (files.length === 0) done(`skip tint-check (no texts in ${folder}: run make test first)`, 0);
const webgpu = await load();
if (!webgpu) done('skip tint-check (the npm package webgpu is not there: tools/setup test)', 0);
Object.assign(globalThis, webgpu.globals);
const gpu = webgpu.create(['backend=null', 'enable-dawn-features=allow_unsafe_apis']);
const adapter = await gpu.requestAdapter();
const wanted = ['shader-f16', 'subgroups'].filter((f) => adapter.features.has(f));
const device = await adapter.requestDevice({ requiredFeatures: wanted });
let failed = 0;
for (const file of files) {
    const code = fs.readFileSync(path.join(folder, file), 'utf8');
    device.pushErrorScope('validation');
    const info = await device.createShaderModule({ code }).getCompilationInfo();
    await device.popErrorScope();
    const errors = info.messages.filter((m) => m.type === 'error');
    if (errors.length > 0) failed++;
    for (const e of errors) console.log(`${folder}/${file}:${e.lineNum}: ${e.message}\n    ${code.split('\n')[e.lineNum - 1]}`);
}
done(`tint-check: ${files.length - failed} texts passed, ${failed} failed`, failed > 0 ? 1 : 0);
