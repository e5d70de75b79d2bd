/* device_test.c - the device interface on the dummy device and, where there is an adapter, on
 * WebGPU.
 *
 * run_kernel below is the shortest whole way from WGSL text to numbers; copy it to try a kernel. */
#define _GNU_SOURCE /* setenv, dladdr */
#include "rig.h"

#include "base/thread.h"
#include "device/device.h"
#include "device/dummy/dummy.h"
#include "device/webgpu/webgpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static device_program_desc desc_of(const char *text, uint32_t n_binding, uint32_t param_bytes) {
    device_program_desc desc = {.source = text,
                                .source_size = strlen(text),
                                .label = "test",
                                .n_binding = n_binding,
                                .param_bytes = param_bytes,
                                .workgroup = {64, 1, 1}};
    desc.access[n_binding - 1] = DEVICE_READ_WRITE; /* by custom the last one is the result */
    return desc;
}

/* y = kernel(x): compile, bind, run once, read back. Both of n u32. */
static beryl_status run_kernel(test *t, rig *r, const char *text, const uint32_t *x, uint32_t *y,
                               uint32_t n, uint32_t groups, const void *params,
                               uint32_t param_bytes) {
    device_program_desc desc = desc_of(text, 2, param_bytes);
    device_buffer in = rig_buffer(t, r, n * 4, x), out = rig_buffer(t, r, n * 4, NULL);
    device_program program;
    device_bindings bindings;
    device_ticket ticket = 0;
    beryl_status status = device_program_make(r->d, &desc, &program, &r->error);
    if (!status) status = rig_compiled(r, program);
    device_binding binding[] = {{.buffer = in}, {.buffer = out}};
    if (!status) status = device_bindings_make(r->d, program, binding, 2, &bindings, &r->error);
    if (!status) {
        device_command list[] = {rig_dispatch(program, bindings, groups, 0),
                                 rig_range(DEVICE_FETCH, out, 0, n * 4)};
        status = rig_submit(r, list, 2, params, param_bytes, &ticket);
    }
    if (!status) status = rig_take(r, ticket, 0, y, n * 4);
    if (!status) device_bindings_drop(r->d, bindings);
    device_program_drop(r->d, program);
    device_buffer_drop(r->d, in);
    device_buffer_drop(r->d, out);
    return status;
}

static const char scale_text[] = "struct Params { factor: u32, n: u32 }\n"
                                 "@group(0) @binding(0) var<storage, read> x: array<u32>;\n"
                                 "@group(0) @binding(1) var<storage, read_write> y: array<u32>;\n"
                                 "@group(1) @binding(0) var<uniform> params: Params;\n"
                                 "@compute @workgroup_size(64)\n"
                                 "fn main(@builtin(global_invocation_id) at: vec3<u32>) {\n"
                                 "    if (at.x < params.n) { y[at.x] = params.factor * x[at.x]; }\n"
                                 "}\n";

static const char add_text[] = /* y = y + 1 */
    "@group(0) @binding(0) var<storage, read_write> y: array<u32>;\n"
    "@compute @workgroup_size(64)\n"
    "fn main(@builtin(global_invocation_id) at: vec3<u32>) {\n"
    "    if (at.x < arrayLength(&y)) { y[at.x] = y[at.x] + 1u; }\n"
    "}\n";

/* ---- what every device refuses, seen on the dummy -------------------------------------------- */

typedef struct rows {
    char backends[16][16];
    int n, last;
    bool sorted, told;
} rows;

/* GPUs; this processor, then what imitates a GPU on it; no programs; unusable. */
static int place_of(const device_caps *caps, const char *why_not) {
    if (why_not || !caps->languages) return why_not ? 9 : 8;
    if (caps->kind == DEVICE_DISCRETE || caps->kind == DEVICE_INTEGRATED) return 0;
    return caps->kind == DEVICE_HOST ? 2 : 3;
}

static void note_row(void *user, const device_caps *caps, const char *why_not) {
    rows *all = user;
    if (all->n == 16) return;
    snprintf(all->backends[all->n++], 16, "%s", caps->backend);
    if (why_not) all->told &= why_not[0] && !strchr(why_not, '\n');
    all->sorted &= all->last <= place_of(caps, why_not);
    all->last = place_of(caps, why_not);
}

static void test_list(test *t) {
    if (test_case(t, "device/list-has-a-row-for-each-backend")) {
        rows all = {.sorted = true, .told = true};
        base_heap heap;
        base_heap_init(&heap, NULL);
        device_list(&heap, NULL, note_row, &all);
        CHECK(t, all.sorted && all.told);
#define X(table) {#table, &device_##table},
        static const struct {
            const char *name;
            const device_backend *backend;
        } known[] = {DEVICE_BACKENDS(X)};
#undef X
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
            bool found = false;
            for (int k = 0; k < all.n; k++) found |= !strcmp(all.backends[k], known[i].name);
            if (found == known[i].backend->hidden)
                test_fail(t, __FILE__, __LINE__, "the list and %s", known[i].name);
            CHECK_TEXT(t, known[i].backend->name, known[i].name);
        }
        CHECK_INT(t, heap.bytes, 0);
    }
    if (test_case(t, "device/choice-of-what-runs-no-programs")) {
        rig r;
        if (rig_open(t, &r, "disk")) {
            CHECK_INT(t, device_caps_of(r.d)->languages, 0);
            rig_close(t, &r);
        }
        CHECK_INT(t, device_open(&r.heap, NULL, "disk:1", &r.d, &r.error), BERYL_NO_DEVICE);
        CHECK_INT(t, device_open(&r.heap, NULL, "files", &r.d, &r.error), BERYL_NO_DEVICE);
        beryl_status status = device_open(&r.heap, NULL, NULL, &r.d, &r.error);
        CHECK(t, status == BERYL_OK || status == BERYL_NO_DEVICE);
        if (!status) CHECK(t, device_caps_of(r.d)->languages);
        device_close(r.d);
        CHECK_INT(t, r.heap.bytes, 0);
    }
    rig r;
    if (test_case(t, "device/program-of-another-language") && rig_open(t, &r, "dummy")) {
        device_program program;
        device_program_desc desc = desc_of("void main() {}", 1, 0);
        desc.language = DEVICE_C;
        CHECK_INT(t, device_program_make(r.d, &desc, &program, &r.error), BERYL_UNSUPPORTED);
        CHECK(t, strstr(r.error.message, "is C,") && strstr(r.error.message, "dummy:0"));
        desc.language = (device_language)77;
        CHECK_INT(t, device_program_make(r.d, &desc, &program, &r.error), BERYL_MISUSE);
        rig_close(t, &r);
    }
}

