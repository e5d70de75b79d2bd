/* build.c - makes kernels, one instruction after the other.
 *
 * Owns the types of results: they follow from the operands. Refuses only what gives no type (an
 * operand that is no value); every other rule stands once, in verify.c, which ir_finish runs. The
 * idea: the first failure stays in the builder and all later calls do nothing, so lowerings need no
 * check between two calls.
 */
#include "ir/ir.h"
#include "base/build.h"
#include "base/error.h"

#include <assert.h>
#include <string.h>

struct ir_builder {
    base_arena *arena; /* borrowed */
    ir_kernel k;       /* pointers: as below; counts */
    ir_buffer_decl buffers[IR_BUFFER_MAX];
    ir_param_decl params[IR_PARAM_MAX];
    ir_array_decl workgroups[IR_ARRAY_MAX], registers[IR_ARRAY_MAX];
    ir_fragment_decl fragments[IR_ARRAY_MAX];
    ir_instruction *code; /* [capacity], in the arena */
    uint32_t capacity;
    beryl_error error; /* code 0: good so far */
};

static bool good(const ir_builder *b) {
    return b && !b->error.code;
}

static ir_id no_memory(ir_builder *b) {
    base_fail(&b->error, BERYL_NO_MEMORY, "no memory for a kernel");
    return IR_NO_ID;
}

/* ---- beginning and end ------------------------------------------------------------------------
 */

ir_builder *ir_begin(base_arena *arena, const char *name, uint32_t x, uint32_t y, uint32_t z) {
    ir_builder *b = base_arena_take(arena, 1, sizeof *b);
    if (!b) return NULL;
    b->arena = arena;
    b->k.name = base_arena_text(arena, name, strlen(name));
    b->k.workgroup[0] = x;
    b->k.workgroup[1] = y;
    b->k.workgroup[2] = z;
    if (!b->k.name) no_memory(b);
    return b;
}

ir_builder *ir_begin_like(base_arena *arena, const ir_kernel *k) {
    ir_builder *b = ir_begin(arena, k->name, k->workgroup[0], k->workgroup[1], k->workgroup[2]);
    if (!b) return NULL;
    ir_subgroup(b, k->subgroup_size);
    for (uint32_t i = 0; i < k->n_buffer; i++) {
        ir_memory at = ir_buffer(b, k->buffers[i].type, k->buffers[i].access, k->buffers[i].name);
        if (BUILD_HAS_C_TEXTS && k->buffers[i].once) ir_buffer_once(b, at);
    }
    for (uint32_t i = 0; i < k->n_param && good(b); i++) {
        char *name = base_arena_text(arena, k->params[i].name, strlen(k->params[i].name));
        if (!name) no_memory(b);
        else b->params[b->k.n_param++] = (ir_param_decl){name, k->params[i].type};
    }
    if (k->n_workgroup)
        memcpy(b->workgroups, k->workgroups, k->n_workgroup * sizeof *k->workgroups);
    if (k->n_register) memcpy(b->registers, k->registers, k->n_register * sizeof *k->registers);
    if (k->n_fragment) memcpy(b->fragments, k->fragments, k->n_fragment * sizeof *k->fragments);
    b->k.n_workgroup = k->n_workgroup;
    b->k.n_register = k->n_register;
    b->k.n_fragment = k->n_fragment;
    return b;
}

/* The kernel as it stands, whose declarations are the builder's own. */
static beryl_status close(ir_builder *b, ir_kernel *k, beryl_error *error) {
    if (!b) return base_fail(error, BERYL_NO_MEMORY, "no memory for a kernel");
    if (b->error.code) {
        if (error) *error = b->error;
        return b->error.code;
    }
    *k = b->k;
    k->buffers = b->buffers;
    k->params = b->params;
    k->workgroups = b->workgroups;
    k->registers = b->registers;
    k->fragments = b->fragments;
    k->code = b->code;
    return BERYL_OK;
}

beryl_status ir_take(ir_builder *b, const ir_kernel **out, beryl_error *error) {
    *out = NULL;
    ir_kernel *k = b ? base_arena_take(b->arena, 1, sizeof *k) : NULL;
    if (b && !k) no_memory(b);
    beryl_status status = close(b, k, error);
    if (!status) *out = k;
    return status;
}

beryl_status ir_finish(ir_builder *b, const ir_kernel **out, beryl_error *error) {
    beryl_status status = ir_take(b, out, error);
    if (!status) status = ir_verify(b->arena->heap, *out, error);
    if (status) *out = NULL;
    return status;
}

