/* recurrent.c - RNN, GRU and LSTM with their usual activations: a cell for each step of the
 * sequence, built in place.
 *
 * Letters: n steps, b sequences, d numbers a step, h of the state, g gates. Refuses sequences of
 * several lengths, clipping, and more than STEPS_MAX steps. */
#include "onnx/operators.h"

enum { STEPS_MAX = 1024 };

/* One direction. A part of what is multiplied or added for each gate. */
typedef struct cell {
    graph_value w, r, bias,
        rest;                  /* [g * h, d], [g * h, h], [g * h] of both, of the state's alone */
    graph_value peep[3];       /* of LSTM: [h] for input, output, forget gate; 0: none */
    graph_value state, memory; /* [b, h] */
    uint32_t n_gate, h;
    bool reset_after; /* of GRU: linear_before_reset */
} cell;

/* Row i of input k [directions, ..]; 0: left out. */
static graph_value part(onnx_call *c, size_t k, uint32_t i) {
    const graph_value v = onnx_or_none(c, k), one = v ? graph_narrow(c->g, v, 0, i, 1, 1) : 0;
    return one ? graph_squeeze(c->g, one, 0) : 0;
}

/* Gate i of v [.., g * h]. */
static graph_value gate(onnx_call *c, const cell *s, graph_value v, uint32_t i) {
    const uint32_t axis = v ? onnx_tensor_of(c, v)->rank - 1u : 0;
    return v ? graph_narrow(c->g, v, axis, i * s->h, s->h, 1) : 0;
}

static graph_value add(onnx_call *c, graph_value a, graph_value b) {
    return a && b ? onnx_op2(c, OP_ADD, a, b) : a;
}

static graph_value times(onnx_call *c, graph_value a, graph_value b) {
    return onnx_op2(c, OP_MUL, a, b);
}

static void step_gru(onnx_call *c, cell *s, graph_value x, graph_value rx) {
    graph *g = c->g;
    const graph_value both = onnx_op2(c, OP_ADD, x, rx), z = graph_sigmoid(g, gate(c, s, both, 0)),
                      r = graph_sigmoid(g, gate(c, s, both, 1)), h_x = gate(c, s, x, 2);
    graph_value h_r;
    if (s->reset_after) {
        h_r = times(c, r, add(c, gate(c, s, rx, 2), gate(c, s, s->rest, 2)));
    } else {
        const graph_value rows = graph_narrow(g, s->r, 0, 2 * s->h, s->h, 1);
        h_r = graph_matmul(g, times(c, r, s->state), rows, false, true);
        h_r = add(c, h_r, gate(c, s, s->rest, 2));
    }
    const graph_value next = graph_tanh(g, add(c, h_x, h_r));
    /* z h + (1 - z) next */
    s->state = add(c, next, times(c, z, onnx_op2(c, OP_SUB, s->state, next)));
}

static graph_value peeped(onnx_call *c, const cell *s, graph_value v, int i) {
    return s->peep[i] ? add(c, v, times(c, s->peep[i], s->memory)) : v;
}

static void step_lstm(onnx_call *c, cell *s, graph_value x, graph_value rx) {
    graph *g = c->g;
    const graph_value all = onnx_op2(c, OP_ADD, x, rx),
                      in = graph_sigmoid(g, peeped(c, s, gate(c, s, all, 0), 0)),
                      forget = graph_sigmoid(g, peeped(c, s, gate(c, s, all, 2), 2)),
                      next = graph_tanh(g, gate(c, s, all, 3));
    s->memory = add(c, times(c, forget, s->memory), times(c, in, next));
    const graph_value out = graph_sigmoid(g, peeped(c, s, gate(c, s, all, 1), 1));
    s->state = times(c, out, graph_tanh(g, s->memory));
}

/* x: [b, g * h], what a step's numbers make, with biases. */
static void step(onnx_call *c, onnx_cell kind, cell *s, graph_value x) {
    const graph_value rx = graph_matmul(c->g, s->state, s->r, false, true);
    if (c->g->error.code != BERYL_OK) return;
    switch (kind) {
    case CELL_RNN: s->state = graph_tanh(c->g, onnx_op2(c, OP_ADD, x, rx)); break;
    case CELL_GRU: step_gru(c, s, x, rx); break;
    case CELL_LSTM: step_lstm(c, s, x, rx); break;
    }
}

/* Biases are of x's product; the part that a reset gate multiplies, or comes after, is separate. */
static bool biases(onnx_call *c, onnx_cell kind, cell *s, uint32_t i) {
    const graph_value all = part(c, 3, i);
    const uint32_t size = s->n_gate * s->h;
    if (!all) return c->g->error.code == BERYL_OK;
    const graph_value own = graph_narrow(c->g, all, 0, 0, size, 1);
    s->rest = graph_narrow(c->g, all, 0, size, size, 1);
    if (kind != CELL_GRU) {
        s->bias = add(c, own, s->rest);
    } else {
        const graph_value parts[2] = {add(c, graph_narrow(c->g, own, 0, 0, 2 * s->h, 1),
                                          graph_narrow(c->g, s->rest, 0, 0, 2 * s->h, 1)),
                                      gate(c, s, own, 2)};
        s->bias = graph_concat(c->g, 2, parts, 0);
    }
    return s->bias != 0;
}

