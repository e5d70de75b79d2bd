/* search.c - what tuning found for kernels, and the search itself
 * (ir/tune.h), which times candidates on the device, each kernel or node on its own over buffers
 * of the sizes that it has in the plan. There are two kinds: schedules of kernels with marks,
 * and the numbers that lowerings ask for (tile_choose), for all kernels of a node together.
 *
 * The one idea: a trial. The lowering of a node is run with other numbers, and its kernels are
 * kept instead of becoming steps. What the rules' numbers make is also the key of what was
 * found. */
#include "tile/kernel.h"
#include "base/build.h"
#include "base/error.h"
#include "base/thread.h"
#include "codegen/codegen.h"
#include "ir/cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TIMES_MIN = 4, RUNS = 5, JOBS_MAX = 16, COMMANDS_MAX = 128, POOL_MAX = 64 };
static const double WARM_SECONDS = 0.3; /* a GPU that was idle takes as long to clock up */
static const double RUN_SECONDS = 2e-4; /* of a submit at least, where so many commands fit */

/* A kernel as it is timed. */
typedef struct job {
    const tile_kernel *k;
    const ir_kernel *kernel; /* after the passes */
    uint32_t groups[3];
    device_program program;
    device_bindings made;
} job;

typedef struct pooled {
    tile_place place;
    uint64_t bytes;
    device_buffer buffer;
} pooled;

typedef struct searching {
    lowering *l;
    tile_kernel *k; /* schedules */
    const lower_count *counts;
    const ir_schedule *by_rule;
    const graph_node *node; /* numbers */
    lower_fn *lower;
    uint32_t n, rule[IR_CHOICES_MAX];
    pooled pool[POOL_MAX];
    uint32_t n_pool;
    double best, plain; /* seconds: of the fastest, of the rule of thumb */
} searching;

static searching *searching_open(lowering *l) {
    searching *s = base_heap_take(l->store->heap, sizeof *s);
    if (s) *s = (searching){.l = l, .best = HUGE_VAL, .plain = HUGE_VAL};
    return s;
}

static void searching_close(searching *s) {
    for (uint32_t i = 0; i < s->n_pool; i++)
        if (s->pool[i].bytes) device_buffer_drop(s->l->device, s->pool[i].buffer);
    base_heap_give(s->l->store->heap, s, sizeof *s);
}

static uint64_t at_bound(const lowering *l, lower_count count) {
    return count.factor * (count.extent ? l->g->extents[count.extent].bound : 1);
}

static void params_of(const tile_kernel *k, uint32_t params[IR_PARAM_MAX]) {
    for (uint32_t i = 0; i < k->n_argument; i++) {
        const tile_argument *a = &k->arguments[i];
        params[i] = (uint32_t)at_bound(k->l, a->count);
        if (a->is_float) memcpy(&params[i], &a->number, sizeof a->number);
    }
}

/* ---- buffers --------------------------------------------------------------------------------- */

static graph_value base_of(const lowering *l, graph_value v) {
    return graph_base_of(l->g, v);
}

static bool is_same_place(const lowering *l, const tile_place *a, const tile_place *b) {
    if (a->kind != b->kind || a->kind == TILE_WEIGHTS) return false;
    if (a->kind == TILE_SCRATCH) return a->key == b->key;
    return base_of(l, a->value) == base_of(l, b->value) &&
           (a->kind == TILE_VALUE || a->shard == b->shard);
}

/* 0: not known. */
static uint64_t bytes_of(const lowering *l, const tile_place *p) {
    if (p->kind == TILE_SCRATCH) return p->bytes;
    if (p->kind == TILE_WEIGHTS) {
        uint64_t begin = UINT64_MAX, end = 0;
        for (uint32_t i = 0; i < p->n_weight; i++) {
            const store_shard *s = &lower_stored(l, p->weights[i])->shard[0];
            if (s->offset < begin) begin = s->offset;
            if (s->offset + s->layout.bytes > end) end = s->offset + s->layout.bytes;
        }
        return end > begin ? end - begin : 0;
    }
    const store_tensor *t = lower_stored(l, p->value);
    if (t && t->is_state)
        return store_state_bytes(l->store, graph_tensor_at(l->g, base_of(l, p->value))->stored);
    if (t) return p->shard < t->n_shard ? t->shard[p->shard].layout.bytes : 0;
    const graph_tensor *base = graph_tensor_at(l->g, base_of(l, p->value));
    return graph_element_bound(base) * base_type_block_bytes(base->type);
}

