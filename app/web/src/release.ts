/*
 * release.ts - memory of buffers, given back at once.
 *
 * A collector lets buffers pile up for tens of MB before it looks at them. What a load has used is given back as it goes, so
 * that it stays within its bounds.
 */

/** Ends bytes that nobody else holds; where the host cannot, its collector does. Parts of a larger buffer are left alone. */
export function release(bytes: Uint8Array): void {
    const buffer = bytes.buffer as ArrayBuffer & { transfer?(size: number): ArrayBuffer };
    if (bytes.byteLength > 0 && bytes.byteLength === buffer.byteLength) buffer.transfer?.(0);
}
