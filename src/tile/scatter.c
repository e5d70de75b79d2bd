/* scatter.c - elements to places: scatter, scatter_add; and places of elements: nonzero.
 *
 * The one idea of those that scatter: pairs of an update and the place that it goes to are put in
 * order of place (tile/order.h), equal ones in the order of their indices. What goes to one place
 * then lies side by side: the last of it is kept, or its sum is made by stretches of the list,
 * then by stretches of what is left of them. No two lanes write to one place, and sums have one
 * order. Axes along which all indices are the same are not sorted: they are rows of a pair. A few
 * units of a processor each walk all pairs as they lie instead, for slots of their own, or a share
 * of the pairs, for sums of their own. */
#include "base/build.h"
#include "base/error.h"
#include "tile/index.h"
#include "tile/order.h"

/* ---- pairs ----------------------------------------------------------------------------------- */

typedef struct numbering { /* of places along some axes, outermost first: at the bounds */
    uint32_t n, axis[GRAPH_RANK_MAX], size[GRAPH_RANK_MAX];
    uint64_t count;
} numbering;

static void number_axis(numbering *to, uint32_t axis, uint32_t size) {
    if (!to->n) to->count = 1;
    to->axis[to->n] = axis;
    to->size[to->n++] = size;
    to->count = to->count > UINT32_MAX ? to->count : to->count * size;
}

/* number -> at[axis] of its axes */
static void take_apart(ir_builder *b, const numbering *of, ir_id number, ir_id *at) {
    for (uint32_t i = of->n; i-- > 0;) {
        at[of->axis[i]] = i ? tile_rem(b, number, of->size[i]) : number;
        if (i) number = tile_div(b, number, of->size[i]);
    }
}

/* Where that is in t, from `place` on. */
static ir_id place_in(ir_builder *b, const numbering *of, const graph_tensor *t, const ir_id *at,
                      ir_id place) {
    for (uint32_t i = 0; i < of->n; i++) {
        const uint32_t axis = of->axis[i];
        if (t->stride[axis] && t->dim[axis].size > 1)
            place = ir_add(b, place, tile_mul(b, at[axis], t->stride[axis]));
    }
    return place;
}

typedef struct run_sizes { /* of axes that a run sizes */
    ir_id of[GRAPH_RANK_MAX];
} run_sizes;

static run_sizes sizes_in(tile_kernel *k, const graph_tensor *t) {
    run_sizes s;
    for (uint32_t i = 0; i < t->rank; i++)
        s.of[i] = t->dim[i].extent ? tile_count(k, tile_sizes_of_run[i], lower_count_of(t->dim[i]))
                                   : IR_NO_ID;
    return s;
}

/* `inside`, and places that the run has. */
static ir_id in_run(ir_builder *b, const numbering *of, const run_sizes *s, const ir_id *at,
                    ir_id inside) {
    for (uint32_t i = 0; i < of->n; i++)
        if (s->of[of->axis[i]] != IR_NO_ID)
            inside = ir_and(b, inside, ir_lt(b, at[of->axis[i]], s->of[of->axis[i]]));
    return inside;
}

/* ---- scatter --------------------------------------------------------------------------------- */

enum { STRETCH = 32, PART_KEYS = ORDER_OWN, PART_VALUES = ORDER_OWN + 2 };

typedef struct scattering {
    lowering *l;
    const graph_node *node;
    const graph_tensor *x, *ids, *updates, *out;
    uint32_t axis, n_inner, n_slot;
    numbering pairs, slots, inner; /* slots: with places along the axis for indices */
    tile_ordered order;
    ir_type type, sum; /* of elements, of their sums */
    /* of a dispatch that reads indices */
    ir_memory from, held;
    run_sizes run;
    ir_id offset, size;
} scattering;

static void keys_begin(void *user, tile_kernel *k, bool puts) {
    scattering *s = user;
    (void)puts;
    s->from = tile_read(k, "ids", s->node->in[1]);
    s->held = ir_register(k->b, IR_U32, 1);
    s->run = sizes_in(k, s->ids);
    s->offset = tile_u32(k, "ids_offset", s->ids->offset);
    s->size = tile_count(k, "size", lower_count_of(s->x->dim[s->axis]));
}

