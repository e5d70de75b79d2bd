/* record.c - the functions of tile/lower.h, by which kernels are recorded as steps. */
#include "tile/record.h"
#include "base/error.h"
#include "tile/matvec_form.h"

#include <stdio.h>
#include <string.h>

void plan_record_init(plan_record *p, base_heap *heap, const graph *g) {
    *p = (plan_record){.heap = heap, .g = g};
    base_arena_init(&p->arena, heap);
}

void plan_record_fini(plan_record *p) {
    base_heap_give(p->heap, p->params, p->params_bytes);
    base_vec_fini(p->heap, &p->steps);
    base_vec_fini(p->heap, &p->patches);
    base_vec_fini(p->heap, &p->scratches);
    base_arena_fini(&p->arena);
}

plan_mark plan_record_mark(const plan_record *p) {
    return (plan_mark){p->steps.count, p->patches.count, p->scratches.count, p->bytes_pending};
}

void plan_record_back(plan_record *p, plan_mark m) {
    p->steps.count = m.n_step;
    p->patches.count = m.n_patch;
    p->scratches.count = m.n_scratch;
    p->bytes_pending = m.bytes;
    p->product = 0;
    p->form = (lower_form){0};
    p->texts = (lower_texts){0};
}

lowering lower_asked(const graph *g, const graph_store *store, const lower_settings *settings) {
    lowering l = {
        .g = g, .store = (graph_store *)(uintptr_t)store, .caps = device_caps_of(store->device)};
    if (settings) l.settings = *settings;
    return l;
}

/* ---- counts ---------------------------------------------------------------------------------- */

lower_count lower_count_of(graph_dim dim) {
    return dim.extent ? (lower_count){1, dim.extent} : (lower_count){dim.size, 0};
}

lower_count lower_count_times(lower_count a, uint64_t factor) {
    return (lower_count){a.factor * factor, a.extent};
}

lower_count lower_rows(const graph_tensor *t) {
    lower_count count = {1, 0};
    for (uint32_t i = 0; i + 1 < t->rank; i++) {
        if (t->dim[i].extent && count.extent) return (lower_count){0, 0};
        if (t->dim[i].extent) {
            count.extent = t->dim[i].extent;
        } else {
            count.factor *= t->dim[i].size;
        }
    }
    return count;
}

uint64_t plan_count_value(lower_count count, const uint32_t *extents) {
    return count.factor * (count.extent ? extents[count.extent] : 1);
}

const store_tensor *lower_stored(const lowering *l, graph_value v) {
    const graph_tensor *t = graph_tensor_at(l->g, graph_base_of(l->g, v));
    return t->role == ROLE_STORED ? &l->store->tensors.data[t->stored] : NULL;
}

const store_tensor *lower_weight(const lowering *l, graph_value v) {
    const store_tensor *stored = lower_stored(l, v);
    const graph_tensor *t = graph_tensor_at(l->g, v);
    return stored && !stored->is_state && t->rank &&
                   stored->dim[stored->rank - 1u] == t->dim[t->rank - 1u].size
               ? stored
               : NULL;
}

const lower_form *lower_form_of(const lowering *l, graph_value weight) {
    const graph_tensor *t = graph_tensor_at(l->g, graph_base_of(l->g, weight));
    for (uint32_t i = 0; i < l->settings.n_form; i++)
        if (strstr(t->name, l->settings.forms[i].weight)) return &l->settings.forms[i];
    if (l->record) l->record->product = graph_base_of(l->g, weight);
    const uint64_t key = l->store->n_tuned ? lower_tuned_key(l->g, weight, l->settings.exact) : 0;
    for (uint32_t i = 0; key && i < l->store->n_tuned; i++)
        if (l->store->tuned[i].key == key) return &l->store->tuned[i].form;
    return NULL;
}

