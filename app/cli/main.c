/* main.c - the program: dispatch, signals, errors, opening engines and driving tasks.
 *
 * Ctrl-C: while a task runs, the handler cancels it (beryl_cancel may be called from a handler); at
 * the prompt it interrupts reading; else, and when pressed three times over one task, it ends the
 * program. */
#define _DEFAULT_SOURCE
#define _XOPEN_SOURCE 700
#include "cli.h"

#include "base/file.h"
#include "base/thread.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

/* ---- signals: the one mutable state of the program ------------------------------------------- */

static _Atomic(beryl_task *) task_running;
static volatile sig_atomic_t task_interrupts, in_chat, interrupted;
static volatile sig_atomic_t echo_off;
static struct termios echo_saved; /* valid while echo_off */
static pthread_t main_thread;

static void interrupt_handle(int number) {
    int saved = errno;
    if (!pthread_equal(pthread_self(), main_thread)) {
        /* A worker of the device's driver got it: only the main thread may look at the task. */
        pthread_kill(main_thread, number);
        errno = saved;
        return;
    }
    interrupted = 1;
    beryl_task *task = atomic_load(&task_running);
    if (task) {
        if (++task_interrupts > 2) {
            if (echo_off) tcsetattr(0, TCSANOW, &echo_saved);
            _exit(CLI_FAILED);
        }
        beryl_cancel(task);
    } else if (!in_chat) {
        signal(number, SIG_DFL);
        raise(number); /* delivered when this handler returns */
    }
    errno = saved;
}

/* Reading the terminal must be interrupted; reading model files must not. */
static void interrupt_install(bool restart) {
    struct sigaction action = {.sa_handler = interrupt_handle,
                               .sa_flags = restart ? SA_RESTART : 0};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

void cli_task_begin(beryl_task *task) {
    task_interrupts = 0;
    atomic_store(&task_running, task);
}

void cli_task_end(void) {
    atomic_store(&task_running, NULL);
}

void cli_prompt_set(bool on) {
    interrupted = 0;
    in_chat = 1; /* from its first prompt on, Ctrl-C between prompt and answer ends neither */
    interrupt_install(!on);
}

bool cli_interrupted(void) {
    bool was = interrupted;
    interrupted = 0;
    return was;
}

void cli_echo_set(bool on) {
    if (on) {
        if (echo_off) tcsetattr(0, TCSADRAIN, &echo_saved);
        echo_off = 0;
    } else if (!echo_off && !tcgetattr(0, &echo_saved)) {
        struct termios quiet = echo_saved;
        quiet.c_lflag &= ~(tcflag_t)ECHO;
        echo_off = 1;
        tcsetattr(0, TCSADRAIN, &quiet);
    }
}

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
    return cli_fail(c, "%s", beryl_status_text(status));
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

beryl_status cli_task_run(cli *c, beryl_task *task, void (*each)(void *user, const beryl_event *),
                          void *user) {
    beryl_event event;
    beryl_status status;
    cli_task_begin(task);
    while ((status = beryl_wait(task, &event)) == BERYL_EVENT) {
        if (event.kind == BERYL_EVENT_PROGRESS) {
            term_progress(&c->term, event.what, event.done, event.total, NULL);
        } else {
            if (c->term.drawn) term_clear(&c->term);
            if (each) each(user, &event);
        }
    }
    cli_task_end();
    term_clear(&c->term);
    return status;
}

static void dummy_warn(cli *c, const beryl_engine *engine) {
    beryl_engine_info info;
    if (beryl_engine_info_get(engine, &info) || strcmp(info.device.backend, "dummy")) return;
    log_write(c, BERYL_LOG_WARNING, "the dummy device computes nothing: no number is right");
}

beryl_engine *cli_engine_open(cli *c, const cli_open *open) {
    static const beryl_precision precisions[] = {BERYL_PRECISION_EXACT, BERYL_PRECISION_FAST};
    static const beryl_kv kvs[] = {BERYL_KV_F32, BERYL_KV_F16, BERYL_KV_Q8};
    const args *a = &c->args;
    beryl_engine_options options = {
        .size = sizeof options,
        .model = open->model,
        .device = args_text(a, FLAG_DEVICE),
        .precision = BERYL_PRECISION_FAST,
        .context = args_count(a, FLAG_CONTEXT, open->context),
        .sessions = open->sessions,
        .memory = a->values[FLAG_MEMORY].integer,
        .vocabulary_only = open->vocabulary_only,
        .no_cache = args_has(a, FLAG_NO_CACHE),
        .piece = args_count(a, FLAG_PIECE, 0),
        .log = cli_log(c),
    };
    if (args_has(a, FLAG_PRECISION))
        options.precision = precisions[a->values[FLAG_PRECISION].integer];
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

char *cli_read(cli *c, const char *path, size_t *size) {
    enum { LIMIT = 256 << 20 };
    FILE *file = strcmp(path, "-") ? fopen(path, "rb") : stdin;
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

/* ---- main ------------------------------------------------------------------------------------ */

static int dispatch(cli *c) {
    switch (c->args.command) {
    case COMMAND_RUN: return run_main(c);
    case COMMAND_SHOW: return show_main(c);
    case COMMAND_LIST: return list_main(c);
    case COMMAND_DEVICES: return devices_main(c);
    case COMMAND_BENCH: return bench_main(c);
    case COMMAND_TOKENIZE: return tokenize_main(c);
    case COMMAND_RENDER: return render_main(c);
    case COMMAND_LOGITS: return logits_main(c);
    case COMMAND_PERPLEXITY: return perplexity_main(c);
    case COMMAND_SELFTEST: return selftest_main(c);
    case COMMAND_EXPLAIN: return explain_main(c);
    case COMMAND_TRACE: return trace_main(c);
    case COMMAND_TUNE: return tune_main(c);
    case COMMAND_BENCH_OPS: return bench_ops_main(c);
    case COMMAND_OPS: return ops_main(c);
    case COMMAND_HELP: return help_main(c);
    case COMMAND_NONE: break;
    }
    return CLI_USAGE;
}

int main(int argc, char **argv) {
    setenv("NODEVICE_SELECT", "1", 0); /* Mesa's selection layer complains on machines without a desktop */
    cli c = {.verbose = 0};
    /* Characters only: numbers keep their point. The line editor needs UTF-8 whatever the locale.
     */
    if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8")) {
        if (!setlocale(LC_CTYPE, "C.UTF-8")) setlocale(LC_CTYPE, "en_US.UTF-8");
    }
    base_heap_init(&c.heap, NULL);
    term_init(&c.term);
    c.started = base_time();
    main_thread = pthread_self();
    interrupt_install(true);
    char message[512] = "";
    int code = CLI_OK;
    if (argc < 2) {
        help_overview(stderr);
        return CLI_USAGE;
    }
    if (!args_parse(&c.args, &c.heap, argc, argv, message, sizeof message)) {
        code = cli_usage(&c, "%s", message);
    } else if (c.args.version || args_has(&c.args, FLAG_VERSION)) {
        printf("beryl %s\n", beryl_version());
    } else if (args_has(&c.args, FLAG_HELP)) {
        if (c.args.command == COMMAND_HELP) {
            help_overview(stdout);
        } else {
            help_command(stdout, c.args.command);
        }
    } else {
        c.verbose = c.args.values[FLAG_VERBOSE].count;
        c.json = args_has(&c.args, FLAG_JSON);
        code = dispatch(&c);
    }
    code = cli_flush(&c, code);
    args_fini(&c.args, &c.heap);
    return code;
}
