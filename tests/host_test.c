/* host_test.c - what the processor as a device has beyond the contract (drivers_test.c) and its
 * cache (cache_test.c): the compiler, its threads; memory behind files; copies between devices. */
#define _GNU_SOURCE /* setenv */
#include "host_rig.h"

#include "base/file.h"
#include "base/thread.h"
#include "codegen/codegen.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- the compiler ------------------------------------------------------------------------------
 */

static void note_row(void *user, const device_caps *caps, const char *why_not) {
    char *why = user;
    if (!strcmp(caps->backend, "host")) snprintf(why, 200, "%s", why_not ? why_not : "usable");
}

static void test_compiler(test *t) {
    host_away a;
    rig r;
    device_program program;
    const device_program_desc desc = host_rig_desc(host_rig_text(9));
    if (test_case(t, "host/no-compiler-is-a-row-that-says-so")) {
        host_away_begin(t, &a, "bare");
        base_heap heap;
        base_heap_init(&heap, NULL);
        char why[200] = "";
        setenv("PATH", "/no/such/folder:.:", 1);
        device_list(&heap, NULL, note_row, why);
        CHECK(t, strstr(why, "no C compiler"));
        device *d = NULL;
        beryl_error error = {0};
        CHECK_INT(t, device_open(&heap, NULL, "host", &d, &error), BERYL_NO_DEVICE);
        CHECK(t, strstr(error.message, "no C compiler"));
        CHECK_INT(t, heap.bytes, 0);
        host_away_end(&a);
    }
    if (test_case(t, "host/no-compiler-is-told-where-the-processor-is-used")) {
        host_away_begin(t, &a, "told");
        base_heap heap;
        base_heap_init(&heap, NULL);
        host_warnings w = {0};
        const beryl_log log = {host_rig_note, &w};
        device *d = NULL;
        beryl_error error = {0};
        setenv("PATH", "/no/such/folder", 1);
        const beryl_status status = device_open(&heap, &log, NULL, &d, &error);
        if (d && !device_is_processor(device_caps_of(d))) {
            CHECK_INT(t, w.n, 0);
            test_skip(t, "there is a GPU");
        } else if (d) {
            CHECK_INT(t, w.n, 1);
            CHECK(t, strstr(w.last, "no C compiler") && strstr(w.last, "slower") &&
                         strstr(w.last, "install gcc"));
        } else {
            CHECK_INT(t, status, BERYL_NO_DEVICE);
            CHECK(t, strstr(error.message, "install gcc"));
        }
        device_close(d);
        /* named: nothing to tell */
        CHECK_INT(t, device_open(&heap, &log, "dummy", &d, &error), BERYL_OK);
        CHECK(t, w.n <= 1);
        device_close(d);
        host_away_end(&a);
    }
    if (test_case(t, "host/compiler-that-fails")) {
        host_away_begin(t, &a, "fails");
        host_rig_compiler(t, "fails-bin", "#!/bin/sh\necho 'the moon is full' >&2\nexit 1\n");
        if (rig_open(t, &r, "host")) {
            CHECK_INT(t, device_program_make(r.d, &desc, &program, &r.error), BERYL_OK);
            CHECK_INT(t, rig_compiled(&r, program), BERYL_DEVICE);
            CHECK(t, strstr(r.error.message, "the moon is full"));
            rig_close(t, &r);
        }
        host_rig_compiler(t, "silent-bin", "#!/bin/sh\nexit 0\n"); /* and writes nothing */
        if (rig_open(t, &r, "host")) {
            CHECK_INT(t, device_program_make(r.d, &desc, &program, &r.error), BERYL_OK);
            CHECK_INT(t, rig_compiled(&r, program), BERYL_DEVICE);
            rig_close(t, &r);
        }
        CHECK_INT(t, host_rig_count("XDG_CACHE_HOME", "beryl/host", NULL, 0), 0);
        host_away_end(&a);
    }
    if (test_case(t, "host/closing-ends-a-compiler-that-hangs")) {
        host_away_begin(t, &a, "hangs");
        host_rig_compiler(t, "hangs-bin", "#!/bin/sh\n/bin/sleep 60\n");
        if (rig_open(t, &r, "host")) {
            const double began = base_time();
            for (int i = 0; i < 5; i++) {
                CHECK_INT(t, device_program_make(r.d, &desc, &program, &r.error), BERYL_OK);
                CHECK_INT(t, device_program_status(r.d, program, &r.error), BERYL_PENDING);
                if (i < 3) device_program_drop(r.d, program);
            }
            base_sleep(0.1);
            rig_close(t, &r);
            CHECK(t, base_time() - began < 20);
        }
        host_away_end(&a);
    }
    if (test_case(t, "host/thousand-programs-leave-nothing")) {
        host_away_begin(t, &a, "thousand");
        if (rig_open(t, &r, "host")) {
            char text[1024];
            for (uint32_t i = 0; i < 1000; i++) {
                snprintf(text, sizeof text, "%s", host_rig_text(i % 4));
                const device_program_desc one = host_rig_desc(text);
                CHECK_INT(t, device_program_make(r.d, &one, &program, &r.error), BERYL_OK);
                if (i % 3) CHECK_INT(t, rig_compiled(&r, program), BERYL_OK);
                if (i % 5 < 3) device_program_drop(r.d, program);
                if (i % 200 == 7) CHECK_INT(t, host_rig_run(t, &r, i % 4), 3 + i % 4);
            }
            rig_close(t, &r);
            base_heap heap; /* none of the libraries is still in memory */
            base_heap_init(&heap, NULL);
            char *maps = NULL;
            size_t size = 0;
            if (!base_file_read(&heap, "/proc/self/maps", 8 << 20, &maps, &size, NULL))
                CHECK(t, !strstr(maps, "/thousand/"));
            base_heap_give(&heap, maps, maps ? size + 1 : 0);
            CHECK(t, host_rig_count("XDG_CACHE_HOME", "beryl/host", NULL, 0) <= 4);
        }
        host_away_end(&a);
    }
}