void lower_form_chosen(const lowering *l, const matvec_choice *c) {
    l->record->form = (lower_form){.wg = c->wg,
                                   .lanes = c->lanes,
                                   .rows = c->rows,
                                   .depth = c->depth ? c->depth : 1,
                                   .groups = c->groups,
                                   .n_x = c->n_x};
}

const char *lower_tuned_role(const char *name) {
    const char *layer = strstr(name, "blk."), *rest = layer ? strchr(layer + 4, '.') : NULL;
    return rest ? rest + 1 : name;
}

uint64_t lower_tuned_key_of(const char *role, base_type type, const uint32_t dim[3], uint32_t n,
                            bool exact) {
    const uint32_t numbers[] = {(uint32_t)type, dim[0], dim[1], dim[2], n, exact};
    return base_hash(numbers, sizeof numbers, base_hash(role, strlen(role), 9)) | 1;
}

uint64_t lower_tuned_key(const graph *g, graph_value weight, bool exact) {
    const graph_tensor *t = graph_tensor_at(g, graph_base_of(g, weight));
    const char *role = lower_tuned_role(t->name);
    /* rows of two sizes: the class would be two */
    if (g->n_extent != 1 || t->role != ROLE_STORED || t->rank < 2) return 0;
    const uint32_t dim[3] = {t->rank > 2 ? t->dim[t->rank - 3].size : 1, t->dim[t->rank - 2].size,
                             t->dim[t->rank - 1].size};
    return lower_tuned_key_of(role, t->type, dim, g->extents[1].bound, exact);
}

void lower_bytes(lowering *l, uint64_t bytes) {
    l->record->bytes_pending += bytes;
}

beryl_status lower_refuse(const lowering *l, const graph_node *node, const char *what) {
    bool named[TYPE_COUNT] = {false};
    char types[128] = "";
    for (uint32_t i = 0, n = 0; i < node->n_in; i++) {
        const base_type type = graph_tensor_at(l->g, node->in[i])->type;
        if (!node->in[i] || named[type] || n + 32 > sizeof types) continue;
        named[type] = true;
        n += (uint32_t)snprintf(types + n, sizeof types - n, "%s%s", n ? ", " : "",
                                base_type_name(type));
    }
    return base_fail(l->error, BERYL_UNSUPPORTED, "%s of %s on %s:%u: %s", graph_op_name(node->op),
                     types, l->caps->backend, l->caps->index, what);
}

static void step_fail(lower_step *s, beryl_status code, const char *what, const char *name) {
    if (s->error.code == BERYL_OK)
        base_fail(&s->error, code, "kernel for %s: %s '%s'", graph_op_name(s->node->op), what,
                  name);
}

lower_step *lower_step_begin(lowering *l, const char *name, const char *entry,
                             const lower_kernel *kernel) {
    lower_step *s = &l->record->current;
    *s = (lower_step){.l = l, .node = l->node, .name = name, .entry = entry, .kernel = *kernel};
    for (int i = 0; i < 3; i++) s->groups[i] = (lower_count){1, 0}, s->per[i] = 1;
    s->shared = false;
    return s;
}

bool lower_program_known(const lowering *l, uint64_t hash) {
    const store_program *found = NULL;
    for (size_t i = 0; !found && i < l->store->programs.count; i++)
        if (l->store->programs.data[i].hash == hash) found = &l->store->programs.data[i];
    if (!found || !l->texts) return found;
    /* to be explained: its text is wanted once in this plan */
    for (size_t i = 0; i < l->record->steps.count; i++)
        if (l->record->steps.data[i].program.id == found->id.id) return true;
    return false;
}

static plan_binding *binding_at(lower_step *s, const char *name) {
    if (s->error.code != BERYL_OK) return NULL;
    uint32_t i = 0;
    while (i < s->kernel.n_binding && strcmp(s->kernel.bindings[i].name, name)) i++;
    if (i == s->kernel.n_binding) {
        step_fail(s, BERYL_MISUSE, "no binding", name);
        return NULL;
    }
    s->bound[i] = true;
    return &s->bindings[i];
}

