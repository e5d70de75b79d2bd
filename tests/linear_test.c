/* linear_test.c - products with many vectors and with experts on WebGPU's device, against the
 * reference functions: vectors with gaps, rows of weights, sizes around a tile, gated products.
 * What types and shards have of their own is in products_test.c.
 *
 * The device is what there is, but its capabilities are set here: so a software device runs the
 * forms meant for large ones, and a small binding limit makes weights of several shards. Sizes
 * are as small as the property allows. */
#include "blocks.h"
#include "test.h"

#include "base/thread.h"
#include "graph/reference.h"
#include "graph/text.h"
#include "plan/exec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct rig {
    base_heap heap;
    device *d;
    device_caps caps; /* as they are */
    beryl_error error;
} rig;

/* Opened by the first case that is wanted. false: there is no device. */
static bool rig_ready(test *t, rig *r) {
    if (r->d) return true;
    if (!r->error.code) {
        base_heap_init(&r->heap, NULL);
        if (device_open(&r->heap, NULL, "webgpu", &r->d, &r->error) == BERYL_OK) {
            r->caps = r->d->caps;
            return true;
        }
    }
    if (r->error.code == BERYL_NO_DEVICE) test_skip(t, "%s", r->error.message);
    else test_fail(t, __FILE__, __LINE__, "device_open: %s", r->error.message);
    return false;
}

static beryl_status source_read(void *user, uint64_t offset, void *to, size_t size) {
    memcpy(to, (const char *)user + offset, size);
    return BERYL_OK;
}

/* ---- one product, twice ---------------------------------------------------------------------- */

typedef struct problem {
    base_type type;
    uint32_t n, n_bound, k, m;
    uint32_t gap, start;       /* elements between the vectors, before the first */
    uint32_t n_expert, n_used; /* n_expert 0: no experts; n_used: of each vector */
    bool each;                 /* a vector for each expert used */
    /* the m rows are gate and up: gelu(gate) * up, joined by the passes */
    bool gated;
    uint32_t first, view; /* view: rows [first, first + view) of the m rows, 0: all */
    /* bytes of the largest binding while weights are placed, 0: the device's */
    uint32_t limit;
    bool exact;
    bool trains; /* in a graph with segments */
    bool halved; /* its sums are */
} problem;

typedef struct product {
    graph *g;
    graph_value x, ids, out;
    graph_store store;
    graph_exec *exec;
} product;

static beryl_status product_open(rig *r, product *p, const problem *q, const beryl_source *source,
                                 device *d) {
    const uint32_t dim[3] = {q->n_expert, q->m, q->k};
    beryl_status status = store_init(&p->store, &r->heap, d, source, 1, &r->error);
    const uint32_t w = store_add_weight(&p->store, "w", q->type, q->n_expert ? 3 : 2,
                                        q->n_expert ? dim : dim + 1, 0, 0, 0, false);
    if (d && q->limit) d->caps.binding_max = q->limit;
    uint32_t up = 0;
    if (q->gated)
        up = store_add_weight(&p->store, "up", q->type, 2, dim + 1, 0, 0, source->size / 2, false);
    if (status == BERYL_OK) status = store_layout(&p->store, 0, &r->error);
    if (d) d->caps.binding_max = r->caps.binding_max;
    if (status == BERYL_OK) status = store_make(&p->store, &r->error);
    while (status == BERYL_OK && (status = store_upload_step(&p->store, &r->error)) != BERYL_OK)
        if (status == BERYL_EVENT || status == BERYL_PENDING) status = BERYL_OK;
    p->g = graph_open(&r->heap);
    const uint8_t n = graph_extent_add(p->g, "n", q->n_bound);
    const uint32_t row = q->start + q->k + q->gap;
    graph_value weight = graph_stored(p->g, &p->store, w);
    if (q->view) weight = graph_narrow(p->g, weight, 0, q->first, q->view, 1);
    if (q->n_expert) {
        p->ids =
            graph_input(p->g, "ids", TYPE_I32, 2, (graph_dim[]){{q->n_bound, n}, {q->n_used, 0}});
        p->x = graph_input(p->g, "x", TYPE_F32, 3,
                           (graph_dim[]){{q->n_bound, n}, {q->each ? q->n_used : 1, 0}, {row, 0}});
        p->out =
            graph_linear_id(p->g, graph_narrow(p->g, p->x, 2, q->start, q->k, 1), weight, p->ids);
    } else {
        p->x = graph_input(p->g, "x", TYPE_F32, 2, (graph_dim[]){{q->n_bound, n}, {row, 0}});
        const graph_value x = graph_narrow(p->g, p->x, 1, q->start, q->k, 1);
        if (q->trains) graph_recompute_begin(p->g);
        p->out = graph_linear(p->g, x, weight);
        if (q->trains) graph_recompute_end(p->g);
        if (q->gated)
            p->out =
                graph_geglu(p->g, p->out, graph_linear(p->g, x, graph_stored(p->g, &p->store, up)));
    }
    graph_output(p->g, p->out, "out");
    if (status == BERYL_OK) status = graph_status(p->g, &r->error);
    if (status == BERYL_OK)
        status = graph_exec_open(p->g, &p->store, &(graph_exec_options){.exact = q->exact},
                                 &p->exec, &r->error);
    while (status == BERYL_OK && (status = graph_exec_ready(p->exec, &r->error)) == BERYL_PENDING)
        base_sleep(2e-4), status = BERYL_OK;
    return status;
}

