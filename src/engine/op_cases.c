/* op_cases.c - see op_cases.h. */
#include "engine/op_cases.h"
#include "base/error.h"
#include "graph/graph.h"

#include <string.h>

enum { EXPERTS = 8, EXPERTS_USED = 2, TOPK = 64, UNITS = 8, TABLE_ROWS = 1 << 16, TABLE_MIN = 64 };
static const uint64_t MOST_BYTES = UINT64_C(2) << 30; /* of one tensor */

/* ---- tensors of a case ----------------------------------------------------------------------- */

static beryl_status fail(op_maker *m, beryl_status code, const char *what) {
    if (m->error.code == BERYL_OK)
        base_fail(&m->error, code, "%s %s: %s", graph_op_name(m->op), base_type_name(m->type),
                  what);
    return code;
}

static graph_value stored(op_maker *m, uint32_t index) {
    if (index == UINT32_MAX) fail(m, BERYL_NO_MEMORY, "out of host memory");
    return m->adding || index == UINT32_MAX ? 0 : graph_stored(m->g, m->store, index);
}

static uint64_t bytes_of(op_maker *m, base_type type, uint32_t rank, const uint32_t *dims) {
    uint64_t bytes = base_type_row_bytes(type, dims[rank - 1]);
    if (!bytes) fail(m, BERYL_BAD_INPUT, "a row is not in whole blocks of the type");
    for (uint32_t i = 0; i + 1 < rank; i++) bytes = bytes > MOST_BYTES ? bytes : bytes * dims[i];
    if (bytes > MOST_BYTES) fail(m, BERYL_BAD_INPUT, "a tensor of more than 2 GiB");
    return bytes;
}

static graph_value weight(op_maker *m, base_type type, uint32_t rank, const uint32_t *dims) {
    const uint64_t bytes = bytes_of(m, type, rank, dims),
                   at = m->compared ? (m->blob_size + 63) / 64 * 64 : 0;
    if (m->error.code != BERYL_OK) return 0;
    if (m->adding && at + bytes > m->blob_size) m->blob_size = (size_t)(at + bytes);
    return stored(
        m, m->adding ? store_add_weight(m->store, "w", type, rank, dims, m->next++, 0, at, false)
                     : m->next++);
}

static graph_value state(op_maker *m, base_type type, uint32_t rank, const uint32_t *dims) {
    bytes_of(m, type, rank, dims);
    if (m->error.code != BERYL_OK) return 0;
    return stored(m, m->adding ? store_add_state(m->store, "x", type, rank, dims, m->next++)
                               : m->next++);
}

/* An extent for each number of rows: plans of models have them. */
static uint8_t extent_of(graph *g, uint32_t n) {
    for (uint8_t i = 1; i <= g->n_extent; i++)
        if (g->extents[i].bound == n) return i;
    return graph_extent_add(g, "rows", n);
}

static graph_value sent(op_maker *m, const char *name, base_type type, uint32_t rank,
                        const uint32_t *dims) {
    graph_dim d[OP_SHAPE_MAX] = {{0}};
    for (uint32_t i = 0; i < rank; i++) d[i].size = dims[i];
    /* a product's sizes meet those of its other factor */
    if (m->compared && m->op != OP_CONTRACT && dims[0] > 1) d[0].extent = extent_of(m->g, dims[0]);
    return graph_input(m->g, name, type, rank, d);
}

static graph_value activation_of(op_maker *m, base_type type, uint32_t rank, const uint32_t *dims) {
    if (!m->compared) return state(m, type, rank, dims);
    return m->adding ? 0 : sent(m, "x", type, rank, dims);
}

static graph_value activation(op_maker *m, uint32_t rank, const uint32_t *dims) {
    return activation_of(m, TYPE_F32, rank, dims);
}

static graph_value rows(op_maker *m, uint32_t n, uint32_t width) {
    return activation(m, 2, (uint32_t[]){n, width});
}

