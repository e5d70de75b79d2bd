/* submit.c - command lists into one compute pass, tickets, waiting.
 *
 * A submit is one encoder and, unless copies, fills or fetches stand between dispatches, one pass.
 * Its parameters are in a slot of a uniform ring and are reached by dynamic offsets through one
 * bind group, so that replaying a list makes nothing but the encoder, its pass and its command
 * buffer, which WebGPU cannot do without and which statistics do not count. (A write is ordered
 * before the submit that follows it: the ring is there for overlap, not for safety.) What has
 * errors is never handed to the queue, since that would end the process.
 *
 * A GPU waits between two submits of the queue, and longer where one begins with a write: so
 * parameters that a slot has already are not written, and lists that nobody waits for are held
 * while the queue has two submits to work on, and go to it together.
 */
#include "device/webgpu/webgpu.h"
#include "base/error.h"

#include <string.h>

enum { SPIN_MICROSECONDS = 50, QUERY_MIN = 256 };

typedef struct encoding {
    webgpu *d;
    WGPUCommandEncoder encoder;
    WGPUComputePassEncoder pass;  /* open, or NULL */
    WGPUComputePipeline pipeline; /* set in the pass */
    WGPUBindGroup group;
    bool params_set;
    uint32_t param_offset, n_stamp, n_fetch;
    webgpu_readback *readback; /* NULL: none needed */
} encoding;

static void pass_begin(encoding *e, const WGPUPassTimestampWrites *stamp) {
    WGPUComputePassDescriptor desc = {.timestampWrites = stamp};
    e->pass = e->d->f.CommandEncoderBeginComputePass(e->encoder, &desc);
    e->pipeline = NULL;
    e->group = NULL;
    e->params_set = false;
}

static void pass_end(encoding *e) {
    if (!e->pass) return;
    e->d->f.ComputePassEncoderEnd(e->pass);
    e->d->f.ComputePassEncoderRelease(e->pass);
    e->pass = NULL;
}

static void dispatch(encoding *e, const device_command *c) {
    const webgpu_functions *f = &e->d->f;
    const webgpu_program *program = device_pool_at(&e->d->head.programs, c->dispatch.program.id);
    const webgpu_bindings *bindings = device_pool_at(&e->d->head.bindings, c->dispatch.bindings.id);
    const uint32_t *groups = c->dispatch.groups;
    if (!groups[0] || !groups[1] || !groups[2]) return;
    if (!e->pass) pass_begin(e, NULL);
    if (e->pipeline != program->pipeline)
        f->ComputePassEncoderSetPipeline(e->pass, program->pipeline);
    if (e->group != bindings->group)
        f->ComputePassEncoderSetBindGroup(e->pass, 0, bindings->group, 0, NULL);
    e->pipeline = program->pipeline;
    e->group = bindings->group;
    if (program->head.param_bytes) {
        uint32_t offset =
            (uint32_t)(e->d->param_slot * e->d->param_capacity) + c->dispatch.param_offset;
        if (!e->params_set || e->param_offset != offset)
            f->ComputePassEncoderSetBindGroup(e->pass, 1, e->d->param_group, 1, &offset);
        e->params_set = true;
        e->param_offset = offset;
    }
    f->ComputePassEncoderDispatchWorkgroups(e->pass, groups[0], groups[1], groups[2]);
}

/* Inside a pass where the device can; otherwise at the beginning of a pass of its own, which goes
 * on from there. */
static void stamp(encoding *e) {
    if (!e->d->head.caps.timestamps) return;
    uint32_t index = e->n_stamp++;
    if (e->d->stamps_in_pass) {
        if (!e->pass) pass_begin(e, NULL);
        e->d->f.ComputePassEncoderWriteTimestamp(e->pass, e->d->queries, index);
        return;
    }
    pass_end(e);
    WGPUPassTimestampWrites writes = {.querySet = e->d->queries,
                                      .beginningOfPassWriteIndex = index,
                                      .endOfPassWriteIndex = WGPU_QUERY_SET_INDEX_UNDEFINED};
    pass_begin(e, &writes);
}

static WGPUBuffer handle_of(const encoding *e, device_buffer buffer) {
    return ((const webgpu_buffer *)device_pool_at(&e->d->head.buffers, buffer.id))->handle;
}

