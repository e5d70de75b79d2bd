/* drivers_test.c - the device contract on every backend that runs programs: one table of cases over
 * WGSL, C, OpenCL, CUDA and HIP. What WebGPU alone has is in device_test.c.
 *
 * Where a driver or its device is missing, CUDA and HIP run on the stand-in (tests/stand_in/),
 * which compiles the text as host C++ and runs it. What only it can do, such as failing on demand,
 * is below the table, as "cuda/stand-in-..."; OpenCL's passes on to the system's.
 */
#define _GNU_SOURCE /* setenv */
#include "rig.h"

#include "base/file.h"
#include "base/thread.h"
#include "stand_in/stand_in.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef BERYL_TEST_STAND_IN
#define BERYL_TEST_STAND_IN "build/tests/stand_in.so"
#endif
#ifndef BERYL_TEST_STAND_IN_OPENCL
#define BERYL_TEST_STAND_IN_OPENCL "build/tests/stand_in_opencl.so"
#endif

typedef struct backend {
    const char *name;
    device_language language;
} backend;

static const backend backends[] = {{"webgpu", DEVICE_WGSL},
                                   {"host", DEVICE_C},
                                   {"opencl", DEVICE_OPENCL_C},
                                   {"cuda", DEVICE_CUDA_C},
                                   {"hip", DEVICE_HIP_C}};

/* ---- programs -------------------------------------------------------------------------------- */

static device_program_desc desc_of(const backend *on, const char *text, const char *entry,
                                   uint32_t n_binding, uint32_t n_param) {
    device_program_desc desc = {.language = on->language,
                                .source = text,
                                .source_size = strlen(text),
                                .entry = entry,
                                .label = "test",
                                .n_binding = n_binding,
                                .param_bytes = 4 * n_param,
                                .workgroup = {64, 1, 1}};
    desc.access[n_binding - 1] = DEVICE_READ_WRITE; /* by custom the last one is the result */
    return desc;
}

static const char scale_body[] = "EACH_LANE if (AT < params[1]) { b1[AT] = params[0] * b0[AT]; }";
static const char add_body[] = "EACH_LANE b0[AT] = b0[AT] + 1u;";

static device_program program_of(test *t, rig *r, const backend *on, const char *entry,
                                 uint32_t n_binding, uint32_t n_param, const char *body) {
    device_program program = {0};
    device_program_desc desc = desc_of(on, rig_text(on->language, entry, n_binding, n_param, body),
                                       entry, n_binding, n_param);
    if (device_program_make(r->d, &desc, &program, &r->error) || rig_compiled(r, program))
        test_fail(t, __FILE__, __LINE__, "%s: %s", on->name, r->error.message);
    return program;
}

static device_bindings bind(test *t, rig *r, device_program program, const device_binding *ranges,
                            uint32_t n) {
    device_bindings bindings = {0};
    if (device_bindings_make(r->d, program, ranges, n, &bindings, &r->error))
        test_fail(t, __FILE__, __LINE__, "bindings: %s", r->error.message);
    return bindings;
}

/* ---- the cases of the contract --------------------------------------------------------------- */

static void case_caps(test *t, rig *r, const backend *on) {
    const device_caps *caps = device_caps_of(r->d);
    CHECK_TEXT(t, caps->backend, on->name);
    CHECK(t, caps->name[0] && caps->driver[0] && caps->groups_max >= 65535);
    CHECK(t, caps->languages == DEVICE_LANGUAGE_BIT(on->language));
    CHECK(t, caps->workgroup_invocations >= 256 && caps->workgroup_size[0] >= 256);
    CHECK(t, caps->storage_max >= 8 && caps->workgroup_bytes >= 16 << 10);
    CHECK(t, caps->binding_max >= 128 << 20 && caps->buffer_max >= caps->binding_max);
    CHECK(t, caps->subgroups == (caps->subgroup_size > 0));
    CHECK(t, caps->align_binding && !(caps->align_binding & (caps->align_binding - 1)));
    /* it tells of neither */
    if (on->language != DEVICE_WGSL) CHECK(t, caps->memory && caps->compute_units);
    device_program program;
    device_program_desc desc = desc_of(on, "fn main() {}", "main", 1, 0);
    desc.language = on->language == DEVICE_WGSL ? DEVICE_C : DEVICE_WGSL;
    CHECK_INT(t, device_program_make(r->d, &desc, &program, &r->error), BERYL_UNSUPPORTED);
}

static void case_numbers(test *t, rig *r, const backend *on) {
    uint32_t x[100], y[100] = {0}, params[2] = {3, 100};
    for (uint32_t i = 0; i < 100; i++) x[i] = i * i;
    device_program program = program_of(t, r, on, "scale", 2, 2, scale_body);
    device_buffer in = rig_buffer(t, r, 400, x), out = rig_buffer(t, r, 400, NULL);
    device_bindings bindings =
        bind(t, r, program, (device_binding[]){{.buffer = in}, {.buffer = out}}, 2);
    device_command list[] = {rig_dispatch(program, bindings, 2, 0),
                             rig_range(DEVICE_FETCH, out, 0, 400)};
    device_ticket ticket = 0;
    CHECK_INT(t, rig_submit(r, list, 2, params, sizeof params, &ticket), BERYL_OK);
    CHECK_INT(t, rig_take(r, ticket, 0, y, 400), BERYL_OK);
    for (uint32_t i = 0; i < 100; i++) CHECK_INT(t, y[i], 3 * i * i);
}

static void case_bad_text(test *t, rig *r, const backend *on) {
    const char *text =
        rig_text(on->language, "bad", 1, 0, "/* first */\n  EACH_LANE b0[0u] = nothing;");
    device_program program;
    device_program_desc desc = desc_of(on, text, "bad", 1, 0);
    for (int i = 0; i < 2; i++) { /* a failure is not kept as a success */
        CHECK_INT(t, device_program_make(r->d, &desc, &program, &r->error), BERYL_OK);
        CHECK_INT(t, rig_compiled(r, program), BERYL_DEVICE);
        CHECK(t, strstr(r->error.message, "test") && strstr(r->error.message, "nothing"));
        CHECK(t, !strchr(r->error.message, '\n'));
        uint64_t line = (uint64_t)(strchr(strstr(text, "/* first */"), '\n') + 1 - text);
        CHECK(t, r->error.at >= line && r->error.at <= line + 22);
    }
    device_buffer y = rig_buffer(t, r, 256, NULL);
    device_bindings bindings = bind(t, r, program, &(device_binding){.buffer = y}, 1);
    device_command c = rig_dispatch(program, bindings, 1, 0);
    device_ticket ticket;
    CHECK_INT(t, rig_submit(r, &c, 1, NULL, 0, &ticket), BERYL_DEVICE);
    desc = desc_of(on, rig_text(on->language, "other", 1, 0, add_body), "missing", 1, 0);
    CHECK_INT(t, device_program_make(r->d, &desc, &program, &r->error), BERYL_OK);
    CHECK_INT(t, rig_compiled(r, program), BERYL_DEVICE);
    CHECK(t, strstr(r->error.message, "missing"));
    case_numbers(t, r, on); /* and the device still works */
}

static void case_too_large(test *t, rig *r, const backend *on) {
    (void)on;
    device_buffer buffer;
    CHECK_INT(t, device_buffer_make(r->d, UINT64_C(1) << 46, "huge", &buffer, &r->error),
              BERYL_NO_DEVICE_MEMORY);
    CHECK(t, strstr(r->error.message, "huge"));
}

