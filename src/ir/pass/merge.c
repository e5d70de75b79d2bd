/* merge.c - neighbouring loops over the same range made one.
 *
 * Owns pairs of loops with equal bounds and marks, with nothing between them but what may run
 * before the first. Refuses where one loop writes what the other one touches: iteration i of the
 * second would then see less of the first. (Register arrays of parallel loops are each iteration's
 * own, so they may meet.) */
#include "ir/pass/edit.h"

#include <string.h>

enum { IFS_MAX = 64 };

typedef struct touched {
    pass_buffers buffers;
    bool stored[IR_ARRAY_MAX], used[IR_ARRAY_MAX]; /* register arrays */
    bool shared, shares;                           /* loads of workgroup memory, stores to it */
    bool closed;                                   /* barriers, atomics */
} touched;

static void touch(const pass_edit *e, uint32_t first, uint32_t last, touched *t) {
    memset(t, 0, sizeof *t);
    t->buffers = pass_buffers_of(e, first, last);
    for (uint32_t i = first; i < last; i++) {
        const ir_instruction *at = pass_at(e, i);
        ir_form form = ir_op_of((ir_op)at->op)->form;
        if (pass_flags(at) & IR_TOGETHER || form == IR_FORM_ATOMIC || form == IR_FORM_COPY_ASYNC ||
            form == IR_FORM_COUNT)
            t->closed = true;
        if (form != IR_FORM_LOAD && form != IR_FORM_STORE) continue;
        if (at->space == IR_WORKGROUP && at->op == IR_LOAD) t->shared = true;
        if (at->space == IR_WORKGROUP && at->op == IR_STORE) t->shares = true;
        if (at->space != IR_REGISTER) continue;
        t->used[at->array] = true;
        if (form == IR_FORM_STORE) t->stored[at->array] = true;
    }
}

static bool disjoint(const touched *a, const touched *b, bool registers) {
    for (uint32_t i = 0; i < IR_BUFFER_MAX; i++) {
        if (a->buffers.written[i] && (b->buffers.written[i] || b->buffers.loaded[i])) return false;
        if (b->buffers.written[i] && a->buffers.loaded[i]) return false;
    }
    for (uint32_t i = 0; registers && i < IR_ARRAY_MAX; i++)
        if ((a->stored[i] && b->used[i]) || (b->stored[i] && a->used[i])) return false;
    if ((a->shares && (b->shares || b->shared)) || (b->shares && a->shared)) return false;
    return !a->closed && !b->closed;
}

static bool same_value(const pass_edit *e, ir_id a, ir_id b) {
    uint32_t x, y;
    return a == b || (pass_const(e->in->code, a, &x) && pass_const(e->in->code, b, &y) && x == y);
}

/* The loop after `loop` that can join it, or IR_NO_ID. t: three of them, room. */
static uint32_t partner(const pass_edit *e, uint32_t loop, touched *t) {
    uint32_t second = e->close[loop] + 1;
    for (; second < e->in->n_code; second++) {
        const ir_instruction *at = pass_at(e, second);
        if (at->op == IR_LOOP) break;
        bool may_move = (pass_flags(at) & IR_PURE) || at->op == IR_LOAD ||
                        (at->op == IR_STORE && at->space == IR_REGISTER);
        if (!may_move) return IR_NO_ID;
    }
    if (second == e->in->n_code) return IR_NO_ID;
    const ir_instruction *a = pass_at(e, loop), *b = pass_at(e, second);
    if (a->imm != b->imm) return IR_NO_ID;
    for (uint32_t n = 0; n < 3; n++)
        if (!same_value(e, a->in[n], b->in[n])) return IR_NO_ID;
    touch(e, loop + 1, e->close[loop], &t[0]);
    touch(e, e->close[loop] + 1, second, &t[1]);
    touch(e, second + 1, e->close[second], &t[2]);
    bool own = ir_mark_of(a).kind == IR_PARALLEL;
    return disjoint(&t[0], &t[1], true) && disjoint(&t[0], &t[2], !own) ? second : IR_NO_ID;
}

