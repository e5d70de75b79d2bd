/* ir_run_test.c - the interpreter: lanes, barriers, memory, matrices, and every mistake that it
 * must name. */
#include "ir_lab.h"
#include "ir/ir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parses and runs; buffers: x (u32, 64 elements, read), y (u32, 64 elements). */
static beryl_status run_text(lab *l, const char *text, uint32_t groups, uint32_t param,
                             const uint32_t *x, uint32_t *y) {
    uint32_t copy[64] = {0};
    const ir_kernel *k;
    beryl_status status = ir_parse(&l->arena, text, strlen(text), &k, &l->error);
    if (status) return status;
    if (x) memcpy(copy, x, sizeof copy);
    ir_run run = {.buffers = {{copy, sizeof copy}, {y, 64 * sizeof *y}},
                  .params = {param},
                  .groups = {groups, 1, 1},
                  .limit = 1000000};
    return ir_interpret(&l->heap, k, &run, &l->error);
}

#define KERNEL                                                           \
    "kernel \"k\" workgroup 8 1 1 subgroup 4\nbuffer 0 read u32 \"x\"\n" \
    "buffer 1 read_write u32 \"y\"\nparam 0 u32 \"n\"\n"

/* ---- what kernels give ------------------------------------------------------------------------
 */

static const struct program {
    const char *name, *text;
    uint32_t groups, param;
    uint32_t want[16]; /* the first elements of y; x[i] = 3 * i + 1, y[i] = 100 at the beginning */
} programs[] = {
    {"if-and-else-part-the-lanes",
     "%0 = local u32 x\n%1 = const u32 3\n%2 = lt bool %0 %1\nif %2\nstore buffer 1 %0 %1\nelse\n"
     "store buffer 1 %0 %0\nend\n",
     1,
     0,
     {3, 3, 3, 3, 4, 5, 6, 7, 100}},
    {"if-without-else-that-nobody-enters",
     "%0 = local u32 x\n%1 = const u32 9\n%2 = gt bool %0 %1\nif %2\nstore buffer 1 %0 %1\nend\n",
     1,
     0,
     {100, 100, 100}},
    {"loops-end-when-their-lane-is-done",
     "register 0 u32 1\n%0 = local u32 x\n%1 = const u32 0\n%2 = const u32 2\nstore register 0 %1 "
     "%1\n"
     "%4 = loop u32 %1 %0 %2\n%5 = load u32 register 0 %1\n%6 = add u32 %5 %4\nstore register 0 %1 "
     "%6\n"
     "end\n%9 = load u32 register 0 %1\nstore buffer 1 %0 %9\n",
     1,
     0,
     {0, 0, 0, 2, 2, 6, 6, 12, 100}},
    {"loops-inside-a-condition",
     "%0 = local u32 x\n%1 = const u32 0\n%2 = const u32 1\n%3 = const u32 4\n%4 = lt bool %0 %3\n"
     "if %4\n%6 = loop u32 %1 %0 %2\n%7 = lt bool %6 %2\nif %7\nelse\nstore buffer 1 %0 "
     "%6\nend\nend\nend\n",
     1,
     0,
     {100, 100, 1, 2, 100, 100}},
    {"groups-and-params",
     "%0 = local u32 x\n%1 = group u32 x\n%2 = groups u32 x\n%3 = param u32 0\n%4 = const u32 8\n"
     "%5 = fma u32 %1 %4 %0\n%6 = mul u32 %2 %3\nstore buffer 1 %5 %6\n",
     2,
     5,
     {10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10}},
    {"workgroup-memory-after-a-barrier",
     "workgroup 0 u32 8\n%0 = local u32 x\n%1 = const u32 7\n%2 = xor u32 %0 %1\nstore workgroup 0 "
     "%0 %0\n"
     "barrier\n%5 = load u32 workgroup 0 %2\nstore buffer 1 %0 %5\n",
     1,
     0,
     {7, 6, 5, 4, 3, 2, 1, 0, 100}},
    {"swizzled-arrays-mean-the-same",
     "workgroup 0 u32 8 swizzle 1 1 1\n%0 = local u32 x\n%1 = const u32 7\n%2 = xor u32 %0 %1\n"
     "store workgroup 0 %0 %0\nbarrier\n%5 = load u32 workgroup 0 %2\nstore buffer 1 %0 %5\n",
     1,
     0,
     {7, 6, 5, 4, 3, 2, 1, 0, 100}},
    {"uniform-load-is-two-barriers",
     "workgroup 0 u32 8\n%0 = local u32 x\n%1 = const u32 5\nstore workgroup 0 %0 %0\n"
     "%3 = uniform_load u32 workgroup 0 %1\nstore workgroup 0 %0 %3\n%5 = lt bool %3 %1\nif "
     "%5\nbarrier\n"
     "end\nstore buffer 1 %0 %3\n",
     1,
     0,
     {5, 5, 5, 5, 5, 5, 5, 5, 100}},
    {"uniform-loops-may-hold-barriers",
     "workgroup 0 u32 1\n%0 = local u32 x\n%1 = const u32 0\n%2 = const u32 1\n%3 = param u32 0\n"
     "%4 = eq bool %0 %1\n%5 = loop u32 %1 %3 %2\nbarrier\nif %4\nstore workgroup 0 %1 "
     "%5\nend\nbarrier\n"
     "%11 = load u32 workgroup 0 %1\nstore buffer 1 %0 %11\nend\n",
     1,
     6,
     {5, 5, 5, 5, 5, 5, 5, 5, 100}},
    {"subgroup-add",
     "%0 = local u32 x\n%1 = subgroup_add u32 %0\nstore buffer 1 %0 %1\n",
     1,
     0,
     {6, 6, 6, 6, 22, 22, 22, 22, 100}},
    {"subgroup-min-and-max",
     "%0 = local u32 x\n%1 = subgroup_min u32 %0\n%2 = subgroup_max u32 %0\n%3 = const u32 8\n"
     "%4 = fma u32 %2 %3 %1\nstore buffer 1 %0 %4\n",
     1,
     0,
     {24, 24, 24, 24, 60, 60, 60, 60, 100}},
    {"subgroup-broadcast-and-shuffle",
     "%0 = local u32 x\n%1 = subgroup_broadcast u32 2 %0\n%2 = subgroup_shuffle_xor u32 3 %0\n"
     "%3 = const u32 8\n%4 = fma u32 %1 %3 %2\nstore buffer 1 %0 %4\n",
     1,
     0,
     {19, 18, 17, 16, 55, 54, 53, 52, 100}},
    {"subgroup-lanes",
     "%0 = local u32 x\n%1 = subgroup_lane u32\n%2 = subgroup_size u32\n%3 = mul u32 %1 %2\n"
     "store buffer 1 %0 %3\n",
     1,
     0,
     {0, 4, 8, 12, 0, 4, 8, 12, 100}},
    {"atomics-of-all-lanes-and-groups",
     "%0 = local u32 x\n%1 = const u32 0\n%2 = const u32 1\n%3 = const u32 2\n"
     "%4 = atomic_add u32 buffer 1 %1 %0\n%5 = atomic_max u32 buffer 1 %2 %4\n"
     "%6 = atomic_min u32 buffer 1 %3 %0\n",
     2,
     0,
     {156, 149, 0, 100}},
    {"integer-fragments-wrap",
     "workgroup 0 i8 32\nworkgroup 1 i32 64\nfragment 0 c i32 2 2 8 count 1\n"
     "fragment 1 a i8 2 2 8 count 1\nfragment 2 b u8 2 2 8 count 1\nworkgroup 2 u8 32\n"
     "%0 = local u32 x\n%1 = const u32 0\n%2 = const i8 -3\n%3 = const u8 200\n"
     "%4 = const u32 8\n%5 = add u32 %0 %4\nstore workgroup 0 %0 %2\n"
     "store workgroup 0 %5 %2\nstore workgroup 2 %0 %3\nstore workgroup 2 %5 %3\nbarrier\n"
     "%11 = const i32 -2147483648\nfragment_fill 0 %1 %11\n"
     "fragment_load 1 workgroup 0 %1 %1 %4\n%14 = const u32 2\n"
     "fragment_load 2 workgroup 2 %1 %1 %14\nfragment_mma 0 1 2 %1 %1 %1\n%17 = eq bool %0 %1\n"
     "%18 = const u32 4\n%19 = and u32 %0 %18\nfragment_store 0 workgroup 1 %1 %19 %14\n"
     "barrier\nif %17\n%23 = load i32 workgroup 1 %1\n%24 = bitcast u32 %23\n"
     "store buffer 1 %1 %24\nend\n",
     1,
     0,
     {2147483648u - 4800, 100}},
    {"vectors-through-memory",
     "%0 = local u32 x\n%1 = const u32 4\n%2 = mul u32 %0 %1\n%3 = lt bool %0 %1\nif %3\n"
     "%5 = load u32x4 buffer 0 %2\n%6 = swizzle u32x4 3 2 1 0 %5\n%7 = splat u32x4 %0\n"
     "%8 = add u32x4 %6 %7\nstore buffer 1 %2 %8\nend\n",
     1,
     0,
     {10, 7, 4, 1, 23, 20, 17, 14, 36, 33, 30, 27, 49, 46, 43, 40}},
    {"vectors-that-begin-anywhere",
     "%0 = local u32 x\n%1 = const u32 5\n%2 = mul u32 %0 %1\n%3 = const u32 4\n"
     "%4 = lt bool %0 %3\nif %4\n%6 = load u32x4 buffer 0 anywhere %2\n"
     "store buffer 1 anywhere %2 %6\nend\n",
     1,
     0,
     {1, 4, 7, 10, 100, 16, 19, 22, 25, 100, 31, 34, 37, 40, 100, 46}},
    {"async-copies-arrive-when-waited-for",
     "workgroup 0 u32 32\n%0 = local u32 x\n%1 = const u32 4\n%2 = mul u32 %0 %1\n%3 = const u32 "
     "6\n"
     "%4 = lt bool %0 %3\ncopy_async 16 workgroup 0 buffer 0 %2 %2 %4\ncopy_commit\ncopy_wait "
     "0\nbarrier\n"
     "%9 = const u32 31\n%10 = sub u32 %9 %2\n%11 = load u32 workgroup 0 %10\nstore buffer 1 %0 "
     "%11\n",
     1,
     0,
     {0, 0, 70, 58, 46, 34, 22, 10, 100}},
    {"async-copies-are-waited-for-in-groups",
     "workgroup 0 u32 16\n%0 = local u32 x\n%1 = const u32 8\n%2 = add u32 %0 %1\n"
     "copy_async 4 workgroup 0 buffer 0 %0 %0\ncopy_commit\ncopy_async 4 workgroup 0 buffer 0 %2 "
     "%2\n"
     "copy_commit\ncopy_wait 1\n%8 = load u32 workgroup 0 %0\ncopy_wait 0\n%10 = load u32 "
     "workgroup 0 %2\n"
     "%11 = add u32 %8 %10\nstore buffer 1 %0 %11\n",
     1,
     0,
     {26, 32, 38, 44, 50, 56, 62, 68, 100}},
};

