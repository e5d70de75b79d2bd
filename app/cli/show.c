/* show.c - what there is: show (a model file), list (models), devices, ops, and selftest. Names out
 * of files are cleaned before they reach the terminal. */
#include "cli.h"

#include "base/json.h"

#include <string.h>

static void text_put(const char *text, int width) {
    if (!text) text = "";
    term_print(stdout, text, strlen(text), true);
    int columns = (int)term_columns(text);
    printf("%*s", columns < width ? width - columns : 0, "");
}

/* ---- show ------------------------------------------------------------------------------------ */

static void row(const char *name, const char *value) {
    printf("%-14s", name);
    term_print(stdout, value, strlen(value), true);
    putchar('\n');
}

static void info_print(const beryl_engine_info *info) {
    char text[256], size[32];
    row("model", info->model_name ? info->model_name : "");
    if (info->model_path) {
        printf("%-14s", "file");
        term_print(stdout, info->model_path, strlen(info->model_path), true);
        printf(" (%s)\n", cli_size_text(size, info->file_size));
    }
    if (info->architecture) row("architecture", info->architecture);
    if (info->size_label) row("size", info->size_label);
    if (info->file_type) row("type", info->file_type);
    if (info->parameters) row("parameters", cli_count_text(size, info->parameters));
    if (info->n_layer) {
        snprintf(text, sizeof text, "%u, width %u, %u heads, window %u", info->n_layer,
                 info->n_embd, info->n_head, info->window);
        row("layers", text);
    }
    if (info->n_expert) {
        snprintf(text, sizeof text, "%u, %u used", info->n_expert, info->n_expert_used);
        row("experts", text);
    }
    if (info->n_vocab) {
        snprintf(text, sizeof text, "%u tokens", info->n_vocab);
        row("vocabulary", text);
    }
    if (info->context_max) {
        snprintf(text, sizeof text, "%u tokens", info->context_max);
        row("context", text);
    }
    if (info->n_layer) {
        snprintf(text, sizeof text, "text%s%s", info->has_vision ? ", pictures, video" : "",
                 info->has_audio ? ", sound" : "");
        row("takes", text);
    }
    if (info->other_template)
        row("chat template", "one of its own, which is not followed: conversations are written in "
                             "Gemma 4's form");
    snprintf(text, sizeof text, "temperature %g, top-p %g, top-k %u", (double)info->temperature,
             (double)info->top_p, info->top_k);
    if (!info->why_not) row("sampling", text);
    row("runs", info->why_not ? "no" : "yes");
    if (info->why_not) row("why not", info->why_not);
}

static void info_json(json_out *j, const beryl_engine_info *info, const char *describe) {
    json_open(j, NULL, '{');
    json_text(j, "name", info->model_name);
    json_text(j, "path", info->model_path);
    json_integer(j, "file_size", (int64_t)info->file_size);
    json_text(j, "architecture", info->architecture);
    json_text(j, "size_label", info->size_label);
    json_text(j, "file_type", info->file_type);
    json_integer(j, "parameters", (int64_t)info->parameters);
    json_integer(j, "n_layer", info->n_layer);
    json_integer(j, "n_embd", info->n_embd);
    json_integer(j, "n_vocab", info->n_vocab);
    json_integer(j, "n_head", info->n_head);
    json_integer(j, "n_expert", info->n_expert);
    json_integer(j, "n_expert_used", info->n_expert_used);
    json_integer(j, "window", info->window);
    json_integer(j, "context_max", info->context_max);
    json_bool(j, "has_vision", info->has_vision);
    json_bool(j, "has_audio", info->has_audio);
    json_number(j, "temperature", (double)info->temperature);
    json_number(j, "top_p", (double)info->top_p);
    json_integer(j, "top_k", info->top_k);
    json_bool(j, "other_template", info->other_template);
    json_bool(j, "runs", !info->why_not);
    json_text(j, "why_not", info->why_not);
    if (describe) json_raw(j, "file", describe, strlen(describe));
    json_close(j, '}');
}

/* A value in at most 100 characters. */
static void value_print(cli *c, const base_json *value) {
    enum { MOST = 100 };
    if (value->kind == JSON_OBJECT) {
        const base_json *type = base_json_find(value, "type"),
                        *count = base_json_find(value, "count");
        if (type && count && type->kind == JSON_STRING && count->kind == JSON_NUMBER) {
            printf("%.0f x ", count->number);
            term_print(stdout, type->text.data, type->text.size, true);
            return;
        }
    }
    base_text text;
    base_text_init(&text, &c->heap);
    if (value->kind == JSON_STRING) {
        base_text_add_view(&text, value->text);
    } else {
        base_json_write(&text, value);
    }
    size_t n = text.size < MOST ? text.size : MOST;
    while (n && n < text.size && ((unsigned char)text.data[n] & 0xc0) == 0x80) n--;
    if (text.data) term_print(stdout, text.data, n, true);
    if (n < text.size) fputs("...", stdout);
    base_text_fini(&text);
}

