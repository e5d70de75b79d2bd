/* lora_test.c - adapters: three forms that say the same, models with adapters against what PEFT
 * computed for them, sessions with different ones at once, swaps, and files that lie. */
#define _POSIX_C_SOURCE 200809L
#include "base/file.h"
#include "engine/engine.h"
#include "format/lora_write.h"
#include "model.h"
#include "rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ADAPTERS_MAX = 12, VOCAB = 400 };

/* ---- files ----------------------------------------------------------------------------------- */

typedef struct file {
    base_heap heap;
    char *data, *config; /* of [size + 1], [config_size + 1] */
    size_t size, config_size;
} file;

static const char *const endings[] = {
    [LORA_FORM_PEFT] = "", [LORA_FORM_GGUF] = ".gguf", [LORA_FORM_RULLAMA] = ".safetensors"};

static const char *path_of(test *t, const char *name, format_lora_form form) {
    char path[100];
    snprintf(path, sizeof path, "lora/%s%s", name, endings[form]);
    return test_data(t, path);
}

static bool file_open_at(test *t, file *f, const char *at, format_lora_form form) {
    char path[600], from[500];
    beryl_error error = {0};
    *f = (file){0};
    base_heap_init(&f->heap, NULL);
    snprintf(from, sizeof from, "%s", at);
    snprintf(path, sizeof path, "%s%s", from,
             form == LORA_FORM_PEFT ? "/adapter_model.safetensors" : "");
    beryl_status status = base_file_read(&f->heap, path, 1 << 24, &f->data, &f->size, &error);
    snprintf(path, sizeof path, "%s/adapter_config.json", from);
    if (!status && form == LORA_FORM_PEFT)
        status = base_file_read(&f->heap, path, 1 << 24, &f->config, &f->config_size, &error);
    if (status) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    return !status;
}

static bool file_open(test *t, file *f, const char *name, format_lora_form form) {
    return file_open_at(t, f, path_of(t, name, form), form);
}

static void file_close(test *t, file *f) {
    base_heap_give(&f->heap, f->data, f->size + 1);
    base_heap_give(&f->heap, f->config, f->config_size + 1);
    CHECK_INT(t, f->heap.bytes, 0);
}

static beryl_status file_read(file *f, format_lora *l, beryl_error *error) {
    *error = (beryl_error){0};
    return format_lora_read(&f->heap, f->data, f->size, f->config, f->config_size, l, error);
}

/* ---- three forms that say the same ----------------------------------------------------------- */

static float a_at(const format_lora_part *p, uint32_t e, uint32_t r, uint32_t i) {
    return format_lora_value(&p->a, e * p->a.stride[0] + r * p->a.stride[1] + i * p->a.stride[2]);
}

static float b_at(const format_lora_part *p, uint32_t e, uint32_t r, uint32_t i) {
    return format_lora_value(&p->b, e * p->b.stride[0] + r * p->b.stride[1] + i * p->b.stride[2]);
}

static const format_lora_part *part_like(const format_lora *l, const format_lora_part *like) {
    for (size_t i = 0; i < l->n_part; i++)
        if (l->parts[i].target == like->target && l->parts[i].layer == like->layer)
            return &l->parts[i];
    return NULL;
}

/* A factor may stand in B: their products are compared. */
static void check_same(test *t, const format_lora *x, const format_lora *y) {
    CHECK_INT(t, x->n_part, y->n_part);
    for (size_t i = 0; i < x->n_part && !test_failed(t); i++) {
        const format_lora_part *p = &x->parts[i], *q = part_like(y, p);
        if (!q || p->n_expert != q->n_expert || p->rank != q->rank || p->in != q->in ||
            p->out != q->out) {
            test_fail(t, __FILE__, __LINE__, "part %zu differs", i);
            return;
        }
        for (uint32_t e = 0; e < p->n_expert; e++)
            for (uint32_t r = 0; r < p->rank; r++) {
                double far = 0, most = 0;
                for (uint32_t k = 0; k < p->in; k++)
                    far = fmax(far, fabs((double)a_at(p, e, r, k) - (double)a_at(q, e, r, k)));
                for (uint32_t k = 0; k < p->out; k++) {
                    const double b = (double)b_at(p, e, r, k) * (double)p->factor;
                    most = fmax(most, fabs(b));
                    far = fmax(far, fabs(b - (double)b_at(q, e, r, k) * (double)q->factor));
                }
                CHECK(t, most > 0);
                CHECK_NEAR(t, far, 0, 1e-6 * most); /* alpha is printed with eight digits */
            }
    }
}