/* `if a { if b { .. } }` without else: the inner one, or IR_NO_ID. */
static uint32_t only_inner(const pass_edit *e, uint32_t outer) {
    uint32_t i = outer + 1;
    if (e->middle[outer] != IR_NO_ID) return IR_NO_ID;
    while (i < e->close[outer] && (pass_flags(pass_at(e, i)) & IR_PURE)) i++;
    bool alone = pass_at(e, i)->op == IR_IF && e->middle[i] == IR_NO_ID &&
                 e->close[i] + 1 == e->close[outer];
    return alone ? i : IR_NO_ID;
}

/* What two pieces of code touch, together. */
static void touch_more(touched *all, const touched *t) {
    for (uint32_t i = 0; i < IR_BUFFER_MAX; i++) {
        all->buffers.written[i] |= t->buffers.written[i];
        all->buffers.loaded[i] |= t->buffers.loaded[i];
    }
    for (uint32_t i = 0; i < IR_ARRAY_MAX; i++) {
        all->stored[i] |= t->stored[i];
        all->used[i] |= t->used[i];
    }
    all->shared |= t->shared;
    all->shares |= t->shares;
    all->closed |= t->closed;
}

/* The next `if` on the same condition that may move up to the ones before it, which touch t[0]. */
static uint32_t next_if(const pass_edit *e, uint32_t first, uint32_t before, touched *t) {
    uint32_t i = e->close[before] + 1;
    while (i < e->in->n_code &&
           ((pass_flags(pass_at(e, i)) & IR_PURE) || pass_at(e, i)->op == IR_LOAD))
        i++;
    if (i == e->in->n_code || pass_at(e, i)->op != IR_IF ||
        pass_at(e, i)->in[0] != pass_at(e, first)->in[0] || e->middle[i] != IR_NO_ID)
        return IR_NO_ID;
    touch(e, before, e->close[before], &t[1]);
    touch_more(&t[0], &t[1]);
    touch(e, e->close[before] + 1, i, &t[2]);
    return disjoint(&t[0], &t[2], true) ? i : IR_NO_ID;
}

static void merge_range(pass_edit *e, uint32_t first, uint32_t last, touched *t);

static uint32_t merge_ifs(pass_edit *e, uint32_t first, touched *t) {
    uint32_t parts[IFS_MAX], n = 0, inner = only_inner(e, first);
    if (inner != IR_NO_ID) {
        e->changed = true;
        pass_copy_range(e, first + 1, inner);
        pass_if(e, pass_binary(e, IR_AND, e->map[pass_at(e, first)->in[0]],
                               e->map[pass_at(e, inner)->in[0]]));
        merge_range(e, inner + 1, e->close[inner], t);
        pass_close(e);
        return e->close[first];
    }
    if (e->middle[first] == IR_NO_ID) {
        memset(&t[0], 0, sizeof t[0]);
        for (uint32_t i = first; i != IR_NO_ID && n < IFS_MAX; i = next_if(e, first, i, t))
            parts[n++] = i;
    }
    if (n < 2) {
        pass_copy(e, first);
        return first;
    }
    e->changed = true;
    for (uint32_t i = 0; i + 1 < n; i++) pass_copy_range(e, e->close[parts[i]] + 1, parts[i + 1]);
    pass_copy(e, first);
    for (uint32_t i = 0; i < n; i++) merge_range(e, parts[i] + 1, e->close[parts[i]], t);
    pass_close(e);
    return e->close[parts[n - 1]];
}

static void merge_range(pass_edit *e, uint32_t first, uint32_t last, touched *t) {
    for (uint32_t i = first; i < last && !e->no_memory && !e->too_large; i++) {
        if (pass_at(e, i)->op == IR_IF) {
            i = merge_ifs(e, i, t);
            continue;
        }
        uint32_t second = pass_at(e, i)->op == IR_LOOP ? partner(e, i, t) : IR_NO_ID;
        if (second == IR_NO_ID) {
            pass_copy(e, i);
            continue;
        }
        e->changed = true;
        pass_copy_range(e, e->close[i] + 1, second);
        e->map[second] = pass_copy(e, i);
        merge_range(e, i + 1, e->close[i], t);
        merge_range(e, second + 1, e->close[second], t);
        pass_close(e);
        i = e->close[second];
    }
}

beryl_status ir_pass_merge(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule,
                           const ir_kernel **out, beryl_error *error) {
    pass_edit *e = pass_begin(arena, k, schedule);
    touched *t = e ? pass_take(e, 3, sizeof *t) : NULL;
    if (t) merge_range(e, 0, k->n_code, t);
    return pass_end(e, out, error);
}
