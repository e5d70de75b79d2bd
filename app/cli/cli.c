/* cli.c - errors, opening engines, driving tasks, reading texts, sizes for people. */
#define _XOPEN_SOURCE 700
#include "cli.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- errors ---------------------------------------------------------------------------------- */

static void error_line(cli *c, const char *message, va_list list) {
    char line[1024];
    vsnprintf(line, sizeof line, message, list);
    term_clear(&c->term);
    fflush(stdout);
    fprintf(stderr, "%sberyl:%s ", term_style_text(&c->term, stderr, TERM_RED),
            term_style_text(&c->term, stderr, TERM_PLAIN));
    term_print(stderr, line, strlen(line), true);
    putc('\n', stderr);
}

int cli_fail(cli *c, const char *message, ...) {
    va_list list;
    va_start(list, message);
    error_line(c, message, list);
    va_end(list);
    return CLI_FAILED;
}

int cli_usage(cli *c, const char *message, ...) {
    va_list list;
    va_start(list, message);
    error_line(c, message, list);
    va_end(list);
    return CLI_USAGE;
}

int cli_report(cli *c, beryl_status status, const beryl_error *error) {
    if (status == BERYL_OK) return CLI_OK;
    if (error && *error->message) return cli_fail(c, "%s", error->message);
    return status == BERYL_IO ? CLI_FAILED : cli_fail(c, "%s", beryl_status_text(status));
}

int cli_no_memory(cli *c) {
    return cli_fail(c, "out of host memory");
}

int cli_flush(cli *c, int code) {
    if (!fflush(stdout) && !ferror(stdout)) return code;
    return cli_fail(c, "writing the output failed: %s", strerror(errno));
}

static void log_write(void *user, beryl_log_level level, const char *line) {
    cli *c = user;
    if (level == BERYL_LOG_ERROR) return; /* comes as a status too */
    if (level == BERYL_LOG_INFO && !c->verbose) return;
    if (level == BERYL_LOG_DEBUG && c->verbose < 2) return;
    term_clear(&c->term);
    bool warning = level == BERYL_LOG_WARNING;
    fprintf(stderr, "%s%s", term_style_text(&c->term, stderr, warning ? TERM_YELLOW : TERM_DIM),
            warning ? "beryl: warning: " : "");
    term_print(stderr, line, strlen(line), true);
    fprintf(stderr, "%s\n", term_style_text(&c->term, stderr, TERM_PLAIN));
}

beryl_log cli_log(cli *c) {
    return (beryl_log){.write = log_write, .user = c};
}

/* ---- engines and tasks ----------------------------------------------------------------------- */

static void progress_show(cli *c, const beryl_event *event) {
    char note[80];
    const bool compiles = !strcmp(event->what, "compiling kernels");
    if (compiles)
        snprintf(note, sizeof note, "%llu of %llu%s", (unsigned long long)event->done,
                 (unsigned long long)event->total,
                 args_has(&c->args, FLAG_NO_CACHE) ? "" : ", kept for next time");
    term_progress(&c->term, event->what, event->done, event->total, compiles ? note : NULL);
}

beryl_status cli_task_run(cli *c, beryl_task *task, void (*each)(void *user, const beryl_event *),
                          void *user) {
    beryl_event event;
    beryl_status status;
    cli_task_begin(task);
    while ((status = beryl_wait(task, &event)) == BERYL_EVENT) {
        if (event.kind == BERYL_EVENT_PROGRESS) {
            progress_show(c, &event);
        } else {
            term_lift(&c->term);
            if (each) each(user, &event);
        }
    }
    term_clear(&c->term);
    cli_task_end();
    return status;
}

beryl_precision cli_precision(const cli *c) {
    /* A choice's first word, which is what nothing given reads as, is exact. */
    const bool exact =
        args_has(&c->args, FLAG_PRECISION) && !c->args.values[FLAG_PRECISION].integer;
    return exact ? BERYL_PRECISION_EXACT : BERYL_PRECISION_FAST;
}

static void dummy_warn(cli *c, const beryl_engine *engine) {
    beryl_engine_info info;
    if (beryl_engine_info_get(engine, &info) || strcmp(info.device.backend, "dummy")) return;
    log_write(c, BERYL_LOG_WARNING, "the dummy device computes nothing: no number is right");
}

beryl_engine *cli_engine_open(cli *c, const cli_open *open) {
    static const beryl_kv kvs[] = {BERYL_KV_F32, BERYL_KV_F16, BERYL_KV_Q8};
    const args *a = &c->args;
    beryl_engine_options options = {
        .size = sizeof options,
        .model = open->model,
        .device = args_text(a, FLAG_DEVICE),
        .precision = cli_precision(c),
        .context = args_count(a, FLAG_CONTEXT, open->context),
        .sessions = open->sessions,
        .memory = a->values[FLAG_MEMORY].integer,
        .vocabulary_only = open->vocabulary_only,
        .header_only = open->header_only,
        .no_cache = args_has(a, FLAG_NO_CACHE),
        .piece = args_count(a, FLAG_PIECE, 0),
        .mmproj = args_text(a, FLAG_MMPROJ),
        .log = cli_log(c),
    };
    if (!open->vocabulary_only && !open->header_only) cli_end_late();
    if (args_has(a, FLAG_KV)) options.kv = kvs[a->values[FLAG_KV].integer];
    beryl_error error = {0};
    beryl_engine *engine = NULL;
    beryl_task *task = NULL;
    beryl_status status = beryl_engine_open(&options, &engine, &error);
    if (!status) status = beryl_engine_load(engine, &task, &error);
    if (!status) {
        status = cli_task_run(c, task, NULL, NULL);
        const beryl_error *cause = beryl_task_error(task);
        if (status && cause) error = *cause;
    }
    beryl_task_close(task);
    if (!status && !open->vocabulary_only && !open->header_only)
        status = cli_lora_open(c, engine, &error);
    if (!status && open->bench && beryl_engine_measure(engine, &error)) {
        log_write(c, BERYL_LOG_WARNING,
                  *error.message ? error.message : "the bandwidth was not measured");
    }
    if (!status) {
        if ((1u << a->command) & ON_ANSWERS) dummy_warn(c, engine);
        return engine;
    }
    if (status == BERYL_CANCELLED) {
        cli_fail(c, "stopped while loading");
    } else if (status == BERYL_NOT_FOUND && a->command == COMMAND_RUN && a->n_positional == 1 &&
               open->model == a->positional[0]) { /* or was it to be the prompt? */
        cli_fail(c, "\"%s\" is taken as the model's name: %s", open->model, error.message);
    } else {
        cli_report(c, status, &error);
    }
    beryl_engine_close(engine);
    return NULL;
}

