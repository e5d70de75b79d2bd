/* train.c - trainings: data and its order, passes over packed rows, steps, as tasks.
 *
 * One idea: the rows of a pass lie one after another in one run, and each token is told the first
 * and the last that it sees, so that none sees another row. A step is its passes, which add up
 * gradients and lose nothing if they are begun anew, and then one update, from which on it counts.
 *
 * Refuses per-layer tables that did not fit on the device. */
#include "engine/train.h"
#include "base/build.h"
#include "base/error.h"
#include "base/file.h"
#include "base/thread.h"

#include <math.h>
#include <string.h>

/* ---- opening --------------------------------------------------------------------------------- */

static bool recompute_find(beryl_train *t, const char *name) {
    static const char *const names[] = {
        [GRAPH_RECOMPUTE] = "always", [GRAPH_KEEP] = "never", [GRAPH_KEEP_OR_RECOMPUTE] = "auto"};
    t->recompute = GRAPH_KEEP_OR_RECOMPUTE;
    for (int i = 0; name && i < 3; i++) {
        t->recompute = (graph_recompute_choice)i;
        if (!strcmp(names[i], name)) return true;
    }
    if (!name) return true;
    for (; *name >= '0' && *name <= '9' && t->segments < 10000; name++)
        t->segments = t->segments * 10 + (uint32_t)(*name - '0');
    t->recompute = GRAPH_RECOMPUTE;
    return t->segments && !*name;
}

/* Eight bits have a largest gradient and a least mean. */
static beryl_status find_moments(beryl_train *t, beryl_error *error) {
    const beryl_train_options *o = &t->options;
    if (!o->moments || !strcmp(o->moments, "f32")) return BERYL_OK;
    if (strcmp(o->moments, "q8") != 0)
        return base_fail(error, BERYL_MISUSE, "moments are f32 or q8, not '%.60s'", o->moments);
    if (!(o->clip > 0 && o->beta1 * o->beta1 < o->beta2))
        return base_fail(error, BERYL_MISUSE,
                         "moments in 8 bits need a clip, and a beta1 whose square is below beta2");
    t->coded = true;
    return BERYL_OK;
}

static beryl_status resolve(beryl_train *t, const beryl_train_options *given, beryl_error *error) {
    beryl_train_options *o = &t->options;
    memcpy(o, given, given->size < sizeof *o ? given->size : sizeof *o);
    if (!o->data && !o->data_size) return base_fail(error, BERYL_MISUSE, "training needs data");
    if (!o->rank) o->rank = 16;
    if (o->alpha == 0) o->alpha = 2 * (float)o->rank;
    if (!o->targets) o->targets = "q,k,v,o,gate,up,down";
    if (!o->epochs) o->epochs = 1;
    if (!o->batch) o->batch = 1;
    if (!o->accumulate) o->accumulate = 1;
    if (o->rate == 0) o->rate = 2e-4;
    if (!o->schedule) o->schedule = "cosine";
    if (o->beta1 == 0) o->beta1 = 0.9f;
    if (o->beta2 == 0) o->beta2 = 0.999f;
    if (o->eps == 0) o->eps = 1e-8f;
    if (o->clip == 0) o->clip = 1;
    const uint32_t seen = t->engine->model.config.context_max;
    if (!o->context || o->context > seen) o->context = seen;
    if (!train_schedule_find(o->schedule, &t->schedule.kind))
        return base_fail(error, BERYL_MISUSE, "no schedule is called '%.60s'", o->schedule);
    if (!recompute_find(t, o->recompute))
        return base_fail(error, BERYL_MISUSE,
                         "recompute is always, never, auto or a number of layers, not '%.60s'",
                         o->recompute);
    if (o->rank > TRAIN_RANK_MAX || !(fabsf(o->alpha) <= 65504))
        return base_fail(error, BERYL_MISUSE, "a rank from 1 to %d, an alpha that is a number",
                         TRAIN_RANK_MAX);
    if (!(o->rate > 0 && o->rate <= 1) || !(o->weight_decay >= 0 && o->weight_decay <= 1))
        return base_fail(error, BERYL_MISUSE, "rate and weight decay are from 0 to 1");
    if (!(o->beta1 > 0 && o->beta1 < 1 && o->beta2 > 0 && o->beta2 < 1 && o->eps > 0))
        return base_fail(error, BERYL_MISUSE, "beta1 and beta2 are between 0 and 1, eps above 0");
    if (!(o->dropout >= 0 && o->dropout < 1))
        return base_fail(error, BERYL_MISUSE, "dropout is from 0 to below 1");
    if (isnan(o->clip)) return base_fail(error, BERYL_MISUSE, "clip is a number");
    for (size_t i = 0; i < o->n_media; i++)
        if (!o->media || !o->media_names || !o->media_names[i] ||
            o->media[i].size != sizeof *o->media)
            return base_fail(error, BERYL_MISUSE, "medium %zu has no name, or another size", i);
    const device *d = t->engine->device;
    if (o->timed && !(d && device_caps_of(d)->timestamps))
        return base_fail(error, BERYL_UNSUPPORTED, "the device has no timestamps");
    if (o->init) o->rank = 0, o->alpha = 0; /* they are its own */
    t->how = (train_optimiser){o->clip, o->beta1, o->beta2, o->eps, o->weight_decay};
    return find_moments(t, error);
}