static void test_forms(test *t) {
    static const struct {
        const char *name;
        bool rullama, gguf;
    } same[] = {{"e2b-f32.part", true, true},     {"e2b-f32.embd", true, true},
                {"e2b-f32.head", true, false},    {"e2b-f32.rs", false, true},
                {"e2b-f32.pattern", false, true}, {"moe-26b.experts", false, true}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        for (int form = LORA_FORM_GGUF; form <= LORA_FORM_RULLAMA; form++) {
            if (!(form == LORA_FORM_GGUF ? same[i].gguf : same[i].rullama) ||
                !test_case(t, "lora/peft-and-%s-say-the-same-%s",
                           form == LORA_FORM_GGUF ? "gguf" : "rullama", same[i].name))
                continue;
            file f, g;
            format_lora x = {0}, y = {0};
            beryl_error error = {0};
            if (file_open(t, &f, same[i].name, LORA_FORM_PEFT) &&
                file_open(t, &g, same[i].name, (format_lora_form)form)) {
                beryl_status status = file_read(&f, &x, &error);
                if (!status) status = file_read(&g, &y, &error);
                if (status) test_fail(t, __FILE__, __LINE__, "%s", error.message);
                else check_same(t, &x, &y);
                format_lora_fini(&x);
                format_lora_fini(&y);
                file_close(t, &f);
                file_close(t, &g);
            }
        }
}

/* ---- writing --------------------------------------------------------------------------------- */

static const char *written_path(test *t, format_lora_form form) {
    static char path[500]; /* borrowed until the next call */
    snprintf(path, sizeof path, "%s/written%s", test_scratch(t), endings[form]);
    return path;
}

/* What was written says what was read. */
static void check_written(test *t, const char *name, format_lora_form from, format_lora_form to) {
    file f, g;
    format_lora x = {0}, y = {0};
    beryl_error error = {0};
    if (!file_open(t, &f, name, from)) return;
    beryl_status status = file_read(&f, &x, &error);
    const format_lora_write_desc desc = {.lora = &x, .form = to, .type = TYPE_COUNT, .name = name};
    if (!status) status = format_lora_write(&f.heap, &desc, written_path(t, to), &error);
    if (status) {
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    } else if (file_open_at(t, &g, written_path(t, to), to)) {
        if (file_read(&g, &y, &error)) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        else check_same(t, &x, &y);
        CHECK_INT(t, y.form, to);
        format_lora_fini(&y);
        file_close(t, &g);
    }
    format_lora_fini(&x);
    file_close(t, &f);
}

static void test_written(test *t) {
    static const struct {
        const char *name;
        format_lora_form form, to[3];
        int n;
    } all[] = {
        {"e2b-f32.part", LORA_FORM_PEFT, {LORA_FORM_PEFT, LORA_FORM_GGUF, LORA_FORM_RULLAMA}, 3},
        {"e2b-f32.rs", LORA_FORM_PEFT, {LORA_FORM_PEFT, LORA_FORM_GGUF, LORA_FORM_RULLAMA}, 3},
        {"e2b-f32.rs", LORA_FORM_GGUF, {LORA_FORM_RULLAMA, LORA_FORM_PEFT}, 2},
        {"e2b-f32.embd", LORA_FORM_PEFT, {LORA_FORM_PEFT, LORA_FORM_GGUF, LORA_FORM_RULLAMA}, 3},
        {"e2b-f32.embd", LORA_FORM_GGUF, {LORA_FORM_GGUF, LORA_FORM_PEFT}, 2},
        {"e2b-f32.embd", LORA_FORM_RULLAMA, {LORA_FORM_GGUF, LORA_FORM_PEFT}, 2},
        {"e2b-f32.head", LORA_FORM_PEFT, {LORA_FORM_PEFT, LORA_FORM_RULLAMA}, 2},
        {"e2b-f32.head", LORA_FORM_RULLAMA, {LORA_FORM_PEFT}, 1},
        {"e2b-f32.pattern", LORA_FORM_PEFT, {LORA_FORM_PEFT, LORA_FORM_GGUF}, 2},
        {"moe-26b.experts", LORA_FORM_PEFT, {LORA_FORM_PEFT, LORA_FORM_GGUF}, 2},
        {"moe-26b.experts", LORA_FORM_GGUF, {LORA_FORM_PEFT, LORA_FORM_GGUF}, 2},
        {"moe-26b.all", LORA_FORM_GGUF, {LORA_FORM_RULLAMA}, 1},
        {"dense-31b.all", LORA_FORM_PEFT, {LORA_FORM_GGUF}, 1},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int k = 0; k < all[i].n; k++)
            if (test_case(t, "lora/written-%s-from-%s-to-%s", all[i].name,
                          endings[all[i].form] + (all[i].form != LORA_FORM_PEFT),
                          endings[all[i].to[k]] + (all[i].to[k] != LORA_FORM_PEFT)))
                check_written(t, all[i].name, all[i].form, all[i].to[k]);
}

/* Each value is the nearest of the type. */
static void check_types(test *t) {
    static const base_type types[] = {TYPE_F16, TYPE_BF16, TYPE_F32};
    file f, g;
    format_lora x, y;
    beryl_error error = {0};
    if (!file_open(t, &f, "e2b-f32.part", LORA_FORM_PEFT)) return;
    CHECK_INT(t, file_read(&f, &x, &error), BERYL_OK);
    for (int i = 0; i < 3 && !test_failed(t); i++) {
        const format_lora_write_desc desc = {
            .lora = &x, .form = LORA_FORM_PEFT, .type = types[i], .base = "a \"base\""};
        const char *path = written_path(t, LORA_FORM_PEFT);
        CHECK_INT(t, format_lora_write(&f.heap, &desc, path, &error), BERYL_OK);
        if (!file_open_at(t, &g, path, LORA_FORM_PEFT)) break;
        CHECK_INT(t, file_read(&g, &y, &error), BERYL_OK);
        for (size_t p = 0; p < y.n_part; p++) {
            const format_lora_part *a = &x.parts[p], *b = &y.parts[p];
            CHECK_INT(t, b->a.type, types[i]);
            CHECK_INT(t, b->b.type, types[i]);
            for (uint32_t r = 0; r < a->rank; r++)
                for (uint32_t k = 0; k < a->in; k++) {
                    const float v = a_at(a, 0, r, k), w = a_at(b, 0, r, k);
                    const uint32_t bf = (uint32_t)base_f32_to_bf16(v) << 16;
                    float want = i ? v : base_f16_to_f32(base_f32_to_f16(v));
                    if (i == 1) memcpy(&want, &bf, 4);
                    CHECK_NEAR(t, w, want, 0);
                }
        }
        format_lora_fini(&y);
        file_close(t, &g);
    }
    format_lora_fini(&x);
    file_close(t, &f);
}

/* What a form cannot say, and a place that cannot be written: told, and no file is there. */
static void check_unwritten(test *t) {
    static const struct {
        const char *name, *says, *path;
        format_lora_form from, to;
    } cases[] = {
        {"e2b-f32.head", "output of layer 0: the form gguf has no name for it", NULL,
         LORA_FORM_PEFT, LORA_FORM_GGUF},
        {"e2b-f32.pattern", "attn_q of layer 0: the form rullama has one rank", NULL,
         LORA_FORM_PEFT, LORA_FORM_RULLAMA},
        {"moe-26b.experts", "exps of layer 0: the form rullama has no name", NULL, LORA_FORM_GGUF,
         LORA_FORM_RULLAMA},
        {"e2b-f32.part", "full", "/dev/full", LORA_FORM_PEFT, LORA_FORM_GGUF},
        {"e2b-f32.part", "nowhere", "/nowhere/x", LORA_FORM_PEFT, LORA_FORM_GGUF},
        {"e2b-f32.part", "/dev/null", "/dev/null/x", LORA_FORM_PEFT, LORA_FORM_PEFT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        file f;
        format_lora x;
        beryl_error error = {0};
        if (!file_open(t, &f, cases[i].name, cases[i].from)) return;
        CHECK_INT(t, file_read(&f, &x, &error), BERYL_OK);
        const format_lora_write_desc desc = {.lora = &x, .form = cases[i].to, .type = TYPE_COUNT};
        const char *path = cases[i].path ? cases[i].path : written_path(t, cases[i].to);
        if (!cases[i].path) remove(path);
        const beryl_status status = format_lora_write(&f.heap, &desc, path, &error);
        if (!status || !strstr(error.message, cases[i].says))
            test_fail(t, __FILE__, __LINE__, "%s: %s", cases[i].name, error.message);
        CHECK(t, cases[i].path || !base_file_exists(path));
        format_lora_fini(&x);
        file_close(t, &f);
    }
}

/* By hand, as training makes them: factors that differ, in sign too, and values that do not fit. */
static void check_made(test *t) {
    float a[4] = {1, 2, 3, 4}, b[6] = {1, -1, 2, -2, 3, -3};
    const format_lora_half one = {
        .type = TYPE_F32, .data = (const uint8_t *)a, .stride = {0, 2, 1}};
    const format_lora_half two = {
        .type = TYPE_F32, .data = (const uint8_t *)b, .stride = {0, 1, 2}};
    format_lora_part parts[3];
    for (uint32_t i = 0; i < 3; i++)
        parts[i] = (format_lora_part){LORA_Q, i, 1, 2, 2, 3, one, two, i == 2 ? -0.5f : 2};
    const format_lora x = {.parts = parts, .n_part = 3};
    for (int form = 0; form < 3; form++) {
        file g;
        format_lora y;
        beryl_error error = {0};
        base_heap heap;
        base_heap_init(&heap, NULL);
        const char *path = written_path(t, (format_lora_form)form);
        format_lora_write_desc desc = {
            .lora = &x, .form = (format_lora_form)form, .type = TYPE_COUNT};
        CHECK_INT(t, format_lora_write(&heap, &desc, path, &error), BERYL_OK);
        if (!file_open_at(t, &g, path, (format_lora_form)form)) return;
        CHECK_INT(t, file_read(&g, &y, &error), BERYL_OK);
        check_same(t, &x, &y);
        format_lora_fini(&y);
        file_close(t, &g);
        desc.type = TYPE_F16;
        a[3] = 70000;
        CHECK_INT(t, format_lora_write(&heap, &desc, path, &error), BERYL_UNSUPPORTED);
        CHECK(t, strstr(error.message, "too large for F16"));
        a[3] = 4;
        desc.lora = &(format_lora){0};
        CHECK_INT(t, format_lora_write(&heap, &desc, path, &error), BERYL_BAD_INPUT);
        CHECK_INT(t, heap.bytes, 0);
    }
}

static void check_write_memory(test *t, format_lora_form form) {
    file f;
    format_lora x;
    beryl_error error = {0};
    if (!file_open(t, &f, "e2b-f32.part", LORA_FORM_PEFT)) return;
    CHECK_INT(t, file_read(&f, &x, &error), BERYL_OK);
    const format_lora_write_desc desc = {.lora = &x, .form = form, .type = TYPE_COUNT};
    beryl_status status = BERYL_NO_MEMORY;
    for (uint64_t n = 0; status == BERYL_NO_MEMORY && !test_failed(t); n++) {
        rig_failing failing = {n};
        base_heap heap;
        base_heap_init(&heap, &(beryl_allocator){.user = &failing, .resize = rig_failing_resize});
        status = format_lora_write(&heap, &desc, written_path(t, form), &error);
        if (status && status != BERYL_NO_MEMORY)
            test_fail(t, __FILE__, __LINE__, "%s", error.message);
        CHECK_INT(t, heap.bytes, 0);
    }
    format_lora_fini(&x);
    file_close(t, &f);
}

/* ---- files that lie -------------------------------------------------------------------------- */

/* Every refusal has its reason; what is taken has all its parts. */
static void try_file(test *t, file *f, const char *what, size_t at) {
    format_lora l;
    beryl_error error;
    if (file_read(f, &l, &error)) {
        if (!error.message[0]) test_fail(t, __FILE__, __LINE__, "%s at %zu: no reason", what, at);
        return;
    }
    for (size_t i = 0; i < l.n_part; i++)
        if (!isfinite(b_at(&l.parts[i], l.parts[i].n_expert - 1, l.parts[i].rank - 1,
                           l.parts[i].out - 1)))
            test_fail(t, __FILE__, __LINE__, "%s at %zu: not a number", what, at);
    format_lora_fini(&l);
}

/* Cut short anywhere, and bytes of the head changed, from memory of exactly that size. */
static void check_damage(test *t, const char *name, format_lora_form form) {
    file f;
    if (!file_open(t, &f, name, form)) return;
    char *const whole = f.data, *const config = f.config;
    const size_t size = f.size, config_size = f.config_size;
    for (size_t at = 0; at < size; at += at < 600 ? 7 : 1009) {
        f.data = malloc(at ? at : 1);
        memcpy(f.data, whole, f.size = at);
        format_lora l;
        beryl_error error;
        CHECK(t, file_read(&f, &l, &error) != BERYL_OK && error.message[0]);
        free(f.data);
    }
    f.data = whole;
    f.size = size;
    for (size_t at = 0; at < size && at < 4000; at += at < 64 ? 1 : 13) {
        static const char others[] = {0, '9', '-', '"', (char)0xff};
        const char was = whole[at];
        for (size_t k = 0; k < sizeof others; k++) {
            whole[at] = others[k];
            try_file(t, &f, "changed", at);
        }
        whole[at] = was;
    }
    for (size_t at = 0; config && at < config_size; at += 3) {
        f.config = malloc(at ? at : 1);
        memcpy(f.config, config, f.config_size = at);
        try_file(t, &f, "config cut", at);
        free(f.config);
    }
    f.config = config;
    f.config_size = config_size;
    file_close(t, &f);
}

static char *replaced(const char *text, const char *what, const char *with) {
    const char *at = strstr(text, what);
    char *out = malloc(strlen(text) + strlen(with) + 1);
    if (!at || !out) abort();
    sprintf(out, "%.*s%s%s", (int)(at - text), text, with, at + strlen(what));
    return out;
}

static void check_configs(test *t) {
    static const struct {
        const char *what, *with, *message;
        beryl_status status;
    } cases[] = {
        {"\"use_dora\": false", "\"use_dora\": true", "use_dora", BERYL_UNSUPPORTED},
        {"\"modules_to_save\": null", "\"modules_to_save\": [\"lm_head\"]", "modules_to_save",
         BERYL_UNSUPPORTED},
        {"\"bias\": \"none\"", "\"bias\": \"all\"", "biases", BERYL_UNSUPPORTED},
        {"\"LORA\"", "\"LOHA\"", "peft_type", BERYL_UNSUPPORTED},
        {"\"r\": 8", "\"r\": 9", "of rank 8, not of 9", BERYL_BAD_FILE},
        {"\"r\": 8", "\"r\": 1e9", "no r", BERYL_BAD_FILE},
        {"\"lora_alpha\": 16", "\"lora_alpha\": 1e300", "alpha", BERYL_BAD_FILE},
        {"\"rank_pattern\": {", "\"rank_pattern\": {\"(q|k)_proj\": 4, ", "a pattern",
         BERYL_UNSUPPORTED},
        {"\"q_proj\": 4", "\"q_proj\": 8", "rank 4", BERYL_BAD_FILE},
    };
    file f;
    if (!file_open(t, &f, "e2b-f32.pattern", LORA_FORM_PEFT)) return;
    char *const config = f.config;
    const size_t size = f.config_size;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        format_lora l;
        beryl_error error;
        f.config = replaced(config, cases[i].what, cases[i].with);
        f.config_size = strlen(f.config);
        CHECK_INT(t, file_read(&f, &l, &error), cases[i].status);
        if (!strstr(error.message, cases[i].message))
            test_fail(t, __FILE__, __LINE__, "%s: %s", cases[i].with, error.message);
        free(f.config);
    }
    f.config = config;
    f.config_size = size;
    file_close(t, &f);
}

/* One tensor's header as text, before 64 bytes of zeros. */
static void check_headers(test *t) {
    static const struct {
        const char *json, *message;
    } cases[] = {
        {"[]", "no JSON object"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4,4]}}", "data_offsets"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4,4],\"data_offsets\":[0,68]}}", "inside"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4,4],\"data_offsets\":[64,0]}}", "inside"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4,4],\"data_offsets\":[-4,60]}}", "inside"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4,4],\"data_offsets\":[0,1e300]}}", "inside"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4,3],\"data_offsets\":[0,64]}}", "its shape"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4294967295,4294967295,4294967295,2],"
         "\"data_offsets\":[0,64]}}",
         "dimension"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", "dimension"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", "dimensions"},
        {"{\"x\":{\"dtype\":\"I64\",\"shape\":[8],\"data_offsets\":[0,64]}}", "I64"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[0,32]},"
         "\"y\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[28,60]}}",
         "lies over"},
        {"{\"x\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[0,32]},"
         "\"x\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[32,64]}}",
         "twice"},
        {"{\"__metadata__\":{\"format\":\"rullama-lora-v0\",\"rank\":\"8\",\"alpha\":\"16\"}}",
         "without tensors"},
        {"{\"__metadata__\":{\"format\":\"rullama-lora-v0\",\"rank\":\"x\",\"alpha\":\"16\"}}",
         "without rank"},
        {"{\"__metadata__\":{\"format\":\"rullama-lora-v0\",\"rank\":\"2\",\"alpha\":\"1\"},"
         "\"lora.blk.0.attn_q.A\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[0,32]}}",
         "other half"},
        {"{\"__metadata__\":{\"format\":\"rullama-lora-v0\",\"rank\":\"2\",\"alpha\":\"1\"},"
         "\"lora.blk.0.attn_q.A\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[0,32]},"
         "\"lora.blk.0.attn_q.B\":{\"dtype\":\"F32\",\"shape\":[4,1],\"data_offsets\":[32,48]}}",
         "two halves"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        base_heap heap;
        format_lora l;
        beryl_error error = {0};
        const size_t n = strlen(cases[i].json), size = 8 + n + 64;
        char *data = calloc(1, size);
        if (!data) abort();
        data[0] = (char)(n & 255);
        data[1] = (char)(n >> 8);
        memcpy(data + 8, cases[i].json, n);
        base_heap_init(&heap, NULL);
        CHECK(t, format_lora_read(&heap, data, size, NULL, 0, &l, &error) != BERYL_OK);
        if (!strstr(error.message, cases[i].message))
            test_fail(t, __FILE__, __LINE__, "%s: %s", cases[i].json, error.message);
        CHECK_INT(t, heap.bytes, 0);
        free(data);
    }
}

