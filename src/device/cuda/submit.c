/* submit.c - command lists on the stream, tickets, waiting.
 *
 * Runs of dispatches go to graph.c first. A ticket is an event behind the list; CUDA_TICKETS of
 * them may be on their way, then a submit waits for the oldest, as drivers do.
 */
#include "device/cuda/cuda.h"
#include "base/error.h"

enum { SPIN_MICROSECONDS = 100 };

/* ---- command lists --------------------------------------------------------------------------- */

int cuda_dispatch(cuda *d, const device_command *c, const void *params) {
    const cuda_program *program = device_pool_at(&d->head.programs, c->dispatch.program.id);
    cuda_bindings *bindings = device_pool_at(&d->head.bindings, c->dispatch.bindings.id);
    const uint32_t *groups = c->dispatch.groups, *size = program->head.workgroup;
    if (!groups[0] || !groups[1] || !groups[2]) return 0;
    /* The driver copies the parameters but does not write them, whatever its interface says. */
    union {
        const char *in;
        void *out;
    } at = {.in = (const char *)params + c->dispatch.param_offset};
    void *arguments[DEVICE_BINDING_MAX + 1];
    uint32_t n = program->head.n_binding;
    for (uint32_t i = 0; i < n; i++) arguments[i] = &bindings->at[i];
    arguments[n] = program->head.param_bytes ? at.out : NULL;
    return d->f.launch(program->function, groups[0], groups[1], groups[2], size[0], size[1],
                       size[2], program->launch_bytes, d->stream, arguments, NULL);
}

static cuda_address address_of(const cuda *d, device_buffer buffer) {
    return ((const cuda_buffer *)device_pool_at(&d->head.buffers, buffer.id))->at;
}

static int stamp(cuda *d, driver_readback *r, uint32_t i) {
    int code = 0;
    if (!r->stamps[i]) {
        cuda_event event = NULL;
        code = d->f.event_make(&event, CUDA_EVENT_BLOCKING);
        if (code) return code;
        r->stamps[i] = event;
        d->head.stats.objects++;
    }
    return d->f.event_record(r->stamps[i], d->stream);
}

static const char *label_of(const cuda *d, const device_command *c) {
    if (c->kind != DEVICE_DISPATCH) return "submit";
    return ((const cuda_program *)device_pool_at(&d->head.programs, c->dispatch.program.id))
        ->head.label;
}

static beryl_status walk(cuda *d, const device_submit_desc *desc, driver_readback *r,
                         beryl_error *error) {
    size_t n_fetch = 0;
    uint32_t n_stamp = 0;
    int code = 0;
    for (size_t i = 0; i < desc->n_command; i++) {
        const device_command *c = &desc->commands[i];
        switch (c->kind) {
        case DEVICE_DISPATCH: {
            size_t n = 1;
            while (i + n < desc->n_command && c[n].kind == DEVICE_DISPATCH) n++;
            bool run = cuda_graph_run(d, c, n, desc->params, &code);
            for (size_t k = 0; k < n && !run && !code; k++) {
                code = cuda_dispatch(d, c + k, desc->params);
                if (code) return cuda_check(d, code, label_of(d, c + k), error);
            }
            i += n - 1;
            break;
        }
        case DEVICE_COPY:
            if (c->copy.size)
                code = d->f.copy(address_of(d, c->copy.to) + c->copy.to_offset,
                                 address_of(d, c->copy.from) + c->copy.from_offset,
                                 (size_t)c->copy.size, d->stream);
            break;
        case DEVICE_FILL:
            if (c->fill.size)
                code = d->f.fill(address_of(d, c->fill.buffer) + c->fill.offset, 0,
                                 (size_t)c->fill.size / 4, d->stream);
            break;
        case DEVICE_FETCH: {
            const driver_span *span = &r->fetches.data[n_fetch++];
            code =
                d->f.to_host(r->memory + span->at, address_of(d, c->fetch.buffer) + c->fetch.offset,
                             (size_t)span->size, d->stream);
            break;
        }
        case DEVICE_STAMP:
            if (d->head.caps.timestamps) code = stamp(d, r, n_stamp++);
            break;
        }
        if (code) return cuda_check(d, code, label_of(d, c), error);
    }
    return BERYL_OK;
}

/* Looks how far the device is; OK too where nothing moved. */
static beryl_status look(cuda *d, beryl_error *error) {
    beryl_status status = cuda_lost(d, error);
    if (status || d->done == d->issued) return status;
    device_ticket before = d->done;
    while (d->done < d->issued) {
        int code = d->f.event_query(d->tickets[(d->done + 1) % CUDA_TICKETS]);
        if (code == CUDA_NOT_READY) break;
        status = cuda_check(d, code, "submit", error);
        if (status) return status;
        d->done++;
    }
    if (d->done > before && d->garbage.count) cuda_garbage_collect(d, false);
    return BERYL_OK;
}

