/* run.c - `beryl run`: decides between chat and one answer, makes the prompt, and shows answers as
 * they come. Control characters of a model never reach the terminal; thought is shown dimmed, and
 * only on a terminal. */
#include "media.h"

#include "base/file.h"

#include <string.h>

/* ---- one answer ------------------------------------------------------------------------------ */

void answer_init(answer *a, cli *c, bool silent) {
    *a = (answer){.c = c, .silent = silent, .shown = BERYL_PART_TEXT, .fresh_line = true};
    base_text_init(&a->text, &c->heap);
    base_text_init(&a->thought, &c->heap);
}

void answer_fini(answer *a) {
    base_text_fini(&a->text);
    base_text_fini(&a->thought);
    for (size_t i = 0; i < a->calls.count; i++) base_text_fini(&a->calls.data[i]);
    base_vec_fini(&a->c->heap, &a->calls);
    base_vec_fini(&a->c->heap, &a->tokens);
}

static void style(const answer *a, term_style to) {
    fputs(term_style_text(&a->c->term, stdout, to), stdout);
}

static void part_change(answer *a, beryl_part part) {
    if (part == a->shown) return;
    term_filter_end(&a->filter, stdout);
    if (a->shown == BERYL_PART_THOUGHT) {
        style(a, TERM_PLAIN);
        if (a->any) fputs(a->fresh_line ? "\n" : "\n\n", stdout);
        a->fresh_line = true;
        a->filter = (term_filter){.column = 0};
    }
    if (part == BERYL_PART_THOUGHT) style(a, TERM_DIM);
    a->shown = part;
}

static void show(answer *a, beryl_part part, const char *text, size_t size) {
    if (a->silent || !size) return;
    if (part == BERYL_PART_THOUGHT && !a->c->term.out_tty) return;
    part_change(a, part);
    if (!a->any || (a->fresh_line && part == BERYL_PART_CALL)) {
        /* An answer does not begin with empty lines. */
        while (!a->any && size && (*text == '\n' || *text == ' ')) text++, size--;
        if (!size) return;
    }
    a->filter.width = a->c->term.out_tty && a->c->term.moves ? term_width() : 0;
    term_filter_add(&a->filter, stdout, text, size);
    a->any = true;
    a->fresh_line = text[size - 1] == '\n';
    fflush(stdout);
}

static void call_show(answer *a, const beryl_event *event) {
    if (a->silent) return;
    part_change(a, BERYL_PART_CALL);
    if (!a->fresh_line) putchar('\n');
    term_print(stdout, event->text, event->text_size, true);
    putchar('\n');
    a->filter = (term_filter){.column = 0};
    a->any = a->fresh_line = true;
    fflush(stdout);
}

static void event_take(answer *a, const beryl_event *event) {
    if (event->kind == BERYL_EVENT_CALL) {
        base_text *call = base_vec_add(&a->c->heap, &a->calls);
        if (call) {
            base_text_init(call, &a->c->heap);
            base_text_add(call, event->text, event->text_size);
        }
        a->failed |= !call || call->failed;
        call_show(a, event);
        return;
    }
    if (event->kind != BERYL_EVENT_TOKEN) return;
    if (event->token >= 0) {
        int32_t *id = base_vec_add(&a->c->heap, &a->tokens);
        if (id) {
            *id = event->token;
        } else {
            a->failed = true;
        }
    }
    switch (event->part) {
    case BERYL_PART_TEXT:
        base_text_add(&a->text, event->text, event->text_size);
        show(a, event->part, event->text, event->text_size);
        break;
    case BERYL_PART_THOUGHT:
        base_text_add(&a->thought, event->text, event->text_size);
        show(a, event->part, event->text, event->text_size);
        break;
    case BERYL_PART_CALL:
    case BERYL_PART_CONTROL: break;
    }
}

static void answer_each(void *user, const beryl_event *event) {
    answer *a = user;
    event_take(a, event);
    a->c->term.column = a->filter.column;
}

beryl_status answer_run(answer *a, beryl_task *task) {
    cli *c = a->c;
    beryl_status status = cli_task_run(c, task, answer_each, a);
    c->term.column = 0;
    if (!a->silent) {
        term_filter_end(&a->filter, stdout);
        if (a->shown == BERYL_PART_THOUGHT) style(a, TERM_PLAIN);
        if (!a->fresh_line || status == BERYL_CANCELLED) putchar('\n');
        fflush(stdout);
    }
    beryl_error error = {0};
    const beryl_error *cause = beryl_task_error(task);
    if (cause) error = *cause;
    const beryl_result *result = beryl_task_result(task);
    if (result) a->result = *result;
    beryl_task_close(task);
    if (status == BERYL_CANCELLED) return status;
    if (status) {
        cli_report(c, status, &error);
    } else if (a->failed || a->text.failed || a->thought.failed) {
        cli_no_memory(c);
        status = BERYL_NO_MEMORY;
    }
    return status;
}