static void test_choice(test *t) {
    if (test_case(t, "device/choice-unknown-lists-what-there-is")) {
        rig r;
        base_heap_init(&r.heap, NULL);
        CHECK_INT(t, device_open(&r.heap, NULL, "no such thing", &r.d, &r.error), BERYL_NO_DEVICE);
        CHECK(t, strstr(r.error.message, "no such thing") && strstr(r.error.message, "webgpu"));
        CHECK_INT(t, device_open(&r.heap, NULL, "webgpu:999", &r.d, &r.error), BERYL_NO_DEVICE);
        CHECK_INT(t, device_open(&r.heap, NULL, "webgpu:4294967296", &r.d, &r.error),
                  BERYL_NO_DEVICE);
        CHECK_INT(t, device_open(&r.heap, NULL, "dummy:1", &r.d, &r.error), BERYL_NO_DEVICE);
        CHECK_INT(t, device_open(&r.heap, NULL, "dumm", &r.d, &r.error), BERYL_NO_DEVICE);
        CHECK_INT(t, device_open(&r.heap, NULL, "dummy:", &r.d, &r.error), BERYL_NO_DEVICE);
        CHECK_INT(t, device_open(&r.heap, NULL, ":", &r.d, &r.error), BERYL_NO_DEVICE);
        CHECK_INT(t, r.heap.bytes, 0);
    }
    if (test_case(t, "device/choice-dummy-by-name")) {
        static const char *const names[] = {"dummy", "dummy:0", "dummy:UMM"};
        for (int i = 0; i < 3; i++) {
            rig r;
            if (!rig_open(t, &r, names[i])) continue;
            CHECK_TEXT(t, device_caps_of(r.d)->backend, "dummy");
            rig_close(t, &r);
        }
    }
    if (test_case(t, "device/caps-switched-off")) {
        setenv("BERYL_CAPS", "no-f16,no-dot", 1);
        rig r;
        if (rig_open(t, &r, "dummy")) {
            CHECK(t, !device_caps_of(r.d)->f16 && !device_caps_of(r.d)->dot_i8 &&
                         device_caps_of(r.d)->subgroups);
            device_program_desc desc = desc_of(add_text, 1, 0);
            desc.uses_f16 = true;
            device_program program;
            CHECK_INT(t, device_program_make(r.d, &desc, &program, &r.error), BERYL_UNSUPPORTED);
            rig_close(t, &r);
        }
        setenv("BERYL_CAPS", "min", 1);
        if (rig_open(t, &r, "dummy")) {
            const device_caps *caps = device_caps_of(r.d);
            CHECK(t, !caps->f16 && !caps->subgroups && !caps->subgroup_size && !caps->dot_i8);
            CHECK_INT(t, caps->workgroup_invocations, 256);
            CHECK_INT(t, caps->workgroup_bytes, 16384);
            CHECK_INT(t, caps->storage_max, 8);
            CHECK_INT(t, caps->binding_max, 128 << 20);
            rig_close(t, &r);
        }
        static const char *const unknown[] = {"no-f61", "no-f16,soft", "NO-F16", "no-f16;no-dot"};
        for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
            base_heap heap;
            base_heap_init(&heap, NULL);
            beryl_error error = {0};
            device *d = NULL;
            setenv("BERYL_CAPS", unknown[i], 1);
            CHECK_INT(t, device_open(&heap, NULL, "dummy", &d, &error), BERYL_BAD_INPUT);
            CHECK(t, !d && strstr(error.message, "BERYL_CAPS"));
            CHECK_INT(t, heap.bytes, 0);
        }
        setenv("BERYL_CAPS", " ,no-f16, ", 1);
        if (rig_open(t, &r, "dummy")) {
            CHECK(t, !device_caps_of(r.d)->f16);
            rig_close(t, &r);
        }
        unsetenv("BERYL_CAPS");
    }
}