/* The slot that a pair goes to; n_slot: none. */
static ir_id slot_of(void *user, tile_kernel *k, ir_id row, ir_id pair) {
    scattering *s = user;
    ir_builder *b = k->b;
    ir_id at[GRAPH_RANK_MAX], within;
    (void)row;
    ir_set(b, s->held, ir_u32(b, s->n_slot));
    take_apart(b, &s->pairs, pair, at);
    ir_if(b, in_run(b, &s->pairs, &s->run, at, ir_bool(b, true)));
    at[s->axis] =
        tile_index_at(b, s->from, place_in(b, &s->pairs, s->ids, at, s->offset), s->size, &within);
    ir_if(b, within);
    ir_id slot = ir_u32(b, 0);
    for (uint32_t i = 0; i < s->slots.n; i++)
        slot = ir_add(b, tile_mul(b, slot, s->slots.size[i]), at[s->slots.axis[i]]);
    ir_set(b, s->held, slot);
    ir_end(b);
    ir_end(b);
    return ir_get(b, s->held);
}

/* The last pair of each slot is kept. */
static beryl_status scatter_last(scattering *s) {
    const uint32_t n = s->order.n;
    tile_kernel k;
    ir_builder *b = tile_begin(&k, s->l, "scatter", ORDER_LANES);
    ir_memory keys = tile_order_keys(&k, &s->order), places = tile_order_places(&k, &s->order),
              updates = tile_read(&k, "updates", s->node->in[2]),
              out = tile_write(&k, "out", s->node->out[0]);
    const run_sizes run = sizes_in(&k, s->updates);
    const ir_id offset = tile_u32(&k, "offset", s->updates->offset), lane = tile_lane(&k),
                pair = tile_div(b, lane, s->n_inner), end = ir_u32(b, n - 1);
    ir_id at[GRAPH_RANK_MAX];
    take_apart(b, &s->inner, tile_rem(b, lane, s->n_inner), at);
    ir_if(b, in_run(b, &s->inner, &run, at, ir_lt(b, pair, ir_u32(b, n))));
    const ir_id key = ir_load(b, keys, pair, 1),
                next = ir_load(b, keys, ir_min(b, tile_add(b, pair, 1), end), 1),
                last = ir_or(b, ir_ne(b, key, next), ir_eq(b, pair, end));
    ir_if(b, ir_and(b, last, ir_lt(b, key, ir_u32(b, s->n_slot))));
    ir_id from = place_in(b, &s->inner, s->updates, at, offset),
          to = place_in(b, &s->inner, s->out, at, ir_u32(b, 0));
    take_apart(b, &s->pairs, ir_load(b, places, pair, 1), at);
    from = place_in(b, &s->pairs, s->updates, at, from);
    take_apart(b, &s->slots, key, at);
    to = place_in(b, &s->slots, s->out, at, to);
    ir_store(b, out, to, ir_load(b, updates, from, 1));
    ir_end(b);
    ir_end(b);
    return tile_end(&k, (lower_count){(uint64_t)n * s->n_inner, 0}, ORDER_LANES);
}

typedef struct adding { /* a level of sums: a lane a stretch of n, and a place of a row */
    tile_kernel k;
    scattering *s;
    uint32_t n, n_stretch;
    ir_memory out, keys, values, key, sum, first; /* keys, values: of the next level */
    ir_id inner, stretch, row, at[GRAPH_RANK_MAX];
} adding;

/* The sum is whole. */
static void add_to_slot(adding *a) {
    scattering *s = a->s;
    ir_builder *b = a->k.b;
    const ir_id key = ir_get(b, a->key);
    ir_if(b, ir_lt(b, key, ir_u32(b, s->n_slot)));
    take_apart(b, &s->slots, key, a->at);
    const ir_id to = place_in(b, &s->slots, s->out, a->at, a->row),
                old = ir_cast(b, s->sum, ir_load(b, a->out, to, 1));
    ir_store(b, a->out, to, ir_cast(b, s->type, ir_add(b, old, ir_get(b, a->sum))));
    ir_end(b);
}

