/* train_test.c - training of adapters against the runs that PEFT made (tests/data/README.md):
 * losses, norms, rates, first gradients, last matrices; what is refused; cancelling; going on from
 * a checkpoint. */
#define _XOPEN_SOURCE 700
#include "base/file.h"
#include "device/dummy/dummy.h"
#include "engine/train.h"
#include "gguf_make.h"
#include "model.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Five times what float32 and float64 differ by in the reference runs (their README). */
#define LOSS_TOLERANCE (5 * 4e-5)
#define NORM_TOLERANCE (5 * 1e-4)     /* of the norm */
#define GRADIENT_TOLERANCE (5 * 7e-4) /* of the tensor's largest */
#define FINAL_TOLERANCE (5 * 9e-5)    /* of 99.9 % of the elements; the others within 2 * rate */

typedef struct run { /* a reference run and what repeats it */
    test *t;
    const char *name;
    base_heap heap;
    base_arena arena;
    format_gguf *ref;
    beryl_engine *engine;
    beryl_train *train;
    char paths[5][600];
    beryl_train_options options;
} run;

static uint32_t whole(run *r, const char *key) {
    uint32_t n = 0;
    if (format_gguf_get_u32(r->ref, key, &n, NULL))
        test_fail(r->t, __FILE__, __LINE__, "the reference has no %s", key);
    return n;
}

static double number(run *r, const char *key) {
    float f = NAN;
    double d = NAN;
    if (format_gguf_get_f32(r->ref, key, &f, NULL) == BERYL_OK) return (double)f;
    if (format_gguf_get_f64(r->ref, key, &d, NULL))
        test_fail(r->t, __FILE__, __LINE__, "the reference has no %s", key);
    return d;
}

/* [*n] */
static const void *tensor(run *r, const char *name, uint64_t *n) {
    const format_gguf_tensor *found = format_gguf_tensor_find(r->ref, name);
    if (!found) return NULL;
    *n = found->size / 4;
    return gguf_tensor_take(r->ref, found, &r->arena);
}

static float at(run *r, const char *name, uint32_t index) {
    uint64_t n = 0;
    const float *values = tensor(r, name, &n);
    return values && index < n ? values[index] : NAN;
}

static const char *path_of(run *r, int which, const char *what) {
    char name[80];
    snprintf(name, sizeof name, "lora/%s/%s", r->name, what);
    snprintf(r->paths[which], sizeof *r->paths, "%s", test_data(r->t, name));
    return r->paths[which];
}

/* The reference's order as a file. */
static bool write_order(run *r, uint32_t epochs) {
    uint64_t n = 0;
    const int32_t *order = tensor(r, "order", &n);
    base_text text;
    base_text_init(&text, &r->heap);
    for (uint64_t i = 0; order && i < n; i++)
        base_text_print(&text, "%s%d", i == 0 ? "[[" : i % (n / epochs) ? "," : "],[", order[i]);
    base_text_print(&text, "]]");
    snprintf(r->paths[4], sizeof *r->paths, "%s/order.json", test_scratch(r->t));
    const beryl_status status = base_file_write(r->paths[4], text.data, text.size, NULL);
    base_text_fini(&text);
    return order && status == BERYL_OK;
}

/* The reference's data, its pictures where the fixtures are. */
static const char *data_of(run *r, int which, const char *what) {
    static const char key[] = "\"picture\":\"";
    char *text = NULL, folder[PATH_MAX + 1];
    size_t size = 0;
    base_text out;
    base_text_init(&out, &r->heap);
    if (!realpath(test_data(r->t, ""), folder)) folder[0] = 0;
    strcat(folder, "/");
    CHECK_INT(r->t, base_file_read(&r->heap, path_of(r, which, what), 1 << 20, &text, &size, NULL),
              BERYL_OK);
    for (const char *at = text, *next; at && *at; at = next) {
        const char *found = strstr(at, key);
        next = found ? found + sizeof key - 1 : text + size;
        base_text_add(&out, at, (size_t)(next - at));
        if (found) base_text_add(&out, folder, strlen(folder));
    }
    snprintf(r->paths[which], sizeof *r->paths, "%s/%s", test_scratch(r->t), what);
    CHECK_INT(r->t, base_file_write(r->paths[which], out.data, out.size, NULL), BERYL_OK);
    base_text_fini(&out);
    base_heap_give(&r->heap, text, size + 1);
    return r->paths[which];
}

static bool run_open(run *r, test *t, const char *name, int where, const char *recompute,
                     const char *moments) {
    beryl_error error = {0};
    base_view base;
    char file[60];
    *r = (run){.t = t, .name = name};
    base_heap_init(&r->heap, NULL);
    base_arena_init(&r->arena, &r->heap);
    beryl_status status =
        format_gguf_open_path(&r->heap, path_of(r, 0, "ref.gguf"), &r->ref, &error);
    while (status == BERYL_OK && (status = format_gguf_step(r->ref, &error)) == BERYL_PENDING) {}
    if (status == BERYL_OK) status = format_gguf_get_string(r->ref, "base", &base, &error);
    if (status) {
        test_fail(t, __FILE__, __LINE__, "%s: %s", name, error.message);
        return false;
    }
    snprintf(file, sizeof file, "%.*s.gguf", (int)base.size, base.data);
    r->options = (beryl_train_options){.size = sizeof r->options,
                                       .data = data_of(r, 0, "train.jsonl"),
                                       .valid = data_of(r, 1, "valid.jsonl"),
                                       .init = path_of(r, 2, "initial"),
                                       .order = r->paths[4],
                                       .recompute = recompute,
                                       .moments = moments,
                                       .epochs = whole(r, "epochs"),
                                       .batch = whole(r, "micro_batch"),
                                       .accumulate = whole(r, "accumulate"),
                                       .rate = number(r, "learning_rate"),
                                       .warmup = whole(r, "warmup_steps"),
                                       .beta1 = (float)number(r, "beta1"),
                                       .beta2 = (float)number(r, "beta2"),
                                       .eps = (float)number(r, "eps"),
                                       .weight_decay = (float)number(r, "weight_decay"),
                                       .clip = (float)number(r, "max_grad_norm")};
    CHECK(t, write_order(r, r->options.epochs));
    const beryl_engine_options exact = {.precision = BERYL_PRECISION_EXACT};
    r->engine = model_engine(t, file, &model_devices[where], &exact);
    status = r->engine ? beryl_train_open(r->engine, &r->options, &r->train, &error) : BERYL_OK;
    if (status) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    return r->engine && !test_failed(t);
}

