/* tune.c - the search for faster forms of products, on the device, inside the plan that they are
 * for.
 *
 * The idea: classes of products do not touch one another, so a round tries one candidate of each
 * class in one plan. That plan and the best one so far run in turns, each dispatch stamped, and
 * medians decide. Candidates are the neighbours of the best form (one number doubled or halved),
 * the likeliest first by a rule that counts waste; a class ends when no neighbour wins or its
 * tries are used up. At the end each new form has to make the whole step faster, and every
 * kernel has to be right. */
#include "base/error.h"
#include "base/file.h"
#include "engine/measure.h"
#include "engine/probe.h"

#ifndef __wasm__

#include "ir/tune.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    TRIES_DEFAULT = 24,
    TRIES_MAX = 200,
    PRODUCT_MAX = 64,
    TRIED_MAX = 256,
    RUNS = 9,
    LAST_RUNS = 13,
    RUNS_MAX = LAST_RUNS,
    CHUNK = 32,
    UNITS_UNKNOWN = 128,
    LANES_A_UNIT = 1024,
    LANES_MAX = 128
};
static const double WIN = 0.98; /* a form is better below this part of the other's time */
/* of the step's time; times the best one's */
static const double WARM_SECONDS = 0.3, SHARE_MIN = 0.004, WASTE_MAX = 4;

typedef enum tune_stage {
    TUNE_BEGIN,
    TUNE_PLAN,
    TUNE_CANDIDATE,
    TUNE_SCHEDULES,
    TUNE_LAST,
    TUNE_CHECK,
    TUNE_DONE
} tune_stage;

typedef struct product {
    engine_tuned class;         /* form: the best one, all zero: as chosen */
    lower_form chosen;          /* what that is in numbers */
    lower_form best, candidate; /* in numbers; apart: CHOSEN, or as tried */
    bool trying, ended, known;
    lower_form tried[TRIED_MAX];
    uint32_t n_tried;
    double best_us, candidate_us; /* of this round, medians */
    double samples[2][RUNS_MAX];  /* of the best plan, of the candidates' */
} product;

typedef struct tuning {
    beryl_engine *e;
    uint32_t tries;
    bool again;
    tune_stage stage;
    engine_plan_kind kinds[PLAN_COUNT];
    /* n_scheduled: plans whose kernels are searched */
    uint32_t n_kind, n_scheduled, at_kind;
    product products[PRODUCT_MAX]; /* of the plan under way */
    uint32_t n_product, n_found;   /* n_found: over all plans */
    probe plans[2];                /* the best so far, the candidates */
    lower_tuned round[PRODUCT_MAX];
    bool warm, stopped;
    double stamp_us; /* that a timestamp adds to a dispatch */
    base_vec(engine_tuned) found;
    lower_search search; /* of schedules */
    uint32_t n_search;   /* kernels that it has, about */
    beryl_task *task;
    char told[64 + 192];
} tuning;

/* ---- forms ----------------------------------------------------------------------------------- */

static bool is_same(const lower_form *a, const lower_form *b) {
    return a->wg == b->wg && a->lanes == b->lanes && a->rows == b->rows && a->depth == b->depth &&
           a->groups == b->groups && a->n_x == b->n_x && a->apart == b->apart;
}

/* How much longer than with no waste: lanes without a chunk in the last turn, units without a
 * tile in the last turn, units that have too few lanes to hide how long memory takes. */
static double waste_of(const product *p, const device_caps *caps, const lower_form *f) {
    const double units = caps->compute_units ? caps->compute_units : UNITS_UNKNOWN;
    const double m = (double)p->class.dim[0] * p->class.dim[1], k = p->class.dim[2],
                 tile = (double)f->wg / f->lanes * f->rows;
    const double turns = ceil(k / CHUNK / f->lanes) * f->lanes / (k / CHUNK),
                 tiles = ceil(m / tile), groups = tiles < f->groups ? tiles : f->groups;
    const double rounds = ceil(tiles / groups) * groups / tiles,
                 busy = groups * f->wg / (units * LANES_A_UNIT);
    return turns * rounds / (busy < 1 ? sqrt(busy) : 1);
}