static void test_programs(test *t) {
    lab l;
    for (size_t n = 0; n < sizeof programs / sizeof *programs; n++) {
        const struct program *p = &programs[n];
        uint32_t x[64], y[64];
        char text[2048];
        if (!test_case(t, "ir/run-%s", p->name)) continue;
        for (uint32_t i = 0; i < 64; i++) x[i] = 3 * i + 1, y[i] = 100;
        snprintf(text, sizeof text, KERNEL "%s", p->text);
        lab_open(&l, -1);
        if (run_text(&l, text, p->groups, p->param, x, y))
            test_fail(t, __FILE__, __LINE__, "%s", l.error.message);
        for (int i = 0; i < 16 && (i == 0 || p->want[i - 1] != 100); i++)
            CHECK_INT(t, y[i], p->want[i]);
        lab_close(t, &l);
    }
}

/* ---- what it refuses --------------------------------------------------------------------------
 */

static const struct mistake {
    const char *name, *text, *says;
    uint32_t at, groups; /* at: the instruction */
} mistakes[] = {
    {"index-outside-a-buffer", "%0 = const u32 64\n%1 = load u32 buffer 0 %0\n",
     "lane 0: index 64 of buffer 0, width 1, is outside its 64 elements", 1, 1},
    {"index-far-outside", "%0 = const u64 18446744073709551615\n%1 = load u32 buffer 0 %0\n",
     "outside", 1, 1},
    {"vector-over-the-end", "%0 = const u32 64\nstore buffer 1 %0 %0\n", "outside", 1, 1},
    {"index-outside-workgroup-memory",
     "workgroup 0 u32 7\n%0 = local u32 x\nstore workgroup 0 %0 %0\n",
     "lane 7: index 7 of workgroup 0", 1, 1},
    {"index-outside-registers", "register 0 u32 7\n%0 = local u32 x\nstore register 0 %0 %0\n",
     "lane 7: index 7 of register 0", 1, 1},
    {"index-of-an-atomic", "%0 = const u32 64\n%1 = atomic_add u32 buffer 1 %0 %0\n", "outside", 1,
     1},
    {"index-no-multiple-of-the-width", "%0 = const u32 2\n%1 = load u32x4 buffer 0 %0\n",
     "index 2 of buffer 0 is no multiple of 4", 1, 1},
    {"undefined-register", "register 0 u32 4\n%0 = const u32 3\n%1 = load u32 register 0 %0\n",
     "undefined", 1, 1},
    {"undefined-register-of-one-lane",
     "register 0 u32 1\n%0 = local u32 x\n%1 = const u32 0\n%2 = gt bool %0 %1\nif %2\n"
     "store register 0 %1 %0\nend\n%6 = load u32 register 0 %1\n",
     "lane 0: reads element 0 of register 0, which is undefined", 6, 1},
    {"undefined-workgroup-memory",
     "workgroup 0 u32 4\n%0 = const u32 3\n%1 = load u32 workgroup 0 %0\n",
     "reads element 3 of workgroup 0, which is undefined", 1, 1},
    {"workgroup-memory-of-another-group",
     "workgroup 0 u32 8\n%0 = local u32 x\n%1 = group u32 x\n%2 = const u32 0\n%3 = eq bool %1 "
     "%2\nif %3\n"
     "store workgroup 0 %0 %0\nend\n%7 = load u32 workgroup 0 %0\n",
     "group 1 0 0, lane 0: reads element 0 of workgroup 0, which is undefined", 7, 2},
    {"read-after-another-lane-wrote",
     "workgroup 0 u32 8\n%0 = local u32 x\n%1 = const u32 0\nstore workgroup 0 %0 %0\n"
     "%3 = load u32 workgroup 0 %1\n",
     "lane 1: a race for element 0 of workgroup 0 with lane 0", 3, 1},
    {"write-after-another-lane-read",
     "workgroup 0 u32 8\n%0 = local u32 x\n%1 = const u32 7\n%2 = xor u32 %0 %1\nstore workgroup 0 "
     "%0 %0\n"
     "barrier\n%5 = load u32 workgroup 0 %2\nstore workgroup 0 %0 %5\n",
     "race", 6, 1},
    {"write-after-many-lanes-read",
     "workgroup 0 u32 1\n%0 = local u32 x\n%1 = const u32 0\n%2 = eq bool %0 %1\nif %2\n"
     "store workgroup 0 %1 %1\nend\nbarrier\n%7 = load u32 workgroup 0 %1\n%8 = const u32 7\n"
     "%9 = eq bool %0 %8\nif %9\nstore workgroup 0 %1 %1\nend\n",
     "race", 11, 1},
    {"two-lanes-write", "workgroup 0 u32 1\n%0 = const u32 0\nstore workgroup 0 %0 %0\n", "race", 1,
     1},
    {"two-lanes-write-a-buffer", "%0 = const u32 0\nstore buffer 1 %0 %0\n",
     "race for element 0 of buffer 1", 1, 1},
    {"two-groups-write", "%0 = local u32 x\nstore buffer 1 %0 %0\n",
     "group 1 0 0, lane 0: a race for element 0 of buffer 1", 1, 2},
    {"a-barrier-orders-no-buffers",
     "%0 = local u32 x\n%1 = const u32 7\n%2 = xor u32 %0 %1\nstore buffer 1 %0 %0\nbarrier\n"
     "%5 = load u32 buffer 1 %2\n",
     "race for element 7 of buffer 1 with lane 7", 5, 1},
    {"a-group-reads-what-another-wrote",
     "%0 = local u32 x\n%1 = group u32 x\n%2 = const u32 0\n%3 = eq bool %1 %2\nif %3\n"
     "store buffer 1 %0 %0\nend\nbarrier\n%8 = load u32 buffer 1 %0\n",
     "race", 8, 2},
    {"a-group-writes-what-another-read",
     "%0 = local u32 x\n%1 = load u32 buffer 1 %0\n%2 = group u32 x\n%3 = const u32 2\n%4 = eq "
     "bool %2 %3\n"
     "barrier\nif %4\nstore buffer 1 %0 %0\nend\n",
     "race", 7, 3},
    {"atomic-beside-a-plain-read",
     "%0 = const u32 0\n%1 = load u32 buffer 1 %0\n%2 = atomic_add u32 buffer 1 %0 %0\n", "race", 2,
     1},
    {"step-of-zero", "%0 = const u32 0\n%1 = const u32 1\n%2 = loop u32 %0 %1 %0\nend\n",
     "step is 0", 2, 1},
    {"end-and-step-past-the-range",
     "%0 = const u32 0\n%1 = const u32 4294967295\n%2 = loop u32 %0 %1 %1\nend\n", "pass 2^32", 2,
     1},
    {"copy-read-before-its-wait",
     "workgroup 0 u32 8\n%0 = local u32 x\ncopy_async 4 workgroup 0 buffer 0 %0 %0\ncopy_commit\n"
     "%3 = load u32 workgroup 0 %0\ncopy_wait 0\n",
     "undefined", 3, 1},
    {"copy-outside",
     "workgroup 0 u32 8\n%0 = local u32 x\n%1 = const u32 64\n"
     "copy_async 4 workgroup 0 buffer 0 %0 %1\n",
     "outside", 2, 1},
    {"copy-no-multiple",
     "workgroup 0 u32 8\n%0 = const u32 2\ncopy_async 16 workgroup 0 buffer 0 %0 %0\n",
     "no multiple of 4", 1, 1},
    {"undefined-fragment",
     "fragment 0 c i32 4 4 4 count 2\n%0 = const u32 0\n%1 = const u32 1\n%2 = const i32 0\n"
     "fragment_fill 0 %0 %2\nfragment_store 0 workgroup 0 %1 %0 %0\n",
     "undefined", 4, 1},
    {"fragment-place-outside",
     "fragment 0 c i32 4 4 4 count 2\n%0 = const u32 2\n%1 = const i32 0\nfragment_fill 0 %0 %1\n",
     "place 2 is outside the 2 of fragment 0", 2, 1},
    {"fragment-place-differs",
     "fragment 0 c i32 4 4 4 count 8\n%0 = local u32 x\n%1 = const i32 0\nfragment_fill 0 %0 %1\n",
     "differs in the subgroup", 2, 1},
    {"fragment-index-differs",
     "workgroup 0 u8 64\nfragment 0 a u8 4 4 4 count 1\n%0 = local u32 x\n%1 = const u32 0\n"
     "fragment_load 0 workgroup 0 %1 %0 %1\n",
     "its index or stride differs", 2, 1},
    {"fragment-value-differs",
     "fragment 0 c f32 4 4 4 count 1\n%0 = local u32 x\n%1 = const u32 0\n%2 = cast f32 %0\n"
     "fragment_fill 0 %1 %2\n",
     "its value differs", 3, 1},
};

