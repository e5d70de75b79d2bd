/* block.c - several neighbouring iterations of a parallel loop at once, in registers.
 *
 *     loop m = 0, n, 1 parallel        loop m = 0, n, B parallel
 *         acc[0] = 0                       loop r = 0, B block { acc[r] = 0 }
 *         loop k ...              ->       loop k ... loop r = 0, B block { acc[r] += x[m + r, k] }
 * end acc[0] += x[m, k]            loop r = 0, B block { y[m + r] = acc[r] } end end y[m] = acc[0]
 *     end
 *
 * Owns marked loops of step 1 whose dimension asks for a block. Inner loops whose bounds do not
 * depend on m run once for all; what lies between them becomes chunks, each in a small loop over
 * the block, which `unroll` turns into registers side by side. Register arrays written inside get a
 * copy for each r. A value that a later chunk needs is computed there again, or kept in an array of
 * its own where it was loaded. At a ragged edge indices are clamped to the last iteration and
 * stores are guarded. Refuses loops with barriers, ragged edges of loops that read what they write,
 * and loops around loops that groups or lanes already share. */
#include "ir/pass/edit.h"

typedef struct block {
    pass_edit *e;
    uint32_t loop, size;
    bool exact;
    bool *varies;    /* [n_code] depends on the iteration, or must be done for each */
    bool *needed;    /* [n_code] by the chunk that is being pushed, from outside it */
    uint32_t *chunk; /* [n_code] number of the chunk, 0: none */
    uint16_t *kept;  /* [n_code] 1 + register array that keeps the value for other chunks */
    uint32_t strides[IR_ARRAY_MAX]; /* of expanded arrays; 0: not expanded */
    uint32_t n_chunk;
    ir_id first, r, inside; /* new: index of the block, place in it, whether that is an iteration */
} block;

static bool is_pure(const ir_instruction *i) {
    return (pass_flags(i) & IR_PURE) && ir_has_result(i);
}

/* A loop or if that is run once for the whole block. */
static bool joins(const block *b, uint32_t i) {
    const ir_instruction *at = pass_at(b->e, i);
    return (at->op == IR_LOOP || at->op == IR_IF) && !b->varies[i] &&
           !(at->op == IR_LOOP && ir_mark_of(at).kind == IR_BLOCK);
}

static uint32_t after(const block *b, uint32_t i) {
    const ir_instruction *at = pass_at(b->e, i);
    return (at->op == IR_LOOP || at->op == IR_IF ? b->e->close[i] : i) + 1;
}

static bool prepare(block *b) {
    pass_edit *e = b->e;
    pass_buffers buffers = pass_buffers_of(e, 0, e->in->n_code);
    uint32_t widest[IR_ARRAY_MAX] = {0};
    for (uint32_t i = 0; i < e->in->n_code; i++) {
        const ir_instruction *at = pass_at(e, i);
        if ((at->op == IR_STORE || at->op == IR_LOAD) && at->space == IR_REGISTER &&
            at->width > widest[at->array])
            widest[at->array] = at->width;
    }
    for (uint32_t i = b->loop + 1; i < e->close[b->loop]; i++) {
        const ir_instruction *at = pass_at(e, i);
        ir_mark_kind kind = at->op == IR_LOOP ? ir_mark_of(at).kind : IR_SERIAL;
        if (pass_flags(at) & IR_TOGETHER || at->op == IR_COPY_ASYNC || kind == IR_BY_GROUP ||
            kind == IR_BY_LANE)
            return false;
        if (at->op != IR_STORE || at->space != IR_REGISTER) continue;
        uint32_t count = e->in->registers[at->array].count;
        b->strides[at->array] = widest[at->array] > 1 ? (count + 15) / 16 * 16 : count;
    }
    for (uint32_t a = 0; a < e->in->n_register; a++) {
        uint64_t count = (uint64_t)b->strides[a] * b->size;
        if (count * ir_type_bytes(e->registers[a].type) > IR_REGISTER_BYTES_MAX) return false;
        if (count > e->registers[a].count) e->registers[a].count = (uint32_t)count;
    }
    b->varies[b->loop] = true;
    for (uint32_t i = b->loop + 1; i < e->close[b->loop]; i++) {
        const ir_instruction *at = pass_at(e, i);
        bool varies = !is_pure(at) && at->op != IR_LOAD && at->op != IR_LOOP && at->op != IR_IF;
        if (at->op == IR_LOAD && at->space == IR_REGISTER && b->strides[at->array]) varies = true;
        if (at->op == IR_LOAD && at->space == IR_BUFFER && buffers.written[at->array])
            varies = true;
        for (uint32_t a = 0; a < at->n_in; a++)
            if (at->in[a] != IR_NO_ID && b->varies[at->in[a]]) varies = true;
        b->varies[i] = varies;
    }
    return true;
}

