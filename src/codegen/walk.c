/* walk.c - the walker that all generators share: names of values, statements, blocks.
 *
 * A body is first written to g->body, then the helpers that it calls are found and put before it.
 */
#include "codegen/c_vector.h"

#include "base/build.h"
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- errors, text ---------------------------------------------------------------------------- */

void codegen_no_memory(codegen *g) {
    if (!g->status)
        g->status = base_fail(g->error, BERYL_NO_MEMORY,
                              "not enough memory for the text of kernel '%s'", g->k->name);
}

bool codegen_for_processor(const codegen *g) {
    return BUILD_HAS_C_TEXTS &&
           (g->language->language == DEVICE_C ||
            (g->language->language == DEVICE_OPENCL_C && g->caps && device_is_processor(g->caps)));
}

void codegen_fail(codegen *g, ir_id id, const char *why) {
    if (g->status) return;
    const ir_instruction *i = &g->k->code[id];
    const ir_op_info *op = ir_op_of((ir_op)i->op);
    ir_type type = (ir_type)i->type;
    if ((type == IR_NONE || op->form == IR_FORM_COMPARE) && i->n_in)
        type = (ir_type)g->k->code[i->in[0]].type;
    if (op->form == IR_FORM_FRAGMENT_FILL) type = g->k->fragments[i->array].type;
    if (op->form == IR_FORM_FRAGMENT_LOAD || op->form == IR_FORM_FRAGMENT_STORE ||
        op->form == IR_FORM_FRAGMENT_MMA || op->form == IR_FORM_FRAGMENT_MULTIPLY ||
        op->form == IR_FORM_FRAGMENT_SET)
        type = g->k->fragments[i->imm & 0xffff].type;
    g->status = base_fail_at(g->error, BERYL_UNSUPPORTED, id, "%s of %s in %s (kernel '%s'): %s",
                             op->name, ir_type_name(type), g->language->name, g->k->name, why);
}

void codegen_refuse(codegen *g, const char *format, ...) {
    char what[160];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (!g->status)
        g->status = base_fail(g->error, BERYL_UNSUPPORTED, "%s (kernel '%s'): %s",
                              g->language->name, g->k->name, what);
}

const char *codegen_print(codegen *g, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = length < 0 ? NULL : base_arena_take(g->arena, (size_t)length + 1, 1);
    if (!text) {
        codegen_no_memory(g);
        return "";
    }
    va_start(args, format);
    vsnprintf(text, (size_t)length + 1, format, args);
    va_end(args);
    return text;
}

void codegen_line(codegen *g, const char *format, ...) {
    va_list args;
    char small[256];
    va_start(args, format);
    const int length = vsnprintf(small, sizeof small, format, args);
    va_end(args);
    if (length < 0) return;
    base_text_print(&g->body, "%*s", (int)(4 * g->indent), "");
    if ((size_t)length < sizeof small) {
        base_text_add(&g->body, small, (size_t)length);
    } else {
        char *text = base_arena_take(g->arena, (size_t)length + 1, 1);
        if (!text) {
            codegen_no_memory(g);
            return;
        }
        va_start(args, format);
        vsnprintf(text, (size_t)length + 1, format, args);
        va_end(args);
        base_text_add(&g->body, text, (size_t)length);
    }
    base_text_add(&g->body, "\n", 1);
}

const char *codegen_own(codegen *g, const char *expression) {
    base_text text;
    base_text_init(&text, g->arena->heap);
    codegen_translate(&text, g->language, expression, strlen(expression));
    char *own =
        text.failed ? NULL : base_arena_text(g->arena, text.data ? text.data : "", text.size);
    base_text_fini(&text);
    if (!own) codegen_no_memory(g);
    return own ? own : "";
}

void codegen_open(codegen *g, const char *line) {
    codegen_line(g, "%s", line);
    g->indent++;
}

void codegen_close(codegen *g) {
    g->indent--;
    codegen_line(g, "}");
}

/* ---- values ---------------------------------------------------------------------------------- */

const char *codegen_operand(codegen *g, const ir_instruction *i, uint32_t operand, uint32_t lane) {
    const ir_id id = i->in[operand];
    const char *text = g->texts[g->first[id] + (g->k->code[id].width == 1 ? 0 : lane)];
    return text ? text : "";
}

