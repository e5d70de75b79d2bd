/* fragment.c - products of matrices on matrix units.
 *
 *     loop m parallel                       loop over tiles of m, n (by group)
 *       loop n parallel                       fragments c = 0
 *         acc = init                          loop o = 0, k, S
 *         loop k reduce           ->            all lanes: tiles of a and b to workgroup memory;
 * barrier acc += a(m, k) * b(n, k)            fragments a, b = load; c += a * b rest of the body
 * barrier c to workgroup memory; for each m, n of the tile: acc = init; acc += c[m, n]; rest of
 * the body
 *
 * Owns two nested parallel loops around one reduction whose factors are casts of f16 or bf16
 * values, one that depends on m and k, one on n and k; the rest of the body may be anything and
 * is kept as it is. A subgroup computes `block` fragments of 16 rows (m) by `block` of 8 columns
 * (n), `lanes` subgroups stand side by side on each axis, `stage` steps of k lie in workgroup
 * memory. Beyond the edges a and b are read at the last place, products beyond k are zero, and
 * nothing is stored. A parallel loop around both, whose turns groups share on the third axis,
 * stays around the tiles: its index and what is made of it (bounds too) are the same for all of
 * a product. A factor may be two loads, one of the first turns of k, another of the rest. With
 * places for more than one tile (`unroll`) factors that lie in memory as they are come by
 * asynchronous copies, those that are computed by registers, while the tiles before are
 * multiplied. Refuses everything else. */
#include "ir/pass/fragment_inside.h"

#include "base/build.h"

#include <string.h>
static ir_id bound(product *p, uint32_t loop) {
    ir_id to = pass_at(p->e, loop)->in[1];
    return to < p->m ? p->e->map[to] : pass_u32(p->e, (uint32_t)pass_at(p->e, to)->imm);
}

static ir_id block_loop(product *p, uint32_t count) {
    pass_edit *e = p->e;
    ir_mark mark = {.kind = IR_BLOCK, .tile = count};
    if (count == 1) return pass_u32(e, 0);
    return pass_loop(e, pass_u32(e, 0), pass_u32(e, count), pass_u32(e, 1), ir_mark_bits(mark, 0));
}

static void block_end(product *p, uint32_t count) {
    if (count > 1) pass_close(p->e);
}

static ir_id add(pass_edit *e, ir_id x, ir_id y) {
    return pass_binary(e, IR_ADD, x, y);
}
static ir_id times(pass_edit *e, ir_id x, uint32_t by) {
    return pass_binary(e, IR_MUL, x, pass_u32(e, by));
}

static void plain(pass_edit *e, ir_op op) {
    pass_push(e,
              (ir_instruction){.op = (uint8_t)op, .in = {IR_NO_ID, IR_NO_ID, IR_NO_ID, IR_NO_ID}});
}

static ir_id clone(product *p, ir_id id, ir_id index, uint32_t loop, ir_id k) {
    pass_edit *e = p->e;
    if (id == p->turn) return k;
    if (id == loop) return index;
    if (id < p->m) return e->map[id];
    if (p->seen[id] == p->stamp) return p->cloned[id];
    ir_instruction copy = *pass_at(e, id);
    for (uint32_t a = 0; a < copy.n_in; a++)
        if (copy.in[a] != IR_NO_ID) copy.in[a] = clone(p, copy.in[a], index, loop, k);
    p->seen[id] = p->stamp;
    return p->cloned[id] = pass_push(e, copy);
}

/* How many neighbours in k a lane brings at once, and how often. */
static uint32_t width_of(const product *p, const side *s) {
    const uint32_t most = p->e->schedule->vector, lanes = p->subgroup * p->a.warps * p->b.warps;
    uint32_t wide = most >= 8 ? 8 : most >= 4 ? 4 : most >= 2 ? 2 : 1;
    while (s->n_load != 1 && wide * 2 <= p->depth && s->size * p->depth >= wide * 2 * lanes)
        wide *= 2; /* what neighbours share is computed once */
    return wide;
}

static uint32_t turns_of(const product *p, const side *s) {
    const uint32_t lanes = p->subgroup * p->a.warps * p->b.warps;
    return (s->size * p->depth / width_of(p, s) + lanes - 1) / lanes;
}

