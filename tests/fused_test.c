/* fused_test.c - products joined with what stands before and after them: the same graph on the
 * device, joined by the pass, and on the reference functions, as it was. Each case in the form
 * of software devices, of large ones with and without subgroups and integer dot products, and of
 * the smallest. */
#define _POSIX_C_SOURCE 200809L
#include "interpreter.h"
#include "rig_stand_in.h"
#include "sides.h"

#include "tile/matvec_fused.h"

#include <stdlib.h>
#include <string.h>

enum {
    LAYERS = 3,
    LOW = 60,   /* of vectors for the second matrices */
    SUMS = 3072 /* bytes of workgroup memory in which lanes without subgroups join their sums */
};

/* of the vectors: as they lie, their norm, a sum with a norm (which is a result too), its norm */
typedef enum before { PLAIN, NORM, ADD, ADD_NORM } before;
/* of the products: they are results, gelu(first) * second, gelu(first) * input, softcap */
typedef enum end { STORE, GEGLU, GELU_MUL, SOFTCAP } end;

typedef struct problem {
    const char *name;
    before before;
    end end;
    uint32_t n_bound, n, k, n_segment;
    base_type types[FUSED_SEGMENT_MAX];
    uint32_t rows[FUSED_SEGMENT_MAX];
    bool scaled;
    base_type down_type;
    uint32_t down; /* rows of a product that takes the result alone; 0: there is none */
    bool twin;     /* the branch is the sum of two */
    /* bytes of workgroup memory that hold what a product needs, but not its vectors (PLAIN: not
     * those that are handed on); 0: not tried */
    uint32_t apart;
    bool users; /* none of a model's forms: other rows before, other elements after (generated) */
    /* columns of a second matrix for each product, whose product with vectors of its own is added,
     * where there is one: GPUs do it on the way */
    uint32_t low[FUSED_SEGMENT_MAX];
    base_type low_type, side_type; /* side_type 0: the same */
    bool side; /* those vectors are made of x, by a matrix of `side_type`, times factors */
    /* not 0: too long for each workgroup: the sum is made where norms of it are, for `down`; above
     * 1: x is the gated products of vectors of so many */
    uint32_t late;
} problem;

