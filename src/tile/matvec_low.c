/* matvec_low.c - see tile/matvec_low.h. */
#include "tile/matvec_low.h"

enum {
    LOW_AHEAD_MAX = 16, /* elements of rows of low rank */
    LOW_WIDE = 4        /* that one load takes */
};

/* Of p: products, vectors, low. false: there is no form for it, or it is too much for each
 * workgroup. */
static bool side_of(const lowering *l, matvec_plan *p) {
    const graph_products *all = &p->products;
    matvec_low *low = &p->low;
    matvec_segment s;
    lower_matrix x;
    if (!all->side) return true;
    const bool whole = all->side_stored || low->n_part;
    if ((p->vectors.rows.bound != 1 && (whole || !BUILD_HAS_JOINED_ADAPTERS)) ||
        (p->vectors.handed && !whole) || !l->caps->subgroups ||
        l->caps->subgroup_size < FACTORS_SPAN_MIN ||
        (low->n && graph_base_of(l->g, low->x) != all->side) ||
        !matvec_segment_of(l, all->side_w, p->vectors.rows.k, &s) ||
        (base_type_is_quantised(s.type) && s.type != TYPE_Q8_0) ||
        lower_stored(l, all->side_w)->n_shard != 1 || s.rows % FACTORS_STEP ||
        s.rows > FACTORS_ROWS_MAX || (all->side_stored && low->n) ||
        !lower_matrix_of(graph_tensor_at(l->g, all->factors), &x) || x.k != s.rows || x.offset)
        return false;
    low->is_much = !whole && (uint64_t)s.rows * p->vectors.rows.k > FACTORS_ELEMENTS_MAX;
    if (low->is_much && p->vectors.rows.bound == 1) return false;
    for (uint32_t i = 0; i < all->n; i++)
        if (low->of[i].r % FACTORS_STEP || low->of[i].offset % FACTORS_STEP) return false;
    low->x = all->side;
    low->a = all->side_w;
    low->a_type = s.type;
    low->made = s.rows;
    low->first = s.first;
    low->stored = all->side_stored;
    low->factors = all->factors;
    low->factors_stride = x.stride;
    return low->n == 0 || p->vectors.rows.bound == 1 || low->stride == s.rows;
}

void matvec_low_apart(matvec_plan *p) {
    matvec_low *low = &p->low;
    low->apart = true;
    p->vectors.low = (vectors_low){.rows = low->made,
                                   .first = low->first,
                                   .stride = low->factors_stride,
                                   .type = low->a_type,
                                   .a = low->a,
                                   .factors = low->factors};
}

bool matvec_low_of(const lowering *l, matvec_plan *p, graph_value parts, uint32_t n_part) {
    const graph_products *all = &p->products;
    matvec_low *low = &p->low;
    *low = (matvec_low){.is = all->side != 0, .n_part = n_part, .parts = parts};
    for (uint32_t i = 0; i < all->n; i++) {
        matvec_segment s;
        lower_matrix x;
        if (!all->low[i]) continue;
        const uint32_t r = graph_tensor_at(l->g, all->low_w[i])->dim[1].size;
        if (!matvec_segment_of(l, all->low_w[i], r, &s) || s.rows != p->s[i].rows ||
            base_type_is_quantised(s.type) || lower_stored(l, all->low_w[i])->n_shard != 1 ||
            !lower_matrix_of(graph_tensor_at(l->g, all->low[i]), &x) || x.k != r ||
            x.n.factor != p->vectors.rows.n.factor || x.n.extent != p->vectors.rows.n.extent)
            return false;
        if (low->n && (s.type != low->type || x.stride != low->stride ||
                       graph_base_of(l->g, all->low[i]) != graph_base_of(l->g, low->x)))
            return false;
        low->is = true;
        low->type = s.type;
        low->stride = x.stride;
        low->x = all->low[i];
        low->of[i].r = r;
        low->of[i].first = s.first;
        low->of[i].offset = x.offset;
        low->of[i].w = low->n;
        low->w[low->n++] = all->low_w[i];
    }
    return !low->is || (side_of(l, p) && (!low->n || lower_weights_fit(l, low->w, low->n)));
}

uint32_t matvec_low_bindings(const matvec_plan *p) {
    return p->low.is ? 1u + (p->low.n != 0) + (p->low.made && !p->low.apart) + p->low.stored : 0;
}

