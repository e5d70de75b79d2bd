/* chat.c - the chat on a terminal: reads messages, answers them, obeys /commands. A turn that fails
 * or is stopped before it said anything leaves the conversation as it was. */
#define _DEFAULT_SOURCE
#include "media.h"

#include "base/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct chat {
    cli *c;
    beryl_engine *engine;
    beryl_session *session;
    beryl_engine_info info;
    conversation *v;
    media_store media;
    base_text parts; /* what the next message shows */
    beryl_generate_options options;
    answer last; /* of the last turn, for /stats */
    bool answered;
    size_t n_call, n_result,
        call_message;  /* the model's calls that wait for /result; the message they stand in */
    bool drop;         /* the oldest turns, when the context is full */
    bool told;         /* that they are */
    bool refused_full; /* the last turn was: the context is too full */
    base_text refused; /* its message */
    bool leave;
} chat;

/* ---- a turn ---------------------------------------------------------------------------------- */

static void drop_tell(chat *h) {
    if (h->told || !h->v->n_dropped) return;
    h->told = true;
    printf("%s(the context of %u tokens is full: from here on the model is not told the oldest "
           "turns, now %zu messages; /drop off ends that)%s\n",
           term_style_text(&h->c->term, stdout, TERM_DIM), h->info.context, h->v->n_dropped,
           term_style_text(&h->c->term, stdout, TERM_PLAIN));
}

static const char *context_advice(const chat *h) {
    return h->info.context < h->info.context_max ? ", --context allows more" : "";
}

static beryl_task *turn_start(chat *h, beryl_status *status) {
    json_out j;
    beryl_task *task = NULL;
    beryl_error error = {0};
    *status = BERYL_OK;
    if (h->drop) {
        *status = conversation_fit(h->v, h->engine, h->options.max_tokens, &error);
    } else {
        h->v->n_dropped = 0;
    }
    if (!*status) *status = media_give(&h->media, h->session, h->v, &error);
    json_init(&j, &h->c->heap);
    conversation_write(h->v, &j, NULL);
    if (!*status && j.text.failed) *status = BERYL_NO_MEMORY;
    if (!*status) *status = beryl_session_chat(h->session, j.text.data, &h->options, &task, &error);
    json_fini(&j);
    if (*status == BERYL_CONTEXT_FULL && !h->drop && h->v->messages.count > 1) {
        cli_fail(h->c,
                 "the conversation no longer fits the context of %u tokens: /drop on goes on "
                 "without its oldest turns, /clear begins anew%s",
                 h->info.context, context_advice(h));
    } else if (*status) {
        cli_report(h->c, *status, &error);
    } else {
        drop_tell(h);
    }
    return task;
}

/* Answers the last message; n_keep: how many messages stay where nothing was said. */
static void turn(chat *h, size_t n_keep) {
    beryl_status status;
    beryl_task *task = turn_start(h, &status);
    h->n_call = h->n_result = 0;
    h->refused_full = status == BERYL_CONTEXT_FULL;
    if (status) {
        conversation_cut(h->v, n_keep);
        return;
    }
    if (h->answered) answer_fini(&h->last);
    answer_init(&h->last, h->c, false);
    h->answered = true;
    status = answer_run(&h->last, task);
    bool said = h->last.text.size || h->last.calls.count;
    const char *dim = term_style_text(&h->c->term, stdout, TERM_DIM);
    const char *plain = term_style_text(&h->c->term, stdout, TERM_PLAIN);
    if (status == BERYL_CANCELLED)
        printf("%s(stopped%s)%s\n", dim, said ? "" : "; your message was taken back", plain);
    if (status && !said) {
        conversation_cut(h->v, n_keep);
        return;
    }
    h->call_message = h->v->messages.count;
    if (!answer_keep(&h->last, h->v)) cli_no_memory(h->c);
    if (!status && h->last.calls.count) {
        h->n_call = h->last.calls.count;
        printf("%s(the model called %s; answer with /result TEXT)%s\n", dim,
               h->n_call == 1 ? "a tool" : "tools: one /result each", plain);
    }
    if (!status && h->last.result.end == BERYL_END_CONTEXT)
        printf("%s(the context of %u tokens is full: %s)%s\n", dim, h->info.context,
               h->drop ? "the answer is cut off; the next one goes on without the oldest turns"
                       : "/drop on goes on without the oldest turns, /clear begins anew",
               plain);
    if (h->c->verbose) {
        fputs(dim, stdout);
        answer_stats_print(&h->last, stdout);
        fputs(plain, stdout);
    }
}

