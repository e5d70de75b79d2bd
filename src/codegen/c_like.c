/* c_like.c - memory and bodies as CUDA C, HIP C and OpenCL C write them, and C in part.
 *
 * A pointer or array has elements of the type in memory (f16 as u16); register arrays hold
 * carriers. Accesses of 4 bytes and more that are wider than an element go through u32, u32x2,
 * u32x4. */
#include "codegen/cuda_like.h"
#include "codegen/write.h"

const char *codegen_c_memory_type(ir_type type) {
    return type == IR_F16 || type == IR_BF16 ? "u16" : ir_type_name(type);
}

void codegen_c_place(codegen *g, base_text *text, ir_space space, uint32_t array, const char *index,
                     uint32_t more) {
    const char *at = codegen_index(g, index, more);
    if (space == IR_BUFFER) {
        base_text_print(text, "b%u[%s]", (unsigned)array, at);
    } else if (space == IR_WORKGROUP) {
        base_text_print(text, "w%u[%s]", (unsigned)array,
                        codegen_swizzled(g, &g->k->workgroups[array], at));
    } else if (g->k->registers[array].count == 1) {
        base_text_print(text, "r%u", (unsigned)array);
    } else if (g->access[IR_REGISTER][array].constant) {
        base_text_print(text, "r%u_%.*s", (unsigned)array, (int)(base_view_of(at).size - 1), at);
    } else {
        base_text_print(text, "r%u[%s]", (unsigned)array, at);
    }
}

static const char *place(codegen *g, const ir_instruction *i, const char *index, uint32_t more) {
    base_text text;
    base_text_init(&text, g->arena->heap);
    g->language->place(g, &text, (ir_space)i->space, i->array, index, more);
    const char *own = text.failed || !text.data ? "" : codegen_print(g, "%s", text.data);
    if (text.failed) codegen_no_memory(g);
    base_text_fini(&text);
    return own;
}

/* How many bytes one access of the instruction moves: 4 8 16, or 0: element by element. */
static uint32_t step_of(const codegen *g, const ir_instruction *i) {
    const ir_type type = codegen_array_type(g, (ir_space)i->space, i->array);
    const uint32_t element = ir_type_bytes(type), bytes = element * i->width;
    if (i->space == IR_REGISTER || i->width == 1 || bytes < 4 || g->language->language == DEVICE_C)
        return 0;
    if (i->space == IR_WORKGROUP) {
        const ir_array_decl *a = &g->k->workgroups[i->array];
        if (a->swizzle_bits && (1u << a->swizzle_base) < i->width) return 0;
    }
    return bytes > 16 ? 16 : bytes;
}

static const char *vector_type(uint32_t step) {
    return step == 4 ? "u32" : step == 8 ? "u32x2" : "u32x4";
}

const char *codegen_c_space(const codegen *g, ir_space space) {
    if (g->language->language != DEVICE_OPENCL_C || space == IR_REGISTER) return "";
    return space == IR_BUFFER ? "__global " : "__local ";
}

/* A load that tells caches to let go first of what it brought. */
static bool is_once(const codegen *g, const ir_instruction *i, uint32_t step) {
    return g->language->language == DEVICE_CUDA_C && i->space == IR_BUFFER && step == 16 &&
           g->k->buffers[i->array].once;
}

void codegen_c_load(codegen *g, const ir_instruction *i, const char *index, const char **values) {
    const ir_type type = (ir_type)i->type;
    const uint32_t step = step_of(g, i), element = ir_type_bytes(type);
    const char *words[32];
    if (!step) {
        for (uint32_t lane = 0; lane < i->width; lane++) {
            const char *at = place(g, i, index, lane);
            if (i->space == IR_REGISTER || element >= 4) values[lane] = at;
            else if (type == IR_F16 || type == IR_BF16)
                values[lane] = codegen_from_bits(g, type, codegen_print(g, "(u32)%s", at));
            else values[lane] = codegen_print(g, "(%s)%s", codegen_type(type), at);
        }
        return;
    }
    for (uint32_t from = 0; from < element * i->width; from += step) {
        const char *at = place(g, i, index, from / element), *vector = vector_type(step);
        const char *loaded =
            is_once(g, i, step) ? codegen_print(g, "load_once(&%s)", at)
                                : codegen_print(g, "*(const %s%s *)&%s",
                                                codegen_c_space(g, (ir_space)i->space), vector, at);
        const char *t = codegen_temporary(g, vector, loaded);
        if (step == 4) words[from / 4] = t;
        else
            for (uint32_t w = 0; w < step / 4; w++)
                words[from / 4 + w] = codegen_print(g, "%s.%c", t, "xyzw"[w]);
    }
    for (uint32_t lane = 0; lane < i->width; lane++)
        values[lane] = codegen_unword(g, type, words, lane);
}

