/* schedule.c - a good schedule by rule, from the marks of a kernel and what the device is.
 *
 * Owns the rule of thumb that interactive use runs on (tune.h searches better ones). Four shapes
 * are told apart: nothing reduced (pointwise, movement), two parallel loops around a reduction (a
 * product of matrices), parallel loops around a short or long reduction (rows, matvec), a reduction
 * alone. */
#include "base/build.h"
#include "ir/pass/edit.h"

#include <math.h>
#include <string.h>

enum {
    LONG = 1 << 16, /* an extent that nobody knows */
    UNITS_UNKNOWN = 64,
    VECTOR = 16,                            /* elements of a processor's */
    DEPTH_MAX = 12,                         /* of an index's expression */
    DEEP_BYTES = 2 * 16 * 2 * (128 + 4) * 4 /* two places of both tiles of 128 rows */
};

typedef struct shape {
    uint64_t extents[IR_DIM_MAX];
    bool parallel[IR_DIM_MAX], reduce[IR_DIM_MAX];
    uint32_t outer[IR_DIM_MAX], n; /* dims of parallel loops around the work, outermost first */
    uint32_t lanes_max, lanes;     /* of the device; of a usual workgroup */
    bool host;                     /* lanes are turns of a loop there */
    bool halves;                   /* products of f16 or bf16, and units for them */
    bool direct;                   /* that take factors from workgroup memory */
    bool vectors;                  /* a workgroup's lanes are a thread's vectors */
    bool loops;                    /* a lane has a loop that all wait for */
    bool deep;                     /* 8 elements of a row are less than memory brings at once */
    uint32_t units;                /* workgroups that keep the device busy */
    const ir_kernel *kernel;
} shape;

static uint32_t power_up_to(uint64_t n, uint32_t most) { /* the largest power of two */
    uint32_t p = 1;
    while ((uint64_t)p * 2 <= n && p * 2 <= most) p *= 2;
    return p;
}

bool ir_has_fragment(const device_caps *caps, ir_type factors, ir_type sums, uint32_t m, uint32_t n,
                     uint32_t k) {
    static const struct {
        ir_type factors, sums;
        uint32_t m, n, k;
    } shapes[] = {
#define X(factors, sums, m, n, k) {IR_##factors, IR_##sums, m, n, k},
        DEVICE_FRAGMENT_LIST(X)
#undef X
    };
    for (uint32_t i = 0; i < DEVICE_FRAGMENT_COUNT; i++)
        if (shapes[i].factors == factors && shapes[i].sums == sums && shapes[i].m == m &&
            shapes[i].n == n && shapes[i].k == k)
            return caps->fragments & DEVICE_FRAGMENT_BIT(i);
    return false;
}

/* Somewhere a sum takes the product of two casts of one 16-bit type, for which the device has
 * units. *loaded: of what lies in memory so. */
/* From memory, as it is: perhaps of some turns from one place, of the others from another. */
static bool is_loaded(const ir_kernel *k, ir_id id) {
    const ir_instruction *at = &k->code[id];
    return at->op == IR_LOAD || (at->op == IR_SELECT && k->code[at->in[1]].op == IR_LOAD &&
                                 k->code[at->in[2]].op == IR_LOAD);
}

static bool multiplies_halves(const ir_kernel *k, const device_caps *caps, bool *loaded) {
    for (uint32_t i = 0; i < k->n_code; i++) {
        const ir_instruction *at = &k->code[i];
        if ((at->op != IR_FMA && at->op != IR_MUL) || at->type != IR_F32) continue;
        const ir_instruction *x = &k->code[at->in[0]], *y = &k->code[at->in[1]];
        if (x->op != IR_CAST || y->op != IR_CAST) continue;
        const ir_type type = (ir_type)k->code[x->in[0]].type;
        *loaded = is_loaded(k, x->in[0]) && is_loaded(k, y->in[0]);
        if (k->code[y->in[0]].type == type && ir_has_fragment(caps, type, IR_F32, 16, 8, 16))
            return true;
    }
    return false;
}

