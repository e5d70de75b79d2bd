/* memory.c - buffers, uploads through a staging ring, parameters, and the buffers of a dispatch.
 *
 * What is written goes through the staging ring, since OpenCL's own blocking writes wait for all
 * that is queued. Parameters lie in constant
 * buffers of at most 64 KB (all that some devices have), which the kernel gets with an offset.
 */
#include "device/opencl/opencl.h"
#include "base/error.h"

#include <string.h>

enum { PARAM_EAGER = 4 };

/* ---- buffers --------------------------------------------------------------------------------- */

static beryl_status fill(opencl *d, opencl_memory to, uint64_t offset, uint64_t size,
                         const char *what, beryl_error *error) {
    const uint32_t zero = 0;
    return opencl_check(d,
                        d->f.EnqueueFillBuffer(d->queue, to, &zero, sizeof zero, (size_t)offset,
                                               (size_t)size, 0, NULL, NULL),
                        what, error);
}

beryl_status opencl_buffer_make(device *head, device_buffer_item *item, const char *label,
                                beryl_error *error) {
    opencl *d = (opencl *)head;
    opencl_buffer *buffer = (opencl_buffer *)item;
    beryl_status status = opencl_lost(d, error);
    if (status) return status;
    int32_t code = 0;
    buffer->handle =
        d->f.CreateBuffer(d->context, OPENCL_READ_WRITE, (size_t)item->size, NULL, &code);
    status = opencl_check(d,
                          buffer->handle ? 0
                          : code         ? code
                                         : OPENCL_NO_BUFFER_MEMORY,
                          label, error);
    /* drivers take the memory here at the latest */
    if (!status) status = fill(d, buffer->handle, 0, item->size, label, error);
    if (status && buffer->handle) d->f.ReleaseMemObject(buffer->handle);
    return status;
}

uint64_t opencl_handle(const device_buffer_item *item) {
    return (uint64_t)(uintptr_t)((const opencl_buffer *)item)->handle;
}

void opencl_buffer_drop(device *head, device_buffer_item *item) {
    opencl *d = (opencl *)head; /* what is queued keeps it alive */
    d->f.ReleaseMemObject(((opencl_buffer *)item)->handle);
}

/* ---- staging --------------------------------------------------------------------------------- */

beryl_status opencl_stage_copy(device *head, device_buffer_item *item, uint64_t offset,
                               const void *from, size_t size, beryl_error *error) {
    opencl *d = (opencl *)head;
    int32_t code = d->f.EnqueueWriteBuffer(d->queue, ((opencl_buffer *)item)->handle, 0,
                                           (size_t)offset, size, from, 0, NULL, NULL);
    return opencl_check(d, code, "upload", error);
}

beryl_status opencl_stage_mark(device *head, uint32_t stage, beryl_error *error) {
    opencl *d = (opencl *)head;
    if (d->marks[stage]) d->f.ReleaseEvent(d->marks[stage]);
    d->marks[stage] = NULL;
    int32_t code = d->f.EnqueueMarkerWithWaitList(d->queue, 0, NULL, &d->marks[stage]);
    if (!code) code = d->f.Flush(d->queue);
    return opencl_check(d, code, "upload", error);
}

beryl_status opencl_stage_passed(device *head, uint32_t stage, bool wait, beryl_error *error) {
    opencl *d = (opencl *)head;
    int32_t state = 0, code = 0;
    if (wait) code = d->f.WaitForEvents(1, &d->marks[stage]);
    if (!code)
        code = d->f.GetEventInfo(d->marks[stage], OPENCL_EVENT_STATUS, sizeof state, &state, NULL);
    if (!code && state > 0) return BERYL_PENDING;
    return opencl_check(d, code ? code : state < 0 ? OPENCL_NO_RESOURCES : 0, "upload", error);
}

size_t opencl_stage_max(const device *head) {
    (void)head;
    return DRIVER_STAGE_BYTES;
}

beryl_status opencl_stage_take(device *head, size_t size, void **memory, beryl_error *error) {
    opencl *d = (opencl *)head;
    beryl_status status = opencl_lost(d, error);
    return status ? status : driver_stage_take(&d->stages, size, memory, error);
}

beryl_status opencl_stage_commit(device *head, device_buffer_item *item, uint64_t offset,
                                 size_t size, beryl_error *error) {
    opencl *d = (opencl *)head;
    beryl_status status = opencl_lost(d, error);
    return status ? status : driver_stage_commit(&d->stages, item, offset, size, error);
}

beryl_status opencl_write(device *head, device_buffer_item *item, uint64_t offset, const void *data,
                          size_t size, beryl_error *error) {
    opencl *d = (opencl *)head;
    beryl_status status = opencl_lost(d, error);
    return status ? status : driver_stage_write(&d->stages, item, offset, data, size, error);
}

