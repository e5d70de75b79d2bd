/* expressions.c - the ops as expressions: the templates of ir/ir_ops.h, which are in WGSL's syntax,
 * filled in and translated to each language; literals, casts, bits. */
#include "codegen/write.h"

#include "base/error.h"
#include "base/types.h"

#include <string.h>

/* Functions of math.h that a language has under another name; "name" of f32. C's own get an f. */
typedef struct math_name {
    const char *name, *wgsl, *c, *opencl;
} math_name;
static const math_name math_names[] = {
    {"rint", "round", NULL, NULL},
    {"fabs", "abs", NULL, NULL},
    {"tanh", "tanh_f32", "tanh_f32", "tanh_f32"},
    {"erf", "erf_f32", NULL, NULL},
    {"pow", "pow_f32", NULL, NULL},
    {"fmod", "fmod_f32", NULL, NULL},
    {"fma", "fma", "fma_f32", NULL},
    {"exp", "exp", "exp_f32", "exp_f32"},
    {"exp2_normal", "exp2", "exp2f", "exp2"},
    {"atan2", "atan2_f32", NULL, NULL},
    {"sinh", "sinh_f32", NULL, NULL},
    {"cosh", "cosh_f32", NULL, NULL},
    {"sin", "sin_f32", NULL, NULL},
    {"cos", "cos_f32", NULL, NULL},
    {"tan", "tan_f32", NULL, NULL},
    {"asin", "asin_f32", NULL, NULL},
    {"acos", "acos_f32", NULL, NULL},
    {"atan", "atan_f32", NULL, NULL},
};

ir_type codegen_carrier(ir_type type) {
    switch (type) {
    case IR_F16:
    case IR_BF16: return IR_F32;
    case IR_I8:
    case IR_I16: return IR_I32;
    case IR_U8:
    case IR_U16: return IR_U32;
    case IR_NONE:
    case IR_F32:
    case IR_F64:
    case IR_I32:
    case IR_I64:
    case IR_U32:
    case IR_U64:
    case IR_BOOL:
    case IR_TYPE_COUNT: break;
    }
    return type;
}

const char *codegen_type(ir_type carrier) {
    return ir_type_name(codegen_carrier(carrier));
}

static bool wide_in_wgsl(const codegen *g, ir_type type) {
    return g->language->wgsl && (type == IR_I64 || type == IR_U64);
}

/* ---- translation ----------------------------------------------------------------------------- */

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static size_t word_at(const char *text, size_t size, size_t at) {
    size_t end = at;
    while (end < size && is_word(text[end])) end++;
    return end;
}

