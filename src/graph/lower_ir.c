/* lower_ir.c - from a kernel in IR to a step of the plan, and the instructions that many kernels share.
 *
 * The one idea: a kernel's printed form is its name. What has been compiled under that name for this device is not passed
 * through passes and generator again, so that building the same kernel for each of a model's layers costs little. */
#include "graph/lower_ir.h"
#include "base/error.h"
#include "codegen/codegen.h"

#include <stdio.h>
#include <string.h>

enum { HASH_SEED = 5, WIDE_GPU = 4, LANES_MOST = 256 };

/* ---- bindings and parameters ----------------------------------------------------------------------------------- */

bool lower_ir_serial(const lowering *l) {
    return device_is_processor(l->caps);
}

uint32_t lower_ir_lanes(const lowering *l, uint32_t n) {
    if (lower_ir_serial(l) && !(l->caps->loop_max && n > l->caps->loop_max / 4)) return 1;
    uint32_t lanes = 32;
    while (lanes < LANES_MOST && lanes * 4 < n) lanes *= 2;
    return l->caps->workgroup_invocations && lanes > l->caps->workgroup_invocations ? l->caps->workgroup_invocations : lanes;
}

uint32_t lower_ir_lanes_chosen(lowering *l, uint32_t n) {
    const device_caps *caps = l->caps;
    const uint32_t rule = lower_ir_lanes(l, n), most = caps->kind == DEVICE_HOST ? 1 : caps->workgroup_invocations ? caps->workgroup_invocations : LANES_MOST;
    uint32_t least = lower_ir_serial(l) ? 1 : 16;
    while (caps->loop_max && n / least > caps->loop_max / 4) least *= 2;
    return lower_ir_choose(l, "lanes", rule, least, most);
}

void lower_ir_begin(lower_ir *k, lowering *l, const graph_node *node, const char *name, uint32_t lanes) {
    *k = (lower_ir){.l = l, .node = node, .name = name, .lanes = lanes};
    k->wide = l->caps->kind == DEVICE_HOST || (lanes == 1 && device_is_compiled(l->caps)) ? LOWER_IR_RUN : WIDE_GPU;
    base_arena_init(&k->arena, l->store->heap);
    k->b = ir_begin(&k->arena, name, lanes, 1, 1);
}

/* Blocks are read as words. */
static ir_type type_of(base_type type) {
    switch (type) {
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
    case TYPE_U32:
    case TYPE_Q4_0:
    case TYPE_Q4_1:
    case TYPE_Q5_0:
    case TYPE_Q5_1:
    case TYPE_Q8_0:
    case TYPE_Q2_K:
    case TYPE_Q3_K:
    case TYPE_Q4_K:
    case TYPE_Q5_K:
    case TYPE_Q6_K:
    case TYPE_Q8_K:
    case TYPE_IQ4_NL:
    case TYPE_IQ4_XS:
    case TYPE_MXFP4:
    case TYPE_NVFP4:
    case TYPE_COUNT: break;
    }
    return IR_U32;
}

static ir_memory add_buffer(lower_ir *k, const char *name, ir_type type, ir_access access, lower_ir_place place) {
    if (k->n_place < IR_BUFFER_MAX) {
        k->names[k->n_place] = name;
        k->places[k->n_place++] = place;
    }
    return ir_buffer(k->b, type, access, name);
}

ir_memory lower_ir_bind(lower_ir *k, const char *name, graph_value v, ir_type type, ir_access access) {
    return add_buffer(k, name, type, access, (lower_ir_place){.kind = LOWER_IR_VALUE, .value = v});
}

ir_memory lower_ir_read(lower_ir *k, const char *name, graph_value v) {
    return lower_ir_bind(k, name, v, type_of(graph_tensor_at(k->l->g, v)->type), IR_READ);
}

ir_memory lower_ir_write(lower_ir *k, const char *name, graph_value v) {
    return lower_ir_bind(k, name, v, type_of(graph_tensor_at(k->l->g, v)->type), IR_READ_WRITE);
}

ir_memory lower_ir_shard(lower_ir *k, const char *name, graph_value v, uint32_t shard, ir_type type) {
    return add_buffer(k, name, type, IR_READ, (lower_ir_place){.kind = LOWER_IR_SHARD, .value = v, .shard = shard});
}

