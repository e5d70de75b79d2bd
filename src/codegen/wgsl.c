/* wgsl.c - WGSL that naga and Tint both take.
 *
 * Arrays have units: f32, i32, u32, f16, a u32 that packs narrow elements (buffers), or vec2<u32>
 * of a 64-bit element; where every store and some load is 4 units wide, vec4 of them. A buffer that
 * is stored in pieces of a u32 is atomic: two lanes may write neighbouring pieces. */
#include "codegen/write.h"

typedef struct units {
    const char *type; /* of one unit */
    uint32_t per;     /* elements in one: 1 2 4 */
    bool quads, atomic, half;
} units;

typedef struct own {
    units *arrays[2]; // [n_buffer], [n_workgroup]
} own;

static units units_of(codegen *g, ir_space space, uint32_t array) {
    const ir_type type = codegen_array_type(g, space, array);
    const codegen_access *a = &g->access[space][array];
    const uint32_t bytes = ir_type_bytes(type);
    units u = {.type = codegen_type(type), .per = 1, .atomic = a->atomic};
    const bool may_half = !g->caps || g->caps->f16;
    if (bytes == 8) {
        u.type = "vec2<u32>";
        return u;
    }
    if (space == IR_BUFFER && bytes < 4) {
        u.half = type == IR_F16 && may_half && a->stored && a->store_bytes_min < 4;
        if (!u.half) {
            u.type = "u32";
            u.per = 4 / bytes;
            u.atomic = u.atomic || (a->stored && a->store_bytes_min < 4);
        }
    } else if (type == IR_F16) {
        u.half = may_half;
    }
    if (u.half) u.type = "f16";
    const uint32_t unit = bytes * u.per;
    u.quads = !u.atomic && (!a->stored || a->store_bytes_min / unit >= 4) &&
              ((a->loaded && a->load_bytes_max / unit >= 4) || (a->stored && !a->loaded));
    return u;
}

/* c / 4 of a constant that may stand for a number below zero; false: it is no multiple of 4. */
static bool quarter_of(const codegen *g, ir_id id, uint32_t *quarter) {
    uint64_t c;
    const bool is = codegen_constant(g, id, &c) && c % 4 == 0;
    if (is) *quarter = (uint32_t)((int32_t)(uint32_t)c / 4);
    return is;
}

/* A quarter of an index that is a multiple of 4 as far as its making shows (sums of products with
 * such constants); NULL: it may be another. No index wraps, but a compiler does not know that: it
 * would shift down what was shifted up. */
static const char *quarter(codegen *g, ir_id id) {
    const ir_instruction *i = &g->k->code[id];
    const char *first, *second;
    uint32_t c, step;
    uint64_t up;
    if (i->type != IR_U32) return NULL;
    if (quarter_of(g, id, &c)) return codegen_print(g, "%uu", (unsigned)c);
    switch ((int)i->op) {
    case IR_MUL:
    case IR_FMA:
        if (!quarter_of(g, i->in[1], &c)) return NULL;
        first = codegen_operand(g, i, 0, 0);
        if (c != 1) first = codegen_print(g, "%s * %uu", first, (unsigned)c);
        if (i->op == IR_MUL) return first;
        second = quarter(g, i->in[2]);
        return second ? codegen_print(g, "%s + %s", first, second) : NULL;
    case IR_SHL:
        if (!codegen_constant(g, i->in[1], &up) || up < 2 || up > 31) return NULL;
        first = codegen_operand(g, i, 0, 0);
        return up == 2 ? first : codegen_print(g, "(%s << %uu)", first, (unsigned)(up - 2));
    case IR_ADD:
        first = quarter(g, i->in[0]);
        second = first ? quarter(g, i->in[1]) : NULL;
        return second ? codegen_print(g, "%s + %s", first, second) : NULL;
    case IR_LOOP:
        return quarter_of(g, i->in[0], &c) && quarter_of(g, i->in[2], &step)
                   ? codegen_print(g, "(%s >> 2u)", g->texts[g->first[id]])
                   : NULL;
    default: return NULL;
    }
}