static bool is_narrow(const ir_kernel *k) {
    for (uint32_t i = 0; i < k->n_buffer; i++)
        if (ir_type_bytes(k->buffers[i].type) < 4 && k->buffers[i].access == IR_READ) return true;
    return false;
}

uint32_t ir_schedule_tile(const ir_schedule *schedule, uint32_t dim) {
    const ir_schedule_dim *d = &schedule->dims[dim];
    const uint32_t lanes = d->lanes ? d->lanes : 1u, block = d->block ? d->block : 1u,
                   wide = d->wide ? d->wide : 1u;
    return lanes * block * wide *
           (!schedule->fragments || d->group == 3 ? 1u
            : d->group == 2                       ? 16u
                                                  : 8u);
}

void ir_schedule_rounds(ir_schedule *schedule, uint32_t rounds) {
    schedule->rounds = rounds;
    schedule->fragments = schedule->direct = true;
    schedule->vector = 8;
    for (uint32_t d = 0; d < IR_DIM_MAX; d++) { /* twice 64 sums in a lane's registers */
        ir_schedule_dim *dim = &schedule->dims[d];
        if (dim->group == 2) *dim = (ir_schedule_dim){.group = 2, .lanes = 8, .block = 1};
        else if (dim->group == 1) *dim = (ir_schedule_dim){.group = 1, .lanes = 1, .block = 16};
        else if (!dim->group && dim->stage) *dim = (ir_schedule_dim){.stage = 64, .unroll = 4};
    }
}

static void look(const ir_kernel *k, const uint64_t *extents, shape *s) {
    uint32_t depth = 0,
             inside = 0; /* inside: depth of the outermost loop that is not parallel; 0: none */
    for (uint32_t i = 0; i < k->n_code; i++) {
        const ir_instruction *at = &k->code[i];
        if (at->op == IR_END) {
            if (inside == depth) inside = 0;
            depth--;
        }
        if (at->op != IR_LOOP && at->op != IR_IF) continue;
        depth++;
        if (at->op == IR_IF) continue;
        ir_mark mark = ir_mark_of(at);
        if (mark.kind != IR_PARALLEL && mark.kind != IR_REDUCE) {
            s->loops = true;
            if (!inside) inside = depth;
            continue;
        }
        uint32_t from, to;
        bool constant =
            pass_const(k->code, at->in[0], &from) && pass_const(k->code, at->in[1], &to);
        uint64_t extent = extents && extents[mark.dim] ? extents[mark.dim]
                          : constant                   ? (to > from ? to - from : 1)
                                                       : LONG;
        if (extent > s->extents[mark.dim]) s->extents[mark.dim] = extent;
        if (mark.kind == IR_REDUCE) {
            s->reduce[mark.dim] = true;
            if (!inside) inside = depth;
        } else if (!inside && !s->parallel[mark.dim]) {
            s->parallel[mark.dim] = true;
            if (!s->reduce[mark.dim]) s->outer[s->n++] = mark.dim;
        }
    }
}

/* The innermost loop over lanes, the others over groups. */
static void pointwise(const shape *s, ir_schedule *out) {
    uint32_t inner = s->outer[s->n - 1], wide = s->lanes;
    uint32_t block = s->extents[inner] >= 4 && !s->host ? 4 : 1;
    uint64_t all = 1;
    for (uint32_t i = 0; i < s->n; i++) all *= s->extents[s->outer[i]];
    while (s->loops && block > 1 && all / block / wide < s->units) block /= 2;
    uint32_t x = power_up_to((s->extents[inner] + block - 1) / block, wide);
    out->dims[inner] = (ir_schedule_dim){
        .group = 1, .lane = 1, .lanes = (uint16_t)x, .block = (uint16_t)block, .split = true};
    for (uint32_t i = 0; i + 1 < s->n && i < 2; i++) {
        uint32_t d = s->outer[s->n - 2 - i];
        uint32_t y = i == 0 ? power_up_to(s->extents[d], wide / x) : 1;
        out->dims[d] = (ir_schedule_dim){
            .group = (uint8_t)(2 + i), .lane = (uint8_t)(2 + i), .lanes = (uint16_t)y};
    }
}

