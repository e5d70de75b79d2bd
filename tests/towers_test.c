/* towers_test.c - the towers of pictures and of sound against soft tokens that another
 * implementation computed, from the pictures that it resized and from clips, on every device. */
#define _POSIX_C_SOURCE 200809L
#include "gguf_make.h"
#include "media_files.h"
#include "model.h"
#include "rig.h"

#include "engine/trial.h"
#include "gemma4/audio.h"
#include "gemma4/vision.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SOFT_MAX = 70, FRAMES_MAX = 200 };

/* Of the largest number of a case's soft tokens, and of log-mel: README of the fixtures, for sums
 * in F32. */
#define SOFT_TOLERANCE 1e-3
#define FAST_TOLERANCE 2e-2 /* products and attention in halves */
#define MEL_TOLERANCE 1e-3

static const struct {
    const char *name, *file;
    bool small; /* on the reference functions too */
    bool hears;
} fixtures[] = {
    {"e2b-mm", "e2b-mm.gguf", false, true},               /* a merged file, clamped products */
    {"e2b-mmproj", "e2b-mmproj.mmproj.gguf", true, true}, /* a file of its own */
    {"31b-vision", "31b-vision.gguf", false, false},      /* standardised, heads of 36 */
    {"12b-mm", "12b-mm.gguf", true, true},                /* no towers */
};

static const struct {
    const char *name, *device; /* NULL: the reference functions */
    bool fast, slow;
} devices[] = {
    {"reference", NULL, false, false}, {"host", "host", false, false},
    {"opencl", "opencl", false, true}, {"webgpu", "webgpu:software", false, true},
    {"chosen", "", false, false},      {"chosen-fast", "", true, false}, /* BERYL_TEST_DEVICE */
};

typedef struct tower {
    base_heap heap;
    base_arena arena;
    device *d;
    format_gguf *gguf;
    beryl_source source;
    graph_store store;
    bool hears; /* audio, else vision */
    double tolerance;
    device_language language; /* of the dummy device */
    gemma4_vision vision;
    gemma4_vision_graph sees;
    gemma4_audio audio;
    gemma4_audio_graph listens;
    graph *g; /* of one of them */
    graph_value soft;
    graph_exec *exec;
    beryl_error error;
} tower;

static beryl_status build(tower *w) {
    beryl_status status;
    if (w->hears) {
        status =
            gemma4_audio_build(&w->audio, &w->store, &w->heap, FRAMES_MAX, &w->listens, &w->error);
        w->g = w->listens.g;
        w->soft = w->listens.soft;
    } else {
        status =
            gemma4_vision_build(&w->vision, &w->store, &w->heap, SOFT_MAX, &w->sees, &w->error);
        w->g = w->sees.g;
        w->soft = w->sees.soft;
    }
    return status;
}

/* The dummy device as a GPU of that language; units: with matrix units. */
static void as_gpu(device *d, device_language language, bool units) {
    d->caps.kind = DEVICE_DISCRETE;
    d->caps.languages = DEVICE_LANGUAGE_BIT(language);
    d->caps.subgroups = d->caps.f16 = true;
    d->caps.subgroup_size = 32;
    if (units) d->caps.fragments = DEVICE_FRAGMENT_ALL;
    if (units) d->caps.workgroup_bytes = 227 << 10;
}

/* Of its file, which is open. */
static beryl_status tower_make(tower *w, uint32_t d, const char *choice, bool fast) {
    beryl_status status;
    while ((status = format_gguf_step(w->gguf, &w->error)) == BERYL_PENDING) {}
    if (status == BERYL_OK && choice)
        status = device_open(&w->heap, NULL, choice, &w->d, &w->error);
    if (status != BERYL_OK) return status;
    if (choice && !strcmp(choice, "dummy")) as_gpu(w->d, w->language, w->language == DEVICE_CUDA_C);
    w->source = *format_gguf_source(w->gguf, 0);
    status = store_init(&w->store, &w->heap, w->d, &w->source, 1, &w->error);
    if (status == BERYL_OK)
        status = w->hears
                     ? gemma4_audio_add(w->gguf, d, &w->arena, &w->store, &w->audio, &w->error)
                     : gemma4_vision_add(w->gguf, d, &w->arena, &w->store, &w->vision, &w->error);
    if (status == BERYL_OK) status = store_layout(&w->store, 0, &w->error);
    if (status == BERYL_OK) status = store_make(&w->store, &w->error);
    if (status == BERYL_OK) do
            status = store_upload_step(&w->store, &w->error);
        while (status == BERYL_EVENT || status == BERYL_PENDING);
    if (status == BERYL_OK) status = build(w);
    const graph_exec_options options = {.exact = !fast};
    if (status == BERYL_OK)
        status = graph_exec_open(w->g, &w->store, &options, &w->exec, &w->error);
    return status == BERYL_OK ? rig_exec_compiled(w->exec, &w->error) : status;
}