static void product_close(product *p) {
    graph_exec_close(p->exec);
    graph_close(p->g);
    store_fini(&p->store);
}

/* How often its plan has the word: "store" where a dispatch reads a weight. */
static uint32_t product_count(rig *r, product *p, const char *word) {
    base_text text;
    uint32_t n = 0;
    base_text_init(&text, &r->heap);
    graph_exec_print(p->exec, &text);
    for (const char *at = text.data; at && (at = strstr(at, word)) != NULL; at++) n++;
    base_text_fini(&text);
    return n;
}

static beryl_status product_run(rig *r, product *p, const problem *q, const float *x,
                                const int32_t *ids, const float **out) {
    const uint32_t row = q->start + q->k + q->gap, vectors = q->n * (q->each ? q->n_used : 1);
    const uint32_t extents[2] = {0, q->n};
    device_ticket ticket;
    const void *data;
    memcpy(graph_exec_input(p->exec, p->x), x, (size_t)vectors * row * sizeof *x);
    if (q->n_expert)
        memcpy(graph_exec_input(p->exec, p->ids), ids, (size_t)q->n * q->n_used * sizeof *ids);
    beryl_status status = graph_exec_submit(p->exec, extents, &p->out, 1, &ticket, &r->error);
    if (status == BERYL_OK && p->store.device)
        status = device_wait(p->store.device, ticket, &r->error);
    if (status == BERYL_OK) status = graph_exec_fetched(p->exec, ticket, 0, &data, &r->error);
    if (status == BERYL_OK) *out = data;
    return status;
}

/* no expert twice for a vector */
static int32_t *ids_of(const problem *q, uint32_t *state) {
    int32_t *ids = calloc((size_t)q->n * q->n_used + 1, sizeof *ids);
    for (uint32_t i = 0; i < q->n; i++) {
        const uint32_t first = blocks_next(state);
        for (uint32_t j = 0; j < q->n_used; j++) {
            const uint32_t e = first + j * (1 + q->n_expert / (q->n_used + 1));
            ids[i * q->n_used + j] = (int32_t)(e % q->n_expert);
        }
    }
    return ids;
}

/* Relative error of the device's result (root of mean squares), 1e9 where it did not run. */
static double error_of(test *t, rig *r, const problem *q) {
    const uint32_t rows = (q->n_expert ? q->n_expert
                           : q->gated  ? 2
                                       : 1) *
                          q->m,
                   row = q->start + q->k + q->gap;
    const uint64_t n_x = (uint64_t)q->n * (q->each ? q->n_used : 1) * row,
                   bytes = base_type_row_bytes(q->type, q->k) * rows;
    unsigned char *weights = malloc((size_t)bytes);
    float *x = malloc((size_t)n_x * sizeof *x);
    uint32_t state = 12345;
    blocks_fill_by(q->type, bytes, weights, 77, 0.1f);
    for (uint64_t i = 0; i < n_x; i++) x[i] = blocks_unit(&state);
    int32_t *ids = ids_of(q, &state);
    const beryl_source source = {.size = bytes, .user = weights, .read = source_read};
    problem reference = *q;
    reference.exact = true;
    product a = {0}, b = {0};
    const float *want = NULL, *got = NULL;
    double error = 1e9;
    if (product_open(r, &a, &reference, &source, NULL) || product_run(r, &a, q, x, ids, &want) ||
        product_open(r, &b, q, &source, r->d) || product_run(r, &b, q, x, ids, &got)) {
        test_fail(t, __FILE__, __LINE__, "%s n %u k %u m %u: %s", base_type_name(q->type), q->n,
                  q->k, q->m, r->error.message);
    } else {
        double difference = 0, size = 1e-30;
        const uint64_t n_out =
            (uint64_t)q->n * (q->n_expert ? q->n_used : 1) * (q->view ? q->view : q->m);
        for (uint64_t i = 0; i < n_out; i++) {
            const double d = (double)got[i] - (double)want[i];
            difference += d * d;
            size += (double)want[i] * (double)want[i];
        }
        error = sqrt(difference / size);
        if (isnan(error)) error = 1e9;
        /* tiles of bytes are joined, others are a dispatch each */
        const bool tiles = !q->exact && r->d->caps.kind != DEVICE_SOFTWARE;
        if (q->gated) CHECK_INT(t, product_count(r, &b, "store"), tiles ? 1 : 2);
        if (q->halved) CHECK_INT(t, product_count(r, &b, "linear_parts"), q->gated ? 2 : 1);
    }
    product_close(&a);
    product_close(&b);
    free(ids);
    free(x);
    free(weights);
    return error;
}

