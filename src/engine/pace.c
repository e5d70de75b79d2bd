/* pace.c - how much of a run is submitted at once, how long prompt pieces are, and how many submits
 * are under way.
 *
 * A run is cut between dispatches into parts of at most SUBMIT_SECONDS, so that desktops do not
 * freeze, watchdogs do not fire and a cancellation is met soon. The time of a run is a + b·n, since
 * weights are read for each piece: a shorter piece makes a prompt slower. So pieces stay full, and
 * only where one dispatch alone takes too long are shorter ones tried, and kept if a token then
 * costs no more. Decode steps stay ahead of the reader as deep as makes them faster, which is tried
 * out.
 */
#include "engine/engine.h"

#define SUBMIT_SECONDS 0.1   /* a part, as planned */
#define DISPATCH_SECONDS 0.2 /* one dispatch: above, shorter pieces are tried */
#define SLOWER 1.05          /* a token of a shorter piece may cost so much more */
#define FASTER 0.97          /* a deeper queue is kept from here on */
enum {
    PARTS_MAX = 1024,
    PARTS_FIRST = 8 /* for ENGINE_PIECE tokens */,
    PIECE_MIN = 32,
    SETTLED_MIN = 32,
    SETTLED_MAX = 512
};

/* Of all of a run, if its parts were as slow as the slowest: that is up to twice the mean, more
 * is chance. */
static double slowest(const engine_pace *p) {
    const double mean = p->sum / p->share;
    return p->worst < 2 * mean ? p->worst : 2 * mean;
}

/* Seconds of a run with so many tokens, 0: not known. Of this run as far as it is known, else as
 * the last one was: more tokens take longer, fewer perhaps not. */
static double expected(const engine_pace *p, uint32_t n_token) {
    if (p->share > 0) return slowest(p);
    return n_token > p->n_token && p->n_token ? p->seconds * n_token / p->n_token : p->seconds;
}

uint32_t engine_pace_parts(const engine_plan *plan, uint32_t n_token) {
    const double seconds = expected(&plan->pace, n_token);
    uint32_t parts = 1;
    if (seconds == 0) return (n_token + ENGINE_PIECE - 1) / ENGINE_PIECE * PARTS_FIRST;
    while (parts < PARTS_MAX && seconds / parts > SUBMIT_SECONDS) parts *= 2;
    return parts;
}

bool engine_pace_waits(const beryl_engine *e, const engine_run *run) {
    const engine_plan *plan = &e->plans[engine_plan_index(run)];
    const double seconds = expected(&plan->pace, run->n_token);
    if (e->n_flight < ENGINE_FLIGHT_MIN) return false;
    return seconds == 0 ||
           seconds / engine_pace_parts(plan, run->n_token) * (e->n_flight + 1) > 2 * SUBMIT_SECONDS;
}

static double median(const double *values, uint32_t n) {
    double sorted[ENGINE_DEPTH_STEPS];
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        for (; at > 0 && sorted[at - 1] > values[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = values[i];
    }
    return sorted[n / 2];
}

/* A decode step came `seconds` after the one before it, with the queue full in between. */
static void note_step(engine_depth *d, double seconds) {
    if (d->settled > 0) { /* now and then what was found is looked at again */
        if (--d->settled == 0) d->n = 0, d->best = 0;
        return;
    }
    if (d->skip > 0) {
        d->skip--;
        return;
    }
    d->seconds[d->n++] = seconds;
    if (d->n < ENGINE_DEPTH_STEPS) return;
    const double now = median(d->seconds, d->n);
    const bool first = d->best == 0, faster = first || now < d->best * FASTER;
    d->n = 0;
    d->skip = ENGINE_FLIGHT_MAX;
    if (faster) d->best = now;
    else d->depth--;
    if (faster && !first) d->patience = 0;
    /* deeper, unless a stop would then throw too much away */
    if (faster && d->depth < ENGINE_FLIGHT_MAX && (d->depth + 1) * now <= SUBMIT_SECONDS)
        d->depth++;
    else
        d->settled = d->patience = !d->patience                    ? SETTLED_MIN
                                   : 2 * d->patience < SETTLED_MAX ? 2 * d->patience
                                                                   : SETTLED_MAX;
}

/* A full piece took so long: is the next one shorter, or longer again? */
static void adapt_piece(beryl_engine *e, const engine_pace *p, uint32_t n_token, double seconds) {
    uint32_t k = 0;
    while (k + 1 < ENGINE_PIECES && e->piece >> k > n_token) k++;
    if (e->piece >> k != n_token) return;
    e->piece_seconds[k] = seconds / n_token;
    const bool may_halve = k + 1 < ENGINE_PIECES && e->piece >> (k + 1) >= PIECE_MIN;
    if (k > 0 && e->piece_seconds[k] > e->piece_seconds[k - 1] * SLOWER) {
        e->piece_now = e->piece >> (k - 1);
    } else if (p->dispatch > DISPATCH_SECONDS && may_halve &&
               (e->piece_seconds[k + 1] == 0 ||
                e->piece_seconds[k + 1] <= e->piece_seconds[k] * SLOWER)) {
        e->piece_now = e->piece >> (k + 1);
    }
}

void engine_pace_done(beryl_engine *e, const engine_run *run, double seconds) {
    engine_pace *p = &e->plans[engine_plan_index(run)].pace;
    const bool decode = run->kind >= PLAN_DECODE_NEAR && run->kind <= PLAN_DECODE_ALL;
    if (!e->device || seconds < 0) return;
    if (run->first) p->share = p->sum = p->worst = p->dispatch = 0;
    p->share += run->part.share;
    p->sum += seconds;
    if (seconds > p->worst * run->part.share) p->worst = seconds / run->part.share;
    if (run->part.steps == 1 && seconds > p->dispatch) p->dispatch = seconds;
    if (!run->part.last) return;
    p->seconds = slowest(p);
    p->n_token = run->n_token;
    p->share = 0;
    if (decode && run->first && run->full) note_step(&e->depth, seconds);
    if (run->kind == PLAN_PREFILL || run->kind == PLAN_OUTPUT || run->kind == PLAN_OUTPUT_LONG)
        adapt_piece(e, p, run->n_token, p->sum);
}
