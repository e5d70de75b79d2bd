/* strength.c - division and modulo of indices as shifts, masks, multiplications, or not at all;
 * loops that count in the steps that addresses go in.
 *
 * Owns u32 arithmetic whose range is known from constants, loop bounds and sizes. Refuses where a
 * product or a sum could pass 2^32: what is found here is exact. The idea: an index like (i * n +
 * j) / n is i as long as j < n, and most indices of lowerings are such. */
#include "ir/pass/edit.h"

enum { DEPTH = 16 };
static const uint64_t unknown = UINT32_MAX;

/* The largest value that a u32 may have. */
static uint64_t largest(const pass_edit *e, ir_id id, uint32_t depth) {
    const ir_instruction *i = &e->code[id];
    if (i->type != IR_U32 || i->width != 1 || !depth) return unknown;
    if (i->op == IR_CONST) return (uint32_t)i->imm;
    if (i->op == IR_LOCAL) return e->out.workgroup[i->imm] - 1;
    if (i->op == IR_SUBGROUP_LANE) return e->out.subgroup_size ? e->out.subgroup_size - 1 : unknown;
    if (i->op == IR_CAST) {
        ir_type from = (ir_type)e->code[i->in[0]].type;
        return from == IR_BOOL ? 1 : from == IR_U8 ? 255 : from == IR_U16 ? 65535 : unknown;
    }
    if (i->op == IR_LOOP) {
        uint64_t to = largest(e, i->in[1], depth - 1);
        return to ? to - 1 : 0;
    }
    if (ir_op_of((ir_op)i->op)->form != IR_FORM_SAME && i->op != IR_SELECT) return unknown;
    uint64_t in[3] = {0};
    for (uint32_t a = 0; a < i->n_in && a < 3; a++) in[a] = largest(e, i->in[a], depth - 1);
    uint64_t found = unknown;
    switch ((int)i->op) {
    case IR_ADD: found = in[0] + in[1]; break;
    case IR_MUL: found = in[0] * in[1]; break;
    case IR_FMA: found = in[0] * in[1] + in[2]; break;
    case IR_MIN: found = in[0] < in[1] ? in[0] : in[1]; break;
    case IR_MAX: found = in[0] > in[1] ? in[0] : in[1]; break;
    case IR_AND: found = in[0] < in[1] ? in[0] : in[1]; break;
    case IR_SELECT: found = in[1] > in[2] ? in[1] : in[2]; break;
    case IR_DIV: found = e->code[i->in[1]].op == IR_CONST && in[1] ? in[0] / in[1] : in[0]; break;
    case IR_MOD: found = in[1] && in[1] - 1 < in[0] ? in[1] - 1 : in[0]; break;
    case IR_SHR: found = e->code[i->in[1]].op == IR_CONST ? in[0] >> (in[1] & 31) : in[0]; break;
    case IR_SHL: found = e->code[i->in[1]].op == IR_CONST ? in[0] << (in[1] & 31) : unknown; break;
    }
    return found < unknown ? found : unknown;
}

/* id = a * m + rest, where m is a constant multiple of c and the sum does not wrap. */
static bool is_sum(const pass_edit *e, ir_id id, uint32_t c, ir_id *a, uint32_t *m, ir_id *rest) {
    const ir_instruction *i = &e->code[id];
    if (largest(e, id, DEPTH) >= unknown) return false;
    if (i->op == IR_FMA) {
        *a = i->in[0], *rest = i->in[2];
        return pass_const(e->code, i->in[1], m) && *m && *m % c == 0;
    }
    if (i->op == IR_MUL) {
        *a = i->in[0], *rest = IR_NO_ID;
        return pass_const(e->code, i->in[1], m) && *m && *m % c == 0;
    }
    for (uint32_t side = 0; i->op == IR_ADD && side < 2; side++) {
        const ir_instruction *product = &e->code[i->in[side]];
        if (product->op != IR_MUL || largest(e, i->in[side], DEPTH) >= unknown) continue;
        *a = product->in[0], *rest = i->in[1 - side];
        if (pass_const(e->code, product->in[1], m) && *m && *m % c == 0) return true;
    }
    return false;
}