static void test_refused_things(test *t) {
    rig r;
    if (test_case(t, "device/buffer-range-refused") && rig_open(t, &r, "dummy")) {
        uint32_t word = 0;
        device_buffer buffer, none = {0};
        CHECK_INT(t, device_buffer_make(r.d, 0, "", &buffer, &r.error), BERYL_MISUSE);
        CHECK_INT(t, device_buffer_make(r.d, UINT64_C(1) << 40, "huge", &buffer, &r.error),
                  BERYL_NO_DEVICE_MEMORY);
        CHECK_INT(t, buffer.id, 0);
        buffer = rig_buffer(t, &r, 16, NULL);
        CHECK_INT(t, device_write(r.d, buffer, 12, &word, 4, &r.error), BERYL_OK);
        CHECK_INT(t, device_write(r.d, buffer, 16, &word, 4, &r.error), BERYL_MISUSE);
        CHECK_INT(t, device_write(r.d, buffer, 2, &word, 4, &r.error), BERYL_MISUSE);
        CHECK_INT(t, device_write(r.d, buffer, 0, &word, 3, &r.error), BERYL_MISUSE);
        CHECK_INT(t, device_write(r.d, buffer, UINT64_MAX - 3, &word, 4, &r.error), BERYL_MISUSE);
        CHECK_INT(t, device_write(r.d, none, 0, &word, 4, &r.error), BERYL_MISUSE);
        device_buffer_drop(r.d, buffer);
        device_buffer_drop(r.d, buffer);
        CHECK_INT(t, device_write(r.d, buffer, 0, &word, 4, &r.error), BERYL_MISUSE);
        device_buffer other = rig_buffer(t, &r, 16, NULL);
        CHECK(t, other.id != buffer.id);
        CHECK_INT(t, device_write(r.d, buffer, 0, &word, 4, &r.error), BERYL_MISUSE);
        device_stats stats;
        device_stats_of(r.d, &stats);
        CHECK_INT(t, stats.buffers, 1);
        CHECK_INT(t, stats.buffer_bytes, 16);
        rig_close(t, &r);
    }
    if (test_case(t, "device/ids-are-never-given-twice") && rig_open(t, &r, "dummy")) {
        device_buffer first = rig_buffer(t, &r, 4, NULL), last = first;
        for (int i = 0; i < 40000; i++) {
            device_buffer_drop(r.d, last);
            last = rig_buffer(t, &r, 4, NULL);
            if (last.id == first.id) CHECK_INT(t, i, -1);
        }
        rig_close(t, &r);
    }
    if (test_case(t, "device/stage-refused") && rig_open(t, &r, "dummy")) {
        device_buffer buffer = rig_buffer(t, &r, 64, NULL);
        void *memory;
        device_ticket ticket;
        CHECK_INT(t, device_stage(r.d, device_stage_max(r.d) + 1, &memory, &r.error), BERYL_MISUSE);
        CHECK_INT(t, device_stage_commit(r.d, buffer, 0, 4, &r.error), BERYL_MISUSE);
        CHECK_INT(t, device_stage(r.d, 64, &memory, &r.error), BERYL_OK);
        memset(memory, 1, 64);
        CHECK_INT(t, device_stage_commit(r.d, buffer, 4, 64, &r.error), BERYL_MISUSE);
        CHECK_INT(t, device_stage_commit(r.d, buffer, 0, 68, &r.error), BERYL_MISUSE);
        CHECK_INT(t, rig_submit(&r, NULL, 0, NULL, 0, &ticket), BERYL_MISUSE);
        CHECK_INT(t, device_stage_commit(r.d, buffer, 0, 64, &r.error), BERYL_OK);
        CHECK_INT(t, device_stage_commit(r.d, buffer, 0, 64, &r.error), BERYL_MISUSE);
        CHECK_INT(t, rig_submit(&r, NULL, 0, NULL, 0, &ticket), BERYL_OK);
        rig_close(t, &r);
    }
    if (test_case(t, "device/program-refused") && rig_open(t, &r, "dummy")) {
        device_program program;
        device_program_desc good = desc_of(add_text, 1, 0), bad = good;
        bad.source_size = 0;
        CHECK_INT(t, device_program_make(r.d, &bad, &program, &r.error), BERYL_MISUSE);
        bad = good, bad.source = "fn main() {} \xff", bad.source_size = 14;
        CHECK_INT(t, device_program_make(r.d, &bad, &program, &r.error), BERYL_MISUSE);
        bad = good, bad.n_binding = 0;
        CHECK_INT(t, device_program_make(r.d, &bad, &program, &r.error), BERYL_MISUSE);
        bad = good, bad.n_binding = DEVICE_BINDING_MAX + 1;
        CHECK_INT(t, device_program_make(r.d, &bad, &program, &r.error), BERYL_MISUSE);
        bad = good, bad.param_bytes = DEVICE_PARAM_MAX + 4;
        CHECK_INT(t, device_program_make(r.d, &bad, &program, &r.error), BERYL_MISUSE);
        bad = good, bad.workgroup[0] = 64, bad.workgroup[1] = 64;
        CHECK_INT(t, device_program_make(r.d, &bad, &program, &r.error), BERYL_UNSUPPORTED);
        bad.workgroup[0] = UINT32_MAX;
        CHECK_INT(t, device_program_make(r.d, &bad, &program, &r.error), BERYL_UNSUPPORTED);
        CHECK_INT(t, device_program_make(r.d, &good, &program, &r.error), BERYL_OK);
        CHECK_INT(t, device_program_status(r.d, program, &r.error), BERYL_OK);
        device_program_drop(r.d, program);
        CHECK_INT(t, device_program_status(r.d, program, &r.error), BERYL_MISUSE);
        rig_close(t, &r);
    }
}

