/* lanes.c - lanes as coroutines of one thread, each with a stack of its own.
 *
 * A lane runs until it ends or waits: at a barrier for its workgroup, at an exchange for its warp
 * of 32. It goes on once all that have not ended wait at the same thing; where none can go on, the
 * kernel is wrong and the run says so. That lanes advance in lockstep from one exchange to the next
 * is why two sets of slots are enough.
 */
#define _GNU_SOURCE /* MAP_NORESERVE */
#include "lanes.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LANES_MAX = 1024, STACK_BYTES = 256 << 10, WARP = 32 };

typedef struct three {
    uint32_t x, y, z;
} three;

typedef enum lane_state { READY, ENDED, AT_BARRIER, AT_EXCHANGE } lane_state;

typedef struct lane {
    three thread, block, size, grid; /* as in prelude.h */
    void *stack;                     /* where its stack pointer was left */
    struct lanes *owner;
    lane_state state;
    uint64_t slots[2];
    uint32_t n_exchange, index;
} lane;

struct lanes {
    lane all[LANES_MAX];
    unsigned char *stacks; // [LANES_MAX, STACK_BYTES]
    void *stack;           /* of the thread itself */
    lane *now;
    void (*kernel)(void **arguments);
    void **arguments;
    uint32_t n;
};

static _Thread_local lanes *here;

/* Leaves the stack that runs, remembers its pointer at `from`, goes on where `to` was left. */
void stand_in_switch(void **from, void *to);
#if defined __x86_64__
__asm__(".text\n.globl stand_in_switch\n.type stand_in_switch, @function\nstand_in_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nretq\n"
        ".size stand_in_switch, .-stand_in_switch\n");
enum { RETURN_AT = 6, WORDS = 8 };
#elif defined __aarch64__
__asm__(".text\n.globl stand_in_switch\n.type stand_in_switch, %function\nstand_in_switch:\n"
        "sub sp, sp, #176\n"
        "stp x19, x20, [sp, #0]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\n"
        "stp x25, x26, [sp, #48]\nstp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
        "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\n"
        "stp d14, d15, [sp, #144]\n"
        "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
        "ldp x19, x20, [sp, #0]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\n"
        "ldp x25, x26, [sp, #48]\nldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
        "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\n"
        "ldp d14, d15, [sp, #144]\n"
        "add sp, sp, #176\nret\n.size stand_in_switch, .-stand_in_switch\n");
enum { RETURN_AT = 11, WORDS = 22 };
#else
#error "the stand-in's lanes are written for x86-64 and AArch64"
#endif

static void wait_as(lane *self, lane_state state) {
    self->state = state;
    stand_in_switch(&self->stack, self->owner->stack);
}

/* A lane lives as long as its thread and runs one workgroup after the other. */
static void live(void) {
    for (;;) {
        lane *self = here->now;
        here->kernel(here->arguments);
        wait_as(self, ENDED);
    }
}

lanes *lanes_open(void) {
    lanes *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->stacks = mmap(NULL, (size_t)LANES_MAX * STACK_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (l->stacks == MAP_FAILED) return free(l), NULL;
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        /* As if it had been left just before its first instruction. */
        void **top = (void **)(void *)(l->stacks + (size_t)(i + 1) * STACK_BYTES);
        void (*entry)(void) = live;
        void **words = top - WORDS - (WORDS & 1);
        memcpy(&words[RETURN_AT], &entry, sizeof entry);
        l->all[i].stack = words;
        l->all[i].owner = l;
        l->all[i].index = i;
    }
    return l;
}

void lanes_close(lanes *l) {
    if (!l) return;
    munmap(l->stacks, (size_t)LANES_MAX * STACK_BYTES);
    free(l);
}

/* ---- what a kernel calls --------------------------------------------------------------------- */

static void *table_lane(void) {
    return here->now;
}

static void table_barrier(void) {
    wait_as(here->now, AT_BARRIER);
}

static uint64_t table_exchange(uint64_t value, int kind, unsigned with, unsigned width) {
    lane *self = here->now;
    uint32_t parity = self->n_exchange++ & 1, warp = self->index / WARP * WARP;
    self->slots[parity] = value;
    wait_as(self, AT_EXCHANGE);
    uint32_t at = self->index % WARP, first = at / width * width, from = at;
    if (kind == 0) from = at ^ with;
    if (kind == 1) from = first + with % width;
    if (kind == 2) from = at + with;
    if (kind == 3) from = at - with;
    if (kind == 4) {
        uint64_t votes = 0;
        for (uint32_t i = 0; i < WARP && warp + i < here->n; i++)
            votes |= (here->all[warp + i].slots[parity] & 1) << i;
        return votes;
    }
    bool inside = from >= first && from < first + width && warp + from < here->n;
    return inside ? here->all[warp + from].slots[parity] : value;
}

static struct {
    void *(*lane)(void);
    void (*barrier)(void);
    uint64_t (*exchange)(uint64_t value, int kind, unsigned with, unsigned width);
} table = {table_lane, table_barrier, table_exchange};
void *const lanes_table = &table;

/* ---- workgroups ------------------------------------------------------------------------------ */

/* Makes those ready whose partners have all arrived. False: nobody. */
static bool release(lanes *l) {
    bool some = false, all_at_barrier = true;
    for (uint32_t warp = 0; warp < l->n; warp += WARP) {
        bool together = true;
        for (uint32_t i = warp; i < l->n && i < warp + WARP; i++) {
            together &= l->all[i].state == AT_EXCHANGE || l->all[i].state == ENDED;
            all_at_barrier &= l->all[i].state == AT_BARRIER || l->all[i].state == ENDED;
        }
        for (uint32_t i = warp; together && i < l->n && i < warp + WARP; i++)
            if (l->all[i].state == AT_EXCHANGE) l->all[i].state = READY, some = true;
    }
    for (uint32_t i = 0; all_at_barrier && i < l->n; i++)
        if (l->all[i].state == AT_BARRIER) l->all[i].state = READY, some = true;
    return some;
}

static bool run_group(lanes *l) {
    for (uint32_t i = 0; i < l->n; i++) l->all[i].state = READY, l->all[i].n_exchange = 0;
    do {
        for (uint32_t i = 0; i < l->n; i++) {
            if (l->all[i].state != READY) continue;
            l->now = &l->all[i];
            stand_in_switch(&l->stack, l->now->stack);
        }
    } while (release(l));
    for (uint32_t i = 0; i < l->n; i++)
        if (l->all[i].state != ENDED) return false;
    return true;
}

bool lanes_run(lanes *l, void (*kernel)(void **arguments), void **arguments,
               const uint32_t groups[3], const uint32_t size[3]) {
    here = l;
    l->kernel = kernel;
    l->arguments = arguments;
    l->n = size[0] * size[1] * size[2];
    if (!l->n || l->n > LANES_MAX) return false;
    for (uint32_t i = 0; i < l->n; i++) {
        l->all[i].thread = (three){i % size[0], i / size[0] % size[1], i / size[0] / size[1]};
        l->all[i].size = (three){size[0], size[1], size[2]};
        l->all[i].grid = (three){groups[0], groups[1], groups[2]};
    }
    for (uint32_t z = 0; z < groups[2]; z++)
        for (uint32_t y = 0; y < groups[1]; y++)
            for (uint32_t x = 0; x < groups[0]; x++) {
                for (uint32_t i = 0; i < l->n; i++) l->all[i].block = (three){x, y, z};
                if (!run_group(l)) return false;
            }
    return true;
}
