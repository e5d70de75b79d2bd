/* train_test.c - training of adapters against the runs that PEFT made (tests/data/README.md):
 * losses, norms, rates, first gradients, last matrices; what is refused; cancelling. */
#define _POSIX_C_SOURCE 200809L
#include "base/file.h"
#include "device/dummy/dummy.h"
#include "engine/train.h"
#include "gguf_make.h"
#include "model.h"

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

static bool run_open(run *r, test *t, const char *name, int where, const char *recompute) {
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
                                       .data = path_of(r, 0, "train.jsonl"),
                                       .valid = path_of(r, 1, "valid.jsonl"),
                                       .init = path_of(r, 2, "initial"),
                                       .order = r->paths[4],
                                       .recompute = recompute,
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
    if (run_open(&r, t, name, where, recompute)) {
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

/* On a device that takes its time: cancelled before its update a step has not been; once that is on
 * its way it is too late, and the step counts. */
static void check_cancel(test *t) {
    run r;
    if (run_open(&r, t, "train-e2b-f32", MODEL_DUMMY, NULL)) {
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

/* A step with layers that are kept and recomputed, on the reference: loss and norm are the same
 * bits, so are the gradients of the first matrix, which all layers are behind. */
static void check_same_bits(test *t) {
    static const char *const ways[] = {"never", "always"};
    double told[2][2] = {{0}};
    float *first[2] = {NULL};
    size_t n = 0;
    for (int i = 0; i < 2 && !test_failed(t); i++) {
        run r;
        if (run_open(&r, t, "train-e2b-f32", MODEL_REFERENCE, ways[i])) {
            const train_matrix *m = r.train->adapter.matrices;
            CHECK_INT(t, beryl_train_report_of(r.train).recomputes, i);
            work(&r, beryl_train_step);
            told[i][0] = beryl_train_report_of(r.train).loss;
            told[i][1] = beryl_train_report_of(r.train).grad_norm;
            n = (size_t)m->dim[0] * m->dim[1];
            first[i] = state_of(&r, m->gradient, n);
        }
        run_close(&r);
    }
    if (!test_failed(t)) {
        CHECK(t, told[0][0] > 0 && told[0][1] > 0 && !memcmp(told[0], told[1], sizeof told[0]));
        CHECK(t, first[0] && first[1] && !memcmp(first[0], first[1], n * sizeof **first));
    }
    for (int i = 0; i < 2; i++) free(first[i]);
}

/* The planner tells both ways, and takes the one that fits below the engine's limit. */
static void check_memory(test *t) {
    const char *const ways[] = {"never", "always", NULL, "auto"};
    beryl_train_report reports[4] = {{0}};
    for (int i = 0; i < 4 && !test_failed(t); i++) {
        run r;
        if (run_open(&r, t, "train-e2b-f32", MODEL_DUMMY, ways[i])) {
            reports[i] = beryl_train_report_of(r.train);
            if (i == 3) { /* again, with less than the device has */
                beryl_error error = {0};
                beryl_stats stats;
                beryl_engine_stats(r.engine, &stats);
                beryl_train_close(r.train);
                r.engine->options.memory = stats.device_bytes - 1;
                CHECK_INT(t, beryl_train_open(r.engine, &r.options, &r.train, &error), BERYL_OK);
                reports[i] = beryl_train_report_of(r.train);
                beryl_engine_stats(r.engine, &stats);
                CHECK(t, stats.device_bytes <= r.engine->options.memory);
            }
        }
        run_close(&r);
    }
    for (int i = 0; i < 4 && !test_failed(t); i++) {
        CHECK_INT(t, reports[i].recomputes, i % 2);
        CHECK_INT(t, reports[i].kept_bytes, reports[0].kept_bytes);
        CHECK_INT(t, reports[i].recomputed_bytes, reports[0].recomputed_bytes);
        CHECK_INT(t, reports[i].bytes, reports[i % 2].bytes);
    }
    printf("  intermediates of a pass: %llu bytes kept, %llu recomputed\n",
           (unsigned long long)reports[0].kept_bytes,
           (unsigned long long)reports[0].recomputed_bytes);
    CHECK(t, reports[0].recomputed_bytes < reports[0].kept_bytes);
    CHECK_INT(t, reports[0].bytes - reports[1].bytes,
              reports[0].kept_bytes - reports[0].recomputed_bytes);
}

void test_train(test *t) {
    static const char *const runs[] = {"train-e2b-f32", "train-e2b-q4km", "train-embd"};
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
        if ((!k || test_drawn(0, 1, 2)) &&
            test_case(t, "train/recomputed-as-peft-%s", model_devices[recomputing[k]].name))
            check_run(t, runs[0], recomputing[k], "always");
    if (test_case(t, "train/recomputed-same-bits")) check_same_bits(t);
    if (test_case(t, "train/recomputed-where-memory-is-too-small")) check_memory(t);
    if (test_case(t, "train/cancelled")) check_cancel(t);
}
