/* fused.h - what a fused node holds: ordinary operations that run as one dispatch (attention:
 * one or two). The operations themselves stay in graph.inner, in order: products and chains are
 * lowered by them, and the reference runs them. All values are of the graph; 0: none. */
#ifndef TILE_FUSED_H
#define TILE_FUSED_H

#include "graph/graph.h"
#include "tile/form.h"
#include "graph/region.h"
#include "graph/store.h"

typedef enum fused_kind {
    FUSED_MATVEC = 1,
    FUSED_ATTENTION,
    FUSED_ROUTER,
    FUSED_EXPERTS,
    FUSED_CHAIN,
    FUSED_UPDATE
} fused_kind;

enum {
    FUSED_SEGMENT_MAX = 3,
    FUSED_PART_MIN = 16,    /* columns that each of fused_matvec.parts is of */
    FUSED_CHOSEN_MAX = 16,  /* experts of a vector, */
    FUSED_ROUTER_MAX = 2048 /* of so many: 8 KiB of workgroup memory */
};

/* Products of one vector x with what stands before and after them. */
typedef struct fused_matvec {
    graph_value x; /* [n, k], maybe a view */
    /* not 0: x is the joined partial sums of the attention before, and is never stored */
    graph_value attention, stats;
    uint32_t n_split, n_head, head_dim;
    /* not 0: U32 [parts, r / 2], pairs of BF16: products of a stored A [r, columns] with the
     * results of a tile each. Those before make them, where `parts_of` is A; else the products of
     * low rank take their sum (graph_products.side) */
    graph_value parts, parts_of;
} fused_matvec;

/* Where a row sees keys, the largest of its weights is 1. Their sum is taken as this at least, so
 * that a row without keys becomes 0. */
#define FUSED_TOTAL_MIN 1e-30f

/* One decode step of attention. Every row of the run belongs to another slot. Owners store this
 * run's k and v into the caches (bound once, read_write) and take them from their inputs, so no
 * workgroup reads a row that its dispatch stores. */
typedef struct fused_attention {
    /* [n, heads * d] before norm and rotation; k, v 0: the caches hold this run's row already; v
     * == k: values are the raw keys */
    graph_value q, k, v;
    graph_value w_q, w_k, angles; /* [d], [d], [n, 2, d / 2] */
    graph_value k_cache, v_cache; /* stored; the row of position p is p % rows */
    graph_value slot, pos;        /* I32 [n] */
    float eps, scale;
    uint32_t window, n_head, n_kv, head_dim;
    uint32_t most;    /* positions of a run are below; 0: any */
    uint32_t n_split; /* pieces of the keys; 1: out is written at once */
    /* [n, H, n_split, d], [n, H, n_split, 2] (maximum, sum): F32, where n_split > 1 */
    graph_value partial, stats;
    /* the matvec that follows joins the pieces: out is never stored */
    bool merged_later;
    graph_value out; /* [n, H, d] */
} fused_attention;

/* The choice of experts: ids are the k largest logits, gates = softmax(factor * those) *
 * scales[ids]. */
typedef struct fused_router {
    graph_value logits, scales; /* [n, d]; F32 [d] */
    uint32_t k;
    float factor;
    graph_value ids, gates; /* I32, F32 [n, k] */
} fused_router;

/* Products with the experts chosen for each vector; where router.logits is not 0 every workgroup
 * chooses them itself, one stores router's ids and gates. sums false: out [n, u, m] =
 * gelu_tanh(gate x) * (up x); true: out [n, m] = sum over u of gates[n, u] * w[ids[n, u]] x[n,
 * u]. */
typedef struct fused_experts {
    bool sums;
    graph_value x;         /* [n, 1, k], or where sums [n, u, k]; w_norm: 0 */
    graph_value h, w_norm; /* x = rms(h) * w_norm, h [n, k]; w_norm 0: no */
    float eps;
    /* 1 and not sums: rows [0, m) of each expert are the gate's, [m, 2m) the other's */
    uint32_t n_w;
    graph_value w[2];       /* [e, m or 2m, k] */
    graph_value ids, gates; /* I32, F32 [n, u] */
    fused_router router;    /* not sums */
    graph_value out;
} fused_experts;

/* FUSED_CHAIN: operations whose results have one shape, pointwise or over rows; a product before
 * them, or topk or argmax after. No detail: the region says it all. */

/* FUSED_UPDATE: trees of pointwise operations apart from each other, each with the states that its
 * results become: workgroups are dealt out to them. Of the inner nodes, a body's [first, first +
 * count); after those of all bodies come the assignments. */
enum { FUSED_BODY_MAX = 16 };
typedef struct fused_body {
    uint32_t first, count, n_out;
    graph_value out[GRAPH_OUT_MAX];
    graph_value to[GRAPH_OUT_MAX]; /* an assignment's result; 0: it is an intermediate */
} fused_body;
typedef struct fused_update {
    uint32_t n;
    fused_body bodies[FUSED_BODY_MAX];
} fused_update;

/* May states of this type change in one? */
bool tile_update_takes(base_type type);
/* Can the device run it as one dispatch, in place? */
bool tile_update_fits(const graph *g, const graph_store *store, const fused_update *u);

/* Can the device run these as one FUSED_MATVEC node? */
bool tile_fused_matvec_fits(const graph *g, const graph_store *store,
                            const lower_settings *settings, const fused_matvec *f,
                            const graph_region *r);

#endif