static bool was_tried(const product *p, const lower_form *f) {
    bool seen = is_same(f, &p->best);
    for (uint32_t i = 0; i < p->n_tried && !seen; i++) seen = is_same(&p->tried[i], f);
    return seen;
}

/* One number of the best form, twice or half. */
static bool neighbour(const product *p, const device_caps *caps, uint32_t i, lower_form *f) {
    const uint32_t most = caps->workgroup_invocations ? caps->workgroup_invocations : 256;
    *f = p->best;
    uint32_t *const numbers[] = {&f->groups, &f->lanes, &f->wg, &f->rows, &f->depth, &f->n_x};
    const uint32_t lanes = f->wg < LANES_MAX ? f->wg : LANES_MAX,
                   limits[] = {65535, lanes, most, 8, 8, p->class.n},
                   n = sizeof limits / sizeof *limits;
    if (i >= 2 * n) {
        f->apart = i == 2 * n ? LOWER_SEPARATE_YES : LOWER_SEPARATE_NO;
        return i < 2 * n + 2;
    }
    uint32_t *number = numbers[i / 2];
    *number = i % 2 ? *number / 2 : *number * 2;
    /* none: counts as tried */
    if (*number == 0 || *number > limits[i / 2] || f->wg < f->lanes) *f = p->best;
    return true;
}

/* The untried neighbour with the least waste; false: there is none that is worth it. */
static bool next_candidate(product *p, const device_caps *caps, uint32_t tries) {
    double least = WASTE_MAX * waste_of(p, caps, &p->best);
    lower_form f;
    p->trying = false;
    if (p->ended || p->n_tried >= tries || p->n_tried == TRIED_MAX) return false;
    for (uint32_t i = 0; neighbour(p, caps, i, &f); i++) {
        if (was_tried(p, &f) || !(waste_of(p, caps, &f) < least)) continue;
        least = waste_of(p, caps, &f);
        p->candidate = f;
        p->trying = true;
    }
    return p->trying;
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* The store's forms while the plan is opened: of the candidates, or of the best. */
static beryl_status open_plan(tuning *t, bool candidates, bool framed, probe *p,
                              beryl_error *error) {
    const graph_exec_options with = {.exact = t->e->options.precision == BERYL_PRECISION_EXACT,
                                     .stamped = !framed,
                                     .framed = framed};
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_product; i++) {
        const product *x = &t->products[i];
        const lower_form *f = candidates && x->trying ? &x->candidate : &x->best;
        if (is_same(f, &x->chosen)) continue;
        t->round[n] = (lower_tuned){x->class.form.key, *f};
        t->round[n++].form.tuned = true;
    }
    t->e->store.tuned = t->round;
    t->e->store.n_tuned = n;
    const gemma4_text_options how = engine_plan_options(t->e, t->kinds[t->at_kind]);
    beryl_status status = probe_open(t->e, &how, 0, &with, p, error);
    while (status == BERYL_OK && (status = probe_ready(p, error)) == BERYL_PENDING)
        base_sleep(5e-4), status = BERYL_OK;
    t->e->store.tuned = NULL;
    t->e->store.n_tuned = 0;
    if (status != BERYL_OK) probe_close(p);
    return status;
}

static beryl_status run_once(probe *p, beryl_error *error) {
    beryl_status status = probe_submit(p, error);
    if (status == BERYL_OK) status = probe_wait(p, error);
    return status == BERYL_OK ? probe_read(p, error) : status;
}

static beryl_status warm_up(tuning *t, probe *p, beryl_error *error) {
    const double begun = base_time();
    const bool processor = device_is_processor(device_caps_of(t->e->device));
    beryl_status status = BERYL_OK;
    do status = run_once(p, error);
    while (status == BERYL_OK && !processor && !t->warm && base_time() - begun < WARM_SECONDS);
    t->warm = true;
    return status;
}

static product *product_of(tuning *t, const probe *p, const graph_exec_step *step) {
    const uint64_t key = step->product
                             ? lower_tuned_key(p->text.g, step->product,
                                               t->e->options.precision == BERYL_PRECISION_EXACT)
                             : 0;
    for (uint32_t i = 0; key && i < t->n_product; i++)
        if (t->products[i].class.form.key == key) return &t->products[i];
    return NULL;
}

