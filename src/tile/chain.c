/* chain.c - kernels of pointwise operations, of rows (norms, softmax) and of
 * weighted sums, alone or joined to trees.
 *
 * The one idea: see tile/tree.h. Without stats the walk is over all elements, however many
 * dimensions they have (tile/walk.h); rows are in tile/rows.c. */
#include "base/build.h"
#include "base/error.h"
#include "tile/fused.h"
#include "tile/pointwise.h"
#include "tile/product.h"
#include "tile/reduce.h"
#include "tile/rows.h"

#include <string.h>

enum {
    LANES = 256, /* of pointwise operations */
    SOFTWARE_LANES = 64,
    TURNED = 16,           /* of an axis, whose neighbours are worth a tile, */
    TURNED_MANY = 1 << 16, /* of so many elements */
    SINGLES = 4,           /* elements that a lane does where vectors are none */
    SEVERAL_MAX = 16,      /* vectors that a lane does at most */
    MANY = 1 << 20,        /* elements of a tensor, for which that pays */
    VECTOR_BYTES = 16,
    SERIAL_VECTORS = 256 /* that a workgroup does where it is one lane */
};

/* A row that is no whole number of vectors: what is left of it goes to one more lane. */
static void rest_of_row(tree_walk *c, ir_id at, ir_id n) {
    ir_builder *b = c->k->b;
    ir_id i = ir_loop(b, at, n, ir_u32(b, 1));
    tree_spot s;
    tree_spot_begin(&s, 1);
    for (uint32_t t = 0; t < c->t.n_tensor; t++)
        s.at[t] = c->step[t] ? ir_add(b, c->offset[t], i) : c->offset[t];
    tree_store(c, &s, 0);
    ir_end(b);
}

/* inside: the vector is known to be one. */
static void one_vector(tree_walk *c, ir_id index, ir_id total, ir_id n, bool inside, bool ragged,
                       uint32_t wide) {
    ir_builder *b = c->k->b;
    tree_spot s;
    tree_spot_begin(&s, wide);
    if (!inside) ir_if(b, ir_lt(b, index, total));
    tree_place(c, index, wide, false, s.at);
    tree_store(c, &s, 0);
    if (ragged) {
        ir_else(b);
        ir_if(b, ir_eq(b, index, total));
        rest_of_row(c, tile_mul(b, index, wide), n);
        ir_end(b);
    }
    if (!inside) ir_end(b);
}

/* What is read from memory, at once. */
static void read_inputs(tree_walk *c, tree_spot *s, ir_id index, uint32_t wide) {
    tree_place(c, index, wide, false, s->at);
    for (uint32_t v = 0; v < c->t.n_value; v++)
        if (c->t.values[v].kind == TREE_INPUT && !c->t.values[v].inside) tree_value_at(c, s, v);
}

/* Vectors that are `apart` from one another, all of them read before one is written. */
static void several(tree_walk *c, ir_id first, ir_id total, uint32_t n, uint32_t apart,
                    uint32_t wide) {
    ir_builder *b = c->k->b;
    tree_spot s[SEVERAL_MAX];
    ir_id index[SEVERAL_MAX];
    const ir_id last = ir_sub(b, total, ir_u32(b, 1));
    for (uint32_t i = 0; i < n; i++) {
        tree_spot_begin(&s[i], wide);
        index[i] = tile_add(b, first, i * apart);
        read_inputs(c, &s[i], ir_min(b, index[i], last), wide);
    }
    for (uint32_t i = 0; i < n; i++) {
        ir_if(b, ir_lt(b, index[i], total));
        tree_store(c, &s[i], 0);
        ir_end(b);
    }
}

/* Neighbours of an input lie along the axis before the last one. */
static bool is_turned(const tree_walk *c) {
    const uint32_t last = c->w.n - 1;
    bool turned = false, fits = c->w.n >= 2;
    for (uint32_t i = 0; i < 2 && fits; i++)
        fits = !c->w.size[last - i].extent && c->w.size[last - i].factor >= TURNED;
    for (uint32_t i = 0; i < c->t.n_tensor && fits; i++)
        turned |= i >= c->t.n_out && c->w.stride[i][last - 1] == 1 && c->w.stride[i][last] > 1;
    return turned;
}

enum {
    SIDE = 4,      /* of the square that a lane does */
    SIDE_HOST = 8, /* of those, two beside each other, that a processor does */
    WIDE_HOST = 2 * SIDE_HOST,
    LINE = 64 /* bytes, of a cache */
};

/* Whether squares are read and written as vectors. Those inputs that are `across` are read along
 * the axis before the last one, and turned in registers. */