const char *answer_end_text(beryl_end end) {
    switch (end) {
    case BERYL_END_STOP: return "stop";
    case BERYL_END_LENGTH: return "length";
    case BERYL_END_CONTEXT: return "context";
    case BERYL_END_CANCELLED: return "cancelled";
    }
    return "";
}

void answer_stats_print(const answer *a, FILE *to) {
    const beryl_result *r = &a->result;
    uint32_t n_read = r->n_prompt - r->n_reused;
    fprintf(to, "prompt         %u tokens, %u of them kept", r->n_prompt, r->n_reused);
    if (n_read && r->prefill_s > 0) fprintf(to, "; %.1f tok/s", n_read / r->prefill_s);
    fprintf(to, "\nanswer         %u tokens (%s)", r->n_generated, answer_end_text(r->end));
    if (r->n_generated > 1 && r->decode_s > 0)
        fprintf(to, "; %.1f tok/s", r->n_generated / r->decode_s);
    fprintf(to, "; first token after %.2f s\n", r->first_token_s);
}

bool answer_keep(const answer *a, conversation *v) {
    json_out j;
    char id[CALL_ID_SIZE];
    json_init(&j, v->heap);
    json_open(&j, NULL, '{');
    json_text(&j, "role", "assistant");
    json_bytes(&j, "content", a->text.size ? a->text.data : "", a->text.size);
    if (a->thought.size) json_bytes(&j, "reasoning", a->thought.data, a->thought.size);
    if (a->calls.count) {
        json_open(&j, "tool_calls", '[');
        for (size_t i = 0; i < a->calls.count; i++) {
            json_open(&j, NULL, '{');
            json_text(&j, "id", conversation_call_id(id, v->messages.count, i));
            json_text(&j, "type", "function");
            json_raw(&j, "function", a->calls.data[i].data, a->calls.data[i].size);
            json_close(&j, '}');
        }
        json_close(&j, ']');
    }
    json_close(&j, '}');
    bool ok = !j.text.failed && conversation_add_json(v, j.text.data, j.text.size);
    json_fini(&j);
    return ok;
}

/* ---- options --------------------------------------------------------------------------------- */

void generate_options(const cli *c, beryl_generate_options *o) {
    const args *a = &c->args;
    *o = (beryl_generate_options){
        .size = sizeof *o,
        .greedy = args_has(a, FLAG_GREEDY),
        .temperature = args_number(a, FLAG_TEMPERATURE, 0),
        .top_k = args_count(a, FLAG_TOP_K, 0),
        .top_p = args_number(a, FLAG_TOP_P, 0),
        .min_p = args_number(a, FLAG_MIN_P, 0),
        .repetition_penalty = args_number(a, FLAG_REPETITION, 0),
        .presence_penalty = args_number(a, FLAG_PRESENCE, 0),
        .frequency_penalty = args_number(a, FLAG_FREQUENCY, 0),
        .penalty_window = args_count(a, FLAG_WINDOW, 0),
        .seed = a->values[FLAG_SEED].integer,
        .max_tokens = args_count(a, FLAG_MAX_TOKENS, 0),
        .stop = a->texts,
        .n_stop = a->n_texts,
        .ignore_eos = args_has(a, FLAG_IGNORE_EOS),
    };
    /* In beryl.h zero means the default; here it means what a person would say with it. */
    if (args_has(a, FLAG_TEMPERATURE) && o->temperature <= 0) o->greedy = true;
    if (args_has(a, FLAG_TOP_K) && !o->top_k) o->top_k = UINT32_MAX;
}

