/* stage.c - what several lanes read in a reduction, brought to workgroup memory first.
 *
 *     loop k = 0, n, 1 reduce           loop o = 0, n, S
 *         x = f(a[row(y), k])               all lanes: tile[kk, r] = f(a[row r, o + kk])
 *         acc = acc + x * ..      ->        barrier
 *     end                                   loop kk = 0, min(S, n - o), 1 reduce { x = tile[kk,
 * r(y)]; ... } barrier end
 *
 * Owns values that are computed from loads of buffers that the kernel does not write, that depend
 * on k and on some of the lanes' axes, not all: lanes that differ in another axis alone would all
 * load them. What is kept is the last such value of a chain, so a weight is dequantised once. r
 * counts the lanes of the axes it depends on, and the block loops; the code of the value is copied
 * with those in place of the lane's own. A long block loop counts in two digits, the lanes between
 * them: neighbouring lanes then read neighbouring vectors, which lie in different banks. Tiles that
 * are loaded ahead have two places in workgroup memory if there is room, so that one barrier a turn
 * is enough. Refuses reductions that the lanes of a workgroup do not
 * run together, and tiles without room. */
#include "ir/pass/edit.h"

#include <string.h>

enum { TILES_MAX = 8, DIGITS_MAX = 8, SLICE_MAX = 400, NO_FACTOR = -1, LOW = 4 };

typedef struct digit {
    bool is_axis;
    uint32_t axis, loop; /* loop: a block loop inside the reduction */
    uint32_t size, unit; /* the loop's index is the sum of its digits times their units */
} digit;

typedef struct tile {
    ir_id value;
    digit digits[DIGITS_MAX]; /* the last one runs fastest */
    uint32_t n, rows, stride; /* stride: elements from one k to the next */
    bool k_first;             /* neighbours in k are neighbours in memory */
    ir_memory memory, held;   /* held: the next tile's part of a lane, where it is loaded ahead */
    uint32_t wide, turns;
} tile;

typedef enum way { WHOLE_WAY, TO_REGISTERS, FROM_REGISTERS } way;

typedef struct stage {
    pass_edit *e;
    uint32_t loop, depth; /* the reduction; how many of its turns a tile holds */
    bool exact;           /* all tiles are whole */
    bool ahead;           /* a tile is loaded while the one before it is used */
    uint32_t slots;       /* places of each tile */
    const bool *uniform;
    bool written[IR_BUFFER_MAX];
    uint32_t *seen; /* [n_code] stamp of the walk that has been there */
    ir_id *cloned;  /* [n_code] its copy in this fill */
    bool *can;      /* [n_code] a value that may be staged */
    uint32_t stamp, steps;
    tile tiles[TILES_MAX];
    uint32_t n;
} stage;

static bool is_leaf(const stage *s, ir_id id) {
    return id < s->loop && s->uniform[id];
}

/* Walks what a value is made of. Gathers what it depends on; false: it may not be copied. */
static bool walk(stage *s, ir_id id, tile *t, bool *by_k, bool *loads) {
    const ir_instruction *at = pass_at(s->e, id);
    if (id == s->loop) *by_k = true;
    if (id == s->loop || is_leaf(s, id) || s->seen[id] == s->stamp) return true;
    s->seen[id] = s->stamp;
    if (++s->steps > SLICE_MAX) return false;
    if (at->op == IR_LOOP) {
        uint32_t from, to, step;
        if (ir_mark_of(at).kind != IR_BLOCK || id < s->loop || t->n == DIGITS_MAX) return false;
        if (!pass_const(s->e->in->code, at->in[0], &from) ||
            !pass_const(s->e->in->code, at->in[1], &to) ||
            !pass_const(s->e->in->code, at->in[2], &step) || from || step != 1 || !to)
            return false;
        t->digits[t->n++] = (digit){.loop = id, .size = to, .unit = 1};
        return true;
    }
    if (at->op == IR_LOCAL) {
        if (t->n == DIGITS_MAX) return false;
        for (uint32_t d = 0; d < t->n; d++)
            if (t->digits[d].is_axis && t->digits[d].axis == at->imm) return true;
        t->digits[t->n++] = (digit){.is_axis = true,
                                    .axis = (uint32_t)at->imm,
                                    .size = s->e->in->workgroup[at->imm],
                                    .unit = 1};
        return true;
    }
    bool load = at->op == IR_LOAD && at->space == IR_BUFFER && !s->written[at->array];
    bool pure = (pass_flags(at) & IR_PURE) && ir_has_result(at) && at->op != IR_SUBGROUP_LANE;
    if (!load && !pure) return false;
    if (load) *loads = true;
    for (uint32_t a = 0; a < at->n_in; a++)
        if (at->in[a] != IR_NO_ID && !walk(s, at->in[a], t, by_k, loads)) return false;
    return true;
}

