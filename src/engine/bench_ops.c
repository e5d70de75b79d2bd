/* bench_ops.c - operations on their own, timed on a device and held against what it can do.
 *
 * Each case is a graph of a few copies of one operation, over tensors of their own, so that no cache holds what a copy reads
 * and so that a dispatch's own cost does not hide it. Tensors are states and weights of a store: nothing but indices is sent
 * with a run. */
#include "base/error.h"
#include "base/file.h"
#include "base/thread.h"
#include "engine/measure.h"
#include "engine/out.h"
#include "graph/exec.h"

#include <string.h>

enum { SHAPE_MAX = 4, COPIES_MAX = 16, RUNS_MAX = 64, RUNS_LEAST = 5, EXPERTS = 8, EXPERTS_USED = 2, TOPK = 64, UNITS = 8, TABLE_ROWS = 1 << 16, PIECE = 1 << 18 };
static const double WARM_SECONDS = 0.2, RUN_SECONDS = 0.25;
static const uint64_t COLD_BYTES = 192 << 20, MOST_BYTES = UINT64_C(2) << 30; /* beyond a GPU's caches; of one tensor */

struct beryl_bench {
    base_heap heap;
    beryl_log log;
    bool exact;
    device *device; /* NULL: reference */
    beryl_bench_info info;
};

typedef struct making { /* of one case */
    beryl_bench *b;
    beryl_bench_case what;
    base_type type;
    graph *g;
    graph_store store;
    graph_exec *exec;
    beryl_source source;
    unsigned char *blob; /* one weight, for all copies */
    size_t blob_size;
    uint32_t n_copy;
    bool adding;         /* tensors are added to the store; else the graph is built over them, in the same order */
    uint32_t next;       /* stored tensor */
    base_vec(struct indices { graph_value v; uint32_t limit, from; bool rising; }) inputs;
    double read, written, operations; /* of one copy */
    beryl_error error;
} making;

/* ---- the table -------------------------------------------------------------------------------------------------------------- */

typedef graph_value make_fn(making *m, const uint32_t *s);
static make_fn make_matmul, make_matmul_id, make_gather, make_copy, make_add, make_mul, make_scale, make_gelu, make_geglu, make_softcap, make_rms_norm,
    make_layer_norm, make_softmax,
    make_topk, make_weighted_sum, make_rope, make_kv_write, make_attention, make_argmax, make_sample, make_set_rows;

