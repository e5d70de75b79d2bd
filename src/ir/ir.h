/* ir.h - the kernel IR: what every kernel is before it is text.
 *
 * Owns the form of a kernel, and what is the same for all languages: builder, verifier, printer,
 * parser, interpreter. Refuses everything that a language could take in two ways: the interpreter
 * fixes the meaning, generators follow it. The idea: a kernel is declarations and one flat list of
 * instructions. An instruction's id is its index (SSA); `loop .. end` and `if .. else .. end` are
 * brackets in the list; there are no phis: what changes in a loop lives in a register array. Every
 * lane of a workgroup runs the list.
 *
 * y[i] = 2 * x[i] (errors stay in the builder until ir_finish, so no call needs a check; C
 * leaves open which of two nested calls is made first, so two effects stand in two lines):
 *
 *     ir_builder *b = ir_begin(&arena, "twice", 64, 1, 1);
 *     ir_memory x = ir_buffer(b, IR_F32, IR_READ, "x");
 *     ir_memory y = ir_buffer(b, IR_F32, IR_READ_WRITE, "y");
 *     ir_id n = ir_param(b, IR_U32, "n");
 *     ir_id i = ir_fma(b, ir_group(b, 0), ir_u32(b, 64), ir_local(b, 0));
 *     ir_if(b, ir_lt(b, i, n));
 *     ir_store(b, y, i, ir_mul(b, ir_load(b, x, i, 1), ir_f32(b, 2)));
 *     ir_end(b);
 *     status = ir_finish(b, &kernel, &error); // verified
 *
 * Values. A value is a vector of width 1, 2, 4, 8 or 16 of one type; ops work lane by lane ("lane"
 * of a vector is always said so; a bare lane is an invocation). Operands have the same width as the
 * result unless the form below says otherwise; nothing widens by itself (ir_splat). Integers wrap.
 * f16 and bf16 are computed in f32 and rounded to the type after each op. NaN has no payload. bool
 * has no form in memory: cast it to u8 or u32. A value may be used from its instruction to the end
 * of the block (loop, if, else) that holds it.
 *
 * Memory. Buffers (global), workgroup arrays and register arrays (one per lane) have elements of
 * one type; the index is in elements, u32 or u64, and a multiple of the access's width, but for
 * loads and stores `anywhere`, which only processors have (imm 1). A buffer of
 * 8- or 16-bit elements has a size that is a multiple of 4 bytes, and two lanes may write
 * neighbouring elements of it. Workgroup and register arrays begin undefined. Workgroup arrays are
 * ordered between lanes by `barrier` alone, buffers by nothing but atomics: everything else that
 * touches one element from two lanes, one of them writing, is a race (the interpreter says so). A
 * workgroup array may have a swizzle (bits, base, shift), which changes where element i lies but no
 * meaning: i ^ ((i >> (base + shift) & ((1 << bits) - 1)) << base).
 *
 * Lanes. Lane number = x + size_x * (y + size_y * z); subgroup s is the lanes s * subgroup_size and
 * on. Ops marked IR_TOGETHER must be reached by the whole workgroup: the verifier accepts them only
 * where every condition and loop bound around them is the same in the whole group as ir_uniform
 * sees it.
 *
 * Fragments. Matrices held by a subgroup together, declared like register arrays: fragment_*
 * instructions name the declaration, their first operands are the places in it (u32, the same in
 * the subgroup; constants once unrolled).
 *
 * Printed form: one declaration or instruction a line, `;` begins a comment. ir_parse(ir_print(k))
 * is k again.
 *
 *     kernel "add" workgroup 64 1 1 subgroup 32
 *       buffer 0 read f32 "x"
 *       param 0 u32 "n"
 *       workgroup 0 f32 256 swizzle 3 3 3
 *       register 0 f32 4
 *       fragment 0 a f16 16 8 16 count 2
 *       %0 = group u32 x
 *       %1 = const u32 64
 *       %2 = load f32x4 buffer 0 %1
 *       store register 0 %1 %2            ; no result, but it has the id 3
 *
 * Memory of kernels comes from the caller's arena. A finished kernel is not changed; a pass builds
 * another (ir_begin_like). Threads: none of these functions has state.
 */
#ifndef IR_IR_H
#define IR_IR_H

#include "base/memory.h"
#include "ir/ir_ops.h"

