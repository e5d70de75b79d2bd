import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { afterEach, beforeEach, describe, test } from "node:test";
import { MessageChannel } from "node:worker_threads";
import type { HostCalls, HostEvent, PlainLoad } from "../src/calls.js";
import type { AnswerOptions, ChatOptions, Message, Part } from "../src/chat.js";
import { adapterHint, devices, webgpuHint } from "../src/devices.js";
import { BerylError } from "../src/error.js";
import type { EngineInfo } from "../src/engine.js";
import { makeCache } from "../src/cache.js";
import { makeHost } from "../src/host.js";
import { Beryl, type LoadOptions } from "../src/index.js";
import { Model } from "../src/model.js";
import { Queue } from "../src/queue.js";
import { local, remote, serve, type Caller, type Handlers, type Port } from "../src/rpc.js";
import { openSource } from "../src/source/index.js";
import type { StorageHost } from "../src/source/store.js";
import { forPages } from "../src/status.js";
import { doubleLoader, makeWorld, type World } from "./engine_double.js";
import { noise, serveFile } from "./server.js";
import { Disk } from "./storage.js";

const EMPTY_MODULE = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]);
const FILE = noise(3_000_000);

function fails(status: string, message?: RegExp): (error: unknown) => boolean {
    return (error) => {
        assert.ok(error instanceof BerylError, String(error));
        assert.equal(error.status, status, error.message);
        if (message) assert.match(error.message, message);
        return true;
    };
}

const user = (content: string): { role: "user"; content: string }[] => [{ role: "user", content }];
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

async function partsOf(answer: AsyncIterable<Part>): Promise<Part[]> {
    const parts: Part[] = [];
    for await (const part of answer) parts.push(part);
    return parts;
}

/* The same host in place and behind a message channel, as behind a worker. */
const borders: Record<string, (world: World, disk: Disk) => Caller<HostCalls>> = {
    "in place": (world, disk) => local(makeHost({ loadEngine: doubleLoader(world), storage: disk.host() })),
    "across a channel": (world, disk) => {
        const { port1, port2 } = new MessageChannel();
        serve(port2 as unknown as Port, makeHost({ loadEngine: doubleLoader(world), storage: disk.host() }));
        return remote<HostCalls>(port1 as unknown as Port, () => {
            port1.close();
            port2.close();
        });
    },
};