/* f32 sums differ by their order alone; int8 activations by about 0.4 % of a vector's size. */
static void check(test *t, rig *r, const problem *q) {
    const double error = error_of(t, r, q), most = q->exact ? 3e-6 : 1e-2;
    if (!(error <= most))
        test_fail(t, __FILE__, __LINE__, "%s n %u of %u k %u m %u %s: error %g",
                  base_type_name(q->type), q->n, q->n_bound, q->k, q->m,
                  q->exact ? "exact" : "fast", error);
}

/* ---- forms ----------------------------------------------------------------------------------- */

static bool rig_as(test *t, rig *r, bool software) {
    if (!rig_ready(t, r)) return false;
    r->d->caps = r->caps;
    r->d->caps.kind = software ? DEVICE_SOFTWARE : DEVICE_DISCRETE;
    r->d->caps.dot_i8 = !software;
    r->d->caps.compute_units = 0;
    return true;
}

static const base_type weight_types[] = {
    TYPE_F32,    TYPE_F16,   TYPE_BF16,  TYPE_Q4_0,    TYPE_Q4_1,    TYPE_Q5_0,    TYPE_Q5_1,
    TYPE_Q8_0,   TYPE_Q2_K,  TYPE_Q3_K,  TYPE_Q4_K,    TYPE_Q5_K,    TYPE_Q6_K,    TYPE_IQ4_NL,
    TYPE_IQ4_XS, TYPE_MXFP4, TYPE_NVFP4, TYPE_F8_E4M3, TYPE_F8_E5M2, TYPE_AFFINE8, TYPE_AFFINE4};
enum { N_WEIGHT_TYPE = sizeof weight_types / sizeof *weight_types };

static void test_types(test *t, rig *r) {
    for (int i = 0; i < N_WEIGHT_TYPE; i++) {
        const base_type type = weight_types[i];
        const uint32_t block = base_type_block(type);
        if (!test_case(t, "linear/many-vectors-%s", base_type_name(type))) continue;
        for (int form = 0; form < 3; form++) { /* software, exact, fast */
            if ((form == 2 && block == 1) ||
                !test_drawn((size_t)i, (size_t)form, block == 1 ? 2 : 3) ||
                !rig_as(t, r, form == 0))
                continue;
            problem q = {.type = type,
                         .n = 34,
                         .n_bound = 35,
                         .k = block == 1    ? 80
                              : block == 32 ? 96
                                            : 512,
                         .m = 37,
                         .exact = form < 2};
            check(t, r, &q);
            if (block != 1 || form == 1) continue;
            for (q.k = 1; q.k <= 35; q.k = q.k * 3 + 2) check(t, r, &q); /* 1, 5, 17 */
        }
    }
}