/* op, letters, usual shapes: on a processor and on a GPU; may it have a type? */
static const struct bench_op {
    base_op op;
    const char *letters;
    uint32_t n_shape, small[SHAPE_MAX], large[SHAPE_MAX];
    make_fn *make;
    bool typed;
} ops[] = {
    {OP_MATMUL, "M,N,K", 3, {1024, 1, 1024}, {8192, 1, 4096}, make_matmul, true},
    {OP_MATMUL_ID, "M,N,K", 3, {512, 1, 512}, {4096, 1, 2048}, make_matmul_id, true},
    {OP_GATHER_ROWS, "ROWS,WIDTH", 2, {64, 1024}, {4096, 2048}, make_gather, true},
    {OP_COPY, "ROWS,WIDTH", 2, {256, 1024}, {8192, 4096}, make_copy, false},
    {OP_ADD, "ROWS,WIDTH", 2, {256, 1024}, {8192, 4096}, make_add, false},
    {OP_MUL, "ROWS,WIDTH", 2, {256, 1024}, {8192, 4096}, make_mul, false},
    {OP_SCALE, "ROWS,WIDTH", 2, {256, 1024}, {8192, 4096}, make_scale, false},
    {OP_GELU_TANH, "ROWS,WIDTH", 2, {256, 1024}, {8192, 4096}, make_gelu, false},
    {OP_GEGLU, "ROWS,WIDTH", 2, {256, 1024}, {8192, 4096}, make_geglu, false},
    {OP_SOFTCAP, "ROWS,WIDTH", 2, {256, 1024}, {8192, 4096}, make_softcap, false},
    {OP_RMS_NORM, "ROWS,WIDTH", 2, {256, 1024}, {8192, 4096}, make_rms_norm, false},
    {OP_LAYER_NORM, "ROWS,WIDTH", 2, {256, 1024}, {8192, 4096}, make_layer_norm, false},
    {OP_SOFTMAX, "ROWS,WIDTH", 2, {256, 1024}, {8192, 4096}, make_softmax, false},
    {OP_TOPK, "ROWS,WIDTH", 2, {4, 4096}, {64, 32768}, make_topk, false},
    {OP_WEIGHTED_SUM, "ROWS,WIDTH", 2, {32, 1024}, {2048, 2048}, make_weighted_sum, false},
    {OP_ROPE, "ROWS,HEADS,DIM", 3, {64, 8, 64}, {4096, 16, 256}, make_rope, false},
    {OP_KV_WRITE, "ROWS,HEADS,DIM", 3, {64, 8, 64}, {4096, 8, 256}, make_kv_write, true},
    {OP_ATTENTION, "N,KEYS,HEADS,DIM", 4, {1, 512, 8, 64}, {1, 8192, 8, 256}, make_attention, true},
    {OP_ARGMAX, "ROWS,WIDTH", 2, {4, 32768}, {16, 262144}, make_argmax, false},
    {OP_SAMPLE, "ROWS,WIDTH", 2, {1, 32768}, {1, 262144}, make_sample, false},
    {OP_SET_ROWS, "ROWS,WIDTH", 2, {64, 1024}, {8192, 4096}, make_set_rows, false},
};
enum { N_OP = sizeof ops / sizeof *ops };

static const char *const weight_types[] = {"F32", "F16", "Q8_0", "Q4_K", "Q6_K"}, *const cache_types[] = {"F32", "F16", "Q8_0"};

static uint32_t n_type(const struct bench_op *op) {
    if (!op->typed) return 1;
    return op->op == OP_KV_WRITE || op->op == OP_ATTENTION ? sizeof cache_types / sizeof *cache_types : sizeof weight_types / sizeof *weight_types;
}

bool beryl_bench_usual(uint32_t i, beryl_bench_case *out) {
    for (uint32_t k = 0; k < N_OP; k++) {
        const uint32_t n = n_type(&ops[k]);
        if (i >= n) {
            i -= n;
            continue;
        }
        *out = (beryl_bench_case){.op = graph_op_name(ops[k].op), .type = n == 1 ? "F32" : n == 3 ? cache_types[i] : weight_types[i], .letters = ops[k].letters};
        return true;
    }
    return false;
}

/* ---- tensors of a case -------------------------------------------------------------------------------------------------------- */

static beryl_status fail(making *m, beryl_status code, const char *what) {
    if (m->error.code == BERYL_OK) base_fail(&m->error, code, "%s %s: %s", m->what.op, base_type_name(m->type), what);
    return code;
}

static graph_value stored(making *m, uint32_t index) {
    if (index == UINT32_MAX) fail(m, BERYL_NO_MEMORY, "out of host memory");
    return m->adding || index == UINT32_MAX ? 0 : graph_stored(m->g, &m->store, index);
}

static uint64_t bytes_of(making *m, base_type type, uint32_t rank, const uint32_t *dims) {
    uint64_t bytes = base_type_row_bytes(type, dims[rank - 1]);
    if (!bytes) fail(m, BERYL_BAD_INPUT, "a row is not in whole blocks of the type");
    for (uint32_t i = 0; i + 1 < rank; i++) bytes = bytes > MOST_BYTES ? bytes : bytes * dims[i];
    if (bytes > MOST_BYTES) fail(m, BERYL_BAD_INPUT, "a tensor of more than 2 GiB");
    return bytes;
}

