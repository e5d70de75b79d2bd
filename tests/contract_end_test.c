/* contract_end_test.c - sums of products that end in a tree of pointwise operations: one dispatch,
 * with the numbers of several. On every device against the reference functions. */
#include "forms.h"
#include "typed.h"

#include <string.h>

enum { ROWS = 7, FEWER = 3, BETWEEN = 70 };

typedef enum end {
    BIAS_RELU = 1,     /* a number for each channel */
    BRANCH = 2,        /* and another value of that shape */
    GELU = 4,          /* instead of relu */
    SUMS_TOO = 8,      /* the sums are a result themselves: not joined */
    ANOTHER_VIEW = 16, /* and are read by other axes as well: not joined */
    PADDED = 32,       /* what follows has a border, of rows and unequal columns */
    FAR = 64 /* much is made between them: not joined, x, which is more, is not kept for so long */
} end;

typedef struct problem {
    const char *name;
    uint32_t x[4], weight[4]; /* weight[2] 0: matrices [batch, m, k], [k, n]; x[0] 0: ROWS */
    uint32_t pad, groups;
    end end;
    base_type type;
    uint32_t dispatches; /* on a GPU, pads aside */
    bool units;          /* with matrix units that take factors from workgroup memory */
} problem;

static graph_value sums_of(typed_side *s, const problem *p) {
    graph_dim x[4] = {{0}}, w[4] = {{0}};
    for (uint32_t i = 0; i < 4; i++) x[i].size = p->x[i], w[i].size = p->weight[i];
    if (!p->x[0]) x[0] = (graph_dim){ROWS, 1};
    const bool conv = p->weight[2] != 0;
    graph_value in = typed_input(s, p->type, conv ? 4 : 3, x);
    const graph_value weight = typed_input(s, p->type, conv ? 4 : 2, w);
    if (p->end & FAR) in = graph_neg(s->g, in);
    const graph_window own = {.stride = 1,
                              .dilation = 1,
                              .pad_before = p->pad,
                              .pad_after = p->pad},
                       both[] = {own, own};
    return conv ? graph_conv(s->g, in, weight, 2, both, p->groups)
                : graph_matmul(s->g, in, weight, false, false);
}

static void build(typed_side *s, const void *user) {
    const problem *p = user;
    graph *g = s->g;
    const graph_value sums = sums_of(s, p);
    const bool conv = p->weight[2] != 0;
    graph_dim whole[4] = {{0}};
    const uint32_t rank = graph_tensor_at(g, sums)->rank;
    memcpy(whole, graph_tensor_at(g, sums)->dim, rank * sizeof *whole);
    const graph_dim channels[] = {{p->weight[conv ? 0 : 1], 0}, {1, 0}, {1, 0}};
    graph_value bias = typed_input(s, p->type, conv ? 3 : 1, channels);
    for (uint32_t i = 0; p->end & FAR && i < BETWEEN; i++) bias = graph_neg(g, bias);
    graph_value y = graph_add(g, sums, bias);
    if (p->end & BRANCH) y = graph_add(g, y, typed_input(s, p->type, rank, whole));
    if (p->end & ANOTHER_VIEW)
        y = graph_mul(g, y, graph_permute(g, sums, 4, (const uint32_t[]){0, 1, 3, 2}));
    y = p->end & GELU ? graph_gelu_tanh(g, y) : graph_relu(g, y);
    if (p->end & PADDED) y = graph_pad(g, graph_pad(g, y, 2, 1, 1, 0.5f), 3, 2, 1, 0.25f);
    typed_output(s, y);
    if (p->end & SUMS_TOO) typed_output(s, graph_copy(g, sums));
}

