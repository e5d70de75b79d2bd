/* reduce.c - see tile/reduce.h.
 *
 * Lanes lie across a row, or where neighbours in memory are of different rows, a vector of rows
 * to a lane and several lanes behind each other along the rows. Where rows are few they are cut
 * into parts, which a second kernel joins. Integers narrower than 32 bits are reduced as 32 bits,
 * of which the store keeps the low ones; truth values as u32. Where an index is asked for, the
 * largest is looked for of numbers of 64 bits: the upper ones rise with the element, the lower ones
 * fall with its index. */
#include "base/build.h"
#include "base/error.h"
#include "tile/pointwise.h"
#include "tile/reduce.h"
#include "tile/whole.h"

#include <math.h>
#include <string.h>

enum {
    LANES = 256,
    ACROSS = 32,       /* lanes of a workgroup that lie beside each other in a walk across rows */
    AHEAD = 4,         /* vectors that a lane reads at once */
    BESIDE = 8,        /* lanes in software, where they make a vector */
    SPAN_MIN = 8,      /* lanes of a subgroup that joins */
    UNITS = 128,       /* of a device that does not say */
    GROUPS_A_UNIT = 4, /* workgroups that keep it busy */
    PART_MIN = 2048,   /* elements of a part of a row, */
    PART_DEEP = 64,    /* of a walk across rows */
    PARTS_MAX = 1024,
    JOINED_MANY = 2048,   /* vectors of rows */
    HIGH = 4,             /* vectors of windows a lane */
    SHORT = 32,           /* elements of rows that a lane sums alone, */
    MANY_SHORT = 1 << 16, /* where there are so many */
    LINE_MIN = 16,        /* results beside each other that a loop is made for */
    COLUMNS = 1024        /* at most, that a processor's lane sums at once: a page of each row */
};
enum { SCRATCH_PARTS = 0, RESULTS = 2 /* at most: of two sums of the same elements */ };

typedef struct form {
    uint32_t wide, lanes; /* lanes: of a row */
    uint32_t high; /* vectors of a lane, one below another: what their windows share is read once */
    uint32_t rows; /* beside each other in a workgroup */
    bool across;   /* a vector has an element of each of `wide` rows */
    uint32_t n_part, part; /* of a row, and its elements */
    uint32_t span;         /* lanes of a subgroup, which join what they have; 0: alone */
    bool line;             /* a group sums a line of windows, one after another */
    bool shared;           /* of those below one another: all at once, they share a factor */
    uint32_t columns;      /* beside each other that a lane sums row by row; 0: a vector of them */
} form;

typedef struct reduce {
    tree_walk walk;
    form f;
    base_op op;
    ir_type type;                       /* of sums */
    uint32_t below[LOWER_WALK_TENSORS]; /* from one of a lane's vectors to the next */
} reduce;

/* ---- numbers --------------------------------------------------------------------------------- */

static ir_type sum_type(base_type type) {
    const ir_type own = tile_number_type(type);
    return own == IR_I8 || own == IR_I16                     ? IR_I32
           : own == IR_U8 || own == IR_U16 || own == IR_BOOL ? IR_U32
                                                             : own;
}

/* Of the input's type; saturates where the sum has that type itself. */
static double least_of(const reduce *r, bool largest) {
    const base_type type = graph_tensor_at(r->walk.t.g, r->walk.t.choice->in[0])->type;
    const double half = type == TYPE_I8 || type == TYPE_U8 ? 128 : 32768;
    if (type == TYPE_I8 || type == TYPE_I16) return largest ? half - 1 : -half;
    if (type == TYPE_U8 || type == TYPE_U16) return largest ? 2 * half - 1 : 0;
    return largest ? (double)INFINITY : -(double)INFINITY;
}

static ir_id neutral(const reduce *r, uint32_t width) {
    const double x = r->op == OP_PROD || r->op == OP_ALL    ? 1
                     : r->op == OP_AMAX || r->op == OP_AMIN ? least_of(r, r->op == OP_AMIN)
                                                            : 0;
    return ir_number(r->walk.k->b, r->type, width, x);
}

static ir_id join(const reduce *r, ir_id x, ir_id y) {
    static const base_op ops[OP_COUNT] = {
        [OP_SUM] = OP_ADD,  [OP_MEAN] = OP_ADD,   [OP_PROD] = OP_MUL,    [OP_AMAX] = OP_MAX,
        [OP_AMIN] = OP_MIN, [OP_ANY] = OP_BIT_OR, [OP_ALL] = OP_BIT_AND, [OP_ARG_LARGEST] = OP_MAX,
    };
    return tile_pointwise(r->walk.k, ops[r->op], NULL, (ir_id[]){x, y});
}