static graph_value weight(making *m, base_type type, uint32_t rank, const uint32_t *dims) {
    const uint64_t bytes = bytes_of(m, type, rank, dims);
    if (m->error.code != BERYL_OK) return 0;
    if (m->adding && bytes > m->blob_size) m->blob_size = (size_t)bytes;
    return stored(m, m->adding ? store_add_weight(&m->store, "w", type, rank, dims, m->next++, 0, 0, false) : m->next++);
}

static graph_value state(making *m, base_type type, uint32_t rank, const uint32_t *dims) {
    bytes_of(m, type, rank, dims);
    if (m->error.code != BERYL_OK) return 0;
    return stored(m, m->adding ? store_add_state(&m->store, "x", type, rank, dims, m->next++) : m->next++);
}

static graph_value rows(making *m, uint32_t n, uint32_t width) {
    return state(m, TYPE_F32, 2, (uint32_t[]){n, width});
}

/* Indices from `from` on, below limit: one after another, or spread. */
static graph_value indices(making *m, uint32_t rank, uint32_t n, uint32_t per, uint32_t limit, uint32_t from, bool rising) {
    if (m->adding) return 0;
    const graph_value v = graph_input(m->g, "index", TYPE_I32, rank, (graph_dim[]){{n, 0}, {per, 0}});
    struct indices *i = base_vec_add(&m->b->heap, &m->inputs);
    if (!i) fail(m, BERYL_NO_MEMORY, "out of host memory");
    else *i = (struct indices){v, limit, from, rising};
    return v;
}

static void counted(making *m, double read, double written, double operations) {
    m->read = read;
    m->written = written;
    m->operations = operations;
}

static double row_bytes(const making *m, uint32_t width) {
    return (double)base_type_row_bytes(m->type, width);
}

static graph_value make_matmul(making *m, const uint32_t *s) {
    const graph_value x = rows(m, s[1], s[2]), w = weight(m, m->type, 2, (uint32_t[]){s[0], s[2]});
    counted(m, s[0] * row_bytes(m, s[2]) + 4.0 * s[1] * s[2], 4.0 * s[0] * s[1], 2.0 * s[0] * s[1] * s[2]);
    return m->adding ? 0 : graph_matmul(m->g, x, w);
}

static graph_value make_matmul_id(making *m, const uint32_t *s) {
    const graph_value x = state(m, TYPE_F32, 3, (uint32_t[]){s[1], 1, s[2]}), w = weight(m, m->type, 3, (uint32_t[]){EXPERTS, s[0], s[2]});
    const double used = s[1] * EXPERTS_USED < EXPERTS ? s[1] * EXPERTS_USED : EXPERTS;
    const graph_value ids = indices(m, 2, s[1], EXPERTS_USED, EXPERTS, 0, true);
    counted(m, used * s[0] * row_bytes(m, s[2]) + 4.0 * s[1] * s[2], 4.0 * EXPERTS_USED * s[0] * s[1], 2.0 * EXPERTS_USED * s[0] * s[1] * s[2]);
    return m->adding ? 0 : graph_matmul_id(m->g, x, w, ids);
}

static graph_value make_gather(making *m, const uint32_t *s) {
    const uint32_t most = s[0] > TABLE_ROWS ? s[0] : TABLE_ROWS;
    const uint32_t n = (double)most * row_bytes(m, s[1]) > 1e8 ? (uint32_t)(1e8 / row_bytes(m, s[1])) + 1 : most;
    const graph_value table = weight(m, m->type, 2, (uint32_t[]){n, s[1]}), ids = indices(m, 1, s[0], 1, n, 0, false);
    counted(m, s[0] * row_bytes(m, s[1]), 4.0 * s[0] * s[1], 0);
    return m->adding ? 0 : graph_gather_rows(m->g, table, ids, 1);
}

