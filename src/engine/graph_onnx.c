/* graph_onnx.c - beryl_onnx.h over src/onnx: how a file's weights come into a graph's store, and
 * files beside it. Weights of the file are sources of the store where they lie. */
#include "beryl_onnx.h"
#include "base/build.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "engine/graph_api.h"
#include "onnx/onnx.h"

#include <string.h>

typedef struct beside { /* a file beside the model's */
    base_view location;
    uint32_t source;
} beside;

typedef struct importing {
    beryl_graph *g;
    const char *folder;
    base_vec(beside) files;
} importing;

static beryl_type type_given(base_type type) {
    for (unsigned i = 0; i < TYPE_KNOWN; i++)
        if (graph_api_types[i] == type) return (beryl_type)i;
    return BERYL_TYPE_F32;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* The source of a tensor in a file beside, and where in it; UINT32_MAX: the graph has an error. */
static uint32_t source_beside(importing *i, const onnx_tensor *t, uint64_t size) {
    beryl_graph *g = i->g;
    for (size_t k = 0; k < i->files.count; k++)
        if (base_view_equal(i->files.data[k].location, t->location)) {
            const uint32_t at = i->files.data[k].source;
            if (base_range_inside(t->offset, size, g->sources.data[at].size)) return at;
            graph_refuse(g->g, BERYL_BAD_FILE, "weights beyond the end of '%.*s'",
                         (int)t->location.size, t->location.data);
            return UINT32_MAX;
        }
    if (!i->folder) {
        graph_refuse(g->g, BERYL_NOT_FOUND, "weights are in '%.*s', and no folder is given",
                     (int)t->location.size, t->location.data);
        return UINT32_MAX;
    }
    const char *path =
        base_arena_print(&g->arena, "%s/%.*s", i->folder, (int)t->location.size, t->location.data);
    beside *file = path ? base_vec_add(&g->heap, &i->files) : NULL;
    beryl_source *source = file ? base_vec_add(&g->heap, &g->sources) : NULL;
    if (!source) {
        graph_no_memory(g->g);
        return UINT32_MAX;
    }
    beryl_error why = {0};
    if (base_source_open_file(&g->heap, path, source, &why) != BERYL_OK) {
        g->sources.count--;
        i->files.count--;
        graph_refuse(g->g, why.code, "%s", why.message);
        return UINT32_MAX;
    }
    *file = (beside){t->location, (uint32_t)(g->sources.count - 1)};
    return source_beside(i, t, size);
}

static graph_value stored(beryl_graph *g, const onnx_array *a, const char *name, uint64_t offset,
                          uint32_t source) {
    static const uint32_t one = 1;
    const uint32_t index = store_add_weight(&g->store, name, a->type, a->rank ? a->rank : 1,
                                            a->rank ? a->dim : &one, 0, source, offset, false);
    if (index == UINT32_MAX) return graph_no_memory(g->g);
    const graph_value v = graph_stored(g->g, &g->store, index);
    return v && !a->rank ? graph_squeeze(g->g, v, 0) : v;
}

static const void *load(void *context, const onnx_tensor *t, size_t size) {
    importing *i = context;
    beryl_graph *g = i->g;
    const uint32_t at = source_beside(i, t, size);
    if (at == UINT32_MAX) return NULL;
    const beryl_source *source = &g->sources.data[at];
    void *to = base_arena_take(&g->arena, 1, size ? size : 1);
    if (!to) return graph_no_memory(g->g), NULL;
    beryl_status status;
    while ((status = source->read(source->user, t->offset, to, size)) == BERYL_PENDING) {}
    if (status == BERYL_OK) return to;
    graph_refuse(g->g, status, "'%.*s' cannot be read", (int)t->location.size, t->location.data);
    return NULL;
}

/* As weights, where kernels read them as such; others as inputs that are set once. */
static graph_value constant(void *context, const onnx_array *a, const char *name) {
    importing *i = context;
    beryl_graph *g = i->g;
    const uint64_t bytes = onnx_array_count(a) * base_type_block_bytes(a->type);
    const bool whole = a->rank && a->dim[a->rank - 1] % 2 == 0;
    const bool weight = a->type == TYPE_F32 || (a->type == TYPE_F16 && whole);
    if (weight && !a->data) {
        const uint32_t at = source_beside(i, a->from, bytes);
        return at == UINT32_MAX ? 0 : stored(g, a, name, a->from->offset, at);
    }
    const void *data = a->data ? a->data : load(i, a->from, (size_t)bytes);
    if (!data) return 0;
    if (!weight || !a->lasting)
        return beryl_graph_constant(g, type_given(a->type), a->rank, a->dim, data);
    beryl_source *source = base_vec_add(&g->heap, &g->sources);
    if (!source) return graph_no_memory(g->g);
    *source = base_source_of_memory(data, (size_t)bytes);
    return stored(g, a, name, 0, (uint32_t)(g->sources.count - 1));
}

/* ---- the graph ------------------------------------------------------------------------------- */

static beryl_status options_of(const beryl_onnx_options *from, beryl_onnx_options *to,
                               beryl_error *error) {
    static const beryl_onnx_options none = {.size = sizeof none};
    if (!from) from = &none;
    if (from->size < offsetof(beryl_onnx_options, inputs) || from->size > 1 << 16)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_onnx_options.size is %zu: set it to sizeof(beryl_onnx_options)",
                         from->size);
    *to = none;
    memcpy(to, from, from->size < sizeof *to ? from->size : sizeof *to);
    for (size_t i = 0; i < to->n_input; i++) {
        const beryl_onnx_input *x = &to->inputs[i];
        if (!x->name || (unsigned)x->type >= TYPE_KNOWN || x->rank > GRAPH_RANK_MAX ||
            (x->rank && !x->dims))
            return base_fail(error, BERYL_MISUSE, "what is given of input %zu is no tensor", i + 1);
    }
    for (size_t i = 0; i < to->n_extent; i++)
        if (!to->extents[i].name || !to->extents[i].size)
            return base_fail(error, BERYL_MISUSE, "extent %zu has no name or no size", i + 1);
    return BERYL_OK;
}

