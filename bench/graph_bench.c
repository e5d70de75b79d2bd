/* graph_bench.c - graphs of few operations through the whole compiler: joined to one kernel and
 * one by one, beside the best copy that there is, the device's own or the first case.
 *
 *   graph_bench [--device D] [--op NAME] [--size ROWS,COLUMNS] [--tune FILE]
 *
 * Every result is compared with the reference functions on a small graph of the same form first
 * (sizes that are no multiple of anything). A time is that of many runs queued at once, the best
 * of a few rounds; GB/s counts what has to be read and written once the operations are joined,
 * for both columns. --tune searches the numbers of each kernel first, keeps them in FILE, and
 * gives the joined graph's time with them too. */
#include "base/thread.h"
#include "plan/exec.h"
#include "ir/tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMED = 48, ROUNDS = 7, QUEUED = 24, CHECK_ROWS = 37, CHECK_COLUMNS = 1100 };
#define WARM_SECONDS 0.2

typedef struct operands {
    graph *g;
    graph_value x, y, w, v, e; /* [m, n] [m, n] [n] [n] [8, k, k] with k of short_row(n) */
} operands;

static uint32_t short_row(uint32_t n) {
    return n % 64 ? 20 : 64;
}

/* ---- the table ------------------------------------------------------------------------------- */

static graph_value make_copy(const operands *o) {
    return graph_copy(o->g, o->x);
}

static graph_value make_add(const operands *o) {
    return graph_add(o->g, o->x, o->y);
}

static graph_value make_chain3(const operands *o) {
    return graph_scale(o->g, graph_mul(o->g, graph_add(o->g, o->x, o->y), o->w), 0.5f);
}

static graph_value make_chain6(const operands *o) {
    graph_value a = graph_gelu_tanh(
        o->g, graph_scale(o->g, graph_mul(o->g, graph_add(o->g, o->x, o->y), o->w), 0.5f));
    return graph_softcap(o->g, graph_add(o->g, a, o->x), 30);
}

static graph_value make_softmax(const operands *o) {
    return graph_softmax(o->g, o->x);
}

static graph_value make_rms_norm(const operands *o) {
    return graph_rms_norm(o->g, o->x, o->w, 1e-6f);
}

static graph_value make_layer_norm(const operands *o) {
    return graph_layer_norm(o->g, o->x, o->w, o->v, 1e-6f);
}

/* What stands between two products of a layer. */
static graph_value make_residual(const operands *o) {
    graph_value h = graph_add(o->g, o->x, graph_rms_norm(o->g, o->y, o->v, 1e-6f));
    return graph_rms_norm(o->g, h, o->w, 1e-6f);
}

static graph_value make_soft_chain(const operands *o) {
    return graph_mul(o->g, graph_softmax(o->g, graph_scale(o->g, graph_add(o->g, o->x, o->w), 3)),
                     o->y);
}

static graph_value make_choice(const operands *o) {
    return graph_argmax(o->g, make_chain3(o));
}

/* x + (x W + w) / 2 with short rows: little to compute for what is read and written. */
static graph_value make_product(const operands *o) {
    const graph_tensor *t = graph_tensor_at(o->g, o->x);
    const uint32_t k = short_row(t->dim[1].size);
    const graph_dim dims[2] = {{t->dim[0].size * t->dim[1].size / k, 0}, {k, 0}};
    const graph_value x = graph_reshape(o->g, o->x, 2, dims),
                      w = graph_narrow(o->g, graph_reshape(o->g, o->y, 2, dims), 0, 0, k, 1);
    const graph_value y = graph_scale(
        o->g, graph_add(o->g, graph_linear(o->g, x, w), graph_narrow(o->g, o->w, 0, 0, k, 1)),
        0.5f);
    return graph_add(o->g, y, x);
}

/* The three operations on quarters of rows, which are summed with weights. */
static graph_value make_terms(const operands *o) {
    const graph_tensor *t = graph_tensor_at(o->g, o->x);
    const uint32_t m = t->dim[0].size, d = t->dim[1].size / 4;
    const graph_dim dims[3] = {{m, 0}, {4, 0}, {d, 0}}, pairs[2] = {{m * d, 0}, {4, 0}};
    const operands parts = {o->g,
                            graph_reshape(o->g, o->x, 3, dims),
                            graph_reshape(o->g, o->y, 3, dims),
                            graph_narrow(o->g, o->w, 0, 0, d, 1),
                            0,
                            0};
    return graph_weighted_sum(o->g, make_chain3(&parts),
                              graph_narrow(o->g, graph_reshape(o->g, o->y, 2, pairs), 0, 0, m, 1));
}

