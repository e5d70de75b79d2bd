/* matvec_test.c - the choice of a form for products with few vectors on GPUs. What the forms
 * compute is tested by products_test.c and fused_test.c. */
#include "test.h"

#include "tile/matvec_inside.h"

static const device_caps big = {.kind = DEVICE_DISCRETE,
                                .subgroups = true,
                                .subgroup_size = 32,
                                .dot_i8 = true,
                                .workgroup_bytes = 49152,
                                .workgroup_invocations = 1024},
                         least = {.kind = DEVICE_INTEGRATED,
                                  .workgroup_bytes = 16384,
                                  .workgroup_invocations = 256},
                         soft = {.kind = DEVICE_SOFTWARE,
                                 .subgroups = true,
                                 .subgroup_size = 8,
                                 .dot_i8 = true,
                                 .workgroup_bytes = 32768,
                                 .workgroup_invocations = 1024};

static const matvec_shape one = {
    .n_segment = 1, .types = {TYPE_Q4_K}, .rows = {2048}, .k = 1536, .n_x = 1};

static uint32_t tile_of(const matvec_choice *c) {
    return c->wg / c->lanes * c->rows;
}

static void check_integers(test *t) {
    matvec_shape shape = one;
    matvec_choice c;
    CHECK(t, tile_matvec_choose(&big, &shape, &c) && c.x == MATVEC_INT8 && c.subgroups);
    /* copied to workgroup memory where that has room */
    shape.rows[0] = 1536, shape.k = 6144, shape.rounded_in = true;
    CHECK(t, tile_matvec_choose(&big, &shape, &c) && c.x == MATVEC_INT8 && c.wg == 384);
    shape.rows[0] = 8192; /* more workgroups than find room at once: small ones */
    CHECK(t, tile_matvec_choose(&big, &shape, &c) && c.x == MATVEC_INT8 && c.wg == 128);
    shape.k = 32768;
    CHECK(t, tile_matvec_choose(&big, &shape, &c) && c.x == MATVEC_QUANTISED);
    shape.k = one.k, shape.types[0] = TYPE_IQ4_XS; /* the vector is interleaved there */
    CHECK(t, !tile_matvec_choose(&big, &shape, &c));
    shape.types[0] = TYPE_Q4_K;
    shape.rounded_in = false, shape.exact = true;
    CHECK(t, tile_matvec_choose(&big, &shape, &c) && c.x == MATVEC_SHARED && c.subgroups);
    shape.k = 16384; /* too much for workgroup memory */
    CHECK(t, tile_matvec_choose(&big, &shape, &c) && c.x == MATVEC_DIRECT);
    shape = one, shape.types[0] = TYPE_BF16;
    CHECK(t, tile_matvec_choose(&big, &shape, &c) && c.x == MATVEC_SHARED);
    CHECK(t, tile_matvec_choose(&least, &one, &c) && c.x == MATVEC_SHARED && !c.subgroups);
}

static const matvec_shape gate = {.n_segment = 1,
                                  .types = {TYPE_Q4_K},
                                  .rows = {12288},
                                  .k = 1536,
                                  .n_x = 16,
                                  .per = 2,
                                  .rounded_in = true,
                                  .rounded_out = true};

static void check_batches(test *t) {
    matvec_choice c;
    CHECK(t, tile_matvec_choose(&big, &gate, &c) && c.x == MATVEC_COPIED && c.share &&
                 c.n_x <= 16 && tile_of(&c) % 32 == 0);
    matvec_shape other = gate;
    other.n_x = 17; /* twice, rather than 16 and one; there is room for all of k */
    CHECK(t, tile_matvec_choose(&big, &other, &c) && c.x == MATVEC_COPIED && c.n_x <= 12 &&
                 c.window >= other.k);
    other.n_x = 2; /* as many as a lane multiplies at once */
    CHECK(t, tile_matvec_choose(&big, &other, &c) && c.x == MATVEC_COPIED && c.n_x == 4);
    other = gate, other.exact = true;
    CHECK(t, !tile_matvec_choose(&big, &other, &c));
    /* few weights: each vector may read them for itself, rather than have another dispatch */
    other = gate, other.rows[0] = 256;
    CHECK(t, tile_matvec_choose(&big, &other, &c));
    other.rounded_apart = true;
    CHECK(t, !tile_matvec_choose(&big, &other, &c));
    other = gate, other.types[0] = TYPE_F16;
    CHECK(t, !tile_matvec_choose(&big, &other, &c));
    other = gate, other.types[0] = TYPE_IQ4_NL; /* looked up in a table */
    CHECK(t, !tile_matvec_choose(&big, &other, &c));
    CHECK(t, !tile_matvec_choose(&least, &gate, &c) && !tile_matvec_choose(&soft, &gate, &c));
}

