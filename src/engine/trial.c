/* trial.c - one operation of a plan against the reference functions, with numbers made for it.
 *
 * The one idea: a trial's graph is a copy of the plan's graph, tensor ids and all, in which only one node is left. What
 * that node reads becomes an input, what it makes an output, so a fused node and whatever its detail says stay as they
 * are, and the reference side runs the inner nodes instead. Stored tensors move to a small store of the trial's own,
 * weights cut to a few rows unless they are fused; programs are the engine's, so what is tested is what runs. */
#include "engine/trial_inside.h"
#include "base/error.h"
#include "base/file.h"
#include "graph/fused.h"

#include <string.h>

enum { EXPERT_MOST = 16, TABLE_MOST = 4096, RING_MOST = 4096 };
static const uint64_t CACHE_BYTES = 64 << 20;  /* of one cache: longer ones are cut */
static const double WORK_MOST = 5e8;           /* products that the reference side may take for one trial */

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static beryl_status no_memory(beryl_error *error) {
    return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
}

/* ---- what an operation is ------------------------------------------------------------------------------------ */

static const graph_node *node_of(const trial_desc *d) {
    return &d->g->nodes.data[d->node];
}

/* Attention whose partial sums the next matvec joins gives no result of its own. NULL: not of this kind. */
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
        if (m->from == FUSED_X_MERGE && m->attention == a->partial) return node;
    }
    return NULL;
}

bool trial_wanted(const trial_desc *d) {
    const graph_node *node = node_of(d);
    if (node->dead) return false;
    return node->op != OP_FUSED || node->attr.fused.kind != FUSED_MATVEC || ((const fused_matvec *)node->attr.fused.detail)->from != FUSED_X_MERGE;
}

/* What the device runs and what the reference runs. Counts beyond the arrays are cut off: see too_much. */
static uint32_t run_of(const trial_desc *d, const graph_node *run[RUN_MAX]) {
    const fused_attention *a = unfinished(run[0] = node_of(d));
    return a && (run[1] = finisher(d->g, a)) != NULL ? 2 : 1;
}

static uint32_t list_of(const trial_desc *d, const graph_node *list[LIST_MAX]) {
    const graph_node *run[RUN_MAX];
    uint32_t n_run = run_of(d, run), n = 0;
    for (uint32_t r = 0; r < n_run; r++) {
        const bool fused = run[r]->op == OP_FUSED;
        const uint32_t count = fused ? run[r]->attr.fused.count : 1;
        for (uint32_t i = 0; i < count && n < LIST_MAX; i++) list[n++] = fused ? &d->g->inner.data[run[r]->attr.fused.first + i] : run[r];
    }
    return n;
}

static bool is_weight_rows(const graph *g, const graph_node *node, uint32_t k) {
    const graph_tensor *t = graph_tensor_at(g, node->in[k]);
    return k == 1 && (node->op == OP_MATMUL || node->op == OP_MATMUL_ID) && t->role == ROLE_STORED && !t->base;
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
    const graph_node *run[RUN_MAX], *list[LIST_MAX];
    const uint32_t n_run = run_of(d, run), n = list_of(d, list);
    uint64_t hash = mix(mix(d->decode, n_run), n);
    for (uint32_t i = 0; i < n; i++) {
        hash = base_hash(&list[i]->attr, 2 * sizeof(uint32_t), mix(hash, list[i]->op));
        for (uint32_t k = 0; k < list[i]->n_in; k++) hash = tensor_key(d->g, list[i]->in[k], hash);
        for (uint32_t k = 0; k < list[i]->n_out; k++) hash = tensor_key(d->g, list[i]->out[k], hash);
    }
    return hash;
}

static void name_shapes(const graph *g, const graph_node *m, base_text *out) {
    const graph_tensor *a = graph_tensor_at(g, m->in[0]), *b = graph_tensor_at(g, m->in[m->n_in > 1 ? 1 : 0]);
    if (m->op == OP_MATMUL || m->op == OP_MATMUL_ID) {
        base_text_print(out, " %s k=%u m=%u", base_type_name(b->type), b->dim[b->rank - 1].size, b->dim[b->rank - 2].size);
    } else if (m->op == OP_ATTENTION) {
        base_text_print(out, " %s d=%u heads=%u/%u", base_type_name(b->type), a->dim[2].size, a->dim[1].size, b->dim[2].size);
        if (m->attr.attention.window) base_text_print(out, " window=%u", m->attr.attention.window);
    }
}

