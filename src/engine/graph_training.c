/* graph_training.c - gradients, optimisers and states of users' graphs (beryl_graph.h).
 *
 * Owns the states that optimisers keep. An optimiser is operations of the graph: what it computes
 * of one parameter is one tree, so a few dispatches. */
#include "beryl_nn.h"
#include "base/error.h"
#include "base/file.h"
#include "engine/graph_api.h"

#include <float.h>
#include <math.h>
#include <string.h>

void beryl_graph_gradient(beryl_graph *g, beryl_value loss, uint32_t n, const beryl_value *values,
                          beryl_value *gradients) {
    if (gradients)
        for (uint32_t i = 0; i < n; i++) gradients[i] = 0;
    if (!graph_api_may_build(g)) return;
    if (n && (!values || !gradients))
        graph_api_refuse(g, BERYL_MISUSE, "no values, or no place for gradients", "gradient");
    else graph_gradient(g->g, loss, n, values, gradients);
}

void beryl_graph_recompute_begin(beryl_graph *g) {
    if (graph_api_may_build(g)) graph_recompute_begin(g->g);
}

void beryl_graph_recompute_end(beryl_graph *g) {
    if (graph_api_may_build(g)) graph_recompute_end(g->g);
}

beryl_status beryl_graph_memory(const beryl_graph *g, uint64_t *bytes, uint64_t *kept,
                                beryl_error *error) {
    if (!g || g->stage != STAGE_READY || !bytes)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_graph_memory needs a compiled graph and a place for the bytes");
    graph_exec_info info;
    graph_exec_describe(g->exec, &info);
    *bytes = info.arena_bytes;
    if (kept) *kept = info.kept_bytes ? info.kept_bytes : info.arena_bytes;
    return BERYL_OK;
}

beryl_value beryl_graph_detach(beryl_graph *g, beryl_value x) {
    return graph_api_may_build(g) ? graph_detach(g->g, x) : 0;
}

beryl_value beryl_graph_cross_entropy(beryl_graph *g, beryl_value logits, beryl_value targets) {
    return graph_api_may_build(g) ? graph_cross_entropy(g->g, logits, targets) : 0;
}

beryl_value beryl_graph_linear_cross_entropy(beryl_graph *g, beryl_value x, beryl_value w,
                                             beryl_value targets, float cap) {
    return graph_api_may_build(g) ? graph_linear_cross_entropy(g->g, x, w, targets, cap) : 0;
}

beryl_value beryl_graph_assign(beryl_graph *g, beryl_value state, beryl_value x) {
    return graph_api_may_build(g) ? graph_assign(g->g, state, x) : 0;
}

beryl_value beryl_graph_dropout(beryl_graph *g, beryl_value key, uint32_t stream, beryl_value x,
                                float chance) {
    return graph_api_may_build(g) ? graph_dropout(g->g, (graph_draw){key, stream}, x, chance) : 0;
}

beryl_value beryl_graph_clip(beryl_graph *g, uint32_t n, const beryl_value *x, float norm,
                             beryl_value *clipped) {
    if (!graph_api_may_build(g)) return 0;
    if (!n || !x || !clipped)
        return graph_api_refuse(g, BERYL_MISUSE, "no values, or no place for them", "clip");
    return graph_clip(g->g, n, x, norm, clipped);
}

/* ---- loss scale ------------------------------------------------------------------------------ */

enum { SCALE_FIRST = 1 << 16, SCALE_MOST = 1 << 24, SCALE_RUNS = 2000 };

static graph_value wide_of(graph *g, graph_value x) {
    return graph_tensor_at(g, x)->type == TYPE_F32 ? x : graph_cast(g, x, TYPE_F32, false);
}

/* Are all elements numbers, none infinite? BOOL [1] */
static graph_value is_finite(graph *g, graph_value x) {
    const graph_value inside = graph_eq(g, x, graph_clamp(g, x, -FLT_MAX, FLT_MAX)),
                      is = graph_bit_and(g, inside, graph_logical_not(g, graph_is_nan(g, x)));
    const uint32_t rank = graph_tensor_at(g, x)->rank;
    return graph_reshape(g, rank ? graph_reduce(g, OP_ALL, is, (1u << rank) - 1, 0) : is, 1,
                         &(graph_dim){1, 0});
}

