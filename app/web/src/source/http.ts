/*
 * http.ts - one file on a web server: how large it is, which version it is, and its byte ranges.
 *
 * Owns requests: the probe, retries with growing pauses, and going on at the byte where a connection
 * broke. Refuses a file that changes under the reader. The one idea: every answer carries the
 * file's size and, where the server shows it, its ETag or date; each is compared with the first
 * answer's. That is as strict as If-Range, and unlike it needs no preflight on another origin.
 * A request may ask for more than its reader takes; the rest of the answer waits for whoever begins there. So one request
 * serves many readers in a row, and none of them need know. Where the browser takes in what nobody reads yet, answers are short, and the
 * next is asked for while one is read.
 */
import { BerylError, throwIfAborted } from "../error.js";
import { release } from "../release.js";
import { Pieces, Watch } from "./pieces.js";
import { orAborted, sleep } from "./source.js";

/** What is sent along with each request for a model. */
export interface RequestOptions {
    /** Extra headers, as Authorization. On another origin the server must allow them. */
    headers?: Record<string, string>;
    credentials?: RequestCredentials;
}

/** How stubborn reading is. */
export interface RetryOptions {
    /** Failures in a row without one new byte before giving up; default 6. */
    attempts?: number;
    /** First pause in milliseconds, doubled up to 32 times that; default 250. */
    pause?: number;
    /** Milliseconds without a byte after which a connection counts as broken; default 30,000. */
    stall?: number;
}

export interface HttpOptions { request?: RequestOptions; retry?: RetryOptions; fetch?: typeof fetch }

/** A failure that another try may cure. */
class Broken extends Error {
    readonly wait: number;
    constructor(message: string, wait = 0) {
        super(message);
        this.wait = wait;
    }
}

/* Where a page is told no more than that it failed. */
const UNREACHED = "The network, or the page's own rules (see the console): a content security policy must name the server in connect-src, "
    + "and a page over https reads from https alone. What has arrived is kept.";

/** Answers that wait for a reader at most, each of which may hold a connection; and a short one, which has soon arrived. */
const WAITING = 2, WAITING_SHORT = 3;
/** Bytes of an answer at most, two of which are on their way. Chromium takes in up to 100 MB of one, read or not (`#paced`). */
const ANSWER = 8 << 20;
/** Milliseconds. What comes within that is read straight into its reader's memory, which a connection that breaks takes along: it is asked for again. */
const FAST = 100;
/** Bytes that `peek` gives. */
const HEAD = 8;

/** The version of a file as the server tells it; null where it does not. */
export interface Validator { size: number; etag: string | null; lastModified: string | null }

/** True if nothing that both sides know differs. */
export function sameVersion(a: Validator, b: Validator): boolean {
    if (a.size !== b.size) return false;
    if (a.etag !== null && b.etag !== null) return a.etag === b.etag;
    return a.lastModified === null || b.lastModified === null || a.lastModified === b.lastModified;
}

/** An answer: what was read of it too early, where its next byte lies and its last one ends, and whether its bytes come faster than FAST. */
interface Answer { reader: Pieces | null; early: Uint8Array[]; offset: number; end: number; fast: boolean }

/** A file on a web server, open for ranges (or, without them, for one pass from the start). */
export class HttpFile implements Validator {
    readonly url: string;
    readonly name: string;
    /** Bytes; -1 where the server does not say (then without ranges). */
    size = -1;
    etag: string | null = null;
    lastModified: string | null = null;
    /** The server answers ranges. */
    ranges = false;
    #paced = false; // answers come no faster than they are read: Chromium takes in ahead what a cache might want, and what is `no-store` not
    /** The first bytes that were asked for. */
    head: Uint8Array = new Uint8Array(0);
    readonly #options: HttpOptions;
    #hiddenBefore = 0; // once may be a connection that came back just then
    #waiting: Answer[] = []; // oldest first; the probe's is one of them
    readonly #coming = new Map<number, { end: number; there: Promise<unknown> }>(); // answers in use or on their way, by where they will wait
    #asked = 0; // end of the last answer that was asked for

    private constructor(url: string, options: HttpOptions) {
        this.url = url;
        this.name = fileName(url);
        this.#options = options;
    }