static bool fill_buffer(searching *s, const pooled *p) {
    const tile_place *as = &p->place;
    if (!as->first && !as->step) return true;
    if (p->bytes > SIZE_MAX) return false;
    const size_t bytes = (size_t)p->bytes;
    uint32_t *words = base_heap_take(s->l->store->heap, bytes);
    for (size_t i = 0; words && i < bytes / 4; i++) words[i] = as->first + (uint32_t)i * as->step;
    const bool filled =
        words && device_write(s->l->device, p->buffer, 0, words, bytes / 4 * 4, NULL) == BERYL_OK;
    base_heap_give(s->l->store->heap, words, bytes);
    return filled;
}

/* NULL: no room, or nobody knows how large it is. What is expected there, else zeros, or what a
 * kernel before wrote. */
static const pooled *buffer_of(searching *s, const tile_place *p) {
    pooled *same = NULL;
    const uint64_t bytes = bytes_of(s->l, p);
    for (uint32_t i = 0; !same && i < s->n_pool; i++)
        if (is_same_place(s->l, &s->pool[i].place, p)) same = &s->pool[i];
    if (same && same->bytes >= bytes) return same; /* who reads scratch need not know its size */
    if (!bytes || s->n_pool == POOL_MAX) return NULL;
    if (!same) same = &s->pool[s->n_pool++];
    else device_buffer_drop(s->l->device, same->buffer);
    *same = (pooled){.place = *p, .bytes = bytes};
    if (device_buffer_make(s->l->device, (bytes + 15) & ~(uint64_t)15, "search", &same->buffer,
                           NULL) != BERYL_OK)
        same->bytes = 0;
    return same->bytes && fill_buffer(s, same) ? same : NULL;
}

/* ---- one candidate --------------------------------------------------------------------------- */

static beryl_status run_once(device *d, const device_submit_desc *desc, uint32_t times,
                             double *seconds, beryl_error *error) {
    device_ticket ticket;
    uint64_t ns[2];
    uint32_t n = 2;
    const double start = base_time();
    beryl_status status = device_submit(d, desc, &ticket, error);
    if (status == BERYL_OK) status = device_wait(d, ticket, error);
    if (status != BERYL_OK) return status;
    *seconds = (base_time() - start) / times;
    const bool stamped =
        device_stamps(d, ticket, ns, &n, NULL) == BERYL_OK && n == 2 && ns[1] > ns[0];
    if (stamped) *seconds = (double)(ns[1] - ns[0]) * 1e-9 / times;
    device_fetch_drop(d, ticket);
    return BERYL_OK;
}

/* A stamp, all jobs one after another as often, a stamp. */
static uint32_t fill(device_command *commands, const job *jobs, uint32_t n, uint32_t times) {
    uint32_t at = 0;
    commands[at++] = (device_command){.kind = DEVICE_STAMP};
    for (uint32_t i = 0; i < times * n; i++) {
        const job *j = &jobs[i % n];
        commands[at++] = (device_command){.kind = DEVICE_DISPATCH,
                                          .dispatch = {j->program,
                                                       j->made,
                                                       {j->groups[0], j->groups[1], j->groups[2]},
                                                       i % n * DEVICE_PARAM_ALIGN}};
    }
    commands[at++] = (device_command){.kind = DEVICE_STAMP};
    return at;
}

static beryl_status run(searching *s, const job *jobs, uint32_t n, double *seconds,
                        beryl_error *error) {
    device *d = s->l->device;
    lower_search *search = s->l->search;
    unsigned char params[JOBS_MAX * DEVICE_PARAM_ALIGN] = {0};
    device_command commands[COMMANDS_MAX + 2];
    uint32_t times = TIMES_MIN;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t words[IR_PARAM_MAX] = {0};
        params_of(jobs[i].k, words);
        memcpy(params + i * DEVICE_PARAM_ALIGN, words, jobs[i].k->n_argument * sizeof *words);
    }
    device_submit_desc desc = {commands, fill(commands, jobs, n, times), params,
                               n * DEVICE_PARAM_ALIGN};
    const double begun = base_time();
    const bool warm = search->warm || device_is_processor(s->l->caps);
    double one;
    beryl_status status = run_once(d, &desc, times, &one, error);
    while (status == BERYL_OK && !warm && base_time() - begun < WARM_SECONDS)
        status = run_once(d, &desc, times, &one, error);
    search->warm = true;
    while (status == BERYL_OK && times * 2 * n <= COMMANDS_MAX && times * one < RUN_SECONDS)
        times *= 2;
    desc.n_command = fill(commands, jobs, n, times);
    *seconds = HUGE_VAL;
    for (int i = 0; status == BERYL_OK && i < RUNS; i++) {
        status = run_once(d, &desc, times, &one, error);
        if (status == BERYL_OK && one < *seconds) *seconds = one;
    }
    return status;
}

