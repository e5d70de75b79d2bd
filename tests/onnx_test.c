/* onnx_test.c - ONNX files, written here byte by byte: operators against plain mathematics, bodies,
 * functions, files beside, and files that lie. tools/onnx-check has the onnx package's cases. */
#include "base/file.h"
#include "beryl_onnx.h"
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing protobuf ------------------------------------------------------------------------ */

typedef struct bytes {
    uint8_t data[4096];
    size_t n;
} bytes;

static void put(bytes *to, const void *data, size_t size) {
    if (to->n + size > sizeof to->data) abort();
    memcpy(to->data + to->n, data, size);
    to->n += size;
}

static void put_number(bytes *to, uint64_t x) {
    for (; x >= 128; x >>= 7) put(to, (uint8_t[]){(uint8_t)(x | 128)}, 1);
    put(to, (uint8_t[]){(uint8_t)x}, 1);
}

static void field_number(bytes *to, uint32_t field, int64_t x) {
    put_number(to, field << 3);
    put_number(to, (uint64_t)x);
}

static void field_data(bytes *to, uint32_t field, const void *data, size_t size) {
    put_number(to, field << 3 | 2);
    put_number(to, size);
    put(to, data, size);
}

static void field_text(bytes *to, uint32_t field, const char *text) {
    field_data(to, field, text, strlen(text));
}

static void field_bytes(bytes *to, uint32_t field, const bytes *from) {
    field_data(to, field, from->data, from->n);
}

/* ---- tensors as text: "f32[2,3]:1,2,3,4,5,6" ------------------------------------------------- */

static const struct {
    const char *name;
    int kind;
    beryl_type type;
    size_t size;
} kinds[] = {{"f32", 1, BERYL_TYPE_F32, 4}, {"u8", 2, BERYL_TYPE_U8, 1},
             {"i8", 3, BERYL_TYPE_I8, 1},   {"i32", 6, BERYL_TYPE_I32, 4},
             {"i64", 7, BERYL_TYPE_I64, 8}, {"bool", 9, BERYL_TYPE_BOOL, 1}};

typedef struct tensor {
    size_t kind; /* row above */
    uint32_t rank, dim[6];
    size_t n;
    union {
        float f[64];
        uint8_t u[64];
        int8_t b[64];
        int32_t i[64];
        int64_t l[64];
    } at;
} tensor;

static tensor tensor_of(const char *text) {
    tensor t = {0};
    while (strncmp(text, kinds[t.kind].name, strcspn(text, "["))) t.kind++;
    text = strchr(text, '[') + 1;
    t.n = 1;
    for (char *end; *text != ']'; text = *end == ',' ? end + 1 : end)
        t.n *= t.dim[t.rank++] = (uint32_t)strtoul(text, &end, 10);
    text++;
    for (size_t i = 0; i < t.n && *text; i++) {
        char *end;
        const double x = strtod(text + 1, &end);
        text = end;
        switch (kinds[t.kind].kind) {
        case 1: t.at.f[i] = (float)x; break;
        case 6: t.at.i[i] = (int32_t)x; break;
        case 7: t.at.l[i] = (int64_t)x; break;
        case 3: t.at.b[i] = (int8_t)x; break;
        default: t.at.u[i] = (uint8_t)x; break;
        }
    }
    return t;
}

static bytes tensor_message(const tensor *t, const char *name) {
    bytes m = {.n = 0};
    for (uint32_t i = 0; i < t->rank; i++) field_number(&m, 1, t->dim[i]);
    field_number(&m, 2, kinds[t->kind].kind);
    field_text(&m, 8, name);
    field_data(&m, 9, &t->at, t->n * kinds[t->kind].size);
    return m;
}

/* ---- models ---------------------------------------------------------------------------------- */

/* "axis=1 perm=1,0 alpha=0.5f mode='CRD'" as attributes of a node. */
static void add_attributes(bytes *node, const char *text) {
    while (*text) {
        bytes a = {.n = 0};
        const size_t n = strcspn(text, "=");
        field_data(&a, 1, text, n);
        text += n + 1;
        const size_t size = strcspn(text, " ");
        if (*text == '\'') {
            field_data(&a, 4, text + 1, size - 2);
        } else if (text[size - 1] == 'f') {
            const float x = strtof(text, NULL);
            put_number(&a, 2 << 3 | 5);
            put(&a, &x, sizeof x);
        } else if (memchr(text, ',', size)) {
            for (const char *at = text; at < text + size;) {
                char *end;
                field_number(&a, 8, strtoll(at, &end, 10));
                at = end + 1;
            }
        } else {
            field_number(&a, 3, strtoll(text, NULL, 10));
        }
        text += size + (text[size] == ' ');
        field_bytes(node, 5, &a);
    }
}