/* Whole vectors, as far as the buffer goes. */
static void bind_range(lower_step *s, plan_binding *b, uint32_t buffer, uint64_t offset,
                       uint64_t bytes) {
    const uint64_t end = s->l->store->buffers.data[buffer].size;
    *b = (plan_binding){PLAN_STORED, buffer, offset, (bytes + 15) & ~(uint64_t)15};
    if (b->offset + b->size > end) b->size = end - b->offset;
}

void lower_bind_shard(lower_step *s, const char *name, graph_value v, uint32_t shard) {
    plan_binding *b = binding_at(s, name);
    if (!b) return;
    const store_tensor *t = lower_stored(s->l, v);
    if (!t || shard >= t->n_shard) {
        step_fail(s, BERYL_MISUSE, "no such shard for", name);
        return;
    }
    uint64_t bytes =
        t->is_state ? store_state_bytes(s->l->store,
                                        graph_tensor_at(s->l->g, graph_base_of(s->l->g, v))->stored)
                    : t->shard[shard].layout.bytes;
    bind_range(s, b, t->shard[shard].buffer, t->shard[shard].offset, bytes);
}

void lower_bind(lower_step *s, const char *name, graph_value v) {
    if (s->error.code != BERYL_OK) return;
    graph_value base = graph_base_of(s->l->g, v);
    const graph_tensor *t = graph_tensor_at(s->l->g, base);
    if (t->role == ROLE_STORED) {
        if (lower_stored(s->l, v)->n_shard != 1)
            step_fail(s, BERYL_UNSUPPORTED, "a tensor in several pieces for", name);
        lower_bind_shard(s, name, v, 0);
        return;
    }
    plan_binding *b = binding_at(s, name);
    if (b) *b = (plan_binding){.item = base};
}

/* Of weights, or of states. */
static bool range_of(const lowering *l, const graph_value *stored, uint32_t n, uint64_t *low,
                     uint64_t *high) {
    const store_tensor *first = lower_stored(l, stored[0]);
    *low = UINT64_MAX;
    *high = 0;
    for (uint32_t i = 0; i < n; i++) {
        const store_tensor *t = lower_stored(l, stored[i]);
        if (!t || t->n_shard != 1 || t->is_state != first->is_state ||
            t->shard[0].buffer != first->shard[0].buffer)
            return false;
        const store_shard *shard = &t->shard[0];
        const uint64_t bytes =
            t->is_state
                ? store_state_bytes(l->store,
                                    graph_tensor_at(l->g, graph_base_of(l->g, stored[i]))->stored)
                : shard->layout.bytes;
        if (shard->offset < *low) *low = shard->offset;
        if (shard->offset + bytes > *high) *high = shard->offset + bytes;
    }
    return *high - *low <= l->caps->binding_max;
}

bool lower_weights_fit(const lowering *l, const graph_value *weights, uint32_t n) {
    const store_tensor *first = lower_stored(l, weights[0]);
    uint64_t low, high;
    return first && !first->is_state && range_of(l, weights, n, &low, &high);
}

bool lower_states_fit(const lowering *l, const graph_value *states, uint32_t n) {
    const store_tensor *first = lower_stored(l, states[0]);
    uint64_t low, high;
    return first && first->is_state && range_of(l, states, n, &low, &high);
}

void lower_bind_weights(lower_step *s, const char *name, const graph_value *weights, uint32_t n,
                        uint32_t *word) {
    memset(word, 0, n * sizeof *word);
    plan_binding *b = binding_at(s, name);
    if (!b) return;
    uint64_t low, high;
    if (!range_of(s->l, weights, n, &low, &high)) {
        step_fail(s, BERYL_MISUSE, "weights that do not fit one binding for", name);
        return;
    }
    bind_range(s, b, lower_stored(s->l, weights[0])->shard[0].buffer, low, high - low);
    for (uint32_t i = 0; i < n; i++)
        word[i] = (uint32_t)((lower_stored(s->l, weights[i])->shard[0].offset - low) / 4);
}

