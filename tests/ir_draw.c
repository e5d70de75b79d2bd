/* ir_draw.c - see ir_draw.h. */
#include "ir_draw.h"

uint32_t ir_draw(uint64_t *state, uint32_t n) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return (uint32_t)((*state >> 16) % n);
}

#define DRAW_OF(...)     \
    ((const uint32_t[]){ \
        __VA_ARGS__})[ir_draw(state, sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))]

ir_schedule ir_draw_schedule(uint64_t *state) {
    ir_schedule s = {.subgroup = DRAW_OF(0, 2, 4, 8), .vector = DRAW_OF(0, 2, 4, 8)};
    s.fragments = ir_draw(state, 2);
    s.tells = ir_draw(state, 2);
    for (uint32_t d = 0; d < 3; d++)
        s.dims[d] = (ir_schedule_dim){
            .group = d < 2 ? (uint8_t)ir_draw(state, 4) : 0,
            .lane = (uint8_t)ir_draw(state, 4),
            .lanes = (uint16_t)DRAW_OF(0, 1, 2, 3, 4, 5, 8, 16),
            .block = (uint16_t)DRAW_OF(0, 0, 2, 3, 4, 8),
            .unroll = (uint16_t)DRAW_OF(0, 0, 2, 3, 4),
            .stage = (uint16_t)DRAW_OF(0, 0, 2, 4, 5, 8),
            .split = ir_draw(state, 2),
            .ahead = ir_draw(state, 2),
            .wide = (uint8_t)DRAW_OF(0, 0, 4, 8, 16),
        };
    s.dims[3].group = ir_draw(state, 2) ? 3 : 0;
    s.direct = s.fragments && ir_draw(state, 2);
    if (s.direct) {
        s.dims[0].lanes = (uint16_t)DRAW_OF(4, 4, 8), s.dims[0].block = 1;
        s.dims[1].lanes = 1, s.dims[1].block = (uint16_t)DRAW_OF(4, 8, 8);
        s.dims[2].stage = 64, s.dims[2].unroll = (uint16_t)DRAW_OF(2, 3, 4);
        s.workgroup_bytes = IR_WORKGROUP_BYTES_MAX;
    }
    return s;
}

size_t ir_draw_order(uint64_t *state, ir_pass order[IR_DRAW_PASSES]) {
    size_t n, count = 0;
    const ir_pass *usual = ir_passes_usual(&n);
    const uint32_t kind = ir_draw(state, 5);
    for (size_t i = 0; kind < 2 && i < n && count < IR_DRAW_PASSES; i++) /* all of it, or some */
        if (kind == 0 || ir_draw(state, 3)) order[count++] = usual[i];
    if (kind > 1) n = kind == 4 ? 0 : 1 + ir_draw(state, kind == 2 ? 6 : 14);
    for (; kind > 1 && count < n; count++) order[count] = (ir_pass)ir_draw(state, IR_PASS_COUNT);
    return count;
}