/* The factor's row `index` at k = outer + kk: beyond the edge the last row, beyond k zero. */
static ir_id value_of(product *p, side *s, ir_id index, ir_id outer, ir_id kk) {
    pass_edit *e = p->e;
    const ir_instruction *k_loop = pass_at(e, p->k), *row_loop = pass_at(e, s->loop);
    ir_id k = add(e, outer, kk), inside = IR_NO_ID;
    if (!pass_count_multiple(e, e->in->code, row_loop->in[0], row_loop->in[1], s->size))
        index = pass_binary(e, IR_MIN, index,
                            pass_binary(e, IR_SUB, bound(p, s->loop), pass_u32(e, 1)));
    if (!pass_count_multiple(e, e->in->code, k_loop->in[0], k_loop->in[1], p->depth)) {
        ir_id to = bound(p, p->k);
        inside = pass_binary(e, IR_LT, k, to);
        k = pass_binary(e, IR_MIN, k, pass_binary(e, IR_SUB, to, pass_u32(e, 1)));
    }
    p->stamp++;
    ir_id value = clone(p, s->value, index, s->loop, k);
    if (inside == IR_NO_ID) return value;
    return pass_push(
        e, (ir_instruction){.op = IR_SELECT,
                            .type = (uint8_t)p->type,
                            .width = 1,
                            .n_in = 3,
                            .in = {inside, value, pass_bits(e, p->type, 1, 0), IR_NO_ID}});
}

/* Where an element of the tile in a slot is. */
static ir_id place_of(product *p, const side *s, ir_id slot, ir_id row, ir_id kk) {
    pass_edit *e = p->e;
    const ir_id line = s->across ? kk : row, in_line = s->across ? row : kk;
    if (p->direct) {
        const ir_id line_at =
                        add(e,
                            times(e, pass_binary(e, IR_DIV, in_line, pass_u32(e, LINE)),
                                  fragment_tile_size(p, s) / (s->across ? s->size : LINE) * LINE),
                            times(e, line, LINE)),
                    tile = add(
                        e,
                        times(e, slot, fragment_tile_size(p, &p->a) + fragment_tile_size(p, &p->b)),
                        pass_u32(e, s == &p->b ? fragment_tile_size(p, &p->a) : 0));
        return add(e, add(e, tile, line_at), pass_binary(e, IR_MOD, in_line, pass_u32(e, LINE)));
    }
    return add(e, times(e, slot, fragment_tile_size(p, s)),
               add(e, times(e, line, fragment_line_stride(p, s)), in_line));
}

/* Row and k of piece `part` of a tile, of `wide` neighbours in memory. */
static void piece_of(product *p, const side *s, ir_id part, uint32_t wide, ir_id *row, ir_id *kk) {
    pass_edit *e = p->e;
    const ir_id each = pass_u32(e, (s->across ? s->size : p->depth) / wide),
                line = pass_binary(e, IR_DIV, part, each),
                in_line = times(e, pass_binary(e, IR_MOD, part, each), wide);
    *row = s->across ? in_line : line, *kk = s->across ? line : in_line;
}

/* All lanes bring rows [first, first + size) at k = outer .. of one factor, or half of that way
 * with registers in between. Tile: [slots, size, depth + PAD], or across [slots, depth, size + PAD]
 */
static void fill(product *p, side *s, way along, ir_id slot, ir_id outer) {
    pass_edit *e = p->e;
    const uint32_t lanes = p->subgroup * p->a.warps * p->b.warps, wide = width_of(p, s),
                   turns = turns_of(p, s);
    const uint32_t parts = s->size * p->depth / wide;
    ir_id turn = block_loop(p, turns), part = add(e, times(e, turn, lanes), pass_lane_number(e));
    if (parts % lanes) pass_if(e, pass_binary(e, IR_LT, part, pass_u32(e, parts)));
    ir_id row, kk;
    piece_of(p, s, part, wide, &row, &kk);
    ir_id one = block_loop(p, wide), held = add(e, times(e, turn, wide), one);
    if (s->across) row = add(e, row, one);
    else kk = add(e, kk, one);
    ir_id value = along == FROM_REGISTERS ? pass_load(e, p->type, 1, s->held, held)
                                          : value_of(p, s, add(e, s->first, row), outer, kk);
    if (along == TO_REGISTERS) pass_store(e, s->held, held, value);
    else pass_store(e, s->memory, place_of(p, s, slot, row, kk), value);
    block_end(p, wide);
    if (parts % lanes) pass_close(e);
    block_end(p, turns);
}

/* Begins to bring 16 bytes of load `which` of the factor: row `index`, from `turn` of k on. */
static void copy_piece(product *p, const side *s, uint32_t which, ir_id index, ir_id turn, ir_id to,
                       ir_id inside) {
    const ir_instruction *load = pass_at(p->e, s->load[which]);
    p->stamp++;
    p->turn = s->turn[which];
    const ir_id from = clone(p, load->in[0], index, s->loop, turn);
    p->turn = p->k;
    pass_push(p->e, (ir_instruction){.op = IR_COPY_ASYNC,
                                     .n_in = 3,
                                     .space = IR_WORKGROUP,
                                     .array = s->memory.array,
                                     .in = {to, from, inside, IR_NO_ID},
                                     .imm = load->array | (uint64_t)(PIECE * 2) << 16});
}

/* A value before the loops, or a number. */
static ir_id known(product *p, ir_id id) {
    uint32_t number;
    return pass_const(p->e->in->code, id, &number) ? pass_u32(p->e, number) : p->e->map[id];
}

