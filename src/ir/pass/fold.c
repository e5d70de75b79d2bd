/* fold.c - constants computed, exact algebra, dead conditions.
 *
 * Owns what follows from one instruction and its operands. Refuses what could change a bit: sums of
 * floats keep their order, x * 0 stays (NaN), x + 0 stays (of -0 it is 0), min and max of floats
 * are not turned around. */
#include "ir/pass/edit.h"

static const uint64_t ones[9] = {0, 0xff, 0xffff, 0,         0xffffffff,
                                 0, 0,    0,      UINT64_MAX}; /* by bytes */

static bool constant(const pass_edit *e, ir_id id, uint64_t *bits) {
    if (e->code[id].op != IR_CONST) return false;
    *bits = e->code[id].imm;
    return true;
}

/* Puts another instruction in the place of the last one. */
static ir_id replace(pass_edit *e, ir_instruction i) {
    e->out.n_code--;
    e->changed = true;
    return pass_push(e, i);
}

/* The last instruction is not needed: `id` has its value. */
static ir_id drop(pass_edit *e, ir_id id) {
    e->out.n_code--;
    e->changed = true;
    return id;
}

static ir_id number(pass_edit *e, ir_id like, uint64_t bits) {
    ir_instruction at = e->code[like];
    e->out.n_code--;
    e->changed = true;
    return pass_bits(e, (ir_type)at.type, at.width, bits);
}

static bool is_computed(ir_form form) {
    return form == IR_FORM_SAME || form == IR_FORM_COMPARE || form == IR_FORM_SELECT ||
           form == IR_FORM_DOT || form == IR_FORM_CAST;
}

/* All operands are constants. */
static bool evaluate(pass_edit *e, ir_id id, ir_id *result) {
    ir_instruction at = e->code[id];
    uint64_t in[4] = {0};
    if (!(pass_flags(&at) & IR_PURE) || !is_computed(ir_op_of((ir_op)at.op)->form)) return false;
    for (uint32_t a = 0; a < at.n_in; a++)
        if (!constant(e, at.in[a], &in[a])) return false;
    ir_type in_type = (ir_type)e->code[at.in[at.op == IR_SELECT ? 1 : 0]].type;
    *result = number(e, id, ir_evaluate((ir_op)at.op, (ir_type)at.type, in_type, in));
    return true;
}

static bool turns_around(const ir_instruction *i) {
    bool integer = ir_type_in((ir_type)i->type, IR_INTEGERS);
    return i->op == IR_ADD || i->op == IR_MUL || i->op == IR_AND || i->op == IR_OR ||
           i->op == IR_XOR || i->op == IR_EQ || i->op == IR_NE ||
           (integer && (i->op == IR_MIN || i->op == IR_MAX));
}

/* (x op c1) op c2 of integers, op one of add, mul, and, or, xor, min, max: x op (c1 op c2). */
static bool join(pass_edit *e, ir_id id, uint64_t second, ir_id *result) {
    ir_instruction at = e->code[id], before = e->code[at.in[0]];
    uint64_t first;
    bool joins = at.op == IR_ADD || at.op == IR_MUL || at.op == IR_AND || at.op == IR_OR ||
                 at.op == IR_XOR || at.op == IR_MIN || at.op == IR_MAX;
    if (!joins || before.op != at.op || !constant(e, before.in[1], &first)) return false;
    uint64_t in[4] = {first, second, 0, 0};
    uint64_t both = ir_evaluate((ir_op)at.op, (ir_type)at.type, (ir_type)at.type, in);
    e->out.n_code--;
    e->changed = true;
    if (at.op == IR_ADD && both == 0) {
        *result = before.in[0];
        return true;
    }
    at.in[0] = before.in[0];
    at.in[1] = pass_bits(e, (ir_type)at.type, at.width, both);
    *result = pass_push(e, at);
    return true;
}

