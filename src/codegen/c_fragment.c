/* c_fragment.c - matrix fragments in plain C: whole matrices of each subgroup, f0[subgroup, place,
 * row, column].
 *
 * No faster than loops would be: it is there so that a kernel for matrix units runs everywhere. But
 * for what tiles of a processor hold, which one instruction multiplies. */
#include "codegen/c_fragment.h"

static uint32_t rows_of(const ir_fragment_decl *f) {
    return f->role == IR_ROLE_B ? f->k : f->m;
}

static uint32_t columns_of(const ir_fragment_decl *f) {
    return f->role == IR_ROLE_A ? f->k : f->n;
}

uint64_t codegen_c_fragment_count(const codegen *g, uint32_t fragment) {
    const ir_fragment_decl *f = &g->k->fragments[fragment];
    return (uint64_t)rows_of(f) * columns_of(f) * f->count * (ir_lanes(g->k) / g->k->subgroup_size);
}

/* Declares `<type> *const <name>`, the matrix at a place. */
static void matrix(codegen *g, const char *name, uint32_t fragment, const char *place) {
    const ir_fragment_decl *f = &g->k->fragments[fragment];
    codegen_line(g, "%s *const %s = &f%u[(at / %uu * %uu + %s) * %uu];", codegen_type(f->type),
                 name, (unsigned)fragment, (unsigned)g->k->subgroup_size, (unsigned)f->count, place,
                 (unsigned)(rows_of(f) * columns_of(f)));
}

static void multiply(codegen *g, const ir_instruction *i, const char *const *in) {
    static const char *const names[3] = {"c", "a", "b"};
    const ir_fragment_decl *f = &g->k->fragments[i->imm & 0xffff];
    const unsigned m = f->m, n = f->n, k = f->k;
    for (uint32_t j = 0; j < 3; j++)
        matrix(g, names[j], (uint32_t)(i->imm >> (16 * j)) & 0xffff, in[j]);
    codegen_open(g, codegen_print(g, "for (u32 row = 0; row < %uu; row++) {", m));
    codegen_line(g, "%s sums[%u];", codegen_type(f->type), n);
    codegen_line(
        g, "for (u32 column = 0; column < %uu; column++) sums[column] = c[row * %uu + column];", n,
        n);
    codegen_open(g, codegen_print(g, "for (u32 at_k = 0; at_k < %uu; at_k++) {", k));
    codegen_line(g, "const %s x = (%s)a[row * %uu + at_k];", codegen_type(f->type),
                 codegen_type(f->type), k);
    codegen_line(g,
                 "for (u32 column = 0; column < %uu; column++) sums[column] += x * (%s)b[at_k * "
                 "%uu + column];",
                 n, codegen_type(f->type), n);
    codegen_close(g);
    codegen_line(g, "for (u32 column = 0; column < %uu; column++) c[row * %uu + column] = %s;", n,
                 n, codegen_narrow(g, f->type, "sums[column]"));
    codegen_close(g);
}

/* As fragment_multiply says, every place after the other. */
static void multiply_memory(codegen *g, const ir_instruction *i, const char *const *in) {
    static const char *const names[2] = {"a", "b"};
    const char *lines[2] = {
        codegen_print(g, "(at / %uu %% 4u * 16u + row)", (unsigned)g->k->subgroup_size), "column"};
    const uint32_t number = i->imm & 0xffff;
    const ir_fragment_decl *f = &g->k->fragments[number];
    const char *value[2];
    matrix(g, "c", number, "0u");
    codegen_open(g, codegen_print(g, "for (u32 row = 0; row < %uu; row++) {", (unsigned)f->m));
    codegen_open(g, codegen_print(g, "for (u32 column = 0; column < %uu; column++) {",
                                  (unsigned)(f->n * f->count)));
    if (i->imm >> 19 & 1) codegen_line(g, "f32 sum = 0.0f;");
    else
        codegen_line(g, "f32 sum = c[(column / %uu * %uu + row) * %uu + column %% %uu];",
                     (unsigned)f->n, (unsigned)f->m, (unsigned)f->n, (unsigned)f->n);
    codegen_open(g, codegen_print(g, "for (u32 at_k = 0; at_k < %uu; at_k++) {",
                                  (unsigned)(i->imm >> 24 & 255) * 16));
    if (i->imm >> 18 & 1)
        value[0] = codegen_print(
            g, "f%u[((at / %uu * %uu + %s) + at_k / 16u) * 256u + row * 16u + at_k %% 16u]",
            (unsigned)(i->imm >> 32), (unsigned)g->k->subgroup_size,
            (unsigned)g->k->fragments[i->imm >> 32].count, in[0]);
    for (uint32_t x = i->imm >> 18 & 1; x < 2; x++) {
        const char *index = codegen_print(g, "%s_index", names[x]), *line = lines[x];
        const ir_instruction one = {.op = IR_LOAD,
                                    .type = (uint8_t)g->k->workgroups[i->array].type,
                                    .width = 1,
                                    .space = IR_WORKGROUP,
                                    .array = i->array};
        if (i->imm >> (16 + x) & 1)
            codegen_line(g, "const u32 %s = %s + %s / 64u * %uu + 64u * at_k + %s %% 64u;", index,
                         in[x], line, (unsigned)(i->imm >> 24 & 255) * 1024, line);
        else codegen_line(g, "const u32 %s = %s + 64u * %s + at_k;", index, in[x], line);
        g->language->load(g, &one, index, &value[x]);
    }
    codegen_line(g, "sum += (f32)%s * (f32)%s;", value[0], value[1]);
    codegen_close(g);
    codegen_line(g, "c[(column / %uu * %uu + row) * %uu + column %% %uu] = sum;", (unsigned)f->n,
                 (unsigned)f->m, (unsigned)f->n, (unsigned)f->n);
    codegen_close(g);
    codegen_close(g);
}