typedef struct tile_form {
    uint16_t m_lanes, m_block, n_lanes, n_block;
    uint16_t speed; /* results of a workgroup by time, in hundredths of the largest tile's */
} tile_form;

/* The tile with which the device is done first: workgroups run in waves of as many as keep it
 * busy, and a wave takes as long as its tiles are large. forms: from the largest to the smallest.
 * unit: turns that a block of 1 stands for. */
static const tile_form *choose_tile(const shape *s, const tile_form *forms, uint32_t n_form,
                                    uint32_t m_unit, uint32_t n_unit) {
    const uint64_t m = s->extents[s->outer[s->n - 2]], n = s->extents[s->outer[s->n - 1]],
                   products = s->n > 2 ? s->extents[s->outer[s->n - 3]] : 1;
    const tile_form *best = &forms[n_form - 1];
    double least = INFINITY;
    for (uint32_t i = 0; i < n_form; i++) {
        const tile_form *f = &forms[i];
        const uint64_t tile_m = (uint64_t)f->m_lanes * f->m_block * m_unit,
                       tile_n = (uint64_t)f->n_lanes * f->n_block * n_unit;
        const double tiles = (double)((m + tile_m - 1) / tile_m * ((n + tile_n - 1) / tile_n)) *
                             (double)products,
                     cost = ceil(tiles / s->units) * (double)(tile_m * tile_n) / f->speed;
        const bool fits =
            (uint32_t)f->m_lanes * f->n_lanes <= s->lanes_max && tile_m < 2 * m && tile_n < 2 * n;
        if (fits && cost < least) least = cost, best = f;
    }
    return best;
}

typedef struct tile_depth {
    uint16_t depth, slots;
} tile_depth;

/* Workgroup memory of both tiles and a strip of results at least. */
static uint32_t fragment_bytes(const tile_form *t, const tile_depth *d) {
    const uint32_t rows = t->m_lanes * t->m_block * 16u + t->n_lanes * t->n_block * 8u;
    return d->slots * rows * (d->depth + 8u) * 2 + t->m_lanes * t->n_lanes * 16u * 16u * 4u;
}

/* Matrix units: lanes are subgroups, blocks fragments of 16 by 8. */
static void fragments(const shape *s, uint32_t k, ir_schedule *out) {
    /* the first ones: a subgroup has 16 m and all n of its tile; they want long sums. Short ones
     * have but one tile of each factor, and several workgroups a unit, none of them large */
    enum { DIRECT = 3, DIRECT_DEPTH = 256, SHORT = 5, SHORT_DEPTH = 64 };
    static const tile_form forms[] = {{8, 1, 1, 32, 170}, {8, 1, 1, 16, 140}, {4, 1, 1, 16, 110},
                                      {4, 4, 2, 8, 100},  {2, 4, 4, 8, 100},  {2, 4, 2, 8, 90},
                                      {2, 2, 2, 8, 70},   {2, 2, 2, 4, 50},   {1, 2, 4, 2, 30},
                                      {4, 2, 1, 2, 30},   {1, 1, 4, 4, 30},   {1, 1, 4, 2, 20}};
    static const tile_depth depths[] = {{64, 4}, {64, 3}, {32, 4}, {32, 3}, {32, 2}, {16, 2}};
    const uint32_t first = s->direct && s->extents[k] >= DIRECT_DEPTH ? 0
                           : s->extents[k] <= SHORT_DEPTH             ? SHORT
                                                                      : DIRECT,
                   n_form = sizeof forms / sizeof *forms, n_depth = sizeof depths / sizeof *depths;
    const tile_form *t = choose_tile(s, forms + first, n_form - first, 16, 8);
    uint32_t d = t < forms + DIRECT ? 0 : 1; /* the deepest that fits, with the fewest barriers */
    while (d && d + 1 < n_depth && depths[d].depth > s->extents[k]) d++;
    while (d + 1 < n_depth && fragment_bytes(t, &depths[d]) > out->workgroup_bytes) {
        if (++d + 1 == n_depth && fragment_bytes(t, &depths[d]) > out->workgroup_bytes &&
            t + 1 < forms + n_form)
            t++, d = t < forms + DIRECT ? 0 : 1;
    }
    out->direct = t < forms + DIRECT;
    out->dims[s->outer[s->n - 2]] =
        (ir_schedule_dim){.group = 2, .lanes = t->m_lanes, .block = t->m_block};
    out->dims[s->outer[s->n - 1]] =
        (ir_schedule_dim){.group = 1, .lanes = t->n_lanes, .block = t->n_block};
    out->dims[k] = (ir_schedule_dim){.stage = depths[d].depth, .unroll = depths[d].slots};
    out->vector = 8;
    out->fragments = true;
}

