/*
 * server.ts - a web server for one file, with the faults that real ones have.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** What a request meets. */
export interface Faults {
    /** The n-th answer's body (from 0) breaks after so many bytes; undefined: it does not. */
    breakAfter?: (n: number) => number | undefined;
    /** Ranges are not answered. */
    noRanges?: boolean;
    /** Content-Range is left out, as where another origin does not show it. */
    hideRange?: boolean;
    /** The n-th answer's status instead of 200 or 206. */
    status?: (n: number) => number | undefined;
    /** The ETag of the n-th answer. */
    etag?: (n: number) => string;
    /** The total in Content-Range of the n-th answer. */
    total?: (n: number) => number;
    /** Pages of other origins may not read it. */
    closed?: boolean;
    /** Content-Length is left out. */
    noLength?: boolean;
    /** Milliseconds before each 64 KiB. */
    slow?: number;
    /** The answer begins, then stands still. */
    stall?: (n: number) => boolean;
    /** The range begins that many bytes too late. */
    shift?: number;
    /** Caches may not have it. */
    noStore?: boolean;
}

/** A running server. */
export interface FileServer {
    url: string;
    faults: Faults;
    bytes: Uint8Array;
    /** "GET 0-8388607" for each request, in order. */
    log: string[];
    close(): Promise<void>;
}

/** Bytes that differ everywhere, but for the first eight, which are a GGUF's. */
export function noise(size: number, seed = 1): Uint8Array<ArrayBuffer> {
    const words = new Uint32Array(Math.ceil(size / 4));
    let x = seed * 2654435761 >>> 0 || 1;
    for (let i = 0; i < words.length; i++) {
        x ^= x << 13;
        x ^= x >>> 17;
        x ^= x << 5;
        words[i] = x >>> 0;
    }
    words.set([0x46554747, 3].slice(0, words.length));
    return new Uint8Array(words.buffer, 0, size).slice();
}

async function send(response: ServerResponse, bytes: Uint8Array, faults: Faults, n: number): Promise<void> {
    const limit = faults.breakAfter?.(n) ?? Infinity;
    for (let at = 0; at < bytes.length; at += 65536) {
        if (faults.slow) await new Promise((resolve) => setTimeout(resolve, faults.slow));
        if (faults.stall?.(n) && at > 0) return;
        if (at + 65536 > limit) {
            response.write(bytes.subarray(at, limit), () => response.destroy());
            return;
        }
        if (response.destroyed) return;
        if (!response.write(bytes.subarray(at, at + 65536)))
            await new Promise<void>((resolve) => {
                const go = (): void => {
                    response.off("drain", go).off("close", go);
                    resolve();
                };
                response.on("drain", go).on("close", go);
            });
    }
    response.end();
}

/** Serves `bytes` at /model.gguf until it is closed. */
export async function serveFile(bytes: Uint8Array, faults: Faults = {}): Promise<FileServer> {
    const server: FileServer = { url: "", faults, bytes, log: [], close: () => Promise.resolve() };
    const answer = (request: IncomingMessage, response: ServerResponse): void => {
        const f = server.faults;
        const n = server.log.length;
        const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "");
        server.log.push(`${request.method} ${range ? `${range[1]}-${range[2]}` : "all"}`);
        // As a host of models answers pages of other origins.
        if (!f.closed) response.setHeader("Access-Control-Allow-Origin", "*");
        response.setHeader("Access-Control-Allow-Headers", "*");
        response.setHeader("Access-Control-Expose-Headers", "Content-Range, ETag");
        response.setHeader("ETag", f.etag?.(n) ?? "\"one\"");
        if (f.noStore) response.setHeader("Cache-Control", "private, no-store");
        if (request.method === "OPTIONS") {
            response.writeHead(204).end();
            return;
        }
        const status = f.status?.(n);
        if (status) {
            response.writeHead(status).end();
            return;
        }
        let body = server.bytes;
        if (range && !f.noRanges) {
            const start = Number(range[1]) + (f.shift ?? 0);
            const end = Math.min(Number(range[2]) + 1, body.length);
            if (start >= body.length) {
                response.writeHead(416).end();
                return;
            }
            if (!f.hideRange) response.setHeader("Content-Range", `bytes ${start}-${end - 1}/${f.total?.(n) ?? body.length}`);
            response.statusCode = 206;
            body = body.subarray(start, end);
        }
        if (!f.noLength) response.setHeader("Content-Length", body.length);
        if (request.method === "HEAD") response.end();
        else void send(response, body, f, n);
    };
    const http = createServer(answer);
    await new Promise<void>((resolve) => { http.listen(0, "127.0.0.1", resolve); });
    server.url = `http://127.0.0.1:${(http.address() as AddressInfo).port}/model.gguf`;
    server.close = () => new Promise((resolve) => {
        http.closeAllConnections();
        http.close(() => resolve());
    });
    return server;
}
