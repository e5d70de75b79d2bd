/* plan.c - lowering, memory and replay of a graph on a device.
 *
 * The one idea: lowering only records steps (text, named bindings to tensors, parameters that are constants or counts);
 * memory is placed when all steps are known, from what each step reads and writes. No step may bind the same buffer for
 * reading and for writing, so intermediates are coloured: tensors of one step that differ in access get different arena
 * buffers. Replaying patches parameters and grids from the run's extents and allocates nothing.
 */
#include "graph/plan.h"
#include "base/error.h"
#include "graph/fused.h"
#ifndef __wasm__
#include "graph/lower_ir.h"
#endif
#include "base/thread.h"
#include "graph/lower_matvec.h"
#include "graph/pass.h"

#include <stdio.h>
#include <string.h>

enum { COLOUR_MAX = 16, PATCH_MAX = 12, INPUT_ALIGN = 256, ONE_WRITE_BYTES = 64 << 10, STAMP_MAX = 2000 };

typedef enum item_kind { ITEM_NONE, ITEM_STORED, ITEM_INPUT, ITEM_ARENA } item_kind;
typedef enum kernel_kind { WRITTEN, GENERATED, KERNEL_KINDS } kernel_kind;

/* Memory that steps bind: one per base tensor, one per scratch. */
typedef struct item {
    item_kind kind;
    uint64_t bytes, offset;
    uint32_t first, last; /* steps that touch it */
    uint32_t colour;
    bool used, keep;      /* keep: an output, alive to the end */
} item;

typedef struct step_binding {
    uint32_t item;            /* index, or UINT32_MAX: a range of the store */
    uint32_t buffer;          /* of the store */
    uint64_t offset, size;
} step_binding;

typedef struct patch { uint32_t at; lower_count count; } patch; /* at: byte in the params arena */

struct lower_step {
    lowering *l;
    const graph_node *node;
    const char *file, *entry;
    device_language language;
    kernels_text kernel;
    step_binding bindings[DEVICE_BINDING_MAX];
    bool bound[DEVICE_BINDING_MAX], set[KERNELS_PARAM_MAX];
    uint32_t params[DEVICE_PARAM_MAX / 4];
    patch patches[PATCH_MAX];
    uint32_t n_patch;
    lower_count groups[3];
    uint32_t per[3];
    beryl_error error;
};

typedef struct step {
    device_program program;
    device_bindings made;
    step_binding bindings[DEVICE_BINDING_MAX];
    device_access access[DEVICE_BINDING_MAX];
    uint32_t n_binding;
    lower_count groups[3];
    uint32_t per[3];
    uint32_t node; /* of the graph */
    const char *label;
    uint64_t bytes;
    double microseconds;
    uint32_t groups_run[3];
    graph_value product;
    lower_form form;
    graph_exec_texts texts;    /* where the plan is explained */
    const kernels_binding *names; /* [n_binding], likewise */
} step;

struct graph_plan {
    base_heap *heap;
    graph *g;
    graph_store *store;
    device *device;
    graph_exec_options options;
    base_arena arena;
    base_vec(item) items;      /* [tensors of the graph] then scratch */
    base_vec(step) steps;
    base_vec(patch) patches;
    base_vec(device_command) commands;
    base_vec(struct scratch { uint32_t node, key, item; }) scratches;
    unsigned char *params, *inputs; /* inputs: [inputs_bytes] in the layout of the device's input buffer */
    size_t params_bytes, inputs_bytes;
    device_buffer input_buffer, arena_buffers[COLOUR_MAX];
    uint64_t arena_sizes[COLOUR_MAX], bytes_pending;
    lower_step current;
    lower_texts texts;    /* of the step under way */
    double seconds, encoded; /* of the last run */
    size_t at;               /* of the run under way: commands that are submitted */
    uint64_t work;           /* bytes that all steps read of weights and states */
    graph_value product;  /* of the node under way, as of graph_exec_step */
    lower_form form;
    bool generated;       /* kernels from IR, in `language` (device_language) */
    uint32_t language;
};

/* ---- lowering: the functions that lower_*.c call ------------------------------------------------------ */

static lower_fn *const lower_table[OP_COUNT] = {
    [OP_GATHER_ROWS] = lower_gather_rows, [OP_COPY] = lower_copy, [OP_ADD] = lower_pointwise, [OP_MUL] = lower_pointwise,
    [OP_SCALE] = lower_pointwise, [OP_GELU_TANH] = lower_pointwise, [OP_GEGLU] = lower_pointwise, [OP_SOFTCAP] = lower_pointwise,
    [OP_RMS_NORM] = lower_rms_norm, [OP_SOFTMAX] = lower_softmax, [OP_TOPK] = lower_topk, [OP_WEIGHTED_SUM] = lower_weighted_sum,
    [OP_MATMUL] = lower_matmul, [OP_MATMUL_ID] = lower_matmul_id, [OP_ROPE] = lower_rope, [OP_KV_WRITE] = lower_kv_write,
    [OP_ATTENTION] = lower_attention, [OP_ARGMAX] = lower_argmax, [OP_SAMPLE] = lower_sample, [OP_SET_ROWS] = lower_set_rows,
    [OP_FUSED] = lower_fused,
};

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

static uint64_t count_value(lower_count count, const uint32_t *extents) {
    return count.factor * (count.extent ? extents[count.extent] : 1);
}

const store_tensor *lower_stored(const lowering *l, graph_value v) {
    const graph_tensor *t = graph_tensor_at(l->g, graph_base_of(l->g, v));
    return t->role == ROLE_STORED ? &l->store->tensors.data[t->stored] : NULL;
}

const store_tensor *lower_weight(const lowering *l, graph_value v) {
    const store_tensor *stored = lower_stored(l, v);
    const graph_tensor *t = graph_tensor_at(l->g, v);
    return stored && !stored->is_state && t->rank && stored->dim[stored->rank - 1u] == t->dim[t->rank - 1u].size ? stored : NULL;
}