static graph_value make_set_rows(making *m, const uint32_t *s) {
    const graph_value to = rows(m, s[0], s[1]), x = rows(m, s[0], s[1]), ids = indices(m, 1, s[0], 1, s[0], 0, true);
    counted(m, 4.0 * s[0] * s[1], 4.0 * s[0] * s[1], 0);
    return m->adding ? 0 : graph_set_rows(m->g, to, x, ids);
}

/* The pointwise ones: over one matrix, or two. */
#define MAKE_ONE(name, ...)                                                \
    static graph_value make_##name(making *m, const uint32_t *s) {         \
        const graph_value a = rows(m, s[0], s[1]);                         \
        counted(m, 4.0 * s[0] * s[1], 4.0 * s[0] * s[1], 0);               \
        return m->adding ? 0 : __VA_ARGS__;                                \
    }
#define MAKE_TWO(name, ...)                                                \
    static graph_value make_##name(making *m, const uint32_t *s) {         \
        const graph_value a = rows(m, s[0], s[1]), b = rows(m, s[0], s[1]); \
        counted(m, 8.0 * s[0] * s[1], 4.0 * s[0] * s[1], 0);               \
        return m->adding ? 0 : __VA_ARGS__;                                \
    }
MAKE_ONE(scale, graph_scale(m->g, a, 0.5f))
MAKE_ONE(gelu, graph_gelu_tanh(m->g, a))
MAKE_ONE(softcap, graph_softcap(m->g, a, 30))
MAKE_ONE(softmax, graph_softmax(m->g, a))
MAKE_TWO(add, graph_add(m->g, a, b))
MAKE_TWO(mul, graph_mul(m->g, a, b))
MAKE_TWO(geglu, graph_geglu(m->g, a, b))

/* Half of each row of a matrix of twice the width. */
static graph_value make_copy(making *m, const uint32_t *s) {
    const graph_value a = rows(m, s[0], 2 * s[1]);
    counted(m, 4.0 * s[0] * s[1], 4.0 * s[0] * s[1], 0);
    return m->adding ? 0 : graph_copy(m->g, graph_narrow(m->g, a, 1, s[1], s[1]));
}

static graph_value make_rms_norm(making *m, const uint32_t *s) {
    const graph_value x = rows(m, s[0], s[1]), w = weight(m, TYPE_F32, 1, &s[1]);
    counted(m, 4.0 * s[0] * s[1] + 4.0 * s[1], 4.0 * s[0] * s[1], 0);
    return m->adding ? 0 : graph_rms_norm(m->g, x, w, 1e-6f);
}

static graph_value make_layer_norm(making *m, const uint32_t *s) {
    const graph_value x = rows(m, s[0], s[1]), w = weight(m, TYPE_F32, 1, &s[1]), bias = weight(m, TYPE_F32, 1, &s[1]);
    counted(m, 4.0 * s[0] * s[1] + 8.0 * s[1], 4.0 * s[0] * s[1], 0);
    return m->adding ? 0 : graph_layer_norm(m->g, x, w, bias, 1e-6f);
}

static graph_value make_topk(making *m, const uint32_t *s) {
    const graph_value x = rows(m, s[0], s[1]);
    const uint32_t k = s[1] < TOPK ? s[1] : TOPK;
    graph_value places;
    counted(m, 4.0 * s[0] * s[1], 8.0 * s[0] * k, 0);
    return m->adding ? 0 : graph_topk(m->g, x, k, &places);
}

static graph_value make_weighted_sum(making *m, const uint32_t *s) {
    const graph_value x = state(m, TYPE_F32, 3, (uint32_t[]){s[0], UNITS, s[1]}), w = rows(m, s[0], UNITS);
    counted(m, 4.0 * s[0] * s[1] * UNITS, 4.0 * s[0] * s[1], 0);
    return m->adding ? 0 : graph_weighted_sum(m->g, x, w);
}

