/* tiled.c - chooses the form of the matmul kernels and writes its request.
 *
 * The one idea: a product costs what its busiest compute unit works through, more expensive for
 * smaller tiles (each value is read from workgroup memory more often). So a large product takes
 * the large tile, and one with few tiles takes a smaller one or divides k. A unit with little to
 * do is no faster for it: it waits for memory. */
#include "kernels/lower/tiled.h"
#include "kernels/lower/matvec.h"

enum {
    UNITS_UNKNOWN = 64,       /* compute units where the device does not say */
    INVOCATIONS_A_UNIT = 384, /* that hide the time of memory */
    PARTS_MAX = 8,
    PART_K_MIN = 512, /* elements of k that a part should have */
    MERGE_COST = 24   /* of a result, in products, for each part */
};

/* clang-format off */
static const tiled_choice forms[] = {
    {.kind = TILED_F32, .wg = 256, .tile_n = 128, .tile_m = 128, .tile_k = 16, .each_n = 8, .each_m
     = 8},
    {.kind = TILED_F32, .wg = 256, .tile_n = 128, .tile_m = 64, .tile_k = 16, .each_n = 8, .each_m =
     4},
    {.kind = TILED_F32, .wg = 256, .tile_n = 64, .tile_m = 64, .tile_k = 16, .each_n = 4, .each_m =
     4},
    {.kind = TILED_F32, .wg = 128, .tile_n = 32, .tile_m = 64, .tile_k = 16, .each_n = 4, .each_m =
     4},
    {.kind = TILED_F32, .wg = 64, .tile_n = 16, .tile_m = 64, .tile_k = 16, .each_n = 4, .each_m =
     4},
    {.kind = TILED_INT8, .wg = 256, .tile_n = 128, .tile_m = 64, .tile_k = 64, .each_n = 8, .each_m
     = 4},
    {.kind = TILED_INT8, .wg = 256, .tile_n = 128, .tile_m = 64, .tile_k = 32, .each_n = 8, .each_m
     = 4},
    {.kind = TILED_INT8, .wg = 256, .tile_n = 64, .tile_m = 64, .tile_k = 64, .each_n = 4, .each_m =
     4},
    {.kind = TILED_INT8, .wg = 128, .tile_n = 32, .tile_m = 64, .tile_k = 64, .each_n = 4, .each_m =
     4},
    {.kind = TILED_INT8, .wg = 64, .tile_n = 16, .tile_m = 64, .tile_k = 64, .each_n = 4, .each_m =
     4},
    {.kind = TILED_PLAIN, .wg = 8, .tile_n = 4, .each_m = 4},
};
/* clang-format on */
/* of a product, by form */
static const uint16_t cost_of[] = {100, 110, 135, 160, 250, 50, 55, 65, 80, 130, 100};
_Static_assert(sizeof cost_of / sizeof *cost_of == sizeof forms / sizeof *forms,
               "a cost for each form");

const tiled_choice *tiled_forms(uint32_t *n) {
    *n = sizeof forms / sizeof *forms;
    return forms;
}

static uint32_t per_of(const tiled_shape *shape) {
    return shape->per ? shape->per : 1;
}

static uint32_t tile_m_of(const tiled_choice *c) {
    return c->kind == TILED_PLAIN ? c->wg * c->each_m : c->tile_m;
}

static uint64_t memory_of(const tiled_choice *c) {
    const uint64_t rows = c->tile_n + c->tile_m;
    switch (c->kind) {
    case TILED_F32: return (rows / 4 + 2) * c->tile_k * 16;
    case TILED_INT8: return rows * (c->tile_k / 32 * 3 | 1) * 16;
    case TILED_PLAIN: break;
    }
    return 0;
}

bool tiled_fits(const device_caps *caps, const tiled_shape *shape, const tiled_choice *c) {
    const uint32_t memory = caps->workgroup_bytes ? caps->workgroup_bytes : 16384;
    const uint32_t invocations = caps->workgroup_invocations ? caps->workgroup_invocations : 256;
    if (!matvec_reader(shape->type, false) || memory_of(c) > memory || c->wg > invocations)
        return false;
    if (c->kind == TILED_INT8 && (!base_type_is_quantised(shape->type) || shape->k % 32))
        return false;
    return true;
}