/* ---- threads -----------------------------------------------------------------------------------
 */

/* Chains of dependent dispatches beside independent ones, writes and copies between, on 1 and on
 * more threads than there are processors. */
static void check_order(test *t, rig *r) {
    enum { CHAIN = 60, ROUNDS = 8, N = 64 * 37 };
    static const char text[] =
        "#include <stdint.h>\n"
        "uint32_t step_scratch_bytes(void) { return 4096; }\n"
        "void step(void *const *b, const uint32_t *p, const uint32_t g[3], uint32_t first,\n"
        "          uint32_t count, void *scratch) {\n"
        "    const uint32_t *x = b[0]; uint32_t *y = b[1], *s = scratch;\n"
        "    for (uint32_t i = first; i < first + count; i++) {\n"
        "        for (uint32_t k = 0; k < 64; k++) s[k] = x[i * 64 + k] * p[0] + p[1];\n"
        "        for (uint32_t k = 0; k < 64; k++) y[i * 64 + k] = s[k];\n"
        "    }\n"
        "    (void)g;\n"
        "}\n";
    device_program_desc desc = host_rig_desc(text);
    device_program program;
    device_bindings there = {0}, back = {0}, aside = {0};
    device_ticket ticket = 0;
    static uint32_t params[CHAIN][64], x[N], got[N];
    desc.entry = "step";
    desc.param_bytes = 8;
    CHECK_INT(t, device_program_make(r->d, &desc, &program, &r->error), BERYL_OK);
    CHECK_INT(t, rig_compiled(r, program), BERYL_OK);
    device_buffer a = rig_buffer(t, r, N * 4, NULL), b = rig_buffer(t, r, N * 4, NULL),
                  c = rig_buffer(t, r, N * 4, NULL), first = rig_buffer(t, r, N * 4, NULL);
    device_binding ranges[][2] = {{{.buffer = a}, {.buffer = b}},
                                  {{.buffer = b}, {.buffer = a}},
                                  {{.buffer = first}, {.buffer = c}}};
    device_bindings_make(r->d, program, ranges[0], 2, &there, &r->error);
    device_bindings_make(r->d, program, ranges[1], 2, &back, &r->error);
    device_bindings_make(r->d, program, ranges[2], 2, &aside, &r->error);
    device_command list[2 * CHAIN + 2];
    for (uint32_t round = 0; round < ROUNDS; round++) {
        size_t n = 0;
        for (uint32_t i = 0; i < N; i++) x[i] = i + round;
        CHECK_INT(t, device_write(r->d, a, 0, x, N * 4, &r->error), BERYL_OK); /* while it runs */
        list[n++] = rig_copy(a, 0, first, 0, N * 4);
        for (uint32_t i = 0; i < CHAIN; i++) {
            params[i][0] = 2 * i + 1, params[i][1] = round + i;
            list[n++] = rig_dispatch(program, i % 2 ? back : there, N / 64, 256 * i);
            list[n++] = rig_dispatch(program, aside, i % 5 ? 1 : N / 64, 256 * i);
        }
        list[n++] = rig_range(DEVICE_FETCH, CHAIN % 2 ? b : a, 0, N * 4);
        CHECK_INT(t, rig_submit(r, list, n, params, sizeof params, &ticket), BERYL_OK);
        if (round % 3 == 0 || round == ROUNDS - 1) {
            CHECK_INT(t, rig_take(r, ticket, 0, got, N * 4), BERYL_OK);
            for (uint32_t i = 0; i < N; i++) {
                uint32_t want = i + round;
                for (uint32_t k = 0; k < CHAIN; k++) want = want * (2 * k + 1) + round + k;
                if (got[i] != want) CHECK_INT(t, got[i], want);
            }
        } else {
            device_fetch_drop(r->d, ticket);
        }
    }
}

