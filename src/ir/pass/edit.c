/* edit.c - growing a kernel, and what passes ask of one. */
#include "ir/pass/edit.h"

#include <string.h>

#include "base/error.h"

void *pass_take(pass_edit *e, size_t count, size_t size) {
    void *memory = base_arena_take(&e->scratch, count ? count : 1, size);
    if (!memory) e->no_memory = true;
    return memory;
}

static void find_blocks(pass_edit *e) {
    uint32_t stack[IR_DEPTH_MAX + 1], depth = 0;
    for (uint32_t i = 0; i < e->in->n_code; i++) {
        ir_op op = (ir_op)e->in->code[i].op;
        e->close[i] = e->middle[i] = IR_NO_ID;
        if (op == IR_END && depth) {
            uint32_t opener = stack[--depth];
            e->close[opener] = i;
            e->close[i] = opener;
        } else if (op == IR_ELSE && depth) {
            e->middle[stack[depth - 1]] = i;
            e->close[i] = stack[depth - 1];
            e->parent[i] = depth > 1 ? stack[depth - 2] : IR_NO_ID;
            continue;
        }
        e->parent[i] = depth ? stack[depth - 1] : IR_NO_ID;
        if ((op == IR_LOOP || op == IR_IF) && depth <= IR_DEPTH_MAX) stack[depth++] = i;
    }
}

pass_edit *pass_begin(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule) {
    base_arena scratch;
    base_arena_init(&scratch, arena->heap);
    pass_edit *e = base_arena_take(&scratch, 1, sizeof *e);
    if (!e) {
        base_arena_fini(&scratch);
        return NULL;
    }
    e->scratch = scratch;
    e->arena = arena;
    e->in = k;
    e->schedule = schedule;
    e->out = *k;
    e->out.n_code = 0;
    if (k->n_register) memcpy(e->registers, k->registers, k->n_register * sizeof *k->registers);
    if (k->n_workgroup)
        memcpy(e->workgroups, k->workgroups, k->n_workgroup * sizeof *k->workgroups);
    if (k->n_fragment) memcpy(e->fragments, k->fragments, k->n_fragment * sizeof *k->fragments);
    e->map = pass_take(e, k->n_code, sizeof *e->map);
    e->close = pass_take(e, k->n_code, sizeof *e->close);
    e->middle = pass_take(e, k->n_code, sizeof *e->middle);
    e->parent = pass_take(e, k->n_code, sizeof *e->parent);
    e->capacity = k->n_code + k->n_code / 2 + 64;
    e->code = pass_take(e, e->capacity, sizeof *e->code);
    if (e->no_memory) {
        scratch = e->scratch;
        base_arena_fini(&scratch);
        return NULL;
    }
    find_blocks(e);
    return e;
}

static uint64_t array_bytes(const ir_array_decl *arrays, uint32_t n) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += (uint64_t)arrays[i].count * ir_type_bytes(arrays[i].type);
    return bytes;
}

static void *keep(pass_edit *e, const void *data, size_t count, size_t size) {
    void *memory = base_arena_take(e->arena, count ? count : 1, size);
    if (!memory) e->no_memory = true;
    else if (count) memcpy(memory, data, count * size);
    return memory;
}

static bool too_deep(const pass_edit *e) {
    uint32_t depth = 0, deepest = 0;
    for (uint32_t i = 0; i < e->out.n_code; i++) {
        if (e->code[i].op == IR_LOOP || e->code[i].op == IR_IF) depth++;
        if (e->code[i].op == IR_END) depth--;
        if (depth > deepest) deepest = depth;
    }
    return deepest > IR_DEPTH_MAX;
}