static void say(chat *h, const char *text, size_t size) {
    size_t n_keep = h->v->messages.count;
    if (!(h->parts.size ? conversation_add_parts(h->v, &h->parts, text, size)
                        : conversation_add(h->v, "user", text, size))) {
        cli_no_memory(h->c);
        return;
    }
    turn(h, n_keep);
    if (h->v->messages.count > n_keep) base_text_clear(&h->parts);
    if (!h->refused_full || text == h->refused.data) return;
    base_text_clear(&h->refused);
    base_text_add(&h->refused, text, size);
}

/* ---- commands -------------------------------------------------------------------------------- */

enum { PATH_SIZE = 4096 };

/* Encoded at once, shown with the next message. */
static void attach(void *user, beryl_media_kind kind, const char *path) {
    static const char *const names[] = {"", "a picture", "sound", "a video"};
    chat *h = user;
    base_text parts;
    beryl_error error = {0};
    base_text_init(&parts, &h->c->heap);
    const size_t before = h->media.items.count;
    const beryl_status status = media_add(&h->media, kind, path, &parts, &error);
    if (!cli_report(h->c, status, &error)) {
        size_t n, n_token = 0;
        for (size_t i = before; i < h->media.items.count; i++) {
            beryl_media_soft(h->media.items.data[i].media, NULL, &n, NULL);
            n_token += n;
        }
        if (h->parts.size) base_text_add(&h->parts, ",", 1);
        base_text_add(&h->parts, parts.data, parts.size);
        printf("%s(%s for the next message", term_style_text(&h->c->term, stdout, TERM_DIM),
               names[kind]);
        if (n_token) printf(": %zu tokens", n_token);
        printf(")%s\n", term_style_text(&h->c->term, stdout, TERM_PLAIN));
    }
    base_text_fini(&parts);
}

static void command_help(void) {
    for (int i = 0; i < CHAT_COUNT; i++)
        printf("  %-7s %-13s %s\n", chat_commands[i].name, chat_commands[i].arguments,
               chat_commands[i].what);
    puts("A backslash at a line's end goes on with the message; so do lines between two \"\"\".\n"
         "Ctrl-C stops an answer or clears the line.");
}

static void session_clear(chat *h) {
    beryl_error error = {0};
    cli_report(h->c, beryl_session_rewind(h->session, 0, &error), &error);
    h->n_call = h->n_result = 0;
}

static void command_system(chat *h, const char *text) {
    base_text *system = &h->v->system;
    if (!*text) {
        if (system->size) {
            term_print(stdout, system->data, system->size, false);
            putchar('\n');
        } else {
            puts("no system prompt");
        }
        return;
    }
    base_text_clear(system);
    if (strcmp(text, "-")) base_text_add(system, text, strlen(text));
    puts("the system prompt holds from the next message on");
}

/* "~/x" in the home folder; else as it is. False: too long. */
static bool path_expand(const char *path, const char *suffix, char *to, size_t size) {
    const char *home = base_environment("HOME");
    bool tilde = path[0] == '~' && path[1] == '/' && home;
    int n = snprintf(to, size, "%s%s%s", tilde ? home : "", tilde ? path + 1 : path, suffix);
    return n > 0 && (size_t)n < size;
}

static beryl_status task_finish(chat *h, beryl_task *task, beryl_error *error) {
    beryl_status status = cli_task_run(h->c, task, NULL, NULL);
    const beryl_error *cause = beryl_task_error(task);
    if (status && cause) *error = *cause;
    beryl_task_close(task);
    return status;
}

#define STATE_SUFFIX ".state" /* the session's file lies beside the chat's */

static void command_save(chat *h, const char *path) {
    char file[PATH_SIZE], state[PATH_SIZE];
    json_out j;
    beryl_error error = {0};
    beryl_task *task = NULL;
    if (!*path) {
        cli_usage(h->c, "/save needs a file: /save chat.json");
        return;
    }
    if (!path_expand(path, "", file, sizeof file) ||
        !path_expand(path, STATE_SUFFIX, state, sizeof state)) {
        cli_usage(h->c, "that path is too long");
        return;
    }
    json_init(&j, &h->c->heap);
    conversation_write(h->v, &j, h->info.model_name);
    beryl_status status =
        j.text.failed ? BERYL_NO_MEMORY : base_file_write(file, j.text.data, j.text.size, &error);
    json_fini(&j);
    if (cli_report(h->c, status, &error)) return;
    const int32_t *tokens;
    size_t n_token = 0;
    beryl_session_tokens(h->session, &tokens, &n_token);
    if (n_token) {
        status = beryl_session_save(h->session, state, &task, &error);
        if (!status) status = task_finish(h, task, &error);
        if (cli_report(h->c, status, &error)) {
            remove(state);
            return;
        }
    }
    printf("saved %zu messages to ", h->v->messages.count);
    term_print(stdout, file, strlen(file), true);
    if (n_token) printf(", and the state of %zu tokens beside it", n_token);
    putchar('\n');
}

