/* plan.c - makes a graph ready to run: passes, recorded steps, memory, bindings. */
#include "plan/plan.h"
#include "base/build.h"
#include "base/error.h"
#include "base/thread.h"
#include "plan/node.h"
#include "plan/pass.h"

#include <math.h>
#include <string.h>

/* Nodes from where it stands on. EVENT: the time is over. */
static beryl_status lower_until(graph_exec *e, double until, beryl_error *error) {
    lowering l = {.g = e->g,
                  .store = e->store,
                  .device = e->device,
                  .caps = device_caps_of(e->device),
                  .record = &e->record,
                  .arena = &e->record.arena,
                  .settings = lower_settings_of(&e->options),
                  .texts = e->options.explained ? &e->record.texts : NULL,
                  .search = e->options.search,
                  .draws = e->options.draws ? &e->options.draws : NULL,
                  .error = error};
    beryl_status status = lower_language(e->store, &l.language, error);
    while (status == BERYL_OK && e->n_lowered < e->g->nodes.count) {
        const graph_node *node = &e->g->nodes.data[e->n_lowered++];
        if (node->dead) continue;
        status = lower_node(&l, node);
        if (status == BERYL_OK && base_time() > until) status = BERYL_EVENT;
    }
    return status;
}

static beryl_status begin(graph_exec *e, beryl_error *error) {
    plan_record_init(&e->record, e->heap, e->g);
    e->n_lowered = 0;
    return e->options.unfused ? BERYL_OK : graph_pass_all(e->g, e->store, &e->options, error);
}

static beryl_status make_bindings(graph_exec *e, beryl_error *error) {
    beryl_status status = BERYL_OK;
    for (size_t s = 0; status == BERYL_OK && s < e->record.steps.count; s++) {
        plan_step *st = &e->record.steps.data[s];
        device_binding bindings[DEVICE_BINDING_MAX];
        for (uint32_t b = 0; b < st->n_binding; b++) {
            const plan_binding *from = &st->bindings[b];
            const plan_item *it =
                from->item == PLAN_STORED ? NULL : &e->memory.items.data[from->item];
            bindings[b] =
                it ? (device_binding){plan_memory_buffer(&e->memory, it), it->offset, it->bytes}
                   : (device_binding){e->store->buffers.data[from->buffer].id, from->offset,
                                      from->size};
        }
        status =
            device_bindings_make(e->device, st->program, bindings, st->n_binding, &st->made, error);
    }
    return status;
}

static beryl_status lay_out(graph_exec *e, beryl_error *error) {
    beryl_status status = begin(e, error);
    if (status == BERYL_OK) status = lower_until(e, INFINITY, error);
    return status == BERYL_OK ? plan_memory_init(&e->memory, &e->record, e->device, error) : status;
}

/* ---- ways: a graph that keeps everything, and those that compute segments again -------------- */

typedef struct way { /* its graph has tensors and nodes alone */
    graph g;
    plan_record record;
    plan_memory memory;
} way;

static bool graph_lists_copy(const graph *from, graph *to) {
    if (!base_vec_reserve(from->heap, &to->tensors, from->tensors.count) ||
        !base_vec_reserve(from->heap, &to->nodes, from->nodes.count))
        return false;
    to->tensors.count = from->tensors.count;
    to->nodes.count = from->nodes.count;
    memcpy(to->tensors.data, from->tensors.data, to->tensors.count * sizeof *to->tensors.data);
    memcpy(to->nodes.data, from->nodes.data, to->nodes.count * sizeof *to->nodes.data);
    return true;
}

static void exchange(graph_exec *e, way *other) {
    const way now = {*e->g, e->record, e->memory};
    e->g->tensors = other->g.tensors;
    e->g->nodes = other->g.nodes;
    e->g->inner = other->g.inner;
    e->record = other->record;
    e->memory = other->memory;
    *other = now;
}

static void way_drop(graph_exec *e, way *w) {
    base_vec_fini(e->heap, &w->g.tensors);
    base_vec_fini(e->heap, &w->g.nodes);
    base_vec_fini(e->heap, &w->g.inner);
    plan_memory_fini(&w->memory);
    plan_record_fini(&w->record);
}

/* Lays out, of the graph as it was, with the first n segments computed again, what e holds then. */
static beryl_status lay_out_first(graph_exec *e, const graph *was, uint32_t n, uint64_t *bytes,
                                  beryl_error *error) {
    way next = {0};
    plan_record_init(&next.record, e->heap, e->g);
    const bool copied = graph_lists_copy(was, &next.g);
    if (copied) exchange(e, &next);
    way_drop(e, &next);
    if (!copied) return base_no_memory(error);
    graph_recompute_first(e->g, n);
    e->recomputes = n;
    const beryl_status status = lay_out(e, error);
    *bytes = plan_memory_bytes(&e->memory);
    return status;
}

/* In the room, and each buffer on the device. */
static bool fits(const graph_exec *e) {
    const uint64_t room = e->options.room, most = device_caps_of(e->device)->buffer_max;
    bool fit = !room || plan_memory_bytes(&e->memory) <= room;
    for (int c = 0; fit && c < PLAN_COLOUR_MAX; c++) fit = e->memory.arena_sizes[c] <= most;
    return fit;
}

/* As few as fit, of n: each takes about as much memory as any other, so the search
 * begins where that would do. */
