/* merge_test.c - blocks that are made from numbers, and models with adapters folded in: logits
 * against the reference, tensors against W + s B A in double, files that are copied, and what is
 * refused. */
#define _GNU_SOURCE
#include "base/file.h"
#include "base/quantise.h"
#include "base/thread.h"
#include "engine/engine.h"
#include "gguf_make.h"
#include "model.h"
#include "rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- blocks ---------------------------------------------------------------------------------- */

/* How far a number may be from what its block says: of the largest number of a block, or of its
 * range where the type has minima. Half a step, or a whole one at the end that the range has one
 * less of; with scales of scales half of a step of those besides, at the end of the range; a
 * rounded F16 (2^-11) everywhere. */
static const struct {
    base_type type;
    bool of_range;
    double most;
} bounds[] = {
    {TYPE_F32, false, 0},
    {TYPE_F16, false, 1.0 / 2048},
    {TYPE_BF16, false, 1.0 / 256},
    {TYPE_Q8_0, false, 0.5 / 127 + 1.0 / 2048},
    {TYPE_Q4_0, false, 1.0 / 8 + 1.0 / 2048},
    {TYPE_Q5_0, false, 1.0 / 16 + 1.0 / 2048},
    {TYPE_Q4_1, true, 0.5 / 15 + 2.0 / 2048},
    {TYPE_Q5_1, true, 0.5 / 31 + 2.0 / 2048},
    {TYPE_Q4_K, true, 0.5 / 15 + 2 * 0.5 / 63 + 2.0 / 2048},
    {TYPE_Q5_K, true, 0.5 / 31 + 2 * 0.5 / 63 + 2.0 / 2048},
    {TYPE_Q6_K, false, 1.0 / 32 + 0.5 / 128 + 1.0 / 2048},
};

/* The distance that a block of `n` such numbers may have. */
static double bound_of(base_type type, const float *x, uint32_t n) {
    double most = 0, low = 0, high = 0;
    for (uint32_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)x[i]));
        low = fmin(low, (double)x[i]);
        high = fmax(high, (double)x[i]);
    }
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if (bounds[i].type == type)
            return bounds[i].most * (bounds[i].of_range ? high - low : most);
    return -1;
}

static void check_blocks(test *t, base_type type) {
    enum { N = 512 };
    float x[N], y[N], z[N];
    uint8_t blocks[N * 4], again[N * 4];
    base_random random = {7};
    for (int kind = 0; kind < 5 && !test_failed(t); kind++) {
        const uint32_t block = base_type_block(type);
        for (int i = 0; i < N; i++) {
            const double u = 2 * base_random_unit(&random) - 1;
            x[i] = (float)(kind == 0   ? u
                           : kind == 1 ? u * u * u * 100
                           : kind == 2 ? 3 + u /* all above 0 */
                           : kind == 3 ? 0
                                       : (i % 32 ? 1e-3 * u : -7)); /* one that stands out */
        }
        base_quantise(type, x, blocks, N);
        base_dequantise(type, blocks, y, N);
        for (int i = 0; i < N; i++)
            CHECK_NEAR(t, y[i], x[i],
                       bound_of(type, x + i / (int)block * (int)block, block) +
                           3e-8); /* half of the smallest F16 */
        /* what a block says, it says again */
        base_quantise(type, y, again, N);
        base_dequantise(type, again, z, N);
        const bool super = block == 256; /* scales may round otherwise */
        for (int i = 0; i < N; i++)
            CHECK_NEAR(t, z[i], y[i],
                       super ? bound_of(type, y + i / 256 * 256, 256)
                             : 1e-3 * fabs((double)y[i]) + 1e-9);
    }
}

/* ---- merged models --------------------------------------------------------------------------- */

static const char *merged_path(test *t) {
    static char path[500]; /* borrowed until the next call */
    snprintf(path, sizeof path, "%s/merged.gguf", test_scratch(t));
    return path;
}

static const char *adapter_path(test *t, const char *name) {
    char path[100];
    snprintf(path, sizeof path, "lora/%s", name);
    if (base_file_exists(test_data(t, path))) return test_data(t, path);
    snprintf(path, sizeof path, "lora/%s.gguf", name);
    return test_data(t, path);
}

