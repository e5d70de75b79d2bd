/* tree.c - see tile/tree.h. */
#include "tile/tree.h"
#include "base/build.h"
#include "tile/maps.h"
#include "tile/pointwise.h"
#include "tile/tree_given.h"
#include "tile/tree_inner.h"
#include "tile/tree_low.h"

#include <assert.h>
#include <string.h>

/* ---- from nodes to a tree -------------------------------------------------------------------- */

uint8_t tree_add_value(tree *t, tree_value v) {
    if (t->n_value == TREE_VALUES) return 0;
    if (v.kind != TREE_INPUT && !v.row && v.level >= t->n_level) t->n_level = v.level + 1u;
    if (!v.type) v.type = t->real;
    t->values[t->n_value] = v;
    return (uint8_t)t->n_value++;
}

uint8_t tree_add_stat(tree *t, tree_stat_kind kind, uint8_t of, float eps) {
    if (t->n_stat == TREE_STATS) return 0;
    t->stats[t->n_stat] =
        (tree_stat){.kind = kind, .of = of, .level = t->values[of].level, .eps = eps};
    return (uint8_t)t->n_stat++;
}

uint8_t tree_add_tensor(tree *t, graph_value id, graph_tensor seen, uint32_t ahead) {
    if (t->n_tensor < LOWER_WALK_TENSORS)
        t->tensors[t->n_tensor] = id, t->seen[t->n_tensor] = seen, t->ahead[t->n_tensor] = ahead;
    return (uint8_t)t->n_tensor++;
}

graph_tensor tree_with_rank(const graph_tensor *x, uint32_t rank, bool channels) {
    graph_tensor y = *x;
    const uint32_t first = channels ? 1 : rank - x->rank;
    y.rank = (uint8_t)rank;
    for (uint32_t i = 0; i < rank; i++) {
        const bool has = i >= first && i - first < x->rank;
        y.dim[i] = has ? x->dim[i - first] : (graph_dim){1, 0};
        y.stride[i] = has ? x->stride[i - first] : 0;
    }
    return y;
}

/* A tensor that is no part of a sum, as the tree's axes have it. */
graph_tensor tree_seen_as(const tree_axes *axes, graph_tensor x, uint32_t rank, bool channels) {
    if (!axes->n_row) return x;
    x = tree_with_rank(&x, rank, channels);
    const graph_tensor from = x;
    if (axes->groups) {
        const uint32_t own = x.dim[1].size == 1 ? 1 : x.dim[1].size / axes->groups;
        memmove(x.dim + 2, x.dim + 1, (rank - 1) * sizeof *x.dim);
        memmove(x.stride + 2, x.stride + 1, (rank - 1) * sizeof *x.stride);
        x.dim[1] = (graph_dim){from.dim[1].size / own, 0};
        x.stride[1] = from.stride[1] * own;
        x.dim[2].size = own;
        x.rank++;
    }
    for (uint32_t to = 0, last = 0; axes->last && last < 2; last++)
        for (uint32_t i = 0; i < rank; i++)
            if ((axes->last >> i & 1) == last) {
                x.dim[to] = from.dim[i];
                x.stride[to++] = from.stride[i];
            }
    return x;
}

/* Inside a sum without the axis that it is over: [n, u, d] as [n, d], weights [n, u] as [n, 1]. */
static uint8_t add_input(tree *t, graph_value id, uint8_t inside, bool channels) {
    graph_tensor x = *graph_tensor_at(t->g, id);
    if (!inside) return tree_add_tensor(t, id, tree_seen_as(&t->axes, x, t->rank, channels), 0);
    const bool weights = inside && inside % 2 == 0;
    const uint32_t ahead = inside ? lower_walk_stride(&x, weights ? 2 : 3, 1) : 0;
    if (weights && x.rank) {
        x.dim[x.rank - 1] = (graph_dim){1, 0};
    } else if (inside && x.rank > 1) {
        x.dim[x.rank - 2] = x.dim[x.rank - 1];
        x.stride[x.rank - 2] = x.stride[x.rank - 1];
        x.rank--;
    }
    return tree_add_tensor(t, id, x, ahead);
}

static uint8_t input_of(tree *t, graph_value id, uint8_t inside, bool channels) {
    for (uint32_t i = 0; i < t->n_value; i++)
        if (t->values[i].id == id && t->values[i].inside == inside &&
            t->values[i].channels == channels)
            return (uint8_t)i;
    return tree_add_value(t, (tree_value){.kind = TREE_INPUT,
                                          .type = tile_number_type(graph_tensor_at(t->g, id)->type),
                                          .id = id,
                                          .inside = inside,
                                          .channels = channels,
                                          .in = {add_input(t, id, inside, channels), 0}});
}

uint8_t tree_value_of(tree *t, graph_value id, uint8_t inside) {
    return input_of(t, id, inside, false);
}