const lower_form *lower_form_of(const lowering *l, graph_value weight) {
    const graph_tensor *t = graph_tensor_at(l->g, graph_base_of(l->g, weight));
    for (uint32_t i = 0; i < l->settings.n_form; i++)
        if (strstr(t->name, l->settings.forms[i].weight)) return &l->settings.forms[i];
    if (l->plan) l->plan->product = graph_base_of(l->g, weight);
    const uint64_t key = l->store->n_tuned ? lower_tuned_key(l->g, weight, l->settings.exact) : 0;
    for (uint32_t i = 0; key && i < l->store->n_tuned; i++)
        if (l->store->tuned[i].key == key) return &l->store->tuned[i].form;
    return NULL;
}

void lower_form_chosen(const lowering *l, const matvec_choice *c) {
    l->plan->form = (lower_form){.wg = c->wg, .lanes = c->lanes, .rows = c->rows, .depth = c->depth ? c->depth : 1, .groups = c->groups, .n_x = c->n_x};
}

const char *lower_tuned_role(const char *name) {
    const char *layer = strstr(name, "blk."), *rest = layer ? strchr(layer + 4, '.') : NULL;
    return rest ? rest + 1 : name;
}

uint64_t lower_tuned_key_of(const char *role, base_type type, const uint32_t dim[3], uint32_t n, bool exact) {
    const uint32_t numbers[] = {(uint32_t)type, dim[0], dim[1], dim[2], n, exact};
    return base_hash(numbers, sizeof numbers, base_hash(role, strlen(role), 9)) | 1;
}

uint64_t lower_tuned_key(const graph *g, graph_value weight, bool exact) {
    const graph_tensor *t = graph_tensor_at(g, graph_base_of(g, weight));
    const char *role = lower_tuned_role(t->name);
    if (g->n_extent != 1 || t->role != ROLE_STORED || t->rank < 2) return 0; /* rows of two sizes: the class would be two */
    const uint32_t dim[3] = {t->rank > 2 ? t->dim[t->rank - 3].size : 1, t->dim[t->rank - 2].size, t->dim[t->rank - 1].size};
    return lower_tuned_key_of(role, t->type, dim, g->extents[1].bound, exact);
}

void lower_bytes(lowering *l, uint64_t bytes) {
    l->plan->bytes_pending += bytes;
}

beryl_status lower_refuse(const lowering *l, const graph_node *node, const char *what, beryl_error *error) {
    bool named[TYPE_COUNT] = {false};
    char types[128] = "";
    for (uint32_t i = 0, n = 0; i < node->n_in; i++) {
        const base_type type = graph_tensor_at(l->g, node->in[i])->type;
        if (!node->in[i] || named[type] || n + 32 > sizeof types) continue;
        named[type] = true;
        n += (uint32_t)snprintf(types + n, sizeof types - n, "%s%s", n ? ", " : "", base_type_name(type));
    }
    return base_fail(error, BERYL_UNSUPPORTED, "%s of %s on %s:%u: %s", graph_op_name(node->op), types, l->caps->backend, l->caps->index, what);
}

static void step_fail(lower_step *s, beryl_status code, const char *what, const char *name) {
    if (s->error.code == BERYL_OK)
        base_fail(&s->error, code, "kernel for %s: %s '%s'", graph_op_name(s->node->op), what, name);
}

static lower_step *step_begin(lowering *l, const graph_node *node, const char *file, device_language language) {
    lower_step *s = &l->plan->current;
    *s = (lower_step){.l = l, .node = node, .file = file, .language = language};
    for (int i = 0; i < 3; i++) s->groups[i] = (lower_count){1, 0}, s->per[i] = 1;
    return s;
}

/* "matvec.wgsl WG=128u LANES=8u x=matvec_x_shared reader(a_)=read_q4_k" */
static void request_text(lowering *l, lower_step *s, const kernels_request *r) {
    base_text text;
    base_text_init(&text, l->store->heap);
    base_text_print(&text, "%s.wgsl", r->file);
    for (int i = 0; i < KERNELS_OPTION_MAX && r->options[i].name; i++) base_text_print(&text, " %s=%s", r->options[i].name, r->options[i].value);
    for (int i = 0; i < KERNELS_PART_MAX && r->parts[i].name; i++) {
        const char *prefix = r->parts[i].prefix;
        base_text_print(&text, " %s%s%s%s=%s.wgsl", r->parts[i].name, prefix ? "(" : "", prefix ? prefix : "", prefix ? ")" : "", r->parts[i].file);
    }
    l->texts->request = text.failed ? NULL : base_arena_text(l->arena, text.data, text.size);
    if (!l->texts->request) step_fail(s, BERYL_NO_MEMORY, "out of memory at", "its text");
    base_text_fini(&text);
}

lower_step *lower_step_begin(lowering *l, const graph_node *node, const kernels_request *request) {
    lower_step *s = step_begin(l, node, request->file, DEVICE_WGSL);
    kernels_build(l->arena, request, &s->kernel, &s->error);
    if (l->texts && s->error.code == BERYL_OK) request_text(l, s, request);
    if (s->error.code == BERYL_OK && s->kernel.n_param * 4 > DEVICE_PARAM_MAX) step_fail(s, BERYL_UNSUPPORTED, "too many parameters", request->file);
    return s;
}

lower_step *lower_step_begin_made(lowering *l, const graph_node *node, const char *name, const char *entry, const kernels_text *kernel) {
    lower_step *s = step_begin(l, node, name, l->language);
    s->entry = entry;
    s->kernel = *kernel;
    return s;
}

bool lower_program_known(const lowering *l, uint64_t hash) {
    const store_program *found = NULL;
    for (size_t i = 0; !found && i < l->store->programs.count; i++)
        if (l->store->programs.data[i].hash == hash) found = &l->store->programs.data[i];
    if (!found || !l->texts) return found;
    for (size_t i = 0; i < l->plan->steps.count; i++) /* to be explained: its text is wanted once in this plan */
        if (l->plan->steps.data[i].program.id == found->id.id) return true;
    return false;
}

static step_binding *binding_at(lower_step *s, const char *name) {
    if (s->error.code != BERYL_OK) return NULL;
    int i = kernels_binding_find(&s->kernel, name);
    if (i < 0) {
        step_fail(s, BERYL_MISUSE, "no binding", name);
        return NULL;
    }
    s->bound[i] = true;
    return &s->bindings[i];
}

