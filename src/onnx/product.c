/* product.c - products of matrices, also of quantised numbers: those are computed as floats where
 * that is exact. */
#include "onnx/operators.h"

#include <math.h>
#include <string.h>

void onnx_matmul(onnx_call *c) {
    const graph_value a = onnx_in(c, 0), b = onnx_in(c, 1);
    if (a && b) onnx_give(c, 0, graph_matmul(c->g, a, b, false, false));
}

void onnx_gemm(onnx_call *c) {
    const graph_value a = onnx_in(c, 0), b = onnx_in(c, 1), bias = onnx_or_none(c, 2);
    if (!a || !b || c->g->error.code != BERYL_OK) return;
    const float alpha = onnx_real(c, "alpha", 1), beta = onnx_real(c, "beta", 1);
    graph_value v =
        graph_matmul(c->g, a, b, onnx_whole(c, "transA", 0), onnx_whole(c, "transB", 0));
    if (alpha != 1) v = graph_scale(c->g, v, alpha);
    if (bias && beta != 0)
        v = onnx_op2(c, OP_ADD, v, beta == 1 ? bias : graph_scale(c->g, bias, beta));
    onnx_give(c, 0, v);
}

/* Without blanks; the result's letters, where they are left out, are those that stand once, in
 * order; "..." stands for the axes in front that all have. */
void onnx_einsum(onnx_call *c) {
    const base_view text = onnx_text(c, "equation", "");
    graph_value x[GRAPH_EINSUM_MAX];
    char out[200], letters[27] = "";
    uint32_t count[128] = {0};
    size_t n = 0, part = 0;
    bool arrow = false;
    if (c->n_in > GRAPH_EINSUM_MAX || text.size > 100) {
        onnx_refuse(c, "more than 8 inputs, or a long text");
        return;
    }
    for (size_t k = 0; k < c->n_in; k++)
        if (!(x[k] = onnx_in(c, k))) return;
    uint32_t in_part = 0, wide = 0; /* letters of the part; axes that "..." stands for */
    for (size_t pass = 0; pass < 2; pass++) {
        n = part = in_part = 0;
        arrow = false;
        for (size_t i = 0; i <= text.size; i++) {
            const char ch = i < text.size ? text.data[i] : ',';
            if (ch == ' ') continue;
            if (ch == '.') {
                if (i + 2 >= text.size) break;
                i += 2;
                if (!pass) {
                    uint32_t around = in_part;
                    for (size_t k = i + 1;
                         k < text.size && text.data[k] != ',' && text.data[k] != '-'; k++)
                        around += text.data[k] != ' ';
                    const uint32_t rank = part < c->n_in ? onnx_tensor_of(c, x[part])->rank : 0;
                    if (!arrow && rank > around && rank - around > wide) wide = rank - around;
                } else {
                    for (uint32_t k = 0; k < wide && n < sizeof out - 64; k++)
                        out[n++] = (char)('Z' - k);
                }
                continue;
            }
            if (ch == ',' || ch == '-') part++, in_part = 0;
            else in_part++;
            if (ch == '-') arrow = true;
            if (!pass && !arrow && (unsigned char)ch < 128) count[(unsigned char)ch]++;
            if (pass && i < text.size && n < sizeof out - 64) out[n++] = ch;
        }
    }
    if (!arrow) {
        size_t m = 0;
        for (int ch = 'A'; ch <= 'z'; ch++)
            if (base_is_word((char)ch) && ch != '_' && count[ch] == 1 && m < 26)
                letters[m++] = (char)ch;
        letters[m] = 0;
        out[n++] = '-', out[n++] = '>';
        for (uint32_t k = 0; k < wide; k++) out[n++] = (char)('Z' - k);
        memcpy(out + n, letters, m);
        n += m;
    }
    out[n] = 0;
    const char *kept = base_arena_text(c->arena, out, n);
    if (kept) onnx_give(c, 0, graph_einsum(c->g, kept, (uint32_t)c->n_in, x));
}

/* ---- quantised numbers ----------------------------------------------------------------------- */