static void case_order(test *t, rig *r, const backend *on) {
    (void)on;
    uint32_t x[64], got[3][64] = {{0}};
    for (uint32_t i = 0; i < 64; i++) x[i] = i + 1;
    device_buffer a = rig_buffer(t, r, 256, x), b = rig_buffer(t, r, 256, NULL);
    device_command list[] = {rig_range(DEVICE_FETCH, b, 0, 256),
                             rig_copy(a, 0, b, 128, 128),
                             rig_copy(a, 0, b, 0, 0),
                             rig_range(DEVICE_FETCH, b, 4, 252),
                             rig_range(DEVICE_FILL, b, 192, 64),
                             rig_range(DEVICE_FILL, b, 0, 0),
                             rig_range(DEVICE_FETCH, b, 0, 256)};
    device_ticket ticket = 0;
    CHECK_INT(t, rig_submit(r, list, 7, NULL, 0, &ticket), BERYL_OK);
    CHECK_INT(t, device_wait(r->d, ticket, &r->error), BERYL_OK);
    for (uint32_t k = 0; k < 3; k++) {
        const void *data;
        size_t size = 0;
        CHECK_INT(t, device_fetched(r->d, ticket, k, &data, &size, &r->error), BERYL_OK);
        CHECK_INT(t, size, k == 1 ? 252 : 256);
        if (data) memcpy(got[k], data, size);
    }
    for (uint32_t i = 0; i < 64; i++) {
        CHECK_INT(t, got[0][i], 0);
        if (i < 63) CHECK_INT(t, got[1][i], i + 1 < 32 ? 0 : i + 1 - 32 + 1);
        CHECK_INT(t, got[2][i], i < 32 || i >= 48 ? 0 : i - 32 + 1);
    }
}

/* More dispatches than one constant buffer of OpenCL holds parameters of, more submits in flight
 * than any small ring has slots. */
static void case_params(test *t, rig *r, const backend *on) {
    enum { N = 300, ROUNDS = 12 };
    static uint32_t params[N][64], got[ROUNDS][N];
    device_program program =
        program_of(t, r, on, "put", 1, 2, "EACH_LANE if (AT == 0u) { b0[params[1]] = params[0]; }");
    device_buffer y = rig_buffer(t, r, N * 4, NULL), all = rig_buffer(t, r, ROUNDS * N * 4, NULL);
    device_bindings bindings = bind(t, r, program, &(device_binding){.buffer = y}, 1);
    static device_command list[N + 1];
    device_ticket last = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < N; i++) {
            params[i][0] = 1000 * round + i;
            params[i][1] = i;
            list[i] = rig_dispatch(program, bindings, 1, 256 * i);
        }
        list[N] = rig_copy(y, 0, all, round * N * 4, N * 4);
        CHECK_INT(t, rig_submit(r, list, N + 1, params, sizeof params, &last), BERYL_OK);
    }
    device_command fetch = rig_range(DEVICE_FETCH, all, 0, ROUNDS * N * 4);
    CHECK_INT(t, rig_submit(r, &fetch, 1, NULL, 0, &last), BERYL_OK);
    CHECK_INT(t, rig_take(r, last, 0, got, sizeof got), BERYL_OK);
    for (uint32_t round = 0; round < ROUNDS; round++)
        for (uint32_t i = 0; i < N; i++)
            if (got[round][i] != 1000 * round + i) CHECK_INT(t, got[round][i], 1000 * round + i);
}

static void case_ranges(test *t, rig *r, const backend *on) {
    uint32_t align = device_caps_of(r->d)->align_binding;
    if (align < 256) align = 256;
    device_program program = program_of(t, r, on, "scale", 2, 2, scale_body);
    uint32_t x[64], got[64], params[2] = {7, 64};
    for (uint32_t i = 0; i < 64; i++) x[i] = i;
    device_buffer in = rig_buffer(t, r, 2 * align, NULL), out = rig_buffer(t, r, 3 * align, NULL);
    CHECK_INT(t, device_write(r->d, in, align, x, 256, &r->error), BERYL_OK);
    device_binding ranges[] = {{in, align, 256}, {out, 2 * align, 256}};
    device_bindings bindings = bind(t, r, program, ranges, 2);
    device_command list[] = {rig_dispatch(program, bindings, 1, 0),
                             rig_range(DEVICE_FETCH, out, 2 * align, 256)};
    device_ticket ticket = 0;
    CHECK_INT(t, rig_submit(r, list, 2, params, 8, &ticket), BERYL_OK);
    CHECK_INT(t, rig_take(r, ticket, 0, got, 256), BERYL_OK);
    for (uint32_t i = 0; i < 64; i++) CHECK_INT(t, got[i], 7 * i);
}

static void case_groups(test *t, rig *r, const backend *on) {
    device_program program = program_of(
        t, r, on, "count", 1, 0,
        "EACH_LANE if (LANE == 0u && (GROUP_X == 65534u || GROUP_Y == 1u || GROUP_Z == 2u)) "
        "{ ADD(&b0[0], 1u); }");
    device_buffer y = rig_buffer(t, r, 256, NULL);
    device_bindings bindings = bind(t, r, program, &(device_binding){.buffer = y}, 1);
    device_command list[] = {rig_dispatch(program, bindings, 65535, 0),
                             rig_dispatch(program, bindings, 0, 0),
                             rig_range(DEVICE_FETCH, y, 0, 4)};
    device_ticket ticket = 0;
    uint32_t got = 0;
    CHECK_INT(t, rig_submit(r, list, 3, NULL, 0, &ticket), BERYL_OK);
    CHECK_INT(t, rig_take(r, ticket, 0, &got, 4), BERYL_OK);
    CHECK_INT(t, got, 1);
    list[0] = rig_dispatch(program, bindings, 2, 0);
    list[0].dispatch.groups[1] = 2, list[0].dispatch.groups[2] = 3; /* 2 * (2 + 3 - 1 ... ) */
    CHECK_INT(t, rig_submit(r, list, 3, NULL, 0, &ticket), BERYL_OK);
    CHECK_INT(t, rig_take(r, ticket, 0, &got, 4), BERYL_OK);
    CHECK_INT(t, got, 1 + 2 * (3 + 2 - 1));
    list[1].dispatch.groups[0] = device_caps_of(r->d)->groups_max + 1;
    CHECK_INT(t, rig_submit(r, list, 3, NULL, 0, &ticket), BERYL_MISUSE);
}

static void case_barrier(test *t, rig *r, const backend *on) {
    device_program program = program_of(t, r, on, "turn", 2, 0,
                                        "CELLS;\n"
                                        "for (U32 k = 0u; k < 3u; k++) {\n"
                                        "    EACH_LANE cells[LANE] = b0[AT] + k; BARRIER;\n"
                                        "    EACH_LANE b1[AT] = cells[63u - LANE]; BARRIER; }");
    uint32_t x[256], got[256];
    for (uint32_t i = 0; i < 256; i++) x[i] = i;
    device_buffer in = rig_buffer(t, r, 1024, x), out = rig_buffer(t, r, 1024, NULL);
    device_bindings bindings =
        bind(t, r, program, (device_binding[]){{.buffer = in}, {.buffer = out}}, 2);
    device_command list[] = {rig_dispatch(program, bindings, 4, 0),
                             rig_range(DEVICE_FETCH, out, 0, 1024)};
    device_ticket ticket = 0;
    CHECK_INT(t, rig_submit(r, list, 2, NULL, 0, &ticket), BERYL_OK);
    CHECK_INT(t, rig_take(r, ticket, 0, got, 1024), BERYL_OK);
    for (uint32_t i = 0; i < 256; i++) CHECK_INT(t, got[i], i / 64 * 64 + 63 - i % 64 + 2);
}