static uint8_t with_stat(tree *t, tree_value_kind kind, uint8_t of, uint8_t s) {
    return tree_add_value(
        t, (tree_value){.kind = kind, .in = {of, 0}, .stat = s, .level = t->stats[s].level + 1u});
}

/* A row of one element is as good as one. */
static bool is_number(const tree *t, const graph_tensor *x) {
    const bool is = !BUILD_IS_SMALL && t->has_inner && tree_inner_is_number(t, x);
    return is && !graph_same_shape(x, graph_tensor_at(t->g, t->like));
}

uint8_t tree_add_node(tree *t, base_op op, const graph_node *node, ir_type type,
                      const uint8_t in[3]) {
    tree_value v = {.kind = TREE_NODE,
                    .op = op,
                    .node = node,
                    .type = type,
                    .n_in = base_ops[op].n_in_max,
                    .inside = t->values[in[0]].inside,
                    .row = is_number(t, graph_tensor_at(t->g, node->out[0])),
                    .in = {in[0], in[1], in[2]}};
    for (uint32_t i = 0; i < v.n_in; i++)
        if (t->values[in[i]].level > v.level) v.level = t->values[in[i]].level;
    return tree_add_value(t, v);
}

/* The axes that the node's rows lie along. */
static tree_axes axes_of(const tree *t, const graph_node *node) {
    const uint32_t reduced = graph_op_reduces(node->op) ? node->attr.at[0].u : 0;
    if (reduced)
        return (tree_axes){.last = reduced, .n_row = (uint32_t)__builtin_popcount(reduced)};
    switch ((int)node->op) {
    case OP_GROUP_NORM: /* [n, groups, c / groups, ..] */
        return (tree_axes){.groups = node->attr.group_norm.groups, .n_row = t->rank - 1};
    case OP_CUMSUM:
    case OP_CUMPROD:
    case OP_CUMMAX:
    case OP_CUMMIN: return (tree_axes){.last = 1u << node->attr.cumsum.axis, .n_row = 1};
    default: return (tree_axes){0};
    }
}

/* What the results of all nodes are seen as, and the type of stats; false: not the same for all. */
static bool find_axes(tree *t, const graph_region *r) {
    bool known = false;
    for (uint32_t i = 0; i < r->n; i++) {
        const base_op op = r->node[i]->op;
        tree_axes axes = axes_of(t, r->node[i]);
        if (!graph_op_is_over_rows(op) && !graph_op_is_over_axes(op) && !graph_op_reduces(op))
            continue;
        const bool wide = graph_tensor_at(t->g, r->node[i]->in[0])->type == TYPE_F64;
        const ir_type real = wide && (!graph_op_reduces(op) || t->has_inner) ? IR_F64 : IR_F32;
        if (axes.last == 1u << (t->rank - 1)) axes = (tree_axes){0};
        if (known && (memcmp(&axes, &t->axes, sizeof axes) != 0 || real != t->real)) return false;
        t->real = real;
        t->axes = axes;
        known = true;
    }
    return true;
}

/* Operand k of a norm: a number for each column, or for each channel. */
static uint8_t weight_of(tree *t, const graph_node *node, uint32_t k) {
    return input_of(t, node->in[k], 0, graph_op_is_over_axes(node->op));
}

/* x times the weight, plus the bias, where the norm has them. */
static uint8_t with_weights(tree *t, const graph_node *node, uint8_t x) {
    static const base_op ops[] = {OP_MUL, OP_ADD};
    for (uint32_t k = 1; k < node->n_in; k++)
        x = tree_add_node(t, ops[k - 1], node, t->real, (uint8_t[]){x, weight_of(t, node, k), 0});
    return x;
}

/* Less the mean, over the deviation. The first mean is rounded: what is left is normalised again,
 * by its own mean, in the same walk as its squares. */
static uint8_t normalised(tree *t, uint8_t x, float eps) {
    x = with_stat(t, TREE_LESS, x, tree_add_stat(t, TREE_MEAN, x, 0));
    const uint8_t rest = tree_add_stat(t, TREE_MEAN, x, 0),
                  over = tree_add_stat(t, TREE_RMS_OVER, x, eps);
    t->stats[over].less = rest + 1;
    return with_stat(t, TREE_TIMES, with_stat(t, TREE_LESS, x, rest), over);
}

