/* contract_end.c - see tile/contract_end.h.
 *
 * Sums often have axes of 1 that what follows leaves out, and axes apart that it joins (groups of
 * channels): each of the tree's tensors is walked as if it had the sums' axes. */
#include "tile/contract_inside.h"
#include "tile/pointwise.h"
#include "tile/product.h"

enum {
    TENSORS_MAX = 8, /* of a tree */
    NODES_MAX = 6    /* of one with an expensive operation, which keeps units waiting */
};

/* x, broadcast against `view`, with the axes of what it is a view of. */
static bool spread(const graph_tensor *made, const graph_tensor *view, const graph_tensor *x,
                   graph_tensor *out) {
    uint32_t d = made->rank;
    *out = *made;
    out->type = x->type;
    out->offset = x->offset;
    for (uint32_t i = view->rank; i-- > 0;) {
        const graph_dim dim = view->dim[i];
        const uint32_t step = lower_walk_stride(x, view->rank, i);
        uint64_t n = 1;
        uint32_t extent = 0;
        while (d > 0 && n < dim.size) {
            d--;
            out->stride[d] = (uint32_t)n * step;
            n *= made->dim[d].size;
            if (made->dim[d].extent) extent = n == dim.size ? made->dim[d].extent : UINT32_MAX;
        }
        if (n != dim.size || extent != dim.extent) return false;
    }
    while (d > 0 && made->dim[d - 1].size == 1 && !made->dim[d - 1].extent) d--;
    return d == 0;
}

bool contract_end_of(contract_end *end, graph_value sums, const tree *t) {
    *end = (contract_end){.sums = sums};
    if (!t) return true;
    const graph_tensor *made = graph_tensor_at(t->g, t->product[0]->out[0]),
                       *view = graph_tensor_at(t->g, t->values[0].id);
    if (t->n_tensor > TENSORS_MAX || !graph_is_contiguous(view) || view->offset != made->offset)
        return false;
    for (uint32_t i = 0; i < t->n_tensor; i++)
        if (!spread(made, view, &t->seen[i], &end->seen[i])) return false;
    end->walk = (tree_walk){.t = *t, .second = true};
    end->n = t->n_tensor;
    return true;
}

ir_memory contract_end_declare(contract_end *end, tile_kernel *k) {
    end->walk.k = k;
    if (!end->n) return tile_write(k, "out", end->sums);
    tree_declare(&end->walk);
    return (ir_memory){0};
}

void contract_end_begin(contract_end *end, tile_kernel *k, ir_id *at) {
    const uint32_t offset = end->n ? 0 : graph_tensor_at(k->l->g, end->sums)->offset;
    at[0] = offset < 2 ? ir_u32(k->b, offset) : tile_u32(k, "out_offset", offset);
    for (uint32_t i = 0; i < end->n; i++) at[1 + i] = end->walk.offset[i];
}

void contract_end_store(contract_end *end, tile_kernel *k, ir_memory out, const ir_id *at,
                        ir_id sum) {
    ir_builder *b = k->b;
    const base_type type = graph_tensor_at(k->l->g, end->sums)->type;
    const ir_id x = ir_cast(b, tile_element(type), sum);
    if (!end->n) {
        ir_store(b, out, at[0], x);
        return;
    }
    tree_spot s;
    tree_spot_begin(&s, 1);
    for (uint32_t i = 0; i < end->n; i++) s.at[i] = at[1 + i];
    s.made[0] = tile_number(b, type, x);
    tree_store(&end->walk, &s, 0);
}

bool tile_contract_product_fits(const lowering *l, const tree *t) {
    enum { FACTORS = 2, TABLES = 1 };
    contract_end end;
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_value; i++) n += t->values[i].kind == TREE_NODE;
    return t->n_product == 1 && tree_is_end(t) && contract_end_of(&end, t->product[0]->out[0], t) &&
           (!tree_is_expensive(t) || (n <= NODES_MAX && !tile_serial(l))) &&
           tree_bindings(l, t) + FACTORS + TABLES <= l->caps->storage_max &&
           !(BUILD_HAS_C_TEXTS && contract_takes_limbs(l, t->product[0]));
}
