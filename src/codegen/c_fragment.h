/* c_fragment.h - matrix fragments in plain C. */
#ifndef CODEGEN_C_FRAGMENT_H
#define CODEGEN_C_FRAGMENT_H

#include "codegen/write.h"

/* Elements of the array that holds a declaration's matrices, of their carrier type. */
uint64_t codegen_c_fragment_count(const codegen *g, uint32_t fragment);
/* A fragment op as a loop over subgroups; in: its operands' texts, which may use `at`, the
 * subgroup's first lane. */
void codegen_c_fragment(codegen *g, ir_id id, const char *const *in);
/* A lane's own pair; false: another op. */
bool codegen_c_fragment_pair(codegen *g, ir_id id);

#endif