static bool is_type(base_view word) {
    static const char *const types[] = {"f32", "f64", "i32", "u32", "i64", "u64", "bool"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (base_view_equal(word, base_view_of(types[i]))) return true;
    return false;
}

/* `name: type` at `at` as `type name`; gives where it ends. */
static size_t translate_declaration(base_text *out, const char *text, size_t size, size_t at) {
    const size_t name_end = word_at(text, size, at);
    size_t type = name_end;
    while (type < size && (text[type] == ':' || text[type] == ' ')) type++;
    const size_t type_end = word_at(text, size, type);
    base_text_add(out, text + type, type_end - type);
    base_text_add(out, " ", 1);
    base_text_add(out, text + at, name_end - at);
    return type_end;
}

/* `fn name(x: T, y: T) -> R` */
static size_t translate_function(base_text *out, const char *text, size_t size, size_t at) {
    size_t close = at, result, result_end;
    while (close < size && text[close] != ')') close++;
    for (result = close; result < size && !is_word(text[result]);) result++;
    result_end = word_at(text, size, result);
    base_text_print(out, "FN %.*s ", (int)(result_end - result), text + result);
    size_t i = at;
    const size_t name_end = word_at(text, size, at);
    base_text_add(out, text + at, name_end - at);
    base_text_add(out, "(", 1);
    for (i = name_end + 1; i < close;) {
        if (is_word(text[i])) i = translate_declaration(out, text, size, i);
        else base_text_add(out, text + i++, 1);
    }
    base_text_add(out, ")", 1);
    return result_end;
}

static void translate_math(base_text *out, const codegen_language_info *l, base_view name,
                           bool wide) {
    for (size_t i = 0; !wide && i < sizeof math_names / sizeof *math_names; i++) {
        if (!base_view_equal(name, base_view_of(math_names[i].name))) continue;
        const math_name *m = &math_names[i];
        const char *own = l->wgsl                          ? m->wgsl
                          : l->language == DEVICE_C        ? m->c
                          : l->language == DEVICE_OPENCL_C ? m->opencl
                                                           : NULL;
        if (own) {
            base_text_add_view(out, base_view_of(own));
            return;
        }
    }
    base_text_add_view(out, name);
    if (!l->wgsl && !wide && l->language != DEVICE_OPENCL_C) base_text_add(out, "f", 1);
}

void codegen_translate(base_text *out, const codegen_language_info *l, const char *text,
                       size_t size) {
    for (size_t i = 0; i < size;) {
        if (text[i] == '@' && i + 1 < size && (is_word(text[i + 1]) || text[i + 1] == '@')) {
            const bool wide = text[i + 1] == '@'; /* @@name: of f64 */
            const size_t from = i + 1 + wide, end = word_at(text, size, from);
            translate_math(out, l, (base_view){text + from, end - from}, wide);
            i = end;
            continue;
        }
        if (l->wgsl || !is_word(text[i])) {
            base_text_add(out, text + i++, 1);
            continue;
        }
        size_t end = word_at(text, size, i);
        const base_view word = {text + i, end - i};
        if (base_view_equal(word, BASE_VIEW("let")) || base_view_equal(word, BASE_VIEW("var"))) {
            if (text[i] == 'l') base_text_add(out, "const ", 6);
            end = translate_declaration(out, text, size, end + 1);
        } else if (base_view_equal(word, BASE_VIEW("fn"))) {
            end = translate_function(out, text, size, end + 1);
        } else if (base_view_equal(word, BASE_VIEW("bitcast")) && end < size && text[end] == '<') {
            const size_t type = end + 1, type_end = word_at(text, size, type);
            base_text_print(out, "bits_%.*s", (int)(type_end - type), text + type);
            end = type_end + 1;
        } else if (base_view_equal(word, BASE_VIEW("select"))) {
            base_text_add(out, "pick", 4);
        } else if (end < size && text[end] == '(' && is_type(word)) {
            base_text_print(out, "(%.*s)", (int)word.size, word.data);
        } else {
            base_text_add_view(out, word);
        }
        i = end;
    }
}

/* ---- literals -------------------------------------------------------------------------------- */

/* mantissa: 52 bits behind the point; exact and without the locale's point. */
static const char *hex_float(codegen *g, bool negative, uint64_t mantissa, int exponent,
                             const char *suffix) {
    char digits[16];
    int n = 0;
    for (uint64_t rest = mantissa & ((UINT64_C(1) << 52) - 1); rest;
         rest = (rest << 4) & ((UINT64_C(1) << 52) - 1))
        digits[n++] = "0123456789abcdef"[rest >> 48];
    if (!n) digits[n++] = '0';
    return codegen_print(g, negative ? "(-0x1.%.*sp%+d%s)" : "0x1.%.*sp%+d%s", n, digits, exponent,
                         suffix);
}

static const char *literal_f32(codegen *g, uint32_t bits) {
    const uint32_t exponent = bits >> 23 & 255, mantissa = bits & 0x7fffff;
    float value;
    memcpy(&value, &bits, 4);
    if (exponent == 255 || (exponent == 0 && (bits << 1) != 0)) {
        if (!g->language->wgsl) return codegen_print(g, "bits_f32(0x%08xu)", bits);
        /* WGSL refuses a constant that is infinite or no number, so it is none: hidden is 0, which
         * no compiler knows. */
        return codegen_print(
            g, exponent == 255 ? "bitcast<f32>(0x%08xu | hidden)" : "bitcast<f32>(0x%08xu)", bits);
    }
    if (bits == 0) return "0.0f";
    if (bits == UINT32_C(0x80000000))
        return g->language->wgsl ? "bitcast<f32>(0x80000000u | hidden)" : "(-0.0f)";
    if (value >= -65536 && value <= 65536 && value == (float)(int32_t)value)
        return codegen_print(g, value < 0 ? "(%d.0f)" : "%d.0f", (int)value);
    return hex_float(g, bits >> 31, (uint64_t)mantissa << 29, (int)exponent - 127, "f");
}

const char *codegen_literal(codegen *g, ir_type type, uint64_t bits) {
    switch (type) {
    case IR_F32: return literal_f32(g, (uint32_t)bits);
    case IR_F16: {
        const float value = base_f16_to_f32((uint16_t)bits);
        uint32_t wide;
        memcpy(&wide, &value, 4);
        return literal_f32(g, wide);
    }
    case IR_BF16: return literal_f32(g, (uint32_t)bits << 16);
    case IR_F64: {
        const uint32_t exponent = (uint32_t)(bits >> 52) & 2047;
        if (bits == 0) return "0.0";
        if (exponent == 0 || exponent == 2047)
            return codegen_print(g, "bits_f64(%s)", codegen_literal(g, IR_U64, bits));
        return hex_float(g, bits >> 63, bits, (int)exponent - 1023, "");
    }
    case IR_I8:
    case IR_I16:
    case IR_I32: {
        const int32_t value = type == IR_I8    ? (int8_t)bits
                              : type == IR_I16 ? (int16_t)bits
                                               : (int32_t)bits;
        if (value == INT32_MIN) return codegen_own(g, "i32(0x80000000u)");
        return codegen_print(g, value < 0 ? "(%d%s)" : "%d%s", (int)value,
                             g->language->wgsl ? "i" : "");
    }
    case IR_U8:
    case IR_U16:
    case IR_U32: return codegen_print(g, "%uu", (unsigned)bits);
    case IR_I64:
    case IR_U64:
        if (g->language->wgsl)
            return codegen_print(g, "vec2<u32>(%uu, %uu)", (unsigned)(uint32_t)bits,
                                 (unsigned)(bits >> 32));
        return codegen_print(g, "(%s)0x%llx%s", codegen_type(type), (unsigned long long)bits,
                             g->language->language == DEVICE_OPENCL_C ? "ul" : "ull");
    case IR_BOOL: return bits ? "true" : "false";
    case IR_NONE:
    case IR_TYPE_COUNT: break;
    }
    return "0";
}

/* ---- expressions ----------------------------------------------------------------------------- */

static const char *expand(codegen *g, ir_type type, const char *template, const char *const *in) {
    const ir_type carrier = codegen_carrier(type);
    const bool wide = carrier == IR_I64 || carrier == IR_U64 || carrier == IR_F64;
    base_text text;
    base_text_init(&text, g->arena->heap);
    for (const char *c = template; *c; c++) {
        if (c[0] == '@' && carrier == IR_F64) {
            base_text_add(&text, "@@", 2);
        } else if (c[0] != '$') {
            base_text_add(&text, c, 1);
        } else {
            switch (*++c) {
            case 't': base_text_add_view(&text, base_view_of(ir_type_name(carrier))); break;
            case 's': base_text_add_view(&text, base_view_of(wide ? "i64" : "i32")); break;
            case 'u': base_text_add_view(&text, base_view_of(wide ? "u64" : "u32")); break;
            case 'm': base_text_print(&text, "%uu", (unsigned)(ir_type_bytes(type) * 8 - 1)); break;
            default: base_text_add_view(&text, base_view_of(in[*c - '0'])); break;
            }
        }
    }
    const char *own = text.data && !text.failed ? codegen_own(g, text.data) : "";
    if (text.failed) codegen_no_memory(g);
    base_text_fini(&text);
    return own;
}

static const char *expand1(codegen *g, ir_type type, const char *template, const char *x) {
    return expand(g, type, template, &x);
}

const char *codegen_narrow(codegen *g, ir_type type, const char *x) {
    switch (type) {
    case IR_F16: return codegen_print(g, "round_f16(%s)", x);
    case IR_BF16: return codegen_print(g, "round_bf16(%s)", x);
    case IR_I8: return codegen_print(g, "wrap_i8(%s)", x);
    case IR_I16: return codegen_print(g, "wrap_i16(%s)", x);
    case IR_U8: return codegen_print(g, "(%s) & 255u", x);
    case IR_U16: return codegen_print(g, "(%s) & 65535u", x);
    case IR_NONE:
    case IR_F32:
    case IR_F64:
    case IR_I32:
    case IR_I64:
    case IR_U32:
    case IR_U64:
    case IR_BOOL:
    case IR_TYPE_COUNT: break;
    }
    return x;
}

/* Of f32 or f64 to an integer: saturating, NaN to 0. */
static const char *cast_to_integer(codegen *g, ir_type to, ir_type from, const char *x) {
    const uint32_t bytes = ir_type_bytes(to);
    if (bytes >= 4)
        return codegen_print(g, "%s_of_%s(%s)", codegen_type(to), codegen_type(from), x);
    const char *low = to == IR_I8 ? "-128" : to == IR_I16 ? "-32768" : "0";
    const char *high = to == IR_I8 ? "127" : to == IR_I16 ? "32767" : to == IR_U8 ? "255" : "65535";
    const char *suffix = from == IR_F64 ? "" : "f";
    return codegen_own(g, codegen_print(g, "%s(within_%s(%s, %s.0%s, %s.0%s))", codegen_type(to),
                                        codegen_type(from), x, low, suffix, high, suffix));
}

const char *codegen_cast(codegen *g, ir_type to, ir_type from, const char *x) {
    const ir_type carrier = codegen_carrier(from), goal = codegen_carrier(to);
    const bool wide_from = wide_in_wgsl(g, from), wide_to = wide_in_wgsl(g, to);
    if (to == from) return x;
    if (to == IR_BOOL) {
        if (wide_from) return codegen_print(g, "any(%s != vec2<u32>(0u))", x);
        return expand1(g, from, ir_type_in(from, IR_FLOATS) ? "!($0 == $t(0))" : "$0 != $t(0)", x);
    }
    if (from == IR_BOOL) {
        if (wide_to) return codegen_print(g, "vec2<u32>(u32(%s), 0u)", x);
        return expand1(g, to, "select($t(0), $t(1), $0)", x);
    }
    if (ir_type_in(from, IR_FLOATS) && ir_type_in(to, IR_FLOATS)) {
        if (to == IR_F64) return expand1(g, IR_F64, "f64($0)", x);
        const char *single = from == IR_F64 ? codegen_own(g, codegen_print(g, "f32(%s)", x)) : x;
        return codegen_narrow(g, to, single);
    }
    if (ir_type_in(from, IR_FLOATS)) return cast_to_integer(g, to, carrier, x);
    if (ir_type_in(to, IR_FLOATS)) {
        if (wide_from)
            return codegen_narrow(g, to, codegen_print(g, "f32_of_%s(%s)", ir_type_name(from), x));
        return codegen_narrow(g, to, expand1(g, goal, "$t($0)", x));
    }
    /* Integer to integer: the low bits. */
    if (wide_from) {
        if (wide_to) return x;
        return codegen_narrow(g, to, codegen_print(g, goal == IR_I32 ? "i32(%s.x)" : "%s.x", x));
    }
    if (wide_to)
        return codegen_print(g, carrier == IR_I32 ? "u64_of_i32(%s)" : "vec2<u32>(%s, 0u)", x);
    const char *same = carrier == goal ? x : expand1(g, goal, "$t($0)", x);
    const bool fits = ir_type_bytes(to) >= 4 ||
                      (ir_type_bytes(from) < ir_type_bytes(to) && !ir_type_in(from, IR_SIGNED));
    return fits ? same : codegen_narrow(g, to, same);
}

static const char *template_of(const codegen *g, const ir_op_text *text, ir_type type) {
    if (type == IR_BOOL && text->b) return text->b;
    if (ir_type_in(type, IR_FLOATS) && text->f) return text->f;
    if (wide_in_wgsl(g, type) && text->wide) return text->wide;
    return ir_type_in(type, IR_SIGNED) && text->s ? text->s : text->any;
}

static const char *fitted(codegen *g, ir_type type, const ir_op_text *text, const char *x) {
    return ir_type_in(type, text->narrow) ? codegen_narrow(g, type, x) : x;
}

const char *codegen_expression(codegen *g, ir_id id, const char *const *in) {
    const ir_instruction *i = &g->k->code[id];
    const ir_op op = (ir_op)i->op;
    if (op == IR_CAST)
        return codegen_cast(g, (ir_type)i->type, (ir_type)g->k->code[i->in[0]].type, in[0]);
    const bool compares = ir_op_of(op)->form == IR_FORM_COMPARE;
    const ir_type type = compares ? (ir_type)g->k->code[i->in[0]].type : (ir_type)i->type;
    const ir_op_text *text = &ir_op_of(op)->text;
    if (op == IR_DOT4_I8 && g->language->wgsl && (!g->caps || g->caps->dot_i8)) {
        const char *both[2] = {codegen_print(g, "dot4I8Packed(%s, %s)", in[0], in[1]), in[2]};
        return expand(g, IR_I32, "$0 + $1", both); /* wraps: it is no constant expression */
    }
    const char *template = template_of(g, text, type);
    if (!template) {
        codegen_fail(g, id, "there is no such expression");
        return "";
    }
    if (op == IR_DIV_NORMAL && (g->language->language != DEVICE_CUDA_C || type == IR_F64))
        template = "$0 / $1";
    uint64_t by;
    if ((op == IR_DIV || op == IR_MOD) && !ir_type_in(type, IR_FLOATS) && !wide_in_wgsl(g, type) &&
        codegen_constant(g, i->in[1], &by) && by != 0 &&
        (ir_type_in(type, IR_UNSIGNED) || (by & 1) == 0 || by == 1))
        template = op == IR_DIV ? "$0 / $1" : "$0 % $1";
    const char *shifted[2] = {in[0], NULL};
    if ((op == IR_SHL || op == IR_SHR) && !wide_in_wgsl(g, type) &&
        codegen_constant(g, i->in[1], &by)) {
        shifted[1] = codegen_print(g, "%uu", (unsigned)(by % (8 * ir_type_bytes(type))));
        template = op == IR_SHR                  ? "$0 >> $1"
                   : ir_type_in(type, IR_SIGNED) ? "$s($u($0) << $1)"
                                                 : "$0 << $1";
        return fitted(g, type, text, expand(g, type, template, shifted));
    }
    if (op == IR_POPCOUNT && ir_type_in(type, IR_SIGNED) && ir_type_bytes(type) < 4)
        template = type == IR_I8 ? "i32(popcount_u32(u32($0) & 255u))"
                                 : "i32(popcount_u32(u32($0) & 65535u))";
    return fitted(g, type, text, expand(g, type, template, in));
}

const char *codegen_combine(codegen *g, ir_op op, ir_type type, const char *x, const char *y) {
    const ir_op_text *text = &ir_op_of(op)->text;
    const char *const in[2] = {x, y};
    return fitted(g, type, text, expand(g, type, template_of(g, text, type), in));
}

/* ---- bits ------------------------------------------------------------------------------------ */

/* An expression as an unsigned word of its bits, and back; NULL: it is one. */
static const struct {
    const char *to, *from;
} bits_texts[IR_TYPE_COUNT] = {
    [IR_F32] = {"bitcast<u32>($0)", "bitcast<f32>($0)"},
    [IR_F16] = {"f16_of_f32($0)", "f32_of_f16($0)"},
    [IR_BF16] = {"(bitcast<u32>($0) >> 16u)", "bitcast<f32>(($0) << 16u)"},
    [IR_I8] = {"(u32($0) & 255u)", "wrap_i8(i32($0))"},
    [IR_I16] = {"(u32($0) & 65535u)", "wrap_i16(i32($0))"},
    [IR_I32] = {"u32($0)", "i32($0)"},
    [IR_I64] = {"u64($0)", "i64($0)"},
    [IR_F64] = {"bits_u64($0)", "bits_f64($0)"},
};

static const char *bits_of(codegen *g, ir_type type, const char *text, const char *x) {
    const bool same = !text || (type == IR_I64 && g->language->wgsl);
    return expand1(g, type, same ? "$0" : text, x);
}

const char *codegen_to_bits(codegen *g, ir_type type, const char *x) {
    return bits_of(g, type, bits_texts[type].to, x);
}

const char *codegen_from_bits(codegen *g, ir_type type, const char *bits) {
    return bits_of(g, type, bits_texts[type].from, bits);
}

const char *codegen_word(codegen *g, ir_type type, const char *const *values, uint32_t n,
                         uint32_t w) {
    const uint32_t bytes = ir_type_bytes(type);
    if (bytes == 4) return codegen_to_bits(g, type, values[w]);
    if (bytes == 8) {
        const char *both = codegen_to_bits(g, type, values[w / 2]);
        if (g->language->wgsl) return codegen_print(g, w % 2 ? "%s.y" : "%s.x", both);
        return codegen_own(g, codegen_print(g, w % 2 ? "u32(%s >> 32u)" : "u32(%s)", both));
    }
    const uint32_t per = 4 / bytes;
    const char *text = NULL;
    if (type == IR_F16 && 2 * w + 1 < n)
        return codegen_print(g, "f16x2_of_f32(%s, %s)", values[2 * w], values[2 * w + 1]);
    for (uint32_t j = 0; j < per && w * per + j < n; j++) {
        const char *part = codegen_to_bits(g, type, values[w * per + j]);
        text = text ? codegen_print(g, "%s | (%s << %uu)", text, part, j * bytes * 8) : part;
    }
    return per > 1 && text ? codegen_print(g, "(%s)", text) : text;
}

const char *codegen_unword(codegen *g, ir_type type, const char *const *words, uint32_t lane) {
    const uint32_t bytes = ir_type_bytes(type);
    if (bytes == 4) return codegen_from_bits(g, type, words[lane]);
    if (bytes == 8) {
        const char *low = words[2 * lane], *high = words[2 * lane + 1];
        const char *both = codegen_own(
            g, codegen_print(
                   g, g->language->wgsl ? "vec2<u32>(%s, %s)" : "(u64(%s) | (u64(%s) << 32u))", low,
                   high));
        return codegen_from_bits(g, type, both);
    }
    const uint32_t per = 4 / bytes, shift = lane % per * bytes * 8;
    const char *word = words[lane / per];
    if (type == IR_F16 && g->language->wgsl)
        return codegen_print(g, shift ? "unpack2x16float(%s).y" : "unpack2x16float(%s).x", word);
    if (type == IR_BF16 && shift)
        return codegen_own(g, codegen_print(g, "bitcast<f32>(%s & 0xffff0000u)", word));
    const char *bits = shift ? codegen_print(g, "(%s >> %uu)", word, shift) : word;
    if (type != IR_I8 && type != IR_I16 && type != IR_BF16)
        bits = codegen_print(g, bytes == 1 ? "(%s & 255u)" : "(%s & 65535u)", bits);
    return codegen_from_bits(g, type, bits);
}