/* Of a file, or of a text in memory: size 0: there is none. */
static beryl_status read_data(beryl_train *t, const char *path, const char *text, size_t size,
                              train_data *to, beryl_error *error) {
    beryl_engine *e = t->engine;
    beryl_source source = base_source_of_memory(text, size);
    beryl_status status = size ? BERYL_OK : base_source_open_file(&e->heap, path, &source, error);
    if (status != BERYL_OK) return status;
    const char *name = size ? "the data" : path;
    train_media_data at = {t, size ? NULL : path};
    const train_media media = {&at, train_media_open};
    const train_data_desc desc = {.heap = &e->heap,
                                  .source = &source,
                                  .name = name,
                                  .tokenizer = e->tokenizer,
                                  .style = e->style,
                                  .media = &media,
                                  .context = t->options.context};
    status = train_data_read(to, &desc, error);
    if (source.close) source.close(source.user);
    return status;
}

static beryl_status read_order(beryl_train *t, beryl_error *error) {
    const beryl_train_options *o = &t->options;
    base_heap *heap = &t->engine->heap;
    const uint32_t n = t->data.n;
    if (o->order_size)
        return train_order_read(&t->arena, o->order_text, o->order_size, n, o->epochs, &t->order,
                                error);
    if (!o->order) {
        t->order = base_arena_take(&t->arena, (size_t)n * o->epochs, sizeof *t->order);
        if (!t->order) return base_no_memory(error);
        for (uint32_t i = 0; i < o->epochs; i++)
            train_order_shuffle(o->seed, i, n, t->order + (size_t)i * n);
        return BERYL_OK;
    }
    char *text = NULL;
    size_t size = 0;
    beryl_status status = base_file_read(heap, o->order, 64 << 20, &text, &size, error);
    if (status != BERYL_OK) return status;
    status = train_order_read(&t->arena, text, size, n, o->epochs, &t->order, error);
    base_heap_give(heap, text, size + 1);
    return status;
}

static uint32_t over(uint32_t n, uint32_t by) {
    return n / by + (n % by != 0);
}

static uint32_t targets_of(const train_row *row) {
    uint32_t n = 0;
    for (uint32_t i = 1; i < row->n; i++) n += row->mask[i];
    return n;
}

/* A pass has room for the longest rows together, and for those with the most targets. */
static beryl_status bound(beryl_train *t, const train_data *data, beryl_error *error) {
    const uint32_t batch = t->options.batch < data->n ? t->options.batch : data->n;
    uint64_t n_token = (uint64_t)batch * data->longest, n_output = 0;
    for (uint32_t i = 0; i < data->n; i++) {
        const uint32_t n = targets_of(&data->rows[i]);
        if (n > n_output) n_output = n;
    }
    n_output *= batch;
    if (n_token > data->n_token) n_token = data->n_token;
    if (n_output > data->n_target) n_output = data->n_target;
    if (n_token > TRAIN_TOKEN_MAX)
        return base_fail(error, BERYL_UNSUPPORTED, "a pass of %llu tokens: %d at most",
                         (unsigned long long)n_token, TRAIN_TOKEN_MAX);
    if (n_token > t->n_token) t->n_token = (uint32_t)n_token;
    if (n_output > t->n_output) t->n_output = (uint32_t)n_output;
    return BERYL_OK;
}

