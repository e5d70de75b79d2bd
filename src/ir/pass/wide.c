/* wide.c - neighbouring turns of a loop as the elements of one vector, for devices whose lanes
 * are turns of a loop. Turns of a sum:
 *
 *     loop k = 0, n, 1 reduce              many[0..W] = 0
 *         sum = sum + x[a + k] * w[b + k]  loop k = 0, n, W reduce
 *     end                              ->      many = many + x[a + k ..] * w[b + k ..]
 *                                          end
 *                                          sum = sum + (the elements of many)
 *
 * Owns loops of straight code over a whole number of vectors, whose accumulators are f32 sums
 * and whose loads go on by one with k, or not at all, from places that are multiples of W.
 * Turns of a parallel loop, for factors that lie along it:
 *
 *     loop n = 0, N, 1 parallel            loop v = 0, N / W, 1 parallel
 *         sum = 0                              sum[0..W] = 0
 *         loop k ...                  ->       loop k ...
 *             sum = sum + x[k] * w[.. + n]         sum = sum + x[k] * w[.. + v * W ..]
 *         y[n] = sum                           y[v * W ..] = sum
 *
 * Such a loop may hold others, f32 registers of its own, and conditions of its index around loads
 * and stores. Outside the loops in it that are not parallel those may lie anywhere. Refuses all
 * others, and workgroups of several lanes: a lane is a vector's element there already. */
#include "base/build.h"
#include "ir/pass/edit.h"

enum { SUMS_MAX = 16 };

typedef struct wide {
    pass_edit *e;
    uint32_t loop, width, n_sum;
    uint32_t stores[SUMS_MAX];   /* of the accumulators */
    ir_memory own[IR_ARRAY_MAX]; /* of a parallel loop's registers */
    ir_id condition;             /* of the stores that are looked at; IR_NO_ID: none */
    uint32_t end;                /* of it */
    bool *varies;                /* [n_code] differs from turn to turn */
    ir_id *splat;                /* [n_code] new: the same value in every element */
} wide;

/* Is the value `id` + something that is the same in all turns, or the same in all turns (*varies
 * false)? */
static bool goes_by_one(const wide *w, ir_id id, bool *varies) {
    const ir_instruction *at = pass_at(w->e, id);
    *varies = id == w->loop;
    if (id == w->loop || !w->varies[id]) return true;
    bool x = false, y = false;
    if (at->op != IR_ADD && at->op != IR_FMA) return false;
    if (at->op == IR_FMA && (w->varies[at->in[0]] || w->varies[at->in[1]])) return false;
    const bool first = at->op == IR_FMA || goes_by_one(w, at->in[0], &x),
               second = goes_by_one(w, at->in[at->op == IR_FMA ? 2 : 1], &y);
    *varies = x || y;
    return first && second && !(x && y);
}

/* The old value of the accumulator that a store adds to: a load of the same place. */
static bool is_sum(const wide *w, uint32_t store) {
    const pass_edit *e = w->e;
    const ir_instruction *at = pass_at(e, store), *sum = pass_at(e, at->in[1]);
    uint32_t place, again;
    if (!pass_const(e->in->code, at->in[0], &place) || sum->type != IR_F32 || sum->width != 1 ||
        !w->varies[at->in[1]])
        return false;
    for (uint32_t side = 0; side < 3; side++) {
        const bool here = sum->op == IR_FMA ? side == 2 : sum->op == IR_ADD && side < 2;
        if (!here) continue;
        const ir_instruction *old = pass_at(e, sum->in[side]);
        if (old->op == IR_LOAD && old->space == IR_REGISTER && old->array == at->array &&
            sum->in[side] > w->loop && pass_const(e->in->code, old->in[0], &again) &&
            again == place)
            return true;
    }
    return false;
}

