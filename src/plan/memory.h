/* memory.h - where the tensors and the scratch of a plan lie.
 *
 * Each base tensor and each scratch is an item. Inputs lie in a buffer of their own,
 * intermediates in a few arenas by lifetime. No step may bind one buffer for reading and for
 * writing, so arenas are coloured: items of one step that differ in access get different ones. */
#ifndef PLAN_MEMORY_H
#define PLAN_MEMORY_H

#include "tile/record.h"

enum { PLAN_COLOUR_MAX = 16 };

typedef enum plan_item_kind { ITEM_NONE, ITEM_STORED, ITEM_INPUT, ITEM_ARENA } plan_item_kind;

typedef struct plan_item {
    plan_item_kind kind;
    uint64_t bytes, offset;
    uint32_t first, last; /* steps that touch it */
    uint32_t colour;
    bool used, keep; /* keep: an output, or of a step of `once`: alive to the end */
    bool left;       /* an input that others write */
} plan_item;

typedef struct plan_memory {
    base_heap *heap;           /* borrowed */
    device *device;            /* borrowed */
    base_vec(plan_item) items; /* [tensors of the graph] then scratch */
    unsigned char *inputs;     /* [inputs_bytes] in the layout of the device's input buffer */
    size_t inputs_bytes;
    bool some_left;
    device_buffer input_buffer, arena_buffers[PLAN_COLOUR_MAX];
    uint64_t arena_sizes[PLAN_COLOUR_MAX];
} plan_memory;

/* Places what the steps of a record touch. What it has made is given back by fini, also after an
 * error. */
beryl_status plan_memory_init(plan_memory *memory, const plan_record *record, device *device,
                              beryl_error *error);
/* All arenas together. */
uint64_t plan_memory_bytes(const plan_memory *memory);
/* The buffers. */
beryl_status plan_memory_make(plan_memory *memory, bool placed, beryl_error *error);
void plan_memory_fini(plan_memory *memory);
/* The buffer of an input or intermediate. */
device_buffer plan_memory_buffer(const plan_memory *memory, const plan_item *item);

#endif
