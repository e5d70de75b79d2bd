/* ops_test.c - every small operation, attention and sampling: a graph of few nodes on the device
 * against the same graph on the reference functions. One table of cases; each runs in every form
 * that the lowering chooses between: those of forms.c, and on the software device with fewer
 * abilities, and as GPUs with and without subgroups. Each case runs twice with other data, first at
 * the bounds of its extents, then with fewer rows: states keep what they had beyond those. */
#define _POSIX_C_SOURCE 200809L
#include "forms.h"
#include "interpreter.h"
#include "rig.h"

#include "base/error.h"
#include "base/sample.h"
#include "base/thread.h"
#include "plan/exec.h"
#include "tile/fused.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { IN_MAX = 64, OUT_MAX = 4, P_MAX = 10, NORM_MAX = 4096 };

typedef enum fill {
    FILL_UNIT,     /* f32 in -1 .. 1 */
    FILL_WIDE,     /* f32 of all sizes up to `most`, both signs, some zeros */
    FILL_TIES,     /* f32 whole numbers in 0 .. most */
    FILL_INDEX,    /* i32 in 0 .. most - 1 */
    FILL_DISTINCT, /* i32, different from each other, below most */
    FILL_COUNT,    /* i32 rising by 1 from `most` */
    FILL_SAME,     /* i32 `most` */
    FILL_LATE,     /* i32 in most / 2 .. most - 1 */
    FILL_SETTINGS, /* base_sample_settings */
    FILL_ODD,      /* f32 with NaN and infinities among them */
    FILL_LIST,     /* i32: list `most` of lists[], from another one of it in each run */
    FILL_FIRST,    /* i32: of range `most`, as range_at; */
    FILL_LAST,
    FILL_FAR,   /* f32 in -1 .. 1 away from `most` */
    FILL_RISING /* f32 rising to `most` */
} fill;

typedef struct input {
    graph_value value;
    fill fill;
    float most;
} input;

typedef struct setup { /* a graph being built */
    const uint32_t *p; /* of the case */
    graph *g;
    graph_store *store;
    const uint32_t *states;
    uint8_t rows; /* extent of the rows */
    input inputs[IN_MAX];
    uint32_t n_input, n_output;
    graph_value outputs[OUT_MAX];
} setup;

typedef struct op_case {
    const char *name;
    void (*build)(setup *s);
    uint32_t p[P_MAX];
    uint32_t rows, fewer; /* bound of the extent; value of the second run */
    /* |difference| <= within + relative * |value|; 0, 0: equal bits */
    float within, relative;
    const char *why; /* of the tolerance */
    void (*states)(const uint32_t *p, graph_store *store, uint32_t *states);
} op_case;

/* ---- numbers out of range -------------------------------------------------------------------- */

typedef enum list { /* the two of writes belong together */
                    LIST_WRITE_SLOTS,
                    LIST_WRITE_POSITIONS,
                    LIST_SLOTS,
                    LIST_POSITIONS,
                    LIST_ROWS
} list;

enum { LIST_MAX = 11 };

static const struct {
    uint32_t n;
    int32_t at[LIST_MAX];
} lists[] = {
    /* of two slots; a row of each is written, far behind */
    [LIST_WRITE_SLOTS] = {9, {-1, 0, 1, 2, 0, 0, INT32_MAX, INT32_MIN, 0}},
    [LIST_WRITE_POSITIONS] = {9, {3, -1, 2000000000, 4, INT32_MAX, -5, 5, 6, INT32_MIN}},
    [LIST_SLOTS] = {10, {0, 0, 1, -1, 0, 1, INT32_MAX, 0, INT32_MIN, 2}},
    [LIST_POSITIONS] = {11, {3, -5, 9, 2000000000, 0, -1, INT32_MAX, 5, INT32_MIN, 41, 8}},
    [LIST_ROWS] = {8, {-1, 0, 5, INT32_MAX, 2, INT32_MIN, 3, 2000000000}},
};

/* ---- ranges of keys -------------------------------------------------------------------------- */

typedef enum range_kind {
    RANGE_WINDOW,  /* of 9 keys, the row's own the last */
    RANGE_BLOCK,   /* the block of 7 rows, and the 9 keys before it: a picture in a window */
    RANGE_PACKED,  /* sequences of 1, 2, 3 .. rows */
    RANGE_PADDED,  /* the first 11 keys */
    RANGE_ENCODER, /* all rows of the run, whatever the cache holds besides */
    RANGE_NONE,    /* every third row sees none */
    RANGE_OUTSIDE  /* keys before the first, after the last that the cache can hold */
} range_kind;

static void range_at(range_kind kind, int32_t i, int32_t n, int32_t *first, int32_t *last) {
    static const int32_t ends[][2] = {
        {-7, 4},  {INT32_MIN, INT32_MAX}, {5, INT32_MAX},           {3, 2000000000},
        {-9, -2}, {INT32_MAX, 4},         {1999999995, 2000000001}, {0, 3}};
    int32_t start = 0, length = 1;
    *first = 0, *last = i;
    switch (kind) {
    case RANGE_WINDOW: *first = i - 8; break;
    case RANGE_BLOCK: *first = i / 7 * 7 - 9, *last = i / 7 * 7 + 6; break;
    case RANGE_PACKED:
        while (start + length <= i) start += length++;
        *first = start;
        break;
    case RANGE_PADDED: *last = 10; break;
    case RANGE_ENCODER: *last = n - 1; break;
    case RANGE_NONE: *first = i % 3 ? 0 : i + 1 + i % 2; break;
    case RANGE_OUTSIDE: *first = ends[i % 8][0], *last = ends[i % 8][1]; break;
    }
}

/* ---- building -------------------------------------------------------------------------------- */

static graph_value add_input(setup *s, base_type type, fill how, float most, uint32_t rank,
                             const graph_dim *dims) {
    graph_value v = graph_input(s->g, "x", type, rank, dims);
    assert(s->n_input < IN_MAX);
    s->inputs[s->n_input++] = (input){v, how, most};
    return v;
}

#define DIMS(...)                                                             \
    (sizeof((graph_dim[]){__VA_ARGS__}) / sizeof(graph_dim)), (graph_dim[]) { \
        __VA_ARGS__                                                           \
    }
#define ROWS(s) \
    { (s)->g->extents[(s)->rows].bound, (s)->rows }

static void add_output(setup *s, graph_value v) {
    graph_output(s->g, v, "y");
    s->outputs[s->n_output++] = v;
}

static graph_value apply(setup *s, base_op op, graph_value a, graph_value b) {
    switch ((int)op) {
    case OP_ADD: return graph_add(s->g, a, b);
    case OP_MUL: return graph_mul(s->g, a, b);
    case OP_GEGLU: return graph_geglu(s->g, a, b);
    case OP_SCALE: return graph_scale(s->g, a, -0.37f);
    case OP_GELU_TANH: return graph_gelu_tanh(s->g, a);
    case OP_SOFTCAP: return graph_softcap(s->g, a, 30);
    default: return graph_copy(s->g, a);
    }
}

/* p: op, columns, form of b: 0 same, 1 row, 2 one number a row, 3 a single number */
static void build_pointwise(setup *s) {
    const uint32_t d = s->p[1];
    graph_value a = add_input(s, TYPE_F32, FILL_WIDE, 100, DIMS(ROWS(s), {d, 0})), b = 0;
    if (s->p[2] == 0) b = add_input(s, TYPE_F32, FILL_WIDE, 3, DIMS(ROWS(s), {d, 0}));
    if (s->p[2] == 1) b = add_input(s, TYPE_F32, FILL_WIDE, 3, DIMS({d, 0}));
    if (s->p[2] == 2) b = add_input(s, TYPE_F32, FILL_WIDE, 3, DIMS(ROWS(s), {1, 0}));
    if (s->p[2] == 3) b = add_input(s, TYPE_F32, FILL_WIDE, 3, DIMS({1, 0}));
    add_output(s, apply(s, (base_op)s->p[0], a, b));
}

/* Views of one tensor [n, h, d]: heads [first, first + count) of it. p: op, h, d, first, count,
 * columns left out at the end */
static void build_strided(setup *s) {
    const uint32_t h = s->p[1], d = s->p[2];
    graph_value x = add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {h, 0}, {d, 0}));
    graph_value a = graph_narrow(s->g, x, 1, s->p[3], s->p[4], 1),
                b = graph_narrow(s->g, x, 1, 0, s->p[4], 1);
    if (s->p[5])
        a = graph_narrow(s->g, a, 2, s->p[5], d - s->p[5], 1),
        b = graph_narrow(s->g, b, 2, 0, d - s->p[5], 1);
    if (s->p[0] == OP_RMS_NORM) add_output(s, graph_rms_norm(s->g, a, 0, 1e-6f));
    else if (s->p[0] == OP_SOFTMAX) add_output(s, graph_softmax(s->g, a));
    else add_output(s, apply(s, (base_op)s->p[0], a, b));
}

/* Rows in the middle of the shape: [a, n, b] with broadcast [n, 1]. p: op, a, b */
static void build_middle(setup *s) {
    graph_value x = add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS({s->p[1], 0}, ROWS(s), {s->p[2], 0}));
    graph_value y = add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {1, 0}));
    if (s->p[0] == OP_RMS_NORM) add_output(s, graph_rms_norm(s->g, x, 0, 1e-6f));
    else add_output(s, apply(s, (base_op)s->p[0], x, y));
}

/* The last axis is the extent. p: op, rows, weighted or k, how it is filled */
static void build_varying(setup *s) {
    graph_value indices, x = add_input(s, TYPE_F32, (fill)s->p[3], 5, DIMS({s->p[1], 0}, ROWS(s)));
    const bool is_norm = s->p[0] == OP_RMS_NORM || s->p[0] == OP_LAYER_NORM;
    graph_value w = is_norm && s->p[2] ? add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s))) : 0;
    if (s->p[0] == OP_RMS_NORM) add_output(s, graph_rms_norm(s->g, x, w, 1e-6f));
    if (s->p[0] == OP_LAYER_NORM) add_output(s, graph_layer_norm(s->g, x, w, w, 1e-5f));
    /* a tree */
    if (s->p[0] == OP_SOFTMAX)
        add_output(s, graph_mul(s->g, graph_softmax(s->g, graph_scale(s->g, x, 3)), x));
    if (s->p[0] == OP_ARGMAX) add_output(s, graph_argmax(s->g, x));
    if (s->p[0] != OP_TOPK) return;
    add_output(s, graph_topk(s->g, x, s->p[2], &indices));
    add_output(s, indices);
}

/* p: row, weight or not */
static void build_rms_norm(setup *s) {
    graph_value x = add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {s->p[0], 0}));
    graph_value w = s->p[1] ? add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS({s->p[0], 0})) : 0;
    add_output(s, graph_rms_norm(s->g, x, w, 1e-6f));
}

/* p: row, 0 nothing, 1 a weight, 2 a bias too; how it is filled */
static void build_layer_norm(setup *s) {
    graph_value x = add_input(s, TYPE_F32, (fill)s->p[2], s->p[2] == FILL_FAR ? 3000 : 3,
                              DIMS(ROWS(s), {s->p[0], 0}));
    graph_value w = s->p[1] ? add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS({s->p[0], 0})) : 0;
    graph_value bias = s->p[1] > 1 ? add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS({s->p[0], 0})) : 0;
    add_output(s, graph_layer_norm(s->g, x, w, bias, 1e-5f));
}

/* [n, c, h, w], or [n, c] for h and w of 0. p: c, h, w, groups, as of layer_norm: weights, how it
 * is filled; 1: channels and columns cut out of more; 2: w is the extent */
static void build_group_norm(setup *s) {
    const uint32_t c = s->p[0], h = s->p[1], w = s->p[2], cut = s->p[6] == 1, rank = h ? 4 : 2;
    const graph_dim n = s->p[6] == 2 ? (graph_dim){2, 0} : (graph_dim)ROWS(s);
    graph_value x =
        add_input(s, TYPE_F32, (fill)s->p[5], s->p[5] == FILL_FAR ? 3000 : 3, rank,
                  (graph_dim[]){n,
                                {c + 3 * cut, 0},
                                {h, 0},
                                s->p[6] == 2 ? (graph_dim)ROWS(s) : (graph_dim){w + 5 * cut, 0}});
    if (cut) x = graph_narrow(s->g, x, 1, 2, c, 1);
    if (cut && h) x = graph_narrow(s->g, x, 3, 4, w, 1);
    graph_value weight = s->p[4] ? add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS({c, 0})) : 0;
    graph_value bias = s->p[4] > 1 ? add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS({c, 0})) : 0;
    add_output(s, graph_group_norm(s->g, x, weight, bias, s->p[3], 1e-5f));
}

/* [n, a, b], or [a, b, n] for an axis of 3. p: axis, a, b, how it is filled, 1: cut out of more */
static void build_cumsum(setup *s) {
    const uint32_t a = s->p[1], b = s->p[2], cut = s->p[4];
    const graph_dim n = ROWS(s), first[3] = {n, {a + 2 * cut, 0}, {b + 3 * cut, 0}},
                    last[3] = {{a, 0}, {b, 0}, n};
    graph_value x = add_input(s, TYPE_F32, (fill)s->p[3], 3, 3, s->p[0] == 3 ? last : first);
    if (cut) x = graph_narrow(s->g, graph_narrow(s->g, x, 1, 1, a, 1), 2, 2, b, 1);
    add_output(s, graph_cumsum(s->g, x, s->p[0] == 3 ? 2 : s->p[0]));
}

/* [2, 3, 1, n, 2, 1, 3, 2] along each axis in turn. p: the axis */
static void build_cumsum_of_eight(setup *s) {
    graph_value x =
        add_input(s, TYPE_F32, FILL_TIES, 3,
                  DIMS({2, 0}, {3, 0}, {1, 0}, ROWS(s), {2, 0}, {1, 0}, {3, 0}, {2, 0}));
    for (uint32_t i = 0; i < 4; i++) add_output(s, graph_cumsum(s->g, x, s->p[0] + i));
}

static void build_softmax(setup *s) {
    add_output(
        s, graph_softmax(s->g, add_input(s, TYPE_F32, FILL_WIDE, 30, DIMS(ROWS(s), {s->p[0], 0}))));
}