beryl_status ir_status(const ir_builder *b) {
    return b ? b->error.code : BERYL_NO_MEMORY;
}

uint32_t ir_count(const ir_builder *b) {
    return b ? b->k.n_code : 0;
}

const ir_instruction *ir_at(const ir_builder *b, ir_id id) {
    return b && id < b->k.n_code ? &b->code[id] : NULL;
}

/* ---- declarations -----------------------------------------------------------------------------
 */

/* Room for one more of them; else the builder has failed. */
static bool room(ir_builder *b, uint32_t count, uint32_t most, const char *what) {
    if (!good(b)) return false;
    if (count < most) return true;
    base_fail_at(&b->error, BERYL_UNSUPPORTED, b->k.n_code, "kernel %s: more than %u %s", b->k.name,
                 most, what);
    return false;
}

void ir_subgroup(ir_builder *b, uint32_t size) {
    if (good(b)) b->k.subgroup_size = size;
}

ir_memory ir_buffer(ir_builder *b, ir_type type, ir_access access, const char *name) {
    ir_memory at = {.space = IR_BUFFER, .array = 0};
    if (!room(b, b ? b->k.n_buffer : 0, IR_BUFFER_MAX, "buffers")) return at;
    char *copy = base_arena_text(b->arena, name, strlen(name));
    if (!copy) return no_memory(b), at;
    at.array = (uint16_t)b->k.n_buffer++;
    b->buffers[at.array] = (ir_buffer_decl){copy, type, access, false};
    return at;
}

void ir_buffer_once(ir_builder *b, ir_memory buffer) {
    if (good(b)) b->buffers[buffer.array].once = true;
}

ir_memory ir_workgroup_swizzled(ir_builder *b, ir_type type, uint32_t count, uint8_t bits,
                                uint8_t base, uint8_t shift) {
    ir_memory at = {.space = IR_WORKGROUP, .array = 0};
    if (!room(b, b ? b->k.n_workgroup : 0, IR_ARRAY_MAX, "workgroup arrays")) return at;
    at.array = (uint16_t)b->k.n_workgroup++;
    b->workgroups[at.array] = (ir_array_decl){type, count, bits, base, shift};
    return at;
}

ir_memory ir_workgroup(ir_builder *b, ir_type type, uint32_t count) {
    return ir_workgroup_swizzled(b, type, count, 0, 0, 0);
}

ir_memory ir_register(ir_builder *b, ir_type type, uint32_t count) {
    ir_memory at = {.space = IR_REGISTER, .array = 0};
    if (!room(b, b ? b->k.n_register : 0, IR_ARRAY_MAX, "register arrays")) return at;
    at.array = (uint16_t)b->k.n_register++;
    b->registers[at.array] = (ir_array_decl){.type = type, .count = count};
    return at;
}

ir_fragments ir_fragment(ir_builder *b, ir_role role, ir_type type, uint16_t m, uint16_t n,
                         uint16_t k, uint32_t count) {
    ir_fragments f = {0};
    if (!room(b, b ? b->k.n_fragment : 0, IR_ARRAY_MAX, "fragments")) return f;
    f.array = (uint16_t)b->k.n_fragment++;
    b->fragments[f.array] = (ir_fragment_decl){role, type, m, n, k, count};
    return f;
}

ir_memory ir_memory_at(ir_space space, uint32_t array) {
    return (ir_memory){.space = (uint8_t)space, .array = (uint16_t)array};
}

void ir_param_declare(ir_builder *b, ir_type type, const char *name) {
    if (!room(b, b ? b->k.n_param : 0, IR_PARAM_MAX, "parameters")) return;
    char *copy = base_arena_text(b->arena, name, strlen(name));
    if (copy) b->params[b->k.n_param++] = (ir_param_decl){copy, type};
    else no_memory(b);
}

ir_id ir_param(ir_builder *b, ir_type type, const char *name) {
    ir_param_declare(b, type, name);
    if (!good(b)) return IR_NO_ID;
    return ir_param_again(b, b->k.n_param - 1);
}

ir_id ir_param_again(ir_builder *b, uint32_t number) {
    if (!good(b)) return IR_NO_ID;
    ir_type type = number < b->k.n_param ? b->params[number].type : IR_U32;
    return ir_emit(
        b, (ir_instruction){
               .op = IR_PARAM, .type = (uint8_t)type, .width = 1, .array = (uint16_t)number});
}

