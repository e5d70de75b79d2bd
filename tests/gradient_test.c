/* gradient_test.c - gradients. On the reference functions against central differences in double, of
 * first and second order, every rule and every view; kinks and ties against what PyTorch says; what
 * is refused; on every device against the reference's own backward pass; and training runs against
 * plain loops that are written here. */
#include "blocks.h"
#include "forms.h"
#include "typed.h"

#include "beryl_nn.h"

#include "base/thread.h"
#include "graph/reference.h"
#include "plan/exec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    BOUND = 4,
    ROWS = 3,
    IN_MAX = 4,
    ELEMENTS_MAX = 256,
    RANK_MAX = 10,
    CONSTANTS = 8,
    CONSTANT_MAX = 256,
    ROWS_OF_DEVICES = 7
};

/* ---- cases ----------------------------------------------------------------------------------- */

typedef graph_value build_fn(graph *g, const graph_value *x);

typedef struct rule_case {
    const char *name;
    build_fn *build;
    const char *shapes; /* of inputs: a digit each dimension, n: the extent; "n5 5" */
    enum {
        DOUBLE,
        BILINEAR, /* in F32, and a polynomial of second degree at most */
        SMOOTH    /* in F32 */
    } how;
    bool once; /* no second derivative is taken */
} rule_case;

/* Of operations that take indices: those of the extent's rows, or of 5, as i * 2 modulo m; of the
 * last but one m itself, which is out of range. */
static graph_value places(graph *g, graph_value x, uint32_t axis, uint32_t m) {
    graph_value i = graph_iota(g, x, axis);
    graph_value v = graph_cast(g, i, TYPE_F32, false);
    v = graph_scale(g, v, 2);
    v = graph_sub(g, v,
                  graph_scale(g, graph_floor(g, graph_scale(g, v, 1.0f / (float)m)), (float)m));
    return graph_cast(g, v, TYPE_I32, false);
}

static graph_value views(graph *g, const graph_value *x) {
    graph_value v = graph_permute(g, x[0], 3, (uint32_t[]){2, 0, 1}); /* [n, 6, 5] */
    v = graph_narrow(g, v, 1, 1, 2, 3);
    v = graph_flip(g, v, 2);
    v = graph_unsqueeze(g, graph_narrow(g, v, 1, 1, 1, 1), 2); /* [n, 1, 1, 5] */
    v = graph_expand(g, graph_squeeze(g, v, 1), 3,
                     (graph_dim[]){graph_tensor_at(g, v)->dim[0], {3, 0}, {5, 0}});
    return graph_mul(g, v, v);
}

static graph_value reshaped(graph *g, const graph_value *x) {
    const graph_dim n = graph_tensor_at(g, x[0])->dim[0];
    graph_value v = graph_permute(g, x[0], 3, (uint32_t[]){0, 2, 1});
    v = graph_square(g, graph_reshape(g, v, 2, (graph_dim[]){n, {6, 0}}));
    return graph_reshape(g, v, 3, (graph_dim[]){n, {3, 0}, {2, 0}});
}

static graph_value rowed(graph *g, const graph_value *x) {
    return graph_gather_rows(g, x[0], places(g, x[1], 0, 5), 0.5f);
}

static graph_value experts(graph *g, const graph_value *x) {
    return graph_linear_id(g, x[0], x[1], places(g, x[2], 1, 3));
}

static graph_value gathered(graph *g, const graph_value *x) {
    return graph_square(g, graph_gather(g, x[0], places(g, x[1], 1, 4), 1));
}

static graph_value scattered(graph *g, const graph_value *x) {
    return graph_square(g, graph_scatter(g, x[0], places(g, x[1], 1, 4), x[1], 1));
}

static graph_value scatter_added(graph *g, const graph_value *x) {
    return graph_square(g, graph_scatter_add(g, x[0], places(g, x[1], 1, 4), x[1], 1));
}

static graph_value selected(graph *g, const graph_value *x) {
    return graph_square(g, graph_index_select(g, x[0], places(g, x[1], 0, 3), 1));
}

static graph_value chosen(graph *g, const graph_value *x) {
    return graph_where(g, graph_gt(g, x[0], x[1]), graph_square(g, x[0]), graph_exp(g, x[1]));
}

static graph_value joined(graph *g, const graph_value *x) {
    return graph_square(g, graph_concat(g, 4, (graph_value[]){x[0], x[1], x[0], x[2]}, 0));
}

static graph_value sorted(graph *g, const graph_value *x) {
    graph_value indices;
    return graph_square(g, graph_sort(g, x[0], 0, GRAPH_SORT_FALLING, &indices));
}

static graph_value topmost(graph *g, const graph_value *x) {
    graph_value indices;
    return graph_topk(g, x[0], 3, &indices);
}

static graph_value convolved(graph *g, const graph_value *x) {
    const graph_window w[2] = {{.stride = 2, .dilation = 1, .pad_before = 1, .pad_after = 1},
                               {.stride = 1, .dilation = 2, .pad_before = 1, .pad_after = 0}};
    return graph_conv(g, x[0], x[1], 2, w, 1);
}

static graph_value grouped(graph *g, const graph_value *x) {
    const graph_window w[1] = {{.stride = 1, .dilation = 1, .pad_before = 1, .pad_after = 1}};
    return graph_conv(g, x[0], x[1], 1, w, 2);
}

static graph_value transposed(graph *g, const graph_value *x) {
    const graph_window w[1] = {{.stride = 2, .dilation = 1, .pad_before = 1, .pad_after = 0}};
    return graph_conv_transpose(g, x[0], x[1], 1, w, NULL, 1);
}

static graph_value pooled(graph *g, const graph_value *x) {
    const graph_window w[2] = {{3, 2, 1, 1, 1}, {2, 2, 1, 0, 0}};
    return graph_add(g, graph_max_pool(g, x[0], 2, w), graph_avg_pool(g, x[0], 2, w));
}

static graph_value windowed(graph *g, const graph_value *x) {
    const graph_value padded = graph_pad(g, x[0], 0, 1, 1, 0);
    return graph_square(g, graph_windows(g, padded, 0, 3, 1));
}

static graph_value windowed_far(graph *g, const graph_value *x) {
    return graph_square(g, graph_windows(g, x[0], 0, 5, 3));
}

static graph_value windowed_many(graph *g, const graph_value *x) {
    return graph_square(g, graph_windows(g, graph_pad(g, x[0], 1, 17, 0, 1), 1, 18, 1));
}

static graph_value rotated(graph *g, const graph_value *x) {
    return graph_rotate(g, x[0], 1, &x[1], &x[2], true);
}

static graph_value varied(graph *g, const graph_value *x) {
    return graph_var(g, x[0], 3, 1);
}