/* The same of a factor that is one load below its split, and another from there on; k: of the
 * piece, which begins in the tile at `outer`. */
static void copy_either(product *p, const side *s, ir_id index, ir_id outer, ir_id k, ir_id to) {
    pass_edit *e = p->e;
    const ir_id split = known(p, s->split),
                at = pass_multiple(e, e->in->code, s->split) % p->depth ? k : outer,
                below = pass_binary(e, IR_LT, at, split);
    if (p->copies == EITHER) pass_if(e, below);
    if (p->copies != ABOVE_SPLIT) copy_piece(p, s, 0, index, k, to, below);
    if (p->copies == EITHER) {
        pass_close(e);
        pass_if(e, pass_binary(e, IR_GE, at, split));
    }
    if (p->copies != BELOW_SPLIT)
        copy_piece(p, s, 1, index, k, to, pass_binary(e, IR_LT, k, bound(p, p->k)));
    if (p->copies == EITHER) pass_close(e);
}

/* Begins to bring share `which` of `of` of the tile at k = outer to its slot, in pieces of 16
 * bytes; beyond `inside` zeros. */
static void copy_tile(product *p, side *s, ir_id slot, ir_id outer, ir_id inside, uint32_t which,
                      uint32_t of) {
    pass_edit *e = p->e;
    const ir_instruction *row_loop = pass_at(e, s->loop), *k_loop = pass_at(e, p->k);
    uint32_t lanes = p->subgroup * p->a.warps * p->b.warps, parts = s->size * p->depth / PIECE;
    uint32_t turns = (parts + lanes - 1) / lanes, first = turns * which / of,
             last = turns * (which + 1) / of;
    if (first == last) return;
    ir_id turn = add(e, block_loop(p, last - first), pass_u32(e, first));
    ir_id part = add(e, times(e, turn, lanes), pass_lane_number(e));
    if (parts % lanes) pass_if(e, pass_binary(e, IR_LT, part, pass_u32(e, parts)));
    ir_id row, kk;
    piece_of(p, s, part, PIECE, &row, &kk);
    ir_id index = add(e, s->first, row), k = add(e, outer, kk);
    if (!pass_count_multiple(e, e->in->code, row_loop->in[0], row_loop->in[1], s->size))
        index = pass_binary(
            e, IR_MIN, index,
            pass_binary(e, IR_SUB, bound(p, s->loop), pass_u32(e, s->across ? PIECE : 1)));
    if (!pass_count_multiple(e, e->in->code, k_loop->in[0], k_loop->in[1], p->depth))
        inside = pass_binary(e, IR_LT, k, bound(p, p->k));
    const ir_id to = place_of(p, s, slot, row, kk);
    if (s->n_load == 1) copy_piece(p, s, 0, index, k, to, inside);
    else copy_either(p, s, index, outer, k, to);
    if (parts % lanes) pass_close(e);
    block_end(p, last - first);
}

static void copy_both(product *p, ir_id slot, ir_id outer, uint32_t which, uint32_t of) {
    pass_edit *e = p->e;
    ir_id inside = pass_binary(e, IR_LT, outer, bound(p, p->k));
    copy_tile(p, &p->a, slot, outer, inside, which, of);
    copy_tile(p, &p->b, slot, outer, inside, which, of);
    if (which + 1 == of) plain(e, IR_COPY_COMMIT);
}

static void count(product *p, ir_op op, uint32_t under_way) {
    pass_push(p->e, (ir_instruction){.op = (uint8_t)op,
                                     .in = {IR_NO_ID, IR_NO_ID, IR_NO_ID, IR_NO_ID},
                                     .imm = under_way});
}

static void fragment_memory(product *p, ir_op op, uint16_t fragment, ir_memory memory, ir_id place,
                            ir_id index, uint32_t stride, bool transposed) {
    pass_edit *e = p->e;
    ir_instruction i = {.op = (uint8_t)op,
                        .n_in = 3,
                        .space = memory.space,
                        .array = memory.array,
                        .in = {place, index, pass_u32(e, stride), IR_NO_ID},
                        .imm = fragment | (uint64_t)transposed << 16};
    pass_push(e, i);
}

