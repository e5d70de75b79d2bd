/* lower_ir_matvec_fused.c - generated products with few vectors on GPUs, with what was joined to them (fused.h): prologue,
 * up to three weights side by side, epilogue.
 *
 * Tiles of all segments are counted through; which one a tile is of follows from constants. Segments whose weights have one type
 * share one text: what differs (planes, rows, where the results go) is chosen by the tile's number. */
#include "graph/lower_ir_matvec_fused.h"
#include "base/error.h"
#include "graph/fused.h"
#include "graph/lower_ir_vectors.h"

enum {
    VECTORS_MOST = 32,
    PROLOGUE_VECTORS = 2 /* that a workgroup may make one after another: each waits for its loads and sums */
};

typedef struct segment {
    graph_value w, out;
    base_type type;
    uint32_t first, rows;         /* rows [first, first + rows) of the stored tensor (shard) */
    uint32_t out_offset, out_stride;
    const graph_pack_layout *layout;
} segment;

typedef struct plan { /* everything that the kernel is */
    const fused_matvec *f;
    vectors_walk vectors;
    vectors_rows slice;
    segment s[FUSED_SEGMENT_MAX]; /* GEGLU: two, with one result */
    uint32_t n, per;              /* n: segments of tiles */
    bool apart;                   /* a dispatch of its own makes the vectors */
    bool sharded;
    uint32_t shard;
    const tree *end;              /* NULL: none; else out_offset is where the segment's columns begin */
    matvec_shape shape;
    matvec_choice c;
} plan;

/* ---- what there is -------------------------------------------------------------------------------------------------- */

static bool segment_of(const lowering *l, graph_value v, uint32_t k, segment *s) {
    const graph_tensor *t = graph_tensor_at(l->g, v);
    const store_tensor *stored = lower_weight(l, v);
    if (t->rank != 2 || t->dim[1].extent || t->dim[0].extent || t->stride[1] != 1 || t->stride[0] != t->dim[1].size || t->dim[1].size != k) return false;
    if (!stored || t->offset % k || !lower_ir_weight_known(stored->type)) return false;
    *s = (segment){.w = v, .type = stored->type, .first = t->offset / k, .rows = t->dim[0].size, .layout = &stored->shard[0].layout};
    return true;
}

static bool binds(const lowering *l, uint32_t n) {
    return n <= (l->caps->storage_max ? l->caps->storage_max : 8) && n <= DEVICE_BINDING_MAX && n <= IR_BUFFER_MAX;
}

static uint32_t kinds_of(const plan *p) { /* different types of weights */
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        bool known = false;
        for (uint32_t j = 0; j < i; j++) known |= p->s[j].type == p->s[i].type;
        n += !known;
    }
    return n;
}

static void shape_of(const lowering *l, plan *p) {
    p->shape = (matvec_shape){.n_segment = p->n, .k = p->vectors.x.k, .n_x = p->vectors.x.bound, .per = p->per, .exact = l->settings.exact,
                              .worked = vectors_worked(p->f), .form = lower_form_of(l, p->f->w[0])};
    for (uint32_t i = 0; i < p->n; i++) p->shape.types[i] = p->s[i].type, p->shape.rows[i] = p->s[i].rows;
}

/* What all workgroups together read again to make the vectors, against what a dispatch of its own would cost. */
static bool prologue_pays(const plan *p) {
    const fused_matvec *f = p->f;
    const uint64_t each = f->from == FUSED_X_MERGE ? f->n_split + 1u : (f->from == FUSED_X_ADD_NORM ? 4u : 2u) + (f->twin ? 3u : 0u);
    const uint32_t tile = p->c.wg / p->c.lanes * p->c.rows;
    uint64_t groups = 0;
    for (uint32_t i = 0; i < p->n; i++) groups += (p->s[i].rows + tile - 1) / tile;
    if (p->c.n_x > PROLOGUE_VECTORS) return false;
    if (groups > p->c.groups) groups = p->c.groups;
    return groups * each * p->vectors.x.k * p->vectors.x.bound <= MATVEC_REREAD_DEVICE;
}

