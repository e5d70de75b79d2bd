/* memory.c - buffers, staging and readback in pinned memory, and what waits to be given back. */
#include "device/cuda/cuda.h"
#include "base/error.h"

/* ---- what waits to be given back ------------------------------------------------------------- */

static void give_back(cuda *d, const cuda_garbage *garbage) {
    if (garbage->memory) d->f.memory_give(garbage->memory);
    if (garbage->module) d->f.module_drop(garbage->module);
}

void cuda_garbage_collect(cuda *d, bool all) {
    size_t n = 0;
    for (size_t i = 0; i < d->garbage.count; i++) {
        if (all || d->garbage.data[i].until <= d->done) give_back(d, &d->garbage.data[i]);
        else d->garbage.data[n++] = d->garbage.data[i];
    }
    d->garbage.count = n;
}

void cuda_garbage_add(cuda *d, cuda_address memory, cuda_module module) {
    cuda_garbage one = {.until = d->issued + d->loose, .memory = memory, .module = module};
    cuda_garbage *kept = one.until > d->done && !atomic_load(&d->lost)
                             ? base_vec_add(d->head.heap, &d->garbage)
                             : NULL;
    if (kept) {
        *kept = one;
        return;
    }
    if (one.until > d->done) d->f.stream_wait(d->stream); /* no memory to remember it */
    give_back(d, &one);
}

/* ---- buffers --------------------------------------------------------------------------------- */

uint64_t cuda_handle(const device_buffer_item *item) {
    return ((const cuda_buffer *)item)->at;
}

beryl_status cuda_buffer_make(device *head, device_buffer_item *item, const char *label,
                              beryl_error *error) {
    cuda *d = (cuda *)head;
    cuda_buffer *buffer = (cuda_buffer *)item;
    beryl_status status = cuda_lost(d, error);
    if (status) return status;
    if (item->size > SIZE_MAX / 2)
        return base_fail(error, BERYL_NO_DEVICE_MEMORY, "%s: out of device memory", label);
    int code = d->f.memory_take(&buffer->at, (size_t)item->size);
    if (code == CUDA_NO_MEMORY && d->garbage.count) {
        code = d->f.stream_wait(d->stream);
        cuda_garbage_collect(d, true);
        if (!code) code = d->f.memory_take(&buffer->at, (size_t)item->size);
    }
    status = cuda_check(d, code, label, error);
    if (status) return status;
    code = d->f.fill(buffer->at, 0, (size_t)item->size / 4, d->stream);
    status = cuda_check(d, code, label, error);
    if (status) d->f.memory_give(buffer->at);
    else d->loose = true;
    return status;
}

void cuda_buffer_drop(device *head, device_buffer_item *item) {
    cuda_garbage_add((cuda *)head, ((cuda_buffer *)item)->at, NULL);
}

/* ---- staging --------------------------------------------------------------------------------- */

static void *host_take(device *head, size_t size, beryl_error *error) {
    cuda *d = (cuda *)head;
    void *memory = NULL;
    int code = d->f.host_take(&memory, size, CUDA_HOST_PORTABLE);
    if (code == CUDA_NO_MEMORY) base_fail(error, BERYL_NO_MEMORY, "out of pinned host memory");
    else cuda_check(d, code, "host memory", error);
    return code ? NULL : memory;
}

static void host_give(device *head, void *memory, size_t size) {
    (void)size;
    ((cuda *)head)->f.host_give(memory);
}

static beryl_status stage_copy(device *head, device_buffer_item *item, uint64_t offset,
                               const void *from, size_t size, beryl_error *error) {
    cuda *d = (cuda *)head;
    d->loose = true;
    return cuda_check(d, d->f.to_device(((cuda_buffer *)item)->at + offset, from, size, d->stream),
                      "upload", error);
}

static beryl_status stage_mark(device *head, uint32_t stage, beryl_error *error) {
    cuda *d = (cuda *)head;
    int code = d->marks[stage]
                   ? 0
                   : d->f.event_make(&d->marks[stage], CUDA_EVENT_BLOCKING | CUDA_EVENT_NO_TIMING);
    if (code) d->marks[stage] = NULL;
    if (!code) code = d->f.event_record(d->marks[stage], d->stream);
    return cuda_check(d, code, "upload", error);
}

static beryl_status stage_passed(device *head, uint32_t stage, bool wait, beryl_error *error) {
    cuda *d = (cuda *)head;
    int code = wait ? d->f.event_wait(d->marks[stage]) : d->f.event_query(d->marks[stage]);
    return code == CUDA_NOT_READY ? BERYL_PENDING : cuda_check(d, code, "upload", error);
}

size_t cuda_stage_max(const device *head) {
    (void)head;
    return DRIVER_STAGE_BYTES;
}

beryl_status cuda_stage_take(device *head, size_t size, void **memory, beryl_error *error) {
    cuda *d = (cuda *)head;
    beryl_status status = cuda_lost(d, error);
    if (status) return status;
    return driver_stage_take(&d->stages, size, memory, error);
}

beryl_status cuda_stage_commit(device *head, device_buffer_item *item, uint64_t offset, size_t size,
                               beryl_error *error) {
    cuda *d = (cuda *)head;
    beryl_status status = cuda_lost(d, error);
    if (status) return status;
    return driver_stage_commit(&d->stages, item, offset, size, error);
}

beryl_status cuda_write(device *head, device_buffer_item *item, uint64_t offset, const void *data,
                        size_t size, beryl_error *error) {
    cuda *d = (cuda *)head;
    beryl_status status = cuda_lost(d, error);
    if (status) return status;
    return driver_stage_write(&d->stages, item, offset, data, size, error);
}

/* ---- bindings -------------------------------------------------------------------------------- */

beryl_status cuda_bindings_make(device *head, device_bindings_item *item, beryl_error *error) {
    cuda_bindings *bindings = (cuda_bindings *)item;
    for (uint32_t i = 0; i < item->n_binding; i++)
        bindings->at[i] = ((cuda_buffer *)item->ranges[i].buffer)->at + item->ranges[i].offset;
    return cuda_lost((cuda *)head, error);
}

void cuda_bindings_drop(device *head, device_bindings_item *item) {
    (void)head, (void)item;
}

/* ---- all ------------------------------------------------------------------------------------- */

void cuda_memory_init(cuda *d) {
    d->readbacks = (driver_readbacks){.device = &d->head, .take = host_take, .give = host_give};
    d->stages = (driver_stages){.device = &d->head,
                                .take = host_take,
                                .give = host_give,
                                .copy = stage_copy,
                                .mark = stage_mark,
                                .passed = stage_passed};
}

void cuda_memory_fini(cuda *d) {
    cuda_garbage_collect(d, true);
    base_vec_fini(d->head.heap, &d->garbage);
    for (int i = 0; i < DEVICE_READBACK_MAX; i++) {
        driver_readback *r = &d->readbacks.items[i];
        for (uint32_t k = 0; k < r->stamp_capacity; k++)
            if (r->stamps[k]) d->f.event_drop(r->stamps[k]);
    }
    driver_readbacks_fini(&d->readbacks);
    driver_stages_fini(&d->stages);
    for (int i = 0; i < DRIVER_STAGE_COUNT; i++)
        if (d->marks[i]) d->f.event_drop(d->marks[i]);
}
