/* types_test.c - the type table, half floats and every block format against stored numbers. */
#include "test.h"
#include "base/thread.h"
#include "base/types.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static const base_type in_files[] = {TYPE_IQ1_S,  TYPE_IQ1_M, TYPE_IQ2_XXS,
                                     TYPE_IQ2_XS, TYPE_IQ2_S, TYPE_IQ3_XXS,
                                     TYPE_IQ3_S,  TYPE_TQ1_0, TYPE_TQ2_0};

/* Blocks and their values as the package gguf has them (tests/data/types/make.py): equal to the
 * bit. */
static void test_fixtures(test *t) {
    enum { BLOCKS = 4, N = BLOCKS * 256 };
    for (size_t i = 0; i < sizeof in_files / sizeof *in_files; i++) {
        const base_type type = in_files[i];
        const size_t size = BLOCKS * base_type_block_bytes(type);
        if (!test_case(t, "types/as-gguf-%s", base_type_name(type))) continue;
        char path[64];
        unsigned char file[2 * 4 * N];
        float values[N];
        snprintf(path, sizeof path, "tests/data/types/%s.bin", base_type_name(type));
        FILE *f = fopen(path, "rb");
        const size_t n = f ? fread(file, 1, sizeof file, f) : 0;
        if (f) fclose(f);
        CHECK_INT(t, (long long)n, (long long)(size + sizeof values));
        base_dequantise(type, file, values, N);
        CHECK(t, n == size + sizeof values && !memcmp(values, file + size, sizeof values));
    }
}

static void test_table(test *t) {
    if (test_case(t, "types/gguf-ids-names-and-sizes")) {
        /* Every id up to 50: what the file format calls it, or nothing where an id is retired or
         * unknown. */
        static const char *const names[50] = {
            [0] = "F32",     [1] = "F16",      [2] = "Q4_0",   [3] = "Q4_1",    [6] = "Q5_0",
            [7] = "Q5_1",    [8] = "Q8_0",     [9] = "Q8_1",   [10] = "Q2_K",   [11] = "Q3_K",
            [12] = "Q4_K",   [13] = "Q5_K",    [14] = "Q6_K",  [15] = "Q8_K",   [16] = "IQ2_XXS",
            [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S", [20] = "IQ4_NL", [21] = "IQ3_S",
            [22] = "IQ2_S",  [23] = "IQ4_XS",  [24] = "I8",    [25] = "I16",    [26] = "I32",
            [27] = "I64",    [28] = "F64",     [29] = "IQ1_M", [30] = "BF16",   [34] = "TQ1_0",
            [35] = "TQ2_0",  [39] = "MXFP4",   [40] = "NVFP4", [41] = "Q1_0",   [42] = "Q2_0"};
        static const int refused[] = {9, 41, 42};
        for (uint32_t id = 0; id < 50; id++) {
            base_type type;
            const char *name = base_type_gguf_name(id);
            CHECK(t, (name != NULL) == (names[id] != NULL));
            if (name && names[id]) CHECK_TEXT(t, name, names[id]);
            bool known = names[id] != NULL;
            for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
                known &= id != (uint32_t)refused[i];
            CHECK_INT(t, base_type_from_gguf(id, &type), known);
            if (known) CHECK_TEXT(t, base_type_name(type), names[id]);
        }
        CHECK(t, !base_type_gguf_name(UINT32_MAX) &&
                     !base_type_from_gguf(UINT32_MAX, &(base_type){0}));
    }
    if (test_case(t, "types/row-bytes")) {
        CHECK_INT(t, base_type_row_bytes(TYPE_Q4_K, 1536), 6 * 144);
        CHECK_INT(t, base_type_row_bytes(TYPE_Q8_0, 48), 0);
        CHECK_INT(t, base_type_row_bytes(TYPE_F32, 7), 28);
        CHECK_INT(t, base_type_row_bytes(TYPE_F32, UINT64_MAX / 2), 0);
        CHECK(t, base_type_row_bytes(TYPE_I8, UINT64_MAX) == UINT64_MAX);
        for (int i = 0; i < TYPE_COUNT; i++)
            CHECK_INT(t, base_type_is_quantised((base_type)i), base_type_block((base_type)i) > 1);
    }
}

/* ---- scalars */

/* binary16 by its definition. */
static double f16_value(uint32_t bits) {
    int exponent = (int)(bits >> 10 & 31);
    double mantissa = bits & 1023, sign = bits & 0x8000 ? -1 : 1;
    return sign * (exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24));
}