void trial_name(const trial_desc *d, base_text *out) {
    const graph_node *node = node_of(d), *list[LIST_MAX];
    const graph *g = d->g;
    const uint32_t n = list_of(d, list);
    if (node->op == OP_FUSED) base_text_add(out, "fused ", 6);
    for (uint32_t i = 0; i < n; i++) base_text_print(out, "%s%s", i ? "+" : "", graph_op_name(list[i]->op));
    for (uint32_t i = 0; i < n; i++) name_shapes(g, list[i], out);
    const graph_tensor *a = graph_tensor_at(g, node->in[0]), *x = graph_tensor_at(g, node->in[node->op == OP_SET_ROWS || node->op == OP_KV_WRITE]);
    if (n == 1 && node->op != OP_MATMUL && node->op != OP_MATMUL_ID && node->op != OP_ATTENTION) {
        base_text_print(out, " %s", base_type_name(a->type));
        for (uint32_t i = 1; i < x->rank; i++) base_text_print(out, "%s%u", i > 1 ? "x" : " d=", x->dim[i].size);
    }
    const graph_tensor *rows = node->op == OP_SET_ROWS || node->op == OP_KV_WRITE ? x : graph_tensor_at(g, node->out[0]);
    base_text_print(out, " rows=%u", rows->rank ? rows->dim[0].size : 1);
}

/* ---- what the node uses ------------------------------------------------------------------------------------------ */

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
    switch (node->op) {
    case OP_GATHER_ROWS: return k == 1 ? NUMBER_INDEX : NUMBER_PLAIN;
    case OP_SET_ROWS:
    case OP_MATMUL_ID: return k == 2 ? NUMBER_INDEX : NUMBER_PLAIN;
    case OP_KV_WRITE: return k == 2 ? NUMBER_SLOT : k == 3 ? NUMBER_POS : NUMBER_PLAIN;
    case OP_ATTENTION: return k == 3 ? NUMBER_SLOT : k == 4 ? NUMBER_POS : NUMBER_PLAIN;
    case OP_SAMPLE: return k == 1 ? NUMBER_SETTINGS : NUMBER_LOGIT;
    case OP_ARGMAX:
    case OP_TOPK:
    case OP_SOFTMAX: return NUMBER_LOGIT;
    case OP_ADD:
    case OP_MUL:
    case OP_SCALE:
    case OP_GELU_TANH:
    case OP_GEGLU:
    case OP_SOFTCAP: return NUMBER_WIDE;
    case OP_COPY:
    case OP_RMS_NORM:
    case OP_WEIGHTED_SUM:
    case OP_MATMUL:
    case OP_ROPE:
    case OP_FUSED:
    case OP_COUNT: break;
    }
    return NUMBER_PLAIN;
}

static beryl_status too_much(beryl_error *error) {
    return base_fail(error, BERYL_UNSUPPORTED, "a fused operation with more tensors than the self-test can hold");
}

static beryl_status use_stored(trial *t, graph_value v, beryl_error *error) {
    if (trial_used_find(t, v)) return BERYL_OK;
    if (t->n_used == USED_MAX) return too_much(error);
    const graph_value base = graph_base_of(t->desc.g, v);
    const store_tensor *s = &t->e->store.tensors.data[graph_tensor_at(t->desc.g, base)->stored];
    trial_used *u = &t->used[t->n_used++];
    *u = (trial_used){.base = base, .from = graph_tensor_at(t->desc.g, base)->stored, .rank = s->rank, .type = s->type, .is_state = s->is_state};
    memcpy(u->dim, s->dim, sizeof u->dim);
    return BERYL_OK;
}

static beryl_status use_input(trial *t, graph_value base, number_kind kind, uint32_t limit, beryl_error *error) {
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
            if (graph_tensor_at(g, v)->base || graph_tensor_at(g, v)->role == ROLE_STORED || (a && v == a->out)) continue;
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
                const graph_tensor *table = graph_tensor_at(g, node->in[node->op == OP_MATMUL_ID ? 1 : 0]);
                number_kind kind = kind_of(node, k);
                if (kind == NUMBER_WIDE && t->n_list > 1) kind = NUMBER_PLAIN; /* what is rounded to int8 later has no outliers */
                status = use_input(t, base, kind, table->rank ? table->dim[0].size : 1, error);
            }
        }
        if (status != BERYL_OK) break;
        if (node->op == OP_KV_WRITE || node->op == OP_SET_ROWS) trial_used_find(t, node->in[0])->written = true;
        if (node->op == OP_KV_WRITE) trial_used_find(t, node->in[0])->is_cache = true;
        for (uint32_t k = 1; node->op == OP_ATTENTION && k < 3; k++) trial_used_find(t, node->in[k])->is_cache = true;
    }
    return status;
}

