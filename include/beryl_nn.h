/* beryl_nn.h - what networks need beside the operations of beryl_graph.h: weights of whole numbers,
 * layers with a state, losses, dropout, states in files. Layers and losses are made of these
 * operations, on every device, with their gradients.
 *
 *     beryl_selective_scan s = {.x = x, .dt = dt, .a = a, .b = b, .c = c};
 *     beryl_value y = beryl_graph_selective_scan(g, &s, NULL);
 *     beryl_value loss = beryl_graph_mean(g, beryl_graph_loss(g, BERYL_LOSS_MSE, y, target, 0),
 *                                         NULL, 0, false);
 *
 * Conventions are those of beryl_graph.h. Floats are F32, F16, BF16 or F64; halves are computed in
 * F32.
 */
#ifndef BERYL_NN_H
#define BERYL_NN_H

#include "beryl_graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- weights of whole numbers ---------------------------------------------------------------- */

/* Codes with a scale and a zero point for each group of neighbours of a row: a weight is
 * scale * (code - zero). It stands wherever a weight of beryl_graph_weight may, and becomes one of
 * type AFFINE8 or AFFINE4: blocks of 32 codes with two F32, 10 and 6 bits a weight. (Codes of 8
 * bits without zero points, scales of F16: Q8_0. Floats of 8 bits, F8_E4M3 and F8_E5M2, are types
 * of beryl_graph_weight, rows a multiple of 16; a scale for each row is a product with the
 * result.) */
typedef struct beryl_affine {
    uint32_t bits;       /* 8, or 4: two codes a byte, the first in its low half */
    bool is_signed;      /* codes are from -128 or -8, else from 0 */
    uint32_t group;      /* codes that share them, a multiple of 32 that divides rows; 0: a row */
    const float *scales; /* [.., k / group] */
    const float *zeros;  /* [.., k / group]; NULL: 0 */
} beryl_affine;
/* dims [rank], 1 to 4, the last a multiple of 32; codes, size: bytes of all of them, row-major. All
 * are copied. MISUSE: what does not fit; UNSUPPORTED: rows of another size. */
BERYL_API beryl_value beryl_graph_weight_affine(beryl_graph *g, const char *name, uint32_t rank,
                                                const uint32_t *dims, const void *codes,
                                                size_t size, const beryl_affine *how);

/* ---- layers with a state --------------------------------------------------------------------- */

/* Selective scan (state-space layers): of each channel of x a state h of n numbers,
 *   h_t = exp(dt_t * a) * h_(t-1) + dt_t * b_t * x_t,   y_t = sum of c_t * h_t, plus d * x_t.
 * Steps are joined 1, 2, 4 .. at a time: work and memory are t * e * n, the former times log2(t).
 * d, first: 0: none, zeros. */
typedef struct beryl_selective_scan {
    beryl_value x, dt; /* [.., t, e], of one shape; up to 9 axes */
    beryl_value a;     /* [e, n]; below 0 where states decay */
    beryl_value b, c;  /* [.., t, n] */
    beryl_value d;     /* [e] */
    beryl_value first; /* [.., e, n]: h before the first step */
} beryl_selective_scan;
/* -> [.., t, e], of x's type; last (NULL: not wanted): h after the last step, [.., e, n]: t is then
 * a constant. */
BERYL_API beryl_value beryl_graph_selective_scan(beryl_graph *g, const beryl_selective_scan *scan,
                                                 beryl_value *last);

/* Gated delta rule: a state s, a matrix from keys to values, forgets and corrects what it holds for
 * a key:
 *   s = exp(decay_t) * s;   s += beta_t * k_t (v_t - s^T k_t)^T;   y_t = s^T q_t.
 * q and k are used as they are: norms and scales are the caller's. Computed in chunks of 64 steps
 * (products of matrices), joined as those of a selective scan. t, d and f are constants. */
typedef struct beryl_gated_delta {
    beryl_value q, k;        /* [.., t, d]; up to 8 axes */
    beryl_value v;           /* [.., t, f] */
    beryl_value decay, beta; /* [.., t]; decay: a logarithm, 0 or below */
    beryl_value first;       /* [.., d, f]: s before the first step; 0: zeros */
} beryl_gated_delta;
/* -> [.., t, f], of q's type; last (NULL: not wanted): s after the last step, [.., d, f]. */
BERYL_API beryl_value beryl_graph_gated_delta(beryl_graph *g, const beryl_gated_delta *rule,
                                              beryl_value *last);

/* ---- losses ---------------------------------------------------------------------------------- */

