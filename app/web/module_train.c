/* module_train.c - trainings, in the full module, for full_engine.ts: beryl_train.h, with memory in
 * place of files. What is saved is gathered here, and borrowed until the next save. */
#include "base/error.h"
#include "beryl_train.h"
#include "module.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct training {
    beryl_train *train;
    base_heap heap;
    base_text file, config; /* what was saved last */
} training;

EXPORT(train_open)
uint32_t module_train_open(frame *f, const char *options, const char *data, uint32_t size,
                           const char *valid, uint32_t valid_size, const uint8_t *pixels,
                           uint32_t pixels_size, const beryl_adapter *from);
EXPORT(train_close) void module_train_close(frame *f, training *t);
EXPORT(train_report) uint32_t module_train_report(frame *f, const training *t);
EXPORT(train_adapter) const beryl_adapter *module_train_adapter(const training *t);
EXPORT(train_step) uint32_t module_train_step(frame *f, training *t);
EXPORT(train_measure) uint32_t module_train_measure(frame *f, training *t);
EXPORT(train_show) uint32_t module_train_show(frame *f, training *t);
EXPORT(train_save) uint32_t module_train_save(frame *f, training *t, const char *form);
EXPORT(train_saved) uint32_t module_train_saved(frame *f, const training *t, uint32_t config);

static float number_at(const base_json *o, const char *key) {
    return (float)option_number(o, key);
}

static uint32_t count_at(const base_json *o, const char *key) {
    return (uint32_t)option_count(o, key, UINT32_MAX);
}

/* Of options: `pictures`, an array of {name, width, height}, whose red, green and blue lie at
 * `pixels`, one after another, `size` bytes. */
static beryl_status pictures_of(base_arena *arena, const base_json *list, const uint8_t *pixels,
                                size_t size, beryl_train_options *how, beryl_error *error) {
    const size_t n = list && list->kind == JSON_ARRAY ? list->n_child : 0;
    beryl_media_desc *media = base_arena_take(arena, n + 1, sizeof *media);
    const char **names = base_arena_take(arena, n + 1, sizeof *names);
    if (!media || !names) return base_fail(error, BERYL_NO_MEMORY, "out of memory for pictures");
    size_t i = 0;
    for (const base_json *one = n ? list->child : NULL; one; one = one->next, i++) {
        names[i] = option_text(arena, base_json_find(one, "name"));
        media[i] = (beryl_media_desc){.size = sizeof *media,
                                      .kind = BERYL_PICTURE,
                                      .rgb = pixels,
                                      .width = count_at(one, "width"),
                                      .height = count_at(one, "height")};
        const uint64_t count = (uint64_t)media[i].width * media[i].height;
        if (count > size / 3)
            return base_fail(error, BERYL_MISUSE, "picture %u has fewer pixels than it says",
                             (unsigned)i + 1);
        pixels += 3 * (size_t)count;
        size -= 3 * (size_t)count;
    }
    how->media_names = names;
    how->media = media;
    how->n_media = n;
    return BERYL_OK;
}

/* PENDING: runs are under way, and are ended first: call again. valid_size 0: none; from NULL: a
 * new adapter. Options are as in TrainOptions, those of `order` as text. */
uint32_t module_train_open(frame *f, const char *options, const char *data, uint32_t size,
                           const char *valid, uint32_t valid_size, const uint8_t *pixels,
                           uint32_t pixels_size, const beryl_adapter *from) {
    base_arena arena;
    base_json *o;
    training *t = calloc(1, sizeof *t);
    frame_begin(f);
    base_arena_init(&arena, &f->heap);
    beryl_status status =
        t ? base_json_parse(&arena, options, strlen(options), &o, &f->error) : BERYL_NO_MEMORY;
    if (status == BERYL_OK) {
        const char *order = option_text(&arena, base_json_find(o, "order"));
        beryl_train_options how = {.size = sizeof how,
                                   .rank = count_at(o, "rank"),
                                   .alpha = number_at(o, "alpha"),
                                   .targets = option_text(&arena, base_json_find(o, "targets")),
                                   .layers = option_text(&arena, base_json_find(o, "layers")),
                                   .dropout = number_at(o, "dropout"),
                                   .epochs = count_at(o, "epochs"),
                                   .batch = count_at(o, "batch"),
                                   .accumulate = count_at(o, "accumulate"),
                                   .context = count_at(o, "context"),
                                   .rate = option_number(o, "rate"),
                                   .warmup = count_at(o, "warmup"),
                                   .schedule = option_text(&arena, base_json_find(o, "schedule")),
                                   .cycles = count_at(o, "cycles"),
                                   .beta1 = number_at(o, "beta1"),
                                   .beta2 = number_at(o, "beta2"),
                                   .eps = number_at(o, "eps"),
                                   .weight_decay = number_at(o, "weightDecay"),
                                   .clip = number_at(o, "clip"),
                                   .moments = option_text(&arena, base_json_find(o, "moments")),
                                   .seed = option_count(o, "seed", UINT64_C(1) << 53),
                                   .data_text = data,
                                   .data_size = size,
                                   .valid_text = valid,
                                   .valid_size = valid_size,
                                   .order_text = order,
                                   .order_size = order ? strlen(order) : 0,
                                   .from = from,
                                   .live = true};
        status = pictures_of(&arena, base_json_find(o, "pictures"), pixels, pixels_size, &how,
                             &f->error);
        if (!status) status = beryl_train_open(f->engine, &how, &t->train, &f->error);
    }
    base_arena_fini(&arena);
    if (status == BERYL_OK) {
        base_heap_init(&t->heap, NULL);
        base_text_init(&t->file, &t->heap);
        base_text_init(&t->config, &t->heap);
    } else {
        free(t);
    }
    return frame_give_thing(f, status, t);
}