/* A product and a sum of what fits 32 bits, where that does too. */
static int64_t factor_within(int64_t a, uint32_t b, int64_t c) {
    const uint64_t all = (uint64_t)a * b + (uint64_t)c;
    return all <= UINT32_MAX ? (int64_t)all : NO_FACTOR;
}

/* How far the value goes when k goes by one; NO_FACTOR: not known, or too far. */
static int64_t factor_of(const stage *s, ir_id id, uint32_t depth) {
    const ir_instruction *at = pass_at(s->e, id);
    uint32_t c;
    if (id == s->loop) return 1;
    if (id < s->loop || at->op == IR_CONST || at->op == IR_LOOP) return 0;
    if (!depth || (!(pass_flags(at) & IR_PURE) && at->op != IR_LOAD)) return NO_FACTOR;
    int64_t in[4] = {0};
    bool any = false;
    for (uint32_t a = 0; a < at->n_in; a++) {
        in[a] = factor_of(s, at->in[a], depth - 1);
        if (in[a] == NO_FACTOR) return NO_FACTOR;
        if (in[a]) any = true;
    }
    if (!any) return 0;
    if (at->op == IR_ADD) return factor_within(in[0], 1, in[1]);
    if (at->op == IR_MUL && pass_const(s->e->in->code, at->in[1], &c))
        return factor_within(in[0], c, 0);
    if (at->op == IR_FMA && pass_const(s->e->in->code, at->in[1], &c))
        return factor_within(in[0], c, in[2]);
    if (at->op == IR_FMA && !in[0] && !in[1]) return in[2];
    return NO_FACTOR;
}

static uint32_t rank_of(const digit *d) {
    return d->is_axis ? 1 : d->unit > 1 ? 0 : 2;
}

/* Order: upper digits of block loops, axes z y x, then block loops from the outermost: so what a
 * lane loads as a vector lies side by side. */
static void sort_digits(tile *t) {
    bool lanes = false;
    for (uint32_t d = 0; d < t->n; d++) lanes = lanes || t->digits[d].is_axis;
    for (uint32_t d = 0, n = t->n; d < n && lanes && t->n < DIGITS_MAX; d++) {
        digit *own = &t->digits[d];
        if (own->is_axis || own->size <= LOW || own->size % LOW) continue;
        t->digits[t->n++] = (digit){.loop = own->loop, .size = own->size / LOW, .unit = LOW};
        own->size = LOW;
    }
    for (uint32_t i = 1; i < t->n; i++)
        for (uint32_t j = i; j > 0; j--) {
            digit *a = &t->digits[j - 1], *b = &t->digits[j];
            bool wrong = rank_of(a) == rank_of(b)
                             ? (a->is_axis ? a->axis < b->axis : a->loop > b->loop)
                             : rank_of(a) > rank_of(b);
            if (!wrong) break;
            digit swap = *a;
            *a = *b, *b = swap;
        }
}

static bool shares(const stage *s, const tile *t) {
    for (uint32_t axis = 0; axis < 3; axis++) {
        bool used = s->e->in->workgroup[axis] == 1;
        for (uint32_t d = 0; d < t->n; d++)
            if (t->digits[d].is_axis && t->digits[d].axis == axis) used = true;
        if (!used) return true;
    }
    return false;
}

