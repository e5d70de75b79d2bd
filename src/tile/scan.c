/* scan.c - sums, products, largest and smallest so far along rows that are longer than a workgroup
 * should do alone.
 *
 * The one idea: chunks of a row are joined, each by a workgroup; then a workgroup a chunk joins
 * what the chunks before it came to, and scans its own, a tile after another: four vectors a lane,
 * side by side in memory with those of its neighbours. Two reads, one write. Other rows are
 * trees (tile/rows.c). */
#include "base/build.h"
#include "tile/pointwise.h"

#include <math.h>

enum {
    LANES = 256,
    WIDE = 4,
    EACH = 4, /* vectors of a lane */
    SCANNED = EACH + 1,
    TILE = LANES * WIDE * EACH,
    CHUNKS_MAX = 512,   /* of a row */
    SPAN_MIN = 8,       /* lanes of a subgroup that pays */
    LONG = 1 << 16,     /* always; */
    LONG_FEW = 1 << 14, /* where rows are fewer than a device's workgroups */
    FEW = 256
};
enum { SCRATCH_JOINED = 0 };

typedef struct scan {
    tile_kernel k;
    const graph_node *node;
    const graph_tensor *x;
    base_op op;                       /* that joins */
    ir_type real;                     /* in which */
    uint32_t d, chunk, n_chunk, span; /* span: lanes of a subgroup; 0: workgroup memory alone */
    uint64_t rows;
    bool aligned;
    ir_memory from, lanes;                          /* lanes: workgroup array [2, SCANNED, LANES] */
    ir_id row, count, chunk_at, begin, end, offset; /* begin .. end: the chunk's columns */
} scan;

static ir_id joined(scan *s, ir_id x, ir_id y) {
    return tile_pointwise(&s->k, s->op, NULL, (ir_id[]){x, y});
}

/* What changes nothing. */
static ir_id neutral(scan *s) {
    static const double of[OP_COUNT] = {[OP_MUL] = 1, [OP_MAX] = -INFINITY, [OP_MIN] = INFINITY};
    return ir_number(s->k.b, s->real, 1, of[s->op]);
}

static void begin(scan *s, lowering *l, const char *name, lower_count rows, bool backward) {
    tile_kernel *k = &s->k;
    ir_builder *b = tile_begin(k, l, name, LANES);
    if (s->span) ir_subgroup(b, s->span);
    s->from = tile_read(k, "x", s->node->in[0]);
    s->offset = tile_u32(k, "x_offset", s->x->offset);
    s->count = tile_count(k, "rows", rows);
    ir_id group = tile_group(b);
    if (backward) /* what was read last may still be in a cache */
        group = ir_sub(b, tile_mul(b, s->count, s->n_chunk), tile_add(b, group, 1));
    s->row = tile_div(b, group, s->n_chunk);
    s->chunk_at = tile_rem(b, group, s->n_chunk);
    s->begin = tile_mul(b, s->chunk_at, s->chunk);
    s->end = ir_min(b, tile_add(b, s->begin, s->chunk), ir_u32(b, s->d));
    s->lanes =
        ir_workgroup(b, s->real, s->span ? SCANNED * (LANES / s->span) : 2 * SCANNED * LANES);
}