static bytes node_message(const char *op, const char *in, const char *out, const char *attributes) {
    bytes n = {.n = 0};
    for (const char *name = in; *name; name++) field_data(&n, 1, name, *name == '_' ? 0 : 1);
    for (const char *name = out; *name; name++) field_data(&n, 2, name, 1);
    field_text(&n, 4, op);
    add_attributes(&n, attributes);
    return n;
}

static bytes info_message(const char *name, int kind, uint32_t rank, const uint32_t *dim) {
    bytes shape = {.n = 0}, tensor_type = {.n = 0}, type = {.n = 0}, m = {.n = 0};
    for (uint32_t i = 0; i < rank; i++) {
        bytes d = {.n = 0};
        if (dim[i]) field_number(&d, 1, dim[i]);
        else field_text(&d, 2, "n");
        field_bytes(&shape, 1, &d);
    }
    field_number(&tensor_type, 1, kind);
    field_bytes(&tensor_type, 2, &shape);
    field_bytes(&type, 1, &tensor_type);
    field_text(&m, 1, name);
    field_bytes(&m, 2, &type);
    return m;
}

static bytes model_message(const bytes *graph, int opset) {
    bytes m = {.n = 0}, import = {.n = 0};
    field_number(&m, 1, 8);
    field_bytes(&m, 7, graph);
    field_number(&import, 2, opset);
    field_bytes(&m, 8, &import);
    return m;
}

typedef struct row {
    const char *name, *op;
    int opset;
    const char *attributes;
    const char *in[5]; /* "!..": a constant of the file; "": left out */
    const char *out;
    double near;
} row;

static bytes row_model(const row *r) {
    bytes graph = {.n = 0};
    char names[8] = "";
    size_t n = 0;
    for (; n < 5 && r->in[n]; n++) names[n] = *r->in[n] ? (char)('a' + n) : '_';
    bytes node = node_message(r->op, names, "y", r->attributes);
    field_bytes(&graph, 1, &node);
    for (size_t i = 0; i < n; i++) {
        if (!*r->in[i]) continue;
        const char name[2] = {names[i], 0};
        const tensor t = tensor_of(r->in[i] + (*r->in[i] == '!'));
        const bytes m = *r->in[i] == '!' ? tensor_message(&t, name)
                                         : info_message(name, kinds[t.kind].kind, t.rank, t.dim);
        field_bytes(&graph, *r->in[i] == '!' ? 5 : 11, &m);
    }
    const tensor out = tensor_of(r->out);
    const bytes m = info_message("y", kinds[out.kind].kind, out.rank, out.dim);
    field_bytes(&graph, 12, &m);
    return model_message(&graph, r->opset);
}