static bool plan_of(const lowering *l, const fused_matvec *f, plan *p) {
    const bool pair = f->to == FUSED_GEGLU;
    *p = (plan){.f = f, .n = pair ? 1 : f->n_segment, .per = pair ? 2 : 1};
    if (f->n_segment == 0 || f->n_segment > FUSED_SEGMENT_MAX) return false;
    const uint32_t k = graph_tensor_at(l->g, f->w[0])->dim[1].size;
    if (!vectors_walk_of(l, f, k, &p->vectors) || p->vectors.x.bound > VECTORS_MOST || p->vectors.x_any) return false;
    for (uint32_t i = 0; i < f->n_segment; i++) {
        if (!segment_of(l, f->w[i], k, &p->s[i])) return false;
        if (pair && i) continue;
        p->s[i].out = f->out[i];
        p->s[i].out_offset = graph_tensor_at(l->g, f->out[i])->offset;
        p->s[i].out_stride = p->s[i].rows;
    }
    if (!lower_weights_fit(l, f->w, f->n_segment)) return false;
    if (pair && (f->n_segment != 2 || p->s[0].type != p->s[1].type || p->s[0].rows != p->s[1].rows)) return false;
    if (!pair && f->to != FUSED_STORE && f->n_segment != 1) return false;
    if (f->to == FUSED_GELU_MUL && (!vectors_rows_of(graph_tensor_at(l->g, f->slice), &p->slice) || p->slice.k != p->s[0].rows)) return false;
    shape_of(l, p);
    const uint32_t bindings = kinds_of(p) + p->n + (f->to == FUSED_GELU_MUL ? 1 : 0);
    const lower_apart asked = p->shape.form ? p->shape.form->apart : LOWER_APART_CHOSEN;
    if (asked != LOWER_APART_YES && lower_ir_matvec_choose(l->caps, &p->shape, &p->c) && binds(l, bindings + lower_ir_vectors_bindings(f, &p->vectors)) &&
        (!p->shape.worked || asked == LOWER_APART_NO || prologue_pays(p)))
        return true;
    p->apart = p->shape.worked;
    p->shape.worked = false;
    return p->apart && lower_ir_vectors_apart_fits(l, f, &p->vectors) && lower_ir_matvec_choose(l->caps, &p->shape, &p->c) && binds(l, bindings + 1);
}

bool lower_ir_matvec_fits(const graph *g, const graph_store *store, const lower_settings *settings, const fused_matvec *f) {
    if (!store->device) return false;
    plan p;
    const lowering l = {.g = g, .store = (graph_store *)(uintptr_t)store, .caps = device_caps_of(store->device), .settings = *settings};
    return lower_ir_serial(&l) ? lower_ir_joined_fits(&l, f) : plan_of(&l, f, &p);
}

/* ---- the kernel ------------------------------------------------------------------------------------------------------ */

typedef struct making {
    plan *p;
    lower_ir_matvec m;
    lower_ir_vectors v;
    ir_memory weights[FUSED_SEGMENT_MAX], out[FUSED_SEGMENT_MAX], slice; /* weights: of the segment's type */
    ir_id planes[FUSED_SEGMENT_MAX][PACK_PLANE_MAX], out_offset[FUSED_SEGMENT_MAX], first[FUSED_SEGMENT_MAX];
    ir_id slice_offset, slice_stride, cap;
    tree_walk end;
    uint32_t tile, begin[FUSED_SEGMENT_MAX + 1]; /* rows of a tile; the segments' first tiles */
} making;

static uint32_t element_bytes(base_type type) {
    return ir_type_bytes(lower_ir_weight_element(type));
}

