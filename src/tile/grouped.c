/* grouped.c - see tile/grouped.h.
 *
 * The one idea: a workgroup an expert. Each reads all ids, its lanes a stretch each: what
 * belongs to experts before this one says where its pairs begin, what lanes before have found
 * says where a lane's begin. So nobody waits for another workgroup, and the list is in order,
 * the same in every run. */
#include "tile/grouped.h"

enum { FROM = 64 /* pairs */, LANES_MAX = 128, SCRATCH_LIST = 3, EXPERTS_MAX = 65535 };

bool tile_grouped_of(const lowering *l, const graph_node *node, tile_grouped *g) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]),
                       *ids = graph_tensor_at(l->g, node->in[2]);
    *g = (tile_grouped){.ids = ids,
                        .ids_value = node->in[2],
                        .n_expert = graph_tensor_at(l->g, node->in[1])->dim[0].size,
                        .n_used = ids->dim[1].size};
    g->share = x->dim[1].size == 1 ? g->n_used : 1;
    g->n = lower_count_times(lower_count_of(ids->dim[0]), g->n_used);
    const uint64_t bound = g->n.factor * (g->n.extent ? l->g->extents[g->n.extent].bound : 1);
    g->bound = bound < INT32_MAX ? (uint32_t)bound : 0;
    return g->bound >= FROM && g->n_expert <= EXPERTS_MAX && ids->stride[1] == 1;
}

uint32_t tile_grouped_each(const tile_grouped *g) {
    return (g->bound + g->n_expert - 1) / g->n_expert;
}

static ir_memory list_of(tile_kernel *k, const tile_grouped *g, ir_access access) {
    return tile_scratch(k, "list", SCRATCH_LIST, (2ull * g->n_expert + g->bound) * 4, IR_U32,
                        access);
}

ir_memory tile_grouped_list(tile_kernel *k, const tile_grouped *g) {
    return list_of(k, g, IR_READ);
}

void tile_grouped_range(ir_builder *b, ir_memory list, ir_id expert, ir_id *first, ir_id *n) {
    ir_id at = tile_mul(b, expert, 2);
    *first = ir_load(b, list, at, 1);
    *n = ir_load(b, list, tile_add(b, at, 1), 1);
}

ir_id tile_grouped_pair(ir_builder *b, const tile_grouped *g, ir_memory list, ir_id first,
                        ir_id i) {
    return ir_load(b, list, tile_add(b, ir_add(b, first, i), 2 * g->n_expert), 1);
}

typedef struct grouping {
    tile_kernel k;
    const tile_grouped *g;
    ir_memory ids;
    ir_id offset, stride, expert;
} grouping;

/* What pair i has, compared with this workgroup's expert by op, as 0 or 1. */
static ir_id is(grouping *m, ir_op op, ir_id i) {
    ir_builder *b = m->k.b;
    ir_id at = ir_fma(b, tile_div(b, i, m->g->n_used), m->stride, m->offset);
    ir_id id =
        ir_cast(b, IR_U32, ir_load(b, m->ids, ir_add(b, at, tile_rem(b, i, m->g->n_used)), 1));
    id = ir_select(b, ir_lt(b, id, ir_u32(b, m->g->n_expert)), id, ir_u32(b, 0));
    return ir_select(b, ir_binary(b, op, id, m->expert), ir_u32(b, 1), ir_u32(b, 0));
}

beryl_status tile_group_pairs(lowering *l, const tile_grouped *g) {
    const uint32_t most = tile_lanes(l, g->bound), lanes = most < LANES_MAX ? most : LANES_MAX;
    grouping m = {.g = g};
    tile_kernel *k = &m.k;
    ir_builder *b = tile_begin(k, l, "group_pairs", lanes);
    m.ids = tile_read(k, "ids", g->ids_value);
    /* before this expert, of it; in lanes before too */
    ir_memory list = list_of(k, g, IR_READ_WRITE), found[2], sums[3];
    m.offset = tile_u32(k, "ids_offset", g->ids->offset);
    m.stride = tile_u32(k, "ids_stride", g->ids->stride[0]);
    for (uint32_t i = 0; i < 2; i++) found[i] = ir_workgroup(b, IR_U32, lanes);
    for (uint32_t i = 0; i < 3; i++) sums[i] = ir_register(b, IR_U32, 1);
    ir_id n = tile_count(k, "n", g->n), zero = ir_u32(b, 0), one = ir_u32(b, 1),
          local = ir_local(b, 0);
    m.expert = ir_group(b, 0);
    ir_id each = tile_div(b, tile_add(b, n, lanes - 1), lanes),
          from = ir_min(b, ir_mul(b, local, each), n);
    ir_id to = ir_min(b, ir_add(b, from, each), n);
    for (uint32_t i = 0; i < 3; i++) ir_set(b, sums[i], zero);
    ir_id i = ir_loop(b, from, to, one);
    ir_set(b, sums[0], ir_add(b, ir_get(b, sums[0]), is(&m, IR_LT, i)));
    ir_set(b, sums[1], ir_add(b, ir_get(b, sums[1]), is(&m, IR_EQ, i)));
    ir_end(b);
    for (uint32_t s = 0; s < 2; s++) {
        ir_store(b, found[s], local, ir_get(b, sums[s]));
        ir_set(b, sums[s], zero);
    }
    ir_barrier(b);
    ir_id lane = ir_loop(b, zero, ir_u32(b, lanes), one);
    for (uint32_t s = 0; s < 3; s++) {
        ir_id there = ir_load(b, found[s > 0], lane, 1);
        if (s == 2) there = ir_select(b, ir_lt(b, lane, local), there, zero);
        ir_set(b, sums[s], ir_add(b, ir_get(b, sums[s]), there));
    }
    ir_end(b);
    ir_if(b, ir_eq(b, local, zero));
    ir_id range = tile_mul(b, m.expert, 2);
    ir_store(b, list, range, ir_get(b, sums[0]));
    ir_store(b, list, tile_add(b, range, 1), ir_get(b, sums[1]));
    ir_end(b);
    ir_set(b, sums[2],
           tile_add(b, ir_add(b, ir_get(b, sums[0]), ir_get(b, sums[2])), 2 * g->n_expert));
    i = ir_loop(b, from, to, one);
    ir_if(b, ir_ne(b, is(&m, IR_EQ, i), zero));
    ir_id at = ir_get(b, sums[2]);
    ir_store(b, list, at, i);
    ir_set(b, sums[2], tile_add(b, at, 1));
    ir_end(b);
    ir_end(b);
    return tile_end(k, (lower_count){g->n_expert, 0}, 1);
}
