/* early_test.c - where CUDA texts wait for the dispatches before, and let the next one come; what
 * they tell caches of loads. */
#include "test.h"

#include "codegen/codegen.h"

#include <string.h>

typedef enum ending { STORE, LOOP, FRAGMENTS } ending;

/* Its text, in the arena. What is read before any store is buffer 0. */
static const char *text_of(test *t, base_arena *arena, ending end, device_language language) {
    beryl_error error = {0};
    device_program_desc desc;
    const ir_kernel *k = NULL;
    ir_builder *b = ir_begin(arena, "early", 32, 1, 1);
    ir_subgroup(b, 32);
    const ir_memory x = ir_buffer(b, IR_F32, IR_READ, "x"),
                    y = ir_buffer(b, IR_F32, IR_READ_WRITE, "y");
    const ir_id i = ir_local(b, 0), zero = ir_u32(b, 0), n = ir_u32(b, 4096);
    ir_if(b, ir_eq(b, ir_group(b, 0), zero)); /* not what it stores last */
    ir_store(b, y, i, ir_f32(b, 1));
    ir_end(b);
    if (end == LOOP) {
        const ir_id at = ir_loop(b, i, n, ir_u32(b, 32));
        ir_store(b, y, at, ir_load(b, x, at, 1));
        ir_end(b);
    } else {
        const ir_id sum = ir_subgroup_add(b, ir_load(b, x, i, 1));
        ir_if(b, ir_eq(b, i, zero));
        ir_store(b, y, n, sum);
        ir_end(b);
    }
    if (end == FRAGMENTS) {
        const ir_fragments c = ir_fragment(b, IR_ROLE_C, IR_F32, 16, 8, 16, 1);
        ir_fragment_fill(b, c, zero, ir_f32(b, 0));
        ir_fragment_store(b, c, zero, y, zero, ir_u32(b, 8), false);
    }
    CHECK_INT(t, ir_finish(b, &k, &error), BERYL_OK);
    CHECK_INT(t, codegen_make(arena, k, language, NULL, &desc, &error), BERYL_OK);
    return desc.source ? desc.source : "";
}

/* Four words of x and of y are added and stored. */
static const char *adding(test *t, base_arena *arena, device_language language) {
    beryl_error error = {0};
    device_program_desc desc;
    const ir_kernel *k = NULL;
    ir_builder *b = ir_begin(arena, "adding", 32, 1, 1);
    const ir_memory x = ir_buffer(b, IR_U32, IR_READ, "x"), y = ir_buffer(b, IR_U32, IR_READ, "y"),
                    z = ir_buffer(b, IR_U32, IR_READ_WRITE, "z");
    const ir_id i = ir_mul(b, ir_local(b, 0), ir_u32(b, 4));
    ir_buffer_once(b, x);
    ir_store(b, z, i, ir_add(b, ir_load(b, x, i, 4), ir_load(b, y, i, 4)));
    CHECK_INT(t, ir_finish(b, &k, &error), BERYL_OK);
    CHECK_INT(t, codegen_make(arena, k, language, NULL, &desc, &error), BERYL_OK);
    return desc.source ? desc.source : "";
}

static const char *after(const char *text, const char *what) {
    const char *at = strstr(text, what);
    return at ? at : text + strlen(text);
}

void test_early(test *t);
void test_early(test *t) {
    static const char wait[] = "griddepcontrol.wait", launch[] = "griddepcontrol.launch_dependents";
    base_heap heap;
    base_arena arena;
    base_heap_init(&heap, NULL);
    base_arena_init(&arena, &heap);
    if (test_case(t, "early/the-next-is-launched-before-the-last-store")) {
        const char *text = text_of(t, &arena, STORE, DEVICE_CUDA_C), *waits = after(text, wait),
                   *loads = after(waits, "= b0["), *launches = after(loads, launch);
        CHECK(t, strstr(waits, "b1[") > waits && *loads && *launches);
        CHECK(t, after(launches, "b1[") == after(launches, "b1[4096u]"));
        CHECK(t, !*after(after(launches, "b1[") + 1, "b1["));
        CHECK(t, !*after(after(text, launch) + 1, launch));
    }
    if (test_case(t, "early/a-loop-that-stores-launches-nothing")) {
        const char *text = text_of(t, &arena, LOOP, DEVICE_CUDA_C);
        CHECK(t, *after(text, wait) && !*after(text, launch));
    }
    if (test_case(t, "early/matrix-units-launch-at-once")) {
        const char *text = text_of(t, &arena, FRAGMENTS, DEVICE_CUDA_C),
                   *launches = after(after(text, wait), launch);
        CHECK(t, *launches && launches < after(text, "b1["));
    }
    if (test_case(t, "early/other-languages-do-not-wait"))
        for (int language = DEVICE_HIP_C; language <= DEVICE_OPENCL_C; language++)
            CHECK(t, !*after(text_of(t, &arena, STORE, (device_language)language), "griddep"));
    if (test_case(t, "early/what-is-read-once-leaves-caches-first")) {
        const char *text = adding(t, &arena, DEVICE_CUDA_C);
        CHECK(t, strstr(text, "evict_first") && strstr(text, "load_once(&b0["));
        CHECK(t, !strstr(text, "load_once(&b1["));
        for (int language = DEVICE_HIP_C; language <= DEVICE_OPENCL_C; language++)
            CHECK(t, !strstr(adding(t, &arena, (device_language)language), "once"));
    }
    base_arena_fini(&arena);
    CHECK_INT(t, heap.bytes, 0);
}
