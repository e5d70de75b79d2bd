/* look.c - what passes and generators ask of a kernel: which brackets belong together, and what is
 * the same in a whole workgroup.
 *
 * Uniformity is a greatest fixpoint: every register array counts as uniform until a store shows
 * otherwise.
 */
#include "ir/ir.h"

#include <assert.h>
#include <string.h>

void ir_blocks(const ir_kernel *k, uint32_t *next) {
    uint32_t opener[IR_DEPTH_MAX], last[IR_DEPTH_MAX], depth = 0;
    for (uint32_t id = 0; id < k->n_code; id++) {
        ir_op op = (ir_op)k->code[id].op;
        next[id] = IR_NO_ID;
        if (op == IR_LOOP || op == IR_IF) {
            assert(depth < IR_DEPTH_MAX);
            opener[depth] = last[depth] = id;
            depth++;
        } else if (op == IR_ELSE) {
            assert(depth);
            next[last[depth - 1]] = id;
            last[depth - 1] = id;
        } else if (op == IR_END) {
            assert(depth);
            depth--;
            next[last[depth]] = id;
            next[id] = opener[depth];
        }
    }
}

static bool operands_uniform(const ir_instruction *i, const bool *uniform) {
    for (uint32_t n = 0; n < i->n_in; n++)
        if (i->in[n] != IR_NO_ID && !uniform[i->in[n]]) return false;
    return true;
}

static bool value_uniform(const ir_kernel *k, const ir_instruction *i, const bool *uniform,
                          const bool *registers) {
    const ir_op_info *info = ir_op_of((ir_op)i->op);
    if (info->flags & IR_SAME_IN_GROUP) return true;
    if (i->op == IR_LOCAL || i->op == IR_SUBGROUP_LANE) return false;
    if (info->flags & IR_PURE || i->op == IR_LOOP) return operands_uniform(i, uniform);
    if (i->op != IR_LOAD || !operands_uniform(i, uniform)) return false;
    if (i->space == IR_BUFFER)
        return i->array < k->n_buffer && k->buffers[i->array].access == IR_READ;
    return i->space == IR_REGISTER && i->array < k->n_register && registers[i->array];
}

/* One walk; true: a register array is no longer uniform, and what was said before it may be wrong.
 */
static bool walk(const ir_kernel *k, bool *uniform, bool *registers) {
    bool outer[IR_DEPTH_MAX + 1], now = true, changed = false;
    uint32_t depth = 0;
    for (uint32_t id = 0; id < k->n_code; id++) {
        const ir_instruction *i = &k->code[id];
        if (i->op == IR_LOOP || i->op == IR_IF) {
            outer[depth++] = now;
            now = now && operands_uniform(i, uniform);
            uniform[id] = now;
        } else if (i->op == IR_ELSE) {
            uniform[id] = now;
        } else if (i->op == IR_END) {
            now = outer[--depth];
            uniform[id] = now;
        } else {
            uniform[id] = value_uniform(k, i, uniform, registers);
        }
        if (i->op == IR_STORE && i->space == IR_REGISTER && i->array < k->n_register &&
            registers[i->array] && !(now && operands_uniform(i, uniform))) {
            registers[i->array] = false;
            changed = true;
        }
    }
    return changed;
}

void ir_uniform(const ir_kernel *k, bool *uniform) {
    bool registers[IR_ARRAY_MAX];
    memset(registers, true, sizeof registers);
    while (walk(k, uniform, registers)) {}
}
