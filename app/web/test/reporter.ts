/*
 * reporter.ts - what node's test runner prints here: failures, skips with their reasons, slow ones, notes, and the counts as
 * the project's other tests close with them.
 */
import type { TestEvent } from "node:test/reporters";

const COUNTS = /^(tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) /; // the runner's own closing lines
const SLOW = 2000; // milliseconds

export default async function* report(events: AsyncIterable<TestEvent>): AsyncGenerator<string> {
    const names: string[] = [];
    const counts = { passed: 0, failed: 0, skipped: 0 };
    const nameOf = (data: { nesting: number; name: string }): string => [...names.slice(0, data.nesting), data.name].join(": ");
    for await (const { type, data } of events) {
        if (type === "test:start") names[data.nesting] = data.name;
        else if (type === "test:diagnostic") {
            if (!COUNTS.test(data.message)) yield `  note: ${data.message}\n`;
        } else if (type === "test:stdout" || type === "test:stderr") yield data.message;
        else if (type === "test:pass") {
            const seconds = data.details.duration_ms / 1000;
            if (data.skip !== undefined && data.skip !== false) {
                counts.skipped++;
                yield `skip ${nameOf(data)} (${String(data.skip)})\n`;
            } else if (data.details.type !== "suite") {
                counts.passed++;
                if (1000 * seconds > SLOW) yield `  slow: ${nameOf(data)} ${seconds.toFixed(1)} s\n`;
            }
        } else if (type === "test:fail") {
            const error = data.details.error as Error & { failureType?: string };
            if (error.failureType === "subtestsFailed") continue; // they were told
            counts.failed++;
            const cause = error.cause instanceof Error ? error.cause.stack ?? error.cause.message : String(error.cause ?? error.message);
            yield `FAIL ${nameOf(data)}: ${cause}\n`;
        }
    }
    yield `${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped\n`;
}
