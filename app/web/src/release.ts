/*
 * release.ts - memory of buffers, given back at once.
 *
 * A collector lets buffers pile up for tens of MB before it looks at them. What a load has used is given back as it goes, so
 * that it stays within its bounds. The one idea: a buffer that a browser made (of a Blob, of an answer) has a second owner inside
 * the browser. `transfer` takes it from the script alone, and hides it from the collector, so the memory stays; posted to a
 * port that nobody listens at, it goes with its message. A buffer of the script's own goes either way.
 */
import { hasDisk } from "./source/disk.js";

const drain: MessagePort | null = hasDisk() || typeof MessageChannel !== "function" ? null : openDrain();

function openDrain(): MessagePort {
    const { port1, port2 } = new MessageChannel();
    port2.close();
    return port1;
}

/** Ends bytes that nobody else holds; where the host cannot, its collector does. Parts of a larger buffer are left alone. */
export function release(bytes: Uint8Array): void {
    const buffer = bytes.buffer as ArrayBuffer & { transfer?(size: number): ArrayBuffer };
    if (bytes.byteLength === 0 || bytes.byteLength !== buffer.byteLength) return;
    if (drain) drain.postMessage(0, [buffer]);
    else buffer.transfer?.(0);
}