void lower_bind_shard(lower_step *s, const char *name, graph_value v, uint32_t shard) {
    step_binding *b = binding_at(s, name);
    if (!b) return;
    const store_tensor *t = lower_stored(s->l, v);
    if (!t || shard >= t->n_shard) {
        step_fail(s, BERYL_MISUSE, "no such shard for", name);
        return;
    }
    uint64_t bytes = t->is_state ? store_state_bytes(s->l->store, graph_tensor_at(s->l->g, graph_base_of(s->l->g, v))->stored)
                                 : t->shard[shard].layout.bytes;
    *b = (step_binding){UINT32_MAX, t->shard[shard].buffer, t->shard[shard].offset, (bytes + 15) & ~(uint64_t)15};
    uint64_t end = s->l->store->buffers.data[b->buffer].size;
    if (b->offset + b->size > end) b->size = end - b->offset;
}

void lower_bind(lower_step *s, const char *name, graph_value v) {
    if (s->error.code != BERYL_OK) return;
    graph_value base = graph_base_of(s->l->g, v);
    const graph_tensor *t = graph_tensor_at(s->l->g, base);
    if (t->role == ROLE_STORED) {
        if (lower_stored(s->l, v)->n_shard != 1) step_fail(s, BERYL_UNSUPPORTED, "a tensor in several pieces for", name);
        lower_bind_shard(s, name, v, 0);
        return;
    }
    step_binding *b = binding_at(s, name);
    if (b) *b = (step_binding){.item = base};
}

static bool weights_range(const lowering *l, const graph_value *weights, uint32_t n, uint64_t *low, uint64_t *high) {
    *low = UINT64_MAX;
    *high = 0;
    for (uint32_t i = 0; i < n; i++) {
        const store_tensor *t = lower_stored(l, weights[i]);
        if (!t || t->is_state || t->n_shard != 1 || t->shard[0].buffer != lower_stored(l, weights[0])->shard[0].buffer) return false;
        const store_shard *shard = &t->shard[0];
        if (shard->offset < *low) *low = shard->offset;
        if (shard->offset + shard->layout.bytes > *high) *high = shard->offset + shard->layout.bytes;
    }
    return *high - *low <= l->caps->binding_max;
}

bool lower_weights_fit(const lowering *l, const graph_value *weights, uint32_t n) {
    uint64_t low, high;
    return weights_range(l, weights, n, &low, &high);
}

void lower_bind_weights(lower_step *s, const char *name, const graph_value *weights, uint32_t n, uint32_t *word) {
    memset(word, 0, n * sizeof *word);
    step_binding *b = binding_at(s, name);
    if (!b) return;
    uint64_t low, high;
    if (!weights_range(s->l, weights, n, &low, &high)) {
        step_fail(s, BERYL_MISUSE, "weights that do not fit one binding for", name);
        return;
    }
    *b = (step_binding){UINT32_MAX, lower_stored(s->l, weights[0])->shard[0].buffer, low, high - low};
    for (uint32_t i = 0; i < n; i++) word[i] = (uint32_t)((lower_stored(s->l, weights[i])->shard[0].offset - low) / 4);
}

void lower_bind_scratch(lower_step *s, const char *name, uint32_t key, uint64_t bytes) {
    step_binding *b = binding_at(s, name);
    if (!b) return;
    graph_plan *p = s->l->plan;
    uint32_t node = (uint32_t)(s->node - p->g->nodes.data);
    for (size_t i = 0; i < p->scratches.count; i++)
        if (p->scratches.data[i].node == node && p->scratches.data[i].key == key) {
            b->item = p->scratches.data[i].item;
            if (p->items.data[b->item].bytes < bytes) p->items.data[b->item].bytes = bytes;
            return;
        }
    struct scratch *scratch = base_vec_add(p->heap, &p->scratches);
    item *it = scratch ? base_vec_add(p->heap, &p->items) : NULL;
    if (!it) {
        step_fail(s, BERYL_NO_MEMORY, "out of memory at", name);
        return;
    }
    it->kind = ITEM_ARENA;
    it->bytes = bytes;
    *scratch = (struct scratch){node, key, (uint32_t)(p->items.count - 1)};
    b->item = scratch->item;
}

static int param_at(lower_step *s, const char *name, bool is_float) {
    if (s->error.code != BERYL_OK) return -1;
    int i = kernels_param_find(&s->kernel, name);
    if (i < 0 || s->kernel.params[i].is_float != is_float) {
        step_fail(s, BERYL_MISUSE, i < 0 ? "no parameter" : "another type of parameter", name);
        return -1;
    }
    s->set[i] = true;
    return i;
}

void lower_u32(lower_step *s, const char *name, uint32_t value) {
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
    if (s->n_patch == PATCH_MAX) {
        step_fail(s, BERYL_UNSUPPORTED, "too many counts at", name);
        return;
    }
    s->patches[s->n_patch++] = (patch){(uint32_t)i * 4, count};
}

void lower_groups(lower_step *s, lower_count count, uint32_t per) {
    lower_groups_3d(s, count, per, (lower_count){1, 0}, 1, (lower_count){1, 0}, 1);
}

void lower_groups_3d(lower_step *s, lower_count x, uint32_t per_x, lower_count y, uint32_t per_y, lower_count z, uint32_t per_z) {
    s->groups[0] = x, s->groups[1] = y, s->groups[2] = z;
    s->per[0] = per_x, s->per[1] = per_y, s->per[2] = per_z;
}

