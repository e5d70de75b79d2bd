/* bench_ops.c - the speed of single operations, a row each, held against what the device can do. */
#include "cli.h"

#include <ctype.h>
#include <string.h>

typedef enum output { OUTPUT_MD, OUTPUT_CSV, OUTPUT_JSON } output;

typedef struct rows {
    cli *c;
    beryl_bench *bench;
    beryl_bench_info info;
    output form;
    json_out json;
    size_t n_row;
    char told[sizeof((beryl_error *)0)->message]; /* what is wrong with all cases is said once */
} rows;

static void shape_text(char *to, size_t size, const beryl_bench_case *what) {
    int n = 0;
    to[0] = 0;
    for (uint32_t i = 0; i < what->n_shape && (size_t)n < size; i++)
        n += snprintf(to + n, size - (size_t)n, i ? " x %u" : "%u", what->shape[i]);
}

static void percent_text(char *to, size_t size, double part) {
    to[0] = 0;
    if (part > 0) snprintf(to, size, "%.1f %%", 100 * part);
}

static void row_markdown(rows *r, const beryl_bench_result *b) {
    char shape[64], rate[32] = "", bandwidth[32], f32[32];
    if (!r->n_row++) {
        printf("| %-12s | %-6s | %-24s | %12s | %10s | %10s | %9s | %9s |\n", "operation", "type",
               "shape", "µs", "GB/s", "GFLOP/s", "bandwidth", "f32 rate");
        puts("| ------------ | ------ | ------------------------ | -----------: | ---------: | "
             "---------: | --------: | --------: |");
    }
    shape_text(shape, sizeof shape, &b->what);
    if (b->operations > 0) snprintf(rate, sizeof rate, "%.2f", b->operations / b->seconds * 1e-9);
    percent_text(bandwidth, sizeof bandwidth, b->bandwidth_part);
    percent_text(f32, sizeof f32, b->f32_part);
    printf("| %-12s | %-6s | %-24s | %12.2f | %10.2f | %10s | %9s | %9s |\n", b->what.op,
           b->what.type, shape, b->seconds * 1e6, b->bytes / b->seconds * 1e-9, rate, bandwidth,
           f32);
}

static void row_csv(rows *r, const beryl_bench_result *b) {
    char shape[64];
    if (!r->n_row++)
        puts("device,operation,type,shape,letters,microseconds,bytes,gb_s,operations,gflop_s,"
             "bandwidth_percent,f32_percent,dispatches");
    shape_text(shape, sizeof shape, &b->what);
    putchar('"');
    for (const char *p = r->info.device.name; *p; p++) {
        if (*p == '"') putchar('"');
        term_print(stdout, p, 1, true);
    }
    printf("\",%s,%s,\"%s\",\"%s\",%.3f,%.0f,%.3f,%.0f,%.3f,%.2f,%.2f,%u\n", b->what.op,
           b->what.type, shape, b->what.letters, b->seconds * 1e6, b->bytes,
           b->bytes / b->seconds * 1e-9, b->operations, b->operations / b->seconds * 1e-9,
           100 * b->bandwidth_part, 100 * b->f32_part, b->dispatches);
}

static void row_json(rows *r, const beryl_bench_result *b) {
    json_out *j = &r->json;
    json_open(j, NULL, '{');
    json_text(j, "operation", b->what.op);
    json_text(j, "type", b->what.type);
    json_open(j, "shape", '[');
    for (uint32_t i = 0; i < b->what.n_shape; i++) json_integer(j, NULL, b->what.shape[i]);
    json_close(j, ']');
    json_text(j, "letters", b->what.letters);
    json_number(j, "seconds", b->seconds);
    json_number(j, "bytes", b->bytes);
    json_number(j, "operations", b->operations);
    json_number(j, "bandwidth_percent", 100 * b->bandwidth_part);
    json_number(j, "f32_percent", 100 * b->f32_part);
    json_integer(j, "dispatches", b->dispatches);
    json_close(j, '}');
    r->n_row++;
}

static void device_json(rows *r) {
    json_out *j = &r->json;
    const beryl_device_info *d = &r->info.device;
    json_text(j, "backend", d->backend);
    json_text(j, "device", d->name);
    json_text(j, "driver", d->driver);
    json_number(j, "read", r->info.read);
    json_number(j, "copy", r->info.copy);
    json_number(j, "f32", r->info.f32);
}

