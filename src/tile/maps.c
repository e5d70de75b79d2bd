/* maps.c - see tile/maps.h. */
#include "tile/maps.h"
#include "beryl_graph.h"
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

/* As memory has it. */
static float rounded(base_type type, float x) {
    const uint32_t bits = (uint32_t)base_f32_to_bf16(x) << 16;
    if (type == TYPE_F16) return base_f16_to_f32(base_f32_to_f16(x));
    if (type == TYPE_BF16) memcpy(&x, &bits, sizeof x);
    return x;
}

/* What is not rounded, nor of another size than a register's. */
static ir_type held_type(ir_type type) {
    return type == IR_I8 || type == IR_I16                      ? IR_I32
           : type == IR_U8 || type == IR_U16 || type == IR_BOOL ? IR_U32
                                                                : type;
}

static const graph_node *maker_of(const graph_region *r, graph_value v) {
    for (uint32_t i = 0; i < r->n; i++)
        if (r->node[i]->out[0] == v) return r->node[i];
    return NULL;
}

static uint8_t read_moved(tree *t, const graph_region *r, const graph_node *node, shift s);

static uint8_t read_from(tree *t, const graph_region *r, graph_value id, const shift *s) {
    const graph_node *maker = maker_of(r, id);
    const graph_tensor *of = graph_tensor_at(t->g, id);
    const ir_type type = tile_number_type(of->type);
    if (maker && graph_op_is_from_memory(maker->op)) return read_moved(t, r, maker, *s);
    if (maker && graph_op_is_pointwise(maker->op)) {
        uint8_t in[3] = {0};
        for (uint32_t k = 0; k < maker->n_in; k++) in[k] = read_from(t, r, maker->in[k], s);
        return tree_add_node(t, maker->op, maker, type, in);
    }
    t->unfit |= maker != NULL; /* a value of this very walk, at another place */
    const uint32_t rank = graph_tensor_at(t->g, t->like)->rank;
    graph_tensor x = tree_with_rank(of, rank, false);
    for (uint32_t i = 0; i < rank; i++) /* broadcast */
        if (x.dim[i].size == 1 && !x.dim[i].extent) x.stride[i] = 0;
    const uint8_t at = add_moved(t, id, x, s);
    return tree_add_value(
        t, (tree_value){.kind = TREE_INPUT, .type = type, .inside = TREE_MOVED, .in = {at, 0}});
}

/* Inside the size along the axis `x`, else the other one. */
static uint8_t add_within(tree *t, uint32_t axis, graph_dim size, const shift *s, uint8_t x,
                          tree_value other) {
    other.kind = TREE_WITHIN;
    other.type = t->values[x].type;
    other.in[0] = x;
    other.guard = add_index(t, axis, s);
    other.limit = count_of(t, size);
    return tree_add_value(t, other);
}

/* Where the axis has another size it is read from memory. */
static uint8_t read_resized(tree *t, const graph_region *r, const graph_node *node,
                            const shift *s) {
    const uint32_t axis = node->attr.resize.axis;
    graph_tensor x = *graph_tensor_at(t->g, node->in[0]);
    const ir_type type = tile_number_type(x.type);
    t->unfit |= maker_of(r, node->in[0]) != NULL;
    x.stride[axis] = 0;
    const uint8_t at = add_moved(t, node->in[0], x, s),
                  in = tree_add_value(t, (tree_value){.kind = TREE_INPUT,
                                                      .type = type,
                                                      .inside = TREE_MOVED,
                                                      .in = {at, 0}});
    return tree_add_value(t, (tree_value){.kind = TREE_RESIZED,
                                          .type = type,
                                          .node = node,
                                          .in = {in, 0},
                                          .guard = add_index(t, axis, s)});
}