/* The elements of a vector. */
static ir_id join_vector(const reduce *r, ir_id x, uint32_t width) {
    while (width > 1) {
        uint64_t low = 0, high = 0;
        width /= 2;
        for (uint32_t i = 0; i < width; i++) {
            low |= (uint64_t)i << (4 * i);
            high |= (uint64_t)(i + width) << (4 * i);
        }
        const ir_id first = ir_swizzle(r->walk.k->b, x, width, low);
        x = join(r, first, ir_swizzle(r->walk.k->b, x, width, high));
    }
    return x;
}

/* x of all lanes of row `place` of the workgroup, in all of them: by shuffles, then of what
 * subgroups have. */
static ir_id join_subgroups(const reduce *r, ir_id x, ir_id local, ir_id place) {
    ir_builder *b = r->walk.k->b;
    const form *f = &r->f;
    const uint32_t n = f->lanes / f->span;
    for (uint32_t step = 1; step < f->span && step < f->lanes; step *= 2)
        x = join(r, x, ir_subgroup_shuffle_xor(b, x, step));
    if (n < 2) return x;
    const ir_memory at = ir_workgroup(b, r->type, n * f->rows);
    const ir_id first = tile_mul(b, place, n);
    ir_if(b, ir_eq(b, ir_subgroup_lane(b), ir_u32(b, 0)));
    ir_store(b, at, tile_div(b, local, f->span), x);
    ir_end(b);
    ir_barrier(b);
    x = ir_load(b, at, first, 1);
    for (uint32_t i = 1; i < n; i++) x = join(r, x, ir_load(b, at, tile_add(b, first, i), 1));
    return x;
}

/* x [width] of all lanes with the same place beside each other: lane = deep * beside + place. In
 * those of deep 0; the whole workgroup comes here. */
static ir_id join_lanes(const reduce *r, ir_id x, uint32_t width, ir_id lane, uint32_t lanes,
                        uint32_t beside) {
    ir_builder *b = r->walk.k->b;
    if (lanes == beside) return x;
    const ir_memory at = ir_workgroup(b, r->type, lanes * width);
    const ir_id own = tile_mul(b, lane, width);
    ir_store(b, at, own, x);
    for (uint32_t half = lanes / 2; half >= beside; half /= 2) {
        ir_barrier(b);
        ir_if(b, ir_lt(b, lane, ir_u32(b, half)));
        const ir_id mine = ir_load(b, at, own, width);
        ir_store(b, at, own, join(r, mine, ir_load(b, at, tile_add(b, own, half * width), width)));
        ir_end(b);
    }
    return ir_load(b, at, own, width);
}

/* What the sum becomes in the result. */
static ir_id finished(const reduce *r, ir_id x, ir_id count, uint32_t width) {
    ir_builder *b = r->walk.k->b;
    const base_type type = r->walk.t.seen[0].type;
    if (r->op == OP_ARG_LARGEST)
        return ir_bitcast(b, IR_I32, width, ir_not(b, ir_cast(b, IR_U32, x)));
    if (r->op == OP_MEAN) {
        const uint32_t less = r->walk.t.choice->attr.mean.correction;
        ir_id n = ir_cast(b, r->type, count);
        if (less)
            n = ir_max(b, ir_sub(b, n, ir_number(b, r->type, 1, less)),
                       ir_number(b, r->type, 1, 0));
        x = ir_div(b, x, ir_splat(b, n, width));
    }
    return ir_cast(b, tile_element(type), x);
}

/* ---- the form -------------------------------------------------------------------------------- */

/* Neighbours of the inputs lie across rows, and of short ones also across. What varies along rows
 * and across them is most of what is read. */
static bool is_across(const tree_walk *c, bool is_short) {
    const uint32_t inner = c->w.n - 1;
    uint32_t across = 0, along = 0;
    for (uint32_t i = c->t.n_out; i < c->t.n_tensor; i++) {
        const uint32_t each = c->w.stride[i][inner] && c->step[i] ? LOWER_WALK_TENSORS : 1;
        across += each * (c->w.stride[i][inner] == 1);
        along += each * (c->step[i] == 1);
    }
    return across > (is_short ? 0 : along);
}

static uint32_t groups_wanted(const device_caps *caps, bool serial) {
    const uint32_t units = caps->compute_units ? caps->compute_units : serial ? 1 : UNITS;
    return serial ? 2 * units : GROUPS_A_UNIT * units;
}

