/* experts_test.c - a layer's mixture of experts as the model builds it, joined into few dispatches, against the reference
 * functions: the choice, the products with the chosen experts, their sum, and the branches added to the stream. */
#include "generated.h"
#include "test.h"

#include "graph/exec.h"
#include "graph/fused.h"
#include "graph/pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TENSOR_MAX = 14, NEXT = 24 /* rows of the product that follows */ };

typedef struct problem {
    const char *name;
    uint32_t n_bound, n, d, n_ff, n_expert, n_used;
    base_type gate_up, down;
    bool apart;           /* gate and up are two tensors */
    uint32_t nodes;       /* that are left on a GPU */
} problem;

static const problem problems[] = {
    {"one", 1, 1, 256, 96, 20, 8, TYPE_Q4_K, TYPE_Q8_0, false, 4},
    {"one-wide", 1, 1, 512, 256, 7, 2, TYPE_Q4_K, TYPE_Q6_K, false, 4},
    {"apart", 1, 1, 256, 64, 9, 3, TYPE_Q4_0, TYPE_Q5_0, true, 4},
    {"few", 5, 3, 128, 64, 33, 4, TYPE_Q8_0, TYPE_Q4_0, false, 4},
    {"floats", 2, 2, 64, 32, 5, 5, TYPE_F16, TYPE_F32, false, 4},
    {"odd-widths", 1, 1, 80, 24, 6, 2, TYPE_F32, TYPE_BF16, false, 5},
    {"too-many-pairs", 20, 17, 64, 32, 9, 8, TYPE_Q8_0, TYPE_Q4_0, false, 8},
};

/* ---- weights ---------------------------------------------------------------------------------------------- */