static void test_threads(test *t) {
    static const char *const counts[] = {"1", "2", "7", ""};
    if (!test_case(t, "host/order-on-any-number-of-threads")) return;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        rig r;
        setenv("BERYL_THREADS", counts[i], 1);
        if (rig_open(t, &r, "host")) {
            const uint32_t n = device_caps_of(r.d)->compute_units;
            CHECK(t, i < 3 ? n == (uint32_t)atoi(counts[i]) : n >= 1);
            check_order(t, &r);
            rig_close(t, &r);
        }
    }
    unsetenv("BERYL_THREADS");
}

static void count_warning(void *user, beryl_log_level level, const char *text) {
    if (level == BERYL_LOG_WARNING && strstr(text, "BERYL_THREADS is 257: 256 are taken"))
        ++*(int *)user;
}

static void test_wrong_threads(test *t) {
    static const char *const wrong[] = {"many", "-3", "0", "2x", "257"};
    if (!test_case(t, "host/threads-are-a-number-from-1-on")) return;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int told = 0;
        const beryl_log log = {count_warning, &told};
        base_heap heap;
        beryl_error error = {0};
        device *d = NULL;
        base_heap_init(&heap, NULL);
        setenv("BERYL_THREADS", wrong[i], 1);
        const beryl_status status = device_open(&heap, &log, "host", &d, &error);
        device_close(d);
        if (status == BERYL_NO_DEVICE) {
            test_skip(t, "%s", error.message);
        } else {
            CHECK_INT(t, status, i < 4 ? BERYL_BAD_INPUT : BERYL_OK);
            CHECK_INT(t, told, i == 4);
            if (status)
                CHECK(t, strstr(error.message, "BERYL_THREADS") && strstr(error.message, wrong[i]));
        }
        CHECK_INT(t, heap.bytes, 0);
    }
    unsetenv("BERYL_THREADS");
}

/* ---- memory behind files -----------------------------------------------------------------------
 */

/* A source that has an answer at every third question only. */
typedef struct slow {
    const unsigned char *bytes;
    int asked;
} slow;

static beryl_status slow_read(void *user, uint64_t offset, void *to, size_t size) {
    slow *s = user;
    if (++s->asked % 3) return BERYL_PENDING;
    memcpy(to, s->bytes + offset, size);
    return BERYL_OK;
}

