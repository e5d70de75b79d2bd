/* texts.c - the stand-in's compiler: NVRTC's calls and hiprtc's over the machine's own C++
 * compiler.
 *
 * The text stands behind prelude.h, and behind it one way in for each kernel found in it. The image
 * is the shared object with a head, so that a driver sees whether it is one. What the compiler says
 * is handed on, for NVRTC in NVIDIA's form. Options that Beryl's texts count on must be given.
 */
#define _GNU_SOURCE /* mkdtemp */
#include "calls.h"
#include "texts.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef STAND_IN_PRELUDE
#define STAND_IN_PRELUDE "tests/stand_in/prelude.h"
#endif

#define API __attribute__((visibility("default")))

static const char magic[8] = "standin";

typedef struct text {
    char *source, *name, *log, *image;
    size_t image_size;
} text;

const void *stand_in_image(const void *image, size_t *size) {
    if (!image || memcmp(image, magic, sizeof magic)) return NULL;
    uint64_t n;
    memcpy(&n, (const char *)image + 8, 8);
    *size = (size_t)n;
    return (const char *)image + 16;
}

/* The next kernel's name from *at on, [*size] bytes, or NULL. */
static const char *next_kernel(const char **at, size_t *size) {
    const char *p = strstr(*at, "__global__");
    if (!p) return NULL;
    for (p += strlen("__global__"); *p;) {
        while (*p && !isalnum((unsigned char)*p) && *p != '_') p++;
        const char *word = p;
        while (isalnum((unsigned char)*p) || *p == '_') p++;
        size_t n = (size_t)(p - word);
        const char *after = p + strspn(p, " \n");
        if (*after != '(') continue;
        if (strncmp(word, "__launch_bounds__", n) && strncmp(word, "__attribute__", n)) {
            *at = after;
            *size = n;
            return word;
        }
        int depth = 0;
        for (p = after; *p; p++) {
            depth += (*p == '(') - (*p == ')');
            if (!depth) break;
        }
        if (*p) p++;
    }
    return NULL;
}

static bool write_source(const text *t, const char *path) {
    FILE *file = fopen(path, "w");
    if (!file) return false;
    fputs(t->source, file);
    const char *at = t->source, *name;
    size_t n;
    while ((name = next_kernel(&at, &n)))
        fprintf(
            file,
            "\nextern \"C\" __global__ void stand_in_run_%.*s(void **at) {\n"
            "    stand_in_run(%.*s, at);\n}\n"
            "extern \"C\" __global__ const unsigned int *stand_in_sizes_%.*s(unsigned int *n) {\n"
            "    return stand_in_sizes(%.*s, n);\n}\n",
            (int)n, name, (int)n, name, (int)n, name, (int)n, name);
    return !fclose(file);
}

/* The whole file behind `before` bytes of nothing, NUL-terminated. */
static char *read_file(const char *path, size_t before, size_t *size) {
    FILE *file = fopen(path, "rb");
    char *bytes = NULL;
    *size = 0;
    if (!file) return NULL;
    if (!fseek(file, 0, SEEK_END)) {
        long n = ftell(file);
        bytes = n >= 0 ? calloc(1, before + (size_t)n + 1) : NULL;
        rewind(file);
        if (bytes) *size = fread(bytes + before, 1, (size_t)n, file);
    }
    fclose(file);
    return bytes;
}

/* "FOLDER/text.cc:3:20: error: ..." as "NAME(3): error: ...", other lines as they are. */
static char *as_nvidia(const char *log, const char *name) {
    size_t room = 2 * strlen(log) + 4096, at = 0;
    char *out = calloc(1, room);
    for (const char *line = log; out && *line;) {
        size_t n = strcspn(line, "\n");
        const char *place = strstr(line, "text.cc:");
        unsigned row = 0, column = 0;
        const char *error = strstr(line, ": error: ");
        if (place && error && place < line + n && error < line + n &&
            sscanf(place, "text.cc:%u:%u", &row, &column) == 2)
            at += (size_t)snprintf(out + at, room - at, "%s(%u)%.*s\n", name, row,
                                   (int)(line + n - error), error);
        else at += (size_t)snprintf(out + at, room - at, "%.*s\n", (int)n, line);
        if (at >= room) break;
        line += n + (line[n] != 0);
    }
    return out;
}