static graph_value normed(graph *g, const graph_value *x) {
    graph_value mean, variance;
    return graph_batch_norm_training(g, x[0], x[1], x[2], 1e-3f, &mean, &variance);
}

/* The row of each of x's, I32 [n]. */
static graph_value row_of(graph *g, graph_value x) {
    for (uint32_t i = graph_tensor_at(g, x)->rank; i-- > 1;)
        x = graph_squeeze(g, graph_narrow(g, x, i, 0, 1, 1), i);
    return graph_iota(g, x, 0);
}

static graph_value attend_to_past(graph *g, const graph_value *x) {
    const graph_value row = row_of(g, x[0]), slot = graph_sub(g, row, row);
    return graph_attention(g, x[0], x[1], x[2], slot, row, 0.5f, 2);
}

/* Row i: keys i .. 2 - i, of row 2 none. */
static graph_value attend_to_range(graph *g, const graph_value *x) {
    const graph_value row = row_of(g, x[0]), two = graph_clamp(g, row, 2, 2);
    return graph_attention_range(g, x[0], x[1], x[2], graph_sub(g, row, row), row,
                                 graph_sub(g, two, row), 1);
}

/* Row 2 is of slot 1, which is none. */
static graph_value attend_apart(graph *g, const graph_value *x) {
    const graph_value row = row_of(g, x[0]), five = graph_clamp(g, row, 5, 5);
    const graph_value slot = graph_clamp(g, graph_sub(g, row, graph_clamp(g, row, 1, 1)), 0, 1);
    return graph_attention_range(g, x[0], x[1], x[2], slot, row, five, 1);
}

#define MADE(name, made)                                      \
    static graph_value name(graph *g, const graph_value *x) { \
        return made;                                          \
    }
MADE(frequencies, graph_square(g, graph_rfft(g, x[0], 1, FFT_BACKWARD)))
MADE(of_frequencies, graph_square(g, graph_irfft(g, x[0], 1, 6, FFT_ORTHO)))
MADE(turned_columns, graph_square(g, graph_fft(g, x[0], 0, true, FFT_FORWARD)))
MADE(diagonal, graph_square(g, graph_diagonal(g, x[0], 0, 2)))
MADE(split, graph_square(g, graph_narrow(g, x[0], 1, 1, 3, 2)))
MADE(summed, graph_square(g, graph_reduce(g, OP_SUM, x[0], 5, 0)))
MADE(mean_of_all, graph_square(g, graph_reduce(g, OP_MEAN, x[0], 7, 1)))
MADE(mean_fixed, graph_square(g, graph_reduce(g, OP_MEAN, x[0], 6, 2)))
MADE(product, graph_reduce(g, OP_PROD, x[0], 3, 0))
MADE(product_fixed, graph_reduce(g, OP_PROD, x[0], 6, 0))
MADE(largest, graph_square(g, graph_reduce(g, OP_AMAX, x[0], 3, 0)))
MADE(smallest, graph_square(g, graph_reduce(g, OP_AMIN, x[0], 4, 0)))
MADE(cumsum, graph_square(g, graph_cumsum(g, x[0], 0)))
MADE(cumsum_fixed, graph_square(g, graph_cumsum(g, x[0], 1)))
MADE(cumprod, graph_cumprod(g, x[0], 0))
MADE(cumprod_fixed, graph_cumprod(g, x[0], 1))
MADE(cummax, graph_square(g, graph_cummax(g, x[0], 0)))
MADE(cummin, graph_square(g, graph_cummin(g, x[0], 1)))
MADE(scan, graph_scan(g, x[0], 1, OP_CUMSUM, true, true))
MADE(softmax, graph_softmax(g, x[0]))
MADE(softmax_along, graph_softmax_along(g, x[0], 0))
MADE(rms_norm, graph_rms_norm(g, x[0], x[1], 1e-3f))
MADE(rms_norm_alone, graph_rms_norm(g, x[0], 0, 1e-3f))
MADE(layer_norm, graph_layer_norm(g, x[0], x[1], x[2], 1e-3f))
MADE(group_norm, graph_group_norm(g, x[0], x[1], x[2], 2, 1e-3f))
MADE(padded, graph_square(g, graph_pad(g, graph_pad(g, x[0], 0, 2, 1, 3), 1, 1, 0, 2)))
MADE(lower, graph_square(g, graph_tril(g, x[0], 1)))
MADE(upper, graph_square(g, graph_triu(g, x[0], -1)))
MADE(nearest, graph_resize(g, x[0], 1, 7, BERYL_RESIZE_NEAREST))
MADE(between, graph_square(g, graph_resize(g, x[0], 1, 8, BERYL_RESIZE_LINEAR)))
MADE(parts, graph_resize(g, x[0], 1, 3, BERYL_RESIZE_MEAN))
MADE(matmul, graph_matmul(g, x[0], x[1], false, false))
MADE(matmul_turned, graph_matmul(g, x[0], x[1], true, true))
MADE(vectors, graph_matmul(g, x[0], x[1], false, false))
MADE(einsum, graph_einsum(g, "nij,jk,k->ni", 3, x))
MADE(linear, graph_linear(g, x[0], x[1]))
MADE(weighted, graph_weighted_sum(g, x[0], x[1]))
MADE(rope, graph_rope(g, x[0], x[1]))
MADE(l2_norm, graph_l2_norm(g, x[0], 1, 1e-3f))
MADE(logsumexp, graph_square(g, graph_logsumexp(g, x[0], 2)))
MADE(log_softmax, graph_square(g, graph_log_softmax(g, x[0], 1)))
MADE(cross_entropy, graph_cross_entropy(g, x[0], places(g, x[1], 0, 7)))
MADE(cast, graph_square(g, graph_cast(g, graph_cast(g, x[0], TYPE_F64, false), TYPE_F64, false)))
MADE(causal, graph_attend(g, x[0], x[1], x[2], 0, &(graph_sdpa){.causal = true, .cap = 2}))
MADE(near_by, graph_local_attention(g, x[0], x[1], x[2], 0, 2, 0.5f, 3))
MADE(distance, graph_pairwise_distance(g, x[0], x[1], DISTANCE_SQUARED))
MADE(rolled, graph_square(g, graph_roll(g, x[0], 1, 2)))
MADE(repeated, graph_square(g, graph_tile(g, graph_repeat(g, x[0], 0, 2), 1, 2)))
MADE(attended,
     graph_attend(g, x[0], x[1], x[2], 0, &(graph_sdpa){.causal = true, .window = 2, .first = 1}))
MADE(sdpa_grouped, graph_attend(g, x[0], x[1], x[2], 0, &(graph_sdpa){.scale = 1}))