static beryl_status tower_open(tower *w, const char *path, uint32_t d, const char *choice,
                               bool fast) {
    base_heap_init(&w->heap, NULL);
    base_arena_init(&w->arena, &w->heap);
    const beryl_status status = format_gguf_open_path(&w->heap, path, &w->gguf, &w->error);
    return status == BERYL_OK ? tower_make(w, d, choice, fast) : status;
}

static void tower_close(test *t, tower *w) {
    graph_exec_close(w->exec);
    graph_close(w->g);
    store_fini(&w->store);
    device_close(w->d);
    format_gguf_close(w->gguf);
    base_arena_fini(&w->arena);
    CHECK_INT(t, w->heap.bytes, 0);
}

static void *input(tower *w, graph_value v) {
    return graph_exec_input(w->exec, v);
}

/* ---- pictures -------------------------------------------------------------------------------- */

/* How many soft tokens the picture has, with the inputs that make them; 0: failed. */
static uint32_t see(test *t, tower *w, const char *file) {
    uint32_t width, height, m = 0;
    uint8_t *rgb = media_picture(t, file, &width, &height);
    const uint32_t unit = gemma4_vision_unit(&w->vision);
    const gemma4_vision_graph *g = &w->sees;
    if (rgb && (width % unit || height % unit || width / unit * (height / unit) > SOFT_MAX)) {
        test_fail(t, __FILE__, __LINE__, "%s has %u x %u pixels", file, width, height);
    } else if (rgb) {
        m = width / unit * (height / unit);
        gemma4_vision_fill(&w->vision, rgb, width, height, input(w, g->pixels),
                           input(w, g->columns), input(w, g->rows),
                           g->angles ? input(w, g->angles) : NULL);
    }
    free(rgb);
    return m;
}

/* ---- sound ----------------------------------------------------------------------------------- */

static float *floats_of(test *t, model_ref *ref, const char *name, uint64_t ne[2]) {
    const format_gguf_tensor *x = format_gguf_tensor_find(ref->gguf, name);
    const beryl_source *source = format_gguf_source(ref->gguf, 0);
    float *out = x ? malloc(x->size) : NULL;
    if (!out || source->read(source->user, x->offset, out, x->size) != BERYL_OK)
        test_fail(t, __FILE__, __LINE__, "no %s", name);
    for (int i = 0; x && i < 2; i++) ne[i] = x->ne[i];
    return out;
}

/* How many frames the clip has, compared with the reference's where it has some; 0: failed. */
static uint32_t hear(test *t, tower *w, model_ref *ref, uint32_t n, const char *file) {
    const gemma4_audio_graph *g = &w->listens;
    uint32_t n_sample, frames = 0;
    float *samples = media_clip(t, file, &n_sample);
    if (samples) frames = gemma4_audio_frames(&w->audio, n_sample);
    if (frames > FRAMES_MAX) {
        test_fail(t, __FILE__, __LINE__, "%s has %u frames", file, frames);
        frames = 0;
    }
    if (frames)
        CHECK_INT(t, gemma4_audio_fill(&w->audio, &w->heap, samples, n_sample, input(w, g->frames)),
                  BERYL_OK);
    free(samples);
    if (!frames || !w->audio.n_layer) return frames;
    gemma4_audio_distances(&w->audio, input(w, g->distance));
    gemma4_audio_mask(gemma4_audio_soft(&w->audio, frames), input(w, g->mask));
    char name[40];
    uint64_t ne[2] = {0};
    snprintf(name, sizeof name, "case.%u.mel", n);
    float *mel = floats_of(t, ref, name, ne);
    CHECK_INT(t, ne[1], frames);
    if (mel && !test_failed(t))
        CHECK_NEAR(t, model_distance(input(w, g->frames), mel, (size_t)frames * GEMMA4_AUDIO_MEL),
                   0, MEL_TOLERANCE);
    free(mel);
    return frames;
}