static beryl_status program_of(lowering *l, const lower_step *s, device_program *out, beryl_error *error) {
    graph_store *store = l->store;
    for (size_t i = 0; i < store->programs.count; i++)
        if (store->programs.data[i].hash == s->kernel.hash) {
            *out = store->programs.data[i].id;
            return BERYL_OK;
        }
    device_program_desc desc = {.language = s->language, .source = s->kernel.text, .source_size = s->kernel.size,
        .entry = s->entry, .label = graph_op_name(s->node->op), .n_binding = s->kernel.n_binding, .param_bytes = s->kernel.n_param * 4,
        .uses_f16 = s->kernel.uses_f16, .uses_subgroups = s->kernel.uses_subgroups,
        .trusted = true}; /* proven by the op tests; checks make arrays in registers spill: a tenth of the speed on NVIDIA */
    for (uint32_t i = 0; i < desc.n_binding; i++) desc.access[i] = s->kernel.bindings[i].access;
    memcpy(desc.workgroup, s->kernel.workgroup, sizeof desc.workgroup);
    desc.launch_bytes = s->kernel.launch_bytes;
    store_program *entry = base_vec_add(store->heap, &store->programs);
    if (!entry) return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    *entry = (store_program){.hash = s->kernel.hash, .f16 = s->kernel.uses_f16, .subgroups = s->kernel.uses_subgroups, .dot = s->kernel.uses_dot};
    beryl_status status = device_program_make(l->device, &desc, &entry->id, error);
    if (status != BERYL_OK) store->programs.count--;
    *out = entry->id;
    return status;
}

static beryl_status keep_texts(graph_plan *p, const lower_step *s, step *st, beryl_error *error) {
    const lower_texts *t = s->l->texts;
    kernels_binding *names = base_arena_take(&p->arena, s->kernel.n_binding + 1, sizeof *names);
    const char *code = s->kernel.text ? base_arena_text(&p->arena, s->kernel.text, s->kernel.size) : NULL;
    if (!names || (s->kernel.text && !code)) return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    memcpy(names, s->kernel.bindings, s->kernel.n_binding * sizeof *names);
    st->names = names;
    st->texts = (graph_exec_texts){.request = t->request, .before = t->before, .after = t->after, .code = code, .language = s->language};
    *s->l->texts = (lower_texts){0};
    return BERYL_OK;
}

beryl_status lower_step_end(lower_step *s, beryl_error *error) {
    graph_plan *p = s->l->plan;
    for (uint32_t i = 0; i < s->kernel.n_binding; i++)
        if (!s->bound[i]) step_fail(s, BERYL_MISUSE, "nothing bound to", s->kernel.bindings[i].name);
    for (uint32_t i = 0; i < s->kernel.n_param; i++)
        if (!s->set[i]) step_fail(s, BERYL_MISUSE, "no value for", s->kernel.params[i].name);
    for (int i = 0; i < 3; i++)
        if (s->per[i] == 0 || s->groups[i].factor == 0) step_fail(s, BERYL_UNSUPPORTED, "rows over several extents in", "grid");
    if (s->error.code != BERYL_OK) {
        if (error) *error = s->error;
        return s->error.code;
    }
    step *st = base_vec_add(p->heap, &p->steps);
    if (!st || !base_vec_reserve(p->heap, &p->patches, s->n_patch)) return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    uint32_t index = (uint32_t)(p->steps.count - 1);
    st->n_binding = s->kernel.n_binding;
    st->node = (uint32_t)(s->node - p->g->nodes.data);
    const char *weight = ""; /* the first matrix, else the first of all */
    for (uint32_t i = 0, best = 0; i < s->node->n_in; i++) {
        const graph_tensor *t = graph_tensor_at(p->g, s->node->in[i]);
        const uint32_t rank = t->role != ROLE_STORED ? 0 : t->rank == 2 || t->rank == 3 ? 2 : 1;
        if (rank > best) weight = t->name, best = rank;
    }
    st->label = base_arena_print(&p->arena, "%s %s %s", graph_op_name(s->node->op), s->file, weight);
    if (!st->label) return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
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
    for (uint32_t i = 0; i < s->n_patch; i++) {
        patch *to = base_vec_add(p->heap, &p->patches);
        *to = (patch){index * DEVICE_PARAM_ALIGN + s->patches[i].at, s->patches[i].count};
    }
    size_t need = (size_t)(index + 1) * DEVICE_PARAM_ALIGN;
    if (need > p->params_bytes) {
        size_t grown = need + 64 * DEVICE_PARAM_ALIGN;
        unsigned char *params = base_heap_resize(p->heap, p->params, p->params_bytes, grown);
        if (!params) return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
        memset(params + p->params_bytes, 0, grown - p->params_bytes);
        p->params = params;
        p->params_bytes = grown;
    }
    memcpy(p->params + (size_t)index * DEVICE_PARAM_ALIGN, s->params, DEVICE_PARAM_MAX);
    beryl_status status = s->l->texts ? keep_texts(p, s, st, error) : BERYL_OK;
    return status == BERYL_OK ? program_of(s->l, s, &st->program, error) : status;
}

/* ---- memory ------------------------------------------------------------------------------------------------ */

static uint64_t align_up(uint64_t n, uint64_t to) {
    return (n + to - 1) / to * to;
}

static beryl_status items_init(graph_plan *p, beryl_error *error) {
    const graph *g = p->g;
    const uint64_t align = device_caps_of(p->device)->align_binding;
    if (!base_vec_reserve(p->heap, &p->items, g->tensors.count)) return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    for (graph_value v = 0; v < g->tensors.count; v++) {
        const graph_tensor *t = &g->tensors.data[v];
        item *it = base_vec_add(p->heap, &p->items);
        if (v == 0 || t->base) continue;
        if (t->role == ROLE_STORED) {
            it->kind = ITEM_STORED;
            continue;
        }
        it->bytes = align_up(graph_element_bound(t) * base_type_block_bytes(t->type), 16);
        it->kind = t->role == ROLE_INPUT ? ITEM_INPUT : ITEM_ARENA;
        it->keep = t->role == ROLE_OUTPUT;
        if (it->kind == ITEM_INPUT) {
            it->offset = p->inputs_bytes;
            p->inputs_bytes += (size_t)align_up(it->bytes, align > INPUT_ALIGN ? align : INPUT_ALIGN);
        }
    }
    return BERYL_OK;
}

static void find_lives(graph_plan *p) {
    for (uint32_t s = 0; s < p->steps.count; s++)
        for (uint32_t b = 0; b < p->steps.data[s].n_binding; b++) {
            if (p->steps.data[s].bindings[b].item == UINT32_MAX) continue;
            item *it = &p->items.data[p->steps.data[s].bindings[b].item];
            if (!it->used) it->first = s;
            it->used = true;
            it->last = s;
        }
}

