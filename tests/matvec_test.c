/* matvec_test.c - the matvec kernel and gather_rows straight on a device: every weight type in
 * every form, against products in double of the dequantised weights; and the choice of the form.
 * Shapes: weight [m, k], vectors [n, k]. */
#include "test.h"

#include "base/thread.h"
#include "kernels/lower/matvec.h"
#include "graph/pack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const base_type weight_types[] = {TYPE_F32,   TYPE_F16,  TYPE_BF16, TYPE_Q4_0,   TYPE_Q4_1,
                                         TYPE_Q5_0,  TYPE_Q5_1, TYPE_Q8_0, TYPE_Q2_K,   TYPE_Q3_K,
                                         TYPE_Q4_K,  TYPE_Q5_K, TYPE_Q6_K, TYPE_IQ4_NL, TYPE_IQ4_XS,
                                         TYPE_MXFP4, TYPE_NVFP4};
enum { N_WEIGHT_TYPE = sizeof weight_types / sizeof *weight_types };

/* ---- a device and a kernel on it ------------------------------------------------------------- */

typedef struct rig {
    base_heap heap;
    base_arena arena;
    device *d;
    beryl_error error;
} rig;

static bool rig_open(test *t, rig *r) {
    *r = (rig){0};
    base_heap_init(&r->heap, NULL);
    base_arena_init(&r->arena, &r->heap);
    const beryl_status status = device_open(&r->heap, NULL, "webgpu:software", &r->d, &r->error);
    if (status == BERYL_NO_DEVICE) test_skip(t, "%s", r->error.message);
    else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", r->error.message);
    return status == BERYL_OK;
}

static void rig_close(test *t, rig *r) {
    device_close(r->d);
    base_arena_fini(&r->arena);
    CHECK_INT(t, r->heap.bytes, 0);
}

/* number: of an f32 parameter */
typedef struct argument {
    const char *name;
    uint32_t value;
    float number;
} argument;
typedef struct storage {
    const char *name;
    const void *data;
    size_t size;
    device_buffer buffer;
} storage;

static size_t padded(size_t size) {
    return (size + 15) / 16 * 16;
}

static device_buffer buffer_of(test *t, rig *r, const storage *s) {
    device_buffer buffer = {0};
    void *copy = calloc(1, padded(s->size));
    if (s->data) memcpy(copy, s->data, s->size);
    if (device_buffer_make(r->d, padded(s->size), s->name, &buffer, &r->error) ||
        device_write(r->d, buffer, 0, copy, padded(s->size), &r->error))
        test_fail(t, __FILE__, __LINE__, "%s", r->error.message);
    free(copy);
    return buffer;
}

/* Builds, binds and runs once; the bytes of storage `want` come back in `to`. Storages without a
 * buffer get one. */