static void case_stamps(test *t, rig *r, const backend *on) {
    device_program program = program_of(t, r, on, "add", 1, 0, add_body);
    device_buffer y = rig_buffer(t, r, 65536, NULL);
    device_bindings bindings = bind(t, r, program, &(device_binding){.buffer = y}, 1);
    device_command run = rig_dispatch(program, bindings, 256, 0), stamp = {.kind = DEVICE_STAMP};
    device_command list[] = {stamp,
                             run,
                             run,
                             stamp,
                             rig_range(DEVICE_FILL, y, 0, 4),
                             stamp,
                             rig_range(DEVICE_FETCH, y, 0, 8),
                             stamp};
    for (int round = 0; round < 2; round++) {
        device_ticket ticket = 0;
        uint64_t ns[8] = {0};
        uint32_t n = 8, y0[2];
        CHECK_INT(t, rig_submit(r, list, 8, NULL, 0, &ticket), BERYL_OK);
        CHECK_INT(t, device_wait(r->d, ticket, &r->error), BERYL_OK);
        beryl_status status = device_stamps(r->d, ticket, ns, &n, &r->error);
        CHECK_INT(t, status, device_caps_of(r->d)->timestamps ? BERYL_OK : BERYL_UNSUPPORTED);
        if (!status)
            CHECK(t, n == 4 && ns[0] == 0 && ns[1] > 0 && ns[2] >= ns[1] && ns[3] >= ns[2]);
        CHECK_INT(t, rig_take(r, ticket, 0, y0, 8), BERYL_OK);
        CHECK_INT(t, y0[0], 0);
        CHECK_INT(t, y0[1], 2 * (round + 1));
    }
}

static void case_replay(test *t, rig *r, const backend *on) {
    device_program program = program_of(t, r, on, "scale", 2, 2, scale_body);
    uint32_t one[64];
    static uint32_t params[40][64];
    for (uint32_t i = 0; i < 64; i++) one[i] = 1;
    device_buffer x = rig_buffer(t, r, 256, one), y = rig_buffer(t, r, 256, NULL);
    device_bindings bindings =
        bind(t, r, program, (device_binding[]){{.buffer = x}, {.buffer = y}}, 2);
    device_command list[41];
    for (uint32_t i = 0; i < 40; i++) list[i] = rig_dispatch(program, bindings, 1, 256 * i);
    list[40] = rig_range(DEVICE_FETCH, y, 0, 256);
    device_stats before = {0}, after;
    uint64_t calls = 0;
    device_ticket ticket[2] = {0};
    for (uint32_t round = 0; round < 30; round++) { /* two in flight */
        params[39][0] = round, params[39][1] = 64;
        CHECK_INT(t, device_write(r->d, x, 0, one, 256, &r->error), BERYL_OK);
        CHECK_INT(t, rig_submit(r, list, 41, params, sizeof params, &ticket[round & 1]), BERYL_OK);
        if (round) {
            uint32_t got[64] = {0};
            CHECK_INT(t, rig_take(r, ticket[~round & 1], 0, got, 256), BERYL_OK);
            CHECK_INT(t, got[63], round - 1);
        }
        if (round == 3) device_stats_of(r->d, &before), calls = r->heap.calls;
    }
    device_stats_of(r->d, &after);
    CHECK_INT(t, after.objects, before.objects);
    CHECK_INT(t, after.buffer_bytes, before.buffer_bytes);
    CHECK_INT(t, r->heap.calls, calls);
    CHECK_INT(t, after.submits - before.submits, 26);
}

/* The same shape of list with other groups, other bindings and other programs in turn. */
static void case_replay_changed(test *t, rig *r, const backend *on) {
    enum { N = 24, ROUNDS = 10 };
    device_program scale = program_of(t, r, on, "scale", 2, 2, scale_body);
    device_program more = program_of(
        t, r, on, "more", 2, 2, "EACH_LANE if (AT < params[1]) { b1[AT] = params[0] + b0[AT]; }");
    uint32_t x[256], got[256], params[N][64];
    for (uint32_t i = 0; i < 256; i++) x[i] = i;
    device_buffer in = rig_buffer(t, r, 1024, x);
    device_buffer out[2] = {rig_buffer(t, r, 1024, NULL), rig_buffer(t, r, 1024, NULL)};
    device_bindings bindings[2];
    for (int i = 0; i < 2; i++)
        bindings[i] = bind(t, r, scale, (device_binding[]){{.buffer = in}, {.buffer = out[i]}}, 2);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        device_command list[N + 2];
        uint32_t to = round / 2 % 2, groups = 1 + round % 4;
        memset(params, 0, sizeof params);
        for (uint32_t i = 0; i < N; i++) {
            device_program program = i == N - 1 && round > 5 ? more : scale;
            list[1 + i] = rig_dispatch(program, bindings[to], groups, 256 * i);
            params[i][0] = i + round, params[i][1] = 64 * groups;
        }
        list[0] = rig_range(DEVICE_FILL, out[to], 0, 1024);
        list[N + 1] = rig_range(DEVICE_FETCH, out[to], 0, 1024);
        device_ticket ticket = 0;
        CHECK_INT(t, rig_submit(r, list, N + 2, params, sizeof params, &ticket), BERYL_OK);
        CHECK_INT(t, rig_take(r, ticket, 0, got, 1024), BERYL_OK);
        uint32_t factor = N - 1 + round;
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t want = i >= 64 * groups ? 0 : round > 5 ? factor + i : factor * i;
            if (got[i] != want) CHECK_INT(t, got[i], want);
        }
    }
}

static void case_fetches_kept(test *t, rig *r, const backend *on) {
    (void)on;
    device_buffer y = rig_buffer(t, r, 256, NULL);
    device_command fetch = rig_range(DEVICE_FETCH, y, 0, 4);
    device_ticket tickets[20];
    const void *data;
    size_t size;
    for (uint32_t i = 0; i < 20; i++) {
        CHECK_INT(t, device_write(r->d, y, 0, &i, 4, &r->error), BERYL_OK);
        beryl_status status = rig_submit(r, &fetch, 1, NULL, 0, &tickets[i]);
        CHECK(t, status == BERYL_OK || (status == BERYL_PENDING && i >= 4));
        if (status) { /* as a caller would: wait for an older one, then again */
            CHECK_INT(t, device_wait(r->d, tickets[i - 1], &r->error), BERYL_OK);
            CHECK_INT(t, rig_submit(r, &fetch, 1, NULL, 0, &tickets[i]), BERYL_OK);
        }
        if (i % 3) continue;
        for (uint32_t k = i < 3 ? 0 : i - 3; k <= i; k++) { /* the last four, in any order */
            CHECK_INT(t, device_wait(r->d, tickets[k], &r->error), BERYL_OK);
            CHECK_INT(t, device_fetched(r->d, tickets[k], 0, &data, &size, &r->error), BERYL_OK);
            if (data) CHECK_INT(t, *(const uint32_t *)data, k);
        }
    }
    CHECK_INT(t, device_fetched(r->d, tickets[2], 0, &data, &size, &r->error), BERYL_MISUSE);
}