/* ---- both ------------------------------------------------------------------------------------ */

static const float *soft_tokens(test *t, tower *w, uint32_t size) {
    uint32_t extents[GRAPH_EXTENT_MAX + 1] = {0};
    const void *out = NULL;
    device_ticket ticket = {0};
    extents[w->hears ? w->listens.extent : w->sees.extent] = size;
    beryl_status status = graph_exec_submit(w->exec, extents, &w->soft, 1, &ticket, &w->error);
    if (status == BERYL_OK && w->d) status = device_wait(w->d, ticket, &w->error);
    if (status == BERYL_OK) status = graph_exec_fetched(w->exec, ticket, 0, &out, &w->error);
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", w->error.message);
    return out;
}

/* false: the case is of another kind. */
static bool compare(test *t, tower *w, model_ref *ref, uint32_t n) {
    char name[64], file[64];
    base_view said = {0};
    uint64_t ne[2] = {0};
    snprintf(name, sizeof name, "case.%u.%s", n, w->hears ? "audio" : "resized");
    if (format_gguf_get_string(ref->gguf, name, &said, NULL) != BERYL_OK) return false;
    snprintf(file, sizeof file, "%.*s", (int)said.size, said.data);
    snprintf(name, sizeof name, "case.%u.soft_tokens", n);
    float *want = floats_of(t, ref, name, ne);
    const uint32_t size = !want      ? 0
                          : w->hears ? hear(t, w, ref, n, file)
                                     : see(t, w, file),
                   m = w->hears ? gemma4_audio_soft(&w->audio, size) : size,
                   d = w->hears ? w->audio.d : w->vision.d;
    const float *got = size && !test_failed(t) ? soft_tokens(t, w, size) : NULL;
    if (got && (ne[1] != m || ne[0] != d)) {
        test_fail(t, __FILE__, __LINE__, "%s: %u soft tokens of %u", file, m, d);
    } else if (got) {
        double largest = 0;
        for (size_t i = 0; i < (size_t)m * d; i++) largest = fmax(largest, fabs((double)want[i]));
        const double distance = model_distance(got, want, (size_t)m * d);
        if (!(distance <= w->tolerance * largest))
            test_fail(t, __FILE__, __LINE__, "%s: off by %g of %g", file, distance, largest);
    }
    free(want);
    return true;
}

static void run(test *t, size_t fixture, size_t at, bool hears) {
    const char *choice = devices[at].device;
    if (choice && !*choice) choice = getenv("BERYL_TEST_DEVICE");
    tower w = {.hears = hears};
    model_ref ref;
    char path[512], name[40];
    snprintf(path, sizeof path, "%s", test_data(t, fixtures[fixture].file));
    snprintf(name, sizeof name, "%s.ref.gguf", fixtures[fixture].name);
    if (!model_ref_open(t, &ref, name)) return;
    const format_gguf_tensor *soft = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < ref.n_case && !soft; i++) {
        snprintf(name, sizeof name, "case.%u.soft_tokens", i);
        soft = format_gguf_tensor_find(ref.gguf, name);
    }
    const beryl_status status =
        tower_open(&w, path, soft ? (uint32_t)soft->ne[0] : 0, choice, devices[at].fast);
    w.tolerance = devices[at].fast ? FAST_TOLERANCE : SOFT_TOLERANCE;
    if (status == BERYL_NO_DEVICE) test_skip(t, "%s", w.error.message);
    else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", w.error.message);
    for (uint32_t i = 0; status == BERYL_OK && i < ref.n_case && !test_failed(t); i++)
        n += compare(t, &w, &ref, i);
    if (status == BERYL_OK) CHECK(t, n > 0);
    tower_close(t, &w);
    model_ref_close(&ref);
}