/* Two of eight matrices for each short row, chosen by its own numbers; a w and a gate behind
 * them. */
static graph_value make_experts(const operands *o) {
    const graph_tensor *t = graph_tensor_at(o->g, o->x);
    const uint32_t k = short_row(t->dim[1].size), rows = t->dim[0].size * t->dim[1].size / k;
    const graph_dim dims[2] = {{rows, 0}, {k, 0}}, tokens[3] = {{rows, 0}, {1, 0}, {k, 0}};
    graph_value chosen;
    graph_topk(o->g, graph_narrow(o->g, graph_reshape(o->g, o->y, 2, dims), 1, 0, 8, 1), 2,
               &chosen);
    const graph_value y = graph_linear_id(o->g, graph_reshape(o->g, o->x, 3, tokens), o->e, chosen);
    return graph_scale(
        o->g, graph_gelu_tanh(o->g, graph_add(o->g, y, graph_narrow(o->g, o->w, 0, 0, k, 1))),
        0.5f);
}

static const struct kase {
    const char *name;
    graph_value (*make)(const operands *o);
    uint32_t n_full; /* of [m, n], read and written */
} cases[] = {
    {"copy", make_copy, 2},
    {"add", make_add, 3},
    {"chain of 3", make_chain3, 3},
    {"chain of 6", make_chain6, 3},
    {"softmax", make_softmax, 2},
    {"rms_norm", make_rms_norm, 2},
    {"layer_norm", make_layer_norm, 2},
    {"norm, add, norm", make_residual, 3},
    {"softmax in a chain", make_soft_chain, 3},
    {"chain to argmax", make_choice, 2},
    {"product to chain", make_product, 2},
    {"chain to sum", make_terms, 2},
    {"experts to chain", make_experts, 3},
};

/* ---- one graph ------------------------------------------------------------------------------- */

/* the file of the weights: all tensors begin at its start */
typedef struct numbers {
    float *data;
    size_t n;
} numbers;

static beryl_status numbers_read(void *user, uint64_t offset, void *to, size_t size) {
    memcpy(to, (const char *)((const numbers *)user)->data + offset, size);
    return BERYL_OK;
}

typedef struct job {
    graph_store store;
    beryl_source source;
    graph *g;
    graph_exec *exec;
    graph_value out;
    bool open;
} job;

static beryl_status job_open(job *j, base_heap *heap, device *d, numbers *file,
                             const struct kase *c, uint32_t m, uint32_t n, bool unfused,
                             lower_search *search, beryl_error *error) {
    *j = (job){.source = {.size = file->n * sizeof(float), .user = file, .read = numbers_read}};
    beryl_status status = store_init(&j->store, heap, d, &j->source, 1, error);
    if (status != BERYL_OK) return status;
    j->open = true;
    const uint32_t full[2] = {m, n}, matrices[3] = {8, short_row(n), short_row(n)};
    const uint32_t ids[5] = {
        store_add_weight(&j->store, "x", TYPE_F32, 2, full, 0, 0, 0, false),
        store_add_weight(&j->store, "y", TYPE_F32, 2, full, 1, 0, 64, false),
        store_add_weight(&j->store, "w", TYPE_F32, 1, &n, 2, 0, 0, false),
        store_add_weight(&j->store, "v", TYPE_F32, 1, &n, 3, 0, 128, false),
        store_add_weight(&j->store, "e", TYPE_F32, 3, matrices, 4, 0, 0, false)};
    status = store_layout(&j->store, 0, error);
    if (status == BERYL_OK) status = store_make(&j->store, error);
    if (status == BERYL_OK)
        while ((status = store_upload_step(&j->store, error)) == BERYL_PENDING ||
               status == BERYL_EVENT)
            continue;
    if (status != BERYL_OK) return status;
    j->g = graph_open(heap);
    const operands o = {j->g,
                        graph_stored(j->g, &j->store, ids[0]),
                        graph_stored(j->g, &j->store, ids[1]),
                        graph_stored(j->g, &j->store, ids[2]),
                        graph_stored(j->g, &j->store, ids[3]),
                        graph_stored(j->g, &j->store, ids[4])};
    j->out = c->make(&o);
    graph_output(j->g, j->out, "out");
    status = graph_exec_open(
        j->g, &j->store, &(graph_exec_options){.exact = true, .unfused = unfused, .search = search},
        &j->exec, error);
    while (status == BERYL_OK && (status = graph_exec_ready(j->exec, error)) == BERYL_PENDING) {
        base_sleep(1e-4);
        status = BERYL_OK;
        if (graph_exec_ready(j->exec, error) == BERYL_OK) break;
    }
    return status;
}

