/* kernel.c - from a kernel in IR to a step of the plan, and the instructions that many kernels
 * share.
 *
 * The one idea: a hash of a kernel's instructions is its name. What has been compiled under that
 * name for this device is not verified and not passed through passes and generator again, so that
 * building the same kernel for each of a model's layers costs little. */
#include "tile/kernel.h"
#include "base/build.h"
#include "base/error.h"
#include "codegen/codegen.h"

#include <stdio.h>
#include <string.h>

enum {
    HASH_SEED = 5,
    WIDE_GPU = 4,
    LANES_MAX = 256,
    ITEMS = 16, /* lanes of a vector, at most */
    JOINED = 8
};

/* ---- bindings and parameters ----------------------------------------------------------------- */

bool tile_is_host(const lowering *l) {
    return BUILD_HAS_C_TEXTS && device_is_compiled(l->caps) && !l->caps->loop_max;
}

bool tile_serial(const lowering *l) {
    return device_is_processor(l->caps);
}

uint32_t tile_units(const device_caps *caps) {
    return caps->compute_units ? caps->compute_units : 128;
}

/* Intel's drivers choose 8, 16 or 32 for each program. */
uint32_t tile_span(const device_caps *caps) {
    return caps->vendor == 0x8086 ? 8 : caps->subgroup_size < 32 ? caps->subgroup_size : 32;
}

bool tile_is_wgsl(const device_caps *caps) {
    return !BUILD_HAS_C_TEXTS || (caps->languages & DEVICE_LANGUAGE_BIT(DEVICE_WGSL));
}

uint32_t tile_lanes(const lowering *l, uint32_t n) {
    if (tile_serial(l) && !(l->caps->loop_max && n > l->caps->loop_max / 4)) return 1;
    uint32_t lanes = 32;
    while (lanes < LANES_MAX && lanes * 4 < n) lanes *= 2;
    return lanes > l->caps->workgroup_invocations ? l->caps->workgroup_invocations : lanes;
}

uint32_t tile_lanes_chosen(lowering *l, uint32_t n) {
    const device_caps *caps = l->caps;
    const uint32_t rule = tile_lanes(l, n),
                   most = caps->kind == DEVICE_HOST ? 1 : caps->workgroup_invocations;
    uint32_t least = tile_serial(l) ? 1 : 16;
    while (caps->loop_max && n / least > caps->loop_max / 4) least *= 2;
    return tile_choose(l, "lanes", rule, least, most);
}

static ir_builder *begin(tile_kernel *k, lowering *l, const char *name, uint32_t lanes,
                         uint32_t n_item) {
    *k = (tile_kernel){.l = l, .name = name, .lanes = lanes, .n_item = n_item};
    k->wide = l->caps->kind == DEVICE_HOST || (lanes == 1 && device_is_compiled(l->caps))
                  ? TILE_RUN
                  : WIDE_GPU;
    base_arena_init(&k->arena, l->store->heap);
    return k->b = ir_begin(&k->arena, name, lanes * n_item, 1, 1);
}

ir_builder *tile_begin(tile_kernel *k, lowering *l, const char *name, uint32_t lanes) {
    return begin(k, l, name, lanes, 1);
}

ir_builder *tile_begin_items(tile_kernel *k, lowering *l, const char *name) {
    return begin(k, l, name, 1, device_makes_vectors(l->caps) ? ITEMS : 1);
}

ir_id tile_item(tile_kernel *k) {
    ir_id group = ir_group(k->b, 0);
    return k->n_item == 1 ? group : ir_fma(k->b, group, ir_u32(k->b, k->n_item), ir_local(k->b, 0));
}

ir_id tile_items(tile_kernel *k) {
    return tile_mul(k->b, ir_groups(k->b, 0), k->n_item);
}

