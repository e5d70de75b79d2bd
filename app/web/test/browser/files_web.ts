/*
 * files_web.ts - the repository's files for the tests, in a worker of a browser: from the server of lab.ts, waiting for them.
 */
export function readRepository(path: string): Uint8Array<ArrayBuffer> {
    const request = new XMLHttpRequest();
    request.open("GET", `/repository/${path}`, false);
    request.responseType = "arraybuffer";
    request.send();
    if (request.status !== 200) throw new Error(`${path}: ${request.status}`);
    return new Uint8Array(request.response as ArrayBuffer);
}