static void job_close(job *j) {
    graph_exec_close(j->exec);
    graph_close(j->g);
    if (j->open) store_fini(&j->store);
}

static beryl_status job_run(job *j, device *d, uint32_t n, bool fetch, const void **data,
                            beryl_error *error) {
    const uint32_t extents[GRAPH_EXTENT_MAX + 1] = {0};
    device_ticket ticket = 0, done;
    beryl_status status = BERYL_OK;
    for (uint32_t i = 0; i < n && status == BERYL_OK; i++)
        while ((status = graph_exec_submit(j->exec, extents, &j->out, fetch, &ticket, error)) ==
               BERYL_PENDING)
            if (device_poll(d, &done, error)) break;
    if (status == BERYL_OK && d) status = device_wait(d, ticket, error);
    const void *found = NULL;
    if (status == BERYL_OK && fetch) status = graph_exec_fetched(j->exec, ticket, 0, &found, error);
    *data = found;
    return status;
}

/* The largest difference from the reference, relative to 1 + |value|. */
static beryl_status check(base_heap *heap, device *d, numbers *file, const struct kase *c,
                          double *worst, beryl_error *error) {
    job jobs[2];
    const void *data[2];
    beryl_status status = BERYL_OK;
    *worst = 0;
    for (int i = 0; i < 2; i++) jobs[i] = (job){0};
    for (int i = 0; i < 2 && status == BERYL_OK; i++) {
        status = job_open(&jobs[i], heap, i ? NULL : d, file, c, CHECK_ROWS, CHECK_COLUMNS, false,
                          NULL, error);
        if (status == BERYL_OK) status = job_run(&jobs[i], i ? NULL : d, 1, true, &data[i], error);
    }
    const graph_tensor *t = status == BERYL_OK ? graph_tensor_at(jobs[0].g, jobs[0].out) : NULL;
    for (uint64_t i = 0; t && t->type == TYPE_I32 && i < graph_element_bound(t); i++)
        if (((const int32_t *)data[0])[i] != ((const int32_t *)data[1])[i]) *worst = 1;
    for (uint64_t i = 0; t && t->type == TYPE_F32 && i < graph_element_bound(t); i++) {
        const double got = ((const float *)data[0])[i], want = ((const float *)data[1])[i],
                     off = fabs(got - want) / (1 + fabs(want));
        if (!(off <= *worst)) *worst = off;
    }
    for (int i = 0; i < 2; i++) job_close(&jobs[i]);
    return status;
}

static beryl_status time_job(base_heap *heap, device *d, numbers *file, const struct kase *c,
                             uint32_t m, uint32_t n, bool unfused, lower_search *search,
                             double *best, uint32_t *dispatches, beryl_error *error) {
    job j;
    const void *data;
    beryl_status status = job_open(&j, heap, d, file, c, m, n, unfused, search, error);
    double begin = base_time(), one = 0;
    if (status == BERYL_OK) status = job_run(&j, d, 1, false, &data, error);
    while (status == BERYL_OK && base_time() - begin < WARM_SECONDS) {
        const double start = base_time();
        status = job_run(&j, d, 1, false, &data, error);
        one = base_time() - start;
    }
    const uint32_t queued = one > 0.05 ? 1 : one > 0.005 ? 4 : QUEUED;
    *best = 1e9;
    for (uint32_t r = 0; r < ROUNDS && status == BERYL_OK; r++) {
        begin = base_time();
        status = job_run(&j, d, queued, false, &data, error);
        const double seconds = (base_time() - begin) / queued;
        if (seconds < *best) *best = seconds;
    }
    if (status == BERYL_OK) {
        graph_exec_info info;
        graph_exec_describe(j.exec, &info);
        *dispatches = info.dispatches;
    }
    job_close(&j);
    return status;
}

