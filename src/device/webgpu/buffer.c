/* buffer.c - buffers, uploads through a staging ring, and readbacks.
 *
 * Staging: a few large mapped buffers in turn. Pieces are filled in place and committed; the copies
 * of one staging buffer are submitted together, when it is full or before the next submit or a
 * write to the same buffer, so that everything keeps the order of the calls. Then it is mapped
 * again, which ends when the copies are done. Readback: each submit with fetches or stamps takes
 * one mappable buffer, that is mapped behind the submit and stays so until it is dropped or its
 * turn comes again. Both rings grow on first use only.
 */
#include "device/webgpu/webgpu.h"
#include "base/error.h"

#include <string.h>

enum {
    PIECE_ALIGN = 256,
    WRITE_FLUSH = 64 << 20, /* bytes of writes that may wait in wgpu's own memory for a submit */
    READBACK_MIN = 4096,
    READBACK_EAGER =
        4 << 20 /* up to this size all free readbacks grow at once: later submits make nothing */
};

static void on_map(WGPUMapAsyncStatus status, WGPUStringView message, void *user1, void *user2) {
    (void)message, (void)user2;
    *(webgpu_map_state *)user1 =
        status == WGPUMapAsyncStatus_Success ? WEBGPU_MAPPED : WEBGPU_MAP_FAILED;
}

static void map(webgpu *d, WGPUBuffer handle, WGPUMapMode mode, uint64_t size,
                webgpu_map_state *state) {
    *state = WEBGPU_MAPPING;
    WGPUBufferMapCallbackInfo info = {
        .mode = WGPUCallbackMode_AllowProcessEvents, .callback = on_map, .userdata1 = state};
    d->f.BufferMapAsync(handle, mode, 0, (size_t)size, info);
}

/* ---- buffers --------------------------------------------------------------------------------- */

static WGPUBuffer create(webgpu *d, uint64_t size, WGPUBufferUsage usage, bool mapped,
                         const char *label, beryl_error *error) {
    WGPUBufferDescriptor desc = {
        .label = webgpu_text(label), .usage = usage, .size = size, .mappedAtCreation = mapped};
    if (webgpu_lost(d, error)) return NULL;
    webgpu_begin(d);
    WGPUBuffer handle = d->f.DeviceCreateBuffer(d->device, &desc);
    beryl_status status = webgpu_end(d, label, error);
    if (!status && handle) return handle;
    if (!status)
        base_fail(error, BERYL_NO_DEVICE_MEMORY, "%s: no buffer of %llu bytes", label,
                  (unsigned long long)size);
    if (handle) d->f.BufferRelease(handle);
    return NULL;
}

static void destroy(webgpu *d, WGPUBuffer handle) {
    if (!handle) return;
    webgpu_hand_over(d, NULL);
    d->f.BufferDestroy(handle);
    d->f.BufferRelease(handle);
}

static WGPUBuffer create_own(webgpu *d, uint64_t size, WGPUBufferUsage usage, bool mapped,
                             const char *label, beryl_error *error) {
    WGPUBuffer handle = create(d, size, usage, mapped, label, error);
    if (!handle) return NULL;
    d->head.stats.objects++;
    device_stats_bytes(&d->head, (int64_t)size);
    return handle;
}

WGPUBuffer webgpu_buffer_own(webgpu *d, uint64_t size, WGPUBufferUsage usage, const char *label,
                             beryl_error *error) {
    return create_own(d, size, usage, false, label, error);
}

void webgpu_buffer_own_drop(webgpu *d, WGPUBuffer handle, uint64_t size) {
    if (!handle) return;
    device_stats_bytes(&d->head, -(int64_t)size);
    destroy(d, handle);
}

/* The status for a NULL of the above, whose error may not have been asked for. */
static beryl_status refused(const webgpu *d, const beryl_error *error) {
    if (atomic_load(&d->lost)) return BERYL_DEVICE_LOST;
    return error && error->code ? error->code : BERYL_NO_DEVICE_MEMORY;
}

beryl_status webgpu_buffer_make(device *head, device_buffer_item *item, const char *label,
                                beryl_error *error) {
    webgpu *d = (webgpu *)head;
    beryl_error why = {0};
    WGPUBuffer handle = create(
        d, item->size, WGPUBufferUsage_Storage | WGPUBufferUsage_CopySrc | WGPUBufferUsage_CopyDst,
        false, label, &why);
    ((webgpu_buffer *)item)->handle = handle;
    if (handle) return BERYL_OK;
    if (error) *error = why;
    return refused(d, &why);
}

