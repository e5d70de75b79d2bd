/* trial.c - one operation of a plan against the reference functions.
 *
 * The one idea: a trial's graph is a copy of the plan's graph, tensor ids and all, in which only
 * one node is left. What that node reads becomes an input, what it makes an output, so a fused
 * node and whatever its detail says stay as they are, and the reference side runs the inner
 * nodes instead. The device side reads the engine's own weights in their own shapes, so its
 * dispatches are the plan's, programs and all, and nothing is compiled for it; the reference side
 * computes only the first rows of each product, from as much of the file. Weights that the upload
 * has not come to have numbers of the trial's until it does. States are the trial's own. */
#include "engine/trial_inside.h"
#include "base/build.h"
#include "base/error.h"
#include "base/file.h"
#include "tile/matvec_fused.h"

#include <string.h>

enum { EXPERT_MAX = 16, TABLE_MAX = 256, RING_MAX = 4096 };
static const uint64_t CACHE_BYTES = 64 << 20; /* of one cache: longer ones are cut */

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* ---- what an operation is -------------------------------------------------------------------- */

static const graph_node *node_of(const trial_desc *d) {
    return &d->g->nodes.data[d->node];
}

/* Attention whose partial sums the next matvec joins gives no result of its own. NULL: not of
 * this kind. */
static const fused_attention *unfinished(const graph_node *node) {
    if (node->op != OP_FUSED || node->attr.fused.kind != FUSED_ATTENTION) return NULL;
    const fused_attention *a = node->attr.fused.detail;
    return a->merged_later ? a : NULL;
}

static const graph_node *finisher(const graph *g, const fused_attention *a) {
    for (size_t i = 0; i < g->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[i];
        if (node->dead || node->op != OP_FUSED || node->attr.fused.kind != FUSED_MATVEC) continue;
        const fused_matvec *m = node->attr.fused.detail;
        if (m->attention == a->partial) return node;
    }
    return NULL;
}

/* Does the node join what attention's pieces made? */
static bool finishes(const graph_node *node) {
    return node->op == OP_FUSED && node->attr.fused.kind == FUSED_MATVEC &&
           ((const fused_matvec *)node->attr.fused.detail)->attention;
}

/* That attention, where the trial of it has another node of the kind; NULL: the trial has this
 * one, or the node is none. With adapters there are two. */
static const graph_node *begun_by(const graph *g, const graph_node *node) {
    for (size_t i = 0; BUILD_HAS_ADAPTERS && finishes(node) && i < g->nodes.count; i++) {
        const graph_node *other = &g->nodes.data[i];
        const fused_attention *a = other->dead ? NULL : unfinished(other);
        if (a && a->partial == ((const fused_matvec *)node->attr.fused.detail)->attention)
            return finisher(g, a) == node ? NULL : other;
    }
    return NULL;
}

/* A joined product's result that the next one takes as int8 blocks; 0: not of this kind. */
static graph_value handed_by(const trial_desc *d, const graph_node *node) {
    return node->op == OP_FUSED && node->attr.fused.kind == FUSED_MATVEC
               ? tile_matvec_handed_on(d->g, d->store, &(lower_settings){.exact = d->exact}, node)
               : 0;
}

/* That next one; NULL: not of this kind. */
static const graph_node *taker(const trial_desc *d, const graph_node *node) {
    const graph_value handed = handed_by(d, node);
    for (size_t i = 0; handed && i < d->g->nodes.count; i++) {
        const graph_node *user = &d->g->nodes.data[i];
        for (uint32_t k = 0; !user->dead && k < user->n_in; k++)
            if (user->in[k] == handed) return user;
    }
    return NULL;
}

static bool is_taker(const trial_desc *d, const graph_node *node) {
    if (node->op != OP_LINEAR && (node->op != OP_FUSED || node->attr.fused.kind != FUSED_MATVEC))
        return false;
    for (uint32_t k = 0; k < node->n_in; k++) {
        const uint32_t maker = node->in[k] ? graph_tensor_at(d->g, node->in[k])->node : UINT32_MAX;
        if (maker != UINT32_MAX && taker(d, &d->g->nodes.data[maker]) == node) return true;
    }
    return false;
}

bool trial_find(trial_desc *d) {
    const graph_node *node = node_of(d);
    if (node->dead || is_taker(d, node)) return false;
    const graph_node *before = begun_by(d->g, node);
    if (finishes(node) && !before) return false;
    const fused_attention *a = unfinished(node);
    const graph_node *first = before ? before : node, *then = before ? node
                                                              : a    ? finisher(d->g, a)
                                                                     : taker(d, node);
    d->run[0] = (uint32_t)(first - d->g->nodes.data);
    d->n_run = then ? 2 : 1;
    if (then) d->run[1] = (uint32_t)(then - d->g->nodes.data);
    d->handed = then ? handed_by(d, first) : 0;
    return true;
}

