/* parse.c - the printed form back to a kernel.
 *
 * Takes hostile text: every word is looked at before it is used, numbers do not overflow, and what
 * comes out has passed ir_verify. Refuses with the byte where the text goes wrong. The idea: a
 * cursor that fails once and then gives nothing, and ids that must stand where they count: %7 is
 * the eighth instruction.
 */
#include "ir/ir.h"
#include "base/build.h"
#include "base/error.h"

#include <math.h>
#include <string.h>

typedef struct parser {
    const char *text;
    size_t size, at;
    size_t word_at; /* where the last word began */
    ir_builder *b;
    beryl_error *error;
    beryl_status status; /* BERYL_OK: good so far */
    base_heap *heap;
    base_vec(size_t) lines; /* where each instruction begins */
} parser;

static void bad(parser *p, const char *what) {
    if (!p->status)
        p->status = base_fail_at(p->error, BERYL_BAD_INPUT, p->word_at, "kernel text, byte %zu: %s",
                                 p->word_at, what);
}

/* ---- words ------------------------------------------------------------------------------------
 */

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static void skip_blanks(parser *p) {
    while (p->at < p->size && is_blank(p->text[p->at])) p->at++;
    if (p->at < p->size && p->text[p->at] == ';')
        while (p->at < p->size && p->text[p->at] != '\n') p->at++;
}

static bool at_line_end(parser *p) {
    skip_blanks(p);
    return p->at == p->size || p->text[p->at] == '\n';
}

/* The next word of the line; empty at its end. Quotes are words of their own. */
static base_view word(parser *p) {
    bool end = at_line_end(p);
    p->word_at = p->at;
    if (p->status || end) return (base_view){"", 0};
    while (p->at < p->size && !is_blank(p->text[p->at]) && p->text[p->at] != '\n' &&
           p->text[p->at] != ';')
        p->at++;
    return (base_view){p->text + p->word_at, p->at - p->word_at};
}

static bool take(parser *p, const char *literal) {
    size_t before = p->at;
    if (base_view_equal(word(p), base_view_of(literal))) return true;
    p->at = before;
    return false;
}

static void need(parser *p, const char *literal) {
    base_view w = word(p);
    if (!base_view_equal(w, base_view_of(literal))) bad(p, "another word was expected here");
}

static void need_line_end(parser *p) {
    if (!p->status && !at_line_end(p)) {
        p->word_at = p->at;
        bad(p, "the line is too long");
    }
    if (p->at < p->size) p->at++;
}

/* To the next line that says something; false: there is none. */
static bool next_line(parser *p) {
    while (!p->status && p->at < p->size) {
        if (!at_line_end(p)) return true;
        if (p->at < p->size) p->at++;
    }
    return false;
}

/* ---- numbers ----------------------------------------------------------------------------------
 */

static int digit_of(char c, uint64_t base) {
    int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
    return d < (int)base ? d : -1;
}

/* All of w is a number without a sign; false: not one, or beyond `most`. */
static bool unsigned_of(base_view w, uint64_t base, uint64_t most, uint64_t *out) {
    uint64_t value = 0;
    if (!w.size) return false;
    for (size_t i = 0; i < w.size; i++) {
        int d = digit_of(w.data[i], base);
        if (d < 0 || value > (most - (uint64_t)d) / base) return false;
        value = value * base + (uint64_t)d;
    }
    *out = value;
    return true;
}

static uint64_t number(parser *p, uint64_t most) {
    uint64_t value = 0;
    if (!unsigned_of(word(p), 10, most, &value) && !p->status)
        bad(p, "a whole number was expected here, and not as large a one");
    return p->status ? 0 : value;
}

static uint32_t number32(parser *p, uint32_t most) {
    return (uint32_t)number(p, most);
}

static bool cut(base_view *w, const char *prefix) {
    base_view begin = base_view_of(prefix);
    if (!base_view_begins(*w, begin)) return false;
    w->data += begin.size;
    w->size -= begin.size;
    return true;
}

