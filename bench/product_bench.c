/* product_bench.c - how fast products with one vector read their weights, as plans have them, on
 * any device: beside what the device reads at all, measured in the same run.
 *   product_bench [--device D] [--mb N] [--k K] [--n N] [--type T]... [fast|exact]...
 *   [WG,LANES,ROWS,DEPTH,GROUPS,N_X]...
 * Without a type: Q4_K; `--type all`: every type. A form (tile/form.h; 0 or nothing: as chosen)
 * is timed beside the chosen one. Reads inside the library: it is for those who work on
 * kernels. */
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A GPU that was idle, while a program was compiled, takes a while to clock up again. */
#define WARM_SECONDS 0.15
enum { RUNS = 12, FORMS_MAX = 64, TYPES_MAX = TYPE_COUNT, PATTERN = 1 << 20 };

typedef struct bench {
    beryl_engine e; /* as much of one as measuring wants */
    const char *device;
    uint64_t bytes;
    uint32_t k, n;
    base_type types[TYPES_MAX];
    lower_form forms[FORMS_MAX];
    uint32_t n_type, n_form;
    bool fast, exact;
    unsigned char *pattern;
    beryl_error error;
} bench;

static beryl_status source_read(void *user, uint64_t offset, void *to, size_t size) {
    const bench *b = user;
    for (size_t done = 0, n; done < size; done += n) {
        const size_t at = (size_t)((offset + done) % PATTERN);
        n = size - done < PATTERN - at ? size - done : PATTERN - at;
        memcpy((char *)to + done, b->pattern + at, n);
    }
    return BERYL_OK;
}

/* Best seconds of a plan's steps; negative: it did not run. */
static double time_of(bench *b, graph_store *store, uint32_t index, bool exact,
                      const lower_form *form) {
    const graph_exec_options options = {
        .exact = exact, .stamped = true, .forms = form, .n_form = form != NULL};
    graph *g = graph_open(&b->e.heap);
    graph_exec *exec = NULL;
    const uint8_t extent = graph_extent_add(g, "n", b->n);
    graph_value x = graph_input(g, "x", TYPE_F32, 2, (graph_dim[]){{b->n, extent}, {b->k, 0}}),
                y = graph_linear(g, x, graph_stored(g, store, index));
    graph_output(g, y, "y");
    beryl_status status = graph_exec_open(g, store, &options, &exec, &b->error);
    while (status == BERYL_OK && (status = graph_exec_ready(exec, &b->error)) == BERYL_PENDING)
        base_sleep(1e-3), status = BERYL_OK;
    float *to = status == BERYL_OK ? graph_exec_input(exec, x) : NULL;
    for (uint32_t i = 0; to && i < b->n * b->k; i++) to[i] = (float)(i % 13) * 0.1f - 0.6f;
    const double first = base_time();
    double best = -1;
    for (int run = 0; status == BERYL_OK && (run < RUNS || base_time() - first < WARM_SECONDS);
         run++) {
        device_ticket ticket;
        const void *data;
        const double start = base_time();
        status = graph_exec_submit(exec, (uint32_t[]){0, b->n}, &y, 1, &ticket, &b->error);
        if (status == BERYL_OK) status = device_wait(b->e.device, ticket, &b->error);
        double seconds = base_time() - start, sum = 0;
        if (status == BERYL_OK) status = graph_exec_fetched(exec, ticket, 0, &data, &b->error);
        graph_exec_step step;
        for (uint32_t i = 0; graph_exec_step_at(exec, i, &step); i++)
            sum += step.microseconds * 1e-6;
        if (sum > 0) seconds = sum;
        if (best < 0 || seconds < best) best = seconds;
    }
    graph_exec_close(exec);
    graph_close(g);
    return status == BERYL_OK ? best : -1;
}

static void line(const bench *b, base_type type, uint32_t m, bool exact, const lower_form *f,
                 double seconds) {
    const double rate = (double)base_type_row_bytes(type, b->k) * m / seconds;
    char form[80] = "as chosen";
    if (f)
        snprintf(form, sizeof form, "wg %u lanes %u rows %u depth %u groups %u n_x %u", f->wg,
                 f->lanes, f->rows, f->depth, f->groups, f->n_x);
    if (seconds < 0)
        printf("%-7s %s %s: %s\n", base_type_name(type), exact ? "exact" : "fast ", form,
               b->error.message);
    else
        printf("%-7s n %u k %u m %u %s %9.1f us %7.1f GB/s %5.1f %% of what is read  %s\n",
               base_type_name(type), b->n, b->k, m, exact ? "exact" : "fast ", seconds * 1e6,
               rate * 1e-9, 100 * rate / b->e.stats.bandwidth, form);
    fflush(stdout);
}