static void count_chunks(block *b, uint32_t first, uint32_t last) {
    b->n_chunk++;
    for (uint32_t i = first; i < last;) {
        uint32_t next = after(b, i);
        if (joins(b, i)) {
            uint32_t middle = b->e->middle[i] == IR_NO_ID ? b->e->close[i] : b->e->middle[i];
            count_chunks(b, i + 1, middle);
            if (middle != b->e->close[i]) count_chunks(b, middle + 1, b->e->close[i]);
            b->n_chunk++;
        } else
            for (uint32_t x = i; x < next; x++) b->chunk[x] = b->n_chunk;
        i = next;
    }
}

/* Notes what chunk c needs from others to have the value d; `keep`: those that are loaded get an
 * array. */
static void need(block *b, ir_id d, uint32_t c, bool keep) {
    if (d <= b->loop || !b->varies[d] || b->chunk[d] == c || b->needed[d]) return;
    const ir_instruction *at = pass_at(b->e, d);
    b->needed[d] = true;
    if (is_pure(at)) {
        for (uint32_t a = 0; a < at->n_in; a++)
            if (at->in[a] != IR_NO_ID) need(b, at->in[a], c, keep);
    } else if (keep && !b->kept[d]) {
        ir_memory m = pass_register(b->e, (ir_type)at->type, b->size * at->width);
        b->kept[d] = (uint16_t)(1 + m.array);
    }
}

static void need_range(block *b, uint32_t first, uint32_t last, bool keep) {
    for (uint32_t i = b->loop + 1; i < last; i++) b->needed[i] = false;
    for (uint32_t i = first; i < last; i++)
        for (uint32_t a = 0; a < pass_at(b->e, i)->n_in; a++)
            if (pass_at(b->e, i)->in[a] != IR_NO_ID)
                need(b, pass_at(b->e, i)->in[a], b->chunk[first], keep);
}

/* Before anything is pushed: every run of statements says what it will need. */
static void find_kept(block *b) {
    pass_edit *e = b->e;
    for (uint32_t i = b->loop + 1; i < e->close[b->loop];) {
        uint32_t last = i;
        while (b->chunk[i] && last < e->close[b->loop] && b->chunk[last] == b->chunk[i]) last++;
        if (last > i) need_range(b, i, last, true);
        i = last > i ? last : i + 1;
    }
}

static void push_one(block *b, uint32_t i) {
    pass_edit *e = b->e;
    const ir_instruction *at = pass_at(e, i);
    bool guarded = !b->exact && pass_is_effect(at);
    bool expanded = (at->op == IR_LOAD || at->op == IR_STORE) && at->space == IR_REGISTER &&
                    b->strides[at->array];
    if (guarded) pass_if(e, b->inside);
    if (expanded) {
        ir_id own = pass_binary(e, IR_MUL, b->r, pass_u32(e, b->strides[at->array]));
        ir_id place = e->map[at->in[0]];
        if (!e->no_memory && !e->too_large &&
            e->code[place].type == IR_U64) { /* an index may be wide */
            ir_instruction narrow = {.op = IR_CAST,
                                     .type = IR_U32,
                                     .width = 1,
                                     .n_in = 1,
                                     .in = {place, IR_NO_ID, IR_NO_ID, IR_NO_ID}};
            place = pass_push(e, narrow);
        }
        ir_id index = pass_binary(e, IR_ADD, own, place);
        ir_instruction moved = *at;
        moved.in[0] = index;
        if (at->op == IR_STORE) moved.in[1] = e->map[at->in[1]];
        e->map[i] = pass_push(e, moved);
    } else pass_copy(e, i);
    if (guarded) pass_close(e);
    if (!b->kept[i]) return;
    ir_id place = pass_binary(e, IR_MUL, b->r, pass_u32(e, at->width));
    pass_store(e, (ir_memory){.space = IR_REGISTER, .array = (uint16_t)(b->kept[i] - 1)}, place,
               e->map[i]);
}

