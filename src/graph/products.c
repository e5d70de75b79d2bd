/* products.c - products that are views and sums of products: of matrices, of what letters say.
 *
 * Owns matmul and einsum. Each sees its inputs as tensors of one shape, axes
 * that one has not as 1, and leaves the rest to `contract`, which reads views where they lie; or,
 * where only one of them has rows of its own, to a sum of what is multiplied element by element. */
#include "base/build.h"
#include "graph/build.h"

#include <string.h>

static uint32_t rank_of(const graph *g, graph_value v) {
    return graph_tensor_at(g, v)->rank;
}

graph_value graph_without(graph *g, graph_value v, uint32_t axes) {
    for (uint32_t i = GRAPH_RANK_MAX; v && i-- > 0;)
        if (axes >> i & 1) v = graph_squeeze(g, v, i);
    return v;
}

/* Has t an axis that the other has not, among those that stay? */
static bool has_own_axis(const graph_tensor *t, const graph_tensor *other, uint32_t axes) {
    const uint32_t rank = t->rank > other->rank ? t->rank : other->rank, from = rank - t->rank,
                   other_from = rank - other->rank;
    bool own = false;
    for (uint32_t i = from; i < rank; i++) {
        const graph_dim *d = &t->dim[i - from],
                        *o = i >= other_from ? &other->dim[i - other_from] : NULL;
        const bool shared = o && (o->size != 1 || o->extent);
        own |= !(axes >> i & 1) && !shared && (d->size != 1 || d->extent);
    }
    return own;
}

graph_value graph_sum_products(graph *g, graph_value a, graph_value b, uint32_t axes) {
    if (!graph_has(g, a, "contract") || !graph_has(g, b, "contract")) return 0;
    const graph_tensor *x = graph_tensor_at(g, a), *y = graph_tensor_at(g, b);
    const base_type type = x->type;
    if (BUILD_IS_SMALL || type != y->type || !graph_type_is_plain(type) ||
        (has_own_axis(x, y, axes) && has_own_axis(y, x, axes)))
        return graph_contract(g, a, b, axes);
    const bool halves = type == TYPE_F16 || type == TYPE_BF16;
    if (halves) a = graph_as(g, a, TYPE_F32), b = graph_as(g, b, TYPE_F32);
    return graph_as(g, graph_reduce(g, OP_SUM, graph_mul(g, a, b), axes, 0), type);
}

/* ---- matrices -------------------------------------------------------------------------------- */

static graph_value transposed(graph *g, graph_value v) {
    uint32_t axes[GRAPH_RANK_MAX];
    const uint32_t rank = rank_of(g, v);
    for (uint32_t i = 0; i < rank; i++) axes[i] = i;
    axes[rank - 2] = rank - 1;
    axes[rank - 1] = rank - 2;
    return graph_permute(g, v, rank, axes);
}

graph_value graph_matmul(graph *g, graph_value a, graph_value b, bool transpose_a,
                         bool transpose_b) {
    if (!graph_has(g, a, "matmul") || !graph_has(g, b, "matmul")) return 0;
    char words[2][GRAPH_SHAPE_TEXT];
    const graph_tensor *x = graph_tensor_at(g, a), *y = graph_tensor_at(g, b);
    const bool row = x->rank == 1, column = y->rank == 1;
    const graph_dim k_a = row           ? x->dim[0]
                          : !x->rank    ? (graph_dim){0, 0}
                          : transpose_a ? x->dim[x->rank - 2]
                                        : x->dim[x->rank - 1],
                    k_b = column        ? y->dim[0]
                          : !y->rank    ? (graph_dim){0, 0}
                          : transpose_b ? y->dim[y->rank - 1]
                                        : y->dim[y->rank - 2];
    if (!x->rank || !y->rank || !graph_same_dim(k_a, k_b))
        return graph_refuse(
            g, BERYL_MISUSE, "matmul of %s%s and %s%s",
            graph_shape_text(g, x->rank, x->dim, words[0]), transpose_a ? ", transposed," : "",
            graph_shape_text(g, y->rank, y->dim, words[1]), transpose_b ? ", transposed" : "");
    /* [.., m, 1, k] and [.., 1, n, k] */
    if (row) a = graph_unsqueeze(g, a, 0);
    else if (transpose_a) a = transposed(g, a);
    if (column) b = graph_unsqueeze(g, b, 0);
    else if (!transpose_b) b = transposed(g, b);
    if (a) a = graph_unsqueeze(g, a, rank_of(g, a) - 1);
    if (b) b = graph_unsqueeze(g, b, rank_of(g, b) - 2);
    if (!a || !b) return 0;
    const uint32_t rank = rank_of(g, a) > rank_of(g, b) ? rank_of(g, a) : rank_of(g, b);
    const uint32_t axes =
        1u << (rank - 1) | (column ? 1u << (rank - 2) : 0) | (row ? 1u << (rank - 3) : 0);
    return graph_without(g, graph_sum_products(g, a, b, axes), axes);
}