static bool turns_vectors(tree_walk *c, uint32_t side, uint32_t wide,
                          bool across[LOWER_WALK_TENSORS]) {
    const uint32_t last = c->w.n - 1;
    bool fits = c->w.size[last - 1].factor % side == 0;
    for (uint32_t i = 0; i < c->t.n_tensor; i++) {
        const uint32_t *stride = c->w.stride[i];
        across[i] = i >= c->t.n_out && c->t.tensors[i] && !c->t.is_moved[i] &&
                    stride[last - 1] == 1 && stride[last] > 1;
        fits = fits && base_type_block_bytes(c->t.seen[i].type) <= 4;
        if (!across[i]) continue;
        c->step[i] = 0;
        fits = fits && c->t.seen[i].offset % side == 0;
        for (uint32_t k = 0; k < c->w.n; k++)
            fits = fits && (k + 1 == last || stride[k] % side == 0);
    }
    fits = fits && tree_widest(c, wide, c->w.size[last].factor, true, last) == wide;
    for (uint32_t i = 0; i < c->t.n_tensor && !fits; i++) {
        if (across[i]) c->step[i] = c->w.stride[i][last];
        across[i] = false;
    }
    return fits;
}

/* What is read across, of a square's spots from the first one's place on. */
static void read_across(tree_walk *c, tree_spot s[SIDE], ir_id first, const bool *across) {
    ir_builder *b = c->k->b;
    tree_place(c, first, SIDE, false, s[0].at);
    for (uint32_t v = 0; v < c->t.n_value; v++) {
        const tree_value *x = &c->t.values[v];
        const uint32_t t = x->in[0];
        ir_id line[SIDE], turned[SIDE];
        if (x->kind != TREE_INPUT || x->inside || !across[t]) continue;
        for (uint32_t i = 0; i < SIDE; i++)
            line[i] = ir_load(b, c->memory[t],
                              tile_add(b, s[0].at[t], i * c->w.stride[t][c->w.n - 1]), SIDE);
        for (uint32_t k = 0; k < SIDE; k++) {
            for (uint32_t i = 0; i < SIDE; i++) turned[i] = ir_extract(b, line[i], k);
            s[k].made[v] = tile_number(b, c->t.seen[t].type, ir_compose(b, turned, SIDE));
        }
    }
}

/* A workgroup does a tile of the last two axes, of which each of eight times 32 lanes has a part:
 * what they write fills pieces of 32 bytes, and what they read is soon read whole. A lane does a
 * square: as vectors, or element by element, with columns apart from one another. */
static beryl_status turned(tree_walk *c, const char *name) {
    enum { PIECE = 32, WARP = 32 };
    tile_kernel *k = c->k;
    lowering *l = k->l;
    bool across[LOWER_WALK_TENSORS];
    const bool vectors = turns_vectors(c, SIDE, SIDE, across);
    const uint32_t last = c->w.n - 1, bytes = base_type_block_bytes(c->t.seen[0].type),
                   wide = vectors ? SIDE : 1, n_spot = SIDE * SIDE / wide,
                   beside = bytes * wide < 2       ? 16
                            : bytes * wide < PIECE ? PIECE / (bytes * wide)
                                                   : 1,
                   below = WARP / beside;
    const uint32_t abreast = vectors ? 16 / beside : 2, /* parts */
        rows = LANES / WARP / abreast * SIDE * below,
                   columns = abreast * SIDE / wide * beside; /* vectors */
    c->w.size[last].factor /= wide;
    const uint32_t n_column = (uint32_t)c->w.size[last].factor,
                   n_row = (uint32_t)c->w.size[last - 1].factor,
                   tiles = (n_column + columns - 1) / columns, tiers = (n_row + rows - 1) / rows;
    lower_walk outer = c->w;
    outer.n -= 2;
    ir_builder *b = tile_begin(k, l, name, LANES);
    tree_declare(c);
    ir_id total = ir_u32(b, 1), group = tile_group(b), local = ir_local(b, 0);
    for (uint32_t i = 0; i < outer.n; i++) total = ir_mul(b, total, c->size[i]);
    const ir_id lane = tile_rem(b, local, WARP), part = tile_div(b, local, WARP),
                tier = tile_div(b, group, tiles), product = tile_div(b, tier, tiers);
    const ir_id column =
                    ir_add(b, tile_mul(b, tile_rem(b, group, tiles), columns),
                           ir_add(b, tile_mul(b, tile_rem(b, part, abreast), SIDE / wide * beside),
                                  tile_rem(b, lane, beside))),
                row = ir_add(b, tile_mul(b, tile_rem(b, tier, tiers), rows),
                             tile_mul(b,
                                      ir_add(b, tile_mul(b, tile_div(b, part, abreast), below),
                                             tile_div(b, lane, beside)),
                                      SIDE));
    const ir_id one = ir_u32(b, 1),
                start = tile_mul(b, ir_min(b, product, ir_sub(b, total, one)), n_row);
    tree_spot s[SIDE * SIDE];
    ir_id inside[SIDE * SIDE], index[SIDE * SIDE];
    for (uint32_t i = 0; i < n_spot; i++) {
        const ir_id x = tile_add(b, column, i / SIDE * beside), y = tile_add(b, row, i % SIDE);
        tree_spot_begin(&s[i], wide);
        inside[i] =
            ir_and(b, ir_lt(b, product, total),
                   ir_and(b, ir_lt(b, x, ir_u32(b, n_column)), ir_lt(b, y, ir_u32(b, n_row))));
        const ir_id limit = ir_u32(b, n_row - (vectors ? SIDE - i : 1)),
                    at = ir_add(b, start, ir_min(b, y, limit));
        index[i] = ir_add(b, tile_mul(b, at, n_column), ir_min(b, x, ir_u32(b, n_column - 1)));
    }
    if (vectors) read_across(c, s, index[0], across);
    for (uint32_t i = 0; i < n_spot; i++) read_inputs(c, &s[i], index[i], wide);
    for (uint32_t i = 0; i < n_spot; i++) {
        ir_if(b, inside[i]);
        tree_store(c, &s[i], 0);
        ir_end(b);
    }
    const lower_count count = outer.n ? lower_walk_count(l, &outer) : (lower_count){1, 0};
    return tile_end(k, lower_count_times(count, (uint64_t)tiles * tiers), 1);
}