/* Parts of rows of length d, where there are `groups` workgroups without them. */
static void cut(form *f, const lowering *l, uint32_t d, uint64_t groups, uint32_t least) {
    const bool serial = tile_serial(l);
    const uint32_t wanted = groups_wanted(l->caps, serial);
    uint32_t n = groups ? (uint32_t)((wanted + (serial ? groups - 1 : groups / 2)) / groups) : 1;
    if (l->caps->loop_max && n < d / (l->caps->loop_max / 2)) n = d / (l->caps->loop_max / 2) + 1;
    if (n > d / least) n = d / least;
    if (n > PARTS_MAX) n = PARTS_MAX;
    f->n_part = n < 2 ? 1 : n;
    const uint32_t turn = f->lanes * (f->across ? 1 : f->wide), all = turn * AHEAD,
                   step = d / f->n_part >= 2 * all ? all
                          : f->across              ? 1
                                                   : turn;
    f->part = ((d + f->n_part - 1) / f->n_part + step - 1) / step * step;
    if (f->n_part == 1) f->part = d;
    f->n_part = (d + f->part - 1) / f->part;
}

/* Results beside each other are of elements beside each other, or of the same one. */
static bool is_beside(const tree_walk *c) {
    const uint32_t last = c->w.n - 1;
    bool fits = true;
    for (uint32_t i = 0; i < c->t.n_value; i++)
        fits = fits && (c->t.values[i].kind == TREE_INPUT || c->t.values[i].kind == TREE_NODE);
    for (uint32_t i = 0; i < c->t.n_tensor && fits; i++)
        fits = !c->t.ahead[i] && !c->t.n_move[i] && c->w.stride[i][last] <= 1 &&
               (i >= c->t.n_out || c->w.stride[i][last]);
    return fits;
}

/* Windows: what neighbours read overlaps, and begins anywhere. A lane has `wide` of them. */
static bool overlaps(const tree_walk *c, uint32_t wide) {
    const uint32_t last = c->w.n - 1;
    bool fits = is_beside(c) && c->w.size[last].factor % wide == 0;
    for (uint32_t i = 0; i < c->t.n_out && fits; i++) {
        fits = c->t.seen[i].offset % wide == 0;
        for (uint32_t k = 0; k < last; k++) fits = fits && c->w.stride[i][k] % wide == 0;
    }
    return fits;
}

/* How many of them, which are known to be short, below one another. */
static uint32_t high_of(const tree_walk *c) {
    const uint32_t last = c->w.n - 1;
    uint32_t high = last && !c->w.size[last - 1].extent ? HIGH : 1;
    while (last && c->w.size[last - 1].factor % high) high /= 2;
    return high;
}

/* Elements of a vector that a GPU's lane reads along a row: 16 bytes. */
static uint32_t most_along(const tree_walk *c, ir_type type) {
    bool halves = !BUILD_IS_SMALL && type == IR_F32;
    for (uint32_t i = 0; i < c->t.n_tensor; i++)
        halves = halves && (!c->step[i] || base_type_block_bytes(c->t.seen[i].type) == 2);
    return halves ? 8 : 4;
}

/* How many columns a processor's lane sums, of `n` beside each other. */
static uint32_t columns_of(uint64_t n, uint32_t wide) {
    uint32_t columns = COLUMNS / wide * wide;
    while (n % columns) columns -= wide;
    return columns > wide ? columns : 0;
}

/* Do rows one below another, as many as a lane takes, have a factor in common? */
static bool shares(const tree_walk *c) {
    const uint32_t last = c->w.n - 1;
    if (!c->w.n || c->w.size[last].extent || c->w.size[last].factor % HIGH) return false;
    for (uint32_t i = c->t.n_out; i < c->t.n_tensor; i++)
        if (c->step[i] && !c->w.stride[i][last]) return true;
    return false;
}