static void encode(encoding *e, const device_command *c) {
    const webgpu_functions *f = &e->d->f;
    switch (c->kind) {
    case DEVICE_DISPATCH: dispatch(e, c); break;
    case DEVICE_COPY:
        pass_end(e);
        if (c->copy.size)
            f->CommandEncoderCopyBufferToBuffer(e->encoder, handle_of(e, c->copy.from),
                                                c->copy.from_offset, handle_of(e, c->copy.to),
                                                c->copy.to_offset, c->copy.size);
        break;
    case DEVICE_FILL:
        pass_end(e);
        if (c->fill.size)
            f->CommandEncoderClearBuffer(e->encoder, handle_of(e, c->fill.buffer), c->fill.offset,
                                         c->fill.size);
        break;
    case DEVICE_FETCH: {
        pass_end(e);
        const struct webgpu_span *span = &e->readback->fetches.data[e->n_fetch++];
        f->CommandEncoderCopyBufferToBuffer(e->encoder, handle_of(e, c->fetch.buffer),
                                            c->fetch.offset, e->readback->handle, span->at,
                                            span->size);
        break;
    }
    case DEVICE_STAMP: stamp(e); break;
    }
}

/* ---- what a submit needs --------------------------------------------------------------------- */

void webgpu_params_drop(webgpu *d) {
    if (d->param_group) d->f.BindGroupRelease(d->param_group);
    webgpu_buffer_own_drop(d, d->params, WEBGPU_PARAM_SLOTS * d->param_capacity);
    base_heap_give(d->head.heap, d->param_copy, WEBGPU_PARAM_SLOTS * d->param_capacity);
    memset(d->param_sizes, 0, sizeof d->param_sizes);
    d->param_group = NULL;
    d->params = NULL;
    d->param_copy = NULL;
    d->param_capacity = 0;
}

static beryl_status grow_params(webgpu *d, uint64_t need, beryl_error *error) {
    uint64_t capacity = d->param_capacity ? d->param_capacity : 16 * DEVICE_PARAM_ALIGN;
    while (capacity < need) capacity *= 2;
    beryl_error why = {0};
    unsigned char *copy = base_heap_take(d->head.heap, WEBGPU_PARAM_SLOTS * capacity);
    if (!copy) return base_fail(error, BERYL_NO_MEMORY, "out of memory for parameters");
    WGPUBuffer params =
        webgpu_buffer_own(d, WEBGPU_PARAM_SLOTS * capacity,
                          WGPUBufferUsage_Uniform | WGPUBufferUsage_CopyDst, "params", &why);
    if (!params) {
        base_heap_give(d->head.heap, copy, WEBGPU_PARAM_SLOTS * capacity);
        if (error) *error = why;
        return why.code;
    }
    webgpu_params_drop(d);
    d->params = params;
    d->param_copy = copy;
    d->param_capacity = capacity;
    return BERYL_OK;
}

/* The slot of the ring with this submit's parameters: one that has them, or else the next. */
static beryl_status write_params(webgpu *d, const device_submit_desc *desc, beryl_error *error) {
    const size_t size = desc->param_bytes;
    uint64_t need = (size + DEVICE_PARAM_ALIGN - 1) / DEVICE_PARAM_ALIGN * DEVICE_PARAM_ALIGN;
    if (need > d->param_capacity) {
        beryl_status status = grow_params(d, need, error);
        if (status) return status;
    }
    if (!d->param_group && d->param_layout) {
        WGPUBindGroupEntry entry = {.buffer = d->params, .size = DEVICE_PARAM_MAX};
        WGPUBindGroupDescriptor group = {.label = webgpu_text("params"),
                                         .layout = d->param_layout,
                                         .entryCount = 1,
                                         .entries = &entry};
        webgpu_begin(d);
        d->param_group = d->f.DeviceCreateBindGroup(d->device, &group);
        d->head.stats.objects++;
        beryl_status status = webgpu_end(d, "params", error);
        if (status) return status;
    }
    for (uint32_t i = 0; i < WEBGPU_PARAM_SLOTS; i++) {
        if (d->param_sizes[i] != size ||
            memcmp(d->param_copy + i * d->param_capacity, desc->params, size))
            continue;
        d->param_slot = i;
        return BERYL_OK;
    }
    webgpu_hand_over(d, NULL); /* which may read what is overwritten */
    d->param_slot = d->param_next;
    d->param_next = (d->param_next + 1) % WEBGPU_PARAM_SLOTS;
    d->param_sizes[d->param_slot] = size;
    memcpy(d->param_copy + d->param_slot * d->param_capacity, desc->params, size);
    webgpu_begin(d);
    d->f.QueueWriteBuffer(d->queue, d->params, d->param_slot * d->param_capacity, desc->params,
                          size);
    beryl_status status = webgpu_end(d, "params", error);
    if (status) d->param_sizes[d->param_slot] = 0;
    return status;
}