/* Columns [from, to) of a row, whose first ones are at `begin`. */
static void columns(tree_walk *c, const ir_id *begin, ir_id from, ir_id to) {
    ir_builder *b = c->k->b;
    const uint32_t last = c->w.n - 1;
    ir_id first[LOWER_WALK_TENSORS];
    for (uint32_t t = 0; t < c->t.n_tensor; t++)
        first[t] = ir_add(b, begin[t], tile_mul(b, from, c->w.stride[t][last]));
    const ir_id i = ir_loop(b, ir_u32(b, 0), ir_sub(b, to, from), ir_u32(b, 1));
    tree_spot s;
    tree_spot_begin(&s, 1);
    for (uint32_t t = 0; t < c->t.n_tensor; t++)
        s.at[t] = c->w.stride[t][last] ? ir_add(b, first[t], tile_mul(b, i, c->w.stride[t][last]))
                                       : begin[t];
    tree_store(c, &s, 0);
    ir_end(b);
}

/* The same on processors: a workgroup does a square whose sides are lines of a cache, so that each
 * line that is read or written is used whole while it is there. */
static beryl_status turned_squares(tree_walk *c, const char *name) {
    tile_kernel *k = c->k;
    lowering *l = k->l;
    const uint32_t last = c->w.n - 1, side = LINE / base_type_block_bytes(c->t.seen[0].type),
                   n_column = (uint32_t)c->w.size[last].factor,
                   n_row = (uint32_t)c->w.size[last - 1].factor,
                   tiles = (n_column + side - 1) / side, tiers = (n_row + side - 1) / side;
    lower_walk outer = c->w;
    outer.n -= 2;
    ir_builder *b = tile_begin(k, l, name, 1);
    tree_declare(c);
    ir_id total = ir_u32(b, 1);
    for (uint32_t i = 0; i < outer.n; i++) total = ir_mul(b, total, c->size[i]);
    const ir_id group = tile_group(b), tier = tile_div(b, group, tiles),
                product = tile_div(b, tier, tiers),
                first_row = tile_mul(b, tile_rem(b, tier, tiers), side),
                first = tile_mul(b, tile_rem(b, group, tiles), side), one = ir_u32(b, 1),
                end_row = ir_min(b, tile_add(b, first_row, side), ir_u32(b, n_row)),
                end = ir_min(b, tile_add(b, first, side), ir_u32(b, n_column)),
                start = tile_mul(b, product, n_row);
    ir_if(b, ir_lt(b, product, total));
    const ir_id row = ir_loop(b, first_row, end_row, one);
    ir_id begin[LOWER_WALK_TENSORS];
    tree_place(c, tile_mul(b, ir_add(b, start, row), n_column), 1, false, begin);
    columns(c, begin, first, end);
    ir_end(b), ir_end(b);
    const lower_count count = outer.n ? lower_walk_count(l, &outer) : (lower_count){1, 0};
    return tile_end(k, lower_count_times(count, (uint64_t)tiles * tiers), 1);
}

/* What is read across, of a processor's spots: two squares' lines, which become vectors. */
static void turn_squares(tree_walk *c, tree_spot s[SIDE_HOST], ir_id first, const bool *across) {
    ir_builder *b = c->k->b;
    ir_id at[LOWER_WALK_TENSORS];
    tree_place(c, first, WIDE_HOST, false, at);
    for (uint32_t v = 0; v < c->t.n_value; v++) {
        const tree_value *x = &c->t.values[v];
        const uint32_t t = x->in[0];
        ir_id line[WIDE_HOST];
        if (x->kind != TREE_INPUT || x->inside || !across[t]) continue;
        for (uint32_t i = 0; i < WIDE_HOST; i++)
            line[i] = ir_load(b, c->memory[t], tile_add(b, at[t], i * c->w.stride[t][c->w.n - 1]),
                              SIDE_HOST);
        tile_turn(b, line, SIDE_HOST);
        tile_turn(b, line + SIDE_HOST, SIDE_HOST);
        for (uint32_t i = 0; i < SIDE_HOST; i++)
            s[i].made[v] = tile_number(b, c->t.seen[t].type,
                                       ir_compose(b, (ir_id[]){line[i], line[SIDE_HOST + i]}, 2));
    }
}

