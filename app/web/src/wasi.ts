/*
 * wasi.ts - what the module's C library asks for: clocks and random numbers of the system, mathematics and decimals of
 * JavaScript (libc.c). It has no files and never prints.
 */

const OK = 0; // errno of WASI: success
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
    };
}

/* Without a point that ends it and the zeros behind a point. */
const trimmed = (digits: string): string => digits.includes(".") ? digits.replace(/\.?0+$/, "") : digits;

/** A number as C's printf has it, by the conversion `e`, `f` or `g`; what lies just between two decimals goes away from zero. */
export function printed(value: number, conversion: string, precision: number): string {
    if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value < 0 ? "-inf" : "inf";
    if (value < 0 || Object.is(value, -0)) return `-${printed(-value, conversion, precision)}`;
    if (conversion === "f") return value.toFixed(precision);
    const general = conversion === "g", places = general ? Math.max(precision, 1) - 1 : precision;
    const [digits = "", power = ""] = value.toExponential(places).split("e"), exponent = Number(power);
    if (general && exponent >= -4 && exponent <= places) return trimmed(value.toFixed(places - exponent));
    return `${general ? trimmed(digits) : digits}e${power.charAt(0)}${power.slice(1).padStart(2, "0")}`;
}

/** The imports of libc.c. */
export function libcImports(memory: () => WebAssembly.Memory): WebAssembly.ModuleImports {
    const { sin, cos, tan, asin, acos, atan, sinh, cosh, tanh, exp, log, log2, log10, pow, atan2 } = Math;
    return {
        sin, cos, tan, asin, acos, atan, sinh, cosh, tanh, exp, log, log2, log10, pow, atan2,
        number_read: (at: number, size: number): number => Number(String.fromCharCode(...new Uint8Array(memory().buffer, at, size))),
        number_print(value: number, conversion: number, precision: number, to: number): number {
            const text = printed(value, String.fromCharCode(conversion), precision);
            new Uint8Array(memory().buffer, to, text.length).set([...text].map((c) => c.charCodeAt(0)));
            return text.length;
        },
    };
}
