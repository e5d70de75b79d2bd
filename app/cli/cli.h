/* cli.h - what the program's files share: the context, opening an engine, driving a task, errors,
 * JSON.
 *
 * The program owns the terminal, the signals and the exit codes; the library knows of none of them.
 * It uses beryl.h alone for everything that concerns models. Exit codes: 0 done, 1 failed, 2 wrong
 * use. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "args.h"
#include "term.h"

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

enum { CLI_LORA_MAX = ARGS_TEXTS_MAX };
typedef struct cli_lora { /* adapters that sessions are given; they end with their engine */
    beryl_adapter *adapters[CLI_LORA_MAX];
    float scales[CLI_LORA_MAX];
    size_t n;
} cli_lora;

typedef struct cli {
    base_heap heap;
    args args;
    cli_lora lora;
    term term;
    uint32_t verbose;
    bool json;
    double started; /* seconds, base_time at the program's start */
} cli;

/* ---- errors: one line on stderr, "beryl: ...", cleaned of control characters. Each gives the exit
 * code. */
int cli_fail(cli *c, const char *message, ...) __attribute__((format(printf, 2, 3)));
int cli_usage(cli *c, const char *message, ...) __attribute__((format(printf, 2, 3)));
/* Says nothing for BERYL_OK and gives CLI_OK. BERYL_IO without a message is reported already. */
int cli_report(cli *c, beryl_status status, const beryl_error *error);
int cli_no_memory(cli *c);
/* Flushes standard output; CLI_FAILED with a message where something could not be written. */
int cli_flush(cli *c, int code);

/* ---- engines and tasks */
typedef struct cli_open {
    const char *model; /* NULL: the built-in model */
    bool vocabulary_only;
    bool header_only;  /* also of a file that cannot be run */
    uint32_t sessions; /* 0: 1 */
    uint32_t context;  /* 0: --context, else the library's default */
    bool bench;        /* measure the device's bandwidth too */
} cli_open;

/* What the library has to say goes to standard error, as --verbose asks. */
beryl_log cli_log(cli *c);
beryl_precision cli_precision(const cli *c); /* as --precision says */
/* Opens and loads with a progress bar. Reports failure itself; then NULL. */
beryl_engine *cli_engine_open(cli *c, const cli_open *open);
/* Runs a task to its end with a progress bar and hands every other event to `each` (may be NULL).
 * Ctrl-C cancels the task. The caller reports and closes. */
beryl_status cli_task_run(cli *c, beryl_task *task, void (*each)(void *user, const beryl_event *),
                          void *user);
void cli_signals_begin(void); /* once, by the main thread */
/* Around the life of a task that is stepped by hand: Ctrl-C cancels it, and so does one that
 * came before and stopped nothing; what is typed is not shown but kept. Ended before the task is
 * closed. */
void cli_task_begin(beryl_task *task);
void cli_task_end(void);
/* From here on Ctrl-C does not end the program where no task runs: it is kept for the next task
 * or the next prompt. */
void cli_chat_begin(void);
/* The same for work of many tasks: one that came between two cancels the next. SIGTERM and SIGHUP
 * still do what cli_end_late says. */
void cli_keep_interrupts(void);
/* Was there one that stopped nothing? Clears it. Is the program to end? */
bool cli_interrupted(void);
/* A byte of standard input: 1, 0 at its end, -1 with errno EINTR where Ctrl-C or another signal
 * interrupted it, or had come before. */
int cli_key_read(char *byte);
/* SIGTERM, SIGHUP and SIGQUIT, and SIGINT where no task runs, end the program by that signal, with
 * the terminal as it was found: at once, but from cli_end_late on, outside a chat, the first of
 * them other than SIGQUIT cancels the task, so that what was begun (compilers, files) is put away
 * before cli_end_check. */
void cli_end_late(void);
void cli_end_check(void);