/* ---- sizes ------------------------------------------------------------------------------------------------------------ */

static uint64_t cache_row_bytes(const trial_used *u) {
    return base_type_row_bytes(u->type, u->dim[3]) * u->dim[2];
}

/* Rows of the run, extents, positions, caches. */
static void choose_sizes(trial *t) {
    const graph *g = t->desc.g;
    uint32_t window = 0;
    bool attends = false;
    t->n = t->limits.rows;
    for (uint32_t i = 0; i < t->n_list; i++) {
        const graph_node *node = t->list[i];
        if (node->op == OP_SAMPLE || node->op == OP_ARGMAX || node->op == OP_TOPK) t->n = least(t->n, 4);
        if (node->op == OP_ATTENTION) attends = true, window = node->attr.attention.window;
    }
    for (uint32_t i = 0; i < t->n_used; i++)
        if (t->used[i].is_cache) t->n = least(t->n, t->desc.decode ? t->used[i].dim[0] : t->used[i].dim[1]);
    for (uint32_t i = 1; i <= g->n_extent; i++) t->extents[i] = least(g->extents[i].bound, t->n);
    uint32_t n_row = 0;
    for (uint32_t i = 0; i < t->n_used; i++) {
        trial_used *u = &t->used[i];
        if (!u->is_cache) continue;
        if (u->dim[0] > (t->desc.decode ? t->n : 2)) u->dim[0] = t->desc.decode ? t->n : 2;
        const uint64_t fits = CACHE_BYTES / (cache_row_bytes(u) * u->dim[0]);
        const uint32_t needed = t->limits.reach + t->n + (window ? window : 0);
        if (u->dim[1] > fits) u->dim[1] = least(u->dim[1], fits > needed ? (uint32_t)fits : needed);
        n_row = u->dim[1];
        t->slot = t->desc.decode ? 0 : u->dim[0] - 1;
    }
    t->first = 5;
    if (n_row && !attends) t->first = n_row - 1; /* the second row begins the ring anew */
    if (!attends) return;
    t->first = least(window ? window + 40 : t->limits.reach, t->limits.reach);
    if (window && window + t->n < n_row && n_row <= RING_MOST && t->limits.reach >= window) {
        t->first = n_row + 3; /* the run lies behind the ring's seam */
    } else if (t->first + t->n > n_row) {
        t->first = n_row - t->n;
    }
    t->fill_from = window && t->first > window ? t->first - window : 0;
    t->fill_total = (t->first + t->n - t->fill_from) * (t->desc.decode ? t->n : 1);
}

/* May weights be cut to fewer rows? Not where a slice of another tensor goes with each row, or where rows are in halves. */
static bool may_cut(const trial *t) {
    for (uint32_t r = 0; r < t->n_run; r++) {
        if (t->run[r]->op != OP_FUSED) continue;
        const uint32_t kind = t->run[r]->attr.fused.kind;
        if (kind == FUSED_EXPERTS) return false;
        if (kind == FUSED_MATVEC && ((const fused_matvec *)t->run[r]->attr.fused.detail)->to == FUSED_GELU_MUL) return false;
    }
    return true;
}

