/* maps.c - see tile/maps.h. */
#include "tile/maps.h"
#include "tile/pointwise.h"
#include "tile/random.h"

#include <string.h>

/* How far what is read lies behind the place in the result: a number and sizes for each axis. */
typedef struct shift {
    uint32_t back[GRAPH_RANK_MAX]; /* modulo 2^32 */
    struct {
        uint8_t axis, count;
    } by[TREE_MOVES];
    uint32_t n;
} shift;

/* A size that a kernel asks for. */
static uint8_t count_of(tree *t, graph_dim size) {
    for (uint32_t i = 0; i < t->n_count; i++)
        if (t->counts[i].size == size.size && t->counts[i].extent == size.extent) return (uint8_t)i;
    if (t->n_count == TREE_COUNTS) {
        t->unfit = true;
        return 0;
    }
    t->counts[t->n_count] = size;
    return (uint8_t)t->n_count++;
}

static void move_back(tree *t, shift *s, uint32_t axis, graph_dim by) {
    if (!by.extent) {
        s->back[axis] += by.size;
    } else if (s->n < TREE_MOVES) {
        s->by[s->n].axis = (uint8_t)axis;
        s->by[s->n++].count = count_of(t, by);
    } else {
        t->unfit = true;
    }
}

/* x in the shape of the results, moved. id 0: no memory. */
static uint8_t add_moved(tree *t, graph_value id, graph_tensor x, const shift *s) {
    const graph_tensor *like = graph_tensor_at(t->g, t->like);
    tree_move moves[TREE_MOVES] = {{0}};
    memcpy(x.dim, like->dim, sizeof x.dim);
    x.rank = like->rank;
    for (uint32_t i = 0; i < x.rank; i++) x.offset -= s->back[i] * x.stride[i];
    for (uint32_t i = 0; i < s->n; i++)
        moves[i] = (tree_move){s->by[i].count, x.stride[s->by[i].axis]};
    const uint8_t at = tree_add_tensor(t, id, tree_seen_as(&t->axes, x, t->rank, false), 0);
    if (at >= LOWER_WALK_TENSORS) {
        t->unfit = true;
        return 0;
    }
    t->is_moved[at] = true;
    t->n_move[at] = (uint8_t)s->n;
    memcpy(t->moves[at], moves, sizeof moves);
    return at;
}

/* The index along an axis of what is read. */
static uint8_t add_index(tree *t, uint32_t axis, const shift *s) {
    graph_tensor x = {.type = TYPE_F32};
    x.stride[axis] = 1;
    return add_moved(t, 0, x, s);
}

static const graph_node *maker_of(const graph_region *r, graph_value v) {
    for (uint32_t i = 0; i < r->n; i++)
        if (r->node[i]->out[0] == v) return r->node[i];
    return NULL;
}

static uint8_t read_moved(tree *t, const graph_region *r, const graph_node *node, shift s);

static uint8_t read_from(tree *t, const graph_region *r, graph_value id, const shift *s) {
    const graph_node *maker = maker_of(r, id);
    if (maker && graph_op_is_from_memory(maker->op)) return read_moved(t, r, maker, *s);
    t->unfit |= maker != NULL; /* a value of this very walk, at another place */
    const uint8_t at = add_moved(t, id, *graph_tensor_at(t->g, id), s);
    return tree_add_value(
        t, (tree_value){.kind = TREE_INPUT, .type = IR_F32, .inside = TREE_MOVED, .in = {at, 0}});
}

/* Inside the size along the axis `x`, else the other one. */
static uint8_t add_within(tree *t, uint32_t axis, graph_dim size, const shift *s, uint8_t x,
                          tree_value other) {
    other.kind = TREE_WITHIN;
    other.type = IR_F32;
    other.in[0] = x;
    other.guard = add_index(t, axis, s);
    other.limit = count_of(t, size);
    return tree_add_value(t, other);
}

static uint8_t read_moved(tree *t, const graph_region *r, const graph_node *node, shift s) {
    const bool is_pad = node->op == OP_PAD;
    const uint32_t axis = is_pad ? node->attr.pad.axis : node->attr.concat.axis;
    shift from[GRAPH_IN_MAX];
    if (is_pad) move_back(t, &s, axis, (graph_dim){node->attr.pad.before, 0});
    for (uint32_t i = 0; i < node->n_in; i++) {
        from[i] = s;
        move_back(t, &s, axis, graph_tensor_at(t->g, node->in[i])->dim[axis]);
    }
    uint8_t made = 0;
    for (uint32_t i = node->n_in; i-- > 0;) {
        const uint8_t x = read_from(t, r, node->in[i], &from[i]);
        const graph_dim size = graph_tensor_at(t->g, node->in[i])->dim[axis];
        const bool last = i + 1u == node->n_in;
        if (last && !is_pad) made = x;
        else
            made = add_within(t, axis, size, &from[i], x,
                              (tree_value){.n_in = last ? 1 : 2,
                                           .in = {0, made},
                                           .fill = is_pad ? node->attr.pad.value : 0});
    }
    return made;
}