void lower_bind_scratch(lower_step *s, const char *name, uint32_t key, uint64_t bytes) {
    plan_binding *b = binding_at(s, name);
    if (!b) return;
    plan_record *p = s->l->record;
    const uint32_t node = (uint32_t)(s->node - p->g->nodes.data),
                   first = (uint32_t)p->g->tensors.count;
    for (uint32_t i = 0; i < p->scratches.count; i++) {
        plan_scratch *known = &p->scratches.data[i];
        if (known->node != node || known->key != key) continue;
        if (known->item) {
            b->item = known->item;
            return;
        }
        if (known->bytes < bytes) known->bytes = bytes;
        b->item = first + i;
        return;
    }
    plan_scratch *scratch = base_vec_add(p->heap, &p->scratches);
    if (!scratch) {
        step_fail(s, BERYL_NO_MEMORY, "out of memory at", name);
        return;
    }
    *scratch = (plan_scratch){node, key, bytes, 0};
    b->item = first + (uint32_t)p->scratches.count - 1;
}

static int param_at(lower_step *s, const char *name, bool is_float) {
    if (s->error.code != BERYL_OK) return -1;
    const uint32_t n = s->kernel.n_param;
    uint32_t i = 0;
    while (i < n && strcmp(s->kernel.params[i].name, name)) i++;
    if (i == n || s->kernel.params[i].is_float != is_float) {
        step_fail(s, BERYL_MISUSE, i == n ? "no parameter" : "another type of parameter", name);
        return -1;
    }
    s->set[i] = true;
    return (int)i;
}

static void lower_u32(lower_step *s, const char *name, uint32_t value) {
    int i = param_at(s, name, false);
    if (i >= 0) s->params[i] = value;
}

void lower_f32(lower_step *s, const char *name, float value) {
    int i = param_at(s, name, true);
    if (i >= 0) memcpy(&s->params[i], &value, sizeof value);
}

void lower_count_param(lower_step *s, const char *name, lower_count count) {
    if (!count.extent) {
        lower_u32(s, name, (uint32_t)count.factor);
        return;
    }
    int i = param_at(s, name, false);
    if (i < 0) return;
    if (s->n_patch == PLAN_PATCH_MAX) {
        step_fail(s, BERYL_UNSUPPORTED, "too many counts at", name);
        return;
    }
    s->patches[s->n_patch++] = (plan_patch){(uint32_t)i * 4, count};
}

void lower_groups_3d(lower_step *s, lower_count x, uint32_t per_x, lower_count y, uint32_t per_y,
                     lower_count z, uint32_t per_z) {
    s->groups[0] = x, s->groups[1] = y, s->groups[2] = z;
    s->per[0] = per_x, s->per[1] = per_y, s->per[2] = per_z;
}

void lower_groups_share(lower_step *s) {
    s->shared = true;
}

void lower_once(lower_step *s) {
    s->once = true;
}

static beryl_status program_of(lowering *l, const lower_step *s, device_program *out) {
    graph_store *store = l->store;
    for (size_t i = 0; i < store->programs.count; i++)
        if (store->programs.data[i].hash == s->kernel.hash) {
            *out = store->programs.data[i].id;
            return BERYL_OK;
        }
    device_program_desc desc = {
        .language = l->language,
        .source = s->kernel.text,
        .source_size = s->kernel.size,
        .entry = s->entry,
        .label = graph_op_name(s->node->op),
        .n_binding = s->kernel.n_binding,
        .param_bytes = s->kernel.n_param * 4,
        .uses_f16 = s->kernel.uses_f16,
        .uses_subgroups = s->kernel.uses_subgroups,
        /* proven by the op tests; checks make arrays in registers spill: a tenth of the speed on
         * NVIDIA */
        .trusted = true};
    for (uint32_t i = 0; i < desc.n_binding; i++) desc.access[i] = s->kernel.bindings[i].access;
    memcpy(desc.workgroup, s->kernel.workgroup, sizeof desc.workgroup);
    desc.launch_bytes = s->kernel.launch_bytes;
    store_program *entry = base_vec_add(store->heap, &store->programs);
    if (!entry) return base_no_memory(l->error);
    *entry = (store_program){.hash = s->kernel.hash,
                             .f16 = s->kernel.uses_f16,
                             .subgroups = s->kernel.uses_subgroups,
                             .dot = s->kernel.uses_dot};
    beryl_status status = device_program_make(l->device, &desc, &entry->id, l->error);
    if (status != BERYL_OK) store->programs.count--;
    *out = entry->id;
    return status;
}