static void test_refused_bindings(test *t) {
    rig r;
    if (!test_case(t, "device/bindings-refused") || !rig_open(t, &r, "dummy")) return;
    device_program program;
    device_bindings bindings;
    device_program_desc desc = desc_of(scale_text, 3, 8);
    desc.access[1] = DEVICE_READ_WRITE; /* read, write, write */
    CHECK_INT(t, device_program_make(r.d, &desc, &program, &r.error), BERYL_OK);
    device_buffer a = rig_buffer(t, &r, 1024, NULL), b = rig_buffer(t, &r, 1024, NULL);
    device_binding good[3] = {{.buffer = a}, {b, 0, 512}, {b, 512, 0}}, bad[3];
#define REFUSED(...)                                                                  \
    do {                                                                              \
        memcpy(bad, good, sizeof bad);                                                \
        __VA_ARGS__;                                                                  \
        CHECK_INT(t, device_bindings_make(r.d, program, bad, 3, &bindings, &r.error), \
                  BERYL_MISUSE);                                                      \
    } while (0)
    REFUSED(bad[0].buffer.id = 0);
    REFUSED(bad[0].offset = 1024);
    REFUSED(bad[0].offset = 4); /* alignment */
    REFUSED(bad[0].size = 1028);
    REFUSED(bad[0].size = 6);
    REFUSED(bad[0].offset = UINT64_MAX - 31, bad[0].size = 64);
    REFUSED(bad[0].buffer = b, bad[0].size = 4); /* read and written, even where ranges differ */
    REFUSED(bad[1].size = 516);                  /* two writers of one byte */
    REFUSED(bad[1].buffer = a);
#undef REFUSED
    CHECK_INT(t, device_bindings_make(r.d, program, good, 2, &bindings, &r.error), BERYL_MISUSE);
    CHECK_INT(t, device_bindings_make(r.d, program, good, 3, &bindings, &r.error), BERYL_OK);
    device_buffer large;
    CHECK_INT(t, device_buffer_make(r.d, UINT64_C(3) << 30, "large", &large, &r.error), BERYL_OK);
    good[0].buffer = large;
    CHECK_INT(t, device_bindings_make(r.d, program, good, 3, &bindings, &r.error), BERYL_MISUSE);
    rig_close(t, &r);
}

static void test_refused_commands(test *t) {
    rig r;
    if (!test_case(t, "device/commands-refused") || !rig_open(t, &r, "dummy")) return;
    device_program program, other;
    device_bindings bindings, others;
    device_program_desc desc = desc_of(scale_text, 2, 8);
    CHECK_INT(t, device_program_make(r.d, &desc, &program, &r.error), BERYL_OK);
    desc = desc_of(add_text, 1, 0);
    CHECK_INT(t, device_program_make(r.d, &desc, &other, &r.error), BERYL_OK);
    device_buffer a = rig_buffer(t, &r, 256, NULL), b = rig_buffer(t, &r, 256, NULL),
                  gone = rig_buffer(t, &r, 256, NULL);
    device_binding binding[] = {{.buffer = a}, {.buffer = b}}, one[] = {{.buffer = gone}};
    CHECK_INT(t, device_bindings_make(r.d, program, binding, 2, &bindings, &r.error), BERYL_OK);
    CHECK_INT(t, device_bindings_make(r.d, other, one, 1, &others, &r.error), BERYL_OK);
    unsigned char params[512] = {0};
    device_ticket ticket;
    device_command c;
#define SUBMITTED(want, ...)                                                       \
    do {                                                                           \
        c = __VA_ARGS__;                                                           \
        CHECK_INT(t, rig_submit(&r, &c, 1, params, sizeof params, &ticket), want); \
    } while (0)
    SUBMITTED(BERYL_OK, rig_dispatch(program, bindings, 65535, 256));
    SUBMITTED(BERYL_MISUSE, rig_dispatch(program, bindings, 65536, 0));
    SUBMITTED(BERYL_MISUSE, rig_dispatch(program, bindings, 1, 8));
    SUBMITTED(BERYL_MISUSE, rig_dispatch(program, bindings, 1, 512));
    SUBMITTED(BERYL_MISUSE, rig_dispatch(other, bindings, 1, 0));
    SUBMITTED(BERYL_MISUSE, rig_dispatch(program, others, 1, 0));
    SUBMITTED(BERYL_MISUSE, rig_dispatch(program, (device_bindings){0}, 1, 0));
    SUBMITTED(BERYL_MISUSE, rig_dispatch((device_program){77}, bindings, 1, 0));
    SUBMITTED(BERYL_OK, rig_dispatch(other, others, 1, 0));
    device_buffer_drop(r.d, gone);
    SUBMITTED(BERYL_MISUSE, rig_dispatch(other, others, 1, 0)); /* its buffer is gone */
    SUBMITTED(BERYL_OK, rig_copy(a, 0, b, 4, 252));
    SUBMITTED(BERYL_MISUSE, rig_copy(a, 0, b, 4, 256));
    SUBMITTED(BERYL_MISUSE, rig_copy(a, 0, b, 2, 4));
    SUBMITTED(BERYL_MISUSE, rig_copy(a, 0, a, 128, 4));
    SUBMITTED(BERYL_MISUSE, rig_copy(a, 0, gone, 0, 4));
    SUBMITTED(BERYL_MISUSE, rig_range(DEVICE_FILL, a, 256, 4));
    SUBMITTED(BERYL_MISUSE, rig_range(DEVICE_FETCH, a, 0, 0));
    SUBMITTED(BERYL_MISUSE, rig_range(DEVICE_FETCH, a, 0, 260));
    SUBMITTED(BERYL_MISUSE, (device_command){.kind = (device_command_kind)99});
#undef SUBMITTED
    CHECK_INT(t, rig_submit(&r, NULL, 1, NULL, 0, &ticket), BERYL_MISUSE);
    CHECK_INT(t, rig_submit(&r, NULL, 0, NULL, 8, &ticket), BERYL_MISUSE);
    device_program_drop(r.d, program);
    c = rig_dispatch(program, bindings, 1, 0);
    CHECK_INT(t, rig_submit(&r, &c, 1, params, sizeof params, &ticket), BERYL_MISUSE);
    rig_close(t, &r);
}