/* Halves that C stores as they were loaded: their bits where they lie. NULL: they are others. */
static const char *bits_of(codegen *g, const ir_instruction *i) {
    const ir_instruction *from = i->n_in == 2 ? &g->k->code[i->in[1]] : i;
    if (g->language->language != DEVICE_C || ir_lanes(g->k) > 1 || from->op != IR_LOAD ||
        from->width > 1 || from->space != IR_BUFFER || from->type != i->type ||
        g->k->buffers[from->array].access != IR_READ)
        return NULL;
    return place(g, from, codegen_index_of(g, from, 0), 0);
}

void codegen_c_store(codegen *g, const ir_instruction *i, const char *index,
                     const char *const *values) {
    const ir_type type = (ir_type)i->type;
    const uint32_t step = step_of(g, i), element = ir_type_bytes(type);
    if (!step) {
        for (uint32_t lane = 0; lane < i->width; lane++) {
            const char *value = values[lane];
            if (i->space != IR_REGISTER && element < 4) {
                if (type == IR_F16 || type == IR_BF16) {
                    const char *bits = bits_of(g, i);
                    value = bits ? bits : codegen_to_bits(g, type, value);
                }
                value = codegen_print(g, "(%s)%s", codegen_c_memory_type(type), value);
            }
            codegen_line(g, "%s = %s;", place(g, i, index, lane), value);
        }
        return;
    }
    for (uint32_t from = 0; from < element * i->width; from += step) {
        const char *at = place(g, i, index, from / element), *vector = vector_type(step),
                   *value = "", *w[4];
        for (uint32_t n = 0; n < step / 4; n++)
            w[n] = codegen_word(g, type, values, i->width, from / 4 + n);
        if (step == 4) value = w[0];
        else if (step == 8) value = codegen_print(g, "pair_of(%s, %s)", w[0], w[1]);
        else value = codegen_print(g, "quad_of(%s, %s, %s, %s)", w[0], w[1], w[2], w[3]);
        codegen_line(g, "*(%s%s *)&%s = %s;", codegen_c_space(g, (ir_space)i->space), vector, at,
                     value);
    }
}

void codegen_c_atomic(codegen *g, ir_id id) {
    const ir_instruction *i = &g->k->code[id];
    const bool cl = g->language->language == DEVICE_OPENCL_C;
    const char *at = place(g, i, codegen_index_of(g, i, 0), 0),
               *value = codegen_operand(g, i, 1, 0);
    const char *name = i->op == IR_ATOMIC_ADD   ? cl ? "atomic_add" : "atomicAdd"
                       : i->op == IR_ATOMIC_MIN ? cl ? "atomic_min" : "atomicMin"
                       : cl                     ? "atomic_max"
                                                : "atomicMax";
    codegen_define(g, id, 0, codegen_print(g, "%s(&%s, %s)", name, at, value));
}

bool codegen_wants_axis(const codegen *g, ir_op op, uint32_t axis) {
    for (ir_id id = 0; id < g->k->n_code; id++)
        if (g->k->code[id].op == op && g->k->code[id].imm == axis) return true;
    return false;
}

bool codegen_wants_lane(const codegen *g) {
    for (ir_id id = 0; id < g->k->n_code; id++) {
        const ir_op op = (ir_op)g->k->code[id].op;
        const uint32_t flags = ir_op_of(op)->flags;
        if (op == IR_SUBGROUP_LANE || ((flags & IR_TOGETHER) && !(flags & IR_BARS))) return true;
    }
    return false;
}

static uint32_t array_bytes(const ir_array_decl *a) {
    return (a->count * ir_type_bytes(a->type) + 15) / 16 * 16;
}