/* 1.8p+1, what follows 0x. At most 53 bits, so that the double is exact. */
static bool hex_float_of(base_view w, double *out) {
    uint64_t mantissa = 0, exponent = 0;
    size_t i = 0, after_dot = 0, digits = 0;
    bool dot = false;
    for (; i < w.size && w.data[i] != 'p'; i++) {
        int d = digit_of(w.data[i], 16);
        if (w.data[i] == '.' && !dot) {
            dot = true;
            continue;
        }
        if (d < 0 || digits == 14) return false;
        mantissa = mantissa * 16 + (uint64_t)d;
        digits++;
        after_dot += dot;
    }
    w.data += i;
    w.size -= i;
    bool negative = cut(&w, "p-");
    if (!digits || mantissa >> 53 || (!negative && !cut(&w, "p+")) ||
        !unsigned_of(w, 10, 1100, &exponent))
        return false;
    int scale = (negative ? -(int)exponent : (int)exponent) - 4 * (int)after_dot;
    *out = ldexp((double)mantissa, scale);
    return ldexp(*out, -scale) == (double)mantissa; /* else it was too large or too small */
}

bool ir_parse_float(base_view w, double *value) {
    uint64_t whole;
    bool negative = cut(&w, "-");
    if (base_view_equal(w, BASE_VIEW("inf"))) *value = INFINITY;
    else if (cut(&w, "0x")) {
        if (!hex_float_of(w, value) || isinf(*value)) return false;
    } else {
        if (!unsigned_of(w, 10, UINT64_C(1) << 53, &whole)) return false;
        *value = (double)whole;
    }
    if (negative) *value = -*value;
    return true;
}

static bool float_bits_of(ir_type type, base_view w, uint64_t *bits) {
    double value;
    if (!ir_parse_float(w, &value)) return false;
    *bits = ir_from_double(type, value);
    double back = ir_to_double(type, *bits);
    return back == value && signbit(back) == signbit(value);
}

/* The bits of a constant. */
static uint64_t constant(parser *p, ir_type type) {
    uint64_t bits = 0, most = UINT64_MAX;
    uint32_t n_bit = 8 * ir_type_bytes(type);
    base_view w = word(p);
    bool good;
    if (type == IR_BOOL) {
        bits = base_view_equal(w, BASE_VIEW("true"));
        good = bits || base_view_equal(w, BASE_VIEW("false"));
    } else if (type == IR_NONE) {
        good = false;
    } else if (base_view_equal(w, BASE_VIEW("bits"))) {
        w = word(p);
        if (n_bit < 64) most = (UINT64_C(1) << n_bit) - 1;
        good = cut(&w, "0x") && unsigned_of(w, 16, most, &bits);
    } else if (ir_type_in(type, IR_FLOATS)) {
        good = float_bits_of(type, w, &bits);
    } else {
        bool negative = ir_type_in(type, IR_SIGNED) && cut(&w, "-");
        most >>= 64 - n_bit;
        if (ir_type_in(type, IR_SIGNED)) most = (most >> 1) + negative;
        good = unsigned_of(w, 10, most, &bits);
        if (negative) bits = (0 - bits) & (UINT64_MAX >> (64 - n_bit));
    }
    if (!good) bad(p, "a number that its type holds exactly was expected here");
    return good ? bits : 0;
}

/* ---- names ------------------------------------------------------------------------------------
 */

static ir_type type_of(base_view w) {
    for (int type = 0; type < IR_TYPE_COUNT; type++)
        if (base_view_equal(w, base_view_of(ir_type_name((ir_type)type)))) return (ir_type)type;
    return IR_TYPE_COUNT;
}

static ir_type type(parser *p) {
    ir_type found = type_of(word(p));
    if (found == IR_TYPE_COUNT) bad(p, "a type was expected here");
    return p->status ? IR_NONE : found;
}