beryl_status pass_end(pass_edit *e, const ir_kernel **out, beryl_error *error) {
    if (!e) return base_fail(error, BERYL_NO_MEMORY, "no memory to rewrite a kernel");
    *out = e->in;
    if (array_bytes(e->registers, e->out.n_register) > IR_REGISTER_BYTES_MAX ||
        array_bytes(e->workgroups, e->out.n_workgroup) > IR_WORKGROUP_BYTES_MAX)
        e->too_large = true;
    if (too_deep(e)) e->too_large = true;
    if (!e->no_memory && !e->too_large && e->changed) {
        e->out.code = keep(e, e->code, e->out.n_code, sizeof *e->code);
        e->out.registers = keep(e, e->registers, e->out.n_register, sizeof *e->registers);
        e->out.workgroups = keep(e, e->workgroups, e->out.n_workgroup, sizeof *e->workgroups);
        e->out.fragments = keep(e, e->fragments, e->out.n_fragment, sizeof *e->fragments);
        const ir_kernel *made = keep(e, &e->out, 1, sizeof e->out);
        if (made) *out = made;
    }
    bool no_memory = e->no_memory;
    base_arena scratch = e->scratch;
    base_arena_fini(&scratch);
    return no_memory ? base_fail(error, BERYL_NO_MEMORY, "no memory to rewrite a kernel")
                     : BERYL_OK;
}

/* ---- pushing --------------------------------------------------------------------------------- */

ir_id pass_push(pass_edit *e, ir_instruction i) {
    if (e->no_memory || e->too_large) return 0;
    if (e->out.n_code == IR_CODE_MAX) {
        e->too_large = true;
        return 0;
    }
    if (e->out.n_code == e->capacity) {
        uint32_t capacity = e->capacity * 2;
        ir_instruction *code = pass_take(e, capacity, sizeof *code);
        if (!code) return 0;
        memcpy(code, e->code, e->out.n_code * sizeof *code);
        e->code = code;
        e->capacity = capacity;
    }
    e->code[e->out.n_code] = i;
    return e->out.n_code++;
}

static const ir_instruction nothing = {.in = {IR_NO_ID, IR_NO_ID, IR_NO_ID, IR_NO_ID}};

ir_id pass_copy(pass_edit *e, uint32_t i) {
    ir_instruction copy = e->in->code[i];
    for (uint32_t a = 0; a < copy.n_in; a++)
        if (copy.in[a] != IR_NO_ID) copy.in[a] = e->map[copy.in[a]];
    return e->map[i] = pass_push(e, copy);
}

void pass_copy_range(pass_edit *e, uint32_t first, uint32_t last) {
    for (uint32_t i = first; i < last; i++) pass_copy(e, i);
}

void pass_copy_guarded(pass_edit *e, uint32_t first, uint32_t last, ir_id condition) {
    for (uint32_t i = first; i < last; i++) {
        bool effect = pass_is_effect(&e->in->code[i]);
        if (effect) pass_if(e, condition);
        pass_copy(e, i);
        if (effect) pass_close(e);
    }
}

ir_id pass_bits(pass_edit *e, ir_type type, uint32_t width, uint64_t bits) {
    ir_instruction i = nothing;
    i.op = IR_CONST, i.type = (uint8_t)type, i.width = (uint8_t)width, i.imm = bits;
    return pass_push(e, i);
}

ir_id pass_u32(pass_edit *e, uint32_t value) {
    return pass_bits(e, IR_U32, 1, value);
}

bool pass_const(const ir_instruction *code, ir_id id, uint32_t *value) {
    if (code[id].op != IR_CONST || code[id].type != IR_U32 || code[id].width != 1) return false;
    *value = (uint32_t)code[id].imm;
    return true;
}

ir_id pass_binary(pass_edit *e, ir_op op, ir_id a, ir_id b) {
    if (e->no_memory || e->too_large) return 0;
    uint32_t x, y;
    bool x_known = pass_const(e->code, a, &x), y_known = pass_const(e->code, b, &y);
    bool compare = ir_op_of(op)->form == IR_FORM_COMPARE;
    if (x_known && y_known && !compare) {
        uint64_t in[4] = {x, y, 0, 0};
        return pass_u32(e, (uint32_t)ir_evaluate(op, IR_U32, IR_U32, in));
    }
    if (y_known && ((op == IR_MUL && y == 1) || (y == 0 && (op == IR_ADD || op == IR_SUB))))
        return a;
    if (x_known && ((op == IR_MUL && x == 1) || (op == IR_ADD && x == 0))) return b;
    ir_instruction i = nothing;
    i.op = (uint8_t)op, i.width = e->code[a].width, i.n_in = 2, i.in[0] = a, i.in[1] = b;
    i.type = compare ? IR_BOOL : e->code[a].type;
    return pass_push(e, i);
}

