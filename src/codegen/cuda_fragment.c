/* cuda_fragment.c - matrix fragments as inline PTX: mma.sync m16n8k16 (f16, bf16) and m16n8k32 (i8,
 * u8), not WMMA.
 *
 * Where an element lies (PTX, "Matrix Fragments for mma.m16n8k16"): lane l of the 32 has group l /
 * 4 and part l % 4. With e elements in a register, register j of a holds row group + 8 (j & 1),
 * columns e part + 4e (j >> 1) and on; of b: rows e part + 4e j and on, column group; of c, an
 * element each: row group + 8 (j >> 1), column 2 part + (j & 1). From workgroup memory a and b come
 * by ldmatrix wherever rows are seen to begin at multiples of 16 bytes. */
#include "codegen/cuda_like.h"

#include "ir/pass/pass.h"

typedef struct shape {
    uint32_t registers; /* of a lane */
    uint32_t packed;    /* elements in one */
} shape;

static bool shape_of(const ir_fragment_decl *f, shape *s) {
    const uint32_t bytes = ir_type_bytes(f->type);
    if (f->m != 16 || f->n != 8) return false;
    if (f->role == IR_ROLE_C) {
        *s = f->type == IR_F16 ? (shape){2, 2} : (shape){4, 1};
        return (f->k == 16 && (f->type == IR_F32 || f->type == IR_F16)) ||
               (f->k == 32 && f->type == IR_I32);
    }
    *s = (shape){f->role == IR_ROLE_A ? 4 : 2, 4 / bytes};
    return (f->k == 16 && (f->type == IR_F16 || f->type == IR_BF16)) || (f->k == 32 && bytes == 1);
}

void codegen_cuda_fragments(codegen *g) {
    for (uint32_t n = 0; n < g->k->n_fragment; n++) {
        const ir_fragment_decl *f = &g->k->fragments[n];
        shape s;
        if (!shape_of(f, &s)) {
            codegen_refuse(g, "fragments of %s, %u x %u x %u", ir_type_name(f->type),
                           (unsigned)f->m, (unsigned)f->n, (unsigned)f->k);
            return;
        }
        const char *type = s.packed == 1 ? codegen_type(f->type) : "u32";
        codegen_line(g, "%s f%u[%u];", type, n, (unsigned)(s.registers * f->count));
    }
    if (g->k->n_fragment && g->k->subgroup_size != 32)
        codegen_refuse(g, "fragments want subgroups of 32 lanes");
}

/* The register j at a place. */
static const char *register_at(codegen *g, uint32_t number, const shape *s, const char *place,
                               uint32_t j) {
    return codegen_print(g, "f%u[%s * %uu + %uu]", (unsigned)number, place, (unsigned)s->registers,
                         (unsigned)j);
}

/* A power of two that divides the value, as far as it can be seen. */
static uint32_t divisor(const codegen *g, ir_id id, uint32_t depth) {
    enum { MOST = 64 };
    const ir_instruction *i = &g->k->code[id];
    uint64_t bits;
    if (depth > 16) return 1;
    uint32_t in[3] = {1, 1, 1};
    for (uint32_t n = 0; n < i->n_in && n < 3; n++) in[n] = divisor(g, i->in[n], depth + 1);
    const uint32_t least = in[0] < in[1] ? in[0] : in[1],
                   product = in[0] * in[1] > MOST ? MOST : in[0] * in[1];
    switch ((int)i->op) {
    case IR_CONST:
        bits = i->imm;
        return bits == 0                               ? MOST
               : (uint32_t)(bits & (~bits + 1)) > MOST ? MOST
                                                       : (uint32_t)(bits & (~bits + 1));
    case IR_ADD:
    case IR_SUB:
    case IR_OR:
    case IR_XOR: return least;
    case IR_AND: return in[0] > in[1] ? in[0] : in[1];
    case IR_MUL: return product;
    case IR_FMA: return product < in[2] ? product : in[2];
    case IR_SELECT: return in[1] < in[2] ? in[1] : in[2];
    case IR_CAST:
        return ir_type_in((ir_type)i->type, IR_UNSIGNED) && ir_type_bytes((ir_type)i->type) >= 4
                   ? in[0]
                   : 1;
    case IR_SHL:
        if (!codegen_constant(g, i->in[1], &bits) || bits > 6) return in[0];
        return in[0] << bits > MOST ? MOST : in[0] << bits;
    case IR_LOOP: return in[0] < in[2] ? in[0] : in[2];
    default: return 1;
    }
}