static void run_close(run *r) {
    beryl_train_close(r->train);
    beryl_engine_close(r->engine);
    format_gguf_close(r->ref);
    base_arena_fini(&r->arena);
    CHECK_INT(r->t, r->heap.bytes, 0);
}

static bool work(run *r, beryl_status (*begin)(beryl_train *, beryl_task **, beryl_error *)) {
    beryl_task *task = NULL;
    beryl_error error = {0};
    beryl_status status = begin(r->train, &task, &error);
    if (status == BERYL_OK) status = model_finish(task, &error, NULL);
    if (status) test_fail(r->t, __FILE__, __LINE__, "%s", error.message);
    return status == BERYL_OK;
}

static double valid_loss(run *r) {
    work(r, beryl_train_measure);
    return beryl_train_report_of(r->train).valid_loss;
}

static float *state_of(run *r, uint32_t state, size_t n) {
    float *values = calloc(n, sizeof *values);
    beryl_error error = {0};
    if (values && train_state_get(r->train, state, values, &error))
        test_fail(r->t, __FILE__, __LINE__, "%s", error.message);
    return values;
}

/* The first gradients, as far as the reference has them: PEFT's orientation. */
static void check_gradients(run *r) {
    const train_adapter *a = &r->train->adapter;
    uint32_t n_checked = 0;
    for (uint32_t i = 0; i < a->n && !test_failed(r->t); i++) {
        const train_matrix *m = &a->matrices[i];
        char name[100];
        uint64_t n = 0;
        if (m->target < LORA_FIRST_OF_MODEL)
            snprintf(name, sizeof name, "grad.first.blk.%u.%s.weight.lora_%c", m->layer,
                     format_lora_target_name(m->target), m->is_b ? 'b' : 'a');
        else
            snprintf(name, sizeof name, "grad.first.%s.weight.lora_%c",
                     m->target == LORA_HEAD ? "lm_head" : format_lora_target_name(m->target),
                     m->is_b ? 'b' : 'a');
        const float *want = tensor(r, name, &n);
        float *got = state_of(r, m->gradient, (size_t)m->dim[0] * m->dim[1]);
        if (got && want) {
            const bool turned = m->target == LORA_EMBED && !m->is_b;
            double most = 0, far = 0;
            CHECK_INT(r->t, n, m->dim[0] * m->dim[1]);
            for (uint32_t k = 0; k < n; k++) {
                const uint32_t from = turned ? k % m->in * m->rank + k / m->in : k;
                most = fmax(most, fabs((double)want[k]));
                far = fmax(far, fabs((double)want[k] - (double)got[from]));
            }
            if (!(far <= GRADIENT_TOLERANCE * most))
                test_fail(r->t, __FILE__, __LINE__, "%s is %g of %g away", name, far, most);
            n_checked++;
        }
        free(got);
    }
    CHECK(r->t, n_checked >= a->n / 2);
}

/* Data and pictures in memory: these by the names that rows have for their files, of which none
 * lies beside the data. */
static void check_named(test *t) {
    static const char *const files[] = {"e2b-mm.0.resized.png", "e2b-mm.1.resized.png",
                                        "lora/train-image/train.jsonl",
                                        "lora/train-image/valid.jsonl"};
    beryl_media_desc media[] = {{.size = sizeof *media, .kind = BERYL_PICTURE},
                                {.size = sizeof *media, .kind = BERYL_PICTURE}};
    run r;
    char *data[4] = {NULL};
    size_t size[4];
    beryl_error error = {0};
    if (!run_open(&r, t, "train-image", MODEL_REFERENCE, NULL, NULL)) return;
    beryl_train_close(r.train);
    r.train = NULL;
    for (int i = 0; i < 4; i++)
        CHECK_INT(
            t, base_file_read(&r.heap, test_data(t, files[i]), 1 << 20, &data[i], &size[i], NULL),
            BERYL_OK);
    beryl_train_options how = r.options;
    how.data = how.valid = NULL;
    how.data_text = data[2], how.data_size = size[2];
    how.valid_text = data[3], how.valid_size = size[3];
    how.media_names = files;
    how.media = media;
    how.n_media = 1;
    for (int i = 0; i < 2; i++) media[i].file = data[i], media[i].file_size = size[i];
    CHECK_INT(t, beryl_train_open(r.engine, &how, &r.train, &error), BERYL_NOT_FOUND);
    CHECK(t, strstr(error.message, "line ") && strstr(error.message, files[1]));
    how.n_media = 2;
    if (beryl_train_open(r.engine, &how, &r.train, &error))
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    else CHECK_NEAR(t, valid_loss(&r), at(&r, "valid_loss", 0), LOSS_TOLERANCE);
    media[1].size--;
    beryl_train *none = NULL;
    CHECK_INT(t, beryl_train_open(r.engine, &how, &none, &error), BERYL_MISUSE);
    for (int i = 0; i < 4; i++) base_heap_give(&r.heap, data[i], size[i] + 1);
    run_close(&r);
}

/* The root of the sum of squares of how far two adapters' matrices are apart. */
static double apart(const format_lora *x, const format_lora *y) {
    double sum = 0;
    for (size_t i = 0; i < x->n_part; i++) {
        const format_lora_part *p = &x->parts[i], *q = y->parts;
        while (q->target != p->target || q->layer != p->layer) q++;
        for (int is_b = 0; is_b < 2; is_b++)
            for (uint32_t rank = 0; rank < p->rank; rank++)
                for (uint32_t k = 0; k < (is_b ? p->out : p->in); k++) {
                    const format_lora_half *a = is_b ? &p->b : &p->a, *b = is_b ? &q->b : &q->a;
                    const double far =
                        (double)format_lora_value(a, rank * a->stride[1] + k * a->stride[2]) -
                        (double)format_lora_value(b, rank * b->stride[1] + k * b->stride[2]);
                    sum += far * far;
                }
    }
    return sqrt(sum);
}

