/* graph_memory_test.c - a plan while memory runs out: an allocation of
 * lowering, passes or generators fails, alone or with all that follow it. The plan is then
 * refused with NO_MEMORY, or is the same one to the last byte of its texts; nothing is left
 * behind. The device is the dummy, which takes every language.
 *
 *   BERYL_TEST_ROUNDS=N  so many allocations of each graph fail, else a few; there are up to 20,000
 *                        */
#define _POSIX_C_SOURCE 200809L
#include "rig.h"
#include "test.h"

#include "plan/exec.h"
#include "graph/text.h"

#include <stdlib.h>
#include <string.h>

/* a joined step of attention in C takes 21,000 for 280 KB of text */
enum { CALLS_MAX = 50000, FAILS = 24 };

#define ROWS "extent n 3\n"

/* An operation each, and the shapes that are joined: each graph has few allocations, so that all
 * of them can fail. */
static const struct {
    const char *name, *text;
} graphs[] = {
    {"pointwise", ROWS "%1 = input F32 [n 40] \"x\"\n%2 = gelu_tanh %1\n%3 = geglu %2 %1\n%4 = "
                       "softcap %3 30\n%5 = add %4 %1\noutput %5 \"y\"\n"},
    {"rms_norm", ROWS "%1 = input F32 [n 40] \"x\"\n%2 = weight F32 [40] \"w\"\n%3 = rms_norm %1 "
                      "%2 1\noutput %3 \"y\"\n"},
    {"softmax", ROWS
     "%1 = input F32 [n 3 40] \"x\"\n%2 = narrow %1 1 1 2\n%3 = softmax %2\noutput %3 \"y\"\n"},
    {"topk",
     ROWS "%1 = input F32 [n 40] \"x\"\n%2 %3 = topk %1 5\noutput %2 \"y\"\noutput %3 \"z\"\n"},
    {"weighted_sum", ROWS "%1 = input F32 [n 4 40] \"x\"\n%2 = input F32 [n 4] \"w\"\n%3 = "
                          "weighted_sum %1 %2\noutput %3 \"y\"\n"},
    {"linear", ROWS "%1 = input F32 [n 64] \"x\"\n%2 = weight Q4_0 [40 64] \"w\"\n%3 = linear %1 "
                    "%2\noutput %3 \"y\"\n"},
    {"linear-many", "extent n 70\n%1 = input F32 [n 64] \"x\"\n%2 = weight F16 [40 64] \"w\"\n%3 = "
                    "linear %1 %2\noutput %3 \"y\"\n"},
    {"linear_id", ROWS "%1 = input F32 [n 1 256] \"x\"\n%2 = weight Q4_K [3 8 256] \"w\"\n%3 = "
                       "input I32 [n 2] \"ids\"\n%4 = linear_id %1 %2 %3\noutput %4 \"y\"\n"},
    {"gather_rows", ROWS "%1 = input I32 [n] \"i\"\n%2 = weight Q6_K [9 256] \"w\"\n%3 = "
                         "gather_rows %2 %1 1\noutput %3 \"y\"\n"},
    {"scatter_add", ROWS "%1 = input F32 [n 5] \"x\"\n%2 = input I32 [n 5] \"i\"\n%3 = "
                         "scatter_add %1 %2 %1 0\noutput %3 \"y\"\n"},
    {"nonzero", ROWS "%1 = input F32 [n 5] \"x\"\n%2 = nonzero %1\noutput %2 \"y\"\n"},
    {"set_rows", ROWS "%1 = input F32 [n 5] \"x\"\n%2 = input I32 [n] \"i\"\n%3 = state F32 [9 5] "
                      "\"s\"\n%4 = set_rows %3 %1 %2\n%5 = copy %4\noutput %5 \"y\"\n"},
    {"rope", ROWS "%1 = input F32 [n 2 8] \"x\"\n%2 = input F32 [n 2 4] \"angles\"\n%3 = rope %1 "
                  "%2\noutput %3 \"y\"\n"},
    {"attention",
     ROWS "%1 = input F32 [n 2 32] \"x\"\n%2 = input I32 [n] \"slot\"\n%3 = input I32 [n] "
          "\"pos\"\n%4 = state Q8_0 [4 90 2 32] \"s\"\n"
          "%5 = kv_write %4 %1 %2 %3\n%6 = attention %1 %5 %5 %2 %3 1 0\noutput %6 \"y\"\n"},
    {"maps", ROWS
     "%1 = input F32 [n 5 8] \"x\"\n%2 = pad %1 1 2 1 1\n%3 = concat %2 %1 1\n%4 = permute %3 [2 1 "
     "0]\n%5 = tril %4 1\n%6 = input F32 [n 32] \"y\"\n%7 = flip %6 1\n%8 = weight Q4_0 [8 32] "
     "\"w\"\n%9 = linear %7 %8\noutput %5 \"y\"\noutput %9 \"z\"\n"},
    {"choice", ROWS "%1 = input F32 [n 400] \"x\"\n%2 = argmax %1\n%3 = input U32 [n 8] \"s\"\n%4 "
                    "= sample %1 %3\noutput %2 \"y\"\noutput %4 \"z\"\n"},
    {"gated", "%1 = input F32 [1 64] \"x\"\n%2 = weight F32 [64] \"norm\"\n%3 = rms_norm %1 %2 "
              "1\n%4 = weight Q4_0 [96 64] \"gate\"\n"
              "%5 = weight Q4_0 [96 64] \"up\"\n%6 = linear %3 %4\n%7 = linear %3 %5\n%8 = geglu "
              "%6 %7\n%9 = weight Q8_0 [64 96] \"down\"\n"
              "%10 = linear %8 %9\n%11 = weight F32 [64] \"norm2\"\n%12 = rms_norm %10 %11 1\n%13 "
              "= add %1 %12\n%14 = rms_norm %13 %2 1\n"
              "%15 = linear %14 %4\noutput %13 \"h\"\noutput %15 \"y\"\n"},
    {"step", "%1 = input F32 [1 64] \"x\"\n%2 = weight Q8_0 [64 64] \"q\"\n%3 = weight Q8_0 [32 "
             "64] \"k\"\n%4 = weight Q8_0 [32 64] \"v\"\n"
             "%5 = linear %1 %2\n%6 = linear %1 %3\n%7 = linear %1 %4\n%8 = reshape %5 [1 2 "
             "32]\n%9 = reshape %6 [1 1 32]\n%10 = reshape %7 [1 1 32]\n"
             "%11 = weight F32 [32] \"w\"\n%12 = rms_norm %8 %11 1\n%13 = rms_norm %9 %11 1\n%14 = "
             "rms_norm %10 1\n%15 = input F32 [1 2 16] \"angles\"\n"
             "%16 = rope %12 %15\n%17 = rope %13 %15\n%18 = input I32 [1] \"slot\"\n%19 = input "
             "I32 [1] \"pos\"\n%20 = state F16 [2 900 1 32] \"keys\"\n"
             "%21 = state F16 [2 900 1 32] \"values\"\n%22 = kv_write %20 %17 %18 %19\n%23 = "
             "kv_write %21 %14 %18 %19\n"
             "%24 = attention %16 %22 %23 %18 %19 1 0 apart 0\n%25 = reshape %24 [1 64]\n%26 = "
             "linear %25 %2\noutput %26 \"y\"\n"},
};