/* Where four units begin, `more` units behind the instruction's index. */
static const char *quad_at(codegen *g, const ir_instruction *i, const char *index, uint32_t more) {
    const bool swizzled = i->space == IR_WORKGROUP && g->k->workgroups[i->array].swizzle_bits > 0;
    const ir_type type = codegen_array_type(g, i->space, i->array);
    const char *made = swizzled || ir_type_bytes(type) != 4 ? NULL : quarter(g, i->in[0]);
    return made ? codegen_index(g, made, more / 4)
                : codegen_print(g, "(%s) >> 2u", codegen_index(g, index, more));
}

/* The unit at `index + more` units. */
static const char *unit_at(codegen *g, char name, uint32_t array, const units *u, const char *index,
                           uint32_t more) {
    const char *at = codegen_index(g, index, more);
    if (u->quads)
        return codegen_print(g, "%c%u[(%s) >> 2u][(%s) & 3u]", name, (unsigned)array, at, at);
    return codegen_print(g, "%c%u[%s]", name, (unsigned)array, at);
}

static const char *read_unit(codegen *g, const ir_instruction *i, const units *u,
                             const char *place) {
    if (u->atomic) return codegen_print(g, "atomicLoad(&%s)", place);
    if (u->half) return codegen_print(g, "f32(%s)", place);
    (void)i;
    return place;
}

static const char *register_at(codegen *g, uint32_t array, const char *index, uint32_t more) {
    base_text text;
    base_text_init(&text, g->arena->heap);
    codegen_c_place(g, &text, IR_REGISTER, array, index, more);
    const char *place = text.failed || !text.data ? "" : codegen_print(g, "%s", text.data);
    if (text.failed) codegen_no_memory(g);
    base_text_fini(&text);
    return place;
}

/* n units from `index` on, as texts. */
static void read_units(codegen *g, const ir_instruction *i, const units *u, const char *index,
                       uint32_t n, const char **out) {
    const char name = i->space == IR_BUFFER ? 'b' : 'w';
    const bool uniform = i->op == IR_UNIFORM_LOAD && !u->atomic;
    if (u->quads && n >= 4) {
        for (uint32_t q = 0; q < n; q += 4) {
            const char *place =
                codegen_print(g, "%c%u[%s]", name, (unsigned)i->array, quad_at(g, i, index, q));
            const char *t = codegen_temporary(
                g, "", uniform ? codegen_print(g, "workgroupUniformLoad(&%s)", place) : place);
            for (uint32_t lane = 0; lane < 4; lane++)
                out[q + lane] = codegen_print(g, u->half ? "f32(%s.%c)" : "%s.%c", t, "xyzw"[lane]);
        }
        return;
    }
    for (uint32_t w = 0; w < n; w++) {
        if (!uniform) {
            out[w] = read_unit(g, i, u, unit_at(g, name, i->array, u, index, w));
            continue;
        }
        const char *at = codegen_index(g, index, w);
        const char *whole =
            u->quads ? codegen_print(g, "workgroupUniformLoad(&w%u[(%s) >> 2u])[(%s) & 3u]",
                                     (unsigned)i->array, at, at)
                     : codegen_print(g, "workgroupUniformLoad(&w%u[%s])", (unsigned)i->array, at);
        out[w] = u->half ? codegen_print(g, "f32(%s)", whole) : whole;
    }
}

static const char *swizzled(codegen *g, const ir_instruction *i, const char *index) {
    const ir_array_decl *a = &g->k->workgroups[i->array];
    return i->space == IR_WORKGROUP && (1u << a->swizzle_base) >= i->width
               ? codegen_swizzled(g, a, index)
               : index;
}

