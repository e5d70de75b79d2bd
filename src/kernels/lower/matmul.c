/* matmul.c - products with a weight for few vectors, alone or with what the passes joined
 * to them (tile/fused.h), and rows taken by index.
 *
 * Many vectors go to the tiled kernel (matmul_tiled.c). A weight in several shards is one
 * dispatch a shard, each for its rows of the result. Weights that are no stored tensor are plain
 * values in memory of the plan. */
#include "base/error.h"
#include "kernels/lower/lower.h"
#include "kernels/lower/matvec.h"
#include "kernels/lower/tiled.h"
#include "kernels/lower/vectors.h"

#include <string.h>

/* A weight matrix [m, k] as the readers need it. */
typedef struct weight_walk {
    graph_value value;
    base_type type;
    const store_tensor *stored; /* NULL: an intermediate or a state */
    uint32_t m, k, first;       /* first: row of the stored tensor where a view begins */
    uint32_t plain;             /* intermediate or state: element where it begins */
} weight_walk;

static bool weight_walk_of(const lowering *l, graph_value v, weight_walk *w) {
    const graph_tensor *t = graph_tensor_at(l->g, v);
    if (t->rank != 2 || t->dim[1].extent || t->dim[0].extent || t->stride[1] != 1 ||
        t->stride[0] != t->dim[1].size)
        return false;
    *w = (weight_walk){.value = v,
                       .type = t->type,
                       .stored = lower_weight(l, v),
                       .m = t->dim[0].size,
                       .k = t->dim[1].size};
    if (!w->stored) {
        w->plain = t->offset;
        return t->type == TYPE_F32 || t->type == TYPE_F16 || t->type == TYPE_BF16;
    }
    w->first = t->offset / w->k;
    return t->offset % w->k == 0;
}

static void planes_put(lower_step *s, const char *prefix, const char *name,
                       const graph_pack_layout *layout, uint32_t word) {
    for (uint32_t i = 0; i < PACK_PLANE_MAX; i++) {
        char text[KERNELS_NAME_MAX];
        snprintf(text, sizeof text, "%s%s%u", prefix, name, i);
        lower_u32(s, text, layout ? word + (uint32_t)(layout->offset[i] / 4) : i == 0 ? word : 0);
    }
}

static void number_put(lower_step *s, const char *prefix, const char *name, uint32_t value) {
    char text[KERNELS_NAME_MAX];
    snprintf(text, sizeof text, "%s%s", prefix, name);
    lower_u32(s, text, value);
}

/* ---- products -------------------------------------------------------------------------------- */

enum { PLAIN_ROWS_MAX = 8 };
enum { SCRATCH_X }; /* key: vectors made or rounded by a dispatch before */

/* What every form of the kernel asks for beside its segments. x: 0: the node's scratch holds the
 * vectors. */
static void x_put(lower_step *s, const matvec_choice *choice, graph_value x,
                  const lower_matrix *rows, uint32_t tiles) {
    if (x) lower_bind(s, "x", x);
    else lower_bind_scratch(s, "x", SCRATCH_X, 0);
    lower_u32(s, "n_tile", tiles);
    lower_count_param(s, "n_x", rows->n);
    lower_u32(s, "k", rows->k);
    lower_u32(s, "x_stride", rows->stride);
    lower_u32(s, "x_offset", rows->offset);
    lower_groups_3d(s, (lower_count){tiles < choice->groups ? tiles : choice->groups, 0}, 1,
                    rows->n, choice->n_x, (lower_count){1, 0}, 1);
}

/* Results [out_offset ..., + n) from rows [first, first + n) of a weight whose planes begin at
 * `word` of the binding. */
typedef struct segment {
    const graph_pack_layout *layout;
    uint32_t word, up_word, k, first, n, out_offset, out_stride;
} segment;