const char *cli_model(const cli *c, size_t *n_used) {
    const args *a = &c->args;
    *n_used = 0;
    if (args_has(a, FLAG_MODEL)) return args_text(a, FLAG_MODEL);
    if (!a->n_positional) return NULL;
    *n_used = 1;
    return a->positional[0];
}

int32_t *cli_tokens(cli *c, const beryl_engine *engine, int32_t bos, const char *text, size_t size,
                    bool special, size_t *n_token) {
    beryl_error error = {0};
    size_t n = 0, lead = bos >= 0, capacity = size + 1;
    int32_t *tokens = base_heap_take(&c->heap, (capacity + lead) * sizeof *tokens);
    if (!tokens) {
        cli_no_memory(c);
        return NULL;
    }
    beryl_status status =
        beryl_tokenize(engine, text, size, special, tokens + lead, capacity, &n, &error);
    if (!status && n > capacity) status = BERYL_MISUSE; /* a token has at least one byte */
    int32_t *fit = NULL;
    if (status) {
        cli_report(c, status, &error);
    } else if (!(fit = base_heap_take(&c->heap, (n + lead ? n + lead : 1) * sizeof *fit))) {
        cli_no_memory(c);
    } else {
        if (lead) tokens[0] = bos;
        memcpy(fit, tokens, (n + lead) * sizeof *fit);
        *n_token = n + lead;
    }
    base_heap_give(&c->heap, tokens, (capacity + lead) * sizeof *tokens);
    return fit;
}

int32_t cli_bos(cli *c, const beryl_engine *engine) {
    beryl_error error = {0};
    int32_t id = -1;
    size_t n = 0;
    beryl_status status = beryl_tokenize(engine, "<bos>", 5, true, &id, 1, &n, &error);
    if (!status && n == 1) return id;
    if (status) {
        cli_report(c, status, &error);
    } else {
        cli_fail(c, "the model's vocabulary has no <bos> token; give the prompt with --ids");
    }
    return -1;
}

/* Does not wait for somebody to write into a pipe. */
static FILE *file_open(const char *path, bool *pipe) {
    struct stat about;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return NULL;
    *pipe = !fstat(fd, &about) && S_ISFIFO(about.st_mode);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK); /* what is being written is waited for */
    FILE *file = fdopen(fd, "rb");
    if (!file) close(fd);
    return file;
}

char *cli_read(cli *c, const char *path, size_t *size) {
    enum { LIMIT = 256 << 20 };
    bool pipe = false;
    FILE *file = strcmp(path, "-") ? file_open(path, &pipe) : stdin;
    if (!file) {
        cli_fail(c, "cannot open %s: %s", path, strerror(errno));
        return NULL;
    }
    base_text text;
    base_text_init(&text, &c->heap);
    char piece[16384];
    for (size_t n; text.size <= LIMIT && (n = fread(piece, 1, sizeof piece, file)) > 0;)
        base_text_add(&text, piece, n);
    base_text_add(&text, "", 0);
    char *data = NULL;
    bool failed = ferror(file);
    int cause = errno;
    if (file != stdin) fclose(file);
    if (failed) {
        cli_fail(c, "cannot read %s: %s", path, strerror(cause));
    } else if (text.size > LIMIT) {
        cli_fail(c, "%s is longer than 256 MiB", path);
    } else if (pipe && !text.size) {
        failed = true;
        cli_fail(c, "%s is a pipe that nothing writes into", path);
    } else if (!text.size && !text.failed) {
        data = base_heap_take(&c->heap, 1); /* base_text gives no memory for nothing */
        *size = 0;
    } else {
        data = base_text_take(&text, size);
    }
    if (!data && !failed && text.size <= LIMIT) cli_no_memory(c);
    base_text_fini(&text);
    return data;
}

void cli_ids_print(FILE *to, const int32_t *tokens, size_t n_token) {
    for (size_t i = 0; i < n_token; i++) fprintf(to, i ? ",%d" : "%d", (int)tokens[i]);
    putc('\n', to);
}

const char *cli_size_text(char *to, uint64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1024 && unit < 4; unit++) value /= 1024;
    snprintf(to, 32, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
    return to;
}

const char *cli_count_text(char *to, uint64_t count) {
    double value = (double)count;
    if (value >= 1e9) {
        snprintf(to, 32, "%.2f B", value * 1e-9);
    } else if (value >= 1e6) {
        snprintf(to, 32, "%.2f M", value * 1e-6);
    } else {
        snprintf(to, 32, "%.0f", value);
    }
    return to;
}
