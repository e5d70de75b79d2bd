/* operators.h - the functions of operators, for the table in operators.c. */
#ifndef ONNX_OPERATORS_H
#define ONNX_OPERATORS_H

#include "onnx/call.h"

typedef enum onnx_activation {
    ACT_ELU,
    ACT_CELU,
    ACT_SELU,
    ACT_LEAKY,
    ACT_HARD_SIGMOID,
    ACT_SOFTSIGN,
    ACT_SWISH,
    ACT_GELU,
    ACT_THRESHOLDED,
    ACT_SHRINK,
    ACT_ACOSH,
    ACT_ASINH,
    ACT_ATANH,
    ACT_ROUND,
    ACT_BINARIZE
} onnx_activation;

typedef enum onnx_reduction {
    RED_SUM,
    RED_MEAN,
    RED_MAX,
    RED_MIN,
    RED_PROD,
    RED_L1,
    RED_L2,
    RED_LOG_SUM,
    RED_LOG_SUM_EXP,
    RED_SUM_SQUARE
} onnx_reduction;

typedef enum onnx_cell { CELL_RNN, CELL_GRU, CELL_LSTM } onnx_cell;
typedef enum onnx_pool_kind { POOL_MAX, POOL_MEAN, POOL_LP } onnx_pool_kind;

/* pointwise.c */
onnx_fn onnx_unary, onnx_binary, onnx_variadic, onnx_mean, onnx_identity, onnx_pow, onnx_mod,
    onnx_bit_shift, onnx_where, onnx_cast, onnx_cast_like, onnx_clip, onnx_prelu, onnx_is_inf,
    onnx_dropout, onnx_activate, onnx_bit_cast, onnx_swiglu;
/* shape.c */
onnx_fn onnx_reshape_to, onnx_flatten, onnx_squeeze, onnx_unsqueeze, onnx_transpose, onnx_concat,
    onnx_split, onnx_slice, onnx_pad, onnx_expand_to, onnx_tile, onnx_shape_op, onnx_size,
    onnx_constant, onnx_constant_of_shape, onnx_range, onnx_trilu, onnx_eye_like,
    onnx_depth_to_space, onnx_space_to_depth, onnx_center_crop_pad;
/* index.c */
onnx_fn onnx_gather, onnx_gather_elements, onnx_gather_nd, onnx_scatter_elements, onnx_scatter_nd,
    onnx_one_hot, onnx_topk, onnx_arg, onnx_compress, onnx_nonzero, onnx_reverse_sequence,
    onnx_tensor_scatter;
/* reduce.c */
onnx_fn onnx_reduce, onnx_softmax, onnx_log_softmax, onnx_hardmax, onnx_scan_op, onnx_loss;
/* norm.c */
onnx_fn onnx_layer_norm, onnx_rms_norm, onnx_group_norm, onnx_batch_norm, onnx_lp_norm,
    onnx_mean_variance_norm, onnx_lrn;
/* window.c */
onnx_fn onnx_conv, onnx_conv_transpose, onnx_pool, onnx_global_pool, onnx_resize, onnx_col2im,
    onnx_window_function, onnx_max_unpool;
/* sample.c */
onnx_fn onnx_grid_sample, onnx_affine_grid, onnx_roi_align, onnx_deform_conv;
/* spectrum.c */
onnx_fn onnx_dft, onnx_stft, onnx_mel_weights;
/* carried.c */
onnx_fn onnx_causal_conv, onnx_linear_attention;
/* product.c */
onnx_fn onnx_matmul, onnx_gemm, onnx_einsum, onnx_quantize, onnx_dequantize, onnx_dynamic_quantize,
    onnx_matmul_integer, onnx_conv_integer, onnx_qlinear_matmul, onnx_qlinear_conv;
/* recurrent.c */
onnx_fn onnx_recurrent;
/* attention.c */
onnx_fn onnx_attention, onnx_rotary;

/* Windows of a convolution or pool of an input with n axes after [n, c], by the node's attributes.
 * false: refused. */
bool onnx_windows(onnx_call *c, const graph_tensor *x, uint32_t n, const uint32_t *sizes,
                  graph_window *to, bool *partial);
graph_value onnx_channel(onnx_call *c, graph_value v, uint32_t rank); /* [c] as [1, c, 1, ..] */

/* A batch norm as x * scale + shift, [n] each. false: not all of its numbers are known, or
 * refused. */
bool onnx_norm_scales(onnx_call *norm, uint32_t n, onnx_array **scale, onnx_array **shift);
/* Takes the batch norm that alone reads a convolution into the convolution's weights and bias;
 * false: there is none, or it must stay. */
bool onnx_join_norm(onnx_call *conv);

#endif
