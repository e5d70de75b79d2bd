/*
 * place.ts - the engine in the caller's own thread. A file of its own, so that a page whose engine
 * lives in a worker does not load it twice.
 */
import type { HostCalls } from "./calls.js";
import { Engine, type WebGpu } from "./engine.js";
import { makeHost } from "./host.js";
import { local, type Caller } from "./rpc.js";

/** A host in place. */
export function inPlace(gpu?: WebGpu): Caller<HostCalls> {
    return local<HostCalls>(makeHost({ loadEngine: (...args) => Engine.load(...args), gpu }));
}