/* What the device runs and what the reference runs. Counts beyond the arrays are cut off: see
 * too_much. */
static uint32_t run_of(const trial_desc *d, const graph_node *run[TRIAL_RUN_MAX]) {
    for (uint32_t r = 0; r < d->n_run; r++) run[r] = &d->g->nodes.data[d->run[r]];
    return d->n_run;
}

static uint32_t inner_count(const graph_node *run) {
    return run->op == OP_FUSED ? run->attr.fused.count : 1;
}

static uint32_t list_of(const trial_desc *d, const graph_node *list[LIST_MAX]) {
    const graph_node *run[TRIAL_RUN_MAX];
    uint32_t n_run = run_of(d, run), n = 0;
    for (uint32_t r = 0; r < n_run; r++)
        for (uint32_t i = 0; i < inner_count(run[r]) && n < LIST_MAX; i++)
            list[n++] =
                run[r]->op == OP_FUSED ? &d->g->inner.data[run[r]->attr.fused.first + i] : run[r];
    return n;
}

bool trial_program(const trial_desc *d, uint32_t i, device_program *out) {
    for (uint32_t r = 0; r < d->n_run; r++)
        for (uint32_t k = 0; graph_exec_node_program(d->exec, d->run[r], k, out); k++)
            if (i-- == 0) return true;
    return false;
}

bool trial_is_ready(const trial_desc *d) {
    const graph_node *list[LIST_MAX];
    const uint32_t n = store_is_uploading(d->store) ? list_of(d, list) : 0;
    bool ready = true;
    for (uint32_t i = 0; ready && i < n; i++)
        for (uint32_t k = 0; ready && k < list[i]->n_in; k++) {
            const graph_tensor *x = graph_tensor_at(d->g, graph_base_of(d->g, list[i]->in[k]));
            if (!list[i]->in[k] || x->role != ROLE_STORED) continue;
            const store_tensor *s = &d->store->tensors.data[x->stored];
            ready = s->is_state || (s->rank < 3 && store_is_ahead(d->store, x->stored));
        }
    return ready;
}

static bool is_weight_rows(const graph *g, const graph_node *node, uint32_t k) {
    const graph_tensor *t = graph_tensor_at(g, node->in[k]);
    return k == 1 && (node->op == OP_LINEAR || node->op == OP_LINEAR_ID) &&
           t->role == ROLE_STORED && !t->base;
}

static uint64_t mix(uint64_t hash, uint64_t value) {
    return base_hash(&value, sizeof value, hash);
}

static uint64_t tensor_key(const graph *g, graph_value v, uint64_t hash) {
    const graph_tensor *t = graph_tensor_at(g, v);
    hash = mix(hash, (uint64_t)t->type << 32 | (uint64_t)(t->role == ROLE_STORED) << 16 | t->rank);
    for (uint32_t i = 0; i < t->rank; i++) {
        hash = mix(mix(hash, (uint64_t)t->dim[i].size << 8 | t->dim[i].extent), t->stride[i]);
    }
    return mix(hash, t->offset ? 1 + t->offset % 16 : 0);
}

uint64_t trial_key(const trial_desc *d) {
    const graph_node *run[TRIAL_RUN_MAX], *list[LIST_MAX];
    const uint32_t n_run = run_of(d, run), n = list_of(d, list);
    uint64_t hash = mix(mix(d->decode, n_run), n);
    device_program program;
    for (uint32_t i = 0; trial_program(d, i, &program); i++) hash = mix(hash, program.id);
    for (uint32_t i = 0; i < n; i++) {
        hash = base_hash(&list[i]->attr, 2 * sizeof(uint32_t), mix(hash, list[i]->op));
        for (uint32_t k = 0; k < list[i]->n_in; k++) hash = tensor_key(d->g, list[i]->in[k], hash);
        for (uint32_t k = 0; k < list[i]->n_out; k++)
            hash = tensor_key(d->g, list[i]->out[k], hash);
    }
    return hash;
}

static void name_shapes(const graph *g, const graph_node *m, base_text *out) {
    const graph_tensor *a = graph_tensor_at(g, m->in[0]),
                       *b = graph_tensor_at(g, m->in[m->n_in > 1 ? 1 : 0]);
    if (m->op == OP_LINEAR || m->op == OP_LINEAR_ID) {
        base_text_print(out, " %s k=%u m=%u", base_type_name(b->type), b->dim[b->rank - 1].size,
                        b->dim[b->rank - 2].size);
    } else if (m->op == OP_ATTENTION) {
        base_text_print(out, " %s d=%u heads=%u/%u", base_type_name(b->type), a->dim[2].size,
                        a->dim[1].size, b->dim[2].size);
        if (m->attr.attention.window) base_text_print(out, " window=%u", m->attr.attention.window);
    }
}

