/* matvec_fused.c - products with few vectors on GPUs, with what was joined to
 * them (tile/fused.h): prologue, up to three weights side by side, epilogue.
 *
 * Tiles of all segments are counted through; which one a tile is of follows from constants.
 * Segments whose weights have one type share one text: what differs (planes, rows, where the
 * results go) is chosen by the tile's number. */
#include "tile/matvec_low.h"
#include "base/build.h"
#include "base/error.h"
#include "tile/dots.h"
#include "tile/matvec_inside.h"

enum {
    VECTORS_MAX = 32,
    /* that a workgroup may make one after another: each waits for its loads and sums */
    PROLOGUE_VECTORS = 2
};

/* ---- what there is --------------------------------------------------------------------------- */

bool matvec_segment_of(const lowering *l, graph_value v, uint32_t k, matvec_segment *s) {
    const graph_tensor *t = graph_tensor_at(l->g, v);
    const store_tensor *stored = lower_weight(l, v);
    if (t->rank != 2 || t->dim[1].extent || t->dim[0].extent || t->stride[1] != 1 ||
        t->stride[0] != t->dim[1].size || t->dim[1].size != k)
        return false;
    if (!stored || t->offset % k || !tile_weight_known(stored->type)) return false;
    *s = (matvec_segment){.w = v,
                          .type = stored->type,
                          .first = t->offset / k,
                          .rows = t->dim[0].size,
                          .layout = &stored->shard[0].layout};
    return true;
}

static bool binds(const lowering *l, uint32_t n) {
    return n <= l->caps->storage_max;
}

static uint32_t kinds_of(const matvec_plan *p) { /* different types of weights */
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        bool known = false;
        for (uint32_t j = 0; j < i; j++) known |= p->s[j].type == p->s[i].type;
        n += !known;
    }
    return n;
}

/* Does a dispatch before make factors of A, with the vectors? */
static bool makes_apart(const matvec_plan *p) {
    return BUILD_HAS_JOINED_ADAPTERS && p->low.apart;
}

/* Does it make them itself? */
static bool makes(const matvec_plan *p) {
    return BUILD_HAS_ADAPTERS && p->low.made && !makes_apart(p) &&
           !(BUILD_HAS_JOINED_ADAPTERS && p->low.n_part);
}

static bool takes_parts(const matvec_plan *p) {
    return BUILD_HAS_JOINED_ADAPTERS && p->low.n_part;
}

static bool makes_parts(const matvec_plan *p) {
    return BUILD_HAS_JOINED_ADAPTERS && p->parts.to;
}

static uint32_t low_bindings(const matvec_plan *p) {
    return BUILD_HAS_ADAPTERS ? matvec_low_bindings(p) : 0;
}

static void shape_of(const lowering *l, matvec_plan *p) {
    p->shape = (matvec_shape){.n_segment = p->n,
                              .k = p->vectors.rows.k,
                              .n_x = p->vectors.rows.bound,
                              .per = p->per,
                              .exact = l->settings.exact,
                              .has_prologue = p->vectors.kind != VECTORS_PLAIN ||
                                              (makes(p) && !p->vectors.handed),
                              .shared = vectors_shared(&p->vectors),
                              .factors = makes(p) && !p->low.stored ? p->low.made : 0,
                              .parts = takes_parts(p) ? p->low.made : 0,
                              .keeps = makes_parts(p),
                              .beside = BUILD_HAS_ADAPTERS && p->low.stored,
                              .rounded_in = p->vectors.handed || p->vectors.rounded,
                              .rounded_out = p->hands_on,
                              .form = lower_form_of(l, p->products.w[0])};
    for (uint32_t i = 0; i < p->n; i++)
        p->shape.types[i] = p->s[i].type, p->shape.rows[i] = p->s[i].rows;
}

/* What all workgroups together read again to make the vectors, against what a dispatch of its
 * own would cost. */
static bool prologue_pays(const matvec_plan *p) {
    const uint64_t each = vectors_reads(&p->vectors);
    const uint32_t tile = matvec_tile_rows(p);
    uint64_t groups = 0;
    for (uint32_t i = 0; i < p->n; i++) groups += (p->s[i].rows + tile - 1) / tile;
    const bool plain =
        BUILD_HAS_JOINED_ADAPTERS && p->vectors.kind == VECTORS_PLAIN; /* none is made */
    if (p->c.n_x > PROLOGUE_VECTORS && !plain) return false;
    if (groups > p->c.groups) groups = p->c.groups;
    return groups * each * p->vectors.rows.k * p->vectors.rows.bound <= MATVEC_REREAD_DEVICE;
}

/* Many vectors come rounded, from the products before or by a dispatch; bindings: but for vectors
 * and what is of low rank. */