static void test_dummy(test *t) {
    rig r;
    if (test_case(t, "device/dummy-records-and-fetches-zeros") && rig_open(t, &r, "dummy")) {
        device_buffer big;
        CHECK_INT(t, device_buffer_make(r.d, UINT64_C(4) << 30, "big", &big, &r.error),
                  BERYL_NO_DEVICE_MEMORY);
        for (int i = 0; i < 8; i++)
            CHECK_INT(t, device_buffer_make(r.d, UINT64_C(3) << 30, "big", &big, &r.error),
                      BERYL_OK);
        CHECK(t, r.heap.bytes < 1 << 20);
        device_command list[] = {rig_range(DEVICE_FETCH, big, 4096, 64),
                                 {.kind = DEVICE_STAMP},
                                 rig_range(DEVICE_FETCH, big, 0, 128),
                                 {.kind = DEVICE_STAMP}};
        device_ticket ticket = 0, done = 0;
        CHECK_INT(t, rig_submit(&r, list, 4, NULL, 0, &ticket), BERYL_OK);
        CHECK_INT(t, ticket, 1);
        CHECK_INT(t, device_poll(r.d, &done, &r.error), BERYL_OK);
        CHECK_INT(t, done, 1);
        const void *data;
        size_t size, n;
        CHECK_INT(t, device_fetched(r.d, ticket, 1, &data, &size, &r.error), BERYL_OK);
        CHECK_INT(t, size, 128);
        static const char nothing[128];
        CHECK(t, data && !memcmp(data, nothing, 128));
        CHECK_INT(t, device_fetched(r.d, ticket, 2, &data, &size, &r.error), BERYL_MISUSE);
        CHECK_INT(t, device_fetched(r.d, ticket + 1, 0, &data, &size, &r.error), BERYL_MISUSE);
        uint64_t ns[4];
        uint32_t n_stamp = 4;
        CHECK_INT(t, device_stamps(r.d, ticket, ns, &n_stamp, &r.error), BERYL_OK);
        CHECK_INT(t, n_stamp, 2);
        CHECK_INT(t, ns[0], 0);
        CHECK(t, device_dummy_commands(r.d, &n) && n == 4);
        device_ticket later;
        for (int i = 0; i < 5; i++)
            CHECK_INT(t, rig_submit(&r, list, 4, NULL, 0, &later), BERYL_OK);
        CHECK_INT(t, device_fetched(r.d, ticket, 0, &data, &size, &r.error),
                  BERYL_MISUSE); /* kept too long */
        device_fetch_drop(r.d, later);
        CHECK_INT(t, device_fetched(r.d, later, 0, &data, &size, &r.error), BERYL_MISUSE);
        rig_close(t, &r);
    }
}

/* ---- WebGPU ---------------------------------------------------------------------------------- */

static void test_webgpu_basics(test *t) {
    rig r;
    if (test_case(t, "webgpu/bad-shader-gives-text-and-place") && rig_open(t, &r, "webgpu")) {
        static const char bad[] = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;\n"
                                  "@compute @workgroup_size(64)\n"
                                  "fn main() { y[0] = nothing; }\n";
        device_program program;
        device_program_desc desc = desc_of(bad, 1, 0);
        for (int f16 = 0; f16 < (device_caps_of(r.d)->f16 ? 2 : 1); f16++) {
            desc.uses_f16 = f16;
            CHECK_INT(t, device_program_make(r.d, &desc, &program, &r.error), BERYL_OK);
            CHECK_INT(t, rig_compiled(&r, program), BERYL_DEVICE);
            CHECK(t, strstr(r.error.message, "nothing") && strstr(r.error.message, "wgsl:3:20"));
            CHECK_INT(t, r.error.at, strstr(bad, "nothing") - bad);
            CHECK(t, !strchr(r.error.message, '\n'));
        }
        device_buffer y = rig_buffer(t, &r, 256, NULL);
        device_bindings bindings;
        CHECK_INT(t,
                  device_bindings_make(r.d, program, &(device_binding){.buffer = y}, 1, &bindings,
                                       &r.error),
                  BERYL_OK);
        device_command c = rig_dispatch(program, bindings, 1, 0);
        device_ticket ticket;
        CHECK_INT(t, rig_submit(&r, &c, 1, NULL, 0, &ticket), BERYL_DEVICE);
        /* no such entry; a binding that the layout has not; a parameter block above the limit */
        static const char *const more[] = {
            "@group(0) @binding(0) var<storage, read_write> y: array<u32>;\n@compute "
            "@workgroup_size(1) fn other() { y[0] = 1u; }",
            "@group(0) @binding(5) var<storage, read_write> y: array<u32>;\n@compute "
            "@workgroup_size(1) fn main() { y[0] = 1u; }",
            "@group(0) @binding(0) var<storage, read_write> y: array<u32>;\n@group(1) @binding(0) "
            "var<uniform> p: array<vec4<u32>, 17>;\n"
            "@compute @workgroup_size(1) fn main() { y[0] = p[16].x; }"};
        for (int i = 0; i < 3; i++) {
            desc = desc_of(more[i], 1, i == 2 ? 256 : 0);
            CHECK_INT(t, device_program_make(r.d, &desc, &program, &r.error), BERYL_OK);
            CHECK_INT(t, rig_compiled(&r, program), BERYL_DEVICE);
        }
        /* and the device still works */
        uint32_t x[4] = {1, 2, 3, 4}, z[4] = {0}, params[2] = {2, 4};
        CHECK_INT(t, run_kernel(t, &r, scale_text, x, z, 4, 1, params, 8), BERYL_OK);
        CHECK_INT(t, z[3], 8);
        rig_close(t, &r);
    }
}

