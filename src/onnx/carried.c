/* carried.c - layers that carry a state from one call of a model to the next: a causal convolution,
 * linear attention.
 *
 * Refuses sequences of more than STEPS_MAX steps of linear attention: each step is built. */
#include "onnx/operators.h"

#include <math.h>

enum { STEPS_MAX = 1024 };

/* x [b, c, n], weight [c, 1, k], bias [c], past [b, c, k - 1] -> [b, c, n], the last k - 1. */
void onnx_causal_conv(onnx_call *c) {
    graph *g = c->g;
    graph_value x = onnx_in(c, 0), weight = onnx_in(c, 1), bias = onnx_or_none(c, 2);
    if (!x || !weight || g->error.code != BERYL_OK) return;
    const graph_tensor t = *onnx_tensor_of(c, x), u = *onnx_tensor_of(c, weight);
    const base_view act = onnx_text(c, "activation", "none");
    const bool silu =
        base_view_equal(act, BASE_VIEW("silu")) || base_view_equal(act, BASE_VIEW("swish"));
    if (!onnx_is_sized(c, &t) || !onnx_is_sized(c, &u)) return;
    if (t.rank != 3 || u.rank != 3 || u.dim[0].size != t.dim[1].size || u.dim[1].size != 1 ||
        (!silu && !base_view_equal(act, BASE_VIEW("none")))) {
        onnx_refuse(c, "another activation, or shapes that do not go together");
        return;
    }
    const uint32_t k = u.dim[2].size, n = t.dim[2].size;
    if (k > 1 && onnx_is_given(c, 3)) {
        const graph_value past = onnx_in(c, 3);
        x = past ? graph_concat(g, 2, (graph_value[]){past, x}, 2) : 0;
    } else if (k > 1) {
        x = graph_pad(g, x, 2, k - 1, 0, 0);
    }
    if (!x || onnx_tensor_of(c, x)->dim[2].size != n + k - 1) {
        if (x) onnx_refuse(c, "a past of another length than %u", k - 1);
        return;
    }
    const graph_window w = {.size = k, .stride = 1, .dilation = 1};
    graph_value y = graph_conv(g, x, weight, 1, &w, t.dim[1].size);
    if (y && bias) y = onnx_op2(c, OP_ADD, y, onnx_channel(c, bias, 3));
    onnx_give(c, 0, y && silu ? graph_silu(g, y) : y);
    if (c->n_out < 2) return;
    if (k > 1) onnx_give(c, 1, graph_narrow(g, x, 2, n, k - 1, 1));
    else
        onnx_give_array(
            c, 1, onnx_array_make(c, t.type, 3, (uint32_t[]){t.dim[0].size, t.dim[1].size, 0}));
}

/* b sequences of n steps, h heads of keys and values, each for `group` of queries. */
typedef struct attending {
    uint32_t b, n, h, group, d_k, d_v;
    graph_value q, k, v;     /* F32 [b, n, h, group or 1, d] */
    graph_value decay, beta; /* [b, n, h or 1, d_k or 1, 1]; 0: none */
    graph_value state;       /* [b, h, d_k, d_v] */
    float scale;
} attending;

/* Input k [b, n, ..] as F32 [b, n, dims..]; 0: left out. */
static graph_value in_heads(onnx_call *c, const attending *a, size_t k, const uint32_t *dim) {
    base_type was;
    const graph_value v = onnx_or_none(c, k);
    return v ? onnx_reshape(c, onnx_wide(c, v, &was), 5,
                            (uint32_t[]){a->b, a->n, dim[0], dim[1], dim[2]})
             : 0;
}

/* Step i of v [b, n, ..], without the axis. */
static graph_value step_of(onnx_call *c, graph_value v, uint32_t i) {
    const graph_value one = v ? graph_narrow(c->g, v, 1, i, 1, 1) : 0;
    return one ? graph_squeeze(c->g, one, 1) : 0;
}

/* S = exp(decay) S + k (beta (v - k S)), of which `beta ( - k S)` may be left out; q S scale. */
static graph_value attend_step(onnx_call *c, attending *a, uint32_t i) {
    graph *g = c->g;
    const graph_value k = step_of(c, a->k, i); /* [b, h, 1, d_k] */
    graph_value v = step_of(c, a->v, i);
    if (!k || !v) return 0;
    if (a->decay) {
        const graph_value by = step_of(c, a->decay, i); /* [b, h, d_k or 1, 1] */
        a->state = by ? onnx_op2(c, OP_MUL, a->state, graph_exp(g, by)) : 0;
    }
    if (a->beta && a->state) {
        v = onnx_op2(c, OP_SUB, v, graph_matmul(g, k, a->state, false, false));
        v = onnx_op2(c, OP_MUL, v, step_of(c, a->beta, i));
    }
    const graph_value column = graph_permute(g, k, 4, (uint32_t[]){0, 1, 3, 2}),
                      outer = onnx_op2(c, OP_MUL, column, v);
    a->state = onnx_op2(c, OP_ADD, a->state, outer);
    const graph_value q = step_of(c, a->q, i);
    return q && a->state ? graph_scale(g, graph_matmul(g, q, a->state, false, false), a->scale) : 0;
}