static bool batch_of(const lowering *l, uint32_t bindings, matvec_plan *p) {
    matvec_plan with = *p;
    if (p->vectors.rows.bound == 1) return false;
    if (BUILD_HAS_JOINED_ADAPTERS && makes(p)) matvec_low_apart(&with);
    with.apart = with.vectors.rounded = !p->vectors.handed;
    shape_of(l, &with);
    with.shape.has_prologue = false;
    with.shape.rounded_apart =
        with.apart && with.vectors.kind == VECTORS_PLAIN && !makes_apart(&with);
    if ((with.apart && !vectors_fit_rounded(l, &with.vectors)) ||
        !tile_matvec_choose(l->caps, &with.shape, &with.c) ||
        !binds(l, bindings + low_bindings(&with) + 1 + with.apart))
        return false;
    *p = with;
    return true;
}

static bool plan_as(const lowering *l, const fused_matvec *f, const graph_region *r,
                    matvec_plan *p);

/* Parts that the products before make, whose result is x; 0: none. */
static uint32_t parts_before(const lowering *l, graph_value x, bool handed) {
    const uint32_t at = graph_tensor_at(l->g, x)->node;
    const graph_node *node = at < l->g->nodes.count ? &l->g->nodes.data[at] : NULL;
    if (!node || node->op != OP_FUSED || node->attr.fused.kind != FUSED_MATVEC) return 0;
    const graph_region r = graph_region_of(l->g, node);
    matvec_plan p = {.hands_on = handed};
    return plan_as(l, node->attr.fused.detail, &r, &p) ? p.s[0].rows / matvec_tile_rows(&p) : 0;
}

/* Of p: hands_on, vectors.handed. */
static bool plan_any(const lowering *l, const fused_matvec *f, const graph_region *r,
                     matvec_plan *p) {
    const fused_matvec *merge = f && f->attention ? f : NULL;
    const bool hands_on = p->hands_on, handed = p->vectors.handed;
    uint32_t n_part = 0;
    *p = (matvec_plan){.hands_on = hands_on};
    graph_products *all = &p->products;
    if (!graph_products_of(l->g, r, all)) return false;
    if (BUILD_HAS_JOINED_ADAPTERS && f && f->parts && !f->parts_of) {
        n_part = parts_before(l, all->x, handed);
        if (!n_part) return false;
    }
    const bool pair = all->ends && all->n == 2;
    p->n = pair ? 1 : all->n;
    p->per = pair ? 2 : 1;
    const uint32_t k = graph_tensor_at(l->g, all->w[0])->dim[1].size;
    if (!vectors_plan_of(l, &all->before, all->x, merge, k, &p->vectors) ||
        p->vectors.rows.bound > VECTORS_MAX)
        return false;
    p->vectors.handed = handed;
    for (uint32_t i = 0; i < all->n; i++) {
        if (!matvec_segment_of(l, all->w[i], k, &p->s[i])) return false;
        p->s[i].out = all->out[i];
        p->s[i].out_offset = all->ends ? 0 : graph_tensor_at(l->g, all->out[i])->offset;
        p->s[i].out_stride = p->s[i].rows;
    }
    if (!lower_weights_fit(l, all->w, all->n)) return false;
    if (pair && (p->s[0].type != p->s[1].type || p->s[0].rows != p->s[1].rows)) return false;
    if ((all->ends && all->n > 2) ||
        (BUILD_HAS_ADAPTERS && !matvec_low_of(l, p, n_part ? f->parts : 0, n_part)) ||
        (BUILD_HAS_JOINED_ADAPTERS && !matvec_parts_of(l, f, &p->parts)))
        return false;
    shape_of(l, p);
    const uint32_t bindings =
        kinds_of(p) + (all->ends ? tree_bindings(l, &all->end) : p->n) + 2 * makes_parts(p);
    if (batch_of(l, bindings, p)) return true;
    const lower_separate asked = p->shape.form ? p->shape.form->apart : LOWER_SEPARATE_CHOSEN;
    if (asked != LOWER_SEPARATE_YES && vectors_fit_inside(&p->vectors) &&
        tile_matvec_choose(l->caps, &p->shape, &p->c) &&
        (!BUILD_HAS_ADAPTERS || matvec_low_takes(p)) &&
        binds(l, bindings + low_bindings(p) + tile_vectors_bindings(l, &p->vectors)) &&
        (!p->shape.has_prologue || asked == LOWER_SEPARATE_NO || prologue_pays(p)))
        return true;
    if (makes(p)) {
        if (!BUILD_HAS_JOINED_ADAPTERS || p->vectors.rows.bound == 1) return false;
        matvec_low_apart(p);
        shape_of(l, p);
    }
    p->apart = p->shape.has_prologue || makes_apart(p);
    p->shape.has_prologue = false;
    return p->apart &&
           (makes_apart(p) ? vectors_fit_rounded : vectors_fit_separate)(l, &p->vectors) &&
           tile_matvec_choose(l->caps, &p->shape, &p->c) &&
           binds(l, bindings + low_bindings(p) + 1);
}

