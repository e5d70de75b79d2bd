/* c_vector.c - wide vectors in plain C, and in OpenCL C for processors, where a workgroup is one
 * lane: vector types of gcc and clang. (Elsewhere the lanes of the workgroup are what a compiler
 * makes vectors of.)
 *
 * What is an operator becomes one expression of whole vectors, everything else a loop over the
 * elements. Vectors of bool are masks in OpenCL C: i32, 0 or -1. In C they are arrays, since gcc
 * 12 makes single elements of masks that are more than a comparison met by a choice. */
#include "codegen/c_vector.h"
#include "base/build.h"

enum { LINE = 64 }; /* bytes, of the caches: one instruction writes it, or half of it */

void codegen_c_vectors(codegen *g) {
    if (ir_lanes(g->k) > 1 || !codegen_for_processor(g)) return;
    g->arrays = base_arena_take(g->arena, g->k->n_code + 1, sizeof *g->arrays);
    if (!g->arrays) codegen_no_memory(g);
}

bool codegen_c_wide(const codegen *g, const ir_instruction *i) {
    return BUILD_HAS_C_TEXTS && g->arrays && i->width >= 4;
}

/* "f32x16"; of elements in memory, at any address: "u16x8u". */
static const char *vector_type(codegen *g, const char *element, uint32_t width, bool anywhere) {
    return codegen_print(g, "%sx%u%s", element, (unsigned)width, anywhere ? "u" : "");
}

static bool has_masks(const codegen *g) {
    return g->language->language == DEVICE_OPENCL_C;
}

static bool is_mask(const codegen *g, ir_id id) {
    return has_masks(g) && g->k->code[id].type == IR_BOOL;
}

/* What the value's elements are in a vector. */
static const char *element_type(const codegen *g, ir_id id) {
    return is_mask(g, id) ? "i32" : codegen_type((ir_type)g->k->code[id].type);
}

/* One element as it lies in a vector, and read from one. */
static const char *to_element(codegen *g, ir_id id, const char *x) {
    return is_mask(g, id) ? codegen_print(g, "-(i32)(%s)", x) : x;
}

static const char *from_element(codegen *g, ir_id id, const char *vector, const char *index) {
    return codegen_print(g, is_mask(g, id) ? "(%s[%s] != 0)" : "%s[%s]", vector, index);
}

static bool is_half(ir_type type) {
    return type == IR_F16 || type == IR_BF16;
}

/* The name of a vector with the operand's lanes, or NULL and in *same the text that all of them
 * have. */
static const char *vector_of(codegen *g, const ir_instruction *i, uint32_t operand,
                             const char **same) {
    const ir_id id = i->in[operand];
    const ir_instruction *from = &g->k->code[id];
    if (g->arrays[id]) return g->arrays[id];
    const char *const *texts = g->texts + g->first[id];
    bool all = true;
    for (uint32_t lane = 1; lane < from->width; lane++) all = all && texts[lane] == texts[0];
    *same = texts[0];
    if (all) return NULL;
    const char *name = codegen_print(g, "t%u", (unsigned)g->temporaries++),
               *type = element_type(g, id);
    base_text list;
    base_text_init(&list, g->arena->heap);
    for (uint32_t lane = 0; lane < from->width; lane++)
        base_text_print(&list, "%s%s", lane ? ", " : "", to_element(g, id, texts[lane]));
    if (list.failed) codegen_no_memory(g);
    else if ((from->type == IR_BOOL && !is_mask(g, id)) || from->width < 4)
        codegen_line(g, "ALIGNED %s %s[%u] = {%s};", type, name, (unsigned)from->width, list.data);
    else
        codegen_line(g, "const %s %s = {%s};", vector_type(g, type, from->width, false), name,
                     list.data);
    base_text_fini(&list);
    return name; /* of this block: another one makes its own */
}