typedef enum ir_type { /* IR_F32 .. IR_BOOL; IR_NONE: no result */
#define X(NAME, name, bytes) IR_##NAME,
                       IR_TYPE_LIST(X)
#undef X
                           IR_TYPE_COUNT
} ir_type;

typedef enum ir_op { /* IR_ADD .. */
#define X(NAME, ...) IR_##NAME,
                     IR_OP_LIST(X)
#undef X
                         IR_OP_COUNT
} ir_op;

/* Sets of types, as bits 1 << type. */
enum {
    IR_FLOATS = 1 << IR_F32 | 1 << IR_F16 | 1 << IR_BF16 | 1 << IR_F64,
    IR_SIGNED = 1 << IR_I8 | 1 << IR_I16 | 1 << IR_I32 | 1 << IR_I64,
    IR_UNSIGNED = 1 << IR_U8 | 1 << IR_U16 | 1 << IR_U32 | 1 << IR_U64,
    IR_BOOLS = 1 << IR_BOOL,
    IR_INTEGERS = IR_SIGNED | IR_UNSIGNED,
    IR_NUMBERS = IR_INTEGERS | IR_FLOATS,
    IR_ANY = IR_NUMBERS | IR_BOOLS,
    IR_I32S = 1 << IR_I32,
    IR_U32S = 1 << IR_U32,
    IR_WORDS = 1 << IR_F32 | IR_I32S | IR_U32S
};

enum {
    IR_PURE = 1,           /* may be left out, repeated, moved anywhere its operands are */
    IR_READS = 2,          /* memory: keeps its order against what writes */
    IR_WRITES = 4,         /* memory: may not be left out */
    IR_TOGETHER = 8,       /* the whole workgroup must reach it */
    IR_BARS = 16,          /* holds a barrier */
    IR_SAME_IN_GROUP = 32, /* its result is the same in the whole workgroup */
    IR_OPENS = 64,         /* begins a block */
    IR_CLOSES = 128        /* ends one */
};

/* What an instruction consists of; T: its type, W: its width. */
typedef enum ir_form {
    IR_FORM_CONST,   /* imm: the bits of one lane */
    IR_FORM_PARAM,   /* array: number of the parameter; width 1 */
    IR_FORM_INDEX,   /* u32, width 1 */
    IR_FORM_AXIS,    /* u32, width 1, imm: 0 1 2 */
    IR_FORM_SAME,    /* operands TxW */
    IR_FORM_COMPARE, /* bool; operands of one type of the op's set, width W */
    IR_FORM_SELECT,  /* boolxW, TxW, TxW */
    IR_FORM_DOT,     /* u32xW, u32xW, i32xW */
    IR_FORM_CAST,    /* any type, width W */
    IR_FORM_BITCAST, /* any number type; as many bits in all */
    IR_FORM_SPLAT,   /* T, width 1 */
    IR_FORM_EXTRACT, /* width 1; operand of T, any width; imm: which lane */
    IR_FORM_COMPOSE, /* 2 or 4 operands of T, width W / 2 or W / 4 */
    IR_FORM_SWIZZLE, /* operand of T, any width; imm: 4 bits a lane of the result, lane 0 lowest */
    IR_FORM_LOAD,    /* space, array; index */
    IR_FORM_STORE,   /* space, array; index, value; type and width of the value, no result */
    IR_FORM_ATOMIC,  /* space (not register), array; index, value T; width 1 */
    IR_FORM_LANE,    /* TxW; imm: the lane, or the mask of shuffle_xor, below subgroup_size */
    IR_FORM_FRAGMENT_FILL, /* array: fragment; place, value T */
    /* imm: fragment | transposed << 16 | pairs << 17; space (not register), array; place, index,
     * stride (u32) */
    IR_FORM_FRAGMENT_LOAD,
    IR_FORM_FRAGMENT_STORE, /* as FRAGMENT_LOAD, without pairs */
    IR_FORM_FRAGMENT_MMA,   /* imm: c | a << 16 | b << 32, fragments; places in c, a, b */
    /* imm: c | a turned << 16 | b turned << 17 | a held << 18 | fresh << 19 | steps << 24 | a << 32
     * where it is held; workgroup, array; index of a, or its first place, index of b (u32) */
    IR_FORM_FRAGMENT_MULTIPLY,
    IR_FORM_FRAGMENT_GET, /* imm: fragment | pair << 16; place; width 2, subgroups of 32 */
    IR_FORM_FRAGMENT_SET, /* the same; place, value */
    /* array: workgroup array; imm: buffer | bytes << 16; index there, index in the buffer, bool or
     * none. Both arrays have one type; both indices are multiples of the bytes */
    IR_FORM_COPY_ASYNC,
    IR_FORM_COUNT, /* imm: a number */
    /* u32, width 1; from, to, step (u32); imm: how often to unroll (lower 16 bits; 0: as the
     * generator likes), above it the loop's mark, which only passes read (ir/pass/pass.h) */
    IR_FORM_LOOP,
    IR_FORM_IF,  /* bool, width 1 */
    IR_FORM_BARE /* nothing */
} ir_form;

