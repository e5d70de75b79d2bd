/* lower_ir_search.c - schedules of kernels with marks: what tuning found, and the search itself (ir/tune.h), which times
 * candidates on the device, each kernel on its own over buffers of the sizes that it has in the plan. */
#include "graph/lower_ir.h"
#include "base/error.h"
#include "base/thread.h"
#include "codegen/codegen.h"
#include "graph/exec.h"
#include "ir/tune.h"

#include <math.h>
#include <string.h>

enum { TIMES = 4, RUNS = 5 };
static const double WARM_SECONDS = 0.3; /* a GPU that was idle takes as long to clock up */

typedef struct searching {
    lower_ir *k;
    const lower_count *counts;
    const ir_schedule *thumb;
    uint32_t params[IR_PARAM_MAX];
    device_buffer buffers[IR_BUFFER_MAX];
    double best, plain; /* seconds: of the fastest, of the rule of thumb */
} searching;

static uint64_t at_bound(const lowering *l, lower_count count) {
    return count.factor * (count.extent ? l->g->extents[count.extent].bound : 1);
}

static void tuning_of(const lower_ir *k, const ir_kernel *plain, const uint64_t *extents, const ir_schedule *thumb, ir_cache *cache, ir_tuning *t) {
    *t = (ir_tuning){.plain = plain, .caps = k->l->caps, .fragments = thumb->fragments, .cache = cache};
    memcpy(t->extents, extents, sizeof t->extents);
    memcpy(t->param_multiple, thumb->param_multiple, sizeof t->param_multiple);
    for (uint32_t i = 0; i < k->n_argument; i++) {
        const lower_ir_argument *a = &k->arguments[i];
        t->params[i] = (uint32_t)at_bound(k->l, a->count);
        if (a->is_float) memcpy(&t->params[i], &a->number, sizeof a->number);
    }
}

void lower_ir_recall(const lower_ir *k, const ir_kernel *plain, const uint64_t extents[IR_DIM_MAX], ir_schedule *schedule) {
    ir_tuning t;
    if (!k->l->store->schedules) return;
    tuning_of(k, plain, extents, schedule, k->l->store->schedules, &t);
    ir_tuned(k->l->store->heap, &t, schedule);
}

/* ---- one candidate ------------------------------------------------------------------------------------------------------------- */

static bool grid_of(const searching *s, const ir_schedule *schedule, uint32_t groups[3]) {
    const uint32_t most = s->k->l->caps->groups_max ? s->k->l->caps->groups_max : 65535;
    for (int i = 0; i < 3; i++) groups[i] = 1;
    for (uint32_t d = 0; d < IR_DIM_MAX; d++) {
        if (!schedule->dims[d].group) continue;
        const uint64_t tile = ir_schedule_tile(schedule, d), n = (at_bound(s->k->l, s->counts[d]) + tile - 1) / tile;
        if (!n || n > most) return false;
        groups[schedule->dims[d].group - 1] = (uint32_t)n;
    }
    return true;
}

static beryl_status run_once(device *d, device_command *commands, const searching *s, uint32_t param_bytes, double *seconds, beryl_error *error) {
    device_ticket ticket;
    uint64_t ns[2];
    uint32_t n = 2;
    const double start = base_time();
    beryl_status status = device_submit(d, &(device_submit_desc){commands, TIMES + 2, s->params, param_bytes}, &ticket, error);
    if (status == BERYL_OK) status = device_wait(d, ticket, error);
    if (status != BERYL_OK) return status;
    *seconds = (base_time() - start) / TIMES;
    const bool stamped = device_stamps(d, ticket, ns, &n, NULL) == BERYL_OK && n == 2 && ns[1] > ns[0];
    if (stamped) *seconds = (double)(ns[1] - ns[0]) * 1e-9 / TIMES;
    device_fetch_drop(d, ticket);
    return BERYL_OK;
}

static beryl_status run(searching *s, device_program program, device_bindings bindings, const uint32_t *groups, uint32_t param_bytes, double *seconds, beryl_error *error) {
    device *d = s->k->l->device;
    graph_exec_search *search = s->k->l->search;
    device_command commands[TIMES + 2] = {{.kind = DEVICE_STAMP}};
    for (int i = 1; i <= TIMES; i++) commands[i] = (device_command){.kind = DEVICE_DISPATCH, .dispatch = {program, bindings, {groups[0], groups[1], groups[2]}, 0}};
    commands[TIMES + 1] = (device_command){.kind = DEVICE_STAMP};
    const double begun = base_time();
    const bool warm = search->warm || device_is_processor(s->k->l->caps);
    double one;
    beryl_status status = run_once(d, commands, s, param_bytes, &one, error);
    while (status == BERYL_OK && !warm && base_time() - begun < WARM_SECONDS) status = run_once(d, commands, s, param_bytes, &one, error);
    search->warm = true;
    *seconds = HUGE_VAL;
    for (int i = 0; status == BERYL_OK && i < RUNS; i++) {
        status = run_once(d, commands, s, param_bytes, &one, error);
        if (status == BERYL_OK && one < *seconds) *seconds = one;
    }
    return status;
}