static bool with_integer(pass_edit *e, ir_id id, uint64_t c, ir_id *result) {
    ir_instruction at = e->code[id];
    uint64_t all = ones[ir_type_bytes((ir_type)at.type)];
    bool is_unsigned = ir_type_in((ir_type)at.type, IR_UNSIGNED);
    uint64_t d;
    bool keeps =
        (c == 0 && (at.op == IR_ADD || at.op == IR_SUB || at.op == IR_OR || at.op == IR_XOR ||
                    at.op == IR_SHL || at.op == IR_SHR || (is_unsigned && at.op == IR_MAX))) ||
        (c == 1 && (at.op == IR_MUL || at.op == IR_DIV)) || (c == all && at.op == IR_AND) ||
        (c == all && is_unsigned && at.op == IR_MIN);
    bool zero =
        (c == 0 && (at.op == IR_MUL || at.op == IR_AND || (is_unsigned && at.op == IR_MIN))) ||
        (c == 1 && at.op == IR_MOD);
    if (keeps) *result = drop(e, at.in[0]);
    else if (zero) *result = number(e, id, 0);
    else if (at.op == IR_SUB) { /* so that sums have one form */ e->out.n_code--;
        e->changed = true;
        at.op = IR_ADD;
        at.in[1] = pass_bits(e, (ir_type)at.type, at.width, (0 - c) & all);
        *result = pass_push(e, at);
        if (!e->no_memory && !e->too_large) join(e, *result, (0 - c) & all, result);
    } else if (at.op == IR_MUL && e->code[at.in[0]].op == IR_ADD &&
               constant(e, e->code[at.in[0]].in[1], &d)) {
        /* (x + d) * c is x * c + d * c: neighbours then differ by a constant. */
        uint64_t in[4] = {d, c, 0, 0};
        ir_instruction sum = at;
        e->out.n_code--;
        e->changed = true;
        at.in[0] = e->code[at.in[0]].in[0];
        sum.op = IR_ADD;
        sum.in[0] = pass_push(e, at);
        sum.in[1] = pass_bits(e, (ir_type)at.type, at.width,
                              ir_evaluate(IR_MUL, (ir_type)at.type, (ir_type)at.type, in));
        *result = pass_push(e, sum);
    } else return join(e, id, c, result);
    return true;
}

/* (x + c) + (y + d) of integers: (x + y) + (c + d), constants last. */
static bool pull_out(pass_edit *e, ir_id id, ir_id *result) {
    ir_instruction at = e->code[id];
    uint64_t in[4] = {0};
    bool any = false;
    for (uint32_t a = 0; a < 2; a++) {
        const ir_instruction *part = &e->code[at.in[a]];
        if (part->op != IR_ADD || !constant(e, part->in[1], &in[a])) continue;
        any = true;
        at.in[a] = part->in[0];
    }
    if (!any) return false;
    e->out.n_code--;
    e->changed = true;
    ir_instruction sum = at;
    sum.in[0] = pass_push(e, at);
    sum.in[1] = pass_bits(e, (ir_type)at.type, at.width,
                          ir_evaluate(IR_ADD, (ir_type)at.type, (ir_type)at.type, in));
    *result = pass_push(e, sum);
    return true;
}

static bool with_float(pass_edit *e, ir_id id, uint64_t c, ir_id *result) {
    ir_instruction at = e->code[id];
    ir_type type = (ir_type)at.type;
    uint64_t one = ir_from_double(type, 1), minus_zero = ir_from_double(type, -0.0);
    bool keeps = (at.op == IR_ADD && c == minus_zero) || (at.op == IR_SUB && c == 0) ||
                 ((at.op == IR_MUL || at.op == IR_DIV) && c == one);
    if (keeps) {
        *result = drop(e, at.in[0]);
        return true;
    }
    /* x / 2^n is x * 2^-n, bit for bit, where 2^-n is a normal number too. */
    if (at.op != IR_DIV || type != IR_F32 || (c & 0x7fffff) || (c >> 23 & 255) < 3 ||
        (c >> 23 & 255) > 251)
        return false;
    e->out.n_code--;
    e->changed = true;
    at.op = IR_MUL;
    at.in[1] =
        pass_bits(e, type, at.width, (c & 0x80000000) | (uint64_t)(254 - (c >> 23 & 255)) << 23);
    *result = pass_push(e, at);
    return true;
}