static void check_values(test *t) {
    file f;
    format_lora l;
    beryl_error error;
    if (!file_open(t, &f, "e2b-f32.part", LORA_FORM_PEFT)) return;
    memcpy(f.data + f.size - 4, &(float){INFINITY}, 4);
    CHECK_INT(t, file_read(&f, &l, &error), BERYL_BAD_FILE);
    CHECK(t, strstr(error.message, "no number"));
    file_close(t, &f);
}

static void check_memory(test *t, const char *name, format_lora_form form) {
    file f;
    if (!file_open(t, &f, name, form)) return;
    beryl_status status = BERYL_NO_MEMORY;
    for (uint64_t n = 0; status == BERYL_NO_MEMORY && !test_failed(t); n++) {
        rig_failing failing = {n};
        base_heap heap;
        format_lora l;
        beryl_error error = {0};
        base_heap_init(&heap, &(beryl_allocator){.user = &failing, .resize = rig_failing_resize});
        status = format_lora_read(&heap, f.data, f.size, f.config, f.config_size, &l, &error);
        if (status && status != BERYL_NO_MEMORY)
            test_fail(t, __FILE__, __LINE__, "%s", error.message);
        if (!status) format_lora_fini(&l);
        CHECK_INT(t, heap.bytes, 0);
    }
    file_close(t, &f);
}