/* inside: of its inputs. */
static void read_node(tree *t, const graph_region *r, const graph_node *node,
                      const uint8_t inside[3]) {
    const bool moved =
        !graph_same_shape(graph_tensor_at(t->g, node->out[0]), graph_tensor_at(t->g, t->like));
    if (moved && !inside[2] && !t->has_inner &&
        (graph_op_is_mapped(node->op) || graph_op_is_pointwise(node->op)))
        return; /* another map reads it */
    if (graph_op_is_mapped(node->op)) {
        t->values[tree_read_map(t, r, node)].id = node->out[0];
        return;
    }
    if (BUILD_HAS_ADAPTERS && node->op == OP_LINEAR) {
        t->values[tree_low_read(t, node)].id = node->out[0];
        return;
    }
    const uint8_t x = tree_value_of(t, node->in[0], inside[0]);
    uint8_t made;
    switch ((int)node->op) {
    case OP_SUM:
    case OP_MEAN:
    case OP_AMAX:
    case OP_AMIN: made = BUILD_IS_SMALL ? x : tree_inner_read(t, node, x); break;
    case OP_WEIGHTED_SUM:
        made = tree_value_of(t, node->in[1], inside[1]);
        made = tree_add_value(
            t, (tree_value){.kind = TREE_WEIGHTED, .type = IR_F32, .node = node, .in = {x, made}});
        t->n_sum++;
        break;
    case OP_RMS_NORM:
        made = with_stat(t, TREE_TIMES, x,
                         tree_add_stat(t, TREE_RMS_OVER, x, node->attr.rms_norm.eps));
        made = with_weights(t, node, made);
        break;
    case OP_LAYER_NORM:
        made = with_weights(t, node, normalised(t, x, node->attr.layer_norm.eps));
        break;
    case OP_GROUP_NORM:
        made = with_weights(t, node, normalised(t, x, node->attr.group_norm.eps));
        break;
    case OP_SOFTMAX:
        made = with_stat(t, TREE_EXP_LESS, x, tree_add_stat(t, TREE_LARGEST, x, 0));
        made = with_stat(t, TREE_TIMES, made, tree_add_stat(t, TREE_SUM_OVER, made, 0));
        break;
    case OP_CUMSUM:
    case OP_CUMPROD:
    case OP_CUMMAX:
    case OP_CUMMIN:
        made = tree_add_value(t, (tree_value){.kind = TREE_SCAN,
                                              .op = node->op == OP_CUMSUM    ? OP_ADD
                                                    : node->op == OP_CUMPROD ? OP_MUL
                                                    : node->op == OP_CUMMAX  ? OP_MAX
                                                                             : OP_MIN,
                                              .in = {x, 0},
                                              .level = t->values[x].level});
        t->n_scan++;
        break;
    default: {
        uint8_t in[3] = {x};
        for (uint32_t k = 1; k < node->n_in; k++) in[k] = tree_value_of(t, node->in[k], inside[k]);
        made = tree_add_node(t, node->op, node,
                             tile_number_type(graph_tensor_at(t->g, node->out[0])->type), in);
    }
    }
    t->values[made].id = node->out[0];
}

static bool is_placed(const tree_value *v) {
    return v->kind == TREE_RESIZED || v->kind == TREE_PLACE;
}

static bool is_leaf(const tree_value *v) {
    return v->kind == TREE_INPUT || v->kind == TREE_GIVEN || v->kind == TREE_WEIGHTED ||
           v->kind == TREE_WITHIN || v->kind == TREE_STAT ||
           (BUILD_HAS_ADAPTERS && v->kind == TREE_LOW) || is_placed(v);
}

/* In which walk each value is computed, and for which it is asked for last. */
static void ask(tree *t, uint32_t v, uint8_t level) {
    tree_value *x = &t->values[v];
    if (x->row) return;
    if (x->last < level) x->last = level;
    if (x->first <= level) return;
    x->first = level;
    if (is_leaf(x)) return;
    ask(t, x->in[0], level);
    for (uint32_t i = 1; i < x->n_in; i++) ask(t, x->in[i], level);
}

bool tree_reduces(const tree *t) {
    return t->choice && graph_op_reduces(t->choice->op);
}

static void ask_all(tree *t) {
    for (uint32_t i = 0; i < t->n_value; i++) t->values[i].first = UINT8_MAX;
    for (uint8_t level = 0; level < t->n_level; level++) {
        for (uint32_t i = 0; i < t->n_stat; i++)
            if (t->stats[i].level == level) ask(t, t->stats[i].of, level);
        for (uint32_t i = 0; i < t->n_out && !tree_reduces(t); i++)
            if (t->values[t->out[i]].level == level) ask(t, t->out[i], level);
        if (t->choice && t->values[t->chosen].level == level) ask(t, t->chosen, level);
        if (t->second) ask(t, t->chosen_second, level);
        if (t->has_root && t->values[t->root].level == level) ask(t, t->root, level);
    }
}

static bool makes(const graph_node *node, graph_value v) {
    for (uint32_t i = 0; node && i < node->n_out; i++)
        if (node->out[i] == v) return true;
    return false;
}

static bool is_low(const graph_node *node, graph_value root) {
    return BUILD_HAS_ADAPTERS && root && node->op == OP_LINEAR;
}

/* May it be computed there? Weights are the same for a whole row, which computes them again and
 * again. */