/* p: row, k, how it is filled */
static void build_topk(setup *s) {
    graph_value indices, x = add_input(s, TYPE_F32, (fill)s->p[2], 5, DIMS(ROWS(s), {s->p[0], 0}));
    graph_value values = graph_topk(s->g, x, s->p[1], &indices);
    add_output(s, values);
    add_output(s, indices);
}

/* p: u, d */
static void build_weighted_sum(setup *s) {
    graph_value x = add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {s->p[0], 0}, {s->p[1], 0}));
    add_output(s, graph_weighted_sum(
                      s->g, x, add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {s->p[0], 0}))));
}

/* p: heads, d, heads in the tensor that they are cut out of */
static void build_rope(setup *s) {
    graph_value x = add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {s->p[2], 0}, {s->p[1], 0}));
    graph_value angles =
        add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {2, 0}, {s->p[1] / 2, 0}));
    add_output(s,
               graph_rope(s->g, graph_narrow(s->g, x, 1, s->p[2] - s->p[0], s->p[0], 1), angles));
}

/* p: type, columns (0: rank 1), state rows */
static void states_rows(const uint32_t *p, graph_store *store, uint32_t *states) {
    states[0] =
        store_add_state(store, "rows", (base_type)p[0], p[1] ? 2 : 1, (uint32_t[]){p[2], p[1]}, 1);
}

static void build_set_rows(setup *s) {
    const uint32_t d = s->p[1];
    const graph_dim dims[2] = {ROWS(s), {d, 0}};
    graph_value state = graph_stored(s->g, s->store, s->states[0]);
    graph_value x = add_input(s, (base_type)s->p[0], s->p[0] == TYPE_I32 ? FILL_INDEX : FILL_UNIT,
                              1000, d ? 2 : 1, dims);
    graph_value index = add_input(s, TYPE_I32, FILL_DISTINCT, (float)s->p[2], DIMS(ROWS(s)));
    graph_value after = graph_set_rows(s->g, state, x, index);
    if (s->p[0] != TYPE_F32) { /* read back by rows */
        graph_value all = add_input(s, TYPE_I32, FILL_COUNT, 0, DIMS({s->p[2], 0}));
        add_output(s, graph_gather_rows(s->g, after, all, 1));
        return;
    }
    add_output(s, graph_copy(s->g, after));
}

/* p: cache type, query heads, kv heads, d, slots, rows of the cache, window, filled rows, 1:
 * every row a slot of its own. Writes `filled` keys and values, then attends from `rows`
 * queries. */
static void states_cache(const uint32_t *p, graph_store *store, uint32_t *states) {
    const uint32_t dim[4] = {p[4], p[5], p[2], p[3]};
    states[0] = store_add_state(store, "k", (base_type)p[0], 4, dim, 1);
    states[1] = store_add_state(store, "v", (base_type)p[0], 4, dim, 1);
}

static void fill_caches(setup *s, graph_value *keys_after, graph_value *values_after) {
    const uint32_t *p = s->p, fills = p[7];
    graph_value k = graph_stored(s->g, s->store, s->states[0]),
                v = graph_stored(s->g, s->store, s->states[1]);
    /* every slot gets keys at the same positions, each row of the cache once a write */
    for (uint32_t slot = 0; slot < p[4]; slot++)
        for (uint32_t first = 0, n; first < fills; first += n) {
            n = fills - first < p[5] ? fills - first : p[5];
            graph_value keys =
                add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS({n, 0}, {p[2] * 2, 0}, {p[3], 0}));
            graph_value pos = add_input(s, TYPE_I32, FILL_COUNT, (float)first, DIMS({n, 0}));
            graph_value slots = add_input(s, TYPE_I32, FILL_SAME, (float)slot, DIMS({n, 0}));
            k = graph_kv_write(s->g, k, graph_narrow(s->g, keys, 1, 0, p[2], 1), slots, pos);
            v = graph_kv_write(s->g, v, graph_narrow(s->g, keys, 1, p[2], p[2], 1), slots, pos);
        }
    *keys_after = k;
    *values_after = v;
}

static void build_attention(setup *s) {
    const uint32_t *p = s->p, fills = p[7];
    graph_value k, v;
    fill_caches(s, &k, &v);
    graph_value q = add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {p[1] + 1, 0}, {p[3], 0}));
    graph_value slot = add_input(s, TYPE_I32, p[8] ? FILL_INDEX : FILL_SAME,
                                 (float)(p[8] ? p[4] : p[4] - 1), DIMS(ROWS(s)));
    const uint32_t rows = s->g->extents[s->rows].bound;
    graph_value pos =
        p[8] ? add_input(s, TYPE_I32, FILL_LATE, (float)fills, DIMS(ROWS(s)))
             : add_input(s, TYPE_I32, FILL_COUNT, (float)(fills - rows), DIMS(ROWS(s)));
    add_output(s, graph_attention(s->g, graph_narrow(s->g, q, 1, 1, p[1], 1), k, v, slot, pos, 0.7f,
                                  p[6]));
}

/* p: as build_attention, but 8: range_kind; 9: slots mixed. Of a window the difference to the
 * attention that has it. */
static void build_range(setup *s) {
    const uint32_t *p = s->p;
    graph_value k, v;
    fill_caches(s, &k, &v);
    graph_value q = add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {p[1] + 1, 0}, {p[3], 0}));
    q = graph_narrow(s->g, q, 1, 1, p[1], 1);
    graph_value slot = add_input(s, TYPE_I32, p[9] ? FILL_INDEX : FILL_SAME,
                                 (float)(p[9] ? p[4] : p[4] - 1), DIMS(ROWS(s))),
                first = add_input(s, TYPE_I32, FILL_FIRST, (float)p[8], DIMS(ROWS(s))),
                last = add_input(s, TYPE_I32, FILL_LAST, (float)p[8], DIMS(ROWS(s)));
    graph_value y = graph_attention_range(s->g, q, k, v, slot, first, last, 0.7f);
    if (p[8] == RANGE_WINDOW)
        y = graph_add(s->g, y,
                      graph_scale(s->g, graph_attention(s->g, q, k, v, slot, last, 0.7f, 9), -1));
    add_output(s, y);
}

/* The backward pass of x: q, k, v, slots, last and first keys (0: none), of any result. */
static void add_backward(setup *s, const graph_value *x) {
    const graph_dim *q = graph_tensor_at(s->g, x[0])->dim, dims[3] = {q[0], q[1], q[2]};
    const graph_value y = add_input(s, TYPE_F32, FILL_UNIT, 1, 3, dims),
                      d = add_input(s, TYPE_F32, FILL_UNIT, 1, 3, dims),
                      in[] = {x[0], x[1], y, x[3], x[4], d, x[5]},
                      sums = graph_op(s->g, OP_ATTENTION_SUMS, in,
                                      (graph_attrs){.attention_sums = {0.7f, s->p[4]}});
    add_output(s, sums);
    for (uint32_t i = 0; i < 3; i++)
        add_output(s, graph_op(s->g, OP_ATTENTION_BACK, (graph_value[]){x[0], x[1], x[2], d, sums},
                               (graph_attrs){.attention_back = {0.7f, i}}));
}

/* Without a cache, keys and values of this run. p: query heads, kv heads, d, 0 inputs, 1 scaled, 2
 * parts of one tensor, 3 F16, window, range_kind, 1: the range is given, 1: its backward pass */
static void build_plain(setup *s) {
    const uint32_t *p = s->p;
    const graph_dim dims[4] = {{2, 0}, ROWS(s), {p[1], 0}, {p[2], 0}},
                    one[4] = {{1, 0}, ROWS(s), {p[1], 0}, {p[2], 0}};
    graph_value q = add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {p[0], 0}, {p[2], 0}));
    graph_value k, v;
    if (p[3] == 2) {
        graph_value both = graph_scale(s->g, add_input(s, TYPE_F32, FILL_UNIT, 1, 4, dims), 0.5f);
        k = graph_narrow(s->g, both, 0, 1, 1, 1), v = graph_narrow(s->g, both, 0, 0, 1, 1);
    } else {
        k = add_input(s, TYPE_F32, FILL_UNIT, 1, 3, one + 1);
        v = add_input(s, TYPE_F32, FILL_UNIT, 1, 3, one + 1);
        if (p[3]) k = graph_scale(s->g, k, 0.5f), v = graph_scale(s->g, v, 2);
        if (p[3] == 3) k = graph_cast(s->g, k, TYPE_F16, 0), v = graph_cast(s->g, v, TYPE_F16, 0);
        k = graph_reshape(s->g, k, 4, one), v = graph_reshape(s->g, v, 4, one);
    }
    graph_value slot = add_input(s, TYPE_I32, FILL_SAME, 0, DIMS(ROWS(s))),
                first = add_input(s, TYPE_I32, FILL_FIRST, (float)p[5], DIMS(ROWS(s))),
                last = add_input(s, TYPE_I32, FILL_LAST, (float)p[5], DIMS(ROWS(s)));
    if (p[7]) add_backward(s, (graph_value[]){q, k, v, slot, last, p[6] ? first : 0});
    else
        add_output(s, p[6] ? graph_attention_range(s->g, q, k, v, slot, first, last, 0.7f)
                           : graph_attention(s->g, q, k, v, slot, last, 0.7f, p[4]));
}

static graph_value add_list(setup *s, list which) {
    return add_input(s, TYPE_I32, FILL_LIST, (float)which, DIMS(ROWS(s)));
}

/* p: as above, but 8: 0 every row in the last slot, 1 slots out of range too. Writes at slots and
 * positions out of range, which the attention at others sees. */
static void build_attention_outside(setup *s) {
    const uint32_t *p = s->p;
    graph_value k, v;
    fill_caches(s, &k, &v);
    graph_value x = add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {p[2], 0}, {p[3], 0}));
    graph_value slot = add_list(s, LIST_WRITE_SLOTS), pos = add_list(s, LIST_WRITE_POSITIONS);
    if (s->g->extents[s->rows].bound <= lists[LIST_WRITE_SLOTS].n) /* no place comes twice */
        k = graph_kv_write(s->g, k, x, slot, pos);
    graph_value q = add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {p[1], 0}, {p[3], 0}));
    slot = p[8] ? add_list(s, LIST_SLOTS)
                : add_input(s, TYPE_I32, FILL_SAME, (float)(p[4] - 1), DIMS(ROWS(s)));
    add_output(s, graph_attention(s->g, q, k, v, slot, add_list(s, LIST_POSITIONS), 0.7f, p[6]));
}

/* p: op (OP_FUSED: products with experts that are joined), columns of a row, rows of the table */
static void states_outside(const uint32_t *p, graph_store *store, uint32_t *states) {
    const uint32_t d = p[1], n = p[2];
    if (p[0] == OP_SET_ROWS)
        states[0] = store_add_state(store, "rows", TYPE_F32, 2, (uint32_t[]){n, d}, 1);
    else if (p[0] == OP_GATHER_ROWS)
        states[0] =
            store_add_weight(store, "rows", TYPE_F32, 2, (uint32_t[]){n, d}, 0, 0, 0, false);
    else
        states[0] =
            store_add_weight(store, "up", TYPE_F32, 3, (uint32_t[]){n, 16, d}, 0, 0, 0, false);
    if (p[0] == OP_FUSED)
        states[1] =
            store_add_weight(store, "down", TYPE_F32, 3, (uint32_t[]){n, d, 8}, 0, 0, 0, false);
}

static void build_experts_outside(setup *s, graph_value w, graph_value ids) {
    const uint32_t d = s->p[1];
    graph_value x = add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {1, 0}, {d, 0}));
    ids = graph_reshape(s->g, ids, 2, (graph_dim[]){ROWS(s), {1, 0}});
    graph_value y = graph_linear_id(s->g, x, w, ids);
    if (s->p[0] == OP_FUSED) {
        graph_value down = graph_stored(s->g, s->store, s->states[1]),
                    gates = add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {1, 0}));
        y = graph_geglu(s->g, graph_narrow(s->g, y, 2, 0, 8, 1), graph_narrow(s->g, y, 2, 8, 8, 1));
        y = graph_weighted_sum(s->g, graph_linear_id(s->g, y, down, ids), gates);
    }
    add_output(s, y);
}

static void build_outside(setup *s) {
    graph_value rows = graph_stored(s->g, s->store, s->states[0]), ids = add_list(s, LIST_ROWS);
    if (s->p[0] == OP_GATHER_ROWS) {
        add_output(s, graph_gather_rows(s->g, rows, ids, 2));
        add_output(s, graph_gather_rows(s->g, rows, ids, 1));
    } else if (s->p[0] == OP_SET_ROWS) {
        graph_value x = add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {s->p[1], 0}));
        add_output(s, graph_copy(s->g, graph_set_rows(s->g, rows, x, ids)));
    } else {
        build_experts_outside(s, rows, ids);
    }
}

/* p: as above, but 8: 0 owner, 1 the caches hold this run's rows, 2 values are the raw keys, and
 * 4 more: slots and positions out of range; 9: rows of a product that takes the place of the
 * result, 0: none. A decode step from the raw products, then an attention apart from it that
 * shows what was stored. */
static void states_step(const uint32_t *p, graph_store *store, uint32_t *states) {
    states_cache(p, store, states);
    states[2] = store_add_weight(store, "w_q", TYPE_F32, 1, (uint32_t[]){p[3]}, 2, 0, 0, false);
    states[3] = store_add_weight(store, "w_k", TYPE_F32, 1, (uint32_t[]){p[3]}, 2, 0,
                                 (NORM_MAX - p[3]) * 4, false);
    if (p[9])
        states[4] = store_add_weight(store, "w_o", TYPE_F32, 2, (uint32_t[]){p[9], p[1] * p[3]}, 0,
                                     0, 0, false);
}

static graph_value heads_of(setup *s, graph_value raw, uint32_t heads, uint32_t weight) {
    graph_value x = graph_reshape(s->g, raw, 3, (graph_dim[]){ROWS(s), {heads, 0}, {s->p[3], 0}});
    return graph_rms_norm(s->g, x, weight ? graph_stored(s->g, s->store, s->states[weight]) : 0,
                          1e-6f);
}