/* Colours that `index` may not have: of items that some step binds with another access than this one. */
static uint32_t forbidden_colours(const graph_plan *p, uint32_t index, const bool *done) {
    uint32_t mask = 0;
    const item *it = &p->items.data[index];
    for (uint32_t s = it->first; s <= it->last; s++) {
        const step *st = &p->steps.data[s];
        for (uint32_t a = 0; a < st->n_binding; a++) {
            if (st->bindings[a].item != index) continue;
            for (uint32_t b = 0; b < st->n_binding; b++) {
                uint32_t other = st->bindings[b].item;
                if (other == UINT32_MAX || other == index || p->items.data[other].kind != ITEM_ARENA || !done[other]) continue;
                if (st->access[a] != st->access[b]) mask |= 1u << p->items.data[other].colour;
            }
        }
    }
    return mask;
}

/* First fit of item `index` among placed items of its colour whose lifetimes meet its own. */
static void fit(graph_plan *p, const uint32_t *order, uint32_t n_placed, uint32_t index, uint64_t align) {
    item *it = &p->items.data[index];
    uint64_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t i = 0; i < n_placed; i++) {
            const item *o = &p->items.data[order[i]];
            bool meets = o->colour == it->colour && (o->keep || o->last >= it->first) && (it->keep || it->last >= o->first);
            if (meets && o->offset < offset + it->bytes && offset < o->offset + o->bytes) {
                offset = align_up(o->offset + o->bytes, align);
                moved = true;
            }
        }
    }
    it->offset = offset;
    if (p->arena_sizes[it->colour] < offset + it->bytes) p->arena_sizes[it->colour] = align_up(offset + it->bytes, 16);
}

static beryl_status place_items(graph_plan *p, beryl_error *error) {
    uint32_t n = (uint32_t)p->items.count, n_order = 0;
    bool *done = base_arena_take(&p->arena, n, sizeof *done);
    uint32_t *order = base_arena_take(&p->arena, n, sizeof *order);
    if (!done || !order) return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    for (uint32_t s = 0; s < p->steps.count; s++)
        for (uint32_t b = 0; b < p->steps.data[s].n_binding; b++) {
            uint32_t index = p->steps.data[s].bindings[b].item;
            if (index == UINT32_MAX || p->items.data[index].kind != ITEM_ARENA || done[index]) continue;
            uint32_t mask = forbidden_colours(p, index, done), colour = 0;
            while (colour < COLOUR_MAX && (mask >> colour & 1)) colour++;
            if (colour == COLOUR_MAX) return base_fail(error, BERYL_UNSUPPORTED, "a plan that needs more than %d arenas", COLOUR_MAX);
            p->items.data[index].colour = colour;
            done[index] = true;
            order[n_order++] = index;
        }
    for (uint32_t i = 1; i < n_order; i++) { /* by size, falling */
        uint32_t v = order[i], k = i;
        while (k > 0 && p->items.data[order[k - 1]].bytes < p->items.data[v].bytes) order[k] = order[k - 1], k--;
        order[k] = v;
    }
    uint64_t align = device_caps_of(p->device)->align_binding;
    for (uint32_t i = 0; i < n_order; i++) fit(p, order, i, order[i], align ? align : 256);
    return BERYL_OK;
}

static beryl_status make_bindings(graph_plan *p, beryl_error *error) {
    beryl_status status = BERYL_OK;
    if (p->inputs_bytes) {
        status = device_buffer_make(p->device, p->inputs_bytes, "inputs", &p->input_buffer, error);
        p->inputs = status == BERYL_OK ? base_heap_take(p->heap, p->inputs_bytes) : NULL;
        if (status == BERYL_OK && !p->inputs) return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    }
    for (int c = 0; status == BERYL_OK && c < COLOUR_MAX; c++)
        if (p->arena_sizes[c]) status = device_buffer_make(p->device, p->arena_sizes[c], "arena", &p->arena_buffers[c], error);
    for (size_t s = 0; status == BERYL_OK && s < p->steps.count; s++) {
        step *st = &p->steps.data[s];
        device_binding bindings[DEVICE_BINDING_MAX];
        for (uint32_t b = 0; b < st->n_binding; b++) {
            const step_binding *from = &st->bindings[b];
            if (from->item == UINT32_MAX) {
                bindings[b] = (device_binding){p->store->buffers.data[from->buffer].id, from->offset, from->size};
                continue;
            }
            const item *it = &p->items.data[from->item];
            bindings[b] = (device_binding){it->kind == ITEM_INPUT ? p->input_buffer : p->arena_buffers[it->colour], it->offset, it->bytes};
        }
        status = device_bindings_make(p->device, st->program, bindings, st->n_binding, &st->made, error);
    }
    return status;
}

/* ---- open, close -------------------------------------------------------------------------------------------- */

/* Generated kernels: where the device takes no WGSL, or BERYL_KERNELS (environment) says so. A module for browsers links
 * nothing that makes them, which this one condition sees to. */
#ifdef __wasm__
static beryl_status choose_kernels(graph_plan *p, beryl_error *error) {
    (void)p, (void)error;
    return BERYL_OK;
}

static lower_fn *lowering_of(const graph_plan *p, const graph_node *node, kernel_kind kind) {
    (void)p;
    return kind == WRITTEN ? lower_table[node->op] : NULL;
}

beryl_status graph_plan_chains(graph *g, graph_store *store, const graph_exec_options *options, beryl_error *error) {
    (void)g, (void)store, (void)options, (void)error;
    return BERYL_OK;
}

const fused_forms *fused_forms_of(const graph_store *store) {
    (void)store;
    return &fused_forms_written;
}

uint32_t graph_plan_languages(base_op op) {
    return lower_table[op] ? DEVICE_LANGUAGE_BIT(DEVICE_WGSL) : 0;
}
#else
uint32_t graph_plan_languages(base_op op) {
    return (lower_table[op] ? DEVICE_LANGUAGE_BIT(DEVICE_WGSL) : 0) | (lower_ir_table[op] ? DEVICE_LANGUAGE_BIT(DEVICE_LANGUAGE_COUNT) - 1 : 0);
}

