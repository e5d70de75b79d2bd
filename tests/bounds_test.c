/* bounds_test.c - `make sanitize-kernels` finds what it looks for: kernels that step outside of
 * what is bound, and out of their own arrays. Each runs in a process of its own, which
 * AddressSanitizer or UBSan ends. Only in builds with AddressSanitizer. */
#define _GNU_SOURCE /* setenv, dup2 */
#include "rig.h"

#include "device/host/bounds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef HOST_HAS_BOUNDS
/* `body` sees x and y, 64 words each, of which 60 are bound, scratch with 16, and i. */
static const char *text_of(const char *body) {
    static char text[1024];
    snprintf(
        text, sizeof text,
        "#include <stdint.h>\n"
        "uint32_t step_scratch_bytes(void) { return 64; }\n"
        "void step(void *const *buffers, const uint32_t *params, const uint32_t groups[3], "
        "uint32_t first, uint32_t count,\n"
        "          void *memory) {\n"
        "    const uint32_t *x = buffers[0];\n"
        "    uint32_t *y = buffers[1], *scratch = memory, own[4] = {0};\n"
        "    volatile uint32_t i = params[0];\n"
        "    %s\n"
        "    (void)x, (void)y, (void)scratch, (void)own, (void)groups, (void)first, (void)count;\n"
        "}\n",
        body);
    return text;
}

static void run_kernel(test *t, const char *body) {
    rig r;
    if (!rig_open(t, &r, "host")) return;
    const device_program_desc desc = {.language = DEVICE_C,
                                      .source = text_of(body),
                                      .source_size = strlen(text_of(body)),
                                      .entry = "step",
                                      .label = "step",
                                      .n_binding = 2,
                                      .access = {DEVICE_READ, DEVICE_READ_WRITE},
                                      .param_bytes = 4,
                                      .workgroup = {1, 1, 1}};
    const uint32_t at = 60;
    uint32_t y[64];
    device_program program;
    device_bindings bindings;
    device_ticket ticket;
    device_buffer in = rig_buffer(t, &r, 256, NULL), out = rig_buffer(t, &r, 256, NULL);
    CHECK_INT(t, device_program_make(r.d, &desc, &program, &r.error), BERYL_OK);
    CHECK_INT(t, rig_compiled(&r, program), BERYL_OK);
    CHECK_INT(t,
              device_bindings_make(r.d, program, (device_binding[]){{in, 0, 240}, {out, 0, 240}}, 2,
                                   &bindings, &r.error),
              BERYL_OK);
    device_command list[] = {rig_dispatch(program, bindings, 1, 0),
                             rig_range(DEVICE_FETCH, out, 0, 256)};
    CHECK_INT(t, rig_submit(&r, list, 2, &at, 4, &ticket), BERYL_OK);
    CHECK_INT(t, rig_take(&r, ticket, 0, y, 256), BERYL_OK); /* the range is everybody's again */
    device_bindings_drop(r.d, bindings);
    device_program_drop(r.d, program);
    device_buffer_drop(r.d, in);
    device_buffer_drop(r.d, out);
    rig_close(t, &r);
}

/* Ends the process: 0: the kernel ran to its end; 3: a sanitizer's report with `words` in it
 * ended it. */
static int outcome(test *t, const char *body, const char *words) {
    char name[600], path[4096], report[16384] = {0};
    snprintf(name, sizeof name, "%s/report", test_scratch(t));
    fflush(stdout);
    const pid_t child = fork();
    if (child < 0) abort();
    if (!child) {
        const char *before = getenv("PATH");
        /* a relative folder is not taken */
        char *whole = realpath(test_data(t, "../checked"), NULL);
        if (!whole) abort();
        snprintf(path, sizeof path, "%s:%s", whole, before ? before : "");
        free(whole);
        setenv("PATH", path, 1);
        setenv("BERYL_THREADS", "1", 1);
        setenv("XDG_CACHE_HOME", test_scratch(t), 1);
        if (!freopen(name, "w", stderr)) abort();
        run_kernel(t, body);
        fflush(stdout);
        _exit(test_failed(t) ? 2 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    FILE *file = fopen(name, "r");
    const size_t n = file ? fread(report, 1, sizeof report - 1, file) : 0;
    if (file) fclose(file);
    report[n] = 0;
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 2))
        return WEXITSTATUS(status);
    return strstr(report, words) ? 3 : 4;
}

void test_bounds(test *t) {
    static const struct {
        const char *name, *body, *words;
        int outcome;
    } cases[] = {
        {"kernel-inside-its-bindings-runs", "y[0] = x[59], y[59] = i, scratch[15] = i, own[3] = i;",
         "", 0},
        {"write-behind-a-binding-is-found", "y[i] = 1;", "use-after-poison", 3},
        {"read-behind-a-binding-is-found", "y[0] = x[i + 2];", "use-after-poison", 3},
        {"write-behind-a-buffer-is-found", "y[i + 4] = 1;", "use-after-poison", 3},
        {"write-behind-scratch-is-found", "scratch[i - 40] = 1;", "use-after-poison", 3},
        {"step-out-of-an-array-is-found", "own[i] = 1;", "out of bounds", 3},
        {"shift-by-too-much-is-found", "y[0] = 1u << i;", "shift exponent", 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (test_case(t, "bounds/%s", cases[i].name))
            CHECK_INT(t, outcome(t, cases[i].body, cases[i].words), cases[i].outcome);
}
#else
void test_bounds(test *t) {
    (void)t;
}
#endif
