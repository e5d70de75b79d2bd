/* fragment_find.c - which loops are a product of matrices that matrix units take, and how their
 * factors lie (ir/pass/fragment.c). */
#include "ir/pass/fragment_inside.h"

#include "base/build.h"

enum { SLICE_MAX = 400 };

/* The loop's only inner block is one loop, with values before and after; its id, or IR_NO_ID. */
static uint32_t inner_loop(const pass_edit *e, uint32_t outer, ir_mark_kind kind) {
    uint32_t found = IR_NO_ID;
    for (uint32_t i = outer + 1; i < e->close[outer]; i++) {
        const ir_instruction *at = pass_at(e, i);
        if (at->op == IR_LOOP && ir_mark_of(at).kind == kind && found == IR_NO_ID) {
            found = i;
            i = e->close[i];
        } else if (kind == IR_PARALLEL && !(pass_flags(at) & IR_PURE) && at->op != IR_LOAD)
            return IR_NO_ID;
        else if (at->op == IR_LOOP && ir_mark_of(at).kind == kind) return IR_NO_ID;
    }
    return found;
}

/* A step of 1, bounds that are known before loop m. */
static bool is_plain(const product *p, uint32_t loop) {
    const pass_edit *e = p->e;
    uint32_t step, from;
    const ir_instruction *at = pass_at(e, loop);
    if (!pass_const(e->in->code, at->in[2], &step) || step != 1) return false;
    if (!pass_const(e->in->code, at->in[0], &from) || from) return false;
    return at->in[1] < p->m || pass_at(e, at->in[1])->op == IR_CONST;
}

/* What a factor is made of: values before the loops, k, loads of what nobody writes; on = the one
 * loop index beside k that it may depend on. */
static bool walk(product *p, ir_id id, const pass_buffers *buffers, uint32_t *on) {
    const ir_instruction *at = pass_at(p->e, id);
    if (id == p->k || id < p->m || p->seen[id] == p->stamp) return true;
    p->seen[id] = p->stamp;
    if (id == p->m || id == p->n) {
        bool fits = *on == IR_NO_ID || *on == id;
        *on = id;
        return fits;
    }
    bool load = at->op == IR_LOAD && at->space == IR_BUFFER && !buffers->written[at->array];
    bool pure = (pass_flags(at) & IR_PURE) && ir_has_result(at);
    if ((!load && !pure) || ++p->steps > SLICE_MAX) return false;
    uint32_t parent = p->e->parent[id]; /* what is inside an if may not be read everywhere */
    if (parent != p->k && parent != p->n && parent != p->m) return false;
    for (uint32_t a = 0; a < at->n_in; a++)
        if (at->in[a] != IR_NO_ID && !walk(p, at->in[a], buffers, on)) return false;
    return true;
}

static bool factor(product *p, ir_id id, const pass_buffers *buffers, side *s) {
    const ir_instruction *at = pass_at(p->e, id);
    uint32_t on = IR_NO_ID;
    if (at->op != IR_CAST || at->type != IR_F32 || at->width != 1) return false;
    s->value = at->in[0];
    ir_type type = (ir_type)pass_at(p->e, s->value)->type;
    if (type != IR_F16 && type != IR_BF16) return false;
    p->stamp++;
    p->steps = 0;
    if (!walk(p, s->value, buffers, &on) || on == IR_NO_ID || s->value < p->k) return false;
    s->loop = on;
    return true;
}

/* The reduction's body: acc = fma(x, y, acc), or acc + x * y, and what x and y are made of. */
static bool find_sum(product *p, const pass_buffers *buffers) {
    const pass_edit *e = p->e;
    uint32_t store = IR_NO_ID, place, again;
    for (uint32_t i = p->k + 1; i < e->close[p->k]; i++) {
        const ir_instruction *at = pass_at(e, i);
        if (at->op == IR_STORE && store == IR_NO_ID && at->space == IR_REGISTER) store = i;
        else if (at->op != IR_LOAD && !(pass_flags(at) & IR_PURE)) return false;
    }
    if (store == IR_NO_ID || !pass_const(e->in->code, pass_at(e, store)->in[0], &place))
        return false;
    p->array = pass_at(e, store)->array;
    const ir_instruction *sum = pass_at(e, pass_at(e, store)->in[1]);
    ir_id x, y, old;
    if (sum->op == IR_FMA) x = sum->in[0], y = sum->in[1], old = sum->in[2];
    else if (sum->op == IR_ADD) {
        uint32_t left = pass_at(e, sum->in[0])->op == IR_MUL ? 0 : 1;
        const ir_instruction *both = pass_at(e, sum->in[left]);
        if (both->op != IR_MUL) return false;
        x = both->in[0], y = both->in[1], old = sum->in[1 - left];
    } else return false;
    const ir_instruction *load = pass_at(e, old);
    if (sum->type != IR_F32 || sum->width != 1 || load->op != IR_LOAD ||
        load->space != IR_REGISTER || old < p->k || load->array != p->array ||
        !pass_const(e->in->code, load->in[0], &again) || place != again)
        return false;
    for (uint32_t i = p->k + 1; i < e->close[p->k]; i++) /* the sum is read once */
        if (pass_at(e, i)->op == IR_LOAD && pass_at(e, i)->space == IR_REGISTER && i != old)
            return false;
    if (!factor(p, x, buffers, &p->a) || !factor(p, y, buffers, &p->b)) return false;
    if (p->a.loop == p->n) {
        side swap = p->a;
        p->a = p->b, p->b = swap;
    }
    p->type = (ir_type)pass_at(e, p->a.value)->type;
    return p->a.loop == p->m && p->b.loop == p->n &&
           p->type == (ir_type)pass_at(e, p->b.value)->type;
}