/* One step of DEPTH, which begins at `step` in the tile. */
static void multiply(product *p, ir_id warp_m, ir_id warp_n, ir_id slot, ir_id step) {
    pass_edit *e = p->e;
    ir_id i = block_loop(p, p->a.each);
    ir_id row = times(e, add(e, times(e, warp_m, p->a.each), i), ROWS);
    fragment_memory(p, IR_FRAGMENT_LOAD, p->fragments[1], p->a.memory, i,
                    place_of(p, &p->a, slot, row, step), fragment_line_stride(p, &p->a),
                    p->a.across);
    block_end(p, p->a.each);
    ir_id j = block_loop(p, p->b.each);
    ir_id column = times(e, add(e, times(e, warp_n, p->b.each), j), COLUMNS);
    fragment_memory(p, IR_FRAGMENT_LOAD, p->fragments[2], p->b.memory, j,
                    place_of(p, &p->b, slot, column, step), fragment_line_stride(p, &p->b),
                    !p->b.across);
    block_end(p, p->b.each);
    i = block_loop(p, p->a.each);
    j = block_loop(p, p->b.each);
    pass_push(e, (ir_instruction){.op = IR_FRAGMENT_MMA,
                                  .n_in = 3,
                                  .in = {add(e, times(e, i, p->b.each), j), i, j, IR_NO_ID},
                                  .imm = p->fragments[0] | (uint64_t)p->fragments[1] << 16 |
                                         (uint64_t)p->fragments[2] << 32});
    block_end(p, p->b.each);
    block_end(p, p->a.each);
}

/* A whole tile, straight from its slot; it is under way afterwards. */
static void multiply_direct(product *p, ir_id warp, ir_id slot) {
    pass_edit *e = p->e;
    const ir_id zero = pass_u32(e, 0);
    const ir_id first = times(e, pass_binary(e, IR_DIV, warp, pass_u32(e, WARPS)), WARPS * ROWS);
    pass_push(e, (ir_instruction){.op = IR_FRAGMENT_MULTIPLY,
                                  .n_in = 2,
                                  .space = IR_WORKGROUP,
                                  .array = p->a.memory.array,
                                  .in = {place_of(p, &p->a, slot, first, zero),
                                         place_of(p, &p->b, slot, zero, zero), IR_NO_ID, IR_NO_ID},
                                  .imm = p->fragments[0] | (uint64_t)p->a.across << 16 |
                                         (uint64_t)p->b.across << 17 |
                                         (uint64_t)(p->depth / DEPTH) << 24});
}

/* The body of m and n once more, for one element, with the sum in the reduction's place. */
static void body(product *p, ir_id m, ir_id n, ir_id inside, ir_id value) {
    pass_edit *e = p->e;
    uint32_t sum_place = 0;
    e->map[p->m] = m;
    for (uint32_t i = p->m + 1; i < p->n; i++) pass_copy(e, i);
    e->map[p->n] = n;
    for (uint32_t i = p->n + 1; i < e->close[p->n]; i++) {
        if (i == p->k) {
            for (uint32_t x = p->k; x < e->close[p->k]; x++)
                if (pass_at(e, x)->op == IR_STORE)
                    pass_const(e->in->code, pass_at(e, x)->in[0], &sum_place);
            ir_memory sum = {.space = IR_REGISTER, .array = p->array};
            ir_id place = pass_u32(e, sum_place);
            pass_store(e, sum, place,
                       pass_binary(e, IR_ADD, pass_load(e, IR_F32, 1, sum, place), value));
            i = e->close[p->k];
        } else if (inside != IR_NO_ID && pass_is_effect(pass_at(e, i)))
            pass_copy_guarded(e, i, i + 1, inside);
        else pass_copy(e, i);
    }
}

/* The index, at most the loop's last; *inside: and whether it was. */
static ir_id clamped(product *p, uint32_t loop, ir_id index, ir_id *inside) {
    pass_edit *e = p->e;
    ir_id end = bound(p, loop), here = pass_binary(e, IR_LT, index, end);
    *inside = *inside == IR_NO_ID ? here : pass_binary(e, IR_AND, *inside, here);
    return pass_binary(e, IR_MIN, index, pass_binary(e, IR_SUB, end, pass_u32(e, 1)));
}

/* c leaves by workgroup memory, `strip` fragments of each subgroup at a time: [warps, 16, strip
 * * 8 + PAD] */