/* What the stretch begins (0) or ends (1) with goes on to the next level. */
static void pass_on(adding *a, uint32_t which, ir_id sum) {
    ir_builder *b = a->k.b;
    const ir_id to = tile_add(b, tile_mul(b, a->stretch, 2), which);
    ir_store(b, a->values, ir_add(b, tile_mul(b, to, a->s->n_inner), a->inner), sum);
    ir_if(b, ir_eq(b, a->inner, ir_u32(b, 0)));
    ir_store(b, a->keys, to, ir_get(b, a->key));
    ir_end(b);
}

/* The next element has another key. */
static void end_sum(adding *a) {
    ir_builder *b = a->k.b;
    if (a->n_stretch == 1) {
        add_to_slot(a);
        return;
    }
    ir_if(b, ir_ne(b, ir_get(b, a->first), ir_u32(b, 0)));
    pass_on(a, 0, ir_get(b, a->sum));
    ir_set(b, a->first, ir_u32(b, 0));
    ir_else(b);
    add_to_slot(a);
    ir_end(b);
}

static void end_stretch(adding *a) {
    ir_builder *b = a->k.b;
    const ir_id nothing = ir_number(b, a->s->sum, 1, 0);
    if (a->n_stretch == 1) {
        add_to_slot(a);
        return;
    }
    ir_if(b, ir_ne(b, ir_get(b, a->first), ir_u32(b, 0)));
    pass_on(a, 0, ir_get(b, a->sum));
    pass_on(a, 1, nothing);
    ir_else(b);
    pass_on(a, 1, ir_get(b, a->sum));
    ir_end(b);
}

static ir_memory part_keys(tile_kernel *k, uint32_t level, uint32_t n, ir_access access) {
    return tile_scratch(k, access == IR_READ ? "keys" : "new_keys", PART_KEYS + level % 2,
                        (uint64_t)n * 4, IR_U32, access);
}

static ir_memory part_values(const scattering *s, tile_kernel *k, uint32_t level, uint32_t n,
                             ir_access access) {
    return tile_scratch(k, access == IR_READ ? "values" : "new_values", PART_VALUES + level % 2,
                        (uint64_t)n * s->n_inner * ir_type_bytes(s->sum), s->sum, access);
}

static beryl_status scatter_level(scattering *s, uint32_t level, uint32_t n) {
    adding all = {.s = s, .n = n, .n_stretch = (n + STRETCH - 1) / STRETCH}, *a = &all;
    tile_kernel *k = &a->k;
    ir_builder *b = tile_begin(k, s->l, level ? "scatter_add_parts" : "scatter_add", ORDER_LANES);
    ir_memory keys = level ? part_keys(k, level, n, IR_READ) : tile_order_keys(k, &s->order),
              places = {0}, values, held = ir_register(b, s->sum, 1);
    if (!level) places = tile_order_places(k, &s->order);
    values = level ? part_values(s, k, level, n, IR_READ) : tile_read(k, "updates", s->node->in[2]);
    a->out = tile_write(k, "out", s->node->out[0]);
    if (a->n_stretch > 1) {
        a->keys = part_keys(k, level + 1, 2 * a->n_stretch, IR_READ_WRITE);
        a->values = part_values(s, k, level + 1, 2 * a->n_stretch, IR_READ_WRITE);
    }
    a->key = ir_register(b, IR_U32, 1);
    a->sum = ir_register(b, s->sum, 1);
    a->first = ir_register(b, IR_U32, 1);
    const run_sizes run = sizes_in(k, s->updates);
    const ir_id offset = tile_u32(k, "offset", s->updates->offset), zero = ir_u32(b, 0),
                one = ir_u32(b, 1), lane = tile_lane(k), nothing = ir_number(b, s->sum, 1, 0);
    a->stretch = tile_div(b, lane, s->n_inner);
    a->inner = tile_rem(b, lane, s->n_inner);
    take_apart(b, &s->inner, a->inner, a->at);
    ir_if(b, in_run(b, &s->inner, &run, a->at, ir_lt(b, a->stretch, ir_u32(b, a->n_stretch))));
    a->row = place_in(b, &s->inner, s->out, a->at, zero);
    const ir_id from_row = place_in(b, &s->inner, s->updates, a->at, offset),
                from = tile_mul(b, a->stretch, STRETCH),
                left = ir_min(b, ir_sub(b, ir_u32(b, n), from), ir_u32(b, STRETCH));
    ir_set(b, a->key, ir_load(b, keys, from, 1));
    ir_set(b, a->sum, nothing);
    ir_set(b, a->first, one);
    const ir_id i = ir_add(b, from, ir_loop(b, zero, left, one)), key = ir_load(b, keys, i, 1);
    ir_if(b, ir_ne(b, key, ir_get(b, a->key)));
    end_sum(a);
    ir_set(b, a->key, key);
    ir_set(b, a->sum, nothing);
    ir_end(b);
    ir_if(b, ir_lt(b, key, ir_u32(b, s->n_slot))); /* other updates may not be there */
    ir_id value;
    if (level) {
        value = ir_load(b, values, ir_add(b, tile_mul(b, i, s->n_inner), a->inner), 1);
    } else {
        ir_id at[GRAPH_RANK_MAX];
        take_apart(b, &s->pairs, ir_load(b, places, i, 1), at);
        value = ir_cast(b, s->sum,
                        ir_load(b, values, place_in(b, &s->pairs, s->updates, at, from_row), 1));
    }
    ir_store(b, held, zero, value);
    ir_set(b, a->sum, ir_add(b, ir_get(b, a->sum), ir_load(b, held, zero, 1)));
    ir_end(b);
    ir_end(b);
    end_stretch(a);
    ir_end(b);
    return tile_end(k, (lower_count){(uint64_t)a->n_stretch * s->n_inner, 0}, ORDER_LANES);
}