static graph_value make_rope(making *m, const uint32_t *s) {
    const graph_value x = state(m, TYPE_F32, 3, s), angles = state(m, TYPE_F32, 3, (uint32_t[]){s[0], 2, s[2] / 2});
    counted(m, 4.0 * s[0] * s[1] * s[2] + 4.0 * s[0] * s[2], 4.0 * s[0] * s[1] * s[2], 0);
    return m->adding ? 0 : graph_rope(m->g, x, angles);
}

static graph_value make_kv_write(making *m, const uint32_t *s) {
    const graph_value cache = state(m, m->type, 4, (uint32_t[]){1, s[0], s[1], s[2]}), x = state(m, TYPE_F32, 3, s);
    const graph_value slot = indices(m, 1, s[0], 1, 1, 0, true), pos = indices(m, 1, s[0], 1, s[0], 0, true);
    counted(m, 4.0 * s[0] * s[1] * s[2], s[0] * s[1] * row_bytes(m, s[2]), 0);
    return m->adding ? 0 : graph_kv_write(m->g, cache, x, slot, pos);
}

/* The last N positions of KEYS, each over those before it. */
static graph_value make_attention(making *m, const uint32_t *s) {
    const uint32_t n = s[0], keys = s[1], heads = s[2], d = s[3];
    const uint32_t cache[] = {1, keys, heads, d};
    if (n > keys) fail(m, BERYL_BAD_INPUT, "more positions than keys");
    const graph_value q = state(m, TYPE_F32, 3, (uint32_t[]){n, heads, d}), k = state(m, m->type, 4, cache), v = state(m, m->type, 4, cache);
    const graph_value slot = indices(m, 1, n, 1, 1, 0, true), pos = indices(m, 1, n, 1, keys, keys - n, true);
    const double pairs = (double)n * (keys - n) + 0.5 * n * (n + 1.0), wide = (double)heads * d;
    counted(m, 2.0 * keys * heads * row_bytes(m, d) + 4.0 * n * wide, 4.0 * n * wide, 4.0 * pairs * wide);
    return m->adding ? 0 : graph_attention(m->g, q, k, v, slot, pos, 0.125f, 0);
}

static graph_value make_argmax(making *m, const uint32_t *s) {
    const graph_value x = rows(m, s[0], s[1]);
    counted(m, 4.0 * s[0] * s[1], 4.0 * s[0], 0);
    return m->adding ? 0 : graph_argmax(m->g, x);
}

static graph_value make_sample(making *m, const uint32_t *s) {
    const graph_value x = rows(m, s[0], s[1]);
    counted(m, 4.0 * s[0] * s[1], 4.0 * s[0], 0);
    if (m->adding) return 0;
    return graph_sample(m->g, x, graph_input(m->g, "settings", TYPE_U32, 2, (graph_dim[]){{s[0], 0}, {8, 0}}));
}

/* ---- one case ------------------------------------------------------------------------------------------------------------------- */

/* Bytes that are finite and small as f32, f16 or bf16, and as scales of blocks. */
static void fill_bytes(unsigned char *to, size_t n) {
    base_random random = {.state = 7};
    for (size_t i = 0; i < n; i += 8) {
        const uint64_t word = (base_random_next(&random) & UINT64_C(0x1f1f1f1f1f1f1f1f)) | UINT64_C(0x2020202020202020);
        memcpy(to + i, &word, n - i < 8 ? n - i : 8);
    }
}

static beryl_status fill_states(making *m) {
    const size_t size = PIECE;
    unsigned char *piece = base_heap_take(&m->b->heap, size);
    beryl_status status = piece ? BERYL_OK : fail(m, BERYL_NO_MEMORY, "out of host memory");
    if (piece) fill_bytes(piece, size);
    for (uint32_t i = 0; status == BERYL_OK && i < m->store.tensors.count; i++) {
        const uint64_t bytes = m->store.tensors.data[i].is_state ? store_state_bytes(&m->store, i) / 4 * 4 : 0;
        for (uint64_t at = 0; status == BERYL_OK && at < bytes; at += size)
            status = store_state_write(&m->store, i, at, piece, (size_t)(bytes - at < size ? bytes - at : size), &m->error);
    }
    base_heap_give(&m->b->heap, piece, piece ? size : 0);
    return status;
}

