/* main.c - runs the suites, prints failures and the closing line.
 *
 * BERYL_TEST_JOBS: so many processes at a time. Each takes the next suite that none has taken,
 * the longest first (the Makefile has their order); their counts are one.
 * BERYL_TEST_TIMES: cases of so many seconds are told (2), with what they took of the processors,
 * which depends less on what else the machine does.
 * BERYL_TEST_DRAW=N: of the cases that tests/seldom.txt names, those of this draw. */
#define _DEFAULT_SOURCE
#include "test.h"

#include "base/memory.h"

#include <fnmatch.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SUITE_MAX = 256, JOBS_MAX = 16, SELDOM_MAX = 128 };

typedef struct seldom {     /* a line of tests/seldom.txt */
    unsigned one_of, n_met; /* so many of the suite's cases were like the pattern */
    bool elsewhere;         /* of the sanitizers' build, which this is not */
    char pattern[64];
} seldom;

#ifdef __SANITIZE_ADDRESS__
static const bool is_sanitized = true;
#else
static const bool is_sanitized = false;
#endif

typedef struct shared { /* by the processes */
    atomic_bool taken[SUITE_MAX];
    atomic_bool met[SELDOM_MAX];
    atomic_int n_passed, n_failed, n_skipped, n_left;
} shared;

struct test {
    shared *all;
    char **prefixes;
    int n_prefix;
    bool list, open, failed, skipped;
    int n_passed, n_failed, n_skipped;
    seldom seldom[SELDOM_MAX];
    int n_seldom;
    uint64_t draw;
    double slow, started, spent;
    char name[200], path[512], scratch[64], compiled[64];
};

#define SUITE(name) void test_##name(test *t);
#include "suites.h"
#undef SUITE

static double now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