ir_type tile_element(base_type type) {
    switch ((int)type) {
    case TYPE_F32: return IR_F32;
    case TYPE_F16: return IR_F16;
    case TYPE_BF16: return IR_BF16;
    case TYPE_F64: return IR_F64;
    case TYPE_I8: return IR_I8;
    case TYPE_I16: return IR_I16;
    case TYPE_I32: return IR_I32;
    case TYPE_I64: return IR_I64;
    case TYPE_U8:
    case TYPE_BOOL: return IR_U8;
    case TYPE_U16: return IR_U16;
    case TYPE_U64: return IR_U64;
    default: return IR_U32;
    }
}

static ir_memory add_buffer(tile_kernel *k, const char *name, ir_type type, ir_access access,
                            tile_place place) {
    if (k->n_place < IR_BUFFER_MAX) {
        k->names[k->n_place] = name;
        k->places[k->n_place++] = place;
    }
    return ir_buffer(k->b, type, access, name);
}

/* What caches hold of it would be gone before it is read. Not of a size that a run chooses. */
static bool is_past_caches(const lowering *l, graph_value v) {
    enum { PAST_MIN = 16 << 20 };
    const graph_tensor *t = graph_tensor_at(l->g, v);
    if (!tile_is_host(l)) return false;
    for (uint32_t i = 0; i < t->rank; i++)
        if (t->dim[i].extent) return false;
    return graph_tensor_at(l->g, graph_base_of(l->g, v))->role != ROLE_STORED &&
           graph_element_bound(t) * base_type_block_bytes(t->type) >= PAST_MIN;
}

ir_memory tile_bind(tile_kernel *k, const char *name, graph_value v, ir_type type,
                    ir_access access) {
    if (access == IR_READ_WRITE && is_past_caches(k->l, v)) access = IR_WRITE_PAST;
    return add_buffer(k, name, type, access, (tile_place){.kind = TILE_VALUE, .value = v});
}

ir_type tile_sum_type(ir_type element) {
    switch ((int)element) {
    case IR_F16:
    case IR_BF16: return IR_F32;
    case IR_I8:
    case IR_I16: return IR_I32;
    case IR_U8:
    case IR_U16: return IR_U32;
    default: return element;
    }
}

ir_memory tile_read(tile_kernel *k, const char *name, graph_value v) {
    return tile_bind(k, name, v, tile_element(graph_tensor_at(k->l->g, v)->type), IR_READ);
}

ir_memory tile_write(tile_kernel *k, const char *name, graph_value v) {
    return tile_bind(k, name, v, tile_element(graph_tensor_at(k->l->g, v)->type), IR_READ_WRITE);
}

ir_memory tile_shard(tile_kernel *k, const char *name, graph_value v, uint32_t shard,
                     ir_type type) {
    return add_buffer(k, name, type, IR_READ,
                      (tile_place){.kind = TILE_SHARD, .value = v, .shard = shard});
}

void tile_reads_once(tile_kernel *k, ir_memory weights) {
    if (BUILD_HAS_C_TEXTS && k->l->language == DEVICE_CUDA_C) ir_buffer_once(k->b, weights);
}

ir_memory tile_weights(tile_kernel *k, const char *name, const graph_value *weights, uint32_t n,
                       ir_type type, uint32_t *word) {
    return tile_stored(k, name, weights, n, type, IR_READ, word);
}

ir_memory tile_stored(tile_kernel *k, const char *name, const graph_value *weights, uint32_t n,
                      ir_type type, ir_access access, uint32_t *word) {
    tile_place place = {.kind = TILE_WEIGHTS, .n_weight = n};
    uint64_t low = UINT64_MAX;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t at = lower_stored(k->l, weights[i])->shard[0].offset;
        if (i < TILE_STORED_MAX) place.weights[i] = weights[i];
        if (at < low) low = at;
    }
    for (uint32_t i = 0; i < n; i++)
        word[i] = (uint32_t)((lower_stored(k->l, weights[i])->shard[0].offset - low) / 4);
    return add_buffer(k, name, type, access, place);
}

ir_memory tile_scratch(tile_kernel *k, const char *name, uint32_t key, uint64_t bytes, ir_type type,
                       ir_access access) {
    return add_buffer(k, name, type, access,
                      (tile_place){.kind = TILE_SCRATCH, .key = key, .bytes = bytes});
}

