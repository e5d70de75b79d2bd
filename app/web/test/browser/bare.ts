/*
 * bare.ts - a headless Chromium that nobody watches but for its heaps: tools that watch a page's network have every answer copied.
 *
 * Owns the process, its debugging pipe and a server. A page asks the server for its work and tells what came of it; then it begins anew.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Readable, Writable } from "node:stream";
import { launchOptions } from "./chromium.js";

/* Of the page. */
async function serveWork(): Promise<void> {
    const { work, args } = await (await fetch("/work")).json() as { work: string; args: unknown };
    let told: object;
    try {
        told = { value: await ((0, eval)(`(${work})`) as (args: unknown) => Promise<unknown>)(args) };
    } catch (thrown) {
        told = { error: String((thrown as Error).stack ?? thrown) };
    }
    await fetch("/told", { method: "POST", body: JSON.stringify(told) });
    location.reload();
}

const PAGE = `<!doctype html><link rel=icon href=data:,><script type=module>(${serveWork.toString()})();</script>`;
const LOOK = 50; // milliseconds

interface Heap { usedSize: number; embedderHeapUsedSize?: number; backingStorageSize?: number }
interface Message { id?: number; result?: unknown; method?: string; params?: { sessionId?: string; targetInfo?: { type: string } } }

export class Bare {
    readonly #server: Server;
    readonly #browser: ChildProcess;
    readonly #sessions = new Set<string>(); // pages and workers
    readonly #answers = new Map<number, { sessionId: string | undefined; answer: (result: unknown) => void }>();
    #asked: Promise<ServerResponse>; // the page that wants work
    #ask: (response: ServerResponse) => void = () => undefined;
    #tell: (told: { value?: unknown; error?: string }) => void = () => undefined;
    #next = 1;

    private constructor(server: Server, folder: string) {
        const { executablePath, env, args } = launchOptions();
        this.#server = server;
        this.#asked = new Promise((resolve) => { this.#ask = resolve; });
        this.#browser = spawn(executablePath!, ["--headless", "--remote-debugging-pipe", `--user-data-dir=${folder}`, "--no-first-run",
            "--disable-background-networking", ...args!, `http://127.0.0.1:${(server.address() as AddressInfo).port}/`],
        { env: env as NodeJS.ProcessEnv, stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
        let rest = "";
        (this.#browser.stdio[4] as Readable).setEncoding("utf8").on("data", (text: string) => {
            const all = (rest + text).split("\0");
            rest = all.pop() ?? "";
            for (const one of all) this.#hear(JSON.parse(one) as Message);
        });
    }

    /** Opens the page. What it does not know itself, `serve` answers. */
    static async open(folder: string, serve: (path: string, request: IncomingMessage, response: ServerResponse) => void): Promise<Bare> {
        let bare!: Bare;
        const server = createServer((request, response) => {
            const { pathname } = new URL(request.url ?? "/", "http://bare");
            if (pathname === "/") response.setHeader("Content-Type", "text/html").end(PAGE);
            else if (pathname === "/work") bare.#ask(response);
            else if (pathname === "/told") void bare.#told(request, response);
            else serve(pathname, request, response);
        });
        server.listen(0, "127.0.0.1");
        await once(server, "listening");
        bare = new Bare(server, folder);
        return bare;
    }

    /** Has a new page do it. */
    async run<A, T>(work: (args: A) => Promise<T>, args: A): Promise<T> {
        const response = await this.#asked;
        this.#asked = new Promise((resolve) => { this.#ask = resolve; });
        const ended = new Promise<{ value?: unknown; error?: string }>((resolve) => { this.#tell = resolve; });
        response.end(JSON.stringify({ work: work.toString(), args }));
        const { value, error } = await Promise.race([ended, once(this.#browser, "exit").then(() => ({ value: null, error: "the browser has ended" }))]);
        if (error !== undefined) throw new Error(error);
        return value as T;
    }

    /** The same, and the most bytes that page and workers held meanwhile: objects, and buffers whether in use or not. */
    async watched<A, T>(work: (args: A) => Promise<T>, args: A): Promise<{ value: T; most: number }> {
        let going = true, most = 0;
        await this.#call("Target.setAutoAttach", { autoAttach: true, waitForDebuggerOnStart: false, flatten: true });
        const watch = (async () => {
            while (going) {
                const heaps = await Promise.all([...this.#sessions].map((session) => this.#call("Runtime.getHeapUsage", {}, session) as Promise<Heap | undefined>));
                most = Math.max(most, heaps.reduce((sum, heap) => sum + (heap ? heap.usedSize + (heap.embedderHeapUsedSize ?? 0) + (heap.backingStorageSize ?? 0) : 0), 0));
                await new Promise((resolve) => setTimeout(resolve, LOOK));
            }
        })();
        const value = await this.run(work, args).finally(() => { going = false; });
        await watch;
        return { value, most };
    }

    async close(): Promise<void> {
        this.#browser.kill();
        if (this.#browser.exitCode === null && this.#browser.signalCode === null) await once(this.#browser, "exit");
        this.#server.closeAllConnections();
        this.#server.close();
    }

    async #told(request: IncomingMessage, response: ServerResponse): Promise<void> {
        let text = "";
        for await (const part of request.setEncoding("utf8")) text += part as string;
        response.end();
        this.#tell(JSON.parse(text) as { value?: unknown; error?: string });
    }

    #call(method: string, params: object, sessionId?: string): Promise<unknown> {
        const id = this.#next++;
        (this.#browser.stdio[3] as Writable).write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
        return new Promise((resolve) => { this.#answers.set(id, { sessionId, answer: resolve }); });
    }

    #hear({ id, result, method, params }: Message): void {
        if (id !== undefined) {
            this.#answers.get(id)?.answer(result);
            this.#answers.delete(id);
        } else if (method === "Target.attachedToTarget" && params?.sessionId) {
            if (!/^page$|worker$/.test(params.targetInfo?.type ?? "")) return; // the browser's own windows
            this.#sessions.add(params.sessionId);
            void this.#call("Target.setAutoAttach", { autoAttach: true, waitForDebuggerOnStart: false, flatten: true }, params.sessionId); // its workers
        } else if (method === "Target.detachedFromTarget" && params?.sessionId) {
            this.#sessions.delete(params.sessionId);
            for (const { sessionId, answer } of this.#answers.values()) if (sessionId === params.sessionId) answer(undefined); // nobody else will
        }
    }
}
