/* lower_ir_tree.c - see lower_ir_tree.h. */
#include "graph/lower_ir_tree.h"

#include "graph/fused.h"

#include <string.h>

/* ---- from nodes to a tree ------------------------------------------------------------------------------------------ */

static uint8_t add_value(tree *t, tree_value v) {
    if (t->n_value == TREE_VALUES) return 0;
    if (v.kind != TREE_INPUT && v.level >= t->n_level) t->n_level = v.level + 1u;
    t->values[t->n_value] = v;
    return (uint8_t)t->n_value++;
}

static uint8_t add_stat(tree *t, tree_stat_kind kind, uint8_t of, float eps) {
    if (t->n_stat == TREE_STATS) return 0;
    t->stats[t->n_stat] = (tree_stat){.kind = kind, .of = of, .level = t->values[of].level, .eps = eps};
    return (uint8_t)t->n_stat++;
}

static uint8_t add_tensor(tree *t, graph_value id, graph_tensor seen, uint32_t ahead) {
    if (t->n_tensor < LOWER_WALK_TENSORS) t->tensors[t->n_tensor] = id, t->seen[t->n_tensor] = seen, t->ahead[t->n_tensor] = ahead;
    return (uint8_t)t->n_tensor++;
}

/* Inside a sum without the axis that it is over: [n, u, d] as [n, d], weights [n, u] as [n, 1]. */
static uint8_t add_input(tree *t, graph_value id, uint8_t inside) {
    graph_tensor x = *graph_tensor_at(t->g, id);
    const bool weights = inside && inside % 2 == 0;
    const uint32_t ahead = inside ? lower_walk_stride(&x, weights ? 2 : 3, 1) : 0;
    if (weights && x.rank) {
        x.dim[x.rank - 1] = (graph_dim){1, 0};
    } else if (inside && x.rank > 1) {
        x.dim[x.rank - 2] = x.dim[x.rank - 1];
        x.stride[x.rank - 2] = x.stride[x.rank - 1];
        x.rank--;
    }
    return add_tensor(t, id, x, ahead);
}

static uint8_t value_of(tree *t, graph_value id, uint8_t inside) {
    for (uint32_t i = 0; i < t->n_value; i++)
        if (t->values[i].id == id && t->values[i].inside == inside) return (uint8_t)i;
    return add_value(t, (tree_value){.kind = TREE_INPUT, .id = id, .inside = inside, .in = {add_input(t, id, inside), 0}});
}

static uint8_t with_stat(tree *t, tree_value_kind kind, uint8_t of, uint8_t s) {
    return add_value(t, (tree_value){.kind = kind, .in = {of, 0}, .stat = s, .level = t->stats[s].level + 1u});
}

static uint8_t add_node(tree *t, base_op op, const graph_node *node, bool two, uint8_t x, uint8_t y) {
    const uint8_t a = t->values[x].level, b = two ? t->values[y].level : 0;
    return add_value(t, (tree_value){.kind = TREE_NODE, .op = op, .node = node, .two = two, .inside = t->values[x].inside, .in = {x, y}, .level = a > b ? a : b});
}

/* inside: of its inputs. */
static void read_node(tree *t, const graph_node *node, const uint8_t inside[2]) {
    const uint8_t x = value_of(t, node->in[0], inside[0]), y = node->n_in > 1 ? value_of(t, node->in[1], inside[1]) : 0;
    uint8_t made;
    switch ((int)node->op) {
    case OP_WEIGHTED_SUM:
        made = add_value(t, (tree_value){.kind = TREE_WEIGHTED, .node = node, .in = {x, y}});
        t->n_sum++;
        break;
    case OP_RMS_NORM:
        made = with_stat(t, TREE_TIMES, x, add_stat(t, TREE_RMS_OVER, x, node->attr.rms_norm.eps));
        if (node->n_in > 1) made = add_node(t, OP_MUL, node, true, made, y);
        break;
    case OP_LAYER_NORM:
        made = with_stat(t, TREE_LESS, x, add_stat(t, TREE_MEAN, x, 0));
        made = with_stat(t, TREE_TIMES, made, add_stat(t, TREE_RMS_OVER, made, node->attr.layer_norm.eps));
        if (node->n_in > 1) made = add_node(t, OP_MUL, node, true, made, y);
        if (node->n_in > 2) made = add_node(t, OP_ADD, node, true, made, value_of(t, node->in[2], 0));
        break;
    case OP_SOFTMAX:
        made = with_stat(t, TREE_EXP_LESS, x, add_stat(t, TREE_LARGEST, x, 0));
        made = with_stat(t, TREE_TIMES, made, add_stat(t, TREE_SUM_OVER, made, 0));
        break;
    default: made = add_node(t, node->op, node, node->n_in > 1, x, y);
    }
    t->values[made].id = node->out[0];
}

