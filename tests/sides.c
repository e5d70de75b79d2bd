/* sides.c - see sides.h. */
#include "sides.h"
#include "blocks.h"
#include "interpreter.h"
#include "rig.h"

#include "base/file.h"

#include <math.h>
#include <stdlib.h>

void sides_weight_add(sides_weights *w, base_type type, uint32_t group, uint32_t rank, uint32_t a,
                      uint32_t b, uint32_t c) {
    const uint64_t rows = rank == 1   ? 1
                          : rank == 2 ? a
                                      : (uint64_t)a * b,
                   k = rank == 1   ? a
                       : rank == 2 ? b
                                   : c;
    const uint64_t size = base_type_row_bytes(type, k) * rows;
    w->bytes = realloc(w->bytes, (size_t)(w->size + size));
    blocks_fill(type, size, w->bytes + w->size, w->n + 9);
    w->each[w->n++] = (struct sides_weight){w->size, type, group, rank, {a, b, c}};
    w->size += size;
}

graph_value side_input(side *s, const char *name, uint32_t rank, const graph_dim *dims) {
    return s->in[s->n_in++] = graph_input(s->g, name, TYPE_F32, rank, dims);
}

void side_output(side *s, graph_value v) {
    graph_output(s->g, v, "out");
    s->out[s->n_out++] = v;
}

uint32_t side_live_nodes(const side *s, base_op op) {
    uint32_t n = 0;
    for (size_t i = 0; i < s->g->nodes.count; i++)
        n += !s->g->nodes.data[i].dead && (op == OP_COUNT || s->g->nodes.data[i].op == op);
    return n;
}

/* Numbers of n of the extent's. */
static uint32_t numbers(const side *s, graph_value v, uint32_t n) {
    const graph_tensor *x = graph_tensor_at(s->g, v);
    for (uint32_t i = 1; i < x->rank; i++) n *= x->dim[i].size;
    return n;
}

static beryl_status side_open(side *s, base_heap *heap, device *d, const sides *what,
                              const beryl_source *source, bool exact, beryl_error *error) {
    const sides_weights *w = what->weights;
    const graph_exec_options options = {
        .exact = exact, .unfused = true, .draws = interpreter_drawn(d)};
    uint32_t index[SIDES_WEIGHTS];
    graph_value values[SIDES_WEIGHTS];
    beryl_status status = store_init(&s->store, heap, d, source, 1, error);
    for (uint32_t i = 0; i < w->n; i++)
        index[i] = store_add_weight(&s->store, "w", w->each[i].type, w->each[i].rank,
                                    w->each[i].dim, w->each[i].group, 0, w->each[i].at, false);
    if (status == BERYL_OK) status = store_layout(&s->store, 0, error);
    if (status == BERYL_OK) status = store_make(&s->store, error);
    while (status == BERYL_OK && (status = store_upload_step(&s->store, error)) != BERYL_OK)
        if (status == BERYL_EVENT || status == BERYL_PENDING) status = BERYL_OK;
    s->g = graph_open(heap);
    for (uint32_t i = 0; i < w->n; i++) values[i] = graph_stored(s->g, &s->store, index[i]);
    what->build(s, values, what->problem);
    if (status == BERYL_OK) status = graph_status(s->g, error);
    if (status == BERYL_OK && d) status = graph_pass_fuse(s->g, &s->store, &options, error);
    if (status == BERYL_OK) status = graph_exec_open(s->g, &s->store, &options, &s->exec, error);
    return status == BERYL_OK ? rig_exec_compiled(s->exec, error) : status;
}

static void side_close(side *s) {
    graph_exec_close(s->exec);
    graph_close(s->g);
    store_fini(&s->store);
}

static beryl_status side_run(side *s, uint32_t n, const float **data, beryl_error *error) {
    device_ticket ticket;
    for (uint32_t i = 0, seed = 1; i < s->n_in; i++, seed = i + 1) {
        float *to = graph_exec_input(s->exec, s->in[i]);
        for (uint32_t k = 0; k < numbers(s, s->in[i], n); k++) to[k] = 2 * blocks_unit(&seed);
    }
    beryl_status status =
        graph_exec_submit(s->exec, (uint32_t[]){0, n}, s->out, s->n_out, &ticket, error);
    if (status == BERYL_OK && s->store.device) status = device_wait(s->store.device, ticket, error);
    for (uint32_t i = 0; status == BERYL_OK && i < s->n_out; i++)
        status = graph_exec_fetched(s->exec, ticket, i, (const void **)(uintptr_t)&data[i], error);
    return status;
}

static void compare(test *t, const side *a, const float *const *want, const float *const *got,
                    const sides *what) {
    for (uint32_t o = 0; o < a->n_out; o++) {
        double difference = 0, size = 1e-30;
        for (uint32_t i = 0; i < numbers(a, a->out[o], what->n); i++) {
            difference += ((double)got[o][i] - want[o][i]) * ((double)got[o][i] - want[o][i]);
            size += (double)want[o][i] * want[o][i];
        }
        if (!(difference <= what->within * what->within * size))
            test_fail(t, __FILE__, __LINE__, "result %u is off by %g of its size", o,
                      sqrt(difference / size));
    }
}

static beryl_status upload_others(side *s, const sides *what, beryl_error *error) {
    const sides_weights *w = what->weights;
    for (uint32_t i = 0; i < w->n; i++) {
        const uint64_t end = i + 1 < w->n ? w->each[i + 1].at : w->size;
        blocks_fill(w->each[i].type, end - w->each[i].at, w->bytes + w->each[i].at, i + 90);
    }
    store_upload_again(&s->store, 0);
    beryl_status status;
    while ((status = store_upload_step(&s->store, error)) == BERYL_EVENT || status == BERYL_PENDING)
        continue;
    return status;
}

void sides_run(test *t, base_heap *heap, device *d, const sides *what) {
    const beryl_source source =
        base_source_of_memory(what->weights->bytes, (size_t)what->weights->size);
    side a = {0}, b = {0};
    const float *want[SIDES_VALUES], *got[SIDES_VALUES];
    beryl_error error = {0};
    beryl_status status = side_open(&b, heap, d, what, &source, what->exact, &error);
    for (int round = 0; status == BERYL_OK && round <= what->again; round++) {
        if (round) status = upload_others(&b, what, &error);
        if (status == BERYL_OK) status = side_open(&a, heap, NULL, what, &source, true, &error);
        if (status == BERYL_OK) status = side_run(&a, what->n, want, &error);
        if (status == BERYL_OK) status = side_run(&b, what->n, got, &error);
        if (status == BERYL_OK && what->check && !round) what->check(t, &b, what->problem);
        if (status == BERYL_OK) compare(t, &a, want, got, what);
        side_close(&a);
        a = (side){0};
    }
    if (status) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    side_close(&b);
}