MADE(mse, graph_loss(g, LOSS_MSE, x[0], x[1], 0))
MADE(l1, graph_square(g, graph_loss(g, LOSS_L1, x[0], x[1], 0)))
MADE(huber, graph_loss(g, LOSS_HUBER, x[0], x[1], 0.75f))
MADE(bce, graph_loss(g, LOSS_BCE, x[0], x[1], 0))
MADE(kl, graph_loss(g, LOSS_KL, x[0], graph_square(g, x[1]), 0))
MADE(cosine, graph_loss(g, LOSS_COSINE, x[0], x[1], 0))
MADE(nll, graph_square(g, graph_nll(g, x[0], places(g, x[1], 0, 7))))
MADE(triplet, graph_triplet(g, x[0], x[1], x[2], 2))

static graph_value selective(graph *g, const graph_value *x) {
    const graph_selective s = {.x = x[0],
                               .dt = graph_square(g, x[1]),
                               .a = graph_neg(g, graph_square(g, x[2])),
                               .b = x[3],
                               .c = graph_sin(g, x[3])};
    return graph_selective_scan(g, &s, NULL);
}

static graph_value selective_all(graph *g, const graph_value *x) {
    graph_value last;
    const graph_selective s = {.x = x[0],
                               .dt = graph_sigmoid(g, x[0]),
                               .a = x[1],
                               .b = x[2],
                               .c = x[2],
                               .d = x[3],
                               .first = graph_narrow(g, x[2], 1, 0, 1, 1)};
    graph_value y = graph_selective_scan(g, &s, &last);
    return graph_mul(
        g, y, graph_reduce(g, OP_SUM, graph_permute(g, last, 3, (uint32_t[]){0, 2, 1}), 2, 0));
}

static graph_value delta_rule(graph *g, const graph_value *x) {
    const graph_value each = graph_squeeze(g, graph_narrow(g, x[2], 2, 0, 1, 1), 2);
    const graph_delta d = {.q = x[0],
                           .k = graph_l2_norm(g, x[1], 2, 1e-3f),
                           .v = x[2],
                           .decay = graph_neg(g, graph_square(g, each)),
                           .beta = graph_sigmoid(g, each),
                           .first = x[3]};
    return graph_gated_delta(g, &d, NULL);
}

static const rule_case cases[] = {
    {"views", views, "65n", DOUBLE, false},
    {"reshape", reshaped, "n23", DOUBLE, false},
    {"diagonal", diagonal, "4n6", DOUBLE, false},
    {"narrow", split, "n72", DOUBLE, false},
    {"windows", windowed, "n2", DOUBLE, false},
    {"windows-far", windowed_far, "92", DOUBLE, false},
    {"windows-many", windowed_many, "23", DOUBLE, false},
    {"sum", summed, "2n3", DOUBLE, false},
    {"mean", mean_of_all, "2n3", DOUBLE, false},
    {"mean-fixed", mean_fixed, "n35", DOUBLE, false},
    {"prod", product, "n32", DOUBLE, false},
    {"prod-fixed", product_fixed, "n32", DOUBLE, false},
    {"amax", largest, "n32", DOUBLE, false},
    {"amin", smallest, "n25", DOUBLE, false},
    {"cumsum", cumsum, "n3", DOUBLE, false},
    {"cumsum-fixed", cumsum_fixed, "n32", DOUBLE, false},
    {"cumprod", cumprod, "n3", DOUBLE, false},
    {"cumprod-fixed", cumprod_fixed, "n32", DOUBLE, false},
    {"cummax", cummax, "n3", DOUBLE, false},
    {"cummin", cummin, "n5", DOUBLE, false},
    {"scan", scan, "n5", DOUBLE, false},
    {"softmax", softmax, "n5", DOUBLE, false},
    {"softmax-along", softmax_along, "52", DOUBLE, false},
    {"rms-norm", rms_norm, "n25 5", DOUBLE, false},
    {"rms-norm-alone", rms_norm_alone, "5", DOUBLE, false},
    {"layer-norm", layer_norm, "n5 5 5", DOUBLE, false},
    {"group-norm", group_norm, "n4n 4 4", DOUBLE, false},
    {"pad", padded, "n3", DOUBLE, false},
    {"tril", lower, "n5", DOUBLE, false},
    {"triu", upper, "2n5", DOUBLE, false},
    {"resize-nearest", nearest, "n4", DOUBLE, false},
    {"resize-linear", between, "n52", DOUBLE, false},
    {"resize-mean", parts, "n7", DOUBLE, false},
    {"matmul", matmul, "3n4 42", DOUBLE, false},
    {"matmul-turned", matmul_turned, "4n 224", DOUBLE, false},
    {"matmul-vectors", vectors, "5 5", DOUBLE, false},
    {"einsum", einsum, "n23 34 4", DOUBLE, false},
    {"linear", linear, "n24 34", BILINEAR, false},
    {"linear-vector", linear, "4 34", BILINEAR, false},
    {"linear-id", experts, "n13 323 n2", BILINEAR, true},
    {"weighted-sum", weighted, "n23 n2", BILINEAR, false},
    {"rope", rope, "n24 n22", BILINEAR, false},
    {"gather-rows", rowed, "53 n2", BILINEAR, true},
    {"gather", gathered, "n4 n3", DOUBLE, false},
    {"scatter", scattered, "n4 n3", DOUBLE, false},
    {"scatter-add", scatter_added, "n4 n3", DOUBLE, false},
    {"index-select", selected, "n32 2", DOUBLE, false},
    {"where", chosen, "n3 3", DOUBLE, false},
    {"concat", joined, "n2 22 n2", DOUBLE, false},
    {"sort", sorted, "52", DOUBLE, false},
    {"topk", topmost, "n5", SMOOTH, true},
    {"conv", convolved, "n245 3222", DOUBLE, false},
    {"conv-groups", grouped, "n4n 423", DOUBLE, false},
    {"conv-transpose", transposed, "n24 223", DOUBLE, false},
    {"pools", pooled, "n264", DOUBLE, false},
    {"rotate", rotated, "n26 n13 n13", DOUBLE, false},
    {"var", varied, "n32", DOUBLE, false},
    {"batch-norm", normed, "n23 2 2", DOUBLE, false},
    {"rfft", frequencies, "n6", DOUBLE, false},
    {"irfft", of_frequencies, "n42", DOUBLE, false},
    {"fft-of-columns", turned_columns, "5n2", DOUBLE, false},
    {"l2-norm", l2_norm, "n5", DOUBLE, false},
    {"logsumexp", logsumexp, "n5", DOUBLE, false},
    {"log-softmax", log_softmax, "n5", DOUBLE, false},
    {"cross-entropy", cross_entropy, "n5 n", DOUBLE, false},
    {"cast", cast, "n5", DOUBLE, false},
    {"mse", mse, "n5 n5", DOUBLE, false},
    {"l1", l1, "n5 n5", DOUBLE, false},
    {"huber", huber, "n5 n5", DOUBLE, false},
    {"bce", bce, "n5 n5", DOUBLE, false},
    {"kl", kl, "n5 n5", DOUBLE, false},
    {"cosine", cosine, "n5 n5", DOUBLE, false},
    {"nll", nll, "n5 n", DOUBLE, false},
    {"triplet", triplet, "n5 n5 n5", DOUBLE, false},
    {"selective-scan", selective, "n52 n52 23 n53", DOUBLE, true},
    {"selective-scan-of-a-run", selective, "2n2 2n2 23 2n3", DOUBLE, false},
    {"selective-scan-all", selective_all, "n41 13 n43 1", DOUBLE, true},
    {"gated-delta", delta_rule, "262 262 263 223", DOUBLE, true},
    {"distance", distance, "n3 43", DOUBLE, false},
    {"roll", rolled, "n5", DOUBLE, false},
    {"repeat", repeated, "n3", DOUBLE, false},
    {"sdpa", causal, "32n3 32n3 32n2", SMOOTH, true},
    {"sdpa-joined", attended, "2438 2258 2258", SMOOTH, true},
    {"attention", attend_to_past, "n42 1n22 1n22", SMOOTH, false},
    {"attention-range", attend_to_range, "n42 1522 1522", SMOOTH, true},
    {"attention-slots", attend_apart, "n42 1522 1522", SMOOTH, true},
    {"sdpa-grouped", sdpa_grouped, "4n3 2n3 2n3", SMOOTH, true},
    {"local-attention", near_by, "2n3 2n3 2n2", SMOOTH, true},
};

