/* bounds.h - what a kernel may touch, told to AddressSanitizer; nothing in builds without it.
 *
 * While a kernel runs, the buffers that its dispatch binds are poisoned but for the ranges that
 * are bound, and so is scratch that other kernels need. Only on one thread (BERYL_THREADS=1): on
 * several, other dispatches of the wave have other ranges. Kernels see it if they are compiled
 * with -fsanitize=address as well (`make sanitize-kernels`). Not seen is who steps from one
 * bound range into another, or from an offset that is no multiple of 8 a few bytes back. */
#ifndef DEVICE_HOST_BOUNDS_H
#define DEVICE_HOST_BOUNDS_H

#include "device/host/host.h"

#if defined __SANITIZE_ADDRESS__
#define HOST_HAS_BOUNDS 1
#elif defined __has_feature
#if __has_feature(address_sanitizer)
#define HOST_HAS_BOUNDS 1
#endif
#endif

#ifdef HOST_HAS_BOUNDS
#include <sanitizer/asan_interface.h>

/* pointers more for each binding; room behind a buffer and a scratch */
enum { HOST_BOUNDS = 3, HOST_GUARD_BYTES = 4096 };

/* After the pointers of a dispatch: where each buffer begins and ends, and where its range ends. */
static inline void host_bounds_note(const host *d, host_list *list, host_command *c,
                                    const device_bindings_item *bindings) {
    c->run.n_bound = d->n_thread == 1 ? bindings->n_binding : 0;
    for (uint32_t i = 0; i < bindings->n_binding; i++) {
        const host_buffer *buffer = (const host_buffer *)bindings->ranges[i].buffer;
        list->pointers.data[list->pointers.count++] = buffer->data;
        list->pointers.data[list->pointers.count++] = buffer->data + buffer->room;
        list->pointers.data[list->pointers.count++] =
            buffer->data + bindings->ranges[i].offset + bindings->ranges[i].size;
    }
}

static inline void host_bounds_set(const host_list *list, const host_command *c,
                                   unsigned char *scratch, bool on) {
    const uint32_t n = c->run.n_bound;
    void *const *begins = list->pointers.data + c->run.pointer, *const *more = begins + n;
    for (uint32_t i = 0; i < n; i++) {
        const size_t room = (size_t)((char *)more[3 * i + 1] - (char *)more[3 * i]);
        if (on) __asan_poison_memory_region(more[3 * i], room);
        else __asan_unpoison_memory_region(more[3 * i], room);
    }
    for (uint32_t i = 0; i < n && on; i++)
        __asan_unpoison_memory_region(begins[i],
                                      (size_t)((char *)more[3 * i + 2] - (char *)begins[i]));
    if (!n || !scratch) return;
    if (on)
        __asan_poison_memory_region(scratch + c->run.scratch,
                                    list->scratch_stride - c->run.scratch);
    else __asan_unpoison_memory_region(scratch, list->scratch_stride);
}
#else
enum { HOST_BOUNDS = 0, HOST_GUARD_BYTES = 0 };
#define host_bounds_note(d, list, c, bindings) ((void)0)
#define host_bounds_set(list, c, scratch, on) ((void)0)
#endif

#endif
