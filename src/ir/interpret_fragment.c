/* interpret_fragment.c - matrix fragments, as interpret.c runs them: elements in order of rows, in
 * every subgroup. */
#include "ir/interpret.h"

/* The elements at the place that operand n says, in subgroup number s; NULL: failed. */
static uint64_t *fragment_at(machine *m, uint32_t number, uint32_t n, uint32_t s, bool reads) {
    const ir_fragment_decl *f = &m->k->fragments[number];
    uint32_t size = m->k->subgroup_size;
    uint64_t place = interpret_operand(m, n, s * size),
             elements = interpret_rows(f) * interpret_columns(f);
    for (m->lane = s * size; m->lane < (s + 1) * size; m->lane++)
        if (interpret_operand(m, n, m->lane) != place)
            interpret_fail(m, "its place differs in the subgroup");
    m->lane = s * size;
    if (place >= f->count)
        interpret_fail(m, "place %llu is outside the %u of fragment %u", (unsigned long long)place,
                       f->count, number);
    if (m->status) return NULL;
    bool *filled = &m->filled[number][s * f->count + place];
    if (reads && !*filled) interpret_fail(m, "reads fragment %u, which is undefined", number);
    *filled = true;
    return m->status ? NULL : m->fragments[number] + (s * f->count + place) * elements;
}

static void fragment_memory(machine *m, uint32_t s) {
    const ir_instruction *i = interpret_at(m);
    bool stores = i->op == IR_FRAGMENT_STORE, transposed = i->imm >> 16 & 1, pairs = i->imm >> 17;
    uint32_t number = i->imm & 0xffff, size = m->k->subgroup_size;
    const ir_fragment_decl *f = &m->k->fragments[number];
    uint64_t *elements = fragment_at(m, number, 0, s, stores);
    area p = interpret_area(m, (ir_space)i->space, i->array);
    uint64_t index = interpret_operand(m, 1, s * size), stride = interpret_operand(m, 2, s * size);
    for (uint32_t lane = s * size; lane < (s + 1) * size; lane++)
        if (interpret_operand(m, 1, lane) != index || interpret_operand(m, 2, lane) != stride)
            interpret_fail(m, "its index or stride differs in the subgroup");
    if (m->status) return;
    for (uint32_t r = 0; r < interpret_rows(f); r++)
        for (uint32_t c = 0; c < interpret_columns(f); c++) {
            uint64_t where = index + (transposed ? c * stride + r
                                      : pairs    ? r / 2 * stride + 2 * c + r % 2
                                                 : r * stride + c);
            uint64_t *element = elements + r * interpret_columns(f) + c;
            if (m->status || !interpret_inside(m, &p, where, 1)) return;
            if (stores) interpret_put(m, &p, where, *element, false);
            else *element = interpret_get(m, &p, where, false);
        }
}

/* One sum of products: floats in double, rounded once; integers wrap. */
static uint64_t product(const ir_fragment_decl *const f[3], const uint64_t *a, const uint64_t *b,
                        uint64_t sum) {
    double total = 0;
    for (uint32_t k = 0; k < f[0]->k; k++)
        total += ir_to_double(f[1]->type, a[k]) * ir_to_double(f[2]->type, b[(size_t)k * f[0]->n]);
    if (ir_type_in(f[0]->type, IR_FLOATS))
        return ir_from_double(f[0]->type, total + ir_to_double(f[0]->type, sum));
    /* at most 256 products of bytes: exact in double */
    uint64_t in[2] = {sum, ir_from_double(f[0]->type, total)};
    return ir_evaluate(IR_ADD, f[0]->type, f[0]->type, in);
}

static void fragment_mma(machine *m, uint32_t s) {
    const ir_fragment_decl *f[3];
    uint64_t *elements[3];
    for (uint32_t n = 0; n < 3; n++) {
        uint32_t number = interpret_at(m)->imm >> 16 * n & 0xffff;
        f[n] = &m->k->fragments[number];
        elements[n] = fragment_at(m, number, n, s, true);
    }
    if (m->status) return;
    for (uint32_t r = 0; r < f[0]->m; r++)
        for (uint32_t c = 0; c < f[0]->n; c++) {
            uint64_t *sum = elements[0] + (size_t)r * f[0]->n + c;
            *sum = product(f, elements[1] + (size_t)r * f[0]->k, elements[2] + c, *sum);
        }
}

