/* bench_ops.c - operations on their own, timed on a device and held against what it can do.
 *
 * Each case is a graph of a few copies of one operation, over tensors of their own, so that no
 * cache holds what a copy reads and so that a dispatch's own cost does not hide it. Tensors are
 * states and weights of a store: nothing but indices is sent with a run. */
#include "base/error.h"
#include "base/file.h"
#include "base/thread.h"
#include "engine/measure.h"
#include "engine/op_cases.h"
#include "engine/out.h"
#include "plan/exec.h"

#include <string.h>

enum { COPIES_MAX = 16, RUNS_MAX = 64, RUNS_MIN = 5, PIECE = 1 << 18 };
static const double WARM_SECONDS = 0.2, RUN_SECONDS = 0.25;
static const uint64_t COLD_BYTES = 192 << 20; /* beyond a GPU's caches */

struct beryl_bench {
    base_heap heap;
    beryl_log log;
    bool exact;
    device *device; /* NULL: reference */
    beryl_bench_info info;
};

typedef struct making { /* of one case */
    op_maker maker;
    beryl_bench *b;
    beryl_bench_case what;
    graph_store store;
    graph_exec *exec;
    beryl_source source;
    unsigned char *blob; /* one weight, for all copies */
    uint32_t n_copy;
} making;

static beryl_status fail(making *m, beryl_status code, const char *what) {
    if (m->maker.error.code == BERYL_OK)
        base_fail(&m->maker.error, code, "%s: %s", graph_op_name(m->maker.op), what);
    return code;
}

/* ---- the usual cases ------------------------------------------------------------------------- */

static uint32_t n_usual(const op_case *c) {
    const base_type *types;
    const uint32_t n = c->large[0] ? op_case_types(c, 0, &types) : 0;
    return n < BASE_USUAL_TYPES ? n : BASE_USUAL_TYPES;
}

bool beryl_bench_usual(uint32_t i, beryl_bench_case *out) {
    for (base_op op = 0; op < OP_COUNT; op++) {
        const op_case *c = op_case_of(op);
        const uint32_t n = n_usual(c);
        if (i >= n) {
            i -= n;
            continue;
        }
        const base_type *types;
        op_case_types(c, 0, &types);
        if (out)
            *out = (beryl_bench_case){
                .op = graph_op_name(op), .type = base_type_name(types[i]), .letters = c->letters};
        return true;
    }
    return false;
}

/* ---- one case -------------------------------------------------------------------------------- */

/* Bytes that are finite and small as f32, f16 or bf16, and as scales of blocks. */
static void fill_bytes(unsigned char *to, size_t n) {
    base_random random = {.state = 7};
    for (size_t i = 0; i < n; i += 8) {
        const uint64_t word = (base_random_next(&random) & UINT64_C(0x1f1f1f1f1f1f1f1f)) |
                              UINT64_C(0x2020202020202020);
        memcpy(to + i, &word, n - i < 8 ? n - i : 8);
    }
}

static beryl_status fill_states(making *m) {
    const size_t size = PIECE;
    unsigned char *piece = base_heap_take(&m->b->heap, size);
    beryl_status status = piece ? BERYL_OK : fail(m, BERYL_NO_MEMORY, "out of host memory");
    if (piece) fill_bytes(piece, size);
    for (uint32_t i = 0; status == BERYL_OK && i < m->store.tensors.count; i++) {
        const uint64_t bytes =
            m->store.tensors.data[i].is_state ? store_state_bytes(&m->store, i) / 4 * 4 : 0;
        for (uint64_t at = 0; status == BERYL_OK && at < bytes; at += size)
            status =
                store_state_write(&m->store, i, at, piece,
                                  (size_t)(bytes - at < size ? bytes - at : size), &m->maker.error);
    }
    base_heap_give(&m->b->heap, piece, piece ? size : 0);
    return status;
}

