/* reduce.c - reductions shared by the lanes, joined by subgroup ops or by a tree in workgroup
 * memory.
 *
 *     loop k = 0, n, s reduce          old = acc; acc = identity
 *         acc = acc + x[k]      ->     loop k = local * s, n, lanes * s  by lane { acc = acc + x[k]
 * } end                              acc = old + (sum of acc over the lanes of the axis)
 *
 * Owns marked loops whose dimension asks for lanes, run by the whole workgroup, with nothing in
 * them that differs between the lanes of the axis. Every accumulator must be seen to be one: reg[c]
 * = reg[c] op ..., all op alike, and no other use of its array. Refuses the rest; the loop is then
 * run by each lane whole, which is right. If the axis has no lanes yet it gets them, and stores
 * elsewhere are left to lane 0. */
#include "ir/pass/edit.h"

#include <string.h>

enum { CELLS_MAX = 64 };

typedef struct cell {
    uint16_t array;
    uint32_t place;
    ir_op op;
    ir_type type;
    ir_id old; /* new id: what it held before the loop */
} cell;

typedef struct reduction {
    pass_edit *e;
    uint32_t loop, axis, lanes;
    const uint32_t *uses;
    const uint8_t *depends; /* [n_code] axes */
    const bool *uniform;    /* [n_code] */
    cell cells[CELLS_MAX];
    uint32_t n;
    ir_memory
        shared[CELLS_MAX]; /* workgroup arrays by number of the cell; made when first needed */
    bool made[CELLS_MAX];
} reduction;

static ir_op class_of(const ir_instruction *i) {
    if (i->op == IR_FMA || i->op == IR_SUB) return IR_ADD;
    if (i->op == IR_ADD || i->op == IR_MUL || i->op == IR_MIN || i->op == IR_MAX ||
        i->op == IR_AND || i->op == IR_OR || i->op == IR_XOR)
        return (ir_op)i->op;
    return IR_CONST;
}

/* The load of the cell that the stored value grows from, or IR_NO_ID. *class: the ops on the way.
 */
static ir_id root_of(const reduction *r, ir_id value, uint16_t array, uint32_t place,
                     ir_op *class) {
    const pass_edit *e = r->e;
    for (uint32_t steps = 0; steps < 4096; steps++) {
        const ir_instruction *at = pass_at(e, value);
        uint32_t here;
        if (value <= r->loop || r->uses[value] != 1 || at->width != 1) return IR_NO_ID;
        if (at->op == IR_LOAD)
            return at->space == IR_REGISTER && at->array == array &&
                           pass_const(e->in->code, at->in[0], &here) && here == place
                       ? value
                       : IR_NO_ID;
        ir_op now = class_of(at);
        if (now == IR_CONST || (*class != IR_CONST && *class != now)) return IR_NO_ID;
        *class = now;
        if (at->op == IR_FMA) value = at->in[2];
        else if (at->op == IR_SUB) value = at->in[0];
        else {
            /* The side on which the cell lies: a load of its array, or a step of the same class. */
            ir_op left = IR_CONST;
            value = root_of(r, at->in[0], array, place, &left) != IR_NO_ID &&
                            (left == IR_CONST || left == now)
                        ? at->in[0]
                        : at->in[1];
        }
    }
    return IR_NO_ID;
}

/* Between a load of the cell and the store, in one block, nobody else stores there. */
static bool is_current(const pass_edit *e, ir_id load, uint32_t store) {
    if (e->parent[load] != e->parent[store]) return false;
    uint32_t place, other;
    bool known = pass_const(e->in->code, pass_at(e, store)->in[0], &place);
    for (uint32_t i = load + 1; known && i < store; i++) {
        const ir_instruction *at = pass_at(e, i);
        if (at->op != IR_STORE || at->space != IR_REGISTER || at->array != pass_at(e, store)->array)
            continue;
        if (!pass_const(e->in->code, at->in[0], &other) || other == place) return false;
    }
    return known;
}

static bool add_cell(reduction *r, uint16_t array, uint32_t place, ir_op op, ir_type type) {
    for (uint32_t c = 0; c < r->n; c++)
        if (r->cells[c].array == array && r->cells[c].place == place) return r->cells[c].op == op;
    if (r->n == CELLS_MAX) return false;
    r->cells[r->n++] = (cell){.array = array, .place = place, .op = op, .type = type};
    return true;
}

/* Is the register array used in the loop alone? Then it is the iteration's own. */
static bool is_own(const reduction *r, uint16_t array) {
    for (uint32_t i = 0; i < r->e->in->n_code; i++) {
        const ir_instruction *at = pass_at(r->e, i);
        bool names = (at->op == IR_LOAD || at->op == IR_STORE) && at->space == IR_REGISTER &&
                     at->array == array;
        if (names && !pass_inside(r->e, i, r->loop)) return false;
    }
    return true;
}