/* What operators mean: worked out by hand. near: 0 where it is exact; 1e-6 where devices round. */
static const row rows[] = {
    {"add-broadcast",
     "Add",
     7,
     "",
     {"f32[2,2]:1,2,3,4", "f32[2]:10,20"},
     "f32[2,2]:11,22,13,24",
     0},
    {"where", "Where", 9, "", {"bool[2]:1,0", "f32[2]:1,2", "f32[1]:7"}, "f32[2]:1,7", 0},
    {"clip-one-end", "Clip", 13, "", {"f32[3]:-1,0,9", "", "!f32[]:2"}, "f32[3]:-1,0,2", 0},
    {"pow-of-integers", "Pow", 15, "", {"i32[3]:1,2,3", "f32[3]:4,5,6"}, "i32[3]:1,32,729", 0},
    {"mod-of-sign", "Mod", 13, "", {"i32[2]:-4,7", "i32[2]:3,-3"}, "i32[2]:2,-2", 0},
    {"cast-to-integer", "Cast", 13, "to=6", {"f32[3]:1.5,-1.5,3"}, "i32[3]:1,-1,3", 0},
    {"reshape-open",
     "Reshape",
     14,
     "",
     {"f32[2,3]:1,2,3,4,5,6", "!i64[2]:0,-1"},
     "f32[2,3]:1,2,3,4,5,6",
     0},
    {"transpose", "Transpose", 13, "perm=1,0", {"f32[2,3]:1,2,3,4,5,6"}, "f32[3,2]:1,4,2,5,3,6", 0},
    {"slice-backwards",
     "Slice",
     13,
     "",
     {"f32[4]:1,2,3,4", "!i64[1]:-1", "!i64[1]:-9", "!i64[1]:0", "!i64[1]:-2"},
     "f32[2]:4,2",
     0},
    {"concat", "Concat", 13, "axis=0", {"f32[1]:1", "f32[2]:2,3"}, "f32[3]:1,2,3", 0},
    {"pad-reflected",
     "Pad",
     13,
     "mode='reflect'",
     {"f32[3]:1,2,3", "!i64[2]:2,1"},
     "f32[6]:3,2,1,2,3,2",
     0},
    {"tile", "Tile", 13, "", {"f32[2]:1,2", "!i64[1]:2"}, "f32[4]:1,2,1,2", 0},
    {"gather-from-the-end",
     "Gather",
     13,
     "axis=0",
     {"f32[3]:1,2,3", "i64[2]:-1,0"},
     "f32[2]:3,1",
     0},
    {"gather-nd", "GatherND", 13, "", {"f32[2,2]:0,1,2,3", "i64[2,2]:0,0,1,-1"}, "f32[2]:0,3", 0},
    {"scatter-nd",
     "ScatterND",
     18,
     "",
     {"f32[4]:1,2,3,4", "i64[2,1]:3,1", "f32[2]:9,8"},
     "f32[4]:1,8,3,9",
     0},
    {"scatter-largest",
     "ScatterElements",
     18,
     "axis=0 reduction='max'",
     {"f32[3]:1,2,3", "i64[3]:1,1,0", "f32[3]:5,1,0"},
     "f32[3]:1,5,3",
     0},
    {"one-hot",
     "OneHot",
     11,
     "",
     {"i64[2]:1,-3", "!i64[]:3", "!f32[2]:0,5"},
     "f32[2,3]:0,5,0,5,0,0",
     0},
    {"reduce-integers",
     "ReduceSum",
     13,
     "keepdims=0",
     {"i64[2,2]:1,2,3,4", "!i64[1]:1"},
     "i64[2]:3,7",
     0},
    {"reduce-none", "ReduceMax", 18, "noop_with_empty_axes=1", {"f32[2]:3,4"}, "f32[2]:3,4", 0},
    {"softmax-in-rows-of-two-axes",
     "Softmax",
     11,
     "axis=1",
     {"f32[1,2,2]:0,0,0,0"},
     "f32[1,2,2]:0.25,0.25,0.25,0.25",
     1e-6},
    {"arg-last",
     "ArgMax",
     13,
     "axis=0 keepdims=0 select_last_index=1",
     {"f32[3]:2,7,7"},
     "i64[]:2",
     0},
    {"cumsum-exclusive",
     "CumSum",
     14,
     "exclusive=1 reverse=1",
     {"f32[3]:1,2,3", "!i32[]:0"},
     "f32[3]:5,3,0",
     0},
    {"layer-norm",
     "LayerNormalization",
     17,
     "epsilon=0f",
     {"f32[1,2]:1,3", "!f32[2]:2,2", "!f32[2]:1,1"},
     "f32[1,2]:-1,3",
     1e-5},
    {"conv-padded",
     "Conv",
     11,
     "pads=1,1,1,1",
     {"f32[1,1,2,2]:1,2,3,4", "!f32[1,1,3,3]:0,0,0,0,2,0,0,0,1", "!f32[1]:10"},
     "f32[1,1,2,2]:16,14,16,18",
     0},
    {"conv-transposed",
     "ConvTranspose",
     11,
     "strides=2,",
     {"f32[1,1,2]:1,2", "!f32[1,1,2]:1,10"},
     "f32[1,1,4]:1,10,2,20",
     0},
    {"max-pool-same",
     "MaxPool",
     12,
     "kernel_shape=2, auto_pad='SAME_UPPER'",
     {"f32[1,1,3]:3,1,2"},
     "f32[1,1,3]:3,2,2",
     0},
    {"mean-pool-inside",
     "AveragePool",
     11,
     "kernel_shape=2, pads=1,0",
     {"f32[1,1,2]:2,4"},
     "f32[1,1,2]:2,3",
     0},
    {"gemm",
     "Gemm",
     13,
     "transB=1 alpha=2f beta=0.5f",
     {"f32[1,2]:1,2", "!f32[2,2]:1,0,0,1", "!f32[2]:4,6"},
     "f32[1,2]:4,7",
     0},
    {"einsum", "Einsum", 12, "equation='...ij->...i'", {"f32[1,2,2]:1,2,3,4"}, "f32[1,2]:3,7", 0},
    {"resize-nearest",
     "Resize",
     13,
     "coordinate_transformation_mode='asymmetric' nearest_mode='floor'",
     {"f32[2]:1,2", "", "!f32[1]:2"},
     "f32[4]:1,1,2,2",
     0},
    {"resize-linear",
     "Resize",
     13,
     "mode='linear' coordinate_transformation_mode='align_corners'",
     {"f32[2]:0,2", "", "", "!i64[1]:3"},
     "f32[3]:0,1,2",
     1e-6},
    {"quantise",
     "QuantizeLinear",
     13,
     "",
     {"f32[3]:0,3,999", "!f32[]:2", "!u8[]:128"},
     "u8[3]:128,130,255",
     0},
    {"product-of-bytes",
     "MatMulInteger",
     10,
     "",
     {"u8[1,2]:3,4", "u8[2,1]:5,6", "!u8[]:1"},
     "i32[1,1]:28",
     0},
    {"attention-causal",
     "Attention",
     23,
     "is_causal=1",
     {"f32[1,1,2,1]:0,0", "f32[1,1,2,1]:1,1", "f32[1,1,2,1]:2,4"},
     "f32[1,1,2,1]:2,3",
     1e-6},
    {"shape-part", "Shape", 15, "start=1", {"f32[2,3]:1,2,3,4,5,6"}, "i64[1]:3", 0},
    {"range", "Range", 11, "", {"!f32[]:1", "!f32[]:6", "!f32[]:2"}, "f32[3]:1,3,5", 0},
    {"depth-to-space",
     "DepthToSpace",
     13,
     "blocksize=2 mode='CRD'",
     {"f32[1,4,1,1]:1,2,3,4"},
     "f32[1,1,2,2]:1,2,3,4",
     0},
};