void tile_expect(tile_kernel *k, uint32_t first, uint32_t step) {
    if (!k->n_place) return;
    k->places[k->n_place - 1].first = first;
    k->places[k->n_place - 1].step = step;
}

static ir_id add_argument(tile_kernel *k, ir_type type, tile_argument a) {
    if (k->n_argument < IR_PARAM_MAX) k->arguments[k->n_argument++] = a;
    return ir_param(k->b, type, a.name);
}

ir_id tile_u32(tile_kernel *k, const char *name, uint32_t value) {
    return add_argument(k, IR_U32, (tile_argument){.name = name, .count = {value, 0}});
}

ir_id tile_f32(tile_kernel *k, const char *name, float value) {
    return add_argument(k, IR_F32,
                        (tile_argument){.name = name, .is_float = true, .number = value});
}

ir_id tile_count(tile_kernel *k, const char *name, lower_count count) {
    if (!count.extent) return ir_u32(k->b, (uint32_t)count.factor);
    return add_argument(k, IR_U32, (tile_argument){.name = name, .count = count});
}

/* ---- from kernel to step --------------------------------------------------------------------- */

/* What the plan wants to know of a program's text. */
static beryl_status reflect(const ir_kernel *kernel, lower_kernel *out, beryl_error *error) {
    *out = (lower_kernel){.n_binding = kernel->n_buffer, .n_param = kernel->n_param};
    if (kernel->n_buffer > DEVICE_BINDING_MAX || kernel->n_param * 4 > DEVICE_PARAM_MAX)
        return base_fail(error, BERYL_UNSUPPORTED, "kernel %s: %u buffers and %u parameters",
                         kernel->name, kernel->n_buffer, kernel->n_param);
    for (uint32_t i = 0; i < kernel->n_buffer; i++) {
        out->bindings[i].access =
            kernel->buffers[i].access == IR_READ ? DEVICE_READ : DEVICE_READ_WRITE;
        snprintf(out->bindings[i].name, sizeof out->bindings[i].name, "%.*s", LOWER_NAME_MAX - 1,
                 kernel->buffers[i].name);
    }
    for (uint32_t i = 0; i < kernel->n_param; i++) {
        out->params[i].is_float = kernel->params[i].type == IR_F32;
        snprintf(out->params[i].name, sizeof out->params[i].name, "%.*s", LOWER_NAME_MAX - 1,
                 kernel->params[i].name);
    }
    memcpy(out->workgroup, kernel->workgroup, sizeof out->workgroup);
    out->uses_subgroups = kernel->subgroup_size > 1;
    for (uint32_t i = 0; i < kernel->n_code && !out->uses_dot; i++)
        out->uses_dot = kernel->code[i].op == IR_DOT4_I8 || kernel->code[i].op == IR_DOT4_U8;
    return BERYL_OK;
}

static beryl_status print(base_arena *arena, const ir_kernel *kernel, const char **out,
                          size_t *size, beryl_error *error) {
    base_text text;
    base_text_init(&text, arena->heap);
    ir_print(&text, kernel);
    *out = text.failed ? NULL : base_arena_text(arena, text.data, text.size);
    *size = text.size;
    base_text_fini(&text);
    return *out ? BERYL_OK : base_no_memory(error);
}

/* The kernel after the passes, as text of the device's language; what takes the IR itself gets
 * it as it was lowered, with its marks. */
static beryl_status generate(lowering *l, base_arena *arena, const ir_kernel *kernel,
                             const ir_schedule *schedule, lower_kernel *out, const char **entry) {
    device_program_desc desc;
    beryl_status status =
        l->texts ? print(l->arena, kernel, &l->texts->before, &out->size, l->error) : BERYL_OK;
    if (status == BERYL_OK && l->language == DEVICE_IR)
        return print(arena, kernel, (const char **)&out->text, &out->size, l->error);
    if (status == BERYL_OK) status = ir_optimise(arena, kernel, schedule, &kernel, l->error);
    if (status == BERYL_OK && l->texts)
        status = print(l->arena, kernel, &l->texts->after, &out->size, l->error);
    if (status != BERYL_OK) return status;
    memcpy(out->workgroup, kernel->workgroup, sizeof out->workgroup);
    status = codegen_make(arena, kernel, l->language, l->caps, &desc, l->error);
    if (status != BERYL_OK) return status;
    out->size = desc.source_size;
    out->text = (char *)(uintptr_t)desc.source;
    out->launch_bytes = desc.launch_bytes;
    out->uses_f16 = desc.uses_f16;
    out->uses_subgroups = desc.uses_subgroups;
    *entry = desc.entry;
    return BERYL_OK;
}

