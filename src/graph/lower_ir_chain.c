/* lower_ir_chain.c - generated kernels of pointwise operations, of rows (norms, softmax) and of weighted sums, alone or joined to trees.
 *
 * The one idea: a tree is values of one shape, computed when something asks for them, and stats: numbers that a row is reduced
 * to. What can be known before any stat is level 0, what needs stats of level n is level n + 1; there is a walk over the row
 * for each level, and what a later walk needs stays in registers. Without stats the walk is over all elements, however many
 * dimensions they have (lower_walk.h). A weighted sum is a leaf: its loop stands where another value is loaded. */
#include "base/error.h"
#include "graph/fused.h"
#include "graph/lower_ir.h"
#include "graph/lower_walk.h"

#include <string.h>

enum {
    VALUE_MAX = 64,
    STAT_MAX = 16,
    SUMS_MAX = 4,         /* weighted, of a tree */
    LANES = 256,          /* of pointwise operations */
    SOFTWARE_LANES = 64,
    SINGLES = 4,          /* elements that a lane does where vectors are none */
    MANY = 1 << 20,       /* elements of a tensor, for which that pays */
    SERIAL_VECTORS = 256, /* that a workgroup does where it is one lane */
    CHUNK_MAX = 16,       /* vectors of a row that a lane holds, */
    HELD_BEST = 16,       /* elements of one value that are enough */
    HELD_MAX = 64,        /* and elements of all that it holds at once */
    ROWS_LANES = 128,     /* of a workgroup that does several rows */
    BLOCK = 64,           /* vectors that are summed one after another */
    ARRAY_BYTES = 32 << 10 /* that one lane alone holds, in arrays */
};

#define LEAST (-3.4028234663852886e38)

typedef enum value_kind {
    VALUE_INPUT,    /* from memory */
    VALUE_WEIGHTED, /* the same, summed with weights over an axis that the tree has not */
    VALUE_NODE,     /* a pointwise operation */
    VALUE_LESS,     /* x - stat */
    VALUE_EXP_LESS, /* exp(x - stat) */
    VALUE_TIMES     /* x * stat */
} value_kind;

typedef struct value {
    value_kind kind;
    base_op op; /* NODE, with the node's constants */
    const graph_node *node;
    bool two; /* operands */
    graph_value id;     /* of the graph; 0: made here */
    uint8_t in[2];      /* values; INPUT: the tensor; WEIGHTED: both */
    uint8_t stat, level;
    uint8_t first, last; /* walks: that computes it, that asks for it last */
    ir_memory array;     /* where the walks are loops of one lane and a later one asks */
} value;

typedef enum stat_kind { STAT_LARGEST, STAT_MEAN, STAT_SUM_OVER /* 1 / sum */, STAT_RMS_OVER /* 1 / sqrt(mean of squares + eps) */ } stat_kind;

typedef struct stat {
    stat_kind kind;
    uint8_t of, level; /* of: a value */
    float eps;
    ir_id result;
} stat;

typedef struct tree {
    const graph *g;
    const graph_tensor *shape; /* of every result */
    graph_value tensors[LOWER_WALK_TENSORS]; /* results [n_out] first */
    graph_tensor seen[LOWER_WALK_TENSORS];   /* as the walk goes over them */
    uint32_t n_tensor, n_out, n_value, n_stat, n_level, n_sum;
    bool crossed; /* a sum over what the tree itself makes */
    value values[VALUE_MAX];
    stat stats[STAT_MAX];
    uint8_t out[GRAPH_OUT_MAX]; /* values */
} tree;

/* ---- from nodes to a tree ------------------------------------------------------------------------------------------ */

static uint8_t add_value(tree *t, value v) {
    if (t->n_value == VALUE_MAX) return 0;
    if (v.kind != VALUE_INPUT && v.level >= t->n_level) t->n_level = v.level + 1u;
    t->values[t->n_value] = v;
    return (uint8_t)t->n_value++;
}

static uint8_t add_stat(tree *t, stat_kind kind, uint8_t of, float eps) {
    if (t->n_stat == STAT_MAX) return 0;
    t->stats[t->n_stat] = (stat){.kind = kind, .of = of, .level = t->values[of].level, .eps = eps};
    return (uint8_t)t->n_stat++;
}

static uint8_t add_tensor(tree *t, graph_value id, graph_tensor seen) {
    if (t->n_tensor < LOWER_WALK_TENSORS) t->tensors[t->n_tensor] = id, t->seen[t->n_tensor] = seen;
    return (uint8_t)t->n_tensor++;
}

static uint8_t value_of(tree *t, graph_value id) {
    for (uint32_t i = 0; i < t->n_value; i++)
        if (t->values[i].id == id) return (uint8_t)i;
    return add_value(t, (value){.kind = VALUE_INPUT, .id = id, .in = {add_tensor(t, id, *graph_tensor_at(t->g, id)), 0}});
}