static beryl_status make(searching *s, base_arena *arena, job *j, beryl_error *error) {
    device_program_desc desc;
    device_binding ranges[IR_BUFFER_MAX] = {{{0}, 0, 0}};
    for (uint32_t i = 0; i < j->k->n_place; i++) {
        const pooled *p = buffer_of(s, &j->k->places[i]);
        if (!p) return base_fail(error, BERYL_UNSUPPORTED, "no buffer for %s", j->k->names[i]);
        ranges[i].buffer = p->buffer;
    }
    beryl_status status = codegen_make(arena, j->kernel, s->l->language, s->l->caps, &desc, error);
    desc.trusted = true;
    if (status == BERYL_OK) status = device_program_make(s->l->device, &desc, &j->program, error);
    while (status == BERYL_OK &&
           (status = device_program_status(s->l->device, j->program, error)) == BERYL_PENDING)
        base_sleep(5e-4), status = BERYL_OK;
    if (status == BERYL_OK)
        status =
            device_bindings_make(s->l->device, j->program, ranges, j->k->n_place, &j->made, error);
    return status;
}

static beryl_status time_jobs(searching *s, job *jobs, uint32_t n, double *seconds,
                              beryl_error *error) {
    const lowering *l = s->l;
    base_arena arena;
    if (l->search->stopped && l->search->stopped(l->search->user))
        return base_fail(error, BERYL_CANCELLED, "the search was stopped");
    base_arena_init(&arena, l->store->heap);
    beryl_status status = BERYL_OK;
    for (uint32_t i = 0; i < n && status == BERYL_OK; i++)
        status = make(s, &arena, &jobs[i], error);
    if (status == BERYL_OK) status = run(s, jobs, n, seconds, error);
    for (uint32_t i = 0; i < n; i++) {
        if (jobs[i].made.id) device_bindings_drop(l->device, jobs[i].made);
        if (jobs[i].program.id) device_program_drop(l->device, jobs[i].program);
    }
    base_arena_fini(&arena);
    if (status == BERYL_OK && *seconds < s->best) s->best = *seconds;
    return status;
}

/* Is it this kernel's or node's turn? It is counted then. */
static bool is_turn(const lowering *l, uint64_t key) {
    lower_search *search = l->search;
    for (uint32_t i = 0; search && i < search->n_done; i++)
        if (search->done[i] == key) return false;
    if (!search || (!search->left && !search->counts) || search->n_done == LOWER_SEARCH_MAX)
        return false;
    search->done[search->n_done++] = key;
    if (search->counts) return false;
    search->left--;
    return true;
}

/* ---- schedules ------------------------------------------------------------------------------- */

static void tuning_of(const tile_kernel *k, const ir_kernel *plain, const uint64_t *extents,
                      const ir_schedule *by_rule, ir_cache *cache, ir_tuning *t) {
    *t = (ir_tuning){
        .plain = plain, .caps = k->l->caps, .fragments = by_rule->fragments, .cache = cache};
    memcpy(t->extents, extents, sizeof t->extents);
    memcpy(t->param_multiple, by_rule->param_multiple, sizeof t->param_multiple);
    params_of(k, t->params);
}

void tile_recall(const tile_kernel *k, const ir_kernel *plain, const uint64_t extents[IR_DIM_MAX],
                 ir_schedule *schedule) {
    ir_tuning t;
    if (!BUILD_HAS_TUNING || !k->l->store->schedules) return;
    tuning_of(k, plain, extents, schedule, k->l->store->schedules, &t);
    ir_tuned(k->l->store->heap, &t, schedule);
}