static void test_halves(test *t) {
    if (test_case(t, "types/f16-all-values")) {
        int wrong = 0;
        for (uint32_t h = 0; h < 65536; h++) {
            float value = base_f16_to_f32((uint16_t)h);
            bool special = (h & 0x7c00) == 0x7c00;
            if (!special)
                wrong += (double)value != f16_value(h) || !signbit(value) != !(h & 0x8000);
            else if (h & 1023) wrong += !isnan(value);
            else wrong += !isinf(value) || !signbit(value) != !(h & 0x8000);
            wrong += base_f32_to_f16(value) != h;
        }
        CHECK_INT(t, wrong, 0);
    }
    if (test_case(t, "types/f16-nearest-even")) {
        /* Around the middle between each value and the next larger one, in both signs. */
        int wrong = 0;
        for (uint32_t h = 0; h < 0x7bff; h++) {
            float middle = (float)((f16_value(h) + f16_value(h + 1)) / 2);
            wrong += base_f32_to_f16(middle) != (h & 1 ? h + 1 : h);
            wrong += base_f32_to_f16(nextafterf(middle, 0)) != h;
            wrong += base_f32_to_f16(-nextafterf(middle, INFINITY)) != ((h + 1) | 0x8000);
        }
        CHECK_INT(t, wrong, 0);
        CHECK_INT(t, base_f32_to_f16(65519.996f), 0x7bff);
        CHECK_INT(t, base_f32_to_f16(65520), 0x7c00);
        CHECK_INT(t, base_f32_to_f16(-1e30f), 0xfc00);
        CHECK_INT(t, base_f32_to_f16(-INFINITY), 0xfc00);
        CHECK_INT(t, base_f32_to_f16(float_of(1)), 0);
        CHECK_INT(t, base_f32_to_f16(float_of(0x7f800001)) & 0x7c00, 0x7c00);
        CHECK(t, base_f32_to_f16(float_of(0x7f800001)) != 0x7c00);
    }
    if (test_case(t, "types/bf16-nearest-even")) {
        static const uint32_t rows[][2] = {
            {0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81}, {0x3f818000, 0x3f82},
            {0x3f817fff, 0x3f81}, {0x80000000, 0x8000}, {0x00000001, 0x0000}, {0x7f7fffff, 0x7f80},
            {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, {0xffc00000, 0xffc0}, {0x7f800001, 0x7fc0}};
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            CHECK_INT(t, base_f32_to_bf16(float_of(rows[i][0])), rows[i][1]);
        int wrong = 0;
        for (uint32_t h = 0; h < 65536; h++) {
            uint8_t bytes[2] = {(uint8_t)h, (uint8_t)(h >> 8)};
            float value;
            base_dequantise(TYPE_BF16, bytes, &value, 1);
            wrong += bits_of(value) != h << 16;
            if (!isnan(value)) wrong += base_f32_to_bf16(value) != h;
        }
        CHECK_INT(t, wrong, 0);
    }
    if (test_case(t, "types/f16-rows")) {
        uint8_t bytes[2 * 1001 + 1]; /* one off, since rows need not be aligned */
        float values[1001];
        for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 89 + i / 256);
        base_dequantise(TYPE_F16, bytes + 1, values, 1001);
        int wrong = 0;
        for (size_t i = 0; i < 1001; i++) {
            uint16_t h = (uint16_t)(bytes[2 * i + 1] | bytes[2 * i + 2] << 8);
            wrong += bits_of(values[i]) != bits_of(base_f16_to_f32(h));
        }
        CHECK_INT(t, wrong, 0);
    }
}