enum { VECTORS = 6, PRODUCTS = 7 }; /* of a layer */

/* ---- made files ------------------------------------------------------------------------------ */

typedef enum clamps { CLAMPS_NONE, CLAMPS_EACH, CLAMPS_PACKED } clamps;

typedef struct tower_shape {
    uint64_t width, heads, ff, layers, text_width, positions;
    bool mixed; /* one matrix after the other is of the next type that files have */
    clamps clamps;
} tower_shape;

typedef struct headed { /* a file: its head, then zeros; mixed: numbers */
    const tower_shape *shape;
    gguf_make make;
    uint64_t offset;
    uint8_t *head;
    size_t size;
    base_random random;
    uint32_t n_type;
} headed;

/* Of the id in a file; the next quantised type where it is F16's and types are mixed. */
static base_type next_type(headed *h, uint32_t *id, bool matrix) {
    base_type type = TYPE_F32;
    base_type_from_gguf(*id, &type);
    for (uint32_t turns = 0; h->shape->mixed && matrix && turns < 99; turns++) {
        *id = h->n_type++ % 41;
        if (base_type_from_gguf(*id, &type) && base_type_is_quantised(type) &&
            base_type_is_weight(type))
            break;
    }
    return type;
}

static void fill(headed *h, base_type type, bool scale, uint8_t *to, uint64_t n) {
    const uint64_t block = base_type_block(type), bytes = base_type_block_bytes(type);
    for (uint64_t i = 0; i < n / block; i++) {
        float x;
        trial_fill_floats(&h->random, &x, 1, 0.25f);
        if (scale) x += 1;
        const uint16_t half = base_f32_to_f16(x);
        if (block > 1) trial_fill_block(&h->random, type, to + i * bytes, 0x1p-6f, 0.25f);
        else if (type == TYPE_F32) memcpy(to + i * bytes, &x, 4);
        else memcpy(to + i * bytes, &half, 2);
    }
}

static void add_tensor(headed *h, const char *name, uint32_t id, uint32_t rank,
                       const uint64_t *ne) {
    const base_type type = next_type(h, &id, rank == 2);
    uint64_t n = 1;
    for (uint32_t i = 0; i < rank; i++) n *= ne[i];
    const uint64_t bytes = n / base_type_block(type) * base_type_block_bytes(type);
    if (h->shape->mixed) {
        uint8_t *data = malloc((size_t)bytes);
        fill(h, type, rank == 1, data, n);
        gguf_make_tensor(&h->make, name, id, rank, ne, data, (size_t)bytes);
        free(data);
        return;
    }
    gguf_make_tensor_head(&h->make, name, id, rank, ne, h->offset);
    h->offset = (h->offset + bytes + 31) / 32 * 32;
}

static beryl_status read_headed(void *user, uint64_t offset, void *to, size_t size) {
    const headed *h = user;
    memset(to, 0, size);
    if (offset < h->size)
        memcpy(to, h->head + offset, h->size - offset < size ? h->size - offset : size);
    return BERYL_OK;
}

/* Least and largest of what product number n takes, then of what it gives. */
static void clamps_of(uint32_t n, float to[4]) {
    const float all[4] = {-1 - 0.125f * (float)n, 0.75f + 0.125f * (float)n, -1.5f, 2};
    memcpy(to, all, sizeof all);
}

static void add_clamps(headed *h, const char *prefix, uint32_t n) {
    static const char *const names[4] = {"input_min", "input_max", "output_min", "output_max"};
    float of[4];
    clamps_of(n, of);
    for (uint32_t i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.%s", prefix, names[i]);
        gguf_make_tensor(&h->make, name, 0, 1, (uint64_t[]){1}, &of[i], 4);
    }
}