/* f NULL: a region that is no node yet. */
static bool plan_as(const lowering *l, const fused_matvec *f, const graph_region *r,
                    matvec_plan *p) {
    return plan_any(l, f, r, p) && (!BUILD_HAS_JOINED_ADAPTERS || matvec_parts_fit(p));
}

/* A linear that is no region, with a tree at its end (NULL: none). Of p: vectors.handed. */
static bool single_of(const lowering *l, const graph_node *product, const tree *end,
                      matvec_plan *p) {
    const graph_tensor *w = graph_tensor_at(l->g, product->in[1]);
    const graph_region none = {.n = 0};
    const bool handed = p->vectors.handed;
    *p = (matvec_plan){.n = 1, .per = 1};
    p->products = (graph_products){.x = product->in[0],
                                   .n = 1,
                                   .w = {product->in[1]},
                                   .out = {product->out[0]},
                                   .ends = end != NULL};
    if (BUILD_HAS_ADAPTERS && product->n_in > 2) {
        p->products.has_low = true;
        p->products.low[0] = product->in[2];
        p->products.low_w[0] = product->in[3];
    }
    if (end) p->products.end = *end;
    if (w->rank != 2 || !matvec_segment_of(l, product->in[1], w->dim[1].size, &p->s[0]))
        return false;
    if (!vectors_plan_of(l, &none, product->in[0], NULL, w->dim[1].size, &p->vectors) ||
        p->vectors.rows.bound > VECTORS_MAX)
        return false;
    p->vectors.handed = handed;
    if (BUILD_HAS_ADAPTERS && !matvec_low_of(l, p, 0, 0)) return false;
    const uint32_t bindings = 1 + (end ? tree_bindings(l, end) : 1);
    if (batch_of(l, bindings, p)) return true;
    shape_of(l, p);
    return tile_matvec_choose(l->caps, &p->shape, &p->c) &&
           (!BUILD_HAS_ADAPTERS || !p->low.is || binds(l, bindings + low_bindings(p) + 1));
}

/* ---- results that go on rounded -------------------------------------------------------------- */

/* Would it multiply v, if v came rounded? */
static bool takes(const lowering *l, const graph_node *node, graph_value v) {
    matvec_plan p = {.vectors.handed = true};
    if (node->op == OP_LINEAR) return node->in[0] == v && single_of(l, node, NULL, &p);
    if (node->op != OP_FUSED || node->attr.fused.kind != FUSED_MATVEC) return false;
    const fused_matvec *f = node->attr.fused.detail;
    const graph_region r = graph_region_of(l->g, node);
    return !f->attention && !tile_dots_joined_fits(l->g, l->store, &l->settings, &r) &&
           plan_as(l, f, &r, &p) && p.vectors.kind == VECTORS_PLAIN && p.products.x == v;
}

/* Are there tiles for half the device's units? They are whole blocks. */
static bool is_busy(const lowering *l, const matvec_plan *p) {
    const uint32_t units = tile_units(l->caps);
    return p->s[0].rows / matvec_tile_rows(p) >= units / 2;
}

/* Does v go rounded from the products that make it to the one that reads it? Both ask. Of several
 * vectors only to one that copies them: what is read beside the weights is more than what
 * rounding them costs. */
static bool is_handed(const lowering *l, graph_value v) {
    const graph_node *reader = graph_reader_of(l->g, v);
    matvec_plan p = {.hands_on = true};
    if (!reader || tile_serial(l) || graph_tensor_at(l->g, v)->rank != 2 ||
        graph_tensor_at(l->g, v)->dim[0].size > VECTORS_MAX)
        return false;
    const graph_node *maker = &l->g->nodes.data[graph_tensor_at(l->g, v)->node];
    if (maker->dead || maker->op != OP_FUSED || maker->attr.fused.kind != FUSED_MATVEC)
        return false;
    const fused_matvec *f = maker->attr.fused.detail;
    const graph_region r = graph_region_of(l->g, maker);
    return takes(l, reader, v) && !tile_dots_joined_fits(l->g, l->store, &l->settings, &r) &&
           plan_as(l, f, &r, &p) && p.products.ends && p.products.end.n_out == 1 &&
           p.products.end.tensors[0] == v && p.s[0].rows % 32 == 0 && is_busy(l, &p);
}

