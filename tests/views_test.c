/* views_test.c - views: what their elements are, on the reference functions, against numbers that
 * are computed here; what reads them, on every device, against the judge of random graphs, for
 * which movement is exact; that they cost no dispatch; what is refused.
 *
 * Expected are the definitions: element i, j, .. of a view is element f(i, j, ..) of what it is a
 * view of. */
#include "forms.h"
#include "graph_case.h"
#include "rig.h"
#include "test.h"

#include "graph/reference.h"
#include "graph/text.h"
#include "plan/exec.h"

#include <stdio.h>
#include <string.h>

/* ---- which elements -------------------------------------------------------------------------- */

/* Of x with the numbers 0, 1, 2 .. in their order: the number at the place i of the view. */
typedef uint32_t element(const uint32_t *i);

static uint32_t of_4_5(uint32_t a, uint32_t b, uint32_t c) { /* in [.., 4, 5] */
    return (a * 4 + b) * 5 + c;
}
static uint32_t permuted(const uint32_t *i) {
    return of_4_5(i[1], i[2], i[0]);
}
static uint32_t permuted_twice(const uint32_t *i) {
    return of_4_5(i[2], i[0], i[1]);
}
static uint32_t of_eight(const uint32_t *i) { /* [2 3 1 2 1 2 3 2] backwards */
    return ((((i[7] * 3 + i[6]) * 2 + i[4]) * 2 + i[2]) * 3 + i[1]) * 2 + i[0];
}
static uint32_t expanded(const uint32_t *i) { /* [3 1] as [2 3 7] */
    return i[1];
}
static uint32_t stepped(const uint32_t *i) {
    return of_4_5(i[0], i[1], 1 + 2 * i[2]);
}
static uint32_t stepped_rows(const uint32_t *i) {
    return of_4_5(0, 3 * i[1], i[2]);
}
static uint32_t flipped(const uint32_t *i) {
    return of_4_5(i[0], 3 - i[1], 4 - i[2]);
}
static uint32_t flipped_again(const uint32_t *i) {
    return of_4_5(i[0], i[1], i[2]);
}
static uint32_t diagonal(const uint32_t *i) {
    return of_4_5(i[0], i[1], i[1]);
}
static uint32_t diagonal_of_outer(const uint32_t *i) { /* of [3 4 5] along 2 and 0 */
    return of_4_5(i[1], i[0], i[1]);
}
static uint32_t chained(const uint32_t *i) { /* narrow 2 1 2 3, permute, flip 0, expand */
    return of_4_5(i[2], i[3], 1 + 3 * (1 - i[1]));
}
static uint32_t split(const uint32_t *i) { /* axis 1 of [.. 4 5] in 2 by 2 */
    return of_4_5(i[0], 2 * i[1] + i[2], i[3]);
}
static uint32_t joined_backwards(const uint32_t *i) { /* flip 0, [3 4] as one of 12 */
    return of_4_5(2 - i[0] / 4, i[0] % 4, i[1]);
}
static uint32_t flattened(const uint32_t *i) { /* permute [2 0 1] of [3 4 5], then all in one */
    return of_4_5(i[0] / 4 % 3, i[0] % 4, i[0] / 12);
}
static uint32_t with_one(const uint32_t *i) {
    return of_4_5(i[0], i[1], i[3]);
}

static uint32_t windows(const uint32_t *i) { /* of 2 of the 4, 1 apart */
    return of_4_5(i[0], i[1] + i[3], i[2]);
}
static uint32_t windows_apart(const uint32_t *i) { /* of 2 of the 5, 3 apart */
    return of_4_5(i[0], i[1], 3 * i[2] + i[3]);
}

static uint32_t windows_of_all(const uint32_t *i) {
    return of_4_5(i[0], i[2], i[3]);
}

enum { NOTHING = 1000 }; /* the value of places that are outside */

static uint32_t padded(const uint32_t *i) { /* axis 1 by 2 and 1 */
    return i[1] < 2 || i[1] > 5 ? NOTHING : of_4_5(i[0], i[1] - 2, i[2]);
}
static uint32_t padded_twice(const uint32_t *i) { /* axis 2 by 1 and 0, axis 0 by 0 and 2 */
    return i[0] > 2 || i[2] < 1 ? NOTHING : of_4_5(i[0], i[1], i[2] - 1);
}
static uint32_t concatenated(const uint32_t *i) { /* x, columns 1 and 2 of it, x backwards */
    return i[2] < 5   ? of_4_5(i[0], i[1], i[2])
           : i[2] < 7 ? of_4_5(i[0], i[1], i[2] - 4)
                      : of_4_5(2 - i[0], i[1], i[2] - 7);
}
static uint32_t lower(const uint32_t *i) {
    return i[2] <= i[1] + 1 ? of_4_5(i[0], i[1], i[2]) : 0;
}
static uint32_t upper(const uint32_t *i) {
    return i[2] + 1 >= i[1] ? of_4_5(i[0], i[1], i[2]) : 0;
}
static uint32_t nothing(const uint32_t *i) {
    return i[0] * 0;
}

