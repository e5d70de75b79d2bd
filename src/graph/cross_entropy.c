/* cross_entropy.c - losses from hidden rows and the weight that makes logits of them, in pieces of
 * classes, and their gradient. Owns the size of a piece; refuses shapes that do not fit.
 *
 * The one idea: the log of the sum of exp of each row is all that the backward pass needs of the
 * forward pass. Logits of a piece are made in both, so one piece of them is in memory. */
#include "graph/gradient.h"

#include <string.h>

enum {
    PIECE = 4096,         /* classes at most, whose logits of 2,048 rows stay in a GPU's cache */
    TILE = 128,           /* of a product: pieces are whole ones */
    CLASSES_MAX = 1 << 24 /* whole numbers of F32 */
};

/* A call's, or a backward pass's. */
typedef struct pieces {
    graph *g;
    graph_value x, w, targets; /* x: F32 */
    graph_value one;           /* F32 [], from which numbers are made */
    float cap;
    uint32_t classes, n, each; /* pieces, classes of each but the last */
} pieces;

/* What one piece has. */
typedef struct piece {
    graph_value w;      /* [size, d] */
    graph_value logits; /* [n, size] */
    graph_value at;     /* I32 [n]: targets from the piece's first class on */
    uint32_t size;
} piece;

static pieces pieces_of(graph *g, graph_value x, graph_value w, graph_value targets, float cap) {
    const base_type type = graph_tensor_at(g, x)->type;
    pieces p = {.g = g, .x = x, .w = w, .targets = targets, .cap = cap};
    if (type == TYPE_F16 || type == TYPE_BF16) p.x = graph_cast(g, x, TYPE_F32, false);
    p.classes = graph_tensor_at(g, w)->dim[0].size;
    p.n = (p.classes + PIECE - 1) / PIECE;
    p.each = (p.classes + p.n - 1) / p.n;
    if (p.n > 1) p.each = (p.each + TILE - 1) / TILE * TILE;
    p.n = (p.classes + p.each - 1) / p.each;
    const graph_value any = graph_reduce(g, OP_SUM, graph_cast(g, targets, TYPE_F32, false), 1, 0);
    p.one = graph_cast(g, graph_eq(g, any, any), TYPE_F32, false);
    return p;
}

/* Rows of w from `start` on: a view, or of blocks, and of stored halves, which no view cuts, these
 * rows unpacked. */
static graph_value rows_of(const pieces *p, uint32_t start, uint32_t size) {
    graph *g = p->g;
    const graph_tensor *t = graph_tensor_at(g, p->w);
    const bool whole = size == p->classes,
               stored = graph_tensor_at(g, graph_base_of(g, p->w))->role == ROLE_STORED;
    if (whole && graph_type_is_plain(t->type)) return p->w;
    if (graph_type_is_plain(t->type) && (!stored || t->type == TYPE_F32))
        return graph_narrow(g, p->w, 0, start, size, 1);
    const graph_value first =
        graph_expand(g, graph_scale(g, p->one, (float)start), 1, &(graph_dim){size, 0});
    const graph_value place = first ? graph_cast(g, graph_iota(g, first, 0), TYPE_F32, false) : 0;
    return graph_gather_rows(g, p->w, graph_cast(g, graph_add(g, place, first), TYPE_I32, false),
                             1);
}

static bool takes_halves(const pieces *p) {
    return p->g->halves && graph_tensor_at(p->g, p->w)->type != TYPE_F32;
}

static piece piece_of(const pieces *p, uint32_t i) {
    graph *g = p->g;
    const uint32_t start = i * p->each,
                   size = p->classes - start < p->each ? p->classes - start : p->each;
    piece o = {.w = rows_of(p, start, size), .size = size};
    if (takes_halves(p)) o.w = graph_cast(g, o.w, TYPE_F16, false);
    o.logits = graph_linear(g, p->x, o.w);
    if (p->cap != 0) o.logits = graph_softcap(g, o.logits, p->cap);
    o.at = start ? graph_sub(g, p->targets, graph_clamp(g, p->targets, (float)start, (float)start))
                 : p->targets;
    return o;
}

/* 1 at the target of each row of the piece, else 0: [n, size]. */
static graph_value hot_of(const pieces *p, const piece *o, base_type type) {
    graph *g = p->g;
    const graph_value at = graph_unsqueeze(g, o->at, 1);
    if (!at) return 0;
    const graph_dim dims[2] = {graph_tensor_at(g, at)->dim[0], {o->size, 0}};
    const graph_value all = graph_expand(g, at, 2, dims);
    return graph_cast(g, graph_eq(g, all, graph_iota(g, all, 1)), type, false);
}

/* Which targets are classes, BOOL [n]. */
static graph_value are_classes(const pieces *p) {
    return graph_eq(p->g, p->targets, graph_clamp(p->g, p->targets, 0, (float)(p->classes - 1)));
}

