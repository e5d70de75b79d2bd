/* random.c - what is made of random numbers: distributions, first weights of layers, choices.
 *
 * The one idea: a key is seen as two tensors of the result's shape, and each element's number
 * hangs on its own key, the stream and its place. So a graph has no state, and a run's numbers
 * change with the key. */
#include "graph/build.h"

#include <math.h>

static graph_value word_of(graph *g, graph_value key, uint32_t i, uint32_t rank,
                           const graph_dim *dims) {
    const graph_value word = graph_narrow(g, key, 0, i, 1, 1);
    return word ? graph_expand(g, word, rank, dims) : 0;
}

static graph_value numbers(graph *g, base_random_kind kind, graph_draw draw, base_type type,
                           float chance, uint32_t rank, const graph_dim *dims) {
    if (!graph_has(g, draw.key, "random")) return 0;
    const graph_tensor *key = graph_tensor_at(g, draw.key);
    if (key->type != TYPE_U32 || key->rank != 1 || key->dim[0].size != 2 || key->dim[0].extent)
        return graph_refuse(g, BERYL_MISUSE, "random: a key is two numbers of U32");
    if (!rank) return graph_refuse(g, BERYL_MISUSE, "random: a single number: ask for one of [1]");
    const graph_value low = word_of(g, draw.key, 0, rank, dims),
                      high = word_of(g, draw.key, 1, rank, dims);
    if (!low || !high) return 0;
    return graph_op(g, OP_RANDOM, (graph_value[]){low, high},
                    (graph_attrs){.random = {kind, draw.stream, type, chance}});
}

static graph_value as(graph *g, graph_value x, base_type type) {
    return x && type != TYPE_F32 ? graph_cast(g, x, type, false) : x;
}

/* times x + plus */
static graph_value moved(graph *g, graph_value x, float times, float plus) {
    if (x && times != 1) x = graph_scale(g, x, times);
    return x && plus != 0 ? graph_add_scalar(g, x, plus) : x;
}

graph_value graph_random_bits(graph *g, graph_draw draw, uint32_t rank, const graph_dim *dims) {
    return numbers(g, RANDOM_BITS, draw, TYPE_U32, 0, rank, dims);
}

graph_value graph_random_uniform(graph *g, graph_draw draw, base_type type, float low, float high,
                                 uint32_t rank, const graph_dim *dims) {
    if (low == 0 && high == 1) return numbers(g, RANDOM_UNIFORM, draw, type, 0, rank, dims);
    if (!base_random_bits(type))
        return graph_refuse(g, BERYL_UNSUPPORTED, "random numbers of %s", base_type_name(type));
    const graph_value x = numbers(g, RANDOM_UNIFORM, draw, TYPE_F32, 0, rank, dims);
    return as(g, moved(g, x, high - low, low), type);
}

graph_value graph_random_normal(graph *g, graph_draw draw, base_type type, float mean,
                                float deviation, uint32_t rank, const graph_dim *dims) {
    if (!base_random_bits(type))
        return graph_refuse(g, BERYL_UNSUPPORTED, "random numbers of %s", base_type_name(type));
    const graph_value x = numbers(g, RANDOM_NORMAL, draw, TYPE_F32, 0, rank, dims);
    return as(g, moved(g, x, deviation, mean), type);
}

graph_value graph_bernoulli(graph *g, graph_draw draw, float chance, uint32_t rank,
                            const graph_dim *dims) {
    return numbers(g, RANDOM_TRUE, draw, TYPE_BOOL, chance, rank, dims);
}

graph_value graph_categorical(graph *g, graph_draw draw, graph_value logits) {
    if (!graph_has(g, logits, "categorical")) return 0;
    const graph_tensor x = *graph_tensor_at(g, logits);
    const graph_value noise = numbers(g, RANDOM_GUMBEL, draw, TYPE_F32, 0, x.rank, x.dim);
    return noise ? graph_argmax(g, graph_add(g, logits, noise)) : 0;
}

graph_value graph_random_weights(graph *g, graph_draw draw, base_type type, bool xavier,
                                 bool normal, float gain, uint32_t rank, const graph_dim *dims) {
    if (rank < 2 || rank > GRAPH_RANK_MAX)
        return graph_refuse(g, BERYL_MISUSE, "first weights of rank %u, not [out, in, ..]", rank);
    double each = 1;
    for (uint32_t i = 2; i < rank; i++) each *= dims[i].size;
    const double in = each * dims[1].size, out = each * dims[0].size;
    const double deviation = (double)gain * sqrt(xavier ? 2 / (in + out) : 1 / in);
    if (normal) return graph_random_normal(g, draw, type, 0, (float)deviation, rank, dims);
    const float most = (float)(sqrt(3) * deviation);
    return graph_random_uniform(g, draw, type, -most, most, rank, dims);
}

graph_value graph_key(graph *g, uint64_t seed) {
    /* what F32 holds: 16 bits a number */
    const float pieces[5] = {(float)(seed >> 16 & 0xffff), (float)(seed >> 48),
                             (float)(seed & 0xffff), (float)(seed >> 32 & 0xffff), 65536};
    graph_value x = graph_constant(g, 5, pieces);
    if (x) x = graph_cast(g, x, TYPE_U32, false);
    if (!x) return 0;
    const graph_value high = graph_narrow(g, x, 0, 0, 2, 1), low = graph_narrow(g, x, 0, 2, 2, 1),
                      times = graph_narrow(g, x, 0, 4, 1, 1);
    return graph_add(g, graph_mul(g, high, times), low);
}
