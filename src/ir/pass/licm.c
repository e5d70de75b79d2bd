/* licm.c - what a loop does not change is moved before it.
 *
 * Owns pure values, and loads of memory that the loop (for buffers: the kernel) does not write,
 * where the loop surely runs them: a load that would not have happened could lie outside its
 * buffer. Refuses everything whose order matters. Outer loops come first, so a value moves as far
 * as it may. */
#include "ir/pass/edit.h"

typedef struct motion {
    pass_edit *e;
    bool *moved;         /* [n_code] already pushed before a loop */
    const bool *written; /* [n_buffer] */
} motion;

/* Operands are values from before the loop, or moved there. */
static bool is_fixed(const motion *m, uint32_t i, uint32_t loop) {
    const ir_instruction *at = pass_at(m->e, i);
    for (uint32_t a = 0; a < at->n_in; a++)
        if (at->in[a] != IR_NO_ID && at->in[a] >= loop && !m->moved[at->in[a]]) return false;
    return true;
}

static bool stores_register(const motion *m, uint32_t loop, uint16_t array) {
    for (uint32_t i = loop + 1; i < m->e->close[loop]; i++) {
        const ir_instruction *at = pass_at(m->e, i);
        if (at->op == IR_STORE && at->space == IR_REGISTER && at->array == array) return true;
    }
    return false;
}

static bool surely_runs(const pass_edit *e, uint32_t loop) {
    uint32_t from, to;
    const ir_instruction *at = pass_at(e, loop);
    return pass_const(e->in->code, at->in[0], &from) && pass_const(e->in->code, at->in[1], &to) &&
           from < to;
}

static void before_loop(motion *m, uint32_t loop) {
    pass_edit *e = m->e;
    bool runs = surely_runs(e, loop);
    uint32_t unsure = 0; /* up to here inside an if, or a loop that may not run */
    for (uint32_t i = loop + 1; i < e->close[loop]; i++) {
        const ir_instruction *at = pass_at(e, i);
        if (m->moved[i]) continue;
        if ((at->op == IR_IF || (at->op == IR_LOOP && !surely_runs(e, i))) && e->close[i] > unsure)
            unsure = e->close[i];
        bool pure = pass_flags(at) & IR_PURE && ir_has_result(at);
        bool load = at->op == IR_LOAD && runs && i > unsure &&
                    (at->space == IR_BUFFER
                         ? !m->written[at->array]
                         : at->space == IR_REGISTER && !stores_register(m, loop, at->array));
        if ((!pure && !load) || !is_fixed(m, i, loop)) continue;
        pass_copy(e, i);
        m->moved[i] = true;
        e->changed = true;
    }
}

beryl_status ir_pass_licm(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule,
                          const ir_kernel **out, beryl_error *error) {
    pass_edit *e = pass_begin(arena, k, schedule);
    if (!e) return pass_end(e, out, error);
    pass_buffers buffers = pass_buffers_of(e, 0, k->n_code);
    motion m = {.e = e, .moved = pass_take(e, k->n_code, sizeof(bool)), .written = buffers.written};
    for (uint32_t i = 0; m.moved && i < k->n_code; i++) {
        if (m.moved[i]) continue;
        if (k->code[i].op == IR_LOOP) before_loop(&m, i);
        pass_copy(e, i);
    }
    return pass_end(e, out, error);
}