/* ---- running --------------------------------------------------------------------------------- */

typedef struct counting { /* an allocator that fails at a call */
    size_t n, fail_at;
    long long held;
} counting;

static void *count_resize(void *user, void *memory, size_t old_size, size_t new_size) {
    counting *c = user;
    if (new_size && ++c->n == c->fail_at) return NULL;
    c->held += (long long)new_size - (long long)old_size;
    if (new_size) return realloc(memory, new_size);
    free(memory);
    return NULL;
}

static beryl_status open_model(const char *device, counting *count, const bytes *model,
                               const beryl_onnx_options *how, beryl_graph **g, beryl_error *error) {
    beryl_graph_options options = {
        .size = sizeof options, .device = device, .precision = BERYL_PRECISION_EXACT};
    if (count) options.allocator = (beryl_allocator){count_resize, count};
    const beryl_status status = beryl_graph_open(&options, g, error);
    return status ? status : beryl_graph_from_onnx(*g, model->data, model->n, how, error);
}

static beryl_status finish(beryl_graph *g, beryl_error *error) {
    beryl_status status;
    while ((status = beryl_graph_compile(g, error)) == BERYL_PENDING) {}
    if (!status) status = beryl_graph_run(g, NULL, 0, error);
    return status ? status : beryl_graph_wait(g, error);
}

static void set(beryl_graph *g, const char *name, const void *data, size_t size) {
    beryl_port port;
    for (size_t i = 0; beryl_graph_port(g, false, i, &port); i++)
        if (!strcmp(port.name, name)) beryl_graph_set(g, port.value, data, size, NULL);
}