static void test_numbers(test *t) {
    static const struct {
        base_type type;
        uint8_t bytes[8]; /* of one element, little-endian */
        float want;
    } rows[] = {
        {TYPE_F32, {0xdb, 0x0f, 0x49, 0x40}, 3.14159274f},
        {TYPE_F32, {1, 0, 0, 0x80}, -0x1p-149f},
        {TYPE_F64, {0x18, 0x2d, 0x44, 0x54, 0xfb, 0x21, 0x09, 0x40}, 3.14159274f},
        {TYPE_F64, {0, 0, 0, 0, 0, 0, 0xf0, 0x7f}, INFINITY},
        {TYPE_F64, {0x9c, 0x75, 0, 0x88, 0x3c, 0xe4, 0x37, 0xfe}, -INFINITY},
        {TYPE_I8, {0x80}, -128},
        {TYPE_U8, {0x80}, 128},
        {TYPE_BOOL, {2}, 1},
        {TYPE_BOOL, {0}, 0},
        {TYPE_I16, {0xfe, 0xff}, -2},
        {TYPE_U16, {0xfe, 0xff}, 65534},
        {TYPE_I32, {0xff, 0xff, 0xff, 0xff}, -1},
        {TYPE_U32, {0xff, 0xff, 0xff, 0xff}, 0x1p32f},
        {TYPE_I64, {0, 0, 0, 0, 0, 0, 0, 0x80}, -0x1p63f},
        {TYPE_U64, {0, 0, 0, 0, 0, 0, 0, 0x80}, 0x1p63f},
    };
    if (test_case(t, "types/numbers-to-f32")) {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            float got = 7;
            base_dequantise(rows[i].type, rows[i].bytes, &got, 1);
            if (bits_of(got) != bits_of(rows[i].want))
                test_fail(t, __FILE__, __LINE__, "%s gave %.9g, not %.9g",
                          base_type_name(rows[i].type), (double)got, (double)rows[i].want);
        }
    }
}

/* ---- blocks */

enum { NONE = -1, BLOCK_MAX = 292 };

/* The block that the vectors are of: byte i is 73 i + 29, the scale 0.25, the second half float
 * 0.125. */
static const struct block_row {
    base_type type;
    int d, m; /* where the half floats lie; Q8_K, MXFP4 and NVFP4 have another kind of scale */
    float first[4], middle, last;
    double sum, weighted; /* of y[i] and of (i + 1) y[i]: exact */
} block_rows[] = {
    {TYPE_Q4_0, 0, NONE, {1.75, 0, -1.75, 0.5}, 0.5, 1.75, 0.75, 41.75},
    {TYPE_Q4_1, 0, 2, {0.375, 2.625, 0.875, 3.125}, 1.125, 2.125, 65.25, 1116},
    {TYPE_Q5_0, 0, NONE, {0.75, 3, 1.25, 3.5}, 3.25, 0.25, -2.25, -198.75},
    {TYPE_Q5_1, 0, 2, {5.375, 3.625, 1.875, 0.125}, 5.625, 2.625, 118.25, 2041.5},
    {TYPE_Q8_0, 0, NONE, {-20.25, -2, 16.25, -29.5}, 15.75, -30.5, -108, -1756},
    {TYPE_Q2_K, 80, 82, {3.125, 6.375, 9.625, -0.125}, 0.5, 1.25, 479.5, 51209.25},
    {TYPE_Q3_K, 108, NONE, {-0.75, 1.5, -2.25, 3}, -6.25, 0, 145.75, 26587},
    {TYPE_Q4_K, 0, 2, {-1.375, -3.125, -0.875, -2.625}, 78.25, 11.25, 9750, 1544696},
    {TYPE_Q5_K, 0, 2, {2.625, -3.125, 3.125, -2.625}, 78.25, 13.25, 20826, 3242192},
    {TYPE_Q6_K, 208, NONE, {26.25, -52.5, -271.25, 210}, -27.75, 45, 3633, 543518},
    {TYPE_Q8_K, NONE, NONE, {16.25, -29.5, -11.25, 7}, -15.75, -2, -32, 8032},
    {TYPE_IQ4_NL, 0, NONE, {28.25, 0.25, -26, 6.25}, 6.25, 28.25, 27.5, 917.25},
    {TYPE_IQ4_XS, 0, NONE, {-148.75, 378.25, -42.5, -539.75}, 253.75, 55.25, -4983, -960461.75},
    {TYPE_MXFP4, NONE, NONE, {2, -3, 0, 0.25}, 2, -0.5, -2, -44.75},
    {TYPE_NVFP4,
     NONE,
     NONE,
     {0.05078125, -0.1015625, 0.15234375, -0.203125},
     0.234375,
     128,
     -2113.15234375,
     -109204.5078125},
};

