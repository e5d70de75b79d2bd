/* onnx.c - an ONNX file as a graph: opening, and what `show`, `explain` and `bench` make of it. */
#include "onnx.h"
#include "base/file.h"
#include "base/json.h"
#include "base/thread.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { ONNX_MAX = INT32_MAX, REPEAT_MAX = 1000 };

bool cli_is_onnx(const char *path) {
    return path && base_view_ends(base_view_of(path), BASE_VIEW(".onnx"));
}

/* ---- opening --------------------------------------------------------------------------------- */

/* "NAME=N" of --extent; names are copied into `names`. Wrong use is told already. */
static beryl_status extents_read(cli *c, base_text *names, beryl_onnx_extent *to) {
    const args *a = &c->args;
    size_t at[ARGS_TEXTS_MAX];
    for (size_t i = 0; i < a->n_texts; i++) {
        const char *equals = strrchr(a->texts[i], '=');
        char *end = NULL;
        const unsigned long long size =
            equals && equals[1] >= '0' && equals[1] <= '9' ? strtoull(equals + 1, &end, 10) : 0;
        if (!size || *end || size > INT32_MAX || equals == a->texts[i]) {
            cli_usage(c, "--extent takes NAME=N, not '%s'", a->texts[i]);
            return BERYL_MISUSE;
        }
        at[i] = names->size;
        to[i].size = (uint32_t)size;
        base_text_add(names, a->texts[i], (size_t)(equals - a->texts[i]));
        base_text_add(names, "", 1);
    }
    for (size_t i = 0; !names->failed && i < a->n_texts; i++) to[i].name = names->data + at[i];
    return names->failed ? BERYL_NO_MEMORY : BERYL_OK;
}

beryl_status cli_onnx_open(cli *c, const char *path, beryl_onnx_options how, cli_onnx *m,
                           beryl_error *error) {
    const args *a = &c->args;
    const beryl_graph_options options = {.size = sizeof options,
                                         .device = args_text(a, FLAG_DEVICE),
                                         .precision = cli_precision(c),
                                         .memory = a->values[FLAG_MEMORY].integer,
                                         .log = cli_log(c)};
    beryl_onnx_extent extents[ARGS_TEXTS_MAX];
    base_text folder, names;
    const char *slash = strrchr(path, '/');
    base_text_init(&folder, &c->heap);
    base_text_init(&names, &c->heap);
    if (slash) base_text_add(&folder, path, slash == path ? 1 : (size_t)(slash - path));
    else base_text_add(&folder, ".", 1);
    beryl_status status = extents_read(c, &names, extents);
    if (!status && folder.failed) status = BERYL_NO_MEMORY;
    if (!status) status = base_file_read(&c->heap, path, ONNX_MAX, &m->file, &m->size, error);
    if (!status) status = beryl_graph_open(&options, &m->g, error);
    how.folder = folder.data;
    how.extents = extents;
    how.n_extent = a->n_texts;
    if (!status) status = beryl_graph_from_onnx(m->g, m->file, m->size, &how, error);
    base_text_fini(&folder);
    base_text_fini(&names);
    return status;
}

void cli_onnx_close(cli *c, cli_onnx *m) {
    beryl_graph_close(m->g);
    if (m->file) base_heap_give(&c->heap, m->file, m->size + 1);
    *m = (cli_onnx){0};
}

beryl_status cli_onnx_compile(cli_onnx *m, beryl_error *error) {
    beryl_status status;
    while ((status = beryl_graph_compile(m->g, error)) == BERYL_PENDING) base_sleep(1e-4);
    return status;
}

beryl_status cli_onnx_run(cli_onnx *m, beryl_error *error) {
    beryl_status status;
    while ((status = beryl_graph_run(m->g, NULL, 0, error)) == BERYL_PENDING) base_sleep(1e-4);
    return status ? status : beryl_graph_wait(m->g, error);
}

static int report(cli *c, beryl_status status, const beryl_error *error) {
    return status == BERYL_MISUSE && !*error->message ? CLI_USAGE : cli_report(c, status, error);
}

/* ---- explain --------------------------------------------------------------------------------- */

int cli_onnx_explain(cli *c, const char *path, const beryl_explain_options *options,
                     void (*write)(void *user, const char *text, size_t size)) {
    cli_onnx m = {0};
    beryl_error error = {0};
    const beryl_onnx_options how = {.size = sizeof how};
    beryl_status status = cli_onnx_open(c, path, how, &m, &error);
    if (!status) status = beryl_graph_explain(m.g, options, write, c, &error);
    cli_onnx_close(c, &m);
    return report(c, status, &error);
}