/* Indices from `from` on, below limit: one after another, or spread. */
static graph_value indices(op_maker *m, uint32_t rank, uint32_t n, uint32_t per, uint32_t limit,
                           uint32_t from, bool rising) {
    if (m->adding) return 0;
    const graph_value v = sent(m, "index", TYPE_I32, rank, (uint32_t[]){n, per});
    struct op_index *i = base_vec_add(m->heap, &m->indices);
    if (!i) fail(m, BERYL_NO_MEMORY, "out of host memory");
    else *i = (struct op_index){v, limit, from, rising};
    return v;
}

static void counted(op_maker *m, double read, double written, double operations) {
    m->read = read;
    m->written = written;
    m->operations = operations;
}

static double row_bytes(const op_maker *m, uint32_t width) {
    return (double)base_type_row_bytes(m->type, width);
}

static graph_value make_linear(op_maker *m, const uint32_t *s) {
    const graph_value x = rows(m, s[1], s[2]), w = weight(m, m->type, 2, (uint32_t[]){s[0], s[2]});
    counted(m, s[0] * row_bytes(m, s[2]) + 4.0 * s[1] * s[2], 4.0 * s[0] * s[1],
            2.0 * s[0] * s[1] * s[2]);
    return m->adding ? 0 : graph_linear(m->g, x, w);
}

static graph_value make_linear_id(op_maker *m, const uint32_t *s) {
    const graph_value x = activation(m, 3, (uint32_t[]){s[1], 1, s[2]}),
                      w = weight(m, m->type, 3, (uint32_t[]){EXPERTS, s[0], s[2]});
    const double used = s[1] * EXPERTS_USED < EXPERTS ? s[1] * EXPERTS_USED : EXPERTS;
    const graph_value ids = indices(m, 2, s[1], EXPERTS_USED, EXPERTS, 0, true);
    counted(m, used * s[0] * row_bytes(m, s[2]) + 4.0 * s[1] * s[2],
            4.0 * EXPERTS_USED * s[0] * s[1], 2.0 * EXPERTS_USED * s[0] * s[1] * s[2]);
    return m->adding ? 0 : graph_linear_id(m->g, x, w, ids);
}

/* T: 1: as they are, 2: the first one is transposed, 3: the second, 4: both. */
static graph_value make_contract(op_maker *m, const uint32_t *s) {
    const bool ta = s[3] == 2 || s[3] == 4, tb = s[3] == 3 || s[3] == 4;
    const graph_value a = activation_of(m, m->type, 2,
                                        (uint32_t[]){ta ? s[2] : s[0], ta ? s[0] : s[2]}),
                      b = activation_of(m, m->type, 2,
                                        (uint32_t[]){tb ? s[1] : s[2], tb ? s[2] : s[1]});
    const double size = base_type_block_bytes(m->type);
    counted(m, size * s[2] * ((double)s[0] + s[1]), size * s[0] * s[1], 2.0 * s[0] * s[1] * s[2]);
    if (s[3] > 4) fail(m, BERYL_BAD_INPUT, "T is 1 to 4");
    return m->adding ? 0 : graph_matmul(m->g, a, b, ta, tb);
}

static graph_value make_gather(op_maker *m, const uint32_t *s) {
    const uint32_t most = m->compared ? TABLE_MIN : s[0] > TABLE_ROWS ? s[0] : TABLE_ROWS;
    const uint32_t n =
        (double)most * row_bytes(m, s[1]) > 1e8 ? (uint32_t)(1e8 / row_bytes(m, s[1])) + 1 : most;
    const graph_value table = weight(m, m->type, 2, (uint32_t[]){n, s[1]}),
                      ids = indices(m, 1, s[0], 1, n, 0, false);
    counted(m, s[0] * row_bytes(m, s[1]), 4.0 * s[0] * s[1], 0);
    return m->adding ? 0 : graph_gather_rows(m->g, table, ids, 1);
}