static void bind_weights(making *k) {
    static const char *const buffers[] = {"weights", "weights_b", "weights_c"};
    static const char *const planes[FUSED_SEGMENT_MAX][PACK_PLANE_MAX] = {
        {"a0", "a1", "a2", "a3"}, {"b0", "b1", "b2", "b3"}, {"c0", "c1", "c2", "c3"}};
    static const char *const firsts[] = {"first", "first_b", "first_c"};
    plan *p = k->p;
    lower_ir *ir = &k->m.k;
    const uint32_t n = p->f->n_segment;
    uint32_t words[FUSED_SEGMENT_MAX] = {0};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t same = i;
        for (uint32_t j = 0; j < i; j++)
            if (p->s[j].type == p->s[i].type) same = j;
        const ir_type type = lower_ir_weight_element(p->s[i].type);
        if (same != i) k->weights[i] = k->weights[same];
        else if (p->sharded) k->weights[i] = lower_ir_shard(ir, buffers[i], p->f->w[0], p->shard, type);
        else k->weights[i] = lower_ir_weights(ir, buffers[i], p->f->w, n, type, words);
        for (uint32_t j = 0; j < p->s[i].layout->n_plane; j++)
            k->planes[i][j] = lower_ir_u32(ir, planes[i][j], (uint32_t)((words[i] * 4ull + p->s[i].layout->offset[j]) / element_bytes(p->s[i].type)));
        k->first[i] = lower_ir_u32(ir, firsts[i], p->s[i].first);
    }
}

/* What segment of `kind`'s type the tile is of: a value of each, chosen. */
static ir_id chosen(making *k, uint32_t kind, ir_id tile, const ir_id *of, uint32_t stride) {
    ir_builder *b = k->m.k.b;
    ir_id value = of[kind * stride];
    for (uint32_t i = kind + 1; i < k->p->n; i++)
        if (k->p->s[i].type == k->p->s[kind].type) value = ir_select(b, ir_ge(b, tile, ir_u32(b, k->begin[i])), of[i * stride], value);
    return value;
}

static lower_ir_weight weight_of(making *k, uint32_t kind, ir_id tile) {
    lower_ir_weight w = lower_ir_matvec_weight(&k->m, k->p->s[kind].type, k->weights[kind]);
    for (uint32_t j = 0; j < k->p->s[kind].layout->n_plane; j++) w.plane[j] = chosen(k, kind, tile, &k->planes[0][j], PACK_PLANE_MAX);
    w.start = w.plane[0];
    return w;
}

/* The rows of a tile: with the pair, the second weight's after the first's, by words that lie as far apart as the planes. */
typedef struct tile_rows {
    lower_ir_weight w[2];
    lower_ir_rows rows;
    ir_id result[LOWER_IR_ROWS_MAX], count; /* row of the result; rows of the segment */
} tile_rows;

static void tile_of(making *k, uint32_t kind, ir_id tile, tile_rows *t) {
    lower_ir *ir = &k->m.k;
    ir_builder *b = ir->b;
    plan *p = k->p;
    ir_id begins[FUSED_SEGMENT_MAX], counts[FUSED_SEGMENT_MAX];
    for (uint32_t i = 0; i < p->n; i++) begins[i] = ir_u32(b, k->begin[i]), counts[i] = ir_u32(b, p->s[i].rows);
    *t = (tile_rows){.count = chosen(k, kind, tile, counts, 1)};
    t->w[0] = weight_of(k, kind, tile);
    if (p->per == 2) t->w[1] = weight_of(k, 1, tile);
    t->rows = (lower_ir_rows){.n = p->c.rows * p->per};
    ir_id base = ir_add(b, lower_ir_times(ir, ir_sub(b, tile, chosen(k, kind, tile, begins, 1)), k->tile), k->m.slot);
    for (uint32_t r = 0; r < p->c.rows; r++) {
        t->result[r] = lower_ir_plus(ir, base, r * (p->c.wg / p->c.lanes));
        ir_id row = ir_min(b, t->result[r], ir_sub(b, t->count, ir_u32(b, 1)));
        for (uint32_t j = 0; j < p->per; j++) {
            t->rows.row[r * p->per + j] = ir_add(b, row, p->per == 2 ? k->first[j] : chosen(k, kind, tile, k->first, 1));
            t->rows.w[r * p->per + j] = &t->w[j];
        }
    }
}