static void test_mistakes(test *t) {
    lab l;
    for (size_t n = 0; n < sizeof mistakes / sizeof *mistakes; n++) {
        const struct mistake *m = &mistakes[n];
        uint32_t y[64] = {0};
        char text[2048];
        if (!test_case(t, "ir/run-names-%s", m->name)) continue;
        const char *array = strstr(m->text, "fragment_store") ? "workgroup 0 i32 64\n" : "";
        snprintf(text, sizeof text, KERNEL "%s%s", array, m->text);
        lab_open(&l, -1);
        CHECK_INT(t, run_text(&l, text, m->groups, 0, NULL, y), BERYL_BAD_INPUT);
        CHECK_INT(t, l.error.at, m->at);
        if (!strstr(l.error.message, m->says))
            test_fail(t, __FILE__, __LINE__, "\"%s\" does not say \"%s\"", l.error.message,
                      m->says);
        lab_close(t, &l);
    }
    if (test_case(t, "ir/run-stops-at-its-limit")) {
        uint32_t y[64] = {0};
        lab_open(&l, -1);
        CHECK_INT(t,
                  run_text(&l,
                           KERNEL "%0 = const u32 0\n%1 = const u32 4000000000\n%2 = const u32 1\n"
                                  "%3 = loop u32 %0 %1 %2\nend\n",
                           1, 0, NULL, y),
                  BERYL_UNSUPPORTED);
        lab_close(t, &l);
    }
    if (test_case(t, "ir/run-refuses-too-many-groups")) {
        uint32_t y[64] = {0};
        lab_open(&l, -1);
        CHECK_INT(t, run_text(&l, KERNEL, UINT32_MAX, 0, NULL, y), BERYL_UNSUPPORTED);
        CHECK_INT(t, run_text(&l, KERNEL, 0, 0, NULL, y), BERYL_OK);
        CHECK_INT(t, run_text(&l, KERNEL, 1, 0, NULL, NULL), BERYL_MISUSE);
        lab_close(t, &l);
    }
}

