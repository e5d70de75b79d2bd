/* cse.c - equal values computed once; what was stored to a register array is used instead of
 * loaded.
 *
 * Owns values that are equal because they are written equally. Memory is part of a load's name by a
 * version, which every store, barrier and block that may change the array raises: two loads with
 * one version give one value. Registers at constant places have a version each. Refuses to look
 * through addresses: a store to a buffer raises the whole buffer. */
#include "ir/pass/edit.h"

#include <string.h>

enum { N_HEAD = 1024, PLACES_MAX = 512 };

typedef struct known {
    ir_instruction name; /* imm, operands of the new kernel */
    uint64_t version;
    ir_id value;
    uint32_t head, next; /* of the table's chains */
} known;

typedef struct versions {
    uint64_t whole, places; /* raised by a store anywhere; by one at a constant place */
    uint64_t *at;           /* [count], registers up to PLACES_MAX alone, else NULL */
} versions;

typedef struct table {
    pass_edit *e;
    uint32_t heads[N_HEAD];
    known *known;
    uint32_t n, capacity;
    versions buffers[IR_BUFFER_MAX], workgroups[IR_ARRAY_MAX], registers[IR_ARRAY_MAX];
} table;

static uint32_t head_of(const known *k) {
    const uint64_t parts[] = {
        k->name.op | (uint64_t)k->name.type << 8 | (uint64_t)k->name.width << 16 |
            (uint64_t)k->name.space << 24 | (uint64_t)k->name.array << 32,
        k->name.in[0] | (uint64_t)k->name.in[1] << 32,
        k->name.in[2] | (uint64_t)k->name.in[3] << 32, k->name.imm, k->version};
    uint64_t mixed = 0; /* places of one kernel's own numbers: no hash of hostile bytes */
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        mixed = (mixed ^ parts[i]) * UINT64_C(0x9e3779b97f4a7c15);
        mixed ^= mixed >> 32;
    }
    return (uint32_t)mixed % N_HEAD;
}

static bool same(const known *a, const known *b) {
    return a->name.op == b->name.op && a->name.type == b->name.type &&
           a->name.width == b->name.width && a->name.space == b->name.space &&
           a->name.array == b->name.array && a->name.imm == b->name.imm &&
           a->version == b->version && !memcmp(a->name.in, b->name.in, sizeof a->name.in);
}

static void learn(table *t, known k) {
    if (t->n == t->capacity) {
        uint32_t capacity = t->capacity ? t->capacity * 2 : 256;
        known *larger = pass_take(t->e, capacity, sizeof *larger);
        if (!larger) return;
        if (t->n) memcpy(larger, t->known, t->n * sizeof *larger);
        t->known = larger;
        t->capacity = capacity;
    }
    k.next = t->heads[k.head];
    t->known[t->n] = k;
    t->heads[k.head] = ++t->n; /* 0: none */
}

static ir_id find(const table *t, const known *k) {
    for (uint32_t i = t->heads[k->head]; i; i = t->known[i - 1].next)
        if (same(&t->known[i - 1], k)) return t->known[i - 1].value;
    return IR_NO_ID;
}

static void forget(table *t, uint32_t n) {
    while (t->n > n) {
        t->n--;
        t->heads[t->known[t->n].head] = t->known[t->n].next;
    }
}

static versions *versions_of(table *t, uint8_t space, uint16_t array) {
    return space == IR_BUFFER      ? &t->buffers[array]
           : space == IR_WORKGROUP ? &t->workgroups[array]
                                   : &t->registers[array];
}

/* Does `index` (new id) name `width` elements of the array whose versions are counted singly? */
static bool place_of(const table *t, const versions *v, uint16_t array, ir_id index, uint32_t width,
                     uint32_t *place) {
    if (!v->at || index == IR_NO_ID || !pass_const(t->e->code, index, place)) return false;
    const uint32_t count = t->e->registers[array].count;
    return width <= count && *place <= count - width;
}

/* The version of `width` elements at the place that `index` (new id) names. */
static uint64_t version_of(table *t, uint8_t space, uint16_t array, ir_id index, uint32_t width) {
    const versions *v = versions_of(t, space, array);
    uint32_t place;
    if (place_of(t, v, array, index, width, &place)) {
        uint64_t sum = v->whole << 32;
        for (uint32_t i = 0; i < width; i++) sum += v->at[place + i];
        return sum;
    }
    return (v->whole << 32) + v->places;
}