/* A scale or zero point [n] along an axis of x, or in blocks of it; as F32. */
static graph_value along(onnx_call *c, graph_value v, const graph_tensor *x, int64_t axis) {
    if (!v) return 0;
    const graph_tensor t = *onnx_tensor_of(c, v);
    const int64_t block = onnx_whole(c, "block_size", 0);
    if (t.rank == 0 || (t.rank == 1 && t.dim[0].size == 1))
        return t.rank ? graph_squeeze(c->g, v, 0) : v;
    const uint32_t at = onnx_axis(c, axis, x->rank);
    if (at == UINT32_MAX) return 0;
    if (t.rank == 1 && !block) {
        uint32_t dim[GRAPH_RANK_MAX];
        for (uint32_t i = 0; i < x->rank; i++) dim[i] = i == at ? t.dim[0].size : 1;
        return onnx_reshape(c, v, x->rank, dim);
    }
    if (block < 1 || t.rank != x->rank) return onnx_refuse(c, "scales of %u axes", t.rank);
    v = graph_repeat(c->g, v, at, (uint32_t)block);
    return v && onnx_tensor_of(c, v)->dim[at].size > x->dim[at].size
               ? graph_narrow(c->g, v, at, 0, x->dim[at].size, 1)
               : v;
}

static graph_value dequantised(onnx_call *c, size_t k, int64_t axis) {
    const graph_value x = onnx_in(c, k), scale = x ? onnx_in(c, k + 1) : 0;
    if (!scale) return 0;
    const graph_tensor t = *onnx_tensor_of(c, x);
    const base_type type = onnx_tensor_of(c, scale)->type;
    graph_value v = onnx_as(c, x, TYPE_F32);
    if (onnx_is_given(c, k + 2))
        v = onnx_op2(c, OP_SUB, v, along(c, onnx_as(c, onnx_in(c, k + 2), TYPE_F32), &t, axis));
    return onnx_as(c, onnx_op2(c, OP_MUL, v, along(c, onnx_as(c, scale, TYPE_F32), &t, axis)),
                   type);
}

void onnx_dequantize(onnx_call *c) {
    onnx_give(c, 0, dequantised(c, 0, onnx_whole(c, "axis", 1)));
}

/* round(x / scale) + zero, within the type. */
static graph_value quantised(onnx_call *c, graph_value x, graph_value scale, graph_value zero,
                             base_type type, int64_t axis) {
    if (!x || !scale) return 0;
    const graph_tensor t = *onnx_tensor_of(c, x);
    const base_type work = onnx_tensor_of(c, scale)->type;
    graph_value v = onnx_op2(c, OP_DIV, onnx_as(c, x, work), along(c, scale, &t, axis));
    v = graph_round(c->g, onnx_as(c, v, TYPE_F32));
    if (zero) v = onnx_op2(c, OP_ADD, v, along(c, onnx_as(c, zero, TYPE_F32), &t, axis));
    return v ? graph_cast(c->g, v, type, false) : 0;
}

void onnx_quantize(onnx_call *c) {
    const graph_value x = onnx_in(c, 0), scale = x ? onnx_in(c, 1) : 0;
    const onnx_attribute *to = onnx_attribute_find(c, "output_dtype");
    base_type type = TYPE_U8;
    if (!scale) return;
    if (to && to->whole && !onnx_type_of((uint32_t)to->whole, &type)) {
        onnx_refuse(c, "to %s", onnx_kind_name((uint32_t)to->whole));
        return;
    }
    const graph_value zero = onnx_or_none(c, 2);
    if (zero) type = onnx_tensor_of(c, zero)->type;
    onnx_give(c, 0, quantised(c, x, scale, zero, type, onnx_whole(c, "axis", 1)));
}

void onnx_dynamic_quantize(onnx_call *c) {
    graph *g = c->g;
    const graph_value x = onnx_in(c, 0);
    if (!x) return;
    const uint32_t all = (1u << onnx_tensor_of(c, x)->rank) - 1;
    const graph_value nought = onnx_number(c, 0, TYPE_F32),
                      high = onnx_op2(c, OP_MAX,
                                      onnx_without(c, graph_reduce(g, OP_AMAX, x, all, 0), all),
                                      nought),
                      low = onnx_op2(c, OP_MIN,
                                     onnx_without(c, graph_reduce(g, OP_AMIN, x, all, 0), all),
                                     nought),
                      scale = graph_scale(g, onnx_op2(c, OP_SUB, high, low), 1.0f / 255);
    const graph_value zero = graph_cast(
        g, graph_round(g, graph_neg(g, onnx_op2(c, OP_DIV, low, scale))), TYPE_U8, false);
    onnx_give(c, 0, quantised(c, x, scale, zero, TYPE_U8, 1));
    onnx_give(c, 1, scale);
    onnx_give(c, 2, zero);
}

