/* nvfp4_test.c - whole models of NVFP4 with a scale beside each matrix, made here from the
 * fixtures: they answer as the same numbers do that are written out as F32. */
#include "gguf_make.h"
#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TOKEN = 12, N_GREEDY = 5, VOCAB = 400, NAME_MOST = 80 };
static const int32_t prompt[N_TOKEN] = {2, 17, 130, 9, 255, 31, 77, 300, 12, 199, 42, 64};

typedef struct file {
    uint8_t *data;
    size_t size;
} file;
/* WRONG_SCALES: two to a matrix */
typedef enum contents { NVFP4, WRITTEN_OUT, WRONG_SCALES } contents;

static beryl_status file_read(void *user, uint64_t offset, void *to, size_t size) {
    memcpy(to, ((const file *)user)->data + offset, size);
    return BERYL_OK;
}

/* ---- such a file ----------------------------------------------------------------------------- */

enum { N_SCALE = 127 };

/* ascending: what code 2, an e2m1 of 1, stands for */
static void scales_of(float scales[N_SCALE]) {
    for (int i = 0; i < N_SCALE; i++) {
        float y[64];
        base_dequantise(TYPE_NVFP4, (const uint8_t[36]){(uint8_t)i, 0, 0, 0, 2}, y, 64);
        scales[i] = y[0];
    }
}

/* 64 numbers, to be multiplied with `scale`. */
static void quantise(const float *x, float scale, const float scales[N_SCALE], uint8_t *block) {
    static const float ends[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5};
    memset(block, 0, 36);
    for (int s = 0; s < 4; s++, x += 16) {
        float most = 0;
        for (int i = 0; i < 16; i++) most = fmaxf(most, fabsf(x[i]) / scale);
        for (int step = 64; step; step /= 2)
            if (block[s] + step < N_SCALE && scales[block[s] + step - 1] * 6 < most)
                block[s] = (uint8_t)(block[s] + step);
        const float unit = scales[block[s]] * scale;
        for (int i = 0; i < 16; i++) {
            uint8_t code = x[i] < 0 ? 8 : 0;
            for (int e = 0; e < 7; e++) code = (uint8_t)(code + (fabsf(x[i]) > ends[e] * unit));
            block[4 + 8 * s + i % 8] |= (uint8_t)(code << i / 8 * 4);
        }
    }
}

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* One matrix, or one for each expert. The last expert products have a scale of their own: their
 * matrices do without one. */
static void add_matrices(gguf_make *m, const format_gguf_tensor *from, const void *data,
                         const char *name, contents kind) {
    const uint64_t n = from->ne[0] * from->ne[1], n_matrix = from->ne[2];
    const bool scaled = !ends_with(name, "ffn_down_exps.weight");
    float *values = malloc(n * n_matrix * sizeof *values),
          *scales = calloc(2 * n_matrix, sizeof *scales);
    uint8_t *blocks = malloc(n * n_matrix / 64 * 36);
    float steps[N_SCALE];
    scales_of(steps);
    if (!values || !scales || !blocks) abort();
    base_dequantise(from->type, data, values, n * n_matrix);
    for (uint64_t i = 0; i < n_matrix; i++) {
        float most = 0, *own = values + i * n;
        for (uint64_t e = 0; e < n; e++) most = fmaxf(most, fabsf(own[e]));
        scales[i] = scaled ? most / (6 * 448) : 1;
        for (uint64_t e = 0; e < n; e += 64)
            quantise(own + e, scales[i], steps, blocks + (i * n + e) / 64 * 36);
        base_dequantise(TYPE_NVFP4, blocks + i * n / 64 * 36, own, n);
        for (uint64_t e = 0; e < n; e++) own[e] *= scales[i];
    }
    if (kind == WRITTEN_OUT)
        gguf_make_tensor(m, name, 0, from->n_dim, from->ne, values, n * n_matrix * sizeof *values);
    else gguf_make_tensor(m, name, 40, from->n_dim, from->ne, blocks, n * n_matrix / 64 * 36);
    if (kind != WRITTEN_OUT && scaled) {
        char beside[NAME_MOST];
        const uint64_t n_scale = kind == WRONG_SCALES ? 2 * n_matrix : n_matrix;
        snprintf(beside, sizeof beside, "%.*sscale", (int)(strlen(name) - strlen("weight")), name);
        gguf_make_tensor(m, beside, 0, 1, &n_scale, scales, n_scale * sizeof *scales);
    }
    free(values);
    free(scales);
    free(blocks);
}

