/* matvec.c - chooses the form of the matvec kernel and writes its request.
 *
 * The numbers here were measured (docs/benchmarks.md) or follow from one thought: a matvec is as
 * fast as the bytes that it has in flight. So there are enough lanes to fill the device (a small
 * matrix: more lanes a row), and rows are read several at a time by one lane only where there
 * are more rows than lanes. On software devices memory is not the limit but instructions and
 * barriers: one invocation reads whole rows, four at a time, and there is nothing to join. */
#include "kernels/lower/matvec.h"

enum {
    SOFTWARE_WG = 8,
    SOFTWARE_ROWS = 4,
    DEVICE_WG = 128,
    LARGE_WG = 256,
    WORKED_WG = 256,       /* where every workgroup makes the vectors anew: fewer, larger ones, */
    WORKED_SMALL_WG = 512, /* and one a compute unit where the matrix is small: */
    SMALL_ROWS = 8192,     /* at most, */
    LARGE_ROWS = 65536,    /* and at least these for a large one */
    /* numbers of f32 vectors that go through workgroup memory: all lanes read them for every row */
    SHARED_MAX = 6144,
    /* numbers that a workgroup rounds beside its work, whatever the other ones round again */
    ROUNDED_MAX = 1024,
    WIDE_SPANS = 4, /* subgroups that may share a row, where there are so few */
    WIDE_K = 2048,  /* of a large one: two a unit where the vectors are long, */
    LONG_K = 4096,  /* or so long that fewer invocations have no room for their part */
    /* that all caches hold: each vector reads them for itself, on units that would be idle */
    TINY_WEIGHTS = 1 << 19,
    /* a matrix that keeps no more than this part of the device busy waits for its longest lane */
    FEW_LANES = 8,
    X_SKEW = 128,        /* bytes of workgroup memory that the planes of a vector leave free */
    SUMS_MAX = 16,       /* sums of one invocation: more would leave the registers */
    UNITS_UNKNOWN = 128, /* compute units where the device does not say */
    LANES_A_UNIT = 1024, /* that a unit should have */
    /* without subgroups the lanes' sums are joined through workgroup memory: fewer lanes */
    PORTABLE_LANES = 8
};

/* The bodies over int8 vectors that are written for one type. */
static const char *const int8_bodies[TYPE_COUNT] = {
    [TYPE_Q4_0] = "matvec_int8_q4_0", [TYPE_Q8_0] = "matvec_int8_q8_0",
    [TYPE_Q4_K] = "matvec_int8_q4_k", [TYPE_Q5_K] = "matvec_int8_q5_k",
    [TYPE_Q6_K] = "matvec_int8_q6_k",
};

/* shift: log2 of a chunk's elements */
static const struct {
    const char *plain, *any;
    uint8_t shift;
} readers[TYPE_COUNT] = {
    [TYPE_F32] = {"read_f32", "read_f32_any", 4},
    [TYPE_F16] = {"read_f16", "read_f16_any", 4},
    [TYPE_BF16] = {"read_bf16", "read_bf16_any", 4},
    [TYPE_Q4_0] = {"read_q4_0", "read_q4_0", 5},
    [TYPE_Q4_1] = {"read_q4_1", "read_q4_1", 5},
    [TYPE_Q5_0] = {"read_q5_0", "read_q5_0", 5},
    [TYPE_Q5_1] = {"read_q5_1", "read_q5_1", 5},
    [TYPE_Q8_0] = {"read_q8_0", "read_q8_0", 5},
    [TYPE_Q2_K] = {"read_q2_k", "read_q2_k", 6},
    [TYPE_Q3_K] = {"read_q3_k", "read_q3_k", 6},
    [TYPE_Q4_K] = {"read_q4_k", "read_q4_k", 6},
    [TYPE_Q5_K] = {"read_q5_k", "read_q5_k", 6},
    [TYPE_Q6_K] = {"read_q6_k", "read_q6_k", 6},
    [TYPE_IQ4_NL] = {"read_iq4_nl", "read_iq4_nl", 5},
    [TYPE_IQ4_XS] = {"read_iq4_xs", "read_iq4_xs", 5},
    [TYPE_MXFP4] = {"read_mxfp4", "read_mxfp4", 5},
    [TYPE_NVFP4] = {"read_nvfp4", "read_nvfp4", 5},
};

const char *matvec_reader(base_type type, bool any) {
    return type < TYPE_COUNT ? any ? readers[type].any : readers[type].plain : NULL;
}

