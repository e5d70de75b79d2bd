/* module_graph.c - graphs of a page's own, in the full module: what of beryl_graph.h and
 * beryl_onnx.h takes a structure or gives an error, with numbers and addresses, for graph.ts.
 *
 * The calls that build are exports as they are (web.mk). A frame here has no engine: it carries
 * what a call gives and its error. PENDING is a status like others: JavaScript calls again once
 * something has ended. */
#include "beryl_onnx.h"
#include "module.h"

#include <stdlib.h>
#include <string.h>

EXPORT(graph_open) uint32_t module_graph_open(frame *f, const char *options);
EXPORT(graph_close) void module_graph_close(frame *f, beryl_graph *g);
EXPORT(graph_info) uint32_t module_graph_info(frame *f, const beryl_graph *g);
EXPORT(graph_shape) uint32_t module_graph_shape(frame *f, const beryl_graph *g, beryl_value value);
EXPORT(graph_compile) uint32_t module_graph_compile(frame *f, beryl_graph *g);
EXPORT(graph_set)
uint32_t module_graph_set(frame *f, beryl_graph *g, beryl_value input, const void *data,
                          uint32_t size);
EXPORT(graph_run)
uint32_t module_graph_run(frame *f, beryl_graph *g, const uint32_t *extents, uint32_t n);
EXPORT(graph_read)
uint32_t module_graph_read(frame *f, beryl_graph *g, beryl_value output, void *data, uint32_t size);
EXPORT(graph_place) uint32_t module_graph_place(frame *f, beryl_graph *g, beryl_value value);
EXPORT(graph_state_set)
uint32_t module_graph_state_set(frame *f, beryl_graph *g, beryl_value state, const void *data,
                                uint32_t size);
EXPORT(graph_state_get)
uint32_t module_graph_state_get(frame *f, beryl_graph *g, beryl_value state, void *data,
                                uint32_t size);

uint32_t module_graph_open(frame *f, const char *options) {
    static const char *const precisions[] = {"fast", "exact", NULL};
    base_arena arena;
    base_json *o;
    beryl_graph *g = NULL;
    frame_begin(f);
    base_arena_init(&arena, &f->heap);
    beryl_status status = base_json_parse(&arena, options, strlen(options), &o, &f->error);
    if (status == BERYL_OK) {
        const beryl_graph_options how = {
            .size = sizeof how,
            .device = option_text(&arena, base_json_find(o, "device")),
            .precision = (beryl_precision)option_choice(o, "precision", precisions),
            .memory = option_count(o, "memory", UINT64_C(1) << 53),
            .log = module_log_of()};
        status = beryl_graph_open(&how, &g, &f->error);
    }
    base_arena_fini(&arena);
    return frame_give_thing(f, status, g);
}

/* The frame goes too. */
void module_graph_close(frame *f, beryl_graph *g) {
    beryl_graph_close(g);
    frame_begin(f);
    base_text_fini(&f->given);
    free(f);
}

uint32_t module_graph_info(frame *f, const beryl_graph *g) {
    beryl_device_info info;
    frame_begin(f);
    beryl_status status = beryl_graph_device(g, &info);
    if (status != BERYL_OK) return frame_failed(f, status);
    base_text_add(&f->given, "{\"graph\":true", 13);
    frame_add_device(f, &info);
    base_text_add(&f->given, "}", 1);
    return frame_give_text(f);
}

/* A list: type, rank, then size and extent of each dimension. */
uint32_t module_graph_shape(frame *f, const beryl_graph *g, beryl_value value) {
    beryl_type type;
    uint32_t rank;
    beryl_dim dims[10];
    frame_begin(f);
    if (!beryl_graph_shape(g, value, &type, &rank, dims)) return frame_failed(f, BERYL_MISUSE);
    const uint32_t head[] = {type, rank};
    base_text_add(&f->given, (const char *)head, sizeof head);
    base_text_add(&f->given, (const char *)dims, rank * sizeof *dims);
    frame_give_text(f);
    f->out_size = 2 + 2 * rank;
    return frame_ended(f, f->given.failed ? BERYL_NO_MEMORY : BERYL_OK);
}

uint32_t module_graph_compile(frame *f, beryl_graph *g) {
    frame_begin(f);
    return frame_ended(f, beryl_graph_compile(g, &f->error));
}

uint32_t module_graph_set(frame *f, beryl_graph *g, beryl_value input, const void *data,
                          uint32_t size) {
    frame_begin(f);
    return frame_ended(f, beryl_graph_set(g, input, data, size, &f->error));
}

uint32_t module_graph_run(frame *f, beryl_graph *g, const uint32_t *extents, uint32_t n) {
    frame_begin(f);
    return frame_ended(f, beryl_graph_run(g, extents, n, &f->error));
}

uint32_t module_graph_read(frame *f, beryl_graph *g, beryl_value output, void *data,
                           uint32_t size) {
    frame_begin(f);
    return frame_ended(f, beryl_graph_read(g, output, data, size, &f->error));
}

/* Two numbers of 64 bits, the buffer's handle and the offset; nothing where it has no place. */
uint32_t module_graph_place(frame *f, beryl_graph *g, beryl_value value) {
    uint64_t place[2];
    frame_begin(f);
    if (!beryl_graph_place(g, value, &place[0], &place[1])) return BERYL_OK;
    base_text_add(&f->given, (const char *)place, sizeof place);
    return frame_give_text(f);
}

uint32_t module_graph_state_set(frame *f, beryl_graph *g, beryl_value state, const void *data,
                                uint32_t size) {
    frame_begin(f);
    return frame_ended(f, beryl_graph_state_set(g, state, data, size, &f->error));
}

uint32_t module_graph_state_get(frame *f, beryl_graph *g, beryl_value state, void *data,
                                uint32_t size) {
    frame_begin(f);
    return frame_ended(f, beryl_graph_state_get(g, state, data, size, &f->error));
}