/* What was saved, against the reference's last matrices. */
static void check_final(run *r) {
    char path[600];
    beryl_error error = {0};
    engine_adapter_file got, want;
    snprintf(path, sizeof path, "%s/trained", test_scratch(r->t));
    beryl_status status = beryl_train_save(r->train, path, NULL, &error);
    if (!status) status = engine_adapter_file_open(&r->heap, path, &got, &error);
    if (!status) status = engine_adapter_file_open(&r->heap, path_of(r, 3, "final"), &want, &error);
    if (status) {
        test_fail(r->t, __FILE__, __LINE__, "%s", error.message);
        return;
    }
    uint64_t n = 0, n_far = 0;
    double farthest = 0;
    CHECK(r->t, got.lora.n_part > 0);
    for (size_t i = 0; i < got.lora.n_part; i++) {
        const format_lora_part *p = &got.lora.parts[i], *q = want.lora.parts;
        while (q < want.lora.parts + want.lora.n_part &&
               (q->target != p->target || q->layer != p->layer))
            q++;
        CHECK(r->t, q < want.lora.parts + want.lora.n_part && q->rank == p->rank);
        if (test_failed(r->t)) break;
        CHECK_NEAR(r->t, p->factor, q->factor, 1e-6);
        for (int is_b = 0; is_b < 2; is_b++)
            for (uint32_t rank = 0; rank < p->rank; rank++)
                for (uint32_t k = 0; k < (is_b ? p->out : p->in); k++) {
                    const format_lora_half *x = is_b ? &p->b : &p->a, *y = is_b ? &q->b : &q->a;
                    const double far =
                        fabs((double)format_lora_value(x, rank * x->stride[1] + k * x->stride[2]) -
                             (double)format_lora_value(y, rank * y->stride[1] + k * y->stride[2]));
                    n++;
                    n_far += !(far <= FINAL_TOLERANCE);
                    if (far > farthest) farthest = far;
                }
    }
    if (n_far * 1000 > n || !(farthest <= 2 * r->options.rate))
        test_fail(r->t, __FILE__, __LINE__, "%llu of %llu elements are away, the farthest by %g",
                  (unsigned long long)n_far, (unsigned long long)n, farthest);
    engine_adapter_file_close(&r->heap, &got);
    engine_adapter_file_close(&r->heap, &want);
}

static void check_run(test *t, const char *name, int where, const char *recompute) {
    run r;
    if (run_open(&r, t, name, where, recompute, NULL)) {
        CHECK_INT(t, beryl_train_report_of(r.train).steps, whole(&r, "steps"));
        CHECK_NEAR(t, valid_loss(&r), at(&r, "valid_loss", 0), LOSS_TOLERANCE);
        for (uint32_t k = 0;
             k < whole(&r, "steps") && !test_failed(t) && work(&r, beryl_train_step); k++) {
            const beryl_train_report report = beryl_train_report_of(r.train);
            CHECK_NEAR(t, report.loss, at(&r, "loss", k), LOSS_TOLERANCE);
            const double norm = (double)at(&r, "grad_norm", k);
            CHECK_NEAR(t, report.grad_norm, norm, NORM_TOLERANCE * norm);
            CHECK_NEAR(t, report.rate, at(&r, "lr", k), 1e-9);
            if (k == 0) check_gradients(&r);
            if (test_failed(t)) test_fail(t, __FILE__, __LINE__, "in step %u", k);
        }
        if (!test_failed(t)) CHECK_NEAR(t, valid_loss(&r), at(&r, "valid_loss", 1), LOSS_TOLERANCE);
        if (!test_failed(t)) check_final(&r);
    }
    run_close(&r);
}

/* The same with moments in 8 bits. A step is a part of the rate, and what the mean was rounded by
 * before lives on for 1 / (1 - beta1) steps: about one distance of codes, a tenth of a usual part,
 * either way by chance. So the matrices end a tenth of their way off, in this many dimensions; the
 * losses are off by less than a tenth of what they went. */
#define CODED_TOLERANCE 0.1

static void check_coded(test *t, int where) {
    run r;
    double first = 0;
    engine_adapter_file of[3];
    beryl_error error = {0};
    if (run_open(&r, t, "train-e2b-f32", where, NULL, "q8")) {
        for (uint32_t k = 0;
             k < whole(&r, "steps") && !test_failed(t) && work(&r, beryl_train_step); k++) {
            const double want = at(&r, "loss", k);
            if (!k) first = want;
            CHECK_NEAR(t, beryl_train_report_of(r.train).loss, want,
                       LOSS_TOLERANCE + CODED_TOLERANCE * fabs(first - want));
        }
        snprintf(r.paths[0], sizeof *r.paths, "%s/coded", test_scratch(t));
        path_of(&r, 3, "final");
        beryl_status status = beryl_train_save(r.train, r.paths[0], NULL, &error);
        for (uint32_t i = 0; !status && i < 3; i++)
            status = engine_adapter_file_open(&r.heap, r.paths[i ? i + 1 : 0], &of[i], &error);
        if (status) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        if (!test_failed(t)) {
            const double far = apart(&of[0].lora, &of[2].lora),
                         way = apart(&of[1].lora, &of[2].lora);
            printf("  %.4f of the way off\n", far / way);
            CHECK(t, way > 0 && far <= CODED_TOLERANCE * way);
            for (int i = 0; i < 3; i++) engine_adapter_file_close(&r.heap, &of[i]);
        }
    }
    run_close(&r);
}

/* On a device that takes its time: cancelled before its update a step has not been; once that is on
 * its way it is too late, and the step counts. */
static void check_cancel(test *t) {
    run r;
    if (run_open(&r, t, "train-e2b-f32", MODEL_DUMMY, NULL, NULL)) {
        work(&r, beryl_train_step); /* of rate 0 */
        device_dummy_slow(r.engine->device, 1e-5, 0);
        for (uint32_t begun = 0; begun < 2 && !test_failed(t); begun++) {
            const beryl_train_report before = beryl_train_report_of(r.train);
            beryl_task *task = NULL;
            beryl_status status = beryl_train_step(r.train, &task, NULL);
            CHECK_INT(t, status, BERYL_OK);
            for (status = BERYL_PENDING; begun && status == BERYL_PENDING &&
                                         beryl_train_report_of(r.train).rate == before.rate;)
                status = beryl_task_step(task, NULL);
            CHECK_INT(t, status, BERYL_PENDING);
            CHECK(t, beryl_cancel(task) == !begun);
            CHECK_INT(t, model_finish(task, NULL, NULL), begun ? BERYL_OK : BERYL_CANCELLED);
            CHECK_INT(t, beryl_train_report_of(r.train).step, before.step + begun);
        }
    }
    run_close(&r);
}

