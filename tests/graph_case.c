/* graph_case.c - see graph_case.h. What inputs may hold (indices into what, slots that differ)
 * follows from what reads them, so a graph needs nothing beside its text. */
#define _POSIX_C_SOURCE 200809L
#include "graph_case.h"
#include "blocks.h"
#include "graph_judge.h"
#include "interpreter.h"
#include "rig.h"

#include "base/error.h"
#include "base/sample.h"
#include "base/thread.h"
#include "plan/exec.h"
#include "graph/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 3, FETCH = 4, LINES_MAX = 300 };

typedef struct side {
    base_heap heap;
    graph *g;
    graph_store store;
    beryl_source source;
    graph_exec *exec; /* one of the two */
    graph_judge *judge;
} side;

typedef struct bench { /* both sides and what they share */
    unsigned char *file;
    uint64_t file_bytes;
    side sides[2];
    graph_value outputs[FETCH];
    uint32_t n_output;
} bench;

/* ---- opening --------------------------------------------------------------------------------- */

static beryl_status file_read(void *user, uint64_t offset, void *to, size_t size) {
    const bench *b = user;
    if (offset > b->file_bytes || size > b->file_bytes - offset) return BERYL_IO;
    memcpy(to, b->file + offset, size);
    return BERYL_OK;
}

static beryl_status side_open(bench *b, side *s, device *d, const char *text, beryl_error *error) {
    uint64_t bytes = 0;
    base_heap_init(&s->heap, NULL);
    s->source = (beryl_source){.user = b, .read = file_read};
    beryl_status status = store_init(&s->store, &s->heap, d, &s->source, 1, error);
    s->g = graph_open(&s->heap);
    if (status == BERYL_OK)
        status = graph_text_parse(text, strlen(text), s->g, &s->store, &bytes, error);
    if (status == BERYL_OK && !b->file) {
        b->file = calloc(bytes + 1, 1);
        b->file_bytes = bytes;
        for (size_t i = 0; i < s->store.tensors.count; i++) {
            const store_tensor *t = &s->store.tensors.data[i];
            if (!t->is_state)
                blocks_fill(t->type, t->file_bytes, b->file + t->file_offset, (uint32_t)i * 77 + 5);
        }
    }
    s->source.size = bytes;
    if (status == BERYL_OK) status = store_layout(&s->store, 0, error);
    if (status == BERYL_OK) status = store_make(&s->store, error);
    while (status == BERYL_OK && (status = store_upload_step(&s->store, error)) != BERYL_OK)
        if (status == BERYL_EVENT || status == BERYL_PENDING) status = BERYL_OK;
        else break;
    return status;
}

static beryl_status exec_open(side *s, bool unfused, uint64_t draws, beryl_error *error) {
    const graph_exec_options options = {.exact = true, .unfused = unfused, .draws = draws};
    beryl_status status = graph_exec_open(s->g, &s->store, &options, &s->exec, error);
    return status == BERYL_OK ? rig_exec_compiled(s->exec, error) : status;
}