static const char *name_of(codegen *g, ir_id id, uint32_t lane) {
    return g->k->code[id].width == 1 ? codegen_print(g, "v%u", (unsigned)id)
                                     : codegen_print(g, "v%u_%u", (unsigned)id, (unsigned)lane);
}

static void declare(codegen *g, const char *type, const char *name, const char *own) {
    if (g->language->wgsl) codegen_line(g, "let %s = %s;", name, own);
    else codegen_line(g, "const %s %s = %s;", type, name, own);
}

void codegen_define(codegen *g, ir_id id, uint32_t lane, const char *own) {
    const char *name = name_of(g, id, lane);
    declare(g, codegen_type((ir_type)g->k->code[id].type), name, own);
    g->texts[g->first[id] + lane] = name;
}

const char *codegen_temporary(codegen *g, const char *type, const char *own) {
    const char *name = codegen_print(g, "t%u", (unsigned)g->temporaries++);
    declare(g, type, name, own);
    return name;
}

bool codegen_constant(const codegen *g, ir_id id, uint64_t *bits) {
    const ir_instruction *i = &g->k->code[id];
    *bits = i->imm;
    return i->op == IR_CONST;
}

/* A u32 value is at most this. */
static uint64_t most_of(const codegen *g, ir_id id, uint32_t depth) {
    const ir_instruction *i = &g->k->code[id];
    uint64_t in[3] = {UINT32_MAX, UINT32_MAX, UINT32_MAX}, most = UINT32_MAX;
    if (i->type != IR_U32 || i->width != 1 || depth > 8) return most;
    for (uint32_t n = 0; n < i->n_in && n < 3; n++) in[n] = most_of(g, i->in[n], depth + 1);
    if (i->op == IR_CONST) most = i->imm;
    else if (i->op == IR_LOCAL) most = g->k->workgroup[i->imm] - 1;
    else if (i->op == IR_ADD) most = in[0] + in[1];
    else if (i->op == IR_MUL) most = in[0] * in[1];
    else if (i->op == IR_FMA) most = in[0] * in[1] + in[2];
    else if (i->op == IR_AND || i->op == IR_MIN) most = in[0] < in[1] ? in[0] : in[1];
    else if (i->op == IR_SHR && g->k->code[i->in[1]].op == IR_CONST) most = in[0] >> (in[1] & 31);
    else if (i->op == IR_SHL && g->k->code[i->in[1]].op == IR_CONST) most = in[0] << (in[1] & 31);
    else if (i->op == IR_MOD && in[1] > 0) most = in[1] - 1;
    else if (i->op == IR_DIV) most = in[0];
    else if (i->op == IR_LOOP) most = in[1] > 0 ? in[1] - 1 : 0;
    return most < UINT32_MAX ? most : UINT32_MAX;
}

/* The access is made in every turn of the loop, whose index, or a multiple of it, begins at 0 and
 * grows: where it is first made, the rest of its place is one, so that with the index the sum
 * wraps no more. */
static bool is_each_turn(const codegen *g, const ir_instruction *access, ir_id loop, ir_id rest) {
    const ir_instruction *code = g->k->code;
    uint64_t from;
    uint32_t depth = 0;
    if (code[loop].op == IR_MUL && codegen_constant(g, code[loop].in[1], &from) &&
        from <= INT32_MAX) /* more is a step back */
        loop = code[loop].in[0];
    if (access < code || access >= code + g->k->n_code) return false; /* a part of one */
    if (code[loop].op != IR_LOOP || rest >= loop || !codegen_constant(g, code[loop].in[0], &from) ||
        from)
        return false;
    for (const ir_instruction *i = &code[loop] + 1; i < access; i++) {
        if (i->op == IR_LOOP || i->op == IR_IF) depth++;
        else if (i->op == IR_END && !depth--) return false;
    }
    return !depth;
}

