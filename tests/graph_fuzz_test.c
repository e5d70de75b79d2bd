/* graph_fuzz_test.c - random graphs on every device there is, against the reference functions
 * with a bound for every number.
 *
 * A graph is run with the graph passes and without them; where kernels are run by the
 * interpreter, they go through IR passes drawn at random, any subset in any order (none
 * included), under any schedule. One that goes wrong is made small and printed as a file for
 * tests/data/graphs, whose graphs run on every device in every run of the tests.
 *
 *   BERYL_TEST_ROUNDS=N   so many graphs on each device, from a seed of the clock (else a few,
 *                         always the same)
 *   BERYL_TEST_SEED=N     the first seed
 *   BERYL_TEST_SECONDS=N  so long on each device at most, then a closing line */
#define _POSIX_C_SOURCE 200809L
#include "forms.h"
#include "gradient_random.h"
#include "graph_case.h"
#include "graph_random.h"
#include "test.h"

#include "base/thread.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHRINK_SECONDS = 60, OPERATIONS_MAX = 30 };

/* Without BERYL_TEST_ROUNDS: so many graphs of at most so many operations as take a few seconds,
 * most of which is compiling. */
typedef struct form {
    test_form device;
    uint32_t rounds, most;
} form;

static const form forms[] = {
    {{.name = "interpreter", .device = "interpreter", .drawn = true}, 10, 30},
    {{.name = "interpreter-gpu", .device = "interpreter", .as_gpu = true, .drawn = true}, 6, 30},
    {{.name = "host", .device = "host"}, 2, 12},
    {{.name = "opencl", .device = "opencl"}, 1, 8},
    /* pocl says shuffles and has none */
    {{.name = "opencl-gpu", .device = "opencl", .caps = "no-subgroups", .as_gpu = true}, 1, 8},
    {{.name = "software", .device = "webgpu:software"}, 1, 8},
    {{.name = "gpu", .device = "webgpu:software", .as_gpu = true}, 1, 8},
    {{.name = "gpu-smallest", .device = "webgpu:software", .caps = "min", .as_gpu = true}, 1, 8},
    {{.name = "cuda", .device = "cuda", .stand_in = true}, 1, 8},
    {{.name = "hip", .device = "hip", .stand_in = true}, 1, 8},
    /* BERYL_TEST_DEVICE: last, and only where there is one */
    {{.name = "chosen", .device = ""}, 60, 30},
};

typedef struct opened {
    base_heap heap;
    device *d;
    beryl_status status;
    beryl_error error;
} opened;

static void form_open(opened *o, const form *f) {
    *o = (opened){0};
    base_heap_init(&o->heap, NULL);
    o->status = test_form_open(&f->device, &o->heap, &o->d, &o->error);
}

static void form_close(test *t, opened *o) {
    test_form_close(o->d);
    CHECK_INT(t, o->heap.bytes, 0);
}

