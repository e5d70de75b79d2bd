/* rig.h - a device with its heap and last error, and the few steps that every test of one needs. */
#ifndef TESTS_RIG_H
#define TESTS_RIG_H

#include "rig_stand_in.h"
#include "test.h"

#include "device/device.h"
#include "plan/exec.h"

typedef struct rig {
    base_heap heap;
    device *d;
    beryl_error error;
} rig;

/* False: the case was skipped (no such device) or failed. */
bool rig_open(test *t, rig *r, const char *choice);
void rig_close(test *t, rig *r); /* also checks that all memory came back */
device_buffer rig_buffer(test *t, rig *r, uint64_t size, const void *data); /* NULL: zeros */
/* Wait, and leave the processor to those who compile. */
beryl_status rig_compiled(rig *r, device_program program);
beryl_status rig_exec_compiled(graph_exec *exec, beryl_error *error);
beryl_status rig_submit(rig *r, const device_command *commands, size_t n, const void *params,
                        size_t param_bytes, device_ticket *ticket);
/* Waits for the n-th fetch and copies it; the results are dropped. */
beryl_status rig_take(rig *r, device_ticket ticket, uint32_t n, void *to, size_t size);

device_command rig_dispatch(device_program program, device_bindings bindings, uint32_t groups,
                            uint32_t param_offset);
device_command rig_copy(device_buffer from, uint64_t from_offset, device_buffer to,
                        uint64_t to_offset, uint64_t size);
/* A FILL or a FETCH. */
device_command rig_range(device_command_kind kind, device_buffer buffer, uint64_t offset,
                         uint64_t size);

/* One kernel in any of the languages: `body` sees b0 ... (u32 arrays, the last one to write to),
 * params[], and the words AT (x of the invocation), LANE, GROUP_X .. GROUP_Z, BARRIER, CELLS;
 * before it uses cells[64] of workgroup memory, U32 for a variable's type, ADD(&b0[i], n), and
 * EACH_LANE before whatever lanes do between barriers. Conditions have braces. Good until the
 * next call. */
const char *rig_text(device_language language, const char *entry, uint32_t n_binding,
                     uint32_t n_param, const char *body);

/* What the process holds; zeros where the system does not tell. */
typedef struct rig_process {
    uint64_t bytes; /* resident */
    uint32_t files, maps;
} rig_process;
rig_process rig_process_now(void);
/* Makes and drops 1,000 programs (400 where make test-all is not asked for), the i-th of which
 * `desc` describes (its text may be used again for the next); three of four when they are
 * compiled, one while it waits. Checks that nothing stays (BERYL_TEST_ROUNDS: says what): not in
 * the device, and from the 200th on no file, mapping, or memory in the process beyond what
 * allocators keep. */
void rig_thousand(test *t, rig *r, device_program_desc (*desc)(void *user, uint32_t i), void *user);

/* An allocator that fails after `left` calls. */
typedef struct rig_failing {
    uint64_t left;
} rig_failing;
void *rig_failing_resize(void *user, void *memory, size_t old_size, size_t new_size);

#endif
