/* matvec_parts.c - parts of an adapter's A h, which products make of each tile of h that they have
 * at hand, and their sum where the next products take it (tile/matvec_low.h): no workgroup reads
 * all of A, and none stands beside the products for it alone.
 *
 * A word is two neighbouring rows' parts as BF16: half of what each workgroup of the next products
 * reads. */
#include "tile/matvec_low.h"
#include "tile/whole.h"

enum { WORDS_MAX = 8 /* that a lane reads */ };

bool matvec_parts_of(const lowering *l, const fused_matvec *f, matvec_parts *parts) {
    matvec_segment s;
    *parts = (matvec_parts){.to = 0};
    if (!f || !f->parts_of) return true;
    if (!matvec_segment_of(l, f->parts_of, graph_tensor_at(l->g, f->parts_of)->dim[1].size, &s) ||
        (base_type_is_quantised(s.type) && s.type != TYPE_Q8_0) || l->settings.exact ||
        lower_stored(l, f->parts_of)->n_shard != 1)
        return false;
    *parts = (matvec_parts){f->parts, f->parts_of, s.type, s.rows, s.first};
    return true;
}

bool matvec_parts_fit(const matvec_plan *p) {
    const uint32_t tile = matvec_tile_rows(p), pairs = p->low.made / 2;
    if (!p->parts.to && !p->low.n_part) return true;
    if (p->vectors.rows.bound != 1 || !p->c.subgroups || p->apart) return false;
    if (p->low.n_part && (whole_power_from(pairs) != pairs || pairs > p->c.span ||
                          p->low.n_part * pairs > WORDS_MAX * p->c.wg))
        return false;
    return !p->parts.to || (p->products.ends && p->products.end.n_out == 1 && p->n == 1 &&
                            tile % 4 == 0 && tile >= FUSED_PART_MIN && p->s[0].rows % tile == 0);
}

/* ---- made ------------------------------------------------------------------------------------ */

void matvec_parts_bind(matvec_making *k) {
    static const char *const names[] = {"parts_a", "parts_a0", "parts_a1", "parts_a2", "parts_a3"};
    const matvec_parts *parts = &k->p->parts;
    tile_kernel *ir = &k->m.k;
    const uint32_t n = k->p->s[0].rows;
    tile_factors_bind(ir, names, parts->a, parts->type, tile_weight_element(parts->type), n,
                      &k->parts_a);
    k->parts_first = tile_u32(ir, "parts_first", parts->first);
    k->parts_to = tile_write(ir, "parts_to", parts->to);
    lower_bytes(ir->l, parts->rows * base_type_row_bytes(parts->type, n));
}

/* Rounded to the upper half of a word. NaN stays what it is: its bits may all be set. */
static ir_id upper(ir_builder *b, ir_id x) {
    ir_id bits = ir_bitcast(b, IR_U32, 1, x),
          is_nan = ir_lt(b, ir_u32(b, 0x7f800000), tile_and(b, bits, 0x7fffffff));
    return ir_select(b, is_nan, bits, tile_add(b, bits, 0x8000));
}

static bool is_ahead(const matvec_making *k) {
    const uint32_t turns = whole_over(k->p->parts.rows / 2, k->m.c.wg / k->m.c.span);
    return turns * whole_over(k->tile / 4, k->m.c.span) <= PARTS_AHEAD_MAX;
}

/* Fours of a lane: pair `turn` of its subgroup's, `e` of the tile's. */
typedef struct spot {
    ir_id pair, inside, u, holds; /* is there such a pair, IR_NO_ID: and such a four? */
} spot;

static spot spot_of(matvec_making *k, uint32_t turn, uint32_t e) {
    ir_builder *b = k->m.k.b;
    const uint32_t fours = k->tile / 4, span = k->m.c.span, pairs = k->p->parts.rows / 2;
    ir_id own = tile_div(b, ir_local(b, 0), span), lane = tile_rem(b, ir_local(b, 0), span);
    spot s = {.pair = tile_add(b, own, turn * (k->m.c.wg / span)),
              .u = tile_add(b, lane, e * span),
              .holds = IR_NO_ID};
    s.inside = ir_lt(b, s.pair, ir_u32(b, pairs));
    s.pair = ir_min(b, s.pair, ir_u32(b, pairs - 1));
    if ((e + 1) * span <= fours) return s;
    s.holds = ir_lt(b, s.u, ir_u32(b, fours));
    s.u = ir_min(b, s.u, ir_u32(b, fours - 1));
    return s;
}

static void load_pair(matvec_making *k, ir_id tile, const spot *s, ir_id a[2]) {
    ir_builder *b = k->m.k.b;
    ir_id row = ir_add(b, tile_mul(b, s->pair, 2), k->parts_first),
          u = ir_add(b, tile_mul(b, tile, k->tile / 4), s->u);
    for (uint32_t i = 0; i < 2; i++)
        a[i] = tile_factors_four(b, &k->parts_a, tile_add(b, row, i), u);
}

void matvec_parts_fetch(matvec_making *k, ir_id tile) {
    const uint32_t turns = whole_over(k->p->parts.rows / 2, k->m.c.wg / k->m.c.span),
                   each = whole_over(k->tile / 4, k->m.c.span);
    for (uint32_t i = 0; is_ahead(k) && i < turns * each; i++) {
        const spot s = spot_of(k, i / each, i % each);
        load_pair(k, tile, &s, k->parts_ahead[i]);
    }
}