static void test_disk(test *t) {
    enum { SIZE = 10001 };
    static unsigned char bytes[SIZE], got[SIZE + 16];
    rig r;
    device_buffer buffer, other;
    device_ticket ticket = 0;
    char path[600];
    for (int i = 0; i < SIZE; i++) bytes[i] = (unsigned char)(i * 7 + i / 256);
    snprintf(path, sizeof path, "%s/disk.bin", test_scratch(t));
    CHECK_INT(t, base_file_write(path, bytes, SIZE, NULL), BERYL_OK);
    if (test_case(t, "disk/fetches-ranges-of-a-file") && rig_open(t, &r, "disk")) {
        beryl_source file;
        CHECK_INT(t, base_source_open_file(&r.heap, path, &file, &r.error), BERYL_OK);
        CHECK_INT(t, device_buffer_map(r.d, &file, 1, SIZE - 1, "all", &buffer, &r.error),
                  BERYL_OK);
        CHECK_INT(t, device_buffer_map(r.d, &file, 9999, 2, "end", &other, &r.error), BERYL_OK);
        device_command list[] = {rig_range(DEVICE_FETCH, buffer, 4, 96),
                                 rig_range(DEVICE_FETCH, other, 0, 4),
                                 rig_range(DEVICE_FETCH, buffer, 0, SIZE - 1)};
        for (int round = 0; round < 3; round++) {
            CHECK_INT(t, rig_submit(&r, list, 3, NULL, 0, &ticket), BERYL_OK);
            CHECK_INT(t, device_wait(r.d, ticket, &r.error), BERYL_OK);
            const void *data;
            size_t size;
            CHECK_INT(t, device_fetched(r.d, ticket, 0, &data, &size, &r.error), BERYL_OK);
            CHECK(t, size == 96 && !memcmp(data, bytes + 5, 96));
            CHECK_INT(t, device_fetched(r.d, ticket, 1, &data, &size, &r.error), BERYL_OK);
            const unsigned char end[4] = {bytes[9999], bytes[10000], 0, 0};
            CHECK(t, size == 4 && !memcmp(data, end, 4));
            CHECK_INT(t, rig_take(&r, ticket, 2, got, SIZE - 1), BERYL_OK);
            CHECK(t, !memcmp(got, bytes + 1, SIZE - 1));
        }
        device_close(r.d);
        file.close(file.user);
        CHECK_INT(t, r.heap.bytes, 0);
    }
    if (test_case(t, "disk/refuses-all-else-by-name") && rig_open(t, &r, "disk:0")) {
        beryl_source source = base_source_of_memory(bytes, SIZE);
        device_program program;
        device_program_desc desc = host_rig_desc("text");
        void *memory;
        uint32_t word = 0;
        CHECK_INT(t, device_buffer_map(r.d, &source, 1, SIZE, "b", &buffer, &r.error),
                  BERYL_MISUSE);
        CHECK_INT(t, device_buffer_map(r.d, &source, 1, 0, "b", &buffer, &r.error), BERYL_MISUSE);
        CHECK_INT(t, device_buffer_map(r.d, &source, UINT64_MAX, 4, "b", &buffer, &r.error),
                  BERYL_MISUSE);
        CHECK_INT(t, device_buffer_map(r.d, NULL, 0, 4, "b", &buffer, &r.error), BERYL_MISUSE);
        CHECK_INT(t, device_buffer_map(r.d, &source, 0, 4000, "a", &buffer, &r.error), BERYL_OK);
        CHECK_INT(t, device_buffer_map(r.d, &source, 4, 4000, "b", &other, &r.error), BERYL_OK);
        device_command list[] = {rig_copy(buffer, 0, other, 0, 64),
                                 rig_range(DEVICE_FILL, buffer, 0, 64),
                                 rig_range(DEVICE_FETCH, buffer, 4000, 4)};
        CHECK_INT(t, rig_submit(&r, list, 1, NULL, 0, &ticket), BERYL_UNSUPPORTED);
        CHECK(t, strstr(r.error.message, "disk is read only"));
        CHECK_INT(t, rig_submit(&r, list + 1, 1, NULL, 0, &ticket), BERYL_UNSUPPORTED);
        CHECK_INT(t, rig_submit(&r, list + 2, 1, NULL, 0, &ticket), BERYL_MISUSE);
        CHECK_INT(t, device_write(r.d, buffer, 0, &word, 4, &r.error), BERYL_UNSUPPORTED);
        CHECK_INT(t, device_stage(r.d, 4, &memory, &r.error), BERYL_UNSUPPORTED);
        CHECK_INT(t, device_buffer_make(r.d, 4, "own", &other, &r.error), BERYL_UNSUPPORTED);
        CHECK_INT(t, device_program_make(r.d, &desc, &program, &r.error), BERYL_UNSUPPORTED);
        rig_close(t, &r);
        if (rig_open(t, &r, "dummy")) {
            CHECK_INT(t, device_buffer_map(r.d, &source, 0, 4, "b", &buffer, &r.error),
                      BERYL_UNSUPPORTED);
            rig_close(t, &r);
        }
        CHECK_INT(t, device_open(&r.heap, NULL, "files", &r.d, &r.error), BERYL_NO_DEVICE);
    }
    if (test_case(t, "disk/file-cut-meanwhile-is-a-status") && rig_open(t, &r, "disk")) {
        beryl_source file, source;
        CHECK_INT(t, base_source_open_file(&r.heap, path, &file, &r.error), BERYL_OK);
        CHECK_INT(t, device_buffer_map(r.d, &file, 0, 8192, "cut", &buffer, &r.error), BERYL_OK);
        CHECK(t, !truncate(path, 4096));
        device_command fetch = rig_range(DEVICE_FETCH, buffer, 4000, 200);
        CHECK_INT(t, rig_submit(&r, &fetch, 1, NULL, 0, &ticket), BERYL_OK);
        CHECK_INT(t, device_wait(r.d, ticket, &r.error), BERYL_IO);
        CHECK(t, strstr(r.error.message, "disk.bin was cut short while in use"));
        fetch = rig_range(DEVICE_FETCH, buffer, 0, 200); /* nor is the rest of it what it was */
        CHECK_INT(t, rig_submit(&r, &fetch, 1, NULL, 0, &ticket), BERYL_OK);
        CHECK_INT(t, device_wait(r.d, ticket, &r.error), BERYL_IO);
        source = base_source_of_memory(bytes, SIZE); /* and the device goes on */
        CHECK_INT(t, device_buffer_map(r.d, &source, 0, SIZE, "other", &other, &r.error), BERYL_OK);
        fetch = rig_range(DEVICE_FETCH, other, 0, 200);
        CHECK_INT(t, rig_submit(&r, &fetch, 1, NULL, 0, &ticket), BERYL_OK);
        CHECK_INT(t, rig_take(&r, ticket, 0, got, 200), BERYL_OK);
        CHECK(t, !memcmp(got, bytes, 200));
        device_close(r.d);
        file.close(file.user);
        CHECK_INT(t, r.heap.bytes, 0);
    }
    if (test_case(t, "disk/source-that-answers-later") && rig_open(t, &r, "disk")) {
        slow s = {bytes, 0};
        beryl_source source = {.size = SIZE, .user = &s, .read = slow_read};
        CHECK_INT(t, device_buffer_map(r.d, &source, 0, SIZE, "slow", &buffer, &r.error), BERYL_OK);
        device_command fetch = rig_range(DEVICE_FETCH, buffer, 0, 8000);
        const void *data;
        size_t size;
        device_ticket done = 0;
        CHECK_INT(t, rig_submit(&r, &fetch, 1, NULL, 0, &ticket), BERYL_OK);
        CHECK_INT(t, device_fetched(r.d, ticket, 0, &data, &size, &r.error), BERYL_PENDING);
        for (int i = 0; i < 3; i++) CHECK_INT(t, device_poll(r.d, &done, &r.error), BERYL_OK);
        CHECK_INT(t, done, ticket);
        device_buffer_drop(r.d, buffer);
        CHECK_INT(t, rig_take(&r, ticket, 0, got, 8000), BERYL_OK);
        CHECK(t, !memcmp(got, bytes, 8000));
        rig_close(t, &r);
    }
}