/* A block of sums for each lane of a square. */
static void blocks(const shape *s, uint32_t k, ir_schedule *out) {
    static const tile_form forms[] = {{16, 8, 16, 8, 100}, {8, 8, 16, 8, 90}, {16, 4, 16, 4, 80},
                                      {8, 4, 16, 4, 60},   {4, 4, 16, 4, 40}, {16, 4, 4, 4, 40},
                                      {8, 2, 8, 2, 20}};
    const tile_form *t = choose_tile(s, forms, sizeof forms / sizeof *forms, 1, 1);
    out->dims[s->outer[s->n - 2]] =
        (ir_schedule_dim){.group = 2, .lane = 2, .lanes = t->m_lanes, .block = t->m_block};
    out->dims[s->outer[s->n - 1]] =
        (ir_schedule_dim){.group = 1, .lane = 1, .lanes = t->n_lanes, .block = t->n_block};
    const uint16_t depth = t->m_block * t->n_block < 64 || s->deep ? 16 : 8;
    out->dims[k] =
        (ir_schedule_dim){.stage = s->extents[k] >= 16 ? depth : 0, .ahead = true, .unroll = depth};
}

/* Lanes along the longer side, and no workgroup memory: where lanes are a thread's vectors, loads
 * from it cost as much as others, and barriers more. */
static void lane_blocks(const shape *s, uint32_t k, ir_schedule *out) {
    enum { LANES = 8, BLOCK = 8, TOLD = 16, TURNS = 2 };
    const uint32_t m = s->outer[s->n - 2], n = s->outer[s->n - 1];
    const bool down = s->extents[m] >= s->extents[n];
    const uint32_t along = down ? m : n, across = down ? n : m;
    out->tells = !BUILD_IS_MODULE && out->subgroup == LANES;
    /* what is told costs least */
    const uint32_t told = out->tells && s->extents[across] >= TOLD ? TOLD : BLOCK;
    out->dims[along] =
        (ir_schedule_dim){.group = down ? 2 : 1,
                          .lane = 1,
                          .lanes = LANES,
                          .block = (uint16_t)power_up_to((s->extents[along] + LANES - 1) / LANES,
                                                         BLOCK * BLOCK / told)};
    out->dims[across] = (ir_schedule_dim){.group = down ? 1 : 2,
                                          .lanes = 1,
                                          .block = (uint16_t)power_up_to(s->extents[across], told)};
    out->dims[k] = (ir_schedule_dim){.unroll = TURNS};
}

typedef enum step { STAYS, BY_ONE, BY_MORE } step;

/* How the value goes on with the loop of dimension `dim`. */
static step step_along(const ir_instruction *code, ir_id id, uint32_t dim, uint32_t depth) {
    const ir_instruction *i = &code[id];
    uint32_t number;
    if (i->op == IR_LOOP) return ir_mark_of(i).dim == dim ? BY_ONE : STAYS;
    if (i->op == IR_CONST || i->op == IR_PARAM) return STAYS;
    if (!depth) return BY_MORE;
    step in[3] = {STAYS, STAYS, STAYS};
    for (uint32_t a = 0; a < i->n_in && a < 3; a++)
        if (i->in[a] != IR_NO_ID) in[a] = step_along(code, i->in[a], dim, depth - 1);
    step product = in[0] || in[1] ? BY_MORE : STAYS;
    for (uint32_t a = 0; a < 2 && i->n_in >= 2; a++)
        if (pass_const(code, i->in[a], &number))
            product = !number ? STAYS : number == 1 ? in[1 - a] : product;
    if (i->op == IR_MUL) return product;
    if (i->op == IR_FMA) return product && in[2] ? BY_MORE : product ? product : in[2];
    if (i->op == IR_ADD) return in[0] && in[1] ? BY_MORE : in[0] ? in[0] : in[1];
    return in[0] || in[1] || in[2] ? BY_MORE : STAYS;
}