uint32_t matvec_reader_shift(base_type type) {
    return readers[type].shift;
}

uint32_t matvec_tile(const matvec_choice *choice) {
    return choice->wg / choice->lanes * choice->rows;
}

static uint32_t power_up(uint32_t n) {
    uint32_t p = 1;
    while (p < n && p < 1u << 30) p *= 2;
    return p;
}

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static uint32_t per_of(const matvec_shape *shape) {
    return shape->per ? shape->per : 1;
}

bool matvec_rounds(const device_caps *caps, const matvec_shape *shape) {
    bool fits = !shape->exact && caps->dot_i8 && !device_is_processor(caps) && shape->k % 32 == 0;
    for (uint32_t i = 0; i < shape->n_segment; i++)
        fits = fits && base_type_is_quantised(shape->types[i]);
    return fits;
}

/* Workgroup memory of a form, in bytes. */
static uint64_t memory_of(const matvec_shape *shape, const matvec_choice *c) {
    const uint64_t k = ((uint64_t)shape->k + 63) / 64 * 64;
    uint64_t bytes = 0;
    if (c->x == MATVEC_SHARED) bytes += (k * 4 + X_SKEW) * c->n_x;
    if (c->x == MATVEC_INT8) bytes += (k + k / 4 + X_SKEW) * c->n_x;
    if (shape->rounded_out) bytes += 4u * matvec_tile(c) * c->n_x;
    if (c->lanes > 1 && !c->subgroups) bytes += 4u * c->wg * c->rows * c->n_x * per_of(shape);
    /* sums: 8 lanes a subgroup or more */
    if (shape->has_prologue) bytes += (c->subgroups ? 2u : 4u) * c->wg;
    return bytes + shape->beside;
}

static uint32_t workgroup_bytes(const device_caps *caps) {
    return caps->workgroup_bytes ? caps->workgroup_bytes : 16384;
}

static void choose_software(const matvec_shape *shape, matvec_choice *c) {
    c->wg = SOFTWARE_WG;
    c->lanes = 1;
    c->n_x = least(power_up(shape->n_x), 4);
    c->rows = SOFTWARE_ROWS / per_of(shape);
    if (c->rows > 1 && c->n_x * per_of(shape) > 4) c->rows /= 2;
    c->x = shape->has_prologue ? MATVEC_SHARED : MATVEC_DIRECT;
    c->groups = UINT16_MAX;
}

/* A size that subgroups have at least: Intel's drivers choose 8, 16 or 32 for each program. */
static uint32_t subgroup_least(const device_caps *caps) {
    return caps->vendor == 0x8086 ? 8 : least(caps->subgroup_size, 32);
}

uint32_t matvec_span(const device_caps *caps, const matvec_choice *choice) {
    return least(subgroup_least(caps), choice->wg);
}

