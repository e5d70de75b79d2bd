/* tune.c - the search for faster kernels, and what it left in the cache folder. */
#include "cli.h"

#include <string.h>

typedef struct tuning {
    cli *c;
    json_out json;
    size_t n, n_found;
} tuning;

static void tune_each(void *user, const beryl_event *event) {
    tuning *t = user;
    if (event->kind != BERYL_EVENT_TEST) return;
    t->n++;
    t->n_found += event->ok;
    if (t->c->json) {
        json_open(&t->json, NULL, '{');
        json_bytes(&t->json, "product", event->text, event->text_size);
        json_bool(&t->json, "tuned", event->ok);
        json_number(&t->json, "time", event->value);
        json_close(&t->json, '}');
        return;
    }
    const term *shown = &t->c->term;
    fputs(term_style_text(shown, stdout, event->ok ? TERM_GREEN : TERM_DIM), stdout);
    if (event->ok) printf("%5.1f %% faster", 100 / event->value - 100);
    else fputs("    as chosen", stdout);
    fputs(term_style_text(shown, stdout, TERM_PLAIN), stdout);
    fputs("  ", stdout);
    term_print(stdout, event->text, event->text_size, true);
    putchar('\n');
    fflush(stdout);
}

static int tune_run(cli *c, tuning *t, beryl_engine *engine) {
    const beryl_tune_options options = {.size = sizeof options,
                                        .tries = args_count(&c->args, FLAG_TRIES, 0),
                                        .again = args_has(&c->args, FLAG_AGAIN)};
    beryl_task *task = NULL;
    beryl_error error = {0};
    beryl_status status = beryl_engine_tune(engine, &options, &task, &error);
    if (!status) {
        status = cli_task_run(c, task, tune_each, t);
        const beryl_error *cause = beryl_task_error(task);
        if (status && cause) error = *cause;
    }
    beryl_task_close(task);
    return cli_report(c, status, &error);
}

/* ---- what is kept ---------------------------------------------------------------------------- */

static bool tuned_each(void *user, const beryl_tuned_info *info) {
    tuning *t = user;
    bool forget = args_has(&t->c->args, FLAG_FORGET);
    t->n++;
    if (t->c->json) {
        json_open(&t->json, NULL, '{');
        json_text(&t->json, "path", info->path);
        json_text(&t->json, "backend", info->backend);
        json_text(&t->json, "adapter", info->adapter);
        json_text(&t->json, "driver", info->driver);
        json_integer(&t->json, "products", info->n_product);
        json_bool(&t->json, "damaged", info->damaged);
        json_bool(&t->json, "deleted", forget);
        json_close(&t->json, '}');
        return !forget;
    }
    const char *const texts[] = {info->backend, info->adapter, info->driver};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        term_print(stdout, texts[i], strlen(texts[i]), true);
        if (*texts[i]) fputs(", ", stdout);
    }
    if (info->n_product) printf("%u product%s", info->n_product, info->n_product > 1 ? "s" : "");
    else if (!info->damaged) fputs("nothing", stdout);
    if (info->damaged)
        fputs(info->n_product ? "; the rest is damaged, ignored" : "damaged, ignored", stdout);
    printf("%s\n  ", forget ? "; deleted" : "");
    term_print(stdout, info->path, strlen(info->path), true);
    putchar('\n');
    return !forget;
}

static int tuned_list(cli *c) {
    tuning t = {.c = c};
    beryl_error error = {0};
    json_init(&t.json, &c->heap);
    json_open(&t.json, NULL, '[');
    beryl_status status = beryl_tuned(tuned_each, &t, &error);
    int code = cli_report(c, status, &error);
    if (!code && c->json) {
        json_close(&t.json, ']');
        code = json_print(c, &t.json, stdout);
    } else if (!code && !t.n) {
        puts("nothing was tuned on this machine");
    }
    json_fini(&t.json);
    return code;
}

int tune_main(cli *c) {
    size_t n_used;
    if (args_has(&c->args, FLAG_TUNE_LIST) || args_has(&c->args, FLAG_FORGET)) return tuned_list(c);
    cli_open open = {.model = cli_model(c, &n_used),
                     .sessions = args_count(&c->args, FLAG_TUNE_SESSIONS, 0)};
    beryl_engine *engine = cli_engine_open(c, &open);
    if (!engine) return CLI_FAILED;
    tuning t = {.c = c};
    json_init(&t.json, &c->heap);
    json_open(&t.json, NULL, '{');
    json_open(&t.json, "products", '[');
    int code = tune_run(c, &t, engine);
    if (c->json && code && !t.n) {
        /* the error is all there is to say */
    } else if (c->json) {
        json_close(&t.json, ']');
        json_integer(&t.json, "tuned", (int64_t)t.n_found);
        json_close(&t.json, '}');
        json_print(c, &t.json, stdout);
    } else if (!t.n && !code) {
        puts("nothing left to tune; --again searches anew");
    } else if (t.n) {
        printf("%zu of %zu kinds of kernels have another form now%s\n", t.n_found, t.n,
               args_has(&c->args, FLAG_NO_CACHE) ? ", but --no-cache keeps nothing" : "");
    }
    json_fini(&t.json);
    beryl_engine_close(engine);
    return code;
}