/* The fixture with its matrices as NVFP4, those aside whose rows are no whole blocks. */
static file make(test *t, const char *name, contents kind) {
    base_heap heap;
    base_arena arena;
    gguf_make m = {0};
    file made = {0};
    char text[NAME_MOST];
    format_gguf *g = NULL;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    base_arena_init(&arena, &heap);
    beryl_status status = format_gguf_open_path(&heap, test_data(t, name), &g, &error);
    while (status == BERYL_OK && (status = format_gguf_step(g, &error)) == BERYL_PENDING) {}
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s: %s", name, error.message);
    for (size_t i = 0; status == BERYL_OK && i < format_gguf_n_pair(g); i++) {
        const format_gguf_pair *p = format_gguf_pair_at(g, i);
        snprintf(text, sizeof text, "%.*s", (int)p->key.size, p->key.data);
        if (p->is_array) gguf_make_array(&m, text, p->kind, p->count, p->data, p->size);
        else gguf_make_scalar(&m, text, p->kind, p->data, p->size);
    }
    for (size_t i = 0; status == BERYL_OK && i < format_gguf_n_tensor(g); i++) {
        const format_gguf_tensor *w = format_gguf_tensor_at(g, i);
        const void *data = gguf_tensor_take(g, w, &arena);
        snprintf(text, sizeof text, "%.*s", (int)w->name.size, w->name.data);
        const bool matrix =
            w->n_dim > 1 && w->ne[0] % 64 == 0 && !ends_with(text, "ffn_gate_inp.weight");
        if (matrix) add_matrices(&m, w, data, text, kind);
        else gguf_make_tensor(&m, text, w->gguf_type, w->n_dim, w->ne, data, (size_t)w->size);
    }
    made.data = gguf_make_take(&m, &made.size);
    base_arena_fini(&arena);
    format_gguf_close(g);
    return made;
}

/* ---- its answers ----------------------------------------------------------------------------- */

typedef struct answers {
    float logits[2][N_TOKEN * VOCAB];
    model_answer greedy;
} answers;

/* Logits, all tokens in one run and one by one; then what it says. */
static bool ask(test *t, file *f, int device, answers *a) {
    const beryl_source source = {.size = f->size, .user = f, .read = file_read};
    const beryl_engine_options options = {
        .precision = BERYL_PRECISION_EXACT, .source = &source, .context = 64};
    beryl_engine *engine = model_engine(t, NULL, &model_devices[device], &options);
    beryl_session *s = engine ? model_session(t, engine) : NULL;
    bool good = s != NULL;
    for (uint32_t i = 0; good && i < 2; i++)
        good = model_logits(t, s, prompt, N_TOKEN, 0, i, a->logits[i], VOCAB) &&
               beryl_session_rewind(s, 0, NULL) == BERYL_OK;
    good = good && model_generate(t, s, prompt, N_TOKEN, N_GREEDY, NULL, &a->greedy);
    beryl_session_close(s);
    beryl_engine_close(engine);
    return good;
}

static void check_model(test *t, const char *name, int device) {
    static answers want, got;
    file plain = make(t, name, WRITTEN_OUT), packed = make(t, name, NVFP4);
    if (ask(t, &plain, MODEL_REFERENCE, &want) && ask(t, &packed, device, &got)) {
        const double d = model_distance(want.logits[0], got.logits[0], 2 * N_TOKEN * VOCAB);
        if (!(d <= MODEL_TOLERANCE)) test_fail(t, __FILE__, __LINE__, "logits are off by %g", d);
        CHECK(t,
              !memcmp(want.greedy.tokens, got.greedy.tokens, N_GREEDY * sizeof *got.greedy.tokens));
    }
    free(plain.data);
    free(packed.data);
}

static void check_refused(test *t) {
    file f = make(t, "e2b-q4_0.gguf", WRONG_SCALES);
    const beryl_source source = {.size = f.size, .user = &f, .read = file_read};
    const beryl_engine_options options = {.size = sizeof options,
                                          .source = &source,
                                          .device = "dummy",
                                          .no_cache = true,
                                          .context = 64};
    beryl_engine *engine = NULL;
    beryl_task *task = NULL;
    beryl_error error = {0};
    CHECK_INT(t, beryl_engine_open(&options, &engine, &error), BERYL_OK);
    CHECK_INT(t, beryl_engine_load(engine, &task, &error), BERYL_OK);
    CHECK_INT(t, model_finish(task, &error, NULL), BERYL_BAD_FILE);
    CHECK(t, strstr(error.message, "token_embd.scale") != NULL);
    beryl_engine_close(engine);
    free(f.data);
}

void test_nvfp4(test *t);
void test_nvfp4(test *t) {
    static const struct {
        const char *name;
        int device;
    } models[] = {
        {"e2b-q4_0", MODEL_HOST}, {"moe-26b", MODEL_REFERENCE}, {"moe-26b", MODEL_WEBGPU}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char name[NAME_MOST];
        snprintf(name, sizeof name, "%s.gguf", models[i].name);
        if (test_case(t, "nvfp4/%s-%s", model_devices[models[i].device].name, models[i].name))
            check_model(t, name, models[i].device);
    }
    if (test_case(t, "nvfp4/scales-of-another-shape-are-refused")) check_refused(t);
}