static void fill_indices(const making *m) {
    for (size_t i = 0; i < m->inputs.count; i++) {
        const struct indices *in = &m->inputs.data[i];
        int32_t *to = graph_exec_input(m->exec, in->v);
        const uint64_t n = graph_element_bound(graph_tensor_at(m->g, in->v));
        for (uint64_t k = 0; to && k < n; k++) to[k] = (int32_t)((in->from + (in->rising ? k : k * 40503)) % in->limit);
    }
}

static beryl_status build(making *m, const struct bench_op *op) {
    m->adding = true;
    op->make(m, m->what.shape);
    if (m->error.code != BERYL_OK) return m->error.code;
    const double each = m->read + m->written;
    const bool small = !m->b->device || device_is_processor(device_caps_of(m->b->device));
    m->n_copy = small || each >= (double)COLD_BYTES ? 1 : (uint32_t)((double)COLD_BYTES / each) + 1;
    if (m->n_copy > COPIES_MAX) m->n_copy = COPIES_MAX;
    for (uint32_t i = 1; i < m->n_copy; i++) op->make(m, m->what.shape);
    m->blob = base_heap_take(&m->b->heap, m->blob_size + 1);
    if (!m->blob) return fail(m, BERYL_NO_MEMORY, "out of host memory");
    fill_bytes(m->blob, m->blob_size);
    m->source = base_source_of_memory(m->blob, m->blob_size);
    beryl_status status = m->error.code;
    if (status == BERYL_OK) status = store_layout(&m->store, 0, &m->error);
    if (status == BERYL_OK) status = store_make(&m->store, &m->error);
    m->adding = false;
    m->next = 0;
    for (uint32_t i = 0; status == BERYL_OK && i < m->n_copy; i++) {
        const graph_value out = op->make(m, m->what.shape);
        if (out && !graph_tensor_at(m->g, out)->base) graph_output(m->g, out, "y");
        status = graph_status(m->g, &m->error);
    }
    const graph_exec_options with = {.exact = m->b->exact, .unfused = true, .framed = true};
    if (status == BERYL_OK) status = m->error.code;
    if (status == BERYL_OK) status = graph_exec_open(m->g, &m->store, &with, &m->exec, &m->error);
    return status;
}

static beryl_status upload(making *m) {
    beryl_status status;
    while ((status = store_upload_step(&m->store, &m->error)) == BERYL_EVENT || status == BERYL_PENDING) {
        device_ticket done;
        if (status == BERYL_PENDING && m->b->device && device_poll(m->b->device, &done, &m->error) != BERYL_OK) return m->error.code;
    }
    if (status == BERYL_OK) status = fill_states(m);
    while (status == BERYL_OK && (status = graph_exec_ready(m->exec, &m->error)) == BERYL_PENDING) base_sleep(1e-3), status = BERYL_OK;
    if (status == BERYL_OK) fill_indices(m);
    return status;
}

/* Seconds of one run of all copies. */
static beryl_status run_once(making *m, double *seconds) {
    static const uint32_t none[GRAPH_EXTENT_MAX + 1];
    device_ticket ticket;
    const void *data;
    const double start = base_time();
    beryl_status status = graph_exec_submit(m->exec, none, NULL, 0, &ticket, &m->error);
    if (status == BERYL_OK && m->b->device) status = device_wait(m->b->device, ticket, &m->error);
    *seconds = base_time() - start;
    if (status != BERYL_OK) return status;
    graph_exec_fetched(m->exec, ticket, 0, &data, NULL); /* for the times alone */
    if (graph_exec_seconds(m->exec) > 0) *seconds = graph_exec_seconds(m->exec);
    return BERYL_OK;
}

