/* matvec_batch.c - chooses the form of the kernel for a batch of vectors
 * (matvec_batch.wgsl) and writes its request.
 *
 * One idea: every form's time is guessed from what it does - instructions, words from workgroup
 * memory, rounds of a device whose units do not come out even - and the least guess wins. The
 * figures are those of one NVIDIA generation in its clocks; what counts is their ratio, and
 * `matvec_bench sweep` says whether the least guess is the least time. */
#include "kernels/lower/matvec.h"

enum {
    BATCH_MIN = 5,  /* fewer vectors: matvec.wgsl reads them often enough from caches */
    BATCH_MAX = 16, /* at a time */
    /* of a matrix, for each unit of the device: smaller ones wait for their start alone; */
    WEIGHTS_A_UNIT = 8192,
    /* so many times more for few vectors, which matvec.wgsl may round itself: no dispatch before
     * it */
    FEW = 8,
    FEW_FACTOR = 8,
    /* lanes of a row in a subgroup, two rows beside each other: 8 lanes that stay together */
    SHARE = 4,
    NEAR = 2,
    CHUNK = 64, /* elements: of a lane in a window, for each of its steps */
    WG_MAX = 512,
    WARP = 32,         /* lanes that a unit's four schedulers handle as one */
    REGISTERS = 65536, /* of a unit, and what a lane may have of them */
    REGISTERS_MAX = 240,
    UNITS_UNKNOWN = 128
};

static uint32_t per_of(const matvec_shape *shape) {
    return shape->per ? shape->per : 1;
}

static uint32_t groups_of(const matvec_choice *c) { /* of 16 elements, in a window of one vector */
    return c->lanes * c->depth * (CHUNK / 16);
}

/* Workgroup memory, in bytes. */
static uint64_t memory_of(const matvec_shape *shape, const matvec_choice *c) {
    const uint64_t words = (uint64_t)c->n_x * groups_of(c), blocks = words / 2;
    const uint64_t sums = (uint64_t)c->wg / SHARE * c->rows * per_of(shape) * ((c->n_x + 3) / 4);
    const uint64_t most = c->resident ? words + sums : words > sums ? words : sums;
    return 16 * most + 8 * blocks + (shape->rounded_out ? 4u * matvec_tile(c) * c->n_x : 0);
}

bool matvec_batch_fits(const device_caps *caps, const matvec_shape *shape, const matvec_choice *c) {
    const uint32_t items = c->rows * per_of(shape),
                   subgroup = caps->vendor == 0x8086 ? 8 : caps->subgroup_size;
    if (!matvec_rounds(caps, shape) || shape->has_prologue || !caps->subgroups ||
        subgroup < SHARE * NEAR || c->share != SHARE)
        return false;
    if (items != 1 && items != 2 && items != 4) return false;
    if (c->n_x != 2 && (c->n_x % 4 || c->n_x == 0 || c->n_x > BATCH_MAX)) return false;
    if (!c->depth || !c->lanes || c->lanes % SHARE || c->wg % c->lanes || c->wg / c->lanes % NEAR)
        return false;
    if (c->resident && groups_of(c) * 16 < shape->k) return false;
    if (shape->rounded_out && matvec_tile(c) % 32) return false;
    return c->wg <= (caps->workgroup_invocations ? caps->workgroup_invocations : 256) &&
           memory_of(shape, c) <= (caps->workgroup_bytes ? caps->workgroup_bytes : 16384);
}

/* Clocks of one scheduler for one step of one subgroup: its dot products, which take two each;
 * all its instructions; and its share of workgroup memory, whichever is most. */
static uint64_t step_clocks(uint32_t items, uint32_t n_x) {
    const uint64_t dots = 16u * items * n_x, all = dots + 8u * items * n_x + 6u * n_x + 70u * items,
                   words = 40u * n_x;
    const uint64_t most = 2 * dots > all ? 2 * dots : all;
    return most > words ? most : words;
}

static uint64_t clocks(const matvec_shape *shape, uint32_t units, const matvec_choice *c) {
    const uint32_t items = c->rows * per_of(shape), warps = c->wg / WARP;
    const uint32_t chunks = (shape->k + CHUNK - 1) / CHUNK,
                   windows = (chunks + c->lanes * c->depth - 1) / (c->lanes * c->depth);
    const uint32_t ahead = c->resident ? 0 : 6 * (c->n_x * groups_of(c) / c->wg + 1);
    /* a little fewer must do where a workgroup would not fit else */
    uint32_t registers = items * (c->n_x + 8 + 24) + 76 + ahead;
    if (registers * c->wg > REGISTERS && registers * c->wg <= REGISTERS / 8 * 9)
        registers = REGISTERS / c->wg;
    if (registers > REGISTERS_MAX || registers * c->wg > REGISTERS) return UINT64_MAX;
    uint64_t tiles = 0;
    for (uint32_t i = 0; i < shape->n_segment; i++)
        tiles += (shape->rows[i] + matvec_tile(c) - 1) / matvec_tile(c);
    tiles *= (shape->n_x + c->n_x - 1) / c->n_x;
    const uint64_t each = (tiles + units - 1) / units; /* tiles of a unit */
    const uint64_t room = REGISTERS / (registers * c->wg), beside = each < room ? each : room;
    const uint64_t work =
        each * warps * ((chunks + c->lanes - 1) / c->lanes) * step_clocks(items, c->n_x) / 4;
    /* 20 bytes a group, 32 a clock from the cache that all share */
    const uint64_t window = 5u * 4u * groups_of(c) * c->n_x / 32;
    const uint64_t fills = c->resident ? (each < 4 ? each : 4) * window : each * windows * window;
    const uint64_t ends =
        each * warps * (items * c->n_x * 3 + 100) / 4 + (c->resident ? 0 : each * windows * 150);
    /* few subgroups: they wait for one another */
    return work + work * 4 / (beside * warps) + fills / 2 + beside * window + ends;
}