ir_memory lower_ir_weights(lower_ir *k, const char *name, const graph_value *weights, uint32_t n, ir_type type, uint32_t *word) {
    lower_ir_place place = {.kind = LOWER_IR_WEIGHTS, .n_weight = n};
    uint64_t low = UINT64_MAX;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t at = lower_stored(k->l, weights[i])->shard[0].offset;
        if (i < LOWER_IR_WEIGHTS_MAX) place.weights[i] = weights[i];
        if (at < low) low = at;
    }
    for (uint32_t i = 0; i < n; i++) word[i] = (uint32_t)((lower_stored(k->l, weights[i])->shard[0].offset - low) / 4);
    return add_buffer(k, name, type, IR_READ, place);
}

ir_memory lower_ir_scratch(lower_ir *k, const char *name, uint32_t key, uint64_t bytes, ir_type type, ir_access access) {
    return add_buffer(k, name, type, access, (lower_ir_place){.kind = LOWER_IR_SCRATCH, .key = key, .bytes = bytes});
}

void lower_ir_expect(lower_ir *k, uint32_t first, uint32_t step) {
    if (!k->n_place) return;
    k->places[k->n_place - 1].first = first;
    k->places[k->n_place - 1].step = step;
}

static ir_id add_argument(lower_ir *k, ir_type type, lower_ir_argument a) {
    if (k->n_argument < IR_PARAM_MAX) k->arguments[k->n_argument++] = a;
    return ir_param(k->b, type, a.name);
}

ir_id lower_ir_u32(lower_ir *k, const char *name, uint32_t value) {
    return add_argument(k, IR_U32, (lower_ir_argument){.name = name, .count = {value, 0}});
}

ir_id lower_ir_f32(lower_ir *k, const char *name, float value) {
    return add_argument(k, IR_F32, (lower_ir_argument){.name = name, .is_float = true, .number = value});
}

ir_id lower_ir_count(lower_ir *k, const char *name, lower_count count) {
    if (!count.extent) return ir_u32(k->b, (uint32_t)count.factor);
    return add_argument(k, IR_U32, (lower_ir_argument){.name = name, .count = count});
}

/* ---- from kernel to step ----------------------------------------------------------------------------------------- */

/* What the plan wants to know of a program's text. */
static beryl_status reflect(const ir_kernel *kernel, kernels_text *out, beryl_error *error) {
    *out = (kernels_text){.n_binding = kernel->n_buffer, .n_param = kernel->n_param};
    if (kernel->n_buffer > DEVICE_BINDING_MAX || kernel->n_param * 4 > DEVICE_PARAM_MAX)
        return base_fail(error, BERYL_UNSUPPORTED, "kernel %s: %u buffers and %u parameters", kernel->name, kernel->n_buffer, kernel->n_param);
    for (uint32_t i = 0; i < kernel->n_buffer; i++) {
        out->bindings[i].access = kernel->buffers[i].access == IR_READ ? DEVICE_READ : DEVICE_READ_WRITE;
        snprintf(out->bindings[i].name, sizeof out->bindings[i].name, "%.*s", KERNELS_NAME_MAX - 1, kernel->buffers[i].name);
    }
    for (uint32_t i = 0; i < kernel->n_param; i++) {
        out->params[i].is_float = kernel->params[i].type == IR_F32;
        snprintf(out->params[i].name, sizeof out->params[i].name, "%.*s", KERNELS_NAME_MAX - 1, kernel->params[i].name);
    }
    memcpy(out->workgroup, kernel->workgroup, sizeof out->workgroup);
    out->uses_subgroups = kernel->subgroup_size != 0;
    return BERYL_OK;
}

static beryl_status print(base_arena *arena, const ir_kernel *kernel, const char **out, size_t *size, beryl_error *error) {
    base_text text;
    base_text_init(&text, arena->heap);
    ir_print(&text, kernel);
    *out = text.failed ? NULL : base_arena_text(arena, text.data, text.size);
    *size = text.size;
    base_text_fini(&text);
    return *out ? BERYL_OK : base_fail(error, BERYL_NO_MEMORY, "out of host memory");
}