ir_id pass_axis(pass_edit *e, ir_op op, uint32_t axis) {
    ir_instruction i = nothing;
    i.op = (uint8_t)op, i.type = IR_U32, i.width = 1, i.imm = axis;
    return pass_push(e, i);
}

ir_id pass_lane_number(pass_edit *e) {
    ir_id number = IR_NO_ID;
    uint32_t before = 1;
    for (uint32_t axis = 0; axis < 3; axis++) {
        if (e->out.workgroup[axis] > 1) {
            ir_id part = pass_binary(e, IR_MUL, pass_axis(e, IR_LOCAL, axis), pass_u32(e, before));
            number = number == IR_NO_ID ? part : pass_binary(e, IR_ADD, number, part);
        }
        before *= e->out.workgroup[axis];
    }
    return number == IR_NO_ID ? pass_u32(e, 0) : number;
}

ir_id pass_loop(pass_edit *e, ir_id from, ir_id to, ir_id step, uint64_t imm) {
    ir_instruction i = nothing;
    i.op = IR_LOOP, i.type = IR_U32, i.width = 1, i.n_in = 3, i.imm = imm;
    i.in[0] = from, i.in[1] = to, i.in[2] = step;
    return pass_push(e, i);
}

void pass_if(pass_edit *e, ir_id condition) {
    ir_instruction i = nothing;
    i.op = IR_IF, i.n_in = 1, i.in[0] = condition;
    pass_push(e, i);
}

void pass_close(pass_edit *e) {
    ir_instruction i = nothing;
    i.op = IR_END;
    pass_push(e, i);
}

ir_id pass_load(pass_edit *e, ir_type type, uint32_t width, ir_memory from, ir_id index) {
    ir_instruction i = nothing;
    i.op = IR_LOAD, i.type = (uint8_t)type, i.width = (uint8_t)width, i.n_in = 1, i.in[0] = index;
    i.space = from.space, i.array = from.array;
    return pass_push(e, i);
}

void pass_store(pass_edit *e, ir_memory to, ir_id index, ir_id value) {
    if (e->no_memory || e->too_large) return;
    ir_instruction i = nothing;
    i.op = IR_STORE, i.type = e->code[value].type, i.width = e->code[value].width, i.n_in = 2;
    i.in[0] = index, i.in[1] = value, i.space = to.space, i.array = to.array;
    pass_push(e, i);
}

void pass_barrier(pass_edit *e) {
    ir_instruction i = nothing;
    i.op = IR_BARRIER;
    pass_push(e, i);
}

static ir_memory add_array(pass_edit *e, ir_space space, ir_array_decl *arrays, uint32_t *n,
                           ir_type type, uint32_t count) {
    if (*n == IR_ARRAY_MAX) {
        e->too_large = true;
        return (ir_memory){.space = (uint8_t)space, .array = UINT16_MAX};
    }
    arrays[*n] = (ir_array_decl){.type = type, .count = count};
    return (ir_memory){.space = (uint8_t)space, .array = (uint16_t)(*n)++};
}

ir_memory pass_register(pass_edit *e, ir_type type, uint32_t count) {
    return add_array(e, IR_REGISTER, e->registers, &e->out.n_register, type, count);
}

ir_memory pass_workgroup(pass_edit *e, ir_type type, uint32_t count) {
    return add_array(e, IR_WORKGROUP, e->workgroups, &e->out.n_workgroup, type, count);
}

/* ---- looking --------------------------------------------------------------------------------- */

bool pass_is_effect(const ir_instruction *i) {
    uint32_t flags = pass_flags(i);
    return (flags & IR_WRITES) && !(flags & IR_TOGETHER) &&
           !(i->op == IR_STORE && i->space != IR_BUFFER);
}

uint32_t *pass_uses(pass_edit *e) {
    uint32_t *uses = pass_take(e, e->in->n_code, sizeof *uses);
    for (uint32_t i = 0; uses && i < e->in->n_code; i++)
        for (uint32_t a = 0; a < e->in->code[i].n_in; a++)
            if (e->in->code[i].in[a] != IR_NO_ID) uses[e->in->code[i].in[a]]++;
    return uses;
}