static beryl_status keep_texts(plan_record *p, const lower_step *s, plan_step *st) {
    const lower_texts *t = s->l->texts;
    lower_binding *names = base_arena_take(&p->arena, s->kernel.n_binding + 1, sizeof *names);
    const char *code =
        s->kernel.text ? base_arena_text(&p->arena, s->kernel.text, s->kernel.size) : NULL;
    if (!names || (s->kernel.text && !code)) return base_no_memory(s->l->error);
    memcpy(names, s->kernel.bindings, s->kernel.n_binding * sizeof *names);
    st->names = names;
    st->texts = (lower_texts){
        .before = t->before, .after = t->after, .code = code, .language = s->l->language};
    *s->l->texts = (lower_texts){0};
    return BERYL_OK;
}

beryl_status lower_step_end(lower_step *s) {
    plan_record *p = s->l->record;
    for (uint32_t i = 0; i < s->kernel.n_binding; i++)
        if (!s->bound[i])
            step_fail(s, BERYL_MISUSE, "nothing bound to", s->kernel.bindings[i].name);
    for (uint32_t i = 0; i < s->kernel.n_param; i++)
        if (!s->set[i]) step_fail(s, BERYL_MISUSE, "no value for", s->kernel.params[i].name);
    for (int i = 0; i < 3; i++)
        if (s->per[i] == 0 || s->groups[i].factor == 0)
            step_fail(s, BERYL_UNSUPPORTED, "rows over several extents in", "grid");
    if (s->error.code != BERYL_OK) {
        if (s->l->error) *s->l->error = s->error;
        return s->error.code;
    }
    plan_step *st = base_vec_add(p->heap, &p->steps);
    if (!st || !base_vec_reserve(p->heap, &p->patches, s->n_patch))
        return base_no_memory(s->l->error);
    uint32_t index = (uint32_t)(p->steps.count - 1);
    st->n_binding = s->kernel.n_binding;
    st->node = (uint32_t)(s->node - p->g->nodes.data);
    st->needs = s->once ? 0 : graph_node_needs(p->g, s->node);
    const char *weight = ""; /* the first matrix, else the first of all */
    for (uint32_t i = 0, best = 0; i < s->node->n_in; i++) {
        const graph_tensor *t = graph_tensor_at(p->g, s->node->in[i]);
        const uint32_t rank = t->role != ROLE_STORED ? 0 : t->rank == 2 || t->rank == 3 ? 2 : 1;
        if (rank > best) weight = t->name, best = rank;
    }
    st->label =
        base_arena_print(&p->arena, "%s %s %s", graph_op_name(s->node->op), s->name, weight);
    if (!st->label) return base_no_memory(s->l->error);
    st->bytes = p->bytes_pending;
    st->product = p->product;
    st->form = p->form;
    p->bytes_pending = 0;
    for (uint32_t i = 0; i < st->n_binding; i++) {
        st->bindings[i] = s->bindings[i];
        st->access[i] = s->kernel.bindings[i].access;
    }
    memcpy(st->groups, s->groups, sizeof st->groups);
    memcpy(st->per, s->per, sizeof st->per);
    st->shared = s->shared;
    st->once = s->once;
    for (uint32_t i = 0; i < s->n_patch; i++) {
        plan_patch *to = base_vec_add(p->heap, &p->patches);
        *to = (plan_patch){index * DEVICE_PARAM_ALIGN + s->patches[i].at, s->patches[i].count};
    }
    size_t need = (size_t)(index + 1) * DEVICE_PARAM_ALIGN;
    if (need > p->params_bytes) {
        size_t grown = need + 64 * DEVICE_PARAM_ALIGN;
        unsigned char *params = base_heap_resize(p->heap, p->params, p->params_bytes, grown);
        if (!params) return base_no_memory(s->l->error);
        memset(params + p->params_bytes, 0, grown - p->params_bytes);
        p->params = params;
        p->params_bytes = grown;
    }
    memcpy(p->params + (size_t)index * DEVICE_PARAM_ALIGN, s->params, DEVICE_PARAM_MAX);
    beryl_status status = s->l->texts ? keep_texts(p, s, st) : BERYL_OK;
    return status == BERYL_OK ? program_of(s->l, s, &st->program) : status;
}