static beryl_status prepare(cuda *d, const device_submit_desc *desc, device_ticket ticket,
                            beryl_error *error) {
    beryl_status status = BERYL_OK;
    for (size_t i = 0; i < desc->n_command && !status; i++) {
        if (desc->commands[i].kind != DEVICE_DISPATCH) continue;
        cuda_program *program =
            device_pool_at(&d->head.programs, desc->commands[i].dispatch.program.id);
        if (!program->function) status = cuda_program_status(&d->head, &program->head, error);
    }
    if (!status && d->issued - d->done >= CUDA_TICKETS - 1)
        status = cuda_wait(&d->head, d->issued - CUDA_TICKETS + 2, error);
    cuda_event *event = &d->tickets[ticket % CUDA_TICKETS];
    if (status || *event) return status;
    int code = d->f.event_make(event, CUDA_EVENT_BLOCKING | CUDA_EVENT_NO_TIMING);
    if (code) *event = NULL;
    return cuda_check(d, code, "submit", error);
}

beryl_status cuda_submit(device *head, const device_submit_desc *desc, device_ticket ticket,
                         beryl_error *error) {
    cuda *d = (cuda *)head;
    driver_readback *r = NULL;
    beryl_status status = look(d, error);
    if (status) return status;
    status = prepare(d, desc, ticket, error);
    if (!status)
        status =
            driver_readback_take(&d->readbacks, desc, d->done, head->caps.timestamps, &r, error);
    if (status) return status;
    status = walk(d, desc, r, error);
    if (!status)
        status = cuda_check(d, d->f.event_record(d->tickets[ticket % CUDA_TICKETS], d->stream),
                            "submit", error);
    if (status) {
        /* half a list may be on its way into memory that is about to be used again */
        if (!atomic_load(&d->lost)) d->f.stream_wait(d->stream);
        return status;
    }
    d->issued = ticket;
    d->loose = false;
    if (r) driver_readback_begin(&d->readbacks, r, ticket);
    return BERYL_OK;
}

/* ---- waiting --------------------------------------------------------------------------------- */

beryl_status cuda_poll(device *head, device_ticket *done, beryl_error *error) {
    cuda *d = (cuda *)head;
    beryl_status status = look(d, error);
    *done = d->done;
    return status;
}

beryl_status cuda_wait(device *head, device_ticket ticket, beryl_error *error) {
    cuda *d = (cuda *)head;
    beryl_status status = look(d, error);
    /* Waking up from a sleep in the driver takes longer than a short list: look for a moment. */
    double end = base_time() + SPIN_MICROSECONDS * 1e-6;
    while (!status && d->done < ticket && base_time() < end) status = look(d, error);
    while (!status && d->done < ticket) {
        int code = d->f.event_wait(d->tickets[ticket % CUDA_TICKETS]);
        status = cuda_check(d, code, "wait", error);
        if (!status) status = look(d, error);
    }
    return status;
}

beryl_status cuda_fetched(device *head, device_ticket ticket, uint32_t n, const void **data,
                          size_t *size, beryl_error *error) {
    cuda *d = (cuda *)head;
    beryl_status status = look(d, error);
    if (status) return status;
    return driver_readback_fetched(&d->readbacks, ticket, d->done, n, data, size, error);
}

void cuda_fetch_drop(device *head, device_ticket ticket) {
    driver_readback_drop(&((cuda *)head)->readbacks, ticket);
}

beryl_status cuda_stamps(device *head, device_ticket ticket, uint64_t *ns, uint32_t *n_stamp,
                         beryl_error *error) {
    cuda *d = (cuda *)head;
    uint32_t capacity = *n_stamp;
    *n_stamp = 0;
    const driver_readback *r = NULL;
    beryl_status status = look(d, error);
    if (!status) status = driver_readback_done(&d->readbacks, ticket, d->done, &r, error);
    if (status) return status;
    /* from one to the next, since a float of milliseconds has 24 bits */
    uint64_t at = 0;
    for (uint32_t i = 0; i < r->n_stamp && i < capacity; i++) {
        float milliseconds = 0;
        int code = i ? d->f.event_elapsed(&milliseconds, r->stamps[i - 1], r->stamps[i]) : 0;
        status = cuda_check(d, code, "stamps", error);
        if (status) return status;
        if (milliseconds > 0) at += (uint64_t)((double)milliseconds * 1e6);
        ns[i] = at;
        (*n_stamp)++;
    }
    return BERYL_OK;
}

void cuda_drain(device *head) {
    cuda *d = (cuda *)head;
    driver_compiler_stop(&d->compiler);
    if (!d->stream) return;
    if (!atomic_load(&d->lost)) d->f.stream_wait(d->stream);
    d->done = d->issued;
    d->loose = false;
}