typedef struct traced {
    uint32_t n_call, n_dispatch;
    bool whole;
} traced;

static void count_events(void *user, const char *text, size_t size) {
    traced *c = user;
    c->n_call++;
    for (const char *at = text; (at = strstr(at, "\"cat\":\"dispatch\"")); at++) c->n_dispatch++;
    c->whole = strstr(text, "\"plan\":\"train\"") && !strcmp(text + size - 4, "\n]}\n");
}

/* A trace has every dispatch of pass and update, and only of steps that were timed. */
static void check_traced(test *t) {
    run r;
    traced c = {0};
    graph_exec_info pass, update;
    if (run_open(&r, t, "train-e2b-f32", MODEL_DUMMY, NULL, NULL)) {
        CHECK_INT(t, beryl_train_trace(r.train, count_events, &c, NULL), BERYL_MISUSE);
        beryl_train_close(r.train);
        r.options.timed = true;
        CHECK_INT(t, beryl_train_open(r.engine, &r.options, &r.train, NULL), BERYL_OK);
        if (!test_failed(t)) {
            work(&r, beryl_train_step);
            CHECK_INT(t, beryl_train_trace(r.train, count_events, &c, NULL), BERYL_OK);
            graph_exec_describe(r.train->learn.exec, &pass);
            graph_exec_describe(r.train->update_exec, &update);
            CHECK(t, c.n_call == 1 && c.whole);
            CHECK_INT(t, c.n_dispatch, pass.dispatches + update.dispatches);
        }
    }
    run_close(&r);
}

/* ---- going on -------------------------------------------------------------------------------- */

enum { N_STEP = 6, CUT = 3 };

typedef struct going { /* a training that is left and gone on with */
    test *t;
    char data[600], valid[600], checkpoint[600], adapter[600];
    beryl_train_options options;
    beryl_engine *engine;
    beryl_train *train;
    beryl_train_report reports[N_STEP]; /* after each step, and its measurement */
} going;

static void going_begin(going *g, test *t, const char *moments) {
    static const char rows[] = "{\"tokens\":[2,10,11,12]}\n{\"tokens\":[2,20,21]}\n"
                               "{\"tokens\":[2,30,31,32,33]}\n",
                      others[] = "{\"tokens\":[2,10,21,12]}\n{\"tokens\":[2,30,31]}\n";
    *g = (going){.t = t};
    snprintf(g->data, sizeof g->data, "%s/rows.jsonl", test_scratch(t));
    snprintf(g->valid, sizeof g->valid, "%s/others.jsonl", test_scratch(t));
    snprintf(g->checkpoint, sizeof g->checkpoint, "%s/on/checkpoint", test_scratch(t));
    snprintf(g->adapter, sizeof g->adapter, "%s/on", test_scratch(t));
    CHECK_INT(t, base_file_write(g->data, rows, sizeof rows - 1, NULL), BERYL_OK);
    CHECK_INT(t, base_file_write(g->valid, others, sizeof others - 1, NULL), BERYL_OK);
    CHECK_INT(t, base_folder_make(g->adapter, NULL), BERYL_OK);
    g->options = (beryl_train_options){.size = sizeof g->options,
                                       .data = g->data,
                                       .valid = g->valid,
                                       .rank = 2,
                                       .targets = "q,down",
                                       .epochs = 2,
                                       .rate = 0.01,
                                       .warmup = 1,
                                       .weight_decay = 0.1f,
                                       .dropout = 0.25f,
                                       .seed = 7,
                                       .moments = moments};
}

static beryl_status going_open(going *g, int where, beryl_error *error) {
    const beryl_engine_options exact = {.precision = BERYL_PRECISION_EXACT};
    if (!g->engine) g->engine = model_engine(g->t, "e2b-f32.gguf", &model_devices[where], &exact);
    return g->engine ? beryl_train_open(g->engine, &g->options, &g->train, error) : BERYL_NO_DEVICE;
}

static void going_close(going *g) {
    beryl_train_close(g->train);
    beryl_engine_close(g->engine);
    g->train = NULL;
    g->engine = NULL;
}

static void go_on(going *g, uint32_t to) {
    run r = {.t = g->t, .train = g->train};
    for (uint32_t k = beryl_train_report_of(g->train).step; k < to && !test_failed(g->t); k++) {
        if (work(&r, beryl_train_step) && work(&r, beryl_train_measure))
            g->reports[k] = beryl_train_report_of(g->train);
    }
}

static bool same(double a, double b) {
    return !memcmp(&a, &b, sizeof a);
}

/* The adapter's file, in the heap. */
static char *saved(going *g, base_heap *heap, size_t *size) {
    char path[700], *data = NULL;
    beryl_error error = {0};
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", g->adapter);
    beryl_status status = beryl_train_save(g->train, g->adapter, NULL, &error);
    if (!status) status = base_file_read(heap, path, 1 << 24, &data, size, &error);
    if (status) test_fail(g->t, __FILE__, __LINE__, "%s", error.message);
    return data;
}

