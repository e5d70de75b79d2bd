import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { after, describe, test } from "node:test";
import { makeCache } from "../src/cache.js";
import { BerylError } from "../src/error.js";
import { Bell } from "../src/gpu.js";
import { SourceReader } from "../src/ranges.js";
import { STATUS } from "../src/status.js";
import { BlobSource } from "../src/source/blob.js";
import { Pieces } from "../src/source/pieces.js";
import { openSource, VerifiedSource, type ByteSource, type StoredSource, type UrlOptions } from "../src/source/index.js";
import { PIECE, readPiece, storeKey, writePiece } from "../src/source/store.js";
import { openUrl, type Keeper } from "../src/source/url.js";
import { Disk, nowhere } from "./storage.js";
import { noise, serveFile, type Faults, type FileServer } from "./server.js";

const MODEL = noise(3 * PIECE + 12345);
const RETRY = { pause: 2, attempts: 4, stall: 10_000 };
const open: { close?(): void | Promise<void> }[] = [];
after(async () => { for (const one of open) await one.close?.(); });

async function start(faults: Faults = {}, bytes: Uint8Array = MODEL): Promise<FileServer> {
    const server = await serveFile(bytes, faults);
    open.push(server);
    return server;
}

async function openAt(server: FileServer, options: UrlOptions = {}, signal?: AbortSignal): Promise<StoredSource> {
    const source = await openUrl(server.url, { retry: RETRY, storage: nowhere, ...options }, signal);
    open.push(source);
    return source;
}

async function readAll(source: ByteSource, step = 3_000_000): Promise<Buffer> {
    const parts: Uint8Array[] = [];
    for (let at = 0; at < source.size; at += step) parts.push((await source.read(at, Math.min(step, source.size - at))).slice());
    return Buffer.concat(parts);
}

/* As the engine reads. */
async function readAsEngine(source: ByteSource, bytes: Uint8Array = MODEL, step = 3_000_000): Promise<void> {
    const bell = new Bell(), { size } = source, reader = new SourceReader(source, bell);
    for (let at = 0; at < size; at += step) {
        const to = new Uint8Array(Math.min(step, size - at));
        let status = reader.read(at, to);
        for (; status === STATUS.PENDING; status = reader.read(at, to)) await bell.wait();
        if (reader.failure) throw reader.failure;
        assert.equal(status, STATUS.OK);
        assert.ok(Buffer.from(to).equals(Buffer.from(bytes.buffer, bytes.byteOffset + at, to.length)), `bytes differ at ${at}`);
    }
}

async function same(source: ByteSource, bytes: Uint8Array = MODEL, step?: number): Promise<void> {
    assert.equal(source.size, bytes.length);
    assert.ok((await readAll(source, step)).equals(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)), "bytes differ");
}

function fails(status: string, message?: RegExp): (error: unknown) => boolean {
    return (error) => {
        assert.ok(error instanceof BerylError, String(error));
        assert.equal(error.status, status, error.message);
        if (message) assert.match(error.message, message);
        return true;
    };
}

async function until(done: () => unknown): Promise<void> {
    while (!done()) await new Promise((resolve) => setTimeout(resolve, 2));
}

describe("blob", () => {
    test("slices, and ranges outside are refused", async () => {
        const source = new BlobSource(new File([MODEL], "a.gguf"));
        assert.equal(source.name, "a.gguf");
        await same(source);
        await assert.rejects(source.read(MODEL.length - 1, 2), fails("MISUSE"));
        await assert.rejects(source.read(-1, 2), fails("MISUSE"));
        await assert.rejects(source.read(0, 2, AbortSignal.abort()), fails("CANCELLED"));
    });

    test("a handle is read from where it lies", async () => {
        const root = await new Disk().host().root();
        const handle = await root?.getFileHandle("b.gguf", { create: true });
        const out = await handle?.createWritable();
        await out?.write(noise(1000));
        await out?.close();
        assert.ok(handle);
        await same(await openSource(handle, {}), noise(1000));
    });
});

describe("disk", () => {
    test("file: addresses under Node", async () => {
        const folder = await mkdtemp(join(tmpdir(), "beryl-"));
        await writeFile(join(folder, "c d.gguf"), noise(5000));
        const source = await openSource(pathToFileURL(join(folder, "c d.gguf")).href, {});
        assert.equal(source.name, "c d.gguf");
        await same(source, noise(5000), 999);
        source.close?.();
        await assert.rejects(openSource(pathToFileURL(join(folder, "none.gguf")).href, {}), fails("NOT_FOUND"));
        await rm(folder, { recursive: true });
    });
});