/* Two rows a lane where there are rows and chunks for all lanes so; blocks that are handed on are
 * whole. */
static void check_two(test *t) {
    static const matvec_shape two[] = {
        {1,
         {TYPE_Q4_K},
         {15360},
         .k = 3840,
         .n_x = 1,
         .per = 2,
         .has_prologue = true,
         .rounded_out = true},
        {1, {TYPE_Q6_K}, {3840}, .k = 15360, .n_x = 1, .rounded_in = true},
        {3,
         {TYPE_Q4_K, TYPE_Q4_K, TYPE_Q6_K},
         {4096, 2048, 2048},
         .k = 3840,
         .n_x = 1,
         .has_prologue = true},
    };
    for (size_t i = 0; i < sizeof two / sizeof *two; i++) {
        matvec_shape shape = two[i];
        matvec_choice c;
        CHECK(t, tile_matvec_choose(&big, &shape, &c) && c.rows == 2 &&
                     c.lanes == (shape.rounded_in ? 32 : 16));
        CHECK(t, !shape.rounded_out || tile_of(&c) % 32 == 0);
        shape.rows[0] = 1536, shape.rows[1] = shape.rows[2] = 256; /* too few */
        CHECK(t, tile_matvec_choose(&big, &shape, &c) && c.rows == 1);
        shape = two[i], shape.k = 1280; /* no 16 chunks for each lane of a turn */
        CHECK(t, tile_matvec_choose(&big, &shape, &c) && c.rows == 1);
        shape = two[i], shape.exact = true, shape.rounded_in = shape.rounded_out = false;
        CHECK(t, tile_matvec_choose(&big, &shape, &c) && c.rows == 1);
    }
}

/* Workgroups of 12 subgroups, where 8 or 16 leave more of the units without rows. */
static void check_even(test *t) {
    static const matvec_shape even[] = {
        {1, {TYPE_F16}, {1536}, .k = 12288, .n_x = 1},
        {1, {TYPE_Q6_K}, {1536}, .k = 6144, .n_x = 1, .rounded_in = true},
        {1,
         {TYPE_Q4_K},
         {10240},
         .k = 2560,
         .n_x = 1,
         .per = 2,
         .has_prologue = true,
         .rounded_out = true},
    };
    device_caps caps = big, other = big;
    caps.languages = DEVICE_LANGUAGE_BIT(DEVICE_CUDA_C),
    other.languages = DEVICE_LANGUAGE_BIT(DEVICE_WGSL);
    caps.compute_units = other.compute_units = 132;
    caps.workgroup_bytes = other.workgroup_bytes = 227 << 10;
    for (size_t i = 0; i < sizeof even / sizeof *even; i++) {
        matvec_shape shape = even[i];
        matvec_choice c;
        CHECK(t, tile_matvec_choose(&caps, &shape, &c) && c.wg == 384);
        CHECK(t, !shape.rounded_out || tile_of(&c) % 32 == 0);
        /* pairs through WebGPU: more lanes a row, and then 384 spread them no better */
        CHECK(t, tile_matvec_choose(&other, &shape, &c) && (c.wg == 384) == (shape.per < 2));
        shape.rows[0] = 132 * 64; /* as many for each unit */
        CHECK(t, tile_matvec_choose(&caps, &shape, &c) && c.wg != 384);
    }
    matvec_shape small = one; /* a lane a four of the vector; of few rows all asked for at once */
    matvec_choice c;
    small.has_prologue = true;
    CHECK(t, tile_matvec_choose(&caps, &small, &c) && c.wg == 384);
    CHECK(t, tile_matvec_choose(&other, &small, &c) && c.wg == 512);
    small.types[0] = TYPE_F16, small.rows[0] = 256;
    CHECK(t, tile_matvec_choose(&caps, &small, &c) && c.wg == 128 && c.depth == 3);
    CHECK(t, tile_matvec_choose(&other, &small, &c) && c.wg == 256 && c.depth == 1);
}