static void push_chunk(block *b, uint32_t first, uint32_t last) {
    pass_edit *e = b->e;
    ir_mark mark = {.kind = IR_BLOCK, .dim = ir_mark_of(pass_at(e, b->loop)).dim, .tile = b->size};
    ir_id to = e->map[pass_at(e, b->loop)->in[1]];
    b->r =
        pass_loop(e, pass_u32(e, 0), pass_u32(e, b->size), pass_u32(e, 1), ir_mark_bits(mark, 0));
    ir_id index = pass_binary(e, IR_ADD, b->first, b->r);
    if (!b->exact) {
        b->inside = pass_binary(e, IR_LT, index, to);
        index = pass_binary(e, IR_MIN, index, pass_binary(e, IR_SUB, to, pass_u32(e, 1)));
    }
    e->map[b->loop] = index;
    need_range(b, first, last, false);
    for (uint32_t d = b->loop + 1; d < first; d++) {
        const ir_instruction *at = pass_at(e, d);
        if (!b->needed[d]) continue;
        if (is_pure(at)) pass_copy(e, d);
        else {
            ir_id place = pass_binary(e, IR_MUL, b->r, pass_u32(e, at->width));
            e->map[d] = pass_load(
                e, (ir_type)at->type, at->width,
                (ir_memory){.space = IR_REGISTER, .array = (uint16_t)(b->kept[d] - 1)}, place);
        }
    }
    for (uint32_t i = first; i < last;) {
        uint32_t next = after(b, i);
        if (b->varies[i] || next > i + 1)
            for (uint32_t x = i; x < next; x++) push_one(b, x);
        i = next;
    }
    pass_close(e);
}

static void push_range(block *b, uint32_t first, uint32_t last) {
    pass_edit *e = b->e;
    for (uint32_t i = first; i < last && !e->no_memory && !e->too_large;) {
        if (joins(b, i)) {
            uint32_t end = e->close[i], middle = e->middle[i] == IR_NO_ID ? end : e->middle[i];
            pass_copy(e, i);
            push_range(b, i + 1, middle);
            if (middle != end) {
                pass_copy(e, middle);
                push_range(b, middle + 1, end);
            }
            pass_close(e);
            i = end + 1;
            continue;
        }
        uint32_t next = i;
        bool work = false;
        for (; next < last && !joins(b, next); next = after(b, next)) {
            const ir_instruction *at = pass_at(e, next);
            bool control = at->op == IR_LOOP || at->op == IR_IF;
            if (!control && !b->varies[next]) pass_copy(e, next);
            else if (control || !is_pure(at)) work = true;
        }
        if (work) push_chunk(b, i, next);
        i = next;
    }
}

/* The innermost loop that is still to be blocked. */
static uint32_t next_loop(const pass_edit *e, uint32_t below) {
    for (uint32_t i = below; i-- > 0;) {
        const ir_instruction *at = pass_at(e, i);
        if (at->op != IR_LOOP) continue;
        ir_mark mark = ir_mark_of(at);
        uint32_t step, size = e->schedule->dims[mark.dim].block;
        if (mark.kind == IR_PARALLEL && size > 1 && !(mark.tile && mark.tile < size) &&
            pass_const(e->in->code, at->in[2], &step) && step == 1)
            return i;
    }
    return IR_NO_ID;
}

/* Blocks one loop; *below: where to look next. */
static beryl_status one_loop(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule,
                             uint32_t *below, const ir_kernel **out, beryl_error *error) {
    pass_edit *e = pass_begin(arena, k, schedule);
    block *b = e ? pass_take(e, 1, sizeof *b) : NULL;
    if (!b) return pass_end(e, out, error);
    b->e = e;
    b->loop = next_loop(e, *below);
    b->varies = pass_take(e, k->n_code, sizeof *b->varies);
    b->needed = pass_take(e, k->n_code, sizeof *b->needed);
    b->chunk = pass_take(e, k->n_code, sizeof *b->chunk);
    b->kept = pass_take(e, k->n_code, sizeof *b->kept);
    *below = b->loop == IR_NO_ID ? 0 : b->loop;
    if (e->no_memory || b->loop == IR_NO_ID) return pass_end(e, out, error);
    const ir_instruction *at = pass_at(e, b->loop);
    ir_mark mark = ir_mark_of(at);
    b->size = schedule->dims[mark.dim].block;
    if (!prepare(b)) return pass_end(e, out, error);
    count_chunks(b, b->loop + 1, e->close[b->loop]);
    find_kept(b);
    b->exact = pass_count_multiple(e, k->code, at->in[0], at->in[1], b->size) ||
               (mark.full && mark.tile % b->size == 0);
    if (!b->exact && pass_loads_written(e, b->loop)) return pass_end(e, out, error);
    pass_copy_range(e, 0, b->loop);
    if (!e->no_memory && !e->too_large) {
        ir_id from = e->map[at->in[0]], to = e->map[at->in[1]];
        mark.exact = b->exact;
        b->first = pass_loop(e, from, to, pass_u32(e, b->size), ir_mark_bits(mark, 0));
        push_range(b, b->loop + 1, e->close[b->loop]);
    }
    pass_copy_range(e, e->close[b->loop], k->n_code);
    e->changed = true;
    return pass_end(e, out, error);
}

beryl_status ir_pass_block(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule,
                           const ir_kernel **out, beryl_error *error) {
    beryl_status status = BERYL_OK;
    *out = k;
    for (uint32_t below = k->n_code; below && !status;)
        status = one_loop(arena, *out, schedule, &below, out, error);
    return status;
}