/* clang-format off */
static const problem problems[] = {
    {"plain-three-rows", PLAIN, STORE, 1, 1, 256, 3, {TYPE_Q4_K, TYPE_Q4_0,
     TYPE_Q6_K}, {70, 33, 8}, false, TYPE_F32, 0, false, 0, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"plain-tables", PLAIN, STORE, 1, 1, 512, 3, {TYPE_IQ4_NL, TYPE_IQ4_XS,
     TYPE_MXFP4}, {40, 33, 8}, false, TYPE_F32, 0, false, 0, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"plain-few-bits", PLAIN, STORE, 1, 1, 512, 3, {TYPE_Q2_K, TYPE_Q3_K, TYPE_NVFP4},
     {40, 33, 8}, false, TYPE_F32, 0, false, 0, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"plain-ones", PLAIN, STORE, 2, 2, 256, 3, {TYPE_Q4_1, TYPE_Q5_1, TYPE_Q8_0}, {40,
     33, 9}, false, TYPE_F32, 0, false, 0, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"plain-geglu", PLAIN, GEGLU, 4, 3, 256, 2, {TYPE_Q4_K, TYPE_Q4_K}, {67, 67},
     false, TYPE_F32, 0, false, 0, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"plain-gelu-times-slice", PLAIN, GELU_MUL, 1, 1, 48, 1, {TYPE_F32}, {32}, false,
     TYPE_F32, 0, false, 0, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"norm-one", NORM, SOFTCAP, 1, 1, 256, 1, {TYPE_Q6_K}, {300}, false, TYPE_F32, 0,
     false, 256, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"norm-two-floats", NORM, STORE, 2, 2, 80, 2, {TYPE_F16, TYPE_BF16}, {9, 40},
     false, TYPE_F32, 0, false, 0, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"add-gelu-times-slice", ADD, GELU_MUL, 1, 1, 128, 1, {TYPE_Q8_0}, {32}, false,
     TYPE_F32, 0, false, 0, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"add-scaled", ADD, STORE, 3, 2, 64, 1, {TYPE_Q5_0}, {64}, true, TYPE_F32, 0,
     false, 0, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"add-norm-qkv", ADD_NORM, STORE, 1, 1, 512, 3, {TYPE_Q4_K, TYPE_Q4_K, TYPE_Q6_K},
     {130, 32, 32}, true, TYPE_F32, 0, false, 512, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"add-norm-qkv-few", ADD_NORM, STORE, 5, 5, 256, 2, {TYPE_Q5_K, TYPE_Q8_0}, {40,
     16}, false, TYPE_F32, 0, false, 0, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"add-norm-geglu", ADD_NORM, GEGLU, 1, 1, 256, 2, {TYPE_Q4_K, TYPE_Q4_K}, {320,
     320}, true, TYPE_F32, 0, false, 0, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"add-norm-geglu-down", ADD_NORM, GEGLU, 1, 1, 256, 2, {TYPE_Q4_K, TYPE_Q4_K},
     {512, 512}, true, TYPE_Q6_K, 70, false, 0, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"geglu-down-one", PLAIN, GEGLU, 1, 1, 128, 2, {TYPE_Q8_0, TYPE_Q8_0}, {96, 96},
     false, TYPE_Q4_0, 33, false, 0, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"norm-geglu-down-one", NORM, GEGLU, 1, 1, 256, 2, {TYPE_Q4_K, TYPE_Q4_K}, {512,
     512}, false, TYPE_Q4_K, 40, false, 0, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"geglu-down-few", PLAIN, GEGLU, 6, 5, 128, 2, {TYPE_Q8_0, TYPE_Q8_0}, {96, 96},
     false, TYPE_Q5_0, 33, false, 0, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"geglu-down-batch", PLAIN, GEGLU, 16, 13, 512, 2, {TYPE_Q4_K, TYPE_Q4_K}, {256,
     256}, false, TYPE_Q6_K, 70, false, 0, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"three-rows-batch", PLAIN, STORE, 12, 10, 768, 3, {TYPE_Q4_K, TYPE_Q8_0,
     TYPE_Q6_K}, {70, 33, 40}, false, TYPE_F32, 0, false, 0, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"two-rows-batch", PLAIN, STORE, 20, 18, 256, 2, {TYPE_Q5_K, TYPE_Q5_0}, {65, 40},
     false, TYPE_F32, 0, false, 0, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"geglu-down-of-floats", PLAIN, GEGLU, 1, 1, 128, 2, {TYPE_Q4_0, TYPE_Q4_0}, {64,
     64}, false, TYPE_F16, 33, false, 0, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"add-norm-softcap", ADD_NORM, SOFTCAP, 1, 1, 256, 1, {TYPE_Q8_0}, {500}, true,
     TYPE_F32, 0, false, 0, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"norm-many", NORM, STORE, 32, 17, 512, 1, {TYPE_Q4_K}, {70}, false, TYPE_F32, 0,
     false, 256, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"add-many-slices", ADD, GELU_MUL, 16, 16, 512, 1, {TYPE_Q8_0}, {32}, false,
     TYPE_F32, 0, false, 256, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"add-scaled-many-odd-blocks", ADD, STORE, 9, 9, 480, 2, {TYPE_Q5_0, TYPE_Q4_0},
     {64, 24}, true, TYPE_F32, 0, false, 256, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"add-norm-geglu-down-many", ADD_NORM, GEGLU, 16, 11, 2048, 2, {TYPE_Q4_K,
     TYPE_Q4_K}, {64, 64}, true, TYPE_Q4_0, 70, false, 2624, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"add-norm-floats-many", ADD_NORM, STORE, 20, 20, 528, 2, {TYPE_F16, TYPE_F32},
     {33, 8}, false, TYPE_F32, 0, false, 1024, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"twins-add-norm-many", ADD_NORM, STORE, 16, 16, 512, 1, {TYPE_Q4_K}, {33}, true,
     TYPE_F32, 0, true, 512, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"twins-add-norm-one", ADD_NORM, STORE, 1, 1, 2816, 1, {TYPE_Q8_0}, {40}, false,
     TYPE_F32, 0, true, 2048, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"norm-crowd", NORM, STORE, 40, 33, 256, 1, {TYPE_Q4_K}, {70}, false, TYPE_F32, 0,
     false, 0, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"add-norm-qkv-crowd", ADD_NORM, STORE, 48, 41, 512, 3, {TYPE_Q4_K, TYPE_Q4_K,
     TYPE_Q6_K}, {70, 33, 16}, true, TYPE_F32, 0, false, 0, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"twins-geglu-down-crowd", ADD_NORM, GEGLU, 40, 40, 256, 2, {TYPE_Q8_0,
     TYPE_Q8_0}, {96, 96}, true, TYPE_Q5_0, 33, true, 0, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"add-floats-crowd", ADD, STORE, 36, 34, 80, 2, {TYPE_F16, TYPE_F32}, {33, 8},
     true, TYPE_F32, 0, false, 0, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {"add-norm-long-rows", ADD_NORM, STORE, 2, 2, 5376, 1, {TYPE_Q4_0}, {24}, true,
     TYPE_F32, 0, false, 4096, false, {0}, TYPE_F32, TYPE_F32, false, false},
    {.name = "users-one", .n_bound = 1, .n = 1, .k = 256, .n_segment = 1, .types = {TYPE_Q8_0},
     .rows = {96}, .users = true},
    {.name = "users-few", .n_bound = 5, .n = 3, .k = 128, .n_segment = 2, .types = {TYPE_Q4_0,
     TYPE_Q4_0}, .rows = {40, 40}, .users = true},
    /* rows and chunks enough for two rows a lane */
    {.name = "two-rows-qkv", .before = ADD_NORM, .n_bound = 1, .n = 1, .k = 1024, .n_segment = 3,
     .types = {TYPE_Q4_K, TYPE_Q4_K, TYPE_Q6_K}, .rows = {130, 32, 33}},
    {.name = "two-rows-geglu", .before = ADD_NORM, .end = GEGLU, .n_bound = 1, .n = 1, .k = 1024,
     .n_segment = 2, .types = {TYPE_Q4_K, TYPE_Q4_K}, .rows = {160, 160}, .down = 40,
     .down_type = TYPE_Q4_0},
    {.name = "two-rows-handed", .end = GEGLU, .n_bound = 1, .n = 1, .k = 256, .n_segment = 2,
     .types = {TYPE_Q4_K, TYPE_Q4_K}, .rows = {1024, 1024}, .down = 70, .down_type = TYPE_Q4_K},
    {.name = "handed-beside", .end = GEGLU, .n_bound = 1, .n = 1, .k = 256, .n_segment = 2,
     .types = {TYPE_Q4_K, TYPE_Q4_K}, .rows = {512, 512}, .down = 40, .down_type = TYPE_Q4_1, .apart = 816},
    {.name = "halves-geglu", .before = NORM, .end = GEGLU, .n_bound = 1, .n = 1, .k = 208,
     .n_segment = 2, .types = {TYPE_F16, TYPE_F16}, .rows = {42, 42}},
    {.name = "halves-three-rows", .before = NORM, .n_bound = 1, .n = 1, .k = 528, .n_segment = 3,
     .types = {TYPE_F16, TYPE_F16, TYPE_F16}, .rows = {130, 33, 40}},
    {.name = "low-qkv", .before = ADD_NORM, .n_bound = 1, .n = 1, .k = 512, .n_segment = 3,
     .types = {TYPE_Q4_K, TYPE_Q4_K, TYPE_Q6_K}, .rows = {130, 32, 33}, .low = {16, 0, 8},
     .low_type = TYPE_F16},
    {.name = "low-softcap", .before = NORM, .end = SOFTCAP, .n_bound = 2, .n = 2, .k = 256,
     .n_segment = 1, .types = {TYPE_Q8_0}, .rows = {70}, .low = {50}, .low_type = TYPE_BF16},
    {.name = "low-geglu", .before = ADD_NORM, .end = GEGLU, .n_bound = 1, .n = 1, .k = 256,
     .n_segment = 2, .types = {TYPE_Q4_K, TYPE_Q4_K}, .rows = {96, 96}, .low = {16, 16}},
    {.name = "low-geglu-few", .end = GEGLU, .n_bound = 5, .n = 4, .k = 128, .n_segment = 2,
     .types = {TYPE_Q8_0, TYPE_Q8_0}, .rows = {67, 67}, .low = {3, 1}, .low_type = TYPE_F16},
    {.name = "low-batch", .n_bound = 14, .n = 13, .k = 256, .n_segment = 3, .types = {TYPE_Q4_K,
     TYPE_Q8_0, TYPE_Q6_K}, .rows = {70, 33, 40}, .low = {8, 16, 0}, .low_type = TYPE_F16},
    {.name = "side-qkv", .before = ADD_NORM, .n_bound = 1, .n = 1, .k = 512, .n_segment = 3,
     .types = {TYPE_Q4_K, TYPE_Q4_K, TYPE_Q6_K}, .rows = {130, 32, 33}, .low = {16, 16, 16},
     .low_type = TYPE_F16, .side_type = TYPE_Q8_0, .side = true},
    {.name = "side-geglu", .before = ADD_NORM, .end = GEGLU, .n_bound = 1, .n = 1, .k = 256,
     .n_segment = 2, .types = {TYPE_Q4_K, TYPE_Q4_K}, .rows = {96, 96}, .low = {32, 32},
     .low_type = TYPE_BF16, .side_type = TYPE_Q8_0, .side = true},
    {.name = "side-softcap", .before = NORM, .end = SOFTCAP, .n_bound = 1, .n = 1, .k = 1312,
     .n_segment = 1, .types = {TYPE_F16}, .rows = {300}, .low = {16}, .side = true},
    {.name = "side-plain", .n_bound = 1, .n = 1, .k = 2048, .n_segment = 1, .types = {TYPE_Q4_K},
     .rows = {40}, .low = {16}, .low_type = TYPE_F16, .side_type = TYPE_Q8_0, .side = true},
    {.name = "side-deep", .before = NORM, .n_bound = 1, .n = 1, .k = 4096, .n_segment = 1,
     .types = {TYPE_Q6_K}, .rows = {110}, .low = {16}, .low_type = TYPE_F16,
     .side_type = TYPE_Q8_0, .side = true},
    {.name = "side-halves", .before = ADD_NORM, .n_bound = 1, .n = 1, .k = 640, .n_segment = 2,
     .types = {TYPE_F16, TYPE_F16}, .rows = {50, 40}, .low = {16, 32}, .low_type = TYPE_BF16,
     .side = true},
    {.name = "side-late", .n_bound = 1, .n = 1, .k = 3072, .n_segment = 1, .types = {TYPE_Q4_K},
     .rows = {128}, .down = 40, .down_type = TYPE_Q8_0, .low = {16}, .side = true, .late = 1},
    {.name = "side-late-deep", .n_bound = 1, .n = 1, .k = 1536, .n_segment = 1,
     .types = {TYPE_Q6_K}, .rows = {160}, .down = 40, .down_type = TYPE_Q4_0, .low = {64}, .low_type = TYPE_F16,
     .side = true, .late = 1},
    {.name = "side-late-handed", .n_bound = 1, .n = 1, .k = 1536, .n_segment = 1,
     .types = {TYPE_Q4_K}, .rows = {96}, .down = 40, .down_type = TYPE_Q8_0, .low = {64},
     .low_type = TYPE_F16, .side_type = TYPE_Q8_0, .side = true, .late = 256},
    {.name = "side-two", .before = ADD_NORM, .end = GEGLU, .n_bound = 2, .n = 2, .k = 768,
     .n_segment = 2, .types = {TYPE_Q4_K, TYPE_Q4_K}, .rows = {96, 96}, .low = {16, 32},
     .low_type = TYPE_BF16, .side_type = TYPE_Q8_0, .side = true},
    {.name = "side-two-qkv", .before = NORM, .n_bound = 2, .n = 1, .k = 1280, .n_segment = 3,
     .types = {TYPE_Q4_K, TYPE_Q4_K, TYPE_Q6_K}, .rows = {64, 20, 20}, .low = {16, 16, 16},
     .low_type = TYPE_F16, .side_type = TYPE_Q8_0, .side = true},
    {.name = "side-four-plain", .n_bound = 4, .n = 3, .k = 2048, .n_segment = 1,
     .types = {TYPE_Q4_K}, .rows = {40}, .low = {48}, .low_type = TYPE_F16,
     .side_type = TYPE_Q8_0, .side = true},
    {.name = "side-few", .before = ADD_NORM, .end = SOFTCAP, .n_bound = 4, .n = 3, .k = 640,
     .n_segment = 1, .types = {TYPE_F16}, .rows = {50}, .low = {16}, .low_type = TYPE_BF16,
     .side = true},
    {.name = "side-batch", .before = ADD_NORM, .n_bound = 14, .n = 13, .k = 512, .n_segment = 3,
     .types = {TYPE_Q4_K, TYPE_Q8_0, TYPE_Q6_K}, .rows = {20, 6, 7}, .low = {16, 32, 16},
     .low_type = TYPE_F16, .side_type = TYPE_Q8_0, .side = true},
    {.name = "side-batch-geglu", .before = NORM, .end = GEGLU, .n_bound = 9, .n = 8, .k = 2304,
     .n_segment = 2, .types = {TYPE_Q4_K, TYPE_Q4_K}, .rows = {8, 8}, .low = {16, 16},
     .low_type = TYPE_BF16, .side = true},
    {.name = "side-batch-plain", .end = SOFTCAP, .n_bound = 6, .n = 5, .k = 2304, .n_segment = 1,
     .types = {TYPE_Q4_K}, .rows = {10}, .low = {16}, .low_type = TYPE_F16, .side_type = TYPE_Q8_0,
     .side = true},
    {.name = "side-parts", .n_bound = 1, .n = 1, .k = 5376, .n_segment = 1,
     .types = {TYPE_Q4_K}, .rows = {64}, .down = 40, .down_type = TYPE_Q8_0, .low = {16},
     .low_type = TYPE_BF16, .side_type = TYPE_Q8_0, .side = true, .late = 32},
    {.name = "side-parts-plain", .n_bound = 1, .n = 1, .k = 5376, .n_segment = 1,
     .types = {TYPE_F16}, .rows = {64}, .down = 40, .down_type = TYPE_Q8_0, .low = {16},
     .low_type = TYPE_F16, .side = true, .late = 32},
    {.name = "two-rows-eight-lanes", .before = ADD_NORM, .end = GEGLU, .n_bound = 1, .n = 1, .k = 512,
     .n_segment = 2, .types = {TYPE_Q4_K, TYPE_Q4_K}, .rows = {160, 160}, .down = 40,
     .down_type = TYPE_Q4_0},
};
/* clang-format on */

/* ---- the graph ------------------------------------------------------------------------------- */

enum { T_W_BRANCH, T_SCALE, T_W_NORM, T_W_TWIN, T_MATRIX };

static bool is_gated(const problem *p) {
    return p->late > 1;
}

/* Do those before it make parts of what is added? */
static bool has_parts(const problem *p) {
    return is_gated(p) && p->low[0] == 16;
}

static uint32_t low_of(const problem *p) { /* of all */
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_segment; i++) n += p->low[i];
    return n;
}