void trial_name(const trial_desc *d, base_text *out) {
    const graph_node *node = node_of(d), *list[LIST_MAX];
    const graph *g = d->g;
    const uint32_t n = list_of(d, list);
    if (node->op == OP_FUSED) base_text_add(out, "fused ", 6);
    for (uint32_t i = 0; i < n; i++)
        base_text_print(out, "%s%s", i ? "+" : "", graph_op_name(list[i]->op));
    for (uint32_t i = 0; i < n; i++) name_shapes(g, list[i], out);
    const graph_tensor *a = graph_tensor_at(g, node->in[0]),
                       *x = graph_tensor_at(
                           g, node->in[(base_ops[node->op].facts & OP_IS_IN_PLACE) != 0]);
    if (n == 1 && node->op != OP_LINEAR && node->op != OP_LINEAR_ID && node->op != OP_ATTENTION) {
        base_text_print(out, " %s", base_type_name(a->type));
        for (uint32_t i = 1; i < x->rank; i++)
            base_text_print(out, "%s%u", i > 1 ? "x" : " d=", x->dim[i].size);
    }
    const graph_tensor *rows =
        base_ops[node->op].facts & OP_IS_IN_PLACE ? x : graph_tensor_at(g, node->out[0]);
    base_text_print(out, " rows=%u", rows->rank ? rows->dim[0].size : 1);
}

/* ---- what the node uses ---------------------------------------------------------------------- */

trial_used *trial_used_find(trial *t, graph_value v) {
    const graph_value base = graph_base_of(t->desc.g, v);
    for (uint32_t i = 0; i < t->n_used; i++)
        if (t->used[i].base == base) return &t->used[i];
    return NULL;
}

static bool is_made(const trial *t, graph_value base, uint32_t before) {
    for (uint32_t i = 0; i < before; i++)
        for (uint32_t k = 0; k < t->list[i]->n_out; k++)
            if (graph_base_of(t->desc.g, t->list[i]->out[k]) == base) return true;
    return false;
}

static number_kind kind_of(const graph_node *node, uint32_t k) {
    switch (base_ops[node->op].inputs[k]) {
    case 'l': return NUMBER_LOGIT;
    case 'I': return NUMBER_INDEX;
    case 's': return NUMBER_SLOT;
    case 'p': return NUMBER_POS;
    case 'c': return NUMBER_SETTINGS;
    default:
        if (base_ops[node->op].facts & OP_WANTS_UNIT) return NUMBER_UNIT;
        return graph_op_is_pointwise(node->op) ? NUMBER_WIDE : NUMBER_PLAIN;
    }
}

static beryl_status too_much(beryl_error *error) {
    return base_fail(error, BERYL_UNSUPPORTED,
                     "a fused operation with more tensors than the self-test can hold");
}

static beryl_status use_stored(trial *t, graph_value v, beryl_error *error) {
    if (trial_used_find(t, v)) return BERYL_OK;
    if (t->n_used == USED_MAX) return too_much(error);
    const graph_value base = graph_base_of(t->desc.g, v);
    const store_tensor *s = &t->desc.store->tensors.data[graph_tensor_at(t->desc.g, base)->stored];
    trial_used *u = &t->used[t->n_used++];
    *u = (trial_used){.base = base,
                      .from = graph_tensor_at(t->desc.g, base)->stored,
                      .rank = s->rank,
                      .type = s->type,
                      .is_state = s->is_state};
    memcpy(u->dim, s->dim, sizeof u->dim);
    return BERYL_OK;
}

static beryl_status use_input(trial *t, graph_value base, number_kind kind, uint32_t limit,
                              beryl_error *error) {
    for (uint32_t i = 0; i < t->n_input; i++) {
        if (t->inputs[i].v != base) continue;
        if (t->inputs[i].kind < kind) t->inputs[i].kind = kind, t->inputs[i].limit = limit;
        return BERYL_OK;
    }
    if (t->n_input == VALUE_MAX) return too_much(error);
    t->inputs[t->n_input++] = (trial_input){base, kind, limit};
    return BERYL_OK;
}