/* x [n, u, d] as [n, d], g [n, u] as [n, 1]. */
static uint8_t add_sum(tree *t, const graph_node *node) {
    graph_tensor x = *graph_tensor_at(t->g, node->in[0]), g = *graph_tensor_at(t->g, node->in[1]);
    x.rank = 2;
    x.dim[1] = x.dim[2];
    x.stride[1] = x.stride[2];
    g.dim[1] = (graph_dim){1, 0};
    for (uint32_t i = 0; i < t->n_value; i++)
        t->crossed |= t->values[i].kind != VALUE_INPUT && (t->values[i].id == node->in[0] || t->values[i].id == node->in[1]);
    t->n_sum++;
    const uint8_t of = add_tensor(t, node->in[0], x), weights = add_tensor(t, node->in[1], g);
    return add_value(t, (value){.kind = VALUE_WEIGHTED, .node = node, .in = {of, weights}});
}

static uint8_t with_stat(tree *t, value_kind kind, uint8_t of, uint8_t s) {
    return add_value(t, (value){.kind = kind, .in = {of, 0}, .stat = s, .level = t->stats[s].level + 1u});
}

static uint8_t add_node(tree *t, base_op op, const graph_node *node, bool two, uint8_t x, uint8_t y) {
    const uint8_t a = t->values[x].level, b = two ? t->values[y].level : 0;
    return add_value(t, (value){.kind = VALUE_NODE, .op = op, .node = node, .two = two, .in = {x, y}, .level = a > b ? a : b});
}

static void read_node(tree *t, const graph_node *node) {
    if (node->op == OP_WEIGHTED_SUM) {
        t->values[add_sum(t, node)].id = node->out[0];
        return;
    }
    const uint8_t x = value_of(t, node->in[0]), y = node->n_in > 1 ? value_of(t, node->in[1]) : 0;
    uint8_t made;
    switch ((int)node->op) {
    case OP_RMS_NORM:
        made = with_stat(t, VALUE_TIMES, x, add_stat(t, STAT_RMS_OVER, x, node->attr.rms_norm.eps));
        if (node->n_in > 1) made = add_node(t, OP_MUL, node, true, made, y);
        break;
    case OP_LAYER_NORM:
        made = with_stat(t, VALUE_LESS, x, add_stat(t, STAT_MEAN, x, 0));
        made = with_stat(t, VALUE_TIMES, made, add_stat(t, STAT_RMS_OVER, made, node->attr.layer_norm.eps));
        if (node->n_in > 1) made = add_node(t, OP_MUL, node, true, made, y);
        if (node->n_in > 2) made = add_node(t, OP_ADD, node, true, made, value_of(t, node->in[2]));
        break;
    case OP_SOFTMAX:
        made = with_stat(t, VALUE_EXP_LESS, x, add_stat(t, STAT_LARGEST, x, 0));
        made = with_stat(t, VALUE_TIMES, made, add_stat(t, STAT_SUM_OVER, made, 0));
        break;
    default: made = add_node(t, node->op, node, node->n_in > 1, x, y);
    }
    t->values[made].id = node->out[0];
}

static bool is_leaf(const value *v) {
    return v->kind == VALUE_INPUT || v->kind == VALUE_WEIGHTED;
}

/* In which walk each value is computed, and for which it is asked for last. */
static void ask(tree *t, uint32_t v, uint8_t level) {
    value *x = &t->values[v];
    if (x->last < level) x->last = level;
    if (x->first <= level) return;
    x->first = level;
    if (is_leaf(x)) return;
    ask(t, x->in[0], level);
    if (x->two) ask(t, x->in[1], level);
}

/* false: more than there is room for. */
static bool read_tree(tree *t, const graph *g, const graph_node *const *nodes, uint32_t n, const graph_value *outs, uint32_t n_out) {
    *t = (tree){.g = g, .shape = graph_tensor_at(g, outs[0]), .n_out = n_out, .n_level = 1};
    for (uint32_t i = 0; i < n_out; i++) add_tensor(t, outs[i], *graph_tensor_at(g, outs[i]));
    for (uint32_t i = 0; i < n; i++) read_node(t, nodes[i]);
    if (t->n_value == VALUE_MAX || t->n_stat == STAT_MAX || t->n_tensor > LOWER_WALK_TENSORS || t->n_sum > SUMS_MAX || t->crossed) return false;
    for (uint32_t i = 0; i < n_out; i++) t->out[i] = value_of(t, outs[i]);
    for (uint32_t i = 0; i < t->n_value; i++) t->values[i].first = UINT8_MAX;
    for (uint8_t level = 0; level < t->n_level; level++) {
        for (uint32_t i = 0; i < t->n_stat; i++)
            if (t->stats[i].level == level) ask(t, t->stats[i].of, level);
        for (uint32_t i = 0; i < n_out; i++)
            if (t->values[t->out[i]].level == level) ask(t, t->out[i], level);
    }
    return true;
}

/* How many values are held between two walks, at most. computed: those alone that an operation makes. */
static uint32_t most_held(const tree *t, bool computed) {
    uint32_t most = 0;
    for (uint32_t level = 0; level + 1 < t->n_level; level++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < t->n_value; i++) {
            const value *v = &t->values[i];
            n += v->first <= level && v->last > level && !(computed && v->kind == VALUE_INPUT);
        }
        if (n > most) most = n;
    }
    return most;
}