/* clang-format off */
static const problem problems[] = {
    {"conv", {2, 16, 9, 9}, {32, 16, 3, 3}, 1, 1, BIAS_RELU, TYPE_F32, 2, false},
    {"ragged-channels", {2, 16, 9, 9}, {20, 16, 3, 3}, 1, 1, BIAS_RELU | BRANCH, TYPE_F32, 2, false},
    {"branch", {0, 64, 7, 7}, {32, 64, 1, 1}, 0, 1, BIAS_RELU | BRANCH, TYPE_F32, 1, false},
    {"pixels-along-vectors", {2, 32, 8, 8}, {32, 32, 1, 1}, 0, 1, BIAS_RELU | BRANCH, TYPE_F32, 1, false},
    {"groups", {2, 8, 6, 6}, {12, 4, 3, 3}, 0, 2, BIAS_RELU | BRANCH, TYPE_F32, 1, false},
    {"matrices", {0, 9, 33}, {33, 40}, 0, 1, BIAS_RELU | BRANCH, TYPE_F32, 1, false},
    {"halves", {2, 9, 33}, {33, 40}, 0, 1, GELU | BRANCH, TYPE_F16, 1, false},
    {"long-sums", {1, 40, 1104}, {1104, 72}, 0, 1, BIAS_RELU | BRANCH, TYPE_F16, 2, true},
    {"channels-last", {2, 16, 9, 9}, {64, 16, 3, 3}, 1, 1, BIAS_RELU | BRANCH, TYPE_F16, 0, true},
    {"padded", {1, 130, 131}, {131, 129}, 0, 1, BIAS_RELU | BRANCH, TYPE_F16, 3, true},
    {"border", {0, 16, 6, 6}, {8, 16, 1, 1}, 0, 1, BIAS_RELU | PADDED, TYPE_F32, 2, false},
    {"sums-too", {2, 16, 6, 6}, {8, 16, 1, 1}, 0, 1, BIAS_RELU | SUMS_TOO, TYPE_F32, 3, false},
    {"far", {2, 16, 6, 6}, {8, 16, 1, 1}, 0, 1, BIAS_RELU | FAR, TYPE_F32, 5, false},
    {"another-view", {2, 16, 6, 6}, {8, 16, 1, 1}, 0, 1, BIAS_RELU | ANOTHER_VIEW, TYPE_F32, 2, false},
};
/* clang-format on */
enum { PROBLEMS = sizeof problems / sizeof *problems };

static void run_on(test *t, base_heap *heap, device *d, const test_form *form, size_t i) {
    const problem *p = &problems[i];
    if (p->units) {
        d->caps.multiplies_memory = true;
        d->caps.workgroup_bytes = 1 << 18, d->caps.subgroup_size = 32;
        d->caps.compute_units = 8;
        d->caps.fragments = DEVICE_FRAGMENT_BIT(DEVICE_FRAGMENT_F16_F32);
    }
    typed_run(t, heap, d,
              &(typed_problem){.name = p->name,
                               .build = build,
                               .what = p,
                               .rows = ROWS,
                               .fewer = i % 2 ? 0 : FEWER,
                               .fill = TYPED_UNIT,
                               .seed = i,
                               /* up to 1,104 terms below 1, in another order, in F32; in
                                * halves sums below 64 may be rounded to the next one */
                               .within = p->type == TYPE_F16 ? 1.0 / 32 : 3e-4,
                               .relative = 4e-6,
                               .dispatches = form->as_gpu ? p->dispatches : 0});
}

void test_contract_end(test *t);
void test_contract_end(test *t) {
    for (size_t f = 0; f < test_form_count(); f++) {
        const test_form *form = &test_forms[f];
        const bool interprets = !strcmp(form->device, "interpreter");
        for (size_t i = 0; i < PROBLEMS; i++) {
            base_heap heap;
            device *d = NULL;
            beryl_error error = {0};
            if ((problems[i].units && !(interprets && form->as_gpu && !form->drawn)) ||
                (form->stand_in && i) || (form->brief && !interprets && i % 3) ||
                !test_case(t, "contract-end/%s/%s", form->name, problems[i].name))
                continue;
            base_heap_init(&heap, NULL);
            const beryl_status status = test_form_open(form, &heap, &d, &error);
            if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
            else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
            for (uint64_t round = 0; status == BERYL_OK && test_form_round(t, form, d, &round);)
                run_on(t, &heap, d, form, i);
            test_form_close(d);
            CHECK_INT(t, heap.bytes, 0);
        }
    }
}