static const struct {
    const char *name;
    device_language language;
    bool as_gpu;
} targets[] = {
    {"wgsl", DEVICE_WGSL, true},        {"cuda", DEVICE_CUDA_C, true}, {"hip", DEVICE_HIP_C, true},
    {"opencl", DEVICE_OPENCL_C, false}, {"c", DEVICE_C, false},
};

typedef struct failing {
    uint64_t at, calls;
    bool alone, on;
} failing;

static void *resize(void *user, void *memory, size_t old_size, size_t new_size) {
    failing *f = user;
    (void)old_size;
    if (!new_size) return free(memory), NULL;
    if (f->on) {
        const uint64_t call = f->calls++;
        if (f->alone ? call == f->at : call >= f->at) return NULL;
    }
    return realloc(memory, new_size);
}

typedef struct plan {
    base_heap heap;
    device *d;
    graph_store store;
    graph *g;
    graph_exec *exec;
    beryl_error error;
} plan;

static beryl_status nothing_read(void *user, uint64_t offset, void *to, size_t size) {
    (void)user, (void)offset;
    memset(to, 0, size);
    return BERYL_OK;
}

/* All texts of the plan go to `texts`. Only what graph_exec_open asks for may fail. */
static beryl_status plan_open(plan *p, failing *f, size_t target, const char *text,
                              base_text *texts) {
    uint64_t bytes;
    beryl_source source = {.read = nothing_read, .size = 1 << 20};
    *p = (plan){0};
    base_heap_init(&p->heap, &(beryl_allocator){resize, f});
    f->on = false;
    if (device_open(&p->heap, NULL, "dummy", &p->d, &p->error) != BERYL_OK) return BERYL_NO_DEVICE;
    p->d->caps.languages = DEVICE_LANGUAGE_BIT(targets[target].language);
    if (!targets[target].as_gpu) p->d->caps.kind = DEVICE_HOST;
    beryl_status status = store_init(&p->store, &p->heap, p->d, &source, 1, &p->error);
    p->g = graph_open(&p->heap);
    if (status == BERYL_OK)
        status = graph_text_parse(text, strlen(text), p->g, &p->store, &bytes, &p->error);
    if (status == BERYL_OK) status = store_layout(&p->store, 0, &p->error);
    if (status == BERYL_OK) status = store_make(&p->store, &p->error);
    if (status != BERYL_OK) return BERYL_BAD_INPUT;
    f->on = true;
    status =
        graph_exec_open(p->g, &p->store, &(graph_exec_options){.exact = true, .explained = true},
                        &p->exec, &p->error);
    f->on = false;
    lower_texts step;
    for (uint32_t i = 0; status == BERYL_OK && texts && graph_exec_texts_at(p->exec, i, &step);
         i++) {
        graph_exec_print_step(p->exec, i, texts);
        if (step.code) base_text_add(texts, step.code, strlen(step.code));
    }
    return status;
}

