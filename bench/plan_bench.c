/* plan_bench.c - where the time of a model's plans goes, dispatch by dispatch, by the device's
 * own clock.
 *   plan_bench [MODEL] [decode|prefill|output] [N_TOKEN] [DEPTH] [exact] [sweep]
 * sweep: reads other forms of products from stdin, a plan a line, and prints what a step of each
 * takes, and its dispatches of those products. A line is a list of
 * PRODUCT=wg,lanes,rows,depth,groups,n_x[,apart|within] (tile/form.h; 0 or nothing: as it is
 * chosen); PRODUCT is one of the table below, or a part of the weight's name. An empty line: all
 * as chosen, and all dispatches. So
 *   printf '\nqkv=512,16,1,1,132\nqkv=,,,,,,apart down=128,32,1,2\n' | plan_bench e2b.gguf decode 1
 *   100 sweep
 * Reads inside the library: it is for those who work on kernels. */
#include "engine/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A GPU that was idle, while a program was compiled, takes a while to clock up again. */
#define WARM_SECONDS 0.3
enum { RUNS = 48, FORM_MAX = 12, LINE_MAX_BYTES = 1024, KIND_MAX = 64 };

static const struct {
    const char *name, *weight;
} products[] = {
    {"qkv", "attn_q.weight"},
    {"attn_output", "attn_output.weight"},
    {"gate_up", "ffn_gate.weight"},
    {"down", "ffn_down.weight"},
    {"inp_gate", "inp_gate.weight"},
    {"proj", ".proj.weight"},
    {"head", "token_embd.weight"},
    {"router", "ffn_gate_inp.weight"},
    {"experts_gate_up", "ffn_gate_up_exps.weight"},
    {"experts_down", "ffn_down_exps.weight"},
};

static int fail(const char *what, const beryl_error *error) {
    fprintf(stderr, "plan_bench: %s: %s\n", what, error->message);
    return 1;
}

/* ---- one plan -------------------------------------------------------------------------------- */

typedef struct job { /* what is asked for */
    beryl_engine *e;
    gemma4_text_options how;
    uint32_t depth;
    bool exact;
} job;

static beryl_status plan_of(const job *j, const lower_form *forms, uint32_t n_form, bool stamped,
                            probe *p, beryl_error *error) {
    const graph_exec_options with = {
        .exact = j->exact, .stamped = stamped, .forms = forms, .n_form = n_form};
    beryl_status status = probe_open(j->e, &j->how, j->depth, &with, p, error);
    while (status == BERYL_OK && (status = probe_ready(p, error)) == BERYL_PENDING)
        base_sleep(1e-3), status = BERYL_OK;
    if (status != BERYL_OK) probe_close(p);
    return status;
}

/* Seconds of a step among many: two are on their way at any time. Negative: it did not run. */
static double step_of(probe *p, beryl_error *error) {
    device_ticket before = 0;
    uint32_t n = 0;
    const double first = base_time();
    double start = 0;
    for (uint32_t i = 0; n < RUNS; i++) {
        const device_ticket last = p->ticket;
        if (i >= 2 && device_wait(p->e->device, before, error) != BERYL_OK) return -1;
        if (start != 0) n++;
        else if (i >= 2 && base_time() - first > WARM_SECONDS) start = base_time();
        before = last;
        if (probe_submit(p, error) != BERYL_OK) return -1;
    }
    const double seconds = (base_time() - start) / RUNS;
    return probe_wait(p, error) == BERYL_OK ? seconds : -1;
}

typedef struct kind {
    char name[64];
    uint32_t n;
    double microseconds;
} kind;

/* "fused matvec blk.3.attn_q.weight" is of the kind "fused matvec attn_q.weight". */
static void kind_name(const char *label, char *to, size_t size) {
    const char *layer = strstr(label, "blk."), *rest = layer ? strchr(layer + 4, '.') : NULL;
    if (rest) snprintf(to, size, "%.*s%s", (int)(layer - label), label, rest + 1);
    else snprintf(to, size, "%s", label);
}