static void size_side(side *s, const ir_schedule_dim *dim, uint32_t unit, uint32_t axis) {
    s->warps = dim->lanes ? dim->lanes : 1;
    s->each = dim->block ? dim->block : 1;
    s->unit = unit;
    s->size = s->warps * s->each * unit;
    s->axis = axis;
}

uint32_t fragment_strip_stride(const product *p) {
    return p->strip * COLUMNS + PAD;
}

uint32_t fragment_line_stride(const product *p, const side *s) {
    return p->direct ? LINE : (s->across ? s->size : p->depth) + PAD;
}

uint32_t fragment_tile_size(const product *p, const side *s) {
    if (p->direct) return s->size * p->depth;
    return (s->across ? p->depth : s->size) * fragment_line_stride(p, s);
}

static uint64_t tile_bytes(const product *p) {
    uint64_t strip = (uint64_t)p->a.warps * p->b.warps * ROWS * fragment_strip_stride(p);
    return (uint64_t)p->slots * (fragment_tile_size(p, &p->a) + fragment_tile_size(p, &p->b)) * 2 +
           strip * 4;
}

/* y = x + more, as numbers or as what computes it (x = y - more, which passes write as a sum)? */
static bool is_more(const pass_edit *e, ir_id y, ir_id x, uint32_t more) {
    const ir_instruction *code = e->in->code, *sum = &code[x];
    uint32_t a, b, c;
    if (pass_const(code, x, &a) && pass_const(code, y, &b)) return a + more == b;
    if (!more) return x == y;
    return sum->op == IR_ADD && sum->in[0] == y && pass_const(code, sum->in[1], &c) &&
           c + more == 0;
}

/* The id in the reduction that is k below s->split, or, rest, from there on: min(k, split - 1),
 * max(k, split). IR_NO_ID: there is none. */
static ir_id find_turn(const product *p, const side *s, bool rest) {
    const pass_edit *e = p->e;
    for (uint32_t i = p->k + 1; i < e->close[p->k]; i++) {
        const ir_instruction *at = pass_at(e, i);
        if (at->op == (rest ? IR_MAX : IR_MIN) && at->in[0] == p->k &&
            is_more(e, s->split, at->in[1], !rest))
            return i;
    }
    return IR_NO_ID;
}

/* Does the value depend on k other than by `turn`? */
static bool knows_k(product *p, ir_id id, ir_id turn) {
    if (id == p->k) return true;
    if (id == turn || id < p->k || p->seen[id] == p->stamp) return false;
    p->seen[id] = p->stamp;
    const ir_instruction *at = pass_at(p->e, id);
    for (uint32_t a = 0; a < at->n_in; a++)
        if (at->in[a] != IR_NO_ID && knows_k(p, at->in[a], turn)) return true;
    return false;
}

/* The loads that the factor is. */
static void find_loads(product *p, side *s) {
    const pass_edit *e = p->e;
    const ir_instruction *at = pass_at(e, s->value);
    s->n_load = at->op == IR_LOAD;
    s->load[0] = s->value, s->turn[0] = p->k;
    if (at->op != IR_SELECT) return;
    const ir_instruction *below = pass_at(e, at->in[0]);
    if (below->op != IR_LT || below->in[0] != p->k) return;
    s->split = below->in[1];
    if (s->split > p->m && pass_at(e, s->split)->op != IR_CONST) return;
    for (uint32_t i = 0; i < 2; i++) {
        s->load[i] = at->in[1 + i];
        s->turn[i] = find_turn(p, s, i);
        p->stamp++;
        if (pass_at(e, s->load[i])->op != IR_LOAD || s->turn[i] == IR_NO_ID ||
            knows_k(p, pass_at(e, s->load[i])->in[0], s->turn[i]))
            return;
    }
    s->n_load = 2;
}