static bool is_leaf(const tree_value *v) {
    return v->kind == TREE_INPUT || v->kind == TREE_GIVEN || v->kind == TREE_WEIGHTED;
}

/* In which walk each value is computed, and for which it is asked for last. */
static void ask(tree *t, uint32_t v, uint8_t level) {
    tree_value *x = &t->values[v];
    if (x->last < level) x->last = level;
    if (x->first <= level) return;
    x->first = level;
    if (is_leaf(x)) return;
    ask(t, x->in[0], level);
    if (x->two) ask(t, x->in[1], level);
}

static void ask_all(tree *t) {
    for (uint32_t i = 0; i < t->n_value; i++) t->values[i].first = UINT8_MAX;
    for (uint8_t level = 0; level < t->n_level; level++) {
        for (uint32_t i = 0; i < t->n_stat; i++)
            if (t->stats[i].level == level) ask(t, t->stats[i].of, level);
        for (uint32_t i = 0; i < t->n_out; i++)
            if (t->values[t->out[i]].level == level) ask(t, t->out[i], level);
        if (t->choice && t->values[t->chosen].level == level) ask(t, t->chosen, level);
    }
}

static bool makes(const graph_node *node, graph_value v) {
    for (uint32_t i = 0; node && i < node->n_out; i++)
        if (node->out[i] == v) return true;
    return false;
}

bool tree_is_pointwise(base_op op) {
    switch ((int)op) {
    case OP_COPY:
    case OP_ADD:
    case OP_MUL:
    case OP_SCALE:
    case OP_GELU_TANH:
    case OP_GEGLU:
    case OP_SOFTCAP: return true;
    default: return false;
    }
}

/* May it be computed there? Weights are the same for a whole row, which computes them again and again. */
static bool is_for(base_op op, uint8_t inside) {
    return !inside || (tree_is_pointwise(op) && (inside % 2 || !tree_is_dear(op)));
}

static uint8_t inside_of_input(const graph_node *node, uint32_t i, uint32_t k, uint8_t inside) {
    return node->op == OP_WEIGHTED_SUM ? (uint8_t)(2 * i + 1 + k) : inside;
}

/* What each node's result is inside of, as of a value. */
static bool find_insides(const graph_node *const *nodes, uint32_t n, const graph_value *outs, uint32_t n_out, uint8_t *inside) {
    enum { UNKNOWN = UINT8_MAX };
    for (uint32_t i = 0; i < n; i++) {
        inside[i] = UNKNOWN;
        for (uint32_t o = 0; o < n_out; o++)
            if (makes(nodes[i], outs[o])) inside[i] = 0;
    }
    for (uint32_t i = n; i-- > 0;) { /* those who need it come after it */
        if (!is_for(nodes[i]->op, inside[i])) return false;
        for (uint32_t m = 0; m < i; m++)
            for (uint32_t k = 0; k < nodes[i]->n_in; k++) {
                const uint8_t here = inside_of_input(nodes[i], i, k, inside[i]);
                if (!makes(nodes[m], nodes[i]->in[k])) continue;
                if (inside[m] != UNKNOWN && inside[m] != here) return false;
                inside[m] = here;
            }
    }
    return true;
}

