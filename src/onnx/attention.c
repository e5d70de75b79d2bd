/* attention.c - attention and rotations by position. */
#include "onnx/operators.h"

#include <math.h>
#include <string.h>

/* [b, n, h * d] as [b, h, n, d]. */
static graph_value heads(onnx_call *c, graph_value x, int64_t n_head) {
    if (!x) return 0;
    const graph_tensor t = *onnx_tensor_of(c, x);
    if (t.rank == 4) return x;
    if (t.rank != 3 || n_head < 1 || t.dim[2].size % n_head)
        return onnx_refuse(c, "%u axes, and %lld heads", t.rank, (long long)n_head);
    const uint32_t h = (uint32_t)n_head;
    x = graph_reshape(c->g, x, 4,
                      (graph_dim[]){t.dim[0], t.dim[1], {h, 0}, {t.dim[2].size / h, 0}});
    return x ? graph_permute(c->g, x, 4, (uint32_t[]){0, 2, 1, 3}) : 0;
}

typedef struct attended {
    graph_value q, k, v, mask;
    uint32_t n, m, past; /* rows; columns; those before the first row */
    bool causal;
    float scale, cap;
    int64_t left, right; /* how far a row sees to each side; -1: all */
    int64_t mode;        /* of the fourth result: 0 scores, 1 capped, 2 with biases, 3 weights */
} attended;

/* seen (0: all) and a column that is before or after row + by. */
static graph_value both(onnx_call *c, graph_value seen, base_op op, graph_value column,
                        graph_value row, int64_t by) {
    const graph_value end = onnx_op2(c, OP_ADD, row, onnx_number(c, (double)by, TYPE_I32)),
                      in = onnx_op2(c, op, column, end);
    return seen ? onnx_op2(c, OP_BIT_AND, seen, in) : in;
}

/* What a row may see, as numbers to add, F32: the mask, causality, columns that there are. */
static graph_value biases(onnx_call *c, const attended *a, graph_value scores) {
    graph *g = c->g;
    graph_value bias = 0;
    const graph_value nought = onnx_number(c, 0, TYPE_F32),
                      never = onnx_number(c, -INFINITY, TYPE_F32);
    graph_value seen = 0;
    if (a->causal || a->left >= 0 || a->right >= 0) {
        const graph_value column = graph_iota(g, scores, 3);
        graph_value first = onnx_number(c, a->past, TYPE_I32);
        if (onnx_is_given(c, 6)) { /* rows are the last of the columns that there are */
            const graph_value there = onnx_as(c, onnx_in(c, 6), TYPE_I32);
            if (!there) return 0;
            first =
                onnx_op2(c, OP_SUB,
                         onnx_reshape(c, there, 4,
                                      (uint32_t[]){onnx_tensor_of(c, there)->dim[0].size, 1, 1, 1}),
                         onnx_number(c, a->n, TYPE_I32));
        }
        const graph_value row = onnx_op2(c, OP_ADD, graph_iota(g, scores, 2), first);
        if (a->causal) seen = onnx_op2(c, OP_LE, column, row);
        if (a->left >= 0) seen = both(c, seen, OP_GE, column, row, -a->left);
        if (a->right >= 0) seen = both(c, seen, OP_LE, column, row, a->right);
    }
    if (onnx_is_given(c, 6)) {
        const graph_value there = onnx_as(c, onnx_in(c, 6), TYPE_I32);
        if (!there) return 0;
        const graph_value in =
            onnx_op2(c, OP_LT, graph_iota(g, scores, 3),
                     onnx_reshape(c, there, 4,
                                  (uint32_t[]){onnx_tensor_of(c, there)->dim[0].size, 1, 1, 1}));
        seen = seen ? onnx_op2(c, OP_BIT_AND, seen, in) : in;
    }
    if (seen) bias = graph_where(g, seen, nought, never);
    if (a->mask) {
        graph_value m = a->mask;
        const graph_tensor t = *onnx_tensor_of(c, m);
        if (t.type == TYPE_BOOL) m = graph_where(g, m, nought, never);
        else m = onnx_as(c, m, TYPE_F32);
        const uint32_t size = t.rank ? t.dim[t.rank - 1].size : a->m;
        if (size < a->m) m = graph_pad(g, m, t.rank - 1u, 0, a->m - size, -INFINITY);
        bias = bias ? onnx_op2(c, OP_ADD, bias, m) : m;
    }
    return bias;
}

