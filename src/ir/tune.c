/* tune.c - candidates, their order, the search, and the cache file.
 *
 * Owns the file's form: a head line, then one line an entry: the key, how many numbers, the
 * numbers, a check of all, hexadecimal. The key is a hash of the printed kernels, the classes of
 * their sizes (logarithms) and the device. A line that does not check is left out with a warning
 * and gone when the file is next written; numbers that nobody may choose are a warning where
 * they are asked for; a file with another head counts as empty.
 *
 * The idea: whatever is searched is a row of numbers, some of which are knobs. A schedule is one
 * such row, what a lowering asks for another. */
#include "ir/tune.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "ir/cost.h"

enum {
    CANDIDATES_MAX = 160,
    TIMED_DEFAULT = 12,
    FILE_MAX = 8 << 20,
    FIELDS = 9,
    DUELS = 2,
    NUMBERS = IR_DIM_MAX * FIELDS + 4 /* of a schedule */
};
static const double WIN = 0.98; /* a candidate is better below this part of the rule's time */

static const char head_line[] = "beryl tune 3\n"; /* the number: of what entries mean */

typedef struct entry {
    uint64_t key;
    uint32_t n, numbers[NUMBERS];
} entry;

struct ir_cache {
    base_heap *heap; /* borrowed */
    char *path;      // [path_size], owned
    size_t path_size;
    const beryl_log *log; /* borrowed */
    base_vec(entry) entries;
    bool damaged, told, doubted; /* told: that it cannot be written; doubted: numbers not allowed */
    bool other_version;          /* nothing is wrong with it, and nothing of it is taken */
};

typedef struct candidate {
    uint32_t numbers[NUMBERS];
    double estimate, seconds; /* seconds: timed; HUGE_VAL: not */
} candidate;

/* ---- schedules as numbers -------------------------------------------------------------------- */

static void to_numbers(const ir_schedule *s, uint32_t *numbers) {
    for (uint32_t d = 0; d < IR_DIM_MAX; d++) {
        const ir_schedule_dim *dim = &s->dims[d];
        const uint32_t fields[FIELDS] = {dim->group, dim->lane,  dim->split,
                                         dim->lanes, dim->block, dim->unroll,
                                         dim->stage, dim->ahead, dim->wide};
        memcpy(numbers + d * FIELDS, fields, sizeof fields);
    }
    numbers[NUMBERS - 4] = s->subgroup;
    numbers[NUMBERS - 3] = s->vector;
    numbers[NUMBERS - 2] = s->workgroup_bytes;
    numbers[NUMBERS - 1] = s->fragments | (uint32_t)s->direct << 1 | (uint32_t)s->tells << 2;
}

static bool from_numbers(const uint32_t *numbers, ir_schedule *s) {
    memset(s, 0, sizeof *s);
    for (uint32_t d = 0; d < IR_DIM_MAX; d++) {
        const uint32_t *f = numbers + d * FIELDS;
        if (f[0] > 3 || f[1] > 3 || f[2] > 1 || f[3] > IR_LANES_MAX || f[4] > 256 || f[5] > 256 ||
            f[6] > 4096 || f[7] > 1 || f[8] > 16)
            return false;
        s->dims[d] = (ir_schedule_dim){.group = (uint8_t)f[0],
                                       .lane = (uint8_t)f[1],
                                       .split = f[2],
                                       .lanes = (uint16_t)f[3],
                                       .block = (uint16_t)f[4],
                                       .unroll = (uint16_t)f[5],
                                       .stage = (uint16_t)f[6],
                                       .ahead = f[7],
                                       .wide = (uint8_t)f[8]};
    }
    s->subgroup = numbers[NUMBERS - 4];
    s->vector = numbers[NUMBERS - 3];
    s->workgroup_bytes = numbers[NUMBERS - 2];
    s->fragments = numbers[NUMBERS - 1] & 1;
    s->direct = numbers[NUMBERS - 1] >> 1 & 1;
    s->tells = numbers[NUMBERS - 1] >> 2 & 1;
    return s->subgroup <= 256 && s->vector <= 16 && s->workgroup_bytes <= IR_WORKGROUP_BYTES_MAX;
}

/* ---- the cache ------------------------------------------------------------------------------- */

