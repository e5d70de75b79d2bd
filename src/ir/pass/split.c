/* split.c - a loop cut into whole steps and a rest.
 *
 * Owns marked loops whose dimension asks for it and whose count is not known to be a multiple of
 * what the other passes will take at a time (block or unroll, powers of two alone): the first loop
 * then needs no guards and its addresses stay aligned. Refuses loops of a step other than 1. */
#include "ir/pass/edit.h"

static uint32_t step_of(const pass_edit *e, const ir_instruction *at) {
    ir_mark mark = ir_mark_of(at);
    const ir_schedule_dim *dim = &e->schedule->dims[mark.dim];
    uint32_t step, n = mark.kind == IR_PARALLEL ? dim->block
                       : mark.kind == IR_REDUCE ? dim->unroll
                                                : 0;
    if (!dim->split || n < 2 || n & (n - 1) || (mark.tile && mark.tile < n)) return 0;
    if (!pass_const(e->code, e->map[at->in[2]], &step) || step != 1) return 0;
    return pass_count_multiple(e, e->code, e->map[at->in[0]], e->map[at->in[1]], n) ? 0 : n;
}

static void split_range(pass_edit *e, uint32_t first, uint32_t last) {
    for (uint32_t i = first; i < last; i++) {
        const ir_instruction *at = pass_at(e, i);
        uint32_t n = at->op == IR_LOOP && !e->no_memory && !e->too_large ? step_of(e, at) : 0;
        if (!n) {
            pass_copy(e, i);
            continue;
        }
        e->changed = true;
        ir_id from = e->map[at->in[0]], to = e->map[at->in[1]], step = e->map[at->in[2]];
        ir_id count = pass_binary(e, IR_SUB, pass_binary(e, IR_MAX, to, from), from);
        ir_id whole = pass_binary(e, IR_AND, count, pass_u32(e, ~(n - 1)));
        ir_id middle = pass_binary(e, IR_ADD, from, whole);
        e->map[i] = pass_loop(e, from, middle, step, at->imm);
        split_range(e, i + 1, e->close[i]);
        pass_close(e);
        ir_mark mark = ir_mark_of(at);
        mark.tile = n - 1;
        mark.full = false;
        e->map[i] = pass_loop(e, middle, to, step, ir_mark_bits(mark, 0));
        split_range(e, i + 1, e->close[i]);
        pass_close(e);
        i = e->close[i];
    }
}

beryl_status ir_pass_split(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule,
                           const ir_kernel **out, beryl_error *error) {
    pass_edit *e = pass_begin(arena, k, schedule);
    if (e) split_range(e, 0, k->n_code);
    return pass_end(e, out, error);
}
