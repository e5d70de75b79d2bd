/* contract_copy.c - copies of factors in which units find what they want.
 *
 * Three of them. Lines that end in whole pieces of 16 bytes, with zeros beyond. Channels of windows
 * that lie last. And F32 where units multiply BF16 alone: each number is the sum of three of those,
 * 8 bits of its 24 each, its limbs, which lie in three planes. */
#include "tile/contract_inside.h"

enum {
    PIECE = 8, /* elements of what is copied */
    PIECE_BYTES = 16,
    PADDED_MIN = 128,      /* rows, columns, depth of a product that is worth it; */
    PADDED_MIN_WIDE = 512, /* rows and columns of one of F32 */
    LIMBS = 3,             /* of a F32 */
    LIMBS_SIDE = 128,      /* rows, columns of a product of limbs, the side of a tile; */
    LIMBS_WORK = 240,      /* rows * columns of it for each row and column, which are copied; */
    LIMBS_DEPTH = 64,      /* what its depth becomes a multiple of; */
    LIMBS_BYTES = 1 << 30  /* both copies at most */
};

static uint32_t whole(uint64_t n, uint32_t unit) {
    return (uint32_t)((n + unit - 1) / unit * unit);
}

static uint32_t padded(uint64_t n) {
    return whole(n, PIECE);
}

static class_kind rows_of(const contraction *c, uint32_t t) {
    return contract_moves(&c->of[CLASS_OUTER], t) ? CLASS_OUTER : CLASS_INNER;
}

static uint32_t element_bytes(const lowering *l, const contraction *c, uint32_t t) {
    return ir_type_bytes(tile_element(graph_tensor_at(l->g, c->node->in[t])->type));
}

/* Whether every line of the factor begins at a whole piece and has nothing but such. */
static bool has_pieces(const lowering *l, const contraction *c, uint32_t t) {
    const axes *of[3] = {&c->of[rows_of(c, t)], &c->of[CLASS_DEPTH], &c->of[CLASS_BATCH]};
    uint32_t rest = graph_tensor_at(l->g, c->node->in[t])->offset;
    for (uint32_t i = 0; i < 3; i++)
        if (of[i]->n)
            rest |=
                of[i]->stride[t][0] == 1 ? (uint32_t)of[i]->size[0].factor : of[i]->stride[t][0];
    return rest % (PIECE_BYTES / element_bytes(l, c, t)) == 0;
}

/* Is it worth a copy of both factors? Matrix units read halves without pieces a quarter as fast;
 * F32 are loaded one by one, which takes a fifth more. */
static bool wants_padding(const lowering *l, const contraction *c) {
    const bool halves = element_bytes(l, c, A) == 2;
    const uint32_t side = halves ? PADDED_MIN : PADDED_MIN_WIDE,
                   least[CLASSES] = {0, side, side, halves ? PADDED_MIN : PIECE};
    if (c->type != IR_F32 || (halves ? !l->caps->multiplies_memory : tile_serial(l))) return false;
    for (uint32_t i = 0; i < CLASSES; i++) {
        const axes *of = &c->of[i];
        if (of->n > 1 || of->count.extent || of->count.factor < least[i]) return false;
    }
    const uint64_t outer = c->of[CLASS_OUTER].bound, inner = c->of[CLASS_INNER].bound,
                   most = (uint64_t)padded(outer > inner ? outer : inner) *
                          padded(c->of[CLASS_DEPTH].bound) * c->of[CLASS_BATCH].bound;
    return most * element_bytes(l, c, A) <= l->caps->binding_max &&
           (!has_pieces(l, c, A) || !has_pieces(l, c, B)) &&
           (halves || contract_split(c, l).n == 1);
}

static uint64_t limbs_tiles(const contraction *c) {
    return whole(c->of[CLASS_OUTER].bound, LIMBS_SIDE) / LIMBS_SIDE *
           (whole(c->of[CLASS_INNER].bound, LIMBS_SIDE) / LIMBS_SIDE) * c->of[CLASS_BATCH].bound;
}