/* Both operands are one value; integers and bools. */
static bool with_itself(pass_edit *e, ir_id id, ir_id *result) {
    ir_instruction at = e->code[id];
    if (ir_type_in((ir_type)e->code[at.in[0]].type, IR_FLOATS)) return false;
    switch ((int)at.op) {
    case IR_SUB:
    case IR_XOR:
    case IR_NE:
    case IR_LT:
    case IR_GT: *result = number(e, id, 0); return true;
    case IR_EQ:
    case IR_LE:
    case IR_GE: *result = number(e, id, 1); return true;
    case IR_AND:
    case IR_OR:
    case IR_MIN:
    case IR_MAX: *result = drop(e, at.in[0]); return true;
    }
    return false;
}

static bool fold_fma(pass_edit *e, ir_id id, ir_id *result) {
    ir_instruction at = e->code[id];
    uint64_t c, d;
    bool integer = ir_type_in((ir_type)at.type, IR_INTEGERS);
    if (constant(e, at.in[0], &c) && !constant(e, at.in[1], &d)) {
        ir_id x = at.in[0];
        at.in[0] = at.in[1], at.in[1] = x;
        e->code[id] = at;
        e->changed = true;
    }
    if (constant(e, at.in[1], &c)) {
        if (c == (integer ? 1 : ir_from_double((ir_type)at.type, 1))) {
            at.op = IR_ADD, at.n_in = 2, at.in[1] = at.in[2], at.in[2] = IR_NO_ID;
            *result = replace(e, at);
            return true;
        }
        if (integer && c == 0) {
            *result = drop(e, at.in[2]);
            return true;
        }
    }
    if (integer && constant(e, at.in[2], &c) && c == 0) {
        at.op = IR_MUL, at.n_in = 2, at.in[2] = IR_NO_ID;
        *result = replace(e, at);
        return true;
    }
    return false;
}

/* Of vectors: what is known without computing. */
static bool fold_lanes(pass_edit *e, ir_id id, ir_id *result) {
    ir_instruction at = e->code[id], from = e->code[at.in[0]];
    uint64_t c;
    if (at.op == IR_SPLAT) {
        if (at.width == 1) *result = drop(e, at.in[0]);
        else if (constant(e, at.in[0], &c)) *result = number(e, id, c);
        else return false;
        return true;
    }
    if (at.op == IR_SWIZZLE) {
        if (!constant(e, at.in[0], &c)) return false;
        *result = number(e, id, c);
        return true;
    }
    if (at.op != IR_EXTRACT) return false;
    if (from.width == 1) *result = drop(e, at.in[0]);
    else if (constant(e, at.in[0], &c)) *result = number(e, id, c);
    else if (from.op == IR_SPLAT) *result = drop(e, from.in[0]);
    else if (from.op == IR_COMPOSE && e->code[from.in[0]].width == 1)
        *result = drop(e, from.in[at.imm & 3]);
    else return false;
    return true;
}

