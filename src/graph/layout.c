/* layout.c - the one rule for views that an operation's kernels cannot read where they lie.
 *
 * Owns what strides the inputs of operations may have. A view with other ones is read through a
 * copy, one for all its readers; refuses what no copy is made of. Operations of trees
 * (tile/tree.h) read any view: what is said here is of the others. */
#include "graph/build.h"

#include <string.h>

typedef enum layout {
    LAYOUT_ANY = '.',
    LAYOUT_ROWS = 'r',   /* elements of a row side by side, rows anywhere behind the first */
    LAYOUT_LIST = 'n',   /* the same; of one axis: rows of an element, anywhere */
    LAYOUT_EVENLY = 'e', /* the same, one row as far behind another as the next one */
    LAYOUT_DENSE = 'd'   /* no gaps */
} layout;

/* Of each input; those behind the last letter may be any. */
static const char *const layouts[OP_COUNT] = {
    [OP_GATHER_ROWS] = "n",
    [OP_TOPK] = "r",
    [OP_SAMPLE] = "rr",
    [OP_LINEAR] = "ed",
    [OP_LINEAR_ID] = "rdr",
    [OP_ROPE] = "rr",
    [OP_KV_WRITE] = ".r",
    [OP_ATTENTION] = "rdd",
    [OP_SET_ROWS] = ".n",
    [OP_SORT] = "d",
    [OP_FOURIER] = "d",
    [OP_ATTENTION_SUMS] = "rrr..r",
    [OP_ATTENTION_BACK] = "rrrrd",
};

static layout layout_of(base_op op, const graph_attrs *attr, uint32_t k, const graph_tensor *t) {
    const char *of = layouts[op];
    /* a part of a cache is no ring: its shape rule says so */
    if (op == OP_ATTENTION && t->role == ROLE_STORED) return LAYOUT_ANY;
    if (op == OP_ATTENTION && t->rank == 4 && t->dim[0].size == 1) return LAYOUT_ROWS;
    if (op == OP_GATHER_ROWS && !k && attr->gather_rows.factor != 1) return LAYOUT_DENSE;
    if (!of || k >= strlen(of)) return LAYOUT_ANY;
    return of[k] != LAYOUT_LIST ? (layout)of[k] : t->rank == 1 ? LAYOUT_ANY : LAYOUT_ROWS;
}

/* Where a size is 1 the stride is that which no gap would give. */
static void without_ones(const graph_tensor *t, uint32_t *stride) {
    for (uint32_t i = t->rank; i-- > 0;)
        stride[i] = t->dim[i].size != 1 ? t->stride[i]
                    : i + 1u < t->rank  ? stride[i + 1] * t->dim[i + 1].size
                                        : 1;
}

static bool lies(const graph_tensor *t, const uint32_t *stride, layout as) {
    uint32_t inner = t->rank; /* the last one that is more than 1 and no element of a row */
    bool fits = !t->rank || stride[t->rank - 1] == 1;
    for (uint32_t i = t->rank; fits && i-- > 0;) {
        if (t->dim[i].size == 1) continue;
        if (as == LAYOUT_DENSE && i + 1u < t->rank)
            fits = stride[i] == (uint64_t)stride[i + 1] * t->dim[i + 1].size;
        fits = fits && (int32_t)stride[i] > 0;
        if (i + 1u == t->rank) continue;
        if (as == LAYOUT_EVENLY && inner < t->rank)
            fits = fits && stride[i] == (uint64_t)stride[inner] * t->dim[inner].size;
        inner = i;
    }
    return fits;
}

/* A copy of the view that is there; 0: none. States may have changed since. */
static graph_value copied(const graph *g, graph_value v) {
    if (graph_tensor_at(g, v)->role == ROLE_STORED) return 0;
    for (size_t i = g->nodes.count; i-- > 0;)
        if (g->nodes.data[i].op == OP_COPY && g->nodes.data[i].in[0] == v)
            return g->nodes.data[i].out[0];
    return 0;
}

graph_value graph_layout(graph *g, base_op op, const graph_attrs *attr, uint32_t k, graph_value v) {
    const graph_tensor *t = graph_tensor_at(g, v);
    const layout as = layout_of(op, attr, k, t);
    uint32_t stride[GRAPH_RANK_MAX];
    char text[GRAPH_SHAPE_TEXT];
    if (!t->base || as == LAYOUT_ANY) return v;
    without_ones(t, stride);
    if (lies(t, stride, as)) {
        /* of rows the last stride alone is asked for */
        const uint32_t n = as == LAYOUT_DENSE ? t->rank : t->rank > 0, first = t->rank - n;
        if (!memcmp(t->stride + first, stride + first, n * sizeof *stride)) return v;
        const graph_value again = graph_view_of(g, v, t->rank, t->dim);
        graph_tensor *u = &g->tensors.data[again];
        if (again) memcpy(u->stride, stride, sizeof stride);
        return again;
    }
    if (t->type != TYPE_F32 && (t->role == ROLE_STORED || !graph_type_is_plain(t->type)))
        return graph_refuse(g, BERYL_UNSUPPORTED,
                            "%s: input %u, %s, is a view with gaps, and %s is not copied",
                            graph_op_name(op), k + 1, graph_shape_text(g, t->rank, t->dim, text),
                            base_type_name(t->type));
    const graph_value copy = copied(g, v);
    return copy ? copy : graph_copy(g, v);
}
