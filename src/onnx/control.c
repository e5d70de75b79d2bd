/* control.c - If, Loop and Scan: bodies are built in place, as often as is known now. */
#include "graph/reference.h"
#include "onnx/call.h"

#include <string.h>

enum { ROUNDS_MAX = 1024 };

typedef base_vec(onnx_value) listed_values; /* n_listed of each round */

/* false: refused, or not known now. */
static bool truth(onnx_call *c, const onnx_value *x, const char *what, bool *is) {
    onnx_call *one = x->array ? base_arena_take(c->arena, 1, sizeof *one) : NULL;
    if (one) *one = (onnx_call){.s = c->s, .g = c->g, .arena = c->arena, .in = {*x}, .n_in = 1};
    const onnx_array *a = one ? onnx_known(one, 0) : NULL;
    if (!a || !onnx_array_count(a))
        return onnx_refuse(c, "%s has to be known while the graph is built", what), false;
    *is = reference_number_at(a->type, a->data).whole != 0;
    return true;
}

void onnx_run_if(onnx_call *c) {
    bool is;
    if (!onnx_is_given(c, 0)) {
        onnx_refuse(c, "no condition");
        return;
    }
    if (!truth(c, &c->in[0], "the condition", &is)) return;
    const onnx_attribute *body = onnx_attribute_find(c, is ? "then_branch" : "else_branch");
    onnx_run_body(c, body ? body->graph : NULL, NULL, 0, c->out, c->n_out);
}

/* Values of all rounds, joined along a new axis or an existing one. */
static void joined(onnx_call *c, size_t k, onnx_value *parts, size_t step, uint32_t n,
                   uint32_t axis, bool backwards) {
    graph_value *v = base_arena_take(c->arena, n, sizeof *v);
    if (!n || !v) {
        onnx_refuse(c, "no round, so that output %zu has no elements", k + 1);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!(v[i] = onnx_value_in_graph(c, &parts[step * (backwards ? n - 1 - i : i)]))) return;
        if (!(v[i] = graph_unsqueeze(c->g, v[i], axis))) return;
    }
    onnx_give(c, k, n == 1 ? v[0] : graph_concat(c->g, n, v, axis));
}

onnx_value onnx_part(onnx_call *c, onnx_value x, uint32_t axis, uint32_t i) {
    const graph_value v = onnx_value_in_graph(c, &x),
                      part = v ? graph_narrow(c->g, v, axis, i, 1, 1) : 0;
    return (onnx_value){.v = part ? graph_squeeze(c->g, part, axis) : 0};
}

static onnx_value known_number(onnx_call *c, base_type type, int64_t number) {
    onnx_array *a = onnx_array_make(c, type, 0, NULL);
    if (a)
        reference_put(type, (void *)(uintptr_t)a->data, (reference_number){(double)number, number});
    return (onnx_value){.array = a};
}

/* Outputs of a round that are listed. false: no memory. */
static bool list(onnx_call *c, listed_values *to, const onnx_value *out, size_t n) {
    for (size_t k = 0; k < n; k++) {
        onnx_value *at = base_vec_add(c->g->heap, to);
        if (!at) return graph_no_memory(c->g), false;
        *at = out[k];
    }
    return true;
}

/* Rounds of a loop: in has the number of the round, the condition, and what is carried. Gives how
 * many there were; UINT32_MAX: refused. */
static uint32_t rounds_of(onnx_call *c, const onnx_graph *body, onnx_value *in, size_t n_carried,
                          onnx_value *out, listed_values *listed) {
    onnx_wholes most = {.n = 0};
    bool go = true;
    uint32_t n = 0;
    if (onnx_is_given(c, 0) && !onnx_wholes_of(c, 0, &most)) return UINT32_MAX;
    if (onnx_is_given(c, 1) && !truth(c, &c->in[1], "the condition", &go)) return UINT32_MAX;
    for (; go && (!most.n || n < most.at[0]); n++) {
        if (n == ROUNDS_MAX) {
            onnx_refuse(c, "more than %d rounds", ROUNDS_MAX);
            return UINT32_MAX;
        }
        in[0] = known_number(c, TYPE_I64, n);
        in[1] = known_number(c, TYPE_BOOL, 1);
        if (c->g->error.code != BERYL_OK ||
            !onnx_run_body(c, body, in, 2 + n_carried, out, body->n_out) ||
            !list(c, listed, out + 1 + n_carried, body->n_out - 1 - n_carried) ||
            !truth(c, &out[0], "the condition", &go))
            return UINT32_MAX;
        for (size_t k = 0; k < n_carried; k++) in[2 + k] = out[1 + k];
    }
    return n;
}