/* ---- instructions -----------------------------------------------------------------------------
 */

ir_id ir_emit(ir_builder *b, ir_instruction i) {
    if (!room(b, b ? b->k.n_code : 0, IR_CODE_MAX, "instructions")) return IR_NO_ID;
    if (b->k.n_code == b->capacity) {
        uint32_t capacity = b->capacity ? b->capacity * 2 : 64;
        ir_instruction *code = base_arena_take(b->arena, capacity, sizeof *code);
        if (!code) return no_memory(b);
        if (b->k.n_code) memcpy(code, b->code, b->k.n_code * sizeof *code);
        b->code = code;
        b->capacity = capacity;
    }
    for (uint32_t n = i.n_in; n < 4; n++) i.in[n] = IR_NO_ID;
    b->code[b->k.n_code] = i;
    return b->k.n_code++;
}

/* The instruction that makes value id, or NULL: the builder has failed. */
static const ir_instruction *value_of(ir_builder *b, ir_op op, ir_id id) {
    if (!good(b)) return NULL;
    if (id < b->k.n_code && ir_has_result(&b->code[id])) return &b->code[id];
    base_fail_at(&b->error, BERYL_BAD_INPUT, b->k.n_code,
                 "kernel %s, instruction %u (%s): operand %%%u is no value", b->k.name, b->k.n_code,
                 ir_op_of(op)->name, id);
    return NULL;
}

/* Type and width of value id; false: the builder has failed. */
static bool shape_of(ir_builder *b, ir_op op, ir_id id, ir_type *type, uint8_t *width) {
    const ir_instruction *i = value_of(b, op, id);
    if (!i) return false;
    *type = (ir_type)i->type;
    *width = i->width;
    return true;
}

static ir_id emit(ir_builder *b, ir_op op, ir_type type, uint32_t width, uint64_t imm,
                  uint32_t n_in, const ir_id *in) {
    for (uint32_t n = 0; n < n_in; n++)
        if (!value_of(b, op, in[n])) return IR_NO_ID;
    ir_instruction i = {.op = (uint8_t)op,
                        .type = (uint8_t)type,
                        .width = (uint8_t)width,
                        .n_in = (uint8_t)n_in,
                        .imm = imm};
    if (n_in) memcpy(i.in, in, n_in * sizeof *in);
    return ir_emit(b, i);
}

/* The same with a buffer or an array. */
static ir_id emit_at(ir_builder *b, ir_op op, ir_type type, uint32_t width, uint64_t imm,
                     ir_memory at, uint32_t n_in, const ir_id *in) {
    ir_id id = emit(b, op, type, width, imm, n_in, in);
    if (id == IR_NO_ID) return id;
    b->code[id].space = at.space;
    b->code[id].array = at.array;
    return id;
}

ir_id ir_bits(ir_builder *b, ir_type type, uint32_t width, uint64_t bits) {
    return emit(b, IR_CONST, type, width, bits, 0, NULL);
}

ir_id ir_number(ir_builder *b, ir_type type, uint32_t width, double value) {
    return ir_bits(b, type, width, ir_from_double(type, value));
}

ir_id ir_f32(ir_builder *b, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return ir_bits(b, IR_F32, 1, bits);
}

ir_id ir_u32(ir_builder *b, uint32_t value) {
    return ir_bits(b, IR_U32, 1, value);
}

ir_id ir_i32(ir_builder *b, int32_t value) {
    return ir_bits(b, IR_I32, 1, (uint32_t)value);
}

ir_id ir_bool(ir_builder *b, bool value) {
    return ir_bits(b, IR_BOOL, 1, value);
}

ir_id ir_group(ir_builder *b, uint32_t axis) {
    return emit(b, IR_GROUP, IR_U32, 1, axis, 0, NULL);
}

ir_id ir_groups(ir_builder *b, uint32_t axis) {
    return emit(b, IR_GROUPS, IR_U32, 1, axis, 0, NULL);
}

ir_id ir_local(ir_builder *b, uint32_t axis) {
    return emit(b, IR_LOCAL, IR_U32, 1, axis, 0, NULL);
}

ir_id ir_subgroup_lane(ir_builder *b) {
    return emit(b, IR_SUBGROUP_LANE, IR_U32, 1, 0, 0, NULL);
}

ir_id ir_subgroup_size(ir_builder *b) {
    return emit(b, IR_SUBGROUP_SIZE, IR_U32, 1, 0, 0, NULL);
}

