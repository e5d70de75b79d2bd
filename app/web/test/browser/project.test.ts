/*
 * project.test.ts - the README as a new user follows it: a fresh Vite project that installs the packed package, with the
 * examples as they stand there, built and opened in Chromium.
 */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import type { Browser } from "playwright-core";
import { createServer, preview } from "vite";
import { leftOut } from "../draw.js";
import { examples } from "../readme.js";
import { executable, launch, ROOT } from "./chromium.js";

const LONG = 300_000;
const call = promisify(execFile);
const PAGE = "<!doctype html><link rel=\"icon\" href=\"data:,\"><title>story</title><body><script type=\"module\" src=\"./main.js\"></script>";

/* What the README leaves to the reader: somebody who asks the worker. */
const ASKS = `
const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
worker.onmessage = ({ data }) => document.body.append(data === null ? " (end)" : data.type === "text" ? data.text : "");
worker.postMessage("Tell me a very short story.");
`;

describe("a fresh Vite project", { skip: executable ? false : "no Chromium is installed", timeout: 3 * LONG }, () => {
    let folder: string, browser: Browser;

    before(async () => {
        folder = await mkdtemp(join(tmpdir(), "beryl-project-"));
        await call("npm", ["pack", "--silent", "--ignore-scripts", "--pack-destination", folder], { cwd: ROOT });
        const packed = (await readdir(folder)).find((name) => name.endsWith(".tgz")) ?? "";
        await writeFile(join(folder, "package.json"), "{ \"type\": \"module\" }");
        await call("npm", ["install", "--silent", "--offline", "--no-audit", "--no-fund", `./${packed}`], { cwd: folder });
        await symlink(`${ROOT}node_modules/vite`, join(folder, "node_modules/vite")); // which is here already
        const code = await examples();
        for (const [name, files] of Object.entries({ chat: { "main.js": code.get("chat.js") }, worker: { "main.js": ASKS, "worker.js": code.get("worker.js") } })) {
            await mkdir(join(folder, name));
            await writeFile(join(folder, name, "index.html"), PAGE);
            for (const [file, text] of Object.entries(files)) await writeFile(join(folder, name, file), text ?? "");
        }
        browser = await launch();
    });
    after(async () => {
        await browser?.close();
        await rm(folder, { recursive: true });
    });

    /* The page's text, when it has grown to an answer. */
    async function answerAt(url: string): Promise<string> {
        const context = await browser.newContext(), page = await context.newPage(), problems: string[] = [];
        page.on("pageerror", (error) => problems.push(error.message));
        page.on("console", (message) => { if (message.type() === "error") problems.push(message.text()); });
        await page.goto(url);
        await page.waitForFunction(() => document.body.innerText.length > 60, undefined, { timeout: LONG })
            .catch((error: Error) => problems.push(error.message));
        const text = await page.evaluate(() => document.body.innerText);
        await context.close();
        assert.deepEqual(problems, []);
        return text;
    }

    for (const [i, name] of ["chat", "worker"].entries())
        test(`project/${name}-built`, { timeout: 2 * LONG, skip: leftOut(i, 3) }, async () => {
            const root = join(folder, name);
            await call(process.execPath, [join(folder, "node_modules/vite/bin/vite.js"), "build", "--logLevel", "error"], { cwd: root });
            const files = await readdir(join(root, "dist/assets"));
            for (const what of [/^beryl-.*\.wasm$/, /^default-.*\.gguf$/, /^worker-.*\.js$/]) assert.ok(files.some((file) => what.test(file)), `${String(what)} in ${files.join(" ")}`);
            const server = await preview({ root, configFile: false, logLevel: "error", preview: { port: 0, host: "127.0.0.1" } });
            assert.match(await answerAt(server.resolvedUrls?.local[0] ?? ""), /once|there|was/i);
            await server.close();
        });

    test("project/chat-from-the-development-server", { timeout: 2 * LONG, skip: leftOut(2, 3) }, async () => {
        const server = await createServer({ root: join(folder, "chat"), configFile: false, logLevel: "error", server: { port: 0, host: "127.0.0.1" } });
        await server.listen();
        assert.match(await answerAt(server.resolvedUrls?.local[0] ?? ""), /once|there|was/i);
        await server.close();
    });
});