/* All steps at once, and half of them, another engine, the other half: the same numbers. */
static void check_resumed(test *t, int where, const char *moments) {
    going whole_run, parts;
    beryl_error error = {0};
    base_heap heap;
    size_t size[2] = {0};
    char *adapters[2] = {NULL, NULL};
    base_heap_init(&heap, NULL);
    going_begin(&whole_run, t, moments);
    if (going_open(&whole_run, where, &error) == BERYL_OK) {
        CHECK_INT(t, beryl_train_report_of(whole_run.train).steps, N_STEP);
        go_on(&whole_run, N_STEP);
        adapters[0] = saved(&whole_run, &heap, &size[0]);
    }
    going_close(&whole_run);
    going_begin(&parts, t, moments);
    if (adapters[0] && going_open(&parts, where, &error) == BERYL_OK) {
        go_on(&parts, CUT);
        CHECK_INT(t, beryl_train_checkpoint(parts.train, parts.checkpoint, &error), BERYL_OK);
        going_close(&parts);
        parts.options.resume = parts.checkpoint;
        CHECK_INT(t, going_open(&parts, where, &error), BERYL_OK);
        CHECK_INT(t, beryl_train_report_of(parts.train).step, CUT);
        go_on(&parts, N_STEP);
        for (int k = 0; k < N_STEP; k++) {
            const beryl_train_report *a = &whole_run.reports[k], *b = &parts.reports[k];
            if (a->step != b->step || !same(a->loss, b->loss) || !same(a->rate, b->rate) ||
                !same(a->grad_norm, b->grad_norm) || !same(a->valid_loss, b->valid_loss) ||
                !same(a->best_loss, b->best_loss) || a->best_step != b->best_step ||
                a->n_worse != b->n_worse)
                test_fail(t, __FILE__, __LINE__, "step %d: %.9g, %.9g, and %.9g, %.9g", k, a->loss,
                          a->valid_loss, b->loss, b->valid_loss);
        }
        adapters[1] = saved(&parts, &heap, &size[1]);
        CHECK(t, adapters[1] && size[0] == size[1] && !memcmp(adapters[0], adapters[1], size[0]));
    }
    if (error.message[0]) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    going_close(&parts);
    for (int i = 0; i < 2; i++) base_heap_give(&heap, adapters[i], adapters[i] ? size[i] + 1 : 0);
    CHECK_INT(t, heap.bytes, 0);
}

static void refuse_resume(going *g, const char *needle) {
    beryl_error error = {0};
    const beryl_status status = going_open(g, MODEL_REFERENCE, &error);
    if (status != BERYL_BAD_INPUT || !strstr(error.message, needle) ||
        !strstr(error.message, g->options.resume))
        test_fail(g->t, __FILE__, __LINE__, "%s: \"%s\"", needle, error.message);
    CHECK(g->t, !g->train);
}

/* Each option that steps depend on, changed. */
static void check_resume_refused(test *t) {
    going g;
    beryl_error error = {0};
    going_begin(&g, t, NULL);
    if (going_open(&g, MODEL_REFERENCE, &error) == BERYL_OK)
        CHECK_INT(t, beryl_train_checkpoint(g.train, g.checkpoint, &error), BERYL_OK);
    if (error.message[0]) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    beryl_train_close(g.train);
    g.train = NULL;
    g.options.resume = g.checkpoint;
    const beryl_train_options o = g.options;
    g.options.rank = 4, refuse_resume(&g, "its rank is 2, and here it is 4"), g.options = o;
    g.options.alpha = 1, refuse_resume(&g, "its alpha is 4, and here it is 1"), g.options = o;
    g.options.targets = "k,down", refuse_resume(&g, "attn_q.a.value' where"), g.options = o;
    g.options.targets = "down", refuse_resume(&g, "attn_q.a.value' where 'train.0.ffn_down"),
    g.options = o;
    g.options.epochs = 3, refuse_resume(&g, "its epochs is 2, and here it is 3"), g.options = o;
    g.options.batch = 2, refuse_resume(&g, "its batch is"), g.options = o;
    g.options.accumulate = 2, refuse_resume(&g, "its accumulate is"), g.options = o;
    g.options.seed = 8, refuse_resume(&g, "its seed is"), g.options = o;
    g.options.rate = 0.02, refuse_resume(&g, "its learning rate is"), g.options = o;
    g.options.schedule = "linear", refuse_resume(&g, "its schedule is cosine"), g.options = o;
    g.options.warmup = 2, refuse_resume(&g, "its warmup is"), g.options = o;
    g.options.cycles = 2, refuse_resume(&g, "its cycles is"), g.options = o;
    g.options.beta2 = 0.99f, refuse_resume(&g, "its betas is"), g.options = o;
    g.options.eps = 1e-6f, refuse_resume(&g, "its eps is"), g.options = o;
    g.options.weight_decay = 0, refuse_resume(&g, "its weight decay is"), g.options = o;
    g.options.dropout = 0, refuse_resume(&g, "its dropout is 0.25, and"), g.options = o;
    g.options.layers = "1-2", refuse_resume(&g, "0.attn_q.a.value' where"), g.options = o;
    g.options.clip = 2, refuse_resume(&g, "its clip is"), g.options = o;
    g.options.data = g.valid, refuse_resume(&g, "its data is"), g.options = o;
    g.options.valid = NULL, refuse_resume(&g, "its validation data is"), g.options = o;
    /* another precision, another model */
    beryl_engine_close(g.engine);
    g.engine = model_load(t, &(beryl_engine_options){.size = sizeof(beryl_engine_options),
                                                     .model = test_data(t, "e2b-f32.gguf"),
                                                     .device = "reference",
                                                     .no_cache = true});
    refuse_resume(&g, "its precision is exact, and here it is fast");
    beryl_engine_close(g.engine);
    g.engine = model_engine(t, "e2b-q4_0.gguf", &model_devices[MODEL_REFERENCE], NULL);
    refuse_resume(&g, "its model is");
    /* no checkpoint at all */
    g.options.resume = "/nowhere/checkpoint";
    CHECK_INT(t, going_open(&g, MODEL_REFERENCE, &error), BERYL_NOT_FOUND);
    going_close(&g);
}

/* ---- dropout --------------------------------------------------------------------------------- */

enum { N_DRAW = 24 };
/* Gradients are linear in what is dropped; with a chance of a half one is about 1 away, the mean of
 * N_DRAW about 0.2. What is not scaled up would be 0.5 away. */
#define MEAN_TOLERANCE 0.35

/* The gradient of all B, whose values are 0, after a step. */
static double *gradient_of_b(going *g, size_t *n) {
    run r = {.t = g->t, .train = g->train};
    const train_adapter *a = &g->train->adapter;
    *n = 0;
    work(&r, beryl_train_step);
    for (uint32_t i = 1; i < a->n; i += 2) *n += a->matrices[i].dim[0] * a->matrices[i].dim[1];
    double *all = calloc(*n, sizeof *all);
    for (uint32_t i = 1, at = 0; all && i < a->n; i += 2) {
        const size_t size = (size_t)a->matrices[i].dim[0] * a->matrices[i].dim[1];
        float *values = state_of(&r, a->matrices[i].gradient, size);
        for (size_t k = 0; values && k < size; k++) all[at++] = (double)values[k];
        free(values);
    }
    return all;
}

