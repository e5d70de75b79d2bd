import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { after, describe, test } from "node:test";
import { makeCache } from "../src/cache.js";
import { BerylError } from "../src/error.js";
import { BlobSource } from "../src/source/blob.js";
import { openSource, VerifiedSource, type ByteSource, type FillableSource, type UrlOptions } from "../src/source/index.js";
import { PIECE } from "../src/source/store.js";
import { openUrl } from "../src/source/url.js";
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

async function openAt(server: FileServer, options: UrlOptions = {}, signal?: AbortSignal): Promise<FillableSource> {
    const source = await openUrl(server.url, { retry: RETRY, storage: nowhere, ...options }, signal);
    open.push(source);
    return source;
}

async function readAll(source: ByteSource, step = 3_000_000): Promise<Buffer> {
    const parts: Uint8Array[] = [];
    for (let at = 0; at < source.size; at += step) parts.push((await source.read(at, Math.min(step, source.size - at))).slice());
    return Buffer.concat(parts);
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

    test("errors of the first answer", async () => {
        await assert.rejects(openAt(await start({ status: () => 404 })), fails("NOT_FOUND", /404/));
        await assert.rejects(openAt(await start({ status: () => 403 })), fails("IO", /403/));
        await assert.rejects(openUrl("http://127.0.0.1:9/x", { retry: RETRY, storage: nowhere }), fails("IO"));
        await assert.rejects(openAt(await start({}, new Uint8Array(0))), fails("BAD_FILE"));
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
        assert.equal([...(await disk.model()).keys()].length, 5);
        assert.equal(server.log.length, 5, server.log.join()); // four pieces and the small read
    });

    test("a closed tab goes on where it was", async () => {
        const disk = new Disk();
        const server = await start();
        const first = await openAt(server, { storage: disk.host() });
        await first.read(0, 10);
        await first.read(PIECE, PIECE);
        first.close?.();
        const kept = [...(await disk.model()).keys()].filter((name) => name !== "note.json");
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
        const file = (await disk.model()).get("000001");
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
        first.close?.();
        const note = (await disk.model()).get("note.json");
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