static double median(double *x, uint32_t n) {
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t k = i; k > 0 && x[k - 1] > x[k]; k--) {
            const double y = x[k];
            x[k] = x[k - 1];
            x[k - 1] = y;
        }
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

static beryl_status time_case(making *m, double *seconds) {
    double times[RUNS_MAX];
    uint32_t n = 0;
    const bool warms = m->b->device && !device_is_processor(device_caps_of(m->b->device));
    const double begun = base_time();
    beryl_status status = run_once(m, seconds);
    while (status == BERYL_OK && warms && base_time() - begun < WARM_SECONDS) status = run_once(m, seconds);
    const double start = base_time();
    while (status == BERYL_OK && n < RUNS_MAX && (n < RUNS_LEAST || base_time() - start < RUN_SECONDS)) status = run_once(m, &times[n++]);
    if (status == BERYL_OK) *seconds = median(times, n) / m->n_copy;
    return status;
}

static const struct bench_op *op_of(const char *name) {
    for (uint32_t i = 0; name && i < N_OP; i++)
        if (!strcmp(graph_op_name(ops[i].op), name)) return &ops[i];
    return NULL;
}

static beryl_status case_of(const beryl_bench *b, const beryl_bench_case *what, making *m, const struct bench_op **op, beryl_error *error) {
    m->what = *what;
    *op = op_of(what->op);
    if (!*op) return base_fail(error, BERYL_NOT_FOUND, "there is no operation '%s' to time; 'beryl ops' lists them", what->op ? what->op : "");
    m->type = TYPE_F32;
    for (int t = 0; what->type && t <= TYPE_COUNT; t++) {
        if (t == TYPE_COUNT) return base_fail(error, BERYL_NOT_FOUND, "there is no type '%s'", what->type);
        m->type = (base_type)t;
        if (!strcmp(base_type_name(m->type), what->type)) break;
    }
    if (!(*op)->typed && m->type != TYPE_F32) return base_fail(error, BERYL_UNSUPPORTED, "%s takes F32 alone", what->op);
    const bool small = !b->device || device_is_processor(device_caps_of(b->device));
    if (!what->n_shape) memcpy(m->what.shape, small ? (*op)->small : (*op)->large, sizeof m->what.shape);
    if (what->n_shape && what->n_shape != (*op)->n_shape) return base_fail(error, BERYL_BAD_INPUT, "a shape of %s is %s", what->op, (*op)->letters);
    for (uint32_t i = 0; i < (*op)->n_shape; i++)
        if (!m->what.shape[i] || m->what.shape[i] > 1u << 24) return base_fail(error, BERYL_BAD_INPUT, "a shape of %s is %s, each from 1 to 2^24", what->op, (*op)->letters);
    m->what.n_shape = (*op)->n_shape;
    m->what.letters = (*op)->letters;
    m->what.op = graph_op_name((*op)->op);
    m->what.type = base_type_name(m->type);
    return BERYL_OK;
}

static void making_close(making *m) {
    graph_exec_close(m->exec);
    for (size_t i = 0; m->b->device && i < m->store.programs.count; i++) device_program_drop(m->b->device, m->store.programs.data[i].id);
    m->store.programs.count = 0;
    store_fini(&m->store);
    graph_close(m->g);
    base_vec_fini(&m->b->heap, &m->inputs);
    base_heap_give(&m->b->heap, m->blob, m->blob ? m->blob_size + 1 : 0);
}