static bool find_cells(reduction *r) {
    pass_edit *e = r->e;
    uint32_t end = e->close[r->loop];
    bool stored[IR_ARRAY_MAX] = {false};
    bool *matched = pass_take(e, e->in->n_code, sizeof *matched);
    r->n = 0;
    if (!matched) return false;
    for (uint32_t i = r->loop + 1; i < end; i++) {
        const ir_instruction *at = pass_at(e, i);
        if (at->op != IR_STORE || is_own(r, at->array)) continue;
        uint32_t place;
        ir_op class = IR_CONST;
        if (at->width != 1 || !pass_const(e->in->code, at->in[0], &place)) return false;
        ir_id load = root_of(r, at->in[1], at->array, place, &class);
        if (load == IR_NO_ID || class == IR_CONST || !is_current(e, load, i) ||
            !add_cell(r, at->array, place, class, (ir_type)at->type))
            return false;
        stored[at->array] = matched[load] = true;
    }
    for (uint32_t i = r->loop + 1; i < end; i++) {
        const ir_instruction *at = pass_at(e, i);
        if (at->op == IR_LOAD && at->space == IR_REGISTER && stored[at->array] && !matched[i])
            return false;
    }
    return r->n > 0;
}

/* All that the loop does is the same in all lanes of the axis, and reaches nothing but registers.
 */
static bool may_share(const reduction *r) {
    const pass_edit *e = r->e;
    uint32_t bit = 1u << r->axis, parent = e->parent[r->loop];
    if (parent != IR_NO_ID && !r->uniform[parent]) return false;
    for (uint32_t i = r->loop; i < e->close[r->loop]; i++) {
        const ir_instruction *at = pass_at(e, i);
        if (r->depends[i] & bit || pass_is_effect(at) || pass_flags(at) & IR_TOGETHER ||
            at->op == IR_COPY_ASYNC ||
            ((at->op == IR_LOAD || at->op == IR_STORE) && at->space == IR_WORKGROUP))
            return false;
    }
    return true;
}

static uint64_t identity(ir_op op, ir_type type) {
    bool is_float = ir_type_in(type, IR_FLOATS), is_signed = ir_type_in(type, IR_SIGNED);
    uint32_t bits = ir_type_bytes(type) * 8;
    uint64_t all = bits == 64 ? UINT64_MAX : (1ull << bits) - 1, top = 1ull << (bits - 1);
    switch ((int)op) {
    case IR_ADD: return is_float ? ir_from_double(type, -0.0) : 0;
    case IR_MUL: return ir_from_double(type, 1);
    case IR_MIN:
        return is_float    ? ir_from_double(type, (double)__builtin_inff())
               : is_signed ? top - 1
                           : all;
    case IR_MAX:
        return is_float ? ir_from_double(type, -(double)__builtin_inff()) : is_signed ? top : 0;
    case IR_AND: return all;
    }
    return 0;
}

static ir_id subgroup_op(pass_edit *e, ir_op op, ir_id value, uint64_t imm) {
    ir_instruction i = {.op = (uint8_t)op,
                        .type = e->code[value].type,
                        .width = 1,
                        .n_in = 1,
                        .in = {value, IR_NO_ID, IR_NO_ID, IR_NO_ID},
                        .imm = imm};
    return pass_push(e, i);
}

static ir_memory shared_of(reduction *r, uint32_t c, uint32_t count) {
    if (!r->made[c] || r->e->workgroups[r->shared[c].array].type != r->cells[c].type ||
        r->e->workgroups[r->shared[c].array].count < count) {
        r->shared[c] = pass_workgroup(r->e, r->cells[c].type, count);
        r->made[c] = r->shared[c].array != UINT16_MAX;
    }
    return r->shared[c];
}

static ir_op over_subgroup(ir_op op) {
    return op == IR_ADD   ? IR_SUBGROUP_ADD
           : op == IR_MIN ? IR_SUBGROUP_MIN
           : op == IR_MAX ? IR_SUBGROUP_MAX
                          : IR_CONST;
}