static const struct {
    const char *name, *x, *views; /* the last of views: %9 */
    element *at;
    uint32_t copies; /* that had to be made, and maps */
} placed[] = {
    {"permute", "3 4 5", "%9 = permute %1 [2 0 1]\n", permuted, 0},
    {"permute-twice", "3 4 5", "%2 = permute %1 [2 0 1]\n%9 = permute %2 [2 0 1]\n", permuted_twice,
     0},
    {"permute-of-eight", "2 3 1 2 1 2 3 2", "%9 = permute %1 [7 6 5 4 3 2 1 0]\n", of_eight, 0},
    {"expand", "3 1", "%9 = expand %1 [2 3 7]\n", expanded, 0},
    {"narrow-step", "3 4 5", "%9 = narrow %1 2 1 2 2\n", stepped, 0},
    {"narrow-step-rows", "3 4 5", "%2 = narrow %1 0 0 1\n%9 = narrow %2 1 0 2 3\n", stepped_rows,
     0},
    {"flip", "3 4 5", "%2 = flip %1 1\n%9 = flip %2 2\n", flipped, 0},
    {"flip-twice", "3 4 5", "%2 = flip %1 2\n%9 = flip %2 2\n", flipped_again, 0},
    {"diagonal", "3 4 5", "%9 = diagonal %1 1 2\n", diagonal, 0},
    {"diagonal-of-outer", "3 4 5", "%9 = diagonal %1 2 0\n", diagonal_of_outer, 0},
    {"chain", "3 4 5",
     "%2 = narrow %1 2 1 2 3\n%3 = permute %2 [2 0 1]\n%4 = flip %3 0\n%9 = expand %4 [2 2 3 4]\n",
     chained, 0},
    {"reshape-splits", "3 4 5", "%2 = flip %1 0\n%3 = flip %2 0\n%9 = reshape %3 [3 2 2 5]\n",
     split, 0},
    {"reshape-of-a-permuted", "4 5 3",
     "%2 = permute %1 [2 0 1]\n%3 = permute %2 [1 2 0]\n%4 = permute %3 [2 0 1]\n%5 = permute %4 "
     "[1 2 0]\n%9 = reshape %5 [4 5 3]\n",
     NULL, 0},
    {"reshape-joins-by-copy", "3 4 5", "%2 = flip %1 0\n%9 = reshape %2 [12 5]\n", joined_backwards,
     1},
    {"reshape-flattens-by-copy", "3 4 5", "%2 = permute %1 [2 0 1]\n%9 = reshape %2 [60]\n",
     flattened, 1},
    {"windows", "3 4 5", "%9 = windows %1 1 2\n", windows, 0},
    {"windows-apart", "3 4 5", "%9 = windows %1 2 2 3\n", windows_apart, 0},
    {"windows-of-all", "3 4 5", "%2 = windows %1 0 3 7\n%9 = permute %2 [3 0 1 2]\n",
     windows_of_all, 0},
    {"pad", "3 4 5", "%9 = pad %1 1 2 1 0x1.f4p+9\n", padded, 1},
    {"pad-twice", "3 4 5", "%2 = pad %1 2 1 0 0x1.f4p+9\n%9 = pad %2 0 0 2 0x1.f4p+9\n",
     padded_twice, 2},
    {"pad-by-nothing", "3 4 5", "%9 = pad %1 2 0 0 1\n", flipped_again, 1},
    {"concat", "3 4 5", "%2 = narrow %1 2 1 2\n%3 = flip %1 0\n%9 = concat %1 %2 %3 2\n",
     concatenated, 1},
    {"tril", "3 4 5", "%9 = tril %1 1\n", lower, 1},
    {"triu", "3 4 5", "%9 = triu %1 -1\n", upper, 1},
    {"tril-of-all", "3 4 5", "%9 = tril %1 2147483647\n", flipped_again, 1},
    {"tril-of-nothing", "3 4 5", "%9 = tril %1 -2147483648\n", nothing, 1},
    {"triu-of-all", "3 4 5", "%9 = triu %1 -2147483648\n", flipped_again, 1},
    {"unsqueeze", "3 4 5", "%9 = unsqueeze %1 2\n", with_one, 0},
    {"squeeze-of-unsqueeze", "3 4 5", "%2 = unsqueeze %1 0\n%9 = squeeze %2 0\n", flipped_again, 0},
};

typedef struct lab {
    base_heap heap;
    graph_store store;
    graph *g;
    uint64_t file_bytes;
    beryl_error error;
} lab;

static beryl_status lab_open(lab *l, const char *text) {
    *l = (lab){0};
    base_heap_init(&l->heap, NULL);
    store_init(&l->store, &l->heap, NULL, NULL, 0, NULL);
    l->g = graph_open(&l->heap);
    return l->g ? graph_text_parse(text, strlen(text), l->g, &l->store, &l->file_bytes, &l->error)
                : BERYL_NO_MEMORY;
}

static void lab_close(test *t, lab *l) {
    graph_close(l->g);
    store_fini(&l->store);
    CHECK_INT(t, l->heap.bytes, 0);
}

static void check_element(test *t, const graph_tensor *y, const float *data, element *at,
                          uint32_t n) {
    uint32_t i[GRAPH_RANK_MAX], left = n;
    for (uint32_t axis = y->rank; axis-- > 0; left /= y->dim[axis].size)
        i[axis] = left % y->dim[axis].size;
    const uint32_t want = at ? at(i) : n;
    if (data[n] != (float)want)
        test_fail(t, __FILE__, __LINE__, "element %u is %g, not %u", n, (double)data[n], want);
}

static void check_placed(test *t, const char *x, const char *views, element *at, uint32_t copies) {
    char text[600];
    lab l;
    graph_reference *r = NULL;
    snprintf(text, sizeof text,
             "%%1 = input F32 [%s] \"x\"\n%s%%10 = copy %%9\noutput %%10 \"y\"\n", x, views);
    if (lab_open(&l, text) != BERYL_OK ||
        graph_reference_open(l.g, &l.store, &r, &l.error) != BERYL_OK) {
        test_fail(t, __FILE__, __LINE__, "%s", l.error.message);
    } else {
        const graph_value y = l.g->nodes.data[l.g->nodes.count - 1].out[0];
        float *to = graph_reference_input(r, 1);
        for (uint32_t i = 0; i < graph_element_bound(graph_tensor_at(l.g, 1)); i++)
            to[i] = (float)i;
        CHECK_INT(t, l.g->nodes.count, 1 + copies);
        CHECK_INT(t, graph_reference_run(r, (uint32_t[]){0}, &l.error), BERYL_OK);
        const graph_tensor *as = graph_tensor_at(l.g, y);
        for (uint32_t i = 0; i < graph_element_bound(as) && !test_failed(t); i++)
            check_element(t, as, graph_reference_value(r, y), at, i);
    }
    graph_reference_close(r);
    lab_close(t, &l);
}