static ir_id ended(making *k, const ir_id *sums, ir_id row, ir_id vector) {
    lower_ir *ir = &k->m.k;
    ir_builder *b = ir->b;
    switch (k->p->f->to) {
    case FUSED_STORE: return sums[0];
    case FUSED_GEGLU: return ir_mul(b, lower_ir_gelu(ir, sums[0]), sums[k->p->c.n_x]);
    case FUSED_GELU_MUL: {
        ir_id at = ir_add(b, ir_fma(b, vector, k->slice_stride, k->slice_offset), row);
        return ir_mul(b, lower_ir_gelu(ir, sums[0]), ir_load(b, k->slice, at, 1));
    }
    case FUSED_SOFTCAP: return ir_mul(b, k->cap, ir_tanh(b, ir_div(b, sums[0], k->cap)));
    }
    return sums[0];
}

/* Result o of a row's lanes is lane o's to store. */
static void store_tile(making *k, uint32_t kind, ir_id tile, const tile_rows *t, const ir_id *sums) {
    lower_ir *ir = &k->m.k;
    ir_builder *b = ir->b;
    plan *p = k->p;
    for (uint32_t r = 0; r < p->c.rows; r++)
        for (uint32_t v = 0; v < p->c.n_x; v++) {
            const uint32_t o = r * p->c.n_x + v;
            ir_id vector = lower_ir_plus(ir, k->v.first, v), holds = ir_lt(b, t->result[r], t->count);
            if (p->c.n_x > 1 || p->vectors.x.n.extent) holds = ir_and(b, holds, ir_lt(b, vector, k->v.n));
            ir_if(b, ir_and(b, holds, ir_eq(b, k->m.lane, ir_u32(b, o % p->c.lanes))));
            if (p->end) {
                tree_end_store(&k->end, vector, ir_add(b, t->result[r], k->out_offset[0]), sums[r * p->c.n_x + v]);
                ir_end(b);
                continue;
            }
            ir_id y = ended(k, &sums[r * p->per * p->c.n_x + v], t->result[r], vector);
            for (uint32_t i = kind; i < p->n; i++) { /* the segments of this type */
                if (p->s[i].type != p->s[kind].type) continue;
                ir_id at = ir_add(b, lower_ir_times(ir, vector, p->s[i].out_stride), ir_add(b, t->result[r], k->out_offset[i]));
                const bool alone = p->n == 1 || kinds_of(p) == p->n;
                if (!alone) ir_if(b, ir_and(b, ir_ge(b, tile, ir_u32(b, k->begin[i])), ir_lt(b, tile, ir_u32(b, k->begin[i + 1]))));
                ir_store(b, k->out[i], at, y);
                if (!alone) ir_end(b);
            }
            ir_end(b);
        }
}

static bool is_first_kind(const plan *p, uint32_t i) {
    for (uint32_t j = 0; j < i; j++)
        if (p->s[j].type == p->s[i].type) return false;
    return true;
}

/* Is the tile of a segment of this type? IR_NO_ID: always. */
static ir_id is_of(making *k, uint32_t kind, ir_id tile) {
    ir_builder *b = k->m.k.b;
    ir_id is = IR_NO_ID;
    if (kinds_of(k->p) == 1) return is;
    for (uint32_t i = kind; i < k->p->n; i++) {
        if (k->p->s[i].type != k->p->s[kind].type) continue;
        ir_id in = ir_and(b, ir_ge(b, tile, ir_u32(b, k->begin[i])), ir_lt(b, tile, ir_u32(b, k->begin[i + 1])));
        is = is == IR_NO_ID ? in : ir_or(b, is, in);
    }
    return is;
}