static bool plan_of(const lowering *l, const fused_matvec *f, const graph_region *r,
                    matvec_plan *p) {
    graph_products all;
    if (!graph_products_of(l->g, r, &all)) return false;
    *p = (matvec_plan){.hands_on = all.ends && is_handed(l, all.end.tensors[0]),
                       .vectors.handed = !all.before.n && !f->attention && is_handed(l, all.x)};
    return plan_as(l, f, r, p);
}

/* Does the product that takes v also take parts that the node makes? */
static bool parts_go_with(const lowering *l, const graph_node *node, graph_value v) {
    const graph_region r = graph_region_of(l->g, node);
    graph_products all;
    return BUILD_HAS_JOINED_ADAPTERS && ((const fused_matvec *)node->attr.fused.detail)->parts_of &&
           graph_products_of(l->g, &r, &all) && all.end.tensors[0] == v;
}

graph_value tile_matvec_handed_on(const graph *g, const graph_store *store,
                                  const lower_settings *settings, const graph_node *node) {
    if (!store->device) return 0;
    const lowering l = lower_asked(g, store, settings);
    for (uint32_t i = 0; i < node->n_out; i++)
        if (node->out[i] && (parts_go_with(&l, node, node->out[i]) || is_handed(&l, node->out[i])))
            return node->out[i];
    return 0;
}

/* ---- does it fit? ---------------------------------------------------------------------------- */

bool tile_matvec_fits(const graph *g, const graph_store *store, const lower_settings *settings,
                      const fused_matvec *f, const graph_region *r) {
    if (!store->device) return false;
    matvec_plan p;
    const lowering l = lower_asked(g, store, settings);
    if (tile_serial(&l)) return !f->attention && !f->parts && tile_joined_fits(&l, r);
    return plan_of(&l, f, r, &p);
}

bool tile_matvec_adds(const lowering *l, const graph_node *product, const tree *end) {
    matvec_plan p = {.vectors.handed = false};
    return single_of(l, product, end, &p);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

uint32_t matvec_element_bytes(base_type type) {
    return ir_type_bytes(tile_weight_element(type));
}

static void bind_weights(matvec_making *k) {
    static const char *const buffers[] = {"weights", "weights_b", "weights_c"};
    static const char *const planes[FUSED_SEGMENT_MAX][PACK_PLANE_MAX] = {
        {"a0", "a1", "a2", "a3"}, {"b0", "b1", "b2", "b3"}, {"c0", "c1", "c2", "c3"}};
    static const char *const firsts[] = {"first", "first_b", "first_c"};
    matvec_plan *p = k->p;
    tile_kernel *ir = &k->m.k;
    const uint32_t n = p->products.n;
    uint32_t words[FUSED_SEGMENT_MAX] = {0};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t same = i;
        for (uint32_t j = 0; j < i; j++)
            if (p->s[j].type == p->s[i].type) same = j;
        const ir_type type = tile_matvec_element(p->s[i].type);
        if (same != i) k->weights[i] = k->weights[same];
        else if (p->sharded)
            k->weights[i] = tile_shard(ir, buffers[i], p->products.w[0], p->shard, type);
        else k->weights[i] = tile_weights(ir, buffers[i], p->products.w, n, type, words);
        for (uint32_t j = 0; j < p->s[i].layout->n_plane; j++)
            k->planes[i][j] = tile_u32(
                ir, planes[i][j],
                (uint32_t)((words[i] * 4ull + p->s[i].layout->offset[j]) / ir_type_bytes(type)));
        k->first[i] = tile_u32(ir, firsts[i], p->s[i].first);
        /* halves alone: with blocks 26B-A4B answers 1 % slower so */
        if (p->vectors.rows.bound <= p->c.n_x && matvec_halves(p->s[i].type))
            tile_reads_once(ir, k->weights[i]);
    }
}

/* What segment of `kind`'s type the tile is of: a value of each, chosen. */
ir_id matvec_chosen(matvec_making *k, uint32_t kind, ir_id tile, const ir_id *of, uint32_t stride) {
    ir_builder *b = k->m.k.b;
    ir_id value = of[kind * stride];
    for (uint32_t i = kind + 1; i < k->p->n; i++)
        if (k->p->s[i].type == k->p->s[kind].type)
            value = ir_select(b, ir_ge(b, tile, ir_u32(b, k->begin[i])), of[i * stride], value);
    return value;
}

static tile_weight weight_of(matvec_making *k, uint32_t kind, ir_id tile) {
    tile_weight w = tile_matvec_weight(&k->m, k->p->s[kind].type, k->weights[kind]);
    for (uint32_t j = 0; j < k->p->s[kind].layout->n_plane; j++)
        w.plane[j] = matvec_chosen(k, kind, tile, &k->planes[0][j], PACK_PLANE_MAX);
    w.start = w.plane[0];
    return w;
}

