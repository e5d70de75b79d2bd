/* index.c - elements by index along an axis: gather, one_hot. */
#include "tile/index.h"

#include "base/build.h"
#include "base/error.h"
#include "tile/order.h"
#include "tile/walk.h"

#include <string.h>

const char *const tile_sizes_of_run[GRAPH_RANK_MAX] = {"n0", "n1", "n2", "n3", "n4",
                                                       "n5", "n6", "n7", "n8", "n9"};

/* ---- an element a lane ----------------------------------------------------------------------- */

ir_id tile_index_at(ir_builder *b, ir_memory ids, ir_id at, ir_id size, ir_id *inside) {
    const ir_id x = ir_load(b, ids, at, 1);
    const ir_instruction *i = ir_at(b, x);
    if (!i || i->type == IR_I32) {
        const ir_id place = ir_cast(b, IR_U32, x); /* below 0: very large */
        *inside = ir_lt(b, place, size);
        return place;
    }
    const ir_id place = ir_cast(b, IR_U64, x);
    *inside = ir_lt(b, place, ir_cast(b, IR_U64, size));
    return ir_cast(b, IR_U32, place);
}

enum { OUT, IDS, FROM, MOVED };

typedef struct moving {
    const char *name;
    graph_value ids, x; /* 0: none */
    graph_tensor index; /* ids, and */
    graph_tensor from;  /* x, or the place along an axis, in the shape of the result */
    uint32_t step;      /* of x, along the axis of the indices */
    graph_dim size;     /* of that axis */
} moving;

/* Four neighbours have one index and lie side by side. */
static bool makes_fours(const moving *m, const lower_walk *w, const graph_tensor *out) {
    const uint32_t last = w->n - 1;
    bool fits = m->x && base_type_block_bytes(out->type) <= 4 && !w->size[last].extent &&
                w->size[last].factor % 4 == 0 && w->stride[OUT][last] == 1 &&
                w->stride[FROM][last] == 1 && !w->stride[IDS][last] && m->from.offset % 4 == 0 &&
                m->step % 4 == 0;
    for (uint32_t i = 0; i < last; i++)
        fits = fits && w->stride[OUT][i] % 4 == 0 && w->stride[FROM][i] % 4 == 0;
    return fits;
}

/* One element, or one vector, of the result that a lane makes. */
typedef struct moved {
    ir_id at[MOVED], inside, place, within;
    ir_memory held;
} moved;

/* Where it lies. clamped: what is beyond the end lies where the last ones do. */
static moved moved_at(ir_builder *b, const lower_walk *w, const ir_id *start, const ir_id *size,
                      ir_id number, bool clamped) {
    moved m = {.at = {start[OUT], start[IDS], start[FROM]}};
    for (uint32_t i = w->n; i-- > 0;) {
        ir_id index = i ? ir_mod(b, number, size[i]) : number;
        if (i) number = ir_div(b, number, size[i]);
        else m.inside = ir_lt(b, index, size[i]);
        if (!i && clamped) index = ir_min(b, index, ir_sub(b, size[i], ir_u32(b, 1)));
        for (uint32_t j = 0; j < MOVED; j++)
            if (w->stride[j][i]) m.at[j] = ir_add(b, m.at[j], tile_mul(b, index, w->stride[j][i]));
    }
    return m;
}

static void hold(ir_builder *b, const moving *m, ir_memory x, const moved *o, ir_type type,
                 uint32_t wide) {
    const ir_id zero = ir_u32(b, 0);
    ir_store(b, o->held, zero, ir_number(b, type, wide, 0));
    ir_if(b, o->within); /* what is not there is not read */
    ir_store(b, o->held, zero,
             ir_load(b, x, ir_add(b, o->at[FROM], tile_mul(b, o->place, m->step)), wide));
    ir_end(b);
}

/* Where indices pick among rows, those of neighbours lie far apart: of wide tables a strip of
 * columns after another is done, which stays in a cache. */
static void walk_strips(const moving *m, lower_walk *w, base_type type, uint32_t cache) {
    enum { STRIP = 256, STRIP_MIN = 16 };
    const uint32_t last = w->n - 1;
    const uint64_t bytes = (uint64_t)m->size.size * base_type_block_bytes(type);
    uint32_t strip = STRIP;
    while (strip > STRIP_MIN && bytes * strip > cache) strip /= 2;
    if (BUILD_IS_SMALL || !last || w->n == GRAPH_RANK_MAX || w->size[last].extent ||
        w->size[last].factor % strip || bytes * w->size[last].factor <= cache)
        return;
    for (uint32_t t = 0; t < MOVED; t++)
        if (w->stride[t][last] != 1) return;
    memmove(w->size + 1, w->size, w->n * sizeof *w->size);
    w->size[0] = (lower_count){w->size[w->n].factor / strip, 0};
    w->size[w->n].factor = strip;
    for (uint32_t t = 0; t < MOVED; t++) {
        memmove(w->stride[t] + 1, w->stride[t], w->n * sizeof *w->stride[t]);
        w->stride[t][0] = strip;
    }
    w->n++;
}