static beryl_source make_headed(headed *h, const tower_shape *s) {
    const struct {
        const char *name;
        uint64_t in, out; /* out 0: a vector */
    } of_layer[] = {
        {"ln1", s->width, 0},
        {"ln2", s->width, 0},
        {"attn_post_norm", s->width, 0},
        {"ffn_post_norm", s->width, 0},
        {"attn_q_norm", s->width / s->heads, 0},
        {"attn_k_norm", s->width / s->heads, 0},
        {"attn_q", s->width, s->width},
        {"attn_k", s->width, s->width},
        {"attn_v", s->width, s->width},
        {"attn_out", s->width, s->width},
        {"ffn_gate", s->width, s->ff},
        {"ffn_up", s->width, s->ff},
        {"ffn_down", s->ff, s->width},
    };
    *h = (headed){.shape = s, .random = {.state = 7}};
    gguf_make_string(&h->make, "general.architecture", "clip");
    gguf_make_u32(&h->make, "clip.vision.block_count", (uint32_t)s->layers);
    gguf_make_u32(&h->make, "clip.vision.embedding_length", (uint32_t)s->width);
    gguf_make_u32(&h->make, "clip.vision.feed_forward_length", (uint32_t)s->ff);
    gguf_make_u32(&h->make, "clip.vision.attention.head_count", (uint32_t)s->heads);
    gguf_make_u32(&h->make, "clip.vision.patch_size", 16);
    add_tensor(h, "v.patch_embd.weight", 1, 4, (uint64_t[]){16, 16, 3, s->width});
    add_tensor(h, "v.position_embd.weight", 0, 3, (uint64_t[]){s->width, s->positions, 2});
    for (uint64_t i = 0; i < s->layers * (sizeof of_layer / sizeof *of_layer); i++) {
        char name[64];
        const uint64_t k = i / s->layers;
        snprintf(name, sizeof name, "v.blk.%u.%s.weight", (unsigned)(i % s->layers),
                 of_layer[k].name);
        add_tensor(h, name, of_layer[k].out > 0, of_layer[k].out ? 2 : 1,
                   (uint64_t[]){of_layer[k].in, of_layer[k].out});
        *strstr(name, ".weight") = 0;
        if (s->clamps == CLAMPS_EACH && of_layer[k].out)
            add_clamps(h, name, (uint32_t)(i % s->layers * PRODUCTS + k - VECTORS));
    }
    if (s->clamps == CLAMPS_EACH)
        add_clamps(h, "mm.input_projection", (uint32_t)(s->layers * PRODUCTS));
    if (s->clamps == CLAMPS_PACKED) {
        float all[4 * (PRODUCTS + 1)]; /* of one layer, and the last one */
        for (uint32_t i = 0; i <= PRODUCTS; i++) clamps_of(i, &all[4 * i]);
        gguf_make_tensor(&h->make, "v.clamp_data", 0, 1, (uint64_t[]){4 * (PRODUCTS + 1)}, all,
                         sizeof all);
    }
    add_tensor(h, "mm.input_projection.weight", 1, 2, (uint64_t[]){s->width, s->text_width});
    h->head = gguf_make_take(&h->make, &h->size);
    const uint64_t data = s->mixed ? h->size : (h->size + 31) / 32 * 32;
    return (beryl_source){.size = data + h->offset, .user = h, .read = read_headed};
}

/* ---- types ----------------------------------------------------------------------------------- */

enum { TYPES = 23 /* quantised ones that files have */, SIDE = 96 /* pixels */, TEXT = 256 };

