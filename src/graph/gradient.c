/* gradient.c - the backward pass of a graph, as ordinary nodes.
 *
 * Owns the walk from the loss back and the adjoints of views; rules of operations are in
 * gradient_rules.c and gradient_pointwise.c. Refuses losses of more than one element, operations
 * without a rule, and states that were changed after the forward pass read them. The one idea: ids
 * rise from what is read to what is made, so a walk from the loss down meets a tensor after all
 * that read it, and its gradient is whole. */
#include "graph/gradient.h"

#include <string.h>

static const graph_tensor *at(const gradient *s, graph_value v) {
    return graph_tensor_at(s->g, v);
}

static bool is_one(graph_dim d) {
    return d.size == 1 && !d.extent;
}

/* ---- for rules ------------------------------------------------------------------------------- */

/* What a copy stands for. */
static graph_value original(const gradient *s, graph_value x) {
    for (uint32_t i = 0; i < s->n_rounded; i++)
        if (s->rounded[i].as == x) x = s->rounded[i].in;
    return x < s->count ? x : at(s, x)->again;
}

bool gradient_wants(const gradient *s, graph_value x) {
    x = original(s, x);
    return x && x < s->count && s->needed[x];
}

graph_value gradient_half(gradient *s, graph_value v) {
    graph *g = s->g;
    for (size_t i = g->nodes.count; v && i-- > 0;) {
        const graph_node *node = &g->nodes.data[i];
        if (node->op == OP_CAST && node->in[0] == v && node->attr.cast.type == TYPE_BF16 &&
            at(s, v)->role == ROLE_INTERMEDIATE)
            return node->out[0];
    }
    return graph_cast(g, v, TYPE_BF16, false);
}

bool gradient_is_of_tree(const gradient *s, graph_value v) {
    const graph_tensor *t = at(s, v);
    if (t->type != TYPE_F32 || t->role != ROLE_INTERMEDIATE || t->base || t->node == UINT32_MAX)
        return false;
    return graph_is_stored_by_trees(&s->g->nodes.data[t->node]);
}

graph_value gradient_number(gradient *s, double value, base_type type) {
    const graph_value v = value == 1 ? s->one : graph_scale(s->g, s->one, (float)value);
    return type == TYPE_F32 ? v : graph_cast(s->g, v, type, false);
}

graph_value gradient_fill(gradient *s, double value, graph_value x) {
    const graph_tensor t = *at(s, x);
    return graph_expand(s->g, gradient_number(s, value, t.type), t.rank, t.dim);
}

graph_value gradient_where(graph *g, graph_value condition, graph_value v) {
    const graph_value none = graph_bit_xor(g, condition, condition);
    return graph_where(g, condition, v, graph_cast(g, none, graph_tensor_at(g, v)->type, false));
}

void gradient_add(gradient *s, graph_value x, graph_value v) {
    graph *g = s->g;
    if (!gradient_wants(s, x) || !v) return;
    x = original(s, x);
    const graph_tensor to = *at(s, x), from = *at(s, v);
    const uint32_t more = from.rank > to.rank ? from.rank - to.rank : 0;
    uint32_t axes = 0;
    for (uint32_t i = 0; i < from.rank; i++)
        if ((i < more || is_one(to.dim[i + to.rank - from.rank])) && !is_one(from.dim[i]))
            axes |= 1u << i;
    if (axes) v = graph_reduce(g, OP_SUM, v, axes, 0);
    v = graph_without(g, v, (1u << more) - 1);
    if (v && !graph_same_shape(at(s, v), &to)) v = graph_expand(g, v, to.rank, to.dim);
    if (v && at(s, v)->type != to.type) v = graph_cast(g, v, to.type, false);
    s->of[x] = s->of[x] ? graph_add(g, s->of[x], v) : v;
}

graph_value gradient_part(gradient *s, graph_value v, uint32_t axis, uint32_t start,
                          graph_value first, graph_value x) {
    graph *g = s->g;
    if (!v || !x) return 0;
    const graph_dim all = at(s, v)->dim[axis], some = at(s, x)->dim[axis];
    if (graph_same_dim(all, some) && !start && !first) return v;
    if (!all.extent && !some.extent && !first) return graph_narrow(g, v, axis, start, some.size, 1);
    graph_value place = graph_iota(g, x, axis);
    if (start) place = graph_add(g, place, gradient_number(s, start, TYPE_I32));
    if (first) place = graph_add(g, place, first);
    return graph_gather(g, v, place, axis);
}