static graph_value make_set_rows(op_maker *m, const uint32_t *s) {
    const graph_value to = state(m, TYPE_F32, 2, s), x = rows(m, s[0], s[1]),
                      ids = indices(m, 1, s[0], 1, s[0], 0, true);
    counted(m, 4.0 * s[0] * s[1], 4.0 * s[0] * s[1], 0);
    return m->adding ? 0 : graph_set_rows(m->g, to, x, ids);
}

static graph_value make_assign(op_maker *m, const uint32_t *s) {
    const graph_value to = state(m, TYPE_F32, 2, s);
    graph_dim d[] = {{s[0], 0}, {s[1], 0}}; /* a state has no extents */
    counted(m, 4.0 * s[0] * s[1], 4.0 * s[0] * s[1], 0);
    return m->adding ? 0 : graph_assign(m->g, to, graph_input(m->g, "x", TYPE_F32, 2, d));
}

/* gather, scatter and scatter_add along the first axis; one_hot */
static graph_value make_by_index(op_maker *m, const uint32_t *s) {
    const bool hot = m->op == OP_ONE_HOT, gathers = m->op == OP_GATHER;
    const graph_value x = hot ? 0 : rows(m, s[0], s[1]),
                      updates = hot || gathers ? 0 : rows(m, s[0], s[1]),
                      ids = indices(m, hot ? 1 : 2, s[0], s[1], hot ? s[1] : s[0], 0, false);
    const double n = (double)s[0] * s[1];
    counted(m, hot ? 4.0 * s[0] : (gathers ? 8 : 12) * n, hot ? n : 4 * n, 0);
    return m->adding ? 0
                     : graph_op(m->g, m->op,
                                hot ? (graph_value[GRAPH_IN_MAX]){ids}
                                    : (graph_value[GRAPH_IN_MAX]){x, ids, updates},
                                (graph_attrs){.one_hot = {hot ? s[1] : 0}});
}

/* From the operation's row of the table: numbers [ROWS, WIDTH], weights [WIDTH]. */
static graph_value make_usual(op_maker *m, const uint32_t *s) {
    const base_op_info *info = &base_ops[m->op];
    graph_value in[GRAPH_IN_MAX] = {0};
    graph_attrs attr = {0};
    double read = 0;
    for (uint32_t i = 0; i < info->n_in_max; i++) {
        const char kind = info->inputs[i];
        const base_type type = kind == 'b'                  ? TYPE_BOOL
                               : kind == 'z' || kind == 'i' ? TYPE_I32
                               : kind == 'u'                ? TYPE_U32
                                                            : TYPE_F32;
        in[i] = kind == 'w' ? weight(m, type, 1, &s[1]) : activation_of(m, type, 2, s);
        read += base_type_block_bytes(type) * (double)s[1] * (kind == 'w' ? 1 : s[0]);
    }
    for (uint32_t i = 0; info->attributes[i]; i++) {
        if (info->attributes[i] == 'F') attr.at[i].f = info->usual[i];
        else if (info->attributes[i] == 'I') attr.at[i].i = (int32_t)info->usual[i];
        else attr.at[i].u = (uint32_t)info->usual[i];
    }
    const graph_value out = m->adding ? 0 : graph_op(m->g, m->op, in, attr);
    counted(m, read, out ? 4.0 * (double)graph_element_bound(graph_tensor_at(m->g, out)) : 0, 0);
    return out;
}

/* Half of each row of a matrix of twice the width. */
static graph_value make_copy(op_maker *m, const uint32_t *s) {
    const graph_value a = rows(m, s[0], 2 * s[1]);
    counted(m, 4.0 * s[0] * s[1], 4.0 * s[0] * s[1], 0);
    return m->adding ? 0 : graph_copy(m->g, graph_narrow(m->g, a, 1, s[1], s[1], 1));
}

static graph_value make_topk(op_maker *m, const uint32_t *s) {
    const graph_value x = rows(m, s[0], s[1]);
    const uint32_t k = s[1] < TOPK ? s[1] : TOPK;
    graph_value places;
    counted(m, 4.0 * s[0] * s[1], 8.0 * s[0] * k, 0);
    return m->adding ? 0 : graph_topk(m->g, x, k, &places);
}

