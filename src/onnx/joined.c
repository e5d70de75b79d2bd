/* joined.c - batch norms whose numbers are known: a scale and a shift a channel, which go into the
 * convolution before them where nobody else reads that. */
#include "onnx/operators.h"

#include <math.h>
#include <string.h>

static bool add_reader(base_map *readers, base_view name, uint32_t node) {
    if (!name.size) return true;
    if (base_map_find(readers, name, NULL)) node = UINT32_MAX;
    return base_map_set(readers, name, node);
}

bool onnx_readers_add(base_map *readers, const onnx_graph *from, bool body) {
    bool fine = true;
    for (size_t i = 0; fine && i < from->n_node; i++) {
        const onnx_node *node = &from->nodes[i];
        for (size_t k = 0; fine && k < node->n_in; k++)
            fine = add_reader(readers, node->in[k], body ? UINT32_MAX : (uint32_t)i);
        for (size_t k = 0; fine && k < node->n_attribute; k++)
            if (node->attributes[k].graph)
                fine = onnx_readers_add(readers, node->attributes[k].graph, true);
    }
    for (size_t i = 0; fine && i < from->n_out; i++)
        fine = add_reader(readers, from->out[i].name, UINT32_MAX);
    return fine;
}

/* Numbers of the file, F32. */
static bool is_known(const onnx_call *c, size_t k, uint64_t count) {
    const onnx_array *a = k < c->n_in && !c->in[k].given ? c->in[k].array : NULL;
    return a && (a->data || a->from) && a->type == TYPE_F32 && onnx_array_count(a) == count;
}

/* Of one that was made here. */
static float *numbers_of(const onnx_array *a) {
    return (float *)(uintptr_t)a->data;
}

/* Of any: those of the file lie at any byte. */
static double number_at(const onnx_array *a, uint64_t i) {
    float x;
    memcpy(&x, (const char *)a->data + i * sizeof x, sizeof x);
    return (double)x;
}

bool onnx_norm_scales(onnx_call *norm, uint32_t n, onnx_array **scale, onnx_array **shift) {
    const double eps = (double)onnx_real(norm, "epsilon", 1e-5f);
    const onnx_array *in[4];
    *scale = *shift = NULL;
    if (onnx_whole(norm, "training_mode", 0)) return false;
    for (size_t k = 0; k < 4; k++)
        if (!is_known(norm, k + 1, n)) return false;
    for (size_t k = 0; k < 4; k++)
        if (!(in[k] = onnx_known(norm, k + 1))) return false;
    *scale = onnx_array_make(norm, TYPE_F32, 1, &n);
    *shift = *scale ? onnx_array_make(norm, TYPE_F32, 1, &n) : NULL;
    if (!*shift) return false;
    for (uint32_t i = 0; i < n; i++) {
        const double by = number_at(in[0], i) / sqrt(number_at(in[3], i) + eps);
        numbers_of(*scale)[i] = (float)by;
        numbers_of(*shift)[i] = (float)(number_at(in[1], i) - number_at(in[2], i) * by);
    }
    return true;
}

bool onnx_join_norm(onnx_call *conv) {
    onnx_call norm;
    onnx_array *scale, *shift, *to;
    const onnx_array *from = conv->n_in > 1 ? conv->in[1].array : NULL;
    if (!from || !from->rank || conv->in[0].array || !onnx_only_reader(conv, &norm) ||
        !base_view_equal(norm.node->op, BASE_VIEW("BatchNormalization")) ||
        !base_view_equal(norm.node->in[0], conv->node->out[0]))
        return false;
    const uint32_t n = from->dim[0];
    const uint64_t count = onnx_array_count(from), each = n ? count / n : 0;
    const bool biased = onnx_is_given(conv, 2);
    if (!is_known(conv, 1, count) || !each || (biased && !is_known(conv, 2, n)) ||
        !onnx_has_room(conv, (count + 3 * (uint64_t)n) * sizeof(float)) ||
        !onnx_norm_scales(&norm, n, &scale, &shift))
        return false;
    const onnx_array *weights = onnx_known(conv, 1), *bias = biased ? onnx_known(conv, 2) : NULL;
    to = onnx_array_make(conv, TYPE_F32, from->rank, from->dim);
    if (!to || !weights || (biased && !bias)) return false;
    for (uint32_t i = 0; i < n; i++) {
        const double by = number_at(scale, i);
        for (uint64_t k = i * each; k < (i + 1) * each; k++)
            numbers_of(to)[k] = (float)(number_at(weights, k) * by);
        if (bias) numbers_of(shift)[i] += (float)(number_at(bias, i) * by);
    }
    to->lasting = shift->lasting = true;
    conv->in[1] = (onnx_value){.array = to};
    conv->in[2] = (onnx_value){.array = shift};
    conv->n_in = 3;
    return true;
}
