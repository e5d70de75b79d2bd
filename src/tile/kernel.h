/* kernel.h - a step whose kernel is made here and now: instructions, bindings and parameters
 * come from one place, so that nothing is written twice. For tile/ alone.
 *
 *     tile_kernel k;
 *     ir_builder *b = tile_begin(&k, l, "twice", LANES);
 *     ir_memory x = tile_read(&k, "x", node->in[0]), y = tile_write(&k, "y", node->out[0]);
 *     ir_id n = tile_count(&k, "n", lower_rows(t));
 *     ... ir_*(b, ...)
 *     return tile_end(&k, lower_rows(t), LANES);
 *
 * Mistakes and lack of memory stay in the builder until tile_end, which tells them to l->error.
 * What differs between nodes of one shape (offsets, lengths of a run) is a parameter, everything
 * else a constant of the kernel. */
#ifndef TILE_KERNEL_H
#define TILE_KERNEL_H

#include "base/build.h"
#include "tile/lower.h"
#include "graph/region.h"
#include "ir/tune.h"

enum {
    TILE_RUN = 16,        /* elements that readers and products take at once */
    TILE_WEIGHTS_MAX = 5, /* that readers put into one binding, */
    TILE_STORED_MAX = BUILD_HAS_TRAINING ? 48 : TILE_WEIGHTS_MAX /* and updates of states */
};

typedef struct tile_place { /* what a buffer is bound to */
    enum { TILE_VALUE, TILE_SHARD, TILE_SCRATCH, TILE_WEIGHTS } kind;
    graph_value value;
    graph_value weights[TILE_STORED_MAX];
    uint32_t n_weight;
    uint32_t shard, key;
    uint64_t bytes;
    uint32_t first, step; /* what a search writes there: first, first + step, ... as words */
} tile_place;

typedef struct tile_argument {
    const char *name;
    bool is_float;
    lower_count count;
    float number;
} tile_argument;

typedef struct tile_kernel {
    lowering *l;
    const char *name;
    ir_builder *b;
    base_arena arena; /* of the kernel */
    uint32_t lanes;   /* of a workgroup that share its work */
    uint32_t n_item;  /* of tile_begin_items: of a workgroup; else 1 */
    uint32_t wide;    /* vector lanes that pay: 4 on GPUs, more where vectors are the only lanes */
    const char *names[IR_BUFFER_MAX];
    tile_place places[IR_BUFFER_MAX];
    tile_argument arguments[IR_PARAM_MAX];
    uint32_t n_place, n_argument;
    uint32_t rounds; /* ir_schedule.rounds */
    bool once;       /* lower_once */
    bool joins;      /* loads of neighbours become one, where they are seen to begin so */
} tile_kernel;

/* One thread runs all lanes of a workgroup (processors, WebGPU in software): a lane a row, work
 * in vectors. */
bool tile_serial(const lowering *l);
/* A processor whose compiler makes vectors: the host device. */
bool tile_is_host(const lowering *l);
/* Are the device's texts WGSL? A module has no others. */
bool tile_is_wgsl(const device_caps *caps);
/* Its compute units; as many as a large GPU has where it does not say. */
uint32_t tile_units(const device_caps *caps);
/* Lanes that stay together on a device with subgroups. */
uint32_t tile_span(const device_caps *caps);
/* Lanes that share a row of `n` elements: by the rule, and as tuning chose. */
uint32_t tile_lanes(const lowering *l, uint32_t n);
uint32_t tile_lanes_chosen(lowering *l, uint32_t n);

/* The kernel's builder, k->b. */
ir_builder *tile_begin(tile_kernel *k, lowering *l, const char *name, uint32_t lanes);
/* No lanes share work: a lane takes item tile_item, tile_item + tile_items, ... of those that
 * tile_end counts in x. Where the device makes vectors of a workgroup's lanes, several items stand
 * side by side: there may be more lanes than items. */
ir_builder *tile_begin_items(tile_kernel *k, lowering *l, const char *name);
ir_id tile_item(tile_kernel *k);
ir_id tile_items(tile_kernel *k);
/* Of a buffer with such elements; blocks are read as words. */
ir_type tile_element(base_type type);
/* In which sums of such are made. */
ir_type tile_sum_type(ir_type element);
/* Names are kept, not copied. */
/* elements of the tensor's type (quantised: words) */
ir_memory tile_read(tile_kernel *k, const char *name, graph_value v);
ir_memory tile_write(tile_kernel *k, const char *name, graph_value v);
ir_memory tile_bind(tile_kernel *k, const char *name, graph_value v, ir_type type,
                    ir_access access);