static bool has_copies(const webgpu *d, const webgpu_buffer *buffer) {
    for (uint32_t i = 0; i < d->n_copy; i++)
        if (d->copies[i].to == buffer) return true;
    return false;
}

uint64_t webgpu_handle(const device_buffer_item *item) {
    return (uint64_t)(uintptr_t)((const webgpu_buffer *)item)->handle;
}

void webgpu_buffer_drop(device *head, device_buffer_item *item) {
    webgpu *d = (webgpu *)head;
    webgpu_buffer *buffer = (webgpu_buffer *)item;
    uint32_t n = 0; /* what nobody can read any more need not be copied */
    for (uint32_t i = 0; i < d->n_copy; i++)
        if (d->copies[i].to != buffer) d->copies[n++] = d->copies[i];
    d->n_copy = n;
    destroy(d, buffer->handle);
}

beryl_status webgpu_write(device *head, device_buffer_item *item, uint64_t offset, const void *data,
                          size_t size, beryl_error *error) {
    webgpu *d = (webgpu *)head;
    webgpu_buffer *buffer = (webgpu_buffer *)item;
    beryl_status status = webgpu_lost(d, error);
    webgpu_hand_over(d, NULL);
    if (!status && has_copies(d, buffer)) status = webgpu_stage_flush(d, error);
    for (size_t at = 0; at < size && !status;) {
        size_t piece = size - at < WEBGPU_STAGE_BYTES ? size - at : WEBGPU_STAGE_BYTES;
        webgpu_begin(d);
        d->f.QueueWriteBuffer(d->queue, buffer->handle, offset + at, (const char *)data + at,
                              piece);
        status = webgpu_end(d, "write", error);
        at += piece;
        d->written += piece;
        if (!status && d->written > WRITE_FLUSH) {
            d->written = 0;
            d->f.QueueSubmitForIndex(d->queue, 0, NULL);
            d->f.DevicePoll(d->device, false, NULL);
        }
    }
    return status;
}

/* ---- staging --------------------------------------------------------------------------------- */

size_t webgpu_stage_max(const device *head) {
    (void)head;
    return WEBGPU_STAGE_BYTES;
}

beryl_status webgpu_stage_flush(webgpu *d, beryl_error *error) {
    webgpu_stage *stage = &d->stages[d->stage];
    if (!d->n_copy) {
        if (stage->state == WEBGPU_MAPPED) stage->used = 0;
        return BERYL_OK;
    }
    beryl_status status = webgpu_lost(d, error);
    if (status) return status;
    webgpu_begin(d);
    d->f.BufferUnmap(stage->handle);
    stage->memory = NULL;
    stage->used = 0;
    WGPUCommandEncoder encoder = d->f.DeviceCreateCommandEncoder(d->device, NULL);
    for (uint32_t i = 0; i < d->n_copy; i++) {
        const webgpu_stage_copy *copy = &d->copies[i];
        d->f.CommandEncoderCopyBufferToBuffer(encoder, stage->handle, copy->from, copy->to->handle,
                                              copy->offset, copy->size);
    }
    d->n_copy = 0;
    WGPUCommandBuffer commands;
    status = webgpu_finish(d, encoder, "upload", &commands, error);
    if (!status) {
        webgpu_hand_over(d, NULL);
        d->f.QueueSubmitForIndex(d->queue, 1, &commands);
        d->f.CommandBufferRelease(commands);
        d->written = 0;
    }
    map(d, stage->handle, WGPUMapMode_Write, WEBGPU_STAGE_BYTES, &stage->state);
    d->stage = (d->stage + 1) % WEBGPU_STAGE_COUNT;
    return status;
}

/* Makes the current staging buffer's memory usable. */
static beryl_status stage_ready(webgpu *d, beryl_error *error) {
    webgpu_stage *stage = &d->stages[d->stage];
    if (!stage->handle) {
        beryl_error why = {0};
        stage->handle =
            create_own(d, WEBGPU_STAGE_BYTES, WGPUBufferUsage_MapWrite | WGPUBufferUsage_CopySrc,
                       true, "staging", &why);
        if (!stage->handle) {
            if (error) *error = why;
            return refused(d, &why);
        }
        stage->state = WEBGPU_MAPPED;
    }
    if (stage->state == WEBGPU_MAPPING) d->f.DevicePoll(d->device, false, NULL);
    beryl_status status = webgpu_lost(d, error);
    if (status) return status;
    if (stage->state == WEBGPU_MAPPING) return BERYL_PENDING;
    if (stage->state == WEBGPU_MAP_FAILED)
        return base_fail(error, BERYL_DEVICE, "staging memory could not be mapped");
    if (!stage->memory)
        stage->memory = d->f.BufferGetMappedRange(stage->handle, 0, WEBGPU_STAGE_BYTES);
    return stage->memory ? BERYL_OK
                         : base_fail(error, BERYL_DEVICE, "staging memory has no address");
}