static bool is_for(base_op op, uint8_t inside) {
    return !inside || (graph_op_is_pointwise(op) && (inside % 2 || !graph_op_is_expensive(op)));
}

static uint8_t inside_of_input(const graph_node *node, uint32_t i, uint32_t k, uint8_t inside) {
    return node->op == OP_WEIGHTED_SUM ? (uint8_t)(2 * i + 1 + k) : inside;
}

/* What each node's result is inside of, as of a value. */
static bool find_insides(const graph *g, const graph_node *const *nodes, uint32_t n,
                         const graph_value *outs, uint32_t n_out, uint8_t *inside) {
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
                if (!tree_makes(g, nodes[m], nodes[i]->in[k])) continue;
                if (inside[m] != UNKNOWN && inside[m] != here) return false;
                inside[m] = here;
            }
    }
    return true;
}

/* What is held from one walk to the next is of the type of stats. */
static bool holds_numbers(const tree *t) {
    for (uint32_t i = 0; i < t->n_value; i++) {
        const tree_value *v = &t->values[i];
        if (v->kind != TREE_INPUT && v->type != t->real && v->last > v->first) return false;
    }
    return true;
}

/* Is a value asked of memory that the region itself makes, and in another shape? */
static bool reads_made(const tree *t, const graph_region *r) {
    for (uint32_t i = 0; i < t->n_value; i++)
        for (uint32_t m = 0; t->values[i].kind == TREE_INPUT && m < r->n; m++)
            if (t->values[i].id && tree_makes(t->g, r->node[m], t->values[i].id)) return true;
    return false;
}

/* May the sum be made beside the choice, in one walk over their inputs? */
static bool is_alike(const tree *t, const graph_node *node) {
    const graph_tensor *x = graph_tensor_at(t->g, node->in[0]),
                       *like = graph_tensor_at(t->g, t->choice->in[0]);
    return !t->second && t->choice->op == OP_SUM && node->op == OP_SUM &&
           graph_same_shape(x, like) && x->type == like->type;
}

bool tree_read(tree *t, const graph *g, const graph_region *r, graph_value root) {
    uint8_t inside[GRAPH_REGION_NODES];
    graph_value asked[GRAPH_OUT_MAX + 1];
    const graph_node *const *nodes = r->node;
    memcpy(asked, r->out, sizeof r->out);
    asked[r->n_out] = root;
    *t = (tree){.g = g, .real = IR_F32, .n_level = 1, .has_root = root != 0};
    if (!find_insides(g, nodes, r->n, asked, r->n_out + t->has_root, inside)) return false;
    tree_inner_find(t, r);
    for (uint32_t i = 0; i < r->n; i++) {
        const base_op op = nodes[i]->op;
        if (op == OP_ARGMAX || op == OP_TOPK || (graph_op_reduces(op) && !t->has_inner)) {
            if (t->choice && !is_alike(t, nodes[i])) return false;
            *(t->choice ? &t->second : &t->choice) = nodes[i];
        }
        if (!tree_is_product(nodes[i]) || is_low(nodes[i], root)) continue;
        if (t->n_product == TREE_PRODUCTS) return false;
        t->product[t->n_product++] = nodes[i];
    }
    if (t->choice && !t->second) t->ending = tree_ending(g, r, t->choice);
    if (!t->has_inner) t->like = t->choice ? t->choice->in[0] : asked[0];
    t->shape = graph_tensor_at(g, t->like);
    t->rank = t->shape->rank;
    if (!find_axes(t, r)) return false;
    if (!BUILD_IS_SMALL && t->has_inner && !tree_inner_fits(t, r)) return false;
    for (uint32_t i = 0; i < r->n_out; i++) {
        if (!tree_reduces(t) && makes(t->choice, r->out[i])) continue;
        if (!tree_reduces(t) &&
            !graph_same_shape(graph_tensor_at(g, r->out[i]), graph_tensor_at(g, t->like)) &&
            !is_number(t, graph_tensor_at(g, r->out[i])))
            return false; /* a map's that another one reads */
        add_input(t, r->out[i], 0, false);
        t->n_out++;
    }
    tree_add_given(t, r);
    for (uint32_t i = 0; i < r->n; i++)
        if (nodes[i] != t->choice && nodes[i] != t->second && nodes[i] != t->ending &&
            (!tree_is_product(nodes[i]) || is_low(nodes[i], root)))
            read_node(t, r, nodes[i],
                      (uint8_t[]){inside_of_input(nodes[i], i, 0, inside[i]),
                                  inside_of_input(nodes[i], i, 1, inside[i]), inside[i]});
    if (t->choice) t->chosen = tree_value_of(t, t->choice->in[0], 0);
    if (t->second) t->chosen_second = tree_value_of(t, t->second->in[0], 0);
    if (root) t->root = tree_value_of(t, root, 0);
    for (uint32_t i = 0; i < t->n_out && !tree_reduces(t); i++)
        t->out[i] = tree_value_of(t, t->tensors[i], 0);
    if (t->n_value == TREE_VALUES || t->n_stat == TREE_STATS || t->n_tensor > LOWER_WALK_TENSORS ||
        t->n_sum > TREE_SUMS || t->unfit || reads_made(t, r))
        return false;
    if (tree_reduces(t) || t->has_inner) {
        t->whole = tree_seen_as(&t->axes, *t->shape, t->rank, false);
        t->shape = &t->whole;
    } else if (t->axes.n_row) {
        t->shape = &t->seen[0];
    }
    ask_all(t);
    if (!holds_numbers(t)) return false;
    if (tree_reduces(t))
        return t->n_out == 1u + (t->second != NULL) &&
               t->tensors[0] == (t->ending ? t->ending : t->choice)->out[0] &&
               (!t->second || t->tensors[1] == t->second->out[0]) && !t->n_stat && !t->n_scan &&
               !t->n_product && !t->n_sum;
    return !(t->axes.n_row || t->n_scan) || !(t->has_root || t->choice || t->n_product || t->n_sum);
}