/* How generated code may differ from the interpreter. */
typedef enum ir_exact {
    IR_EXACT, /* not at all (bits of NaN and subnormal results of devices without them aside) */
    IR_NEAR,  /* a few units in the last place */
    IR_LOOSE  /* by what the language's own function allows: 1e-3 in the worst case, see meaning */
} ir_exact;

/* Templates of the op as an expression (their syntax: ir_ops.h). */
typedef struct ir_op_text {
    const char *any;       /* for every type that has none of its own; NULL: the op has no text */
    const char *f, *s, *b; /* floats, signed integers, bool; NULL: as any */
    const char *wide;      /* WGSL's i64 and u64, which are pairs of u32; NULL: as other integers */
    uint32_t narrow;       /* types that the result may not fit: it is rounded or cut; a set */
} ir_op_text;

typedef struct ir_op_info {
    const char *name;
    ir_form form;
    uint8_t n_in;   /* operands; compose and copy_async may have fewer */
    uint32_t types; /* of the result (compare: of the operands), a set */
    uint32_t flags;
    ir_exact exact;
    const char *meaning;
    ir_op_text text;
} ir_op_info;

const ir_op_info *ir_op_of(ir_op op);
const char *ir_type_name(ir_type type);
uint32_t ir_type_bytes(ir_type type); /* none, bool: 0 */
static inline bool ir_type_in(ir_type type, uint32_t set) {
    return set >> type & 1;
}

typedef uint32_t ir_id;
#define IR_NO_ID UINT32_MAX

typedef enum ir_space { IR_BUFFER, IR_WORKGROUP, IR_REGISTER } ir_space;
typedef enum ir_access {
    IR_READ,
    IR_READ_WRITE,
    IR_WRITE_PAST /* the same; it is so large that what is written need not stay in caches */
} ir_access;
typedef enum ir_role { IR_ROLE_A, IR_ROLE_B, IR_ROLE_C } ir_role; /* a[m, k], b[k, n], c[m, n] */

enum {
    IR_BUFFER_MAX = 16,    /* as DEVICE_BINDING_MAX */
    IR_PARAM_MAX = 64,     /* words; DEVICE_PARAM_MAX bytes */
    IR_ARRAY_MAX = 256,    /* workgroup arrays, register arrays, fragments: of each */
    IR_LANES_MAX = 1024,   /* of a workgroup */
    IR_NAME_MAX = 63,      /* bytes of a name: a letter or _, then letters, digits, _ */
    IR_CODE_MAX = 1 << 18, /* instructions */
    IR_DEPTH_MAX = 64,     /* blocks inside each other */
    IR_WORKGROUP_BYTES_MAX = 1 << 20,
    IR_REGISTER_BYTES_MAX = 1 << 16 /* per lane, all arrays; fragments too, counted whole */
};

typedef struct ir_instruction {
    uint8_t op;          /* ir_op */
    uint8_t type, width; /* ir_type; IR_NONE and 0 where there is no result (store: of the value) */
    uint8_t n_in;        /* operands in use */
    uint8_t space;       /* ir_space */
    uint16_t array;      /* number of the buffer, array, parameter or fragment, by form */
    ir_id in[4];         /* unused ones: IR_NO_ID */
    uint64_t imm;        /* by form */
} ir_instruction;

typedef struct ir_buffer_decl {
    const char *name;
    ir_type type;
    ir_access access;
    bool once; /* IR_READ: each element is read once, so that caches need not keep it */
} ir_buffer_decl;
typedef struct ir_param_decl { /* word n of the params block */
    const char *name;
    ir_type type; /* f32 i32 u32 */
} ir_param_decl;
typedef struct ir_array_decl {
    ir_type type;
    uint32_t count;                                    /* elements; registers: per lane */
    uint8_t swizzle_bits, swizzle_base, swizzle_shift; /* workgroup arrays alone; bits 0: none */
} ir_array_decl;
typedef struct ir_fragment_decl {
    ir_role role;
    ir_type type;
    uint16_t m, n, k; /* of the whole product */
    uint32_t count;
} ir_fragment_decl;