static void finish(product *p, ir_id warp, ir_id warp_m, ir_id warp_n, ir_memory strip) {
    pass_edit *e = p->e;
    const ir_instruction *m_loop = pass_at(e, p->m), *n_loop = pass_at(e, p->n);
    uint32_t columns = p->strip * COLUMNS, stride = fragment_strip_stride(p),
             wide = e->schedule->vector >= 4 ? 4 : 1, elements = ROWS * columns / wide;
    ir_id i = block_loop(p, p->a.each), j = block_loop(p, p->b.each / p->strip);
    ir_id start = times(e, warp, ROWS * stride), x = block_loop(p, p->strip);
    ir_id place = add(e, add(e, times(e, i, p->b.each), times(e, j, p->strip)), x);
    fragment_memory(p, IR_FRAGMENT_STORE, p->whole, strip, place,
                    add(e, start, times(e, x, COLUMNS)), stride, false);
    block_end(p, p->strip);
    plain(e, IR_BARRIER);
    uint32_t turns = (elements + p->subgroup - 1) / p->subgroup;
    ir_id at = add(e, times(e, block_loop(p, turns), p->subgroup), pass_axis(e, IR_LOCAL, 0)),
          inside = IR_NO_ID;
    bool ragged = elements % p->subgroup != 0;
    if (ragged) pass_if(e, pass_binary(e, IR_LT, at, pass_u32(e, elements)));
    ir_id row = pass_binary(e, IR_DIV, at, pass_u32(e, columns / wide)),
          column = times(e, pass_binary(e, IR_MOD, at, pass_u32(e, columns / wide)), wide);
    column = add(e, column, block_loop(p, wide));
    ir_id m =
        add(e, p->a.first, add(e, times(e, add(e, times(e, warp_m, p->a.each), i), ROWS), row));
    ir_id n =
        add(e, p->b.first,
            add(e, times(e, warp_n, p->b.each * COLUMNS), add(e, times(e, j, columns), column)));
    if (!pass_count_multiple(e, e->in->code, m_loop->in[0], m_loop->in[1], p->a.size))
        m = clamped(p, p->m, m, &inside);
    if (!pass_count_multiple(e, e->in->code, n_loop->in[0], n_loop->in[1], p->b.size))
        n = clamped(p, p->n, n, &inside);
    body(p, m, n, inside,
         pass_load(e, IR_F32, 1, strip, add(e, start, add(e, times(e, row, stride), column))));
    block_end(p, wide);
    if (ragged) pass_close(e);
    block_end(p, turns);
    plain(e, IR_BARRIER);
    block_end(p, p->b.each / p->strip);
    block_end(p, p->a.each);
}

static uint16_t add_fragment(pass_edit *e, ir_role role, ir_type type, uint32_t count) {
    if (e->out.n_fragment == IR_ARRAY_MAX) {
        e->too_large = true;
        return 0;
    }
    e->fragments[e->out.n_fragment] = (ir_fragment_decl){role, type, ROWS, COLUMNS, DEPTH, count};
    return (uint16_t)e->out.n_fragment++;
}

static void clear(product *p, uint16_t fragment) {
    pass_edit *e = p->e;
    const uint32_t sums = p->a.each * p->b.each;
    const ir_id c = block_loop(p, sums);
    pass_push(e, (ir_instruction){.op = IR_FRAGMENT_FILL,
                                  .n_in = 2,
                                  .array = fragment,
                                  .in = {c, pass_bits(e, IR_F32, 1, 0), IR_NO_ID, IR_NO_ID}});
    block_end(p, sums);
}

static void tile_loop(product *p, side *s) {
    pass_edit *e = p->e;
    ir_mark mark = {.kind = IR_BY_GROUP,
                    .axis = s->axis,
                    .dim = ir_mark_of(pass_at(e, s->loop)).dim,
                    .tile = s->size};
    ir_id from = times(e, pass_axis(e, IR_GROUP, s->axis), s->size),
          step = times(e, pass_axis(e, IR_GROUPS, s->axis), s->size);
    s->first = pass_loop(e, from, bound(p, s->loop), step, ir_mark_bits(mark, 0));
}

/* Loads, a barrier, products, a barrier. */
static void by_stores(product *p, ir_id warp_m, ir_id warp_n) {
    pass_edit *e = p->e;
    ir_id outer = pass_loop(e, pass_u32(e, 0), bound(p, p->k), pass_u32(e, p->depth), 0),
          first = pass_u32(e, 0);
    fill(p, &p->a, WHOLE_WAY, first, outer);
    fill(p, &p->b, WHOLE_WAY, first, outer);
    plain(e, IR_BARRIER);
    ir_id step = times(e, block_loop(p, p->depth / DEPTH), DEPTH);
    multiply(p, warp_m, warp_n, first, step);
    block_end(p, p->depth / DEPTH);
    plain(e, IR_BARRIER);
    pass_close(e);
}

/* Begins to bring the tiles at k = outer: by copies, or to registers (along), or at once. */
static void bring(product *p, way along, ir_id slot, ir_id outer) {
    pass_edit *e = p->e;
    side *sides[2] = {&p->a, &p->b};
    const bool copies = p->a.copied || p->b.copied;
    ir_id inside = copies ? pass_binary(e, IR_LT, outer, bound(p, p->k)) : IR_NO_ID;
    for (uint32_t i = 0; i < 2; i++)
        if (sides[i]->copied) copy_tile(p, sides[i], slot, outer, inside, 0, 1);
    if (copies) plain(e, IR_COPY_COMMIT);
    for (uint32_t i = 0; i < 2; i++)
        if (!sides[i]->copied) fill(p, sides[i], along, slot, outer);
}

/* While one pair of tiles is multiplied the next is under way to the other slot, by copies or by
 * registers: a barrier a turn. The last one is brought once more, for nobody. */