const char *codegen_index_of(codegen *g, const ir_instruction *i, uint32_t operand) {
    const char *text = codegen_operand(g, i, operand, 0);
    const ir_instruction *sum = &g->k->code[i->in[operand]];
    uint64_t constant;
    /* Nothing wraps: then the compiler may put the constant into the instruction. */
    if (g->language->wide_index && i->space == IR_WORKGROUP && sum->op == IR_ADD &&
        codegen_constant(g, sum->in[1], &constant) && most_of(g, i->in[operand], 0) < UINT32_MAX)
        return codegen_print(g, "(u64)%s + %uu", codegen_operand(g, sum, 0, 0), (unsigned)constant);
    if (BUILD_HAS_C_TEXTS && g->language->language == DEVICE_C && i->space != IR_REGISTER &&
        i->width == 1 && sum->op == IR_ADD && sum->type == IR_U32 && ir_lanes(g->k) == 1) {
        const char *more = "";
        if (codegen_constant(g, sum->in[1], &constant) && g->k->code[sum->in[0]].op == IR_ADD) {
            more = codegen_print(g, " + %uu", (unsigned)constant);
            sum = &g->k->code[sum->in[0]];
        }
        for (uint32_t n = 0; n < 2; n++)
            if (is_each_turn(g, i, sum->in[n], sum->in[1 - n]))
                return codegen_print(g, "(u64)(%s%s) + %s", codegen_operand(g, sum, 1 - n, 0), more,
                                     codegen_operand(g, sum, n, 0));
    }
    if (g->k->code[i->in[operand]].type != IR_U64) return text;
    uint64_t bits;
    if (codegen_constant(g, i->in[operand], &bits) && bits <= UINT32_MAX)
        return codegen_print(g, "%uu", (unsigned)bits);
    return g->language->wgsl ? codegen_print(g, "%s.x", text) : text;
}

const char *codegen_index(codegen *g, const char *index, uint32_t more) {
    if (!more) return index;
    uint32_t value = 0;
    const char *c = index;
    while (*c >= '0' && *c <= '9' && value < 100000000) value = value * 10 + (uint32_t)(*c++ - '0');
    if (c > index && c[0] == 'u' && !c[1]) return codegen_print(g, "%uu", (unsigned)(value + more));
    return codegen_print(g, "%s + %uu", index, (unsigned)more);
}

const char *codegen_swizzled(codegen *g, const ir_array_decl *a, const char *index) {
    if (!a->swizzle_bits) return index;
    return codegen_print(g, "((%s) ^ ((((%s) >> %uu) & %uu) << %uu))", index, index,
                         (unsigned)(a->swizzle_base + a->swizzle_shift),
                         (1u << a->swizzle_bits) - 1, (unsigned)a->swizzle_base);
}

ir_type codegen_array_type(const codegen *g, ir_space space, uint32_t array) {
    return space == IR_BUFFER      ? g->k->buffers[array].type
           : space == IR_WORKGROUP ? g->k->workgroups[array].type
                                   : g->k->registers[array].type;
}

void codegen_params(codegen *g, const char *format, bool words) {
    for (uint32_t n = 0; n < g->k->n_param; n++) {
        const ir_type type = g->k->params[n].type;
        const char *word = codegen_print(g, format, (unsigned)n),
                   *text = words ? codegen_from_bits(g, type, word) : word;
        if (g->language->wgsl)
            codegen_line(g, "let p%u = %s; // %s", n, text, g->k->params[n].name);
        else
            codegen_line(g, "const %s p%u = %s; /* %s */", codegen_type(type), n, text,
                         g->k->params[n].name);
    }
}

/* ---- lanes of a vector: no statements -------------------------------------------------------- */

static void place_lanes(codegen *g, ir_id id) {
    const ir_instruction *i = &g->k->code[id];
    const char **to = g->texts + g->first[id];
    for (uint32_t lane = 0; lane < i->width; lane++) {
        if (i->op == IR_SPLAT) {
            to[lane] = codegen_operand(g, i, 0, 0);
        } else if (i->op == IR_EXTRACT) {
            to[lane] = codegen_operand(g, i, 0, (uint32_t)i->imm);
        } else if (i->op == IR_SWIZZLE) {
            to[lane] = codegen_operand(g, i, 0, (uint32_t)(i->imm >> (4 * lane)) & 15);
        } else {
            const uint32_t each = (uint32_t)i->width / i->n_in;
            to[lane] = codegen_operand(g, i, lane / each, lane % each);
        }
    }
}

