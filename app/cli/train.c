/* train.c - training of adapters: steps with progress and a log, and the folder that comes of them:
 *
 *     DIR                         the adapter as it is, in PEFT's form; of others adapter.gguf,
 *                                 adapter.safetensors
 *     DIR/checkpoint.safetensors  where the training stands, for --resume
 *     DIR/best                    the adapter that did best on other data
 *
 * Each is written beside its place and renamed; the checkpoint comes last, so that what was after
 * it is done again and comes out the same. */
#include "train.h"

#include "base/file.h"
#include "base/thread.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static beryl_train_options options_of(const training *t, const char *data) {
    const args *a = &t->c->args;
    return (beryl_train_options){.size = sizeof(beryl_train_options),
                                 .data = data,
                                 .valid = args_text(a, FLAG_TRAIN_VALID),
                                 .init = args_text(a, FLAG_TRAIN_INIT),
                                 .rank = args_count(a, FLAG_TRAIN_RANK, 0),
                                 .alpha = args_number(a, FLAG_TRAIN_ALPHA, 0),
                                 .targets = args_text(a, FLAG_TRAIN_TARGETS),
                                 .epochs = args_count(a, FLAG_TRAIN_EPOCHS, 0),
                                 .batch = args_count(a, FLAG_TRAIN_BATCH, 0),
                                 .accumulate = args_count(a, FLAG_TRAIN_ACCUMULATE, 0),
                                 .context = args_count(a, FLAG_CONTEXT, 0),
                                 .rate = (double)args_number(a, FLAG_TRAIN_RATE, 0),
                                 .warmup = args_count(a, FLAG_TRAIN_WARMUP, 0),
                                 .schedule = args_text(a, FLAG_TRAIN_SCHEDULE),
                                 .layers = args_text(a, FLAG_TRAIN_LAYERS),
                                 .dropout = args_number(a, FLAG_TRAIN_DROPOUT, 0),
                                 .beta1 = t->betas[0],
                                 .beta2 = t->betas[1],
                                 .eps = args_number(a, FLAG_TRAIN_EPS, 0),
                                 .weight_decay = args_number(a, FLAG_TRAIN_DECAY, 0),
                                 .clip = args_number(a, FLAG_TRAIN_CLIP, 0),
                                 .seed = args_count(a, FLAG_TRAIN_SEED, 0),
                                 .order = args_text(a, FLAG_TRAIN_ORDER),
                                 .resume = args_has(a, FLAG_TRAIN_RESUME) ? t->checkpoint : NULL,
                                 .recompute = args_text(a, FLAG_TRAIN_RECOMPUTE),
                                 .moments = args_text(a, FLAG_TRAIN_MOMENTS),
                                 .timed = args_has(a, FLAG_TRAIN_TRACE)};
}

/* ---- the log --------------------------------------------------------------------------------- */

/* Of a training that is gone on with, the lines of steps that the checkpoint has. */
static int log_cut(training *t, const char *path, uint32_t step) {
    size_t size = 0, kept = 0;
    char *text = cli_read(t->c, path, &size);
    if (!text) return CLI_FAILED;
    static const char begins[] = "{\"step\":";
    while (kept < size) {
        const char *at = text + kept, *end = memchr(at, '\n', size - kept);
        if (!end || strncmp(at, begins, sizeof begins - 1) ||
            strtoul(at + sizeof begins - 1, NULL, 10) >= step)
            break;
        kept = (size_t)(end + 1 - text);
    }
    beryl_error error = {0};
    const beryl_status status = base_file_write(path, text, kept, &error);
    base_heap_give(&t->c->heap, text, size + 1);
    return cli_report(t->c, status, &error);
}

static int log_open(training *t) {
    const char *path = args_text(&t->c->args, FLAG_TRAIN_LOG);
    if (!path) return CLI_OK;
    const bool more = args_has(&t->c->args, FLAG_TRAIN_RESUME) && base_file_exists(path);
    const int code = more ? log_cut(t, path, beryl_train_report_of(t->train).step) : CLI_OK;
    if (!code && !(t->log = fopen(path, more ? "a" : "w")))
        return cli_fail(t->c, "'%s' cannot be written", path);
    return code;
}

static int log_line(training *t, const beryl_train_report *r, bool measured) {
    json_out *j = &t->json;
    if (!t->log) return CLI_OK;
    json_open(j, NULL, '{');
    json_integer(j, "step", (int64_t)r->step - 1);
    json_number(j, "loss", r->loss);
    json_number(j, "grad_norm", r->grad_norm);
    json_number(j, "lr", r->rate);
    json_integer(j, "targets", r->step_targets);
    json_integer(j, "tokens", r->step_tokens);
    json_number(j, "seconds", r->seconds);
    if (measured) json_number(j, "valid_loss", r->valid_loss);
    json_close(j, '}');
    const int code = json_print(t->c, j, t->log);
    if (!code && fflush(t->log))
        return cli_fail(t->c, "'%s' could not be written", args_text(&t->c->args, FLAG_TRAIN_LOG));
    return code;
}