static uint32_t steps_of_epoch(const beryl_train *t) {
    return over(over(t->data.n, t->options.batch), t->options.accumulate);
}

static beryl_status plan_steps(beryl_train *t, beryl_error *error) {
    const beryl_train_options *o = &t->options;
    const uint64_t steps = (uint64_t)steps_of_epoch(t) * o->epochs;
    if (steps > INT32_MAX || (uint64_t)o->epochs * t->data.n > INT32_MAX)
        return base_fail(error, BERYL_UNSUPPORTED, "%llu steps", (unsigned long long)steps);
    t->schedule.rate = o->rate;
    t->schedule.warmup = o->warmup;
    t->schedule.steps = (uint32_t)steps;
    t->schedule.cycles = o->cycles;
    t->report.steps = (uint32_t)steps;
    t->report.rows = t->data.n;
    t->report.valid_rows = t->valid.n;
    t->report.tokens = t->data.n_token;
    t->report.targets = t->data.n_target;
    t->report.valid_loss = t->report.best_loss = NAN;
    beryl_status status = bound(t, &t->data, error);
    if (status == BERYL_OK && t->valid.n) status = bound(t, &t->valid, error);
    return status == BERYL_OK ? read_order(t, error) : status;
}

/* Bytes that the device holds; 0: of the reference. */
static uint64_t bytes_held(const beryl_engine *e) {
    device_stats stats = {0};
    if (e->device) device_stats_of(e->device, &stats);
    return stats.buffer_bytes;
}

/* What the device has left; at least 1. 0: not known. */
static uint64_t bytes_left(const beryl_engine *e) {
    const uint64_t held = bytes_held(e), has = e->device ? device_caps_of(e->device)->memory : 0,
                   may = e->options.memory, most = !may || (has && has < may) ? has : may;
    return most > held ? most - held : most != 0;
}

static beryl_status open_exec(beryl_train *t, graph *g, graph_recompute_choice recompute,
                              graph_exec **out, beryl_error *error) {
    beryl_engine *e = t->engine;
    const graph_exec_options how = {.exact = e->options.precision == BERYL_PRECISION_EXACT,
                                    .stamped = t->options.timed,
                                    .recompute = recompute,
                                    .segments = t->segments,
                                    .room = bytes_left(e)};
    beryl_error why = {0};
    beryl_status status = graph_exec_open(g, &e->store, &how, out, &why);
    if (status == BERYL_OK && e->device) status = device_settle(e->device, &why);
    if (status == BERYL_PENDING) { /* told before the first step */
        t->unsettled++;
        status = BERYL_OK;
    }
    const uint64_t held = bytes_held(e), most = e->options.memory;
    if (status == BERYL_NO_DEVICE_MEMORY || (status == BERYL_OK && most && held > most))
        return base_fail(
            error, BERYL_NO_DEVICE_MEMORY,
            "training passes of %u tokens need more than the %llu MB that may be used: "
            "take a smaller batch or shorter rows",
            t->n_token, (unsigned long long)((most ? most : held) >> 20));
    if (status != BERYL_OK && error) *error = why;
    return status;
}

/* Matrix units multiply halves: where there are none, they would only be less exact. */
static bool takes_halves(const beryl_engine *e) {
    const uint32_t fragments = e->device ? device_caps_of(e->device)->fragments : 0,
                   wanted = DEVICE_FRAGMENT_BIT(DEVICE_FRAGMENT_F16_F32) |
                            DEVICE_FRAGMENT_BIT(DEVICE_FRAGMENT_BF16_F32);
    return e->options.precision != BERYL_PRECISION_EXACT && (fragments & wanted) == wanted;
}

static void run_close(train_run *run) {
    graph_exec_close(run->exec);
    graph_close(run->pass.text.g);
    *run = (train_run){0};
}