static uint64_t schedule_hash(const ir_schedule *s, uint64_t seed) {
    uint32_t words[IR_DIM_MAX * 9 + 4 + IR_PARAM_MAX], n = 0;
    for (uint32_t d = 0; d < IR_DIM_MAX; d++) {
        const ir_schedule_dim *dim = &s->dims[d];
        const uint32_t numbers[] = {dim->group, dim->lane,   dim->split, dim->ahead, dim->lanes,
                                    dim->block, dim->unroll, dim->stage, dim->wide};
        memcpy(words + n, numbers, sizeof numbers);
        n += sizeof numbers / sizeof *numbers;
    }
    words[n++] = s->subgroup;
    words[n++] = s->vector;
    words[n++] = s->workgroup_bytes;
    words[n++] =
        s->fragments | (uint32_t)s->direct << 1 | s->rounds << 2 | (uint32_t)s->tells << 31;
    memcpy(words + n, s->param_multiple, sizeof s->param_multiple);
    return base_hash(words, sizeof words, seed);
}

/* schedule NULL: none. */
static beryl_status text_of(lowering *l, base_arena *arena, const ir_kernel *kernel,
                            const ir_schedule *schedule, lower_kernel *out, const char **entry) {
    beryl_status status = reflect(kernel, out, l->error);
    if (status != BERYL_OK) return status;
    out->hash = ir_hash(kernel, HASH_SEED + (uint32_t)l->language);
    if (schedule) out->hash = schedule_hash(schedule, out->hash);
    if (lower_program_known(l, out->hash)) return BERYL_OK;
    status = ir_verify(l->store->heap, kernel, l->error);
    return status == BERYL_OK ? generate(l, arena, kernel, schedule, out, entry) : status;
}

static beryl_status step_of(tile_kernel *k, const ir_kernel *kernel, const ir_schedule *schedule,
                            const lower_count *counts, const uint32_t *per) {
    lower_kernel text;
    const char *entry = NULL;
    beryl_status status = text_of(k->l, &k->arena, kernel, schedule, &text, &entry);
    if (status != BERYL_OK) return status;
    lower_step *s = lower_step_begin(k->l, k->name, entry, &text);
    for (uint32_t i = 0; i < k->n_place; i++) {
        const tile_place *p = &k->places[i];
        if (p->kind == TILE_VALUE) lower_bind(s, k->names[i], p->value);
        if (p->kind == TILE_SHARD) lower_bind_shard(s, k->names[i], p->value, p->shard);
        if (p->kind == TILE_SCRATCH) lower_bind_scratch(s, k->names[i], p->key, p->bytes);
        uint32_t word[TILE_STORED_MAX];
        if (p->kind == TILE_WEIGHTS)
            lower_bind_weights(s, k->names[i], p->weights, p->n_weight, word);
    }
    for (uint32_t i = 0; i < k->n_argument; i++) {
        const tile_argument *a = &k->arguments[i];
        if (a->is_float) lower_f32(s, a->name, a->number);
        else lower_count_param(s, a->name, a->count);
    }
    lower_groups_3d(s, counts[0], per[0], counts[1], per[1], counts[2], per[2]);
    if (schedule && !k->joins) lower_groups_share(s);
    if (k->once) lower_once(s);
    return lower_step_end(s);
}

