/* tune.c - candidates, their order, the search, and the cache file.
 *
 * Owns the file's form: a head line, then one line an entry: the key, the schedule's numbers, a
 * check of both, all hexadecimal. The key is a hash of the printed kernel, the extents' classes
 * (their logarithms) and the device. A line that does not check, or that holds numbers no schedule
 * may have, is left out with a warning and gone when the file is next written; a file with another
 * head counts as empty. */
#include "ir/tune.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "ir/cost.h"

enum {
    CANDIDATES_MAX = 160,
    TIMED_DEFAULT = 12,
    FILE_MOST = 8 << 20,
    FIELDS = 9,
    NUMBERS = IR_DIM_MAX * FIELDS + 4
};

static const char head_line[] = "beryl tune 2\n";

typedef struct entry {
    uint64_t key;
    uint32_t numbers[NUMBERS];
} entry;

struct ir_cache {
    base_heap *heap; /* borrowed */
    char *path;      // [path_size], owned
    size_t path_size;
    const beryl_log *log; /* borrowed */
    base_vec(entry) entries;
    bool damaged, told; /* told: that it cannot be written */
};

typedef struct candidate {
    ir_schedule schedule;
    double estimate, seconds; /* seconds: timed; HUGE_VAL: not */
} candidate;

/* ---- schedules as numbers ---- */

static void to_numbers(const ir_schedule *s, uint32_t *numbers) {
    for (uint32_t d = 0; d < IR_DIM_MAX; d++) {
        const ir_schedule_dim *dim = &s->dims[d];
        const uint32_t fields[FIELDS] = {dim->group, dim->lane,   dim->split, dim->lanes,
                                         dim->block, dim->unroll, dim->stage, dim->ahead,
                                         dim->wide};
        memcpy(numbers + d * FIELDS, fields, sizeof fields);
    }
    numbers[NUMBERS - 4] = s->subgroup;
    numbers[NUMBERS - 3] = s->vector;
    numbers[NUMBERS - 2] = s->workgroup_bytes;
    numbers[NUMBERS - 1] = s->fragments;
}

static bool is_same(const ir_schedule *a, const ir_schedule *b) {
    uint32_t x[NUMBERS], y[NUMBERS];
    to_numbers(a, x);
    to_numbers(b, y);
    return !memcmp(x, y, sizeof x);
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
    return s->subgroup <= 256 && s->vector <= 16 && s->workgroup_bytes <= IR_WORKGROUP_BYTES_MAX;
}

/* ---- the cache ---- */

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

static uint64_t check_of(uint64_t key, const uint32_t *numbers) {
    return base_hash(numbers, NUMBERS * sizeof *numbers, key);
}

static bool read_line(base_view line, uint64_t *key, uint32_t *numbers, ir_schedule *schedule) {
    uint64_t value, check;
    if (!hex(&line, key)) return false;
    for (uint32_t i = 0; i < NUMBERS; i++) {
        if (!hex(&line, &value) || value > UINT32_MAX) return false;
        numbers[i] = (uint32_t)value;
    }
    return hex(&line, &check) && !line.size && check == check_of(*key, numbers) &&
           from_numbers(numbers, schedule);
}

static void write_line(base_text *text, uint64_t key, const uint32_t *numbers) {
    base_text_print(text, "%016llx", (unsigned long long)key);
    for (uint32_t i = 0; i < NUMBERS; i++) base_text_print(text, " %x", numbers[i]);
    base_text_print(text, " %016llx\n", (unsigned long long)check_of(key, numbers));
}