static void metadata_print(cli *c, const base_json *metadata) {
    for (const base_json *p = metadata ? metadata->child : NULL; p; p = p->next) {
        term_print(stdout, p->key.data, p->key.size, true);
        printf("%*s  ", p->key.size < 44 ? 44 - (int)p->key.size : 0, "");
        value_print(c, p);
        putchar('\n');
    }
}

static void tensors_print(const base_json *tensors) {
    for (const base_json *p = tensors ? tensors->child : NULL; p; p = p->next) {
        const base_json *name = base_json_find(p, "name"), *type = base_json_find(p, "type");
        const base_json *shape = base_json_find(p, "shape"), *bytes = base_json_find(p, "bytes");
        if (!name || name->kind != JSON_STRING) continue;
        term_print(stdout, name->text.data, name->text.size, true);
        printf("%*s  ", name->text.size < 36 ? 36 - (int)name->text.size : 0, "");
        if (type && type->kind == JSON_STRING) {
            term_print(stdout, type->text.data, type->text.size, true);
            printf("%*s", type->text.size < 8 ? 8 - (int)type->text.size : 0, "");
        }
        putchar('[');
        for (const base_json *n = shape ? shape->child : NULL; n; n = n->next)
            printf("%.0f%s", n->number, n->next ? ", " : "");
        char size[32];
        printf("]%s%s\n", bytes ? "  " : "",
               bytes ? cli_size_text(size, (uint64_t)bytes->number) : "");
    }
}

static int describe_print(cli *c, const char *text) {
    base_arena arena;
    base_json *root = NULL;
    beryl_error error = {0};
    base_arena_init(&arena, &c->heap);
    beryl_status status = base_json_parse(&arena, text, strlen(text), &root, &error);
    if (!status) {
        putchar('\n');
        if (args_has(&c->args, FLAG_METADATA)) metadata_print(c, base_json_find(root, "metadata"));
        if (args_has(&c->args, FLAG_TENSORS)) tensors_print(base_json_find(root, "tensors"));
    }
    base_arena_fini(&arena);
    return cli_report(c, status, &error);
}

int show_main(cli *c) {
    size_t n_used;
    cli_open open = {.model = cli_model(c, &n_used), .header_only = true};
    if (cli_is_onnx(open.model)) return cli_onnx_show(c, open.model);
    beryl_engine *engine = cli_engine_open(c, &open);
    if (!engine) return CLI_FAILED;
    beryl_engine_info info = {0};
    beryl_error error = {0};
    char *describe = NULL;
    bool more = args_has(&c->args, FLAG_METADATA) || args_has(&c->args, FLAG_TENSORS);
    beryl_status status = beryl_engine_info_get(engine, &info);
    if (!status && more)
        status = beryl_engine_describe(engine, args_has(&c->args, FLAG_TENSORS), &describe, &error);
    int code = cli_report(c, status, &error);
    if (!code && c->json) {
        json_out j;
        json_init(&j, &c->heap);
        info_json(&j, &info, describe);
        code = json_print(c, &j, stdout);
        json_fini(&j);
    } else if (!code) {
        info_print(&info);
        if (describe) code = describe_print(c, describe);
    }
    beryl_free(engine, describe);
    beryl_engine_close(engine);
    return code;
}

/* ---- list ------------------------------------------------------------------------------------ */

typedef struct listing {
    cli *c;
    json_out json;
    size_t n;
} listing;

static int listing_end(listing *l, beryl_status status, const beryl_error *error) {
    int code = cli_report(l->c, status, error);
    if (!code && l->c->json) {
        json_close(&l->json, ']');
        code = json_print(l->c, &l->json, stdout);
    }
    json_fini(&l->json);
    return code;
}

static void listing_begin(listing *l, cli *c) {
    *l = (listing){.c = c};
    json_init(&l->json, &c->heap);
    json_open(&l->json, NULL, '[');
}

static void model_each(void *user, const beryl_model_info *info) {
    listing *l = user;
    if (l->c->json) {
        json_open(&l->json, NULL, '{');
        json_text(&l->json, "name", info->name);
        json_text(&l->json, "path", info->path);
        json_text(&l->json, "source", info->source);
        json_integer(&l->json, "size", (int64_t)info->size);
        json_close(&l->json, '}');
        return;
    }
    char size[32];
    if (!l->n++) printf("%-32s %10s  %-9s %s\n", "NAME", "SIZE", "FROM", "FILE");
    text_put(info->name, 32);
    printf(" %10s  ", cli_size_text(size, info->size));
    text_put(info->source, 9);
    putchar(' ');
    text_put(info->path, 0);
    putchar('\n');
}

