/* tell.c - what all lanes load alike is loaded once, by a lane each.
 *
 *     a = x[i]  b = x[j] ...     ->     own = x[i in lane 0, j in lane 1 ...]
 *                                       a = broadcast own, 0   b = broadcast own, 1 ...
 *
 * For devices that load lane by lane, also where all lanes read one address. Owns loads of buffers
 * that the kernel does not write, in straight code that all lanes run, with the same index in all
 * of them: as many at a time as a subgroup has lanes. Refuses workgroups that are not whole
 * subgroups, elements of other than 32 bits, and indices that cannot be computed before the first
 * of the loads. */
#include "ir/pass/edit.h"

#include "base/build.h"

enum { WINDOW = 512, DEPTH_MAX = 12, LANES_MOST = 32 };

typedef struct telling {
    pass_edit *e;
    const uint8_t *lanes; /* [n_code] */
    bool *done;           /* [n_code] already pushed */
    const bool *written;  /* [n_buffer] */
    uint32_t n;           /* lanes of a subgroup */
} telling;

static bool is_candidate(const telling *t, uint32_t i) {
    const ir_instruction *at = pass_at(t->e, i);
    const uint32_t parent = t->e->parent[i];
    return at->op == IR_LOAD && !at->imm && at->space == IR_BUFFER && !t->written[at->array] &&
           !t->done[i] && ir_type_bytes((ir_type)at->type) == 4 &&
           pass_at(t->e, at->in[0])->type == IR_U32 && !t->lanes[at->in[0]] &&
           (parent == IR_NO_ID || !t->lanes[parent]);
}

/* The value is there before instruction i, or can be computed there. */
static bool is_early(const telling *t, ir_id id, uint32_t i, uint32_t depth) {
    const ir_instruction *at = pass_at(t->e, id);
    if (id < i || t->done[id]) return true;
    if (!depth || !(pass_flags(at) & IR_PURE) || !ir_has_result(at)) return false;
    for (uint32_t a = 0; a < at->n_in; a++)
        if (at->in[a] != IR_NO_ID && !is_early(t, at->in[a], i, depth - 1)) return false;
    return true;
}

static void push_early(telling *t, ir_id id, uint32_t i) {
    const ir_instruction *at = pass_at(t->e, id);
    if (id < i || t->done[id]) return;
    for (uint32_t a = 0; a < at->n_in; a++)
        if (at->in[a] != IR_NO_ID) push_early(t, at->in[a], i);
    pass_copy(t->e, id);
    t->done[id] = true;
}

/* The loads that begin with i, as many as there are lanes. */
static bool gather(const telling *t, uint32_t i, uint32_t members[LANES_MOST]) {
    const ir_instruction *first = pass_at(t->e, i);
    uint32_t n = 0;
    for (uint32_t x = i; x < t->e->in->n_code && x < i + WINDOW && n < t->n; x++) {
        const ir_instruction *at = pass_at(t->e, x);
        if (pass_flags(at) & (IR_OPENS | IR_CLOSES)) return false;
        if (is_candidate(t, x) && at->array == first->array && at->type == first->type &&
            at->width == first->width && is_early(t, at->in[0], i, DEPTH_MAX))
            members[n++] = x;
    }
    return n == t->n;
}

/* What all indices are sums with; IR_NO_ID: nothing. */
static ir_id common(const telling *t, const uint32_t *members) {
    for (uint32_t a = 0; a < 2; a++) {
        ir_id shared = IR_NO_ID;
        uint32_t n = 0;
        for (; n < t->n; n++) {
            const ir_instruction *index = pass_at(t->e, pass_at(t->e, members[n])->in[0]);
            if (index->op != IR_ADD) return IR_NO_ID;
            if (!n) shared = index->in[a];
            if (index->in[0] != shared && index->in[1] != shared) break;
        }
        if (n == t->n) return shared;
    }
    return IR_NO_ID;
}

static void push_told(telling *t, uint32_t i, const uint32_t *members) {
    pass_edit *e = t->e;
    const ir_instruction *first = pass_at(e, i);
    const ir_id shared = common(t, members),
                lane =
                    pass_push(e, (ir_instruction){.op = IR_SUBGROUP_LANE,
                                                  .type = IR_U32,
                                                  .width = 1,
                                                  .in = {IR_NO_ID, IR_NO_ID, IR_NO_ID, IR_NO_ID}});
    ir_id own = IR_NO_ID;
    for (uint32_t m = 0; m < t->n; m++) {
        ir_id part = pass_at(e, members[m])->in[0];
        push_early(t, part, i);
        if (shared != IR_NO_ID) {
            const ir_instruction *index = pass_at(e, part);
            part = index->in[0] == shared ? index->in[1] : index->in[0];
        }
        part = e->map[part];
        if (m) {
            const ir_instruction chosen = {
                .op = IR_SELECT,
                .type = IR_U32,
                .width = 1,
                .n_in = 3,
                .in = {pass_binary(e, IR_EQ, lane, pass_u32(e, m)), part, own, IR_NO_ID}};
            part = pass_push(e, chosen);
        }
        own = part;
    }
    if (shared != IR_NO_ID) own = pass_binary(e, IR_ADD, own, e->map[shared]);
    const ir_id loaded = pass_load(e, (ir_type)first->type, first->width,
                                   (ir_memory){.space = IR_BUFFER, .array = first->array}, own);
    for (uint32_t m = 0; m < t->n; m++) {
        const ir_instruction told = {.op = IR_SUBGROUP_BROADCAST,
                                     .type = first->type,
                                     .width = first->width,
                                     .n_in = 1,
                                     .in = {loaded, IR_NO_ID, IR_NO_ID, IR_NO_ID},
                                     .imm = m};
        e->map[members[m]] = pass_push(e, told);
        t->done[members[m]] = true;
    }
    e->changed = true;
}

beryl_status ir_pass_tell(base_arena *arena, const ir_kernel *k, const ir_schedule *schedule,
                          const ir_kernel **out, beryl_error *error) {
    const uint32_t n = schedule->subgroup;
    *out = k;
    if (BUILD_IS_MODULE || !schedule->tells || n < 2 || n > LANES_MOST || ir_lanes(k) % n ||
        (k->subgroup_size && k->subgroup_size != n))
        return BERYL_OK;
    pass_edit *e = pass_begin(arena, k, schedule);
    if (!e) return pass_end(e, out, error);
    const pass_buffers buffers = pass_buffers_of(e, 0, k->n_code);
    telling t = {.e = e,
                 .lanes = pass_lanes(e),
                 .done = pass_take(e, k->n_code, sizeof(bool)),
                 .written = buffers.written,
                 .n = n};
    for (uint32_t i = 0; t.done && t.lanes && i < k->n_code && !e->no_memory && !e->too_large;
         i++) {
        uint32_t members[LANES_MOST];
        if (t.done[i]) continue;
        if (is_candidate(&t, i) && gather(&t, i, members)) push_told(&t, i, members);
        else pass_copy(e, i);
    }
    if (e->changed) e->out.subgroup_size = n;
    return pass_end(e, out, error);
}
