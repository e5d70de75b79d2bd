/* graph_states.c - states of users' graphs in safetensors files (beryl_nn.h).
 *
 * Owns which states there are and that a file has these and no others; the format is
 * format/safetensors.h's. A file is read whole and checked whole before the first state changes. */
#include "base/error.h"
#include "base/file.h"
#include "beryl_nn.h"
#include "engine/graph_api.h"
#include "format/safetensors.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER_MAX = 64 << 20, PIECE = 4 << 20 };

typedef struct states {
    beryl_graph *g;
    base_arena arena;
    graph_value *values;        // [n], by name
    format_safetensor *tensors; // [n], the same
    uint32_t n;
    uint64_t bytes, most; /* of all, of the largest */
} states;

typedef struct named {
    graph_value value;
    const char *name;
} named;

static int by_name(const void *a, const void *b) {
    return strcmp(((const named *)a)->name, ((const named *)b)->name);
}

static beryl_status add(states *s, graph_value v, beryl_error *error) {
    const graph_tensor *t = graph_tensor_at(s->g->g, v);
    if (t->type != TYPE_F32 && t->type != TYPE_F16 && t->type != TYPE_I32 && t->type != TYPE_I16)
        return base_fail(error, BERYL_UNSUPPORTED,
                         "state '%s' is %s: F32, F16, I32 and I16 are saved", t->name,
                         base_type_name(t->type));
    if (s->n && base_view_equal(s->tensors[s->n - 1].name, base_view_of(t->name)))
        return base_fail(error, BERYL_MISUSE, "two states are named '%s'", t->name);
    const uint64_t size = graph_api_state_bytes(s->g, v);
    format_safetensor *to = &s->tensors[s->n];
    *to = (format_safetensor){.name = base_view_of(t->name), .type = t->type, .n_dim = t->rank};
    for (uint32_t i = 0; i < t->rank; i++) to->dim[i] = t->dim[i].size;
    to->size = (size_t)size;
    s->values[s->n++] = v;
    s->bytes += size;
    if (size > s->most) s->most = size;
    return BERYL_OK;
}

/* The graph's states; what is in the arena is the caller's to drop, also after a failure. */
static beryl_status find(states *s, beryl_graph *g, const char *call, beryl_error *error) {
    *s = (states){.g = g};
    if (!g || g->stage != STAGE_READY)
        return base_fail(error, BERYL_MISUSE, "%s needs a compiled graph", call);
    base_arena_init(&s->arena, &g->heap);
    const size_t most = g->store.tensors.count + 1;
    named *all = base_arena_take(&s->arena, most, sizeof *all);
    s->values = base_arena_take(&s->arena, most, sizeof *s->values);
    s->tensors = base_arena_take(&s->arena, most, sizeof *s->tensors);
    if (!all || !s->values || !s->tensors) return base_no_memory(error);
    size_t n = 0;
    for (graph_value v = 1; v < g->g->tensors.count && n + 1 < most; v++) {
        const graph_tensor *t = graph_tensor_at(g->g, v);
        if (t->role == ROLE_STORED && !t->base && g->store.tensors.data[t->stored].is_state)
            all[n++] = (named){v, t->name};
    }
    qsort(all, n, sizeof *all, by_name);
    beryl_status status = BERYL_OK;
    for (size_t i = 0; status == BERYL_OK && i < n; i++) status = add(s, all[i].value, error);
    return status;
}

/* ---- saving ---------------------------------------------------------------------------------- */

static beryl_status put(const beryl_sink *sink, const void *data, size_t size, beryl_error *error) {
    beryl_status status;
    while ((status = sink->write(sink->user, data, size)) == BERYL_PENDING) {}
    return status == BERYL_OK ? status : base_fail(error, status, "states cannot be written");
}

static beryl_status save(states *s, const beryl_sink *sink, beryl_error *error) {
    base_text head;
    uint8_t *data = base_heap_resize(&s->g->heap, NULL, 0, (size_t)s->most + 1);
    base_text_init(&head, &s->g->heap);
    format_safetensors_write(s->tensors, s->n, NULL, 0, &head);
    beryl_status status = BERYL_OK;
    if (!data || head.failed) status = base_no_memory(error);
    if (status == BERYL_OK) status = put(sink, head.data, head.size, error);
    for (uint32_t i = 0; status == BERYL_OK && i < s->n; i++) {
        status = beryl_graph_state_get(s->g, s->values[i], data, s->tensors[i].size, error);
        if (status == BERYL_OK) status = put(sink, data, s->tensors[i].size, error);
    }
    base_text_fini(&head);
    if (data) base_heap_give(&s->g->heap, data, (size_t)s->most + 1);
    return status;
}

beryl_status beryl_graph_states_save_to(beryl_graph *g, const beryl_sink *sink,
                                        beryl_error *error) {
    states s;
    if (!sink || !sink->write) return base_fail(error, BERYL_MISUSE, "states need a sink");
    const beryl_sink to = *sink;
    beryl_status status = find(&s, g, "beryl_graph_states_save", error);
    if (status == BERYL_OK) status = save(&s, &to, error);
    base_arena_fini(&s.arena);
    const beryl_status closed = to.close ? to.close(to.user, status == BERYL_OK) : BERYL_OK;
    if (status == BERYL_OK && closed != BERYL_OK)
        status = base_fail(error, closed, "states cannot be written");
    return status;
}