/* ---- steps that are shared ------------------------------------------------------------------- */

enum { SHARED_NEAR = 16 /* steps: what waits longer takes memory from others */ };

static bool is_same_count(lower_count a, lower_count b) {
    return a.factor == b.factor && a.extent == b.extent;
}

/* The same of the same memory, but for the scratch that each writes. */
static bool is_same(const plan_record *p, const plan_step *a, const plan_step *b) {
    const unsigned char *of_a = p->params + (size_t)(a - p->steps.data) * DEVICE_PARAM_ALIGN,
                        *of_b = p->params + (size_t)(b - p->steps.data) * DEVICE_PARAM_ALIGN;
    bool same = a->program.id == b->program.id && a->n_binding == b->n_binding &&
                a->needs == b->needs && !memcmp(of_a, of_b, DEVICE_PARAM_MAX);
    for (uint32_t i = 0; same && i < 3; i++)
        same = is_same_count(a->groups[i], b->groups[i]) && a->per[i] == b->per[i];
    for (uint32_t i = 0; same && i < a->n_binding; i++) {
        const plan_binding *x = &a->bindings[i], *y = &b->bindings[i];
        same = a->access[i] != DEVICE_READ
                   ? x->item != PLAN_STORED && x->item >= p->g->tensors.count
                   : x->item == y->item && x->buffer == y->buffer && x->offset == y->offset;
    }
    return same;
}

/* Does `step` write what the other one binds? */
static bool disturbs(const plan_step *step, const plan_step *other) {
    for (uint32_t i = 0; i < step->n_binding; i++)
        for (uint32_t k = 0; step->access[i] != DEVICE_READ && k < other->n_binding; k++)
            if (step->bindings[i].item == other->bindings[k].item &&
                (step->bindings[i].item != PLAN_STORED ||
                 step->bindings[i].buffer == other->bindings[k].buffer))
                return true;
    return false;
}

void lower_step_share(lowering *l) {
    plan_record *p = l->record;
    const size_t n = p->steps.count;
    const plan_step *last = &p->steps.data[n - 1];
    for (size_t i = n - 1; i-- > 0 && i + SHARED_NEAR >= n;) {
        const plan_step *step = &p->steps.data[i];
        if (disturbs(step, last)) return;
        if (!is_same(p, step, last)) continue;
        for (size_t k = i + 1; k + 1 < n; k++)
            if (disturbs(&p->steps.data[k], step)) return;
        for (uint32_t k = 0; k < last->n_binding; k++) {
            if (last->access[k] == DEVICE_READ) continue;
            plan_scratch *own = &p->scratches.data[last->bindings[k].item - p->g->tensors.count];
            own->item = step->bindings[k].item, own->bytes = 0;
        }
        while (p->patches.count &&
               p->patches.data[p->patches.count - 1].at >= (n - 1) * DEVICE_PARAM_ALIGN)
            p->patches.count--;
        p->steps.count--;
        return;
    }
}
