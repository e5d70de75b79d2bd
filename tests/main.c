/* main.c - runs the suites, prints failures and the closing line. */
#define _POSIX_C_SOURCE 200809L
#include "test.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct test {
    char **prefixes;
    int n_prefix;
    bool list, open, failed, skipped;
    int n_passed, n_failed, n_skipped;
    double started;
    char name[200], path[512], scratch[64];
};

#define SUITE(name) void test_##name(test *t);
#include "suites.h"
#undef SUITE

static double now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static void case_end(test *t) {
    if (!t->open) return;
    t->open = false;
    double seconds = now() - t->started;
    if (t->failed) {
        t->n_failed++;
    } else if (t->skipped) {
        t->n_skipped++;
    } else {
        t->n_passed++;
    }
    if (seconds > 2) printf("  slow: %s %.1f s\n", t->name, seconds);
    fflush(stdout);
}

bool test_case(test *t, const char *name, ...) {
    case_end(t);
    va_list args;
    va_start(args, name);
    vsnprintf(t->name, sizeof t->name, name, args);
    va_end(args);
    bool wanted = t->n_prefix == 0;
    for (int i = 0; i < t->n_prefix; i++) wanted |= !strncmp(t->name, t->prefixes[i], strlen(t->prefixes[i]));
    if (!wanted) return false;
    if (t->list) return puts(t->name), false;
    t->open = true;
    t->failed = t->skipped = false;
    t->started = now();
    return true;
}

void test_fail(test *t, const char *file, int line, const char *message, ...) {
    va_list args;
    printf("FAIL %s: %s:%d: ", t->open ? t->name : "(outside a case)", file, line);
    va_start(args, message);
    vprintf(message, args);
    va_end(args);
    putchar('\n');
    if (!t->open) t->n_failed++;
    t->failed = true;
}

void test_skip(test *t, const char *why, ...) {
    va_list args;
    printf("skip %s (", t->name);
    va_start(args, why);
    vprintf(why, args);
    va_end(args);
    puts(")");
    t->skipped = true;
}

bool test_failed(const test *t) {
    return t->failed;
}

const char *test_data(test *t, const char *name) {
    const char *root = getenv("BERYL_TEST_DATA");
    snprintf(t->path, sizeof t->path, "%s/%s", root ? root : "tests/data", name);
    return t->path;
}

const char *test_scratch(test *t) {
    if (!t->scratch[0]) {
        snprintf(t->scratch, sizeof t->scratch, "/tmp/beryl-test-XXXXXX");
        if (!mkdtemp(t->scratch)) abort();
    }
    return t->scratch;
}

int main(int argc, char **argv) {
    test t = {.prefixes = argv + 1, .n_prefix = argc - 1};
    if (argc > 1 && !strcmp(argv[1], "--list")) t.list = true, t.prefixes++, t.n_prefix--;
#define SUITE(name) test_##name(&t), case_end(&t);
#include "suites.h"
#undef SUITE
    if (t.list) return 0;
    if (t.scratch[0]) {
        char command[100];
        snprintf(command, sizeof command, "rm -rf %s", t.scratch);
        if (system(command)) puts("the scratch folder was not removed");
    }
    printf("%d passed, %d failed, %d skipped\n", t.n_passed, t.n_failed, t.n_skipped);
    return t.n_failed > 0;
}