static void tile_of(matvec_making *k, uint32_t kind, ir_id tile, matvec_tile *t) {
    ir_builder *b = k->m.k.b;
    matvec_plan *p = k->p;
    ir_id begins[FUSED_SEGMENT_MAX], counts[FUSED_SEGMENT_MAX];
    for (uint32_t i = 0; i < p->n; i++)
        begins[i] = ir_u32(b, k->begin[i]), counts[i] = ir_u32(b, p->s[i].rows);
    *t = (matvec_tile){.count = matvec_chosen(k, kind, tile, counts, 1)};
    t->w[0] = weight_of(k, kind, tile);
    if (p->per == 2) t->w[1] = weight_of(k, 1, tile);
    t->rows = (tile_rows){.n = p->c.rows * p->per};
    ir_id base =
        ir_add(b, tile_mul(b, ir_sub(b, tile, matvec_chosen(k, kind, tile, begins, 1)), k->tile),
               k->m.slot);
    for (uint32_t r = 0; r < p->c.rows; r++) {
        t->result[r] = tile_add(b, base, r * (p->c.wg / p->c.lanes));
        ir_id row = ir_min(b, t->result[r], ir_sub(b, t->count, ir_u32(b, 1)));
        if (BUILD_HAS_ADAPTERS) t->row[r] = row;
        for (uint32_t j = 0; j < p->per; j++) {
            t->rows.row[r * p->per + j] = ir_add(
                b, row, p->per == 2 ? k->first[j] : matvec_chosen(k, kind, tile, k->first, 1));
            t->rows.w[r * p->per + j] = &t->w[j];
        }
    }
}

/* The result of `row` of the segment for a vector. */
static void store_result(matvec_making *k, uint32_t kind, ir_id tile, ir_id row, ir_id vector,
                         const ir_id of[2]) {
    ir_builder *b = k->m.k.b;
    matvec_plan *p = k->p;
    if (p->products.ends) {
        tree_end_store(&k->end, vector, ir_add(b, row, k->out_offset[0]), of);
        return;
    }
    const bool alone = p->n == 1 || kinds_of(p) == p->n;
    for (uint32_t i = kind; i < p->n; i++) { /* the segments of this type */
        if (p->s[i].type != p->s[kind].type) continue;
        ir_id at =
            ir_add(b, tile_mul(b, vector, p->s[i].out_stride), ir_add(b, row, k->out_offset[i]));
        if (!alone)
            ir_if(b, ir_and(b, ir_ge(b, tile, ir_u32(b, k->begin[i])),
                            ir_lt(b, tile, ir_u32(b, k->begin[i + 1]))));
        ir_store(b, k->out[i], at, of[0]);
        if (!alone) ir_end(b);
    }
}

/* Result o of a row's lanes is lane o's to store. */
static void store_tile(matvec_making *k, uint32_t kind, ir_id tile, const matvec_tile *t,
                       const ir_id *sums) {
    ir_builder *b = k->m.k.b;
    matvec_plan *p = k->p;
    for (uint32_t r = 0; r < p->c.rows; r++)
        for (uint32_t v = 0; v < p->c.n_x; v++) {
            const uint32_t o = r * p->c.n_x + v;
            ir_id vector = tile_add(b, k->v.first, v), holds = ir_lt(b, t->result[r], t->count);
            if (p->c.n_x > 1 || p->vectors.rows.n.extent)
                holds = ir_and(b, holds, ir_lt(b, vector, k->v.n));
            ir_if(b, ir_and(b, holds, ir_eq(b, k->m.lane, ir_u32(b, o % p->c.lanes))));
            const ir_id *of = &sums[r * p->per * p->c.n_x + v];
            store_result(k, kind, tile, t->result[r], vector,
                         (ir_id[]){of[0], p->per == 2 ? of[p->c.n_x] : IR_NO_ID});
            ir_end(b);
        }
}