/* As many groups as units: a tile fills one. */
static uint32_t limbs_parts(const lowering *l, const contraction *c) {
    const uint32_t most = contract_split(c, l).n;
    const uint64_t n = l->caps->compute_units / limbs_tiles(c);
    return n < 1 ? 1 : n < most ? (uint32_t)n : most;
}

/* Is it worth a copy of both factors? The six products of limbs take half as long as one of F32. */
static bool wants_limbs(const lowering *l, const contraction *c) {
    const device_caps *caps = l->caps;
    const uint64_t rows = whole(c->of[CLASS_OUTER].bound, LIMBS_SIDE),
                   columns = whole(c->of[CLASS_INNER].bound, LIMBS_SIDE),
                   depth = c->of[CLASS_DEPTH].bound, batch = c->of[CLASS_BATCH].bound,
                   bytes = (rows + columns) * (depth + LIMBS_DEPTH) * batch * LIMBS * 2;
    if (!caps->limbs_from || c->type != IR_F32 || element_bytes(l, c, A) != 4) return false;
    for (uint32_t i = 0; i < CLASSES; i++)
        if (c->of[i].n > 1 || c->of[i].count.extent) return false;
    return c->of[CLASS_OUTER].bound >= LIMBS_SIDE && c->of[CLASS_INNER].bound >= LIMBS_SIDE &&
           depth >= caps->limbs_from && 2 * limbs_tiles(c) * c->parts >= caps->compute_units &&
           c->of[CLASS_OUTER].bound * c->of[CLASS_INNER].bound >= LIMBS_WORK * (rows + columns) &&
           bytes <= LIMBS_BYTES && bytes <= caps->binding_max;
}

/* A copy of factor t in the scratch, [batch, line, width], with zeros beyond; its strides are those
 * of the factor from then on. */
static beryl_status pad(lowering *l, contraction *c, uint32_t t) {
    axes *row = &c->of[rows_of(c, t)], *depth = &c->of[CLASS_DEPTH], *batch = &c->of[CLASS_BATCH];
    const bool across = row->stride[t][0] == 1, batched = contract_moves(batch, t);
    axes *line = across ? depth : row, *in_line = across ? row : depth;
    const uint32_t lines = (uint32_t)line->count.factor, width = (uint32_t)in_line->count.factor,
                   all_lines = padded(lines), all_width = padded(width),
                   n_batch = batched ? (uint32_t)batch->count.factor : 1;
    const graph_tensor *from = graph_tensor_at(l->g, c->node->in[t]);
    const ir_type type = tile_element(from->type);
    c->bytes[t] = (uint64_t)n_batch * all_lines * all_width * ir_type_bytes(type);
    c->offset[t] = 0;
    tile_kernel *k = &c->k;
    ir_builder *b = tile_begin(k, l, "contract_pad", 1);
    const ir_memory x = tile_read(k, "x", c->node->in[t]),
                    out =
                        tile_scratch(k, "out", CONTRACT_COPY + t, c->bytes[t], type, IR_READ_WRITE);
    const ir_id zero = ir_u32(b, 0), one = ir_u32(b, 1), n_line = tile_u32(k, "lines", lines),
                n_width = tile_u32(k, "width", width),
                to_line = tile_u32(k, "all_lines", all_lines),
                to_width = tile_u32(k, "all_width", all_width);
    ir_id at = contract_number(c, "offset", from->offset), to = zero;
    if (batched) {
        const ir_id i = ir_loop_marked(b, zero, tile_u32(k, "batch", n_batch), one, IR_PARALLEL, 2);
        at = ir_add(b, at, ir_mul(b, i, contract_number(c, "batch_stride", batch->stride[t][0])));
        to = ir_mul(b, i, ir_mul(b, to_line, to_width));
    }
    const ir_id i = ir_loop_marked(b, zero, to_line, one, IR_PARALLEL, 0),
                j = ir_loop_marked(b, zero, to_width, one, IR_PARALLEL, 1),
                inside = ir_and(b, ir_lt(b, i, n_line), ir_lt(b, j, n_width));
    at = ir_add(b, at,
                ir_mul(b, ir_min(b, i, ir_sub(b, n_line, one)),
                       contract_number(c, "line_stride", line->stride[t][0])));
    at = ir_add(b, at,
                ir_mul(b, ir_min(b, j, ir_sub(b, n_width, one)),
                       contract_number(c, "stride", in_line->stride[t][0])));
    ir_store(b, out, ir_add(b, to, ir_add(b, ir_mul(b, i, to_width), j)),
             ir_select(b, inside, ir_load(b, x, at, 1), ir_number(b, type, 1, 0)));
    ir_end(b), ir_end(b);
    if (batched) ir_end(b);
    if (batched) batch->stride[t][0] = all_lines * all_width;
    line->stride[t][0] = all_width, in_line->stride[t][0] = 1;
    return tile_end_marked(k,
                           (lower_count[IR_DIM_MAX]){{all_lines, 0}, {all_width, 0}, {n_batch, 0}},
                           (uint64_t[IR_DIM_MAX]){all_lines, all_width, batched ? n_batch : 0});
}