/* A few units of a processor: of elements whose sums are of their type, since they are added where
 * they lie. */
static bool takes_bands(const scattering *s) {
    enum { UNITS_MAX = 8 };
    return tile_is_host(s->l) && s->l->caps->compute_units <= UNITS_MAX &&
           (s->node->op == OP_SCATTER || s->sum == s->type);
}

typedef struct banded { /* a group does what goes to its slots, pair after pair */
    tile_kernel k;
    scattering *s;
    ir_memory updates, to;
    ir_id offset, base, from, size; /* of the updates, of `to`; of the group's slots */
} banded;

static ir_id in_band(banded *x, ir_id slot) {
    return ir_lt(x->k.b, ir_sub(x->k.b, slot, x->from), x->size);
}

static void put_pair(banded *x, ir_id pair, ir_id slot) {
    scattering *s = x->s;
    ir_builder *b = x->k.b;
    const ir_id zero = ir_u32(b, 0), one = ir_u32(b, 1);
    ir_id at[GRAPH_RANK_MAX], inner = zero;
    take_apart(b, &s->pairs, pair, at);
    ir_id from = place_in(b, &s->pairs, s->updates, at, x->offset);
    take_apart(b, &s->slots, slot, at);
    ir_id to = place_in(b, &s->slots, s->out, at, x->base);
    if (s->n_inner > 1) inner = ir_loop(b, zero, ir_u32(b, s->n_inner), one);
    take_apart(b, &s->inner, inner, at);
    ir_if(b, in_run(b, &s->inner, &s->run, at, ir_bool(b, true)));
    from = place_in(b, &s->inner, s->updates, at, from);
    to = place_in(b, &s->inner, s->out, at, to);
    ir_id value = ir_load(b, x->updates, from, 1);
    if (s->node->op != OP_SCATTER) value = ir_add(b, ir_load(b, x->to, to, 1), value);
    ir_store(b, x->to, to, value);
    ir_end(b);
    if (s->n_inner > 1) ir_end(b);
}

/* Of some pairs after another the group's are listed without a branch, which would be mispredicted
 * for every second one; then those are done. */