/* ---- element types, matrices, memory that runs out ---------------------------------------------
 */

/* y = x / 2 for each type of memory: elements lie where the host puts them. */
static void check_memory_type(test *t, ir_type type) {
    lab l;
    const ir_kernel *k;
    uint8_t x[8 * 8], y[8 * 8];
    uint32_t size = ir_type_bytes(type);
    memset(y, 0xaa, sizeof y);
    for (uint32_t i = 0; i < 8; i++) {
        uint64_t bits = ir_from_double(type, 2.0 * i);
        memcpy(x + i * size, &bits, size);
    }
    lab_open(&l, -1);
    ir_builder *b = ir_begin(&l.arena, "k", 2, 1, 1);
    ir_memory from = ir_buffer(b, type, IR_READ, "x"), to = ir_buffer(b, type, IR_READ_WRITE, "y");
    ir_memory w = ir_workgroup(b, type, 8), r = ir_register(b, type, 4);
    ir_id index = ir_mul(b, ir_local(b, 0), ir_u32(b, 4)), zero = ir_u32(b, 0);
    ir_store(b, r, zero, ir_load(b, from, index, 4));
    ir_store(b, w, index, ir_load(b, r, zero, 4));
    ir_barrier(b);
    ir_id other = ir_sub(b, ir_u32(b, 4), index);
    ir_store(b, to, other, ir_div(b, ir_load(b, w, other, 4), ir_number(b, type, 4, 2)));
    if (ir_finish(b, &k, &l.error)) test_fail(t, __FILE__, __LINE__, "%s", l.error.message);
    ir_run run = {.buffers = {{x, 8 * size}, {y, 8 * size}}, .groups = {1, 1, 1}};
    if (k && ir_interpret(&l.heap, k, &run, &l.error))
        test_fail(t, __FILE__, __LINE__, "%s", l.error.message);
    for (uint32_t i = 0; i < 8; i++) {
        uint64_t bits = 0;
        memcpy(&bits, y + i * size, size);
        CHECK_NEAR(t, ir_to_double(type, bits), (double)i, 0);
    }
    CHECK(t, size == 8 || y[8 * size] == 0xaa);
    lab_close(t, &l);
}