/* Around the value, within the reduction, there are block loops alone. */
static bool is_sure(const stage *s, ir_id id) {
    for (uint32_t p = s->e->parent[id]; p != s->loop; p = s->e->parent[p])
        if (p == IR_NO_ID || pass_at(s->e, p)->op != IR_LOOP ||
            ir_mark_of(pass_at(s->e, p)).kind != IR_BLOCK)
            return false;
    return true;
}

static bool describe(stage *s, ir_id id, tile *t) {
    const ir_instruction *at = pass_at(s->e, id);
    bool by_k = false, loads = false;
    bool number = ir_has_result(at) && at->width == 1 && ir_type_in((ir_type)at->type, IR_NUMBERS);
    if (!number || at->op == IR_LOOP || !is_sure(s, id)) return false;
    *t = (tile){.value = id, .rows = 1};
    s->stamp++;
    s->steps = 0;
    if (!walk(s, id, t, &by_k, &loads) || !by_k || !loads || !shares(s, t)) return false;
    sort_digits(t);
    uint64_t rows = 1;
    for (uint32_t d = 0; d < t->n; d++) {
        rows *= t->digits[d].size;
        if (rows > 4096) return false;
    }
    t->rows = (uint32_t)rows;
    return true;
}

/* The values whose user is not such a value itself. */
static bool find_tiles(stage *s) {
    pass_edit *e = s->e;
    uint32_t end = e->close[s->loop];
    uint64_t bytes = 0, limit = e->schedule->workgroup_bytes ? e->schedule->workgroup_bytes : 16384;
    s->n = 0;
    for (uint32_t w = 0; w < e->out.n_workgroup; w++)
        bytes += (uint64_t)e->workgroups[w].count * ir_type_bytes(e->workgroups[w].type);
    for (uint32_t i = s->loop + 1; i < end; i++) {
        tile t;
        s->can[i] = describe(s, i, &t);
    }
    for (uint32_t i = s->loop + 1; i < end; i++) {
        bool last = false;
        for (uint32_t u = i + 1; s->can[i] && u < end && !last; u++)
            for (uint32_t a = 0; a < pass_at(e, u)->n_in; a++)
                if (pass_at(e, u)->in[a] == i && !s->can[u]) last = true;
        if (!last || s->n == TILES_MAX || !describe(s, i, &s->tiles[s->n])) continue;
        tile *t = &s->tiles[s->n];
        int64_t factor = 0;
        /* the first load along k that it is made of */
        for (uint32_t x = s->loop + 1; x <= i && !factor; x++)
            if (s->seen[x] == s->stamp && pass_at(e, x)->op == IR_LOAD)
                factor = factor_of(s, pass_at(e, x)->in[0], 16);
        t->k_first = factor == 1 || factor == NO_FACTOR; /* packed: neighbours share a word */
        t->stride =
            t->rows +
            (t->k_first && t->rows > 1 ? 4 : 0); /* so that a column lies in several banks */
        bytes += (uint64_t)t->stride * s->depth * ir_type_bytes((ir_type)pass_at(e, i)->type);
        if (bytes > limit) return false;
        s->n++;
    }
    uint64_t again = 0; /* a second place of each */
    for (uint32_t t = 0; t < s->n; t++)
        again += (uint64_t)s->tiles[t].stride * s->depth *
                 ir_type_bytes((ir_type)pass_at(e, s->tiles[t].value)->type);
    s->slots = s->ahead && bytes + again <= limit ? 2 : 1;
    return s->n > 0;
}

static ir_id digit_value(stage *s, const tile *t, const digit *d) {
    pass_edit *e = s->e;
    bool split = false;
    if (d->is_axis) return pass_axis(e, IR_LOCAL, d->axis);
    for (uint32_t o = 0; o < t->n; o++)
        split = split ||
                (!t->digits[o].is_axis && t->digits[o].loop == d->loop && t->digits[o].unit > 1);
    if (d->unit > 1) return pass_binary(e, IR_DIV, e->map[d->loop], pass_u32(e, d->unit));
    return split ? pass_binary(e, IR_MOD, e->map[d->loop], pass_u32(e, d->size)) : e->map[d->loop];
}