static beryl_status collect(trial *t, beryl_error *error) {
    const graph *g = t->desc.g;
    beryl_status status = t->n_list < LIST_MAX ? BERYL_OK : too_much(error);
    for (uint32_t r = 0; r < t->n_run; r++) {
        const fused_attention *a = unfinished(t->run[r]);
        for (uint32_t k = 0; k < t->run[r]->n_out; k++) {
            const graph_value v = t->run[r]->out[k];
            const bool inside = (a && v == a->out) || v == t->desc.handed;
            if (graph_tensor_at(g, v)->base || graph_tensor_at(g, v)->role == ROLE_STORED || inside)
                continue;
            if (t->n_output == GRAPH_OUT_MAX) return too_much(error);
            t->outputs[t->n_output++] = v;
        }
    }
    for (uint32_t i = 0; status == BERYL_OK && i < t->n_list; i++) {
        const graph_node *node = t->list[i];
        for (uint32_t k = 0; status == BERYL_OK && k < node->n_in; k++) {
            if (!node->in[k]) continue;
            const graph_value base = graph_base_of(g, node->in[k]);
            if (graph_tensor_at(g, base)->role == ROLE_STORED) {
                status = use_stored(t, base, error);
            } else if (!is_made(t, base, i)) {
                const graph_tensor *table =
                    graph_tensor_at(g, node->in[node->op == OP_LINEAR_ID ? 1 : 0]);
                number_kind kind = kind_of(node, k);
                /* what is rounded to int8 later has no outliers */
                if (kind == NUMBER_WIDE && t->n_list > 1) kind = NUMBER_PLAIN;
                status = use_input(t, base, kind,
                                   kind == NUMBER_LOGIT ? UINT32_MAX
                                   : table->rank        ? table->dim[0].size
                                                        : 1,
                                   error);
            }
        }
        if (status != BERYL_OK) break;
        if (base_ops[node->op].facts & OP_IS_IN_PLACE)
            trial_used_find(t, node->in[0])->written = true;
        if (node->op == OP_KV_WRITE) trial_used_find(t, node->in[0])->is_cache = true;
        for (uint32_t k = 1; node->op == OP_ATTENTION && k < 3; k++)
            trial_used_find(t, node->in[k])->is_cache = true;
    }
    return status;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static uint64_t cache_row_bytes(const trial_used *u) {
    return base_type_row_bytes(u->type, u->dim[3]) * u->dim[2];
}

/* Rows of the run, extents, positions, caches. */
static void choose_sizes(trial *t) {
    const graph *g = t->desc.g;
    uint32_t window = 0, most = 0;
    bool attends = false;
    const double fits_work = t->limits.work / (trial_work(&t->desc, &t->limits) + 1);
    t->n = t->limits.rows > 2 && fits_work < t->limits.rows
               ? (fits_work > 2 ? (uint32_t)fits_work : 2)
               : t->limits.rows;
    for (uint32_t i = 0; i < t->n_list; i++) {
        const graph_node *node = t->list[i];
        if (node->op == OP_SAMPLE || node->op == OP_ARGMAX || node->op == OP_TOPK)
            t->n = least(t->n, 4);
        if (node->op != OP_ATTENTION) continue;
        attends = true;
        window = node->attr.attention.window;
        most = node->attr.attention.most; /* keys of a row, as the node promises */
    }
    for (uint32_t i = 0; i < t->n_input; i++)
        if (t->inputs[i].kind == NUMBER_POS)
            t->n = least(t->n, graph_tensor_at(g, t->inputs[i].v)->dim[0].size);
    for (uint32_t i = 0; i < t->n_used; i++)
        if (t->used[i].is_cache)
            t->n = least(t->n, t->desc.decode ? t->used[i].dim[0] : t->used[i].dim[1]);
    for (uint32_t i = 1; i <= g->n_extent; i++) t->extents[i] = least(g->extents[i].bound, t->n);
    graph_extent_values(g, t->extents, t->extents, NULL); /* the given ones are within bounds */
    uint32_t n_row = 0;
    for (uint32_t i = 0; i < t->n_used; i++) {
        trial_used *u = &t->used[i];
        if (!u->is_cache) continue;
        const uint32_t slots = t->desc.decode ? t->n : 2;
        const bool is_long = cache_row_bytes(u) * u->dim[1] * u->dim[0] > CACHE_BYTES;
        if (is_long && u->dim[0] > slots) u->dim[0] = slots;
        const uint64_t fits = CACHE_BYTES / (cache_row_bytes(u) * u->dim[0]);
        const uint32_t needed = t->limits.reach + t->n + (window ? window : 0);
        t->is_cut |= is_long;
        if (u->dim[1] > fits) u->dim[1] = least(u->dim[1], fits > needed ? (uint32_t)fits : needed);
        n_row = u->dim[1];
        t->slot = t->desc.decode ? 0 : u->dim[0] - 1;
    }
    t->first = 5;
    if (n_row && n_row <= RING_MAX && !attends)
        t->first = n_row - 1; /* the second row begins the ring anew */
    if (!attends) return;
    t->first = least(window ? window + 40 : t->limits.reach, t->limits.reach);
    if (window && window + t->n < n_row && n_row <= RING_MAX && t->limits.reach >= window) {
        t->first = n_row + 3; /* the run lies behind the ring's seam */
    } else if (t->first + t->n > n_row) {
        t->first = n_row - t->n;
    }
    if (most && (!window || window > most)) t->first = least(t->first, most - least(most, t->n));
    t->fill_from = window && t->first > window ? t->first - window : 0;
    t->fill_total = (t->first + t->n - t->fill_from) * (t->desc.decode ? t->n : 1);
}

/* May the reference compute fewer rows of the i-th inner node? Not where another tensor goes with
 * each row, where rows are in halves, or where the next product wants them all. */
static bool may_cut(const graph *g, const graph_node *const *run, uint32_t n_run, uint32_t i) {
    const uint32_t at = n_run > 1 && i >= inner_count(run[0]);
    if (run[at]->op != OP_FUSED) return true;
    const uint32_t kind = run[at]->attr.fused.kind;
    if (kind == FUSED_EXPERTS) return false;
    if (kind != FUSED_MATVEC) return true;
    if (!at && n_run > 1) return false;
    bool product = false;
    for (uint32_t k = 0; k < run[at]->attr.fused.count; k++) {
        const graph_node *node = &g->inner.data[run[at]->attr.fused.first + k];
        for (uint32_t in = 0; product && node->op != OP_LINEAR && in < node->n_in; in++) {
            bool made = false;
            for (uint32_t m = 0; m < k; m++)
                made |= g->inner.data[run[at]->attr.fused.first + m].out[0] == node->in[in];
            if (!made) return false;
        }
        product |= node->op == OP_LINEAR;
    }
    return true;
}

static bool has_view(const trial *t, graph_value base) {
    const graph_tensor *whole = graph_tensor_at(t->desc.g, base);
    for (uint32_t i = 0; i < t->n_list; i++)
        for (uint32_t k = 0; k < t->list[i]->n_in; k++) {
            const graph_value v = t->list[i]->in[k];
            if (!v || graph_base_of(t->desc.g, v) != base) continue;
            const graph_tensor *x = graph_tensor_at(t->desc.g, v);
            bool same = x->rank == whole->rank && x->offset == 0;
            for (uint32_t d = 0; same && d < x->rank; d++)
                same = x->dim[d].size == whole->dim[d].size && x->stride[d] == whole->stride[d];
            if (!same) return true;
        }
    return false;
}

/* Fewer rows of weights on the reference side, fewer experts and rows of tables to choose from
 * on both. */
static void cut_weights(trial *t) {
    for (uint32_t i = 0; i < t->n_list; i++) {
        const graph_node *node = t->list[i];
        const bool rows = may_cut(t->desc.g, t->run, t->n_run, i);
        const bool chosen = node->op == OP_LINEAR_ID || node->op == OP_GATHER_ROWS;
        const uint32_t at = node->op == OP_GATHER_ROWS ? 0 : 1;
        trial_used *u = is_weight_rows(t->desc.g, node, 1) || node->op == OP_GATHER_ROWS
                            ? trial_used_find(t, node->in[at])
                            : NULL;
        if (!u || u->is_state || u->rank < 2 || has_view(t, u->base)) continue;
        if (node->op != OP_GATHER_ROWS && rows)
            u->dim[u->rank - 2] = least(u->dim[u->rank - 2], t->limits.out);
        trial_input *index = NULL;
        for (uint32_t k = 0; chosen && k < t->n_input; k++)
            if (t->inputs[k].kind == NUMBER_INDEX ||
                (node->op == OP_LINEAR_ID && t->inputs[k].kind == NUMBER_LOGIT))
                index = &t->inputs[k];
        if (!index) continue; /* made by the trial itself: any of them */
        u->dim[0] = least(u->dim[0], node->op == OP_LINEAR_ID ? EXPERT_MAX : TABLE_MAX);
        index->limit = least(index->limit, u->dim[0]);
    }
}

/* Where the run does not begin a cache anew, nothing lies behind it. */
static void cut_caches(trial *t) {
    for (uint32_t i = 0; i < t->n_used; i++) {
        trial_used *u = &t->used[i];
        if (!u->is_cache) continue;
        u->rows = has_view(t, u->base) ? u->dim[1] : least(u->dim[1], t->first + t->n);
    }
}

double trial_work(const trial_desc *d, const trial_limits *limits) {
    const graph_node *run[TRIAL_RUN_MAX], *list[LIST_MAX];
    const uint32_t n_run = run_of(d, run), n = list_of(d, list);
    double work = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (list[i]->op != OP_LINEAR && list[i]->op != OP_LINEAR_ID) continue;
        const graph_tensor *w = graph_tensor_at(d->g, list[i]->in[1]);
        const uint32_t m = w->dim[w->rank - 2].size,
                       chosen = list[i]->op == OP_LINEAR_ID
                                    ? graph_tensor_at(d->g, list[i]->in[2])->dim[1].size
                                    : 1;
        work += (double)(may_cut(d->g, run, n_run, i) && is_weight_rows(d->g, list[i], 1)
                             ? least(m, limits->out)
                             : m) *
                w->dim[w->rank - 1].size * chosen;
    }
    return work;
}