/* Whether ldmatrix may fetch it. */
static bool rows_aligned(const codegen *g, const ir_instruction *i, const ir_fragment_decl *f) {
    const uint32_t chunk = 16 / ir_type_bytes(f->type);
    if (i->space != IR_WORKGROUP || f->role == IR_ROLE_C) return false;
    const ir_array_decl *a = &g->k->workgroups[i->array];
    if (a->swizzle_bits && 1u << a->swizzle_base < chunk) return false;
    return divisor(g, i->in[1], 0) >= chunk && divisor(g, i->in[2], 0) >= chunk;
}

/* The index of element (row, column), texts. */
static const char *index_at(codegen *g, const ir_instruction *i, const char *row,
                            const char *column) {
    const bool transposed = i->imm >> 16;
    return codegen_print(g, "%s + (%s) * %s + %s", codegen_index_of(g, i, 1),
                         transposed ? column : row, codegen_operand(g, i, 2, 0),
                         transposed ? row : column);
}

static const char *element_at(codegen *g, const ir_instruction *i, const char *index) {
    base_text text;
    base_text_init(&text, g->arena->heap);
    codegen_c_place(g, &text, (ir_space)i->space, i->array, index, 0);
    const char *place = text.failed || !text.data ? "" : codegen_print(g, "%s", text.data);
    if (text.failed) codegen_no_memory(g);
    base_text_fini(&text);
    return place;
}

/* index = base + constant */
static void split_index(const codegen *g, ir_id index, ir_id *base, uint64_t *constant) {
    const ir_instruction *i = &g->k->code[index];
    *base = index, *constant = 0;
    if (i->op == IR_ADD && codegen_constant(g, i->in[1], constant)) *base = i->in[0];
    else *constant = 0;
}

/* Two neighbouring fragments of b, whose columns (of halves: or rows) lie as rows of memory, one
 * after the other: the load `second` follows `first` with nothing between but values. One ldmatrix
 * fetches both. */
static bool are_pair(const codegen *g, ir_id first, ir_id second) {
    const ir_instruction *a = &g->k->code[first], *b = &g->k->code[second];
    uint64_t place, next, stride, again, from, to;
    ir_id base, other;
    if (a->op != IR_FRAGMENT_LOAD || b->op != IR_FRAGMENT_LOAD || a->imm != b->imm ||
        a->space != b->space || a->array != b->array)
        return false;
    if (g->k->fragments[a->imm & 0xffff].role != IR_ROLE_B ||
        !codegen_constant(g, a->in[0], &place) || !codegen_constant(g, b->in[0], &next) ||
        place % 2 || next != place + 1 || !codegen_constant(g, a->in[2], &stride) ||
        !codegen_constant(g, b->in[2], &again) || stride != again)
        return false;
    split_index(g, a->in[1], &base, &from);
    split_index(g, b->in[1], &other, &to);
    return base == other && to == from + (a->imm >> 16 ? 8 * stride : 8);
}

/* The load before (step -1) or after (1) this one, with nothing between but values; id itself:
 * none. */
static ir_id neighbour(const codegen *g, ir_id id, int step) {
    for (ir_id at = id + (ir_id)step; at < g->k->n_code; at += (ir_id)step) {
        const ir_op op = (ir_op)g->k->code[at].op;
        if (op == IR_FRAGMENT_LOAD) return at;
        if (!(ir_op_of(op)->flags & IR_PURE)) break;
    }
    return id;
}

static bool load_matrix(codegen *g, ir_id id, const ir_fragment_decl *f, const shape *s,
                        const char *place) {
    const ir_instruction *i = &g->k->code[id];
    const bool transposed = i->imm >> 16, is_a = f->role == IR_ROLE_A;
    const bool turned = is_a == transposed; /* memory's rows are not the registers' */
    if (!rows_aligned(g, i, f) || (turned && s->packed != 2)) return false;
    const unsigned chunk = 4 * s->packed;
    const char *row, *column; /* of the 16 bytes that this lane names */
    if (s->packed == 2 && are_pair(g, neighbour(g, id, -1), id)) return true; /* done */
    if (s->packed == 2 && are_pair(g, id, neighbour(g, id, 1))) {
        row = transposed ? codegen_print(g, "(lane >> 3u & 1u) * %uu", chunk) : "lane & 15u";
        column = transposed ? "(lane & 7u) + (lane >> 4u & 1u) * 8u" : "(lane >> 4u & 1u) * 8u";
        codegen_line(g, "load_matrix_4%s(&f%u[%s * 2u], &%s);", turned ? "_turned" : "",
                     (unsigned)(i->imm & 0xffff), place,
                     element_at(g, i, index_at(g, i, row, column)));
        return true;
    }
    if (is_a && !transposed)
        row = "lane & 15u", column = codegen_print(g, "(lane >> 4u & 1u) * %uu", chunk);
    else if (is_a) row = "(lane >> 3u & 1u) * 8u", column = "(lane & 7u) + (lane >> 4u & 1u) * 8u";
    else if (transposed)
        row = codegen_print(g, "(lane >> 3u & 1u) * %uu", chunk), column = "lane & 7u";
    else row = "lane & 15u", column = "0u";
    codegen_line(g, "load_matrix_%u%s(&f%u[%s * %uu], &%s);", (unsigned)s->registers,
                 turned ? "_turned" : "", (unsigned)(i->imm & 0xffff), place,
                 (unsigned)s->registers, element_at(g, i, index_at(g, i, row, column)));
    return true;
}