/* ---- models ---------------------------------------------------------------------------------- */

typedef struct place { /* an engine, what the reference has of it, and adapters by name */
    test *t;
    model_ref ref;
    beryl_engine *engine;
    char names[ADAPTERS_MAX][40];
    beryl_adapter *adapters[ADAPTERS_MAX];
    size_t n;
} place;

static bool place_open(place *p, test *t, const char *base, int where, uint32_t sessions) {
    char name[60];
    beryl_engine_options options = {
        .precision = BERYL_PRECISION_EXACT, .context = 128, .piece = 32, .sessions = sessions};
    *p = (place){.t = t};
    snprintf(name, sizeof name, "lora/%s.ref.gguf", base);
    if (!model_ref_open(t, &p->ref, name)) return false;
    snprintf(name, sizeof name, "%s.gguf", base);
    p->engine = model_engine(t, name, &model_devices[where], &options);
    return p->engine;
}

static void place_close(place *p) {
    for (size_t i = 0; i < p->n; i++) beryl_adapter_close(p->adapters[i]);
    beryl_engine_close(p->engine);
    model_ref_close(&p->ref);
}

static bool there(test *t, const char *name, format_lora_form form) {
    return base_file_exists(path_of(t, name, form));
}

/* In the form that is asked for, or else in another. NULL: not in this folder. */
static beryl_adapter *adapter_of(place *p, const char *name, int form) {
    for (size_t i = 0; i < p->n; i++)
        if (!strcmp(p->names[i], name)) return p->adapters[i];
    for (int i = 0; i < 3; i++, form = (form + 1) % 3) {
        if (!there(p->t, name, (format_lora_form)form)) continue;
        const beryl_adapter_options o = {.size = sizeof o,
                                         .path = path_of(p->t, name, (format_lora_form)form)};
        beryl_error error = {0};
        if (beryl_adapter_open(p->engine, &o, &p->adapters[p->n], &error)) {
            test_fail(p->t, __FILE__, __LINE__, "%s", error.message);
            return NULL;
        }
        snprintf(p->names[p->n], sizeof *p->names, "%s", name);
        return p->adapters[p->n++];
    }
    return NULL;
}