void tree_read_choice(tree *t, const graph *g, const graph_node *node) {
    *t = (tree){.g = g,
                .real = IR_F32,
                .shape = graph_tensor_at(g, node->in[0]),
                .choice = node,
                .n_level = 1};
    t->chosen = tree_value_of(t, node->in[0], 0);
    ask_all(t);
}

bool tree_has_rows(const tree *t) {
    return t->n_stat || t->n_scan || t->choice;
}

static uint32_t row_begins(const tree *t) {
    return t->shape->rank - (t->axes.n_row ? t->axes.n_row : 1);
}

uint32_t tree_row_length(const tree *t) {
    uint32_t n = 1;
    for (uint32_t i = row_begins(t); i < t->shape->rank; i++) n *= t->shape->dim[i].size;
    return n;
}

bool tree_row_varies(const tree *t) {
    bool varies = false;
    for (uint32_t i = row_begins(t); i < t->shape->rank; i++)
        varies |= t->shape->dim[i].extent != 0;
    return varies;
}

static uint32_t words_of(const tree *t) {
    return t->real == IR_F64 ? 2 : 1;
}

uint32_t tree_most_held(const tree *t) {
    uint32_t most = 0;
    for (uint32_t level = 0; level + 1 < t->n_level; level++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < t->n_value; i++)
            n += t->values[i].first <= level && t->values[i].last > level;
        if (n > most) most = n;
    }
    return most * words_of(t);
}

uint32_t tree_arrays(const tree *t) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_value; i++)
        n += t->values[i].kind != TREE_INPUT && t->values[i].last > t->values[i].first;
    return n * words_of(t);
}

/* Names of tensors, offsets, sizes and terms: of a kernel's first tree, and of its second. */
#define TWELVE(x) \
    { x "0", x "1", x "2", x "3", x "4", x "5", x "6", x "7", x "8", x "9", x "10", x "11" }
static const char *const names[2][LOWER_WALK_TENSORS] = {TWELVE("t"), TWELVE("y")},
                         *const offsets[2][LOWER_WALK_TENSORS] = {TWELVE("o"), TWELVE("p")},
                         *const sizes[2][LOWER_WALK_TENSORS] = {TWELVE("d"), TWELVE("e")},
                         *const terms[2][LOWER_WALK_TENSORS] = {TWELVE("u"), TWELVE("v")},
                         *const counts[TREE_COUNTS] = TWELVE("m");
#undef TWELVE
/* Sizes of a row that has several. */
static const char *const lengths[GRAPH_RANK_MAX] = {"l0", "l1", "l2", "l3", "l4",
                                                    "l5", "l6", "l7", "l8", "l9"};

/* The tensors before `end` that use the binding of tensor `first`: n different ones. */
static uint32_t sharers(const tree *t, const uint8_t *of, uint32_t first, uint32_t end,
                        graph_value *tensors /* [TILE_WEIGHTS_MAX + 1] */) {
    uint32_t n = 0;
    for (uint32_t i = first; i < end; i++) {
        const graph_value base = graph_base_of(t->g, t->tensors[i]);
        uint32_t known = 0;
        while (known < n && tensors[known] != base) known++;
        if (of[i] == first && known == n) tensors[n++] = base;
    }
    return n;
}

/* Whose binding each tensor is read or written through: its own, or that of another input of the
 * same memory, or of another weight. */
