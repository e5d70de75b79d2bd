/* write.h - what the generators share: the walker, the expressions, the helper functions of
 * generated texts.
 *
 * Values. Vectors are written lane by lane, as scalars: only loads and stores are wide. A lane of a
 * value has a text (its name, or a literal), which may be that of another value: extract, swizzle,
 * compose, splat write nothing. A value is held as its carrier: f32 for f16 and bf16 (rounded after
 * each op), i32 and u32 for the narrow integers (cut after each op).
 *
 * Expressions and helper functions are written once, in WGSL's syntax (codegen_expression,
 * helpers.c); for the others codegen_translate turns `let x: T =`, `fn f(x: T) -> R`, `T(x)`,
 * `bitcast<T>(x)` and `select(f, t, c)` into C. */
#ifndef CODEGEN_WRITE_H
#define CODEGEN_WRITE_H

#include "codegen/codegen.h"

typedef struct codegen codegen;

typedef struct codegen_language_info {
    const char *name;
    device_language language;
    bool wgsl;         /* WGSL's declarations, 64-bit integers as vec2<u32>; else C's */
    bool wide_index;   /* an index that cannot wrap is written as a sum of 64 bits */
    const char *types; /* the text that every source begins with */
    const char *barrier;
    const char *unroll;              /* with %u for the count; NULL: none */
    const char *shuffle, *broadcast; /* subgroup ops, see walk.c */
    const char *reduce_add; /* the sum over a subgroup as the device has it; NULL: by shuffles */
    /* The lvalue of element `index + more` of an array, as C would write it, on `text`. */
    void (*place)(codegen *g, base_text *text, ir_space space, uint32_t array, const char *index,
                  uint32_t more);
    /* Of load, uniform_load (the barriers are there) and what goes without a name: expressions,
     * used once each. */
    void (*load)(codegen *g, const ir_instruction *i, const char *index, const char **values);
    /* values: texts [width]. */
    void (*store)(codegen *g, const ir_instruction *i, const char *index,
                  const char *const *values);
    void (*atomic)(codegen *g, ir_id id);
    void (*fragments)(codegen *g); /* the lines that declare them; NULL: none */
    /* Copies and fragments; false: the walker's own way, or none. */
    bool (*fragment)(codegen *g, ir_id id);
    void (*kernel)(codegen *g); /* the body into g->body, head and tail around it */
} codegen_language_info;

extern const codegen_language_info codegen_wgsl, codegen_cuda, codegen_hip, codegen_opencl,
    codegen_c;

typedef struct codegen_access { /* how an array is accessed */
    bool loaded, stored, atomic;
    uint32_t load_bytes_max, store_bytes_min; /* of one access; 0: none */
    bool constant; /* every index is a constant, no access is wider than an element */
} codegen_access;

struct codegen {
    const ir_kernel *k;
    const codegen_language_info *language;
    const device_caps *caps; /* NULL: everything */
    const char *entry;
    base_arena *arena;    /* of the call */
    base_text head, body; /* body: what stands in the kernel's braces */
    const char *more;     /* lines behind the language's types; NULL: none */
    uint32_t indent;
    uint32_t *first;           // [n_code] first lane in texts
    const char **texts;        // [lanes of all values]
    codegen_access *access[3]; // [n_buffer], [n_workgroup], [n_register]
    const char *
        *arrays; // [n_code] wide vectors (c_vector.h): the vector that has the lanes; NULL: no such
    uint32_t temporaries; /* names t0 .. given out */
    bool uses_f16, uses_subgroups;
    device_program_desc *desc;
    beryl_status status;
    beryl_error *error;
    void *own; /* the language's */
};

/* ---- walk.c */

/* C, or OpenCL C for one: compilers make its vectors */
bool codegen_for_processor(const codegen *g);
void codegen_fail(codegen *g, ir_id id,
                  const char *why); /* UNSUPPORTED: op, type, why; the first counts */
