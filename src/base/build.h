/* build.h - what a build contains: everything, but for the module of the browser package, which
 * leaves out what no page can use. The one place that asks which build it is; code asks these
 * constants by plain conditions, so that every compiler sees all of it, and what they rule out is
 * not linked. */
#ifndef BASE_BUILD_H
#define BASE_BUILD_H

enum {
#ifdef __wasm__
    BUILD_IS_MODULE = 1,
#else
    BUILD_IS_MODULE = 0,
#endif
    /* Generators of CUDA C, HIP C, OpenCL C and C, with what is of use to their texts alone:
     * matrix units, wide vectors. Without: of WGSL. */
    BUILD_HAS_C_TEXTS = !BUILD_IS_MODULE,
    /* Searching for schedules and numbers, and taking what was found. */
    BUILD_HAS_TUNING = !BUILD_IS_MODULE,
    /* Files of pictures, videos, and what conversations hold themselves. Without: browsers decode
     * them, and the package gives pixels and samples. */
    BUILD_HAS_MEDIA_FILES = !BUILD_IS_MODULE,
    /* Adapters: the package opens none yet. */
    BUILD_HAS_ADAPTERS = !BUILD_IS_MODULE,
    /* Training of adapters: likewise. */
    BUILD_HAS_TRAINING = BUILD_HAS_ADAPTERS,
    /* Types of weights that no model's file has: of users' graphs alone. */
    BUILD_HAS_OWN_TYPES = !BUILD_IS_MODULE,
    /* ONNX files. */
    BUILD_HAS_ONNX = !BUILD_IS_MODULE
};

#endif