static beryl_status open_run(beryl_train *t, bool forward, train_run *run, beryl_error *error) {
    beryl_engine *e = t->engine;
    const train_pass_desc desc = {.model = &e->model,
                                  .store = &e->store,
                                  .heap = &e->heap,
                                  .adapter = &t->adapter,
                                  .n_token = t->n_token,
                                  .n_output = t->n_output,
                                  .forward = forward,
                                  .dropout = t->options.dropout,
                                  .halves = takes_halves(e),
                                  .media = t->media.count ? engine_media_of(e) : GEMMA4_MEDIA_NONE};
    beryl_status status = train_pass_build(&desc, &run->pass, error);
    if (status == BERYL_OK)
        status = open_exec(t, run->pass.text.g, t->recompute, &run->exec, error);
    if (status != BERYL_NO_DEVICE_MEMORY || t->recompute != GRAPH_KEEP_OR_RECOMPUTE || forward)
        return status;
    run_close(run); /* the device has less than it said */
    t->recompute = GRAPH_RECOMPUTE;
    return open_run(t, forward, run, error);
}

static void tell_ways(beryl_train *t) {
    graph_exec_info info;
    graph_exec_describe(t->learn.exec, &info);
    t->report.kept_bytes = info.kept_bytes;
    t->report.recomputed_bytes = info.recomputed_bytes;
    t->report.recomputes = info.recomputes;
}

/* The plans of answers take memory of a GPU that a training wants; answers make them again. */
static beryl_status leave_plans(beryl_engine *e, beryl_error *error) {
    device_ticket ticket;
    if (!e->device || device_is_processor(device_caps_of(e->device)) || e->n_flight ||
        e->prompt.n_row || e->step.n_row)
        return BERYL_OK;
    engine_plans_close(e);
    /* memory is given back once the device has come so far */
    const beryl_status status = device_submit(e->device, &(device_submit_desc){0}, &ticket, error);
    return status == BERYL_OK && !BUILD_IS_MODULE ? device_wait(e->device, ticket, error) : status;
}

static beryl_status open_all(beryl_train *t, const beryl_train_options *given, beryl_error *error) {
    beryl_engine *e = t->engine;
    const beryl_train_options *o = &t->options;
    beryl_status status = resolve(t, given, error);
    if (status == BERYL_OK) status = engine_drain(e, error);
    if (status == BERYL_OK) status = leave_plans(e, error);
    const uint64_t before = bytes_held(e);
    if (status == BERYL_OK)
        status = read_data(t, o->data, o->data_text, o->data_size, &t->data, error);
    if (status == BERYL_OK && (o->valid || o->valid_size))
        status = read_data(t, o->valid, o->valid_text, o->valid_size, &t->valid, error);
    if (status == BERYL_OK) status = train_media_place(t, error);
    if (status == BERYL_OK) status = plan_steps(t, error);
    if (status == BERYL_OK) status = train_adapter_make(t, error);
    if (status == BERYL_OK && t->options.resume) status = train_resume(t, t->options.resume, error);
    if (status == BERYL_OK)
        status = train_update_build(&e->store, &e->heap, &t->adapter, &t->how, &t->update, error);
    if (status == BERYL_OK) status = open_exec(t, t->update.g, GRAPH_KEEP, &t->update_exec, error);
    if (status == BERYL_OK && t->valid.n) status = open_run(t, true, &t->judge, error);
    /* the last one, which takes what room there is */
    if (status == BERYL_OK) status = open_run(t, false, &t->learn, error);
    if (status == BERYL_OK) tell_ways(t);
    t->report.bytes = bytes_held(e) - before;
    return status;
}

beryl_status beryl_train_open(beryl_engine *e, const beryl_train_options *options,
                              beryl_train **out, beryl_error *error) {
    if (out) *out = NULL;
    if (!e || !out || !options || options->size < sizeof options->size || options->size > 1 << 16)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_train_open needs an engine, options and a place for the training");
    if (!e->loaded || e->options.vocabulary_only)
        return base_fail(error, BERYL_MISUSE, "beryl_train_open needs a loaded model");
    if (e->train) return base_fail(error, BERYL_MISUSE, "the engine trains an adapter already");
    if (e->model.per_layer_on_host)
        return base_fail(error, BERYL_UNSUPPORTED,
                         "training needs the per-layer table on the device, where it did not fit");
    beryl_train *t = base_heap_take(&e->heap, sizeof *t);
    if (!t) return base_no_memory(error);
    t->engine = e;
    base_arena_init(&t->arena, &e->heap);
    e->train = t;
    const beryl_status status = open_all(t, options, error);
    if (status == BERYL_OK) *out = t;
    else beryl_train_close(t);
    return status;
}

