/* pass.c - the table of passes, their usual order, marks, and the grid of a kernel. */
#include "ir/pass/edit.h"

#include <string.h>

#include "base/error.h"

const ir_pass_info *ir_pass_of(ir_pass pass) {
    static const ir_pass_info passes[IR_PASS_COUNT] = {
#define X(NAME, name, what) {#name, what, ir_pass_##name},
        IR_PASS_LIST(X)
#undef X
    };
    return &passes[pass];
}

/* ---- marks: imm bits 16-18 kind, 19-20 axis, 21-24 dim, 25 full, 26 exact, 32-63 tile -------- */

ir_mark ir_mark_of(const ir_instruction *loop) {
    uint32_t kind = loop->imm >> 16 & 7;
    ir_mark mark = {
        .kind = kind < IR_MARK_COUNT ? (ir_mark_kind)kind : IR_SERIAL,
        .axis = loop->imm >> 19 & 3,
        .dim = loop->imm >> 21 & 15,
        .full = loop->imm >> 25 & 1,
        .exact = loop->imm >> 26 & 1,
        .tile = (uint32_t)(loop->imm >> 32),
    };
    if (mark.axis == 3) mark.kind = IR_SERIAL, mark.axis = 0; /* of a kernel read from text */
    return mark;
}

uint64_t ir_mark_bits(ir_mark mark, uint32_t unroll) {
    return (unroll & 0xffff) | (uint64_t)mark.kind << 16 | (uint64_t)(mark.axis & 3) << 19 |
           (uint64_t)(mark.dim & 15) << 21 | (uint64_t)mark.full << 25 |
           (uint64_t)mark.exact << 26 | (uint64_t)mark.tile << 32;
}

ir_id ir_loop_marked(ir_builder *b, ir_id from, ir_id to, ir_id step, ir_mark_kind kind,
                     uint32_t dim) {
    ir_mark mark = {.kind = kind, .dim = dim};
    return ir_emit(b, (ir_instruction){.op = IR_LOOP,
                                       .type = IR_U32,
                                       .width = 1,
                                       .n_in = 3,
                                       .in = {from, to, step, IR_NO_ID},
                                       .imm = ir_mark_bits(mark, 0)});
}

/* ---- running --------------------------------------------------------------------------------- */

beryl_status ir_passes_run(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule,
                           const ir_pass *passes, size_t n, bool verify, const ir_kernel **out,
                           beryl_error *error) {
    const ir_schedule plain = {0};
    *out = k;
    for (size_t i = 0; i < n; i++) {
        const ir_kernel *before = *out;
        beryl_status status =
            ir_pass_of(passes[i])->run(arena, before, schedule ? schedule : &plain, out, error);
        if (status) return status;
        if (!verify || *out == before) continue;
        beryl_error broken = {0};
        status = ir_verify(arena->heap, *out, &broken);
        if (status)
            return base_fail_at(error, status, broken.at, "after the pass %s: %s",
                                ir_pass_of(passes[i])->name, broken.message);
    }
    return BERYL_OK;
}

const ir_pass *ir_passes_usual(size_t *n) {
    static const ir_pass usual[] = {
        IR_PASS_FOLD,  IR_PASS_CSE,    IR_PASS_MERGE,    IR_PASS_FRAGMENT, IR_PASS_WIDE,
        IR_PASS_SPLIT, IR_PASS_BLOCK,  IR_PASS_GROUPS,   IR_PASS_LANES,    IR_PASS_GUARD,
        IR_PASS_FOLD,  IR_PASS_STAGE,  IR_PASS_FOLD,     IR_PASS_UNROLL,   IR_PASS_FOLD,
        IR_PASS_CSE,   IR_PASS_REDUCE, IR_PASS_STRENGTH, IR_PASS_FOLD,     IR_PASS_MERGE,
        IR_PASS_CSE,   IR_PASS_DCE,    IR_PASS_MERGE,    IR_PASS_VECTOR,   IR_PASS_TELL,
        IR_PASS_LICM,  IR_PASS_FOLD,   IR_PASS_CSE,      IR_PASS_DCE,
    };
    *n = sizeof usual / sizeof *usual;
    return usual;
}

beryl_status ir_optimise(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule,
                         const ir_kernel **out, beryl_error *error) {
    size_t n;
    const ir_pass *usual = ir_passes_usual(&n);
#ifdef NDEBUG
    return ir_passes_run(arena, k, schedule, usual, n, false, out, error);
#else
    return ir_passes_run(arena, k, schedule, usual, n, true, out, error);
#endif
}

/* ---- the grid -------------------------------------------------------------------------------- */

enum { GROUPS_UNKNOWN = 256, NO_STEP = 255 };

static uint8_t add_step(ir_grid *g, ir_op op, uint8_t a, uint8_t b, uint32_t value) {
    if (a == NO_STEP || b == NO_STEP || g->n == IR_GRID_MAX) return NO_STEP;
    g->steps[g->n].op = (uint8_t)op;
    g->steps[g->n].a = a;
    g->steps[g->n].b = b;
    g->steps[g->n].value = value;
    return (uint8_t)g->n++;
}

