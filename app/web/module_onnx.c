/* module_onnx.c - ONNX files in the full module: beryl_onnx.h with numbers and addresses, for
 * onnx.ts. What a caller knows of inputs comes as JSON, their numbers as addresses in it. */
#include "beryl_onnx.h"
#include "module.h"

#include <string.h>

EXPORT(graph_from_onnx)
uint32_t module_graph_from_onnx(frame *f, beryl_graph *g, const void *data, uint32_t size,
                                const char *options);
EXPORT(graph_onnx_describe)
uint32_t module_graph_onnx_describe(frame *f, beryl_graph *g, const void *data, uint32_t size);
EXPORT(graph_port)
uint32_t module_graph_port(frame *f, const beryl_graph *g, uint32_t output, uint32_t index);

/* {name, type, dims, data}; false: out of memory. */
static bool read_input(const base_json *from, base_arena *arena, beryl_onnx_input *to) {
    const base_json *dims = base_json_find(from, "dims");
    const size_t rank = dims && dims->kind == JSON_ARRAY ? dims->n_child : 0;
    uint32_t *sizes = base_arena_take(arena, rank + 1, sizeof *sizes);
    to->name = option_text(arena, base_json_find(from, "name"));
    if (!sizes || !to->name) return false;
    for (const base_json *each = rank ? dims->child : NULL; each; each = each->next)
        sizes[to->rank++] = each->kind == JSON_NUMBER ? (uint32_t)each->number : 0;
    to->type = (beryl_type)option_count(from, "type", UINT32_MAX);
    to->dims = sizes;
    to->data = (const void *)(uintptr_t)option_count(from, "data", UINT32_MAX);
    return true;
}

uint32_t module_graph_from_onnx(frame *f, beryl_graph *g, const void *data, uint32_t size,
                                const char *options) {
    base_arena arena;
    base_json *o;
    frame_begin(f);
    base_arena_init(&arena, &f->heap);
    beryl_status status = base_json_parse(&arena, options, strlen(options), &o, &f->error);
    if (status == BERYL_OK) {
        const base_json *list = base_json_find(o, "inputs");
        const size_t n = list && list->kind == JSON_ARRAY ? list->n_child : 0;
        beryl_onnx_input *inputs = base_arena_take(&arena, n + 1, sizeof *inputs);
        beryl_onnx_options how = {.size = sizeof how,
                                  .inputs = inputs,
                                  .extent_bound =
                                      (uint32_t)option_count(o, "extentBound", UINT32_MAX)};
        for (const base_json *each = n ? list->child : NULL; each && inputs; each = each->next)
            if (!read_input(each, &arena, &inputs[how.n_input++])) inputs = NULL;
        status = inputs ? beryl_graph_from_onnx(g, data, size, &how, &f->error) : BERYL_NO_MEMORY;
    }
    base_arena_fini(&arena);
    return frame_ended(f, status);
}

static void describe_write(void *user, const char *text, size_t size) {
    frame *f = user;
    base_text_add(&f->given, text, size);
}

uint32_t module_graph_onnx_describe(frame *f, beryl_graph *g, const void *data, uint32_t size) {
    (void)g;
    frame_begin(f);
    const beryl_status status = beryl_onnx_describe(data, size, describe_write, f, &f->error);
    return status == BERYL_OK ? frame_give_text(f) : frame_failed(f, status);
}

/* {value, type, name, dims}; no text: there are no more. */
uint32_t module_graph_port(frame *f, const beryl_graph *g, uint32_t output, uint32_t index) {
    beryl_port port;
    frame_begin(f);
    if (!beryl_graph_port(g, output != 0, index, &port)) return BERYL_OK;
    base_text_print(&f->given, "{\"value\":%u,\"type\":%u", port.value, (unsigned)port.type);
    frame_add_text(f, "name", port.name);
    base_text_print(&f->given, ",\"dims\":[");
    for (uint32_t i = 0; i < port.rank; i++)
        base_text_print(&f->given, "%s[%u,%u]", i ? "," : "", port.dims[i].size,
                        port.dims[i].extent);
    base_text_add(&f->given, "]}", 2);
    return frame_give_text(f);
}
