/* graph_api.c - beryl_graph.h over src/graph: a graph, a store of its own and one plan.
 *
 * Owns the order of things (build, compile, run) and checks what a caller could get wrong;
 * shapes are the graph's business. Outputs are all read back with every run, since they are few. */
#include "beryl_graph.h"
#include "base/error.h"
#include "base/file.h"
#include "base/thread.h"
#include "engine/out.h"
#include "graph/build.h"
#include "plan/exec.h"

#include <string.h>

enum { OUTPUT_MAX = 64, QUANTISED_RANK_MAX = 4 };

typedef enum graph_stage {
    STAGE_BUILD,
    STAGE_UPLOAD,
    STAGE_PROGRAMS,
    STAGE_READY,
    STAGE_FAILED
} graph_stage;

typedef struct graph_constant {
    graph_value input;
    const void *data; /* [size], in the arena */
    size_t size;
} graph_constant;

struct beryl_graph {
    base_heap heap;
    base_arena arena;
    beryl_log log;
    beryl_precision precision;
    uint64_t memory;
    device *device; /* NULL: reference */
    graph *g;
    graph_store store;
    base_vec(beryl_source) sources;     /* one a weight */
    base_vec(graph_constant) constants; /* those that are inputs */
    graph_exec *exec;
    /* as the caller knows them, and what is read back: of a view a copy */
    graph_value outputs[OUTPUT_MAX], fetched[OUTPUT_MAX];
    uint32_t n_output;
    graph_stage stage;
    device_ticket ticket;                   /* of the last run; 0: none */
    uint32_t extents[GRAPH_EXTENT_MAX + 1]; /* of the last run, from [1] */
    bool evaluated;                         /* the last run is that of a beryl_graph_eval */
    beryl_error failure;                    /* of compiling */
};

static const base_type types[] = {
#define X(name) [BERYL_TYPE_##name] = TYPE_##name,
    BERYL_TYPE_LIST(X)
#undef X
};

enum { TYPE_KNOWN = sizeof types / sizeof types[0] };

/* A weight of n numbers: of graph_constant. */
static uint32_t keep_constant(void *context, uint32_t n, const float *numbers) {
    beryl_graph *g = context;
    float *kept = base_arena_take(&g->arena, n, sizeof *kept);
    beryl_value v = 0;
    if (kept) memcpy(kept, numbers, n * sizeof *kept);
    if (kept) v = beryl_graph_weight(g, "", BERYL_TYPE_F32, 1, &n, kept, n * sizeof *kept);
    else if (g->g->error.code == BERYL_OK)
        base_fail(&g->g->error, BERYL_NO_MEMORY, "out of host memory");
    return v;
}

/* ---- opening --------------------------------------------------------------------------------- */

beryl_status beryl_graph_open(const beryl_graph_options *options, beryl_graph **out,
                              beryl_error *error) {
    static const beryl_graph_options none = {.size = sizeof none};
    if (!out) return base_fail(error, BERYL_MISUSE, "beryl_graph_open needs a place for the graph");
    *out = NULL;
    if (!options) options = &none;
    if (options->size < offsetof(beryl_graph_options, log) || options->size > 1 << 16)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_graph_options.size is %zu: set it to sizeof(beryl_graph_options)",
                         options->size);
    beryl_graph_options o = none;
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    if ((unsigned)o.precision > BERYL_PRECISION_EXACT)
        return base_fail(error, BERYL_MISUSE, "no such precision");
    base_heap heap;
    base_heap_init(&heap, &o.allocator);
    beryl_graph *g = base_heap_take(&heap, sizeof *g);
    if (!g) return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    g->heap = heap;
    base_arena_init(&g->arena, &g->heap);
    g->log = o.log;
    g->precision = o.precision;
    g->memory = o.memory;
    beryl_status status = engine_device_open(&g->heap, &g->log, o.device, &g->device, error);
    if (status == BERYL_OK) status = store_init(&g->store, &g->heap, g->device, NULL, 0, error);
    if (status == BERYL_OK && !(g->g = graph_open(&g->heap)))
        status = base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    if (status != BERYL_OK) {
        beryl_graph_close(g);
        return status;
    }
    g->g->constants.fn = keep_constant;
    g->g->constants.context = g;
    *out = g;
    return BERYL_OK;
}

void beryl_graph_close(beryl_graph *g) {
    if (!g) return;
    if (g->device && g->ticket) device_wait(g->device, g->ticket, NULL);
    graph_exec_close(g->exec);
    graph_close(g->g);
    store_fini(&g->store);
    device_close(g->device);
    base_vec_fini(&g->heap, &g->sources);
    base_vec_fini(&g->heap, &g->constants);
    base_arena_fini(&g->arena);
    base_heap heap = g->heap;
    base_heap_give(&heap, g, sizeof *g);
}

beryl_status beryl_graph_device(const beryl_graph *g, beryl_device_info *info) {
    if (!g || !info) return BERYL_MISUSE;
    *info = engine_device_info(g->device);
    return BERYL_OK;
}