bool tree_read(tree *t, const graph *g, const graph_node *const *nodes, uint32_t n, const graph_value *outs, uint32_t n_out) {
    uint8_t inside[FUSED_CHAIN_MAX];
    *t = (tree){.g = g, .n_level = 1};
    if (n > FUSED_CHAIN_MAX || !find_insides(nodes, n, outs, n_out, inside)) return false;
    for (uint32_t i = 0; i < n; i++) {
        if (nodes[i]->op == OP_ARGMAX || nodes[i]->op == OP_TOPK) t->choice = nodes[i];
        if (nodes[i]->op == OP_MATMUL || nodes[i]->op == OP_MATMUL_ID) t->product = nodes[i];
    }
    t->shape = graph_tensor_at(g, t->choice ? t->choice->in[0] : outs[0]);
    for (uint32_t i = 0; i < n_out; i++) {
        if (makes(t->choice, outs[i])) continue;
        add_tensor(t, outs[i], *graph_tensor_at(g, outs[i]), 0);
        t->n_out++;
    }
    if (t->product) add_value(t, (tree_value){.kind = TREE_GIVEN, .id = t->product->out[0]});
    for (uint32_t i = 0; i < n; i++)
        if (nodes[i] != t->choice && nodes[i] != t->product)
            read_node(t, nodes[i], (uint8_t[]){inside_of_input(nodes[i], i, 0, inside[i]), inside_of_input(nodes[i], i, 1, inside[i])});
    if (t->choice) t->chosen = value_of(t, t->choice->in[0], 0);
    for (uint32_t i = 0; i < t->n_out; i++) t->out[i] = value_of(t, t->tensors[i], 0);
    if (t->n_value == TREE_VALUES || t->n_stat == TREE_STATS || t->n_tensor > LOWER_WALK_TENSORS || t->n_sum > TREE_SUMS) return false;
    ask_all(t);
    return true;
}

void tree_read_choice(tree *t, const graph *g, const graph_node *node) {
    *t = (tree){.g = g, .shape = graph_tensor_at(g, node->in[0]), .choice = node, .n_level = 1};
    t->chosen = value_of(t, node->in[0], 0);
    ask_all(t);
}

uint32_t tree_most_held(const tree *t) {
    uint32_t most = 0;
    for (uint32_t level = 0; level + 1 < t->n_level; level++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < t->n_value; i++) n += t->values[i].first <= level && t->values[i].last > level;
        if (n > most) most = n;
    }
    return most;
}

uint32_t tree_arrays(const tree *t) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_value; i++) n += t->values[i].kind != TREE_INPUT && t->values[i].last > t->values[i].first;
    return n;
}

static const char *const names[LOWER_WALK_TENSORS] = {"t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9", "t10", "t11"};
static const char *const offsets[LOWER_WALK_TENSORS] = {"o0", "o1", "o2", "o3", "o4", "o5", "o6", "o7", "o8", "o9", "o10", "o11"};
static const char *const sizes[GRAPH_RANK_MAX] = {"d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7"};

void tree_declare(tree_walk *c) {
    const tree *t = &c->t;
    for (uint32_t i = 0; i < t->n_tensor; i++) {
        uint32_t same = i;
        for (uint32_t before = t->n_out; before < i && same == i; before++)
            if (i >= t->n_out && graph_base_of(t->g, t->tensors[before]) == graph_base_of(t->g, t->tensors[i])) same = before;
        if (same != i) c->memory[i] = c->memory[same];
        else c->memory[i] = i < t->n_out ? lower_ir_write(c->k, names[i], t->tensors[i]) : lower_ir_read(c->k, names[i], t->tensors[i]);
    }
    for (uint32_t i = 0; i < t->n_tensor; i++) {
        const graph_tensor *x = graph_tensor_at(t->g, t->tensors[i]);
        c->offset[i] = x->base ? lower_ir_u32(c->k, offsets[i], x->offset) : ir_u32(c->k->b, 0);
    }
    for (uint32_t i = 0; i < c->w.n; i++) c->size[i] = lower_ir_count(c->k, sizes[i], c->w.size[i]);
    static const char *const terms[TREE_SUMS] = {"u0", "u1", "u2", "u3"};
    for (uint32_t i = 0, n = 0; i < t->n_value; i++)
        if (t->values[i].kind == TREE_WEIGHTED) c->terms[i] = lower_ir_count(c->k, terms[n++], lower_count_of(graph_tensor_at(t->g, t->values[i].node->in[1])->dim[1]));
}

