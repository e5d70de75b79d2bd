/* cost.h - how long a scheduled kernel should take, by counting. Good for putting candidates in
 * order, not for promises. */
#ifndef IR_COST_H
#define IR_COST_H

#include "ir/pass/pass.h"

/* What one run would do: over all lanes and groups. */
typedef struct ir_cost {
    double operations, loaded,
        stored; /* arithmetic; bytes of buffers that move, as lanes touch them */
    double shared, barriers, groups; /* words of workgroup memory; barriers of a group; groups */
    double registers;                /* words that a lane holds in arrays and fragments */
    double seconds;                  /* the estimate; HUGE_VAL: the device cannot run it */
} ir_cost;

/* params: words, as the run would have them; groups [3], NULL: as the kernel's marks say.
 * Threads: no state. NO_MEMORY alone. */
beryl_status ir_cost_of(base_heap *heap, const ir_kernel *k, const device_caps *caps,
                        const uint32_t *params, const uint32_t *groups, ir_cost *cost,
                        beryl_error *error);

#endif
