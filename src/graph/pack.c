/* pack.c - splits the blocks of a file into planes, and joins them again.
 *
 * A plane is one field of every block (or two neighbouring ones), the blocks of all rows back to
 * back: element b of a plane belongs to block b, counted over rows. So a reader finds everything
 * from row * blocks_per_row + block, the quants can be loaded 16 bytes at a time, and
 * neighbouring lanes load neighbouring words. Bits are moved, never changed; the way back gives
 * the file's bytes. (The one exception is a scale of NVFP4 that is no number.) Fields keep their
 * byte order (little-endian).
 *
 * The fields are in the types' table (base/types.h). Where the bits are places in a long table of
 * numbers, that table is one more plane, the same for all rows, so that kernels find it in the
 * buffer that they read anyhow.
 *
 *   type     plane 0            plane 1          plane 2        plane 3
 *   F32 F16 BF16  value
 *   Q8_0     q i8[32]           d f16
 *   Q4_0     q u4[32]           d f16                                       (IQ4_NL the same)
 *   Q4_1     q u4[32]           d, m f16[2]
 *   Q5_0     q u4[32]           d f16            high u1[32]
 *   Q5_1     q u4[32]           d, m f16[2] and high u1[32]
 *   MXFP4    q u4[32]           e u8
 *   NVFP4    q u4[64]           d e4m3[4]: where the file has 0x7f, which means 0, there is 0
 *   Q2_K     q u2[256]          scales u8[16]    d, dmin f16[2]
 *   Q3_K     q u2[256]          high u1[256]     scales u6[16]  d f16
 *   Q4_K     q u4[256]          d, dmin, scales (16 bytes)
 *   Q5_K     q u4[256]          d, dmin, scales  high u1[256]
 *   Q6_K     low u4[256]        high u2[256]     scales i8[16]  d f16
 *   IQ4_XS   q u4[256]          d, scales (8 bytes)
 *   TQ1_0    q (52 bytes)       d f16
 *   TQ2_0    q u2[256]          d f16
 *   F8_E4M3 F8_E5M2  value
 *   AFFINE8  q i8[32]           d, m f32[2]
 *   AFFINE4  q u4[32]           d, m f32[2]
 *   IQ1 IQ2 IQ3  places, and what the format puts with them; high bits, signs, scales; d
 *
 * A row may end inside a 4-byte word (odd K of F16, one block of Q8_0): whoever uploads rows in
 * pieces cuts at a multiple of 4 rows. A plane's end is padded to 64 bytes, the largest vector. */
#include "graph/pack.h"

#include <string.h>

enum { PLANE_ALIGN = 64 };

bool graph_pack_layout_of(base_type type, uint64_t n_row, uint64_t k, graph_pack_layout *out) {
    memset(out, 0, sizeof *out);
    if (type >= TYPE_COUNT || !base_type_field(type, 0).size || k == 0 || k % base_type_block(type))
        return false;
    const uint64_t blocks = k / base_type_block(type);
    for (uint32_t i = 0; i < BASE_FIELD_MAX && base_type_field(type, i).size; i++) {
        const uint32_t size = base_type_field(type, i).size;
        if (blocks > UINT32_MAX / size) return false;
        const uint32_t row = (uint32_t)blocks * size;
        if (n_row > (UINT64_MAX / 2 - out->bytes - PLANE_ALIGN) / row) return false;
        out->row_bytes[i] = row;
        out->offset[i] = out->bytes;
        out->bytes += (n_row * row + PLANE_ALIGN - 1) / PLANE_ALIGN * PLANE_ALIGN;
        out->n_plane = i + 1;
    }
    const uint32_t table = base_type_table(type, NULL);
    if (!table) return true;
    if (out->n_plane == PACK_PLANE_MAX) return false;
    out->table_bytes = table;
    out->offset[out->n_plane++] = out->bytes;
    out->bytes += table;
    return true;
}

/* 16 bytes or more, the last of them perhaps twice: memcpy of so many is a call in a module that is
 * made small. */
static void move_long(uint8_t *restrict to, const uint8_t *restrict from, size_t size) {
    size_t i = 0;
    do memcpy(to + i, from + i, 16);
    while ((i += 16) + 16 <= size);
    if (i < size) memcpy(to + size - 16, from + size - 16, 16);
}

/* n fields of `size` bytes, at distances. One compare outside the loop for each short size, so that
 * the copies are moves and not calls. */
static void move(uint8_t *restrict to, size_t to_stride, const uint8_t *restrict from,
                 size_t from_stride, size_t n, size_t size) {
#define EACH(bytes) \
    for (size_t i = 0; i < n; i++) memcpy(to + i * to_stride, from + i * from_stride, bytes)
#define SHORT_SIZES(X) X(1) X(2) X(4) X(8) X(12)
    switch (size) {
#define X(bytes) \
    case bytes: EACH(bytes); break;
        SHORT_SIZES(X)
#undef X
    default:
        for (size_t i = 0; i < n; i++) move_long(to + i * to_stride, from + i * from_stride, size);
    }
}

/* Scales of NVFP4. `to` may be memory of a device that is slow to read. */
static void gather_e4m3(uint8_t *restrict to, const uint8_t *restrict from, size_t n,
                        size_t stride) {
    for (size_t i = 0; i < n; i++) {
        uint8_t four[4];
        for (uint32_t k = 0; k < 4; k++)
            four[k] = from[i * stride + k] == 0x7f ? 0 : from[i * stride + k];
        memcpy(to + i * 4, four, 4);
    }
}

void graph_pack_rows(base_type type, uint64_t k, uint64_t n_row, const void *from, uint32_t plane,
                     void *to) {
    const base_field field = base_type_field(type, plane);
    const size_t n = (size_t)(n_row * (k / base_type_block(type))),
                 stride = base_type_block_bytes(type);
    const uint8_t *first = (const uint8_t *)from + field.at;
    if (type == TYPE_NVFP4 && plane == 1) gather_e4m3(to, first, n, stride);
    else if (field.size == stride) memcpy(to, first, n * stride);
    else move(to, field.size, first, stride, n, field.size);
}

void graph_unpack_rows(base_type type, uint64_t k, uint64_t n_row, const void *const *planes,
                       void *to) {
    const size_t n = (size_t)(n_row * (k / base_type_block(type)));
    for (uint32_t i = 0; i < BASE_FIELD_MAX && base_type_field(type, i).size; i++) {
        const base_field field = base_type_field(type, i);
        move((uint8_t *)to + field.at, base_type_block_bytes(type), planes[i], field.size, n,
             field.size);
    }
}
