/*
 * worker.ts - the module worker in which the engine lives, and under other names the one that reads its file and the one that keeps it.
 */
import type { HostCalls } from "./calls.js";
import { Engine } from "./engine.js";
import { makeHost } from "./host.js";
import { serve, type Port } from "./rpc.js";
import { HELPER, KEEPER, openInHelper, serveKeeper, serveSource } from "./source/helper.js";

const scope = globalThis as unknown as Port & { name: string };
if (scope.name === HELPER) serveSource(scope);
else if (scope.name === KEEPER) serveKeeper(scope);
else serve<HostCalls>(scope, makeHost({ loadEngine: (...args) => Engine.load(...args), openSource: openInHelper }));