/* The operand's element j. */
static const char *element(codegen *g, const ir_instruction *i, uint32_t operand) {
    const char *same = "";
    const char *array = vector_of(g, i, operand, &same);
    return array ? from_element(g, i->in[operand], array, "j") : same;
}

/* Gives the value its name; the caller declares it. */
static const char *name_it(codegen *g, ir_id id) {
    const char *name = codegen_print(g, "v%u", (unsigned)id);
    g->arrays[id] = name;
    for (uint32_t lane = 0; lane < g->k->code[id].width; lane++)
        g->texts[g->first[id] + lane] =
            from_element(g, id, name, codegen_print(g, "%u", (unsigned)lane));
    return name;
}

static void define_whole(codegen *g, ir_id id, const char *expression) {
    const char *type = vector_type(g, element_type(g, id), g->k->code[id].width, false);
    codegen_line(g, "const %s %s = %s;", type, name_it(g, id), expression);
}

static void define_each(codegen *g, ir_id id, const char *expression) {
    const ir_instruction *i = &g->k->code[id];
    const char *name = name_it(g, id);
    if (i->type == IR_BOOL && !is_mask(g, id))
        codegen_line(g, "ALIGNED bool %s[%u];", name, (unsigned)i->width);
    else codegen_line(g, "%s %s;", vector_type(g, element_type(g, id), i->width, false), name);
    codegen_line(g, "for (u32 j = 0; j < %uu; j++) %s[j] = %s;", (unsigned)i->width, name,
                 to_element(g, id, expression));
}

static const char *convert(codegen *g, const char *x, const char *element, uint32_t width) {
    return codegen_print(g, "__builtin_convertvector(%s, %s)", x,
                         vector_type(g, element, width, false));
}

/* An op that C has for whole vectors; NULL: it has not. x, y, z: vectors, or scalars for all lanes.
 */
static const char *whole(codegen *g, const ir_instruction *i, const char *x, const char *y,
                         const char *z) {
    const ir_type type = (ir_type)i->type, from = (ir_type)g->k->code[i->in[0]].type;
    const bool is_float = type == IR_F32 || type == IR_F64,
               is_unsigned = type == IR_U32 || type == IR_U64;
    const ir_op op = (ir_op)i->op;
    if (op == IR_CAST) {
        if (is_half(from) && type == IR_F32) return x; /* the same carrier */
        if (from == IR_U32 && (type == IR_U8 || type == IR_U16))
            return codegen_print(g, "%s & %uu", x, type == IR_U8 ? 255u : 65535u);
        const bool plain = from == IR_F32 || ir_type_in(from, IR_INTEGERS);
        if (!plain || !(type == IR_F32 ||
                        (ir_type_in(from, IR_INTEGERS) && (type == IR_U32 || type == IR_I32))))
            return NULL;
        return convert(g, x, codegen_type(type), i->width);
    }
    if (op == IR_DOT4_U8 && !has_masks(g)) {
        const char *words = vector_type(g, "u32", i->width, false),
                   *sums = vector_type(g, "i32", i->width, false);
        return codegen_print(g, "dot4_u8_%s(all_%s(%s), all_%s(%s), all_%s(%s))", sums, words, x,
                             words, y, sums, z);
    }
    const bool bits = is_unsigned || ((type == IR_U8 || type == IR_U16) && op != IR_NOT);
    if (op == IR_AND && bits) return codegen_print(g, "%s & %s", x, y);
    if (op == IR_OR && bits) return codegen_print(g, "%s | %s", x, y);
    if (op == IR_XOR && bits) return codegen_print(g, "%s ^ %s", x, y);
    /* OpenCL takes no unsigned number beside signed elements */
    if ((op == IR_SHR && (bits || type == IR_I32)) || (op == IR_SHL && is_unsigned))
        return codegen_print(g, "all_%s(%s) %s (%s & %u%s)",
                             vector_type(g, codegen_type(type), i->width, false), x,
                             op == IR_SHR ? ">>" : "<<", y, (unsigned)(ir_type_bytes(type) * 8 - 1),
                             ir_type_in(type, IR_SIGNED) ? "" : "u");
    const char *name = type != IR_F32  ? NULL
                       : op == IR_MIN  ? "min"
                       : op == IR_MAX  ? "max"
                       : op == IR_EXP  ? "exp"
                       : op == IR_TANH ? "tanh"
                       : op == IR_FMA  ? "fma"
                                       : NULL;
    if (name) {
        const char *of = vector_type(g, "f32", i->width, false);
        if (i->n_in == 1) return codegen_print(g, "%s_%s(%s)", name, of, x);
        if (i->n_in == 3)
            return codegen_print(g, "%s_%s(all_%s(%s), all_%s(%s), all_%s(%s))", name, of, of, x,
                                 of, y, of, z);
        return codegen_print(g, "%s_%s(all_%s(%s), all_%s(%s))", name, of, of, x, of, y);
    }
    if (!is_float && !is_unsigned) return NULL;
    if (op == IR_ADD) return codegen_print(g, "%s + %s", x, y);
    if (op == IR_SUB) return codegen_print(g, "%s - %s", x, y);
    if (op == IR_MUL) return codegen_print(g, "%s * %s", x, y);
    /* the table allows two roundings */
    if (op == IR_FMA) return codegen_print(g, "%s * %s + %s", x, y, z);
    if ((op == IR_DIV || op == IR_DIV_NORMAL) && is_float) return codegen_print(g, "%s / %s", x, y);
    if (op == IR_NEG && is_float) return codegen_print(g, "-%s", x);
    return NULL;
}

