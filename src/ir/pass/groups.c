/* groups.c - parallel loops shared by the workgroups, in tiles.
 *
 *     loop i = from, to, s parallel          loop g = from + group * T, to, groups * T   by group
 *         body                         ->        loop i = g, min(g + T, to), s           parallel
 *     end                                            body
 *
 * Owns the outermost parallel loops whose dimension asks for an axis; T = lanes * block of the
 * dimension. What else stores to buffers is left to group 0. Refuses an axis that is in use, and
 * kernels in which a buffer that is written is read outside the loop that writes it: groups do not
 * wait for each other. */
#include "ir/pass/edit.h"

static bool wants(const pass_edit *e, ir_mark mark, uint32_t axis) {
    return e->schedule->dims[mark.dim].group == axis + 1;
}

static void tile(pass_edit *e, uint32_t i, uint32_t axis) {
    const ir_instruction *at = pass_at(e, i);
    ir_mark mark = ir_mark_of(at);
    const ir_schedule_dim *dim = &e->schedule->dims[mark.dim];
    uint32_t step = 1, size = (dim->lanes ? dim->lanes : 1u) * (dim->block ? dim->block : 1u);
    pass_const(e->in->code, at->in[2], &step);
    size = size < step ? step : size - size % step;
    ir_id from = e->map[at->in[0]], to = e->map[at->in[1]], stride = e->map[at->in[2]],
          whole = pass_u32(e, size);
    bool exact = mark.exact || step == 1;
    bool full = pass_count_multiple(e, e->code, from, to, size) && (step == 1 || mark.exact);
    ir_id first =
        pass_binary(e, IR_ADD, from, pass_binary(e, IR_MUL, pass_axis(e, IR_GROUP, axis), whole));
    ir_id turn = pass_binary(e, IR_MUL, pass_axis(e, IR_GROUPS, axis), whole);
    ir_mark by_group = {.kind = IR_BY_GROUP,
                        .axis = axis,
                        .dim = mark.dim,
                        .full = full,
                        .exact = exact,
                        .tile = size};
    ir_id start = pass_loop(e, first, to, turn, ir_mark_bits(by_group, 0));
    ir_id end = pass_binary(e, IR_ADD, start, whole);
    if (!full) end = pass_binary(e, IR_MIN, end, to);
    mark.tile = size;
    mark.full = full;
    mark.exact = exact;
    e->map[i] = pass_loop(e, start, end, stride, ir_mark_bits(mark, 0));
}

static const ir_kernel *on_axis(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule,
                                uint32_t axis, beryl_status *status, beryl_error *error) {
    const ir_kernel *out = k;
    pass_edit *e = pass_begin(arena, k, schedule);
    bool *chosen = e ? pass_take(e, k->n_code, sizeof *chosen) : NULL;
    bool busy = false;
    for (uint32_t i = 0; i < k->n_code; i++)
        if ((k->code[i].op == IR_GROUP || k->code[i].op == IR_GROUPS) && k->code[i].imm == axis)
            busy = true;
    if (chosen && !busy && pass_choose(e, chosen, wants, axis) && !pass_is_closed(e) &&
        pass_may_spread(e, chosen)) {
        uint32_t inside = 0; /* up to here */
        for (uint32_t i = 0; i < k->n_code; i++) {
            if (chosen[i]) {
                tile(e, i, axis);
                inside = e->close[i];
            } else if (pass_is_effect(pass_at(e, i)) && i >= inside) {
                pass_if(e, pass_binary(e, IR_EQ, pass_axis(e, IR_GROUP, axis), pass_u32(e, 0)));
                pass_copy(e, i);
                pass_close(e);
            } else {
                if (k->code[i].op == IR_END && chosen[e->close[i]]) pass_close(e);
                pass_copy(e, i);
            }
        }
        e->changed = true;
    }
    *status = pass_end(e, &out, error);
    return out;
}

beryl_status ir_pass_groups(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule,
                            const ir_kernel **out, beryl_error *error) {
    beryl_status status = BERYL_OK;
    *out = k;
    for (uint32_t axis = 0; axis < 3 && !status; axis++)
        *out = on_axis(arena, *out, schedule, axis, &status, error);
    return status;
}
