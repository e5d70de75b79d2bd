/* look.c - what passes and generators ask of a kernel: which brackets belong together, what is the
 * same in a whole workgroup, and a hash that says whether they have seen it before.
 *
 * Uniformity is a greatest fixpoint: every register array counts as uniform until a store shows
 * otherwise.
 */
#include "ir/ir.h"
#include "base/build.h"

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

/* ---- hash ------------------------------------------------------------------------------------ */

enum { HASH_WORDS = 256 };

typedef struct hashing {
    uint64_t hash, words[HASH_WORDS];
    uint32_t n;
} hashing;

static void hash_flush(hashing *h) {
    h->hash = base_hash(h->words, h->n * sizeof *h->words, h->hash);
    h->n = 0;
}

static void hash_words(hashing *h, const uint64_t *words, uint32_t n) {
    if (h->n + n > HASH_WORDS) hash_flush(h);
    memcpy(h->words + h->n, words, n * sizeof *words);
    h->n += n;
}

static void hash_arrays(hashing *h, const ir_array_decl *a, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t words[] = {a[i].count | (uint64_t)a[i].type << 32,
                                  a[i].swizzle_bits | (uint64_t)a[i].swizzle_base << 8 |
                                      (uint64_t)a[i].swizzle_shift << 16};
        hash_words(h, words, 2);
    }
}

uint64_t ir_hash(const ir_kernel *k, uint64_t seed) {
    hashing h = {.hash = seed};
    const uint64_t counts[] = {k->workgroup[0] | (uint64_t)k->workgroup[1] << 32,
                               k->workgroup[2] | (uint64_t)k->subgroup_size << 32,
                               k->n_buffer | (uint64_t)k->n_param << 32,
                               k->n_workgroup | (uint64_t)k->n_register << 32,
                               k->n_fragment | (uint64_t)k->n_code << 32};
    hash_words(&h, counts, 5);
    for (uint32_t i = 0; i < k->n_buffer; i++) {
        const ir_buffer_decl *d = &k->buffers[i];
        const uint64_t once = BUILD_HAS_C_TEXTS && d->once ? UINT64_C(1) << 40 : 0;
        hash_words(&h, &(uint64_t){d->type | (uint64_t)d->access << 32 | once}, 1);
    }
    for (uint32_t i = 0; i < k->n_param; i++) hash_words(&h, &(uint64_t){k->params[i].type}, 1);
    hash_arrays(&h, k->workgroups, k->n_workgroup);
    hash_arrays(&h, k->registers, k->n_register);
    for (uint32_t i = 0; i < k->n_fragment; i++) {
        const ir_fragment_decl *f = &k->fragments[i];
        const uint64_t words[] = {f->role | (uint64_t)f->type << 32,
                                  f->m | (uint64_t)f->n << 16 | (uint64_t)f->k << 32, f->count};
        hash_words(&h, words, 3);
    }
    for (uint32_t id = 0; id < k->n_code; id++) {
        const ir_instruction *i = &k->code[id];
        const uint64_t words[] = {
            i->op | (uint64_t)i->type << 8 | (uint64_t)i->width << 16 | (uint64_t)i->n_in << 24 |
                (uint64_t)i->space << 32 | (uint64_t)i->array << 40,
            i->in[0] | (uint64_t)i->in[1] << 32, i->in[2] | (uint64_t)i->in[3] << 32, i->imm};
        hash_words(&h, words, 4);
    }
    hash_flush(&h);
    return h.hash;
}