/* Entries in the file's order, into an empty list. */
static beryl_status read_lines(ir_cache *c, const char *data, size_t size, beryl_error *error) {
    const size_t head = sizeof head_line - 1;
    c->damaged = size < head || memcmp(data, head_line, head) != 0;
    for (size_t at = c->damaged ? size : head; at < size;) {
        const char *end = memchr(data + at, '\n', size - at);
        const base_view line = {data + at, end ? (size_t)(end - data) - at : size - at};
        entry *e = base_vec_add(c->heap, &c->entries);
        ir_schedule unused;
        if (!e) return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
        at += line.size + 1;
        if (end && read_line(line, &e->key, e->numbers, &unused)) continue;
        c->damaged = true;
        c->entries.count--;
    }
    return BERYL_OK;
}

static beryl_status read_cache(ir_cache *c, beryl_error *error) {
    char *data = NULL;
    size_t size = 0;
    c->entries.count = 0;
    if (!base_file_exists(c->path)) return BERYL_OK;
    beryl_status status = base_file_read(c->heap, c->path, FILE_MOST, &data, &size, error);
    if (status) return status;
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
    c->damaged |= status != BERYL_OK;
    return c;
}

void ir_cache_close(ir_cache *c) {
    if (!c) return;
    base_vec_fini(c->heap, &c->entries);
    base_heap_give(c->heap, c->path, c->path_size);
    base_heap_give(c->heap, c, sizeof *c);
}

uint32_t ir_cache_count(const ir_cache *c, bool *damaged) {
    *damaged = c->damaged;
    return (uint32_t)c->entries.count;
}

/* The file as it is by now, which another process may have added to, with one entry more. */
static beryl_status write_cache(ir_cache *c, const entry *more, beryl_error *error) {
    base_text text;
    beryl_status status = read_cache(c, error);
    if (status == BERYL_NO_MEMORY) return status;
    base_text_init(&text, c->heap);
    base_text_add(&text, head_line, sizeof head_line - 1);
    size_t n = 0;
    for (size_t i = 0; i < c->entries.count; i++)
        if (c->entries.data[i].key != more->key) c->entries.data[n++] = c->entries.data[i];
    c->entries.count = n;
    entry *e = base_vec_add(c->heap, &c->entries);
    if (e) *e = *more;
    for (size_t i = 0; i < c->entries.count; i++)
        write_line(&text, c->entries.data[i].key, c->entries.data[i].numbers);
    status = text.failed || !e ? base_fail(error, BERYL_NO_MEMORY, "out of host memory")
                               : base_file_write(c->path, text.data, text.size, error);
    base_text_fini(&text);
    return status;
}

static void keep(ir_cache *c, uint64_t key, const ir_schedule *schedule) {
    entry e = {.key = key};
    beryl_error why = {0};
    if (!c) return;
    to_numbers(schedule, e.numbers);
    if (!write_cache(c, &e, &why) || c->told) return;
    c->told = true;
    base_log(c->log, BERYL_LOG_WARNING, "what was tuned is not kept: %s", why.message);
}

bool ir_tuned(base_heap *heap, const ir_tuning *t, ir_schedule *schedule) {
    uint64_t key;
    ir_schedule found;
    const ir_cache *c = t->cache;
    if (!c || !c->entries.count || !key_of(heap, t, &key)) return false;
    size_t i = c->entries.count; /* the last one counts */
    while (i > 0 && c->entries.data[i - 1].key != key) i--;
    if (!i || !from_numbers(c->entries.data[i - 1].numbers, &found)) return false;
    memcpy(found.param_multiple, t->param_multiple, sizeof found.param_multiple);
    *schedule = found;
    return true;
}

/* ---- candidates ---- */

/* One number of the schedule, with what it may be. */
typedef struct knob {
    uint16_t *number;
    uint16_t values[6];
    uint32_t n;
} knob;

static void add_knob(knob *knobs, uint32_t *n, uint16_t *number, const uint16_t *values,
                     uint32_t n_value) {
    knob *k = &knobs[(*n)++];
    k->number = number;
    k->n = n_value;
    memcpy(k->values, values, n_value * sizeof *values);
}

/* The numbers that the rule of thumb set may be others; matrix fragments have ranges of their own.
 */
