/* measure.c - how fast the device reads its memory, which a decode step is judged by, copies it,
 * and multiplies.
 *
 * Reads one large buffer several times over with a kernel that does nothing else. The weights
 * themselves where they are large enough that no cache holds them, else a buffer made for it.
 * Refuses devices without memory of their own. */
#include "engine/measure.h"
#include "base/error.h"
#include "codegen/codegen.h"
#include "engine/engine.h"

#include <string.h>

enum {
    TILE_BYTES = 16 << 10,
    OUT_GROUPS = 2048,
    RUNS = 5,
    ROUNDS_MAX = 512,
    FMA_ROUNDS = 16,
    FMA_ROUNDS_MAX = 16384,
    FMA_SUMS = 8,
    FMA_TIMES = 4
};
/* weights below are left alone: caches hold up to 50 MB of a piece of 64 */
static const uint64_t WEIGHT_MIN = 256 << 20;
static const uint64_t BUFFER_BYTES = 256 << 20, SOFTWARE_BYTES = 64 << 20, READ_MAX = 1 << 30;
/* Long against a dispatch, or where the host's clock has to do, against a submit; short against
 * what a desktop notices. */
static const double STAMPED_SECONDS = 4e-3, CLOCKED_SECONDS = 40e-3;
/* A GPU that was idle while a model was read has low clocks, and takes a while to raise them. */
static const double WARM_SECONDS = 0.3;

double measure_median(double *x, uint32_t n) {
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t k = i; k > 0 && x[k - 1] > x[k]; k--) {
            const double y = x[k];
            x[k] = x[k - 1];
            x[k - 1] = y;
        }
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

typedef struct measuring {
    base_heap *heap;
    device *d;
    const graph_store *store; /* NULL: none */
    uint64_t memory;
    measure_kind kind;
    device_buffer data, out, made; /* made: data, where it was made for this */
    uint64_t bytes;
    device_program program;
    device_bindings bindings;
    uint32_t groups, lanes, width; /* of its kernel */
} measuring;

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* Pages that nobody wrote may all be one page of zeros, which lies in a cache. */
static beryl_status write_all(measuring *m, beryl_error *error) {
    const device_command fill = {.kind = DEVICE_FILL, .fill = {m->made, 0, m->bytes}};
    device_ticket ticket;
    const beryl_status status =
        device_submit(m->d, &(device_submit_desc){&fill, 1, NULL, 0}, &ticket, error);
    return status == BERYL_OK ? device_wait(m->d, ticket, error) : status;
}

/* The buffer to read, in whole tiles. */
static beryl_status choose_buffer(measuring *m, beryl_error *error) {
    const device_caps *caps = device_caps_of(m->d);
    const uint64_t most = least(caps->binding_max, caps->buffer_max);
    for (size_t i = 0; m->kind == MEASURE_READ && m->store && i < m->store->buffers.count; i++) {
        const struct store_buffer *b = &m->store->buffers.data[i];
        if (b->size < WEIGHT_MIN || b->size <= m->bytes) continue;
        m->data = b->id;
        m->bytes = b->size;
    }
    m->bytes = least(least(m->bytes, most), READ_MAX) / TILE_BYTES * TILE_BYTES;
    if (m->bytes >= least(WEIGHT_MIN, most / TILE_BYTES * TILE_BYTES)) return BERYL_OK;
    uint64_t bytes = least(device_is_processor(caps) ? SOFTWARE_BYTES : BUFFER_BYTES, most);
    if (caps->memory || m->memory) {
        device_stats stats;
        device_stats_of(m->d, &stats);
        const uint64_t memory = m->memory ? m->memory : caps->memory;
        const uint64_t left = memory > stats.buffer_bytes ? memory - stats.buffer_bytes : 0;
        bytes = least(bytes, left / 4);
    }
    m->bytes = bytes / TILE_BYTES * TILE_BYTES;
    if (!m->bytes)
        return base_fail(error, BERYL_NO_DEVICE_MEMORY,
                         "no room on the device for a buffer to measure with");
    const beryl_status status = device_buffer_make(m->d, m->bytes, "bandwidth", &m->made, error);
    m->data = m->made;
    return status == BERYL_OK ? write_all(m, error) : status;
}