static void arrays(codegen *g, const codegen_c_words *words) {
    const ir_kernel *k = g->k;
    uint32_t bytes = 0, begin = 0;
    for (uint32_t n = 0; n < k->n_workgroup; n++) bytes += array_bytes(&k->workgroups[n]);
    const bool by_launch =
        words->shared_max && (bytes > words->shared_max || codegen_cuda_multiplies(k));
    if (by_launch) {
        codegen_line(g, "LAUNCH_BYTES(%u);", (unsigned)bytes);
        g->desc->launch_bytes = bytes;
    }
    for (uint32_t n = 0; n < k->n_workgroup; n++) {
        const char *type = codegen_c_memory_type(k->workgroups[n].type);
        if (by_launch)
            codegen_line(g, "%s *const w%u = (%s *)(launch_bytes + %u);", type, n, type,
                         (unsigned)begin);
        else
            codegen_line(g, "%s %s w%u[%u];", words->shared, type, n,
                         (unsigned)k->workgroups[n].count);
        begin += array_bytes(&k->workgroups[n]);
    }
    for (uint32_t n = 0; n < k->n_register; n++) {
        const char *type = codegen_type(k->registers[n].type);
        const unsigned count = (unsigned)k->registers[n].count;
        if (count == 1) {
            codegen_line(g, "%s r%u;", type, n);
        } else if (g->access[IR_REGISTER][n].constant) {
            for (unsigned at = 0; at < count; at++) codegen_line(g, "%s r%u_%u;", type, n, at);
        } else {
            codegen_line(g, "%s r%u[%u];", type, n, count);
        }
    }
}

/* The outermost block of the last store to a buffer. The kernel's end, if that is a loop or there
 * is none. */
static ir_id last_store(const ir_kernel *k) {
    ir_id last = k->n_code, outermost = 0;
    uint32_t depth = 0;
    for (ir_id id = 0; id < k->n_code; id++) {
        const ir_instruction *i = &k->code[id];
        const ir_op_info *op = ir_op_of((ir_op)i->op);
        if (!depth) outermost = id;
        if (op->flags & IR_OPENS && !(op->flags & IR_CLOSES)) depth++;
        if (op->flags & IR_CLOSES && !(op->flags & IR_OPENS)) depth--;
        if (i->space == IR_BUFFER && (op->form == IR_FORM_STORE || op->form == IR_FORM_ATOMIC ||
                                      op->form == IR_FORM_FRAGMENT_STORE))
            last = outermost;
    }
    return last < k->n_code && k->code[last].op == IR_LOOP ? k->n_code : last;
}

void codegen_c_body(codegen *g, const codegen_c_words *words) {
    const ir_kernel *k = g->k;
    const bool wants_lane = codegen_wants_lane(g);
    for (uint32_t n = 0; n < k->n_buffer; n++) {
        const char *constant = k->buffers[n].access == IR_READ ? "const " : "",
                   *type = codegen_c_memory_type(k->buffers[n].type);
        codegen_line(g, "%s%s%s *%sb%u = (%s%s%s *)a%u; /* %s */", constant, words->global, type,
                     words->constant_end, n, constant, words->global, type, n, k->buffers[n].name);
    }
    for (uint32_t axis = 0; axis < 3; axis++) {
        const char c = "xyz"[axis];
        if (k->workgroup[axis] > 1 && (wants_lane || codegen_wants_axis(g, IR_LOCAL, axis)))
            codegen_line(g, words->local, c, c);
        if (codegen_wants_axis(g, IR_GROUP, axis)) codegen_line(g, words->group, c, c);
        if (codegen_wants_axis(g, IR_GROUPS, axis)) codegen_line(g, words->groups, c, c);
    }
    if (wants_lane) {
        const unsigned x = (unsigned)k->workgroup[0], y = (unsigned)k->workgroup[1];
        codegen_line(g, "const u32 lane = %s + %uu * (%s + %uu * %s);", x > 1 ? "local_x" : "0u", x,
                     y > 1 ? "local_y" : "0u", y, k->workgroup[2] > 1 ? "local_z" : "0u");
    }
    arrays(g, words);
    if (g->language->fragments) g->language->fragments(g);
    const ir_id last = words->before_last ? last_store(k) : k->n_code;
    codegen_walk(g, 0, last);
    if (last < k->n_code) base_text_print(&g->body, "%s", words->before_last);
    codegen_walk(g, last, k->n_code);
    g->indent = 0;
    codegen_line(g, "}");
}
