/* tokens.c - text, ids and numbers for other tools: tokenize, render, logits. What these print is
 * exact: the forms are fixed, and only a terminal is protected from control characters. */
#define _DEFAULT_SOURCE
#include "media.h"

#include <errno.h>
#include <string.h>

static void exact_print(const cli *c, const char *text, size_t size) {
    if (c->term.out_tty) {
        term_print(stdout, text, size, false);
        if (size && text[size - 1] != '\n') putchar('\n'); /* the shell's prompt begins its line */
    } else if (size) {
        fwrite(text, 1, size, stdout);
    }
}

static int ids_output(cli *c, const int32_t *tokens, size_t n_token) {
    if (!c->json) {
        cli_ids_print(stdout, tokens, n_token);
        return CLI_OK;
    }
    json_out j;
    json_init(&j, &c->heap);
    json_open(&j, NULL, '{');
    json_ids(&j, "tokens", tokens, n_token);
    json_integer(&j, "n_token", (int64_t)n_token);
    json_close(&j, '}');
    int code = json_print(c, &j, stdout);
    json_fini(&j);
    return code;
}

static int text_output(cli *c, const char *name, const char *text, size_t size) {
    if (!c->json) {
        exact_print(c, text, size);
        return CLI_OK;
    }
    json_out j;
    json_init(&j, &c->heap);
    json_open(&j, NULL, '{');
    json_bytes(&j, name, text, size);
    json_close(&j, '}');
    int code = json_print(c, &j, stdout);
    json_fini(&j);
    return code;
}

/* ---- tokenize -------------------------------------------------------------------------------- */

static int decode(cli *c, const beryl_engine *engine) {
    const uint32_t *ids = c->args.list[FLAG_DECODE].data;
    size_t n = c->args.list[FLAG_DECODE].count, size = 0;
    int32_t *tokens = base_heap_take(&c->heap, n * sizeof *tokens);
    if (!tokens) return cli_no_memory(c);
    for (size_t i = 0; i < n; i++) tokens[i] = (int32_t)ids[i];
    char *text = NULL;
    beryl_error error = {0};
    beryl_status status =
        beryl_detokenize(engine, tokens, n, args_has(&c->args, FLAG_SPECIAL), &text, &size, &error);
    int code = status ? cli_report(c, status, &error) : text_output(c, "text", text, size);
    beryl_free(engine, text);
    base_heap_give(&c->heap, tokens, n * sizeof *tokens);
    return code;
}

static int encode(cli *c, const beryl_engine *engine) {
    const char *text = args_text(&c->args, FLAG_TEXT), *path = args_text(&c->args, FLAG_TEXT_FILE);
    size_t size = text ? strlen(text) : 0, n_token = 0;
    char *read = NULL;
    if (!text) {
        if (!(read = cli_read(c, path ? path : "-", &size))) return CLI_FAILED;
        text = read;
    }
    int32_t *tokens =
        cli_tokens(c, engine, -1, text, size, args_has(&c->args, FLAG_SPECIAL), &n_token);
    int code = tokens ? ids_output(c, tokens, n_token) : CLI_FAILED;
    base_heap_give(&c->heap, tokens, (n_token ? n_token : 1) * sizeof *tokens);
    if (read) base_heap_give(&c->heap, read, size + 1);
    return code;
}

int tokenize_main(cli *c) {
    const args *a = &c->args;
    if (args_has(a, FLAG_TEXT) + args_has(a, FLAG_TEXT_FILE) + args_has(a, FLAG_DECODE) > 1)
        return cli_usage(c, "give one of --text, --file and --decode");
    size_t n_used;
    cli_open open = {.model = cli_model(c, &n_used), .vocabulary_only = true};
    beryl_engine *engine = cli_engine_open(c, &open);
    if (!engine) return CLI_FAILED;
    int code = args_has(a, FLAG_DECODE) ? decode(c, engine) : encode(c, engine);
    beryl_engine_close(engine);
    return code;
}

/* ---- render ---------------------------------------------------------------------------------- */

static int render(cli *c, const beryl_engine *engine, const char *chat) {
    beryl_error error = {0};
    beryl_status status;
    int code;
    if (args_has(&c->args, FLAG_RENDER_IDS)) {
        int32_t *tokens = NULL;
        size_t n_token = 0;
        status = beryl_render_tokens(engine, chat, &tokens, &n_token, &error);
        code = status ? cli_report(c, status, &error) : ids_output(c, tokens, n_token);
        beryl_free(engine, tokens);
    } else {
        char *prompt = NULL;
        size_t size = 0;
        status = beryl_render(engine, chat, &prompt, &size, &error);
        code = status ? cli_report(c, status, &error) : text_output(c, "prompt", prompt, size);
        beryl_free(engine, prompt);
    }
    return code;
}

int render_main(cli *c) {
    size_t n_used, size = 0;
    const char *path = args_text(&c->args, FLAG_RENDER_CHAT);
    char *chat = cli_read(c, path ? path : "-", &size);
    if (!chat) return CLI_FAILED;
    cli_open open = {.model = cli_model(c, &n_used), .vocabulary_only = true};
    beryl_engine *engine = cli_engine_open(c, &open);
    int code = engine ? render(c, engine, chat) : CLI_FAILED;
    beryl_engine_close(engine);
    base_heap_give(&c->heap, chat, size + 1);
    return code;
}

/* ---- logits ---------------------------------------------------------------------------------- */

typedef struct logits_file {
    FILE *to;
    uint32_t n_vocab;
    size_t n_row;
    bool failed;
    int cause; /* errno */
} logits_file;