/* How it lies in memory, and whether its tiles are whole pieces of 16 bytes. */
static void look_at_memory(product *p, side *s) {
    const pass_edit *e = p->e;
    const ir_instruction *row = pass_at(e, s->loop), *k = pass_at(e, p->k);
    s->across = s->copied = false;
    find_loads(p, s);
    if (!s->n_load) return;
    uint64_t along = 0, across = 0;
    for (uint32_t i = 0; i < s->n_load; i++) { /* of both the same */
        const ir_id at = pass_at(e, s->load[i])->in[0];
        const uint64_t own = pass_multiple_beside(e, at, s->turn[i]);
        if (i && (!own || own % PIECE)) along = 0;
        if (!i) along = own;
    }
    if (s->n_load == 1 && !along)
        across = pass_multiple_beside(e, pass_at(e, s->value)->in[0], s->loop);
    s->across = across;
    const ir_instruction *line = across ? row : k; /* along which pieces lie */
    s->copied = (along | across) % PIECE == 0 && (along | across) &&
                (s->n_load == 1 || pass_multiple(e, e->in->code, s->split) % PIECE == 0) &&
                pass_count_multiple(e, e->in->code, line->in[0], line->in[1], PIECE);
}

/* Whether there is room, perhaps for fewer results or tiles at a time. */
static bool fits(product *p) {
    const uint64_t limit =
        p->e->schedule->workgroup_bytes ? p->e->schedule->workgroup_bytes : 16384;
    p->strip = p->b.each;
    while (p->strip % 2 == 0 && tile_bytes(p) > limit) p->strip /= 2;
    if (tile_bytes(p) > limit && !(p->a.copied && p->b.copied)) p->slots = 1;
    return (uint64_t)p->subgroup * p->a.warps * p->b.warps <= IR_LANES_MAX && p->a.each <= 16 &&
           (p->direct || p->b.each <= 16) && tile_bytes(p) <= limit;
}

bool fragment_find(product *p) {
    pass_edit *e = p->e;
    const ir_schedule *s = e->schedule;
    pass_buffers buffers = pass_buffers_of(e, 0, e->in->n_code);
    uint32_t lanes = ir_lanes(e->in);
    if (p->outer != IR_NO_ID) {
        p->m = inner_loop(e, p->outer, IR_PARALLEL);
        if (e->parent[p->outer] != IR_NO_ID ||
            s->dims[ir_mark_of(pass_at(e, p->outer)).dim].group != 1 + OUTER_AXIS)
            return false;
    }
    if (p->m == IR_NO_ID || ir_mark_of(pass_at(e, p->m)).kind != IR_PARALLEL ||
        e->parent[p->m] != p->outer || lanes != 1)
        return false;
    p->n = inner_loop(e, p->m, IR_PARALLEL);
    p->k = p->n == IR_NO_ID ? IR_NO_ID : inner_loop(e, p->n, IR_REDUCE);
    if (p->k == IR_NO_ID || e->parent[p->k] != p->n || !is_plain(p, p->m) || !is_plain(p, p->n) ||
        (p->outer != IR_NO_ID && !is_plain(p, p->outer)) || !is_plain(p, p->k))
        return false;
    if (!find_sum(p, &buffers)) return false;
    for (uint32_t i = 0; i < e->in->n_code; i++) {
        const ir_instruction *at = pass_at(e, i);
        if (pass_is_effect(at) && !pass_inside(e, i, p->n)) return false;
        if (at->op == IR_GROUP || at->op == IR_GROUPS || at->op == IR_LOCAL) return false;
    }
    if (pass_is_closed(e) || pass_loads_written(e, p->m)) return false;
    size_side(&p->a, &s->dims[ir_mark_of(pass_at(e, p->m)).dim], ROWS, 1);
    size_side(&p->b, &s->dims[ir_mark_of(pass_at(e, p->n)).dim], COLUMNS, 0);
    const ir_schedule_dim *along = &s->dims[ir_mark_of(pass_at(e, p->k)).dim];
    p->depth = along->stage < DEPTH ? DEPTH : along->stage / DEPTH * DEPTH;
    look_at_memory(p, &p->a), look_at_memory(p, &p->b);
    p->slots = along->unroll > 1 && along->unroll <= 8 ? along->unroll : 1;
    if (p->slots > 2 && !(p->a.copied && p->b.copied)) p->slots = 2;
    uint32_t k;
    p->once = p->slots > 1 && p->a.copied && p->b.copied &&
              pass_const(e->in->code, pass_at(e, p->k)->in[1], &k) && k <= p->depth;
    p->subgroup = s->subgroup;
    p->direct = false;
    p->rounds = s->rounds;
    if (s->direct && p->a.each == 1 && p->b.warps == 1 && p->a.warps % WARPS == 0) {
        p->direct = p->slots > 2 && p->b.each <= 32 && p->depth == LINE &&
                    !(p->a.across && p->a.size % LINE) && !(p->b.across && p->b.size % LINE);
        if (p->direct && fits(p)) return true;
        if (p->rounds) return false;
        if (p->b.each % WARPS) return false; /* the same tile, in blocks of each subgroup */
        p->direct = false;
        p->a.warps /= WARPS, p->a.each = WARPS;
        p->b.warps = WARPS, p->b.each /= WARPS;
    }
    if (p->once) p->slots = 1;
    return !p->rounds && fits(p);
}