/* type: of sums */
static form form_of(const lowering *l, tree_walk *c, ir_type type) {
    const device_caps *caps = l->caps;
    const uint32_t d = tree_row_length(&c->t);
    const uint64_t n = graph_element_bound(c->t.shape) / d;
    const bool many = !BUILD_IS_SMALL && d <= SHORT && n >= MANY_SHORT,
               /* lanes of windows become vectors there */
        beside = tile_is_host(l) && many && c->along.n > 1, serial = tile_serial(l) && !beside,
               host = device_is_compiled(caps), is_short = many && !serial;
    const uint32_t last = c->w.n - 1, most = host ? TILE_RUN : 4,
                   invocations = caps->workgroup_invocations,
                   few = device_makes_vectors(caps) && d <= SHORT ? BESIDE : 1, /* a row each */
        workgroup = serial ? few : whole_power_to(invocations < LANES ? invocations : LANES);
    form f = {.rows = 1, .high = 1, .wide = 1, .lanes = 1, .n_part = 1, .part = d};
    f.line = beside && !c->w.size[last].extent && c->w.size[last].factor >= LINE_MIN &&
             !tree_row_varies(&c->t);
    f.across = f.line ? is_beside(c) : is_across(c, is_short);
    for (uint32_t i = 0; f.across && i < c->t.n_tensor; i++) c->step[i] = c->w.stride[i][last];
    if (f.line && f.across) f.wide = LINE_MIN;
    if (f.line) return f;
    if (f.across) {
        uint32_t wide = c->w.size[last].extent ? 1 : most;
        for (uint32_t i = 0; i < c->t.n_tensor; i++)
            for (uint32_t k = 0; c->step[i] && k < c->along.n; k++)
                while (c->along.stride[i][k] % wide) wide /= 2;
        f.wide = tree_widest(c, wide, c->w.size[last].factor, true, last);
        if (is_short && !host && f.wide == 1 && !c->w.size[last].extent && overlaps(c, most))
            f.wide = most, f.high = high_of(c), c->apart = true;
        f.rows = workgroup < ACROSS || is_short ? workgroup : ACROSS;
        f.lanes = workgroup / f.rows;
        if (tile_is_host(l) && f.wide > 1 && f.wide * AHEAD <= c->w.size[last].factor)
            f.columns = columns_of(c->w.size[last].factor, f.wide);
        cut(&f, l, d, f.columns ? n / f.columns : (n / f.wide + f.rows - 1) / f.rows, PART_DEEP);
        while (f.high > 1 && (f.n_part > 1 || tree_row_varies(&c->t) ||
                              n / f.wide / f.high / f.rows < groups_wanted(caps, serial)))
            f.high /= 2;
        return f;
    }
    f.wide = tree_row_varies(&c->t)
                 ? 1
                 : tree_widest(c, host ? most : most_along(c, type),
                               c->along.size[c->along.n - 1].factor, true, c->w.n);
    while (!serial && !beside && f.lanes < workgroup && f.lanes * f.wide * AHEAD < d) f.lanes *= 2;
    f.rows = workgroup / f.lanes;
    while (f.rows > 1 && n / f.rows < groups_wanted(caps, serial)) f.rows /= 2;
    if (f.rows == 1) cut(&f, l, d, n, PART_MIN);
    f.shared = tile_is_host(l) && serial && f.n_part == 1 && f.wide > 1 && d % f.wide == 0 &&
               shares(c) && n / HIGH >= groups_wanted(caps, serial);
    if (f.shared) f.high = HIGH;
    const uint32_t size = caps->subgroups ? caps->subgroup_size : 0;
    if (!BUILD_IS_SMALL && f.lanes > 1 && size >= SPAN_MIN && f.lanes * f.rows % size == 0 &&
        ir_type_bytes(type) == 4)
        f.span = size;
    return f;
}

/* ---- the kernel ------------------------------------------------------------------------------ */

/* column: of the vector's first element, or of all where it lies across rows. */
static ir_id with_index(reduce *r, ir_id x, ir_id column) {
    ir_builder *b = r->walk.k->b;
    const uint32_t width = r->f.wide;
    const ir_type type = sum_type(graph_tensor_at(r->walk.t.g, r->walk.t.choice->in[0])->type);
    ir_id index = ir_splat(b, column, width);
    if (!r->f.across) index = ir_add(b, index, tile_ramp(b, width, 0, 1));
    if (ir_type_in(type, IR_FLOATS)) {
        x = tile_order(b, ir_cast(b, IR_F32, x), UINT32_MAX);
    } else {
        x = ir_bitcast(b, IR_U32, width, ir_cast(b, type, x));
        if (type == IR_I32) x = ir_xor(b, x, ir_bits(b, IR_U32, width, 1u << 31));
    }
    return ir_or(b, tile_shl(b, ir_cast(b, IR_U64, x), 32), ir_cast(b, IR_U64, ir_not(b, index)));
}

static ir_id value_of(reduce *r, tree_spot *s, uint32_t which) {
    ir_builder *b = r->walk.k->b;
    const ir_id x = tree_value_at(&r->walk, s, which ? r->walk.t.chosen_second : r->walk.t.chosen);
    return r->op == OP_ARG_LARGEST ? with_index(r, x, s->column) : ir_cast(b, r->type, x);
}

/* `sum` and the value; of a product that nothing is asked of but its sum at once. */
static ir_id sum_and(reduce *r, tree_spot *s, uint32_t which, ir_id sum) {
    const tree *t = &r->walk.t;
    const tree_value *v = &t->values[which ? t->chosen_second : t->chosen];
    if ((r->op != OP_SUM && r->op != OP_MEAN) || v->kind != TREE_NODE || v->op != OP_MUL ||
        v->type != r->type || r->type != IR_F32 || device_is_compiled(r->walk.k->l->caps))
        return join(r, sum, value_of(r, s, which));
    const ir_id x = tree_value_at(&r->walk, s, v->in[0]);
    return ir_fma(r->walk.k->b, x, tree_value_at(&r->walk, s, v->in[1]), sum);
}

static uint32_t results(const reduce *r) {
    return !BUILD_IS_SMALL && r->walk.t.second ? RESULTS : 1;
}