static int options_check(cli *c) {
    const args *a = &c->args;
    if (args_number(a, FLAG_TEMPERATURE, 1) < 0) return cli_usage(c, "--temperature is 0 or more");
    float top_p = args_number(a, FLAG_TOP_P, 1), min_p = args_number(a, FLAG_MIN_P, 0);
    if (!(top_p > 0)) return cli_usage(c, "--top-p is above 0; 1 is off");
    if (!(min_p >= 0 && min_p <= 1)) return cli_usage(c, "--min-p is between 0 and 1");
    if (args_number(a, FLAG_REPETITION, 1) <= 0)
        return cli_usage(c, "--repetition-penalty is above 0; 1 is off");
    if (args_has(a, FLAG_MAX_TOKENS) && !args_count(a, FLAG_MAX_TOKENS, 0))
        return cli_usage(c, "--max-tokens is 1 at least");
    for (size_t i = 0; i < a->n_texts; i++)
        if (!*a->texts[i]) return cli_usage(c, "--stop needs a text");
    return CLI_OK;
}

/* ---- one shot -------------------------------------------------------------------------------- */

static int answer_json(cli *c, const answer *a, const char *model) {
    const beryl_result *r = &a->result;
    json_out j;
    json_init(&j, &c->heap);
    json_open(&j, NULL, '{');
    json_text(&j, "model", model);
    json_bytes(&j, "text", a->text.size ? a->text.data : "", a->text.size);
    json_bytes(&j, "thought", a->thought.size ? a->thought.data : "", a->thought.size);
    json_open(&j, "calls", '[');
    for (size_t i = 0; i < a->calls.count; i++)
        json_raw(&j, NULL, a->calls.data[i].data, a->calls.data[i].size);
    json_close(&j, ']');
    json_ids(&j, "tokens", a->tokens.data, a->tokens.count);
    json_text(&j, "end", answer_end_text(r->end));
    json_integer(&j, "n_prompt", r->n_prompt);
    json_integer(&j, "n_reused", r->n_reused);
    json_integer(&j, "n_generated", r->n_generated);
    json_number(&j, "prefill_s", r->prefill_s);
    json_number(&j, "first_token_s", r->first_token_s);
    json_number(&j, "decode_s", r->decode_s);
    json_close(&j, '}');
    int code = json_print(c, &j, stdout);
    json_fini(&j);
    return code;
}

typedef struct prompt {
    const int32_t *tokens; /* [n_token], or NULL: `chat` */
    size_t n_token;
    conversation *chat;
    const base_text *text; /* of the message that is to be added to it, with media; NULL: none */
} prompt;

/* The task that answers a conversation. CONTEXT_FULL is told with what could be done. */
static beryl_status chat_start(cli *c, beryl_engine *engine, beryl_session *session,
                               conversation *v, const beryl_generate_options *options,
                               beryl_task **task, beryl_error *error) {
    json_out j;
    beryl_status status = BERYL_OK;
    const bool drop = args_has(&c->args, FLAG_DROP);
    if (drop) status = conversation_fit(v, engine, options->max_tokens, error);
    json_init(&j, &c->heap);
    conversation_write(v, &j, NULL);
    if (!status && j.text.failed) status = BERYL_NO_MEMORY;
    if (!status) status = beryl_session_chat(session, j.text.data, options, task, error);
    json_fini(&j);
    size_t n = strlen(error->message);
    if (status == BERYL_CONTEXT_FULL && !drop && v->messages.count > 1)
        snprintf(error->message + n, sizeof error->message - n,
                 "; --drop-oldest answers without the oldest turns");
    if (!status && v->n_dropped)
        fprintf(stderr, "beryl: the context is full: answered without the oldest %zu messages\n",
                v->n_dropped);
    return status;
}

/* What flags and the conversation name, to the session; the message is added. */
static beryl_status media_of_prompt(media_store *media, beryl_session *session, const prompt *p,
                                    beryl_error *error) {
    base_text parts;
    base_text_init(&parts, &media->c->heap);
    beryl_status status = media_add_flags(media, &parts, error);
    if (!status && !p->chat) status = media_give_parts(media, session, &parts, error);
    if (!status && p->text &&
        !conversation_add_parts(p->chat, &parts, p->text->data, p->text->size))
        status = BERYL_NO_MEMORY;
    if (!status && p->chat) status = media_give(media, session, p->chat, error);
    base_text_fini(&parts);
    return status;
}