static void bitcast(codegen *g, ir_id id) {
    const ir_instruction *i = &g->k->code[id];
    const ir_type to = (ir_type)i->type, from = (ir_type)g->k->code[i->in[0]].type;
    const uint32_t from_width = g->k->code[i->in[0]].width,
                   bytes = from_width * ir_type_bytes(from);
    const char *values[16], *words[32];
    for (uint32_t lane = 0; lane < from_width; lane++)
        values[lane] = codegen_operand(g, i, 0, lane);
    if (ir_type_bytes(to) == ir_type_bytes(from)) {
        for (uint32_t lane = 0; lane < i->width; lane++)
            codegen_define(g, id, lane,
                           codegen_from_bits(g, to, codegen_to_bits(g, from, values[lane])));
        return;
    }
    for (uint32_t w = 0; w < (bytes + 3) / 4; w++)
        words[w] = codegen_temporary(g, "u32", codegen_word(g, from, values, from_width, w));
    for (uint32_t lane = 0; lane < i->width; lane++)
        codegen_define(g, id, lane, codegen_unword(g, to, words, lane));
}

/* ---- subgroups ------------------------------------------------------------------------------- */

/* $0: the value, $1: n, $2: lanes of a subgroup, $3: bits of a lane's number that tell which of the
 * kernel's subgroups it is in within the device's, which may be larger. */
static const char *between(codegen *g, const char *template, const char *x, uint32_t n) {
    const uint32_t size = g->k->subgroup_size, mask = g->caps && g->caps->subgroup_size > size
                                                          ? g->caps->subgroup_size - size
                                                          : 0;
    base_text text;
    base_text_init(&text, g->arena->heap);
    for (const char *c = template; *c; c++) {
        if (*c != '$') base_text_add(&text, c, 1);
        else if (*++c == '0') base_text_add_view(&text, base_view_of(x));
        else base_text_print(&text, "%u", (unsigned)(*c == '1' ? n : *c == '2' ? size : mask));
    }
    if (text.failed) codegen_no_memory(g);
    const char *own = text.failed || !text.data ? "" : codegen_print(g, "%s", text.data);
    base_text_fini(&text);
    return own;
}

static void subgroup(codegen *g, ir_id id) {
    const ir_instruction *i = &g->k->code[id];
    const ir_type type = (ir_type)i->type;
    if (g->k->subgroup_size == 1) {
        for (uint32_t lane = 0; lane < i->width; lane++)
            g->texts[g->first[id] + lane] = codegen_operand(g, i, 0, lane);
        return;
    }
    if (g->caps && !g->caps->subgroups) {
        codegen_fail(g, id, "the device has no subgroups");
        return;
    }
    if (g->caps && g->caps->subgroup_size < g->k->subgroup_size) {
        codegen_fail(g, id, "the device's subgroups have fewer lanes than the kernel's");
        return;
    }
    g->uses_subgroups = true;
    for (uint32_t lane = 0; lane < i->width; lane++) {
        const char *x = codegen_operand(g, i, 0, lane);
        if (i->op == IR_SUBGROUP_BROADCAST) {
            codegen_define(g, id, lane, between(g, g->language->broadcast, x, (uint32_t)i->imm));
        } else if (i->op == IR_SUBGROUP_SHUFFLE_XOR) {
            codegen_define(g, id, lane, between(g, g->language->shuffle, x, (uint32_t)i->imm));
        } else {
            const ir_op op = i->op == IR_SUBGROUP_ADD   ? IR_ADD
                             : i->op == IR_SUBGROUP_MIN ? IR_MIN
                                                        : IR_MAX;
            const char *name = codegen_type(type);
            const bool whole = !g->caps || g->caps->subgroup_size == g->k->subgroup_size;
            if (g->language->reduce_add && whole && op == IR_ADD &&
                ir_type_bytes(codegen_carrier(type)) == 4) {
                const char *sum = codegen_print(g, "%s(%s)", g->language->reduce_add, x);
                codegen_define(g, id, lane, codegen_narrow(g, type, sum));
                continue;
            }
            x = codegen_temporary(g, name, x);
            for (uint32_t step = g->k->subgroup_size / 2; step; step /= 2) {
                const char *other =
                    codegen_temporary(g, name, between(g, g->language->shuffle, x, step));
                x = codegen_temporary(g, name, codegen_combine(g, op, type, x, other));
            }
            g->texts[g->first[id] + lane] = x;
        }
    }
}