static bool grid_of(const searching *s, const ir_schedule *schedule, uint32_t groups[3]) {
    const uint32_t most = s->l->caps->groups_max ? s->l->caps->groups_max : 65535;
    for (int i = 0; i < 3; i++) groups[i] = 1;
    for (uint32_t d = 0; d < IR_DIM_MAX; d++) {
        if (!schedule->dims[d].group) continue;
        const uint64_t tile = ir_schedule_tile(schedule, d),
                       n = (at_bound(s->l, s->counts[d]) + tile - 1) / tile;
        if (!n) return false;
        groups[schedule->dims[d].group - 1] = n < most ? (uint32_t)n : most;
    }
    return true;
}

static beryl_status time_schedule(void *user, const ir_kernel *scheduled,
                                  const ir_schedule *schedule, double *seconds,
                                  beryl_error *error) {
    searching *s = user;
    job j = {.k = s->k, .kernel = scheduled};
    if (!grid_of(s, schedule, j.groups))
        return base_fail(error, BERYL_UNSUPPORTED, "a grid of nothing");
    const beryl_status status = time_jobs(s, &j, 1, seconds, error);
    if (status == BERYL_OK && !memcmp(schedule, s->by_rule, sizeof *schedule)) s->plain = *seconds;
    return status;
}

static bool key_of(const tile_kernel *k, const ir_kernel *plain, const uint64_t *extents,
                   uint64_t *key) {
    base_text text;
    base_text_init(&text, k->l->store->heap);
    ir_print(&text, plain);
    const bool made = !text.failed;
    if (made)
        *key = base_hash(text.data, text.size, base_hash(extents, IR_DIM_MAX * sizeof *extents, 4));
    base_text_fini(&text);
    return made;
}

/* won: other numbers than the rule's. */
static void tell(lower_search *search, const char *name, const searching *s, bool won) {
    search->name = name;
    search->before = s->plain;
    search->after = won ? s->best : s->plain;
    search->numbers[0] = 0;
}

beryl_status tile_search(tile_kernel *k, const ir_kernel *plain,
                         const lower_count counts[IR_DIM_MAX], const uint64_t extents[IR_DIM_MAX],
                         const ir_schedule *by_rule) {
    lower_search *search = k->l->search;
    base_heap *heap = k->l->store->heap;
    ir_schedule found = *by_rule;
    ir_tuning t;
    uint64_t key;
    base_arena arena;
    if (!BUILD_HAS_TUNING || !search) return BERYL_OK;
    if (!key_of(k, plain, extents, &key)) return base_no_memory(k->l->error);
    tuning_of(k, plain, extents, by_rule, search->cache, &t);
    if (!search->again && ir_tuned(heap, &t, &found)) return BERYL_OK;
    if (!is_turn(k->l, key)) return BERYL_OK;
    searching *s = searching_open(k->l);
    if (!s) return base_no_memory(k->l->error);
    s->k = k;
    s->counts = counts;
    s->by_rule = by_rule;
    t.time = time_schedule;
    t.user = s;
    t.n_timed = search->n_timed;
    t.again = search->again;
    base_arena_init(&arena, heap);
    const beryl_status status = ir_tune(&arena, &t, &found, k->l->error);
    base_arena_fini(&arena);
    tell(search, k->name, s, memcmp(&found, by_rule, sizeof found) != 0);
    searching_close(s);
    return status;
}

/* ---- numbers of lowerings -------------------------------------------------------------------- */

static uint32_t draw(uint64_t *state, uint32_t n) { /* xorshift64 */
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 32) % n;
}

uint32_t tile_choose_of(lowering *l, const char *name, uint32_t rule, const uint32_t *values,
                        uint32_t n) {
    lower_choices *c = l->choices;
    if (!BUILD_HAS_TUNING || !c || c->n == IR_CHOICES_MAX) return rule;
    const uint32_t at = c->n++;
    uint32_t kept = 0, *own = c->asked[at].values;
    for (uint32_t i = 0; i < n; i++)
        if (values[i] == rule || kept + 1 < IR_KNOB_VALUES_MAX) own[kept++] = values[i];
    c->asked[at].name = name;
    c->asked[at].rule = rule;
    c->asked[at].n = kept;
    if (c->draws) return own[draw(c->draws, kept)];
    if (at >= c->n_given) return rule;
    for (uint32_t i = 0; i < kept; i++)
        if (own[i] == c->given[at]) return own[i];
    c->refused = true;
    return rule;
}