static beryl_status merge(test *t, const char *base, const char *const *names, const float *scales,
                          size_t n, const char *type, const char *out, beryl_error *error) {
    char model[500], paths[4][500];
    const char *list[4];
    *error = (beryl_error){0};
    snprintf(model, sizeof model, "%s", test_data(t, base));
    for (size_t i = 0; i < n; i++) {
        snprintf(paths[i], sizeof paths[i], "%s", adapter_path(t, names[i]));
        list[i] = paths[i];
    }
    const beryl_merge_options o = {.size = sizeof o,
                                   .model = model,
                                   .out = out,
                                   .adapters = list,
                                   .scales = scales,
                                   .n_adapter = n,
                                   .type = type};
    return beryl_merge(&o, error);
}

/* A case of the reference, whose adapters are folded in. */
static void check_logits(test *t, const char *base, uint32_t index) {
    char key[40], file[60];
    model_ref ref;
    base_view *given;
    float *scales;
    size_t n, n_scale;
    beryl_error error;
    model_case c;
    snprintf(file, sizeof file, "lora/%s.ref.gguf", base);
    if (!model_ref_open(t, &ref, file)) return;
    snprintf(key, sizeof key, "case.%u.adapters", index);
    CHECK_INT(t, format_gguf_strings(ref.gguf, key, &ref.arena, &given, &n, NULL), BERYL_OK);
    snprintf(key, sizeof key, "case.%u.scales", index);
    CHECK_INT(t, format_gguf_f32s(ref.gguf, key, &ref.arena, &scales, &n_scale, NULL), BERYL_OK);
    char names[4][40];
    const char *list[4];
    for (size_t i = 0; i < n && i < 4; i++) {
        snprintf(names[i], sizeof names[i], "%.*s", (int)given[i].size, given[i].data);
        list[i] = names[i];
    }
    snprintf(file, sizeof file, "%s.gguf", base);
    if (merge(t, file, list, scales, n, "F32", merged_path(t), &error)) {
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
    } else if (model_case_get(t, &ref, index, &c)) {
        beryl_engine *engine =
            model_load(t, &(beryl_engine_options){.size = sizeof(beryl_engine_options),
                                                  .model = merged_path(t),
                                                  .device = "reference",
                                                  .precision = BERYL_PRECISION_EXACT,
                                                  .context = 128,
                                                  .no_cache = true});
        beryl_session *s = engine ? model_session(t, engine) : NULL;
        if (s) model_check_logits(t, s, &c, 0, MODEL_TOLERANCE);
        beryl_session_close(s);
        beryl_engine_close(engine);
    }
    model_ref_close(&ref);
}

/* ---- tensor by tensor ------------------------------------------------------------------------ */

/* The part that changes a tensor of a GGUF file that keeps its matrices apart. */
static const format_lora_part *part_of(const format_lora *l, base_view tensor) {
    for (size_t i = 0; i < l->n_part; i++) {
        char name[60];
        const format_lora_part *p = &l->parts[i];
        if (p->target < LORA_FIRST_OF_MODEL)
            snprintf(name, sizeof name, "blk.%u.%s.weight", p->layer,
                     format_lora_target_name(p->target));
        else snprintf(name, sizeof name, "%s.weight", format_lora_target_name(p->target));
        if (base_view_equal(tensor, base_view_of(name))) return p;
    }
    return NULL;
}