/* Of a batch, whose sums lie in workgroup memory: a lane a result, in turns. */
static void store_batch(matvec_making *k, uint32_t kind, ir_id tile, const matvec_tile *t) {
    ir_builder *b = k->m.k.b;
    matvec_plan *p = k->p;
    const uint32_t all = k->tile * p->c.n_x, slots = p->c.wg / p->c.lanes,
                   rows = p->c.rows * p->per;
    ir_id last = ir_sub(b, k->v.n, ir_u32(b, 1)), first = ir_sub(b, t->result[0], k->m.slot);
    for (uint32_t begin = 0; begin < all; begin += p->c.wg) {
        ir_id i = tile_add(b, ir_local(b, 0), begin), place = tile_rem(b, i, k->tile),
              v = tile_div(b, i, k->tile), item = tile_mul(b, tile_div(b, place, slots), p->per),
              slot = tile_rem(b, place, slots), row = ir_add(b, first, place),
              vector = ir_add(b, k->v.first, v);
        ir_id is_one = ir_lt(b, i, ir_u32(b, all)),
              holds = ir_and(b, ir_lt(b, row, t->count), ir_le(b, vector, last));
        if (p->hands_on) { /* all of a block are read again */
            row = ir_min(b, row, ir_sub(b, t->count, ir_u32(b, 1)));
            vector = ir_min(b, vector, last);
            holds = is_one;
        } else if (begin + p->c.wg > all) {
            holds = ir_and(b, holds, is_one);
        }
        ir_if(b, holds);
        ir_id of[2] = {tile_matvec_left(&k->m, rows, item, v, slot), IR_NO_ID};
        if (p->per == 2) of[1] = tile_matvec_left(&k->m, rows, tile_add(b, item, 1), v, slot);
        if (p->hands_on) ir_store(b, k->handed, i, tree_end_value(&k->end, vector, row, of));
        else store_result(k, kind, tile, row, vector, of);
        ir_end(b);
    }
    if (!p->hands_on) return;
    ir_barrier(b);
    tile_matvec_hand_on(&k->m, k->handed, k->tile / 4, tile_mul(b, tile, k->tile / 4),
                        p->s[0].rows / 4, k->v.first, k->v.n);
}

/* The tile's results to workgroup memory. */
static void keep_tile(matvec_making *k, const matvec_tile *t, const ir_id *sums) {
    ir_builder *b = k->m.k.b;
    matvec_plan *p = k->p;
    ir_id one = ir_u32(b, 1), last = ir_sub(b, k->v.n, one);
    for (uint32_t r = 0; r < p->c.rows; r++)
        for (uint32_t v = 0; v < p->c.n_x; v++) {
            const uint32_t o = r * p->c.n_x + v;
            const ir_id *of = &sums[r * p->per * p->c.n_x + v];
            ir_id vector = ir_min(b, tile_add(b, k->v.first, v), last),
                  column = ir_min(b, t->result[r], ir_sub(b, t->count, one)),
                  at = tile_add(b, k->m.slot, v * k->tile + r * (p->c.wg / p->c.lanes));
            ir_if(b, ir_eq(b, k->m.lane, ir_u32(b, o % p->c.lanes)));
            ir_store(b, k->handed, at,
                     tree_end_value(&k->end, vector, column,
                                    (ir_id[]){of[0], p->per == 2 ? of[p->c.n_x] : IR_NO_ID}));
            ir_end(b);
        }
    ir_barrier(b);
}

/* Where others want more of the tile than its results as they are. */
static void store_kept(matvec_making *k, uint32_t kind, ir_id tile, const matvec_tile *t,
                       const ir_id *sums, bool again) {
    const matvec_plan *p = k->p;
    if (makes_parts(p) && !p->hands_on) store_tile(k, kind, tile, t, sums);
    keep_tile(k, t, sums);
    if (!makes_parts(p) || p->hands_on)
        tile_matvec_hand_on(&k->m, k->handed, k->tile / 4, tile_mul(k->m.k.b, tile, k->tile / 4),
                            p->s[0].rows / 4, k->v.first, k->v.n);
    if (makes_parts(p)) matvec_parts_make(k, tile, !again);
}

static bool is_first_kind(const matvec_plan *p, uint32_t i) {
    for (uint32_t j = 0; j < i; j++)
        if (p->s[j].type == p->s[i].type) return false;
    return true;
}

/* Is the tile of a segment of this type? IR_NO_ID: always. */
static ir_id is_of(matvec_making *k, uint32_t kind, ir_id tile) {
    ir_builder *b = k->m.k.b;
    ir_id is = IR_NO_ID;
    if (kinds_of(k->p) == 1) return is;
    for (uint32_t i = kind; i < k->p->n; i++) {
        if (k->p->s[i].type != k->p->s[kind].type) continue;
        ir_id in = ir_and(b, ir_ge(b, tile, ir_u32(b, k->begin[i])),
                          ir_lt(b, tile, ir_u32(b, k->begin[i + 1])));
        is = is == IR_NO_ID ? in : ir_or(b, is, in);
    }
    return is;
}

/* again: there are more tiles, for which what is added is fetched one by one. */
static void fetch_any(matvec_making *k, ir_id tile, bool again) {
    ir_builder *b = k->m.k.b;
    for (uint32_t i = 0; i < k->p->n; i++) {
        if (!is_first_kind(k->p, i)) continue;
        ir_id is = is_of(k, i, tile);
        matvec_tile t;
        if (is != IR_NO_ID) ir_if(b, is);
        tile_of(k, i, tile, &t);
        tile_matvec_fetch(&k->m, &t.rows, ir_u32(b, 0));
        if (BUILD_HAS_ADAPTERS && !again) matvec_low_fetch(k, i, tile, &t);
        if (is != IR_NO_ID) ir_end(b);
    }
}