static ir_id simplify(pass_edit *e, ir_id id) {
    if (e->no_memory || e->too_large) return id;
    ir_id result;
    ir_instruction at = e->code[id];
    uint64_t c, d;
    if (!(pass_flags(&at) & IR_PURE) || !at.n_in) return id;
    if (evaluate(e, id, &result)) return result;
    ir_form form = ir_op_of((ir_op)at.op)->form;
    if (at.op == IR_FMA) return fold_fma(e, id, &result) ? result : id;
    if (at.op == IR_SELECT) {
        if (at.in[1] == at.in[2]) return drop(e, at.in[1]);
        return constant(e, at.in[0], &c) ? drop(e, at.in[c ? 1 : 2]) : id;
    }
    if (at.op == IR_CAST && e->code[at.in[0]].type == at.type) return drop(e, at.in[0]);
    if (at.op == IR_BITCAST && e->code[at.in[0]].type == at.type &&
        e->code[at.in[0]].width == at.width)
        return drop(e, at.in[0]);
    if ((at.op == IR_NEG || at.op == IR_NOT) && e->code[at.in[0]].op == at.op)
        return drop(e, e->code[at.in[0]].in[0]);
    if (fold_lanes(e, id, &result)) return result;
    if (at.n_in != 2 || (form != IR_FORM_SAME && form != IR_FORM_COMPARE)) return id;
    if (at.in[0] == at.in[1]) return with_itself(e, id, &result) ? result : id;
    if (constant(e, at.in[0], &c) && !constant(e, at.in[1], &d) && turns_around(&at)) {
        ir_id x = at.in[0];
        at.in[0] = at.in[1], at.in[1] = x;
        e->code[id] = at;
        e->changed = true;
    }
    /* The index of a loop is below its bound. */
    const ir_instruction *left = &e->code[at.in[0]];
    if (at.op == IR_LT && left->op == IR_LOOP && left->in[1] == at.in[1]) return number(e, id, 1);
    if (!constant(e, at.in[1], &c)) {
        bool sum = at.op == IR_ADD && ir_type_in((ir_type)at.type, IR_INTEGERS);
        return sum && pull_out(e, id, &result) ? result : id;
    }
    if (form == IR_FORM_COMPARE) {
        bool natural = ir_type_in((ir_type)e->code[at.in[0]].type, IR_UNSIGNED) && c == 0;
        return natural && at.op == IR_LT   ? number(e, id, 0)
               : natural && at.op == IR_GE ? number(e, id, 1)
                                           : id;
    }
    if (ir_type_in((ir_type)at.type, IR_INTEGERS) && with_integer(e, id, c, &result)) return result;
    if (ir_type_in((ir_type)at.type, IR_FLOATS) && with_float(e, id, c, &result)) return result;
    return id;
}

static void fold_range(pass_edit *e, uint32_t first, uint32_t last) {
    for (uint32_t i = first; i < last; i++) {
        const ir_instruction *at = pass_at(e, i);
        uint32_t from, to, step;
        uint64_t c;
        if (e->no_memory || e->too_large) return;
        if (at->op == IR_LOOP) {
            bool known = pass_const(e->code, e->map[at->in[0]], &from) &&
                         pass_const(e->code, e->map[at->in[1]], &to);
            bool none = known && from >= to;
            bool once = known && from < to && pass_const(e->code, e->map[at->in[2]], &step) &&
                        step >= to - from;
            if (!none && !once) {
                pass_copy(e, i);
                continue; /* its end is copied when it comes */
            }
            e->changed = true;
            if (once) {
                e->map[i] = e->map[at->in[0]];
                fold_range(e, i + 1, e->close[i]);
            }
            i = e->close[i];
        } else if (at->op == IR_IF && constant(e, e->map[at->in[0]], &c)) {
            uint32_t end = e->close[i], middle = e->middle[i] == IR_NO_ID ? end : e->middle[i];
            e->changed = true;
            if (c) fold_range(e, i + 1, middle);
            else if (middle != end) fold_range(e, middle + 1, end);
            i = end;
        } else {
            ir_id id = pass_copy(e, i);
            e->map[i] = simplify(e, id);
        }
    }
}

beryl_status ir_pass_fold(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule,
                          const ir_kernel **out, beryl_error *error) {
    pass_edit *e = pass_begin(arena, k, schedule);
    if (e) fold_range(e, 0, k->n_code);
    return pass_end(e, out, error);
}