static void build(importing *i, const onnx_model *model, const beryl_onnx_options *o) {
    beryl_graph *g = i->g;
    onnx_given *given = base_arena_take(&g->arena, o->n_input ? o->n_input : 1, sizeof *given);
    onnx_extent *extents =
        base_arena_take(&g->arena, o->n_extent ? o->n_extent : 1, sizeof *extents);
    onnx_ports *ports = base_arena_take(&g->arena, 1, sizeof *ports);
    if (!given || !extents || !ports) {
        graph_no_memory(g->g);
        return;
    }
    for (size_t k = 0; k < o->n_input; k++) {
        const beryl_onnx_input *x = &o->inputs[k];
        given[k] = (onnx_given){
            x->name, {.type = graph_api_types[x->type], .rank = x->rank, .data = x->data}};
        for (uint32_t d = 0; d < x->rank; d++) given[k].array.dim[d] = x->dims[d];
    }
    for (size_t k = 0; k < o->n_extent; k++)
        extents[k] = (onnx_extent){o->extents[k].name, o->extents[k].size};
    const onnx_options how = {.given = given,
                              .n_given = o->n_input,
                              .extents = extents,
                              .n_extent = o->n_extent,
                              .extent_most = o->extent_bound,
                              .constant = constant,
                              .load = load,
                              .context = i};
    onnx_build(g->g, &g->arena, model, &how, ports);
    for (size_t k = 0; k < ports->n_out && g->g->error.code == BERYL_OK; k++)
        if (ports->out[k].value) beryl_graph_output(g, ports->out[k].value, ports->out[k].name);
    g->ports = ports;
}

beryl_status beryl_graph_from_onnx(beryl_graph *g, const void *data, size_t size,
                                   const beryl_onnx_options *options, beryl_error *error) {
    beryl_onnx_options o;
    onnx_model model;
    if (!BUILD_HAS_ONNX)
        return base_fail(error, BERYL_UNSUPPORTED, "this build reads no ONNX files");
    if (!g || !data || g->stage != STAGE_BUILD || g->ports)
        return base_fail(error, BERYL_MISUSE,
                         "beryl_graph_from_onnx needs a graph that has no model, and a file");
    beryl_status status = graph_status(g->g, error);
    if (status == BERYL_OK) status = options_of(options, &o, error);
    if (status != BERYL_OK) return status;
    beryl_error why = {0};
    status = onnx_model_read(&g->arena, data, size, &model, &why);
    if (status != BERYL_OK) {
        if (g->g->error.code == BERYL_OK) g->g->error = why;
        if (error) *error = why;
        return status;
    }
    importing i = {.g = g, .folder = o.folder};
    build(&i, &model, &o);
    base_vec_fini(&g->heap, &i.files);
    return graph_status(g->g, error);
}

bool beryl_graph_port(const beryl_graph *g, bool output, size_t index, beryl_port *port) {
    if (!g || !g->ports || !port) return false;
    if (index >= (output ? g->ports->n_out : g->ports->n_in)) return false;
    const onnx_port *from = &(output ? g->ports->out : g->ports->in)[index];
    *port = (beryl_port){.name = from->name,
                         .value = from->value,
                         .type = type_given(from->type),
                         .rank = from->rank};
    for (uint32_t i = 0; i < from->rank; i++)
        port->dims[i] = (beryl_dim){from->dim[i].size, from->dim[i].extent};
    return true;
}

/* ---- what a file holds ----------------------------------------------------------------------- */

typedef struct used {
    base_view domain, name;
    uint32_t n;
} used;

typedef struct counting {
    base_heap *heap;
    base_vec(used) ops;
    bool failed;
} counting;