static bool key_of(base_heap *heap, const ir_tuning *t, uint64_t *key) {
    base_text text;
    base_text_init(&text, heap);
    ir_print(&text, t->plain);
    base_text_print(&text, "%s|%s|%s|%u|%u", t->caps->backend, t->caps->name, t->caps->driver,
                    t->fragments, t->caps->subgroup_size);
    for (uint32_t d = 0; d < IR_DIM_MAX; d++) {
        uint32_t class = 0;
        while (class < 63 && t->extents[d] >> (class + 1)) class ++;
        base_text_print(&text, "|%u", t->extents[d] ? class + 1 : 0);
    }
    bool made = !text.failed;
    if (made) *key = base_hash(text.data, text.size, 0x7475);
    base_text_fini(&text);
    return made;
}

static bool hex(base_view *line, uint64_t *value) {
    size_t i = 0;
    *value = 0;
    for (; i < line->size && i < 17; i++) {
        char c = line->data[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) break;
        *value = *value << 4 | (uint64_t)digit;
    }
    if (!i || i > 16) return false;
    if (i < line->size && line->data[i] == ' ') i++;
    line->data += i;
    line->size -= i;
    return true;
}

static uint64_t check_of(const entry *e) {
    return base_hash(e->numbers, e->n * sizeof *e->numbers, e->key);
}

static bool read_line(base_view line, entry *e) {
    uint64_t value, check;
    if (!hex(&line, &e->key) || !hex(&line, &value) || value > NUMBERS) return false;
    e->n = (uint32_t)value;
    for (uint32_t i = 0; i < e->n; i++) {
        if (!hex(&line, &value) || value > UINT32_MAX) return false;
        e->numbers[i] = (uint32_t)value;
    }
    return hex(&line, &check) && !line.size && check == check_of(e);
}

static void write_line(base_text *text, const entry *e) {
    base_text_print(text, "%016llx %x", (unsigned long long)e->key, e->n);
    for (uint32_t i = 0; i < e->n; i++) base_text_print(text, " %x", e->numbers[i]);
    base_text_print(text, " %016llx\n", (unsigned long long)check_of(e));
}

/* A head line with another number. */
static bool is_other_version(const char *data, size_t size) {
    const size_t name = strcspn(head_line, "0123456789");
    size_t at = name;
    if (size < name || memcmp(data, head_line, name)) return false;
    while (at < size && data[at] >= '0' && data[at] <= '9') at++;
    return at > name && at < size && data[at] == '\n';
}

/* Entries in the file's order, into an empty list. */
static beryl_status read_lines(ir_cache *c, const char *data, size_t size, beryl_error *error) {
    const size_t head = sizeof head_line - 1;
    const bool ours = size >= head && !memcmp(data, head_line, head);
    c->other_version = !ours && is_other_version(data, size);
    c->damaged = !ours && !c->other_version;
    for (size_t at = ours ? head : size; at < size;) {
        const char *end = memchr(data + at, '\n', size - at);
        const base_view line = {data + at, end ? (size_t)(end - data) - at : size - at};
        entry *e = base_vec_add(c->heap, &c->entries);
        if (!e) return base_no_memory(error);
        at += line.size + 1;
        if (end && read_line(line, e)) continue;
        c->damaged = true;
        c->entries.count--;
    }
    return BERYL_OK;
}

static beryl_status read_cache(ir_cache *c, beryl_error *error) {
    char *data = NULL;
    size_t size = 0;
    beryl_error why = {0};
    c->entries.count = 0;
    beryl_status status = base_file_read(c->heap, c->path, FILE_MAX, &data, &size, &why);
    if (status == BERYL_NOT_FOUND) return BERYL_OK;
    if (status) return base_fail(error, status, "%s", why.message);
    status = read_lines(c, data, size, error);
    base_heap_give(c->heap, data, size + 1);
    return status;
}

ir_cache *ir_cache_open(base_heap *heap, const char *path, const beryl_log *log) {
    const size_t path_size = strlen(path) + 1;
    beryl_error why = {0};
    ir_cache *c = base_heap_take(heap, sizeof *c);
    if (!c) return NULL;
    *c = (ir_cache){.heap = heap, .log = log, .path_size = path_size};
    c->path = base_heap_take(heap, path_size);
    beryl_status status = c->path ? BERYL_OK : BERYL_NO_MEMORY;
    if (!status) memcpy(c->path, path, path_size), status = read_cache(c, &why);
    if (status == BERYL_NO_MEMORY) {
        ir_cache_close(c);
        return NULL;
    }
    if (status) base_log(log, BERYL_LOG_WARNING, "what was tuned is ignored: %s", why.message);
    else if (c->damaged)
        base_log(log, BERYL_LOG_WARNING, "%s is damaged: its bad entries are ignored", path);
    else if (c->other_version)
        base_log(
            log, BERYL_LOG_INFO,
            "%s is of another version of Beryl: nothing of it is used, tuning again replaces it",
            path);
    c->damaged |= status != BERYL_OK;
    return c;
}