graph_value gradient_turned(graph *g, graph_value v, uint32_t axis, bool back) {
    uint32_t axes[GRAPH_RANK_MAX];
    const uint32_t rank = graph_tensor_at(g, v)->rank;
    if (!v || axis + 1 == rank) return v;
    for (uint32_t i = 0; i < rank; i++)
        axes[i] = back ? (i < axis ? i : i == axis ? rank - 1 : i - 1) : i + (i >= axis);
    if (!back) axes[rank - 1] = axis;
    return graph_permute(g, v, rank, axes);
}

/* ---- views ----------------------------------------------------------------------------------- */

/* d [.., size, ..] as the elements of an axis of n that lie `step` apart from `start` on. */
static graph_value spread(gradient *s, graph_value d, uint32_t axis, uint32_t start, uint32_t step,
                          uint32_t n) {
    graph *g = s->g;
    graph_tensor t = *at(s, d);
    const uint32_t size = t.dim[axis].size, span = (size - 1) * step + 1;
    if (step > 1 && size > 1) {
        d = graph_pad(g, graph_unsqueeze(g, d, axis + 1), axis + 1, 0, step - 1, 0);
        t.dim[axis].size = size * step;
        d = graph_narrow(g, graph_reshape(g, d, t.rank, t.dim), axis, 0, span, 1);
    }
    return span == n ? d : graph_pad(g, d, axis, start, n - start - span, 0);
}

/* d [.., k] on the diagonal of two axes of x. */
static graph_value on_diagonal(gradient *s, graph_value d, graph_value x, uint32_t axis,
                               uint32_t other) {
    graph *g = s->g;
    const graph_tensor t = *at(s, x);
    graph_tensor u = *at(s, d);
    const uint32_t last = u.rank - 1u, k = u.dim[last].size;
    const graph_dim n[2] = {t.dim[axis], t.dim[other]};
    uint32_t axes[GRAPH_RANK_MAX], next = 0;
    u.dim[last + 1] = u.dim[last];
    d = graph_expand(g, graph_unsqueeze(g, d, last), u.rank + 1u, u.dim);
    d = graph_tril(g, graph_triu(g, d, 0), 0);
    for (uint32_t i = 0; i < 2; i++)
        if (!n[i].extent && n[i].size > k) d = graph_pad(g, d, last + i, 0, n[i].size - k, 0);
    for (uint32_t i = 0; i < t.rank; i++)
        axes[i] = i == axis ? last : i == other ? last + 1 : next++;
    return graph_permute(g, d, t.rank, axes);
}

enum { SHIFTS_MAX = 16 /* sums of shifted copies; more go by index */ };