/* The adapters of a case for the session. false: one is not in this folder. */
static bool adapt(place *p, beryl_session *s, uint32_t index, int form) {
    char key[40];
    base_view *names;
    float *scales;
    size_t n, n_scale;
    beryl_adapter *list[4];
    snprintf(key, sizeof key, "case.%u.adapters", index);
    if (format_gguf_strings(p->ref.gguf, key, &p->ref.arena, &names, &n, NULL)) return false;
    snprintf(key, sizeof key, "case.%u.scales", index);
    if (format_gguf_f32s(p->ref.gguf, key, &p->ref.arena, &scales, &n_scale, NULL) ||
        n != n_scale || n > 4)
        return false;
    for (size_t i = 0; i < n; i++) {
        char name[40];
        snprintf(name, sizeof name, "%.*s", (int)names[i].size, names[i].data);
        list[i] = adapter_of(p, name, form);
        if (!list[i]) return false;
    }
    CHECK_INT(p->t, beryl_session_adapters(s, list, scales, n, NULL), BERYL_OK);
    return true;
}

static void check_greedy(place *p, beryl_session *s, const model_case *c) {
    model_answer a;
    if (model_generate(p->t, s, c->tokens, c->n_token, (uint32_t)c->n_greedy, NULL, &a))
        model_check_greedy(p->t, c, a.tokens, a.n_token);
}

