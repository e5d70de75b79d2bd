/* maps_test.c - elements from other places, of every plain type: pads, joins, turned axes and
 * triangles, alone and with pointwise operations before them in the same kernel. */
#include "forms.h"
#include "typed.h"

#include "beryl_graph.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 37, FEWER = 5 };

typedef enum map {
    PAD_COLUMNS,
    PAD_VECTORS,
    PAD_ROWS,
    PAD_TWICE,
    CONCAT,
    CONCAT_ROWS,
    STACK,
    ROLL,
    TRIL,
    TRIU,
    RESHAPED,
    RESIZED, /* by how: `how` */
    RESIZED_PADDED,
    PLACES,
    TURNED,
    NONE
} map;

typedef struct problem {
    const char *name;
    map map;
    uint32_t dims[3]; /* 0: the extent */
    uint32_t before;  /* pointwise operations */
    uint32_t dispatches;
    bool brief;
    uint32_t how, axis, size;
} problem;

static const problem problems[] = {
    {"pad", PAD_COLUMNS, {0, 5, 7}, 0, 1, true, 0, 0, 0},
    {"pad-of-vectors", PAD_VECTORS, {3, 0, 64}, 0, 1, false, 0, 0, 0},
    {"pad-rows", PAD_ROWS, {2, 0, 9}, 0, 1, false, 0, 0, 0},
    {"pad-twice", PAD_TWICE, {0, 5, 8}, 0, 1, true, 0, 0, 0},
    {"pad-of-one", PAD_TWICE, {1, 1, 1}, 0, 1, false, 0, 0, 0},
    {"pad-of-many", PAD_COLUMNS, {70001, 1, 3}, 0, 1, false, 0, 0, 0},
    {"concat", CONCAT, {0, 5, 6}, 0, 1, true, 0, 0, 0},
    {"concat-rows", CONCAT_ROWS, {0, 3, 8}, 0, 1, false, 0, 0, 0},
    {"stack", STACK, {0, 7, 3}, 0, 1, false, 0, 0, 0},
    {"roll", ROLL, {0, 7, 3}, 0, 1, false, 0, 0, 0},
    {"tril", TRIL, {0, 9, 11}, 0, 1, true, 0, 0, 0},
    {"triu", TRIU, {3, 0, 10}, 0, 1, false, 0, 0, 0},
    {"reshape-by-copy", RESHAPED, {0, 5, 6}, 0, 2, true, 0, 0, 0},
    {"pad-of-a-result", PAD_COLUMNS, {0, 5, 7}, 1, 1, true, 0, 0, 0},
    {"pad-of-results", PAD_TWICE, {0, 5, 8}, 2, 1, false, 0, 0, 0},
    {"nearest", RESIZED, {0, 5, 6}, 0, 1, true, BERYL_RESIZE_NEAREST, 2, 13},
    {"nearest-smaller", RESIZED, {0, 17, 8}, 0, 1, false, BERYL_RESIZE_NEAREST, 1, 5},
    {"nearest-middle", RESIZED, {3, 0, 6}, 0, 1, false, BERYL_RESIZE_NEAREST_MIDDLE, 2, 4},
    {"linear", RESIZED, {0, 9, 12}, 0, 1, true, BERYL_RESIZE_LINEAR, 1, 20},
    {"linear-smaller", RESIZED, {0, 3, 31}, 0, 1, false, BERYL_RESIZE_LINEAR, 2, 7},
    {"linear-of-one", RESIZED, {0, 1, 3}, 0, 1, false, BERYL_RESIZE_LINEAR, 1, 4},
    {"linear-corners", RESIZED, {0, 9, 4}, 0, 1, false, BERYL_RESIZE_LINEAR_CORNERS, 1, 14},
    {"linear-corners-to-one", RESIZED, {0, 9, 4}, 0, 1, false, BERYL_RESIZE_LINEAR_CORNERS, 1, 1},
    {"mean", RESIZED, {0, 23, 4}, 0, 1, true, BERYL_RESIZE_MEAN, 1, 7},
    {"mean-larger", RESIZED, {0, 2, 5}, 0, 1, false, BERYL_RESIZE_MEAN, 2, 8},
    {"resized-and-padded", RESIZED_PADDED, {0, 9, 5}, 0, 1, false, BERYL_RESIZE_LINEAR, 2, 8},
    {"places", PLACES, {0, 9, 5}, 0, 1, true, 0, 2, 0},
    {"pad-twice-of-many", PAD_TWICE, {131, 60, 7}, 0, 1, false, 0, 0, 0},
    {"places-of-rows", PLACES, {3, 0, 8}, 0, 1, false, 0, 1, 0},
    {"none-of-many", NONE, {2, 513, 1040}, 2, 1, false, 0, 0, 0},
    {"turned-in-squares", TURNED, {2, 132, 260}, 0, 1, false, 0, 0, 0},
    {"turned-in-vectors", TURNED, {2, 192, 264}, 0, 1, false, 0, 0, 0},
    {"past-caches", NONE, {4100, 2, 1040}, 1, 1, false, 0, 0, 0},  /* 16 MiB of halves */
    {"concat-of-results", CONCAT, {0, 5, 6}, 2, 2, true, 0, 0, 0}, /* a view of a result */
};
enum { PROBLEMS = sizeof problems / sizeof *problems };

static const base_type types[] = {TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_F64, TYPE_I32, TYPE_U8,
                                  TYPE_I8,  TYPE_I16, TYPE_U16,  TYPE_U32, TYPE_I64, TYPE_BOOL};
enum { TYPES = sizeof types / sizeof *types };

typedef struct what {
    const problem *p;
    base_type type;
    float value;
} what;