static void check_output(test *t, beryl_graph *g, const tensor *want, double near) {
    tensor got = *want;
    beryl_port port;
    if (!beryl_graph_port(g, true, 0, &port)) {
        test_fail(t, __FILE__, __LINE__, "no output");
        return;
    }
    CHECK_INT(t, port.type, kinds[want->kind].type);
    CHECK_INT(t, port.rank, want->rank);
    for (uint32_t i = 0; i < want->rank; i++) CHECK_INT(t, port.dims[i].size, want->dim[i]);
    memset(&got.at, 0xee, sizeof got.at);
    if (test_failed(t)) return;
    CHECK_INT(t, beryl_graph_read(g, port.value, &got.at, want->n * kinds[want->kind].size, NULL),
              BERYL_OK);
    if (want->kind) CHECK(t, !memcmp(&got.at, &want->at, want->n * kinds[want->kind].size));
    for (size_t i = 0; !want->kind && i < want->n; i++)
        CHECK_NEAR(t, got.at.f[i], want->at.f[i], near);
}

static void run_row(test *t, const row *r, const char *device) {
    const bytes model = row_model(r);
    beryl_graph *g = NULL;
    beryl_error error = {0};
    beryl_status status = open_model(device, NULL, &model, NULL, &g, &error);
    if (!status)
        while ((status = beryl_graph_compile(g, &error)) == BERYL_PENDING) {}
    for (size_t i = 0; !status && i < 5 && r->in[i]; i++) {
        if (!*r->in[i] || *r->in[i] == '!') continue;
        const tensor x = tensor_of(r->in[i]);
        set(g, (char[]){(char)('a' + i), 0}, &x.at, x.n * kinds[x.kind].size);
    }
    if (!status) status = finish(g, &error);
    if (status) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    const tensor want = tensor_of(r->out);
    if (!status) check_output(t, g, &want, r->near);
    beryl_graph_close(g);
}

/* ---- bodies, functions, files beside --------------------------------------------------------- */

static bytes number(const char *name, const char *text) {
    const tensor t = tensor_of(text);
    return tensor_message(&t, name);
}

/* Three rounds of c = c + a, listed before: y is what is listed. */
static bytes loop_model(void) {
    bytes body = {.n = 0}, attribute = {.n = 0}, graph = {.n = 0}, m;
    const uint32_t two = 2;
    m = node_message("Add", "ca", "d", ""), field_bytes(&body, 1, &m);
    m = node_message("Identity", "c", "l", ""), field_bytes(&body, 1, &m);
    m = node_message("Identity", "k", "o", ""), field_bytes(&body, 1, &m);
    static const char *const in[] = {"i", "k", "c"}, *const out[] = {"o", "d", "l"};
    for (int i = 0; i < 3; i++) m = info_message(in[i], 1, 0, NULL), field_bytes(&body, 11, &m);
    for (int i = 0; i < 3; i++) m = info_message(out[i], 1, 0, NULL), field_bytes(&body, 12, &m);
    field_text(&attribute, 1, "body");
    field_bytes(&attribute, 6, &body);
    bytes node = node_message("Loop", "nta", "zy", "");
    field_bytes(&node, 5, &attribute);
    field_bytes(&graph, 1, &node);
    m = number("n", "i64[]:3"), field_bytes(&graph, 5, &m);
    m = number("t", "bool[]:1"), field_bytes(&graph, 5, &m);
    m = info_message("a", 1, 1, &two), field_bytes(&graph, 11, &m);
    m = info_message("y", 1, 2, (uint32_t[]){3, 2}), field_bytes(&graph, 12, &m);
    return model_message(&graph, 17);
}

static void check_on_one_two(test *t, const bytes *model, const beryl_onnx_options *how,
                             const char *want) {
    static const float x[2] = {1, 2};
    beryl_graph *g = NULL;
    beryl_error error = {0};
    beryl_status status = open_model("reference", NULL, model, how, &g, &error);
    if (!status)
        while ((status = beryl_graph_compile(g, &error)) == BERYL_PENDING) {}
    if (!status) set(g, "a", x, sizeof x);
    if (!status) status = finish(g, &error);
    if (status) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    const tensor out = tensor_of(want);
    if (!status) check_output(t, g, &out, 0);
    beryl_graph_close(g);
}

static void check_refused(test *t, const bytes *model, const beryl_onnx_options *how,
                          const char *words) {
    beryl_graph *g = NULL;
    beryl_error error = {0};
    CHECK(t, open_model("reference", NULL, model, how, &g, &error) != BERYL_OK);
    if (!strstr(error.message, words))
        test_fail(t, __FILE__, __LINE__, "\"%s\" has not \"%s\"", error.message, words);
    beryl_graph_close(g);
}