/* ---- instructions ---------------------------------------------------------------------------- */

static void copy_now(codegen *g, ir_id id) {
    const ir_instruction *i = &g->k->code[id];
    const uint32_t buffer = (uint32_t)i->imm & 0xffff, bytes = (uint32_t)(i->imm >> 16);
    const ir_type type = g->k->workgroups[i->array].type;
    const uint32_t width = bytes / ir_type_bytes(type);
    const char *values[16];
    const ir_instruction get = {.op = IR_LOAD,
                                .type = (uint8_t)type,
                                .width = (uint8_t)width,
                                .n_in = 1,
                                .space = IR_BUFFER,
                                .array = (uint16_t)buffer,
                                .in = {i->in[1], IR_NO_ID, IR_NO_ID, IR_NO_ID}};
    const ir_instruction put = {.op = IR_STORE,
                                .type = (uint8_t)type,
                                .width = (uint8_t)width,
                                .n_in = 1,
                                .space = IR_WORKGROUP,
                                .array = i->array,
                                .in = {i->in[0], IR_NO_ID, IR_NO_ID, IR_NO_ID}};
    const char *to = codegen_index_of(g, &put, 0), *from = codegen_index_of(g, &get, 0);
    const bool asks = i->n_in == 3;
    if (asks) codegen_open(g, codegen_print(g, "if (%s) {", codegen_operand(g, i, 2, 0)));
    g->language->load(g, &get, from, values);
    g->language->store(g, &put, to, values);
    if (!asks) return;
    g->indent--;
    codegen_open(g, "} else {");
    for (uint32_t lane = 0; lane < width; lane++) values[lane] = codegen_literal(g, type, 0);
    g->language->store(g, &put, to, values);
    codegen_close(g);
}

/* t3 or t3.x: a temporary or a part of one, which needs no name of its own. */
static bool is_temporary(const char *text) {
    if (*text++ != 't' || *text < '0' || *text > '9') return false;
    while (*text >= '0' && *text <= '9') text++;
    return !*text || (text[0] == '.' && text[1] && !text[2]);
}

/* Vectors that begin anywhere are for processors. */
static bool has_access(codegen *g, const ir_instruction *i) {
    if (!BUILD_HAS_C_TEXTS || !i->imm || g->arrays || g->language->language == DEVICE_C)
        return true;
    codegen_refuse(g, "%s of a vector that begins anywhere", ir_op_of((ir_op)i->op)->name);
    return false;
}

static void load(codegen *g, ir_id id) {
    const ir_instruction *i = &g->k->code[id];
    const char *values[16];
    if (!has_access(g, i)) return;
    const bool bars = i->op == IR_UNIFORM_LOAD && !g->language->wgsl;
    if (codegen_c_wide(g, i)) {
        codegen_c_wide_load(g, id, codegen_index_of(g, i, 0));
        return;
    }
    if (bars) codegen_line(g, "%s", g->language->barrier);
    g->language->load(g, i, codegen_index_of(g, i, 0), values);
    for (uint32_t lane = 0; lane < i->width; lane++)
        if (g->language->wgsl && is_temporary(values[lane]))
            g->texts[g->first[id] + lane] = values[lane];
        else codegen_define(g, id, lane, values[lane]);
    if (bars) codegen_line(g, "%s", g->language->barrier);
}

const char *codegen_before_cast(codegen *g, const ir_instruction *i, uint32_t lane) {
    const ir_instruction *from = &g->k->code[i->in[1]];
    const bool rounds = from->type == IR_F16;
    uint32_t place = lane;
    while (rounds && from->op == IR_COMPOSE) {
        const uint32_t each = (uint32_t)from->width / from->n_in;
        from = &g->k->code[from->in[place / each]];
        place %= each;
    }
    return rounds && from->op == IR_CAST && g->k->code[from->in[0]].type == IR_F32
               ? codegen_operand(g, from, 0, place)
               : NULL;
}

const char *codegen_stored(codegen *g, const ir_instruction *i, uint32_t lane) {
    const bool rounds =
        i->space != IR_REGISTER && !g->language->wgsl && g->language->language != DEVICE_C;
    const char *before = rounds ? codegen_before_cast(g, i, lane) : NULL;
    return before ? before : codegen_operand(g, i, 1, lane);
}