/* A swizzle is for speed alone, and all accesses of an array must agree on it. */
static bool swizzle_fits(const codegen *g, uint32_t array) {
    const ir_array_decl *a = &g->k->workgroups[array];
    const codegen_access *access = &g->access[IR_WORKGROUP][array];
    const uint32_t bytes = ir_type_bytes(a->type);
    if (!a->swizzle_bits) return false;
    for (ir_id id = 0; id < g->k->n_code; id++) {
        const ir_instruction *i = &g->k->code[id];
        const ir_form form = ir_op_of((ir_op)i->op)->form;
        if ((form == IR_FORM_LOAD || form == IR_FORM_STORE) && i->space == IR_WORKGROUP &&
            i->array == array && i->width > 1u << a->swizzle_base)
            return false;
        if (form == IR_FORM_COPY_ASYNC && i->array == array &&
            (uint32_t)(i->imm >> 16) / bytes > 1u << a->swizzle_base)
            return false;
    }
    return access->loaded;
}

static void load(codegen *g, const ir_instruction *i, const char *index, const char **values) {
    const ir_type type = (ir_type)i->type;
    if (i->space == IR_REGISTER) {
        for (uint32_t lane = 0; lane < i->width; lane++)
            values[lane] = register_at(g, i->array, index, lane);
        return;
    }
    const units *u = &((own *)g->own)->arrays[i->space][i->array];
    if (i->space == IR_WORKGROUP && swizzle_fits(g, i->array)) index = swizzled(g, i, index);
    if (i->op == IR_UNIFORM_LOAD && u->atomic) codegen_line(g, "workgroupBarrier();");
    if (u->per == 1) {
        read_units(g, i, u, index, i->width, values);
        if (i->op != IR_UNIFORM_LOAD || !u->atomic) return;
        for (uint32_t lane = 0; lane < i->width; lane++)
            values[lane] = codegen_temporary(g, "", values[lane]);
        codegen_line(g, "workgroupBarrier();");
        return;
    }
    const uint32_t shift = u->per == 2 ? 1 : 2, bits = 32 / u->per;
    const char *words[16], *first = codegen_print(g, "(%s) >> %uu", index, (unsigned)shift);
    const uint32_t n = i->width >= u->per ? i->width / u->per : 1;
    first = codegen_print(g, "(%s)", first);
    read_units(g, i, u, first, n, words);
    for (uint32_t w = 0; w < n; w++) {
        if (i->width < u->per)
            words[w] = codegen_print(g, "%s >> (((%s) & %uu) * %uu)", words[w], index,
                                     (unsigned)(u->per - 1), (unsigned)bits);
        words[w] = codegen_temporary(g, "", words[w]);
    }
    for (uint32_t lane = 0; lane < i->width; lane++)
        values[lane] = codegen_unword(g, type, words, lane);
}

static void write_unit(codegen *g, const units *u, const char *place, const char *value) {
    if (u->atomic) codegen_line(g, "atomicStore(&%s, %s);", place, value);
    else codegen_line(g, u->half ? "%s = f16(%s);" : "%s = %s;", place, value);
}

static void write_units(codegen *g, const ir_instruction *i, const units *u, const char *index,
                        uint32_t n, const char *const *values) {
    const char name = i->space == IR_BUFFER ? 'b' : 'w';
    for (uint32_t q = 0; u->quads && q < n; q += 4) {
        const char *place =
            codegen_print(g, "%c%u[%s]", name, (unsigned)i->array, quad_at(g, i, index, q));
        const char *f = u->half ? "f16" : "";
        codegen_line(g, "%s = vec4<%s>(%s(%s), %s(%s), %s(%s), %s(%s));", place, u->type, f,
                     values[q], f, values[q + 1], f, values[q + 2], f, values[q + 3]);
    }
    for (uint32_t w = 0; !u->quads && w < n; w++)
        write_unit(g, u, unit_at(g, name, i->array, u, index, w), values[w]);
}

