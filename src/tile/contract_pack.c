/* contract_pack.c - what a processor packs for a contraction: F32, in the order in which tiles
 * read.
 *
 * The one idea: a tile multiplies a few elements of one factor, each spread over a vector, by some
 * vectors of the other one. So the other one is packed in panels as wide as a tile, unless vectors
 * lie along it already; and the first one becomes lines of depth where it has its neighbours along
 * depth far from each other, or wants to be cast. Weights are packed once for all runs. Where
 * windows go with depth stands in a table. */
#include "tile/contract_inside.h"

enum {
    PANEL = 4 * VECTOR,  /* columns of a tile */
    ROWS = 6,            /* of it */
    FROM = 1 << 18,      /* products */
    DEPTH_PACKED = 8,    /* of sums that are worth packing */
    DEPTH_ALONG = 64,    /* of sums along vectors */
    STRETCH_MIN = 4,     /* rows beside each other that vectors copy, */
    CHUNK_MAX = 1 << 16, /* and that a lane holds */
    SIDE_MIN = 8,        /* rows and columns of what schedules make tiles of; */
    SIDE_CAST = 32,      /* of what is cast before, */
    SIDE_TURN = 64       /* and of what is turned */
};

static uint64_t rounded(uint64_t n, uint64_t unit) {
    return (n + unit - 1) / unit * unit;
}

static class_kind other_of(class_kind kind) {
    return kind == CLASS_INNER ? CLASS_OUTER : CLASS_INNER;
}

/* The factor that has the class. */
static uint32_t factor_of(const contraction *c, class_kind kind) {
    return contract_moves(&c->of[kind], A) ? A : B;
}

static class_kind rows_of(const contraction *c, uint32_t t) {
    return contract_moves(&c->of[CLASS_OUTER], t) ? CLASS_OUTER : CLASS_INNER;
}

static uint32_t last_stride(const axes *of, uint32_t t) {
    return of->n ? of->stride[t][of->n - 1] : 0;
}

/* Both factors lie along the class in whole vectors, or do not know it. */
static bool lies_along(const contraction *c, class_kind kind, const graph_tensor *const *tensors) {
    const axes *of = &c->of[kind];
    if (!of->n || of->count.extent || of->count.factor % VECTOR) return false;
    for (uint32_t t = 0; t < OUT; t++) {
        if (!contract_moves(of, t)) continue;
        if (!contract_is_one(of, t) || last_stride(of, t) != 1 || tensors[t]->offset % VECTOR)
            return false;
        for (uint32_t other = 0; other < CLASSES; other++)
            for (uint32_t i = 0; i < c->of[other].n && other != (uint32_t)kind; i++)
                if (c->of[other].stride[t][i] % VECTOR) return false;
    }
    return true;
}

/* Pictures of a batch whose pixels alone lie along the class: each becomes a product of its own. */
static bool part_batch(contraction *c, const lowering *l, class_kind kind,
                       const graph_tensor *const *tensors) {
    contraction apart = *c;
    axes *rest = &apart.of[kind], *batch = &apart.of[CLASS_BATCH];
    const axes *of = &c->of[kind];
    if (of->n < 2 || batch->n) return false;
    *rest = NO_AXES;
    for (uint32_t i = 0; i < of->n; i++) {
        uint32_t stride[LOWER_WALK_TENSORS];
        for (uint32_t t = 0; t < LOWER_WALK_TENSORS; t++) stride[t] = of->stride[t][i];
        contract_add_axis(l, i ? rest : batch, of->size[i], stride);
    }
    if (rest->unfit || !lies_along(&apart, kind, tensors)) return false;
    *c = apart;
    return true;
}

bool contract_is_lasting(const contraction *c, const lowering *l, uint32_t t) {
    const store_tensor *weight = lower_stored(l, c->node->in[t]);
    bool sized = false;
    for (uint32_t i = 0; i < CLASSES; i++)
        sized |= contract_moves(&c->of[i], t) && c->of[i].count.extent;
    return weight && !weight->is_state && !sized && !c->of[CLASS_DEPTH].count.extent;
}

/* The factor that has the class is worth packing although vectors lie along it: its lines are far
 * from each other, and read again for each row of the other one. */