static void segment_put(lower_step *s, const char *prefix, const segment *g, bool pair) {
    number_put(s, prefix, "k", g->k);
    number_put(s, prefix, "rows", g->n);
    number_put(s, prefix, "first", g->first);
    planes_put(s, prefix, "plane", g->layout, g->word);
    planes_put(s, prefix, "up", pair ? g->layout : NULL, g->up_word);
    if (!g->out_stride) return; /* handed on as int8 */
    number_put(s, prefix, "out_offset", g->out_offset);
    number_put(s, prefix, "out_stride", g->out_stride);
}

static bool is_handed(const lowering *l, graph_value x);

/* Rows [from, from + n) of the weight, all of shard `shard`. */
static beryl_status matvec_shard(lowering *l, const graph_node *node, const lower_matrix *x,
                                 const weight_walk *w, matvec_shape *shape, uint32_t shard,
                                 uint32_t from, uint32_t n, beryl_error *error) {
    const graph_tensor *out = graph_tensor_at(l->g, node->out[0]);
    const store_shard *place = w->stored ? &w->stored->shard[shard] : NULL;
    matvec_choice choice;
    shape->rows[0] = n;
    if (!matvec_choose(l->caps, shape, &choice))
        return lower_refuse(l, node, "a weight of this type", error);
    lower_form_chosen(l, &choice);
    const bool handed = is_handed(l, node->in[0]);
    if (handed) choice.x = MATVEC_QUANTISED;
    if (choice.x == MATVEC_QUANTISED && !handed) {
        beryl_status status = vectors_quantise(l, node, node->in[0], x, SCRATCH_X, error);
        if (status != BERYL_OK) return status;
    }
    lower_request request = {0};
    choice.once = (n + matvec_tile(&choice) - 1) / matvec_tile(&choice) <= choice.groups;
    matvec_request(&request, shape, &choice, NULL);
    if (place) lower_bytes(l, n * base_type_row_bytes(w->type, w->k));
    lower_step *s = lower_step_begin(l, node, &request.kernel);
    if (place) lower_bind_shard(s, "weights", w->value, shard);
    else lower_bind(s, "weights", w->value);
    lower_bind(s, "PART_out", node->out[0]);
    x_put(s, &choice, choice.x == MATVEC_QUANTISED && !handed ? 0 : node->in[0], x,
          (n + matvec_tile(&choice) - 1) / matvec_tile(&choice));
    segment_put(s, "PART_",
                &(segment){place ? &place->layout : NULL,
                           w->plain * base_type_block_bytes(w->type) / 4, 0, w->k,
                           place ? from - place->row : 0, n, out->offset + from - w->first, w->m},
                false);
    return lower_step_end(s, error);
}

beryl_status lower_matmul(lowering *l, const graph_node *node, beryl_error *error) {
    lower_matrix x;
    weight_walk w;
    if (!lower_matrix_of(graph_tensor_at(l->g, node->in[0]), &x))
        return lower_refuse(l, node, "vectors with gaps between their elements", error);
    const base_type type = graph_tensor_at(l->g, node->in[1])->type;
    /* a plain weight is the largest, and read again for every few vectors */
    const bool plain = !base_type_is_quantised(type) && !device_is_processor(l->caps);
    if (x.bound > (plain ? PLAIN_ROWS_MAX : MATVEC_ROWS_MAX))
        return lower_matmul_tiled(l, node, error);
    if (!weight_walk_of(l, node->in[1], &w))
        return lower_refuse(l, node, "a weight that is no matrix in one piece", error);
    const uint64_t begin = (uint64_t)w.plain * base_type_block_bytes(w.type); /* bytes */
    matvec_shape shape = {.n_segment = 1,
                          .types = {w.type},
                          .k = x.k,
                          .n_x = x.bound,
                          .exact = l->settings.exact,
                          .form = lower_form_of(l, node->in[1]),
                          .x_any = x.offset % 4 || (x.bound > 1 && x.stride % 4),
                          .w_any = begin % 16 != 0};
    if (!matvec_reader(w.type, false)) return lower_refuse(l, node, "a weight of this type", error);
    if (!w.stored) {
        if (begin % 4) return lower_refuse(l, node, "a weight that begins inside a word", error);
        return matvec_shard(l, node, &x, &w, &shape, 0, 0, w.m, error);
    }
    beryl_status status = BERYL_OK;
    for (uint32_t i = 0; status == BERYL_OK && i < w.stored->n_shard; i++) {
        const store_shard *shard = &w.stored->shard[i];
        const uint32_t from = shard->row > w.first ? shard->row : w.first;
        const uint32_t a = shard->row + shard->n_row, b = w.first + w.m, to = a < b ? a : b;
        if (from < to) status = matvec_shard(l, node, &x, &w, &shape, i, from, to - from, error);
    }
    return status;
}