/* ---- arithmetic -------------------------------------------------------------------------------
 */

/* Type and width of the last operand; a comparison gives bool. */
static ir_id like(ir_builder *b, ir_op op, uint64_t imm, uint32_t n_in, const ir_id *in) {
    ir_type type;
    uint8_t width;
    if (!shape_of(b, op, in[n_in - 1], &type, &width)) return IR_NO_ID;
    if (ir_op_of(op)->form == IR_FORM_COMPARE) type = IR_BOOL;
    return emit(b, op, type, width, imm, n_in, in);
}

ir_id ir_unary(ir_builder *b, ir_op op, ir_id x) {
    return like(b, op, 0, 1, &x);
}

ir_id ir_binary(ir_builder *b, ir_op op, ir_id x, ir_id y) {
    return like(b, op, 0, 2, (ir_id[]){x, y});
}

#define X(NAME, name, ...)                    \
    ir_id ir_##name(ir_builder *b, ir_id x) { \
        return like(b, IR_##NAME, 0, 1, &x);  \
    }
IR_UNARY_LIST(X)
#undef X
#define X(NAME, name, ...)                                \
    ir_id ir_##name(ir_builder *b, ir_id x, ir_id y) {    \
        return like(b, IR_##NAME, 0, 2, (ir_id[]){x, y}); \
    }
IR_BINARY_LIST(X)
IR_COMPARE_LIST(X)
#undef X

ir_id ir_is_nan(ir_builder *b, ir_id x) {
    return like(b, IR_IS_NAN, 0, 1, &x);
}

ir_id ir_fma(ir_builder *b, ir_id x, ir_id y, ir_id z) {
    return like(b, IR_FMA, 0, 3, (ir_id[]){x, y, z});
}

ir_id ir_select(ir_builder *b, ir_id condition, ir_id x, ir_id y) {
    return like(b, IR_SELECT, 0, 3, (ir_id[]){condition, x, y});
}

ir_id ir_dot4_i8(ir_builder *b, ir_id x, ir_id y, ir_id sum) {
    return like(b, IR_DOT4_I8, 0, 3, (ir_id[]){x, y, sum});
}

ir_id ir_dot4_u8(ir_builder *b, ir_id x, ir_id y, ir_id sum) {
    return like(b, IR_DOT4_U8, 0, 3, (ir_id[]){x, y, sum});
}

ir_id ir_permute_bytes(ir_builder *b, ir_id x, ir_id y, ir_id places) {
    return like(b, IR_PERMUTE_BYTES, 0, 3, (ir_id[]){x, y, places});
}

ir_id ir_cast(ir_builder *b, ir_type type, ir_id x) {
    ir_type own;
    uint8_t width;
    if (!shape_of(b, IR_CAST, x, &own, &width)) return IR_NO_ID;
    return own == type ? x : emit(b, IR_CAST, type, width, 0, 1, &x);
}

ir_id ir_bitcast(ir_builder *b, ir_type type, uint32_t width, ir_id x) {
    return emit(b, IR_BITCAST, type, width, 0, 1, &x);
}

/* ---- vector lanes -----------------------------------------------------------------------------
 */

ir_id ir_splat(ir_builder *b, ir_id x, uint32_t width) {
    ir_type type;
    uint8_t own;
    if (!shape_of(b, IR_SPLAT, x, &type, &own)) return IR_NO_ID;
    return own == width ? x : emit(b, IR_SPLAT, type, width, 0, 1, &x);
}

ir_id ir_extract(ir_builder *b, ir_id x, uint32_t lane) {
    ir_type type;
    uint8_t width;
    if (!shape_of(b, IR_EXTRACT, x, &type, &width)) return IR_NO_ID;
    if (width == 1 && lane == 0) return x;
    return emit(b, IR_EXTRACT, type, 1, lane, 1, &x);
}

ir_id ir_compose(ir_builder *b, const ir_id *parts, uint32_t n) {
    ir_type type;
    uint8_t width;
    if (good(b) && n != 1 && n != 2 && n != 4 && n != 8 && n != 16)
        base_fail_at(&b->error, BERYL_BAD_INPUT, b->k.n_code,
                     "kernel %s, instruction %u (compose): %u parts, not 2, 4, 8 or 16", b->k.name,
                     b->k.n_code, n);
    if (!good(b)) return IR_NO_ID;
    if (n > 4) {
        ir_id fours[4];
        for (uint32_t i = 0; i < n / 4; i++) fours[i] = ir_compose(b, parts + 4 * i, 4);
        return ir_compose(b, fours, n / 4);
    }
    if (!shape_of(b, IR_COMPOSE, parts[0], &type, &width)) return IR_NO_ID;
    if (n == 1) return parts[0];
    return emit(b, IR_COMPOSE, type, n * width <= 16 ? n * width : 0, 0, n, parts);
}

