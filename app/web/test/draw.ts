/*
 * draw.ts - expensive tests, of which `.ci/run` has some run, and others with another tree. As tests/seldom.txt says for the C suites.
 *
 * BERYL_TEST_DRAW is the draw; without it all are run.
 */
const draw = process.env["BERYL_TEST_DRAW"];

/** Why the i-th test is skipped, if it is: one of `oneOf` draws in a row has it run, and its neighbours are run in others. */
export function leftOut(i: number, oneOf: number): string | false {
    return !draw || (i + Number(draw)) % oneOf === 0 ? false : `left to other draws than BERYL_TEST_DRAW=${draw}`;
}