void codegen_refuse(codegen *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
void codegen_no_memory(codegen *g);
const char *codegen_print(codegen *g, const char *format, ...)
    __attribute__((format(printf, 2, 3))); /* never NULL */
void codegen_line(codegen *g, const char *format, ...)
    __attribute__((format(printf, 2, 3))); /* of the body */
/* An expression in WGSL's syntax as the language writes it. */
const char *codegen_own(codegen *g, const char *expression);
const char *codegen_operand(codegen *g, const ir_instruction *i, uint32_t operand, uint32_t lane);
/* What the lane of a store's operand was before a cast to f16; NULL: there is none. */
const char *codegen_before_cast(codegen *g, const ir_instruction *i, uint32_t lane);
/* What to store of operand 1's lane. Storing rounds to f16 as a cast does, so of what was cast for
 * the store alone: what it was before. */
const char *codegen_stored(codegen *g, const ir_instruction *i, uint32_t lane);
/* Writes a declaration (expression in WGSL's syntax) and makes its name the lane's text. */
void codegen_define(codegen *g, ir_id id, uint32_t lane, const char *expression);
const char *codegen_temporary(codegen *g, const char *type, const char *expression); /* its name */
void codegen_walk(codegen *g, ir_id from, ir_id to);
void codegen_one(codegen *g, ir_id id);
void codegen_open(codegen *g, const char *line); /* a line that opens a block */
void codegen_close(codegen *g);
/* An index as u32; constant ones plus more as one number. */
const char *codegen_index(codegen *g, const char *index, uint32_t more);
const char *codegen_index_of(codegen *g, const ir_instruction *i, uint32_t operand);
bool codegen_constant(const codegen *g, ir_id id, uint64_t *bits);
const char *codegen_swizzled(codegen *g, const ir_array_decl *a, const char *index);
ir_type codegen_array_type(const codegen *g, ir_space space, uint32_t array);
/* The lines `let p0 = ...`: where the n-th lies; words: as a u32 whatever its type. */
void codegen_params(codegen *g, const char *format, bool words);

/* ---- expressions.c */

ir_type codegen_carrier(ir_type type);
const char *codegen_type(ir_type carrier); /* "f32" .. */
const char *codegen_literal(codegen *g, ir_type type, uint64_t bits);
/* The expression of a pure op over operands' texts; NULL: the language cannot (codegen_fail was
 * called). */
const char *codegen_expression(codegen *g, ir_id id, const char *const *in);
const char *codegen_combine(codegen *g, ir_op op, ir_type type, const char *x, const char *y);
const char *codegen_cast(codegen *g, ir_type to, ir_type from, const char *x);
/* Cuts or rounds a carrier to the type. */
const char *codegen_narrow(codegen *g, ir_type type, const char *x);
/* Words: the w-th u32 of values (texts of type) side by side, and back. */
const char *codegen_word(codegen *g, ir_type type, const char *const *values, uint32_t n,
                         uint32_t w);
const char *codegen_unword(codegen *g, ir_type type, const char *const *words, uint32_t lane);
/* A 16-bit float's bits (u32) as its carrier; the carrier as bits. */
const char *codegen_from_bits(codegen *g, ir_type type, const char *bits);
const char *codegen_to_bits(codegen *g, ir_type type, const char *x);
/* WGSL's syntax to the language's. */
void codegen_translate(base_text *out, const codegen_language_info *language, const char *text,
                       size_t size);

/* ---- helpers.c */

/* The helper functions that `text` and they themselves call, in an order fit for C, on `out`. */
void codegen_helpers(codegen *g, base_text *out, const char *text, size_t size);

/* ---- c_like.c: what CUDA, HIP and OpenCL C share, and C in part */

void codegen_c_place(codegen *g, base_text *text, ir_space space, uint32_t array, const char *index,
                     uint32_t more);
void codegen_c_load(codegen *g, const ir_instruction *i, const char *index, const char **values);
void codegen_c_store(codegen *g, const ir_instruction *i, const char *index,
                     const char *const *values);
void codegen_c_atomic(codegen *g, ir_id id);
/* "__global ", ... in OpenCL C, "" elsewhere */
const char *codegen_c_space(const codegen *g, ir_space space);
const char *codegen_c_memory_type(ir_type type); /* of an element in memory: "u16" for f16 */
/* The body of a kernel that runs once a lane. Formats for one axis letter, twice: what local, group
 * and groups are. */
typedef struct codegen_c_words {
    const char *local, *group, *groups;
    const char *global,
        *constant_end;       /* between `const` and the pointer's type; between `*` and its name */
    const char *shared;      /* before a workgroup array */
    uint32_t shared_max;     /* bytes of those; above it the launch gives the memory. 0: no limit */
    const char *before_last; /* lines before what stores last, unless a loop does; NULL: none */
} codegen_c_words;
void codegen_c_body(codegen *g, const codegen_c_words *words);
bool codegen_wants_axis(const codegen *g, ir_op op, uint32_t axis);
bool codegen_wants_lane(const codegen *g);

#endif
