/* import.c - walks the nodes of a model: scopes of names, constants, what is computed while the
 * graph is built, local functions.
 *
 * Refuses what would build without end: more than NODES_MAX nodes, bodies of loops counted as often
 * as they run. */
#include "base/error.h"
#include "graph/reference.h"
#include "onnx/operators.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    NODES_MAX = 50000,
    ARRAYS_MAX = 1 << 28,      /* bytes of arrays that are made while the graph is built */
    FOLD_MAX = 1 << 16,        /* elements of arrays that go into one call of them, or come out */
    FOLD_INSIDE_MAX = 1 << 20, /* elements of all values of such a call */
    FOLD_GIVEN_MAX = 1 << 9,   /* the same of what the caller gave */
    SCOPES_MAX = 24
};

typedef struct scope {
    struct scope *outer;
    base_map names;
    const onnx_call *caller; /* of a function: where its attributes are */
    const onnx_function *function;
} scope;

struct onnx_import_state {
    graph *g;
    base_arena *arena;
    const onnx_model *model;
    const onnx_options *options;
    scope *scope;
    uint32_t depth;
    base_vec(onnx_value) values;
    base_map readers;      /* of the model's graph: joined.c */
    uint64_t n_node, made; /* bytes of arrays */
};

/* ---- errors ---------------------------------------------------------------------------------- */

graph_value onnx_refuse(onnx_call *c, const char *format, ...) {
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return graph_refuse(c->g, BERYL_UNSUPPORTED, "%s", text);
}

static graph_value refuse(graph *g, const char *what, base_view name) {
    return graph_refuse(g, BERYL_UNSUPPORTED, "%s '%.*s'", what,
                        (int)(name.size < 200 ? name.size : 200), name.data);
}

/* The error of a node, with its name in front. */
static void name_error(graph *g, const onnx_node *node) {
    char text[sizeof g->error.message];
    const char *message = g->error.message;
    if (!strncmp(message, "ONNX node", 9)) return; /* of a node inside */
    if (!strncmp(message, "graph: ", 7)) message += 7;
    snprintf(text, sizeof text, "%s", message);
    const base_view name = node->name.size || !node->n_out ? node->name : node->out[0];
    base_fail(&g->error, g->error.code, "ONNX node '%.*s' (%.*s): %s",
              (int)(name.size < 80 ? name.size : 80), name.data,
              (int)(node->op.size < 40 ? node->op.size : 40), node->op.data, text);
}

/* ---- scopes ---------------------------------------------------------------------------------- */

static bool scope_open(onnx_import_state *s, scope *inner, bool sees_outer) {
    *inner = (scope){.outer = sees_outer ? s->scope : NULL};
    if (s->depth == SCOPES_MAX) {
        graph_refuse(s->g, BERYL_UNSUPPORTED, "bodies and functions nested more than %d deep",
                     SCOPES_MAX);
        return false;
    }
    if (sees_outer && s->scope) {
        inner->caller = s->scope->caller;
        inner->function = s->scope->function;
    }
    base_map_init(&inner->names, s->g->heap);
    s->depth++;
    s->scope = inner;
    return true;
}

static void scope_close(onnx_import_state *s, scope *before) {
    base_map_fini(&s->scope->names);
    s->scope = before;
    s->depth--;
}

static bool name_set(onnx_import_state *s, base_view name, onnx_value value) {
    if (!name.size) return true;
    onnx_value *at = base_vec_add(s->g->heap, &s->values);
    if (at) *at = value;
    if (at && base_map_set(&s->scope->names, name, (uint32_t)(s->values.count - 1))) return true;
    graph_no_memory(s->g);
    return false;
}

/* UINT32_MAX: there is none. */
static uint32_t name_find(const onnx_import_state *s, base_view name) {
    uint32_t at;
    for (const scope *in = s->scope; in; in = in->outer)
        if (base_map_find(&in->names, name, &at)) return at;
    return UINT32_MAX;
}

/* ---- arrays ---------------------------------------------------------------------------------- */

uint64_t onnx_array_count(const onnx_array *a) {
    uint64_t n = 1;
    for (uint32_t i = 0; i < a->rank; i++) {
        n *= a->dim[i];
        if (n > (UINT64_C(1) << 40)) return UINT64_C(1) << 40;
    }
    return n;
}