bool graph_plan_generated(const graph_store *store) {
    return store->kernels == STORE_KERNELS_GENERATED || !(device_caps_of(store->device)->languages & DEVICE_LANGUAGE_BIT(DEVICE_WGSL));
}

const fused_forms *fused_forms_of(const graph_store *store) {
    return store->device && graph_plan_generated(store) ? &fused_forms_generated : &fused_forms_written;
}

static beryl_status choose_kernels(graph_plan *p, beryl_error *error) {
    const uint32_t languages = device_caps_of(p->device)->languages;
    if (p->store->kernels == STORE_KERNELS_UNKNOWN)
        return base_fail(error, BERYL_BAD_INPUT, "BERYL_KERNELS has another word: there are generated and written");
    p->generated = graph_plan_generated(p->store);
    while (p->language < DEVICE_LANGUAGE_COUNT && !(languages >> p->language & 1)) p->language++;
    return languages ? BERYL_OK : base_fail(error, BERYL_UNSUPPORTED, "the device runs no programs");
}

/* NULL: not of this kind. A joined node is of the kind whose forms the pass asked for; any other may be of both. */
static lower_fn *lowering_of(const graph_plan *p, const graph_node *node, kernel_kind kind) {
    const bool chain = node->op == OP_FUSED && node->attr.fused.kind == FUSED_CHAIN;
    if (kind == WRITTEN) return p->generated || chain ? NULL : lower_table[node->op];
    return p->generated || chain || node->op != OP_FUSED ? lower_ir_table[node->op] : NULL;
}

beryl_status graph_plan_chains(graph *g, graph_store *store, const graph_exec_options *options, beryl_error *error) {
    const bool generated = graph_plan_generated(store);
    return options->chains || generated ? graph_pass_chains(g, store, options->chains && generated, error) : BERYL_OK;
}
#endif

typedef struct mark { size_t n_step, n_patch, n_scratch; uint64_t bytes; } mark;

static mark mark_of(const graph_plan *p) {
    return (mark){p->steps.count, p->patches.count, p->scratches.count, p->bytes_pending};
}

/* Takes back what was recorded since. Items of scratch stay, used by no step. */
static void back_to(graph_plan *p, mark m) {
    p->steps.count = m.n_step;
    p->patches.count = m.n_patch;
    p->scratches.count = m.n_scratch;
    p->bytes_pending = m.bytes;
    p->product = 0;
    p->form = (lower_form){0};
    p->texts = (lower_texts){0};
}

#ifdef __wasm__
static beryl_status generate_node(lowering *l, const graph_node *node, lower_fn *lower, mark before, beryl_error *error) {
    (void)before;
    return lower(l, node, error);
}
#else
/* With what tuning found; by the rules where a number of it may not be. */
static beryl_status generate_node(lowering *l, const graph_node *node, lower_fn *lower, mark before, beryl_error *error) {
    lower_choices found;
    beryl_status status = lower_ir_choices_find(l, node, lower, &found, error);
    if (status != BERYL_OK) return status;
    back_to(l->plan, before);
    l->choices = found.n_given || found.draws ? &found : NULL;
    status = lower(l, node, error);
    l->choices = NULL;
    if (!found.refused) return status;
    ir_cache_doubt(l->store->schedules);
    back_to(l->plan, before);
    return lower(l, node, error);
}
#endif

/* Kernels written by hand first; what they refuse is generated. */
static beryl_status lower_node(lowering *l, const graph_node *node, beryl_error *error) {
    const mark before = mark_of(l->plan);
    beryl_error why;
    beryl_status status = lower_refuse(l, node, "there is no kernel", &why);
    for (kernel_kind kind = WRITTEN; status == BERYL_UNSUPPORTED && kind < KERNEL_KINDS; kind++) {
        lower_fn *lower = lowering_of(l->plan, node, kind);
        if (!lower) continue;
        back_to(l->plan, before);
        status = kind == WRITTEN ? lower(l, node, &why) : generate_node(l, node, lower, before, &why);
    }
    if (status != BERYL_OK && error) *error = why;
    return status;
}

static beryl_status lower_all(graph_plan *p, beryl_error *error) {
    lowering l = {.g = p->g, .store = p->store, .device = p->device, .caps = device_caps_of(p->device), .plan = p, .arena = &p->arena,
                  .settings = lower_settings_of(&p->options), .language = (device_language)p->language,
                  .texts = p->options.explained ? &p->texts : NULL, .search = p->options.search, .draws = p->options.draws ? &p->options.draws : NULL};
    beryl_status status = BERYL_OK;
    for (size_t i = 0; status == BERYL_OK && i < p->g->nodes.count; i++)
        if (!p->g->nodes.data[i].dead) status = lower_node(&l, &p->g->nodes.data[i], error);
    return status;
}

beryl_status graph_plan_open(graph *g, graph_store *store, const graph_exec_options *options, graph_plan **out, beryl_error *error) {
    *out = NULL;
    graph_plan *p = base_heap_take(g->heap, sizeof *p);
    if (!p) return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    p->heap = g->heap;
    p->g = g;
    p->store = store;
    p->device = store->device;
    p->options = *options;
    base_arena_init(&p->arena, g->heap);
    beryl_status status = choose_kernels(p, error);
    if (status == BERYL_OK && !options->unfused) status = graph_pass_all(g, store, options, error);
    if (status == BERYL_OK) status = items_init(p, error);
    if (status == BERYL_OK) status = lower_all(p, error);
    find_lives(p);
    if (status == BERYL_OK) status = place_items(p, error);
    if (status == BERYL_OK) status = make_bindings(p, error);
    for (size_t i = 0; i < p->steps.count; i++) p->work += p->steps.data[i].bytes;
    size_t n = p->steps.count * (options->stamped ? 2 : 1) + 10;
    if (status == BERYL_OK && !base_vec_reserve(p->heap, &p->commands, n)) status = base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    if (status != BERYL_OK) {
        graph_plan_close(p);
        return status;
    }
    *out = p;
    return BERYL_OK;
}