/* c[m, n] = 1 + a[m, k] * b[k, n], b transposed in memory, through workgroup memory with a swizzle.
 */
static const ir_kernel *matrix_kernel(lab *l) {
    enum { M = 4, N = 8, K = 16 };
    const ir_kernel *k;
    ir_builder *b = ir_begin(&l->arena, "k", 8, 1, 1);
    ir_subgroup(b, 8);
    ir_memory x = ir_buffer(b, IR_F16, IR_READ, "a"), y = ir_buffer(b, IR_F16, IR_READ, "b");
    ir_memory z = ir_buffer(b, IR_F32, IR_READ_WRITE, "c");
    ir_memory s = ir_workgroup_swizzled(b, IR_F16, M * K, 1, 3, 1);
    ir_fragments fa = ir_fragment(b, IR_ROLE_A, IR_F16, M, N, K, 1);
    ir_fragments fb = ir_fragment(b, IR_ROLE_B, IR_F16, M, N, K, 2);
    ir_fragments fc = ir_fragment(b, IR_ROLE_C, IR_F32, M, N, K, 1);
    ir_id zero = ir_u32(b, 0), one = ir_u32(b, 1);
    ir_id at = ir_mul(b, ir_local(b, 0), ir_u32(b, 8));
    ir_copy_async(b, s, at, x, at, 16, IR_NO_ID);
    ir_copy_commit(b);
    ir_copy_wait(b, 0);
    ir_barrier(b);
    ir_fragment_fill(b, fc, zero, ir_f32(b, 1));
    ir_fragment_load(b, fa, zero, s, zero, ir_u32(b, K), false);
    ir_fragment_load(b, fb, one, y, zero, ir_u32(b, K), true);
    ir_fragment_mma(b, fc, zero, fa, zero, fb, one);
    ir_fragment_store(b, fc, zero, z, zero, ir_u32(b, N), false);
    return ir_finish(b, &k, &l->error) ? NULL : k;
}