onnx_array *onnx_array_make(onnx_call *c, base_type type, uint32_t rank, const uint32_t *dim) {
    onnx_array *a = base_arena_take(c->arena, 1, sizeof *a);
    if (a) {
        *a = (onnx_array){.type = type, .rank = rank};
        for (uint32_t i = 0; i < rank; i++) a->dim[i] = dim[i];
        const uint64_t n = onnx_array_count(a), size = n * base_type_block_bytes(type);
        if (!onnx_has_room(c, size))
            return onnx_refuse(c, "constants of more than 256 MiB are computed"), NULL;
        c->s->made += size;
        a->data = base_arena_take(c->arena, (size_t)(n ? n : 1), base_type_block_bytes(type));
    }
    if (a && a->data) return a;
    graph_no_memory(c->g);
    return NULL;
}

bool onnx_has_room(const onnx_call *c, uint64_t bytes) {
    return bytes <= ARRAYS_MAX && c->s->made + bytes <= ARRAYS_MAX;
}

/* A tensor of the file; numbers that lie there as they are stay there. NULL: refused. */
static const onnx_array *array_of(onnx_import_state *s, const onnx_tensor *t) {
    onnx_array *a = base_arena_take(s->arena, 1, sizeof *a);
    if (!a) return graph_no_memory(s->g), NULL;
    if (!onnx_type_of(t->kind, &a->type)) {
        graph_refuse(s->g, BERYL_UNSUPPORTED, "tensor '%.*s' is of type %s",
                     (int)(t->name.size < 100 ? t->name.size : 100), t->name.data,
                     onnx_kind_name(t->kind));
        return NULL;
    }
    a->rank = t->rank;
    memcpy(a->dim, t->dim, sizeof t->dim);
    const uint64_t n = onnx_array_count(a), size = n * base_type_block_bytes(a->type);
    bool fits = n <= UINT32_MAX;
    if (fits && t->outside) {
        a->from = t;
        fits = t->length == UINT64_MAX || t->length == size;
    } else if (fits && t->raw.size) {
        fits = t->raw.size == size;
        a->data = t->raw.data;
        a->lasting = true;
    } else if (fits) {
        /* no more than can come from the message's bytes */
        fits = n <= (uint64_t)t->typed.size * 8;
        void *to = fits ? base_arena_take(s->arena, 1, (size_t)(size ? size : 1)) : NULL;
        if (fits && !to) return graph_no_memory(s->g), NULL;
        fits = fits && onnx_tensor_copy(t, to, (size_t)size);
        a->data = to;
        a->lasting = true;
    }
    if (!fits) {
        graph_refuse(s->g, BERYL_BAD_FILE, "tensor '%.*s' has not as many numbers as its shape",
                     (int)(t->name.size < 100 ? t->name.size : 100), t->name.data);
        return NULL;
    }
    return a;
}

static const onnx_array *loaded(onnx_import_state *s, graph *g, const onnx_array *a) {
    if (a->data || !a->from) return a->data ? a : NULL;
    const size_t size = (size_t)onnx_array_count(a) * base_type_block_bytes(a->type);
    onnx_array *copy = base_arena_take(s->arena, 1, sizeof *copy);
    if (!copy) return graph_no_memory(g), NULL;
    *copy = *a;
    copy->data = s->options->load(s->options->context, a->from, size);
    if (copy->data) return copy;
    if (g != s->g && g->error.code == BERYL_OK) g->error = s->g->error;
    return NULL;
}

/* ---- inputs of a call ------------------------------------------------------------------------ */

/* In a graph of known values alone: its inputs, with their arrays. */
typedef struct folding {
    graph_reference *r;
    base_vec(onnx_value) in;
    base_heap *heap;
    base_arena *arena;
    graph *g;
} folding;

static graph_value fold_input(folding *f, const onnx_array *a) {
    graph_dim d[GRAPH_RANK_MAX];
    for (uint32_t i = 0; i < a->rank; i++) d[i] = (graph_dim){a->dim[i], 0};
    const graph_value v = graph_input(f->g, "", a->type, a->rank, d);
    onnx_value *at = v ? base_vec_add(f->heap, &f->in) : NULL;
    if (!at) return v ? graph_no_memory(f->g) : 0;
    *at = (onnx_value){.v = v, .array = a};
    return v;
}

static uint32_t fold_constant(void *context, uint32_t n, const float *numbers) {
    folding *f = context;
    onnx_array *a = base_arena_take(f->arena, 1, sizeof *a);
    float *copy = base_arena_take(f->arena, n, sizeof *copy);
    if (!a || !copy) return graph_no_memory(f->g);
    memcpy(copy, numbers, n * sizeof *copy);
    *a = (onnx_array){.type = TYPE_F32, .rank = 1, .dim = {n}, .data = copy};
    return fold_input(f, a);
}