/* The length of rows that a lane sums alone, where it is short and known: without a loop. 0: not
 * so. */
static uint32_t known_length(const reduce *r) {
    const tree_walk *c = &r->walk;
    const form *f = &r->f;
    const uint32_t d = tree_row_length(&c->t);
    return !BUILD_IS_SMALL && f->lanes == 1 && f->n_part == 1 && d <= SHORT &&
                   (f->across || f->wide == 1) && !tree_row_varies(&c->t) &&
                   (tile_is_host(c->k->l)
                        ? f->rows > 1 || f->line
                        : !tile_serial(c->k->l) && !device_is_compiled(c->k->l->caps))
               ? d
               : 0;
}

/* The sums of elements begin + first, begin + first + step, ... below end, as vectors: of a row, or
 * of all rows that share. */
static void sum_up(reduce *r, ir_id from, ir_id end, uint32_t step, ir_id all[HIGH][RESULTS]) {
    ir_builder *b = r->walk.k->b;
    const form *f = &r->f;
    const uint32_t each = f->across ? 1 : f->wide, n = results(r), known = known_length(r);
    const ir_id zero = ir_u32(b, 0);
    const bool shared = BUILD_HAS_C_TEXTS && f->shared;
    ir_memory sums[RESULTS][AHEAD];
    for (uint32_t i = 0; i < n * AHEAD; i++) {
        ir_memory *sum = &sums[i / AHEAD][i % AHEAD];
        *sum = ir_register(b, r->type, f->wide);
        ir_store(b, *sum, zero, neutral(r, f->wide));
    }
    /* each turn has all of its vectors */
    const bool whole = !BUILD_IS_SMALL && !known && !tree_row_varies(&r->walk.t) &&
                       f->part % (shared ? step : step * AHEAD) == 0 &&
                       tree_row_length(&r->walk.t) % f->part == 0;
    ir_id row[LOWER_WALK_TENSORS];
    memcpy(row, r->walk.row, sizeof row);
    for (uint32_t begin = 0; begin < (known ? known : 1); begin += AHEAD) {
        const uint32_t ahead = known && known - begin < AHEAD ? known - begin : AHEAD;
        const ir_id i = known ? ir_u32(b, begin)
                              : ir_loop(b, from, end, ir_u32(b, shared ? step : step * AHEAD));
        tree_spot s[AHEAD];
        ir_id inside[AHEAD];
        for (uint32_t a = 0; a < ahead; a++) { /* all reads before anything else */
            const ir_id at = tile_add(b, i, shared ? 0 : a * step);
            for (uint32_t t = 0; shared && t < r->walk.t.n_tensor; t++)
                r->walk.row[t] = tile_add(b, row[t], a * r->below[t]);
            inside[a] = known || whole ? IR_NO_ID : ir_lt(b, at, end);
            tree_spot_at(&r->walk, &s[a], f->wide,
                         a && !known && !whole ? ir_min(b, at, ir_sub(b, end, ir_u32(b, each)))
                                               : at);
            for (uint32_t v = 0; v < r->walk.t.n_value; v++)
                if (r->walk.t.values[v].kind == TREE_INPUT && !r->walk.t.values[v].inside)
                    tree_value_at(&r->walk, &s[a], v);
        }
        for (uint32_t a = 0; a < ahead; a++)
            for (uint32_t k = 0; k < n; k++) {
                if (known) {
                    const ir_id sum = ir_load(b, sums[k][a], zero, f->wide);
                    ir_store(b, sums[k][a], zero, sum_and(r, &s[a], k, sum));
                    continue;
                }
                ir_id x = value_of(r, &s[a], k);
                if (a && !whole)
                    x = ir_select(b, ir_splat(b, inside[a], f->wide), x, neutral(r, f->wide));
                ir_store(b, sums[k][a], zero, join(r, ir_load(b, sums[k][a], zero, f->wide), x));
            }
        if (!known) ir_end(b);
    }
    memcpy(r->walk.row, row, sizeof row);
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t a = 0; a < AHEAD; a++) {
            const ir_id x = ir_load(b, sums[k][a], zero, f->wide);
            if (shared) all[a][k] = x;
            else all[0][k] = a ? join(r, all[0][k], x) : x;
        }
}

/* Parts of rows: [result][vector of rows][part][element of the vector]. */
static uint64_t parts_of_result(const reduce *r) {
    const tree *t = &r->walk.t;
    const uint64_t rows = graph_element_bound(t->shape) / tree_row_length(t);
    return (rows + r->f.wide) * r->f.n_part;
}

static uint64_t parts_bytes(const reduce *r) {
    return results(r) * parts_of_result(r) * ir_type_bytes(r->type);
}