static void fill_indices(const making *m) {
    for (size_t i = 0; i < m->maker.indices.count; i++) {
        const struct op_index *in = &m->maker.indices.data[i];
        int32_t *to = graph_exec_input(m->exec, in->v);
        const uint64_t n = graph_element_bound(graph_tensor_at(m->maker.g, in->v));
        for (uint64_t k = 0; to && k < n; k++)
            to[k] = (int32_t)((in->from + (in->rising ? k : k * 40503)) % in->limit);
    }
}

static beryl_status build(making *m, const op_case *op) {
    m->maker.adding = true;
    op->make(&m->maker, m->what.shape);
    if (m->maker.error.code != BERYL_OK) return m->maker.error.code;
    const double each = m->maker.read + m->maker.written;
    const bool small = !m->b->device || device_is_processor(device_caps_of(m->b->device));
    m->n_copy = small || each >= (double)COLD_BYTES ? 1 : (uint32_t)((double)COLD_BYTES / each) + 1;
    if (m->n_copy > COPIES_MAX) m->n_copy = COPIES_MAX;
    for (uint32_t i = 1; i < m->n_copy; i++) op->make(&m->maker, m->what.shape);
    m->blob = base_heap_take(&m->b->heap, m->maker.blob_size + 1);
    if (!m->blob) return fail(m, BERYL_NO_MEMORY, "out of host memory");
    fill_bytes(m->blob, m->maker.blob_size);
    m->source = base_source_of_memory(m->blob, m->maker.blob_size);
    beryl_status status = m->maker.error.code;
    if (status == BERYL_OK) status = store_layout(&m->store, 0, &m->maker.error);
    if (status == BERYL_OK) status = store_make(&m->store, &m->maker.error);
    m->maker.adding = false;
    m->maker.next = 0;
    for (uint32_t i = 0; status == BERYL_OK && i < m->n_copy; i++) {
        const graph_value out = op->make(&m->maker, m->what.shape);
        if (out && !graph_tensor_at(m->maker.g, out)->base) graph_output(m->maker.g, out, "y");
        status = graph_status(m->maker.g, &m->maker.error);
    }
    const graph_exec_options with = {
        .exact = m->b->exact, .unfused = m->maker.op != OP_FUSED, .framed = true};
    if (status == BERYL_OK) status = m->maker.error.code;
    if (status == BERYL_OK)
        status = graph_exec_open(m->maker.g, &m->store, &with, &m->exec, &m->maker.error);
    return status;
}

static beryl_status upload(making *m) {
    beryl_status status;
    while ((status = store_upload_step(&m->store, &m->maker.error)) == BERYL_EVENT ||
           status == BERYL_PENDING) {
        device_ticket done;
        if (status == BERYL_PENDING && m->b->device &&
            device_poll(m->b->device, &done, &m->maker.error) != BERYL_OK)
            return m->maker.error.code;
    }
    if (status == BERYL_OK) status = fill_states(m);
    while (status == BERYL_OK &&
           (status = graph_exec_ready(m->exec, &m->maker.error)) == BERYL_PENDING)
        base_sleep(1e-3), status = BERYL_OK;
    if (status == BERYL_OK) fill_indices(m);
    return status;
}

/* Seconds of one run of all copies. */
static beryl_status run_once(making *m, double *seconds) {
    static const uint32_t none[GRAPH_EXTENT_MAX + 1];
    device_ticket ticket;
    const void *data;
    const double start = base_time();
    beryl_status status = graph_exec_submit(m->exec, none, NULL, 0, &ticket, &m->maker.error);
    if (status == BERYL_OK && m->b->device)
        status = device_wait(m->b->device, ticket, &m->maker.error);
    *seconds = base_time() - start;
    if (status != BERYL_OK) return status;
    graph_exec_fetched(m->exec, ticket, 0, &data, NULL); /* for the times alone */
    if (graph_exec_seconds(m->exec) > 0) *seconds = graph_exec_seconds(m->exec);
    return BERYL_OK;
}

