/* attention_lines.c - what a workgroup of a decode step's attention works on, its
 * lines: query heads, then the row's own key and value. From the products before norms and
 * rotations to workgroup memory, and from there to the cache. */
#include "tile/attention.h"

ir_id attention_lanes_sum(attention_lines *x, ir_id value) {
    ir_builder *b = x->k->b;
    if (x->lanes == 1) return value;
    if (x->subgroups) return ir_subgroup_add(b, value);
    const ir_instruction *i = ir_at(b, value);
    const uint32_t width = i ? i->width : 1;
    ir_barrier(b);
    ir_store(b, x->tree, tile_mul(b, x->local, width), value);
    ir_barrier(b);
    ir_id first = tile_mul(b, ir_sub(b, x->local, x->lane), width),
          sum = ir_load(b, x->tree, first, width);
    for (uint32_t l = 1; l < x->lanes; l++)
        sum = ir_add(b, sum, ir_load(b, x->tree, tile_add(b, first, l * width), width));
    return sum;
}

ir_id attention_line_place(attention_lines *x, uint32_t line, ir_id four) {
    ir_builder *b = x->k->b;
    ir_id half = tile_mul(b, tile_and(b, four, 1), x->a->d / 8);
    return tile_add(b, tile_mul(b, ir_add(b, tile_shr(b, four, 1), half), 4), line * x->a->d);
}

void attention_lines_bind(attention_lines *x, bool halves) {
    tile_kernel *k = x->k;
    const attention_task *a = x->a;
    uint32_t word[2] = {0, 0};
    x->q = tile_read(k, "q", a->q);
    attention_caches_bind(&x->keys, &x->values, k, a, halves);
    attention_places_bind(&x->places, k, a);
    attention_result_bind(&x->result, k, a);
    x->q_offset = tile_u32(k, "q_offset", a->q_offset);
    x->scale = tile_f32(k, "scale", a->scale);
    if (a->raw) {
        x->norms = tile_weights(k, "norms", (const graph_value[]){a->w_q, a->k ? a->w_k : a->w_q},
                                2, IR_F32, word);
        x->angles = tile_read(k, "angles", a->angles);
        x->angles_offset =
            tile_u32(k, "angles_offset", graph_tensor_at(k->l->g, a->angles)->offset);
        x->w_q = tile_u32(k, "w_q", word[0]);
        x->w_k = tile_u32(k, "w_k", word[1]);
        x->eps = tile_f32(k, "eps", a->eps);
    }
    if (a->k) {
        x->key = tile_read(k, "key", a->k);
        x->value = a->v == a->k ? x->key : tile_read(k, "value", a->v);
    }
}

void attention_lines_see(attention_lines *x) {
    attention_keys_of(&x->places, x->k->b, x->a, x->row, &x->of);
    x->fresh = ir_and(x->k->b, x->fresh, x->of.is);
}

ir_id attention_line_eight(const attention_lines *x, ir_id at) {
    ir_builder *b = x->k->b;
    ir_id halves[2] = {ir_load(b, x->memory, at, 4),
                       ir_load(b, x->memory, tile_add(b, at, x->a->d / 2), 4)};
    return ir_compose(b, halves, 2);
}

void attention_lines_declare(attention_lines *x) {
    ir_builder *b = x->k->b;
    x->rounds = (x->heads + (x->a->k ? 2 : 0) + x->groups - 1) / x->groups;
    if (!x->subgroups && x->lanes > 1)
        x->tree = ir_workgroup(b, IR_F32, x->groups * x->lanes * x->sums);
    x->lines = ir_register(b, IR_F32, x->rounds * x->eights * 8);
    x->local = ir_local(b, 0);
    x->lane = tile_rem(b, x->local, x->lanes);
    x->member = tile_div(b, x->local, x->lanes);
    x->piece = ir_group(b, 0);
    x->first_head = tile_mul(b, ir_group(b, 1), x->heads);
    x->row = ir_group(b, 2);
    x->kv = tile_div(b, x->first_head, x->a->n_head / x->a->n_kv);
    x->fresh = ir_eq(b, x->piece, ir_u32(b, 0));
}

