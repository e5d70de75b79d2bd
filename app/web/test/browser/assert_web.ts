/*
 * assert_web.ts - as much of node:assert as the engine's cases need, in a browser.
 */
class AssertionError extends Error {
    constructor({ message }: { message: string }) {
        super(message);
        this.name = "AssertionError";
    }
}

function show(value: unknown): string {
    return ArrayBuffer.isView(value) ? `[${(value as Uint8Array).length} elements]` : String(JSON.stringify(value)).slice(0, 200);
}

function same(a: unknown, b: unknown): boolean {
    if (Object.is(a, b)) return true;
    if (typeof a !== "object" || typeof b !== "object" || a === null || b === null || a.constructor !== b.constructor) return false;
    const keys = Object.keys(a);
    return keys.length === Object.keys(b).length && keys.every((key) => same((a as Record<string, unknown>)[key], (b as Record<string, unknown>)[key]));
}

function ok(value: unknown, message = "it is not so"): asserts value {
    if (!value) throw new AssertionError({ message });
}

export default {
    AssertionError,
    ok,
    equal: (a: unknown, b: unknown, message?: string): void => ok(Object.is(a, b), message ?? `${show(a)} is not ${show(b)}`),
    deepEqual: (a: unknown, b: unknown, message?: string): void => ok(same(a, b), message ?? `${show(a)} is not ${show(b)}`),
    match: (text: string, pattern: RegExp): void => ok(pattern.test(text), `${show(text)} does not match ${pattern}`),
};