/* d [.., windows, .., size] added where each window's elements lie along the axis of x. */
static graph_value overlapped(gradient *s, graph_value d, graph_value x, const uint32_t *told) {
    graph *g = s->g;
    const uint32_t axis = told[0], size = told[1], step = told[2], n = (size + step - 1) / step;
    const uint32_t rank = at(s, x)->rank;
    const bool by_index = n > SHIFTS_MAX;
    uint32_t axes[GRAPH_RANK_MAX];
    if (!by_index && n * step > size) d = graph_pad(g, d, rank, 0, n * step - size, 0);
    for (uint32_t i = 0; i <= rank; i++) axes[i] = i <= axis ? i : i == axis + 1 ? rank : i - 1;
    d = graph_permute(g, d, rank + 1, axes); /* [.., windows, size, ..] */
    if (!d) return 0;
    graph_tensor t = *at(s, x), u = *at(s, d);
    const graph_dim windows = u.dim[axis];
    if (by_index) {
        const graph_value begin = graph_mul(g, graph_iota(g, d, axis),
                                            gradient_number(s, step, TYPE_I32)),
                          place = graph_add(g, begin, graph_iota(g, d, axis + 1));
        t.dim[axis] = graph_dim_product(g, windows, u.dim[axis + 1]);
        return graph_scatter_add(g, gradient_fill(s, 0, x), graph_reshape(g, place, t.rank, t.dim),
                                 graph_reshape(g, d, t.rank, t.dim), axis);
    }
    graph_value sum = 0;
    t.dim[axis] = graph_dim_product(g, windows, (graph_dim){step, 0});
    for (uint32_t i = 0; i < n; i++) {
        graph_value v = n > 1 ? graph_narrow(g, d, axis + 1, i * step, step, 1) : d;
        v = graph_reshape(g, v, t.rank, t.dim);
        if (n > 1) v = graph_pad(g, v, axis, i * step, (n - 1 - i) * step, 0);
        sum = sum ? graph_add(g, sum, v) : v;
    }
    if (!sum) return 0;
    const graph_dim has = at(s, sum)->dim[axis], wants = at(s, x)->dim[axis];
    if (!has.extent && !wants.extent && wants.size > has.size)
        return graph_pad(g, sum, axis, 0, wants.size - has.size, 0);
    return gradient_part(s, sum, axis, 0, 0, x);
}

static graph_value through_view(gradient *s, const graph_tensor *view, graph_value d) {
    graph *g = s->g;
    const graph_value x = view->base;
    const graph_tensor t = *at(s, x);
    uint32_t axes[GRAPH_RANK_MAX];
    switch (view->view) {
    case VIEW_RESHAPE: return graph_reshape(g, d, t.rank, t.dim);
    case VIEW_PERMUTE:
        for (uint32_t i = 0; i < t.rank; i++) axes[view->told[i / 8] >> 4 * (i % 8) & 15] = i;
        return graph_permute(g, d, t.rank, axes);
    case VIEW_EXPAND: return d; /* gradient_add sums it */
    case VIEW_NARROW:
        return spread(s, d, view->told[0], view->told[1], view->told[3], t.dim[view->told[0]].size);
    case VIEW_FLIP: return graph_flip(g, d, view->told[0]);
    case VIEW_DIAGONAL: return on_diagonal(s, d, x, view->told[0], view->told[1]);
    case VIEW_WINDOWS: return overlapped(s, d, x, view->told);
    case VIEW_SQUEEZE: return graph_unsqueeze(g, d, view->told[0]);
    case VIEW_UNSQUEEZE: return graph_squeeze(g, d, view->told[0]);
    case VIEW_COUNT: break;
    }
    return 0;
}

/* ---- the walk -------------------------------------------------------------------------------- */

static const graph_own *own_of(const graph *g, graph_value v) {
    for (size_t i = 0; i < g->owns.count; i++)
        if (g->owns.data[i].out == v) return &g->owns.data[i];
    return NULL;
}

/* A view, not the result of an operation in place. */
static bool is_view(const graph *g, graph_value v) {
    const graph_tensor *t = graph_tensor_at(g, v);
    return t->base && (t->node == UINT32_MAX || g->nodes.data[t->node].out[0] != v);
}

static bool depends(const gradient *s, graph_value v) {
    const graph *g = s->g;
    const graph_tensor *t = graph_tensor_at(g, v);
    const graph_own *own = own_of(g, v);
    bool any = false;
    if (!base_type_is_float(t->type)) return false;
    if (own)
        return gradient_wants(s, own->in[0]) || gradient_wants(s, own->in[1]) ||
               gradient_wants(s, own->in[2]);
    if (is_view(g, v)) return s->needed[t->base];
    for (uint32_t k = 0; t->node != UINT32_MAX && k < g->nodes.data[t->node].n_in; k++)
        any |= gradient_wants(s, g->nodes.data[t->node].in[k]);
    return any;
}

bool gradient_reads_the_same(const gradient *s, const graph_node *node, uint32_t index) {
    for (uint32_t k = 0; k < node->n_in; k++)
        if (s->changed[graph_base_of(s->g, node->in[k])] > index + 1 &&
            !(base_ops[node->op].facts & OP_IS_IN_PLACE))
            return graph_refuse(s->g, BERYL_MISUSE,
                                "gradient of %s: a state that it reads is changed after it; take "
                                "the gradient before that",
                                graph_op_name(node->op));
    return true;
}