/* The kernel after the passes, as text of the device's language; what takes the IR itself gets it as it was lowered, with its marks. */
static beryl_status generate(lowering *l, base_arena *arena, const ir_kernel *kernel, const ir_schedule *schedule, kernels_text *out,
                             const char **entry, beryl_error *error) {
    device_program_desc desc;
    beryl_status status = l->texts ? print(l->arena, kernel, &l->texts->before, &out->size, error) : BERYL_OK;
    if (status == BERYL_OK && l->language == DEVICE_IR) return print(arena, kernel, (const char **)&out->text, &out->size, error);
    if (status == BERYL_OK) status = ir_optimise(arena, kernel, schedule, &kernel, error);
    if (status == BERYL_OK && l->texts) status = print(l->arena, kernel, &l->texts->after, &out->size, error);
    if (status != BERYL_OK) return status;
    memcpy(out->workgroup, kernel->workgroup, sizeof out->workgroup);
    status = codegen_make(arena, kernel, l->language, l->caps, &desc, error);
    if (status != BERYL_OK) return status;
    out->size = desc.source_size;
    out->text = (char *)(uintptr_t)desc.source;
    out->launch_bytes = desc.launch_bytes;
    out->uses_f16 = desc.uses_f16;
    out->uses_subgroups = desc.uses_subgroups;
    *entry = desc.entry;
    return BERYL_OK;
}

static void print_schedule(base_text *text, const ir_schedule *s) {
    for (uint32_t d = 0; d < IR_DIM_MAX; d++) {
        const ir_schedule_dim *dim = &s->dims[d];
        base_text_print(text, "|%u %u %u %u %u %u %u %u %u", dim->group, dim->lane, dim->split, dim->ahead, dim->lanes, dim->block, dim->unroll,
                        dim->stage, dim->wide);
    }
    base_text_print(text, "|%u %u %u %u", s->subgroup, s->vector, s->workgroup_bytes, s->fragments);
    for (uint32_t p = 0; p < IR_PARAM_MAX; p++) base_text_print(text, " %u", s->param_multiple[p]);
}

/* schedule NULL: none. */
static beryl_status text_of(lowering *l, base_arena *arena, const ir_kernel *kernel, const ir_schedule *schedule, kernels_text *out,
                            const char **entry, beryl_error *error) {
    base_text text;
    base_text_init(&text, l->store->heap);
    ir_print(&text, kernel);
    if (schedule) print_schedule(&text, schedule);
    beryl_status status = text.failed ? base_fail(error, BERYL_NO_MEMORY, "out of host memory") : reflect(kernel, out, error);
    if (status == BERYL_OK) out->hash = base_hash(text.data, text.size, HASH_SEED + (uint32_t)l->language);
    if (status == BERYL_OK && !lower_program_known(l, out->hash)) status = generate(l, arena, kernel, schedule, out, entry, error);
    base_text_fini(&text);
    return status;
}

static beryl_status step_of(lower_ir *k, const ir_kernel *kernel, const ir_schedule *schedule, const lower_count *counts, const uint32_t *per,
                            beryl_error *error) {
    kernels_text text;
    const char *entry = NULL;
    beryl_status status = text_of(k->l, &k->arena, kernel, schedule, &text, &entry, error);
    if (status != BERYL_OK) return status;
    lower_step *s = lower_step_begin_made(k->l, k->node, k->name, entry, &text);
    for (uint32_t i = 0; i < k->n_place; i++) {
        const lower_ir_place *p = &k->places[i];
        if (p->kind == LOWER_IR_VALUE) lower_bind(s, k->names[i], p->value);
        if (p->kind == LOWER_IR_SHARD) lower_bind_shard(s, k->names[i], p->value, p->shard);
        if (p->kind == LOWER_IR_SCRATCH) lower_bind_scratch(s, k->names[i], p->key, p->bytes);
        uint32_t word[LOWER_IR_WEIGHTS_MAX];
        if (p->kind == LOWER_IR_WEIGHTS) lower_bind_weights(s, k->names[i], p->weights, p->n_weight, word);
    }
    for (uint32_t i = 0; i < k->n_argument; i++) {
        const lower_ir_argument *a = &k->arguments[i];
        if (a->is_float) lower_f32(s, a->name, a->number);
        else lower_count_param(s, a->name, a->count);
    }
    lower_groups_3d(s, counts[0], per[0], counts[1], per[1], counts[2], per[2]);
    return lower_step_end(s, error);
}

