/* train_show.c - what `beryl train` tells: figures before it begins, then a curve of the losses,
 * one answer before and after, and a last line, or with --json one object.
 *
 * The question of the sample is --sample's, or on a terminal what the first row of the data asks:
 * its tokens up to the first that is learned. */
#include "train.h"

#include <math.h>
#include <string.h>

void train_tell(training *t) {
    const beryl_train_report r = beryl_train_report_of(t->train);
    char parameters[32], bytes[32], kept[32], recomputed[32];
    t->report = r;
    if (t->c->json) return;
    printf("%u rows of %llu tokens, %llu of them targets; %u steps", r.rows,
           (unsigned long long)r.tokens, (unsigned long long)r.targets, r.steps);
    printf(r.step ? ", %u of them done\n" : "\n", r.step);
    printf("%s parameters; %s of device memory beside the model\n",
           cli_count_text(parameters, r.parameters), cli_size_text(bytes, r.bytes));
    if (r.kept_bytes)
        printf("%u layers are recomputed: %s of intermediates if none is, %s if all are\n",
               r.recomputes, cli_size_text(kept, r.kept_bytes),
               cli_size_text(recomputed, r.recomputed_bytes));
}

/* ---- the curve ------------------------------------------------------------------------------- */

enum { CURVE_WIDTH = 60, CURVE_HEIGHT = 8 };

void train_curve(training *t) {
    const size_t n = t->losses.count, width = n < CURVE_WIDTH ? n : CURVE_WIDTH;
    double means[CURVE_WIDTH], low = INFINITY, high = -INFINITY;
    if (t->c->json || !t->c->term.out_tty || n < 2) return;
    for (size_t i = 0; i < width; i++) { /* of the steps that fall into the column */
        const size_t from = i * n / width, to = (i + 1) * n / width;
        double sum = 0;
        for (size_t k = from; k < to; k++) sum += (double)t->losses.data[k];
        means[i] = sum / (double)(to - from);
        low = fmin(low, means[i]);
        high = fmax(high, means[i]);
    }
    for (int row = 0; row < CURVE_HEIGHT; row++) {
        char line[CURVE_WIDTH + 1];
        for (size_t i = 0; i < width; i++) {
            const double at = high > low ? (high - means[i]) / (high - low) : 0;
            line[i] = (int)(at * (CURVE_HEIGHT - 1) + 0.5) == row ? '*' : ' ';
        }
        line[width] = 0;
        if (row == 0) printf("%8.3f |%s\n", high, line);
        else if (row == CURVE_HEIGHT - 1) printf("%8.3f |%s\n", low, line);
        else printf("%8s |%s\n", "", line);
    }
    printf("    loss, steps %u to %u\n", t->first + 1, t->first + (uint32_t)n);
}

/* ---- sample answers -------------------------------------------------------------------------- */

enum { SAMPLE_TOKENS = 48, PROMPT_MAX = 512 };

static beryl_status begin(const training *t, beryl_session *session, beryl_task **task,
                          beryl_error *error) {
    const beryl_generate_options options = {
        .size = sizeof options, .greedy = true, .max_tokens = SAMPLE_TOKENS};
    if (t->prompt)
        return beryl_session_generate(session, t->prompt, t->n_prompt, &options, task, error);
    json_out j;
    json_init(&j, &t->c->heap);
    json_open(&j, NULL, '{');
    json_open(&j, "messages", '[');
    json_open(&j, NULL, '{');
    json_text(&j, "role", "user");
    json_text(&j, "content", t->question);
    json_close(&j, '}');
    json_close(&j, ']');
    json_close(&j, '}');
    const beryl_status status =
        j.text.failed ? BERYL_NO_MEMORY
                      : beryl_session_chat(session, j.text.data, &options, task, error);
    json_fini(&j);
    return status;
}

static void add_text(void *user, const beryl_event *event) {
    if (event->kind == BERYL_EVENT_TOKEN && event->part == BERYL_PART_TEXT)
        base_text_add(user, event->text, event->text_size);
}

/* The answer, in the arena. */
static beryl_status answer(training *t, beryl_engine *engine, beryl_adapter *adapter,
                           const char **to, beryl_error *error) {
    beryl_session *session = NULL;
    beryl_task *task = NULL;
    base_text text;
    base_text_init(&text, &t->c->heap);
    beryl_status status = beryl_session_open(engine, NULL, &session, error);
    if (!status) status = beryl_session_media(session, t->media.data, t->media.count, error);
    if (!status && adapter) status = beryl_session_adapters(session, &adapter, NULL, 1, error);
    if (!status) status = begin(t, session, &task, error);
    if (!status) {
        status = cli_task_run(t->c, task, add_text, &text);
        if (status) *error = *beryl_task_error(task);
    }
    beryl_task_close(task);
    beryl_session_close(session);
    *to = status || text.failed ? NULL : base_arena_text(&t->arena, text.data, text.size);
    base_text_fini(&text);
    return status || *to ? status : BERYL_NO_MEMORY;
}

/* A question without the words around its turn. */
static base_view unframed(const char *text, size_t size) {
    static const char before[] = "user\n", after[] = "\nmodel\n";
    const size_t n = sizeof before - 1, m = sizeof after - 1;
    if (size < n + m || memcmp(text, before, n) || memcmp(text + size - m, after, m))
        return (base_view){text, size};
    return (base_view){text + n, size - n - m};
}

