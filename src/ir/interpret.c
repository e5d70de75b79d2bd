/* interpret.c - runs a kernel as it is written: the judge of every pass and generator.
 *
 * Owns the meaning of memory, lanes and control. Refuses, with the instruction and the lane: a
 * place outside its buffer or not a multiple of the width, memory that nobody wrote, a race, lanes
 * that part where they must meet. The idea: the lanes of a workgroup go through the list in
 * lockstep under a mask, so barriers and subgroup ops are exact by construction; each element of
 * shared memory remembers who touched it since when, so that lockstep hides no race.
 *
 * Shapes: lanes L, instructions N, vector lanes of all results W.
 */
#include "ir/interpret.h"
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void interpret_fail(machine *m, const char *format, ...) {
    char what[256];
    va_list args;
    if (m->status) return;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    m->status = base_fail_at(m->error, BERYL_BAD_INPUT, m->id,
                             "kernel %s, instruction %u (%s), group %u %u %u, lane %u: %s",
                             m->k->name, m->id, ir_op_of((ir_op)m->k->code[m->id].op)->name,
                             m->group[0], m->group[1], m->group[2], m->lane, what);
}

/* ---- who touched what ------------------------------------------------------------------------ */

static uint32_t actor_of(const machine *m, uint32_t lane) {
    return m->group_number * m->lanes + lane + 1;
}

/* Between barriers, counted over the dispatch; of buffers, which they do not order, the
 * workgroup. */
static uint32_t interval_of(const machine *m, const area *p) {
    return p->space == IR_BUFFER ? m->group_number + 1 : m->interval;
}

static bool overlaps(const machine *m, const area *p, uint32_t other, uint32_t when) {
    return (other - 1) / m->lanes != m->group_number || when == interval_of(m, p);
}

static void race(machine *m, const area *p, uint64_t index, uint32_t other) {
    interpret_fail(m, "a race for element %llu of %s %u with lane %u of group number %u",
                   (unsigned long long)index, p->name, p->array, (other - 1) % m->lanes,
                   (other - 1) / m->lanes);
}

static void saw_read(machine *m, shadow *s, bool atomic, const area *p, uint64_t index) {
    const uint32_t actor = actor_of(m, m->lane), now = interval_of(m, p);
    if (s->writer && s->writer != actor && !(atomic && s->atomic) &&
        overlaps(m, p, s->writer, s->written_at))
        race(m, p, index, s->writer);
    if (atomic) return; /* the write that follows says the rest */
    if (s->reader && (s->reader - 1) / m->lanes != m->group_number) s->groups = true;
    s->several = s->read_at == now && s->reader && (s->several || s->reader != actor);
    s->reader = actor;
    s->read_at = now;
}