/* The same in limbs, [limb, batch, line, width]: a lane has four neighbours. */
static beryl_status pad_limbs(lowering *l, contraction *c, uint32_t t) {
    enum { LANES = 256, EACH = 4 };
    axes *row = &c->of[rows_of(c, t)], *depth = &c->of[CLASS_DEPTH], *batch = &c->of[CLASS_BATCH];
    const bool across = row->stride[t][0] == 1, batched = contract_moves(batch, t);
    axes *line = across ? depth : row, *in_line = across ? row : depth;
    const uint32_t lines = (uint32_t)line->count.factor, width = (uint32_t)in_line->count.factor,
                   stride = in_line->stride[t][0],
                   all_lines = across ? c->depth : whole(lines, LIMBS_SIDE),
                   all_width = across ? whole(width, LIMBS_SIDE) : c->depth,
                   n_batch = batched ? (uint32_t)batch->count.factor : 1,
                   units = n_batch * all_lines * (all_width / EACH);
    const graph_tensor *from = graph_tensor_at(l->g, c->node->in[t]);
    const uint32_t gaps = from->offset | width | line->stride[t][0] | (stride == 1 ? 0 : 1) |
                          (batched ? batch->stride[t][0] : 0);
    c->plane[t] = units * EACH;
    c->bytes[t] = (uint64_t)c->plane[t] * LIMBS * 2;
    c->offset[t] = 0;
    tile_kernel *k = &c->k;
    ir_builder *b = tile_begin(k, l, "contract_limbs", LANES);
    const ir_memory x = tile_read(k, "x", c->node->in[t]),
                    out = tile_scratch(k, "out", CONTRACT_COPY + t, c->bytes[t], IR_BF16,
                                       IR_READ_WRITE);
    const ir_id n_line = tile_u32(k, "lines", lines), n_width = tile_u32(k, "width", width),
                to_line = tile_u32(k, "all_lines", all_lines),
                to_width = tile_u32(k, "all_width", all_width), one = ir_u32(b, 1),
                none = ir_f32(b, 0),
                unit = ir_add(b, tile_mul(b, tile_group(b), LANES), ir_local(b, 0)),
                at = tile_mul(b, unit, EACH), at_line = ir_div(b, at, to_width),
                j = ir_sub(b, at, ir_mul(b, at_line, to_width)), i = ir_mod(b, at_line, to_line),
                above = ir_lt(b, i, n_line);
    ir_id start = ir_fma(b, ir_min(b, i, ir_sub(b, n_line, one)),
                         contract_number(c, "line_stride", line->stride[t][0]),
                         contract_number(c, "offset", from->offset));
    if (batched)
        start = ir_fma(b, ir_min(b, ir_div(b, at_line, to_line), tile_u32(k, "last", n_batch - 1)),
                       contract_number(c, "batch_stride", batch->stride[t][0]), start);
    ir_id value, values[EACH];
    if (gaps % EACH == 0) {
        const ir_id in = ir_and(b, above, ir_lt(b, j, n_width)),
                    last = ir_min(b, j, ir_sub(b, n_width, ir_u32(b, EACH)));
        value = ir_select(b, ir_splat(b, in, EACH), ir_load(b, x, ir_add(b, start, last), EACH),
                          ir_splat(b, none, EACH));
    } else {
        const ir_id apart = contract_number(c, "stride", stride);
        for (uint32_t e = 0; e < EACH; e++) {
            const ir_id own = tile_add(b, j, e), in = ir_and(b, above, ir_lt(b, own, n_width)),
                        last = ir_min(b, own, ir_sub(b, n_width, one));
            values[e] = ir_select(b, in, ir_load(b, x, ir_fma(b, last, apart, start), 1), none);
        }
        value = ir_compose(b, values, EACH);
    }
    const ir_id plane = tile_u32(k, "plane", c->plane[t]);
    ir_if(b, ir_lt(b, unit, tile_u32(k, "units", units)));
    for (uint32_t n = 0; n < LIMBS; n++) {
        const ir_id limb = ir_cast(b, IR_BF16, value);
        ir_store(b, out, ir_fma(b, ir_u32(b, n), plane, at), limb);
        value = ir_sub(b, value, ir_cast(b, IR_F32, limb));
    }
    ir_end(b);
    if (batched) batch->stride[t][0] = all_lines * all_width;
    line->stride[t][0] = all_width, in_line->stride[t][0] = 1;
    const beryl_status status = tile_end(k, (lower_count){units, 0}, LANES);
    if (status == BERYL_OK) lower_step_share(l);
    return status;
}

