/* ir_test.c - the kernel IR: what it prints it reads, what it refuses, and what every op means. */
#include "ir_lab.h"
#include "base/thread.h"
#include "ir/ir.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ir_kernel *finish(test *t, lab *l, ir_builder *b) {
    const ir_kernel *k;
    if (ir_finish(b, &k, &l->error)) test_fail(t, __FILE__, __LINE__, "%s", l->error.message);
    return k;
}

/* Parses a copy of exactly that size, so that a sanitizer sees a read beyond it. */
static const ir_kernel *parse(lab *l, const char *text, size_t size) {
    const ir_kernel *k = NULL;
    char *copy = malloc(size ? size : 1);
    if (!copy) abort();
    if (size) memcpy(copy, text, size);
    ir_parse(&l->arena, copy, size, &k, &l->error);
    free(copy);
    return k;
}

/* Prints and parses: the same declarations, instructions and text again. */
static void check_round_trip(test *t, lab *l, const ir_kernel *k) {
    base_text text, again;
    base_text_init(&text, &l->heap);
    base_text_init(&again, &l->heap);
    ir_print(&text, k);
    const ir_kernel *back = parse(l, text.data, text.size);
    if (!back) {
        test_fail(t, __FILE__, __LINE__, "%s in\n%s", l->error.message, text.data);
    } else {
        ir_print(&again, back);
        CHECK_TEXT(t, again.data, text.data);
        CHECK_INT(t, back->n_code, k->n_code);
        for (uint32_t n = 0; n < k->n_code && n < back->n_code; n++) {
            const ir_instruction *a = &k->code[n], *b = &back->code[n];
            CHECK(t, a->op == b->op && a->type == b->type && a->width == b->width &&
                         a->n_in == b->n_in && a->space == b->space && a->array == b->array &&
                         a->imm == b->imm && !memcmp(a->in, b->in, sizeof a->in));
            if (test_failed(t)) break;
        }
    }
    base_text_fini(&text);
    base_text_fini(&again);
}

/* ---- print and parse --------------------------------------------------------------------------
 */

/* One kernel with every op of the forms that any type may have, over all types and widths. */
static const ir_kernel *every_pure_op(test *t, lab *l, bool *seen) {
    static const uint8_t widths[] = {1, 2, 4, 8, 16};
    ir_builder *b = ir_begin(&l->arena, "every_op", 64, 1, 1);
    ir_subgroup(b, 32);
    for (int op = 0; op < IR_OP_COUNT; op++) {
        const ir_op_info *info = ir_op_of((ir_op)op);
        for (int type = IR_F32; type < IR_TYPE_COUNT; type++)
            for (size_t w = 0; w < sizeof widths && ir_type_in((ir_type)type, info->types); w++) {
                uint32_t width = widths[w];
                ir_id x = ir_bits(b, (ir_type)type, width, 1), in[3] = {x, x, x};
                ir_type result = (ir_type)type, from = type == IR_I8 ? IR_F64 : IR_I8;
                uint64_t imm = 0;
                if (info->form == IR_FORM_COMPARE) result = IR_BOOL;
                else if (info->form == IR_FORM_SELECT) in[0] = ir_bits(b, IR_BOOL, width, 1);
                else if (info->form == IR_FORM_DOT) in[0] = in[1] = ir_bits(b, IR_U32, width, 7);
                else if (info->form == IR_FORM_CAST) in[0] = ir_bits(b, from, width, 1);
                else if (info->form == IR_FORM_LANE) imm = 31;
                else if (info->form != IR_FORM_SAME) continue;
                ir_emit(b, (ir_instruction){.op = (uint8_t)op,
                                            .type = (uint8_t)result,
                                            .width = (uint8_t)width,
                                            .n_in = info->n_in,
                                            .in = {in[0], in[1], in[2]},
                                            .imm = imm});
                seen[op] = true;
            }
    }
    return finish(t, l, b);
}

static void build_memory(ir_builder *b) {
    ir_memory x = ir_buffer(b, IR_F16, IR_READ, "x"), y = ir_buffer(b, IR_I32, IR_READ_WRITE, "y");
    ir_memory s = ir_workgroup_swizzled(b, IR_F16, 1024, 3, 3, 3), w = ir_workgroup(b, IR_I32, 64);
    ir_memory r = ir_register(b, IR_F16, 8);
    ir_fragments fa = ir_fragment(b, IR_ROLE_A, IR_F16, 16, 8, 16, 2);
    ir_fragments fb = ir_fragment(b, IR_ROLE_B, IR_F16, 16, 8, 16, 1);
    ir_fragments fc = ir_fragment(b, IR_ROLE_C, IR_F32, 16, 8, 16, 1);
    ir_memory z = ir_buffer(b, IR_F32, IR_WRITE_PAST, "z");
    ir_buffer_once(b, ir_buffer(b, IR_U32, IR_READ, "once"));
    ir_id n = ir_param(b, IR_U32, "n"), f = ir_param(b, IR_F32, "scale");
    ir_id zero = ir_u32(b, 0), one = ir_u32(b, 1), stride = ir_u32(b, 16);
    ir_id v = ir_load(b, x, zero, 8);
    ir_store(b, s, zero, v);
    x.anywhere = true;
    ir_store(b, r, zero, ir_load(b, x, one, 8));
    ir_store(b, r, zero, ir_swizzle(b, ir_splat(b, ir_extract(b, v, 3), 4), 4, 0x3210));
    ir_id lanes[16];
    for (int i = 0; i < 16; i++) lanes[i] = ir_cast(b, IR_I8, ir_group(b, (uint32_t)i % 3));
    ir_bitcast(b, IR_U32, 4, ir_compose(b, lanes, 16));
    ir_id i = ir_loop_unrolled(b, zero, n, one, 4);
    ir_if(b, ir_lt(b, ir_local(b, 1), i));
    ir_id old = ir_atomic(b, IR_ATOMIC_ADD, y, zero, ir_i32(b, -5));
    ir_atomic(b, IR_ATOMIC_MIN, w, one, old);
    ir_else(b);
    ir_atomic(b, IR_ATOMIC_MAX, w, ir_groups(b, 2), ir_i32(b, INT32_MIN));
    ir_end(b);
    ir_end(b);
    ir_barrier(b);
    ir_uniform_load(b, w, zero);
    ir_add(b, ir_subgroup_lane(b), ir_subgroup_size(b));
    ir_copy_async(b, s, zero, x, zero, 16, IR_NO_ID);
    ir_copy_async(b, s, ir_u32(b, 8), x, zero, 4, ir_bool(b, false));
    ir_copy_commit(b);
    ir_copy_wait(b, 3);
    ir_fragment_fill(b, fc, zero, f);
    ir_fragment_load(b, fa, one, s, zero, stride, false);
    ir_fragment_load(b, fb, zero, x, zero, stride, true);
    ir_fragment_mma(b, fc, zero, fa, one, fb, zero);
    ir_fragment_multiply(b, fc, s, zero, one, true, 2);
    ir_fragment_multiply_held(b, fc, fa, s, one, 2);
    ir_fragment_wait(b, 1);
    ir_fragment_set(b, fa, one, 3, ir_cast(b, IR_F16, ir_fragment_get(b, fc, zero, 1)));
    ir_fragment_store(b, fc, zero, z, zero, stride, false);
    ir_get(b, r);
    ir_set(b, r, ir_number(b, IR_F16, 1, 0.1));
    ir_if(b, ir_bool(b, true));
    ir_end(b);
}

/* ---- hash -------------------------------------------------------------------------------------
 */

/* A copy whose parts may be changed. */
typedef struct loose {
    ir_kernel k;
    ir_buffer_decl buffers[IR_BUFFER_MAX];
    ir_param_decl params[IR_PARAM_MAX];
    ir_array_decl arrays[2][IR_ARRAY_MAX]; /* workgroups, registers */
    ir_fragment_decl fragments[IR_ARRAY_MAX];
    ir_instruction *code;
} loose;