    /** Asks for bytes [offset, offset + size) and learns from the answer what the server can do. */
    static async open(url: string, options: HttpOptions, offset: number, size: number, signal?: AbortSignal): Promise<HttpFile> {
        const file = new HttpFile(url, options);
        await file.#stubborn(signal, () => 0, async () => {
            file.close();
            const response = await file.#fetch("GET", { Range: `bytes=${offset}-${offset + size - 1}` }, signal);
            await file.#learn(response, offset, signal);
            await file.#peek(signal);
        });
        return file;
    }

    /** Ends the connections that nobody took. */
    close(): void {
        for (const { reader } of this.#waiting.splice(0)) reader?.cancel();
    }

    /** Fills `to` with the bytes from `offset` on, over as many connections as it takes, and gives it back, perhaps moved. `more`: bytes behind
     *  them that are going to be read in their order. */
    async readInto(to: Uint8Array, offset: number, signal?: AbortSignal, onBytes?: (n: number) => void, more = 0): Promise<Uint8Array> {
        const size = to.length, last = offset + size, before = this.#coming.get(offset) ?? this.#waiting.find((answer) => answer.offset === offset);
        const far = last + more, end = Math.max(before?.end ?? (this.#paced ? far : Math.min(far, offset + ANSWER)), last);
        if (!before) this.#asked = end;
        let got = 0, left: () => void = () => undefined;
        this.#coming.delete(offset);
        const next = { end, there: new Promise<void>((resolve) => { left = resolve; }) };
        if (end > last) this.#coming.set(last, next);
        try {
            if (before && "there" in before) await before.there; // which ends with the signal too
            await this.#stubborn(signal, () => got, async () => {
                const answer = this.#take(offset + got) ?? answerOf(await this.#range(offset + got, end, signal), offset + got, end), began = performance.now();
                const leave = (): void => {
                    answer.fast = performance.now() - began < FAST;
                    this.#leave(answer, last);
                };
                if (!this.#paced && answer.end === this.#asked && far > answer.end) this.#askNext(far, signal);
                if (to.length !== size) to = new Uint8Array(size); // lost
                if (answer.fast && answer.reader?.lends && !answer.early.length && !got) {
                    to = await this.#straight(answer.reader, to, signal, onBytes);
                    return leave();
                }
                for await (const piece of this.#body(answer, signal, () => size - got)) {
                    const part = piece.length > size - got ? piece.subarray(0, size - got) : piece;
                    to.set(part, got);
                    got += part.length;
                    onBytes?.(part.length);
                    if (part !== piece) answer.early.unshift(answer.reader?.lends ? piece.slice(part.length) : piece.subarray(part.length));
                    else if (!this.#options.fetch && !answer.reader?.lends) release(new Uint8Array(piece.buffer)); // all of it, also of what was left of one
                    if (got === size) return leave();
                }
                throw new Broken(`the connection ended at byte ${offset + got}`);
            });
        } finally {
            if (this.#coming.get(last) === next) this.#coming.delete(last);
            left();
        }
        return to;
    }

    /* The answer behind the last one. What fails is its reader's to ask for again. */
    #askNext(far: number, signal?: AbortSignal): void {
        const from = this.#asked, end = this.#asked = Math.min(far, from + ANSWER);
        const there = this.#range(from, end, signal).then((response) => this.#leave(answerOf(response, from, end), from), () => undefined);
        const next = { end, there: there.finally(() => { if (this.#coming.get(from) === next) this.#coming.delete(from); }) };
        this.#coming.set(from, next);
    }

    /* The next bytes of an answer, which it has, or else its connection is broken. */
    async #straight(reader: Pieces, to: Uint8Array, signal?: AbortSignal, onBytes?: (n: number) => void): Promise<Uint8Array> {
        const size = to.length, watch = this.#watch(reader, signal);
        let got = 0;
        try {
            while (got < size) {
                const part = await watch.read(size - got, to.subarray(got));
                if (!part) throw new Broken("the connection ended early");
                to = new Uint8Array(part.buffer);
                got += part.length;
                onBytes?.(part.length);
            }
            return to;
        } catch (thrown) {
            reader.cancel();
            onBytes?.(-got);
            throw thrown;
        } finally {
            watch.end();
        }
    }

    #watch(reader: Pieces, signal?: AbortSignal): Watch {
        return new Watch(reader, this.#options.retry?.stall ?? 30_000, () => new Broken("the connection stands still"), signal);
    }

    /** The whole file from its start, once, for servers without ranges. A break is the caller's to start again. */
    async *stream(signal?: AbortSignal): AsyncGenerator<Uint8Array, void> {
        let answer = this.#take(0);
        if (!answer) {
            const response = await this.#fetch("GET", {}, signal);
            this.#sameFile(validatorOf(response, sizeOf(response)));
            answer = answerOf(response, 0, this.size);
        }
        try {
            for await (const piece of this.#body(answer, signal)) yield answer.reader?.lends ? piece.slice() : piece;
        } finally {
            answer.reader?.cancel();
        }
    }

    /** Runs `attempt` until it passes; pauses grow while `progress` stands still. */
    async #stubborn(signal: AbortSignal | undefined, progress: () => number, attempt: () => Promise<void>): Promise<void> {
        const { attempts = 6, pause = 250 } = this.#options.retry ?? {};
        let failures = 0;
        for (let before = progress(); ; before = progress()) {
            throwIfAborted(signal);
            let broken: Broken;
            try {
                await attempt();
                return;
            } catch (thrown) {
                throwIfAborted(signal);
                if (thrown instanceof BerylError) throw thrown;
                broken = thrown instanceof Broken ? thrown : new Broken((thrown as Error).message);
            }
            failures = progress() > before ? 1 : failures + 1;
            if (failures >= attempts)
                throw new BerylError("IO", `reading ${this.name} failed ${failures} times: ${broken.message}`, this.#foreign && progress() === 0 ? UNREACHED : undefined);
            const grown = pause * 2 ** Math.min(failures - 1, 5);
            await sleep(Math.max(broken.wait, grown * (0.75 + Math.random() / 2)), signal);
        }
    }

    async #fetch(method: string, headers: Record<string, string>, signal?: AbortSignal): Promise<Response> {
        throwIfAborted(signal);
        const { request, fetch: own, retry } = this.#options;
        const stalled = new AbortController();
        const timer = setTimeout(() => stalled.abort(), retry?.stall ?? 30_000);
        const giveUp = (): void => stalled.abort();
        signal?.addEventListener("abort", giveUp, { once: true });
        let response: Response;
        try {
            response = await orAborted((own ?? fetch)(this.url, {
                method,
                headers: { ...request?.headers, ...headers },
                credentials: request?.credentials ?? "same-origin",
                cache: "no-store", // the copy in the origin's file system is the only one wanted
                signal: stalled.signal,
            }), stalled.signal);
        } catch (thrown) {
            throwIfAborted(signal);
            if (stalled.signal.aborted) throw new Broken("the server does not answer");
            if (this.head.length === 0 && await this.#isHidden() && this.#hiddenBefore++) throw this.#hidden();
            throw new Broken((thrown as Error).message);
        } finally {
            clearTimeout(timer);
            signal?.removeEventListener("abort", giveUp);
        }
        if (!response.ok) await this.#refuse(response);
        return response;
    }

    /* A server on another origin that answers, but not to this page. Nothing else tells that from a broken connection. */
    async #isHidden(): Promise<boolean> {
        if (!this.#foreign) return false;
        try {
            return (await (this.#options.fetch ?? fetch)(this.url, { method: "HEAD", mode: "no-cors", cache: "no-store" })).type === "opaque";
        } catch {
            return false;
        }
    }

    /* The page's origin where the file's is another. Under Node and Deno there is none. */
    get #foreign(): string {
        const { origin } = globalThis as { origin?: string };
        return origin === undefined || origin === new URL(this.url).origin ? "" : origin;
    }

    #hidden(): BerylError {
        const { headers, credentials } = this.#options.request ?? {}, named = Object.keys(headers ?? {});
        return new BerylError("IO", `${new URL(this.url).host} does not let pages of ${this.#foreign} read ${this.name} (CORS)`,
            `It must send Access-Control-Allow-Origin: ${credentials === "include" ? `${this.#foreign}, Access-Control-Allow-Credentials: true` : "*"} and `
            + `Access-Control-Expose-Headers: Content-Range, Content-Length, ETag, and answer OPTIONS with Access-Control-Allow-Headers: ${["Range", ...named].join(", ")}.`);
    }

    async #refuse(response: Response): Promise<never> {
        await response.body?.cancel().catch(() => undefined);
        const status = response.status;
        const said = `the server answers ${status}${response.statusText ? ` ${response.statusText}` : ""} for ${this.name}`;
        if (status === 408 || status === 425 || status === 429 || status >= 500)
            throw new Broken(said, Math.min(Number(response.headers.get("retry-after")) || 0, 30) * 1000);
        if (status === 404 || status === 410) throw new BerylError("NOT_FOUND", said);
        if (status === 416) throw changed(this.name);
        const locked = status === 401 || status === 403;
        throw new BerylError("IO", said, locked ? "The server wants a sign-in: give `request: { headers }`, or another address." : "");
    }

    async #range(offset: number, end: number, signal?: AbortSignal): Promise<Response> {
        const response = await this.#fetch("GET", { Range: `bytes=${offset}-${end - 1}` }, signal);
        if (response.status !== 206) {
            await response.body?.cancel().catch(() => undefined);
            this.#sameFile(validatorOf(response, sizeOf(response)));
            throw new BerylError("IO", `the server answers ranges of ${this.name} no longer`, "Load again.");
        }
        const range = contentRange(response);
        if (range && range.start !== offset)
            throw new BerylError("IO", `the server sent bytes from ${range.start} of ${this.name}, asked for ${offset}`, "", offset);
        this.#sameFile(validatorOf(response, range?.total ?? this.size));
        return response;
    }

    async #learn(response: Response, offset: number, signal?: AbortSignal): Promise<void> {
        this.ranges = response.status === 206;
        if (this.ranges) {
            const range = contentRange(response);
            if (range && range.start !== offset)
                throw new BerylError("IO", `the server sent bytes from ${range.start} of ${this.name}, asked for ${offset}`);
            if (encoded(response))
                throw new BerylError("IO", `the server compresses ranges of ${this.name}`, "Let it send .gguf files as they are.");
            this.size = range?.total ?? -1;
        } else {
            this.size = sizeOf(response);
        }
        this.etag = response.headers.get("etag");
        this.lastModified = response.headers.get("last-modified");
        this.#paced = /\bno-store\b/i.test(response.headers.get("cache-control") ?? "");
        const end = this.ranges ? contentRange(response)?.end ?? offset + sizeOf(response) : this.size;
        this.#waiting.push(answerOf(response, this.ranges ? offset : 0, end));
        if (this.ranges && this.size < 0) { // another origin that does not show Content-Range
            const head = await this.#fetch("HEAD", {}, signal);
            this.size = sizeOf(head);
            if (this.size < 0) {
                this.close();
                throw new BerylError("IO", `the server does not say how large ${this.name} is`,
                    "It must send Access-Control-Expose-Headers: Content-Range, ETag.");
            }
        }
    }

    /* The answer that waits there, if one does. */
    #take(offset: number): Answer | null {
        const at = this.#waiting.findIndex((answer) => answer.offset === offset);
        return at < 0 ? null : this.#waiting.splice(at, 1)[0]!;
    }

    /* What the answer has still to give waits for whoever begins there. */
    #leave(answer: Answer, offset: number): void {
        answer.offset = offset;
        if (offset < answer.end) this.#waiting.push(answer);
        else answer.reader?.cancel();
        if (this.#waiting.length > (this.#paced ? WAITING : WAITING_SHORT)) this.#waiting.shift()?.reader?.cancel();
    }

    /* Looks at the first bytes of the probe's answer; whoever takes that gets them again. */
    async #peek(signal?: AbortSignal): Promise<void> {
        const answer = this.#waiting[0]!, first: Uint8Array[] = [];
        let size = 0;
        if (answer.reader)
            for await (const piece of this.#body(answer, signal)) {
                first.push(piece.slice());
                size += piece.length;
                if (size >= HEAD) break;
            }
        answer.early.unshift(...first);
        this.head = Uint8Array.from(first.flatMap((piece) => [...piece.subarray(0, HEAD)]).slice(0, HEAD));
    }

    #sameFile(now: Validator): void {
        if (!sameVersion(this, now.size < 0 ? { ...now, size: this.size } : now)) throw changed(this.name);
    }

    /* Whoever leaves it before its end has it still. One that breaks is ended. A piece may hold until the next one alone (Pieces). `most`: bytes that are wanted. */
    async *#body({ reader, early }: Answer, signal?: AbortSignal, most?: () => number): AsyncGenerator<Uint8Array, void> {
        if (!reader) throw new Broken("the answer is empty");
        const watch = this.#watch(reader, signal);
        try {
            for (;;) {
                const next = early.shift() ?? await watch.read(most?.());
                if (!next) return;
                yield next;
            }
        } catch (thrown) {
            reader.cancel();
            throw thrown;
        } finally {
            watch.end();
        }
    }
}