static bool is_word(const codegen *g, ir_id id) {
    return ir_type_bytes(codegen_carrier((ir_type)g->k->code[id].type)) == 4;
}

/* A vector of the operand's lanes, whether they are alike or not. */
static const char *vector_from(codegen *g, const ir_instruction *i, uint32_t operand) {
    const char *same = "", *vector = vector_of(g, i, operand, &same);
    if (vector) return vector;
    const ir_id id = i->in[operand];
    const char *type = vector_type(g, element_type(g, id), i->width, false);
    return codegen_print(g, "all_%s(%s)", type, to_element(g, id, same));
}

/* The mask of a comparison of words. NULL: it is none. */
static const char *comparison(codegen *g, const ir_instruction *i) {
    static const char *const signs[IR_OP_COUNT] = {[IR_EQ] = "==", [IR_NE] = "!=", [IR_LT] = "<",
                                                   [IR_LE] = "<=", [IR_GT] = ">",  [IR_GE] = ">="};
    if (i->op == IR_IS_NAN && is_word(g, i->in[0]))
        return codegen_print(g, "%s != %s", vector_from(g, i, 0), vector_from(g, i, 0));
    if (!signs[i->op] || !is_word(g, i->in[0])) return NULL;
    return codegen_print(g, "%s %s %s", vector_from(g, i, 0), signs[i->op], vector_from(g, i, 1));
}