enum {
    MANY_LANES = 256,
    ITEMS = 4,
    MANY = 1 << 16,
    MANY_ROWS = 256,
    CACHE_GPU = 8 << 20,
    CACHE_HOST = 1 << 20,
    LINE = 4096 /* elements that a processor's lane moves, at least */
};

/* Along rows that workgroup memory has room for, and with an index for at least as many elements as
 * a row has: they are read as they lie. */
static bool are_near(const lowering *l, const moving *m, const lower_walk *w,
                     const graph_tensor *out) {
    const uint32_t last = w->n - 1, n = m->size.size;
    const uint64_t room = l->caps->workgroup_bytes, length = w->size[last].factor;
    return !BUILD_IS_SMALL && last && m->step == 1 && !m->size.extent && !w->size[last].extent &&
           w->stride[OUT][last] == 1 && w->stride[IDS][last] == 1 && !w->stride[FROM][last] &&
           base_type_block_bytes(out->type) == 4 && n >= MANY_LANES && length >= n &&
           graph_element_bound(out) / length >= MANY_ROWS && n * 4ull <= room / 2;
}

/* A workgroup a row, whose elements it keeps. */
static beryl_status move_near(lowering *l, const graph_node *node, const moving *m,
                              const lower_walk *w) {
    const ir_type type = tile_element(graph_tensor_at(l->g, node->out[0])->type);
    const uint32_t n = m->size.size, length = (uint32_t)w->size[w->n - 1].factor;
    lower_walk outer = *w;
    outer.n--;
    tile_kernel k;
    ir_builder *b = tile_begin(&k, l, m->name, MANY_LANES);
    const ir_memory to = tile_write(&k, "out", node->out[0]), ids = tile_read(&k, "ids", m->ids),
                    x = tile_read(&k, "x", m->x), row = ir_workgroup(b, type, n);
    const ir_id start[MOVED] = {ir_u32(b, 0), tile_u32(&k, "ids_offset", m->index.offset),
                                tile_u32(&k, "x_offset", m->from.offset)};
    ir_id size[GRAPH_RANK_MAX];
    for (uint32_t i = 0; i < outer.n; i++)
        size[i] = tile_count(&k, tile_sizes_of_run[i], w->size[i]);
    const uint32_t turn = MANY_LANES * ITEMS;
    const ir_id local = ir_local(b, 0), zero = ir_u32(b, 0);
    const moved at = moved_at(b, &outer, start, size, tile_group(b), true);
    ir_id own[ITEMS], value[ITEMS], within[ITEMS];
    ir_id first = ir_loop(b, local, ir_u32(b, n), ir_u32(b, turn));
    for (uint32_t i = 0; i < ITEMS; i++) {
        own[i] = tile_add(b, first, i * MANY_LANES);
        const ir_id known = n % turn ? ir_min(b, own[i], ir_u32(b, n - 1)) : own[i];
        value[i] = ir_load(b, x, ir_add(b, at.at[FROM], known), 1);
    }
    for (uint32_t i = 0; i < ITEMS; i++) {
        if (n % turn) ir_if(b, ir_lt(b, own[i], ir_u32(b, n)));
        ir_store(b, row, own[i], value[i]);
        if (n % turn) ir_end(b);
    }
    ir_end(b);
    ir_barrier(b);
    ir_if(b, at.inside);
    first = ir_loop(b, local, ir_u32(b, length), ir_u32(b, turn));
    for (uint32_t i = 0; i < ITEMS; i++) {
        own[i] = tile_add(b, first, i * MANY_LANES);
        const ir_id known = length % turn ? ir_min(b, own[i], ir_u32(b, length - 1)) : own[i];
        value[i] = tile_index_at(b, ids, ir_add(b, at.at[IDS], known), ir_u32(b, n), &within[i]);
    }
    for (uint32_t i = 0; i < ITEMS; i++) {
        const ir_id found = ir_load(b, row, ir_select(b, within[i], value[i], zero), 1);
        if (length % turn) ir_if(b, ir_lt(b, own[i], ir_u32(b, length)));
        ir_store(b, to, ir_add(b, at.at[OUT], own[i]),
                 ir_select(b, within[i], found, ir_number(b, type, 1, 0)));
        if (length % turn) ir_end(b);
    }
    ir_end(b), ir_end(b);
    return tile_end(&k, lower_walk_count(l, &outer), 1);
}

