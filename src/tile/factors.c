/* factors.c - see tile/factors.h. */
#include "tile/factors.h"
#include "tile/matvec_inside.h"
#include "tile/vectors.h"

bool tile_factors_takes(base_type type, matvec_x x) {
    return x == MATVEC_SHARED || (x == MATVEC_INT8 && type == TYPE_Q8_0);
}

void tile_factors_bind(tile_kernel *k, const char *const names[1 + PACK_PLANE_MAX], graph_value a,
                       base_type type, ir_type element, uint32_t n, tile_weight *w) {
    const graph_pack_layout *layout = &lower_stored(k->l, a)->shard[0].layout;
    uint32_t word = 0;
    tile_weight_made(w, k, type, n, tile_weights(k, names[0], &a, 1, element, &word));
    for (uint32_t j = 0; j < layout->n_plane; j++)
        w->plane[j] =
            tile_u32(k, names[1 + j], (uint32_t)(layout->offset[j] / ir_type_bytes(element)));
    w->start = w->plane[0];
}

static uint32_t subgroups(const tile_factors *f) {
    return f->m->c.wg / f->m->c.span;
}

void tile_factors_open(tile_factors *f) {
    ir_builder *b = f->m->k.b;
    if (f->apart) f->parts = ir_workgroup(b, IR_F32, f->apart * subgroups(f));
    else f->made = ir_workgroup(b, IR_F32, f->rows * f->m->c.n_x);
}

/* ---- each workgroup for itself --------------------------------------------------------------- */

/* The subgroup's place among the rows, another one in the next workgroup: all of them read the same
 * rows, and who begins where the others do waits for the same part of the cache. */
static ir_id place_of(tile_factors *f) {
    ir_builder *b = f->m->k.b;
    ir_id own = tile_div(b, ir_local(b, 0), f->m->c.span);
    return tile_rem(b, ir_add(b, own, ir_group(b, 0)), subgroups(f));
}

static ir_id scale_of(tile_factors *f, uint32_t v, ir_id row) {
    ir_builder *b = f->m->k.b;
    const bool several = BUILD_HAS_JOINED_ADAPTERS && f->several;
    return ir_load(b, f->scales, several ? ir_add(b, row, f->scales_at[v]) : row, 1);
}

/* The subgroup's rows from `first` on; beyond all: the last one. */
static void rows_from(tile_factors *f, ir_id first, tile_rows *rows) {
    ir_builder *b = f->m->k.b;
    const uint32_t n_x = f->m->c.n_x;
    for (uint32_t j = 0; j < rows->n; j++) {
        ir_id row = ir_add(b, first, tile_add(b, place_of(f), j * subgroups(f)));
        row = ir_min(b, row, ir_u32(b, f->rows - 1));
        for (uint32_t v = 0; v < n_x; v++) f->scale[j * n_x + v] = scale_of(f, v, row);
        rows->w[j] = &f->a;
        rows->row[j] = ir_add(b, row, f->first);
    }
    tile_matvec_fetch(&f->own, rows, ir_u32(b, 0));
}

void tile_factors_fetch(tile_factors *f, uint32_t least) {
    ir_builder *b = f->m->k.b;
    tile_matvec *own = &f->own;
    const uint32_t span = f->m->c.span, words = matvec_raw_words(f->a.type),
                   all = whole_over(f->m->length / matvec_chunk(f->a.type), span),
                   each = whole_over(least, subgroups(f)),
                   room = words && words < FACTORS_AHEAD_MAX ? FACTORS_AHEAD_MAX / words : 1;
    *own = *f->m;
    own->c.lanes = span;
    own->c.depth = whole_least(whole_least(all, room), MATVEC_DEPTH_MAX);
    f->ahead = (tile_rows){.n = whole_least(each, whole_least(room / own->c.depth, TILE_ROWS_MAX))};
    own->c.rows = f->ahead.n;
    own->lane = tile_rem(own->k.b, ir_local(b, 0), span);
    own->sums = ir_register(b, IR_F32, f->ahead.n * own->c.n_x);
    if (words) own->ahead = ir_register(b, IR_U32, words * own->c.depth * f->ahead.n);
    rows_from(f, f->begin, &f->ahead);
}

/* The rows times the vector, times their scales. */
static void add_rows(tile_factors *f, ir_id first, const tile_rows *rows) {
    ir_builder *b = f->m->k.b;
    const uint32_t n_x = f->m->c.n_x;
    ir_id sums[TILE_SUMS_MAX], is_one = ir_eq(b, f->own.lane, ir_u32(b, 0));
    tile_matvec_walk(&f->own, rows, NULL, IR_NO_ID, sums);
    for (uint32_t j = 0; j < rows->n; j++) {
        ir_id row = ir_add(b, first, tile_add(b, place_of(f), j * subgroups(f)));
        ir_if(b, ir_and(b, is_one, ir_lt(b, row, f->end)));
        for (uint32_t v = 0; v < n_x; v++)
            ir_store(b, f->made, tile_add(b, row, v * f->rows),
                     ir_mul(b, sums[j * n_x + v], f->scale[j * n_x + v]));
        ir_end(b);
    }
}

void tile_factors_add(tile_factors *f) {
    ir_builder *b = f->m->k.b;
    tile_rows rows = f->ahead;
    const uint32_t step = rows.n * subgroups(f);
    add_rows(f, f->begin, &rows);
    if (step >= f->rows) return;
    ir_id first = ir_loop(b, tile_add(b, f->begin, step), f->end, ir_u32(b, step));
    rows_from(f, first, &rows);
    add_rows(f, first, &rows);
    ir_end(b);
}