ir_id ir_swizzle(ir_builder *b, ir_id x, uint32_t width, uint64_t lanes) {
    ir_type type;
    uint8_t own;
    if (!shape_of(b, IR_SWIZZLE, x, &type, &own)) return IR_NO_ID;
    return emit(b, IR_SWIZZLE, type, width, lanes, 1, &x);
}

/* ---- memory -----------------------------------------------------------------------------------
 */

/* Type of the elements; none where there is no such array, which the verifier then names. */
static ir_type element_of(const ir_builder *b, ir_memory at) {
    if (!good(b)) return IR_NONE;
    if (at.space == IR_BUFFER && at.array < b->k.n_buffer) return b->buffers[at.array].type;
    if (at.space == IR_WORKGROUP && at.array < b->k.n_workgroup)
        return b->workgroups[at.array].type;
    if (at.space == IR_REGISTER && at.array < b->k.n_register) return b->registers[at.array].type;
    return IR_NONE;
}

ir_id ir_load(ir_builder *b, ir_memory from, ir_id index, uint32_t width) {
    return emit_at(b, IR_LOAD, element_of(b, from), width, from.anywhere && width > 1, from, 1,
                   &index);
}

ir_id ir_uniform_load(ir_builder *b, ir_memory workgroup, ir_id index) {
    return emit_at(b, IR_UNIFORM_LOAD, element_of(b, workgroup), 1, 0, workgroup, 1, &index);
}

void ir_store(ir_builder *b, ir_memory to, ir_id index, ir_id value) {
    ir_type type;
    uint8_t width;
    if (!shape_of(b, IR_STORE, value, &type, &width)) return;
    emit_at(b, IR_STORE, type, width, to.anywhere && width > 1, to, 2, (ir_id[]){index, value});
}

ir_id ir_get(ir_builder *b, ir_memory reg) {
    return ir_load(b, reg, ir_u32(b, 0), 1);
}

void ir_set(ir_builder *b, ir_memory reg, ir_id value) {
    ir_store(b, reg, ir_u32(b, 0), value);
}

ir_id ir_atomic(ir_builder *b, ir_op op, ir_memory at, ir_id index, ir_id value) {
    return emit_at(b, op, element_of(b, at), 1, 0, at, 2, (ir_id[]){index, value});
}

void ir_barrier(ir_builder *b) {
    emit(b, IR_BARRIER, IR_NONE, 0, 0, 0, NULL);
}

ir_id ir_subgroup_add(ir_builder *b, ir_id x) {
    return like(b, IR_SUBGROUP_ADD, 0, 1, &x);
}

ir_id ir_subgroup_min(ir_builder *b, ir_id x) {
    return like(b, IR_SUBGROUP_MIN, 0, 1, &x);
}

ir_id ir_subgroup_max(ir_builder *b, ir_id x) {
    return like(b, IR_SUBGROUP_MAX, 0, 1, &x);
}

ir_id ir_subgroup_broadcast(ir_builder *b, ir_id x, uint32_t lane) {
    return like(b, IR_SUBGROUP_BROADCAST, lane, 1, &x);
}

ir_id ir_subgroup_shuffle_xor(ir_builder *b, ir_id x, uint32_t mask) {
    return like(b, IR_SUBGROUP_SHUFFLE_XOR, mask, 1, &x);
}

/* ---- matrices and copies ----------------------------------------------------------------------
 */

void ir_fragment_fill(ir_builder *b, ir_fragments f, ir_id place, ir_id value) {
    emit_at(b, IR_FRAGMENT_FILL, IR_NONE, 0, 0, (ir_memory){.array = f.array}, 2,
            (ir_id[]){place, value});
}

void ir_fragment_load(ir_builder *b, ir_fragments f, ir_id place, ir_memory from, ir_id index,
                      ir_id stride, bool transposed) {
    emit_at(b, IR_FRAGMENT_LOAD, IR_NONE, 0, f.array | (uint64_t)transposed << 16, from, 3,
            (ir_id[]){place, index, stride});
}