static bool fits(wide *w) {
    pass_edit *e = w->e;
    const ir_instruction *loop = pass_at(e, w->loop);
    uint32_t step, loads = 0;
    pass_buffers buffers = pass_buffers_of(e, 0, e->in->n_code);
    const ir_mark mark = ir_mark_of(loop);
    w->width = e->schedule->dims[mark.dim].wide;
    w->n_sum = 0;
    if (loop->op != IR_LOOP || mark.kind != IR_REDUCE ||
        (w->width != 4 && w->width != 8 && w->width != 16) || ir_lanes(e->in) != 1)
        return false;
    if (!pass_const(e->in->code, loop->in[2], &step) || step != 1 ||
        pass_multiple(e, e->in->code, loop->in[0]) % w->width ||
        !pass_count_multiple(e, e->in->code, loop->in[0], loop->in[1], w->width))
        return false;
    for (uint32_t i = 0; i < e->in->n_code; i++) w->varies[i] = i == w->loop;
    for (uint32_t i = w->loop + 1; i < e->close[w->loop]; i++) {
        const ir_instruction *at = pass_at(e, i);
        const uint32_t flags = pass_flags(at);
        if (at->width > 1) return false;
        for (uint32_t a = 0; a < at->n_in; a++)
            if (at->in[a] != IR_NO_ID && w->varies[at->in[a]]) w->varies[i] = true;
        if (at->op == IR_STORE && at->space == IR_REGISTER) {
            if (w->n_sum == SUMS_MAX || !is_sum(w, i)) return false;
            w->stores[w->n_sum++] = i;
        } else if (at->op == IR_LOAD && at->space == IR_REGISTER) {
            loads++;
            w->varies[i] = true;
        } else if (at->op == IR_LOAD && at->space == IR_BUFFER) {
            bool by_one;
            if (buffers.written[at->array] ||
                (w->varies[i] && (!goes_by_one(w, at->in[0], &by_one) || !by_one)))
                return false;
        } else if (!(flags & IR_PURE) || !ir_has_result(at) || at->op == IR_CONST) {
            if (at->op != IR_CONST) return false;
        }
    }
    for (uint32_t s = 1; s < w->n_sum; s++) /* one store of each array */
        for (uint32_t o = 0; o < s; o++)
            if (pass_at(e, w->stores[s])->array == pass_at(e, w->stores[o])->array) return false;
    return w->n_sum && loads == w->n_sum;
}

static bool takes_index(const ir_instruction *i, uint32_t operand) {
    return operand == 0 && (i->op == IR_LOAD || i->op == IR_STORE || i->op == IR_IF);
}

static bool is_access(const ir_instruction *i) {
    return i->op == IR_LOAD || i->op == IR_STORE;
}

/* Does a vector have a form of it? Indices stay scalar. */
static bool is_index(const wide *w, uint32_t i) {
    const pass_edit *e = w->e;
    const ir_type type = pass_at(e, i)->type;
    if (type != IR_U32 && type != IR_U64 && type != IR_BOOL) return false;
    for (uint32_t u = i + 1; u < e->close[w->loop]; u++)
        for (uint32_t a = 0; a < pass_at(e, u)->n_in; a++)
            if (pass_at(e, u)->in[a] == i && !takes_index(pass_at(e, u), a) && !is_index(w, u))
                return false;
    return true;
}

static ir_id splat_of(wide *w, ir_id old) {
    pass_edit *e = w->e;
    const ir_instruction i = {.op = IR_SPLAT,
                              .type = pass_at(e, old)->type,
                              .width = (uint8_t)w->width,
                              .n_in = 1,
                              .in = {e->map[old], IR_NO_ID, IR_NO_ID, IR_NO_ID}};
    if (w->splat[old] == IR_NO_ID) w->splat[old] = pass_push(e, i);
    return w->splat[old];
}

static bool can_widen(const wide *w) {
    const pass_edit *e = w->e;
    for (uint32_t i = w->loop + 1; i < e->close[w->loop]; i++) {
        const ir_instruction *at = pass_at(e, i);
        if (!w->varies[i] || at->op == IR_STORE || at->op == IR_LOAD || at->op == IR_IF) continue;
        if (is_index(w, i)) { /* of indices alone */
            for (uint32_t a = 0; a < at->n_in; a++)
                if (at->in[a] > w->loop && w->varies[at->in[a]] && !is_index(w, at->in[a]))
                    return false;
            continue;
        }
        const ir_form form = ir_op_of((ir_op)at->op)->form;
        if (form != IR_FORM_SAME && form != IR_FORM_CAST && form != IR_FORM_COMPARE &&
            form != IR_FORM_SELECT)
            return false;
        for (uint32_t a = 0; a < at->n_in; a++)
            if (at->in[a] == w->loop ||
                (at->in[a] > w->loop && w->varies[at->in[a]] && is_index(w, at->in[a])))
                return false;
    }
    return true;
}