static loose *loosen(lab *l, const ir_kernel *k) {
    loose *c = base_arena_take(&l->arena, 1, sizeof *c);
    if (c) c->code = base_arena_take(&l->arena, k->n_code + 1, sizeof *c->code);
    if (!c || !c->code) abort();
    c->k = *k;
    memcpy(c->code, k->code, k->n_code * sizeof *c->code);
    if (k->n_buffer) memcpy(c->buffers, k->buffers, k->n_buffer * sizeof *c->buffers);
    if (k->n_param) memcpy(c->params, k->params, k->n_param * sizeof *c->params);
    if (k->n_workgroup) memcpy(c->arrays[0], k->workgroups, k->n_workgroup * sizeof *k->workgroups);
    if (k->n_register) memcpy(c->arrays[1], k->registers, k->n_register * sizeof *k->registers);
    if (k->n_fragment) memcpy(c->fragments, k->fragments, k->n_fragment * sizeof *c->fragments);
    c->k.buffers = c->buffers, c->k.params = c->params, c->k.fragments = c->fragments;
    c->k.workgroups = c->arrays[0], c->k.registers = c->arrays[1], c->k.code = c->code;
    return c;
}

/* The field is changed, looked at and put back. */
#define CHECK_COUNTS(c, field, was)                                                         \
    do {                                                                                    \
        (field) ^= 1;                                                                       \
        if (ir_hash(&(c)->k, 1) == (was))                                                   \
            test_fail(t, __FILE__, __LINE__, "%s: %s does not count", (c)->k.name, #field); \
        (field) ^= 1;                                                                       \
    } while (0)

static void check_hash(test *t, lab *l, const ir_kernel *k) {
    loose *c = loosen(l, k);
    const uint64_t was = ir_hash(k, 1);
    CHECK(t, ir_hash(k, 2) != was);
    CHECK(t, ir_hash(&c->k, 1) == was);
    for (int i = 0; i < 3; i++) CHECK_COUNTS(c, c->k.workgroup[i], was);
    CHECK_COUNTS(c, c->k.subgroup_size, was);
    for (uint32_t i = 0; i < k->n_buffer; i++) {
        CHECK_COUNTS(c, c->buffers[i].type, was);
        CHECK_COUNTS(c, c->buffers[i].access, was);
        CHECK_COUNTS(c, c->buffers[i].once, was);
    }
    for (uint32_t i = 0; i < k->n_param; i++) CHECK_COUNTS(c, c->params[i].type, was);
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t n = 0; n < (i ? k->n_register : k->n_workgroup); n++) {
            ir_array_decl *a = &c->arrays[i][n];
            CHECK_COUNTS(c, a->type, was);
            CHECK_COUNTS(c, a->count, was);
            CHECK_COUNTS(c, a->swizzle_bits, was);
            CHECK_COUNTS(c, a->swizzle_base, was);
            CHECK_COUNTS(c, a->swizzle_shift, was);
        }
    for (uint32_t i = 0; i < k->n_fragment; i++) {
        ir_fragment_decl *f = &c->fragments[i];
        CHECK_COUNTS(c, f->role, was);
        CHECK_COUNTS(c, f->type, was);
        CHECK_COUNTS(c, f->m, was);
        CHECK_COUNTS(c, f->n, was);
        CHECK_COUNTS(c, f->k, was);
        CHECK_COUNTS(c, f->count, was);
    }
    const uint32_t step = 1 + k->n_code / 200; /* of a long one not all */
    for (uint32_t n = 0; n < k->n_code && !test_failed(t); n += step) {
        ir_instruction *i = &c->code[n];
        CHECK_COUNTS(c, i->op, was);
        CHECK_COUNTS(c, i->type, was);
        CHECK_COUNTS(c, i->width, was);
        CHECK_COUNTS(c, i->n_in, was);
        CHECK_COUNTS(c, i->space, was);
        CHECK_COUNTS(c, i->array, was);
        CHECK_COUNTS(c, i->imm, was);
        i->imm ^= UINT64_C(1) << 63;
        CHECK(t, ir_hash(&c->k, 1) != was);
        i->imm ^= UINT64_C(1) << 63;
        for (uint32_t o = 0; o < 4; o++) CHECK_COUNTS(c, i->in[o], was);
    }
    c->k.name = "another";
    for (uint32_t i = 0; i < k->n_buffer; i++) c->buffers[i].name = "another";
    for (uint32_t i = 0; i < k->n_param; i++) c->params[i].name = "another";
    CHECK(t, ir_hash(&c->k, 1) == was);
    c->k.n_code--;
    CHECK(t, ir_hash(&c->k, 1) != was);
}

static void test_round_trips(test *t) {
    lab l;
    if (test_case(t, "ir/print-and-parse-every-op")) {
        bool seen[IR_OP_COUNT] = {false};
        lab_open(&l, -1);
        check_round_trip(t, &l, every_pure_op(t, &l, seen));
        ir_builder *b = ir_begin(&l.arena, "memory", 32, 2, 1);
        ir_subgroup(b, 32);
        build_memory(b);
        const ir_kernel *k = finish(t, &l, b);
        for (uint32_t n = 0; k && n < k->n_code; n++) seen[k->code[n].op] = true;
        if (k) check_round_trip(t, &l, k);
        for (int op = 0; op < IR_OP_COUNT; op++)
            if (!seen[op])
                test_fail(t, __FILE__, __LINE__, "%s is in no kernel here",
                          ir_op_of((ir_op)op)->name);
        lab_close(t, &l);
    }
    if (test_case(t, "ir/hash-counts-all-but-names")) {
        bool seen[IR_OP_COUNT] = {false};
        lab_open(&l, -1);
        check_hash(t, &l, every_pure_op(t, &l, seen));
        ir_builder *b = ir_begin(&l.arena, "memory", 32, 2, 1);
        ir_subgroup(b, 32);
        build_memory(b);
        const ir_kernel *k = finish(t, &l, b);
        if (k) check_hash(t, &l, k);
        lab_close(t, &l);
    }
    if (test_case(t, "ir/constants-print-exactly")) {
        static const double values[] = {0,        -0.0,     1,         -3,     0.5, 1e-45,
                                        65504,    0.1,      1e300,     5e-324, 1e6, 1000001,
                                        16777217, INFINITY, -INFINITY, NAN};
        base_random random = {7};
        lab_open(&l, -1);
        ir_builder *b = ir_begin(&l.arena, "k", 1, 1, 1);
        for (int type = IR_F32; type < IR_TYPE_COUNT; type++) {
            uint32_t bits = type == IR_BOOL ? 1 : 8 * ir_type_bytes((ir_type)type);
            uint64_t mask = UINT64_MAX >> (64 - bits);
            for (size_t i = 0; i < sizeof values / sizeof *values; i++)
                ir_number(b, (ir_type)type, 1, values[i]);
            for (int i = 0; i < 100; i++)
                ir_bits(b, (ir_type)type, 2, base_random_next(&random) & mask);
            ir_bits(b, (ir_type)type, 1, mask);
            ir_bits(b, (ir_type)type, 1, (mask >> 1) + 1);
            ir_bits(b, (ir_type)type, 1, mask >> 1);
            ir_bits(b, (ir_type)type, 1, 1);
        }
        check_round_trip(t, &l, finish(t, &l, b));
        lab_close(t, &l);
    }
    if (test_case(t, "ir/text-may-have-comments-and-blank-lines")) {
        static const char text[] = "\n; a kernel\n\tkernel \"k\" workgroup 1 1 1 ; so\r\n\n"
                                   "%0 = const f32 0x1.8p+1;three\n ;\n%1 = neg f32 %0";
        lab_open(&l, -1);
        const ir_kernel *k = parse(&l, text, sizeof text - 1);
        CHECK(t, k && k->n_code == 2 && k->code[0].imm == 0x40400000);
        lab_close(t, &l);
    }
    if (test_case(t, "ir/names-of-types-and-ops-are-as-written")) {
        CHECK_TEXT(t, ir_type_name(IR_BOOL), "bool");
        CHECK_TEXT(t, ir_op_of(IR_AND)->name, "and");
        CHECK_TEXT(t, ir_op_of(IR_IF)->name, "if");
    }
}

/* ---- refusals ---------------------------------------------------------------------------------
 */