static uint32_t vectors_of_line(const tree_walk *c) {
    return LINE / base_type_block_bytes(c->t.seen[0].type) / WIDE_HOST;
}

/* Squares in registers. A workgroup does a line of the caches of many rows: it reads long pieces of
 * few lines, and writes whole lines. */
static beryl_status turned_vectors(tree_walk *c, const bool *across, const char *name) {
    enum { ROWS = 256 };
    tile_kernel *k = c->k;
    lowering *l = k->l;
    const uint32_t last = c->w.n - 1, line = vectors_of_line(c);
    c->w.size[last].factor /= WIDE_HOST;
    const uint32_t n_column = (uint32_t)c->w.size[last].factor,
                   n_row = (uint32_t)c->w.size[last - 1].factor, tiles = (n_row + ROWS - 1) / ROWS,
                   tiers = n_column / line;
    lower_walk outer = c->w;
    outer.n -= 2;
    ir_builder *b = tile_begin(k, l, name, 1);
    tree_declare(c);
    for (uint32_t t = 0; t < c->t.n_tensor; t++) c->memory[t].anywhere = true;
    ir_id total = ir_u32(b, 1);
    for (uint32_t i = 0; i < outer.n; i++) total = ir_mul(b, total, c->size[i]);
    const ir_id group = tile_group(b), tier = tile_div(b, group, tiles),
                product = tile_div(b, tier, tiers),
                first_row = tile_mul(b, tile_rem(b, group, tiles), ROWS),
                first = tile_mul(b, tile_rem(b, tier, tiers), line),
                end_row = ir_min(b, tile_add(b, first_row, ROWS), ir_u32(b, n_row)),
                start = tile_mul(b, product, n_row);
    ir_if(b, ir_lt(b, product, total));
    const ir_id row = ir_loop(b, first_row, end_row, ir_u32(b, SIDE_HOST));
    tree_spot s[LINE / WIDE_HOST][SIDE_HOST];
    for (uint32_t v = 0; v < line; v++) {
        ir_id index[SIDE_HOST];
        for (uint32_t i = 0; i < SIDE_HOST; i++) {
            tree_spot_begin(&s[v][i], WIDE_HOST);
            index[i] = ir_add(b, tile_mul(b, ir_add(b, start, tile_add(b, row, i)), n_column),
                              tile_add(b, first, v));
        }
        turn_squares(c, s[v], index[0], across);
        for (uint32_t i = 0; i < SIDE_HOST; i++) read_inputs(c, &s[v][i], index[i], WIDE_HOST);
    }
    for (uint32_t i = 0; i < SIDE_HOST; i++)
        for (uint32_t v = 0; v < line; v++) tree_store(c, &s[v][i], 0);
    ir_end(b), ir_end(b);
    const lower_count count = outer.n ? lower_walk_count(l, &outer) : (lower_count){1, 0};
    return tile_end(k, lower_count_times(count, (uint64_t)tiles * tiers), 1);
}

/* How the elements of a walk are dealt out. */
typedef struct element_form {
    uint32_t wide, lanes, each; /* of a vector; of a workgroup; vectors of a lane */
    bool serial, ragged;        /* ragged: the last vector is not whole */
    bool even;                  /* all lanes of a workgroup have a vector, or none */
    uint32_t per;               /* of the walk's count a workgroup does */
    /* On processors rows in whose columns [from, to) a value is inside, and whether it is in a row
     * is known of all of it: the values, or TREE_VALUES. Then loops have no conditions in them. */
    uint32_t from, to, column, row;
} element_form;

/* Finds them. false: there are none. */
static bool find_rows(const tree_walk *c, element_form *f) {
    const uint32_t last = c->w.n - 1;
    f->column = f->row = TREE_VALUES;
    if (c->w.n < 2 || c->w.size[last].extent || f->wide > 1) return false;
    for (uint32_t v = 0; v < c->t.n_value; v++) {
        const tree_value *x = &c->t.values[v];
        if (x->kind != TREE_WITHIN) continue;
        const uint32_t *stride = c->w.stride[x->guard];
        if (!stride[last]) {
            if (f->row == TREE_VALUES) f->row = v;
            continue;
        }
        const graph_dim size = c->t.counts[x->limit];
        const int64_t begin = (int32_t)c->t.seen[x->guard].offset,
                      n = (int64_t)c->w.size[last].factor, end = size.size - begin;
        if (f->column != TREE_VALUES || stride[last] != 1 || size.extent || c->t.n_move[x->guard])
            return false;
        for (uint32_t i = 0; i < last; i++)
            if (stride[i]) return false;
        f->column = v;
        f->from = begin >= 0 ? 0 : -begin < n ? (uint32_t)-begin : (uint32_t)n;
        f->to = end <= f->from ? f->from : end < n ? (uint32_t)end : (uint32_t)n;
    }
    return f->column != TREE_VALUES;
}