uint32_t tile_choose(lowering *l, const char *name, uint32_t rule, uint32_t least, uint32_t most) {
    enum { FARTHEST = 4 };
    uint32_t n = 0, values[5];
    for (uint32_t over = FARTHEST; over >= 1; over /= 2)
        if (rule % over == 0 && (over == 1 || rule / over >= least)) values[n++] = rule / over;
    for (uint32_t times = 2; times <= FARTHEST; times *= 2)
        if ((uint64_t)rule * times <= most) values[n++] = rule * times;
    return tile_choose_of(l, name, rule, values, n);
}

static void made_drop(lowering *l, lower_choices *c) {
    for (size_t i = 0; i < c->made.count; i++) base_arena_fini(&c->made.data[i].k.arena);
    base_vec_fini(l->store->heap, &c->made);
}

/* Dropped by the caller, also on failure. */
static beryl_status try_numbers(lowering *l, const graph_node *node, lower_fn *lower,
                                const uint32_t *numbers, uint32_t n, lower_choices *c,
                                beryl_error *error) {
    beryl_error *told = l->error;
    *c = (lower_choices){.trial = true, .n_given = n};
    if (n) memcpy(c->given, numbers, n * sizeof *numbers);
    l->choices = c;
    l->error = error;
    const beryl_status status = lower(l, node);
    l->choices = NULL;
    l->error = told;
    return status;
}

static uint32_t class_of(uint64_t n) {
    uint32_t class = 0;
    while (class < 63 && n >> class) class ++;
    return class;
}

static bool choosing_of(const lowering *l, const lower_choices *c, ir_choosing *t) {
    base_text text;
    base_text_init(&text, l->store->heap);
    *t = (ir_choosing){.n = c->n};
    for (size_t i = 0; i < c->made.count; i++) {
        ir_print(&text, c->made.data[i].kernel);
        for (int axis = 0; axis < 3; axis++)
            base_text_print(&text, "|%u", class_of(at_bound(l, c->made.data[i].counts[axis])));
    }
    for (uint32_t i = 0; i < c->n; i++) {
        t->rule[i] = c->asked[i].rule;
        t->knobs[i] = (ir_knob){.at = i, .n = c->asked[i].n};
        memcpy(t->knobs[i].values, c->asked[i].values, sizeof t->knobs[i].values);
        base_text_print(&text, "|%s", c->asked[i].name);
        for (uint32_t v = 0; v < c->asked[i].n; v++)
            base_text_print(&text, " %u", c->asked[i].values[v]);
    }
    base_text_print(&text, "%s|%s|%s|%u", l->caps->backend, l->caps->name, l->caps->driver,
                    l->caps->subgroup_size);
    const bool made = !text.failed;
    if (made) t->key = base_hash(text.data, text.size, 0x6e6f);
    base_text_fini(&text);
    return made;
}

/* The kernels of a trial, after the passes. false: one of them cannot be so. */
static beryl_status jobs_of(searching *s, base_arena *arena, const lower_choices *c, job *jobs,
                            beryl_error *error) {
    const uint64_t most = s->l->caps->groups_max ? s->l->caps->groups_max : 65535;
    if (c->refused || c->made.count > JOBS_MAX)
        return base_fail(error, BERYL_UNSUPPORTED, "numbers that are not to be had");
    beryl_status status = BERYL_OK;
    for (size_t i = 0; i < c->made.count && status == BERYL_OK; i++) {
        const tile_made *m = &c->made.data[i];
        uint64_t n[3];
        jobs[i] = (job){.k = &m->k};
        for (int axis = 0; axis < 3; axis++)
            n[axis] = (at_bound(s->l, m->counts[axis]) + m->per[axis] - 1) / m->per[axis];
        if (n[0] > most && n[1] == 1)
            n[1] = (n[0] + most - 1) / most, n[0] = (n[0] + n[1] - 1) / n[1];
        if (!n[0] || !n[1] || !n[2] || n[0] > most || n[1] > most || n[2] > most)
            return base_fail(error, BERYL_UNSUPPORTED, "a grid larger than the device's");
        for (int axis = 0; axis < 3; axis++) jobs[i].groups[axis] = (uint32_t)n[axis];
        status = ir_optimise(arena, m->kernel, NULL, &jobs[i].kernel, error);
    }
    return status;
}