static int answer_once(cli *c, beryl_engine *engine, const prompt *p) {
    beryl_generate_options options;
    beryl_engine_info info = {0};
    beryl_session *session = NULL;
    beryl_task *task = NULL;
    beryl_error error = {0};
    answer a;
    media_store media;
    bool ids = args_has(&c->args, FLAG_PRINT_IDS);
    generate_options(c, &options);
    beryl_engine_info_get(engine, &info);
    answer_init(&a, c, ids || c->json);
    media_init(&media, c, engine);
    beryl_status status = cli_session_open(c, engine, &session, &error);
    if (!status) status = media_of_prompt(&media, session, p, &error);
    if (!status) {
        status = p->tokens ? beryl_session_generate(session, p->tokens, p->n_token, &options, &task,
                                                    &error)
                           : chat_start(c, engine, session, p->chat, &options, &task, &error);
    }
    int code = cli_report(c, status, &error);
    if (!status) {
        status = answer_run(&a, task);
        if (status == BERYL_CANCELLED) cli_fail(c, "stopped");
        code = status ? CLI_FAILED : CLI_OK;
    }
    if (!code && c->json) {
        code = answer_json(c, &a, info.model_name);
    } else if (!code && ids) {
        cli_ids_print(stdout, a.tokens.data, a.tokens.count);
    }
    if (!code && a.result.end == BERYL_END_CONTEXT && !ids)
        fprintf(stderr, "beryl: the context of %u tokens is full%s\n", info.context,
                info.context < info.context_max ? "; --context allows more" : "");
    if (!code && c->verbose) answer_stats_print(&a, stderr);
    beryl_session_close(session);
    media_fini(&media);
    answer_fini(&a);
    return code;
}

static int run_ids(cli *c, const char *model) {
    const args *a = &c->args;
    size_t n = a->list[FLAG_IDS].count;
    uint64_t needed = (uint64_t)n + args_count(a, FLAG_MAX_TOKENS, 0);
    cli_open open = {.model = model,
                     .context = needed > 8192 && needed < UINT32_MAX ? (uint32_t)needed : 0};
    int32_t *tokens = base_heap_take(&c->heap, n * sizeof *tokens);
    if (!tokens) return cli_no_memory(c);
    for (size_t i = 0; i < n; i++) tokens[i] = (int32_t)a->list[FLAG_IDS].data[i];
    beryl_engine *engine = cli_engine_open(c, &open);
    int code =
        engine ? answer_once(c, engine, &(prompt){.tokens = tokens, .n_token = n}) : CLI_FAILED;
    beryl_engine_close(engine);
    base_heap_give(&c->heap, tokens, n * sizeof *tokens);
    return code;
}

static int run_raw(cli *c, const char *model, const char *text, size_t size) {
    cli_open open = {.model = model};
    size_t n_token = 0;
    beryl_engine *engine = cli_engine_open(c, &open);
    int32_t bos = engine ? cli_bos(c, engine) : -1;
    int32_t *tokens = bos < 0 ? NULL : cli_tokens(c, engine, bos, text, size, false, &n_token);
    int code = tokens ? answer_once(c, engine, &(prompt){.tokens = tokens, .n_token = n_token})
                      : CLI_FAILED;
    base_heap_give(&c->heap, tokens, n_token * sizeof *tokens);
    beryl_engine_close(engine);
    return code;
}

static int run_chat_once(cli *c, const char *model, conversation *v, const base_text *text) {
    cli_open open = {.model = model};
    beryl_engine *engine = cli_engine_open(c, &open);
    int code = engine ? answer_once(c, engine, &(prompt){.chat = v, .text = text}) : CLI_FAILED;
    beryl_engine_close(engine);
    return code;
}

static int run_chat(cli *c, const char *model, conversation *v) {
    cli_open open = {.model = model};
    beryl_engine *engine = cli_engine_open(c, &open);
    int code = engine ? chat_run(c, engine, v) : CLI_FAILED;
    beryl_engine_close(engine);
    return code;
}

/* ---- what is wanted -------------------------------------------------------------------------- */

/* A single argument with a space in it that names no file is a prompt: no model's name has a space.
 */
static bool is_prompt(const char *word) {
    return strpbrk(word, " \n\t") && !base_file_exists(word);
}

/* Is there such a model? False: reported. */
static bool model_check(cli *c, const char *model) {
    cli_open open = {.model = model, .vocabulary_only = true};
    beryl_engine *engine = cli_engine_open(c, &open);
    beryl_engine_close(engine);
    return engine;
}

/* Is one of the media standard input? */
static bool media_is_piped(const args *a) {
    for (size_t i = 0; i < a->n_media; i++)
        if (!strcmp(a->media[i].path, "-")) return true;
    return false;
}

/* The prompt of argument, file and standard input, into *text; *any: there is one. Media need no
 * words: a clip may be a question. */
