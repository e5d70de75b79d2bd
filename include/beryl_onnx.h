/* beryl_onnx.h - ONNX files as graphs of beryl_graph.h.
 *
 * Owns reading a file into a graph, and its inputs and outputs by name:
 *
 *     beryl_graph *g;
 *     beryl_graph_open(NULL, &g, NULL);
 *     uint32_t shape[] = {1, 3, 224, 224};
 *     beryl_onnx_input x = {.name = "data", .type = BERYL_TYPE_F32, .rank = 4, .dims = shape};
 *     beryl_onnx_options how = {.size = sizeof how, .inputs = &x, .n_input = 1};
 *     beryl_graph_from_onnx(g, file, size, &how, NULL);
 *     beryl_port in, out;
 *     beryl_graph_port(g, false, 0, &in), beryl_graph_port(g, true, 0, &out);
 *     while (beryl_graph_compile(g, NULL) == BERYL_PENDING) {}
 *     beryl_graph_set(g, in.value, pixels, sizeof pixels, NULL);   // run, wait, read
 *
 * Opsets 7 to 28 of the default domain, and functions of the file. Shapes, axes, repeats, trip
 * counts and conditions are constants while the graph is built: of the file, computed from
 * shapes, or numbers that the caller gives for an input. What is not supported is named with its
 * node and operator. Files are not trusted: every length is checked.
 */
#ifndef BERYL_ONNX_H
#define BERYL_ONNX_H

#include "beryl_graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the caller knows of an input. */
typedef struct beryl_onnx_input {
    const char *name;
    beryl_type type;
    uint32_t rank;
    const uint32_t *dims; /* [rank] */
    /* Numbers, row-major, NULL: none. Where an operator needs them while the graph is built they
     * are taken from here, once and for all; the input is an input all the same, where anything
     * else reads it. Borrowed for the call. */
    const void *data;
} beryl_onnx_input;

/* The size of a dimension that the file names; of one without a name: of "INPUT.AXIS". */
typedef struct beryl_onnx_extent {
    const char *name;
    uint32_t size;
} beryl_onnx_extent;

typedef struct beryl_onnx_options {
    size_t size;
    const char *folder; /* of files beside the model's, which hold weights; NULL: none are read */
    const beryl_onnx_input *inputs; /* those whose shape the file leaves open, or any */
    size_t n_input;
    /* Dimensions that neither file nor caller say become extents with this bound, one for each
     * name, in the order of the inputs (beryl_graph_run); 0: they are refused. Few models can be
     * built so: what computes with shapes needs constants. */
    uint32_t extent_bound;
    const beryl_onnx_extent *extents; /* for inputs that are not given */
    size_t n_extent;
} beryl_onnx_options;

/* Adds a model to a graph. `data` is borrowed until the graph is closed: weights are read from
 * there. Errors stick to the graph too. BAD_FILE: broken; UNSUPPORTED: an operator, a type, an
 * input whose numbers or shape have to be known; IO: a file beside. */
BERYL_API beryl_status beryl_graph_from_onnx(beryl_graph *graph, const void *data, size_t size,
                                             const beryl_onnx_options *options, beryl_error *error);

typedef struct beryl_port { /* an input or output of a model; the name lives as long as the graph */
    const char *name;
    beryl_value value; /* 0: it has no elements, and is neither set nor read */
    beryl_type type;
    uint32_t rank;
    beryl_dim dims[10];
} beryl_port;

/* The model's inputs or outputs, by number from 0. false: there are no more. */
BERYL_API bool beryl_graph_port(const beryl_graph *graph, bool output, size_t index,
                                beryl_port *port);

/* A file's contents as JSON, handed to `write`: producer, opsets, inputs, outputs, and operators
 * with how often they are used and whether they are supported. */
BERYL_API beryl_status beryl_onnx_describe(const void *data, size_t size,
                                           void (*write)(void *user, const char *text, size_t size),
                                           void *user, beryl_error *error);

#ifdef __cplusplus
}
#endif
#endif