static double distance(const double *a, const double *b, size_t n) {
    double sum = 0, of = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (a[i] - b[i]) * (a[i] - b[i]);
        of += b[i] * b[i];
    }
    return sqrt(sum / of);
}

/* With B at 0 the loss is as without dropout, and the gradient of B is so on the average; each
 * step has another draw. */
static void check_dropout(test *t) {
    going g;
    beryl_error error = {0};
    size_t n = 0;
    double *without = NULL, *mean = NULL, loss = 0;
    going_begin(&g, t, NULL);
    static const char row[] = "{\"tokens\":[2,10,11,12]}\n";
    CHECK_INT(t, base_file_write(g.data, row, sizeof row - 1, NULL), BERYL_OK);
    g.options.warmup = 0;
    g.options.rate = 1e-30; /* nothing is learned */
    g.options.clip = -1;
    g.options.dropout = 0;
    g.options.epochs = 1;
    if (going_open(&g, MODEL_REFERENCE, &error) == BERYL_OK) {
        without = gradient_of_b(&g, &n);
        loss = beryl_train_report_of(g.train).loss;
        beryl_train_close(g.train);
        g.train = NULL;
        g.options.epochs = N_DRAW;
        g.options.dropout = 0.5f;
        CHECK_INT(t, going_open(&g, MODEL_REFERENCE, &error), BERYL_OK);
        mean = calloc(n, sizeof *mean);
        for (int k = 0; mean && k < N_DRAW && !test_failed(t); k++) {
            double *one = gradient_of_b(&g, &n);
            CHECK_NEAR(t, beryl_train_report_of(g.train).loss, loss, 1e-6);
            CHECK(t, distance(one, without, n) > MEAN_TOLERANCE);
            for (size_t i = 0; i < n; i++) mean[i] += one[i] / N_DRAW;
            free(one);
        }
        if (!test_failed(t) && !(distance(mean, without, n) < MEAN_TOLERANCE))
            test_fail(t, __FILE__, __LINE__, "the mean is %g away", distance(mean, without, n));
    }
    if (error.message[0]) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    free(without);
    free(mean);
    going_close(&g);
}

/* ---- layers ---------------------------------------------------------------------------------- */

static void check_layers(test *t) {
    static const struct {
        const char *layers, *refusal; /* NULL: taken */
        uint32_t in;                  /* a bit a layer */
    } lists[] = {
        {"0", NULL, 1},
        {"1-2", NULL, 6},
        {"0,2-3", NULL, 13},
        {"3,0", NULL, 9},
        {"", "layers are like 0-3,7, not ''", 0},
        {"1,", "not '1,'", 0},
        {"2-1", "not '2-1'", 0},
        {"1-", "not '1-'", 0},
        {"x", "not 'x'", 0},
        {"0-400", "layer 400: the model has layers 0 to ", 0},
        {"99999999999999999999", "not '99999999999999999999'", 0},
    };
    going g;
    going_begin(&g, t, NULL);
    g.options.targets = "q";
    for (size_t i = 0; i < sizeof lists / sizeof *lists && !test_failed(t); i++) {
        beryl_error error = {0};
        uint32_t in = 0;
        g.options.layers = lists[i].layers;
        const beryl_status status = going_open(&g, MODEL_REFERENCE, &error);
        CHECK_INT(t, status, lists[i].refusal ? BERYL_MISUSE : BERYL_OK);
        if (lists[i].refusal && !strstr(error.message, lists[i].refusal))
            test_fail(t, __FILE__, __LINE__, "%s: \"%s\"", lists[i].layers, error.message);
        for (uint32_t k = 0; g.train && k < g.train->adapter.n; k++)
            in |= 1u << g.train->adapter.matrices[k].layer;
        CHECK_INT(t, in, lists[i].in);
        beryl_train_close(g.train);
        g.train = NULL;
    }
    going_close(&g);
}

/* An answer that ends early leaves steps of its own on the device, whose results a training may not
 * outrun. */
static void check_answers_between(test *t) {
    going g;
    beryl_error error = {0};
    static const int32_t prompt[] = {2, 10, 11};
    going_begin(&g, t, NULL);
    if (going_open(&g, MODEL_DUMMY, &error) == BERYL_OK) {
        for (uint32_t k = 1; k <= N_STEP && !test_failed(t); k += 2) {
            const beryl_generate_options greedy = model_greedy(40);
            beryl_session *session = model_session(t, g.engine);
            beryl_task *task = NULL;
            beryl_event event;
            beryl_status status =
                beryl_session_generate(session, prompt, 3, &greedy, &task, &error);
            int n = 0;
            while (!status && n < 3 && beryl_wait(task, &event) == BERYL_EVENT)
                n += event.kind == BERYL_EVENT_TOKEN;
            CHECK(t, beryl_cancel(task));
            status = model_finish(task, &error, NULL);
            if (status != BERYL_CANCELLED) test_fail(t, __FILE__, __LINE__, "%s", error.message);
            error = (beryl_error){0};
            beryl_session_close(session);
            if (k > 1)
                CHECK_INT(t, beryl_train_checkpoint(g.train, g.checkpoint, &error), BERYL_OK);
            go_on(&g, k);
        }
    }
    if (error.message[0]) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    going_close(&g);
}

/* A step with layers that are kept, recomputed in part, and recomputed, on the reference: loss and
 * norm are the same bits, so are the gradients of the first matrix, which all layers are behind. */
static void check_same_bits(test *t) {
    static const char *const ways[] = {"never", "2", "always"};
    double told[3][2] = {{0}};
    float *first[3] = {NULL};
    size_t n = 0;
    for (int i = 0; i < 3 && !test_failed(t); i++) {
        run r;
        if (run_open(&r, t, "train-e2b-f32", MODEL_REFERENCE, ways[i], NULL)) {
            const train_matrix *m = r.train->adapter.matrices;
            CHECK_INT(t, beryl_train_report_of(r.train).recomputes > 0, i > 0);
            work(&r, beryl_train_step);
            told[i][0] = beryl_train_report_of(r.train).loss;
            told[i][1] = beryl_train_report_of(r.train).grad_norm;
            n = (size_t)m->dim[0] * m->dim[1];
            first[i] = state_of(&r, m->gradient, n);
        }
        run_close(&r);
    }
    for (int i = 1; i < 3 && !test_failed(t); i++) {
        CHECK(t, told[0][0] > 0 && told[0][1] > 0 && !memcmp(told[0], told[i], sizeof told[0]));
        CHECK(t, first[0] && first[i] && !memcmp(first[0], first[i], n * sizeof **first));
    }
    for (int i = 0; i < 3; i++) free(first[i]);
}

