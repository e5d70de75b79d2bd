/*
 * chromium.ts - a headless Chromium with WebGPU on its software adapter, and the built page in it.
 *
 * BERYL_CHROMIUM names another executable, BERYL_CHROMIUM_FLAGS flags that it is given beside those here. Where there is none, `executable` is undefined and tests say so.
 */
import { once } from "node:events";
import { createWriteStream, existsSync, mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { chromium, type Browser, type BrowserContext, type CDPSession, type LaunchOptions, type Page } from "playwright-core";
import type { PreviewServer } from "vite";
import type { ByteSource } from "../../src/engine.js";

/** The package's folder. */
export const ROOT: string = fileURLToPath(new URL("../../../", import.meta.url)); // app/web, seen from out/test/browser
const STEP = 4 << 20; // bytes that are written at a time
const PLACES = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** The browser's executable, or undefined. */
export const executable: string | undefined = [process.env["BERYL_CHROMIUM"] ?? "", ...PLACES].find((path) => path && existsSync(path));
/** Where pictures of the page go. */
export const SCREENS = `${ROOT}out/screens`;
/** The small models of the project's tests, and the built-in one. */
export const FIXTURES: string = fileURLToPath(new URL("../../tests/data/", `file://${ROOT}`));
export const BUILTIN: string = fileURLToPath(new URL("../../models/default.gguf", `file://${ROOT}`));

export interface Site {
    browser: Browser;
    url: string;
    close(): Promise<void>;
}

/** A browser with WebGPU, unless it is to have none. */
export function launch(args?: readonly string[]): Promise<Browser> {
    return chromium.launch(launchOptions(args));
}

/** Executable, flags and environment of a browser with WebGPU. */
export function launchOptions(args: readonly string[] = ["--enable-unsafe-webgpu"]): LaunchOptions {
    // The native tests' choice of a Vulkan driver is none of the browser's: it brings its own.
    const env = Object.fromEntries(Object.entries(process.env).flatMap(([name, value]) => value === undefined || name.startsWith("VK_") ? [] : [[name, value]]));
    const more = process.env["BERYL_CHROMIUM_FLAGS"]?.split(/\s+/).filter(Boolean) ?? [];
    return {
        executablePath: executable ?? "",
        env,
        args: ["--disable-gpu-process-crash-limit", ...args, ...more, ...(process.getuid?.() === 0 ? ["--no-sandbox"] : [])],
    };
}

/** The built page on a server of its own, and a browser. */
export async function openSite(args?: readonly string[]): Promise<Site> {
    mkdirSync(SCREENS, { recursive: true });
    const { preview } = await import("vite"); // not for those who measure without it
    const server: PreviewServer = await preview({ configFile: `${ROOT}page/vite.config.ts`, logLevel: "error", preview: { port: 0, host: "127.0.0.1", allowedHosts: ["beryl.test"] } });
    const url = server.resolvedUrls?.local[0] ?? "";
    const browser = await launch(args);
    return {
        browser,
        url,
        close: async () => {
            await browser.close();
            await server.close();
        },
    };
}

/** A page with nothing kept from before; problems that it logs are collected. */
export async function freshPage(site: Site, options: Parameters<Browser["newContext"]>[0] = {}): Promise<{ context: BrowserContext; page: Page; problems: string[] }> {
    const context = await site.browser.newContext(options);
    context.setDefaultTimeout(300_000); // software adapters, on machines that do other things too
    const page = await context.newPage();
    const problems: string[] = [];
    page.on("console", (message) => {
        if (message.type() === "error") problems.push(message.text());
    });
    page.on("pageerror", (error) => problems.push(error.message));
    return { context, page, problems };
}

/* Bytes of objects from which they are collected before they are counted: the browser's own on a busy machine, which its collector lets pile up. */
const GARBAGE = 8e6;

/** The most that the page's heap held, looked at every 50 ms until `end`: objects in use, and buffers whether in use or not. */
export function watchHeap(session: CDPSession): { end(): Promise<number> } {
    let most = 0, going = true;
    const look = async (): Promise<{ buffers: number; objects: number }> => {
        const use = await session.send("Runtime.getHeapUsage") as { usedSize: number; embedderHeapUsedSize?: number; backingStorageSize?: number };
        return { buffers: use.backingStorageSize ?? 0, objects: use.usedSize + (use.embedderHeapUsedSize ?? 0) };
    };
    const watch = (async () => {
        while (going) {
            const { buffers, objects } = await look();
            let held = objects;
            if (objects > GARBAGE) {
                await session.send("HeapProfiler.collectGarbage");
                held = Math.min(objects, (await look()).objects);
            }
            most = Math.max(most, held + buffers);
            await new Promise((resolve) => setTimeout(resolve, 50));
        }
    })();
    return {
        end: async () => {
            going = false;
            await watch;
            return most;
        },
    };
}

/** A source as a file: for models that are made, not kept. */
export async function writeSource(source: ByteSource, path: string): Promise<void> {
    const out = createWriteStream(path);
    for (let at = 0; at < source.size; at += STEP)
        if (!out.write(await source.read(at, Math.min(STEP, source.size - at)))) await once(out, "drain");
    out.end();
    await once(out, "finish");
}