/* A copy of the value's code with values[] for the digits and k. */
static ir_id clone(stage *s, const tile *t, ir_id id, const ir_id *values, ir_id k) {
    pass_edit *e = s->e;
    const ir_instruction *at = pass_at(e, id);
    if (id == s->loop) return k;
    if (is_leaf(s, id)) return e->map[id];
    if (s->seen[id] == s->stamp) return s->cloned[id];
    ir_id made = IR_NO_ID;
    for (uint32_t d = 0; d < t->n; d++)
        if (at->op == IR_LOCAL ? t->digits[d].is_axis && t->digits[d].axis == at->imm
                               : !t->digits[d].is_axis && t->digits[d].loop == id) {
            ir_id part = pass_binary(e, IR_MUL, values[d], pass_u32(e, t->digits[d].unit));
            made = made == IR_NO_ID ? part : pass_binary(e, IR_ADD, made, part);
        }
    if (made == IR_NO_ID) {
        ir_instruction copy = *at;
        for (uint32_t a = 0; a < copy.n_in; a++)
            if (copy.in[a] != IR_NO_ID) copy.in[a] = clone(s, t, copy.in[a], values, k);
        made = pass_push(e, copy);
    }
    s->seen[id] = s->stamp;
    return s->cloned[id] = made;
}

static ir_mark block_mark(const stage *s, uint32_t count) {
    return (ir_mark){
        .kind = IR_BLOCK, .dim = ir_mark_of(pass_at(s->e, s->loop)).dim, .tile = count};
}

static ir_id block_loop(stage *s, uint32_t count) {
    pass_edit *e = s->e;
    return pass_loop(e, pass_u32(e, 0), pass_u32(e, count), pass_u32(e, 1),
                     ir_mark_bits(block_mark(s, count), 0));
}

/* Where the tile's slot begins. */
static ir_id slot_start(stage *s, const tile *t, ir_id slot) {
    return pass_binary(s->e, IR_MUL, slot, pass_u32(s->e, t->stride * s->depth));
}

/* How many neighbours a lane brings at once, and how often. */
static void size_tile(const stage *s, tile *t) {
    const pass_edit *e = s->e;
    uint32_t wide = e->schedule->vector > 8 ? 8 : e->schedule->vector > 1 ? e->schedule->vector : 1;
    uint32_t across = t->k_first ? s->depth : t->n ? t->digits[t->n - 1].size : 1;
    while (wide & (wide - 1) || across % wide) wide--;
    t->wide = wide;
    t->turns = (t->rows * s->depth / wide + ir_lanes(e->in) - 1) / ir_lanes(e->in);
}

/* All lanes bring the tile that begins at k = `outer`: from buffers to workgroup memory, or half of
 * that way with registers in between. */