/* ---- one side -------------------------------------------------------------------------------- */

static void set_strides(graph_tensor *t) {
    uint64_t stride = 1;
    for (uint32_t i = t->rank; i-- > 0;) {
        t->stride[i] = stride > UINT32_MAX ? 0 : (uint32_t)stride;
        stride *= t->dim[i].size;
    }
}

/* Stored tensors are those of the side's store, with its sizes; views of the same rank go along. */
static void move_stored(const trial *t, graph *g, bool reference) {
    for (graph_value v = 1; v < g->tensors.count; v++) {
        graph_tensor *x = &g->tensors.data[v];
        x->node = UINT32_MAX;
        if (x->role != ROLE_STORED) {
            x->role = ROLE_INTERMEDIATE;
            continue;
        }
        const trial_used *u = NULL;
        const graph_value base = graph_base_of(g, v);
        for (uint32_t i = 0; i < t->n_used; i++)
            if (t->used[i].base == base) u = &t->used[i];
        if (!u) {
            x->role = ROLE_INTERMEDIATE;
            continue;
        }
        x->stored = u->at;
        if (!u->is_state && !reference) continue;
        const store_tensor *from = &t->desc.store->tensors.data[u->from];
        bool same = x->rank == u->rank && x->offset == 0;
        for (uint32_t i = 0; same && i < u->rank; i++) same = x->dim[i].size == from->dim[i];
        if (!same) continue;
        for (uint32_t i = 0; i < u->rank; i++) x->dim[i].size = u->dim[i];
        if (u->is_cache && reference) x->dim[1].size = u->rows;
        set_strides(x);
    }
}