static void case_fetches_dropped(test *t, rig *r, const backend *on) {
    (void)on;
    device_buffer y = rig_buffer(t, r, 1 << 20, NULL);
    device_command fetch = rig_range(DEVICE_FETCH, y, 0, 1 << 20);
    for (int i = 0; i < 20; i++) {
        device_ticket ticket = 0, done;
        beryl_status status;
        while ((status = rig_submit(r, &fetch, 1, NULL, 0, &ticket)) == BERYL_PENDING)
            CHECK_INT(t, device_poll(r->d, &done, &r->error), BERYL_OK);
        CHECK_INT(t, status, BERYL_OK);
        device_fetch_drop(r->d, ticket); /* maybe while the device still writes */
        const void *data;
        size_t size;
        CHECK_INT(t, device_fetched(r->d, ticket, 0, &data, &size, &r->error), BERYL_MISUSE);
    }
}

static void case_stages(test *t, rig *r, const backend *on) {
    (void)on;
    enum { PIECE = 5 << 20, N = 12 }; /* 60 MiB: more than the ring holds */
    device_buffer y = rig_buffer(t, r, PIECE, NULL), z = rig_buffer(t, r, 4 * N, NULL);
    for (uint32_t i = 0; i < N; i++) {
        void *memory;
        beryl_status status;
        device_ticket ticket = 0;
        while ((status = device_stage(r->d, PIECE, &memory, &r->error)) == BERYL_PENDING)
            CHECK_INT(t, device_poll(r->d, &ticket, &r->error), BERYL_OK);
        CHECK_INT(t, status, BERYL_OK);
        if (status) break;
        memset(memory, (int)i + 1, PIECE);
        CHECK_INT(t, device_stage_commit(r->d, y, 0, PIECE, &r->error), BERYL_OK);
        uint32_t word = 0xabcd0000 + i; /* over the staged bytes, so after them */
        CHECK_INT(t, device_write(r->d, y, 4 * i, &word, 4, &r->error), BERYL_OK);
        device_command copy = rig_copy(y, 4 * i, z, 4 * i, 4);
        CHECK_INT(t, rig_submit(r, &copy, 1, NULL, 0, &ticket), BERYL_OK);
    }
    uint32_t got[N] = {0}, end = 0;
    device_command list[] = {rig_range(DEVICE_FETCH, z, 0, 4 * N),
                             rig_range(DEVICE_FETCH, y, PIECE - 4, 4)};
    device_ticket ticket = 0;
    CHECK_INT(t, rig_submit(r, list, 2, NULL, 0, &ticket), BERYL_OK);
    CHECK_INT(t, device_wait(r->d, ticket, &r->error), BERYL_OK);
    const void *data;
    size_t size;
    CHECK_INT(t, device_fetched(r->d, ticket, 1, &data, &size, &r->error), BERYL_OK);
    if (data) memcpy(&end, data, 4);
    CHECK_INT(t, rig_take(r, ticket, 0, got, sizeof got), BERYL_OK);
    for (uint32_t i = 0; i < N; i++) CHECK_INT(t, got[i], 0xabcd0000 + i);
    CHECK_INT(t, end, 0x0c0c0c0c);
}

static device_program_desc describe_one(void *user, uint32_t i) {
    const backend *on = user;
    char body[64];
    snprintf(body, sizeof body, "EACH_LANE b0[%uu] = %uu;", i % 7, i % 5);
    return desc_of(on, rig_text(on->language, "one", 1, 0, body), "one", 1, 0);
}

static void case_thousand(test *t, rig *r, const backend *on) {
    backend user = *on;
    rig_thousand(t, r, describe_one, &user);
}

static void case_closed(test *t, rig *r, const backend *on) {
    device_program program;
    device_program_desc desc =
        desc_of(on, rig_text(on->language, "add", 1, 0, add_body), "add", 1, 0);
    for (int i = 0; i < 10; i++)
        CHECK_INT(t, device_program_make(r->d, &desc, &program, &r->error), BERYL_OK);
    device_buffer y = rig_buffer(t, r, 1 << 20, NULL);
    void *memory;
    CHECK_INT(t, device_stage(r->d, 4096, &memory, &r->error), BERYL_OK);
    CHECK_INT(t, device_stage_commit(r->d, y, 0, 4096, &r->error), BERYL_OK);
    device_command fetch = rig_range(DEVICE_FETCH, y, 0, 1 << 20);
    device_ticket ticket = 0;
    beryl_status status;
    while ((status = rig_submit(r, &fetch, 1, NULL, 0, &ticket)) == BERYL_PENDING)
        CHECK_INT(t, device_poll(r->d, &ticket, &r->error), BERYL_OK);
    CHECK_INT(t, status, BERYL_OK);
    CHECK_INT(t, device_stage(r->d, 4096, &memory, &r->error), BERYL_OK);
    CHECK_INT(t, device_stage_commit(r->d, y, 0, 4096, &r->error), BERYL_OK);
    CHECK_INT(t, device_stage(r->d, 4096, &memory, &r->error), BERYL_OK); /* never committed */
}

static void case_dropped(test *t, rig *r, const backend *on) {
    device_stats stats, before;
    device_stats_of(r->d, &before);
    device_program program = program_of(t, r, on, "add", 1, 0, add_body);
    for (int i = 0; i < 10; i++) {
        device_buffer y = rig_buffer(t, r, 1 << 20, NULL), z = rig_buffer(t, r, 1 << 20, NULL);
        device_bindings bindings = bind(t, r, program, &(device_binding){.buffer = y}, 1);
        device_command list[] = {rig_dispatch(program, bindings, 4096, 0),
                                 rig_copy(y, 0, z, 0, 1 << 20)};
        device_ticket ticket;
        CHECK_INT(t, rig_submit(r, list, 2, NULL, 0, &ticket), BERYL_OK);
        void *memory;
        CHECK_INT(t, device_stage(r->d, 64, &memory, &r->error), BERYL_OK);
        CHECK_INT(t, device_stage_commit(r->d, y, 0, 64, &r->error), BERYL_OK);
        device_buffer_drop(r->d, y); /* in flight, bound, and with an upload that waits */
        CHECK_INT(t, rig_submit(r, list, 1, NULL, 0, &ticket), BERYL_MISUSE);
        device_buffer_drop(r->d, z);
        device_bindings_drop(r->d, bindings);
    }
    device_program_drop(r->d, program); /* in flight too */
    device_stats_of(r->d, &stats);
    CHECK_INT(t, stats.buffers, before.buffers);
    CHECK_INT(t, stats.bindings, before.bindings);
    CHECK_INT(t, stats.programs, before.programs);
}

/* Two devices in one process, each with programs, buffers and submits of its own. */
static void case_two(test *t, rig *r, const backend *on) {
    rig other;
    if (!rig_open(t, &other, on->name)) return;
    for (int i = 0; i < 3; i++) {
        case_numbers(t, r, on);
        case_barrier(t, &other, on);
    }
    rig_close(t, &other);
    case_numbers(t, r, on);
}

static const struct contract {
    const char *name;
    void (*run)(test *t, rig *r, const backend *on);
} contract[] = {
    {"caps-are-sane", case_caps},
    {"kernel-from-text-to-numbers", case_numbers},
    {"bad-text-gives-text-and-place", case_bad_text},
    {"buffer-too-large", case_too_large},
    {"copy-fill-fetch-in-order", case_order},
    {"parameters-per-dispatch-and-in-flight", case_params},
    {"bindings-begin-where-they-say", case_ranges},
    {"65535-groups-and-three-dimensions", case_groups},
    {"workgroup-memory-and-barriers", case_barrier},
    {"stamps-rise", case_stamps},
    {"replay-makes-nothing", case_replay},
    {"replay-with-changes", case_replay_changed},
    {"fetches-kept-for-four-submits", case_fetches_kept},
    {"results-pending-then-dropped-unread", case_fetches_dropped},
    {"staged-uploads-keep-their-order", case_stages},
    {"thousand-programs", case_thousand},
    {"closed-in-the-middle-of-everything", case_closed},
    {"dropped-while-used", case_dropped},
    {"two-devices-in-one-process", case_two},
};

