/* out.h - what the caller is given: memory that beryl_free takes back (its size stands before
 * it), facts of a device; plans of the caller's own graphs. */
#ifndef ENGINE_OUT_H
#define ENGINE_OUT_H

#include "engine/engine.h"

/* A copy of `size` bytes and a NUL. NULL: no memory. Calls that are const for the caller
 * allocate too. */
void *engine_hand_out(const beryl_engine *engine, const void *data, size_t size);
/* The engine's heap; counting is no change that a caller could see. */
base_heap *engine_heap(const beryl_engine *engine);
/* How a caller's graph is planned. */
graph_exec_options engine_graph_options(beryl_precision precision);
/* NULL: the reference functions. Texts are the device's. */
beryl_device_info engine_device_info(const device *d);

#endif