static void count_nodes(counting *c, const onnx_node *nodes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        used *u = NULL;
        for (size_t k = 0; k < c->ops.count && !u; k++)
            if (base_view_equal(c->ops.data[k].name, nodes[i].op) &&
                base_view_equal(c->ops.data[k].domain, nodes[i].domain))
                u = &c->ops.data[k];
        if (!u && (u = base_vec_add(c->heap, &c->ops)))
            *u = (used){nodes[i].domain, nodes[i].op, 0};
        if (u) u->n++;
        c->failed = c->failed || !u;
        for (size_t k = 0; k < nodes[i].n_attribute; k++) {
            const onnx_graph *body = nodes[i].attributes[k].graph;
            if (body) count_nodes(c, body->nodes, body->n_node);
        }
    }
}

static void add_text(base_text *out, const char *key, base_view text) {
    base_text_print(out, "\"%s\":", key);
    base_json_write_string(out, text.data, text.size);
}

static void add_infos(base_text *out, const char *key, const onnx_info *infos, size_t n) {
    base_text_print(out, ",\"%s\":[", key);
    for (size_t i = 0; i < n; i++) {
        base_text_add(out, i ? ",{" : "{", i ? 2 : 1);
        add_text(out, "name", infos[i].name);
        base_text_print(out, ",\"type\":\"%s\",\"shape\":", onnx_kind_name(infos[i].kind));
        base_text_add(out, infos[i].shaped ? "[" : "null", infos[i].shaped ? 1 : 4);
        for (uint32_t d = 0; d < infos[i].rank; d++) {
            if (d) base_text_add(out, ",", 1);
            if (infos[i].dim[d] >= 0) base_text_print(out, "%lld", (long long)infos[i].dim[d]);
            else base_json_write_string(out, infos[i].dim_name[d].data, infos[i].dim_name[d].size);
        }
        if (infos[i].shaped) base_text_add(out, "]", 1);
        base_text_add(out, "}", 1);
    }
    base_text_add(out, "]", 1);
}

static bool is_function(const onnx_model *m, const used *u) {
    for (size_t i = 0; i < m->n_function; i++)
        if (base_view_equal(m->functions[i].name, u->name) &&
            base_view_equal(m->functions[i].domain, u->domain))
            return true;
    return false;
}

static void describe(const onnx_model *m, counting *c, base_text *out) {
    base_text_add(out, "{", 1);
    add_text(out, "producer", m->producer);
    base_text_print(out, ",\"ir_version\":%lld,\"opsets\":[", (long long)m->version);
    for (size_t i = 0; i < m->n_import; i++) {
        base_text_add(out, i ? ",{" : "{", i ? 2 : 1);
        add_text(out, "domain", m->imports[i].domain);
        base_text_print(out, ",\"version\":%lld}", (long long)m->imports[i].version);
    }
    base_text_add(out, "]", 1);
    add_infos(out, "inputs", m->graph->in, m->graph->n_in);
    add_infos(out, "outputs", m->graph->out, m->graph->n_out);
    count_nodes(c, m->graph->nodes, m->graph->n_node);
    for (size_t i = 0; i < m->n_function; i++)
        count_nodes(c, m->functions[i].nodes, m->functions[i].n_node);
    base_text_print(out, ",\"operators\":[");
    for (size_t i = 0; i < c->ops.count; i++) {
        const used *u = &c->ops.data[i];
        const bool known = is_function(m, u) || onnx_operator_is_known(u->domain, u->name);
        base_text_add(out, i ? ",{" : "{", i ? 2 : 1);
        add_text(out, "domain", u->domain);
        base_text_add(out, ",", 1);
        add_text(out, "name", u->name);
        base_text_print(out, ",\"count\":%u,\"supported\":%s}", u->n, known ? "true" : "false");
    }
    base_text_print(out, "]}");
}

beryl_status beryl_onnx_describe(const void *data, size_t size,
                                 void (*write)(void *user, const char *text, size_t size),
                                 void *user, beryl_error *error) {
    if (!BUILD_HAS_ONNX)
        return base_fail(error, BERYL_UNSUPPORTED, "this build reads no ONNX files");
    if (!data || !write)
        return base_fail(error, BERYL_MISUSE, "beryl_onnx_describe needs a file and a function");
    base_heap heap;
    base_arena arena;
    base_text out;
    onnx_model model;
    base_heap_init(&heap, NULL);
    base_arena_init(&arena, &heap);
    base_text_init(&out, &heap);
    counting c = {.heap = &heap};
    beryl_status status = onnx_model_read(&arena, data, size, &model, error);
    if (status == BERYL_OK) {
        describe(&model, &c, &out);
        if (out.failed || c.failed) status = base_no_memory(error);
        else write(user, out.data, out.size);
    }
    base_vec_fini(&heap, &c.ops);
    base_text_fini(&out);
    base_arena_fini(&arena);
    return status;
}