static void command_load(chat *h, const char *path) {
    char file[PATH_SIZE], state[PATH_SIZE];
    if (!*path) {
        cli_usage(h->c, "/load needs a file: /load chat.json");
        return;
    }
    if (!path_expand(path, "", file, sizeof file) ||
        !path_expand(path, STATE_SUFFIX, state, sizeof state)) {
        cli_usage(h->c, "that path is too long");
        return;
    }
    if (!conversation_read(h->c, h->v, h->engine, file)) return;
    session_clear(h);
    printf("loaded %zu messages\n", h->v->messages.count);
    if (base_file_exists(state)) {
        beryl_error error = {0};
        beryl_task *task = NULL;
        beryl_status status = beryl_session_restore(h->session, state, &task, &error);
        if (!status) status = task_finish(h, task, &error);
        /* Only speed is lost: the prompt is read again. */
        if (status) {
            printf("its state was not used (");
            const char *why = *error.message ? error.message : beryl_status_text(status);
            term_print(stdout, why, strlen(why), true);
            puts("); the next answer reads the conversation again");
            session_clear(h);
        }
    }
    if (conversation_waits(h->v)) turn(h, h->v->messages.count);
}

static void command_stats(chat *h) {
    char size[32];
    beryl_stats s = {0};
    const int32_t *tokens;
    size_t n_token = 0;
    beryl_engine_stats(h->engine, &s);
    beryl_session_tokens(h->session, &tokens, &n_token);
    if (h->answered) {
        answer_stats_print(&h->last, stdout);
    }
    printf("context        %zu of %u tokens", n_token, h->info.context);
    if (h->v->n_dropped) printf("; the oldest %zu messages are dropped", h->v->n_dropped);
    putchar('\n');
    printf("load           %.2f s\n", s.load_s);
    printf("device memory  %s now,", cli_size_text(size, s.device_bytes));
    printf(" %s at most\n", cli_size_text(size, s.device_bytes_peak));
    printf("  of that      weights %s,", cli_size_text(size, s.weight_bytes));
    printf(" keys and values %s\n", cli_size_text(size, s.kv_bytes));
    printf("host memory    %s now,", cli_size_text(size, s.host_bytes));
    printf(" %s at most\n", cli_size_text(size, s.host_bytes_peak));
    printf("a token        %s read,", cli_size_text(size, s.decode_bytes_per_token));
    printf(" %u dispatches\n", s.decode_dispatches);
}

static void command_attach(chat *h, beryl_media_kind kind, const char *typed) {
    static const char *const names[] = {"", "/image", "/audio", "/video"};
    char path[PATH_SIZE];
    if (!*typed) {
        cli_usage(h->c, "%s needs a file", names[kind]);
    } else if (!media_path(typed, path, sizeof path)) {
        cli_usage(h->c, "that path is too long");
    } else {
        attach(h, kind, path);
    }
}

static void command_think(chat *h, const char *text) {
    if (!strcmp(text, "on") || !strcmp(text, "off")) {
        h->v->think = text[1] == 'n';
    } else if (*text) {
        cli_usage(h->c, "/think on or /think off");
        return;
    }
    printf("thinking is %s\n", h->v->think ? "on" : "off");
}

static void command_drop(chat *h, const char *text) {
    if (!strcmp(text, "on") || !strcmp(text, "off")) {
        h->drop = text[1] == 'n';
    } else if (*text) {
        cli_usage(h->c, "/drop on or /drop off");
        return;
    }
    h->told &= h->drop;
    printf("when the context is full, %s\n",
           h->drop ? "the oldest turns are dropped" : "nothing is dropped");
    if (!h->drop || !h->refused_full) return;
    if (conversation_waits(h->v)) { /* a tool's result, or a conversation from a file */
        turn(h, h->v->messages.count);
    } else if (h->refused.size) {
        say(h, h->refused.data, h->refused.size);
    }
}