static void choose_device(const device_caps *caps, const matvec_shape *shape, matvec_choice *c) {
    const uint32_t units = caps->compute_units ? caps->compute_units : UNITS_UNKNOWN;
    const bool int8 = matvec_rounds(caps, shape);
    uint64_t rows = 0;
    uint32_t chunks = 1; /* of a row */
    for (uint32_t i = 0; i < shape->n_segment; i++) {
        const uint32_t n = (shape->k + (1u << readers[shape->types[i]].shift) - 1) >>
                           readers[shape->types[i]].shift;
        rows += shape->rows[i];
        if (n > chunks) chunks = n;
    }
    rows *= per_of(shape);
    c->subgroups = caps->subgroups && caps->subgroup_size >= 8;
    const uint32_t lanes_max = c->subgroups ? subgroup_least(caps) : PORTABLE_LANES;
    const uint64_t wanted = (uint64_t)units * LANES_A_UNIT;
    const bool one = shape->n_x == 1 || rows * shape->k <= TINY_WEIGHTS, small = rows <= SMALL_ROWS,
               large = rows >= LARGE_ROWS;
    const bool wide = (large && shape->k > WIDE_K) || shape->k > LONG_K,
               plain = !base_type_is_quantised(shape->types[0]);
    const uint32_t wg = one && large && int8 && !shape->has_prologue ? LARGE_WG
                        : !one || !shape->has_prologue               ? DEVICE_WG
                        : small || wide                              ? WORKED_SMALL_WG
                                                                     : WORKED_WG;
    c->wg = least(wg, caps->workgroup_invocations ? caps->workgroup_invocations : 256);
    c->lanes = least(lanes_max, power_up(chunks));
    /* else lanes wait in the last round */
    if (c->lanes > 16 && chunks < 4 * c->lanes && chunks % c->lanes != 0 &&
        rows * c->lanes * FEW_LANES > wanted)
        c->lanes = 16;
    /* that read the vectors where they lie */
    const uint32_t least_lanes = one && large && shape->rounded_in ? 16 : 8;
    while (c->lanes > least_lanes && rows * c->lanes > (one ? 1 : 2) * wanted) c->lanes /= 2;
    c->n_x = one ? 1 : least(power_up(shape->n_x), int8 ? 8 : 4);
    /* Long rows of a small matrix: several subgroups a row, so that the device is full. */
    c->span = c->subgroups ? subgroup_least(caps) : 0;
    while (one && c->subgroups && (!shape->has_prologue || chunks >= 4 * c->lanes) &&
           c->lanes >= c->span && c->lanes < WIDE_SPANS * c->span && 2 * c->lanes <= chunks &&
           2 * rows * c->lanes * FEW_LANES <= wanted)
        c->lanes *= 2;
    /* Rather fewer lanes a row than workgroups that make the vectors a second time. */
    const uint32_t once = shape->crowded ? units : units + units / 4;
    while (one && shape->has_prologue && small && c->lanes > 8 && chunks < 4 * c->lanes &&
           rows / per_of(shape) * c->lanes / c->wg > once)
        c->lanes /= 2;
    if (c->lanes > c->span && c->span)
        c->wg = least(WORKED_WG, caps->workgroup_invocations ? caps->workgroup_invocations : 256);
    /* few rows: more groups */
    while (c->n_x > 2 && rows * c->lanes / c->wg * ((shape->n_x + c->n_x - 1) / c->n_x) < 2 * units)
        c->n_x /= 2;
    if (one && plain && !shape->has_prologue) c->depth = 2;
    /* two rows share what is read of the vectors */
    c->rows = int8 && (!one || (large && !shape->has_prologue && !shape->rounded_in)) &&
                      2 * c->n_x * per_of(shape) <= SUMS_MAX
                  ? 2
                  : 1;
    while ((!one || !int8) && c->rows < 4 && rows * c->lanes > 2 * wanted * c->rows &&
           2 * c->rows * c->n_x * per_of(shape) <= SUMS_MAX)
        c->rows *= 2;
    while (shape->rounded_out && matvec_tile(c) % 32 != 0) {
        if (c->rows < 4 && 2 * c->rows * c->n_x * per_of(shape) <= 2 * SUMS_MAX) c->rows *= 2;
        else if (c->lanes > 1) c->lanes /= 2;
        else break;
    }
    c->groups = !one                   ? 4 * units
                : !shape->has_prologue ? large ? (shape->rounded_in ? 4 : 3) * units : 8 * units
                : shape->crowded       ? units
                : small || wide        ? 2 * units
                                       : 4 * units;
    if (int8) {
        const uint64_t reread = (uint64_t)c->groups * shape->k * shape->n_x;
        const bool few = shape->n_x <= c->n_x || shape->k * c->n_x <= ROUNDED_MAX;
        c->x =
            !shape->rounded_in && (shape->has_prologue || (few && reread <= MATVEC_REREAD_DEVICE))
                ? MATVEC_INT8
                : MATVEC_QUANTISED;
        if (c->x == MATVEC_INT8 && !shape->has_prologue &&
            memory_of(shape, c) > workgroup_bytes(caps))
            c->x = MATVEC_QUANTISED;
    } else {
        c->x = shape->has_prologue || (uint64_t)shape->k * c->n_x <= SHARED_MAX ? MATVEC_SHARED
                                                                                : MATVEC_DIRECT;
        if (!shape->has_prologue && memory_of(shape, c) > workgroup_bytes(caps))
            c->x = MATVEC_DIRECT;
    }
}

static bool is_power(uint32_t n) {
    return n && (n & (n - 1)) == 0;
}