static void settle(tree_walk *c, uint32_t v, bool holds) {
    tree_settled *s = &c->settled;
    s->guard[s->n] = c->t.values[v].guard;
    s->limit[s->n] = c->t.values[v].limit;
    s->holds[s->n++] = holds;
}

static void columns_by_parts(tree_walk *c, const element_form *f, const ir_id *begin) {
    const uint32_t n = (uint32_t)c->w.size[c->w.n - 1].factor, before = c->settled.n,
                   ends[] = {0, f->from, f->to, n};
    for (uint32_t part = 0; part < 3; part++) {
        settle(c, f->column, part == 1);
        if (ends[part] < ends[part + 1])
            columns(c, begin, ir_u32(c->k->b, ends[part]), ir_u32(c->k->b, ends[part + 1]));
        c->settled.n = before;
    }
}

/* The rows from element `first` to `end`. */
static void rows_by_parts(tree_walk *c, const element_form *f, ir_id first, ir_id end) {
    ir_builder *b = c->k->b;
    const ir_id index = ir_loop(b, first, end, ir_u32(b, (uint32_t)c->w.size[c->w.n - 1].factor));
    ir_id at[LOWER_WALK_TENSORS];
    tree_place(c, index, 1, false, at);
    if (f->row == TREE_VALUES) {
        columns_by_parts(c, f, at);
    } else {
        const tree_value *x = &c->t.values[f->row];
        ir_if(b, ir_lt(b, at[x->guard], c->counts[x->limit]));
        for (uint32_t inside = 2; inside-- > 0;) {
            settle(c, f->row, inside);
            columns_by_parts(c, f, at);
            c->settled.n = 0;
            if (inside) ir_else(b);
        }
        ir_end(b);
    }
    ir_end(b);
}

/* Elements of a vector at most: of narrow types as many bytes as of others, where they are many. */
static uint32_t vector_most(const tree_walk *c, bool serial) {
    uint32_t bytes = BUILD_IS_SMALL || graph_element_bound(c->t.shape) < MANY ? 4 : 1;
    if (serial) return TILE_RUN;
    for (uint32_t i = 0; i < c->t.n_tensor; i++)
        if (c->step[i] && base_type_block_bytes(c->t.seen[i].type) > bytes)
            bytes = base_type_block_bytes(c->t.seen[i].type);
    return bytes < 4 ? VECTOR_BYTES / bytes : 4;
}

/* The widest vector that is stored as a whole where all that is made is inside for some elements
 * alone, and is read one by one. 1: there is none. */
static uint32_t widest_in_pieces(const tree_walk *c, uint32_t inner) {
    uint32_t wide = c->w.size[inner].extent ? 1 : TREE_PIECES;
    while (c->w.size[inner].factor % wide) wide /= 2;
    for (uint32_t v = 0; v < c->t.n_value; v++)
        if (c->t.values[v].kind == TREE_INPUT && !c->t.values[v].inside) return 1;
    for (uint32_t i = 0; i < c->t.n_out; i++) {
        const tree_value *x = &c->t.values[c->t.out[i]];
        if (x->kind != TREE_WITHIN || x->type == IR_BOOL || c->step[i] != 1) return 1;
        while (c->t.seen[i].offset % wide) wide /= 2;
        for (uint32_t d = 0; d < inner; d++)
            while (c->w.stride[i][d] % wide) wide /= 2;
    }
    return wide;
}