/* Powers of two alone, and no large ones, so that shapes share a kernel. */
static uint32_t promise_of(const tile_argument *a) {
    enum { MOST = 256 };
    uint32_t multiple = 1;
    if (a->is_float || a->count.extent) return 1;
    while (multiple < MOST && a->count.factor % (2 * (uint64_t)multiple) == 0) multiple *= 2;
    return multiple;
}

static void promise(const tile_kernel *k, ir_schedule *schedule) {
    for (uint32_t i = 0; i < k->n_argument; i++)
        schedule->param_multiple[i] = promise_of(&k->arguments[i]);
}

static bool is_trial(const tile_kernel *k) {
    return k->l->choices && k->l->choices->trial;
}

/* Takes the kernel's arena. */
static beryl_status keep_trial(tile_kernel *k, tile_made *made) {
    tile_made *to = base_vec_add(k->l->store->heap, &k->l->choices->made);
    made->k = *k;
    if (to) *to = *made;
    else base_arena_fini(&k->arena);
    return to ? BERYL_OK : base_no_memory(k->l->error);
}

beryl_status tile_end_3d(tile_kernel *k, lower_count x, uint32_t per_x, lower_count y,
                         uint32_t per_y, lower_count z) {
    tile_made made = {.counts = {x, y, z}, .per = {per_x * k->n_item, per_y, 1}};
    beryl_status status = is_trial(k) ? ir_finish(k->b, &made.kernel, k->l->error)
                                      : ir_take(k->b, &made.kernel, k->l->error);
    if (status == BERYL_OK && is_trial(k)) return keep_trial(k, &made);
    ir_schedule joined = {.vector = JOINED};
    if (k->joins) promise(k, &joined);
    if (status == BERYL_OK)
        status = step_of(k, made.kernel, k->joins ? &joined : NULL, made.counts, made.per);
    base_arena_fini(&k->arena);
    return status;
}

/* What it gets on this device, with what the plan promises of its parameters. */
static void schedule_of(const tile_kernel *k, const ir_kernel *plain,
                        const uint64_t extents[IR_DIM_MAX], ir_schedule *schedule) {
    ir_schedule_default(plain, k->l->caps, extents, schedule);
    promise(k, schedule);
}

beryl_status tile_end_marked(tile_kernel *k, const lower_count counts[IR_DIM_MAX],
                             const uint64_t extents[IR_DIM_MAX]) {
    const ir_kernel *kernel;
    ir_schedule schedule;
    lower_count along[3] = {{1, 0}, {1, 0}, {1, 0}};
    uint32_t per[3] = {1, 1, 1};
    beryl_status status = ir_finish(k->b, &kernel, k->l->error);
    if (status == BERYL_OK && !is_trial(k)) {
        schedule_of(k, kernel, extents, &schedule);
        if (k->rounds) ir_schedule_rounds(&schedule, k->rounds);
        else {
            status = tile_search(k, kernel, counts, extents, &schedule);
            tile_recall(k, kernel, extents, &schedule);
        }
        for (uint32_t d = 0; d < IR_DIM_MAX; d++) {
            const ir_schedule_dim *dim = &schedule.dims[d];
            if (!dim->group) continue;
            along[dim->group - 1] = counts[d];
            per[dim->group - 1] = ir_schedule_tile(&schedule, d);
        }
        if (status == BERYL_OK) status = step_of(k, kernel, &schedule, along, per);
    }
    base_arena_fini(&k->arena);
    return status;
}

beryl_status tile_end(tile_kernel *k, lower_count count, uint32_t per) {
    return tile_end_3d(k, count, per, (lower_count){1, 0}, 1, (lower_count){1, 0});
}

/* ---- instructions ---------------------------------------------------------------------------- */

void tile_load_some(ir_builder *b, ir_memory from, ir_id at, uint32_t n, ir_id *out) {
    const uint32_t wide = n % 4 == 0 ? 4 : n;
    for (uint32_t i = 0; i < n; i += wide) {
        const ir_id x = ir_load(b, from, tile_add(b, at, i), wide);
        for (uint32_t j = 0; j < wide; j++) out[i + j] = wide == 1 ? x : ir_extract(b, x, j);
    }
}