/* Both factors of the sums over k lie along the dimension, or do not know it. */
static bool lies_along(const shape *s, uint32_t dim, uint32_t k) {
    const ir_instruction *code = s->kernel->code;
    uint32_t depth = 0; /* of what is in the sums' loop */
    for (uint32_t i = 0; i < s->kernel->n_code; i++) {
        const ir_mark mark = ir_mark_of(&code[i]);
        const bool begins = code[i].op == IR_LOOP && mark.kind == IR_REDUCE && mark.dim == k;
        if (begins || (depth && (code[i].op == IR_LOOP || code[i].op == IR_IF))) depth++;
        else if (depth && code[i].op == IR_END) depth--;
        if (depth && code[i].op == IR_LOAD && code[i].space == IR_BUFFER &&
            step_along(code, code[i].in[0], dim, DEPTH_MAX) == BY_MORE)
            return false;
    }
    return s->extents[dim] < LONG && s->extents[dim] % VECTOR == 0;
}

/* Of a product on a processor: whose turns are elements of vectors. IR_DIM_MAX: none. */
static uint32_t vector_dim(const shape *s, uint32_t m, uint32_t n, uint32_t k) {
    return s->extents[k] >= 64 && lies_along(s, k, k) ? k
           : lies_along(s, n, k)                      ? n
           : lies_along(s, m, k)                      ? m
                                                      : IR_DIM_MAX;
}

static void product(const shape *s, uint32_t k, ir_schedule *out) {
    if (!s->host) {
        if (BUILD_HAS_C_TEXTS && s->halves && s->extents[k] >= 16) fragments(s, k, out);
        else if (s->vectors) lane_blocks(s, k, out);
        else blocks(s, k, out);
        if (s->n > 2) out->dims[s->outer[s->n - 3]].group = 3;
        return;
    }
    uint32_t m = s->outer[s->n - 2], n = s->outer[s->n - 1];
    const uint32_t wide = vector_dim(s, m, n, k);
    if (wide < IR_DIM_MAX) { /* vectors, tiles that stay in the caches */
        /* rows of sums beside each vector: fewer vectors want more, to hide their latency */
        const uint64_t n_vector = wide == k ? 4 : s->extents[wide] / VECTOR;
        const uint16_t vectors = n_vector < 4 ? (uint16_t)n_vector : 4,
                       rows = s->extents[wide == m ? n : m] < 32 ? 4
                              : vectors < 2                      ? 12
                                                                 : 6;
        out->dims[m] =
            (ir_schedule_dim){.group = 2, .lanes = 8, .block = wide == m ? vectors : rows};
        out->dims[n] = (ir_schedule_dim){.group = 1,
                                         .lanes = wide == n   ? 1
                                                  : wide == m ? 8
                                                              : 16,
                                         .block = wide == m ? rows : vectors};
        out->dims[wide].wide = VECTOR;
        if (s->n > 2) out->dims[s->outer[s->n - 3]].group = 3;
        return;
    }
    uint32_t block_m = s->extents[m] >= 512 ? 8 : s->extents[m] >= 32 ? 4 : 1;
    uint32_t block_n = s->extents[n] >= 512 ? 8 : s->extents[n] >= 32 ? 4 : 1;
    uint32_t side = s->lanes_max >= 256 ? 16 : 8;
    out->dims[m] = (ir_schedule_dim){.group = 2,
                                     .lane = 2,
                                     .lanes = (uint16_t)power_up_to(s->extents[m], side),
                                     .block = (uint16_t)block_m};
    out->dims[n] = (ir_schedule_dim){.group = 1,
                                     .lane = 1,
                                     .lanes = (uint16_t)power_up_to(s->extents[n], side),
                                     .block = (uint16_t)block_n};
    out->dims[k] = (ir_schedule_dim){.stage = s->extents[k] >= 16 ? 16 : 0, .unroll = 4};
    if (s->n > 2) out->dims[s->outer[s->n - 3]].group = 3;
}