/* Neighbouring lanes read neighbouring words. A processor reads
 * a tile with one lane. */
static void write_read(ir_builder *b, const measuring *m, ir_memory data, ir_memory out,
                       ir_id tiles, ir_id rounds) {
    const uint32_t lanes = m->lanes, width = m->width, words = TILE_BYTES / 4;
    const ir_memory sum = ir_register(b, IR_U32, width);
    const ir_id zero = ir_u32(b, 0), one = ir_u32(b, 1), group = ir_group(b, 0),
                groups = ir_groups(b, 0), lane = ir_local(b, 0);
    const ir_id first = ir_mul(b, lane, ir_u32(b, width)), step = ir_u32(b, lanes * width);
    const bool copies = m->kind == MEASURE_COPY;
    ir_store(b, sum, zero, ir_splat(b, zero, width));
    const ir_id round = ir_loop(b, zero, rounds, one);
    const ir_id tile = ir_loop(b, group, tiles, groups);
    const ir_id from = ir_fma(b, tile, ir_u32(b, words), first),
                to = ir_fma(b, tile, ir_u32(b, words), ir_u32(b, words));
    const ir_id at = ir_loop_unrolled(b, from, to, step, 4);
    /* the round goes in, so that none can be left away */
    const ir_id x = ir_load(b, data, at, width);
    if (copies) ir_store(b, out, at, ir_xor(b, x, ir_splat(b, round, width)));
    else
        ir_store(b, sum, zero,
                 ir_xor(b, ir_add(b, ir_load(b, sum, zero, width), x), ir_splat(b, round, width)));
    ir_end(b);
    ir_end(b);
    ir_end(b);
    if (copies) return;
    const ir_id all = ir_load(b, sum, zero, width);
    ir_id total = ir_extract(b, all, 0);
    for (uint32_t i = 1; i < width; i++) total = ir_xor(b, total, ir_extract(b, all, i));
    ir_store(b, out, ir_fma(b, group, ir_u32(b, lanes), lane), total);
}

/* Sums that do not wait for one another. The factor comes from memory, so that nothing is known
 * before. */
static void write_fma(ir_builder *b, const measuring *m, ir_memory data, ir_memory out,
                      ir_id rounds) {
    const ir_id zero = ir_u32(b, 0), group = ir_group(b, 0), lane = ir_local(b, 0);
    const ir_id given = ir_cast(b, IR_F32, ir_and(b, ir_load(b, data, zero, 1), ir_u32(b, 1)));
    const ir_id factor = ir_splat(
        b, ir_fma(b, given, ir_number(b, IR_F32, 1, 0.25), ir_number(b, IR_F32, 1, 0.5)), m->width);
    const ir_id term = ir_splat(b, ir_add(b, given, ir_cast(b, IR_F32, lane)), m->width);
    ir_memory sums[FMA_SUMS];
    for (int i = 0; i < FMA_SUMS; i++) {
        sums[i] = ir_register(b, IR_F32, m->width);
        ir_store(b, sums[i], zero, ir_number(b, IR_F32, m->width, i));
    }
    ir_loop(b, zero, rounds, ir_u32(b, 1));
    for (int t = 0; t < FMA_TIMES; t++)
        for (int i = 0; i < FMA_SUMS; i++)
            ir_store(b, sums[i], zero,
                     ir_fma(b, ir_load(b, sums[i], zero, m->width), factor, term));
    ir_end(b);
    ir_id all = ir_load(b, sums[0], zero, m->width);
    for (int i = 1; i < FMA_SUMS; i++) all = ir_add(b, all, ir_load(b, sums[i], zero, m->width));
    ir_id total = ir_extract(b, all, 0);
    for (uint32_t i = 1; i < m->width; i++) total = ir_add(b, total, ir_extract(b, all, i));
    ir_store(b, out, ir_fma(b, group, ir_u32(b, m->lanes), lane), ir_bitcast(b, IR_U32, 1, total));
}