ir_id tile_group(ir_builder *b) {
    return ir_fma(b, ir_group(b, 1), ir_groups(b, 0), ir_group(b, 0));
}

ir_id tile_lane(tile_kernel *k) {
    return ir_fma(k->b, tile_group(k->b), ir_u32(k->b, k->lanes), ir_local(k->b, 0));
}

/* The value of a constant u32, and whether x is one. */
static bool is_number(ir_builder *b, ir_id x, uint32_t *number) {
    const ir_instruction *i = ir_at(b, x);
    if (!i || i->op != IR_CONST || i->type != IR_U32 || i->width != 1) return false;
    *number = (uint32_t)i->imm;
    return true;
}

static ir_id with_number(ir_builder *b, ir_op op, ir_id x, uint32_t y) {
    const ir_instruction *i = ir_at(b, x);
    return i ? ir_binary(b, op, x, ir_bits(b, (ir_type)i->type, i->width, y)) : IR_NO_ID;
}

ir_id tile_add(ir_builder *b, ir_id x, uint32_t y) {
    uint32_t n;
    if (is_number(b, x, &n)) return ir_u32(b, n + y);
    return y ? with_number(b, IR_ADD, x, y) : x;
}

ir_id tile_mul(ir_builder *b, ir_id x, uint32_t y) {
    uint32_t n;
    if (is_number(b, x, &n)) return ir_u32(b, n * y);
    return y == 1 ? x : with_number(b, IR_MUL, x, y);
}

ir_id tile_div(ir_builder *b, ir_id x, uint32_t y) {
    uint32_t n;
    if (is_number(b, x, &n)) return ir_u32(b, y ? n / y : 0);
    return y == 1 ? x : with_number(b, IR_DIV, x, y);
}

ir_id tile_rem(ir_builder *b, ir_id x, uint32_t y) {
    uint32_t n;
    if (is_number(b, x, &n)) return ir_u32(b, y ? n % y : 0);
    return y == 1 ? ir_u32(b, 0) : with_number(b, IR_MOD, x, y);
}

ir_id tile_and(ir_builder *b, ir_id x, uint32_t y) {
    return with_number(b, IR_AND, x, y);
}

ir_id tile_shr(ir_builder *b, ir_id x, uint32_t y) {
    return y ? with_number(b, IR_SHR, x, y) : x;
}

ir_id tile_shl(ir_builder *b, ir_id x, uint32_t y) {
    return y ? with_number(b, IR_SHL, x, y) : x;
}

ir_id tile_ramp(ir_builder *b, uint32_t width, uint32_t first, uint32_t step) {
    ir_id parts[TILE_RUN];
    for (uint32_t i = 0; i < width; i++) parts[i] = ir_u32(b, first + i * step);
    return width == 1 ? parts[0] : ir_compose(b, parts, width);
}

static ir_id interleaved(ir_builder *b, ir_id x, ir_id y, bool high) {
    const uint64_t wide = ir_at(b, x) ? ir_at(b, x)->width : 1;
    uint64_t order = 0;
    for (uint64_t i = 0; i < wide; i++)
        order |= (i / 2 + (high ? wide / 2 : 0) + (i % 2 ? wide : 0)) << (4 * i);
    return ir_swizzle(b, ir_compose(b, (ir_id[]){x, y}, 2), (uint32_t)wide, order);
}

/* Each round moves a bit of a number's place in x to the lower end. */
void tile_turn(ir_builder *b, ir_id *x, uint32_t n) {
    ir_id y[TILE_TURN_MAX];
    for (uint32_t left = n; left > 1; left /= 2) {
        for (uint32_t i = 0; i < n; i++) y[i] = interleaved(b, x[i / 2], x[i / 2 + n / 2], i % 2);
        memcpy(x, y, n * sizeof *y);
    }
}

ir_id tile_load_vector(tile_kernel *k, ir_memory from, ir_id index, bool aligned) {
    ir_id parts[TILE_RUN];
    if (aligned) return ir_cast(k->b, IR_F32, ir_load(k->b, from, index, k->wide));
    for (uint32_t e = 0; e < k->wide; e++)
        parts[e] = ir_cast(k->b, IR_F32, ir_load(k->b, from, tile_add(k->b, index, e), 1));
    return ir_compose(k->b, parts, k->wide);
}