/* Along lines on a processor, from end to end: of one index, as vectors, else of an index each. */
static bool are_lines(const lowering *l, const moving *m, const lower_walk *w) {
    const uint32_t last = w->n - 1;
    return tile_is_host(l) && m->ids && m->x && !m->size.extent && !w->size[last].extent &&
           w->stride[OUT][last] == 1 && w->stride[FROM][last] <= 1 &&
           (w->stride[IDS][last] || w->stride[FROM][last]);
}

static beryl_status move_lines(lowering *l, const graph_node *node, const moving *m,
                               const lower_walk *w) {
    static const ir_type words[] = {[1] = IR_U8, [2] = IR_U16, [4] = IR_U32, [8] = IR_U64};
    const ir_type type =
        words[ir_type_bytes(tile_element(graph_tensor_at(l->g, node->out[0])->type))];
    const uint32_t last = w->n - 1, n = (uint32_t)w->size[last].factor,
                   lines = n < LINE ? LINE / n : 1;
    const bool one_index = !w->stride[IDS][last];
    uint32_t wide = one_index ? TILE_RUN : 1;
    while (n % wide) wide /= 2;
    lower_walk outer = *w;
    outer.n--;
    lower_walk_pad(&outer, 1);
    tile_kernel k;
    ir_builder *b = tile_begin(&k, l, m->name, 1);
    ir_memory to = tile_bind(&k, "out", node->out[0], type, IR_READ_WRITE),
              ids = tile_read(&k, "ids", m->ids), x = tile_bind(&k, "x", m->x, type, IR_READ);
    to.anywhere = x.anywhere = true;
    const ir_id zero = ir_u32(b, 0), one = ir_u32(b, 1), length = ir_u32(b, n),
                none = ir_number(b, type, wide, 0), table = ir_u32(b, m->size.size),
                start[MOVED] = {zero, tile_u32(&k, "ids_offset", m->index.offset),
                                tile_u32(&k, "x_offset", m->from.offset)};
    ir_id size[GRAPH_RANK_MAX], within, place;
    for (uint32_t i = 0; i < outer.n; i++)
        size[i] = tile_count(&k, tile_sizes_of_run[i], outer.size[i]);
    const lower_count count = lower_walk_count(l, &outer);
    const ir_id begin = tile_mul(b, tile_group(b), lines),
                end = ir_min(b, tile_add(b, begin, lines), tile_count(&k, "lines", count)),
                line = ir_loop(b, begin, end, one);
    const moved at = moved_at(b, &outer, start, size, line, false);
    ir_if(b, at.inside);
    if (one_index) {
        place = tile_index_at(b, ids, at.at[IDS], table, &within);
        const ir_id from = ir_add(b, at.at[FROM], tile_mul(b, place, m->step));
        ir_if(b, within);
        ir_id i = ir_loop(b, zero, length, ir_u32(b, wide));
        ir_store(b, to, ir_add(b, at.at[OUT], i), ir_load(b, x, ir_add(b, from, i), wide));
        ir_end(b);
        ir_else(b);
        i = ir_loop(b, zero, length, ir_u32(b, wide));
        ir_store(b, to, ir_add(b, at.at[OUT], i), none);
        ir_end(b), ir_end(b);
    } else {
        const ir_id i = ir_loop(b, zero, length, one);
        place = tile_index_at(b, ids, ir_add(b, at.at[IDS], tile_mul(b, i, w->stride[IDS][last])),
                              table, &within);
        ir_id from = tile_mul(b, ir_select(b, within, place, zero), m->step);
        if (w->stride[FROM][last]) from = ir_add(b, from, i);
        from = ir_load(b, x, ir_add(b, at.at[FROM], from), 1);
        ir_store(b, to, ir_add(b, at.at[OUT], i), ir_select(b, within, from, none));
        ir_end(b);
    }
    ir_end(b), ir_end(b);
    return tile_end(&k, count, lines);
}

