/* model.h - an ONNX file as structs: what of its protobuf messages is used. Everything borrows from
 * the file's bytes, tensors' numbers too; arrays are in the caller's arena. Fields that are not
 * known are passed over, as protobuf wants it.
 * https://github.com/onnx/onnx/blob/main/onnx/onnx.proto */
#ifndef ONNX_MODEL_H
#define ONNX_MODEL_H

#include "base/memory.h"
#include "base/types.h"

enum { ONNX_RANK_MAX = 10, ONNX_NESTED_MAX = 16 };

typedef struct onnx_tensor {
    base_view name;
    uint32_t kind; /* TensorProto.DataType */
    uint32_t rank;
    uint32_t dim[ONNX_RANK_MAX];
    base_view raw;      /* little-endian; or nothing, and */
    base_view typed;    /* fields of the message that hold the numbers */
    base_view location; /* or a file beside the model's, with */
    uint64_t offset, length;
    bool outside;
} onnx_tensor;

typedef struct onnx_attribute {
    base_view name, text, reference; /* reference: to an attribute of a function's caller */
    uint32_t kind;
    float number;
    int64_t whole;
    const onnx_tensor *tensor;
    const struct onnx_graph *graph;
    const int64_t *wholes;
    const float *numbers;
    size_t n; /* of wholes or numbers */
} onnx_attribute;

typedef struct onnx_node {
    base_view name, op, domain;
    const base_view *in, *out;
    const onnx_attribute *attributes;
    size_t n_in, n_out, n_attribute;
} onnx_node;

typedef struct onnx_info { /* of an input or output */
    base_view name;
    uint32_t kind; /* 0: no tensor */
    bool shaped;
    uint32_t rank;
    int64_t dim[ONNX_RANK_MAX];        /* -1: not said, or by */
    base_view dim_name[ONNX_RANK_MAX]; /* this name */
} onnx_info;

typedef struct onnx_graph {
    base_view name;
    const onnx_node *nodes;
    const onnx_tensor *tensors;
    const onnx_info *in, *out;
    size_t n_node, n_tensor, n_in, n_out;
} onnx_graph;

typedef struct onnx_import {
    base_view domain;
    int64_t version;
} onnx_import;

typedef struct onnx_function {
    base_view name, domain;
    const base_view *in, *out;
    const onnx_node *nodes;
    const onnx_import *imports;
    const onnx_attribute *usual; /* attributes with values that are taken where a call has none */
    size_t n_in, n_out, n_node, n_import, n_usual;
} onnx_function;

typedef struct onnx_model {
    int64_t version; /* of the format */
    base_view producer;
    const onnx_graph *graph;
    const onnx_function *functions;
    const onnx_import *imports;
    size_t n_function, n_import;
} onnx_model;

/* BAD_FILE: broken, with the place; UNSUPPORTED: nested more than ONNX_NESTED_MAX deep, more than
 * 10 dimensions. */
beryl_status onnx_model_read(base_arena *arena, const void *data, size_t size, onnx_model *model,
                             beryl_error *error);
/* The numbers of a tensor in the file as plain little-endian ones of the type, `size` bytes;
 * false: not as many as the shape says. */
bool onnx_tensor_copy(const onnx_tensor *t, void *to, size_t size);
/* false: Beryl has no such type. */
bool onnx_type_of(uint32_t kind, base_type *type);
uint32_t onnx_kind_of(base_type type);
const char *onnx_kind_name(uint32_t kind);
/* Is it a file inside the model's folder? */
bool onnx_location_is_inside(base_view location);

#endif