bool matvec_low_takes(const matvec_plan *p) {
    return !p->low.made || p->low.stored || p->low.n_part ||
           (!p->low.is_much && tile_factors_takes(p->low.a_type, p->c.x));
}

bool matvec_low_adds(const matvec_plan *p) {
    return p->low.is && !p->low.stored;
}

/* Elements of B that a lane has of each row, where all are loaded at once; 0: too many. */
static uint32_t low_ahead(const matvec_plan *p) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < p->products.n; i++)
        if (p->low.of[i].r > most) most = p->low.of[i].r;
    const uint32_t each = (most + p->c.lanes - 1) / p->c.lanes;
    return each * p->c.rows * p->per <= LOW_AHEAD_MAX ? each : 0;
}

/* So many of them lie side by side, where every row has as many for each lane. */
static uint32_t low_wide(const matvec_plan *p) {
    uint32_t wide = p->low.stride % LOW_WIDE ? 1 : LOW_WIDE;
    for (uint32_t i = 0; i < p->products.n; i++)
        while (p->low.of[i].r % (wide * p->c.lanes) || p->low.of[i].offset % wide) {
            if (wide == 1) break;
            wide /= 2;
        }
    return wide;
}

/* A, and what is made of it. */
static void bind_factors(matvec_making *k) {
    static const char *const names[] = {"factors_a", "low_a0", "low_a1", "low_a2", "low_a3"};
    const matvec_low *low = &k->p->low;
    tile_kernel *ir = &k->m.k;
    tile_factors *f = &k->factors;
    const uint32_t n = k->p->vectors.rows.k;
    *f = (tile_factors){.m = &k->m, .rows = low->made, .apart = low->stored ? FACTORS_APART : 0};
    /* subgroups read plain rows by words, as the products' own lanes do */
    tile_factors_bind(ir, names, low->a, low->a_type,
                      low->stored ? tile_weight_element(low->a_type)
                                  : tile_matvec_element(low->a_type),
                      n, &f->a);
    f->first = tile_u32(ir, "low_first", low->first);
    f->scales = tile_read(ir, "factors", low->factors);
    lower_bytes(ir->l, low->made * base_type_row_bytes(low->a_type, n));
    if (low->stored) f->made = tile_write(ir, "low", low->x);
    tile_factors_open(f);
    k->low = f->made;
}

void matvec_low_bind(matvec_making *k) {
    static const char *const starts[] = {"low_a", "low_b", "low_c"};
    static const char *const rows[] = {"low_row", "low_row_b", "low_row_c"};
    static const char *const places[] = {"low_offset", "low_offset_b", "low_offset_c"};
    const matvec_low *low = &k->p->low;
    tile_kernel *ir = &k->m.k;
    uint32_t words[FUSED_SEGMENT_MAX] = {0};
    if (!low->is) return;
    if (matvec_low_adds(k->p) && low_ahead(k->p))
        k->low_values = ir_register(ir->b, IR_F32, low_ahead(k->p) * k->p->c.rows * k->p->per);
    if (low->n) {
        const ir_type type = tile_weight_element(low->type);
        tile_weight_made(&k->low_w, ir, low->type, 1,
                         tile_weights(ir, "low_weights", low->w, low->n, type, words));
    }
    if (low->n_part) matvec_parts_bind_taken(k);
    else if (BUILD_HAS_JOINED_ADAPTERS && low->apart)
        k->low = tile_vectors_low(ir, &k->p->vectors, IR_READ);
    else if (low->made) bind_factors(k);
    else k->low = tile_read(ir, "low", low->x);
    for (uint32_t i = 0; i < k->p->products.n; i++) {
        const uint32_t start =
            low->n ? words[low->of[i].w] * 4 / matvec_element_bytes(low->type) : 0;
        k->low_start[i] = tile_u32(ir, starts[i], start);
        k->low_row[i] = tile_u32(ir, rows[i], low->of[i].first);
        k->low_at[i] = tile_u32(ir, places[i], low->of[i].offset);
        k->low_r[i] = ir_u32(ir->b, low->of[i].r);
        if (low->of[i].r)
            lower_bytes(ir->l,
                        (uint64_t)k->p->s[i].rows * low->of[i].r * matvec_element_bytes(low->type));
    }
}