/* One register after the other, element by element. */
static void load_elements(codegen *g, const ir_instruction *i, const ir_fragment_decl *f,
                          const shape *s, const char *place) {
    const uint32_t e = s->packed, bits = 32 / e;
    for (uint32_t j = 0; j < s->registers; j++) {
        const char *word = NULL;
        for (uint32_t n = 0; n < e; n++) {
            const char *row, *column;
            if (f->role == IR_ROLE_A) {
                row = codegen_print(g, "(lane >> 2u & 7u) + %uu", (unsigned)(8 * (j & 1)));
                column = codegen_print(g, "(lane & 3u) * %uu + %uu", (unsigned)e,
                                       (unsigned)(4 * e * (j >> 1) + n));
            } else if (f->role == IR_ROLE_B) {
                row = codegen_print(g, "(lane & 3u) * %uu + %uu", (unsigned)e,
                                    (unsigned)(4 * e * j + n));
                column = "(lane >> 2u & 7u)";
            } else {
                const uint32_t element = j * e + n;
                row = codegen_print(g, "(lane >> 2u & 7u) + %uu", (unsigned)(8 * (element >> 1)));
                column = codegen_print(g, "(lane & 3u) * 2u + %uu", (unsigned)(element & 1));
            }
            const char *at = element_at(g, i, index_at(g, i, row, column));
            const char *target = register_at(g, (uint32_t)i->imm & 0xffff, s, place, j);
            if (i->op == IR_FRAGMENT_STORE) {
                if (e == 1) codegen_line(g, "%s = %s;", at, target);
                else
                    codegen_line(g, "%s = (%s)(%s >> %uu);", at, codegen_c_memory_type(f->type),
                                 target, (unsigned)(n * bits));
                continue;
            }
            const char *piece =
                e == 1 ? at : codegen_print(g, e == 4 ? "(u32)(u8)%s" : "(u32)%s", at);
            if (n) piece = codegen_print(g, "%s << %uu", piece, (unsigned)(n * bits));
            word = word ? codegen_print(g, "%s | %s", word, piece) : piece;
        }
        if (i->op == IR_FRAGMENT_LOAD)
            codegen_line(g, "%s = %s;", register_at(g, (uint32_t)i->imm & 0xffff, s, place, j),
                         word ? word : "0u");
    }
}

static void fill(codegen *g, const ir_instruction *i) {
    const ir_fragment_decl *f = &g->k->fragments[i->array];
    shape s = {0, 0};
    shape_of(f, &s);
    const char *value = codegen_operand(g, i, 1, 0);
    if (s.packed > 1) {
        const char *same[4] = {value, value, value, value};
        value = codegen_temporary(g, "u32", codegen_word(g, f->type, same, s.packed, 0));
    }
    for (uint32_t j = 0; j < s.registers; j++)
        codegen_line(g, "%s = %s;", register_at(g, i->array, &s, codegen_operand(g, i, 0, 0), j),
                     value);
}