static void test_webgpu_params(test *t) {
    rig r;
    if (test_case(t, "webgpu/parameters-that-come-again") && rig_open(t, &r, "webgpu")) {
        /* by number: those of more runs than the ring has slots; a longer list in between */
        static const uint32_t factors[] = {3, 3, 5, 3, 7, 9, 11, 13, 3, 3, 13, 2, 3, 5, 5};
        enum { LONG = 11, WORDS = 64 * DEVICE_PARAM_ALIGN / 4 };
        uint32_t x[64], z[64], params[WORDS] = {0};
        for (uint32_t i = 0; i < 64; i++) x[i] = i + 1;
        const device_buffer in = rig_buffer(t, &r, sizeof x, x),
                            out = rig_buffer(t, &r, sizeof z, NULL);
        const device_program_desc desc = desc_of(scale_text, 2, 8);
        device_program program;
        device_bindings bindings;
        CHECK_INT(t, device_program_make(r.d, &desc, &program, &r.error), BERYL_OK);
        CHECK_INT(t, rig_compiled(&r, program), BERYL_OK);
        const device_binding binding[] = {{.buffer = in}, {.buffer = out}};
        CHECK_INT(t, device_bindings_make(r.d, program, binding, 2, &bindings, &r.error), BERYL_OK);
        for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
            const uint32_t at = i == LONG ? WORDS - DEVICE_PARAM_ALIGN / 4 : 0;
            const device_command list[] = {rig_dispatch(program, bindings, 1, at * 4),
                                           rig_range(DEVICE_FETCH, out, 0, sizeof z)};
            params[at] = factors[i], params[at + 1] = 64;
            device_ticket ticket;
            CHECK_INT(t, rig_submit(&r, list, 2, params, i == LONG ? sizeof params : 256, &ticket),
                      BERYL_OK);
            CHECK_INT(t, rig_take(&r, ticket, 0, z, sizeof z), BERYL_OK);
            for (uint32_t k = 0; k < 64; k++) CHECK_INT(t, z[k], x[k] * factors[i]);
        }
        rig_close(t, &r);
    }
}

/* The queue gets such runs some at a time. */
static void test_webgpu_rows(test *t) {
    rig r;
    if (test_case(t, "webgpu/runs-that-nobody-waits-for-keep-their-order") &&
        rig_open(t, &r, "webgpu")) {
        enum { RUNS = 3 * WEBGPU_HELD_MAX + 5 };
        uint32_t x[64], z[64];
        device_program_desc desc = desc_of(add_text, 1, 0);
        device_program program;
        device_bindings bindings;
        device_buffer y = rig_buffer(t, &r, sizeof x, NULL), other = {0};
        CHECK_INT(t, device_program_make(r.d, &desc, &program, &r.error), BERYL_OK);
        CHECK_INT(t, rig_compiled(&r, program), BERYL_OK);
        CHECK_INT(t,
                  device_bindings_make(r.d, program, &(device_binding){.buffer = y}, 1, &bindings,
                                       &r.error),
                  BERYL_OK);
        const device_command add = rig_dispatch(program, bindings, 1, 0),
                             fetch = rig_range(DEVICE_FETCH, y, 0, sizeof z);
        device_ticket ticket = 0;
        for (uint32_t turn = 0; turn < 4; turn++) {
            for (uint32_t i = 0; i < 64; i++) x[i] = turn * 1000 + i;
            CHECK_INT(t, device_write(r.d, y, 0, x, sizeof x, &r.error), BERYL_OK);
            for (uint32_t i = 0; i < RUNS; i++) {
                CHECK_INT(t, rig_submit(&r, &add, 1, NULL, 0, &ticket), BERYL_OK);
                if (i == RUNS / 2) other = rig_buffer(t, &r, sizeof x, x);
                if (i == RUNS - 2) device_buffer_drop(r.d, other);
            }
            if (turn % 2) CHECK_INT(t, device_wait(r.d, ticket, &r.error), BERYL_OK);
            CHECK_INT(t, rig_submit(&r, &fetch, 1, NULL, 0, &ticket), BERYL_OK);
            CHECK_INT(t, rig_take(&r, ticket, 0, z, sizeof z), BERYL_OK);
            for (uint32_t i = 0; i < 64; i++) CHECK_INT(t, z[i], turn * 1000 + i + RUNS);
        }
        rig_close(t, &r);
    }
}

static void count_warning(void *user, beryl_log_level level, const char *line) {
    (void)line;
    *(int *)user += level <= BERYL_LOG_WARNING;
}