/* ---- products with what was joined to them --------------------------------------------------- */

/* Everything that a fused product is, drawn from the graph; made alike by the pass's question
 * and by the lowering. */
typedef struct fused_walk {
    vectors_walk vectors;
    lower_matrix x, slice; /* x: as the product reads them */
    weight_walk w[FUSED_SEGMENT_MAX];
    matvec_shape shape;
    matvec_choice choice;
    bool handed, stores_int8; /* the vectors come, the results go as int8 blocks */
    bool apart;               /* a dispatch of its own makes the vectors (vectors.wgsl) */
} fused_walk;

enum {
    /* that a workgroup may make one after another: each waits for its loads and sums */
    PROLOGUE_VECTORS = 2,
    /* of attention: of so many those without a key are left out, so half count (E2B, 35 pieces:
     * 16.6 us, with a merge of its own 12.9) */
    PIECES_FEW = 16,
    /* that an invocation makes: with more, and one tile, NVIDIA's compiler takes registers that
     * fewer workgroups have */
    ONCE_FOURS = 2,
    LARGE_ROWS = 65536 /* a dispatch before so many is nothing, two branches a while */
};

/* What all workgroups together read again to make the vectors, against what a dispatch of its
 * own would cost. On software devices vectors in workgroup memory make the whole product several
 * times slower: only for the smallest. */
static bool prologue_pays(const lowering *l, const fused_matvec *f, const fused_walk *w) {
    const uint64_t each = f->from == FUSED_X_MERGE
                              ? (f->n_split > PIECES_FEW ? f->n_split : f->n_split / 2u) + 2u
                              /* numbers an element */
                              : (f->from == FUSED_X_ADD_NORM ? 4u : 2u) + (f->second ? 3u : 0u);
    uint64_t groups = 0, rows = 0;
    for (uint32_t i = 0; i < w->shape.n_segment; i++) {
        groups += (w->shape.rows[i] + matvec_tile(&w->choice) - 1) / matvec_tile(&w->choice);
        rows += (uint64_t)w->shape.rows[i] * w->shape.per;
    }
    if (device_is_processor(l->caps)) return rows * w->x.k * w->x.bound <= MATVEC_SHARED_SOFTWARE;
    if (w->choice.n_x > PROLOGUE_VECTORS || (f->second && rows >= LARGE_ROWS)) return false;
    if (groups > w->choice.groups) groups = w->choice.groups;
    return groups * each * w->x.k * w->x.bound <= MATVEC_REREAD_DEVICE;
}

/* The gated results `v` of a joined product go to one other product alone, which would round
 * them to int8 and therefore gets them rounded, in the memory of v. Both sides ask this. */
static bool takes_quants(const lowering *l, graph_value v) {
    const graph *g = l->g;
    const graph_tensor *t = graph_tensor_at(g, v);
    const graph_node *user = graph_reader_of(g, v);
    if (!user || t->rank != 2 || t->dim[1].size % 32) return false;
    matvec_shape shape = {.k = t->dim[1].size, .exact = l->settings.exact};
    const graph_value *w = &user->in[1];
    shape.n_segment = 1;
    if (user->op == OP_FUSED && user->attr.fused.kind == FUSED_MATVEC) {
        const fused_matvec *f = user->attr.fused.detail;
        if (f->from != FUSED_X_PLAIN || f->x != v) return false;
        w = f->w;
        shape.n_segment = f->n_segment;
    } else if (user->op != OP_MATMUL || user->in[0] != v) {
        return false;
    }
    for (uint32_t i = 0; i < shape.n_segment; i++) {
        const store_tensor *stored = lower_weight(l, w[i]);
        if (!stored) return false;
        shape.types[i] = stored->type;
    }
    return matvec_rounds(l->caps, &shape) && t->dim[0].size <= MATVEC_ROWS_MAX;
}