void ir_cache_close(ir_cache *c) {
    if (!c) return;
    base_vec_fini(c->heap, &c->entries);
    base_heap_give(c->heap, c->path, c->path_size);
    base_heap_give(c->heap, c, sizeof *c);
}

uint32_t ir_cache_count(const ir_cache *c, bool *damaged, bool *other_version) {
    *damaged = c->damaged;
    *other_version = c->other_version;
    return (uint32_t)c->entries.count;
}

/* The file as it is by now, which another process may have added to, with one entry more. */
static beryl_status write_cache(ir_cache *c, const entry *more, beryl_error *error) {
    base_text text;
    beryl_status status = read_cache(c, error);
    /* what is there is not lost to a passing failure */
    if (status == BERYL_NO_MEMORY || status == BERYL_IO) return status;
    base_text_init(&text, c->heap);
    base_text_add(&text, head_line, sizeof head_line - 1);
    size_t n = 0;
    for (size_t i = 0; i < c->entries.count; i++)
        if (c->entries.data[i].key != more->key) c->entries.data[n++] = c->entries.data[i];
    c->entries.count = n;
    entry *e = base_vec_add(c->heap, &c->entries);
    if (e) *e = *more;
    for (size_t i = 0; i < c->entries.count; i++) write_line(&text, &c->entries.data[i]);
    status = text.failed || !e ? base_no_memory(error)
                               : base_file_write(c->path, text.data, text.size, error);
    base_text_fini(&text);
    return status;
}

static void keep(ir_cache *c, uint64_t key, const uint32_t *numbers, uint32_t n) {
    entry e = {.key = key, .n = n};
    beryl_error why = {0};
    if (!c) return;
    memcpy(e.numbers, numbers, n * sizeof *numbers);
    if (!write_cache(c, &e, &why) || c->told) return;
    c->told = true;
    base_log(c->log, BERYL_LOG_WARNING, "what was tuned is not kept: %s", why.message);
}

static const entry *find(const ir_cache *c, uint64_t key) {
    size_t i = c ? c->entries.count : 0; /* the last one counts */
    while (i > 0 && c->entries.data[i - 1].key != key) i--;
    return i ? &c->entries.data[i - 1] : NULL;
}

void ir_cache_doubt(ir_cache *c) {
    if (!c->doubted)
        base_log(c->log, BERYL_LOG_WARNING, "%s is damaged: numbers that no kernel has are ignored",
                 c->path);
    c->doubted = true;
}

bool ir_tuned(base_heap *heap, const ir_tuning *t, ir_schedule *schedule) {
    uint64_t key;
    ir_schedule found;
    if (!t->cache || !t->cache->entries.count || !key_of(heap, t, &key)) return false;
    const entry *e = find(t->cache, key);
    if (!e) return false;
    if (e->n != NUMBERS || !from_numbers(e->numbers, &found)) {
        ir_cache_doubt(t->cache);
        return false;
    }
    memcpy(found.param_multiple, t->param_multiple, sizeof found.param_multiple);
    *schedule = found;
    return true;
}

static bool allows(const ir_knob *knob, uint32_t number) {
    uint32_t i = 0;
    while (i < knob->n && knob->values[i] != number) i++;
    return i < knob->n;
}

bool ir_tuned_numbers(const ir_choosing *t, uint32_t *numbers) {
    const entry *e = find(t->cache, t->key);
    bool fits = e && e->n == t->n;
    for (uint32_t i = 0; fits && i < t->n; i++) fits = allows(&t->knobs[i], e->numbers[i]);
    if (e && !fits) ir_cache_doubt(t->cache);
    if (fits) memcpy(numbers, e->numbers, t->n * sizeof *numbers);
    return fits;
}

/* ---- candidates ------------------------------------------------------------------------------ */

/* What is searched, be it schedules or numbers that a lowering asks for. */
typedef struct search {
    uint32_t n, n_candidate, n_timed;                               /* numbers of a row; at most */
    bool (*is_sensible)(const void *user, const uint32_t *numbers); /* NULL: all are */
    beryl_status (*estimate)(void *user, const uint32_t *numbers, double *seconds,
                             beryl_error *error);
    beryl_status (*time)(void *user, const uint32_t *numbers, double *seconds, beryl_error *error);
    void (*progress)(void *user, uint32_t done, uint32_t total);
    void *user, *progress_user;
} search;