static void attend(onnx_call *c, const attended *a, base_type type, bool flat) {
    graph *g = c->g;
    base_type was;
    graph_value q = onnx_wide(c, a->q, &was), k = onnx_wide(c, a->k, &was),
                v = onnx_wide(c, a->v, &was);
    if (!q || !k || !v) return;
    const graph_tensor t = *onnx_tensor_of(c, q), u = *onnx_tensor_of(c, k),
                       w = *onnx_tensor_of(c, v);
    const uint32_t h = t.dim[1].size, groups = u.dim[1].size;
    if (!groups || h % groups) {
        onnx_refuse(c, "%u heads over %u", h, groups);
        return;
    }
    if (h != groups) {
        k = graph_repeat(g, k, 1, h / groups);
        v = graph_repeat(g, v, 1, h / groups);
    }
    const float root = sqrtf(a->scale);
    graph_value scores =
                    graph_matmul(g, graph_scale(g, q, root), graph_scale(g, k, root), false, true),
                shown = a->mode == 0 ? scores : 0;
    /* a cap is on the scores before the mask */
    if (a->cap != 0) scores = graph_softcap(g, scores, a->cap);
    if (a->mode == 1) shown = scores;
    if (!scores) return;
    const graph_value bias = biases(c, a, scores);
    if (c->g->error.code != BERYL_OK) return;
    if (bias) scores = onnx_op2(c, OP_ADD, scores, bias);
    if (a->mode == 2) shown = scores;
    graph_value weights = graph_softmax_along(g, scores, 3);
    if (bias) { /* rows that see nothing are 0 */
        const graph_value most = graph_reduce(g, OP_AMAX, scores, 8, 0);
        const graph_value none = onnx_op2(c, OP_EQ, most, onnx_number(c, -INFINITY, TYPE_F32));
        weights = graph_where(g, none, onnx_number(c, 0, TYPE_F32), weights);
    }
    if (a->mode == 3) shown = weights;
    graph_value y = graph_matmul(g, weights, v, false, false);
    y = onnx_as(c, y, type);
    if (flat && y) {
        y = graph_permute(g, y, 4, (uint32_t[]){0, 2, 1, 3});
        y = y ? graph_reshape(g, y, 3, (graph_dim[]){t.dim[0], t.dim[2], {h * w.dim[3].size, 0}})
              : 0;
    }
    onnx_give(c, 0, y);
    if (c->n_out > 3) onnx_give(c, 3, onnx_as(c, shown, type));
}

/* The plain case: one operation of the graph. */
static bool attend_at_once(onnx_call *c, const attended *a, bool flat) {
    if (c->n_out > 3 || onnx_is_given(c, 6) || a->left >= 0 || a->right >= 0 ||
        onnx_tensor_of(c, a->q)->type == TYPE_F64)
        return false;
    if (a->mask) {
        const graph_tensor *t = onnx_tensor_of(c, a->mask);
        if (!t->rank || t->dim[t->rank - 1].size < a->m) return false;
    }
    const graph_sdpa how = {
        .scale = a->scale, .cap = a->cap, .causal = a->causal, .first = (int32_t)a->past};
    const base_type type = onnx_tensor_of(c, a->q)->type;
    graph_value mask = a->mask;
    if (mask && onnx_tensor_of(c, mask)->type != TYPE_BOOL) return false;
    graph_value y = graph_attend(c->g, a->q, a->k, a->v, mask, &how);
    if (!y) return true;
    if (flat) {
        const graph_tensor t = *onnx_tensor_of(c, y);
        y = graph_permute(c->g, y, 4, (uint32_t[]){0, 2, 1, 3});
        y = y ? graph_reshape(c->g, y, 3,
                              (graph_dim[]){t.dim[0], t.dim[2], {t.dim[1].size * t.dim[3].size, 0}})
              : 0;
    }
    onnx_give(c, 0, onnx_as(c, y, type));
    return true;
}