static bool is_handed(const lowering *l, graph_value x) {
    const graph_tensor *t = graph_tensor_at(l->g, x);
    if (t->base || t->node == UINT32_MAX) return false;
    const graph_node *node = &l->g->nodes.data[t->node];
    if (node->dead || node->op != OP_FUSED || node->attr.fused.kind != FUSED_MATVEC) return false;
    const fused_matvec *f = node->attr.fused.detail;
    return f->to == FUSED_GEGLU && f->out[0] == x && takes_quants(l, x);
}

static bool binds(const lowering *l, uint32_t n) {
    return n <= (l->caps->storage_max ? l->caps->storage_max : 8) && n <= DEVICE_BINDING_MAX;
}

/* Every workgroup of the product makes the vectors. */
static bool prologue_fits(const lowering *l, const fused_matvec *f, fused_walk *w,
                          uint32_t bindings) {
    w->shape.has_prologue = true;
    w->shape.rounded_in = false;
    const lower_separate asked = w->shape.form ? w->shape.form->apart : LOWER_SEPARATE_CHOSEN;
    return asked != LOWER_SEPARATE_YES && matvec_choose(l->caps, &w->shape, &w->choice) &&
           binds(l, bindings + vectors_bindings(f, &w->vectors)) &&
           (asked == LOWER_SEPARATE_NO || prologue_pays(l, f, w));
}

/* A dispatch before the product makes them, rounded where the product wants them so. */
static bool apart_fits(const lowering *l, const fused_matvec *f, fused_walk *w, uint32_t bindings) {
    w->apart = w->shape.rounded_in = true;
    w->shape.has_prologue = false;
    if (!matvec_choose(l->caps, &w->shape, &w->choice)) return false;
    w->x.stride = w->x.k;
    w->x.offset = 0;
    return vectors_separate_fits(l, f, &w->vectors, w->choice.x == MATVEC_QUANTISED) &&
           binds(l, bindings);
}

static bool fused_walk_of(const lowering *l, const fused_matvec *f, fused_walk *w) {
    *w = (fused_walk){0};
    const bool pair = f->to == FUSED_GEGLU;
    if (f->n_segment == 0 || f->n_segment > FUSED_SEGMENT_MAX) return false;
    if (!vectors_walk_of(l, f, graph_tensor_at(l->g, f->w[0])->dim[1].size, &w->vectors) ||
        w->vectors.x.bound > MATVEC_ROWS_MAX)
        return false;
    w->x = w->vectors.x;
    for (uint32_t i = 0; i < f->n_segment; i++)
        if (!weight_walk_of(l, f->w[i], &w->w[i]) || !w->w[i].stored || w->w[i].k != w->x.k)
            return false;
    if (!lower_weights_fit(l, f->w, f->n_segment)) return false;
    if (pair && (f->n_segment != 2 || w->w[0].type != w->w[1].type || w->w[0].m != w->w[1].m ||
                 w->w[0].first != w->w[1].first))
        return false;
    if (!pair && f->to != FUSED_STORE && f->n_segment != 1) return false;
    if (f->to == FUSED_GELU_MUL &&
        (!lower_matrix_of(graph_tensor_at(l->g, f->slice), &w->slice) || w->slice.k != w->w[0].m))
        return false;
    w->shape.n_segment = pair ? 1 : f->n_segment;
    w->shape.per = pair ? 2 : 1;
    w->shape.k = w->x.k;
    w->shape.n_x = w->x.bound;
    w->shape.exact = l->settings.exact;
    w->shape.x_any = w->vectors.x_any;
    w->shape.form = lower_form_of(l, f->w[0]);
    w->shape.crowded = f->second != 0;
    for (uint32_t i = 0; i < w->shape.n_segment; i++)
        w->shape.types[i] = w->w[i].type, w->shape.rows[i] = w->w[i].m;
    w->stores_int8 = w->shape.rounded_out = pair && takes_quants(l, f->out[0]);
    const uint32_t bindings = 2 + w->shape.n_segment + (f->to == FUSED_GELU_MUL ? 1 : 0);
    if (vectors_has_prologue(f)) {
        fused_walk alone = *w;
        /* that form takes them rounded alone */
        const bool fits = apart_fits(l, f, &alone, bindings), batch = fits && alone.choice.share;
        if (!batch && prologue_fits(l, f, w, bindings)) return true;
        *w = alone;
        return fits;
    }
    if (!matvec_choose(l->caps, &w->shape, &w->choice)) return false;
    w->handed = is_handed(l, f->x);
    if (w->handed) w->choice.x = MATVEC_QUANTISED;
    return binds(l, bindings);
}

