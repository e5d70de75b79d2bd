/*
 * status.ts - what C says: the statuses of beryl.h by number, in the order of BERYL_STATUS_LIST, and its messages.
 */
import { isStatus, type BerylStatus } from "./error.js";

const NAMES = [
    "OK", "EVENT", "PENDING", "CANCELLED", "MISUSE", "UNSUPPORTED", "NOT_FOUND", "IO", "BAD_FILE", "BAD_INPUT", "NO_MEMORY",
    "NO_DEVICE_MEMORY", "NO_DEVICE", "DEVICE", "DEVICE_LOST", "CONTEXT_FULL",
] as const;

/** Those that are looked for. */
export const STATUS = { OK: 0, EVENT: 1, PENDING: 2, CANCELLED: 3, IO: 7 } as const;

/** The number of an error's name. */
export function statusNumber(name: BerylStatus): number {
    return NAMES.indexOf(name);
}

/** The error's name of a number that C gave. */
export function statusName(number: number): BerylStatus {
    const name = NAMES[number] ?? "";
    return isStatus(name) ? name : "DEVICE";
}

/** A message of C for readers who have neither the program's switches nor C's functions: advice with them is left out, since hints give it. */
export function forPages(message: string): string {
    const [first = "", ...rest] = message.split(/(?<=[:;]) /);
    const kept = [first.replace(/--(\w+)/g, "`$1`"), ...rest.filter((part) => !/--\w|\bberyl[_ ]\w/.test(part))];
    return kept.join(" ").replace(/[:;]$/, "");
}