/* A layer norm of a sum that is a result too; a bias, a product of both where there are two, gelu
 * and a sum with what comes from outside, of which one on the way is a result. */
static void build_users(side *s, const graph_value *w, const problem *p, uint8_t n) {
    graph *g = s->g;
    const graph_dim dims[2] = {{p->n_bound, n}, {p->k, 0}},
                    ends[2] = {{p->n_bound, n}, {p->rows[0], 0}};
    graph_value x = graph_add(g, side_input(s, "h", 2, dims), side_input(s, "other", 2, dims));
    x = graph_scale(g, x, 0.5f);
    side_output(s, x);
    x = graph_layer_norm(g, x, w[T_W_NORM], w[T_W_TWIN], 1e-5f);
    graph_value y =
        graph_add(g, graph_linear(g, x, w[T_MATRIX]), side_input(s, "bias", 1, &ends[1]));
    if (p->n_segment == 2) y = graph_mul(g, y, graph_linear(g, x, w[T_MATRIX + 1]));
    side_output(s, y);
    side_output(s, graph_add(g, graph_gelu_tanh(g, y), side_input(s, "residual", 2, ends)));
}

static void build(side *s, const graph_value *w, const void *problem_) {
    const problem *p = problem_;
    graph *g = s->g;
    const uint8_t n = graph_extent_add(g, "n", p->n_bound);
    const graph_dim dims[2] = {{p->n_bound, n}, {p->k, 0}};
    if (p->users) {
        build_users(s, w, p, n);
        return;
    }
    const graph_dim from[2] = {dims[0], {is_gated(p) ? p->late : p->k, 0}};
    graph_value y[FUSED_SEGMENT_MAX], x = side_input(s, "h", 2, from);
    if (is_gated(p)) {
        const uint32_t gate = T_MATRIX + p->n_segment + 4;
        const graph_value y0 = graph_linear(g, x, w[gate]), y1 = graph_linear(g, x, w[gate + 1]);
        x = graph_geglu(g, y0, y1);
    }
    if (p->before == ADD || p->before == ADD_NORM) {
        graph_value branch = side_input(s, "branch", 2, dims);
        if (p->twin) {
            branch = graph_rms_norm(g, branch, w[T_W_NORM], 1e-4f);
            branch = graph_add(
                g, branch, graph_rms_norm(g, side_input(s, "twin", 2, dims), w[T_W_TWIN], 1e-3f));
        }
        x = graph_add(g, x, graph_rms_norm(g, branch, w[T_W_BRANCH], 1e-6f));
        if (p->scaled) x = graph_mul(g, x, w[T_SCALE]);
        side_output(s, x);
    }
    if (p->before == NORM || p->before == ADD_NORM) x = graph_rms_norm(g, x, w[T_W_NORM], 1e-5f);
    const graph_dim low_dims[2] = {{p->n_bound, n}, {p->side ? low_of(p) : LOW, 0}};
    graph_value z = p->low[0] ? side_input(s, p->side ? "factors" : "low", 2, low_dims) : 0;
    if (p->side) z = graph_mul(g, graph_linear(g, x, w[T_MATRIX + p->n_segment + p->n_segment]), z);
    for (uint32_t i = 0, at = 0, low = T_MATRIX + p->n_segment; i < p->n_segment; i++) {
        y[i] = graph_linear(g, x, w[T_MATRIX + i]);
        if (!p->low[i]) continue;
        const graph_value part = p->late ? z : graph_narrow(g, z, 1, at, p->low[i], 1);
        y[i] = graph_add(g, y[i], graph_linear(g, part, w[low++]));
        at += p->low[i];
    }
    if (p->end == GEGLU) y[0] = graph_geglu(g, y[0], y[1]);
    if (p->end == SOFTCAP) y[0] = graph_softcap(g, y[0], 30);
    if (p->end == GELU_MUL) {
        const graph_value slices = side_input(
            s, "slices", 3, (graph_dim[]){{p->n_bound, n}, {LAYERS, 0}, {p->rows[0], 0}});
        y[0] = graph_geglu(g, y[0], graph_squeeze(g, graph_narrow(g, slices, 1, 1, 1, 1), 1));
    }
    if (p->late) {
        const graph_dim ends[2] = {{p->n_bound, n}, {p->rows[0], 0}};
        const graph_value own = w[T_MATRIX + p->n_segment + 2]; /* beside the rows of low rank */
        y[0] =
            graph_add(g, graph_rms_norm(g, y[0], own, 1e-5f), side_input(s, "residual", 2, ends));
        side_output(s, y[0]);
        y[0] = graph_linear(g, graph_rms_norm(g, y[0], own, 1e-5f), w[T_MATRIX + p->n_segment + 3]);
    } else if (p->down) {
        y[0] = graph_linear(g, y[0], w[T_MATRIX + p->n_segment]);
    }
    for (uint32_t i = 0; i < (p->end == STORE ? p->n_segment : 1); i++) side_output(s, y[i]);
}