/* Fewer rows of weights, so that the reference side is quick. */
static void cut_weights(trial *t, uint32_t out) {
    t->cut = false;
    const bool rows = may_cut(t);
    for (uint32_t i = 0; i < t->n_list; i++) {
        const graph_node *node = t->list[i];
        if (is_weight_rows(t->desc.g, node, 1) && (rows || node->op == OP_MATMUL_ID)) {
            trial_used *u = trial_used_find(t, node->in[1]);
            if (!rows) out = u->dim[u->rank - 2];
            t->cut |= u->dim[u->rank - 2] > out;
            u->dim[u->rank - 2] = least(u->dim[u->rank - 2], out);
            if (node->op == OP_MATMUL_ID) u->dim[0] = least(u->dim[0], EXPERT_MOST);
        }
        trial_used *table = rows && node->op == OP_GATHER_ROWS ? trial_used_find(t, node->in[0]) : NULL;
        if (table && !table->is_state && !graph_tensor_at(t->desc.g, node->in[0])->base && table->rank == 2)
            table->dim[0] = least(table->dim[0], TABLE_MOST);
        const trial_used *chosen = node->op == OP_MATMUL_ID ? trial_used_find(t, node->in[1]) : table;
        for (uint32_t k = 0; chosen && k < t->n_input; k++)
            if (t->inputs[k].kind == NUMBER_INDEX) t->inputs[k].limit = chosen->dim[0];
    }
}

/* Products that the reference side would take with weights of at most `out` rows. */
static double work_of(const trial *t, uint32_t out) {
    double work = 0;
    for (uint32_t i = 0; i < t->n_list; i++) {
        if (!is_weight_rows(t->desc.g, t->list[i], 1)) continue;
        const graph_tensor *w = graph_tensor_at(t->desc.g, t->list[i]->in[1]);
        work += (double)least(out, w->dim[w->rank - 2].size) * w->dim[w->rank - 1].size * t->n * (t->list[i]->op == OP_MATMUL_ID ? 8 : 1);
    }
    return work;
}

/* ---- one side ---------------------------------------------------------------------------------------------------------------- */

static void set_strides(graph_tensor *t) {
    uint64_t stride = 1;
    for (uint32_t i = t->rank; i-- > 0;) {
        t->stride[i] = stride > UINT32_MAX ? 0 : (uint32_t)stride;
        stride *= t->dim[i].size;
    }
}

/* Stored tensors are those of the trial's store, with its sizes; views of the same rank go along. */
static void move_stored(const trial *t, graph *g) {
    for (graph_value v = 1; v < g->tensors.count; v++) {
        graph_tensor *x = &g->tensors.data[v];
        x->node = UINT32_MAX;
        if (x->role != ROLE_STORED) {
            x->role = ROLE_INTERMEDIATE;
            continue;
        }
        uint32_t index = UINT32_MAX;
        const graph_value base = graph_base_of(g, v);
        for (uint32_t i = 0; i < t->n_used; i++)
            if (t->used[i].base == base) index = i;
        if (index == UINT32_MAX) {
            x->role = ROLE_INTERMEDIATE;
            continue;
        }
        const trial_used *u = &t->used[index];
        const store_tensor *from = &t->e->store.tensors.data[u->from];
        bool same = x->rank == u->rank && x->offset == 0;
        for (uint32_t i = 0; same && i < u->rank; i++) same = x->dim[i].size == from->dim[i];
        x->stored = index;
        if (!same) continue;
        for (uint32_t i = 0; i < u->rank; i++) x->dim[i].size = u->dim[i];
        set_strides(x);
    }
}

static bool copy_tables(const graph *from, graph *g) {
    g->tensors.count = 0;
    if (!base_vec_reserve(g->heap, &g->tensors, from->tensors.count) || !base_vec_reserve(g->heap, &g->inner, from->inner.count)) return false;
    memcpy(g->tensors.data, from->tensors.data, from->tensors.count * sizeof *g->tensors.data);
    g->tensors.count = from->tensors.count;
    if (from->inner.count) memcpy(g->inner.data, from->inner.data, from->inner.count * sizeof *g->inner.data);
    g->inner.count = from->inner.count;
    memcpy(g->extents, from->extents, sizeof g->extents);
    g->n_extent = from->n_extent;
    return true;
}

/* Results of cut weights are shorter, and what is made of them. */
static void cut_results(const trial *t, graph *g) {
    for (uint32_t i = 0; i < t->n_list; i++) {
        const graph_node *node = t->list[i];
        graph_tensor *out = &g->tensors.data[node->out[0]];
        if (is_weight_rows(t->desc.g, node, 1)) {
            const graph_tensor *w = graph_tensor_at(g, node->in[1]);
            out->dim[out->rank - 1].size = w->dim[w->rank - 2].size;
        } else if (t->n_list > 1 && (node->op == OP_GEGLU || node->op == OP_SOFTCAP)) {
            memcpy(out->dim, graph_tensor_at(g, node->in[0])->dim, sizeof out->dim);
        } else {
            continue;
        }
        set_strides(out);
    }
}