static void test_layouts(test *t, rig *r) {
    for (int software = 0; software < 2; software++) {
        if (test_case(t, "linear/vectors-with-gaps-%s", software ? "plain" : "tiled") &&
            rig_as(t, r, software)) {
            for (int exact = 0; exact < 2; exact++) {
                check(t, r,
                      &(problem){.type = TYPE_Q8_0,
                                 .n = 33,
                                 .n_bound = 40,
                                 .k = 64,
                                 .m = 9,
                                 .gap = 4,
                                 .start = 8,
                                 .exact = exact});
                check(t, r,
                      &(problem){.type = TYPE_Q8_0,
                                 .n = 33,
                                 .n_bound = 40,
                                 .k = 64,
                                 .m = 9,
                                 .gap = 1,
                                 .start = 2,
                                 .exact = exact});
            }
        }
        if (test_case(t, "linear/around-the-tile-%s", software ? "plain" : "tiled") &&
            rig_as(t, r, software)) {
            static const uint32_t sizes[] = {1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129};
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                check(t, r,
                      &(problem){.type = TYPE_Q4_1,
                                 .n = sizes[i],
                                 .n_bound = 130,
                                 .k = 32,
                                 .m = 65,
                                 .exact = i % 2 == 0});
                check(t, r,
                      &(problem){.type = TYPE_F16,
                                 .n = 35,
                                 .n_bound = 64,
                                 .k = 17,
                                 .m = sizes[i],
                                 .exact = true});
            }
        }
        if (test_case(t, "linear/few-long-rows-%s", software ? "plain" : "tiled") &&
            rig_as(t, r, software)) /* in parts: 640 is a multiple of theirs, 601 is not */
            for (uint32_t k = 601; k <= 640; k += 39)
                check(t, r,
                      &(problem){.type = TYPE_F32,
                                 .n = 65,
                                 .n_bound = 70,
                                 .k = k,
                                 .m = 15 + k % 2,
                                 .gap = 3,
                                 .start = 1,
                                 .exact = true,
                                 .trains = true});
        /* five tiles for four units; of the second one's halves one is shorter */
        if (!software && test_case(t, "linear/halves-of-sums") && rig_as(t, r, false)) {
            problem q = {.type = TYPE_F16,
                         .n = 40,
                         .n_bound = 640,
                         .k = 2048,
                         .m = 128,
                         .exact = true,
                         .halved = true};
            r->d->caps.compute_units = 4;
            check(t, r, &q);
            q.gated = true;
            check(t, r, &q);
            q.gated = false, q.type = TYPE_F32, q.k = 2054, q.m = 121, q.gap = 3, q.start = 1;
            check(t, r, &q);
        }
        if (test_case(t, "linear/rows-of-a-weight-%s", software ? "plain" : "tiled") &&
            rig_as(t, r, software))
            check(t, r,
                  &(problem){.type = TYPE_Q5_0,
                             .n = 40,
                             .n_bound = 40,
                             .k = 64,
                             .m = 90,
                             .first = 13,
                             .view = 70,
                             .exact = true});
        if (test_case(t, "linear/gate-and-up-%s", software ? "plain" : "tiled") &&
            rig_as(t, r, software)) {
            check(t, r,
                  &(problem){.type = TYPE_Q5_0,
                             .n = 40,
                             .n_bound = 41,
                             .k = 64,
                             .m = 90,
                             .gated = true,
                             .exact = true});
            check(t, r,
                  &(problem){
                      .type = TYPE_Q4_K, .n = 70, .n_bound = 70, .k = 256, .m = 67, .gated = true});
            check(t, r,
                  &(problem){.type = TYPE_F16,
                             .n = 130,
                             .n_bound = 130,
                             .k = 33,
                             .m = 131,
                             .gated = true,
                             .exact = true});
        }
        if (test_case(t, "linear/rows-of-shards-%s", software ? "plain" : "tiled") &&
            rig_as(t, r, software))
            for (int exact = 0; exact < 2; exact++)
                check(t, r,
                      &(problem){.type = TYPE_Q4_K,
                                 .n = 33,
                                 .n_bound = 34,
                                 .k = 256,
                                 .m = 120,
                                 .first = 1,
                                 .view = 117,
                                 .limit = 9000,
                                 .exact = exact});
    }
}

static void test_experts(test *t, rig *r) {
    /* pairs: 10, 140 */
    static const struct {
        const char *name;
        uint32_t n;
    } sizes[] = {{"few", 5}, {"many", 70}};
    for (int software = 0; software < 2; software++)
        for (int size = 0; size < 2; size++) {
            const char *name = sizes[size].name, *kind = software ? "plain" : "device";
            const uint32_t n = sizes[size].n;
            if (test_case(t, "linear_id/%s-%s", name, kind) && rig_as(t, r, software)) {
                for (int exact = 0; exact < 2; exact++)
                    for (int each = 0; each < 2; each++)
                        check(t, r,
                              &(problem){.type = TYPE_Q4_K,
                                         .n = n,
                                         .n_bound = n + 1,
                                         .k = 256,
                                         .m = 21,
                                         .n_expert = 6,
                                         .n_used = 2,
                                         .each = each,
                                         .exact = exact});
                check(t, r,
                      &(problem){.type = TYPE_Q5_0,
                                 .n = n,
                                 .n_bound = n,
                                 .k = 96,
                                 .m = 70,
                                 .n_expert = 300,
                                 .n_used = 2});
                check(t, r,
                      &(problem){.type = TYPE_F16,
                                 .n = n,
                                 .n_bound = n,
                                 .k = 33,
                                 .m = 9,
                                 .n_expert = 3,
                                 .n_used = 2,
                                 .exact = true});
                check(t, r,
                      &(problem){.type = TYPE_F32,
                                 .n = n,
                                 .n_bound = n,
                                 .k = 48,
                                 .m = 66,
                                 .n_expert = 3,
                                 .n_used = 2,
                                 .gap = 1,
                                 .start = 1,
                                 .each = true,
                                 .exact = true});
            }
        }
}