static bool is_same(const search *s, const candidate *a, const candidate *b) {
    return !memcmp(a->numbers, b->numbers, s->n * sizeof *a->numbers);
}

/* Every combination, if they are few; else as many, spread over all. The first is the rule of
 * thumb. */
static uint32_t make_candidates(const search *s, const uint32_t *rule, const ir_knob *knobs,
                                uint32_t n_knob, candidate *out) {
    const uint32_t most =
        s->n_candidate && s->n_candidate < CANDIDATES_MAX ? s->n_candidate : CANDIDATES_MAX;
    uint32_t n = 0;
    uint64_t all = 1;
    memcpy(out[n++].numbers, rule, s->n * sizeof *rule);
    for (uint32_t k = 0; k < n_knob && all < 1u << 20; k++) all *= knobs[k].n;
    for (uint64_t i = 0; i < all && n < most; i++) {
        candidate *c = &out[n];
        uint64_t rest = i * 7919 % all; /* a prime that all has not: every one comes once */
        memcpy(c->numbers, rule, s->n * sizeof *rule);
        for (uint32_t k = 0; k < n_knob; k++) {
            c->numbers[knobs[k].at] = knobs[k].values[rest % knobs[k].n];
            rest /= knobs[k].n;
        }
        bool good = !s->is_sensible || s->is_sensible(s->user, c->numbers);
        for (uint32_t k = 0; k < n && good; k++) good = !is_same(s, &out[k], c);
        n += good;
    }
    return n;
}

/* ---- candidates of schedules ----------------------------------------------------------------- */

static void add_knob(ir_knob *knobs, uint32_t *n, uint32_t dim, size_t field,
                     const uint32_t *values, uint32_t n_value) {
    ir_knob *k = &knobs[(*n)++];
    *k = (ir_knob){.at = dim * FIELDS + (uint32_t)field, .n = n_value};
    memcpy(k->values, values, n_value * sizeof *values);
}

/* The numbers that the rule of thumb set may be others; matrix fragments have ranges of their own.
 */
static uint32_t find_knobs(const ir_schedule *s, ir_knob *knobs) {
    enum { LANES = 3, BLOCK, UNROLL, STAGE }; /* as to_numbers has them */
    static const uint32_t blocks[] = {1, 2, 4, 8}, unrolls[] = {1, 2, 4, 8},
                          stages[] = {0, 8, 16, 32}, tiles[] = {16, 32, 64}, warps[] = {1, 2, 4},
                          slots[] = {1, 2, 3};
    uint32_t n = 0;
    for (uint32_t d = 0; d < IR_DIM_MAX; d++) {
        const ir_schedule_dim *dim = &s->dims[d];
        bool parallel = dim->group, reduce = !dim->group && (dim->unroll || dim->stage);
        if (s->fragments) {
            if (parallel && dim->lanes)
                add_knob(knobs, &n, d, LANES, warps, 3), add_knob(knobs, &n, d, BLOCK, blocks, 4);
            if (reduce)
                add_knob(knobs, &n, d, STAGE, tiles, 3), add_knob(knobs, &n, d, UNROLL, slots, 3);
            continue;
        }
        if (dim->lanes > 1) {
            uint32_t some[5], count = 0;
            for (uint32_t shift = 0; shift < 5; shift++) {
                uint32_t value = (uint32_t)dim->lanes * 4 >> shift;
                if (value >= 2 && value <= IR_LANES_MAX) some[count++] = value;
            }
            add_knob(knobs, &n, d, LANES, some, count);
        }
        if (dim->block) add_knob(knobs, &n, d, BLOCK, blocks, 4);
        if (dim->unroll) add_knob(knobs, &n, d, UNROLL, unrolls, 4);
        if (dim->stage) add_knob(knobs, &n, d, STAGE, stages, 4);
    }
    return n;
}

static uint32_t lanes_of(const ir_schedule *s) {
    uint32_t lanes = 1;
    for (uint32_t axis = 0; axis < 3; axis++) {
        uint32_t most = 1;
        for (uint32_t d = 0; d < IR_DIM_MAX; d++)
            if (s->dims[d].lane == axis + 1 && s->dims[d].lanes > most) most = s->dims[d].lanes;
        lanes *= most;
    }
    return lanes;
}