int list_main(cli *c) {
    listing l;
    beryl_error error = {0};
    listing_begin(&l, c);
    beryl_status status = beryl_models(model_each, &l, &error);
    if (!status && !l.n && !c->json)
        puts("no models here; give 'beryl run' the path of a GGUF file");
    return listing_end(&l, status, &error);
}

/* ---- devices --------------------------------------------------------------------------------- */

static void device_json(json_out *j, const beryl_device_info *info) {
    json_open(j, NULL, '{');
    json_text(j, "backend", info->backend);
    json_integer(j, "index", info->index);
    json_text(j, "name", info->name);
    json_text(j, "driver", info->driver);
    json_text(j, "kind", info->kind);
    json_text(j, "language", info->language);
    json_bool(j, "usable", info->usable);
    json_text(j, "why_not", info->why_not);
    json_integer(j, "memory", (int64_t)info->memory);
    json_integer(j, "buffer_max", (int64_t)info->buffer_max);
    json_integer(j, "binding_max", (int64_t)info->binding_max);
    json_bool(j, "subgroups", info->subgroups);
    json_integer(j, "subgroup_size", info->subgroup_size);
    json_bool(j, "f16", info->f16);
    json_bool(j, "f64", info->f64);
    json_bool(j, "fragments", info->fragments);
    json_integer(j, "compute_units", info->compute_units);
    json_integer(j, "workgroup_invocations", info->workgroup_invocations);
    json_integer(j, "workgroup_bytes", info->workgroup_bytes);
    json_bool(j, "dot_i8", info->dot_i8);
    json_bool(j, "timestamps", info->timestamps);
    json_close(j, '}');
}

/* What it can do, in a line under its name; verbose: how much at once, in another. */
static void device_abilities(const beryl_device_info *info, bool verbose) {
    char size[3][32];
    if (!*info->language) {
        bool reference = !strcmp(info->backend, "reference");
        printf("\n               %s", reference ? "runs graphs node by node, without kernels"
                                                : "keeps memory, runs no programs");
        return;
    }
    printf("\n               %s; f32%s%s", info->language, info->f16 ? ", f16" : "",
           info->f64 ? ", f64" : "");
    if (info->subgroups) fputs("; subgroups", stdout);
    if (info->subgroup_size) printf(" of %u", info->subgroup_size);
    printf("%s%s%s", info->dot_i8 ? "; 8-bit dot products" : "",
           info->fragments ? "; matrix units for f16, bf16" : "",
           info->timestamps ? "; timestamps" : "");
    if (!verbose) return;
    fputs("\n               ", stdout);
    if (info->compute_units) printf("%u compute units; ", info->compute_units);
    printf("workgroups of %u lanes, %s; largest buffer %s, binding %s", info->workgroup_invocations,
           cli_size_text(size[0], info->workgroup_bytes), cli_size_text(size[1], info->buffer_max),
           cli_size_text(size[2], info->binding_max));
}

static void device_each(void *user, const beryl_device_info *info) {
    listing *l = user;
    if (l->c->json) {
        device_json(&l->json, info);
        return;
    }
    const term *t = &l->c->term;
    char name[64], size[32];
    if (!l->n++) printf("%-14s %-11s %10s  %s\n", "DEVICE", "KIND", "MEMORY", "NAME");
    if (*info->name) snprintf(name, sizeof name, "%s:%u", info->backend, info->index);
    else snprintf(name, sizeof name, "%s", info->backend);
    if (!info->usable) fputs(term_style_text(t, stdout, TERM_DIM), stdout);
    text_put(name, 14);
    if (!*info->name) {
        fputs(" not usable: ", stdout);
        text_put(info->why_not, 0);
        fputs(term_style_text(t, stdout, TERM_PLAIN), stdout);
        putchar('\n');
        return;
    }
    putchar(' ');
    text_put(info->kind, 11);
    printf(" %10s  ", info->memory ? cli_size_text(size, info->memory) : "");
    text_put(info->name, 0);
    if (info->driver && *info->driver) {
        fputs(" (", stdout);
        text_put(info->driver, 0);
        putchar(')');
    }
    if (!info->usable) {
        fputs("\n               not usable: ", stdout);
        text_put(info->why_not, 0);
        fputs(term_style_text(t, stdout, TERM_PLAIN), stdout);
    } else {
        device_abilities(info, l->c->verbose);
    }
    putchar('\n');
}

static void verbose_log(void *user, beryl_log_level level, const char *line) {
    const cli *c = user;
    if (level == BERYL_LOG_DEBUG && c->verbose < 2) return;
    term_print(stderr, line, strlen(line), true);
    putc('\n', stderr);
}