typedef struct ir_kernel {
    const char *name;
    uint32_t workgroup[3];
    /* A power of two that the lanes of a workgroup are a multiple of; 0: uses no subgroup op. */
    uint32_t subgroup_size;
    const ir_buffer_decl *buffers; /* [n_buffer], in binding order */
    const ir_param_decl *params;   /* [n_param] */
    const ir_array_decl *workgroups, *registers;
    const ir_fragment_decl *fragments;
    const ir_instruction *code; /* [n_code] */
    uint32_t n_buffer, n_param, n_workgroup, n_register, n_fragment, n_code;
} ir_kernel;

static inline uint32_t ir_lanes(const ir_kernel *k) {
    return k->workgroup[0] * k->workgroup[1] * k->workgroup[2];
}
static inline bool ir_has_result(const ir_instruction *i) {
    return i->type != IR_NONE && i->op != IR_STORE;
}

/* ---- building -------------------------------------------------------------------------------- */

typedef struct ir_builder ir_builder;
typedef struct ir_memory { /* a buffer or an array; four bytes, since it is passed by value */
    uint8_t space;
    bool anywhere; /* vectors may begin at any element: in texts for processors alone */
    uint16_t array;
} ir_memory;
typedef struct ir_fragments {
    uint16_t array;
} ir_fragments;

/* The first mistake (or lack of memory) is kept with the instruction's number; from then on every
 * call does nothing and gives IR_NO_ID. name is copied. ir_begin is NULL where there is no memory,
 * which every call takes. */
ir_builder *ir_begin(base_arena *arena, const char *name, uint32_t x, uint32_t y, uint32_t z);
/* The same declarations, no instructions yet. */
ir_builder *ir_begin_like(base_arena *arena, const ir_kernel *k);
/* Runs ir_verify. */
beryl_status ir_finish(ir_builder *b, const ir_kernel **out, beryl_error *error);
/* The same without ir_verify, which the caller runs before anything but ir_hash sees the kernel. */
beryl_status ir_take(ir_builder *b, const ir_kernel **out, beryl_error *error);

void ir_subgroup(ir_builder *b, uint32_t size);
ir_memory ir_buffer(ir_builder *b, ir_type type, ir_access access, const char *name);
void ir_buffer_once(ir_builder *b, ir_memory buffer); /* one of IR_READ */
ir_memory ir_workgroup(ir_builder *b, ir_type type, uint32_t count);
ir_memory ir_workgroup_swizzled(ir_builder *b, ir_type type, uint32_t count, uint8_t bits,
                                uint8_t base, uint8_t shift);
ir_memory ir_register(ir_builder *b, ir_type type, uint32_t count);
ir_fragments ir_fragment(ir_builder *b, ir_role role, ir_type type, uint16_t m, uint16_t n,
                         uint16_t k, uint32_t count);
/* Declares it and gives its value; before any block. */
ir_id ir_param(ir_builder *b, ir_type type, const char *name);
void ir_param_declare(ir_builder *b, ir_type type, const char *name);
ir_id ir_param_again(ir_builder *b, uint32_t number);   /* its value, anywhere */
ir_memory ir_memory_at(ir_space space, uint32_t array); /* what ir_begin_like has declared */

beryl_status ir_status(const ir_builder *b);
uint32_t ir_count(const ir_builder *b); /* instructions so far: the next id */
/* Borrowed until the next instruction; NULL: none. */
const ir_instruction *ir_at(const ir_builder *b, ir_id id);
/* As it is, for passes; ir_finish checks it. */
ir_id ir_emit(ir_builder *b, ir_instruction i);

ir_id ir_f32(ir_builder *b, float value);
ir_id ir_u32(ir_builder *b, uint32_t value);
ir_id ir_i32(ir_builder *b, int32_t value);
ir_id ir_bool(ir_builder *b, bool value);
/* As cast would round it from f64. */
ir_id ir_number(ir_builder *b, ir_type type, uint32_t width, double value);
/* Bits of the type, upper ones 0. */
ir_id ir_bits(ir_builder *b, ir_type type, uint32_t width, uint64_t bits);

