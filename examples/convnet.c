/* convnet.c - a small convolutional net that knows drawn digits: strokes are found by convolutions,
 * pooled, and compared with those of one clean drawing of each digit.
 *   cc convnet.c $(pkg-config --cflags --libs beryl) -o convnet */
#include "beryl_graph.h"

#include <stdio.h>
#include <stdlib.h>

enum { DIGITS = 5, SIZE = 8, STROKES = 4, PICTURES = 5 };

static const char *const digits[DIGITS][SIZE] = {
    {"  ####  ", " #    # ", " #    # ", " #    # ", " #    # ", " #    # ", "  ####  ",
     "        "},
    {"   #    ", "  ##    ", "   #    ", "   #    ", "   #    ", "   #    ", "  ###   ",
     "        "},
    {" ###### ", "      # ", "     #  ", "    #   ", "   #    ", "  #     ", " ###### ",
     "        "},
    {" #   #  ", " #   #  ", " #   #  ", " ###### ", "     #  ", "     #  ", "     #  ",
     "        "},
    {" ###### ", "      # ", "     #  ", "     #  ", "    #   ", "    #   ", "    #   ",
     "        "},
};
static const int names[DIGITS] = {0, 1, 2, 4, 7};

/* Others, drawn in haste: moved, broken, with a blot. */
static const char *const drawn[PICTURES][SIZE] = {
    {"        ", "    #   ", "   ##   ", "    #   ", "    #   ", " #  #   ", "    #   ",
     "   ###  "},
    {"        ", "  #   # ", "  #   # ", "  #   # ", "  ##### ", "      # ", "      # ",
     "      # "},
    {"  ####  ", " #   ## ", " #    # ", " #      ", " #    # ", " ##   # ", "  ####  ",
     "        "},
    {"        ", " #####  ", "     #  ", "    #   ", "    #   ", "   #    ", "   #    ",
     "   #  # "},
    {"  ##### ", "      # ", "      # ", "    ##  ", "   #    ", "  #     ", " ###### ",
     " #      "},
};
static const int right[PICTURES] = {1, 4, 0, 7, 2};

/* [out, in, 3, 3]: lines across, upright, rising and falling. */
static const float strokes[STROKES][1][3][3] = {
    {{{-1, -1, -1}, {2, 2, 2}, {-1, -1, -1}}},
    {{{-1, 2, -1}, {-1, 2, -1}, {-1, 2, -1}}},
    {{{-1, -1, 2}, {-1, 2, -1}, {2, -1, -1}}},
    {{{2, -1, -1}, {-1, 2, -1}, {-1, -1, 2}}},
};

static void check(beryl_status status, const beryl_error *error) {
    if (status == BERYL_OK) return;
    fprintf(stderr, "convnet: %s\n", error->message);
    exit(1);
}

static void ink(const char *const rows[SIZE], float *to /* [SIZE, SIZE] */) {
    for (int i = 0; i < SIZE * SIZE; i++) to[i] = rows[i / SIZE][i % SIZE] == '#';
}

/* [n, 1, SIZE, SIZE] -> [n, features], each row of length 1 */
static beryl_value features(beryl_graph *g, beryl_value x, beryl_value weight, beryl_dim n) {
    const beryl_window three = {.size = 3,
                                .stride = 1,
                                .dilation = 1,
                                .pad_before = 1,
                                .pad_after = 1},
                       both[] = {three, three};
    const beryl_dim flat[] = {n, {STROKES * 4 * 4, 0}};
    beryl_value v = beryl_graph_relu(g, beryl_graph_conv(g, x, weight, 2, both, 1));
    v = beryl_graph_max_pool(g, v, 2, both); /* a stroke nearby is as good */
    v = beryl_graph_adaptive_avg_pool(g, v, 2, (const uint32_t[]){4, 4});
    return beryl_graph_l2_norm(g, beryl_graph_reshape(g, v, 2, flat), 1, 1e-6f);
}

int main(void) {
    float pictures[PICTURES][SIZE * SIZE], clean[DIGITS][SIZE * SIZE];
    int32_t found[PICTURES];
    beryl_graph *g;
    beryl_status status;
    beryl_error error;

    for (int i = 0; i < PICTURES; i++) ink(drawn[i], pictures[i]);
    for (int i = 0; i < DIGITS; i++) ink(digits[i], clean[i]);
    check(beryl_graph_open(NULL, &g, &error), &error);
    const beryl_dim n = {PICTURES, beryl_graph_extent(g, "n", PICTURES)}, known = {DIGITS, 0};
    const beryl_value x = beryl_graph_input(g, "pictures", BERYL_TYPE_F32, 4,
                                            (const beryl_dim[]){n, {1, 0}, {SIZE, 0}, {SIZE, 0}}),
                      one = beryl_graph_input(
                          g, "digits", BERYL_TYPE_F32, 4,
                          (const beryl_dim[]){known, {1, 0}, {SIZE, 0}, {SIZE, 0}}),
                      weight = beryl_graph_weight(g, "strokes", BERYL_TYPE_F32, 4,
                                                  (const uint32_t[]){STROKES, 1, 3, 3}, strokes,
                                                  sizeof strokes);
    const beryl_value alike = beryl_graph_matmul(g, features(g, x, weight, n),
                                                 features(g, one, weight, known), false, true),
                      best = beryl_graph_argmax(g, alike, 1, false);
    beryl_graph_output(g, best, "best");
    while ((status = beryl_graph_compile(g, &error)) == BERYL_PENDING) {}
    check(status, &error);
    check(beryl_graph_set(g, x, pictures, sizeof pictures, &error), &error);
    check(beryl_graph_set(g, one, clean, sizeof clean, &error), &error);
    check(beryl_graph_run(g, (const uint32_t[]){PICTURES}, 1, &error), &error);
    check(beryl_graph_wait(g, &error), &error);
    check(beryl_graph_read(g, best, found, sizeof found, &error), &error);
    int good = 0;
    for (int i = 0; i < PICTURES; i++) {
        printf("%d, drawn was %d\n", names[found[i]], right[i]);
        good += names[found[i]] == right[i];
    }
    beryl_graph_close(g);
    return good == PICTURES ? 0 : 1;
}