bool lower_matvec_fits(const graph *g, const graph_store *store, const lower_settings *settings,
                       const fused_matvec *f, const graph_region *r) {
    (void)r;
    if (!store->device) return false;
    fused_walk w;
    const lowering l = {.g = g,
                        .store = (graph_store *)(uintptr_t)store,
                        .caps = device_caps_of(store->device),
                        .settings = *settings};
    return tiled_joined_fits(&l, f) || fused_walk_of(&l, f, &w);
}

graph_value lower_matvec_handed_on(const graph *g, const graph_store *store,
                                   const lower_settings *settings, const graph_node *node) {
    const fused_matvec *f = node->attr.fused.detail;
    fused_walk w;
    const lowering l = {.g = g,
                        .store = (graph_store *)(uintptr_t)store,
                        .caps = device_caps_of(store->device),
                        .settings = *settings};
    return !tiled_joined_fits(&l, f) && fused_walk_of(&l, f, &w) && w.stores_int8 ? f->out[0] : 0;
}

static void fused_parts(lower_request *r, const lowering *l, const fused_matvec *f,
                        const fused_walk *w, const char *const *prefixes) {
    static const char *const ends[] = {[FUSED_STORE] = "matvec_store",
                                       [FUSED_GEGLU] = "matvec_store_geglu",
                                       [FUSED_GELU_MUL] = "matvec_store_gelu_mul",
                                       [FUSED_SOFTCAP] = "matvec_store_softcap"};
    matvec_request(r, &w->shape, &w->choice, prefixes);
    if (w->shape.has_prologue)
        vectors_parts(r, f, w->choice.subgroups ? matvec_span(l->caps, &w->choice) : 0);
    for (uint32_t i = 0; i < w->shape.n_segment; i++) {
        assert(r->n_part + 1 < KERNELS_PART_MAX);
        r->kernel.parts[r->n_part++] =
            (kernels_part){"epilogue",
                           w->stores_int8 ? w->choice.subgroups ? "matvec_store_geglu_int8_subgroup"
                                                                : "matvec_store_geglu_int8"
                                          : ends[f->to],
                           prefixes ? prefixes[i] : NULL};
    }
    if (w->shape.n_segment > 1)
        lower_request_part(r, "walk", w->shape.n_segment == 2 ? "matvec_walk_2" : "matvec_walk_3");
}