/* ---- between devices ---------------------------------------------------------------------------
 */

static beryl_status transfer(rig *from, device_buffer source, uint64_t at, rig *to,
                             device_buffer target, uint64_t to_at, uint64_t size) {
    device_transfer x;
    beryl_status status =
        device_transfer_begin(&x, from->d, source, at, to->d, target, to_at, size, &from->error);
    while (!status && (status = device_transfer_step(&x, &from->error)) == BERYL_PENDING)
        status = BERYL_OK;
    return status;
}

static void check_pair(test *t, const char *one, const char *two) {
    enum { SIZE = 9 << 20 }; /* more than two pieces */
    rig a, b;
    if (!rig_open(t, &a, one)) return;
    if (!rig_open(t, &b, two)) {
        rig_close(t, &a);
        return;
    }
    uint32_t *words = malloc(SIZE), *got = malloc(SIZE);
    for (uint32_t i = 0; words && i < SIZE / 4; i++) words[i] = i * 2654435761u;
    device_buffer x = rig_buffer(t, &a, SIZE, words), y = rig_buffer(t, &b, SIZE, NULL),
                  z = rig_buffer(t, &a, SIZE, NULL);
    CHECK_INT(t, transfer(&a, x, 0, &b, y, 0, SIZE), BERYL_OK);
    CHECK_INT(t, transfer(&b, y, 4096, &a, z, 8, SIZE - 4096), BERYL_OK);
    CHECK_INT(t, transfer(&a, x, 0, &a, z, 0, 8), BERYL_OK); /* one device is fine too */
    CHECK_INT(t, transfer(&a, x, 4, &b, y, 0, SIZE), BERYL_MISUSE);
    CHECK_INT(t, transfer(&a, x, 0, &b, y, 2, 4), BERYL_MISUSE);
    CHECK_INT(t, transfer(&a, (device_buffer){0}, 0, &b, y, 0, 4), BERYL_MISUSE);
    device_command fetch = rig_range(DEVICE_FETCH, z, 0, SIZE);
    device_ticket ticket = 0;
    CHECK_INT(t, rig_submit(&a, &fetch, 1, NULL, 0, &ticket), BERYL_OK);
    CHECK_INT(t, rig_take(&a, ticket, 0, got, SIZE), BERYL_OK);
    CHECK(t, words && got && !memcmp(got, words, 8) && !memcmp(got + 2, words + 1024, SIZE - 4096));
    device_transfer half;
    CHECK_INT(t, device_transfer_begin(&half, a.d, x, 0, b.d, y, 0, SIZE, &a.error), BERYL_OK);
    const beryl_status status = device_transfer_step(&half, &a.error);
    CHECK(t, status == BERYL_PENDING);
    device_buffer_drop(b.d, y); /* in the middle */
    beryl_status end = status;
    while (end == BERYL_PENDING) end = device_transfer_step(&half, &a.error);
    CHECK_INT(t, end, BERYL_MISUSE);
    device_transfer_drop(&half);
    rig_close(t, &b);
    rig_close(t, &a);
    free(words);
    free(got);
}