/* y = F(F(a)), F(v) = v + v */
static bytes function_model(void) {
    bytes f = {.n = 0}, graph = {.n = 0}, m;
    const uint32_t two = 2;
    field_text(&f, 1, "F");
    field_text(&f, 4, "v");
    field_text(&f, 5, "w");
    m = node_message("Add", "vv", "w", ""), field_bytes(&f, 7, &m);
    field_text(&f, 10, "own");
    m = node_message("F", "a", "b", ""), field_text(&m, 7, "own"), field_bytes(&graph, 1, &m);
    m = node_message("F", "b", "y", ""), field_text(&m, 7, "own"), field_bytes(&graph, 1, &m);
    m = info_message("a", 1, 1, &two), field_bytes(&graph, 11, &m);
    m = info_message("y", 1, 1, &two), field_bytes(&graph, 12, &m);
    bytes model = model_message(&graph, 17);
    field_bytes(&model, 25, &f);
    return model;
}

/* y = a + w, w in a file beside. */
static bytes outside_model(const char *location, const char *offset) {
    bytes w = {.n = 0}, graph = {.n = 0}, m;
    const uint32_t two = 2;
    const char *const entries[2][2] = {{"location", location}, {"offset", offset}};
    field_number(&w, 1, 2), field_number(&w, 2, 1), field_text(&w, 8, "w");
    for (int i = 0; i < 2; i++) {
        m.n = 0;
        field_text(&m, 1, entries[i][0]), field_text(&m, 2, entries[i][1]);
        field_bytes(&w, 13, &m);
    }
    field_number(&w, 14, 1);
    m = node_message("Add", "aw", "y", ""), field_bytes(&graph, 1, &m);
    field_bytes(&graph, 5, &w);
    m = info_message("a", 1, 1, &two), field_bytes(&graph, 11, &m);
    m = info_message("y", 1, 1, &two), field_bytes(&graph, 12, &m);
    return model_message(&graph, 17);
}

static void check_outside(test *t) {
    static const float numbers[3] = {7, 10, 20};
    char path[600];
    const beryl_onnx_options how = {.size = sizeof how, .folder = test_scratch(t)};
    snprintf(path, sizeof path, "%s/weights.bin", how.folder);
    CHECK_INT(t, base_file_write(path, numbers, sizeof numbers, NULL), BERYL_OK);
    bytes m = outside_model("weights.bin", "4");
    check_on_one_two(t, &m, &how, "f32[2]:11,22");
    check_refused(t, &m, NULL, "no folder");
    m = outside_model("weights.bin", "8"), check_refused(t, &m, &how, "beyond the end");
    m = outside_model("weights.bin", "x"), check_refused(t, &m, &how, "no number");
    static const char *const outside[] = {"../weights.bin", "/etc/passwd", "a/../../b", "",
                                          "a//b",           "./a",         "c:\\a"};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        m = outside_model(outside[i], "0"),
        check_refused(t, &m, &how, "outside the model's folder");
    m = outside_model("missing.bin", "0"), check_refused(t, &m, &how, "missing.bin");
}

/* ---- hostile files --------------------------------------------------------------------------- */

/* Opens, and runs where that is allowed; what is refused says why. */
static void try_model(test *t, const bytes *model, counting *count) {
    beryl_graph *g = NULL;
    beryl_error error = {0};
    const beryl_status status = open_model("reference", count, model, NULL, &g, &error);
    if (status && !*error.message) test_fail(t, __FILE__, __LINE__, "refused without a word");
    if (!status) finish(g, &error);
    beryl_graph_close(g);
    if (count && count->held) test_fail(t, __FILE__, __LINE__, "%lld bytes are kept", count->held);
}

