/**
 * sw.ts - the service worker: keeps the page's own files, so that it opens without a net. Models are kept by the package, in
 * the origin private file system, and pass by here.
 */
/// <reference lib="webworker" />
declare const self: ServiceWorkerGlobalScope;
declare const __BUILD__: { version: string; files: string[] };

const NAME = `beryl-page-${__BUILD__.version}`;

self.addEventListener("install", (event) => {
    event.waitUntil(
        caches
            .open(NAME)
            .then((cache) => cache.addAll(__BUILD__.files.map((file) => new Request(file, { cache: "reload" }))))
            .then(() => self.skipWaiting()),
    );
});

self.addEventListener("activate", (event) => {
    event.waitUntil(
        caches
            .keys()
            .then((names) => Promise.all(names.filter((name) => name.startsWith("beryl-page-") && name !== NAME).map((name) => caches.delete(name))))
            .then(() => self.clients.claim()),
    );
});

self.addEventListener("fetch", (event) => {
    const { request } = event, { origin, pathname } = new URL(request.url);
    if (request.method !== "GET" || request.headers.has("range") || origin !== self.location.origin || pathname.endsWith("/gpt.html")) return;
    event.respondWith(
        caches
            .open(NAME)
            .then((cache) => cache.match(request.mode === "navigate" ? "./" : request, { ignoreSearch: request.mode === "navigate", ignoreVary: true }))
            .then((kept) => kept ?? fetch(request)),
    );
});
export {};