ir_memory tile_shard(tile_kernel *k, const char *name, graph_value v, uint32_t shard, ir_type type);
/* The dispatch reads these weights once: caches may give them up before what is read again. */
void tile_reads_once(tile_kernel *k, ir_memory weights);
/* Several stored weights that fit one binding (lower_weights_fit); word[i]: where weight i
 * begins, in 4 bytes. */
ir_memory tile_weights(tile_kernel *k, const char *name, const graph_value *weights, uint32_t n,
                       ir_type type, uint32_t *word);
/* The same, of states too (lower_states_fit). */
ir_memory tile_stored(tile_kernel *k, const char *name, const graph_value *stored, uint32_t n,
                      ir_type type, ir_access access, uint32_t *word);
ir_memory tile_scratch(tile_kernel *k, const char *name, uint32_t key, uint64_t bytes, ir_type type,
                       ir_access access);
/* Where times hang on numbers: what a search writes to the buffer bound last. Others are zeros
 * there. */
void tile_expect(tile_kernel *k, uint32_t first, uint32_t step);
/* n numbers (1, 2 or a multiple of 4) from `at` on, in the widest loads. */
void tile_load_some(ir_builder *b, ir_memory from, ir_id at, uint32_t n, ir_id *out);
ir_id tile_u32(tile_kernel *k, const char *name, uint32_t value);
ir_id tile_f32(tile_kernel *k, const char *name, float value);
/* a constant where there is no extent */
ir_id tile_count(tile_kernel *k, const char *name, lower_count count);
/* One dispatch; groups as of lower_groups. The kernel is given back whatever happens. */
beryl_status tile_end(tile_kernel *k, lower_count count, uint32_t per);
beryl_status tile_end_3d(tile_kernel *k, lower_count x, uint32_t per_x, lower_count y,
                         uint32_t per_y, lower_count z);

/* The same for a kernel with marks (ir/pass/pass.h), whose schedule says how many groups there
 * are. counts[dim]: turns of the loops with that dimension, for those that groups share;
 * extents[dim]: how long they are expected to be. */
beryl_status tile_end_marked(tile_kernel *k, const lower_count counts[IR_DIM_MAX],
                             const uint64_t extents[IR_DIM_MAX]);
/* Where tuning found a schedule, *schedule becomes that. */
void tile_recall(const tile_kernel *k, const ir_kernel *plain, const uint64_t extents[IR_DIM_MAX],
                 ir_schedule *schedule);
/* Where the lowering shall search and this kernel's turn has come: times candidates, the best
 * into the cache. */
beryl_status tile_search(tile_kernel *k, const ir_kernel *plain,
                         const lower_count counts[IR_DIM_MAX], const uint64_t extents[IR_DIM_MAX],
                         const ir_schedule *by_rule);

/* ---- numbers that tuning may choose (tile/search.c) -------------------------------------- */

/* While a lowering builds the kernels of a node it asks for its numbers, each time in the same
 * order: the rule's where nothing was tuned, else what was found; in a search it is run again and
 * again with other numbers, without making steps. */

/* One of `rule` times and over 2 and 4, whole and within least .. most. Every one of them has to
 * work. */
uint32_t tile_choose(lowering *l, const char *name, uint32_t rule, uint32_t least, uint32_t most);
/* The same of values [n], among them the rule's; of those beyond the first 7 it alone. */
uint32_t tile_choose_of(lowering *l, const char *name, uint32_t rule, const uint32_t *values,
                        uint32_t n);

typedef struct tile_made { /* a kernel of a trial */
    tile_kernel k;
    const ir_kernel *kernel; /* in k's arena */
    lower_count counts[3];
    uint32_t per[3];
} tile_made;

typedef struct lower_choices {
    struct {
        const char *name;
        uint32_t rule, n, values[IR_KNOB_VALUES_MAX];
    } asked[IR_CHOICES_MAX];
    uint32_t n, n_given, given[IR_CHOICES_MAX]; /* given: 0 of them: the rule's */
    bool refused;                               /* one that was given may not be */
    uint64_t *draws;                            /* tests: numbers are drawn; NULL: they are not */
    /* no steps: kernels are put here, but those with marks, which are searched by themselves */
    bool trial;
    base_vec(tile_made) made;
} lower_choices;

/* The node's numbers, by trials: what the cache holds, or after a search if that is asked for
 * and it is the node's turn. None where there is no cache, or the lowering asks for none. */
beryl_status tile_choices_find(lowering *l, const graph_node *node, lower_fn *lower,
                               lower_choices *out);