/* timed: on the device, else by the cost model. */
static beryl_status judge(searching *s, const uint32_t *numbers, bool timed, double *seconds,
                          beryl_error *error) {
    lower_choices c;
    job jobs[JOBS_MAX];
    base_arena arena;
    base_heap *heap = s->l->store->heap;
    base_arena_init(&arena, heap);
    beryl_status status = try_numbers(s->l, s->node, s->lower, numbers, s->n, &c, error);
    if (status == BERYL_OK) status = jobs_of(s, &arena, &c, jobs, error);
    if (status == BERYL_OK && timed)
        status = time_jobs(s, jobs, (uint32_t)c.made.count, seconds, error);
    if (!timed) *seconds = status == BERYL_OK ? 0 : HUGE_VAL;
    for (size_t i = 0; i < c.made.count && !timed && status == BERYL_OK; i++) {
        ir_cost cost;
        uint32_t params[IR_PARAM_MAX] = {0};
        params_of(jobs[i].k, params);
        status = ir_cost_of(heap, jobs[i].kernel, s->l->caps, params, jobs[i].groups, &cost, error);
        *seconds += cost.seconds;
    }
    made_drop(s->l, &c);
    base_arena_fini(&arena);
    return timed || status == BERYL_NO_MEMORY ? status : BERYL_OK;
}

static beryl_status estimate_numbers(void *user, const uint32_t *numbers, double *seconds,
                                     beryl_error *error) {
    return judge(user, numbers, false, seconds, error);
}

static beryl_status time_numbers(void *user, const uint32_t *numbers, double *seconds,
                                 beryl_error *error) {
    searching *s = user;
    const beryl_status status = judge(s, numbers, true, seconds, error);
    if (status == BERYL_OK && !memcmp(numbers, s->rule, s->n * sizeof *numbers))
        s->plain = *seconds;
    return status;
}

static beryl_status search_numbers(lowering *l, const graph_node *node, lower_fn *lower,
                                   const lower_choices *asked, ir_choosing *t, uint32_t *numbers,
                                   beryl_error *error) {
    lower_search *search = l->search;
    searching *s = searching_open(l);
    if (!s) return base_no_memory(error);
    s->node = node;
    s->lower = lower;
    s->n = t->n;
    memcpy(s->rule, t->rule, sizeof s->rule);
    t->estimate = estimate_numbers;
    t->time = time_numbers;
    t->user = s;
    t->n_timed = search->n_timed;
    t->again = search->again;
    t->cache = search->cache;
    const beryl_status status = ir_tune_numbers(l->store->heap, t, numbers, error);
    tell(search, asked->made.count ? asked->made.data[0].k.name : "", s,
         memcmp(numbers, t->rule, t->n * sizeof *numbers) != 0);
    size_t size = 0;
    for (uint32_t i = 0; i < t->n && status == BERYL_OK && size < sizeof search->numbers; i++)
        size += (size_t)snprintf(search->numbers + size, sizeof search->numbers - size, "%s%s %u",
                                 i ? ", " : "", asked->asked[i].name, numbers[i]);
    searching_close(s);
    return status;
}

beryl_status tile_choices_find(lowering *l, const graph_node *node, lower_fn *lower,
                               lower_choices *out) {
    lower_choices asked;
    ir_choosing t;
    beryl_error why = {0};
    *out = (lower_choices){.draws = l->draws};
    if (!BUILD_HAS_TUNING || out->draws || (!l->search && !l->store->schedules)) return BERYL_OK;
    beryl_status status = try_numbers(l, node, lower, NULL, 0, &asked, &why);
    if (status == BERYL_OK && asked.n) {
        bool known = choosing_of(l, &asked, &t);
        if (!known) status = base_no_memory(&why);
        t.cache = l->store->schedules;
        known = known && ir_tuned_numbers(&t, out->given);
        if (status == BERYL_OK && l->search && (!known || l->search->again) && is_turn(l, t.key)) {
            status = search_numbers(l, node, lower, &asked, &t, out->given, &why);
            known = true;
        }
        if (known) out->n_given = t.n;
    }
    made_drop(l, &asked);
    if (status == BERYL_UNSUPPORTED) return BERYL_OK; /* as the lowering itself will say */
    if (status != BERYL_OK && l->error) *l->error = why;
    return status;
}
