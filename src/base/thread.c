/* thread.c - clock, threads, locks, random numbers.
 *
 * One of the three places that may call the system (POSIX threads). wasm has one thread: there a
 * thread runs its function to the end before base_thread_open returns, and a lock guards nothing.
 */
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE /* getentropy */
#include "base/thread.h"

#include <string.h>
#include <time.h>
#include <unistd.h>
#ifndef __wasm__
#include <errno.h>
#include <pthread.h>
#include <sys/random.h>
#endif

double base_time(void) {
    struct timespec ts = {0};
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
}

#ifdef __wasm__

void base_sleep(double seconds) {
    (void)seconds;
}

struct base_thread {
    base_heap *heap; /* borrowed */
};

base_thread *base_thread_open(base_heap *heap, void (*fn)(void *user), void *user) {
    base_thread *thread = base_heap_take(heap, sizeof *thread);
    if (!thread) return NULL;
    thread->heap = heap;
    fn(user);
    return thread;
}

void base_thread_close(base_thread *thread) {
    if (thread) base_heap_give(thread->heap, thread, sizeof *thread);
}

struct base_lock {
    base_heap *heap; /* borrowed */
};

base_lock *base_lock_open(base_heap *heap) {
    base_lock *lock = base_heap_take(heap, sizeof *lock);
    if (lock) lock->heap = heap;
    return lock;
}

void base_lock_close(base_lock *lock) {
    if (lock) base_heap_give(lock->heap, lock, sizeof *lock);
}

void base_lock_enter(base_lock *lock) {
    (void)lock;
}

void base_lock_leave(base_lock *lock) {
    (void)lock;
}

void base_lock_sleep(base_lock *lock) {
    (void)lock;
}

void base_lock_wake(base_lock *lock) {
    (void)lock;
}

#else

void base_sleep(double seconds) {
    if (!(seconds > 0)) return;
    if (seconds > 1e6) seconds = 1e6;
    struct timespec ts = {.tv_sec = (time_t)seconds};
    ts.tv_nsec = (long)((seconds - (double)ts.tv_sec) * 1e9);
    nanosleep(&ts, NULL); /* a signal may cut it short: whoever sleeps also polls */
}

struct base_thread {
    base_heap *heap; /* borrowed */
    void (*fn)(void *user);
    void *user;
    pthread_t id;
};

static void *thread_main(void *user) {
    base_thread *thread = user;
    thread->fn(thread->user);
    return NULL;
}

base_thread *base_thread_open(base_heap *heap, void (*fn)(void *user), void *user) {
    base_thread *thread = base_heap_take(heap, sizeof *thread);
    if (!thread) return NULL;
    *thread = (base_thread){.heap = heap, .fn = fn, .user = user};
    const int cause = pthread_create(&thread->id, NULL, thread_main, thread);
    if (!cause) return thread;
    base_heap_give(heap, thread, sizeof *thread);
    errno = cause;
    return NULL;
}

void base_thread_close(base_thread *thread) {
    if (!thread) return;
    pthread_join(thread->id, NULL);
    base_heap_give(thread->heap, thread, sizeof *thread);
}

struct base_lock {
    base_heap *heap; /* borrowed */
    pthread_mutex_t mutex;
    pthread_cond_t condition;
};

base_lock *base_lock_open(base_heap *heap) {
    base_lock *lock = base_heap_take(heap, sizeof *lock);
    if (!lock) return NULL;
    lock->heap = heap;
    if (pthread_mutex_init(&lock->mutex, NULL)) goto fail;
    if (pthread_cond_init(&lock->condition, NULL)) {
        pthread_mutex_destroy(&lock->mutex);
        goto fail;
    }
    return lock;
fail:
    base_heap_give(heap, lock, sizeof *lock);
    return NULL;
}

void base_lock_close(base_lock *lock) {
    if (!lock) return;
    pthread_cond_destroy(&lock->condition);
    pthread_mutex_destroy(&lock->mutex);
    base_heap_give(lock->heap, lock, sizeof *lock);
}

void base_lock_enter(base_lock *lock) {
    pthread_mutex_lock(&lock->mutex);
}

void base_lock_leave(base_lock *lock) {
    pthread_mutex_unlock(&lock->mutex);
}

void base_lock_sleep(base_lock *lock) {
    pthread_cond_wait(&lock->condition, &lock->mutex);
}

void base_lock_wake(base_lock *lock) {
    pthread_cond_broadcast(&lock->condition);
}

#endif

/* ---- random numbers */

static uint32_t rotate(uint32_t x, int by) {
    return x << by | x >> (32 - by);
}

void base_threefry(const uint32_t key[2], const uint32_t counter[2], uint32_t out[2]) {
    static const int by[8] = {13, 15, 26, 6, 17, 29, 16, 24};
    const uint32_t schedule[3] = {key[0], key[1], 0x1bd11bda ^ key[0] ^ key[1]};
    uint32_t x = counter[0] + schedule[0], y = counter[1] + schedule[1];
    for (uint32_t round = 0; round < 20; round++) {
        x += y;
        y = rotate(y, by[round % 8]) ^ x;
        if (round % 4 == 3) {
            uint32_t step = round / 4 + 1;
            x += schedule[step % 3];
            y += schedule[(step + 1) % 3] + step;
        }
    }
    out[0] = x;
    out[1] = y;
}

uint64_t base_random_next(base_random *random) {
    uint64_t z = random->state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

double base_random_unit(base_random *random) {
    return (double)(base_random_next(random) >> 11) * 0x1p-53;
}

uint64_t base_random_seed(void) {
    uint64_t system = 0;
    if (getentropy(&system, sizeof system))
        system = (uint64_t)(uintptr_t)&system; /* the clock remains */
    struct timespec ts = {0};
    clock_gettime(CLOCK_REALTIME, &ts);
    base_random random = {system ^ (uint64_t)ts.tv_sec << 30 ^ (uint64_t)ts.tv_nsec};
    return base_random_next(&random);
}
