/* dce.c - what nobody uses is removed: values, stores to arrays that are never read or are stored
 * again first, empty blocks, declarations of arrays.
 *
 * Owns everything that is not an effect. Refuses to remove barriers and what others may wait for. A
 * loop always ends, so one that does nothing may go. */
#include "ir/pass/edit.h"

#include <string.h>

typedef struct life {
    pass_edit *e;
    bool *live, *over; /* [n_code]; over: a store that another one overwrites at once */
    uint32_t *work;
    uint32_t n;
    bool loaded[3][IR_ARRAY_MAX]; /* by space: somebody live reads the array */
} life;

static void wake(life *l, uint32_t i) {
    if (l->live[i]) return;
    l->live[i] = true;
    l->work[l->n++] = i;
}

/* Stores of a private array wait for a reader. */
static bool waits(const ir_instruction *i) {
    return i->op == IR_STORE && i->space != IR_BUFFER;
}

static void wake_stores(life *l, uint8_t space, uint16_t array) {
    if (l->loaded[space][array]) return;
    l->loaded[space][array] = true;
    for (uint32_t i = 0; i < l->e->in->n_code; i++) {
        const ir_instruction *at = pass_at(l->e, i);
        if (waits(at) && at->space == space && at->array == array && !l->over[i]) wake(l, i);
    }
}

static void follow(life *l, uint32_t i) {
    const ir_instruction *at = pass_at(l->e, i);
    for (uint32_t a = 0; a < at->n_in; a++)
        if (at->in[a] != IR_NO_ID) wake(l, at->in[a]);
    uint32_t parent = l->e->parent[i];
    if (parent != IR_NO_ID) {
        wake(l, parent);
        if (l->e->middle[parent] != IR_NO_ID && i > l->e->middle[parent])
            wake(l, l->e->middle[parent]);
    }
    if (at->op == IR_LOOP || at->op == IR_IF) wake(l, l->e->close[i]);
    ir_form form = ir_op_of((ir_op)at->op)->form;
    bool reads = form == IR_FORM_LOAD || form == IR_FORM_FRAGMENT_LOAD || form == IR_FORM_ATOMIC ||
                 form == IR_FORM_FRAGMENT_MULTIPLY;
    if (reads && at->space != IR_BUFFER) wake_stores(l, at->space, at->array);
}

/* Within straight code: a store to a constant place of a register array, and nothing between it and
 * the next store there that could read it. */
static void find_overwritten(life *l) {
    pass_edit *e = l->e;
    uint32_t *next = pass_take(e, 1u << 12, sizeof *next); /* 1 + instruction, by array and place */
    for (uint32_t i = e->in->n_code; next && i-- > 0;) {
        const ir_instruction *at = pass_at(e, i);
        uint32_t place;
        uint32_t flags = pass_flags(at);
        if (flags & (IR_OPENS | IR_CLOSES)) {
            memset(next, 0, (1u << 12) * sizeof *next);
            continue;
        }
        if (at->space != IR_REGISTER || (at->op != IR_STORE && at->op != IR_LOAD)) continue;
        bool known = pass_const(e->in->code, at->in[0], &place) && place < 16 && at->width == 1;
        if (at->op == IR_LOAD) {
            for (uint32_t p = 0; p < 16; p++)
                if (!known || p == place) next[at->array * 16u + p] = 0;
        } else if (known) {
            uint32_t *slot = &next[at->array * 16u + place];
            if (*slot) l->over[i] = true;
            *slot = 1 + i;
        }
    }
}

static void renumber(pass_edit *e, uint8_t space, ir_array_decl *arrays, uint32_t *n) {
    uint16_t number[IR_ARRAY_MAX];
    bool used[IR_ARRAY_MAX] = {false};
    uint32_t kept = 0;
    for (uint32_t i = 0; i < e->out.n_code; i++) {
        const ir_instruction *at = &e->code[i];
        ir_form form = ir_op_of((ir_op)at->op)->form;
        if (form == IR_FORM_COPY_ASYNC && space == IR_WORKGROUP)
            return; /* names its array otherwise */
        if (at->space == space && (pass_flags(at) & (IR_READS | IR_WRITES)) &&
            at->array < IR_ARRAY_MAX)
            used[at->array] = true;
    }
    for (uint32_t a = 0; a < *n; a++) {
        number[a] = (uint16_t)kept;
        if (used[a]) arrays[kept++] = arrays[a];
    }
    if (kept == *n) return;
    e->changed = true;
    *n = kept;
    for (uint32_t i = 0; i < e->out.n_code; i++) {
        ir_form form = ir_op_of((ir_op)e->code[i].op)->form;
        bool names = form == IR_FORM_LOAD || form == IR_FORM_STORE || form == IR_FORM_ATOMIC ||
                     form == IR_FORM_FRAGMENT_LOAD || form == IR_FORM_FRAGMENT_STORE ||
                     form == IR_FORM_FRAGMENT_MULTIPLY;
        if (names && e->code[i].space == space) e->code[i].array = number[e->code[i].array];
    }
}

beryl_status ir_pass_dce(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule,
                         const ir_kernel **out, beryl_error *error) {
    pass_edit *e = pass_begin(arena, k, schedule);
    life *l = e ? pass_take(e, 1, sizeof *l) : NULL;
    if (!l) return pass_end(e, out, error);
    l->e = e;
    l->live = pass_take(e, k->n_code, sizeof *l->live);
    l->over = pass_take(e, k->n_code, sizeof *l->over);
    l->work = pass_take(e, k->n_code, sizeof *l->work);
    if (!e->no_memory) find_overwritten(l);
    for (uint32_t i = 0; !e->no_memory && i < k->n_code; i++) {
        uint32_t flags = pass_flags(pass_at(e, i));
        if (((flags & IR_WRITES) && !waits(pass_at(e, i))) || flags & IR_BARS) wake(l, i);
        while (l->n) follow(l, l->work[--l->n]);
    }
    for (uint32_t i = 0; !e->no_memory && i < k->n_code; i++)
        if (l->live[i]) pass_copy(e, i);
    if (e->out.n_code != k->n_code) e->changed = true;
    if (!e->no_memory) {
        renumber(e, IR_REGISTER, e->registers, &e->out.n_register);
        renumber(e, IR_WORKGROUP, e->workgroups, &e->out.n_workgroup);
    }
    return pass_end(e, out, error);
}
