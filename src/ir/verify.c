/* verify.c - what a kernel must be, whoever made it: builder, pass or parser.
 *
 * Every rule of ir.h that can be seen without running stands here once; a broken one is BAD_INPUT
 * with the instruction and the rule. Instructions are in a form of their own (fields that an op
 * does not use are zero), so that printing and parsing gives the same bits. What is left to the
 * interpreter: indices, races, undefined memory.
 */
#include "ir/ir.h"
#include "base/build.h"
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct checker {
    const ir_kernel *k;
    beryl_error *error;
    uint32_t id;     /* the instruction looked at */
    uint32_t *block; /* [n_code] the opener of the block that a value was made in, IR_NO_ID: none */
    bool *open;      /* [n_code] an opener whose block is open */
    bool *uniform;   /* [n_code] of ir_uniform */
    uint32_t stack[IR_DEPTH_MAX], depth;
} checker;

static beryl_status declared_wrong(const checker *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static beryl_status declared_wrong(const checker *c, const char *format, ...) {
    char what[200];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return base_fail(c->error, BERYL_BAD_INPUT, "a kernel's declarations: %s", what);
}

static beryl_status wrong(const checker *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static beryl_status wrong(const checker *c, const char *format, ...) {
    char what[200];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    uint8_t op = c->k->code[c->id].op;
    return base_fail_at(c->error, BERYL_BAD_INPUT, c->id, "kernel %s, instruction %u (%s): %s",
                        c->k->name, c->id, op < IR_OP_COUNT ? ir_op_of((ir_op)op)->name : "none",
                        what);
}

/* ---- declarations -----------------------------------------------------------------------------
 */

static bool is_name(const char *name) {
    size_t n = 0;
    if (!name) return false;
    for (; name[n]; n++) {
        char c = name[n];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (n >= IR_NAME_MAX || (!letter && (n == 0 || c < '0' || c > '9'))) return false;
    }
    return n > 0;
}

static bool is_element(ir_type type) {
    return (unsigned)type < IR_TYPE_COUNT && ir_type_in(type, IR_NUMBERS);
}

static beryl_status check_sizes(const checker *c) {
    const ir_kernel *k = c->k;
    uint64_t lanes = 1;
    if (!is_name(k->name)) return declared_wrong(c, "its name is no identifier");
    for (int axis = 0; axis < 3; axis++) {
        if (k->workgroup[axis] < 1 || k->workgroup[axis] > IR_LANES_MAX)
            return declared_wrong(c, "a workgroup's side of %u lanes", k->workgroup[axis]);
        lanes *= k->workgroup[axis];
    }
    if (lanes > IR_LANES_MAX)
        return declared_wrong(c, "a workgroup of more than %d lanes", IR_LANES_MAX);
    uint32_t s = k->subgroup_size;
    if (s && (s & (s - 1) || lanes % s))
        return declared_wrong(c, "subgroups of %u lanes in a workgroup of %u", s, (unsigned)lanes);
    if (k->n_buffer > IR_BUFFER_MAX || k->n_param > IR_PARAM_MAX || k->n_workgroup > IR_ARRAY_MAX ||
        k->n_register > IR_ARRAY_MAX || k->n_fragment > IR_ARRAY_MAX || k->n_code > IR_CODE_MAX)
        return declared_wrong(c, "too many of something");
    return BERYL_OK;
}

static beryl_status check_array(const checker *c, const ir_array_decl *a, const char *what,
                                uint32_t number, uint64_t *bytes, uint64_t most) {
    if (!is_element(a->type) || !a->count)
        return declared_wrong(c, "%s %u needs a number type and at least 1 element", what, number);
    *bytes += (uint64_t)a->count * ir_type_bytes(a->type);
    if (*bytes > most)
        return declared_wrong(c, "%s arrays of more than %llu bytes", what,
                              (unsigned long long)most);
    unsigned bits = a->swizzle_bits, base = a->swizzle_base, shift = a->swizzle_shift;
    if (!bits && !base && !shift) return BERYL_OK;
    if (!bits || shift < bits || bits > 8 || base > 8 || shift > 16 ||
        a->count & ((1u << (bits + base)) - 1))
        return declared_wrong(c,
                              "%s %u: swizzle %u %u %u needs bits, shift >= bits, and whole "
                              "blocks of 2^(bits + base) elements",
                              what, number, bits, base, shift);
    return BERYL_OK;
}

static const char no_fragments[] = "this build has no fragments";

static beryl_status check_fragment(const checker *c, const ir_fragment_decl *f, uint32_t number,
                                   uint64_t *bytes) {
    const uint32_t factors =
        1 << IR_F32 | 1 << IR_F16 | 1 << IR_BF16 | 1 << IR_F64 | 1 << IR_I8 | 1 << IR_U8;
    const uint32_t sums = 1 << IR_F32 | 1 << IR_F16 | 1 << IR_F64 | 1 << IR_I32;
    if ((unsigned)f->role > IR_ROLE_C || (unsigned)f->type >= IR_TYPE_COUNT ||
        !ir_type_in(f->type, f->role == IR_ROLE_C ? sums : factors))
        return declared_wrong(c, "fragment %u: no matrix has this role and type", number);
    if (!f->m || !f->n || !f->k || f->m > 256 || f->n > 256 || f->k > 256 || !f->count)
        return declared_wrong(c, "fragment %u: a shape of %u %u %u", number, f->m, f->n, f->k);
    uint64_t size = f->role == IR_ROLE_A   ? f->m * f->k
                    : f->role == IR_ROLE_B ? f->k * f->n
                                           : f->m * f->n;
    *bytes += size * f->count * ir_type_bytes(f->type);
    if (*bytes > IR_REGISTER_BYTES_MAX)
        return declared_wrong(c, "fragments of more than %d bytes", IR_REGISTER_BYTES_MAX);
    if (!c->k->subgroup_size) return declared_wrong(c, "fragments need subgroups");
    return BERYL_OK;
}

static beryl_status check_declarations(const checker *c) {
    const ir_kernel *k = c->k;
    uint64_t bytes = 0;
    beryl_status status = check_sizes(c);
    if (status) return status;
    for (uint32_t i = 0; i < k->n_buffer; i++)
        if (!is_name(k->buffers[i].name) || !is_element(k->buffers[i].type) ||
            (unsigned)k->buffers[i].access > IR_WRITE_PAST ||
            (BUILD_HAS_C_TEXTS && k->buffers[i].once && k->buffers[i].access != IR_READ))
            return declared_wrong(c, "buffer %u needs a name, a number type and an access", i);
    for (uint32_t i = 0; i < k->n_param; i++)
        if (!is_name(k->params[i].name) || (unsigned)k->params[i].type >= IR_TYPE_COUNT ||
            !ir_type_in(k->params[i].type, IR_WORDS))
            return declared_wrong(c, "param %u needs a name and the type f32, i32 or u32", i);
    for (uint32_t i = 0; i < k->n_workgroup; i++) {
        status = check_array(c, &k->workgroups[i], "workgroup", i, &bytes, IR_WORKGROUP_BYTES_MAX);
        if (status) return status;
    }
    bytes = 0;
    for (uint32_t i = 0; i < k->n_register; i++) {
        if (k->registers[i].swizzle_bits) return declared_wrong(c, "register %u has a swizzle", i);
        status = check_array(c, &k->registers[i], "register", i, &bytes, IR_REGISTER_BYTES_MAX);
        if (status) return status;
    }
    bytes = 0;
    for (uint32_t i = 0; i < k->n_fragment; i++) {
        status = BUILD_HAS_C_TEXTS ? check_fragment(c, &k->fragments[i], i, &bytes)
                                   : declared_wrong(c, no_fragments);
        if (status) return status;
    }
    return BERYL_OK;
}

/* ---- operands ---------------------------------------------------------------------------------
 */

static beryl_status check_operands(const checker *c) {
    const ir_instruction *i = &c->k->code[c->id];
    const ir_op_info *info = ir_op_of((ir_op)i->op);
    bool fits = i->n_in == info->n_in;
    if (info->form == IR_FORM_COMPOSE) fits = i->n_in == 2 || i->n_in == 4;
    if (info->form == IR_FORM_COPY_ASYNC) fits = i->n_in == 2 || i->n_in == 3;
    if (!fits) return wrong(c, "has %u operands, not %u", i->n_in, info->n_in);
    for (uint32_t n = 0; n < 4; n++) {
        ir_id in = i->in[n];
        if (n >= i->n_in) {
            if (in != IR_NO_ID) return wrong(c, "has an operand beyond its last");
            continue;
        }
        if (in >= c->id || !ir_has_result(&c->k->code[in]))
            return wrong(c, "operand %u (%%%u) is no value before it", n, in);
        if (c->block[in] != IR_NO_ID && !c->open[c->block[in]])
            return wrong(c, "operand %u (%%%u) is of a block that has ended", n, in);
    }
    return BERYL_OK;
}

static const ir_instruction *operand(const checker *c, uint32_t n) {
    return &c->k->code[c->k->code[c->id].in[n]];
}

static beryl_status want(const checker *c, uint32_t n, uint32_t types, uint32_t width) {
    const ir_instruction *in = operand(c, n);
    if (!ir_type_in((ir_type)in->type, types))
        return wrong(c, "operand %u is %s, which does not fit", n, ir_type_name((ir_type)in->type));
    if (in->width != width)
        return wrong(c, "operand %u has the width %u, not %u", n, in->width, width);
    return BERYL_OK;
}

/* A place in memory: an index of width 1. */
static beryl_status want_index(const checker *c, uint32_t n) {
    return want(c, n, 1 << IR_U32 | 1 << IR_U64, 1);
}

/* All operands from the first on have these types and this width. */
static beryl_status want_all(const checker *c, uint32_t types, uint32_t width) {
    beryl_status status = BERYL_OK;
    for (uint32_t n = 0; n < c->k->code[c->id].n_in && !status; n++)
        status = want(c, n, types, width);
    return status;
}

/* ---- one form after the other -----------------------------------------------------------------
 */

static const ir_array_decl *array_of(const ir_kernel *k, ir_space space, uint32_t number) {
    if (space == IR_WORKGROUP && number < k->n_workgroup) return &k->workgroups[number];
    if (space == IR_REGISTER && number < k->n_register) return &k->registers[number];
    return NULL;
}

/* The buffer or array that an instruction names, and its elements' type. */
static beryl_status check_place(const checker *c, bool writes, ir_type *type) {
    const ir_instruction *i = &c->k->code[c->id];
    if (i->space == IR_BUFFER && i->array < c->k->n_buffer) {
        if (writes && c->k->buffers[i->array].access == IR_READ)
            return wrong(c, "writes buffer %u, which is read only", i->array);
        *type = c->k->buffers[i->array].type;
        return BERYL_OK;
    }
    const ir_array_decl *a = array_of(c->k, (ir_space)i->space, i->array);
    if (!a) return wrong(c, "names no buffer or array that is declared");
    if (a->swizzle_bits &&
        (i->width > 1u << a->swizzle_base || (i->imm && (i->op == IR_LOAD || i->op == IR_STORE))))
        return wrong(c, "is wider than what a swizzle leaves side by side");
    *type = a->type;
    return BERYL_OK;
}

static beryl_status check_memory(const checker *c, ir_form form) {
    const ir_instruction *i = &c->k->code[c->id];
    ir_type type;
    beryl_status status = check_place(c, form != IR_FORM_LOAD, &type);
    if (!status) status = want_index(c, 0);
    if (!status && form != IR_FORM_LOAD) status = want(c, 1, 1u << type, i->width);
    if (status) return status;
    if (i->type != type)
        return wrong(c, "is %s, the elements are %s", ir_type_name((ir_type)i->type),
                     ir_type_name(type));
    if (i->imm && (i->imm > 1 || i->width == 1 || i->space == IR_REGISTER))
        return wrong(c, "anywhere: is no vector in a buffer or a workgroup array");
    if (form == IR_FORM_ATOMIC && (i->space == IR_REGISTER || i->width != 1))
        return wrong(c, "needs a buffer or a workgroup array and the width 1");
    if (i->op == IR_UNIFORM_LOAD) {
        if (i->space != IR_WORKGROUP || i->width != 1)
            return wrong(c, "needs a workgroup array and the width 1");
        if (!c->uniform[i->in[0]]) return wrong(c, "has an index that may differ between lanes");
    }
    return BERYL_OK;
}

static beryl_status check_lanes(const checker *c, ir_form form) {
    const ir_instruction *i = &c->k->code[c->id];
    uint32_t type = 1u << i->type, width = operand(c, 0)->width;
    if (form == IR_FORM_SPLAT) return want(c, 0, type, 1);
    if (form == IR_FORM_COMPOSE) {
        if (i->width < i->n_in) return wrong(c, "gives the width %u", i->width);
        return want_all(c, type, i->width / i->n_in);
    }
    beryl_status status = want(c, 0, type, width);
    if (status) return status;
    if (form == IR_FORM_EXTRACT)
        return i->imm < width && i->width == 1 ? BERYL_OK
                                               : wrong(c, "takes a vector lane that is not there");
    for (uint32_t lane = 0; lane < 16; lane++) {
        uint64_t from = i->imm >> 4 * lane & 15;
        if (lane < i->width ? from >= width : from != 0)
            return wrong(c, "takes a vector lane that is not there");
    }
    return BERYL_OK;
}

static beryl_status check_fragments(const checker *c, ir_form form) {
    const ir_kernel *k = c->k;
    const ir_instruction *i = &k->code[c->id];
    const ir_fragment_decl *f[3] = {0};
    ir_type type;
    uint32_t n = form == IR_FORM_FRAGMENT_MMA ? 3 : 1;
    for (uint32_t j = 0; j < n; j++) {
        uint64_t named = form == IR_FORM_FRAGMENT_FILL ? i->array : i->imm >> 16 * j;
        uint32_t number = (uint32_t)(named & 0xffff);
        if (number >= k->n_fragment) return wrong(c, "names no fragment that is declared");
        f[j] = &k->fragments[number];
    }
    if (form == IR_FORM_FRAGMENT_FILL) {
        beryl_status status = want(c, 0, IR_U32S, 1);
        return status ? status : want(c, 1, 1u << f[0]->type, 1);
    }
    if (form == IR_FORM_FRAGMENT_MMA) {
        if (i->imm >> 48) return wrong(c, "has bits beyond its fragments");
        bool floats = ir_type_in(f[0]->type, IR_FLOATS);
        if (f[0]->role != IR_ROLE_C || f[1]->role != IR_ROLE_A || f[2]->role != IR_ROLE_B)
            return wrong(c, "wants fragments of the roles c, a, b");
        for (uint32_t j = 1; j < 3; j++)
            if (f[j]->m != f[0]->m || f[j]->n != f[0]->n || f[j]->k != f[0]->k ||
                ir_type_in(f[j]->type, IR_FLOATS) != floats)
                return wrong(c, "has fragments of different shapes or kinds");
        if (f[1]->type != f[2]->type && floats) return wrong(c, "has factors of different types");
        return want_all(c, IR_U32S, 1);
    }
    if (form == IR_FORM_FRAGMENT_GET || form == IR_FORM_FRAGMENT_SET) {
        const bool right = f[0]->role == IR_ROLE_B;
        const uint32_t length = f[0]->role == IR_ROLE_C ? f[0]->n : f[0]->k;
        if ((right ? f[0]->n != 8 : f[0]->m != 16) || length % 8 || k->subgroup_size != 32 ||
            !ir_type_in(f[0]->type, (right ? 0 : 1u << IR_F32) | 1u << IR_F16 | 1u << IR_BF16) ||
            i->imm >> 16 >= length / (right ? 8 : 4))
            return wrong(c, "names no pair of a matrix of 16 rows, or 8 columns of b");
        beryl_status status = want(c, 0, IR_U32S, 1);
        if (status || form == IR_FORM_FRAGMENT_SET)
            return status ? status : want(c, 1, 1u << f[0]->type, 2);
        return i->type == f[0]->type && i->width == 2 ? BERYL_OK
                                                      : wrong(c, "gives two of another type");
    }
    beryl_status status = check_place(c, form == IR_FORM_FRAGMENT_STORE, &type);
    if (form == IR_FORM_FRAGMENT_MULTIPLY) {
        if (status) return status;
        if (f[0]->role != IR_ROLE_C || f[0]->m != 16 || f[0]->n != 8 || f[0]->k != 16 ||
            f[0]->type != IR_F32 || (type != IR_F16 && type != IR_BF16))
            return wrong(c, "wants sums of 16 x 8 of F32, and factors of F16 or BF16");
        const bool held = i->imm >> 18 & 1;
        const uint32_t a = (uint32_t)(i->imm >> 32 & 0xffff);
        if (i->space != IR_WORKGROUP || i->imm >> 48 || i->imm >> 20 & 15 || !(i->imm >> 24 & 255))
            return wrong(c, "needs a workgroup array and a number of steps");
        if (held ? a >= k->n_fragment || i->imm >> 16 & 1 : a)
            return wrong(c, "names no fragment that is declared");
        if (held &&
            (k->fragments[a].role != IR_ROLE_A || k->fragments[a].m != 16 ||
             k->fragments[a].n != 8 || k->fragments[a].k != 16 || k->fragments[a].type != type))
            return wrong(c, "has a factor of another shape or type");
        return want_all(c, IR_U32S, 1);
    }
    if (!status) status = want(c, 0, IR_U32S, 1);
    if (!status) status = want_index(c, 1);
    if (!status) status = want(c, 2, IR_U32S, 1);
    if (status) return status;
    const bool pairs = i->imm >> 17;
    if (pairs && (form == IR_FORM_FRAGMENT_STORE || f[0]->role != IR_ROLE_B || f[0]->k % 2 ||
                  i->imm >> 16 & 1 || i->imm >> 18))
        return wrong(c, "loads pairs of what is no b");
    if (type != f[0]->type || i->space == IR_REGISTER)
        return wrong(c, "needs a buffer or a workgroup array of the fragment's type");
    return BERYL_OK;
}

static beryl_status check_copy(const checker *c) {
    const ir_kernel *k = c->k;
    const ir_instruction *i = &k->code[c->id];
    uint64_t buffer = i->imm & 0xffff, bytes = i->imm >> 16;
    ir_type type;
    if (i->space != IR_WORKGROUP || buffer >= k->n_buffer)
        return wrong(c, "copies from a declared buffer to a workgroup array");
    beryl_status status = check_place(c, true, &type);
    if (!status) status = want_index(c, 0);
    if (!status) status = want_index(c, 1);
    if (!status && i->n_in == 3) status = want(c, 2, IR_BOOLS, 1);
    if (status) return status;
    const ir_array_decl *a = &k->workgroups[i->array];
    if (k->buffers[buffer].type != type) return wrong(c, "copies between different types");
    if ((bytes != 4 && bytes != 8 && bytes != 16) || bytes < ir_type_bytes(type))
        return wrong(c, "copies %llu bytes, not 4, 8 or 16", (unsigned long long)bytes);
    if (a->swizzle_bits && (uint64_t)ir_type_bytes(type) << a->swizzle_base < bytes)
        return wrong(c, "is wider than what a swizzle leaves side by side");
    return BERYL_OK;
}

static beryl_status check_pure(const checker *c, const ir_op_info *info) {
    const ir_instruction *i = &c->k->code[c->id];
    beryl_status status;
    uint32_t type = 1u << i->type, width = i->width;
    if (info->form == IR_FORM_COMPARE) {
        uint32_t of = 1u << operand(c, 0)->type;
        if (!(of & info->types))
            return wrong(c, "does not take %s", ir_type_name((ir_type)operand(c, 0)->type));
        return want_all(c, of, width);
    }
    if (info->form == IR_FORM_SELECT) {
        status = want(c, 0, IR_BOOLS, width);
        if (!status) status = want(c, 1, type, width);
        return status ? status : want(c, 2, type, width);
    }
    if (info->form == IR_FORM_DOT) {
        status = want(c, 0, IR_U32S, width);
        if (!status) status = want(c, 1, IR_U32S, width);
        return status ? status : want(c, 2, IR_I32S, width);
    }
    if (info->form == IR_FORM_CAST) return want(c, 0, IR_ANY, width);
    if (info->form == IR_FORM_BITCAST) {
        const ir_instruction *in = operand(c, 0);
        status = want(c, 0, IR_NUMBERS, in->width);
        if (status) return status;
        if (ir_type_bytes((ir_type)in->type) * in->width != ir_type_bytes((ir_type)i->type) * width)
            return wrong(c, "has another number of bits than its operand");
        return BERYL_OK;
    }
    return want_all(c, type, width); /* SAME, LANE */
}

static beryl_status check_constant(const checker *c) {
    const ir_instruction *i = &c->k->code[c->id];
    uint32_t bits = i->type == IR_BOOL ? 1 : 8 * ir_type_bytes((ir_type)i->type);
    return bits < 64 && i->imm >> bits ? wrong(c, "has more bits than its type") : BERYL_OK;
}

/* The fields that a form does not use are zero. */
static beryl_status check_unused(const checker *c, ir_form form) {
    const ir_instruction *i = &c->k->code[c->id];
    bool memory = form == IR_FORM_LOAD || form == IR_FORM_STORE || form == IR_FORM_ATOMIC ||
                  form == IR_FORM_FRAGMENT_LOAD || form == IR_FORM_FRAGMENT_STORE ||
                  form == IR_FORM_FRAGMENT_MULTIPLY || form == IR_FORM_COPY_ASYNC;
    bool array = memory || form == IR_FORM_PARAM || form == IR_FORM_FRAGMENT_FILL;
    bool imm = i->op == IR_LOAD || i->op == IR_STORE || form == IR_FORM_CONST ||
               form == IR_FORM_AXIS || form == IR_FORM_EXTRACT || form == IR_FORM_SWIZZLE ||
               form == IR_FORM_LANE || form == IR_FORM_COUNT || form == IR_FORM_LOOP ||
               form == IR_FORM_FRAGMENT_MMA || form == IR_FORM_FRAGMENT_GET ||
               form == IR_FORM_FRAGMENT_SET ||
               (memory && form != IR_FORM_LOAD && form != IR_FORM_STORE && form != IR_FORM_ATOMIC);
    if ((!memory && i->space) || (!array && i->array) || (!imm && i->imm))
        return wrong(c, "sets a field that it does not use");
    return BERYL_OK;
}

static beryl_status check_result(const checker *c, const ir_op_info *info) {
    const ir_instruction *i = &c->k->code[c->id];
    uint32_t w = i->width;
    if (!info->types) {
        if (i->type != IR_NONE || w) return wrong(c, "has no result, yet a type");
        return BERYL_OK;
    }
    uint32_t types = info->form == IR_FORM_COMPARE ? IR_BOOLS : info->types;
    if (i->type >= IR_TYPE_COUNT || !ir_type_in((ir_type)i->type, types))
        return wrong(c, "cannot give the type %s",
                     i->type < IR_TYPE_COUNT ? ir_type_name((ir_type)i->type) : "of that number");
    if (w != 1 && w != 2 && w != 4 && w != 8 && w != 16)
        return wrong(c, "has the width %u, not 1, 2, 4, 8 or 16", w);
    bool scalar = info->form == IR_FORM_PARAM || info->form == IR_FORM_INDEX ||
                  info->form == IR_FORM_AXIS || info->form == IR_FORM_LOOP;
    return scalar && w != 1 ? wrong(c, "has the width %u, not 1", w) : BERYL_OK;
}

static beryl_status check_form(const checker *c, const ir_op_info *info) {
    const ir_kernel *k = c->k;
    const ir_instruction *i = &k->code[c->id];
    switch (info->form) {
    case IR_FORM_CONST: return check_constant(c);
    case IR_FORM_PARAM:
        return i->array < k->n_param && k->params[i->array].type == (ir_type)i->type
                   ? BERYL_OK
                   : wrong(c, "names no parameter of its type that is declared");
    case IR_FORM_AXIS: return i->imm < 3 ? BERYL_OK : wrong(c, "has an axis beyond z");
    case IR_FORM_INDEX: return k->subgroup_size ? BERYL_OK : wrong(c, "needs subgroups");
    case IR_FORM_SAME:
        if (info->flags & IR_TOGETHER && !k->subgroup_size) return wrong(c, "needs subgroups");
        return check_pure(c, info);
    case IR_FORM_LANE:
        if (!k->subgroup_size) return wrong(c, "needs subgroups");
        if (i->imm >= k->subgroup_size) return wrong(c, "has a lane outside the subgroup");
        return check_pure(c, info);
    case IR_FORM_COMPARE:
    case IR_FORM_SELECT:
    case IR_FORM_DOT:
    case IR_FORM_CAST:
    case IR_FORM_BITCAST: return check_pure(c, info);
    case IR_FORM_SPLAT:
    case IR_FORM_EXTRACT:
    case IR_FORM_COMPOSE:
    case IR_FORM_SWIZZLE: return check_lanes(c, info->form);
    case IR_FORM_LOAD:
    case IR_FORM_STORE:
    case IR_FORM_ATOMIC: return check_memory(c, info->form);
    case IR_FORM_FRAGMENT_FILL:
    case IR_FORM_FRAGMENT_LOAD:
    case IR_FORM_FRAGMENT_STORE:
    case IR_FORM_FRAGMENT_MULTIPLY:
    case IR_FORM_FRAGMENT_MMA:
    case IR_FORM_FRAGMENT_GET:
    case IR_FORM_FRAGMENT_SET:
        return BUILD_HAS_C_TEXTS ? check_fragments(c, info->form) : wrong(c, no_fragments);
    case IR_FORM_COPY_ASYNC: return check_copy(c);
    case IR_FORM_COUNT: return i->imm < 256 ? BERYL_OK : wrong(c, "counts beyond 255");
    case IR_FORM_LOOP:
        return (i->imm & 0xffff) > 1024 ? wrong(c, "unrolls more than 1024 times")
                                        : want_all(c, IR_U32S, 1);
    case IR_FORM_IF: return want_all(c, IR_BOOLS, 1);
    case IR_FORM_BARE: return BERYL_OK;
    }
    return BERYL_OK;
}

/* ---- the list ---------------------------------------------------------------------------------
 */

/* Brackets, and the block of each value. An else is the opener of its own block. */
static beryl_status check_brackets(checker *c) {
    const ir_instruction *i = &c->k->code[c->id];
    if (i->op == IR_ELSE || i->op == IR_END) {
        if (!c->depth) return wrong(c, "ends a block that has not begun");
        uint32_t last = c->stack[--c->depth];
        if (i->op == IR_ELSE && c->k->code[last].op != IR_IF) return wrong(c, "stands in no if");
        c->open[last] = false;
    }
    if (i->op == IR_LOOP || i->op == IR_IF || i->op == IR_ELSE) {
        if (c->depth == IR_DEPTH_MAX) return wrong(c, "opens more than %d blocks", IR_DEPTH_MAX);
        c->stack[c->depth++] = c->id;
        c->open[c->id] = true;
    }
    c->block[c->id] = c->depth ? c->stack[c->depth - 1] : IR_NO_ID;
    return BERYL_OK;
}

/* Brackets, ids, numbers of operands: all that ir_uniform counts on. */
static beryl_status check_skeleton(checker *c) {
    beryl_status status = BERYL_OK;
    for (c->id = 0; c->id < c->k->n_code && !status; c->id += !status) {
        if (c->k->code[c->id].op >= IR_OP_COUNT) return wrong(c, "there is no such op");
        status = check_operands(c);
        if (!status) status = check_brackets(c);
        if (!status) status = check_result(c, ir_op_of((ir_op)c->k->code[c->id].op));
    }
    if (status || !c->depth) return status;
    c->id = c->stack[c->depth - 1];
    return wrong(c, "has no end");
}

static beryl_status check_code(checker *c) {
    uint32_t depth = 0,
             divided = 0; /* blocks open; the outermost that lanes may enter apart, + 1 */
    for (c->id = 0; c->id < c->k->n_code; c->id++) {
        const ir_op_info *info = ir_op_of((ir_op)c->k->code[c->id].op);
        if (info->flags & IR_CLOSES && --depth < divided) divided = 0;
        if (info->flags & IR_OPENS) {
            depth++;
            if (!c->uniform[c->id] && !divided) divided = depth;
        }
        if (info->flags & IR_TOGETHER && divided)
            return wrong(
                c, "must be reached by the whole workgroup, but stands where lanes may differ");
        beryl_status status = check_form(c, info);
        if (!status) status = check_unused(c, info->form);
        if (status) return status;
    }
    return BERYL_OK;
}

beryl_status ir_verify(base_heap *heap, const ir_kernel *k, beryl_error *error) {
    checker c = {.k = k, .error = error};
    beryl_status status = check_declarations(&c);
    if (status) return status;
    size_t size = (size_t)k->n_code * (sizeof *c.block + sizeof *c.open + sizeof *c.uniform);
    void *memory = base_heap_take(heap, size);
    if (!memory) return base_fail(error, BERYL_NO_MEMORY, "no memory to check kernel %s", k->name);
    c.block = memory;
    c.open = (bool *)(c.block + k->n_code);
    c.uniform = c.open + k->n_code;
    status = check_skeleton(&c);
    if (!status) {
        ir_uniform(k, c.uniform);
        status = check_code(&c);
    }
    base_heap_give(heap, memory, size ? size : 1);
    return status;
}