static int compile(text *t, bool nvidia) {
    char folder[64] = "/tmp/beryl-stand-in-XXXXXX", path[100], command[1200];
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/text.cc", folder);
    int code = write_source(t, path) ? 0 : 1;
    const char *compiler = getenv("BERYL_STAND_IN_CXX");
    snprintf(command, sizeof command,
             "%s -x c++ -std=c++17 -nostdinc++ -w -fPIC -shared -fno-exceptions -fno-rtti "
             "-fvisibility=hidden -ffp-contract=off -include %s -o %s/text.so %s/text.cc -lm "
             "2> %s/log",
             compiler ? compiler : "clang -O0", STAND_IN_PRELUDE, folder, folder, folder);
    if (!code && system(command)) code = 6; /* both call this a failed compile */
    size_t size = 0;
    snprintf(path, sizeof path, "%s/log", folder);
    free(t->log);
    t->log = read_file(path, 0, &size);
    if (t->log && nvidia) {
        char *log = as_nvidia(t->log, t->name);
        free(t->log);
        t->log = log;
    }
    snprintf(path, sizeof path, "%s/text.so", folder);
    free(t->image);
    t->image = code ? NULL : read_file(path, 16, &size);
    t->image_size = t->image ? size + 16 : 0;
    if (t->image) {
        uint64_t n = size;
        memcpy(t->image, magic, sizeof magic);
        memcpy(t->image + 8, &n, 8);
    }
    static const char *const files[] = {"text.cc", "text.so", "log"};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    rmdir(folder);
    return code ? code : t->image ? 0 : 1;
}

static bool has_option(int n, const char *const *options, const char *begin) {
    for (int i = 0; i < n; i++)
        if (!strncmp(options[i], begin, strlen(begin))) return true;
    return false;
}

static int make(text **out, const char *source, const char *name) {
    text *t = calloc(1, sizeof *t);
    if (!t) return 1;
    t->source = strdup(source);
    t->name = strdup(name ? name : "text");
    if (!t->source || !t->name) return free(t->source), free(t->name), free(t), 1;
    stand_in_count(1);
    *out = t;
    return 0;
}

static int drop(text **t) {
    free((*t)->source);
    free((*t)->name);
    free((*t)->log);
    free((*t)->image);
    free(*t);
    *t = NULL;
    stand_in_count(-1);
    return 0;
}

static int copy_log(const text *t, char *to) {
    strcpy(to, t->log ? t->log : "");
    return 0;
}

static int set_size(size_t *to, size_t size) {
    *to = size;
    return size ? 0 : 1;
}

static int copy_image(const text *t, char *to) {
    if (!t->image) return 1;
    memcpy(to, t->image, t->image_size);
    return 0;
}

static int set_version(int *major, int *minor, int a, int b) {
    *major = a;
    *minor = b;
    return 0;
}

static int set_chips(int *chips) {
    static const int known[] = {60, 70, 80, 90};
    memcpy(chips, known, sizeof known);
    return 0;
}

#define ONE(name, parameters, call)              \
    API int name parameters {                    \
        int failed = stand_in_enter_call(#name); \
        return failed ? failed : call;           \
    }
#define BOTH(cuda_name, hip_name, parameters, call) \
    ONE(cuda_name, parameters, call)                \
    ONE(hip_name, parameters, call)

ONE(nvrtcVersion, (int *major, int *minor), set_version(major, minor, 12, 4))
ONE(hiprtcVersion, (int *major, int *minor), set_version(major, minor, 9, 0))
BOTH(nvrtcCreateProgram, hiprtcCreateProgram,
     (text * *t, const char *source, const char *name, int n, const char **headers,
      const char **names),
     n || headers || names ? 1 : make(t, source, name))
API int nvrtcDestroyProgram(text **t) {
    return drop(t);
}
API int hiprtcDestroyProgram(text **t) {
    return drop(t);
}
ONE(nvrtcCompileProgram, (text * t, int n, const char *const *options),
    has_option(n, options, "--fmad=false") &&
            (has_option(n, options, "--gpu-architecture=sm_70") ||
             has_option(n, options, "--gpu-architecture=compute_70"))
        ? compile(t, true)
        : 5)
ONE(hiprtcCompileProgram, (text * t, int n, const char *const *options),
    has_option(n, options, "-ffp-contract=off") &&
            has_option(n, options, "--offload-arch=gfx1100:sramecc-:xnack-")
        ? compile(t, false)
        : 5)
BOTH(nvrtcGetProgramLogSize, hiprtcGetProgramLogSize, (text * t, size_t *size),
     set_size(size, (t->log ? strlen(t->log) : 0) + 1))
BOTH(nvrtcGetProgramLog, hiprtcGetProgramLog, (text * t, char *to), copy_log(t, to))
BOTH(nvrtcGetCUBINSize, hiprtcGetCodeSize, (text * t, size_t *size), set_size(size, t->image_size))
BOTH(nvrtcGetCUBIN, hiprtcGetCode, (text * t, char *to), copy_image(t, to))
ONE(nvrtcGetPTXSize, (text * t, size_t *size), set_size(size, t->image_size))
ONE(nvrtcGetPTX, (text * t, char *to), copy_image(t, to))
ONE(nvrtcGetNumSupportedArchs, (int *n), (*n = 4, 0))
ONE(nvrtcGetSupportedArchs, (int *chips), set_chips(chips))