static void check_row(test *t, const format_lora_part *p, const format_gguf_tensor *w, uint64_t row,
                      const uint8_t *before, const uint8_t *after) {
    enum { ROOM = 1024 };
    float x[ROOM], y[ROOM];
    const uint64_t e = row / w->ne[1], o = row % w->ne[1];
    const uint32_t n = (uint32_t)w->ne[0], block = base_type_block(w->type);
    const uint64_t bytes = base_type_row_bytes(w->type, n);
    if (n > ROOM) {
        test_fail(t, __FILE__, __LINE__, "a row of %u", n);
        return;
    }
    base_dequantise(w->type, before + row * bytes, x, n);
    base_dequantise(w->type, after + row * bytes, y, n);
    for (uint32_t i = 0; i < n; i++) {
        double sum = 0;
        for (uint32_t r = 0; r < p->rank; r++)
            sum += (double)format_lora_value(&p->a, e * p->a.stride[0] + r * p->a.stride[1] +
                                                        i * p->a.stride[2]) *
                   (double)format_lora_value(&p->b, e * p->b.stride[0] + r * p->b.stride[1] +
                                                        o * p->b.stride[2]);
        x[i] = (float)((double)x[i] + 0.5 * (double)p->factor * sum);
    }
    for (uint32_t i = 0; i < n; i++)
        CHECK_NEAR(t, y[i], x[i], bound_of(w->type, x + i / block * block, block) + 1e-5);
}

/* What an adapter names is W + 0.5 B A within the type's own error, all else the same bytes, keys
 * and shapes. */
static void check_tensors(test *t, const char *base, const char *adapter, uint32_t want) {
    beryl_error error;
    base_heap heap;
    engine_adapter_file f;
    char file[60];
    uint32_t n_changed = 0;
    format_gguf *g[2] = {NULL, NULL};
    snprintf(file, sizeof file, "%s.gguf", base);
    if (merge(t, file, &adapter, &(float){0.5f}, 1, NULL, merged_path(t), &error)) {
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
        return;
    }
    base_heap_init(&heap, NULL);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(
            t, format_gguf_open_path(&heap, i ? merged_path(t) : test_data(t, file), &g[i], NULL),
            BERYL_OK);
        CHECK_INT(t, format_gguf_step(g[i], &error), BERYL_OK);
    }
    CHECK_INT(t, engine_adapter_file_open(&heap, adapter_path(t, adapter), &f, &error), BERYL_OK);
    CHECK_INT(t, format_gguf_n_pair(g[1]), format_gguf_n_pair(g[0]));
    CHECK_INT(t, format_gguf_n_tensor(g[1]), format_gguf_n_tensor(g[0]));
    for (size_t i = 0; i < format_gguf_n_pair(g[0]) && !test_failed(t); i++) {
        const format_gguf_pair *a = format_gguf_pair_at(g[0], i), *b = format_gguf_pair_at(g[1], i);
        CHECK(t, base_view_equal(a->key, b->key) && a->kind == b->kind && a->count == b->count &&
                     a->is_array == b->is_array && a->size == b->size &&
                     !memcmp(a->data, b->data, a->size));
    }
    for (size_t i = 0; i < format_gguf_n_tensor(g[0]) && !test_failed(t); i++) {
        const format_gguf_tensor *a = format_gguf_tensor_at(g[0], i),
                                 *b = format_gguf_tensor_at(g[1], i);
        base_arena arena;
        base_arena_init(&arena, &heap);
        CHECK(t, base_view_equal(a->name, b->name) && a->type == b->type && a->size == b->size &&
                     !memcmp(a->ne, b->ne, sizeof a->ne));
        const uint8_t *before = gguf_tensor_take(g[0], a, &arena),
                      *after = gguf_tensor_take(g[1], b, &arena);
        const format_lora_part *p = part_of(&f.lora, a->name);
        n_changed += p != NULL;
        if (!before || !after) test_fail(t, __FILE__, __LINE__, "cannot be read");
        else if (!p) CHECK(t, !memcmp(before, after, (size_t)a->size));
        else
            for (uint64_t row = 0; row < a->ne[1] * a->ne[2]; row += row % 7 ? 2 : 5)
                check_row(t, p, a, row, before, after);
        base_arena_fini(&arena);
    }
    CHECK_INT(t, n_changed, want);
    engine_adapter_file_close(&heap, &f);
    for (int i = 0; i < 2; i++) format_gguf_close(g[i]);
    CHECK_INT(t, heap.bytes, 0);
}

static void check_place(test *t, const gemma4_model *m, format_lora_target target, uint32_t n,
                        const gemma4_lora_place *want) {
    gemma4_lora_place got[2];
    CHECK_INT(t, gemma4_lora_places(m, target, 0, got), n);
    for (uint32_t i = 0; i < n; i++) {
        CHECK_INT(t, got[i].weight, want[i].weight);
        CHECK_INT(t, got[i].row, want[i].row);
        CHECK_INT(t, got[i].from, want[i].from);
        CHECK_INT(t, got[i].n, want[i].n);
    }
}