static graph_value make_weighted_sum(op_maker *m, const uint32_t *s) {
    const graph_value x = activation(m, 3, (uint32_t[]){s[0], UNITS, s[1]}),
                      w = rows(m, s[0], UNITS);
    counted(m, 4.0 * s[0] * s[1] * UNITS, 4.0 * s[0] * s[1], 0);
    return m->adding ? 0 : graph_weighted_sum(m->g, x, w);
}

static graph_value make_rope(op_maker *m, const uint32_t *s) {
    const graph_value x = activation(m, 3, s),
                      angles = activation(m, 3, (uint32_t[]){s[0], 2, s[2] / 2});
    counted(m, 4.0 * s[0] * s[1] * s[2] + 4.0 * s[0] * s[2], 4.0 * s[0] * s[1] * s[2], 0);
    return m->adding ? 0 : graph_rope(m->g, x, angles);
}

static graph_value make_kv_write(op_maker *m, const uint32_t *s) {
    const graph_value cache = state(m, m->type, 4, (uint32_t[]){1, s[0], s[1], s[2]}),
                      x = activation(m, 3, s);
    const graph_value slot = indices(m, 1, s[0], 1, 1, 0, true),
                      pos = indices(m, 1, s[0], 1, s[0], 0, true);
    counted(m, 4.0 * s[0] * s[1] * s[2], s[0] * s[1] * row_bytes(m, s[2]), 0);
    return m->adding ? 0 : graph_kv_write(m->g, cache, x, slot, pos);
}

/* The last N positions of KEYS, each over those before it. */
static graph_value make_attention(op_maker *m, const uint32_t *s) {
    const uint32_t n = s[0], keys = s[1], heads = s[2], d = s[3];
    const uint32_t cache[] = {1, keys, heads, d};
    if (n > keys) fail(m, BERYL_BAD_INPUT, "more positions than keys");
    const graph_value q = activation(m, 3, (uint32_t[]){n, heads, d}),
                      k = state(m, m->type, 4, cache), v = state(m, m->type, 4, cache);
    const graph_value slot = indices(m, 1, n, 1, 1, 0, true),
                      pos = indices(m, 1, n, 1, keys, keys - n, true);
    const double pairs = (double)n * (keys - n) + 0.5 * n * (n + 1.0), wide = (double)heads * d;
    counted(m, 2.0 * keys * heads * row_bytes(m, d) + 4.0 * n * wide, 4.0 * n * wide,
            4.0 * pairs * wide);
    return m->adding ? 0 : graph_attention(m->g, q, k, v, slot, pos, 0.125f, 0);
}

/* Of N rows, each over the keys before it: sums alone, or what is made of them towards q, k or v
 * (1, 2 or 3). */
static graph_value make_backward(op_maker *m, const uint32_t *s) {
    if (!BUILD_HAS_TRAINING) return 0;
    const uint32_t n = s[0], heads = s[1], d = s[2], rows[] = {n, heads, d},
                   keys[] = {1, n, heads, d};
    const bool back = m->op == OP_ATTENTION_BACK;
    const graph_value q = activation(m, 3, rows), slope = activation(m, 3, rows),
                      k = activation_of(m, m->type, 4, keys),
                      v = back ? activation_of(m, m->type, 4, keys) : 0, y = activation(m, 3, rows);
    const graph_value slot = indices(m, 1, n, 1, 1, 0, true), pos = indices(m, 1, n, 1, n, 0, true);
    const double pairs = 0.5 * n * (n + 1.0), wide = (double)heads * d;
    counted(m, 4 * row_bytes(m, d) * heads * n + 12.0 * n * wide, 4.0 * n * wide,
            (back ? s[3] == 3 ? 6 : 8 : 2) * pairs * wide);
    if (m->adding) return 0;
    const graph_value sums =
        graph_op(m->g, OP_ATTENTION_SUMS,
                 (graph_value[GRAPH_IN_MAX]){q, graph_copy(m->g, k), y, slot, pos, slope},
                 (graph_attrs){.attention_sums = {0.125f, 0}});
    return back ? graph_op(m->g, OP_ATTENTION_BACK,
                           (graph_value[GRAPH_IN_MAX]){q, k, v, slope, sums},
                           (graph_attrs){.attention_back = {0.125f, s[3] - 1}})
                : sums;
}