/* f32 or f32x4 */
static ir_type wide_type(parser *p, uint8_t *width) {
    base_view w = word(p), name = w;
    uint64_t lanes = 1;
    for (size_t i = 0; i < w.size; i++)
        if (w.data[i] == 'x') {
            name.size = i;
            if (!unsigned_of((base_view){w.data + i + 1, w.size - i - 1}, 10, 16, &lanes) ||
                lanes < 2)
                lanes = 0;
            break;
        }
    ir_type found = type_of(name);
    if (found == IR_TYPE_COUNT || !lanes) bad(p, "a type was expected here");
    *width = (uint8_t)lanes;
    return p->status ? IR_NONE : found;
}

/* A name in quotes, without them; into[]. The verifier looks at its letters. */
static const char *name(parser *p, char into[IR_NAME_MAX + 2]) {
    base_view w = word(p);
    into[0] = 0;
    if (w.size < 3 || w.size - 2 > IR_NAME_MAX || w.data[0] != '"' || w.data[w.size - 1] != '"' ||
        memchr(w.data, 0, w.size)) {
        bad(p, "a short name in quotes was expected here");
        return into;
    }
    memcpy(into, w.data + 1, w.size - 2);
    into[w.size - 2] = 0;
    return into;
}

static uint8_t space(parser *p, uint16_t *array) {
    uint8_t found = IR_BUFFER;
    if (take(p, "workgroup")) found = IR_WORKGROUP;
    else if (take(p, "register")) found = IR_REGISTER;
    else need(p, "buffer");
    *array = (uint16_t)number(p, UINT16_MAX);
    return found;
}

/* ---- declarations -----------------------------------------------------------------------------
 */

/* Declarations are numbered in their order. */
static void declared_number(parser *p, uint32_t *count) {
    if (number(p, UINT16_MAX) != (*count)++)
        bad(p, "the numbers of declarations follow each other");
}

static void array_declaration(parser *p, bool workgroup) {
    ir_type of = type(p);
    uint32_t count = number32(p, UINT32_MAX), bits = 0, base = 0, shift = 0;
    if (workgroup && take(p, "swizzle")) {
        bits = number32(p, 255);
        base = number32(p, 255);
        shift = number32(p, 255);
        if (!bits) bad(p, "a swizzle of no bits");
    }
    if (p->status) return;
    if (workgroup)
        ir_workgroup_swizzled(p->b, of, count, (uint8_t)bits, (uint8_t)base, (uint8_t)shift);
    else ir_register(p->b, of, count);
}

static void fragment_declaration(parser *p) {
    ir_role role = take(p, "a") ? IR_ROLE_A : take(p, "b") ? IR_ROLE_B : IR_ROLE_C;
    if (role == IR_ROLE_C) need(p, "c");
    ir_type of = type(p);
    uint16_t m = (uint16_t)number(p, UINT16_MAX), n = (uint16_t)number(p, UINT16_MAX);
    uint16_t k = (uint16_t)number(p, UINT16_MAX);
    need(p, "count");
    uint32_t count = number32(p, UINT32_MAX);
    if (!p->status) ir_fragment(p->b, role, of, m, n, k, count);
}

typedef struct counts {
    uint32_t buffers, params, workgroups, registers, fragments;
} counts;

/* False: the line is none of these. */
static bool declaration(parser *p, counts *n) {
    char text[IR_NAME_MAX + 2];
    if (take(p, "buffer")) {
        declared_number(p, &n->buffers);
        ir_access access = take(p, "read_write")   ? IR_READ_WRITE
                           : take(p, "write_past") ? IR_WRITE_PAST
                                                   : IR_READ;
        const bool once = BUILD_HAS_C_TEXTS && access == IR_READ && take(p, "read_once");
        if (access == IR_READ && !once) need(p, "read");
        ir_type of = type(p);
        name(p, text);
        if (!p->status) {
            ir_memory at = ir_buffer(p->b, of, access, text);
            if (once) ir_buffer_once(p->b, at);
        }
    } else if (take(p, "workgroup")) {
        declared_number(p, &n->workgroups);
        array_declaration(p, true);
    } else if (take(p, "register")) {
        declared_number(p, &n->registers);
        array_declaration(p, false);
    } else if (take(p, "fragment")) {
        declared_number(p, &n->fragments);
        fragment_declaration(p);
    } else if (take(p, "param")) {
        declared_number(p, &n->params);
        ir_type of = type(p);
        name(p, text);
        if (!p->status) ir_param_declare(p->b, of, text);
    } else {
        return false;
    }
    return true;
}