static bool is_far(const contraction *c, const lowering *l, class_kind along) {
    enum { ROWS_MIN = 512, ROWS_LASTING = 64, TERMS_MIN = 256, APART = 512 };
    const axes *depth = &c->of[CLASS_DEPTH];
    const uint32_t t = factor_of(c, along);
    return c->of[other_of(along)].bound >=
               (contract_is_lasting(c, l, t) ? ROWS_LASTING : ROWS_MIN) &&
           depth->bound >= TERMS_MIN && contract_is_one(depth, t) && last_stride(depth, t) >= APART;
}

static bool is_cast(const contraction *c, const lowering *l, uint32_t t) {
    return tile_element(graph_tensor_at(l->g, c->node->in[t])->type) != IR_F32;
}

/* The factor whose elements are spread over vectors is packed too. Windows are not: they would be
 * many times as large. */
static bool packs_other(const contraction *c, const lowering *l, class_kind along) {
    const axes *depth = &c->of[CLASS_DEPTH];
    const uint32_t t = factor_of(c, other_of(along));
    return contract_is_one(depth, t) && c->of[along].bound > PANEL &&
           (is_cast(c, l, t) || last_stride(depth, t) != 1);
}

/* Cycles that packing takes: an element of what lies in the copy's order, or is transposed. */
static uint64_t packing_cost(const contraction *c, const lowering *l, class_kind rows,
                             bool spread) {
    enum { COPIED = 1, TURNED = 4 };
    const uint32_t t = factor_of(c, rows);
    const axes *of = &c->of[rows], *depth = &c->of[CLASS_DEPTH];
    const bool lies = last_stride(spread ? depth : of, t) == 1;
    return contract_is_lasting(c, l, t) ? 0 : (lies ? COPIED : TURNED) * of->bound * depth->bound;
}

/* Cycles with the class's factor packed: a step of two vectors each; elements that are packed, or
 * read again by panels as windows, and results that do not lie along the class. */
static uint64_t packed_cost(const contraction *c, const lowering *l, class_kind along) {
    enum { SCATTERS = 2, CUTS = 1 };
    const class_kind other = other_of(along);
    const axes *of = &c->of[along];
    const uint64_t n = of->bound, m = c->of[other].bound, depth = c->of[CLASS_DEPTH].bound;
    uint64_t cost = rounded(n, PANEL) * rounded(m, ROWS) * depth / (2 * VECTOR) +
                    packing_cost(c, l, along, false);
    if (packs_other(c, l, along)) cost += packing_cost(c, l, other, true);
    if (last_stride(of, OUT) != 1) cost += SCATTERS * n * m;
    else if (of->n > 1 && of->size[of->n - 1].factor % VECTOR) cost += CUTS * n * m;
    return cost;
}

static uint32_t panels_of(const contraction *c, uint32_t t) {
    return (uint32_t)(rounded(c->of[rows_of(c, t)].bound, c->width[t]) / c->width[t]);
}

static uint64_t batch_of(const contraction *c, uint32_t t) {
    return contract_moves(&c->of[CLASS_BATCH], t) ? c->of[CLASS_BATCH].bound : 1;
}

static uint64_t packed_elements(const contraction *c, uint32_t t) {
    return batch_of(c, t) * panels_of(c, t) * c->width[t] * c->of[CLASS_DEPTH].bound;
}

uint64_t contract_packed_bytes(const contraction *c, uint32_t t) {
    return packed_elements(c, t) * sizeof(float);
}

bool contract_is_ragged(const contraction *c) {
    const lower_count n = c->along == CLASSES ? (lower_count){0, 0} : c->of[c->along].count;
    return n.extent || n.factor != (uint64_t)c->panel * c->panels;
}

/* Factors that lie along depth are sooner turned to panels than multiplied as they lie. A run may
 * have few rows, of which each would read all that is turned. */
static bool turns_panels(const contraction *c, const lowering *l) {
    const class_kind along = last_stride(&c->of[CLASS_INNER], OUT) == 1 ? CLASS_INNER : CLASS_OUTER;
    const axes *of = &c->of[along], *other = &c->of[other_of(along)];
    return of->bound >= SIDE_TURN && other->bound >= SIDE_TURN && of->bound % PANEL == 0 &&
           !of->count.extent &&
           (!other->count.extent || contract_is_lasting(c, l, factor_of(c, along)));
}