describe("url", () => {
    test("ranges, read ahead, and in any order", async () => {
        const server = await start();
        const source = await openAt(server);
        await same(source);
        assert.ok(server.log.every((line) => /^GET \d+-\d+$/.test(line)), server.log.join());
        const far = await source.read(2 * PIECE - 100, 200);
        assert.ok(Buffer.from(far).equals(Buffer.from(MODEL.subarray(2 * PIECE - 100, 2 * PIECE + 100))));
    });

    test("the engine's reads in blocks ask for each piece once", async () => {
        for (const options of [{ storage: nowhere }, { storage: new Disk().host() }]) {
            const server = await start(), source = await openAt(server, options);
            await readAsEngine(source);
            assert.equal(server.log.length, 4, server.log.join());
            await readAsEngine(source, MODEL, 5_000_000);
        }
    });

    test("the whole file crosses the network once", async () => {
        const server = await start();
        await same(await openAt(server), MODEL, 100_000);
        assert.equal(server.log.length, 4, server.log.join());
    });

    test("readers at the same time share what they ask for", async () => {
        const server = await start();
        const source = await openAt(server, { storage: new Disk().host() });
        await Promise.all([0, 1, 2, 3, 4].map((i) => source.read(i * 100_000, 100_000)));
        assert.equal(server.log.filter((line) => line.startsWith("GET 0-")).length, 1, server.log.join());
    });

    test("a long file comes in few requests, each byte once, also where connections break", async () => {
        const big = noise(40 * PIECE + 77), bytesOf = (log: string[]): number => log.reduce((sum, line) => {
            const [, from, to] = /^GET (\d+)-(\d+)$/.exec(line) ?? [];
            return sum + Number(to) + 1 - Number(from);
        }, 0);
        const lengthsOf = (log: string[]): number[] => log.map((line) => bytesOf([line]));
        for (const options of [{ storage: nowhere }, { storage: new Disk().host() }]) {
            const server = await start({ noStore: true }, big), source = await openAt(server, options);
            await readAsEngine(source, big);
            assert.ok(server.log.length <= 10, server.log.join());
            assert.equal(bytesOf(server.log), big.length);
            assert.ok(lengthsOf(server.log).some((length) => length > 8 * PIECE), server.log.join());
        }
        const free = await start({}, big); // what a cache might keep, a browser takes in before it is read
        await readAsEngine(await openAt(free), big);
        assert.ok(free.log.length <= 26, free.log.join());
        assert.equal(bytesOf(free.log), big.length);
        assert.ok(lengthsOf(free.log).every((length) => length <= 2 * PIECE), free.log.join());
        const server = await start({ noStore: true, breakAfter: (n) => n === 7 ? 2 * PIECE + 70_000 : n === 8 ? 1_000_000 : undefined }, big), disk = new Disk();
        const source = await openAt(server, { storage: disk.host() });
        await readAsEngine(source, big);
        assert.equal(await source.fill(), true);
        assert.ok(server.log.length <= 13, server.log.join());
        const starts = server.log.map((line) => Number(/GET (\d+)/.exec(line)?.[1]));
        assert.equal(new Set(starts).size, starts.length, "a byte was asked for twice");
        source.close?.();
        await same(await openAt(server, { storage: disk.host() }), big);
    });

    test("a far small read is a small request", async () => {
        const server = await start({}, noise(5 * PIECE));
        const source = await openAt(server);
        await source.read(0, 100);
        await source.read(4 * PIECE + 1000, 100);
        assert.equal(server.log.at(-1), `GET ${4 * PIECE + 1000}-${4 * PIECE + 1099}`);
    });

    test("a broken connection goes on at its byte", async () => {
        const server = await start({ breakAfter: (n) => n < 5 ? 1_000_000 + 65536 * n : undefined });
        await same(await openAt(server));
        const starts = server.log.map((line) => Number(/GET (\d+)/.exec(line)?.[1]));
        assert.ok(starts.some((at) => at % PIECE !== 0), "no request began inside a piece");
        assert.equal(new Set(starts).size, starts.length, "a byte was asked for twice");
    });

    test("a connection that never works is given up, with what failed", async () => {
        const server = await start({ status: (n) => n > 0 ? 503 : undefined });
        await assert.rejects(readAll(await openAt(server)), fails("IO", /model\.gguf.*503/));
        assert.ok(server.log.length <= 16, server.log.join());
    });

    test("a server that stands still is asked again", async () => {
        const server = await start({ stall: (n) => n === 1 });
        await same(await openAt(server, { retry: { ...RETRY, stall: 500 } }));
    });

    test("a connection that was fast and becomes slow is no one that stands still", async () => {
        const big = noise(12 * PIECE), server = await start({ noStore: true }, big), source = await openAt(server, { retry: { ...RETRY, stall: 400 } });
        assert.ok(Buffer.from(await source.read(0, 3 * PIECE)).equals(Buffer.from(big.subarray(0, 3 * PIECE))));
        server.faults.slow = 40; // a megabyte, which is waited for while bytes come fast, takes longer than that
        assert.ok(Buffer.from(await source.read(3 * PIECE, 2 * PIECE)).equals(Buffer.from(big.subarray(3 * PIECE, 5 * PIECE))));
    });

    test("between reads that find little more may come", async (t) => {
        const part = 16 << 10, stood = t.mock.method(Atomics, "wait");
        const pieces = new Pieces(new ReadableStream({ type: "bytes", pull: (to: ReadableByteStreamController) => { to.enqueue(new Uint8Array(part)); } }));
        for (const [size, before] of [[1 << 20, 0], [1 << 20, 1], [part, 2], [part, 2], [1 << 20, 2], [part, 3]] as const) {
            const got = await pieces.read(size, new Uint8Array(size));
            assert.deepEqual([got?.length, got?.buffer.byteLength, stood.mock.callCount()], [part, size, before]);
        }
        pieces.cancel();
    });

    test("errors of the first answer", async () => {
        await assert.rejects(openAt(await start({ status: () => 404 })), fails("NOT_FOUND", /404/));
        await assert.rejects(openAt(await start({ status: () => 403 })), fails("IO", /403/));
        await assert.rejects(openUrl("http://127.0.0.1:9/x", { retry: RETRY, storage: nowhere }), fails("IO"));
        await assert.rejects(openAt(await start({}, new Uint8Array(0))), fails("BAD_FILE"));
    });

    test("what is no GGUF is refused, and nothing of it is kept", async () => {
        const page = Buffer.from("<!DOCTYPE html><title>Not here</title>".padEnd(100_000));
        for (const [faults, bytes, hint] of [[{ noRanges: true }, page, /web page/], [{}, page, /web page/], [{}, noise(3 * PIECE).fill(7, 0, 1), /file itself/],
            [{}, Buffer.from("GG"), /file itself/]] as const) {
            const disk = new Disk();
            await assert.rejects(openAt(await start(faults, bytes), { storage: disk.host() }), (error: BerylError) =>
                fails("BAD_FILE", /is no GGUF file: it begins with "/)(error) && hint.test(error.hint));
            assert.equal(disk.root.inside.size, 0);
        }
    });

    test("a server that does not let the page read is named, with what to set", async () => {
        const url = "http://models.example/a.gguf", asked: string[] = [];
        const refusing = (_: unknown, { mode, method }: RequestInit): Promise<Response> => {
            asked.push(`${method} ${mode ?? ""}`);
            return mode === "no-cors" ? Promise.resolve({ type: "opaque" } as Response) : Promise.reject(new TypeError("Failed to fetch"));
        };
        Object.assign(globalThis, { origin: "https://page.example" });
        try {
            const refused = openUrl(url, { retry: RETRY, storage: nowhere, fetch: refusing as typeof fetch, request: { headers: { "X-Key": "1" } } });
            await assert.rejects(refused, (error: BerylError) => fails("IO", /models\.example does not let pages of https:\/\/page\.example read a\.gguf \(CORS\)/)(error)
                && /Access-Control-Allow-Origin: \*.*Expose-Headers: Content-Range, Content-Length, ETag.*Range, X-Key/.test(error.hint));
            assert.deepEqual(asked, ["GET ", "HEAD no-cors", "GET ", "HEAD no-cors"]);
            const gone = openUrl(url, { retry: RETRY, storage: nowhere, fetch: (() => Promise.reject(new TypeError("Failed to fetch"))) as typeof fetch });
            await assert.rejects(gone, (error: BerylError) => fails("IO", /4 times: Failed to fetch/)(error) && /connect-src/.test(error.hint));
        } finally {
            Reflect.deleteProperty(globalThis, "origin");
        }
    });

    test("a file that changes meanwhile is an error", async () => {
        const etag = await start({ etag: (n) => n < 2 ? "\"one\"" : "\"two\"" });
        await assert.rejects(openAt(etag).then((source) => readAll(source)), fails("BAD_FILE", /changed/));
        const total = await start({ total: (n) => n < 2 ? MODEL.length : MODEL.length + 1 });
        await assert.rejects(openAt(total).then((source) => readAll(source)), fails("BAD_FILE", /changed/));
    });

    test("an answer for another range is an error", async () => {
        await assert.rejects(openAt(await start({ shift: 7 })), fails("IO", /bytes from 7/));
    });

    test("another origin that hides Content-Range tells the size by HEAD", async () => {
        const server = await start({ hideRange: true });
        await same(await openAt(server));
        assert.equal(server.log.filter((line) => line.startsWith("HEAD")).length, 1);
    });

    test("a read is cancelled at once", async () => {
        const server = await start({ slow: 20 });
        const source = await openAt(server);
        const controller = new AbortController();
        const began = Date.now();
        setTimeout(() => controller.abort(), 30);
        await assert.rejects(source.read(0, PIECE, controller.signal), fails("CANCELLED"));
        assert.ok(Date.now() - began < 500);
        source.close?.();
        await assert.rejects(source.read(0, 1), fails("CANCELLED"));
    });

    test("opening is cancelled at once", async () => {
        const controller = new AbortController();
        setTimeout(() => controller.abort(), 20);
        const hang = (): Promise<Response> => new Promise(() => undefined);
        await assert.rejects(openUrl("http://127.0.0.1:9/x", { fetch: hang as typeof fetch, storage: nowhere }, controller.signal), fails("CANCELLED"));
    });

    test("without ranges and without storage the browser holds the file", async () => {
        const server = await start({ noRanges: true, breakAfter: (n) => n === 0 ? 3_000_000 : undefined });
        await same(await openAt(server));
        const unsaid = await start({ noRanges: true, noLength: true });
        await same(await openAt(unsaid));
    });

    test("memory stays bounded", async () => {
        const big = noise(14 * PIECE);
        const server = await start({}, big);
        const source = await openAt(server, { storage: nowhere });
        let most = 0;
        const before = process.memoryUsage().arrayBuffers;
        for (let at = 0; at < big.length; at += PIECE / 2) {
            await source.read(at, PIECE / 2);
            (globalThis as { gc?: () => void }).gc?.();
            most = Math.max(most, process.memoryUsage().arrayBuffers - before);
        }
        if ((globalThis as { gc?: () => void }).gc) assert.ok(most < 64 * 1024 * 1024, `${most} bytes`);
    });
});

describe("store", () => {
    test("what is read is kept, and the second start needs no network", async () => {
        const disk = new Disk();
        const server = await start();
        const first = await openAt(server, { storage: disk.host() });
        await same(first);
        assert.equal(await first.fill(), true);
        first.close?.();
        const requests = server.log.length;
        const second = await openAt(server, { storage: disk.host() });
        await same(second);
        await same(second, MODEL, 777_777);
        assert.equal(server.log.length, requests);
    });

    test("what nobody read is filled in", async () => {
        const disk = new Disk();
        const server = await start();
        const source = await openAt(server, { storage: disk.host() });
        await source.read(PIECE * 2, 10);
        assert.equal(await source.fill(), true);
        assert.equal([...disk.model().keys()].length, 5);
        assert.equal(server.log.length, 5, server.log.join()); // four pieces and the small read
    });

    test("a closed tab goes on where it was", async () => {
        const disk = new Disk();
        const server = await start();
        const first = await openAt(server, { storage: disk.host() });
        await first.read(0, 10);
        await first.read(PIECE, PIECE);
        first.close?.();
        const kept = [...disk.model().keys()].filter((name) => name !== "note.json");
        assert.ok(kept.length >= 2 && kept.length < 4, kept.join());
        server.log = [];
        const seen: number[] = [];
        const second = await openAt(server, { storage: disk.host(), onProgress: (p) => seen.push(p.done) });
        await same(second);
        for (const name of kept)
            assert.ok(!server.log.some((line) => line.startsWith(`GET ${Number(name) * PIECE}-`)), `${name} again`);
        assert.ok((seen[0] ?? 0) > kept.length * PIECE, "progress counts what was there");
    });

    test("a piece that was cut short is loaded again", async () => {
        const disk = new Disk();
        const server = await start();
        const first = await openAt(server, { storage: disk.host() });
        await same(first);
        await first.fill();
        first.close?.();
        const file = disk.model().get("000001");
        assert.ok(file);
        file.bytes = file.bytes.slice(0, 5);
        server.log = [];
        const second = await openAt(server, { storage: disk.host() });
        await same(second);
        assert.deepEqual(server.log, [`GET ${PIECE}-${2 * PIECE - 1}`]);
    });

    test("a file that changed on the server between visits starts anew", async () => {
        const disk = new Disk();
        const server = await start();
        const first = await openAt(server, { storage: disk.host() });
        await first.read(0, 10);
        first.close?.();
        server.bytes = noise(3 * PIECE + 12345, 2);
        server.faults = { etag: () => "\"two\"" };
        const second = await openAt(server, { storage: disk.host() });
        await same(second, server.bytes);
        assert.equal(await second.fill(), true);
        second.close?.();
        await same(await openAt(server, { storage: disk.host() }), server.bytes);
    });

    test("a damaged note is as none", async () => {
        const disk = new Disk();
        const server = await start();
        const first = await openAt(server, { storage: disk.host() });
        await first.read(0, 10);
        await until(() => first.store?.has(0));
        first.close?.();
        const note = disk.model().get("note.json");
        assert.ok(note);
        note.bytes = note.bytes.slice(0, 20);
        await same(await openAt(server, { storage: disk.host() }));
    });

    test("without room the model is used without being kept, or refused if it must be", async () => {
        const disk = new Disk();
        disk.quota = 1_000_000;
        const server = await start();
        const lines: string[] = [];
        await same(await openAt(server, { storage: disk.host(), onWarning: (line) => lines.push(line) }));
        assert.match(lines.join(), /13 MB more are needed.*1\.0 MB are free/);
        await assert.rejects(openAt(server, { storage: disk.host(), cache: "required" }), fails("NO_MEMORY", /are free/));
        await assert.rejects(openAt(server, { storage: nowhere, cache: "required" }), fails("NO_MEMORY", /keeps no files/));
    });

    test("what must be kept and cannot be is an error, also when the disk fills up late", async () => {
        const disk = new Disk();
        const server = await start();
        const source = await openAt(server, { storage: disk.host(), cache: "required" });
        disk.quota = PIECE + 5000;
        await assert.rejects(readAll(source).then(() => source.fill()), fails("NO_MEMORY", /cannot be kept.*required.*storage is full/));
        await assert.rejects(source.fill(), fails("NO_MEMORY"));
        assert.equal([...disk.model().values()].filter((file) => file.bytes.length === 0).length, 0);
    });

    test("a disk that takes nothing has no entry after it", async () => {
        const disk = new Disk();
        const host = disk.host();
        const server = await start();
        const source = await openAt(server, { storage: { ...host, estimate: () => Promise.resolve({}) } });
        disk.quota = 500; // the note, but no piece
        await same(source);
        assert.equal(await source.fill(), false);
        assert.equal(disk.model().size, 0);
        assert.deepEqual(await makeCache(host).list(), []);
    });

    test("a reader does not wait for the disk, and what waits for it is bounded", async () => {
        const disk = new Disk();
        let opens = (): void => undefined;
        disk.gate = new Promise((resolve) => { opens = resolve; });
        const big = noise(12 * PIECE), server = await start({}, big);
        const source = await openAt(server, { storage: disk.host() });
        for (let i = 0; i < 3; i++) await source.read(i * PIECE, PIECE);
        const blocked = source.read(8 * PIECE, PIECE);
        await new Promise((resolve) => setTimeout(resolve, 50));
        assert.deepEqual(disk.writes, []);
        assert.ok(server.log.length <= 6, server.log.join());
        opens();
        await blocked;
        await same(source, big);
        assert.equal(await source.fill(), true);
    });

    test("two tabs at once fetch the file once", async () => {
        const disk = new Disk();
        const server = await start({ slow: 1 });
        const [a, b] = await Promise.all([openAt(server, { storage: disk.host() }), openAt(server, { storage: disk.host() })]);
        await Promise.all([same(a).then(() => a.fill()), same(b).then(() => b.fill())]);
        assert.equal(server.log.length, 4 + 1, server.log.join()); // both have asked for the first piece to learn of the file
    });

    test("a tab that holds the lock and brings nothing is not waited for", async () => {
        const disk = new Disk(), server = await start(), host = disk.host(), end = new AbortController();
        void host.locks?.request(`beryl/${storeKey(server.url)}`, {}, () => new Promise((resolve) => end.signal.addEventListener("abort", resolve)));
        await same(await openAt(server, { storage: host, patience: 20 }));
        end.abort();
    });

    for (const handles of ["shared", "alone"] as const)
        test(`kept pieces are read by synchronous handles: ${handles}`, async () => {
            const disk = new Disk();
            disk.handles = handles;
            const server = await start();
            const first = await openAt(server, { storage: disk.host() });
            await same(first);
            await first.fill();
            first.close?.();
            const [a, b] = await Promise.all([openAt(server, { storage: disk.host() }), openAt(server, { storage: disk.host() })]);
            await Promise.all([same(a), same(b, MODEL, 1_000_000)]);
            assert.ok(disk.opened >= 4);
            await readAsEngine(a);
            await readAsEngine(b);
            a.close?.();
            b.close?.();
            await new Promise((resolve) => setTimeout(resolve, 5));
            assert.equal([...disk.model().values()].reduce((sum, file) => sum + file.open, 0), 0);
        });

    test("kept pieces are read where there are no handles, in steps of any size", async () => {
        const disk = new Disk(), server = await start(), first = await openAt(server, { storage: disk.host() });
        await same(first);
        await first.fill();
        first.close?.();
        const source = await openAt(server, { storage: disk.host() });
        for (const step of [3_000_000, 9_000_000, 100_000]) await readAsEngine(source, MODEL, step);
    });

    test("a file that nobody reads is nobody's", async () => {
        const disk = new Disk();
        disk.handles = "alone";
        const server = await start();
        const source = await openAt(server, { storage: disk.host() });
        await same(source);
        await source.fill();
        await source.read(0, 10);
        await until(() => [...disk.model().values()].every((file) => file.open === 0));
    });

    test("what was found to be no model is forgotten", async () => {
        const disk = new Disk();
        const server = await start();
        const first = await openAt(server, { storage: disk.host() });
        await first.read(0, 10);
        assert.equal(first.old, false);
        await first.forget();
        assert.equal(disk.model().size, 0);
        assert.deepEqual(await makeCache(disk.host()).list(), []);
    });

    test("a disk that fills up on the way only ends the keeping", async () => {
        const disk = new Disk();
        const host = disk.host();
        const server = await start();
        const lines: string[] = [];
        const source = await openAt(server, { storage: host, onWarning: (line) => lines.push(line) });
        disk.quota = PIECE + 5000;
        await same(source);
        assert.equal(await source.fill(), false);
        assert.match(lines.join(), /storage is full/);
    });

    test("a writer takes pieces away and gives them back: each is read whole, kept, and fetched once", async () => {
        const disk = new Disk(), big = noise(9 * PIECE + 77), server = await start({}, big);
        let away = 0, most = 0, written = 0;
        const write: Keeper["write"] = async (folder, name, data) => {
            const bytes = structuredClone(data as Uint8Array<ArrayBuffer>, { transfer: [data.buffer as ArrayBuffer] });
            assert.equal(data.length, 0);
            most = Math.max(most, ++away);
            await new Promise((resolve) => setTimeout(resolve, 5));
            await writePiece(folder, name, bytes);
            away--;
            written++;
            return { bytes, failure: null };
        };
        const source = await openAt(server, { storage: disk.host(), keeper: { write, read: readPiece } });
        await readAsEngine(source, big);
        await same(source, big);
        assert.equal(await source.fill(), true);
        assert.equal(written, 10);
        assert.ok(most <= 6, String(most));
        const asked = server.log.map((line) => /^GET (\d+)-(\d+)$/.exec(line)).filter((match) => match !== null);
        assert.equal(asked.reduce((sum, [, from, to]) => sum + Number(to) + 1 - Number(from), 0), big.length);
        await same(await openAt(server, { storage: disk.host() }), big);
    });

    test("a whole piece that is kept goes to its reader without a copy, who may do with it as they like", async () => {
        const disk = new Disk(), server = await start();
        const write: Keeper["write"] = async (folder, name, data) => {
            await writePiece(folder, name, data);
            return { bytes: data, failure: null };
        };
        const source = await openAt(server, { storage: disk.host(), keeper: { write, read: readPiece } });
        for (const i of [0, 1, 2]) {
            const room = new Uint8Array(PIECE), bytes = await source.read(i * PIECE, PIECE, undefined, room);
            assert.ok(bytes !== room && room.length === 0, `piece ${i} was copied`);
            assert.ok(Buffer.from(bytes).equals(Buffer.from(MODEL.subarray(i * PIECE, (i + 1) * PIECE))));
            bytes.fill(7);
        }
        await same(source);
        await readAsEngine(source);
        assert.equal(await source.fill(), true);
        await same(await openAt(server, { storage: disk.host() }));
    });

    test("where another thread keeps, three pieces are in memory at most", async () => {
        const disk = new Disk(), big = noise(12 * PIECE), server = await start({}, big), held = new Set<ArrayBufferLike>();
        disk.handles = "shared";
        let goOn = (): void => undefined;
        const gate = new Promise<void>((resolve) => { goOn = resolve; });
        const source = await openAt(server, { storage: disk.host(), keeper: { read: readPiece, write: async (folder, name, data) => {
            held.add(data.buffer);
            await gate;
            await writePiece(folder, name, data);
            return { bytes: data, failure: null };
        } } });
        await until(() => held.size >= 3);
        const far = source.read(9 * PIECE, PIECE);
        await new Promise((resolve) => setTimeout(resolve, 200));
        assert.equal(held.size, 3);
        goOn();
        assert.ok(Buffer.from(await far).equals(Buffer.from(big.subarray(9 * PIECE, 10 * PIECE))));
        assert.equal(await source.fill(), true);
        await same(source, big);
    });

    test("where another thread keeps, the file comes whatever its reader does, and each byte once", async () => {
        const disk = new Disk(), big = noise(12 * PIECE + 77), server = await start({}, big);
        disk.handles = "shared";
        let written = 0, read = 0;
        const keeper: Keeper = {
            write: async (folder, name, data) => {
                await writePiece(folder, name, data);
                written++;
                return { bytes: data, failure: null };
            },
            read: (...what) => {
                read++;
                return readPiece(...what);
            },
        };
        const source = await openAt(server, { storage: disk.host(), keeper });
        await source.read(0, 100);
        await until(() => written === 13);
        await readAsEngine(source, big);
        assert.ok(read >= 8, String(read)); // the others were in memory
        assert.equal(await source.fill(), true);
        const asked = server.log.map((line) => /^GET (\d+)-(\d+)$/.exec(line)).filter((match) => match !== null);
        assert.equal(asked.reduce((sum, [, from, to]) => sum + Number(to) + 1 - Number(from), 0), big.length);
    });

    test("a disk that fills up while the file runs ahead of its reader holds nobody up", async () => {
        const big = noise(8 * PIECE + 77);
        for (const room of [1, 2, 4]) {
            const disk = new Disk(), server = await start({}, big), lines: string[] = [];
            disk.handles = "shared";
            const write: Keeper["write"] = async (folder, name, data) => {
                const full = Number(name) >= room;
                if (!full) await writePiece(folder, name, data);
                return { bytes: data, failure: full ? new DOMException("full", "QuotaExceededError") : null };
            };
            const source = await openAt(server, { storage: disk.host(), keeper: { write, read: readPiece }, onWarning: (line) => lines.push(line) });
            await source.read(0, 100);
            await until(() => lines.length);
            await readAsEngine(source, big);
        }
    });

    test("a writer whose disk is full, or that ends, only ends the keeping", async () => {
        for (const ends of [false, true]) {
            const disk = new Disk(), lines: string[] = [], server = await start();
            const write: Keeper["write"] = async (folder, name, data) => {
                const bytes = structuredClone(data as Uint8Array<ArrayBuffer>, { transfer: [data.buffer as ArrayBuffer] });
                if (ends && name === "000001") throw new BerylError("IO", "it has ended");
                if (ends) await writePiece(folder, name, bytes);
                return { bytes, failure: ends ? null : new DOMException("full", "QuotaExceededError") };
            };
            const source = await openAt(server, { storage: disk.host(), keeper: { write, read: readPiece }, onWarning: (line) => lines.push(line) });
            const read = readAsEngine(source);
            if (!ends) await read;
            else await read.catch(fails("IO", /worker that keeps|has ended/)); // who read just then
            await same(source);
            assert.equal(await source.fill(), false);
            assert.match(lines.join(), ends ? /without being kept/ : /storage is full/);
        }
    });

    test("a server without ranges streams into the store", async () => {
        const disk = new Disk();
        const server = await start({ noRanges: true, breakAfter: (n) => n < 2 ? (n + 1) * PIECE + 70_000 : undefined });
        const source = await openAt(server, { storage: disk.host() });
        await same(source);
        assert.equal(await source.fill(), true);
        assert.equal(server.log.length, 3);
        source.close?.();
        server.log = [];
        await same(await openAt(server, { storage: disk.host() }));
        assert.deepEqual(server.log, []);
    });

    test("a server without ranges and a full disk: a clear error", async () => {
        const disk = new Disk();
        const server = await start({ noRanges: true });
        const source = await openAt(server, { storage: disk.host() });
        disk.quota = PIECE + 5000;
        await assert.rejects(readAll(source), fails("NO_MEMORY", /does not fit/));
    });

    test("two tabs at once do not spoil the file", async () => {
        const disk = new Disk();
        const server = await start({ slow: 1 });
        const [a, b] = await Promise.all([openAt(server, { storage: disk.host() }), openAt(server, { storage: disk.host() })]);
        await Promise.all([same(a), same(b)]);
        const fills = await Promise.all([a.fill(), b.fill()]);
        assert.ok(fills.some((whole) => whole));
        a.close?.();
        b.close?.();
        server.log = [];
        await same(await openAt(server, { storage: disk.host() }));
        assert.deepEqual(server.log, []);
    });

    test("a second tab reads what the first has brought", async () => {
        const disk = new Disk();
        const server = await start();
        const first = await openAt(server, { storage: disk.host() });
        await first.read(0, 10);
        const second = await openAt(server, { storage: disk.host() });
        await first.read(PIECE, 10);
        await first.read(2 * PIECE, 10);
        await new Promise((resolve) => setTimeout(resolve, 50));
        server.log = [];
        await second.read(0, 10);
        await second.read(PIECE, 10);
        assert.deepEqual(server.log.filter((line) => line.startsWith("GET 0-") || line.startsWith(`GET ${PIECE}-`)), []);
    });

    test("cache off neither looks nor writes", async () => {
        const disk = new Disk();
        const server = await start();
        const source = await openAt(server, { storage: disk.host(), cache: "off" });
        await same(source);
        assert.equal(await source.fill(), false);
        assert.deepEqual(disk.writes, []);
    });
});

describe("reader", () => {
    test("two tasks that read far places by turns both come on", async () => {
        const source = new BlobSource(new Blob([MODEL]), "x"), bell = new Bell(), reader = new SourceReader(source, bell);
        for (const round of [0, 1, 2]) {
            const places = [round * 1000, PIECE + round * 1000], got = [false, false], to = [new Uint8Array(100), new Uint8Array(100)];
            for (let turns = 0; got.includes(false); turns++) {
                assert.ok(turns < 20, "they take each other's bytes away");
                for (const k of [0, 1]) if (!got[k]) got[k] = reader.read(places[k]!, to[k]!) === STATUS.OK;
                if (got.includes(false)) await bell.wait();
            }
            for (const k of [0, 1]) assert.deepEqual(to[k], MODEL.slice(places[k], places[k]! + 100));
        }
        reader.close();
    });

    test("three blocks are in memory at most, wherever ranges begin", async () => {
        const size = 12 * PIECE, bell = new Bell(), asked: number[] = [], rooms = new Set<Uint8Array>();
        const reader = new SourceReader({ size, name: "x", read: async (offset, n, _, room) => {
            asked.push(offset);
            const bytes = room ?? new Uint8Array(n);
            rooms.add(bytes);
            return bytes.fill(offset / PIECE);
        } }, bell);
        for (let at = 0, to = new Uint8Array(900_000); at + to.length <= size; at += to.length) {
            while (reader.read(at, to) === STATUS.PENDING) await bell.wait();
            assert.deepEqual([to[0], to.at(-1)], [at, at + to.length - 1].map((place) => Math.floor(place / PIECE)));
        }
        assert.deepEqual(asked, Array.from({ length: 12 }, (_, i) => i * PIECE));
        assert.equal(rooms.size, 3);
        reader.close();
    });

    test("what the source cannot have at hand is told to who asks", async () => {
        const bell = new Bell(), gone = new BerylError("IO", "gone");
        const reader = new SourceReader({ size: 1000, name: "x", read: () => Promise.reject(gone) }, bell);
        const to = new Uint8Array(10);
        assert.equal(reader.read(0, to), STATUS.PENDING);
        assert.equal(reader.read(0, to), STATUS.PENDING);
        await bell.wait();
        assert.equal(reader.read(0, to), STATUS.IO);
        assert.equal(reader.failure, gone);
    });
});

describe("verify", () => {
    const sha256 = createHash("sha256").update(MODEL).digest("hex");

    test("as it arrives, out of order, and once more what was jumped over", async () => {
        for (const order of [[0, 1, 2, 3], [3, 1, 0, 2], [2]]) {
            const server = await start();
            const source = new VerifiedSource(await openAt(server));
            for (const i of order) await source.read(i * PIECE, Math.min(PIECE, MODEL.length - i * PIECE));
            await source.finish(sha256.toUpperCase());
        }
    });

    test("another file is refused", async () => {
        const source = new VerifiedSource(new BlobSource(new Blob([noise(1000)]), "x"));
        await assert.rejects(source.finish(sha256), fails("BAD_FILE", /SHA-256/));
    });
});

describe("cache", () => {
    test("lists, sizes, removes", async () => {
        const disk = new Disk();
        const cache = makeCache(disk.host());
        assert.deepEqual(await cache.list(), []);
        const [one, two] = [await start(), await start()];
        const a = await openAt(one, { storage: disk.host() });
        await same(a);
        await a.fill();
        const b = await openAt(two, { storage: disk.host() });
        await b.read(0, 1);
        const list = await cache.list();
        assert.equal(list.length, 2);
        const [begun, whole] = [list.find((m) => !m.complete), list.find((m) => m.complete)];
        assert.equal(whole?.stored, MODEL.length);
        assert.equal(whole?.name, "model.gguf");
        assert.equal(begun?.size, MODEL.length);
        assert.ok(begun && begun.stored >= PIECE && begun.stored < MODEL.length);
        assert.equal((await cache.size()).models, MODEL.length + begun.stored);
        await assert.rejects(cache.remove(two.url), fails("MISUSE", /being loaded/));
        b.close?.();
        await new Promise((resolve) => setTimeout(resolve, 5));
        assert.equal(await cache.remove(two.url), true);
        assert.equal(await cache.remove(two.url), false);
        assert.ok(whole);
        assert.equal(await cache.remove(whole), true);
        assert.deepEqual(await cache.list(), []);
        assert.equal(await cache.persist(), true);
    });
});