/* ---- einsum ---------------------------------------------------------------------------------- */

enum { LETTERS_MAX = GRAPH_RANK_MAX };

typedef struct letters { /* of a tensor's axes */
    uint32_t n;
    char of[LETTERS_MAX];
} letters;

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool has_letter(const letters *l, char c) {
    return memchr(l->of, c, l->n) != NULL;
}

static uint32_t place_of(const letters *l, char c) {
    return (uint32_t)((const char *)memchr(l->of, c, l->n) - l->of);
}

/* The letters up to the end of an operand; false: something else, or too many. */
static bool read_letters(const char **at, letters *out) {
    out->n = 0;
    for (; **at && **at != ',' && **at != '-'; (*at)++) {
        if (**at == ' ') continue;
        if (!is_letter(**at) || out->n == LETTERS_MAX) return false;
        out->of[out->n++] = **at;
    }
    return true;
}

/* Axes with the same letter become one. */
static graph_value without_repeats(graph *g, graph_value v, letters *l) {
    for (uint32_t i = 0; v && i < l->n; i++)
        for (uint32_t k = i + 1; v && k < l->n; k++) {
            if (l->of[i] != l->of[k]) continue;
            const char c = l->of[i];
            v = graph_diagonal(g, v, i, k);
            memmove(l->of + k, l->of + k + 1, l->n - k - 1);
            memmove(l->of + i, l->of + i + 1, l->n - i - 2);
            l->of[--l->n - 1] = c;
            i = UINT32_MAX; /* from the beginning */
            break;
        }
    return v;
}

/* Axes whose letters nobody wants any more are summed. */
static graph_value summed(graph *g, graph_value v, letters *l, const bool wanted[256]) {
    uint32_t axes = 0;
    for (uint32_t i = 0; i < l->n; i++)
        if (!wanted[(unsigned char)l->of[i]]) axes |= 1u << i;
    if (!axes || !v) return v;
    v = graph_without(g, graph_reduce(g, OP_SUM, v, axes, 0), axes);
    letters left = {0};
    for (uint32_t i = 0; i < l->n; i++)
        if (!(axes >> i & 1)) left.of[left.n++] = l->of[i];
    *l = left;
    return v;
}

/* v with an axis for each letter of `order`, 1 where it has none. */
static graph_value spread(graph *g, graph_value v, const letters *l, const letters *order) {
    uint32_t axes[GRAPH_RANK_MAX], n = 0;
    for (uint32_t i = 0; i < order->n; i++)
        if (has_letter(l, order->of[i])) axes[n++] = place_of(l, order->of[i]);
    if (n) v = graph_permute(g, v, n, axes);
    for (uint32_t i = 0; v && i < order->n; i++)
        if (!has_letter(l, order->of[i])) v = graph_unsqueeze(g, v, i);
    return v;
}

/* Of the first two, whose letters are *l and *m; *l becomes those of the result: of both, in the
 * order in which they are wanted, without those that nobody wants. */