/* ---- instructions that many kernels need ----------------------------------------------------- */

/* the number of the workgroup, where the grid was wrapped into y */
ir_id tile_group(ir_builder *b);
ir_id tile_lane(tile_kernel *k); /* group * lanes + local */
/* x + y, x * y with a constant of x's type. */
ir_id tile_add(ir_builder *b, ir_id x, uint32_t y);
ir_id tile_mul(ir_builder *b, ir_id x, uint32_t y);
ir_id tile_div(ir_builder *b, ir_id x, uint32_t y);
ir_id tile_rem(ir_builder *b, ir_id x, uint32_t y);
ir_id tile_and(ir_builder *b, ir_id x, uint32_t y); /* any width */
ir_id tile_shr(ir_builder *b, ir_id x, uint32_t y); /* any width */
ir_id tile_shl(ir_builder *b, ir_id x, uint32_t y); /* any width */
/* The vector of `width` with lane i: first + i * step. */
ir_id tile_ramp(ir_builder *b, uint32_t width, uint32_t first, uint32_t step);
/* x [n]: the vectors' first numbers, then their second ones and so on, as n vectors again. */
enum { TILE_TURN_MAX = 16 };
void tile_turn(ir_builder *b, ir_id *x, uint32_t n);
/* Elements [index, index + TILE_RUN) as f32, in runs[TILE_RUN / wide]. aligned: index is
 * a multiple of the vector. */
void tile_load_run(tile_kernel *k, ir_memory from, ir_id index, bool aligned, ir_id *runs);
/* One of those vectors, of `wide` elements. */
ir_id tile_load_vector(tile_kernel *k, ir_memory from, ir_id index, bool aligned);
ir_id tile_sum_vector(ir_builder *b, ir_id x); /* of its lanes */
ir_id tile_max_vector(ir_builder *b, ir_id x);
ir_id tile_min_vector(ir_builder *b, ir_id x);
/* x of all lanes of the workgroup joined by op (add, min, max), in every lane; `at`: workgroup
 * array of `lanes` elements, used where there is more than one lane. Ends with a barrier, so
 * that `at` may be used again. */
ir_id tile_reduce(tile_kernel *k, ir_op op, ir_id x, ir_memory at);
ir_id tile_gelu(ir_builder *b, ir_id x); /* tanh form, any width */
/* x - y, each byte of four words by itself. */
ir_id tile_bytes_less(ir_builder *b, ir_id x, ir_id y);
/* f32 as f16, any width: what is beyond its numbers becomes the largest of them. */
ir_id tile_half(ir_builder *b, ir_id x);
/* What f32 x was before it became one, if it was of this type; else IR_NO_ID. */
ir_id tile_before(ir_builder *b, ir_type type, ir_id x);

/* every row of dense t begins at a multiple of the vector */
bool tile_aligned(const tile_kernel *k, const graph_tensor *t);

/* ---- the largest of a row (tile/rows.c) -------------------------------------------------- */

/* A u32 that rises with f32 x, both zeros alike, above 0; of NaN: `nan`. Any width. */
enum { TILE_LOWEST = 0x00800000 /* of minus infinity */ };
ir_id tile_order(ir_builder *b, ir_id x, uint32_t nan);
typedef struct tile_parts {
    uint32_t size, n;
} tile_parts; /* of a row */
tile_parts tile_parts_of(uint32_t d, uint32_t most, uint32_t least);
/* A step that leaves (order, index) of the largest element of each part of input 0's rows in
 * scratch `key`, u32 [n, parts, 2]. */
beryl_status tile_best(lowering *l, const graph_node *node, tile_parts p, uint32_t key,
                       uint32_t nan);

/* ---- regions of one shape: pointwise operations and rows (tile/chain.c) ------------------ */

/* Can it run as one kernel, with no work done twice? Pure. */
bool tile_region_fits(const graph *g, const graph_store *store, const graph_region *r);
/* node: what the plan has, which may be more. */
beryl_status tile_region(lowering *l, const graph_region *r, const char *name);

/* Of each operation. */
lower_fn *tile_lowering(base_op op);
/* Operations of trees (tile/tree.h) on their own, and the others. */
lower_fn tile_operation, tile_chain, tile_update, tile_largest, tile_sample, tile_gather_rows,
    tile_set_rows, tile_assign, tile_linear, tile_linear_id, tile_contract, tile_rope,
    tile_kv_write, tile_attention, tile_attention_back, tile_sort, tile_topk, tile_scan,
    tile_gather, tile_scatter, tile_one_hot, tile_nonzero, tile_fourier, tile_fused;

#endif