/* ---- steps ----------------------------------------------------------------------------------- */

typedef beryl_status beginning(beryl_train *, beryl_task **, beryl_error *);

static beryl_status work(training *t, beginning *begin, beryl_error *error) {
    beryl_task *task = NULL;
    beryl_status status = begin(t->train, &task, error);
    if (status) return status;
    cli_task_begin(task); /* without a bar of its own: the whole has one */
    while ((status = beryl_wait(task, NULL)) == BERYL_EVENT) {}
    cli_task_end();
    if (status) *error = *beryl_task_error(task);
    beryl_task_close(task);
    return status;
}

static void show(training *t, const beryl_train_report *r) {
    char note[100];
    const double seconds = base_time() - t->started,
                 left = seconds / (r->step - t->first) * (r->steps - r->step);
    snprintf(note, sizeof note, "loss %.3f, %.0f tok/s, %.0f s left", r->loss,
             (double)t->tokens / seconds, left);
    term_progress(&t->c->term, "training", r->step, r->steps, note);
}

static bool is_over(const training *t, const beryl_train_report *r) {
    return r->step == r->steps || (t->patience && r->n_worse >= t->patience);
}

static bool is_every(uint32_t every, uint32_t step) {
    return every && step % every == 0;
}

/* The adapter as it is, in the form that was asked for. */
static beryl_status save(training *t, const char *path, const char *folder, beryl_error *error) {
    const beryl_status status = base_folder_make(folder, error);
    return status
               ? status
               : beryl_train_save(t->train, path, args_text(&t->c->args, FLAG_TRAIN_FORMAT), error);
}

static beryl_status save_all(training *t, beryl_error *error) {
    const beryl_status status = save(t, t->adapter, args_text(&t->c->args, FLAG_TRAIN_OUT), error);
    return status ? status : beryl_train_checkpoint(t->train, t->checkpoint, error);
}

/* Measures where it is time to; *measured: it was. */
static beryl_status measure(training *t, bool *measured, beryl_error *error) {
    beryl_train_report r = beryl_train_report_of(t->train);
    const bool now = r.valid_rows && (r.step == r.steps || is_every(t->valid_every, r.step));
    *measured = false;
    if (!now || r.valid_step == r.step) return BERYL_OK;
    const beryl_status status = work(t, beryl_train_measure, error);
    r = beryl_train_report_of(t->train);
    *measured = !status;
    return status || !t->valid_every || r.best_step != r.step
               ? status
               : save(t, t->best, t->best_folder, error);
}

/* A step and what follows it. */
static beryl_status advance(training *t, int *code, beryl_error *error) {
    const char *gradients = args_text(&t->c->args, FLAG_TRAIN_GRADIENTS);
    const bool first = beryl_train_report_of(t->train).step == 0;
    bool measured = false;
    beryl_status status = work(t, beryl_train_step, error);
    if (status) return status;
    if (gradients && first) status = beryl_train_save_gradients(t->train, gradients, error);
    const beryl_status judged = status ? status : measure(t, &measured, error);
    const beryl_train_report r = beryl_train_report_of(t->train);
    float *loss = base_vec_add(&t->c->heap, &t->losses);
    if (!loss) return BERYL_NO_MEMORY;
    *loss = (float)r.loss;
    t->tokens += r.step_tokens;
    show(t, &r);
    *code = log_line(t, &r, !judged && measured);
    if (judged || *code || is_over(t, &r) || !is_every(t->save_every, r.step)) return judged;
    return save_all(t, error);
}