void onnx_attention(onnx_call *c) {
    graph *g = c->g;
    attended a = {.q = onnx_in(c, 0), .k = onnx_in(c, 1), .v = onnx_in(c, 2)};
    if (!a.q || !a.k || !a.v) return;
    const bool flat = onnx_tensor_of(c, a.q)->rank == 3;
    const base_type type = onnx_tensor_of(c, a.q)->type;
    a.q = heads(c, a.q, onnx_whole(c, "q_num_heads", 0));
    a.k = heads(c, a.k, onnx_whole(c, "kv_num_heads", 0));
    a.v = heads(c, a.v, onnx_whole(c, "kv_num_heads", 0));
    a.mask = onnx_or_none(c, 3);
    if (!a.q || !a.k || !a.v || g->error.code != BERYL_OK) return;
    if (onnx_is_given(c, 4) && onnx_is_given(c, 5)) {
        const graph_value past[2] = {onnx_in(c, 4), onnx_in(c, 5)};
        if (!past[0] || !past[1]) return;
        a.past = onnx_tensor_of(c, past[0])->dim[2].size;
        a.k = graph_concat(g, 2, (graph_value[]){past[0], a.k}, 2);
        a.v = graph_concat(g, 2, (graph_value[]){past[1], a.v}, 2);
        if (!a.k || !a.v) return;
    }
    const graph_tensor q = *onnx_tensor_of(c, a.q), k = *onnx_tensor_of(c, a.k);
    if (q.rank != 4 || k.rank != 4) {
        onnx_refuse(c, "inputs of %u axes", q.rank);
        return;
    }
    a.n = q.dim[2].size;
    a.m = k.dim[2].size;
    a.causal = onnx_whole(c, "is_causal", 0);
    a.scale = onnx_real(c, "scale", 1 / sqrtf((float)q.dim[3].size));
    a.cap = onnx_real(c, "softcap", 0);
    a.left = onnx_whole(c, "left_window_size", -1);
    a.right = onnx_whole(c, "right_window_size", -1);
    if (a.left > INT16_MAX * 512 || a.right > INT16_MAX * 512) {
        onnx_refuse(c, "a window of more than 2^24");
        return;
    }
    a.mode = onnx_whole(c, "qk_matmul_output_mode", 0);
    if (c->n_out > 1) onnx_give(c, 1, a.k);
    if (c->n_out > 2) onnx_give(c, 2, a.v);
    if (!attend_at_once(c, &a, flat)) attend(c, &a, type, flat);
}

/* cos and sin [positions, d / 2] by position ids [b, n], or [b, n, d / 2] without. */
void onnx_rotary(onnx_call *c) {
    graph *g = c->g;
    graph_value x = onnx_in(c, 0), part[2] = {onnx_in(c, 1), onnx_in(c, 2)};
    if (!x || !part[0] || !part[1]) return;
    const graph_tensor given = *onnx_tensor_of(c, x);
    x = heads(c, x, onnx_whole(c, "num_heads", 0));
    for (int i = 0; x && i < 2; i++) {
        if (onnx_is_given(c, 3)) {
            const graph_value ids = onnx_indices(c, 3, onnx_tensor_of(c, part[i])->dim[0].size);
            part[i] = ids ? graph_index_select(g, part[i], ids, 0) : 0;
        }
        if (part[i]) part[i] = graph_unsqueeze(g, part[i], 1); /* [b, 1, n, d / 2] */
    }
    if (!x || !part[0] || !part[1]) return;
    graph_value y = graph_rotate(g, x, 1, &part[0], &part[1], onnx_whole(c, "interleaved", 0));
    if (y && given.rank == 3) {
        y = graph_permute(g, y, 4, (uint32_t[]){0, 2, 1, 3});
        y = y ? graph_reshape(g, y, 3, given.dim) : 0;
    }
    onnx_give(c, 0, y);
}