static void first_line(parser *p, base_arena *arena) {
    char text[IR_NAME_MAX + 2];
    uint32_t side[3] = {0}, subgroup = 0;
    need(p, "kernel");
    name(p, text);
    need(p, "workgroup");
    for (int axis = 0; axis < 3; axis++) side[axis] = number32(p, IR_LANES_MAX);
    if (take(p, "subgroup")) subgroup = number32(p, IR_LANES_MAX);
    need_line_end(p);
    if (p->status) return;
    p->b = ir_begin(arena, text, side[0], side[1], side[2]);
    ir_subgroup(p->b, subgroup);
}

/* ---- instructions -----------------------------------------------------------------------------
 */

static ir_op op_of(base_view w) {
    for (int op = 0; op < IR_OP_COUNT; op++)
        if (base_view_equal(w, base_view_of(ir_op_of((ir_op)op)->name))) return (ir_op)op;
    return IR_OP_COUNT;
}

/* What stands between the type and the operands. */
static void middle(parser *p, ir_instruction *i, ir_form form) {
    uint16_t other = 0;
    switch (form) {
    case IR_FORM_CONST: i->imm = constant(p, (ir_type)i->type); break;
    case IR_FORM_PARAM:
    case IR_FORM_FRAGMENT_FILL: i->array = (uint16_t)number(p, UINT16_MAX); break;
    case IR_FORM_AXIS:
        i->imm = take(p, "x") ? 0 : take(p, "y") ? 1 : 2;
        if (i->imm == 2) need(p, "z");
        break;
    case IR_FORM_EXTRACT:
    case IR_FORM_LANE:
    case IR_FORM_COUNT: i->imm = number(p, UINT16_MAX); break;
    case IR_FORM_SWIZZLE:
        for (uint32_t lane = 0; lane < i->width; lane++) i->imm |= number(p, 15) << 4 * lane;
        break;
    case IR_FORM_LOAD:
    case IR_FORM_STORE:
    case IR_FORM_ATOMIC:
        i->space = space(p, &i->array);
        i->imm = take(p, "anywhere");
        break;
    case IR_FORM_FRAGMENT_LOAD:
    case IR_FORM_FRAGMENT_STORE:
        i->imm = number(p, UINT16_MAX);
        if (take(p, "transposed")) i->imm |= 1 << 16;
        else if (take(p, "pairs")) i->imm |= 1 << 17;
        i->space = space(p, &i->array);
        break;
    case IR_FORM_FRAGMENT_MULTIPLY:
        i->imm = number(p, UINT16_MAX);
        i->imm |= number(p, UINT8_MAX) << 24;
        if (take(p, "a")) i->imm |= 1 << 16;
        if (take(p, "b")) i->imm |= 1 << 17;
        if (take(p, "fresh")) i->imm |= 1 << 19;
        if (take(p, "held")) i->imm |= 1 << 18 | number(p, UINT16_MAX) << 32;
        i->space = space(p, &i->array);
        break;
    case IR_FORM_FRAGMENT_GET:
    case IR_FORM_FRAGMENT_SET:
        i->imm = number(p, UINT16_MAX);
        i->imm |= number(p, UINT16_MAX) << 16;
        break;
    case IR_FORM_FRAGMENT_MMA:
        for (int n = 0; n < 3; n++) i->imm |= number(p, UINT16_MAX) << 16 * n;
        break;
    case IR_FORM_COPY_ASYNC:
        i->imm = number(p, UINT16_MAX) << 16;
        i->space = space(p, &i->array);
        if (space(p, &other) != IR_BUFFER) bad(p, "a buffer was expected here");
        i->imm |= other;
        break;
    case IR_FORM_LOOP:
        if (take(p, "mark")) i->imm = number(p, UINT64_MAX >> 16) << 16;
        if (take(p, "unroll")) i->imm |= number(p, UINT16_MAX);
        break;
    case IR_FORM_INDEX:
    case IR_FORM_SAME:
    case IR_FORM_COMPARE:
    case IR_FORM_SELECT:
    case IR_FORM_DOT:
    case IR_FORM_CAST:
    case IR_FORM_BITCAST:
    case IR_FORM_SPLAT:
    case IR_FORM_COMPOSE:
    case IR_FORM_IF:
    case IR_FORM_BARE: break;
    }
}