static beryl_status time_case(making *m, double *seconds) {
    double times[RUNS_MAX];
    uint32_t n = 0;
    const bool warms = m->b->device && !device_is_processor(device_caps_of(m->b->device));
    const double begun = base_time();
    beryl_status status = run_once(m, seconds);
    while (status == BERYL_OK && warms && base_time() - begun < WARM_SECONDS)
        status = run_once(m, seconds);
    const double start = base_time();
    while (status == BERYL_OK && n < RUNS_MAX &&
           (n < RUNS_MIN || base_time() - start < RUN_SECONDS))
        status = run_once(m, &times[n++]);
    if (status == BERYL_OK) *seconds = measure_median(times, n) / m->n_copy;
    return status;
}

/* OP_COUNT: it is none that is timed. */
static base_op op_of(const char *name) {
    base_op op = 0;
    while (op < OP_COUNT && !(name && op_case_of(op)->large[0] && !strcmp(graph_op_name(op), name)))
        op++;
    return op;
}

static beryl_status case_of(const beryl_bench *b, const beryl_bench_case *what, making *m,
                            const op_case **op, beryl_error *error) {
    m->what = *what;
    m->maker.op = op_of(what->op);
    if (m->maker.op == OP_COUNT)
        return base_fail(error, BERYL_NOT_FOUND,
                         "there is no operation '%s' to time; 'beryl ops' lists them",
                         what->op ? what->op : "");
    *op = op_case_of(m->maker.op);
    m->maker.type = TYPE_F32;
    for (int t = 0; what->type && t <= TYPE_COUNT; t++) {
        if (t == TYPE_COUNT)
            return base_fail(error, BERYL_NOT_FOUND, "there is no type '%s'", what->type);
        m->maker.type = (base_type)t;
        if (!strcmp(base_type_name(m->maker.type), what->type)) break;
    }
    if ((*op)->types == OP_F32_ALONE && m->maker.type != TYPE_F32)
        return base_fail(error, BERYL_UNSUPPORTED, "%s takes F32 alone", what->op);
    const bool small = !b->device || device_is_processor(device_caps_of(b->device));
    if (!what->n_shape)
        memcpy(m->what.shape, small ? (*op)->small : (*op)->large, sizeof m->what.shape);
    if (what->n_shape && what->n_shape != (*op)->n_shape)
        return base_fail(error, BERYL_BAD_INPUT, "a shape of %s is %s", what->op, (*op)->letters);
    for (uint32_t i = 0; i < (*op)->n_shape; i++)
        if (!m->what.shape[i] || m->what.shape[i] > 1u << 24)
            return base_fail(error, BERYL_BAD_INPUT, "a shape of %s is %s, each from 1 to 2^24",
                             what->op, (*op)->letters);
    m->what.n_shape = (*op)->n_shape;
    m->what.letters = (*op)->letters;
    m->what.op = graph_op_name(m->maker.op);
    m->what.type = base_type_name(m->maker.type);
    return BERYL_OK;
}

static void making_close(making *m) {
    graph_exec_close(m->exec);
    for (size_t i = 0; m->b->device && i < m->store.programs.count; i++)
        device_program_drop(m->b->device, m->store.programs.data[i].id);
    m->store.programs.count = 0;
    store_fini(&m->store);
    graph_close(m->maker.g);
    op_maker_fini(&m->maker);
    base_heap_give(&m->b->heap, m->blob, m->blob ? m->maker.blob_size + 1 : 0);
}