void module_train_close(frame *f, training *t) {
    frame_begin(f); /* what it gave goes */
    beryl_train_close(t->train);
    base_text_fini(&t->file);
    base_text_fini(&t->config);
    free(t);
}

uint32_t module_train_report(frame *f, const training *t) {
    const beryl_train_report r = beryl_train_report_of(t->train);
    frame_begin(f);
    base_text_print(&f->given, "{\"step\":%u", r.step);
    frame_add_number(f, "steps", r.steps);
    frame_add_number(f, "rows", r.rows);
    frame_add_number(f, "validRows", r.valid_rows);
    frame_add_number(f, "dataTokens", (double)r.tokens);
    frame_add_number(f, "dataTargets", (double)r.targets);
    frame_add_number(f, "parameters", (double)r.parameters);
    frame_add_number(f, "bytes", (double)r.bytes);
    frame_add_number(f, "loss", r.loss);
    frame_add_number(f, "gradNorm", r.grad_norm);
    frame_add_number(f, "rate", r.rate);
    frame_add_number(f, "seconds", r.seconds);
    frame_add_number(f, "tokens", r.step_tokens);
    frame_add_number(f, "targets", r.step_targets);
    if (isfinite(r.valid_loss)) frame_add_number(f, "validLoss", r.valid_loss);
    base_text_add(&f->given, "}", 1);
    return frame_give_text(f);
}

const beryl_adapter *module_train_adapter(const training *t) {
    return beryl_train_adapter(t->train);
}

typedef beryl_status begins(beryl_train *train, beryl_task **task, beryl_error *error);

static uint32_t begin_task(frame *f, const training *t, begins *begin) {
    beryl_task *task = NULL;
    frame_begin(f);
    const beryl_status status = begin(t->train, &task, &f->error);
    return frame_give_thing(f, status, task);
}

uint32_t module_train_step(frame *f, training *t) {
    return begin_task(f, t, beryl_train_step);
}

uint32_t module_train_measure(frame *f, training *t) {
    return begin_task(f, t, beryl_train_measure);
}

uint32_t module_train_show(frame *f, training *t) {
    return begin_task(f, t, beryl_train_show);
}

static beryl_status gather(void *user, const void *data, size_t size) {
    base_text *text = user;
    base_text_add(text, data, size);
    return text->failed ? BERYL_NO_MEMORY : BERYL_OK;
}

uint32_t module_train_save(frame *f, training *t, const char *form) {
    const beryl_sink file = {.user = &t->file, .write = gather},
                     config = {.user = &t->config, .write = gather};
    beryl_task *task = NULL;
    frame_begin(f);
    base_text_fini(&t->file);
    base_text_fini(&t->config);
    base_text_init(&t->file, &t->heap);
    base_text_init(&t->config, &t->heap);
    const beryl_status status = beryl_train_save_to(
        t->train, form, &file, strcmp(form, "peft") ? NULL : &config, &task, &f->error);
    return frame_give_thing(f, status, task);
}

uint32_t module_train_saved(frame *f, const training *t, uint32_t config) {
    const base_text *text = config ? &t->config : &t->file;
    frame_begin(f);
    f->out = text->data;
    f->out_size = (uint32_t)text->size;
    return BERYL_OK;
}