static void by_turns(product *p, ir_id warp_m, ir_id warp_n) {
    pass_edit *e = p->e;
    const ir_instruction *k_loop = pass_at(e, p->k);
    side *sides[2] = {&p->a, &p->b};
    for (uint32_t i = 0; i < 2; i++)
        if (!sides[i]->copied)
            sides[i]->held =
                pass_register(e, p->type, turns_of(p, sides[i]) * width_of(p, sides[i]));
    ir_id one = pass_u32(e, 1), depth = pass_u32(e, p->depth), to = bound(p, p->k);
    bring(p, WHOLE_WAY, pass_u32(e, 0), pass_u32(e, 0));
    ir_id outer = pass_loop(e, pass_u32(e, 0), to, depth, 0),
          turn = pass_binary(e, IR_DIV, outer, depth);
    ir_id slot = pass_binary(e, IR_AND, turn, one),
          other = pass_binary(e, IR_AND, add(e, turn, one), one), next = add(e, outer, depth);
    if (p->a.copied || p->b.copied) count(p, IR_COPY_WAIT, 0);
    plain(e, IR_BARRIER);
    if (pass_count_multiple(e, e->in->code, k_loop->in[0], k_loop->in[1], p->depth))
        next = pass_binary(e, IR_MIN, next, pass_binary(e, IR_SUB, to, depth));
    bring(p, TO_REGISTERS, other, next);
    for (uint32_t s = 0; s < p->depth / DEPTH; s++)
        multiply(p, warp_m, warp_n, slot, pass_u32(e, s * DEPTH));
    for (uint32_t i = 0; i < 2; i++)
        if (!sides[i]->copied) fill(p, sides[i], FROM_REGISTERS, other, next);
    pass_close(e);
    if (p->a.copied || p->b.copied) count(p, IR_COPY_WAIT, 0);
    plain(e, IR_BARRIER);
}

/* The first tiles are under way. */
static void begin_copies(product *p, uint32_t ahead) {
    pass_edit *e = p->e;
    for (uint32_t n = 0; n < ahead; n++)
        copy_both(p, pass_u32(e, n), pass_u32(e, n * p->depth), 0, 1);
}

/* A loop over tiles, so many of which are under way before it; a turn's own are there. */
static ir_id open_copied(product *p, uint32_t ahead, ir_id from, ir_id to) {
    pass_edit *e = p->e;
    const ir_id outer = pass_loop(e, from, to, pass_u32(e, p->depth), 0);
    count(p, IR_COPY_WAIT, ahead - 1);
    plain(e, IR_BARRIER);
    return outer;
}

/* The tiles of the next slots - 1 turns are under way while one is multiplied; the copies of the
 * last of them begin a few at a time between its steps, so that they keep nobody from
 * multiplying. A slot is written again only after the barrier that all lanes reach behind its
 * products. */
static void copied_turns(product *p, ir_id warp_m, ir_id warp_n, ir_id from, ir_id to) {
    pass_edit *e = p->e;
    uint32_t ahead = p->slots - 1, steps = p->depth / DEPTH;
    const ir_id outer = open_copied(p, ahead, from, to), slots = pass_u32(e, p->slots),
                turn = pass_binary(e, IR_DIV, outer, pass_u32(e, p->depth));
    ir_id next = pass_binary(e, IR_MOD, add(e, turn, pass_u32(e, ahead)), slots);
    ir_id then = add(e, outer, pass_u32(e, ahead * p->depth)),
          slot = pass_binary(e, IR_MOD, turn, slots);
    for (uint32_t s = 0; s < steps; s++) {
        multiply(p, warp_m, warp_n, slot, pass_u32(e, s * DEPTH));
        copy_both(p, next, then, s, steps);
    }
    pass_close(e);
}

/* The turn from which on tiles that are so many ahead lie above the split of both factors: a loop
 * that is cut there has no copy that asks. IR_NO_ID: the split is inside of a tile, or there is
 * none. */
static ir_id cut_of(product *p, uint32_t ahead) {
    pass_edit *e = p->e;
    const ir_id before = pass_u32(e, ahead * p->depth);
    if (p->a.n_load != 2 || p->b.n_load != 2 || p->a.split != p->b.split ||
        pass_multiple(e, e->in->code, p->a.split) % p->depth)
        return IR_NO_ID;
    return pass_binary(e, IR_SUB, pass_binary(e, IR_MAX, known(p, p->a.split), before), before);
}

static void by_copies(product *p, ir_id warp_m, ir_id warp_n) {
    pass_edit *e = p->e;
    const uint32_t ahead = p->slots - 1;
    const ir_id cut = cut_of(p, ahead), zero = pass_u32(e, 0);
    begin_copies(p, ahead);
    if (cut != IR_NO_ID) {
        p->copies = BELOW_SPLIT;
        copied_turns(p, warp_m, warp_n, zero, cut);
        p->copies = ABOVE_SPLIT;
    }
    copied_turns(p, warp_m, warp_n, cut == IR_NO_ID ? zero : cut, bound(p, p->k));
    count(p, IR_COPY_WAIT, 0);
    plain(e, IR_BARRIER);
}

