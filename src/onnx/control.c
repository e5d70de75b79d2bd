/* control.c - If, Loop and Scan: bodies are built in place, as often as is known now. */
#include "graph/reference.h"
#include "onnx/call.h"

#include <string.h>

enum { ROUNDS_MAX = 4096 };

/* false: refused, or not known now. */
static bool truth(onnx_call *c, const onnx_value *x, const char *what, bool *is) {
    onnx_call one = {.s = c->s, .g = c->g, .arena = c->arena, .node = c->node, .in = {*x}, .n_in = 1};
    const onnx_array *a = x->array ? onnx_known(&one, 0) : NULL;
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
static void joined(onnx_call *c, size_t k, onnx_value *parts, uint32_t n, uint32_t axis,
                   bool backwards) {
    graph_value *v = base_arena_take(c->arena, n, sizeof *v);
    if (!n || !v) {
        onnx_refuse(c, "no round, so that output %zu has no elements", k + 1);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!(v[i] = onnx_value_in_graph(c, &parts[backwards ? n - 1 - i : i]))) return;
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
    if (a) reference_put(type, (void *)(uintptr_t)a->data, (reference_number){(double)number, number});
    return (onnx_value){.array = a};
}

void onnx_run_loop(onnx_call *c) {
    const onnx_attribute *attribute = onnx_attribute_find(c, "body");
    const onnx_graph *body = attribute ? attribute->graph : NULL;
    const size_t n_carried = c->n_in > 2 ? c->n_in - 2 : 0;
    onnx_wholes most = {.n = 0};
    bool go = true;
    if (!body || body->n_out < 1 + n_carried || body->n_in != 2 + n_carried ||
        body->n_out - 1 > ONNX_OUT_MAX || c->n_out > body->n_out - 1) {
        onnx_refuse(c, "a body of other inputs and outputs");
        return;
    }
    if (onnx_is_given(c, 0) && !onnx_wholes_of(c, 0, &most)) return;
    if (onnx_is_given(c, 1) && !truth(c, &c->in[1], "the condition", &go)) return;
    const size_t n_out = body->n_out, n_listed = n_out - 1 - n_carried;
    onnx_value *in = base_arena_take(c->arena, 2 + n_carried, sizeof *in),
               *out = base_arena_take(c->arena, n_out, sizeof *out),
               *listed = base_arena_take(c->arena, (n_listed + 1) * ROUNDS_MAX, sizeof *listed);
    if (!in || !out || !listed) {
        graph_refuse(c->g, BERYL_NO_MEMORY, "out of host memory");
        return;
    }
    for (size_t k = 0; k < n_carried; k++) in[2 + k] = c->in[2 + k];
    uint32_t n = 0;
    for (; go && (!most.n || n < most.at[0]); n++) {
        if (n == ROUNDS_MAX) {
            onnx_refuse(c, "more than %d rounds", ROUNDS_MAX);
            return;
        }
        in[0] = known_number(c, TYPE_I64, n);
        in[1] = known_number(c, TYPE_BOOL, 1);
        if (!onnx_run_body(c, body, in, 2 + n_carried, out, n_out)) return;
        for (size_t k = 0; k < n_carried; k++) in[2 + k] = out[1 + k];
        for (size_t k = 0; k < n_listed; k++)
            listed[k * ROUNDS_MAX + n] = out[1 + n_carried + k];
        /* of a condition that is not known, the count alone decides, if there is one */
        if (!truth(c, &out[0], "the condition", &go)) return;
    }
    for (size_t k = 0; k < n_carried && k < c->n_out; k++) c->out[k] = in[2 + k];
    for (size_t k = 0; k < n_listed && n_carried + k < c->n_out; k++)
        joined(c, n_carried + k, listed + k * ROUNDS_MAX, n, 0, false);
}

/* From opset 9 on; states first, then what is scanned along an axis. */
void onnx_run_scan(onnx_call *c) {
    const onnx_attribute *attribute = onnx_attribute_find(c, "body");
    const onnx_graph *body = attribute ? attribute->graph : NULL;
    const int64_t n_scan = onnx_whole(c, "num_scan_inputs", 0);
    onnx_wholes axes, back, out_axes, out_back;
    if (!body || n_scan < 1 || (size_t)n_scan > c->n_in || body->n_in != c->n_in ||
        body->n_out < c->n_in - (size_t)n_scan || body->n_out > ONNX_OUT_MAX ||
        c->n_out > body->n_out) {
        onnx_refuse(c, "a body of other inputs and outputs");
        return;
    }
    onnx_wholes_at(c, "scan_input_axes", 0, &axes);
    onnx_wholes_at(c, "scan_input_directions", 0, &back);
    onnx_wholes_at(c, "scan_output_axes", 0, &out_axes);
    onnx_wholes_at(c, "scan_output_directions", 0, &out_back);
    const size_t n_state = c->n_in - (size_t)n_scan, n_listed = body->n_out - n_state;
    uint32_t rounds = 0, along[ONNX_IN_MAX];
    for (size_t k = n_state; k < c->n_in; k++) {
        onnx_shape s;
        if (!onnx_shape_of(c, k, &s)) return;
        along[k] = onnx_axis(c, axes.n > k - n_state ? axes.at[k - n_state] : 0, s.rank);
        if (along[k] == UINT32_MAX) return;
        const graph_dim d = s.dim[along[k]];
        if (d.extent || d.size > ROUNDS_MAX || (k > n_state && d.size != rounds)) {
            onnx_refuse(c, "%u rounds, or a number that each run says", d.size);
            return;
        }
        rounds = d.size;
    }
    onnx_value *in = base_arena_take(c->arena, c->n_in, sizeof *in),
               *out = base_arena_take(c->arena, body->n_out, sizeof *out),
               *listed = base_arena_take(c->arena, (n_listed + 1) * ROUNDS_MAX, sizeof *listed);
    if (!in || !out || !listed) {
        graph_refuse(c->g, BERYL_NO_MEMORY, "out of host memory");
        return;
    }
    for (size_t k = 0; k < n_state; k++) in[k] = c->in[k];
    for (uint32_t i = 0; i < rounds; i++) {
        for (size_t k = n_state; k < c->n_in; k++) {
            const bool reverse = back.n > k - n_state && back.at[k - n_state];
            in[k] = onnx_part(c, c->in[k], along[k], reverse ? rounds - 1 - i : i);
        }
        if (c->g->error.code != BERYL_OK || !onnx_run_body(c, body, in, c->n_in, out, body->n_out))
            return;
        for (size_t k = 0; k < n_state; k++) in[k] = out[k];
        for (size_t k = 0; k < n_listed; k++) listed[k * ROUNDS_MAX + i] = out[n_state + k];
    }
    for (size_t k = 0; k < n_state && k < c->n_out; k++) c->out[k] = in[k];
    for (size_t k = 0; k < n_listed && n_state + k < c->n_out; k++) {
        const int64_t axis = out_axes.n > k ? out_axes.at[k] : 0;
        onnx_call one = {.s = c->s, .g = c->g, .arena = c->arena, .node = c->node, .in = {listed[k * ROUNDS_MAX]}, .n_in = 1};
        onnx_shape s = {.rank = 0};
        if (rounds && !onnx_shape_of(&one, 0, &s)) return;
        const uint32_t at = onnx_axis(c, axis, s.rank + 1);
        if (at == UINT32_MAX) return;
        joined(c, n_state + k, listed + k * ROUNDS_MAX, rounds, at, out_back.n > k && out_back.at[k]);
    }
}