static void settings_print(const chat *h) {
    const beryl_generate_options *o = &h->options;
    const beryl_engine_info *info = &h->info;
    if (o->greedy) {
        puts("temperature 0 (greedy)");
    } else {
        printf("temperature %g\n",
               (double)(o->temperature > 0 ? o->temperature : info->temperature));
    }
    if (o->top_k == UINT32_MAX) {
        puts("top-k off");
    } else {
        printf("top-k %u\n", o->top_k ? o->top_k : info->top_k);
    }
    printf("top-p %g\nmin-p %g\nseed %llu\n", (double)(o->top_p > 0 ? o->top_p : info->top_p),
           (double)o->min_p, (unsigned long long)o->seed);
    if (o->max_tokens) {
        printf("max-tokens %u\n", o->max_tokens);
    } else {
        puts("max-tokens unlimited");
    }
    printf("repetition-penalty %g\n",
           o->repetition_penalty > 0 ? (double)o->repetition_penalty : 1.0);
}

static void command_set(chat *h, const char *text) {
    beryl_generate_options *o = &h->options;
    char name[32], *end;
    size_t n = strcspn(text, " ");
    if (!n) {
        settings_print(h);
        return;
    }
    const char *value = text + n + strspn(text + n, " ");
    snprintf(name, sizeof name, "%.*s", n < 31 ? (int)n : 31, text);
    double number = strtod(value, &end);
    if (!*value || *end || !(number >= 0 && number < 4294967295.0)) {
        cli_usage(h->c, "/set NAME VALUE, like /set temperature 0.7");
        return;
    }
    if (!strcmp(name, "temperature")) {
        o->greedy = !(number > 0);
        o->temperature = (float)number;
    } else if (!strcmp(name, "top-k")) {
        o->top_k = number >= 1 ? (uint32_t)number : UINT32_MAX;
    } else if (!strcmp(name, "top-p") && number > 0) {
        o->top_p = (float)number;
    } else if (!strcmp(name, "min-p") && number <= 1) {
        o->min_p = (float)number;
    } else if (!strcmp(name, "seed")) {
        o->seed = (uint64_t)number;
    } else if (!strcmp(name, "max-tokens")) {
        o->max_tokens = (uint32_t)number;
    } else if (!strcmp(name, "repetition-penalty") && number > 0) {
        o->repetition_penalty = (float)number;
    } else {
        cli_usage(h->c, "/set knows no '%s' of that value; /set alone shows the settings", name);
    }
}

/* One more adapter, or none; the conversation is read again under them. */
static void command_lora(chat *h, const char *text) {
    cli *c = h->c;
    const size_t before = c->lora.n;
    beryl_error error = {0};
    beryl_status status = BERYL_OK;
    const bool off = !strcmp(text, "off");
    if (*text && !off) status = cli_lora_add(c, h->engine, text, &error);
    if (off) cli_lora_close(c, 0);
    if (!status) status = cli_lora_give(c, h->session, &error);
    if (status) cli_lora_close(c, before);
    if (cli_report(c, status, &error)) return;
    if (c->lora.n)
        printf("%zu adapter%s on; /lora off takes them away\n", c->lora.n,
               c->lora.n > 1 ? "s" : "");
    else puts("no adapter is on");
}

static void command_result(chat *h, const char *text) {
    char id[CALL_ID_SIZE];
    json_out j;
    if (h->n_result >= h->n_call) {
        cli_usage(h->c, "the model has not called a tool");
        return;
    }
    json_init(&j, &h->c->heap);
    json_open(&j, NULL, '{');
    json_text(&j, "role", "tool");
    json_text(&j, "content", text);
    json_text(&j, "tool_call_id", conversation_call_id(id, h->call_message, h->n_result));
    json_close(&j, '}');
    bool ok = !j.text.failed && conversation_add_json(h->v, j.text.data, j.text.size);
    json_fini(&j);
    if (!ok) {
        cli_no_memory(h->c);
    } else if (++h->n_result < h->n_call) {
        printf("%zu more\n", h->n_call - h->n_result);
    } else {
        turn(h, h->v->messages.count);
    }
}

static void command_again(chat *h) {
    size_t n = h->v->messages.count;
    if (n && !conversation_waits(h->v)) conversation_cut(h->v, --n);
    if (!n) {
        cli_usage(h->c, "there is no message to answer");
    } else {
        turn(h, n);
    }
}