/* ---- which driver ---------------------------------------------------------------------------- */

typedef struct chosen { /* for one backend, once a case of it is wanted */
    bool looked, stand_in;
} chosen;

/* What there is a stand-in for, and what its calls are named. Codes: no memory, lost. */
typedef struct driver {
    device_language language;
    const char *variable, *library, *prefix, *compile, *launch, *lost;
    int codes[2];
} driver;

static const driver drivers[] = {{DEVICE_CUDA_C,
                                  "BERYL_CUDA",
                                  BERYL_TEST_STAND_IN,
                                  "cu",
                                  "nvrtcCompileProgram",
                                  "cuLaunchKernel",
                                  "illegal",
                                  {2, 700}},
                                 {DEVICE_HIP_C,
                                  "BERYL_HIP",
                                  BERYL_TEST_STAND_IN,
                                  "hip",
                                  "hiprtcCompileProgram",
                                  "hipModuleLaunchKernel",
                                  "illegal",
                                  {2, 700}},
                                 {DEVICE_OPENCL_C,
                                  "BERYL_OPENCL",
                                  BERYL_TEST_STAND_IN_OPENCL,
                                  "cl",
                                  "clBuildProgram",
                                  "clEnqueueNDRangeKernel",
                                  "out of resources",
                                  {-4, -5}}};

static const driver *driver_of(const backend *on) { /* NULL: none */
    for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++)
        if (drivers[i].language == on->language) return &drivers[i];
    return NULL;
}

/* The stand-in where nothing else opens; and programs are kept in this run's own folder. */
static void choose_driver(test *t, const backend *on, chosen *c) {
    if (c->looked) return;
    c->looked = true;
    setenv("XDG_CACHE_HOME", test_scratch(t), 1);
    c->stand_in = rig_stand_in(on->name);
}

/* ---- memory that runs out -------------------------------------------------------------------- */

static beryl_status everything(base_heap *heap, const backend *on) {
    device *d = NULL;
    device_buffer x, y;
    device_program program;
    device_bindings bindings;
    device_ticket ticket;
    void *memory;
    uint32_t params[2] = {1, 64};
    beryl_status status = device_open(heap, NULL, on->name, &d, NULL);
    if (!status) status = device_buffer_make(d, 256, "x", &x, NULL);
    if (!status) status = device_buffer_make(d, 256, "y", &y, NULL);
    if (!status) status = device_stage(d, 256, &memory, NULL);
    if (!status) status = device_stage_commit(d, x, 0, 256, NULL);
    device_program_desc desc =
        desc_of(on, rig_text(on->language, "scale", 2, 2, scale_body), "scale", 2, 2);
    if (!status) status = device_program_make(d, &desc, &program, NULL);
    if (!status)
        while ((status = device_program_status(d, program, NULL)) == BERYL_PENDING)
            base_sleep(2e-4);
    if (!status)
        status = device_bindings_make(d, program, (device_binding[]){{.buffer = x}, {.buffer = y}},
                                      2, &bindings, NULL);
    device_command list[12];
    for (int i = 0; !status && i < 10; i++) list[i] = rig_dispatch(program, bindings, 1, 0);
    if (!status) {
        list[10] = rig_range(DEVICE_FETCH, y, 0, 256);
        list[11] = (device_command){.kind = DEVICE_STAMP};
    }
    for (int round = 0; round < 3 && !status; round++) {
        status = device_submit(d, &(device_submit_desc){list, 12, params, 8}, &ticket, NULL);
        if (!status) status = device_wait(d, ticket, NULL);
    }
    device_close(d);
    return status;
}

static void test_memory(test *t, const backend *on, chosen *c) {
    if (!test_case(t, "%s/without-memory", on->name)) return;
    choose_driver(t, on, c);
    rig_failing f = {UINT64_MAX};
    beryl_allocator allocator = {rig_failing_resize, &f};
    base_heap heap;
    base_heap_init(&heap, &allocator);
    if (everything(&heap, on) == BERYL_NO_DEVICE) {
        test_skip(t, "no device");
        return;
    }
    bool through = false;
    const uint64_t step = on->language == DEVICE_WGSL ? 3 : 1; /* opening WebGPU takes a while */
    for (uint64_t n = 0; n < 200 && !through; n += step) {
        f.left = n;
        beryl_status status = everything(&heap, on);
        through = status == BERYL_OK;
        CHECK_INT(t, through ? BERYL_NO_MEMORY : status, BERYL_NO_MEMORY);
        CHECK_INT(t, heap.bytes, 0);
    }
    CHECK(t, through);
}

/* ---- on the stand-in alone ------------------------------------------------------------------- */

typedef struct stand_in {
    stand_in_fail_function *fail;
    stand_in_calls_function *calls;
    stand_in_alive_function *alive;
    stand_in_slow_function *slow; /* OpenCL's has none */
    const driver *of;
} stand_in;

static bool stand_in_find(stand_in *s, const backend *on) {
    s->of = driver_of(on);
    void *library = s->of ? dlopen(s->of->library, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) return false;
    struct {
        const char *name;
        void *to;
    } wanted[] = {{"stand_in_fail", &s->fail},
                  {"stand_in_calls", &s->calls},
                  {"stand_in_alive", &s->alive},
                  {"stand_in_slow", &s->slow}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *address = dlsym(library, wanted[i].name);
        if (!address && wanted[i].to != &s->slow) return false;
        memcpy(wanted[i].to, &address, sizeof address);
    }
    return true;
}

/* "cu" or "hip" and the rest; the name is good until the next call. */
static const char *call_of(const stand_in *s, const char *rest) {
    static char name[80];
    snprintf(name, sizeof name, "%s%s", s->of->prefix, rest);
    return name;
}

static void case_lost(test *t, rig *r, const backend *on, const stand_in *s) {
    device_program program = program_of(t, r, on, "scale", 2, 2, scale_body), later;
    device_program_desc desc =
        desc_of(on, rig_text(on->language, "scale", 2, 2, scale_body), "scale", 2, 2);
    device_buffer x = rig_buffer(t, r, 256, NULL), y = rig_buffer(t, r, 256, NULL), z;
    device_binding ranges[] = {{.buffer = x}, {.buffer = y}};
    device_bindings bindings = bind(t, r, program, ranges, 2);
    uint32_t params[2] = {1, 64};
    device_command list[] = {rig_dispatch(program, bindings, 1, 0),
                             rig_range(DEVICE_FETCH, y, 0, 256)};
    device_ticket ticket = 0, done;
    void *memory;
    CHECK_INT(t, rig_submit(r, list, 2, params, 8, &ticket), BERYL_OK);
    CHECK_INT(t, device_stage(r->d, 256, &memory, &r->error), BERYL_OK);
    CHECK_INT(t, device_stage_commit(r->d, x, 0, 256, &r->error), BERYL_OK);
    char code[12];
    snprintf(code, sizeof code, "(%d)", s->of->codes[1]);
    s->fail(s->of->launch, 0, 1, s->of->codes[1]);
    CHECK_INT(t, rig_submit(r, list, 2, params, 8, &ticket), BERYL_DEVICE_LOST);
    CHECK(t, strstr(r->error.message, s->of->lost) && strstr(r->error.message, code));
    s->fail(NULL, 0, 0, 0);
    const void *data;
    size_t size;
    CHECK_INT(t, rig_submit(r, list, 2, params, 8, &ticket), BERYL_DEVICE_LOST);
    CHECK_INT(t, device_wait(r->d, 1, &r->error), BERYL_DEVICE_LOST);
    CHECK_INT(t, device_poll(r->d, &done, &r->error), BERYL_DEVICE_LOST);
    CHECK_INT(t, device_fetched(r->d, 1, 0, &data, &size, &r->error), BERYL_DEVICE_LOST);
    CHECK_INT(t, device_buffer_make(r->d, 256, "z", &z, &r->error), BERYL_DEVICE_LOST);
    CHECK_INT(t, device_write(r->d, x, 0, params, 8, &r->error), BERYL_DEVICE_LOST);
    CHECK_INT(t, device_stage(r->d, 256, &memory, &r->error), BERYL_DEVICE_LOST);
    CHECK_INT(t, device_program_make(r->d, &desc, &later, &r->error), BERYL_DEVICE_LOST);
    CHECK_INT(t, device_program_status(r->d, program, &r->error), BERYL_DEVICE_LOST);
    CHECK_INT(t, device_bindings_make(r->d, program, ranges, 2, &bindings, &r->error),
              BERYL_DEVICE_LOST);
    device_buffer_drop(r->d, x);
}