static uint32_t n_array(const tree *t) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_value; i++) n += t->values[i].kind != VALUE_INPUT && t->values[i].last > t->values[i].first;
    return n;
}

/* ---- how rows are done ----------------------------------------------------------------------------------------------- */

typedef struct form {
    uint32_t wide;   /* elements of a vector */
    uint32_t lanes;  /* of a row */
    uint32_t rows;   /* of a workgroup */
    uint32_t chunks; /* vectors that a lane holds in registers; 0: walks are loops */
    bool arrays;     /* loops of one lane, which holds values in arrays; else they are computed again */
    uint32_t subgroup;
} form;

static uint32_t power_from(uint32_t n) { /* the least power of two from n on */
    uint32_t p = 1;
    while (p < n) p *= 2;
    return p;
}

static form form_of(const device_caps *caps, bool serial, const tree *t, uint32_t d, uint32_t wide, uint32_t lanes) {
    form f = {.wide = wide, .lanes = lanes, .rows = 1};
    if (serial) {
        if (caps->kind == DEVICE_SOFTWARE && caps->subgroups && caps->subgroup_size > 1) f.lanes = f.subgroup = caps->subgroup_size;
        f.arrays = lanes == 1 && (uint64_t)n_array(t) * d * 4 <= ARRAY_BYTES && caps->kind == DEVICE_HOST;
        return f;
    }
    const uint32_t most = caps->workgroup_invocations ? caps->workgroup_invocations : LANES, vectors = d / wide, held = most_held(t, false);
    const uint32_t least = caps->subgroups && caps->subgroup_size ? caps->subgroup_size : 32;
    f.lanes = power_from(vectors < least ? vectors : least);
    while (f.lanes * 2 <= most && f.lanes * HELD_BEST < d) f.lanes *= 2;
    for (;;) {
        f.chunks = (vectors + f.lanes - 1) / f.lanes;
        if (f.chunks <= CHUNK_MAX && f.chunks * wide * (held ? held : 1) <= HELD_MAX) break;
        if (f.lanes * 2 > most) {
            f.chunks = 0;
            f.lanes = most < LANES ? power_from(most / 2 + 1) : LANES;
            break;
        }
        f.lanes *= 2;
    }
    if (f.lanes < ROWS_LANES && f.chunks && ROWS_LANES <= most) f.rows = ROWS_LANES / f.lanes;
    if (caps->subgroups && caps->subgroup_size > 1 && f.lanes > 1) f.subgroup = f.lanes < caps->subgroup_size ? f.lanes : caps->subgroup_size;
    return f;
}

/* ---- a kernel being written ---------------------------------------------------------------------------------------- */

typedef struct spot { /* a vector of each tensor */
    uint32_t wide;
    ir_id column, at[LOWER_WALK_TENSORS], made[VALUE_MAX]; /* made: IR_NO_ID: not yet */
} spot;

typedef struct chain {
    lower_ir k;
    tree t;
    form f;
    lower_walk w;
    ir_memory memory[LOWER_WALK_TENSORS];
    ir_id offset[LOWER_WALK_TENSORS], size[GRAPH_RANK_MAX], terms[VALUE_MAX]; /* terms: of a weighted sum */
    uint32_t step[LOWER_WALK_TENSORS]; /* from one element of a vector to the next */
    ir_id row[LOWER_WALK_TENSORS];     /* rows: where this one begins */
    ir_id lane;                        /* rows: the lane's number among those of its row */
    uint32_t level;
} chain;

static const char *const names[LOWER_WALK_TENSORS] = {"t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9", "t10", "t11"};
static const char *const offsets[LOWER_WALK_TENSORS] = {"o0", "o1", "o2", "o3", "o4", "o5", "o6", "o7", "o8", "o9", "o10", "o11"};
static const char *const sizes[GRAPH_RANK_MAX] = {"d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7"};

/* Bindings, offsets and sizes. Views of one tensor share its binding. */
static void declare(chain *c) {
    const tree *t = &c->t;
    for (uint32_t i = 0; i < t->n_tensor; i++) {
        uint32_t same = i;
        for (uint32_t before = t->n_out; before < i && same == i; before++)
            if (i >= t->n_out && graph_base_of(t->g, t->tensors[before]) == graph_base_of(t->g, t->tensors[i])) same = before;
        if (same != i) c->memory[i] = c->memory[same];
        else c->memory[i] = i < t->n_out ? lower_ir_write(&c->k, names[i], t->tensors[i]) : lower_ir_read(&c->k, names[i], t->tensors[i]);
    }
    for (uint32_t i = 0; i < t->n_tensor; i++) {
        const graph_tensor *x = graph_tensor_at(t->g, t->tensors[i]);
        c->offset[i] = x->base ? lower_ir_u32(&c->k, offsets[i], x->offset) : ir_u32(c->k.b, 0);
    }
    for (uint32_t i = 0; i < c->w.n; i++) c->size[i] = lower_ir_count(&c->k, sizes[i], c->w.size[i]);
    static const char *const terms[SUMS_MAX] = {"u0", "u1", "u2", "u3"};
    for (uint32_t i = 0, n = 0; i < t->n_value; i++)
        if (t->values[i].kind == VALUE_WEIGHTED) c->terms[i] = lower_ir_count(&c->k, terms[n++], lower_count_of(graph_tensor_at(t->g, t->values[i].node->in[1])->dim[1]));
}

