/* call.h - what the functions of operators share: a call, its inputs and attributes. For onnx/
 * alone. */
#ifndef ONNX_CALL_H
#define ONNX_CALL_H

#include "onnx/onnx.h"

enum { ONNX_IN_MAX = 64, ONNX_OUT_MAX = 32 };

/* A value is in the graph, or known, or both; all 0: left out. */
typedef struct onnx_value {
    graph_value v;
    const onnx_array *array;
    bool given;  /* known because the caller gave an input's numbers: it stays in the graph */
    bool normed; /* of a convolution: the batch norm that reads it is done (joined.c) */
} onnx_value;

typedef struct onnx_import_state onnx_import_state;

/* A call of an operator: out is filled. n_out: how many are wanted; of those left out, wanted is
 * false. */
typedef struct onnx_call {
    onnx_import_state *s;
    graph *g;
    base_arena *arena;
    const onnx_node *node;
    int64_t opset;
    uint32_t variant; /* of the operator's row */
    onnx_value in[ONNX_IN_MAX], out[ONNX_OUT_MAX];
    size_t n_in, n_out;
    bool wanted[ONNX_OUT_MAX];
} onnx_call;

/* Gives 0; the graph's error. */
graph_value onnx_refuse(onnx_call *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- inputs */
bool onnx_is_given(const onnx_call *c, size_t k); /* is there an input k? */
graph_value onnx_in(onnx_call *c, size_t k);      /* as a value of the graph; 0: refused */
graph_value onnx_or_none(onnx_call *c, size_t k); /* 0: left out */
const graph_tensor *onnx_tensor_of(onnx_call *c, graph_value v);
bool onnx_is_sized(onnx_call *c, const graph_tensor *t); /* false: refused */
/* Type and shape of an input, also of one without elements. false: refused. */
typedef struct onnx_shape {
    base_type type;
    uint32_t rank;
    graph_dim dim[GRAPH_RANK_MAX];
} onnx_shape;
bool onnx_shape_of(onnx_call *c, size_t k, onnx_shape *shape);
/* Whole numbers of an input that is known now; false: refused. At most `most`. */
enum { ONNX_WHOLES_MAX = 256 };
typedef struct onnx_wholes {
    int64_t at[ONNX_WHOLES_MAX];
    size_t n;
} onnx_wholes;
bool onnx_wholes_of(onnx_call *c, size_t k, onnx_wholes *to);
bool onnx_reals_of(onnx_call *c, size_t k, double *to, size_t most, size_t *n);
/* The numbers of an input that is known now, loaded; NULL: refused. */
const onnx_array *onnx_known(onnx_call *c, size_t k);
/* The call of the one node that reads the first result; false: there are several, or it is one of a
 * body or a function, or the result is the model's. */
bool onnx_only_reader(const onnx_call *c, onnx_call *reader);
/* Which node of the graph reads a name: its index, or UINT32_MAX: several do, or the caller, or a
 * body; all that a body reads is so. false: no memory. */
bool onnx_readers_add(base_map *readers, const onnx_graph *from, bool body);

/* ---- attributes */
const onnx_attribute *onnx_attribute_find(const onnx_call *c, const char *name);
int64_t onnx_whole(const onnx_call *c, const char *name, int64_t otherwise);
float onnx_real(const onnx_call *c, const char *name, float otherwise);
base_view onnx_text(const onnx_call *c, const char *name, const char *otherwise);
bool onnx_text_is(const onnx_call *c, const char *name, const char *otherwise, const char *value);
/* From an attribute, or from input k (k 0: from there alone); false: neither, or refused. */
bool onnx_wholes_at(onnx_call *c, const char *name, size_t k, onnx_wholes *to);
/* An axis that may count from the end; UINT32_MAX: refused. */
uint32_t onnx_axis(onnx_call *c, int64_t axis, uint32_t rank);

/* ---- making */
void onnx_give(onnx_call *c, size_t k, graph_value v);
/* A known result; its memory is in the arena. */
onnx_array *onnx_array_make(onnx_call *c, base_type type, uint32_t rank, const uint32_t *dim);
bool onnx_has_room(const onnx_call *c, uint64_t bytes); /* for results of that size */
void onnx_give_array(onnx_call *c, size_t k, const onnx_array *array);
graph_value onnx_number(onnx_call *c, double number, base_type type); /* [] */
graph_value onnx_as(onnx_call *c, graph_value v, base_type type);
/* Halves as F32, with what they were. */
graph_value onnx_wide(onnx_call *c, graph_value v, base_type *was);
graph_value onnx_op2(onnx_call *c, base_op op, graph_value a, graph_value b);
/* Without the axes, each of size 1, a bit each. */
graph_value onnx_without(onnx_call *c, graph_value v, uint32_t axes);
graph_value onnx_reshape(onnx_call *c, graph_value v, uint32_t rank, const uint32_t *dim);
/* v broadcast to a shape. */
graph_value onnx_expand(onnx_call *c, graph_value v, uint32_t rank, const graph_dim *dim);
/* Indices that may count from the end of an axis of n, as I64 or I32 that do not. */
graph_value onnx_indices(onnx_call *c, size_t k, uint32_t n);

/* ---- operators (operators.c has the table) */
typedef void onnx_fn(onnx_call *c);
typedef struct onnx_operator {
    const char *name;
    int since, until; /* opsets; until 0: to the newest */
    onnx_fn *run;
    uint32_t variant;
} onnx_operator;
const onnx_operator *onnx_operator_find(base_view domain, base_view name);

/* Control flow (control.c): bodies are built in place. */
void onnx_run_if(onnx_call *c);
void onnx_run_loop(onnx_call *c);
void onnx_run_scan(onnx_call *c);
/* A body's nodes with these inputs, in a scope inside the caller's: its outputs. */
bool onnx_run_body(onnx_call *c, const onnx_graph *body, const onnx_value *in, size_t n_in,
                   onnx_value *out, size_t n_out);
/* Part i of a value's axis, without it. */
onnx_value onnx_part(onnx_call *c, onnx_value x, uint32_t axis, uint32_t i);
/* A tensor of an attribute. NULL: refused. */
const onnx_array *onnx_array_of(onnx_call *c, const onnx_tensor *t);
graph_value onnx_value_in_graph(onnx_call *c, onnx_value *x);

#endif