void beryl_graph_at(beryl_graph *g, const char *file, uint32_t line) {
    if (!g) return;
    const char *name = file;
    for (const char *c = file; c && *c; c++)
        if (*c == '/' || *c == '\\') name = c + 1;
    g->g->file = name;
    g->g->line = line;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static bool may_build(const beryl_graph *g) {
    return g && g->stage == STAGE_BUILD && g->g->error.code == BERYL_OK;
}

static beryl_value refuse(beryl_graph *g, beryl_status code, const char *what, const char *name) {
    return graph_refuse(g->g, code, "'%s': %s", name ? name : "", what);
}

/* The graph borrows names. */
static const char *keep_name(beryl_graph *g, const char *name) {
    const char *copy = name ? base_arena_text(&g->arena, name, strlen(name)) : "";
    if (!copy) refuse(g, BERYL_NO_MEMORY, "out of host memory", name);
    return copy;
}

static bool copy_dims(beryl_graph *g, const char *name, uint32_t rank, const beryl_dim *from,
                      graph_dim *to) {
    if (rank > GRAPH_RANK_MAX || (rank && !from))
        return refuse(g, BERYL_UNSUPPORTED, "more than 10 dimensions, or none given", name), false;
    for (uint32_t i = 0; i < rank; i++) {
        const uint32_t extent = from[i].extent;
        if (extent > g->g->n_extent)
            return refuse(g, BERYL_MISUSE, "a dimension with an extent of another graph", name),
                   false;
        if (extent && from[i].size != g->g->extents[extent].bound && from[i].size)
            return refuse(g, BERYL_MISUSE, "a dimension whose size is not its extent's bound",
                          name),
                   false;
        to[i] = (graph_dim){extent ? g->g->extents[extent].bound : from[i].size, (uint8_t)extent};
    }
    return true;
}

static beryl_dim dim_given(graph_dim d) {
    return (beryl_dim){d.size, d.extent};
}

uint32_t beryl_graph_extent(beryl_graph *g, const char *name, uint32_t bound) {
    if (!may_build(g)) return 0;
    const char *kept = keep_name(g, name);
    return kept ? graph_extent_add(g->g, kept, bound) : 0;
}

beryl_dim beryl_graph_dim_sum(beryl_graph *g, beryl_dim a, beryl_dim b) {
    graph_dim d[2];
    return may_build(g) && copy_dims(g, "sum", 2, (beryl_dim[]){a, b}, d)
               ? dim_given(graph_dim_sum(g->g, d[0], d[1]))
               : (beryl_dim){0, 0};
}

beryl_dim beryl_graph_dim_product(beryl_graph *g, beryl_dim a, beryl_dim b) {
    graph_dim d[2];
    return may_build(g) && copy_dims(g, "product", 2, (beryl_dim[]){a, b}, d)
               ? dim_given(graph_dim_product(g->g, d[0], d[1]))
               : (beryl_dim){0, 0};
}

beryl_dim beryl_graph_dim_quotient(beryl_graph *g, beryl_dim a, uint32_t divisor) {
    graph_dim d;
    return may_build(g) && copy_dims(g, "quotient", 1, &a, &d)
               ? dim_given(graph_dim_quotient(g->g, d, divisor))
               : (beryl_dim){0, 0};
}

beryl_value beryl_graph_input(beryl_graph *g, const char *name, beryl_type type, uint32_t rank,
                              const beryl_dim *dims) {
    graph_dim d[GRAPH_RANK_MAX];
    if (!may_build(g)) return 0;
    if ((unsigned)type >= TYPE_KNOWN || !graph_type_is_plain(types[type]))
        return refuse(g, BERYL_UNSUPPORTED, "an input has a plain type, without blocks", name);
    const char *kept = keep_name(g, name);
    return kept && copy_dims(g, name, rank, dims, d) ? graph_input(g->g, kept, types[type], rank, d)
                                                     : 0;
}

/* Bytes of a stored tensor; 0: the shape is refused. */
static uint64_t stored_bytes(beryl_graph *g, const char *name, beryl_type type, uint32_t rank,
                             const uint32_t *dims) {
    if ((unsigned)type >= TYPE_KNOWN) return refuse(g, BERYL_UNSUPPORTED, "no such type", name);
    const bool plain = graph_type_is_plain(types[type]);
    if (rank < 1 || rank > (plain ? STORE_RANK_MAX : QUANTISED_RANK_MAX) || !dims)
        return refuse(g, BERYL_UNSUPPORTED,
                      "weights and states have 1 to 10 dimensions, in blocks 1 to 4", name);
    uint64_t bytes = base_type_row_bytes(types[type], dims[rank - 1]);
    if (!bytes)
        return refuse(g, BERYL_MISUSE,
                      "the last dimension is not in whole blocks of the type, or 0", name);
    uint64_t rows = 1;
    for (uint32_t i = 0; i + 1 < rank; i++) {
        rows *= dims[i];
        if (!rows || rows > INT32_MAX)
            return refuse(g, BERYL_MISUSE, "a dimension of 0, or more than 2^31 rows", name);
    }
    if (bytes > (UINT64_C(1) << 48) / rows)
        return refuse(g, BERYL_MISUSE, "more bytes than there can be", name);
    bytes *= rows;
    return bytes;
}

beryl_value beryl_graph_weight(beryl_graph *g, const char *name, beryl_type type, uint32_t rank,
                               const uint32_t *dims, const void *data, size_t size) {
    if (!may_build(g)) return 0;
    const uint64_t bytes = stored_bytes(g, name, type, rank, dims);
    if (!bytes) return 0;
    if (!data || size != bytes)
        return refuse(g, BERYL_MISUSE, "the data are not as long as type and shape say", name);
    beryl_source *source = base_vec_add(&g->heap, &g->sources);
    if (!source) return refuse(g, BERYL_NO_MEMORY, "out of host memory", name);
    *source = base_source_of_memory(data, size);
    const uint32_t file = (uint32_t)(g->sources.count - 1);
    const uint32_t index =
        store_add_weight(&g->store, name ? name : "", types[type], rank, dims, 0, file, 0, false);
    return index == UINT32_MAX ? refuse(g, BERYL_NO_MEMORY, "out of host memory", name)
                               : graph_stored(g->g, &g->store, index);
}

beryl_value beryl_graph_constant(beryl_graph *g, beryl_type type, uint32_t rank,
                                 const uint32_t *dims, const void *data) {
    static const uint32_t one = 1;
    if (!may_build(g)) return 0;
    if ((unsigned)type >= TYPE_KNOWN || !graph_type_is_plain(types[type]))
        return refuse(g, BERYL_UNSUPPORTED, "has a plain type, without blocks", "constant");
    const uint64_t bytes = stored_bytes(g, "constant", type, rank ? rank : 1, rank ? dims : &one);
    if (!bytes) return 0;
    if (!data) return refuse(g, BERYL_MISUSE, "no data", "constant");
    void *copy = base_arena_take(&g->arena, 1, (size_t)bytes);
    if (!copy) return refuse(g, BERYL_NO_MEMORY, "out of host memory", "constant");
    memcpy(copy, data, (size_t)bytes);
    const bool stored =
        type == BERYL_TYPE_F32 || (rank && type == BERYL_TYPE_F16 && dims[rank - 1] % 2 == 0);
    if (stored) {
        const beryl_value v = beryl_graph_weight(g, "constant", type, rank ? rank : 1,
                                                 rank ? dims : &one, copy, (size_t)bytes);
        return v && !rank ? graph_squeeze(g->g, v, 0) : v;
    }
    /* Others no device keeps as weights: an input that is set when it can be. */
    graph_dim d[GRAPH_RANK_MAX];
    for (uint32_t i = 0; i < rank; i++) d[i] = (graph_dim){dims[i], 0};
    const graph_value v = graph_input(g->g, "constant", types[type], rank, d);
    graph_constant *c = v ? base_vec_add(&g->heap, &g->constants) : NULL;
    if (!c) return refuse(g, BERYL_NO_MEMORY, "out of host memory", "constant");
    *c = (graph_constant){v, copy, (size_t)bytes};
    return v;
}

beryl_value beryl_graph_state(beryl_graph *g, const char *name, beryl_type type, uint32_t rank,
                              const uint32_t *dims) {
    if (!may_build(g)) return 0;
    if (type != BERYL_TYPE_F32 && type != BERYL_TYPE_I32 && type != BERYL_TYPE_F16 &&
        type != BERYL_TYPE_Q8_0)
        return refuse(g, BERYL_UNSUPPORTED, "a state is F32, I32, F16 or Q8_0", name);
    if (!stored_bytes(g, name, type, rank, dims)) return 0;
    const uint32_t index = store_add_state(&g->store, name ? name : "", types[type], rank, dims, 1);
    return index == UINT32_MAX ? refuse(g, BERYL_NO_MEMORY, "out of host memory", name)
                               : graph_stored(g->g, &g->store, index);
}

void beryl_graph_output(beryl_graph *g, beryl_value value, const char *name) {
    if (!may_build(g)) return;
    if (g->n_output == OUTPUT_MAX) {
        refuse(g, BERYL_UNSUPPORTED, "more than 64 outputs", name);
        return;
    }
    const char *kept = keep_name(g, name);
    if (!kept) return;
    const graph_tensor *t = graph_tensor_at(g->g, value);
    const bool view = value && t->base && t->role == ROLE_INTERMEDIATE;
    const graph_value fetched = view ? graph_copy(g->g, value) : value;
    graph_output(g->g, fetched, kept);
    if (g->g->error.code != BERYL_OK) return;
    g->outputs[g->n_output] = value;
    g->fetched[g->n_output++] = fetched;
}

bool beryl_graph_shape(const beryl_graph *g, beryl_value value, beryl_type *type, uint32_t *rank,
                       beryl_dim *dims) {
    if (!g || !value || value >= g->g->tensors.count) return false;
    const graph_tensor *t = graph_tensor_at(g->g, value);
    for (unsigned i = 0; type && i < TYPE_KNOWN; i++)
        if (types[i] == t->type) *type = (beryl_type)i;
    if (rank) *rank = t->rank;
    for (uint32_t i = 0; dims && i < t->rank; i++) dims[i] = dim_given(t->dim[i]);
    return true;
}

/* ---- operations: the graph's own, where building is allowed ---------------------------------- */

/* As the graph has it, where building is allowed. */
#define CALL(name, params, ...)                              \
    beryl_value beryl_graph_##name params {                  \
        return may_build(g) ? graph_##name(__VA_ARGS__) : 0; \
    }