/* id = a + rest, where a is a multiple of a power of two that divides c, and rest is smaller
 * than that: nothing is carried. The multiple in a larger constant goes to a, which neighbours
 * share. */
static bool is_apart(pass_edit *e, ir_id id, uint32_t c, ir_id *a, ir_id *rest) {
    const ir_instruction *i = &e->code[id];
    uint32_t more;
    if (i->op == IR_ADD && pass_const(e->code, i->in[1], &more)) {
        const ir_id from = i->in[0];
        uint32_t unit = 1;
        while (unit <= 16 && c % (2 * unit) == 0 &&
               pass_multiple(e, e->code, from) % (2 * unit) == 0)
            unit *= 2;
        if (more > unit && more % unit) {
            *a = pass_binary(e, IR_ADD, from, pass_u32(e, more - more % unit));
            *rest = pass_u32(e, more % unit);
            return true;
        }
    }
    for (uint32_t side = 0; i->op == IR_ADD && side < 2; side++) {
        uint64_t least = largest(e, i->in[1 - side], DEPTH), unit = 1;
        while (unit <= least && unit < c) unit *= 2;
        *a = i->in[side], *rest = i->in[1 - side];
        if (unit > least && c % unit == 0 && unit > 1 && pass_multiple(e, e->code, *a) % unit == 0)
            return true;
    }
    return false;
}

/* id = a + rest, where a is a multiple of c and of a power of two that is larger than rest:
 * their quotients can be added. */
static bool is_whole(const pass_edit *e, ir_id id, uint32_t c, ir_id *a, ir_id *rest) {
    const ir_instruction *i = &e->code[id];
    for (uint32_t side = 0; i->op == IR_ADD && side < 2; side++) {
        *a = i->in[side], *rest = i->in[1 - side];
        const uint64_t multiple = pass_multiple(e, e->code, *a);
        if (multiple % c == 0 && largest(e, *rest, DEPTH) < (multiple & (~multiple + 1)))
            return true;
    }
    return false;
}

static ir_id divide(pass_edit *e, ir_id x, uint32_t c);

static ir_id modulo(pass_edit *e, ir_id x, uint32_t c) {
    ir_id a, rest;
    uint32_t m;
    if (largest(e, x, DEPTH) < c) return x;
    if (pass_multiple(e, e->code, x) % c == 0) return pass_u32(e, 0);
    if (is_whole(e, x, c, &a, &rest)) return modulo(e, rest, c);
    if (is_sum(e, x, c, &a, &m, &rest))
        return rest == IR_NO_ID ? pass_u32(e, 0) : modulo(e, rest, c);
    if (is_apart(e, x, c, &a, &rest)) return pass_binary(e, IR_ADD, modulo(e, a, c), rest);
    if (!(c & (c - 1))) return pass_binary(e, IR_AND, x, pass_u32(e, c - 1));
    ir_id whole = divide(e, x, c);
    if (e->code[whole].op == IR_DIV)
        return pass_binary(e, IR_MOD, x, pass_u32(e, c)); /* the dead division goes */
    return pass_binary(e, IR_SUB, x, pass_binary(e, IR_MUL, whole, pass_u32(e, c)));
}

static ir_id divide(pass_edit *e, ir_id x, uint32_t c) {
    ir_id a, rest;
    uint32_t m, shift = 0;
    uint64_t most = largest(e, x, DEPTH);
    if (most < c) return pass_u32(e, 0);
    if (is_sum(e, x, c, &a, &m, &rest)) {
        ir_id whole = pass_binary(e, IR_MUL, a, pass_u32(e, m / c));
        return rest == IR_NO_ID ? whole : pass_binary(e, IR_ADD, whole, divide(e, rest, c));
    }
    if (is_whole(e, x, c, &a, &rest))
        return pass_binary(e, IR_ADD, divide(e, a, c), divide(e, rest, c));
    if (is_apart(e, x, c, &a, &rest)) return divide(e, a, c);
    if (!(c & (c - 1))) {
        while (1u << shift < c) shift++;
        return pass_binary(e, IR_SHR, x, pass_u32(e, shift));
    }
    /* floor(x * f / 2^s) with f = floor(2^s / c) + 1 is exact while x * (f * c - 2^s) < 2^s. */
    for (uint32_t s = 31; s > 0 && most < unknown; s--) {
        uint64_t f = (1ull << s) / c + 1;
        if (most * f >= 1ull << 32 || most * (f * c - (1ull << s)) >= 1ull << s) continue;
        return pass_binary(e, IR_SHR, pass_binary(e, IR_MUL, x, pass_u32(e, (uint32_t)f)),
                           pass_u32(e, s));
    }
    return pass_binary(e, IR_DIV, x, pass_u32(e, c));
}