/* What is asked for, in place of what was chosen. false: the kernel has no such form. */
static bool take_form(const device_caps *caps, const lower_form *form, matvec_choice *c) {
    if (form->wg) c->wg = form->wg;
    if (form->lanes) c->lanes = form->lanes;
    if (form->rows) c->rows = form->rows;
    if (form->depth) c->depth = form->depth;
    if (form->groups) c->groups = form->groups;
    if (form->n_x) c->n_x = form->n_x;
    const uint32_t most = caps->workgroup_invocations ? caps->workgroup_invocations : 256;
    return is_power(c->wg) && is_power(c->lanes) && c->wg <= most && c->lanes <= c->wg &&
           (!c->subgroups || c->span || c->lanes <= subgroup_least(caps));
}

static bool choose(const device_caps *caps, const matvec_shape *shape, matvec_choice *out) {
    *out = (matvec_choice){0};
    for (uint32_t i = 0; i < shape->n_segment; i++)
        if (!matvec_reader(shape->types[i], false)) return false;
    if (!shape->single && matvec_batch_choose(caps, shape, out)) return true;
    *out = (matvec_choice){0};
    if (device_is_processor(caps)) choose_software(shape, out);
    else choose_device(caps, shape, out);
    if (shape->form && !take_form(caps, shape->form, out)) return false;
    while (!shape->form && out->wg > 32 && out->wg > out->lanes && !shape->rounded_out &&
           memory_of(shape, out) > workgroup_bytes(caps))
        out->wg /= 2;
    return memory_of(shape, out) <= workgroup_bytes(caps) &&
           (!shape->rounded_out || matvec_tile(out) % 32 == 0);
}

bool matvec_choose(const device_caps *caps, const matvec_shape *shape, matvec_choice *out) {
    if (choose(caps, shape, out)) return true;
    if (!shape->form || !shape->form->tuned) return false;
    matvec_shape plain = *shape;
    plain.form = NULL;
    return choose(caps, &plain, out);
}

static void part(lower_request *r, const char *name, const char *file, const char *prefix) {
    assert(r->n_part + 1 < KERNELS_PART_MAX);
    r->kernel.parts[r->n_part++] = (kernels_part){name, file, prefix};
}

void matvec_request(lower_request *r, const matvec_shape *shape, const matvec_choice *c,
                    const char *const *prefixes) {
    static const char *const x_files[] = {[MATVEC_SHARED] = "matvec_x_shared",
                                          [MATVEC_INT8] = "matvec_x_int8",
                                          [MATVEC_QUANTISED] = "matvec_x_quantised"};
    const bool int8 = c->x == MATVEC_INT8 || c->x == MATVEC_QUANTISED;
    if (c->share) {
        matvec_batch_request(r, shape, c, prefixes);
        return;
    }
    r->kernel.file = "matvec";
    lower_request_number(r, "WG", c->wg);
    lower_request_number(r, "LANES", c->lanes);
    lower_request_number(r, "ROWS", c->rows);
    lower_request_number(r, "N_X", c->n_x);
    lower_request_number(r, "PER", per_of(shape));
    lower_request_number(r, "DEPTH", c->depth ? c->depth : 1);
    lower_request_flag(r, "ONCE", c->once);
    if (c->x == MATVEC_INT8 && c->subgroups) part(r, "x", "matvec_x_int8_subgroup", NULL);
    else if (c->x != MATVEC_DIRECT) part(r, "x", x_files[c->x], NULL);
    if (c->x != MATVEC_QUANTISED && !shape->has_prologue)
        part(r, "prologue",
             shape->k % 16 || shape->x_any ? "matvec_prologue_any" : "matvec_prologue_plain", NULL);
    if (c->x == MATVEC_SHARED || c->x == MATVEC_INT8)
        lower_request_number(r, "X_GROUPS", (shape->k + 63) / 64 * 4);
    if (c->lanes == 1) part(r, "reduce", "matvec_reduce_none", NULL);
    else if (c->span && c->lanes > c->span) {
        part(r, "reduce", "matvec_reduce_wide", NULL);
        lower_request_number(r, "REDUCE_SPAN", c->span);
    } else if (c->subgroups) part(r, "reduce", "matvec_reduce_subgroup", NULL);
    for (uint32_t i = 0; i < shape->n_segment; i++) {
        const char *prefix = prefixes ? prefixes[i] : NULL;
        part(r, "reader", matvec_reader(shape->types[i], shape->k % 16 || shape->w_any), prefix);
        const char *own = int8_bodies[shape->types[i]];
        const char *f32 = c->lanes == 1 ? "matvec_body_f32" : "matvec_body_f32_flat";
        part(r, "body", !int8 ? f32 : own ? own : "matvec_int8_any", prefix);
    }
}