static void plan_close(test *t, plan *p) {
    graph_exec_close(p->exec);
    graph_close(p->g);
    store_fini(&p->store);
    device_close(p->d);
    CHECK_INT(t, p->heap.bytes, 0);
}

static void sweep(test *t, size_t target, const char *text, bool alone) {
    base_heap heap;
    base_text want, got;
    plan p;
    base_heap_init(&heap, NULL);
    base_text_init(&want, &heap);
    base_text_init(&got, &heap);
    failing f = {UINT64_MAX, 0, alone, false};
    const beryl_status whole = plan_open(&p, &f, target, text, &want);
    if (whole != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", p.error.message);
    plan_close(t, &p);
    const uint64_t calls = f.calls;
    if (whole == BERYL_OK && (calls <= 5 || calls >= CALLS_MAX || want.size <= 100))
        test_fail(t, __FILE__, __LINE__, "%llu calls, %zu bytes of text", (unsigned long long)calls,
                  want.size);
    const char *rounds = getenv("BERYL_TEST_ROUNDS");
    const uint64_t fails = rounds ? strtoull(rounds, NULL, 10) : FAILS,
                   step = fails && fails < calls ? calls / fails : 1;
    for (uint64_t n = (target * 7 + (alone ? step / 2 : 0)) % step;
         n < calls && whole == BERYL_OK && !test_failed(t); n += step) {
        f = (failing){n, 0, alone, false};
        base_text_clear(&got);
        const beryl_status status = plan_open(&p, &f, target, text, &got);
        const bool same =
            got.size == want.size && got.data && !memcmp(got.data, want.data, got.size);
        if (status == BERYL_OK && !same)
            test_fail(t, __FILE__, __LINE__, "call %llu of %llu failed, and the plan is another",
                      (unsigned long long)n, (unsigned long long)calls);
        if (status != BERYL_OK && (status != BERYL_NO_MEMORY || !p.error.message[0]))
            test_fail(t, __FILE__, __LINE__, "call %llu of %llu failed: %s: %s",
                      (unsigned long long)n, (unsigned long long)calls, beryl_status_name(status),
                      p.error.message);
        plan_close(t, &p);
    }
    base_text_fini(&want);
    base_text_fini(&got);
}

void test_graph_memory(test *t) {
    for (size_t target = 0; target < sizeof targets / sizeof *targets; target++)
        for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
            if (!test_case(t, "graph_memory/%s/%s", targets[target].name, graphs[i].name)) continue;
            sweep(t, target, graphs[i].text, false);
            sweep(t, target, graphs[i].text, true);
        }
}