static bool is_folding(const onnx_call *c) {
    return c->g != c->s->g;
}

graph_value onnx_value_in_graph(onnx_call *c, onnx_value *x) {
    if (x->v || !x->array || c->g->error.code != BERYL_OK) return x->v;
    if (!onnx_array_count(x->array)) return onnx_refuse(c, "a tensor of no elements");
    if (is_folding(c)) {
        const onnx_array *a = loaded(c->s, c->g, x->array);
        x->v = a ? fold_input(c->g->constants.context, a) : 0;
    } else {
        x->v = c->s->options->constant(c->s->options->context, x->array, "constant");
    }
    return x->v;
}

bool onnx_is_given(const onnx_call *c, size_t k) {
    return k < c->n_in && (c->in[k].v || c->in[k].array);
}

graph_value onnx_or_none(onnx_call *c, size_t k) {
    if (!onnx_is_given(c, k)) return 0;
    const graph_value v = onnx_value_in_graph(c, &c->in[k]);
    /* a constant is in the graph once for all its readers */
    if (v && !is_folding(c) && k < c->node->n_in) {
        const uint32_t at = name_find(c->s, c->node->in[k]);
        if (at != UINT32_MAX && c->s->values.data[at].array == c->in[k].array)
            c->s->values.data[at].v = v;
    }
    return v;
}

graph_value onnx_in(onnx_call *c, size_t k) {
    const graph_value v = onnx_or_none(c, k);
    return v || c->g->error.code != BERYL_OK ? v : onnx_refuse(c, "input %zu is missing", k + 1);
}

const graph_tensor *onnx_tensor_of(onnx_call *c, graph_value v) {
    return graph_tensor_at(c->g, v);
}

bool onnx_shape_of(onnx_call *c, size_t k, onnx_shape *shape) {
    *shape = (onnx_shape){0};
    if (!onnx_is_given(c, k)) return onnx_refuse(c, "input %zu is missing", k + 1), false;
    if (c->in[k].array) {
        const onnx_array *a = c->in[k].array;
        shape->type = a->type;
        shape->rank = a->rank;
        for (uint32_t i = 0; i < a->rank; i++) shape->dim[i] = (graph_dim){a->dim[i], 0};
    } else {
        const graph_tensor *t = graph_tensor_at(c->g, c->in[k].v);
        shape->type = t->type;
        shape->rank = t->rank;
        memcpy(shape->dim, t->dim, sizeof t->dim);
    }
    return true;
}

const onnx_array *onnx_known(onnx_call *c, size_t k) {
    if (!onnx_is_given(c, k)) return onnx_refuse(c, "input %zu is missing", k + 1), NULL;
    const onnx_array *a = c->in[k].array ? loaded(c->s, c->g, c->in[k].array) : NULL;
    if (!a && c->g->error.code == BERYL_OK)
        onnx_refuse(c, "input %zu has to be a constant, known while the graph is built", k + 1);
    return a;
}

bool onnx_wholes_of(onnx_call *c, size_t k, onnx_wholes *to) {
    const onnx_array *a = onnx_known(c, k);
    to->n = 0;
    if (!a) return false;
    if (onnx_array_count(a) > ONNX_WHOLES_MAX || base_type_is_float(a->type))
        return onnx_refuse(c, "input %zu is to be a few whole numbers", k + 1), false;
    to->n = (size_t)onnx_array_count(a);
    const uint32_t bytes = base_type_block_bytes(a->type);
    for (size_t i = 0; i < to->n; i++)
        to->at[i] = reference_number_at(a->type, (const char *)a->data + i * bytes).whole;
    return true;
}

bool onnx_reals_of(onnx_call *c, size_t k, double *to, size_t most, size_t *n) {
    const onnx_array *a = onnx_known(c, k);
    if (!a) return false;
    if (onnx_array_count(a) > most)
        return onnx_refuse(c, "input %zu is to be a few numbers", k + 1), false;
    *n = (size_t)onnx_array_count(a);
    const uint32_t bytes = base_type_block_bytes(a->type);
    for (size_t i = 0; i < *n; i++) {
        const reference_number x = reference_number_at(a->type, (const char *)a->data + i * bytes);
        to[i] = base_type_is_float(a->type) ? x.real : (double)x.whole;
    }
    return true;
}