static bool copy_tables(const graph *from, graph *g) {
    g->tensors.count = 0;
    if (!base_vec_reserve(g->heap, &g->tensors, from->tensors.count) ||
        !base_vec_reserve(g->heap, &g->inner, from->inner.count))
        return false;
    memcpy(g->tensors.data, from->tensors.data, from->tensors.count * sizeof *g->tensors.data);
    g->tensors.count = from->tensors.count;
    if (from->inner.count)
        memcpy(g->inner.data, from->inner.data, from->inner.count * sizeof *g->inner.data);
    g->inner.count = from->inner.count;
    memcpy(g->extents, from->extents, sizeof g->extents);
    g->n_extent = from->n_extent;
    return true;
}

/* As its inputs are, broadcast against each other: of those that are not 1 the one that was cut. */
static void cut_pointwise(const graph *g, const graph_node *node, graph_tensor *out) {
    for (uint32_t i = 1; i <= out->rank; i++) {
        uint32_t *size = &out->dim[out->rank - i].size;
        *size = 1;
        for (uint32_t k = 0; k < node->n_in; k++) {
            const graph_tensor *x = graph_tensor_at(g, node->in[k]);
            const uint32_t own = i <= x->rank ? x->dim[x->rank - i].size : 1;
            if (own > 1 && (*size == 1 || own < *size)) *size = own;
        }
    }
}

/* Results of cut weights are shorter, and what is made of them. */
static void cut_results(const trial *t, graph *g) {
    for (uint32_t i = 0; i < t->n_list; i++) {
        const graph_node *node = t->list[i];
        graph_tensor *out = &g->tensors.data[node->out[0]];
        if (is_weight_rows(t->desc.g, node, 1)) {
            const graph_tensor *w = graph_tensor_at(g, node->in[1]);
            out->dim[out->rank - 1].size = w->dim[w->rank - 2].size;
        } else if (t->n_list > 1 && graph_op_is_pointwise(node->op)) {
            cut_pointwise(g, node, out);
        } else {
            continue;
        }
        set_strides(out);
    }
}

/* The reference has memory for the rows of the run alone: a plan's bound may be a hundred times as
 * many. No stride depends on the leading axis. */
static void cut_rows(const trial *t, graph *g) {
    for (graph_value v = 1; v < g->tensors.count; v++) {
        graph_dim *rows = &g->tensors.data[v].dim[0];
        if (g->tensors.data[v].rank && rows->extent) rows->size = t->extents[rows->extent];
    }
}