/* The planner tells both ways, keeps what fits below the engine's limit, and recomputes no layer
 * more. */
static void check_memory(test *t) {
    const char *const ways[] = {"never", "1", "2", "always", NULL, "auto"};
    enum { WAYS = sizeof ways / sizeof *ways, ALL = 3 };
    beryl_train_report reports[WAYS] = {{0}};
    uint64_t held = 0;
    for (int i = 0; i < WAYS && !test_failed(t); i++) {
        run r;
        if (run_open(&r, t, "train-e2b-f32", MODEL_DUMMY, ways[i], NULL)) {
            beryl_stats stats;
            beryl_engine_stats(r.engine, &stats);
            reports[i] = beryl_train_report_of(r.train);
            if (i == 2) held = stats.device_bytes;
            if (i == WAYS - 1) { /* again, with as much as two layers ask for */
                beryl_error error = {0};
                beryl_train_close(r.train);
                r.engine->options.memory = held;
                CHECK_INT(t, beryl_train_open(r.engine, &r.options, &r.train, &error), BERYL_OK);
                reports[i] = beryl_train_report_of(r.train);
                beryl_engine_stats(r.engine, &stats);
                CHECK(t, stats.device_bytes <= held);
            }
        }
        run_close(&r);
    }
    const uint32_t said[WAYS] = {0, 1, 2, reports[ALL].recomputes, 0, 2};
    for (int i = 0; i < WAYS && !test_failed(t); i++) {
        printf("  %u layers of a pass recomputed: %llu bytes\n", reports[i].recomputes,
               (unsigned long long)reports[i].bytes);
        CHECK_INT(t, reports[i].recomputes, said[i]);
        CHECK_INT(t, reports[i].kept_bytes, reports[0].kept_bytes);
        CHECK_INT(t, reports[i].recomputed_bytes, reports[0].recomputed_bytes);
        if (i && i <= ALL) CHECK(t, reports[i].bytes < reports[i - 1].bytes);
    }
    CHECK(t, reports[ALL].recomputes > 2);
    CHECK_INT(t, reports[0].bytes - reports[ALL].bytes,
              reports[0].kept_bytes - reports[0].recomputed_bytes);
}

/* ---- pictures, sound, experts ---------------------------------------------------------------- */

/* A reference's cases of pictures and sound as rows of training data, the text after them to be
 * learned; of a model without towers the beginning of one of text. Gives the loss that the
 * reference's logits have. */
static double rows_of(test *t, model_ref *ref, bool towers, const char *data, char *paths) {
    enum { TEXT_TOKENS = 24 };
    base_text text;
    double loss = 0;
    uint32_t n_target = 0, n_row = 0;
    base_text_init(&text, &ref->heap);
    for (uint32_t i = 0; i < ref->n_case; i++) {
        model_case c;
        char key[40];
        base_view kind = {0}, file = {0};
        snprintf(key, sizeof key, "case.%u.kind", i);
        format_gguf_get_string(ref->gguf, key, &kind, NULL);
        if (base_view_equal(kind, BASE_VIEW("text")) == towers || !model_case_read(t, ref, i, &c))
            continue;
        const bool sound = base_view_equal(kind, BASE_VIEW("audio"));
        snprintf(key, sizeof key, "case.%u.%s", i, sound ? "audio" : "resized");
        if (towers) CHECK_INT(t, format_gguf_get_string(ref->gguf, key, &file, NULL), BERYL_OK);
        /* soft tokens are the one token that stands twice in a row, and most of the prompt */
        size_t after = towers ? c.n_token : c.first + 1;
        while (towers && after > 1 && c.tokens[after - 1] != c.tokens[after - 2]) after--;
        if (!towers && after + TEXT_TOKENS < c.n_token) c.n_token = after + TEXT_TOKENS;
        if (after >= c.n_token || (!towers && n_row++)) continue;
        for (size_t k = 0; k < c.n_token; k++)
            base_text_print(&text, "%s%d", k ? "," : "{\"tokens\":[", c.tokens[k]);
        for (size_t k = 0; k < c.n_token; k++)
            base_text_print(&text, "%s%d", k ? "," : "],\"mask\":[", k >= after);
        if (towers)
            base_text_print(&text, "],\"%s\":\"%s%.*s\"}\n", sound ? "sound" : "picture", paths,
                            (int)file.size, file.data);
        else base_text_print(&text, "]}\n");
        for (size_t k = after; k < c.n_token; k++, n_target++) {
            const float *z = c.logits + (k - 1 - c.first) * c.n_vocab;
            double sum = 0;
            for (size_t v = 0; v < c.n_vocab; v++) sum += exp((double)z[v]);
            loss += log(sum) - (double)z[c.tokens[k]];
        }
    }
    CHECK(t, n_target > 0);
    CHECK_INT(t, base_file_write(data, text.data, text.size, NULL), BERYL_OK);
    base_text_fini(&text);
    return loss / n_target;
}

/* The loss where all B are moved by `far` along their gradients, which have the norm `norm`. */
static double loss_along(run *r, float *const *b, float *const *d, double far, double norm) {
    const train_adapter *a = &r->train->adapter;
    float moved[1024];
    for (uint32_t i = 0; i < a->n; i++) {
        const size_t n = (size_t)a->matrices[i].dim[0] * a->matrices[i].dim[1];
        if (!a->matrices[i].is_b) continue;
        CHECK(r->t, n <= sizeof moved / sizeof *moved);
        if (test_failed(r->t)) break;
        for (size_t k = 0; k < n; k++)
            moved[k] = (float)((double)b[i][k] + far * (double)d[i][k] / norm);
        CHECK_INT(r->t, train_state_put(r->train, a->matrices[i].value, moved, NULL), BERYL_OK);
    }
    return valid_loss(r);
}