beryl_status webgpu_stage_take(device *head, size_t size, void **memory, beryl_error *error) {
    webgpu *d = (webgpu *)head;
    beryl_status status = webgpu_lost(d, error);
    if (status) return status;
    if (d->n_copy == WEBGPU_STAGE_COPIES || d->stages[d->stage].used + size > WEBGPU_STAGE_BYTES)
        status = webgpu_stage_flush(d, error);
    if (!status) status = stage_ready(d, error);
    if (status) return status;
    webgpu_stage *stage = &d->stages[d->stage];
    d->stage_at = stage->used;
    *memory = stage->memory + stage->used;
    return BERYL_OK;
}

beryl_status webgpu_stage_commit(device *head, device_buffer_item *item, uint64_t offset,
                                 size_t size, beryl_error *error) {
    webgpu *d = (webgpu *)head;
    beryl_status status = webgpu_lost(d, error);
    if (status || !size) return status;
    webgpu_stage *stage = &d->stages[d->stage];
    d->copies[d->n_copy++] = (webgpu_stage_copy){(webgpu_buffer *)item, offset, d->stage_at, size};
    stage->used = (d->stage_at + size + PIECE_ALIGN - 1) & ~(size_t)(PIECE_ALIGN - 1);
    return BERYL_OK;
}

/* ---- readback -------------------------------------------------------------------------------- */

static beryl_status readback_grow(webgpu *d, webgpu_readback *r, uint64_t bytes,
                                  beryl_error *error) {
    uint64_t capacity = READBACK_MIN;
    while (capacity < bytes && capacity < UINT64_MAX / 2) capacity *= 2;
    if (capacity > d->head.caps.buffer_max) capacity = bytes;
    if (r->capacity >= bytes) return BERYL_OK;
    webgpu_buffer_own_drop(d, r->handle, r->capacity);
    r->capacity = 0;
    beryl_error why = {0};
    r->handle = webgpu_buffer_own(d, capacity, WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst,
                                  "readback", &why);
    if (!r->handle) {
        if (error) *error = why;
        return refused(d, &why);
    }
    r->capacity = capacity;
    return BERYL_OK;
}

static webgpu_readback *pick_readback(webgpu *d, uint64_t bytes) {
    webgpu_readback *best = NULL, *oldest = NULL;
    for (int i = 0; i < DEVICE_READBACK_MAX; i++) {
        webgpu_readback *r = &d->readbacks[i];
        if (r->ticket) {
            if (!oldest || r->number < oldest->number) oldest = r;
        } else if (!best || (r->capacity >= bytes
                                 ? best->capacity < bytes || r->capacity < best->capacity
                                 : r->capacity > best->capacity && best->capacity < bytes)) {
            best = r;
        }
    }
    if (best) return best;
    bool in_turn = oldest && oldest->state != WEBGPU_MAPPING && d->n_readback - oldest->number >= 4;
    if (!in_turn) return NULL;
    webgpu_readback_free(d, oldest);
    return oldest;
}

beryl_status webgpu_readback_take(webgpu *d, uint64_t bytes, size_t n_fetch, webgpu_readback **out,
                                  beryl_error *error) {
    *out = NULL;
    if (bytes > d->head.caps.buffer_max)
        return base_fail(error, BERYL_NO_DEVICE_MEMORY, "fetches of %llu bytes in one submit",
                         (unsigned long long)bytes);
    webgpu_readback *r = pick_readback(d, bytes);
    if (!r) {
        d->f.DevicePoll(d->device, false, NULL);
        r = pick_readback(d, bytes);
    }
    if (!r) return BERYL_PENDING;
    for (int i = 0; i < DEVICE_READBACK_MAX; i++) {
        webgpu_readback *each = &d->readbacks[i];
        size_t have = each->fetches.count;
        if (n_fetch > have && !base_vec_reserve(d->head.heap, &each->fetches, n_fetch - have))
            return base_fail(error, BERYL_NO_MEMORY, "out of memory for a submit");
        beryl_status status = BERYL_OK;
        if (each == r || (!each->ticket && bytes <= READBACK_EAGER))
            status = readback_grow(d, each, bytes, error);
        if (status) return status;
    }
    r->fetches.count = 0;
    *out = r;
    return BERYL_OK;
}