/* values[n]: each lane's part; becomes the whole, in every lane. */
static void by_tree(reduction *r, ir_id *values) {
    pass_edit *e = r->e;
    uint32_t stride = 1;
    for (uint32_t a = 0; a < r->axis; a++) stride *= e->out.workgroup[a];
    ir_id number = pass_lane_number(e), place = pass_axis(e, IR_LOCAL, r->axis);
    for (uint32_t c = 0; c < r->n; c++)
        pass_store(e, shared_of(r, c, ir_lanes(&e->out)), number, values[c]);
    pass_barrier(e);
    for (uint32_t n = r->lanes; n > 1;) {
        uint32_t half = (n + 1) / 2;
        pass_if(e, pass_binary(e, IR_LT, pass_binary(e, IR_ADD, place, pass_u32(e, half)),
                               pass_u32(e, n)));
        ir_id other = pass_binary(e, IR_ADD, number, pass_u32(e, half * stride));
        for (uint32_t c = 0; c < r->n; c++) {
            ir_id a = pass_load(e, r->cells[c].type, 1, r->shared[c], number),
                  b = pass_load(e, r->cells[c].type, 1, r->shared[c], other);
            pass_store(e, r->shared[c], number, pass_binary(e, r->cells[c].op, a, b));
        }
        pass_close(e);
        pass_barrier(e);
        n = half;
    }
    ir_id first =
        pass_binary(e, IR_SUB, number, pass_binary(e, IR_MUL, place, pass_u32(e, stride)));
    for (uint32_t c = 0; c < r->n; c++)
        values[c] = pass_load(e, r->cells[c].type, 1, r->shared[c], first);
    pass_barrier(e); /* before the arrays are used again */
}

static void by_subgroup(reduction *r, ir_id *values) {
    pass_edit *e = r->e;
    uint32_t size = e->schedule->subgroup;
    e->out.subgroup_size = size;
    if (r->lanes < size) {
        for (uint32_t mask = 1; mask < r->lanes; mask *= 2)
            for (uint32_t c = 0; c < r->n; c++)
                values[c] = pass_binary(e, r->cells[c].op, values[c],
                                        subgroup_op(e, IR_SUBGROUP_SHUFFLE_XOR, values[c], mask));
        return;
    }
    for (uint32_t c = 0; c < r->n; c++)
        values[c] = subgroup_op(e, over_subgroup(r->cells[c].op), values[c], 0);
    if (r->lanes == size) return;
    uint32_t parts = r->lanes / size;
    ir_id number = pass_lane_number(e);
    ir_id mine = pass_binary(e, IR_DIV, number, pass_u32(e, size));
    ir_id row = pass_binary(e, IR_MUL, pass_binary(e, IR_DIV, number, pass_u32(e, r->lanes)),
                            pass_u32(e, parts));
    pass_if(e, pass_binary(e, IR_EQ, pass_binary(e, IR_MOD, number, pass_u32(e, size)),
                           pass_u32(e, 0)));
    for (uint32_t c = 0; c < r->n; c++)
        pass_store(e, shared_of(r, c, ir_lanes(&e->out) / size), mine, values[c]);
    pass_close(e);
    pass_barrier(e);
    for (uint32_t c = 0; c < r->n; c++)
        for (uint32_t p = 0; p < parts; p++) {
            ir_id part = pass_load(e, r->cells[c].type, 1, r->shared[c],
                                   pass_binary(e, IR_ADD, row, pass_u32(e, p)));
            values[c] = p ? pass_binary(e, r->cells[c].op, values[c], part) : part;
        }
    pass_barrier(e);
}

static bool fits_subgroup(const reduction *r) {
    const pass_edit *e = r->e;
    uint32_t size = e->schedule->subgroup, lanes = r->lanes;
    if (size < 2 || size & (size - 1) || r->axis || ir_lanes(&e->out) % size) return false;
    if (e->in->subgroup_size && e->in->subgroup_size != size) return false;
    if (lanes < size) return !(lanes & (lanes - 1));
    for (uint32_t c = 0; c < r->n; c++)
        if (over_subgroup(r->cells[c].op) == IR_CONST) return false;
    return lanes % size == 0;
}

static void share(reduction *r) {
    pass_edit *e = r->e;
    const ir_instruction *at = pass_at(e, r->loop);
    ir_mark mark = ir_mark_of(at);
    ir_id values[CELLS_MAX];
    uint32_t step = 1;
    pass_const(e->in->code, at->in[2], &step);
    for (uint32_t c = 0; c < r->n; c++) {
        ir_memory m = {.space = IR_REGISTER, .array = r->cells[c].array};
        ir_id place = pass_u32(e, r->cells[c].place);
        r->cells[c].old = pass_load(e, r->cells[c].type, 1, m, place);
        pass_store(e, m, place,
                   pass_bits(e, r->cells[c].type, 1, identity(r->cells[c].op, r->cells[c].type)));
    }
    ir_id offset = pass_binary(e, IR_MUL, pass_axis(e, IR_LOCAL, r->axis), e->map[at->in[2]]);
    ir_id from = pass_binary(e, IR_ADD, e->map[at->in[0]], offset);
    mark.kind = IR_BY_LANE, mark.axis = r->axis, mark.tile = 0, mark.full = false;
    e->map[r->loop] =
        pass_loop(e, from, e->map[at->in[1]], pass_u32(e, r->lanes * step), ir_mark_bits(mark, 0));
    pass_copy_range(e, r->loop + 1, e->close[r->loop] + 1);
    for (uint32_t c = 0; c < r->n; c++)
        values[c] = pass_load(e, r->cells[c].type, 1,
                              (ir_memory){.space = IR_REGISTER, .array = r->cells[c].array},
                              pass_u32(e, r->cells[c].place));
    if (fits_subgroup(r)) by_subgroup(r, values);
    else by_tree(r, values);
    for (uint32_t c = 0; c < r->n; c++)
        pass_store(e, (ir_memory){.space = IR_REGISTER, .array = r->cells[c].array},
                   pass_u32(e, r->cells[c].place),
                   pass_binary(e, r->cells[c].op, r->cells[c].old, values[c]));
}