/* Cases of a model in one form, a bit each: logits and, unless brief, answers. */
static void check_model(test *t, const char *base, int where, int form, uint64_t cases,
                        bool brief) {
    place p;
    uint32_t n = 0;
    if (place_open(&p, t, base, where, 1)) {
        beryl_session *s = model_session(t, p.engine);
        model_case c;
        /* all are opened before the first plan, so that there is one of each */
        for (uint32_t i = 0; i < p.ref.n_case; i++)
            if (cases >> i & 1) adapt(&p, s, i, form);
        for (uint32_t i = 0; i < p.ref.n_case && !test_failed(t); i++) {
            if (!(cases >> i & 1) || !adapt(&p, s, i, form) || !model_case_get(t, &p.ref, i, &c))
                continue;
            model_check_logits(t, s, &c, 0, MODEL_TOLERANCE);
            if (!brief) check_greedy(&p, s, &c);
            if (test_failed(t)) test_fail(t, __FILE__, __LINE__, "in case %u", i);
            n++;
        }
        CHECK(t, n > 0);
        beryl_session_close(s);
    }
    place_close(&p);
}

/* Three sessions, of which one has no adapter, decode together. */
static void check_together(test *t, int where) {
    static const uint32_t which[] = {1, 0, 5};
    place p;
    model_ref plain;
    beryl_session *s[3] = {0};
    beryl_task *tasks[3] = {0};
    model_case c[3];
    model_answer *answers = calloc(3, sizeof *answers);
    bool opened = answers && model_ref_open(t, &plain, "e2b-f32.ref.gguf");
    if (opened && place_open(&p, t, "e2b-f32", where, 3)) {
        for (int i = 0; i < 3; i++) {
            s[i] = model_session(t, p.engine);
            if (i == 1) model_case_get(t, &plain, 0, &c[i]);
            else if (!adapt(&p, s[i], which[i], LORA_FORM_GGUF) ||
                     !model_case_get(t, &p.ref, which[i], &c[i]))
                test_fail(t, __FILE__, __LINE__, "case %u", which[i]);
        }
        for (int i = 0; i < 3 && !test_failed(t); i++) {
            const beryl_generate_options o = model_greedy((uint32_t)c[i].n_greedy);
            CHECK_INT(t,
                      beryl_session_generate(s[i], c[i].tokens, c[i].n_token, &o, &tasks[i], NULL),
                      BERYL_OK);
            CHECK_INT(t, beryl_session_adapters(s[i], NULL, NULL, 0, NULL), BERYL_MISUSE);
        }
        for (int left = 3; left && !test_failed(t);) {
            left = 0;
            for (int i = 0; i < 3; i++) {
                beryl_event event;
                const beryl_status status = beryl_wait(tasks[i], &event);
                if (status == BERYL_EVENT) model_answer_add(&answers[i], &event), left++;
                else CHECK_INT(t, status, BERYL_OK);
            }
        }
        for (int i = 0; i < 3 && !test_failed(t); i++)
            model_check_greedy(t, &c[i], answers[i].tokens, answers[i].n_token);
    }
    for (int i = 0; i < 3; i++) beryl_task_close(tasks[i]);
    for (int i = 0; i < 3; i++) beryl_session_close(s[i]);
    place_close(&p);
    if (opened) model_ref_close(&plain);
    free(answers);
}

/* Adapters come and go while another session answers; one that fits where another was makes no
 * new plan. */
static void check_swap(test *t, int where) {
    place p;
    if (place_open(&p, t, "e2b-f32", where, 2)) {
        beryl_session *s = model_session(t, p.engine), *other = model_session(t, p.engine);
        model_case c, d;
        model_answer a = {0};
        beryl_task *task = NULL;
        if (!adapt(&p, s, 1, LORA_FORM_PEFT) || !model_case_get(t, &p.ref, 1, &c) ||
            !model_case_get(t, &p.ref, 4, &d))
            test_fail(t, __FILE__, __LINE__, "no case");
        const beryl_generate_options o = model_greedy((uint32_t)c.n_greedy);
        CHECK_INT(t, beryl_session_generate(s, c.tokens, c.n_token, &o, &task, NULL), BERYL_OK);
        for (int n = 0; n < 3 && !test_failed(t); n++) {
            beryl_event event;
            if (beryl_wait(task, &event) == BERYL_EVENT) model_answer_add(&a, &event);
        }
        CHECK(t, adapt(&p, other, 4, LORA_FORM_GGUF)); /* the pool grows */
        model_check_logits(t, other, &d, 0, MODEL_TOLERANCE);
        for (beryl_event event; !test_failed(t) && beryl_wait(task, &event) == BERYL_EVENT;)
            model_answer_add(&a, &event);
        model_check_greedy(t, &c, a.tokens, a.n_token);
        beryl_task_close(task);
        /* the second goes, and comes again where it was */
        CHECK_INT(t, beryl_session_adapters(other, NULL, NULL, 0, NULL), BERYL_OK);
        beryl_adapter_close(p.adapters[--p.n]);
        CHECK(t, adapt(&p, other, 4, LORA_FORM_RULLAMA));
        CHECK(t, p.engine->plans[PLAN_LOGITS + PLAN_ADAPTED].exec); /* its plans stay */
        model_check_logits(t, other, &d, 0, MODEL_TOLERANCE);
        check_greedy(&p, s, &c);
        beryl_session_close(s);
        beryl_session_close(other);
    }
    place_close(&p);
}