/* As scan_lanes: within subgroups by shuffles, of which each hands on what it comes to. */
static void scan_subgroups(scan *s, ir_id *x, uint32_t n, ir_id *all) {
    ir_builder *b = s->k.b;
    const uint32_t n_span = LANES / s->span;
    const ir_id lane = ir_subgroup_lane(b), zero = ir_u32(b, 0), none = neutral(s),
                own = tile_div(b, ir_local(b, 0), s->span);
    for (uint32_t i = 0; i < n; i++) all[i] = x[i], x[i] = none;
    for (uint32_t step = 1; step < s->span; step *= 2) {
        const ir_id behind = ir_ne(b, ir_and(b, lane, ir_u32(b, step)), zero);
        for (uint32_t i = 0; i < n; i++) {
            const ir_id other = ir_subgroup_shuffle_xor(b, all[i], step);
            x[i] = joined(s, ir_select(b, behind, other, none), x[i]);
            all[i] = joined(s, all[i], other);
        }
    }
    ir_if(b, ir_eq(b, lane, zero));
    for (uint32_t i = 0; i < n; i++) ir_store(b, s->lanes, tile_add(b, own, i * n_span), all[i]);
    ir_end(b);
    ir_barrier(b);
    for (uint32_t i = 0; i < n; i++) {
        ir_id before = none, sum = none;
        for (uint32_t j = 0; j < n_span; j++) {
            before = j ? ir_select(b, ir_eq(b, own, ir_u32(b, j)), sum, before) : none;
            sum = joined(s, sum, ir_load(b, s->lanes, ir_u32(b, i * n_span + j), 1));
        }
        x[i] = joined(s, before, x[i]);
        all[i] = sum;
    }
    ir_barrier(b);
}

/* x [n] of each lane become what the lanes before it come to; all [n]: what all do. */
static void scan_lanes(scan *s, ir_id *x, uint32_t n, ir_id *all) {
    if (!BUILD_IS_SMALL && s->span) {
        scan_subgroups(s, x, n, all);
        return;
    }
    ir_builder *b = s->k.b;
    const ir_id local = ir_local(b, 0), none = neutral(s);
    uint32_t half = 0;
    for (uint32_t i = 0; i < n; i++) ir_store(b, s->lanes, tile_add(b, local, i * LANES), x[i]);
    for (uint32_t step = 1; step < LANES; step *= 2, half = SCANNED * LANES - half) {
        ir_barrier(b);
        const ir_id behind = ir_ge(b, local, ir_u32(b, step)),
                    from = ir_select(b, behind, ir_sub(b, local, ir_u32(b, step)), local);
        for (uint32_t i = 0; i < n; i++) {
            const ir_id other = ir_load(b, s->lanes, tile_add(b, from, half + i * LANES), 1);
            x[i] = joined(s, ir_select(b, behind, other, none), x[i]);
            ir_store(b, s->lanes, tile_add(b, local, SCANNED * LANES - half + i * LANES), x[i]);
        }
    }
    ir_barrier(b);
    const ir_id first = ir_eq(b, local, ir_u32(b, 0)),
                before = ir_sub(b, ir_max(b, local, ir_u32(b, 1)), ir_u32(b, 1));
    for (uint32_t i = 0; i < n; i++) {
        const ir_id other = ir_load(b, s->lanes, tile_add(b, before, half + i * LANES), 1);
        x[i] = ir_select(b, first, none, other);
        all[i] = ir_load(b, s->lanes, ir_u32(b, half + i * LANES + LANES - 1), 1);
    }
    ir_barrier(b);
}

/* A lane's elements of the tile at a column, from at[i] on; behind the end: the neutral. */
static void load_tile(scan *s, ir_id column, ir_id *at, ir_id x[EACH][WIDE]) {
    ir_builder *b = s->k.b;
    const ir_id last = ir_u32(b, s->d - (s->aligned ? WIDE : 1)), none = neutral(s),
                row = ir_add(b, s->offset, tile_mul(b, s->row, s->d)),
                own = ir_add(b, column, tile_mul(b, ir_local(b, 0), WIDE));
    for (uint32_t i = 0; i < EACH; i++) {
        at[i] = tile_add(b, own, i * LANES * WIDE);
        if (s->aligned) {
            const ir_id v = ir_load(b, s->from, ir_add(b, row, ir_min(b, at[i], last)), WIDE);
            for (uint32_t e = 0; e < WIDE; e++) x[i][e] = ir_extract(b, v, e);
        }
        for (uint32_t e = 0; e < WIDE && !s->aligned; e++) {
            const ir_id place = ir_min(b, tile_add(b, at[i], e), last);
            x[i][e] = ir_load(b, s->from, ir_add(b, row, place), 1);
        }
    }
    for (uint32_t i = 0; i < EACH; i++)
        for (uint32_t e = 0; e < WIDE; e++)
            x[i][e] = ir_select(b, ir_lt(b, tile_add(b, at[i], e), s->end),
                                ir_cast(b, s->real, x[i][e]), none);
}