beryl_status beryl_bench_op(beryl_bench *b, const beryl_bench_case *what, beryl_bench_result *result, beryl_error *error) {
    if (!b || !what || !result) return base_fail(error, BERYL_MISUSE, "beryl_bench_op needs a bench, a case and a place for the result");
    making m = {.b = b};
    const struct bench_op *op;
    double seconds = 0;
    *result = (beryl_bench_result){.what = *what};
    beryl_status status = case_of(b, what, &m, &op, error);
    if (status != BERYL_OK) return status;
    result->what = m.what;
    m.g = graph_open(&b->heap);
    status = m.g ? store_init(&m.store, &b->heap, b->device, &m.source, 1, &m.error) : fail(&m, BERYL_NO_MEMORY, "out of host memory");
    if (m.g && status == BERYL_OK) status = build(&m, op);
    if (status == BERYL_OK) status = upload(&m);
    if (status == BERYL_OK) status = time_case(&m, &seconds);
    if (status == BERYL_OK) {
        graph_exec_info info;
        graph_exec_describe(m.exec, &info);
        const double peak = m.written * 4 < m.read ? b->info.read : b->info.copy;
        result->seconds = seconds;
        result->bytes = m.read + m.written;
        result->operations = m.operations;
        result->dispatches = info.dispatches / m.n_copy;
        if (peak > 0 && seconds > 0) result->bandwidth_part = result->bytes / seconds / peak;
        if (b->info.f32 > 0 && seconds > 0) result->f32_part = result->operations / seconds / b->info.f32;
    } else if (error) {
        *error = m.error;
    }
    making_close(&m);
    return status;
}

/* ---- opening ---------------------------------------------------------------------------------------------------------------------- */

beryl_status beryl_bench_open(const beryl_bench_options *options, beryl_bench **out, beryl_error *error) {
    static const beryl_bench_options none = {.size = sizeof none};
    if (!out) return base_fail(error, BERYL_MISUSE, "beryl_bench_open needs a place for the bench");
    *out = NULL;
    if (!options) options = &none;
    if (options->size < offsetof(beryl_bench_options, log) || options->size > 1 << 16)
        return base_fail(error, BERYL_MISUSE, "beryl_bench_options.size is %zu: set it to sizeof(beryl_bench_options)", options->size);
    beryl_bench_options o = none;
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    base_heap heap;
    base_heap_init(&heap, &o.allocator);
    beryl_bench *b = base_heap_take(&heap, sizeof *b);
    if (!b) return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    b->heap = heap;
    b->log = o.log;
    b->exact = o.precision == BERYL_PRECISION_EXACT;
    beryl_status status = engine_device_open(&b->heap, &b->log, o.device, &b->device, error);
    if (status == BERYL_OK && b->device && !strcmp(device_caps_of(b->device)->backend, "dummy"))
        status = base_fail(error, BERYL_UNSUPPORTED, "the dummy device computes nothing that could be timed");
    if (status == BERYL_OK && b->device && o.no_cache) device_cache_forgo(b->device);
    if (status == BERYL_OK) b->info.device = engine_device_info(b->device);
    double *const rates[] = {[MEASURE_READ] = &b->info.read, [MEASURE_COPY] = &b->info.copy, [MEASURE_FMA] = &b->info.f32};
    for (int k = MEASURE_READ; status == BERYL_OK && b->device && k <= MEASURE_FMA; k++) {
        beryl_error why = {0};
        status = measure_rate(&b->heap, b->device, NULL, 0, (measure_kind)k, rates[k], &why);
        if (status == BERYL_UNSUPPORTED || status == BERYL_NO_DEVICE_MEMORY) {
            base_log(&b->log, BERYL_LOG_WARNING, "not measured: %s", why.message);
            *rates[k] = 0;
            status = BERYL_OK;
        } else if (status != BERYL_OK && error) {
            *error = why;
        }
    }
    if (status != BERYL_OK) {
        beryl_bench_close(b);
        return status;
    }
    *out = b;
    return BERYL_OK;
}

void beryl_bench_close(beryl_bench *b) {
    if (!b) return;
    device_close(b->device);
    base_heap heap = b->heap;
    base_heap_give(&heap, b, sizeof *b);
}

void beryl_bench_info_get(const beryl_bench *b, beryl_bench_info *info) {
    if (b && info) *info = b->info;
}