void graph_plan_close(graph_plan *p) {
    if (!p) return;
    for (size_t s = 0; s < p->steps.count; s++)
        if (p->steps.data[s].made.id) device_bindings_drop(p->device, p->steps.data[s].made);
    for (int c = 0; c < COLOUR_MAX; c++)
        if (p->arena_buffers[c].id) device_buffer_drop(p->device, p->arena_buffers[c]);
    if (p->input_buffer.id) device_buffer_drop(p->device, p->input_buffer);
    base_heap *heap = p->heap;
    base_heap_give(heap, p->inputs, p->inputs_bytes);
    base_heap_give(heap, p->params, p->params_bytes);
    base_vec_fini(heap, &p->items);
    base_vec_fini(heap, &p->steps);
    base_vec_fini(heap, &p->patches);
    base_vec_fini(heap, &p->commands);
    base_vec_fini(heap, &p->scratches);
    base_arena_fini(&p->arena);
    base_heap_give(heap, p, sizeof *p);
}

beryl_status graph_plan_ready(graph_plan *p, beryl_error *error) {
    for (size_t s = 0; s < p->steps.count; s++) {
        beryl_status status = device_program_status(p->device, p->steps.data[s].program, error);
        if (status != BERYL_OK) return status;
    }
    return BERYL_OK;
}

void *graph_plan_input(graph_plan *p, graph_value input) {
    if (!input || input >= p->g->tensors.count || p->items.data[input].kind != ITEM_INPUT) return NULL;
    return p->inputs + p->items.data[input].offset;
}

/* ---- replay ---------------------------------------------------------------------------------------------------- */

static uint64_t tensor_bytes(const graph_tensor *t, const uint32_t *extents) {
    uint64_t rows = t->rank ? graph_dim_value(t->dim[0], extents) : 1;
    uint64_t each = t->rank ? t->stride[0] : 1;
    return rows * each * base_type_block_bytes(t->type);
}

static beryl_status write_inputs(graph_plan *p, const uint32_t *extents, beryl_error *error) {
    if (p->inputs_bytes == 0) return BERYL_OK;
    if (p->inputs_bytes <= ONE_WRITE_BYTES) return device_write(p->device, p->input_buffer, 0, p->inputs, p->inputs_bytes, error);
    beryl_status status = BERYL_OK;
    for (graph_value v = 1; status == BERYL_OK && v < p->g->tensors.count; v++) {
        const item *it = &p->items.data[v];
        if (it->kind != ITEM_INPUT || !it->used) continue;
        uint64_t bytes = align_up(tensor_bytes(graph_tensor_at(p->g, v), extents), 4);
        status = device_write(p->device, p->input_buffer, it->offset, p->inputs + it->offset, (size_t)bytes, error);
    }
    return status;
}

static bool grid_of(const step *st, const device_caps *caps, const uint32_t *extents, uint32_t *groups) {
    uint64_t n[3];
    for (int i = 0; i < 3; i++) n[i] = (count_value(st->groups[i], extents) + st->per[i] - 1) / st->per[i];
    uint64_t most = caps->groups_max ? caps->groups_max : 65535;
    if (n[0] > most && n[1] == 1) {
        n[1] = (n[0] + most - 1) / most;
        n[0] = (n[0] + n[1] - 1) / n[1];
    }
    for (int i = 0; i < 3; i++) groups[i] = (uint32_t)n[i];
    return n[0] <= most && n[1] <= most && n[2] <= most && n[0] && n[1] && n[2];
}

/* About how long a step takes beside the others: what it reads of weights and states, and a little for itself. */
static uint64_t work_of(const graph_plan *p, size_t s) {
    return p->steps.data[s].bytes + p->work / (8 * p->steps.count) + 1;
}

beryl_status graph_plan_begin(graph_plan *p, const uint32_t *extents, const graph_value *fetch, uint32_t n_fetch, beryl_error *error) {
    p->commands.count = p->at = 0;
    for (uint32_t i = 1; i <= p->g->n_extent; i++)
        if (extents[i] == 0 || extents[i] > p->g->extents[i].bound)
            return base_fail(error, BERYL_MISUSE, "extent %s is %u, its bound %u", p->g->extents[i].name, extents[i], p->g->extents[i].bound);
    beryl_status status = write_inputs(p, extents, error);
    if (status != BERYL_OK) return status;
    for (size_t i = 0; i < p->patches.count; i++) {
        uint32_t value = (uint32_t)count_value(p->patches.data[i].count, extents);
        memcpy(p->params + p->patches.data[i].at, &value, sizeof value);
    }
    for (size_t s = 0; s < p->steps.count; s++) {
        step *st = &p->steps.data[s];
        if ((p->options.stamped && s < STAMP_MAX) || (p->options.framed && !s)) p->commands.data[p->commands.count++] = (device_command){.kind = DEVICE_STAMP};
        device_command *c = &p->commands.data[p->commands.count++];
        *c = (device_command){.kind = DEVICE_DISPATCH,
                              .dispatch = {st->program, st->made, {0, 0, 0}, (uint32_t)s * DEVICE_PARAM_ALIGN}};
        if (!grid_of(st, device_caps_of(p->device), extents, c->dispatch.groups))
            return base_fail(error, BERYL_UNSUPPORTED, "%s: a grid larger than the device's", st->label);
        memcpy(st->groups_run, c->dispatch.groups, sizeof st->groups_run);
    }
    if (p->options.stamped || p->options.framed) p->commands.data[p->commands.count++] = (device_command){.kind = DEVICE_STAMP};
    for (uint32_t i = 0; i < n_fetch; i++) {
        const item *it = fetch[i] < p->g->tensors.count ? &p->items.data[fetch[i]] : NULL;
        if (!it || !it->used || it->kind != ITEM_ARENA || !it->keep) return base_fail(error, BERYL_MISUSE, "a value that is no output is read back");
        p->commands.data[p->commands.count++] = (device_command){.kind = DEVICE_FETCH,
            .fetch = {p->arena_buffers[it->colour], it->offset, align_up(tensor_bytes(graph_tensor_at(p->g, fetch[i]), extents), 4)}};
    }
    return BERYL_OK;
}