static void round_up(axes *of, uint32_t n) {
    of->bound = of->count.factor = of->size[0].factor = n;
}

/* ---- factors of windows, whose channels come to lie last ------------------------------------- */

enum {
    CHANNELS_SIDE_MIN = 64,
    CHANNELS_DEPTH_MIN = 64,
    TURN = 64, /* sides of what a workgroup turns */
    TURN_LINE = TURN + 2,
    TURN_LANES = 256,
    TURN_ROUNDS = TURN * TURN / TURN_LANES
};

/* How the factor's axis would be its channels: what lies closer is in one line of a channel, what
 * lies further has all of them. */
static bool channels_along(const lowering *l, const contraction *c, uint32_t t, class_kind kind,
                           uint32_t axis, channels *out) {
    const graph_tensor *x = graph_tensor_at(l->g, c->node->in[t]),
                       *base = graph_tensor_at(l->g, graph_base_of(l->g, c->node->in[t]));
    const int64_t apart = (int32_t)c->of[kind].stride[t][axis],
                  n = (int64_t)c->of[kind].size[axis].factor, whole = apart * n;
    if (apart <= 0 || n % PIECE || whole > INT32_MAX || x->offset / apart % n) return false;
    int64_t low = x->offset % apart, high = low, last = 0;
    for (uint32_t k = 0; k < CLASSES; k++)
        for (uint32_t i = 0; i < c->of[k].n; i++) {
            const int64_t stride = (int32_t)c->of[k].stride[t][i],
                          way = stride * ((int64_t)c->of[k].size[i].factor - 1);
            if (k == (uint32_t)kind && i == axis) continue;
            if (stride > -apart && stride < apart) {
                if (stride < 0) low += way;
                else high += way;
            } else if (stride > 0 && stride % whole == 0) last += way / whole;
            else return false;
        }
    *out = (channels){.first = (uint32_t)(x->offset / whole * whole),
                      .outer = (uint32_t)last + 1,
                      .n = (uint32_t)n,
                      .apart = (uint32_t)apart,
                      .kind = kind,
                      .axis = axis};
    return low >= 0 && high < apart &&
           out->first + (uint64_t)(last + 1) * (uint64_t)whole <= graph_element_bound(base);
}

/* The axis of the class that would be channels with the shortest lines. */
static bool channels_in(const lowering *l, const contraction *c, uint32_t t, class_kind kind,
                        channels *out) {
    bool found = false;
    channels one;
    for (uint32_t i = 0; i < c->of[kind].n; i++)
        if (channels_along(l, c, t, kind, i, &one) && (!found || one.apart < out->apart))
            *out = one, found = true;
    return found;
}