static beryl_status time_one(void *user, const ir_kernel *scheduled, const ir_schedule *schedule, double *seconds, beryl_error *error) {
    searching *s = user;
    const lowering *l = s->k->l;
    device_program_desc desc;
    device_program program = {0};
    device_bindings made = {0};
    device_binding ranges[IR_BUFFER_MAX] = {{{0}, 0, 0}};
    uint32_t groups[3];
    base_arena arena;
    if (l->search->stopped && l->search->stopped(l->search->user)) return base_fail(error, BERYL_CANCELLED, "the search was stopped");
    if (!grid_of(s, schedule, groups)) return base_fail(error, BERYL_UNSUPPORTED, "a grid larger than the device's");
    base_arena_init(&arena, l->store->heap);
    beryl_status status = codegen_make(&arena, scheduled, l->language, l->caps, &desc, error);
    desc.trusted = true;
    if (status == BERYL_OK) status = device_program_make(l->device, &desc, &program, error);
    while (status == BERYL_OK && (status = device_program_status(l->device, program, error)) == BERYL_PENDING) base_sleep(5e-4), status = BERYL_OK;
    for (uint32_t i = 0; i < s->k->n_place; i++) ranges[i].buffer = s->buffers[i];
    if (status == BERYL_OK) status = device_bindings_make(l->device, program, ranges, s->k->n_place, &made, error);
    if (status == BERYL_OK) status = run(s, program, made, groups, desc.param_bytes, seconds, error);
    if (made.id) device_bindings_drop(l->device, made);
    if (program.id) device_program_drop(l->device, program);
    base_arena_fini(&arena);
    if (status != BERYL_OK) return status;
    if (*seconds < s->best) s->best = *seconds;
    if (!memcmp(schedule, s->thumb, sizeof *schedule)) s->plain = *seconds;
    return BERYL_OK;
}

/* ---- the search ------------------------------------------------------------------------------------------------------------------ */

/* 0: not known. */
static uint64_t bytes_of(const lowering *l, const lower_ir_place *p) {
    if (p->kind == LOWER_IR_SCRATCH) return p->bytes;
    if (p->kind == LOWER_IR_WEIGHTS) return 0;
    const store_tensor *t = lower_stored(l, p->value);
    if (t && t->is_state) return store_state_bytes(l->store, graph_tensor_at(l->g, graph_base_of(l->g, p->value))->stored);
    if (t) return p->shard < t->n_shard ? t->shard[p->shard].layout.bytes : 0;
    const graph_tensor *base = graph_tensor_at(l->g, graph_base_of(l->g, p->value));
    return graph_element_bound(base) * base_type_block_bytes(base->type);
}

static bool make_buffers(searching *s) {
    bool made = true;
    for (uint32_t i = 0; made && i < s->k->n_place; i++) {
        const uint64_t bytes = bytes_of(s->k->l, &s->k->places[i]);
        made = bytes && device_buffer_make(s->k->l->device, (bytes + 15) & ~(uint64_t)15, "search", &s->buffers[i], NULL) == BERYL_OK;
    }
    return made;
}

static bool key_of(const lower_ir *k, const ir_kernel *plain, const uint64_t *extents, uint64_t *key) {
    base_text text;
    base_text_init(&text, k->l->store->heap);
    ir_print(&text, plain);
    const bool made = !text.failed;
    if (made) *key = base_hash(text.data, text.size, base_hash(extents, IR_DIM_MAX * sizeof *extents, 4));
    base_text_fini(&text);
    return made;
}

beryl_status lower_ir_search(lower_ir *k, const ir_kernel *plain, const lower_count counts[IR_DIM_MAX], const uint64_t extents[IR_DIM_MAX], const ir_schedule *thumb,
                             beryl_error *error) {
    graph_exec_search *search = k->l->search;
    ir_schedule found = *thumb;
    ir_tuning t;
    uint64_t key;
    if (!search) return BERYL_OK;
    if (!key_of(k, plain, extents, &key)) return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    for (uint32_t i = 0; i < search->n_done; i++)
        if (search->done[i] == key) return BERYL_OK;
    tuning_of(k, plain, extents, thumb, search->cache, &t);
    if (!search->again && ir_tuned(k->l->store->heap, &t, &found)) return BERYL_OK;
    if (!search->left || search->n_done == GRAPH_SEARCH_MAX) return BERYL_OK;
    search->left--;
    search->done[search->n_done++] = key;
    searching s = {.k = k, .counts = counts, .thumb = thumb, .best = HUGE_VAL, .plain = HUGE_VAL};
    memcpy(s.params, t.params, sizeof s.params);
    t.time = time_one;
    t.user = &s;
    t.n_timed = search->n_timed;
    t.again = search->again;
    base_arena arena;
    base_arena_init(&arena, k->l->store->heap);
    beryl_status status = make_buffers(&s) ? ir_tune(&arena, &t, &found, error) : BERYL_OK; /* no room: as it is */
    for (uint32_t i = 0; i < k->n_place; i++)
        if (s.buffers[i].id) device_buffer_drop(k->l->device, s.buffers[i]);
    base_arena_fini(&arena);
    search->name = k->name;
    search->before = s.plain;
    search->after = s.best;
    return status;
}