/* ---- workgroups of their own ----------------------------------------------------------------- */

ir_id tile_factors_four(ir_builder *b, tile_weight *a, ir_id row, ir_id u) {
    const uint32_t fours = base_type_block(a->type) / 4;
    ir_id element = tile_mul(b, a->plain ? u : tile_rem(b, u, fours), 4);
    tile_chunk c;
    tile_block_open(a, row, a->plain ? IR_NO_ID : tile_div(b, u, fours), &c);
    tile_span_open(a, element, &c);
    return tile_elements_load(a, &c, element, 4);
}

/* Four u of a vector that came rounded. */
static ir_id four_handed(tile_factors *f, ir_id u) {
    ir_builder *b = f->m->k.b;
    const tile_int8_vectors *from = &f->m->int8_from;
    ir_id word = ir_bitcast(b, IR_I32, 1, ir_load(b, from->bytes, u, 1)), own[4],
          at = ir_add(b, tile_mul(b, tile_div(b, u, 8), 2), from->factors_at);
    for (uint32_t i = 0; i < 4; i++)
        own[i] = ir_cast(b, IR_F32,
                         ir_shr(b, ir_shl(b, word, ir_i32(b, 24 - 8 * (int32_t)i)), ir_i32(b, 24)));
    ir_id scale = ir_bitcast(b, IR_F32, 1, ir_load(b, from->factors, at, 1));
    return ir_mul(b, ir_compose(b, own, 4), ir_splat(b, scale, 4));
}

/* The lane's four e: one that there is. holds: is it the lane's? IR_NO_ID: yes. */
static ir_id four_at(tile_factors *f, uint32_t e, ir_id *holds) {
    ir_builder *b = f->m->k.b;
    const uint32_t fours = f->m->length / 4;
    ir_id u = tile_matvec_own(f->m, e);
    *holds = IR_NO_ID;
    if ((e + 1) * f->m->c.wg <= fours) return u;
    *holds = ir_lt(b, u, ir_u32(b, fours));
    return ir_min(b, u, ir_u32(b, fours - 1));
}

/* Of the row that this lane will end. */
static void ask_scale(tile_factors *f) {
    ir_builder *b = f->m->k.b;
    ir_id row = ir_add(b, f->begin, ir_local(b, 0));
    f->scale[0] = scale_of(f, 0, ir_min(b, row, ir_u32(b, f->rows - 1)));
}

void tile_factors_ask(tile_factors *f) {
    ir_builder *b = f->m->k.b;
    ir_id holds, last = ir_u32(b, f->rows - 1);
    ask_scale(f);
    for (uint32_t e = 0; e < tile_matvec_each(f->m); e++) {
        ir_id u = four_at(f, e, &holds);
        for (uint32_t i = 0; i < f->apart; i++) {
            ir_id row = ir_min(b, tile_add(b, f->begin, i), last);
            f->asked[e * f->apart + i] = tile_factors_four(b, &f->a, ir_add(b, row, f->first), u);
        }
    }
    f->is_asked = true;
}

void tile_factors_part(tile_factors *f, const ir_id *x) {
    ir_builder *b = f->m->k.b;
    const bool is_asked = BUILD_HAS_JOINED_ADAPTERS && f->is_asked;
    ir_id first = IR_NO_ID, sums[FACTORS_ASKED_MAX];
    if (!is_asked) ask_scale(f);
    if (!is_asked) first = ir_loop(b, f->begin, f->end, ir_u32(b, f->apart));
    for (uint32_t e = 0; e < tile_matvec_each(f->m); e++) {
        ir_id holds, u = four_at(f, e, &holds), own = x ? x[e] : four_handed(f, u);
        if (holds != IR_NO_ID)
            own = ir_select(b, ir_splat(b, holds, 4), own, ir_number(b, IR_F32, 4, 0));
        for (uint32_t i = 0; i < f->apart; i++) {
            ir_id a = is_asked ? f->asked[e * f->apart + i]
                               : tile_factors_four(b, &f->a,
                                                   ir_add(b, tile_add(b, first, i), f->first), u);
            sums[i] = e ? ir_fma(b, a, own, sums[i]) : ir_mul(b, a, own);
        }
    }
    for (uint32_t i = 0; i < f->apart; i++)
        sums[i] = ir_subgroup_add(b, tile_sum_vector(b, sums[i]));
    ir_if(b, ir_eq(b, ir_subgroup_lane(b), ir_u32(b, 0)));
    ir_id run = tile_mul(b, tile_div(b, ir_local(b, 0), f->m->c.span), f->apart);
    for (uint32_t i = 0; i < f->apart; i++) ir_store(b, f->parts, tile_add(b, run, i), sums[i]);
    ir_end(b);
    if (!is_asked) ir_end(b);
}

void tile_factors_end(tile_factors *f) {
    ir_builder *b = f->m->k.b;
    ir_id own = ir_local(b, 0), row = ir_add(b, f->begin, own);
    ir_if(b, ir_and(b, ir_lt(b, own, ir_u32(b, f->apart)), ir_lt(b, row, f->end)));
    ir_id sum = ir_load(b, f->parts, own, 1);
    for (uint32_t i = 1; i < subgroups(f); i++)
        sum = ir_add(b, sum, ir_load(b, f->parts, tile_add(b, own, i * f->apart), 1));
    ir_id to = BUILD_HAS_JOINED_ADAPTERS && f->several ? ir_add(b, row, f->made_at) : row;
    ir_store(b, f->made, to, ir_mul(b, sum, f->scale[0]));
    ir_end(b);
}