#define HEAD "kernel \"k\" workgroup 64 1 1 subgroup 32\n"
#define ARRAYS                                                                                     \
    HEAD "buffer 0 read f32 \"x\"\nbuffer 1 read_write f32 \"y\"\nbuffer 2 read_write i32 \"z\"\n" \
         "param 0 u32 \"n\"\nworkgroup 0 f32 64\nworkgroup 1 f16 64 swizzle 1 2 1\n"               \
         "workgroup 2 u32 4\nworkgroup 3 u8 64 swizzle 1 2 1\nbuffer 3 read u8 \"w\"\n"            \
         "register 0 f32 4\nregister 1 u32 4\n"                                                    \
         "fragment 0 a f16 8 8 8 count 1\nfragment 1 b f16 8 8 8 count 1\n"                        \
         "fragment 2 c f32 8 8 8 count 1\nfragment 3 c f32 8 8 4 count 1\n"                        \
         "fragment 4 b bf16 8 8 8 count 1\nfragment 5 c i32 8 8 8 count 1\n"                       \
         "%0 = const u32 0\n%1 = const f32 1\n%2 = local u32 x\n%3 = const bool true\n"            \
         "%4 = const f32x4 1\n%5 = lt bool %2 %0\n"
#define MULTIPLIES                                                                \
    HEAD "workgroup 0 f16 1024 swizzle 3 3 3\nfragment 0 c f32 16 8 16 count 1\n" \
         "fragment 1 a bf16 16 8 16 count 1\n%0 = const u32 0\n"

/* The text, after ARRAYS unless it begins a kernel itself, and what the message says. */
static const struct refusal {
    const char *text, *says;
} refusals[] = {
    /* declarations */
    {"kernel \"9k\" workgroup 1 1 1\n", "identifier"},
    {"kernel \"k\" workgroup 0 1 1\n", "side of 0"},
    {"kernel \"k\" workgroup 1024 2 1\n", "more than 1024 lanes"},
    {"kernel \"k\" workgroup 64 1 1 subgroup 24\n", "subgroups of 24"},
    {"kernel \"k\" workgroup 16 1 1 subgroup 32\n", "subgroups of 32"},
    {HEAD "buffer 0 read bool \"x\"\n", "buffer 0 needs"},
    {HEAD "buffer 0 read f32 \"x-y\"\n", "buffer 0 needs"},
    {HEAD "param 0 f16 \"n\"\n", "param 0 needs"},
    {HEAD "workgroup 0 f32 0\n", "at least 1 element"},
    {HEAD "workgroup 0 none 1\n", "needs a number type"},
    {HEAD "workgroup 0 f64 131073\n", "more than 1048576 bytes"},
    {HEAD "register 0 f32 16385\n", "more than 65536 bytes"},
    {HEAD "workgroup 0 f32 64 swizzle 3 3 2\n", "shift >= bits"},
    {HEAD "workgroup 0 f32 72 swizzle 2 2 2\n", "whole blocks"},
    {HEAD "fragment 0 c i8 8 8 8 count 1\n", "role and type"},
    {HEAD "fragment 0 a f16 0 8 8 count 1\n", "shape of 0 8 8"},
    {HEAD "fragment 0 c f32 64 64 8 count 5\n", "more than 65536 bytes"},
    {"kernel \"k\" workgroup 64 1 1\nfragment 0 c f32 8 8 8 count 1\n", "need subgroups"},
    /* operands and blocks */
    {"%6 = add f32 %1\n", "1 operands, not 2"},
    {"%6 = compose f32x4 %1 %1 %1\n", "3 operands"},
    {"%6 = neg f32 %6\n", "no value before it"},
    {"%6 = neg f32 %9\n", "no value before it"},
    {"barrier\n%7 = neg f32 %6\n", "no value before it"},
    {"if %3\n%7 = neg f32 %1\nend\n%9 = neg f32 %7\n", "block that has ended"},
    {"if %3\n%7 = neg f32 %1\nelse\n%9 = neg f32 %7\nend\n", "block that has ended"},
    {"%6 = loop u32 %0 %0 %0\nend\n%8 = neg u32 %6\n", "block that has ended"},
    {"end\n", "has not begun"},
    {"else\n", "has not begun"},
    {"%6 = loop u32 %0 %0 %0\nelse\nend\n", "stands in no if"},
    {"if %3\nelse\nelse\nend\n", "stands in no if"},
    {"if %3\n", "has no end"},
    {"if %1\nend\n", "operand 0 is f32"},
    {"%6 = loop u32 %0 %1 %0\nend\n", "operand 1 is f32"},
    {"%6 = loop f32 %0 %0 %0\nend\n", "cannot give the type f32"},
    {"%6 = loop u32 unroll 1025 %0 %0 %0\nend\n", "more than 1024"},
    /* types and widths */
    {"%6 = sqrt u32 %0\n", "cannot give the type u32"},
    {"%6 = and f32 %1 %1\n", "cannot give the type f32"},
    {"%6 = add bool %3 %3\n", "cannot give the type bool"},
    {"%6 = add f32 %1 %0\n", "operand 1 is u32"},
    {"%6 = add f32x4 %4 %1\n", "operand 1 has the width 1"},
    {"%6 = add f32x3 %1 %1\n", "width 3"},
    {"%6 = lt u32 %0 %0\n", "cannot give the type u32"},
    {"%6 = lt bool %3 %3\n", "does not take bool"},
    {"%6 = lt bool %0 %1\n", "operand 1 is f32"},
    {"%6 = is_nan bool %0\n", "does not take u32"},
    {"%6 = select f32 %1 %1 %1\n", "operand 0 is f32"},
    {"%6 = select f32x4 %3 %4 %4\n", "operand 0 has the width 1"},
    {"%6 = dot4_i8 i32 %0 %0 %0\n", "operand 2 is u32"},
    {"%6 = bitcast f16 %1\n", "number of bits"},
    {"%6 = bitcast u32 %3\n", "operand 0 is bool"},
    {"%6 = splat f32x8 %4\n", "width 4, not 1"},
    {"%6 = extract f32 4 %4\n", "vector lane"},
    {"%6 = swizzle f32x2 0 4 %4\n", "vector lane"},
    {"%6 = compose f32x8 %4 %1\n", "width 1, not 4"},
    {"%6 = compose f32x2 %1 %1 %1 %1\n", "gives the width 2"},
    {"%6 = group u32x2 x\n", "width 2, not 1"},
    {"%6 = param f32 0\n", "no parameter"},
    {"%6 = param u32 1\n", "no parameter"},
    /* memory */
    {"%6 = load f32 buffer 4 %0\n", "declared"},
    {"%6 = load f32 register 2 %0\n", "declared"},
    {"%6 = load f16 buffer 0 %0\n", "the elements are f32"},
    {"%6 = load f32 buffer 0 %1\n", "operand 0 is f32"},
    {"%6 = const i32 0\n%7 = load f32 buffer 0 %6\n", "operand 0 is i32"},
    {"store buffer 0 %0 %1\n", "read only"},
    {"store buffer 2 %0 %1\n", "operand 1 is f32"},
    {"%6 = load f16x8 workgroup 1 %0\n", "swizzle"},
    {"%6 = load f16x4 workgroup 1 anywhere %0\n", "swizzle"},
    {"%6 = load f32 buffer 0 anywhere %0\n", "no vector"},
    {"store register 0 anywhere %0 %4\n", "no vector"},
    {"%6 = const i32 1\n%7 = atomic_add i32 buffer 2 anywhere %0 %6\n", "no vector"},
    {"%6 = atomic_add f32 buffer 1 %0 %1\n", "cannot give the type f32"},
    {"%6 = atomic_max u32 register 1 %0 %0\n", "workgroup array and the width 1"},
    {"%6 = splat u32x2 %0\n%7 = atomic_max u32x2 workgroup 2 %0 %6\n", "the width 1"},
    {"copy_async 8 workgroup 3 buffer 3 %0 %0\n", "swizzle"},
    {"%6 = const i32 1\n%7 = atomic_add i32 buffer 0 %0 %6\n", "read only"},
    {"%6 = uniform_load f32 buffer 0 %0\n", "needs a workgroup array"},
    {"%6 = uniform_load f32 workgroup 0 %2\n", "may differ"},
    {"copy_async 16 workgroup 0 buffer 2 %0 %0\n", "different types"},
    {"copy_async 12 workgroup 0 buffer 0 %0 %0\n", "12 bytes"},
    {"copy_async 4 register 0 buffer 0 %0 %0\n", "to a workgroup array"},
    {"copy_async 4 workgroup 0 buffer 9 %0 %0\n", "declared buffer"},
    {"copy_async 4 workgroup 0 buffer 0 %0 %0 %0\n", "operand 2 is u32"},
    {"copy_wait 256\n", "beyond 255"},
    /* together */
    {"if %5\nbarrier\nend\n", "whole workgroup"},
    {"if %5\nelse\nbarrier\nend\n", "whole workgroup"},
    {"%6 = loop u32 %0 %2 %0\n%7 = subgroup_add f32 %1\nend\n", "whole workgroup"},
    {"%6 = load f32 buffer 1 %0\n%7 = lt bool %6 %1\nif %7\nbarrier\nend\n", "whole workgroup"},
    {"store register 0 %2 %1\n%7 = load f32 register 0 %0\n%8 = lt bool %7 %1\nif "
     "%8\nbarrier\nend\n",
     "whole workgroup"},
    {"%6 = subgroup_broadcast f32 32 %1\n", "outside the subgroup"},
    {"kernel \"k\" workgroup 64 1 1\n%0 = const f32 1\n%1 = subgroup_add f32 %0\n",
     "needs subgroups"},
    {"kernel \"k\" workgroup 64 1 1\n%0 = subgroup_lane u32\n", "needs subgroups"},
    {"kernel \"k\" workgroup 64 1 1\n%0 = const f32 1\n%1 = subgroup_broadcast f32 0 %0\n",
     "needs subgroups"},
    /* fragments */
    {"fragment_fill 9 %0 %1\n", "no fragment"},
    {"fragment_fill 2 %0 %0\n", "operand 1 is u32"},
    {"fragment_mma 0 0 1 %0 %0 %0\n", "roles c, a, b"},
    {"fragment_mma 3 0 1 %0 %0 %0\n", "different shapes"},
    {"fragment_mma 2 0 4 %0 %0 %0\n", "different types"},
    {"fragment_mma 5 0 1 %0 %0 %0\n", "different shapes or kinds"},
    {"fragment_mma 2 0 1 %0 %0 %1\n", "operand 2 is f32"},
    {"fragment_multiply 0 1 workgroup 0 %0 %0\n", "wants sums"},
    {MULTIPLIES "fragment_multiply 0 1 held 9 workgroup 0 %0 %0\n", "no fragment"},
    {MULTIPLIES "fragment_multiply 0 1 held 1 workgroup 0 %0 %0\n", "another shape or type"},
    {"%6 = fragment_get f16x2 1 2 %0\n", "no pair of a matrix"},
    {"%6 = fragment_get f32x2 2 2 %0\n", "no pair of a matrix"},
    {"fragment_load 0 buffer 0 %0 %0 %0\n", "fragment's type"},
    {"fragment_load 2 register 0 %0 %0 %0\n", "needs a buffer or a workgroup array"},
    {"fragment_store 2 buffer 0 %0 %0 %0\n", "read only"},
    {"fragment_load 2 buffer 0 %0 %0 %1\n", "operand 2 is f32"},
    /* text */
    {"", "no kernel"},
    {"; nothing\n", "no kernel"},
    {"kernel k workgroup 1 1 1\n", "name in quotes"},
    {"kernel \"\" workgroup 1 1 1\n", "name in quotes"},
    {"kernel \"k\" workgroup 1 1\n", "whole number"},
    {"kernel \"k\" workgroup 1 1 1 1\n", "too long"},
    {"kernel \"k\" workgroup 99999999999999999999999 1 1\n", "whole number"},
    {HEAD "buffer 1 read f32 \"x\"\n", "follow each other"},
    {HEAD "buffer 0 write f32 \"x\"\n", "another word"},
    {HEAD "fragment 0 d f32 8 8 8 count 1\n", "another word"},
    {HEAD "workgroup 0 f32 64 swizzle 0 1 1\n", "no bits"},
    {"%7 = neg f32 %1\n", "its place in the list"},
    {"%6 neg f32 %1\n", "another word"},
    {"%6 = nag f32 %1\n", "no such op"},
    {"%6 = barrier\n", "has no result"},
    {"neg f32 %1\n", "has a result"},
    {"%6 = neg f33 %1\n", "type was expected"},
    {"%6 = neg f32x1 %1\n", "type was expected"},
    {"%6 = neg f32x17 %1\n", "type was expected"},
    {"%6 = neg f32 1\n", "operand such as"},
    {"%6 = neg f32 %1 %1 %1 %1 %1\n", "operand such as"},
    {"%6 = neg f32 %99999999999999999999\n", "operand such as"},
    {"%6 = group u32 w\n", "another word"},
    {"%6 = const u8 256\n", "holds exactly"},
    {"%6 = const i8 -129\n", "holds exactly"},
    {"%6 = const u8 -1\n", "holds exactly"},
    {"%6 = const f16 65505\n", "holds exactly"},
    {"%6 = const f32 0x1.0000001p+0\n", "holds exactly"},
    {"%6 = const f64 0x1.00000000000001p+0\n", "holds exactly"},
    {"%6 = const f64 0x1p+1025\n", "holds exactly"},
    {"%6 = const f64 0x1p-1080\n", "holds exactly"},
    {"%6 = const f64 0x1.1.1p+0\n", "holds exactly"},
    {"%6 = const f64 0x1\n", "holds exactly"},
    {"%6 = const f32 bits 0x100000000\n", "holds exactly"},
    {"%6 = const bool 1\n", "holds exactly"},
    {"%6 = const none 1\n", "holds exactly"},
    {"%6 = load f32 memory 0 %0\n", "another word"},
    {"copy_async 4 workgroup 0 workgroup 0 %0 %0\n", "buffer was expected"},
    {"buffer 4 read f32 \"late\"\n", "no such op"},
};