/* ---- weights that come late ------------------------------------------------------------------ */

/* Asked for another place than before it has nothing yet, as a page's file. */
typedef struct late {
    unsigned char *bytes;
    uint64_t offset, waited;
    bool is_late;
} late;

static beryl_status late_read(void *user, uint64_t offset, void *to, size_t size) {
    late *l = user;
    const bool waits = l->is_late && l->offset != offset;
    l->offset = offset;
    l->waited += waits;
    if (!waits) memcpy(to, l->bytes + offset, size);
    return waits ? BERYL_PENDING : BERYL_OK;
}

/* The results of two products, one behind the other. NULL: failed. The caller frees. */
static float *late_products(test *t, const late *l, bool is_late, uint64_t *took) {
    static const char text[] =
        "extent n 3\n%1 = input F32 [n 512] \"x\"\n%2 = weight Q8_0 [2048 512] \"a\"\n%3 = linear "
        "%1 %2\n%4 = weight F16 [96 2048] \"b\"\n%5 = linear %3 %4\noutput %5 \"y\"\n";
    late own = *l;
    beryl_source source = {.read = late_read, .user = &own, .size = 2 << 20};
    base_heap heap;
    graph_store store;
    graph_reference *r = NULL;
    beryl_error error = {0};
    uint64_t bytes;
    float *out = NULL;
    base_heap_init(&heap, NULL);
    own.is_late = is_late;
    own.offset = UINT64_MAX;
    graph *g = graph_open(&heap);
    beryl_status status = store_init(&store, &heap, NULL, &source, 1, &error);
    if (status == BERYL_OK)
        status = graph_text_parse(text, strlen(text), g, &store, &bytes, &error);
    if (status == BERYL_OK) status = store_layout(&store, 0, &error);
    if (status == BERYL_OK) status = store_make(&store, &error);
    if (status == BERYL_OK) status = graph_reference_open(g, &store, &r, &error);
    if (status == BERYL_OK) {
        float *x = graph_reference_input(r, 1);
        for (int i = 0; i < 3 * 512; i++) x[i] = (float)(i % 61) / 64 - 0.5f;
        const uint64_t before = heap.bytes_peak = heap.bytes;
        while ((status = graph_reference_run(r, (uint32_t[]){0, 3}, &error)) == BERYL_PENDING) {}
        *took = heap.bytes_peak - before;
        CHECK(t, !is_late || own.waited > 4);
    }
    if (status == BERYL_OK && (out = malloc(3 * 96 * sizeof *out)))
        memcpy(out, graph_reference_value(r, 5), 3 * 96 * sizeof *out);
    if (!out) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    graph_reference_close(r);
    graph_close(g);
    store_fini(&store);
    CHECK_INT(t, heap.bytes, 0);
    return out;
}

static void test_late(test *t) {
    if (!test_case(t, "linear/weights-come-late-and-by-a-window")) return;
    late l = {.bytes = malloc(2 << 20)};
    uint64_t took[2] = {0};
    blocks_fill(TYPE_Q8_0, 2048 * 16 * 34, l.bytes, 5);
    blocks_fill(TYPE_F16, (2 << 20) - 2048 * 16 * 34, l.bytes + 2048 * 16 * 34, 6);
    float *at_once = late_products(t, &l, false, &took[0]),
          *later = late_products(t, &l, true, &took[1]);
    if (at_once && later) CHECK(t, !memcmp(at_once, later, 3 * 96 * sizeof *later));
    CHECK(t, at_once && at_once[5] != 0);
    /* the weights are 1.5 MB */
    for (int i = 0; i < 2; i++) CHECK(t, took[i] > 0 && took[i] < 512 << 10);
    free(at_once);
    free(later);
    free(l.bytes);
}

void test_linear(test *t);
void test_linear(test *t) {
    test_late(t);
    rig r = {0};
    test_types(t, &r);
    test_layouts(t, &r);
    test_experts(t, &r);
    if (!r.d) return;
    r.d->caps = r.caps;
    device_close(r.d);
    if (test_case(t, "linear/nothing-is-kept")) CHECK_INT(t, r.heap.bytes, 0);
}