/* ---- who reads them -------------------------------------------------------------------------- */

#define N "extent n 7\n"
#define X "%1 = input F32 [n 4 6] \"x\"\n"
#define Y(v) "output %" v " \"y\"\n"

/* Queries, keys and values of two rows, two heads each, as an attention of a decode step takes
 * them: %13 queries, %14 keys, %15 and %16 caches. */
#define STEP                                                                                       \
    "%1 = input F32 [2 64] \"x\"\n%2 = weight Q8_0 [64 64] \"q\"\n%3 = linear %1 %2\n%4 = "        \
    "reshape %3 "                                                                                  \
    "[2 2 32]\n%5 = linear %1 %2\n%6 = weight F32 [32] \"norm\"\n%7 = rms_norm %4 %6 0x1p-20\n%8 " \
    "= "                                                                                           \
    "reshape %5 [2 2 32]\n%9 = rms_norm %8 %6 0x1p-20\n%10 = input I32 [2] \"slot\"\n%11 = input " \
    "I32 "                                                                                         \
    "[2] \"pos\"\n%12 = input F32 [2 2 16] \"angles\"\n%13 = rope %7 %12\n%14 = rope %9 %12\n%30 " \
    "= "                                                                                           \
    "state F32 [4 900 2 32] \"keys\"\n%31 = state F32 [4 900 2 32] \"values\"\n%32 = rms_norm %8 " \
    "0x1p-20\n%15 = kv_write %30 %14 %10 %11\n%16 = kv_write %31 %32 %10 %11\n"