beryl_status beryl_graph_states_save(beryl_graph *g, const char *path, beryl_error *error) {
    beryl_sink sink;
    if (!g || !path) return base_fail(error, BERYL_MISUSE, "states need a graph and a path");
    const beryl_status status = base_sink_open_file(&g->heap, &g->log, path, &sink, error);
    return status == BERYL_OK ? beryl_graph_states_save_to(g, &sink, error) : status;
}

/* ---- loading --------------------------------------------------------------------------------- */

static const format_safetensor *tensor_of(const format_safetensors *file, base_view name) {
    for (size_t i = 0; i < file->n; i++)
        if (base_view_equal(file->tensors[i].name, name)) return &file->tensors[i];
    return NULL;
}

/* Every state is there, as it is here, and nothing else: found [n]. */
static beryl_status check(const states *s, const format_safetensors *file,
                          const format_safetensor **found, beryl_error *error) {
    for (uint32_t i = 0; i < s->n; i++) {
        const format_safetensor *want = &s->tensors[i], *t = tensor_of(file, want->name);
        if (!t)
            return base_fail(error, BERYL_MISUSE, "the file has no state '%s'", want->name.data);
        bool fits = t->type == want->type && t->n_dim == want->n_dim && t->size == want->size;
        for (uint32_t k = 0; fits && k < t->n_dim; k++) fits = t->dim[k] == want->dim[k];
        if (!fits)
            return base_fail(error, BERYL_MISUSE,
                             "state '%s' has another type or shape in the file", want->name.data);
        found[i] = t;
    }
    for (size_t i = 0; i < file->n; i++) {
        const base_view name = file->tensors[i].name;
        bool known = false;
        for (uint32_t k = 0; !known && k < s->n; k++)
            known = base_view_equal(s->tensors[k].name, name);
        if (!known)
            return base_fail(error, BERYL_MISUSE, "'%.*s' of the file is no state of this graph",
                             (int)(name.size < 200 ? name.size : 200), name.data);
    }
    return BERYL_OK;
}

static beryl_status load(states *s, const void *data, size_t size, beryl_error *error) {
    format_safetensors file;
    beryl_status status = format_safetensors_read(&s->arena, data, size, &file, error);
    const format_safetensor **found = base_arena_take(&s->arena, s->n + 1, sizeof *found);
    if (status == BERYL_OK && !found) status = base_no_memory(error);
    if (status == BERYL_OK) status = check(s, &file, found, error);
    for (uint32_t i = 0; status == BERYL_OK && i < s->n; i++)
        status = beryl_graph_state_set(s->g, s->values[i], found[i]->data, found[i]->size, error);
    return status;
}

static beryl_status fetch(const beryl_source *from, uint8_t *data, size_t size,
                          beryl_error *error) {
    beryl_status status = BERYL_OK;
    for (size_t at = 0, n; status == BERYL_OK && at < size; at += n) {
        n = size - at < PIECE ? size - at : PIECE;
        while ((status = from->read(from->user, at, data + at, n)) == BERYL_PENDING) {}
        if (status != BERYL_OK) return base_source_fail(from, "the states", status, at, error);
    }
    return status;
}

beryl_status beryl_graph_states_load_from(beryl_graph *g, const beryl_source *source,
                                          beryl_error *error) {
    states s;
    if (!source || !source->read) return base_fail(error, BERYL_MISUSE, "states need a source");
    const beryl_source from = *source;
    uint8_t *data = NULL;
    size_t size = 0;
    beryl_status status = find(&s, g, "beryl_graph_states_load", error);
    /* what is longer than a header and these states is none of them: it is not read */
    if (status == BERYL_OK && from.size > s.bytes + HEADER_MAX)
        status = base_fail(error, BERYL_BAD_FILE, "a file of %llu bytes for states of %llu",
                           (unsigned long long)from.size, (unsigned long long)s.bytes);
    if (status == BERYL_OK) {
        size = (size_t)from.size + 1;
        data = base_heap_resize(&g->heap, NULL, 0, size);
        if (!data) status = base_no_memory(error);
    }
    if (status == BERYL_OK) status = fetch(&from, data, (size_t)from.size, error);
    if (status == BERYL_OK) status = load(&s, data, (size_t)from.size, error);
    if (data) base_heap_give(&g->heap, data, size);
    base_arena_fini(&s.arena);
    if (from.close) from.close(from.user);
    return status;
}

beryl_status beryl_graph_states_load(beryl_graph *g, const char *path, beryl_error *error) {
    beryl_source source;
    if (!g || !path) return base_fail(error, BERYL_MISUSE, "states need a graph and a path");
    const beryl_status status = base_source_open_file(&g->heap, path, &source, error);
    return status == BERYL_OK ? beryl_graph_states_load_from(g, &source, error) : status;
}