static int prompt_gather(cli *c, const char *model, const char *word, base_text *text, bool *any) {
    const bool media = c->args.n_media && !args_has(&c->args, FLAG_RAW);
    const char *path = args_text(&c->args, FLAG_FILE);
    *any = word || path;
    if (!*any && !args_has(&c->args, FLAG_CHAT) && !c->term.in_tty) {
        if (!media_is_piped(&c->args)) path = "-";
        *any = true;
    }
    if (word) base_text_add(text, word, strlen(word));
    if (path) {
        size_t size = 0;
        char *data = cli_read(c, path, &size);
        if (!data) return CLI_FAILED;
        size_t n = size;
        while (n && (data[n - 1] == '\n' || data[n - 1] == '\r')) n--;
        if (word && n) base_text_add(text, "\n\n", 2);
        base_text_add(text, data, n);
        base_heap_give(&c->heap, data, size + 1);
    }
    if (text->failed) return cli_no_memory(c);
    if (!*any || text->size || media) return CLI_OK;
    if (!word && !model_check(c, model)) return CLI_FAILED;
    return cli_usage(c, "the prompt is empty%s",
                     path && !strcmp(path, "-") ? ": nothing came from standard input" : "");
}

static int run_conversation(cli *c, const char *model, const char *word, conversation *v,
                            base_text *text) {
    const args *a = &c->args;
    bool any = false;
    const char *system = args_text(a, FLAG_SYSTEM);
    if (args_has(a, FLAG_CHAT) && !conversation_read(c, v, NULL, args_text(a, FLAG_CHAT)))
        return CLI_FAILED;
    if (args_has(a, FLAG_TOOLS) && !conversation_read_tools(c, v, args_text(a, FLAG_TOOLS)))
        return CLI_FAILED;
    if (system) {
        base_text_clear(&v->system);
        base_text_add(&v->system, system, strlen(system));
    }
    v->think |= args_has(a, FLAG_THINK);
    int code = prompt_gather(c, model, word, text, &any);
    if (code) return code;
    if (args_has(a, FLAG_RAW))
        return any ? run_raw(c, model, text->data, text->size)
                   : cli_usage(c, "--raw needs a prompt");
    const bool media = any && a->n_media;
    if (any && !media && !conversation_add(v, "user", text->data, text->size))
        return cli_no_memory(c);
    bool once = any || !c->term.in_tty || c->json || args_has(a, FLAG_PRINT_IDS);
    if (once && !v->messages.count && !media)
        return cli_usage(c, "no prompt: beryl run [MODEL] PROMPT");
    return once ? run_chat_once(c, model, v, media ? text : NULL) : run_chat(c, model, v);
}

/* Files that are not there are told before a model is loaded; standard input is read once. */
static int media_check(cli *c) {
    const args *a = &c->args;
    bool taken = args_has(a, FLAG_FILE) && !strcmp(args_text(a, FLAG_FILE), "-");
    for (size_t i = 0; i < a->n_media; i++) {
        const char *path = a->media[i].path;
        if (strcmp(path, "-")) {
            if (!base_file_exists(path)) return cli_fail(c, "there is no file %s", path);
        } else if (taken) {
            return cli_usage(c, "- is standard input, which can be read once");
        } else {
            taken = true;
        }
    }
    return CLI_OK;
}

int run_main(cli *c) {
    const args *a = &c->args;
    size_t n_used;
    const char *model = cli_model(c, &n_used), *word = NULL;
    if (n_used && a->n_positional == 1 && is_prompt(model)) {
        word = model;
        model = NULL;
    } else if (a->n_positional > n_used) {
        word = a->positional[n_used];
    }
    int code = options_check(c);
    if (!code) code = media_check(c);
    if (code) return code;
    if (args_has(a, FLAG_IDS)) {
        if (word || args_has(a, FLAG_FILE) || args_has(a, FLAG_CHAT) || args_has(a, FLAG_SYSTEM) ||
            args_has(a, FLAG_RAW))
            return cli_usage(
                c,
                "--ids is the whole prompt: leave PROMPT, --file, --chat, --system and --raw away");
        return run_ids(c, model);
    }
    if (args_has(a, FLAG_RAW) &&
        (args_has(a, FLAG_CHAT) || args_has(a, FLAG_SYSTEM) || args_has(a, FLAG_TOOLS)))
        return cli_usage(c, "--raw has no chat form: leave --chat, --system and --tools away");
    conversation v;
    base_text text;
    conversation_init(&v, &c->heap);
    base_text_init(&text, &c->heap);
    code = run_conversation(c, model, word, &v, &text);
    base_text_fini(&text);
    conversation_fini(&v);
    return code;
}