/* What every workgroup makes of A, there for all of its lanes. */
static void add_factors(matvec_making *k) {
    tile_factors_add(&k->factors);
    ir_barrier(k->m.k.b);
}

static void make_tiles(matvec_making *k) {
    matvec_plan *p = k->p;
    ir_builder *b = k->m.k.b;
    const uint32_t tiles = k->begin[p->n];
    const bool again = tiles > p->c.groups; /* has a workgroup more than one? */
    fetch_any(k, ir_group(b, 0), again);
    if (makes(p)) matvec_low_begin(k, again);
    if (makes_parts(p) && !again) matvec_parts_fetch(k, ir_group(b, 0));
    if (takes_parts(p)) matvec_parts_take(k);
    tile_vectors_make(&k->v);
    if (takes_parts(p)) {
        if (p->c.x != MATVEC_SHARED && p->c.x != MATVEC_INT8) ir_barrier(b);
        matvec_parts_end(k);
    }
    if (makes(p) && p->low.stored) {
        tile_factors_part(&k->factors, p->vectors.handed ? NULL : k->v.values);
        ir_barrier(b);
        tile_factors_end(&k->factors);
    } else if (makes(p) && again) {
        add_factors(k);
    }
    ir_id tile =
        again ? ir_loop(b, ir_group(b, 0), ir_u32(b, tiles), ir_groups(b, 0)) : ir_group(b, 0);
    ir_id following = again ? ir_add(b, tile, ir_groups(b, 0)) : IR_NO_ID,
          there = again ? ir_lt(b, following, ir_u32(b, tiles)) : IR_NO_ID;
    const bool single = kinds_of(p) == 1;
    /* what is there before the kernel begins is multiplied while weights are on their way */
    const bool low_first = BUILD_HAS_JOINED_ADAPTERS && p->low.apart;
    k->m.has_sums = low_first;
    ir_id sums[TILE_SUMS_MAX];
    matvec_tile now, next;
    for (uint32_t i = 0; i < p->n; i++) {
        if (!is_first_kind(p, i)) continue;
        ir_id is = is_of(k, i, tile);
        if (is != IR_NO_ID) ir_if(b, is);
        tile_of(k, i, tile, &now);
        if (again && single) tile_of(k, i, following, &next);
        if (BUILD_HAS_ADAPTERS && again) matvec_low_fetch(k, i, tile, &now);
        if (low_first) {
            tile_matvec_clear(&k->m, now.rows.n);
            matvec_low_add(k, i, tile, &now);
        }
        tile_matvec_add(&k->m, &now.rows, again && single ? &next.rows : NULL, there);
        if (is != IR_NO_ID) ir_end(b);
    }
    /* Weights were asked for first, so the products of the only tile come before the factors. Not
     * inside the conditions: pocl gets barriers there wrong. */
    if (makes(p) && !again && !p->low.stored) add_factors(k);
    for (uint32_t i = 0; BUILD_HAS_ADAPTERS && !low_first && matvec_low_adds(p) && i < p->n; i++) {
        if (!is_first_kind(p, i)) continue;
        ir_id is = is_of(k, i, tile);
        if (is != IR_NO_ID) ir_if(b, is);
        tile_of(k, i, tile, &now);
        matvec_low_add(k, i, tile, &now);
        if (is != IR_NO_ID) ir_end(b);
    }
    if (tile_matvec_copies(&p->c)) tile_matvec_leave(&k->m, p->c.rows * p->per);
    else tile_matvec_join(&k->m, p->c.rows * p->per, sums);
    for (uint32_t i = 0; i < p->n; i++) {
        if (!is_first_kind(p, i)) continue;
        ir_id is = is_of(k, i, tile);
        if (is != IR_NO_ID) ir_if(b, is);
        tile_of(k, i, tile, &now);
        if (tile_matvec_copies(&p->c)) store_batch(k, i, tile, &now);
        else if (p->hands_on || makes_parts(p)) store_kept(k, i, tile, &now, sums, again);
        else store_tile(k, i, tile, &now, sums);
        if (is != IR_NO_ID) ir_end(b);
    }
    if ((p->hands_on || makes_parts(p)) && again) ir_barrier(b);
    if (again && !single) {
        ir_if(b, there);
        fetch_any(k, following, again);
        ir_end(b);
    }
    if (again) ir_end(b);
}

