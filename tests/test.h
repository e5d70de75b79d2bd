/* test.h - the smallest harness: named cases, checks that go on, one closing line.
 * Each tests/NAME_test.c defines `void test_NAME(test *t)`, which the Makefile finds by its name.
 * A case is named for its property ("gguf/tensor-range-outside-file").
 *   beryl-test [--list] [PREFIX ...]   runs the cases whose names begin with a PREFIX, or
 *                                      are one with a * in it as a shell's pattern. */
#ifndef TESTS_TEST_H
#define TESTS_TEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct test test;

/* True if the case is wanted, and not left to other draws (tests/seldom.txt); then run its body.
 * Ends the case before it. printf-style name. */
bool test_case(test *t, const char *name, ...) __attribute__((format(printf, 2, 3)));
/* Is case i run in this form? Each case runs in one of `one_of` forms, neighbours in others, so
 * that few cases of a kind meet all forms; BERYL_TEST_ALL (make test-all): in all. */
bool test_drawn(size_t i, size_t form, uint32_t one_of);
void test_fail(test *t, const char *file, int line, const char *message, ...)
    __attribute__((format(printf, 4, 5)));
void test_skip(test *t, const char *why, ...) __attribute__((format(printf, 2, 3)));
bool test_failed(const test *t); /* the running case has failed */
/* tests/data/NAME; borrowed until the next call. */
const char *test_data(test *t, const char *name);
/* A scratch folder of this run, removed at its end. */
const char *test_scratch(test *t);
/* The same of all processes of the run: for kernels that were compiled, which others find. */
const char *test_compiled(test *t);

#define CHECK(t, condition) \
    ((condition) ? (void)0 : test_fail(t, __FILE__, __LINE__, "%s", #condition))
/* Integers of any kind, printed as long long. */
#define CHECK_INT(t, got, want)                                                          \
    do {                                                                                 \
        long long got_ = (long long)(got), want_ = (long long)(want);                    \
        if (got_ != want_)                                                               \
            test_fail(t, __FILE__, __LINE__, "%s is %lld, not %lld", #got, got_, want_); \
    } while (0)
#define CHECK_NEAR(t, got, want, tolerance)                                              \
    do {                                                                                 \
        double got_ = (double)(got), want_ = (double)(want);                             \
        if (!(got_ - want_ <= (tolerance) && want_ - got_ <= (tolerance)))               \
            test_fail(t, __FILE__, __LINE__, "%s is %.9g, not %.9g", #got, got_, want_); \
    } while (0)
#define CHECK_TEXT(t, got, want)                                               \
    do {                                                                       \
        const char *got_ = (got), *want_ = (want);                             \
        if (!got_ || __builtin_strcmp(got_, want_))                            \
            test_fail(t, __FILE__, __LINE__, "%s is \"%s\", not \"%s\"", #got, \
                      got_ ? got_ : "(null)", want_);                          \
    } while (0)

#endif
