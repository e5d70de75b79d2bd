/* vectors.c - the vectors of fused products (kernels/lower/vectors.h).
 *
 * One idea: what makes a vector is written once, as the prologue parts of matvec. With few
 * vectors and workgroups the product itself has them, and no dispatch is waited for; else
 * vectors.wgsl has the same parts, and each vector is made once. */
#include "kernels/lower/vectors.h"
#include "kernels/lower/matvec.h"

enum {
    APART_WG_MAX = 512,
    /* fours of a vector that an invocation has: all are waited for at once, */
    APART_EACH = 2,
    APART_FOURS_MAX = 16, /* and lie in registers */
    APART_PIECES_MAX = 16,
    /* pieces of attention that an invocation asks for at once (matvec_prologue_merge) */
    MERGE_ROUND = 4
};

bool vectors_has_prologue(const fused_matvec *f) {
    return f->from != FUSED_X_PLAIN;
}

bool vectors_adds(const fused_matvec *f) {
    return f->from == FUSED_X_ADD || f->from == FUSED_X_ADD_NORM;
}

graph_value vectors_source(const fused_matvec *f) {
    return f->from == FUSED_X_PLAIN ? f->x : f->from == FUSED_X_MERGE ? f->attention : f->h;
}

static bool is_whole_row(const lower_matrix *w, uint32_t k) {
    return w->k == k && w->offset % 4 == 0 && w->stride % 4 == 0;
}

bool vectors_walk_of(const lowering *l, const fused_matvec *f, uint32_t k, vectors_walk *w) {
    *w = (vectors_walk){0};
    if (f->from == FUSED_X_PLAIN) {
        if (!lower_matrix_of(graph_tensor_at(l->g, f->x), &w->x)) return false;
        w->x_any = !is_whole_row(&w->x, k);
    } else if (f->from == FUSED_X_MERGE) {
        const graph_tensor *partial = graph_tensor_at(l->g, f->attention);
        w->x = (lower_matrix){lower_count_of(partial->dim[0]), partial->dim[0].size, k, 0, 0};
        if (f->n_head * f->head_dim != k || f->head_dim % 4) return false;
    } else if (!lower_matrix_of(graph_tensor_at(l->g, f->h), &w->x) || !is_whole_row(&w->x, k)) {
        return false;
    }
    if (vectors_has_prologue(f) && k % 16) return false;
    if (vectors_adds(f) && (!lower_matrix_of(graph_tensor_at(l->g, f->branch), &w->branch) ||
                            !is_whole_row(&w->branch, k) ||
                            !lower_matrix_of(graph_tensor_at(l->g, f->h_out), &w->stream) ||
                            !is_whole_row(&w->stream, k)))
        return false;
    if (f->second && (!lower_matrix_of(graph_tensor_at(l->g, f->second), &w->second) ||
                      !is_whole_row(&w->second, k)))
        return false;
    const graph_value norms[5] = {f->from == FUSED_X_NORM || f->from == FUSED_X_ADD_NORM ? f->w_norm
                                                                                         : 0,
                                  vectors_adds(f) ? f->w_branch : 0, vectors_adds(f) ? f->scale : 0,
                                  f->second ? f->w_own : 0, f->second ? f->w_second : 0};
    for (uint32_t i = 0; i < 5; i++)
        if (norms[i]) w->norms[w->n_norm++] = norms[i];
    return w->x.k == k && (w->n_norm == 0 || lower_weights_fit(l, w->norms, w->n_norm));
}

/* ---- parts of a kernel ----------------------------------------------------------------------- */

uint32_t vectors_bindings(const fused_matvec *f, const vectors_walk *w) {
    return (w->n_norm > 0 ? 1u : 0u) + (vectors_adds(f) ? 2u : 0u) + (f->second ? 1u : 0u) +
           (f->from == FUSED_X_MERGE ? 1u : 0u);
}

void vectors_parts(lower_request *r, const fused_matvec *f, uint32_t span) {
    static const char *const prologues[] = {[FUSED_X_NORM] = "matvec_prologue_norm",
                                            [FUSED_X_ADD] = "matvec_prologue_add_norm",
                                            [FUSED_X_ADD_NORM] = "matvec_prologue_add_norm",
                                            [FUSED_X_MERGE] = "matvec_prologue_merge"};
    lower_request_part(r, "prologue", prologues[f->from]);
    if (f->from == FUSED_X_MERGE) lower_request_flag(r, "MERGE_ALL", f->n_split <= MERGE_ROUND);
    if (vectors_adds(f)) {
        lower_request_flag(r, "SCALED", f->scale != 0);
        lower_request_flag(r, "SECOND", f->from == FUSED_X_ADD_NORM);
        if (f->second) lower_request_part(r, "branch", "matvec_branch_two");
    }
    if (!span || f->from == FUSED_X_MERGE) return;
    lower_request_part(r, "sum", "matvec_sum_subgroup");
    lower_request_number(r, "SPAN", span);
}