/* One tile of each factor has all of k: what hides its loads are other workgroups. */
static void by_once(product *p, ir_id warp_m, ir_id warp_n) {
    pass_edit *e = p->e;
    begin_copies(p, 1);
    count(p, IR_COPY_WAIT, 0);
    plain(e, IR_BARRIER);
    for (uint32_t s = 0; s < p->depth / DEPTH; s++)
        multiply(p, warp_m, warp_n, pass_u32(e, 0), pass_u32(e, s * DEPTH));
}

/* The loop over stretches of k, whose sums are added to the whole ones: all rounds but the last
 * are one, of that one STRETCH turns. *from, *to: what a stretch has. */
static void open_stretches(product *p, ir_id *from, ir_id *to) {
    enum { STRETCH = 8 };
    pass_edit *e = p->e;
    const ir_id end = *to, zero = *from, one = pass_u32(e, 1),
                all = pass_binary(e, IR_DIV, add(e, end, pass_u32(e, p->depth - 1)),
                                  pass_u32(e, p->depth)),
                last = pass_binary(e, IR_DIV, all, pass_u32(e, p->rounds)),
                n = add(e,
                        pass_binary(e, IR_DIV, add(e, last, pass_u32(e, STRETCH - 1)),
                                    pass_u32(e, STRETCH)),
                        one),
                first = times(e, pass_binary(e, IR_SUB, all, last), p->depth),
                i = pass_loop(e, zero, n, one, 0),
                stop = add(e, first, times(e, i, STRETCH * p->depth));
    const ir_instruction begin = {
        .op = IR_SELECT,
        .type = IR_U32,
        .width = 1,
        .n_in = 3,
        .in = {pass_binary(e, IR_EQ, i, zero), zero,
               pass_binary(e, IR_SUB, stop, pass_u32(e, STRETCH * p->depth)), IR_NO_ID}};
    *from = pass_push(e, begin);
    *to = pass_binary(e, IR_MIN, end, stop);
}

/* whole += c; c = 0 */
static void add_stretch(product *p) {
    pass_edit *e = p->e;
    const uint32_t sums = p->a.each * p->b.each;
    const ir_id place = block_loop(p, sums);
    for (uint64_t pair = 0; pair < 2; pair++) {
        const uint16_t of[2] = {p->whole, p->fragments[0]};
        ir_id x[2];
        for (uint32_t i = 0; i < 2; i++)
            x[i] = pass_push(e, (ir_instruction){.op = IR_FRAGMENT_GET,
                                                 .type = IR_F32,
                                                 .width = 2,
                                                 .n_in = 1,
                                                 .in = {place, IR_NO_ID, IR_NO_ID, IR_NO_ID},
                                                 .imm = of[i] | pair << 16});
        pass_push(e, (ir_instruction){.op = IR_FRAGMENT_SET,
                                      .n_in = 2,
                                      .in = {place, add(e, x[0], x[1]), IR_NO_ID, IR_NO_ID},
                                      .imm = p->whole | pair << 16});
    }
    block_end(p, sums);
    clear(p, p->fragments[0]);
}

/* The same where products go on while the lanes prepare the next: a slot is written again when the
 * products two turns before are done with it. */
static void direct_turns(product *p, ir_id warp, ir_id from, ir_id to) {
    pass_edit *e = p->e;
    const uint32_t ahead = p->slots - 2;
    const ir_id outer = open_copied(p, ahead, from, to), slots = pass_u32(e, p->slots),
                turn = pass_binary(e, IR_DIV, outer, pass_u32(e, p->depth));
    multiply_direct(p, warp, pass_binary(e, IR_MOD, turn, slots));
    copy_both(p, pass_binary(e, IR_MOD, add(e, turn, pass_u32(e, ahead)), slots),
              add(e, outer, pass_u32(e, ahead * p->depth)), 0, 1);
    count(p, IR_FRAGMENT_WAIT, 1);
    pass_close(e);
}

static void by_direct(product *p, ir_id warp) {
    pass_edit *e = p->e;
    const uint32_t ahead = p->slots - 2;
    const ir_id cut = p->rounds ? IR_NO_ID : cut_of(p, ahead);
    begin_copies(p, ahead);
    ir_id from = pass_u32(e, 0), to = bound(p, p->k);
    if (p->rounds) open_stretches(p, &from, &to);
    if (cut != IR_NO_ID) {
        p->copies = BELOW_SPLIT;
        direct_turns(p, warp, from, cut);
        p->copies = ABOVE_SPLIT;
        from = cut;
    }
    direct_turns(p, warp, from, to);
    count(p, IR_FRAGMENT_WAIT, 0);
    if (p->rounds) {
        add_stretch(p);
        pass_close(e);
    }
    count(p, IR_COPY_WAIT, 0);
    plain(e, IR_BARRIER);
}

