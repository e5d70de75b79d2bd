/* pass.h - what is done to a kernel between its lowering and its text.
 *
 * Owns the table of passes, the schedule, the marks on loops, and the grid. Refuses nothing: where
 * a pass does not find what it looks for, or cannot show that a change is right, the kernel stays
 * as it is. The idea: A LOWERING SAYS WHAT MAY BE DONE, A SCHEDULE SAYS WHAT IS DONE. So a kernel
 * is right without any pass (and slow), and after any subset of the passes in any order.
 *
 * What a lowering writes. A serial kernel: workgroup 1 1 1, loops over the whole iteration space,
 * no group, local or subgroup ops, no barriers, no workgroup arrays. Run as one workgroup it gives
 * the result. A loop that may be spread has a mark and a dimension (0 .. IR_DIM_MAX - 1): loops
 * over the same thing share a dimension (softmax: rows `parallel 0`; in it columns `reduce 1` for
 * the maximum, `reduce 1` for the sum, `parallel 1` for the results):
 *
 *   parallel  Iterations in any order, or at once: what one writes to a buffer no other one touches
 *             (atomics aside), and register arrays that are written inside are the iteration's own:
 *             it writes an element before it reads it, and nothing reads it after the loop.
 *   reduce    The loop's one effect are accumulators, elements of register arrays with constant
 *             indices: reg[c] = reg[c] op x, op one of add mul min max and or xor, or fma(a, b,
 *             reg[c]); the loop reads them nowhere else. The order may change, so the rounding, and
 *             the sign of a zero. Register arrays of the iteration itself are fine, as above. No
 *             stores to buffers, no atomics.
 *   serial    (no mark) As written. A scan, a search, top-k.
 *
 * Marked loops have a constant step, best 0 .. n step 1; to and from may be any values. Let
 * addresses be sums of products of loop indices (i * n + j), in elements; what is constant when the
 * kernel is made (extents of the model) should be a constant, since multiples of tile sizes need no
 * guards. Loads may be repeated; a loop's address computations should stand inside it, the passes
 * move them out. Two buffers are never the same memory. A kernel with index ops, barriers or
 * workgroup arrays of its own (scheduled by hand) is welcome too: leave its loops without marks,
 * and the general passes alone touch it.
 *
 *     ir_id m = ir_loop_marked(b, zero, ir_param(b, IR_U32, "m"), one, IR_PARALLEL, 0);
 *     ir_id n = ir_loop_marked(b, zero, ir_u32(b, 4096), one, IR_PARALLEL, 1);
 *     ir_set(b, sum, ir_f32(b, 0));
 *     ir_id k = ir_loop_marked(b, zero, ir_u32(b, 1024), one, IR_REDUCE, 2);
 *     ir_set(b, sum, ir_fma(b, load x[m * 1024 + k], load w[n * 1024 + k], ir_get(b, sum)));
 *     ir_end(b);
 *     ir_store(b, y, m * 4096 + n, ir_get(b, sum));
 *     ir_end(b), ir_end(b);
 *
 * What a schedule does with it, by dimension. Zero everywhere leaves the kernel as it is.
 *   {.group = 1 + axis} the workgroups share the loop: each takes tiles of lanes * block (without
 *                                   .lane one after the other, so that what they load stays near)
 *   {.lane = 1 + axis, .lanes = 16} the lanes share it. A reduce loop: partial results are joined,
 *                                   by subgroup ops (schedule.subgroup) or a tree in workgroup
 *                                   memory
 *   {.block = 8}                    parallel: a lane takes 8 neighbouring iterations at once, in
 *                                   registers, every inner loop run once for all of them
 *   {.unroll = 4}                   serial or reduce: 4 copies of the body a turn
 *   {.split = true} where the count is no multiple of block or unroll: the rest gets a loop of its
 *                                   own (else guards and clamped indices)
 *   {.stage = 16} reduce: what several lanes read is brought to workgroup memory, 16 iterations at
 *                                   a time; computed there once (a dequantised weight)
 * Row softmax: {0: group x}, {1: lane x, lanes 256, block 4, unroll 4}. Matvec: {rows 0: group x,
 * lane y, lanes 4}, {columns 1: lane x, lanes 32, unroll 4}. Matmul: {m 0: group y, lane y, lanes
 * 16, block 8}, {n 1: group x, lane x, lanes 16, block 8}, {k 2: stage 16, unroll 4}. Pointwise:
 * {0: group x, lane x, lanes 256, block 4, split}. With schedule.fragments and factors of f16 or
 * bf16 a product's lanes count subgroups and its block fragments (of 16 m by 8 n; k by 16): {m 0:
 * lanes 2, block 4}, {n 1: lanes 2, block 8}, {k 2: stage 32, unroll 2},
 * the latter for the tiles that asynchronous copies keep under way; with schedule.direct too {m 0:
 * lanes 8, block 1}, {n 1: block 32}, {k 2: stage 64, unroll 4}, and the same tile in fragments of
 * each subgroup where a factor cannot be copied.
 *
 * The grid. A loop that groups share steps by the number of groups, so ANY number of groups on that
 * axis is right; ir_grid_of gives the one that is best, as a small program over the parameters. On
 * an axis that no loop uses it is 1, and must be. ir_schedule_default is the rule of thumb for a
 * kernel with marks; tune.h searches better ones.
 */