/* What was computed under one adapter is not used under another, nor restored. */
static void check_caches(test *t, int where) {
    place p;
    if (place_open(&p, t, "e2b-f32", where, 1)) {
        beryl_session *s = model_session(t, p.engine);
        model_case c;
        model_answer a;
        char path[600];
        beryl_task *task = NULL;
        beryl_error error = {0};
        snprintf(path, sizeof path, "%s/adapted", test_scratch(t));
        if (!adapt(&p, s, 0, LORA_FORM_PEFT) || !model_case_get(t, &p.ref, 0, &c)) abort();
        check_greedy(&p, s, &c);
        CHECK(t, adapt(&p, s, 0, LORA_FORM_PEFT));
        if (model_generate(t, s, c.tokens, c.n_token, 1, NULL, &a))
            CHECK(t, a.result.n_reused > 0); /* the same again */
        CHECK_INT(t, beryl_session_save(s, path, &task, &error), BERYL_OK);
        CHECK_INT(t, model_finish(task, &error, NULL), BERYL_OK);
        CHECK(t, adapt(&p, s, 2, LORA_FORM_PEFT)); /* at half the scale */
        if (model_generate(t, s, c.tokens, c.n_token, 1, NULL, &a))
            CHECK_INT(t, a.result.n_reused, 0);
        CHECK_INT(t, beryl_session_restore(s, path, &task, &error), BERYL_OK);
        CHECK_INT(t, model_finish(task, &error, NULL), BERYL_BAD_INPUT);
        CHECK(t, strstr(error.message, "adapters"));
        CHECK(t, adapt(&p, s, 0, LORA_FORM_PEFT));
        CHECK_INT(t, beryl_session_restore(s, path, &task, &error), BERYL_OK);
        CHECK_INT(t, model_finish(task, &error, NULL), BERYL_OK);
        if (model_generate(t, s, c.tokens, c.n_token, (uint32_t)c.n_greedy, NULL, &a)) {
            CHECK(t, a.result.n_reused > 0);
            model_check_greedy(t, &c, a.tokens, a.n_token);
        }
        beryl_session_close(s);
    }
    place_close(&p);
}

static void check_refusals(test *t) {
    static const struct {
        const char *name, *message;
        format_lora_form form;
        beryl_status status;
    } cases[] = {
        {"dense-31b.all", "is for a matrix [1, 128, 192], the model's ffn_down is [1, 64, 96]",
         LORA_FORM_PEFT, BERYL_UNSUPPORTED},
        {"moe-26b.experts", "no ffn_", LORA_FORM_GGUF, BERYL_UNSUPPORTED},
        {"dense-31b.part", "[1, ", LORA_FORM_GGUF, BERYL_UNSUPPORTED},
        {"e2b-f32.ref", "no adapter", LORA_FORM_GGUF, BERYL_BAD_FILE},
        {"nowhere", "nowhere", LORA_FORM_GGUF, BERYL_NOT_FOUND},
    };
    place p;
    if (place_open(&p, t, "e2b-f32", MODEL_REFERENCE, 1)) {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            const beryl_adapter_options o = {.size = sizeof o,
                                             .path = path_of(t, cases[i].name, cases[i].form)};
            beryl_adapter *a = NULL;
            beryl_error error = {0};
            const beryl_status status = beryl_adapter_open(p.engine, &o, &a, &error);
            CHECK_INT(t, status, cases[i].status);
            if (!strstr(error.message, cases[i].message) || a)
                test_fail(t, __FILE__, __LINE__, "%s: %s", cases[i].name, error.message);
        }
    }
    place_close(&p);
}

/* Where a GPU may be fast, its pool has F32 of a file as halves, each as it is rounded to F16. */
static void check_halves(test *t, const char *name, format_lora_form form) {
    beryl_engine *engines[2] = {NULL};
    beryl_adapter *adapters[2] = {NULL};
    for (int i = 0; i < 2 && !test_failed(t); i++) {
        const beryl_engine_options options = {
            .precision = i ? BERYL_PRECISION_FAST : BERYL_PRECISION_EXACT, .context = 128};
        engines[i] = model_engine(t, "e2b-f32.gguf", &model_devices[MODEL_DUMMY], &options);
        const beryl_adapter_options o = {.size = sizeof o, .path = path_of(t, name, form)};
        beryl_error error = {0};
        if (engines[i] && beryl_adapter_open(engines[i], &o, &adapters[i], &error))
            test_fail(t, __FILE__, __LINE__, "%s", error.message);
    }
    if (!test_failed(t)) {
        const engine_lora *l = &engines[0]->lora;
        const beryl_source wide = engine_lora_source(engines[0]),
                           narrow = engine_lora_source(engines[1]);
        CHECK(t, l->type == TYPE_F32 && engines[1]->lora.type == TYPE_F16);
        for (size_t i = 0; i < l->places.count && !test_failed(t); i++) {
            const store_tensor *x = &engines[0]->store.tensors.data[l->mark.tensor + 1 + i];
            const size_t n = (size_t)x->file_bytes / sizeof(float);
            float *values = malloc(n * sizeof *values);
            uint16_t *halves = malloc(n * sizeof *halves);
            if (!values || !halves) abort();
            CHECK_INT(t, wide.read(wide.user, x->file_offset, values, n * 4), BERYL_OK);
            CHECK_INT(t, narrow.read(narrow.user, x->file_offset / 2, halves, n * 2), BERYL_OK);
            for (size_t k = 0; k < n && !test_failed(t); k++)
                CHECK_INT(t, halves[k], base_f32_to_f16(values[k]));
            free(values);
            free(halves);
        }
    }
    for (int i = 0; i < 2; i++) {
        beryl_adapter_close(adapters[i]);
        beryl_engine_close(engines[i]);
    }
}

