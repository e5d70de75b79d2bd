/* contract_inside.h - a sum of products, its axes by class and what is copied for it. For
 * tile/contract.c, tile/contract_copy.c and tile/contract_pack.c alone. */
#ifndef TILE_CONTRACT_INSIDE_H
#define TILE_CONTRACT_INSIDE_H

#include "base/build.h"
#include "tile/contract_end.h"
#include "tile/kernel.h"
#include "tile/split.h"
#include "tile/walk.h"

enum { A, B, OUT, TENSORS };
enum { DIM_OUTER = 0, DIM_INNER = 1, DIM_DEPTH = 2, DIM_BATCH = 3 };
enum {
    CONTRACT_PLACES = 1, /* the table's key; */
    CONTRACT_COPY = 3,   /* and the next: those of copies of a, b */
    CONTRACT_ROUNDS = 6
};
enum { VECTOR = 16 }; /* elements of a processor's */

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
    const graph_node *node; /* what the plan has, or inside of that */
    contract_end end;
    uint32_t n_tensor; /* TENSORS, then those of the end */
    axes of[CLASSES];
    ir_type type; /* of sums */
    /* What a processor packs (tile/contract_pack.c): F32 [batch, panel, depth, width]. along: the
     * class whose turns are elements of vectors, in panels of `panel`; CLASSES: as it lies. tabled:
     * the places along depth of a factor that is not packed */
    bool packed[OUT], tabled;
    uint32_t width[OUT], panel, panels;
    class_kind along;
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

/* Strides, made where they are the same for all turns: along depth constants, by which schedules
 * tell what neighbours are. */
typedef struct lengths {
    ir_id stride[LOWER_WALK_TENSORS][GRAPH_RANK_MAX], size[GRAPH_RANK_MAX], count;
} lengths;
void contract_measure(contraction *c, class_kind kind, lengths *out);
/* Where turn `index` of the class is in tensor t, from `at` on. */
ir_id contract_place(contraction *c, class_kind kind, const lengths *by, uint32_t t, ir_id index,
                     ir_id at);
ir_id contract_turns(ir_builder *b, const lengths *by, ir_mark_kind mark, uint32_t dim);

void contract_add_axis(const lowering *l, axes *to, lower_count size,
                       const uint32_t stride[LOWER_WALK_TENSORS]);
/* The axes of the class lie in tensor t as one. */
bool contract_is_one(const axes *of, uint32_t t);

/* How many parts share each sum. */
tile_split contract_split(const contraction *c, const lowering *l);

/* Would the contraction alone be a product of limbs? Its results are mended where they lie, so
 * that nothing may end it. */
bool contract_takes_limbs(const lowering *l, const graph_node *node);

/* Chooses what is copied, and copies; the axes become those of the copies. */
void contract_choose_copies(const lowering *l, contraction *c);
beryl_status contract_copy(lowering *l, contraction *c);

/* Chooses what a processor packs, and packs it. */
beryl_status contract_pack(lowering *l, contraction *c, const graph_tensor *const *tensors);
uint64_t contract_packed_bytes(const contraction *c, uint32_t t);
/* contract_place of factor t, which is packed. */
ir_id contract_place_packed(contraction *c, class_kind kind, uint32_t t, ir_id index, ir_id at);
/* The last panel has turns beyond the class's. */
bool contract_is_ragged(const contraction *c);
/* The factor is a weight, and no run has another size of it. */
bool contract_is_lasting(const contraction *c, const lowering *l, uint32_t t);
/* Every vector of `unit` of the factor along the axes, of one class, lies in one piece. */
bool contract_has_vectors(const contraction *c, const lowering *l, uint32_t t, class_kind kind,
                          uint32_t unit);
/* Multiplies on a processor's tiles, if they are taken. */
bool contract_takes_tiles(const contraction *c, const lowering *l);
beryl_status contract_tiles(lowering *l, contraction *c);
/* A linear layer whose sums are too short for vectors along them. */
bool contract_packs_lines(const contraction *c, const lowering *l);

#endif