/* A schedule's search; what it has not of its numbers is the caller's promise. */
static bool schedule_of(const ir_tuning *t, const uint32_t *numbers, ir_schedule *s) {
    const bool good = from_numbers(numbers, s);
    memcpy(s->param_multiple, t->param_multiple, sizeof s->param_multiple);
    return good;
}

/* Not worth a look: too few or too many lanes, more in registers than a lane has. */
static bool is_sensible(const void *user, const uint32_t *numbers) {
    const ir_tuning *t = user;
    ir_schedule s;
    if (!schedule_of(t, numbers, &s)) return false;
    uint32_t lanes = lanes_of(&s),
             most = t->caps->workgroup_invocations ? t->caps->workgroup_invocations : 256;
    uint64_t blocks = 1;
    for (uint32_t d = 0; d < IR_DIM_MAX; d++) blocks *= s.dims[d].block ? s.dims[d].block : 1;
    return s.fragments ? blocks <= 32 : lanes <= most && blocks <= 64;
}

/* ---- the search ------------------------------------------------------------------------------ */

static void rule_of_thumb(const ir_tuning *t, ir_schedule *out) {
    ir_schedule_default(t->plain, t->caps, t->extents, out);
    memcpy(out->param_multiple, t->param_multiple, sizeof out->param_multiple);
}

/* The same for matrix units: what is kept of the shape are the loops that groups share. */
static bool fragment_rule(const ir_schedule *thumb, ir_schedule *out) {
    bool staged = false;
    *out = *thumb;
    for (uint32_t d = 0; d < IR_DIM_MAX; d++) {
        ir_schedule_dim *dim = &out->dims[d];
        if (dim->group && dim->lane)
            *dim = (ir_schedule_dim){.group = dim->group, .lanes = 2, .block = 4};
        else if (dim->stage) *dim = (ir_schedule_dim){.stage = 32, .unroll = 2}, staged = true;
    }
    out->fragments = true;
    out->vector = 8;
    return staged && out->subgroup > 1;
}

static beryl_status estimate_schedule(void *user, const uint32_t *numbers, double *seconds,
                                      beryl_error *error) {
    const ir_tuning *t = user;
    base_arena arena;
    const ir_kernel *k;
    ir_cost cost = {0};
    ir_schedule schedule;
    schedule_of(t, numbers, &schedule);
    base_arena_init(&arena, t->heap);
    beryl_status status = ir_optimise(&arena, t->plain, &schedule, &k, error);
    if (!status) status = ir_cost_of(t->heap, k, t->caps, t->params, NULL, &cost, error);
    *seconds = cost.seconds;
    if (!status && schedule.fragments && !k->n_fragment) *seconds = HUGE_VAL; /* they did not fit */
    base_arena_fini(&arena);
    return status;
}

static beryl_status time_schedule(void *user, const uint32_t *numbers, double *seconds,
                                  beryl_error *error) {
    const ir_tuning *t = user;
    base_arena arena;
    const ir_kernel *k;
    ir_schedule schedule;
    schedule_of(t, numbers, &schedule);
    base_arena_init(&arena, t->heap);
    beryl_status status = ir_optimise(&arena, t->plain, &schedule, &k, error);
    if (!status) status = t->time(t->user, k, &schedule, seconds, error);
    base_arena_fini(&arena);
    return status;
}

static void sort(candidate *c, uint32_t n) {
    for (uint32_t i = 1; i < n; i++) {
        candidate moved = c[i];
        uint32_t j = i;
        for (; j > 0 && c[j - 1].estimate > moved.estimate; j--) c[j] = c[j - 1];
        c[j] = moved;
    }
}

/* One that cannot be timed has no time; CANCELLED and NO_MEMORY alone end the search. */
static beryl_status time_one(const search *s, candidate *c, beryl_error *error) {
    beryl_error own = {0};
    beryl_status status = s->time(s->user, c->numbers, &c->seconds, &own);
    if (status || !(c->seconds >= 0)) c->seconds = HUGE_VAL;
    if (status != BERYL_CANCELLED && status != BERYL_NO_MEMORY) return BERYL_OK;
    if (error) *error = own;
    return status;
}

static bool wins(const candidate *c, const candidate *rule) {
    return c->seconds < WIN * rule->seconds;
}