ir_id tree_place(tree_walk *c, ir_id left, uint32_t each, bool clamp, ir_id *at) {
    ir_builder *b = c->k->b;
    const lower_walk *w = &c->w;
    memcpy(at, c->offset, sizeof c->offset);
    for (uint32_t i = w->n; i-- > 0;) {
        const bool constant = !w->size[i].extent;
        ir_id here = left;
        if (i) here = constant ? lower_ir_rest(c->k, left, (uint32_t)w->size[i].factor) : ir_mod(b, left, c->size[i]);
        else if (clamp) here = ir_min(b, left, ir_sub(b, c->size[0], ir_u32(b, 1)));
        if (i) left = constant ? lower_ir_over(c->k, left, (uint32_t)w->size[i].factor) : ir_div(b, left, c->size[i]);
        for (uint32_t t = 0; t < c->t.n_tensor; t++)
            if (w->stride[t][i]) at[t] = ir_add(b, at[t], lower_ir_times(c->k, here, w->stride[t][i] * (i + 1 == w->n ? each : 1)));
    }
    return left;
}

void tree_spot_begin(tree_spot *s, uint32_t wide) {
    s->wide = wide;
    s->turn = IR_NO_ID;
    memset(s->made, 0xff, sizeof s->made);
}

void tree_spot_at(tree_walk *c, tree_spot *s, uint32_t wide, ir_id i) {
    tree_spot_begin(s, wide);
    for (uint32_t t = 0; t < c->t.n_tensor; t++)
        s->at[t] = c->step[t] ? ir_add(c->k->b, c->row[t], lower_ir_times(c->k, i, c->step[t])) : c->row[t];
    s->column = i;
}

static ir_id operation(tree_walk *c, base_op op, const graph_node *node, ir_id x, ir_id y, uint32_t width) {
    ir_builder *b = c->k->b;
    switch ((int)op) {
    case OP_ADD: return ir_add(b, x, y);
    case OP_MUL: return ir_mul(b, x, y);
    case OP_SCALE: return ir_mul(b, x, ir_number(b, IR_F32, width, (double)node->attr.scale.factor));
    case OP_GELU_TANH: return lower_ir_gelu(c->k, x);
    case OP_GEGLU: return ir_mul(b, lower_ir_gelu(c->k, x), y);
    case OP_SOFTCAP: {
        const double cap = (double)node->attr.softcap.cap;
        return ir_mul(b, ir_tanh(b, ir_mul(b, x, ir_number(b, IR_F32, width, 1 / cap))), ir_number(b, IR_F32, width, cap));
    }
    default: return x; /* copy */
    }
}

/* A vector of tensor t. */
static ir_id loaded(tree_walk *c, const tree_spot *s, uint32_t t) {
    ir_builder *b = c->k->b;
    const uint32_t ahead = c->t.ahead[t];
    const ir_id at = ahead ? ir_add(b, s->at[t], lower_ir_times(c->k, s->turn, ahead)) : s->at[t];
    return ir_splat(b, ir_load(b, c->memory[t], at, c->step[t] ? s->wide : 1), s->wide);
}

static ir_id weighted_sum(tree_walk *c, const tree_spot *s, uint32_t v) {
    ir_builder *b = c->k->b;
    const tree_value *x = &c->t.values[v];
    const ir_id zero = ir_u32(b, 0);
    const ir_memory sum = ir_register(b, IR_F32, s->wide);
    tree_spot inside = *s;
    tree_spot_begin(&inside, s->wide);
    ir_store(b, sum, zero, ir_number(b, IR_F32, s->wide, 0));
    inside.turn = ir_loop(b, zero, c->terms[v], ir_u32(b, 1));
    const ir_id term = tree_value_at(c, &inside, x->in[0]), weight = tree_value_at(c, &inside, x->in[1]);
    ir_store(b, sum, zero, ir_fma(b, term, weight, ir_load(b, sum, zero, s->wide)));
    ir_end(b);
    return ir_load(b, sum, zero, s->wide);
}