static int train(training *t) {
    cli *c = t->c;
    beryl_error error = {0};
    beryl_train_report r = beryl_train_report_of(t->train);
    int code = CLI_OK;
    bool measured;
    t->started = base_time();
    t->first = r.step;
    cli_keep_interrupts(); /* between steps too Ctrl-C ends what has its checkpoint */
    /* left between a step and its measurement */
    beryl_status status = r.step ? measure(t, &measured, &error) : BERYL_OK;
    for (r = beryl_train_report_of(t->train); !status && !code && !is_over(t, &r);
         r = beryl_train_report_of(t->train))
        status = advance(t, &code, &error);
    t->seconds = base_time() - t->started;
    term_clear(&c->term);
    if (status && status != BERYL_CANCELLED) return cli_report(c, status, &error);
    /* what was learned is kept, also where Ctrl-C ended it */
    const beryl_status saved = save_all(t, &error);
    if (saved) return cli_report(c, saved, &error);
    if (status)
        return cli_fail(
            c, "stopped after %u of %u steps; what they learned is in '%s', and --resume goes on",
            r.step, r.steps, args_text(&c->args, FLAG_TRAIN_OUT));
    return code;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* Where the files go; false: no memory. */
static bool name_files(training *t) {
    static const char *const files[] = {"", "/adapter.gguf", "/adapter.safetensors"}; /* a form's */
    const args *a = &t->c->args;
    const char *out = args_text(a, FLAG_TRAIN_OUT),
               *file = files[a->values[FLAG_TRAIN_FORMAT].integer];
    if (!out) return true;
    t->adapter = base_arena_print(&t->arena, "%s%s", out, file);
    t->best_folder = base_arena_print(&t->arena, "%s/best", out);
    t->best = base_arena_print(&t->arena, "%s/best%s", out, file);
    t->checkpoint = base_arena_print(&t->arena, "%s/checkpoint.safetensors", out);
    return t->adapter && t->best_folder && t->best && t->checkpoint;
}

/* Two numbers and a comma. */
static bool read_betas(const char *text, float betas[2]) {
    for (int i = 0; text && i < 2; i++) {
        char *end;
        betas[i] = strtof(text, &end);
        if (end == text || *end != (i ? 0 : ',')) return false;
        text = end + 1;
    }
    return true;
}

static int check_flags(training *t) {
    cli *c = t->c;
    const args *a = &c->args;
    if (!read_betas(args_text(a, FLAG_TRAIN_BETAS), t->betas))
        return cli_usage(c, "--betas is two numbers, like 0.9,0.999");
    if (args_has(a, FLAG_MODEL) && a->n_positional > 1)
        return cli_usage(c, "the model is named twice");
    if (!args_has(a, FLAG_TRAIN_DRY_RUN) && !args_has(a, FLAG_TRAIN_OUT))
        return cli_usage(c, "train needs --out, where the adapter is written");
    if (args_has(a, FLAG_TRAIN_RESUME) && !args_has(a, FLAG_TRAIN_OUT))
        return cli_usage(c, "--resume needs --out, where the checkpoint is");
    if (args_has(a, FLAG_TRAIN_VALID_EVERY) && !args_has(a, FLAG_TRAIN_VALID))
        return cli_usage(c, "--valid-every needs --valid");
    if (args_has(a, FLAG_TRAIN_PATIENCE) && !args_has(a, FLAG_TRAIN_VALID_EVERY))
        return cli_usage(c, "--patience needs --valid-every");
    return CLI_OK;
}

/* The trace as a file. */
typedef struct traced {
    const char *path;
    beryl_status status;
    beryl_error error;
} traced;

static void trace_to(void *user, const char *text, size_t size) {
    traced *to = user;
    to->status = base_file_write(to->path, text, size, &to->error);
}

static int trace(training *t) {
    traced to = {.path = args_text(&t->c->args, FLAG_TRAIN_TRACE)};
    if (!to.path) return CLI_OK;
    const beryl_status status = beryl_train_trace(t->train, trace_to, &to, &to.error);
    return cli_report(t->c, status ? status : to.status, &to.error);
}

static int run(training *t, beryl_engine *engine, const char *data) {
    cli *c = t->c;
    const args *a = &c->args;
    beryl_error error = {0};
    const beryl_train_options options = options_of(t, data);
    const bool dry = args_has(a, FLAG_TRAIN_DRY_RUN);
    int code = cli_report(c, beryl_train_open(engine, &options, &t->train, &error), &error);
    if (code) return code;
    train_tell(t);
    if (dry) return c->json ? train_end(t) : CLI_OK;
    code = train_sample_begin(t, engine);
    if (!code) code = log_open(t);
    if (!code) code = train(t);
    if (t->log && fclose(t->log) && !code)
        code = cli_fail(c, "'%s' could not be written", args_text(a, FLAG_TRAIN_LOG));
    if (!code) code = trace(t);
    if (!code) train_curve(t);
    t->report = beryl_train_report_of(t->train);
    beryl_train_close(t->train); /* before adapters may be opened */
    t->train = NULL;
    if (!code) code = train_sample_end(t, engine);
    return code ? code : train_end(t);
}

int train_main(cli *c) {
    const args *a = &c->args;
    const cli_open open = {.model = args_has(a, FLAG_MODEL) ? args_text(a, FLAG_MODEL)
                                    : a->n_positional > 1   ? a->positional[0]
                                                            : NULL};
    training t = {.c = c,
                  .save_every = args_count(a, FLAG_TRAIN_SAVE_EVERY, 0),
                  .valid_every = args_count(a, FLAG_TRAIN_VALID_EVERY, 0),
                  .patience = args_count(a, FLAG_TRAIN_PATIENCE, 0)};
    int code = check_flags(&t);
    if (code) return code;
    base_arena_init(&t.arena, &c->heap);
    json_init(&t.json, &c->heap);
    beryl_engine *engine = NULL;
    if (!name_files(&t)) code = cli_no_memory(c);
    else if (!(engine = cli_engine_open(c, &open))) code = CLI_FAILED;
    else code = run(&t, engine, a->positional[a->n_positional - 1]);
    beryl_train_close(t.train);
    for (size_t i = 0; i < t.media.count; i++) beryl_media_close(t.media.data[i]);
    beryl_engine_close(engine);
    base_vec_fini(&c->heap, &t.losses);
    base_vec_fini(&c->heap, &t.media);
    json_fini(&t.json);
    base_arena_fini(&t.arena);
    return code;
}