beryl_value beryl_graph_reshape(beryl_graph *g, beryl_value x, uint32_t rank,
                                const beryl_dim *dims) {
    graph_dim d[GRAPH_RANK_MAX];
    return may_build(g) && copy_dims(g, "reshape", rank, dims, d) ? graph_reshape(g->g, x, rank, d)
                                                                  : 0;
}

beryl_value beryl_graph_cast(beryl_graph *g, beryl_value x, beryl_type type, bool wrap) {
    if (!may_build(g)) return 0;
    if ((unsigned)type >= TYPE_KNOWN) return refuse(g, BERYL_UNSUPPORTED, "no such type", "cast");
    return graph_cast(g->g, x, types[type], wrap);
}

/* ---- reductions ------------------------------------------------------------------------------ */

/* Bits of the axes, of all where none are given; 0: refused. */
static uint32_t axes_of(beryl_graph *g, beryl_value x, const char *name, const uint32_t *axes,
                        uint32_t n) {
    const uint32_t rank = graph_tensor_at(g->g, x)->rank;
    uint32_t bits = n ? 0 : (1u << rank) - 1;
    for (uint32_t i = 0; i < n; i++) {
        if (!axes || axes[i] >= rank || bits >> axes[i] & 1)
            return refuse(g, BERYL_MISUSE, "an axis that x has not, or twice the same", name);
        bits |= 1u << axes[i];
    }
    return bits ? bits : refuse(g, BERYL_MISUSE, "x is a single number", name);
}

/* Without the axes, which have size 1, if they are not to be kept. */
static beryl_value reduced(beryl_graph *g, graph_value v, uint32_t bits, bool keep) {
    for (uint32_t i = GRAPH_RANK_MAX; v && !keep && i-- > 0;)
        if (bits >> i & 1) v = graph_squeeze(g->g, v, i);
    return v;
}

