/*
 * wasi.ts - what the module's C library asks of a system: clocks and random numbers.
 *
 * It has no files; what C's stdio would write goes nowhere, since the library never prints.
 */

const OK = 0, NOT_THERE = 8; // errno of WASI: success, badf
const REALTIME = 0;

/** The imports of `wasi_snapshot_preview1` that the module has; `memory` is asked for at each call, since it is born later. */
export function wasiImports(memory: () => WebAssembly.Memory): WebAssembly.ModuleImports {
    return {
        clock_time_get(clock: number, _precision: bigint, to: number): number {
            const milliseconds = clock === REALTIME ? Date.now() : performance.now();
            new DataView(memory().buffer).setBigUint64(to, BigInt(Math.round(milliseconds * 1e6)), true);
            return OK;
        },
        random_get(to: number, size: number): number {
            crypto.getRandomValues(new Uint8Array(memory().buffer, to, size));
            return OK;
        },
        fd_close: () => NOT_THERE,
        fd_seek: () => NOT_THERE,
        fd_write: () => NOT_THERE,
    };
}