static uint32_t kinds_of(const probe *m, double stamp, kind *kinds) {
    graph_exec_step step;
    uint32_t n = 0;
    for (uint32_t i = 0; graph_exec_step_at(m->exec, i, &step); i++) {
        char name[sizeof kinds->name];
        uint32_t k = 0;
        kind_name(step.label, name, sizeof name);
        while (k < n && strcmp(kinds[k].name, name) != 0) k++;
        if (k == KIND_MAX) continue;
        if (k == n) {
            kinds[n] = (kind){.n = 0};
            memcpy(kinds[n++].name, name, sizeof name);
        }
        kinds[k].n++;
        kinds[k].microseconds += step.microseconds - stamp;
    }
    return n;
}

static double stamped_total(const probe *m, uint32_t *n) {
    graph_exec_step step;
    double total = 0;
    for (*n = 0; graph_exec_step_at(m->exec, *n, &step); ++*n) total += step.microseconds;
    return total;
}

/* Runs a plan until the device is warm; seconds of the last step, negative: it did not run. */
static double warm(probe *p, beryl_error *error) {
    const double first = base_time();
    for (double start = first;; start = base_time()) {
        if (probe_submit(p, error) != BERYL_OK || probe_wait(p, error) != BERYL_OK ||
            probe_read(p, error) != BERYL_OK)
            return -1;
        if (base_time() - first > WARM_SECONDS) return base_time() - start;
    }
}

/* ---- a sweep --------------------------------------------------------------------------------- */

/* "qkv=512,16,1,1,132,1,apart"; cuts it up. false: not of that form. */
static bool form_of(char *word, lower_form *f) {
    char *at = strchr(word, '=');
    uint32_t *const numbers[] = {&f->wg, &f->lanes, &f->rows, &f->depth, &f->groups, &f->n_x};
    if (!at) return false;
    *at++ = 0;
    *f = (lower_form){.weight = word};
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        if (!strcmp(products[i].name, word)) f->weight = products[i].weight;
    for (size_t i = 0; *at; i++) {
        char *end = strchr(at, ',');
        if (end) *end = 0;
        if (!strcmp(at, "apart")) f->apart = LOWER_SEPARATE_YES;
        else if (!strcmp(at, "within")) f->apart = LOWER_SEPARATE_NO;
        else if (i < sizeof numbers / sizeof *numbers)
            *numbers[i] = (uint32_t)strtoul(at, NULL, 10);
        else return false;
        at = end ? end + 1 : at + strlen(at);
    }
    return true;
}

static bool is_asked(const char *name, const lower_form *forms, uint32_t n_form) {
    bool asked = n_form == 0;
    for (uint32_t i = 0; i < n_form; i++)
        asked |= strstr(name, forms[i].weight + (forms[i].weight[0] == '.')) != NULL;
    return asked;
}