/* With halves, what the rule of a node of trees reads of the forward pass is rounded to them, rows
 * of one number aside: they are what is kept until then. */
static void round_kept(gradient *s, graph_node *node) {
    graph *g = s->g;
    if (!g->halves || !graph_is_stored_by_trees(node)) return;
    for (uint32_t k = 0; k < node->n_in; k++) {
        const graph_value in = node->in[k];
        const graph_tensor t = *at(s, in);
        const bool reshaped = t.base && t.view == VIEW_RESHAPE;
        const graph_value of = reshaped ? t.base : in;
        if (!of || !t.rank || is_one(t.dim[t.rank - 1]) || !gradient_is_of_tree(s, of)) continue;
        graph_value half = gradient_half(s, of);
        if (reshaped) half = graph_reshape(g, half, t.rank, t.dim);
        node->in[k] = graph_cast(g, half, TYPE_F32, false);
        s->rounded[s->n_rounded].in = in;
        s->rounded[s->n_rounded++].as = node->in[k];
    }
}

/* Those that the rule, whose nodes begin at `from`, did not read. */
static void drop_unread_halves(gradient *s, size_t from) {
    graph *g = s->g;
    for (uint32_t i = 0; i < s->n_rounded; i++) {
        const graph_value v = s->rounded[i].as;
        bool read = !v;
        for (size_t k = from; k < g->nodes.count && !read; k++)
            for (uint32_t n = 0; n < g->nodes.data[k].n_in; n++)
                read |= graph_base_of(g, g->nodes.data[k].in[n]) == v;
        if (!read) g->nodes.data[at(s, v)->node].dead = true;
    }
    s->n_rounded = 0;
}

static void step_back(gradient *s, graph_value v, graph_value d) {
    graph *g = s->g;
    const graph_own *own = own_of(g, v);
    if (!own && is_view(g, v)) {
        const graph_tensor t = *at(s, gradient_copy_of(s, v));
        gradient_add(s, t.base, through_view(s, &t, d));
        return;
    }
    const uint32_t index = at(s, v)->node;
    if (index == UINT32_MAX) return;
    graph_node node = g->nodes.data[index];
    if (!gradient_reads_the_same(s, &node, index)) return;
    gradient_take_copies(s, &node);
    if (own) {
        graph_own copy = *own;
        gradient_take_copies_of_own(s, &copy);
        gradient_own(s, &copy, d);
    } else if (!gradient_rule_of(node.op)) {
        graph_refuse(g, BERYL_UNSUPPORTED, "%s has no gradient", graph_op_name(node.op));
    } else {
        round_kept(s, &node);
        const size_t from = g->nodes.count;
        gradient_rule_of(node.op)(s, &node, d);
        drop_unread_halves(s, from);
    }
}

static bool may_differentiate(graph *g, graph_value loss, uint32_t n, const graph_value *values) {
    char text[GRAPH_SHAPE_TEXT];
    if (!graph_has(g, loss, "gradient")) return false;
    if (graph_recompute_is_open(g))
        return graph_refuse(g, BERYL_MISUSE, "gradient inside a segment that is recomputed");
    const graph_tensor *t = graph_tensor_at(g, loss);
    bool fits = base_type_is_float(t->type);
    for (uint32_t i = 0; i < t->rank; i++) fits = fits && is_one(t->dim[i]);
    if (!fits)
        return graph_refuse(g, BERYL_MISUSE, "gradient of %s%s: the loss is one float",
                            base_type_name(t->type), graph_shape_text(g, t->rank, t->dim, text));
    for (uint32_t i = 0; i < n; i++) {
        if (!graph_has(g, values[i], "gradient")) return false;
        t = graph_tensor_at(g, values[i]);
        if (!base_type_is_float(t->type))
            return graph_refuse(g, BERYL_MISUSE, "gradient towards value %u, of %s", i,
                                base_type_name(t->type));
    }
    return true;
}