void webgpu_readback_map(webgpu *d, webgpu_readback *r) {
    map(d, r->handle, WGPUMapMode_Read, r->bytes, &r->state);
}

void webgpu_readback_free(webgpu *d, webgpu_readback *r) {
    /* unmapping also calls off a mapping that waits; the buffer itself may still be written, in
     * order */
    if (r->state == WEBGPU_MAPPED || r->state == WEBGPU_MAPPING) d->f.BufferUnmap(r->handle);
    r->state = WEBGPU_UNMAPPED;
    r->memory = NULL;
    r->ticket = 0;
}

/* The mapped readback of a ticket. */
static beryl_status find_readback(webgpu *d, device_ticket ticket, webgpu_readback **out,
                                  beryl_error *error) {
    *out = NULL;
    beryl_status status = webgpu_lost(d, error);
    if (status) return status;
    webgpu_readback *r = NULL;
    for (int i = 0; i < DEVICE_READBACK_MAX; i++)
        if (d->readbacks[i].ticket == ticket) r = &d->readbacks[i];
    if (!r)
        return base_fail(error, BERYL_MISUSE, "ticket %llu has no results (dropped?)",
                         (unsigned long long)ticket);
    if (r->state == WEBGPU_MAPPING) return BERYL_PENDING;
    if (r->state != WEBGPU_MAPPED)
        return base_fail(error, BERYL_DEVICE, "the results of ticket %llu could not be mapped",
                         (unsigned long long)ticket);
    if (!r->memory) r->memory = d->f.BufferGetConstMappedRange(r->handle, 0, (size_t)r->bytes);
    if (!r->memory) return base_fail(error, BERYL_DEVICE, "mapped results have no address");
    *out = r;
    return BERYL_OK;
}

beryl_status webgpu_fetched(device *head, device_ticket ticket, uint32_t n, const void **data,
                            size_t *size, beryl_error *error) {
    webgpu_readback *r;
    beryl_status status = find_readback((webgpu *)head, ticket, &r, error);
    if (status) return status;
    if (n >= r->fetches.count)
        return base_fail(error, BERYL_MISUSE, "fetch %u of ticket %llu, which has %zu", n,
                         (unsigned long long)ticket, r->fetches.count);
    *data = r->memory + r->fetches.data[n].at;
    *size = (size_t)r->fetches.data[n].size;
    return BERYL_OK;
}

void webgpu_fetch_drop(device *head, device_ticket ticket) {
    webgpu *d = (webgpu *)head;
    for (int i = 0; i < DEVICE_READBACK_MAX; i++)
        if (d->readbacks[i].ticket == ticket) webgpu_readback_free(d, &d->readbacks[i]);
}

beryl_status webgpu_stamps(device *head, device_ticket ticket, uint64_t *ns, uint32_t *n_stamp,
                           beryl_error *error) {
    webgpu *d = (webgpu *)head;
    uint32_t capacity = *n_stamp;
    *n_stamp = 0;
    webgpu_readback *r;
    beryl_status status = find_readback(d, ticket, &r, error);
    if (status) return status;
    uint64_t first = 0, ticks;
    for (uint32_t i = 0; i < r->n_stamp && i < capacity; i++) {
        memcpy(&ticks, r->memory + r->stamps_at + 8 * (uint64_t)i, 8);
        if (!i) first = ticks;
        ns[i] = ticks > first ? (uint64_t)((double)(ticks - first) * d->stamp_ns) : 0;
        (*n_stamp)++;
    }
    return BERYL_OK;
}

void webgpu_buffers_fini(webgpu *d) {
    for (int i = 0; i < WEBGPU_STAGE_COUNT; i++) {
        webgpu_buffer_own_drop(d, d->stages[i].handle, WEBGPU_STAGE_BYTES);
        d->stages[i].handle = NULL;
    }
    for (int i = 0; i < DEVICE_READBACK_MAX; i++) {
        webgpu_readback *r = &d->readbacks[i];
        webgpu_buffer_own_drop(d, r->handle, r->capacity);
        r->handle = NULL;
        base_vec_fini(d->head.heap, &r->fetches);
    }
    webgpu_params_drop(d);
    webgpu_buffer_own_drop(d, d->query_bytes, 8 * (uint64_t)d->query_capacity);
    if (d->queries) d->f.QuerySetRelease(d->queries);
}