static int run_type(bench *b, base_type type) {
    const uint64_t row = base_type_row_bytes(type, b->k);
    const uint32_t m = (uint32_t)(b->bytes / row / 64 * 64), dim[2] = {m, b->k};
    const beryl_source source = {.size = row * m, .user = b, .read = source_read};
    graph_store store;
    beryl_status status = store_init(&store, &b->e.heap, b->e.device, &source, 1, &b->error);
    const uint32_t index =
        status == BERYL_OK ? store_add_weight(&store, "w", type, 2, dim, 0, 0, 0, false) : 0;
    if (status == BERYL_OK) status = store_layout(&store, 0, &b->error);
    if (status == BERYL_OK) status = store_make(&store, &b->error);
    while (status == BERYL_OK && (status = store_upload_step(&store, &b->error)) != BERYL_OK)
        if (status == BERYL_EVENT || status == BERYL_PENDING) status = BERYL_OK;
    for (int exact = 0; status == BERYL_OK && exact < 2; exact++) {
        if (!(exact ? b->exact : b->fast)) continue;
        line(b, type, m, exact, NULL, time_of(b, &store, index, exact, NULL));
        for (uint32_t i = 0; i < b->n_form; i++)
            line(b, type, m, exact, &b->forms[i], time_of(b, &store, index, exact, &b->forms[i]));
    }
    store_fini(&store);
    if (status != BERYL_OK)
        fprintf(stderr, "product_bench: %s: %s\n", base_type_name(type), b->error.message);
    return status != BERYL_OK;
}

static bool add_type(bench *b, const char *name) {
    bool any = false;
    for (int t = 0; t < TYPE_COUNT; t++) {
        graph_pack_layout layout;
        if ((strcmp(name, "all") && strcmp(name, base_type_name((base_type)t))) ||
            !graph_pack_layout_of((base_type)t, 64, b->k, &layout))
            continue;
        if (b->n_type < TYPES_MAX) b->types[b->n_type++] = (base_type)t, any = true;
    }
    return any;
}

static bool add_form(bench *b, const char *at) {
    if (b->n_form == FORMS_MAX) return false;
    lower_form *f = &b->forms[b->n_form++];
    uint32_t *const numbers[] = {&f->wg, &f->lanes, &f->rows, &f->depth, &f->groups, &f->n_x};
    *f = (lower_form){.weight = "w"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && *at; i++) {
        char *end;
        *numbers[i] = (uint32_t)strtoul(at, &end, 10);
        if (*end && *end != ',') return false;
        at = *end ? end + 1 : end;
    }
    return true;
}

int main(int argc, char **argv) {
    bench *b = calloc(1, sizeof *b);
    if (!b) return 1;
    b->bytes = 1024u << 20, b->k = 1536, b->n = 1;
    const char *names[TYPES_MAX];
    uint32_t n_name = 0;
    bool good = true;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "fast")) b->fast = true;
        else if (!strcmp(argv[i], "exact")) b->exact = true;
        else if (!strncmp(argv[i], "--", 2) && i++ && !*value) good = false;
        else if (!strcmp(argv[i - 1], "--device")) b->device = value;
        else if (!strcmp(argv[i - 1], "--mb")) b->bytes = strtoull(value, NULL, 10) << 20;
        else if (!strcmp(argv[i - 1], "--k")) b->k = (uint32_t)strtoul(value, NULL, 10);
        else if (!strcmp(argv[i - 1], "--n")) b->n = (uint32_t)strtoul(value, NULL, 10);
        else if (!strcmp(argv[i - 1], "--type") && n_name < TYPES_MAX) names[n_name++] = value;
        else good = good && add_form(b, argv[i]);
    }
    if (!n_name) names[n_name++] = "Q4_K";
    for (uint32_t i = 0; i < n_name && b->k; i++) good = add_type(b, names[i]) && good;
    if (!good || !b->n || !b->bytes)
        return fputs("usage: product_bench [--device D] [--mb N] [--k K] [--n N] [--type T|all]... "
                     "[fast|exact]... "
                     "[WG,LANES,ROWS,DEPTH,GROUPS,N_X]...\n",
                     stderr),
               2;
    if (!b->fast && !b->exact) b->fast = b->exact = true;
    b->pattern = malloc(PATTERN);
    uint32_t state = 1;
    for (uint32_t i = 0; b->pattern && i < PATTERN; i++)
        state = state * 1664525u + 1013904223u, b->pattern[i] = (unsigned char)(state >> 24 & 0xbf);
    base_heap_init(&b->e.heap, NULL);
    beryl_status status = b->pattern
                              ? device_open(&b->e.heap, NULL, b->device, &b->e.device, &b->error)
                              : BERYL_NO_MEMORY;
    b->e.loaded = true;
    if (status == BERYL_OK) status = beryl_engine_measure(&b->e, &b->error);
    if (status != BERYL_OK) return fprintf(stderr, "product_bench: %s\n", b->error.message), 1;
    const device_caps *caps = device_caps_of(b->e.device);
    printf("%s %s (%s), subgroups of %u%s; reads %.1f GB/s\n", caps->backend, caps->name,
           caps->driver, caps->subgroup_size, caps->dot_i8 ? ", integer dot products" : "",
           b->e.stats.bandwidth * 1e-9);
    int result = 0;
    for (uint32_t i = 0; i < b->n_type; i++) result |= run_type(b, b->types[i]);
    device_close(b->e.device);
    free(b->pattern);
    free(b);
    return result;
}