static void take_sample(tuning *t, const probe *p, int which, uint32_t run) {
    graph_exec_step step;
    for (uint32_t i = 0; i < t->n_product; i++) t->products[i].samples[which][run] = 0;
    for (uint32_t i = 0; graph_exec_step_at(p->exec, i, &step); i++) {
        product *x = product_of(t, p, &step);
        if (x)
            x->samples[which][run] +=
                step.microseconds > t->stamp_us ? step.microseconds - t->stamp_us : 0;
    }
}

/* The two plans in turns. */
static beryl_status compare(tuning *t, beryl_error *error) {
    beryl_status status = warm_up(t, &t->plans[1], error);
    for (uint32_t run = 0; status == BERYL_OK && run < RUNS; run++)
        for (int which = 0; status == BERYL_OK && which < 2; which++) {
            status = run_once(&t->plans[which], error);
            if (status == BERYL_OK) take_sample(t, &t->plans[which], which, run);
        }
    for (uint32_t i = 0; status == BERYL_OK && i < t->n_product; i++) {
        t->products[i].best_us = measure_median(t->products[i].samples[0], RUNS);
        t->products[i].candidate_us = measure_median(t->products[i].samples[1], RUNS);
    }
    return status;
}

/* What a timestamp costs: a plan with one after each dispatch against one with two around all. */
static beryl_status measure_stamp(tuning *t, beryl_error *error) {
    double seconds[2][RUNS] = {{0}};
    graph_exec_step step;
    probe framed = {0};
    uint32_t n = 0;
    beryl_status status = open_plan(t, false, true, &framed, error);
    probe *const plans[2] = {&t->plans[0], &framed};
    for (uint32_t run = 0; status == BERYL_OK && run < RUNS; run++)
        for (int i = 0; status == BERYL_OK && i < 2; i++) {
            status = run_once(plans[i], error);
            seconds[i][run] = graph_exec_seconds(plans[i]->exec);
        }
    while (graph_exec_step_at(t->plans[0].exec, n, &step)) n++;
    const double more = 1e6 * (measure_median(seconds[0], RUNS) - measure_median(seconds[1], RUNS));
    /* of a dispatch; a busy machine's clock may say anything */
    const double mean = n ? 1e6 * measure_median(seconds[1], RUNS) / n : 0;
    t->stamp_us = !(more > 0) || !n ? 0 : more / n < mean ? more / n : mean;
    probe_close(&framed);
    return status;
}