ir_id ir_group(ir_builder *b, uint32_t axis);
ir_id ir_groups(ir_builder *b, uint32_t axis);
ir_id ir_local(ir_builder *b, uint32_t axis);
ir_id ir_subgroup_lane(ir_builder *b);
ir_id ir_subgroup_size(ir_builder *b);

/* ir_neg(b, x), ir_add(b, x, y), ir_lt(b, x, y), ir_subgroup_add(b, x) ... */
#define X(NAME, name, ...) ir_id ir_##name(ir_builder *b, ir_id x);
IR_UNARY_LIST(X)
#undef X
#define X(NAME, name, ...) ir_id ir_##name(ir_builder *b, ir_id x, ir_id y);
IR_BINARY_LIST(X)
IR_COMPARE_LIST(X)
#undef X
ir_id ir_unary(ir_builder *b, ir_op op, ir_id x);
ir_id ir_binary(ir_builder *b, ir_op op, ir_id x, ir_id y); /* comparisons too */
ir_id ir_is_nan(ir_builder *b, ir_id x);
ir_id ir_fma(ir_builder *b, ir_id x, ir_id y, ir_id z);
ir_id ir_select(ir_builder *b, ir_id condition, ir_id x, ir_id y);
ir_id ir_dot4_i8(ir_builder *b, ir_id x, ir_id y, ir_id sum);
ir_id ir_dot4_u8(ir_builder *b, ir_id x, ir_id y, ir_id sum);
ir_id ir_permute_bytes(ir_builder *b, ir_id x, ir_id y, ir_id places);
ir_id ir_cast(ir_builder *b, ir_type type, ir_id x); /* x itself where it has the type */
ir_id ir_bitcast(ir_builder *b, ir_type type, uint32_t width, ir_id x);

ir_id ir_splat(ir_builder *b, ir_id x, uint32_t width); /* x itself for its own width */
ir_id ir_extract(ir_builder *b, ir_id x, uint32_t lane);
/* n: 2 4 8 16; n times their width at most 16. */
ir_id ir_compose(ir_builder *b, const ir_id *parts, uint32_t n);
ir_id ir_swizzle(ir_builder *b, ir_id x, uint32_t width, uint64_t lanes);

ir_id ir_load(ir_builder *b, ir_memory from, ir_id index, uint32_t width);
void ir_store(ir_builder *b, ir_memory to, ir_id index, ir_id value);
ir_id ir_uniform_load(ir_builder *b, ir_memory workgroup, ir_id index);
ir_id ir_atomic(ir_builder *b, ir_op op, ir_memory at, ir_id index, ir_id value);
ir_id ir_get(ir_builder *b, ir_memory reg); /* element 0 of a register array: a variable */
void ir_set(ir_builder *b, ir_memory reg, ir_id value);
void ir_barrier(ir_builder *b);

ir_id ir_subgroup_add(ir_builder *b, ir_id x);
ir_id ir_subgroup_min(ir_builder *b, ir_id x);
ir_id ir_subgroup_max(ir_builder *b, ir_id x);
ir_id ir_subgroup_broadcast(ir_builder *b, ir_id x, uint32_t lane);
ir_id ir_subgroup_shuffle_xor(ir_builder *b, ir_id x, uint32_t mask);

void ir_fragment_fill(ir_builder *b, ir_fragments f, ir_id place, ir_id value);
void ir_fragment_load(ir_builder *b, ir_fragments f, ir_id place, ir_memory from, ir_id index,
                      ir_id stride, bool transposed);
void ir_fragment_load_pairs(ir_builder *b, ir_fragments f, ir_id place, ir_memory from, ir_id index,
                            ir_id stride);
void ir_fragment_store(ir_builder *b, ir_fragments f, ir_id place, ir_memory to, ir_id index,
                       ir_id stride, bool transposed);
void ir_fragment_mma(ir_builder *b, ir_fragments c, ir_id c_place, ir_fragments a, ir_id a_place,
                     ir_fragments right, ir_id right_place);
/* FRAGMENT_MULTIPLY, a and b as they lie; held: a from place 0 on, b turned. */
void ir_fragment_multiply(ir_builder *b, ir_fragments c, ir_memory at, ir_id a, ir_id right,
                          bool from_zero, uint32_t steps);