/* Chooses what is packed. */
static void choose(contraction *c, const lowering *l, const graph_tensor *const *tensors) {
    const uint64_t outer = c->of[CLASS_OUTER].bound, inner = c->of[CLASS_INNER].bound,
                   depth = c->of[CLASS_DEPTH].bound;
    if (!tile_is_host(l) || c->type != IR_F32 || outer < SIDE_MIN || inner < SIDE_MIN ||
        depth < DEPTH_PACKED || outer * inner * depth < FROM)
        return;
    const bool far = is_far(c, l, CLASS_INNER) || is_far(c, l, CLASS_OUTER),
               casts = outer >= SIDE_CAST && inner >= SIDE_CAST &&
                       (is_cast(c, l, A) || is_cast(c, l, B));
    if (depth >= DEPTH_ALONG && !turns_panels(c, l) && lies_along(c, CLASS_DEPTH, tensors)) {
        for (uint32_t t = 0; t < OUT; t++)
            c->packed[t] = casts && is_cast(c, l, t), c->width[t] = 1;
        return;
    }
    if (!casts && !far &&
        (lies_along(c, CLASS_INNER, tensors) || lies_along(c, CLASS_OUTER, tensors)))
        return;
    const bool parted =
        part_batch(c, l, CLASS_OUTER, tensors) || part_batch(c, l, CLASS_INNER, tensors);
    if (parted && !casts) return;
    const class_kind along = packed_cost(c, l, CLASS_INNER) <= packed_cost(c, l, CLASS_OUTER)
                                 ? CLASS_INNER
                                 : CLASS_OUTER;
    const uint32_t t = factor_of(c, along), other = OUT - 1 - t;
    contraction as = *c;
    as.along = along;
    as.packed[t] = true, as.packed[other] = packs_other(c, l, along);
    as.width[t] = (uint32_t)(c->of[along].bound > PANEL && !c->of[along].count.extent
                                 ? PANEL
                                 : rounded(c->of[along].bound, VECTOR));
    as.width[other] = 1;
    as.panel = as.width[t], as.panels = panels_of(&as, t);
    as.tabled = !as.packed[other] && !contract_is_one(&c->of[CLASS_DEPTH], other);
    if (contract_packed_bytes(&as, t) <= UINT32_MAX &&
        (!as.packed[other] || contract_packed_bytes(&as, other) <= UINT32_MAX))
        *c = as;
}

ir_id contract_place_packed(contraction *c, class_kind kind, uint32_t t, ir_id index, ir_id at) {
    ir_builder *b = c->k.b;
    const uint32_t depth = (uint32_t)c->of[CLASS_DEPTH].bound, width = c->width[t];
    if (kind == CLASS_DEPTH) return ir_add(b, at, tile_mul(b, index, width));
    if (kind == CLASS_BATCH)
        return ir_add(b, at, tile_mul(b, index, panels_of(c, t) * width * depth));
    at = ir_add(b, at, tile_mul(b, tile_div(b, index, width), width * depth));
    return width == 1 ? at : ir_add(b, at, tile_rem(b, index, width));
}

/* What a kernel that packs factor t has. */
typedef struct packing {
    contraction c; /* as the factor lies */
    uint32_t t, width, panels;
    class_kind rows;
    bool batched;
    lengths by[CLASSES];
    ir_memory x, out;
    ir_id offset;
} packing;

static void packing_begin(packing *p, const contraction *from, lowering *l) {
    contraction *c = &p->c;
    tile_kernel *k = &c->k;
    *c = *from;
    tile_begin(k, l, "contract_pack", 1);
    c->packed[A] = c->packed[B] = c->tabled = false, c->along = CLASSES;
    c->n_tensor = OUT;
    k->once = contract_is_lasting(c, l, p->t);
    p->x = tile_read(k, "x", c->node->in[p->t]);
    p->out = tile_scratch(k, "out", CONTRACT_COPY + p->t, contract_packed_bytes(from, p->t), IR_F32,
                          IR_READ_WRITE);
    contract_measure(c, CLASS_BATCH, &p->by[CLASS_BATCH]);
    contract_measure(c, CLASS_DEPTH, &p->by[CLASS_DEPTH]);
    contract_measure(c, p->rows, &p->by[p->rows]);
    p->offset = contract_number(c, "offset", graph_tensor_at(l->g, c->node->in[p->t])->offset);
}