static void fill(stage *s, tile *t, way along, ir_id outer, ir_id to, ir_id slot) {
    pass_edit *e = s->e;
    ir_id values[DIGITS_MAX] = {0};
    uint32_t wide = t->wide, turns = t->turns;
    uint32_t lanes = ir_lanes(e->in), parts = t->rows * s->depth / wide;
    ir_id part = pass_lane_number(e), round = turns > 1 ? block_loop(s, turns) : pass_u32(e, 0);
    part = pass_binary(e, IR_ADD, pass_binary(e, IR_MUL, round, pass_u32(e, lanes)), part);
    bool ragged = parts % lanes != 0;
    if (ragged) pass_if(e, pass_binary(e, IR_LT, part, pass_u32(e, parts)));
    uint32_t inner = t->k_first ? s->depth / wide : t->rows / wide;
    ir_id fast = pass_binary(e, IR_MOD, part, pass_u32(e, inner)),
          slow = pass_binary(e, IR_DIV, part, pass_u32(e, inner));
    ir_id turn = wide > 1 ? block_loop(s, wide) : pass_u32(e, 0);
    ir_id row = t->k_first ? slow : fast, kk = t->k_first ? fast : slow;
    if (t->k_first)
        kk = pass_binary(e, IR_ADD, pass_binary(e, IR_MUL, kk, pass_u32(e, wide)), turn);
    ir_id rest = row;
    for (uint32_t d = t->n; d-- > 0;) {
        bool last = d + 1 == t->n && !t->k_first;
        uint32_t size = last ? t->digits[d].size / wide : t->digits[d].size;
        values[d] = d ? pass_binary(e, IR_MOD, rest, pass_u32(e, size)) : rest;
        if (d) rest = pass_binary(e, IR_DIV, rest, pass_u32(e, size));
        if (last)
            values[d] =
                pass_binary(e, IR_ADD, pass_binary(e, IR_MUL, values[d], pass_u32(e, wide)), turn);
    }
    if (!t->k_first)
        row = pass_binary(e, IR_ADD, pass_binary(e, IR_MUL, row, pass_u32(e, wide)), turn);
    ir_id held = pass_binary(e, IR_ADD, pass_binary(e, IR_MUL, round, pass_u32(e, wide)), turn),
          value;
    if (along == FROM_REGISTERS)
        value = pass_load(e, (ir_type)pass_at(e, t->value)->type, 1, t->held, held);
    else {
        ir_id k = pass_binary(e, IR_ADD, outer, kk);
        if (!s->exact) k = pass_binary(e, IR_MIN, k, pass_binary(e, IR_SUB, to, pass_u32(e, 1)));
        s->stamp++;
        value = clone(s, t, t->value, values, k);
    }
    ir_id place = pass_binary(e, IR_ADD, pass_binary(e, IR_MUL, kk, pass_u32(e, t->stride)), row);
    place = pass_binary(e, IR_ADD, place, slot_start(s, t, slot));
    if (along == TO_REGISTERS) pass_store(e, t->held, held, value);
    else pass_store(e, t->memory, place, value);
    if (wide > 1) pass_close(e);
    if (ragged) pass_close(e);
    if (turns > 1) pass_close(e);
}

static void fill_all(stage *s, way along, ir_id outer, ir_id to, ir_id slot) {
    for (uint32_t t = 0; t < s->n; t++) fill(s, &s->tiles[t], along, outer, to, slot);
}

static void push(stage *s) {
    pass_edit *e = s->e;
    const ir_instruction *at = pass_at(e, s->loop);
    ir_mark mark = ir_mark_of(at);
    ir_id from = e->map[at->in[0]], to = e->map[at->in[1]], depth = pass_u32(e, s->depth);
    for (uint32_t t = 0; t < s->n; t++) {
        tile *own = &s->tiles[t];
        ir_type type = (ir_type)pass_at(e, own->value)->type;
        size_tile(s, own);
        own->memory = pass_workgroup(e, type, own->stride * s->depth * s->slots);
        if (s->ahead) own->held = pass_register(e, type, own->turns * own->wide);
    }
    const bool two = s->slots > 1;
    ir_id first = pass_u32(e, 0), slot = first, other = first;
    if (s->ahead) {
        pass_if(e, pass_binary(e, IR_LT, from, to));
        fill_all(s, TO_REGISTERS, from, to, first);
        if (two) fill_all(s, FROM_REGISTERS, from, to, first);
        pass_close(e);
    }
    ir_id outer = pass_loop(e, from, to, depth, 0);
    if (two) {
        ir_id turn = pass_binary(e, IR_DIV, pass_binary(e, IR_SUB, outer, from), depth);
        slot = pass_binary(e, IR_AND, turn, pass_u32(e, 1));
        other =
            pass_binary(e, IR_AND, pass_binary(e, IR_ADD, turn, pass_u32(e, 1)), pass_u32(e, 1));
    } else fill_all(s, s->ahead ? FROM_REGISTERS : WHOLE_WAY, outer, to, first);
    pass_barrier(e);
    if (s->ahead) { /* the last tile is loaded once more, for nobody */
        ir_id next = pass_binary(e, IR_ADD, outer, depth);
        if (s->exact) next = pass_binary(e, IR_MIN, next, pass_binary(e, IR_SUB, to, depth));
        fill_all(s, TO_REGISTERS, next, to, first);
    }
    ir_id count =
        s->exact ? depth : pass_binary(e, IR_MIN, pass_binary(e, IR_SUB, to, outer), depth);
    mark.tile = 0;
    mark.full = mark.exact = false;
    ir_id inner = pass_loop(e, pass_u32(e, 0), count, pass_u32(e, 1), ir_mark_bits(mark, 0));
    e->map[s->loop] = pass_binary(e, IR_ADD, outer, inner);
    for (uint32_t i = s->loop + 1; i < e->close[s->loop] && !e->no_memory && !e->too_large; i++) {
        const tile *staged = NULL;
        for (uint32_t t = 0; t < s->n; t++)
            if (s->tiles[t].value == i) staged = &s->tiles[t];
        if (!staged) {
            pass_copy(e, i);
            continue;
        }
        ir_id row = pass_u32(e, 0);
        for (uint32_t d = 0; d < staged->n; d++) {
            row = pass_binary(e, IR_MUL, row, pass_u32(e, staged->digits[d].size));
            row = pass_binary(e, IR_ADD, row, digit_value(s, staged, &staged->digits[d]));
        }
        row = pass_binary(e, IR_ADD, row, slot_start(s, staged, slot));
        ir_id index =
            pass_binary(e, IR_ADD, pass_binary(e, IR_MUL, inner, pass_u32(e, staged->stride)), row);
        e->map[i] = pass_load(e, (ir_type)pass_at(e, i)->type, 1, staged->memory, index);
    }
    pass_close(e);
    if (two) {
        fill_all(s, FROM_REGISTERS, outer, to, other);
        pass_close(e);
        pass_barrier(e); /* what comes next may begin with the same memory */
        return;
    }
    pass_barrier(e);
    pass_close(e);
}