/* steps: dispatches of the whole graph on the dummy device, a large GPU. */
static const struct {
    const char *name, *text;
    uint32_t steps;
} read[] = {
    {"add-permuted",
     N X "%2 = input F32 [6 n 4] \"b\"\n%3 = permute %1 [2 0 1]\n%4 = add %2 %3\n"
         "%5 = mul %4 %3\n" Y("5"),
     1},
    {"copy-transposed",
     N "%1 = input F32 [n 131] \"x\"\n%2 = permute %1 [1 0]\n%3 = copy %2\n" Y("3"), 1},
    {"transposed-large",
     "%1 = input F32 [1031 1033] \"x\"\n%2 = permute %1 [1 0]\n%3 = copy %2\n" Y("3"), 1},
    /* a workgroup a row: more than 65,535 of them */
    {"rows-large",
     "extent n 3\n%1 = input F32 [n 66001] \"x\"\n%2 = permute %1 [1 0]\n%3 = softmax %2\n" Y("3"),
     1},
    {"of-ones",
     "%1 = input F32 [1 1 1] \"x\"\n%2 = permute %1 [2 0 1]\n%3 = flip %2 0\n%4 = expand "
     "%3 [1 1 1 1]\n%5 = diagonal %4 0 3\n%6 = copy %5\n" Y("6"),
     1},
    {"of-eight-axes",
     N "%1 = input F32 [2 3 1 n 2 1 3 2] \"x\"\n%2 = permute %1 [7 3 0 6 1 5 4 2]\n"
       "%3 = flip %2 3\n%4 = gelu_tanh %3\n" Y("4"),
     1},
    {"expanded-bias",
     N X "%2 = input F32 [4 1] \"b\"\n%3 = expand %2 [n 4 6]\n%4 = add %3 %1\n" Y("4"), 1},
    {"expanded-to-a-run",
     N "%1 = input F32 [1 40] \"x\"\n%2 = expand %1 [3 n 40]\n%3 = scale %2 "
       "-0x1p-1\n%4 = softmax %3\n" Y("3") Y("4"),
     1},
    {"narrow-step",
     N "%1 = input F32 [n 37] \"x\"\n%2 = narrow %1 1 1 9 4\n%3 = narrow %1 1 0 9 3\n"
       "%4 = add %2 %3\n%5 = narrow %4 1 8 1 5\n%6 = copy %5\n" Y("4") Y("6"),
     2},
    {"narrow-step-rows",
     "%1 = input F32 [9 3 64] \"x\"\n%2 = narrow %1 0 1 4 2\n%3 = copy %2\n" Y("3"), 1},
    {"flipped-rows", N "%1 = input F32 [5 n 64] \"x\"\n%2 = flip %1 0\n%3 = add %1 %2\n" Y("3"), 1},
    {"flipped-columns",
     N "%1 = input F32 [n 64] \"x\"\n%2 = flip %1 1\n%3 = add %1 %2\n%4 = softmax "
       "%2\n" Y("3") Y("4"),
     2},
    {"flipped-all",
     "%1 = input F32 [4 4 16] \"x\"\n%2 = flip %1 0\n%3 = flip %2 1\n%4 = flip %3 2\n"
     "%5 = copy %4\n" Y("5"),
     1},
    {"diagonal",
     N "%1 = input F32 [n n 3] \"x\"\n%2 = diagonal %1 0 1\n%3 = copy %2\n%4 = input F32 "
       "[n 5 9] \"z\"\n%5 = diagonal %4 1 2\n%6 = copy %5\n" Y("3") Y("6"),
     2},
    {"chain-of-views",
     N X "%2 = narrow %1 2 1 3 2\n%3 = permute %2 [1 2 0]\n%4 = flip %3 1\n%5 = "
         "unsqueeze %4 1\n%6 = expand %5 [4 5 3 n]\n%7 = mul %6 %6\n" Y("7"),
     1},
    {"windows",
     N "%1 = input F32 [n 37] \"x\"\n%2 = windows %1 1 8 4\n%3 = softmax %2\n%4 = windows "
       "%1 1 5\n%5 = scale %4 0x1p-1\n" Y("3") Y("5"),
     2},
    {"products-of-windows",
     N "%1 = input F32 [n 100] \"x\"\n%2 = pad %1 1 8 4 0\n%3 = windows %2 1 32 "
       "16\n%4 = weight Q4_0 [9 32] \"w\"\n%5 = linear %3 %4\n%6 = input F32 "
       "[100] \"y\"\n%7 = windows %6 0 32 3\n%8 = linear %7 %4\n" Y("5") Y("8"),
     0},
    {"norm-of-permuted",
     N "%1 = input F32 [40 n] \"x\"\n%2 = permute %1 [1 0]\n%3 = weight F32 [80] "
       "\"w\"\n%4 = narrow %3 0 1 40 2\n%5 = rms_norm %2 %4 0x1p-20\n%6 = flip "
       "%4 0\n%7 = layer_norm %2 %6 %4 0x1p-17\n" Y("5") Y("7"),
     2},
    {"softmax-of-permuted",
     N "%1 = input F32 [3 331 n] \"x\"\n%2 = permute %1 [2 0 1]\n%3 = scale %2 "
       "0x1p-1\n%4 = softmax %3\n" Y("4"),
     1},
    {"group-norm-of-permuted",
     N "%1 = input F32 [5 n 6] \"x\"\n%2 = permute %1 [1 2 0]\n%3 = input "
       "F32 [12] \"w\"\n%4 = narrow %3 0 0 6 2\n%5 = flip %4 0\n%6 = "
       "group_norm %2 %4 %5 2 0x1p-17\n" Y("6"),
     1},
    {"cumsum-of-flipped",
     N X "%2 = flip %1 1\n%3 = cumsum %2 1\n%4 = permute %2 [2 1 0]\n%5 = cumsum "
         "%4 2\n" Y("3") Y("5"),
     2},
    {"weighted-sum-of-permuted",
     N "%1 = input F32 [6 40 n] \"x\"\n%2 = permute %1 [2 0 1]\n%3 = input "
       "F32 [6 n] \"w\"\n%4 = permute %3 [1 0]\n%5 = weighted_sum %2 %4\n"
       "%6 = flip %2 1\n%7 = weighted_sum %6 %4\n" Y("5") Y("7"),
     2},
    {"choices-of-permuted",
     N "%1 = input F32 [50 n] \"x\"\n%2 = permute %1 [1 0]\n%3 = argmax %2\n%4 "
       "%5 = topk %2 4\n" Y("3") Y("4") Y("5"),
     0},
    {"sample-of-permuted",
     N "%1 = input F32 [50 n] \"x\"\n%2 = permute %1 [1 0]\n%3 = input U32 [n 8] "
       "\"s\"\n%4 = sample %2 %3\n" Y("4"),
     0},
    {"product-of-permuted",
     N "%1 = input F32 [64 n] \"x\"\n%2 = permute %1 [1 0]\n%3 = weight Q4_0 "
       "[33 64] \"w\"\n%4 = linear %2 %3\n%5 = linear %2 %3\n" Y("4") Y("5"),
     0},
    {"product-with-permuted",
     N "%1 = input F32 [n 20] \"x\"\n%2 = input F32 [20 9] \"w\"\n%3 = permute "
       "%2 [1 0]\n%4 = linear %1 %3\n%5 = weight F32 [40 9] \"v\"\n%6 = "
       "narrow %5 0 3 20 1\n%7 = permute %6 [1 0]\n%8 = linear %1 %7\n" Y("4") Y("8"),
     0},
    {"product-of-cut",
     N "%1 = input F32 [n 70] \"x\"\n%2 = narrow %1 1 3 64\n%3 = weight Q4_0 [33 64] "
       "\"w\"\n%4 = linear %2 %3\n" Y("4"),
     1},
    {"product-of-expanded",
     N "%1 = input F32 [1 64] \"x\"\n%2 = expand %1 [n 64]\n%3 = weight F16 [8 "
       "64] \"w\"\n%4 = linear %2 %3\n" Y("4"),
     0},
    {"products-by-experts",
     N "%1 = input F32 [64 n] \"x\"\n%2 = permute %1 [1 0]\n%3 = unsqueeze %2 "
       "1\n%4 = weight Q8_0 [5 24 64] \"w\"\n%5 = input I32 [n 2] \"i\"\n%6 = "
       "linear_id %3 %4 %5\n" Y("6"),
     0},
    {"rope-of-heads",
     N "%1 = input F32 [3 n 16] \"x\"\n%2 = permute %1 [1 0 2]\n%3 = input F32 [n 2 "
       "8] \"a\"\n%4 = rope %2 %3\n" Y("4"),
     1},
    {"rope-of-flipped",
     N "%1 = input F32 [n 3 16] \"x\"\n%2 = flip %1 2\n%3 = input F32 [2 8 n] "
       "\"a\"\n%4 = permute %3 [2 0 1]\n%5 = rope %2 %4\n" Y("5"),
     3},
    {"attention-of-heads",
     N "%1 = input F32 [4 n 32] \"q\"\n%2 = permute %1 [1 0 2]\n%3 = input F32 "
       "[1 2 n 32] \"k\"\n%4 = permute %3 [0 2 1 3]\n%5 = input I32 [n] "
       "\"slot\"\n%6 = input I32 [n] \"pos\"\n%7 = attention %2 %4 %4 %5 %6 "
       "0x1p-2 0\n" Y("7"),
     0},
    {"into-a-cache",
     N "%1 = input F32 [2 n 16] \"x\"\n%2 = permute %1 [1 0 2]\n%3 = flip %2 2\n%4 = "
       "state F16 [2 9 2 16] \"keys\"\n%5 = input I32 [n] \"slot\"\n%6 = input I32 [n] "
       "\"pos\"\n%7 = kv_write %4 %3 %5 %6\n%8 = attention %2 %7 %7 %5 %6 1 0\n" Y("8"),
     0},
    {"into-a-state",
     N "%1 = input F32 [5 n] \"x\"\n%2 = permute %1 [1 0]\n%3 = state F32 [9 5] "
       "\"s\"\n%4 = input I32 [n] \"i\"\n%5 = set_rows %3 %2 %4\n%6 = permute %5 [1 "
       "0]\n%7 = copy %6\n" Y("7"),
     0},
    {"into-a-list",
     N "%1 = input F32 [n 5] \"x\"\n%2 = narrow %1 1 2 1\n%3 = squeeze %2 1\n%4 = state "
       "F32 [9] \"s\"\n%5 = input I32 [n] \"i\"\n%6 = set_rows %4 %3 %5\n%7 = flip %6 "
       "0\n%8 = copy %7\n%9 = gather_rows %7 %5 1\n" Y("8") Y("9"),
     0},
    {"rows-of-permuted",
     N "%1 = input F32 [33 9] \"x\"\n%2 = permute %1 [1 0]\n%3 = input I32 [n] "
       "\"i\"\n%4 = gather_rows %2 %3 1\n%5 = narrow %1 1 2 6\n%6 = gather_rows %5 "
       "%3 0x1p-1\n%7 = gather_rows %5 %3 1\n" Y("4") Y("6") Y("7"),
     0},
    {"numbers-of-a-column",
     N "%1 = input F32 [9 4] \"x\"\n%2 = narrow %1 1 1 1\n%3 = squeeze %2 1\n%4 "
       "= input I32 [n] \"i\"\n%5 = gather_rows %3 %4 0x1p-1\n%6 = gather_rows "
       "%3 %4 1\n" Y("5") Y("6"),
     0},
    {"reshape-by-copy",
     N X "%2 = permute %1 [0 2 1]\n%3 = reshape %2 [n 24]\n%4 = reshape %2 [n 2 3 "
         "4]\n%5 = copy %3\n%6 = mul %4 %4\n" Y("5") Y("6"),
     3},
    {"stored-weight",
     N "%1 = weight F32 [6 4] \"w\"\n%2 = permute %1 [1 0]\n%3 = input F32 [n 4 6] "
       "\"x\"\n%4 = mul %3 %2\n%5 = flip %2 1\n%6 = add %4 %5\n" Y("6"),
     1},
    {"pad", N "%1 = input F32 [n 6 5] \"x\"\n%2 = pad %1 1 3 2 0x1p-1\n" Y("2"), 1},
    {"pad-read",
     N X "%2 = pad %1 2 2 8 -0x1p+1\n%3 = pad %2 1 4 0 -0x1p+1\n%4 = input F32 [n 8 16] "
         "\"b\"\n%5 = add %3 %4\n%6 = softmax %5\n" Y("5") Y("6"),
     1},
    {"pad-vectors",
     N "%1 = input F32 [n 64] \"x\"\n%2 = pad %1 1 16 48 1\n%3 = gelu_tanh %2\n" Y("3"), 1},
    {"pad-of-a-run",
     N X "%2 = pad %1 0 2 1 0x1p-1\n%3 = cumsum %2 0\n%4 = permute %2 [1 0 2]\n%5 = "
         "copy %4\n" Y("2") Y("3") Y("5"),
     2},
    {"pad-a-row",
     "%1 = input F32 [1001] \"x\"\n%2 = pad %1 0 16 32 0\n%3 = pad %1 0 1 0 0\n" Y("2") Y("3"), 2},
    {"pad-permuted",
     N "%1 = input F32 [6 n] \"x\"\n%2 = permute %1 [1 0]\n%3 = flip %2 1\n%4 = pad "
       "%3 1 1 1 0\n%5 = rms_norm %4 0x1p-17\n" Y("5"),
     1},
    {"pad-of-results",
     N X "%2 = gelu_tanh %1\n%3 = pad %2 1 0 2 0\n%4 = mul %3 %3\n%5 = input F32 [n "
         "6] \"w\"\n%6 = weighted_sum %4 %5\n" Y("6"),
     2},
    {"concat",
     N X "%2 = input F32 [n 4 3] \"y\"\n%3 = concat %1 %2 %1 2\n%4 = scale %3 0x1p-1\n%5 = "
         "rms_norm %4 0x1p-17\n" Y("5"),
     1},
    {"concat-vectors",
     N "%1 = input F32 [n 32] \"x\"\n%2 = input F32 [n 64] \"y\"\n%3 = concat %1 %2 "
       "1\n%4 = add %3 %3\n" Y("4"),
     1},
    {"concat-of-runs",
     N "extent m 3\n%1 = input F32 [n 5] \"x\"\n%2 = input F32 [m 5] \"y\"\n%3 = "
       "concat %1 %2 %1 0\n%4 = softmax %3\n%5 = concat %3 %2 %1 %4 0\n" Y("3") Y("4") Y("5"),
     2},
    {"concat-inner-runs",
     N "extent m 3\n%1 = input F32 [2 n 5] \"x\"\n%2 = input F32 [2 m 5] \"y\"\n"
       "%3 = concat %1 %2 1\n%4 = pad %3 2 1 1 1\n%5 = gelu_tanh %4\n" Y("5"),
     1},
    {"concat-of-concats",
     N X "%2 = concat %1 %1 1\n%3 = concat %2 %1 1\n%4 = concat %3 %3 2\n%5 = copy "
         "%4\n" Y("5"),
     0},
    {"concat-in-groups",
     N "%1 = input F32 [n 6 4] \"x\"\n%2 = input F32 [n 2 4] \"y\"\n%3 = concat %1 "
       "%2 1\n%4 = group_norm %3 2 0x1p-17\n" Y("4"),
     1},
    {"concat-chosen",
     N "%1 = input F32 [n 40] \"x\"\n%2 = input F32 [n 33] \"y\"\n%3 = concat %1 %2 "
       "1\n%4 = argmax %3\n%5 %6 = topk %3 3\n" Y("4") Y("5") Y("6"),
     0},
    {"concat-multiplied",
     N "%1 = input F32 [n 32] \"x\"\n%2 = input F32 [n 32] \"y\"\n%3 = concat %1 "
       "%2 1\n%4 = weight Q4_0 [64 64] \"w\"\n%5 = linear %3 %4\n%6 = add %5 "
       "%3\n" Y("6"),
     0},
    {"tril",
     N "%1 = input F32 [3 n 9] \"x\"\n%2 = scale %1 0x1p-1\n%3 = tril %2 1\n%4 = softmax "
       "%3\n%5 = triu %3 -2\n" Y("4") Y("5"),
     1},
    {"triangles-of-runs",
     N "extent m 5\n%1 = input F32 [n m] \"x\"\n%2 = tril %1 0\n%3 = triu %2 -1\n" Y("2") Y("3"),
     1},
    {"one-row", "%1 = input F32 [64 1 32] \"x\"\n%2 = triu %1 8\n%3 = tril %1 -1\n" Y("2") Y("3"),
     2},
    /* tiles of a plane, whole and cut */
    {"turned-planes",
     "%1 = input F32 [3 150 149] \"x\"\n%2 = permute %1 [0 2 1]\n%3 = copy %2\n" Y("3"), 0},
    {"turned-halves",
     "%1 = input F32 [128 512] \"x\"\n%2 = input F32 [512] \"y\"\n%3 = input F32 [512 128] \"z\"\n"
     "%4 = mul %1 %2\n%5 = permute %4 [1 0]\n%6 = add %5 %3\n" Y("6"),
     0},
    /* what passes join knows values whole and in their order; these are others */
    {"step-of-turned-heads",
     STEP "%17 = permute %13 [1 0 2]\n%18 = attention %17 %15 %16 %10 %11 1 0 apart 0\n" Y("18"),
     0},
    {"step-with-turned-keys",
     STEP
     "%17 = permute %14 [1 0 2]\n%18 = state F32 [4 900 2 32] \"other\"\n%19 = kv_write %18 %17 "
     "%10 %11\n%20 = attention %13 %19 %16 %10 %11 1 0 apart 0\n" Y("20"),
     0},
    {"step-with-a-weight-backwards",
     STEP "%17 = flip %6 0\n%18 = rms_norm %4 %17 0x1p-20\n%19 = rope %18 %12\n%20 = attention %19 "
          "%15 %16 %10 %11 1 0 apart 0\n" Y("20"),
     0},
    {"product-of-some-rows-of-a-step",
     STEP
     "%17 = attention %13 %15 %16 %10 %11 1 0 apart 0\n%18 = reshape %17 [2 64]\n%19 = narrow %18 "
     "0 1 1\n%20 = linear %19 %2\n" Y("20"),
     0},
    {"experts-of-every-second-row",
     "%1 = input F32 [6 64] \"x\"\n%2 = weight F32 [64] \"norm\"\n%3 = rms_norm %1 %2 0x1p-20\n%4 "
     "= "
     "narrow %3 0 0 3 2\n%5 = unsqueeze %4 1\n%6 = weight Q4_0 [5 64 64] \"w\"\n%7 = input I32 [3 "
     "2] "
     "\"ids\"\n%8 = linear_id %5 %6 %7\n%9 = narrow %8 2 0 32\n%10 = narrow %8 2 32 32\n%11 = "
     "geglu "
     "%9 %10\n" Y("11"),
     0},
    {"experts-of-odd-halves",
     "%1 = input F32 [3 1 64] \"x\"\n%2 = weight Q4_0 [5 64 64] \"w\"\n%3 = input I32 [3 2] "
     "\"ids\"\n%4 "
     "= linear_id %1 %2 %3\n%5 = narrow %4 2 0 32 2\n%6 = narrow %4 2 32 32\n%7 = geglu %5 %6\n" Y(
         "7"),
     0},
    {"product-and-itself-turned",
     "%1 = input F32 [4 64] \"x\"\n%2 = weight Q4_0 [4 64] \"w\"\n%3 = linear %1 %2\n%4 = permute "
     "%3 [1 "
     "0]\n%5 = add %3 %4\n%6 = flip %3 0\n%7 = mul %5 %6\n" Y("7"),
     0},
    {"product-of-itself-turned",
     "%1 = input F32 [4 4] \"x\"\n%2 = scale %1 0x1p-1\n%3 = permute %2 [1 0]\n%4 = add %2 %3\n%5 "
     "= "
     "rms_norm %4 0x1p-20\n%6 = flip %4 1\n%7 = add %5 %6\n%8 = weight F16 [8 4] \"w\"\n%9 = "
     "linear %7 "
     "%8\n" Y("9"),
     0},
    {"of-results",
     N X "%2 = gelu_tanh %1\n%3 = permute %2 [1 0 2]\n%4 = input F32 [4 n 6] \"b\"\n%5 = "
         "add %3 %4\n%6 = flip %5 2\n%7 = softmax %6\n" Y("2") Y("7"),
     3},
};