/* Every element of the factor is read once for each row of the other one: no windows overlap. */
static bool is_plain(const contraction *c, uint32_t t, const channels *as) {
    const uint64_t seen = c->of[rows_of(c, t)].bound * c->of[CLASS_DEPTH].bound;
    return seen == (uint64_t)as->outer * as->n * as->apart;
}

/* Both factors' channels: an axis of depth that is that of both, or one of the rows. */
static bool channels_of(const lowering *l, const contraction *c, channels out[OUT]) {
    channels rows[OUT], depth[OUT];
    bool in_rows[OUT], in_depth[OUT];
    if (!l->caps->multiplies_memory || c->type != IR_F32 || element_bytes(l, c, A) != 2 ||
        c->of[CLASS_BATCH].n || c->of[CLASS_OUTER].bound < CHANNELS_SIDE_MIN ||
        c->of[CLASS_INNER].bound < CHANNELS_SIDE_MIN ||
        c->of[CLASS_DEPTH].bound < CHANNELS_DEPTH_MIN ||
        (c->of[CLASS_OUTER].n < 2 && c->of[CLASS_INNER].n < 2 && c->of[CLASS_DEPTH].n < 2))
        return false;
    for (uint32_t i = 0; i < CLASSES; i++)
        if (c->of[i].count.extent) return false;
    for (uint32_t t = 0; t < OUT; t++) {
        in_rows[t] = channels_in(l, c, t, rows_of(c, t), &rows[t]);
        in_depth[t] = channels_in(l, c, t, CLASS_DEPTH, &depth[t]);
    }
    /* windows are of the factor with more axes: its channels lie next to them */
    const uint32_t t = c->of[rows_of(c, A)].n > c->of[rows_of(c, B)].n ? A : B, other = OUT - 1 - t;
    if (in_depth[t] && (!in_rows[t] || depth[t].apart < rows[t].apart)) {
        out[t] = depth[t];
        if (depth[t].apart > 1 && is_plain(c, t, &depth[t])) return false; /* not worth a copy */
        return channels_along(l, c, other, CLASS_DEPTH, depth[t].axis, &out[other]);
    }
    if (!in_rows[t]) return false;
    const bool lies = in_depth[other] && depth[other].apart == 1; /* in pieces already */
    out[t] = rows[t];
    out[other] = in_rows[other] && !lies ? rows[other] : depth[other];
    return in_rows[other] || in_depth[other];
}

/* The axis becomes the last one of its class. */
static void put_last(axes *of, uint32_t axis) {
    for (uint32_t i = axis; i + 1 < of->n; i++) {
        const lower_count size = of->size[i];
        of->size[i] = of->size[i + 1], of->size[i + 1] = size;
        for (uint32_t t = 0; t < LOWER_WALK_TENSORS; t++) {
            const uint32_t stride = of->stride[t][i];
            of->stride[t][i] = of->stride[t][i + 1], of->stride[t][i + 1] = stride;
        }
    }
}

/* A copy of factor t in the scratch with its channels last; its strides and *offset are those of
 * the copy from then on. */
