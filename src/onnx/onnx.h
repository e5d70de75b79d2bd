/* onnx.h - ONNX files as graphs: a model's nodes become operations of a graph that its caller
 * opened.
 *
 * The one idea: values that are known while the graph is built (constants of the file, shapes,
 * what is computed of them) are arrays beside the graph. An operation of such values alone is
 * built in a graph of its own and run there by the reference, so that one function an operator
 * serves both. Where an operator needs numbers now (axes, shapes, repeats), it takes them from the
 * array, or says which input is no constant. */
#ifndef ONNX_ONNX_H
#define ONNX_ONNX_H

#include "graph/build.h"
#include "onnx/model.h"

/* Numbers that are known now, row-major, as many as the shape says. */
typedef struct onnx_array {
    base_type type;
    uint32_t rank;
    uint32_t dim[GRAPH_RANK_MAX];
    const void *data; /* NULL: in the file beside that `from` says, or not known */
    const onnx_tensor *from;
    bool lasting; /* the bytes live as long as the graph */
} onnx_array;

uint64_t onnx_array_count(const onnx_array *a);

/* An input of which the caller says the shape, and numbers if there are any: those that operators
 * need while the graph is built are taken from there. */
typedef struct onnx_given {
    const char *name;
    onnx_array array;
} onnx_given;

/* What the caller says of a dimension, by the file's name for it or "INPUT.AXIS". */
typedef struct onnx_extent {
    const char *name;
    uint32_t size;
} onnx_extent;

typedef struct onnx_port { /* value: 0: has no elements */
    const char *name;
    graph_value value;
    base_type type;
    uint32_t rank;
    graph_dim dim[GRAPH_RANK_MAX];
} onnx_port;

typedef struct onnx_options {
    const onnx_given *given;
    size_t n_given;
    const onnx_extent *extents;
    size_t n_extent;
    uint32_t extent_most; /* bound of dimensions that nobody said; 0: they are refused */
    /* An array as a value of the graph. */
    graph_value (*constant)(void *context, const onnx_array *array, const char *name);
    /* The bytes of a tensor in a file beside, in memory that lasts; NULL: the graph has an
     * error. */
    const void *(*load)(void *context, const onnx_tensor *tensor, size_t size);
    void *context;
} onnx_options;

typedef struct onnx_ports {
    onnx_port *in, *out;
    size_t n_in, n_out;
} onnx_ports;

/* Builds model's graph in g; ports and names are in the arena. The first error is the graph's, and
 * names node and operator. */
void onnx_build(graph *g, base_arena *arena, const onnx_model *model, const onnx_options *options,
                onnx_ports *ports);

/* false: no such operator here. */
bool onnx_operator_is_known(base_view domain, base_view name);

#endif