static bool multiply(codegen *g, const ir_instruction *i) {
    const ir_fragment_decl *f[3];
    const char *at[3];
    for (uint32_t n = 0; n < 3; n++) {
        const uint32_t number = (uint32_t)(i->imm >> (16 * n)) & 0xffff;
        f[n] = &g->k->fragments[number];
        shape s = {0, 0};
        shape_of(f[n], &s);
        at[n] = codegen_print(g, "&f%u[%s * %uu]", (unsigned)number, codegen_operand(g, i, n, 0),
                              (unsigned)s.registers);
    }
    const ir_type c = f[0]->type, a = f[1]->type, b = f[2]->type;
    for (uint32_t n = 1; n < 3 && g->caps; n++)
        if (!ir_has_fragment(g->caps, f[n]->type, c, f[0]->m, f[0]->n, f[0]->k))
            codegen_refuse(g, "the device has no matrix units for %s, %u x %u x %u, and sums of %s",
                           ir_type_name(f[n]->type), (unsigned)f[0]->m, (unsigned)f[0]->n,
                           (unsigned)f[0]->k, ir_type_name(c));
    if (ir_type_in(a, IR_FLOATS) && (c == IR_F16) && a != IR_F16) return false;
    if (ir_type_in(a, IR_FLOATS))
        codegen_line(g, "multiply_%s_%s(%s, %s, %s);", ir_type_name(c), ir_type_name(a), at[0],
                     at[1], at[2]);
    else
        codegen_line(g, "multiply_%s_%s(%s, %s, %s);", ir_type_name(a), ir_type_name(b), at[0],
                     at[1], at[2]);
    return true;
}

/* What wgmma wants to know of a factor in workgroup memory (PTX, "Matrix Descriptor"): where it
 * is, in lines of 128 bytes whose pieces are swizzled, and how far in units of 16 bytes it is to
 * the next 64 rows of a turned one, and to the next 8 lines. */
static const char *described(codegen *g, const ir_instruction *i, uint32_t x) {
    const bool turned = i->imm >> (16 + x) & 1;
    return codegen_temporary(g, "u64",
                             codegen_print(g, "matrix_at(&w%u[%s], %uu)", (unsigned)i->array,
                                           codegen_index_of(g, i, x),
                                           turned ? (unsigned)(i->imm >> 24 & 255) * 128 : 1));
}

/* wgmma m64nNk16 for each step of k: four subgroups together, of which each has 16 rows. */
static void multiply_memory(codegen *g, const ir_instruction *i) {
    const uint32_t number = i->imm & 0xffff, n_sum = 4 * g->k->fragments[number].count;
    const bool held = i->imm >> 18 & 1;
    const char *type = g->k->workgroups[i->array].type == IR_F16 ? "f16" : "bf16";
    const char *matrix[2] = {held ? codegen_operand(g, i, 0, 0) : described(g, i, 0),
                             described(g, i, 1)};
    base_text text;
    base_text_init(&text, g->arena->heap);
    codegen_line(g, "multiply_begin();");
    for (uint32_t step = 0; step < (i->imm >> 24 & 255); step++) {
        const bool fresh = !step && i->imm >> 19 & 1;
        base_text_clear(&text);
        base_text_print(&text,
                        "asm volatile(\"{.reg .pred p; setp.ne.b32 p, %u, 0; "
                        "wgmma.mma_async.sync.aligned.m64n%uk16.f32.%s.%s {",
                        fresh ? 0u : 1u, (unsigned)n_sum * 2, type, type);
        for (uint32_t n = 0; n < n_sum; n++) base_text_print(&text, "%s%%%u", n ? ", " : "", n);
        if (held)
            base_text_print(&text, "}, {%%%u, %%%u, %%%u, %%%u}, %%%u, p, 1, 1", (unsigned)n_sum,
                            (unsigned)n_sum + 1, (unsigned)n_sum + 2, (unsigned)n_sum + 3,
                            (unsigned)n_sum + 4);
        else
            base_text_print(&text, "}, %%%u, %%%u, p, 1, 1, %u", (unsigned)n_sum,
                            (unsigned)n_sum + 1, (unsigned)(i->imm >> 16 & 1));
        base_text_print(&text, ", %u;}\" : ", (unsigned)(i->imm >> 17 & 1));
        for (uint32_t n = 0; n < n_sum; n++)
            base_text_print(&text, "%s\"%cf\"(f%u[%u])", n ? ", " : "", fresh ? '=' : '+',
                            (unsigned)number, (unsigned)n);
        base_text_print(&text, " : ");
        for (uint32_t r = 0; r < 4 && held; r++)
            base_text_print(&text, "%s\"r\"(f%u[(%s + %uu) * 4u + %uu])", r ? ", " : "",
                            (unsigned)(i->imm >> 32), matrix[0], (unsigned)step, (unsigned)r);
        for (uint32_t x = held; x < 2; x++) {
            base_text_print(&text, "%s\"l\"(%s", x ? ", " : "", matrix[x]);
            if (step) base_text_print(&text, " + %uu", step * (i->imm >> (16 + x) & 1 ? 128u : 2u));
            base_text_print(&text, ")");
        }
        base_text_print(&text, ");");
        if (!text.failed && text.data) codegen_line(g, "%s", text.data);
    }
    codegen_line(g, "multiply_commit();");
    if (text.failed) codegen_no_memory(g);
    base_text_fini(&text);
}