static void test_refusals(test *t) {
    lab l;
    char text[2048];
    if (test_case(t, "ir/each-rule-is-refused-by-name"))
        for (size_t n = 0; n < sizeof refusals / sizeof *refusals; n++) {
            const struct refusal *r = &refusals[n];
            const char *head = strchr("k;", r->text[0]) ? "" : ARRAYS; /* "": empty too */
            snprintf(text, sizeof text, "%s%s", head, r->text);
            lab_open(&l, -1);
            const ir_kernel *k = parse(&l, text, strlen(text));
            if (k || l.error.code != BERYL_BAD_INPUT || !strstr(l.error.message, r->says))
                test_fail(t, __FILE__, __LINE__, "%s gives \"%s\", not \"%s\"", r->text,
                          l.error.message, r->says);
            else if (l.error.at < strlen(head))
                test_fail(t, __FILE__, __LINE__, "%s: byte %u is before it", r->text,
                          (unsigned)l.error.at);
            lab_close(t, &l);
        }
    if (test_case(t, "ir/text-cut-anywhere-is-no-crash")) {
        base_text whole;
        lab_open(&l, -1);
        ir_builder *b = ir_begin(&l.arena, "memory", 32, 2, 1);
        ir_subgroup(b, 32);
        build_memory(b);
        base_text_init(&whole, &l.heap);
        ir_print(&whole, finish(t, &l, b));
        CHECK(t, !whole.failed);
        for (size_t size = 0; size < whole.size; size++) parse(&l, whole.data, size);
        for (size_t at = 0; at < whole.size; at++) {
            char kept = whole.data[at];
            whole.data[at] = "%9 \n\"x;-"[at % 8];
            parse(&l, whole.data, whole.size);
            whole.data[at] = kept;
        }
        base_text_fini(&whole);
        lab_close(t, &l);
    }
    if (test_case(t, "ir/verifier-refuses-what-no-text-says")) {
        static const ir_instruction wrong[] = {
            {.op = IR_OP_COUNT},
            {.op = IR_CONST, .type = IR_TYPE_COUNT, .width = 1},
            {.op = IR_CONST, .type = IR_F16, .width = 1, .imm = 0x10000},
            {.op = IR_CONST, .type = IR_BOOL, .width = 1, .imm = 2},
            {.op = IR_CONST, .type = IR_F16, .width = 1, .array = 1},
            {.op = IR_CONST, .type = IR_F16, .width = 1, .space = 1},
            {.op = IR_GROUP, .type = IR_U32, .width = 1, .imm = 3},
            {.op = IR_BARRIER, .imm = 1},
            {.op = IR_BARRIER, .type = IR_F32, .width = 1},
            {.op = IR_COPY_COMMIT, .width = 1},
        };
        lab_open(&l, -1);
        for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
            const ir_kernel *k;
            ir_builder *b = ir_begin(&l.arena, "k", 1, 1, 1);
            ir_emit(b, wrong[n]);
            CHECK_INT(t, ir_finish(b, &k, &l.error), BERYL_BAD_INPUT);
            CHECK(t, !k && l.error.at == 0);
        }
        lab_close(t, &l);
    }
}

