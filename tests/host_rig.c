/* host_rig.c - see host_rig.h. */
#define _GNU_SOURCE /* setenv */
#include "host_rig.h"

#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const char *host_rig_text(uint32_t n) {
    static char text[1024];
    snprintf(text, sizeof text,
             "#include <stdint.h>\n"
             "uint32_t scale_scratch_bytes(void) { return 0; }\n"
             "void scale(void *const *buffers, const uint32_t *params, const uint32_t groups[3],\n"
             "           uint32_t first, uint32_t count, void *scratch) {\n"
             "    const uint32_t *x = buffers[0];\n"
             "    uint32_t *y = buffers[1];\n"
             "    for (uint32_t i = first * 64; i < (first + count) * 64; i++)\n"
             "        y[i] = params[0] * x[i] + %uu;\n"
             "    (void)groups, (void)scratch;\n"
             "}\n",
             n);
    return text;
}

device_program_desc host_rig_desc(const char *text) {
    return (device_program_desc){.language = DEVICE_C,
                                 .source = text,
                                 .source_size = strlen(text),
                                 .entry = "scale",
                                 .label = "scale",
                                 .n_binding = 2,
                                 .access = {DEVICE_READ, DEVICE_READ_WRITE},
                                 .param_bytes = 4,
                                 .workgroup = {64, 1, 1}};
}

uint32_t host_rig_run(test *t, rig *r, uint32_t n) {
    const device_program_desc desc = host_rig_desc(host_rig_text(n));
    device_program program;
    device_bindings bindings = {0};
    uint32_t x[64], y[64] = {0}, factor = 3;
    for (int i = 0; i < 64; i++) x[i] = 1;
    if (device_program_make(r->d, &desc, &program, &r->error) || rig_compiled(r, program)) {
        test_fail(t, __FILE__, __LINE__, "scale: %s", r->error.message);
        return 0;
    }
    device_buffer in = rig_buffer(t, r, 256, x), out = rig_buffer(t, r, 256, NULL);
    CHECK_INT(t,
              device_bindings_make(r->d, program,
                                   (device_binding[]){{.buffer = in}, {.buffer = out}}, 2,
                                   &bindings, &r->error),
              BERYL_OK);
    device_command list[] = {rig_dispatch(program, bindings, 1, 0),
                             rig_range(DEVICE_FETCH, out, 0, 256)};
    device_ticket ticket = 0;
    CHECK_INT(t, rig_submit(r, list, 2, &factor, 4, &ticket), BERYL_OK);
    CHECK_INT(t, rig_take(r, ticket, 0, y, 256), BERYL_OK);
    CHECK_INT(t, y[63], y[0]);
    device_bindings_drop(r->d, bindings);
    device_program_drop(r->d, program);
    device_buffer_drop(r->d, in);
    device_buffer_drop(r->d, out);
    return y[0];
}

/* ---- surroundings ---------------------------------------------------------------------------- */

void host_rig_keep(char *to, size_t size, const char *name) {
    const char *value = getenv(name);
    snprintf(to, size, "%s", value ? value : "");
}

void host_rig_put(const char *name, const char *value) {
    if (*value) setenv(name, value, 1);
    else unsetenv(name);
}

void host_away_begin(test *t, host_away *a, const char *name) {
    char path[600];
    host_rig_keep(a->path, sizeof a->path, "PATH");
    host_rig_keep(a->cache, sizeof a->cache, "XDG_CACHE_HOME");
    host_rig_keep(a->temporary, sizeof a->temporary, "TMPDIR");
    snprintf(path, sizeof path, "%s/%s", test_scratch(t), name);
    CHECK_INT(t, base_folder_make(path, NULL), BERYL_OK);
    setenv("XDG_CACHE_HOME", path, 1);
    snprintf(path, sizeof path, "%s/%s/tmp", test_scratch(t), name);
    CHECK_INT(t, base_folder_make(path, NULL), BERYL_OK);
    setenv("TMPDIR", path, 1);
}

void host_away_end(const host_away *a) {
    host_rig_put("PATH", a->path);
    host_rig_put("XDG_CACHE_HOME", a->cache);
    host_rig_put("TMPDIR", a->temporary);
}

typedef struct listing {
    int n;
    char last[600];
} listing;

static void note_entry(void *user, const char *name, bool is_folder) {
    listing *l = user;
    (void)is_folder;
    l->n++;
    snprintf(l->last, sizeof l->last, "%s", name);
}

int host_rig_count(const char *variable, const char *under, char *last, size_t size) {
    char path[600];
    listing l = {0};
    base_heap heap;
    base_heap_init(&heap, NULL);
    snprintf(path, sizeof path, "%s/%s", getenv(variable), under);
    if (base_folder_list(&heap, path, note_entry, &l, NULL)) return -1;
    if (last && (size_t)snprintf(last, size, "%s/%s", path, l.last) >= size) return -1;
    return l.n;
}

void host_rig_note(void *user, beryl_log_level level, const char *line) {
    host_warnings *w = user;
    if (level != BERYL_LOG_WARNING) return;
    w->n++;
    snprintf(w->last, sizeof w->last, "%s", line);
}

bool host_rig_open(test *t, rig *r, beryl_log *log, host_warnings *w) {
    *r = (rig){0};
    *w = (host_warnings){0};
    *log = (beryl_log){host_rig_note, w};
    base_heap_init(&r->heap, NULL);
    const beryl_status status = device_open(&r->heap, log, "host", &r->d, &r->error);
    if (status == BERYL_NO_DEVICE) test_skip(t, "%s", r->error.message);
    else if (status) test_fail(t, __FILE__, __LINE__, "device_open: %s", r->error.message);
    return !status;
}

void host_rig_check(test *t, int want_warnings, const char *words) {
    rig r;
    host_warnings w;
    beryl_log log;
    if (!host_rig_open(t, &r, &log, &w)) return;
    CHECK_INT(t, host_rig_run(t, &r, 4), 7);
    CHECK_INT(t, w.n, want_warnings);
    if (w.n && words && !strstr(w.last, words))
        test_fail(t, __FILE__, __LINE__, "the warning is \"%s\"", w.last);
    rig_close(t, &r);
}

void host_rig_compiler(test *t, const char *name, const char *script) {
    char path[700];
    snprintf(path, sizeof path, "%s/%s", test_scratch(t), name);
    CHECK_INT(t, base_folder_make(path, NULL), BERYL_OK);
    char *end = path + strlen(path);
    setenv("PATH", path, 1);
    snprintf(end, sizeof path - strlen(path), "/cc");
    CHECK_INT(t, base_file_write(path, script, strlen(script), NULL), BERYL_OK);
    CHECK(t, !chmod(path, 0755));
}