static void build_step(setup *s) {
    const uint32_t *p = s->p, fills = p[7], d = p[3], kind = p[8] % 4;
    const bool outside = p[8] >= 4;
    graph_value k, v;
    fill_caches(s, &k, &v);
    graph_value q = add_input(s, TYPE_F32, FILL_UNIT, 3, DIMS(ROWS(s), {p[1] * d, 0}));
    graph_value slot = outside ? add_list(s, LIST_WRITE_SLOTS)
                               : add_input(s, TYPE_I32, FILL_DISTINCT, (float)p[4], DIMS(ROWS(s)));
    graph_value pos = outside ? add_list(s, LIST_WRITE_POSITIONS)
                              : add_input(s, TYPE_I32, FILL_LATE,
                                          (float)(kind == 1 ? fills : fills + 1), DIMS(ROWS(s)));
    graph_value angles = add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {2, 0}, {d / 2, 0}));
    graph_value query = graph_rope(s->g, heads_of(s, q, p[1], 2), angles);
    if (kind != 1) {
        graph_value key = add_input(s, TYPE_F32, FILL_UNIT, 3, DIMS(ROWS(s), {p[2] * d, 0}));
        graph_value value =
            kind == 2 ? key : add_input(s, TYPE_F32, FILL_UNIT, 3, DIMS(ROWS(s), {p[2] * d, 0}));
        k = graph_kv_write(s->g, k, graph_rope(s->g, heads_of(s, key, p[2], 3), angles), slot, pos);
        v = graph_kv_write(s->g, v, heads_of(s, value, p[2], 0), slot, pos);
    } else { /* as the passes see them once the layer that owns them is joined */
        k = graph_stored(s->g, s->store, s->states[0]);
        v = graph_stored(s->g, s->store, s->states[1]);
    }
    graph_value out = graph_attention(s->g, query, k, v, slot, pos, 0.3f, p[6]);
    graph_attention_distinct_slots(s->g, out, 0);
    if (p[9])
        out = graph_linear(s->g, graph_reshape(s->g, out, 2, (graph_dim[]){ROWS(s), {p[1] * d, 0}}),
                           graph_stored(s->g, s->store, s->states[4]));
    add_output(s, out);
    graph_value again = add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {p[1], 0}, {d, 0}));
    add_output(s, graph_attention(s->g, again, k, v, slot, pos, 1, p[6] ? 1 : 0));
}

/* p: columns, fill */
static void build_argmax(setup *s) {
    add_output(s, graph_argmax(
                      s->g, add_input(s, TYPE_F32, (fill)s->p[1], 9, DIMS(ROWS(s), {s->p[0], 0}))));
}

static void build_sample(setup *s) {
    graph_value x = add_input(s, TYPE_F32, (fill)s->p[1], 20, DIMS(ROWS(s), {s->p[0], 0}));
    add_output(
        s, graph_sample(s->g, x, add_input(s, TYPE_U32, FILL_SETTINGS, 0, DIMS(ROWS(s), {8, 0}))));
}

/* ---- trees of operations --------------------------------------------------------------------- */

/* p: form, columns, dispatches where trees are joined (0: not counted) */
typedef enum tree_form {
    TREE_THREE,
    TREE_SIX,
    TREE_NORMS,
    TREE_SOFTMAX,
    TREE_TWO_RESULTS,
    TREE_USED_BETWEEN,
    TREE_STATE,
    TREE_VIEWS,
    TREE_SUM,
    TREE_SUM_OF_MADE,
    TREE_TERMS,
    TREE_ARGMAX,
    TREE_TOPK,
    TREE_NORM_ARGMAX,
    TREE_SOFTMAX_TOPK,
    TREE_PRODUCT,
    TREE_PRODUCT_TANH,
    TREE_EXPERTS,
    TREE_SCAN_LAST,
    TREE_SCAN_FIRST,
    TREE_GROUPS,
    TREE_RANDOM
} tree_form;

static void states_tree(const uint32_t *p, graph_store *store, uint32_t *states) {
    if (p[0] == TREE_EXPERTS)
        states[0] = store_add_weight(store, "experts", TYPE_F32, 3, (uint32_t[]){5, p[3], p[1]}, 0,
                                     0, 0, false);
    if (p[0] == TREE_STATE)
        states[0] = store_add_state(store, "rows", TYPE_F32, 2, (uint32_t[]){19, p[1]}, 1);
}

static void build_scans(setup *s, graph_value x, graph_value y, graph_value w, graph_value one) {
    graph *g = s->g;
    graph_value a = graph_add(g, graph_mul(g, x, w), one), b;
    if (s->p[0] == TREE_SCAN_LAST) { /* of what is made, of a scan, and under softmax */
        a = graph_cumsum(g, a, 1);
        b = graph_softmax(g, graph_scale(g, graph_cumsum(g, graph_scale(g, a, 0.1f), 1), 0.1f));
        add_output(s, graph_add(g, b, y));
        add_output(s, a);
    } else { /* along rows of the run; not with a norm along the others */
        a = graph_cumsum(g, graph_mul(g, graph_cumsum(g, a, 0), y), 0);
        add_output(s, a);
        add_output(s, graph_rms_norm(g, graph_scale(g, a, 0.5f), w, 1e-2f));
    }
}

/* p[3]: groups; of what is made, with broadcast rows and columns */
static void build_groups(setup *s, graph_value w) {
    graph *g = s->g;
    const graph_dim shape[3] = {ROWS(s), {6, 0}, {s->p[1], 0}};
    graph_value a = add_input(s, TYPE_F32, FILL_UNIT, 1, 3, shape),
                b = add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS({6, 0}));
    a = graph_group_norm(g, graph_add(g, graph_mul(g, a, w), w), b, b, s->p[3], 1e-2f);
    a = graph_mul(g, a, add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS({6, 0}, {1, 0})));
    add_output(s, graph_gelu_tanh(g, graph_add(g, a, w)));
}

static void build_tree(setup *s) {
    const uint32_t d = s->p[1];
    graph *g = s->g;
    graph_value x = add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {d, 0})),
                y = add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {d, 0}));
    graph_value w = add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS({d, 0})),
                one = add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {1, 0}));
    graph_value a, b, indices;
    switch ((tree_form)s->p[0]) {
    case TREE_THREE:
        add_output(s, graph_scale(g, graph_mul(g, graph_add(g, x, y), w), 0.5f));
        break;
    case TREE_SIX:
        a = graph_mul(g, graph_gelu_tanh(g, graph_add(g, x, w)),
                      graph_softcap(g, graph_scale(g, y, 3), 5));
        add_output(s, graph_geglu(g, a, graph_add(g, x, one)));
        break;
    case TREE_NORMS:
        a = graph_add(g, x, graph_rms_norm(g, y, w, 1e-6f));
        add_output(s, a);
        add_output(s, graph_rms_norm(g, a, w, 1e-6f));
        break;
    case TREE_SOFTMAX:
        add_output(s, graph_mul(g, graph_softmax(g, graph_scale(g, graph_add(g, x, w), 4)), y));
        break;
    case TREE_TWO_RESULTS:
        a = graph_mul(g, x, y);
        add_output(s, a);
        add_output(s, graph_add(g, graph_scale(g, a, 2), graph_gelu_tanh(g, a)));
        break;
    /* two of the three by the search, whose kernel has them, and one after it */
    case TREE_USED_BETWEEN:
        a = graph_scale(g, graph_add(g, x, y), -1);
        b = graph_topk(g, a, 1, &indices);
        add_output(s, graph_mul(g, a, b));
        break;
    case TREE_STATE: { /* the sum reads the state before and after it changes */
        graph_value state = graph_stored(g, s->store, s->states[0]),
                    before = graph_scale(g, state, 2);
        graph_value after = graph_set_rows(
            g, state, graph_mul(g, x, y), add_input(s, TYPE_I32, FILL_DISTINCT, 19, DIMS(ROWS(s))));
        add_output(s, graph_add(g, before, after));
        break;
    }
    /* slices of rows, with the other half as its partner; rms over a reshaped sum */
    case TREE_VIEWS: {
        graph_value both = add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {3, 0}, {2 * d, 0}));
        a = graph_narrow(g, both, 2, 0, d, 1), b = graph_narrow(g, both, 2, d, d, 1);
        a = graph_add(g, graph_mul(g, graph_scale(g, a, 3), b), w);
        add_output(s, a);
        add_output(
            s, graph_rms_norm(
                   g, graph_scale(g, graph_reshape(g, a, 2, (graph_dim[]){ROWS(s), {3 * d, 0}}), 2),
                   0, 1e-6f));
        break;
    }
    /* a weighted sum begins it, of every other row; a second one is brought along, with what it
     * adds up */
    case TREE_SUM: {
        graph_value units = add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {6, 0}, {d, 0})),
                    gates = add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {3, 0}));
        b = graph_scale(g, graph_mul(g, graph_narrow(g, units, 1, 3, 3, 1), w), 2);
        a = graph_softcap(g, graph_weighted_sum(g, b, gates), 2);
        b = graph_weighted_sum(g, graph_narrow(g, units, 1, 0, 3, 1), gates);
        add_output(s, graph_rms_norm(g, graph_add(g, graph_mul(g, a, w), b), 0, 1e-2f));
        break;
    }
    case TREE_SUM_OF_MADE: /* weights that are of the result's shape are not of its place */
        a = graph_softmax(g, y);
        b = graph_weighted_sum(
            g, add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {d, 0}, {d, 0})), a);
        add_output(s, graph_mul(g, graph_scale(g, b, 3), a));
        break;
    /* before a sum and after; p[3]: 1: one of them is a result too; 2: as many as the run says */
    case TREE_TERMS: {
        const graph_dim n = s->p[3] == 2 ? (graph_dim){4, 0} : (graph_dim)ROWS(s),
                        u = s->p[3] == 2 ? (graph_dim)ROWS(s) : (graph_dim){3, 0};
        graph_value units = add_input(s, TYPE_F32, FILL_UNIT, 1,
                                      DIMS(n, {u.size + (u.extent ? 0 : 2), u.extent}, {d, 0}));
        graph_value gates =
            graph_scale(g,
                        graph_mul(g, add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(n, u)),
                                  add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(u))),
                        -3);
        a = u.extent ? units : graph_narrow(g, units, 1, 1, 3, 1),
        b = u.extent ? units : graph_narrow(g, units, 1, 2, 3, 1);
        a = graph_geglu(
            g,
            graph_add(g, graph_mul(g, a, w), add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(u, {1, 0}))),
            b);
        if (s->p[3] == 1) add_output(s, a);
        a = graph_weighted_sum(g, graph_scale(g, a, 0.5f), gates);
        add_output(s, graph_mul(g, graph_softcap(g, a, 2), w));
        break;
    }
    case TREE_ARGMAX: /* of rows that are broadcast too */
        add_output(s, graph_argmax(g, graph_softcap(g, graph_add(g, graph_mul(g, x, w), one), 8)));
        break;
    case TREE_TOPK: /* the sum is a result too; p[3]: how many */
        a = graph_add(g, x, w);
        add_output(s, a);
        add_output(s, graph_topk(g, graph_scale(g, a, -2), s->p[3], &indices));
        add_output(s, indices);
        break;
    case TREE_NORM_ARGMAX:
        add_output(s, graph_argmax(g, graph_add(g, graph_rms_norm(g, x, w, 1e-6f), y)));
        break;
    case TREE_SOFTMAX_TOPK: /* a router's */
        add_output(
            s, graph_scale(
                   g, graph_topk(g, graph_softmax(g, graph_scale(g, x, 2)), s->p[3], &indices), 3));
        add_output(s, indices);
        break;
    case TREE_PRODUCT: /* with a row, a number a row and a matrix; p[3]: columns of the result */
        b = add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {s->p[3], 0}));
        a = graph_linear(g, x, add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS({s->p[3], 0}, {d, 0})));
        a = graph_add(g, graph_scale(g, a, 0.25f),
                      add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS({s->p[3], 0})));
        add_output(s, a);
        add_output(s, graph_mul(g, graph_add(g, b, a), one));
        break;
    case TREE_PRODUCT_TANH: /* of more dimensions, with views: processors leave it apart */
        a = graph_linear(g, add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {2, 0}, {d, 0})),
                         add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS({s->p[3], 0}, {d, 0})));
        b = graph_narrow(g,
                         add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {5, 0}, {s->p[3], 0})),
                         1, 2, 2, 1);
        add_output(s, graph_geglu(g, graph_softcap(g, a, 4), b));
        break;
    case TREE_EXPERTS: /* with numbers of each pair and of each row; p[3]: columns of the result */
        a = graph_linear_id(g, graph_reshape(g, x, 3, (graph_dim[]){ROWS(s), {1, 0}, {d, 0}}),
                            graph_stored(g, s->store, s->states[0]),
                            add_input(s, TYPE_I32, FILL_INDEX, 5, DIMS(ROWS(s), {2, 0})));
        a = graph_mul(g, graph_scale(g, a, 0.25f),
                      add_input(s, TYPE_F32, FILL_UNIT, 1, DIMS(ROWS(s), {2, 0}, {1, 0})));
        add_output(s, a);
        add_output(s, graph_add(g, a,
                                add_input(s, TYPE_F32, FILL_UNIT, 1,
                                          DIMS(ROWS(s), {1, 0}, {s->p[3], 0}))));
        break;
    case TREE_SCAN_LAST:
    case TREE_SCAN_FIRST: build_scans(s, x, y, w, one); break;
    case TREE_GROUPS: build_groups(s, w); break;
    case TREE_RANDOM: { /* p[3]: seed */
        base_random r = {s->p[3]};
        graph_value made[20] = {x, y};
        uint32_t n = 2;
        while (n < 6 + s->p[3] % 12) {
            static const base_op ops[] = {OP_ADD,     OP_MUL,       OP_SCALE, OP_GELU_TANH,
                                          OP_GEGLU,   OP_SOFTCAP,   OP_ADD,   OP_RMS_NORM,
                                          OP_SOFTMAX, OP_LAYER_NORM};
            const base_op op = ops[base_random_next(&r) % 10];
            const uint32_t second = (uint32_t)(base_random_next(&r) % 6), near = n < 4 ? n : 4;
            a = made[n - 1 - base_random_next(&r) % near], b = second == 0 ? w
                                                               : second == 1
                                                                   ? one
                                                                   : made[base_random_next(&r) % n];
            if (op == OP_RMS_NORM) made[n++] = graph_rms_norm(g, a, second < 3 ? w : 0, 1e-2f);
            else if (op == OP_LAYER_NORM)
                made[n++] = graph_layer_norm(g, a, w, second ? w : 0, 1e-2f);
            else if (op == OP_SOFTMAX) made[n++] = graph_softmax(g, a);
            else made[n++] = apply(s, op, a, b);
        }
        add_output(s, made[n - 1]);
        if (n % 2) add_output(s, made[n - 3]);
        break;
    }
    }
}

