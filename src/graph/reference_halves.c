/* reference_halves.c - lets reference functions that are written for F32 take and give F16 and
 * BF16, through copies. */
#include "base/error.h"
#include "graph/reference.h"

enum { COPIES = GRAPH_IN_MAX + GRAPH_OUT_MAX };

typedef struct copies {
    graph_tensor as[COPIES]; /* F32, without gaps */
    reference_tensor of[COPIES];
    float *data[COPIES];
    size_t bytes[COPIES];
    uint32_t n;
} copies;

static bool is_half(const reference_tensor *x) {
    return x->data && (x->t->type == TYPE_F16 || x->t->type == TYPE_BF16);
}

/* *x becomes its copy, with its numbers if they are `given`. */
static beryl_status replace(reference_call *c, copies *all, reference_tensor *x, bool given) {
    const uint32_t i = all->n;
    const uint64_t n = reference_count(x);
    all->bytes[i] = (size_t)(n ? n : 1) * sizeof(float);
    float *data = all->data[i] = base_heap_take(c->heap, all->bytes[i]);
    if (!data) return base_no_memory(c->error);
    for (uint64_t k = 0; given && k < n; k++)
        data[k] = (float)reference_number_at(x->t->type,
                                             (const char *)x->data + reference_offset(x, x, k) * 2)
                      .real;
    all->of[i] = *x;
    all->as[i] = *x->t;
    all->as[i].type = TYPE_F32;
    for (uint32_t k = x->t->rank, stride = 1; k-- > 0; stride *= x->dim[k])
        all->as[i].stride[k] = stride;
    x->t = &all->as[i];
    x->data = data;
    all->n++;
    return BERYL_OK;
}

static void put_back(const reference_tensor *to, const float *data) {
    for (uint64_t k = 0, n = reference_count(to); k < n; k++)
        reference_put(to->t->type, (char *)to->data + reference_offset(to, to, k) * 2,
                      (reference_number){.real = (double)data[k]});
}

beryl_status reference_through_floats(reference_call *c, reference_fn *run) {
    copies all = {.n = 0};
    beryl_status status = BERYL_OK;
    for (uint32_t k = 0; status == BERYL_OK && k < c->node->n_in; k++)
        if (is_half(&c->in[k])) status = replace(c, &all, &c->in[k], true);
    const uint32_t n_in = all.n;
    for (uint32_t k = 0; status == BERYL_OK && k < c->node->n_out; k++)
        if (is_half(&c->out[k])) status = replace(c, &all, &c->out[k], false);
    if (status == BERYL_OK) status = run(c);
    for (uint32_t i = 0; i < all.n; i++) {
        if (status == BERYL_OK && i >= n_in) put_back(&all.of[i], all.data[i]);
        base_heap_give(c->heap, all.data[i], all.bytes[i]);
    }
    return status;
}
