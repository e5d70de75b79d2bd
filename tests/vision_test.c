/* vision_test.c - the vision tower against soft tokens that another implementation computed, from the
 * pictures that it resized, on every device. */
#define _POSIX_C_SOURCE 200809L
#include "model.h"
#include "rig.h"

#include "gemma4/vision.h"

#include <math.h>
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SOFT_MAX = 70 };

/* Of the largest number of a picture's soft tokens: README of the fixtures, for sums in F32. */
#define VISION_TOLERANCE 1e-3

static const struct {
    const char *name, *file;
    bool small; /* on the reference functions too */
} fixtures[] = {
    {"e2b-mm", "e2b-mm.gguf", false},               /* a merged file, clamped products */
    {"e2b-mmproj", "e2b-mmproj.mmproj.gguf", true}, /* a file of its own */
    {"31b-vision", "31b-vision.gguf", false},       /* soft tokens are standardised, heads of 36 */
    {"12b-mm", "12b-mm.mmproj.gguf", true},         /* no tower */
};

static const struct {
    const char *name, *device; /* NULL: the reference functions */
} devices[] = {
    {"reference", NULL},           {"host", "host"}, {"opencl", "opencl"},
    {"webgpu", "webgpu:software"}, {"chosen", ""}, /* BERYL_TEST_DEVICE */
};

typedef struct tower {
    base_heap heap;
    base_arena arena;
    device *d;
    format_gguf *gguf;
    beryl_source source;
    graph_store store;
    gemma4_vision vision;
    gemma4_vision_graph graph;
    graph_exec *exec;
    beryl_error error;
} tower;

static beryl_status tower_open(tower *w, const char *path, uint32_t d, const char *choice) {
    base_heap_init(&w->heap, NULL);
    base_arena_init(&w->arena, &w->heap);
    beryl_status status = format_gguf_open_path(&w->heap, path, &w->gguf, &w->error);
    while (status == BERYL_OK && (status = format_gguf_step(w->gguf, &w->error)) == BERYL_PENDING) {
    }
    if (status == BERYL_OK && choice)
        status = device_open(&w->heap, NULL, choice, &w->d, &w->error);
    if (status != BERYL_OK) return status;
    w->source = *format_gguf_source(w->gguf, 0);
    status = store_init(&w->store, &w->heap, w->d, &w->source, 1, &w->error);
    if (status == BERYL_OK)
        status = gemma4_vision_add(w->gguf, d, &w->arena, &w->store, &w->vision, &w->error);
    if (status == BERYL_OK) status = store_layout(&w->store, 0, &w->error);
    if (status == BERYL_OK) status = store_make(&w->store, &w->error);
    if (status == BERYL_OK) do
            status = store_upload_step(&w->store, &w->error);
        while (status == BERYL_EVENT || status == BERYL_PENDING);
    if (status == BERYL_OK)
        status =
            gemma4_vision_build(&w->vision, &w->store, &w->heap, SOFT_MAX, &w->graph, &w->error);
    const graph_exec_options exact = {.exact = true};
    if (status == BERYL_OK)
        status = graph_exec_open(w->graph.g, &w->store, &exact, &w->exec, &w->error);
    return status == BERYL_OK ? rig_exec_compiled(w->exec, &w->error) : status;
}

static void tower_close(test *t, tower *w) {
    graph_exec_close(w->exec);
    graph_close(w->graph.g);
    store_fini(&w->store);
    device_close(w->d);
    format_gguf_close(w->gguf);
    base_arena_fini(&w->arena);
    CHECK_INT(t, w->heap.bytes, 0);
}

static uint8_t *read_picture(test *t, const char *file, uint32_t *width, uint32_t *height) {
    png_image png = {.version = PNG_IMAGE_VERSION};
    uint8_t *rgb = NULL;
    if (png_image_begin_read_from_file(&png, test_data(t, file))) {
        png.format = PNG_FORMAT_RGB;
        rgb = malloc(PNG_IMAGE_SIZE(png));
        if (rgb && !png_image_finish_read(&png, NULL, rgb, 0, NULL)) {
            free(rgb);
            rgb = NULL;
        }
    }
    if (!rgb) test_fail(t, __FILE__, __LINE__, "%s: %s", file, png.message);
    *width = png.width;
    *height = png.height;
    png_image_free(&png);
    return rgb;
}