/* ---- central differences --------------------------------------------------------------------- */

typedef struct lab {
    base_heap heap;
    graph *g;
    graph_store store;
    graph_reference *run;
    beryl_error error;
    base_type type;
    graph_value x[IN_MAX], weights[IN_MAX + 1];
    uint32_t n_in, n_weights;
    uint32_t extents[GRAPH_EXTENT_MAX + 1];
    struct {
        graph_value input;
        uint32_t n;
        float numbers[CONSTANT_MAX];
    } constants[CONSTANTS];
    uint32_t n_constant;
} lab;

/* Of graph_constant: an input, which lab_begin fills. */
static uint32_t keep_constant(void *user, uint32_t n, const float *numbers) {
    lab *l = user;
    if (n > CONSTANT_MAX || l->n_constant == CONSTANTS) return 0;
    const uint32_t i = l->n_constant++;
    memcpy(l->constants[i].numbers, numbers, n * sizeof *numbers);
    l->constants[i].n = n;
    return l->constants[i].input = graph_input(l->g, "c", TYPE_F32, 1, &(graph_dim){n, 0});
}

static void lab_open(lab *l, base_type type) {
    *l = (lab){.type = type, .extents = {0, ROWS}};
    base_heap_init(&l->heap, NULL);
    store_init(&l->store, &l->heap, NULL, NULL, 0, &l->error);
    store_layout(&l->store, 0, &l->error);
    store_make(&l->store, &l->error);
    l->g = graph_open(&l->heap);
    graph_extent_add(l->g, "n", BOUND);
    l->g->constants.fn = keep_constant;
    l->g->constants.context = l;
}

static void lab_close(lab *l) {
    graph_reference_close(l->run);
    graph_close(l->g);
    store_fini(&l->store);
}

static void lab_inputs(lab *l, const char *shapes) {
    while (*shapes) {
        graph_dim dims[RANK_MAX];
        uint32_t rank = 0;
        for (; *shapes && *shapes != ' '; shapes++)
            dims[rank++] =
                *shapes == 'n' ? (graph_dim){BOUND, 1} : (graph_dim){(uint32_t)(*shapes - '0'), 0};
        if (*shapes) shapes++;
        l->x[l->n_in++] = graph_input(l->g, "x", l->type, rank, dims);
    }
}

static double number_at(const lab *l, const void *from, uint64_t i) {
    return l->type == TYPE_F64 ? ((const double *)from)[i] : (double)((const float *)from)[i];
}

static void number_put(const lab *l, void *to, uint64_t i, double x) {
    if (l->type == TYPE_F64) ((double *)to)[i] = x;
    else ((float *)to)[i] = (float)x;
}

/* The sum of v times numbers of its shape. */
static graph_value weighed(lab *l, graph_value v) {
    const graph_tensor t = *graph_tensor_at(l->g, v);
    if (!v) return 0;
    const graph_value w = graph_input(l->g, "w", t.type, t.rank, t.dim);
    l->weights[l->n_weights++] = w;
    v = graph_mul(l->g, v, w);
    if (t.rank) v = graph_reduce(l->g, OP_SUM, v, (1u << t.rank) - 1, 0);
    return graph_reshape(l->g, v, 0, NULL);
}

static bool lab_begin(test *t, lab *l, const graph_value *outputs, uint32_t n, double low,
                      double high) {
    base_random r = {17};
    for (uint32_t i = 0; i < n; i++) graph_output(l->g, outputs[i], "y");
    beryl_status status = graph_status(l->g, &l->error);
    if (status == BERYL_OK) status = graph_reference_open(l->g, &l->store, &l->run, &l->error);
    if (status != BERYL_OK) {
        test_fail(t, __FILE__, __LINE__, "%s", l->error.message);
        return false;
    }
    for (uint32_t i = 0; i < l->n_in + l->n_weights; i++) {
        const graph_value v = i < l->n_in ? l->x[i] : l->weights[i - l->n_in];
        void *to = graph_reference_input(l->run, v);
        for (uint64_t k = 0; k < graph_element_bound(graph_tensor_at(l->g, v)); k++) {
            const double unit = base_random_unit(&r);
            number_put(l, to, k, i < l->n_in ? low + (high - low) * unit : 0.5 + unit);
        }
    }
    for (uint32_t i = 0; i < l->n_constant; i++)
        memcpy(graph_reference_input(l->run, l->constants[i].input), l->constants[i].numbers,
               l->constants[i].n * sizeof(float));
    return true;
}

static bool lab_run(test *t, lab *l) {
    if (graph_reference_run(l->run, l->extents, &l->error) == BERYL_OK) return true;
    test_fail(t, __FILE__, __LINE__, "%s", l->error.message);
    return false;
}

/* Is element `at` of a tensor there in this run? */
static bool is_inside(const lab *l, const graph_tensor *t, uint64_t at) {
    for (uint32_t i = 0; i < t->rank; i++)
        if (at / t->stride[i] % t->dim[i].size >= graph_dim_value(t->dim[i], l->extents))
            return false;
    return true;
}

/* How far from a central difference with a step of h: the step's error is of h^2, rounding of the
 * loss is divided by h. Of polynomials of second degree the first is none. */