static beryl_status matrix_run(lab *l, const ir_kernel *k, float c[4 * 8]) {
    uint16_t a[4 * 16], b[8 * 16];
    for (uint32_t i = 0; i < 4 * 16; i++) a[i] = (uint16_t)ir_from_double(IR_F16, i % 7);
    for (uint32_t i = 0; i < 8 * 16; i++) b[i] = (uint16_t)ir_from_double(IR_F16, i % 5);
    ir_run run = {.buffers = {{a, sizeof a}, {b, sizeof b}, {c, 4 * 8 * sizeof *c}},
                  .groups = {1, 1, 1}};
    return ir_interpret(&l->heap, k, &run, &l->error);
}

static void test_matrices(test *t) {
    lab l;
    float c[4 * 8] = {0};
    if (test_case(t, "ir/run-every-memory-type"))
        for (int type = IR_F32; type < IR_BOOL; type++) check_memory_type(t, (ir_type)type);
    if (test_case(t, "ir/run-matrix-fragments")) {
        lab_open(&l, -1);
        const ir_kernel *k = matrix_kernel(&l);
        if (!k || matrix_run(&l, k, c)) test_fail(t, __FILE__, __LINE__, "%s", l.error.message);
        for (uint32_t m = 0; m < 4; m++)
            for (uint32_t n = 0; n < 8; n++) {
                uint32_t want = 1;
                for (uint32_t i = 0; i < 16; i++) want += (m * 16 + i) % 7 * ((n * 16 + i) % 5);
                CHECK_NEAR(t, (double)c[m * 8 + n], (double)want, 0);
            }
        lab_close(t, &l);
    }
    if (test_case(t, "ir/no-memory-at-any-call")) {
        long left = 0;
        for (beryl_status status = BERYL_NO_MEMORY; status && left < 1000; left++) {
            base_text text;
            const ir_kernel *again;
            lab_open(&l, left);
            base_text_init(&text, &l.heap);
            const ir_kernel *k = matrix_kernel(&l);
            if (k) ir_print(&text, k);
            status = k && !text.failed ? ir_parse(&l.arena, text.data, text.size, &again, &l.error)
                                       : BERYL_NO_MEMORY;
            if (!status) status = matrix_run(&l, again, c);
            if (status) CHECK_INT(t, status, BERYL_NO_MEMORY);
            base_text_fini(&text);
            lab_close(t, &l);
        }
        CHECK(t, left > 10 && left < 1000);
    }
}