static void test_builder(test *t) {
    lab l;
    if (test_case(t, "ir/builder-keeps-the-first-mistake")) {
        const ir_kernel *k;
        lab_open(&l, -1);
        ir_builder *b = ir_begin(&l.arena, "k", 1, 1, 1);
        ir_id x = ir_f32(b, 1);
        ir_barrier(b);
        CHECK_INT(t, ir_add(b, x, x + 1), IR_NO_ID);
        CHECK_INT(t, ir_mul(b, x, 77), IR_NO_ID);
        CHECK_INT(t, ir_count(b), 2);
        CHECK_INT(t, ir_finish(b, &k, &l.error), BERYL_BAD_INPUT);
        CHECK_TEXT(t, l.error.message, "kernel k, instruction 2 (add): operand %1 is no value");
        CHECK_INT(t, ir_finish(NULL, &k, &l.error), BERYL_NO_MEMORY);
        b = ir_begin(&l.arena, "k", 1, 1, 1);
        for (int n = 0; n < 17; n++) ir_buffer(b, IR_F32, IR_READ, "x");
        CHECK_INT(t, ir_finish(b, &k, &l.error), BERYL_UNSUPPORTED);
        b = ir_begin(&l.arena, "k", 1, 1, 1);
        x = ir_f32(b, 1);
        ir_compose(b, (ir_id[]){x, x, x, x, x, x}, 6);
        CHECK_INT(t, ir_finish(b, &k, &l.error), BERYL_BAD_INPUT);
        lab_close(t, &l);
    }
    if (test_case(t, "ir/builder-gives-the-op-that-it-names")) {
        lab_open(&l, -1);
        ir_builder *b = ir_begin(&l.arena, "k", 64, 1, 1);
        ir_subgroup(b, 32);
        ir_id f = ir_number(b, IR_F16, 4, 2), u = ir_number(b, IR_U8, 2, 3), id;
        ir_id yes = ir_bits(b, IR_BOOL, 4, 1), word = ir_u32(b, 9), sum = ir_i32(b, 1);
#define GAVE(OP, TYPE, WIDTH)               \
    const ir_instruction *i = ir_at(b, id); \
    CHECK(t, i && i->op == (OP) && i->type == (TYPE) && i->width == (WIDTH))
#define FITS(types) ir_type_in(IR_F16, (types))
#define X(NAME, name, form, n_in, types, ...)                               \
    {                                                                       \
        id = ir_##name(b, FITS(types) ? f : u);                             \
        GAVE(IR_##NAME, FITS(types) ? IR_F16 : IR_U8, FITS(types) ? 4 : 2); \
        CHECK(t, ir_unary(b, IR_##NAME, FITS(types) ? f : u) == id + 1);    \
    }
        IR_UNARY_LIST(X)
#undef X
#define X(NAME, name, form, n_in, types, ...)                                                    \
    {                                                                                            \
        ir_id x = FITS(types) ? f : u;                                                           \
        bool compares = IR_FORM_##form == IR_FORM_COMPARE;                                       \
        id = ir_##name(b, x, x);                                                                 \
        GAVE(IR_##NAME, compares ? IR_BOOL : FITS(types) ? IR_F16 : IR_U8, FITS(types) ? 4 : 2); \
        CHECK(t, ir_binary(b, IR_##NAME, x, x) == id + 1);                                       \
    }
        IR_BINARY_LIST(X)
        IR_COMPARE_LIST(X)
#undef X
#define ONE(call, OP, TYPE, WIDTH) \
    {                              \
        id = call;                 \
        GAVE(OP, TYPE, WIDTH);     \
    }
        ONE(ir_is_nan(b, f), IR_IS_NAN, IR_BOOL, 4)
        ONE(ir_fma(b, u, u, u), IR_FMA, IR_U8, 2)
        ONE(ir_select(b, yes, f, f), IR_SELECT, IR_F16, 4)
        ONE(ir_dot4_i8(b, word, word, sum), IR_DOT4_I8, IR_I32, 1)
        ONE(ir_dot4_u8(b, word, word, sum), IR_DOT4_U8, IR_I32, 1)
        ONE(ir_permute_bytes(b, word, word, word), IR_PERMUTE_BYTES, IR_U32, 1)
        ONE(ir_cast(b, IR_BOOL, u), IR_CAST, IR_BOOL, 2)
        ONE(ir_bitcast(b, IR_U16, 1, u), IR_BITCAST, IR_U16, 1)
        ONE(ir_subgroup_add(b, f), IR_SUBGROUP_ADD, IR_F16, 4)
        ONE(ir_subgroup_min(b, u), IR_SUBGROUP_MIN, IR_U8, 2)
        ONE(ir_subgroup_max(b, u), IR_SUBGROUP_MAX, IR_U8, 2)
        ONE(ir_subgroup_broadcast(b, u, 3), IR_SUBGROUP_BROADCAST, IR_U8, 2)
        ONE(ir_subgroup_shuffle_xor(b, u, 3), IR_SUBGROUP_SHUFFLE_XOR, IR_U8, 2)
        ONE(ir_loop(b, word, word, word), IR_LOOP, IR_U32, 1)
        ir_end(b);
        CHECK(t, ir_cast(b, IR_U8, u) == u && ir_splat(b, u, 2) == u &&
                     ir_extract(b, word, 0) == word);
        CHECK(t, finish(t, &l, b) != NULL);
        lab_close(t, &l);
    }
    if (test_case(t, "ir/builder-begins-like-another-kernel")) {
        base_text whole, like;
        lab_open(&l, -1);
        ir_builder *b = ir_begin(&l.arena, "memory", 32, 2, 1);
        ir_subgroup(b, 32);
        build_memory(b);
        const ir_kernel *k = finish(t, &l, b), *again;
        b = k ? ir_begin_like(&l.arena, k) : NULL;
        for (uint32_t n = 0; k && n < k->n_code; n++) ir_emit(b, k->code[n]);
        again = finish(t, &l, b);
        base_text_init(&whole, &l.heap);
        base_text_init(&like, &l.heap);
        if (k) ir_print(&whole, k);
        if (again) ir_print(&like, again);
        CHECK_TEXT(t, like.data, whole.data);
        b = k ? ir_begin_like(&l.arena, k) : NULL;
        ir_load(b, ir_memory_at(IR_REGISTER, 0), ir_u32(b, 0), 1);
        CHECK(t, ir_at(b, ir_param_again(b, 1))->type == IR_F32);
        CHECK(t, finish(t, &l, b) != NULL);
        base_text_fini(&whole);
        base_text_fini(&like);
        lab_close(t, &l);
    }
    if (test_case(t, "ir/blocks-nest-to-a-depth")) {
        lab_open(&l, -1);
        for (int depth = IR_DEPTH_MAX; depth <= IR_DEPTH_MAX + 1; depth++) {
            const ir_kernel *k;
            ir_builder *b = ir_begin(&l.arena, "k", 1, 1, 1);
            ir_id yes = ir_bool(b, true);
            for (int n = 0; n < depth; n++) ir_if(b, yes);
            for (int n = 0; n < depth; n++) ir_end(b);
            CHECK_INT(t, ir_finish(b, &k, &l.error),
                      depth > IR_DEPTH_MAX ? BERYL_BAD_INPUT : BERYL_OK);
        }
        lab_close(t, &l);
    }
}

/* ---- values -----------------------------------------------------------------------------------
 */

/* op, type, bits in, bits out. Casts: in_type is the operand's. */
static const struct rule {
    ir_op op;
    ir_type type, in_type;
    uint64_t in[3], out;
} rules[] = {
    /* integers wrap, and have an answer to everything */
    {IR_ADD, IR_U8, IR_U8, {250, 10}, 4},
    {IR_SUB, IR_U32, IR_U32, {0, 1}, 0xffffffff},
    {IR_MUL, IR_I16, IR_I16, {0x7fff, 2}, 0xfffe},
    {IR_NEG, IR_U16, IR_U16, {1}, 0xffff},
    {IR_NEG, IR_I8, IR_I8, {0x80}, 0x80},
    {IR_ABS, IR_I32, IR_I32, {0x80000000}, 0x80000000},
    {IR_ABS, IR_I32, IR_I32, {0xfffffffb}, 5},
    {IR_ABS, IR_U32, IR_U32, {0xfffffffb}, 0xfffffffb},
    {IR_DIV, IR_I32, IR_I32, {(uint32_t)-7, 2}, (uint32_t)-3},
    {IR_DIV, IR_I32, IR_I32, {7, (uint32_t)-2}, (uint32_t)-3},
    {IR_DIV, IR_I32, IR_I32, {0x80000000, 0xffffffff}, 0x80000000},
    {IR_DIV, IR_I64, IR_I64, {UINT64_C(1) << 63, UINT64_MAX}, UINT64_C(1) << 63},
    {IR_DIV, IR_I8, IR_I8, {0x80, 0xff}, 0x80},
    {IR_DIV, IR_U32, IR_U32, {7, 0}, 0},
    {IR_DIV, IR_I32, IR_I32, {(uint32_t)-7, 0}, 0},
    {IR_MOD, IR_I32, IR_I32, {(uint32_t)-7, 3}, (uint32_t)-1},
    {IR_MOD, IR_I32, IR_I32, {7, (uint32_t)-3}, 1},
    {IR_MOD, IR_I32, IR_I32, {0x80000000, 0xffffffff}, 0},
    {IR_MOD, IR_U64, IR_U64, {7, 0}, 0},
    {IR_SHL, IR_U32, IR_U32, {1, 33}, 2},
    {IR_SHL, IR_U8, IR_U8, {0xff, 9}, 0xfe},
    {IR_SHL, IR_I64, IR_I64, {1, 64}, 1},
    {IR_SHR, IR_I32, IR_I32, {0x80000000, 31}, 0xffffffff},
    {IR_SHR, IR_I32, IR_I32, {0x80000000, 32}, 0x80000000},
    {IR_SHR, IR_U32, IR_U32, {0x80000000, 31}, 1},
    {IR_SHR, IR_I8, IR_I8, {0x90, 4}, 0xf9},
    {IR_SHR, IR_I64, IR_I64, {UINT64_C(1) << 63, 63}, UINT64_MAX},
    {IR_SHR, IR_I32, IR_I32, {8, 0xffffffff}, 0},
    {IR_NOT, IR_U16, IR_U16, {0x00ff}, 0xff00},
    {IR_NOT, IR_BOOL, IR_BOOL, {1}, 0},
    {IR_XOR, IR_BOOL, IR_BOOL, {1, 1}, 0},
    {IR_AND, IR_U8, IR_U8, {0xf0, 0x3c}, 0x30},
    {IR_OR, IR_I64, IR_I64, {UINT64_C(1) << 63, 1}, UINT64_C(1) << 63 | 1},
    {IR_NE, IR_BOOL, IR_I16, {0xffff, 0xffff}, 0},
    {IR_GT, IR_BOOL, IR_I8, {0x80, 0x7f}, 0},
    {IR_POPCOUNT, IR_I64, IR_I64, {UINT64_MAX}, 64},
    {IR_MIN, IR_I8, IR_I8, {0x80, 0x7f}, 0x80},
    {IR_MAX, IR_U8, IR_U8, {0x80, 0x7f}, 0x80},
    {IR_FMA, IR_U32, IR_U32, {0x10000, 0x10000, 5}, 5},
    {IR_LT, IR_BOOL, IR_I8, {0xff, 0}, 1},
    {IR_LT, IR_BOOL, IR_U8, {0xff, 0}, 0},
    {IR_GE, IR_BOOL, IR_I64, {UINT64_MAX, 0}, 0},
    {IR_EQ, IR_BOOL, IR_BOOL, {1, 1}, 1},
    {IR_DOT4_I8, IR_I32, IR_I32, {0x80ff0102, 0x80ff0304, 10}, 10 + 16384 + 1 + 3 + 8},
    {IR_DOT4_I8, IR_I32, IR_I32, {0x7f, 0x80, 0}, (uint32_t)-16256},
    {IR_DOT4_U8, IR_I32, IR_I32, {0x80ff0102, 0x80ff0304, 10}, (uint32_t)-16618},
    {IR_DOT4_U8, IR_I32, IR_I32, {0xffffffff, 0x80808080, 0}, (uint32_t)-130560},
    {IR_PERMUTE_BYTES, IR_U32, IR_U32, {0x33221100, 0x77665544, 0x7430}, 0x77443300},
    {IR_PERMUTE_BYTES, IR_U32, IR_U32, {0x33221180, 0x77e65544, 0x1ed8}, 0x11ff00ff},
    /* floats */
    {IR_NEG, IR_F32, IR_F32, {0}, 0x80000000},
    {IR_NEG, IR_F32, IR_F32, {0x7fc00000}, 0xffc00000},
    {IR_ABS, IR_F16, IR_F16, {0xfc00}, 0x7c00},
    {IR_ADD, IR_F16, IR_F16, {0x7bff, 0x7bff}, 0x7c00},
    {IR_ADD, IR_BF16, IR_BF16, {0x3f80, 0x3b80}, 0x3f80},           /* 1 + 2^-8: ties to even */
    {IR_ADD, IR_F32, IR_F32, {0x3f800000, 0x33800000}, 0x3f800000}, /* 1 + 2^-24 likewise */
    {IR_ADD, IR_F32, IR_F32, {0x3f800001, 0x33800000}, 0x3f800002},
    {IR_SUB, IR_F32, IR_F32, {0x7f800000, 0x7f800000}, 0x7fc00000}, /* one NaN */
    {IR_MUL, IR_F32, IR_F32, {0x00000001, 0x3f000000}, 0},          /* ties to even: 0 */
    {IR_DIV, IR_F32, IR_F32, {0x3f800000, 0}, 0x7f800000},
    {IR_DIV, IR_F32, IR_F32, {0, 0}, 0x7fc00000},
    {IR_MOD, IR_F32, IR_F32, {0xc0e00000, 0x40400000}, 0xbf800000}, /* -7 mod 3 = -1 */
    {IR_MOD, IR_F32, IR_F32, {0x3f800000, 0}, 0x7fc00000},
    {IR_MIN, IR_F32, IR_F32, {0x7fc00000, 0x3f800000}, 0x3f800000},
    {IR_MIN, IR_F32, IR_F32, {0x3f800000, 0x7fc00000}, 0x3f800000},
    {IR_MIN, IR_F32, IR_F32, {0x7fc00001, 0xffc00002}, 0xffc00002}, /* both NaN: the second */
    {IR_MAX, IR_F32, IR_F32, {0x7fc00000, 0x3f800000}, 0x3f800000},
    {IR_MAX, IR_F32, IR_F32, {0x3f800000, 0x7fc00000}, 0x3f800000},
    {IR_MAX, IR_F32, IR_F32, {0x80000000, 0}, 0x80000000}, /* equal: the first */
    {IR_ROUND, IR_F32, IR_F32, {0x3f000000}, 0},           /* 0.5 */
    {IR_ROUND, IR_F32, IR_F32, {0x3fc00000}, 0x40000000},  /* 1.5 */
    {IR_ROUND, IR_F32, IR_F32, {0x40200000}, 0x40000000},  /* 2.5 */
    {IR_ROUND, IR_F32, IR_F32, {0xbf000000}, 0x80000000},  /* -0.5: -0 */
    {IR_ROUND, IR_F32, IR_F32, {0xbfc00000}, 0xc0000000},  /* -1.5 */
    {IR_ROUND, IR_F32, IR_F32, {0xff800000}, 0xff800000},
    {IR_ROUND, IR_F64, IR_F64, {UINT64_C(0x4330000000000001)}, UINT64_C(0x4330000000000001)},
    {IR_TRUNC, IR_F32, IR_F32, {0xbfc00000}, 0xbf800000},
    {IR_FLOOR, IR_F32, IR_F32, {0xbfc00000}, 0xc0000000},
    {IR_CEIL, IR_F32, IR_F32, {0xbf000000}, 0x80000000},
    {IR_SQRT, IR_F32, IR_F32, {0xbf800000}, 0x7fc00000},
    {IR_RSQRT, IR_F32, IR_F32, {0x40800000}, 0x3f000000},
    {IR_RECIP, IR_F16, IR_F16, {0x4000}, 0x3800},
    {IR_LOG, IR_F32, IR_F32, {0}, 0xff800000},
    {IR_EXP2, IR_F32, IR_F32, {0x41200000}, 0x44800000},
    {IR_TANH, IR_F32, IR_F32, {0x7f7fffff}, 0x3f800000},
    {IR_ERF, IR_F32, IR_F32, {0xff800000}, 0xbf800000},
    /* (1 + 2^-12)^2 - (1 + 2^-11): one rounding leaves 2^-24 */
    {IR_FMA, IR_F32, IR_F32, {0x3f800800, 0x3f800800, 0xbf801000}, 0x33800000},
    {IR_EQ, IR_BOOL, IR_F32, {0x7fc00000, 0x7fc00000}, 0},
    {IR_NE, IR_BOOL, IR_F32, {0x7fc00000, 0x7fc00000}, 1},
    {IR_GE, IR_BOOL, IR_F32, {0x7fc00000, 0x7fc00000}, 0},
    {IR_LT, IR_BOOL, IR_F32, {0x7fc00000, 0}, 0},
    {IR_EQ, IR_BOOL, IR_F32, {0x80000000, 0}, 1},
    {IR_IS_NAN, IR_BOOL, IR_F16, {0x7c01}, 1},
    {IR_IS_NAN, IR_BOOL, IR_F16, {0x7c00}, 0},
    {IR_SELECT, IR_F32, IR_F32, {1, 7, 9}, 7},
    {IR_SELECT, IR_F32, IR_F32, {0, 7, 9}, 9},
    /* casts */
    {IR_CAST, IR_I32, IR_F32, {0x7fc00000}, 0},
    {IR_CAST, IR_I32, IR_F32, {0x4f000000}, 0x7fffffff}, /* 2^31 */
    {IR_CAST, IR_I32, IR_F32, {0xff800000}, 0x80000000},
    {IR_CAST, IR_U32, IR_F32, {0xbf800000}, 0},
    {IR_CAST, IR_U32, IR_F32, {0x7f800000}, 0xffffffff},
    {IR_CAST, IR_I8, IR_F32, {0xc3020000}, 0x80}, /* -130 */
    {IR_CAST, IR_I8, IR_F32, {0x43000000}, 0x7f}, /* 128 */
    {IR_CAST, IR_U8, IR_F16, {0x7c00}, 0xff},
    {IR_CAST, IR_I32, IR_F32, {0xbff33333}, 0xffffffff}, /* -1.9 to -1 */
    {IR_CAST, IR_I64, IR_F64, {UINT64_C(0x43e0000000000000)}, INT64_MAX},
    {IR_CAST, IR_I64, IR_F64, {UINT64_C(0xc3e0000000000000)}, UINT64_C(1) << 63},
    {IR_CAST, IR_U64, IR_F64, {UINT64_C(0x43f0000000000000)}, UINT64_MAX},
    {IR_CAST, IR_U64, IR_F64, {UINT64_C(0x43efffffffffffff)}, UINT64_C(0xfffffffffffff800)},
    {IR_CAST, IR_I8, IR_I32, {0x1ff}, 0xff},
    {IR_CAST, IR_I32, IR_I8, {0xff}, 0xffffffff},
    {IR_CAST, IR_U32, IR_I8, {0xff}, 0xffffffff},
    {IR_CAST, IR_I32, IR_U8, {0xff}, 0xff},
    {IR_CAST, IR_F32, IR_U64, {UINT64_MAX}, 0x5f800000},
    {IR_CAST, IR_F32, IR_I64, {UINT64_MAX}, 0xbf800000},
    {IR_CAST, IR_F32, IR_I64, {UINT64_C(0x4000004000000001)}, 0x5e800001}, /* rounded once */
    {IR_CAST, IR_F16, IR_U32, {65520}, 0x7c00},
    {IR_CAST, IR_F16, IR_F32, {0x477fefff}, 0x7bff},
    {IR_CAST, IR_BF16, IR_F32, {0x3f808000}, 0x3f80},
    {IR_CAST, IR_F64, IR_F32, {1}, UINT64_C(0x36a0000000000000)},
    {IR_CAST, IR_F32, IR_F64, {UINT64_C(0x7ff0000000000001)}, 0x7fc00000},
    {IR_CAST, IR_F32, IR_BOOL, {1}, 0x3f800000},
    {IR_CAST, IR_I8, IR_BOOL, {1}, 1},
    {IR_CAST, IR_BOOL, IR_F32, {0x80000000}, 0},
    {IR_CAST, IR_BOOL, IR_F32, {0x7fc00000}, 1},
    {IR_CAST, IR_BOOL, IR_U64, {UINT64_C(1) << 40}, 1},
};

/* Runs one op through a kernel of one lane; operands and result pass through memory where they have
 * a form in it. */
static beryl_status run_rule(test *t, lab *l, const struct rule *r, uint64_t *out) {
    const ir_op_info *info = ir_op_of(r->op);
    ir_builder *b = ir_begin(&l->arena, "k", 1, 1, 1);
    ir_type of = r->type == IR_BOOL ? IR_U8 : r->type;
    ir_memory y = ir_buffer(b, of, IR_READ_WRITE, "y");
    ir_instruction i = {
        .op = (uint8_t)r->op, .type = (uint8_t)r->type, .width = 4, .n_in = info->n_in};
    for (uint32_t n = 0; n < info->n_in; n++) {
        ir_type type = r->in_type;
        if (r->op == IR_SELECT && n == 0) type = IR_BOOL;
        if (r->op == IR_DOT4_I8 || r->op == IR_DOT4_U8) type = n < 2 ? IR_U32 : IR_I32;
        i.in[n] = ir_bits(b, type, 4, r->in[n]);
    }
    ir_store(b, y, ir_u32(b, 0), ir_cast(b, of, ir_emit(b, i)));
    const ir_kernel *k = finish(t, l, b);
    uint64_t data[4] = {0};
    ir_run run = {.buffers = {{data, 4 * ir_type_bytes(of)}}, .groups = {1, 1, 1}};
    if (!k) return BERYL_BAD_INPUT;
    beryl_status status = ir_interpret(&l->heap, k, &run, &l->error);
    memcpy(out, data, ir_type_bytes(of));
    CHECK(t, !memcmp(data, (char *)data + ir_type_bytes(of), 3 * ir_type_bytes(of)));
    return status;
}

/* + - * and comparisons of every integer type against the host's, on the edges of the range. */
#define HOST_INTEGER(TYPE, ctype, wide)                                                      \
    for (size_t i = 0; i < 64; i++) {                                                        \
        uint64_t raw[2] = {edges[i / 8], edges[i % 8]},                                      \
                 mask = UINT64_MAX >> (64 - 8 * sizeof(ctype));                              \
        ctype x = (ctype)raw[0], y = (ctype)raw[1];                                          \
        uint64_t in[2] = {raw[0] & mask, raw[1] & mask};                                     \
        CHECK(t, ir_evaluate(IR_ADD, TYPE, TYPE, in) == ((raw[0] + raw[1]) & mask));         \
        CHECK(t, ir_evaluate(IR_MUL, TYPE, TYPE, in) == ((raw[0] * raw[1]) & mask));         \
        CHECK(t, ir_evaluate(IR_LT, IR_BOOL, TYPE, in) == (x < y));                          \
        CHECK(t, ir_evaluate(IR_LE, IR_BOOL, TYPE, in) == (x <= y));                         \
        CHECK(t, ir_evaluate(IR_MAX, TYPE, TYPE, in) == ((uint64_t)(x < y ? y : x) & mask)); \
        CHECK(t, ir_evaluate(IR_MIN, TYPE, TYPE, in) == ((uint64_t)(y < x ? y : x) & mask)); \
        wide d = y ? (wide)x / (wide)y : 0, m = y ? (wide)x % (wide)y : 0;                   \
        CHECK(t, ir_evaluate(IR_DIV, TYPE, TYPE, in) == ((uint64_t)d & mask));               \
        CHECK(t, ir_evaluate(IR_MOD, TYPE, TYPE, in) == ((uint64_t)m & mask));               \
        CHECK(t, ir_evaluate(IR_SHR, TYPE, TYPE, in) ==                                      \
                     ((uint64_t)(x >> (raw[1] & (8 * sizeof(ctype) - 1))) & mask));          \
        CHECK_NEAR(t, ir_to_double(TYPE, in[0]), (double)x, 0);                              \
    }

static void check_integers(test *t) {
    static const uint64_t edges[8] = {0,      1,          3,          0x7f,
                                      0x8000, UINT64_MAX, 0x80000000, UINT64_C(1) << 62};
    HOST_INTEGER(IR_I8, int8_t, int64_t)
    HOST_INTEGER(IR_I16, int16_t, int64_t)
    HOST_INTEGER(IR_I32, int32_t, int64_t)
    HOST_INTEGER(IR_I64, int64_t, int64_t)
    HOST_INTEGER(IR_U8, uint8_t, uint64_t)
    HOST_INTEGER(IR_U16, uint16_t, uint64_t)
    HOST_INTEGER(IR_U32, uint32_t, uint64_t)
    HOST_INTEGER(IR_U64, uint64_t, uint64_t)
}

static void check_floats(test *t) {
    base_random random = {11};
    for (int n = 0; n < 2000; n++) {
        uint64_t in[3];
        float f[3], out[5];
        for (int i = 0; i < 3; i++) {
            uint32_t word = (uint32_t)base_random_next(&random);
            if (n % 2) word = (word & 0x80ffffff) | 0x3f000000; /* of like size: digits cancel */
            in[i] = word;
            memcpy(&f[i], &word, sizeof word);
        }
        out[0] = f[0] + f[1];
        out[1] = f[0] * f[1];
        out[2] = f[0] / f[1];
        out[3] = fmaf(f[0], f[1], f[2]);
        out[4] = sqrtf(f[0]);
        static const ir_op ops[5] = {IR_ADD, IR_MUL, IR_DIV, IR_FMA, IR_SQRT};
        for (int i = 0; i < 5; i++) {
            uint32_t want;
            memcpy(&want, &out[i], sizeof want);
            uint64_t got = ir_evaluate(ops[i], IR_F32, IR_F32, in);
            if (got != want && !isnan(out[i]))
                test_fail(t, __FILE__, __LINE__, "%s of %a %a %a is %a", ir_op_of(ops[i])->name,
                          (double)f[0], (double)f[1], (double)f[2], ir_to_double(IR_F32, got));
        }
    }
    /* each function of floats against the host's, in every float type */
    static const double points[] = {-2.5, -1, -0.5, -0.0, 0, 0.25, 0.75, 1, 3};
    for (size_t n = 0; n < sizeof points / sizeof *points; n++)
        for (int type = IR_F32; type <= IR_F64; type++) {
            uint64_t in = ir_from_double((ir_type)type, points[n]);
            double x = points[n];
            const struct {
                ir_op op;
                double want;
            } all[] = {{IR_SQRT, sqrt(x)}, {IR_RSQRT, 1 / sqrt(x)}, {IR_RECIP, 1 / x},
                       {IR_EXP, exp(x)},   {IR_EXP2, exp2(x)},      {IR_LOG, log(x)},
                       {IR_LOG2, log2(x)}, {IR_SIN, sin(x)},        {IR_COS, cos(x)},
                       {IR_TAN, tan(x)},   {IR_ASIN, asin(x)},      {IR_ACOS, acos(x)},
                       {IR_ATAN, atan(x)}, {IR_SINH, sinh(x)},      {IR_COSH, cosh(x)},
                       {IR_TANH, tanh(x)}, {IR_ERF, erf(x)}};
            for (size_t i = 0; i < sizeof all / sizeof *all; i++)
                CHECK_INT(t, ir_evaluate(all[i].op, (ir_type)type, (ir_type)type, &in),
                          ir_from_double((ir_type)type, all[i].want));
            uint64_t two[2] = {in, ir_from_double((ir_type)type, 2)};
            CHECK_INT(t, ir_evaluate(IR_POW, (ir_type)type, (ir_type)type, two),
                      ir_from_double((ir_type)type, pow(x, 2)));
            CHECK_INT(t, ir_evaluate(IR_ATAN2, (ir_type)type, (ir_type)type, two),
                      ir_from_double((ir_type)type, atan2(x, 2)));
        }
}

static void test_values(test *t) {
    lab l;
    if (test_case(t, "ir/value-rules"))
        for (size_t n = 0; n < sizeof rules / sizeof *rules; n++) {
            const struct rule *r = &rules[n];
            uint64_t out = 0, direct = ir_evaluate(r->op, r->type, r->in_type, r->in);
            lab_open(&l, -1);
            CHECK_INT(t, run_rule(t, &l, r, &out), BERYL_OK);
            lab_close(t, &l);
            if (out != r->out || direct != r->out)
                test_fail(t, __FILE__, __LINE__, "%s %s of %llx %llx %llx is %llx, not %llx",
                          ir_op_of(r->op)->name, ir_type_name(r->type),
                          (unsigned long long)r->in[0], (unsigned long long)r->in[1],
                          (unsigned long long)r->in[2], (unsigned long long)out,
                          (unsigned long long)r->out);
        }
    if (test_case(t, "ir/integers-are-the-hosts")) check_integers(t);
    if (test_case(t, "ir/floats-are-the-hosts")) check_floats(t);
    if (test_case(t, "ir/bitcasts-keep-the-lowest-lane-lowest")) {
        uint32_t y[8] = {0};
        lab_open(&l, -1);
        ir_builder *b = ir_begin(&l.arena, "k", 1, 1, 1);
        ir_memory out = ir_buffer(b, IR_U32, IR_READ_WRITE, "y");
        ir_id bytes[4];
        for (uint32_t n = 0; n < 4; n++) bytes[n] = ir_number(b, IR_U8, 1, n + 1);
        ir_id word = ir_bitcast(b, IR_U32, 1, ir_compose(b, bytes, 4));
        ir_store(b, out, ir_u32(b, 0), word);
        ir_id two = ir_bitcast(b, IR_U32, 2, ir_bits(b, IR_U64, 1, UINT64_C(0x1122334455667788)));
        ir_store(b, out, ir_u32(b, 2), two);
        ir_id halves = ir_bitcast(b, IR_U16, 4, two);
        ir_store(b, out, ir_u32(b, 4), ir_cast(b, IR_U32, ir_swizzle(b, halves, 4, 0x0123)));
        ir_run run = {.buffers = {{y, sizeof y}}, .groups = {1, 1, 1}};
        const ir_kernel *k = finish(t, &l, b);
        CHECK_INT(t, k ? ir_interpret(&l.heap, k, &run, &l.error) : BERYL_MISUSE, BERYL_OK);
        CHECK_INT(t, y[0], 0x04030201);
        CHECK_INT(t, y[2], 0x55667788);
        CHECK_INT(t, y[3], 0x11223344);
        CHECK_INT(t, y[4], 0x1122);
        CHECK_INT(t, y[7], 0x7788);
        lab_close(t, &l);
    }
}

void test_ir(test *t) {
    test_round_trips(t);
    test_refusals(t);
    test_builder(t);
    test_values(t);
}