static void compare(test *t, lab *l, graph_value loss, const graph_value *gradients, int how,
                    const char *order) {
    static const double steps[] = {1e-5, 0.25, 1.0 / 64}, most[] = {1e-6, 1e-4, 1e-3};
    const double h = steps[how], within = most[how];
    double got[IN_MAX][ELEMENTS_MAX];
    if (!lab_run(t, l)) return;
    for (uint32_t i = 0; i < l->n_in; i++)
        for (uint64_t k = 0; k < graph_element_bound(graph_tensor_at(l->g, l->x[i])); k++)
            got[i][k] = number_at(l, graph_reference_value(l->run, gradients[i]), k);
    for (uint32_t i = 0; i < l->n_in && !test_failed(t); i++) {
        const graph_tensor *x = graph_tensor_at(l->g, l->x[i]);
        void *in = graph_reference_input(l->run, l->x[i]);
        for (uint64_t k = 0; k < graph_element_bound(x) && !test_failed(t); k++) {
            if (!is_inside(l, x, k)) continue;
            const double at = number_at(l, in, k);
            double side[2];
            for (int s = 0; s < 2; s++) {
                number_put(l, in, k, at + (s ? h : -h));
                if (!lab_run(t, l)) return;
                side[s] = number_at(l, graph_reference_value(l->run, loss), 0);
            }
            number_put(l, in, k, at);
            const double want = (side[1] - side[0]) / (2 * h);
            if (!(fabs(got[i][k] - want) <= within * (1 + fabs(want))))
                test_fail(t, __FILE__, __LINE__,
                          "%s derivative towards input %u, element %llu: %.9g, not %.9g", order, i,
                          (unsigned long long)k, got[i][k], want);
        }
    }
}

/* The operation of the inputs, in other places and larger than what is broadcast. */
static graph_value pointwise(graph *g, base_op op, const graph_value *x) {
    const base_op_info *info = &base_ops[op];
    graph_value in[GRAPH_IN_MAX] = {graph_permute(g, x[0], 2, (uint32_t[]){1, 0})};
    graph_attrs attr = {0};
    if (info->n_in_max > 1) in[1] = x[1];
    for (uint32_t i = 0; i < BASE_OP_ATTRS_MAX; i++) attr.at[i].f = info->usual[i];
    return graph_op(g, op, in, attr);
}

/* The case's result, weighed: the loss; or the gradients of that, weighed. build NULL: of op. */
static void check_case(test *t, const rule_case *c, base_op op, double low, double high,
                       bool second) {
    lab made, *l = &made;
    graph_value gradients[IN_MAX], outputs[IN_MAX + 1];
    lab_open(l, c->how == DOUBLE ? TYPE_F64 : TYPE_F32);
    lab_inputs(l, c->shapes);
    graph_value loss = weighed(l, c->build ? c->build(l->g, l->x) : pointwise(l->g, op, l->x));
    graph_gradient(l->g, loss, l->n_in, l->x, gradients);
    if (second) {
        graph_value sum = 0;
        for (uint32_t i = 0; i < l->n_in; i++) {
            const graph_value v = weighed(l, gradients[i]);
            sum = sum ? graph_add(l->g, sum, v) : v;
        }
        loss = sum;
        graph_gradient(l->g, loss, l->n_in, l->x, gradients);
    }
    outputs[0] = loss = graph_copy(l->g, loss);
    for (uint32_t i = 0; i < l->n_in; i++)
        outputs[i + 1] = gradients[i] = graph_copy(l->g, gradients[i]);
    if (lab_begin(t, l, outputs, l->n_in + 1, low, high))
        compare(t, l, loss, gradients, (int)c->how, second ? "second" : "first");
    lab_close(l);
}

static void check_rules(test *t) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int second = 0; second < (cases[i].once ? 1 : 2); second++)
            if (test_case(t, "gradient/%s/%s", second ? "second" : "first", cases[i].name))
                check_case(t, &cases[i], OP_COUNT, -1.2, 1.3, second);
}

static void check_pointwise(test *t) {
    for (base_op op = 0; op < OP_COUNT; op++) {
        const base_op_info *info = &base_ops[op];
        if (!(info->facts & OP_IS_POINTWISE) || !strchr("anf", info->inputs[0]) ||
            info->facts & (OP_GIVES_BOOL | OP_IS_CAST))
            continue;
        for (int second = 0; second < 2; second++) {
            if (!test_case(t, "gradient/%s/%s", second ? "second" : "first", info->name)) continue;
            const rule_case c = {.shapes = info->n_in_max > 1 ? "5n 5" : "5n"};
            const bool unit = info->facts & OP_WANTS_UNIT;
            CHECK(t, graph_has_gradient(op));
            check_case(t, &c, op, unit ? 0.15 : -2.2, unit ? 0.85 : 2.1, second);
        }
    }
}

/* ---- kinks, ties, zeros ---------------------------------------------------------------------- */

MADE(relu, graph_relu(g, x[0]))
MADE(magnitude, graph_abs(g, x[0]))
MADE(clamped, graph_clamp(g, x[0], -1, 1))
MADE(larger, graph_max(g, x[0], graph_neg(g, x[0])))
MADE(smaller, graph_min(g, x[0], graph_neg(g, x[0])))
MADE(amax_ties, graph_reduce(g, OP_AMAX, x[0], 1, 0))
MADE(prod_zeros, graph_reduce(g, OP_PROD, x[0], 1, 0))
MADE(cumprod_zeros, graph_cumprod(g, x[0], 0))
MADE(cummax_ties, graph_cummax(g, x[0], 0))
MADE(elu, graph_elu(g, x[0], 2))
MADE(leaky, graph_leaky_relu(g, x[0], 0.5f))
MADE(rounded, graph_round(g, x[0]))
MADE(detached, graph_add(g, graph_detach(g, graph_square(g, x[0])), graph_neg(g, x[0])))
MADE(to_whole, graph_cast(g, graph_cast(g, x[0], TYPE_I32, false), TYPE_F64, false))
MADE(power, graph_pow(g, graph_abs(g, x[0]), graph_relu(g, x[0])))

MADE(deviation, graph_std(g, x[0], 1, 0))
MADE(length, graph_norm(g, x[0], 1))
MADE(far_from_itself,
     graph_reshape(g,
                   graph_pairwise_distance(g, graph_unsqueeze(g, x[0], 0),
                                           graph_unsqueeze(g, graph_detach(g, x[0]), 0),
                                           DISTANCE_EUCLID),
                   1, &(graph_dim){1, 0}))

