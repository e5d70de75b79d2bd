/* c_fragment.h - matrix fragments in plain C. */
#ifndef CODEGEN_C_FRAGMENT_H
#define CODEGEN_C_FRAGMENT_H

#include "codegen/write.h"

/* Elements of the array that holds a declaration's matrices, of their carrier type. */
uint64_t codegen_c_fragment_count(const codegen *g, uint32_t fragment);
/* A fragment op as a loop over subgroups; in: its operands' texts, which may use `at`, the
 * subgroup's first lane. */
void codegen_c_fragment(codegen *g, ir_id id, const char *const *in);
/* fragment_fill, _load, _store, _mma, _multiply */
bool codegen_c_is_fragment(const ir_instruction *i);
/* A lane's own pair, and where a lane is a workgroup all that codegen_c_fragment does; false:
 * another op. */
bool codegen_c_fragment_lane(codegen *g, ir_id id);
/* The kernel's fragments are what a processor's tiles hold: then it says so with tiles_begin and
 * tiles_end, and holds them there where the processor has tiles. */
bool codegen_c_tiles(const codegen *g);

#endif