#ifndef IR_PASS_PASS_H
#define IR_PASS_PASS_H

#include "device/device.h" /* device_caps alone */
#include "ir/ir.h"

/* ---- marks: in the upper bits of a loop's imm (the lower 16: the hint how often to unroll) ----
 */

#define IR_MARK_LIST(X)                                                                        \
    X(SERIAL, "serial")     /* no mark */                                                      \
    X(PARALLEL, "parallel") /* by lowerings */                                                 \
    X(REDUCE, "reduce")     /* by lowerings */                                                 \
    X(BY_GROUP, "group")    /* by passes: from group(axis) * tile, step groups(axis) * tile */ \
    X(BY_LANE, "lane")      /* by passes: from local(axis) * n, step workgroup[axis] * n */    \
    X(BLOCK, "block")       /* by passes: a constant count, iterations side by side in registers */

typedef enum ir_mark_kind {
#define X(NAME, text) IR_##NAME,
    IR_MARK_LIST(X)
#undef X
        IR_MARK_COUNT
} ir_mark_kind;

enum { IR_DIM_MAX = 16 };

typedef struct ir_mark {
    ir_mark_kind kind;
    uint32_t axis, dim; /* axis 0 1 2; dim below IR_DIM_MAX */
    bool full;          /* every tile is whole */
    bool exact;         /* to - from is a multiple of the step (of the lanes' share of it) */
    uint32_t tile;      /* to - from is at most this; 0: not known. By group: its share */
} ir_mark;

ir_mark ir_mark_of(const ir_instruction *loop);
uint64_t ir_mark_bits(ir_mark mark, uint32_t unroll); /* a loop's imm */
ir_id ir_loop_marked(ir_builder *b, ir_id from, ir_id to, ir_id step, ir_mark_kind kind,
                     uint32_t dim);

/* ---- schedules ------------------------------------------------------------------------------- */

typedef struct ir_schedule_dim {
    uint8_t group; /* 1 + axis; 0: the groups do not share it */
    uint8_t lane;  /* 1 + axis; 0: the lanes do not */
    bool split;
    bool ahead; /* stage: the next tile is loaded to registers while this one is used */
    /* reduce or parallel: this many turns are a vector (4, 8, 16), where one lane is all. 0: none
     */
    uint8_t wide;
    uint16_t lanes, block, unroll, stage; /* 0 as 1 (stage: none) */
} ir_schedule_dim;

typedef struct ir_schedule {
    ir_schedule_dim dims[IR_DIM_MAX];
    uint32_t subgroup; /* lanes of a subgroup, where the device has them and they may be used */
    uint32_t vector;   /* elements of the widest load and store; 0 1: no vectors are made */
    uint32_t workgroup_bytes; /* that staging and trees may take; 0: 16,384 */
    bool fragments;           /* matrix fragments where the shapes fit */
    bool direct;              /* and fragment_multiply where factors can be copied */
    bool tells;               /* lanes tell each other what all of them load */
    /* Direct products: sums are of as many equal rounds, whose terms are larger in the last one
     * than before. Its sums leave the units every few turns, since those cut off. 0: as one */
    uint32_t rounds;
    /* What the caller promises of parameters: their values are multiples of this; 0 as 1. */
    uint32_t param_multiple[IR_PARAM_MAX];
} ir_schedule;

/* Makes a schedule for products of 16 bits one of direct products in so many rounds. */
void ir_schedule_rounds(ir_schedule *schedule, uint32_t rounds);
/* Turns of a dimension that a workgroup takes at a time. Fragments: rows are what axis 1 shares. */
uint32_t ir_schedule_tile(const ir_schedule *schedule, uint32_t dim);

/* ---- passes ---------------------------------------------------------------------------------- */

/* What is the same for every pass. The result lies in the arena, or is `k` itself where nothing
 * changed. NO_MEMORY is the one fault. k is verified; so is the result. */
