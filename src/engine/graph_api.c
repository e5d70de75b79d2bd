/* graph_api.c - beryl_graph.h over src/graph: a graph, a store of its own and one plan.
 *
 * Owns the order of things (build, compile, run) and checks what a caller could get wrong;
 * shapes are the graph's business. Outputs are all read back with every run, since they are few. */
#include "engine/graph_api.h"
#include "base/build.h"
#include "base/error.h"
#include "base/file.h"
#include "base/thread.h"
#include "engine/out.h"
#include "graph/build.h"
#include "plan/exec.h"

#include <string.h>

const base_type graph_api_types[TYPE_KNOWN] = {
#define X(name) [BERYL_TYPE_##name] = TYPE_##name,
    BERYL_TYPE_LIST(X)
#undef X
};

/* A weight of n numbers: of graph_constant in graph/graph.h. */
static uint32_t keep_constant(void *context, uint32_t n, const float *numbers) {
    beryl_graph *g = context;
    float *kept = base_arena_take(&g->arena, n, sizeof *kept);
    beryl_value v = 0;
    if (kept) memcpy(kept, numbers, n * sizeof *kept);
    if (kept) v = beryl_graph_weight(g, "", BERYL_TYPE_F32, 1, &n, kept, n * sizeof *kept);
    else if (g->g->error.code == BERYL_OK) base_no_memory(&g->g->error);
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
    if (!g) return base_no_memory(error);
    g->heap = heap;
    base_arena_init(&g->arena, &g->heap);
    g->log = o.log;
    g->precision = o.precision;
    g->memory = o.memory;
    beryl_status status = engine_device_open(&g->heap, &g->log, o.device, &g->device, error);
    if (status == BERYL_OK) status = store_init(&g->store, &g->heap, g->device, NULL, 0, error);
    if (status == BERYL_OK && !(g->g = graph_open(&g->heap))) status = base_no_memory(error);
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
    for (size_t i = 0; BUILD_HAS_ONNX && i < g->sources.count; i++)
        if (g->sources.data[i].close) g->sources.data[i].close(g->sources.data[i].user);
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

bool graph_api_may_build(const beryl_graph *g) {
    return g && g->stage == STAGE_BUILD && g->g->error.code == BERYL_OK;
}

beryl_value graph_api_refuse(beryl_graph *g, beryl_status code, const char *what,
                             const char *name) {
    return graph_refuse(g->g, code, "'%s': %s", name ? name : "", what);
}

/* The graph borrows names. */
static const char *keep_name(beryl_graph *g, const char *name) {
    const char *copy = name ? base_arena_text(&g->arena, name, strlen(name)) : "";
    if (!copy) graph_api_refuse(g, BERYL_NO_MEMORY, "out of host memory", name);
    return copy;
}

bool graph_api_dims(beryl_graph *g, const char *name, uint32_t rank, const beryl_dim *from,
                    graph_dim *to) {
    if (rank > GRAPH_RANK_MAX || (rank && !from))
        return graph_api_refuse(g, BERYL_UNSUPPORTED, "more than 10 dimensions, or none given",
                                name),
               false;
    for (uint32_t i = 0; i < rank; i++) {
        const uint32_t extent = from[i].extent;
        if (extent > g->g->n_extent)
            return graph_api_refuse(g, BERYL_MISUSE, "a dimension with an extent of another graph",
                                    name),
                   false;
        if (extent && from[i].size != g->g->extents[extent].bound && from[i].size)
            return graph_api_refuse(g, BERYL_MISUSE,
                                    "a dimension whose size is not its extent's bound", name),
                   false;
        to[i] = (graph_dim){extent ? g->g->extents[extent].bound : from[i].size, (uint8_t)extent};
    }
    return true;
}

static beryl_dim dim_given(graph_dim d) {
    return (beryl_dim){d.size, d.extent};
}

uint32_t beryl_graph_extent(beryl_graph *g, const char *name, uint32_t bound) {
    if (!graph_api_may_build(g)) return 0;
    const char *kept = keep_name(g, name);
    return kept ? graph_extent_add(g->g, kept, bound) : 0;
}

beryl_dim beryl_graph_dim_sum(beryl_graph *g, beryl_dim a, beryl_dim b) {
    graph_dim d[2];
    return graph_api_may_build(g) && graph_api_dims(g, "sum", 2, (beryl_dim[]){a, b}, d)
               ? dim_given(graph_dim_sum(g->g, d[0], d[1]))
               : (beryl_dim){0, 0};
}

beryl_dim beryl_graph_dim_product(beryl_graph *g, beryl_dim a, beryl_dim b) {
    graph_dim d[2];
    return graph_api_may_build(g) && graph_api_dims(g, "product", 2, (beryl_dim[]){a, b}, d)
               ? dim_given(graph_dim_product(g->g, d[0], d[1]))
               : (beryl_dim){0, 0};
}

beryl_dim beryl_graph_dim_quotient(beryl_graph *g, beryl_dim a, uint32_t divisor) {
    graph_dim d;
    return graph_api_may_build(g) && graph_api_dims(g, "quotient", 1, &a, &d)
               ? dim_given(graph_dim_quotient(g->g, d, divisor))
               : (beryl_dim){0, 0};
}

beryl_value beryl_graph_input(beryl_graph *g, const char *name, beryl_type type, uint32_t rank,
                              const beryl_dim *dims) {
    graph_dim d[GRAPH_RANK_MAX];
    if (!graph_api_may_build(g)) return 0;
    if ((unsigned)type >= TYPE_KNOWN || !graph_type_is_plain(graph_api_types[type]))
        return graph_api_refuse(g, BERYL_UNSUPPORTED, "an input has a plain type, without blocks",
                                name);
    const char *kept = keep_name(g, name);
    return kept && graph_api_dims(g, name, rank, dims, d)
               ? graph_input(g->g, kept, graph_api_types[type], rank, d)
               : 0;
}

/* Bytes of a stored tensor; 0: the shape is refused. */
static uint64_t stored_bytes(beryl_graph *g, const char *name, beryl_type type, uint32_t rank,
                             const uint32_t *dims) {
    if ((unsigned)type >= TYPE_KNOWN)
        return graph_api_refuse(g, BERYL_UNSUPPORTED, "no such type", name);
    const bool plain = graph_type_is_plain(graph_api_types[type]);
    if (rank < 1 || rank > (plain ? STORE_RANK_MAX : QUANTISED_RANK_MAX) || !dims)
        return graph_api_refuse(g, BERYL_UNSUPPORTED,
                                "weights and states have 1 to 10 dimensions, in blocks 1 to 4",
                                name);
    uint64_t bytes = base_type_row_bytes(graph_api_types[type], dims[rank - 1]);
    if (!bytes)
        return graph_api_refuse(
            g, BERYL_MISUSE, "the last dimension is not in whole blocks of the type, or 0", name);
    uint64_t rows = 1;
    for (uint32_t i = 0; i + 1 < rank; i++) {
        rows *= dims[i];
        if (!rows || rows > INT32_MAX)
            return graph_api_refuse(g, BERYL_MISUSE, "a dimension of 0, or more than 2^31 rows",
                                    name);
    }
    if (bytes > (UINT64_C(1) << 48) / rows)
        return graph_api_refuse(g, BERYL_MISUSE, "more bytes than there can be", name);
    bytes *= rows;
    return bytes;
}

beryl_value beryl_graph_weight(beryl_graph *g, const char *name, beryl_type type, uint32_t rank,
                               const uint32_t *dims, const void *data, size_t size) {
    if (!graph_api_may_build(g)) return 0;
    const uint64_t bytes = stored_bytes(g, name, type, rank, dims);
    if (!bytes) return 0;
    if (!data || size != bytes)
        return graph_api_refuse(g, BERYL_MISUSE, "the data are not as long as type and shape say",
                                name);
    beryl_source *source = base_vec_add(&g->heap, &g->sources);
    if (!source) return graph_api_refuse(g, BERYL_NO_MEMORY, "out of host memory", name);
    *source = base_source_of_memory(data, size);
    const uint32_t file = (uint32_t)(g->sources.count - 1);
    const uint32_t index = store_add_weight(&g->store, name ? name : "", graph_api_types[type],
                                            rank, dims, 0, file, 0, false);
    return index == UINT32_MAX ? graph_api_refuse(g, BERYL_NO_MEMORY, "out of host memory", name)
                               : graph_stored(g->g, &g->store, index);
}

beryl_value beryl_graph_constant(beryl_graph *g, beryl_type type, uint32_t rank,
                                 const uint32_t *dims, const void *data) {
    static const uint32_t one = 1;
    if (!graph_api_may_build(g)) return 0;
    if ((unsigned)type >= TYPE_KNOWN || !graph_type_is_plain(graph_api_types[type]))
        return graph_api_refuse(g, BERYL_UNSUPPORTED, "has a plain type, without blocks",
                                "constant");
    const uint64_t bytes = stored_bytes(g, "constant", type, rank ? rank : 1, rank ? dims : &one);
    if (!bytes) return 0;
    if (!data) return graph_api_refuse(g, BERYL_MISUSE, "no data", "constant");
    void *copy = base_arena_take(&g->arena, 1, (size_t)bytes);
    if (!copy) return graph_api_refuse(g, BERYL_NO_MEMORY, "out of host memory", "constant");
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
    const graph_value v = graph_input(g->g, "constant", graph_api_types[type], rank, d);
    api_constant *c = v ? base_vec_add(&g->heap, &g->constants) : NULL;
    if (!c) return graph_api_refuse(g, BERYL_NO_MEMORY, "out of host memory", "constant");
    *c = (api_constant){v, copy, (size_t)bytes};
    return v;
}

beryl_value beryl_graph_state(beryl_graph *g, const char *name, beryl_type type, uint32_t rank,
                              const uint32_t *dims) {
    if (!graph_api_may_build(g)) return 0;
    if (type != BERYL_TYPE_F32 && type != BERYL_TYPE_I32 && type != BERYL_TYPE_I16 &&
        type != BERYL_TYPE_F16 && type != BERYL_TYPE_Q8_0)
        return graph_api_refuse(g, BERYL_UNSUPPORTED, "a state is F32, I32, I16, F16 or Q8_0",
                                name);
    if (!stored_bytes(g, name, type, rank, dims)) return 0;
    const uint32_t index =
        store_add_state(&g->store, name ? name : "", graph_api_types[type], rank, dims, 1);
    return index == UINT32_MAX ? graph_api_refuse(g, BERYL_NO_MEMORY, "out of host memory", name)
                               : graph_stored(g->g, &g->store, index);
}

/* The tensor that a run makes and whose bytes are the value's; 0: there is none. */
static graph_value made_as(const graph *g, graph_value value) {
    const graph_value of = graph_base_of(g, value);
    const graph_tensor *t = graph_tensor_at(g, value), *made = graph_tensor_at(g, of);
    if (made->role != ROLE_INTERMEDIATE) return 0;
    bool same = of == value || (!t->offset && t->type == made->type && graph_is_contiguous(t) &&
                                graph_element_bound(t) == graph_element_bound(made));
    for (uint32_t i = 0; of != value && i < t->rank; i++) same = same && !t->dim[i].extent;
    return same ? of : 0;
}

void beryl_graph_output(beryl_graph *g, beryl_value value, const char *name) {
    if (!graph_api_may_build(g)) return;
    if (g->n_output == OUTPUT_MAX) {
        graph_api_refuse(g, BERYL_UNSUPPORTED, "more than 64 outputs", name);
        return;
    }
    const char *kept = keep_name(g, name);
    if (!kept) return;
    graph_value fetched = value ? made_as(g->g, value) : 0;
    if (value && !fetched) fetched = graph_copy(g->g, value);
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
        if (graph_api_types[i] == t->type) *type = (beryl_type)i;
    if (rank) *rank = t->rank;
    for (uint32_t i = 0; dims && i < t->rank; i++) dims[i] = dim_given(t->dim[i]);
    return true;
}

/* ---- compiling ------------------------------------------------------------------------------- */

graph_exec_options engine_graph_options(beryl_precision precision) {
    return (graph_exec_options){.exact = precision == BERYL_PRECISION_EXACT};
}

beryl_status graph_api_plan(beryl_graph *g, beryl_error *error) {
    beryl_status status = graph_status(g->g, error);
    if (status != BERYL_OK) return status;
    if (!g->n_output) return base_fail(error, BERYL_MISUSE, "graph: nothing is an output");
    g->store.sources = g->sources.data;
    g->store.n_source = (uint32_t)g->sources.count;
    status = store_layout(&g->store, g->memory, error);
    if (status == BERYL_OK) status = store_make(&g->store, error);
    graph_exec_options options = engine_graph_options(g->precision);
    if (!BUILD_IS_MODULE) options.explained = g->explained;
    if (status == BERYL_OK) status = graph_exec_open(g->g, &g->store, &options, &g->exec, error);
    if (status == BERYL_OK) g->stage = STAGE_UPLOAD;
    return status;
}

beryl_status beryl_graph_compile(beryl_graph *g, beryl_error *error) {
    if (!g) return base_fail(error, BERYL_MISUSE, "beryl_graph_compile needs a graph");
    beryl_error why = {0};
    beryl_status status = BERYL_OK;
    if (g->stage == STAGE_FAILED) {
        if (error) *error = g->failure;
        return g->failure.code;
    }
    if (g->stage == STAGE_BUILD) status = graph_api_plan(g, &why);
    if (g->stage == STAGE_UPLOAD) {
        status = store_upload_step(&g->store, &why);
        if (status == BERYL_OK) g->stage = STAGE_PROGRAMS;
        if (status == BERYL_EVENT) return BERYL_PENDING;
    }
    if (g->stage == STAGE_PROGRAMS) {
        status = graph_exec_ready(g->exec, &why);
        for (size_t i = 0; status == BERYL_OK && i < g->constants.count; i++) {
            const api_constant *c = &g->constants.data[i];
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
    graph_value fetched[OUTPUT_MAX];
    uint32_t n_fetched = 0;
    for (uint32_t i = 0; i < g->n_output; i++)
        if (!(g->resident >> i & 1)) fetched[n_fetched++] = g->fetched[i];
    status = graph_exec_submit(g->exec, values, fetched, n_fetched, &ticket, error);
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
    if (n == g->n_output || g->resident >> n & 1 || !g->ticket || (!data && size))
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
    for (uint32_t i = n; i-- > 0;) n -= (uint32_t)(g->resident >> i & 1);
    status = graph_exec_fetched(g->exec, g->ticket, n, &from, error);
    if (status == BERYL_OK && size) memcpy(data, from, size);
    return status;
}

bool beryl_graph_place(beryl_graph *g, beryl_value value, uint64_t *buffer, uint64_t *offset) {
    if (!g || g->stage != STAGE_READY || !g->device || !buffer || !offset) return false;
    uint32_t n = 0;
    while (n < g->n_output && g->outputs[n] != value) n++;
    const bool output = n < g->n_output;
    const graph_value v = output ? g->fetched[n] : value;
    device_buffer lies;
    if (!graph_exec_place(g->exec, v, &lies, offset)) return false;
    *buffer = device_buffer_handle(g->device, lies);
    static const device_submit_desc nothing; /* after it the buffer is made, for others too */
    if (!*buffer || device_submit(g->device, &nothing, NULL, NULL) != BERYL_OK) return false;
    if (output) g->resident |= UINT64_C(1) << n;
    else graph_exec_leave(g->exec, v);
    return true;
}

uint32_t beryl_graph_extent_value(const beryl_graph *g, uint32_t extent) {
    return g && extent <= g->g->n_extent ? g->extents[extent] : 0;
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

beryl_status beryl_graph_eval(beryl_graph *g, beryl_value value, void *data, size_t size,
                              beryl_error *error) {
    if (!g) return base_fail(error, BERYL_MISUSE, "beryl_graph_eval needs a graph");
    if (graph_api_may_build(g) && !is_output(g, value)) beryl_graph_output(g, value, "value");
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
