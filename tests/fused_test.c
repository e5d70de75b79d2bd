/* fused_test.c - products joined with what stands before and after them: the same graph on the device, joined by the pass,
 * and on the reference functions, as it was. Each case in the form of software devices, of large ones with and without
 * subgroups and integer dot products, and of the smallest. */
#define _POSIX_C_SOURCE 200809L
#include "interpreter.h"
#include "rig_stand_in.h"
#include "test.h"

#include "graph/exec.h"
#include "graph/fused.h"
#include "graph/pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OUT_MAX = FUSED_SEGMENT_MAX + 1, TENSOR_MAX = 8, LAYERS = 3 };

typedef struct problem {
    const char *name;
    fused_x from;
    fused_end to;
    uint32_t n_bound, n, k, n_segment;
    base_type types[FUSED_SEGMENT_MAX];
    uint32_t rows[FUSED_SEGMENT_MAX];
    bool scaled;
    base_type down_type;
    uint32_t down; /* rows of a product that takes the result alone; 0: there is none */
    bool twin;     /* the branch is the sum of two */
    uint32_t apart; /* bytes of workgroup memory that hold what a product needs, but not its vectors; 0: not tried */
} problem;

static const problem problems[] = {
    {"plain-three-rows", FUSED_X_PLAIN, FUSED_STORE, 1, 1, 256, 3, {TYPE_Q4_K, TYPE_Q4_0, TYPE_Q6_K}, {70, 33, 8}, false, TYPE_F32, 0, false, 0},
    {"plain-tables", FUSED_X_PLAIN, FUSED_STORE, 1, 1, 512, 3, {TYPE_IQ4_NL, TYPE_IQ4_XS, TYPE_MXFP4}, {40, 33, 8}, false, TYPE_F32, 0, false, 0},
    {"plain-few-bits", FUSED_X_PLAIN, FUSED_STORE, 1, 1, 512, 2, {TYPE_Q2_K, TYPE_Q3_K}, {40, 33}, false, TYPE_F32, 0, false, 0},
    {"plain-ones", FUSED_X_PLAIN, FUSED_STORE, 2, 2, 256, 3, {TYPE_Q4_1, TYPE_Q5_1, TYPE_Q8_0}, {40, 33, 9}, false, TYPE_F32, 0, false, 0},
    {"plain-geglu", FUSED_X_PLAIN, FUSED_GEGLU, 4, 3, 256, 2, {TYPE_Q4_K, TYPE_Q4_K}, {67, 67}, false, TYPE_F32, 0, false, 0},
    {"plain-gelu-times-slice", FUSED_X_PLAIN, FUSED_GELU_MUL, 1, 1, 48, 1, {TYPE_F32}, {32}, false, TYPE_F32, 0, false, 0},
    {"norm-one", FUSED_X_NORM, FUSED_SOFTCAP, 1, 1, 256, 1, {TYPE_Q6_K}, {300}, false, TYPE_F32, 0, false, 256},
    {"norm-two-floats", FUSED_X_NORM, FUSED_STORE, 2, 2, 80, 2, {TYPE_F16, TYPE_BF16}, {9, 40}, false, TYPE_F32, 0, false, 0},
    {"add-gelu-times-slice", FUSED_X_ADD, FUSED_GELU_MUL, 1, 1, 128, 1, {TYPE_Q8_0}, {32}, false, TYPE_F32, 0, false, 0},
    {"add-scaled", FUSED_X_ADD, FUSED_STORE, 3, 2, 64, 1, {TYPE_Q5_0}, {64}, true, TYPE_F32, 0, false, 0},
    {"add-norm-qkv", FUSED_X_ADD_NORM, FUSED_STORE, 1, 1, 512, 3, {TYPE_Q4_K, TYPE_Q4_K, TYPE_Q6_K}, {130, 32, 32}, true, TYPE_F32, 0, false, 512},
    {"add-norm-qkv-few", FUSED_X_ADD_NORM, FUSED_STORE, 5, 5, 256, 2, {TYPE_Q5_K, TYPE_Q8_0}, {40, 16}, false, TYPE_F32, 0, false, 0},
    {"add-norm-geglu", FUSED_X_ADD_NORM, FUSED_GEGLU, 1, 1, 256, 2, {TYPE_Q4_K, TYPE_Q4_K}, {320, 320}, true, TYPE_F32, 0, false, 0},
    {"add-norm-geglu-down", FUSED_X_ADD_NORM, FUSED_GEGLU, 1, 1, 256, 2, {TYPE_Q4_K, TYPE_Q4_K}, {512, 512}, true, TYPE_Q6_K, 70, false, 0},
    {"geglu-down-few", FUSED_X_PLAIN, FUSED_GEGLU, 6, 5, 128, 2, {TYPE_Q8_0, TYPE_Q8_0}, {96, 96}, false, TYPE_Q5_0, 33, false, 0},
    {"geglu-down-batch", FUSED_X_PLAIN, FUSED_GEGLU, 16, 13, 512, 2, {TYPE_Q4_K, TYPE_Q4_K}, {256, 256}, false, TYPE_Q6_K, 70, false, 0},
    {"three-rows-batch", FUSED_X_PLAIN, FUSED_STORE, 12, 10, 768, 3, {TYPE_Q4_K, TYPE_Q8_0, TYPE_Q6_K}, {70, 33, 40}, false, TYPE_F32, 0, false, 0},
    {"two-rows-batch", FUSED_X_PLAIN, FUSED_STORE, 20, 18, 256, 2, {TYPE_Q5_K, TYPE_Q5_0}, {65, 40}, false, TYPE_F32, 0, false, 0},
    {"geglu-down-of-floats", FUSED_X_PLAIN, FUSED_GEGLU, 1, 1, 128, 2, {TYPE_Q4_0, TYPE_Q4_0}, {64, 64}, false, TYPE_F16, 33, false, 0},
    {"add-norm-softcap", FUSED_X_ADD_NORM, FUSED_SOFTCAP, 1, 1, 256, 1, {TYPE_Q8_0}, {500}, true, TYPE_F32, 0, false, 0},
    {"norm-many", FUSED_X_NORM, FUSED_STORE, 32, 17, 512, 1, {TYPE_Q4_K}, {70}, false, TYPE_F32, 0, false, 256},
    {"add-many-slices", FUSED_X_ADD, FUSED_GELU_MUL, 16, 16, 512, 1, {TYPE_Q8_0}, {32}, false, TYPE_F32, 0, false, 256},
    {"add-scaled-many-odd-blocks", FUSED_X_ADD, FUSED_STORE, 9, 9, 480, 2, {TYPE_Q5_0, TYPE_Q4_0}, {64, 24}, true, TYPE_F32, 0, false, 256},
    {"add-norm-geglu-down-many", FUSED_X_ADD_NORM, FUSED_GEGLU, 16, 11, 2048, 2, {TYPE_Q4_K, TYPE_Q4_K}, {64, 64}, true, TYPE_Q4_0, 70, false, 2624},
    {"add-norm-floats-many", FUSED_X_ADD_NORM, FUSED_STORE, 20, 20, 528, 2, {TYPE_F16, TYPE_F32}, {33, 8}, false, TYPE_F32, 0, false, 1024},
    {"twins-add-norm-many", FUSED_X_ADD_NORM, FUSED_STORE, 16, 16, 512, 1, {TYPE_Q4_K}, {33}, true, TYPE_F32, 0, true, 512},
    {"twins-add-norm-one", FUSED_X_ADD_NORM, FUSED_STORE, 1, 1, 2816, 1, {TYPE_Q8_0}, {40}, false, TYPE_F32, 0, true, 2048},
    {"norm-crowd", FUSED_X_NORM, FUSED_STORE, 40, 33, 256, 1, {TYPE_Q4_K}, {70}, false, TYPE_F32, 0, false, 0},
    {"add-norm-qkv-crowd", FUSED_X_ADD_NORM, FUSED_STORE, 48, 41, 512, 3, {TYPE_Q4_K, TYPE_Q4_K, TYPE_Q6_K}, {70, 33, 16}, true, TYPE_F32, 0, false, 0},
    {"twins-geglu-down-crowd", FUSED_X_ADD_NORM, FUSED_GEGLU, 40, 40, 256, 2, {TYPE_Q8_0, TYPE_Q8_0}, {96, 96}, true, TYPE_Q5_0, 33, true, 0},
    {"add-floats-crowd", FUSED_X_ADD, FUSED_STORE, 36, 34, 80, 2, {TYPE_F16, TYPE_F32}, {33, 8}, true, TYPE_F32, 0, false, 0},
    {"add-norm-long-rows", FUSED_X_ADD_NORM, FUSED_STORE, 2, 2, 5376, 1, {TYPE_Q4_0}, {24}, true, TYPE_F32, 0, false, 4096},
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
    const uint16_t d = base_f32_to_f16(0.004f), least = base_f32_to_f16(0.01f);
    for (uint32_t i = 0; i < bytes; i++) b[i] = (uint8_t)next(state);
    if (type == TYPE_F32) memcpy(b, &value, 4);
    else if (type == TYPE_F16) memcpy(b, &half, 2);
    else if (type == TYPE_BF16) memcpy(b, &brain, 2);
    else if (type == TYPE_Q6_K) memcpy(b + 208, &d, 2);
    else if (type == TYPE_Q3_K) memcpy(b + 108, &d, 2);
    else if (type == TYPE_Q2_K) memcpy(b + 80, &d, 2), memcpy(b + 82, &least, 2);
    else if (type == TYPE_MXFP4) b[0] = (uint8_t)(116 + b[0] % 8);
    else memcpy(b, &d, 2);
    if (type == TYPE_Q4_K || type == TYPE_Q5_K || type == TYPE_Q4_1 || type == TYPE_Q5_1) memcpy(b + 2, &least, 2);
}

