/* print.c - a kernel as text that parse.c reads back to the same bits.
 *
 * The idea: declarations, then one instruction a line, set in by its block: `%id = op type` (where
 * there is a result), what the form has beside operands, then operands. Numbers do not depend on
 * the locale.
 */
#include "ir/ir.h"
#include "base/build.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *space_name(uint32_t space) {
    return space == IR_BUFFER ? "buffer" : space == IR_WORKGROUP ? "workgroup" : "register";
}

/* ---- numbers ----------------------------------------------------------------------------------
 */

/* 0x1.8p+1, -0x0p+0: every double exactly, as C's %a but with a dot in every locale. */
static void print_hex_float(base_text *text, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint64_t mantissa = bits & ((UINT64_C(1) << 52) - 1);
    int exponent = (int)(bits >> 52 & 2047), digits = 13;
    base_text_print(text, "%s0x%d", bits >> 63 ? "-" : "", exponent != 0);
    if (exponent == 0) exponent = mantissa ? 1 : 1023;
    for (; digits && !(mantissa & 15); digits--) mantissa >>= 4;
    if (digits) base_text_print(text, ".%0*llx", digits, (unsigned long long)mantissa);
    base_text_print(text, "p%+d", exponent - 1023);
}

void ir_print_float(base_text *text, double value) {
    if (isinf(value)) base_text_print(text, value < 0 ? "-inf" : "inf");
    else if (fabs(value) <= 1e6 && value == floor(value) && !(value == 0 && signbit(value)))
        base_text_print(text, "%ld", (long)value);
    else print_hex_float(text, value);
}

static void print_number(base_text *text, ir_type type, uint64_t bits) {
    double value = ir_to_double(type, bits);
    if (type == IR_BOOL) {
        base_text_print(text, bits ? "true" : "false");
    } else if (ir_type_in(type, IR_UNSIGNED)) {
        base_text_print(text, "%llu", (unsigned long long)bits);
    } else if (ir_type_in(type, IR_SIGNED)) {
        uint64_t sign = UINT64_C(1) << (8 * ir_type_bytes(type) - 1);
        uint64_t size = bits & sign ? sign - (bits ^ sign) : bits;
        base_text_print(text, "%s%llu", bits & sign ? "-" : "", (unsigned long long)size);
    } else if (isnan(value)) {
        base_text_print(text, "bits 0x%llx", (unsigned long long)bits);
    } else {
        ir_print_float(text, value);
    }
}

/* ---- instructions -----------------------------------------------------------------------------
 */

static void print_type(base_text *text, uint32_t type, uint32_t width) {
    base_text_print(text, " %s", ir_type_name((ir_type)type));
    if (width > 1) base_text_print(text, "x%u", width);
}

/* What stands between the type and the operands. */
static void print_middle(base_text *text, const ir_instruction *i, ir_form form) {
    switch (form) {
    case IR_FORM_CONST:
        base_text_print(text, " ");
        print_number(text, (ir_type)i->type, i->imm);
        break;
    case IR_FORM_PARAM: base_text_print(text, " %u", i->array); break;
    case IR_FORM_AXIS: base_text_print(text, " %c", "xyz"[i->imm % 3]); break;
    case IR_FORM_EXTRACT:
    case IR_FORM_LANE:
    case IR_FORM_COUNT: base_text_print(text, " %llu", (unsigned long long)i->imm); break;
    case IR_FORM_SWIZZLE:
        for (uint32_t lane = 0; lane < i->width && lane < 16; lane++)
            base_text_print(text, " %u", (unsigned)(i->imm >> 4 * lane & 15));
        break;
    case IR_FORM_LOAD:
    case IR_FORM_STORE:
    case IR_FORM_ATOMIC:
        base_text_print(text, " %s %u%s", space_name(i->space), i->array,
                        i->imm ? " anywhere" : "");
        break;
    case IR_FORM_FRAGMENT_FILL: base_text_print(text, " %u", i->array); break;
    case IR_FORM_FRAGMENT_LOAD:
    case IR_FORM_FRAGMENT_STORE:
        base_text_print(text, " %u%s %s %u", (unsigned)(i->imm & 0xffff),
                        i->imm >> 17   ? " pairs"
                        : i->imm >> 16 ? " transposed"
                                       : "",
                        space_name(i->space), i->array);
        break;
    case IR_FORM_FRAGMENT_MULTIPLY:
        base_text_print(text, " %u %u%s%s", (unsigned)(i->imm & 0xffff),
                        (unsigned)(i->imm >> 24 & 255), i->imm >> 16 & 1 ? " a" : "",
                        i->imm >> 17 & 1 ? " b" : "");
        if (i->imm >> 19 & 1) base_text_print(text, " fresh");
        if (i->imm >> 18 & 1) base_text_print(text, " held %u", (unsigned)(i->imm >> 32));
        base_text_print(text, " %s %u", space_name(i->space), i->array);
        break;
    case IR_FORM_FRAGMENT_GET:
    case IR_FORM_FRAGMENT_SET:
        base_text_print(text, " %u %u", (unsigned)(i->imm & 0xffff), (unsigned)(i->imm >> 16));
        break;
    case IR_FORM_FRAGMENT_MMA:
        base_text_print(text, " %u %u %u", (unsigned)(i->imm & 0xffff),
                        (unsigned)(i->imm >> 16 & 0xffff), (unsigned)(i->imm >> 32 & 0xffff));
        break;
    case IR_FORM_COPY_ASYNC:
        base_text_print(text, " %llu workgroup %u buffer %u", (unsigned long long)(i->imm >> 16),
                        i->array, (unsigned)(i->imm & 0xffff));
        break;
    case IR_FORM_LOOP:
        if (i->imm >> 16) base_text_print(text, " mark %llu", (unsigned long long)(i->imm >> 16));
        if (i->imm & 0xffff) base_text_print(text, " unroll %u", (unsigned)(i->imm & 0xffff));
        break;
    case IR_FORM_INDEX:
    case IR_FORM_SAME:
    case IR_FORM_COMPARE:
    case IR_FORM_SELECT:
    case IR_FORM_DOT:
    case IR_FORM_CAST:
    case IR_FORM_BITCAST:
    case IR_FORM_SPLAT:
    case IR_FORM_COMPOSE:
    case IR_FORM_IF:
    case IR_FORM_BARE: break;
    }
}

