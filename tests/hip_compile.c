/* hip_compile.c - see hip_compile.h. */
#define _POSIX_C_SOURCE 200809L
#include "hip_compile.h"

#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 1800 };

void hip_run_compiler(test *t, const char *line) {
    FILE *told = popen(line, "r");
    char text[2000];
    const size_t n = told ? fread(text, 1, sizeof text - 1, told) : 0;
    text[n] = 0;
    if (!told || pclose(told)) test_fail(t, __FILE__, __LINE__, "%s: %s", line, text);
}

static void command(char line[LINE_MAX_BYTES], const hip_texts *h, const char *words,
                    const char *file) {
    snprintf(line, LINE_MAX_BYTES,
             "%s %s -x hip --cuda-device-only -nogpulib --offload-arch=%s -O1 -w -ffp-contract=off "
             "-S -o /dev/null %s 2>&1",
             *h->compiler ? h->compiler : "hipcc", words, h->architecture, file);
}

/* The newest is called for first; Debian 12's own is 14, which knows no gfx1100. */
static bool find_clang(hip_texts *h) {
    static const char *const names[] = {"clang", "clang-19", "clang-16", "clang-15"};
    char line[LINE_MAX_BYTES], quiet[LINE_MAX_BYTES + 40];
    for (int i = 0; i < 4; i++) {
        snprintf(h->compiler, sizeof h->compiler, "%s", names[i]);
        command(line, h, "-nogpuinc", "- < /dev/null");
        snprintf(quiet, sizeof quiet, "(%s) > /dev/null", line);
        if (!system(quiet)) return true;
    }
    return false;
}

bool hip_texts_open(test *t, hip_texts *h, const char *architecture) {
    *h = (hip_texts){.architecture = architecture};
    if (system("command -v hipcc > /dev/null 2>&1") && !find_clang(h)) {
        test_skip(t, "neither hipcc nor a clang that compiles for %s", architecture);
        return false;
    }
    snprintf(h->path, sizeof h->path, "%s/texts.hip", test_scratch(t));
    h->file = fopen(h->path, "w");
    if (!h->file) test_fail(t, __FILE__, __LINE__, "%s cannot be written", h->path);
    else if (!*h->compiler) fputs("#include <hip/hip_runtime.h>\n", h->file);
    return h->file;
}

/* What all texts begin with stands in each, so each gets a namespace; the kernel, which has
 * none, another name. */
void hip_texts_add(test *t, hip_texts *h, const char *text) {
    char name[80];
    const char *kernel = strstr(text, "__launch_bounds__(");
    if (!kernel || sscanf(kernel, "__launch_bounds__(%*u, %*u) %79[^(]", name) != 1) {
        test_fail(t, __FILE__, __LINE__, "no kernel in %.80s", text);
        return;
    }
    fprintf(h->file, "#define %s %s_%u\nnamespace text_%u {\n%s}\n#undef %s\n", name, name, h->n,
            h->n, text, name);
    h->n++;
}

void hip_texts_compile(test *t, hip_texts *h) {
    char line[LINE_MAX_BYTES], words[600] = "";
    fclose(h->file);
    if (*h->compiler)
        snprintf(words, sizeof words,
                 "-nogpuinc -D__HIPCC_RTC__ -include __clang_hip_runtime_wrapper.h -include %s",
                 test_data(t, "hip_words.h"));
    command(line, h, words, h->path);
    hip_run_compiler(t, line);
}