/* Where the element at row and depth of the batch's item is. */
static ir_id packing_from(packing *p, ir_id batch, ir_id depth, ir_id row) {
    contraction *c = &p->c;
    ir_id at = p->offset;
    if (p->batched) at = contract_place(c, CLASS_BATCH, &p->by[CLASS_BATCH], p->t, batch, at);
    at = contract_place(c, CLASS_DEPTH, &p->by[CLASS_DEPTH], p->t, depth, at);
    return contract_place(c, p->rows, &p->by[p->rows], p->t, row, at);
}

/* Where it goes: element `near` of a panel's line. */
static ir_id packing_to(packing *p, ir_id batch, ir_id depth, ir_id panel, ir_id near) {
    ir_builder *b = p->c.k.b;
    ir_id line = p->batched ? ir_add(b, tile_mul(b, batch, p->panels), panel) : panel;
    line = ir_add(b, tile_mul(b, line, (uint32_t)p->c.of[CLASS_DEPTH].bound), depth);
    return ir_add(b, tile_mul(b, line, p->width), near);
}

static void packing_copy(packing *p, ir_id batch, ir_id depth, ir_id panel, ir_id row, ir_id near,
                         uint32_t width) {
    ir_builder *b = p->c.k.b;
    const ir_id from = packing_from(p, batch, depth, row);
    ir_store(b, p->out, packing_to(p, batch, depth, panel, near),
             ir_cast(b, IR_F32, ir_load(b, p->x, from, width)));
}

/* Elements that lie in the order of the copy, as vectors: a group has a line of a panel, or of
 * depth. Panels beside one another are lines of the factor, so they go first. */
static beryl_status pack_vectors(packing *p, lower_count groups) {
    contraction *c = &p->c;
    tile_kernel *k = &c->k;
    ir_builder *b = k->b;
    const bool lines = p->width == 1;
    const uint32_t terms = (uint32_t)c->of[CLASS_DEPTH].bound, length = lines ? terms : p->width;
    ir_id group = tile_group(b);
    const ir_id panel = tile_rem(b, group, p->panels);
    ir_id depth = IR_NO_ID;
    /* a grid of two dimensions may have more groups */
    ir_if(b, ir_lt(b, group, tile_count(k, "groups", groups)));
    group = tile_div(b, group, p->panels);
    if (!lines) depth = tile_rem(b, group, terms), group = tile_div(b, group, terms);
    const ir_id near = ir_loop(b, ir_u32(b, 0), ir_u32(b, length), ir_u32(b, VECTOR));
    if (lines) packing_copy(p, group, near, panel, panel, ir_u32(b, 0), VECTOR);
    else
        packing_copy(p, group, depth, panel, ir_add(b, tile_mul(b, panel, p->width), near), near,
                     VECTOR);
    ir_end(b), ir_end(b);
    return tile_end(k, groups, 1);
}

/* Elements that lie across the order of the copy, two squares at once: a group has as many rows as
 * a panel. */