/* A kernel that hangs itself: found when waited for, and the next device is a good one. */
static void case_kernel_fails(test *t, rig *r, const backend *on, const stand_in *s) {
    (void)s;
    device_program program = program_of(
        t, r, on, "hang", 1, 0, "if (LANE < 7u) BARRIER; else if (LANE < 32u) __syncwarp();");
    device_buffer y = rig_buffer(t, r, 256, NULL);
    device_bindings bindings = bind(t, r, program, &(device_binding){.buffer = y}, 1);
    device_command list[] = {rig_dispatch(program, bindings, 1, 0)};
    list[0].dispatch.groups[0] = 1;
    device_ticket ticket = 0;
    beryl_status status = rig_submit(r, list, 1, NULL, 0, &ticket);
    if (!status) status = device_wait(r->d, ticket, &r->error); /* else it was very quick */
    CHECK_INT(t, status, BERYL_DEVICE_LOST);
    CHECK(t, strstr(r->error.message, "launch failure"));
    rig other;
    if (!rig_open(t, &other, on->name)) return;
    case_numbers(t, &other, on);
    rig_close(t, &other);
}

/* A context, or a device, that the thread had before stays its own. */
static void case_own_stays(test *t, rig *r, const backend *on, const stand_in *s) {
    (void)r;
    void *library = dlopen(s->of->library, RTLD_NOW | RTLD_LOCAL);
    int (*make)(void **, unsigned, int) = NULL, (*get)(void **) = NULL, (*drop)(void *) = NULL;
    int (*set_id)(int) = NULL, (*get_id)(int *) = NULL;
    struct {
        const char *name;
        void *to;
    } wanted[] = {{"cuCtxCreate_v2", &make},
                  {"cuCtxGetCurrent", &get},
                  {"cuCtxDestroy_v2", &drop},
                  {"hipSetDevice", &set_id},
                  {"hipGetDevice", &get_id}};
    for (size_t i = 0; library && i < sizeof wanted / sizeof *wanted; i++) {
        void *address = dlsym(library, wanted[i].name);
        memcpy(wanted[i].to, &address, sizeof address);
    }
    CHECK(t, make && get && drop && set_id && get_id);
    if (!make || !get || !drop || !set_id || !get_id) return;
    const bool hip = on->language == DEVICE_HIP_C;
    void *own = NULL, *now = NULL;
    int id = 0;
    CHECK_INT(t, hip ? set_id(1) : make(&own, 0, 0), 0);
    rig other;
    if (!rig_open(t, &other, on->name)) return;
    case_numbers(t, &other, on);
    CHECK_INT(t, hip ? get_id(&id) : get(&now), 0);
    CHECK(t, hip ? id == 1 : now == own);
    rig_close(t, &other);
    CHECK_INT(t, hip ? get_id(&id) : get(&now), 0);
    CHECK(t, hip ? id == 1 : now == own);
    CHECK_INT(t, hip ? set_id(0) : drop(own), 0);
    dlclose(library);
}

static void case_memory_full(test *t, rig *r, const backend *on, const stand_in *s) {
    (void)s;
    device_buffer buffers[16] = {{0}};
    uint32_t n = 0;
    beryl_status status = BERYL_OK;
    while (n < 16 && !status)
        status = device_buffer_make(r->d, 60 << 20, "weights", &buffers[n++], &r->error);
    CHECK_INT(t, status, BERYL_NO_DEVICE_MEMORY);
    CHECK(t, n == 5 && strstr(r->error.message, "weights"));
    /* one that is dropped while it is used makes room all the same */
    device_command fill = rig_range(DEVICE_FILL, buffers[0], 0, 60 << 20);
    device_ticket ticket;
    CHECK_INT(t, rig_submit(r, &fill, 1, NULL, 0, &ticket), BERYL_OK);
    device_buffer_drop(r->d, buffers[0]);
    CHECK_INT(t, device_buffer_make(r->d, 60 << 20, "weights", &buffers[0], &r->error), BERYL_OK);
    case_numbers(t, r, on);
}

static void damage(void *user, const char *name, bool is_folder) {
    char path[700];
    snprintf(path, sizeof path, "%s/%s", (const char *)user, name);
    if (is_folder) return;
    FILE *file = fopen(path, "r+b");
    if (!file) return;
    fseek(file, 600, SEEK_SET);
    fputc('?', file);
    fputc('!', file);
    fclose(file);
}

static void count_warning(void *user, beryl_log_level level, const char *line) {
    if (level == BERYL_LOG_WARNING && strstr(line, "not kept")) ++*(int *)user;
}

/* Nowhere to keep programs is one warning a device. */
static void check_nowhere(test *t, rig *r, const backend *on) {
    int n = 0;
    const beryl_log log = {count_warning, &n};
    device *const first = r->d;
    setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
    if (!device_open(&r->heap, &log, on->name, &r->d, &r->error)) {
        program_of(t, r, on, "first", 1, 0, "b0[AT] = 1u;");
        program_of(t, r, on, "second", 1, 0, "b0[AT] = 2u;");
    }
    device_close(r->d);
    r->d = first;
    CHECK_INT(t, n, 1);
}

static void case_cache(test *t, rig *r, const backend *on, const stand_in *s) {
    static const char body[] = "b0[AT] = 0xcac4eu;";
    char folder[600];
    snprintf(folder, sizeof folder, "%s/cache-%s", test_scratch(t), on->name);
    const char *kept = getenv("XDG_CACHE_HOME");
    char *was = kept ? strdup(kept) : NULL;
    setenv("XDG_CACHE_HOME", folder, 1);
    uint64_t before = s->calls(s->of->compile);
    device_program_drop(r->d, program_of(t, r, on, "cached", 1, 0, body));
    CHECK_INT(t, s->calls(s->of->compile) - before, 1);
    device_program_drop(r->d, program_of(t, r, on, "cached", 1, 0, body));
    CHECK_INT(t, s->calls(s->of->compile) - before, 1);
    snprintf(folder + strlen(folder), sizeof folder - strlen(folder), "/beryl/programs");
    CHECK_INT(t, base_folder_list(&r->heap, folder, damage, folder, NULL), BERYL_OK);
    device_program_drop(r->d, program_of(t, r, on, "cached", 1, 0, body));
    CHECK_INT(t, s->calls(s->of->compile) - before, 2);
    device_program_drop(r->d, program_of(t, r, on, "cached", 1, 0, body));
    CHECK_INT(t, s->calls(s->of->compile) - before, 2);
    /* a kept image that the driver does not take any more is compiled again */
    s->fail(call_of(s, "ModuleLoadData"), 0, 1, 200);
    device_program_drop(r->d, program_of(t, r, on, "cached", 1, 0, body));
    CHECK_INT(t, s->calls(s->of->compile) - before, 3);
    s->fail(NULL, 0, 0, 0);
    device_cache_forgo(r->d);
    device_program_drop(r->d, program_of(t, r, on, "cached", 1, 0, body));
    CHECK_INT(t, s->calls(s->of->compile) - before, 4);
    check_nowhere(t, r, on);
    if (was) setenv("XDG_CACHE_HOME", was, 1);
    else unsetenv("XDG_CACHE_HOME");
    free(was);
}

