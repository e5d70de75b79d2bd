/* vector.c - neighbouring loads and stores as one.
 *
 * Owns scalar accesses of buffers and workgroup arrays within straight code whose indices are one
 * sum of products and differ by 1, 2, 3 ...; the first index must be known to be a multiple of the
 * width. Refuses to move an access over one that could touch the same array, over barriers and over
 * the edges of blocks. Arithmetic stays scalar: compilers see to that. */
#include "ir/pass/edit.h"

#include <string.h>

enum { TERMS_MAX = 8, WIDTH_MAX = 16, WINDOW = 512 };

/* sum of factor * value, plus a constant, modulo 2^32 */
typedef struct affine {
    uint32_t n, constant;
    struct {
        ir_id value;
        uint32_t factor;
    } terms[TERMS_MAX];
    bool known;
} affine;

typedef struct access {
    uint32_t member;        /* 1 + number in its vector; 0: stays alone */
    uint32_t width;         /* of the vector */
    uint32_t first;         /* instruction that the vector is loaded or stored in place of */
    uint32_t by[WIDTH_MAX]; /* of that instruction: the members */
} access;

typedef struct vectors {
    pass_edit *e;
    affine *at;       /* [n_code] of the index */
    access *accesses; /* [n_code] */
} vectors;

static void add_term(affine *a, ir_id value, uint32_t factor) {
    uint32_t i = 0;
    while (i < a->n && a->terms[i].value < value) i++;
    if (i < a->n && a->terms[i].value == value) {
        a->terms[i].factor += factor;
        return;
    }
    if (a->n == TERMS_MAX) {
        a->known = false;
        return;
    }
    memmove(&a->terms[i + 1], &a->terms[i], (a->n - i) * sizeof a->terms[0]);
    a->terms[i].value = value;
    a->terms[i].factor = factor;
    a->n++;
}

static void add_value(const pass_edit *e, affine *a, ir_id id, uint32_t factor, uint32_t depth) {
    const ir_instruction *i = pass_at(e, id);
    uint32_t c;
    if (i->type != IR_U32 || i->width != 1) a->known = false;
    else if (pass_const(e->in->code, id, &c)) a->constant += c * factor;
    else if (depth && (i->op == IR_ADD || i->op == IR_SUB)) {
        add_value(e, a, i->in[0], factor, depth - 1);
        add_value(e, a, i->in[1], i->op == IR_ADD ? factor : 0 - factor, depth - 1);
    } else if (depth && i->op == IR_MUL && pass_const(e->in->code, i->in[1], &c))
        add_value(e, a, i->in[0], factor * c, depth - 1);
    else if (depth && i->op == IR_MUL && pass_const(e->in->code, i->in[0], &c))
        add_value(e, a, i->in[1], factor * c, depth - 1);
    else if (depth && i->op == IR_SHL && pass_const(e->in->code, i->in[1], &c))
        add_value(e, a, i->in[0], factor << (c & 31), depth - 1);
    else if (depth && i->op == IR_FMA && pass_const(e->in->code, i->in[1], &c)) {
        add_value(e, a, i->in[0], factor * c, depth - 1);
        add_value(e, a, i->in[2], factor, depth - 1);
    } else add_term(a, id, factor);
}

static bool same_terms(const affine *a, const affine *b) {
    if (!a->known || !b->known || a->n != b->n) return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (a->terms[i].value != b->terms[i].value || a->terms[i].factor != b->terms[i].factor)
            return false;
    return true;
}

static bool is_multiple(const pass_edit *e, const affine *a, uint32_t width) {
    if (a->constant % width) return false;
    for (uint32_t i = 0; i < a->n; i++) {
        uint64_t value = pass_multiple(e, e->in->code, a->terms[i].value) % width ? 1 : width;
        if (a->terms[i].factor % width && value != width) {
            uint64_t both =
                (uint64_t)a->terms[i].factor * pass_multiple(e, e->in->code, a->terms[i].value);
            if (both % width) return false;
        }
    }
    return true;
}

static bool is_candidate(const ir_instruction *at) {
    return (at->op == IR_LOAD || at->op == IR_STORE) && at->space != IR_REGISTER && at->width == 1;
}

/* What an access may not be moved over: `of` is the access. */
static bool stands_between(const ir_instruction *between, const ir_instruction *of) {
    uint32_t flags = pass_flags(between);
    if (flags & (IR_OPENS | IR_CLOSES | IR_TOGETHER)) return true;
    if (!(flags & (IR_READS | IR_WRITES))) return false;
    ir_form form = ir_op_of((ir_op)between->op)->form;
    if (form != IR_FORM_LOAD && form != IR_FORM_STORE) return true;
    if (between->space != of->space || between->array != of->array) return false;
    return of->op == IR_STORE || between->op == IR_STORE;
}

/* members[w]: of the vector that begins at `base`'s index, found after i. The window ends where
 * something stands in the way. For stores the vector is stored where its last member is, so nothing
 * may stand between the first and that. */