/* Files of other dialects: q, k and v in one matrix, gate and up of experts in two. */
static void check_places(test *t) {
    gemma4_layer layer = {.owner = true,
                          .n_kv = 1,
                          .head_dim = 4,
                          .n_ff = 6,
                          .attn_qkv = 5,
                          .ffn_gate_up_exps = GEMMA4_NONE,
                          .ffn_gate_exps = 7,
                          .ffn_up_exps = 8,
                          .ffn_up = GEMMA4_NONE};
    const gemma4_model m = {
        .config = {.n_layer = 1, .n_embd = 10, .n_head = 2, .n_expert = 3, .n_ff_expert = 9},
        .layers = &layer,
        .output = GEMMA4_NONE};
    check_place(t, &m, LORA_Q, 1, &(gemma4_lora_place){5, 0, 0, 8});
    check_place(t, &m, LORA_K, 1, &(gemma4_lora_place){5, 8, 0, 4});
    check_place(t, &m, LORA_V, 1, &(gemma4_lora_place){5, 12, 0, 4});
    check_place(t, &m, LORA_GATE_UP_EXPS, 2, (gemma4_lora_place[]){{7, 0, 0, 9}, {8, 0, 9, 9}});
    check_place(t, &m, LORA_UP, 0, NULL);
    check_place(t, &m, LORA_HEAD, 0, NULL);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static bool never(void *user, uint64_t done, uint64_t total) {
    (void)user;
    return done * 2 < total;
}

static void check_refusals(test *t) {
    static const struct {
        const char *base, *adapter, *out, *says;
        beryl_status status;
    } cases[] = {
        {"e2b-f32.gguf", "dense-31b.all", NULL, "is for a matrix", BERYL_UNSUPPORTED},
        {"e2b-f32.gguf", "nowhere", NULL, "nowhere", BERYL_NOT_FOUND},
        {"nowhere.gguf", "e2b-f32.head", NULL, "nowhere", BERYL_NOT_FOUND},
        {"lora/e2b-f32.part.gguf", "e2b-f32.head", NULL, "block_count", BERYL_NOT_FOUND},
        {"e2b-f32.ref.gguf", "e2b-f32.head", NULL, "architecture", BERYL_UNSUPPORTED},
        {"e2b-f32.gguf", "e2b-f32.head", "/dev/full", "/dev/full", BERYL_IO},
        {"e2b-f32.gguf", "e2b-f32.head", "/nowhere/x", "/nowhere/x", BERYL_NOT_FOUND},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        beryl_error error;
        const char *out = cases[i].out ? cases[i].out : merged_path(t);
        if (!cases[i].out) remove(out);
        const beryl_status status =
            merge(t, cases[i].base, &cases[i].adapter, NULL, 1, NULL, out, &error);
        CHECK_INT(t, status, cases[i].status);
        if (!strstr(error.message, cases[i].says))
            test_fail(t, __FILE__, __LINE__, "case %zu: %s", i, error.message);
        CHECK(t, cases[i].out || !base_file_exists(out));
    }
    beryl_error error = {0};
    char model[500], adapter[500];
    snprintf(model, sizeof model, "%s", test_data(t, "e2b-f32.gguf"));
    snprintf(adapter, sizeof adapter, "%s", adapter_path(t, "e2b-f32.head"));
    const char *list = adapter;
    beryl_merge_options o = {.size = sizeof o,
                             .model = model,
                             .out = merged_path(t),
                             .adapters = &list,
                             .n_adapter = 1,
                             .progress = never};
    CHECK_INT(t, beryl_merge(&o, &error), BERYL_CANCELLED);
    CHECK(t, !base_file_exists(o.out));
    o.scales = &(float){1e9f};
    o.progress = NULL;
    CHECK_INT(t, beryl_merge(&o, &error), BERYL_UNSUPPORTED);
    CHECK(t, strstr(error.message, "tensor 'output.weight': row ") && !base_file_exists(o.out));
    o.type = "Q8_0";
    CHECK_INT(t, beryl_merge(&o, &error), BERYL_MISUSE);
    o.type = NULL;
    o.n_adapter = 0;
    CHECK_INT(t, beryl_merge(&o, &error), BERYL_MISUSE);
    CHECK_INT(t, beryl_merge(NULL, &error), BERYL_MISUSE);
    CHECK_INT(t, beryl_adapter_convert(NULL, &error), BERYL_MISUSE);
    beryl_convert_options c = {
        .size = sizeof c, .from = adapter, .to = o.out, .form = "gguf", .type = "Q8_0"};
    CHECK_INT(t, beryl_adapter_convert(&c, &error), BERYL_MISUSE);
    c.type = NULL;
    c.form = "onnx";
    CHECK_INT(t, beryl_adapter_convert(&c, &error), BERYL_MISUSE);
    c.form = "rullama";
    CHECK_INT(t, beryl_adapter_convert(&c, &error), BERYL_OK);
    CHECK(t, base_file_exists(o.out));
}

/* Bytes of heads that are something else: a file, or an error that is told. */
static void check_damage(test *t) {
    char *files[2], paths[2][500];
    size_t sizes[2];
    base_heap heap;
    base_random random = {3};
    base_heap_init(&heap, NULL);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(
            t,
            base_file_read(&heap,
                           i ? adapter_path(t, "e2b-f32.part.gguf") : test_data(t, "e2b-f32.gguf"),
                           1 << 24, &files[i], &sizes[i], NULL),
            BERYL_OK);
        snprintf(paths[i], sizeof paths[i], "%s/damaged%d", test_scratch(t), i);
    }
    uint32_t n_good = 0;
    for (int n = 0; n < 120 && !test_failed(t); n++) {
        const char *adapter = paths[1];
        const int which = n % 2;
        const size_t at = (size_t)(base_random_next(&random) % (which ? 8000 : 24000));
        const char was = files[which][at];
        files[which][at] = (char)(was ^ (1 << base_random_next(&random) % 8));
        for (int i = 0; i < 2; i++)
            CHECK_INT(t, base_file_write(paths[i], files[i], sizes[i], NULL), BERYL_OK);
        beryl_error error = {0};
        const beryl_merge_options o = {.size = sizeof o,
                                       .model = paths[0],
                                       .out = merged_path(t),
                                       .adapters = &adapter,
                                       .n_adapter = 1};
        remove(o.out);
        const beryl_status status = beryl_merge(&o, &error);
        CHECK(t, status ? error.message[0] && error.code == status : !error.code);
        CHECK_INT(t, base_file_exists(o.out), !status);
        n_good += !status;
        files[which][at] = was;
    }
    CHECK(t, n_good > 0 && n_good < 120);
    for (int i = 0; i < 2; i++) base_heap_give(&heap, files[i], sizes[i] + 1);
}

