/*
 * fit.ts - what would fit into a device's memory when a model as asked for does not.
 */

/** What can be asked for less of. */
export interface Room { context?: number | undefined; kv?: "f32" | "f16" | "q8" | undefined }

const CONTEXTS = [4096, 2048, 1024, 512];
const DEFAULT_CONTEXT = 8192;

/** The first smaller thing that `fits`: a smaller cache, then shorter contexts, the shorter ones with it too. Null if nothing does. */
export async function whatFits(asked: Room & { precision?: "fast" | "exact" | undefined }, fits: (room: Room) => Promise<boolean>): Promise<Room | null> {
    const most = asked.context ?? DEFAULT_CONTEXT;
    const kv = asked.kv ?? (asked.precision === "exact" ? "f32" : "f16");
    const shorter = CONTEXTS.filter((context) => context < most);
    const rooms: Room[] = [...(kv === "q8" ? [] : [{ kv: "q8" } as const]), ...shorter.map((context) => ({ context }))];
    const last = shorter.at(-1);
    if (kv !== "q8" && last !== undefined) rooms.push({ context: last, kv: "q8" });
    for (const room of rooms) if (await fits(room)) return room;
    return null;
}

/** A room as a caller would write it. */
export function showRoom(room: Room): string {
    return [room.context && `\`context: ${room.context}\``, room.kv && `\`kv: "${room.kv}"\``].filter(Boolean).join(" and ");
}