/* Every place at once, of factors in workgroup memory; it is done when it begins. */
static void fragment_multiply(machine *m, uint32_t s) {
    const ir_instruction *i = interpret_at(m);
    const uint32_t number = i->imm & 0xffff, size = m->k->subgroup_size,
                   depth = (uint32_t)(i->imm >> 24 & 255) * 16, held = (uint32_t)(i->imm >> 32);
    const ir_fragment_decl *f = &m->k->fragments[number];
    const ir_type type = m->k->workgroups[i->array].type;
    area p = interpret_area(m, IR_WORKGROUP, i->array);
    for (m->lane = s / 4 * 4 * size; m->lane < (s + 1) * size; m->lane++)
        if (interpret_operand(m, 0, m->lane) != interpret_operand(m, 0, s * size) ||
            interpret_operand(m, 1, m->lane) != interpret_operand(m, 1, s * size))
            interpret_fail(m, "an index differs in four subgroups");
    m->lane = s * size;
    for (uint32_t e = 0; e < f->count * f->m * f->n && !m->status; e++) {
        const uint32_t j = e / (f->m * f->n), row = s % 4 * 16 + e / f->n % f->m,
                       column = j * f->n + e % f->n;
        double total = 0;
        const bool fresh = i->imm >> 19 & 1;
        if (!fresh && !m->filled[number][s * f->count + j])
            interpret_fail(m, "reads fragment %u, which is undefined", number);
        for (uint32_t k = 0; k < depth; k++) {
            double product = 1;
            if (i->imm >> 18 & 1) {
                const uint64_t place = interpret_operand(m, 0, m->lane) + k / 16,
                               matrix = s * m->k->fragments[held].count + place;
                if (place >= m->k->fragments[held].count || !m->filled[held][matrix]) {
                    interpret_fail(m, "reads fragment %u, which is undefined", held);
                    return;
                }
                product =
                    ir_to_double(type, m->fragments[held][matrix * 256 + row % 16 * 16 + k % 16]);
            }
            for (uint32_t x = i->imm >> 18 & 1; x < 2; x++) {
                const uint32_t line = x ? column : row;
                const uint64_t where =
                    interpret_operand(m, x, m->lane) +
                    (i->imm >> (16 + x) & 1 ? line / 64 * 64 * depth + 64 * k + line % 64
                                            : 64 * line + k);
                if (m->status || !interpret_inside(m, &p, where, 1)) return;
                product *= ir_to_double(type, interpret_get(m, &p, where, false));
            }
            total += product;
        }
        uint64_t *sum = m->fragments[number] + (uint64_t)s * f->count * f->m * f->n + e;
        *sum = ir_from_double(f->type, fresh ? total : total + ir_to_double(f->type, *sum));
        m->filled[number][s * f->count + j] = true;
    }
}

/* A lane's own pair: get, set. */
static void fragment_pair(machine *m, bool sets) {
    const ir_instruction *i = interpret_at(m);
    const uint32_t number = i->imm & 0xffff, pair = (uint32_t)(i->imm >> 16);
    const ir_fragment_decl *f = &m->k->fragments[number];
    for (uint32_t lane = 0; lane < m->lanes && !m->status; lane++) {
        if (!m->mask[lane]) continue;
        const uint64_t place = interpret_operand(m, 0, lane);
        m->lane = lane;
        if (place >= f->count) {
            interpret_fail(m, "place %llu is outside the %u of fragment %u",
                           (unsigned long long)place, f->count, number);
            return;
        }
        const uint64_t matrix = lane / 32 * f->count + place;
        const uint32_t columns = interpret_columns(f), line = lane % 32 / 4, first = lane % 4 * 2;
        const bool right = f->role == IR_ROLE_B;
        uint64_t *elements = m->fragments[number] + matrix * interpret_rows(f) * columns +
                             (right ? (first + 8 * pair) * columns + line
                                    : (line + 8 * (pair & 1)) * columns + first + pair / 2 * 8);
        if (!sets && !m->filled[number][matrix])
            interpret_fail(m, "reads fragment %u, which is undefined", number);
        if (sets) m->filled[number][matrix] = true;
        for (uint32_t w = 0; w < 2; w++) {
            uint64_t *element = elements + w * (right ? columns : 1);
            if (sets) *element = interpret_value(m, i->in[1], lane)[w];
            else interpret_value(m, m->id, lane)[w] = *element;
        }
    }
}

void interpret_fragment(machine *m) {
    const ir_instruction *i = interpret_at(m);
    uint32_t size = m->k->subgroup_size;
    if (i->op == IR_FRAGMENT_GET || i->op == IR_FRAGMENT_SET) {
        fragment_pair(m, i->op == IR_FRAGMENT_SET);
        return;
    }
    for (uint32_t s = 0; s < m->lanes / size && !m->status; s++) {
        if (i->op == IR_FRAGMENT_MMA) {
            fragment_mma(m, s);
        } else if (i->op == IR_FRAGMENT_MULTIPLY) {
            fragment_multiply(m, s);
        } else if (i->op == IR_FRAGMENT_FILL) {
            const ir_fragment_decl *f = &m->k->fragments[i->array];
            uint64_t *elements = fragment_at(m, i->array, 0, s, false);
            uint64_t bits = interpret_operand(m, 1, s * size);
            for (uint32_t lane = s * size; lane < (s + 1) * size; lane++)
                if (interpret_operand(m, 1, lane) != bits)
                    interpret_fail(m, "its value differs in the subgroup");
            for (uint32_t n = 0; elements && n < interpret_rows(f) * interpret_columns(f); n++)
                elements[n] = bits;
        } else {
            fragment_memory(m, s);
        }
    }
}