void matvec_parts_make(matvec_making *k, ir_id tile, bool fetched) {
    ir_builder *b = k->m.k.b;
    const uint32_t pairs = k->p->parts.rows / 2, turns = whole_over(pairs, k->m.c.wg / k->m.c.span),
                   each = whole_over(k->tile / 4, k->m.c.span);
    ir_id is_one = ir_eq(b, tile_rem(b, ir_local(b, 0), k->m.c.span), ir_u32(b, 0));
    for (uint32_t turn = 0; turn < turns; turn++) {
        ir_id sums[2] = {IR_NO_ID, IR_NO_ID};
        spot s;
        for (uint32_t e = 0; e < each; e++) {
            s = spot_of(k, turn, e);
            ir_id h = ir_load(b, k->handed, tile_mul(b, s.u, 4), 4), own[2], *a = own;
            if (s.holds != IR_NO_ID)
                h = ir_select(b, ir_splat(b, s.holds, 4), h, ir_number(b, IR_F32, 4, 0));
            if (fetched && is_ahead(k)) a = k->parts_ahead[turn * each + e];
            else load_pair(k, tile, &s, own);
            for (uint32_t i = 0; i < 2; i++)
                sums[i] = e ? ir_fma(b, a[i], h, sums[i]) : ir_mul(b, a[i], h);
        }
        for (uint32_t i = 0; i < 2; i++)
            sums[i] = upper(b, ir_subgroup_add(b, tile_sum_vector(b, sums[i])));
        ir_if(b, ir_and(b, s.inside, is_one));
        ir_store(b, k->parts_to, ir_add(b, tile_mul(b, tile, pairs), s.pair),
                 ir_or(b, ir_shr(b, sums[0], ir_u32(b, 16)), tile_and(b, sums[1], 0xffff0000)));
        ir_end(b);
    }
}

/* ---- taken ----------------------------------------------------------------------------------- */

void matvec_parts_bind_taken(matvec_making *k) {
    const matvec_plan *p = k->p;
    tile_kernel *ir = &k->m.k;
    k->parts = tile_bind(ir, "parts", p->low.parts, IR_U32, IR_READ);
    k->factors.scales = tile_read(ir, "factors", p->low.factors);
    k->part_sums = ir_workgroup(ir->b, IR_F32, k->m.c.wg / k->m.c.span * p->low.made);
    k->low = ir_workgroup(ir->b, IR_F32, p->low.made);
}

void matvec_parts_take(matvec_making *k) {
    ir_builder *b = k->m.k.b;
    const uint32_t pairs = k->p->low.made / 2, words = k->p->low.n_part * pairs, wg = k->m.c.wg;
    ir_id local = ir_local(b, 0), word[WORDS_MAX], sums[2] = {IR_NO_ID, IR_NO_ID};
    for (uint32_t s = 0; s * wg < words; s++) {
        ir_id i = tile_add(b, local, s * wg);
        const bool whole = (s + 1) * wg <= words;
        word[s] = ir_load(b, k->parts, whole ? i : ir_min(b, i, ir_u32(b, words - 1)), 1);
        if (!whole) word[s] = ir_select(b, ir_lt(b, i, ir_u32(b, words)), word[s], ir_u32(b, 0));
    }
    /* the lane's pair is the same in all of them */
    ir_id scales = ir_load(b, k->factors.scales, tile_mul(b, tile_rem(b, local, pairs), 2), 2);
    for (uint32_t s = 0; s * wg < words; s++) {
        ir_id of[2] = {tile_shl(b, word[s], 16), tile_and(b, word[s], 0xffff0000)};
        for (uint32_t i = 0; i < 2; i++) {
            of[i] = ir_bitcast(b, IR_F32, 1, of[i]);
            sums[i] = s ? ir_add(b, sums[i], of[i]) : of[i];
        }
    }
    for (uint32_t mask = pairs; mask < k->m.c.span; mask *= 2)
        for (uint32_t i = 0; i < 2; i++)
            sums[i] = ir_add(b, sums[i], ir_subgroup_shuffle_xor(b, sums[i], mask));
    ir_id lane = tile_rem(b, local, k->m.c.span), own = tile_div(b, local, k->m.c.span);
    for (uint32_t i = 0; i < 2; i++) sums[i] = ir_mul(b, sums[i], ir_extract(b, scales, i));
    ir_if(b, ir_lt(b, lane, ir_u32(b, pairs)));
    ir_store(b, k->part_sums, tile_mul(b, ir_add(b, tile_mul(b, own, pairs), lane), 2),
             ir_compose(b, sums, 2));
    ir_end(b);
}

void matvec_parts_end(matvec_making *k) {
    ir_builder *b = k->m.k.b;
    const uint32_t rows = k->p->low.made;
    ir_id local = ir_local(b, 0), sum = IR_NO_ID;
    ir_if(b, ir_lt(b, local, ir_u32(b, rows)));
    for (uint32_t s = 0; s < k->m.c.wg / k->m.c.span; s++) {
        ir_id part = ir_load(b, k->part_sums, tile_add(b, local, s * rows), 1);
        sum = s ? ir_add(b, sum, part) : part;
    }
    ir_store(b, k->low, local, sum);
    ir_end(b);
    ir_barrier(b);
}