void vectors_put(lower_step *s, const fused_matvec *f, const vectors_walk *w) {
    uint32_t word[5] = {0}, at = 0;
    if (w->n_norm) lower_bind_weights(s, "norms", w->norms, w->n_norm, word);
    if (f->from == FUSED_X_NORM) lower_u32(s, "norm", word[0]), lower_f32(s, "eps", f->eps);
    if (f->from == FUSED_X_MERGE) {
        lower_bind(s, "stats", f->stats);
        lower_u32(s, "n_split", f->n_split);
        lower_u32(s, "d", f->head_dim);
    }
    if (!vectors_adds(f)) return;
    lower_bind(s, "branch", f->branch);
    lower_bind(s, "stream", f->h_out);
    lower_u32(s, "branch_offset", w->branch.offset);
    lower_u32(s, "branch_stride", w->branch.stride);
    lower_u32(s, "stream_offset", w->stream.offset);
    lower_u32(s, "stream_stride", w->stream.stride);
    lower_u32(s, "norm", f->from == FUSED_X_ADD_NORM ? word[at++] : 0);
    lower_u32(s, "norm_branch", word[at++]);
    lower_u32(s, "scale", f->scale ? word[at++] : 0);
    lower_f32(s, "eps", f->from == FUSED_X_ADD_NORM ? f->eps : f->eps_branch);
    lower_f32(s, "eps_branch", f->eps_branch);
    if (!f->second) return;
    lower_bind(s, "twin", f->second);
    lower_u32(s, "twin_offset", w->second.offset);
    lower_u32(s, "twin_stride", w->second.stride);
    lower_u32(s, "norm_own", word[at++]);
    lower_u32(s, "norm_twin", word[at]);
    lower_f32(s, "eps_own", f->eps_own);
    lower_f32(s, "eps_twin", f->eps_second);
}

/* ---- a dispatch of their own ----------------------------------------------------------------- */

typedef struct separate_form { /* of vectors.wgsl */
    lower_count n;             /* vectors: of a merge the heads, each a vector of its own */
    uint32_t k, wg, each;
    bool subgroups;
} separate_form;

static separate_form separate_form_of(const lowering *l, const fused_matvec *f,
                                      const vectors_walk *w, bool int8) {
    const uint32_t most = l->caps->workgroup_invocations ? l->caps->workgroup_invocations : 256;
    separate_form a = {.n = w->x.n,
                       .k = w->x.k,
                       .wg = 32,
                       .subgroups = l->caps->subgroups && l->caps->subgroup_size >= 8};
    if (f->from == FUSED_X_MERGE) a.n = lower_count_times(a.n, f->n_head), a.k = f->head_dim;
    const bool blocks = int8 && !a.subgroups; /* an invocation has whole ones */
    const uint32_t items = blocks ? a.k / 32 : a.k / 4, wanted = blocks ? 1 : APART_EACH;
    while (a.wg * wanted < items && 2 * a.wg <= APART_WG_MAX && 2 * a.wg <= most) a.wg *= 2;
    a.each = (items + a.wg - 1) / a.wg * (blocks ? 8 : 1);
    return a;
}

static uint64_t int8_bytes(const lower_matrix *rows) {
    return ((uint64_t)rows->bound * (rows->k / 32) + 1) / 2 * 80;
}

bool vectors_separate_fits(const lowering *l, const fused_matvec *f, const vectors_walk *w,
                           bool int8) {
    const uint32_t bindings = 2 + vectors_bindings(f, w);
    if (device_is_processor(l->caps) || !vectors_has_prologue(f)) return false;
    const separate_form a = separate_form_of(l, f, w, int8);
    return a.each <= APART_FOURS_MAX && a.k % (int8 ? 32 : 16) == 0 &&
           (f->from != FUSED_X_MERGE || f->n_split <= APART_PIECES_MAX) &&
           bindings <= (l->caps->storage_max ? l->caps->storage_max : 8) &&
           bindings <= DEVICE_BINDING_MAX;
}

beryl_status vectors_separate(lowering *l, const graph_node *node, const fused_matvec *f,
                              const vectors_walk *w, bool int8, uint32_t key, beryl_error *error) {
    const separate_form a = separate_form_of(l, f, w, int8);
    lower_request r = {.kernel.file = "vectors"};
    lower_request_number(&r, "WG", a.wg);
    lower_request_number(&r, "X_GROUPS", (a.k + 63) / 64 * 4);
    if (int8) lower_request_part(&r, "x", a.subgroups ? "matvec_x_int8_subgroup" : "matvec_x_int8");
    if (int8) lower_request_part(&r, "keep", "vectors_keep");
    vectors_parts(&r, f, a.subgroups ? matvec_span(l->caps, &(matvec_choice){.wg = a.wg}) : 0);
    lower_step *s = lower_step_begin(l, node, &r.kernel);
    lower_bind(s, "x", vectors_source(f));
    lower_bind_scratch(s, "out", key, int8 ? int8_bytes(&w->x) : (uint64_t)w->x.bound * w->x.k * 4);
    lower_count_param(s, "n_x", a.n);
    lower_u32(s, "k", a.k);
    lower_u32(s, "x_stride", w->x.stride);
    lower_u32(s, "x_offset", w->x.offset);
    vectors_put(s, f, w);
    lower_groups(s, a.n, 1);
    return lower_step_end(s, error);
}

beryl_status vectors_quantise(lowering *l, const graph_node *node, graph_value x,
                              const lower_matrix *rows, uint32_t key, beryl_error *error) {
    lower_step *s = lower_step_begin(l, node, &(kernels_request){.file = "quantise"});
    lower_bind(s, "x", x);
    lower_bind_scratch(s, "quantised", key, int8_bytes(rows));
    lower_count_param(s, "n_x", rows->n);
    lower_u32(s, "k", rows->k);
    lower_u32(s, "x_stride", rows->stride);
    lower_u32(s, "x_offset", rows->offset);
    /* 64 invocations, two blocks each */
    lower_groups(s, lower_count_times(rows->n, rows->k / 32), 128);
    return lower_step_end(s, error);
}