/* ---- tiles ----------------------------------------------------------------------------------- */

bool codegen_c_is_fragment(const ir_instruction *i) {
    const ir_form form = ir_op_of((ir_op)i->op)->form;
    return form == IR_FORM_FRAGMENT_FILL || form == IR_FORM_FRAGMENT_LOAD ||
           form == IR_FORM_FRAGMENT_STORE || form == IR_FORM_FRAGMENT_MMA ||
           form == IR_FORM_FRAGMENT_MULTIPLY;
}

/* A tile loads lines of a, pairs of b, and stores lines of c. */
static bool is_of_tiles(const codegen *g, const ir_instruction *i) {
    const ir_role role = g->k->fragments[i->imm & 0xffff].role;
    const uint32_t n_place = i->op == IR_FRAGMENT_MMA ? 3 : 1;
    uint64_t bits = 0;
    for (uint32_t n = 0; n < n_place; n++)
        if (!codegen_constant(g, i->in[n], &bits)) return false;
    if (i->op == IR_FRAGMENT_MMA) return true;
    if (i->op == IR_FRAGMENT_FILL) return codegen_constant(g, i->in[1], &bits) && !bits;
    if (i->op == IR_FRAGMENT_STORE) return role == IR_ROLE_C && !(i->imm >> 16);
    return i->op == IR_FRAGMENT_LOAD && role != IR_ROLE_C &&
           i->imm >> 16 == (role == IR_ROLE_B ? 2 : 0);
}

bool codegen_c_tiles(const codegen *g) {
    enum { TILES = 8, SIDE = 16, DEPTH = 32 };
    const ir_kernel *k = g->k;
    uint32_t n = 0;
    for (uint32_t i = 0; i < k->n_fragment; i++) {
        const ir_fragment_decl *f = &k->fragments[i];
        if (f->m != SIDE || f->n != SIDE || f->k != DEPTH ||
            f->type != (f->role == IR_ROLE_C ? IR_F32 : IR_BF16))
            return false;
        n += f->count;
    }
    for (ir_id i = 0; n && i < k->n_code; i++)
        if (codegen_c_is_fragment(&k->code[i]) && !is_of_tiles(g, &k->code[i])) return false;
    return n && n <= TILES && ir_lanes(k) == 1;
}

static unsigned tile_of(const codegen *g, uint32_t fragment, const ir_instruction *i, uint32_t n) {
    uint64_t place = 0;
    codegen_constant(g, i->in[n], &place);
    for (uint32_t f = 0; f < fragment; f++) place += g->k->fragments[f].count;
    return (unsigned)place;
}

static void tile(codegen *g, const ir_instruction *i, const char *const *in) {
    const uint32_t number = i->op == IR_FRAGMENT_FILL ? i->array : (uint32_t)i->imm & 0xffff;
    const unsigned first = tile_of(g, number, i, 0);
    base_text text;
    if (i->op == IR_FRAGMENT_FILL) {
        codegen_line(g, "tile_zero(%u);", first);
    } else if (i->op == IR_FRAGMENT_MMA) {
        codegen_line(g, "tile_multiply(%u, %u, %u);", first,
                     tile_of(g, i->imm >> 16 & 0xffff, i, 1),
                     tile_of(g, i->imm >> 32 & 0xffff, i, 2));
    } else {
        base_text_init(&text, g->arena->heap);
        g->language->place(g, &text, (ir_space)i->space, i->array, in[1], 0);
        if (text.failed || !text.data) codegen_no_memory(g);
        else
            codegen_line(g, "tile_%s(%u, &%s, %s * %uu);",
                         i->op == IR_FRAGMENT_LOAD ? "load" : "store", first, text.data, in[2],
                         (unsigned)ir_type_bytes(g->k->fragments[number].type));
        base_text_fini(&text);
    }
}

