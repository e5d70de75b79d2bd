/* build.h - what a build contains: everything, but for the modules of the browser package. Both
 * leave out what no page can use; the default one leaves out too what few pages use, which the full
 * one has (BERYL_MODULE_FULL, set by app/web/web.mk). The one place that asks which build it is;
 * code asks these constants by plain conditions, so that every compiler sees all of it, and what
 * they rule out is not linked. */
#ifndef BASE_BUILD_H
#define BASE_BUILD_H

enum {
#ifdef __wasm__
    BUILD_IS_MODULE = 1,
#else
    BUILD_IS_MODULE = 0,
#endif
#ifdef BERYL_MODULE_FULL
    BUILD_IS_SMALL = 0,
#else
    BUILD_IS_SMALL = BUILD_IS_MODULE,
#endif
    /* Generators of CUDA C, HIP C, OpenCL C and C, with what is of use to their texts alone:
     * matrix units, wide vectors. Without: of WGSL. */
    BUILD_HAS_C_TEXTS = !BUILD_IS_MODULE,
    /* Searching for schedules and numbers, and taking what was found. */
    BUILD_HAS_TUNING = !BUILD_IS_MODULE,
    /* Files of pictures, videos, and what conversations hold themselves. Without: browsers decode
     * them, and the package gives pixels and samples. */
    BUILD_HAS_MEDIA_FILES = !BUILD_IS_MODULE,
    BUILD_HAS_ADAPTERS = !BUILD_IS_SMALL,
    /* What adapters add, by kernels of other products: parts for the next (tile/matvec_parts.c), of
     * several vectors with these (tile/vectors.h), of prompts as terms (tile/tiled.h). */
    BUILD_HAS_JOINED_ADAPTERS = BUILD_HAS_ADAPTERS && !BUILD_IS_MODULE,
    /* Training of adapters. */
    BUILD_HAS_TRAINING = BUILD_HAS_ADAPTERS,
    /* Types of weights that no model's file has: of users' graphs alone. */
    BUILD_HAS_OWN_TYPES = !BUILD_IS_MODULE,
    /* Graphs of one's own, and ONNX files. */
    BUILD_HAS_GRAPHS = !BUILD_IS_SMALL,
    BUILD_HAS_ONNX = BUILD_HAS_GRAPHS
};

#endif