static ir_id line_of(attention_lines *x, uint32_t round) {
    return tile_add(x->k->b, x->member, round * x->groups);
}

/* Of eight c of a line as this lane works on it: fours in the first half of the head, and as
 * many in the second. */
static ir_id four_of(attention_lines *x, uint32_t c) {
    return tile_add(x->k->b, x->lane, c * x->lanes);
}

static void line_fetch(attention_lines *x, uint32_t round, ir_memory from, ir_id start) {
    ir_builder *b = x->k->b;
    for (uint32_t c = 0; c < x->eights; c++) {
        ir_id at = ir_add(b, start, tile_mul(b, four_of(x, c), 4)),
              to = ir_u32(b, (round * x->eights + c) * 8);
        ir_store(b, x->lines, to, ir_load(b, from, at, 4));
        ir_store(b, x->lines, tile_add(b, to, 4),
                 ir_load(b, from, tile_add(b, at, x->a->d / 2), 4));
    }
}

/* Norm's weights and cosine, sine of eight c of a round's line. */
static void factors_load(attention_lines *x, uint32_t round, uint32_t c, ir_id out[4]) {
    ir_builder *b = x->k->b;
    const uint32_t half = x->a->d / 2;
    ir_id is_query = ir_lt(b, line_of(x, round), ir_u32(b, x->heads)),
          at = tile_mul(b, four_of(x, c), 4);
    ir_id w = ir_add(b, ir_select(b, is_query, x->w_q, x->w_k), at),
          angle = ir_add(b, ir_add(b, x->angles_offset, tile_mul(b, x->row, x->a->d)), at);
    out[0] = ir_load(b, x->norms, w, 4);
    out[1] = ir_load(b, x->norms, tile_add(b, w, half), 4);
    out[2] = ir_load(b, x->angles, angle, 4);
    out[3] = ir_load(b, x->angles, tile_add(b, angle, half), 4);
}

void attention_lines_load(attention_lines *x) {
    ir_builder *b = x->k->b;
    const attention_task *a = x->a;
    for (uint32_t i = 0; i < x->rounds * x->eights * 8; i += 4)
        ir_store(b, x->lines, ir_u32(b, i), ir_number(b, IR_F32, 4, 0));
    for (uint32_t c = 0; a->raw && c < x->eights; c++) factors_load(x, 0, c, x->factors[c]);
    ir_id q = ir_add(b, x->q_offset, tile_mul(b, x->row, a->q_stride[0])),
          heads = ir_u32(b, x->heads);
    ir_id own = tile_mul(b, ir_add(b, tile_mul(b, x->row, a->n_kv), x->kv), a->d);
    for (uint32_t r = 0; r < x->rounds; r++) {
        ir_id line = line_of(x, r);
        ir_if(b, ir_lt(b, line, heads));
        line_fetch(x, r, x->q,
                   ir_add(b, q, tile_mul(b, ir_add(b, x->first_head, line), a->q_stride[1])));
        ir_end(b);
        if (!a->k) continue;
        ir_if(b, ir_and(b, x->fresh, ir_eq(b, line, heads)));
        line_fetch(x, r, x->key, own);
        ir_end(b);
        ir_if(b, ir_and(b, x->fresh, ir_eq(b, line, ir_u32(b, x->heads + 1))));
        line_fetch(x, r, x->value, own);
        ir_end(b);
    }
}

static ir_id many(attention_lines *x, ir_id value) {
    return ir_splat(x->k->b, value, 4);
}