static void store(codegen *g, const ir_instruction *i) {
    if (!has_access(g, i)) return;
    if (codegen_c_wide(g, i)) {
        codegen_c_wide_store(g, i, codegen_index_of(g, i, 0));
        return;
    }
    const char *values[16];
    for (uint32_t lane = 0; lane < i->width; lane++) values[lane] = codegen_stored(g, i, lane);
    g->language->store(g, i, codegen_index_of(g, i, 0), values);
}

static void loop(codegen *g, ir_id id) {
    const ir_instruction *i = &g->k->code[id];
    const char *name = name_of(g, id, 0), *from = codegen_operand(g, i, 0, 0),
               *to = codegen_operand(g, i, 1, 0);
    const char *step = codegen_operand(g, i, 2, 0);
    const uint32_t unroll = (uint32_t)i->imm & 0xffff;
    if (unroll && g->language->unroll) codegen_line(g, g->language->unroll, unroll);
    if (g->language->wgsl)
        codegen_line(g, "for (var %s = %s; %s < %s; %s = %s + %s) {", name, from, name, to, name,
                     name, step);
    else
        codegen_line(g, "for (u32 %s = %s; %s < %s; %s += %s) {", name, from, name, to, name, step);
    g->texts[g->first[id]] = name;
    g->indent++;
}

void codegen_one(codegen *g, ir_id id) {
    const ir_instruction *i = &g->k->code[id];
    const ir_op op = (ir_op)i->op;
    const ir_op_info *info = ir_op_of(op);
    const ir_type type = (ir_type)i->type;
    if (g->status) return;
    if (type == IR_F64 && (g->language->wgsl || (g->caps && !g->caps->f64))) {
        codegen_fail(g, id,
                     g->language->wgsl ? "the language has no such type"
                                       : "the device has no such type");
        return;
    }
    switch (info->form) {
    case IR_FORM_CONST: {
        const char *text = codegen_literal(g, type, i->imm);
        for (uint32_t lane = 0; lane < i->width; lane++) g->texts[g->first[id] + lane] = text;
        return;
    }
    case IR_FORM_PARAM:
        g->texts[g->first[id]] = codegen_print(g, "p%u", (unsigned)i->array);
        return;
    case IR_FORM_INDEX:
        g->texts[g->first[id]] =
            op == IR_SUBGROUP_SIZE
                ? codegen_print(g, "%uu", (unsigned)g->k->subgroup_size)
                : codegen_print(g, "(lane & %uu)", (unsigned)(g->k->subgroup_size - 1));
        return;
    case IR_FORM_AXIS: {
        const unsigned axis = (unsigned)i->imm;
        g->texts[g->first[id]] = op == IR_LOCAL && g->k->workgroup[axis] == 1
                                     ? "0u"
                                     : codegen_print(g, "%s_%c",
                                                     op == IR_GROUP    ? "group"
                                                     : op == IR_GROUPS ? "groups"
                                                                       : "local",
                                                     "xyz"[axis]);
        return;
    }
    case IR_FORM_SAME:
    case IR_FORM_LANE:
        if (op == IR_SUBGROUP_ADD || op == IR_SUBGROUP_MIN || op == IR_SUBGROUP_MAX ||
            info->form == IR_FORM_LANE) {
            subgroup(g, id);
            return;
        }
        break;
    case IR_FORM_COMPARE:
    case IR_FORM_SELECT:
    case IR_FORM_DOT:
    case IR_FORM_CAST: break;
    case IR_FORM_BITCAST:
        if (codegen_c_wide(g, i)) codegen_c_wide_bitcast(g, id);
        else bitcast(g, id);
        return;
    case IR_FORM_SPLAT:
    case IR_FORM_EXTRACT:
    case IR_FORM_COMPOSE:
    case IR_FORM_SWIZZLE:
        if (!codegen_c_wide_lanes(g, id)) place_lanes(g, id);
        return;
    case IR_FORM_LOAD: load(g, id); return;
    case IR_FORM_STORE: store(g, i); return;
    case IR_FORM_ATOMIC: g->language->atomic(g, id); return;
    case IR_FORM_FRAGMENT_FILL:
    case IR_FORM_FRAGMENT_LOAD:
    case IR_FORM_FRAGMENT_STORE:
    case IR_FORM_FRAGMENT_MMA:
    case IR_FORM_FRAGMENT_MULTIPLY:
    case IR_FORM_FRAGMENT_GET:
    case IR_FORM_FRAGMENT_SET:
        if (!g->language->fragment || !g->language->fragment(g, id))
            codegen_fail(g, id, "the language has no matrix fragments");
        return;
    case IR_FORM_COPY_ASYNC:
        if (!g->language->fragment || !g->language->fragment(g, id)) copy_now(g, id);
        return;
    case IR_FORM_COUNT:
        if (g->language->fragment) g->language->fragment(g, id);
        return;
    case IR_FORM_LOOP: loop(g, id); return;
    case IR_FORM_IF:
        codegen_open(g, codegen_print(g, "if (%s) {", codegen_operand(g, i, 0, 0)));
        return;
    case IR_FORM_BARE:
        if (op == IR_BARRIER) {
            codegen_line(g, "%s", g->language->barrier);
        } else if (op == IR_COPY_COMMIT) {
            if (g->language->fragment) g->language->fragment(g, id);
        } else {
            g->indent--;
            codegen_line(g, op == IR_ELSE ? "} else {" : "}");
            g->indent += op == IR_ELSE;
        }
        return;
    }
    if (codegen_c_wide(g, i)) {
        codegen_c_wide_op(g, id);
        return;
    }
    for (uint32_t lane = 0; lane < i->width; lane++) {
        const char *in[4] = {NULL};
        for (uint32_t n = 0; n < i->n_in; n++) in[n] = codegen_operand(g, i, n, lane);
        const char *text = codegen_expression(g, id, in);
        if (op == IR_CAST && text == in[0])
            g->texts[g->first[id] + lane] = text; /* the same carrier */
        else codegen_define(g, id, lane, text);
    }
}