static beryl_status describe(base_arena *arena, const measuring *m, device_program_desc *desc,
                             beryl_error *error) {
    static const char *const names[] = {[MEASURE_READ] = "read_bandwidth",
                                        [MEASURE_COPY] = "copy_bandwidth",
                                        [MEASURE_FMA] = "fma_rate"};
    const device_caps *caps = device_caps_of(m->d);
    int language = 0;
    while (language + 1 < DEVICE_LANGUAGE_COUNT &&
           !(caps->languages & DEVICE_LANGUAGE_BIT(language)))
        language++;
    ir_builder *b = ir_begin(arena, names[m->kind], m->lanes, 1, 1);
    const ir_memory data = ir_buffer(b, IR_U32, IR_READ, "data"),
                    out = ir_buffer(b, IR_U32, IR_READ_WRITE, "out");
    const ir_id tiles = ir_param(b, IR_U32, "tiles"), rounds = ir_param(b, IR_U32, "rounds");
    if (m->kind == MEASURE_FMA) write_fma(b, m, data, out, rounds);
    else write_read(b, m, data, out, tiles, rounds);
    const ir_kernel *kernel;
    const beryl_status status = ir_finish(b, &kernel, error);
    return status == BERYL_OK
               ? codegen_make(arena, kernel, (device_language)language, caps, desc, error)
               : status;
}

static beryl_status make_program(measuring *m, beryl_error *error) {
    device_program_desc desc;
    base_arena arena;
    base_arena_init(&arena, m->heap);
    beryl_status status = describe(&arena, m, &desc, error);
    if (status == BERYL_OK) status = device_program_make(m->d, &desc, &m->program, error);
    base_arena_fini(&arena);
    while (status == BERYL_OK &&
           (status = device_program_status(m->d, m->program, error)) == BERYL_PENDING) {
        status = BERYL_OK;
        base_sleep(1e-3);
    }
    const uint64_t sums = OUT_GROUPS * 256 * 4,
                   out = m->kind == MEASURE_COPY && m->bytes > sums ? m->bytes : sums;
    if (status == BERYL_OK)
        status = device_buffer_make(m->d, out, "bandwidth sums", &m->out, error);
    if (status == BERYL_OK)
        status = device_bindings_make(m->d, m->program,
                                      (device_binding[]){{m->data, 0, m->bytes}, {m->out, 0, 0}}, 2,
                                      &m->bindings, error);
    return status;
}

/* Seconds of one dispatch that reads everything `rounds` times. */
static beryl_status run_once(measuring *m, uint32_t rounds, double *seconds, beryl_error *error) {
    const uint32_t params[2] = {(uint32_t)(m->bytes / TILE_BYTES), rounds};
    const device_command commands[] = {
        {.kind = DEVICE_STAMP},
        {.kind = DEVICE_DISPATCH, .dispatch = {m->program, m->bindings, {m->groups, 1, 1}, 0}},
        {.kind = DEVICE_STAMP},
    };
    const bool stamped = device_caps_of(m->d)->timestamps;
    const device_submit_desc desc = {stamped ? commands : commands + 1, stamped ? 3 : 1, params,
                                     sizeof params};
    device_ticket ticket;
    const double start = base_time();
    beryl_status status = device_submit(m->d, &desc, &ticket, error);
    if (status == BERYL_OK) status = device_wait(m->d, ticket, error);
    if (status == BERYL_PENDING)
        return base_fail(error, BERYL_UNSUPPORTED,
                         "the bandwidth cannot be measured where nothing may wait");
    if (status != BERYL_OK) return status;
    *seconds = base_time() - start;
    if (!stamped) return BERYL_OK;
    uint64_t ns[2];
    uint32_t n = 2;
    status = device_stamps(m->d, ticket, ns, &n, error);
    device_fetch_drop(m->d, ticket);
    if (status == BERYL_OK && n == 2 && ns[1] > ns[0]) *seconds = (double)(ns[1] - ns[0]) * 1e-9;
    return status;
}