/* ---- what is the same in a workgroup ----------------------------------------------------------
 */

static void test_looking(test *t) {
    static const char text[] = KERNEL
        "register 0 u32 1\nregister 1 u32 1\n"
        "%0 = const u32 0\n%1 = local u32 x\n%2 = group u32 x\n%3 = add u32 %0 %2\n%4 = add u32 %1 "
        "%2\n"
        "%5 = load u32 buffer 0 %0\n%6 = load u32 buffer 0 %1\n%7 = load u32 buffer 1 %0\n"
        "%8 = subgroup_add u32 %0\nstore register 0 %0 %2\n%10 = load u32 register 0 %0\n"
        "%11 = loop u32 %0 %5 %2\n%12 = load u32 register 1 %0\nstore register 1 %0 %11\nend\n"
        "%15 = loop u32 %0 %5 %2\n%16 = load u32 register 0 %0\nend\n"
        "%18 = lt bool %1 %0\nif %18\n%20 = const u32 1\nstore register 1 %0 %20\nelse\nend\n";
    /* the load of register 1 stands before the store in a divided place, yet may differ */

    lab l;
    if (test_case(t, "ir/what-is-the-same-in-a-workgroup")) {
        const ir_kernel *k;
        bool uniform[64];
        uint32_t next[64];
        lab_open(&l, -1);
        if (ir_parse(&l.arena, text, sizeof text - 1, &k, &l.error))
            test_fail(t, __FILE__, __LINE__, "%s", l.error.message);
        if (k) {
            static const uint8_t same[] = {0, 2, 3, 5, 10, 11, 14, 15, 16, 17, 20, 23};
            static const uint8_t differ[] = {1, 4, 6, 7, 8, 12, 18, 19, 22};
            ir_uniform(k, uniform);
            for (size_t n = 0; n < sizeof same; n++)
                if (!uniform[same[n]])
                    test_fail(t, __FILE__, __LINE__, "%%%u is the same", same[n]);
            for (size_t n = 0; n < sizeof differ; n++)
                if (uniform[differ[n]]) test_fail(t, __FILE__, __LINE__, "%%%u differs", differ[n]);
            ir_blocks(k, next);
            CHECK_INT(t, next[11], 14);
            CHECK_INT(t, next[14], 11);
            CHECK_INT(t, next[19], 22);
            CHECK_INT(t, next[22], 23);
            CHECK_INT(t, next[23], 19);
            CHECK_INT(t, next[20], IR_NO_ID);
        }
        lab_close(t, &l);
    }
}

void test_ir_run(test *t) {
    test_programs(t);
    test_mistakes(t);
    test_matrices(t);
    test_looking(t);
}