function changed(name: string): BerylError {
    return new BerylError("BAD_FILE", `${name} was changed on the server while it was read`, "Load again: it starts anew with the new file.");
}

function answerOf(response: Response, offset: number, end: number): Answer {
    return { reader: response.body && new Pieces(response.body), early: [], offset, end, fast: false };
}

function contentRange(response: Response): { start: number; end: number; total: number } | null {
    const match = /^bytes (\d+)-(\d+)\/(\d+)$/.exec(response.headers.get("content-range") ?? "");
    return match ? { start: Number(match[1]), end: Number(match[2]) + 1, total: Number(match[3]) } : null;
}

function encoded(response: Response): boolean {
    const encoding = response.headers.get("content-encoding");
    return encoding !== null && encoding !== "" && encoding !== "identity";
}

function sizeOf(response: Response): number {
    const length = response.headers.get("content-length");
    return length !== null && /^\d+$/.test(length) && !encoded(response) ? Number(length) : -1;
}

function validatorOf(response: Response, size: number): Validator {
    return { size, etag: response.headers.get("etag"), lastModified: response.headers.get("last-modified") };
}

/** The last part of an address' path, for messages. */
export function fileName(url: string): string {
    const path = new URL(url).pathname;
    const last = path.slice(path.lastIndexOf("/") + 1);
    try {
        return decodeURIComponent(last) || url;
    } catch {
        return last;
    }
}