static uint32_t find_knobs(ir_schedule *s, knob *knobs) {
    static const uint16_t blocks[] = {1, 2, 4, 8}, unrolls[] = {1, 2, 4, 8},
                          stages[] = {0, 8, 16, 32}, tiles[] = {16, 32, 64}, warps[] = {1, 2, 4},
                          slots[] = {1, 2, 3};
    uint32_t n = 0;
    for (uint32_t d = 0; d < IR_DIM_MAX; d++) {
        ir_schedule_dim *dim = &s->dims[d];
        uint16_t lanes = dim->lanes;
        bool parallel = dim->group, reduce = !dim->group && (dim->unroll || dim->stage);
        if (s->fragments) {
            if (parallel && dim->lanes)
                add_knob(knobs, &n, &dim->lanes, warps, 3),
                    add_knob(knobs, &n, &dim->block, blocks, 4);
            if (reduce)
                add_knob(knobs, &n, &dim->stage, tiles, 3),
                    add_knob(knobs, &n, &dim->unroll, slots, 3);
            continue;
        }
        if (lanes > 1) {
            uint16_t some[5];
            uint32_t count = 0;
            for (uint32_t shift = 0; shift < 5; shift++) {
                uint32_t value = (uint32_t)lanes * 4 >> shift;
                if (value >= 2 && value <= IR_LANES_MAX) some[count++] = (uint16_t)value;
            }
            add_knob(knobs, &n, &dim->lanes, some, count);
        }
        if (dim->block) add_knob(knobs, &n, &dim->block, blocks, 4);
        if (dim->unroll) add_knob(knobs, &n, &dim->unroll, unrolls, 4);
        if (dim->stage) add_knob(knobs, &n, &dim->stage, stages, 4);
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

/* Not worth a look: too few or too many lanes, more in registers than a lane has. */
static bool is_sensible(const ir_schedule *s, const device_caps *caps) {
    uint32_t lanes = lanes_of(s),
             most = caps->workgroup_invocations ? caps->workgroup_invocations : 256;
    uint64_t blocks = 1;
    for (uint32_t d = 0; d < IR_DIM_MAX; d++) blocks *= s->dims[d].block ? s->dims[d].block : 1;
    return s->fragments ? blocks <= 32 : lanes <= most && blocks <= 64;
}

/* Every combination, if they are few; else as many, spread over all. The first is the rule of
 * thumb. */
static uint32_t make_candidates(const ir_tuning *t, const ir_schedule *thumb, candidate *out) {
    ir_schedule s = *thumb;
    knob knobs[IR_DIM_MAX * 4];
    uint32_t n_knob = find_knobs(&s, knobs), n = 0;
    uint64_t all = 1;
    out[n++].schedule = *thumb;
    for (uint32_t k = 0; k < n_knob && all < 1u << 20; k++) all *= knobs[k].n;
    uint32_t most =
        t->n_candidate && t->n_candidate < CANDIDATES_MAX ? t->n_candidate : CANDIDATES_MAX;
    for (uint64_t i = 0; i < all && n < most; i++) {
        uint64_t rest = i * 7919 % all; /* all is a product of 2, 3 and 5: every one comes once */
        for (uint32_t k = 0; k < n_knob; k++) {
            *knobs[k].number = knobs[k].values[rest % knobs[k].n];
            rest /= knobs[k].n;
        }
        if (!is_sensible(&s, t->caps)) continue;
        bool seen = false;
        for (uint32_t c = 0; c < n && !seen; c++) seen = is_same(&out[c].schedule, &s);
        if (!seen) out[n++].schedule = s;
    }
    return n;
}

/* ---- the search ---- */

static void thumb_rule(const ir_tuning *t, ir_schedule *out) {
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

/* Runs the passes in an arena of its own; *scheduled lives until that is closed. */
static beryl_status schedule_one(base_arena *arena, const ir_tuning *t, const candidate *c,
                                 const ir_kernel **scheduled, beryl_error *error) {
    return ir_optimise(arena, t->plain, &c->schedule, scheduled, error);
}

static beryl_status estimate(base_heap *heap, const ir_tuning *t, candidate *c,
                             beryl_error *error) {
    base_arena arena;
    const ir_kernel *k;
    ir_cost cost = {0};
    base_arena_init(&arena, heap);
    beryl_status status = schedule_one(&arena, t, c, &k, error);
    if (!status) status = ir_cost_of(heap, k, t->caps, t->params, &cost, error);
    c->estimate = cost.seconds;
    c->seconds = HUGE_VAL;
    if (!status && c->schedule.fragments && !k->n_fragment)
        c->estimate = HUGE_VAL; /* they did not fit */
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

static beryl_status time_one(base_heap *heap, const ir_tuning *t, candidate *c,
                             beryl_error *error) {
    base_arena arena;
    const ir_kernel *k;
    beryl_error own = {0};
    base_arena_init(&arena, heap);
    beryl_status status = schedule_one(&arena, t, c, &k, error);
    if (!status) {
        status = t->time(t->user, k, &c->schedule, &c->seconds, &own);
        if (status || !(c->seconds >= 0)) c->seconds = HUGE_VAL;
        if (status == BERYL_CANCELLED || status == BERYL_NO_MEMORY) {
            if (error) *error = own;
        } else status = BERYL_OK;
    }
    base_arena_fini(&arena);
    return status;
}

static beryl_status search(base_heap *heap, const ir_tuning *t, candidate *c, ir_schedule *schedule,
                           beryl_error *error) {
    ir_schedule units;
    thumb_rule(t, schedule);
    uint32_t n = make_candidates(t, schedule, c);
    if (t->fragments && fragment_rule(schedule, &units)) n += make_candidates(t, &units, c + n);
    beryl_status status = BERYL_OK;
    for (uint32_t i = 0; i < n && !status; i++) status = estimate(heap, t, &c[i], error);
    if (status) return status;
    candidate thumb = c[0];
    sort(c, n);
    while (n > 1 && c[n - 1].estimate >= HUGE_VAL) n--;
    uint32_t timed = !t->time ? 0 : t->n_timed ? t->n_timed : TIMED_DEFAULT, best = 0;
    if (timed > n) timed = n;
    for (uint32_t i = 0; i < timed && !status; i++) {
        /* The rule of thumb is always among them: what is kept is never slower. */
        if (i + 1 == timed && i > 0) {
            bool seen = false;
            for (uint32_t j = 0; j < timed; j++)
                seen = seen || is_same(&c[j].schedule, &thumb.schedule);
            if (!seen) c[i] = thumb;
        }
        status = time_one(heap, t, &c[i], error);
        if (c[i].seconds < c[best].seconds) best = i;
        if (t->progress) t->progress(t->user, i + 1, timed);
    }
    *schedule = timed && !(c[best].seconds < HUGE_VAL) ? thumb.schedule : c[best].schedule;
    return status;
}

beryl_status ir_tune(base_arena *arena, const ir_tuning *t, ir_schedule *schedule,
                     beryl_error *error) {
    base_heap *heap = arena->heap;
    uint64_t key;
    if (!key_of(heap, t, &key))
        return base_fail(error, BERYL_NO_MEMORY, "no memory to tune %s", t->plain->name);
    if (!t->again && ir_tuned(heap, t, schedule)) return BERYL_OK;
    size_t size = 2 * CANDIDATES_MAX * sizeof(candidate);
    candidate *c = base_heap_take(heap, size);
    if (!c) return base_fail(error, BERYL_NO_MEMORY, "no memory to tune %s", t->plain->name);
    beryl_status status = search(heap, t, c, schedule, error);
    base_heap_give(heap, c, size);
    if (!status && t->time) keep(t->cache, key, schedule);
    return status;
}