beryl_status beryl_bench_op(beryl_bench *b, const beryl_bench_case *what,
                            beryl_bench_result *result, beryl_error *error) {
    if (!b || !what || !result)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_bench_op needs a bench, a case and a place for the result");
    making m = {.b = b, .maker = {.heap = &b->heap, .store = &m.store}};
    const op_case *op = NULL;
    double seconds = 0;
    *result = (beryl_bench_result){.what = *what};
    beryl_status status = case_of(b, what, &m, &op, error);
    if (status != BERYL_OK) return status;
    result->what = m.what;
    m.maker.g = graph_open(&b->heap);
    status = m.maker.g ? store_init(&m.store, &b->heap, b->device, &m.source, 1, &m.maker.error)
                       : fail(&m, BERYL_NO_MEMORY, "out of host memory");
    if (m.maker.g && status == BERYL_OK) status = build(&m, op);
    if (status == BERYL_OK) status = upload(&m);
    if (status == BERYL_OK) status = time_case(&m, &seconds);
    if (status == BERYL_OK) {
        graph_exec_info info;
        graph_exec_describe(m.exec, &info);
        const double peak = m.maker.written * 4 < m.maker.read ? b->info.read : b->info.copy;
        result->seconds = seconds;
        result->bytes = m.maker.read + m.maker.written;
        result->operations = m.maker.operations;
        result->dispatches = info.dispatches / m.n_copy;
        if (peak > 0 && seconds > 0) result->bandwidth_part = result->bytes / seconds / peak;
        if (b->info.f32 > 0 && seconds > 0)
            result->f32_part = result->operations / seconds / b->info.f32;
    } else if (error) {
        *error = m.maker.error;
    }
    making_close(&m);
    return status;
}

/* ---- opening --------------------------------------------------------------------------------- */

beryl_status beryl_bench_open(const beryl_bench_options *options, beryl_bench **out,
                              beryl_error *error) {
    static const beryl_bench_options none = {.size = sizeof none};
    if (!out) return base_fail(error, BERYL_MISUSE, "beryl_bench_open needs a place for the bench");
    *out = NULL;
    if (!options) options = &none;
    if (options->size < offsetof(beryl_bench_options, log) || options->size > 1 << 16)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_bench_options.size is %zu: set it to sizeof(beryl_bench_options)",
                         options->size);
    beryl_bench_options o = none;
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    base_heap heap;
    base_heap_init(&heap, &o.allocator);
    beryl_bench *b = base_heap_take(&heap, sizeof *b);
    if (!b) return base_no_memory(error);
    b->heap = heap;
    b->log = o.log;
    b->exact = o.precision == BERYL_PRECISION_EXACT;
    beryl_status status = engine_device_open(&b->heap, &b->log, o.device, &b->device, error);
    if (status == BERYL_OK && b->device && !strcmp(device_caps_of(b->device)->backend, "dummy"))
        status = base_fail(error, BERYL_UNSUPPORTED,
                           "the dummy device computes nothing that could be timed");
    if (status == BERYL_OK && b->device && o.no_cache) device_cache_forgo(b->device);
    if (status == BERYL_OK) b->info.device = engine_device_info(b->device);
    double *const rates[] = {[MEASURE_READ] = &b->info.read,
                             [MEASURE_COPY] = &b->info.copy,
                             [MEASURE_FMA] = &b->info.f32};
    for (int k = MEASURE_READ; status == BERYL_OK && b->device && k <= MEASURE_FMA; k++) {
        beryl_error why = {0};
        status = measure_rate(&b->heap, b->device, NULL, 0, (measure_kind)k, rates[k], &why);
        if (status == BERYL_UNSUPPORTED || status == BERYL_NO_DEVICE_MEMORY) {
            base_log(&b->log, BERYL_LOG_WARNING, "not measured: %s", why.message);
            *rates[k] = 0;
            status = BERYL_OK;
        } else if (status != BERYL_OK && error) {
            *error = why;
        }
    }
    if (status != BERYL_OK) {
        beryl_bench_close(b);
        return status;
    }
    *out = b;
    return BERYL_OK;
}

void beryl_bench_close(beryl_bench *b) {
    if (!b) return;
    device_close(b->device);
    base_heap heap = b->heap;
    base_heap_give(&heap, b, sizeof *b);
}

void beryl_bench_info_get(const beryl_bench *b, beryl_bench_info *info) {
    if (b && info) *info = b->info;
}
