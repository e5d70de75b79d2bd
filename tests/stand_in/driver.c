/* driver.c - the stand-in's driver: CUDA's driver API and HIP's runtime, as far as Beryl calls
 * them.
 *
 * Two devices of 256 MB, whose memory is the host's and begins full of 0xa5. A stream is a thread
 * that runs what was put into it in order, so everything is as asynchronous as on hardware: memory
 * that is used again too early is found here. Copies are checked against what is allocated; one
 * that leaves it, or a kernel whose lanes wait for each other for ever, loses the context, and
 * every later call says so.
 */
#define _GNU_SOURCE /* mkstemp, clock_gettime */
#include "calls.h"
#include "lanes.h"
#include "stand_in.h"
#include "texts.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    INVALID = 1,
    NO_MEMORY = 2,
    NO_CONTEXT = 201,
    NO_IMAGE = 200,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    KERNEL_FAILED = 719,
    N_DEVICE = 2,
    ARGUMENT_MAX = 20,
    ARGUMENT_BYTES = 1024
};
#define MEMORY_TOTAL ((size_t)256 << 20)

typedef struct context {
    int device, lost;
    bool shared; /* HIP's, never dropped */
} context;

typedef struct module {
    void *library;
    context *owner;
} module;

typedef struct function {
    void (*run)(void **arguments);
    const unsigned *sizes;
    unsigned n;
    struct function *next; /* all that were ever found: a module's functions go with it */
    module *owner;
} function;

typedef struct event {
    uint64_t wanted, done; /* records */
    double time;           /* of the last that was passed, in milliseconds */
} event;

typedef struct launch {
    function *f;
    uint32_t groups[3], size[3];
    unsigned char bytes[ARGUMENT_BYTES];
} launch;

typedef struct command {
    enum { COPY_IN, COPY_OUT, COPY, FILL, RECORD, LAUNCH } kind;
    struct command *next;
    uint64_t to, from;
    size_t size;
    uint32_t value;
    event *e;
    uint64_t serial;
    launch l;
} command;

typedef struct stream {
    context *owner;
    pthread_t thread;
    command *first, *last;
    bool busy, closing;
    lanes *lanes;
    struct stream *next;
} stream;

typedef struct allocation {
    struct allocation *next;
    uint64_t at;
    size_t size;
    context *owner;
} allocation;

typedef struct graph {
    launch *nodes;
    size_t n;
    const struct graph *of; /* an instance: what it was made of, whose nodes' names it is told by */
    struct graph *next;     /* of those alive */
} graph;

/* The driver's own state: a driver has no handle, so it is the process's. */
static struct state {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    stream *streams;
    allocation *allocations;
    function *functions;
    graph *graphs;
    size_t used[N_DEVICE];
    context hip[N_DEVICE];
    uint32_t microseconds;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .changed = PTHREAD_COND_INITIALIZER,
           .hip = {{0, 0, true}, {1, 0, true}}};

static _Thread_local context *current;

#define API __attribute__((visibility("default")))

API void stand_in_slow(uint32_t microseconds) {
    __atomic_store_n(&state.microseconds, microseconds, __ATOMIC_RELAXED);
}

/* ---- streams --------------------------------------------------------------------------------- */

static bool inside(uint64_t at, size_t size, int device) {
    bool found = false;
    pthread_mutex_lock(&state.lock);
    for (allocation *a = state.allocations; a && !found; a = a->next)
        found = a->owner->device == device && at >= a->at && at - a->at <= a->size &&
                size <= a->size - (at - a->at);
    pthread_mutex_unlock(&state.lock);
    return found;
}

static void *memory_at(uint64_t at) {
    return (void *)(uintptr_t)at;
}

static int run_launch(stream *s, launch *l) {
    void *arguments[ARGUMENT_MAX];
    size_t at = 0;
    for (unsigned i = 0; i < l->f->n; i++) {
        arguments[i] = l->bytes + at;
        at += (l->f->sizes[i] + 15) & ~(size_t)15;
    }
    if (!s->lanes) s->lanes = lanes_open();
    return s->lanes && lanes_run(s->lanes, l->f->run, arguments, l->groups, l->size)
               ? 0
               : KERNEL_FAILED;
}