void beryl_train_close(beryl_train *t) {
    if (!t) return;
    beryl_engine *e = t->engine;
    if (e->device && t->ticket) device_wait(e->device, t->ticket, NULL);
    run_close(&t->learn);
    run_close(&t->judge);
    graph_exec_close(t->update_exec);
    graph_close(t->update.g);
    if (t->extended) store_cut(&e->store, &t->mark);
    beryl_adapter_close(t->live);
    train_data_free(&t->data);
    train_data_free(&t->valid);
    media_list_fini(&e->heap, &t->media);
    base_arena_fini(&t->arena);
    e->train = NULL;
    base_heap_give(&e->heap, t, sizeof *t);
}

beryl_train_report beryl_train_report_of(const beryl_train *t) {
    return t ? t->report : (beryl_train_report){.valid_loss = NAN, .best_loss = NAN};
}

beryl_status beryl_train_row(const beryl_train *t, uint32_t i, const int32_t **tokens,
                             const uint8_t **mask, uint32_t *n, beryl_error *error) {
    if (!t || i >= t->data.n || !tokens || !mask || !n)
        return base_fail(error, BERYL_MISUSE, "no such row");
    const train_row *row = &t->data.rows[i];
    *tokens = row->tokens;
    *mask = row->mask;
    *n = row->n;
    return BERYL_OK;
}

/* ---- passes ---------------------------------------------------------------------------------- */

typedef enum work_stage {
    WORK_ENCODE,
    WORK_COMPILE,
    WORK_PASS,
    WORK_PASS_DONE,
    WORK_UPDATE,
    WORK_DONE
} work_stage;

typedef struct work { /* of a task: a step, or a measurement */
    beryl_train *train;
    work_stage stage;
    media_encoding encoding;
    bool measures;
    const train_data *data;
    const uint32_t *order;                /* [n] rows of the epoch; NULL: as they stand */
    uint32_t row, end;                    /* the next row, and after the last one */
    uint32_t n_token, n_target, n_output; /* n_output: of the pass under way */
    float share;                          /* 1 / targets of the step */
    bool more;                            /* passes were before this one */
    double loss;                          /* the sum over targets */
    double started;
} work;

static const train_row *row_at(const work *w, uint32_t i) {
    return &w->data->rows[w->order ? w->order[i] : i];
}

/* A row's tokens from `base` on. Gives how many targets it has. */
static uint32_t put_row(const work *w, const gemma4_text *text, graph_exec *exec,
                        const train_row *row, uint32_t base, uint32_t output) {
    const uint32_t window = w->train->engine->model.config.window;
    int32_t *tokens = graph_exec_input(exec, text->tokens),
            *pos = graph_exec_input(exec, text->pos), *slot = graph_exec_input(exec, text->slot),
            *first = graph_exec_input(exec, text->first),
            *last = graph_exec_input(exec, text->last),
            *first_global = graph_exec_input(exec, text->first_global),
            *last_global = graph_exec_input(exec, text->last_global),
            *rows = graph_exec_input(exec, text->output_rows),
            *labels = graph_exec_input(exec, text->labels);
    const uint32_t before = output;
    for (uint32_t i = 0; i < row->n; i++) {
        const uint32_t at = base + i;
        tokens[at] = row->tokens[i];
        pos[at] = (int32_t)i;
        slot[at] = 0;
        first[at] = (int32_t)(i + 1 > window ? at + 1 - window : base);
        first_global[at] = (int32_t)base;
        last[at] = last_global[at] = (int32_t)at;
        if (!i || !row->mask[i]) continue;
        rows[output] = (int32_t)at - 1;
        labels[output++] = row->tokens[i];
    }
    train_media_put(w->train, text, exec, row, base);
    return output - before;
}

/* What a pass drops follows from seed, step and row, how an update rounds from seed and step: row
 * UINT32_MAX. Another one in each. */
static void draw(const beryl_train *t, uint32_t row, uint32_t key[2]) {
    const uint32_t seed[2] = {(uint32_t)t->options.seed, (uint32_t)(t->options.seed >> 32)};
    base_threefry(seed, (const uint32_t[2]){t->report.step, row}, key);
}

