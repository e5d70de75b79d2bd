/* reference_attention.c - the backward pass of attention: what it needs of each row, and the
 * gradients towards queries, keys and values. */
#include "base/error.h"
#include "graph/reference.h"

#include <math.h>

static double number_at(const reference_tensor *x, uint64_t i) {
    return x->t->type == TYPE_F16 ? (double)base_f16_to_f32(((const uint16_t *)x->data)[i])
                                  : (double)((const float *)x->data)[i];
}

/* Where line `line` of head `head` begins, of [n, heads, d] or [1, n, heads, d]. */
static uint64_t line_at(const reference_tensor *x, uint32_t line, uint32_t head) {
    const uint32_t *stride = x->t->stride + (x->t->rank - 3);
    return (uint64_t)line * stride[0] + (uint64_t)head * stride[1];
}

static double dot(const reference_tensor *x, uint64_t at, const reference_tensor *y, uint64_t from,
                  uint32_t d) {
    double sum = 0;
    for (uint32_t i = 0; i < d; i++) sum += number_at(x, at + i) * number_at(y, from + i);
    return sum;
}

beryl_status reference_attention_sums(reference_call *c) {
    const reference_tensor *q = &c->in[0], *k = &c->in[1], *y = &c->in[2], *d = &c->in[5];
    const uint32_t heads = q->dim[1], width = q->dim[2];
    const double scale = (double)c->node->attr.attention_sums.scale;
    for (uint32_t n = 0; n < q->dim[0]; n++)
        for (uint32_t h = 0; h < heads; h++) {
            const reference_keys keys = reference_keys_of(c, n);
            const uint64_t at = line_at(q, n, h);
            const uint32_t kv = h * k->dim[2] / heads;
            double most = -INFINITY, total = 0;
            for (uint32_t pass = 0; pass < 2; pass++)
                for (uint32_t j = keys.first; j < keys.end; j++) {
                    const double score = scale * dot(q, at, k, line_at(k, j, kv), width);
                    if (pass) total += exp(score - most);
                    else most = fmax(most, score);
                }
            const bool some = keys.first < keys.end;
            float *to = (float *)c->out[0].data + line_at(&c->out[0], n, h);
            to[0] = some ? (float)(most + log(total)) : 0;
            to[1] = (float)dot(y, line_at(y, n, h), d, line_at(d, n, h), width);
            to[2] = some ? (float)keys.first : 1;
            to[3] = some ? (float)keys.end - 1 : 0;
        }
    return BERYL_OK;
}

/* A pair of a row and a key gives to one line of the result. */
typedef struct pair {
    uint32_t n, h, key, kv;
} pair;

static void add_pair(reference_call *c, const pair *p, double *sum) {
    const reference_tensor *q = &c->in[0], *k = &c->in[1], *v = &c->in[2], *d = &c->in[3];
    const uint32_t towards = c->node->attr.attention_back.towards, width = q->dim[2];
    const float *row = (const float *)c->in[4].data + line_at(&c->in[4], p->n, p->h);
    if ((float)p->key < row[2] || (float)p->key > row[3]) return;
    const double scale = (double)c->node->attr.attention_back.scale;
    const uint64_t query = line_at(q, p->n, p->h), key = line_at(k, p->key, p->kv),
                   value = line_at(v, p->key, p->kv), slope = line_at(d, p->n, p->h);
    double weight = exp(fmin(scale * dot(q, query, k, key, width) - (double)row[0], 0));
    if (towards != 2) weight *= scale * (dot(d, slope, v, value, width) - (double)row[1]);
    for (uint32_t i = 0; i < width; i++)
        sum[i] += weight * (towards == 2   ? number_at(d, slope + i)
                            : towards == 1 ? number_at(q, query + i)
                                           : number_at(k, key + i));
}

beryl_status reference_attention_back(reference_call *c) {
    const reference_tensor *q = &c->in[0], *k = &c->in[1];
    const uint32_t heads = q->dim[1], groups = k->dim[2], width = q->dim[2], each = heads / groups;
    const bool rows = !c->node->attr.attention_back.towards;
    const uint32_t lines = rows ? q->dim[0] : k->dim[1], of_line = rows ? heads : groups;
    double *sum = base_heap_take(c->heap, width * sizeof *sum);
    if (!sum) return base_no_memory(c->error);
    for (uint32_t line = 0; line < lines; line++)
        for (uint32_t h = 0; h < of_line; h++) {
            for (uint32_t i = 0; i < width; i++) sum[i] = 0;
            for (uint32_t j = 0; rows && j < k->dim[1]; j++)
                add_pair(c, &(pair){line, h, j, h / each}, sum);
            for (uint32_t n = 0; !rows && n < q->dim[0]; n++)
                for (uint32_t i = 0; i < each; i++)
                    add_pair(c, &(pair){n, h * each + i, line, h}, sum);
            float *to = (float *)c->out[0].data + line_at(&c->out[0], line, h);
            for (uint32_t i = 0; i < width; i++) to[i] = (float)sum[i];
        }
    base_heap_give(c->heap, sum, width * sizeof *sum);
    return BERYL_OK;
}