/* Element i of the gradient of the sum of results, each times i + 1 where there are as many. */
static const struct kink {
    const char *name;
    build_fn *build;
    double x[5], want[5];
} kinks[] = {
    {"relu", relu, {-1, 0, 2, -0.0, 1}, {0, 0, 3, 0, 5}},
    {"abs", magnitude, {-1, 0, 2, -0.0, 1}, {-1, 0, 3, 0, 5}},
    {"clamp", clamped, {-2, -1, 0, 1, 1.5}, {0, 2, 3, 4, 0}},
    {"max", larger, {-1, 0, 2, -3, 0}, {-1, 0, 3, -4, 0}},
    {"min", smaller, {-1, 0, 2, -3, 0}, {1, 0, -3, 4, 0}},
    {"amax", amax_ties, {1, 3, 3, 2, 3}, {0, 1.0 / 3, 1.0 / 3, 0, 1.0 / 3}},
    {"prod", prod_zeros, {2, 0, 3, 4, 5}, {0, 120, 0, 0, 0}},
    {"cumprod", cumprod_zeros, {2, 0, 3, 4, 5}, {1, 2 * 2 + 6 * 3 + 24 * 4 + 120 * 5, 0, 0, 0}},
    {"cummax", cummax_ties, {1, 3, 2, 3, 0}, {1, 5, 0, 9, 0}},
    {"elu", elu, {0, 1, 2, 3, 4}, {2, 2, 3, 4, 5}},
    {"leaky-relu", leaky, {0, 1, -2, 3, 4}, {0.5, 2, 1.5, 4, 5}},
    {"round", rounded, {0.25, 1, -2, 3, 4}, {0}},
    {"detach", detached, {0.25, 1, -2, 3, 4}, {-1, -2, -3, -4, -5}},
    {"integers", to_whole, {0.25, 1, -2, 3, 4}, {0}},
    /* of 1^1: 1 + log(1); of a base with the exponent 0: 0; of 0^0 both are 0 */
    {"pow", power, {1, 0, -2, -3, 1}, {1, 0, 0, 0, 5}},
    {"std", deviation, {3, 3, 3, 3, 3}, {0}},
    {"norm", length, {0}, {0}},
    {"distance", far_from_itself, {1, 2, 0, -3, 1}, {0}},
};