static beryl_status pack_turned(packing *p, lower_count batches) {
    enum { SIDE = VECTOR / 2 };
    contraction *c = &p->c;
    tile_kernel *k = &c->k;
    ir_builder *b = k->b;
    const bool lines = p->width == 1;
    const uint32_t parts = (uint32_t)c->of[p->rows].bound / PANEL;
    const lower_count groups = lower_count_times(batches, parts);
    const ir_id group = tile_group(b), zero = ir_u32(b, 0), side = ir_u32(b, SIDE),
                vector = ir_u32(b, VECTOR);
    ir_if(b, ir_lt(b, group, tile_count(k, "groups", groups)));
    const ir_id part = tile_rem(b, group, parts), batch = tile_div(b, group, parts),
                depth = ir_loop(b, zero, ir_u32(b, (uint32_t)c->of[CLASS_DEPTH].bound),
                                lines ? vector : side),
                near = ir_loop(b, zero, ir_u32(b, PANEL), lines ? side : vector),
                row = ir_add(b, tile_mul(b, part, PANEL), near);
    ir_id x[VECTOR];
    for (uint32_t i = 0; i < VECTOR; i++) {
        const ir_id from = packing_from(p, batch, lines ? tile_add(b, depth, i) : depth,
                                        lines ? row : tile_add(b, row, i));
        x[i] = ir_cast(b, IR_F32, ir_load(b, p->x, from, SIDE));
    }
    tile_turn(b, x, SIDE);
    tile_turn(b, x + SIDE, SIDE);
    for (uint32_t i = 0; i < SIDE; i++)
        ir_store(b, p->out,
                 lines ? packing_to(p, batch, depth, tile_add(b, row, i), zero)
                       : packing_to(p, batch, tile_add(b, depth, i), part, near),
                 ir_compose(b, (ir_id[]){x[i], x[SIDE + i]}, 2));
    ir_end(b), ir_end(b), ir_end(b);
    return tile_end(k, groups, 1);
}

/* How many rows lie beside each other, as they do in panels, though they may begin anywhere, and
 * how many the lane's memory takes: whole stretches, and whole panels but for the last. */
static uint32_t stretch_of(const packing *p, uint32_t *chunk) {
    const axes *rows = &p->c.of[p->rows];
    if (p->width == 1 || !rows->n || rows->count.extent || last_stride(rows, p->t) != 1 ||
        p->c.of[CLASS_DEPTH].count.extent)
        return 0;
    const uint32_t n = (uint32_t)rows->size[rows->n - 1].factor;
    *chunk = n;
    while (*chunk < rows->bound && *chunk <= CHUNK_MAX && *chunk % p->width) *chunk += n;
    return n >= STRETCH_MIN && *chunk <= CHUNK_MAX ? n : 0;
}

/* Rows in stretches: a group has a chunk of them at one depth, by way of its own memory. */
static beryl_status pack_stretches(packing *p, uint32_t length, uint32_t chunk,
                                   lower_count batches) {
    contraction *c = &p->c;
    tile_kernel *k = &c->k;
    ir_builder *b = k->b;
    const uint32_t terms = (uint32_t)c->of[CLASS_DEPTH].bound,
                   rows = (uint32_t)c->of[p->rows].bound, parts = (rows + chunk - 1) / chunk,
                   of_part = (chunk + p->width - 1) / p->width;
    uint32_t wide = VECTOR;
    while (wide > length) wide /= 2;
    const lower_count groups = lower_count_times(batches, (uint64_t)parts * terms);
    const ir_id zero = ir_u32(b, 0), vector = ir_u32(b, VECTOR), one = ir_u32(b, 1);
    ir_memory line = ir_workgroup(b, IR_F32, of_part * p->width);
    line.anywhere = p->x.anywhere = true;
    ir_id group = tile_group(b);
    ir_if(b, ir_lt(b, group, tile_count(k, "groups", groups)));
    const ir_id part = tile_rem(b, group, parts);
    group = tile_div(b, group, parts);
    const ir_id depth = tile_rem(b, group, terms), batch = tile_div(b, group, terms),
                first = tile_mul(b, part, chunk), panel = tile_mul(b, part, of_part);
    const ir_id n_row = ir_min(b, ir_u32(b, chunk), ir_sub(b, ir_u32(b, rows), first)),
                n_panel = ir_min(b, ir_u32(b, of_part), ir_sub(b, ir_u32(b, p->panels), panel));
    if (rows % p->width) { /* no rows, at the end */
        const ir_id end = tile_mul(b, n_panel, p->width), at = ir_loop(b, n_row, end, vector);
        ir_store(b, line, ir_min(b, at, ir_sub(b, end, vector)), ir_number(b, IR_F32, VECTOR, 0));
        ir_end(b);
    }
    ir_id at = p->offset;
    if (p->batched) at = contract_place(c, CLASS_BATCH, &p->by[CLASS_BATCH], p->t, batch, at);
    at = contract_place(c, CLASS_DEPTH, &p->by[CLASS_DEPTH], p->t, depth, at);
    const ir_id row = ir_loop(b, zero, n_row, ir_u32(b, length)),
                from = contract_place(c, p->rows, &p->by[p->rows], p->t, ir_add(b, first, row), at);
    ir_id near = ir_loop(b, zero, ir_u32(b, length), ir_u32(b, wide));
    if (length % wide) near = ir_min(b, near, ir_u32(b, length - wide));
    ir_store(b, line, ir_add(b, row, near),
             ir_cast(b, IR_F32, ir_load(b, p->x, ir_add(b, from, near), wide)));
    ir_end(b), ir_end(b);
    line.anywhere = false;
    const ir_id i = ir_loop(b, zero, n_panel, one), to = ir_add(b, panel, i);
    ir_id place = p->batched ? ir_add(b, tile_mul(b, batch, p->panels), to) : to;
    place = tile_mul(b, ir_add(b, tile_mul(b, place, terms), depth), p->width);
    near = ir_loop(b, zero, ir_u32(b, p->width), vector);
    ir_store(b, p->out, ir_add(b, place, near),
             ir_load(b, line, ir_add(b, tile_mul(b, i, p->width), near), VECTOR));
    ir_end(b), ir_end(b), ir_end(b);
    return tile_end(k, groups, 1);
}