/* What masks are made of and what is made of them. NULL: neither. */
static const char *masked(codegen *g, ir_id id) {
    const ir_instruction *i = &g->k->code[id];
    const char *type = vector_type(g, element_type(g, id), i->width, false), *pick = NULL,
               *mask = NULL;
    if (is_mask(g, i->in[0]) && is_mask(g, id)) {
        if (i->op == IR_NOT) return codegen_print(g, "~%s", vector_from(g, i, 0));
        const char *sign = i->op == IR_AND                     ? "&"
                           : i->op == IR_OR                    ? "|"
                           : i->op == IR_XOR || i->op == IR_NE ? "^"
                                                               : NULL;
        if (sign)
            return codegen_print(g, "%s %s %s", vector_from(g, i, 0), sign, vector_from(g, i, 1));
    }
    if (is_mask(g, id) && (mask = comparison(g, i))) return mask;
    if (i->op == IR_SELECT && (is_word(g, id) || is_mask(g, id))) {
        mask = has_masks(g) ? vector_from(g, i, 0) : comparison(g, &g->k->code[i->in[0]]);
        pick =
            mask ? codegen_print(g, "%s, %s, %s", mask, vector_from(g, i, 1), vector_from(g, i, 2))
                 : NULL;
    } else if (i->op == IR_CAST && is_mask(g, i->in[0]) && is_word(g, id)) {
        pick = codegen_print(g, "%s, all_%s(1), all_%s(0)", vector_from(g, i, 0), type, type);
    } else if ((i->op == IR_MIN || i->op == IR_MAX) && has_masks(g) && is_word(g, id) &&
               ir_type_in((ir_type)i->type, IR_INTEGERS)) {
        const char *x = vector_from(g, i, 0), *y = vector_from(g, i, 1);
        pick = codegen_print(g, "%s %s %s, %s, %s", y, i->op == IR_MIN ? "<" : ">", x, y, x);
    }
    return pick ? codegen_print(g, "as_%s(pick_f32x%u(%s))", type, (unsigned)i->width, pick) : NULL;
}

void codegen_c_wide_op(codegen *g, ir_id id) {
    const ir_instruction *i = &g->k->code[id];
    const char *with_mask = masked(g, id);
    if (with_mask) {
        define_whole(g, id, with_mask);
        return;
    }
    const char *in[4] = {"", "", "", ""}, *same = "";
    bool any = false;
    for (uint32_t n = 0; n < i->n_in; n++) {
        const char *vector = vector_of(g, i, n, &same);
        in[n] = vector ? vector : same;
        any = any || (vector && (n < 2 || i->op == IR_FMA));
    }
    const bool first =
        g->k->code[i->in[0]].type != IR_BOOL && any && (i->op != IR_CAST || in[0] != same);
    const char *text = first ? whole(g, i, in[0], in[1], in[2]) : NULL;
    /* gcc 12 takes a comparison's mask for the 1 that it stands for */
    if (i->op == IR_CAST && g->k->code[i->in[0]].type == IR_BOOL && in[0] != same &&
        g->language->language == DEVICE_C)
        codegen_line(g, "__asm__(\"\" : \"+m\"(%s));", in[0]);
    if (text) {
        define_whole(g, id, text);
        return;
    }
    for (uint32_t n = 0; n < i->n_in; n++) in[n] = element(g, i, n);
    define_each(g, id, codegen_expression(g, id, in));
}

/* Elements as they lie in memory as carriers, or the other way; none is a half. gcc converts to
 * twice or half the size at once, to four times it element by element. */
static const char *carried_over(codegen *g, const char *x, ir_type type, uint32_t width,
                                bool to_memory) {
    if (codegen_carrier(type) == type) return x;
    if (ir_type_bytes(type) == 1 && width == 16 && !to_memory && !has_masks(g))
        return codegen_print(g, "words_%sx16(%s)", codegen_type(type), x);
    if (ir_type_bytes(type) == 1)
        x = convert(g, x, ir_type_in(type, IR_SIGNED) ? "i16" : "u16", width);
    return convert(g, x, to_memory ? codegen_c_memory_type(type) : codegen_type(type), width);
}

/* What a vector of the memory's elements at `index` is, as an lvalue. */
static const char *memory_at(codegen *g, const ir_instruction *i, const char *index,
                             const char *element_type, bool constant) {
    base_text text;
    base_text_init(&text, g->arena->heap);
    g->language->place(g, &text, (ir_space)i->space, i->array, index, 0);
    const char *at =
        text.failed || !text.data
            ? ""
            : codegen_print(g, "*(%s%s%s *)&%s", codegen_c_space(g, (ir_space)i->space),
                            constant ? "const " : "", vector_type(g, element_type, i->width, true),
                            text.data);
    if (text.failed) codegen_no_memory(g);
    base_text_fini(&text);
    return at;
}