static bool run(test *t, rig *r, const kernels_request *request, storage *storages,
                uint32_t n_storage, const argument *arguments, uint32_t n_argument,
                const uint32_t groups[3], const char *want, void *to) {
    kernels_text k;
    device_program program;
    device_bindings bindings;
    device_binding bound[DEVICE_BINDING_MAX] = {0};
    uint32_t params[KERNELS_PARAM_MAX] = {0};
    beryl_status status = kernels_build(&r->arena, request, &k, &r->error);
    if (status != BERYL_OK) return test_fail(t, __FILE__, __LINE__, "%s", r->error.message), false;
    for (uint32_t i = 0; i < k.n_param; i++) {
        bool found = false;
        for (uint32_t j = 0; j < n_argument; j++) {
            if (strcmp(k.params[i].name, arguments[j].name)) continue;
            found = true;
            if (k.params[i].is_float) memcpy(&params[i], &arguments[j].number, 4);
            else params[i] = arguments[j].value;
        }
        if (!found) test_fail(t, __FILE__, __LINE__, "no value for %s", k.params[i].name);
    }
    device_buffer result = {0};
    size_t size = 0;
    for (uint32_t i = 0; i < n_storage; i++) {
        const int at = kernels_binding_find(&k, storages[i].name);
        if (at < 0) continue;
        if (!storages[i].buffer.id) storages[i].buffer = buffer_of(t, r, &storages[i]);
        bound[at].buffer = storages[i].buffer;
        if (!strcmp(storages[i].name, want))
            result = storages[i].buffer, size = padded(storages[i].size);
    }
    device_program_desc desc = {.source = k.text,
                                .source_size = k.size,
                                .label = request->file,
                                .n_binding = k.n_binding,
                                .param_bytes = k.n_param * 4,
                                .workgroup = {k.workgroup[0], 1, 1},
                                .uses_f16 = k.uses_f16,
                                .uses_subgroups = k.uses_subgroups};
    for (uint32_t i = 0; i < k.n_binding; i++) desc.access[i] = k.bindings[i].access;
    status = device_program_make(r->d, &desc, &program, &r->error);
    while (status == BERYL_OK &&
           (status = device_program_status(r->d, program, &r->error)) == BERYL_PENDING) {
        base_sleep(2e-4);
        status = BERYL_OK;
    }
    if (status == BERYL_OK)
        status = device_bindings_make(r->d, program, bound, k.n_binding, &bindings, &r->error);
    device_command list[2] = {{.kind = DEVICE_DISPATCH}, {.kind = DEVICE_FETCH}};
    device_ticket ticket = 0;
    const void *data = NULL;
    if (status == BERYL_OK) {
        list[0].dispatch.program = program;
        list[0].dispatch.bindings = bindings;
        memcpy(list[0].dispatch.groups, groups, sizeof list[0].dispatch.groups);
        list[1].fetch.buffer = result;
        list[1].fetch.size = size;
        status = device_submit(r->d, &(device_submit_desc){list, 2, params, k.n_param * 4}, &ticket,
                               &r->error);
    }
    if (status == BERYL_OK) status = device_wait(r->d, ticket, &r->error);
    if (status == BERYL_OK) status = device_fetched(r->d, ticket, 0, &data, &size, &r->error);
    if (status == BERYL_OK) memcpy(to, data, size);
    else test_fail(t, __FILE__, __LINE__, "%s: %s", request->file, r->error.message);
    if (ticket) device_fetch_drop(r->d, ticket);
    return status == BERYL_OK;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static uint32_t next(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static float number(uint32_t *state) { /* in -1 .. 1 */
    return (float)next(state) * 0x1p-23f - 1;
}

/* Where a block has halves (d, m or dmin), so that they can be given sane values. */
static uint32_t halves_of(base_type type, uint32_t at[2]) {
    switch ((int)type) {
    case TYPE_Q2_K: at[0] = 80, at[1] = 82; return 2;
    case TYPE_Q4_1:
    case TYPE_Q5_1:
    case TYPE_Q4_K:
    case TYPE_Q5_K: at[0] = 0, at[1] = 2; return 2;
    case TYPE_Q3_K: at[0] = 108; return 1;
    case TYPE_Q6_K: at[0] = 208; return 1;
    case TYPE_F32:
    case TYPE_F16:
    case TYPE_BF16:
    case TYPE_MXFP4:
    case TYPE_NVFP4: return 0;
    default: at[0] = 0; return 1;
    }
}

static uint8_t *weights_make(base_type type, uint32_t m, uint32_t k, uint32_t seed) {
    const uint64_t size = base_type_row_bytes(type, k) * m,
                   blocks = (uint64_t)m * (k / base_type_block(type));
    uint8_t *bytes = malloc((size_t)size);
    for (uint64_t i = 0; i < size; i++) bytes[i] = (uint8_t)next(&seed);
    uint32_t at[2];
    const uint32_t n = halves_of(type, at);
    for (uint64_t b = 0; b < blocks; b++) {
        uint8_t *block = bytes + b * base_type_block_bytes(type);
        const float value = number(&seed);
        const uint16_t f16 = base_f32_to_f16(value), bf16 = base_f32_to_bf16(value);
        if (type == TYPE_F32) memcpy(block, &value, 4);
        if (type == TYPE_F16) memcpy(block, &f16, 2);
        if (type == TYPE_BF16) memcpy(block, &bf16, 2);
        if (type == TYPE_MXFP4) block[0] = (uint8_t)(118 + block[0] % 10);
        /* below 1; the top bit says nothing */
        for (uint32_t i = 0; type == TYPE_NVFP4 && i < 4; i++) block[i] &= 0xbf;
        for (uint32_t i = 0; i < n; i++) {
            const uint16_t half = base_f32_to_f16(0.02f + 0.01f * number(&seed));
            memcpy(block + at[i], &half, 2);
        }
    }
    return bytes;
}

/* The block of GEMMA4.md 4.6, for which base_dequantise is checked against stored numbers
 * (types_test.c). */
static uint8_t *vector_make(base_type type) {
    const uint32_t size = base_type_block_bytes(type);
    uint8_t *bytes = malloc(size);
    for (uint32_t i = 0; i < size; i++) bytes[i] = (uint8_t)(73 * i + 29);
    uint32_t at[2];
    const uint32_t n = halves_of(type, at);
    for (uint32_t i = 0; i < n; i++) bytes[at[i]] = 0, bytes[at[i] + 1] = i ? 0x30 : 0x34;
    if (type == TYPE_MXFP4) bytes[0] = 126;
    return bytes;
}

static uint8_t *packed(base_type type, const uint8_t *file, uint32_t m, uint32_t k,
                       graph_pack_layout *layout) {
    graph_pack_layout_of(type, m, k, layout);
    uint8_t *bytes = calloc(1, (size_t)layout->bytes);
    for (uint32_t p = 0; p < layout->n_plane; p++)
        graph_pack_rows(type, k, m, file, p, bytes + layout->offset[p]);
    return bytes;
}

static float *dequantised(base_type type, const uint8_t *file, size_t n) {
    float *values = malloc(n * sizeof *values);
    base_dequantise(type, file, values, n);
    return values;
}

/* As matvec_quants.wgsl rounds. */
static void round_blocks(float *x, size_t n) {
    for (size_t b = 0; b + 32 <= n; b += 32) {
        float largest = 0;
        for (size_t i = 0; i < 32; i++) largest = fmaxf(largest, fabsf(x[b + i]));
        const float factor = largest > 1e-30f ? 127 / largest : 0;
        for (size_t i = 0; i < 32; i++) x[b + i] = rintf(x[b + i] * factor) * (largest / 127);
    }
}

/* ---- products -------------------------------------------------------------------------------- */

typedef struct product {
    base_type type;
    uint32_t m, k, n;
    const uint8_t *file;
    const float *x;
} product;

static void check_product(test *t, rig *r, const product *p, const matvec_choice *c) {
    const bool int8 = c->x == MATVEC_INT8 || c->x == MATVEC_QUANTISED;
    const matvec_shape shape = {.n_segment = 1,
                                .types = {p->type},
                                .rows = {p->m},
                                .k = p->k,
                                .n_x = p->n,
                                .x_any = p->k % 4 != 0};
    graph_pack_layout layout;
    uint8_t *bytes = packed(p->type, p->file, p->m, p->k, &layout);
    float *w = dequantised(p->type, p->file, (size_t)p->m * p->k),
          *x = malloc(sizeof(float) * p->n * p->k);
    float *got = calloc(1, padded(sizeof(float) * p->n * p->m));
    memcpy(x, p->x, sizeof(float) * p->n * p->k);
    storage storages[] = {{"weights", bytes, (size_t)layout.bytes, {0}},
                          {"x", x, sizeof(float) * p->n * p->k, {0}},
                          {"PART_out", NULL, sizeof(float) * p->n * p->m, {0}}};
    const uint32_t tiles = (p->m + matvec_tile(c) - 1) / matvec_tile(c), n_word = PACK_PLANE_MAX;
    argument arguments[] = {
        {"n_tile", tiles, 0},         {"n_x", p->n, 0},      {"k", p->k, 0},
        {"x_stride", p->k, 0},        {"x_offset", 0, 0},    {"PART_k", p->k, 0},
        {"PART_rows", p->m, 0},       {"PART_first", 0, 0},  {"PART_out_offset", 0, 0},
        {"PART_out_stride", p->m, 0}, {"PART_up0", 0, 0},    {"PART_up1", 0, 0},
        {"PART_up2", 0, 0},           {"PART_up3", 0, 0},    {"PART_plane0", 0, 0},
        {"PART_plane1", 0, 0},        {"PART_plane2", 0, 0}, {"PART_plane3", 0, 0}};
    const uint32_t n_argument = sizeof arguments / sizeof *arguments;
    for (uint32_t i = 0; i < n_word; i++)
        arguments[n_argument - n_word + i].value = (uint32_t)(layout.offset[i] / 4);
    if (c->x == MATVEC_QUANTISED) {
        const size_t size = ((size_t)p->n * (p->k / 32) + 1) / 2 * 80;
        storage quantised[] = {{"x", x, sizeof(float) * p->n * p->k, {0}},
                               {"quantised", NULL, size, {0}}};
        void *out = malloc(padded(size));
        run(t, r, &(kernels_request){.file = "quantise"}, quantised, 2, arguments, n_argument,
            (uint32_t[]){(p->n * (p->k / 32) + 127) / 128, 1, 1}, "quantised", out);
        free(out);
        storages[1].buffer = quantised[1].buffer;
    }
    lower_request request = {0};
    matvec_choice asked = *c;
    asked.once = tiles <= c->groups;
    matvec_request(&request, &shape, &asked, NULL);
    const uint32_t groups[3] = {tiles < c->groups ? tiles : c->groups, (p->n + c->n_x - 1) / c->n_x,
                                1};
    if (run(t, r, &request.kernel, storages, 3, arguments, n_argument, groups, "PART_out", got)) {
        if (int8) round_blocks(x, (size_t)p->n * p->k);
        double error = 0, size = 0;
        for (uint32_t n = 0; n < p->n; n++)
            for (uint32_t row = 0; row < p->m; row++) {
                double want = 0;
                for (uint32_t i = 0; i < p->k; i++)
                    want += (double)w[(size_t)row * p->k + i] * x[(size_t)n * p->k + i];
                error += (want - got[n * p->m + row]) * (want - got[n * p->m + row]);
                size += want * want;
            }
        /* f32 sums of some hundred terms in another order */
        if (!(error <= 1e-10 * size))
            test_fail(t, __FILE__, __LINE__,
                      "%s m %u k %u n %u, x %d wg %u lanes %u rows %u n_x %u: off by %g",
                      base_type_name(p->type), p->m, p->k, p->n, c->x, c->wg, c->lanes, c->rows,
                      c->n_x, sqrt(error / size));
    }
    free(bytes);
    free(w);
    free(x);
    free(got);
}

/* Every form: where x lies, how many lanes, rows and vectors at a time, with subgroups and
 * without. */
static const matvec_choice forms[] = {
    {.x = MATVEC_DIRECT, .wg = 8, .lanes = 1, .rows = 4, .n_x = 1, .groups = 99},
    {.x = MATVEC_DIRECT, .wg = 64, .lanes = 8, .rows = 1, .n_x = 2, .groups = 2},
    {.x = MATVEC_SHARED, .wg = 32, .lanes = 4, .rows = 2, .n_x = 1, .groups = 99, .depth = 2},
    {.x = MATVEC_INT8, .wg = 32, .lanes = 8, .rows = 1, .n_x = 1, .groups = 3},
    {.x = MATVEC_QUANTISED, .wg = 8, .lanes = 1, .rows = 4, .n_x = 2, .groups = 99},
    {.x = MATVEC_QUANTISED, .wg = 64, .lanes = 2, .rows = 2, .n_x = 4, .groups = 1, .depth = 2},
    {.x = MATVEC_DIRECT,
     .wg = 32,
     .lanes = 8,
     .rows = 2,
     .n_x = 2,
     .groups = 99,
     .subgroups = true},
    {.x = MATVEC_INT8, .wg = 64, .lanes = 4, .rows = 2, .n_x = 1, .groups = 99, .subgroups = true},
    {.x = MATVEC_QUANTISED,
     .wg = 64,
     .lanes = 16,
     .rows = 2,
     .n_x = 2,
     .groups = 2,
     .span = 8,
     .subgroups = true},
    {.x = MATVEC_DIRECT,
     .wg = 32,
     .lanes = 32,
     .rows = 1,
     .n_x = 1,
     .groups = 99,
     .span = 8,
     .subgroups = true},
};

static void test_products(test *t) {
    for (uint32_t i = 0; i < N_WEIGHT_TYPE; i++) {
        const base_type type = weight_types[i];
        if (!test_case(t, "matvec/%s-in-every-form", base_type_name(type))) continue;
        rig r;
        if (!rig_open(t, &r)) return;
        const bool plain = !base_type_is_quantised(type);
        const uint32_t block = base_type_block(type),
                       lengths[] = {plain ? 48 : block, plain ? 37 : 3 * block};
        for (uint32_t j = 0; j < 2; j++) {
            const uint32_t k = lengths[j], m = 29 + 8 * j, n = 1 + 2 * j;
            uint8_t *file = weights_make(type, m, k, 11 + i);
            float *x = malloc(sizeof(float) * n * k);
            uint32_t seed = 5 + j;
            for (uint32_t e = 0; e < n * k; e++) x[e] = number(&seed);
            for (uint32_t f = 0; f < sizeof forms / sizeof *forms; f++) {
                const bool int8 = forms[f].x == MATVEC_INT8 || forms[f].x == MATVEC_QUANTISED;
                const device_caps *caps = device_caps_of(r.d);
                /* one block a row: one form of each precision */
                if (j == 0 && f / 2 != 0 && f / 2 != 2) continue;
                if (!test_drawn(i, f, 2) || (plain && int8) ||
                    (forms[f].subgroups &&
                     !(caps->subgroups && caps->subgroup_size >= forms[f].lanes)))
                    continue;
                check_product(t, &r, &(product){type, m, k, n, file, x}, &forms[f]);
            }
            free(file);
            free(x);
        }
        if (!plain) { /* the stored block, times one and times its own index */
            uint8_t *file = vector_make(type);
            float x[2 * 256];
            for (uint32_t e = 0; e < block; e++) x[e] = 1, x[block + e] = (float)(e + 1);
            check_product(t, &r, &(product){type, 1, block, 2, file, x}, &forms[1]);
            check_product(t, &r, &(product){type, 1, block, 2, file, x}, &forms[4]);
            free(file);
        }
        rig_close(t, &r);
    }
}

/* Forms of the kernel for a batch of vectors: windows, all of k at once, k divided among runs,
 * every number of rows. */
static const matvec_choice batch_forms[] = {
    {.wg = 32, .lanes = 4, .rows = 1, .n_x = 4, .depth = 1, .groups = 99, .share = 4, .near = 2},
    {.wg = 64, .lanes = 8, .rows = 2, .n_x = 16, .depth = 1, .groups = 2, .share = 4, .near = 2},
    {.wg = 96, .lanes = 12, .rows = 4, .n_x = 8, .depth = 1, .groups = 99, .share = 4, .near = 1},
    {.wg = 32,
     .lanes = 4,
     .rows = 2,
     .n_x = 12,
     .depth = 4,
     .groups = 1,
     .share = 4,
     .near = 2,
     .resident = true},
    {.wg = 64, .lanes = 4, .rows = 4, .n_x = 2, .depth = 2, .groups = 3, .share = 2, .near = 4},
};

static void test_batch(test *t) {
    for (uint32_t i = 0; i < N_WEIGHT_TYPE; i++) {
        const base_type type = weight_types[i];
        if (!base_type_is_quantised(type) ||
            !test_case(t, "matvec/batch-of-%s-in-every-form", base_type_name(type)))
            continue;
        rig r;
        if (!rig_open(t, &r)) return;
        const uint32_t block = base_type_block(type), lengths[] = {block, block == 32 ? 352 : 768};
        for (uint32_t f = 0; f < sizeof batch_forms / sizeof *batch_forms; f++) {
            matvec_choice c = batch_forms[f];
            c.x = MATVEC_QUANTISED, c.subgroups = true;
            const device_caps *caps = device_caps_of(r.d);
            /* readers differ in little more */
            const bool every = type == TYPE_Q4_K || type == TYPE_Q6_K || type == TYPE_Q2_K;
            if (!caps->subgroups || caps->subgroup_size < c.share * c.near ||
                (f != 0 && f != 2 && (!every || !test_drawn(i / 2, f, 2))))
                continue;
            /* one more: the grid's second row */
            const uint32_t k = lengths[f != 2], m = 21 + 8 * f,
                           n = c.n_x == 12 ? 11 : c.n_x + (f & 1u);
            uint8_t *file = weights_make(type, m, k, 17 + i);
            float *x = malloc(sizeof(float) * n * k);
            uint32_t seed = 3 + f;
            for (uint32_t e = 0; e < n * k; e++) x[e] = number(&seed);
            check_product(t, &r, &(product){type, m, k, n, file, x}, &c);
            free(file);
            free(x);
        }
        rig_close(t, &r);
    }
}

/* ---- rows by index --------------------------------------------------------------------------- */

static void test_gather(test *t) {
    for (uint32_t i = 0; i < N_WEIGHT_TYPE; i++) {
        const base_type type = weight_types[i];
        if (!test_case(t, "gather/%s-equal-to-the-bit", base_type_name(type))) continue;
        rig r;
        if (!rig_open(t, &r)) return;
        const bool plain = !base_type_is_quantised(type);
        static const int32_t ids[] = {4, 0, -1, 3, 3, 5};
        enum { N = sizeof ids / sizeof *ids, M = 5 };
        for (uint32_t j = 0; j < 2; j++) {
            const uint32_t k = j == 0  ? (plain ? 32 : base_type_block(type))
                               : plain ? 13
                                       : 3 * base_type_block(type);
            uint8_t *file = weights_make(type, M, k, 3 + i), *block = vector_make(type);
            if (!plain) memcpy(file, block, base_type_block_bytes(type));
            graph_pack_layout layout;
            uint8_t *bytes = packed(type, file, M, k, &layout);
            float *w = dequantised(type, file, (size_t)M * k),
                  *got = calloc(1, padded(sizeof(float) * N * k));
            storage storages[] = {{"weights", bytes, (size_t)layout.bytes, {0}},
                                  {"ids", ids, sizeof ids, {0}},
                                  {"out", NULL, sizeof(float) * N * k, {0}}};
            argument arguments[] = {{"n", N, 0},
                                    {"n_row", M, 0},
                                    {"first", 0, 0},
                                    {"count", M, 0},
                                    {"ids_offset", 0, 0},
                                    {"out_offset", 0, 0},
                                    {"out_stride", k, 0},
                                    {"PART_k", k, 0},
                                    {"factor", 0, 1},
                                    {"plane0", (uint32_t)(layout.offset[0] / 4), 0},
                                    {"plane1", (uint32_t)(layout.offset[1] / 4), 0},
                                    {"plane2", (uint32_t)(layout.offset[2] / 4), 0},
                                    {"plane3", (uint32_t)(layout.offset[3] / 4), 0}};
            lower_request request = {.kernel = {.file = "gather_rows"}};
            lower_request_part(&request, "reader", matvec_reader(type, k % 16 != 0));
            if (run(t, &r, &request.kernel, storages, 3, arguments,
                    sizeof arguments / sizeof *arguments,
                    (uint32_t[]){(N * k / 16 + 64) / 64 + 1, 1, 1}, "out", got))
                for (uint32_t n = 0; n < N; n++) {
                    const uint32_t row = ids[n] < 0 || ids[n] >= M ? 0 : (uint32_t)ids[n];
                    CHECK(t, !memcmp(got + (size_t)n * k, w + (size_t)row * k, k * sizeof *w));
                }
            free(file);
            free(block);
            free(bytes);
            free(w);
            free(got);
        }
        rig_close(t, &r);
    }
}

/* ---- the choice ------------------------------------------------------------------------------ */

static void test_choice(test *t) {
    const device_caps big = {.kind = DEVICE_DISCRETE,
                             .subgroups = true,
                             .subgroup_size = 32,
                             .dot_i8 = true,
                             .workgroup_bytes = 49152,
                             .workgroup_invocations = 1024};
    const device_caps least = {
        .kind = DEVICE_INTEGRATED, .workgroup_bytes = 16384, .workgroup_invocations = 256};
    const device_caps soft = {.kind = DEVICE_SOFTWARE,
                              .subgroups = true,
                              .subgroup_size = 8,
                              .dot_i8 = true,
                              .workgroup_bytes = 32768,
                              .workgroup_invocations = 1024};
    matvec_shape shape = {
        .n_segment = 1, .types = {TYPE_Q4_K}, .rows = {2048}, .k = 1536, .n_x = 1};
    matvec_choice c;
    if (test_case(t, "matvec/integer-dot-products-where-the-device-has-them")) {
        CHECK(t, matvec_choose(&big, &shape, &c) && c.x == MATVEC_INT8 && c.subgroups);
        shape.k = 16384; /* too much for every workgroup to round anew */
        CHECK(t, matvec_choose(&big, &shape, &c) && c.x == MATVEC_QUANTISED);
        shape.exact = true; /* too much for workgroup memory */
        CHECK(t, matvec_choose(&big, &shape, &c) && c.x == MATVEC_DIRECT);
        shape.k = 1536;
        CHECK(t, matvec_choose(&big, &shape, &c) && c.x == MATVEC_SHARED && c.subgroups);
        shape.exact = false, shape.types[0] = TYPE_BF16;
        CHECK(t, matvec_choose(&big, &shape, &c) && c.x == MATVEC_SHARED);
        shape.types[0] = TYPE_Q4_K;
        CHECK(t, matvec_choose(&least, &shape, &c) && c.x == MATVEC_SHARED && !c.subgroups);
    }
    if (test_case(t, "matvec/batches-of-vectors-have-a-kernel-of-their-own")) {
        const matvec_shape gate = {.n_segment = 1,
                                   .types = {TYPE_Q4_K},
                                   .rows = {12288},
                                   .k = 1536,
                                   .n_x = 16,
                                   .per = 2,
                                   .rounded_out = true};
        CHECK(t, matvec_choose(&big, &gate, &c) && c.share && c.x == MATVEC_QUANTISED &&
                     c.n_x == 16 && matvec_tile(&c) % 32 == 0);
        CHECK(t, matvec_batch_fits(&big, &gate, &c));
        CHECK(t, !matvec_batch_fits(&least, &gate, &c) && !matvec_batch_fits(&soft, &gate, &c));
        matvec_shape other = gate;
        other.n_x = 11;
        CHECK(t, matvec_choose(&big, &other, &c) && c.share && c.n_x == 12);
        other.n_x = 17; /* twice, rather than 16 and one */
        CHECK(t, matvec_choose(&big, &other, &c) && c.share && c.n_x == 12);
        other.n_x = 4;
        CHECK(t, matvec_choose(&big, &other, &c) && !c.share);
        other = gate, other.has_prologue = true;
        CHECK(t, matvec_choose(&big, &other, &c) && !c.share);
        other = gate, other.rows[0] = 256, other.rounded_out = false;
        CHECK(t, matvec_choose(&big, &other, &c) && !c.share);
        other = gate, other.single = true;
        CHECK(t, matvec_choose(&big, &other, &c) && !c.share);
        other = gate, other.types[0] = TYPE_F16;
        CHECK(t, matvec_choose(&big, &other, &c) && !c.share);
        /* many tiles a workgroup: the vectors stay */
        other = gate, other.rows[0] = 262144, other.per = 1, other.rounded_out = false;
        CHECK(t, matvec_choose(&big, &other, &c) && c.share && c.resident);
        CHECK(t, matvec_choose(&least, &gate, &c) && !c.share);
    }
    if (test_case(t, "matvec/no-barriers-on-software-devices")) {
        CHECK(t, matvec_choose(&soft, &shape, &c) && c.lanes == 1 && c.x == MATVEC_DIRECT);
    }
    if (test_case(t, "matvec/a-form-that-is-asked-for-is-taken-or-refused")) {
        lower_form form = {.wg = 512, .lanes = 16, .groups = 7};
        shape = (matvec_shape){.n_segment = 1,
                               .types = {TYPE_Q4_K},
                               .rows = {2048},
                               .k = 1536,
                               .n_x = 1,
                               .form = &form};
        CHECK(t, matvec_choose(&big, &shape, &c) && c.wg == 512 && c.lanes == 16 && c.groups == 7 &&
                     c.rows >= 1);
        form.wg = 48;
        CHECK(t, !matvec_choose(&big, &shape, &c));
        form.wg = 512;
        CHECK(t, !matvec_choose(&least, &shape, &c)); /* has 256 invocations */
        shape.rounded_out = true, form.rows = 1, form.lanes = 32;
        CHECK(t, !matvec_choose(&big, &shape, &c)); /* a tile that is no whole block */
    }
    if (test_case(t, "matvec/choices-stay-within-the-device")) {
        for (uint32_t n_x = 1; n_x <= MATVEC_ROWS_MAX; n_x++)
            for (uint32_t k = 16; k <= 32768; k *= 2)
                for (uint32_t rows = 1; rows <= 1u << 20; rows *= 8)
                    for (uint32_t per = 1; per <= 2; per++) {
                        shape = (matvec_shape){.n_segment = 1,
                                               .types = {k < 256 ? TYPE_F16 : TYPE_Q6_K},
                                               .rows = {rows},
                                               .k = k,
                                               .n_x = n_x,
                                               .per = per};
                        for (int i = 0; i < 3; i++) {
                            const device_caps *caps = i == 0 ? &big : i == 1 ? &least : &soft;
                            CHECK(t, matvec_choose(caps, &shape, &c));
                            CHECK(t, c.wg <= caps->workgroup_invocations && c.wg % c.lanes == 0);
                            CHECK(t, c.share ? matvec_batch_fits(caps, &shape, &c)
                                             : c.rows * c.n_x * per <= 16);
                            CHECK(t, c.share || !c.subgroups || c.lanes <= caps->subgroup_size ||
                                         (c.lanes % c.span == 0 && c.span <= caps->subgroup_size));
                        }
                    }
    }
}

void test_matvec(test *t);
void test_matvec(test *t) {
    test_choice(t);
    test_gather(t);
    test_products(t);
    test_batch(t);
}
