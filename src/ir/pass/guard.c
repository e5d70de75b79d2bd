/* guard.c - a lane's single iteration without its loop.
 *
 *     loop i = first, to, lanes * s by lane        c = first < to
 *         body; store                        ->    i = min(first, to - s)
 *     end                                          body; if c { store }
 *
 * Owns loops by lane that run at most once, since the tile is no larger than one step: behind them
 * the whole workgroup runs the same code, so it may meet at barriers. A lane beyond the edge works
 * on the last iteration again and stores nothing; where every tile is whole there is no guard.
 * Refuses loops that may be empty as a whole (their tile is not known: then there is no last
 * iteration), atomics whose results are used, and ragged edges of loops that read what they write.
 */
#include "ir/pass/edit.h"

static bool runs_once(const pass_edit *e, uint32_t loop, const uint32_t *uses) {
    const ir_instruction *at = pass_at(e, loop);
    ir_mark mark = ir_mark_of(at);
    uint32_t step;
    if (mark.kind != IR_BY_LANE || !mark.tile || !pass_const(e->in->code, at->in[2], &step) ||
        step < mark.tile)
        return false;
    for (uint32_t i = loop; i < e->close[loop]; i++)
        if (ir_op_of((ir_op)pass_at(e, i)->op)->form == IR_FORM_ATOMIC && uses[i]) return false;
    return mark.full || !pass_loads_written(e, loop);
}

static void guard_range(pass_edit *e, uint32_t first, uint32_t last, const uint32_t *uses,
                        ir_id condition) {
    for (uint32_t i = first; i < last && !e->no_memory && !e->too_large; i++) {
        const ir_instruction *at = pass_at(e, i);
        if (at->op == IR_LOOP && runs_once(e, i, uses)) {
            ir_mark mark = ir_mark_of(at);
            uint32_t step = 1;
            pass_const(e->in->code, at->in[2], &step);
            uint32_t share = step / e->in->workgroup[mark.axis];
            ir_id index = e->map[at->in[0]], to = e->map[at->in[1]], inside = condition;
            if (!mark.full) {
                ir_id here = pass_binary(e, IR_LT, index, to);
                inside = condition == IR_NO_ID ? here : pass_binary(e, IR_AND, condition, here);
                index =
                    pass_binary(e, IR_MIN, index,
                                pass_binary(e, IR_SUB, to, pass_u32(e, mark.exact ? share : 1)));
            }
            e->map[i] = index;
            e->changed = true;
            guard_range(e, i + 1, e->close[i], uses, inside);
            i = e->close[i];
        } else if (condition != IR_NO_ID && pass_is_effect(at)) {
            pass_if(e, condition);
            pass_copy(e, i);
            pass_close(e);
        } else pass_copy(e, i);
    }
}

beryl_status ir_pass_guard(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule,
                           const ir_kernel **out, beryl_error *error) {
    pass_edit *e = pass_begin(arena, k, schedule);
    uint32_t *uses = e ? pass_uses(e) : NULL;
    if (uses) guard_range(e, 0, k->n_code, uses, IR_NO_ID);
    return pass_end(e, out, error);
}