static void fetch_any(making *k, ir_id tile) {
    ir_builder *b = k->m.k.b;
    for (uint32_t i = 0; i < k->p->n; i++) {
        if (!is_first_kind(k->p, i)) continue;
        ir_id is = is_of(k, i, tile);
        tile_rows t;
        if (is != IR_NO_ID) ir_if(b, is);
        tile_of(k, i, tile, &t);
        lower_ir_matvec_fetch(&k->m, &t.rows, ir_u32(b, 0));
        if (is != IR_NO_ID) ir_end(b);
    }
}

static void make_tiles(making *k) {
    plan *p = k->p;
    lower_ir *ir = &k->m.k;
    ir_builder *b = ir->b;
    const uint32_t tiles = k->begin[p->n];
    const bool again = tiles > p->c.groups; /* has a workgroup more than one? */
    fetch_any(k, ir_group(b, 0));
    lower_ir_vectors_make(&k->v);
    ir_id tile = again ? ir_loop(b, ir_group(b, 0), ir_u32(b, tiles), ir_groups(b, 0)) : ir_group(b, 0);
    ir_id following = again ? ir_add(b, tile, ir_groups(b, 0)) : IR_NO_ID, there = again ? ir_lt(b, following, ir_u32(b, tiles)) : IR_NO_ID;
    const bool single = kinds_of(p) == 1;
    ir_id sums[LOWER_IR_SUMS_MAX];
    tile_rows now, next;
    for (uint32_t i = 0; i < p->n; i++) {
        if (!is_first_kind(p, i)) continue;
        ir_id is = is_of(k, i, tile);
        if (is != IR_NO_ID) ir_if(b, is);
        tile_of(k, i, tile, &now);
        if (again && single) tile_of(k, i, following, &next);
        lower_ir_matvec_add(&k->m, &now.rows, again && single ? &next.rows : NULL, there);
        if (is != IR_NO_ID) ir_end(b);
    }
    lower_ir_matvec_join(&k->m, p->c.rows * p->per, sums); /* not inside the conditions: pocl gets barriers there wrong */
    for (uint32_t i = 0; i < p->n; i++) {
        if (!is_first_kind(p, i)) continue;
        ir_id is = is_of(k, i, tile);
        if (is != IR_NO_ID) ir_if(b, is);
        tile_of(k, i, tile, &now);
        store_tile(k, i, tile, &now, sums);
        if (is != IR_NO_ID) ir_end(b);
    }
    if (again && !single) {
        ir_if(b, there);
        fetch_any(k, following);
        ir_end(b);
    }
    if (again) ir_end(b);
}