static bool attending_of(onnx_call *c, attending *a) {
    onnx_shape in[3];
    const int64_t n_q = onnx_whole(c, "q_num_heads", 0), n_kv = onnx_whole(c, "kv_num_heads", 0);
    for (size_t k = 0; k < 3; k++) {
        if (!onnx_shape_of(c, k, &in[k])) return false;
        if (in[k].rank != 3 || in[k].dim[0].extent || in[k].dim[1].extent || in[k].dim[2].extent)
            return onnx_refuse(c, "input %zu is not of three constant axes", k + 1), false;
    }
    if (n_q < 1 || n_kv < 1 || n_q > 1 << 16 || n_q % n_kv || in[0].dim[2].size % n_q ||
        in[1].dim[2].size % n_kv || in[2].dim[2].size % n_kv ||
        in[0].dim[2].size / n_q != in[1].dim[2].size / n_kv)
        return onnx_refuse(c, "%lld heads over %lld", (long long)n_q, (long long)n_kv), false;
    *a = (attending){.b = in[0].dim[0].size,
                     .n = in[0].dim[1].size,
                     .h = (uint32_t)n_kv,
                     .group = (uint32_t)(n_q / n_kv)};
    a->d_k = in[1].dim[2].size / a->h;
    a->d_v = in[2].dim[2].size / a->h;
    if (a->n < 1 || a->n > STEPS_MAX)
        return onnx_refuse(c, "%u steps, not 1 to %d", a->n, STEPS_MAX), false;
    a->scale = onnx_real(c, "scale", 0);
    if (a->scale == 0) a->scale = 1 / sqrtf((float)a->d_k);
    return true;
}

/* Decay and beta, which the rule says; the state before the first step. */
static bool attending_rule(onnx_call *c, attending *a) {
    const base_view rule = onnx_text(c, "update_rule", "gated_delta");
    const bool gated = base_view_begins(rule, BASE_VIEW("gated")),
               delta = base_view_ends(rule, BASE_VIEW("delta"));
    onnx_shape shape;
    if ((!gated && !delta && !base_view_equal(rule, BASE_VIEW("linear"))) ||
        gated != onnx_is_given(c, 4) || delta != onnx_is_given(c, 5))
        return onnx_refuse(c, "another rule, or not its inputs"), false;
    if (gated) {
        if (!onnx_shape_of(c, 4, &shape)) return false;
        const uint32_t last = shape.rank ? shape.dim[shape.rank - 1].size : 0;
        a->decay = in_heads(c, a, 4, (uint32_t[]){a->h, last == a->h ? 1 : a->d_k, 1});
    }
    if (delta) {
        if (!onnx_shape_of(c, 5, &shape)) return false;
        const uint32_t last = shape.rank ? shape.dim[shape.rank - 1].size : 0;
        a->beta = in_heads(c, a, 5, (uint32_t[]){last == 1 ? 1 : a->h, 1, 1});
    }
    const uint32_t dim[4] = {a->b, a->h, a->d_k, a->d_v};
    if (onnx_is_given(c, 3)) {
        base_type was;
        const graph_value past = onnx_in(c, 3);
        a->state = past ? onnx_reshape(c, onnx_wide(c, past, &was), 4, dim) : 0;
    } else {
        graph_dim d[4];
        for (uint32_t i = 0; i < 4; i++) d[i] = (graph_dim){dim[i], 0};
        a->state = onnx_expand(c, onnx_number(c, 0, TYPE_F32), 4, d);
    }
    return a->state && c->g->error.code == BERYL_OK;
}

void onnx_linear_attention(onnx_call *c) {
    graph *g = c->g;
    attending a;
    onnx_shape query, past;
    if (!attending_of(c, &a) || !attending_rule(c, &a) || !onnx_shape_of(c, 0, &query)) return;
    past.type = query.type;
    if (onnx_is_given(c, 3) && !onnx_shape_of(c, 3, &past)) return;
    a.q = in_heads(c, &a, 0, (uint32_t[]){a.h, a.group, a.d_k});
    a.k = in_heads(c, &a, 1, (uint32_t[]){a.h, 1, a.d_k});
    a.v = in_heads(c, &a, 2, (uint32_t[]){a.h, 1, a.d_v});
    graph_value *steps = base_arena_take(c->arena, a.n, sizeof *steps);
    if (!steps) {
        graph_no_memory(g);
        return;
    }
    for (uint32_t i = 0; i < a.n; i++) {
        graph_value y = attend_step(c, &a, i); /* [b, h, group, d_v] */
        y = onnx_reshape(c, y, 3, (uint32_t[]){a.b, 1, a.h * a.group * a.d_v});
        if (!(steps[i] = y)) return;
    }
    const graph_value all = a.n == 1 ? steps[0] : graph_concat(g, a.n, steps, 1);
    onnx_give(c, 0, onnx_as(c, all, query.type));
    if (c->n_out > 1) onnx_give(c, 1, onnx_as(c, a.state, past.type));
}