/* Every backend is the one and the other of some pair; CUDA and HIP on their stand-in where
 * there is no other. */
static void test_pairs(test *t) {
    static const char *const pairs[][2] = {
        {"host", "host"},     {"host", "webgpu"}, {"webgpu", "host"}, {"opencl", "host"},
        {"webgpu", "opencl"}, {"cuda", "hip"},    {"hip", "opencl"},  {"host", "cuda"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        bool stand_in[2];
        if (!test_case(t, "transfer/%s-to-%s-and-back", pairs[i][0], pairs[i][1])) continue;
        for (int k = 0; k < 2; k++) stand_in[k] = rig_stand_in(pairs[i][k]);
        check_pair(t, pairs[i][0], pairs[i][1]);
        for (int k = 0; k < 2; k++)
            if (stand_in[k]) rig_stand_in_end(pairs[i][k]);
    }
}

static void test_transfers(test *t) {
    test_pairs(t);
    rig disk, host;
    if (test_case(t, "transfer/from-a-file") && rig_open(t, &disk, "disk")) {
        if (rig_open(t, &host, "host")) {
            static unsigned char bytes[3001], got[3004];
            for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 31);
            beryl_source source = base_source_of_memory(bytes, sizeof bytes);
            device_buffer file, y = rig_buffer(t, &host, 3072, NULL);
            CHECK_INT(t, device_buffer_map(disk.d, &source, 0, 3001, "f", &file, &disk.error),
                      BERYL_OK);
            CHECK_INT(t, transfer(&disk, file, 0, &host, y, 16, 3004), BERYL_OK);
            CHECK_INT(t, transfer(&host, y, 0, &disk, file, 0, 64), BERYL_UNSUPPORTED);
            device_command fetch = rig_range(DEVICE_FETCH, y, 16, 3004);
            device_ticket ticket = 0;
            CHECK_INT(t, rig_submit(&host, &fetch, 1, NULL, 0, &ticket), BERYL_OK);
            CHECK_INT(t, rig_take(&host, ticket, 0, got, 3004), BERYL_OK);
            CHECK(t, !memcmp(got, bytes, 3001) && !got[3001] && !got[3003]);
            rig_close(t, &host);
        }
        rig_close(t, &disk);
    }
}