/* F32 of a vector of u16, the bits of f16 or bf16. */
static const char *of_halves(codegen *g, const char *x, ir_type type, uint32_t width) {
    const unsigned n = width;
    if (has_masks(g)) {
        x = convert(g, x, "u32", width);
        return codegen_print(g, type == IR_F16 ? "halves_f32x%u(%s)" : "as_f32x%u(%s << 16)", n, x);
    }
    return codegen_print(g, type == IR_F16 ? "halves_f32x%u(%s)" : "uppers_f32x%u(%s)", n, x);
}

void codegen_c_wide_load(codegen *g, ir_id id, const char *index) {
    const ir_instruction *i = &g->k->code[id];
    const ir_type type = (ir_type)i->type;
    const bool carried = i->space == IR_REGISTER;
    if (carried || !is_half(type)) {
        const char *in_memory = carried ? codegen_type(type) : codegen_c_memory_type(type);
        const char *all = memory_at(g, i, index, in_memory, true);
        define_whole(g, id, carried ? all : carried_over(g, all, type, i->width, false));
        return;
    }
    define_whole(g, id, of_halves(g, memory_at(g, i, index, "u16", true), type, i->width));
}

/* Is the vector written past the caches? Not where the kernel reads what it writes. */
static bool is_past(const codegen *g, const ir_instruction *i) {
    const ir_kernel *k = g->k;
    const uint32_t bytes = ir_type_bytes((ir_type)i->type) * i->width;
    if (i->space != IR_BUFFER || k->buffers[i->array].access != IR_WRITE_PAST ||
        (bytes != LINE && bytes != LINE / 2))
        return false;
    for (ir_id id = 0; id < k->n_code; id++)
        if (k->code[id].op == IR_LOAD && k->code[id].space == IR_BUFFER &&
            k->code[id].array == i->array)
            return false;
    return true;
}

void codegen_c_wide_store(codegen *g, const ir_instruction *i, const char *index) {
    const ir_type type = (ir_type)i->type;
    const bool carried = i->space == IR_REGISTER;
    const char *same = "", *vector = vector_of(g, i, 1, &same);
    if (vector && (carried || !is_half(type))) {
        const char *in_memory = carried ? codegen_type(type) : codegen_c_memory_type(type);
        if (!carried) vector = carried_over(g, vector, type, i->width, true);
        const char *at = memory_at(g, i, index, in_memory, false);
        codegen_line(g, is_past(g, i) ? "write_past(%s, %s);" : "%s = %s;", at, vector);
        return;
    }
    ir_instruction one = *i;
    const char *value = vector ? codegen_print(g, "%s[j]", vector) : same;
    if (vector && is_past(g, i)) { /* halves */
        const char *bits = codegen_print(g, "t%u", (unsigned)g->temporaries++),
                   *of = vector_type(g, "u16", i->width, false);
        codegen_line(g, "%s %s;", of, bits);
        codegen_line(g, "for (u32 j = 0; j < %uu; j++) %s[j] = (u16)%s;", (unsigned)i->width, bits,
                     codegen_to_bits(g, type, value));
        codegen_line(g, "write_past(%s, %s);", memory_at(g, i, index, "u16", false), bits);
        return;
    }
    one.width = 1;
    codegen_line(g, "for (u32 j = 0; j < %uu; j++)", (unsigned)i->width);
    g->indent++;
    g->language->store(g, &one, codegen_print(g, "%s + j", index), &value);
    g->indent--;
}