#define IR_PASS_LIST(X)                                                                           \
    X(FOLD, fold, "constants computed, exact algebra, dead conditions")                           \
    X(CSE, cse, "equal values computed once, stored registers forwarded")                         \
    X(LICM, licm, "what a loop does not change is moved before it")                               \
    X(STRENGTH, strength, "division and modulo of indices as shifts, masks or not at all")        \
    X(DCE, dce, "what nobody uses is removed")                                                    \
    X(UNROLL, unroll, "copies of a loop's body")                                                  \
    X(SPLIT, split, "a loop cut into whole steps and a rest")                                     \
    X(MERGE, merge, "neighbouring loops over one range, and ifs on one condition, made one")      \
    X(BLOCK, block, "several iterations of a parallel loop at once, in registers")                \
    X(GROUPS, groups, "parallel loops shared by the workgroups, in tiles")                        \
    X(LANES, lanes, "parallel loops shared by the lanes of a workgroup")                          \
    X(GUARD, guard, "a lane's single iteration without its loop, stores guarded at ragged edges") \
    X(STAGE, stage, "what lanes share in a reduction, brought to workgroup memory")               \
    X(REDUCE, reduce, "reductions shared by the lanes, joined by subgroups or a tree")            \
    X(FRAGMENT, fragment, "products of matrices on matrix units")                                 \
    X(WIDE, wide, "turns of a loop as elements of a vector")                                      \
    X(VECTOR, vector, "neighbouring loads and stores as one")                                     \
    X(TELL, tell, "what all lanes load alike, by a lane each, which tells the others")

typedef enum ir_pass {
#define X(NAME, name, what) IR_PASS_##NAME,
    IR_PASS_LIST(X)
#undef X
        IR_PASS_COUNT
} ir_pass;

typedef beryl_status ir_pass_function(base_arena *arena, const ir_kernel *k,
                                      const ir_schedule *schedule, const ir_kernel **out,
                                      beryl_error *error);
#define X(NAME, name, what) ir_pass_function ir_pass_##name;
IR_PASS_LIST(X)
#undef X

typedef struct ir_pass_info {
    const char *name, *what;
    ir_pass_function *run;
} ir_pass_info;
const ir_pass_info *ir_pass_of(ir_pass pass);

/* Runs the passes one after another. `verify`: ir_verify after each (tests, debug builds); a pass
 * that breaks a rule is then named in the error. schedule NULL: all zero. */
beryl_status ir_passes_run(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule,
                           const ir_pass *passes, size_t n, bool verify, const ir_kernel **out,
                           beryl_error *error);
/* The usual order of all of them (some twice). */
const ir_pass *ir_passes_usual(size_t *n);
/* ir_passes_run with the usual order: what a lowering calls. */
beryl_status ir_optimise(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule,
                         const ir_kernel **out, beryl_error *error);

/* The rule of thumb for a kernel with marks, as its lowering wrote it. extents[dim]: how long its
 * loops are expected to be, 0: as the kernel's constants say, else long. */
void ir_schedule_default(const ir_kernel *k, const device_caps *caps,
                         const uint64_t extents[IR_DIM_MAX], ir_schedule *out);

/* Does caps.fragments list it? Passes make 16 x 8 x 16 with sums in f32; kernels by hand may
 * have any. */
bool ir_has_fragment(const device_caps *caps, ir_type factors, ir_type sums, uint32_t m, uint32_t n,
                     uint32_t k);

/* ---- the grid -------------------------------------------------------------------------------- */

/* A straight program over u32 words: step i is op(values[a], values[b]). Plain data, to be copied
 * into a plan. */
enum { IR_GRID_MAX = 40 };
typedef struct ir_grid {
    uint32_t n;
    struct {
        uint8_t op; /* ir_op: CONST PARAM ADD SUB MUL DIV MOD MIN MAX SHL SHR AND */
        uint8_t a, b;
        uint32_t value; /* of CONST; number of PARAM */
    } steps[IR_GRID_MAX];
    uint8_t axes[3]; /* the step that holds the axis' groups; 255: 1 */
} ir_grid;
/* Of a kernel after the passes (of one before: 1 1 1). Where a bound is not a value of the
 * parameters the axis gets 256 groups, which is right for any bound. */
void ir_grid_of(const ir_kernel *k, ir_grid *grid);
/* limit: caps.groups_max (0: none), for each axis. Zero groups become 1. */
void ir_grid_run(const ir_grid *grid, const uint32_t *params, uint32_t limit, uint32_t groups[3]);

#endif