/* A node of kind FUSED_MATVEC. */
beryl_status lower_fused_matvec(lowering *l, const graph_node *node, beryl_error *error) {
    static const char *const letters[] = {"a_", "b_", "c_"}, *const tiles_of[] = {NULL, "b_tile",
                                                                                  "c_tile"};
    const fused_matvec *f = node->attr.fused.detail;
    fused_walk w;
    if (tiled_joined_fits(l, f)) return lower_tiled_joined(l, node, error);
    if (!fused_walk_of(l, f, &w)) return lower_refuse(l, node, "this joined product", error);
    lower_form_chosen(l, &w.choice);
    const graph_value x = vectors_source(f);
    const char *const *prefixes = w.shape.n_segment > 1 ? letters : NULL;
    /* into the scratch */
    const bool made = w.apart || (w.choice.x == MATVEC_QUANTISED && !w.handed);
    beryl_status status = w.apart
                              ? vectors_separate(l, node, f, &w.vectors,
                                                 w.choice.x == MATVEC_QUANTISED, SCRATCH_X, error)
                          : made ? vectors_quantise(l, node, x, &w.x, SCRATCH_X, error)
                                 : BERYL_OK;
    if (status != BERYL_OK) return status;
    uint32_t first[FUSED_SEGMENT_MAX + 1] = {0}; /* tile of each segment, then how many there are */
    for (uint32_t i = 0; i < w.shape.n_segment; i++)
        first[i + 1] = first[i] + (w.w[i].m + matvec_tile(&w.choice) - 1) / matvec_tile(&w.choice);
    w.choice.once = first[w.shape.n_segment] <= w.choice.groups &&
                    (!w.shape.has_prologue || w.x.k <= ONCE_FOURS * 4u * w.choice.wg);
    lower_request request = {0};
    fused_parts(&request, l, f, &w, prefixes);
    for (uint32_t i = 0; i < f->n_segment; i++)
        lower_bytes(l, w.w[i].m * base_type_row_bytes(w.w[i].type, w.w[i].k));
    lower_step *s = lower_step_begin(l, node, &request.kernel);
    uint32_t word[FUSED_SEGMENT_MAX];
    lower_bind_weights(s, "weights", f->w, f->n_segment, word);
    for (uint32_t i = 0; i < w.shape.n_segment; i++) {
        const char *prefix = prefixes ? prefixes[i] : "PART_";
        char name[KERNELS_NAME_MAX];
        snprintf(name, sizeof name, "%sout", prefix);
        lower_bind(s, name, f->out[i]);
        segment_put(s, prefix,
                    &(segment){&w.w[i].stored->shard[0].layout, word[i],
                               w.shape.per == 2 ? word[1] : 0, w.w[i].k, w.w[i].first, w.w[i].m,
                               graph_tensor_at(l->g, f->out[i])->offset,
                               w.stores_int8 ? 0 : w.w[i].m},
                    w.shape.per == 2);
        if (i > 0) lower_u32(s, tiles_of[i], first[i]);
    }
    x_put(s, &w.choice, made ? 0 : x, &w.x, first[w.shape.n_segment]);
    if (w.shape.has_prologue) vectors_put(s, f, &w.vectors);
    if (f->to == FUSED_SOFTCAP) lower_f32(s, "cap", f->cap);
    if (f->to == FUSED_GELU_MUL) {
        lower_bind(s, "factor", f->slice);
        lower_u32(s, "factor_offset", w.slice.offset);
        lower_u32(s, "factor_stride", w.slice.stride);
    }
    return lower_step_end(s, error);
}

/* ---- rows by index --------------------------------------------------------------------------- */

static beryl_status gather_words(lowering *l, const graph_node *node, const graph_tensor *table,
                                 lower_count n, beryl_error *error) {
    const graph_tensor *ids = graph_tensor_at(l->g, node->in[1]);
    const uint32_t d = table->rank == 2 ? table->dim[1].size : 1;
    lower_step *s = lower_step_begin(l, node, &(kernels_request){.file = "gather_words"});
    lower_bind(s, "table", node->in[0]);
    lower_bind(s, "ids", node->in[1]);
    lower_bind(s, "out", node->out[0]);
    lower_count_param(s, "n", n);
    lower_count_param(s, "n_row", lower_count_of(table->dim[0]));
    lower_u32(s, "d", d);
    lower_u32(s, "table_offset", table->offset);
    lower_u32(s, "table_stride", table->stride[0]);
    lower_u32(s, "ids_offset", ids->offset);
    lower_groups(s, lower_count_times(n, d), 64);
    return lower_step_end(s, error);
}