/* ---- attributes ------------------------------------------------------------------------------ */

static const onnx_attribute *attribute_in(const onnx_attribute *list, size_t n, base_view name) {
    for (size_t i = 0; i < n; i++)
        if (base_view_equal(list[i].name, name)) return &list[i];
    return NULL;
}

const onnx_attribute *onnx_attribute_find(const onnx_call *c, const char *name) {
    const onnx_attribute *a =
        attribute_in(c->node->attributes, c->node->n_attribute, base_view_of(name));
    const scope *in = c->s->scope;
    if (!a || !a->reference.size || !in || !in->caller) return a && a->reference.size ? NULL : a;
    const onnx_attribute *theirs =
        attribute_in(in->caller->node->attributes, in->caller->node->n_attribute, a->reference);
    return theirs ? theirs : attribute_in(in->function->usual, in->function->n_usual, a->reference);
}

int64_t onnx_whole(const onnx_call *c, const char *name, int64_t otherwise) {
    const onnx_attribute *a = onnx_attribute_find(c, name);
    return a ? a->whole : otherwise;
}

float onnx_real(const onnx_call *c, const char *name, float otherwise) {
    const onnx_attribute *a = onnx_attribute_find(c, name);
    return a ? a->number : otherwise;
}

base_view onnx_text(const onnx_call *c, const char *name, const char *otherwise) {
    const onnx_attribute *a = onnx_attribute_find(c, name);
    return a ? a->text : base_view_of(otherwise);
}

bool onnx_text_is(const onnx_call *c, const char *name, const char *otherwise, const char *value) {
    return base_view_equal(onnx_text(c, name, otherwise), base_view_of(value));
}

bool onnx_wholes_at(onnx_call *c, const char *name, size_t k, onnx_wholes *to) {
    to->n = 0;
    const onnx_attribute *a = name ? onnx_attribute_find(c, name) : NULL;
    if (!a && k && onnx_is_given(c, k)) return onnx_wholes_of(c, k, to);
    if (!a) return false;
    if (a->n > ONNX_WHOLES_MAX) return onnx_refuse(c, "too many numbers in '%s'", name), false;
    to->n = a->wholes ? a->n : 0;
    if (to->n) memcpy(to->at, a->wholes, to->n * sizeof *to->at);
    return true;
}

uint32_t onnx_axis(onnx_call *c, int64_t axis, uint32_t rank) {
    if (axis < 0) axis += rank;
    if (axis >= 0 && axis < rank) return (uint32_t)axis;
    onnx_refuse(c, "there is no axis %lld", (long long)axis);
    return UINT32_MAX;
}

/* ---- results --------------------------------------------------------------------------------- */

void onnx_give(onnx_call *c, size_t k, graph_value v) {
    if (k < ONNX_OUT_MAX) c->out[k] = (onnx_value){.v = v};
}