#define REDUCTION(name, made)                                                           \
    beryl_value beryl_graph_##name(beryl_graph *g, beryl_value x, const uint32_t *axes, \
                                   uint32_t n_axes, bool keep) {                        \
        const uint32_t bits = may_build(g) ? axes_of(g, x, #name, axes, n_axes) : 0;    \
        return bits ? reduced(g, made, bits, keep) : 0;                                 \
    }
REDUCTION(sum, graph_reduce(g->g, OP_SUM, x, bits, 0))
REDUCTION(mean, graph_reduce(g->g, OP_MEAN, x, bits, 0))
REDUCTION(prod, graph_reduce(g->g, OP_PROD, x, bits, 0))
REDUCTION(amax, graph_reduce(g->g, OP_AMAX, x, bits, 0))
REDUCTION(amin, graph_reduce(g->g, OP_AMIN, x, bits, 0))
REDUCTION(any, graph_reduce(g->g, OP_ANY, x, bits, 0))
REDUCTION(all, graph_reduce(g->g, OP_ALL, x, bits, 0))
REDUCTION(norm, graph_norm(g->g, x, bits))
REDUCTION(logsumexp, graph_logsumexp(g->g, x, bits))

#define DEVIATION(name)                                                                    \
    beryl_value beryl_graph_##name(beryl_graph *g, beryl_value x, const uint32_t *axes,    \
                                   uint32_t n_axes, uint32_t correction, bool keep) {      \
        const uint32_t bits = may_build(g) ? axes_of(g, x, #name, axes, n_axes) : 0;       \
        return bits ? reduced(g, graph_##name(g->g, x, bits, correction), bits, keep) : 0; \
    }
DEVIATION(var)
DEVIATION(std)

beryl_value beryl_graph_log_softmax(beryl_graph *g, beryl_value x, uint32_t axis) {
    if (!may_build(g) || !axes_of(g, x, "log_softmax", &axis, 1)) return 0;
    return graph_log_softmax(g->g, x, axis);
}

beryl_value beryl_graph_l2_norm(beryl_graph *g, beryl_value x, uint32_t axis, float eps) {
    if (!may_build(g) || !axes_of(g, x, "l2_norm", &axis, 1)) return 0;
    return graph_l2_norm(g->g, x, axis, eps);
}

beryl_value beryl_graph_argmax(beryl_graph *g, beryl_value x, uint32_t axis, bool keep) {
    if (!may_build(g)) return 0;
    return reduced(g, graph_arg(g->g, x, axis, true), 1u << axis % 32, keep);
}

beryl_value beryl_graph_argmin(beryl_graph *g, beryl_value x, uint32_t axis, bool keep) {
    if (!may_build(g)) return 0;
    return reduced(g, graph_arg(g->g, x, axis, false), 1u << axis % 32, keep);
}

/* ---- rows in order --------------------------------------------------------------------------- */

beryl_value beryl_graph_sort(beryl_graph *g, beryl_value x, uint32_t axis, bool descending,
                             beryl_value *indices) {
    graph_value other = 0;
    const beryl_value values = may_build(g) ? graph_sort(g->g, x, axis, descending, &other) : 0;
    if (indices) *indices = other;
    return values;
}

beryl_value beryl_graph_argsort(beryl_graph *g, beryl_value x, uint32_t axis, bool descending) {
    beryl_value indices;
    beryl_graph_sort(g, x, axis, descending, &indices);
    return indices;
}

beryl_value beryl_graph_topk(beryl_graph *g, beryl_value x, uint32_t k, uint32_t axis,
                             beryl_value *indices) {
    graph_value other = 0;
    const beryl_value values = may_build(g) ? graph_topk_along(g->g, x, k, axis, &other) : 0;
    if (indices) *indices = other;
    return values;
}

beryl_value beryl_graph_permute(beryl_graph *g, beryl_value x, uint32_t rank,
                                const uint32_t *axes) {
    if (may_build(g) && rank && !axes)
        return refuse(g, BERYL_MISUSE, "no axes are given", "permute");
    return may_build(g) ? graph_permute(g->g, x, rank, axes) : 0;
}

beryl_value beryl_graph_expand(beryl_graph *g, beryl_value x, uint32_t rank,
                               const beryl_dim *dims) {
    graph_dim d[GRAPH_RANK_MAX];
    return may_build(g) && copy_dims(g, "expand", rank, dims, d) ? graph_expand(g->g, x, rank, d)
                                                                 : 0;
}

CALL(narrow,
     (beryl_graph * g, beryl_value x, uint32_t axis, uint32_t start, uint32_t size, uint32_t step),
     g->g, x, axis, start, size, step)

void beryl_graph_split(beryl_graph *g, beryl_value x, uint32_t axis, uint32_t n,
                       beryl_value *parts) {
    for (uint32_t i = 0; parts && i < n; i++) parts[i] = 0;
    if (!may_build(g)) return;
    if (parts) graph_split(g->g, x, axis, n, parts);
    else refuse(g, BERYL_MISUSE, "no place for the parts", "split");
}

CALL(flip, (beryl_graph * g, beryl_value x, uint32_t axis), g->g, x, axis)
CALL(diagonal, (beryl_graph * g, beryl_value x, uint32_t axis, uint32_t other), g->g, x, axis,
     other)

beryl_value beryl_graph_attention(beryl_graph *g, beryl_value q, beryl_value k, beryl_value v,
                                  beryl_value slot, beryl_value pos, float scale, uint32_t window) {
    return may_build(g) ? graph_attention(g->g, q, k, v, slot, pos, scale, window) : 0;
}

beryl_value beryl_graph_attention_range(beryl_graph *g, beryl_value q, beryl_value k, beryl_value v,
                                        beryl_value slot, beryl_value first, beryl_value last,
                                        float scale) {
    return may_build(g) ? graph_attention_range(g->g, q, k, v, slot, first, last, scale) : 0;
}

CALL(windows, (beryl_graph * g, beryl_value x, uint32_t axis, uint32_t size, uint32_t step), g->g,
     x, axis, size, step)
CALL(squeeze, (beryl_graph * g, beryl_value x, uint32_t axis), g->g, x, axis)
CALL(unsqueeze, (beryl_graph * g, beryl_value x, uint32_t axis), g->g, x, axis)

static bool are_given(beryl_graph *g, const char *what, uint32_t n, const beryl_value *x) {
    return may_build(g) && (x || refuse(g, BERYL_MISUSE, n ? "no values" : "of nothing", what));
}

beryl_value beryl_graph_concat(beryl_graph *g, uint32_t n, const beryl_value *x, uint32_t axis) {
    return are_given(g, "concat", n, x) ? graph_concat(g->g, n, x, axis) : 0;
}

beryl_value beryl_graph_stack(beryl_graph *g, uint32_t n, const beryl_value *x, uint32_t axis) {
    return are_given(g, "stack", n, x) ? graph_stack(g->g, n, x, axis) : 0;
}

CALL(roll, (beryl_graph * g, beryl_value x, uint32_t axis, uint32_t by), g->g, x, axis, by)
CALL(tile, (beryl_graph * g, beryl_value x, uint32_t axis, uint32_t times), g->g, x, axis, times)
CALL(repeat, (beryl_graph * g, beryl_value x, uint32_t axis, uint32_t times), g->g, x, axis, times)

/* ---- Fourier transforms ---------------------------------------------------------------------- */

CALL(fft, (beryl_graph * g, beryl_value x, uint32_t axis, bool inverse, beryl_fft_norm norm), g->g,
     x, axis, inverse, (graph_fft_norm)norm)
CALL(rfft, (beryl_graph * g, beryl_value x, uint32_t axis, beryl_fft_norm norm), g->g, x, axis,
     (graph_fft_norm)norm)
CALL(irfft, (beryl_graph * g, beryl_value x, uint32_t axis, uint32_t n, beryl_fft_norm norm), g->g,
     x, axis, n, (graph_fft_norm)norm)
CALL(hann, (beryl_graph * g, uint32_t size), g->g, size)
CALL(stft, (beryl_graph * g, beryl_value x, beryl_value window, uint32_t size, uint32_t step), g->g,
     x, window, size, step)
CALL(istft, (beryl_graph * g, beryl_value x, beryl_value window, uint32_t size, uint32_t step),
     g->g, x, window, size, step)
CALL(welch,
     (beryl_graph * g, beryl_value x, beryl_value window, uint32_t size, uint32_t step, float rate),
     g->g, x, window, size, step, rate)

beryl_value beryl_graph_peaks(beryl_graph *g, beryl_value x, uint32_t k, beryl_value *indices) {
    graph_value places = 0;
    const graph_value v = may_build(g) ? graph_peaks(g->g, x, k, &places) : 0;
    if (indices) *indices = places;
    return v;
}

/* ---- neighbours ------------------------------------------------------------------------------ */

CALL(pairwise_distance, (beryl_graph * g, beryl_value a, beryl_value b, beryl_distance kind), g->g,
     a, b, (graph_distance)kind)

beryl_value beryl_graph_knn(beryl_graph *g, beryl_value x, beryl_value queries, uint32_t k,
                            beryl_distance kind, beryl_value *indices) {
    graph_value places = 0;
    const graph_value v =
        may_build(g) ? graph_knn(g->g, x, queries, k, (graph_distance)kind, &places) : 0;
    if (indices) *indices = places;
    return v;
}

CALL(umap_weights, (beryl_graph * g, beryl_value distances, beryl_value indices), g->g, distances,
     indices)

/* ---- random numbers -------------------------------------------------------------------------- */

CALL(key, (beryl_graph * g, uint64_t seed), g->g, seed)

/* false: refused. */
static bool may_draw(beryl_graph *g, const char *name, beryl_type type, uint32_t rank,
                     const beryl_dim *dims, graph_dim *to) {
    if (!may_build(g)) return false;
    if ((unsigned)type >= TYPE_KNOWN) return refuse(g, BERYL_UNSUPPORTED, "no such type", name);
    return copy_dims(g, name, rank, dims, to);
}

/* The call `made` of the graph, whose shape is d. */
#define RANDOM(name, type, made)           \
    graph_dim d[GRAPH_RANK_MAX];           \
    const graph_draw draw = {key, stream}; \
    return may_draw(g, name, type, rank, dims, d) ? made : 0;

beryl_value beryl_graph_random_bits(beryl_graph *g, beryl_value key, uint32_t stream, uint32_t rank,
                                    const beryl_dim *dims){
    RANDOM("random_bits", BERYL_TYPE_U32, graph_random_bits(g->g, draw, rank, d))}

beryl_value
    beryl_graph_random_uniform(beryl_graph *g, beryl_value key, uint32_t stream, beryl_type type,
                               float low, float high, uint32_t rank, const beryl_dim *dims){
        RANDOM("random_uniform", type,
               graph_random_uniform(g->g, draw, types[type], low, high, rank, d))}

beryl_value
    beryl_graph_random_normal(beryl_graph *g, beryl_value key, uint32_t stream, beryl_type type,
                              float mean, float deviation, uint32_t rank, const beryl_dim *dims){
        RANDOM("random_normal", type,
               graph_random_normal(g->g, draw, types[type], mean, deviation, rank, d))}

beryl_value beryl_graph_bernoulli(beryl_graph *g, beryl_value key, uint32_t stream, float chance,
                                  uint32_t rank, const beryl_dim *dims){
    RANDOM("bernoulli", BERYL_TYPE_BOOL, graph_bernoulli(g->g, draw, chance, rank, d))}

beryl_value
    beryl_graph_categorical(beryl_graph *g, beryl_value key, uint32_t stream, beryl_value logits) {
    return may_build(g) ? graph_categorical(g->g, (graph_draw){key, stream}, logits) : 0;
}

#define FIRST_WEIGHTS(name, xavier, normal)                                                  \
    beryl_value beryl_graph_##name(beryl_graph *g, beryl_value key, uint32_t stream,         \
                                   beryl_type type, float gain, uint32_t rank,               \
                                   const beryl_dim *dims) {                                  \
        RANDOM(#name, type,                                                                  \
               graph_random_weights(g->g, draw, types[type], xavier, normal, gain, rank, d)) \
    }
FIRST_WEIGHTS(xavier_uniform, true, false)
FIRST_WEIGHTS(xavier_normal, true, true)
FIRST_WEIGHTS(kaiming_uniform, false, false)
FIRST_WEIGHTS(kaiming_normal, false, true)
/* ---- by index -------------------------------------------------------------------------------- */

beryl_value beryl_graph_index_select(beryl_graph *g, beryl_value x, beryl_value ids,
                                     uint32_t axis) {
    return may_build(g) ? graph_index_select(g->g, x, ids, axis) : 0;
}

beryl_value beryl_graph_index_add(beryl_graph *g, beryl_value x, beryl_value ids,
                                  beryl_value updates, uint32_t axis) {
    return may_build(g) ? graph_index_add(g->g, x, ids, updates, axis) : 0;
}

beryl_value beryl_graph_masked_fill(beryl_graph *g, beryl_value x, beryl_value mask, float value) {
    return may_build(g) ? graph_masked_fill(g->g, x, mask, value) : 0;
}

beryl_value beryl_graph_nonzero(beryl_graph *g, beryl_value x, beryl_value *count) {
    graph_value n = 0;
    const beryl_value list = may_build(g) ? graph_nonzero(g->g, x, &n) : 0;
    if (count) *count = n;
    return list;
}

/* ---- products -------------------------------------------------------------------------------- */

beryl_value beryl_graph_matmul(beryl_graph *g, beryl_value a, beryl_value b, bool transpose_a,
                               bool transpose_b) {
    return may_build(g) ? graph_matmul(g->g, a, b, transpose_a, transpose_b) : 0;
}

beryl_value beryl_graph_einsum(beryl_graph *g, const char *letters, uint32_t n,
                               const beryl_value *x) {
    if (!are_given(g, "einsum", n, x)) return 0;
    return letters ? graph_einsum(g->g, letters, n, x)
                   : refuse(g, BERYL_MISUSE, "no letters", "einsum");
}

/* false: refused. */
static bool windows_of(beryl_graph *g, const char *what, uint32_t n_axis, const beryl_window *from,
                       graph_window to[3]) {
    if (!may_build(g)) return false;
    if (!n_axis || n_axis > 3 || !from)
        return refuse(g, BERYL_MISUSE, "windows along 1 to 3 axes", what);
    for (uint32_t i = 0; i < n_axis; i++)
        to[i] = (graph_window){from[i].size, from[i].step, from[i].apart, from[i].before,
                               from[i].after};
    return true;
}

beryl_value beryl_graph_conv(beryl_graph *g, beryl_value x, beryl_value weight, uint32_t n_axis,
                             const beryl_window *windows, uint32_t groups) {
    graph_window w[3];
    return windows_of(g, "conv", n_axis, windows, w)
               ? graph_conv(g->g, x, weight, n_axis, w, groups)
               : 0;
}

beryl_value beryl_graph_max_pool(beryl_graph *g, beryl_value x, uint32_t n_axis,
                                 const beryl_window *windows) {
    graph_window w[3];
    return windows_of(g, "max_pool", n_axis, windows, w) ? graph_max_pool(g->g, x, n_axis, w) : 0;
}

beryl_value beryl_graph_avg_pool(beryl_graph *g, beryl_value x, uint32_t n_axis,
                                 const beryl_window *windows) {
    graph_window w[3];
    return windows_of(g, "avg_pool", n_axis, windows, w) ? graph_avg_pool(g->g, x, n_axis, w) : 0;
}

beryl_value beryl_graph_conv_transpose(beryl_graph *g, beryl_value x, beryl_value weight,
                                       uint32_t n_axis, const beryl_window *windows,
                                       const uint32_t *more, uint32_t groups) {
    graph_window w[3];
    return windows_of(g, "conv_transpose", n_axis, windows, w)
               ? graph_conv_transpose(g->g, x, weight, n_axis, w, more, groups)
               : 0;
}

beryl_value beryl_graph_im2col(beryl_graph *g, beryl_value x, uint32_t n_axis,
                               const beryl_window *windows) {
    graph_window w[3];
    return windows_of(g, "im2col", n_axis, windows, w) ? graph_im2col(g->g, x, n_axis, w) : 0;
}

beryl_value beryl_graph_pool(beryl_graph *g, beryl_value x, uint32_t n_axis,
                             const beryl_window *windows, const beryl_pool *how) {
    graph_window w[3];
    return windows_of(g, "pool", n_axis, windows, w)
               ? graph_pool(g->g, x, n_axis, w,
                            how ? (graph_pool_how){how->mean, how->partial, how->inside}
                                : (graph_pool_how){0})
               : 0;
}

beryl_value beryl_graph_adaptive_avg_pool(beryl_graph *g, beryl_value x, uint32_t n_axis,
                                          const uint32_t *sizes) {
    if (!may_build(g)) return 0;
    return sizes ? graph_adaptive_avg_pool(g->g, x, n_axis, sizes)
                 : refuse(g, BERYL_MISUSE, "no sizes", "adaptive_avg_pool");
}

/* ---- norms, gates, scans --------------------------------------------------------------------- */

beryl_value beryl_graph_batch_norm(beryl_graph *g, beryl_value x, beryl_value mean,
                                   beryl_value variance, beryl_value weight, beryl_value bias,
                                   float eps) {
    return may_build(g) ? graph_batch_norm(g->g, x, mean, variance, weight, bias, eps) : 0;
}

beryl_value beryl_graph_batch_norm_training(beryl_graph *g, beryl_value x, beryl_value weight,
                                            beryl_value bias, float eps, beryl_value *mean,
                                            beryl_value *variance) {
    beryl_value made[2];
    return may_build(g)
               ? graph_batch_norm_training(g->g, x, weight, bias, eps, mean ? mean : &made[0],
                                           variance ? variance : &made[1])
               : 0;
}

beryl_value beryl_graph_gated(beryl_graph *g, beryl_value x, uint32_t axis, beryl_gate gate) {
    static const base_op ops[] = {OP_GLU, OP_SWIGLU, OP_GEGLU, OP_QUICK_GEGLU};
    if (!may_build(g)) return 0;
    return (uint32_t)gate < sizeof ops / sizeof *ops ? graph_gated(g->g, x, axis, ops[gate])
                                                     : refuse(g, BERYL_MISUSE, "no gate", "gated");
}

beryl_value beryl_graph_sum_of_squares(beryl_graph *g, uint32_t n, const beryl_value *x) {
    return are_given(g, "sum_of_squares", n, x) ? graph_sum_of_squares(g->g, n, x) : 0;
}

beryl_value beryl_graph_softmax_along(beryl_graph *g, beryl_value x, uint32_t axis) {
    return may_build(g) ? graph_softmax_along(g->g, x, axis) : 0;
}

beryl_value beryl_graph_scan(beryl_graph *g, beryl_value x, uint32_t axis, beryl_scan scan,
                             bool exclusive, bool backwards) {
    static const base_op ops[] = {OP_CUMSUM, OP_CUMPROD, OP_CUMMAX, OP_CUMMIN};
    if (!may_build(g)) return 0;
    return (uint32_t)scan < sizeof ops / sizeof *ops
               ? graph_scan(g->g, x, axis, ops[scan], exclusive, backwards)
               : refuse(g, BERYL_MISUSE, "no scan", "scan");
}

/* ---- sequences ------------------------------------------------------------------------------- */

beryl_value beryl_graph_sdpa(beryl_graph *g, beryl_value q, beryl_value k, beryl_value v,
                             beryl_value mask, const beryl_sdpa *how) {
    if (!may_build(g)) return 0;
    const beryl_sdpa h = how ? *how : (beryl_sdpa){0};
    return graph_attend(g->g, q, k, v, mask,
                        &(graph_sdpa){h.scale, h.cap, h.causal, h.window, h.first});
}

beryl_value beryl_graph_local_attention(beryl_graph *g, beryl_value q, beryl_value k, beryl_value v,
                                        beryl_value far, uint32_t window, float scale, float cap) {
    return may_build(g) ? graph_local_attention(g->g, q, k, v, far, window, scale, cap) : 0;
}

beryl_value beryl_graph_rotate(beryl_graph *g, beryl_value x, uint32_t n,
                               const beryl_value *cosines, const beryl_value *sines, bool pairs) {
    return are_given(g, "rotate", n, cosines) && are_given(g, "rotate", n, sines)
               ? graph_rotate(g->g, x, n, cosines, sines, pairs)
               : 0;
}

#define DEFINE_USUAL(NAME, name, most, in, attrs, names)                                         \
    beryl_value beryl_graph_##name(beryl_graph *g OP_INPUTS_##most in OP_PARAMS_##attrs names) { \
        return may_build(g) ? graph_op(g->g, OP_##NAME, (graph_value[]){OP_LIST in},             \
                                       (graph_attrs){.name = {OP_NAMES_##attrs names}})          \
                            : 0;                                                                 \
    }
#define DEFINE_INNER(...)
#define DEFINE_OWN(...)
#define DEFINE_NONE(...)
#define X(NAME, name, group, least, most, in, letters, out, attrs, names, values, call, ...) \
    DEFINE_##call(NAME, name, most, in, attrs, names)
BASE_OP_LIST(X)
#undef X

/* ---- compiling ------------------------------------------------------------------------------- */

graph_exec_options engine_graph_options(beryl_precision precision) {
    return (graph_exec_options){.exact = precision == BERYL_PRECISION_EXACT};
}

static beryl_status compile_begin(beryl_graph *g, beryl_error *error) {
    beryl_status status = graph_status(g->g, error);
    if (status != BERYL_OK) return status;
    if (!g->n_output) return base_fail(error, BERYL_MISUSE, "graph: nothing is an output");
    g->store.sources = g->sources.data;
    g->store.n_source = (uint32_t)g->sources.count;
    status = store_layout(&g->store, g->memory, error);
    if (status == BERYL_OK) status = store_make(&g->store, error);
    const graph_exec_options options = engine_graph_options(g->precision);
    return status == BERYL_OK ? graph_exec_open(g->g, &g->store, &options, &g->exec, error)
                              : status;
}

beryl_status beryl_graph_compile(beryl_graph *g, beryl_error *error) {
    if (!g) return base_fail(error, BERYL_MISUSE, "beryl_graph_compile needs a graph");
    beryl_error why = {0};
    beryl_status status = BERYL_OK;
    if (g->stage == STAGE_FAILED) {
        if (error) *error = g->failure;
        return g->failure.code;
    }
    if (g->stage == STAGE_BUILD) {
        status = compile_begin(g, &why);
        if (status == BERYL_OK) g->stage = STAGE_UPLOAD;
    }
    if (g->stage == STAGE_UPLOAD) {
        status = store_upload_step(&g->store, &why);
        if (status == BERYL_OK) g->stage = STAGE_PROGRAMS;
        if (status == BERYL_EVENT) return BERYL_PENDING;
    }
    if (g->stage == STAGE_PROGRAMS) {
        status = graph_exec_ready(g->exec, &why);
        for (size_t i = 0; status == BERYL_OK && i < g->constants.count; i++) {
            const graph_constant *c = &g->constants.data[i];
            void *to = graph_exec_input(g->exec, c->input); /* NULL: nothing reads it */
            if (to) memcpy(to, c->data, c->size);
        }
        if (status == BERYL_OK) g->stage = STAGE_READY;
    }
    if (status == BERYL_PENDING && g->device) {
        device_ticket done;
        const beryl_status polled = device_poll(g->device, &done, &why);
        if (polled != BERYL_OK) status = polled;
    }
    if (status == BERYL_OK || status == BERYL_PENDING) return status;
    g->stage = STAGE_FAILED;
    g->failure = why;
    if (error) *error = why;
    return status;
}

/* ---- running --------------------------------------------------------------------------------- */

static beryl_status check_ready(const beryl_graph *g, const char *call, beryl_error *error) {
    return g && g->stage == STAGE_READY
               ? BERYL_OK
               : base_fail(error, BERYL_MISUSE, "%s needs a compiled graph", call);
}

beryl_status beryl_graph_set(beryl_graph *g, beryl_value input, const void *data, size_t size,
                             beryl_error *error) {
    beryl_status status = check_ready(g, "beryl_graph_set", error);
    if (status != BERYL_OK) return status;
    void *to =
        input && input < g->g->tensors.count && graph_tensor_at(g->g, input)->role == ROLE_INPUT
            ? graph_exec_input(g->exec, input)
            : NULL;
    if (!to) return base_fail(error, BERYL_MISUSE, "value %u is no input of this graph", input);
    const graph_tensor *t = graph_tensor_at(g->g, input);
    const uint64_t most = graph_element_bound(t) * base_type_block_bytes(t->type);
    if (size > most || (!data && size))
        return base_fail(error, BERYL_MISUSE, "input '%s' has %llu bytes, %zu were given", t->name,
                         (unsigned long long)most, data ? size : 0);
    if (size) memcpy(to, data, size);
    return BERYL_OK;
}

beryl_status beryl_graph_run(beryl_graph *g, const uint32_t *extents, uint32_t n_extent,
                             beryl_error *error) {
    beryl_status status = check_ready(g, "beryl_graph_run", error);
    if (status != BERYL_OK) return status;
    uint32_t values[GRAPH_EXTENT_MAX + 1] = {0}, n_given = 0;
    for (uint32_t i = 1; i <= g->g->n_extent; i++)
        if (!g->g->extents[i].divisor && n_given++ < n_extent && extents)
            values[i] = extents[n_given - 1];
    if (n_extent != n_given || (n_extent && !extents))
        return base_fail(error, BERYL_MISUSE, "beryl_graph_run: %u extents for a graph of %u",
                         n_extent, n_given);
    status = graph_extent_values(g->g, values, values, error);
    if (status != BERYL_OK) return status;
    device_ticket ticket = 0, done;
    status = graph_exec_submit(g->exec, values, g->fetched, g->n_output, &ticket, error);
    if (status == BERYL_PENDING && g->device &&
        device_poll(g->device, &done, error) == BERYL_DEVICE_LOST)
        return BERYL_DEVICE_LOST;
    if (status != BERYL_OK) return status;
    if (g->device && g->ticket) device_fetch_drop(g->device, g->ticket);
    g->ticket = ticket;
    memcpy(g->extents, values, sizeof values);
    return BERYL_OK;
}

beryl_status beryl_graph_wait(beryl_graph *g, beryl_error *error) {
    beryl_status status = check_ready(g, "beryl_graph_wait", error);
    if (status != BERYL_OK) return status;
    if (!g->ticket) return base_fail(error, BERYL_MISUSE, "beryl_graph_wait: nothing runs");
    return g->device ? device_wait(g->device, g->ticket, error) : BERYL_OK;
}

beryl_status beryl_graph_read(beryl_graph *g, beryl_value output, void *data, size_t size,
                              beryl_error *error) {
    beryl_status status = check_ready(g, "beryl_graph_read", error);
    if (status != BERYL_OK) return status;
    uint32_t n = 0;
    while (n < g->n_output && g->outputs[n] != output) n++;
    if (n == g->n_output || !g->ticket || (!data && size))
        return base_fail(error, BERYL_MISUSE, "value %u is no output of a run", output);
    const graph_tensor *t = graph_tensor_at(g->g, g->fetched[n]);
    const uint64_t most =
        (t->rank ? (uint64_t)graph_dim_value(t->dim[0], g->extents) * t->stride[0] : 1) *
        base_type_block_bytes(t->type);
    if (size > most)
        return base_fail(error, BERYL_MISUSE, "output '%s' has %llu bytes, not %zu", t->name,
                         (unsigned long long)most, size);
    device_ticket done = g->ticket;
    if (g->device) status = device_poll(g->device, &done, error);
    if (status != BERYL_OK) return status;
    if (done < g->ticket) return BERYL_PENDING;
    const void *from;
    status = graph_exec_fetched(g->exec, g->ticket, n, &from, error);
    if (status == BERYL_OK && size) memcpy(data, from, size);
    return status;
}

/* ---- in one call ----------------------------------------------------------------------------- */

#ifdef __wasm__
enum { MAY_SLEEP = false };
#else
enum { MAY_SLEEP = true };
#endif

static bool is_output(const beryl_graph *g, beryl_value value) {
    for (uint32_t i = 0; i < g->n_output; i++)
        if (g->outputs[i] == value) return true;
    return false;
}

/* What no operation made is read as a copy. */
static void output_to_eval(beryl_graph *g, beryl_value value) {
    if (g->n_output == OUTPUT_MAX || graph_tensor_at(g->g, value)->role == ROLE_INTERMEDIATE) {
        beryl_graph_output(g, value, "value");
        return;
    }
    const graph_value copy = graph_copy(g->g, value);
    graph_output(g->g, copy, "value");
    if (g->g->error.code != BERYL_OK) return;
    g->outputs[g->n_output] = value;
    g->fetched[g->n_output++] = copy;
}

beryl_status beryl_graph_eval(beryl_graph *g, beryl_value value, void *data, size_t size,
                              beryl_error *error) {
    if (!g) return base_fail(error, BERYL_MISUSE, "beryl_graph_eval needs a graph");
    if (may_build(g) && !is_output(g, value)) output_to_eval(g, value);
    beryl_status status = BERYL_OK;
    if (!g->evaluated) {
        while ((status = beryl_graph_compile(g, error)) == BERYL_PENDING && MAY_SLEEP)
            base_sleep(1e-4);
        if (status != BERYL_OK) return status;
        while ((status = beryl_graph_run(g, NULL, 0, error)) == BERYL_PENDING && MAY_SLEEP)
            base_sleep(1e-4);
        if (status != BERYL_OK) return status;
    }
    g->evaluated = true; /* until it is read */
    status = beryl_graph_wait(g, error);
    if (status == BERYL_OK || status == BERYL_PENDING)
        status = beryl_graph_read(g, value, data, size, error);
    if (status != BERYL_PENDING) g->evaluated = false;
    return status;
}