static int sweep(const job *j) {
    char text[LINE_MAX_BYTES], cut[LINE_MAX_BYTES];
    while (fgets(text, sizeof text, stdin)) {
        lower_form forms[FORM_MAX];
        kind kinds[KIND_MAX];
        uint32_t n_form = 0, n_step;
        beryl_error error = {0};
        probe plain, stamped;
        text[strcspn(text, "\n")] = 0;
        memcpy(cut, text, sizeof cut);
        for (char *word = strtok(cut, " "); word; word = strtok(NULL, " "))
            if (n_form == FORM_MAX || !form_of(word, &forms[n_form++]))
                return fprintf(stderr, "plan_bench: a form is PRODUCT=numbers: %s\n", text), 2;
        printf("== %s\n", *text ? text : "as chosen");
        if (plan_of(j, forms, n_form, false, &plain, &error) != BERYL_OK) {
            printf("   %s\n", error.message);
            continue;
        }
        const double seconds = step_of(&plain, &error);
        probe_close(&plain);
        if (seconds < 0 || plan_of(j, forms, n_form, true, &stamped, &error) != BERYL_OK)
            return fail("running", &error);
        if (warm(&stamped, &error) < 0) return fail("running", &error);
        double stamp = (stamped_total(&stamped, &n_step) - 1e6 * seconds) / n_step;
        if (stamp < 0) stamp = 0; /* where other work is in the way */
        const uint32_t n_kind = kinds_of(&stamped, stamp, kinds);
        printf("   step %.3f ms, %u dispatches; a stamp costs %.2f us\n", 1e3 * seconds, n_step,
               stamp);
        for (uint32_t i = 0; i < n_kind; i++)
            if (is_asked(kinds[i].name, forms, n_form))
                printf("   %8.2f us each %4u times, %8.1f us  %s\n",
                       kinds[i].microseconds / kinds[i].n, kinds[i].n, kinds[i].microseconds,
                       kinds[i].name);
        fflush(stdout);
        probe_close(&stamped);
    }
    return 0;
}

static int print(const job *j) {
    probe m;
    beryl_error error = {0};
    if (plan_of(j, NULL, 0, true, &m, &error) != BERYL_OK) return fail("planning", &error);
    const double seconds = warm(&m, &error);
    if (seconds < 0) return fail("running", &error);
    printf("step with stamps: %.3f ms\n", seconds * 1e3);
    base_text out;
    base_text_init(&out, &j->e->heap);
    graph_exec_print(m.exec, &out);
    fwrite(out.data, 1, out.size, stdout);
    base_text_fini(&out);
    probe_close(&m);
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 2 ? argv[2] : "decode";
    uint32_t n = argc > 3 ? (uint32_t)atoi(argv[3]) : 1,
             depth = argc > 4 ? (uint32_t)atoi(argv[4]) : 16;
    bool exact = false, sweeps = false, decode = !strcmp(what, "decode"),
         output = strcmp(what, "prefill") != 0;
    for (int i = 5; i < argc; i++)
        exact |= !strcmp(argv[i], "exact"), sweeps |= !strcmp(argv[i], "sweep");
    if (n == 0 || (sweeps && !output)) {
        fputs(
            "usage: plan_bench [MODEL] [decode|prefill|output] [N_TOKEN] [DEPTH] [exact] [sweep]\n",
            stderr);
        return 2;
    }
    beryl_engine_options options = {.size = sizeof options,
                                    .model = argc > 1 ? argv[1] : NULL,
                                    .context = depth + n + 64,
                                    .sessions = decode ? n : 1,
                                    .precision =
                                        exact ? BERYL_PRECISION_EXACT : BERYL_PRECISION_FAST};
    beryl_engine *e = NULL;
    beryl_task *task = NULL;
    beryl_error error = {0};
    int result = 0;
    if (beryl_engine_open(&options, &e, &error) || beryl_engine_load(e, &task, &error))
        result = fail("opening", &error);
    beryl_status status = BERYL_OK;
    while (task && (status = beryl_wait(task, NULL)) == BERYL_EVENT) {}
    if (status != BERYL_OK) result = fail("loading", beryl_task_error(task));
    else if (!result && !e->device) result = (fputs("plan_bench: needs a device\n", stderr), 1);
    beryl_task_close(task);
    /* a device that compiles must not outlive main */
    if (result) return beryl_engine_close(e), result;
    const job j = {.e = e,
                   .depth = depth,
                   .exact = exact,
                   .how = {.n_token = n,
                           .n_output = output && !decode,
                           .decode = decode,
                           .sample = output,
                           .near = decode && n == 1 && depth + n < ENGINE_NEAR ? ENGINE_NEAR : 0}};
    result = sweeps ? sweep(&j) : print(&j);
    beryl_engine_close(e);
    return result;
}