/* false: what is asked for is no form of this kernel, but perhaps of the other. */
static bool take_form(const device_caps *caps, const matvec_shape *shape, matvec_choice *c) {
    const lower_form *form = shape->form;
    if (form->wg) c->wg = form->wg;
    if (form->lanes) c->lanes = form->lanes;
    if (form->rows) c->rows = form->rows;
    if (form->depth) c->depth = form->depth;
    if (form->groups) c->groups = form->groups;
    if (form->n_x) c->n_x = form->n_x;
    c->resident = (uint64_t)groups_of(c) * 16 >= shape->k;
    return matvec_batch_fits(caps, shape, c);
}

bool matvec_batch_choose(const device_caps *caps, const matvec_shape *shape, matvec_choice *out) {
    const uint32_t units = caps->compute_units ? caps->compute_units : UNITS_UNKNOWN;
    uint64_t weights = 0;
    for (uint32_t i = 0; i < shape->n_segment; i++)
        weights += (uint64_t)shape->rows[i] * shape->k * per_of(shape);
    if (shape->n_x < BATCH_MIN ||
        weights < (uint64_t)WEIGHTS_A_UNIT * units * (shape->n_x <= FEW ? FEW_FACTOR : 1))
        return false;
    return matvec_batch_best(caps, shape, out) && (!shape->form || take_form(caps, shape, out));
}

bool matvec_batch_best(const device_caps *caps, const matvec_shape *shape, matvec_choice *out) {
    static const uint32_t runs[] = {32, 48, 64, 80, 96, 128, 160, 192, 256, 384, 512},
                          splits[] = {1, 2, 3, 4, 6, 8, 12, 16};
    const uint32_t units = caps->compute_units ? caps->compute_units : UNITS_UNKNOWN,
                   per = per_of(shape);
    const uint32_t turns = (shape->n_x + BATCH_MAX - 1) / BATCH_MAX,
                   chunks = (shape->k + CHUNK - 1) / CHUNK;
    uint64_t best = UINT64_MAX;
    for (uint32_t rows = 1; rows * per <= 4; rows *= 2)
        for (size_t i = 0; i < sizeof splits / sizeof *splits; i++)
            for (size_t j = 0; j < sizeof runs / sizeof *runs && runs[j] * splits[i] <= WG_MAX; j++)
                for (uint32_t depth = 1; depth <= 8; depth *= 2)
                    for (int resident = 0; resident < 2; resident++) {
                        if (runs[j] * splits[i] % WARP) continue;
                        matvec_choice c = {.x = MATVEC_QUANTISED,
                                           .wg = runs[j] * splits[i],
                                           .lanes = SHARE * splits[i],
                                           .rows = rows,
                                           .depth = depth,
                                           .share = SHARE,
                                           .near = NEAR,
                                           .resident = resident,
                                           .subgroups = true};
                        c.n_x =
                            shape->n_x <= 2 ? 2 : ((shape->n_x + turns - 1) / turns + 3) / 4 * 4;
                        const uint32_t whole = (chunks + c.lanes - 1) / c.lanes; /* steps */
                        if (resident) c.depth = whole;
                        if ((resident && depth > 1) ||
                            (!resident && (depth >= whole || chunks < c.lanes)) ||
                            !matvec_batch_fits(caps, shape, &c))
                            continue;
                        const uint64_t guess = clocks(shape, units, &c);
                        if (guess >= best) continue;
                        best = guess;
                        *out = c;
                    }
    /* More tiles than stay on the device at a time: the workgroups walk them, and the vectors
     * that are all there remain. */
    if (best != UINT64_MAX)
        out->groups = units * (REGISTERS / 160 / out->wg ? REGISTERS / 160 / out->wg : 1);
    return best != UINT64_MAX;
}

static const char *body_of(base_type type) {
    return type == TYPE_Q4_K   ? "matvec_batch_q4_k"
           : type == TYPE_Q6_K ? "matvec_batch_q6_k"
                               : "matvec_batch_any";
}

void matvec_batch_request(lower_request *r, const matvec_shape *shape, const matvec_choice *c,
                          const char *const *prefixes) {
    r->kernel.file = "matvec_batch";
    lower_request_number(r, "WG", c->wg);
    lower_request_number(r, "LANES", c->lanes);
    lower_request_number(r, "SHARE", c->share);
    lower_request_number(r, "NEAR", c->near);
    lower_request_number(r, "ROWS", c->rows);
    lower_request_number(r, "N_X", c->n_x);
    lower_request_number(r, "PER", per_of(shape));
    lower_request_number(r, "DEPTH", c->depth);
    lower_request_flag(r, "RESIDENT", c->resident);
    lower_request_flag(r, "ONCE", c->once);
    for (uint32_t i = 0; i < shape->n_segment; i++) {
        const char *prefix = prefixes ? prefixes[i] : NULL;
        assert(r->n_part + 2 < KERNELS_PART_MAX);
        r->kernel.parts[r->n_part++] =
            (kernels_part){"reader", matvec_reader(shape->types[i], false), prefix};
        r->kernel.parts[r->n_part++] = (kernels_part){"body", body_of(shape->types[i]), prefix};
    }
}
