/* unroll.c - copies of a loop's body.
 *
 * Owns block loops (whole, always: they are registers side by side) and marked loops whose
 * dimension asks for it: whole where the count is a constant and no larger, else `unroll` copies a
 * turn and a second loop for the rest. Refuses to grow the kernel without bound. */
#include "ir/pass/edit.h"

enum { GROWTH_MAX = 1 << 16, BODY_MAX = 1 << 13 };

/* How often the loop runs, where that is a constant: to is known, or from + constant. */
static bool count_of(const pass_edit *e, const ir_instruction *loop, uint32_t step,
                     uint32_t *count) {
    uint32_t from, to;
    ir_id first = e->map[loop->in[0]], last = e->map[loop->in[1]];
    if (pass_const(e->code, last, &to)) {
        if (!pass_const(e->code, first, &from)) return false;
    } else {
        const ir_instruction *sum = &e->code[last];
        if (sum->op != IR_ADD || sum->in[0] != first || !pass_const(e->code, sum->in[1], &to))
            return false;
        from = 0;
    }
    *count = from < to ? (uint32_t)(((uint64_t)to - from + step - 1) / step) : 0;
    return true;
}

static void unroll_range(pass_edit *e, uint32_t first, uint32_t last);

static void copies(pass_edit *e, uint32_t loop, ir_id index, uint32_t step, uint32_t n) {
    for (uint32_t c = 0; c < n && !e->no_memory && !e->too_large; c++) {
        e->map[loop] = c ? pass_binary(e, IR_ADD, index, pass_u32(e, c * step)) : index;
        unroll_range(e, loop + 1, e->close[loop]);
    }
}

static void in_part(pass_edit *e, uint32_t loop, uint32_t step, uint32_t times) {
    const ir_instruction *at = pass_at(e, loop);
    ir_id from = e->map[at->in[0]], to = e->map[at->in[1]], stride = e->map[at->in[2]];
    ir_mark mark = ir_mark_of(at);
    uint32_t turn = step * times;
    bool whole = pass_count_multiple(e, e->code, from, to, turn);
    ir_id middle = to;
    if (!whole) {
        ir_id count = pass_binary(e, IR_SUB, pass_binary(e, IR_MAX, to, from), from);
        ir_id turns = pass_binary(e, IR_DIV, count, pass_u32(e, turn));
        middle = pass_binary(e, IR_ADD, from, pass_binary(e, IR_MUL, turns, pass_u32(e, turn)));
    }
    mark.tile = 0;
    mark.exact = true;
    ir_id index = pass_loop(e, from, middle, pass_u32(e, turn), ir_mark_bits(mark, 0));
    copies(e, loop, index, step, times);
    pass_close(e);
    if (whole) return;
    mark.tile = turn - 1; /* so that it is not unrolled again */
    mark.exact = false;
    e->map[loop] = pass_loop(e, middle, to, stride, ir_mark_bits(mark, 0));
    unroll_range(e, loop + 1, e->close[loop]);
    pass_close(e);
}

static bool unroll_loop(pass_edit *e, uint32_t loop) {
    const ir_instruction *at = pass_at(e, loop);
    ir_mark mark = ir_mark_of(at);
    uint32_t step, count = 0, body = e->close[loop] - loop;
    uint32_t times = e->schedule->dims[mark.dim].unroll;
    if (!pass_const(e->code, e->map[at->in[2]], &step) || !step || e->out.n_code > GROWTH_MAX)
        return false;
    bool block = mark.kind == IR_BLOCK, asked = mark.kind == IR_REDUCE && times > 1;
    bool known = count_of(e, at, step, &count);
    if (known && (block || (asked && count <= times)) && (uint64_t)count * body <= BODY_MAX) {
        copies(e, loop, e->map[at->in[0]], step, count);
        return true;
    }
    if (!asked || step != 1 || (mark.tile && mark.tile < times) ||
        (uint64_t)times * body > BODY_MAX)
        return false;
    in_part(e, loop, step, times);
    return true;
}

static void unroll_range(pass_edit *e, uint32_t first, uint32_t last) {
    for (uint32_t i = first; i < last && !e->no_memory && !e->too_large; i++) {
        if (pass_at(e, i)->op == IR_LOOP && unroll_loop(e, i)) {
            e->changed = true;
            i = e->close[i];
            continue;
        }
        const ir_instruction *at = pass_at(e, i);
        bool index =
            at->type == IR_U32 && at->width == 1 && at->n_in == 2 && (pass_flags(at) & IR_PURE);
        if (index) e->map[i] = pass_binary(e, (ir_op)at->op, e->map[at->in[0]], e->map[at->in[1]]);
        else pass_copy(e, i);
    }
}

beryl_status ir_pass_unroll(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule,
                            const ir_kernel **out, beryl_error *error) {
    pass_edit *e = pass_begin(arena, k, schedule);
    if (e) unroll_range(e, 0, k->n_code);
    return pass_end(e, out, error);
}