static void list_pairs(banded *x) {
    enum { LIST = 1 << 10 };
    ir_builder *b = x->k.b;
    const uint32_t n = x->s->order.n, list = n < LIST ? n : LIST;
    const ir_memory pairs = ir_workgroup(b, IR_U32, list), slots = ir_workgroup(b, IR_U32, list),
                    count = ir_register(b, IR_U32, 1);
    const ir_id zero = ir_u32(b, 0), one = ir_u32(b, 1), all = ir_u32(b, n),
                first = ir_loop(b, zero, all, ir_u32(b, list));
    ir_set(b, count, zero);
    const ir_id pair = ir_loop(b, first, ir_min(b, tile_add(b, first, list), all), one),
                slot = slot_of(x->s, &x->k, zero, pair), at = ir_get(b, count);
    ir_store(b, pairs, at, pair);
    ir_store(b, slots, at, slot);
    ir_set(b, count, ir_add(b, at, ir_select(b, in_band(x, slot), one, zero)));
    ir_end(b);
    const ir_id i = ir_loop(b, zero, ir_get(b, count), one);
    put_pair(x, ir_load(b, pairs, i, 1), ir_load(b, slots, i, 1));
    ir_end(b);
    ir_end(b);
}

static void banded_begin(banded *x, scattering *s, const char *name) {
    *x = (banded){.s = s};
    tile_begin(&x->k, s->l, name, 1);
    keys_begin(s, &x->k, false);
    x->updates = tile_read(&x->k, "updates", s->node->in[2]);
    x->offset = tile_u32(&x->k, "offset", s->updates->offset);
}

static beryl_status scatter_bands(scattering *s) {
    const uint32_t units = s->l->caps->compute_units ? s->l->caps->compute_units : 1,
                   band = (s->n_slot + units - 1) / units, n = (s->n_slot + band - 1) / band;
    banded of, *x = &of;
    banded_begin(x, s, "scatter_bands");
    tile_kernel *k = &x->k;
    ir_builder *b = k->b;
    x->to = tile_write(k, "out", s->node->out[0]);
    x->base = ir_u32(b, 0);
    const ir_id group = tile_group(b);
    x->from = tile_mul(b, group, band);
    x->size = ir_min(b, ir_sub(b, ir_u32(b, s->n_slot), x->from), ir_u32(b, band));
    ir_if(b, ir_lt(b, group, ir_u32(b, n)));
    if (n > 1) {
        list_pairs(x);
    } else {
        const ir_id zero = ir_u32(b, 0),
                    pair = ir_loop(b, zero, ir_u32(b, s->order.n), ir_u32(b, 1)),
                    slot = slot_of(s, k, zero, pair);
        ir_if(b, in_band(x, slot));
        put_pair(x, pair, slot);
        ir_end(b), ir_end(b);
    }
    ir_end(b);
    return tile_end(k, (lower_count){n, 0}, 1);
}

/* Pairs for several sums of each element: units take a share of them each, in copies of their
 * own. */
static bool takes_copies(const scattering *s) {
    enum { SUMS_MIN = 4, ELEMENTS_MAX = 1 << 22 };
    const uint64_t n = graph_element_bound(s->out);
    return s->node->op != OP_SCATTER && s->l->caps->compute_units > 1 &&
           graph_is_contiguous(s->out) && n * s->l->caps->compute_units <= ELEMENTS_MAX &&
           n * SUMS_MIN <= (uint64_t)s->order.n * s->n_inner;
}

static ir_memory copies(const scattering *s, tile_kernel *k, ir_access access) {
    return tile_scratch(k, "copies", PART_VALUES,
                        graph_element_bound(s->out) * s->l->caps->compute_units *
                            ir_type_bytes(s->type),
                        s->type, access);
}

/* A unit's pairs into its copy. */
static beryl_status scatter_copies(scattering *s) {
    const uint32_t units = s->l->caps->compute_units, n = s->order.n,
                   each = (n + units - 1) / units, size = (uint32_t)graph_element_bound(s->out);
    banded of, *x = &of;
    banded_begin(x, s, "scatter_copies");
    tile_kernel *k = &x->k;
    ir_builder *b = k->b;
    x->to = copies(s, k, IR_READ_WRITE);
    const ir_id group = tile_group(b), one = ir_u32(b, 1), first = tile_mul(b, group, each);
    x->base = tile_mul(b, group, size);
    x->from = ir_u32(b, 0);
    x->size = ir_u32(b, s->n_slot);
    ir_if(b, ir_lt(b, group, ir_u32(b, units)));
    const ir_id i = ir_loop(b, x->base, tile_add(b, x->base, size), one);
    ir_store(b, x->to, i, ir_number(b, s->type, 1, 0));
    ir_end(b);
    const ir_id pair = ir_loop(b, first, ir_min(b, tile_add(b, first, each), ir_u32(b, n)), one),
                slot = slot_of(s, k, one, pair);
    ir_if(b, in_band(x, slot));
    put_pair(x, pair, slot);
    ir_end(b), ir_end(b), ir_end(b);
    return tile_end(k, (lower_count){units, 0}, 1);
}

