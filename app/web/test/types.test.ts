/*
 * types.test.ts - the package's types in somebody else's project: by the compilers of the versions that it promises, with every
 * declaration checked and nothing installed beside the package.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { SourceMap } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { leftOut } from "./draw.js";

const call = promisify(execFile);
const VERSIONS = { oldest: "5.4.5", newest: "5.9.3" };
const built = existsSync("dist/types/index.d.ts") ? false : "the package is not built: make web";

/* Every name of the package, and every call. */
const MAIN = `
import { Beryl, BerylError, Answer, Model, Session, showBytes } from "beryl-gpu";
import type { AdapterInfo, AnswerOptions, AnswerResult, BerylStatus, Cache, CachedModel, CacheMode, CacheSize, ChatOptions, ContentPart, DeviceInfo, EngineInfo, EngineStats,
    GenerateOptions, GenerateResult, GpuCounts, GpuFeature, ImageBudget, LoadOptions, LogLevel, MediaPart, Message, ModelSource, PictureSource, RgbPicture, SoundSource, TokenOptions, ModelState, Part, PowerPreference, Progress,
    RequestOptions, RetryOptions, StateChange, Tool, WebGpu, Adapter, AdapterForm, Adapters, AdapterSource, FullModel, FullSession, TrainingReport, TrainingSession,
    TrainOptions } from "beryl-gpu";
import { Graph, loadOnnx, OnnxModel, Value, Dim } from "beryl-gpu/graph";
import type { GraphOps, GraphOptions, Numbers, OnnxOptions, Optimiser, Pool, Port, Sdpa, Type, ValueOps, Window } from "beryl-gpu/graph";

export type Graphs = [GraphOps, GraphOptions, Numbers, OnnxOptions, Optimiser, Pool, Port, Sdpa, Type, ValueOps, Window];

export async function compute(file: Blob, options: GraphOptions): Promise<number> {
    const graph: Graph = await Graph.open(options), n: Dim = graph.extent("n", 9), x: Value = graph.input("x", "f32", [n, 2]);
    const [values, indices]: [Value, Value] = x.sort(1), towards: Value[] = x.sum().gradient([x]);
    graph.output(values.add(towards[0]!), "y");
    graph.optimise([x], towards, x, { kind: "adamw", weightDecay: 0.1 });
    // @ts-expect-error: no such type
    indices.cast("f8");
    // @ts-expect-error: no such option
    x.sdpa(x, x, null, { casual: true });
    const model: OnnxModel = await loadOnnx(file, { shapes: { x: [1, 2] } });
    const { y } = await graph.run({ x: new Float32Array(4) }, { n: 2 });
    return Number(y![0]) + model.inputs.length;
}

export type All = [AdapterInfo, AnswerOptions, AnswerResult, BerylStatus, Cache, CachedModel, CacheMode, CacheSize, ChatOptions, ContentPart, DeviceInfo, EngineInfo, EngineStats,
    GenerateOptions, GenerateResult, GpuCounts, GpuFeature, ImageBudget, LoadOptions, LogLevel, MediaPart, ModelSource, PictureSource, RgbPicture, SoundSource, TokenOptions, ModelState, Part, PowerPreference, Progress,
    RequestOptions, RetryOptions, StateChange, Tool, WebGpu, AdapterForm, Adapters, AdapterSource, TrainingReport, TrainOptions];

export async function run(gpu: WebGpu, file: File): Promise<void> {
    const model: Model = await Beryl.load(file, { gpu, kv: "q8", cache: "required", onProgress: ({ what, done, total }) => console.log(what, done / total) });
    const messages: Message[] = [{ role: "user", content: "Hello" }];
    const answer: Answer = model.chat(messages, { maxTokens: 5, temperature: 0 });
    for await (const part of answer) if (part.type === "text") console.log(part.text.length);
    messages.push((await answer.result).message);
    messages.push({ role: "user", content: [{ type: "image", image: file }, { type: "audio", audio: new Float32Array(9), sampleRate: 8000 }, { type: "text", text: "?" }] });
    await model.prepareMedia("audio", { signal: AbortSignal.timeout(9) });
    const soft: Float32Array = await model.embedMedia({ type: "image_url", image_url: { url: "a.png" } }, { imageBudget: 70 });
    console.log(soft.length / model.info.nEmbd);
    const session: Session = model.session();
    const ids: ArrayLike<number> = await session.tokens();
    console.log(ids.length, model.info.device.name, showBytes((await Beryl.cache.size()).models), (await Beryl.devices(gpu))[0]?.hint);
    await model.close().catch((thrown: unknown) => { if (thrown instanceof BerylError && thrown.status === "CANCELLED") return; throw thrown; });
    const full: FullModel = await Beryl.load(file, { full: true }), other: FullModel = await Beryl.load("a.gguf", { lora: [file, "b.safetensors"] });
    const adapter: Adapter = await full.openAdapter([file, file], { scale: 0.5 }), one: FullSession = full.session();
    await one.setAdapters([adapter, { adapter, scale: 2 }]);
    const training: TrainingSession = await other.train({ data: file, rank: 8, targets: ["q", "v"], pictures: { "a.png": file } });
    for await (const { loss, step, steps } of training) console.log(loss, step / steps, (await training.save("gguf"))[0]?.name);
    // @ts-expect-error: only of the full module
    await model.openAdapter(file);
    // @ts-expect-error: no such budget
    model.chat(messages, { imageBudget: 100 });
    // @ts-expect-error: no such part
    model.chat([{ role: "user", content: [{ type: "video", video: file }] }]);
    // @ts-expect-error: no such type of a cache
    await Beryl.load("a.gguf", { kv: "q4" });
}
`;