/* Sets the walk of c, whose tree is read. chooses: numbers are asked for (tile_choose). */
static element_form form_of(lowering *l, tree_walk *c, bool chooses) {
    const graph_tensor *tensors[LOWER_WALK_TENSORS];
    element_form f = {.serial = device_is_compiled(l->caps)};
    for (uint32_t i = 0; i < c->t.n_tensor; i++) tensors[i] = &c->t.seen[i];
    c->w = lower_walk_of(tensors, c->t.n_tensor, 0);
    if (c->w.n == 0) lower_walk_pad(&c->w, 1);
    const uint32_t inner = c->w.n - 1;
    for (uint32_t i = 0; i < c->t.n_tensor; i++) c->step[i] = c->w.stride[i][inner];
    const uint64_t row = c->w.size[inner].factor;
    const uint32_t most = vector_most(c, f.serial);
    f.ragged = c->w.n == 1 && row % most && tree_widest(c, most, row, false, 0) > 1;
    f.wide = tree_widest(c, most, row, !f.ragged, inner);
    const bool alone = f.wide == 1 && !tile_serial(l) && chooses,
               apart = alone && graph_element_bound(c->t.shape) >= MANY;
    if (!BUILD_IS_SMALL && alone && graph_element_bound(c->t.shape) >= TURNED_MANY && !is_turned(c))
        f.wide = widest_in_pieces(c, inner), c->pieces = f.wide > 1;
    if (chooses) f.wide = tile_choose(l, "vector", f.wide, 1, f.wide);
    f.lanes = f.serial ? 1 : tile_serial(l) ? SOFTWARE_LANES : LANES;
    if (chooses && !f.serial)
        f.lanes = tile_choose(l, "lanes", f.lanes, 16, l->caps->workgroup_invocations);
    f.each = f.serial ? SERIAL_VECTORS : apart ? SINGLES / f.wide : 1;
    if (chooses)
        f.each = tile_choose(l, "vectors", f.each, 1,
                             f.serial   ? UINT32_MAX
                             : f.ragged ? 1
                                        : SEVERAL_MAX);
    if (!f.ragged) c->w.size[inner].factor /= f.wide;
    if (tile_is_host(l) && find_rows(c, &f)) {
        const uint32_t n = (uint32_t)c->w.size[inner].factor;
        f.each = n * (f.each > n ? f.each / n : 1);
    } else f.column = TREE_VALUES;
    f.even = !f.ragged && c->w.size[inner].factor % f.lanes == 0;
    f.per = f.lanes * f.each * (f.ragged ? f.wide : 1);
    return f;
}

/* What a workgroup does; the tree is declared. */
static void elements_of(tree_walk *c, const element_form *f, ir_id group) {
    ir_builder *b = c->k->b;
    ir_id n = c->size[0], total = n;
    for (uint32_t i = 1; i < c->w.n; i++) total = ir_mul(b, total, c->size[i]);
    if (f->ragged) total = tile_div(b, n, f->wide);
    ir_id first = tile_mul(b, group, f->lanes * f->each);
    if (f->serial && f->column != TREE_VALUES) {
        rows_by_parts(c, f, first, ir_min(b, tile_add(b, first, f->each), total));
    } else if (f->serial) {
        ir_id end =
            ir_min(b, tile_add(b, first, f->each), f->ragged ? tile_add(b, total, 1) : total);
        ir_id index = ir_loop(b, first, end, ir_u32(b, 1));
        one_vector(c, index, total, n, !f->ragged, f->ragged, f->wide);
        ir_end(b);
    } else if (f->each > 1) {
        several(c, ir_add(b, first, ir_local(b, 0)), total, f->each, f->lanes, f->wide);
    } else {
        if (f->even) ir_if(b, ir_lt(b, first, total));
        one_vector(c, ir_add(b, first, ir_local(b, 0)), total, n, f->even, f->ragged, f->wide);
        if (f->even) ir_end(b);
    }
}

static beryl_status elements(lowering *l, const tree *t, const char *name) {
    tree_walk walk = {.t = *t}, *c = &walk;
    tile_kernel k;
    const element_form f = form_of(l, c, true);
    c->k = &k;
    if (!BUILD_IS_SMALL && f.wide == 1 && !tile_serial(l) && f.lanes == LANES &&
        graph_element_bound(c->t.shape) >= TURNED_MANY && is_turned(c)) {
        k = (tile_kernel){.l = l};
        return turned(c, name);
    }
    if (BUILD_HAS_C_TEXTS && f.wide == 1 && f.column == TREE_VALUES && tile_is_host(l) &&
        graph_element_bound(c->t.shape) >= TURNED_MANY && is_turned(c)) {
        bool across[LOWER_WALK_TENSORS];
        k = (tile_kernel){.l = l};
        const uint64_t columns = c->w.size[c->w.n - 1].factor;
        return columns % (WIDE_HOST * vectors_of_line(c)) == 0 &&
                       turns_vectors(c, SIDE_HOST, WIDE_HOST, across)
                   ? turned_vectors(c, across, name)
                   : turned_squares(c, name);
    }
    tile_begin(&k, l, name, f.lanes);
    tree_declare(c);
    elements_of(c, &f, tile_group(c->k->b));
    return tile_end(c->k, lower_walk_count(l, &c->w), f.per);
}

/* ---- updates --------------------------------------------------------------------------------- */

/* Tells memory of one tensor from that of another. */
static uint32_t memory_of(const graph *g, graph_value v) {
    const graph_tensor *t = graph_tensor_at(g, graph_base_of(g, v));
    return t->role == ROLE_STORED ? UINT32_MAX - t->stored : graph_base_of(g, v);
}

static bool is_stored(const graph *g, graph_value v) {
    return graph_tensor_at(g, graph_base_of(g, v))->role == ROLE_STORED;
}

static bool lie_alike(const graph_tensor *a, const graph_tensor *b) {
    bool alike = a->rank == b->rank && a->offset == b->offset;
    for (uint32_t i = 0; alike && i < a->rank; i++)
        alike = a->dim[i].size == b->dim[i].size && a->stride[i] == b->stride[i];
    return alike;
}