/* Encodes what stands among the row's first tokens. *fits: all of it does, and text follows. */
static beryl_status take_media(training *t, uint32_t end, bool *fits, beryl_error *error) {
    beryl_status status = BERYL_OK;
    *fits = true;
    for (uint32_t i = 0, begin = 0; !status && *fits; i++) {
        beryl_media *media = NULL, **to;
        beryl_task *task = NULL;
        size_t n = 0;
        status = beryl_train_row_media(t->train, 0, i, &begin, &media, error);
        if (status) return status == BERYL_NOT_FOUND ? BERYL_OK : status;
        to = begin < end ? base_vec_add(&t->c->heap, &t->media) : NULL;
        if (!to) {
            beryl_media_close(media);
            return begin < end ? BERYL_NO_MEMORY : BERYL_OK;
        }
        *to = media;
        beryl_media_soft(media, NULL, &n, NULL);
        *fits = begin + n < end;
        if (*fits) status = beryl_media_encode(media, &task, error);
        if (task && (status = cli_task_run(t->c, task, NULL, NULL)))
            *error = *beryl_task_error(task);
        beryl_task_close(task);
    }
    return status;
}

/* The first row up to its first target; where all is learned, its first half. Without a question
 * where that cuts a picture. */
static beryl_status take_row(training *t, beryl_engine *engine, beryl_error *error) {
    const int32_t *tokens;
    const uint8_t *mask;
    uint32_t n, end = 1;
    char *text;
    size_t size;
    bool fits;
    beryl_status status = beryl_train_row(t->train, 0, &tokens, &mask, &n, error);
    if (status) return status;
    while (end < n && !mask[end]) end++;
    if (end == 1) end = (n + 1) / 2;
    status = take_media(t, end, &fits, error);
    if (status || !fits) return status;
    t->n_prompt = end < PROMPT_MAX || t->media.count ? end : PROMPT_MAX;
    t->prompt = base_arena_take(&t->arena, t->n_prompt, sizeof *t->prompt);
    if (!t->prompt) return BERYL_NO_MEMORY;
    memcpy(t->prompt, tokens, t->n_prompt * sizeof *t->prompt);
    status = beryl_detokenize(engine, t->prompt, t->n_prompt, false, &text, &size, error);
    if (status) return status;
    const base_view question = unframed(text, size);
    t->question = base_arena_text(&t->arena, question.data, question.size);
    beryl_free(engine, text);
    return t->question ? BERYL_OK : BERYL_NO_MEMORY;
}

int train_sample_begin(training *t, beryl_engine *engine) {
    beryl_error error = {0};
    beryl_status status = BERYL_OK;
    t->question = args_text(&t->c->args, FLAG_TRAIN_SAMPLE);
    if (!t->question) {
        if (t->c->json || !t->c->term.out_tty) return CLI_OK;
        status = take_row(t, engine, &error);
    }
    if (!status && t->question) status = answer(t, engine, NULL, &t->before, &error);
    return cli_report(t->c, status, &error);
}

static void print_one(const char *what, const char *text) {
    printf("%-9s", what);
    term_print(stdout, text, strlen(text), true);
    printf("\n");
}

int train_sample_end(training *t, beryl_engine *engine) {
    const beryl_adapter_options options = {.size = sizeof options, .path = t->adapter};
    beryl_adapter *adapter = NULL;
    beryl_error error = {0};
    if (!t->question) return CLI_OK;
    beryl_status status = beryl_adapter_open(engine, &options, &adapter, &error);
    if (!status) status = answer(t, engine, adapter, &t->after, &error);
    beryl_adapter_close(adapter);
    if (!status && !t->c->json) {
        print_one("asked:", t->question);
        print_one("before:", t->before);
        print_one("after:", t->after);
    }
    return cli_report(t->c, status, &error);
}

/* ---- the end --------------------------------------------------------------------------------- */

static int print_json(training *t) {
    const beryl_train_report *r = &t->report;
    json_out *j = &t->json;
    json_open(j, NULL, '{');
    json_integer(j, "rows", r->rows);
    json_integer(j, "valid_rows", r->valid_rows);
    json_integer(j, "tokens", (int64_t)r->tokens);
    json_integer(j, "targets", (int64_t)r->targets);
    json_integer(j, "parameters", (int64_t)r->parameters);
    json_integer(j, "bytes", (int64_t)r->bytes);
    json_integer(j, "steps", r->steps);
    json_integer(j, "step", r->step);
    if (!args_has(&t->c->args, FLAG_TRAIN_DRY_RUN)) {
        json_number(j, "loss", t->losses.count ? r->loss : (double)NAN);
        json_number(j, "valid_loss", r->valid_loss);
        json_number(j, "best_loss", r->best_loss);
        json_integer(j, "best_step", r->best_step);
        json_number(j, "tokens_per_second", (double)t->tokens / t->seconds);
        json_text(j, "adapter", t->adapter);
        json_text(j, "checkpoint", t->checkpoint);
        if (t->question) {
            json_open(j, "sample", '{');
            json_text(j, "question", t->question);
            json_text(j, "before", t->before);
            json_text(j, "after", t->after);
            json_close(j, '}');
        }
    }
    json_close(j, '}');
    return json_print(t->c, j, stdout);
}

int train_end(training *t) {
    const beryl_train_report *r = &t->report;
    if (t->c->json) return print_json(t);
    printf("%u steps", r->step);
    if (r->step < r->steps) printf(" of %u: it got no better", r->steps);
    if (t->losses.count) printf(", loss %.4f", r->loss);
    if (isfinite(r->valid_loss)) printf(", on other data %.4f", r->valid_loss);
    if (t->losses.count) printf(", %.0f tok/s", (double)t->tokens / t->seconds);
    printf("; the adapter is in '%s'\n", t->adapter);
    if (t->valid_every && isfinite(r->best_loss))
        printf("the best on other data, %.4f after step %u, is in '%s'\n", r->best_loss,
               r->best_step, t->best);
    return CLI_OK;
}