/* ---- bench ----------------------------------------------------------------------------------- */

/* How an element of each type is drawn: floats of either sign from 0.5 to 1 by their bits, whole
 * numbers 0 or 1, which are indices of anything. */
static const struct {
    beryl_type type;
    uint32_t bytes;
    uint64_t one, drawn; /* what all have; bits that are drawn */
} draws[] = {
    {BERYL_TYPE_F32, 4, 0x3f000000, 0x807fffff},
    {BERYL_TYPE_F16, 2, 0x3800, 0x83ff},
    {BERYL_TYPE_BF16, 2, 0x3f00, 0x807f},
    {BERYL_TYPE_F64, 8, 0x3fe0000000000000, 0x800fffffffffffff},
    {BERYL_TYPE_I8, 1, 0, 1},
    {BERYL_TYPE_I16, 2, 0, 1},
    {BERYL_TYPE_I32, 4, 0, 1},
    {BERYL_TYPE_I64, 8, 0, 1},
    {BERYL_TYPE_U8, 1, 0, 1},
    {BERYL_TYPE_U16, 2, 0, 1},
    {BERYL_TYPE_U32, 4, 0, 1},
    {BERYL_TYPE_BOOL, 1, 0, 1},
};

static beryl_status draw(cli *c, cli_onnx *m, const beryl_port *port, base_random *random,
                         beryl_error *error) {
    size_t row = 0, n = 1;
    while (row + 1 < sizeof draws / sizeof *draws && draws[row].type != port->type) row++;
    for (uint32_t i = 0; i < port->rank; i++) n *= port->dims[i].size;
    const size_t bytes = draws[row].bytes;
    char *data = base_heap_take(&c->heap, n * bytes);
    if (!data) return BERYL_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        const uint64_t x = draws[row].one | (base_random_next(random) & draws[row].drawn);
        for (size_t k = 0; k < bytes; k++) data[i * bytes + k] = (char)(x >> 8 * k);
    }
    beryl_status status = beryl_graph_set(m->g, port->value, data, n * bytes, error);
    base_heap_give(&c->heap, data, n * bytes);
    return status == BERYL_MISUSE ? BERYL_OK : status; /* nothing reads it */
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef enum form { FORM_MD, FORM_CSV, FORM_JSON, FORM_JSONL } form;

static int times_print(cli *c, const cli_onnx *m, const char *path, double *seconds, uint32_t n) {
    const form to = c->json ? FORM_JSON : (form)c->args.values[FLAG_OUTPUT].integer;
    const bool exact = cli_precision(c) == BERYL_PRECISION_EXACT;
    beryl_device_info device = {0};
    beryl_graph_device(m->g, &device);
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path,
               *backend = device.backend ? device.backend : "";
    json_out j;
    json_init(&j, &c->heap);
    if (to == FORM_JSON) json_open(&j, NULL, '[');
    json_open(&j, NULL, '{');
    json_text(&j, "model", name);
    json_text(&j, "backend", backend);
    json_text(&j, "device", device.name);
    json_text(&j, "precision", exact ? "exact" : "fast");
    json_open(&j, "samples_ns", '[');
    for (uint32_t i = 0; i < n; i++) json_number(&j, NULL, seconds[i] * 1e9);
    json_close(&j, ']');
    qsort(seconds, n, sizeof *seconds, by_size);
    const double median = (seconds[n / 2] + seconds[(n - 1) / 2]) / 2;
    json_number(&j, "median_ns", median * 1e9);
    json_close(&j, '}');
    if (to == FORM_JSON) json_close(&j, ']');
    int code = CLI_OK;
    switch (to) {
    case FORM_MD:
        puts("| model | backend | precision | runs | median | least | most |\n"
             "| ----- | ------- | --------- | ---: | -----: | ----: | ---: |");
        fputs("| ", stdout);
        term_print(stdout, name, strlen(name), true);
        printf(" | %s | %s | %u | %.3f ms | %.3f ms | %.3f ms |\n", backend,
               exact ? "exact" : "fast", n, median * 1e3, seconds[0] * 1e3, seconds[n - 1] * 1e3);
        break;
    case FORM_CSV:
        puts("model,backend,precision,runs,median_ns,least_ns,most_ns");
        term_print(stdout, name, strlen(name), true);
        printf(",%s,%s,%u,%.0f,%.0f,%.0f\n", backend, exact ? "exact" : "fast", n, median * 1e9,
               seconds[0] * 1e9, seconds[n - 1] * 1e9);
        break;
    case FORM_JSON:
    case FORM_JSONL: code = json_print(c, &j, stdout); break;
    }
    json_fini(&j);
    return code;
}

