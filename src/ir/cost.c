/* cost.c - how long a scheduled kernel should take, by counting.
 *
 * Owns a model of a GPU in a few numbers: what a compute unit does in a cycle (arithmetic, words of
 * workgroup memory, bytes of buffers), and how long one lane's chain takes. Trip counts come from
 * the parameters; a bound that nobody knows counts as 16 turns. The time is that of the busiest
 * resource, or of the chain where there are too few groups to hide it. Refuses to be exact: caches
 * are one constant. */
#include "ir/cost.h"

#include <math.h>
#include <string.h>

#include "base/error.h"

/* of one compute unit, in a cycle */
static const double lanes_a_cycle = 128, words_a_cycle = 32, bytes_a_cycle = 40,
                    fragment_flop_a_cycle = 2048;
static const double clock_rate = 1.5e9, barrier_cycles = 30, load_cycles = 400, unknown_turns = 16;
enum {
    RESIDENT_LANES = 2048,
    REGISTER_WORDS = 65536,
    LANE_WORDS_MAX = 224,
    WARP = 32,
    SECTOR = 32
};

typedef struct count {
    const ir_kernel *k;
    double *value; /* [n_code] of u32 values in lane 0 of group 0; NaN: not known */
    double *along; /* [n_code] how it changes from lane to lane along x; NaN: not known */
    ir_cost *cost;
    double cycles, shared_cycles, fragment_flop,
        chain; /* of one lane; of one lane; of a group; of one lane */
} count;

static double number(const count *c, const ir_instruction *i, uint32_t a, bool along) {
    return i->in[a] == IR_NO_ID ? 0 : along ? c->along[i->in[a]] : c->value[i->in[a]];
}

static void evaluate(count *c, uint32_t id, const uint32_t *params) {
    const ir_instruction *i = &c->k->code[id];
    double x = i->n_in > 0 ? number(c, i, 0, false) : 0,
           y = i->n_in > 1 ? number(c, i, 1, false) : 0;
    double dx = i->n_in > 0 ? number(c, i, 0, true) : 0,
           dy = i->n_in > 1 ? number(c, i, 1, true) : 0;
    double v = (double)NAN, d = 0;
    for (uint32_t a = 0; a < i->n_in; a++)
        if (number(c, i, a, true) != 0) d = (double)NAN;
    switch ((int)i->op) {
    case IR_CONST: v = i->type == IR_U32 ? (double)i->imm : (double)NAN; break;
    case IR_PARAM: v = i->type == IR_U32 ? params[i->array] : (double)NAN; break;
    case IR_GROUP: v = 0; break;
    case IR_GROUPS: v = 1; break;
    case IR_LOCAL: v = 0, d = i->imm == 0; break;
    case IR_LOOP: v = x, d = dx; break;
    case IR_ADD: v = x + y, d = dx + dy; break;
    case IR_SUB: v = x - y, d = dx - dy; break;
    case IR_MUL:
        v = x * y, d = dx == 0 ? (dy == 0 ? 0 : dy * x) : dy == 0 ? dx * y : (double)NAN;
        break;
    case IR_FMA:
        v = x * y + number(c, i, 2, false), d = (dx == 0 ? dy * x : dx * y) + number(c, i, 2, true);
        break;
    case IR_SHL:
        v = ldexp(x, (int)((uint64_t)(y > 0 ? y : 0) & 31)),
        d = ldexp(dx, (int)((uint64_t)(y > 0 ? y : 0) & 31));
        break;
    case IR_SHR: v = floor(ldexp(x, -(int)((uint64_t)(y > 0 ? y : 0) & 31))); break;
    case IR_DIV: v = y > 0 ? floor(x / y) : 0; break;
    case IR_MOD: v = y > 0 ? fmod(x, y) : 0, d = dx; break;
    case IR_AND:
        d = dx;
        if (x >= 0 && x < 4294967296.0 && y >= 0 && y < 4294967296.0) v = (uint32_t)x & (uint32_t)y;
        break;
    case IR_MIN: v = fmin(x, y), d = dx != 0 ? dx : dy; break;
    case IR_MAX: v = fmax(x, y), d = dx != 0 ? dx : dy; break;
    }
    /* Sums with a large constant are differences: they wrap. */
    if (v >= 4294967296.0) v -= 4294967296.0;
    c->value[id] = v;
    c->along[id] = d;
}