static beryl_status make(lowering *l, const graph_node *node, plan *p, const char *name, beryl_error *error) {
    static const char *const outs[] = {"out", "out_b", "out_c"}, *const offsets[] = {"out_offset", "out_offset_b", "out_offset_c"};
    making k = {.p = p, .tile = p->c.wg / p->c.lanes * p->c.rows};
    uint32_t tiles = 0;
    for (uint32_t i = 0; i < p->n; i++) tiles += (p->s[i].rows + k.tile - 1) / k.tile;
    const uint32_t turns = (tiles + p->c.groups - 1) / p->c.groups; /* the same for all workgroups, as far as can be */
    lower_ir_matvec_begin(&k.m, l, node, name, &p->c, p->vectors.x.k);
    lower_ir *ir = &k.m.k;
    base_type types[FUSED_SEGMENT_MAX];
    for (uint32_t i = 0; i < p->n; i++) {
        k.begin[i + 1] = k.begin[i] + (p->s[i].rows + k.tile - 1) / k.tile;
        types[i] = p->s[i].type;
    }
    bind_weights(&k);
    lower_ir_vectors_begin(&k.v, &k.m, p->f, &p->vectors, p->apart);
    for (uint32_t i = 0; i < p->n; i++) {
        if (!p->end) k.out[i] = lower_ir_bind(ir, outs[i], p->s[i].out, IR_F32, IR_READ_WRITE);
        k.out_offset[i] = lower_ir_u32(ir, offsets[i], p->s[i].out_offset);
    }
    if (p->end) tree_end_declare(&k.end, ir, p->end);
    if (p->f->to == FUSED_GELU_MUL) {
        k.slice = lower_ir_bind(ir, "slice", p->f->slice, IR_F32, IR_READ);
        k.slice_offset = lower_ir_u32(ir, "slice_offset", p->slice.offset);
        k.slice_stride = lower_ir_u32(ir, "slice_stride", p->slice.stride);
    }
    if (p->f->to == FUSED_SOFTCAP) k.cap = lower_ir_f32(ir, "cap", p->f->cap);
    lower_ir_matvec_open(&k.m, types, p->n, p->c.rows * p->per);
    make_tiles(&k);
    for (uint32_t i = 0; i < p->f->n_segment; i++) lower_bytes(l, p->s[i].rows * base_type_row_bytes(p->s[i].type, p->vectors.x.k));
    return lower_ir_end_3d(ir, (lower_count){(tiles + turns - 1) / turns, 0}, 1, p->vectors.x.n, p->c.n_x, (lower_count){1, 0}, 1, error);
}

beryl_status lower_ir_fused_matvec(lowering *l, const graph_node *node, beryl_error *error) {
    plan p;
    if (lower_ir_serial(l)) return lower_ir_joined(l, node, node->attr.fused.detail, error);
    if (!plan_of(l, node->attr.fused.detail, &p)) return lower_refuse(l, node, "this joined product", error);
    const beryl_status status = p.apart ? lower_ir_vectors_apart(l, node, p.f, &p.vectors, error) : BERYL_OK;
    return status == BERYL_OK ? make(l, node, &p, "matvec", error) : status;
}

beryl_status lower_ir_matvec_node(lowering *l, const graph_node *node, const graph_node *product, const tree *end, bool *taken, beryl_error *error) {
    const fused_matvec f = {.from = FUSED_X_PLAIN, .to = FUSED_STORE, .x = product->in[0], .n_segment = 1, .w = {product->in[1]}, .out = {product->out[0]}};
    const graph_tensor *w = graph_tensor_at(l->g, product->in[1]);
    plan p = {.f = &f, .n = 1, .per = 1, .end = end};
    *taken = false;
    if (w->rank != 2 || !segment_of(l, product->in[1], w->dim[1].size, &p.s[0])) return BERYL_OK;
    if (!vectors_walk_of(l, &f, w->dim[1].size, &p.vectors) || p.vectors.x.bound > VECTORS_MOST || p.vectors.x_any) return BERYL_OK;
    shape_of(l, &p);
    if (!lower_ir_matvec_choose(l->caps, &p.shape, &p.c)) return BERYL_OK;
    const store_tensor *stored = lower_stored(l, product->in[1]);
    const uint32_t begin = p.s[0].first, last = begin + p.s[0].rows, offset = end ? 0 : graph_tensor_at(l->g, product->out[0])->offset;
    beryl_status status = BERYL_OK;
    *taken = p.sharded = true;
    p.s[0].out = product->out[0];
    p.s[0].out_stride = p.s[0].rows;
    for (uint32_t i = 0; status == BERYL_OK && i < stored->n_shard; i++) {
        const store_shard *s = &stored->shard[i];
        const uint32_t from = begin > s->row ? begin : s->row, to = last < s->row + s->n_row ? last : s->row + s->n_row;
        if (from >= to) continue;
        p.shard = i;
        p.s[0].layout = &s->layout;
        p.s[0].first = from - s->row;
        p.s[0].rows = to - from;
        p.s[0].out_offset = offset + from - begin;
        status = make(l, node, &p, "matmul", error);
    }
    return status;
}