/* Each as a value of its own, so that each may be an output. */
static void give(gradient *s, uint32_t n, const graph_value *values, graph_value *gradients) {
    graph *g = s->g;
    for (uint32_t i = 0; g->error.code == BERYL_OK && i < n; i++) {
        graph_value v = s->of[values[i]];
        if (!v) v = gradient_fill(s, 0, values[i]);
        bool again = v < s->count;
        for (uint32_t k = 0; k < i; k++) again |= gradients[k] == v;
        if (again) v = graph_copy(g, v);
        gradients[i] = v;
    }
    for (uint32_t i = 0; g->error.code != BERYL_OK && i < n; i++) gradients[i] = 0;
}

/* A number that does not depend on the loss, where there is one: then a loss that nobody reads is
 * not computed. */
static graph_value some_number(graph *g, graph_value loss, uint32_t n, const graph_value *values) {
    graph_value v = loss;
    for (uint32_t i = 0; i < n && v == loss; i++) {
        const graph_tensor *t = graph_tensor_at(g, values[i]);
        bool fits = t->role != ROLE_INTERMEDIATE && !t->base && graph_type_is_plain(t->type);
        for (uint32_t k = 0; k < t->rank; k++) fits = fits && !t->dim[k].extent;
        if (fits) v = values[i];
    }
    const uint32_t rank = graph_tensor_at(g, v)->rank;
    for (uint32_t k = 0; k < rank && v != loss; k++) v = graph_narrow(g, v, k, 0, 1, 1);
    return graph_reshape(g, v, 0, NULL);
}

void graph_gradient(graph *g, graph_value loss, uint32_t n, const graph_value *values,
                    graph_value *gradients) {
    for (uint32_t i = 0; i < n; i++) gradients[i] = 0;
    if (!may_differentiate(g, loss, n, values)) return;
    base_arena arena;
    base_arena_init(&arena, g->heap);
    gradient s = {.g = g, .count = (graph_value)g->tensors.count, .segment = g->segments};
    s.of = base_arena_take(&arena, s.count, sizeof *s.of);
    s.needed = base_arena_take(&arena, s.count, sizeof *s.needed);
    s.changed = base_arena_take(&arena, s.count, sizeof *s.changed);
    s.copies = base_arena_take(&arena, s.count, sizeof *s.copies);
    if (!s.of || !s.needed || !s.changed || !s.copies) {
        graph_no_memory(g);
        goto done;
    }
    for (uint32_t i = 0; i < n; i++) s.needed[values[i]] = true;
    for (graph_value v = 1; v < s.count; v++) s.needed[v] = s.needed[v] || depends(&s, v);
    for (uint32_t i = 0; i < g->nodes.count; i++)
        if (base_ops[g->nodes.data[i].op].facts & OP_IS_IN_PLACE)
            s.changed[graph_base_of(g, g->nodes.data[i].out[0])] = i + 1;
    const graph_tensor t = *graph_tensor_at(g, loss);
    const graph_value any = graph_is_nan(g, some_number(g, loss, n, values));
    s.one = graph_cast(g, graph_eq(g, any, any), TYPE_F32, false);
    s.of[loss] = graph_expand(g, gradient_number(&s, 1, t.type), t.rank, t.dim);
    for (graph_value v = loss; g->error.code == BERYL_OK && v > 0; v--) {
        if (!s.of[v] || !s.needed[v]) continue;
        gradient_recompute(&s, v);
        if (g->error.code == BERYL_OK) step_back(&s, v, s.of[v]);
    }
    give(&s, n, values, gradients);
    gradient_drop_unread(&s, n, gradients);
done:
    base_arena_fini(&arena);
}

bool graph_has_gradient(base_op op) {
    return gradient_rule_of(op) != NULL;
}

graph_value graph_own_rule(graph *g, graph_own own) {
    if (!own.out || g->error.code != BERYL_OK) return 0;
    graph_own *to = base_vec_add(g->heap, &g->owns);
    if (!to) return graph_no_memory(g);
    *to = own;
    return own.out;
}

graph_value graph_detach(graph *g, graph_value x) {
    return graph_own_rule(g, (graph_own){.kind = OWN_CONSTANT, .out = graph_copy(g, x)});
}