uint32_t tiled_cols(const tiled_shape *shape, const tiled_choice *c) {
    return tile_m_of(c) / per_of(shape);
}

uint32_t tiled_steps(const tiled_shape *shape, const tiled_choice *c) {
    const uint32_t steps = c->tile_k ? (shape->k + c->tile_k - 1) / c->tile_k : 1;
    return (steps + c->parts - 1) / c->parts;
}

/* What the product costs in this form; arbitrary units. */
static double cost_in(const device_caps *caps, const tiled_shape *shape, const tiled_choice *c,
                      uint32_t cost) {
    const uint32_t cols = tiled_cols(shape, c),
                   units = caps->compute_units ? caps->compute_units : UNITS_UNKNOWN;
    uint64_t tiles = (shape->n_x + c->tile_n - 1) / c->tile_n;
    /* each expert's last tile is half full on average, and of few vectors each makes a tile */
    if (shape->n_matrix) {
        const uint64_t used = shape->n_x < shape->n_matrix ? shape->n_x : shape->n_matrix;
        tiles = shape->n_x / c->tile_n + (used + 1) / 2;
        if (tiles < used) tiles = used;
    }
    tiles *= (uint64_t)((shape->rows + cols - 1) / cols) * c->parts;
    /* that the busiest unit works through */
    uint64_t invocations = (tiles + units - 1) / units * c->wg;
    if (invocations < INVOCATIONS_A_UNIT) invocations = INVOCATIONS_A_UNIT;
    const double each = (double)c->each_n * c->each_m * tiled_steps(shape, c) * c->tile_k * cost;
    const double merge =
        c->parts > 1 ? (double)shape->n_x * shape->rows * (c->parts + 1) * MERGE_COST * cost : 0;
    return (double)invocations * each + merge / (double)units;
}

bool tiled_choose(const device_caps *caps, const tiled_shape *shape, tiled_choice *out) {
    const bool int8 =
        !shape->exact && caps->dot_i8 && base_type_is_quantised(shape->type) && shape->k % 32 == 0;
    const tiled_kind kind = device_is_processor(caps) ? TILED_PLAIN : int8 ? TILED_INT8 : TILED_F32;
    double best = -1;
    for (uint32_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        tiled_choice c = forms[i];
        c.parts = 1;
        if (c.kind != kind || !tiled_fits(caps, shape, &c)) continue;
        const uint32_t most =
            kind == TILED_PLAIN || shape->n_matrix || per_of(shape) > 1 ? 1 : PARTS_MAX;
        for (; c.parts <= most && (c.parts == 1 || shape->k / c.parts >= PART_K_MIN);
             c.parts *= 2) {
            const double cost = cost_in(caps, shape, &c, cost_of[i]);
            if (best >= 0 && cost >= best) continue;
            best = cost;
            *out = c;
        }
    }
    return best >= 0;
}

void tiled_request(lower_request *r, const tiled_shape *shape, const tiled_choice *c) {
    static const char *const files[] = {
        [TILED_F32] = "matmul_tile", [TILED_INT8] = "matmul_dot", [TILED_PLAIN] = "matmul_plain"};
    r->kernel.file = files[c->kind];
    lower_request_number(r, "WG", c->wg);
    lower_request_number(r, "TILE_N", c->tile_n);
    lower_request_number(r, "EACH_M", c->each_m);
    lower_request_number(r, "PER", per_of(shape));
    if (c->kind != TILED_PLAIN) {
        lower_request_number(r, "TILE_M", c->tile_m);
        lower_request_number(r, "TILE_K", c->tile_k);
        lower_request_number(r, "EACH_N", c->each_n);
        lower_request_flag(r, "AHEAD", !c->now);
    }
    if (c->kind != TILED_INT8 && (shape->x_any || shape->k % 4))
        lower_request_part(r, "x", "matmul_x_any");
    lower_request_part(r, "reader", matvec_reader(shape->type, shape->k % 16 || shape->w_any));
    if (c->parts > 1) lower_request_part(r, "epilogue", "matmul_store_part");
}