/* Where place `left` of the walk is in each tensor; `each`: elements that a step of the innermost dimension goes. Gives the
 * place in the outermost. */
static ir_id place(chain *c, ir_id left, uint32_t each, bool clamp, ir_id *at) {
    ir_builder *b = c->k.b;
    const lower_walk *w = &c->w;
    memcpy(at, c->offset, sizeof c->offset);
    for (uint32_t i = w->n; i-- > 0;) {
        const bool constant = !w->size[i].extent;
        ir_id here = left;
        if (i) here = constant ? lower_ir_rest(&c->k, left, (uint32_t)w->size[i].factor) : ir_mod(b, left, c->size[i]);
        else if (clamp) here = ir_min(b, left, ir_sub(b, c->size[0], ir_u32(b, 1)));
        if (i) left = constant ? lower_ir_over(&c->k, left, (uint32_t)w->size[i].factor) : ir_div(b, left, c->size[i]);
        for (uint32_t t = 0; t < c->t.n_tensor; t++)
            if (w->stride[t][i]) at[t] = ir_add(b, at[t], lower_ir_times(&c->k, here, w->stride[t][i] * (i + 1 == w->n ? each : 1)));
    }
    return left;
}

static void spot_begin(spot *s, uint32_t wide) {
    s->wide = wide;
    memset(s->made, 0xff, sizeof s->made);
}

static ir_id operation(chain *c, base_op op, const graph_node *node, ir_id x, ir_id y, uint32_t width) {
    ir_builder *b = c->k.b;
    switch ((int)op) {
    case OP_ADD: return ir_add(b, x, y);
    case OP_MUL: return ir_mul(b, x, y);
    case OP_SCALE: return ir_mul(b, x, ir_number(b, IR_F32, width, (double)node->attr.scale.factor));
    case OP_GELU_TANH: return lower_ir_gelu(&c->k, x);
    case OP_GEGLU: return ir_mul(b, lower_ir_gelu(&c->k, x), y);
    case OP_SOFTCAP: {
        ir_id cap = ir_number(b, IR_F32, width, (double)node->attr.softcap.cap);
        return ir_mul(b, cap, ir_tanh(b, ir_div(b, x, cap)));
    }
    default: return x; /* copy */
    }
}

/* A vector of tensor t, `ahead` elements on. */
static ir_id loaded(chain *c, const spot *s, uint32_t t, ir_id ahead) {
    ir_builder *b = c->k.b;
    const ir_id at = ahead == IR_NO_ID ? s->at[t] : ir_add(b, s->at[t], ahead);
    return ir_splat(b, ir_load(b, c->memory[t], at, c->step[t] ? s->wide : 1), s->wide);
}

static ir_id weighted_sum(chain *c, const spot *s, uint32_t v) {
    ir_builder *b = c->k.b;
    const value *x = &c->t.values[v];
    const uint32_t x1 = graph_tensor_at(c->t.g, x->node->in[0])->stride[1], g1 = graph_tensor_at(c->t.g, x->node->in[1])->stride[1];
    const ir_id zero = ir_u32(b, 0);
    const ir_memory sum = ir_register(b, IR_F32, s->wide);
    ir_store(b, sum, zero, ir_number(b, IR_F32, s->wide, 0));
    const ir_id i = ir_loop(b, zero, c->terms[v], ir_u32(b, 1));
    const ir_id term = loaded(c, s, x->in[0], lower_ir_times(&c->k, i, x1)), weight = loaded(c, s, x->in[1], lower_ir_times(&c->k, i, g1));
    ir_store(b, sum, zero, ir_fma(b, term, weight, ir_load(b, sum, zero, s->wide)));
    ir_end(b);
    return ir_load(b, sum, zero, s->wide);
}

static ir_id value_at(chain *c, spot *s, uint32_t v) {
    ir_builder *b = c->k.b;
    const value *x = &c->t.values[v];
    if (s->made[v] != IR_NO_ID) return s->made[v];
    ir_id made;
    if (x->kind == VALUE_INPUT) {
        made = loaded(c, s, x->in[0], IR_NO_ID);
    } else if (c->f.arrays && x->first < c->level) {
        made = ir_load(b, x->array, s->column, s->wide);
    } else {
        const ir_id in = is_leaf(x) ? IR_NO_ID : value_at(c, s, x->in[0]);
        if (x->kind == VALUE_WEIGHTED) {
            made = weighted_sum(c, s, v);
        } else if (x->kind == VALUE_NODE) {
            made = operation(c, x->op, x->node, in, x->two ? value_at(c, s, x->in[1]) : IR_NO_ID, s->wide);
        } else {
            const ir_id with = ir_splat(b, c->t.stats[x->stat].result, s->wide);
            made = x->kind == VALUE_TIMES ? ir_mul(b, in, with) : ir_sub(b, in, with);
            if (x->kind == VALUE_EXP_LESS) made = ir_exp(b, made);
        }
        if (c->f.arrays && x->last > c->level) ir_store(b, x->array, s->column, made);
    }
    return s->made[v] = made;
}