static void check_asked(test *t) {
    lower_form form = {.wg = 512, .lanes = 16, .groups = 7};
    matvec_shape shape = one;
    matvec_choice c;
    shape.form = &form;
    CHECK(t, tile_matvec_choose(&big, &shape, &c) && c.wg == 512 && c.lanes == 16 &&
                 c.groups == 7 && c.rows >= 1);
    CHECK(t, !tile_matvec_choose(&least, &shape, &c)); /* has 256 invocations */
    form.wg = 48;
    CHECK(t, !tile_matvec_choose(&big, &shape, &c));
    form.tuned = true; /* of another device, perhaps */
    CHECK(t, tile_matvec_choose(&big, &shape, &c) && c.wg != 48);
    form = (lower_form){.wg = 512, .rows = 1, .lanes = 32};
    CHECK(t, tile_matvec_choose(&big, &shape, &c) && c.rows == 1 && c.lanes == 32);
    shape.rounded_out = true; /* a tile that is no whole block */
    CHECK(t, !tile_matvec_choose(&big, &shape, &c));
    shape = gate, shape.form = &form;
    form = (lower_form){.wg = 256, .rows = 2, .lanes = 8, .n_x = 8, .depth = 1};
    CHECK(t, tile_matvec_choose(&big, &shape, &c) && c.wg == 256 && c.rows == 2 && c.lanes == 8 &&
                 c.n_x == 8);
    form.wg = 264; /* no whole subgroups */
    CHECK(t, !tile_matvec_choose(&big, &shape, &c));
}

static void check_within(test *t, const device_caps *caps, const matvec_shape *shape) {
    const uint32_t per = shape->per;
    matvec_choice c;
    const bool there = tile_matvec_choose(caps, shape, &c);
    CHECK(t, there || shape->rounded_in); /* which is for batches alone */
    if (!there) return;
    CHECK(t, c.wg <= caps->workgroup_invocations && c.wg % c.lanes == 0 && c.n_x && c.groups);
    CHECK(t, c.rows * per <= TILE_ROWS_MAX && c.rows * c.n_x * per <= TILE_SUMS_MAX);
    const uint64_t kept = c.x == MATVEC_SHARED   ? 4ull * shape->k
                          : c.x == MATVEC_INT8   ? shape->k
                          : c.x == MATVEC_COPIED ? c.window
                                                 : 0;
    CHECK(t, kept * c.n_x <= caps->workgroup_bytes);
    CHECK(t, c.x == MATVEC_COPIED ? c.lanes % c.share == 0 && c.share * c.near <= c.span
                                  : !c.subgroups || c.lanes <= c.span);
    CHECK(t, !c.subgroups || (caps->subgroups && c.span <= caps->subgroup_size));
}

/* Of a vector of f32, where eight lanes' next 16 numbers lie, in fours: a bank each. */
static void check_banks(test *t) {
    for (uint32_t k = 64; k <= 16384; k += 64) {
        uint32_t unit, half, second, vector, banks = 0;
        matvec_layout(MATVEC_SHARED, k, &unit, &half, &second, &vector);
        for (uint32_t lane = 0; lane < 8; lane++)
            banks |= 1u << (lane / 4 + lane / 2 % 2 * second + lane % 2 * half) % 8;
        CHECK_INT(t, banks, 255);
        CHECK(t, second + half + 3 * unit + k / 64 <= vector);
    }
}

void test_matvec(test *t);
void test_matvec(test *t) {
    matvec_choice c;
    if (test_case(t, "matvec/integer-dot-products-where-the-device-has-them")) check_integers(t);
    if (test_case(t, "matvec/batches-of-vectors-have-a-form-of-their-own")) check_batches(t);
    if (test_case(t, "matvec/two-rows-at-once-where-there-are-enough")) check_two(t);
    if (test_case(t, "matvec/as-many-rows-for-each-unit")) check_even(t);
    if (test_case(t, "matvec/eight-lanes-read-eight-banks")) check_banks(t);
    /* a lane does whole rows there: tile/linear.c */
    if (test_case(t, "matvec/no-barriers-on-software-devices"))
        CHECK(t, !tile_matvec_choose(&soft, &one, &c));
    if (test_case(t, "matvec/a-form-that-is-asked-for-is-taken-or-refused")) check_asked(t);
    if (!test_case(t, "matvec/choices-stay-within-the-device")) return;
    for (uint32_t n_x = 1; n_x <= MATVEC_ROWS_MAX; n_x++)
        for (uint32_t k = 16; k <= 32768; k *= 2)
            for (uint32_t rows = 1; rows <= 1u << 20; rows *= 8)
                for (uint32_t i = 0; i < 8; i++) {
                    const matvec_shape shape = {.n_segment = 1,
                                                .types = {k < 256 ? TYPE_F16 : TYPE_Q6_K},
                                                .rows = {rows},
                                                .k = k,
                                                .n_x = n_x,
                                                .per = 1 + i % 2,
                                                .rounded_in = i / 2 % 2};
                    check_within(t, i / 4 ? &big : &least, &shape);
                }
}