static beryl_status submit_pass(work *w, beryl_error *error) {
    beryl_train *t = w->train;
    const train_run *run = w->measures ? &t->judge : &t->learn;
    const gemma4_text *text = &run->pass.text;
    const gemma4_model *m = &t->engine->model;
    const uint32_t left = w->end - w->row, n = left < t->options.batch ? left : t->options.batch;
    uint32_t n_token = 0, n_output = 0;
    for (uint32_t i = 0; i < n; i++) {
        const train_row *row = row_at(w, w->row + i);
        n_output += put_row(w, text, run->exec, row, n_token, n_output);
        n_token += row->n;
    }
    for (int k = 0; k < 2; k++)
        gemma4_angles(m, k, graph_exec_input(run->exec, text->pos), n_token,
                      graph_exec_input(run->exec, text->angles[k]));
    if (!w->measures) {
        *(float *)graph_exec_input(run->exec, run->pass.share) = w->share;
        *(bool *)graph_exec_input(run->exec, run->pass.more) = w->more;
        if (t->options.dropout > 0) draw(t, w->row, graph_exec_input(run->exec, text->dropout_key));
    }
    uint32_t extents[GRAPH_EXTENT_MAX + 1] = {0};
    extents[text->token_extent] = n_token;
    extents[text->output_extent] = n_output;
    /* results of answers' steps that nobody waits for are gone after a few submits */
    beryl_status status = engine_drain(t->engine, error);
    if (status != BERYL_OK) return status;
    status = graph_exec_submit(run->exec, extents, &text->losses, 1, &t->ticket, error);
    if (status != BERYL_OK) return status;
    w->row += n;
    w->n_token += n_token;
    w->n_output = n_output;
    w->more = true;
    return BERYL_OK;
}

/* OK: the device is done with the last submit. */
static beryl_status done(beryl_train *t, beryl_error *error) {
    device_ticket last = 0;
    if (!t->engine->device) return BERYL_OK; /* the reference computes at once */
    const beryl_status status = device_poll(t->engine->device, &last, error);
    return status == BERYL_OK && last < t->ticket ? BERYL_PENDING : status;
}

static beryl_status take_losses(work *w, beryl_error *error) {
    beryl_train *t = w->train;
    const float *losses;
    beryl_status status = done(t, error);
    if (status == BERYL_OK)
        status = graph_exec_fetched((w->measures ? &t->judge : &t->learn)->exec, t->ticket, 0,
                                    (const void **)&losses, error);
    for (uint32_t i = 0; status == BERYL_OK && i < w->n_output; i++) w->loss += (double)losses[i];
    return status;
}

/* ---- tasks ----------------------------------------------------------------------------------- */

static beryl_status compile(work *w, beryl_error *error) {
    beryl_train *t = w->train;
    for (; t->unsettled; t->unsettled--) {
        const beryl_status settled = device_settle(t->engine->device, error);
        if (settled != BERYL_OK) return settled;
    }
    const beryl_status status =
        graph_exec_ready(w->measures ? t->judge.exec : t->learn.exec, error);
    return status == BERYL_OK && !w->measures ? graph_exec_ready(t->update_exec, error) : status;
}

static beryl_status submit_update(work *w, beryl_task *task) {
    beryl_train *t = w->train;
    if (!isfinite(w->loss))
        return base_fail(&task->error, BERYL_BAD_INPUT,
                         "the loss of step %u is no number: a lower learning rate may help",
                         t->report.step);
    beryl_status status = task_settle(task);
    if (status != BERYL_OK) return status;
    t->report.rate = train_rate(&t->schedule, t->report.step);
    train_update_numbers(&t->how, t->report.step, t->report.rate,
                         graph_exec_input(t->update_exec, t->update.numbers));
    if (t->coded) draw(t, UINT32_MAX, graph_exec_input(t->update_exec, t->update.key));
    const uint32_t extents[GRAPH_EXTENT_MAX + 1] = {0};
    return graph_exec_submit(t->update_exec, extents, &t->update.norm, 1, &t->ticket, &task->error);
}

static beryl_status finish(work *w, beryl_error *error) {
    beryl_train *t = w->train;
    beryl_train_report *r = &t->report;
    const float *norm;
    beryl_status status = done(t, error);
    if (status == BERYL_OK)
        status = graph_exec_fetched(t->update_exec, t->ticket, 0, (const void **)&norm, error);
    if (status != BERYL_OK) return status;
    r->step++;
    r->loss = w->loss / w->n_target;
    r->grad_norm = (double)*norm;
    r->seconds = base_time() - w->started;
    r->step_tokens = w->n_token;
    r->step_targets = w->n_target;
    return BERYL_OK;
}