static void store_outs(chain *c, spot *s, uint32_t level) {
    for (uint32_t i = 0; i < c->t.n_out; i++)
        if (c->t.values[c->t.out[i]].level == level) ir_store(c->k.b, c->memory[i], s->at[i], value_at(c, s, c->t.out[i]));
}

/* ---- elements ---------------------------------------------------------------------------------------------------------- */

/* The widest vector that every tensor takes along the innermost dimension: there it is dense or broadcast. whole: rows are
 * whole vectors. */
static uint32_t widest(const chain *c, uint32_t most, uint64_t row, bool whole, uint32_t n_outer) {
    for (uint32_t wide = most; wide > 1; wide /= 2) {
        bool fits = !whole || row % wide == 0;
        for (uint32_t t = 0; fits && t < c->t.n_tensor; t++) {
            if (c->step[t] == 0) continue;
            fits = c->step[t] == 1 && graph_tensor_at(c->t.g, c->t.tensors[t])->offset % wide == 0;
            for (uint32_t i = 0; i < n_outer; i++) fits = fits && c->w.stride[t][i] % wide == 0;
        }
        for (uint32_t v = 0; fits && v < c->t.n_value; v++)
            if (c->t.values[v].kind == VALUE_WEIGHTED) fits = graph_tensor_at(c->t.g, c->t.values[v].node->in[0])->stride[1] % wide == 0;
        if (fits) return wide;
    }
    return 1;
}

/* A row that is no whole number of vectors: what is left of it goes to one more lane. */
static void rest_of_row(chain *c, ir_id at, ir_id n) {
    ir_builder *b = c->k.b;
    ir_id i = ir_loop(b, at, n, ir_u32(b, 1));
    spot s;
    spot_begin(&s, 1);
    for (uint32_t t = 0; t < c->t.n_tensor; t++) s.at[t] = c->step[t] ? ir_add(b, c->offset[t], i) : c->offset[t];
    store_outs(c, &s, 0);
    ir_end(b);
}

/* inside: the vector is known to be one. */
static void one_vector(chain *c, ir_id index, ir_id total, ir_id n, bool inside, bool ragged, uint32_t wide) {
    ir_builder *b = c->k.b;
    spot s;
    spot_begin(&s, wide);
    if (!inside) ir_if(b, ir_lt(b, index, total));
    place(c, index, wide, false, s.at);
    store_outs(c, &s, 0);
    if (ragged) {
        ir_else(b);
        ir_if(b, ir_eq(b, index, total));
        rest_of_row(c, lower_ir_times(&c->k, index, wide), n);
        ir_end(b);
    }
    if (!inside) ir_end(b);
}

/* Elements far apart, all of them read before one is written. */
static void singles(chain *c, ir_id first, ir_id total, uint32_t apart) {
    ir_builder *b = c->k.b;
    spot s[SINGLES];
    ir_id index[SINGLES];
    const ir_id last = ir_sub(b, total, ir_u32(b, 1));
    for (uint32_t i = 0; i < SINGLES; i++) {
        spot_begin(&s[i], 1);
        index[i] = lower_ir_plus(&c->k, first, i * apart);
        place(c, ir_min(b, index[i], last), 1, false, s[i].at);
        for (uint32_t v = 0; v < c->t.n_value; v++)
            if (c->t.values[v].kind == VALUE_INPUT) value_at(c, &s[i], v);
    }
    for (uint32_t i = 0; i < SINGLES; i++) {
        ir_if(b, ir_lt(b, index[i], total));
        store_outs(c, &s[i], 0);
        ir_end(b);
    }
}

static beryl_status elements(chain *c, lowering *l, const graph_node *node, const char *name, beryl_error *error) {
    const bool serial = l->caps->kind == DEVICE_HOST;
    const graph_tensor *tensors[LOWER_WALK_TENSORS];
    for (uint32_t i = 0; i < c->t.n_tensor; i++) tensors[i] = &c->t.seen[i];
    c->w = lower_walk_of(tensors, c->t.n_tensor, 0);
    if (c->w.n == 0) lower_walk_pad(&c->w, 1);
    const uint32_t inner = c->w.n - 1;
    for (uint32_t t = 0; t < c->t.n_tensor; t++) c->step[t] = c->w.stride[t][inner];
    const uint32_t most = serial ? LOWER_IR_RUN : 4;
    const uint64_t row = c->w.size[inner].factor;
    const bool ragged = c->w.n == 1 && row % most && widest(c, most, row, false, 0) > 1;
    const uint32_t wide = widest(c, most, row, !ragged, inner);
    const uint32_t lanes = serial ? 1 : lower_ir_serial(l) ? SOFTWARE_LANES : LANES;
    const bool apart = wide == 1 && !lower_ir_serial(l) && graph_element_bound(c->t.shape) >= MANY;
    const uint32_t each = serial ? SERIAL_VECTORS : apart ? SINGLES : 1;
    if (!ragged) c->w.size[inner].factor /= wide;
    lower_ir_begin(&c->k, l, node, name, lanes);
    ir_builder *b = c->k.b;
    declare(c);
    ir_id n = c->size[0], total = n, group = lower_ir_group(&c->k);
    for (uint32_t i = 1; i < c->w.n; i++) total = ir_mul(b, total, c->size[i]);
    if (ragged) total = lower_ir_over(&c->k, n, wide);
    ir_id first = lower_ir_times(&c->k, group, lanes * each);
    if (serial) {
        ir_id end = ir_min(b, lower_ir_plus(&c->k, first, each), ragged ? lower_ir_plus(&c->k, total, 1) : total);
        ir_id index = ir_loop(b, first, end, ir_u32(b, 1));
        one_vector(c, index, total, n, !ragged, ragged, wide);
        ir_end(b);
    } else if (apart) {
        singles(c, ir_add(b, first, ir_local(b, 0)), total, lanes);
    } else {
        one_vector(c, ir_add(b, first, ir_local(b, 0)), total, n, false, ragged, wide);
    }
    lower_count count = lower_walk_count(l, &c->w);
    return lower_ir_end(&c->k, count, lanes * each * (ragged ? wide : 1), error);
}