static beryl_status make_graph(trial *t, trial_side *s, bool reference, beryl_error *error) {
    graph *g = s->g = graph_open(t->heap);
    if (!g || !copy_tables(t->desc.g, g)) return base_no_memory(error);
    move_stored(t, g, reference);
    const uint32_t n = reference ? t->n_list : t->n_run;
    for (uint32_t i = 0; i < n; i++) {
        graph_node *copy = base_vec_add(t->heap, &g->nodes);
        if (!copy) return base_no_memory(error);
        *copy = reference ? *t->list[i] : *t->run[i];
        copy->dead = false;
        for (uint32_t k = 0; k < copy->n_out; k++) g->tensors.data[copy->out[k]].node = i;
    }
    for (uint32_t i = 0; i < t->n_input; i++) g->tensors.data[t->inputs[i].v].role = ROLE_INPUT;
    for (uint32_t i = 0; i < t->n_output; i++) g->tensors.data[t->outputs[i]].role = ROLE_OUTPUT;
    if (reference) cut_results(t, g), cut_rows(t, g);
    return BERYL_OK;
}

/* Rows of the caches that attention will see: a graph of the reference side that only writes. */
static beryl_status make_fill(trial *t, beryl_error *error) {
    if (!t->fill_total) return BERYL_OK;
    trial_side *s = &t->sides[1];
    graph_value caches[2] = {0, 0};
    for (uint32_t i = 0; i < t->n_list; i++)
        if (t->list[i]->op == OP_ATTENTION)
            caches[0] = t->list[i]->in[1], caches[1] = t->list[i]->in[2];
    graph *g = t->fill = graph_open(t->heap);
    if (!g) return base_no_memory(error);
    const graph_dim n = {FILL_ROWS, graph_extent_add(g, "n", FILL_ROWS)};
    t->fill_slot = graph_input(g, "slot", TYPE_I32, 1, &n);
    t->fill_pos = graph_input(g, "pos", TYPE_I32, 1, &n);
    for (int i = 0; i < 2; i++) {
        const trial_used *u = trial_used_find(t, caches[i]);
        if (i && graph_base_of(t->desc.g, caches[0]) == graph_base_of(t->desc.g, caches[1])) break;
        t->fill_x[i] =
            graph_input(g, "x", TYPE_F32, 3, (graph_dim[]){n, {u->dim[2], 0}, {u->dim[3], 0}});
        graph_kv_write(g, graph_stored(g, &s->store, u->at), t->fill_x[i], t->fill_slot,
                       t->fill_pos);
    }
    return graph_exec_open(g, &s->store, NULL, &t->fill_exec, error);
}

/* The plan's weights, buffers and programs in the store of the device side, after its own
 * states. */
static beryl_status borrow(trial *t, graph_store *s, beryl_error *error) {
    const graph_store *from = t->desc.store;
    const uint32_t own = (uint32_t)s->buffers.count;
    t->n_own = own;
    t->n_program = from->programs.count;
    if (!base_vec_reserve(t->heap, &s->programs, from->programs.count) ||
        !base_vec_reserve(t->heap, &s->buffers, from->buffers.count) ||
        !base_vec_reserve(t->heap, &s->tensors, t->n_used))
        return base_no_memory(error);
    if (from->programs.count)
        memcpy(s->programs.data, from->programs.data,
               from->programs.count * sizeof *from->programs.data);
    s->programs.count = from->programs.count;
    if (from->buffers.count)
        memcpy(s->buffers.data + own, from->buffers.data,
               from->buffers.count * sizeof *from->buffers.data);
    s->buffers.count += from->buffers.count;
    for (uint32_t i = 0; i < t->n_used; i++) {
        trial_used *u = &t->used[i];
        if (u->is_state) continue;
        u->at = (uint32_t)s->tensors.count;
        store_tensor *w = &s->tensors.data[s->tensors.count++];
        *w = from->tensors.data[u->from];
        for (uint32_t k = 0; k < w->n_shard; k++) w->shard[k].buffer += own;
    }
    return BERYL_OK;
}

/* Both sides number their tensors alike: states, then weights, in the order of `used`. */
static beryl_status make_store(trial *t, bool reference, beryl_error *error) {
    graph_store *s = &t->sides[reference].store;
    beryl_status status = store_init(s, t->heap, reference ? NULL : t->e->device,
                                     t->desc.store->sources, t->desc.store->n_source, error);
    if (!reference) {
        s->tuned = t->desc.store->tuned, s->n_tuned = t->desc.store->n_tuned;
        s->schedules = t->desc.store->schedules;
    }
    for (uint32_t i = 0; status == BERYL_OK && i < t->n_used; i++) {
        trial_used *u = &t->used[i];
        uint32_t dim[STORE_RANK_MAX];
        if (!u->is_state) continue;
        memcpy(dim, u->dim, sizeof dim);
        if (u->is_cache && reference) dim[1] = u->rows;
        u->at = store_add_state(s, "trial", u->type, u->rank, dim, 1);
        if (u->at == UINT32_MAX) status = base_no_memory(error);
    }
    for (uint32_t i = 0; reference && status == BERYL_OK && i < t->n_used; i++) {
        trial_used *u = &t->used[i];
        if (u->is_state) continue;
        const store_tensor *w = &t->desc.store->tensors.data[u->from];
        u->at = store_add_weight(s, "trial", u->type, u->rank, u->dim, 0, w->file, w->file_offset,
                                 false);
        if (u->at == UINT32_MAX) status = base_no_memory(error);
        else if (u->rank == 3) s->tensors.data[u->at].file_step = w->file_bytes / w->dim[0];
    }
    if (status == BERYL_OK) status = store_layout(s, 0, error);
    if (status == BERYL_OK) status = store_make(s, error);
    return status == BERYL_OK && !reference ? borrow(t, s, error) : status;
}

