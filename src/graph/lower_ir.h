/* lower_ir.h - a step whose kernel is made here and now: instructions, bindings and parameters come from one place, so that
 * nothing is written twice. For lower_ir_*.c alone.
 *
 *     lower_ir k;
 *     lower_ir_begin(&k, l, node, "twice", LANES);
 *     ir_memory x = lower_ir_read(&k, "x", node->in[0]), y = lower_ir_write(&k, "y", node->out[0]);
 *     ir_id n = lower_ir_count(&k, "n", lower_rows(t));
 *     ... ir_*(k.b, ...)
 *     return lower_ir_end(&k, lower_rows(t), LANES, error);
 *
 * Mistakes and lack of memory stay in the builder until lower_ir_end. What differs between nodes of one shape (offsets,
 * lengths of a run) is a parameter, everything else a constant of the kernel. */
#ifndef GRAPH_LOWER_IR_H
#define GRAPH_LOWER_IR_H

#include "graph/lower.h"
#include "ir/tune.h"

enum {
    LOWER_IR_RUN = 16,       /* elements that readers and products take at once */
    LOWER_IR_WEIGHTS_MAX = 5 /* of one binding */
};

typedef struct lower_ir_place { /* what a buffer is bound to */
    enum { LOWER_IR_VALUE, LOWER_IR_SHARD, LOWER_IR_SCRATCH, LOWER_IR_WEIGHTS } kind;
    graph_value value;
    graph_value weights[LOWER_IR_WEIGHTS_MAX];
    uint32_t n_weight;
    uint32_t shard, key;
    uint64_t bytes;
    uint32_t first, step; /* what a search writes there: first, first + step, ... as words */
} lower_ir_place;

typedef struct lower_ir_argument {
    const char *name;
    bool is_float;
    lower_count count;
    float number;
} lower_ir_argument;

typedef struct lower_ir {
    lowering *l;
    const graph_node *node;
    const char *name;
    ir_builder *b;
    base_arena arena; /* of the kernel */
    uint32_t lanes;   /* of a workgroup */
    uint32_t wide;    /* vector lanes that pay: 4 on GPUs, more where vectors are the only lanes */
    const char *names[IR_BUFFER_MAX];
    lower_ir_place places[IR_BUFFER_MAX];
    lower_ir_argument arguments[IR_PARAM_MAX];
    uint32_t n_place, n_argument;
} lower_ir;

/* One thread runs all lanes of a workgroup (processors, WebGPU in software): a lane a row, work in vectors. */
bool lower_ir_serial(const lowering *l);
/* Lanes that share a row of `n` elements: by the rule, and as tuning chose. */
uint32_t lower_ir_lanes(const lowering *l, uint32_t n);
uint32_t lower_ir_lanes_chosen(lowering *l, uint32_t n);

void lower_ir_begin(lower_ir *k, lowering *l, const graph_node *node, const char *name, uint32_t lanes);
/* Names are kept, not copied. */
ir_memory lower_ir_read(lower_ir *k, const char *name, graph_value v);  /* elements of the tensor's type (quantised: words) */
ir_memory lower_ir_write(lower_ir *k, const char *name, graph_value v);
ir_memory lower_ir_bind(lower_ir *k, const char *name, graph_value v, ir_type type, ir_access access);
ir_memory lower_ir_shard(lower_ir *k, const char *name, graph_value v, uint32_t shard, ir_type type);
/* Several stored weights that fit one binding (lower_weights_fit); word[i]: where weight i begins, in 4 bytes. */
ir_memory lower_ir_weights(lower_ir *k, const char *name, const graph_value *weights, uint32_t n, ir_type type, uint32_t *word);
ir_memory lower_ir_scratch(lower_ir *k, const char *name, uint32_t key, uint64_t bytes, ir_type type, ir_access access);
/* Where times hang on numbers: what a search writes to the buffer bound last. Others are zeros there. */
void lower_ir_expect(lower_ir *k, uint32_t first, uint32_t step);
ir_id lower_ir_u32(lower_ir *k, const char *name, uint32_t value);
ir_id lower_ir_f32(lower_ir *k, const char *name, float value);
ir_id lower_ir_count(lower_ir *k, const char *name, lower_count count); /* a constant where there is no extent */
/* One dispatch; groups as of lower_groups. The kernel is given back whatever happens. */
beryl_status lower_ir_end(lower_ir *k, lower_count count, uint32_t per, beryl_error *error);
beryl_status lower_ir_end_3d(lower_ir *k, lower_count x, uint32_t per_x, lower_count y, uint32_t per_y, lower_count z, uint32_t per_z,
                             beryl_error *error);

/* The same for a kernel with marks (ir/pass/pass.h), whose schedule says how many groups there are. counts[dim]: turns of the
 * loops with that dimension, for those that groups share; extents[dim]: how long they are expected to be. */
beryl_status lower_ir_end_marked(lower_ir *k, const lower_count counts[IR_DIM_MAX], const uint64_t extents[IR_DIM_MAX], beryl_error *error);
/* The schedule that such a kernel gets on this device. With what the plan promises of its parameters. */
void lower_ir_schedule(const lower_ir *k, const ir_kernel *plain, const uint64_t extents[IR_DIM_MAX], ir_schedule *schedule);
/* Where tuning found a schedule, *schedule becomes that. */
void lower_ir_recall(const lower_ir *k, const ir_kernel *plain, const uint64_t extents[IR_DIM_MAX], ir_schedule *schedule);
/* Where the lowering shall search and this kernel's turn has come: times candidates, the best into the cache. */
beryl_status lower_ir_search(lower_ir *k, const ir_kernel *plain, const lower_count counts[IR_DIM_MAX], const uint64_t extents[IR_DIM_MAX], const ir_schedule *thumb,
                             beryl_error *error);