int cli_onnx_bench(cli *c, const char *path) {
    cli_onnx m = {0};
    beryl_error error = {0};
    const beryl_onnx_options how = {.size = sizeof how};
    beryl_port port;
    base_random random = {.state = 1};
    double seconds[REPEAT_MAX];
    const uint32_t n = args_count(&c->args, FLAG_REPEAT, 5),
                   warm = args_has(&c->args, FLAG_NO_WARMUP) ? 0 : 1;
    if (!n || n > REPEAT_MAX) return cli_usage(c, "-r is between 1 and %d", REPEAT_MAX);
    beryl_status status = cli_onnx_open(c, path, how, &m, &error);
    if (!status) status = cli_onnx_compile(&m, &error);
    for (size_t i = 0; !status && beryl_graph_port(m.g, false, i, &port); i++)
        if (port.value) status = draw(c, &m, &port, &random, &error);
    for (uint32_t i = 0; !status && i < n + warm; i++) {
        const double began = base_time();
        status = cli_onnx_run(&m, &error);
        if (i >= warm) seconds[i - warm] = base_time() - began;
    }
    const int code = status ? report(c, status, &error) : times_print(c, &m, path, seconds, n);
    cli_onnx_close(c, &m);
    return code;
}

/* ---- show ------------------------------------------------------------------------------------ */

static void text_write(void *user, const char *text, size_t size) {
    base_text_add(user, text, size);
}

static void view_print(base_view v) {
    term_print(stdout, v.data, v.size, true);
}

static void ports_print(const base_json *root, const char *key, const char *title) {
    const base_json *list = base_json_find(root, key);
    for (const base_json *p = list ? list->child : NULL; p; p = p->next) {
        const base_json *shape = base_json_find(p, "shape");
        printf("%-14s", title);
        view_print(base_json_find(p, "name")->text);
        printf("  ");
        view_print(base_json_find(p, "type")->text);
        fputs(shape->kind == JSON_ARRAY ? " [" : "", stdout);
        for (const base_json *d = shape->child; d; d = d->next) {
            view_print(d->kind == JSON_STRING && !d->text.size ? base_view_of("?") : d->text);
            fputs(d->next ? ", " : "", stdout);
        }
        puts(shape->kind == JSON_ARRAY ? "]" : "");
    }
}

static void described_print(const base_json *root) {
    printf("%-14s", "producer");
    view_print(base_json_find(root, "producer")->text);
    printf("\n%-14s", "opset");
    for (const base_json *p = base_json_find(root, "opsets")->child; p; p = p->next) {
        view_print(base_json_find(p, "domain")->text);
        printf("%s%.0f%s", base_json_find(p, "domain")->text.size ? " " : "",
               base_json_find(p, "version")->number, p->next ? ", " : "");
    }
    putchar('\n');
    ports_print(root, "inputs", "input");
    ports_print(root, "outputs", "output");
    for (const base_json *p = base_json_find(root, "operators")->child; p; p = p->next) {
        printf("%-14s", "operator");
        view_print(base_json_find(p, "name")->text);
        printf(" x %.0f%s\n", base_json_find(p, "count")->number,
               base_json_find(p, "supported")->kind == JSON_TRUE ? "" : "  (not supported)");
    }
}

int cli_onnx_show(cli *c, const char *path) {
    char *model = NULL;
    size_t size = 0;
    base_text text;
    base_arena arena;
    base_json *root = NULL;
    beryl_error error = {0};
    base_text_init(&text, &c->heap);
    base_arena_init(&arena, &c->heap);
    beryl_status status = base_file_read(&c->heap, path, ONNX_MAX, &model, &size, &error);
    if (!status) status = beryl_onnx_describe(model, size, text_write, &text, &error);
    if (!status && text.failed) status = BERYL_NO_MEMORY;
    if (!status && !c->json) status = base_json_parse(&arena, text.data, text.size, &root, &error);
    if (!status && c->json) printf("%s\n", text.data);
    else if (!status) described_print(root);
    base_arena_fini(&arena);
    base_text_fini(&text);
    if (model) base_heap_give(&c->heap, model, size + 1);
    return cli_report(c, status, &error);
}