static graph_value make_argmax(op_maker *m, const uint32_t *s) {
    const graph_value x = rows(m, s[0], s[1]);
    counted(m, 4.0 * s[0] * s[1], 4.0 * s[0], 0);
    return m->adding ? 0 : graph_argmax(m->g, x);
}

static graph_value make_sample(op_maker *m, const uint32_t *s) {
    const graph_value x = rows(m, s[0], s[1]);
    counted(m, 4.0 * s[0] * s[1], 4.0 * s[0], 0);
    if (m->adding) return 0;
    return graph_sample(m->g, x, sent(m, "settings", TYPE_U32, 2, (uint32_t[]){s[0], 8}));
}

/* For the passes to join. */
static graph_value make_chain(op_maker *m, const uint32_t *s) {
    const graph_value x = rows(m, s[0], s[1]), y = rows(m, s[0], s[1]),
                      w = weight(m, TYPE_F32, 1, &s[1]);
    counted(m, 8.0 * s[0] * s[1] + 4.0 * s[1], 4.0 * s[0] * s[1], 0);
    if (m->adding) return 0;
    const graph_value sum =
        graph_add(m->g, x, graph_rms_norm(m->g, graph_gelu_tanh(m->g, y), w, 1e-6f));
    return graph_softmax(m->g, graph_scale(m->g, sum, 0.5f));
}

/* ---- the table ------------------------------------------------------------------------------- */

#define USUAL      \
    {256, 1024}, { \
        8192, 4096 \
    }