/* All rows in one pass: the loss is that of the reference's logits, from which these may
 * be MODEL_TOLERANCE away, each its own way; along its gradient it rises as fast as the gradient's
 * norm says. The losses of a central difference are f32, 1e-6 away: 1e-4 of a norm near 10, as much
 * as the third derivative adds. */
static void check_slope(test *t, const char *model, bool towers, int where) {
    enum { MATRIX_MAX = 64 };
    static const double far = 5e-4, slope_tolerance = 5e-4;
    run r = {.t = t};
    model_ref ref;
    beryl_error error = {0};
    char file[40], folder[PATH_MAX + 1];
    float *b[MATRIX_MAX] = {NULL}, *d[MATRIX_MAX] = {NULL};
    snprintf(file, sizeof file, "%s.ref.gguf", model);
    if (!model_ref_open(t, &ref, file)) return;
    if (!realpath(test_data(t, ""), folder)) folder[0] = 0;
    strcat(folder, "/");
    snprintf(r.paths[0], sizeof *r.paths, "%s/media.jsonl", test_scratch(t));
    const double want = rows_of(t, &ref, towers, r.paths[0], folder);
    snprintf(file, sizeof file, "%s.gguf", model);
    const beryl_engine_options exact = {.precision = BERYL_PRECISION_EXACT};
    r.engine = model_engine(t, file, &model_devices[where], &exact);
    r.options = (beryl_train_options){.size = sizeof r.options,
                                      .data = r.paths[0],
                                      .valid = r.paths[0],
                                      .rank = 2,
                                      .targets = "q,k,o",
                                      .batch = 8,
                                      .clip = -1,
                                      .rate = 1e-30};
    if (r.engine && beryl_train_open(r.engine, &r.options, &r.train, &error))
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    if (r.engine && !test_failed(t)) {
        const train_adapter *a = &r.train->adapter;
        CHECK(t, a->n <= MATRIX_MAX);
        work(&r, beryl_train_step);
        const double at = beryl_train_report_of(r.train).loss,
                     norm = beryl_train_report_of(r.train).grad_norm;
        CHECK_NEAR(t, at, want, MODEL_TOLERANCE);
        for (uint32_t i = 0; i < a->n && !test_failed(t); i++) {
            const size_t n = (size_t)a->matrices[i].dim[0] * a->matrices[i].dim[1];
            b[i] = state_of(&r, a->matrices[i].value, n);
            d[i] = state_of(&r, a->matrices[i].gradient, n);
        }
        const double up = loss_along(&r, b, d, far, norm), down = loss_along(&r, b, d, -far, norm);
        printf("  %s: loss %.6f of %.6f, norm %.6f, slope %.6f\n", model, at, want, norm,
               (up - down) / (2 * far));
        CHECK(t, norm > 0.1);
        CHECK_NEAR(t, (up - down) / (2 * far), norm, slope_tolerance * norm);
    }
    for (int i = 0; i < MATRIX_MAX; i++) free(b[i]), free(d[i]);
    beryl_train_close(r.train);
    beryl_engine_close(r.engine);
    model_ref_close(&ref);
}

void test_train(test *t) {
    static const char *const media[] = {"e2b-mm", "31b-vision", "12b-mm"};
    static const char *const runs[] = {"train-e2b-f32", "train-e2b-q4km", "train-embd",
                                       "train-image"};
    static const int places[] = {MODEL_REFERENCE, MODEL_HOST, MODEL_WEBGPU, MODEL_MIN, MODEL_CUDA};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        for (size_t k = 0; k < sizeof places / sizeof *places; k++)
            /* what others compile takes a minute each: one of all, and the rest of test-all; the
             * reference unpacks quantised weights for minutes */
            if (((!i && !k) || test_drawn(0, 1, 2)) && (i != 1 || k) &&
                test_case(t, "train/as-peft-%s-%s", runs[i], model_devices[places[k]].name))
                check_run(t, runs[i], places[k], NULL);
    static const int recomputing[] = {MODEL_REFERENCE, MODEL_HOST, MODEL_WEBGPU};
    for (size_t k = 0; k < sizeof recomputing / sizeof *recomputing; k++)
        if (test_drawn(0, 1, 2) && /* the bits are those of layers that are kept: below */
            test_case(t, "train/recomputed-as-peft-%s", model_devices[recomputing[k]].name))
            check_run(t, runs[0], recomputing[k], "always");
    for (size_t i = 0; i < sizeof media / sizeof *media; i++)
        for (size_t k = 0; k < sizeof places / sizeof *places; k++)
            if ((!k && i == 2) || test_drawn(0, 1, 2)) /* the first is in PEFT's runs too */
                if (test_case(t, "train/media-%s-%s", media[i], model_devices[places[k]].name))
                    check_slope(t, media[i], true, places[k]);
    for (size_t k = 0; k < sizeof places / sizeof *places; k++)
        if (test_drawn(0, 1, 2))
            if (test_case(t, "train/frozen-experts-%s", model_devices[places[k]].name))
                check_slope(t, "moe-26b", false, places[k]);
    if (test_case(t, "train/recomputed-same-bits")) check_same_bits(t);
    if (test_case(t, "train/recomputed-where-memory-is-too-small")) check_memory(t);
    if (test_case(t, "train/pictures-by-name")) check_named(t);
    if (test_case(t, "train/cancelled")) check_cancel(t);
    if (test_case(t, "train/traced")) check_traced(t);
    for (size_t k = 0; k < sizeof places / sizeof *places; k++)
        if ((!k || test_drawn(0, 1, 2)) &&
            test_case(t, "train/resumed-bit-for-bit-%s", model_devices[places[k]].name))
            check_resumed(t, places[k], NULL);
    if (test_case(t, "train/coded-resumed-bit-for-bit")) check_resumed(t, MODEL_REFERENCE, "q8");
    for (size_t k = 0; k < sizeof places / sizeof *places; k++)
        if (test_drawn(0, 1, 2) &&
            test_case(t, "train/coded-near-peft-%s", model_devices[places[k]].name))
            check_coded(t, places[k]);
    if (test_case(t, "train/resumed-with-other-settings")) check_resume_refused(t);
    if (test_case(t, "train/dropout-right-on-average")) check_dropout(t);
    if (test_case(t, "train/layers-of-a-list")) check_layers(t);
    if (test_case(t, "train/answers-between-steps")) check_answers_between(t);
}