/* x - zero as I32; a zero [n] is one for each index of the axis with so many axes after it. */
static graph_value less_zero(onnx_call *c, graph_value x, size_t zero, uint32_t after) {
    if (!x) return 0;
    const graph_value v = onnx_as(c, x, TYPE_I32);
    if (!onnx_is_given(c, zero)) return v;
    graph_value z = onnx_as(c, onnx_in(c, zero), TYPE_I32);
    if (!z) return 0;
    const graph_tensor t = *onnx_tensor_of(c, z);
    for (uint32_t i = 0; i < after && z && t.rank == 1 && t.dim[0].size > 1; i++)
        z = graph_unsqueeze(c->g, z, 1);
    return onnx_op2(c, OP_SUB, v, z);
}

void onnx_matmul_integer(onnx_call *c) {
    const graph_value a = less_zero(c, onnx_in(c, 0), 2, 1),
                      b = a ? less_zero(c, onnx_in(c, 1), 3, 0) : 0;
    if (b) onnx_give(c, 0, graph_matmul(c->g, a, b, false, false));
}

/* A convolution of two values with the node's windows. */
static graph_value convolved(onnx_call *c, graph_value x, graph_value w) {
    uint32_t sizes[3];
    graph_window windows[3];
    if (!x || !w) return 0;
    const graph_tensor t = *onnx_tensor_of(c, x), k = *onnx_tensor_of(c, w);
    if (k.rank < 3 || k.rank > 5 || t.rank != k.rank)
        return onnx_refuse(c, "a kernel of %u axes", k.rank);
    for (uint32_t i = 0; i + 2 < k.rank; i++) sizes[i] = k.dim[2 + i].size;
    const int64_t groups = onnx_whole(c, "group", 1);
    if (groups < 1 || groups > INT32_MAX) return onnx_refuse(c, "%lld groups", (long long)groups);
    return onnx_windows(c, &t, k.rank - 2u, sizes, windows, NULL)
               ? graph_conv(c->g, x, w, k.rank - 2u, windows, (uint32_t)groups)
               : 0;
}

void onnx_conv_integer(onnx_call *c) {
    onnx_shape kernel;
    if (!onnx_shape_of(c, 1, &kernel)) return;
    const graph_value x = less_zero(c, onnx_in(c, 0), 2, 0),
                      w = x ? less_zero(c, onnx_in(c, 1), 3, kernel.rank ? kernel.rank - 1 : 0) : 0;
    onnx_give(c, 0, convolved(c, x, w));
}

/* Inputs a, scale, zero, b, scale, zero, scale, zero of the result. */
static void requantise(onnx_call *c, graph_value v) {
    const graph_value scale = v ? onnx_in(c, 6) : 0, zero = scale ? onnx_in(c, 7) : 0;
    if (zero)
        onnx_give(
            c, 0,
            quantised(c, v, onnx_as(c, scale, TYPE_F32), zero, onnx_tensor_of(c, zero)->type, 1));
}

void onnx_qlinear_matmul(onnx_call *c) {
    const graph_value a = onnx_as(c, dequantised(c, 0, -2), TYPE_F32),
                      b = a ? onnx_as(c, dequantised(c, 3, -1), TYPE_F32) : 0;
    if (b) requantise(c, graph_matmul(c->g, a, b, false, false));
}

void onnx_qlinear_conv(onnx_call *c) {
    const graph_value x = dequantised(c, 0, 1), w = x ? dequantised(c, 3, 0) : 0;
    graph_value v = convolved(c, x, w);
    if (v && onnx_is_given(c, 8)) {
        const graph_value scale = onnx_op2(c, OP_MUL, onnx_in(c, 1), onnx_in(c, 4)),
                          bias = onnx_op2(c, OP_MUL, onnx_as(c, onnx_in(c, 8), TYPE_F32), scale);
        v = onnx_op2(c, OP_ADD, v, onnx_channel(c, bias, onnx_tensor_of(c, v)->rank));
    }
    requantise(c, v);
}