/* ---- rows ---------------------------------------------------------------------------------------------------------------- */

static ir_id neutral(chain *c, stat_kind kind, uint32_t width) {
    return ir_number(c->k.b, IR_F32, width, kind == STAT_LARGEST ? LEAST : 0);
}

static ir_id gather(chain *c, stat_kind kind, ir_id sum, ir_id x) {
    ir_builder *b = c->k.b;
    if (kind == STAT_LARGEST) return ir_max(b, sum, x);
    return kind == STAT_RMS_OVER ? ir_fma(b, x, x, sum) : ir_add(b, sum, x);
}

/* x of the row's lanes, joined, in all of them. Each call has memory of its own, so no two meet. */
static ir_id join_lanes(chain *c, ir_op op, ir_id x) {
    ir_builder *b = c->k.b;
    const form *f = &c->f;
    if (f->lanes == 1) return x;
    const ir_id local = ir_local(b, 0);
    if (!f->subgroup) {
        const ir_memory at = ir_workgroup(b, IR_F32, f->lanes * f->rows);
        ir_store(b, at, local, x);
        for (uint32_t half = f->lanes / 2; half > 0; half /= 2) {
            ir_barrier(b);
            ir_if(b, ir_lt(b, c->lane, ir_u32(b, half)));
            ir_store(b, at, local, ir_binary(b, op, ir_load(b, at, local, 1), ir_load(b, at, lower_ir_plus(&c->k, local, half), 1)));
            ir_end(b);
        }
        ir_barrier(b);
        return ir_load(b, at, ir_sub(b, local, c->lane), 1);
    }
    x = op == IR_MAX ? ir_subgroup_max(b, x) : ir_subgroup_add(b, x);
    if (f->lanes == f->subgroup) return x;
    const uint32_t n = f->lanes / f->subgroup, wide = n < 4 ? n : 4;
    const ir_memory at = ir_workgroup(b, IR_F32, n * f->rows);
    ir_if(b, ir_eq(b, ir_subgroup_lane(b), ir_u32(b, 0)));
    ir_store(b, at, lower_ir_over(&c->k, local, f->subgroup), x);
    ir_end(b);
    ir_barrier(b);
    const ir_id first = lower_ir_over(&c->k, ir_sub(b, local, c->lane), f->subgroup);
    ir_id all = ir_load(b, at, first, wide);
    for (uint32_t i = wide; i < n; i += wide) all = ir_binary(b, op, all, ir_load(b, at, lower_ir_plus(&c->k, first, i), wide));
    return op == IR_MAX ? lower_ir_max_vector(&c->k, all) : lower_ir_sum_vector(&c->k, all);
}

static void finish_stat(chain *c, stat *s, ir_id vector, uint32_t d) {
    ir_builder *b = c->k.b;
    const bool largest = s->kind == STAT_LARGEST;
    const ir_id one = largest ? lower_ir_max_vector(&c->k, vector) : lower_ir_sum_vector(&c->k, vector);
    const ir_id all = join_lanes(c, largest ? IR_MAX : IR_ADD, one);
    s->result = all;
    if (s->kind == STAT_SUM_OVER) s->result = ir_div(b, ir_f32(b, 1), all);
    if (s->kind == STAT_MEAN) s->result = ir_div(b, all, ir_f32(b, (float)d));
    if (s->kind != STAT_RMS_OVER) return;
    const ir_id mean = ir_add(b, ir_div(b, all, ir_f32(b, (float)d)), ir_f32(b, s->eps));
    s->result = ir_div(b, ir_f32(b, 1), ir_sqrt(b, mean));
}

static void spot_at(chain *c, spot *s, ir_id i) {
    spot_begin(s, c->f.wide);
    for (uint32_t t = 0; t < c->t.n_tensor; t++)
        s->at[t] = c->step[t] ? ir_add(c->k.b, c->row[t], lower_ir_times(&c->k, i, c->step[t])) : c->row[t];
    s->column = i;
}