static uint64_t number(const char *variable, uint64_t otherwise) {
    const char *text = getenv(variable);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

static void tell(test *t, const char *text, const graph_how *how, const char *message,
                 bool shrink) {
    char *least = shrink ? graph_case_shrink(text, how, SHRINK_SECONDS) : strdup(text);
    graph_result last;
    graph_case_run(least, how, &last);
    test_fail(t, __FILE__, __LINE__, "seed %llu, %s: %s\n; made small: %s\n; seed %llu\n%s",
              (unsigned long long)how->seed,
              how->unfused ? "without graph passes" : "with graph passes", message, last.message,
              (unsigned long long)how->seed, least);
    free(least);
}

/* ---- random ones ----------------------------------------------------------------------------- */

typedef struct tally {
    uint64_t graphs, refused, compared, unknown, loose;
    double until;
} tally;

static void run_seed(test *t, device *d, uint64_t seed, uint32_t most, tally *all) {
    base_heap heap;
    base_text text;
    base_heap_init(&heap, NULL);
    base_text_init(&text, &heap);
    if (!graph_random(&text, seed, most))
        test_fail(t, __FILE__, __LINE__, "the maker's own mistake: %s", text.data ? text.data : "");
    for (int unfused = 0; unfused < 2 && !test_failed(t); unfused++) {
        const graph_how how = {d, unfused, false, seed};
        graph_result result;
        const graph_verdict verdict = graph_case_run(text.data, &how, &result);
        if (verdict == GRAPH_WRONG) tell(t, text.data, &how, result.message, true);
        if (verdict == GRAPH_NO_CASE)
            test_fail(t, __FILE__, __LINE__, "seed %llu: no case: %s\n%s", (unsigned long long)seed,
                      result.message, text.data);
        all->refused += verdict == GRAPH_REFUSED;
        all->compared += result.compared;
        all->unknown += result.unknown;
        all->loose += result.loose;
        if (verdict == GRAPH_REFUSED && getenv("BERYL_TEST_ROUNDS"))
            printf("  seed %llu: %s\n", (unsigned long long)seed, result.message);
    }
    all->graphs++;
    base_text_fini(&text);
}

/* A slow device's time may be up with a graph or two, all of whose numbers overflow. */
static bool says_nothing(const tally *all) {
    return all->graphs < 8 && all->compared <= 10 * all->graphs;
}

static void run_random(test *t, const form *f) {
    const uint64_t usual = 3 + 1000 * (uint64_t)(f - forms); /* other graphs on each */
    const bool long_run = getenv("BERYL_TEST_ROUNDS") != NULL;
    opened o;
    tally all = {0};
    const uint64_t rounds = number("BERYL_TEST_ROUNDS", f->rounds);
    uint64_t seed = number("BERYL_TEST_SEED", long_run ? base_random_seed() % 1000000000 : usual);
    all.until = base_time() + (double)number("BERYL_TEST_SECONDS", 1000000);
    form_open(&o, f);
    if (o.status == BERYL_NO_DEVICE) test_skip(t, "%s", o.error.message);
    else if (o.status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", o.error.message);
    for (uint64_t i = 0;
         o.status == BERYL_OK && ((i < rounds && base_time() < all.until) || says_nothing(&all)) &&
         !test_failed(t);
         i++)
        run_seed(t, o.d, seed + i, long_run ? OPERATIONS_MAX : f->most, &all);
    form_close(t, &o);
    if (o.status != BERYL_OK) return;
    if (long_run)
        printf("  %s: %llu graphs from seed %llu, %llu of %llu runs refused, %llu numbers "
               "compared, %llu within more than 1 %%, of %llu nothing is known\n",
               f->device.name, (unsigned long long)all.graphs, (unsigned long long)seed,
               (unsigned long long)all.refused, (unsigned long long)all.graphs * 2,
               (unsigned long long)all.compared, (unsigned long long)all.loose,
               (unsigned long long)all.unknown);
    CHECK(t, all.graphs && all.compared > 10 * all.graphs);
}

/* ---- gradients ------------------------------------------------------------------------------- */

enum { DOUBLES = 150 };

static void run_doubles(test *t) {
    const uint64_t first = number("BERYL_TEST_SEED", 1), n = number("BERYL_TEST_ROUNDS", DOUBLES);
    for (uint64_t i = 0; i < n && !test_failed(t); i++) gradient_random_check(t, first + i);
}

/* ---- kept ones ------------------------------------------------------------------------------- */

static char *read_text(const char *path) {
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 16);
    if (!file || !text || !fread(text, 1, (1 << 16) - 1, file)) {
        free(text);
        text = NULL;
    }
    if (file) fclose(file);
    return text;
}

/* "; seed N" says which numbers it went wrong with. */
static uint64_t seed_of(const char *text) {
    const char *line = strstr(text, "; seed ");
    return line ? strtoull(line + 7, NULL, 10) : 1;
}

/* Each node by itself, as ops/ has it, is left out where `brief`. */
static void run_kept(test *t, device *d, const char *path, bool brief) {
    char *text = read_text(path);
    if (!text) test_fail(t, __FILE__, __LINE__, "%s cannot be read", path);
    for (int i = 0; text && i < 4 && !test_failed(t); i++) {
        graph_result result;
        const graph_how how = {d, i & 1, i & 2, seed_of(text)};
        if (i > !brief && strcmp(d->caps.backend, "interpreter") != 0) break;
        const graph_verdict verdict = graph_case_run(text, &how, &result);
        if (verdict == GRAPH_WRONG) tell(t, text, &how, result.message, false);
        if (verdict == GRAPH_NO_CASE || verdict == GRAPH_REFUSED)
            test_fail(t, __FILE__, __LINE__, "%s: not run: %s", path, result.message);
    }
    free(text);
}

/* ---- choices --------------------------------------------------------------------------------- */

/* Every kind of kernel whose lowering asks for numbers (tile_choose), small, with numbers
 * drawn again and again: vectors, a last one that is none, several rows a workgroup, rows longer
 * than lanes hold. */
static const char *const chosen[] = {
    "extent n 5\n%1 = input F32 [n 96] \"x\"\n%2 = input F32 [n 96] \"y\"\n%3 = weight F32 [96] "
    "\"w\"\n%4 = rms_norm %1 %3 0x1p-20\n%5 = softmax %4\n"
    "%6 = add %1 %2\n%7 = mul %6 %3\n%8 %9 = topk %1 4\n%10 = argmax %2\noutput %5 \"a\"\noutput "
    "%7 \"b\"\noutput %8 \"c\"\noutput %9 \"d\"\noutput %10 \"e\"\n",
    "extent n 3\n%1 = input F32 [n 331] \"x\"\n%2 = input F32 [n 331] \"y\"\n%3 = weight F32 [331] "
    "\"w\"\n%4 = layer_norm %1 %3 0x1p-20\n%5 = gelu_tanh %2\n"
    "%6 = rms_norm %2 0x1p-20\n%7 = add %6 %1\n%8 = softmax %7\noutput %4 \"a\"\noutput %5 "
    "\"b\"\noutput %8 \"c\"\n"};

static void test_choices(test *t, const form *f) {
    opened o;
    const uint32_t rounds = strcmp(f->device.device, "interpreter") ? 1 : 16;
    if (!test_case(t, "graph_fuzz/choices/%s", f->device.name)) return;
    form_open(&o, f);
    if (o.status == BERYL_NO_DEVICE) test_skip(t, "%s", o.error.message);
    else if (o.status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", o.error.message);
    for (uint32_t i = 0; o.status == BERYL_OK && i < rounds && !test_failed(t); i++)
        for (size_t k = 0; k < sizeof chosen / sizeof *chosen; k++) {
            graph_result result;
            const graph_how how = {o.d, i % 2, false, 1 + 2 * i};
            const graph_verdict verdict = graph_case_run(chosen[k], &how, &result);
            if (verdict == GRAPH_WRONG) tell(t, chosen[k], &how, result.message, false);
            if (verdict == GRAPH_NO_CASE || verdict == GRAPH_REFUSED)
                test_fail(t, __FILE__, __LINE__, "choices %zu not run: %s", k, result.message);
        }
    form_close(t, &o);
}

static int is_text(const struct dirent *entry) {
    const char *dot = strrchr(entry->d_name, '.');
    return dot && !strcmp(dot, ".txt");
}

static void test_kept(test *t, const form *f) {
    struct dirent **entries;
    char folder[500], path[800];
    snprintf(folder, sizeof folder, "%s", test_data(t, "graphs"));
    const int n = scandir(folder, &entries, is_text, alphasort);
    opened o;
    bool is_open = false;
    /* a driver compiles each kernel for a while */
    const bool slow =
        strcmp(f->device.device, "interpreter") != 0 && strcmp(f->device.device, "host") != 0;
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        entries[i]->d_name[strlen(entries[i]->d_name) - 4] = 0;
        /* CUDA's and HIP's texts are the same but for a few words */
        const bool wanted = !f->device.stand_in || test_drawn((size_t)i, (size_t)(f - forms), 2);
        if (wanted && test_case(t, "graph_fuzz/kept/%s/%s", f->device.name, entries[i]->d_name)) {
            if (!is_open) form_open(&o, f);
            is_open = true;
            if (o.status == BERYL_NO_DEVICE) test_skip(t, "%s", o.error.message);
            else if (o.status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", o.error.message);
            else run_kept(t, o.d, path, slow && !test_drawn((size_t)i, (size_t)(f - forms), 3));
        }
        free(entries[i]);
    }
    if (n >= 0) free(entries);
    if (is_open) form_close(t, &o);
}

void test_graph_fuzz(test *t) {
    if (test_case(t, "graph_fuzz/gradients/reference")) run_doubles(t);
    for (size_t i = 0; i < sizeof forms / sizeof *forms - !getenv("BERYL_TEST_DEVICE"); i++) {
        if (test_case(t, "graph_fuzz/random/%s", forms[i].device.name)) run_random(t, &forms[i]);
        test_kept(t, &forms[i]);
        if (!strcmp(forms[i].device.device, "interpreter") ||
            !strcmp(forms[i].device.device, "host"))
            test_choices(t, &forms[i]);
    }
}