/* ---- places ------------------------------------------------------------------------------------
 */

/* y[k] = x[k + n], whose sum wraps in some: the text may count in 64 bits only where the first
 * turn's access says that no later one wraps. x[i] = 3 * i + 1; y is 100 at the beginning. */
static const struct place {
    const char *name, *text;
    uint32_t n;
    bool wide; /* the text counts in 64 bits */
    uint32_t want[8];
} places[] = {
    {"each-turn",
     "%5 = loop u32 %0 %4 %1\n%6 = add u32 %5 %3\n%7 = load u32 buffer 0 %6\n"
     "store buffer 1 %5 %7\nend\n",
     5,
     true,
     {16, 19, 22, 25, 28, 31, 34, 37}},
    {"each-turn-with-a-constant-behind",
     "%5 = loop u32 %0 %4 %1\n%6 = add u32 %5 %3\n%7 = add u32 %6 %2\n"
     "%8 = load u32 buffer 0 %7\nstore buffer 1 %5 %8\nend\n",
     UINT32_MAX - 2,
     true,
     {1, 4, 7, 10, 13, 16, 19, 22}},
    {"each-turn-of-a-multiple",
     "%5 = loop u32 %0 %4 %1\n%6 = mul u32 %5 %2\n%7 = add u32 %6 %3\n"
     "%8 = load u32 buffer 0 %7\nstore buffer 1 %5 %8\nend\n",
     5,
     true,
     {16, 25, 34, 43, 52, 61, 70, 79}},
    {"backwards",
     "%5 = loop u32 %0 %4 %1\n%6 = const u32 4294967295\n%7 = mul u32 %5 %6\n"
     "%8 = add u32 %7 %3\n%9 = load u32 buffer 0 %8\nstore buffer 1 %5 %9\nend\n",
     9,
     false,
     {28, 25, 22, 19, 16, 13, 10, 7}},
    {"a-multiple-that-begins-later",
     "%5 = loop u32 %2 %4 %1\n%6 = mul u32 %5 %2\n%7 = add u32 %6 %3\n"
     "%8 = load u32 buffer 0 %7\nstore buffer 1 %5 %8\nend\n",
     UINT32_MAX - 8,
     false,
     {100, 100, 100, 1, 10, 19, 28, 37}},
    {"under-a-condition",
     "%5 = loop u32 %0 %4 %1\n%6 = le bool %2 %5\nif %6\n%8 = add u32 %5 %3\n"
     "%9 = load u32 buffer 0 %8\nstore buffer 1 %5 %9\nend\nend\n",
     UINT32_MAX - 2,
     false,
     {100, 100, 100, 1, 4, 7, 10, 13}},
    {"a-loop-that-begins-later",
     "%5 = loop u32 %2 %4 %1\n%6 = add u32 %5 %3\n%7 = load u32 buffer 0 %6\n"
     "store buffer 1 %5 %7\nend\n",
     UINT32_MAX - 2,
     false,
     {100, 100, 100, 1, 4, 7, 10, 13}},
    {"a-loop-inside-that-has-no-turn-at-first",
     "%5 = loop u32 %0 %4 %1\n%6 = loop u32 %2 %5 %1\n%7 = add u32 %5 %3\n"
     "%8 = load u32 buffer 0 %7\nstore buffer 1 %5 %8\nend\nend\n",
     UINT32_MAX - 3,
     false,
     {100, 100, 100, 100, 1, 4, 7, 10}},
};

