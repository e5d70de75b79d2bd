/* lanes.c - parallel loops shared by the lanes of a workgroup.
 *
 *     loop i = from, to, s parallel    ->    loop i = from + local * s, to, lanes * s    by lane
 *
 * Owns the outermost parallel loops whose dimension asks for an axis, and with it the size of
 * the workgroup. Everything else runs in every lane alike; its stores are left to lane 0 of the
 * axis. Refuses an axis that has lanes, steps that are too large for all of them together,
 * kernels with barriers, and kernels in which a buffer that is written is read outside the loop
 * that writes it. */
#include "ir/pass/edit.h"

static bool wants(const pass_edit *e, ir_mark mark, uint32_t axis) {
    return e->schedule->dims[mark.dim].lane == axis + 1;
}

/* Inside the loop over groups that made it: not empty, and no longer than the tile. */
static bool is_tiled(const pass_edit *e, uint32_t loop) {
    ir_mark mark = ir_mark_of(pass_at(e, loop));
    for (uint32_t p = e->parent[loop]; p != IR_NO_ID; p = e->parent[p]) {
        ir_mark outer = ir_mark_of(pass_at(e, p));
        if (pass_at(e, p)->op == IR_LOOP && outer.kind == IR_BY_GROUP && outer.dim == mark.dim &&
            outer.tile == mark.tile)
            return true;
    }
    return false;
}

/* No lane steps over the end of the numbers. */
static bool steps_fit(const pass_edit *e, const bool *chosen, uint32_t lanes) {
    uint32_t step;
    for (uint32_t i = 0; i < e->in->n_code; i++)
        if (chosen[i] && pass_const(e->in->code, pass_at(e, i)->in[2], &step) &&
            (uint64_t)lanes * step > UINT32_MAX)
            return false;
    return true;
}

static void share(pass_edit *e, uint32_t i, uint32_t axis, uint32_t lanes) {
    const ir_instruction *at = pass_at(e, i);
    ir_mark mark = ir_mark_of(at);
    uint32_t step = 1, first, last;
    pass_const(e->in->code, at->in[2], &step);
    bool constant = pass_const(e->in->code, at->in[0], &first) &&
                    pass_const(e->in->code, at->in[1], &last) && first < last;
    if (constant) {
        mark.tile = last - first;
        mark.exact = step == 1 || mark.exact || mark.tile % step == 0;
    } else if (!is_tiled(e, i)) mark.tile = 0; /* it may be empty */
    if (mark.tile) mark.full = mark.tile == lanes * step && (mark.full || constant);
    if (step == 1) mark.exact = true;
    mark.kind = IR_BY_LANE;
    mark.axis = axis;
    ir_id offset = pass_binary(e, IR_MUL, pass_axis(e, IR_LOCAL, axis), e->map[at->in[2]]);
    ir_id from = pass_binary(e, IR_ADD, e->map[at->in[0]], offset);
    e->map[i] =
        pass_loop(e, from, e->map[at->in[1]], pass_u32(e, lanes * step), ir_mark_bits(mark, 0));
}

static const ir_kernel *on_axis(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule,
                                uint32_t axis, beryl_status *status, beryl_error *error) {
    const ir_kernel *out = k;
    pass_edit *e = pass_begin(arena, k, schedule);
    bool *chosen = e ? pass_take(e, k->n_code, sizeof *chosen) : NULL;
    uint32_t lanes = pass_lanes_of_axis(schedule, axis);
    bool room =
        lanes > 1 && k->workgroup[axis] == 1 && (uint64_t)ir_lanes(k) * lanes <= IR_LANES_MAX;
    if (chosen && room && pass_choose(e, chosen, wants, axis) && !pass_is_closed(e) &&
        pass_may_spread(e, chosen) && steps_fit(e, chosen, lanes)) {
        uint32_t inside = 0;
        e->out.workgroup[axis] = lanes;
        for (uint32_t i = 0; i < k->n_code; i++) {
            if (chosen[i]) {
                share(e, i, axis, lanes);
                inside = e->close[i];
            } else if (pass_is_effect(pass_at(e, i)) && i >= inside) {
                pass_if(e, pass_binary(e, IR_EQ, pass_axis(e, IR_LOCAL, axis), pass_u32(e, 0)));
                pass_copy(e, i);
                pass_close(e);
            } else pass_copy(e, i);
        }
        e->changed = true;
    }
    *status = pass_end(e, &out, error);
    return out;
}

beryl_status ir_pass_lanes(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule,
                           const ir_kernel **out, beryl_error *error) {
    beryl_status status = BERYL_OK;
    *out = k;
    for (uint32_t axis = 0; axis < 3 && !status; axis++)
        *out = on_axis(arena, *out, schedule, axis, &status, error);
    return status;
}