static void raise(table *t, uint8_t space, uint16_t array, ir_id index, uint32_t width) {
    versions *v = versions_of(t, space, array);
    uint32_t place;
    v->places++;
    if (place_of(t, v, array, index, width, &place)) {
        for (uint32_t i = 0; i < width; i++) v->at[place + i]++;
    } else v->whole++;
}

/* Everything that [first, last) may change. */
static void raise_all(table *t, uint32_t first, uint32_t last) {
    for (uint32_t i = first; i < last; i++) {
        const ir_instruction *at = pass_at(t->e, i);
        uint32_t flags = pass_flags(at);
        ir_form form = ir_op_of((ir_op)at->op)->form;
        if (flags & IR_BARS || form == IR_FORM_COPY_ASYNC || form == IR_FORM_COUNT) {
            for (uint32_t b = 0; b < t->e->in->n_buffer; b++)
                if (t->e->in->buffers[b].access != IR_READ)
                    raise(t, IR_BUFFER, (uint16_t)b, IR_NO_ID, 1);
            for (uint32_t w = 0; w < t->e->in->n_workgroup; w++)
                raise(t, IR_WORKGROUP, (uint16_t)w, IR_NO_ID, 1);
        }
        if (form == IR_FORM_STORE || form == IR_FORM_ATOMIC || form == IR_FORM_FRAGMENT_STORE)
            raise(t, at->space, at->array, IR_NO_ID, 1);
    }
}

static void one(table *t, uint32_t i) {
    pass_edit *e = t->e;
    const ir_instruction *at = pass_at(e, i);
    if (at->op == IR_STORE) {
        pass_copy(e, i);
        if (e->no_memory || e->too_large) return;
        ir_instruction stored = e->code[e->out.n_code - 1];
        raise(t, at->space, at->array, stored.in[0], at->width);
        if (at->space != IR_REGISTER) return;
        known k = {.name = stored, .value = stored.in[1]};
        k.name.op = IR_LOAD;
        k.name.in[1] = IR_NO_ID;
        k.version = version_of(t, at->space, at->array, stored.in[0], at->width);
        k.head = head_of(&k);
        learn(t, k);
        return;
    }
    bool pure = pass_flags(at) & IR_PURE && ir_has_result(at);
    if (!pure && at->op != IR_LOAD) {
        pass_copy(e, i);
        raise_all(t, i, i + 1);
        return;
    }
    ir_id id = pass_copy(e, i);
    if (e->no_memory || e->too_large) return;
    known k = {.name = e->code[id], .value = id};
    k.name.n_in = 0;
    if (at->op == IR_LOAD) k.version = version_of(t, at->space, at->array, k.name.in[0], at->width);
    k.head = head_of(&k);
    ir_id before = find(t, &k);
    if (before == IR_NO_ID) {
        learn(t, k);
        return;
    }
    e->out.n_code--;
    e->map[i] = before;
    e->changed = true;
}

beryl_status ir_pass_cse(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule,
                         const ir_kernel **out, beryl_error *error) {
    pass_edit *e = pass_begin(arena, k, schedule);
    table *t = e ? pass_take(e, 1, sizeof *t) : NULL;
    if (!t) return pass_end(e, out, error);
    t->e = e;
    for (uint32_t r = 0; r < k->n_register; r++)
        if (k->registers[r].count <= PLACES_MAX)
            t->registers[r].at = pass_take(e, k->registers[r].count, sizeof(uint64_t));
    uint32_t marks[IR_DEPTH_MAX + 1], depth = 0;
    for (uint32_t i = 0; i < k->n_code && !e->no_memory && !e->too_large; i++) {
        const ir_instruction *at = pass_at(e, i);
        if (at->op == IR_LOOP || at->op == IR_IF) {
            pass_copy(e, i);
            marks[depth++] = t->n;
            if (at->op == IR_LOOP) raise_all(t, i + 1, e->close[i]);
        } else if (at->op == IR_ELSE) {
            pass_copy(e, i);
            forget(t, marks[depth - 1]);
            raise_all(t, e->close[i] + 1, i);
        } else if (at->op == IR_END) {
            pass_copy(e, i);
            forget(t, marks[--depth]);
            raise_all(t, e->close[i] + 1, i);
        } else one(t, i);
    }
    return pass_end(e, out, error);
}