/* Where the next part ends. A step belongs to the part in which its middle lies: parts of one size are the same steps in every
 * run, so that a device meets the same lists again. */
static size_t part_end(const graph_plan *p, uint32_t parts) {
    uint64_t all = 0, before = 0;
    for (size_t s = 0; s < p->steps.count; s++) {
        if (s == p->at) before = all;
        all += work_of(p, s);
    }
    const uint64_t size = all / parts + 1, part = (before + work_of(p, p->at) / 2) / size;
    size_t end = p->at;
    do before += work_of(p, end++);
    while (end < p->steps.count && (before + work_of(p, end) / 2) / size == part);
    return end;
}

beryl_status graph_plan_continue(graph_plan *p, uint32_t parts, graph_part *part, device_ticket *ticket, beryl_error *error) {
    const size_t n_step = p->steps.count;
    const bool whole = parts <= 1 || p->options.stamped || p->options.framed;
    const size_t end = whole || p->at >= n_step ? n_step : part_end(p, parts);
    const bool last = end >= n_step;
    const size_t n_command = last ? p->commands.count - p->at : end - p->at;
    p->encoded = base_time();
    const device_submit_desc desc = {p->commands.data + p->at, n_command, p->params, n_step * DEVICE_PARAM_ALIGN};
    const beryl_status status = device_submit(p->device, &desc, ticket, error);
    if (status != BERYL_OK) return status;
    uint64_t all = 0, mine = 0;
    for (size_t s = 0; s < n_step; s++) {
        all += work_of(p, s);
        if (s >= p->at && s < end) mine += work_of(p, s);
    }
    *part = (graph_part){.share = all ? (float)((double)mine / (double)all) : 1, .steps = (uint32_t)(end - p->at), .last = last};
    p->at = end;
    return BERYL_OK;
}

beryl_status graph_plan_fetched(graph_plan *p, device_ticket ticket, uint32_t n, const void **data, beryl_error *error) {
    size_t size;
    if (p->options.stamped || p->options.framed) {
        uint64_t ns[STAMP_MAX + 1];
        uint32_t n_stamp = STAMP_MAX + 1;
        const bool known = device_stamps(p->device, ticket, ns, &n_stamp, NULL) == BERYL_OK && n_stamp > 1;
        p->seconds = known ? (double)(ns[n_stamp - 1] - ns[0]) * 1e-9 : 0;
        for (uint32_t s = 0; known && p->options.stamped && s + 1 < n_stamp && s < p->steps.count; s++)
            p->steps.data[s].microseconds = (double)(ns[s + 1] - ns[s]) * 1e-3;
    }
    return device_fetched(p->device, ticket, n, data, &size, error);
}

/* ---- facts --------------------------------------------------------------------------------------------------------- */

void graph_plan_describe(const graph_plan *p, graph_exec_info *info) {
    *info = (graph_exec_info){.dispatches = (uint32_t)p->steps.count, .programs = (uint32_t)p->store->programs.count};
    for (size_t s = 0; s < p->steps.count; s++) info->bytes += p->steps.data[s].bytes;
    for (int c = 0; c < COLOUR_MAX; c++) info->arena_bytes += info->arenas[c] = p->arena_sizes[c];
}

bool graph_plan_node_program(const graph_plan *p, uint32_t node, uint32_t i, device_program *out) {
    for (size_t s = 0; s < p->steps.count; s++) {
        if (p->steps.data[s].node != node || i-- > 0) continue;
        *out = p->steps.data[s].program;
        return true;
    }
    return false;
}

bool graph_plan_step_at(const graph_plan *p, uint32_t i, graph_exec_step *out) {
    if (i >= p->steps.count) return false;
    const step *st = &p->steps.data[i];
    *out = (graph_exec_step){st->label, st->bytes, st->microseconds, {st->groups_run[0], st->groups_run[1], st->groups_run[2]},
                              st->product, st->form};
    return true;
}

double graph_plan_seconds(const graph_plan *p) {
    return p->seconds;
}

double graph_plan_encoded(const graph_plan *p) {
    return p->encoded;
}

bool graph_plan_texts_at(const graph_plan *p, uint32_t i, graph_exec_texts *out) {
    if (i >= p->steps.count || !p->options.explained) return false;
    const device_program program = p->steps.data[i].program;
    for (i = 0; p->steps.data[i].program.id != program.id; i++) {} /* the first step of a program has its texts */
    *out = p->steps.data[i].texts;
    out->program = program;
    return true;
}

bool graph_plan_print_step(const graph_plan *p, uint32_t i, base_text *out) {
    if (i >= p->steps.count) return false;
    const step *st = &p->steps.data[i];
    base_text_print(out, "%4u ", i);
    if (p->options.stamped) base_text_print(out, "%8.2f us ", st->microseconds);
    base_text_print(out, "%10llu bytes  %-52s grid", (unsigned long long)st->bytes, st->label);
    for (int d = 0; d < 3; d++) {
        const char *extent = st->groups[d].extent ? p->g->extents[st->groups[d].extent].name : "";
        base_text_print(out, " %llu%s%s/%u", (unsigned long long)st->groups[d].factor, *extent ? "*" : "", extent, st->per[d]);
    }
    for (uint32_t b = 0; b < st->n_binding; b++) {
        const step_binding *from = &st->bindings[b];
        base_text_print(out, " %s%s", st->names ? st->names[b].name : "", st->names ? "=" : "");
        if (from->item == UINT32_MAX) {
            base_text_print(out, "store%u+%llu", from->buffer, (unsigned long long)from->offset);
        } else {
            const item *it = &p->items.data[from->item];
            base_text_print(out, "%s%u+%llu", it->kind == ITEM_INPUT ? "in" : "a", it->colour, (unsigned long long)it->offset);
        }
        base_text_add(out, st->access[b] == DEVICE_READ ? "r" : "w", 1);
    }
    base_text_add(out, "\n", 1);
    return true;
}

void graph_plan_print(const graph_plan *p, base_text *out) {
    for (uint32_t i = 0; graph_plan_print_step(p, i, out); i++) {}
}