static uint64_t side_close(side *s) {
    graph_exec_close(s->exec);
    graph_judge_close(s->judge);
    graph_close(s->g);
    store_fini(&s->store);
    return s->heap.bytes;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* of whole numbers: below `most`, maybe all different, maybe one after the other */
typedef struct rule {
    uint32_t most;
    bool different, rising;
} rule;

static void below(rule *r, uint32_t most) {
    if (most < r->most) r->most = most;
}

static rule rule_of(const graph *g, graph_value v) {
    rule r = {UINT32_MAX, false, false};
    const uint32_t n = graph_tensor_at(g, v)->dim[0].size;
    for (size_t i = 0; i < g->nodes.count; i++) {
        const graph_node *node = &g->nodes.data[i];
        for (uint32_t k = 0; k < node->n_in; k++) {
            if (graph_base_of(g, node->in[k]) != v) continue;
            const graph_tensor *first = graph_tensor_at(g, node->in[0]),
                               *second = graph_tensor_at(g, node->in[1]);
            if (node->op == OP_GATHER_ROWS)
                below(&r, first->dim[0].extent ? 1 : first->dim[0].size);
            if (node->op == OP_LINEAR_ID) below(&r, second->dim[0].size);
            if (node->op == OP_SET_ROWS && k == 2)
                below(&r, first->dim[0].size), r.different = true;
            if (node->op != OP_KV_WRITE && node->op != OP_ATTENTION) continue;
            const graph_tensor *cache = node->op == OP_KV_WRITE ? first : second;
            const bool slot = k == (node->op == OP_KV_WRITE ? 2u : 3u);
            below(&r, cache->dim[slot ? 0 : 1].size);
            if (slot) r.different |= n <= r.most;
            /* slots come more than once, so positions may not */
            else r.rising |= n > cache->dim[0].size;
            if (!slot && node->op == OP_ATTENTION && node->attr.attention.most)
                below(&r, node->attr.attention.most);
        }
    }
    if (r.most == UINT32_MAX) r.most = 50; /* nothing reads them as indices */
    return r;
}

/* odd: one in four is out of range. */
static bool fill_whole(const graph *g, graph_value v, int32_t *to, base_random *random, bool odd) {
    const graph_tensor *t = graph_tensor_at(g, v);
    const rule r = rule_of(g, v);
    const uint64_t n = graph_element_bound(t);
    if ((r.different || r.rising) && n > r.most) return false;
    const uint32_t start =
        (uint32_t)(base_random_next(random) % (r.rising ? r.most - (uint32_t)n + 1 : r.most));
    for (uint64_t i = 0; i < n; i++) {
        if (r.rising) to[i] = (int32_t)(start + (uint32_t)i);
        else if (r.different) to[i] = (int32_t)((start + i) % r.most);
        else to[i] = (int32_t)(base_random_next(random) % r.most);
        if (odd && base_random_next(random) % 4 == 0)
            to[i] = i % 2 ? -1 - (int32_t)(base_random_next(random) % 9) : INT32_MIN;
    }
    return true;
}

static void fill_settings(base_sample_settings *to, uint64_t n, base_random *random) {
    for (uint64_t i = 0; i < n; i++)
        to[i] = (base_sample_settings){
            .temperature = i % 2 ? 0.8f : 0,
            .top_p = i % 3 ? 1 : 0.9f,
            .top_k = i % 4 ? 0 : 5,
            .seed = {(uint32_t)base_random_next(random), (uint32_t)base_random_next(random)},
            .counter = (uint32_t)base_random_next(random)};
}

/* false: there are no such numbers. */
static bool fill(const graph *g, graph_value v, void *to, uint64_t seed) {
    const graph_tensor *t = graph_tensor_at(g, v);
    base_random random = {seed * 1000003 + v};
    const uint64_t n = graph_element_bound(t);
    base_random other = {seed * 31 + v};
    if (t->type == TYPE_I32)
        return fill_whole(g, v, to, &random, base_random_next(&other) % 4 == 0);
    if (t->type == TYPE_U32) return fill_settings(to, n / 8, &random), n % 8 == 0;
    for (uint64_t i = 0; i < n; i++) {
        const uint32_t odd = (uint32_t)(base_random_next(&random) % 32);
        const float unit = (float)(base_random_unit(&random) * 2 - 1);
        ((float *)to)[i] = odd == 0 ? 0 : odd == 1 ? unit * 8 : unit;
    }
    return true;
}

/* ---- comparing ------------------------------------------------------------------------------- */

typedef struct walk {
    const graph_tensor *t;
    const uint32_t *extents;
    const void *got, *want;
    const double *bound;
    uint64_t wrong, first;
    graph_result *result;
} walk;

static void compare(walk *w, uint32_t axis, uint64_t at) {
    if (axis < w->t->rank) {
        for (uint32_t i = 0, n = graph_dim_value(w->t->dim[axis], w->extents); i < n; i++)
            compare(w, axis + 1, at + (uint64_t)i * w->t->stride[axis]);
        return;
    }
    const bool whole = w->t->type == TYPE_I32;
    const double want =
        whole ? (double)((const int32_t *)w->want)[at] : (double)((const float *)w->want)[at];
    const double got =
        whole ? (double)((const int32_t *)w->got)[at] : (double)((const float *)w->got)[at];
    if (!(w->bound[at] < 1e30 && fabs(want) < 1e30)) {
        w->result->unknown++;
        return;
    }
    w->result->compared++;
    w->result->loose += w->bound[at] > 0.01 * fmax(1, fabs(want));
    if (!(fabs(got - want) <= w->bound[at]) && w->wrong++ == 0) w->first = at;
}

static void check_output(const bench *b, uint32_t run, uint32_t n, const uint32_t *extents,
                         const void *got, graph_result *result, bool *wrong) {
    const graph *g = b->sides[0].g;
    const graph_value v = b->outputs[n];
    walk w = {graph_tensor_at(g, v),
              extents,
              got,
              graph_judge_value(b->sides[0].judge, v),
              graph_judge_bound(b->sides[0].judge, v),
              0,
              0,
              result};
    compare(&w, 0, 0);
    if (!w.wrong || *wrong) return;
    *wrong = true;
    const bool whole = w.t->type == TYPE_I32;
    snprintf(result->message, sizeof result->message,
             "run %u, output %%%u: %llu numbers wrong; number %llu is %.9g, not %.9g, bound %.3g",
             run, v, (unsigned long long)w.wrong, (unsigned long long)w.first,
             whole ? (double)((const int32_t *)got)[w.first]
                   : (double)((const float *)got)[w.first],
             whole ? (double)((const int32_t *)w.want)[w.first]
                   : (double)((const float *)w.want)[w.first],
             w.bound[w.first]);
}

/* Line n of those that say "; run 5 0 3", the given extents in order; NULL: there are fewer. */
static const char *run_line(const char *text, uint32_t n) {
    const char *line = strstr(text, "; run ");
    while (line && n--) line = strstr(line + 1, "; run ");
    return line ? line + 6 : NULL;
}

/* As the text says; else the bounds, then any, then half of them 0. */
static void choose_extents(const graph *g, const char *line, uint32_t run, uint64_t seed,
                           uint32_t *extents) {
    base_random random = {seed + run};
    for (uint32_t i = 1; i <= g->n_extent; i++) {
        const uint32_t any = 1 + (uint32_t)(base_random_next(&random) % g->extents[i].bound);
        char *end = NULL;
        if (line && !g->extents[i].divisor) {
            extents[i] = (uint32_t)strtoul(line, &end, 10);
            line = end;
        } else if (!line) {
            extents[i] = run == 0                                    ? g->extents[i].bound
                         : run == 2 && base_random_next(&random) % 2 ? 0
                                                                     : any;
        }
    }
}

/* Both sides with the same inputs; the judge's verdict on the graph comes first. */
static graph_verdict run_both(bench *b, uint32_t run, const char *line, const graph_how *how,
                              graph_result *result, beryl_error *error) {
    side *want = &b->sides[0], *got = &b->sides[1];
    uint32_t extents[GRAPH_EXTENT_MAX + 1] = {0};
    choose_extents(want->g, line, run, how->seed, extents);
    if (graph_extent_values(want->g, extents, extents, error) != BERYL_OK) return GRAPH_NO_CASE;
    for (graph_value v = 1; v < want->g->tensors.count; v++) {
        const graph_tensor *t = graph_tensor_at(want->g, v);
        if (t->role != ROLE_INPUT || t->base) continue;
        void *to = graph_exec_input(got->exec, v);
        if (!fill(want->g, v, graph_judge_input(want->judge, v), how->seed + run))
            return GRAPH_NO_CASE;
        if (to) memcpy(to, graph_judge_input(want->judge, v), (size_t)graph_element_bound(t) * 4);
    }
    if (graph_judge_run(want->judge, extents, error) != BERYL_OK) return GRAPH_NO_CASE;
    device_ticket ticket;
    bool wrong = false;
    beryl_status status =
        graph_exec_submit(got->exec, extents, b->outputs, b->n_output, &ticket, error);
    if (status == BERYL_OK && how->d) status = device_wait(how->d, ticket, error);
    for (uint32_t n = 0; status == BERYL_OK && n < b->n_output; n++) {
        const void *data;
        status = graph_exec_fetched(got->exec, ticket, n, &data, error);
        if (status == BERYL_OK) check_output(b, run, n, extents, data, result, &wrong);
    }
    if (status == BERYL_OK) return wrong ? GRAPH_WRONG : GRAPH_RIGHT;
    snprintf(result->message, sizeof result->message, "run %u: %s", run, error->message);
    return status == BERYL_UNSUPPORTED ? GRAPH_REFUSED : GRAPH_WRONG;
}

/* A run of nothing that gives nothing back ends too, even where its command list is empty. */
static graph_verdict run_nothing(side *got, const graph_how *how, graph_result *result,
                                 beryl_error *error) {
    static const uint32_t none[GRAPH_EXTENT_MAX + 1];
    device_ticket ticket;
    beryl_status status = graph_exec_submit(got->exec, none, NULL, 0, &ticket, error);
    if (status == BERYL_OK && how->d) status = device_wait(how->d, ticket, error);
    if (status == BERYL_OK) return GRAPH_RIGHT;
    snprintf(result->message, sizeof result->message, "run of nothing: %s", error->message);
    return GRAPH_WRONG;
}

graph_verdict graph_case_run(const char *text, const graph_how *how, graph_result *result) {
    bench b = {0};
    beryl_error error = {0};
    *result = (graph_result){0};
    graph_verdict verdict = GRAPH_NO_CASE;
    beryl_status status = side_open(&b, &b.sides[0], NULL, text, &error);
    if (status == BERYL_OK &&
        (b.sides[0].judge = graph_judge_open(b.sides[0].g, &b.sides[0].store))) {
        const graph *g = b.sides[0].g;
        for (graph_value v = 1; v < g->tensors.count && b.n_output < FETCH; v++)
            if (graph_tensor_at(g, v)->role == ROLE_OUTPUT) b.outputs[b.n_output++] = v;
        if (how->d && !strcmp(how->d->caps.backend, "interpreter"))
            interpreter_draw(how->d, how->as_it_is ? 0 : how->seed);
        status = side_open(&b, &b.sides[1], how->d, text, &error);
        if (status == BERYL_OK)
            status = exec_open(&b.sides[1], how->unfused,
                               how->as_it_is || how->seed % 2 == 0 ? 0 : how->seed, &error);
        verdict = status == BERYL_OK            ? GRAPH_RIGHT
                  : status == BERYL_UNSUPPORTED ? GRAPH_REFUSED
                                                : GRAPH_WRONG;
    }
    if (status != BERYL_OK)
        snprintf(result->message, sizeof result->message, "%s: %s", beryl_status_name(status),
                 error.message);
    const char *line = run_line(text, 0);
    const bool said = line != NULL;
    for (uint32_t run = 0; (said ? line != NULL : run < RUNS) && verdict == GRAPH_RIGHT; run++) {
        verdict = run_both(&b, run, line, how, result, &error);
        if (said) line = run_line(text, run + 1);
    }
    if (verdict == GRAPH_RIGHT) verdict = run_nothing(&b.sides[1], how, result, &error);
    for (int i = 0; i < 2; i++)
        if (side_close(&b.sides[i]) && verdict == GRAPH_RIGHT) {
            verdict = GRAPH_WRONG;
            snprintf(result->message, sizeof result->message, "%llu bytes did not come back",
                     (unsigned long long)b.sides[i].heap.bytes);
        }
    free(b.file);
    return verdict;
}

/* ---- shrinking ------------------------------------------------------------------------------- */

typedef struct shrinker {
    const graph_how *how;
    char *best; // the smallest text so far that is wrong
    double until;
    bool progress;
} shrinker;

static double now(void) {
    return base_time();
}

/* Takes `text` (which is freed or kept) where it is a graph that goes wrong too, as the printer
 * writes it. */
static bool offer(shrinker *s, char *text) {
    graph_result result;
    base_heap heap;
    graph_store store;
    uint64_t bytes;
    base_text printed;
    bool better = false;
    base_heap_init(&heap, NULL);
    base_text_init(&printed, &heap);
    store_init(&store, &heap, NULL, NULL, 0, NULL);
    graph *g = graph_open(&heap);
    if (now() < s->until &&
        graph_text_parse(text, strlen(text), g, &store, &bytes, NULL) == BERYL_OK &&
        graph_text_print(g, &store, &printed, NULL) == BERYL_OK && printed.data &&
        strcmp(printed.data, s->best) != 0)
        better = graph_case_run(printed.data, s->how, &result) == GRAPH_WRONG;
    if (better) {
        free(s->best);
        s->best = strdup(printed.data);
        s->progress = true;
    }
    free(text);
    graph_close(g);
    store_fini(&store);
    base_text_fini(&printed);
    return better;
}

static size_t lines_of(char *text, char **lines) {
    size_t n = 0;
    for (char *line = strtok(text, "\n"); line && n < LINES_MAX; line = strtok(NULL, "\n"))
        lines[n++] = line;
    return n;
}

/* The lines but `without`, for which stands `instead` (NULL: nothing); id `old` becomes id `new`
 * behind it. */
static char *edited(char **lines, size_t n, size_t without, const char *instead, uint32_t old,
                    uint32_t new) {
    size_t room = 1, used = 0;
    for (size_t i = 0; i < n; i++) room += 2 * strlen(lines[i]) + 2;
    char *out = malloc(room + 200);
    for (size_t i = 0; i < n; i++) {
        const char *from = i == without ? instead : lines[i];
        for (; from && *from;) {
            char *end;
            const bool id = *from == '%' && i != without;
            const unsigned long value = id ? strtoul(from + 1, &end, 10) : 0;
            if (id && old && value == old) {
                used += (size_t)sprintf(out + used, "%%%u", new);
                from = end;
            } else {
                out[used++] = *from++;
            }
        }
        if (from) out[used++] = '\n';
    }
    out[used] = 0;
    return out;
}

static bool is_used(char **lines, size_t n, size_t from, uint32_t id) {
    for (size_t i = from; i < n; i++)
        for (const char *c = lines[i]; (c = strchr(c, '%')); c++)
            if (strtoul(c + 1, NULL, 10) == id) return true;
    return false;
}

/* Without a line, with an input in its place, or with its own first value. */
static bool shrink_line(shrinker *s, char **lines, size_t n, size_t i) {
    char instead[200], dims[120] = "", name[20];
    unsigned id = 0, first = 0, second = 0;
    if (!strncmp(lines[i], "output", 6)) return offer(s, edited(lines, n, i, NULL, 0, 0));
    const bool two = sscanf(lines[i], "%%%u %%%u =", &id, &second) == 2;
    if (sscanf(lines[i], "%%%u", &id) != 1) return false; /* an extent */
    if (!is_used(lines, n, i + 1, id) && !(two && is_used(lines, n, i + 1, second)) &&
        offer(s, edited(lines, n, i, NULL, 0, 0)))
        return true;
    const bool leaf = sscanf(lines[i], "%%%u = %19[a-z_] %%%u", &id, name, &first) != 3;
    if (!leaf && offer(s, edited(lines, n, i, NULL, id, first))) return true;
    if (two || (leaf && strstr(lines[i], "= input"))) return false;
    base_heap heap;
    graph_store store;
    uint64_t bytes;
    base_heap_init(&heap, NULL);
    store_init(&store, &heap, NULL, NULL, 0, NULL);
    graph *g = graph_open(&heap);
    base_type type = TYPE_COUNT;
    if (graph_text_parse(s->best, strlen(s->best), g, &store, &bytes, NULL) == BERYL_OK) {
        const graph_tensor *t = graph_tensor_at(g, id);
        size_t used = 0;
        for (uint32_t k = 0; k < t->rank && used < 90; k++)
            used += (size_t)(t->dim[k].extent ? snprintf(dims + used, sizeof dims - used, " %.20s",
                                                         g->extents[t->dim[k].extent].name)
                                              : snprintf(dims + used, sizeof dims - used, " %u",
                                                         t->dim[k].size));
        type = t->type;
    }
    graph_close(g);
    store_fini(&store);
    if (type != TYPE_F32 && type != TYPE_I32) return false;
    snprintf(instead, sizeof instead, "%%%u = input %s [%s] \"x\"", id, base_type_name(type), dims);
    return offer(s, edited(lines, n, i, instead, 0, 0));
}

/* Every dimension of this size, and extents with this bound, as another size. Sizes of narrowing
 * stay. */
static char *resized(char **lines, size_t n, unsigned long old, unsigned long new) {
    size_t room = 1, used = 0;
    for (size_t i = 0; i < n; i++) room += 3 * strlen(lines[i]) + 12;
    char *out = malloc(room);
    for (size_t i = 0; i < n; i++) {
        bool inside = !strncmp(lines[i], "extent", 6);
        for (const char *c = lines[i]; *c;) {
            char *end = NULL;
            const bool number =
                *c >= '0' && *c <= '9' && (c == lines[i] || c[-1] == ' ' || c[-1] == '[');
            const unsigned long value = number ? strtoul(c, &end, 10) : 0;
            inside = *c == '[' ? true : *c == ']' ? false : inside;
            if (number && inside && value == old && (*end == ' ' || *end == ']' || !*end)) {
                used += (size_t)sprintf(out + used, "%lu", new);
                c = end;
            } else {
                out[used++] = *c++;
            }
        }
        out[used++] = '\n';
    }
    out[used] = 0;
    return out;
}

static bool shrink_sizes(shrinker *s, char **lines, size_t n) {
    for (size_t i = 0; i < n; i++)
        for (const char *c = lines[i]; *c; c++) {
            if (*c < '0' || *c > '9' || c == lines[i] || (c[-1] != ' ' && c[-1] != '[')) continue;
            const unsigned long old = strtoul(c, NULL, 10),
                                to[] = {1, 2, 4, 8, 32, old / 4, old / 2, old - 1};
            for (size_t k = 0; old > 1 && k < sizeof to / sizeof *to; k++)
                if (to[k] && to[k] < old && offer(s, resized(lines, n, old, to[k]))) return true;
        }
    return false;
}

char *graph_case_shrink(const char *text, const graph_how *how, double seconds) {
    shrinker s = {how, strdup(text), now() + seconds, true};
    while (s.progress && now() < s.until) {
        char *copy = strdup(s.best), *lines[LINES_MAX];
        const size_t n = lines_of(copy, lines);
        s.progress = false;
        bool done = false;
        for (size_t i = n; i-- > 0 && !done;) done = shrink_line(&s, lines, n, i);
        if (!done) shrink_sizes(&s, lines, n);
        free(copy);
    }
    return s.best;
}