static beryl_status gather_shard(lowering *l, const graph_node *node, const weight_walk *w,
                                 lower_count n, uint32_t shard, beryl_error *error) {
    const graph_tensor *ids = graph_tensor_at(l->g, node->in[1]),
                       *out = graph_tensor_at(l->g, node->out[0]);
    const store_shard *place = w->stored ? &w->stored->shard[shard] : NULL;
    const uint64_t begin = (uint64_t)w->plain * base_type_block_bytes(w->type);
    const uint32_t chunk = 1u << matvec_reader_shift(w->type);
    const bool whole = device_is_processor(l->caps);
    lower_request request = {.kernel = {.file = "gather_rows"}};
    lower_request_flag(&request, "WHOLE", whole);
    lower_request_part(&request, "reader", matvec_reader(w->type, w->k % 16 || begin % 16));
    lower_step *s = lower_step_begin(l, node, &request.kernel);
    if (place) lower_bind_shard(s, "weights", w->value, shard);
    else lower_bind(s, "weights", w->value);
    lower_bind(s, "ids", node->in[1]);
    lower_bind(s, "out", node->out[0]);
    lower_count_param(s, "n", n);
    lower_u32(s, "n_row", w->m);
    lower_u32(s, "first", place ? place->row : 0);
    lower_u32(s, "count", place ? place->n_row : w->m);
    lower_u32(s, "ids_offset", ids->offset);
    lower_u32(s, "out_offset", out->offset);
    lower_u32(s, "out_stride", w->k);
    planes_put(s, "", "plane", place ? &place->layout : NULL, (uint32_t)(begin / 4));
    lower_u32(s, "PART_k", w->k);
    lower_f32(s, "factor", node->attr.gather_rows.factor);
    lower_groups(
        s, lower_count_times(n, (uint64_t)((w->k + chunk - 1) / chunk) * (whole ? 1 : chunk / 4)),
        64);
    return lower_step_end(s, error);
}

beryl_status lower_gather_rows(lowering *l, const graph_node *node, beryl_error *error) {
    const graph_tensor *table = graph_tensor_at(l->g, node->in[0]),
                       *ids = graph_tensor_at(l->g, node->in[1]);
    const uint32_t last = table->rank - 1u;
    lower_count n = {1, 0};
    if (!graph_is_contiguous(ids)) return lower_refuse(l, node, "indices with gaps", error);
    for (uint32_t i = 0; i < ids->rank; i++) {
        if (ids->dim[i].extent && i > 0)
            return lower_refuse(l, node, "indices over an inner extent", error);
        n = ids->dim[i].extent ? lower_count_of(ids->dim[i])
                               : lower_count_times(n, ids->dim[i].size);
    }
    if (table->dim[last].extent && table->rank == 2)
        return lower_refuse(l, node, "rows of varying length", error);
    const bool words =
        table->type == TYPE_I32 || (table->type == TYPE_F32 && node->attr.gather_rows.factor == 1);
    const store_tensor *stored = lower_stored(l, node->in[0]);
    if (words && (table->rank == 1 || table->stride[1] == 1) && (!stored || stored->n_shard == 1))
        return gather_words(l, node, table, n, error);
    weight_walk w = {.value = node->in[0],
                     .type = table->type,
                     .m = table->dim[0].size,
                     .k = 1,
                     .plain = table->offset};
    const bool vector =
        table->rank == 1 && !table->dim[0].extent && !base_type_is_quantised(table->type);
    if (!vector && (!weight_walk_of(l, node->in[0], &w) || w.first))
        return lower_refuse(l, node, "a table that is not whole or varies in length", error);
    if (!matvec_reader(w.type, false)) return lower_refuse(l, node, "a weight of this type", error);
    beryl_status status = BERYL_OK;
    const uint32_t n_shard = w.stored ? w.stored->n_shard : 1;
    for (uint32_t i = 0; status == BERYL_OK && i < n_shard; i++)
        status = gather_shard(l, node, &w, n, i, error);
    return status;
}
