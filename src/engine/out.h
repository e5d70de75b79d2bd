/* out.h - memory that the caller gets and gives back with beryl_free: its size stands before it. */
#ifndef ENGINE_OUT_H
#define ENGINE_OUT_H

#include "engine/engine.h"

/* A copy of `size` bytes and a NUL. NULL: no memory. Calls that are const for the caller allocate too. */
void *engine_hand_out(const beryl_engine *engine, const void *data, size_t size);
/* The engine's heap; counting is no change that a caller could see. */
base_heap *engine_heap(const beryl_engine *engine);

#endif