static ir_id part_at(const reduce *r, ir_builder *b, ir_id at, uint32_t result) {
    return result ? tile_add(b, at, (uint32_t)parts_of_result(r)) : at;
}

static beryl_status whole_rows(lowering *l, reduce *r, const char *name) {
    tree_walk *c = &r->walk;
    const form *f = &r->f;
    const uint32_t lanes = f->lanes * f->rows, width = f->across ? f->wide : 1,
                   each = f->across ? 1 : f->wide;
    tile_kernel k;
    tile_begin(&k, l, name, lanes);
    c->k = &k;
    k.joins = !BUILD_IS_SMALL && c->apart;
    ir_builder *b = k.b;
    if (f->span) ir_subgroup(b, f->span);
    tree_declare(c);
    ir_memory parts = {0};
    if (f->n_part > 1)
        parts = tile_scratch(&k, "parts", SCRATCH_PARTS, parts_bytes(r), r->type, IR_READ_WRITE);
    const ir_id length = tree_walk_length(c), local = ir_local(b, 0);
    /* across: rows beside each other are neighbours among the lanes; else those of one row are */
    const ir_id place = f->across ? tile_rem(b, local, f->rows) : tile_div(b, local, f->lanes),
                deep = f->across ? tile_div(b, local, f->rows) : tile_rem(b, local, f->lanes);
    const ir_id group = tile_group(b), part = f->n_part > 1 ? ir_group(b, 2) : ir_u32(b, 0);
    ir_id begin = part, end = length;
    if (f->n_part > 1) {
        begin = tile_mul(b, part, f->part);
        end = ir_min(b, tile_add(b, begin, f->part), length);
    }
    const ir_id row = ir_add(b, tile_mul(b, group, f->rows), place),
                outer = tree_place(c, row, width, true, c->row),
                valid = ir_lt(b, outer, c->size[0]);
    /* a row that is none does another one's work, but for the store */
    const ir_id from = ir_add(b, begin, tile_mul(b, deep, each));
    ir_id x[RESULTS], sums[HIGH][RESULTS], above[HIGH][RESULTS], above_at[HIGH][RESULTS];
    for (uint32_t h = 0; h < f->high; h++) {
        if (!f->shared || !h) sum_up(r, from, end, f->lanes * each, sums);
        memcpy(x, sums[f->shared ? h : 0], sizeof x);
        memcpy(above[h], x, sizeof x);
        memcpy(above_at[h], c->row, sizeof above_at[h]);
        for (uint32_t t = 0; t < c->t.n_tensor && h + 1 < f->high; t++)
            c->row[t] = tile_add(b, c->row[t], r->below[t]);
    }
    for (uint32_t i = 0; i < results(r); i++) {
        if (!f->across) x[i] = join_vector(r, x[i], f->wide);
        if (f->across) x[i] = join_lanes(r, x[i], f->wide, local, lanes, f->rows);
        else if (!BUILD_IS_SMALL && f->span) {
            x[i] = join_subgroups(r, x[i], local, place);
        } else if (f->lanes > 1) {
            /* deep is the number among the row's lanes: rows have memory beside each other */
            const ir_id turned = ir_add(b, tile_mul(b, deep, f->rows), place);
            x[i] = join_lanes(r, x[i], 1, turned, lanes, f->rows);
        }
    }
    ir_if(b, ir_and(b, valid, ir_eq(b, deep, ir_u32(b, 0))));
    for (uint32_t h = 0; h + 1 < f->high; h++)
        for (uint32_t i = 0; i < results(r); i++) {
            const ir_id sum = f->across ? above[h][i] : join_vector(r, above[h][i], f->wide);
            ir_store(b, c->memory[i], above_at[h][i], finished(r, sum, length, width));
        }
    for (uint32_t i = 0; i < results(r); i++) {
        const ir_id at = tile_mul(b, ir_add(b, tile_mul(b, row, f->n_part), part), width);
        if (f->n_part > 1) ir_store(b, parts, part_at(r, b, at, i), x[i]);
        else ir_store(b, c->memory[i], c->row[i], finished(r, x[i], length, width));
    }
    ir_end(b);
    const lower_count one = {1, 0};
    return tile_end_3d(&k, lower_walk_count(l, &c->w), f->rows, one, 1,
                       lower_count_times(one, f->n_part));
}

/* Columns on a processor: a lane sums many of them row by row, so that it reads long pieces of
 * memory, not a vector from each page. */
