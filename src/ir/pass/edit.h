/* edit.h - what all passes are written with: the old kernel, looked at, and the new one, growing.
 *
 * The idea: a pass walks the old kernel once and pushes instructions of the new one; map[] says for
 * each old instruction which new one holds its value. A value lives in its block alone, so a block
 * may be copied any number of times, each time over the same entries of the map. Errors stay in the
 * edit (no memory, a kernel grown too large: the old one is kept), so no call needs a check. */
#ifndef IR_PASS_EDIT_H
#define IR_PASS_EDIT_H

#include "ir/pass/pass.h"

typedef struct pass_edit {
    base_arena *arena; /* of the result; borrowed */
    base_arena scratch;
    const ir_kernel *in;
    const ir_schedule *schedule; /* borrowed */
    ir_kernel out;
    ir_instruction *code; /* [out.n_code], in the scratch arena */
    uint32_t capacity;
    ir_array_decl registers[IR_ARRAY_MAX], workgroups[IR_ARRAY_MAX];
    ir_fragment_decl fragments[IR_ARRAY_MAX];
    uint32_t *map;   /* [in->n_code] new id */
    uint32_t *close; /* [in->n_code] of loop and if: its end; of else: its if; of end: its opener */
    uint32_t *middle; /* [in->n_code] of if: its else, or IR_NO_ID */
    uint32_t
        *parent; /* [in->n_code] the loop or if around it, or IR_NO_ID. Of end: as its opener's */
    bool no_memory, too_large;
    bool changed; /* set by the pass; else the result is the old kernel */
} pass_edit;

/* NULL: no memory. */
pass_edit *pass_begin(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule);
/* Frees the edit. A pass that changed nothing, or grew the kernel over a bound, gives the old
 * kernel. */
beryl_status pass_end(pass_edit *e, const ir_kernel **out, beryl_error *error);
void *pass_take(pass_edit *e, size_t count,
                size_t size); /* zeroed scratch; NULL: no memory (kept) */

/* ---- pushing --------------------------------------------------------------------------------- */
ir_id pass_push(pass_edit *e, ir_instruction i);
/* The old instruction with its operands as the map says; sets its entry. */
ir_id pass_copy(pass_edit *e, uint32_t i);
void pass_copy_range(pass_edit *e, uint32_t first, uint32_t last); /* [first, last) */
/* As pass_copy_range, stores to buffers and atomics under `if condition`. */
void pass_copy_guarded(pass_edit *e, uint32_t first, uint32_t last, ir_id condition);
ir_id pass_u32(pass_edit *e, uint32_t value);
ir_id pass_bits(pass_edit *e, ir_type type, uint32_t width, uint64_t bits);
ir_id pass_binary(pass_edit *e, ir_op op, ir_id a, ir_id b); /* of u32 constants: computed */
ir_id pass_axis(pass_edit *e, ir_op op, uint32_t axis);      /* local, group, groups */
ir_id pass_lane_number(pass_edit *e);                        /* over all axes */
ir_id pass_loop(pass_edit *e, ir_id from, ir_id to, ir_id step, uint64_t imm);
void pass_if(pass_edit *e, ir_id condition);
void pass_close(pass_edit *e);
ir_id pass_load(pass_edit *e, ir_type type, uint32_t width, ir_memory from, ir_id index);
void pass_store(pass_edit *e, ir_memory to, ir_id index, ir_id value);
void pass_barrier(pass_edit *e);
/* A further array; array UINT16_MAX: there are too many (the edit is then too large). */
ir_memory pass_register(pass_edit *e, ir_type type, uint32_t count);
ir_memory pass_workgroup(pass_edit *e, ir_type type, uint32_t count);

/* ---- looking (ids of the old kernel) --------------------------------------------------------- */
static inline const ir_instruction *pass_at(const pass_edit *e, uint32_t i) {
    return &e->in->code[i];
}
static inline uint32_t pass_flags(const ir_instruction *i) {
    return ir_op_of((ir_op)i->op)->flags;
}
bool pass_const(const ir_instruction *code, ir_id id, uint32_t *value); /* a u32, width 1 */
/* Is `inner` inside the block that the loop or if `outer` opens? */
static inline bool pass_inside(const pass_edit *e, uint32_t inner, uint32_t outer) {
    return inner > outer && inner < e->close[outer];
}
/* A store to a buffer, an atomic, anything that the world sees. */
bool pass_is_effect(const ir_instruction *i);
/* uses[n_code]: how many operands name it. */
uint32_t *pass_uses(pass_edit *e);
typedef struct pass_buffers {
    bool written[IR_BUFFER_MAX], loaded[IR_BUFFER_MAX];
} pass_buffers;
/* What [first, last) does with the buffers. */
pass_buffers pass_buffers_of(const pass_edit *e, uint32_t first, uint32_t last);
/* lanes[n_code]: bits of the axes (1 2 4; all for subgroup lanes) that the value depends on, or
 * that decide whether the block is run. NULL: no memory. */
uint8_t *pass_lanes(pass_edit *e);
/* The largest number that is known to divide a u32 value of `code`. */
uint64_t pass_multiple(const pass_edit *e, const ir_instruction *code, ir_id id);
/* What the rest is a multiple of, if the value is the loop's index and something that stays the
 * same (in aligned blocks of as many turns); 0: it is not. */
uint64_t pass_multiple_beside(const pass_edit *e, ir_id id, ir_id loop);
/* Is to - from of a loop (ids of `code`) known to be a multiple of n? */
bool pass_count_multiple(const pass_edit *e, const ir_instruction *code, ir_id from, ir_id to,
                         uint32_t n);
/* Something that passes must not put more lanes around: barriers, workgroup arrays, atomics whose
 * result is used. */
bool pass_is_closed(pass_edit *e);
/* Can effects outside the loops for which is_spread[loop] be left to one lane or group, with the
 * loops spread? Every buffer that is written and loaded must be touched inside one of them alone.
 */
bool pass_may_spread(pass_edit *e, const bool *is_spread);

/* Does the loop load what the kernel writes? Then an iteration must not be repeated by another
 * lane. */
bool pass_loads_written(const pass_edit *e, uint32_t loop);
/* How many lanes the schedule gives an axis. */
uint32_t pass_lanes_of_axis(const ir_schedule *s, uint32_t axis);
/* chosen[n_code]: parallel loops that `wants` names, the outermost ones. False: there are none. */
bool pass_choose(const pass_edit *e, bool *chosen,
                 bool (*wants)(const pass_edit *e, ir_mark mark, uint32_t axis), uint32_t axis);

#endif