static void operands(parser *p, ir_instruction *i) {
    while (!p->status && !at_line_end(p)) {
        uint64_t id = 0;
        base_view w = word(p);
        if (i->n_in == 4 || !cut(&w, "%") || !unsigned_of(w, 10, IR_CODE_MAX, &id)) {
            bad(p, "an operand such as %4 was expected here, at most four");
            return;
        }
        i->in[i->n_in++] = (ir_id)id;
    }
}

static void instruction(parser *p) {
    ir_instruction i = {0};
    uint64_t id = 0;
    base_view w = word(p);
    size_t begin = p->word_at;
    bool has_result = cut(&w, "%");
    if (has_result) {
        if (!unsigned_of(w, 10, IR_CODE_MAX, &id) || id != ir_count(p->b))
            bad(p, "the number of an instruction is its place in the list");
        need(p, "=");
        w = word(p);
    }
    ir_op op = op_of(w);
    if (op == IR_OP_COUNT) bad(p, "there is no such op or declaration");
    if (p->status) return;
    const ir_op_info *info = ir_op_of(op);
    if (has_result != (info->types && op != IR_STORE)) {
        bad(p, has_result ? "this op has no result" : "this op has a result");
        return;
    }
    i.op = (uint8_t)op;
    if (has_result) i.type = (uint8_t)wide_type(p, &i.width);
    middle(p, &i, info->form);
    operands(p, &i);
    need_line_end(p);
    if (op == IR_STORE && i.n_in == 2) { /* the type of what it stores; the verifier looks again */
        const ir_instruction *value = ir_at(p->b, i.in[1]);
        i.type = value ? value->type : IR_NONE;
        i.width = value ? value->width : 0;
    }
    if (p->status) return;
    ir_emit(p->b, i);
    size_t *line = base_vec_add(p->heap, &p->lines);
    if (line) *line = begin;
    else p->status = base_fail(p->error, BERYL_NO_MEMORY, "no memory for a kernel's text");
}

beryl_status ir_parse(base_arena *arena, const char *text, size_t size, const ir_kernel **out,
                      beryl_error *error) {
    parser p = {.text = text, .size = size, .error = error, .heap = arena->heap};
    beryl_error why = {0};
    counts n = {0};
    *out = NULL;
    if (!next_line(&p)) bad(&p, "no kernel is here");
    first_line(&p, arena);
    while (!ir_status(p.b) && next_line(&p)) {
        if (ir_count(p.b) || !declaration(&p, &n)) instruction(&p);
        else need_line_end(&p);
    }
    if (!p.status) {
        p.status = ir_finish(p.b, out, &why);
        if (p.status && error) {
            *error = why; /* at: from the instruction to its line */
            if (p.status == BERYL_BAD_INPUT)
                error->at = why.at < p.lines.count ? p.lines.data[why.at] : 0;
        }
    }
    base_vec_fini(arena->heap, &p.lines);
    return p.status;
}