/* Panels beside one another are lines of the factor, so they go first. */
static beryl_status pack_elements(packing *p) {
    contraction *c = &p->c;
    tile_kernel *k = &c->k;
    ir_builder *b = k->b;
    const bool lines = p->width == 1;
    const axes *batches = &c->of[CLASS_BATCH], *terms = &c->of[CLASS_DEPTH];
    const lower_count count = c->of[p->rows].count, panels = {p->panels, 0}, width = {p->width, 0};
    const ir_id one = ir_u32(b, 1), zero = ir_u32(b, 0);
    ir_id batch = zero, near = zero, panel, row, depth = IR_NO_ID;
    if (p->batched) batch = contract_turns(b, &p->by[CLASS_BATCH], IR_PARALLEL, DIM_BATCH);
    if (!lines) depth = contract_turns(b, &p->by[CLASS_DEPTH], IR_PARALLEL, DIM_DEPTH);
    if (lines) panel = contract_turns(b, &p->by[p->rows], IR_PARALLEL, DIM_OUTER);
    else panel = ir_loop_marked(b, zero, ir_u32(b, p->panels), one, IR_PARALLEL, DIM_OUTER);
    if (lines) depth = contract_turns(b, &p->by[CLASS_DEPTH], IR_PARALLEL, DIM_INNER);
    else near = ir_loop_marked(b, zero, ir_u32(b, p->width), one, IR_PARALLEL, DIM_INNER);
    row = ir_add(b, tile_mul(b, panel, p->width), near);
    if (!lines && (count.extent || (uint64_t)p->panels * p->width > count.factor))
        row = ir_min(b, row, ir_sub(b, p->by[p->rows].count, one));
    packing_copy(p, batch, depth, panel, row, near, 1);
    ir_end(b), ir_end(b);
    if (!lines) ir_end(b);
    if (p->batched) ir_end(b);
    const lower_count counts[IR_DIM_MAX] = {[DIM_BATCH] = batches->count,
                                            [DIM_DEPTH] = terms->count,
                                            [DIM_OUTER] = lines ? count : panels,
                                            [DIM_INNER] = lines ? terms->count : width};
    const uint64_t extents[IR_DIM_MAX] = {[DIM_BATCH] = p->batched ? batches->bound : 0,
                                          [DIM_DEPTH] = lines ? 0 : terms->bound,
                                          [DIM_OUTER] = lines ? c->of[p->rows].bound : p->panels,
                                          [DIM_INNER] = lines ? terms->bound : p->width};
    return tile_end_marked(k, counts, extents);
}

bool contract_has_vectors(const contraction *c, const lowering *l, uint32_t t, class_kind kind,
                          uint32_t unit) {
    const axes *along = &c->of[kind];
    if (!contract_is_one(along, t) || last_stride(along, t) != 1 ||
        graph_tensor_at(l->g, c->node->in[t])->offset % unit)
        return false;
    for (uint32_t k = 0; k < CLASSES; k++)
        for (uint32_t i = 0; i < c->of[k].n; i++)
            if (k != (uint32_t)kind && c->of[k].stride[t][i] % unit) return false;
    return true;
}