static void find_bindings(const lowering *l, const tree *t, uint8_t *of) {
    for (uint32_t i = 0; i < t->n_tensor; i++) {
        const graph_value base = graph_base_of(t->g, t->tensors[i]);
        of[i] = (uint8_t)i;
        if (!base) continue;
        for (uint32_t first = t->n_out; i >= t->n_out && first < i && of[i] == i; first++) {
            graph_value all[TILE_WEIGHTS_MAX + 1];
            if (of[first] != first) continue;
            const uint32_t n = sharers(t, of, first, i, all);
            bool shares = false, floats = graph_tensor_at(t->g, base)->type == TYPE_F32;
            for (uint32_t k = 0; k < n; k++) {
                shares |= all[k] == base;
                floats &= graph_tensor_at(t->g, all[k])->type == TYPE_F32;
            }
            all[n] = base;
            if (!shares && floats && n < TILE_WEIGHTS_MAX && !device_is_compiled(l->caps))
                shares = lower_weights_fit(l, all, n + 1);
            if (shares) of[i] = (uint8_t)first;
        }
    }
}

uint32_t tree_bindings(const lowering *l, const tree *t) {
    uint8_t of[LOWER_WALK_TENSORS];
    uint32_t n = 0;
    find_bindings(l, t, of);
    for (uint32_t i = 0; i < t->n_tensor; i++) n += of[i] == i && t->tensors[i];
    return n;
}

/* Binds tensor i with all that share its binding; where each of them begins there. */
static void bind_shared(tree_walk *c, uint32_t i, const uint8_t *of, uint32_t *start) {
    graph_value all[TILE_WEIGHTS_MAX + 1];
    uint32_t words[TILE_WEIGHTS_MAX + 1];
    const uint32_t n = sharers(&c->t, of, i, c->t.n_tensor, all);
    const char *name = names[c->second][i];
    c->memory[i] = n == 1 ? tile_read(c->k, name, c->t.tensors[i])
                          : tile_weights(c->k, name, all, n, IR_F32, words);
    for (uint32_t k = i; n > 1 && k < c->t.n_tensor; k++)
        for (uint32_t w = 0; of[k] == i && w < n; w++)
            if (all[w] == graph_base_of(c->t.g, c->t.tensors[k])) start[k] = words[w];
}

static const char *named(tree_walk *c, const char *name) {
    const char *text = base_arena_print(&c->k->arena, "%s%s", c->shared->prefix, name);
    return text ? text : "";
}

/* Of a tree without sizes of the run. */
static void declare_shared(tree_walk *c) {
    tree_shared *shared = c->shared;
    const tree *t = &c->t;
    for (uint32_t i = 0; i < t->n_tensor; i++) {
        if (!t->tensors[i]) { /* a place */
            c->offset[i] = ir_u32(c->k->b, 0);
            continue;
        }
        const uint32_t of = shared->memory_of(t->g, t->tensors[i]);
        uint32_t at = 0, same = 0;
        while (at < shared->n && shared->bound[at].of != of) at++;
        if (at == shared->n)
            shared->bound[shared->n++] = (tree_bound){
                of,
                (i < t->n_out ? tile_write : tile_read)(c->k, named(c, names[0][i]), t->tensors[i]),
                0};
        c->memory[i] = shared->bound[at].memory;
        while (same < i && (!t->tensors[same] || shared->memory_of(t->g, t->tensors[same]) != of ||
                            t->seen[same].offset != t->seen[i].offset))
            same++;
        const uint32_t first = shared->bound[at].start + t->seen[i].offset;
        c->offset[i] = same < i ? c->offset[same]
                       : first  ? tile_u32(c->k, named(c, offsets[0][i]), first)
                                : ir_u32(c->k->b, 0);
    }
    for (uint32_t i = 0; i < c->w.n; i++) c->size[i] = tile_count(c->k, "", c->w.size[i]);
}

void tree_declare(tree_walk *c) {
    if (BUILD_HAS_TRAINING && c->shared) {
        declare_shared(c);
        return;
    }
    const tree *t = &c->t;
    uint8_t of[LOWER_WALK_TENSORS];
    uint32_t start[LOWER_WALK_TENSORS] = {0};
    find_bindings(c->k->l, t, of);
    for (uint32_t i = 0; i < t->n_tensor; i++) {
        const char *name = names[c->second][i];
        if (!t->tensors[i]) continue;
        if (i == 0 && c->words)
            c->memory[i] = tile_bind(c->k, name, t->tensors[i], IR_U32, IR_READ_WRITE);
        else if (i < t->n_out) c->memory[i] = tile_write(c->k, name, t->tensors[i]);
        else if (of[i] != i) c->memory[i] = c->memory[of[i]];
        else bind_shared(c, i, of, start);
    }
    for (uint32_t i = 0; i < t->n_count; i++)
        c->counts[i] = tile_count(c->k, counts[i], lower_count_of(t->counts[i]));
    for (uint32_t i = 0; i < t->n_tensor; i++) {
        const graph_tensor *x = &t->seen[i];
        bool shared = t->is_moved[i];
        for (uint32_t k = 0; k < t->n_tensor; k++)
            shared |= k != i && of[k] == of[i] &&
                      graph_base_of(t->g, t->tensors[k]) != graph_base_of(t->g, t->tensors[i]);
        c->offset[i] = x->base || shared
                           ? tile_u32(c->k, offsets[c->second][i], start[i] + x->offset)
                           : ir_u32(c->k->b, 0);
        c->offset[i] = tree_map_offset(c, i, c->offset[i]);
    }
    for (uint32_t i = 0; i < c->w.n; i++)
        c->size[i] = tile_count(c->k, sizes[c->second][i], c->w.size[i]);
    for (uint32_t i = 0; c->along.n > 1 && i < c->along.n; i++)
        c->along_size[i] = tile_count(c->k, lengths[i], c->along.size[i]);
    for (uint32_t i = 0, n = 0; i < t->n_value; i++)
        if (t->values[i].kind == TREE_WEIGHTED)
            c->terms[i] =
                tile_count(c->k, terms[c->second][n++],
                           lower_count_of(graph_tensor_at(t->g, t->values[i].node->in[1])->dim[1]));
}