static bool is_trial(const lower_ir *k) {
    return k->l->choices && k->l->choices->trial;
}

/* Takes the kernel's arena. */
static beryl_status keep_trial(lower_ir *k, lower_ir_made *made, beryl_error *error) {
    lower_ir_made *to = base_vec_add(k->l->store->heap, &k->l->choices->made);
    made->k = *k;
    if (to) *to = *made;
    else base_arena_fini(&k->arena);
    return to ? BERYL_OK : base_fail(error, BERYL_NO_MEMORY, "out of host memory");
}

beryl_status lower_ir_end_3d(lower_ir *k, lower_count x, uint32_t per_x, lower_count y, uint32_t per_y, lower_count z, uint32_t per_z,
                             beryl_error *error) {
    lower_ir_made made = {.counts = {x, y, z}, .per = {per_x, per_y, per_z}};
    beryl_status status = ir_finish(k->b, &made.kernel, error);
    if (status == BERYL_OK && is_trial(k)) return keep_trial(k, &made, error);
    if (status == BERYL_OK) status = step_of(k, made.kernel, NULL, made.counts, made.per, error);
    base_arena_fini(&k->arena);
    return status;
}

/* Powers of two alone, and no large ones, so that shapes share a kernel. */
static uint32_t promise_of(const lower_ir_argument *a) {
    enum { MOST = 256 };
    uint32_t multiple = 1;
    if (a->is_float || a->count.extent) return 1;
    while (multiple < MOST && a->count.factor % (2 * (uint64_t)multiple) == 0) multiple *= 2;
    return multiple;
}

void lower_ir_schedule(const lower_ir *k, const ir_kernel *plain, const uint64_t extents[IR_DIM_MAX], ir_schedule *schedule) {
    ir_schedule_default(plain, k->l->caps, extents, schedule);
    for (uint32_t i = 0; i < k->n_argument; i++) schedule->param_multiple[i] = promise_of(&k->arguments[i]);
}

beryl_status lower_ir_end_marked(lower_ir *k, const lower_count counts[IR_DIM_MAX], const uint64_t extents[IR_DIM_MAX], beryl_error *error) {
    const ir_kernel *kernel;
    ir_schedule schedule;
    lower_count along[3] = {{1, 0}, {1, 0}, {1, 0}};
    uint32_t per[3] = {1, 1, 1};
    beryl_status status = ir_finish(k->b, &kernel, error);
    if (status == BERYL_OK && !is_trial(k)) {
        lower_ir_schedule(k, kernel, extents, &schedule);
        status = lower_ir_search(k, kernel, counts, extents, &schedule, error);
        lower_ir_recall(k, kernel, extents, &schedule);
        for (uint32_t d = 0; d < IR_DIM_MAX; d++) {
            const ir_schedule_dim *dim = &schedule.dims[d];
            if (!dim->group) continue;
            along[dim->group - 1] = counts[d];
            per[dim->group - 1] = ir_schedule_tile(&schedule, d);
        }
        if (status == BERYL_OK) status = step_of(k, kernel, &schedule, along, per, error);
    }
    base_arena_fini(&k->arena);
    return status;
}

beryl_status lower_ir_end(lower_ir *k, lower_count count, uint32_t per, beryl_error *error) {
    return lower_ir_end_3d(k, count, per, (lower_count){1, 0}, 1, (lower_count){1, 0}, 1, error);
}

/* ---- instructions ------------------------------------------------------------------------------------------------ */

ir_id lower_ir_group(lower_ir *k) {
    return ir_fma(k->b, ir_group(k->b, 1), ir_groups(k->b, 0), ir_group(k->b, 0));
}

ir_id lower_ir_lane(lower_ir *k) {
    return ir_fma(k->b, lower_ir_group(k), ir_u32(k->b, k->lanes), ir_local(k->b, 0));
}