describe("types", { skip: built }, () => {
    let folder: string, skip: string | false = false;

    before(async () => {
        folder = await mkdtemp(join(tmpdir(), "beryl-types-"));
        await mkdir(join(folder, "node_modules"));
        await writeFile(join(folder, "package.json"), "{ \"type\": \"module\" }");
        await writeFile(join(folder, "main.ts"), MAIN);
        const wanted = Object.entries(VERSIONS).map(([name, version]) => `${name}@npm:typescript@${version}`);
        await call("npm", ["install", "--silent", "--no-save", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries=0", "--fetch-timeout=20000", ...wanted],
            { cwd: folder, timeout: 60_000 }).catch((thrown: Error) => { skip = `npm has no TypeScript here: ${thrown.message.split("\n")[0]}`; });
        await symlink(process.cwd(), join(folder, "node_modules/beryl-gpu")); // tests are run in app/web
    });
    after(async () => { await rm(folder, { recursive: true }); });

    for (const [i, name, module, moduleResolution] of [[0, "oldest", "ESNext", "Bundler"], [1, "newest", "Node16", "Node16"]] as const)
        test(`types/${name}-${moduleResolution}`, { skip: leftOut(i, 2) }, async (t) => {
            if (skip) return t.skip(skip);
            const compilerOptions = { target: "ES2022", module, moduleResolution, lib: ["ES2022", "DOM"], types: [], strict: true, skipLibCheck: false,
                exactOptionalPropertyTypes: true, noEmit: true, preserveSymlinks: true };
            await writeFile(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["main.ts"] }));
            await call(process.execPath, [join(folder, "node_modules", name, "lib/tsc.js"), "-p", folder])
                .catch((thrown: { stdout: string }) => assert.fail(thrown.stdout));
        });

    test("types/source-maps-lead-to-the-sources", async () => {
        for (const file of ["index.js", "host.js", "worker.js", "graph.js"]) {
            const code = await readFile(`dist/${file}`, "utf8");
            assert.match(code, new RegExp(`//# sourceMappingURL=${file}\\.map\\s*$`));
        }
        const code = await readFile("dist/index.js", "utf8"), said = "is removed by its address", before = code.slice(0, code.indexOf(said)).split("\n");
        const map = JSON.parse(await readFile("dist/index.js.map", "utf8")) as { sources: string[]; sourcesContent: string[] } & ConstructorParameters<typeof SourceMap>[0];
        const found = new SourceMap(map).findEntry(before.length - 1, before.at(-1)?.length ?? 0);
        assert.ok("originalSource" in found && found.originalSource.endsWith("src/cache.ts"), JSON.stringify(found));
        const source = map.sourcesContent[map.sources.findIndex((name) => name.endsWith("src/cache.ts"))] ?? "";
        assert.ok(source.split("\n")[found.originalLine]?.includes(said));
    });
});
