/* schedule.c - learning rates and orders: plain functions of their arguments. */
#include "train/schedule.h"
#include "base/error.h"
#include "base/json.h"
#include "base/thread.h"

#include <math.h>
#include <string.h>

static const char *const names[TRAIN_SCHEDULE_COUNT] = {
#define X(id, text, what) text,
    TRAIN_SCHEDULE_LIST(X)
#undef X
};

const char *train_schedule_name(train_schedule_kind kind) {
    return names[kind];
}

bool train_schedule_find(const char *name, train_schedule_kind *kind) {
    for (int i = 0; i < TRAIN_SCHEDULE_COUNT; i++)
        if (!strcmp(name, names[i])) return *kind = (train_schedule_kind)i, true;
    return false;
}

double train_rate(const train_schedule *s, uint32_t step) {
    const double pi = 3.14159265358979323846;
    if (step < s->warmup) return s->rate * step / s->warmup;
    const double left = s->steps > s->warmup ? s->steps - s->warmup : 1;
    const double p = fmin(1, (step - s->warmup) / left);
    switch (s->kind) {
    case TRAIN_CONSTANT: return s->rate;
    case TRAIN_LINEAR: return s->rate * (1 - p);
    case TRAIN_COSINE: return s->rate * 0.5 * (1 + cos(pi * p));
    case TRAIN_RESTARTS:
        return p < 1 ? s->rate * 0.5 * (1 + cos(pi * fmod((s->cycles ? s->cycles : 1) * p, 1))) : 0;
    case TRAIN_SCHEDULE_COUNT: break;
    }
    return 0;
}

/* Fisher and Yates from the end; draw i is Threefry at {i, epoch} times the places left. */
void train_order_shuffle(uint64_t seed, uint32_t epoch, uint32_t n, uint32_t *order) {
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    for (uint32_t i = n; i-- > 1;) {
        uint32_t word[2];
        base_threefry(key, (const uint32_t[2]){i, epoch}, word);
        const uint32_t k = (uint32_t)(((uint64_t)word[0] * (i + 1)) >> 32), row = order[i];
        order[i] = order[k];
        order[k] = row;
    }
}

static beryl_status read_epoch(const base_json *epoch, uint32_t number, uint32_t n, uint32_t *to,
                               uint8_t *seen, beryl_error *error) {
    if (epoch->kind != JSON_ARRAY || epoch->n_child != n)
        return base_fail_at(error, BERYL_BAD_INPUT, epoch->at,
                            "order of epoch %u: must be a list of all %u rows", number, n);
    memset(seen, 0, n);
    for (const base_json *j = epoch->child; j; j = j->next) {
        const double row = j->kind == JSON_NUMBER ? j->number : -1;
        if (!(row >= 0 && row < n && row == floor(row)))
            return base_fail_at(error, BERYL_BAD_INPUT, j->at,
                                "order of epoch %u: no row's number, which are 0 to %u", number,
                                n - 1);
        if (seen[(uint32_t)row]++)
            return base_fail_at(error, BERYL_BAD_INPUT, j->at,
                                "order of epoch %u: row %u is there twice", number, (uint32_t)row);
        *to++ = (uint32_t)row;
    }
    return BERYL_OK;
}

beryl_status train_order_read(base_arena *arena, const char *json, size_t size, uint32_t n,
                              uint32_t n_epoch, uint32_t **out, beryl_error *error) {
    base_json *top;
    beryl_status status = base_json_parse(arena, json, size, &top, error);
    if (status) return status;
    if (top->kind != JSON_ARRAY || top->n_child < n_epoch)
        return base_fail(error, BERYL_BAD_INPUT, "order: must be a list of lists for %u epochs",
                         n_epoch);
    *out = n && n_epoch > SIZE_MAX / n ? NULL
                                       : base_arena_take(arena, (size_t)n_epoch * n, sizeof **out);
    uint8_t *seen = base_arena_take(arena, n, 1);
    if (!*out || !seen) return base_no_memory(error);
    const base_json *epoch = top->child;
    for (uint32_t e = 0; !status && e < n_epoch; e++, epoch = epoch->next)
        status = read_epoch(epoch, e, n, *out + (size_t)e * n, seen, error);
    return status;
}

uint32_t train_split(uint32_t n, double part) {
    if (!(part > 0) || n < 2) return 0;
    const double want = floor(fmin(part, 1) * n + 0.5);
    return want < 1 ? 1 : want > n - 1 ? n - 1 : (uint32_t)want;
}