typedef struct file { uint8_t *bytes; uint64_t size; uint32_t n; struct { uint64_t at; uint32_t rows, k; base_type type; } t[TENSOR_MAX]; } file;

static void file_add(file *f, base_type type, uint32_t rows, uint32_t k, uint32_t *state) {
    const uint64_t size = base_type_row_bytes(type, k) * rows;
    f->bytes = realloc(f->bytes, (size_t)(f->size + size));
    for (uint64_t at = 0; at < size; at += base_type_block_bytes(type)) block_fill(type, f->bytes + f->size + at, state);
    f->t[f->n].at = f->size;
    f->t[f->n].rows = rows;
    f->t[f->n].k = k;
    f->t[f->n++].type = type;
    f->size += size;
}

static beryl_status source_read(void *user, uint64_t offset, void *to, size_t size) {
    memcpy(to, (const char *)user + offset, size);
    return BERYL_OK;
}

/* ---- the graph ---------------------------------------------------------------------------------------------- */

typedef struct side { graph *g; graph_store store; graph_exec *exec; graph_value h, branch, twin, slices, out[OUT_MAX]; uint32_t n_out; } side;

enum { T_W_BRANCH, T_SCALE, T_W_NORM, T_W_TWIN, T_MATRIX };

static void build(side *s, const problem *p, const uint32_t *index) {
    graph *g = s->g;
    const uint8_t n = graph_extent_add(g, "n", p->n_bound);
    const graph_dim dims[2] = {{p->n_bound, n}, {p->k, 0}};
    graph_value y[FUSED_SEGMENT_MAX], x = s->h = graph_input(g, "h", TYPE_F32, 2, dims);
    if (p->from == FUSED_X_ADD || p->from == FUSED_X_ADD_NORM) {
        s->branch = graph_input(g, "branch", TYPE_F32, 2, dims);
        graph_value branch = s->branch;
        if (p->twin) {
            s->twin = graph_input(g, "twin", TYPE_F32, 2, dims);
            branch = graph_rms_norm(g, branch, graph_stored(g, &s->store, index[T_W_NORM]), 1e-4f);
            branch = graph_add(g, branch, graph_rms_norm(g, s->twin, graph_stored(g, &s->store, index[T_W_TWIN]), 1e-3f));
        }
        x = graph_add(g, x, graph_rms_norm(g, branch, graph_stored(g, &s->store, index[T_W_BRANCH]), 1e-6f));
        if (p->scaled) x = graph_mul(g, x, graph_stored(g, &s->store, index[T_SCALE]));
        s->out[s->n_out++] = x;
    }
    if (p->from == FUSED_X_NORM || p->from == FUSED_X_ADD_NORM) x = graph_rms_norm(g, x, graph_stored(g, &s->store, index[T_W_NORM]), 1e-5f);
    for (uint32_t i = 0; i < p->n_segment; i++) y[i] = graph_matmul(g, x, graph_stored(g, &s->store, index[T_MATRIX + i]));
    if (p->to == FUSED_GEGLU) y[0] = graph_geglu(g, y[0], y[1]);
    if (p->to == FUSED_SOFTCAP) y[0] = graph_softcap(g, y[0], 30);
    if (p->to == FUSED_GELU_MUL) {
        s->slices = graph_input(g, "slices", TYPE_F32, 3, (graph_dim[]){{p->n_bound, n}, {LAYERS, 0}, {p->rows[0], 0}});
        y[0] = graph_geglu(g, y[0], graph_squeeze(g, graph_narrow(g, s->slices, 1, 1, 1), 1));
    }
    if (p->down) y[0] = graph_matmul(g, y[0], graph_stored(g, &s->store, index[T_MATRIX + p->n_segment]));
    for (uint32_t i = 0; i < (p->to == FUSED_STORE ? p->n_segment : 1); i++) s->out[s->n_out++] = y[i];
    for (uint32_t i = 0; i < s->n_out; i++) graph_output(g, s->out[i], "out");
}

