/* every_op.c - see every_op.h. */
#include "engine/every_op.h"
#include "base/error.h"
#include "base/file.h"
#include "base/thread.h"
#include "engine/op_cases.h"
#include "engine/trial.h"

#include <string.h>

/* of a block of weights: sums of them neither overflow nor vanish */
static const float LARGEST = 4, LEAST = 0x1p-6f;

static void fill_weights(every_op *e) {
    base_random random = {.state = 11};
    for (size_t i = 0; i < e->store.tensors.count; i++) {
        const store_tensor *w = &e->store.tensors.data[i];
        for (uint64_t at = 0; !w->is_state && at < w->file_bytes;
             at += base_type_block_bytes(w->type))
            trial_fill_block(&random, w->type, e->blob + w->file_offset + at, LEAST, LARGEST);
    }
}

/* All cases one after another, in the same order each time. */
static beryl_status each_case(op_maker *m) {
    for (m->op = 0; m->op < OP_COUNT; m->op++) {
        const op_case *c = op_case_of(m->op);
        for (uint32_t k = 0; k < OP_COMPARED_MAX && c->compared[k][0]; k++) {
            const base_type *types;
            const uint32_t n = op_case_types(c, k, &types);
            for (uint32_t i = 0; i < n && m->error.code == BERYL_OK; i++) {
                m->type = types[i];
                const graph_value out = c->make(m, c->compared[k]);
                if (out && !graph_tensor_at(m->g, out)->base) graph_output(m->g, out, "y");
            }
        }
    }
    return m->error.code;
}

static beryl_status fill(every_op *e, device *d, bool exact, op_maker *m) {
    beryl_status status;
    m->adding = true;
    if ((status = each_case(m)) != BERYL_OK) return status;
    e->blob_size = m->blob_size;
    e->blob = base_heap_take(e->heap, e->blob_size);
    if (!e->blob) return base_no_memory(&m->error);
    fill_weights(e);
    e->source = base_source_of_memory(e->blob, e->blob_size);
    if ((status = store_layout(&e->store, 0, &m->error)) != BERYL_OK ||
        (status = store_make(&e->store, &m->error)) != BERYL_OK)
        return status;
    m->adding = false;
    m->next = 0;
    if ((status = each_case(m)) != BERYL_OK || (status = graph_status(e->g, &m->error)) != BERYL_OK)
        return status;
    const graph_exec_options options = {.exact = exact};
    if ((status = graph_exec_open(e->g, &e->store, &options, &e->exec, &m->error)) != BERYL_OK)
        return status;
    while ((status = store_upload_step(&e->store, &m->error)) == BERYL_EVENT ||
           status == BERYL_PENDING) {
        device_ticket done;
        if (status == BERYL_PENDING && (status = device_poll(d, &done, &m->error)) != BERYL_OK)
            return status;
    }
    return status;
}

beryl_status every_op_open(base_heap *heap, device *d, bool exact, every_op **out,
                           beryl_error *error) {
    *out = NULL;
    every_op *e = base_heap_take(heap, sizeof *e);
    if (!e) return base_no_memory(error);
    e->heap = heap;
    e->g = graph_open(heap);
    op_maker m = {.heap = heap, .g = e->g, .store = &e->store, .compared = true};
    beryl_status status =
        e->g ? store_init(&e->store, heap, d, &e->source, 1, &m.error) : base_no_memory(&m.error);
    if (status == BERYL_OK) status = fill(e, d, exact, &m);
    op_maker_fini(&m);
    if (status == BERYL_OK) {
        *out = e;
        return BERYL_OK;
    }
    if (error) *error = m.error;
    every_op_close(e);
    return status;
}

void every_op_close(every_op *e) {
    if (!e) return;
    graph_exec_close(e->exec);
    store_fini(&e->store);
    graph_close(e->g);
    base_heap_give(e->heap, e->blob, e->blob_size);
    base_heap_give(e->heap, e, sizeof *e);
}