static beryl_status make_side(trial *t, bool reference, beryl_error *error) {
    trial_side *s = &t->sides[reference];
    const graph_exec_options options = {
        .exact = t->e->options.precision == BERYL_PRECISION_EXACT, .unfused = true, .placed = true};
    beryl_status status = make_store(t, reference, error);
    if (status == BERYL_OK) status = make_graph(t, s, reference, error);
    return status == BERYL_OK ? graph_exec_open(s->g, &s->store, &options, &s->exec, error)
                              : status;
}

/* Does a node before `node` run the program? */
static bool runs_before(const graph_exec *exec, uint32_t node, device_program program) {
    device_program p;
    for (uint32_t n = 0; n < node; n++)
        for (uint32_t i = 0; graph_exec_node_program(exec, n, i, &p); i++)
            if (p.id == program.id) return true;
    return false;
}

/* A trial that ran others would say nothing about the plan's programs. Steps that a node shares
 * with one before it (lower_step_share) are that one's. Sizes of a cache may stand in their texts:
 * of one that is cut they are others, by the same generator. */
static beryl_status check_programs(const trial *t, beryl_error *error) {
    for (uint32_t r = 0; r < t->n_run && !t->is_cut; r++) {
        const uint32_t node = t->desc.run[r];
        device_program planned, tried;
        for (uint32_t i = 0, k = 0;;) {
            const bool is_planned = graph_exec_node_program(t->desc.exec, node, i, &planned),
                       is_tried = graph_exec_node_program(t->sides[0].exec, r, k, &tried);
            if (!is_planned && !is_tried) break;
            if (is_planned && is_tried && planned.id == tried.id) i++, k++;
            else if (!BUILD_IS_SMALL && is_tried && runs_before(t->desc.exec, node, tried)) k++;
            else if (!BUILD_IS_SMALL && is_planned && runs_before(t->sides[0].exec, r, planned))
                i++;
            else
                return base_fail(error, BERYL_UNSUPPORTED,
                                 "its trial would run another program than the plan");
        }
    }
    return BERYL_OK;
}

static void drop_side(trial *t, trial_side *s) {
    if (s->ticket && s->store.device) device_wait(s->store.device, s->ticket, NULL);
    graph_exec_close(s->exec);
    graph_close(s->g);
    if (s->store.device) { /* what was borrowed stays */
        for (size_t i = t->n_program; i < s->store.programs.count; i++)
            device_program_drop(s->store.device, s->store.programs.data[i].id);
        s->store.programs.count = 0;
        if (s->store.buffers.count > t->n_own) s->store.buffers.count = t->n_own;
    }
    store_fini(&s->store);
    *s = (trial_side){0};
}

beryl_status trial_open(beryl_engine *e, const trial_desc *desc, const trial_limits *limits,
                        trial_blocks *blocks, trial **out, beryl_error *error) {
    *out = NULL;
    trial *t = base_heap_take(&e->heap, sizeof *t);
    if (!t) return base_no_memory(error);
    *t = (trial){.e = e,
                 .heap = &e->heap,
                 .desc = *desc,
                 .limits = *limits,
                 .blocks = blocks,
                 .random = {trial_key(desc)}};
    t->n_run = run_of(desc, t->run);
    t->n_list = list_of(desc, t->list);
    beryl_status status = collect(t, error);
    if (status == BERYL_OK) {
        choose_sizes(t);
        cut_weights(t);
        cut_caches(t);
        status = make_side(t, false, error);
    }
    if (status == BERYL_OK) status = check_programs(t, error);
    if (status == BERYL_OK) status = make_side(t, true, error);
    if (status == BERYL_OK) status = make_fill(t, error);
    if (status != BERYL_OK) {
        trial_close(t);
        return status;
    }
    *out = t;
    return BERYL_OK;
}

void trial_close(trial *t) {
    if (!t) return;
    graph_exec_close(t->fill_exec);
    graph_close(t->fill);
    drop_side(t, &t->sides[0]);
    drop_side(t, &t->sides[1]);
    base_heap_give(t->heap, t, sizeof *t);
}