/* The value in workgroup 0 of a grid of 1, if only parameters decide it. */
static uint8_t step_of(ir_grid *g, const ir_kernel *k, ir_id id, uint32_t depth) {
    const ir_instruction *i = &k->code[id];
    if (!depth || i->type != IR_U32 || i->width != 1) return NO_STEP;
    if (i->op == IR_CONST) return add_step(g, IR_CONST, 0, 0, (uint32_t)i->imm);
    if (i->op == IR_PARAM) return add_step(g, IR_PARAM, 0, 0, i->array);
    if (i->op == IR_GROUP || i->op == IR_GROUPS)
        return add_step(g, IR_CONST, 0, 0, i->op == IR_GROUPS);
    if (i->op == IR_FMA) {
        uint8_t product = add_step(g, IR_MUL, step_of(g, k, i->in[0], depth - 1),
                                   step_of(g, k, i->in[1], depth - 1), 0);
        return product == NO_STEP
                   ? NO_STEP
                   : add_step(g, IR_ADD, product, step_of(g, k, i->in[2], depth - 1), 0);
    }
    bool known = i->op == IR_ADD || i->op == IR_SUB || i->op == IR_MUL || i->op == IR_DIV ||
                 i->op == IR_MOD || i->op == IR_MIN || i->op == IR_MAX || i->op == IR_SHL ||
                 i->op == IR_SHR || i->op == IR_AND;
    if (!known) return NO_STEP;
    uint8_t a = step_of(g, k, i->in[0], depth - 1);
    uint8_t b = a == NO_STEP && i->op != IR_MIN ? NO_STEP : step_of(g, k, i->in[1], depth - 1);
    if (i->op == IR_MIN && (a == NO_STEP || b == NO_STEP))
        return a == NO_STEP ? b : a; /* at most */
    return add_step(g, (ir_op)i->op, a, b, 0);
}

/* How many tiles a loop over groups has. */
static uint8_t tiles_of(ir_grid *g, const ir_kernel *k, const ir_instruction *loop, uint32_t tile) {
    uint8_t from = step_of(g, k, loop->in[0], 10);
    uint8_t to = from == NO_STEP ? NO_STEP : step_of(g, k, loop->in[1], 10);
    if (to == NO_STEP || !tile) return NO_STEP;
    uint8_t count =
        add_step(g, IR_SUB, add_step(g, IR_MAX, to, from, 0), from, 0); /* 0: an empty loop */
    uint8_t less =
        add_step(g, IR_SUB, add_step(g, IR_MAX, count, add_step(g, IR_CONST, 0, 0, 1), 0),
                 add_step(g, IR_CONST, 0, 0, 1), 0);
    uint8_t whole = add_step(g, IR_DIV, less, add_step(g, IR_CONST, 0, 0, tile), 0);
    return add_step(g, IR_ADD, whole, add_step(g, IR_CONST, 0, 0, 1), 0);
}

void ir_grid_of(const ir_kernel *k, ir_grid *grid) {
    memset(grid, 0, sizeof *grid);
    for (uint32_t axis = 0; axis < 3; axis++) {
        grid->axes[axis] = NO_STEP;
        bool used = false;
        for (uint32_t i = 0; i < k->n_code; i++) {
            const ir_instruction *at = &k->code[i];
            if (at->op == IR_GROUP && at->imm == axis) used = true;
            if (at->op != IR_LOOP || ir_mark_of(at).kind != IR_BY_GROUP ||
                ir_mark_of(at).axis != axis)
                continue;
            uint32_t n = grid->n;
            uint8_t tiles = tiles_of(grid, k, at, ir_mark_of(at).tile);
            uint8_t best = tiles == NO_STEP || grid->axes[axis] == NO_STEP
                               ? tiles
                               : add_step(grid, IR_MAX, tiles, grid->axes[axis], 0);
            if (best == NO_STEP) grid->n = n; /* half a program is none */
            else grid->axes[axis] = best;
        }
        if (used && grid->axes[axis] == NO_STEP)
            grid->axes[axis] = add_step(grid, IR_CONST, 0, 0, GROUPS_UNKNOWN);
    }
}

void ir_grid_run(const ir_grid *grid, const uint32_t *params, uint32_t limit, uint32_t groups[3]) {
    uint32_t values[IR_GRID_MAX] = {0};
    for (uint32_t i = 0; i < grid->n; i++) {
        ir_op op = (ir_op)grid->steps[i].op;
        uint64_t in[4] = {values[grid->steps[i].a], values[grid->steps[i].b], 0, 0};
        if (op == IR_CONST) values[i] = grid->steps[i].value;
        else if (op == IR_PARAM) values[i] = params[grid->steps[i].value];
        else values[i] = (uint32_t)ir_evaluate(op, IR_U32, IR_U32, in);
    }
    for (uint32_t axis = 0; axis < 3; axis++) {
        uint32_t n = grid->axes[axis] == NO_STEP ? 1 : values[grid->axes[axis]];
        groups[axis] = !n ? 1 : limit && n > limit ? limit : n;
    }
}