void tile_load_run(tile_kernel *k, ir_memory from, ir_id index, bool aligned, ir_id *runs) {
    for (uint32_t i = 0; i < TILE_RUN / k->wide; i++)
        runs[i] = tile_load_vector(k, from, tile_add(k->b, index, i * k->wide), aligned);
}

/* Halves a vector until one lane is left. */
static ir_id fold(ir_builder *b, ir_op op, ir_id x) {
    const ir_instruction *i = ir_at(b, x);
    uint32_t width = i ? i->width : 1;
    for (; width > 1; width /= 2) {
        uint64_t low = 0, high = 0;
        for (uint32_t e = 0; e < width / 2; e++) {
            low |= (uint64_t)e << (4 * e);
            high |= (uint64_t)(e + width / 2) << (4 * e);
        }
        ir_id a = width == 2 ? ir_extract(b, x, 0) : ir_swizzle(b, x, width / 2, low);
        ir_id c = width == 2 ? ir_extract(b, x, 1) : ir_swizzle(b, x, width / 2, high);
        x = ir_binary(b, op, a, c);
    }
    return x;
}

ir_id tile_sum_vector(ir_builder *b, ir_id x) {
    return fold(b, IR_ADD, x);
}

ir_id tile_max_vector(ir_builder *b, ir_id x) {
    return fold(b, IR_MAX, x);
}

ir_id tile_min_vector(ir_builder *b, ir_id x) {
    return fold(b, IR_MIN, x);
}

ir_id tile_bytes_less(ir_builder *b, ir_id x, ir_id y) {
    ir_id tops = ir_bits(b, IR_U32, 4, 0x80808080u),
          low = ir_sub(b, ir_or(b, x, tops), tile_and(b, y, 0x7f7f7f7fu));
    return ir_xor(b, low, ir_and(b, ir_xor(b, ir_xor(b, x, y), tops), tops));
}

ir_id tile_half(ir_builder *b, ir_id x) {
    const uint32_t width = ir_at(b, x)->width;
    const ir_id most = ir_number(b, IR_F32, width, 65504),
                least = ir_number(b, IR_F32, width, -65504);
    return ir_cast(b, IR_F16, ir_max(b, ir_min(b, x, most), least));
}

ir_id tile_before(ir_builder *b, ir_type type, ir_id x) {
    const ir_instruction *i = ir_at(b, x),
                         *from = i && i->op == IR_CAST ? ir_at(b, i->in[0]) : NULL;
    return from && from->type == type && i->type == IR_F32 ? i->in[0] : IR_NO_ID;
}

/* Of each subgroup by its own op; what they made, by the first lane. */
static void reduce_subgroups(tile_kernel *k, ir_op op, ir_id x, ir_memory at, uint32_t size) {
    ir_builder *b = k->b;
    const ir_id lane = ir_local(b, 0);
    ir_subgroup(b, size);
    x = op == IR_ADD   ? ir_subgroup_add(b, x)
        : op == IR_MAX ? ir_subgroup_max(b, x)
                       : ir_subgroup_min(b, x);
    ir_if(b, ir_eq(b, ir_subgroup_lane(b), ir_u32(b, 0)));
    ir_store(b, at, tile_div(b, lane, size), x);
    ir_end(b);
    if (k->lanes == size) return;
    ir_barrier(b);
    ir_if(b, ir_eq(b, lane, ir_u32(b, 0)));
    ir_id all = ir_load(b, at, lane, 1);
    for (uint32_t i = 1; i < k->lanes / size; i++)
        all = ir_binary(b, op, all, ir_load(b, at, ir_u32(b, i), 1));
    ir_store(b, at, lane, all);
    ir_end(b);
}