int devices_main(cli *c) {
    listing l;
    beryl_error error = {0};
    beryl_log log = {.write = c->verbose ? verbose_log : NULL, .user = c};
    listing_begin(&l, c);
    beryl_status status = beryl_devices(&log, device_each, &l, &error);
    return listing_end(&l, status, &error);
}

/* ---- ops ------------------------------------------------------------------------------------- */

static void op_each(void *user, const beryl_op_info *info) {
    listing *l = user;
    char inputs[32];
    snprintf(inputs, sizeof inputs, info->n_in_min == info->n_in_max ? "%u" : "%u-%u",
             info->n_in_min, info->n_in_max);
    if (l->c->json) {
        json_open(&l->json, NULL, '{');
        json_text(&l->json, "name", info->name);
        json_text(&l->json, "group", info->group);
        json_integer(&l->json, "n_in_min", info->n_in_min);
        json_integer(&l->json, "n_in_max", info->n_in_max);
        json_integer(&l->json, "n_out", info->n_out);
        json_text(&l->json, "what", info->what);
        json_text(&l->json, "where", info->where);
        json_bool(&l->json, "gradient", info->gradient);
        json_close(&l->json, '}');
    } else if (args_has(&l->c->args, FLAG_OPS_MARKDOWN)) {
        if (!l->n++)
            puts("| operation | group | inputs | outputs | gradient | what | where |\n"
                 "| --- | --- | ---: | ---: | --- | --- | --- |");
        printf("| `%s` | %s | %s | %u | %s | %s | %s |\n", info->name, info->group, inputs,
               info->n_out, info->gradient ? "yes" : "no", info->what, info->where);
    } else {
        if (!l->n++)
            printf("%-14s %-10s %6s %7s  %-44s %s\n", "OPERATION", "GROUP", "INPUTS", "OUTPUTS",
                   "WHERE", "WHAT");
        printf("%-14s %-10s %6s %7u  %-44s %s\n", info->name, info->group, inputs, info->n_out,
               info->where, info->what);
    }
}

int ops_main(cli *c) {
    listing l;
    listing_begin(&l, c);
    beryl_ops(op_each, &l);
    return listing_end(&l, BERYL_OK, NULL);
}

/* ---- selftest -------------------------------------------------------------------------------- */

typedef struct tests {
    cli *c;
    json_out json;
    size_t n_passed, n_failed;
} tests;

static void test_each(void *user, const beryl_event *event) {
    tests *t = user;
    if (event->kind != BERYL_EVENT_TEST) return;
    *(event->ok ? &t->n_passed : &t->n_failed) += 1;
    if (t->c->json) {
        json_open(&t->json, NULL, '{');
        json_bytes(&t->json, "name", event->text, event->text_size);
        json_bool(&t->json, "ok", event->ok);
        json_number(&t->json, "error", event->value);
        json_close(&t->json, '}');
        return;
    }
    const term *shown = &t->c->term;
    fputs(term_style_text(shown, stdout, event->ok ? TERM_GREEN : TERM_RED), stdout);
    fputs(event->ok ? "ok  " : "FAIL", stdout);
    fputs(term_style_text(shown, stdout, TERM_PLAIN), stdout);
    putchar(' ');
    term_print(stdout, event->text, event->text_size, true);
    printf("  error %.2g\n", event->value);
    fflush(stdout);
}

int selftest_main(cli *c) {
    size_t n_used;
    cli_open open = {.model = cli_model(c, &n_used)};
    beryl_engine *engine = cli_engine_open(c, &open);
    if (!engine) return CLI_FAILED;
    tests t = {.c = c};
    beryl_task *task = NULL;
    beryl_error error = {0};
    beryl_status status = beryl_engine_selftest(engine, &task, &error);
    if (status) {
        beryl_engine_close(engine);
        return cli_report(c, status, &error);
    }
    json_init(&t.json, &c->heap);
    json_open(&t.json, NULL, '{');
    json_open(&t.json, "tests", '[');
    status = cli_task_run(c, task, test_each, &t);
    const beryl_error *cause = beryl_task_error(task);
    if (status && cause) error = *cause;
    beryl_task_close(task);
    if (c->json) {
        json_close(&t.json, ']');
        json_integer(&t.json, "passed", (int64_t)t.n_passed);
        json_integer(&t.json, "failed", (int64_t)t.n_failed);
        json_close(&t.json, '}');
        json_print(c, &t.json, stdout);
    } else {
        printf("%zu passed, %zu failed\n", t.n_passed, t.n_failed);
    }
    json_fini(&t.json);
    beryl_engine_close(engine);
    return cli_report(c, status, &error);
}