/* ---- adapters (lora.c) */
/* Those of --lora, of an engine that was opened. */
beryl_status cli_lora_open(cli *c, beryl_engine *engine, beryl_error *error);
/* One more, given as PATH[:SCALE]. */
beryl_status cli_lora_add(cli *c, beryl_engine *engine, const char *given, beryl_error *error);
void cli_lora_close(cli *c, size_t keep); /* all but the first */
/* The path of PATH[:SCALE], given back with *size + 1. NULL: no memory. */
char *cli_lora_split(cli *c, const char *given, size_t *size, float *scale);
beryl_status cli_lora_give(cli *c, beryl_session *session, beryl_error *error);
/* A session that has them. After a failure too it is the caller's, where it is not NULL. */
beryl_status cli_session_open(cli *c, beryl_engine *engine, beryl_session **session,
                              beryl_error *error);

/* The model named by --model or the first argument; *n_used: how many arguments that took. */
const char *cli_model(const cli *c, size_t *n_used);
/* The id of BOS, or -1 after a message. */
int32_t cli_bos(cli *c, const beryl_engine *engine);
/* BOS (unless bos < 0) and the tokens of a text, to be given back with base_heap_give(.., *n * 4).
 * NULL: reported. */
int32_t *cli_tokens(cli *c, const beryl_engine *engine, int32_t bos, const char *text, size_t size,
                    bool special, size_t *n_token);
/* A whole file or, for "-", standard input, up to 256 MiB; NUL-terminated, given back with size
 * + 1. NULL: reported. */
char *cli_read(cli *c, const char *path, size_t *size);
/* The head of a NumPy file of F32 [n_row, n_column]; the numbers follow. */
void cli_npy_head(FILE *to, size_t n_row, size_t n_column);
/* The same of any type, as NumPy names it, and up to 10 dimensions: how many bytes it has. */
enum { CLI_NPY_HEAD = 320 };
size_t cli_npy_head_make(char to[CLI_NPY_HEAD], const char *descr, uint32_t rank,
                         const uint32_t *dims);
void cli_ids_print(FILE *to, const int32_t *tokens, size_t n_token); /* "2,10,11\n" */
/* 1.9 GiB, 4.65 B and the like; `to` of at least 32 bytes. */
const char *cli_size_text(char *to, uint64_t bytes);
const char *cli_count_text(char *to, uint64_t count);

/* ---- JSON output into a base_text */
typedef struct json_out {
    base_text text;
    bool comma; /* one is due before the next value */
} json_out;

void json_init(json_out *j, base_heap *heap);
void json_fini(json_out *j);
void json_open(json_out *j, const char *key,
               char bracket); /* '{' or '['; key NULL: none (inside arrays) */
void json_close(json_out *j, char bracket);
void json_text(json_out *j, const char *key, const char *value); /* NULL: null */
void json_bytes(json_out *j, const char *key, const char *data, size_t size);
void json_integer(json_out *j, const char *key, int64_t value);
void json_number(json_out *j, const char *key, double value); /* null where not finite */
void json_bool(json_out *j, const char *key, bool value);
void json_raw(json_out *j, const char *key, const char *json,
              size_t size); /* valid JSON as it is */
void json_ids(json_out *j, const char *key, const int32_t *tokens, size_t n_token);
/* Prints it as a line and clears it. */
int json_print(cli *c, json_out *j, FILE *to);

/* ---- commands: each gives the exit code */
int run_main(cli *c);
int show_main(cli *c);
int list_main(cli *c);
int devices_main(cli *c);
int bench_main(cli *c);
int tokenize_main(cli *c);
int render_main(cli *c);
int logits_main(cli *c);
int embed_media_main(cli *c);
int perplexity_main(cli *c);
int selftest_main(cli *c);
int explain_main(cli *c);
int trace_main(cli *c);
int tune_main(cli *c);
int train_main(cli *c);
int bench_ops_main(cli *c);
int ops_main(cli *c);
int eval_main(cli *c);
/* of show, explain and bench: an ONNX file */
bool cli_is_onnx(const char *path);
int cli_onnx_show(cli *c, const char *path);
int cli_onnx_explain(cli *c, const char *path, const beryl_explain_options *options,
                     void (*write)(void *user, const char *text, size_t size));
int cli_onnx_bench(cli *c, const char *path);
int merge_main(cli *c);
int adapter_main(cli *c);
int help_main(cli *c);
void help_command(FILE *to, args_command command);
void help_overview(FILE *to);

#endif