static void summary_print(rows *r) {
    const beryl_device_info *d = &r->info.device;
    fputs("\ndevice ", stdout);
    term_print(stdout, d->name, strlen(d->name), true);
    if (*d->driver) {
        fputs(" (", stdout);
        term_print(stdout, d->driver, strlen(d->driver), true);
        putchar(')');
    }
    if (r->info.read > 0) printf("; reads %.1f GB/s", r->info.read * 1e-9);
    if (r->info.copy > 0) printf(", copies %.1f GB/s", r->info.copy * 1e-9);
    if (r->info.f32 > 0) printf(", multiplies and adds %.1f GFLOP/s in f32", r->info.f32 * 1e-9);
    printf("; beryl %s\n", beryl_version());
}

/* What an operation cannot do here is told, and the others go on. */
static int case_run(rows *r, const beryl_bench_case *what) {
    beryl_bench_result result;
    beryl_error error = {0};
    char note[96];
    snprintf(note, sizeof note, "%s %s", what->op, what->type ? what->type : "");
    term_progress(&r->c->term, "measuring", 0, 0, note);
    beryl_status status = beryl_bench_op(r->bench, what, &result, &error);
    term_clear(&r->c->term);
    if (status) {
        if (!strcmp(r->told, error.message)) return CLI_FAILED;
        memcpy(r->told, error.message, sizeof r->told);
        return cli_report(r->c, status, &error);
    }
    switch (r->form) {
    case OUTPUT_MD: row_markdown(r, &result); break;
    case OUTPUT_CSV: row_csv(r, &result); break;
    case OUTPUT_JSON: row_json(r, &result); break;
    }
    fflush(stdout);
    return CLI_OK;
}

/* The usual cases of an operation (NULL: of all); with --type or --shape each other thing once. */
static int op_run(rows *r, const char *op) {
    const args *a = &r->c->args;
    const char *given = args_text(a, FLAG_TYPE), *last = "";
    char type[16] = "";
    beryl_bench_case what;
    bool found = false;
    int code = CLI_OK;
    for (size_t i = 0; given && given[i] && i + 1 < sizeof type; i++)
        type[i] = (char)toupper((unsigned char)given[i]);
    for (uint32_t i = 0; beryl_bench_usual(i, &what); i++) {
        if ((op && strcmp(op, what.op) != 0) || (given && !strcmp(last, what.op))) continue;
        last = what.op;
        found = true;
        if (given) what.type = type;
        what.n_shape = (uint32_t)a->list[FLAG_SHAPE].count;
        if (what.n_shape) memcpy(what.shape, a->list[FLAG_SHAPE].data, what.n_shape * 4);
        int one = case_run(r, &what);
        if (one) code = one;
    }
    return found ? code
                 : cli_fail(r->c,
                            "there is no operation '%s' to time; 'beryl ops' lists "
                            "them",
                            op ? op : "");
}

static int rows_run(rows *r) {
    const args *a = &r->c->args;
    int code = CLI_OK;
    if (r->form == OUTPUT_JSON) {
        json_open(&r->json, NULL, '{');
        device_json(r);
        json_open(&r->json, "rows", '[');
    }
    if (!a->n_positional) code = op_run(r, NULL);
    for (size_t i = 0; i < a->n_positional; i++) {
        int one = op_run(r, a->positional[i]);
        if (one) code = one;
    }
    if (r->form == OUTPUT_JSON) {
        json_close(&r->json, ']');
        json_close(&r->json, '}');
        int printed = json_print(r->c, &r->json, stdout);
        return code ? code : printed;
    }
    if (r->form == OUTPUT_MD && r->n_row) summary_print(r);
    return code;
}

int bench_ops_main(cli *c) {
    const args *a = &c->args;
    rows r = {.c = c, .form = (output)a->values[FLAG_OPS_OUTPUT].integer};
    if (c->json) r.form = OUTPUT_JSON;
    if (a->list[FLAG_SHAPE].count > 4) return cli_usage(c, "--shape takes up to 4 numbers");
    beryl_bench_options options = {.size = sizeof options,
                                   .device = args_text(a, FLAG_DEVICE),
                                   .precision = cli_precision(c),
                                   .no_cache = args_has(a, FLAG_NO_CACHE),
                                   .log = cli_log(c)};
    beryl_error error = {0};
    term_progress(&c->term, "measuring", 0, 0, "the device");
    beryl_status status = beryl_bench_open(&options, &r.bench, &error);
    term_clear(&c->term);
    if (status) return cli_report(c, status, &error);
    beryl_bench_info_get(r.bench, &r.info);
    json_init(&r.json, &c->heap);
    int code = rows_run(&r);
    json_fini(&r.json);
    beryl_bench_close(r.bench);
    return code;
}