/* Everything of a lane in registers. valid: this row is one (where a workgroup does several), IR_NO_ID: it is. */
static void in_registers(chain *c, uint32_t d, ir_id valid) {
    ir_builder *b = c->k.b;
    const form *f = &c->f;
    spot s[CHUNK_MAX];
    ir_id inside = IR_NO_ID; /* the last vector is one */
    for (uint32_t i = 0; i < f->chunks; i++) {
        ir_id at = lower_ir_plus(&c->k, lower_ir_times(&c->k, c->lane, f->wide), i * f->lanes * f->wide);
        if ((i + 1) * f->lanes * f->wide > d) {
            inside = ir_lt(b, at, ir_u32(b, d));
            at = ir_min(b, at, ir_u32(b, d - f->wide));
        }
        spot_at(c, &s[i], at);
    }
    for (c->level = 0; c->level < c->t.n_level; c->level++) {
        for (uint32_t v = 0; v < c->t.n_value; v++) /* all loads of the walk before anything else */
            for (uint32_t i = 0; i < f->chunks; i++)
                if (c->t.values[v].kind == VALUE_INPUT && c->t.values[v].first == c->level) value_at(c, &s[i], v);
        for (uint32_t n = 0; n < c->t.n_stat; n++) {
            stat *st = &c->t.stats[n];
            if (st->level != c->level) continue;
            ir_id sum = neutral(c, st->kind, f->wide);
            for (uint32_t i = 0; i < f->chunks; i++) {
                ir_id x = value_at(c, &s[i], st->of);
                if (i + 1 == f->chunks && inside != IR_NO_ID) x = ir_select(b, ir_splat(b, inside, f->wide), x, neutral(c, st->kind, f->wide));
                sum = gather(c, st->kind, sum, x);
            }
            finish_stat(c, st, sum, d);
        }
        for (uint32_t i = 0; i < f->chunks; i++) {
            for (uint32_t n = 0; n < c->t.n_out; n++)
                if (c->t.values[c->t.out[n]].level == c->level) value_at(c, &s[i], c->t.out[n]);
            const bool last = i + 1 == f->chunks && inside != IR_NO_ID;
            ir_id may = last ? valid != IR_NO_ID ? ir_and(b, inside, valid) : inside : valid;
            if (may != IR_NO_ID) ir_if(b, may);
            store_outs(c, &s[i], c->level);
            if (may != IR_NO_ID) ir_end(b);
        }
    }
}

/* Sums of sums: of many numbers one after another the last ones would lose their digits. */
static void begin_sums(chain *c, const ir_memory *cells) {
    for (uint32_t n = 0; n < c->t.n_stat; n++)
        if (c->t.stats[n].level == c->level) ir_store(c->k.b, cells[n], ir_u32(c->k.b, 0), neutral(c, c->t.stats[n].kind, c->f.wide));
}

/* The row again for each level. */
static void in_loops(chain *c, uint32_t d) {
    ir_builder *b = c->k.b;
    const form *f = &c->f;
    ir_memory all[STAT_MAX] = {0}, cells[STAT_MAX] = {0};
    const ir_id zero = ir_u32(b, 0), end = ir_u32(b, d), step = ir_u32(b, f->lanes * f->wide);
    const uint32_t block = f->lanes * f->wide * BLOCK;
    const bool in_blocks = d > 2 * block;
    for (c->level = 0; c->level < c->t.n_level; c->level++) {
        for (uint32_t n = 0; n < c->t.n_stat; n++)
            if (c->t.stats[n].level == c->level) cells[n] = ir_register(b, IR_F32, f->wide), all[n] = in_blocks ? ir_register(b, IR_F32, f->wide) : cells[n];
        begin_sums(c, all);
        const ir_id first = f->lanes == 1 ? zero : lower_ir_times(&c->k, c->lane, f->wide);
        ir_id from = first, to = end;
        if (in_blocks) {
            const ir_id at = ir_loop(b, zero, end, ir_u32(b, block));
            begin_sums(c, cells);
            from = ir_add(b, at, first);
            to = ir_min(b, lower_ir_plus(&c->k, at, block), end);
        }
        const ir_id i = ir_loop(b, from, to, step);
        spot s;
        spot_at(c, &s, i);
        for (uint32_t n = 0; n < c->t.n_stat; n++) {
            const stat *st = &c->t.stats[n];
            if (st->level != c->level) continue;
            const ir_id x = value_at(c, &s, st->of);
            ir_store(b, cells[n], zero, gather(c, st->kind, ir_load(b, cells[n], zero, f->wide), x));
        }
        store_outs(c, &s, c->level);
        ir_end(b);
        for (uint32_t n = 0; in_blocks && n < c->t.n_stat; n++) {
            if (c->t.stats[n].level != c->level) continue;
            const ir_id sum = ir_load(b, all[n], zero, f->wide), more = ir_load(b, cells[n], zero, f->wide);
            ir_store(b, all[n], zero, c->t.stats[n].kind == STAT_LARGEST ? ir_max(b, sum, more) : ir_add(b, sum, more));
        }
        if (in_blocks) ir_end(b);
        for (uint32_t n = 0; n < c->t.n_stat; n++)
            if (c->t.stats[n].level == c->level) finish_stat(c, &c->t.stats[n], ir_load(b, all[n], zero, f->wide), d);
    }
}

