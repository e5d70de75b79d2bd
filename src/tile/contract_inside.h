/* contract_inside.h - a sum of products, its axes by class and what is copied for it. For
 * tile/contract.c and tile/contract_copy.c alone. */
#ifndef TILE_CONTRACT_INSIDE_H
#define TILE_CONTRACT_INSIDE_H

#include "base/build.h"
#include "tile/contract_end.h"
#include "tile/kernel.h"
#include "tile/split.h"
#include "tile/walk.h"

enum { A, B, OUT, TENSORS };
enum { DIM_OUTER = 0, DIM_INNER = 1, DIM_DEPTH = 2, DIM_BATCH = 3 };
enum { CONTRACT_COPY = 3, /* and the next: keys of copies of a, b */ CONTRACT_ROUNDS = 6 };

typedef enum class_kind { CLASS_BATCH, CLASS_OUTER, CLASS_INNER, CLASS_DEPTH, CLASSES } class_kind;

/* Axes of one class, outermost first. */
typedef struct axes {
    uint32_t n, stride[LOWER_WALK_TENSORS][GRAPH_RANK_MAX];
    lower_count size[GRAPH_RANK_MAX], count; /* count: all of them */
    uint64_t bound;
    bool unfit; /* more than one size of a run */
} axes;

#define NO_AXES ((axes){.count = {1, 0}, .bound = 1})

/* Memory from `first` on, [outer, n, apart], that becomes [outer, apart, n]. */
typedef struct channels {
    uint32_t first, outer, n, apart;
    class_kind kind; /* of the axis of n */
    uint32_t axis;
} channels;

typedef struct contraction {
    tile_kernel k;
    const graph_node *node, *placed; /* placed: what the plan has, the node or one that joins it */
    contract_end end;
    uint32_t n_tensor; /* TENSORS, then those of the end */
    axes of[CLASSES];
    ir_type type; /* of sums */
    /* The factor that is packed, F32 [batch, depth, width], and the class along its width;
     * TENSORS: none */
    uint32_t packed, width;
    class_kind along;
    bool lasts;  /* it is a weight's, packed for all runs */
    bool tabled; /* the other one's places along depth */
    /* What is copied before (tile/contract_copy.c): every line in whole pieces, or channels to lie
     * last; F32 as limbs of BF16. bytes: of the copies. plane: elements from limb to limb. depth:
     * of padded lines. parts: which share a sum of limbs. as: channels */
    bool pads, turns, limbs, copied[OUT];
    uint64_t bytes[OUT];
    uint32_t offset[OUT], plane[OUT], depth, parts;
    channels as[OUT];
} contraction;

static inline bool contract_moves(const axes *of, uint32_t t) {
    for (uint32_t i = 0; i < of->n; i++)
        if (of->stride[t][i]) return true;
    return false;
}

/* A number of the kernel: what is below 2 as such, else as a parameter. */
static inline ir_id contract_number(contraction *c, const char *name, uint32_t x) {
    return x < 2 ? ir_u32(c->k.b, x) : tile_u32(&c->k, name, x);
}

/* How many parts share each sum. */
tile_split contract_split(const contraction *c, const lowering *l);

/* Would the contraction alone be a product of limbs? Its results are mended where they lie, so
 * that nothing may end it. */
bool contract_takes_limbs(const lowering *l, const graph_node *node);

/* Chooses what is copied, and copies; the axes become those of the copies. */
void contract_choose_copies(const lowering *l, contraction *c);
beryl_status contract_copy(lowering *l, contraction *c, beryl_error *error);

#endif