static uint8_t read_moved(tree *t, const graph_region *r, const graph_node *node, shift s) {
    if (node->op == OP_RESIZE) return read_resized(t, r, node, &s);
    const bool is_pad = node->op == OP_PAD;
    const uint32_t axis = is_pad ? node->attr.pad.axis : node->attr.concat.axis;
    const float fill =
        is_pad ? rounded(graph_tensor_at(t->g, node->out[0])->type, node->attr.pad.value) : 0;
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
                              (tree_value){.n_in = last ? 1 : 2, .in = {0, made}, .fill = fill});
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
                                          .type = t->values[in].type,
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
        index = ir_add(b, index, tile_ramp(b, s->wide, 0, c->step[x->guard]));
    return tile_random(b, &x->node->attr, low, high, index);
}

uint8_t tree_read_map(tree *t, const graph_region *r, const graph_node *node) {
    if (node->op == OP_IOTA)
        return tree_add_value(
            t, (tree_value){.kind = TREE_PLACE,
                            .type = IR_I32,
                            .guard = add_index(t, node->attr.iota.axis, &(shift){.n = 0})});
    if (node->op == OP_RANDOM) return read_random(t, node);
    return graph_op_is_from_memory(node->op) ? read_moved(t, r, node, (shift){.n = 0})
                                             : read_triangle(t, node);
}

ir_id tree_map_offset(tree_walk *c, uint32_t i, ir_id offset) {
    for (uint32_t k = 0; k < c->t.n_move[i]; k++) {
        const tree_move *m = &c->t.moves[i][k];
        offset = ir_sub(c->k->b, offset, tile_mul(c->k->b, c->counts[m->count], m->stride));
    }
    return offset;
}

/* Number i of the axis along which the input of a TREE_RESIZED does not move. */
static ir_id resized_at(tree_walk *c, const tree_spot *s, const tree_value *x, ir_id i) {
    tree_spot part = *s;
    const uint32_t in = c->t.values[x->in[0]].in[0],
                   stride =
                       graph_tensor_at(c->t.g, x->node->in[0])->stride[x->node->attr.resize.axis];
    part.at[in] = ir_add(c->k->b, s->at[in], tile_mul(c->k->b, i, stride));
    part.made[x->in[0]] = IR_NO_ID;
    return tree_value_at(c, &part, x->in[0]);
}

/* Between the elements on both sides of numerator / divisor. */
static ir_id between(tree_walk *c, const tree_spot *s, const tree_value *x, ir_id numerator,
                     uint32_t divisor, uint32_t size) {
    ir_builder *b = c->k->b;
    const ir_id first = tile_div(b, numerator, divisor),
                next = ir_min(b, tile_add(b, first, 1), ir_u32(b, size - 1)),
                part = ir_div(b, ir_cast(b, x->type, tile_rem(b, numerator, divisor)),
                              ir_number(b, x->type, 1, divisor)),
                rest = ir_sub(b, ir_number(b, x->type, 1, 1), part);
    return ir_fma(b, resized_at(c, s, x, next), ir_splat(b, part, s->wide),
                  ir_mul(b, resized_at(c, s, x, first), ir_splat(b, rest, s->wide)));
}

static ir_id mean_of_part(tree_walk *c, const tree_spot *s, const tree_value *x, uint32_t size,
                          uint32_t to) {
    ir_builder *b = c->k->b;
    const ir_id zero = ir_u32(b, 0), from = tile_mul(b, s->at[x->guard], size),
                first = tile_div(b, from, to),
                end = tile_div(b, tile_add(b, from, size + to - 1), to);
    const ir_memory sum = ir_register(b, x->type, s->wide);
    ir_store(b, sum, zero, ir_number(b, x->type, s->wide, 0));
    const ir_id i = ir_loop(b, first, end, ir_u32(b, 1));
    ir_store(b, sum, zero, ir_add(b, ir_load(b, sum, zero, s->wide), resized_at(c, s, x, i)));
    ir_end(b);
    const ir_id n = ir_splat(b, ir_cast(b, x->type, ir_sub(b, end, first)), s->wide);
    return ir_div(b, ir_load(b, sum, zero, s->wide), n);
}