static beryl_status lay_out_fitting(graph_exec *e, const graph *was, uint32_t n,
                                    beryl_error *error) {
    const uint64_t room = e->options.room, kept = e->kept_bytes, all = e->recomputed_bytes;
    uint64_t bytes = 0;
    uint32_t k = room && room < all ? n : 1, tries = 0;
    if (room >= all && room < kept)
        k = (uint32_t)((double)n * (double)(kept - room) / (double)(kept - all));
    if (k < 1) k = 1;
    beryl_status status = lay_out_first(e, was, k, &bytes, error);
    while (status == BERYL_OK && k < n && !fits(e)) {
        k += 1 + tries++ / 2;
        if (k > n) k = n;
        status = lay_out_first(e, was, k, &bytes, error);
    }
    return status;
}

static beryl_status lay_out_ways(graph_exec *e, beryl_error *error) {
    const graph_exec_options *o = &e->options;
    const uint32_t n = graph_recomputes(e->g), asked = o->recompute != GRAPH_RECOMPUTE ? 0
                                                       : o->segments && o->segments < n
                                                           ? o->segments
                                                           : n;
    const bool all = asked == n; /* what is asked for comes last */
    uint64_t *const bytes[] = {&e->kept_bytes, &e->recomputed_bytes};
    uint64_t some;
    way was = {.g = {.heap = e->heap}};
    plan_record_init(&e->record, e->heap, e->g);
    plan_record_init(&was.record, e->heap, e->g);
    beryl_status status = graph_lists_copy(e->g, &was.g)
                              ? lay_out_first(e, &was.g, all ? 0 : n, bytes[!all], error)
                              : base_no_memory(error);
    if (status == BERYL_OK) status = lay_out_first(e, &was.g, all ? n : 0, bytes[all], error);
    if (status == BERYL_OK && asked && !all) status = lay_out_first(e, &was.g, asked, &some, error);
    if (status == BERYL_OK && o->recompute == GRAPH_KEEP_OR_RECOMPUTE && !fits(e))
        status = lay_out_fitting(e, &was.g, n, error);
    way_drop(e, &was);
    return status;
}

static beryl_status make_plan(graph_exec *e, beryl_error *error) {
    beryl_status status = plan_memory_make(&e->memory, e->options.placed, error);
    if (status == BERYL_OK) status = make_bindings(e, error);
    if (status != BERYL_OK) return status;
    const size_t n_step = e->record.steps.count,
                 n = n_step * (e->options.stamped ? 2 : 1) + 2 + PLAN_FETCH_MAX;
    for (size_t s = 0; s < n_step; s++) e->work += e->record.steps.data[s].bytes;
    return base_vec_reserve(e->heap, &e->commands, n) ? BERYL_OK : base_no_memory(error);
}

beryl_status graph_exec_open(graph *g, graph_store *store, const graph_exec_options *options,
                             graph_exec **out, beryl_error *error) {
    *out = NULL;
    beryl_status status = graph_status(g, error);
    if (status != BERYL_OK) return status;
    graph_exec *e = base_heap_take(g->heap, sizeof *e);
    if (!e) return base_no_memory(error);
    e->heap = g->heap;
    e->g = g;
    e->store = store;
    e->device = store->device;
    if (options) e->options = *options;
    const uint32_t n = BUILD_HAS_TRAINING ? graph_recomputes(g) : 0, some = e->options.segments;
    if (n && !e->device) {
        if (e->options.recompute == GRAPH_RECOMPUTE) e->recomputes = some && some < n ? some : n;
        graph_recompute_first(g, e->recomputes);
    }
    e->whole = !e->device || !e->options.stepwise || n;
    if (!e->device) status = graph_reference_open(g, store, &e->reference, error);
    else status = n ? lay_out_ways(e, error) : e->whole ? lay_out(e, error) : begin(e, error);
    if (status == BERYL_OK && e->device && e->whole) status = make_plan(e, error);
    if (status != BERYL_OK) {
        graph_exec_close(e);
        return status;
    }
    *out = e;
    return BERYL_OK;
}

beryl_status graph_exec_make(graph_exec *e, double seconds, beryl_error *error) {
    if (e->whole) return BERYL_OK;
    beryl_status status = lower_until(e, base_time() + seconds, error);
    if (status == BERYL_OK) status = plan_memory_init(&e->memory, &e->record, e->device, error);
    if (status == BERYL_OK) status = make_plan(e, error);
    e->whole = status == BERYL_OK;
    return status;
}

void graph_exec_close(graph_exec *e) {
    if (!e) return;
    for (size_t s = 0; s < e->record.steps.count; s++)
        if (e->record.steps.data[s].made.id)
            device_bindings_drop(e->device, e->record.steps.data[s].made);
    plan_memory_fini(&e->memory);
    if (e->device) plan_record_fini(&e->record);
    base_vec_fini(e->heap, &e->commands);
    graph_reference_close(e->reference);
    base_heap_give(e->heap, e, sizeof *e);
}

beryl_status graph_exec_ready(graph_exec *e, beryl_error *error) {
    beryl_status status = BERYL_OK;
    for (size_t s = 0; status == BERYL_OK && s < e->record.steps.count; s++)
        status = device_program_status(e->device, e->record.steps.data[s].program, error);
    return status;
}