static beryl_status lines_of_columns(lowering *l, reduce *r, const char *name) {
    tree_walk *c = &r->walk;
    const form *f = &r->f;
    const uint32_t last = c->w.n - 1, wide = f->wide, n = results(r), d = tree_row_length(&c->t),
                   ahead = !tree_row_varies(&c->t) && f->part % AHEAD == 0 && d % f->part == 0
                               ? AHEAD
                               : 1;
    tile_kernel k;
    tile_begin(&k, l, name, 1);
    c->k = &k;
    ir_builder *b = k.b;
    tree_declare(c);
    ir_memory parts = {0}, sums[RESULTS];
    if (f->n_part > 1)
        parts = tile_scratch(&k, "parts", SCRATCH_PARTS, parts_bytes(r), r->type, IR_READ_WRITE);
    const ir_id length = tree_walk_length(c), group = tile_group(b), zero = ir_u32(b, 0),
                step = ir_u32(b, wide), width = ir_u32(b, f->columns);
    ir_id part = zero, from = zero, end = length, begin[LOWER_WALK_TENSORS];
    if (f->n_part > 1) {
        part = ir_group(b, 2);
        from = tile_mul(b, part, f->part);
        end = ir_min(b, tile_add(b, from, f->part), length);
    }
    ir_if(b, ir_lt(b, tree_place(c, group, f->columns, false, begin), c->size[0]));
    ir_id i = ir_loop(b, zero, width, step);
    for (uint32_t s = 0; s < n; s++) {
        sums[s] = ir_register(b, r->type, f->columns);
        ir_store(b, sums[s], i, neutral(r, wide));
    }
    ir_end(b);
    const ir_id row = ir_loop(b, from, end, ir_u32(b, ahead));
    i = ir_loop(b, zero, width, step);
    for (uint32_t t = 0; t < c->t.n_tensor; t++)
        c->row[t] = ir_add(b, begin[t], tile_mul(b, i, c->w.stride[t][last]));
    tree_spot spot[AHEAD];
    for (uint32_t a = 0; a < ahead; a++) tree_spot_at(c, &spot[a], wide, tile_add(b, row, a));
    for (uint32_t s = 0; s < n; s++) {
        ir_id x[AHEAD];
        for (uint32_t a = 0; a < ahead; a++) x[a] = value_of(r, &spot[a], s);
        for (uint32_t half = ahead / 2; half; half /= 2)
            for (uint32_t a = 0; a < half; a++) x[a] = join(r, x[a], x[a + half]);
        ir_store(b, sums[s], i, join(r, ir_load(b, sums[s], i, wide), x[0]));
    }
    ir_end(b), ir_end(b);
    i = ir_loop(b, zero, width, step);
    for (uint32_t s = 0; s < n; s++) {
        const ir_id x = ir_load(b, sums[s], i, wide);
        if (f->n_part == 1) {
            const ir_id at = ir_add(b, begin[s], tile_mul(b, i, c->w.stride[s][last]));
            ir_store(b, c->memory[s], at, finished(r, x, length, wide));
            continue;
        }
        const ir_id vector = ir_add(b, tile_mul(b, group, f->columns / wide), tile_div(b, i, wide)),
                    at = ir_add(b, tile_mul(b, vector, f->n_part), part);
        ir_store(b, parts, part_at(r, b, tile_mul(b, at, wide), s), x);
    }
    ir_end(b), ir_end(b);
    const lower_count one = {1, 0};
    return tile_end_3d(&k, lower_walk_count(l, &c->w), 1, one, 1,
                       lower_count_times(one, f->n_part));
}

/* Windows on a processor, along a line of results: what is the same for all of them is read once,
 * the rest goes on. As vectors where results lie beside each other, of which the last one makes
 * some results again; else its compiler may find some. */
static beryl_status lines_of_windows(lowering *l, reduce *r, const char *name) {
    tree_walk *c = &r->walk;
    const uint32_t last = c->w.n - 1, n = (uint32_t)c->w.size[last].factor, wide = r->f.wide;
    lower_count count = lower_walk_count(l, &c->w);
    count.factor /= n;
    tile_kernel k;
    tile_begin(&k, l, name, 1);
    c->k = &k;
    ir_builder *b = k.b;
    tree_declare(c);
    for (uint32_t t = 0; t < c->t.n_tensor; t++) c->memory[t].anywhere = true;
    const ir_id length = tree_walk_length(c), group = tile_group(b), zero = ir_u32(b, 0);
    ir_id begin[LOWER_WALK_TENSORS], x[HIGH][RESULTS];
    ir_if(b, ir_lt(b, group, tile_count(&k, "lines", count)));
    tree_place(c, tile_mul(b, group, n), 1, false, begin);
    ir_id i = ir_loop(b, zero, ir_u32(b, n), ir_u32(b, wide));
    if (n % wide) i = ir_min(b, i, ir_u32(b, n - wide));
    for (uint32_t t = 0; t < c->t.n_tensor; t++)
        c->row[t] = c->w.stride[t][last] ? ir_add(b, begin[t], tile_mul(b, i, c->w.stride[t][last]))
                                         : begin[t];
    sum_up(r, zero, length, 1, x);
    for (uint32_t s = 0; s < results(r); s++)
        ir_store(b, c->memory[s], c->row[s], finished(r, x[0][s], length, wide));
    ir_end(b), ir_end(b);
    return tile_end(&k, count, 1);
}