static ir_id halves(pass_edit *e, ir_id x, uint32_t width) { /* the sum of its elements */
    while (width > 1) {
        ir_id part[2];
        width /= 2;
        for (uint32_t p = 0; p < 2; p++) {
            ir_instruction i = {.op = width > 1 ? IR_SWIZZLE : IR_EXTRACT,
                                .type = IR_F32,
                                .width = (uint8_t)width,
                                .n_in = 1,
                                .in = {x, IR_NO_ID, IR_NO_ID, IR_NO_ID}};
            for (uint32_t n = 0; n < width; n++) i.imm |= (uint64_t)(p * width + n) << (4 * n);
            part[p] = pass_push(e, i);
        }
        x = pass_binary(e, IR_ADD, part[0], part[1]);
    }
    return x;
}

static void push_vector(wide *w, uint32_t i) {
    pass_edit *e = w->e;
    ir_instruction at = *pass_at(e, i);
    at.width = (uint8_t)w->width;
    for (uint32_t a = 0; a < at.n_in; a++)
        if (at.op == IR_LOAD || w->varies[at.in[a]]) at.in[a] = e->map[at.in[a]];
        else at.in[a] = splat_of(w, at.in[a]);
    /* given up */
    if (at.op == IR_LOAD && pass_multiple(e, e->code, at.in[0]) % w->width) e->too_large = true;
    e->map[i] = pass_push(e, at);
}

static void push(wide *w) {
    pass_edit *e = w->e;
    const ir_instruction *loop = pass_at(e, w->loop);
    ir_memory many[SUMS_MAX];
    ir_id zero = pass_u32(e, 0), nothing = pass_bits(e, IR_F32, w->width, 0);
    for (uint32_t s = 0; s < w->n_sum; s++) {
        many[s] = pass_register(e, IR_F32, w->width);
        pass_store(e, many[s], zero, nothing);
    }
    e->map[w->loop] = pass_loop(e, e->map[loop->in[0]], e->map[loop->in[1]], pass_u32(e, w->width),
                                ir_mark_bits(ir_mark_of(loop), 0));
    for (uint32_t i = 0; i < e->in->n_code; i++) w->splat[i] = IR_NO_ID;
    for (uint32_t i = w->loop + 1; i < e->close[w->loop] && !e->no_memory && !e->too_large; i++) {
        ir_instruction at = *pass_at(e, i);
        uint32_t sum = 0;
        if ((at.op == IR_LOAD || at.op == IR_STORE) && at.space == IR_REGISTER) {
            while (pass_at(e, w->stores[sum])->array != at.array) sum++;
            if (at.op == IR_LOAD) e->map[i] = pass_load(e, IR_F32, w->width, many[sum], zero);
            else pass_store(e, many[sum], zero, e->map[at.in[1]]);
            continue;
        }
        if (!w->varies[i] || is_index(w, i)) {
            pass_copy(e, i);
            continue;
        }
        push_vector(w, i);
    }
    pass_close(e);
    for (uint32_t s = 0; s < w->n_sum; s++) {
        const ir_instruction *store = pass_at(e, w->stores[s]);
        const ir_memory sum = {.space = IR_REGISTER, .array = store->array};
        uint32_t place = 0;
        pass_const(e->in->code, store->in[0], &place);
        ir_id at = pass_u32(e, place),
              more = halves(e, pass_load(e, IR_F32, w->width, many[s], zero), w->width);
        pass_store(e, sum, at, pass_binary(e, IR_ADD, pass_load(e, IR_F32, 1, sum, at), more));
    }
}

/* ---- turns of a parallel loop ---------------------------------------------------------------- */

/* Registers that the loop alone touches, one f32 each. */
static bool has_own_registers(const wide *w) {
    const pass_edit *e = w->e;
    bool inside[IR_ARRAY_MAX] = {false}, outside[IR_ARRAY_MAX] = {false};
    for (uint32_t i = 0; i < e->in->n_code; i++) {
        const ir_instruction *at = pass_at(e, i);
        uint32_t place;
        if (!is_access(at) || at->space != IR_REGISTER) continue;
        if (!pass_inside(e, i, w->loop)) {
            outside[at->array] = true;
            continue;
        }
        inside[at->array] = true;
        if (e->in->registers[at->array].type != IR_F32 || at->width != 1 ||
            !pass_const(e->in->code, at->in[0], &place) || place)
            return false;
    }
    for (uint32_t a = 0; a < IR_ARRAY_MAX; a++)
        if (inside[a] && outside[a]) return false;
    return true;
}

/* Is the load one of neighbours, or of the same number in all turns? end: of a condition. */
static bool is_vector(const wide *w, uint32_t load, uint32_t end) {
    bool by_one;
    return !w->varies[load] ||
           (load >= end && goes_by_one(w, pass_at(w->e, load)->in[0], &by_one) && by_one);
}