/* [rows, n_chunk] */
static ir_memory chunks(scan *s, ir_access access) {
    return tile_scratch(&s->k, "joined", SCRATCH_JOINED,
                        s->rows * s->n_chunk * ir_type_bytes(s->real), s->real, access);
}

static beryl_status join_chunks(lowering *l, scan *s, lower_count rows) {
    tile_kernel *k = &s->k;
    begin(s, l, "scan_chunks", rows, false);
    ir_builder *b = k->b;
    const ir_memory to = chunks(s, IR_READ_WRITE), sum = ir_register(b, s->real, 1);
    ir_id at[EACH], x[EACH][WIDE], own, all;
    ir_if(b, ir_lt(b, s->row, s->count));
    ir_set(b, sum, neutral(s));
    const ir_id column = ir_loop(b, s->begin, s->end, ir_u32(b, TILE));
    load_tile(s, column, at, x);
    own = neutral(s);
    for (uint32_t i = 0; i < EACH; i++)
        for (uint32_t e = 0; e < WIDE; e++) own = joined(s, own, x[i][e]);
    ir_set(b, sum, joined(s, ir_get(b, sum), own));
    ir_end(b);
    own = ir_get(b, sum);
    scan_lanes(s, &own, 1, &all);
    ir_if(b, ir_eq(b, ir_local(b, 0), ir_u32(b, 0)));
    ir_store(b, to, ir_add(b, tile_mul(b, s->row, s->n_chunk), s->chunk_at), all);
    ir_end(b), ir_end(b);
    return tile_end(k, lower_count_times(rows, s->n_chunk), 1);
}

static void store(scan *s, ir_memory to, ir_id at, const ir_id *x) {
    ir_builder *b = s->k.b;
    const ir_type type = tile_element(s->x->type);
    const ir_id place = ir_add(b, tile_mul(b, s->row, s->d), at);
    for (uint32_t e = 0; e < (s->aligned ? 1 : WIDE); e++) {
        ir_if(b, ir_lt(b, tile_add(b, at, e), s->end));
        ir_store(b, to, tile_add(b, place, e),
                 ir_cast(b, type, s->aligned ? ir_compose(b, x, WIDE) : x[e]));
        ir_end(b);
    }
}

/* What this lane has of the chunks before this one. */
static ir_id chunks_before(scan *s, ir_memory before) {
    ir_builder *b = s->k.b;
    const ir_memory sum = ir_register(b, s->real, 1);
    ir_set(b, sum, neutral(s));
    const ir_id i = ir_loop(b, ir_local(b, 0), s->chunk_at, ir_u32(b, LANES)),
                other = ir_load(b, before, ir_add(b, tile_mul(b, s->row, s->n_chunk), i), 1);
    ir_set(b, sum, joined(s, ir_get(b, sum), other));
    ir_end(b);
    return ir_get(b, sum);
}

/* A tile behind what came to so_far, which becomes what its end comes to. before: what the lane has
 * of so_far, where that is not yet known. */
static void scan_tile(scan *s, ir_memory out, ir_id *at, ir_id x[EACH][WIDE], ir_id before,
                      ir_id *so_far) {
    const bool first = before != IR_NO_ID;
    ir_id own[EACH + 1], all[EACH + 1];
    for (uint32_t i = 0; i < EACH; i++) {
        for (uint32_t e = 1; e < WIDE; e++) x[i][e] = joined(s, x[i][e - 1], x[i][e]);
        own[i] = x[i][WIDE - 1];
    }
    own[EACH] = before;
    scan_lanes(s, own, EACH + first, all);
    if (first) *so_far = all[EACH];
    for (uint32_t i = 0; i < EACH; i++) {
        const ir_id base = joined(s, *so_far, own[i]);
        for (uint32_t e = 0; e < WIDE; e++) x[i][e] = joined(s, base, x[i][e]);
        store(s, out, at[i], x[i]);
        *so_far = joined(s, *so_far, all[i]);
    }
}

