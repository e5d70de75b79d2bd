/* train.c - training of adapters: steps with progress, a log, and the adapter that comes of it. */
#include "cli.h"

#include "base/thread.h"

#include <math.h>
#include <string.h>

static beryl_train_options options_of(cli *c, const char *data) {
    const args *a = &c->args;
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
                                 .eps = args_number(a, FLAG_TRAIN_EPS, 0),
                                 .weight_decay = args_number(a, FLAG_TRAIN_DECAY, 0),
                                 .clip = args_number(a, FLAG_TRAIN_CLIP, 0),
                                 .seed = args_count(a, FLAG_TRAIN_SEED, 0),
                                 .order = args_text(a, FLAG_TRAIN_ORDER),
                                 .recompute = args_text(a, FLAG_TRAIN_RECOMPUTE)};
}

typedef struct training {
    cli *c;
    beryl_train *train;
    FILE *log; /* NULL: none */
    json_out json;
} training;

static int line(training *t, const beryl_train_report *r, bool measured) {
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
    return json_print(t->c, j, t->log);
}

static beryl_status work(training *t,
                         beryl_status (*begin)(beryl_train *, beryl_task **, beryl_error *),
                         beryl_error *error) {
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

static void show(training *t, const beryl_train_report *r, double started, double tokens) {
    char note[100];
    const double seconds = base_time() - started, left = seconds / r->step * (r->steps - r->step);
    snprintf(note, sizeof note, "loss %.3f, %.0f tok/s, %.0f s left", r->loss, tokens / seconds,
             left);
    term_progress(&t->c->term, "training", r->step, r->steps, note);
}

static int train(training *t) {
    cli *c = t->c;
    const char *gradients = args_text(&c->args, FLAG_TRAIN_GRADIENTS);
    beryl_error error = {0};
    beryl_status status = BERYL_OK;
    beryl_train_report r = beryl_train_report_of(t->train);
    int code = CLI_OK;
    const double started = base_time();
    double tokens = 0;
    while (!status && !code && r.step < r.steps) {
        status = work(t, beryl_train_step, &error);
        if (!status && gradients && r.step == 0)
            status = beryl_train_save_gradients(t->train, gradients, &error);
        r = beryl_train_report_of(t->train);
        const bool last = r.step == r.steps;
        if (!status && last && r.valid_rows) status = work(t, beryl_train_measure, &error);
        r = beryl_train_report_of(t->train);
        tokens += r.step_tokens;
        if (status) break;
        show(t, &r, started, tokens);
        code = line(t, &r, last && r.valid_rows);
    }
    term_clear(&c->term);
    if (status && status != BERYL_CANCELLED) return cli_report(c, status, &error);
    /* what was learned is kept, also where Ctrl-C ended it */
    const beryl_status saved = beryl_train_save(t->train, args_text(&c->args, FLAG_TRAIN_OUT),
                                                args_text(&c->args, FLAG_TRAIN_FORMAT), &error);
    if (saved) return cli_report(c, saved, &error);
    if (status)
        return cli_fail(c, "stopped after %u of %u steps; what they learned is in '%s'", r.step,
                        r.steps, args_text(&c->args, FLAG_TRAIN_OUT));
    if (!code && !c->json) {
        printf("%u steps, loss %.4f", r.steps, r.loss);
        if (r.valid_rows) printf(", on other data %.4f", r.valid_loss);
        printf(", %.0f tok/s; the adapter is in '%s'\n", tokens / (base_time() - started),
               args_text(&c->args, FLAG_TRAIN_OUT));
    }
    return code;
}

static void tell(const beryl_train_report *r) {
    char parameters[32], bytes[32], kept[32], recomputed[32];
    printf("%u rows of %llu tokens, %llu of them targets; %u steps\n", r->rows,
           (unsigned long long)r->tokens, (unsigned long long)r->targets, r->steps);
    printf("%s parameters; %s of device memory beside the model\n",
           cli_count_text(parameters, r->parameters), cli_size_text(bytes, r->bytes));
    if (r->kept_bytes)
        printf("layers are %s: %s of intermediates if they are kept, %s if recomputed\n",
               r->recomputes ? "recomputed" : "kept", cli_size_text(kept, r->kept_bytes),
               cli_size_text(recomputed, r->recomputed_bytes));
}

int train_main(cli *c) {
    const args *a = &c->args;
    const bool named = args_has(a, FLAG_MODEL);
    const cli_open open = {.model = named                 ? args_text(a, FLAG_MODEL)
                                    : a->n_positional > 1 ? a->positional[0]
                                                          : NULL};
    const bool dry = args_has(&c->args, FLAG_TRAIN_DRY_RUN);
    if (named && a->n_positional > 1) return cli_usage(c, "the model is named twice");
    if (!dry && !args_has(&c->args, FLAG_TRAIN_OUT))
        return cli_usage(c, "train needs --out, where the adapter is written");
    beryl_engine *engine = cli_engine_open(c, &open);
    if (!engine) return CLI_FAILED;
    training t = {.c = c};
    json_init(&t.json, &c->heap);
    const beryl_train_options options = options_of(c, a->positional[a->n_positional - 1]);
    const char *log = args_text(&c->args, FLAG_TRAIN_LOG);
    beryl_error error = {0};
    int code = cli_report(c, beryl_train_open(engine, &options, &t.train, &error), &error);
    const beryl_train_report r = beryl_train_report_of(t.train);
    if (!code && !c->json) tell(&r);
    if (!code && !dry && log && !(t.log = fopen(log, "w")))
        code = cli_fail(c, "'%s' cannot be written", log);
    if (!code && !dry) code = train(&t);
    if (t.log && fclose(t.log) && !code) code = cli_fail(c, "'%s' could not be written", log);
    json_fini(&t.json);
    beryl_train_close(t.train);
    beryl_engine_close(engine);
    return code;
}
