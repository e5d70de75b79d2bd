/* kernels_test.c - the registry: files, options, parts and prefixes become one text, and what it
 * says of the text. */
#include "test.h"

#include "base/error.h"
#include "kernels/kernels.h"
#include "kernels_wgsl.h"

#include <stdlib.h>
#include <string.h>

typedef struct rig {
    base_heap heap;
    base_arena arena;
    beryl_error error;
    kernels_text text;
} rig;

static void rig_open(rig *r, const beryl_allocator *allocator) {
    *r = (rig){0};
    base_heap_init(&r->heap, allocator);
    base_arena_init(&r->arena, &r->heap);
}

static void rig_close(test *t, rig *r) {
    base_arena_fini(&r->arena);
    CHECK_INT(t, r->heap.bytes, 0);
}

static beryl_status build(rig *r, const kernels_request *request) {
    r->error = (beryl_error){0};
    return kernels_build(&r->arena, request, &r->text, &r->error);
}

static bool has(const rig *r, const char *what) {
    return r->text.text && strstr(r->text.text, what);
}

static const kernels_request segments = {
    .file = "matvec",
    .options = {{"WG", "32u"}, {"LANES", "4u"}},
    .parts = {{"reader", "read_q4_k", "a_"},
              {"reader", "read_q6_k", "b_"},
              {"body", "matvec_body_f32", "a_"},
              {"body", "matvec_body_f32", "b_"},
              {"epilogue", "matvec_store", "a_"},
              {"epilogue", "matvec_store", "b_"},
              {"walk", "matvec_walk_2", NULL}},
};

/* Kernels build with their defaults; parts alone (no entry) do not claim to. */
static void test_defaults(test *t) {
    if (!test_case(t, "kernels/every-file-builds-with-its-defaults")) return;
    rig r;
    rig_open(&r, NULL);
    for (size_t i = 0; i < kernels_wgsl_count; i++) {
        if (!strstr(kernels_wgsl_files[i].text, "@compute")) continue;
        const beryl_status status =
            build(&r, &(kernels_request){.file = kernels_wgsl_files[i].name});
        if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", r.error.message);
        else
            CHECK(t, r.text.n_binding > 0 && r.text.workgroup[0] > 0 && !strstr(r.text.text, "//"));
    }
    rig_close(t, &r);
}

static void test_reflection(test *t) {
    if (test_case(t, "kernels/bindings-and-parameters-are-told")) {
        rig r;
        rig_open(&r, NULL);
        CHECK_INT(t, build(&r, &(kernels_request){.file = "quantise"}), BERYL_OK);
        CHECK_INT(t, r.text.n_binding, 2);
        CHECK_INT(t, kernels_binding_find(&r.text, "x"), 0);
        CHECK_INT(t, kernels_binding_find(&r.text, "quantised"), 1);
        CHECK_INT(t, kernels_binding_find(&r.text, "none"), -1);
        CHECK_INT(t, r.text.bindings[0].access, DEVICE_READ);
        CHECK_INT(t, r.text.bindings[1].access, DEVICE_READ_WRITE);
        CHECK_INT(t, kernels_param_find(&r.text, "k"), 1);
        CHECK(t, !r.text.params[1].is_float && !r.text.uses_f16 && !r.text.uses_subgroups);
        CHECK_INT(t, r.text.workgroup[0], 64);
        CHECK_INT(t, build(&r, &(kernels_request){.file = "gather_rows"}), BERYL_OK);
        const int factor = kernels_param_find(&r.text, "factor");
        CHECK(t, factor >= 0 && r.text.params[factor].is_float);
        /* of the reader, after the kernel's own */
        CHECK_INT(t, kernels_param_find(&r.text, "PART_k"), factor + 1);
        rig_close(t, &r);
    }
    if (test_case(t, "kernels/parts-take-their-prefix")) {
        rig r;
        rig_open(&r, NULL);
        CHECK_INT(t, build(&r, &segments), BERYL_OK);
        CHECK(t, has(&r, "struct a_chunk") && has(&r, "struct b_chunk") && !has(&r, "PART_"));
        CHECK(t, kernels_param_find(&r.text, "a_rows") >= 0 &&
                     kernels_param_find(&r.text, "b_rows") >= 0);
        CHECK_INT(t, kernels_binding_find(&r.text, "a_out"), 2);
        CHECK_INT(t, kernels_binding_find(&r.text, "b_out"), 3);
        CHECK(t, has(&r, "@binding(3) var<storage, read_write> b_out"));
        rig_close(t, &r);
    }
}

