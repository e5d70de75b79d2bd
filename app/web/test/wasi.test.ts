/*
 * wasi.test.ts - decimals as C's printf has them, which the module asks JavaScript for.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { printed } from "../src/wasi.js";

const CASES: [number, string, number, string][] = [
    [0, "g", 17, "0"], [-0, "g", 17, "-0"], [0.1, "g", 17, "0.10000000000000001"], [1e5, "g", 6, "100000"], [1e6, "g", 6, "1e+06"],
    [999999.5, "g", 6, "1e+06"], [1e-4, "g", 9, "0.0001"], [1e-5, "g", 9, "1e-05"], [-1234567, "g", 3, "-1.23e+06"],
    [1.5e300, "g", 17, "1.5000000000000001e+300"], [5e-324, "e", 0, "5e-324"], [1, "e", 2, "1.00e+00"], [123.456, "e", 3, "1.235e+02"],
    [-2.345, "f", 2, "-2.35"], [Infinity, "g", 6, "inf"], [-Infinity, "e", 6, "-inf"], [NaN, "f", 6, "nan"],
];

test("wasi/decimals-are-those-of-c", () => {
    for (const [value, conversion, precision, text] of CASES) assert.equal(printed(value, conversion, precision), text);
});