/* All that the loop's index is for is index * c: then it can count in steps of c itself. 0: it is
 * not. */
static uint32_t scale_of(const pass_edit *e, uint32_t loop) {
    ir_mark_kind kind = ir_mark_of(pass_at(e, loop)).kind;
    uint32_t scale = 0, c, step;
    if (kind == IR_PARALLEL || kind == IR_BLOCK || kind == IR_BY_GROUP)
        return 0; /* others count their turns */
    for (uint32_t i = loop + 1; i < e->close[loop]; i++)
        for (uint32_t a = 0; a < pass_at(e, i)->n_in; a++) {
            const ir_instruction *at = pass_at(e, i);
            if (at->in[a] != loop) continue;
            if (at->op != IR_MUL || a || !pass_const(e->in->code, at->in[1], &c) ||
                (scale && c != scale))
                return 0;
            scale = c;
        }
    if (scale < 2 || !pass_const(e->code, e->map[pass_at(e, loop)->in[2]], &step)) return 0;
    uint64_t last = largest(e, e->map[pass_at(e, loop)->in[1]], DEPTH) +
                    step; /* as ir_ops.h: to + step < 2^32 */
    uint64_t first = largest(e, e->map[pass_at(e, loop)->in[0]], DEPTH);
    return last * scale < unknown && first * scale < unknown ? scale : 0;
}

static void scale_loop(pass_edit *e, uint32_t loop, uint32_t scale) {
    const ir_instruction *at = pass_at(e, loop);
    ir_mark mark = ir_mark_of(at);
    ir_id c = pass_u32(e, scale), bounds[3];
    for (uint32_t n = 0; n < 3; n++) bounds[n] = pass_binary(e, IR_MUL, e->map[at->in[n]], c);
    mark.tile = 0;
    mark.full = false;
    e->map[loop] =
        pass_loop(e, bounds[0], bounds[1], bounds[2], ir_mark_bits(mark, at->imm & 0xffff));
    e->changed = true;
}

/* The product is the index of a loop that counts in such steps. */
static bool is_scaled(const uint32_t *scales, const ir_instruction *at) {
    return at->op == IR_MUL && at->type == IR_U32 && at->width == 1 && scales[at->in[0]];
}

beryl_status ir_pass_strength(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule,
                              const ir_kernel **out, beryl_error *error) {
    pass_edit *e = pass_begin(arena, k, schedule);
    uint32_t *scales = e ? pass_take(e, k->n_code, sizeof *scales) : NULL;
    for (uint32_t i = 0; scales && i < k->n_code && !e->no_memory && !e->too_large; i++) {
        const ir_instruction *at = pass_at(e, i);
        uint32_t c;
        if (at->op == IR_LOOP && (scales[i] = scale_of(e, i)) > 0) {
            scale_loop(e, i, scales[i]);
            continue;
        }
        if (is_scaled(scales, at)) {
            e->map[i] = e->map[at->in[0]];
            continue;
        }
        bool index = (at->op == IR_DIV || at->op == IR_MOD) && at->type == IR_U32 &&
                     at->width == 1 && pass_const(e->code, e->map[at->in[1]], &c) && c;
        if (!index) {
            pass_copy(e, i);
            continue;
        }
        ir_id x = e->map[at->in[0]];
        uint32_t before = e->out.n_code;
        ir_id made = at->op == IR_DIV ? divide(e, x, c) : modulo(e, x, c);
        bool as_it_was = !e->no_memory && e->code[made].op == at->op && e->code[made].in[0] == x;
        if (as_it_was) { /* nothing found: the same constant, the same instruction */
            e->out.n_code = before;
            made = pass_copy(e, i);
        } else e->changed = true;
        e->map[i] = made;
    }
    return pass_end(e, out, error);
}