/* What all copies have, to what is there. */
static beryl_status scatter_sums(scattering *s) {
    enum { STEP = 1 << 12 };
    const uint32_t units = s->l->caps->compute_units, size = (uint32_t)graph_element_bound(s->out),
                   n = (size + STEP - 1) / STEP;
    tile_kernel k;
    ir_builder *b = tile_begin(&k, s->l, "scatter_sums", 1);
    ir_memory from = copies(s, &k, IR_READ), out = tile_write(&k, "out", s->node->out[0]);
    const ir_id group = tile_group(b), first = tile_mul(b, group, STEP);
    ir_if(b, ir_lt(b, group, ir_u32(b, n)));
    const ir_id i =
        ir_loop(b, first, ir_min(b, tile_add(b, first, STEP), ir_u32(b, size)), ir_u32(b, 1));
    ir_id sum = ir_load(b, out, i, 1);
    for (uint32_t unit = 0; unit < units; unit++)
        sum = ir_add(b, sum, ir_load(b, from, tile_add(b, i, unit * size), 1));
    ir_store(b, out, i, sum);
    ir_end(b), ir_end(b);
    return tile_end(&k, (lower_count){n, 0}, 1);
}

beryl_status tile_scatter(lowering *l, const graph_node *node) {
    scattering s = {.l = l, .node = node, .axis = node->attr.scatter.axis};
    const graph_tensor **const t[] = {&s.x, &s.ids, &s.updates};
    for (uint32_t i = 0; i < 3; i++) *t[i] = graph_tensor_at(l->g, node->in[i]);
    s.out = graph_tensor_at(l->g, node->out[0]);
    s.type = tile_element(s.x->type);
    s.sum = tile_sum_type(s.type);
    for (uint32_t i = 0; i < s.ids->rank; i++) {
        const uint32_t n = s.ids->dim[i].size;
        const bool sorted = i == s.axis || (s.ids->stride[i] && n > 1);
        number_axis(sorted ? &s.pairs : &s.inner, i, n);
        if (sorted) number_axis(&s.slots, i, i == s.axis ? s.x->dim[i].size : n);
    }
    if (!s.inner.n) s.inner.count = 1;
    if (s.pairs.count >= 1u << 31 || s.slots.count >= UINT32_MAX ||
        (s.pairs.count + 64) * s.inner.count > UINT32_MAX)
        return lower_refuse(l, node, "more than 2^32 updates or places");
    s.n_slot = (uint32_t)s.slots.count;
    s.n_inner = (uint32_t)s.inner.count;
    const uint32_t n_pair = (uint32_t)s.pairs.count;
    s.order = (tile_ordered){.n = n_pair,
                             .length = {n_pair, 0},
                             .rows = {1, 0},
                             .row_bound = 1,
                             .ends = {&s, keys_begin, slot_of, NULL}};
    while (s.n_slot >> s.order.bits) s.order.bits++;
    if (!tile_order_plan(l, &s.order)) return lower_refuse(l, node, "2^32 updates or more");
    beryl_status status = tile_copy_input(l, node, "scatter_base");
    if (BUILD_HAS_C_TEXTS && n_pair && s.n_slot && takes_bands(&s)) {
        const bool copied = takes_copies(&s);
        if (status == BERYL_OK) status = (copied ? scatter_copies : scatter_bands)(&s);
        return copied && status == BERYL_OK ? scatter_sums(&s) : status;
    }
    if (status == BERYL_OK) status = tile_order_sort(l, &s.order);
    if (node->op == OP_SCATTER) return status == BERYL_OK ? scatter_last(&s) : status;
    uint32_t n = n_pair;
    for (uint32_t level = 0; status == BERYL_OK && n; level++) {
        status = scatter_level(&s, level, n);
        n = n > STRETCH ? 2 * ((n + STRETCH - 1) / STRETCH) : 0;
    }
    return status;
}