/* Lanes of one vector in another order, or two vectors side by side. false: neither. */
bool codegen_c_wide_lanes(codegen *g, ir_id id) {
    const ir_instruction *i = &g->k->code[id];
    const ir_op op = (ir_op)i->op;
    if (!codegen_c_wide(g, i) || has_masks(g) || i->type == IR_BOOL) return false;
    if (op != IR_SWIZZLE && (op != IR_COMPOSE || i->n_in != 2)) return false;
    /* of two vectors side by side, without a vector of both */
    const ir_instruction *both = op == IR_COMPOSE ? i : &g->k->code[i->in[0]];
    const bool two = both->op == IR_COMPOSE && both->n_in == 2 && g->arrays[both->in[0]] &&
                     g->arrays[both->in[1]];
    const char *x = g->arrays[two ? both->in[0] : i->in[0]], *y = two ? g->arrays[both->in[1]] : x;
    const unsigned own = both->width / 2u;
    if (!x || (op == IR_COMPOSE && !two)) return false;
    const char *type = vector_type(g, element_type(g, id), i->width, false);
    base_text places, list;
    base_text_init(&places, g->arena->heap);
    base_text_init(&list, g->arena->heap);
    for (uint32_t lane = 0; lane < i->width; lane++) {
        const unsigned place = op == IR_SWIZZLE ? (unsigned)(i->imm >> 4 * lane & 15) : lane;
        const bool second = two && place >= own;
        base_text_print(&places, ", %u", place);
        base_text_print(&list, ", %s[%u]", second ? y : x, second ? place - own : place);
    }
    if (places.failed || list.failed) codegen_no_memory(g);
    else
        define_whole(g, id,
                     codegen_print(g, "lanes_of(%s, __builtin_shufflevector(%s, %s%s)%s)", type, x,
                                   y, places.data, list.data));
    base_text_fini(&places);
    base_text_fini(&list);
    return true;
}

/* The elements as they lie in memory, read as those of the other type. */
void codegen_c_wide_bitcast(codegen *g, ir_id id) {
    const ir_instruction *i = &g->k->code[id];
    const ir_type to = (ir_type)i->type, from = (ir_type)g->k->code[i->in[0]].type;
    const unsigned from_width = g->k->code[i->in[0]].width;
    const char *same = "", *vector = from_width >= 4 ? vector_of(g, i, 0, &same) : NULL;
    if (vector && !is_half(from) && !is_half(to)) {
        vector = carried_over(g, vector, from, from_width, true);
        const char *all = codegen_print(
            g, "as_%s(%s)", vector_type(g, codegen_c_memory_type(to), i->width, false), vector);
        define_whole(g, id, carried_over(g, all, to, i->width, false));
        return;
    }
    if (vector && !is_half(from) && to == IR_F16) {
        const char *halves = vector_type(g, "u16", i->width, false);
        vector =
            codegen_print(g, "as_%s(%s)", halves, carried_over(g, vector, from, from_width, true));
        define_whole(g, id, of_halves(g, vector, to, i->width));
        return;
    }
    const char *x = from_width == 1 ? codegen_operand(g, i, 0, 0) : element(g, i, 0);
    const char *bytes = codegen_print(g, "t%u", (unsigned)g->temporaries++);
    const char *parts = codegen_print(g, "t%u", (unsigned)g->temporaries++);
    codegen_line(g, "ALIGNED %s %s[%u];", codegen_c_memory_type(from), bytes, from_width);
    codegen_line(g, "for (u32 j = 0; j < %uu; j++) %s[j] = (%s)%s;", from_width, bytes,
                 codegen_c_memory_type(from), is_half(from) ? codegen_to_bits(g, from, x) : x);
    codegen_line(g, "ALIGNED %s %s[%u];", codegen_c_memory_type(to), parts, (unsigned)i->width);
    codegen_line(g, "__builtin_memcpy(%s, %s, %u);", parts, bytes,
                 (unsigned)(i->width * ir_type_bytes(to)));
    const char *part = codegen_print(g, "%s[j]", parts);
    define_each(g, id,
                is_half(to) ? codegen_from_bits(g, to, codegen_print(g, "(u32)%s", part)) : part);
}