void ir_fragment_multiply_held(ir_builder *b, ir_fragments c, ir_fragments a, ir_memory at,
                               ir_id right, uint32_t steps);
void ir_fragment_wait(ir_builder *b, uint32_t under_way);
/* A lane's own pair of a place: FRAGMENT_GET's meaning says which elements. */
ir_id ir_fragment_get(ir_builder *b, ir_fragments f, ir_id place, uint32_t pair);
void ir_fragment_set(ir_builder *b, ir_fragments f, ir_id place, uint32_t pair, ir_id value);
/* valid: IR_NO_ID: always. */
void ir_copy_async(ir_builder *b, ir_memory workgroup, ir_id to, ir_memory buffer, ir_id from,
                   uint32_t bytes, ir_id valid);
void ir_copy_commit(ir_builder *b);
void ir_copy_wait(ir_builder *b, uint32_t under_way);

ir_id ir_loop(ir_builder *b, ir_id from, ir_id to, ir_id step); /* its index */
/* times: a hint for the generator. */
ir_id ir_loop_unrolled(ir_builder *b, ir_id from, ir_id to, ir_id step, uint32_t times);
void ir_if(ir_builder *b, ir_id condition);
void ir_else(ir_builder *b);
void ir_end(ir_builder *b);

/* ---- looking --------------------------------------------------------------------------------- */

/* error->at is the instruction. BERYL_BAD_INPUT: names the rule that is broken. */
beryl_status ir_verify(base_heap *heap, const ir_kernel *k, beryl_error *error);
/* For each instruction that opens or closes a block the next of that block (loop: its end; if: its
 * else or end; else: its end) in next[n_code], for an end its opener (loop or if); others IR_NO_ID.
 * k is well bracketed (verified). */
void ir_blocks(const ir_kernel *k, uint32_t *next);
/* uniform[n_code]: the value is the same in all lanes of a workgroup; of loop, if, else and end:
 * the whole workgroup runs what is inside, or what follows, or nobody does. Loads from read-only
 * buffers and from register arrays that only ever get such values count. k is
 * verified, or about to be: bracketed and with good ids. */
void ir_uniform(const ir_kernel *k, bool *uniform);

/* Of everything but names: kernels of one hash compute the same. */
uint64_t ir_hash(const ir_kernel *k, uint64_t seed);
void ir_print(base_text *text, const ir_kernel *k);
/* One instruction, no line's end. */
void ir_print_one(base_text *text, const ir_kernel *k, ir_id id);
/* Hostile text is fine. BAD_INPUT: error->at is the byte. The kernel is verified. */
beryl_status ir_parse(base_arena *arena, const char *text, size_t size, const ir_kernel **out,
                      beryl_error *error);
/* A double exactly, as constants are written: 12, -0x1.8p+1, inf. Not a number has no such form. */
void ir_print_float(base_text *text, double value);
bool ir_parse_float(base_view word, double *value); /* all of the word; false: no such number */

/* ---- meaning --------------------------------------------------------------------------------- */

/* One vector lane of a pure op of the forms SAME, COMPARE, SELECT, DOT, CAST: bits of the operands
 * (of type in_type; select: the type of x and y) to bits of the result. What the interpreter does
 * and what constant folding must do. */
uint64_t ir_evaluate(ir_op op, ir_type type, ir_type in_type, const uint64_t *in);
double ir_to_double(ir_type type, uint64_t bits);    /* any number or bool; i64, u64 rounded */
uint64_t ir_from_double(ir_type type, double value); /* as cast */

typedef struct ir_run {
    struct {
        void *data;
        uint64_t size;
    } buffers[IR_BUFFER_MAX];      /* bytes; not written where access is read. Aligned to 16 */
    uint32_t params[IR_PARAM_MAX]; /* words */
    uint32_t groups[3];
    uint64_t limit; /* instructions run, times lanes; beyond: UNSUPPORTED. 0: none */
    bool no_races;  /* looks neither for races nor for undefined workgroup memory */
} ir_run;
/* Runs the whole dispatch, workgroups in order, lanes in lockstep. BAD_INPUT with error->at the
 * instruction and the lane, index and buffer in the message: an index outside or not a multiple of
 * the width, undefined memory read, a race, a subgroup or barrier op that not all lanes reach, step
 * 0. k is verified. */
beryl_status ir_interpret(base_heap *heap, const ir_kernel *k, const ir_run *run,
                          beryl_error *error);

#endif