static beryl_status scan_chunks(lowering *l, scan *s, lower_count rows) {
    tile_kernel *k = &s->k;
    begin(s, l, graph_op_name(s->node->op), rows, true);
    ir_builder *b = k->b;
    const ir_memory before = chunks(s, IR_READ), out = tile_write(k, "out", s->node->out[0]),
                    sum = ir_register(b, s->real, 1);
    ir_id at[EACH], x[EACH][WIDE], so_far;
    ir_if(b, ir_lt(b, s->row, s->count));
    load_tile(s, s->begin, at, x); /* on its way while the rest is asked for */
    scan_tile(s, out, at, x, chunks_before(s, before), &so_far);
    if (s->chunk > TILE) {
        ir_set(b, sum, so_far);
        const ir_id column = ir_loop(b, tile_add(b, s->begin, TILE), s->end, ir_u32(b, TILE));
        load_tile(s, column, at, x);
        so_far = ir_get(b, sum);
        scan_tile(s, out, at, x, IR_NO_ID, &so_far);
        ir_set(b, sum, so_far);
        ir_end(b);
    }
    ir_end(b);
    return tile_end(k, lower_count_times(rows, s->n_chunk), 1);
}

/* Rows without gaps, one behind another; a run has all of them, or the first. */
static bool lies_in_rows(const graph_tensor *t) {
    uint64_t stride = 1;
    for (uint32_t i = t->rank; i-- > 0; stride *= t->dim[i].size)
        if ((t->dim[i].size != 1 && t->stride[i] != stride) || (i && t->dim[i].extent))
            return false;
    return true;
}

beryl_status tile_scan(lowering *l, const graph_node *node) {
    static const base_op ops[OP_COUNT] = {
        [OP_CUMSUM] = OP_ADD, [OP_CUMPROD] = OP_MUL, [OP_CUMMAX] = OP_MAX, [OP_CUMMIN] = OP_MIN};
    const graph_tensor *x = graph_tensor_at(l->g, node->in[0]),
                       *out = graph_tensor_at(l->g, node->out[0]);
    const device_caps *caps = l->caps;
    const uint32_t last = x->rank ? x->rank - 1u : 0, d = x->rank ? x->dim[last].size : 0;
    const uint64_t n = graph_element_bound(x), rows = d ? n / d : 0;
    const uint32_t bytes = x->type == TYPE_F64 ? 8 : 4, memory = 2 * SCANNED * LANES * bytes;
    if (tile_serial(l) || node->attr.cumsum.axis != last || x->dim[last].extent ||
        d < (rows < FEW ? LONG_FEW : LONG) || n > UINT32_MAX || !lies_in_rows(x) ||
        !lies_in_rows(out) || caps->workgroup_bytes < memory || caps->workgroup_invocations < LANES)
        return tile_operation(l, node);
    scan s = {.node = node,
              .x = x,
              .op = ops[node->op],
              .real = bytes == 8 ? IR_F64 : IR_F32,
              .d = d,
              .chunk = TILE,
              .rows = rows,
              .aligned = d % WIDE == 0 && x->offset % WIDE == 0};
    if (!BUILD_IS_SMALL && caps->subgroups && caps->subgroup_size >= SPAN_MIN &&
        LANES % caps->subgroup_size == 0 && s.real == IR_F32)
        s.span = caps->subgroup_size;
    while ((uint64_t)s.chunk * CHUNKS_MAX < d) s.chunk *= 2;
    s.n_chunk = (d + s.chunk - 1) / s.chunk;
    const beryl_status status = join_chunks(l, &s, lower_rows(x));
    return status == BERYL_OK ? scan_chunks(l, &s, lower_rows(x)) : status;
}