static void store(codegen *g, const ir_instruction *i, const char *index,
                  const char *const *values) {
    if (i->space == IR_REGISTER) {
        for (uint32_t lane = 0; lane < i->width; lane++)
            codegen_line(g, "%s = %s;", register_at(g, i->array, index, lane), values[lane]);
        return;
    }
    const units *u = &((own *)g->own)->arrays[i->space][i->array];
    if (i->space == IR_WORKGROUP && swizzle_fits(g, i->array)) index = swizzled(g, i, index);
    if (u->per == 1) {
        write_units(g, i, u, index, i->width, values);
        return;
    }
    const uint32_t shift = u->per == 2 ? 1 : 2, bits = 32 / u->per;
    const char *words[16], *first = codegen_print(g, "((%s) >> %uu)", index, (unsigned)shift);
    if (i->width >= u->per) {
        for (uint32_t w = 0; w < i->width / u->per; w++) {
            const char *x = codegen_before_cast(g, i, w * u->per),
                       *y = codegen_before_cast(g, i, w * u->per + 1);
            words[w] = x && y ? codegen_print(g, "f16x2_by_bits(%s, %s)", x, y)
                              : codegen_word(g, (ir_type)i->type, values, i->width, w);
        }
        write_units(g, i, u, first, i->width / u->per, words);
        return;
    }
    const unsigned mask = (1u << (bits * i->width)) - 1;
    const char *at = codegen_temporary(
        g, "",
        codegen_print(g, "((%s) & %uu) * %uu", index, (unsigned)(u->per - 1), (unsigned)bits));
    const char *word = codegen_temporary(g, "", first);
    codegen_line(g, "atomicAnd(&b%u[%s], ~(%uu << %s));", (unsigned)i->array, word, mask, at);
    codegen_line(g, "atomicOr(&b%u[%s], %s << %s);", (unsigned)i->array, word,
                 codegen_word(g, (ir_type)i->type, values, i->width, 0), at);
}

static void atomic(codegen *g, ir_id id) {
    const ir_instruction *i = &g->k->code[id];
    const char *what = i->op == IR_ATOMIC_ADD ? "Add" : i->op == IR_ATOMIC_MIN ? "Min" : "Max";
    const char *index = codegen_index_of(g, i, 0);
    if (i->space == IR_WORKGROUP && swizzle_fits(g, i->array)) index = swizzled(g, i, index);
    codegen_define(g, id, 0,
                   codegen_print(g, "atomic%s(&%c%u[%s], %s)", what,
                                 i->space == IR_BUFFER ? 'b' : 'w', (unsigned)i->array, index,
                                 codegen_operand(g, i, 1, 0)));
}

static const char *array_type(codegen *g, const units *u) {
    const char *type = u->atomic ? codegen_print(g, "atomic<%s>", u->type) : u->type;
    return u->quads ? codegen_print(g, "vec4<%s>", type) : type;
}

static bool refuses_f64(codegen *g) {
    const ir_kernel *k = g->k;
    const char *what = NULL;
    for (uint32_t n = 0; n < k->n_buffer; n++)
        if (k->buffers[n].type == IR_F64) what = "a buffer";
    for (uint32_t n = 0; n < k->n_workgroup; n++)
        if (k->workgroups[n].type == IR_F64) what = "a workgroup array";
    for (uint32_t n = 0; n < k->n_register; n++)
        if (k->registers[n].type == IR_F64) what = "a register array";
    if (what) codegen_refuse(g, "%s of f64: the language has no such type", what);
    return what != NULL;
}