/* Soft tokens of one picture by the tower of a made file, whose matrices have so many types. */
static float *of_file(test *t, const beryl_source *file, uint32_t types, const char *choice,
                      size_t *n, bool *none) {
    tower w = {0};
    uint8_t rgb[SIDE * SIDE * 3];
    base_heap_init(&w.heap, NULL);
    base_arena_init(&w.arena, &w.heap);
    w.source = *file;
    beryl_status status = format_gguf_open(&w.heap, &w.source, 1, &w.gguf, &w.error);
    if (status == BERYL_OK) status = tower_make(&w, TEXT, choice, false);
    *none = status == BERYL_NO_DEVICE;
    if (*none) test_skip(t, "%s", w.error.message);
    else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", w.error.message);
    float *out = NULL;
    if (status == BERYL_OK) {
        const uint32_t unit = gemma4_vision_unit(&w.vision), m = SIDE / unit * (SIDE / unit);
        const gemma4_vision_graph *g = &w.sees;
        uint32_t seen = 0;
        for (size_t i = 0; i < sizeof rgb; i++) rgb[i] = (uint8_t)(i * i % 251);
        gemma4_vision_fill(&w.vision, rgb, SIDE, SIDE, input(&w, g->pixels), input(&w, g->columns),
                           input(&w, g->rows), g->angles ? input(&w, g->angles) : NULL);
        const float *got = soft_tokens(t, &w, m);
        *n = (size_t)m * w.vision.d;
        if (got) out = malloc(*n * sizeof *out);
        if (out) memcpy(out, got, *n * sizeof *out);
        for (uint32_t i = 0; i < TYPE_COUNT; i++)
            for (size_t k = 0; k < w.store.tensors.count; k++)
                if (base_type_is_quantised((base_type)i) && w.store.tensors.data[k].type == i) {
                    seen++;
                    break;
                }
        CHECK_INT(t, seen, types);
    }
    tower_close(t, &w);
    return out;
}

/* A device beside the reference functions, which have the same file. */
static void check_types(test *t, const char *choice) {
    static const tower_shape shape = {256, 4, 512, 4, TEXT, 16, true, CLAMPS_NONE};
    headed h;
    const beryl_source file = make_headed(&h, &shape);
    size_t n = 0;
    bool none = false;
    float *want = of_file(t, &file, TYPES, NULL, &n, &none),
          *got = of_file(t, &file, TYPES, choice, &n, &none);
    free(h.head);
    double largest = 0;
    for (size_t i = 0; want && i < n; i++) largest = fmax(largest, fabs((double)want[i]));
    CHECK(t, none || (largest > 0 && isfinite(largest)));
    if (want && got) CHECK_NEAR(t, model_distance(got, want, n) / largest, 0, SOFT_TOLERANCE);
    free(want);
    free(got);
}