/* Tensors that lie over one another would make a small file large. */
static void check_claim(test *t) {
    char path[500], *data;
    size_t size;
    base_heap heap;
    beryl_error error = {0};
    format_gguf *g;
    base_heap_init(&heap, NULL);
    CHECK_INT(t, base_file_read(&heap, test_data(t, "e2b-f32.gguf"), 1 << 24, &data, &size, NULL),
              BERYL_OK);
    CHECK_INT(t, format_gguf_open_path(&heap, test_data(t, "e2b-f32.gguf"), &g, &error), BERYL_OK);
    CHECK_INT(t, format_gguf_step(g, &error), BERYL_OK);
    uint64_t first = UINT64_MAX, end = 0;
    for (size_t i = 0; i < format_gguf_n_tensor(g); i++) {
        const format_gguf_tensor *w = format_gguf_tensor_at(g, i);
        if (w->offset < first) first = w->offset;
        if (w->size > end) end = w->size;
    }
    /* every tensor's offset, which is what follows its type, becomes 0 */
    for (size_t i = 0; i < format_gguf_n_tensor(g); i++) {
        const format_gguf_tensor *w = format_gguf_tensor_at(g, i);
        char *at = memmem(data, (size_t)first, w->name.data, w->name.size);
        if (at) memset(at + w->name.size + 4 + 8 * w->n_dim + 4, 0, 8);
    }
    format_gguf_close(g);
    snprintf(path, sizeof path, "%s/claims.gguf", test_scratch(t));
    CHECK_INT(t, base_file_write(path, data, (size_t)(first + end), &error), BERYL_OK);
    char adapter[500];
    const char *list = adapter;
    snprintf(adapter, sizeof adapter, "%s", adapter_path(t, "e2b-f32.head"));
    const beryl_merge_options o = {
        .size = sizeof o, .model = path, .out = merged_path(t), .adapters = &list, .n_adapter = 1};
    CHECK_INT(t, beryl_merge(&o, &error), BERYL_BAD_FILE);
    CHECK(t, strstr(error.message, "claim more"));
    base_heap_give(&heap, data, size + 1);
}