static bool fits_parallel(wide *w) {
    pass_edit *e = w->e;
    const ir_instruction *loop = pass_at(e, w->loop);
    uint32_t first, step;
    pass_buffers buffers = pass_buffers_of(e, 0, e->in->n_code);
    const ir_mark mark = ir_mark_of(loop);
    w->width = e->schedule->dims[mark.dim].wide;
    if (loop->op != IR_LOOP || mark.kind != IR_PARALLEL ||
        (w->width != 4 && w->width != 8 && w->width != 16) || ir_lanes(e->in) != 1 ||
        !pass_const(e->in->code, loop->in[0], &first) || first ||
        !pass_const(e->in->code, loop->in[2], &step) || step != 1 ||
        !pass_count_multiple(e, e->in->code, loop->in[0], loop->in[1], w->width) ||
        !has_own_registers(w))
        return false;
    uint32_t end = 0, inner = 0; /* of a condition, of a loop */
    for (uint32_t i = 0; i < e->in->n_code; i++) w->varies[i] = i == w->loop;
    for (uint32_t i = w->loop + 1; i < e->close[w->loop]; i++) {
        const ir_instruction *at = pass_at(e, i);
        if (at->width > 1) return false;
        for (uint32_t a = 0; a < at->n_in; a++)
            if (at->in[a] != IR_NO_ID && w->varies[at->in[a]]) w->varies[i] = true;
        if (is_access(at) && at->space == IR_REGISTER) {
            if (at->op == IR_STORE && i < end) return false;
            w->varies[i] = true;
        } else if (at->op == IR_LOAD && at->space == IR_BUFFER) {
            if (buffers.written[at->array] ||
                (!is_vector(w, i, end) && (i < inner || !is_index(w, at->in[0]))))
                return false;
        } else if (at->op == IR_STORE && at->space == IR_BUFFER) {
            if (!w->varies[at->in[0]] || !is_index(w, at->in[0])) return false;
        } else if (at->op == IR_LOOP) {
            if (w->varies[i] || i < end) return false;
            if (i >= inner && ir_mark_of(at).kind != IR_PARALLEL) inner = e->close[i];
        } else if (at->op == IR_IF) {
            if (!w->varies[i] || i < end || e->middle[i] != IR_NO_ID || !is_index(w, at->in[0]))
                return false;
            end = e->close[i];
        } else if (at->op != IR_END && at->op != IR_CONST &&
                   (!(pass_flags(at) & IR_PURE) || !ir_has_result(at))) {
            return false;
        }
    }
    return true;
}

/* The value of an index in turn `turn`. */
static ir_id index_in(wide *w, ir_id old, ir_id turn) {
    pass_edit *e = w->e;
    if (old == w->loop) return turn;
    if (!w->varies[old]) return e->map[old];
    ir_instruction i = *pass_at(e, old);
    for (uint32_t a = 0; a < i.n_in; a++) i.in[a] = index_in(w, i.in[a], turn);
    return pass_push(e, i);
}

static ir_id vector_of(wide *w, ir_id old) {
    return w->varies[old] ? w->e->map[old] : splat_of(w, old);
}

static void store_turns(wide *w, const ir_instruction *at) {
    pass_edit *e = w->e;
    const ir_id value = vector_of(w, at->in[1]), first = e->map[w->loop];
    bool by_one;
    if (w->condition == IR_NO_ID && goes_by_one(w, at->in[0], &by_one) && by_one) {
        ir_instruction one = *at;
        one.width = (uint8_t)w->width, one.in[0] = e->map[at->in[0]], one.in[1] = value;
        if (pass_multiple(e, e->code, one.in[0]) % w->width) e->too_large = true; /* given up */
        pass_push(e, one);
        return;
    }
    const ir_type type = (ir_type)pass_at(e, at->in[1])->type;
    const ir_memory apart = pass_register(e, type, w->width);
    pass_store(e, apart, pass_u32(e, 0), value);
    const ir_id n = pass_loop(e, pass_u32(e, 0), pass_u32(e, w->width), pass_u32(e, 1), 1),
                turn = pass_binary(e, IR_ADD, first, n);
    if (w->condition != IR_NO_ID) pass_if(e, index_in(w, w->condition, turn));
    ir_instruction one = *at;
    one.in[0] = index_in(w, at->in[0], turn);
    one.in[1] = pass_load(e, type, 1, apart, n);
    pass_push(e, one);
    if (w->condition != IR_NO_ID) pass_close(e);
    pass_close(e);
}