static int run(stream *s, command *c) {
    int device = s->owner->device;
    uint32_t wait = __atomic_load_n(&state.microseconds, __ATOMIC_RELAXED);
    if (wait) usleep(wait);
    switch (c->kind) {
    case COPY_IN:
        if (!inside(c->to, c->size, device)) return ILLEGAL_ADDRESS;
        memcpy(memory_at(c->to), memory_at(c->from), c->size);
        return 0;
    case COPY_OUT:
        if (!inside(c->from, c->size, device)) return ILLEGAL_ADDRESS;
        memcpy(memory_at(c->to), memory_at(c->from), c->size);
        return 0;
    case COPY:
        if (!inside(c->from, c->size, device) || !inside(c->to, c->size, device))
            return ILLEGAL_ADDRESS;
        memmove(memory_at(c->to), memory_at(c->from), c->size);
        return 0;
    case FILL:
        if (!inside(c->to, c->size, device)) return ILLEGAL_ADDRESS;
        for (size_t i = 0; i < c->size / 4; i++) ((uint32_t *)memory_at(c->to))[i] = c->value;
        return 0;
    case RECORD: return 0;
    case LAUNCH: return run_launch(s, &c->l);
    }
    return INVALID;
}

static void *work(void *user) {
    stream *s = user;
    pthread_mutex_lock(&state.lock);
    for (;;) {
        while (!s->first && !s->closing) pthread_cond_wait(&state.changed, &state.lock);
        if (!s->first) break;
        command *c = s->first;
        s->first = c->next;
        if (!s->first) s->last = NULL;
        bool lost = s->owner->lost != 0;
        s->busy = true;
        pthread_mutex_unlock(&state.lock);
        int code = lost ? 0 : run(s, c);
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        pthread_mutex_lock(&state.lock);
        if (code && !s->owner->lost) s->owner->lost = code;
        if (c->kind == RECORD) {
            c->e->done = c->serial;
            c->e->time = (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
        }
        s->busy = false;
        free(c);
        pthread_cond_broadcast(&state.changed);
    }
    pthread_mutex_unlock(&state.lock);
    lanes_close(s->lanes);
    return NULL;
}

static void drain(const stream *s) {
    pthread_mutex_lock(&state.lock);
    while (s->first || s->busy) pthread_cond_wait(&state.changed, &state.lock);
    pthread_mutex_unlock(&state.lock);
}

static void drain_all(const context *of) {
    pthread_mutex_lock(&state.lock);
    for (stream *s = state.streams; s;) {
        if (s->owner == of && (s->first || s->busy)) {
            pthread_cond_wait(&state.changed, &state.lock);
            s = state.streams;
        } else {
            s = s->next;
        }
    }
    pthread_mutex_unlock(&state.lock);
}

static int put(stream *s, command c) {
    command *copy = malloc(sizeof *copy);
    if (!copy) return NO_MEMORY;
    *copy = c;
    copy->next = NULL;
    pthread_mutex_lock(&state.lock);
    if (s->last) s->last->next = copy;
    else s->first = copy;
    s->last = copy;
    pthread_cond_broadcast(&state.changed);
    pthread_mutex_unlock(&state.lock);
    return 0;
}

/* ---- the calls, once for both ---------------------------------------------------------------- */

static int usable(void) {
    if (!current) return NO_CONTEXT;
    pthread_mutex_lock(&state.lock);
    int lost = current->lost;
    pthread_mutex_unlock(&state.lock);
    return lost;
}

static int memory_take(uint64_t *at, size_t size) {
    int code = usable();
    if (code) return code;
    allocation *a = calloc(1, sizeof *a);
    pthread_mutex_lock(&state.lock);
    bool room = a && size && size <= MEMORY_TOTAL - state.used[current->device];
    if (room) state.used[current->device] += size;
    pthread_mutex_unlock(&state.lock);
    void *memory = room ? malloc(size) : NULL;
    if (!memory) return free(a), NO_MEMORY;
    memset(memory, 0xa5, size < 65536 ? size : 65536);
    *at = (uint64_t)(uintptr_t)memory;
    pthread_mutex_lock(&state.lock);
    *a = (allocation){state.allocations, *at, size, current};
    state.allocations = a;
    pthread_mutex_unlock(&state.lock);
    stand_in_count(1);
    return 0;
}

/* What lies there, or any of the owner's. */
static bool memory_end(uint64_t at, const context *owner) {
    pthread_mutex_lock(&state.lock);
    allocation **a = &state.allocations, *found;
    while ((found = *a) && (owner ? found->owner != owner : found->at != at)) a = &found->next;
    if (found) *a = found->next, state.used[found->owner->device] -= found->size;
    pthread_mutex_unlock(&state.lock);
    if (!found) return false;
    free(memory_at(found->at)), free(found), stand_in_count(-1);
    return true;
}

static int memory_give(uint64_t at) {
    if (!current) return NO_CONTEXT;
    drain_all(current);
    return memory_end(at, NULL) ? usable() : INVALID;
}

static int host_take(void **at, size_t size) {
    int code = usable();
    if (code) return code;
    *at = malloc(size);
    if (!*at) return NO_MEMORY;
    memset(*at, 0xa5, size < 65536 ? size : 65536);
    stand_in_count(1);
    return 0;
}

static int host_give(void *at) {
    free(at);
    stand_in_count(-1);
    return 0;
}

static int stream_make(stream **out) {
    int code = usable();
    if (code) return code;
    stream *s = calloc(1, sizeof *s);
    if (!s) return NO_MEMORY;
    s->owner = current;
    if (pthread_create(&s->thread, NULL, work, s)) return free(s), NO_MEMORY;
    pthread_mutex_lock(&state.lock);
    s->next = state.streams;
    state.streams = s;
    pthread_mutex_unlock(&state.lock);
    stand_in_count(1);
    *out = s;
    return 0;
}

static int stream_drop(stream *s) {
    pthread_mutex_lock(&state.lock);
    s->closing = true;
    pthread_cond_broadcast(&state.changed);
    stream **at = &state.streams;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    pthread_mutex_unlock(&state.lock);
    pthread_join(s->thread, NULL);
    free(s);
    stand_in_count(-1);
    return 0;
}

static int stream_wait(stream *s) {
    drain(s);
    return usable();
}

static int event_make(event **out) {
    int code = usable();
    if (code) return code;
    *out = calloc(1, sizeof **out);
    if (!*out) return NO_MEMORY;
    stand_in_count(1);
    return 0;
}

static int event_drop(event *e) {
    pthread_mutex_lock(&state.lock);
    while (e->done != e->wanted) pthread_cond_wait(&state.changed, &state.lock);
    pthread_mutex_unlock(&state.lock);
    free(e);
    stand_in_count(-1);
    return 0;
}

static int event_record(event *e, stream *s) {
    int code = usable();
    if (code) return code;
    pthread_mutex_lock(&state.lock);
    uint64_t serial = ++e->wanted;
    pthread_mutex_unlock(&state.lock);
    return put(s, (command){.kind = RECORD, .e = e, .serial = serial});
}

static int event_query(event *e) {
    int code = usable();
    pthread_mutex_lock(&state.lock);
    bool done = e->done == e->wanted;
    pthread_mutex_unlock(&state.lock);
    return code ? code : done ? 0 : NOT_READY;
}

static int event_wait(event *e) {
    pthread_mutex_lock(&state.lock);
    while (e->done != e->wanted) pthread_cond_wait(&state.changed, &state.lock);
    pthread_mutex_unlock(&state.lock);
    return usable();
}

static int event_elapsed(float *milliseconds, event *from, event *to) {
    int code = event_query(from);
    if (!code) code = event_query(to);
    if (!code) *milliseconds = (float)(to->time - from->time);
    return code;
}

static int module_load(module **out, const void *image) {
    int code = usable();
    size_t size = 0;
    const void *bytes = stand_in_image(image, &size);
    if (code || !bytes) return code ? code : NO_IMAGE;
    char path[64] = "/tmp/beryl-stand-in-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0) return NO_MEMORY;
    bool whole = write(fd, bytes, size) == (ssize_t)size;
    close(fd);
    void *library = whole ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    unlink(path);
    void *const *host = library ? dlsym(library, "stand_in_host") : NULL;
    module *m = host ? calloc(1, sizeof *m) : NULL;
    if (!m) {
        if (library) dlclose(library);
        return NO_IMAGE;
    }
    memcpy(dlsym(library, "stand_in_host"), &lanes_table, sizeof lanes_table);
    *m = (module){library, current};
    stand_in_count(1);
    *out = m;
    return 0;
}

static int module_drop(module *m) {
    drain_all(m->owner); /* what still runs of it has been waited for, as drivers do */
    pthread_mutex_lock(&state.lock);
    for (function **f = &state.functions; *f;) {
        function *one = *f;
        if (one->owner != m) {
            f = &one->next;
            continue;
        }
        *f = one->next;
        free(one);
    }
    pthread_mutex_unlock(&state.lock);
    dlclose(m->library);
    free(m);
    stand_in_count(-1);
    return usable();
}

static int module_function(function **out, module *m, const char *name) {
    int code = usable();
    char symbol[160];
    if (code || strlen(name) > 100) return code ? code : NOT_FOUND;
    function f = {.owner = m};
    const unsigned *(*sizes)(unsigned *n);
    snprintf(symbol, sizeof symbol, "stand_in_run_%s", name);
    void *address = dlsym(m->library, symbol);
    memcpy(&f.run, &address, sizeof address);
    snprintf(symbol, sizeof symbol, "stand_in_sizes_%s", name);
    void *layout = dlsym(m->library, symbol);
    memcpy(&sizes, &layout, sizeof layout);
    if (!address || !layout) return NOT_FOUND;
    f.sizes = sizes(&f.n);
    function *kept = malloc(sizeof *kept);
    if (!kept || f.n > ARGUMENT_MAX) return free(kept), NO_MEMORY;
    pthread_mutex_lock(&state.lock);
    f.next = state.functions;
    *kept = f;
    state.functions = kept;
    pthread_mutex_unlock(&state.lock);
    *out = kept;
    return 0;
}

static int pack(launch *l, function *f, const unsigned groups[3], const unsigned size[3],
                void **arguments) {
    l->f = f;
    size_t at = 0;
    for (int i = 0; i < 3; i++) {
        l->groups[i] = groups[i], l->size[i] = size[i];
        if (!groups[i] || !size[i]) return INVALID;
    }
    if ((uint64_t)size[0] * size[1] * size[2] > 1024 || groups[1] > 65535 || groups[2] > 65535)
        return INVALID;
    for (unsigned i = 0; i < f->n; i++) {
        if (at + f->sizes[i] > ARGUMENT_BYTES) return INVALID;
        memcpy(l->bytes + at, arguments[i], f->sizes[i]);
        at += (f->sizes[i] + 15) & ~(size_t)15;
    }
    return 0;
}

static int do_launch(function *f, const unsigned groups[3], const unsigned size[3], stream *s,
                     void **arguments) {
    command c = {.kind = LAUNCH};
    int code = usable();
    if (!code) code = pack(&c.l, f, groups, size, arguments);
    return code ? code : put(s, c);
}

static int do_copy(int kind, uint64_t to, uint64_t from, size_t size, uint32_t value, stream *s) {
    int code = usable();
    command c = {.to = to, .from = from, .size = size, .value = value};
    c.kind = kind == 0 ? COPY_IN : kind == 1 ? COPY_OUT : kind == 2 ? COPY : FILL;
    return code ? code : put(s, c);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static int graph_make(graph **out) {
    int code = usable();
    if (code) return code;
    *out = calloc(1, sizeof **out);
    if (!*out) return NO_MEMORY;
    pthread_mutex_lock(&state.lock);
    (*out)->next = state.graphs;
    state.graphs = *out;
    pthread_mutex_unlock(&state.lock);
    stand_in_count(1);
    return 0;
}

static int graph_drop(graph *g) {
    graph **at = &state.graphs;
    pthread_mutex_lock(&state.lock);
    while (*at && *at != g) at = &(*at)->next;
    if (*at) *at = g->next;
    pthread_mutex_unlock(&state.lock);
    free(g->nodes);
    free(g);
    stand_in_count(-1);
    return 0;
}

/* A node is its number + 1. Only chains are known here. */
static int graph_add(void **node, graph *g, void *const *before, size_t n, const launch *l) {
    if (n > 1 || (g->n ? n != 1 || before[0] != (void *)(uintptr_t)g->n : n)) return INVALID;
    launch *nodes = realloc(g->nodes, (g->n + 1) * sizeof *nodes);
    if (!nodes) return NO_MEMORY;
    g->nodes = nodes;
    g->nodes[g->n++] = *l;
    *node = (void *)(uintptr_t)g->n;
    return 0;
}

static int exec_make(graph **out, const graph *g) {
    int code = graph_make(out);
    if (code) return code;
    (*out)->nodes = malloc((g->n + 1) * sizeof *g->nodes);
    if (!(*out)->nodes) return graph_drop(*out), NO_MEMORY;
    memcpy((*out)->nodes, g->nodes, g->n * sizeof *g->nodes);
    (*out)->n = g->n;
    (*out)->of = g;
    return 0;
}

static int exec_set(graph *g, void *node, const launch *l) {
    size_t at = (size_t)(uintptr_t)node;
    pthread_mutex_lock(&state.lock);
    const graph *of = state.graphs;
    while (of && of != g->of) of = of->next;
    pthread_mutex_unlock(&state.lock);
    if (!of || !at || at > g->n) return INVALID;
    g->nodes[at - 1] = *l;
    return 0;
}

static int exec_launch(const graph *g, stream *s) {
    int code = usable();
    for (size_t i = 0; i < g->n && !code; i++)
        code = put(s, (command){.kind = LAUNCH, .l = g->nodes[i]});
    return code;
}

typedef struct cuda_node {
    function *f;
    unsigned groups[3], size[3], bytes;
    void **arguments, **extra;
} cuda_node;

typedef struct hip_node {
    unsigned size[3];
    void **extra;
    function *f;
    unsigned groups[3];
    void **arguments;
    unsigned bytes;
} hip_node;

static int cuda_pack(launch *l, const cuda_node *p) {
    return p->bytes > 96 << 10 || p->extra ? INVALID
                                           : pack(l, p->f, p->groups, p->size, p->arguments);
}
static int hip_pack(launch *l, const hip_node *p) {
    return p->bytes > 96 << 10 || p->extra ? INVALID
                                           : pack(l, p->f, p->groups, p->size, p->arguments);
}

/* ---- contexts -------------------------------------------------------------------------------- */

static int context_make(void **out, int device) {
    if (device < 0 || device >= N_DEVICE) return 101;
    context *c = calloc(1, sizeof *c);
    if (!c) return NO_MEMORY;
    c->device = device;
    stand_in_count(1);
    current = *out = c;
    return 0;
}

static int context_drop(context *c) {
    drain_all(c);
    while (memory_end(0, c)) continue; /* its memory goes with it */
    if (current == c) current = NULL;
    free(c);
    stand_in_count(-1);
    return 0;
}

static int context_set(context *c) {
    current = c;
    return 0;
}

static int context_get(void **out) {
    *out = current;
    return 0;
}

static int device_set(int device) {
    if (device < 0 || device >= N_DEVICE) return 101;
    current = &state.hip[device];
    return 0;
}

/* After a loss a process would have to end: HIP's contexts here begin anew with hipInit. */
static int hip_init(void) {
    pthread_mutex_lock(&state.lock);
    for (int i = 0; i < N_DEVICE; i++) state.hip[i].lost = 0;
    pthread_mutex_unlock(&state.lock);
    return 0;
}

/* ---- facts ----------------------------------------------------------------------------------- */

static int set_int(int *to, int value) {
    *to = value;
    return 0;
}

static int set_name(char *to, int room, const char *name) {
    snprintf(to, (size_t)room, "%s", name);
    return 0;
}

static int set_total(size_t *to) {
    *to = MEMORY_TOTAL;
    return 0;
}

/* The second device's chip is one that the compiler does not know. */
static int cuda_attribute(int *value, int what, int device) {
    switch (what) {
    case 1:
    case 2:
    case 3: return set_int(value, 1024);
    case 4: return set_int(value, 64);
    case 8: return set_int(value, 48 << 10);
    case 97: return set_int(value, 96 << 10);
    case 10: return set_int(value, 32);
    case 16: return set_int(value, 2);
    case 18: return set_int(value, 0);
    case 75: return set_int(value, 7);
    case 76: return set_int(value, device ? 5 : 0);
    default: return INVALID;
    }
}

static int hip_attribute(int *value, int what) {
    switch (what) {
    case 56:
    case 26:
    case 27:
    case 28: return set_int(value, 1024);
    case 74: return set_int(value, 64 << 10);
    case 87: return set_int(value, 32);
    case 63: return set_int(value, 2);
    case 16: return set_int(value, 0);
    case 23: return set_int(value, 11);
    case 61: return set_int(value, 0);
    default: return INVALID;
    }
}

static int hip_properties(char *to) {
    memset(to, 0, 1472);
    strcpy(to, "stand-in gfx");
    strcpy(to + 1160, "gfx1100:sramecc-:xnack-");
    return 0;
}

static int error_text(int code, const char **text) {
    *text = code == NO_MEMORY         ? "out of memory"
            : code == ILLEGAL_ADDRESS ? "an illegal memory access was encountered"
            : code == KERNEL_FAILED   ? "unspecified launch failure"
                                      : "some error";
    return 0;
}

/* ---- what is exported ------------------------------------------------------------------------ */

#define ONE(name, parameters, call)              \
    API int name parameters {                    \
        int failed = stand_in_enter_call(#name); \
        return failed ? failed : call;           \
    }
#define BOTH(cuda_name, hip_name, parameters, call) \
    ONE(cuda_name, parameters, call)                \
    ONE(hip_name, parameters, call)
/* What gives something back does so even where it tells of a failure, as drivers do. */
#define GIVE_ONE(name, parameters, call)         \
    API int name parameters {                    \
        int failed = stand_in_enter_call(#name); \
        int code = call;                         \
        return failed ? failed : code;           \
    }
#define GIVE(cuda_name, hip_name, parameters, call) \
    GIVE_ONE(cuda_name, parameters, call)           \
    GIVE_ONE(hip_name, parameters, call)

ONE(cuInit, (unsigned flags), flags ? INVALID : 0)
ONE(hipInit, (unsigned flags), flags ? INVALID : hip_init())
ONE(cuDriverGetVersion, (int *version), set_int(version, 12040))
ONE(hipDriverGetVersion, (int *version), set_int(version, 60032830))
BOTH(cuDeviceGetCount, hipGetDeviceCount, (int *n), set_int(n, N_DEVICE))
BOTH(cuDeviceGet, hipDeviceGet, (int *id, int ordinal),
     ordinal < N_DEVICE ? set_int(id, ordinal) : 101)
BOTH(cuDeviceGetName, hipDeviceGetName, (char *to, int room, int id),
     set_name(to, room, id ? "stand-in, second" : "stand-in"))
BOTH(cuDeviceTotalMem_v2, hipDeviceTotalMem, (size_t * bytes, int id), ((void)id, set_total(bytes)))
ONE(cuDeviceGetAttribute, (int *value, int what, int id), cuda_attribute(value, what, id))
ONE(hipDeviceGetAttribute, (int *value, int what, int id), ((void)id, hip_attribute(value, what)))
BOTH(cuGetErrorString, hipDrvGetErrorString, (int code, const char **text), error_text(code, text))
ONE(cuCtxCreate_v2, (void **c, unsigned flags, int id), flags ? INVALID : context_make(c, id))
GIVE_ONE(cuCtxDestroy_v2, (context * c), context_drop(c))
ONE(cuCtxSetCurrent, (context * c), context_set(c))
ONE(cuCtxGetCurrent, (void **c), context_get(c))
ONE(hipSetDevice, (int id), device_set(id))
ONE(hipGetDevice, (int *id), set_int(id, current ? current->device : 0))
ONE(hipGetDevicePropertiesR0600, (char *to, int id), ((void)id, hip_properties(to)))
BOTH(cuMemAlloc_v2, hipMalloc, (uint64_t * at, size_t size), memory_take(at, size))
GIVE(cuMemFree_v2, hipFree, (uint64_t at), memory_give(at))
BOTH(cuMemHostAlloc, hipHostMalloc, (void **at, size_t size, unsigned flags),
     flags > 1 ? INVALID : host_take(at, size))
GIVE(cuMemFreeHost, hipHostFree, (void *at), host_give(at))
BOTH(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync,
     (uint64_t to, const void *from, size_t size, stream *s),
     do_copy(0, to, (uint64_t)(uintptr_t)from, size, 0, s))
BOTH(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync, (void *to, uint64_t from, size_t size, stream *s),
     do_copy(1, (uint64_t)(uintptr_t)to, from, size, 0, s))
BOTH(cuMemcpyDtoDAsync_v2, hipMemcpyDtoDAsync, (uint64_t to, uint64_t from, size_t size, stream *s),
     do_copy(2, to, from, size, 0, s))
BOTH(cuMemsetD32Async, hipMemsetD32Async, (uint64_t to, unsigned value, size_t words, stream *s),
     do_copy(3, to, 0, 4 * words, value, s))
BOTH(cuStreamCreate, hipStreamCreateWithFlags, (stream * *s, unsigned flags),
     flags > 1 ? INVALID : stream_make(s))
GIVE(cuStreamDestroy_v2, hipStreamDestroy, (stream * s), stream_drop(s))
BOTH(cuStreamSynchronize, hipStreamSynchronize, (stream * s), stream_wait(s))
BOTH(cuEventCreate, hipEventCreateWithFlags, (event * *e, unsigned flags),
     flags > 3 ? INVALID : event_make(e))
GIVE(cuEventDestroy_v2, hipEventDestroy, (event * e), event_drop(e))
BOTH(cuEventRecord, hipEventRecord, (event * e, stream *s), event_record(e, s))
BOTH(cuEventQuery, hipEventQuery, (event * e), event_query(e))
BOTH(cuEventSynchronize, hipEventSynchronize, (event * e), event_wait(e))
BOTH(cuEventElapsedTime, hipEventElapsedTime, (float *milliseconds, event *from, event *to),
     event_elapsed(milliseconds, from, to))
BOTH(cuModuleLoadData, hipModuleLoadData, (module * *m, const void *image), module_load(m, image))
GIVE(cuModuleUnload, hipModuleUnload, (module * m), module_drop(m))
BOTH(cuModuleGetFunction, hipModuleGetFunction, (function * *f, module *m, const char *name),
     module_function(f, m, name))
BOTH(cuFuncGetAttribute, hipFuncGetAttribute, (int *value, int what, function *f),
     ((void)f, what ? INVALID : set_int(value, 1024)))
BOTH(cuFuncSetAttribute, hipFuncSetAttribute, (function * f, int what, int value),
     ((void)f, what != 8 || value > 96 << 10 ? INVALID : 0))
BOTH(cuLaunchKernel, hipModuleLaunchKernel,
     (function * f, unsigned gx, unsigned gy, unsigned gz, unsigned x, unsigned y, unsigned z,
      unsigned bytes, stream *s, void **arguments, void **extra),
     bytes > 96 << 10 || extra
         ? INVALID
         : do_launch(f, (unsigned[]){gx, gy, gz}, (unsigned[]){x, y, z}, s, arguments))
BOTH(cuGraphCreate, hipGraphCreate, (graph * *g, unsigned flags), flags ? INVALID : graph_make(g))
GIVE(cuGraphDestroy, hipGraphDestroy, (graph * g), graph_drop(g))
BOTH(cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags,
     (graph * *exec, graph *g, unsigned long long flags), flags ? INVALID : exec_make(exec, g))
BOTH(cuGraphLaunch, hipGraphLaunch, (graph * exec, stream *s), exec_launch(exec, s))
GIVE(cuGraphExecDestroy, hipGraphExecDestroy, (graph * exec), graph_drop(exec))

#define NODE(cuda_name, hip_name, parameters, type, use)        \
    NODE_OF(cuda_name, parameters, cuda_##type, use, cuda_pack) \
    NODE_OF(hip_name, parameters, hip_##type, use, hip_pack)
#define NODE_OF(name, parameters, type, use, pack_it)     \
    API int name parameters {                             \
        launch l;                                         \
        memset(&l, 0, sizeof l);                          \
        int code = stand_in_enter_call(#name);            \
        if (!code) code = pack_it(&l, (const type *)how); \
        return code ? code : use;                         \
    }
NODE(cuGraphAddKernelNode, hipGraphAddKernelNode,
     (void **at, graph *g, void *const *before, size_t n, const void *how), node,
     graph_add(at, g, before, n, &l))
NODE(cuGraphExecKernelNodeSetParams, hipGraphExecKernelNodeSetParams,
     (graph * exec, void *at, const void *how), node, exec_set(exec, at, &l))