void codegen_walk(codegen *g, ir_id from, ir_id to) {
    for (ir_id id = from; id < to && !g->status; id++) codegen_one(g, id);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void note_access(codegen *g, codegen_access *a, const ir_instruction *i, uint32_t bytes,
                        uint32_t element) {
    uint64_t bits;
    const ir_op op = (ir_op)i->op;
    if (op == IR_LOAD || op == IR_UNIFORM_LOAD) {
        a->loaded = true;
        if (bytes > a->load_bytes_max) a->load_bytes_max = bytes;
    } else if (op == IR_STORE) {
        if (!a->stored || bytes < a->store_bytes_min) a->store_bytes_min = bytes;
        a->stored = true;
    } else {
        a->atomic = a->loaded = a->stored = true;
        a->store_bytes_min = element;
    }
    if (!codegen_constant(g, i->in[0], &bits) || bits > 4096 || bytes != element)
        a->constant = false;
}

/* How each array is accessed; the narrowest load counts as none, fragments and copies as element by
 * element. */
static bool look(codegen *g) {
    const ir_kernel *k = g->k;
    const uint32_t counts[3] = {k->n_buffer, k->n_workgroup, k->n_register};
    size_t lanes = 0;
    for (int s = 0; s < 3; s++) {
        g->access[s] = base_arena_take(g->arena, counts[s] + 1, sizeof(codegen_access));
        if (!g->access[s]) return false;
        for (uint32_t n = 0; n < counts[s]; n++) g->access[s][n].constant = true;
    }
    g->first = base_arena_take(g->arena, k->n_code + 1, sizeof *g->first);
    if (!g->first) return false;
    for (ir_id id = 0; id < k->n_code; id++) {
        const ir_instruction *i = &k->code[id];
        const ir_form form = ir_op_of((ir_op)i->op)->form;
        g->first[id] = (uint32_t)lanes;
        if (ir_has_result(i)) lanes += i->width;
        if (form == IR_FORM_LOAD || form == IR_FORM_STORE || form == IR_FORM_ATOMIC) {
            const uint32_t element =
                ir_type_bytes(codegen_array_type(g, (ir_space)i->space, i->array));
            note_access(g, &g->access[i->space][i->array], i, element * i->width, element);
        } else if (form == IR_FORM_COPY_ASYNC) {
            codegen_access *to = &g->access[IR_WORKGROUP][i->array],
                           *from = &g->access[IR_BUFFER][i->imm & 0xffff];
            const uint32_t bytes = (uint32_t)(i->imm >> 16);
            if (!to->stored || bytes < to->store_bytes_min) to->store_bytes_min = bytes;
            if (bytes > from->load_bytes_max) from->load_bytes_max = bytes;
            to->stored = from->loaded = true;
        }
    }
    g->texts = base_arena_take(g->arena, lanes + 1, sizeof *g->texts);
    return g->texts != NULL;
}

static void describe(codegen *g) {
    device_program_desc *d = g->desc;
    d->language = g->language->language;
    d->entry = g->entry;
    d->label = g->k->name;
    d->n_binding = g->k->n_buffer;
    for (uint32_t n = 0; n < g->k->n_buffer; n++)
        d->access[n] = g->k->buffers[n].access == IR_READ ? DEVICE_READ : DEVICE_READ_WRITE;
    d->param_bytes = 4 * g->k->n_param;
    memcpy(d->workgroup, g->k->workgroup, sizeof d->workgroup);
    d->uses_f16 = g->uses_f16;
    d->uses_subgroups = g->uses_subgroups;
}

static const codegen_language_info *language_of(device_language language) {
    if (!BUILD_HAS_C_TEXTS) return language == DEVICE_WGSL ? &codegen_wgsl : NULL;
    switch (language) {
    case DEVICE_WGSL: return &codegen_wgsl;
    case DEVICE_CUDA_C: return &codegen_cuda;
    case DEVICE_HIP_C: return &codegen_hip;
    case DEVICE_OPENCL_C: return &codegen_opencl;
    case DEVICE_C: return &codegen_c;
    case DEVICE_IR: break; /* ir_print writes it */
    }
    return NULL;
}

/* The printed form itself, for what interprets it. */
static void print_ir(codegen *g) {
    ir_print(&g->body, g->k);
    if (g->body.failed) codegen_no_memory(g);
}

beryl_status codegen_make(base_arena *arena, const ir_kernel *k, device_language language,
                          const device_caps *caps, device_program_desc *desc, beryl_error *error) {
    static const codegen_language_info printed = {
        .name = "kernel IR", .language = DEVICE_IR, .types = "", .kernel = print_ir};
    const codegen_language_info *l = language == DEVICE_IR ? &printed : language_of(language);
    *desc = (device_program_desc){0};
    if (!l) return base_fail(error, BERYL_MISUSE, "no such language: %d", (int)language);
    base_arena scratch;
    base_arena_init(&scratch, arena->heap);
    codegen g = {.k = k,
                 .language = l,
                 .caps = caps,
                 .arena = &scratch,
                 .indent = 1,
                 .desc = desc,
                 .error = error};
    base_text_init(&g.head, arena->heap);
    base_text_init(&g.body, arena->heap);
    base_text whole;
    base_text_init(&whole, arena->heap);
    g.entry = l->wgsl || l == &printed ? "main" : base_arena_print(arena, "kernel_%s", k->name);
    if (!g.entry || !look(&g)) codegen_no_memory(&g);
    if (!g.status) l->kernel(&g);
    if (!g.status) {
        if (l != &printed) base_text_print(&whole, l->wgsl ? "// %s\n" : "/* %s */\n", k->name);
        base_text_add_view(&whole, base_view_of(l->types));
        if (BUILD_HAS_C_TEXTS && g.more) base_text_add_view(&whole, base_view_of(g.more));
        if (l != &printed) codegen_helpers(&g, &whole, g.body.data ? g.body.data : "", g.body.size);
        base_text_add(&whole, g.head.data ? g.head.data : "", g.head.size);
        base_text_add(&whole, g.body.data ? g.body.data : "", g.body.size);
        if (g.head.failed || g.body.failed || whole.failed) codegen_no_memory(&g);
    }
    if (!g.status) {
        describe(&g);
        desc->source = base_arena_text(arena, whole.data, whole.size);
        desc->source_size = whole.size;
        if (!desc->source) codegen_no_memory(&g);
    }
    if (g.status) *desc = (device_program_desc){0};
    base_text_fini(&whole);
    base_text_fini(&g.body);
    base_text_fini(&g.head);
    base_arena_fini(&scratch);
    return g.status;
}