static void test_options(test *t) {
    if (!test_case(t, "kernels/options-and-parts-change-the-text")) return;
    rig r;
    rig_open(&r, NULL);
    CHECK_INT(t, build(&r, &(kernels_request){.file = "matvec"}), BERYL_OK);
    const uint64_t plain = r.text.hash;
    CHECK_INT(t, build(&r, &(kernels_request){.file = "matvec"}), BERYL_OK);
    CHECK(t, r.text.hash == plain);
    CHECK_INT(t,
              build(&r, &(kernels_request){.file = "matvec",
                                           .options = {{"WG", "32u"}, {"LANES", "16u"}}}),
              BERYL_OK);
    CHECK(t, r.text.hash != plain && has(&r, "const LANES: u32 = 16u;"));
    CHECK_INT(t, r.text.workgroup[0], 32);
    CHECK_INT(t,
              build(&r, &(kernels_request){.file = "matvec",
                                           .parts = {{"reduce", "matvec_reduce_subgroup", NULL}}}),
              BERYL_OK);
    CHECK(t, r.text.uses_subgroups && !has(&r, "reduce_sums"));
    /* An option of a part, and a part of a part. */
    CHECK_INT(t,
              build(&r, &(kernels_request){.file = "matvec",
                                           .options = {{"X_GROUPS", "8u"}},
                                           .parts = {{"x", "matvec_x_shared", NULL},
                                                     {"prologue", "matvec_prologue_any", NULL}}}),
              BERYL_OK);
    CHECK(t, has(&r, "const X_GROUPS: u32 = 8u;") && has(&r, "var<storage, read> x: array<f32>;"));
    rig_close(t, &r);
}

static void test_refused(test *t) {
    if (test_case(t, "kernels/unknown-names-are-refused-by-name")) {
        rig r;
        rig_open(&r, NULL);
        CHECK_INT(t, build(&r, &(kernels_request){.file = "nonsense"}), BERYL_NOT_FOUND);
        CHECK(t, strstr(r.error.message, "nonsense"));
        CHECK_INT(t, build(&r, &(kernels_request){.file = "matvec", .options = {{"NONE", "1u"}}}),
                  BERYL_NOT_FOUND);
        CHECK(t, strstr(r.error.message, "NONE"));
        CHECK_INT(t,
                  build(&r, &(kernels_request){.file = "matvec",
                                               .parts = {{"none", "matvec_store", NULL}}}),
                  BERYL_NOT_FOUND);
        CHECK(t, strstr(r.error.message, "none"));
        CHECK_INT(t,
                  build(&r, &(kernels_request){.file = "matvec",
                                               .parts = {{"reader", "read_none", NULL}}}),
                  BERYL_NOT_FOUND);
        CHECK(t, strstr(r.error.message, "read_none"));
        /* a part has no entry */
        CHECK_INT(t, build(&r, &(kernels_request){.file = "read_q4_k"}), BERYL_MISUSE);
        CHECK_INT(t,
                  build(&r, &(kernels_request){.file = "matvec",
                                               .parts = {{"reader", "read_q4_k", NULL},
                                                         {"reader", "read_q4_k", NULL}}}),
                  BERYL_MISUSE); /* PART_k twice */
        rig_close(t, &r);
    }
}

typedef struct failing {
    uint32_t calls, fail_at;
} failing;

static void *failing_resize(void *user, void *memory, size_t old_size, size_t new_size) {
    failing *f = user;
    (void)old_size;
    if (new_size == 0) return free(memory), NULL;
    return ++f->calls == f->fail_at ? NULL : realloc(memory, new_size);
}

static void test_memory(test *t) {
    if (!test_case(t, "kernels/an-allocator-that-fails-is-told")) return;
    bool ended = false;
    for (uint32_t n = 1; n < 200 && !ended; n++) {
        failing f = {.fail_at = n};
        rig r;
        rig_open(&r, &(beryl_allocator){failing_resize, &f});
        const beryl_status status = build(&r, &segments);
        ended = status == BERYL_OK;
        CHECK(t, ended ? f.calls < n : status == BERYL_NO_MEMORY);
        rig_close(t, &r);
    }
    CHECK(t, ended);
}

void test_kernels(test *t);
void test_kernels(test *t) {
    test_defaults(t);
    test_reflection(t);
    test_options(t);
    test_refused(t);
    test_memory(t);
}
