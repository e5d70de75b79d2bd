/* thread.h - time, threads, locks, random numbers. In wasm threads run their function at once,
 * in the caller. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include "base/memory.h"

double base_time(void);          /* seconds, monotonic */
void base_sleep(double seconds); /* nothing in wasm */

typedef struct base_thread base_thread;
/* Starts fn(user). NULL: no thread to be had, or no memory; errno says why. */
base_thread *base_thread_open(base_heap *heap, void (*fn)(void *user), void *user);
void base_thread_close(base_thread *thread); /* waits for its end; NULL is fine */

typedef struct base_lock base_lock;         /* a mutex with one condition */
base_lock *base_lock_open(base_heap *heap); /* NULL: no memory */
void base_lock_close(base_lock *lock);
void base_lock_enter(base_lock *lock);
void base_lock_leave(base_lock *lock);
void base_lock_sleep(base_lock *lock); /* inside: leaves, waits for a wake, enters */
void base_lock_wake(base_lock *lock);  /* wakes all sleepers */

/* Threefry-2x32-20 (Salmon et al. 2011): counter-based, so the same on host and device
 * (tile/random.h). */
void base_threefry(const uint32_t key[2], const uint32_t counter[2], uint32_t out[2]);
uint64_t base_random_seed(void); /* from the clock and the system */
typedef struct base_random {
    uint64_t state;
} base_random; /* splitmix64, for tests and hashes */
uint64_t base_random_next(base_random *random);
double base_random_unit(base_random *random); /* [0, 1) */

#endif
