/*
 * worker.ts - the module worker in which the engine lives.
 */
import type { HostCalls } from "./calls.js";
import { Engine } from "./engine.js";
import { makeHost } from "./host.js";
import { serve, type Port } from "./rpc.js";

serve<HostCalls>(globalThis as unknown as Port, makeHost({ loadEngine: (...args) => Engine.load(...args) }));