static bool cell_make(onnx_call *c, cell *s, uint32_t i, uint32_t n_seq, base_type type) {
    const onnx_cell kind = (onnx_cell)c->variant;
    const bool batch_first = onnx_whole(c, "layout", 0);
    const graph_dim shape[2] = {{n_seq, 0}, {s->h, 0}};
    graph_value start[2] = {0, 0};
    for (size_t k = 0; k < 2; k++) {
        graph_value v = k + 5 < c->n_in ? onnx_or_none(c, k + 5) : 0;
        if (v && batch_first && onnx_tensor_of(c, v)->rank == 3)
            v = graph_permute(c->g, v, 3, (uint32_t[]){1, 0, 2});
        if (v) v = graph_narrow(c->g, v, 0, i, 1, 1);
        start[k] =
            v ? graph_squeeze(c->g, v, 0) : onnx_expand(c, onnx_number(c, 0, type), 2, shape);
    }
    s->state = start[0];
    s->memory = start[1];
    s->w = part(c, 1, i);
    s->r = part(c, 2, i);
    s->reset_after = onnx_whole(c, "linear_before_reset", 0);
    const graph_value peep = kind == CELL_LSTM ? part(c, 7, i) : 0;
    for (uint32_t k = 0; peep && k < 3; k++) s->peep[k] = gate(c, s, peep, k);
    return s->state && s->memory && s->w && s->r && biases(c, kind, s, i);
}

/* A direction over x [n, b, d]; lines [n]: its states. */
static bool run_direction(onnx_call *c, cell *s, graph_value x, bool backwards,
                          graph_value *lines) {
    const uint32_t n = onnx_tensor_of(c, x)->dim[0].size;
    graph_value all = graph_matmul(c->g, x, s->w, false, true);
    all = add(c, all, s->bias);
    for (uint32_t i = 0; all && i < n; i++) {
        const uint32_t at = backwards ? n - 1 - i : i;
        const graph_value one = graph_narrow(c->g, all, 0, at, 1, 1);
        step(c, (onnx_cell)c->variant, s, one ? graph_squeeze(c->g, one, 0) : 0);
        if (!(lines[at] = s->state)) return false;
    }
    return c->g->error.code == BERYL_OK;
}

/* v [n_dir] states [b, h] as [directions, b, h], or batches first. */
static graph_value stacked(onnx_call *c, const graph_value *v, uint32_t n_dir) {
    const graph_value all = graph_stack(c->g, n_dir, v, 0);
    return all && onnx_whole(c, "layout", 0) ? graph_permute(c->g, all, 3, (uint32_t[]){1, 0, 2})
                                             : all;
}

static void run_all(onnx_call *c, graph_value x, uint32_t n_dir, uint32_t h, bool backwards) {
    static const uint32_t gates[] = {[CELL_RNN] = 1, [CELL_GRU] = 3, [CELL_LSTM] = 4};
    graph *g = c->g;
    const graph_tensor t = *onnx_tensor_of(c, x);
    const uint32_t n = t.dim[0].size;
    graph_value *lines = base_arena_take(c->arena, (size_t)n * 2, sizeof *lines), last[2],
                memory[2], pair[2];
    if (!lines) {
        graph_no_memory(g);
        return;
    }
    for (uint32_t i = 0; i < n_dir; i++) {
        cell s = {.n_gate = gates[c->variant], .h = h};
        if (!cell_make(c, &s, i, t.dim[1].size, t.type) ||
            !run_direction(c, &s, x, n_dir == 2 ? i : backwards, lines + (size_t)i * n))
            return;
        last[i] = s.state;
        memory[i] = s.memory;
    }
    for (uint32_t i = 0; i < n; i++) { /* [directions, b, h] of each step */
        for (uint32_t k = 0; k < n_dir; k++) pair[k] = lines[(size_t)k * n + i];
        lines[i] = n_dir == 1 ? graph_unsqueeze(g, pair[0], 0) : graph_stack(g, n_dir, pair, 0);
    }
    if (c->wanted[0]) {
        graph_value y = graph_stack(g, n, lines, 0);
        if (y && onnx_whole(c, "layout", 0)) y = graph_permute(g, y, 4, (uint32_t[]){2, 0, 1, 3});
        onnx_give(c, 0, y);
    }
    if (c->n_out > 1) onnx_give(c, 1, stacked(c, last, n_dir));
    if (c->n_out > 2) onnx_give(c, 2, stacked(c, memory, n_dir));
}

void onnx_recurrent(onnx_call *c) {
    graph_value x = onnx_in(c, 0);
    onnx_shape r;
    if (!x || !onnx_shape_of(c, 2, &r)) return;
    if (onnx_tensor_of(c, x)->rank != 3 || r.rank != 3) {
        onnx_refuse(c, "a sequence of %u axes", onnx_tensor_of(c, x)->rank);
        return;
    }
    if (onnx_whole(c, "layout", 0)) x = graph_permute(c->g, x, 3, (uint32_t[]){1, 0, 2});
    if (!x) return;
    const graph_tensor t = *onnx_tensor_of(c, x);
    const uint32_t n_dir = r.dim[0].size;
    const bool backwards = onnx_text_is(c, "direction", "forward", "reverse");
    onnx_wholes lengths = {.n = 0};
    if (onnx_is_given(c, 4) && !onnx_wholes_of(c, 4, &lengths)) return;
    for (size_t i = 0; i < lengths.n; i++)
        if (lengths.at[i] != t.dim[0].size) {
            onnx_refuse(c, "sequences of several lengths");
            return;
        }
    if (onnx_attribute_find(c, "activations") || onnx_attribute_find(c, "clip") ||
        onnx_whole(c, "input_forget", 0))
        onnx_refuse(c, "other activations, clipping, or coupled gates");
    else if (t.dim[0].extent || t.dim[1].extent || t.dim[0].size > STEPS_MAX || n_dir > 2)
        onnx_refuse(c, "%u steps and %u directions, or a number that each run says", t.dim[0].size,
                    n_dir);
    else run_all(c, x, n_dir, r.dim[2].size, backwards);
}
