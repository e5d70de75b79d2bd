/*
 * chromium.ts - a headless Chromium with WebGPU on its software adapter, and the built page in it.
 *
 * BERYL_CHROMIUM names another executable. Where there is none, `hasChromium` is false and tests say so.
 */
import { existsSync, mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { chromium, type Browser, type BrowserContext, type Page } from "playwright-core";
import { preview, type PreviewServer } from "vite";

/** The package's folder. */
export const ROOT: string = fileURLToPath(new URL("../../../", import.meta.url)); // app/web, seen from out/test/browser
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
export function launch(args: readonly string[] = ["--enable-unsafe-webgpu"]): Promise<Browser> {
    // The native tests' choice of a Vulkan driver is none of the browser's: it brings its own.
    const env = Object.fromEntries(Object.entries(process.env).flatMap(([name, value]) => value === undefined || name.startsWith("VK_") ? [] : [[name, value]]));
    return chromium.launch({
        executablePath: executable ?? "",
        env,
        args: ["--disable-gpu-process-crash-limit", ...args, ...(process.getuid?.() === 0 ? ["--no-sandbox"] : [])],
    });
}

/** The built page on a server of its own, and a browser. */
export async function openSite(): Promise<Site> {
    mkdirSync(SCREENS, { recursive: true });
    const server: PreviewServer = await preview({ configFile: `${ROOT}page/vite.config.ts`, logLevel: "error", preview: { port: 0, host: "127.0.0.1", allowedHosts: ["beryl.test"] } });
    const url = server.resolvedUrls?.local[0] ?? "";
    const browser = await launch();
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
    const page = await context.newPage();
    const problems: string[] = [];
    page.on("console", (message) => {
        if (message.type() === "error") problems.push(message.text());
    });
    page.on("pageerror", (error) => problems.push(error.message));
    return { context, page, problems };
}