static void check_joined(test *t, side *joined, const void *problem_) {
    const problem *p = problem_;
    const bool gated = is_gated(p);
    CHECK_INT(t, side_live_nodes(joined, OP_COUNT), (p->down ? 2 : 1) + gated);
    CHECK_INT(t, side_live_nodes(joined, OP_FUSED), (p->late ? 2 : 1) + gated);
}

/* The gated results of one vector go on as int8. */
static void check_handed(test *t, side *joined, const void *problem_) {
    const graph *g = joined->g;
    check_joined(t, joined, problem_);
    const bool gated = is_gated(problem_);
    uint32_t seen = 0;
    for (size_t i = 0; i < g->nodes.count; i++)
        if (!g->nodes.data[i].dead && g->nodes.data[i].op == OP_FUSED && !(gated && seen++))
            CHECK(t, tile_matvec_handed_on(g, &joined->store, &(lower_settings){.exact = false},
                                           &g->nodes.data[i]) != 0);
}

static void check_parts(test *t, side *joined, const void *problem_) {
    const graph *g = joined->g;
    check_joined(t, joined, problem_);
    uint32_t parts = 0;
    for (size_t i = 0; i < g->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[i];
        if (!node->dead && node->op == OP_FUSED)
            parts += ((const fused_matvec *)node->attr.fused.detail)->parts_of != 0;
    }
    CHECK_INT(t, parts, 1);
}