/* The value of a constant u32, and whether x is one. */
static bool is_number(const lower_ir *k, ir_id x, uint32_t *number) {
    const ir_instruction *i = ir_at(k->b, x);
    if (!i || i->op != IR_CONST || i->type != IR_U32 || i->width != 1) return false;
    *number = (uint32_t)i->imm;
    return true;
}

static ir_id with_number(lower_ir *k, ir_op op, ir_id x, uint32_t y) {
    const ir_instruction *i = ir_at(k->b, x);
    return i ? ir_binary(k->b, op, x, ir_bits(k->b, (ir_type)i->type, i->width, y)) : IR_NO_ID;
}

ir_id lower_ir_plus(lower_ir *k, ir_id x, uint32_t y) {
    uint32_t n;
    if (is_number(k, x, &n)) return ir_u32(k->b, n + y);
    return y ? with_number(k, IR_ADD, x, y) : x;
}

ir_id lower_ir_times(lower_ir *k, ir_id x, uint32_t y) {
    uint32_t n;
    if (is_number(k, x, &n)) return ir_u32(k->b, n * y);
    return y == 1 ? x : with_number(k, IR_MUL, x, y);
}

ir_id lower_ir_over(lower_ir *k, ir_id x, uint32_t y) {
    uint32_t n;
    if (is_number(k, x, &n)) return ir_u32(k->b, y ? n / y : 0);
    return y == 1 ? x : with_number(k, IR_DIV, x, y);
}

ir_id lower_ir_rest(lower_ir *k, ir_id x, uint32_t y) {
    uint32_t n;
    if (is_number(k, x, &n)) return ir_u32(k->b, y ? n % y : 0);
    return y == 1 ? ir_u32(k->b, 0) : with_number(k, IR_MOD, x, y);
}

ir_id lower_ir_and(lower_ir *k, ir_id x, uint32_t y) {
    return with_number(k, IR_AND, x, y);
}

ir_id lower_ir_shr(lower_ir *k, ir_id x, uint32_t y) {
    return y ? with_number(k, IR_SHR, x, y) : x;
}

ir_id lower_ir_shl(lower_ir *k, ir_id x, uint32_t y) {
    return y ? with_number(k, IR_SHL, x, y) : x;
}

ir_id lower_ir_ramp(lower_ir *k, uint32_t width, uint32_t first, uint32_t step) {
    ir_id parts[LOWER_IR_RUN];
    for (uint32_t i = 0; i < width; i++) parts[i] = ir_u32(k->b, first + i * step);
    return width == 1 ? parts[0] : ir_compose(k->b, parts, width);
}

void lower_ir_load_run(lower_ir *k, ir_memory from, ir_id index, bool aligned, ir_id *runs) {
    for (uint32_t i = 0; i < LOWER_IR_RUN / k->wide; i++) {
        ir_id at = lower_ir_plus(k, index, i * k->wide);
        if (aligned) {
            runs[i] = ir_cast(k->b, IR_F32, ir_load(k->b, from, at, k->wide));
            continue;
        }
        ir_id parts[LOWER_IR_RUN];
        for (uint32_t e = 0; e < k->wide; e++) parts[e] = ir_cast(k->b, IR_F32, ir_load(k->b, from, lower_ir_plus(k, at, e), 1));
        runs[i] = ir_compose(k->b, parts, k->wide);
    }
}

/* Halves a vector until one lane is left. */
static ir_id fold(lower_ir *k, ir_op op, ir_id x) {
    const ir_instruction *i = ir_at(k->b, x);
    uint32_t width = i ? i->width : 1;
    for (; width > 1; width /= 2) {
        uint64_t low = 0, high = 0;
        for (uint32_t e = 0; e < width / 2; e++) {
            low |= (uint64_t)e << (4 * e);
            high |= (uint64_t)(e + width / 2) << (4 * e);
        }
        ir_id a = width == 2 ? ir_extract(k->b, x, 0) : ir_swizzle(k->b, x, width / 2, low);
        ir_id c = width == 2 ? ir_extract(k->b, x, 1) : ir_swizzle(k->b, x, width / 2, high);
        x = ir_binary(k->b, op, a, c);
    }
    return x;
}

ir_id lower_ir_sum_vector(lower_ir *k, ir_id x) {
    return fold(k, IR_ADD, x);
}

ir_id lower_ir_max_vector(lower_ir *k, ir_id x) {
    return fold(k, IR_MAX, x);
}