static uint32_t live_nodes(const graph *g, base_op op) {
    uint32_t n = 0;
    for (size_t i = 0; i < g->nodes.count; i++) n += !g->nodes.data[i].dead && (op == OP_COUNT || g->nodes.data[i].op == op);
    return n;
}

static beryl_status side_open(side *s, base_heap *heap, device *d, const problem *p, const file *f, const beryl_source *source, bool exact,
                              beryl_error *error) {
    uint32_t index[TENSOR_MAX];
    const graph_exec_options options = {.exact = exact, .unfused = true};
    beryl_status status = store_init(&s->store, heap, d, source, 1, error);
    for (uint32_t i = 0; i < f->n; i++) {
        const bool vector = i < T_MATRIX;
        const uint32_t dim[2] = {f->t[i].rows, f->t[i].k};
        index[i] = store_add_weight(&s->store, "w", f->t[i].type, vector ? 1 : 2, vector ? dim + 1 : dim, vector, 0, f->t[i].at, false);
    }
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
    float *to = v ? graph_exec_input(s->exec, v) : NULL;
    for (uint32_t i = 0; to && i < n; i++) to[i] = 2 * unit(&seed);
}

static beryl_status side_run(side *s, const problem *p, const float **data, beryl_error *error) {
    device_ticket ticket;
    input_fill(s, s->h, p->n * p->k, 1);
    input_fill(s, s->branch, p->n * p->k, 2);
    input_fill(s, s->twin, p->n * p->k, 4);
    input_fill(s, s->slices, p->n * LAYERS * p->rows[0], 3);
    beryl_status status = graph_exec_submit(s->exec, (uint32_t[]){0, p->n}, s->out, s->n_out, &ticket, error);
    if (status == BERYL_OK && s->store.device) status = device_wait(s->store.device, ticket, error);
    for (uint32_t i = 0; status == BERYL_OK && i < s->n_out; i++)
        status = graph_exec_fetched(s->exec, ticket, i, (const void **)(uintptr_t)&data[i], error);
    return status;
}