/* NumPy's format 1.0: magic, version, length of the header, a Python dict padded so that the data
 * begin at a multiple of 64 bytes.
 * https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html */
size_t cli_npy_head_make(char to[CLI_NPY_HEAD], const char *descr, uint32_t rank,
                         const uint32_t *dims) {
    enum { HEAD = 10, ALIGN = 64 };
    char *text = to + HEAD;
    const size_t size = CLI_NPY_HEAD - HEAD;
    size_t n =
        (size_t)snprintf(text, size, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (uint32_t i = 0; i < rank; i++)
        n += (size_t)snprintf(text + n, size - n, rank == 1 ? "%u," : i ? ", %u" : "%u", dims[i]);
    n += (size_t)snprintf(text + n, size - n, "), }");
    while ((HEAD + n + 1) % ALIGN) text[n++] = ' ';
    text[n++] = '\n';
    memcpy(to, "\x93NUMPY\x01\x00", 8);
    to[8] = (char)(n & 255);
    to[9] = (char)(n >> 8);
    return HEAD + n;
}

void cli_npy_head(FILE *to, size_t n_row, size_t n_column) {
    char head[CLI_NPY_HEAD];
    const uint16_t probe = 1;
    const uint32_t dims[2] = {(uint32_t)n_row, (uint32_t)n_column};
    fwrite(head, 1,
           cli_npy_head_make(head, *(const unsigned char *)&probe ? "<f4" : ">f4", 2, dims), to);
}

static void logits_each(void *user, size_t position, const float *logits) {
    logits_file *f = user;
    (void)position; /* rows come in order */
    f->n_row++;
    if (f->failed || fwrite(logits, sizeof *logits, f->n_vocab, f->to) == f->n_vocab) return;
    f->failed = true;
    f->cause = errno;
}

static int logits_write(cli *c, beryl_engine *engine, const int32_t *tokens, size_t n_token,
                        const char *path) {
    beryl_engine_info info = {0};
    beryl_error error = {0};
    beryl_session *session = NULL;
    beryl_task *task = NULL;
    media_store media;
    base_text parts;
    logits_file file = {.to = strcmp(path, "-") ? fopen(path, "wb") : stdout};
    if (!file.to) return cli_fail(c, "cannot write %s: %s", path, strerror(errno));
    beryl_status status = beryl_engine_info_get(engine, &info);
    if (!status) status = cli_session_open(c, engine, &session, &error);
    media_init(&media, c, engine);
    base_text_init(&parts, &c->heap);
    if (!status) status = media_add_flags(&media, &parts, &error);
    if (!status) status = media_give_parts(&media, session, &parts, &error);
    base_text_fini(&parts);
    media_fini(&media); /* the session keeps what it was given */
    if (!status) {
        file.n_vocab = info.n_vocab;
        cli_npy_head(file.to, n_token, info.n_vocab);
        status =
            beryl_session_logits(session, tokens, n_token, 0, args_count(&c->args, FLAG_PIECE, 0),
                                 logits_each, &file, &task, &error);
    }
    if (!status) {
        status = cli_task_run(c, task, NULL, NULL);
        const beryl_error *cause = beryl_task_error(task);
        if (status && cause) error = *cause;
    }
    beryl_task_close(task);
    beryl_session_close(session);
    int code = cli_report(c, status, &error);
    if (!code && file.n_row != n_token)
        code = cli_fail(c, "the engine gave %zu rows of %zu", file.n_row, n_token);
    if (file.to != stdout && fclose(file.to) && !file.failed) {
        file.failed = true;
        file.cause = errno;
    }
    if (!code && file.failed) code = cli_fail(c, "cannot write %s: %s", path, strerror(file.cause));
    if (code && file.to != stdout) remove(path);
    return code;
}

int logits_main(cli *c) {
    const args *a = &c->args;
    const char *text = args_text(a, FLAG_LOGITS_TEXT), *path = args_text(a, FLAG_OUT);
    if (!path) return cli_usage(c, "say where to write them: --out FILE.npy");
    if (!text == !args_has(a, FLAG_IDS))
        return cli_usage(c, "give the prompt with --ids IDS or with --text TEXT");
    size_t n_used, n_token = 0;
    uint32_t needed = text ? 0 : (uint32_t)a->list[FLAG_IDS].count;
    /* Long prompts must fit without a further flag; short ones keep the default. */
    cli_open open = {.model = cli_model(c, &n_used), .context = needed > 8192 ? needed : 0};
    beryl_engine *engine = cli_engine_open(c, &open);
    if (!engine) return CLI_FAILED;
    int32_t *tokens = NULL;
    size_t n_owned = 0;
    if (text) {
        int32_t bos = cli_bos(c, engine);
        if (bos >= 0) tokens = cli_tokens(c, engine, bos, text, strlen(text), false, &n_token);
        n_owned = n_token;
    } else {
        n_token = a->list[FLAG_IDS].count; /* same size and, up to 2^31 - 1, the same bits */
        tokens = base_heap_take(&c->heap, n_token * sizeof *tokens);
        if (tokens) memcpy(tokens, a->list[FLAG_IDS].data, n_token * sizeof *tokens);
        if (!tokens) cli_no_memory(c);
        n_owned = n_token;
    }
    int code = tokens ? logits_write(c, engine, tokens, n_token, path) : CLI_FAILED;
    base_heap_give(&c->heap, tokens, n_owned * sizeof *tokens);
    beryl_engine_close(engine);
    return code;
}