static beryl_status make_graph(trial *t, trial_side *s, bool reference, beryl_error *error) {
    graph *g = s->g = graph_open(t->heap);
    if (!g || !copy_tables(t->desc.g, g)) return no_memory(error);
    move_stored(t, g);
    const uint32_t n = reference ? t->n_list : t->n_run;
    for (uint32_t i = 0; i < n; i++) {
        graph_node *copy = base_vec_add(t->heap, &g->nodes);
        if (!copy) return no_memory(error);
        *copy = reference ? *t->list[i] : *t->run[i];
        copy->dead = false;
        for (uint32_t k = 0; k < copy->n_out; k++) g->tensors.data[copy->out[k]].node = i;
    }
    for (uint32_t i = 0; i < t->n_input; i++) g->tensors.data[t->inputs[i].v].role = ROLE_INPUT;
    for (uint32_t i = 0; i < t->n_output; i++) g->tensors.data[t->outputs[i]].role = ROLE_OUTPUT;
    cut_results(t, g);
    return BERYL_OK;
}

/* Rows of the caches that attention will see: a graph of its own that only writes. */
static beryl_status make_fill(trial *t, trial_side *s, beryl_error *error) {
    if (!t->fill_total) return BERYL_OK;
    graph_value caches[2] = {0, 0};
    for (uint32_t i = 0; i < t->n_list; i++)
        if (t->list[i]->op == OP_ATTENTION) caches[0] = t->list[i]->in[1], caches[1] = t->list[i]->in[2];
    graph *g = s->fill = graph_open(t->heap);
    if (!g) return no_memory(error);
    const graph_dim n = {FILL_ROWS, graph_extent_add(g, "n", FILL_ROWS)};
    s->fill_slot = graph_input(g, "slot", TYPE_I32, 1, &n);
    s->fill_pos = graph_input(g, "pos", TYPE_I32, 1, &n);
    for (int i = 0; i < 2; i++) {
        const trial_used *u = trial_used_find(t, caches[i]);
        if (i && graph_base_of(t->desc.g, caches[0]) == graph_base_of(t->desc.g, caches[1])) break;
        s->fill_x[i] = graph_input(g, "x", TYPE_F32, 3, (graph_dim[]){n, {u->dim[2], 0}, {u->dim[3], 0}});
        graph_kv_write(g, graph_stored(g, &s->store, (uint32_t)(u - t->used)), s->fill_x[i], s->fill_slot, s->fill_pos);
    }
    const graph_exec_options options = {.exact = t->e->options.precision == BERYL_PRECISION_EXACT, .unfused = true};
    return graph_exec_open(g, &s->store, &options, &s->fill_exec, error);
}

static beryl_status make_side(trial *t, bool reference, beryl_error *error) {
    trial_side *s = &t->sides[reference];
    beryl_status status = store_init(&s->store, t->heap, reference ? NULL : t->e->device, &t->source, 1, error);
    uint64_t offset = 0;
    for (uint32_t i = 0; status == BERYL_OK && i < t->n_used; i++) {
        const trial_used *u = &t->used[i];
        uint32_t index = u->is_state ? store_add_state(&s->store, "trial", u->type, u->rank, u->dim, 1)
                                     : store_add_weight(&s->store, "trial", u->type, u->rank, u->dim, 0, 0, offset, false);
        if (index != i) status = no_memory(error);
        else if (!u->is_state) offset += (s->store.tensors.data[i].file_bytes + 63) / 64 * 64;
    }
    if (status == BERYL_OK && !reference) { /* compiled programs are used again */
        const graph_store *from = &t->e->store;
        if (!base_vec_reserve(t->heap, &s->store.programs, from->programs.count)) return no_memory(error);
        if (from->programs.count) memcpy(s->store.programs.data, from->programs.data, from->programs.count * sizeof *from->programs.data);
        s->store.programs.count = t->n_shared = from->programs.count;
    }
    if (status == BERYL_OK) status = store_layout(&s->store, 0, error);
    if (status == BERYL_OK) status = store_make(&s->store, error);
    if (status == BERYL_OK) status = make_graph(t, s, reference, error);
    const graph_exec_options options = {.exact = t->e->options.precision == BERYL_PRECISION_EXACT, .unfused = true};
    if (status == BERYL_OK) status = graph_exec_open(s->g, &s->store, &options, &s->exec, error);
    return status == BERYL_OK ? make_fill(t, s, error) : status;
}