typedef struct low_rows { /* of product j of the tile's */
    tile_weight w;
    ir_id r, row, at;
} low_rows;

static low_rows low_rows_of(matvec_making *k, uint32_t kind, ir_id tile, uint32_t j) {
    const bool pair = k->p->per == 2;
    low_rows l = {.w = k->low_w,
                  .r = pair ? k->low_r[j] : matvec_chosen(k, kind, tile, k->low_r, 1),
                  .row = pair ? k->low_row[j] : matvec_chosen(k, kind, tile, k->low_row, 1),
                  .at = pair ? k->low_at[j] : matvec_chosen(k, kind, tile, k->low_at, 1)};
    l.w.row = l.r;
    l.w.start = pair ? k->low_start[j] : matvec_chosen(k, kind, tile, k->low_start, 1);
    return l;
}

/* The lane's element s of each row of l; *is_there: IR_NO_ID: it is. */
static ir_id element_at(matvec_making *k, uint32_t j, const low_rows *l, uint32_t s,
                        ir_id *is_there) {
    ir_builder *b = k->m.k.b;
    matvec_plan *p = k->p;
    const uint32_t wide = low_wide(p), step = p->c.lanes * wide;
    ir_id i = tile_add(b, tile_mul(b, k->m.lane, wide), s / wide * step);
    uint32_t least = p->low.of[j].r;
    for (uint32_t n = 0; p->per == 1 && n < p->products.n; n++)
        if (p->low.of[n].r < least) least = p->low.of[n].r;
    *is_there = (s / wide + 1) * step <= least ? IR_NO_ID : ir_lt(b, i, l->r);
    return i;
}

/* `wide` elements of a row of B from i on. */
static void load_elements(matvec_making *k, const low_rows *l, ir_id row, ir_id i, uint32_t wide,
                          ir_id out[LOW_WIDE]) {
    ir_builder *b = k->m.k.b;
    ir_id at = ir_add(b, ir_fma(b, ir_add(b, row, l->row), l->w.row, l->w.start), i);
    tile_load_some(b, l->w.from, at, wide, out);
    for (uint32_t e = 0; e < wide; e++) out[e] = ir_cast(b, IR_F32, out[e]);
}

/* What will be multiplied for the tile, asked for before anything is waited for. */
void matvec_low_fetch(matvec_making *k, uint32_t kind, ir_id tile, const matvec_tile *t) {
    ir_builder *b = k->m.k.b;
    matvec_plan *p = k->p;
    const uint32_t each = matvec_low_adds(p) ? low_ahead(p) : 0, wide = low_wide(p);
    for (uint32_t j = 0; each && j < p->per; j++) {
        const low_rows l = low_rows_of(k, kind, tile, j);
        for (uint32_t s = 0; s < each; s += wide) {
            ir_id is_there, values[LOW_WIDE], i = element_at(k, j, &l, s, &is_there);
            if (is_there != IR_NO_ID) i = ir_select(b, is_there, i, ir_u32(b, 0));
            for (uint32_t n = 0; n < p->c.rows; n++) {
                load_elements(k, &l, t->row[n], i, wide, values);
                for (uint32_t e = 0; e < wide; e++)
                    ir_store(b, k->low_values, ir_u32(b, (n * p->per + j) * each + s + e),
                             values[e]);
            }
        }
    }
}

/* Where the vectors' element i is. */
static ir_id vector_at(matvec_making *k, const low_rows *l, uint32_t v, ir_id i) {
    ir_builder *b = k->m.k.b;
    matvec_plan *p = k->p;
    if (BUILD_HAS_JOINED_ADAPTERS && k->factors.several) /* there are the workgroup's alone */
        return ir_add(b, tile_add(b, l->at, v * p->low.made), i);
    ir_id vector = ir_min(b, tile_add(b, k->v.first, v), ir_sub(b, k->v.n, ir_u32(b, 1)));
    return ir_add(b, tile_mul(b, vector, p->low.stride), ir_add(b, l->at, i));
}

/* `wide` elements of the rows, from i on, times those of the vectors; s: where they were loaded
 * ahead, of `each`. */