static void test_webgpu_caps(test *t) {
    rig r;
    if (test_case(t, "webgpu/what-an-adapter-claims-works")) {
        int n_warning = 0;
        base_heap heap;
        base_heap_init(&heap, NULL);
        device *d = NULL;
        beryl_error error;
        beryl_status status =
            device_open(&heap, &(beryl_log){count_warning, &n_warning}, "webgpu", &d, &error);
        if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
        else CHECK_INT(t, status, BERYL_OK);
        CHECK_INT(t, n_warning, 0);
        device_close(d);
    }
    if (test_case(t, "webgpu/f16-and-subgroups-where-there-are") && rig_open(t, &r, "webgpu")) {
        static const char half[] =
            "alias half4 = vec4<f16>;\n"
            "@group(0) @binding(0) var<storage, read> x: array<u32>;\n"
            "@group(0) @binding(1) var<storage, read_write> y: array<u32>;\n"
            "@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {\n"
            "    if (i < arrayLength(&y)) { y[i] = u32(half4(f16(x[i])).x * 2.0h); } }\n";
        static const char sums[] =
            "@group(0) @binding(0) var<storage, read> x: array<u32>;\n"
            "@group(0) @binding(1) var<storage, read_write> y: array<u32>;\n"
            "@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32,\n"
            "    @builtin(subgroup_size) n: u32) { let s = subgroupAdd(x[i]); if (i == 0u) { y[0] "
            "= s; y[1] = n; } }\n";
        uint32_t x[64], y[64] = {0};
        for (uint32_t i = 0; i < 64; i++) x[i] = 1;
        const device_caps caps = *device_caps_of(r.d);
        device_buffer in = rig_buffer(t, &r, 256, x), out = rig_buffer(t, &r, 256, NULL);
        for (int i = 0; i < 2; i++) {
            device_program program;
            device_bindings bindings;
            device_ticket ticket;
            device_program_desc desc = desc_of(i ? sums : half, 2, 0);
            desc.uses_f16 = !i, desc.uses_subgroups = i;
            bool there = i ? caps.subgroups : caps.f16;
            beryl_status status = device_program_make(r.d, &desc, &program, &r.error);
            CHECK_INT(t, status, there ? BERYL_OK : BERYL_UNSUPPORTED);
            if (status) continue;
            CHECK_INT(t, rig_compiled(&r, program), BERYL_OK);
            device_binding binding[] = {{.buffer = in}, {.buffer = out}};
            CHECK_INT(t, device_bindings_make(r.d, program, binding, 2, &bindings, &r.error),
                      BERYL_OK);
            device_command list[] = {rig_dispatch(program, bindings, 1, 0),
                                     rig_range(DEVICE_FETCH, out, 0, 256)};
            CHECK_INT(t, rig_submit(&r, list, 2, NULL, 0, &ticket), BERYL_OK);
            CHECK_INT(t, rig_take(&r, ticket, 0, y, 256), BERYL_OK);
            CHECK_INT(t, y[0], i ? caps.subgroup_size : 2);
        }
        rig_close(t, &r);
    }
    if (test_case(t, "webgpu/caps-switched-off")) {
        setenv("BERYL_CAPS", "min", 1);
        if (rig_open(t, &r, "webgpu")) {
            const device_caps *caps = device_caps_of(r.d);
            CHECK(t, !caps->f16 && !caps->subgroups && !caps->subgroup_size);
            /* the compiler knows it too */
            static const char sneaky[] =
                "enable f16; @group(0) @binding(0) var<storage, read_write> y: array<f16>;\n"
                "@compute @workgroup_size(64) fn main() { y[0] = 1.0h; }";
            device_program program;
            device_program_desc desc = desc_of(sneaky, 1, 0);
            CHECK_INT(t, device_program_make(r.d, &desc, &program, &r.error), BERYL_OK);
            CHECK_INT(t, rig_compiled(&r, program), BERYL_DEVICE);
            static const char wide[] =
                "@group(0) @binding(0) var<storage, read_write> y: array<u32>;\n"
                "@compute @workgroup_size(512) fn main() { y[0] = 1u; }";
            desc = desc_of(wide, 1, 0);
            CHECK_INT(t, device_program_make(r.d, &desc, &program, &r.error), BERYL_OK);
            CHECK_INT(t, rig_compiled(&r, program), BERYL_DEVICE);
            rig_close(t, &r);
        }
        unsetenv("BERYL_CAPS");
    }
}

static void test_webgpu_stage(test *t) {
    rig r;
    if (test_case(t, "webgpu/stage-ring-full-is-pending") && rig_open(t, &r, "webgpu")) {
        /* pieces of a whole ring buffer, without a poll between: at the latest the turn after the
         * last is pending, or the device was quick */
        size_t size = device_stage_max(r.d);
        device_buffer y = rig_buffer(t, &r, size, NULL);
        int pending = 0;
        for (int i = 0; i < 8; i++) {
            void *memory = NULL;
            beryl_status status = device_stage(r.d, size, &memory, &r.error);
            CHECK(t, status == BERYL_OK || status == BERYL_PENDING);
            pending += status == BERYL_PENDING;
            if (status) base_sleep(1e-3);
            else CHECK_INT(t, device_stage_commit(r.d, y, 0, size, &r.error), BERYL_OK);
        }
        device_ticket ticket;
        CHECK_INT(t, rig_submit(&r, NULL, 0, NULL, 0, &ticket), BERYL_OK);
        CHECK_INT(t, device_wait(r.d, ticket, &r.error), BERYL_OK);
        CHECK(t, pending < 8);
        rig_close(t, &r);
    }
}

/* A function of wgpu-native that the library itself has no use for. */
static void *wgpu_function(const webgpu *d, const char *name) {
    Dl_info info;
    void *known;
    memcpy(&known, &d->f.CreateInstance, sizeof known);
    void *library = dladdr(known, &info) ? dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD) : NULL;
    return library ? dlsym(library, name) : NULL;
}