static beryl_status ready_queries(webgpu *d, uint32_t n, beryl_error *error) {
    if (n <= d->query_capacity) return BERYL_OK;
    uint32_t capacity = QUERY_MIN;
    while (capacity < n) capacity *= 2;
    beryl_error why = {0};
    WGPUBuffer bytes =
        webgpu_buffer_own(d, 8 * (uint64_t)capacity,
                          WGPUBufferUsage_QueryResolve | WGPUBufferUsage_CopySrc, "stamps", &why);
    if (!bytes) {
        if (error) *error = why;
        return why.code;
    }
    WGPUQuerySetDescriptor desc = {
        .label = webgpu_text("stamps"), .type = WGPUQueryType_Timestamp, .count = capacity};
    webgpu_begin(d);
    WGPUQuerySet queries = d->f.DeviceCreateQuerySet(d->device, &desc);
    d->head.stats.objects++;
    beryl_status status = webgpu_end(d, "stamps", error);
    if (status) {
        if (queries) d->f.QuerySetRelease(queries);
        webgpu_buffer_own_drop(d, bytes, 8 * (uint64_t)capacity);
        return status;
    }
    webgpu_buffer_own_drop(d, d->query_bytes, 8 * (uint64_t)d->query_capacity);
    if (d->queries) d->f.QuerySetRelease(d->queries);
    d->queries = queries;
    d->query_bytes = bytes;
    d->query_capacity = capacity;
    return BERYL_OK;
}

/* Programs compiled, and the places for results. params: does a program have any? */
static beryl_status prepare(webgpu *d, const device_submit_desc *desc, webgpu_readback **out,
                            bool *params, beryl_error *error) {
    *out = NULL;
    uint64_t bytes = 0, n_stamp = 0;
    size_t n_fetch = 0;
    for (size_t i = 0; i < desc->n_command; i++) {
        const device_command *c = &desc->commands[i];
        if (c->kind == DEVICE_DISPATCH) {
            webgpu_program *program = device_pool_at(&d->head.programs, c->dispatch.program.id);
            *params |= program->head.param_bytes > 0;
            if (program->pipeline) continue;
            beryl_status status = webgpu_program_status(&d->head, &program->head, error);
            if (status) return status;
        } else if (c->kind == DEVICE_FETCH) {
            if (c->fetch.size > UINT64_MAX / 4 - bytes)
                return base_fail(error, BERYL_MISUSE, "too many fetches");
            bytes += (c->fetch.size + 7) & ~UINT64_C(7);
            n_fetch++;
        } else if (c->kind == DEVICE_STAMP && d->head.caps.timestamps) {
            n_stamp++;
        }
    }
    if (!n_fetch && !n_stamp) return BERYL_OK;
    beryl_status status = n_stamp ? ready_queries(d, (uint32_t)n_stamp, error) : BERYL_OK;
    webgpu_readback *r = NULL;
    if (!status) status = webgpu_readback_take(d, bytes + 8 * n_stamp, n_fetch, &r, error);
    if (status) return status;
    uint64_t at = 0;
    for (size_t i = 0; i < desc->n_command; i++) {
        if (desc->commands[i].kind != DEVICE_FETCH) continue;
        r->fetches.data[r->fetches.count++] =
            (struct webgpu_span){at, desc->commands[i].fetch.size};
        at += (desc->commands[i].fetch.size + 7) & ~UINT64_C(7);
    }
    r->stamps_at = at;
    r->n_stamp = (uint32_t)n_stamp;
    r->bytes = at + 8 * n_stamp;
    *out = r;
    return BERYL_OK;
}

static void on_done(WGPUQueueWorkDoneStatus status, WGPUStringView message, void *user1,
                    void *user2) {
    (void)status, (void)message;
    webgpu *d = user1;
    /* user2 holds a ticket's low bits; it is at most a pointer's range behind the last */
    uintptr_t behind = (uintptr_t)d->issued - (uintptr_t)user2;
    device_ticket ticket = d->issued - behind;
    if (ticket > d->done) d->done = ticket;
}

void webgpu_hand_over(webgpu *d, webgpu_readback *last) {
    const uint32_t n = d->n_held;
    const bool lost = atomic_load(&d->lost);
    if (!n) return;
    WGPUSubmissionIndex index = lost ? 0 : d->f.QueueSubmitForIndex(d->queue, n, d->held);
    for (uint32_t i = 0; i < n; i++) {
        d->f.CommandBufferRelease(d->held[i]);
        d->indices[(d->issued - i) % WEBGPU_TICKETS] = index;
    }
    d->n_held = 0;
    d->written = 0;
    if (lost) return;
    /* before the ticket's own callback, so that done means mapped */
    if (last) webgpu_readback_map(d, last);
    d->sent[0] = d->sent[1];
    d->sent[1] = d->issued;
    WGPUQueueWorkDoneCallbackInfo info = {.mode = WGPUCallbackMode_AllowProcessEvents,
                                          .callback = on_done,
                                          .userdata1 = d,
                                          .userdata2 = (void *)(uintptr_t)d->issued};
    d->f.QueueOnSubmittedWorkDone(d->queue, info);
}