/* Units of one round. */
static double round_units(const measuring *m) {
    if (m->kind == MEASURE_FMA) return 2.0 * FMA_SUMS * FMA_TIMES * m->width * m->lanes * m->groups;
    return (double)m->bytes * (m->kind == MEASURE_COPY ? 2 : 1);
}

static beryl_status best_rate(measuring *m, double *best, beryl_error *error) {
    const device_caps *caps = device_caps_of(m->d);
    /* of a lane, in a round */
    const uint64_t turns = m->bytes / 4 / m->width / m->lanes / m->groups;
    uint32_t most = m->kind == MEASURE_FMA ? FMA_ROUNDS_MAX : ROUNDS_MAX;
    if (m->kind != MEASURE_FMA && caps->loop_max)
        most = (uint32_t)least(most, caps->loop_max / 2 / turns + 1);
    uint32_t rounds = m->kind == MEASURE_FMA ? FMA_ROUNDS : 1;
    const double first = base_time(), warm = device_is_processor(caps) ? 0 : WARM_SECONDS;
    double seconds = 0;
    beryl_status status = BERYL_OK;
    *best = 0;
    for (int i = 0; status == BERYL_OK && (i < RUNS || base_time() - first < warm); i++) {
        status = run_once(m, rounds, &seconds, error);
        if (status != BERYL_OK || !(seconds > 0)) continue;
        const double rate = round_units(m) * rounds / seconds;
        if (rate > *best) *best = rate;
        const double longer = (caps->timestamps ? STAMPED_SECONDS : CLOCKED_SECONDS) / seconds;
        if (i < 2 && longer > 1)
            rounds = longer * rounds > most ? most : (uint32_t)(longer * rounds);
    }
    if (status == BERYL_OK && !(*best > 0))
        status =
            base_fail(error, BERYL_DEVICE, "the device's clock did not move while it was measured");
    return status;
}

beryl_status measure_rate(base_heap *heap, device *d, const graph_store *store, uint64_t memory,
                          measure_kind kind, double *rate, beryl_error *error) {
    const device_caps *caps = device_caps_of(d);
    const bool serial = device_is_processor(caps);
    if (!strcmp(caps->backend, "dummy"))
        return base_fail(error, BERYL_UNSUPPORTED,
                         "the dummy device computes nothing that could be measured");
    if (!strcmp(caps->backend, "web"))
        return base_fail(error, BERYL_UNSUPPORTED,
                         "nothing can be measured where nothing may wait");
    measuring m = {.heap = heap,
                   .d = d,
                   .store = store,
                   .memory = memory,
                   .kind = kind,
                   .lanes = serial ? 1 : 256,
                   .width = serial ? 16 : 4};
    /* the lanes are its vectors */
    if (serial && !device_is_compiled(caps)) m.lanes = 8, m.width = 4;
    beryl_status status = choose_buffer(&m, error);
    if (status == BERYL_OK) status = make_program(&m, error);
    m.groups = serial ? 64 : OUT_GROUPS;
    if (m.groups > m.bytes / TILE_BYTES) m.groups = (uint32_t)(m.bytes / TILE_BYTES);
    if (status == BERYL_OK) status = best_rate(&m, rate, error);
    if (m.bindings.id) device_bindings_drop(m.d, m.bindings);
    if (m.program.id) device_program_drop(m.d, m.program);
    if (m.out.id) device_buffer_drop(m.d, m.out);
    if (m.made.id) device_buffer_drop(m.d, m.made);
    return status;
}

beryl_status beryl_engine_measure(beryl_engine *e, beryl_error *error) {
    if (!e || !e->loaded || e->options.vocabulary_only)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_engine_measure needs an engine with a loaded model");
    if (!e->device)
        return base_fail(error, BERYL_UNSUPPORTED,
                         "the reference device has no memory of its own to measure");
    return measure_rate(&e->heap, e->device, &e->store, e->options.memory, MEASURE_READ,
                        &e->stats.bandwidth, error);
}