/* ---- parameters ------------------------------------------------------------------------------ */

static beryl_status params_grow(opencl *d, opencl_params *p, size_t n, beryl_error *error) {
    size_t bytes = n * d->window;
    if (p->host_bytes >= bytes) return BERYL_OK;
    if (!base_vec_reserve(d->head.heap, &p->windows, n - p->windows.count))
        return base_fail(error, BERYL_NO_MEMORY, "out of memory for parameters");
    while (p->windows.count < n) {
        int32_t code = 0;
        opencl_memory window =
            d->f.CreateBuffer(d->context, OPENCL_READ_ONLY, d->window, NULL, &code);
        beryl_status status = opencl_check(d,
                                           window ? 0
                                           : code ? code
                                                  : OPENCL_NO_BUFFER_MEMORY,
                                           "parameters", error);
        if (status) return status;
        p->windows.data[p->windows.count++] = window;
        d->head.stats.objects++;
        device_stats_bytes(&d->head, d->window);
    }
    unsigned char *host = base_heap_resize(d->head.heap, p->host, p->host_bytes, bytes);
    if (!host) return base_fail(error, BERYL_NO_MEMORY, "out of memory for parameters");
    p->host = host;
    p->host_bytes = bytes;
    return BERYL_OK;
}

beryl_status opencl_params_write(opencl *d, const device_submit_desc *desc, device_ticket ticket,
                                 opencl_params **out, beryl_error *error) {
    /* a kernel that takes no parameters has the argument all the same */
    size_t n = (desc->param_bytes + d->window - 1) / d->window, picked = OPENCL_TICKETS;
    if (!n) n = 1;
    for (size_t i = OPENCL_TICKETS; i-- > 0;) {
        if (d->params[i].until > d->done) continue;
        picked = i;
        /* the first few all alike, so that replaying with some in flight makes nothing later */
        beryl_status status = i < PARAM_EAGER ? params_grow(d, &d->params[i], n, error) : BERYL_OK;
        if (status) return status;
    }
    if (picked == OPENCL_TICKETS) return BERYL_PENDING;
    opencl_params *p = *out = &d->params[picked];
    beryl_status status = params_grow(d, p, n, error);
    if (status || !desc->param_bytes) return status;
    memcpy(p->host, desc->params, desc->param_bytes);
    p->until = ticket;
    for (size_t at = 0; at < desc->param_bytes && !status; at += d->window) {
        size_t size = desc->param_bytes - at < d->window ? desc->param_bytes - at : d->window;
        int32_t code = d->f.EnqueueWriteBuffer(d->queue, p->windows.data[at / d->window], 0, 0,
                                               size, p->host + at, 0, NULL, NULL);
        status = opencl_check(d, code, "parameters", error);
    }
    return status;
}

/* ---- bindings -------------------------------------------------------------------------------- */

beryl_status opencl_bindings_make(device *head, device_bindings_item *item, beryl_error *error) {
    opencl *d = (opencl *)head;
    beryl_status status = opencl_lost(d, error);
    ((opencl_bindings *)item)->number = ++d->n_bindings;
    return status;
}

void opencl_bindings_drop(device *head, device_bindings_item *item) {
    (void)head, (void)item;
}

/* ---- host memory ----------------------------------------------------------------------------- */

void *opencl_host_take(device *head, size_t size, beryl_error *error) {
    void *memory = base_heap_take(head->heap, size);
    if (!memory) base_fail(error, BERYL_NO_MEMORY, "out of memory for transfers");
    return memory;
}

void opencl_host_give(device *head, void *memory, size_t size) {
    base_heap_give(head->heap, memory, size);
}

void opencl_memory_fini(opencl *d) {
    base_heap *heap = d->head.heap;
    for (uint32_t i = 0; i < DRIVER_STAGE_COUNT; i++)
        if (d->marks[i]) d->f.ReleaseEvent(d->marks[i]);
    if (d->stages.device) driver_stages_fini(&d->stages);
    for (uint32_t i = 0; i < OPENCL_TICKETS; i++) {
        opencl_params *p = &d->params[i];
        if (d->tickets[i]) d->f.ReleaseEvent(d->tickets[i]);
        for (size_t k = 0; k < p->windows.count; k++) d->f.ReleaseMemObject(p->windows.data[k]);
        base_vec_fini(heap, &p->windows);
        base_heap_give(heap, p->host, p->host_bytes);
    }
    for (int i = 0; i < DEVICE_READBACK_MAX; i++) {
        driver_readback *r = &d->readbacks.items[i];
        for (uint32_t k = 0; k < r->stamp_capacity; k++)
            if (r->stamps[k]) d->f.ReleaseEvent(r->stamps[k]);
    }
    if (d->readbacks.device) driver_readbacks_fini(&d->readbacks);
}