/* Allocations that fail while an adapter is opened and given leave the engine as it was. */
static void check_engine_memory(test *t) {
    rig_failing failing = {UINT64_MAX};
    const beryl_allocator allocator = {rig_failing_resize, &failing};
    const beryl_engine_options options = {
        .precision = BERYL_PRECISION_EXACT, .context = 128, .piece = 16, .allocator = allocator};
    model_ref ref;
    model_case c;
    file f;
    if (!model_ref_open(t, &ref, "lora/e2b-f32.ref.gguf")) return;
    beryl_engine *e = model_engine(t, "e2b-f32.gguf", &model_devices[MODEL_REFERENCE], &options);
    beryl_session *s = e ? model_session(t, e) : NULL;
    beryl_adapter *a = NULL;
    beryl_status status = BERYL_NO_MEMORY;
    if (s && file_open(t, &f, "e2b-f32.part", LORA_FORM_RULLAMA)) {
        const beryl_adapter_options o = {.size = sizeof o, .data = f.data, .data_size = f.size};
        for (uint64_t n = 0; status == BERYL_NO_MEMORY && !test_failed(t); n++) {
            failing.left = n;
            status = beryl_adapter_open(e, &o, &a, NULL);
            if (status == BERYL_OK) status = beryl_session_adapters(s, &a, NULL, 1, NULL);
            failing.left = UINT64_MAX;
            if (status == BERYL_NO_MEMORY) beryl_adapter_close(a);
        }
        CHECK_INT(t, status, BERYL_OK);
        if (model_case_get(t, &ref, 4, &c)) model_check_logits(t, s, &c, 0, MODEL_TOLERANCE);
        file_close(t, &f);
    }
    beryl_session_close(s);
    beryl_adapter_close(a);
    beryl_engine_close(e);
    model_ref_close(&ref);
}

/* The reference does all. Devices compile for longer than they run: of each few cases of one model,
 * with all targets of layers (rs); with BERYL_TEST_ALL everything everywhere, and on a GPU's
 * kernels, which fused_test.c has in pieces. */
static void test_models(test *t) {
    static const char *const bases[] = {"e2b-f32", "dense-31b", "moe-26b", "e2b-q4km"},
                             *const forms[] = {"peft", "gguf", "rullama"};
    static const struct {
        int device;
        uint64_t cases;
        bool brief; /* logits alone */
    } on[] = {{MODEL_REFERENCE, UINT64_MAX, false},
              {MODEL_HOST, 1 << 24, false},
              {MODEL_WEBGPU, 1 << 24, true},
              {MODEL_FEW, 1 << 24, true}};
    const bool all = getenv("BERYL_TEST_ALL");
    for (size_t d = 0; d < sizeof on / sizeof *on; d++)
        for (size_t i = 0; i < sizeof bases / sizeof *bases; i++) {
            char name[60];
            snprintf(name, sizeof name, "lora/%s.ref.gguf", bases[i]);
            if (!base_file_exists(test_data(t, name)) || (d && i && !all) ||
                (on[d].device == MODEL_FEW && !all))
                continue;
            for (int form = 0; form < 3; form++)
                if (test_drawn(i, (size_t)form + d, 3) &&
                    test_case(t, "lora/logits-%s-%s-%s", model_devices[on[d].device].name, bases[i],
                              forms[form]))
                    check_model(t, bases[i], on[d].device, form, all ? UINT64_MAX : on[d].cases,
                                on[d].brief && !all);
        }
}

void test_lora(test *t) {
    test_forms(t);
    test_written(t);
    if (test_case(t, "lora/written-in-types")) check_types(t);
    if (test_case(t, "lora/not-written-and-told")) check_unwritten(t);
    if (test_case(t, "lora/written-as-made-by-hand")) check_made(t);
    for (int form = 0; form < 3; form++)
        if (test_case(t, "lora/allocations-fail-in-writing-%d", form))
            check_write_memory(t, (format_lora_form)form);
    if (test_case(t, "lora/damage-peft")) check_damage(t, "e2b-f32.head", LORA_FORM_PEFT);
    if (test_case(t, "lora/damage-gguf")) check_damage(t, "e2b-f32.part", LORA_FORM_GGUF);
    if (test_case(t, "lora/damage-rullama")) check_damage(t, "e2b-f32.head", LORA_FORM_RULLAMA);
    if (test_case(t, "lora/what-is-not-computed-is-refused")) check_configs(t);
    if (test_case(t, "lora/headers-that-lie")) check_headers(t);
    if (test_case(t, "lora/values-are-numbers")) check_values(t);
    if (test_case(t, "lora/allocations-fail-peft")) check_memory(t, "e2b-f32.head", LORA_FORM_PEFT);
    if (test_case(t, "lora/allocations-fail-gguf")) check_memory(t, "e2b-f32.part", LORA_FORM_GGUF);
    if (test_case(t, "lora/another-model")) check_refusals(t);
    if (test_case(t, "lora/halves-of-a-folder")) check_halves(t, "e2b-f32.part", LORA_FORM_PEFT);
    if (test_case(t, "lora/halves-of-a-file")) check_halves(t, "e2b-f32.part", LORA_FORM_GGUF);
    if (test_case(t, "lora/allocations-fail-in-an-engine")) check_engine_memory(t);
    test_models(t);
    static const int on[] = {MODEL_REFERENCE, MODEL_WEBGPU, MODEL_HOST, MODEL_FEW};
    for (size_t i = 0; i < sizeof on / sizeof *on; i++) {
        const char *name = model_devices[on[i]].name;
        if (i && !getenv("BERYL_TEST_ALL")) continue;
        if (test_case(t, "lora/three-sessions-%s", name)) check_together(t, on[i]);
        if (test_case(t, "lora/caches-belong-to-adapters-%s", name)) check_caches(t, on[i]);
        if (test_case(t, "lora/swaps-while-another-answers-%s", name)) check_swap(t, on[i]);
    }
}