/* Lanes look at its elements. */
static bool is_got(const codegen *g, uint32_t number) {
    for (uint32_t i = 0; i < g->k->n_code; i++)
        if (g->k->code[i].op == IR_FRAGMENT_GET && (g->k->code[i].imm & 0xffff) == number)
            return true;
    return false;
}

/* The compiler knows nothing of products under way: it must not move a look at sums that are
 * complete, of products of the same block, or of a loop before it, before the wait. */
void codegen_cuda_wait(codegen *g, ir_id id) {
    const uint64_t busy = g->k->code[id].imm;
    uint64_t seen = 0;
    uint32_t done = UINT32_MAX, depth = 0;
    codegen_line(g, "multiply_wait(%u);", (unsigned)busy);
    for (ir_id at = id; at-- > 0;) {
        const ir_instruction *i = &g->k->code[at];
        const uint32_t number = i->imm & 0xffff;
        if ((i->op == IR_LOOP && (busy || depth < 2)) ||
            (!depth && (i->op == IR_IF || i->op == IR_ELSE)) ||
            (depth && i->op == g->k->code[id].op && !i->imm)) /* nothing is under way before it */
            break;
        if (i->op == IR_END) depth++;
        if (i->op == IR_IF || i->op == IR_LOOP) depth--;
        if (i->op != IR_FRAGMENT_MULTIPLY || (depth && (busy || !is_got(g, number))) ||
            seen++ < busy || number == done)
            continue;
        done = number;
        for (uint32_t n = 0; n < 4 * g->k->fragments[number].count; n++)
            codegen_line(g, "multiply_done(f%u[%u]);", (unsigned)number, (unsigned)n);
    }
}

bool codegen_cuda_multiplies(const ir_kernel *k) {
    for (uint32_t i = 0; i < k->n_code; i++)
        if (k->code[i].op == IR_FRAGMENT_MULTIPLY) return true;
    return false;
}

/* A lane's own pair: one register, or two of an element each. */
static void move_pair(codegen *g, ir_id id, const shape *s) {
    const ir_instruction *i = &g->k->code[id];
    const uint32_t number = i->imm & 0xffff, pair = (uint32_t)(i->imm >> 16);
    const ir_type type = g->k->fragments[number].type;
    const char *place = codegen_operand(g, i, 0, 0), *in[2] = {NULL};
    for (uint32_t w = 0; w < 2 && i->op == IR_FRAGMENT_SET; w++) in[w] = codegen_stored(g, i, w);
    for (uint32_t w = 0; w < 2; w++) {
        const char *at = register_at(g, number, s, place, s->packed == 1 ? pair * 2 + w : pair);
        if (i->op == IR_FRAGMENT_GET)
            codegen_define(g, id, w, s->packed == 1 ? at : codegen_unword(g, type, &at, w));
        else if (s->packed == 1) codegen_line(g, "%s = %s;", at, in[w]);
        else if (!w)
            codegen_line(g, "%s = %s;", at, codegen_own(g, codegen_word(g, type, in, 2, 0)));
    }
}

bool codegen_cuda_fragment(codegen *g, ir_id id) {
    const ir_instruction *i = &g->k->code[id];
    shape s;
    if (i->op == IR_FRAGMENT_MULTIPLY) {
        const ir_array_decl *a = &g->k->workgroups[i->array];
        if (g->language->language != DEVICE_CUDA_C || g->k->subgroup_size != 32 ||
            !g->desc->launch_bytes || a->swizzle_bits != 3 || a->swizzle_base != 3 ||
            a->swizzle_shift != 3)
            return false;
        multiply_memory(g, i);
        return true;
    }
    if (i->op == IR_FRAGMENT_LOAD && i->imm >> 17) return false; /* pairs: of processors */
    if (i->op == IR_FRAGMENT_MMA) return multiply(g, i);
    if (i->op == IR_FRAGMENT_FILL) {
        fill(g, i);
        return true;
    }
    const ir_fragment_decl *f = &g->k->fragments[i->imm & 0xffff];
    if (!shape_of(f, &s)) return false;
    if (i->op == IR_FRAGMENT_GET || i->op == IR_FRAGMENT_SET) {
        move_pair(g, id, &s);
        return true;
    }
    const char *place = codegen_operand(g, i, 0, 0);
    if (i->op == IR_FRAGMENT_LOAD && load_matrix(g, id, f, &s, place)) return true;
    load_elements(g, i, f, &s, place);
    return true;
}
