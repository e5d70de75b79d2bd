/* explain.c - looking inside: what becomes of a model or of a kernel, as text; where the time of a
 * step goes, as a trace. */
#include "cli.h"

#include "base/file.h"

#include <errno.h>
#include <string.h>

/* With --json one object that has it as its text. */
static void text_write(void *user, const char *text, size_t size) {
    cli *c = user;
    if (!c->json) {
        fwrite(text, 1, size, stdout);
        return;
    }
    json_out j;
    json_init(&j, &c->heap);
    json_open(&j, NULL, '{');
    json_bytes(&j, "text", text, size);
    json_close(&j, '}');
    json_print(c, &j, stdout);
    json_fini(&j);
}

/* What a file is that is no model by its first bytes. */
typedef enum given { GIVEN_MODEL, GIVEN_KERNEL, GIVEN_GRAPH, GIVEN_OTHER } given;

static given given_find(const char *path) {
    char head[256] = "";
    FILE *file = path && base_file_exists(path) ? fopen(path, "rb") : NULL;
    if (!file) return GIVEN_MODEL; /* a name, or whatever opening it says */
    size_t n = fread(head, 1, sizeof head - 1, file);
    fclose(file);
    if (n >= 4 && !memcmp(head, "GGUF", 4)) return GIVEN_MODEL;
    size_t at = strspn(head, " \t\r\n");
    static const char *const starts[] = {";", "extent ", "%"}; /* a graph's lines */
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (!strncmp(head + at, starts[i], strlen(starts[i]))) return GIVEN_GRAPH;
    return !strncmp(head + at, "kernel ", 7) ? GIVEN_KERNEL : GIVEN_OTHER;
}

/* The model, with as many sessions as the plan is for. */
static cli_open open_of(cli *c) {
    size_t n_used;
    const bool batch = c->args.values[FLAG_PLAN].integer == BERYL_PLAN_BATCH;
    return (cli_open){.model = cli_model(c, &n_used),
                      .sessions = batch ? args_count(&c->args, FLAG_TRACE_SESSIONS, 16) : 0};
}

static int file_explain(cli *c, const char *path, bool kernel, beryl_explain_options *options) {
    size_t size = 0;
    beryl_error error = {0};
    if (kernel && !args_has(&c->args, FLAG_STAGE)) options->stage = BERYL_STAGE_IR;
    if ((kernel && options->one) || args_has(&c->args, FLAG_PLAN))
        return cli_usage(c, "a kernel has neither --op nor --plan, a graph has no --plan");
    char *text = cli_read(c, path, &size);
    if (!text) return CLI_FAILED;
    beryl_status status = beryl_text_explain(text, size, options, text_write, c, &error);
    base_heap_give(&c->heap, text, size + 1);
    if (status == BERYL_BAD_INPUT) return cli_fail(c, "%s: %s", path, error.message);
    return cli_report(c, status, &error);
}

int explain_main(cli *c) {
    const args *a = &c->args;
    beryl_error error = {0};
    cli_open open = open_of(c);
    beryl_explain_options options = {.size = sizeof options,
                                     .stage = (beryl_stage)a->values[FLAG_STAGE].integer,
                                     .plan = (beryl_plan)a->values[FLAG_PLAN].integer,
                                     .one = args_has(a, FLAG_OP),
                                     .op = args_count(a, FLAG_OP, 0),
                                     .device = args_text(a, FLAG_DEVICE),
                                     .precision = cli_precision(c)};
    if (cli_is_onnx(open.model))
        return args_has(a, FLAG_PLAN) ? cli_usage(c, "an ONNX file has no --plan")
                                      : cli_onnx_explain(c, open.model, &options, text_write);
    switch (given_find(open.model)) {
    case GIVEN_MODEL: break;
    case GIVEN_KERNEL: return file_explain(c, open.model, true, &options);
    case GIVEN_GRAPH: return file_explain(c, open.model, false, &options);
    case GIVEN_OTHER:
        return cli_fail(c, "%s is neither a GGUF file nor a graph or kernel as text", open.model);
    }
    beryl_engine *engine = cli_engine_open(c, &open);
    if (!engine) return CLI_FAILED;
    beryl_status status = beryl_engine_explain(engine, &options, text_write, c, &error);
    beryl_engine_close(engine);
    return cli_report(c, status, &error);
}

/* ---- trace ----------------------------------------------------------------------------------- */

typedef struct tracing {
    FILE *to;
    bool failed;
} tracing;

static void trace_write(void *user, const char *text, size_t size) {
    tracing *t = user;
    if (fwrite(text, 1, size, t->to) != size) t->failed = true;
}

static int trace_run(cli *c, beryl_engine *engine, tracing *t) {
    const args *a = &c->args;
    const beryl_trace_options options = {.size = sizeof options,
                                         .plan = (beryl_plan)a->values[FLAG_PLAN].integer,
                                         .depth = args_count(a, FLAG_DEPTH, 0),
                                         .steps = args_count(a, FLAG_STEPS, 0)};
    beryl_task *task = NULL;
    beryl_error error = {0};
    beryl_status status = beryl_engine_trace(engine, &options, trace_write, t, &task, &error);
    if (!status) {
        status = cli_task_run(c, task, NULL, NULL);
        const beryl_error *cause = beryl_task_error(task);
        if (status && cause) error = *cause;
    }
    beryl_task_close(task);
    return cli_report(c, status, &error);
}

int trace_main(cli *c) {
    const char *path = args_text(&c->args, FLAG_TRACE_OUT);
    if (!path) path = "trace.json";
    bool aside = strcmp(path, "-") != 0;
    cli_open open = open_of(c);
    beryl_engine *engine = cli_engine_open(c, &open);
    if (!engine) return CLI_FAILED;
    tracing t = {.to = aside ? fopen(path, "wb") : stdout};
    int code =
        t.to ? trace_run(c, engine, &t) : cli_fail(c, "cannot write %s: %s", path, strerror(errno));
    beryl_engine_close(engine);
    if (t.to && aside && fclose(t.to)) t.failed = true;
    if (code) {
        if (t.to && aside) remove(path);
        return code;
    }
    if (t.failed) return cli_fail(c, "writing %s failed: %s", path, strerror(errno));
    if (aside && !c->json)
        printf("%s written; open it at ui.perfetto.dev or chrome://tracing\n", path);
    return CLI_OK;
}
