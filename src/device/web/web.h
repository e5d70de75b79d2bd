/* web.h - what the C side and the JavaScript side (app/web/src/gpu.ts) of the browser's device
 * agree on.
 *
 * Everything that C wants done lies as 32-bit words in one block, which gpu_run hands over: an
 * operation's number, then its words; 64-bit sizes and offsets as two words, the low one first;
 * handles are numbers that are never given twice. Pointers are addresses in the module's memory,
 * read while gpu_run lasts; only END's are kept, until the state that it names has changed. What
 * JavaScript has to tell is written into `web_shared`, whose address gpu_open gets, but for the end
 * of a compile, which is a call of the module's gpu_compiled.
 */
#ifndef DEVICE_WEB_WEB_H
#define DEVICE_WEB_WEB_H

#include "device/device.h"

/* name, words behind the number. gpu.ts has the same list, in the same order, from 1. */
#define WEB_OP_LIST(X)                                                                             \
    X(BUFFER_MAKE, 3)   /* buffer, size 2 */                                                       \
    X(BUFFER_DROP, 1)   /* buffer */                                                               \
    X(PROGRAM_MAKE, 10) /* program, n_binding, written, has parameters, features (1 f16, 2       \
                            subgroups), text, its size, entry, its size, label (NUL at its end) */ \
    X(PROGRAM_DROP, 1)  /* program */                                                              \
    X(BINDINGS_MAKE,                                                                               \
      3) /* bindings, n_binding, written; then for each: buffer, offset 2, size 2 */               \
    X(BINDINGS_DROP, 1) /* bindings */                                                             \
    X(SETTLE, 1)     /* number: into `settled` once it is known whether all buffers are there */   \
    X(WRITE, 5)      /* buffer, offset 2, address, size: into `uploaded` once it is done */        \
    X(WRITE_HERE, 4) /* buffer, offset 2, size; then the bytes */                                  \
    X(FLUSH, 0)      /* writes that are put off are waited for */                                  \
    X(BEGIN, 4)      /* address of parameters, their size, n_stamp, bytes of results */            \
    X(DISPATCH, 6)   /* program, bindings, parameter offset, groups 3 */                           \
    X(COPY, 8)       /* from, to, from offset 2, to offset 2, size 2 */                            \
    X(FILL, 5)       /* buffer, offset 2, size 2 */                                                \
    X(FETCH, 6)      /* buffer, offset 2, size 2, offset in the results */                         \
    X(STAMP, 0)                                                                                    \
    X(END, 4) /* ticket, address of the state (0: no results), address for the results, \
                            offset of the stamps in them */          \
    X(CLOSE, 0)

typedef enum web_op {
    WEB_NONE,
#define X(name, n) WEB_##name,
    WEB_OP_LIST(X)
#undef X
} web_op;

typedef enum web_fault { WEB_NO_FAULT, WEB_INVALID, WEB_NO_ROOM, WEB_LOST } web_fault;

enum { WEB_TEXT = 1000, WEB_FACTS = 4096, WEB_READBACK = 6, WEB_BLOCK = 32 << 10 /* words */ };

typedef struct web_shared { /* written by JavaScript */
    double done;            /* the last ticket that is done, with its results */
    double uploaded;        /* bytes of WRITEs that are done */
    uint32_t fault;         /* web_fault; stays */
    uint32_t text_size;
    char text[WEB_TEXT]; /* of the fault */
    uint32_t told_size;
    char told[WEB_TEXT]; /* of a compile, for gpu_compiled; of a SETTLE, where `full` */
    uint32_t full;       /* buffers before the last SETTLE have no memory */
    double settled;      /* number of the last SETTLE that is answered */
} web_shared;

typedef enum web_state { WEB_UNUSED, WEB_WAITING, WEB_READY, WEB_FAILED } web_state;

typedef struct web_buffer {
    device_buffer_item head;
    uint32_t handle;
} web_buffer;

typedef struct web_program {
    device_program_item head;
    uint32_t handle;
    web_state state;
    beryl_error error;
} web_program;

typedef struct web_bindings {
    device_bindings_item head;
    uint32_t handle;
} web_bindings;

typedef struct web_readback {
    device_ticket ticket; /* 0: nobody wants the results */
    uint64_t number;      /* in the order of submits */
    /* web_state; JavaScript makes it READY or FAILED, and may write until then */
    uint32_t state;
    uint32_t n_stamp;
    char *memory; // [capacity], owned
    size_t capacity, stamps_at;
    base_vec(struct web_span { size_t at, size; }) fetches;
} web_readback;

typedef struct web {
    device head;
    web_shared shared;
    uint32_t *block; // [WEB_BLOCK], owned
    size_t n_word;
    uint32_t handles; /* given so far */
    web_readback readbacks[WEB_READBACK];
    uint64_t n_readback;
    char *stage; // [stage_size], owned
    size_t stage_size, stage_used, stage_at;
    double sent; /* bytes of WRITEs */
    double n_settle;
    bool settling; /* asked, and the answer not read */
} web;

#endif