static void case_graphs(test *t, rig *r, const backend *on, const stand_in *s) {
    uint64_t launches = s->calls(s->of->launch);
    uint64_t graphs = s->calls(call_of(s, "GraphLaunch"));
    uint64_t told = s->calls(call_of(s, "GraphExecKernelNodeSetParams"));
    case_replay(t, r, on); /* 30 times 40 dispatches, of which one changes */
    CHECK_INT(t, s->calls(s->of->launch) - launches, 2 * 40);
    CHECK_INT(t, s->calls(call_of(s, "GraphLaunch")) - graphs, 28);
    CHECK_INT(t, s->calls(call_of(s, "GraphExecKernelNodeSetParams")) - told, 27);
    case_replay_changed(t, r, on);
}

static void case_graphs_fail(test *t, rig *r, const backend *on, const stand_in *s) {
    static const char *const calls[] = {"GraphCreate", "GraphAddKernelNode",
                                        "GraphInstantiateWithFlags", "GraphLaunch",
                                        "GraphExecKernelNodeSetParams"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        rig other;
        if (!rig_open(t, &other, on->name)) return;
        s->fail(call_of(s, calls[i]), (uint32_t)i, 1, 801);
        case_replay_changed(t, &other, on);
        s->fail(NULL, 0, 0, 0);
        rig_close(t, &other);
    }
    case_numbers(t, r, on);
}

/* All is on its way for long: rings fill up, and what is dropped is still used. */
static void case_slow(test *t, rig *r, const backend *on, const stand_in *s) {
    s->slow(1500);
    size_t size = device_stage_max(r->d);
    device_buffer y = rig_buffer(t, r, size, NULL);
    int pending = 0;
    for (int i = 0; i < 12; i++) {
        void *memory = NULL;
        beryl_status status = device_stage(r->d, size, &memory, &r->error);
        pending += status == BERYL_PENDING;
        if (!status) CHECK_INT(t, device_stage_commit(r->d, y, 0, size, &r->error), BERYL_OK);
        else CHECK_INT(t, status, BERYL_PENDING);
    }
    CHECK(t, pending > 0);
    case_fetches_dropped(t, r, on);
    case_dropped(t, r, on);
    case_closed(t, r, on);
    s->slow(0);
}

static void case_submits_without_end(test *t, rig *r, const backend *on, const stand_in *s) {
    s->slow(100);
    device_program program = program_of(t, r, on, "add", 1, 0, add_body);
    device_buffer y = rig_buffer(t, r, 256, NULL);
    device_bindings bindings = bind(t, r, program, &(device_binding){.buffer = y}, 1);
    device_command list[] = {rig_dispatch(program, bindings, 1, 0),
                             rig_range(DEVICE_FETCH, y, 0, 4)};
    device_ticket ticket = 0;
    for (int i = 0; i < 300; i++) /* nobody polls */
        CHECK_INT(t, rig_submit(r, list, 1, NULL, 0, &ticket), BERYL_OK);
    uint32_t got = 0;
    CHECK_INT(t, rig_submit(r, list, 2, NULL, 0, &ticket), BERYL_OK);
    CHECK_INT(t, rig_take(r, ticket, 0, &got, 4), BERYL_OK);
    CHECK_INT(t, got, 301);
    s->slow(0);
}

static void case_second(test *t, rig *r, const backend *on, const stand_in *s) {
    (void)s;
    rig other;
    char name[32];
    snprintf(name, sizeof name, "%s:1", on->name);
    if (!rig_open(t, &other, name)) return;
    CHECK(t, strstr(device_caps_of(other.d)->name, "second"));
    for (int i = 0; i < 2; i++) {
        case_numbers(t, &other, on);
        case_numbers(t, r, on);
    }
    rig_close(t, &other);
}

/* Every call of the driver fails once, with the two codes that matter: a status, nothing left. */
static void case_every_call(test *t, rig *r, const backend *on, const stand_in *s) {
    (void)r;
    uint64_t alive = s->alive();
    base_heap heap;
    base_heap_init(&heap, NULL);
    for (int i = 0; i < 2; i++) {
        bool through = false;
        /* real compilers take a while */
        const uint32_t step = on->language == DEVICE_OPENCL_C ? 2 : 1;
        /* waiting asks again and again, the longer the busier the machine is */
        for (uint32_t n = (uint32_t)i; n < 1 << 20 && !through;
             n += step + n / (n < 200 ? 40 : 8)) {
            s->fail(s->of->prefix, n, 1, s->of->codes[i]);
            beryl_status status = everything(&heap, on);
            s->fail(NULL, 0, 0, 0);
            through = n > 200 && !status;
            CHECK_INT(t, heap.bytes, 0);
            CHECK_INT(t, s->alive(), alive);
        }
        CHECK(t, through);
    }
}

/* A choice of nothing takes a GPU, where the best that takes WGSL is software. */
static void case_before_software(test *t, rig *r, const backend *on, const stand_in *s) {
    (void)s;
    (void)on;
    device *d = NULL;
    CHECK_INT(t, device_open(&r->heap, NULL, NULL, &d, &r->error), BERYL_OK);
    if (d) CHECK(t, !device_is_processor(device_caps_of(d)));
    device_close(d);
}

/* OpenCL: no room, said when memory is made or when it is first used, and a compiler that fails:
 * the device stays. */
static void case_no_room(test *t, rig *r, const backend *on, const stand_in *s) {
    static const struct {
        const char *call;
        int code;
        beryl_status status;
    } fails[] = {{"clCreateBuffer", -4, BERYL_NO_DEVICE_MEMORY},
                 {"clCreateBuffer", -61, BERYL_NO_DEVICE_MEMORY},
                 {"clCreateBuffer", -6, BERYL_NO_MEMORY},
                 {"clEnqueueFillBuffer", -4, BERYL_NO_DEVICE_MEMORY}};
    const uint64_t alive = s->alive();
    device_buffer buffer;
    for (size_t i = 0; i < sizeof fails / sizeof *fails; i++) {
        s->fail(fails[i].call, 0, 1, fails[i].code);
        CHECK_INT(t, device_buffer_make(r->d, 256, "weights", &buffer, &r->error), fails[i].status);
        CHECK(t, strstr(r->error.message, "weights") != NULL);
        CHECK_INT(t, s->alive(), alive);
    }
    static const char *const compiling[] = {"clCreateProgram", "clBuildProgram", "clCreateKernel"};
    for (size_t i = 0; i < sizeof compiling / sizeof *compiling; i++) {
        device_program program;
        const device_program_desc desc =
            desc_of(on, rig_text(on->language, "add", 1, 0, add_body), "add", 1, 0);
        s->fail(compiling[i], 0, 1, -6);
        CHECK_INT(t, device_program_make(r->d, &desc, &program, &r->error), BERYL_OK);
        CHECK_INT(t, rig_compiled(r, program), BERYL_DEVICE);
        CHECK(t, strstr(r->error.message, "test") != NULL);
        device_program_drop(r->d, program);
        CHECK_INT(t, s->alive(), alive);
    }
    s->fail(NULL, 0, 0, 0);
    case_numbers(t, r, on);
}