/* Bytes a second, read and written, of the device's own copy. */
static beryl_status time_copy(device *d, uint64_t bytes, double *rate, beryl_error *error) {
    device_buffer buffers[2] = {{0}, {0}};
    beryl_status status = BERYL_OK;
    for (int i = 0; i < 2 && status == BERYL_OK; i++)
        status = device_buffer_make(d, bytes, "copy", &buffers[i], error);
    device_command list[QUEUED];
    for (int i = 0; i < QUEUED; i++) {
        list[i] = (device_command){.kind = DEVICE_COPY};
        list[i].copy.from = buffers[0], list[i].copy.to = buffers[1], list[i].copy.size = bytes;
    }
    double best = 1e9;
    const uint32_t none[64] = {0};
    const uint32_t n = device_is_processor(device_caps_of(d)) ? 2 : QUEUED;
    for (int r = 0; r < 2 * ROUNDS && status == BERYL_OK; r++) {
        device_ticket ticket;
        const double begin = base_time();
        status =
            device_submit(d, &(device_submit_desc){list, n, none, sizeof none}, &ticket, error);
        if (status == BERYL_OK) status = device_wait(d, ticket, error);
        const double seconds = (base_time() - begin) / n;
        if (seconds < best) best = seconds;
        device_fetch_drop(d, ticket);
    }
    *rate = 2 * (double)bytes / best;
    for (int i = 0; i < 2; i++)
        if (buffers[i].id) device_buffer_drop(d, buffers[i]);
    return status;
}

static int fail(const char *what, const beryl_error *error) {
    fprintf(stderr, "graph_bench: %s: %s\n", what, error->message);
    return 1;
}

int main(int argc, char **argv) {
    const char *choice = NULL, *only = NULL, *tune = NULL;
    uint32_t m = 0, n = 0;
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (value && !strcmp(argv[i], "--device")) choice = value;
        else if (value && !strcmp(argv[i], "--op")) only = value;
        else if (value && !strcmp(argv[i], "--tune")) tune = value;
        else if (!value || strcmp(argv[i], "--size") || sscanf(value, "%u,%u", &m, &n) != 2) {
            fprintf(stderr,
                    "graph_bench [--device D] [--op NAME] [--size ROWS,COLUMNS] [--tune FILE]\n");
            return 2;
        }
    }
    base_heap heap;
    beryl_error error = {0};
    device *d = NULL;
    base_heap_init(&heap, NULL);
    ir_cache *cache = tune ? ir_cache_open(&heap, tune, NULL) : NULL;
    if (device_open(&heap, NULL, choice, &d, &error)) return fail("open", &error);
    const device_caps *caps = device_caps_of(d);
    if (!m) m = device_is_processor(caps) ? 2048 : 8192, n = 4096;
    numbers file = {.n = (size_t)m * n + CHECK_ROWS * CHECK_COLUMNS + 4096};
    file.data = malloc(file.n * sizeof *file.data);
    if (!file.data) return 1;
    base_random random = {5};
    for (size_t i = 0; i < file.n; i++) file.data[i] = (float)(base_random_unit(&random) * 4 - 2);
    double copy = 0;
    if (time_copy(d, (uint64_t)m * n * 4, &copy, &error)) return fail("copy", &error);
    printf("%s:%u %s, %s; f32 [%u, %u]; the device's copy %.1f GB/s\n", caps->backend, caps->index,
           caps->name, caps->driver, m, n, copy * 1e-9);
    printf("%-20s %10s %9s %7s %10s %10s %10s %7s %11s\n", "", "us", "GB/s", "% copy", "dispatches",
           "unfused us", "dispatches", "times", "off by");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct kase *c = &cases[i];
        double fused = 0, single = 0, worst = 0;
        uint32_t few = 0, many = 0;
        if (only && strcmp(only, c->name)) continue;
        if (check(&heap, d, &file, c, &worst, &error)) return fail(c->name, &error);
        if (time_job(&heap, d, &file, c, m, n, false, NULL, &fused, &few, &error))
            return fail(c->name, &error);
        if (time_job(&heap, d, &file, c, m, n, true, NULL, &single, &many, &error))
            return fail(c->name, &error);
        lower_search search = {.cache = cache, .n_timed = TIMED, .again = true, .left = 1};
        double tuned = 0;
        uint32_t same;
        if (cache && time_job(&heap, d, &file, c, m, n, false, &search, &tuned, &same, &error))
            return fail(c->name, &error);
        const double rate = (double)c->n_full * m * n * 4 / fused;
        if (c->make == make_copy && rate > copy) copy = rate;
        printf("%-20s %10.1f %9.1f %7.1f %10u %10.1f %10u %7.2f %11.1e", c->name, fused * 1e6,
               rate * 1e-9, rate / copy * 100, few, single * 1e6, many, single / fused, worst);
        if (cache)
            printf(" tuned %10.1f us, %.2f times as fast: %s", tuned * 1e6, fused / tuned,
                   search.numbers);
        printf("\n");
        fflush(stdout);
    }
    free(file.data);
    ir_cache_close(cache);
    device_close(d);
    return 0;
}