/* Kept where row - column + diagonal, of triu the other way round, is not below 0. */
static uint8_t read_triangle(tree *t, const graph_node *node) {
    const graph_tensor *like = graph_tensor_at(t->g, t->like);
    const bool lower = node->op == OP_TRIL;
    const uint32_t row = like->rank - 2u, column = like->rank - 1u;
    const int64_t most = 1 << 30,
                  asked = lower ? node->attr.tril.diagonal : -(int64_t)node->attr.triu.diagonal;
    graph_tensor x = {.type = TYPE_F32};
    x.stride[row] = lower ? 1 : UINT32_MAX;
    x.stride[column] = 0 - x.stride[row];
    x.offset = (uint32_t)(asked > most ? most : asked < -most ? -most : asked);
    const uint8_t in = tree_value_of(t, node->in[0], 0);
    return tree_add_value(t, (tree_value){.kind = TREE_KEPT,
                                          .type = IR_F32,
                                          .in = {in, 0},
                                          .level = t->values[in].level,
                                          .guard = add_moved(t, 0, x, &(shift){.n = 0}),
                                          .limit = count_of(t, (graph_dim){1u << 31, 0})});
}

/* The place of an element in memory without gaps, as the bounds say. */
static uint8_t read_random(tree *t, const graph_node *node) {
    const graph_tensor *like = graph_tensor_at(t->g, t->like);
    graph_tensor x = {.type = TYPE_U32};
    uint32_t stride = 1;
    for (uint32_t i = like->rank; i-- > 0; stride *= like->dim[i].size) x.stride[i] = stride;
    const uint8_t low = tree_value_of(t, node->in[0], 0), high = tree_value_of(t, node->in[1], 0);
    const uint8_t deeper = t->values[low].level > t->values[high].level ? low : high;
    t->n_random++;
    return tree_add_value(t,
                          (tree_value){.kind = TREE_RANDOM,
                                       .node = node,
                                       .type = tile_number_type((base_type)node->attr.random.type),
                                       .n_in = 2,
                                       .in = {low, high},
                                       .level = t->values[deeper].level,
                                       .guard = add_moved(t, 0, x, &(shift){.n = 0})});
}

ir_id tree_map_random(tree_walk *c, tree_spot *s, uint32_t v) {
    ir_builder *b = c->k->b;
    const tree_value *x = &c->t.values[v];
    const ir_id low = tree_value_at(c, s, x->in[0]), high = tree_value_at(c, s, x->in[1]);
    ir_id index = ir_splat(b, s->at[x->guard], s->wide);
    if (s->wide > 1 && c->step[x->guard])
        index = ir_add(b, index, tile_ramp(c->k, s->wide, 0, c->step[x->guard]));
    return tile_random(b, &x->node->attr, low, high, index);
}

uint8_t tree_read_map(tree *t, const graph_region *r, const graph_node *node) {
    if (node->op == OP_RANDOM) return read_random(t, node);
    return graph_op_is_from_memory(node->op) ? read_moved(t, r, node, (shift){.n = 0})
                                             : read_triangle(t, node);
}

ir_id tree_map_offset(tree_walk *c, uint32_t i, ir_id offset) {
    for (uint32_t k = 0; k < c->t.n_move[i]; k++) {
        const tree_move *m = &c->t.moves[i][k];
        offset = ir_sub(c->k->b, offset, tile_mul(c->k, c->counts[m->count], m->stride));
    }
    return offset;
}

ir_id tree_map_value(tree_walk *c, tree_spot *s, uint32_t v) {
    ir_builder *b = c->k->b;
    const tree_value *x = &c->t.values[v];
    const ir_id zero = ir_u32(b, 0), nothing = ir_number(b, IR_F32, s->wide, (double)x->fill),
                is_inside = ir_lt(b, s->at[x->guard], c->counts[x->limit]);
    if (x->kind == TREE_KEPT)
        return ir_select(b, ir_splat(b, is_inside, s->wide), tree_value_at(c, s, x->in[0]),
                         nothing);
    /* what is not there is not read */
    tree_spot part = *s;
    const ir_memory held = ir_register(b, IR_F32, s->wide);
    ir_if(b, is_inside);
    ir_store(b, held, zero, tree_value_at(c, &part, x->in[0]));
    ir_else(b);
    part = *s;
    ir_store(b, held, zero, x->n_in > 1 ? tree_value_at(c, &part, x->in[1]) : nothing);
    ir_end(b);
    return ir_load(b, held, zero, s->wide);
}