/* clang-format off */
static const op_case usual = {"ROWS,WIDTH", 2, USUAL, make_usual, OP_F32_ALONE, {{5, 1536}, {7, 61}}},
                     own[OP_COUNT] = {
    [OP_LINEAR] = {"M,N,K", 3, {1024, 1, 1024}, {8192, 1, 4096}, make_linear, OP_WEIGHT_TYPES,
                   {{72, 1, 512}, {72, 5, 512}, {72, 40, 512}}},
    [OP_LINEAR_ID] = {"M,N,K", 3, {512, 1, 512}, {4096, 1, 2048}, make_linear_id, OP_WEIGHT_TYPES_ONCE,
                      {{64, 1, 256}, {64, 40, 256}}},
    [OP_CONTRACT] = {"M,N,K,T", 4, {512, 512, 512, 1}, {4096, 4096, 4096, 1}, make_contract, OP_FLOAT_TYPES,
                     {{72, 40, 96, 1}, {33, 65, 31, 4}}},
    [OP_GATHER_ROWS] = {"ROWS,WIDTH", 2, {64, 1024}, {4096, 2048}, make_gather, OP_WEIGHT_TYPES, {{5, 512}}},
    [OP_GATHER] = {"ROWS,WIDTH", 2, USUAL, make_by_index, OP_F32_ALONE, {{7, 96}}},
    [OP_SCATTER] = {"ROWS,WIDTH", 2, USUAL, make_by_index, OP_F32_ALONE, {{7, 96}}},
    [OP_SCATTER_ADD] = {"ROWS,WIDTH", 2, USUAL, make_by_index, OP_F32_ALONE, {{7, 96}}},
    [OP_ONE_HOT] = {"ROWS,WIDTH", 2, USUAL, make_by_index, OP_F32_ALONE, {{7, 96}}},
    [OP_COPY] = {"ROWS,WIDTH", 2, USUAL, make_copy, OP_F32_ALONE, {{7, 96}}},
    [OP_FOURIER] = {"ROWS,WIDTH", 2, USUAL, make_usual, OP_F32_ALONE, {{7, 96}}},
    [OP_TOPK] = {"ROWS,WIDTH", 2, {4, 4096}, {64, 32768}, make_topk, OP_F32_ALONE, {{4, 256}}},
    [OP_WEIGHTED_SUM] = {"ROWS,WIDTH", 2, {32, 1024}, {2048, 2048}, make_weighted_sum, OP_F32_ALONE,
                         {{5, 96}}},
    [OP_ROPE] = {"ROWS,HEADS,DIM", 3, {64, 8, 64}, {4096, 16, 256}, make_rope, OP_F32_ALONE, {{5, 4, 64}}},
    [OP_KV_WRITE] = {"ROWS,HEADS,DIM", 3, {64, 8, 64}, {4096, 8, 256}, make_kv_write, OP_CACHE_TYPES,
                     {{5, 2, 64}}},
    [OP_ATTENTION] = {"N,KEYS,HEADS,DIM", 4, {1, 512, 8, 64}, {1, 8192, 8, 256}, make_attention,
                      OP_CACHE_TYPES, {{1, 96, 4, 64}, {40, 96, 4, 64}}},
    [OP_ATTENTION_SUMS] = {"N,HEADS,DIM", 3, {512, 8, 64}, {4096, 16, 128}, make_backward, OP_HALF_TYPES,
                           {{40, 4, 64}}},
    [OP_ATTENTION_BACK] = {"N,HEADS,DIM,TOWARDS", 4, {512, 8, 64, 1}, {4096, 16, 128, 1}, make_backward,
                           OP_HALF_TYPES, {{40, 4, 64, 1}, {40, 4, 64, 2}, {40, 4, 64, 3}}},
    [OP_ARGMAX] = {"ROWS,WIDTH", 2, {4, 32768}, {16, 262144}, make_argmax, OP_F32_ALONE, {{4, 3001}}},
    [OP_SAMPLE] = {"ROWS,WIDTH", 2, {1, 32768}, {1, 262144}, make_sample, OP_F32_ALONE, {{4, 3001}}},
    [OP_SET_ROWS] = {"ROWS,WIDTH", 2, {64, 1024}, {8192, 4096}, make_set_rows, OP_F32_ALONE, {{7, 96}}},
    [OP_ASSIGN] = {"ROWS,WIDTH", 2, {64, 1024}, {8192, 4096}, make_assign, OP_F32_ALONE, {{7, 96}}},
    [OP_FUSED] = {"ROWS,WIDTH", 2, USUAL, make_chain, OP_F32_ALONE, {{5, 256}}},
};
/* clang-format on */

const op_case *op_case_of(base_op op) {
    return own[op].make ? &own[op] : &usual;
}

static const base_type weight_types[] = {
#define X(name, ...) TYPE_##name,
    BASE_WEIGHT_LIST(X)
#undef X
};
static const base_type cache_types[] = {TYPE_F32, TYPE_F16, TYPE_Q8_0},
                       float_types[] = {TYPE_F32, TYPE_F16, TYPE_BF16};

uint32_t op_case_types(const op_case *c, uint32_t shape, const base_type **types) {
    *types = c->types == OP_CACHE_TYPES || c->types == OP_HALF_TYPES ? cache_types
             : c->types == OP_FLOAT_TYPES                            ? float_types
                                                                     : weight_types;
    switch (c->types) {
    case OP_F32_ALONE: return 1;
    case OP_CACHE_TYPES: return sizeof cache_types / sizeof *cache_types;
    case OP_HALF_TYPES: return 2;
    case OP_FLOAT_TYPES: return sizeof float_types / sizeof *float_types;
    case OP_WEIGHT_TYPES_ONCE:
        if (shape > 0) return BASE_USUAL_TYPES;
        break;
    case OP_WEIGHT_TYPES: break;
    }
    return sizeof weight_types / sizeof *weight_types;
}

void op_maker_fini(op_maker *m) {
    base_vec_fini(m->heap, &m->indices);
}