static double seconds_of(struct timeval t) {
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

/* By this process, and by the compilers and programs that it has waited for. */
static double spent(void) {
    struct rusage own, waited;
    if (getrusage(RUSAGE_SELF, &own) || getrusage(RUSAGE_CHILDREN, &waited)) abort();
    return seconds_of(own.ru_utime) + seconds_of(own.ru_stime) + seconds_of(waited.ru_utime) +
           seconds_of(waited.ru_stime);
}

static void case_end(test *t) {
    if (!t->open) return;
    t->open = false;
    const double seconds = now() - t->started;
    if (t->failed) {
        t->n_failed++;
    } else if (t->skipped) {
        t->n_skipped++;
    } else {
        t->n_passed++;
    }
    if (seconds > t->slow)
        printf("  slow: %s %.1f s (%.1f s of processor)\n", t->name, seconds, spent() - t->spent);
    fflush(stdout);
}

/* Where there is a draw: lines of a number and a pattern, with "sanitized/" before it where only
 * AddressSanitizer's build asks; "#" begins a remark. */
static void read_seldom(test *t) {
    const char *draw = getenv("BERYL_TEST_DRAW");
    if (!draw || !*draw) return;
    FILE *file = fopen("tests/seldom.txt", "r");
    char line[200];
    if (!file) abort();
    while (fgets(line, sizeof line, file)) {
        seldom *s = &t->seldom[t->n_seldom];
        if (line[0] == '#' || line[0] == '\n') continue;
        if (t->n_seldom++ == SELDOM_MAX || sscanf(line, "%u %63s", &s->one_of, s->pattern) != 2 ||
            !s->one_of)
            abort();
        const size_t lead = strncmp(s->pattern, "sanitized/", 10) ? 0 : 10;
        memmove(s->pattern, s->pattern + lead, strlen(s->pattern + lead) + 1);
        s->elsewhere = lead && !is_sanitized;
    }
    fclose(file);
    t->draw = strtoull(draw, NULL, 10);
}

/* Left to other draws? The first pattern decides. Each of `one_of` draws in turn has its part of a
 * suite's cases, neighbours in different ones; suites begin with different ones too. */
static bool is_left(test *t, const char *name) {
    for (int i = 0; i < t->n_seldom; i++) {
        seldom *s = &t->seldom[i];
        if (fnmatch(s->pattern, name, 0)) continue;
        atomic_store(&t->all->met[i], true);
        if (s->elsewhere) continue;
        const uint64_t first = base_hash(name, strcspn(name, "/"), 0) % s->one_of;
        if ((first + s->n_met++ + t->draw % s->one_of) % s->one_of == 0) return false;
        atomic_fetch_add(&t->all->n_left, 1);
        return true;
    }
    return false;
}

bool test_case(test *t, const char *name, ...) {
    case_end(t);
    va_list args;
    va_start(args, name);
    vsnprintf(t->name, sizeof t->name, name, args);
    va_end(args);
    bool wanted = t->n_prefix == 0;
    for (int i = 0; i < t->n_prefix; i++) {
        const char *prefix = t->prefixes[i];
        wanted |= strchr(prefix, '*') ? !fnmatch(prefix, t->name, 0)
                                      : !strncmp(t->name, prefix, strlen(prefix));
    }
    if (!wanted || is_left(t, t->name)) return false;
    if (t->list) return puts(t->name), false;
    t->open = true;
    t->failed = t->skipped = false;
    t->started = now();
    t->spent = spent();
    return true;
}

bool test_drawn(size_t i, size_t form, uint32_t one_of) {
    return (i + form) % one_of == 0 || getenv("BERYL_TEST_ALL");
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

static void make_folder(char *path, size_t size) {
    snprintf(path, size, "/tmp/beryl-test-XXXXXX");
    if (!mkdtemp(path)) abort();
}

static void remove_folder(const char *path) {
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", path);
    if (path[0] && system(command)) puts("the scratch folder was not removed");
}

const char *test_scratch(test *t) {
    if (!t->scratch[0]) make_folder(t->scratch, sizeof t->scratch);
    return t->scratch;
}

const char *test_compiled(test *t) {
    return t->compiled;
}

static void run_suite(test *t, const char *name, void (*suite)(test *t)) {
    const double started = now(), before = spent();
    for (int i = 0; i < t->n_seldom; i++) t->seldom[i].n_met = 0;
    suite(t);
    case_end(t);
    const double seconds = now() - started;
    if (seconds > 10 && !t->list)
        printf("  suite %s: %.0f s (%.0f s of processor)\n", name, seconds, spent() - before);
}

static void run(test *t, shared *all) {
    int suite = 0;
#define SUITE(name) \
    if (!atomic_exchange(&all->taken[suite++], true)) run_suite(t, #name, test_##name);
#include "suites.h"
#undef SUITE
    remove_folder(t->scratch);
    atomic_fetch_add(&all->n_passed, t->n_passed);
    atomic_fetch_add(&all->n_failed, t->n_failed);
    atomic_fetch_add(&all->n_skipped, t->n_skipped);
}

static void run_jobs(test *t, shared *all, int jobs) {
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* lines stay whole */
    for (int i = 0; i < jobs; i++) {
        const pid_t child = fork();
        if (child < 0) abort();
        if (child) continue;
        run(t, all);
        exit(0);
    }
    for (int status; wait(&status) > 0;)
        if (!WIFEXITED(status) || WEXITSTATUS(status)) {
            printf("FAIL (a process of the tests): it ended with %d\n", status);
            atomic_fetch_add(&all->n_failed, 1);
        }
}

int main(int argc, char **argv) {
    const char *told = getenv("BERYL_TEST_TIMES");
    test t = {.prefixes = argv + 1, .n_prefix = argc - 1, .slow = told ? atof(told) : 2};
    const char *asked = getenv("BERYL_TEST_JOBS");
    const int jobs = asked ? atoi(asked) : 1;
    shared *all =
        mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) abort();
    t.all = all;
    read_seldom(&t);
    if (argc > 1 && !strcmp(argv[1], "--list")) t.list = true, t.prefixes++, t.n_prefix--;
    if (!t.list) make_folder(t.compiled, sizeof t.compiled);
    if (jobs > 1 && jobs <= JOBS_MAX && !t.list) run_jobs(&t, all, jobs);
    else run(&t, all);
    remove_folder(t.compiled);
    for (int i = 0; i < t.n_seldom && !t.n_prefix; i++)
        if (!all->met[i]) {
            printf("FAIL tests/seldom.txt: no case is like %s\n", t.seldom[i].pattern);
            atomic_fetch_add(&all->n_failed, 1);
        }
    if (t.list) return all->n_failed > 0;
    if (t.n_seldom)
        printf("drawn by BERYL_TEST_DRAW=%llu: %d cases are left to other draws\n",
               (unsigned long long)t.draw, all->n_left);
    printf("%d passed, %d failed, %d skipped\n", all->n_passed, all->n_failed, all->n_skipped);
    return all->n_failed > 0;
}