static void add_elements(matvec_making *k, const matvec_tile *t, uint32_t j, const low_rows *l,
                         ir_id i, uint32_t wide, uint32_t s, uint32_t each) {
    ir_builder *b = k->m.k.b;
    matvec_plan *p = k->p;
    ir_id values[TILE_ROWS_MAX][LOW_WIDE], x[LOW_WIDE];
    for (uint32_t n = 0; n < p->c.rows; n++) {
        if (!each) load_elements(k, l, t->row[n], i, wide, values[n]);
        for (uint32_t e = 0; each && e < wide; e++)
            values[n][e] = ir_load(b, k->low_values, ir_u32(b, (n * p->per + j) * each + s + e), 1);
    }
    for (uint32_t v = 0; v < p->c.n_x; v++) {
        tile_load_some(b, k->low, vector_at(k, l, v, i), wide, x);
        for (uint32_t n = 0; n < p->c.rows; n++) {
            ir_id to = ir_u32(b, (n * p->per + j) * p->c.n_x + v),
                  sum = ir_load(b, k->m.sums, to, 1);
            for (uint32_t e = 0; e < wide; e++) sum = ir_fma(b, values[n][e], x[e], sum);
            ir_store(b, k->m.sums, to, sum);
        }
    }
}

/* Of each row of the tile, the lane's part of what is added to its products. */
void matvec_low_add(matvec_making *k, uint32_t kind, ir_id tile, const matvec_tile *t) {
    ir_builder *b = k->m.k.b;
    matvec_plan *p = k->p;
    const uint32_t each = low_ahead(p), wide = low_wide(p);
    for (uint32_t j = 0; j < p->per; j++) {
        const low_rows l = low_rows_of(k, kind, tile, j);
        for (uint32_t s = 0; s < each; s += wide) {
            ir_id is_there, i = element_at(k, j, &l, s, &is_there);
            if (is_there != IR_NO_ID) ir_if(b, is_there);
            add_elements(k, t, j, &l, i, wide, s, each);
            if (is_there != IR_NO_ID) ir_end(b);
        }
        if (each) continue;
        add_elements(k, t, j, &l,
                     ir_loop(b, tile_mul(b, k->m.lane, wide), l.r, ir_u32(b, p->c.lanes * wide)),
                     wide, 0, 0);
        ir_end(b);
    }
}

/* Workgroups that make what products of low rank take later; they stand after the others. */
uint32_t matvec_low_groups(const matvec_plan *p) {
    return p->low.stored ? p->low.made / FACTORS_APART : 0;
}

/* What of the factors the workgroup makes: where it has one tile, what that takes. Some are
 * loaded, before the vector is there. */
void matvec_low_begin(matvec_making *k, bool again) {
    ir_builder *b = k->m.k.b;
    matvec_plan *p = k->p;
    tile_factors *f = &k->factors;
    uint32_t least = p->low.made;
    f->begin = ir_u32(b, 0);
    f->end = ir_u32(b, p->low.made);
    if (p->low.stored) {
        ir_id group = ir_group(b, 0), first = ir_u32(b, k->groups), is = ir_ge(b, group, first),
              begin = tile_mul(b, ir_sub(b, group, first), FACTORS_APART);
        f->begin = ir_select(b, is, begin, f->begin);
        f->end = ir_select(b, is, tile_add(b, begin, FACTORS_APART), f->begin);
        return;
    }
    f->several = BUILD_HAS_JOINED_ADAPTERS && p->vectors.rows.bound > 1;
    for (uint32_t v = 0; f->several && v < p->c.n_x; v++) {
        ir_id vector = ir_min(b, tile_add(b, k->v.first, v), ir_sub(b, k->v.n, ir_u32(b, 1)));
        f->scales_at[v] = tile_mul(b, vector, p->low.factors_stride);
    }
    for (uint32_t i = 0; p->per == 1 && !again && i < p->n; i++) {
        ir_id is = ir_ge(b, ir_group(b, 0), ir_u32(b, k->begin[i])),
              begin = p->low.of[i].r ? k->low_at[i] : ir_u32(b, 0),
              end = p->low.of[i].r ? ir_add(b, begin, k->low_r[i]) : begin;
        if (p->low.of[i].r < least) least = p->low.of[i].r;
        f->begin = i ? ir_select(b, is, begin, f->begin) : begin;
        f->end = i ? ir_select(b, is, end, f->end) : end;
    }
    tile_factors_fetch(f, least);
}