/* Classes of the plan, as it would be. */
static beryl_status find_products(tuning *t, beryl_error *error) {
    const bool exact = t->e->options.precision == BERYL_PRECISION_EXACT;
    graph_exec_step step;
    double totals[RUNS] = {0};
    probe *p = &t->plans[0];
    t->n_product = 0;
    beryl_status status = open_plan(t, false, false, p, error);
    if (status == BERYL_OK) status = warm_up(t, p, error);
    if (status == BERYL_OK) status = measure_stamp(t, error);
    if (status != BERYL_OK) return status;
    for (uint32_t i = 0; graph_exec_step_at(p->exec, i, &step); i++) {
        const uint64_t key = step.product ? lower_tuned_key(p->text.g, step.product, exact) : 0;
        if (!key || product_of(t, p, &step) || t->n_product == PRODUCT_MAX) continue;
        const graph_tensor *w = graph_tensor_at(p->text.g, step.product);
        product *x = &t->products[t->n_product++];
        *x = (product){.class = {.form.key = key,
                                 .type = w->type,
                                 .dim = {w->rank > 2 ? w->dim[0].size : 1, w->dim[w->rank - 2].size,
                                         w->dim[w->rank - 1].size},
                                 .n = p->text.g->extents[1].bound,
                                 .exact = exact}};
        snprintf(x->class.role, sizeof x->class.role, "%s", lower_tuned_role(w->name));
    }
    for (uint32_t run = 0; status == BERYL_OK && run < RUNS; run++) {
        status = run_once(p, error);
        if (status == BERYL_OK) take_sample(t, p, 0, run);
        totals[run] = graph_exec_seconds(p->exec);
    }
    if (status != BERYL_OK) return status;
    const double total = 1e6 * measure_median(totals, RUNS);
    /* a product's own step is its last one */
    for (uint32_t i = 0; graph_exec_step_at(p->exec, i, &step); i++) {
        product *x = product_of(t, p, &step);
        if (x && step.form.wg) x->chosen = x->best = step.form;
    }
    for (uint32_t i = 0; i < t->n_product; i++) {
        product *x = &t->products[i];
        x->class.before = x->class.after = measure_median(x->samples[0], RUNS);
        x->ended = !x->chosen.wg || x->class.before + t->stamp_us < SHARE_MIN * total;
        for (size_t k = 0; !t->again && k < t->e->tuned.count; k++)
            x->known |= t->e->tuned.data[k].form.key == x->class.form.key;
        /* in the plan before */
        for (size_t k = 0; k < t->found.count; k++)
            x->known |= t->found.data[k].form.key == x->class.form.key;
        x->ended |= x->known;
    }
    return BERYL_OK;
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* Of the plan's products, in thousandths. */
static uint64_t products_done(const tuning *t) {
    uint64_t done = 0, total = 0;
    for (uint32_t i = 0; i < t->n_product; i++) {
        const product *x = &t->products[i];
        total += x->known || !x->chosen.wg ? 0 : t->tries;
        done += x->known || !x->chosen.wg ? 0 : x->ended ? t->tries : x->n_tried;
    }
    return total ? 1000 * done / total : 0;
}

/* Of the kernels of all plans: what is found may make others than were counted, so the count
 * bounds it. */
static uint64_t schedules_done(const tuning *t) {
    const uint32_t n = t->search.n_done < t->n_search ? t->search.n_done : t->n_search;
    return t->at_kind == t->n_scheduled ? 1000 : 1000 * (uint64_t)n / (t->n_search + 1);
}

/* All of the search: as much for each plan's products as for each plan's kernels. */
static beryl_status progress(beryl_task *task, const tuning *t) {
    const uint64_t done = t->stage < TUNE_SCHEDULES
                              ? 1000 * (uint64_t)t->at_kind + products_done(t)
                              : 1000 * (uint64_t)t->n_kind + t->n_scheduled * schedules_done(t);
    const beryl_event event = {.kind = BERYL_EVENT_PROGRESS,
                               .what = "tuning",
                               .done = done,
                               .total = 1000 * ((uint64_t)t->n_kind + t->n_scheduled),
                               .token = -1};
    const beryl_status status = task_put(task, event, NULL, 0);
    return status == BERYL_OK ? BERYL_EVENT : status;
}

static beryl_status tell(beryl_task *task, tuning *t, const product *x, bool won) {
    const lower_form *f = &x->best;
    const int n = snprintf(
        t->told, sizeof t->told,
        "%s %s %ux%u, %u vector%s: wg %u, lanes %u, rows %u, depth %u, groups %u%s", x->class.role,
        base_type_name(x->class.type), x->class.dim[0] * x->class.dim[1], x->class.dim[2],
        x->class.n, x->class.n == 1 ? "" : "s", f->wg, f->lanes, f->rows, f->depth, f->groups,
        f->apart == LOWER_SEPARATE_YES  ? ", vectors apart"
        : f->apart == LOWER_SEPARATE_NO ? ", vectors within"
                                        : "");
    const beryl_event event = {.kind = BERYL_EVENT_TEST,
                               .token = -1,
                               .ok = won,
                               .value = x->class.before > 0 ? x->class.after / x->class.before : 1};
    return task_put(task, event, t->told,
                    (size_t)n < sizeof t->told ? (size_t)n : sizeof t->told - 1);
}

/* A round: every class that is not done tries one form. OK: none has one left. */
static beryl_status round_run(tuning *t, beryl_error *error) {
    const device_caps *caps = device_caps_of(t->e->device);
    bool any = false, moved = false;
    for (uint32_t i = 0; i < t->n_product; i++) {
        product *x = &t->products[i];
        x->ended |= !next_candidate(x, caps, t->tries);
        any |= x->trying;
    }
    if (!any) return BERYL_OK;
    beryl_error why = {0};
    beryl_status status = open_plan(t, true, false, &t->plans[1], &why);
    const bool compiles = status == BERYL_OK;
    if (compiles) status = compare(t, &why);
    probe_close(&t->plans[1]);
    /* one of them does not compile here */
    if (status == BERYL_UNSUPPORTED || (status == BERYL_DEVICE && !compiles)) {
        base_log(&t->e->log, BERYL_LOG_DEBUG, "a round of tuning is left out: %s", why.message);
        for (uint32_t i = 0; i < t->n_product; i++) t->products[i].candidate_us = HUGE_VAL;
        status = BERYL_OK;
    }
    if (status != BERYL_OK) {
        if (error) *error = why;
        return status;
    }
    for (uint32_t i = 0; i < t->n_product; i++) {
        product *x = &t->products[i];
        if (!x->trying) continue;
        x->tried[x->n_tried++] = x->candidate;
        const lower_form *f = &x->candidate;
        base_log(&t->e->log, BERYL_LOG_DEBUG,
                 "%s %ux%u: wg %u lanes %u rows %u depth %u groups %u n_x %u apart %d: %.2f us, "
                 "best %.2f us",
                 x->class.role, x->class.dim[1], x->class.dim[2], f->wg, f->lanes, f->rows,
                 f->depth, f->groups, f->n_x, (int)f->apart, x->candidate_us, x->best_us);
        if (!(x->candidate_us < WIN * x->best_us)) continue;
        x->tried[x->n_tried - 1] = x->best;
        x->best = x->candidate;
        moved = true;
    }
    if (moved) {
        probe_close(&t->plans[0]);
        status = open_plan(t, false, false, &t->plans[0], error);
        if (status == BERYL_OK) status = warm_up(t, &t->plans[0], error);
    }
    return status == BERYL_OK ? BERYL_EVENT : status;
}

/* Whole steps without stamps between the dispatches, in turns: medians of the plan with the best
 * forms, and of the one in which a class (NULL: every class) is as chosen. */
static beryl_status compare_steps(tuning *t, product *without, double *best, double *other,
                                  beryl_error *error) {
    double seconds[2][LAST_RUNS] = {{0}};
    lower_form kept[PRODUCT_MAX];
    probe plans[2] = {{0}, {0}};
    beryl_status status = open_plan(t, false, true, &plans[0], error);
    for (uint32_t i = 0; i < t->n_product; i++) {
        product *x = &t->products[i];
        kept[i] = x->best;
        if (!without || x == without) x->best = x->chosen;
    }
    if (status == BERYL_OK) status = open_plan(t, false, true, &plans[1], error);
    for (uint32_t i = 0; i < t->n_product; i++) t->products[i].best = kept[i];
    for (int i = 0; status == BERYL_OK && i < 2; i++) status = run_once(&plans[i], error);
    for (uint32_t run = 0; status == BERYL_OK && run < LAST_RUNS; run++)
        for (int i = 0; status == BERYL_OK && i < 2; i++) {
            status = run_once(&plans[i], error);
            seconds[i][run] = graph_exec_seconds(plans[i].exec);
        }
    *best = 1e6 * measure_median(seconds[0], LAST_RUNS);
    *other = 1e6 * measure_median(seconds[1], LAST_RUNS);
    probe_close(&plans[0]);
    probe_close(&plans[1]);
    return status;
}

/* What won by itself has to make the step faster too: dispatches overlap, and timestamps keep
 * them apart. */
static beryl_status last_run(tuning *t, bool *faster, beryl_error *error) {
    double best, other;
    bool any = false;
    beryl_status status = BERYL_OK;
    *faster = false;
    for (uint32_t i = 0; status == BERYL_OK && i < t->n_product; i++) {
        product *x = &t->products[i];
        if (is_same(&x->best, &x->chosen)) continue;
        status = compare_steps(t, x, &best, &other, error);
        if (status != BERYL_OK) break;
        x->class.after = x->class.before - (other - best);
        if (!(other > best)) x->best = x->chosen;
        else if (!(x->class.after > x->class.before / 10)) x->class.after = x->class.before / 10;
        any |= other > best;
    }
    if (status != BERYL_OK || !any) return status;
    status = compare_steps(t, NULL, &best, &other, error);
    *faster = status == BERYL_OK && best < other;
    if (status == BERYL_OK)
        base_log(&t->e->log, BERYL_LOG_INFO, "a step of %u: %.1f us as chosen, %.1f us as tuned%s",
                 t->products[0].class.n, other, best, *faster ? "" : ": left as chosen");
    return status;
}

static beryl_status plan_end(beryl_task *task, tuning *t) {
    bool any = false, faster = false;
    for (uint32_t i = 0; i < t->n_product; i++)
        any |= !is_same(&t->products[i].best, &t->products[i].chosen);
    beryl_status status = any ? last_run(t, &faster, &task->error) : BERYL_OK;
    for (uint32_t i = 0; status == BERYL_OK && i < t->n_product; i++) {
        product *x = &t->products[i];
        const bool won = faster && !is_same(&x->best, &x->chosen);
        if (x->known || !x->chosen.wg || !x->n_tried) continue;
        if (!won) x->best = x->chosen, x->class.after = x->class.before;
        engine_tuned *to = base_vec_add(&t->e->heap, &t->found);
        if (!to) return base_no_memory(&task->error);
        *to = x->class;
        to->form.form = x->best;
        to->form.form.tuned = true;
        /* as chosen: nothing is searched a second time */
        if (!won) to->form.form = (lower_form){.tuned = true};
        t->n_found += won;
        status = tell(task, t, x, won);
    }
    probe_close(&t->plans[0]);
    return status;
}

/* ---- schedules ------------------------------------------------------------------------------- */

/* Plans whose kernels have schedules, or numbers to choose: those of products' forms,
 * then those of prompts. */
static const engine_plan_kind prompt_kinds[] = {PLAN_PREFILL, PLAN_OUTPUT_SMALL};
enum { N_PROMPT = sizeof prompt_kinds / sizeof *prompt_kinds, SCHEDULES_TIMED = 12 };

static engine_plan_kind scheduled_kind(const tuning *t, uint32_t i) {
    return i < t->n_kind ? t->kinds[i] : prompt_kinds[i - t->n_kind];
}

static bool is_stopped(void *user) {
    const tuning *t = user;
    return task_is_cancelled(t->task);
}

/* A plan is opened, and kernels of it are searched on the way, or counted. */
static beryl_status schedules_open(tuning *t, uint32_t i, gemma4_text_options *how,
                                   beryl_error *error) {
    const graph_exec_options with = {.exact = t->e->options.precision == BERYL_PRECISION_EXACT,
                                     .search = &t->search};
    probe p;
    *how = engine_plan_options(t->e, scheduled_kind(t, i));
    t->e->store.schedules = t->search.cache;
    const beryl_status status = probe_open(t->e, how, 0, &with, &p, error);
    probe_close(&p);
    t->e->store.schedules = NULL;
    return status;
}

static beryl_status schedules_begin(tuning *t, beryl_error *error) {
    beryl_engine *e = t->e;
    beryl_status status = BERYL_OK;
    t->at_kind = 0;
    if (!t->n_scheduled) return BERYL_OK;
    const char *path = engine_schedules_path(&e->arena);
    if (path && !e->schedules) e->schedules = ir_cache_open(&e->heap, path, &e->log);
    if (!e->schedules) return base_no_memory(error);
    t->search = (lower_search){.cache = e->schedules,
                               .n_timed = t->tries < SCHEDULES_TIMED ? t->tries : SCHEDULES_TIMED,
                               .again = t->again,
                               .counts = true,
                               .stopped = is_stopped,
                               .user = t};
    gemma4_text_options how;
    for (uint32_t i = 0; status == BERYL_OK && i < t->n_scheduled; i++)
        status = schedules_open(t, i, &how, error);
    t->n_search = t->search.n_done;
    t->search.n_done = 0;
    t->search.counts = false;
    return status;
}

/* One kernel that has not been searched. OK: there are no more of this plan. */
static beryl_status schedule_search(beryl_task *task, tuning *t) {
    const uint32_t n = t->search.n_done;
    gemma4_text_options how;
    t->search.left = 1;
    beryl_status status = schedules_open(t, t->at_kind, &how, &task->error);
    if (status != BERYL_OK || t->search.n_done == n) return status;
    const bool won = t->search.after < WIN * t->search.before && t->search.before < HUGE_VAL;
    const char *numbers = t->search.numbers;
    const int size = snprintf(t->told, sizeof t->told, "%s%s, %u vector%s%s%s",
                              *numbers ? "" : "schedule of ", t->search.name, how.n_token,
                              how.n_token > 1 ? "s" : "", *numbers ? ": " : "", numbers);
    const beryl_event event = {.kind = BERYL_EVENT_TEST,
                               .token = -1,
                               .ok = won,
                               .value = won ? t->search.after / t->search.before : 1};
    t->n_found += won;
    status = task_put(task, event, t->told, (size_t)size);
    return status == BERYL_OK ? BERYL_EVENT : status;
}

static beryl_status schedules_step(beryl_task *task, tuning *t) {
    beryl_status status =
        t->at_kind < t->n_scheduled && !t->stopped ? schedule_search(task, t) : BERYL_EVENT;
    if (status == BERYL_CANCELLED) t->stopped = true, status = BERYL_EVENT;
    if (status == BERYL_OK) t->at_kind++, status = BERYL_EVENT;
    if (status != BERYL_EVENT) return status;
    if (t->stopped || t->at_kind == t->n_scheduled) t->stage = TUNE_LAST;
    return progress(task, t);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* What was found replaces and joins what the engine had. */
static beryl_status adopt(tuning *t, beryl_error *error) {
    beryl_engine *e = t->e;
    for (size_t i = 0; i < t->found.count; i++) {
        engine_tuned *to = NULL;
        for (size_t k = 0; k < e->tuned.count && !to; k++)
            if (e->tuned.data[k].form.key == t->found.data[i].form.key) to = &e->tuned.data[k];
        if (!to) to = base_vec_add(&e->heap, &e->tuned);
        if (!to) return base_no_memory(error);
        *to = t->found.data[i];
    }
    engine_plans_close(e); /* they have the old forms */
    engine_tuned_use(e, true);
    return BERYL_OK;
}

/* The plans with the new forms, whose kernels are then checked as after any load. PENDING: go
 * on. */
static beryl_status check_plans(tuning *t, beryl_error *error) {
    engine_plan *plan;
    for (uint32_t i = 0; i < t->n_kind; i++) {
        const beryl_status status = engine_plan_get(t->e, t->kinds[i], &plan, error);
        if (status != BERYL_OK) return status;
    }
    for (uint32_t i = 0; i < N_PROMPT && t->search.n_done; i++) {
        const beryl_status status = engine_plan_get(t->e, prompt_kinds[i], &plan, error);
        if (status != BERYL_OK) return status;
    }
    return BERYL_OK;
}

/* A kernel is wrong with a new form: none is kept. */
static void forgo(tuning *t, const beryl_error *why) {
    base_log(&t->e->log, BERYL_LOG_WARNING, "nothing is kept of this tuning: %s", why->message);
    engine_plans_close(t->e);
    const char *path = t->search.n_done ? engine_schedules_path(&t->e->arena) : NULL;
    if (path) remove(path); /* one of them may be to blame */
    engine_tuned_recall(t->e);
    engine_tuned_use(t->e, true);
    t->n_found = 0;
}

static beryl_status keep(tuning *t, beryl_error *error) {
    return t->e->options.no_cache || !t->found.count ? BERYL_OK : engine_tuned_keep(t->e, error);
}

/* The last stages go by even if the search was cancelled. */
static beryl_status end_step(beryl_task *task, tuning *t) {
    beryl_error why = {0};
    beryl_status status = BERYL_OK;
    if (t->stage == TUNE_LAST) {
        status = adopt(t, &task->error);
        if (status != BERYL_OK) return status;
        t->stage = TUNE_CHECK;
    }
    status = check_plans(t, &why);
    if (status == BERYL_PENDING) return status;
    if (status == BERYL_OK) status = keep(t, &task->error);
    else if (status == BERYL_DEVICE || status == BERYL_UNSUPPORTED)
        forgo(t, &why), status = BERYL_OK;
    else task->error = why;
    t->stage = TUNE_DONE;
    if (status == BERYL_OK && t->stopped)
        return base_fail(&task->error, BERYL_CANCELLED, "tuning was stopped; %u forms were kept",
                         t->n_found);
    return status;
}

static beryl_status tune_step(beryl_task *task) {
    tuning *t = task->state;
    beryl_error *error = &task->error;
    if (task_is_cancelled(task) && t->stage < TUNE_LAST) t->stopped = true;
    if (t->stopped && t->stage < TUNE_CANDIDATE) t->stage = TUNE_LAST;
    if (t->stage == TUNE_SCHEDULES) return schedules_step(task, t);
    if (t->stage >= TUNE_LAST) return end_step(task, t);
    if (t->stage == TUNE_BEGIN) {
        t->stage = TUNE_PLAN;
        return progress(task, t);
    }
    if (t->stage == TUNE_PLAN) {
        const beryl_status status = find_products(t, error);
        if (status != BERYL_OK) return status;
        t->stage = TUNE_CANDIDATE;
        return progress(task, t);
    }
    beryl_status status = t->stopped ? BERYL_OK : round_run(t, error);
    if (status == BERYL_EVENT) return progress(task, t);
    if (status != BERYL_OK) return status;
    status = plan_end(task, t);
    t->stage = t->stopped ? TUNE_LAST : ++t->at_kind < t->n_kind ? TUNE_PLAN : TUNE_SCHEDULES;
    t->n_product = 0;
    if (status == BERYL_OK && t->stage == TUNE_SCHEDULES) status = schedules_begin(t, error);
    return status == BERYL_OK ? progress(task, t) : status;
}

static void tuning_drop(beryl_engine *e, tuning *t) {
    for (int i = 0; i < 2; i++)
        if (t->plans[i].e) probe_close(&t->plans[i]);
    base_vec_fini(&e->heap, &t->found);
    base_heap_give(&e->heap, t, sizeof *t);
    if (!e->store.tuned) engine_tuned_use(e, true);
}

static void tune_close(beryl_task *task) {
    tuning_drop(task->engine, task->state);
}

beryl_status beryl_engine_tune(beryl_engine *e, const beryl_tune_options *options,
                               beryl_task **task, beryl_error *error) {
    static const beryl_tune_options none = {.size = sizeof none};
    if (task) *task = NULL;
    if (!e || !task || !e->loaded || e->options.vocabulary_only)
        return base_fail(
            error, BERYL_MISUSE,
            "beryl_engine_tune needs an engine with a loaded model and a place for the task");
    if (!options) options = &none;
    if (options->size < offsetof(beryl_tune_options, again) || options->size > 1 << 16)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_tune_options.size is %zu: set it to sizeof(beryl_tune_options)",
                         options->size);
    beryl_tune_options o = none;
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    if (o.tries > TRIES_MAX)
        return base_fail(error, BERYL_BAD_INPUT, "%u tries: at most %d", o.tries, TRIES_MAX);
    beryl_status status = probe_allowed(e, error);
    if (status != BERYL_OK) return status;
    if (!e->options.no_cache) status = engine_cache_folder(&e->arena, error);
    if (status != BERYL_OK) return status;
    if (!device_caps_of(e->device)->timestamps)
        return base_fail(error, BERYL_UNSUPPORTED, "%s has no timestamps to tune by",
                         device_caps_of(e->device)->name);
    tuning *t = base_heap_take(&e->heap, sizeof *t);
    if (!t) return base_no_memory(error);
    t->e = e;
    t->tries = o.tries ? o.tries : TRIES_DEFAULT;
    t->again = o.again;
    if (engine_has_near(e)) t->kinds[t->n_kind++] = PLAN_DECODE_NEAR;
    t->kinds[t->n_kind++] = PLAN_DECODE;
    if (e->options.sessions > 1)
        t->kinds[t->n_kind++] = e->options.sessions <= 8 ? PLAN_DECODE_8 : PLAN_DECODE_ALL;
    if (!e->options.no_cache) t->n_scheduled = t->n_kind + N_PROMPT;
    status = task_open(e, NULL, tune_step, task, error);
    if (status != BERYL_OK) {
        tuning_drop(e, t);
        return status;
    }
    t->task = *task;
    (*task)->state = t;
    (*task)->close = tune_close;
    return BERYL_OK;
}

#endif