/* The next scale, and how many runs it has lasted. */
static void scale_update(graph *g, const graph_value states[2], graph_value scale,
                         graph_value finite) {
    const graph_value runs = graph_add_scalar(g, states[1], 1), none = graph_clamp(g, runs, 0, 0);
    const graph_value due = graph_ge(g, runs, graph_clamp(g, runs, SCALE_RUNS, SCALE_RUNS));
    const graph_value kept = graph_where(g, due, graph_scale(g, scale, 2), scale),
                      next = graph_where(g, finite, kept, graph_scale(g, scale, 0.5f));
    const graph_value on = graph_bit_and(g, finite, graph_logical_not(g, due));
    graph_assign(g, states[1], graph_where(g, on, runs, none));
    graph_assign(g, states[0], graph_clamp(g, next, 1, SCALE_MOST));
}

beryl_value beryl_graph_gradient_scaled(beryl_graph *g, beryl_value loss, float first, uint32_t n,
                                        const beryl_value *values, beryl_value *gradients) {
    static const char what[] = "gradient_scaled", *const names[] = {"loss.scale", "loss.runs"};
    static const uint32_t one = 1;
    for (uint32_t i = 0; gradients && i < n; i++) gradients[i] = 0;
    if (!graph_api_may_build(g)) return 0;
    if (!n || !values || !gradients || !(first >= 0 && first <= SCALE_MOST))
        return graph_api_refuse(g, BERYL_MISUSE, "no values, no place, or a scale above 2^24",
                                what);
    if (!graph_has(g->g, loss, what)) return 0;
    graph_value states[2];
    for (uint32_t i = 0; i < 2; i++)
        states[i] = beryl_graph_state(g, names[i], BERYL_TYPE_F32, 1, &one);
    if (!states[0] || !states[1]) return 0;
    const float from = first > 0 ? first : SCALE_FIRST;
    const graph_value none = graph_clamp(g->g, states[0], 0, 0),
                      begins = graph_eq(g->g, states[0], none);
    const graph_value scale =
        graph_where(g->g, begins, graph_clamp(g->g, states[0], from, from), states[0]);
    const graph_tensor t = *graph_tensor_at(g->g, loss);
    if (graph_element_bound(&t) != 1 || !base_type_is_float(t.type))
        return graph_api_refuse(g, BERYL_MISUSE, "the loss is one float", what);
    loss = graph_reshape(g->g, wide_of(g->g, loss), 1, &(graph_dim){1, 0});
    graph_gradient(g->g, graph_mul(g->g, loss, scale), n, values, gradients);
    graph_value finite = 0;
    for (uint32_t i = 0; g->g->error.code == BERYL_OK && i < n; i++) {
        gradients[i] = graph_div(g->g, wide_of(g->g, gradients[i]), scale);
        const graph_value is = is_finite(g->g, gradients[i]);
        finite = finite ? graph_bit_and(g->g, finite, is) : is;
    }
    scale_update(g->g, states, scale, finite);
    for (uint32_t i = 0; g->g->error.code != BERYL_OK && i < n; i++) gradients[i] = 0;
    return g->g->error.code == BERYL_OK ? finite : 0;
}

/* ---- optimisers ------------------------------------------------------------------------------ */

/* One call's: how, and what all its parameters share. */
typedef struct optimiser {
    beryl_graph *owner;
    graph *g;
    beryl_optimiser how;
    graph_value rate; /* F32 [1] */
    graph_adam adam;  /* its numbers */
    /* of moments in 8 bits: the chances that round them, the largest gradient; 0: there are none */
    graph_draw draw;
    float most;
} optimiser;

typedef graph_value optimiser_step(optimiser *o, graph_value p, graph_value d);

/* A state like the parameter's, named after it. */
static graph_value state_like(optimiser *o, graph_value parameter, const char *what,
                              beryl_type type) {
    const graph_tensor t = *graph_tensor_at(o->g, parameter);
    uint32_t dims[GRAPH_RANK_MAX];
    for (uint32_t i = 0; i < t.rank; i++) dims[i] = t.dim[i].size;
    const char *name = base_arena_print(&o->owner->arena, "%s.%s", t.name, what);
    if (!name) return graph_api_refuse(o->owner, BERYL_NO_MEMORY, "out of host memory", what);
    return beryl_graph_state(o->owner, name, type, t.rank, dims);
}

/* The state becomes x, where this is a step that counts. */
static graph_value set(optimiser *o, graph_value state, graph_value x) {
    if (o->how.when) x = graph_where(o->g, o->how.when, x, state);
    return graph_assign(o->g, state, x);
}

/* 1 - beta^t, exact where t is small too */
static graph_value not_yet(graph *g, graph_value t, float beta) {
    return graph_neg(g, graph_elu(g, graph_scale(g, t, (float)log((double)beta)), 1));
}