void onnx_give_array(onnx_call *c, size_t k, const onnx_array *array) {
    if (k < ONNX_OUT_MAX) c->out[k] = (onnx_value){.array = array};
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* Values of a graph of known ones, as arrays. */
static bool fold_results(onnx_call *c, folding *f, onnx_value *out, beryl_error *error) {
    const uint32_t none[GRAPH_EXTENT_MAX + 1] = {0};
    graph_value copies[ONNX_OUT_MAX] = {0};
    for (size_t k = 0; k < c->n_out; k++) {
        if (!c->out[k].v) continue;
        const graph_tensor *t = graph_tensor_at(f->g, c->out[k].v);
        if (graph_element_bound(t) > FOLD_MAX) return false;
        const bool made = t->role == ROLE_INTERMEDIATE && !t->base;
        copies[k] = made ? c->out[k].v : graph_copy(f->g, c->out[k].v);
        if (copies[k] && graph_tensor_at(f->g, copies[k])->role != ROLE_OUTPUT)
            graph_output(f->g, copies[k], "");
    }
    uint64_t inside = 0;
    for (graph_value v = 1; v < f->g->tensors.count; v++)
        if (!graph_tensor_at(f->g, v)->base)
            inside += graph_element_bound(graph_tensor_at(f->g, v));
    if (inside > FOLD_INSIDE_MAX) return false;
    beryl_status status = graph_status(f->g, error);
    if (status == BERYL_OK) status = graph_reference_open(f->g, NULL, &f->r, error);
    for (size_t i = 0; status == BERYL_OK && i < f->in.count; i++) {
        const onnx_array *a = f->in.data[i].array;
        void *to = graph_reference_input(f->r, f->in.data[i].v);
        if (to) memcpy(to, a->data, (size_t)onnx_array_count(a) * base_type_block_bytes(a->type));
    }
    if (status == BERYL_OK) status = graph_reference_run(f->r, none, error);
    for (size_t k = 0; status == BERYL_OK && k < c->n_out; k++) {
        out[k] = c->out[k];
        if (!copies[k]) continue;
        const graph_tensor *t = graph_tensor_at(f->g, copies[k]);
        uint32_t dim[GRAPH_RANK_MAX];
        for (uint32_t i = 0; i < t->rank; i++) dim[i] = t->dim[i].size;
        onnx_array *a = onnx_array_make(c, t->type, t->rank, dim);
        if (!a) return false;
        memcpy((void *)(uintptr_t)a->data, graph_reference_value(f->r, copies[k]),
               (size_t)onnx_array_count(a) * base_type_block_bytes(a->type));
        out[k] = (onnx_value){.array = a};
    }
    return status == BERYL_OK;
}

/* Computes a call of known values now. false: it cannot be (nothing has happened). */
static bool fold(const onnx_call *from, const onnx_operator *op, onnx_value *out) {
    onnx_call c = *from;
    beryl_error why = {0};
    folding f = {.heap = c.s->g->heap, .arena = c.arena, .g = graph_open(c.s->g->heap)};
    bool done = false;
    if (!f.g) return false;
    c.g = f.g;
    f.g->constants.fn = fold_constant;
    f.g->constants.context = &f;
    for (size_t k = 0; k < c.n_in; k++)
        if (c.in[k].array) c.in[k].v = 0;
    op->run(&c);
    if (f.g->error.code == BERYL_OK) done = fold_results(&c, &f, out, &why);
    graph_reference_close(f.r);
    base_vec_fini(f.heap, &f.in);
    graph_close(f.g);
    return done;
}

/* Are all inputs known, and few? given: the caller gave some of them. */
static bool can_fold(const onnx_call *c, const onnx_operator *op, bool *given) {
    if (op->run == onnx_run_if || op->run == onnx_run_loop || op->run == onnx_run_scan)
        return false;
    uint64_t n = 0;
    *given = false;
    for (size_t k = 0; k < c->n_in; k++) {
        const onnx_value *x = &c->in[k];
        if (!x->array && !x->v) continue;
        if (!x->array || (!x->array->data && !x->array->from)) return false;
        n += onnx_array_count(x->array);
        *given = *given || x->given;
    }
    return c->n_in && n <= (*given ? FOLD_GIVEN_MAX : FOLD_MAX);
}

static int64_t opset_of(const onnx_import_state *s, base_view domain) {
    const scope *in = s->scope;
    const onnx_import *list =
        in && in->function && in->function->n_import ? in->function->imports : s->model->imports;
    const size_t n = list == s->model->imports ? s->model->n_import : in->function->n_import;
    const bool usual = !domain.size || base_view_equal(domain, BASE_VIEW("ai.onnx"));
    for (size_t i = 0; i < n; i++)
        if (base_view_equal(list[i].domain, domain) ||
            (usual &&
             (!list[i].domain.size || base_view_equal(list[i].domain, BASE_VIEW("ai.onnx")))))
            return list[i].version;
    return usual ? 1 : 0;
}

static const onnx_function *function_find(const onnx_import_state *s, const onnx_node *node) {
    for (size_t i = 0; i < s->model->n_function; i++)
        if (base_view_equal(s->model->functions[i].name, node->op) &&
            base_view_equal(s->model->functions[i].domain, node->domain))
            return &s->model->functions[i];
    return NULL;
}

static void run_nodes(onnx_import_state *s, const onnx_node *nodes, size_t n);

static bool outputs_of(onnx_import_state *s, base_view name, onnx_value *out) {
    const uint32_t at = name_find(s, name);
    if (at == UINT32_MAX) return refuse(s->g, "nothing makes the output", name), false;
    *out = s->values.data[at];
    return true;
}

static void run_function(onnx_call *c, const onnx_function *f) {
    onnx_import_state *s = c->s;
    scope *before = s->scope, inner;
    if (!scope_open(s, &inner, false)) return;
    inner.caller = c;
    inner.function = f;
    bool fine = true;
    for (size_t i = 0; fine && i < f->n_in && i < c->n_in; i++)
        if (c->in[i].v || c->in[i].array) fine = name_set(s, f->in[i], c->in[i]);
    if (fine) run_nodes(s, f->nodes, f->n_node);
    for (size_t i = 0; s->g->error.code == BERYL_OK && i < f->n_out && i < c->n_out; i++)
        if (c->wanted[i]) outputs_of(s, f->out[i], &c->out[i]);
    scope_close(s, before);
}

static void run_operator(onnx_call *c, const onnx_operator *op) {
    bool given;
    onnx_value known[ONNX_OUT_MAX] = {{0}};
    onnx_shape like;
    c->variant = op->variant;
    if (op->run == onnx_cast_like && onnx_shape_of(c, 1, &like)) { /* its type is all that counts */
        c->variant = like.type + 1u;
        c->n_in = 1;
    }
    const bool folds = can_fold(c, op, &given) && fold(c, op, known);
    if (folds && !given) {
        memcpy(c->out, known, sizeof known);
        return;
    }
    if (c->g->error.code != BERYL_OK) return;
    op->run(c);
    for (size_t k = 0; folds && c->g->error.code == BERYL_OK && k < c->n_out; k++)
        if (known[k].array && !c->out[k].array &&
            onnx_array_count(known[k].array) <= FOLD_GIVEN_MAX) {
            c->out[k].array = known[k].array;
            c->out[k].given = true;
        }
}

static onnx_call call_of(onnx_import_state *s, const onnx_node *node) {
    return (onnx_call){.s = s,
                       .g = s->g,
                       .arena = s->arena,
                       .node = node,
                       .opset = opset_of(s, node->domain),
                       .n_in = node->n_in,
                       .n_out = node->n_out};
}

bool onnx_only_reader(const onnx_call *c, onnx_call *reader) {
    onnx_import_state *s = c->s;
    uint32_t index, at;
    if (is_folding(c) || s->depth > 1 || !c->node->n_out ||
        !base_map_find(&s->readers, c->node->out[0], &index) || index == UINT32_MAX)
        return false;
    const onnx_node *node = &s->model->graph->nodes[index];
    *reader = call_of(s, node);
    if (function_find(s, node) || node->n_in > ONNX_IN_MAX) return false;
    for (size_t k = 0; k < node->n_in; k++)
        if ((at = name_find(s, node->in[k])) != UINT32_MAX) reader->in[k] = s->values.data[at];
    return true;
}

static void run_node(onnx_import_state *s, const onnx_node *node) {
    onnx_call *c = base_heap_take(s->g->heap, sizeof *c);
    if (!c) {
        graph_no_memory(s->g);
        return;
    }
    *c = call_of(s, node);
    const onnx_function *function = function_find(s, node);
    const onnx_operator *op = function ? NULL : onnx_operator_find(node->domain, node->op);
    if (s->n_node++ > NODES_MAX) onnx_refuse(c, "more than %d nodes", NODES_MAX);
    if (c->n_in > ONNX_IN_MAX || c->n_out > ONNX_OUT_MAX)
        onnx_refuse(c, "more inputs or outputs than are read");
    for (size_t k = 0; s->g->error.code == BERYL_OK && k < node->n_in; k++) {
        if (!node->in[k].size) continue;
        const uint32_t at = name_find(s, node->in[k]);
        if (at == UINT32_MAX) refuse(s->g, "nothing makes the input", node->in[k]);
        else c->in[k] = s->values.data[at];
    }
    if (s->g->error.code == BERYL_OK) {
        for (size_t k = 0; k < c->n_out; k++) c->wanted[k] = node->out[k].size > 0;
        if (function) run_function(c, function);
        else if (!op) onnx_refuse(c, "the operator is not supported");
        else if (c->opset < op->since || (op->until && c->opset > op->until))
            onnx_refuse(c, "the operator is not supported of opset %lld", (long long)c->opset);
        else run_operator(c, op);
    }
    for (size_t k = 0; s->g->error.code == BERYL_OK && k < node->n_out; k++) {
        if (!c->wanted[k]) continue;
        if (!c->out[k].v && !c->out[k].array) onnx_refuse(c, "output %zu is not supported", k + 1);
        else name_set(s, node->out[k], c->out[k]);
    }
    if (s->g->error.code != BERYL_OK) name_error(s->g, node);
    base_heap_give(s->g->heap, c, sizeof *c);
}

static void run_nodes(onnx_import_state *s, const onnx_node *nodes, size_t n) {
    for (size_t i = 0; i < n && s->g->error.code == BERYL_OK; i++) run_node(s, &nodes[i]);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static bool add_tensors(onnx_import_state *s, const onnx_graph *from) {
    for (size_t i = 0; i < from->n_tensor; i++) {
        const onnx_array *a = array_of(s, &from->tensors[i]);
        if (!a || !name_set(s, from->tensors[i].name, (onnx_value){.array = a})) return false;
    }
    return true;
}

bool onnx_run_body(onnx_call *c, const onnx_graph *body, const onnx_value *in, size_t n_in,
                   onnx_value *out, size_t n_out) {
    onnx_import_state *s = c->s;
    scope *before = s->scope, inner;
    if (!body || body->n_out != n_out || body->n_in != n_in)
        return onnx_refuse(c, "a body with %zu inputs and %zu outputs", body ? body->n_in : 0,
                           body ? body->n_out : 0),
               false;
    if (!scope_open(s, &inner, true)) return false;
    bool fine = add_tensors(s, body);
    for (size_t i = 0; fine && i < n_in; i++) fine = name_set(s, body->in[i].name, in[i]);
    if (fine) run_nodes(s, body->nodes, body->n_node);
    for (size_t i = 0; fine && s->g->error.code == BERYL_OK && i < n_out; i++)
        fine = outputs_of(s, body->out[i].name, &out[i]);
    scope_close(s, before);
    return fine && s->g->error.code == BERYL_OK;
}

const onnx_array *onnx_array_of(onnx_call *c, const onnx_tensor *t) {
    const onnx_array *a = array_of(c->s, t);
    if (!a && c->g != c->s->g && c->g->error.code == BERYL_OK) c->g->error = c->s->g->error;
    return a;
}

static const onnx_given *given_of(const onnx_import_state *s, base_view name) {
    for (size_t i = 0; i < s->options->n_given; i++)
        if (base_view_equal(base_view_of(s->options->given[i].name), name))
            return &s->options->given[i];
    return NULL;
}

/* An extent by its name, or one of this input alone. */
static graph_dim extent_of(onnx_import_state *s, base_view name) {
    for (uint32_t i = 1; name.size && i <= s->g->n_extent; i++)
        if (base_view_equal(base_view_of(s->g->extents[i].name), name))
            return (graph_dim){s->g->extents[i].bound, (uint8_t)i};
    const char *kept = base_arena_text(s->arena, name.data ? name.data : "", name.size);
    if (!kept) graph_no_memory(s->g);
    const uint32_t most = s->options->extent_most;
    return kept ? (graph_dim){most, graph_extent_add(s->g, kept, most)} : (graph_dim){0};
}

/* What the caller says of dimension i of an input; the name for it is `name`. 0: nothing. */
static uint32_t size_said(const onnx_import_state *s, const onnx_info *info, uint32_t i, char *name,
                          size_t size) {
    const base_view own = info->dim_name[i];
    if (own.size) snprintf(name, size, "%.*s", (int)(own.size < 80 ? own.size : 80), own.data);
    else
        snprintf(name, size, "%.*s.%u", (int)(info->name.size < 80 ? info->name.size : 80),
                 info->name.data, i);
    for (size_t k = 0; k < s->options->n_extent; k++)
        if (!strcmp(s->options->extents[k].name, name)) return s->options->extents[k].size;
    return 0;
}

static bool input_shape(onnx_import_state *s, const onnx_info *info, const onnx_given *given,
                        onnx_port *port) {
    char name[100];
    port->rank = given ? given->array.rank : info->rank;
    if (given && info->shaped && info->rank != given->array.rank)
        return refuse(s->g, "another number of dimensions is given for input", info->name), false;
    if (!given && !info->shaped)
        return refuse(s->g, "the file does not say the shape of input", info->name), false;
    for (uint32_t i = 0; i < port->rank; i++) {
        const int64_t said = info->shaped ? info->dim[i] : -1;
        if (given) {
            if (said >= 0 && said != given->array.dim[i])
                return refuse(s->g, "another shape is given for input", info->name), false;
            port->dim[i] = (graph_dim){given->array.dim[i], 0};
        } else if (said >= 0) {
            port->dim[i] = (graph_dim){(uint32_t)said, 0};
        } else if (size_said(s, info, i, name, sizeof name)) {
            port->dim[i] = (graph_dim){size_said(s, info, i, name, sizeof name), 0};
        } else if (s->options->extent_most) {
            port->dim[i] = extent_of(s, info->dim_name[i]);
        } else {
            graph_refuse(s->g, BERYL_UNSUPPORTED,
                         "the size of dimension '%s' of input '%.*s' is not given", name,
                         (int)(info->name.size < 80 ? info->name.size : 80), info->name.data);
            return false;
        }
    }
    return s->g->error.code == BERYL_OK;
}

static bool add_input(onnx_import_state *s, const onnx_info *info, onnx_port *port) {
    const onnx_given *given = given_of(s, info->name);
    if (!onnx_type_of(info->kind, &port->type)) {
        graph_refuse(s->g, BERYL_UNSUPPORTED, "input '%.*s' is of type %s",
                     (int)(info->name.size < 100 ? info->name.size : 100), info->name.data,
                     onnx_kind_name(info->kind));
        return false;
    }
    if (given && given->array.type != port->type)
        return refuse(s->g, "another type is given for input", info->name), false;
    port->name = base_arena_text(s->arena, info->name.data, info->name.size);
    if (!port->name) return graph_no_memory(s->g), false;
    if (!input_shape(s, info, given, port)) return false;
    onnx_value x = {0};
    onnx_array *a = base_arena_take(s->arena, 1, sizeof *a);
    if (!a) return graph_no_memory(s->g), false;
    *a = (onnx_array){.type = port->type, .rank = port->rank};
    for (uint32_t i = 0; i < port->rank; i++) a->dim[i] = port->dim[i].size;
    if (!onnx_array_count(a)) { /* nothing is always known */
        a->data = a;
        x.array = a;
    } else {
        x.v = port->value = graph_input(s->g, port->name, port->type, port->rank, port->dim);
        if (given && given->array.data) {
            a->data = given->array.data;
            x.array = a;
            x.given = true;
        }
    }
    return name_set(s, info->name, x) && s->g->error.code == BERYL_OK;
}

static bool add_output(onnx_import_state *s, const onnx_info *info, onnx_port *port) {
    onnx_value x;
    if (!outputs_of(s, info->name, &x)) return false;
    onnx_call c = {.s = s, .g = s->g, .arena = s->arena};
    port->name = base_arena_text(s->arena, info->name.data, info->name.size);
    if (!port->name) return graph_no_memory(s->g), false;
    c.in[0] = x;
    c.n_in = 1;
    onnx_shape shape;
    if (!onnx_shape_of(&c, 0, &shape)) return false;
    port->type = shape.type;
    port->rank = shape.rank;
    memcpy(port->dim, shape.dim, sizeof shape.dim);
    const bool none = x.array && !onnx_array_count(x.array);
    port->value = none ? 0 : onnx_value_in_graph(&c, &x);
    return s->g->error.code == BERYL_OK;
}

static void run_model(onnx_import_state *s, onnx_ports *ports) {
    const onnx_graph *from = s->model->graph;
    ports->in = base_arena_take(s->arena, from->n_in ? from->n_in : 1, sizeof *ports->in);
    ports->out = base_arena_take(s->arena, from->n_out ? from->n_out : 1, sizeof *ports->out);
    if (!ports->in || !ports->out) {
        graph_no_memory(s->g);
        return;
    }
    if (!onnx_readers_add(&s->readers, from, false)) {
        graph_no_memory(s->g);
        return;
    }
    if (!add_tensors(s, from)) return;
    for (size_t i = 0; i < from->n_in; i++) {
        /* older files list constants among the inputs */
        if (name_find(s, from->in[i].name) != UINT32_MAX) continue;
        if (!add_input(s, &from->in[i], &ports->in[ports->n_in++])) return;
    }
    run_nodes(s, from->nodes, from->n_node);
    for (size_t i = 0; s->g->error.code == BERYL_OK && i < from->n_out; i++)
        if (!add_output(s, &from->out[i], &ports->out[ports->n_out++])) return;
}

void onnx_build(graph *g, base_arena *arena, const onnx_model *model, const onnx_options *options,
                onnx_ports *ports) {
    onnx_import_state s = {.g = g, .arena = arena, .model = model, .options = options};
    scope outer;
    *ports = (onnx_ports){0};
    base_map_init(&s.readers, g->heap);
    if (g->error.code == BERYL_OK && scope_open(&s, &outer, false)) {
        run_model(&s, ports);
        scope_close(&s, NULL);
    }
    base_map_fini(&s.readers);
    base_vec_fini(g->heap, &s.values);
}