static void test_hostile(test *t) {
    if (test_case(t, "onnx/cut-anywhere")) {
        const bytes whole = loop_model();
        for (size_t n = 0; n < whole.n; n++) {
            bytes m = whole;
            m.n = n;
            try_model(t, &m, NULL);
        }
    }
    if (test_case(t, "onnx/any-byte-changed")) {
        const bytes models[] = {loop_model(), function_model(), row_model(&rows[8]),
                                row_model(&rows[23])};
        for (size_t k = 0; k < sizeof models / sizeof *models; k++)
            for (size_t i = 0; i < models[k].n; i++)
                for (uint8_t by = 1; by; by = (uint8_t)(by << 3)) {
                    bytes m = models[k];
                    m.data[i] ^= by;
                    try_model(t, &m, NULL);
                }
    }
    if (test_case(t, "onnx/no-memory-anywhere")) {
        const bytes models[] = {loop_model(), function_model(), row_model(&rows[24])};
        for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
            counting count = {.fail_at = 0};
            try_model(t, &models[k], &count);
            const size_t calls = count.n;
            for (size_t at = 1; at <= calls; at++) {
                count = (counting){.fail_at = at};
                try_model(t, &models[k], &count);
            }
        }
    }
    if (test_case(t, "onnx/refused-by-name")) {
        const row unknown = {"", "Frobnicate", 17, "", {"f32[1]:1"}, "f32[1]:1", 0},
                  old = {"", "Add", 6, "", {"f32[1]:1", "f32[1]:1"}, "f32[1]:1", 0},
                  open = {"", "Reshape", 17, "", {"f32[2]:1,2", "i64[1]:2"}, "f32[2]:1,2", 0};
        bytes m = row_model(&unknown);
        check_refused(t, &m, NULL, "node 'y' (Frobnicate): the operator is not supported");
        m = row_model(&old), check_refused(t, &m, NULL, "opset 6");
        m = row_model(&open), check_refused(t, &m, NULL, "input 2 has to be a constant");
    }
}

static void collect(void *user, const char *text, size_t size) {
    char *to = user;
    snprintf(to, 2000, "%.*s", (int)size, text);
}

/* A graph that was explained runs all the same; one that runs is not explained any more. */
static void check_explained(test *t) {
    const bytes m = loop_model();
    const tensor want = tensor_of("f32[3,2]:1,2,2,4,3,6");
    static const float x[2] = {1, 2};
    for (int explained = 0; explained < 2; explained++) {
        char text[2000] = "";
        beryl_graph *g = NULL;
        beryl_error error = {0};
        beryl_status status = open_model("host", NULL, &m, NULL, &g, &error);
        if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
        if (!status && explained) status = beryl_graph_explain(g, NULL, collect, text, &error);
        if (!status && explained) CHECK(t, strstr(text, "= add(") != NULL);
        if (!status)
            while ((status = beryl_graph_compile(g, &error)) == BERYL_PENDING) {}
        if (!status) set(g, "a", x, sizeof x);
        if (!status) status = finish(g, &error);
        if (status && status != BERYL_NO_DEVICE)
            test_fail(t, __FILE__, __LINE__, "%s", error.message);
        if (!status) {
            check_output(t, g, &want, 0);
            CHECK_INT(t, beryl_graph_explain(g, NULL, collect, text, NULL),
                      explained ? BERYL_OK : BERYL_MISUSE);
        }
        beryl_graph_close(g);
    }
    CHECK_INT(t, beryl_graph_explain(NULL, NULL, collect, NULL, NULL), BERYL_MISUSE);
}

/* y = norm(conv(a)), or that + conv(a), which somebody else reads then. */
static bytes norm_model(bool read_twice) {
    static const struct {
        const char *name, *numbers;
    } known[] = {{"w", "f32[2,1,1,1]:1,2"}, {"b", "f32[2]:1,1"}, {"s", "f32[2]:2,1"},
                 {"h", "f32[2]:2,0"},       {"m", "f32[2]:1,0"}, {"v", "f32[2]:3,0"}};
    bytes graph = {.n = 0}, m;
    m = node_message("Conv", "awb", "c", ""), field_bytes(&graph, 1, &m);
    m = node_message("BatchNormalization", "cshmv", read_twice ? "z" : "y", "epsilon=1f");
    field_bytes(&graph, 1, &m);
    if (read_twice) m = node_message("Add", "zc", "y", ""), field_bytes(&graph, 1, &m);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        m = number(known[i].name, known[i].numbers), field_bytes(&graph, 5, &m);
    m = info_message("a", 1, 4, (uint32_t[]){1, 1, 1, 2}), field_bytes(&graph, 11, &m);
    m = info_message("y", 1, 4, (uint32_t[]){1, 2, 1, 2}), field_bytes(&graph, 12, &m);
    return model_message(&graph, 17);
}