/* OpenCL: a submit that was taken and ends with an error; the next device is a good one. */
static void case_ends_badly(test *t, rig *r, const backend *on, const stand_in *s) {
    device_buffer y = rig_buffer(t, r, 256, NULL);
    device_command fetch = rig_range(DEVICE_FETCH, y, 0, 256);
    device_ticket ticket = 0, done;
    CHECK_INT(t, rig_submit(r, &fetch, 1, NULL, 0, &ticket), BERYL_OK);
    s->fail("ended", 0, 1, -5);
    CHECK_INT(t, device_wait(r->d, ticket, &r->error), BERYL_DEVICE_LOST);
    CHECK(t, strstr(r->error.message, "lost") && strstr(r->error.message, "-5"));
    s->fail(NULL, 0, 0, 0);
    CHECK_INT(t, device_poll(r->d, &done, &r->error), BERYL_DEVICE_LOST);
    CHECK_INT(t, rig_submit(r, &fetch, 1, NULL, 0, &ticket), BERYL_DEVICE_LOST);
    rig other;
    if (!rig_open(t, &other, on->name)) return;
    case_numbers(t, &other, on);
    rig_close(t, &other);
}

enum {
    OF_OPENCL = DEVICE_LANGUAGE_BIT(DEVICE_OPENCL_C),
    OF_BOTH = DEVICE_LANGUAGE_BIT(DEVICE_CUDA_C) | DEVICE_LANGUAGE_BIT(DEVICE_HIP_C),
    OF_ALL = OF_BOTH | OF_OPENCL
};

static const struct special {
    const char *name;
    void (*run)(test *t, rig *r, const backend *on, const stand_in *s);
    uint32_t languages;
} specials[] = {
    {"lost-device-is-a-status", case_lost, OF_ALL},
    {"kernel-that-fails-loses-the-device", case_kernel_fails, OF_BOTH},
    {"own-context-of-the-thread-stays", case_own_stays, OF_BOTH},
    {"submit-that-ends-badly-loses-the-device", case_ends_badly, OF_OPENCL},
    {"memory-that-is-full", case_memory_full, OF_BOTH},
    {"no-room-and-no-compiler-are-statuses", case_no_room, OF_OPENCL},
    {"programs-kept-on-disk", case_cache, OF_BOTH},
    {"replays-are-graphs", case_graphs, OF_BOTH},
    {"graphs-that-fail-are-done-without", case_graphs_fail, OF_BOTH},
    {"slow-device", case_slow, OF_BOTH},
    {"submits-without-end", case_submits_without_end, OF_BOTH},
    {"taken-before-software", case_before_software, OF_BOTH},
    {"second-device-with-a-chip-not-known", case_second, OF_BOTH},
    {"every-call-fails-once", case_every_call, OF_ALL},
};

/* What a listing says where the driver or the compiler is not what it should be. */
static void test_missing(test *t, const backend *on, const char *driver_variable,
                         const char *compiler_variable) {
    rig r = {0};
    char choice[32];
    snprintf(choice, sizeof choice, "%s:0", on->name);
    const char *kept = getenv(driver_variable);
    char *was = kept ? strdup(kept) : NULL;
    if (test_case(t, "%s/stand-in-missing-parts-are-named", on->name)) {
        base_heap_init(&r.heap, NULL);
        setenv(driver_variable, "/no/such/driver.so", 1);
        CHECK_INT(t, device_open(&r.heap, NULL, choice, &r.d, &r.error), BERYL_NO_DEVICE);
        CHECK(t, strstr(r.error.message, driver_variable));
        CHECK(t, !strncmp(r.error.message, choice, strlen(choice)) &&
                     strstr(r.error.message, ":0 is not usable: "));
        setenv(driver_variable, "libm.so.6", 1);
        CHECK_INT(t, device_open(&r.heap, NULL, choice, &r.d, &r.error), BERYL_NO_DEVICE);
        CHECK(t, strstr(r.error.message, "Init"));
        setenv(driver_variable, BERYL_TEST_STAND_IN, 1);
        setenv(compiler_variable, "/no/such/compiler.so", 1);
        CHECK_INT(t, device_open(&r.heap, NULL, choice, &r.d, &r.error), BERYL_NO_DEVICE);
        CHECK(t, strstr(r.error.message, compiler_variable));
        setenv(compiler_variable, "libm.so.6", 1);
        CHECK_INT(t, device_open(&r.heap, NULL, choice, &r.d, &r.error), BERYL_NO_DEVICE);
        CHECK(t, strstr(r.error.message, "rtcVersion"));
        unsetenv(compiler_variable);
        CHECK_INT(t, r.heap.bytes, 0);
    }
    if (was) setenv(driver_variable, was, 1);
    else unsetenv(driver_variable);
    free(was);
}

static void test_stand_in(test *t, const backend *on, chosen *c) {
    stand_in s = {0};
    bool there = stand_in_find(&s, on);
    const char *kept = getenv(s.of->variable);
    char *was = kept ? strdup(kept) : NULL;
    setenv(s.of->variable, s.of->library, 1);
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++) {
        rig r;
        if (!(specials[i].languages & DEVICE_LANGUAGE_BIT(on->language))) continue;
        if (!test_case(t, "%s/stand-in-%s", on->name, specials[i].name)) continue;
        choose_driver(t, on, c);
        if (!there) test_skip(t, "the stand-in driver was not built");
        if (!there || !rig_open(t, &r, on->name)) continue;
        specials[i].run(t, &r, on, &s);
        rig_close(t, &r);
        CHECK_INT(t, s.alive(), 0);
    }
    if (there && on->language != DEVICE_OPENCL_C)
        test_missing(t, on, s.of->variable,
                     on->language == DEVICE_CUDA_C ? "BERYL_NVRTC" : "BERYL_HIPRTC");
    if (was) setenv(s.of->variable, was, 1);
    else unsetenv(s.of->variable);
    free(was);
}

/* ---- all ------------------------------------------------------------------------------------- */

void test_drivers(test *t);
void test_drivers(test *t) {
    const char *kept = getenv("XDG_CACHE_HOME");
    char *was = kept ? strdup(kept) : NULL;
    for (size_t b = 0; b < sizeof backends / sizeof *backends; b++) {
        const backend *on = &backends[b];
        chosen c = {0};
        stand_in s = {0};
        bool knows = stand_in_find(&s, on);
        for (size_t i = 0; i < sizeof contract / sizeof *contract; i++) {
            rig r;
            if (!test_case(t, "%s/%s", on->name, contract[i].name)) continue;
            choose_driver(t, on, &c);
            if (!rig_open(t, &r, on->name)) continue;
            contract[i].run(t, &r, on);
            rig_close(t, &r);
            if (knows) CHECK_INT(t, s.alive(), 0);
        }
        test_memory(t, on, &c);
        if (driver_of(on)) test_stand_in(t, on, &c);
        if (c.stand_in) rig_stand_in_end(on->name);
    }
    if (was) setenv("XDG_CACHE_HOME", was, 1);
    else unsetenv("XDG_CACHE_HOME");
    free(was);
}