static void count_steps(optimiser *o) {
    static const uint32_t one = 1;
    graph *g = o->g;
    const graph_value state =
        beryl_graph_state(o->owner, "optimiser.steps", BERYL_TYPE_F32, 1, &one);
    const graph_value t = graph_add_scalar(g, state, 1);
    const graph_value first = not_yet(g, t, o->how.beta1),
                      root = graph_sqrt(g, not_yet(g, t, o->how.beta2));
    set(o, state, t);
    o->adam = (graph_adam){.beta1 = o->how.beta1,
                           .beta2 = o->how.beta2,
                           .eps = o->how.eps,
                           .decay = o->how.kind == BERYL_ADAMW ? o->how.weight_decay : 0,
                           .rate = o->rate,
                           .over_first = graph_div(g, o->rate, first),
                           .root = root};
}

/* The parameter less rate times v. */
static graph_value moved(optimiser *o, graph_value p, graph_value v) {
    return graph_sub(o->g, p, graph_mul(o->g, v, o->rate));
}

static graph_value step_sgd(optimiser *o, graph_value p, graph_value d) {
    graph *g = o->g;
    const float momentum = o->how.momentum;
    if (momentum == 0) return set(o, p, moved(o, p, d));
    const graph_value state = state_like(o, p, "momentum", BERYL_TYPE_F32),
                      m = graph_add(g, graph_scale(g, state, momentum), d);
    const graph_value v = o->how.nesterov ? graph_add(g, d, graph_scale(g, m, momentum)) : m,
                      next = moved(o, p, v);
    set(o, state, m);
    return set(o, p, next);
}

static graph_value step_rmsprop(optimiser *o, graph_value p, graph_value d) {
    graph *g = o->g;
    const graph_value square = state_like(o, p, "square", BERYL_TYPE_F32),
                      v = graph_averaged(g, square, graph_square(g, d), o->how.beta2);
    graph_value step = graph_div(g, d, graph_add_scalar(g, graph_sqrt(g, v), o->how.eps)), m = 0,
                momentum = 0;
    if (o->how.momentum != 0) {
        momentum = state_like(o, p, "momentum", BERYL_TYPE_F32);
        m = step = graph_add(g, graph_scale(g, momentum, o->how.momentum), step);
    }
    const graph_value next = moved(o, p, step);
    set(o, square, v);
    if (m) set(o, momentum, m);
    return set(o, p, next);
}

static graph_value step_adam(optimiser *o, graph_value p, graph_value d) {
    graph_value mean = state_like(o, p, "mean", BERYL_TYPE_F32),
                square = state_like(o, p, "square", BERYL_TYPE_F32), m = mean, v = square;
    const graph_value next = graph_adam_step(o->g, &o->adam, p, d, &m, &v);
    set(o, mean, m);
    set(o, square, v);
    return set(o, p, next);
}

static graph_value step_coded(optimiser *o, graph_value p, graph_value d) {
    const graph_value state = state_like(o, p, "moments", BERYL_TYPE_I16);
    graph_value codes = state;
    const graph_value next = graph_adam_coded(o->g, &o->adam, o->draw, o->most, p, d, &codes);
    o->draw.stream++;
    set(o, state, codes);
    return set(o, p, next);
}

static graph_value step_lion(optimiser *o, graph_value p, graph_value d) {
    graph *g = o->g;
    const graph_value mean = state_like(o, p, "mean", BERYL_TYPE_F32),
                      m = graph_averaged(g, mean, d, o->how.beta2);
    graph_value step = graph_sign(g, graph_averaged(g, mean, d, o->how.beta1));
    if (o->how.weight_decay != 0) step = graph_add(g, step, graph_scale(g, p, o->how.weight_decay));
    const graph_value next = moved(o, p, step);
    set(o, mean, m);
    return set(o, p, next);
}

static graph_value step_adagrad(optimiser *o, graph_value p, graph_value d) {
    graph *g = o->g;
    const graph_value square = state_like(o, p, "square", BERYL_TYPE_F32),
                      v = graph_add(g, square, graph_square(g, d)),
                      root = graph_add_scalar(g, graph_sqrt(g, v), o->how.eps),
                      next = moved(o, p, graph_div(g, d, root));
    set(o, square, v);
    return set(o, p, next);
}

