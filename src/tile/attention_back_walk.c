/* attention_back_walk.c - where a workgroup of the backward pass of attention that owns a block of
 * lines stands: its lines, rows and keys, what of the others they see, where results go
 * (tile/attention_back.h). */
#include "tile/attention_back.h"

void back_walk_bind(back_walk *w, tile_kernel *k, const back_task *t) {
    w->k = k, w->t = t, w->share = IR_NO_ID;
    back_bind(&w->x, k, t, IR_READ_WRITE);
}

void back_own(back_walk *w) {
    ir_builder *b = w->k->b;
    const attention_task *a = &w->t->a;
    if (!back_owns_rows(w->t)) {
        w->first_own = tile_mul(b, ir_group(b, 0), w->own);
        w->kv = ir_group(b, 1);
        return;
    }
    /* long ones first */
    ir_id late = tile_add(b, ir_sub(b, ir_groups(b, 0), ir_group(b, 0)), UINT32_MAX);
    w->first_own = tile_mul(b, late, w->queries);
    w->n_query = ir_min(b, ir_u32(b, w->queries), ir_sub(b, w->x.n_row, w->first_own));
    w->first_head = tile_mul(b, ir_group(b, 1), w->group);
    w->kv = tile_div(b, w->first_head, a->n_head / a->n_kv);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static ir_id first_query(const back_walk *w) {
    return back_owns_rows(w->t) ? w->first_own : w->first_other;
}

void back_row_of(const back_walk *w, ir_id line, ir_id *query, ir_id *head) {
    ir_builder *b = w->k->b;
    ir_id last = tile_add(b, ir_max(b, w->n_query, ir_u32(b, 1)), UINT32_MAX),
          own = ir_min(b, tile_div(b, line, w->group), last);
    *query = ir_add(b, first_query(w), own);
    *head = ir_add(b, w->first_head, tile_rem(b, line, w->group));
}

ir_id back_is_row(const back_walk *w, ir_id line) {
    return ir_lt(w->k->b, tile_div(w->k->b, line, w->group), w->n_query);
}

ir_id back_sums_at(const back_walk *w, ir_id query, ir_id head) {
    ir_builder *b = w->k->b;
    return tile_mul(b, ir_fma(b, query, ir_u32(b, w->t->a.n_head), head), 4);
}

void back_keys_of(const back_walk *w, ir_id query, ir_id *first, ir_id *end) {
    ir_builder *b = w->k->b;
    if (w->t->kind == BACK_SUMS) {
        attention_keys keys;
        attention_keys_of(&w->x.places, b, &w->t->a, query, &keys);
        *first = keys.first, *end = keys.end;
        return;
    }
    ir_id range = ir_load(b, w->x.sums, tile_add(b, back_sums_at(w, query, w->first_head), 2), 2);
    *first = ir_cast(b, IR_U32, ir_extract(b, range, 0));
    *end = tile_add(b, ir_cast(b, IR_U32, ir_extract(b, range, 1)), 1);
}

bool back_line_of(const back_walk *w, bool own, ir_id line, ir_id *at, ir_id *head) {
    ir_builder *b = w->k->b;
    const bool rows = own == back_owns_rows(w->t);
    *head = w->kv;
    if (rows) back_row_of(w, line, at, head);
    else
        *at = ir_min(b, ir_add(b, own ? w->first_own : w->first_other, line),
                     tile_add(b, w->x.n_key, UINT32_MAX));
    return rows;
}

ir_id back_line_read(const back_walk *w, bool own, uint32_t which, ir_id line, ir_id e,
                     uint32_t width) {
    ir_id at, head;
    const bool rows = back_line_of(w, own, line, &at, &head);
    return back_read(w->k->b, rows ? &w->x.rows : &w->x.keys, which, at, head, e, width);
}

/* ---- others ---------------------------------------------------------------------------------- */

/* from .. to - 1: keys that some query of the block sees. */
static void scan(const back_walk *w, ir_memory from, ir_memory to) {
    ir_builder *b = w->k->b;
    ir_set(b, from, ir_u32(b, UINT32_MAX));
    ir_set(b, to, ir_u32(b, 0));
    ir_id query = ir_loop(b, ir_u32(b, 0), w->n_query, ir_u32(b, 1)), first, end;
    back_keys_of(w, ir_add(b, first_query(w), query), &first, &end);
    ir_id some = ir_lt(b, first, end);
    ir_set(b, from, ir_select(b, some, ir_min(b, ir_get(b, from), first), ir_get(b, from)));
    ir_set(b, to, ir_select(b, some, ir_max(b, ir_get(b, to), end), ir_get(b, to)));
    ir_end(b);
}

void back_others(back_walk *w) {
    ir_builder *b = w->k->b;
    const attention_task *a = &w->t->a;
    const ir_memory from = ir_register(b, IR_U32, 1), to = ir_register(b, IR_U32, 1);
    if (back_owns_rows(w->t)) {
        scan(w, from, to);
        w->first_other = ir_loop(b, ir_get(b, from), ir_get(b, to), ir_u32(b, w->other));
        return;
    }
    const uint32_t heads = a->n_head / a->n_kv, some = w->t->split ? heads / w->t->split : heads;
    ir_id head = ir_loop(b, ir_u32(b, 0), ir_u32(b, some), ir_u32(b, w->group));
    if (w->share != IR_NO_ID) head = ir_fma(b, w->share, ir_u32(b, some), head);
    w->first_head = ir_add(b, tile_mul(b, w->kv, heads), head);
    w->first_other = ir_loop(b, ir_u32(b, 0), w->x.n_row, ir_u32(b, w->queries));
    w->n_query = ir_min(b, ir_u32(b, w->queries), ir_sub(b, w->x.n_row, w->first_other));
    scan(w, from, to);
    ir_if(b, ir_and(b, ir_lt(b, ir_get(b, from), tile_add(b, w->first_own, w->own)),
                    ir_gt(b, ir_get(b, to), w->first_own)));
}

void back_others_end(back_walk *w) {
    for (uint32_t i = 0; i < (back_owns_rows(w->t) ? 1 : 3); i++) ir_end(w->k->b);
}

/* ---- results --------------------------------------------------------------------------------- */

ir_id back_result_at(const back_walk *w, ir_id line, ir_id *is) {
    ir_builder *b = w->k->b;
    const attention_task *a = &w->t->a;
    const bool rows = back_owns_rows(w->t);
    ir_id at, head = w->kv;
    if (rows) {
        back_row_of(w, line, &at, &head);
        *is = back_is_row(w, line);
    } else {
        at = ir_add(b, w->first_own, line);
        *is = ir_lt(b, at, w->x.n_key);
    }
    if (w->share != IR_NO_ID) at = ir_fma(b, w->share, ir_u32(b, a->n_row), at);
    return tile_mul(b, ir_fma(b, at, ir_u32(b, rows ? a->n_head : a->n_kv), head), a->d);
}

beryl_status back_walk_end(back_walk *w, uint32_t parts) {
    const back_task *t = w->t;
    const attention_task *a = &t->a;
    lowering *l = w->k->l;
    const lower_count z = {(uint64_t)parts * (t->split ? t->split : 1), 0};
    const beryl_status status =
        back_owns_rows(t)
            ? tile_end_3d(w->k, a->rows, w->queries, (lower_count){a->n_head / w->group, 0}, 1, z)
            : tile_end_3d(w->k, a->held, w->own, (lower_count){a->n_kv, 0}, 1, z);
    return status == BERYL_OK && t->split > 1 ? back_merge(l, t) : status;
}