static void check_place(test *t, rig *r, const struct place *p) {
    static const char head[] =
        "kernel \"k\" workgroup 1 1 1\nbuffer 0 read u32 \"x\"\nbuffer 1 read_write u32 \"y\"\n"
        "param 0 u32 \"n\"\n%0 = const u32 0\n%1 = const u32 1\n%2 = const u32 3\n"
        "%3 = param u32 0\n%4 = const u32 8\n";
    char text[1024];
    uint32_t x[64], y[64];
    for (uint32_t i = 0; i < 64; i++) x[i] = 3 * i + 1, y[i] = 100;
    const int n = snprintf(text, sizeof text, "%s%s", head, p->text);
    base_arena arena;
    base_arena_init(&arena, &r->heap);
    const ir_kernel *k;
    device_program_desc desc;
    device_program program;
    device_bindings bindings;
    device_ticket ticket = 0;
    if (ir_parse(&arena, text, (size_t)n, &k, &r->error) ||
        codegen_make(&arena, k, DEVICE_C, device_caps_of(r->d), &desc, &r->error) ||
        device_program_make(r->d, &desc, &program, &r->error) || rig_compiled(r, program)) {
        test_fail(t, __FILE__, __LINE__, "%s", r->error.message);
        base_arena_fini(&arena);
        return;
    }
    CHECK_INT(t, strstr(desc.source, "b0[(u64)(p0") != NULL, p->wide);
    device_buffer in = rig_buffer(t, r, sizeof x, x), out = rig_buffer(t, r, sizeof y, y);
    const device_binding bound[] = {{.buffer = in}, {.buffer = out}};
    CHECK_INT(t, device_bindings_make(r->d, program, bound, 2, &bindings, &r->error), BERYL_OK);
    const device_command list[] = {rig_dispatch(program, bindings, 1, 0),
                                   rig_range(DEVICE_FETCH, out, 0, sizeof y)};
    CHECK_INT(t, rig_submit(r, list, 2, &p->n, 4, &ticket), BERYL_OK);
    CHECK_INT(t, rig_take(r, ticket, 0, y, sizeof y), BERYL_OK);
    for (int i = 0; i < 8; i++) CHECK_INT(t, y[i], p->want[i]);
    CHECK_INT(t, y[8], 100);
    device_bindings_drop(r->d, bindings);
    device_program_drop(r->d, program);
    device_buffer_drop(r->d, in);
    device_buffer_drop(r->d, out);
    base_arena_fini(&arena);
}

static void test_places(test *t) {
    rig r;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (test_case(t, "host/places-in-loops/%s", places[i].name) && rig_open(t, &r, "host")) {
            check_place(t, &r, &places[i]);
            rig_close(t, &r);
        }
}

void test_host(test *t);
void test_host(test *t) {
    test_compiler(t);
    test_threads(t);
    test_wrong_threads(t);
    test_disk(t);
    test_transfers(t);
    test_places(t);
}