ir_id tile_reduce(tile_kernel *k, ir_op op, ir_id x, ir_memory at) {
    if (k->lanes == 1) return x;
    ir_builder *b = k->b;
    const uint32_t size = k->l->caps->subgroups ? k->l->caps->subgroup_size : 0;
    if (size > 1 && k->lanes % size == 0 && (op == IR_ADD || op == IR_MAX || op == IR_MIN)) {
        reduce_subgroups(k, op, x, at, size);
        return ir_uniform_load(b, at, ir_u32(b, 0));
    }
    ir_id lane = ir_local(b, 0);
    ir_store(b, at, lane, x);
    for (uint32_t half = k->lanes / 2; half > 0; half /= 2) {
        ir_barrier(b);
        ir_if(b, ir_lt(b, lane, ir_u32(b, half)));
        ir_store(
            b, at, lane,
            ir_binary(b, op, ir_load(b, at, lane, 1), ir_load(b, at, tile_add(b, lane, half), 1)));
        ir_end(b);
    }
    return ir_uniform_load(b, at, ir_u32(b, 0));
}

/* x / (1 + exp(-2 u)) with u = sqrt(2 / pi) (x + 0.044715 x^3): the same as with tanh, and
 * nothing overflows. */
ir_id tile_gelu(ir_builder *b, ir_id x) {
    const ir_instruction *i = ir_at(b, x);
    const uint32_t width = i ? i->width : 1;
    const ir_type type = i ? i->type : IR_F32;
    const double slope = -2 * 0.79788456080286535588;
    const ir_id steep = ir_fma(b, ir_mul(b, x, x), ir_number(b, type, width, slope * 0.044715),
                               ir_number(b, type, width, slope));
    const ir_id power = ir_min(b, ir_mul(b, x, steep), ir_number(b, type, width, 80));
    return ir_div_normal(b, x, ir_add(b, ir_exp(b, power), ir_number(b, type, width, 1)));
}

bool tile_aligned(const tile_kernel *k, const graph_tensor *t) {
    bool fits = t->offset % k->wide == 0;
    for (uint32_t i = 0; i + 1 < t->rank; i++) fits = fits && t->stride[i] % k->wide == 0;
    return fits && t->rank > 0 && t->stride[t->rank - 1] == 1;
}

/* Of graphs of one's own: no model has it. */
#define OWN(lower) (BUILD_HAS_GRAPHS ? (lower) : NULL)

lower_fn *tile_lowering(base_op op) {
    static lower_fn *const table[OP_COUNT] = {
        [OP_GATHER_ROWS] = tile_gather_rows,
        [OP_TOPK] = BUILD_HAS_C_TEXTS ? tile_topk : tile_largest,
        [OP_WEIGHTED_SUM] = tile_operation,
        [OP_LINEAR] = tile_linear,
        [OP_LINEAR_ID] = tile_linear_id,
        [OP_ROPE] = tile_rope,
        [OP_KV_WRITE] = tile_kv_write,
        [OP_ATTENTION] = tile_attention,
        [OP_ATTENTION_SUMS] = tile_attention_back,
        [OP_ATTENTION_BACK] = tile_attention_back,
        [OP_ARGMAX] = tile_largest,
        [OP_SAMPLE] = tile_sample,
        [OP_SET_ROWS] = tile_set_rows,
        [OP_FUSED] = tile_fused,
        [OP_CONTRACT] = tile_contract,
        [OP_SORT] = OWN(tile_sort),
        [OP_FOURIER] = OWN(tile_fourier),
        [OP_GATHER] = OWN(tile_gather),
        [OP_SCATTER] = OWN(tile_scatter),
        [OP_SCATTER_ADD] = OWN(tile_scatter),
        [OP_ONE_HOT] = OWN(tile_one_hot),
        [OP_NONZERO] = OWN(tile_nonzero),
        [OP_ASSIGN] = tile_assign,
    };
    if (BUILD_HAS_GRAPHS &&
        (op == OP_CUMSUM || op == OP_CUMPROD || op == OP_CUMMAX || op == OP_CUMMIN))
        return tile_scan; /* some of which are trees */
    return graph_op_is_in_trees(op) || graph_op_reduces(op) ? tile_operation : table[op];
}
#undef OWN