/* Squares of vectors of factor t lie across the order of its copy. */
static bool is_turned(const contraction *c, const lowering *l, uint32_t t) {
    const bool lines = c->width[t] == 1;
    const axes *rows = &c->of[rows_of(c, t)], *depth = &c->of[CLASS_DEPTH];
    return !rows->count.extent && !depth->count.extent && (lines || c->width[t] == PANEL) &&
           rows->bound % PANEL == 0 && depth->bound % VECTOR == 0 &&
           contract_has_vectors(c, l, t, lines ? rows_of(c, t) : CLASS_DEPTH, VECTOR);
}

/* Packs panels of factor t. */
static beryl_status pack(const contraction *c, lowering *l, uint32_t t) {
    packing p = {.t = t,
                 .width = c->width[t],
                 .panels = panels_of(c, t),
                 .rows = rows_of(c, t),
                 .batched = contract_moves(&c->of[CLASS_BATCH], t)};
    const bool lines = p.width == 1;
    const axes *rows = &c->of[p.rows], *depth = &c->of[CLASS_DEPTH], *batch = &c->of[CLASS_BATCH];
    const lower_count batches = p.batched ? batch->count : (lower_count){1, 0};
    lower_count groups = batches;
    groups.factor *= lines ? p.panels : p.panels * depth->bound;
    const bool whole = !depth->count.extent && !rows->count.extent &&
                       (lines ? depth->bound : p.width) % VECTOR == 0 &&
                       (uint64_t)p.panels * p.width <= rows->bound &&
                       contract_has_vectors(c, l, t, lines ? CLASS_DEPTH : p.rows, VECTOR);
    const bool turned = is_turned(c, l, t);
    packing_begin(&p, c, l);
    if (turned) return pack_turned(&p, batches);
    uint32_t chunk;
    const uint32_t length = whole ? 0 : stretch_of(&p, &chunk);
    if (length) return pack_stretches(&p, length, chunk, batches);
    return whole ? pack_vectors(&p, groups) : pack_elements(&p);
}

/* Scratch [depth]: where the factor that is not packed goes with depth. */
static beryl_status tabulate(const contraction *from, lowering *l) {
    contraction all = *from, *c = &all;
    const uint32_t t = c->packed[A] ? B : A;
    tile_kernel *k = &c->k;
    lengths by;
    tile_begin(k, l, "contract_places", 1);
    c->packed[A] = c->packed[B] = c->tabled = false;
    c->n_tensor = TENSORS;
    ir_builder *b = k->b;
    const ir_memory out =
        tile_scratch(k, "out", CONTRACT_PLACES, c->of[CLASS_DEPTH].bound * sizeof(uint32_t), IR_U32,
                     IR_READ_WRITE);
    contract_measure(c, CLASS_DEPTH, &by);
    const ir_id depth = contract_turns(b, &by, IR_PARALLEL, DIM_DEPTH);
    ir_store(b, out, depth, contract_place(c, CLASS_DEPTH, &by, t, depth, ir_u32(b, 0)));
    ir_end(b);
    return tile_end_marked(k, (lower_count[IR_DIM_MAX]){[DIM_DEPTH] = c->of[CLASS_DEPTH].count},
                           (uint64_t[IR_DIM_MAX]){[DIM_DEPTH] = c->of[CLASS_DEPTH].bound});
}

beryl_status contract_pack(lowering *l, contraction *c, const graph_tensor *const *tensors) {
    beryl_status status = BERYL_OK;
    choose(c, l, tensors);
    for (uint32_t t = 0; t < OUT && status == BERYL_OK; t++)
        if (c->packed[t]) status = pack(c, l, t);
    return status == BERYL_OK && c->tabled ? tabulate(c, l) : status;
}

bool contract_packs_lines(const contraction *c, const lowering *l) {
    const uint64_t rows = c->of[CLASS_INNER].bound, depth = c->of[CLASS_DEPTH].bound;
    return tile_is_host(l) && depth >= DEPTH_PACKED && depth < DEPTH_ALONG && rows >= SIDE_MIN &&
           c->of[CLASS_OUTER].bound >= SIDE_MIN;
}