static void command(chat *h, char *text) {
    size_t n = strcspn(text, " \n");
    char *rest = text + n;
    while (*rest == ' ' || *rest == '\n') rest++;
    for (size_t end = strlen(rest); end && rest[end - 1] == ' ';) rest[--end] = 0;
    int found = 0;
    while (found < CHAT_COUNT &&
           (strlen(chat_commands[found].name) != n || memcmp(chat_commands[found].name, text, n)))
        found++;
    switch ((chat_command)found) {
    case CHAT_HELP: command_help(); return;
    case CHAT_CLEAR:
        conversation_cut(h->v, 0);
        base_text_clear(&h->parts);
        session_clear(h);
        puts("the conversation begins anew");
        return;
    case CHAT_SYSTEM: command_system(h, rest); return;
    case CHAT_SAVE: command_save(h, rest); return;
    case CHAT_LOAD: command_load(h, rest); return;
    case CHAT_STATS: command_stats(h); return;
    case CHAT_IMAGE: command_attach(h, BERYL_PICTURE, rest); return;
    case CHAT_AUDIO: command_attach(h, BERYL_SOUND, rest); return;
    case CHAT_VIDEO: command_attach(h, BERYL_VIDEO, rest); return;
    case CHAT_THINK: command_think(h, rest); return;
    case CHAT_DROP: command_drop(h, rest); return;
    case CHAT_SET: command_set(h, rest); return;
    case CHAT_LORA: command_lora(h, rest); return;
    case CHAT_RESULT: command_result(h, rest); return;
    case CHAT_AGAIN: command_again(h); return;
    case CHAT_BYE: h->leave = true; return;
    case CHAT_COUNT: break;
    }
    const char *names[CHAT_COUNT];
    for (int i = 0; i < CHAT_COUNT; i++) names[i] = chat_commands[i].name;
    const char *meant = args_nearest(text, n, names, CHAT_COUNT);
    cli_usage(h->c, "no command '%.*s'%s%s%s /help tells them", n < 40 ? (int)n : 40, text,
              meant ? ": did you mean " : "", meant ? meant : "", meant ? "?" : ";");
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void banner(const chat *h) {
    const term *t = &h->c->term;
    const char *bold = term_style_text(t, stdout, TERM_BOLD),
               *dim = term_style_text(t, stdout, TERM_DIM);
    const char *plain = term_style_text(t, stdout, TERM_PLAIN);
    const char *name = h->info.model_name ? h->info.model_name : "model";
    const char *device = h->info.device.name ? h->info.device.name : h->info.device.backend;
    fputs(bold, stdout);
    term_print(stdout, name, strlen(name), true);
    fputs(plain, stdout);
    if (device) {
        fputs(" on ", stdout);
        term_print(stdout, device, strlen(device), true);
    }
    printf("\n%sType a message; /help tells the commands, Ctrl-D ends.%s\n\n", dim, plain);
}

static void loop(chat *h, line_editor *editor) {
    while (!h->leave) {
        const char *text;
        size_t size;
        switch (line_read(editor, &text, &size)) {
        case LINE_EOF: return;
        case LINE_CLEARED: continue;
        case LINE_TEXT: break;
        }
        size_t blank = strspn(text, " \t\n");
        if (blank == size) continue;
        if (media_line(text + blank, attach, h)) continue;
        if (text[blank] != '/') {
            say(h, text, size);
            putchar('\n');
            continue;
        }
        char *copy = base_heap_take(&h->c->heap, size + 1);
        if (copy) {
            memcpy(copy, text, size);
            command(h, copy + blank);
            base_heap_give(&h->c->heap, copy, size + 1);
        } else {
            cli_no_memory(h->c);
        }
    }
}

int chat_run(cli *c, beryl_engine *engine, conversation *v) {
    chat h = {.c = c, .engine = engine, .v = v, .drop = args_has(&c->args, FLAG_DROP)};
    base_text_init(&h.refused, &c->heap);
    base_text_init(&h.parts, &c->heap);
    media_init(&h.media, c, engine);
    cli_chat_begin();
    beryl_error error = {0};
    generate_options(c, &h.options);
    beryl_status status = beryl_engine_info_get(engine, &h.info);
    if (!status) status = cli_session_open(c, engine, &h.session, &error);
    int code = cli_report(c, status, &error);
    line_editor *editor = code ? NULL : line_open(c);
    if (editor) {
        banner(&h);
        for (size_t i = 0; i < c->args.n_media; i++)
            attach(&h, media_flag_kind(c->args.media[i].flag), c->args.media[i].path);
        if (conversation_waits(v)) turn(&h, v->messages.count);
        loop(&h, editor);
    } else {
        code = CLI_FAILED;
    }
    line_close(editor);
    if (h.answered) answer_fini(&h.last);
    base_text_fini(&h.refused);
    base_text_fini(&h.parts);
    media_fini(&h.media);
    beryl_session_close(h.session);
    return code;
}