void ir_fragment_load_pairs(ir_builder *b, ir_fragments f, ir_id place, ir_memory from, ir_id index,
                            ir_id stride) {
    emit_at(b, IR_FRAGMENT_LOAD, IR_NONE, 0, f.array | 1u << 17, from, 3,
            (ir_id[]){place, index, stride});
}

void ir_fragment_store(ir_builder *b, ir_fragments f, ir_id place, ir_memory to, ir_id index,
                       ir_id stride, bool transposed) {
    emit_at(b, IR_FRAGMENT_STORE, IR_NONE, 0, f.array | (uint64_t)transposed << 16, to, 3,
            (ir_id[]){place, index, stride});
}

void ir_fragment_mma(ir_builder *b, ir_fragments c, ir_id c_place, ir_fragments a, ir_id a_place,
                     ir_fragments right, ir_id right_place) {
    emit(b, IR_FRAGMENT_MMA, IR_NONE, 0,
         c.array | (uint64_t)a.array << 16 | (uint64_t)right.array << 32, 3,
         (ir_id[]){c_place, a_place, right_place});
}

void ir_fragment_multiply(ir_builder *b, ir_fragments c, ir_memory at, ir_id a, ir_id right,
                          bool from_zero, uint32_t steps) {
    emit_at(b, IR_FRAGMENT_MULTIPLY, IR_NONE, 0,
            c.array | (uint64_t)from_zero << 19 | (uint64_t)steps << 24, at, 2,
            (ir_id[]){a, right});
}

void ir_fragment_multiply_held(ir_builder *b, ir_fragments c, ir_fragments a, ir_memory at,
                               ir_id right, uint32_t steps) {
    emit_at(b, IR_FRAGMENT_MULTIPLY, IR_NONE, 0,
            c.array | 3u << 17 | (uint64_t)steps << 24 | (uint64_t)a.array << 32, at, 2,
            (ir_id[]){ir_u32(b, 0), right});
}

void ir_fragment_wait(ir_builder *b, uint32_t under_way) {
    emit(b, IR_FRAGMENT_WAIT, IR_NONE, 0, under_way, 0, NULL);
}

ir_id ir_fragment_get(ir_builder *b, ir_fragments f, ir_id place, uint32_t pair) {
    const ir_type type = b && f.array < b->k.n_fragment ? b->fragments[f.array].type : IR_NONE;
    return emit(b, IR_FRAGMENT_GET, type, 2, f.array | (uint64_t)pair << 16, 1, (ir_id[]){place});
}

void ir_fragment_set(ir_builder *b, ir_fragments f, ir_id place, uint32_t pair, ir_id value) {
    emit(b, IR_FRAGMENT_SET, IR_NONE, 0, f.array | (uint64_t)pair << 16, 2,
         (ir_id[]){place, value});
}

void ir_copy_async(ir_builder *b, ir_memory workgroup, ir_id to, ir_memory buffer, ir_id from,
                   uint32_t bytes, ir_id valid) {
    emit_at(b, IR_COPY_ASYNC, IR_NONE, 0, buffer.array | (uint64_t)bytes << 16, workgroup,
            valid == IR_NO_ID ? 2 : 3, (ir_id[]){to, from, valid});
}

void ir_copy_commit(ir_builder *b) {
    emit(b, IR_COPY_COMMIT, IR_NONE, 0, 0, 0, NULL);
}

void ir_copy_wait(ir_builder *b, uint32_t under_way) {
    emit(b, IR_COPY_WAIT, IR_NONE, 0, under_way, 0, NULL);
}

/* ---- control ----------------------------------------------------------------------------------
 */

ir_id ir_loop_unrolled(ir_builder *b, ir_id from, ir_id to, ir_id step, uint32_t times) {
    return emit(b, IR_LOOP, IR_U32, 1, times, 3, (ir_id[]){from, to, step});
}

ir_id ir_loop(ir_builder *b, ir_id from, ir_id to, ir_id step) {
    return ir_loop_unrolled(b, from, to, step, 0);
}

void ir_if(ir_builder *b, ir_id condition) {
    emit(b, IR_IF, IR_NONE, 0, 0, 1, &condition);
}

void ir_else(ir_builder *b) {
    emit(b, IR_ELSE, IR_NONE, 0, 0, 0, NULL);
}

void ir_end(ir_builder *b) {
    emit(b, IR_END, IR_NONE, 0, 0, 0, NULL);
}