/* A lane moves several where there are many, and asks for all of their indices first. */
static beryl_status move(lowering *l, const graph_node *node, const moving *m) {
    static const char *const offsets[MOVED] = {"", "ids_offset", "x_offset"};
    const graph_tensor *out = graph_tensor_at(l->g, node->out[0]);
    const graph_tensor *t[MOVED] = {out, &m->index, &m->from};
    lower_walk w = lower_walk_of(t, MOVED, 0);
    lower_walk_pad(&w, 1);
    if (BUILD_HAS_C_TEXTS && are_lines(l, m, &w)) {
        walk_strips(m, &w, out->type, CACHE_HOST);
        return move_lines(l, node, m, &w);
    }
    const uint32_t wide = makes_fours(m, &w, out) ? 4 : 1;
    const bool many = m->ids && m->x && !tile_serial(l) &&
                      graph_element_bound(out) / wide >= MANY &&
                      l->caps->workgroup_invocations >= MANY_LANES;
    if (many && are_near(l, m, &w, out)) return move_near(l, node, m, &w);
    if (many) walk_strips(m, &w, out->type, CACHE_GPU);
    w.size[w.n - 1].factor /= wide;
    for (uint32_t i = 0; i < MOVED; i++) w.stride[i][w.n - 1] *= wide;
    const uint32_t lanes = many ? MANY_LANES : ORDER_LANES, n_item = many ? ITEMS : 1;
    const lower_count count = lower_walk_count(l, &w);
    const ir_type type = tile_element(out->type);
    tile_kernel k;
    ir_builder *b = tile_begin(&k, l, m->name, lanes);
    ir_memory to = tile_write(&k, "out", node->out[0]), ids = {0}, x = {0};
    if (m->ids) ids = tile_read(&k, "ids", m->ids);
    if (m->x) x = tile_read(&k, "x", m->x);
    const ir_id zero = ir_u32(b, 0);
    ir_id at[MOVED] = {zero}, size[GRAPH_RANK_MAX];
    for (uint32_t i = IDS; i < MOVED; i++)
        at[i] = t[i]->offset ? tile_u32(&k, offsets[i], t[i]->offset) : at[OUT];
    for (uint32_t i = 0; i < w.n; i++) size[i] = tile_count(&k, tile_sizes_of_run[i], w.size[i]);
    const ir_id n = m->ids && m->x ? tile_count(&k, "size", lower_count_of(m->size)) : IR_NO_ID;
    moved item[ITEMS];
    for (uint32_t i = 0; i < n_item && m->ids && m->x; i++)
        item[i].held = ir_register(b, type, wide);
    const ir_id first =
        many ? ir_fma(b, tile_group(b), ir_u32(b, lanes * ITEMS), ir_local(b, 0)) : tile_lane(&k);
    for (uint32_t i = 0; i < n_item; i++) {
        const ir_memory held = item[i].held;
        item[i] = moved_at(b, &w, at, size, tile_add(b, first, i * lanes), many);
        item[i].held = held;
        if (many) item[i].place = tile_index_at(b, ids, item[i].at[IDS], n, &item[i].within);
    }
    for (uint32_t i = 0; i < n_item && many; i++) hold(b, m, x, &item[i], type, wide);
    for (uint32_t i = 0; i < n_item; i++) {
        moved *o = &item[i];
        ir_if(b, o->inside);
        if (!m->x) {
            o->place = tile_index_at(b, ids, o->at[IDS], ir_u32(b, m->size.size), &o->within);
            const ir_id here = ir_and(b, o->within, ir_eq(b, o->place, o->at[FROM]));
            ir_store(b, to, o->at[OUT], ir_cast(b, type, here));
        } else if (!m->ids) {
            ir_store(b, to, o->at[OUT], ir_load(b, x, o->at[FROM], wide));
        } else {
            if (!many) {
                o->place = tile_index_at(b, ids, o->at[IDS], n, &o->within);
                hold(b, m, x, o, type, wide);
            }
            ir_store(b, to, o->at[OUT], ir_load(b, o->held, zero, wide));
        }
        ir_end(b);
    }
    return tile_end(&k, count, lanes * n_item);
}

beryl_status tile_gather(lowering *l, const graph_node *node) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]),
                       *out = graph_tensor_at(l->g, node->out[0]);
    const uint32_t axis = node->attr.gather.axis;
    moving m = {.name = "gather", .ids = node->in[1], .x = node->in[0], .from = *x};
    m.index = *graph_tensor_at(l->g, m.ids);
    m.step = x->stride[axis];
    m.size = x->dim[axis];
    memcpy(m.from.dim, out->dim, sizeof m.from.dim);
    m.from.stride[axis] = 0;
    return move(l, node, &m);
}

beryl_status tile_one_hot(lowering *l, const graph_node *node) {
    const graph_tensor *out = graph_tensor_at(l->g, node->out[0]);
    moving m = {.name = "one_hot", .ids = node->in[0], .from = *out};
    const uint32_t last = out->rank - 1u;
    m.index = *graph_tensor_at(l->g, m.ids);
    m.index.dim[last] = (graph_dim){1, 0};
    m.index.rank++;
    memset(m.from.stride, 0, sizeof m.from.stride);
    m.from.stride[last] = 1;
    m.size = out->dim[last];
    return move(l, node, &m);
}

beryl_status tile_copy_input(lowering *l, const graph_node *node, const char *name) {
    const moving m = {.name = name, .x = node->in[0], .from = *graph_tensor_at(l->g, node->in[0])};
    return move(l, node, &m);
}