/* false: refused. */
static bool may_step(beryl_graph *g, uint32_t n, const beryl_value *parameters,
                     const beryl_value *gradients, beryl_value rate, const beryl_optimiser *how) {
    static const char what[] = "optimise";
    if (!graph_api_may_build(g)) return false;
    if (!n || !parameters || !gradients || !how || (unsigned)how->kind > BERYL_ADAGRAD)
        return graph_api_refuse(g, BERYL_MISUSE, "no parameters, gradients or optimiser", what);
    if (!(how->beta1 >= 0 && how->beta1 < 1 && how->beta2 >= 0 && how->beta2 < 1 && how->eps >= 0))
        return graph_api_refuse(g, BERYL_MISUSE, "beta1 and beta2 from 0 to below 1, eps from 0",
                                what);
    if (!graph_has(g->g, rate, what)) return false;
    const graph_tensor *t = graph_tensor_at(g->g, rate);
    if (t->type != TYPE_F32 || graph_element_bound(t) != 1)
        return graph_api_refuse(g, BERYL_MISUSE, "the rate is one F32", what);
    if (how->when) {
        if (!graph_has(g->g, how->when, what)) return false;
        t = graph_tensor_at(g->g, how->when);
        if (t->type != TYPE_BOOL || t->rank != 1 || graph_element_bound(t) != 1)
            return graph_api_refuse(g, BERYL_MISUSE, "`when` is BOOL [1]", what);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!graph_has(g->g, parameters[i], what) || !graph_has(g->g, gradients[i], what))
            return false;
        t = graph_tensor_at(g->g, parameters[i]);
        if (t->role != ROLE_STORED || t->base || t->type != TYPE_F32 ||
            !graph_same_shape(t, graph_tensor_at(g->g, gradients[i])))
            return graph_api_refuse(
                g, BERYL_MISUSE, "a parameter is a state, F32, its gradient of its shape", t->name);
    }
    return true;
}

/* coded: what its moments are rounded by; most 0: they are F32. */
static void optimise(beryl_graph *g, uint32_t n, const beryl_value *parameters,
                     const beryl_value *gradients, beryl_value rate, const beryl_optimiser *how,
                     const optimiser *coded, beryl_value *updated) {
    static const struct {
        optimiser_step *step;
        float beta2, eps;
        bool counts, decays; /* it decays parameters itself */
    } kinds[] = {
        [BERYL_SGD] = {step_sgd, 0.999f, 1e-8f, false, false},
        [BERYL_ADAM] = {step_adam, 0.999f, 1e-8f, true, false},
        [BERYL_ADAMW] = {step_adam, 0.999f, 1e-8f, true, true},
        [BERYL_RMSPROP] = {step_rmsprop, 0.99f, 1e-8f, false, false},
        [BERYL_LION] = {step_lion, 0.99f, 1e-8f, false, true},
        [BERYL_ADAGRAD] = {step_adagrad, 0.999f, 1e-10f, false, false},
    };
    beryl_optimiser h = how ? *how : (beryl_optimiser){0};
    const uint32_t kind = (unsigned)h.kind > BERYL_ADAGRAD ? 0 : h.kind;
    if (h.beta1 == 0) h.beta1 = 0.9f;
    if (h.beta2 == 0) h.beta2 = kinds[kind].beta2;
    if (h.eps == 0) h.eps = kinds[kind].eps;
    if (!may_step(g, n, parameters, gradients, rate, how ? &h : NULL)) return;
    optimiser o = *coded;
    o.owner = g;
    o.g = g->g;
    o.how = h;
    o.rate = graph_reshape(g->g, rate, 1, &(graph_dim){1, 0});
    if (kinds[kind].counts) count_steps(&o);
    for (uint32_t i = 0; i < n && g->g->error.code == BERYL_OK; i++) {
        const graph_value p = parameters[i];
        graph_value d = gradients[i];
        if (graph_tensor_at(g->g, d)->type != TYPE_F32) d = graph_cast(g->g, d, TYPE_F32, false);
        if (h.weight_decay != 0 && !kinds[kind].decays)
            d = graph_add(g->g, d, graph_scale(g->g, p, h.weight_decay));
        const graph_value v = (o.most > 0 ? step_coded : kinds[kind].step)(&o, p, d);
        if (updated) updated[i] = v;
    }
}

void beryl_graph_optimise(beryl_graph *g, uint32_t n, const beryl_value *parameters,
                          const beryl_value *gradients, beryl_value rate,
                          const beryl_optimiser *how, beryl_value *updated) {
    for (uint32_t i = 0; updated && i < n; i++) updated[i] = 0;
    optimise(g, n, parameters, gradients, rate, how, &(optimiser){.most = 0}, updated);
}