ir_id lower_ir_min_vector(lower_ir *k, ir_id x) {
    return fold(k, IR_MIN, x);
}

/* Of each subgroup by its own op; what they made, by the first lane. */
static void reduce_subgroups(lower_ir *k, ir_op op, ir_id x, ir_memory at, uint32_t size) {
    ir_builder *b = k->b;
    const ir_id lane = ir_local(b, 0);
    ir_subgroup(b, size);
    x = op == IR_ADD ? ir_subgroup_add(b, x) : op == IR_MAX ? ir_subgroup_max(b, x) : ir_subgroup_min(b, x);
    ir_if(b, ir_eq(b, ir_subgroup_lane(b), ir_u32(b, 0)));
    ir_store(b, at, lower_ir_over(k, lane, size), x);
    ir_end(b);
    if (k->lanes == size) return;
    ir_barrier(b);
    ir_if(b, ir_eq(b, lane, ir_u32(b, 0)));
    ir_id all = ir_load(b, at, lane, 1);
    for (uint32_t i = 1; i < k->lanes / size; i++) all = ir_binary(b, op, all, ir_load(b, at, ir_u32(b, i), 1));
    ir_store(b, at, lane, all);
    ir_end(b);
}

ir_id lower_ir_reduce(lower_ir *k, ir_op op, ir_id x, ir_memory at) {
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
        ir_store(b, at, lane, ir_binary(b, op, ir_load(b, at, lane, 1), ir_load(b, at, lower_ir_plus(k, lane, half), 1)));
        ir_end(b);
    }
    return ir_uniform_load(b, at, ir_u32(b, 0));
}

/* x / (1 + exp(-2 u)) with u = sqrt(2 / pi) (x + 0.044715 x^3): the same as with tanh, and nothing overflows. */
ir_id lower_ir_gelu(lower_ir *k, ir_id x) {
    ir_builder *b = k->b;
    const ir_instruction *i = ir_at(b, x);
    const uint32_t width = i ? i->width : 1;
    const double slope = -2 * 0.79788456080286535588;
    const ir_id steep = ir_fma(b, ir_mul(b, x, x), ir_number(b, IR_F32, width, slope * 0.044715), ir_number(b, IR_F32, width, slope));
    const ir_id power = ir_min(b, ir_mul(b, x, steep), ir_number(b, IR_F32, width, 80));
    return ir_div(b, x, ir_add(b, ir_exp(b, power), ir_number(b, IR_F32, width, 1)));
}

bool lower_ir_aligned(const lower_ir *k, const graph_tensor *t) {
    bool fits = t->offset % k->wide == 0;
    for (uint32_t i = 0; i + 1 < t->rank; i++) fits = fits && t->stride[i] % k->wide == 0;
    return fits && t->rank > 0 && t->stride[t->rank - 1] == 1;
}

lower_fn *const lower_ir_table[OP_COUNT] = {
    [OP_GATHER_ROWS] = lower_ir_gather_rows, [OP_COPY] = lower_ir_pointwise, [OP_ADD] = lower_ir_pointwise, [OP_MUL] = lower_ir_pointwise,
    [OP_SCALE] = lower_ir_pointwise, [OP_GELU_TANH] = lower_ir_pointwise, [OP_GEGLU] = lower_ir_pointwise,
    [OP_SOFTCAP] = lower_ir_pointwise, [OP_RMS_NORM] = lower_ir_pointwise, [OP_LAYER_NORM] = lower_ir_pointwise,
    [OP_SOFTMAX] = lower_ir_pointwise, [OP_TOPK] = lower_ir_largest,
    [OP_WEIGHTED_SUM] = lower_ir_pointwise, [OP_MATMUL] = lower_ir_matmul, [OP_MATMUL_ID] = lower_ir_matmul_id,
    [OP_ROPE] = lower_ir_rope, [OP_KV_WRITE] = lower_ir_kv_write, [OP_ATTENTION] = lower_ir_attention, [OP_ARGMAX] = lower_ir_largest,
    [OP_SAMPLE] = lower_ir_sample, [OP_SET_ROWS] = lower_ir_set_rows, [OP_FUSED] = lower_ir_fused,
};