/* Norm and rotation of a round's lines; scale of the queries. To workgroup memory. */
static void make(attention_lines *x, uint32_t round) {
    ir_builder *b = x->k->b;
    const attention_task *a = x->a;
    const uint32_t eights = x->eights;
    ir_id line = line_of(x, round), is_query = ir_lt(b, line, ir_u32(b, x->heads)),
          is_value = ir_gt(b, line, ir_u32(b, x->heads));
    ir_id low[ATTENTION_LINE_EIGHTS_MAX], high[ATTENTION_LINE_EIGHTS_MAX], squares = IR_NO_ID;
    for (uint32_t c = 0; c < eights; c++) {
        low[c] = ir_load(b, x->lines, ir_u32(b, (round * eights + c) * 8), 4);
        high[c] = ir_load(b, x->lines, ir_u32(b, (round * eights + c) * 8 + 4), 4);
        ir_id square = ir_fma(b, low[c], low[c], ir_mul(b, high[c], high[c]));
        squares = c ? ir_add(b, squares, square) : square;
    }
    ir_id scale = many(x, ir_select(b, is_query, x->scale, ir_f32(b, 1)));
    if (a->raw) {
        ir_id mean = ir_mul(b, attention_lanes_sum(x, tile_sum_vector(b, squares)),
                            ir_f32(b, 1.0f / (float)a->d));
        ir_id factor = many(x, ir_rsqrt(b, ir_add(b, mean, x->eps)));
        ir_id straight = ir_splat(b, is_value, 4);
        for (uint32_t c = 0; c < eights; c++) {
            ir_id own[4], *by = round ? own : x->factors[c];
            if (round) factors_load(x, round, c, own);
            ir_id u = ir_mul(b, low[c], factor), v = ir_mul(b, high[c], factor),
                  p = ir_mul(b, u, by[0]), q = ir_mul(b, v, by[1]), cosine = by[2], sine = by[3];
            ir_id first = ir_sub(b, ir_mul(b, p, cosine), ir_mul(b, q, sine)),
                  second = ir_add(b, ir_mul(b, p, sine), ir_mul(b, q, cosine));
            low[c] = a->k ? ir_select(b, straight, u, first) : first;
            high[c] = a->k ? ir_select(b, straight, v, second) : second;
        }
    }
    ir_if(b, ir_lt(b, line, ir_u32(b, x->heads + (a->k ? 2 : 0))));
    for (uint32_t c = 0; c < eights; c++) {
        ir_id four = four_of(x, c), place = line;
        if (x->turned)
            place = ir_xor(
                b, line,
                ir_select(b, is_query, tile_rem(b, tile_shr(b, four, 1), x->turned), ir_u32(b, 0)));
        ir_id own = tile_mul(b, place, a->d);
        if (x->apart)
            own = ir_add(b, own, ir_select(b, is_query, ir_u32(b, 0), ir_u32(b, x->apart * a->d)));
        ir_store(b, x->memory, ir_add(b, own, attention_line_place(x, 0, four)),
                 ir_mul(b, low[c], scale));
        ir_store(b, x->memory,
                 ir_add(b, own, attention_line_place(x, 0, tile_add(b, four, a->d / 8))),
                 ir_mul(b, high[c], scale));
    }
    ir_end(b);
}

void attention_lines_make(attention_lines *x) {
    for (uint32_t r = 0; r < x->rounds; r++) make(x, r);
}

/* Eights of the key, then of the value, to the caches from `start` on. */
static void store_eights(attention_lines *x, ir_id start, const attention_cache *keys,
                         const attention_cache *values) {
    ir_builder *b = x->k->b;
    const uint32_t d = x->a->d, eights = d / ATTENTION_EIGHT, lanes = x->lanes * x->groups;
    for (uint32_t first = 0; first < 2 * eights; first += lanes) {
        ir_id i = tile_add(b, x->local, first), eight = tile_rem(b, i, eights), out[2];
        ir_id line = ir_min(b, tile_div(b, i, eights), ir_u32(b, 1));
        ir_id at = ir_add(b, tile_mul(b, line, d), tile_mul(b, eight, 4));
        at = tile_add(b, at, (x->heads + x->apart) * d);
        attention_cache_round(b, attention_line_eight(x, at), out);
        ir_id to = ir_add(b, start, tile_mul(b, eight, ATTENTION_EIGHT));
        ir_if(b, ir_lt(b, i, ir_u32(b, eights)));
        attention_cache_put(keys, to, out);
        ir_else(b);
        if (2 * eights % lanes) ir_if(b, ir_lt(b, i, ir_u32(b, 2 * eights)));
        attention_cache_put(values, to, out);
        if (2 * eights % lanes) ir_end(b);
        ir_end(b);
    }
}