static void declare(codegen *g, const own *o) {
    const ir_kernel *k = g->k;
    base_text *head = &g->head;
    if (k->n_param) {
        base_text_print(head, "struct Params {\n");
        for (uint32_t n = 0; n < k->n_param; n++)
            base_text_print(head, "    p%u: %s,\n", n, ir_type_name(k->params[n].type));
        base_text_print(head, "}\n");
    }
    for (uint32_t n = 0; n < k->n_buffer; n++)
        base_text_print(head, "@group(0) @binding(%u) var<storage, %s> b%u: array<%s>; // %s\n", n,
                        k->buffers[n].access == IR_READ ? "read" : "read_write", n,
                        array_type(g, &o->arrays[IR_BUFFER][n]), k->buffers[n].name);
    if (k->n_param) base_text_print(head, "@group(1) @binding(0) var<uniform> params: Params;\n");
    for (uint32_t n = 0; n < k->n_workgroup; n++) {
        const units *u = &o->arrays[IR_WORKGROUP][n];
        const uint32_t count = u->quads ? (k->workgroups[n].count + 3) / 4 : k->workgroups[n].count;
        base_text_print(head, "var<workgroup> w%u: array<%s, %u>;\n", n, array_type(g, u),
                        (unsigned)count);
    }
    base_text_print(head, "@compute @workgroup_size(%u, %u, %u)\nfn main(",
                    (unsigned)k->workgroup[0], (unsigned)k->workgroup[1],
                    (unsigned)k->workgroup[2]);
    static const struct {
        ir_op op;
        const char *text;
    } builtins[] = {{IR_GROUP, "@builtin(workgroup_id) group: vec3<u32>"},
                    {IR_GROUPS, "@builtin(num_workgroups) groups: vec3<u32>"},
                    {IR_LOCAL, "@builtin(local_invocation_id) local: vec3<u32>"}};
    const char *comma = "";
    for (int n = 0; n < 3; n++) {
        bool wanted = false;
        for (uint32_t axis = 0; axis < 3; axis++)
            wanted |= codegen_wants_axis(g, builtins[n].op, axis);
        if (!wanted) continue;
        base_text_print(head, "%s%s", comma, builtins[n].text);
        comma = ", ";
    }
    if (codegen_wants_lane(g))
        base_text_print(head, "%s@builtin(local_invocation_index) lane: u32", comma);
    base_text_print(head, ") {\n");
}

static void kernel(codegen *g) {
    const ir_kernel *k = g->k;
    own o = {{base_arena_take(g->arena, k->n_buffer + 1, sizeof(units)),
              base_arena_take(g->arena, k->n_workgroup + 1, sizeof(units))}};
    if (!o.arrays[0] || !o.arrays[1]) {
        codegen_no_memory(g);
        return;
    }
    if (refuses_f64(g)) return;
    g->own = &o;
    for (uint32_t n = 0; n < k->n_buffer; n++) {
        o.arrays[IR_BUFFER][n] = units_of(g, IR_BUFFER, n);
        g->uses_f16 |= o.arrays[IR_BUFFER][n].half;
    }
    for (uint32_t n = 0; n < k->n_workgroup; n++) {
        o.arrays[IR_WORKGROUP][n] = units_of(g, IR_WORKGROUP, n);
        g->uses_f16 |= o.arrays[IR_WORKGROUP][n].half;
    }
    declare(g, &o);
    for (uint32_t axis = 0; axis < 3; axis++) {
        const char c = "xyz"[axis];
        if (codegen_wants_axis(g, IR_LOCAL, axis))
            codegen_line(g, "let local_%c = local.%c;", c, c);
        if (codegen_wants_axis(g, IR_GROUP, axis))
            codegen_line(g, "let group_%c = group.%c;", c, c);
        if (codegen_wants_axis(g, IR_GROUPS, axis))
            codegen_line(g, "let groups_%c = groups.%c;", c, c);
    }
    codegen_params(g, "params.p%u", false);
    for (uint32_t n = 0; n < k->n_register; n++) {
        const ir_type type = codegen_carrier(k->registers[n].type);
        const char *name = type == IR_I64 || type == IR_U64 ? "vec2<u32>" : ir_type_name(type);
        const unsigned count = (unsigned)k->registers[n].count;
        if (count == 1) {
            codegen_line(g, "var r%u: %s;", n, name);
        } else if (g->access[IR_REGISTER][n].constant) {
            for (unsigned at = 0; at < count; at++) codegen_line(g, "var r%u_%u: %s;", n, at, name);
        } else {
            codegen_line(g, "var r%u: array<%s, %u>;", n, name, count);
        }
    }
    codegen_walk(g, 0, k->n_code);
    g->indent = 0;
    codegen_line(g, "}");
    g->own = NULL;
}

const codegen_language_info codegen_wgsl = {
    .name = "WGSL",
    .language = DEVICE_WGSL,
    .wgsl = true,
    .types = "",
    .barrier = "workgroupBarrier();",
    .shuffle = "subgroupShuffleXor($0, $1u)",
    .broadcast = "subgroupShuffle($0, (lane & $3u) | $1u)",
    .reduce_add = "subgroupAdd",
    .load = load,
    .store = store,
    .atomic = atomic,
    .kernel = kernel,
};