static void run_read(test *t, const test_form *form, size_t number) {
    base_heap heap;
    device *d = NULL;
    beryl_error error = {0};
    base_heap_init(&heap, NULL);
    const beryl_status status = test_form_open(form, &heap, &d, &error);
    for (size_t i = 0; i < sizeof read / sizeof *read; i++) {
        /* a driver compiles each kernel for a while, the interpreter takes a second a million */
        const bool quick = !strcmp(form->device, "interpreter") || !strcmp(form->device, "host"),
                   large = strstr(read[i].name, "large") != NULL;
        if ((!quick && !large && !test_drawn(i, number, form->stand_in ? 8 : 5)) ||
            (large && form->brief && strcmp(form->device, "webgpu:software") != 0) ||
            !test_case(t, "views/%s/%s", form->name, read[i].name))
            continue;
        if (status == BERYL_NO_DEVICE) test_skip(t, "%s", error.message);
        else if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", error.message);
        for (int unfused = 0; status == BERYL_OK && unfused < 2 && !test_failed(t); unfused++) {
            graph_result result;
            const graph_how how = {d, unfused, !form->drawn, 1};
            if (graph_case_run(read[i].text, &how, &result) != GRAPH_RIGHT)
                test_fail(t, __FILE__, __LINE__, "%s: %s", unfused ? "unfused" : "fused",
                          result.message);
        }
    }
    test_form_close(d);
}