static void test_webgpu_lost(test *t) {
    rig r;
    if (!test_case(t, "webgpu/lost-device-is-a-status") || !rig_open(t, &r, "webgpu")) return;
    device_program_desc desc = desc_of(scale_text, 2, 8);
    device_program program, later;
    device_bindings bindings;
    CHECK_INT(t, device_program_make(r.d, &desc, &program, &r.error), BERYL_OK);
    CHECK_INT(t, rig_compiled(&r, program), BERYL_OK);
    device_buffer x = rig_buffer(t, &r, 256, NULL), y = rig_buffer(t, &r, 256, NULL), z;
    device_binding binding[] = {{.buffer = x}, {.buffer = y}};
    CHECK_INT(t, device_bindings_make(r.d, program, binding, 2, &bindings, &r.error), BERYL_OK);
    uint32_t params[2] = {1, 64};
    device_command list[] = {rig_dispatch(program, bindings, 1, 0),
                             rig_range(DEVICE_FETCH, y, 0, 256)};
    device_ticket ticket = 0, done;
    void *memory;
    CHECK_INT(t, rig_submit(&r, list, 2, params, 8, &ticket), BERYL_OK);
    CHECK_INT(t, device_stage(r.d, 256, &memory, &r.error), BERYL_OK);
    CHECK_INT(t, device_stage_commit(r.d, x, 0, 256, &r.error), BERYL_OK);

    webgpu *d = (webgpu *)r.d;
    WGPUProcDeviceDestroy destroy_device;
    void *address = wgpu_function(d, "wgpuDeviceDestroy");
    CHECK(t, address);
    memcpy(&destroy_device, &address, sizeof address);
    if (address) destroy_device(d->device);
    /* the first call that needs the device finds out; from then on all say so */
    CHECK_INT(t, rig_submit(&r, list, 2, params, 8, &ticket), BERYL_DEVICE_LOST);
    CHECK_INT(t, rig_submit(&r, list, 2, params, 8, &ticket), BERYL_DEVICE_LOST);
    const void *data;
    size_t size;
    CHECK_INT(t, device_wait(r.d, 1, &r.error), BERYL_DEVICE_LOST);
    CHECK_INT(t, device_poll(r.d, &done, &r.error), BERYL_DEVICE_LOST);
    CHECK_INT(t, device_fetched(r.d, 1, 0, &data, &size, &r.error), BERYL_DEVICE_LOST);
    CHECK_INT(t, device_buffer_make(r.d, 256, "z", &z, &r.error), BERYL_DEVICE_LOST);
    CHECK_INT(t, device_write(r.d, x, 0, params, 8, &r.error), BERYL_DEVICE_LOST);
    CHECK_INT(t, device_stage(r.d, 256, &memory, &r.error), BERYL_DEVICE_LOST);
    CHECK_INT(t, device_program_make(r.d, &desc, &later, &r.error), BERYL_DEVICE_LOST);
    CHECK_INT(t, device_program_status(r.d, program, &r.error), BERYL_DEVICE_LOST);
    CHECK_INT(t, device_bindings_make(r.d, program, binding, 2, &bindings, &r.error),
              BERYL_DEVICE_LOST);
    device_buffer_drop(r.d, x);
    rig_close(t, &r);
}

/* ---- memory that runs out -------------------------------------------------------------------- */

static beryl_status everything(base_heap *heap) {
    device *d = NULL;
    device_buffer x, y;
    device_program program;
    device_bindings bindings;
    device_ticket ticket;
    void *memory;
    beryl_status status = device_open(heap, NULL, "dummy", &d, NULL);
    if (!status) status = device_buffer_make(d, 256, "x", &x, NULL);
    if (!status) status = device_buffer_make(d, 256, "y", &y, NULL);
    if (!status) status = device_stage(d, 256, &memory, NULL);
    if (!status) status = device_stage_commit(d, x, 0, 256, NULL);
    device_program_desc desc = desc_of(scale_text, 2, 8);
    if (!status) status = device_program_make(d, &desc, &program, NULL);
    if (!status)
        while ((status = device_program_status(d, program, NULL)) == BERYL_PENDING)
            base_sleep(2e-4);
    device_binding binding[2];
    if (!status) {
        binding[0] = (device_binding){.buffer = x};
        binding[1] = (device_binding){.buffer = y};
        status = device_bindings_make(d, program, binding, 2, &bindings, NULL);
    }
    uint32_t params[2] = {1, 64};
    if (!status) {
        device_command list[] = {rig_dispatch(program, bindings, 1, 0),
                                 rig_range(DEVICE_FETCH, y, 0, 256)};
        status = device_submit(d, &(device_submit_desc){list, 2, params, 8}, &ticket, NULL);
    }
    if (!status) status = device_wait(d, ticket, NULL);
    device_close(d);
    return status;
}

static void test_memory(test *t) {
    if (!test_case(t, "device/dummy-without-memory")) return;
    rig_failing f = {UINT64_MAX};
    beryl_allocator allocator = {rig_failing_resize, &f};
    base_heap heap;
    base_heap_init(&heap, &allocator);
    bool through = false;
    for (uint64_t n = 0; n < 200 && !through; n++) {
        f.left = n;
        beryl_status status = everything(&heap);
        through = status == BERYL_OK;
        CHECK_INT(t, through ? BERYL_NO_MEMORY : status, BERYL_NO_MEMORY);
        CHECK_INT(t, heap.bytes, 0);
    }
    CHECK(t, through);
}

void test_device(test *t);
void test_device(test *t) {
    test_choice(t);
    test_list(t);
    test_refused_things(t);
    test_refused_bindings(t);
    test_refused_commands(t);
    test_dummy(t);
    test_webgpu_basics(t);
    test_webgpu_params(t);
    test_webgpu_rows(t);
    test_webgpu_caps(t);
    test_webgpu_stage(t);
    test_webgpu_lost(t);
    test_memory(t);
}