/* Of candidates [n], the rule of thumb first: the best one's numbers. */
static beryl_status run(const search *s, candidate *c, uint32_t n, uint32_t *numbers,
                        beryl_error *error) {
    beryl_status status = BERYL_OK;
    candidate rule = c[0];
    uint32_t best = 0, at_rule = 0;
    for (uint32_t i = 0; i < n && !status; i++) {
        c[i].seconds = HUGE_VAL;
        status = s->estimate(s->user, c[i].numbers, &c[i].estimate, error);
    }
    if (status) return status;
    sort(c, n);
    while (n > 1 && c[n - 1].estimate >= HUGE_VAL) n--;
    uint32_t timed = !s->time ? 0 : s->n_timed ? s->n_timed : TIMED_DEFAULT;
    if (timed > n) timed = n;
    /* The rule of thumb is always among them: what is kept is never slower. */
    while (at_rule < timed && !is_same(s, &c[at_rule], &rule)) at_rule++;
    if (timed && at_rule == timed) c[--at_rule] = rule;
    for (uint32_t i = 0; i < timed && !status; i++) {
        status = time_one(s, &c[i], error);
        if (c[i].seconds < c[best].seconds) best = i;
        if (s->progress) s->progress(s->progress_user, i + 1, timed);
    }
    if (timed && !wins(&c[best], &c[at_rule])) best = at_rule;
    /* The minimum of many times is partly luck: both again, in turns. */
    for (uint32_t i = 0; i < 2 * DUELS && !status && best != at_rule; i++) {
        candidate *one = &c[i % 2 ? at_rule : best];
        const double before = one->seconds;
        status = time_one(s, one, error);
        if (before < one->seconds && i > 1) one->seconds = before;
    }
    if (timed && !wins(&c[best], &c[at_rule])) best = at_rule;
    memcpy(numbers, c[best].numbers, s->n * sizeof *numbers);
    return status;
}

static candidate *make_room(base_heap *heap, const char *name, beryl_error *error) {
    candidate *c = base_heap_take(heap, 2 * CANDIDATES_MAX * sizeof *c);
    if (!c) base_fail(error, BERYL_NO_MEMORY, "no memory to tune %s", name);
    return c;
}

beryl_status ir_tune(base_arena *arena, const ir_tuning *given, ir_schedule *schedule,
                     beryl_error *error) {
    ir_tuning t = *given;
    ir_schedule units;
    ir_knob knobs[IR_DIM_MAX * 4];
    uint32_t numbers[NUMBERS];
    uint64_t key;
    t.heap = arena->heap;
    if (!key_of(t.heap, &t, &key))
        return base_fail(error, BERYL_NO_MEMORY, "no memory to tune %s", t.plain->name);
    if (!t.again && ir_tuned(t.heap, &t, schedule)) return BERYL_OK;
    candidate *c = make_room(t.heap, t.plain->name, error);
    if (!c) return BERYL_NO_MEMORY;
    const search s = {.n = NUMBERS,
                      .n_candidate = t.n_candidate,
                      .n_timed = t.n_timed,
                      .is_sensible = is_sensible,
                      .estimate = estimate_schedule,
                      .time = t.time ? time_schedule : NULL,
                      .progress = t.progress,
                      .user = &t,
                      .progress_user = t.user};
    rule_of_thumb(&t, schedule);
    to_numbers(schedule, numbers);
    uint32_t n = make_candidates(&s, numbers, knobs, find_knobs(schedule, knobs), c);
    if (t.fragments && fragment_rule(schedule, &units)) {
        to_numbers(&units, numbers);
        n += make_candidates(&s, numbers, knobs, find_knobs(&units, knobs), c + n);
    }
    beryl_status status = run(&s, c, n, numbers, error);
    base_heap_give(t.heap, c, 2 * CANDIDATES_MAX * sizeof *c);
    if (status) return status;
    schedule_of(&t, numbers, schedule);
    if (t.time) keep(t.cache, key, numbers, NUMBERS);
    return BERYL_OK;
}

beryl_status ir_tune_numbers(base_heap *heap, const ir_choosing *t, uint32_t *numbers,
                             beryl_error *error) {
    if (!t->again && ir_tuned_numbers(t, numbers)) return BERYL_OK;
    candidate *c = make_room(heap, "a node", error);
    if (!c) return BERYL_NO_MEMORY;
    const search s = {.n = t->n,
                      .n_timed = t->n_timed,
                      .estimate = t->estimate,
                      .time = t->time,
                      .user = t->user};
    beryl_status status =
        run(&s, c, make_candidates(&s, t->rule, t->knobs, t->n, c), numbers, error);
    base_heap_give(heap, c, 2 * CANDIDATES_MAX * sizeof *c);
    if (!status) keep(t->cache, t->key, numbers, t->n);
    return status;
}