static beryl_status turn(lowering *l, contraction *c, uint32_t t, const channels *as) {
    const graph_tensor *from = graph_tensor_at(l->g, c->node->in[t]);
    const ir_type type = tile_element(from->type);
    const uint32_t whole = as->n * as->apart, tiles = (as->n + TURN - 1) / TURN,
                   tiers = (as->apart + TURN - 1) / TURN;
    c->bytes[t] = (uint64_t)as->outer * whole * 2;
    c->offset[t] = from->offset % as->apart * as->n;
    tile_kernel *k = &c->k;
    ir_builder *b = tile_begin(k, l, "contract_turn", TURN_LANES);
    const ir_memory x = tile_read(k, "x", c->node->in[t]),
                    out =
                        tile_scratch(k, "out", CONTRACT_COPY + t, c->bytes[t], type, IR_READ_WRITE),
                    tile = ir_workgroup(b, type, TURN * TURN_LINE);
    const ir_id group = tile_group(b), lane = ir_local(b, 0), in_line = tile_rem(b, lane, TURN),
                line = tile_div(b, lane, TURN), n = ir_u32(b, as->n), apart = ir_u32(b, as->apart),
                channel = tile_mul(b, tile_rem(b, group, tiles), TURN),
                tier = tile_div(b, group, tiles),
                place = tile_mul(b, tile_rem(b, tier, tiers), TURN), o = tile_div(b, tier, tiers),
                is_whole = ir_lt(b, o, ir_u32(b, as->outer)), start = tile_mul(b, o, whole),
                near =
                    ir_fma(b, ir_min(b, o, ir_u32(b, as->outer - 1)), ir_u32(b, whole),
                           ir_add(b, contract_number(c, "first", as->first),
                                  ir_min(b, ir_add(b, place, in_line), ir_u32(b, as->apart - 1))));
    ir_id read[TURN_ROUNDS];
    for (uint32_t i = 0; i < TURN_ROUNDS; i++) { /* all before one is waited for */
        const ir_id j = tile_add(b, line, i * TURN_LANES / TURN),
                    from_channel = ir_min(b, ir_add(b, channel, j), ir_u32(b, as->n - 1));
        read[i] = ir_load(b, x, ir_fma(b, from_channel, apart, near), 1);
    }
    for (uint32_t i = 0; i < TURN_ROUNDS; i++)
        ir_store(
            b, tile,
            ir_add(b, tile_mul(b, in_line, TURN_LINE), tile_add(b, line, i * TURN_LANES / TURN)),
            read[i]);
    ir_barrier(b);
    for (uint32_t i = 0; i < TURN_ROUNDS; i++) {
        const ir_id j = tile_add(b, line, i * TURN_LANES / TURN), to_place = ir_add(b, place, j),
                    to_channel = ir_add(b, channel, in_line);
        ir_if(b,
              ir_and(b, is_whole, ir_and(b, ir_lt(b, to_channel, n), ir_lt(b, to_place, apart))));
        ir_store(b, out, ir_add(b, start, ir_fma(b, to_place, n, to_channel)),
                 ir_load(b, tile, ir_add(b, tile_mul(b, j, TURN_LINE), in_line), 1));
        ir_end(b);
    }
    for (uint32_t kind = 0; kind < CLASSES; kind++)
        for (uint32_t a = 0; a < c->of[kind].n; a++) {
            uint32_t *stride = &c->of[kind].stride[t][a];
            const int64_t was = (int32_t)*stride;
            if (kind == (uint32_t)as->kind && a == as->axis) *stride = 1;
            else if (was > -(int64_t)as->apart && was < as->apart) *stride *= as->n;
        }
    return tile_end(k, (lower_count){(uint64_t)as->outer * tiles * tiers, 0}, 1);
}

void contract_choose_copies(const lowering *l, contraction *c) {
    const uint64_t terms = c->of[CLASS_DEPTH].bound;
    c->parts = limbs_parts(l, c);
    c->limbs = wants_limbs(l, c);
    c->pads = c->limbs || wants_padding(l, c);
    c->turns = !c->pads && channels_of(l, c, c->as);
    c->depth = c->limbs ? whole(terms, c->parts * LIMBS_DEPTH) : padded(terms);
}

beryl_status contract_copy(lowering *l, contraction *c) {
    beryl_status status = BERYL_OK;
    for (uint32_t t = 0; t < OUT && status == BERYL_OK; t++) {
        c->copied[t] = c->pads || (c->turns && c->as[t].apart > 1);
        if (c->pads) status = c->limbs ? pad_limbs(l, c, t) : pad(l, c, t);
        else if (c->copied[t]) status = turn(l, c, t, &c->as[t]);
    }
    for (uint32_t t = 0; t < OUT && c->turns; t++)
        if (!t || c->as[t].kind != c->as[A].kind) put_last(&c->of[c->as[t].kind], c->as[t].axis);
    for (uint32_t i = CLASS_OUTER; i < CLASSES && c->pads; i++)
        round_up(&c->of[i], i == CLASS_DEPTH ? c->depth
                            : c->limbs       ? whole(c->of[i].bound, LIMBS_SIDE)
                                             : padded(c->of[i].bound));
    return status;
}