static ir_id resized(tree_walk *c, const tree_spot *s, const tree_value *x) {
    ir_builder *b = c->k->b;
    const uint32_t axis = x->node->attr.resize.axis, to = x->node->attr.resize.size,
                   size = graph_tensor_at(c->t.g, x->node->in[0])->dim[axis].size;
    const ir_id at = s->at[x->guard],
                middle = tile_mul(b, tile_add(b, tile_mul(b, at, 2), 1), size);
    switch ((beryl_resize)x->node->attr.resize.how) {
    case BERYL_RESIZE_NEAREST: return resized_at(c, s, x, tile_div(b, tile_mul(b, at, size), to));
    case BERYL_RESIZE_NEAREST_MIDDLE: return resized_at(c, s, x, tile_div(b, middle, 2 * to));
    case BERYL_RESIZE_LINEAR: {
        const ir_id edge = ir_u32(b, to);
        return between(c, s, x, ir_sub(b, ir_max(b, middle, edge), edge), 2 * to, size);
    }
    case BERYL_RESIZE_LINEAR_CORNERS:
        return between(c, s, x, tile_mul(b, at, size - 1), to > 1 ? to - 1 : 1, size);
    case BERYL_RESIZE_MEAN:
    case BERYL_RESIZE_COUNT: break;
    }
    return mean_of_part(c, s, x, size, to);
}

/* Is it known whether the value is inside? */
static bool is_settled(const tree_walk *c, const tree_value *x, bool *holds) {
    for (uint32_t i = 0; i < c->settled.n; i++)
        if (c->settled.guard[i] == x->guard && c->settled.limit[i] == x->limit) {
            *holds = c->settled.holds[i];
            return true;
        }
    return false;
}

/* A vector of which some elements may be inside. */
static ir_id in_pieces(tree_walk *c, const tree_spot *s, uint32_t v) {
    ir_id each[TREE_PIECES];
    for (uint32_t e = 0; e < s->wide; e++) {
        tree_spot own = *s;
        tree_spot_begin(&own, 1);
        for (uint32_t t = 0; t < c->t.n_tensor; t++)
            own.at[t] = tile_add(c->k->b, s->at[t], e * c->step[t]);
        each[e] = tree_map_value(c, &own, v);
    }
    return ir_compose(c->k->b, each, s->wide);
}

ir_id tree_map_value(tree_walk *c, tree_spot *s, uint32_t v) {
    ir_builder *b = c->k->b;
    const tree_value *x = &c->t.values[v];
    if (!BUILD_IS_SMALL && c->pieces && s->wide > 1) return in_pieces(c, s, v);
    if (x->kind == TREE_RESIZED) return resized(c, s, x);
    if (x->kind == TREE_PLACE) return ir_splat(b, ir_cast(b, IR_I32, s->at[x->guard]), s->wide);
    const ir_type type = held_type(x->type);
    const ir_id zero = ir_u32(b, 0), nothing = ir_number(b, x->type, s->wide, (double)x->fill),
                is_inside = ir_lt(b, s->at[x->guard], c->counts[x->limit]);
    if (x->kind == TREE_KEPT)
        return ir_select(b, ir_splat(b, is_inside, s->wide), tree_value_at(c, s, x->in[0]),
                         nothing);
    bool holds;
    if (BUILD_HAS_C_TEXTS && is_settled(c, x, &holds))
        return holds         ? tree_value_at(c, s, x->in[0])
               : x->n_in > 1 ? tree_value_at(c, s, x->in[1])
                             : nothing;
    /* what is not there is not read */
    tree_spot part = *s;
    const ir_memory held = ir_register(b, type, s->wide);
    ir_if(b, is_inside);
    ir_store(b, held, zero, ir_cast(b, type, tree_value_at(c, &part, x->in[0])));
    ir_else(b);
    part = *s;
    ir_store(b, held, zero,
             ir_cast(b, type, x->n_in > 1 ? tree_value_at(c, &part, x->in[1]) : nothing));
    ir_end(b);
    return ir_cast(b, x->type, ir_load(b, held, zero, s->wide));
}