/* Of x and a target of its type and shape, floats; halves give F32. */
typedef enum beryl_loss {
    BERYL_LOSS_MSE,   /* (x - target)^2 */
    BERYL_LOSS_L1,    /* |x - target| */
    BERYL_LOSS_HUBER, /* (x - target)^2 / 2, from delta on delta * (|x - target| - delta / 2) */
    BERYL_LOSS_BCE,   /* of logits x: -target * log(s) - (1 - target) * log(1 - s), s: sigmoid(x) */
    BERYL_LOSS_KL,    /* of logarithms x: target * (log(target) - x), 0 where the target is */
    BERYL_LOSS_COSINE /* 1 - cosine of the angle between rows, the last axis; of a zero row 1 */
} beryl_loss;
/* -> of x's shape, of COSINE without the last axis; delta: of HUBER. */
BERYL_API beryl_value beryl_graph_loss(beryl_graph *g, beryl_loss kind, beryl_value x,
                                       beryl_value target, float delta);
/* -log(softmax(logits)[target]) of each row, safe for logits of any size: logits [n, classes] of
 * floats, targets I32 [n] -> [n], F32 (F64 of F64). 0, also as a gradient, where the target is no
 * class: -1 for what is to be ignored. */
BERYL_API beryl_value beryl_graph_cross_entropy(beryl_graph *g, beryl_value logits,
                                                beryl_value targets);
/* The same of logits that are x [n, d], floats, times w [classes, d], of any type, each cap *
 * tanh(logit / cap) where there is a cap (0: none). They are made in pieces of classes, and again
 * for gradients, towards x and towards w where that is floats: no [n, classes] are in memory. */
BERYL_API beryl_value beryl_graph_linear_cross_entropy(beryl_graph *g, beryl_value x, beryl_value w,
                                                       beryl_value targets, float cap);
/* logs, logarithms of chances, floats [n, classes], targets I32 [n] -> -logs[target] [n]; 0 where
 * the target is no class. */
BERYL_API beryl_value beryl_graph_nll(beryl_graph *g, beryl_value logs, beryl_value targets);
/* Rows [.., d] of one type and shape -> [..]: max(0, |anchor - same| - |anchor - other| + margin);
 * distances are of Euclid, with 1e-6 added to each difference. */
BERYL_API beryl_value beryl_graph_triplet(beryl_graph *g, beryl_value anchor, beryl_value same,
                                          beryl_value other, float margin);

/* ---- dropout --------------------------------------------------------------------------------- */

/* Each element 0 with this chance (0 to below 1), else divided by 1 - chance; key and stream as of
 * random numbers. */
BERYL_API beryl_value beryl_graph_dropout(beryl_graph *g, beryl_value key, uint32_t stream,
                                          beryl_value x, float chance);

/* ---- optimisers ------------------------------------------------------------------------------ */

/* beryl_graph_optimise of ADAM and ADAMW whose moments of a parameter are one state, "w.moments" of
 * I16: 2 bytes an element, not 8. The mean square is kept as a logarithm, the mean by its part of
 * the root of that, both rounded by chance: key, another one in every run, and streams from
 * `stream` on, one a parameter, as of random numbers. No gradient is beyond `most` in size (the
 * norm of beryl_graph_clip); beta1^2 is below beta2. */
BERYL_API void beryl_graph_optimise_q8(beryl_graph *g, uint32_t n, const beryl_value *parameters,
                                       const beryl_value *gradients, beryl_value rate,
                                       const beryl_optimiser *how, float most, beryl_value key,
                                       uint32_t stream, beryl_value *updated);

/* ---- states in files ------------------------------------------------------------------------- */

/* All states of a compiled graph, bit for bit, to a safetensors file and back, each by its name:
 * weights, and what optimisers keep (native builds only). A state is a tensor of its type and
 * shape, F32, F16, I32 or I16. save writes beside the file and renames. load takes a file that has
 * these states and no others, and looks at all of it before it changes one: BAD_FILE, or MISUSE
 * with the name of a state that is missing, of another type or shape, or none of this graph. MISUSE
 * too: a graph that is not compiled, two states of one name. UNSUPPORTED: states of Q8_0. */
BERYL_API beryl_status beryl_graph_states_save(beryl_graph *graph, const char *path,
                                               beryl_error *error);
BERYL_API beryl_status beryl_graph_states_load(beryl_graph *graph, const char *path,
                                               beryl_error *error);
/* The same to wherever the caller likes and from there. Sink and source are copied, then owned;
 * one that is PENDING is asked again at once. */
BERYL_API beryl_status beryl_graph_states_save_to(beryl_graph *graph, const beryl_sink *sink,
                                                  beryl_error *error);
BERYL_API beryl_status beryl_graph_states_load_from(beryl_graph *graph, const beryl_source *source,
                                                    beryl_error *error);

#ifdef __cplusplus
}
#endif
#endif