pass_buffers pass_buffers_of(const pass_edit *e, uint32_t first, uint32_t last) {
    pass_buffers b = {0};
    for (uint32_t i = first; i < last; i++) {
        const ir_instruction *at = pass_at(e, i);
        ir_form form = ir_op_of((ir_op)at->op)->form;
        if (form == IR_FORM_COPY_ASYNC) b.loaded[at->imm & 0xffff] = true;
        if (at->space != IR_BUFFER) continue;
        if (form == IR_FORM_LOAD || form == IR_FORM_FRAGMENT_LOAD) b.loaded[at->array] = true;
        if (form == IR_FORM_STORE || form == IR_FORM_FRAGMENT_STORE) b.written[at->array] = true;
        if (form == IR_FORM_ATOMIC) b.loaded[at->array] = b.written[at->array] = true;
    }
    return b;
}

/* What a block's runs depend on: all conditions and bounds around it. */
static uint8_t around(const pass_edit *e, const uint8_t *lanes, uint32_t i) {
    uint32_t parent = e->parent[i];
    return parent == IR_NO_ID ? 0 : lanes[parent];
}

uint8_t *pass_lanes(pass_edit *e) {
    uint8_t *lanes = pass_take(e, e->in->n_code, 1);
    if (!lanes) return NULL;
    uint8_t registers[IR_ARRAY_MAX] = {0};
    pass_buffers buffers = pass_buffers_of(e, 0, e->in->n_code);
    for (bool again = true; again;) {
        again = false;
        for (uint32_t i = 0; i < e->in->n_code; i++) {
            const ir_instruction *at = pass_at(e, i);
            uint8_t mask = 0;
            for (uint32_t a = 0; a < at->n_in; a++)
                if (at->in[a] != IR_NO_ID) mask |= lanes[at->in[a]];
            if (at->op == IR_LOCAL) mask |= (uint8_t)(1u << at->imm);
            else if (at->op == IR_LOAD && at->space == IR_REGISTER) mask |= registers[at->array];
            else if (at->op == IR_LOAD && at->space == IR_BUFFER && buffers.written[at->array])
                mask = 7;
            else if (at->op == IR_LOOP || at->op == IR_IF) mask |= around(e, lanes, i);
            else if (at->op == IR_STORE && at->space == IR_REGISTER) {
                mask |= around(e, lanes, i);
                if (registers[at->array] != (registers[at->array] | mask)) again = true;
                registers[at->array] |= mask;
            } else if (at->op == IR_SUBGROUP_LANE ||
                       (ir_has_result(at) && !(pass_flags(at) & IR_PURE) && at->op != IR_LOAD))
                mask = 7;
            lanes[i] = mask;
        }
    }
    return lanes;
}