/* Trees need a place for each lane and cell; staged tiles count too. */
static bool has_room(const reduction *r) {
    const pass_edit *e = r->e;
    uint64_t bytes = 0, limit = e->schedule->workgroup_bytes ? e->schedule->workgroup_bytes : 16384;
    for (uint32_t w = 0; w < e->out.n_workgroup; w++)
        bytes += (uint64_t)e->workgroups[w].count * ir_type_bytes(e->workgroups[w].type);
    for (uint32_t c = 0; c < r->n; c++)
        bytes += (uint64_t)ir_lanes(&e->out) * ir_type_bytes(r->cells[c].type);
    return bytes <= limit;
}

static bool asks(const reduction *r, uint32_t i) {
    const ir_instruction *at = pass_at(r->e, i);
    const ir_schedule_dim *dim = &r->e->schedule->dims[ir_mark_of(at).dim];
    uint32_t step;
    return at->op == IR_LOOP && ir_mark_of(at).kind == IR_REDUCE && dim->lane == r->axis + 1 &&
           pass_const(r->e->in->code, at->in[2], &step) && step;
}

static const ir_kernel *on_axis(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule,
                                uint32_t axis, beryl_status *status, beryl_error *error) {
    const ir_kernel *out = k;
    uint32_t wanted = pass_lanes_of_axis(schedule, axis);
    bool opens = k->workgroup[axis] == 1, asked = false;
    pass_edit *e = pass_begin(arena, k, schedule);
    reduction *r = e ? pass_take(e, 1, sizeof *r) : NULL;
    bool *uniform = r ? pass_take(e, k->n_code, sizeof *uniform) : NULL,
         *none = r ? pass_take(e, k->n_code, sizeof *none) : NULL;
    if (uniform && none) {
        r->e = e, r->axis = axis, r->uniform = uniform;
        r->uses = pass_uses(e), r->depends = pass_lanes(e);
        ir_uniform(k, uniform);
        r->lanes = opens ? wanted : k->workgroup[axis];
    }
    for (uint32_t i = 0; r && !e->no_memory && i < k->n_code; i++) {
        r->loop = i;
        if (asks(r, i) && may_share(r) && find_cells(r)) asked = true;
    }
    bool room = r && r->lanes > 1 && (uint64_t)ir_lanes(k) * (opens ? r->lanes : 1) <= IR_LANES_MAX;
    if (asked && room && opens && (pass_is_closed(e) || !pass_may_spread(e, none))) room = false;
    if (asked && room && !e->no_memory) {
        if (opens) e->out.workgroup[axis] = r->lanes;
        for (uint32_t i = 0; i < k->n_code && !e->no_memory && !e->too_large; i++) {
            r->loop = i;
            if (asks(r, i) && may_share(r) && find_cells(r) && has_room(r)) {
                e->changed = true;
                share(r);
                i = e->close[i];
            } else if (opens && pass_is_effect(pass_at(e, i))) {
                pass_if(e, pass_binary(e, IR_EQ, pass_axis(e, IR_LOCAL, axis), pass_u32(e, 0)));
                pass_copy(e, i);
                pass_close(e);
            } else pass_copy(e, i);
        }
    }
    *status = pass_end(e, &out, error);
    /* An array of partial sums no longer counts as the same in all lanes; what depended on that now
     * does not verify. */
    return *status || out == k || !ir_verify(arena->heap, out, NULL) ? out : k;
}

beryl_status ir_pass_reduce(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule,
                            const ir_kernel **out, beryl_error *error) {
    beryl_status status = BERYL_OK;
    bool asked = false;
    *out = k;
    for (uint32_t i = 0; i < k->n_code; i++) {
        const ir_mark mark = ir_mark_of(&k->code[i]);
        asked |=
            k->code[i].op == IR_LOOP && mark.kind == IR_REDUCE && schedule->dims[mark.dim].lane;
    }
    /* Of turns unrolled all but the last store a sum that nobody reads. */
    if (asked) status = ir_pass_dce(arena, k, schedule, out, error);
    for (uint32_t axis = 0; axis < 3 && !status; axis++)
        *out = on_axis(arena, *out, schedule, axis, &status, error);
    return status;
}
