/* pack_test.c - planes hold the file's bits: there and back, in pieces, and nothing beside. */
#include "test.h"

#include "base/types.h"
#include "graph/pack.h"

#include <stdlib.h>
#include <string.h>

static bool is_packed(base_type type) {
    graph_pack_layout layout;
    return graph_pack_layout_of(type, 1, 256, &layout);
}

static uint32_t next(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void there_and_back(test *t, base_type type, uint64_t k, uint64_t n_row) {
    graph_pack_layout layout;
    CHECK(t, graph_pack_layout_of(type, n_row, k, &layout));
    const size_t row = (size_t)base_type_row_bytes(type, k), size = row * (size_t)n_row;
    uint8_t *file = malloc(size), *packed = calloc(1, (size_t)layout.bytes),
            *back = calloc(1, size);
    uint32_t state = 7u + (uint32_t)type;
    for (size_t i = 0; i < size; i++) file[i] = (uint8_t)next(&state);
    if (type == TYPE_NVFP4) file[1] = 0x7f;

    uint64_t sum = 0;
    const void *planes[PACK_PLANE_MAX] = {0};
    for (uint32_t p = 0; p < layout.n_plane; p++) {
        CHECK_INT(t, layout.offset[p] % 16, 0);
        CHECK(t,
              p == 0 || layout.offset[p] >= layout.offset[p - 1] + n_row * layout.row_bytes[p - 1]);
        sum += layout.row_bytes[p];
        planes[p] = packed + layout.offset[p];
        for (uint64_t at = 0; at < n_row; at += 2) { /* in pieces of two rows */
            const uint64_t n = n_row - at < 2 ? n_row - at : 2;
            graph_pack_rows(type, k, n, file + at * row, p,
                            packed + layout.offset[p] + at * layout.row_bytes[p]);
        }
    }
    CHECK_INT(t, sum, row);
    CHECK(t, layout.bytes < size + layout.table_bytes + 64 * PACK_PLANE_MAX);
    CHECK_INT(t, layout.bytes % 16, 0);
    graph_unpack_rows(type, k, n_row, planes, back);
    for (size_t i = 0; type == TYPE_NVFP4 && i < size; i++) /* a scale that means 0 */
        if (i % 36 < 4 && file[i] == 0x7f) file[i] = 0;
    CHECK(t, !memcmp(file, back, size));
    free(file);
    free(packed);
    free(back);
}

void test_pack(test *t);
void test_pack(test *t) {
    for (int i = 0; i < TYPE_COUNT; i++) {
        const base_type type = (base_type)i;
        if (!is_packed(type)) continue;
        if (test_case(t, "pack/there-and-back-%s", base_type_name(type))) {
            const uint32_t block = base_type_block(type);
            for (uint64_t blocks = 1; blocks <= 5; blocks += 2)
                for (uint64_t n_row = 1; n_row <= 5; n_row++)
                    there_and_back(t, type, blocks * block, n_row);
        }
    }
    if (test_case(t, "pack/every-weight-type-is-packed")) {
        for (base_type type = 0; type < TYPE_COUNT; type++)
            CHECK(t, is_packed(type) == base_type_is_weight(type));
    }
    if (test_case(t, "pack/what-does-not-fit-is-refused")) {
        graph_pack_layout layout;
        CHECK(t, !graph_pack_layout_of(TYPE_Q4_K, 1, 128, &layout));
        CHECK(t, !graph_pack_layout_of(TYPE_Q4_0, 1, 33, &layout));
        CHECK(t, !graph_pack_layout_of(TYPE_F32, 1, 0, &layout));
        CHECK(t, !graph_pack_layout_of(TYPE_Q8_K, 1, 256, &layout));
        CHECK(t, !graph_pack_layout_of(TYPE_I32, 1, 4, &layout));
        CHECK(t, !graph_pack_layout_of(TYPE_F32, UINT64_MAX / 8, 4, &layout));
        CHECK(t, !graph_pack_layout_of(TYPE_F32, 1, UINT64_MAX / 2 + 1, &layout));
        CHECK(t, !graph_pack_layout_of(TYPE_COUNT, 1, 32, &layout));
    }
}