static void check_steps(test *t, const char *text, uint32_t steps) {
    rig r;
    graph_store store;
    uint64_t file_bytes;
    graph_exec *exec = NULL;
    if (!rig_open(t, &r, "dummy")) return;
    store_init(&store, &r.heap, r.d, NULL, 0, NULL);
    graph *g = graph_open(&r.heap);
    static const beryl_source none = {.size = UINT64_C(1) << 40};
    store.sources = &none;
    store.n_source = 1;
    beryl_status status = graph_text_parse(text, strlen(text), g, &store, &file_bytes, &r.error);
    if (status == BERYL_OK) status = store_layout(&store, 0, &r.error);
    if (status == BERYL_OK) status = store_make(&store, &r.error);
    if (status == BERYL_OK)
        status = graph_exec_open(g, &store, &(graph_exec_options){.exact = true}, &exec, &r.error);
    if (status == BERYL_OK) {
        graph_exec_info info;
        graph_exec_describe(exec, &info);
        CHECK_INT(t, info.dispatches, steps);
    } else {
        test_fail(t, __FILE__, __LINE__, "%s", r.error.message);
    }
    graph_exec_close(exec);
    graph_close(g);
    store_fini(&store);
    rig_close(t, &r);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static const struct {
    const char *text, *says; /* part of the message */
} refused[] = {
    {X "%2 = permute %1 [0 1]", "permute of [n<=7, 4, 6]: not each of its axes once"},
    {X "%2 = permute %1 [0 1 1]", "not each of its axes once"},
    {X "%2 = permute %1 [0 1 3]", "permute of [n<=7, 4, 6]: there is no axis 3"},
    {X "%2 = permute %1 [0 1 4294967295]", "there is no axis 4294967295"},
    {X "%2 = permute %1 [0 1 2 0 1 2 0 1 2 0 1]", "more than 10 axes"},
    {X "%2 = permute %1 0 1 2", "another word"},
    {X "%2 = expand %1 [n 8 6]", "expand of [n<=7, 4, 6] to [n<=7, 8, 6]: an axis that is neither"},
    {X "%2 = expand %1 [4 6]", "expand of [n<=7, 4, 6] to [4, 6]"},
    {X "%2 = expand %1 [7 4 6]", "neither 1 nor the same"},
    {X "%2 = expand %1 [1 1 1 1 1 1 1 n 4 6 1]", "more than 10"},
    {"%1 = input F32 [1 1] \"x\"\n%2 = expand %1 [65536 65536]\n%3 = neg %2", "2^32"},
    {"%1 = input F32 [1 1] \"x\"\n%2 = expand %1 [4194304 4194304]", "2^40"},
    {X "%2 = narrow %1 1 1 2 0",
     "narrow of [n<=7, 4, 6]: axis 1 has no 2 elements from 1 on, 0 apart"},
    {X "%2 = narrow %1 1 0 2 4", "axis 1 has no 2 elements from 0 on, 4 apart"},
    {X "%2 = narrow %1 1 4294967295 2 4294967295", "axis 1 has no 2 elements"},
    {X "%2 = narrow %1 1 0 4294967295 4294967295", "axis 1 has no 4294967295 elements"},
    {X "%2 = narrow %1 1 4 1", "axis 1 has no 1 elements from 4 on"},
    {X "%2 = narrow %1 1 0 0", "axis 1 has no 0 elements"},
    {X "%2 = narrow %1 0 0 1", "narrow of [n<=7, 4, 6]: a run says how long axis 0 is"},
    {X "%2 = narrow %1 3 0 1", "there is no axis 3"},
    {X "%2 = flip %1 0", "flip of [n<=7, 4, 6]: a run says how long axis 0 is"},
    {X "%2 = flip %1 9", "there is no axis 9"},
    {X "%2 = diagonal %1 1 1", "diagonal of [n<=7, 4, 6]: it takes two axes"},
    {X "%2 = diagonal %1 0 1", "constants or the same extent"},
    {X "%2 = diagonal %1 1 3", "there is no axis 3"},
    {X "%2 = windows %1 1 5", "windows of [n<=7, 4, 6]: axis 1 in windows of 5, 1 apart"},
    {X "%2 = windows %1 1 0", "axis 1 in windows of 0"},
    {X "%2 = windows %1 1 2 0", "axis 1 in windows of 2, 0 apart"},
    {X "%2 = windows %1 0 2", "it is not padded by one less"},
    {X "%2 = windows %1 3 2", "there is no axis 3"},
    {"%1 = input F32 [1 1 1 1 1 1 1 1 1 9] \"x\"\n%2 = windows %1 9 3",
     "no place for one more axis"},
    {X "%2 = squeeze %1 1", "squeeze of [n<=7, 4, 6]: the axis is not 1"},
    {X "%2 = unsqueeze %1 4", "unsqueeze of [n<=7, 4, 6]: no place"},
    {"%1 = input F32 [1 1 1 1 1 1 1 1 1 1] \"x\"\n%2 = unsqueeze %1 0",
     "no place for one more axis"},
    {X "%2 = reshape %1 [n 25]", "reshape of [n<=7, 4, 6] to [n<=7, 25]: another size"},
    {X "%2 = permute %1 [1 0 2]\n%3 = reshape %2 [24 n]", "across an extent that is not outermost"},
    {X "%2 = pad %1 3 1 1 0", "pad of [n<=7, 4, 6]: there is no axis 3"},
    {X "%2 = pad %1 1 4294967295 4294967295 0", "2^32 - 1"},
    {X "%2 = concat %1 2", "more or fewer values"},
    {X "%2 = permute %1 [0 2 1]\n%3 = concat %1 %2 0",
     "concat: shapes do not fit: [n<=7, 4, 6], [n<=7"},
    {X "%2 = concat %1 %1 3", "concat of [n<=7, 4, 6]: there is no axis 3"},
    {"%1 = input F32 [3] \"x\"\n%2 = tril %1 0", "tril takes two axes"},
    {X "%2 = tril %1 2147483648", "of 32 bits"},
    {X "%2 = triu %1 -2147483649", "of 32 bits"},
    {"%1 = input F32 [3000000000] \"x\"\n%2 = narrow %1 0 0 2 2999999999", "further apart"},
    {"%1 = weight Q4_0 [4 64] \"w\"\n%2 = permute %1 [1 0]", "a view of Q4_0 that cuts its rows"},
    {"%1 = weight Q4_0 [4 64] \"w\"\n%2 = flip %1 1", "cuts its rows"},
    {"%1 = weight Q4_0 [64 64] \"w\"\n%2 = diagonal %1 0 1", "cuts its rows"},
    {"%1 = input F32 [4 2] \"x\"\n%2 = weight F16 [3 2] \"w\"\n%3 = flip %2 0\n%4 = linear %1 %3",
     "linear: input 2, [3, 2], is a view with gaps, and F16 is not copied"},
    {"%1 = state F32 [2 9 2 16] \"s\"\n%2 = permute %1 [0 1 2 3]\n%3 = flip %1 0\n%4 = input F32 "
     "[4 "
     "2 16] \"x\"\n%5 = input I32 [4] \"i\"\n%6 = kv_write %3 %4 %5 %5",
     "kv_write into a part of a state"},
};

static void check_refused(test *t, const char *text, const char *says) {
    char with[400];
    lab l;
    snprintf(with, sizeof with, "extent n 7\n%s\n", text);
    const beryl_status status = lab_open(&l, with);
    if (status == BERYL_OK || !strstr(l.error.message, says))
        test_fail(t, __FILE__, __LINE__, "%s: %d '%s', not '%s'", text, (int)status,
                  l.error.message, says);
    lab_close(t, &l);
}

/* Products that store their parts of a whole (tests/contract_test.c has their numbers); and those
 * that somebody else reads too, which are copied. */
static const struct {
    const char *name, *text;
    uint32_t steps;
} parts[] = {
    {"concat-of-products",
     "%1 = input F32 [40 1 21] \"x\"\n%2 = input F32 [1 18 21] \"y\"\n%3 = contract %1 %2 4\n"
     "%4 = input F32 [16 1 21] \"z\"\n%5 = contract %4 %2 4\n%6 = reshape %5 [16 18]\n"
     "%7 = reshape %3 [40 18]\n%8 = concat %7 %6 0\n%9 = contract %4 %2 4\n%10 = reshape %9 "
     "[16 18]\n%11 = concat %8 %10 0\n%12 = narrow %11 1 3 9 1\n%13 = softmax %12\n" Y("11")
         Y("13"),
     4},
    {"concat-of-products-read-twice",
     "%1 = input F32 [40 1 21] \"x\"\n%2 = input F32 [1 18 21] \"y\"\n%3 = contract %1 %2 4\n"
     "%4 = contract %1 %2 4\n%5 = concat %3 %3 0\n%6 = concat %4 %3 0\n%7 = concat %4 %4 1\n" Y("5")
         Y("6") Y("7"),
     5},
};

/* Text there and back keeps every view. */
static void check_text(test *t, const char *text) {
    lab l, again;
    base_text first, second;
    CHECK_INT(t, lab_open(&l, text), BERYL_OK);
    base_text_init(&first, &l.heap);
    CHECK_INT(t, graph_text_print(l.g, &l.store, &first, &l.error), BERYL_OK);
    const beryl_status status = lab_open(&again, first.data);
    if (status != BERYL_OK) test_fail(t, __FILE__, __LINE__, "%s", again.error.message);
    base_text_init(&second, &again.heap);
    graph_text_print(again.g, &again.store, &second, &again.error);
    CHECK_TEXT(t, second.data, first.data);
    for (graph_value v = 1; v < l.g->tensors.count && !test_failed(t); v++) {
        const graph_tensor *a = graph_tensor_at(l.g, v), *b = graph_tensor_at(again.g, v);
        CHECK(t, a->offset == b->offset && graph_same_shape(a, b));
        CHECK(t, !memcmp(a->stride, b->stride, a->rank * sizeof *a->stride));
    }
    base_text_fini(&second);
    base_text_fini(&first);
    lab_close(t, &again);
    lab_close(t, &l);
}

void test_views(test *t);
void test_views(test *t) {
    for (size_t i = 0; i < sizeof placed / sizeof *placed; i++)
        if (test_case(t, "views/elements/%s", placed[i].name))
            check_placed(t, placed[i].x, placed[i].views, placed[i].at, placed[i].copies);
    for (size_t i = 0; i < sizeof read / sizeof *read; i++) {
        if (test_case(t, "views/text/%s", read[i].name)) check_text(t, read[i].text);
        if (read[i].steps && test_case(t, "views/dispatches/%s", read[i].name))
            check_steps(t, read[i].text, read[i].steps);
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (test_case(t, "views/dispatches/%s", parts[i].name))
            check_steps(t, parts[i].text, parts[i].steps);
    if (test_case(t, "views/refused"))
        for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
            check_refused(t, refused[i].text, refused[i].says);
    for (size_t i = 0; i < test_form_count(); i++) run_read(t, &test_forms[i], i);
}