static void push(product *p) {
    pass_edit *e = p->e;
    uint32_t *workgroup = e->out.workgroup, sums = p->a.each * p->b.each;
    p->turn = p->k;
    p->copies = EITHER;
    workgroup[0] = p->subgroup, workgroup[1] = p->b.warps, workgroup[2] = p->a.warps;
    e->out.subgroup_size = p->subgroup;
    p->whole = p->fragments[0] = add_fragment(e, IR_ROLE_C, IR_F32, sums);
    if (p->rounds) p->whole = add_fragment(e, IR_ROLE_C, IR_F32, sums);
    if (p->direct) {
        p->a.memory = p->b.memory = pass_workgroup(
            e, p->type, p->slots * (fragment_tile_size(p, &p->a) + fragment_tile_size(p, &p->b)));
        ir_array_decl *a = &e->workgroups[p->a.memory.array];
        a->swizzle_bits = a->swizzle_base = a->swizzle_shift = 3;
    } else {
        p->fragments[1] = add_fragment(e, IR_ROLE_A, p->type, p->a.each);
        p->fragments[2] = add_fragment(e, IR_ROLE_B, p->type, p->b.each);
        p->a.memory = pass_workgroup(e, p->type, p->slots * fragment_tile_size(p, &p->a));
        p->b.memory = pass_workgroup(e, p->type, p->slots * fragment_tile_size(p, &p->b));
    }
    ir_memory strip =
        pass_workgroup(e, IR_F32, p->a.warps * p->b.warps * ROWS * fragment_strip_stride(p));
    ir_id warp_n = pass_axis(e, IR_LOCAL, 1), warp_m = pass_axis(e, IR_LOCAL, 2);
    ir_id warp = add(e, times(e, warp_m, p->b.warps), warp_n);
    if (p->outer != IR_NO_ID) {
        const ir_mark mark = {.kind = IR_BY_GROUP,
                              .axis = OUTER_AXIS,
                              .dim = ir_mark_of(pass_at(e, p->outer)).dim,
                              .tile = 1};
        e->map[p->outer] = pass_loop(e, pass_axis(e, IR_GROUP, OUTER_AXIS), bound(p, p->outer),
                                     pass_axis(e, IR_GROUPS, OUTER_AXIS), ir_mark_bits(mark, 0));
        pass_copy_range(e, p->outer + 1, p->m);
    }
    tile_loop(p, &p->a);
    tile_loop(p, &p->b);
    clear(p, p->fragments[0]);
    if (p->whole != p->fragments[0]) clear(p, p->whole);
    if (p->direct) by_direct(p, warp);
    else if (p->once) by_once(p, warp_m, warp_n);
    else if (p->slots == 1) by_stores(p, warp_m, warp_n);
    else if (p->a.copied && p->b.copied) by_copies(p, warp_m, warp_n);
    else by_turns(p, warp_m, warp_n);
    finish(p, warp, warp_m, warp_n, strip);
    pass_close(e);
    pass_close(e);
    if (p->outer == IR_NO_ID) return;
    pass_copy_range(e, e->close[p->m] + 1, e->close[p->outer]);
    pass_close(e);
}

/* Do the loops at i make a product, on their own or once more for each turn of an outer one? */
static bool begins(product *p, uint32_t i) {
    p->m = i;
    p->outer = IR_NO_ID;
    if (fragment_find(p)) return true;
    p->outer = i;
    return ir_mark_of(pass_at(p->e, i)).kind == IR_PARALLEL && fragment_find(p);
}

beryl_status ir_pass_fragment(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule,
                              const ir_kernel **out, beryl_error *error) {
    uint32_t size = schedule->subgroup;
    *out = k;
    if (!BUILD_HAS_C_TEXTS || !schedule->fragments || size < 2 || size & (size - 1))
        return BERYL_OK;
    pass_edit *e = pass_begin(arena, k, schedule);
    product *p = e ? pass_take(e, 1, sizeof *p) : NULL;
    if (p) {
        p->e = e;
        p->seen = pass_take(e, k->n_code, sizeof *p->seen);
        p->cloned = pass_take(e, k->n_code, sizeof *p->cloned);
    }
    for (uint32_t i = 0; p && i < k->n_code && !e->no_memory && !e->too_large; i++) {
        if (e->changed || k->code[i].op != IR_LOOP || !begins(p, i)) {
            pass_copy(e, i);
            continue;
        }
        e->changed = true;
        push(p);
        i = e->close[i];
    }
    beryl_status status = pass_end(e, out, error);
    if (!status && *out != k && ir_verify(arena->heap, *out, NULL)) *out = k;
    return status;
}