beryl_status webgpu_finish(webgpu *d, WGPUCommandEncoder encoder, const char *what,
                           WGPUCommandBuffer *out, beryl_error *error) {
    *out = d->f.CommandEncoderFinish(encoder, NULL);
    beryl_status status = webgpu_end(d, what, error);
    if (status && *out) d->f.CommandBufferRelease(*out);
    d->f.CommandEncoderRelease(encoder);
    return status;
}

beryl_status webgpu_submit(device *head, const device_submit_desc *desc, device_ticket ticket,
                           beryl_error *error) {
    webgpu *d = (webgpu *)head;
    encoding e = {.d = d};
    WGPUCommandBuffer commands;
    bool params = false;
    beryl_status status = webgpu_lost(d, error);
    if (!status) status = prepare(d, desc, &e.readback, &params, error);
    if (!status) status = webgpu_stage_flush(d, error);
    if (!status && params) status = write_params(d, desc, error);
    if (status) return status;
    webgpu_begin(d);
    e.encoder = d->f.DeviceCreateCommandEncoder(d->device, NULL);
    for (size_t i = 0; i < desc->n_command; i++) encode(&e, &desc->commands[i]);
    pass_end(&e);
    if (e.n_stamp) {
        d->f.CommandEncoderResolveQuerySet(e.encoder, d->queries, 0, e.n_stamp, d->query_bytes, 0);
        d->f.CommandEncoderCopyBufferToBuffer(e.encoder, d->query_bytes, 0, e.readback->handle,
                                              e.readback->stamps_at, 8 * (uint64_t)e.n_stamp);
    }
    status = webgpu_finish(d, e.encoder, "submit", &commands, error);
    if (status) return status;
    d->issued = ticket;
    d->held[d->n_held++] = commands;
    if (e.readback) {
        e.readback->ticket = ticket;
        e.readback->number = d->n_readback++;
    } else if (d->n_held < WEBGPU_HELD_MAX && d->done < d->sent[0]) {
        d->f.DevicePoll(d->device, false, NULL);
        if (d->done < d->sent[0]) return BERYL_OK;
    }
    webgpu_hand_over(d, e.readback);
    return BERYL_OK;
}

/* ---- waiting --------------------------------------------------------------------------------- */

beryl_status webgpu_poll(device *head, device_ticket *done, beryl_error *error) {
    webgpu *d = (webgpu *)head;
    *done = d->done;
    beryl_status status = webgpu_lost(d, error);
    if (status) return status;
    webgpu_hand_over(d, NULL);
    d->f.DevicePoll(d->device, false, NULL);
    *done = d->done;
    return webgpu_lost(d, error);
}

beryl_status webgpu_wait(device *head, device_ticket ticket, beryl_error *error) {
    webgpu *d = (webgpu *)head;
    beryl_status status = BERYL_OK;
    webgpu_hand_over(d, NULL);
    /* Waking up from a sleep in the driver costs about 20 microseconds: look for a moment first.
     * Not where the device is this very processor. */
    if (d->done < ticket && head->caps.kind != DEVICE_SOFTWARE) {
        double end = base_time() + SPIN_MICROSECONDS * 1e-6;
        do {
            device_ticket done;
            status = webgpu_poll(head, &done, error);
        } while (!status && d->done < ticket && base_time() < end);
    }
    for (int i = 0; !status && d->done < ticket; i++) {
        status = webgpu_lost(d, error);
        if (status) break;
        if (i == 1000)
            return base_fail(error, BERYL_DEVICE, "ticket %llu never ends",
                             (unsigned long long)ticket);
        /* indices of old tickets are forgotten; the oldest that is known comes later and will do */
        device_ticket known =
            d->issued - ticket < WEBGPU_TICKETS ? ticket : d->issued - WEBGPU_TICKETS + 1;
        d->f.DevicePoll(d->device, true, &d->indices[known % WEBGPU_TICKETS]);
    }
    return status ? status : webgpu_lost(d, error);
}

void webgpu_drain(device *head) {
    webgpu *d = (webgpu *)head;
    webgpu_workers_stop(d);
    webgpu_hand_over(d, NULL);
    if (!atomic_load(&d->lost)) d->f.DevicePoll(d->device, true, NULL);
}