/* ---- nonzero --------------------------------------------------------------------------------- */

enum { MANY_PLACES = 1 << 20 };

typedef struct stretches { /* of all n places, one a lane */
    uint32_t n, each, n_chunk;
} stretches;

/* put: places into the list; else they are counted. */
static beryl_status search(lowering *l, const graph_node *node, const numbering *of,
                           const stretches *o, bool put) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]);
    const ir_type type = tile_element(x->type);
    tile_kernel k;
    ir_builder *b = tile_begin(&k, l, put ? "nonzero" : "nonzero_count", ORDER_LANES);
    ir_memory from = tile_read(&k, "x", node->in[0]), out = {0},
              counts = tile_order_counts(&k, o->n_chunk, put ? IR_READ : IR_READ_WRITE),
              found = ir_register(b, IR_U32, 1);
    if (put) out = tile_write(&k, "out", node->out[0]);
    const run_sizes run = sizes_in(&k, x);
    const ir_id offset = tile_u32(&k, "offset", x->offset), zero = ir_u32(b, 0), one = ir_u32(b, 1),
                lane = tile_lane(&k);
    ir_id at[GRAPH_RANK_MAX];
    ir_if(b, ir_lt(b, lane, ir_u32(b, o->n_chunk)));
    ir_set(b, found, put ? ir_load(b, counts, lane, 1) : zero);
    const ir_id first = tile_mul(b, lane, o->each),
                i = ir_add(b, first, ir_loop(b, zero, ir_u32(b, o->each), one));
    take_apart(b, of, i, at);
    ir_if(b, in_run(b, of, &run, at, ir_lt(b, i, ir_u32(b, o->n))));
    ir_id value = ir_load(b, from, place_in(b, of, x, at, offset), 1);
    if (ir_type_in(type, IR_FLOATS) && type != IR_F64) value = ir_cast(b, IR_F32, value);
    const ir_type as = type == IR_F64 || !ir_type_in(type, IR_FLOATS) ? type : IR_F32;
    ir_if(b, ir_ne(b, value, ir_number(b, as, 1, 0)));
    const ir_id n = ir_get(b, found);
    for (uint32_t axis = 0; put && axis < x->rank; axis++)
        ir_store(b, out, tile_add(b, tile_mul(b, n, x->rank), axis), ir_cast(b, IR_I32, at[axis]));
    ir_set(b, found, ir_add(b, n, one));
    ir_end(b);
    ir_end(b);
    ir_end(b);
    if (!put) ir_store(b, counts, lane, ir_get(b, found));
    ir_end(b);
    return tile_end(&k, (lower_count){o->n_chunk, 0}, ORDER_LANES);
}

beryl_status tile_nonzero(lowering *l, const graph_node *node) {
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]);
    numbering of = {0};
    for (uint32_t i = 0; i < x->rank; i++) number_axis(&of, i, x->dim[i].size);
    if (of.count * x->rank >= UINT32_MAX - 64) return lower_refuse(l, node, "2^32 places or more");
    stretches o = {.n = (uint32_t)of.count, .each = of.count < MANY_PLACES ? 16 : 64};
    o.n_chunk = (o.n + o.each - 1) / o.each;
    const uint32_t words = (uint32_t)of.count * x->rank;
    tile_kernel k;
    tile_begin(&k, l, "nonzero_none", ORDER_LANES);
    ir_memory out = tile_write(&k, "out", node->out[0]);
    const ir_id lane = tile_lane(&k);
    ir_if(k.b, ir_lt(k.b, lane, tile_u32(&k, "n", words)));
    ir_store(k.b, out, lane, ir_i32(k.b, -1));
    ir_end(k.b);
    beryl_status status = tile_end(&k, (lower_count){words, 0}, ORDER_LANES);
    if (status == BERYL_OK) status = search(l, node, &of, &o, false);
    if (status == BERYL_OK) status = tile_order_sums(l, o.n_chunk);
    return status == BERYL_OK ? search(l, node, &of, &o, true) : status;
}