/* [m, d] of the run; NULL: failed. */
static const float *soft_tokens(test *t, tower *w, const char *picture, uint32_t *m) {
    uint32_t width, height;
    uint8_t *rgb = read_picture(t, picture, &width, &height);
    const uint32_t unit = gemma4_vision_unit(&w->vision);
    const void *out = NULL;
    if (rgb && (width % unit || height % unit || width / unit * (height / unit) > SOFT_MAX)) {
        test_fail(t, __FILE__, __LINE__, "%s has %u x %u pixels", picture, width, height);
    } else if (rgb) {
        const gemma4_vision_graph *g = &w->graph;
        uint32_t extents[GRAPH_EXTENT_MAX + 1] = {0};
        device_ticket ticket = {0};
        extents[g->extent] = *m = width / unit * (height / unit);
        gemma4_vision_fill(&w->vision, rgb, width, height, graph_exec_input(w->exec, g->pixels),
                           graph_exec_input(w->exec, g->columns),
                           graph_exec_input(w->exec, g->rows),
                           g->angles ? graph_exec_input(w->exec, g->angles) : NULL);
        beryl_status status = graph_exec_submit(w->exec, extents, &g->soft, 1, &ticket, &w->error);
        if (status == BERYL_OK && w->d) status = device_wait(w->d, ticket, &w->error);
        if (status == BERYL_OK) status = graph_exec_fetched(w->exec, ticket, 0, &out, &w->error);
        if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", w->error.message);
    }
    free(rgb);
    return out;
}

static void compare(test *t, tower *w, model_ref *ref, uint32_t n) {
    char name[64], file[64];
    base_view picture = {0};
    uint32_t m = 0;
    snprintf(name, sizeof name, "case.%u.resized", n);
    if (format_gguf_get_string(ref->gguf, name, &picture, NULL) != BERYL_OK) return;
    snprintf(file, sizeof file, "%.*s", (int)picture.size, picture.data);
    snprintf(name, sizeof name, "case.%u.soft_tokens", n);
    const format_gguf_tensor *soft = format_gguf_tensor_find(ref->gguf, name);
    float *want = soft ? malloc(soft->size) : NULL;
    const beryl_source *source = format_gguf_source(ref->gguf, 0);
    CHECK(t, want && source->read(source->user, soft->offset, want, soft->size) == BERYL_OK);
    const float *got = want ? soft_tokens(t, w, file, &m) : NULL;
    if (got && (soft->ne[1] != m || soft->ne[0] != w->vision.d)) {
        test_fail(t, __FILE__, __LINE__, "%s: %u soft tokens of %u", file, m, w->vision.d);
    } else if (got) {
        double largest = 0;
        for (size_t i = 0; i < (size_t)m * w->vision.d; i++)
            largest = fmax(largest, fabs((double)want[i]));
        const double distance = model_distance(got, want, (size_t)m * w->vision.d);
        if (!(distance <= VISION_TOLERANCE * largest))
            test_fail(t, __FILE__, __LINE__, "%s: off by %g of %g", file, distance, largest);
    }
    free(want);
}

static void run(test *t, size_t fixture, size_t at) {
    const char *choice = devices[at].device;
    if (choice && !*choice) choice = getenv("BERYL_TEST_DEVICE");
    tower w = {0};
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
    const beryl_status status = tower_open(&w, path, soft ? (uint32_t)soft->ne[0] : 0, choice);
    if (status == BERYL_NO_DEVICE) test_skip(t, "%s", w.error.message);
    else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", w.error.message);
    for (uint32_t i = 0; status == BERYL_OK && i < ref.n_case && !test_failed(t); i++, n++)
        compare(t, &w, &ref, i);
    tower_close(t, &w);
    model_ref_close(&ref);
}

void test_vision(test *t) {
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
        if (devices[d].device && !*devices[d].device && !getenv("BERYL_TEST_DEVICE")) continue;
        for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++)
            if ((devices[d].device || fixtures[i].small) &&
                test_case(t, "vision/%s/%s", devices[d].name, fixtures[i].name))
                run(t, i, d);
    }
}