for (const [name, border] of Object.entries(borders)) describe(`a model ${name}`, () => {
    let world: World;
    let disk: Disk;
    let caller: Caller<HostCalls>;
    let model: Model;
    let heard: HostEvent[];

    async function load(plain: Partial<PlainLoad> = {}, signal?: AbortSignal): Promise<Model> {
        heard = [];
        caller.call("watch", null, { onEvent: (event) => { heard.push(event); model?.heard(event); } }).catch(() => undefined);
        const info = await caller.call("load", { source: new Blob([FILE]), module: EMPTY_MODULE, ...plain }, { signal });
        const end = async (): Promise<void> => { await caller.call("close", null); };
        return model = new Model(caller, info, end);
    }

    beforeEach(() => {
        world = makeWorld();
        disk = new Disk();
        caller = border(world, disk);
    });
    afterEach(async () => {
        await caller.call("close", null).catch(() => undefined);
        caller.close();
    });

    test("parts arrive in order, and the result sums them up", async () => {
        await load();
        const answer = model.chat(user("one two three"), { think: true });
        const parts = await partsOf(answer);
        assert.deepEqual(parts.map((part) => part.type === "call" ? "" : part.text), ["hm", "one ", "two ", "three"]);
        const result = await answer.result;
        assert.equal(result.text, "one two three");
        assert.equal(result.thought, "hm");
        assert.equal(result.end, "stop");
        assert.deepEqual(result.message, { role: "assistant", content: "one two three" });
        assert.deepEqual(await partsOf(answer), parts, "a second reader gets the same");
        assert.ok(heard.some((event) => event.kind === "progress" && event.progress.what === "loading weights"));
    });

    test("a call is a part and a turn", async () => {
        await load();
        const seen: number[] = [];
        const answer = model.chat(user("call"), { tools: [{ function: { name: "f" } }], onProgress: (p) => seen.push(p.done) });
        assert.ok((await partsOf(answer)).some((part) => part.type === "call" && part.name === "f"));
        const { message } = await answer.result;
        assert.deepEqual(message.tool_calls, [{ id: "call_0", type: "function", function: { name: "f", arguments: { x: 1 } } }]);
        assert.deepEqual(seen, [1]);
    });

    test("tokens, text, prompts, description, self-test", async () => {
        await load({ context: 77 });
        assert.equal(model.info.context, 77);
        const ids = await model.tokenize("abc");
        assert.ok(ids instanceof Int32Array);
        assert.deepEqual([...ids], [97, 98, 99]);
        assert.equal(await model.detokenize(ids), "abc");
        assert.equal(await model.detokenize([97]), "a");
        assert.match(await model.render(user("x")), /"x"/);
        assert.ok((await model.renderTokens(user("x"), { think: true })).length > 10);
        assert.ok(await model.stats());
        assert.deepEqual(await model.describe({ tensors: true }), { metadata: {}, tensors: [] });
        const tests: string[] = [];
        await model.selftest((one) => tests.push(one.name));
        assert.deepEqual(tests, ["matvec"]);
    });

    test("calls at the same time are answered one after another", async () => {
        await load();
        const other = model.session();
        const answers = [model.chat(user("a b")), other.chat(user("c d")), model.chat(user("e f"))];
        const texts = await Promise.all(answers.map((answer) => answer.text()));
        assert.deepEqual(texts, ["a b", "c d", "e f"]);
        assert.equal(world.mostRunning, 1);
        assert.deepEqual(world.log.filter((line) => line.startsWith("say")), ["say a b", "say c d", "say e f"]);
    });

    test("options are checked, with their names and what is allowed", async () => {
        await load();
        const say = (options: object): void => { model.chat(user("x"), options as ChatOptions); };
        const refused = (options: object, message: RegExp): void => assert.throws(() => say(options), fails("MISUSE", message));
        refused({ maxTokens: 0 }, /`maxTokens` must be a whole number from 1 to 4294967295, not 0/);
        refused({ maxTokens: -1 }, /not -1/);
        refused({ maxTokens: 1.5 }, /not 1\.5/);
        refused({ maxTokens: "7" }, /`maxTokens`.*not "7"/);
        refused({ temperature: NaN }, /`temperature` must be a number from 0 on, not NaN/);
        refused({ temperature: -1 }, /not -1/);
        refused({ temperature: 1e300 }, /not 1e\+300/);
        refused({ topK: 0 }, /`topK`/);
        refused({ topP: 0 }, /`topP` must be a number above 0 and up to 1/);
        refused({ stop: ["a", ""] }, /`stop\[1\]`/);
        refused({ stop: "a" }, /`stop` must be a list/);
        refused({ signal: {} }, /`signal` must be an AbortSignal/);
        refused({ onProgress: 1 }, /`onProgress` must be a function/);
        refused({ think: 1 }, /`think` must be true or false/);
        refused({ max_tokens: 7 }, /chat has no `max_tokens`/);
        assert.throws(() => say({ maxtokens: 7 }), (error: BerylError) => /temperature.*maxTokens/.test(error.hint));
        assert.throws(() => say(null as unknown as object), fails("MISUSE", /options of chat/));
        assert.throws(() => model.generate([1], { tools: [] } as AnswerOptions), fails("MISUSE", /generate has no `tools`/));
        for (const messages of [[], "x", null, [null], [{ content: "x" }], [{ role: "bot", content: "x" }]])
            assert.throws(() => model.chat(messages as Message[]), fails("MISUSE", /`messages/));
        assert.throws(() => model.chat([...user("x"), { role: "bot" as "user" }]), fails("MISUSE", /`messages\[1\]\.role` must be "system" or .* not "bot"/));
        for (const tokens of [[1.5], [-1], [NaN], ["1"], null, 7]) {
            assert.throws(() => model.generate(tokens as number[]), fails("MISUSE", /`tokens/));
            await assert.rejects(model.detokenize(tokens as number[]), fails("MISUSE", /`tokens/));
        }
        await assert.rejects(model.tokenize(7 as unknown as string), fails("MISUSE", /`text` must be text, not 7/));
        await assert.rejects(model.tokenize("x", { Special: true } as object), fails("MISUSE", /tokenize has no `Special`/));
        await assert.rejects(model.describe({ tensors: 1 } as object), fails("MISUSE", /`tensors`/));
        await assert.rejects(model.render([]), fails("MISUSE", /`messages`/));
        await assert.rejects(model.renderTokens(user("x"), { tool: [] } as object), fails("MISUSE", /renderTokens has no `tool`/));
        await assert.rejects(model.selftest(7 as unknown as () => void), fails("MISUSE", /`each`/));
        const session = model.session();
        await assert.rejects(session.rewind(0.5), fails("MISUSE", /`count`/));
        await assert.rejects(session.restore("x" as unknown as Blob), fails("MISUSE", /`snapshot` must be a Blob/));
        await assert.rejects(session.save({ signal: 1 } as object), fails("MISUSE", /`signal`/));
        assert.equal(await model.chat(user("fine"), { maxTokens: 5, temperature: 0, topP: 1, minP: 0, seed: 0, stop: ["."], think: undefined }).text(), "fine");
        assert.deepEqual(world.asked, { maxTokens: 5, greedy: true, topP: 1, minP: 0, seed: 0, stop: ["."] });
    });

    test("pictures and sound become what the module takes, once each", async () => {
        await load();
        const picture = { type: "image", image: { rgb: new Uint8Array(12), width: 2, height: 2 } } as const, text = { type: "text", text: "?" } as const;
        const samples = new Float32Array(75 * 1000), told: string[] = [];
        const wav = new Uint8Array(44 + 2 * 61 * 1000), view = new DataView(wav.buffer);
        [..."RIFF    WAVEfmt "].forEach((letter, i) => { wav[i] = letter.charCodeAt(0); });
        [..."data"].forEach((letter, i) => { wav[36 + i] = letter.charCodeAt(0); });
        view.setUint32(16, 16, true);
        view.setUint32(24, 1000, true); // samples a second
        view.setUint16(32, 2, true); // bytes of one
        view.setUint32(40, 2 * 61 * 1000, true);
        const messages: Message[] = [{ role: "user", content: [picture, { type: "audio", audio: samples, sampleRate: 1000 }, { type: "audio", audio: new Blob([wav]) }, text] }];
        for (let turn = 0; turn < 2; turn++) {
            const said = await model.chat(messages, { imageBudget: 140, onProgress: ({ what }) => told.push(what) }).text();
            assert.equal(said, JSON.stringify([{ type: "image" }, ...Array.from({ length: 6 }, () => ({ type: "audio" })), text]));
        }
        // those of equal length are silent, so the same
        assert.deepEqual(world.encoded, ["0: 2 2, 140", "1: 30000 1000, 140", "1: 15000 1000, 140", "2: 60044 0, 140", "2: 2044 0, 140"]);
        assert.ok(told.includes("sound longer than 30 s: read in 3 clips") && told.includes("loading the vision tower"), told.join());
        assert.equal(await model.chat(user("plain")).text(), "plain");
        assert.deepEqual(world.log.filter((line) => line.startsWith("media")), ["media 1 2 2 3 4 4 5", "media 1 2 2 3 4 4 5", "media "]);
        for (const kind of ["image", "audio"] as const) await model.prepareMedia(kind);
        assert.deepEqual(world.log.filter((line) => line.startsWith("prepare")), ["prepare 1", "prepare 2"]);
        assert.deepEqual([...await model.embedMedia(picture)], [1, 2, 3, 4]);
        const url = `data:image/png;base64,${Buffer.from("no picture").toString("base64")}`;
        await assert.rejects(model.embedMedia({ type: "image_url", image_url: { url } }), fails("UNSUPPORTED", /decoded here/));
        await assert.rejects(model.embedMedia({ type: "input_audio", input_audio: { data: "T2dnUw==" } }), fails("UNSUPPORTED", /sound of this kind/));
        await assert.rejects(model.embedMedia({ type: "audio", audio: "data:;base64,%%" }), fails("BAD_INPUT"));
        await assert.rejects(model.embedMedia({ type: "image", image: { rgb: new Uint8Array(5), width: 2, height: 2 } }), fails("BAD_INPUT", /5 bytes are no picture of 2 x 2/));
        await assert.rejects(model.embedMedia(picture, { signal: AbortSignal.abort() }), fails("CANCELLED"));
        const refused = (content: unknown, message: RegExp): void => assert.throws(() => model.chat([{ role: "user", content } as Message]), fails("MISUSE", message));
        refused([{ type: "video" }], /`messages\[0\]\.content\[0\]\.type` must be "text" or "image" or "audio" or "image_url" or "input_audio", not "video"/);
        refused(["x"], /type/);
        refused([{ type: "image" }], /`messages\[0\]\.content\[0\]\.image` must be .*, not undefined/);
        refused([{ type: "image", image: [1] }], /not a list/);
        refused([{ type: "audio", audio: samples, sampleRate: 7 }], /sampleRate` must be a whole number from 1000/);
        refused([{ type: "audio", audio: samples, rate: 7 }], /has no `rate`/);
        assert.throws(() => model.chat(messages, { imageBudget: 100 as 140 }), fails("MISUSE", /`imageBudget` must be 70 or 140 or 280 or 560 or 1120, not 100/));
        assert.throws(() => model.generate([1], { media: [text as never] }), fails("MISUSE", /`media\[0\]\.type` must be "image"/));
    });

    test("a running answer ends when it is cancelled, with what it has", async () => {
        await load();
        world.pace = 10;
        const controller = new AbortController();
        const answer = model.chat(user("a b c d e f g h i j k l m n o p q r s t"), { signal: controller.signal });
        let n = 0;
        for await (const part of answer) if (part.type === "text" && ++n === 3) controller.abort();
        const result = await answer.result;
        assert.equal(result.end, "cancelled");
        assert.equal(result.text, "a b c ");
        assert.equal(await model.chat(user("next")).text(), "next");
    });

    test("leaving the loop ends the answer", async () => {
        await load();
        world.pace = 5;
        const answer = model.chat(user("a b c d e f g h"));
        for await (const part of answer) if (part) break;
        assert.equal((await answer.result).end, "cancelled");
    });

    test("one that waits is cancelled at once", async () => {
        await load();
        world.pace = 30;
        const first = model.chat(user("a b c d e f g h"));
        let answered = false;
        void first.result.then(() => { answered = true; });
        const controller = new AbortController();
        const second = model.chat(user("never"), { signal: controller.signal });
        await pause(10);
        controller.abort();
        assert.equal((await second.result).end, "cancelled");
        assert.ok(!answered, "it did not wait for the other one's answer");
        first.cancel();
        await first.result;
        assert.ok(!world.log.includes("say never"));
        assert.equal((await model.chat(user("x"), { signal: AbortSignal.abort() }).result).end, "cancelled");
    });

    test("errors keep status, message and hint", async () => {
        await load();
        const answer = model.chat(user("too long"));
        await assert.rejects(partsOf(answer), fails("CONTEXT_FULL", /9,000/));
        await assert.rejects(answer.result, (error: BerylError) => /larger `context`/.test(error.hint));
        assert.equal(await model.chat(user("ok")).text(), "ok");
    });

    test("sessions have their own timelines, and give way when there are too many", async () => {
        await load({ sessions: 2 });
        const [a, b, c] = [model.session(), model.session(), model.session()];
        for (const [session, text] of [[a, "aa"], [b, "bb"], [c, "cc"], [a, "dd"]] as const) await session.chat(user(text)).result;
        assert.equal(world.most, 2);
        assert.match(String.fromCharCode(...await b.tokens()), /bb/);
        assert.match(String.fromCharCode(...await a.tokens()), /dd/);
        await c.close();
        await assert.rejects(c.tokens(), fails("MISUSE"));
        await c.close();
    });

    test("as many sessions answer at once as are held, and no busy one gives way", async () => {
        await load({ sessions: 2 });
        const sessions = [model.session(), model.session(), model.session(), model.session()];
        const texts = await Promise.all(sessions.map((session, i) => session.chat(user(`one two three ${i}`)).text()));
        assert.deepEqual(texts, sessions.map((_, i) => `one two three ${i}`));
        assert.equal(world.mostRunning, 2);
        assert.equal(world.most, 2);
    });

    test("snapshots, of a session that gave way too", async () => {
        await load();
        const [a, b] = [model.session(), model.session()];
        await a.generate([65, 66, 67]).result;
        await b.generate([70]).result;
        const snapshot = await a.save();
        assert.ok(snapshot instanceof Blob);
        assert.equal(snapshot.size, 12);
        assert.ok(world.log.includes("logits 3 from 2"));
        await b.restore(snapshot);
        assert.deepEqual([...await b.tokens()], [65, 66, 67]);
        await b.rewind(1);
        assert.deepEqual([...await b.tokens()], [65]);
        await assert.rejects(b.rewind(2), fails("MISUSE"));
        await assert.rejects(b.restore(new Blob(["x"])), fails("BAD_FILE"));
    });

    test("a lost device: the answer fails, the model comes back with its sessions", async () => {
        await load();
        await model.chat(user("before")).result;
        const states: string[] = [];
        model.onstatechange = ({ state, error }) => states.push(state + (error ? ` ${error.status}` : ""));
        world.pace = 20;
        const answer = model.chat(user("a b c d e f g h"));
        const waiting = model.chat(user("waits"));
        await pause(30);
        world.lose("driver reset");
        await assert.rejects(answer.result, fails("DEVICE_LOST", /driver reset/));
        assert.equal(await waiting.text(), "waits");
        assert.deepEqual(states, ["lost DEVICE_LOST", "ready"]);
        assert.equal(model.state, "ready");
        assert.deepEqual(world.log.filter((line) => line === "load" || line === "close"), ["load", "close", "load"]);
    });

    test("a session keeps its tokens over a loss", async () => {
        await load();
        const session = model.session();
        await session.generate([65, 66]).result;
        world.lose("gone");
        await pause(20);
        assert.deepEqual([...await session.tokens()], [65, 66]);
        assert.equal((await session.save()).size, 8);
    });

    test("a device that does not come back is a clear error for all who ask", async () => {
        await load();
        world.refuse = new BerylError("NO_DEVICE", "no adapter");
        world.lose("unplugged");
        await pause(20);
        assert.equal(model.state, "failed");
        await assert.rejects(model.chat(user("x")).result, fails("NO_DEVICE"));
        await assert.rejects(model.tokenize("x"), fails("NO_DEVICE"));
    });

    test("a device that is lost again and again is given up", async () => {
        await load();
        for (let i = 0; i < 4; i++) {
            world.lose("again");
            await pause(20);
        }
        assert.equal(model.state, "failed");
        await assert.rejects(model.chat(user("x")).result, fails("DEVICE_LOST", /4 times/));
    });

    test("a load is cancelled", async () => {
        const server = await serveFile(FILE, { slow: 20 });
        const controller = new AbortController();
        setTimeout(() => controller.abort(), 50);
        await assert.rejects(load({ source: server.url }, controller.signal), fails("CANCELLED"));
        await server.close();
    });

    test("a load that fails says why", async () => {
        world.refuse = new BerylError("NO_DEVICE_MEMORY", "needs 5.1 GB, the device has 4 GB; a context of 2,048 would fit");
        const failed = load();
        await assert.rejects(failed, fails("NO_DEVICE_MEMORY", /would fit/));
        await assert.rejects(failed, (error: BerylError) => error.hint.length > 10);
    });

    test("a model that does not fit: what would is found by trying", async () => {
        world.room = 2048;
        await assert.rejects(load(), (error: BerylError) => error.status === "NO_DEVICE_MEMORY" && /`context: 2048`/.test(error.hint));
        caller.close();
        caller = border(world, disk);
        world.room = 0;
        await assert.rejects(load({ context: 1000 }), (error: BerylError) => /Not even/.test(error.hint));
    });

    test("a hash is checked, remembered, and a wrong file is not kept", async () => {
        const server = await serveFile(FILE);
        const sha256 = createHash("sha256").update(FILE).digest("hex");
        const wrong = load({ source: server.url, sha256: "0".repeat(64) });
        await assert.rejects(wrong, fails("BAD_FILE", /SHA-256/));
        assert.equal(disk.usage(), 0);
        caller.close();
        caller = border(world, disk);
        await load({ source: server.url, sha256 });
        for (let i = 0; i < 100 && !JSON.stringify([...await noteOf(disk)]).includes(sha256); i++) await pause(5);
        assert.ok((await noteOf(disk)).includes(sha256));
        await server.close(); // the second start is offline
        await caller.call("close", null);
        caller.close();
        caller = border(world, disk);
        await load({ source: server.url, sha256 });
        assert.ok(!heard.some((event) => event.kind === "progress" && event.progress.what === "checking the file"));
    });

    test("a file that does not parse is not kept, and what was kept of it is asked for again", async () => {
        const server = await serveFile(FILE);
        world.damaged = (bytes) => bytes[100] === FILE[100]; // as long as the server has this one
        await assert.rejects(load({ source: server.url }), fails("BAD_FILE", /no room for tensors/));
        assert.equal(disk.model().size, 0);
        world.damaged = () => false;
        await again();
        await load({ source: server.url });
        while (!(await noteOf(disk)).includes("\"complete\":true")) await pause(5);
        const requests = server.log.length;
        await again();
        await load({ source: server.url });
        assert.equal(server.log.length, requests, "it is read from where it is kept");
        world.damaged = (bytes) => bytes[100] === FILE[100];
        server.bytes = FILE.slice().fill(FILE[100]! ^ 1, 100, 101);
        server.faults.etag = () => "\"two\"";
        await again();
        await load({ source: server.url });
        while (!(await noteOf(disk)).includes("\"complete\":true")) await pause(5);
        assert.equal(disk.model().get("000000")?.bytes[100], FILE[100]! ^ 1);
        await server.close();

        async function again(): Promise<void> {
            await caller.call("close", null);
            caller.close();
            caller = border(world, disk);
        }
    });

    test("what must be kept is kept when the model is there", async () => {
        const server = await serveFile(FILE);
        await load({ source: server.url, cache: "required" });
        assert.ok((await noteOf(disk)).includes("\"complete\":true"));
        await caller.call("close", null);
        caller.close();
        disk = new Disk();
        caller = border(world, disk);
        disk.gate = pause(1).then(() => { disk.quota = 10; });
        await assert.rejects(load({ source: server.url, cache: "required" }), fails("NO_MEMORY", /cannot be kept/));
        assert.equal(disk.usage(), 0);
        await server.close();
    });

    test("closing ends what runs and what waits", async () => {
        await load();
        world.pace = 20;
        const answers = [model.chat(user("a b c d e f g h")), model.chat(user("waits"))];
        await pause(30);
        await model.close();
        assert.deepEqual((await Promise.all(answers.map((answer) => answer.result))).map((result) => result.end), ["cancelled", "cancelled"]);
        assert.equal(model.state, "closed");
        assert.throws(() => model.chat(user("x")), fails("MISUSE"));
        assert.equal(world.open, 0);
        await model.close();
    });
});

async function noteOf(disk: Disk): Promise<string> {
    return new TextDecoder().decode(disk.model().get("note.json")?.bytes ?? new Uint8Array(0));
}

describe("rpc", () => {
    interface Table { echo: { args: unknown; event: number; result: unknown }; fail: { args: null; event: never; result: null } }
    function pair(): { caller: ReturnType<typeof remote<Table>>; close(): void } {
        const { port1, port2 } = new MessageChannel();
        serve<Table>(port2 as unknown as Port, {
            echo: async (args, { emit }) => {
                for (let i = 0; i < 1000; i++) emit(i);
                await pause(1);
                return args;
            },
            fail: () => Promise.reject(new TypeError("odd")),
        });
        return { caller: remote<Table>(port1 as unknown as Port, () => port1.close()), close: () => port1.close() };
    }

    test("many events arrive in order before the result", async () => {
        const { caller, close } = pair();
        const seen: number[] = [];
        assert.deepEqual(await caller.call("echo", { x: [1, 2] }, { onEvent: (n) => seen.push(n) }), { x: [1, 2] });
        assert.deepEqual(seen, Array.from({ length: 1000 }, (_, i) => i));
        close();
    });

    test("what is thrown becomes a BerylError; what cannot be posted is refused", async () => {
        const { caller, close } = pair();
        await assert.rejects(caller.call("fail", null), fails("IO", /odd/));
        await assert.rejects(caller.call("echo", () => undefined), fails("MISUSE", /echo/));
        await assert.rejects(caller.call("none" as "echo", null), fails("MISUSE", /none/));
        close();
    });

    test("a side that ended fails all calls", async () => {
        const { caller } = pair();
        const call = caller.call("echo", 1);
        caller.fail(new BerylError("IO", "the worker died"));
        await assert.rejects(call, fails("IO", /died/));
        await assert.rejects(caller.call("echo", 1), fails("IO", /died/));
        caller.close();
    });
});

describe("queue", () => {
    test("first come, first served, also after failures", async () => {
        const queue = new Queue();
        const log: number[] = [];
        const run = (n: number, fail = false): Promise<void> => queue.run(n, undefined, async () => {
            await pause(3);
            log.push(n);
            if (fail) throw new Error("x");
        });
        const all = await Promise.allSettled([run(1), run(2, true), run(3)]);
        assert.deepEqual(log, [1, 2, 3]);
        assert.deepEqual(all.map((one) => one.status), ["fulfilled", "rejected", "fulfilled"]);
        await queue.idle();
        queue.close(new BerylError("CANCELLED", "closed"));
        await assert.rejects(run(4), fails("CANCELLED"));
    });
});

describe("queue of several", () => {
    test("sessions beside each other, each in order; what is of none runs alone", async () => {
        const queue = new Queue();
        queue.widen(2);
        let running = 0, most = 0;
        const log: string[] = [];
        const run = (key: number | null, name: string): Promise<void> => queue.run(key, undefined, async () => {
            most = Math.max(most, ++running);
            log.push(`${name} of ${running}`);
            await pause(5);
            running--;
        });
        await Promise.all([run(1, "a"), run(1, "b"), run(2, "c"), run(null, "d"), run(3, "e"), run(4, "f")]);
        assert.equal(most, 2);
        assert.deepEqual(log.map((line) => line[0]), ["a", "c", "b", "d", "e", "f"]);
        assert.ok(log.includes("d of 1") && log.includes("c of 2") && log.includes("f of 2"));
    });

    test("one that leaves lets those behind it go on", async () => {
        const queue = new Queue(), leave = new AbortController();
        queue.widen(2);
        const first = queue.run(1, undefined, () => pause(10)), alone = queue.run(null, leave.signal, () => pause(1));
        let ran = false;
        const behind = queue.run(2, undefined, () => { ran = true; return Promise.resolve(); });
        await pause(1);
        assert.equal(ran, false);
        leave.abort();
        await behind;
        await assert.rejects(alone, fails("CANCELLED"));
        await first;
    });
});

describe("devices", () => {
    const chrome = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36";
    test("hints name the browser's own switch", () => {
        assert.match(webgpuHint(chrome, true), /enable-unsafe-webgpu/);
        assert.match(webgpuHint(chrome, false), /https/);
        assert.match(webgpuHint("Mozilla/5.0 (Windows NT 10.0; rv:130.0) Gecko/20100101 Firefox/130.0", true), /dom\.webgpu\.enabled/);
        assert.match(webgpuHint("Mozilla/5.0 (Macintosh) AppleWebKit/605.1.15 Version/17.0 Safari/605.1.15", true), /26/);
        assert.match(webgpuHint(chrome.replace("X11; Linux x86_64", "Windows NT 10.0").replace("130", "100"), true), /113/);
        assert.match(adapterHint(chrome), /chrome:\/\/gpu/);
    });

    test("no WebGPU is one entry that says what to do", async () => {
        const [none] = await devices();
        assert.equal(none?.usable, false);
        assert.ok(none && none.whyNot.length > 0 && none.hint.length > 0);
    });

    test("an adapter is described, and one twice is told once", async () => {
        const adapter = { info: { vendor: "acme", architecture: "one", description: "Acme One", device: "", subgroupMaxSize: 32 },
            features: new Set(["subgroups", "shader-f16"]), limits: { maxComputeInvocationsPerWorkgroup: 128, maxBufferSize: 5 } };
        const list = await devices({ requestAdapter: () => Promise.resolve(adapter) } as unknown as GPU);
        assert.equal(list.length, 1);
        assert.equal(list[0]?.name, "Acme One");
        assert.equal(list[0]?.subgroupSize, 32);
        assert.deepEqual(list[0]?.features, ["shader-f16", "subgroups"]);
        assert.equal(list[0]?.usable, false);
        assert.match(list[0]?.whyNot ?? "", /maxComputeInvocationsPerWorkgroup/);
        const [none] = await devices({ requestAdapter: () => Promise.resolve(null) } as unknown as GPU);
        assert.match(none?.whyNot ?? "", /no adapter/);
    });
});

describe("load", () => {
    test("without WebGPU it is said before anything is downloaded", async () => {
        await assert.rejects(Beryl.load("http://127.0.0.1:9/none.gguf"), fails("NO_DEVICE"));
    });

    test("wrong arguments", async () => {
        await assert.rejects(Beryl.load(7 as unknown as string), fails("MISUSE"));
        await assert.rejects(Beryl.load("x.gguf", { sha256: "abc" }), fails("MISUSE"));
        for (const source of ["", " ", null, {}, { kind: "directory" }])
            await assert.rejects(Beryl.load(source as string), fails("MISUSE", /`source` must be an address.*"builtin"/));
        const refused: [object | null, RegExp][] = [
            [{ kv: "q4" }, /`kv` must be "f32" or "f16" or "q8", not "q4"/], [{ precision: "half" }, /`precision` must be "fast" or "exact"/],
            [{ device: "gpu" }, /`device` must be "high-performance" or "low-power"/], [{ cache: true }, /`cache` must be "auto"/],
            [{ context: 0 }, /`context` must be a whole number from 1/], [{ context: 1.5 }, /`context`/], [{ sessions: NaN }, /`sessions`/],
            [{ without: ["f17"] }, /`without\[0\]` must be "f16"/], [{ retry: { tries: 3 } }, /`retry` has no `tries`/],
            [{ retry: { attempts: 0 } }, /`retry\.attempts` must/], [{ request: { headers: { a: 1 } } }, /`request\.headers`/],
            [{ request: { credentials: "all" } }, /`request\.credentials` must be "omit"/], [{ worker: 0 }, /`worker`/], [{ full: 1 }, /`full` must be true or false/], [{ gpu: {} }, /`gpu`.*npm package webgpu/],
            [{ module: 7 }, /`module`/], [{ builtin: "" }, /`builtin`/], [{ contexts: 7 }, /load has no `contexts`/], [null, /options of load/],
        ];
        for (const [options, message] of refused) await assert.rejects(Beryl.load("x.gguf", options as LoadOptions), fails("MISUSE", message));
        await assert.rejects(Beryl.devices({} as GPU), fails("MISUSE", /`gpu`/));
        await assert.rejects(Beryl.cache.remove(null as unknown as string), fails("MISUSE", /address/));
        await assert.rejects(Beryl.load("builtin", { signal: AbortSignal.abort() }), fails("CANCELLED"));
    });
});

describe("errors", () => {
    test("whatever is thrown is a BerylError", async () => {
        const host = (fault: () => never): StorageHost => ({ ...new Disk().host(), root: fault, estimate: fault, persist: fault });
        const cache = makeCache(host(() => { throw new DOMException("no", "SecurityError"); }));
        await assert.rejects(cache.list(), fails("IO"));
        await assert.rejects(cache.size(), fails("IO"));
        await assert.rejects(cache.persist(), fails("IO"));
        await assert.rejects(cache.remove("http://x.example/a"), fails("IO"));
        await assert.rejects(openSource("blob:nothing", {}), fails("NOT_FOUND"));
        await assert.rejects(openSource("data:,x", {}, AbortSignal.abort()), fails("CANCELLED"));
        const model = new Model(local({} as Handlers<HostCalls>), {} as EngineInfo, () => Promise.resolve());
        await assert.rejects(model.tokenize("x"), (error) => error instanceof BerylError);
        await assert.rejects(model.chat(user("x")).result, (error) => error instanceof BerylError);
        await model.close();
        await assert.rejects(model.tokenize("x"), fails("MISUSE"));
    });

    test("what C says comes without its functions and the program's switches", async () => {
        assert.equal(forPages("the prompt has 9 tokens, the context holds 4: shorten it or use a larger --context"), "the prompt has 9 tokens, the context holds 4");
        assert.equal(forPages("--context 9: this model has at most 4"), "`context` 9: this model has at most 4");
        assert.equal(forPages("a: b; c (call beryl_engine_open again): d"), "a: b; d");
        const folder = "../../src";
        for (const name of (await readdir(folder, { recursive: true })).filter((path) => path.endsWith(".c")))
            for (const [, text = ""] of (await readFile(`${folder}/${name}`, "utf8")).matchAll(/base_fail\w*\([^;]*?((?:"(?:[^"\\\n]|\\.)*"\s*)+)/g)) {
                const message = text.replaceAll(/"\s*"/g, "").slice(1, -1);
                if (!message.startsWith("beryl_")) // of its own misuse: module.c does none
                    assert.doesNotMatch(forPages(message), /--\w|\bberyl_\w/, `${name}: ${message}`);
            }
    });
});

describe("the package's frame", () => {
    const read = async (path: string): Promise<string> => await readFile(path, "utf8"); // tests run in app/web

    test("the lock names versions and hashes, no hosts", async () => {
        const lock = JSON.parse(await read("package-lock.json")) as { packages: Record<string, { resolved?: string; integrity?: string }> };
        for (const [path, entry] of Object.entries(lock.packages)) {
            assert.equal(entry.resolved, undefined, path);
            assert.ok(path === "" || entry.integrity, path);
        }
    });

    test("one version everywhere, pinned tools", async () => {
        const pack = JSON.parse(await read("package.json")) as { version: string; devDependencies: Record<string, string>; dependencies?: unknown };
        assert.equal(pack.version, Beryl.version);
        assert.match(await read("../../include/beryl.h"), new RegExp(`BERYL_VERSION "${Beryl.version}"`));
        assert.equal(pack.dependencies, undefined);
        for (const version of Object.values(pack.devDependencies)) assert.match(version, /^\d+\.\d+\.\d+$/);
    });
});