static void block_fill(const struct block_row *row, uint8_t *block) {
    for (size_t i = 0; i < base_type_block_bytes(row->type); i++) block[i] = (uint8_t)(73 * i + 29);
    if (row->d != NONE) block[row->d] = 0, block[row->d + 1] = 0x34;
    if (row->m != NONE) block[row->m] = 0, block[row->m + 1] = 0x30;
    if (row->type == TYPE_Q8_K) memcpy(block, (uint8_t[]){0, 0, 0x80, 0x3e}, 4);
    if (row->type == TYPE_MXFP4) block[0] = 126;
}

static void check_block(test *t, const struct block_row *row, const float *y) {
    size_t n = base_type_block(row->type);
    double sum = 0, weighted = 0;
    for (size_t i = 0; i < n; i++) sum += (double)y[i], weighted += (double)(i + 1) * (double)y[i];
    for (size_t i = 0; i < 4; i++) CHECK_NEAR(t, y[i], row->first[i], 0);
    CHECK_NEAR(t, y[n / 2], row->middle, 0);
    CHECK_NEAR(t, y[n - 1], row->last, 0);
    CHECK_NEAR(t, sum, row->sum, 0);
    CHECK_NEAR(t, weighted, row->weighted, 0);
}

static void test_blocks(test *t) {
    uint8_t blocks[3 * BLOCK_MAX + 1];
    float y[3 * 256 + 1]; /* one more, to see a write beyond */
    size_t n_row = sizeof block_rows / sizeof *block_rows;
    for (size_t r = 0; r < n_row; r++) {
        const struct block_row *row = &block_rows[r];
        size_t bytes = base_type_block_bytes(row->type), n = base_type_block(row->type);
        if (!test_case(t, "types/block-%s", base_type_name(row->type))) continue;
        block_fill(row, blocks);
        y[n] = 1234;
        base_dequantise(row->type, blocks, y, n);
        check_block(t, row, y);
        CHECK(t, y[n] == 1234);
        /* Three in a row, the middle one another block, at an odd address. */
        block_fill(row, blocks + 1);
        memset(blocks + 1 + bytes, 0x11, bytes);
        block_fill(row, blocks + 1 + 2 * bytes);
        base_dequantise(row->type, blocks + 1, y, 3 * n);
        check_block(t, row, y);
        check_block(t, row, y + 2 * n);
    }
    if (test_case(t, "types/every-block-type-has-vectors")) {
        for (int i = 0; i < TYPE_COUNT; i++) {
            bool found = !base_type_is_quantised((base_type)i);
            for (size_t r = 0; r < n_row; r++) found |= block_rows[r].type == (base_type)i;
            for (size_t r = 0; r < sizeof in_files / sizeof *in_files; r++)
                found |= in_files[r] == (base_type)i;
            /* below */
            found |=
                i == TYPE_F8_E4M3 || i == TYPE_F8_E5M2 || i == TYPE_AFFINE8 || i == TYPE_AFFINE4;
            CHECK(t, found);
        }
    }
    if (test_case(t, "types/mxfp4-every-exponent")) {
        for (int e = 0; e < 255; e++) {
            memset(blocks, 0x21, 17); /* codes 1 and 2: the factor once and twice */
            blocks[0] = (uint8_t)e;
            base_dequantise(TYPE_MXFP4, blocks, y, 32);
            CHECK(t, y[0] == ldexpf(1, e - 128) && y[31] == ldexpf(2, e - 128));
        }
    }
}