static void check_apart(test *t, side *joined, const void *problem_) {
    base_text text;
    check_joined(t, joined, problem_);
    base_text_init(&text, joined->g->heap);
    graph_exec_print(joined->exec, &text);
    CHECK(t, !text.failed && strstr(text.data, " vectors "));
    base_text_fini(&text);
}

static void run(test *t, base_heap *heap, device *d, const problem *p, bool exact, bool apart,
                bool gpu) {
    sides_weights w = {0};
    sides_weight_add(&w, TYPE_F32, 1, 1, p->k, 0, 0);
    sides_weight_add(&w, TYPE_F32, 1, 1, 1, 0, 0);
    sides_weight_add(&w, TYPE_F32, 1, 1, p->k, 0, 0);
    sides_weight_add(&w, TYPE_F32, 1, 1, p->k, 0, 0);
    for (uint32_t i = 0; i < p->n_segment; i++)
        sides_weight_add(&w, p->types[i], 0, 2, p->rows[i], p->k, 0);
    for (uint32_t i = 0; i < p->n_segment; i++)
        if (p->low[i]) sides_weight_add(&w, p->low_type, 1, 2, p->rows[i], p->low[i], 0);
    if (p->side)
        sides_weight_add(&w, p->side_type ? p->side_type : p->low_type, !p->side_type, 2, low_of(p),
                         p->k, 0);
    if (p->late) sides_weight_add(&w, TYPE_F32, 1, 1, p->rows[0], 0, 0);
    if (p->down) sides_weight_add(&w, p->down_type, 0, 2, p->down, p->rows[0], 0);
    for (uint32_t i = 0; is_gated(p) && i < 2; i++)
        sides_weight_add(&w, p->late % 256 ? TYPE_Q8_0 : TYPE_Q4_K, 0, 2, p->k, p->late, 0);
    const bool handed = p->down && (!p->late || is_gated(p)) && p->n_bound == 1 && !exact &&
                        d->caps.subgroups && d->caps.dot_i8 && base_type_is_quantised(p->down_type);
    const bool parts = has_parts(p) && !exact && d->caps.subgroups;
    /* f32 sums in another order; int8 activations, twice */
    sides_run(t, heap, d,
              &(sides){.weights = &w,
                       .build = build,
                       .check = p->low[0] && (!gpu || (p->side && !d->caps.subgroups)) ? NULL
                                : apart                                                ? check_apart
                                : parts                                                ? check_parts
                                : handed ? check_handed
                                         : check_joined,
                       .problem = p,
                       .n = p->n,
                       .exact = exact,
                       .within = exact ? 2e-6 : 2e-2});
    free(w.bytes);
}