/* Elements that lie anywhere, one by one; where the condition does not hold, zeros. */
static void load_turns(wide *w, uint32_t load) {
    pass_edit *e = w->e;
    ir_instruction one = *pass_at(e, load);
    const ir_type type = (ir_type)one.type;
    const ir_memory apart = pass_register(e, type, w->width);
    if (w->condition != IR_NO_ID)
        pass_store(e, apart, pass_u32(e, 0), pass_bits(e, type, w->width, 0));
    const ir_id n = pass_loop(e, pass_u32(e, 0), pass_u32(e, w->width), pass_u32(e, 1), 1),
                turn = pass_binary(e, IR_ADD, e->map[w->loop], n);
    if (w->condition != IR_NO_ID) pass_if(e, index_in(w, w->condition, turn));
    one.in[0] = index_in(w, one.in[0], turn);
    pass_store(e, apart, n, pass_push(e, one));
    if (w->condition != IR_NO_ID) pass_close(e);
    pass_close(e);
    e->map[load] = pass_load(e, type, w->width, apart, pass_u32(e, 0));
}

static void forget_splats(wide *w) { /* made in a block that ends, or that is not begun yet */
    for (uint32_t i = 0; i < w->e->in->n_code; i++) w->splat[i] = IR_NO_ID;
}

static void push_parallel(wide *w) {
    pass_edit *e = w->e;
    const ir_instruction *loop = pass_at(e, w->loop);
    bool made[IR_ARRAY_MAX] = {false};
    const ir_id width = pass_u32(e, w->width), zero = pass_u32(e, 0),
                turns = pass_binary(e, IR_DIV, e->map[loop->in[1]], width);
    const ir_id turn = pass_loop(e, zero, turns, pass_u32(e, 1), ir_mark_bits(ir_mark_of(loop), 0));
    e->map[w->loop] = pass_binary(e, IR_MUL, turn, width);
    w->condition = IR_NO_ID;
    forget_splats(w);
    for (uint32_t i = w->loop + 1; i < e->close[w->loop] && !e->no_memory && !e->too_large; i++) {
        const ir_instruction *at = pass_at(e, i);
        if (is_access(at) && at->space == IR_REGISTER) {
            if (!made[at->array]) w->own[at->array] = pass_register(e, IR_F32, w->width);
            made[at->array] = true;
            if (at->op == IR_LOAD)
                e->map[i] = pass_load(e, IR_F32, w->width, w->own[at->array], zero);
            else pass_store(e, w->own[at->array], zero, vector_of(w, at->in[1]));
        } else if (at->op == IR_STORE) {
            store_turns(w, at);
        } else if (at->op == IR_IF) {
            w->condition = at->in[0], w->end = e->close[i];
        } else if (w->condition != IR_NO_ID && i == w->end) {
            w->condition = IR_NO_ID;
        } else if (!w->varies[i] || is_index(w, i)) {
            if (at->op == IR_LOOP || at->op == IR_END) forget_splats(w);
            pass_copy(e, i);
        } else if (at->op == IR_LOAD && !is_vector(w, i, w->condition == IR_NO_ID ? i : w->end)) {
            load_turns(w, i);
        } else {
            push_vector(w, i);
        }
    }
    pass_close(e);
}

beryl_status ir_pass_wide(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule,
                          const ir_kernel **out, beryl_error *error) {
    bool asked = false;
    for (uint32_t d = 0; d < IR_DIM_MAX; d++) asked = asked || schedule->dims[d].wide > 1;
    *out = k;
    if (!asked || !BUILD_HAS_C_TEXTS) return BERYL_OK;
    pass_edit *e = pass_begin(arena, k, schedule);
    wide *w = e ? pass_take(e, 1, sizeof *w) : NULL;
    if (w) {
        w->e = e;
        w->varies = pass_take(e, k->n_code, sizeof *w->varies);
        w->splat = pass_take(e, k->n_code, sizeof *w->splat);
    }
    for (uint32_t i = 0; w && i < k->n_code && !e->no_memory && !e->too_large; i++) {
        w->loop = i;
        const bool is_parallel = ir_mark_of(pass_at(e, i)).kind == IR_PARALLEL;
        if (!(is_parallel ? fits_parallel(w) : fits(w)) || !can_widen(w)) {
            pass_copy(e, i);
            continue;
        }
        e->changed = true;
        (is_parallel ? push_parallel : push)(w);
        i = e->close[i];
    }
    return pass_end(e, out, error);
}