/* A few of the calls fail, each in its turn. */
static void check_memory(test *t) {
    char model[500], adapter[500];
    snprintf(model, sizeof model, "%s", test_data(t, "e2b-f32.gguf"));
    snprintf(adapter, sizeof adapter, "%s", adapter_path(t, "e2b-f32.embd"));
    const char *list = adapter;
    beryl_status status = BERYL_NO_MEMORY;
    for (uint64_t n = 0; status == BERYL_NO_MEMORY && !test_failed(t); n++) {
        rig_failing failing = {n};
        beryl_error error = {0};
        const beryl_merge_options o = {
            .size = sizeof o,
            .model = model,
            .out = merged_path(t),
            .adapters = &list,
            .n_adapter = 1,
            .allocator = {.user = &failing, .resize = rig_failing_resize}};
        if (n % 4 == 0) remove(o.out);
        status = beryl_merge(&o, &error);
        if (status && status != BERYL_NO_MEMORY)
            test_fail(t, __FILE__, __LINE__, "%s", error.message);
    }
}

void test_merge(test *t) {
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if (test_case(t, "quantise/%s", base_type_name(bounds[i].type)))
            check_blocks(t, bounds[i].type);
    if (test_case(t, "quantise/what-can-be")) {
        size_t n = 0;
        for (int type = 0; type <= TYPE_COUNT; type++) n += base_can_quantise((base_type)type);
        CHECK_INT(t, n, sizeof bounds / sizeof *bounds);
    }
    if (test_case(t, "merge/refused-and-told")) check_refusals(t);
    if (test_case(t, "merge/damage")) check_damage(t);
    if (test_case(t, "merge/tensors-that-share-bytes")) check_claim(t);
    if (test_case(t, "merge/allocations-fail")) check_memory(t);
    if (test_case(t, "merge/joined-and-split-matrices")) check_places(t);
    static const struct {
        const char *base, *adapter;
        uint32_t n; /* tensors that it changes */
    } tensors[] = {{"e2b-f32", "e2b-f32.rs", 60},
                   {"e2b-q4km", "e2b-q4km.part", 4},
                   {"moe-26b", "moe-26b.experts", 8},
                   {"dense-31b", "dense-31b.all", 54}};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (test_case(t, "merge/tensors-%s", tensors[i].base))
            check_tensors(t, tensors[i].base, tensors[i].adapter, tensors[i].n);
    /* In F32, so that nothing is rounded: rs; part; pattern at 0.5; embd at 1 and 0.5; head; two
     * that add up; embd and head; experts at 1 and 0.5; K where it serves as V */
    static const struct {
        const char *base;
        uint32_t index;
    } cases[] = {{"e2b-f32", 0},  {"e2b-f32", 5},  {"e2b-f32", 14},  {"e2b-f32", 16},
                 {"e2b-f32", 19}, {"e2b-f32", 21}, {"e2b-f32", 25},  {"e2b-f32", 26},
                 {"moe-26b", 4},  {"moe-26b", 6},  {"dense-31b", 1}, {"dense-31b", 6}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (test_case(t, "merge/logits-%s-%u", cases[i].base, cases[i].index))
            check_logits(t, cases[i].base, cases[i].index);
}