static void check_norms(test *t) {
    for (int twice = 0; twice < 2; twice++) {
        const bytes model = norm_model(twice);
        char text[2000] = "";
        beryl_graph *g = NULL;
        check_on_one_two(t, &model, NULL, twice ? "f32[1,2,1,2]:5,7,6,10" : "f32[1,2,1,2]:3,4,3,5");
        CHECK_INT(t, open_model("reference", NULL, &model, NULL, &g, NULL), BERYL_OK);
        const beryl_explain_options how = {.size = sizeof how, .stage = BERYL_STAGE_GRAPH};
        CHECK_INT(t, beryl_graph_explain(g, &how, collect, text, NULL), BERYL_OK);
        CHECK_INT(t, strstr(text, "rsqrt") != NULL, twice);
        beryl_graph_close(g);
    }
}

/* Of an input whose shape the file leaves open: what is said by name, or by place. */
static void check_extents(test *t) {
    bytes graph = {.n = 0}, m;
    /* of type float, [n, ?] */
    bytes named = {.n = 0}, dims = {.n = 0}, shaped = {.n = 0}, type = {.n = 0}, info = {.n = 0};
    field_text(&named, 2, "n");
    field_bytes(&dims, 1, &named);
    m.n = 0, field_bytes(&dims, 1, &m);
    field_number(&shaped, 1, 1), field_bytes(&shaped, 2, &dims);
    field_bytes(&type, 1, &shaped);
    field_text(&info, 1, "a"), field_bytes(&info, 2, &type);
    m = node_message("Abs", "a", "y", ""), field_bytes(&graph, 1, &m);
    field_bytes(&graph, 11, &info);
    m = info_message("y", 1, 2, (uint32_t[]){1, 2}), field_bytes(&graph, 12, &m);
    const bytes model = model_message(&graph, 17);
    const beryl_onnx_extent said[] = {{"n", 1}, {"a.1", 2}, {"unknown", 3}};
    beryl_onnx_options how = {.size = sizeof how, .extents = said, .n_extent = 3};
    check_on_one_two(t, &model, &how, "f32[1,2]:1,2");
    how.n_extent = 1, check_refused(t, &model, &how, "dimension 'a.1' of input 'a'");
    how.n_extent = 0, check_refused(t, &model, &how, "dimension 'n' of input 'a'");
    const beryl_onnx_extent none = {"n", 0};
    how.extents = &none, how.n_extent = 1, check_refused(t, &model, &how, "no size");
}

static void test_rest(test *t) {
    if (test_case(t, "onnx/loop-of-known-count")) {
        const bytes m = loop_model();
        check_on_one_two(t, &m, NULL, "f32[3,2]:1,2,2,4,3,6");
    }
    if (test_case(t, "onnx/function-of-the-file")) {
        const bytes m = function_model();
        check_on_one_two(t, &m, NULL, "f32[2]:4,8");
    }
    if (test_case(t, "onnx/weights-in-a-file-beside")) check_outside(t);
    if (test_case(t, "onnx/shape-from-given-numbers")) {
        const row open = {"", "Reshape", 17, "", {"f32[2]:1,2", "i64[2]:2,1"}, "f32[2,1]:1,2", 0};
        const int64_t shape[2] = {2, 1};
        const uint32_t two = 2;
        const beryl_onnx_input given = {
            .name = "b", .type = BERYL_TYPE_I64, .rank = 1, .dims = &two, .data = shape};
        const beryl_onnx_options how = {.size = sizeof how, .inputs = &given, .n_input = 1};
        const bytes m = row_model(&open);
        check_on_one_two(t, &m, &how, "f32[2,1]:1,2");
    }
    if (test_case(t, "onnx/batch-norm-goes-into-its-convolution")) check_norms(t);
    if (test_case(t, "onnx/explained-then-run")) check_explained(t);
    if (test_case(t, "onnx/open-dimensions-by-name")) check_extents(t);
    if (test_case(t, "onnx/described")) {
        char text[2000] = "";
        const bytes m = loop_model();
        CHECK_INT(t, beryl_onnx_describe(m.data, m.n, collect, text, NULL), BERYL_OK);
        CHECK(t, strstr(text, "\"name\":\"Loop\",\"count\":1,\"supported\":true") != NULL);
        CHECK(t, strstr(text, "\"name\":\"a\",\"type\":\"float\",\"shape\":[2]") != NULL);
    }
}

void test_onnx(test *t) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (test_case(t, "onnx/%s", rows[i].name)) run_row(t, &rows[i], "reference");
        if (test_drawn(i, 0, 6) && test_case(t, "onnx/%s-host", rows[i].name))
            run_row(t, &rows[i], "host");
    }
    test_rest(t);
    test_hostile(t);
}
