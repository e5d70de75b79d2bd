/* lower_ir_grouped.c - see lower_ir_grouped.h.
 *
 * The one idea: a workgroup an expert. Each reads all ids, its lanes a stretch each: what belongs to experts before this one says
 * where its pairs begin, what lanes before have found says where a lane's begin. So nobody waits for another workgroup, and
 * the list is in order, the same in every run. */
#include "graph/lower_ir_grouped.h"

enum { FROM = 64 /* pairs */, LANES_MOST = 128, SCRATCH_LIST = 3, EXPERTS_MAX = 65535 };

bool lower_ir_grouped_of(const lowering *l, const graph_node *node, lower_ir_grouped *g) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]), *ids = graph_tensor_at(l->g, node->in[2]);
    *g = (lower_ir_grouped){.ids = ids, .ids_value = node->in[2], .n_expert = graph_tensor_at(l->g, node->in[1])->dim[0].size, .n_used = ids->dim[1].size};
    g->share = x->dim[1].size == 1 ? g->n_used : 1;
    g->n = lower_count_times(lower_count_of(ids->dim[0]), g->n_used);
    const uint64_t bound = g->n.factor * (g->n.extent ? l->g->extents[g->n.extent].bound : 1);
    g->bound = bound < INT32_MAX ? (uint32_t)bound : 0;
    return g->bound >= FROM && g->n_expert <= EXPERTS_MAX && ids->stride[1] == 1;
}

uint32_t lower_ir_grouped_each(const lower_ir_grouped *g) {
    return (g->bound + g->n_expert - 1) / g->n_expert;
}

static ir_memory list_of(lower_ir *k, const lower_ir_grouped *g, ir_access access) {
    return lower_ir_scratch(k, "list", SCRATCH_LIST, (2ull * g->n_expert + g->bound) * 4, IR_U32, access);
}

ir_memory lower_ir_grouped_list(lower_ir *k, const lower_ir_grouped *g) {
    return list_of(k, g, IR_READ);
}

void lower_ir_grouped_range(lower_ir *k, ir_memory list, ir_id expert, ir_id *first, ir_id *n) {
    ir_id at = lower_ir_times(k, expert, 2);
    *first = ir_load(k->b, list, at, 1);
    *n = ir_load(k->b, list, lower_ir_plus(k, at, 1), 1);
}

ir_id lower_ir_grouped_pair(lower_ir *k, const lower_ir_grouped *g, ir_memory list, ir_id first, ir_id i) {
    return ir_load(k->b, list, lower_ir_plus(k, ir_add(k->b, first, i), 2 * g->n_expert), 1);
}

typedef struct grouping {
    lower_ir k;
    const lower_ir_grouped *g;
    ir_memory ids;
    ir_id offset, stride, expert;
} grouping;

/* What pair i has, compared with this workgroup's expert by op, as 0 or 1. */
static ir_id is(grouping *m, ir_op op, ir_id i) {
    ir_builder *b = m->k.b;
    ir_id at = ir_fma(b, lower_ir_over(&m->k, i, m->g->n_used), m->stride, m->offset);
    ir_id id = ir_cast(b, IR_U32, ir_load(b, m->ids, ir_add(b, at, lower_ir_rest(&m->k, i, m->g->n_used)), 1));
    id = ir_select(b, ir_lt(b, id, ir_u32(b, m->g->n_expert)), id, ir_u32(b, 0));
    return ir_select(b, ir_binary(b, op, id, m->expert), ir_u32(b, 1), ir_u32(b, 0));
}

beryl_status lower_ir_group_pairs(lowering *l, const graph_node *node, const lower_ir_grouped *g, beryl_error *error) {
    const uint32_t most = lower_ir_lanes(l, g->bound), lanes = most < LANES_MOST ? most : LANES_MOST;
    grouping m = {.g = g};
    lower_ir *k = &m.k;
    lower_ir_begin(k, l, node, "group_pairs", lanes);
    ir_builder *b = k->b;
    m.ids = lower_ir_read(k, "ids", g->ids_value);
    ir_memory list = list_of(k, g, IR_READ_WRITE), found[2], sums[3]; /* before this expert, of it; in lanes before too */
    m.offset = lower_ir_u32(k, "ids_offset", g->ids->offset);
    m.stride = lower_ir_u32(k, "ids_stride", g->ids->stride[0]);
    for (uint32_t i = 0; i < 2; i++) found[i] = ir_workgroup(b, IR_U32, lanes);
    for (uint32_t i = 0; i < 3; i++) sums[i] = ir_register(b, IR_U32, 1);
    ir_id n = lower_ir_count(k, "n", g->n), zero = ir_u32(b, 0), one = ir_u32(b, 1), local = ir_local(b, 0);
    m.expert = ir_group(b, 0);
    ir_id each = lower_ir_over(k, lower_ir_plus(k, n, lanes - 1), lanes), from = ir_min(b, ir_mul(b, local, each), n);
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
    ir_id range = lower_ir_times(k, m.expert, 2);
    ir_store(b, list, range, ir_get(b, sums[0]));
    ir_store(b, list, lower_ir_plus(k, range, 1), ir_get(b, sums[1]));
    ir_end(b);
    ir_set(b, sums[2], lower_ir_plus(k, ir_add(b, ir_get(b, sums[0]), ir_get(b, sums[2])), 2 * g->n_expert));
    i = ir_loop(b, from, to, one);
    ir_if(b, ir_ne(b, is(&m, IR_EQ, i), zero));
    ir_id at = ir_get(b, sums[2]);
    ir_store(b, list, at, i);
    ir_set(b, sums[2], lower_ir_plus(k, at, 1));
    ir_end(b);
    ir_end(b);
    return lower_ir_end(k, (lower_count){g->n_expert, 0}, 1, error);
}