graph_value graph_linear_cross_entropy(graph *g, graph_value x, graph_value w, graph_value targets,
                                       float cap) {
    static const char what[] = "linear_cross_entropy";
    if (!graph_has(g, x, what) || !graph_has(g, w, what) || !graph_has(g, targets, what)) return 0;
    char text[3][GRAPH_SHAPE_TEXT];
    const graph_tensor a = *graph_tensor_at(g, x), b = *graph_tensor_at(g, w),
                       of = *graph_tensor_at(g, targets);
    if (a.rank != 2 || b.rank != 2 || of.rank != 1 || !graph_same_dim(a.dim[0], of.dim[0]) ||
        !graph_same_dim(a.dim[1], b.dim[1]) || of.type != TYPE_I32 || b.dim[0].extent ||
        !b.dim[0].size || b.dim[0].size > CLASSES_MAX || !base_type_is_float(a.type) || !(cap >= 0))
        return graph_refuse(
            g, BERYL_MISUSE,
            "%s of %s, %s and targets %s: floats [n, d], [classes, d], I32 [n], a cap from 0", what,
            graph_shape_text(g, a.rank, a.dim, text[0]),
            graph_shape_text(g, b.rank, b.dim, text[1]),
            graph_shape_text(g, of.rank, of.dim, text[2]));
    const pieces p = pieces_of(g, x, w, targets, cap);
    graph_value *sums = base_arena_take(&g->arena, p.n, sizeof *sums), right = 0;
    if (!sums) return graph_no_memory(g);
    for (uint32_t i = 0; g->error.code == BERYL_OK && i < p.n; i++) {
        const piece o = piece_of(&p, i);
        const graph_value found = graph_gather(g, o.logits, graph_unsqueeze(g, o.at, 1), 1);
        sums[i] = graph_logsumexp(g, o.logits, 2);
        right = right ? graph_add(g, right, found) : found;
    }
    if (g->error.code != BERYL_OK) return 0;
    const graph_value all =
        p.n > 1 ? graph_logsumexp(g, graph_concat(g, p.n, sums, 1), 2) : sums[0];
    const graph_value loss = graph_squeeze(g, graph_sub(g, all, right), 1);
    return graph_own_rule(g, (graph_own){.kind = OWN_LINEAR_CROSS_ENTROPY,
                                         .out = loss ? gradient_where(g, are_classes(&p), loss) : 0,
                                         .in = {x, w, targets},
                                         .all = all,
                                         .cap = cap});
}

/* 1 - (logit / cap)^2 of what the cap has made of logits. */
static graph_value less_by_cap(const pieces *p, graph_value v, graph_value logits) {
    graph *g = p->g;
    if (p->cap == 0) return v;
    return graph_sub(g, v, graph_mul(g, v, graph_square(g, graph_scale(g, logits, 1 / p->cap))));
}

/* Where x alone is asked for, what the targets give to it: their rows of w, once for all pieces,
 * whose logits are the loss less than `all`. */
static graph_value towards_targets(const pieces *p, const graph_own *own, graph_value rows) {
    graph *g = p->g;
    const graph_value logits = graph_sub(g, own->all, graph_unsqueeze(g, own->out, 1)),
                      ids = graph_clamp(g, p->targets, 0, (float)(p->classes - 1)),
                      of = graph_gather_rows(g, p->w, ids, 1);
    return graph_mul(g, graph_neg(g, less_by_cap(p, rows, logits)),
                     graph_as(g, of, graph_tensor_at(g, p->x)->type));
}

/* Towards the logits of a piece: exp(logit - all) less 1 at the target, times d, times the slope of
 * the cap. */
void gradient_linear_cross_entropy(gradient *s, const graph_own *own, graph_value d) {
    graph *g = s->g;
    const graph_value x = own->in[0], w = own->in[1];
    const pieces p = pieces_of(g, x, w, own->in[2], own->cap);
    graph_value *parts = base_arena_take(&g->arena, p.n, sizeof *parts), sum = 0;
    if (!parts) graph_no_memory(g);
    if (g->error.code != BERYL_OK) return;
    const base_type type = graph_tensor_at(g, p.x)->type;
    const graph_value rows = graph_unsqueeze(g, gradient_where(g, are_classes(&p), d), 1);
    const bool each = gradient_wants(s, w);
    if (!each) sum = towards_targets(&p, own, rows);
    for (uint32_t i = 0; g->error.code == BERYL_OK && i < p.n; i++) {
        const piece o = piece_of(&p, i);
        graph_value v = graph_exp(g, graph_sub(g, o.logits, own->all));
        if (each) v = graph_sub(g, v, hot_of(&p, &o, type));
        v = less_by_cap(&p, graph_mul(g, v, rows), o.logits);
        if (each)
            parts[i] = graph_without(
                g, graph_contract(g, graph_unsqueeze(g, v, 2), graph_unsqueeze(g, p.x, 1), 1), 1);
        if (!gradient_wants(s, x)) continue;
        const base_type factors = takes_halves(&p) ? TYPE_BF16 : type;
        v = graph_matmul(g, graph_as(g, v, factors), graph_as(g, o.w, factors), false, false);
        v = graph_as(g, v, type);
        sum = sum ? graph_add(g, sum, v) : v;
    }
    if (g->error.code != BERYL_OK) return;
    gradient_add(s, x, sum);
    if (each) gradient_add(s, w, graph_concat(g, p.n, parts, 0));
}