static beryl_status make(lowering *l, matvec_plan *p, const char *name) {
    static const char *const outs[] = {"out", "out_b", "out_c"}, *const offsets[] = {
                                                                     "out_offset", "out_offset_b",
                                                                     "out_offset_c"};
    matvec_making k = {.p = p, .tile = p->c.wg / p->c.lanes * p->c.rows};
    uint32_t tiles = 0;
    for (uint32_t i = 0; i < p->n; i++) tiles += (p->s[i].rows + k.tile - 1) / k.tile;
    /* the same for all workgroups, as far as can be */
    const uint32_t turns = (tiles + p->c.groups - 1) / p->c.groups;
    k.groups = (tiles + turns - 1) / turns;
    tile_matvec_begin(&k.m, l, name, &p->c, p->vectors.rows.k);
    tile_kernel *ir = &k.m.k;
    base_type types[FUSED_SEGMENT_MAX];
    for (uint32_t i = 0; i < p->n; i++) {
        k.begin[i + 1] = k.begin[i] + (p->s[i].rows + k.tile - 1) / k.tile;
        types[i] = p->s[i].type;
    }
    bind_weights(&k);
    if (BUILD_HAS_ADAPTERS) matvec_low_bind(&k);
    tile_vectors_begin(&k.v, &k.m, &p->vectors, p->apart);
    k.v.keeps = makes(p) && p->low.stored;
    for (uint32_t i = 0; i < p->n; i++) {
        if (!p->products.ends)
            k.out[i] = tile_bind(ir, outs[i], p->s[i].out, IR_F32, IR_READ_WRITE);
        k.out_offset[i] = tile_u32(ir, offsets[i], p->s[i].out_offset);
    }
    if (makes_parts(p)) matvec_parts_bind(&k);
    if (p->hands_on || makes_parts(p)) k.handed = ir_workgroup(ir->b, IR_F32, k.tile * p->c.n_x);
    if (p->hands_on) {
        tree_end_declare_words(&k.end, ir, &p->products.end);
        k.m.int8_to = tile_int8_in(&k.m, k.end.memory[0], p->vectors.rows.bound, p->s[0].rows);
    } else if (p->products.ends) {
        tree_end_declare(&k.end, ir, &p->products.end);
    }
    tile_matvec_open(&k.m, types, p->n, p->c.rows * p->per);
    make_tiles(&k);
    for (uint32_t i = 0; i < p->products.n; i++)
        lower_bytes(l, p->s[i].rows * base_type_row_bytes(p->s[i].type, p->vectors.rows.k));
    return tile_end_3d(ir,
                       (lower_count){k.groups + (BUILD_HAS_ADAPTERS ? matvec_low_groups(p) : 0), 0},
                       1, p->vectors.rows.n, p->c.n_x, (lower_count){1, 0});
}

beryl_status tile_fused_matvec(lowering *l, const graph_node *node) {
    matvec_plan p;
    const graph_region r = graph_region_of(l->g, node);
    const fused_matvec *f = node->attr.fused.detail;
    if (tile_serial(l)) return tile_joined(l, &r);
    if (!plan_of(l, f, &r, &p)) return lower_refuse(l, node, "this joined product");
    const beryl_status status = p.apart ? tile_vectors_separate(l, &p.vectors) : BERYL_OK;
    return status == BERYL_OK ? make(l, &p, "matvec") : status;
}

beryl_status tile_matvec_node(lowering *l, const graph_node *product, const tree *end,
                              bool *taken) {
    matvec_plan p = {.vectors.handed = is_handed(l, product->in[0])};
    *taken = false;
    if (!single_of(l, product, end, &p)) return BERYL_OK;
    const store_tensor *stored = lower_stored(l, product->in[1]);
    const uint32_t low_first = p.low.of[0].first, begin = p.s[0].first, last = begin + p.s[0].rows,
                   offset = end ? 0 : graph_tensor_at(l->g, product->out[0])->offset;
    beryl_status status = p.apart ? tile_vectors_separate(l, &p.vectors) : BERYL_OK;
    *taken = p.sharded = true;
    p.s[0].out = product->out[0];
    p.s[0].out_stride = p.s[0].rows;
    for (uint32_t i = 0; status == BERYL_OK && i < stored->n_shard; i++) {
        const store_shard *s = &stored->shard[i];
        const uint32_t from = begin > s->row ? begin : s->row,
                       to = last < s->row + s->n_row ? last : s->row + s->n_row;
        if (from >= to) continue;
        p.shard = i;
        p.s[0].layout = &s->layout;
        p.s[0].first = from - s->row;
        p.s[0].rows = to - from;
        p.s[0].out_offset = offset + from - begin;
        if (BUILD_HAS_ADAPTERS) p.low.of[0].first = low_first + from - begin;
        status = make(l, &p, "linear");
    }
    return status;
}