/* Clamps in one tensor are those of a tensor each, and change something. */
static void check_clamps(test *t) {
    float *soft[CLAMPS_PACKED + 1];
    size_t n = 0;
    for (uint32_t i = CLAMPS_NONE; i <= CLAMPS_PACKED; i++) {
        const tower_shape shape = {256, 4, 256, 1, TEXT, 16, true, (clamps)i};
        headed h;
        const beryl_source file = make_headed(&h, &shape);
        bool none;
        soft[i] = of_file(t, &file, PRODUCTS + 1, NULL, &n, &none);
        free(h.head);
    }
    if (!test_failed(t)) {
        CHECK(t, !memcmp(soft[CLAMPS_EACH], soft[CLAMPS_PACKED], n * sizeof(float)));
        CHECK(t, model_distance(soft[CLAMPS_EACH], soft[CLAMPS_NONE], n) > 1e-2);
    }
    for (uint32_t i = CLAMPS_NONE; i <= CLAMPS_PACKED; i++) free(soft[i]);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* E2B's tower but for its layers: two use again what the others would. */
static const tower_shape e2b_shape = {768, 12, 3072, 2, 1536, 640, false, CLAMPS_NONE};
enum { SOFT_MOST = 1120 };

/* What a plan for the largest picture takes beside the weights, on a device that is like a GPU. */
static void plan_of_most(test *t, device_language language, bool units) {
    headed h;
    tower w = {0};
    base_heap_init(&w.heap, NULL);
    base_arena_init(&w.arena, &w.heap);
    w.source = make_headed(&h, &e2b_shape);
    graph_exec_info info = {0};
    beryl_status status = format_gguf_open(&w.heap, &w.source, 1, &w.gguf, &w.error);
    while (status == BERYL_OK && (status = format_gguf_step(w.gguf, &w.error)) == BERYL_PENDING) {}
    if (status == BERYL_OK) status = device_open(&w.heap, NULL, "dummy", &w.d, &w.error);
    if (status == BERYL_OK) as_gpu(w.d, language, units);
    if (status == BERYL_OK) status = store_init(&w.store, &w.heap, w.d, &w.source, 1, &w.error);
    if (status == BERYL_OK)
        status = gemma4_vision_add(w.gguf, (uint32_t)e2b_shape.text_width, &w.arena, &w.store,
                                   &w.vision, &w.error);
    if (status == BERYL_OK) status = store_layout(&w.store, 0, &w.error);
    if (status == BERYL_OK) status = store_make(&w.store, &w.error);
    if (status == BERYL_OK)
        status = gemma4_vision_build(&w.vision, &w.store, &w.heap, SOFT_MOST, &w.sees, &w.error);
    w.g = w.sees.g;
    if (status == BERYL_OK)
        status = graph_exec_open(w.g, &w.store, &(graph_exec_options){0}, &w.exec, &w.error);
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", w.error.message);
    else graph_exec_describe(w.exec, &info);
    if (status == BERYL_OK && info.arena_bytes >= 400000000)
        test_fail(t, __FILE__, __LINE__, "%llu bytes", (unsigned long long)info.arena_bytes);
    tower_close(t, &w);
    free(h.head);
}

/* ---- dispatches ------------------------------------------------------------------------------ */

/* Of a picture or a clip, clamped products, two layers each. They may only fall. */
static void check_dispatches(test *t, device_language language, bool hears, uint32_t most) {
    tower w = {.hears = hears, .language = language};
    graph_exec_info info = {0};
    const beryl_status status =
        tower_open(&w, test_data(t, "e2b-mmproj.mmproj.gguf"), 64, "dummy", true);
    if (status == BERYL_OK) graph_exec_describe(w.exec, &info);
    else test_fail(t, __FILE__, __LINE__, "%s", w.error.message);
    if (info.dispatches > most)
        test_fail(t, __FILE__, __LINE__, "%u dispatches, %u at most", info.dispatches, most);
    CHECK(t, status != BERYL_OK || info.dispatches > 20);
    graph_exec_step step; /* what makes keys and values stores them as attention reads them */
    for (uint32_t i = 0; i < info.dispatches && graph_exec_step_at(w.exec, i, &step); i++)
        CHECK(t, !strstr(step.label, "attention_halves"));
    tower_close(t, &w);
}

void test_towers(test *t) {
    static const struct {
        const char *name;
        device_language language;
        uint32_t sees, hears;
    } plans[] = {{"units", DEVICE_CUDA_C, 50, 67}, {"webgpu", DEVICE_WGSL, 48, 67}};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        for (int hears = 0; hears < 2; hears++)
            if (test_case(t, "towers/dispatches/%s-%s", plans[i].name, hears ? "hears" : "sees"))
                check_dispatches(t, plans[i].language, hears,
                                 hears ? plans[i].hears : plans[i].sees);
    if (test_case(t, "towers/clamps-in-one-tensor")) check_clamps(t);
    if (test_case(t, "towers/memory/picture-of-1120-soft-tokens"))
        plan_of_most(t, DEVICE_WGSL, false);
    if (test_case(t, "towers/memory/picture-of-1120-soft-tokens-on-matrix-units"))
        plan_of_most(t, DEVICE_CUDA_C, true);

    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
        if (devices[d].device && !*devices[d].device && !getenv("BERYL_TEST_DEVICE")) continue;
        const bool types = devices[d].device && !devices[d].fast &&
                           (!devices[d].slow || getenv("BERYL_TEST_ALL")); /* 23 texts to compile */
        if (types && test_case(t, "towers/%s/every-type-sees", devices[d].name))
            check_types(t, *devices[d].device ? devices[d].device : getenv("BERYL_TEST_DEVICE"));
        for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
            const bool all = !devices[d].slow;
            if (!devices[d].device && !fixtures[i].small) continue;
            if ((all || test_drawn(2 * i, d, 3)) &&
                test_case(t, "towers/%s/%s-sees", devices[d].name, fixtures[i].name))
                run(t, i, d, false);
            if (fixtures[i].hears && (all || test_drawn(2 * i + 1, d, 3)) &&
                test_case(t, "towers/%s/%s-hears", devices[d].name, fixtures[i].name))
                run(t, i, d, true);
        }
    }
}