/* Bytes that move for one lane, as neighbours along x share them. */
static double moved(double along, double bytes, double element) {
    if (along == 0) return bytes / WARP;
    if (isnan(along) || fabs(along) * element > bytes) return bytes > SECTOR ? bytes : SECTOR;
    return bytes;
}

static double arithmetic(const ir_instruction *i) {
    double each = ir_type_in((ir_type)i->type, 1 << IR_F64 | 1 << IR_I64 | 1 << IR_U64) ? 16 : 1;
    ir_exact exact = ir_op_of((ir_op)i->op)->exact;
    if (i->op == IR_CONST || i->op == IR_PARAM || i->op == IR_EXTRACT || i->op == IR_COMPOSE ||
        i->op == IR_SPLAT)
        return 0;
    if (i->op == IR_DIV || i->op == IR_DIV_NORMAL || i->op == IR_MOD) each *= 10;
    else if (exact == IR_LOOSE) each *= 20;
    else if (exact == IR_NEAR && i->op != IR_FMA) each *= 4;
    return each * i->width;
}

static void add(count *c, uint32_t id, double times) {
    const ir_instruction *i = &c->k->code[id];
    ir_form form = ir_op_of((ir_op)i->op)->form;
    double element = ir_type_bytes((ir_type)i->type), bytes = element * i->width;
    bool memory = form == IR_FORM_LOAD || form == IR_FORM_STORE || form == IR_FORM_ATOMIC;
    if (memory && i->space == IR_BUFFER) {
        double touched = moved(number(c, i, 0, true), bytes, element) * times;
        if (form == IR_FORM_LOAD) c->cost->loaded += touched;
        else c->cost->stored += touched;
        c->cycles += times;
        c->chain +=
            form == IR_FORM_LOAD ? times * load_cycles / 8 : times; /* several are under way */
    } else if (memory && i->space == IR_WORKGROUP) {
        double words = bytes < 4 ? 1 : bytes / 4, along = number(c, i, 0, true), conflict = 1;
        if (along == 0) words /= 8; /* one word for all; a few rows of lanes stand in a warp */
        else if (!isnan(along))
            while (conflict < 16 && fmod(fabs(along) * element / 4, conflict * 2) == 0 &&
                   along * element / 4 >= 2)
                conflict *= 2;
        if (i->width > 1) conflict = conflict > i->width ? conflict / i->width : 1;
        c->shared_cycles += words * conflict * times;
        c->cost->shared += words * times;
        c->chain += times * 4;
    } else if (form == IR_FORM_FRAGMENT_MMA) {
        const ir_fragment_decl *f = &c->k->fragments[i->imm & 0xffff];
        c->fragment_flop += 2.0 * f->m * f->n * f->k * times * ir_lanes(c->k) / c->k->subgroup_size;
        c->chain += 4 * times;
    } else if (form == IR_FORM_FRAGMENT_MULTIPLY) {
        const ir_fragment_decl *f = &c->k->fragments[i->imm & 0xffff];
        const double flop = 2.0 * f->m * f->n * f->k * f->count * (double)(i->imm >> 24 & 255);
        c->fragment_flop +=
            flop * times * ir_lanes(c->k) / c->k->subgroup_size / 2; /* as fast again */
        c->chain += 4 * times;
    } else if (form == IR_FORM_FRAGMENT_LOAD || form == IR_FORM_FRAGMENT_STORE) {
        const ir_fragment_decl *f = &c->k->fragments[i->imm & 0xffff];
        c->shared_cycles += 16.0 * f->k * ir_type_bytes(f->type) / 4 / c->k->subgroup_size * times;
        c->chain += 4 * times;
    } else if (form == IR_FORM_COPY_ASYNC) {
        c->cost->loaded += (double)(i->imm >> 16) * times;
        c->shared_cycles += (double)(i->imm >> 16) / 4 * times;
        c->cycles += times;
    } else if ((ir_op_of((ir_op)i->op)->flags & IR_BARS)) {
        c->cost->barriers += times;
        c->chain += barrier_cycles * times;
    } else if (ir_has_result(i)) {
        double work = arithmetic(i) * times;
        c->cycles += work;
        c->cost->operations += work;
        c->chain += work * 2;
    }
}

static double turns_of(const count *c, const ir_instruction *loop) {
    double from = number(c, loop, 0, false), to = number(c, loop, 1, false),
           step = number(c, loop, 2, false);
    if (ir_mark_of(loop).kind == IR_BY_GROUP) return 1;
    if (isnan(from) || isnan(to) || !(step > 0)) return unknown_turns;
    return to > from ? ceil((to - from) / step) : 0;
}