void attention_lines_store_own(attention_lines *x) {
    tile_kernel *k = x->k;
    ir_builder *b = k->b;
    const attention_task *a = x->a;
    const attention_cache *keys = &x->keys, *values = &x->values;
    /* a binding of WGSL has one type: a narrower store would make its loads narrow too */
    const bool by_eights = x->by_eights || tile_is_wgsl(k->l->caps);
    const uint32_t lanes = x->lanes * x->groups,
                   unit =
                       attention_cache_unit(keys, by_eights ? ATTENTION_EIGHT : 2 * a->d / lanes),
                   units = a->d / unit, wide = unit < 4 ? unit : 4;
    if (!a->k) return;
    ir_memory line = ir_register(b, IR_F32, unit);
    ir_id own = ir_eq(b, tile_rem(b, x->first_head, a->n_head / a->n_kv), ir_u32(b, 0)),
          zero = ir_u32(b, 0);
    ir_if(b, ir_and(b, x->fresh, own));
    ir_id row = ir_add(b, x->of.base, tile_rem(b, x->of.last, a->n_row));
    ir_id start = tile_mul(b, ir_add(b, tile_mul(b, row, a->n_kv), x->kv), a->d);
    const bool eights = keys->type == TYPE_Q8_0 && x->subgroups && x->lanes % 8 == 0;
    if (eights) store_eights(x, start, keys, values);
    for (uint32_t which = 0; which < 2 && !eights; which++) {
        /* the value by lanes that the key leaves over */
        ir_id first = which && 2 * units <= lanes
                          ? tile_rem(b, tile_add(b, x->local, lanes - units), lanes)
                          : x->local;
        ir_id i = ir_loop(b, first, ir_u32(b, units), ir_u32(b, lanes)),
              element = tile_mul(b, i, unit);
        for (uint32_t e = 0; e < unit; e += wide) {
            ir_id at = tile_add(b, element, e),
                  place = attention_line_place(x, x->heads + x->apart + which, tile_shr(b, at, 2));
            if (wide < 4) place = ir_add(b, place, tile_and(b, at, 3));
            ir_store(b, line, ir_u32(b, e), ir_load(b, x->memory, place, wide));
        }
        attention_cache_store(which ? values : keys, line, zero, ir_add(b, start, element), unit);
        ir_end(b);
    }
    ir_end(b);
}

void attention_lines_result(const attention_lines *x, ir_id head, ir_id four, ir_id sum, ir_id most,
                            ir_id total) {
    ir_builder *b = x->k->b;
    const attention_task *a = x->a;
    ir_id place = ir_add(b, tile_mul(b, x->row, a->n_head), ir_add(b, x->first_head, head)),
          four_at = tile_mul(b, four, 4);
    if (a->n_split > 1) {
        ir_id piece = ir_add(b, tile_mul(b, place, a->n_split), x->piece), both[2] = {most, total};
        ir_store(b, x->result.out, ir_fma(b, piece, ir_u32(b, a->d), four_at), sum);
        ir_if(b, ir_eq(b, four, ir_u32(b, 0)));
        ir_store(b, x->result.stats, tile_mul(b, piece, 2), ir_compose(b, both, 2));
        ir_end(b);
    } else {
        ir_store(b, x->result.out, ir_fma(b, place, ir_u32(b, a->d), four_at),
                 ir_mul(b, sum, ir_splat(b, attention_inverse(b, total), 4)));
    }
}

void attention_lines_nothing(const attention_lines *x) {
    ir_builder *b = x->k->b;
    const attention_task *a = x->a;
    ir_if(b, ir_lt(b, x->local, ir_u32(b, x->heads)));
    ir_id head = ir_add(b, tile_mul(b, x->row, a->n_head), ir_add(b, x->first_head, x->local)),
          both[2] = {ir_f32(b, ATTENTION_LEAST), ir_f32(b, 0)};
    ir_store(b, x->result.stats, tile_mul(b, ir_add(b, tile_mul(b, head, a->n_split), x->piece), 2),
             ir_compose(b, both, 2));
    ir_end(b);
}