/* ---- cases ----------------------------------------------------------------------------------- */

#define ROUNDING "f32 sums in another order"
#define EXPONENT "exp of a device: a few units in the last place"
#define UNROUNDED "the row's own key and value are taken before the cache rounds them"
#define GROWN "rounding that norms of small numbers and products make larger"
#define HALVES "queries, weights and values of the run in halves: scores of some units off by 2^-11"
#define QUANTUM "a division that rounds otherwise moves a tie by one step of 1/127"

/* clang-format off */
static const op_case cases[] = {
    {"add/one", build_pointwise, {OP_ADD, 1, 0}, 1, 1, 0, 0, "", NULL},
    {"add/prime", build_pointwise, {OP_ADD, 7, 0}, 13, 5, 0, 0, "", NULL},
    {"add/row", build_pointwise, {OP_ADD, 64, 1}, 9, 2, 0, 0, "", NULL},
    {"mul/number-a-row", build_pointwise, {OP_MUL, 64, 2}, 9, 4, 0, 0, "", NULL},
    {"mul/number", build_pointwise, {OP_MUL, 33, 3}, 5, 4, 0, 0, "", NULL},
    {"scale", build_pointwise, {OP_SCALE, 12, 9}, 5, 1, 0, 0, "", NULL},
    {"gelu_tanh/large-values", build_pointwise, {OP_GELU_TANH, 128, 9}, 17, 3, 2e-6f, 4e-6f, EXPONENT, NULL},
    {"geglu", build_pointwise, {OP_GEGLU, 96, 0}, 7, 6, 4e-6f, 4e-6f, EXPONENT, NULL},
    {"softcap/large-values", build_pointwise, {OP_SOFTCAP, 130, 9}, 7, 6, 1e-6f, 2e-6f, EXPONENT, NULL},
    {"copy/strided", build_strided, {OP_COPY, 5, 12, 2, 3, 0}, 6, 2, 0, 0, "", NULL},
    {"copy/strided-columns", build_strided, {OP_COPY, 5, 12, 1, 2, 3}, 6, 2, 0, 0, "", NULL},
    {"add/strided", build_strided, {OP_ADD, 5, 12, 2, 3, 0}, 6, 2, 0, 0, "", NULL},
    {"add/strided-columns", build_strided, {OP_ADD, 4, 9, 2, 2, 1}, 3, 2, 0, 0, "", NULL},
    {"add/rows-in-the-middle", build_middle, {OP_ADD, 3, 8}, 5, 2, 0, 0, "", NULL},
    {"rms_norm/rows-in-the-middle", build_middle, {OP_RMS_NORM, 3, 8}, 5, 2, 2e-6f, 4e-6f, ROUNDING, NULL},
    {"rms_norm/one", build_rms_norm, {1, 0}, 1, 1, 2e-6f, 4e-6f, ROUNDING, NULL},
    {"rms_norm/prime", build_rms_norm, {61, 1}, 11, 3, 2e-6f, 4e-6f, ROUNDING, NULL},
    {"rms_norm/head", build_rms_norm, {512, 1}, 67, 7, 2e-6f, 4e-6f, ROUNDING, NULL},
    {"rms_norm/wide", build_rms_norm, {1536, 1}, 5, 2, 2e-6f, 4e-6f, ROUNDING, NULL},
    {"rms_norm/wider-than-a-thread-walks", build_rms_norm, {20011, 0}, 2, 1, 2e-6f, 4e-6f, ROUNDING, NULL},
    {"rms_norm/strided-heads", build_strided, {OP_RMS_NORM, 5, 64, 1, 3, 0}, 6, 2, 2e-6f, 4e-6f, ROUNDING, NULL},
    {"layer_norm/one", build_layer_norm, {1, 0, FILL_UNIT}, 3, 1, 2e-6f, 4e-6f, ROUNDING, NULL},
    {"layer_norm/prime", build_layer_norm, {61, 1, FILL_TIES}, 11, 3, 4e-6f, 4e-6f, ROUNDING, NULL},
    {"layer_norm/wide", build_layer_norm, {1536, 2, FILL_UNIT}, 5, 2, 4e-6f, 4e-6f, ROUNDING, NULL},
    {"layer_norm/wider-than-a-thread-walks", build_layer_norm, {20011, 2, FILL_WIDE}, 2, 1, 4e-6f, 4e-6f, ROUNDING, NULL},
    {"layer_norm/many-rows", build_layer_norm, {4, 2, FILL_UNIT}, 4099, 70, 2e-5f, 4e-6f, ROUNDING, NULL},
    {"layer_norm/far-from-zero", build_layer_norm, {1536, 2, FILL_FAR}, 5, 2, 4e-6f, 4e-6f, ROUNDING, NULL},
    {"layer_norm/long-far-from-zero", build_layer_norm, {20011, 0, FILL_FAR}, 2, 1, 4e-6f, 4e-6f, ROUNDING, NULL},
    {"group_norm/one", build_group_norm, {1, 0, 0, 1, 0, FILL_UNIT}, 3, 1, 2e-6f, 4e-6f, ROUNDING, NULL},
    {"group_norm/flat", build_group_norm, {12, 0, 0, 3, 2, FILL_TIES}, 7, 2, 8e-6f, 4e-6f, ROUNDING, NULL},
    {"group_norm/channel-each", build_group_norm, {5, 3, 7, 5, 2, FILL_UNIT}, 3, 2, 8e-6f, 4e-6f, ROUNDING, NULL},
    {"group_norm/prime", build_group_norm, {6, 7, 13, 2, 1, FILL_UNIT}, 5, 2, 4e-6f, 4e-6f, ROUNDING, NULL},
    {"group_norm/vectors", build_group_norm, {8, 4, 16, 2, 2, FILL_UNIT}, 5, 2, 4e-6f, 4e-6f, ROUNDING, NULL},
    {"group_norm/without-weights", build_group_norm, {8, 4, 12, 2, 0, FILL_UNIT}, 5, 2, 4e-6f, 4e-6f, ROUNDING, NULL},
    {"group_norm/far-from-zero", build_group_norm, {8, 6, 16, 2, 2, FILL_FAR}, 3, 2, 4e-6f, 4e-6f, ROUNDING, NULL},
    {"group_norm/cut", build_group_norm, {6, 3, 11, 3, 2, FILL_UNIT, 1}, 3, 2, 4e-6f, 4e-6f, ROUNDING, NULL},
    {"group_norm/long", build_group_norm, {10, 40, 51, 2, 2, FILL_UNIT}, 2, 1, 4e-6f, 4e-6f, ROUNDING, NULL},
    {"group_norm/varying", build_group_norm, {6, 3, 0, 3, 2, FILL_UNIT, 2}, 31, 4, 4e-6f, 4e-6f, ROUNDING, NULL},
    {"group_norm/many-groups", build_group_norm, {64, 0, 0, 64, 0, FILL_UNIT}, 1030, 3, 4e-6f, 4e-6f, ROUNDING, NULL},
    {"group_norm/not-numbers", build_group_norm, {6, 2, 5, 3, 2, FILL_ODD}, 5, 3, 4e-6f, 4e-6f, ROUNDING, NULL},
    {"cumsum/one", build_cumsum, {2, 1, 1, FILL_TIES}, 3, 1, 0, 0, "", NULL},
    {"cumsum/prime", build_cumsum, {2, 3, 127, FILL_TIES}, 5, 2, 0, 0, "", NULL},
    {"cumsum/rounded", build_cumsum, {2, 1, 1000, FILL_UNIT}, 3, 2, 2e-5f, 1e-6f, ROUNDING, NULL},
    {"cumsum/wide", build_cumsum, {2, 1, 3000, FILL_TIES}, 2, 1, 0, 0, "", NULL},
    {"cumsum/wider-than-a-thread-walks", build_cumsum, {2, 1, 20011, FILL_TIES}, 2, 1, 0, 0, "", NULL},
    {"cumsum/longest", build_cumsum, {2, 1, 100000, FILL_TIES}, 1, 1, 0, 0, "", NULL},
    {"cumsum/first-axis", build_cumsum, {0, 3, 7, FILL_TIES}, 131, 40, 0, 0, "", NULL},
    {"cumsum/first-axis-of-many", build_cumsum, {0, 9, 67, FILL_TIES}, 67, 20, 0, 0, "", NULL},
    {"cumsum/first-axis-in-vectors", build_cumsum, {0, 16, 48, FILL_TIES}, 150, 20, 0, 0, "", NULL},
    {"cumsum/middle-axis-in-vectors", build_cumsum, {1, 19, 32, FILL_TIES}, 20, 3, 0, 0, "", NULL},
    {"cumsum/middle-axis-in-pairs", build_cumsum, {1, 19, 6, FILL_ODD}, 5, 3, 4e-6f, 1e-6f, ROUNDING, NULL},
    {"cumsum/middle-axis", build_cumsum, {1, 33, 5, FILL_TIES}, 6, 2, 0, 0, "", NULL},
    {"cumsum/middle-axis-cut", build_cumsum, {1, 33, 5, FILL_TIES, 1}, 6, 2, 0, 0, "", NULL},
    {"cumsum/last-axis-cut", build_cumsum, {2, 4, 37, FILL_TIES, 1}, 6, 2, 0, 0, "", NULL},
    {"cumsum/varying", build_cumsum, {3, 3, 2, FILL_TIES}, 1003, 37, 0, 0, "", NULL},
    {"cumsum/eight-axes", build_cumsum_of_eight, {0}, 5, 2, 0, 0, "", NULL},
    {"cumsum/eight-axes-other-half", build_cumsum_of_eight, {4}, 5, 2, 0, 0, "", NULL},
    {"cumsum/not-numbers", build_cumsum, {2, 2, 67, FILL_ODD}, 9, 2, 4e-6f, 1e-6f, ROUNDING, NULL},
    {"cumsum/many-rows", build_cumsum, {2, 1, 2, FILL_TIES}, 70001, 3, 0, 0, "", NULL},
    {"softmax/one", build_softmax, {1}, 3, 1, 1e-7f, 4e-6f, EXPONENT, NULL},
    {"softmax/prime", build_softmax, {127}, 19, 2, 1e-7f, 4e-6f, EXPONENT, NULL},
    {"softmax/wide", build_softmax, {3000}, 2, 1, 1e-7f, 8e-6f, EXPONENT, NULL},
    {"softmax/strided-heads", build_strided, {OP_SOFTMAX, 5, 33, 2, 3, 1}, 6, 2, 1e-7f, 4e-6f, EXPONENT, NULL},
    {"rms_norm/varying", build_varying, {OP_RMS_NORM, 3, 1, FILL_UNIT}, 1003, 37, 2e-6f, 4e-6f, ROUNDING, NULL},
    {"layer_norm/varying", build_varying, {OP_LAYER_NORM, 3, 1, FILL_UNIT}, 131, 4, 4e-6f, 4e-6f, ROUNDING, NULL},
    {"softmax/varying", build_varying, {OP_SOFTMAX, 5, 0, FILL_WIDE}, 127, 3, 1e-6f, 8e-6f, EXPONENT, NULL},
    {"topk/varying", build_varying, {OP_TOPK, 3, 8, FILL_TIES}, 100, 5, 0, 0, "", NULL},
    {"argmax/varying", build_varying, {OP_ARGMAX, 3, 0, FILL_ODD}, 5003, 2, 0, 0, "", NULL},
    {"rms_norm/many-rows", build_rms_norm, {1, 0}, 262657, 3, 2e-6f, 4e-6f, ROUNDING, NULL},
    {"tree/three", build_tree, {TREE_THREE, 64, 1}, 9, 2, 0, 0, "", states_tree},
    {"tree/three-odd", build_tree, {TREE_THREE, 61, 1}, 9, 2, 0, 0, "", states_tree},
    {"tree/three-many", build_tree, {TREE_THREE, 1023, 1}, 1030, 1025, 0, 0, "", states_tree},
    {"tree/six", build_tree, {TREE_SIX, 100, 1}, 13, 5, 2e-6f, 8e-6f, EXPONENT, states_tree},
    {"tree/norms", build_tree, {TREE_NORMS, 1536, 1}, 5, 2, 4e-6f, 8e-6f, ROUNDING, states_tree},
    {"tree/norms-odd", build_tree, {TREE_NORMS, 1003, 1}, 11, 4, 4e-6f, 8e-6f, ROUNDING, states_tree},
    {"tree/norms-of-few", build_tree, {TREE_NORMS, 6, 1}, 131, 7, 4e-6f, 8e-6f, ROUNDING, states_tree},
    {"tree/norms-long", build_tree, {TREE_NORMS, 40004, 1}, 2, 1, 8e-6f, 8e-6f, ROUNDING, states_tree},
    {"tree/softmax", build_tree, {TREE_SOFTMAX, 2048, 1}, 3, 1, 1e-7f, 8e-6f, EXPONENT, states_tree},
    {"tree/softmax-odd", build_tree, {TREE_SOFTMAX, 127, 1}, 19, 2, 1e-7f, 8e-6f, EXPONENT, states_tree},
    {"tree/two-results", build_tree, {TREE_TWO_RESULTS, 36, 1}, 9, 2, 2e-6f, 4e-6f, EXPONENT, states_tree},
    {"tree/used-between", build_tree, {TREE_USED_BETWEEN, 40, 2}, 9, 2, 0, 0, "", states_tree},
    {"tree/state-changes-between", build_tree, {TREE_STATE, 20, 4}, 7, 3, 0, 0, "", states_tree},
    {"tree/views", build_tree, {TREE_VIEWS, 44, 2}, 6, 2, 2e-6f, 4e-6f, ROUNDING, states_tree},
    {"tree/views-odd", build_tree, {TREE_VIEWS, 7, 2}, 6, 2, 2e-6f, 4e-6f, ROUNDING, states_tree},
    {"tree/sum", build_tree, {TREE_SUM, 96, 1}, 9, 2, 4e-6f, 8e-6f, ROUNDING, states_tree},
    {"tree/sum-odd", build_tree, {TREE_SUM, 61, 1}, 5, 1, 4e-6f, 8e-6f, ROUNDING, states_tree},
    {"tree/sum-of-what-is-made", build_tree, {TREE_SUM_OF_MADE, 8, 2}, 5, 2, 2e-6f, 8e-6f, EXPONENT, states_tree},
    {"tree/terms", build_tree, {TREE_TERMS, 48, 1}, 9, 2, 4e-6f, 8e-6f, EXPONENT, states_tree},
    {"tree/terms-odd-as-many-as-the-run-says", build_tree, {TREE_TERMS, 7, 1, 2}, 9, 2, 4e-6f, 8e-6f, EXPONENT, states_tree},
    {"tree/terms-that-are-results", build_tree, {TREE_TERMS, 7, 2, 1}, 9, 2, 4e-6f, 8e-6f, EXPONENT, states_tree},
    {"tree/argmax", build_tree, {TREE_ARGMAX, 100, 1}, 9, 2, 0, 0, "", states_tree},
    {"tree/argmax-parts", build_tree, {TREE_ARGMAX, 8192, 2}, 3, 2, 0, 0, "", states_tree},
    {"tree/argmax-odd-parts", build_tree, {TREE_ARGMAX, 5003, 2}, 3, 2, 0, 0, "", states_tree},
    {"tree/argmax-of-norm", build_tree, {TREE_NORM_ARGMAX, 1536, 1}, 5, 2, 0, 0, "", states_tree},
    {"tree/argmax-of-norm-odd", build_tree, {TREE_NORM_ARGMAX, 61, 1}, 5, 2, 0, 0, "", states_tree},
    {"tree/topk", build_tree, {TREE_TOPK, 1000, 1, 9}, 5, 2, 0, 0, "", states_tree},
    {"tree/topk-odd", build_tree, {TREE_TOPK, 33, 1, 33}, 3, 2, 0, 0, "", states_tree},
    {"tree/topk-too-long", build_tree, {TREE_TOPK, 5000, 2, 2}, 3, 1, 0, 0, "", states_tree},
    {"tree/topk-of-softmax", build_tree, {TREE_SOFTMAX_TOPK, 128, 2, 8}, 21, 4, 1e-7f, 8e-6f, EXPONENT, states_tree},
    {"tree/product-of-one", build_tree, {TREE_PRODUCT, 96, 1, 33}, 1, 1, 4e-5f, 1e-5f, ROUNDING, states_tree},
    {"tree/product-of-few", build_tree, {TREE_PRODUCT, 61, 1, 40}, 7, 5, 4e-5f, 1e-5f, ROUNDING, states_tree},
    {"tree/product-of-many", build_tree, {TREE_PRODUCT, 64, 0, 70}, 40, 37, 4e-5f, 1e-5f, ROUNDING, states_tree},
    {"tree/product-tanh", build_tree, {TREE_PRODUCT_TANH, 48, 0, 20}, 5, 2, 4e-5f, 1e-5f, ROUNDING, states_tree},
    {"tree/product-tanh-many", build_tree, {TREE_PRODUCT_TANH, 48, 0, 36}, 20, 13, 4e-5f, 1e-5f, ROUNDING, states_tree},
    {"tree/product-of-experts", build_tree, {TREE_EXPERTS, 32, 1, 21}, 3, 2, 4e-5f, 1e-5f, ROUNDING, states_tree},
    {"tree/product-of-many-experts", build_tree, {TREE_EXPERTS, 32, 0, 21}, 40, 37, 4e-5f, 1e-5f, ROUNDING, states_tree},
    {"tree/scan-last", build_tree, {TREE_SCAN_LAST, 96, 0}, 5, 2, 2e-5f, 8e-6f, ROUNDING, states_tree},
    {"tree/scan-last-odd", build_tree, {TREE_SCAN_LAST, 61, 0}, 5, 2, 2e-5f, 8e-6f, ROUNDING, states_tree},
    {"tree/scan-last-long", build_tree, {TREE_SCAN_LAST, 5003, 0}, 2, 1, 4e-4f, 8e-6f, ROUNDING, states_tree},
    {"tree/scan-first", build_tree, {TREE_SCAN_FIRST, 96, 2}, 37, 5, 2e-5f, 8e-6f, ROUNDING, states_tree},
    {"tree/groups", build_tree, {TREE_GROUPS, 32, 1, 3}, 3, 2, 2e-5f, 8e-6f, ROUNDING, states_tree},
    {"tree/groups-odd", build_tree, {TREE_GROUPS, 7, 1, 2}, 3, 2, 2e-5f, 8e-6f, ROUNDING, states_tree},
    {"tree/random-1", build_tree, {TREE_RANDOM, 1, 0, 1}, 5, 2, 3e-5f, 3e-5f, GROWN, states_tree},
    {"tree/random-2", build_tree, {TREE_RANDOM, 129, 0, 2}, 13, 6, 3e-5f, 3e-5f, GROWN, states_tree},
    {"tree/random-3", build_tree, {TREE_RANDOM, 2052, 0, 3}, 1, 1, 3e-5f, 3e-5f, GROWN, states_tree},
    {"tree/random-4", build_tree, {TREE_RANDOM, 33, 0, 4}, 67, 34, 3e-5f, 3e-5f, GROWN, states_tree},
    {"tree/random-5", build_tree, {TREE_RANDOM, 1000, 0, 5}, 5, 2, 3e-5f, 3e-5f, GROWN, states_tree},
    {"tree/random-6", build_tree, {TREE_RANDOM, 7, 0, 6}, 13, 6, 3e-5f, 3e-5f, GROWN, states_tree},
    {"tree/random-7", build_tree, {TREE_RANDOM, 260, 0, 7}, 1, 1, 3e-5f, 3e-5f, GROWN, states_tree},
    {"tree/random-8", build_tree, {TREE_RANDOM, 96, 0, 8}, 67, 34, 3e-5f, 3e-5f, GROWN, states_tree},
    {"tree/random-9", build_tree, {TREE_RANDOM, 64, 0, 9}, 5, 2, 3e-5f, 3e-5f, GROWN, states_tree},
    {"tree/random-10", build_tree, {TREE_RANDOM, 1001, 0, 10}, 13, 6, 3e-5f, 3e-5f, GROWN, states_tree},
    {"tree/random-11", build_tree, {TREE_RANDOM, 16, 0, 11}, 1, 1, 3e-5f, 3e-5f, GROWN, states_tree},
    {"tree/random-12", build_tree, {TREE_RANDOM, 512, 0, 12}, 67, 34, 3e-5f, 3e-5f, GROWN, states_tree},
    {"tree/random-16", build_tree, {TREE_RANDOM, 33, 0, 16}, 67, 34, 3e-5f, 3e-5f, GROWN, states_tree},
    {"topk/router", build_topk, {128, 8, FILL_UNIT}, 21, 4, 0, 0, "", NULL},
    {"topk/all", build_topk, {5, 5, FILL_TIES}, 3, 1, 0, 0, "", NULL},
    {"topk/not-numbers", build_topk, {9, 9, FILL_ODD}, 9, 2, 0, 0, "", NULL},
    {"topk/ties", build_topk, {1000, 16, FILL_TIES}, 3, 2, 0, 0, "", NULL},
    {"weighted_sum", build_weighted_sum, {8, 70}, 9, 2, 1e-6f, 1e-6f, ROUNDING, NULL},
    {"weighted_sum/one", build_weighted_sum, {1, 1}, 3, 1, 1e-6f, 1e-6f, ROUNDING, NULL},
    {"rope/pair", build_rope, {1, 2, 1}, 3, 1, 1e-6f, 1e-6f, ROUNDING, NULL},
    {"rope/strided", build_rope, {3, 64, 5}, 7, 2, 1e-6f, 1e-6f, ROUNDING, NULL},
    {"set_rows/f32", build_set_rows, {TYPE_F32, 5, 19}, 7, 3, 0, 0, "", states_rows},
    {"set_rows/i32", build_set_rows, {TYPE_I32, 0, 19}, 7, 3, 0, 0, "", states_rows},
    {"set_rows/outside", build_outside, {OP_SET_ROWS, 5, 6}, 8, 3, 0, 0, "", states_outside},
    {"gather_rows/outside", build_outside, {OP_GATHER_ROWS, 20, 6}, 8, 3, 0, 0, "", states_outside},
    {"linear_id/outside", build_outside, {OP_LINEAR_ID, 16, 6}, 8, 3, 1e-5f, 0, ROUNDING, states_outside},
    {"linear_id/outside-many", build_outside, {OP_LINEAR_ID, 16, 6}, 70, 65, 1e-5f, 0, ROUNDING, states_outside},
    {"linear_id/outside-joined", build_outside, {OP_FUSED, 32, 6}, 4, 3, 1e-4f, 0, ROUNDING, states_outside},
    {"argmax/one", build_argmax, {1, FILL_UNIT}, 3, 1, 0, 0, "", NULL},
    {"argmax/ties", build_argmax, {70001, FILL_TIES}, 3, 2, 0, 0, "", NULL},
    {"argmax/not-numbers", build_argmax, {3001, FILL_ODD}, 9, 2, 0, 0, "", NULL},
    {"sample/one", build_sample, {1, FILL_UNIT}, 3, 1, 0, 0, "", NULL},
    {"sample/few", build_sample, {100, FILL_WIDE}, 16, 5, 0, 0, "", NULL},
    {"sample/ties", build_sample, {5003, FILL_TIES}, 16, 7, 0, 0, "", NULL},
    {"sample/many", build_sample, {70001, FILL_UNIT}, 16, 3, 0, 0, "", NULL},
    /* A window of 1 gives the cache's row itself. */
    {"kv_write/f32", build_attention, {TYPE_F32, 2, 2, 20, 2, 9, 1, 14, 1}, 6, 3, 0, 0, "", states_cache},
    {"kv_write/f16", build_attention, {TYPE_F16, 3, 3, 36, 2, 9, 1, 14, 1}, 6, 3, 0, 0, "", states_cache},
    {"kv_write/q8_0", build_attention, {TYPE_Q8_0, 1, 1, 32, 2, 9, 1, 14, 1}, 6, 3, 8e-3f, 0, QUANTUM, states_cache},
    {"kv_write/q8_0-odd-blocks", build_attention, {TYPE_Q8_0, 3, 3, 96, 2, 7, 1, 14, 1}, 6, 3, 8e-3f, 0, QUANTUM, states_cache},
    {"attention/few/f32", build_attention, {TYPE_F32, 4, 1, 64, 3, 200, 0, 200, 1}, 5, 3, 3e-6f, 0, ROUNDING, states_cache},
    {"attention/few/f16", build_attention, {TYPE_F16, 4, 2, 64, 3, 200, 0, 200, 1}, 5, 3, 3e-6f, 0, ROUNDING, states_cache},
    {"attention/few/q8_0", build_attention, {TYPE_Q8_0, 4, 2, 64, 3, 200, 0, 200, 1}, 5, 3, 8e-3f, 0, QUANTUM, states_cache},
    {"attention/few/first-key", build_attention, {TYPE_F32, 4, 2, 16, 1, 50, 0, 1, 1}, 2, 1, 3e-6f, 0, ROUNDING, states_cache},
    {"attention/few/window", build_attention, {TYPE_F32, 6, 2, 256, 2, 70, 61, 170, 1}, 4, 3, 3e-6f, 0, ROUNDING, states_cache},
    {"attention/few/wide-heads", build_attention, {TYPE_F16, 8, 1, 512, 1, 150, 0, 150, 1}, 2, 1, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/few/odd-heads", build_attention, {TYPE_F32, 22, 2, 72, 2, 90, 0, 90, 1}, 3, 1, 3e-6f, 0, ROUNDING, states_cache},
    {"attention/far/f32", build_attention, {TYPE_F32, 8, 1, 512, 2, 560, 0, 560, 1}, 2, 1, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/far/f16-two-workgroups", build_attention, {TYPE_F16, 16, 1, 512, 1, 700, 0, 700, 1}, 2, 1, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/far/q8_0-four-heads", build_attention, {TYPE_Q8_0, 4, 1, 512, 1, 600, 0, 600, 1}, 1, 1, 8e-3f, 0, QUANTUM, states_cache},
    {"attention/far/window", build_attention, {TYPE_F32, 16, 2, 512, 1, 600, 590, 900, 1}, 2, 1, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/far/many-tiles", build_attention, {TYPE_F16, 64, 16, 128, 1, 1100, 1099, 1500, 1}, 9, 8, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/far/first-key", build_attention, {TYPE_F16, 8, 1, 512, 1, 600, 0, 1, 1}, 1, 1, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/many/f32", build_attention, {TYPE_F32, 4, 2, 64, 2, 150, 0, 150, 0}, 37, 17, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/many/f16", build_attention, {TYPE_F16, 4, 1, 128, 2, 150, 0, 150, 0}, 37, 18, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/many/q8_0", build_attention, {TYPE_Q8_0, 4, 1, 32, 2, 150, 0, 150, 0}, 37, 18, 8e-3f, 0, QUANTUM, states_cache},
    {"attention/many/window", build_attention, {TYPE_F32, 4, 4, 16, 2, 60, 21, 150, 0}, 37, 18, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/many/slots-mixed", build_attention, {TYPE_F32, 4, 1, 64, 3, 60, 13, 50, 1}, 33, 20, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/many/wide-heads", build_attention, {TYPE_F16, 8, 1, 512, 1, 60, 0, 60, 0}, 20, 19, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/many/odd-heads", build_attention, {TYPE_F32, 9, 3, 72, 1, 60, 0, 60, 0}, 20, 19, 4e-6f, 0, ROUNDING, states_cache},
    /* Positions and slots that are none: zeros; positions past the ring: what it holds. */
    {"attention/outside/few", build_attention_outside, {TYPE_F32, 4, 2, 64, 2, 10, 0, 10, 1}, 8, 3, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/outside/few-window", build_attention_outside, {TYPE_F16, 4, 1, 32, 2, 12, 7, 12, 1}, 8, 5, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/outside/few-split", build_attention_outside, {TYPE_F32, 2, 1, 16, 2, 150, 0, 150, 1}, 8, 5, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/outside/few-q8_0", build_attention_outside, {TYPE_Q8_0, 2, 1, 64, 2, 10, 0, 10, 1}, 8, 3, 8e-3f, 0, QUANTUM, states_cache},
    {"attention/outside/odd-heads", build_attention_outside, {TYPE_F32, 3, 3, 20, 2, 10, 0, 10, 1}, 8, 3, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/outside/far", build_attention_outside, {TYPE_F32, 8, 1, 512, 2, 560, 0, 40, 1}, 8, 3, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/outside/many", build_attention_outside, {TYPE_F32, 4, 2, 64, 2, 10, 0, 10, 0}, 37, 18, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/outside/many-window", build_attention_outside, {TYPE_F16, 4, 4, 16, 2, 12, 7, 12, 0}, 37, 18, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/outside/many-slots", build_attention_outside, {TYPE_F32, 4, 1, 48, 2, 12, 0, 12, 1}, 37, 18, 4e-6f, 0, ROUNDING, states_cache},
    /* Few rows, and many; heads that some form of a kernel does not take. */
    {"attention/range/window", build_range, {TYPE_F32, 4, 2, 64, 2, 40, 0, 40, RANGE_WINDOW, 1}, 7, 3, 6e-6f, 0, ROUNDING, states_cache},
    {"attention/range/window-many", build_range, {TYPE_F32, 4, 2, 64, 2, 40, 0, 40, RANGE_WINDOW, 0}, 37, 18, 6e-6f, 0, ROUNDING, states_cache},
    {"attention/range/block", build_range, {TYPE_F16, 4, 1, 72, 1, 40, 0, 40, RANGE_BLOCK}, 12, 9, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/range/block-many", build_range, {TYPE_F16, 4, 1, 64, 2, 50, 0, 50, RANGE_BLOCK}, 41, 33, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/range/packed", build_range, {TYPE_F32, 2, 2, 20, 1, 40, 0, 40, RANGE_PACKED}, 9, 4, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/range/packed-many", build_range, {TYPE_F32, 2, 1, 80, 1, 50, 0, 50, RANGE_PACKED}, 40, 19, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/range/packed-slots", build_range, {TYPE_F32, 2, 1, 32, 3, 50, 0, 50, RANGE_PACKED, 1}, 40, 19, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/range/padded", build_range, {TYPE_Q8_0, 2, 1, 32, 2, 40, 0, 40, RANGE_PADDED, 1}, 5, 3, 8e-3f, 0, QUANTUM, states_cache},
    {"attention/range/padded-many", build_range, {TYPE_F32, 3, 3, 20, 2, 40, 0, 40, RANGE_PADDED, 1}, 35, 33, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/range/encoder", build_range, {TYPE_F32, 3, 3, 72, 1, 64, 0, 64, RANGE_ENCODER}, 13, 7, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/range/encoder-many", build_range, {TYPE_F32, 3, 3, 72, 1, 64, 0, 64, RANGE_ENCODER}, 45, 33, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/range/encoder-tile", build_range, {TYPE_F16, 4, 4, 48, 1, 64, 0, 64, RANGE_ENCODER}, 45, 33, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/range/heads-of-24", build_range, {TYPE_F16, 2, 1, 24, 1, 64, 0, 64, RANGE_BLOCK}, 38, 33, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/range/heads-of-56", build_range, {TYPE_F32, 2, 2, 56, 1, 64, 0, 64, RANGE_PACKED}, 38, 33, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/range/heads-of-136", build_range, {TYPE_F16, 2, 2, 136, 1, 40, 0, 40, RANGE_ENCODER}, 35, 33, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/range/none", build_range, {TYPE_F32, 4, 2, 64, 2, 40, 0, 40, RANGE_NONE, 1}, 7, 3, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/range/none-many", build_range, {TYPE_F32, 4, 2, 64, 1, 40, 0, 40, RANGE_NONE}, 37, 18, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/range/outside", build_range, {TYPE_F32, 4, 2, 64, 1, 20, 0, 20, RANGE_OUTSIDE}, 8, 5, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/range/outside-many", build_range, {TYPE_F16, 4, 1, 32, 2, 20, 0, 20, RANGE_OUTSIDE, 1}, 37, 18, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/range/long", build_range, {TYPE_F32, 2, 1, 64, 1, 200, 0, 200, RANGE_ENCODER}, 150, 131, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/plain/causal", build_plain, {4, 2, 64, 0, 0, RANGE_PACKED, 0}, 9, 4, 4e-6f, 0, ROUNDING, NULL},
    {"attention/plain/window", build_plain, {4, 2, 48, 1, 5, RANGE_PACKED, 0}, 37, 18, 4e-6f, 0, ROUNDING, NULL},
    {"attention/plain/encoder", build_plain, {3, 3, 72, 1, 0, RANGE_ENCODER, 1}, 21, 13, 4e-6f, 0, ROUNDING, NULL},
    {"attention/plain/encoder-many", build_plain, {3, 3, 80, 1, 0, RANGE_ENCODER, 1}, 45, 33, 4e-6f, 0, ROUNDING, NULL},
    {"attention/plain/parts", build_plain, {2, 1, 64, 2, 0, RANGE_ENCODER, 1}, 12, 7, 4e-6f, 0, ROUNDING, NULL},
    {"attention/plain/parts-odd", build_plain, {2, 1, 9, 2, 0, RANGE_PACKED, 1}, 37, 18, 4e-6f, 0, ROUNDING, NULL},
    {"attention/plain/parts-many", build_plain, {2, 1, 32, 2, 0, RANGE_BLOCK, 1}, 45, 33, 4e-6f, 0, ROUNDING, NULL},
    {"attention/plain/outside", build_plain, {4, 2, 32, 1, 0, RANGE_OUTSIDE, 1}, 24, 9, 4e-6f, 0, ROUNDING, NULL},
    {"attention/plain/outside-window", build_plain, {4, 2, 32, 1, 6, RANGE_OUTSIDE, 0}, 40, 9, 4e-6f, 0, ROUNDING, NULL},
    {"attention/plain/long", build_plain, {2, 2, 16, 0, 0, RANGE_ENCODER, 0}, 180, 130, 4e-6f, 0, ROUNDING, NULL},
    {"backward/packed", build_plain, {2, 1, 72, 3, 0, RANGE_PACKED, 1, 1}, 41, 33, 2e-5f, 0, ROUNDING, NULL},
    {"backward/window", build_plain, {3, 3, 16, 0, 5, RANGE_PACKED, 0, 1}, 75, 68, 2e-5f, 0, ROUNDING, NULL},
    {"backward/odd", build_plain, {6, 2, 9, 3, 0, RANGE_BLOCK, 1, 1}, 37, 18, 2e-5f, 0, ROUNDING, NULL},
    {"backward/outside", build_plain, {4, 1, 32, 2, 0, RANGE_OUTSIDE, 1, 1}, 24, 9, 2e-5f, 0, ROUNDING, NULL},
    {"backward/heads-of-256", build_plain, {4, 1, 256, 1, 0, RANGE_PACKED, 1, 1}, 12, 7, 4e-5f, 0, ROUNDING, NULL},
    {"backward/heads-of-520", build_plain, {2, 1, 520, 3, 0, RANGE_ENCODER, 1, 1}, 5, 3, 4e-5f, 0, ROUNDING, NULL},
    {"step/outside", build_step, {TYPE_F32, 4, 1, 64, 2, 150, 0, 140, 4}, 8, 5, 5e-6f, 0, ROUNDING, states_step},
    {"step/outside-window", build_step, {TYPE_F32, 4, 2, 32, 2, 30, 11, 30, 4}, 8, 5, 5e-6f, 0, ROUNDING, states_step},
    {"step/outside-shared", build_step, {TYPE_F16, 4, 2, 64, 2, 30, 0, 30, 5}, 8, 5, 5e-6f, 0, ROUNDING, states_step},
    {"step/outside-far", build_step, {TYPE_F32, 8, 1, 512, 2, 600, 0, 590, 4}, 4, 3, 2e-5f, 0, ROUNDING, states_step},
    {"step/outside-product", build_step, {TYPE_F32, 4, 1, 64, 2, 150, 0, 140, 4, 8}, 4, 3, 2e-4f, 0, ROUNDING, states_step},
    {"step/f32", build_step, {TYPE_F32, 4, 1, 64, 5, 150, 0, 140, 0}, 5, 3, 5e-6f, 0, ROUNDING, states_step},
    {"step/f16", build_step, {TYPE_F16, 4, 2, 128, 3, 150, 0, 140, 0}, 3, 2, 1e-3f, 0, UNROUNDED, states_step},
    {"step/q8_0", build_step, {TYPE_Q8_0, 8, 2, 64, 3, 150, 0, 140, 0}, 3, 2, 2e-2f, 0, UNROUNDED, states_step},
    {"step/q8_0-odd-blocks", build_step, {TYPE_Q8_0, 2, 1, 32, 3, 50, 0, 40, 0}, 3, 2, 2e-2f, 0, UNROUNDED, states_step},
    {"step/first-key", build_step, {TYPE_F32, 4, 2, 16, 3, 150, 0, 1, 0}, 2, 1, 5e-6f, 0, ROUNDING, states_step},
    {"step/window", build_step, {TYPE_F32, 6, 2, 32, 5, 90, 71, 220, 0}, 4, 1, 5e-6f, 0, ROUNDING, states_step},
    {"step/wide-heads", build_step, {TYPE_F32, 8, 1, 512, 1, 150, 0, 140, 0}, 1, 1, 2e-5f, 0, ROUNDING, states_step},
    {"step/many-heads", build_step, {TYPE_F32, 16, 1, 64, 2, 150, 0, 140, 2}, 2, 1, 5e-6f, 0, ROUNDING, states_step},
    {"step/product", build_step, {TYPE_F32, 4, 1, 64, 3, 150, 0, 140, 0, 8}, 3, 1, 2e-4f, 0, ROUNDING, states_step},
    {"step/product-first-key", build_step, {TYPE_F32, 4, 2, 64, 3, 300, 0, 1, 0, 8}, 2, 1, 2e-4f, 0, ROUNDING, states_step},
    {"step/far", build_step, {TYPE_F16, 64, 16, 128, 1, 1100, 0, 1090, 0}, 1, 1, 1e-3f, 0, UNROUNDED, states_step},
    {"step/far-shared", build_step, {TYPE_F32, 64, 16, 128, 2, 1100, 0, 1090, 1}, 2, 1, 5e-6f, 0, ROUNDING, states_step},
    {"step/far-wide", build_step, {TYPE_F32, 8, 1, 512, 2, 600, 0, 590, 0}, 2, 1, 2e-5f, 0, ROUNDING, states_step},
    {"step/far-wide-f16", build_step, {TYPE_F16, 8, 1, 512, 1, 600, 0, 590, 2}, 1, 1, 1e-3f, 0, UNROUNDED, states_step},
    {"step/far-q8_0", build_step, {TYPE_Q8_0, 16, 2, 512, 1, 600, 0, 590, 0}, 1, 1, 2e-2f, 0, UNROUNDED, states_step},
    {"step/far-window", build_step, {TYPE_F32, 16, 2, 512, 1, 600, 577, 900, 0}, 1, 1, 2e-5f, 0, ROUNDING, states_step},
    {"step/far-first-key", build_step, {TYPE_F32, 8, 1, 512, 1, 600, 0, 1, 0}, 1, 1, 2e-5f, 0, ROUNDING, states_step},
    {"step/far-shared-q8_0", build_step, {TYPE_Q8_0, 4, 1, 512, 1, 600, 0, 590, 1}, 1, 1, 2e-2f, 0, QUANTUM, states_step},
    {"step/values-are-keys", build_step, {TYPE_F32, 4, 2, 72, 3, 90, 0, 70, 2}, 3, 1, 5e-6f, 0, ROUNDING, states_step},
    {"step/shared", build_step, {TYPE_F32, 4, 1, 64, 3, 90, 0, 80, 1}, 3, 1, 5e-6f, 0, ROUNDING, states_step},
    {"step/shared-f16-window", build_step, {TYPE_F16, 4, 1, 128, 3, 90, 81, 180, 1}, 3, 1, 5e-6f, 0, ROUNDING, states_step},
    {"step/shared-q8_0", build_step, {TYPE_Q8_0, 4, 1, 64, 3, 90, 0, 80, 1}, 3, 1, 2e-2f, 0, QUANTUM, states_step},
    {"sample/best-side-by-side", build_sample, {6000, FILL_RISING}, 4, 2, 0, 0, "", NULL},
};
/* clang-format on */

/* Attention on matrix units: as good as f32. Several rounds, a window across the ring's end. */
/* clang-format off */
static const op_case units_cases[] = {
    {"attention/heads-of-two", build_attention, {TYPE_F16, 8, 4, 512, 1, 520, 0, 520, 1}, 1, 1, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/two-workgroups", build_attention, {TYPE_F16, 16, 1, 512, 1, 520, 0, 520, 1}, 1, 1, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/first-key", build_attention, {TYPE_F16, 4, 1, 512, 2, 600, 0, 2, 1}, 2, 1, 4e-6f, 0, ROUNDING, states_cache},
    {"step/outside", build_step, {TYPE_F16, 8, 1, 512, 2, 540, 0, 530, 4}, 4, 3, 1e-3f, 0, UNROUNDED, states_step},
    {"step/shared-window", build_step, {TYPE_F16, 8, 1, 512, 1, 600, 577, 900, 1}, 1, 1, 5e-6f, 0, ROUNDING, states_step},
    {"step/owner", build_step, {TYPE_F16, 8, 1, 512, 2, 540, 0, 530, 0}, 1, 1, 1e-3f, 0, UNROUNDED, states_step},
    {"attention/range", build_range, {TYPE_F16, 8, 1, 512, 1, 530, 0, 40, RANGE_BLOCK}, 9, 3, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/range-outside", build_range, {TYPE_F16, 8, 1, 512, 1, 530, 0, 40, RANGE_OUTSIDE}, 8, 3, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/outside", build_attention_outside, {TYPE_F16, 8, 1, 512, 2, 530, 0, 40, 1}, 8, 3, 4e-6f, 0, ROUNDING, states_cache},
    {"step/owner-first-key", build_step, {TYPE_F16, 8, 1, 512, 1, 540, 0, 0, 0}, 1, 1, 1e-3f, 0, UNROUNDED, states_step},
    {"attention/q8_0", build_attention, {TYPE_Q8_0, 8, 1, 512, 1, 600, 0, 600, 1}, 1, 1, 8e-3f, 0, QUANTUM, states_cache},
    {"attention/q8_0-heads-of-256", build_attention, {TYPE_Q8_0, 8, 2, 256, 1, 1100, 0, 1100, 1}, 1, 1, 8e-3f, 0, QUANTUM, states_cache},
    {"step/owner-q8_0", build_step, {TYPE_Q8_0, 8, 1, 512, 1, 560, 0, 550, 0}, 1, 1, 2e-2f, 0, UNROUNDED, states_step},
    {"step/shared-q8_0-window", build_step, {TYPE_Q8_0, 8, 1, 512, 1, 600, 577, 900, 1}, 1, 1, 2e-2f, 0, QUANTUM, states_step},
};

/* Many rows on matrix units: odd heads, turns of several slots, no keys. Q8_0: its quantum too. */
static const op_case matrix_cases[] = {
    {"attention/heads-of-512", build_attention, {TYPE_F16, 8, 1, 512, 1, 140, 0, 140, 0}, 37, 33, 4e-3f, 0, HALVES, states_cache},
    {"attention/heads-of-256", build_attention, {TYPE_F16, 4, 1, 256, 1, 150, 0, 150, 0}, 37, 33, 3e-3f, 0, HALVES, states_cache},
    {"attention/heads-of-128", build_attention, {TYPE_F16, 2, 1, 128, 1, 130, 129, 170, 0}, 34, 33, 3e-3f, 0, HALVES, states_cache},
    {"range/none", build_range, {TYPE_F16, 4, 2, 128, 1, 140, 0, 40, RANGE_NONE}, 37, 33, 3e-3f, 0, HALVES, states_cache},
    {"plain/parts", build_plain, {2, 1, 128, 2, 0, RANGE_BLOCK, 1}, 150, 133, 3e-3f, 0, HALVES, NULL},
    {"backward/heads-of-64", build_plain, {2, 2, 64, 3, 0, RANGE_PACKED, 0, 1}, 150, 133, 3e-2f, 0, HALVES, NULL},
    {"backward/bf16", build_plain, {2, 1, 128, 1, 0, RANGE_BLOCK, 1, 1}, 140, 129, 2e-1f, 0, HALVES, NULL},
    {"attention/slots-mixed", build_attention, {TYPE_F16, 4, 1, 128, 3, 140, 0, 50, 1}, 40, 33, 3e-3f, 0, HALVES, states_cache},
    {"attention/heads-of-64", build_attention, {TYPE_F16, 4, 2, 64, 2, 150, 0, 150, 0}, 70, 37, 3e-3f, 0, HALVES, states_cache},
    {"range/block", build_range, {TYPE_F16, 4, 1, 72, 2, 140, 0, 140, RANGE_BLOCK}, 41, 33, 3e-3f, 0, HALVES, states_cache},
    {"range/packed-slots", build_range, {TYPE_F16, 2, 1, 32, 3, 140, 0, 50, RANGE_PACKED, 1}, 40, 33, 3e-3f, 0, HALVES, states_cache},
    {"range/outside", build_range, {TYPE_F16, 4, 1, 32, 2, 130, 0, 20, RANGE_OUTSIDE, 1}, 37, 33, 3e-3f, 0, HALVES, states_cache},
    {"outside/slots", build_attention_outside, {TYPE_F16, 4, 1, 48, 2, 130, 0, 12, 1}, 37, 33, 3e-3f, 0, HALVES, states_cache},
    {"plain/encoder", build_plain, {3, 3, 72, 1, 0, RANGE_ENCODER, 1}, 150, 133, 3e-3f, 0, HALVES, NULL},
    {"plain/outside", build_plain, {4, 2, 32, 1, 0, RANGE_OUTSIDE, 1}, 140, 39, 3e-3f, 0, HALVES, NULL},
    {"attention/q8_0-heads-of-512", build_attention, {TYPE_Q8_0, 8, 1, 512, 1, 140, 0, 140, 0}, 37, 33, 1.2e-2f, 0, HALVES, states_cache},
    {"attention/q8_0-slots-mixed", build_attention, {TYPE_Q8_0, 4, 1, 64, 3, 140, 0, 50, 1}, 40, 33, 1.1e-2f, 0, HALVES, states_cache},
    {"backward/packed", build_plain, {4, 1, 72, 3, 0, RANGE_PACKED, 1, 1}, 140, 39, 3e-2f, 0, HALVES, NULL},
    {"backward/outside", build_plain, {3, 1, 32, 1, 0, RANGE_OUTSIDE, 1, 1}, 130, 9, 1e-1f, 0, HALVES, NULL},
    {"backward/heads-of-264", build_plain, {2, 1, 264, 1, 9, RANGE_PACKED, 0, 1}, 128, 70, 2e-1f, 0, HALVES, NULL},
};

/* Many keys, four heads a workgroup: tiles and pieces of several lengths, rings that end inside. */
static const op_case far_cases[] = {
    {"attention/f32", build_attention, {TYPE_F32, 4, 1, 512, 2, 560, 0, 560, 1}, 2, 1, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/f16", build_attention, {TYPE_F16, 8, 1, 512, 1, 700, 0, 700, 1}, 1, 1, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/q8_0", build_attention, {TYPE_Q8_0, 4, 1, 512, 1, 600, 0, 600, 1}, 1, 1, 8e-3f, 0, QUANTUM, states_cache},
    {"attention/heads-of-64", build_attention, {TYPE_F16, 32, 8, 64, 1, 4200, 0, 4200, 1}, 1, 1, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/heads-of-256", build_attention, {TYPE_F32, 8, 2, 256, 1, 1100, 0, 1100, 1}, 1, 1, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/window", build_attention, {TYPE_F32, 4, 1, 512, 1, 600, 590, 900, 1}, 1, 1, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/first-key", build_attention, {TYPE_F16, 4, 1, 512, 2, 600, 0, 2, 1}, 2, 1, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/range", build_range, {TYPE_F16, 4, 1, 512, 1, 530, 0, 40, RANGE_BLOCK}, 9, 3, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/range-outside", build_range, {TYPE_F32, 4, 1, 512, 1, 530, 0, 40, RANGE_OUTSIDE}, 8, 3, 4e-6f, 0, ROUNDING, states_cache},
    {"attention/outside", build_attention_outside, {TYPE_F16, 8, 1, 512, 2, 530, 0, 40, 1}, 8, 3, 4e-6f, 0, ROUNDING, states_cache},
    {"step/owner", build_step, {TYPE_F32, 4, 1, 512, 2, 600, 0, 590, 0}, 2, 1, 2e-5f, 0, ROUNDING, states_step},
    {"step/owner-f16", build_step, {TYPE_F16, 8, 1, 512, 1, 600, 0, 590, 2}, 1, 1, 1e-3f, 0, UNROUNDED, states_step},
    {"step/owner-q8_0", build_step, {TYPE_Q8_0, 8, 2, 512, 1, 560, 0, 550, 0}, 1, 1, 2e-2f, 0, UNROUNDED, states_step},
    {"step/owner-of-256", build_step, {TYPE_F16, 8, 2, 256, 1, 1100, 0, 1090, 0}, 1, 1, 1e-3f, 0, UNROUNDED, states_step},
    {"step/owner-first-key", build_step, {TYPE_F32, 8, 1, 512, 1, 540, 0, 0, 0}, 1, 1, 2e-5f, 0, ROUNDING, states_step},
    {"step/window", build_step, {TYPE_F32, 16, 2, 512, 1, 600, 577, 900, 0}, 1, 1, 2e-5f, 0, ROUNDING, states_step},
    {"step/shared-window", build_step, {TYPE_F16, 16, 2, 512, 1, 600, 577, 900, 1}, 1, 1, 2e-5f, 0, ROUNDING, states_step},
    {"step/outside", build_step, {TYPE_F32, 4, 1, 512, 2, 540, 0, 530, 4}, 4, 3, 2e-5f, 0, ROUNDING, states_step},
    {"step/outside-shared", build_step, {TYPE_F16, 8, 1, 512, 2, 540, 0, 530, 5}, 4, 3, 2e-5f, 0, ROUNDING, states_step},
};
/* clang-format on */

/* ---- data ------------------------------------------------------------------------------------ */

static void fill_settings(base_sample_settings *to, uint32_t n, base_random *r) {
    static const float temperatures[] = {0, 0.6f, 1, 1.7f};
    for (uint32_t i = 0; i < n; i++) {
        to[i] = (base_sample_settings){
            .temperature = temperatures[i % 4],
            .top_p = i % 3 == 0 ? 0.9f : 1,
            .min_p = i % 5 == 1 ? 0.03f : 0,
            .top_k = i % 2 ? 0 : 40 + i,
            .seed = {(uint32_t)base_random_next(r), (uint32_t)base_random_next(r)},
            .counter = (uint32_t)base_random_next(r)};
    }
}

static void fill_floats(float *to, size_t n, const input *in, base_random *r) {
    for (size_t i = 0; i < n; i++) {
        float unit = (float)(base_random_unit(r) * 2 - 1);
        uint32_t odd = (uint32_t)(base_random_next(r) % 16);
        to[i] = unit;
        if (in->fill == FILL_WIDE)
            to[i] = odd == 0  ? 0
                    : odd < 4 ? unit * in->most
                              : unit * ldexpf(1, -(int)odd) * in->most;
        if (in->fill == FILL_TIES) to[i] = floorf((unit + 1) / 2 * in->most);
        if (in->fill == FILL_FAR) to[i] = unit + in->most;
        if (in->fill == FILL_RISING) to[i] = in->most * ((float)i / (float)n);
        if (in->fill == FILL_ODD) to[i] = odd < 4 ? NAN : odd == 4 ? -INFINITY : unit;
    }
}

/* Both sides get the same data for the same seed. The first row of FILL_ODD is all NaN. */
static void fill_input(void *to, const graph_tensor *t, const input *in, uint64_t seed) {
    base_random r = {seed * 77 + in->value};
    size_t n = (size_t)graph_element_bound(t);
    int32_t *ints = to;
    switch (in->fill) {
    case FILL_UNIT:
    case FILL_WIDE:
    case FILL_FAR:
    case FILL_RISING:
    case FILL_TIES: fill_floats(to, n, in, &r); break;
    case FILL_ODD:
        fill_floats(to, n, in, &r);
        for (uint32_t i = 0; i < t->dim[1].size; i++) ((float *)to)[i] = NAN;
        break;
    case FILL_INDEX:
        for (size_t i = 0; i < n; i++)
            ints[i] = (int32_t)(base_random_next(&r) % (uint32_t)in->most);
        break;
    case FILL_DISTINCT:
        for (size_t i = 0; i < n; i++) ints[i] = (int32_t)((i * 7 + seed) % (uint32_t)in->most);
        break;
    case FILL_COUNT:
        for (size_t i = 0; i < n; i++) ints[i] = (int32_t)in->most + (int32_t)i;
        break;
    case FILL_SAME:
        for (size_t i = 0; i < n; i++) ints[i] = (int32_t)in->most;
        break;
    case FILL_LATE:
        for (size_t i = 0; i < n; i++) {
            uint32_t half = (uint32_t)in->most / 2;
            ints[i] = (int32_t)(half + base_random_next(&r) % ((uint32_t)in->most - half));
        }
        break;
    case FILL_FIRST:
    case FILL_LAST:
        for (size_t i = 0; i < n; i++) {
            int32_t first, last;
            range_at((range_kind)in->most, (int32_t)i, (int32_t)n, &first, &last);
            ints[i] = in->fill == FILL_FIRST ? first : last;
        }
        break;
    case FILL_LIST:
        for (size_t i = 0; i < n; i++)
            ints[i] = lists[(size_t)in->most].at[(i + seed) % lists[(size_t)in->most].n];
        break;
    case FILL_SETTINGS: fill_settings(to, (uint32_t)(n / 8), &r); break;
    }
}

/* ---- running --------------------------------------------------------------------------------- */

typedef struct memory {
    float norms[NORM_MAX];
} memory; /* the file of the weights */

static beryl_status memory_read(void *user, uint64_t offset, void *to, size_t size) {
    memcpy(to, (const char *)((const memory *)user)->norms + offset, size);
    return BERYL_OK;
}

typedef struct side { /* one of the two executions */
    memory file;
    beryl_source source;
    graph_store store;
    setup setup;
    graph_exec *exec;
    uint32_t states[5];
    bool open;
} side;

static beryl_status side_open(side *x, base_heap *heap, device *d, const op_case *c,
                              beryl_error *error) {
    *x = (side){0};
    for (uint32_t i = 0; i < NORM_MAX; i++) x->file.norms[i] = 0.5f + (float)(i * 37 % 101) / 100;
    x->source = (beryl_source){.size = sizeof x->file.norms, .user = &x->file, .read = memory_read};
    beryl_status status = store_init(&x->store, heap, d, &x->source, 1, error);
    if (status != BERYL_OK) return status;
    x->open = true;
    if (c->states) c->states(c->p, &x->store, x->states);
    status = store_layout(&x->store, 0, error);
    if (status == BERYL_OK) status = store_make(&x->store, error);
    if (status == BERYL_OK)
        while ((status = store_upload_step(&x->store, error)) == BERYL_PENDING ||
               status == BERYL_EVENT)
            continue;
    if (status != BERYL_OK) return status;
    x->setup = (setup){.p = c->p, .g = graph_open(heap), .store = &x->store, .states = x->states};
    x->setup.rows = graph_extent_add(x->setup.g, "rows", c->rows);
    c->build(&x->setup);
    status = graph_exec_open(
        x->setup.g, &x->store,
        &(graph_exec_options){.exact = strcmp(c->why, HALVES) != 0, .draws = interpreter_drawn(d)},
        &x->exec, error);
    return status == BERYL_OK ? rig_exec_compiled(x->exec, error) : status;
}

static void side_close(side *x) {
    graph_exec_close(x->exec);
    graph_close(x->setup.g);
    if (x->open) store_fini(&x->store);
}

static beryl_status side_run(side *x, uint32_t rows, uint64_t seed, device_ticket *ticket,
                             beryl_error *error) {
    for (uint32_t i = 0; i < x->setup.n_input; i++) {
        const input *in = &x->setup.inputs[i];
        void *to = graph_exec_input(x->exec, in->value);
        if (to) fill_input(to, graph_tensor_at(x->setup.g, in->value), in, seed);
    }
    const uint32_t extents[] = {0, rows};
    beryl_status status =
        graph_exec_submit(x->exec, extents, x->setup.outputs, x->setup.n_output, ticket, error);
    return status == BERYL_OK && x->store.device ? device_wait(x->store.device, *ticket, error)
                                                 : status;
}

typedef struct walk {
    const op_case *c;
    const graph_tensor *t;
    const float *got, *want;
    const uint32_t *extents;
    uint64_t wrong;
} walk;

/* Elements of the run's extents at the strides of the bounds. */
static void compare(test *t, walk *w, uint32_t axis, uint64_t at) {
    if (axis < w->t->rank) {
        uint32_t n = graph_dim_value(w->t->dim[axis], w->extents);
        for (uint32_t i = 0; i < n; i++)
            compare(t, w, axis + 1, at + (uint64_t)i * w->t->stride[axis]);
        return;
    }
    int32_t got_bits, want_bits;
    memcpy(&got_bits, &w->got[at], 4);
    memcpy(&want_bits, &w->want[at], 4);
    bool is_float = w->t->type == TYPE_F32;
    if (got_bits == want_bits || (is_float && isnan(w->got[at]) && isnan(w->want[at]))) return;
    if (is_float &&
        fabsf(w->got[at] - w->want[at]) <= w->c->within + w->c->relative * fabsf(w->want[at]))
        return;
    if (w->wrong++) return;
    if (is_float)
        test_fail(t, __FILE__, __LINE__, "element %llu is %.9g, not %.9g", (unsigned long long)at,
                  (double)w->got[at], (double)w->want[at]);
    else
        test_fail(t, __FILE__, __LINE__, "element %llu is %d, not %d", (unsigned long long)at,
                  got_bits, want_bits);
}

/* A decode step runs as one node, but where a row of the cache shares a word with its neighbour
 * or the device binds too few buffers; on GPUs a product after it joins the pieces. */
static void check_joined(test *t, const op_case *c, const graph *g, const device *d) {
    if (c->build != build_step) return;
    uint32_t steps = 0, products = 0;
    for (size_t i = 0; i < g->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[i];
        if (node->dead || node->op != OP_FUSED) continue;
        steps += node->attr.fused.kind == FUSED_ATTENTION;
        if (node->attr.fused.kind == FUSED_MATVEC)
            products += ((const fused_matvec *)node->attr.fused.detail)->attention != 0;
    }
    const device_caps *caps = device_caps_of(d);
    const bool owner = c->p[8] % 4 != 1,
               apart = owner && ((c->p[0] == TYPE_Q8_0 && c->p[3] % 64) || caps->storage_max < 10);
    CHECK_INT(t, steps, apart ? 0 : 1);
    CHECK_INT(t, products, !apart && c->p[9] && !device_is_processor(caps));
}

/* Trees of operations are one dispatch each, with the product before them; with experts on GPUs.
 * Compiled for processors, the first of a long row take two more (tile/select_blocks.c). */
static void check_trees(test *t, const op_case *c, const device *d, const graph_exec *exec) {
    if (c->build != build_tree || !c->p[2]) return;
    const device_caps *caps = device_caps_of(d);
    graph_exec_info info;
    graph_exec_describe(exec, &info);
    uint32_t more = c->p[0] == TREE_EXPERTS && device_is_processor(caps);
    if (c->p[0] == TREE_TOPK && c->p[1] > 1000 && device_is_compiled(caps)) more = 2;
    CHECK_INT(t, info.dispatches, c->p[2] + more);
}

/* A step's kernel has that in its name. */
static void check_kernel(test *t, base_heap *heap, graph_exec *exec, const char *name) {
    base_text text;
    base_text_init(&text, heap);
    graph_exec_print(exec, &text);
    CHECK(t, !text.failed && strstr(text.data, name));
    base_text_fini(&text);
}

/* kernel: NULL, or part of the name of one that the plan has. */
static void run_case(test *t, base_heap *heap, device *d, const op_case *c, const char *kernel) {
    side sides[2];
    beryl_error error = {0};
    beryl_status status = side_open(&sides[0], heap, d, c, &error);
    beryl_status other = side_open(&sides[1], heap, NULL, c, &error);
    if (status == BERYL_OK) status = other;
    if (status == BERYL_OK) check_joined(t, c, sides[0].setup.g, d);
    if (status == BERYL_OK) check_trees(t, c, d, sides[0].exec);
    if (status == BERYL_OK && kernel) check_kernel(t, heap, sides[0].exec, kernel);
    for (uint32_t run = 0; status == BERYL_OK && run < 2 && !test_failed(t); run++) {
        const uint32_t extents[] = {0, run ? c->fewer : c->rows};
        device_ticket tickets[2] = {0};
        for (int i = 0; status == BERYL_OK && i < 2; i++)
            status = side_run(&sides[i], extents[1], run + 1, &tickets[i], &error);
        for (uint32_t n = 0; status == BERYL_OK && n < sides[0].setup.n_output; n++) {
            const void *data[2];
            for (int i = 0; status == BERYL_OK && i < 2; i++)
                status = graph_exec_fetched(sides[i].exec, tickets[i], n, &data[i], &error);
            if (status != BERYL_OK) break;
            const graph_tensor *y = graph_tensor_at(sides[0].setup.g, sides[0].setup.outputs[n]);
            walk w = {c, y, data[0], data[1], extents, 0};
            compare(t, &w, 0, 0);
            if (w.wrong)
                test_fail(t, __FILE__, __LINE__, "run %u, output %u: %llu elements wrong", run, n,
                          (unsigned long long)w.wrong);
        }
    }
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    for (int i = 0; i < 2; i++) side_close(&sides[i]);
}

/* Forms beside those of forms.c. */
static const test_form more_forms[] = {
    {.name = "software-smallest", .device = "webgpu:software", .caps = "min", .brief = true},
    {.name = "gpu", .device = "webgpu:software", .caps = "hard", .brief = true},
    {.name = "gpu-plain",
     .device = "webgpu:software",
     .caps = "hard,no-f16,no-subgroups,no-dot",
     .brief = true},
};

/* Steps of the interpreter, or nearly: it takes a second for a million, without passes for less. */
static bool is_long(const op_case *c, uint64_t most) {
    return (c->build == build_step || c->build == build_attention ||
            c->build == build_attention_outside || c->build == build_range) &&
           (uint64_t)c->p[1] * c->p[3] * c->p[7] * c->rows > most;
}

/* Of its kind, and so the smallest. */
static bool is_first(size_t i) {
    bool first = true;
    for (size_t k = 0; k < i; k++) first = first && cases[k].build != cases[i].build;
    return first;
}

/* The smallest of its kind; half of the kinds on CUDA, half on HIP: their texts are nearly one. */
static bool is_least(size_t i, bool half) {
    bool odd = false;
    for (size_t k = 0; k < i; k++) odd ^= k == 0 || cases[k].build != cases[k - 1].build;
    return is_first(i) && odd == half;
}

/* Of how many cases one is drawn: fewer where a driver compiles for long; all long ones on host. */
static uint32_t one_of(const test_form *form, const op_case *c) {
    const bool host = !strcmp(form->device, "host");
    if (host && is_long(c, 3000000)) return 1;
    if (form->caps && strstr(form->caps, "hard")) return 12;
    return host || !strcmp(form->device, "interpreter") || form->stand_in ? 3 : 6;
}

static bool leaves_out(const test_form *form, size_t number, size_t i) {
    return (!is_first(i) && !test_drawn(i, number, one_of(form, &cases[i]))) ||
           (form->brief && is_long(&cases[i], form->drawn ? 300000 : 3000000)) ||
           (form->stand_in && !is_least(i, !strcmp(form->device, "hip")));
}

static bool opens(test *t, beryl_status status, const beryl_error *error) {
    if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error->message);
    else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error->message);
    return status == BERYL_OK;
}

/* number: of the form, which other cases are drawn for than for its neighbours. */
static void run_cases(test *t, const test_form *form, size_t number) {
    base_heap heap;
    device *d = NULL;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    const beryl_status status = test_form_open(form, &heap, &d, &error);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (leaves_out(form, number, i) || !test_case(t, "ops/%s/%s", form->name, cases[i].name))
            continue;
        for (uint64_t round = 0; opens(t, status, &error) && test_form_round(t, form, d, &round);)
            run_case(t, &heap, d, &cases[i], NULL);
    }
    test_form_close(d);
    if (status == BERYL_OK && test_case(t, "ops/%s/gives-everything-back", form->name))
        CHECK_INT(t, heap.bytes, 0);
}

/* Attention as other devices take it: matrix units, or none; many keys; a thread's vectors. */
static const struct attention_form {
    const char *name, *kernel;
    const op_case *cases;
    size_t n;
    /* subgroup 0: the software device; workgroup_bytes 0: BERYL_TEST_DEVICE, units 0: its own */
    uint32_t subgroup, units, workgroup_bytes;
    bool drawn;
} attention_forms[] = {
#define ALL(cases) cases, sizeof(cases) / sizeof *(cases)
    {"units", "_units", ALL(units_cases), 32, 2, 227 << 10, false},
    {"matrix", "_matrix", ALL(matrix_cases), 32, 1, 227 << 10, false},
    {"matrix-small", "_matrix", matrix_cases + 7, 2, 32, 1, 80 << 10, false},
    {"matrix-shared", "_matrix", matrix_cases, 3, 32, 132, 227 << 10, false},
    {"direct", "_direct", matrix_cases + 1, 7, 32, 1, 227 << 10, false},
    {"direct-chosen", NULL, matrix_cases + 1, 7, 1, 1, 0, false},
    {"matrix-chosen", NULL, ALL(matrix_cases), 1, 0, 0, false},
    {"units-chosen", NULL, ALL(units_cases), 1, 2, 0, false},
    {"far", "_far", ALL(far_cases), 32, 2, 48 << 10, false},
    {"far-drawn", "_far", ALL(far_cases), 8, 1, 16 << 10, true},
    {"far-gpu", "_far", ALL(far_cases), 0, 4, 32 << 10, false},
    {"tile", "_tile", matrix_cases, 5, 32, 1, 48 << 10, false},
    {"tile", "_tile", matrix_cases + 7, 10, 32, 1, 48 << 10, false},
    {"shuffle", "_shuffle", matrix_cases + 10, 3, 8, 2, 32 << 10, false},
};

static beryl_status attention_open(const struct attention_form *form, base_heap *heap, device **d,
                                   beryl_error *error) {
    beryl_status status = BERYL_OK;
    const bool chosen = !form->workgroup_bytes;
    if (chosen) status = device_open(heap, NULL, getenv("BERYL_TEST_DEVICE"), d, error);
    else if (!form->subgroup) status = device_open(heap, NULL, "webgpu:software", d, error);
    else if (!(*d = interpreter_units_open(heap)))
        status = base_fail(error, BERYL_NO_MEMORY, "no memory");
    device_caps *caps = status == BERYL_OK ? &(*d)->caps : NULL;
    if (caps && form->units) caps->compute_units = form->units;
    if (!caps || chosen) return status;
    caps->kind = !strncmp(form->name, "shuffle", 7) ? DEVICE_SOFTWARE : DEVICE_DISCRETE;
    caps->workgroup_bytes = form->workgroup_bytes;
    caps->multiplies_memory = !strcmp(form->name, "direct");
    if (form->subgroup) caps->subgroup_size = form->subgroup;
    if (form->cases == far_cases || !strcmp(form->name, "tile")) caps->fragments = 0;
    return BERYL_OK;
}

static void test_attention_forms(test *t) {
    for (size_t i = 0; i < sizeof attention_forms / sizeof *attention_forms; i++)
        for (size_t c = 0; c < attention_forms[i].n; c++) {
            const struct attention_form *form = &attention_forms[i];
            const bool tile = !strcmp(form->name, "tile");
            if (!form->workgroup_bytes && !getenv("BERYL_TEST_DEVICE")) continue;
            if ((!form->subgroup && !test_drawn(c, i, 4)) || /* software compiles for seconds */
                !test_case(t, "ops/%s/%s", form->name, form->cases[c].name))
                continue;
            base_heap heap;
            device *d = NULL;
            beryl_error error = {0};
            base_heap_init(&heap, NULL);
            if (!opens(t, attention_open(form, &heap, &d, &error), &error)) continue;
            if (form->drawn) interpreter_draw(d, c + 1);
            op_case one = form->cases[c];
            if (tile && one.within < 1e-2f) one.within = 1e-5f; /* F32, and no Q8_0 */
            run_case(t, &heap, d, &one, form->kernel);
            device_close(d);
            CHECK_INT(t, heap.bytes, 0);
        }
}

void test_ops(test *t);
void test_ops(test *t) {
    test_attention_forms(t);
    for (size_t i = 0; i < test_form_count(); i++) run_cases(t, &test_forms[i], i);
    for (size_t i = 0; i < sizeof more_forms / sizeof *more_forms; i++)
        run_cases(t, &more_forms[i], TEST_FORMS + i);
}