void codegen_c_fragment(codegen *g, ir_id id, const char *const *in) {
    const ir_instruction *i = &g->k->code[id];
    const bool tiles = codegen_c_tiles(g);
    if (tiles) {
        codegen_line(g, "#ifdef HAS_TILES");
        tile(g, i, in);
        codegen_line(g, "#else");
    }
    codegen_open(g, codegen_print(g, "for (u32 at = 0; at < %uu; at += %uu) {",
                                  (unsigned)ir_lanes(g->k), (unsigned)g->k->subgroup_size));
    if (i->op == IR_FRAGMENT_MMA) {
        multiply(g, i, in);
    } else if (i->op == IR_FRAGMENT_MULTIPLY) {
        multiply_memory(g, i, in);
    } else {
        const bool fills = i->op == IR_FRAGMENT_FILL, transposed = !fills && i->imm >> 16 & 1;
        const uint32_t number = fills ? i->array : (uint32_t)i->imm & 0xffff;
        const ir_fragment_decl *f = &g->k->fragments[number];
        matrix(g, "m", number, in[0]);
        codegen_line(g, "for (u32 row = 0; row < %uu; row++)", (unsigned)rows_of(f));
        codegen_open(g, codegen_print(g, "    for (u32 column = 0; column < %uu; column++) {",
                                      (unsigned)columns_of(f)));
        const char *element = codegen_print(g, "m[row * %uu + column]", (unsigned)columns_of(f));
        if (fills) {
            codegen_line(g, "%s = %s;", element, in[1]);
        } else {
            const char *along = transposed     ? "row"
                                : i->imm >> 17 ? "2u * column + row % 2u"
                                               : "column";
            codegen_line(g, "const u32 index = %s + %s * %s + %s;", in[1],
                         transposed     ? "column"
                         : i->imm >> 17 ? "row / 2u"
                                        : "row",
                         in[2], along);
            const ir_instruction one = {
                .op = (uint8_t)(i->op == IR_FRAGMENT_LOAD ? IR_LOAD : IR_STORE),
                .type = (uint8_t)f->type,
                .width = 1,
                .space = i->space,
                .array = i->array};
            const char *value = element;
            if (i->op == IR_FRAGMENT_LOAD) {
                g->language->load(g, &one, "index", &value);
                codegen_line(g, "%s = %s;", element, value);
            } else {
                g->language->store(g, &one, "index", &value);
            }
        }
        codegen_close(g);
    }
    codegen_close(g);
    if (tiles) codegen_line(g, "#endif");
}

bool codegen_c_fragment_lane(codegen *g, ir_id id) {
    const ir_instruction *i = &g->k->code[id];
    if (i->op != IR_FRAGMENT_GET && i->op != IR_FRAGMENT_SET) {
        const char *in[4] = {NULL};
        if (ir_lanes(g->k) > 1 || !codegen_c_is_fragment(i)) return false;
        for (uint32_t n = 0; n < i->n_in; n++) in[n] = codegen_operand(g, i, n, 0);
        codegen_c_fragment(g, id, in);
        return true;
    }
    const unsigned number = i->imm & 0xffff, pair = (unsigned)(i->imm >> 16);
    const ir_fragment_decl *f = &g->k->fragments[number];
    const bool right = f->role == IR_ROLE_B;
    const unsigned columns = columns_of(f), line = right ? 1 : columns, next = right ? columns : 1;
    const unsigned first = right ? 8 * pair * columns : pair % 2 * 8 * columns + pair / 2 * 8;
    for (uint32_t w = 0; w < 2; w++) {
        const char *element = codegen_print(
            g,
            "f%u[(lane / 32u * %uu + %s) * %uu + (lane / 4u %% 8u) * %uu + lane %% 4u * %uu + %uu]",
            number, (unsigned)f->count, codegen_operand(g, i, 0, 0), rows_of(f) * columns, line,
            2 * next, first + w * next);
        if (i->op == IR_FRAGMENT_GET) codegen_define(g, id, w, element);
        else codegen_line(g, "%s = %s;", element, codegen_operand(g, i, 1, w));
    }
    return true;
}