/* Body i, whose results go where they belong. false: no tree of elements in place. */
static bool read_body(tree *t, const lowering *l, const fused_update *u, uint32_t i) {
    const graph *g = l->g;
    const fused_body *body = &u->bodies[i];
    graph_region r = {.n = body->count, .n_out = body->n_out};
    for (uint32_t k = 0; k < r.n; k++) r.node[k] = &g->inner.data[body->first + k];
    memcpy(r.out, body->out, sizeof r.out);
    if (!tree_read(t, g, &r, 0) || tree_has_rows(t) || t->n_product || t->n_sum || t->n_count)
        return false;
    for (uint32_t k = 0; k < t->n_out; k++) {
        if (!body->to[k]) continue;
        t->tensors[k] = body->to[k];
        t->seen[k] = *graph_tensor_at(g, body->to[k]);
    }
    for (uint32_t k = 0; k < t->n_tensor; k++) {
        const graph_tensor *x = &t->seen[k];
        for (uint32_t d = 0; d < x->rank; d++)
            if (x->dim[d].extent) return false;
        if (!t->tensors[k] || !is_stored(g, t->tensors[k])) continue;
        const store_tensor *stored = lower_stored(l, t->tensors[k]);
        if (!tile_update_takes(x->type) || !stored->is_state || stored->n_shard != 1) return false;
        for (uint32_t o = 0; o < t->n_out; o++)
            if (o != k && memory_of(g, t->tensors[o]) == memory_of(g, t->tensors[k]) &&
                (k < t->n_out || !lie_alike(x, &t->seen[o])))
                return false;
    }
    return true;
}

bool tile_update_takes(base_type type) {
    return type == TYPE_F32 || type == TYPE_I16;
}

/* Memory that the bodies use, in the order of its first use. */
typedef struct update_memory {
    graph_value states[TILE_STORED_MAX];
    uint32_t others[DEVICE_BINDING_MAX];
    uint32_t n_state, n_other, n_param;
    bool full;
} update_memory;

static void count_memory(update_memory *m, const graph *g, const tree *t) {
    for (uint32_t i = 0; i < t->n_tensor; i++) {
        if (!t->tensors[i]) continue; /* a place */
        const uint32_t of = memory_of(g, t->tensors[i]);
        uint32_t k = 0, same = 0;
        while (same < i &&
               (memory_of(g, t->tensors[same]) != of || t->seen[same].offset != t->seen[i].offset))
            same++;
        m->n_param += same == i && (is_stored(g, t->tensors[i]) || t->seen[i].offset);
        if (is_stored(g, t->tensors[i])) {
            while (k < m->n_state && memory_of(g, m->states[k]) != of) k++;
            if (k < m->n_state) continue;
            if (k == TILE_STORED_MAX) m->full = true;
            else m->states[m->n_state++] = graph_base_of(g, t->tensors[i]);
        } else {
            while (k < m->n_other && m->others[k] != of) k++;
            if (k < m->n_other) continue;
            if (k == DEVICE_BINDING_MAX) m->full = true;
            else m->others[m->n_other++] = of;
        }
    }
}

/* State i and those after it that share its binding: of its type and buffer, if all of them fit. */
static uint32_t sharers(const lowering *l, const update_memory *m, uint32_t i, uint32_t *of) {
    const store_tensor *first = lower_stored(l, m->states[i]);
    graph_value all[TILE_STORED_MAX];
    uint32_t n = 0;
    for (uint32_t k = i; k < m->n_state; k++) {
        const store_tensor *t = lower_stored(l, m->states[k]);
        if (t->type != first->type || t->shard[0].buffer != first->shard[0].buffer) continue;
        all[n] = m->states[k];
        of[n++] = k;
    }
    return lower_states_fit(l, all, n) ? n : 1;
}

static uint32_t count_bindings(const lowering *l, const update_memory *m) {
    bool bound[TILE_STORED_MAX] = {false};
    uint32_t n = m->n_other, of[TILE_STORED_MAX];
    for (uint32_t i = 0; i < m->n_state; i++) {
        if (bound[i]) continue;
        n++;
        for (uint32_t k = sharers(l, m, i, of); k-- > 0;) bound[of[k]] = true;
    }
    return n;
}

bool tile_update_fits(const graph *g, const graph_store *store, const fused_update *u) {
    lowering l = lower_asked(g, store, NULL);
    update_memory m = {.n_state = 0};
    const bool alike = l.caps->languages & DEVICE_LANGUAGE_BIT(DEVICE_WGSL);
    bool whole = false;
    for (uint32_t i = 0; i < u->n; i++) {
        tree_walk c = {.k = NULL};
        if (!read_body(&c.t, &l, u, i)) return false;
        const element_form f = form_of(&l, &c, false);
        const bool is = f.wide > 1 && !f.ragged;
        if (i && alike && is != whole) return false; /* a buffer is of vectors or of numbers */
        whole = is;
        count_memory(&m, g, &c.t);
    }
    if (m.full || !m.n_state || m.n_param > IR_PARAM_MAX) return false;
    return count_bindings(&l, &m) <= l.caps->storage_max;
}