/* ---- the forms ------------------------------------------------------------------------------- */

/* apart: with so little workgroup memory that a dispatch before the product makes its vectors.
 * align: bindings begin at multiples of so many bytes, more than WebGPU's devices ask for; tried
 * with one problem. The interpreter of tests finds races. subgroups: OpenCL with them, which a
 * driver that has none is given. */
static const struct form {
    const char *name, *device;
    bool gpu, least, exact, plain, apart;
    uint32_t align;
    bool subgroups;
} forms[] = {
    {"software", "webgpu:software", false, false, true, false, false, 0, false},
    {"gpu-exact", "webgpu:software", true, false, true, false, false, 0, false},
    {"gpu-fast", "webgpu:software", true, false, false, false, false, 0, false},
    {"smallest", "webgpu:software", true, true, true, true, false, 0, false},
    {"apart-exact", "webgpu:software", true, false, true, false, true, 0, false},
    {"apart-fast", "webgpu:software", true, false, false, false, true, 0, false},
    {"apart-plain-fast", "webgpu:software", true, false, false, true, true, 0, false},
    {"aligned", "webgpu:software", false, false, true, false, false, 1024, false},
    {"interpreter-exact", "interpreter", true, false, true, false, false, 0, false},
    {"interpreter-fast", "interpreter", true, false, false, false, false, 0, false},
    {"interpreter-plain-fast", "interpreter", true, false, false, true, false, 0, false},
    {"interpreter-smallest", "interpreter", true, true, true, true, false, 0, false},
    {"interpreter-lane", "interpreter", false, false, true, true, false, 0, false},
    {"host", "host", false, false, true, true, false, 0, false},
    {"cuda-fast", "cuda", true, false, false, false, false, 0, false},
    {"cuda-smallest", "cuda", true, true, true, true, false, 0, false},
    {"opencl-exact", "opencl", true, false, true, true, false, 0, false},
    {"opencl-subgroups", "opencl", true, false, false, false, false, 0, true},
};