static bool asks(stage *s, uint32_t i) {
    const pass_edit *e = s->e;
    const ir_instruction *at = pass_at(e, i);
    ir_mark mark = ir_mark_of(at);
    uint32_t step;
    if (at->op != IR_LOOP || mark.kind != IR_REDUCE || !s->uniform[i]) return false;
    s->depth = e->schedule->dims[mark.dim].stage;
    s->ahead = e->schedule->dims[mark.dim].ahead;
    if (s->depth < 2 || s->depth > 1024 || !pass_const(e->in->code, at->in[2], &step) || step != 1)
        return false;
    for (uint32_t x = i + 1; x < e->close[i]; x++)
        if (pass_flags(pass_at(e, x)) & IR_TOGETHER || pass_is_effect(pass_at(e, x))) return false;
    s->loop = i;
    s->exact = pass_count_multiple(e, e->in->code, at->in[0], at->in[1], s->depth);
    return find_tiles(s);
}

beryl_status ir_pass_stage(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule,
                           const ir_kernel **out, beryl_error *error) {
    pass_edit *e = ir_lanes(k) > 1 ? pass_begin(arena, k, schedule) : NULL;
    *out = k;
    if (ir_lanes(k) <= 1) return BERYL_OK;
    stage *s = e ? pass_take(e, 1, sizeof *s) : NULL;
    bool *uniform = e ? pass_take(e, k->n_code, sizeof *uniform) : NULL;
    if (s && uniform) {
        ir_uniform(k, uniform);
        s->e = e, s->uniform = uniform;
        s->seen = pass_take(e, k->n_code, sizeof *s->seen);
        s->cloned = pass_take(e, k->n_code, sizeof *s->cloned);
        s->can = pass_take(e, k->n_code, sizeof *s->can);
        pass_buffers buffers = pass_buffers_of(e, 0, k->n_code);
        memcpy(s->written, buffers.written, sizeof s->written);
    }
    for (uint32_t i = 0; e && i < k->n_code && !e->no_memory && !e->too_large; i++) {
        if (!asks(s, i)) {
            pass_copy(e, i);
            continue;
        }
        e->changed = true;
        push(s);
        i = e->close[i];
    }
    beryl_status status = pass_end(e, out, error);
    if (!status && *out != k && ir_verify(arena->heap, *out, NULL)) *out = k;
    return status;
}