static void saw_write(machine *m, shadow *s, bool atomic, const area *p, uint64_t index) {
    const uint32_t actor = actor_of(m, m->lane), now = interval_of(m, p);
    if (s->writer && s->writer != actor && !(atomic && s->atomic) &&
        overlaps(m, p, s->writer, s->written_at))
        race(m, p, index, s->writer);
    bool others = s->reader != actor || (s->several && s->read_at == now);
    if (s->reader && (s->groups || (others && overlaps(m, p, s->reader, s->read_at))))
        race(m, p, index, s->reader);
    s->writer = actor;
    s->written_at = now;
    s->atomic = atomic;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static uint64_t read_bytes(const void *data, uint32_t size) {
    uint8_t byte;
    uint16_t half;
    uint32_t word;
    uint64_t two;
    switch (size) {
    case 1: return memcpy(&byte, data, 1), byte;
    case 2: return memcpy(&half, data, 2), half;
    case 4: return memcpy(&word, data, 4), word;
    default: return memcpy(&two, data, 8), two;
    }
}

static void write_bytes(void *data, uint32_t size, uint64_t bits) {
    uint8_t byte = (uint8_t)bits;
    uint16_t half = (uint16_t)bits;
    uint32_t word = (uint32_t)bits;
    switch (size) {
    case 1: memcpy(data, &byte, 1); break;
    case 2: memcpy(data, &half, 2); break;
    case 4: memcpy(data, &word, 4); break;
    default: memcpy(data, &bits, 8); break;
    }
}

area interpret_area(const machine *m, ir_space space, uint32_t array) {
    area p = {.space = space, .array = array};
    p.name = space == IR_BUFFER ? "buffer" : space == IR_WORKGROUP ? "workgroup" : "register";
    if (space == IR_BUFFER) {
        p.bytes = ir_type_bytes(m->k->buffers[array].type);
        p.count = m->run->buffers[array].size / p.bytes;
        return p;
    }
    const ir_array_decl *a =
        space == IR_WORKGROUP ? &m->k->workgroups[array] : &m->k->registers[array];
    p.bytes = ir_type_bytes(a->type);
    p.count = a->count;
    return p;
}

bool interpret_inside(machine *m, const area *p, uint64_t index, uint64_t width) {
    const ir_instruction *i = interpret_at(m);
    if (index % width && !((i->op == IR_LOAD || i->op == IR_STORE) && i->imm))
        interpret_fail(m, "index %llu of %s %u is no multiple of %llu", (unsigned long long)index,
                       p->name, p->array, (unsigned long long)width);
    else if (p->count < width || index > p->count - width)
        interpret_fail(m, "index %llu of %s %u, width %llu, is outside its %llu elements",
                       (unsigned long long)index, p->name, p->array, (unsigned long long)width,
                       (unsigned long long)p->count);
    return !m->status;
}

/* One element, inside. The lane is m->lane. */
uint64_t interpret_get(machine *m, const area *p, uint64_t index, bool atomic) {
    uint64_t n = p->count * m->lane + index;
    if (p->space == IR_REGISTER) {
        if (!m->written[p->array][n])
            interpret_fail(m, "reads element %llu of %s %u, which is undefined",
                           (unsigned long long)index, p->name, p->array);
        return m->registers[p->array][n];
    }
    shadow *seen = p->space == IR_BUFFER ? m->of_buffers[p->array] : m->of_workgroups[p->array];
    if (seen) {
        if (p->space == IR_WORKGROUP && !seen[index].writer)
            interpret_fail(m, "reads element %llu of %s %u, which is undefined",
                           (unsigned long long)index, p->name, p->array);
        saw_read(m, &seen[index], atomic, p, index);
    }
    if (p->space == IR_WORKGROUP) return m->workgroups[p->array][index];
    return read_bytes((const char *)m->run->buffers[p->array].data + index * p->bytes, p->bytes);
}

void interpret_put(machine *m, const area *p, uint64_t index, uint64_t bits, bool atomic) {
    uint64_t n = p->count * m->lane + index;
    if (p->space == IR_REGISTER) {
        m->written[p->array][n] = true;
        m->registers[p->array][n] = bits;
        return;
    }
    shadow *seen = p->space == IR_BUFFER ? m->of_buffers[p->array] : m->of_workgroups[p->array];
    if (seen) saw_write(m, &seen[index], atomic, p, index);
    if (p->space == IR_WORKGROUP) m->workgroups[p->array][index] = bits;
    else write_bytes((char *)m->run->buffers[p->array].data + index * p->bytes, p->bytes, bits);
}

static void run_load(machine *m) {
    const ir_instruction *i = interpret_at(m);
    area p = interpret_area(m, (ir_space)i->space, i->array);
    for (m->lane = 0; m->lane < m->lanes && !m->status; m->lane++) {
        if (!m->mask[m->lane]) continue;
        uint64_t index = interpret_operand(m, 0, m->lane), *to = interpret_value(m, m->id, m->lane);
        if (!interpret_inside(m, &p, index, i->width)) return;
        for (uint32_t w = 0; w < i->width; w++) to[w] = interpret_get(m, &p, index + w, false);
    }
}

static void run_store(machine *m) {
    const ir_instruction *i = interpret_at(m);
    area p = interpret_area(m, (ir_space)i->space, i->array);
    for (m->lane = 0; m->lane < m->lanes && !m->status; m->lane++) {
        if (!m->mask[m->lane]) continue;
        uint64_t index = interpret_operand(m, 0, m->lane),
                 *from = interpret_value(m, i->in[1], m->lane);
        if (!interpret_inside(m, &p, index, i->width)) return;
        for (uint32_t w = 0; w < i->width; w++) interpret_put(m, &p, index + w, from[w], false);
    }
}

static void run_atomic(machine *m) {
    const ir_instruction *i = interpret_at(m);
    area p = interpret_area(m, (ir_space)i->space, i->array);
    ir_op op = i->op == IR_ATOMIC_ADD ? IR_ADD : i->op == IR_ATOMIC_MIN ? IR_MIN : IR_MAX;
    for (m->lane = 0; m->lane < m->lanes && !m->status; m->lane++) {
        if (!m->mask[m->lane]) continue;
        uint64_t index = interpret_operand(m, 0, m->lane);
        if (!interpret_inside(m, &p, index, 1)) return;
        uint64_t in[2] = {interpret_get(m, &p, index, true), interpret_operand(m, 1, m->lane)};
        *interpret_value(m, m->id, m->lane) = in[0];
        interpret_put(m, &p, index, ir_evaluate(op, (ir_type)i->type, (ir_type)i->type, in), true);
    }
}

static void new_interval(machine *m) {
    if (++m->interval == 0) interpret_fail(m, "more barriers than can be counted");
}

static void run_uniform_load(machine *m) {
    uint64_t index = interpret_operand(m, 0, 0);
    for (m->lane = 1; m->lane < m->lanes; m->lane++)
        if (interpret_operand(m, 0, m->lane) != index)
            interpret_fail(m, "its index differs between lanes");
    new_interval(m);
    if (!m->status) run_load(m);
    new_interval(m);
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

static void run_pure(machine *m) {
    const ir_instruction *i = interpret_at(m);
    /* The type that ir_evaluate asks for: of the last operand, which select and fma share with the
     * others. */
    ir_type in_type = (ir_type)m->k->code[i->in[i->n_in - 1]].type;
    uint64_t in[4];
    for (uint32_t lane = 0; lane < m->lanes; lane++) {
        if (!m->mask[lane]) continue;
        uint64_t *to = interpret_value(m, m->id, lane);
        for (uint32_t w = 0; w < i->width; w++) {
            for (uint32_t n = 0; n < i->n_in; n++) in[n] = interpret_value(m, i->in[n], lane)[w];
            to[w] = ir_evaluate((ir_op)i->op, (ir_type)i->type, in_type, in);
        }
    }
}

static void bitcast(const ir_instruction *from, const ir_instruction *to, const uint64_t *in,
                    uint64_t *out) {
    uint32_t in_bits = 8 * ir_type_bytes((ir_type)from->type);
    uint32_t out_bits = 8 * ir_type_bytes((ir_type)to->type);
    for (uint32_t w = 0; w < to->width; w++) {
        out[w] = 0;
        for (uint32_t bit = 0; bit < out_bits; bit += 8) {
            uint32_t n = w * out_bits + bit;
            out[w] |= (in[n / in_bits] >> n % in_bits & 255) << bit;
        }
    }
}

static void run_lanes(machine *m, ir_form form) {
    const ir_instruction *i = interpret_at(m), *of = &m->k->code[i->in[0]];
    for (uint32_t lane = 0; lane < m->lanes; lane++) {
        if (!m->mask[lane]) continue;
        uint64_t *to = interpret_value(m, m->id, lane), *from = interpret_value(m, i->in[0], lane);
        if (form == IR_FORM_BITCAST) {
            bitcast(of, i, from, to);
            continue;
        }
        for (uint32_t w = 0; w < i->width; w++) {
            if (form == IR_FORM_SPLAT) to[w] = from[0];
            else if (form == IR_FORM_EXTRACT) to[w] = from[i->imm];
            else if (form == IR_FORM_SWIZZLE) to[w] = from[i->imm >> 4 * w & 15];
            else to[w] = interpret_value(m, i->in[w / of->width], lane)[w % of->width];
        }
    }
}

typedef enum source_op { /* so the switch below is complete, or does not compile */
#define X(NAME, ...) SOURCE_##NAME = IR_##NAME,
                         IR_INDEX_LIST(X) SOURCE_CONST = IR_CONST,
                         SOURCE_PARAM = IR_PARAM
#undef X
} source_op;

/* const, param and the index kinds: all lanes, whatever the mask. */
static void run_source(machine *m) {
    const ir_instruction *i = interpret_at(m);
    const uint32_t *side = m->k->workgroup;
    uint32_t axis = (uint32_t)i->imm;
    for (uint32_t lane = 0; lane < m->lanes; lane++) {
        uint64_t v = i->imm;
        uint32_t where[3] = {lane % side[0], lane / side[0] % side[1], lane / side[0] / side[1]};
        switch ((source_op)i->op) {
        case SOURCE_CONST: break;
        case SOURCE_PARAM: v = m->run->params[i->array]; break;
        case SOURCE_GROUP: v = m->group[axis]; break;
        case SOURCE_GROUPS: v = m->run->groups[axis]; break;
        case SOURCE_LOCAL: v = where[axis]; break;
        case SOURCE_SUBGROUP_LANE: v = lane % m->k->subgroup_size; break;
        case SOURCE_SUBGROUP_SIZE: v = m->k->subgroup_size; break;
        }
        uint64_t *to = interpret_value(m, m->id, lane);
        for (uint32_t w = 0; w < i->width; w++) to[w] = v;
    }
}

static void run_subgroup(machine *m) {
    const ir_instruction *i = interpret_at(m);
    ir_op op = i->op == IR_SUBGROUP_ADD ? IR_ADD : i->op == IR_SUBGROUP_MIN ? IR_MIN : IR_MAX;
    ir_type type = (ir_type)i->type;
    uint32_t size = m->k->subgroup_size;
    for (uint32_t first = 0; first < m->lanes; first += size)
        for (uint32_t w = 0; w < i->width; w++) {
            uint64_t in[2] = {interpret_value(m, i->in[0], first)[w], 0};
            for (uint32_t lane = 1; lane < size; lane++) {
                in[1] = interpret_value(m, i->in[0], first + lane)[w];
                in[0] = ir_evaluate(op, type, type, in);
            }
            for (uint32_t lane = 0; lane < size; lane++) {
                uint32_t from =
                    i->op == IR_SUBGROUP_BROADCAST ? (uint32_t)i->imm : lane ^ (uint32_t)i->imm;
                interpret_value(m, m->id, first + lane)[w] =
                    ir_op_of((ir_op)i->op)->form == IR_FORM_LANE
                        ? interpret_value(m, i->in[0], first + from)[w]
                        : in[0];
            }
        }
}

/* ---- asynchronous copies --------------------------------------------------------------------- */

/* What is copied arrives when it is waited for, not a moment sooner. */
static void finish_copy(machine *m, const copy *c) {
    const ir_instruction *i = &m->k->code[c->id];
    area to = interpret_area(m, IR_WORKGROUP, i->array),
         from = interpret_area(m, IR_BUFFER, i->imm & 0xffff);
    uint64_t n = (i->imm >> 16) / to.bytes;
    m->lane = c->lane;
    for (uint64_t w = 0; w < n; w++)
        interpret_put(m, &to, c->to + w, c->valid ? interpret_get(m, &from, c->from + w, false) : 0,
                      false);
}

static void run_copy(machine *m) {
    const ir_instruction *i = interpret_at(m);
    area to = interpret_area(m, IR_WORKGROUP, i->array),
         from = interpret_area(m, IR_BUFFER, i->imm & 0xffff);
    uint64_t n = (i->imm >> 16) / to.bytes;
    shadow *seen = m->of_workgroups[i->array];
    for (m->lane = 0; m->lane < m->lanes && !m->status; m->lane++) {
        if (!m->mask[m->lane]) continue;
        copy c = {m->lane,
                  m->committed[m->lane],
                  m->id,
                  interpret_operand(m, 0, m->lane),
                  interpret_operand(m, 1, m->lane),
                  i->n_in == 2 || interpret_operand(m, 2, m->lane)};
        if (!interpret_inside(m, &to, c.to, n) ||
            (c.valid && !interpret_inside(m, &from, c.from, n)))
            return;
        for (uint64_t w = 0; seen && w < n; w++) {
            bool defined = seen[c.to + w].writer;
            saw_write(m, &seen[c.to + w], false, &to, c.to + w);
            if (!defined) seen[c.to + w].writer = 0; /* it still holds nothing */
        }
        copy *kept = base_vec_add(m->arena.heap, &m->copies);
        if (kept) *kept = c;
        else
            m->status =
                base_fail(m->error, BERYL_NO_MEMORY, "no memory to interpret %s", m->k->name);
    }
}

static void run_copy_wait(machine *m) {
    size_t left = 0;
    for (size_t n = 0; n < m->copies.count; n++) {
        copy c = m->copies.data[n];
        if (m->mask[c.lane] && c.group + interpret_at(m)->imm < m->committed[c.lane])
            finish_copy(m, &c);
        else m->copies.data[left++] = c;
    }
    m->copies.count = left;
}

/* ---- control --------------------------------------------------------------------------------- */

static void count_active(machine *m) {
    m->n_active = 0;
    for (uint32_t lane = 0; lane < m->lanes; lane++) m->n_active += m->mask[lane];
}

/* Ends the innermost block. */
static void leave(machine *m) {
    memcpy(m->mask, m->frames[--m->depth].outer, m->lanes);
    count_active(m);
}

/* The next instruction, past `last`. */
static ir_id enter(machine *m, bool loop) {
    frame *f = &m->frames[m->depth++];
    f->opener = m->id;
    memcpy(f->outer, m->mask, m->lanes);
    for (m->lane = 0; m->lane < m->lanes; m->lane++) {
        if (!m->mask[m->lane]) continue;
        if (!loop) {
            m->mask[m->lane] = interpret_operand(m, 0, m->lane) != 0;
            continue;
        }
        uint64_t from = interpret_operand(m, 0, m->lane);
        *interpret_value(m, m->id, m->lane) = from;
        m->mask[m->lane] = from < interpret_operand(m, 1, m->lane);
        if (m->mask[m->lane] && !interpret_operand(m, 2, m->lane))
            interpret_fail(m, "its step is 0");
        if (interpret_operand(m, 1, m->lane) + interpret_operand(m, 2, m->lane) > UINT32_MAX)
            interpret_fail(m, "its end and step pass 2^32");
    }
    count_active(m);
    return m->n_active ? m->id + 1 : m->next[m->id];
}

static ir_id run_else(machine *m) {
    const frame *f = &m->frames[m->depth - 1];
    ir_id condition = m->k->code[f->opener].in[0];
    for (uint32_t lane = 0; lane < m->lanes; lane++)
        m->mask[lane] = f->outer[lane] && !*interpret_value(m, condition, lane);
    count_active(m);
    return m->n_active ? m->id + 1 : m->next[m->id];
}

static ir_id run_end(machine *m) {
    uint32_t opener = m->frames[m->depth - 1].opener;
    const ir_instruction *o = &m->k->code[opener];
    if (o->op == IR_LOOP) {
        for (uint32_t lane = 0; lane < m->lanes; lane++) {
            if (!m->mask[lane]) continue;
            uint64_t *index = interpret_value(m, opener, lane);
            *index += *interpret_value(m, o->in[2], lane);
            m->mask[lane] = *index < *interpret_value(m, o->in[1], lane);
        }
        count_active(m);
        if (m->n_active) return opener + 1;
    }
    leave(m);
    return m->id + 1;
}

static void run_plain(machine *m, const ir_op_info *info) {
    switch (info->form) {
    case IR_FORM_CONST:
    case IR_FORM_PARAM:
    case IR_FORM_INDEX:
    case IR_FORM_AXIS: run_source(m); break;
    case IR_FORM_SAME:
        if (info->flags & IR_TOGETHER) run_subgroup(m);
        else run_pure(m);
        break;
    case IR_FORM_LANE: run_subgroup(m); break;
    case IR_FORM_COMPARE:
    case IR_FORM_SELECT:
    case IR_FORM_DOT:
    case IR_FORM_CAST: run_pure(m); break;
    case IR_FORM_BITCAST:
    case IR_FORM_SPLAT:
    case IR_FORM_EXTRACT:
    case IR_FORM_COMPOSE:
    case IR_FORM_SWIZZLE: run_lanes(m, info->form); break;
    case IR_FORM_LOAD:
        if (info->flags & IR_BARS) run_uniform_load(m);
        else run_load(m);
        break;
    case IR_FORM_STORE: run_store(m); break;
    case IR_FORM_ATOMIC: run_atomic(m); break;
    case IR_FORM_FRAGMENT_FILL:
    case IR_FORM_FRAGMENT_LOAD:
    case IR_FORM_FRAGMENT_STORE:
    case IR_FORM_FRAGMENT_MULTIPLY:
    case IR_FORM_FRAGMENT_MMA:
    case IR_FORM_FRAGMENT_GET:
    case IR_FORM_FRAGMENT_SET: interpret_fragment(m); break;
    case IR_FORM_COPY_ASYNC: run_copy(m); break;
    case IR_FORM_COUNT:
        if (interpret_at(m)->op == IR_COPY_WAIT) run_copy_wait(m);
        break;
    case IR_FORM_BARE:
        if (info->flags & IR_BARS) new_interval(m);
        else
            for (uint32_t lane = 0; lane < m->lanes; lane++) m->committed[lane] += m->mask[lane];
        break;
    case IR_FORM_LOOP:
    case IR_FORM_IF: break;
    }
}

static ir_id run_one(machine *m) {
    const ir_op_info *info = ir_op_of((ir_op)interpret_at(m)->op);
    m->lane = 0;
    m->steps += m->n_active;
    if (m->run->limit && m->steps > m->run->limit)
        m->status = base_fail_at(m->error, BERYL_UNSUPPORTED, m->id,
                                 "kernel %s takes more than %llu steps of the interpreter",
                                 m->k->name, (unsigned long long)m->run->limit);
    if (info->flags & IR_TOGETHER && m->n_active != m->lanes)
        interpret_fail(m, "not all lanes of the workgroup are here");
    if (m->status) return m->id;
    if (interpret_at(m)->op == IR_LOOP || interpret_at(m)->op == IR_IF)
        return enter(m, interpret_at(m)->op == IR_LOOP);
    if (interpret_at(m)->op == IR_ELSE) return run_else(m);
    if (interpret_at(m)->op == IR_END) return run_end(m);
    run_plain(m, info);
    return m->id + 1;
}

/* ---- the dispatch ---------------------------------------------------------------------------- */

static void run_group(machine *m) {
    const ir_kernel *k = m->k;
    memset(m->mask, true, m->lanes);
    memset(m->committed, 0, m->lanes * sizeof *m->committed);
    m->n_active = m->lanes;
    m->depth = 0;
    m->copies.count = 0;
    for (uint32_t n = 0; n < k->n_register; n++)
        memset(m->written[n], 0, (size_t)m->lanes * k->registers[n].count);
    for (uint32_t n = 0; n < k->n_workgroup && !m->run->no_races; n++)
        memset(m->of_workgroups[n], 0, k->workgroups[n].count * sizeof(shadow));
    for (uint32_t n = 0; n < k->n_fragment; n++)
        memset(m->filled[n], 0, (size_t)m->lanes / k->subgroup_size * k->fragments[n].count);
    m->id = 0;
    new_interval(m);
    while (m->id < k->n_code && !m->status) {
        ir_id next = run_one(m);
        if (!m->status) m->id = next;
    }
}

static void *take(machine *m, uint64_t count, size_t size) {
    void *memory = count > SIZE_MAX ? NULL : base_arena_take(&m->arena, (size_t)count, size);
    if (!memory && !m->status)
        m->status = base_fail(m->error, BERYL_NO_MEMORY, "no memory to interpret %s", m->k->name);
    return memory;
}

static void take_arrays(machine *m) {
    const ir_kernel *k = m->k;
    for (uint32_t n = 0; n < k->n_register && !m->status; n++) {
        uint64_t count = (uint64_t)m->lanes * k->registers[n].count;
        m->registers[n] = take(m, count, sizeof(uint64_t));
        m->written[n] = take(m, count, sizeof(bool));
    }
    for (uint32_t n = 0; n < k->n_workgroup && !m->status; n++) {
        m->workgroups[n] = take(m, k->workgroups[n].count, sizeof(uint64_t));
        if (!m->run->no_races)
            m->of_workgroups[n] = take(m, k->workgroups[n].count, sizeof(shadow));
    }
    for (uint32_t n = 0; n < k->n_fragment && !m->status; n++) {
        const ir_fragment_decl *f = &k->fragments[n];
        uint64_t count = (uint64_t)m->lanes / k->subgroup_size * f->count;
        m->fragments[n] =
            take(m, count * interpret_rows(f) * interpret_columns(f), sizeof(uint64_t));
        m->filled[n] = take(m, count, sizeof(bool));
    }
    for (uint32_t n = 0; n < k->n_buffer && !m->status; n++)
        if (!m->run->no_races && k->buffers[n].access != IR_READ)
            m->of_buffers[n] = take(m, m->run->buffers[n].size / ir_type_bytes(k->buffers[n].type),
                                    sizeof(shadow));
}

static void take_all(machine *m) {
    const ir_kernel *k = m->k;
    m->values = take(m, k->n_code, sizeof *m->values);
    m->next = take(m, k->n_code, sizeof *m->next);
    m->mask = take(m, m->lanes, sizeof *m->mask);
    m->committed = take(m, m->lanes, sizeof *m->committed);
    for (uint32_t n = 0; n < IR_DEPTH_MAX && !m->status; n++)
        m->frames[n].outer = take(m, m->lanes, sizeof(bool));
    for (ir_id id = 0; id < k->n_code && !m->status; id++)
        if (ir_has_result(&k->code[id]))
            m->values[id] = take(m, (uint64_t)m->lanes * k->code[id].width, sizeof(uint64_t));
    if (!m->status) take_arrays(m);
    if (!m->status) ir_blocks(k, m->next);
}

beryl_status ir_interpret(base_heap *heap, const ir_kernel *k, const ir_run *run,
                          beryl_error *error) {
    machine m = {.k = k, .run = run, .error = error, .lanes = ir_lanes(k)};
    const uint32_t *groups = run->groups;
    uint64_t most = UINT32_MAX / m.lanes; /* lanes are told apart by 32 bits */
    for (uint32_t n = 0; n < k->n_buffer; n++)
        if (!run->buffers[n].data && run->buffers[n].size)
            return base_fail(error, BERYL_MISUSE, "kernel %s: buffer %u is not given", k->name, n);
    if (groups[0] && groups[1] && groups[2] && groups[0] > (most - 1) / groups[1] / groups[2])
        return base_fail(error, BERYL_UNSUPPORTED, "kernel %s: too many workgroups", k->name);
    base_arena_init(&m.arena, heap);
    take_all(&m);
    for (uint32_t z = 0; z < groups[2] && !m.status; z++)
        for (uint32_t y = 0; y < groups[1] && !m.status; y++)
            for (uint32_t x = 0; x < groups[0] && !m.status; x++, m.group_number++) {
                m.group[0] = x;
                m.group[1] = y;
                m.group[2] = z;
                run_group(&m);
            }
    base_vec_fini(heap, &m.copies);
    base_arena_fini(&m.arena);
    return m.status;
}