static graph_value part(typed_side *s, const what *w, uint32_t as_long) {
    graph_dim d[3];
    for (uint32_t i = 0; i < 3; i++)
        d[i] = w->p->dims[i] ? (graph_dim){w->p->dims[i], 0} : (graph_dim){ROWS, 1};
    if (as_long) d[2].size = as_long;
    graph_value x = typed_input(s, w->type, 3, d);
    for (uint32_t i = 0; i < w->p->before; i++) {
        if (w->type == TYPE_BOOL) x = graph_bit_not(s->g, x);
        else if (i) x = graph_max(s->g, x, typed_input(s, w->type, 1, &d[2]));
        else x = graph_neg(s->g, x);
    }
    return x;
}

static void build(typed_side *s, const void *user) {
    const what *w = user;
    graph *g = s->g;
    graph_value y = part(s, w, 0), more[6] = {y};
    switch (w->p->map) {
    case PAD_COLUMNS: y = graph_pad(g, y, 2, 3, 2, w->value); break;
    case PAD_VECTORS: y = graph_pad(g, y, 2, 16, 48, w->value); break;
    case PAD_ROWS: y = graph_pad(g, y, 1, 1, 2, w->value); break;
    case PAD_TWICE: y = graph_pad(g, graph_pad(g, y, 2, 1, 0, w->value), 1, 0, 3, 1); break;
    case CONCAT:
        more[1] = part(s, w, 5);
        more[2] = graph_flip(g, part(s, w, 4), 2);
        y = graph_concat(g, 3, more, 2);
        break;
    case CONCAT_ROWS:
        more[1] = part(s, w, 0);
        y = graph_concat(g, 2, more, 0);
        break;
    case STACK:
        more[1] = part(s, w, 0);
        y = graph_stack(g, 2, more, 3);
        break;
    case ROLL: y = graph_roll(g, y, 1, 3); break;
    case TRIL: y = graph_tril(g, y, 2); break;
    case TRIU: y = graph_triu(g, y, -1); break;
    case RESHAPED:
        y = graph_reshape(g, graph_flip(g, y, 1), 2, (graph_dim[]){{ROWS, 1}, {30, 0}});
        y = graph_copy(g, y);
        break;
    case RESIZED: y = graph_resize(g, y, w->p->axis, w->p->size, w->p->how); break;
    case RESIZED_PADDED: /* along the same axis and another one */
        y = graph_pad(g, graph_resize(g, y, w->p->axis, w->p->size, w->p->how), 2, 2, 1, w->value);
        y = graph_pad(g, y, 1, 1, 0, 2);
        break;
    case PLACES: y = graph_add(g, graph_iota(g, y, w->p->axis), graph_iota(g, y, 0)); break;
    case NONE: break;
    case TURNED:
        y = graph_permute(g, y, 3, (uint32_t[]){0, 2, 1});
        more[0] = typed_input(s, w->type, 1, &graph_tensor_at(g, y)->dim[2]);
        y = w->type == TYPE_BOOL ? graph_bit_or(g, y, more[0]) : graph_min(g, y, more[0]);
        break;
    }
    typed_output(s, y);
}

static void run(test *t, base_heap *heap, device *d, const problem *p, size_t number,
                uint32_t one_of) {
    static const float values[] = {0.1f, -3, 300, -(float)INFINITY, (float)NAN};
    for (size_t i = 0; i < TYPES && !test_failed(t); i++) {
        const what w = {p, types[i], values[(i + number) % (sizeof values / sizeof *values)]};
        if ((w.type == TYPE_F64 && !device_caps_of(d)->f64) ||
            (types[i] != TYPE_F32 && !test_drawn(i, number, one_of)) ||
            (p->how >= BERYL_RESIZE_LINEAR && !base_type_is_float(types[i])))
            continue;
        const bool exact = p->how < BERYL_RESIZE_LINEAR;
        char name[64];
        snprintf(name, sizeof name, "%s of %s", p->name, base_type_name(w.type));
        typed_run(t, heap, d,
                  &(typed_problem){.name = name,
                                   .build = build,
                                   .what = &w,
                                   .rows = ROWS,
                                   .fewer = number % 3 ? FEWER : 0,
                                   .fill = exact ? TYPED_ODD : TYPED_UNIT,
                                   .within = exact ? 0 : 1e-6,
                                   .relative = exact ? 0 : 1e-6,
                                   .seed = number + i,
                                   .dispatches = p->dispatches});
    }
}

static void run_form(test *t, const test_form *form, size_t number) {
    base_heap heap;
    device *d = NULL;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    const beryl_status status = test_form_open(form, &heap, &d, &error);
    const bool interprets = !strcmp(form->device, "interpreter");
    for (size_t i = 0; i < PROBLEMS; i++) {
        const problem *p = &problems[i];
        if (!test_form_draws(form, i, number, p->brief) ||
            (form->brief && !p->brief && !interprets) ||
            (p->dims[0] > 1000 && (interprets || form->brief)) || (form->stand_in && i) ||
            (p->map == NONE && p->dims[0] > 1000 && strcmp(form->device, "host") != 0) ||
            !test_case(t, "maps/%s/%s", form->name, p->name))
            continue;
        if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
        else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        for (uint64_t round = 0; status == BERYL_OK && test_form_round(t, form, d, &round);)
            run(t, &heap, d, p, i + number + (size_t)round, form->brief ? 6 : 3);
    }
    test_form_close(d);
    if (status == BERYL_OK && test_case(t, "maps/%s/gives-everything-back", form->name))
        CHECK_INT(t, heap.bytes, 0);
}

void test_maps(test *t);
void test_maps(test *t) {
    for (size_t i = 0; i < test_form_count(); i++) run_form(t, &test_forms[i], i);
}