/* The parts of each row; a workgroup a vector of rows, or where these are many several. */
static beryl_status join_parts(lowering *l, reduce *r) {
    const form f = r->f;
    const uint32_t width = f.across ? f.wide : 1;
    tree_walk *c = &r->walk;
    tile_kernel k;
    const uint64_t vectors = graph_element_bound(c->t.shape) / tree_row_length(&c->t) / width;
    uint32_t lanes = 1, rows = 1;
    while (!tile_serial(l) && lanes < f.n_part && lanes < LANES / 4) lanes *= 2;
    while (!BUILD_IS_SMALL && !tile_serial(l) && lanes * rows < LANES / 4 &&
           vectors / rows >= JOINED_MANY)
        rows *= 2;
    tile_begin(&k, l, "join_parts", lanes * rows);
    c->k = &k;
    ir_builder *b = k.b;
    const ir_memory parts = tile_scratch(&k, "parts", SCRATCH_PARTS, 0, r->type, IR_READ);
    c->t.n_tensor = results(r);
    tree_declare(c);
    ir_id row = tile_group(b), lane = lanes * rows == 1 ? ir_u32(b, 0) : ir_local(b, 0);
    const ir_id local = lane;
    if (rows > 1) {
        row = ir_add(b, tile_mul(b, row, rows), tile_rem(b, lane, rows));
        lane = tile_div(b, lane, rows);
    }
    const ir_id length = tree_walk_length(c), outer = tree_place(c, row, width, false, c->row),
                zero = ir_u32(b, 0);
    ir_memory sum[RESULTS];
    for (uint32_t n = 0; n < results(r); n++) {
        sum[n] = ir_register(b, r->type, width);
        ir_store(b, sum[n], zero, neutral(r, width));
    }
    ir_if(b, ir_lt(b, outer, c->size[0]));
    const ir_id i = ir_loop(b, lane, ir_u32(b, f.n_part), ir_u32(b, lanes));
    const ir_id at = tile_mul(b, ir_add(b, tile_mul(b, row, f.n_part), i), width);
    for (uint32_t n = 0; n < results(r); n++) {
        const ir_id mine = ir_load(b, sum[n], zero, width);
        ir_store(b, sum[n], zero, join(r, mine, ir_load(b, parts, part_at(r, b, at, n), width)));
    }
    ir_end(b);
    ir_end(b);
    ir_id x[RESULTS];
    for (uint32_t n = 0; n < results(r); n++)
        x[n] = join_lanes(r, ir_load(b, sum[n], zero, width), width, local, lanes * rows, rows);
    ir_if(b, ir_and(b, ir_lt(b, outer, c->size[0]), ir_eq(b, lane, zero)));
    for (uint32_t n = 0; n < results(r); n++)
        ir_store(b, c->memory[n], c->row[n], finished(r, x[n], length, width));
    ir_end(b);
    return tile_end(&k, lower_walk_count(l, &c->w), rows);
}

beryl_status tile_tree_reduce(lowering *l, const tree *t, const char *name) {
    const base_type type = graph_tensor_at(l->g, t->choice->in[0])->type;
    reduce all = {.walk = {.t = *t}, .op = t->choice->op, .type = sum_type(type)}, *r = &all;
    if (r->op == OP_ARG_LARGEST) r->type = IR_U64;
    tree_walk *c = &r->walk;
    tree_walk_rows(c);
    r->f = form_of(l, c, r->type);
    if (BUILD_HAS_C_TEXTS && r->f.line) return lines_of_windows(l, r, name);
    lower_count *across = &c->w.size[c->w.n - 1];
    if (BUILD_HAS_C_TEXTS && r->f.columns) {
        const uint64_t columns = across->factor;
        across->factor /= r->f.columns;
        const beryl_status status = lines_of_columns(l, r, name);
        across->factor = columns / r->f.wide;
        return status == BERYL_OK && r->f.n_part > 1 ? join_parts(l, r) : status;
    }
    if (r->f.across) across->factor /= r->f.wide;
    const uint32_t below = c->w.n - (r->f.shared ? 1 : 2);
    for (uint32_t i = 0, d = below; r->f.high > 1 && i < c->t.n_tensor; i++) {
        r->below[i] = c->w.stride[i][d];
        c->w.stride[i][d] *= r->f.high;
    }
    if (r->f.high > 1) c->w.size[below].factor /= r->f.high;
    const beryl_status status = whole_rows(l, r, name);
    return status == BERYL_OK && r->f.n_part > 1 ? join_parts(l, r) : status;
}