static void drop_side(trial *t, trial_side *s) {
    if (s->ticket && s->store.device) device_wait(s->store.device, s->ticket, NULL);
    graph_exec_close(s->exec);
    graph_exec_close(s->fill_exec);
    graph_close(s->g);
    graph_close(s->fill);
    if (s->store.device) { /* the engine's programs stay */
        for (size_t i = t->n_shared; i < s->store.programs.count; i++) device_program_drop(s->store.device, s->store.programs.data[i].id);
        s->store.programs.count = 0;
    }
    store_fini(&s->store);
    *s = (trial_side){0};
}

static beryl_status make_weights(trial *t, beryl_error *error) {
    uint64_t size = 0, at = 0;
    for (uint32_t i = 0; i < t->n_used; i++) {
        const trial_used *u = &t->used[i];
        uint64_t rows = 1;
        for (uint32_t k = 0; k + 1 < u->rank; k++) rows *= u->dim[k];
        if (!u->is_state) size += (rows * base_type_row_bytes(u->type, u->rank ? u->dim[u->rank - 1] : 1) + 63) / 64 * 64;
    }
    base_heap_give(t->heap, t->blob, t->blob_size);
    t->blob_size = 0;
    t->blob = size < SIZE_MAX / 2 ? base_heap_take(t->heap, (size_t)size + 64) : NULL;
    if (!t->blob) return no_memory(error);
    t->blob_size = (size_t)size + 64;
    for (uint32_t i = 0; i < t->n_used; i++) {
        const trial_used *u = &t->used[i];
        uint64_t rows = 1, k = u->rank ? u->dim[u->rank - 1] : 1;
        for (uint32_t d = 0; d + 1 < u->rank; d++) rows *= u->dim[d];
        if (u->is_state) continue;
        trial_fill_rows(&t->random, u->type, rows, k, t->blob + at);
        at += (rows * base_type_row_bytes(u->type, k) + 63) / 64 * 64;
    }
    t->source = base_source_of_memory(t->blob, t->blob_size);
    return BERYL_OK;
}

beryl_status trial_open(beryl_engine *e, const trial_desc *desc, const trial_limits *limits, trial **out, beryl_error *error) {
    *out = NULL;
    trial *t = base_heap_take(&e->heap, sizeof *t);
    if (!t) return no_memory(error);
    *t = (trial){.e = e, .heap = &e->heap, .desc = *desc, .limits = *limits, .random = {trial_key(desc)}};
    t->n_run = run_of(desc, t->run);
    t->n_list = list_of(desc, t->list);
    beryl_status status = collect(t, error);
    if (status == BERYL_OK) choose_sizes(t);
    /* A weight cut too short may get another kernel than the plan has: then more of it. */
    trial_used whole[USED_MAX];
    memcpy(whole, t->used, sizeof whole);
    for (uint32_t rows = limits->out; status == BERYL_OK; rows *= 8) { /* never overflows: UINT32_MAX cuts nothing */
        memcpy(t->used, whole, sizeof whole);
        cut_weights(t, rows);
        status = make_weights(t, error);
        if (status == BERYL_OK) status = make_side(t, false, error);
        const bool another = status == BERYL_OK && t->sides[0].store.programs.count > t->n_shared;
        if (!another || !t->cut || work_of(t, rows * 8) > WORK_MOST) break;
        drop_side(t, &t->sides[0]);
    }
    if (status == BERYL_OK) status = make_side(t, true, error);
    if (status != BERYL_OK) {
        trial_close(t);
        return status;
    }
    *out = t;
    return BERYL_OK;
}

void trial_mark(const trial *t, bool *used, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const device_program program = t->e->store.programs.data[i].id;
        used[i] |= graph_exec_uses(t->sides[0].exec, program) || (t->sides[0].fill_exec && graph_exec_uses(t->sides[0].fill_exec, program));
    }
}

bool trial_is_cut(const trial *t) {
    return t->cut && work_of(t, UINT32_MAX) <= WORK_MOST;
}

void trial_close(trial *t) {
    if (!t) return;
    drop_side(t, &t->sides[0]);
    drop_side(t, &t->sides[1]);
    base_heap_give(t->heap, t->blob, t->blob_size);
    base_heap_give(t->heap, t, sizeof *t);
}