ir_id tree_place(tree_walk *c, ir_id left, uint32_t each, bool clamp, ir_id *at) {
    ir_builder *b = c->k->b;
    const lower_walk *w = &c->w;
    bool in_order[LOWER_WALK_TENSORS];
    memcpy(at, c->offset, sizeof c->offset);
    for (uint32_t t = 0; t < c->t.n_tensor; t++) {
        in_order[t] = tile_is_host(c->k->l) && !clamp && lower_walk_in_order(w, t, each);
        if (in_order[t]) at[t] = ir_add(b, at[t], tile_mul(b, left, w->stride[t][w->n - 1] * each));
    }
    for (uint32_t i = w->n; i-- > 0;) {
        const bool constant = !w->size[i].extent;
        ir_id here = left;
        if (i)
            here = constant ? tile_rem(b, left, (uint32_t)w->size[i].factor)
                            : ir_mod(b, left, c->size[i]);
        else if (clamp) here = ir_min(b, left, ir_sub(b, c->size[0], ir_u32(b, 1)));
        if (i)
            left = constant ? tile_div(b, left, (uint32_t)w->size[i].factor)
                            : ir_div(b, left, c->size[i]);
        for (uint32_t t = 0; t < c->t.n_tensor; t++)
            if (w->stride[t][i] && !in_order[t])
                at[t] = ir_add(b, at[t],
                               tile_mul(b, here, w->stride[t][i] * (i + 1 == w->n ? each : 1)));
    }
    return left;
}

void tree_spot_begin(tree_spot *s, uint32_t wide) {
    s->wide = wide;
    s->turn = IR_NO_ID;
    memset(s->made, 0xff, sizeof s->made);
}

static ir_id size_of(tree_walk *c, uint32_t i, bool rest, ir_id x) {
    const lower_count n = c->along.size[i];
    if (n.extent)
        return rest ? ir_mod(c->k->b, x, c->along_size[i]) : ir_div(c->k->b, x, c->along_size[i]);
    return rest ? tile_rem(c->k->b, x, (uint32_t)n.factor)
                : tile_div(c->k->b, x, (uint32_t)n.factor);
}

void tree_spot_at(tree_walk *c, tree_spot *s, uint32_t wide, ir_id i) {
    ir_builder *b = c->k->b;
    tree_spot_begin(s, wide);
    s->column = i;
    for (uint32_t t = 0; t < c->t.n_tensor; t++) s->at[t] = c->row[t];
    for (uint32_t d = c->along.n; d-- > 0;) {
        const ir_id here = d ? size_of(c, d, true, i) : i;
        if (d) i = size_of(c, d, false, i);
        for (uint32_t t = 0; t < c->t.n_tensor; t++)
            if (c->along.stride[t][d])
                s->at[t] = ir_add(b, s->at[t], tile_mul(b, here, c->along.stride[t][d]));
    }
}

/* A vector of tensor t. */
static ir_id loaded(tree_walk *c, const tree_spot *s, uint32_t t) {
    ir_builder *b = c->k->b;
    const uint32_t ahead = c->t.ahead[t];
    const ir_id at = ahead ? ir_add(b, s->at[t], tile_mul(b, s->turn, ahead)) : s->at[t];
    const ir_id x =
        tile_number(b, c->t.seen[t].type, tree_load(c, t, at, c->step[t] ? s->wide : 1));
    return ir_splat(b, x, s->wide);
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
    const ir_id term = tree_value_at(c, &inside, x->in[0]),
                weight = tree_value_at(c, &inside, x->in[1]);
    ir_store(b, sum, zero, ir_fma(b, term, weight, ir_load(b, sum, zero, s->wide)));
    ir_end(b);
    return ir_load(b, sum, zero, s->wide);
}

void tree_value_set(tree_walk *c, tree_spot *s, uint32_t v, ir_id made) {
    const tree_value *x = &c->t.values[v];
    if (c->arrays && x->last > c->level) ir_store(c->k->b, x->array, s->column, made);
    s->made[v] = made;
}