/* Every code, against the words of the formats: sign, exponent and fraction; one code of E4M3 is no
 * number, E5M2 has infinities. */
static void test_floats_of_8_bits(test *t) {
    if (!test_case(t, "types/f8-every-code")) return;
    int wrong = 0;
    for (int code = 0; code < 256; code++) {
        uint8_t block[16];
        float y[2][16];
        memset(block, code, sizeof block);
        base_dequantise(TYPE_F8_E4M3, block, y[0], 16);
        base_dequantise(TYPE_F8_E5M2, block, y[1], 16);
        for (int type = 0; type < 2; type++) {
            const int bits = type ? 2 : 3, bias = type ? 15 : 7,
                      fraction = code & ((1 << bits) - 1), exponent = (code & 127) >> bits;
            float want = exponent ? ldexpf((float)(fraction + (1 << bits)), exponent - bias - bits)
                                  : ldexpf((float)fraction, 1 - bias - bits);
            if (type == 0 && (code & 127) == 127) want = NAN;
            if (type == 1 && exponent == 31) want = fraction ? NAN : INFINITY;
            for (int i = 0; i < 16; i++) {
                const float got = y[type][i];
                if (isnan(want)) wrong += !isnan(got);
                else wrong += fabsf(got) != want || !signbit(got) != !(code & 128);
            }
        }
    }
    CHECK_INT(t, wrong, 0);
}

static void test_affine_blocks(test *t) {
    if (!test_case(t, "types/affine-every-code")) return;
    const float d = 0.375f, m = -2.5f;
    int wrong = 0;
    for (int first = -128; first < 128; first += 32) {
        uint8_t block[40];
        float y[32];
        memcpy(block, &d, 4), memcpy(block + 4, &m, 4);
        for (int i = 0; i < 32; i++) block[8 + i] = (uint8_t)(first + i);
        base_dequantise(TYPE_AFFINE8, block, y, 32);
        for (int i = 0; i < 32; i++) wrong += y[i] != 0.375f * (float)(first + i) - 2.5f;
    }
    uint8_t block[24];
    float y[32];
    memcpy(block, &d, 4), memcpy(block + 4, &m, 4);
    for (int i = 0; i < 16; i++) block[8 + i] = (uint8_t)(i | (15 - i) << 4);
    base_dequantise(TYPE_AFFINE4, block, y, 32);
    for (int i = 0; i < 16; i++)
        wrong += y[i] != 0.375f * (float)i - 2.5f || y[16 + i] != 0.375f * (float)(15 - i) - 2.5f;
    CHECK_INT(t, wrong, 0);
}

/* Every scale with every code, in either half of a byte, against the words of the format: sign,
 * exponent and fraction. */