ir_id tree_value_at(tree_walk *c, tree_spot *s, uint32_t v) {
    ir_builder *b = c->k->b;
    const tree_value *x = &c->t.values[v];
    if (s->made[v] != IR_NO_ID) return s->made[v];
    ir_id made;
    if (x->kind == TREE_INPUT) {
        made = loaded(c, s, x->in[0]);
    } else if (c->arrays && x->first < c->level) {
        made = ir_load(b, x->array, s->column, s->wide);
    } else {
        const ir_id in = is_leaf(x) ? IR_NO_ID : tree_value_at(c, s, x->in[0]);
        if (x->kind == TREE_WEIGHTED) {
            made = weighted_sum(c, s, v);
        } else if (x->kind == TREE_NODE) {
            made = operation(c, x->op, x->node, in, x->two ? tree_value_at(c, s, x->in[1]) : IR_NO_ID, s->wide);
        } else {
            const ir_id with = ir_splat(b, c->t.stats[x->stat].result, s->wide);
            made = x->kind == TREE_TIMES ? ir_mul(b, in, with) : ir_sub(b, in, with);
            if (x->kind == TREE_EXP_LESS) made = ir_exp(b, made);
        }
        if (c->arrays && x->last > c->level) ir_store(b, x->array, s->column, made);
    }
    return s->made[v] = made;
}

void tree_store(tree_walk *c, tree_spot *s, uint32_t level) {
    for (uint32_t i = 0; i < c->t.n_out; i++)
        if (c->t.values[c->t.out[i]].level == level) ir_store(c->k->b, c->memory[i], s->at[i], tree_value_at(c, s, c->t.out[i]));
}

bool tree_is_dear(base_op op) {
    return op == OP_GELU_TANH || op == OP_GEGLU || op == OP_SOFTCAP;
}

void tree_walk_rows(tree_walk *c) {
    const graph_tensor *tensors[LOWER_WALK_TENSORS], *shape = c->t.shape;
    for (uint32_t i = 0; i < c->t.n_tensor; i++) {
        tensors[i] = &c->t.seen[i];
        c->step[i] = lower_walk_stride(tensors[i], shape->rank, shape->rank - 1u);
    }
    c->w = lower_walk_of(tensors, c->t.n_tensor, 1);
    if (c->w.n == 0) lower_walk_pad(&c->w, 1);
}

uint32_t tree_widest(const tree_walk *c, uint32_t most, uint64_t row, bool whole, uint32_t n_outer) {
    for (uint32_t wide = most; wide > 1; wide /= 2) {
        bool fits = !whole || row % wide == 0;
        for (uint32_t t = 0; fits && t < c->t.n_tensor; t++) {
            if (c->step[t] == 0) continue;
            fits = c->step[t] == 1 && c->t.ahead[t] % wide == 0 && graph_tensor_at(c->t.g, c->t.tensors[t])->offset % wide == 0;
            for (uint32_t i = 0; i < n_outer; i++) fits = fits && c->w.stride[t][i] % wide == 0;
        }
        if (fits) return wide;
    }
    return 1;
}

void tree_end_declare(tree_walk *c, lower_ir *k, const tree *t) {
    *c = (tree_walk){.k = k, .t = *t};
    tree_walk_rows(c);
    tree_declare(c);
}

void tree_end_store(tree_walk *c, ir_id vector, ir_id column, ir_id x) {
    tree_spot s;
    tree_place(c, vector, 1, false, c->row);
    tree_spot_at(c, &s, 1, column);
    s.made[0] = x; /* the given value is the first */
    tree_store(c, &s, 0);
}