static beryl_status form_open(const struct form *f, base_heap *heap, device **d,
                              beryl_error *error) {
    beryl_status status;
    if (!strcmp(f->device, "interpreter"))
        status = (*d = interpreter_open(heap)) ? BERYL_OK : BERYL_NO_MEMORY;
    else status = device_open(heap, NULL, f->device, d, error);
    if (status != BERYL_OK) return status;
    device_caps *caps = &(*d)->caps;
    if (!strcmp(f->device, "interpreter"))
        caps->subgroups = true, caps->subgroup_size = 32, caps->permutes_bytes = !f->exact;
    /* all WGSL has them */
    if (f->gpu) caps->kind = DEVICE_DISCRETE, caps->compute_units = 2, caps->dot_i8 = true;
    if (f->least) caps->dot_i8 = false, caps->workgroup_bytes = 16384;
    if (f->plain) caps->subgroups = false;
    if (f->align) caps->align_binding = f->align;
    return status;
}

/* One, a few, or many vectors: they are joined in different ways. */
static int crowd(const problem *p) {
    return p->n_bound > 6 ? 2 : p->n_bound > 1;
}

static bool is_first_of_its_form(const problem *p) {
    for (const problem *q = problems; q < p; q++)
        if (q->before == p->before && q->end == p->end && q->twin == p->twin &&
            !q->low[0] == !p->low[0] && crowd(q) == crowd(p) && has_parts(q) == has_parts(p))
            return false;
    return true;
}

