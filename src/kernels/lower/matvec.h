/* matvec.h - which form of the matvec kernel serves a product: a pure function of types,
 * shapes and the device, apart from the lowering so that tests and benchmarks can call it, or
 * choose otherwise. */
#ifndef KERNELS_LOWER_MATVEC_H
#define KERNELS_LOWER_MATVEC_H

#include "kernels/lower/request.h"
#include "tile/matvec_form.h"

/* The vectors would be rounded to int8. */
bool matvec_rounds(const device_caps *caps, const matvec_shape *shape);
/* false: no form fits (vectors too long for workgroup memory where they must lie there). */
bool matvec_choose(const device_caps *caps, const matvec_shape *shape, matvec_choice *out);
/* Options and the parts x, prologue (unless the caller brings one), reduce, reader and body.
 * prefixes: of the segments, NULL for one without. */
void matvec_request(lower_request *r, const matvec_shape *shape, const matvec_choice *choice,
                    const char *const *prefixes);
/* The forms for a batch of vectors (kernels/lower/matvec_batch.c), which matvec_choose and
 * matvec_request ask and use. choose: false where there is none, or not enough to do. best:
 * whatever there is to do. fits: the device and the shape allow it. */
bool matvec_batch_choose(const device_caps *caps, const matvec_shape *shape, matvec_choice *out);
bool matvec_batch_best(const device_caps *caps, const matvec_shape *shape, matvec_choice *out);
bool matvec_batch_fits(const device_caps *caps, const matvec_shape *shape,
                       const matvec_choice *choice);
void matvec_batch_request(lower_request *r, const matvec_shape *shape, const matvec_choice *choice,
                          const char *const *prefixes);
/* Invocations that sum through shuffles: at most the subgroup's size. */
uint32_t matvec_span(const device_caps *caps, const matvec_choice *choice);
/* Rows of one tile. */
uint32_t matvec_tile(const matvec_choice *choice);

/* "read_q4_k"; `any` for plain values whose rows do not begin at 16 bytes; NULL: no reader. */
const char *matvec_reader(base_type type, bool any);
uint32_t matvec_reader_shift(base_type type); /* log2 of a chunk's elements */

#endif