static void check_apart(test *t, base_heap *heap, graph_exec *exec, bool apart) {
    base_text text;
    base_text_init(&text, heap);
    graph_exec_print(exec, &text);
    CHECK(t, !text.failed && (!apart || strstr(text.data, " vectors ")));
    base_text_fini(&text);
}

static void run(test *t, base_heap *heap, device *d, const problem *p, bool exact, bool apart) {
    file f = {0};
    beryl_error error = {0};
    uint32_t state = 9;
    file_add(&f, TYPE_F32, 1, p->k, &state);
    file_add(&f, TYPE_F32, 1, 1, &state);
    file_add(&f, TYPE_F32, 1, p->k, &state);
    file_add(&f, TYPE_F32, 1, p->k, &state);
    for (uint32_t i = 0; i < p->n_segment; i++) file_add(&f, p->types[i], p->rows[i], p->k, &state);
    if (p->down) file_add(&f, p->down_type, p->down, p->rows[0], &state);
    const beryl_source source = {.size = f.size, .user = f.bytes, .read = source_read};
    side a = {0}, b = {0};
    const float *want[OUT_MAX], *got[OUT_MAX];
    if (side_open(&a, heap, NULL, p, &f, &source, true, &error) || side_run(&a, p, want, &error) ||
        side_open(&b, heap, d, p, &f, &source, exact, &error) || side_run(&b, p, got, &error)) {
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    } else {
        if (d->caps.kind != DEVICE_SOFTWARE) { /* there some forms do not pay */
            CHECK_INT(t, live_nodes(b.g, OP_COUNT), p->down ? 2 : 1);
            CHECK_INT(t, live_nodes(b.g, OP_FUSED), 1);
            check_apart(t, heap, b.exec, apart);
        }
        const double within = exact ? 2e-6 : 2e-2; /* f32 sums in another order; int8 activations, twice */
        for (uint32_t o = 0; o < a.n_out; o++) {
            const uint32_t m = graph_tensor_at(a.g, a.out[o])->dim[1].size;
            double difference = 0, size = 1e-30;
            for (uint32_t i = 0; i < p->n * m; i++) {
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

/* apart: with so little workgroup memory that a dispatch before the product makes its vectors. align: bindings begin at
 * multiples of so many bytes, more than WebGPU's devices ask for; tried with one problem. generated: kernels from the
 * intermediate form, on the interpreter of tests too, which finds races. subgroups: OpenCL with them, which a driver that has
 * none is given. */
static const struct form { const char *name, *device; bool gpu, least, exact, plain, apart; uint32_t align; bool generated, subgroups; } forms[] = {
    {"software", "software", false, false, true, false, false, 0, false, false},
    {"gpu-exact", "software", true, false, true, false, false, 0, false, false},
    {"gpu-fast", "software", true, false, false, false, false, 0, false, false},
    {"smallest", "software", true, true, true, true, false, 0, false, false},
    {"apart-exact", "software", true, false, true, false, true, 0, false, false},
    {"apart-fast", "software", true, false, false, false, true, 0, false, false},
    {"apart-plain-fast", "software", true, false, false, true, true, 0, false, false},
    {"aligned", "software", false, false, true, false, false, 1024, false, false},
    {"interpreter-exact", "interpreter", true, false, true, false, false, 0, true, false},
    {"interpreter-fast", "interpreter", true, false, false, false, false, 0, true, false},
    {"interpreter-smallest", "interpreter", true, true, true, true, false, 0, true, false},
    {"interpreter-lane", "interpreter", false, false, true, true, false, 0, true, false},
    {"host", "host", false, false, true, true, false, 0, true, false},
    {"generated-exact", "software", true, false, true, false, false, 0, true, false},
    {"generated-fast", "software", true, false, false, false, false, 0, true, false},
    {"generated-smallest", "software", true, true, true, true, false, 0, true, false},
    {"cuda-fast", "cuda", true, false, false, false, false, 0, true, false},
    {"cuda-smallest", "cuda", true, true, true, true, false, 0, true, false},
    {"opencl-exact", "opencl", true, false, true, true, false, 0, true, false},
    {"opencl-subgroups", "opencl", true, false, false, false, false, 0, true, true},
};

static beryl_status form_open(const struct form *f, base_heap *heap, device **d, beryl_error *error) {
    beryl_status status;
    if (!strcmp(f->device, "interpreter")) status = (*d = interpreter_open(heap)) ? BERYL_OK : BERYL_NO_MEMORY;
    else status = device_open(heap, NULL, f->device, d, error);
    if (status != BERYL_OK) return status;
    device_caps *caps = &(*d)->caps;
    if (!strcmp(f->device, "interpreter")) caps->subgroups = true, caps->subgroup_size = 32;
    if (f->gpu) caps->kind = DEVICE_DISCRETE, caps->compute_units = 2, caps->dot_i8 = true; /* all WGSL has them */
    if (f->least) caps->dot_i8 = false, caps->workgroup_bytes = 16384;
    if (f->plain) caps->subgroups = false;
    if (f->align) caps->align_binding = f->align;
    if (f->generated) setenv("BERYL_KERNELS", "generated", 1);
    return status;
}

/* One, a few, or many vectors: they are joined in different ways. */
static int crowd(const problem *p) {
    return p->n_bound > 6 ? 2 : p->n_bound > 1;
}

static bool is_first_of_its_form(const problem *p) {
    for (const problem *q = problems; q < p; q++)
        if (q->from == p->from && q->to == p->to && crowd(q) == crowd(p)) return false;
    return true;
}

/* Slow or without a form of its own there: more vectors than generated kernels join; what the interpreter takes seconds for.
 * Drivers that stand in are given each form once. */
static bool is_left_out(const struct form *f, const problem *p, bool stand_in) {
    if (stand_in && (!is_first_of_its_form(p) || (!strcmp(f->device, "opencl") && crowd(p) > 1))) return true;
    if ((f->apart && !p->apart) || (f->align && p->n_segment < 3)) return true;
    if (!strcmp(f->device, "host") && p->n_segment < 3 && !p->twin) return true; /* each is compiled for a second */
    if (!strncmp(f->name, "generated", 9) && p->n_bound > 6) return true; /* the driver takes up to half a minute for each */
    return f->generated && (p->n_bound > 32 || (!strcmp(f->device, "interpreter") && (uint64_t)p->n * p->k * p->rows[0] > 400000));
}

void test_fused(test *t);
void test_fused(test *t) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        base_heap heap;
        device *d = NULL;
        beryl_error error = {0};
        base_heap_init(&heap, NULL);
        const bool stand_in = forms[i].subgroups ? rig_opencl_subgroups("amd") : rig_stand_in(forms[i].device);
        const beryl_status status = form_open(&forms[i], &heap, &d, &error);
        const uint32_t workgroup_bytes = d ? d->caps.workgroup_bytes : 0;
        for (size_t j = 0; j < sizeof problems / sizeof *problems; j++) {
            if (is_left_out(&forms[i], &problems[j], stand_in) || !test_case(t, "fused/%s/%s", forms[i].name, problems[j].name)) continue;
            if (status != BERYL_OK) {
                test_skip(t, "%s", error.message);
                continue;
            }
            d->caps.workgroup_bytes = forms[i].apart ? problems[j].apart : workgroup_bytes;
            run(t, &heap, d, &problems[j], forms[i].exact, forms[i].apart);
        }
        unsetenv("BERYL_KERNELS");
        device_close(d);
        if (stand_in) rig_stand_in_end(forms[i].device);
        if (test_case(t, "fused/%s/gives-everything-back", forms[i].name)) CHECK_INT(t, heap.bytes, 0);
    }
}