/* Is there no room to copy what is handed on? */
static bool is_beside(const problem *p) {
    return p->before == PLAIN && p->apart;
}

/* Slow or without a form of its own there: crowds, which are joined as tiles of bytes alone; what
 * the interpreter takes seconds for. OpenCL and drivers that stand in are given each form once,
 * the plainest kernels those of one vector alone. */
static bool is_left_out(const struct form *f, const problem *p, bool stand_in) {
    const bool interpreted = !strcmp(f->device, "interpreter"),
               software = !strcmp(f->device, "webgpu:software");
    if (software && !strncmp(p->name, "two-rows", 8)) return true; /* its subgroups are small */
    if (is_beside(p) && strcmp(f->name, "interpreter-fast") != 0) return true;
    if ((stand_in || !strcmp(f->device, "opencl")) && !is_first_of_its_form(p)) return true;
    if (stand_in && crowd(p) > (f->least ? 0 : f->subgroups ? 1 : 2)) return true;
    if ((f->apart && !p->apart) || (f->align && p->n_segment < 3)) return true;
    /* each is compiled for a second */
    if (!strcmp(f->device, "host") && p->n_segment < 3 && !p->twin) return true;
    if (p->n_bound > 32)
        return f->exact || f->least || !base_type_is_quantised(p->types[0]) ||
               !(interpreted || software);
    if (!strcmp(f->name, "interpreter-plain-fast")) return true; /* as exact as "smallest" */
    /* the driver takes up to half a minute for each */
    if (software && f->gpu && !f->apart && p->n_bound > 6) return true;
    return interpreted && (uint64_t)p->n * p->k * p->rows[0] > 400000;
}

void test_fused(test *t);
void test_fused(test *t) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        base_heap heap;
        device *d = NULL;
        beryl_error error = {0};
        base_heap_init(&heap, NULL);
        const bool stand_in =
            forms[i].subgroups ? rig_opencl_subgroups("amd") : rig_stand_in(forms[i].device);
        const beryl_status status = form_open(&forms[i], &heap, &d, &error);
        const uint32_t workgroup_bytes = d ? d->caps.workgroup_bytes : 0;
        /* whose driver compiles each kernel for a while */
        const bool slow = !strcmp(forms[i].device, "webgpu:software");
        for (size_t j = 0; j < sizeof problems / sizeof *problems; j++) {
            if (!test_drawn(j, i, slow ? 3 : 2) || is_left_out(&forms[i], &problems[j], stand_in) ||
                !test_case(t, "fused/%s/%s", forms[i].name, problems[j].name))
                continue;
            if (status != BERYL_OK) {
                test_skip(t, "%s", error.message);
                continue;
            }
            d->caps.workgroup_bytes = forms[i].apart
                                          ? problems[j].apart + (forms[i].plain ? SUMS : 0)
                                      : is_beside(&problems[j]) ? problems[j].apart
                                                                : workgroup_bytes;
            run(t, &heap, d, &problems[j], forms[i].exact, forms[i].apart, forms[i].gpu);
        }
        device_close(d);
        if (stand_in) rig_stand_in_end(forms[i].device);
        if (test_case(t, "fused/%s/gives-everything-back", forms[i].name))
            CHECK_INT(t, heap.bytes, 0);
    }
}