static void check_kinks(test *t) {
    for (size_t i = 0; i < sizeof kinks / sizeof *kinks; i++) {
        const struct kink *c = &kinks[i];
        if (!test_case(t, "gradient/at/%s", c->name)) continue;
        lab made, *l = &made;
        lab_open(l, TYPE_F64);
        lab_inputs(l, "5");
        graph_value y = c->build(l->g, l->x), v;
        const bool all = y && graph_tensor_at(l->g, y)->dim[0].size == 5;
        if (all)
            y = graph_mul(l->g, y,
                          graph_add_scalar(
                              l->g, graph_cast(l->g, graph_iota(l->g, y, 0), TYPE_F64, false), 1));
        graph_gradient(l->g, graph_reduce(l->g, OP_SUM, y, 1, 0), 1, l->x, &v);
        v = graph_copy(l->g, v);
        if (lab_begin(t, l, &v, 1, 0, 1)) {
            memcpy(graph_reference_input(l->run, l->x[0]), c->x, sizeof c->x);
            const bool ran = lab_run(t, l);
            for (uint64_t k = 0; ran && k < 5; k++)
                CHECK_NEAR(t, number_at(l, graph_reference_value(l->run, v), k), c->want[k], 1e-12);
        }
        lab_close(l);
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

typedef void refused_fn(beryl_graph *g, beryl_value x, beryl_value state);

static void of_many(beryl_graph *g, beryl_value x, beryl_value state) {
    (void)state;
    beryl_graph_gradient(g, x, 1, &x, (beryl_value[1]){0});
}

static void of_indices(beryl_graph *g, beryl_value x, beryl_value state) {
    const beryl_value i = beryl_graph_iota(g, x, 0);
    (void)state;
    beryl_graph_gradient(g, beryl_graph_sum(g, x, NULL, 0, false), 1, &i, (beryl_value[1]){0});
}

static void of_a_cache(beryl_graph *g, beryl_value x, beryl_value state) {
    const beryl_dim three[] = {{3, 0}, {1, 0}, {5, 0}}, four[] = {{1, 0}, {3, 0}, {1, 0}, {5, 0}};
    const beryl_value i = beryl_graph_iota(g, x, 0), at = beryl_graph_narrow(g, i, 1, 0, 1, 1);
    const beryl_value places = beryl_graph_copy(g, beryl_graph_squeeze(g, at, 1)),
                      keys = beryl_graph_reshape(g, state, 4, four),
                      y = beryl_graph_attention(g, beryl_graph_reshape(g, x, 3, three), keys, keys,
                                                places, places, 1, 0);
    beryl_graph_gradient(g, beryl_graph_sum(g, y, NULL, 0, false), 1, &x, (beryl_value[1]){0});
}

static void of_what_changed(beryl_graph *g, beryl_value x, beryl_value state) {
    const beryl_value loss = beryl_graph_sum(g, beryl_graph_mul(g, x, state), NULL, 0, false);
    beryl_graph_assign(g, state, x);
    beryl_graph_gradient(g, loss, 1, &x, (beryl_value[1]){0});
}

static void of_another_shape(beryl_graph *g, beryl_value x, beryl_value state) {
    beryl_graph_assign(g, state, beryl_graph_narrow(g, x, 0, 0, 2, 1));
}

static void no_state(beryl_graph *g, beryl_value x, beryl_value state) {
    beryl_graph_assign(g, x, state);
}

static void no_targets(beryl_graph *g, beryl_value x, beryl_value state) {
    beryl_graph_cross_entropy(g, x, state);
}

static void no_parameter(beryl_graph *g, beryl_value x, beryl_value state) {
    const beryl_value rate = beryl_graph_input(g, "rate", BERYL_TYPE_F32, 0, NULL);
    (void)state;
    beryl_graph_optimise(g, 1, &x, &x, rate, &(beryl_optimiser){.kind = BERYL_SGD}, NULL);
}

static void no_chance(beryl_graph *g, beryl_value x, beryl_value state) {
    (void)state;
    beryl_graph_dropout(g, beryl_graph_key(g, 1), 0, x, 1);
}

static void check_refused(test *t) {
    static const struct {
        const char *name;
        refused_fn *build;
        beryl_status status;
        const char *message;
    } refused[] = {
        {"a-loss-of-many", of_many, BERYL_MISUSE, "gradient of F32[3, 5]: the loss is one float"},
        {"indices", of_indices, BERYL_MISUSE, "gradient towards value 0, of I32"},
        {"caches", of_a_cache, BERYL_UNSUPPORTED, "attention over caches has no gradient"},
        {"a-changed-state", of_what_changed, BERYL_MISUSE, "a state that it reads is changed"},
        {"assign-of-another-shape", of_another_shape, BERYL_MISUSE, "assign: shapes do not fit"},
        {"assign-to-an-input", no_state, BERYL_MISUSE, "assign"},
        {"targets", no_targets, BERYL_MISUSE, "cross_entropy of [3, 5] and targets [3, 5]"},
        {"parameters", no_parameter, BERYL_MISUSE, "a parameter is a state"},
        {"dropout", no_chance, BERYL_MISUSE, "dropout: a chance"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (!test_case(t, "gradient/refused/%s", refused[i].name)) continue;
        const beryl_graph_options options = {.size = sizeof options, .device = "reference"};
        beryl_graph *g = NULL;
        beryl_error error = {0};
        CHECK_INT(t, beryl_graph_open(&options, &g, &error), BERYL_OK);
        const beryl_value x = beryl_graph_input(g, "x", BERYL_TYPE_F32, 2,
                                                (const beryl_dim[]){{3, 0}, {5, 0}}),
                          state = beryl_graph_state(g, "s", BERYL_TYPE_F32, 2,
                                                    (const uint32_t[]){3, 5});
        refused[i].build(g, x, state);
        CHECK_INT(t, beryl_graph_compile(g, &error), refused[i].status);
        if (!strstr(error.message, refused[i].message))
            test_fail(t, __FILE__, __LINE__, "'%s', not '%s'", error.message, refused[i].message);
        beryl_graph_close(g);
    }
}

/* ---- on devices ------------------------------------------------------------------------------ */

typedef enum net_kind { NET_MLP, NET_CONV, NET_SDPA, NET_ROWS, NET_INDEX, NET_POINTWISE } net_kind;

static const struct net {
    const char *name;
    net_kind kind;
    bool halves;
} nets[] = {
    {"mlp", NET_MLP, false},  {"conv", NET_CONV, false},   {"sdpa", NET_SDPA, true},
    {"rows", NET_ROWS, true}, {"index", NET_INDEX, false}, {"pointwise", NET_POINTWISE, true},
};
enum { NETS = sizeof nets / sizeof *nets };

typedef struct what {
    net_kind kind;
    base_type type;
} what;

static graph_value loss_of(typed_side *s, graph_value y, base_type type) {
    const graph_tensor t = *graph_tensor_at(s->g, y);
    y = graph_mul(s->g, y, typed_input(s, t.type, t.rank, t.dim));
    if (type != TYPE_F32) y = graph_cast(s->g, y, TYPE_F32, false);
    y = graph_reduce(s->g, OP_SUM, y, (1u << t.rank) - 1, 0);
    return graph_reshape(s->g, y, 0, NULL);
}

static void build_net(typed_side *s, const void *user) {
    const what *w = user;
    graph *g = s->g;
    const graph_dim n = {ROWS_OF_DEVICES, 1};
    graph_value x[3] = {0}, d[3], y = 0;
    uint32_t n_x = 3;
    const graph_window window[2] = {{3, 1, 1, 1, 1}, {3, 2, 1, 1, 0}};
    switch (w->kind) {
    case NET_MLP:
        x[0] = typed_input(s, w->type, 2, (graph_dim[]){n, {20, 0}});
        x[1] = typed_input(s, w->type, 2, (graph_dim[]){{12, 0}, {20, 0}});
        x[2] = typed_input(s, w->type, 1, (graph_dim[]){{12, 0}});
        y = graph_add(g, graph_linear(g, x[0], x[1]), x[2]);
        y = graph_layer_norm(g, graph_gelu_tanh(g, y), x[2], 0, 1e-3f);
        y = graph_cross_entropy(
            g, y, graph_reshape(g, places(g, graph_narrow(g, y, 1, 0, 1, 1), 0, 9), 1, &n));
        break;
    case NET_CONV:
        x[0] = typed_input(s, w->type, 4, (graph_dim[]){n, {3, 0}, {9, 0}, {8, 0}});
        x[1] = typed_input(s, w->type, 4, (graph_dim[]){{4, 0}, {3, 0}, {3, 0}, {3, 0}});
        n_x = 2;
        y = graph_silu(g, graph_conv(g, x[0], x[1], 2, window, 1));
        y = graph_max_pool(g, y, 2, (graph_window[]){{2, 2, 1, 0, 0}, {2, 2, 1, 0, 0}});
        break;
    case NET_SDPA:
        for (uint32_t i = 0; i < 3; i++)
            x[i] = typed_input(s, w->type, 3, (graph_dim[]){{i ? 2 : 4, 0}, n, {8, 0}});
        y = graph_attend(g, x[0], x[1], x[2], 0, &(graph_sdpa){.causal = true});
        break;
    case NET_ROWS:
        x[0] = typed_input(s, w->type, 2, (graph_dim[]){n, {70, 0}});
        x[1] = typed_input(s, w->type, 1, (graph_dim[]){{70, 0}});
        n_x = 2;
        y = graph_add(g, graph_softmax(g, graph_rms_norm(g, x[0], x[1], 1e-3f)),
                      graph_l2_norm(g, graph_cumsum(g, x[0], 1), 1, 1e-3f));
        break;
    case NET_INDEX:
        x[0] = typed_input(s, w->type, 2, (graph_dim[]){{11, 0}, {6, 0}});
        x[1] = typed_input(s, w->type, 2, (graph_dim[]){n, {6, 0}});
        n_x = 2;
        y = graph_index_select(
            g, x[0], graph_reshape(g, places(g, graph_narrow(g, x[1], 1, 0, 1, 1), 0, 9), 1, &n),
            0);
        y = graph_mul(g, graph_pad(g, y, 1, 1, 1, 0),
                      graph_pad(g, graph_flip(g, x[1], 1), 1, 0, 2, 1));
        break;
    case NET_POINTWISE:
        x[0] = typed_input(s, w->type, 3, (graph_dim[]){n, {3, 0}, {5, 0}});
        x[1] = typed_input(s, w->type, 1, (graph_dim[]){{5, 0}});
        n_x = 2;
        y = graph_div(g, graph_swiglu(g, x[0], x[1]), graph_exp(g, graph_tanh(g, x[0])));
        break;
    }
    graph_gradient(g, loss_of(s, y, w->type), n_x, x, d);
    for (uint32_t i = 0; i < n_x; i++)
        typed_output(s, d[i] && graph_tensor_at(g, d[i])->base ? graph_copy(g, d[i]) : d[i]);
}

static void check_form(test *t, const test_form *form, size_t number) {
    base_heap heap;
    device *d = NULL;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    const beryl_status status = test_form_open(form, &heap, &d, &error);
    for (size_t i = 0; i < NETS; i++) {
        const base_type type = nets[i].halves && i % 2 ? TYPE_F16 : TYPE_F32;
        if ((form->stand_in && i) || !test_drawn(i, number, form->brief ? 6 : 4) ||
            !test_case(t, "gradient/%s/%s", form->name, nets[i].name))
            continue;
        if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
        else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        const what w = {nets[i].kind, type};
        for (uint64_t round = 0; status == BERYL_OK && test_form_round(t, form, d, &round);)
            typed_run(t, &heap, d,
                      &(typed_problem){.name = nets[i].name,
                                       .build = build_net,
                                       .what = &w,
                                       .rows = ROWS_OF_DEVICES,
                                       .fewer = i % 2 ? 4 : 0,
                                       .fill = TYPED_UNIT,
                                       .seed = number + i,
                                       /* halves are rounded on the way */
                                       .within = type == TYPE_F16 ? 2e-2 : 5e-5,
                                       .relative = type == TYPE_F16 ? 1e-2 : 1e-4});
    }
    test_form_close(d);
}

/* ---- halves ---------------------------------------------------------------------------------- */

enum { LOW_ROWS = 33, LOW_IN = 24, LOW_RANK = 4, LOW_OUT = 40, LOW_N = LOW_OUT * LOW_IN };

/* Towards x, a and b of b (a x), or of that between others whose rules read what they are made
 * of, as a training asks for them. out: [3, LOW_N] */
static void low_gradients(test *t, base_heap *heap, bool halves, bool among, float (*out)[LOW_N]) {
    static const uint32_t dims[4][2] = {
        {LOW_ROWS, LOW_IN}, {LOW_RANK, LOW_IN}, {LOW_OUT, LOW_RANK}, {LOW_ROWS, LOW_OUT}};
    graph *g = graph_open(heap);
    graph_store store;
    graph_reference *r = NULL;
    graph_value x[4], d[3];
    beryl_error error = {0};
    store_init(&store, heap, NULL, NULL, 0, NULL);
    g->halves = halves;
    for (uint32_t i = 0; i < 4; i++)
        x[i] = graph_input(g, "x", TYPE_F32, 2, (graph_dim[]){{dims[i][0], 0}, {dims[i][1], 0}});
    const graph_value in = among ? graph_rms_norm(g, graph_scale(g, x[0], 2), 0, 1e-3f) : x[0],
                      y = graph_linear(g, graph_scale(g, graph_linear(g, in, x[1]), 2), x[2]),
                      end = among ? graph_geglu(g, graph_scale(g, y, 0.5f), graph_neg(g, y)) : y,
                      loss = graph_reduce(g, OP_SUM, graph_mul(g, end, x[3]), 3, 0);
    graph_gradient(g, graph_reshape(g, loss, 0, NULL), 3, x, d);
    for (uint32_t i = 0; i < 3; i++) graph_output(g, d[i] = graph_copy(g, d[i]), "d");
    beryl_status status = graph_status(g, &error);
    if (status == BERYL_OK) status = graph_reference_open(g, &store, &r, &error);
    for (uint32_t i = 0, state = 1; status == BERYL_OK && i < 4; i++) {
        float *to = graph_reference_input(r, x[i]);
        for (uint32_t k = 0; k < dims[i][0] * dims[i][1]; k++) to[k] = blocks_unit(&state);
    }
    if (status == BERYL_OK) status = graph_reference_run(r, NULL, &error);
    for (uint32_t i = 0; status == BERYL_OK && i < 3; i++)
        memcpy(out[i], graph_reference_value(r, d[i]),
               (size_t)dims[i][0] * dims[i][1] * sizeof **out);
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    graph_reference_close(r);
    graph_close(g);
    store_fini(&store);
}

/* Factors, results and what rules read are rounded to 8 bits, one after another on the way to a:
 * 2^-9 each at most, of terms whose errors are independent. */
static void check_halves(test *t, const char *name, bool among) {
    static float want[3][LOW_N], got[3][LOW_N];
    base_heap heap;
    if (!test_case(t, "gradient/%s-in-halves", name)) return;
    base_heap_init(&heap, NULL);
    low_gradients(t, &heap, false, among, want);
    low_gradients(t, &heap, true, among, got);
    for (uint32_t i = 0; i < 3; i++) {
        double difference = 0, size = 0;
        for (uint32_t k = 0; k < LOW_N; k++) {
            const double x = (double)want[i][k], off = (double)got[i][k] - x;
            difference += off * off;
            size += x * x;
        }
        const double relative = sqrt(difference / size);
        if (!(relative > 1e-5 && relative < 6.0 / 512))
            test_fail(t, __FILE__, __LINE__, "gradient %u is off by %g", i, relative);
    }
    CHECK_INT(t, heap.bytes, 0);
}

/* Bytes of a plan in which x goes through many layers and back. */
static uint64_t bytes_of_layers(test *t, base_heap *heap, bool halves) {
    enum { LAYERS = 24, SIDE = 64, N = 512 };
    const graph_dim rows[] = {{N, 0}, {SIDE, 0}}, square[] = {{SIDE, 0}, {SIDE, 0}};
    graph *g = graph_open(heap);
    graph_store store;
    graph_exec *e = NULL;
    graph_exec_info info = {0};
    device *dummy = NULL;
    beryl_error error = {0};
    beryl_status status = device_open(heap, NULL, "dummy", &dummy, &error);
    store_init(&store, heap, dummy, NULL, 0, NULL);
    g->halves = halves;
    const graph_value w = graph_input(g, "w", TYPE_F32, 2, square);
    graph_value x = graph_input(g, "x", TYPE_F32, 2, rows), d;
    for (uint32_t i = 0; i < LAYERS; i++) {
        const graph_value y = graph_linear(g, x, w);
        x = graph_rms_norm(g, graph_geglu(g, graph_scale(g, y, 2), graph_neg(g, y)), 0, 1e-6f);
    }
    graph_gradient(g, graph_reshape(g, graph_reduce(g, OP_SUM, x, 3, 0), 0, NULL), 1, &w, &d);
    graph_output(g, graph_copy(g, d), "d");
    if (status == BERYL_OK) status = graph_status(g, &error);
    if (status == BERYL_OK) status = graph_exec_open(g, &store, NULL, &e, &error);
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
    else graph_exec_describe(e, &info);
    graph_exec_close(e);
    graph_close(g);
    store_fini(&store);
    device_close(dummy);
    return info.arena_bytes;
}

/* What the backward pass reads takes half as much, and little else is there. */
static void check_kept(test *t) {
    base_heap heap;
    if (!test_case(t, "gradient/kept-as-halves")) return;
    base_heap_init(&heap, NULL);
    const uint64_t whole = bytes_of_layers(t, &heap, false),
                   halves = bytes_of_layers(t, &heap, true);
    printf("  %llu of %llu\n", (unsigned long long)halves, (unsigned long long)whole);
    CHECK(t, halves > whole / 3 && halves < whole * 2 / 3);
    CHECK_INT(t, heap.bytes, 0);
}

void test_gradient(test *t) {
    check_pointwise(t);
    check_rules(t);
    check_kinks(t);
    check_refused(t);
    check_halves(t, "low-rank", false);
    check_halves(t, "kept", true);
    check_kept(t);
    for (size_t i = 0; i < test_form_count(); i++) check_form(t, &test_forms[i], i);
}