static void note_measured(beryl_train_report *r, double loss) {
    const bool best = isfinite(loss) && !(loss >= r->best_loss);
    r->valid_loss = loss;
    r->valid_step = r->step;
    if (best) {
        r->best_loss = loss;
        r->best_step = r->step;
    }
    r->n_worse = best ? 0 : r->n_worse + 1;
}

static beryl_status step(beryl_task *task) {
    work *w = task->state;
    beryl_status status = BERYL_OK;
    for (;;) {
        if (task_is_cancelled(task) && w->stage != WORK_PASS_DONE)
            return base_fail(&task->error, BERYL_CANCELLED, "cancelled");
        switch (w->stage) {
        case WORK_ENCODE: status = train_media_encode(w->train, task, &w->encoding); break;
        case WORK_COMPILE: status = compile(w, &task->error); break;
        case WORK_PASS: status = submit_pass(w, &task->error); break;
        case WORK_PASS_DONE: status = take_losses(w, &task->error); break;
        case WORK_UPDATE:
            if (w->measures) {
                note_measured(&w->train->report, w->loss / w->n_target);
                return BERYL_OK;
            }
            status = submit_update(w, task);
            break;
        case WORK_DONE: return finish(w, &task->error);
        }
        if (status != BERYL_OK) return status;
        const bool again = w->stage == WORK_PASS_DONE && w->row < w->end;
        w->stage = again ? WORK_PASS : (work_stage)(w->stage + 1);
    }
}

static void work_close(beryl_task *task) {
    work *w = task->state;
    media_encode_end(&w->encoding);
    w->train->task = NULL;
    base_heap_give(&task->engine->heap, w, sizeof *w);
}

static beryl_status work_open(beryl_train *t, const work *as, beryl_task **out,
                              beryl_error *error) {
    work *w = base_heap_take(&t->engine->heap, sizeof *w);
    beryl_status status = w ? task_open(t->engine, NULL, step, out, error) : base_no_memory(error);
    if (status != BERYL_OK) {
        base_heap_give(&t->engine->heap, w, sizeof *w);
        return status;
    }
    *w = *as;
    w->train = t;
    w->started = base_time();
    for (uint32_t i = w->row; i < w->end; i++) w->n_target += targets_of(row_at(w, i));
    w->share = (float)(1 / (double)w->n_target);
    (*out)->state = w;
    (*out)->close = work_close;
    t->task = *out;
    return BERYL_OK;
}

static beryl_status may_work(const beryl_train *t, beryl_task **out, beryl_error *error) {
    if (out) *out = NULL;
    if (!t || !out)
        return base_fail(error, BERYL_MISUSE, "a training and a place for the task are needed");
    return t->task ? base_fail(error, BERYL_MISUSE, "a task of this training is running")
                   : BERYL_OK;
}

beryl_status beryl_train_step(beryl_train *t, beryl_task **out, beryl_error *error) {
    const beryl_status status = may_work(t, out, error);
    if (status != BERYL_OK) return status;
    if (t->report.step == t->report.steps)
        return base_fail(error, BERYL_MISUSE, "all %u steps are done", t->report.steps);
    const uint32_t per_epoch = steps_of_epoch(t), epoch = t->report.step / per_epoch;
    const uint64_t rows = (uint64_t)t->options.batch * t->options.accumulate,
                   row = t->report.step % per_epoch * rows, end = row + rows;
    const work w = {.data = &t->data,
                    .order = t->order + (size_t)epoch * t->data.n,
                    .row = (uint32_t)row,
                    .end = end < t->data.n ? (uint32_t)end : t->data.n};
    return work_open(t, &w, out, error);
}

beryl_status beryl_train_measure(beryl_train *t, beryl_task **out, beryl_error *error) {
    const beryl_status status = may_work(t, out, error);
    if (status != BERYL_OK) return status;
    if (!t->valid.n) return base_fail(error, BERYL_MISUSE, "there is no data to validate with");
    const work w = {.measures = true, .data = &t->valid, .end = t->valid.n};
    return work_open(t, &w, out, error);
}