static beryl_status rows(chain *c, lowering *l, const graph_node *node, const char *name, beryl_error *error) {
    const graph_tensor *tensors[LOWER_WALK_TENSORS], *shape = c->t.shape;
    const uint32_t last = shape->rank - 1u;
    if (shape->rank == 0 || shape->dim[last].extent) return lower_ir_refuse(node, "rows of varying length", error);
    const uint32_t d = shape->dim[last].size;
    for (uint32_t i = 0; i < c->t.n_tensor; i++) {
        tensors[i] = &c->t.seen[i];
        c->step[i] = lower_walk_stride(tensors[i], shape->rank, last);
    }
    c->w = lower_walk_of(tensors, c->t.n_tensor, 1);
    if (c->w.n == 0) lower_walk_pad(&c->w, 1);
    const uint32_t wide = widest(c, l->caps->kind == DEVICE_HOST ? LOWER_IR_RUN : 4, d, true, c->w.n);
    c->f = form_of(l->caps, lower_ir_serial(l), &c->t, d, wide, lower_ir_lanes(l, d));
    const form *f = &c->f;
    lower_ir_begin(&c->k, l, node, name, f->lanes * f->rows);
    ir_builder *b = c->k.b;
    if (f->subgroup) ir_subgroup(b, f->subgroup);
    declare(c);
    for (uint32_t i = 0; f->arrays && i < c->t.n_value; i++)
        if (c->t.values[i].kind != VALUE_INPUT && c->t.values[i].last > c->t.values[i].first) c->t.values[i].array = ir_register(b, IR_F32, d);
    const ir_id local = ir_local(b, 0), group = lower_ir_group(&c->k);
    c->lane = f->rows > 1 ? lower_ir_rest(&c->k, local, f->lanes) : local;
    ir_id row = f->rows > 1 ? ir_add(b, lower_ir_times(&c->k, group, f->rows), lower_ir_over(&c->k, local, f->lanes)) : group;
    const ir_id outer = place(c, row, 1, f->rows > 1, c->row), valid = ir_lt(b, outer, c->size[0]);
    if (f->rows == 1) ir_if(b, valid);
    if (f->chunks) in_registers(c, d, f->rows > 1 ? valid : IR_NO_ID);
    else in_loops(c, d);
    if (f->rows == 1) ir_end(b);
    return lower_ir_end(&c->k, lower_walk_count(l, &c->w), f->rows, error);
}

/* ---- the lowerings ------------------------------------------------------------------------------------------------------ */

static beryl_status lower_tree(lowering *l, const graph_node *node, const graph_node *const *nodes, uint32_t n, const char *name, beryl_error *error) {
    chain *c = base_heap_take(l->store->heap, sizeof *c);
    if (!c) return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    beryl_status status = BERYL_OK;
    if (!read_tree(&c->t, l->g, nodes, n, node->out, node->n_out)) status = lower_ir_refuse(node, "more values than there is room for", error);
    else status = c->t.n_stat ? rows(c, l, node, name, error) : elements(c, l, node, name, error);
    base_heap_give(l->store->heap, c, sizeof *c);
    return status;
}

beryl_status lower_ir_pointwise(lowering *l, const graph_node *node, beryl_error *error) {
    return lower_tree(l, node, &node, 1, graph_op_name(node->op), error);
}

beryl_status lower_ir_chain(lowering *l, const graph_node *node, beryl_error *error) {
    const graph_node *nodes[FUSED_CHAIN_MAX];
    const uint32_t n = node->attr.fused.count;
    for (uint32_t i = 0; i < n && i < FUSED_CHAIN_MAX; i++) nodes[i] = &l->g->inner.data[node->attr.fused.first + i];
    return lower_tree(l, node, nodes, n, "chain", error);
}

static bool is_dear(base_op op) {
    return op == OP_GELU_TANH || op == OP_GEGLU || op == OP_SOFTCAP;
}

bool lower_ir_chain_fits(const graph *g, const graph_store *store, const graph_node *const *nodes, uint32_t n, const graph_value *outs, uint32_t n_out) {
    tree t;
    const device_caps *caps = device_caps_of(store->device);
    if (n > FUSED_CHAIN_MAX || !read_tree(&t, g, nodes, n, outs, n_out)) return false;
    if (caps->storage_max && t.n_tensor > caps->storage_max) return false;
    if (!t.n_stat) return true;
    const graph_tensor *shape = graph_tensor_at(g, outs[0]);
    if (shape->rank == 0 || shape->dim[shape->rank - 1].extent) return false;
    const lowering l = {.caps = caps};
    const bool serial = lower_ir_serial(&l);
    const uint32_t d = shape->dim[shape->rank - 1].size;
    const form f = form_of(caps, serial, &t, d, serial || d % 4 ? 1 : 4, lower_ir_lanes(&l, d));
    if (f.chunks || f.arrays) return true;
    for (uint32_t i = 0; i < t.n_value; i++) /* would be computed once a walk */
        if (t.values[i].last > t.values[i].first && (t.values[i].kind == VALUE_WEIGHTED || (t.values[i].kind == VALUE_NODE && is_dear(t.values[i].op)))) return false;
    return true;
}