/* ---- numbers that tuning may choose (lower_ir_search.c) ----
 *
 * While a lowering builds the kernels of a node it asks for its numbers, each time in the same order: the rule's where nothing
 * was tuned, else what was found; in a search it is run again and again with other numbers, without making steps. */

/* One of `rule` times and over 2 and 4, whole and within least .. most. Every one of them has to work. */
uint32_t lower_ir_choose(lowering *l, const char *name, uint32_t rule, uint32_t least, uint32_t most);
/* The same of values [n], among them the rule's; of those beyond the first 7 it alone. */
uint32_t lower_ir_choose_of(lowering *l, const char *name, uint32_t rule, const uint32_t *values, uint32_t n);

typedef struct lower_ir_made { /* a kernel of a trial */
    lower_ir k;
    const ir_kernel *kernel; /* in k's arena */
    lower_count counts[3];
    uint32_t per[3];
} lower_ir_made;

typedef struct lower_choices {
    struct { const char *name; uint32_t rule, n, values[IR_KNOB_VALUES_MAX]; } asked[IR_CHOICES_MAX];
    uint32_t n, n_given, given[IR_CHOICES_MAX]; /* given: 0 of them: the rule's */
    bool refused;    /* one that was given may not be */
    uint64_t *draws; /* tests: numbers are drawn; NULL: they are not */
    bool trial;      /* no steps: kernels are put here, but those with marks, which are searched by themselves */
    base_vec(lower_ir_made) made;
} lower_choices;

/* The node's numbers, by trials: what the cache holds, or after a search if that is asked for and it is the node's turn. None
 * where there is no cache, or the lowering asks for none. */
beryl_status lower_ir_choices_find(lowering *l, const graph_node *node, lower_fn *lower, lower_choices *out, beryl_error *error);

/* ---- instructions that many kernels need ---- */

ir_id lower_ir_group(lower_ir *k); /* the number of the workgroup, where the grid was wrapped into y */
ir_id lower_ir_lane(lower_ir *k);  /* group * lanes + local */
/* x + y, x * y with a constant of x's type. */
ir_id lower_ir_plus(lower_ir *k, ir_id x, uint32_t y);
ir_id lower_ir_times(lower_ir *k, ir_id x, uint32_t y);
ir_id lower_ir_over(lower_ir *k, ir_id x, uint32_t y);
ir_id lower_ir_rest(lower_ir *k, ir_id x, uint32_t y);
ir_id lower_ir_and(lower_ir *k, ir_id x, uint32_t y); /* any width */
ir_id lower_ir_shr(lower_ir *k, ir_id x, uint32_t y); /* any width */
ir_id lower_ir_shl(lower_ir *k, ir_id x, uint32_t y); /* any width */
/* The vector of `width` with lane i: first + i * step. */
ir_id lower_ir_ramp(lower_ir *k, uint32_t width, uint32_t first, uint32_t step);
/* Elements [index, index + LOWER_IR_RUN) as f32, in runs[LOWER_IR_RUN / wide]. aligned: index is a multiple of the vector. */
void lower_ir_load_run(lower_ir *k, ir_memory from, ir_id index, bool aligned, ir_id *runs);
ir_id lower_ir_sum_vector(lower_ir *k, ir_id x); /* of its lanes */
ir_id lower_ir_max_vector(lower_ir *k, ir_id x);
ir_id lower_ir_min_vector(lower_ir *k, ir_id x);
/* x of all lanes of the workgroup joined by op (add, min, max), in every lane; `at`: workgroup array of `lanes` elements, used
 * where there is more than one lane. Ends with a barrier, so that `at` may be used again. */
ir_id lower_ir_reduce(lower_ir *k, ir_op op, ir_id x, ir_memory at);
ir_id lower_ir_gelu(lower_ir *k, ir_id x); /* tanh form, any width */

bool lower_ir_aligned(const lower_ir *k, const graph_tensor *t); /* every row of dense t begins at a multiple of the vector */

/* ---- the largest of a row (lower_ir_rows.c) ---- */

/* A u32 that rises with f32 x, both zeros alike, above 0; of NaN: `nan`. Any width. */
enum { LOWER_IR_LOWEST = 0x00800000 /* of minus infinity */ };
ir_id lower_ir_order(lower_ir *k, ir_id x, uint32_t nan);
typedef struct lower_ir_parts { uint32_t size, n; } lower_ir_parts; /* of a row */
lower_ir_parts lower_ir_parts_of(uint32_t d, uint32_t most, uint32_t least);
/* A step that leaves (order, index) of the largest element of each part of input 0's rows in scratch `key`, u32 [n, parts, 2]. */
beryl_status lower_ir_best(lowering *l, const graph_node *node, lower_ir_parts p, uint32_t key, uint32_t nan, beryl_error *error);

/* Can these operations, all of one shape, run as one kernel, with no work done twice? Pure. (lower_ir_chain.c) */
bool lower_ir_chain_fits(const graph *g, const graph_store *store, const graph_node *const *nodes, uint32_t n, const graph_value *outs, uint32_t n_out);

/* The lowering of each operation, as lower_fn. */
extern lower_fn *const lower_ir_table[OP_COUNT];
lower_fn lower_ir_pointwise, lower_ir_chain, lower_ir_largest, lower_ir_sample,
    lower_ir_gather_rows, lower_ir_set_rows, lower_ir_matmul, lower_ir_matmul_id, lower_ir_rope, lower_ir_kv_write, lower_ir_attention,
    lower_ir_fused;

#endif