static uint32_t next(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static float unit(uint32_t *state) { /* -1 to 1 */
    return (float)next(state) * 0x1p-23f - 1;
}

static void block_fill(base_type type, uint8_t *b, uint32_t *state) {
    const uint32_t bytes = base_type_block_bytes(type);
    const float value = unit(state);
    const uint16_t half = base_f32_to_f16(value), brain = base_f32_to_bf16(value);
    const uint16_t scale = base_f32_to_f16(0.004f), least = base_f32_to_f16(0.01f);
    for (uint32_t i = 0; i < bytes; i++) b[i] = (uint8_t)next(state);
    if (type == TYPE_F32) memcpy(b, &value, 4);
    else if (type == TYPE_F16) memcpy(b, &half, 2);
    else if (type == TYPE_BF16) memcpy(b, &brain, 2);
    else if (type == TYPE_Q6_K) memcpy(b + 208, &scale, 2);
    else memcpy(b, &scale, 2);
    if (type == TYPE_Q4_K) memcpy(b + 2, &least, 2);
}

typedef struct matrix { uint64_t at; base_type type; uint32_t rank, dim[3]; } matrix;
typedef struct file { uint8_t *bytes; uint64_t size; uint32_t n, state; matrix t[TENSOR_MAX]; } file;

static void file_add(file *f, base_type type, uint32_t rank, uint32_t a, uint32_t b, uint32_t c) {
    const uint64_t rows = rank == 1 ? 1 : rank == 2 ? a : (uint64_t)a * b, k = rank == 1 ? a : rank == 2 ? b : c;
    const uint64_t size = base_type_row_bytes(type, k) * rows;
    f->bytes = realloc(f->bytes, (size_t)(f->size + size));
    for (uint64_t at = 0; at < size; at += base_type_block_bytes(type)) block_fill(type, f->bytes + f->size + at, &f->state);
    f->t[f->n++] = (matrix){f->size, type, rank, {a, b, c}};
    f->size += size;
}

static beryl_status source_read(void *user, uint64_t offset, void *to, size_t size) {
    memcpy(to, (const char *)user + offset, size);
    return BERYL_OK;
}

/* ---- the graph ---------------------------------------------------------------------------------------------- */

enum { T_ROUTER_SCALE, T_PRE, T_POST_1, T_POST_2, T_POST, T_SCALES, T_LAYER_SCALE, T_NEXT_NORM, T_NEXT, T_ROUTER, T_DOWN, T_GATE_UP, T_UP };

static void file_make(file *f, const problem *p) {
    f->state = 9;
    for (uint32_t i = T_ROUTER_SCALE; i <= T_POST; i++) file_add(f, TYPE_F32, 1, p->d, 0, 0);
    file_add(f, TYPE_F32, 1, p->n_expert, 0, 0);
    file_add(f, TYPE_F32, 1, 1, 0, 0);
    file_add(f, TYPE_F32, 1, p->d, 0, 0);
    file_add(f, TYPE_F16, 2, NEXT, p->d, 0);
    file_add(f, TYPE_F32, 2, p->n_expert, p->d, 0);
    file_add(f, p->down, 3, p->n_expert, p->d, p->n_ff);
    file_add(f, p->gate_up, 3, p->n_expert, p->apart ? p->n_ff : 2 * p->n_ff, p->d);
    if (p->apart) file_add(f, p->gate_up, 3, p->n_expert, p->n_ff, p->d);
}

typedef struct side { graph *g; graph_store store; graph_exec *exec; graph_value h, dense, out[2]; } side;

static void build(side *s, const problem *p, const uint32_t *index) {
    graph *g = s->g;
    graph_value w[TENSOR_MAX], ids, gate, up;
    const graph_dim n = {p->n_bound, graph_extent_add(g, "n", p->n_bound)}, dims[2] = {n, {p->d, 0}};
    for (uint32_t i = 0; i < (p->apart ? T_UP + 1u : T_UP); i++) w[i] = graph_stored(g, &s->store, index[i]);
    s->h = graph_input(g, "h", TYPE_F32, 2, dims);
    s->dense = graph_input(g, "dense", TYPE_F32, 2, dims);
    graph_value a = graph_rms_norm(g, s->dense, w[T_POST_1], 1e-6f);
    graph_value logits = graph_matmul(g, graph_rms_norm(g, s->h, w[T_ROUTER_SCALE], 1e-6f), w[T_ROUTER]);
    graph_value gates = graph_topk(g, logits, p->n_used, &ids);
    gates = graph_softmax(g, graph_scale(g, gates, 0.1f));
    gates = graph_mul(g, gates, graph_gather_rows(g, w[T_SCALES], ids, 1));
    graph_value x = graph_reshape(g, graph_rms_norm(g, s->h, w[T_PRE], 1e-6f), 3, (graph_dim[]){n, {1, 0}, {p->d, 0}});
    gate = graph_matmul_id(g, x, w[T_GATE_UP], ids);
    if (p->apart) {
        up = graph_matmul_id(g, x, w[T_UP], ids);
    } else {
        up = graph_narrow(g, gate, 2, p->n_ff, p->n_ff);
        gate = graph_narrow(g, gate, 2, 0, p->n_ff);
    }
    graph_value each = graph_matmul_id(g, graph_geglu(g, gate, up), w[T_DOWN], ids);
    graph_value b = graph_rms_norm(g, graph_weighted_sum(g, each, gates), w[T_POST_2], 1e-6f);
    graph_value both = graph_rms_norm(g, graph_add(g, a, b), w[T_POST], 1e-6f);
    s->out[0] = graph_mul(g, graph_add(g, s->h, both), w[T_LAYER_SCALE]);
    s->out[1] = graph_matmul(g, graph_rms_norm(g, s->out[0], w[T_NEXT_NORM], 1e-6f), w[T_NEXT]);
    for (int i = 0; i < 2; i++) graph_output(g, s->out[i], "out");
}

static beryl_status side_open(side *s, base_heap *heap, device *d, const problem *p, const file *f, const beryl_source *source, bool exact,
                              beryl_error *error) {
    uint32_t index[TENSOR_MAX];
    const graph_exec_options options = {.exact = exact, .unfused = true};
    beryl_status status = store_init(&s->store, heap, d, source, 1, error);
    for (uint32_t i = 0; i < f->n; i++)
        index[i] = store_add_weight(&s->store, "w", f->t[i].type, f->t[i].rank, f->t[i].dim, 0, 0, f->t[i].at, false);
    if (status == BERYL_OK) status = store_layout(&s->store, 0, error);
    if (status == BERYL_OK) status = store_make(&s->store, error);
    while (status == BERYL_OK && (status = store_upload_step(&s->store, error)) != BERYL_OK)
        if (status == BERYL_EVENT || status == BERYL_PENDING) status = BERYL_OK;
    s->g = graph_open(heap);
    build(s, p, index);
    if (status == BERYL_OK) status = graph_status(s->g, error);
    if (status == BERYL_OK && d) status = graph_pass_fuse(s->g, &s->store, &options, error);
    if (status == BERYL_OK) status = graph_exec_open(s->g, &s->store, &options, &s->exec, error);
    while (status == BERYL_OK && (status = graph_exec_ready(s->exec, error)) == BERYL_PENDING) status = BERYL_OK;
    return status;
}

static void side_close(side *s) {
    graph_exec_close(s->exec);
    graph_close(s->g);
    store_fini(&s->store);
}

static void input_fill(side *s, graph_value v, uint32_t n, uint32_t seed) {
    float *to = graph_exec_input(s->exec, v);
    for (uint32_t i = 0; i < n; i++) to[i] = 2 * unit(&seed);
}

static beryl_status side_run(side *s, const problem *p, const float **data, beryl_error *error) {
    device_ticket ticket;
    input_fill(s, s->h, p->n * p->d, 1);
    input_fill(s, s->dense, p->n * p->d, 2);
    beryl_status status = graph_exec_submit(s->exec, (uint32_t[]){0, p->n}, s->out, 2, &ticket, error);
    if (status == BERYL_OK && s->store.device) status = device_wait(s->store.device, ticket, error);
    for (uint32_t i = 0; status == BERYL_OK && i < 2; i++)
        status = graph_exec_fetched(s->exec, ticket, i, (const void **)(uintptr_t)&data[i], error);
    return status;
}

static uint32_t live_nodes(const graph *g) {
    uint32_t n = 0;
    for (size_t i = 0; i < g->nodes.count; i++) n += !g->nodes.data[i].dead;
    return n;
}

static void run(test *t, base_heap *heap, device *d, const problem *p, bool exact, bool counted) {
    file f = {0};
    beryl_error error = {0};
    file_make(&f, p);
    const beryl_source source = {.size = f.size, .user = f.bytes, .read = source_read};
    side a = {0}, b = {0};
    const float *want[2], *got[2];
    if (side_open(&a, heap, NULL, p, &f, &source, true, &error) || side_run(&a, p, want, &error) ||
        side_open(&b, heap, d, p, &f, &source, exact, &error) || side_run(&b, p, got, &error)) {
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    } else {
        if (counted) CHECK_INT(t, live_nodes(b.g), p->nodes);
        const double within = exact ? 4e-6 : 2e-2; /* f32 sums in another order; int8 activations, twice */
        for (uint32_t o = 0; o < 2; o++) {
            double difference = 0, size = 1e-30;
            for (uint32_t i = 0; i < p->n * (o ? NEXT : p->d); i++) {
                difference += ((double)got[o][i] - want[o][i]) * ((double)got[o][i] - want[o][i]);
                size += (double)want[o][i] * want[o][i];
            }
            if (!(difference <= within * within * size))
                test_fail(t, __FILE__, __LINE__, "result %u is off by %g of its size", o, sqrt(difference / size));
        }
    }
    side_close(&a);
    side_close(&b);
    free(f.bytes);
}

/* ---- the forms ------------------------------------------------------------------------------------------------ */

static const struct form { const char *name; bool gpu, least, exact; } forms[] = {
    {"software", false, false, true}, {"gpu-exact", true, false, true}, {"gpu-fast", true, false, false}, {"smallest", true, true, true},
};

static void test_written(test *t) {
    base_heap heap;
    device *d = NULL;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    const beryl_status status = device_open(&heap, NULL, "software", &d, &error);
    const device_caps caps = status == BERYL_OK ? d->caps : (device_caps){0};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        for (size_t j = 0; j < sizeof problems / sizeof *problems; j++) {
            if (!test_case(t, "experts/%s/%s", forms[i].name, problems[j].name)) continue;
            if (status != BERYL_OK) {
                test_skip(t, "%s", error.message);
                continue;
            }
            d->caps = caps;
            if (forms[i].gpu) d->caps.kind = DEVICE_DISCRETE, d->caps.compute_units = 2, d->caps.dot_i8 = true; /* all WGSL has them */
            if (forms[i].least) d->caps.subgroups = d->caps.dot_i8 = false, d->caps.workgroup_bytes = 16384;
            run(t, &heap, d, &problems[j], forms[i].exact, forms[i].gpu);
        }
    if (d) d->caps = caps;
    device_close(d);
    if (test_case(t, "experts/gives-everything-back")) CHECK_INT(t, heap.bytes, 0);
}

/* exact: 32-bit activations. */
static void test_generated(test *t, const generated_form *form, bool exact) {
    base_heap heap;
    device *d = NULL;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    const beryl_status status = generated_open(form, &heap, &d, &error);
    const char *name = exact ? "exact" : "fast";
    for (size_t j = 0; j < sizeof problems / sizeof *problems; j++) {
        if (!test_case(t, "experts/%s-%s/%s", form->name, name, problems[j].name)) continue;
        if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
        else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        else run(t, &heap, d, &problems[j], exact, form->as_gpu);
    }
    generated_close(d);
    if (status == BERYL_OK && test_case(t, "experts/%s-%s/gives-everything-back", form->name, name)) CHECK_INT(t, heap.bytes, 0);
}

void test_experts(test *t);
void test_experts(test *t) {
    test_written(t);
    for (size_t i = 0; i < GENERATED_FORMS; i++) {
        test_generated(t, &generated_forms[i], true);
        if (generated_forms[i].as_gpu) test_generated(t, &generated_forms[i], false);
    }
}