static void test_nvfp4(test *t) {
    if (!test_case(t, "types/nvfp4-every-scale-and-code")) return;
    static const float e2m1[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    int wrong = 0;
    for (int scale = 0; scale < 256; scale++) {
        const int exponent = scale >> 3 & 15, fraction = scale & 7;
        float factor =
            exponent ? ldexpf(1 + (float)fraction / 8, exponent - 7) : ldexpf((float)fraction, -9);
        float y[64];
        if (scale == 0x7f) factor = 0; /* it is no number */
        uint8_t block[36] = {(uint8_t)~scale, (uint8_t)scale, 0x38, 0x38};
        for (int i = 0; i < 8; i++) block[12 + i] = (uint8_t)(2 * i | (2 * i + 1) << 4);
        base_dequantise(TYPE_NVFP4, block, y, 64);
        for (int i = 0; i < 16; i++) {
            const int code = i % 8 * 2 + i / 8;
            const float value = (code == 8 ? 0 : code > 8 ? -1 : 1) * e2m1[code % 8] * factor;
            wrong += bits_of(y[16 + i]) != bits_of(value);
        }
    }
    CHECK_INT(t, wrong, 0);
}

/* The formulas of the format element by element, as plainly as they can be written, in double: with
 * scales of few bits every product is exact, so the row functions must agree to the bit. */
static int scale_six(const uint8_t *sc, int k) {
    int low = k < 8 ? sc[k] & 15 : sc[k - 8] >> 4;
    return low | (sc[8 + k % 4] >> 2 * (k / 4) & 3) << 4;
}

static void pair(const uint8_t *sc, int j, int *s, int *m) {
    *s = j < 4 ? sc[j] & 63 : (sc[j + 4] & 15) | sc[j - 4] >> 6 << 4;
    *m = j < 4 ? sc[j + 4] & 63 : sc[j + 4] >> 4 | sc[j] >> 6 << 4;
}

static double element(base_type type, const uint8_t *b, int i, double d, double m) {
    int h = i / 128, s = i % 128 / 32, l = i % 32, g = i / 64, u = i % 64 / 32, scale, least;
    bool k4 = type == TYPE_Q4_K;
    if (type == TYPE_Q2_K) {
        int c = b[8 * h + 2 * s + l / 16];
        return d * (c & 15) * (b[16 + 32 * h + l] >> 2 * s & 3) - m * (c >> 4);
    }
    if (type == TYPE_Q3_K) {
        int q = (b[32 + 32 * h + l] >> 2 * s & 3) - (b[l] >> (4 * h + s) & 1 ? 0 : 4);
        return d * (scale_six(b + 96, 8 * h + 2 * s + l / 16) - 32) * q;
    }
    if (type == TYPE_Q6_K) {
        int low = b[64 * h + l + 32 * (s & 1)] >> 4 * (s >> 1) & 15,
            high = b[128 + 32 * h + l] >> 2 * s & 3;
        return d * (int8_t)b[192 + 8 * h + 2 * s + l / 16] * ((low | high << 4) - 32);
    }
    pair(b + 4, 2 * g + u, &scale, &least); /* Q4_K, Q5_K */
    int q = b[(k4 ? 16 : 48) + 32 * g + l] >> 4 * u & 15;
    if (!k4) q += 16 * (b[16 + l] >> (2 * g + u) & 1);
    return d * scale * q - m * least;
}

static void test_formulas(test *t) {
    static const base_type types[] = {TYPE_Q2_K, TYPE_Q3_K, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K};
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        if (!test_case(t, "types/formula-%s", base_type_name(types[k]))) continue;
        const struct block_row *row = block_rows;
        while (row->type != types[k]) row++;
        base_random random = {k};
        int wrong = 0;
        for (int round = 0; round < 200; round++) {
            uint8_t block[BLOCK_MAX];
            float y[256];
            for (size_t i = 0; i < base_type_block_bytes(types[k]); i++)
                block[i] = (uint8_t)base_random_next(&random);
            block[row->d] = 0, block[row->d + 1] = 0x34; /* 0.25 and 0.125 */
            if (row->m != NONE) block[row->m] = 0, block[row->m + 1] = 0x30;
            base_dequantise(types[k], block, y, 256);
            for (int i = 0; i < 256; i++)
                wrong += (double)y[i] != element(types[k], block, i, 0.25, 0.125);
        }
        CHECK_INT(t, wrong, 0);
    }
}

void test_types(test *t);
void test_types(test *t) {
    test_table(t);
    test_halves(t);
    test_numbers(t);
    test_blocks(t);
    test_floats_of_8_bits(t);
    test_affine_blocks(t);
    test_nvfp4(t);
    test_fixtures(t);
    test_formulas(t);
}
