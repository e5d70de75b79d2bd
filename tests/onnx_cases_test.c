/* onnx_cases_test.c - cases that the onnx package makes for operators (a model of one node, inputs,
 * what they become), on the reference and drawn ones on devices. tools/onnx-check --pack writes the
 * file, tests/data/README.md says how it is laid out. */
#include "base/file.h"
#include "beryl_onnx.h"
#include "graph/reference.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORTS_MAX = 16, RANK_MAX = 10 };

/* ---- reading the file ------------------------------------------------------------------------ */

typedef struct reader {
    const char *at, *end;
    bool short_of; /* something lies beyond the end */
} reader;

static const char *take(reader *r, size_t size) {
    const char *at = r->at;
    if (size > (size_t)(r->end - r->at)) return r->short_of = true, NULL;
    r->at += size;
    return at;
}

static uint32_t take_number(reader *r, size_t bytes) {
    uint32_t x = 0;
    const char *at = take(r, bytes);
    if (at) memcpy(&x, at, bytes);
    return x;
}

static float take_real(reader *r) {
    float x = 0;
    const char *at = take(r, sizeof x);
    if (at) memcpy(&x, at, sizeof x);
    return x;
}

static const char *take_name(reader *r) {
    const char *end = memchr(r->at, 0, (size_t)(r->end - r->at));
    return end ? take(r, (size_t)(end - r->at) + 1) : (r->short_of = true, "");
}

/* By their numbers in the package. */
static const struct {
    uint32_t kind;
    beryl_type type;
    base_type inner;
} kinds[] = {
    {1, BERYL_TYPE_F32, TYPE_F32},  {2, BERYL_TYPE_U8, TYPE_U8},
    {3, BERYL_TYPE_I8, TYPE_I8},    {4, BERYL_TYPE_U16, TYPE_U16},
    {5, BERYL_TYPE_I16, TYPE_I16},  {6, BERYL_TYPE_I32, TYPE_I32},
    {7, BERYL_TYPE_I64, TYPE_I64},  {9, BERYL_TYPE_BOOL, TYPE_BOOL},
    {10, BERYL_TYPE_F16, TYPE_F16}, {11, BERYL_TYPE_F64, TYPE_F64},
    {12, BERYL_TYPE_U32, TYPE_U32}, {16, BERYL_TYPE_BF16, TYPE_BF16},
};
enum { KIND_COUNT = sizeof kinds / sizeof *kinds };

typedef struct tensor {
    const char *name;
    size_t row; /* of kinds */
    uint32_t rank, dim[RANK_MAX];
    double relative, absolute; /* of floats: how near they have to be */
    size_t n, size;
    const char *data; /* [size] */
} tensor;

static tensor take_tensor(reader *r) {
    tensor t = {.name = take_name(r), .n = 1};
    const uint32_t kind = take_number(r, 1);
    t.rank = take_number(r, 1);
    t.relative = (double)take_real(r);
    t.absolute = (double)take_real(r);
    while (t.row + 1 < KIND_COUNT && kinds[t.row].kind != kind) t.row++;
    for (uint32_t i = 0; i < t.rank && i < RANK_MAX; i++) t.n *= t.dim[i] = take_number(r, 4);
    r->short_of |= kinds[t.row].kind != kind || t.rank > RANK_MAX || t.n > 1 << 20;
    if (r->short_of) return (tensor){.name = ""};
    t.size = t.n * base_type_block_bytes(kinds[t.row].inner);
    t.data = take(r, t.size);
    return t;
}

typedef struct onnx_case {
    const char *name, *model;
    size_t model_size, n_in, n_out;
    tensor in[PORTS_MAX], out[PORTS_MAX];
} onnx_case;

static bool take_case(reader *r, onnx_case *c) {
    *c = (onnx_case){.name = take_name(r)};
    c->model_size = take_number(r, 4);
    c->n_in = take_number(r, 1);
    c->n_out = take_number(r, 1);
    c->model = take(r, c->model_size);
    r->short_of |= c->n_in > PORTS_MAX || c->n_out > PORTS_MAX;
    for (size_t i = 0; !r->short_of && i < c->n_in; i++) c->in[i] = take_tensor(r);
    for (size_t i = 0; !r->short_of && i < c->n_out; i++) c->out[i] = take_tensor(r);
    return !r->short_of;
}

/* ---- running --------------------------------------------------------------------------------- */

static void check_output(test *t, beryl_graph *g, const tensor *want, const beryl_port *port) {
    CHECK_TEXT(t, port->name, want->name);
    CHECK_INT(t, port->type, kinds[want->row].type);
    CHECK_INT(t, port->rank, want->rank);
    for (uint32_t i = 0; i < want->rank; i++) CHECK_INT(t, port->dims[i].size, want->dim[i]);
    char *got = test_failed(t) ? NULL : malloc(want->size + 1);
    if (got && port->value && beryl_graph_read(g, port->value, got, want->size, NULL) == BERYL_OK) {
        const base_type type = kinds[want->row].inner;
        const size_t bytes = base_type_block_bytes(type);
        for (size_t i = 0; i < want->n && !test_failed(t); i++) {
            const reference_number x = reference_number_at(type, got + i * bytes),
                                   y = reference_number_at(type, want->data + i * bytes);
            if (!base_type_is_float(type)) CHECK_INT(t, x.whole, y.whole);
            else if (isnan(y.real) || isinf(y.real))
                CHECK(t, isnan(y.real) ? isnan(x.real) : x.real == y.real);
            else CHECK_NEAR(t, x.real, y.real, want->absolute + want->relative * fabs(y.real));
        }
    } else if (want->n && !test_failed(t)) {
        test_fail(t, __FILE__, __LINE__, "output '%s' cannot be read", want->name);
    }
    free(got);
}