/* Value v as vectors are there, or where a number of the whole row asks, one of them. */
static ir_id operand(tree_walk *c, tree_spot *s, uint32_t v, bool row) {
    const ir_id made = tree_value_at(c, s, v);
    return row ? ir_extract(c->k->b, made, 0) : ir_splat(c->k->b, made, s->wide);
}

ir_id tree_value_at(tree_walk *c, tree_spot *s, uint32_t v) {
    ir_builder *b = c->k->b;
    const tree_value *x = &c->t.values[v];
    if (s->made[v] != IR_NO_ID) return s->made[v];
    ir_id made;
    if (x->kind == TREE_INPUT) {
        made = loaded(c, s, x->in[0]);
    } else if (x->kind == TREE_STAT) {
        made = c->t.stats[x->stat].result;
    } else if (c->arrays && x->first < c->level) {
        made = ir_load(b, x->array, s->column, s->wide);
    } else {
        assert(x->kind != TREE_SCAN);
        const ir_id in = is_leaf(x) ? IR_NO_ID : operand(c, s, x->in[0], x->row);
        if (x->kind == TREE_WEIGHTED) {
            made = weighted_sum(c, s, v);
        } else if (x->kind == TREE_WITHIN || x->kind == TREE_KEPT || is_placed(x)) {
            made = tree_map_value(c, s, v);
        } else if (BUILD_HAS_ADAPTERS && x->kind == TREE_LOW) {
            made = tree_low_value(c, s, x);
        } else if (x->kind == TREE_RANDOM) {
            made = tree_map_random(c, s, v);
        } else if (x->kind == TREE_NODE) {
            ir_id all[3] = {in};
            for (uint32_t i = 1; i < x->n_in; i++) all[i] = operand(c, s, x->in[i], x->row);
            made = tile_pointwise(c->k, x->op, &x->node->attr, all);
        } else {
            const ir_id with = ir_splat(b, c->t.stats[x->stat].result, s->wide);
            made = x->kind == TREE_TIMES ? ir_mul(b, in, with) : ir_sub(b, in, with);
            if (x->kind == TREE_EXP_LESS) made = ir_exp(b, made);
        }
        tree_value_set(c, s, v, made);
    }
    return s->made[v] = made;
}

void tree_walk_rows(tree_walk *c) {
    const graph_tensor *tensors[LOWER_WALK_TENSORS];
    const uint32_t first = row_begins(&c->t);
    for (uint32_t i = 0; i < c->t.n_tensor; i++) tensors[i] = &c->t.seen[i];
    c->w = lower_walk_of(tensors, c->t.n_tensor, c->t.shape->rank - first);
    c->along = lower_walk_from(c->t.shape, tensors, c->t.n_tensor, first);
    lower_walk_pad(&c->w, 1);
    lower_walk_pad(&c->along, 1);
    for (uint32_t i = 0; i < c->t.n_tensor; i++) c->step[i] = c->along.stride[i][c->along.n - 1];
}

ir_id tree_walk_length(tree_walk *c) {
    if (!tree_row_varies(&c->t)) return ir_u32(c->k->b, tree_row_length(&c->t));
    if (c->along.n == 1) return tile_count(c->k, "length", c->along.size[0]);
    ir_id n = c->along_size[0];
    for (uint32_t i = 1; i < c->along.n; i++) n = ir_mul(c->k->b, n, c->along_size[i]);
    return n;
}

uint32_t tree_widest(const tree_walk *c, uint32_t most, uint64_t row, bool whole,
                     uint32_t n_outer) {
    for (uint32_t wide = most; wide > 1; wide /= 2) {
        bool fits = !whole || row % wide == 0;
        for (uint32_t t = 0; fits && t < c->t.n_tensor; t++) {
            if (c->step[t] == 0) continue;
            fits = c->step[t] == 1 && c->t.ahead[t] % wide == 0 && c->t.seen[t].offset % wide == 0;
            for (uint32_t i = 0; i < c->t.n_move[t]; i++)
                fits = fits && c->t.moves[t][i].stride % wide == 0;
            for (uint32_t i = 0; i < c->t.n_value; i++) { /* in or out as a whole */
                const tree_value *v = &c->t.values[i];
                const bool guards = v->kind == TREE_WITHIN || v->kind == TREE_KEPT;
                const graph_dim limit = c->t.counts[v->limit];
                fits =
                    fits && (!guards || v->guard != t || (!limit.extent && limit.size % wide == 0));
                fits = fits && (!is_placed(v) || v->guard != t);
            }
            for (uint32_t i = 0; i < n_outer; i++) fits = fits && c->w.stride[t][i] % wide == 0;
            for (uint32_t i = 0; i + 1 < c->along.n; i++)
                fits = fits && c->along.stride[t][i] % wide == 0;
        }
        if (fits) return wide;
    }
    return 1;
}