static bool gather(const vectors *v, uint32_t i, uint32_t base, uint32_t width, uint32_t *members) {
    const pass_edit *e = v->e;
    const ir_instruction *at = pass_at(e, i);
    uint32_t found = 0, low = base;
    memset(members, 0xff, width * sizeof *members);
    for (uint32_t x = i; x < e->in->n_code && x < i + WINDOW && found < width; x++) {
        const ir_instruction *other = pass_at(e, x);
        bool alike = is_candidate(other) && other->op == at->op && other->space == at->space &&
                     other->array == at->array && other->type == at->type &&
                     !v->accesses[x].member && same_terms(&v->at[i], &v->at[x]);
        uint32_t offset = alike ? v->at[x].constant - low : width;
        if (alike && offset < width) {
            if (members[offset] == IR_NO_ID) found++;
            else if (at->op == IR_STORE) return false; /* the place is stored twice */
            if (members[offset] == IR_NO_ID || at->op == IR_STORE) members[offset] = x;
        } else if (x != i && stands_between(other, at)) break;
    }
    return found == width;
}

static void find(vectors *v, uint32_t i) {
    pass_edit *e = v->e;
    const ir_instruction *at = pass_at(e, i);
    uint32_t bytes = ir_type_bytes((ir_type)at->type), members[WIDTH_MAX];
    for (uint32_t width = WIDTH_MAX; width > 1; width /= 2) {
        if (width > e->schedule->vector || width * bytes > 16) continue;
        uint32_t base = v->at[i].constant - v->at[i].constant % width; /* multiples divide 2^32 */
        affine first = v->at[i];
        first.constant = base;
        if (!is_multiple(e, &first, width) || !gather(v, i, base, width, members)) continue;
        uint32_t lead = members[0];
        for (uint32_t m = 1; m < width; m++)
            if (at->op == IR_LOAD ? members[m] < lead : members[m] > lead) lead = members[m];
        for (uint32_t m = 0; m < width; m++) {
            v->accesses[members[m]].member = 1 + m;
            v->accesses[members[m]].width = width;
            v->accesses[members[m]].first = lead;
            v->accesses[lead].by[m] = members[m];
        }
        return;
    }
}

/* The index of the whole vector, from that of member m. */
static ir_id index_of(pass_edit *e, uint32_t i, uint32_t m) {
    return pass_binary(e, IR_SUB, e->map[pass_at(e, i)->in[0]], pass_u32(e, m));
}

static ir_id compose(pass_edit *e, const ir_id *values, uint32_t n) {
    if (e->no_memory || e->too_large) return 0;
    ir_instruction first = e->code[values[0]];
    bool whole = first.op == IR_EXTRACT &&
                 e->code[first.in[0]].width == n; /* of one vector, as it lies there */
    for (uint32_t m = 0; m < n && whole; m++) {
        const ir_instruction *part = &e->code[values[m]];
        whole = part->op == IR_EXTRACT && part->in[0] == first.in[0] && part->imm == m;
    }
    if (whole) return first.in[0];
    ir_instruction c = {.op = IR_COMPOSE, .in = {IR_NO_ID, IR_NO_ID, IR_NO_ID, IR_NO_ID}};
    c.n_in = n > 2 ? 4 : 2;
    for (uint32_t p = 0; p < c.n_in; p++)
        c.in[p] = n > 4 ? compose(e, values + p * (n / c.n_in), n / c.n_in) : values[p];
    if (e->no_memory || e->too_large) return 0;
    c.type = e->code[c.in[0]].type;
    c.width = (uint8_t)n;
    return pass_push(e, c);
}

static void push(vectors *v, uint32_t i) {
    pass_edit *e = v->e;
    const ir_instruction *at = pass_at(e, i);
    access *own = &v->accesses[i];
    ir_memory memory = {.space = at->space, .array = at->array};
    if (!own->member) {
        pass_copy(e, i);
        return;
    }
    if (own->first != i) return; /* a load is done already, a store will be */
    e->changed = true;
    ir_id index = index_of(e, i, own->member - 1);
    if (at->op == IR_STORE) {
        ir_id values[WIDTH_MAX];
        for (uint32_t m = 0; m < own->width; m++) values[m] = e->map[pass_at(e, own->by[m])->in[1]];
        pass_store(e, memory, index, compose(e, values, own->width));
        return;
    }
    ir_id whole = pass_load(e, (ir_type)at->type, own->width, memory, index);
    for (uint32_t m = 0; m < own->width; m++) {
        ir_instruction x = {.op = IR_EXTRACT,
                            .type = at->type,
                            .width = 1,
                            .n_in = 1,
                            .in = {whole, IR_NO_ID, IR_NO_ID, IR_NO_ID},
                            .imm = m};
        e->map[own->by[m]] = pass_push(e, x);
    }
}

beryl_status ir_pass_vector(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule,
                            const ir_kernel **out, beryl_error *error) {
    pass_edit *e = pass_begin(arena, k, schedule);
    vectors v = {.e = e};
    if (e && schedule->vector > 1) {
        v.at = pass_take(e, k->n_code, sizeof *v.at);
        v.accesses = pass_take(e, k->n_code, sizeof *v.accesses);
    }
    if (!v.accesses || !v.at) return pass_end(e, out, error);
    for (uint32_t i = 0; i < k->n_code; i++)
        if (is_candidate(pass_at(e, i))) {
            v.at[i].known = true;
            add_value(e, &v.at[i], pass_at(e, i)->in[0], 1, 12);
        }
    for (uint32_t i = 0; i < k->n_code; i++)
        if (is_candidate(pass_at(e, i)) && v.at[i].known && !v.accesses[i].member) find(&v, i);
    for (uint32_t i = 0; i < k->n_code && !e->no_memory && !e->too_large; i++) push(&v, i);
    return pass_end(e, out, error);
}