void onnx_run_loop(onnx_call *c) {
    const onnx_attribute *attribute = onnx_attribute_find(c, "body");
    const onnx_graph *body = attribute ? attribute->graph : NULL;
    const size_t n_carried = c->n_in > 2 ? c->n_in - 2 : 0;
    listed_values listed = {0};
    onnx_value in[ONNX_IN_MAX + 2], out[ONNX_OUT_MAX];
    if (!body || body->n_out < 1 + n_carried || body->n_in != 2 + n_carried ||
        body->n_out > ONNX_OUT_MAX || c->n_out > body->n_out - 1) {
        onnx_refuse(c, "a body of other inputs and outputs");
        return;
    }
    const size_t n_listed = body->n_out - 1 - n_carried;
    for (size_t k = 0; k < n_carried; k++) in[2 + k] = c->in[2 + k];
    const uint32_t n = rounds_of(c, body, in, n_carried, out, &listed);
    if (n != UINT32_MAX) {
        for (size_t k = 0; k < n_carried && k < c->n_out; k++) c->out[k] = in[2 + k];
        for (size_t k = 0; k < n_listed && n_carried + k < c->n_out; k++)
            joined(c, n_carried + k, listed.data + k, n_listed, n, 0, false);
    }
    base_vec_fini(c->g->heap, &listed);
}

typedef struct scanning {
    const onnx_graph *body;
    size_t n_state, n_listed;
    uint32_t rounds, along[ONNX_IN_MAX];
    onnx_wholes axes, back, out_axes, out_back;
} scanning;

static bool scanned(onnx_call *c, scanning *s) {
    for (size_t k = s->n_state; k < c->n_in; k++) {
        const size_t i = k - s->n_state;
        onnx_shape shape;
        if (!onnx_shape_of(c, k, &shape)) return false;
        s->along[k] = onnx_axis(c, s->axes.n > i ? s->axes.at[i] : 0, shape.rank);
        if (s->along[k] == UINT32_MAX) return false;
        const graph_dim d = shape.dim[s->along[k]];
        if (d.extent || d.size > ROUNDS_MAX || (i && d.size != s->rounds))
            return onnx_refuse(c, "%u rounds, or a number that each run says", d.size), false;
        s->rounds = d.size;
    }
    return true;
}

static void scan_results(onnx_call *c, const scanning *s, listed_values *listed) {
    for (size_t k = 0; k < s->n_listed && s->n_state + k < c->n_out; k++) {
        onnx_call *one = base_arena_take(c->arena, 1, sizeof *one);
        onnx_shape shape = {.rank = 0};
        if (!one) {
            graph_no_memory(c->g);
            return;
        }
        *one = (onnx_call){.s = c->s, .g = c->g, .arena = c->arena, .node = c->node, .n_in = 1};
        if (s->rounds) one->in[0] = listed->data[k];
        if (s->rounds && !onnx_shape_of(one, 0, &shape)) return;
        const uint32_t at = onnx_axis(c, s->out_axes.n > k ? s->out_axes.at[k] : 0, shape.rank + 1);
        if (at == UINT32_MAX) return;
        joined(c, s->n_state + k, listed->data + k, s->n_listed, s->rounds, at,
               s->out_back.n > k && s->out_back.at[k]);
    }
}

/* From opset 9 on; states first, then what is scanned along an axis. */
void onnx_run_scan(onnx_call *c) {
    const onnx_attribute *attribute = onnx_attribute_find(c, "body");
    const int64_t n_scan = onnx_whole(c, "num_scan_inputs", 0);
    scanning s = {.body = attribute ? attribute->graph : NULL};
    onnx_value in[ONNX_IN_MAX], out[ONNX_OUT_MAX];
    listed_values listed = {0};
    if (!s.body || n_scan < 1 || (uint64_t)n_scan > c->n_in || s.body->n_in != c->n_in ||
        s.body->n_out < c->n_in - (size_t)n_scan || s.body->n_out > ONNX_OUT_MAX ||
        c->n_out > s.body->n_out) {
        onnx_refuse(c, "a body of other inputs and outputs");
        return;
    }
    onnx_wholes_at(c, "scan_input_axes", 0, &s.axes);
    onnx_wholes_at(c, "scan_input_directions", 0, &s.back);
    onnx_wholes_at(c, "scan_output_axes", 0, &s.out_axes);
    onnx_wholes_at(c, "scan_output_directions", 0, &s.out_back);
    s.n_state = c->n_in - (size_t)n_scan;
    s.n_listed = s.body->n_out - s.n_state;
    if (c->g->error.code != BERYL_OK || !scanned(c, &s)) return;
    for (size_t k = 0; k < s.n_state; k++) in[k] = c->in[k];
    bool fine = true;
    for (uint32_t i = 0; fine && i < s.rounds; i++) {
        for (size_t k = s.n_state; k < c->n_in; k++) {
            const bool reverse = s.back.n > k - s.n_state && s.back.at[k - s.n_state];
            in[k] = onnx_part(c, c->in[k], s.along[k], reverse ? s.rounds - 1 - i : i);
        }
        fine = c->g->error.code == BERYL_OK &&
               onnx_run_body(c, s.body, in, c->n_in, out, s.body->n_out) &&
               list(c, &listed, out + s.n_state, s.n_listed);
        for (size_t k = 0; fine && k < s.n_state; k++) in[k] = out[k];
    }
    for (size_t k = 0; fine && k < s.n_state && k < c->n_out; k++) c->out[k] = in[k];
    if (fine) scan_results(c, &s, &listed);
    base_vec_fini(c->g->heap, &listed);
}