/* States that share a buffer share a binding. false: no memory. */
static bool bind_states(tile_kernel *k, const update_memory *m, tree_shared *shared) {
    const graph *g = k->l->g;
    bool bound[TILE_STORED_MAX] = {false};
    for (uint32_t i = 0; i < m->n_state; i++) {
        if (bound[i]) continue;
        uint32_t of[TILE_STORED_MAX], word[TILE_STORED_MAX] = {0};
        graph_value all[TILE_STORED_MAX];
        const uint32_t n = sharers(k->l, m, i, of);
        const ir_type type = tile_element(graph_tensor_at(g, m->states[i])->type);
        const char *name =
            n == m->n_state ? "states" : base_arena_print(&k->arena, "s%u", shared->n);
        if (!name) return false;
        for (uint32_t j = 0; j < n; j++) all[j] = m->states[of[j]];
        const ir_memory memory = n == 1 ? tile_write(k, name, all[0])
                                        : tile_stored(k, name, all, n, type, IR_READ_WRITE, word);
        for (uint32_t j = 0; j < n; j++) {
            bound[of[j]] = true;
            shared->bound[shared->n++] =
                (tree_bound){memory_of(g, all[j]), memory, word[j] * 4 / ir_type_bytes(type)};
        }
    }
    return true;
}

beryl_status tile_update(lowering *l, const graph_node *node) {
    const fused_update *u = node->attr.fused.detail;
    tile_kernel k;
    tree_shared shared = {.memory_of = memory_of};
    update_memory m = {.n_state = 0};
    uint64_t n_group = 0;
    tree_walk walk = {.k = &k}, *c = &walk;
    for (uint32_t i = 0; i < u->n; i++) {
        if (!read_body(&c->t, l, u, i)) return lower_refuse(l, node, "no update");
        count_memory(&m, l->g, &c->t);
    }
    *c = (tree_walk){.t = c->t};
    tile_begin(&k, l, "update", form_of(l, c, false).lanes);
    bool good = bind_states(&k, &m, &shared);
    const ir_id group = tile_group(k.b);
    for (uint32_t i = 0; good && i < u->n; i++) {
        *c = (tree_walk){.k = &k, .shared = &shared};
        good = read_body(&c->t, l, u, i) && (shared.prefix = base_arena_print(&k.arena, "u%u", i));
        if (!good) break;
        const element_form f = form_of(l, c, false);
        const uint64_t n = (lower_walk_count(l, &c->w).factor + f.per - 1) / f.per;
        tree_declare(c);
        const ir_id mine = n_group ? ir_sub(k.b, group, ir_u32(k.b, (uint32_t)n_group)) : group;
        if (u->n > 1) ir_if(k.b, ir_lt(k.b, mine, ir_u32(k.b, (uint32_t)n)));
        elements_of(c, &f, mine);
        if (u->n > 1) ir_end(k.b);
        n_group += n;
    }
    const beryl_status status = tile_end(&k, (lower_count){n_group, 0}, 1);
    return good ? status : base_no_memory(l->error);
}

/* ---- the lowerings --------------------------------------------------------------------------- */

beryl_status tile_region(lowering *l, const graph_region *r, const char *name) {
    tree t;
    if (!tree_read(&t, l->g, r, 0))
        return lower_refuse(l, l->node, "more values than there is room for");
    if (t.n_product) return tile_product(l, &t);
    if (tree_reduces(&t)) return tile_tree_reduce(l, &t, name);
    return tree_has_rows(&t) ? tile_tree_rows(l, &t, name) : elements(l, &t, name);
}

beryl_status tile_operation(lowering *l, const graph_node *node) {
    graph_region r = {.node = {node}, .n = 1, .n_out = node->n_out};
    memcpy(r.out, node->out, sizeof r.out);
    return tile_region(l, &r, graph_op_name(node->op));
}

beryl_status tile_chain(lowering *l, const graph_node *node) {
    const graph_region r = graph_region_of(l->g, node);
    return tile_region(l, &r, "chain");
}

bool tile_region_fits(const graph *g, const graph_store *store, const graph_region *r) {
    tree t;
    const lowering l = lower_asked(g, store, NULL);
    if (!tree_read(&t, g, r, 0)) return false;
    if (t.n_product) return tile_product_fits(g, store, &t);
    /* a choice's own results, or a reduction's parts */
    const uint32_t more = t.choice ? t.choice->n_out : 0;
    if (tree_bindings(&l, &t) + more > l.caps->storage_max) return false;
    return !tree_has_rows(&t) || tree_reduces(&t) || tile_tree_rows_fit(l.caps, &t);
}