static graph_value multiply(graph *g, graph_value a, letters *l, graph_value b, const letters *m,
                            const letters *out, const bool wanted[256]) {
    letters all = {0}, left = {0};
    const letters *const from[] = {out, l, m};
    uint32_t axes = 0;
    for (uint32_t k = 0; k < 3; k++)
        for (uint32_t i = 0; i < from[k]->n; i++) {
            const char c = from[k]->of[i];
            if (has_letter(&all, c) || (!has_letter(l, c) && !has_letter(m, c))) continue;
            if (all.n == LETTERS_MAX)
                return graph_refuse(g, BERYL_UNSUPPORTED, "einsum: more than %u axes of two",
                                    (unsigned)LETTERS_MAX);
            all.of[all.n++] = c;
        }
    for (uint32_t i = 0; i < all.n; i++) {
        if (!wanted[(unsigned char)all.of[i]]) axes |= 1u << i;
        else left.of[left.n++] = all.of[i];
    }
    a = spread(g, a, l, &all);
    b = spread(g, b, m, &all);
    *l = left;
    if (!axes) return graph_mul(g, a, b);
    return graph_without(g, graph_sum_products(g, a, b, axes), axes);
}

static graph_value bad_letters(graph *g, const char *text) {
    return graph_refuse(g, BERYL_MISUSE,
                        "einsum \"%.60s\": a letter for each axis, as in \"ij,jk->ik\"", text);
}

/* What text says of n operands and the result; false: refused. */
static bool read_einsum(graph *g, const char *text, uint32_t n, const graph_value *x, letters *of,
                        letters *out) {
    const char *at = text;
    for (uint32_t i = 0; i < n; i++) {
        if (!graph_has(g, x[i], "einsum")) return false;
        if (!read_letters(&at, &of[i]) || of[i].n != rank_of(g, x[i]) ||
            (i + 1 < n ? *at++ != ',' : *at == ','))
            return bad_letters(g, text);
    }
    if (at[0] != '-' || at[1] != '>') return bad_letters(g, text);
    at += 2;
    if (!read_letters(&at, out) || *at) return bad_letters(g, text);
    for (uint32_t i = 0; i < out->n; i++) {
        bool known = false;
        for (uint32_t k = 0; k < n; k++) known |= has_letter(&of[k], out->of[i]);
        if (!known || memchr(out->of, out->of[i], i)) return bad_letters(g, text);
    }
    return true;
}

graph_value graph_einsum(graph *g, const char *text, uint32_t n, const graph_value *x) {
    letters of[GRAPH_EINSUM_MAX], out;
    if (g->error.code != BERYL_OK) return 0;
    if (!n || n > GRAPH_EINSUM_MAX)
        return graph_refuse(g, BERYL_UNSUPPORTED, "einsum of %u values, not 1 to %u", n,
                            (unsigned)GRAPH_EINSUM_MAX);
    if (!read_einsum(g, text, n, x, of, &out)) return 0;
    graph_value v = without_repeats(g, x[0], &of[0]);
    for (uint32_t i = 0; v && i < n; i++) {
        bool wanted[256] = {false};
        graph_value next = i + 1 < n ? without_repeats(g, x[i + 1], &of[i + 1]) : 0;
        for (uint32_t k = 0; k < out.n; k++) wanted[(unsigned char)out.of[k]] = true;
        for (uint32_t k = i + 2; k < n; k++)
            for (uint32_t c = 0; c < of[k].n; c++) wanted[(unsigned char)of[k].of[c]] = true;
        if (!next) {
            v = i + 1 < n ? 0 : summed(g, v, &of[0], wanted);
            break;
        }
        /* what only one of the two has is summed before they meet */
        bool here[2][256];
        memcpy(here[0], wanted, sizeof wanted);
        memcpy(here[1], wanted, sizeof wanted);
        for (uint32_t c = 0; c < of[i + 1].n; c++) here[0][(unsigned char)of[i + 1].of[c]] = true;
        for (uint32_t c = 0; c < of[0].n; c++) here[1][(unsigned char)of[0].of[c]] = true;
        v = summed(g, v, &of[0], here[0]);
        next = summed(g, next, &of[i + 1], here[1]);
        if (v && next) v = multiply(g, v, &of[0], next, &of[i + 1], &out, wanted);
    }
    return v ? spread(g, v, &of[0], &out) : 0;
}