/* Lanes along the reduction; more rows a workgroup where that leaves lanes. */
static void rows(const shape *s, uint32_t k, ir_schedule *out) {
    uint32_t inner = s->outer[s->n - 1];
    bool both = s->parallel[k]; /* the row is written too: long rows want many lanes */
    uint32_t most = s->host ? 16 : both || s->extents[inner] < 256 ? s->lanes : 32;
    const uint32_t each = BUILD_HAS_C_TEXTS && s->halves ? 8 : 4; /* in a row of a lane: 16 bytes */
    uint32_t x = power_up_to((s->extents[k] + each - 1) / each, most);
    uint32_t y = s->host ? 1 : power_up_to(s->extents[inner], s->lanes / x > 8 ? 8 : s->lanes / x);
    out->dims[k] = (ir_schedule_dim){.lane = 1,
                                     .lanes = (uint16_t)x,
                                     .block = both ? 4 : 0,
                                     .unroll = (uint16_t)each,
                                     .split = both};
    if (out->vector < each) out->vector = each;
    out->dims[inner] = (ir_schedule_dim){.group = 1, .lane = y > 1 ? 2 : 0, .lanes = (uint16_t)y};
    for (uint32_t i = 0; i + 1 < s->n && i < 2; i++)
        out->dims[s->outer[s->n - 2 - i]].group = (uint8_t)(2 + i);
}

void ir_schedule_default(const ir_kernel *k, const device_caps *caps,
                         const uint64_t extents[IR_DIM_MAX], ir_schedule *out) {
    shape s = {.lanes_max = caps->workgroup_invocations ? caps->workgroup_invocations : 256,
               .kernel = k};
    memset(out, 0, sizeof *out);
    s.host = BUILD_HAS_C_TEXTS && device_is_compiled(caps);
    s.units = caps->compute_units ? caps->compute_units : UNITS_UNKNOWN;
    s.halves = BUILD_HAS_C_TEXTS && caps->fragments && caps->subgroup_size == 32 &&
               multiplies_halves(k, caps, &s.direct);
    s.vectors = device_makes_vectors(caps);
    s.direct = s.direct && caps->multiplies_memory;
    s.deep = !device_is_processor(caps) && caps->workgroup_bytes >= DEEP_BYTES && is_narrow(k);
    if (s.lanes_max > IR_LANES_MAX) s.lanes_max = IR_LANES_MAX;
    s.lanes = s.lanes_max < 256 ? power_up_to(s.lanes_max, 256) : 256;
    look(k, extents, &s);
    out->vector = 4;
    out->subgroup = caps->subgroups ? caps->subgroup_size : 0;
    out->workgroup_bytes = caps->workgroup_bytes;
    uint32_t reduced = IR_DIM_MAX; /* the longest reduction */
    for (uint32_t d = 0; d < IR_DIM_MAX; d++)
        if (s.reduce[d] && (reduced == IR_DIM_MAX || s.extents[d] > s.extents[reduced]))
            reduced = d;
    if (reduced == IR_DIM_MAX) {
        if (s.n) pointwise(&s, out);
    } else if (!s.n) {
        out->dims[reduced] =
            (ir_schedule_dim){.lane = 1,
                              .lanes = (uint16_t)power_up_to(s.extents[reduced], s.lanes),
                              .unroll = 4,
                              .block = 1};
    } else if (s.n >= 2 && !s.parallel[reduced] && s.extents[s.outer[s.n - 2]] >= 8 &&
               s.extents[s.outer[s.n - 1]] >= 8) {
        product(&s, reduced, out);
    } else rows(&s, reduced, out);
}