static beryl_status run(beryl_graph *g, const onnx_case *c, beryl_error *error) {
    beryl_port port;
    beryl_status status;
    bool any = false; /* of no output with elements nothing is compiled */
    for (size_t i = 0; beryl_graph_port(g, true, i, &port); i++) any |= port.value != 0;
    if (!any) return BERYL_OK;
    while ((status = beryl_graph_compile(g, error)) == BERYL_PENDING) {}
    for (size_t i = 0; !status && beryl_graph_port(g, false, i, &port); i++)
        for (size_t k = 0; k < c->n_in; k++) /* what nothing reads is no input of the plan */
            if (port.value && !strcmp(c->in[k].name, port.name))
                beryl_graph_set(g, port.value, c->in[k].data, c->in[k].size, NULL);
    while (!status && (status = beryl_graph_run(g, NULL, 0, error)) == BERYL_PENDING)
        status = BERYL_OK;
    return status ? status : beryl_graph_wait(g, error);
}

static void check_case(test *t, const onnx_case *c, const char *where) {
    const beryl_graph_options options = {
        .size = sizeof options, .device = where, .precision = BERYL_PRECISION_EXACT};
    beryl_onnx_input in[PORTS_MAX];
    beryl_graph *g = NULL;
    beryl_error error = {0};
    for (size_t i = 0; i < c->n_in; i++)
        in[i] = (beryl_onnx_input){c->in[i].name, kinds[c->in[i].row].type, c->in[i].rank,
                                   c->in[i].dim, c->in[i].data};
    const beryl_onnx_options how = {.size = sizeof how, .inputs = in, .n_input = c->n_in};
    beryl_status status = beryl_graph_open(&options, &g, &error);
    if (status == BERYL_NO_DEVICE) {
        test_skip(t, "%s", error.message);
        return;
    }
    if (!status) status = beryl_graph_from_onnx(g, c->model, c->model_size, &how, &error);
    if (!status) status = run(g, c, &error);
    if (status) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    beryl_port port;
    for (size_t i = 0; !status && i < c->n_out; i++) {
        if (beryl_graph_port(g, true, i, &port)) check_output(t, g, &c->out[i], &port);
        else test_fail(t, __FILE__, __LINE__, "there is no output %zu", i);
    }
    beryl_graph_close(g);
}

/* A model of which a byte was changed is built or refused, with the numbers that are given. */
static void check_damaged(test *t, const onnx_case *c, size_t first) {
    const beryl_graph_options options = {.size = sizeof options, .device = "reference"};
    beryl_onnx_input in[PORTS_MAX];
    char *model = malloc(c->model_size);
    for (size_t i = 0; i < c->n_in; i++)
        in[i] = (beryl_onnx_input){c->in[i].name, kinds[c->in[i].row].type, c->in[i].rank,
                                   c->in[i].dim, c->in[i].data};
    const beryl_onnx_options how = {.size = sizeof how, .inputs = in, .n_input = c->n_in};
    for (size_t i = first; model && i < c->model_size; i += 13) {
        beryl_graph *g = NULL;
        beryl_error error = {0};
        memcpy(model, c->model, c->model_size);
        model[i] = (char)(model[i] ^ 1 << i % 8);
        beryl_status status = beryl_graph_open(&options, &g, &error);
        if (!status) status = beryl_graph_from_onnx(g, model, c->model_size, &how, &error);
        if (status && !*error.message) test_fail(t, __FILE__, __LINE__, "refused without a word");
        beryl_graph_close(g);
    }
    free(model);
}

/* WGSL has no such numbers. */
static bool has_doubles(const onnx_case *c) {
    bool has = false;
    for (size_t i = 0; i < c->n_in; i++) has |= kinds[c->in[i].row].type == BERYL_TYPE_F64;
    for (size_t i = 0; i < c->n_out; i++) has |= kinds[c->out[i].row].type == BERYL_TYPE_F64;
    return has;
}

void test_onnx_cases(test *t) {
    static const char *const devices[] = {"host", "software"};
    base_heap heap;
    base_heap_init(&heap, NULL);
    char *file = NULL;
    size_t size = 0;
    beryl_error error = {0};
    const beryl_status status =
        base_file_read(&heap, test_data(t, "onnx/cases.bin"), 1 << 20, &file, &size, &error);
    reader r = {file, file ? file + size : NULL, false};
    const uint32_t n = file ? take_number(&r, 4) : 0;
    uint32_t i = 0;
    for (onnx_case c; i < n && take_case(&r, &c); i++) {
        const char *name = c.name + (strncmp(c.name, "test_", 5) ? 0 : 5);
        if (test_case(t, "onnx_cases/%s", name)) check_case(t, &c, "reference");
        if (test_drawn(i, 1, 3) && test_case(t, "onnx_cases/damaged-%s", name))
            check_damaged(t, &c, i % 13);
        for (size_t d = 0; d < 2; d++)
            if (test_drawn(i, 3 * d, 6) && !(d && has_doubles(&c)) &&
                test_case(t, "onnx_cases/%s-%s", name, devices[d]))
                check_case(t, &c, devices[d]);
    }
    if (test_case(t, "onnx_cases/file-is-whole")) {
        if (status) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        CHECK(t, n > 300 && i == n && r.at == r.end);
    }
    if (file) base_heap_give(&heap, file, size + 1);
}