static uint64_t common(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Sums and products may wrap at 2^32, so of them only powers of two are known for sure. */
static uint64_t even_part(uint64_t n) {
    return n ? n & (~n + 1) : 0;
}

static uint64_t multiple_at(const pass_edit *e, const ir_instruction *code, ir_id id,
                            uint32_t depth) {
    const uint64_t all = 1ull << 32; /* of zero */
    const ir_instruction *i = &code[id];
    if (i->type != IR_U32 || i->width != 1) return 1;
    if (i->op == IR_CONST) return (uint32_t)i->imm ? (uint32_t)i->imm : all;
    if (i->op == IR_PARAM) {
        uint32_t promised = e->schedule->param_multiple[i->array];
        return promised ? promised : 1;
    }
    if (!depth) return 1;
    uint64_t in[3] = {1, 1, 1};
    for (uint32_t a = 0; a < i->n_in && a < 3; a++)
        if (code[i->in[a]].type == IR_U32) in[a] = multiple_at(e, code, i->in[a], depth - 1);
    uint64_t x = even_part(in[0]), y = even_part(in[1]), z = even_part(in[2]);
    uint64_t found = 1, shift;
    if (i->op == IR_ADD || i->op == IR_SUB || i->op == IR_OR || i->op == IR_XOR)
        found = common(x, y);
    else if (i->op == IR_MIN || i->op == IR_MAX || i->op == IR_MOD) found = common(in[0], in[1]);
    else if (i->op == IR_MUL || i->op == IR_FMA) {
        found = x * y > all ? all : x * y;
        if (i->op == IR_FMA) found = common(found, z);
    } else if (i->op == IR_AND) found = x > y ? x : y;
    else if (i->op == IR_SHL && code[i->in[1]].op == IR_CONST) {
        shift = code[i->in[1]].imm & 31;
        found = x << shift > all ? all : x << shift;
    } else if (i->op == IR_LOOP) found = common(x, z);
    else if (i->op == IR_SELECT) found = common(in[1], in[2]);
    return found ? found : 1;
}

uint64_t pass_multiple(const pass_edit *e, const ir_instruction *code, ir_id id) {
    return multiple_at(e, code, id, 12);
}

enum { BLOCK_LEAST = 8, WAY_MAX = 12 };

static uint64_t beside(const pass_edit *e, ir_id id, ir_id loop, bool *blocks);

/* In how many turns from a multiple of as many on the value stays the same: a power of two. Of a
 * long way to the loop's index: 1. */
static uint64_t steady(const pass_edit *e, ir_id id, ir_id loop, uint32_t way) {
    const uint64_t all = UINT64_C(1) << 32;
    const ir_instruction *code = e->in->code, *at = &code[id];
    uint64_t found = all;
    uint32_t by;
    bool blocks;
    if (id <= loop || !way) return id < loop ? all : 1;
    if (at->op == IR_DIV && pass_const(code, at->in[1], &by)) {
        const uint64_t rest = beside(e, at->in[0], loop, &blocks);
        if (rest) return common(even_part(rest), even_part(by));
    }
    for (uint32_t a = 0; a < at->n_in; a++)
        if (at->in[a] != IR_NO_ID) found = common(found, steady(e, at->in[a], loop, way - 1));
    return found;
}

/* *blocks: so it is in blocks of as many turns alone. */
static uint64_t beside(const pass_edit *e, ir_id id, ir_id loop, bool *blocks) {
    const uint64_t all = UINT64_C(1) << 32;
    const ir_instruction *code = e->in->code, *at = &code[id];
    uint32_t by;
    if (id == loop) return all;
    if (id > loop && at->op == IR_MOD && pass_const(code, at->in[1], &by)) {
        const uint64_t rest = beside(e, at->in[0], loop, blocks);
        *blocks = true;
        return rest ? common(even_part(rest), even_part(by)) : 0;
    }
    if (id < loop || (at->op != IR_ADD && at->op != IR_SUB && at->op != IR_FMA)) return 0;
    for (uint32_t a = at->op == IR_FMA ? 2 : 0; a < (at->op == IR_SUB ? 1u : at->n_in); a++) {
        const uint64_t rest = beside(e, at->in[a], loop, blocks);
        uint64_t other = 1, same = all;
        for (uint32_t x = 0; x < at->n_in && rest; x++) {
            if (x == a) continue;
            same = common(same, steady(e, at->in[x], loop, WAY_MAX));
            other *= even_part(pass_multiple(e, code, at->in[x]));
        }
        if (!rest || same < BLOCK_LEAST) continue;
        *blocks |= same < all;
        return common(common(even_part(rest), other), same);
    }
    return 0;
}

uint64_t pass_multiple_beside(const pass_edit *e, ir_id id, ir_id loop) {
    bool blocks = false;
    const uint64_t found = beside(e, id, loop, &blocks);
    return blocks && found < BLOCK_LEAST ? 0 : found;
}

bool pass_count_multiple(const pass_edit *e, const ir_instruction *code, ir_id from, ir_id to,
                         uint32_t n) {
    uint32_t first, last;
    if (n <= 1) return true;
    if (pass_const(code, from, &first) && pass_const(code, to, &last))
        return first >= last || (last - first) % n == 0;
    /* to = from + c, whatever from is: then from <= to must be known; tiles say so by their mark.
     */
    return pass_multiple(e, code, from) % n == 0 && pass_multiple(e, code, to) % n == 0;
}

bool pass_is_closed(pass_edit *e) {
    uint32_t *uses = pass_uses(e);
    if (!uses || e->in->n_workgroup || e->in->n_fragment) return true;
    for (uint32_t i = 0; i < e->in->n_code; i++) {
        const ir_instruction *at = pass_at(e, i);
        if (pass_flags(at) & IR_TOGETHER || at->op == IR_COPY_ASYNC) return true;
        if (ir_op_of((ir_op)at->op)->form == IR_FORM_ATOMIC && uses[i]) return true;
    }
    return false;
}

/* Inside a loop whose turns follow each other. */
static bool is_repeated(const pass_edit *e, uint32_t i) {
    for (uint32_t p = e->parent[i]; p != IR_NO_ID; p = e->parent[p]) {
        ir_mark_kind kind = ir_mark_of(pass_at(e, p)).kind;
        if (pass_at(e, p)->op == IR_LOOP && (kind == IR_SERIAL || kind == IR_REDUCE)) return true;
    }
    return false;
}

bool pass_loads_written(const pass_edit *e, uint32_t loop) {
    pass_buffers all = pass_buffers_of(e, 0, e->in->n_code);
    for (uint32_t i = loop + 1; i < e->close[loop]; i++) {
        const ir_instruction *at = pass_at(e, i);
        if (at->op == IR_LOAD && at->space == IR_BUFFER && all.written[at->array]) return true;
    }
    return false;
}

uint32_t pass_lanes_of_axis(const ir_schedule *s, uint32_t axis) {
    uint32_t lanes = 1;
    for (uint32_t d = 0; d < IR_DIM_MAX; d++)
        if (s->dims[d].lane == axis + 1 && s->dims[d].lanes > lanes) lanes = s->dims[d].lanes;
    return lanes;
}

bool pass_choose(const pass_edit *e, bool *chosen,
                 bool (*wants)(const pass_edit *e, ir_mark mark, uint32_t axis), uint32_t axis) {
    bool any = false;
    for (uint32_t i = 0; i < e->in->n_code; i++) {
        const ir_instruction *at = pass_at(e, i);
        uint32_t step;
        chosen[i] = at->op == IR_LOOP && ir_mark_of(at).kind == IR_PARALLEL &&
                    wants(e, ir_mark_of(at), axis) && pass_const(e->in->code, at->in[2], &step) &&
                    step;
        for (uint32_t p = e->parent[i]; chosen[i] && p != IR_NO_ID; p = e->parent[p])
            if (chosen[p]) chosen[i] = false;
        if (chosen[i]) any = true;
    }
    return any;
}

bool pass_may_spread(pass_edit *e, const bool *is_spread) {
    uint32_t *home = pass_take(e, IR_BUFFER_MAX, sizeof *home); /* the spread loop of a buffer */
    if (!home) return false;
    pass_buffers all = pass_buffers_of(e, 0, e->in->n_code);
    bool seen[IR_BUFFER_MAX] = {false};
    uint32_t loop = IR_NO_ID;
    for (uint32_t i = 0; i < e->in->n_code;
         i++) /* what is read on the next turn of a loop around it */
        if (is_spread[i] && is_repeated(e, i)) {
            pass_buffers inside = pass_buffers_of(e, i, e->close[i]);
            for (uint32_t b = 0; b < IR_BUFFER_MAX; b++)
                if (inside.written[b] && all.loaded[b]) return false;
        }
    for (uint32_t i = 0; i < e->in->n_code; i++) {
        if (loop == IR_NO_ID && is_spread[i]) loop = i;
        const ir_instruction *at = pass_at(e, i);
        ir_form form = ir_op_of((ir_op)at->op)->form;
        if (loop != IR_NO_ID && i == e->close[loop]) loop = IR_NO_ID;
        if (at->space != IR_BUFFER ||
            (form != IR_FORM_LOAD && form != IR_FORM_STORE && form != IR_FORM_ATOMIC))
            continue;
        uint32_t b = at->array;
        if (!all.written[b] || (!all.loaded[b] && form == IR_FORM_STORE)) continue;
        if (loop == IR_NO_ID || (seen[b] && home[b] != loop)) return false;
        seen[b] = true;
        home[b] = loop;
    }
    return true;
}