void ir_print_one(base_text *text, const ir_kernel *k, ir_id id) {
    const ir_instruction *i = &k->code[id];
    const ir_op_info *info = ir_op_of((ir_op)i->op);
    if (ir_has_result(i)) base_text_print(text, "%%%u = ", id);
    base_text_print(text, "%s", info->name);
    if (ir_has_result(i)) print_type(text, i->type, i->width);
    print_middle(text, i, info->form);
    for (uint32_t n = 0; n < i->n_in; n++) base_text_print(text, " %%%u", i->in[n]);
}

/* ---- the whole --------------------------------------------------------------------------------
 */

static void print_array(base_text *text, const char *what, uint32_t number,
                        const ir_array_decl *a) {
    base_text_print(text, "  %s %u %s %u", what, number, ir_type_name(a->type), a->count);
    if (a->swizzle_bits)
        base_text_print(text, " swizzle %u %u %u", a->swizzle_bits, a->swizzle_base,
                        a->swizzle_shift);
    base_text_print(text, "\n");
}

static void print_declarations(base_text *text, const ir_kernel *k) {
    static const char *const access[] = {"read", "read_write", "write_past"};
    base_text_print(text, "kernel \"%s\" workgroup %u %u %u", k->name, k->workgroup[0],
                    k->workgroup[1], k->workgroup[2]);
    if (k->subgroup_size) base_text_print(text, " subgroup %u", k->subgroup_size);
    base_text_print(text, "\n");
    for (uint32_t i = 0; i < k->n_buffer; i++)
        base_text_print(text, "  buffer %u %s %s \"%s\"\n", i,
                        BUILD_HAS_C_TEXTS && k->buffers[i].once ? "read_once"
                                                                : access[k->buffers[i].access],
                        ir_type_name(k->buffers[i].type), k->buffers[i].name);
    for (uint32_t i = 0; i < k->n_param; i++)
        base_text_print(text, "  param %u %s \"%s\"\n", i, ir_type_name(k->params[i].type),
                        k->params[i].name);
    for (uint32_t i = 0; i < k->n_workgroup; i++)
        print_array(text, "workgroup", i, &k->workgroups[i]);
    for (uint32_t i = 0; i < k->n_register; i++) print_array(text, "register", i, &k->registers[i]);
    for (uint32_t i = 0; i < k->n_fragment; i++) {
        const ir_fragment_decl *f = &k->fragments[i];
        base_text_print(text, "  fragment %u %c %s %u %u %u count %u\n", i, "abc"[f->role],
                        ir_type_name(f->type), f -> m, f -> n, f -> k, f -> count);
    }
}

void ir_print(base_text *text, const ir_kernel *k) {
    uint32_t depth = 0;
    print_declarations(text, k);
    for (ir_id id = 0; id < k->n_code; id++) {
        uint32_t flags = ir_op_of((ir_op)k->code[id].op)->flags;
        if (flags & IR_CLOSES && depth) depth--;
        base_text_print(text, "%*s", (int)(2 + 2 * depth), "");
        ir_print_one(text, k, id);
        base_text_print(text, "\n");
        if (flags & IR_OPENS) depth++;
    }
}