void beryl_graph_optimise_q8(beryl_graph *g, uint32_t n, const beryl_value *parameters,
                             const beryl_value *gradients, beryl_value rate,
                             const beryl_optimiser *how, float most, beryl_value key,
                             uint32_t stream, beryl_value *updated) {
    for (uint32_t i = 0; updated && i < n; i++) updated[i] = 0;
    if (!graph_api_may_build(g)) return;
    if (!how || (how->kind != BERYL_ADAM && how->kind != BERYL_ADAMW) || !(most > 0))
        graph_api_refuse(g, BERYL_MISUSE,
                         "moments in 8 bits are of ADAM and ADAMW, with a largest "
                         "gradient",
                         "optimise_q8");
    else if (graph_has(g->g, key, "optimise_q8"))
        optimise(g, n, parameters, gradients, rate, how,
                 &(optimiser){.most = most, .draw = {key, stream}}, updated);
}

/* ---- states ---------------------------------------------------------------------------------- */

uint64_t graph_api_state_bytes(const beryl_graph *g, beryl_value state) {
    const graph_tensor *t = graph_tensor_at(g->g, state);
    return base_type_row_bytes(t->type, graph_element_bound(t));
}

/* The state's place in the store; UINT32_MAX: not one, or of another size. */
static uint32_t state_of(const beryl_graph *g, beryl_value state, const void *data, size_t size,
                         const char *call, beryl_error *error) {
    const bool ready = g && g->stage == STAGE_READY;
    const graph_tensor *t = ready ? graph_tensor_at(g->g, state) : NULL;
    uint32_t index = UINT32_MAX;
    if (!ready) {
        base_fail(error, BERYL_MISUSE, "%s needs a compiled graph", call);
    } else if (!state || state >= g->g->tensors.count || t->role != ROLE_STORED ||
               !g->store.tensors.data[t->stored].is_state) {
        base_fail(error, BERYL_MISUSE, "value %u is no state of this graph", state);
    } else if (!data || size != graph_api_state_bytes(g, state)) {
        base_fail(error, BERYL_MISUSE, "state '%s' has %llu bytes, %zu were given", t->name,
                  (unsigned long long)graph_api_state_bytes(g, state), data ? size : 0);
    } else {
        index = t->stored;
    }
    return index;
}

enum { WORD = 4 };

static size_t piece(size_t size, size_t from) {
    return size - from < STORE_READ_MAX ? size - from : STORE_READ_MAX;
}

beryl_status beryl_graph_state_set(beryl_graph *g, beryl_value state, const void *data, size_t size,
                                   beryl_error *error) {
    const uint32_t index = state_of(g, state, data, size, "beryl_graph_state_set", error);
    beryl_status status = index == UINT32_MAX ? BERYL_MISUSE : BERYL_OK;
    for (size_t at = 0, n; status == BERYL_OK && at < size; at += n) {
        n = piece(size, at);
        if (n >= WORD) n -= n % WORD;
        uint32_t last = 0; /* a part of a word, which devices write whole */
        if (n < WORD) memcpy(&last, (const char *)data + at, n);
        status = store_state_write(&g->store, index, at,
                                   n < WORD ? (const char *)&last : (const char *)data + at,
                                   n < WORD ? WORD : n, error);
    }
    return status;
}

beryl_status beryl_graph_state_get(beryl_graph *g, beryl_value state, void *data, size_t size,
                                   beryl_error *error) {
    const uint32_t index = state_of(g, state, data, size, "beryl_graph_state_get", error);
    if (index == UINT32_MAX) return BERYL_MISUSE;
    beryl_status status = BERYL_OK;
    while (status == BERYL_OK && g->state_got < size) {
        const void *from = NULL;
        const size_t n = piece(size, g->state_got), whole = (n + WORD - 1) / WORD * WORD;
        if (!g->state_ticket)
            status =
                store_state_read(&g->store, index, g->state_got, whole, &g->state_ticket, error);
        if (status == BERYL_OK && g->device)
            status = device_wait(g->device, g->state_ticket, error);
        if (status == BERYL_OK || status == BERYL_PENDING)
            status = store_state_read_step(&g->store, index, g->state_got, g->state_ticket, &from,
                                           error);
        if (status == BERYL_PENDING) return status;
        if (status == BERYL_OK) memcpy((char *)data + g->state_got, from, n);
        if (g->device && g->state_ticket) device_fetch_drop(g->device, g->state_ticket);
        g->state_ticket = 0;
        g->state_got += n;
    }
    g->state_got = 0;
    return status;
}