static void finish(count *c, const device_caps *caps) {
    const ir_kernel *k = c->k;
    ir_cost *cost = c->cost;
    double lanes = ir_lanes(k), units = caps->compute_units ? caps->compute_units : 16, bytes = 0;
    for (uint32_t w = 0; w < k->n_workgroup; w++)
        bytes += (double)k->workgroups[w].count * ir_type_bytes(k->workgroups[w].type);
    for (uint32_t r = 0; r < k->n_register; r++)
        cost->registers += (double)k->registers[r].count * ir_type_bytes(k->registers[r].type) / 4;
    for (uint32_t f = 0; f < k->n_fragment; f++) {
        const ir_fragment_decl *at = &k->fragments[f];
        uint32_t size = at->role == IR_ROLE_A   ? at->m * at->k
                        : at->role == IR_ROLE_B ? at->k * at->n
                                                : at->m * at->n;
        cost->registers +=
            (double)size * at->count * ir_type_bytes(at->type) / 4 / k->subgroup_size;
    }
    bool fits = (!caps->workgroup_bytes || bytes <= caps->workgroup_bytes) &&
                (!caps->workgroup_invocations || lanes <= caps->workgroup_invocations);
    for (uint32_t a = 0; a < 3; a++)
        if (caps->workgroup_size[a] && k->workgroup[a] > caps->workgroup_size[a]) fits = false;
    double words = 40 + cost->registers, spill = cost->registers > LANE_WORDS_MAX ? 4 : 1;
    double resident = fmin(RESIDENT_LANES / lanes, REGISTER_WORDS / (words * lanes));
    if (bytes > 0)
        resident =
            fmin(resident, 4.0 * (caps->workgroup_bytes ? caps->workgroup_bytes : 49152) / bytes);
    if (resident < 1) resident = 1;
    double group = c->cycles * lanes / lanes_a_cycle * spill; /* the busiest of a unit's parts */
    group = fmax(group, c->shared_cycles * lanes / words_a_cycle);
    group = fmax(group, (cost->loaded + cost->stored) * lanes / bytes_a_cycle);
    group = fmax(group, c->fragment_flop / fragment_flop_a_cycle);
    group += cost->barriers * barrier_cycles / resident;
    double busy = group * cost->groups / units,
           waves = ceil(cost->groups / (units * floor(resident)));
    if (cost->groups < units) busy = group;
    cost->seconds =
        fits ? fmax(busy, waves * (c->chain * spill + load_cycles)) / clock_rate : HUGE_VAL;
    cost->operations *= lanes * cost->groups;
    cost->loaded *= lanes * cost->groups;
    cost->stored *= lanes * cost->groups;
    cost->shared *= lanes * cost->groups;
}

beryl_status ir_cost_of(base_heap *heap, const ir_kernel *k, const device_caps *caps,
                        const uint32_t *params, const uint32_t *given, ir_cost *cost,
                        beryl_error *error) {
    double times[IR_DEPTH_MAX + 2] = {1};
    uint32_t depth = 0, groups[3];
    size_t n = k->n_code ? k->n_code : 1;
    *cost = (ir_cost){0};
    double *memory = base_heap_take(heap, n * 2 * sizeof *memory);
    if (!memory) return base_fail(error, BERYL_NO_MEMORY, "no memory to estimate a kernel");
    count c = {.k = k, .value = memory, .along = memory + n, .cost = cost};
    ir_grid grid;
    ir_grid_of(k, &grid);
    ir_grid_run(&grid, params, caps->groups_max, groups);
    if (given) memcpy(groups, given, sizeof groups);
    cost->groups = (double)groups[0] * groups[1] * groups[2];
    for (uint32_t id = 0; id < k->n_code; id++) {
        const ir_instruction *i = &k->code[id];
        evaluate(&c, id, params);
        if (i->op == IR_END) depth--;
        else if (i->op == IR_LOOP || i->op == IR_IF) {
            times[depth + 1] = times[depth] * (i->op == IR_LOOP ? turns_of(&c, i) : 1);
            depth++;
        } else add(&c, id, times[depth]);
    }
    finish(&c, caps);
    base_heap_give(heap, memory, n * 2 * sizeof *memory);
    return BERYL_OK;
}
