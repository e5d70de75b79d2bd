/* submit.c - programs, command lists on the queue, tickets, waiting.
 *
 * A kernel's arguments are its buffers in order, each with the byte at which its range begins, then
 * the window that its parameters lie in and their word in it. They are set again only where the
 * bindings changed. A ticket is the event of a marker behind the list; OPENCL_TICKETS of them may
 * be on their way, then a submit waits for the oldest, as drivers do.
 */
#include "device/opencl/opencl.h"
#include "base/error.h"

#include <string.h>

/* ---- programs -------------------------------------------------------------------------------- */

static bool build_failed(opencl *d, driver_job *job, opencl_code code) {
    size_t size = 0;
    if (d->f.GetProgramBuildInfo(code, d->id, OPENCL_BUILD_LOG, 0, NULL, &size)) size = 0;
    char *log = size && size < 1 << 24 ? base_heap_take(d->head.heap, size + 1) : NULL;
    if (log) d->f.GetProgramBuildInfo(code, d->id, OPENCL_BUILD_LOG, size, log, NULL);
    bool no = driver_compile_fail(&d->compiler, job, log, log ? strlen(log) : 0);
    base_heap_give(d->head.heap, log, log ? size + 1 : 0);
    return no;
}

bool opencl_compile(void *user, driver_job *job) {
    opencl *d = user;
    const char *text = job->source;
    int32_t error = 0;
    opencl_code code =
        d->f.CreateProgramWithSource(d->context, 1, &text, &job->source_size, &error);
    job->result[0] = code;
    if (!code) {
        base_fail(&job->error, BERYL_DEVICE, "%s: no program object (%d)", job->label, error);
        return false;
    }
    if (d->f.BuildProgram(code, 1, &d->id, d->options, NULL, NULL))
        return build_failed(d, job, code);
    opencl_kernel kernel = d->f.CreateKernel(code, job->entry, &error);
    job->result[1] = kernel;
    if (!kernel) {
        base_fail(&job->error, BERYL_DEVICE, "%s: it has no kernel called %.60s (%d)", job->label,
                  job->entry, error);
        return false;
    }
    size_t most = 0, size = 0;
    uint64_t want = (uint64_t)job->workgroup[0] * job->workgroup[1] * job->workgroup[2];
    error = d->f.GetKernelWorkGroupInfo(kernel, d->id, OPENCL_KERNEL_GROUP_SIZE, sizeof most, &most,
                                        &size);
    if (!error && most && most < want) {
        base_fail(&job->error, BERYL_UNSUPPORTED,
                  "%s: workgroups of %llu, with its registers %s allows %zu", job->label,
                  (unsigned long long)want, d->head.caps.name, most);
        return false;
    }
    return true;
}

void opencl_discard(void *user, driver_job *job) {
    opencl *d = user;
    if (job->result[1]) d->f.ReleaseKernel(job->result[1]);
    if (job->result[0]) d->f.ReleaseProgram(job->result[0]);
    job->result[0] = job->result[1] = NULL;
}

beryl_status opencl_program_make(device *head, device_program_item *item,
                                 const device_program_desc *desc, beryl_error *error) {
    opencl *d = (opencl *)head;
    beryl_status status = opencl_lost(d, error);
    if (status) return status;
    return driver_job_make(&d->compiler, item, desc, head->no_cache, &((opencl_program *)item)->job,
                           error);
}

beryl_status opencl_program_status(device *head, device_program_item *item, beryl_error *error) {
    opencl *d = (opencl *)head;
    opencl_program *program = (opencl_program *)item;
    beryl_status status = opencl_lost(d, error);
    if (status || program->kernel) return status;
    status = driver_job_status(&d->compiler, program->job, error);
    if (status) return status;
    program->code = program->job->result[0];
    program->kernel = program->job->result[1];
    program->job->result[0] = program->job->result[1] = NULL;
    driver_job_drop(&d->compiler, program->job);
    program->job = NULL;
    return BERYL_OK;
}

void opencl_program_drop(device *head, device_program_item *item) {
    opencl *d = (opencl *)head;
    opencl_program *program = (opencl_program *)item;
    driver_job_drop(&d->compiler, program->job);
    if (program->kernel) d->f.ReleaseKernel(program->kernel);
    if (program->code) d->f.ReleaseProgram(program->code);
}

/* ---- command lists --------------------------------------------------------------------------- */

typedef struct walk {
    opencl *d;
    const opencl_params *params; /* borrowed */
    driver_readback *readback;   /* borrowed; NULL: none needed */
    size_t n_fetch;
    uint32_t n_stamp;
} walk;

static int32_t dispatch(walk *w, const device_command *c) {
    opencl *d = w->d;
    opencl_program *program = device_pool_at(&d->head.programs, c->dispatch.program.id);
    const opencl_bindings *bindings = device_pool_at(&d->head.bindings, c->dispatch.bindings.id);
    const uint32_t *groups = c->dispatch.groups, *size = program->head.workgroup;
    if (!groups[0] || !groups[1] || !groups[2]) return 0;
    int32_t code = 0;
    uint32_t n = program->head.n_binding;
    if (program->bound != bindings->number) {
        program->bound = 0;
        for (uint32_t i = 0; i < n && !code; i++) {
            const opencl_memory memory =
                ((const opencl_buffer *)bindings->head.ranges[i].buffer)->handle;
            const uint64_t begin = bindings->head.ranges[i].offset;
            code = d->f.SetKernelArg(program->kernel, 2 * i, sizeof memory, &memory);
            if (!code) code = d->f.SetKernelArg(program->kernel, 2 * i + 1, sizeof begin, &begin);
        }
        if (!code) program->bound = bindings->number;
    }
    uint32_t at = program->head.param_bytes ? c->dispatch.param_offset : 0;
    uint32_t word = at % d->window / 4;
    opencl_memory window = w->params->windows.data[at / d->window];
    if (!code) code = d->f.SetKernelArg(program->kernel, 2 * n, sizeof window, &window);
    if (!code) code = d->f.SetKernelArg(program->kernel, 2 * n + 1, sizeof word, &word);
    if (code) return code;
    size_t local[3] = {size[0], size[1], size[2]};
    size_t global[3] = {local[0] * groups[0], local[1] * groups[1], local[2] * groups[2]};
    return d->f.EnqueueNDRangeKernel(d->queue, program->kernel, 3, NULL, global, local, 0, NULL,
                                     NULL);
}

static opencl_memory handle_of(const walk *w, device_buffer buffer) {
    return ((const opencl_buffer *)device_pool_at(&w->d->head.buffers, buffer.id))->handle;
}

static int32_t enqueue(walk *w, const device_command *c) {
    opencl *d = w->d;
    const uint32_t zero = 0;
    switch (c->kind) {
    case DEVICE_DISPATCH: return dispatch(w, c);
    case DEVICE_COPY:
        if (!c->copy.size) return 0;
        return d->f.EnqueueCopyBuffer(d->queue, handle_of(w, c->copy.from),
                                      handle_of(w, c->copy.to), (size_t)c->copy.from_offset,
                                      (size_t)c->copy.to_offset, (size_t)c->copy.size, 0, NULL,
                                      NULL);
    case DEVICE_FILL:
        if (!c->fill.size) return 0;
        return d->f.EnqueueFillBuffer(d->queue, handle_of(w, c->fill.buffer), &zero, sizeof zero,
                                      (size_t)c->fill.offset, (size_t)c->fill.size, 0, NULL, NULL);
    case DEVICE_FETCH: {
        const driver_span *span = &w->readback->fetches.data[w->n_fetch++];
        return d->f.EnqueueReadBuffer(d->queue, handle_of(w, c->fetch.buffer), 0,
                                      (size_t)c->fetch.offset, (size_t)span->size,
                                      w->readback->memory + span->at, 0, NULL, NULL);
    }
    case DEVICE_STAMP: {
        if (!d->head.caps.timestamps) return 0;
        opencl_event *event = (opencl_event *)(void *)&w->readback->stamps[w->n_stamp++];
        if (*event) d->f.ReleaseEvent(*event);
        *event = NULL;
        return d->f.EnqueueMarkerWithWaitList(d->queue, 0, NULL, event);
    }
    }
    return 0;
}

/* Looks how far the device is; OK too where nothing moved. */
static beryl_status look(opencl *d, beryl_error *error) {
    beryl_status status = opencl_lost(d, error);
    while (!status && d->done < d->issued) {
        opencl_event *event = &d->tickets[(d->done + 1) % OPENCL_TICKETS];
        int32_t state = 0;
        int32_t code = d->f.GetEventInfo(*event, OPENCL_EVENT_STATUS, sizeof state, &state, NULL);
        if (!code && state > 0) return BERYL_OK;
        if (!code && state < 0) { /* a kernel crashed, or the driver gave up */
            d->lost = true;
            return base_fail(error, BERYL_DEVICE_LOST, "%s was lost: a submit ended with %d",
                             d->head.caps.name, state);
        }
        status = opencl_check(d, code, "poll", error);
        if (status) return status;
        d->f.ReleaseEvent(*event);
        *event = NULL;
        d->done++;
    }
    return status;
}

beryl_status opencl_submit(device *head, const device_submit_desc *desc, device_ticket ticket,
                           beryl_error *error) {
    opencl *d = (opencl *)head;
    beryl_status status = look(d, error);
    for (size_t i = 0; i < desc->n_command && !status; i++) {
        if (desc->commands[i].kind != DEVICE_DISPATCH) continue;
        opencl_program *program =
            device_pool_at(&head->programs, desc->commands[i].dispatch.program.id);
        if (!program->kernel) status = opencl_program_status(head, &program->head, error);
    }
    if (!status && d->issued - d->done >= OPENCL_TICKETS - 1)
        status = opencl_wait(head, d->issued - OPENCL_TICKETS + 2, error);
    walk w = {.d = d};
    if (!status)
        status = driver_readback_take(&d->readbacks, desc, d->done, head->caps.timestamps,
                                      &w.readback, error);
    opencl_params *params = NULL;
    if (!status) status = opencl_params_write(d, desc, ticket, &params, error);
    w.params = params;
    for (size_t i = 0; i < desc->n_command && !status; i++)
        status = opencl_check(d, enqueue(&w, &desc->commands[i]), "submit", error);
    opencl_event event = NULL;
    if (!status)
        status = opencl_check(d, d->f.EnqueueMarkerWithWaitList(d->queue, 0, NULL, &event),
                              "submit", error);
    if (!status) status = opencl_check(d, d->f.Flush(d->queue), "submit", error);
    if (status) {
        /* half a list may be on its way into memory that is about to be used again */
        if (event) d->f.ReleaseEvent(event);
        if (!d->lost && status != BERYL_PENDING) d->f.Finish(d->queue);
        if (params) params->until = 0;
        return status;
    }
    d->tickets[ticket % OPENCL_TICKETS] = event;
    d->issued = ticket;
    if (w.readback) driver_readback_begin(&d->readbacks, w.readback, ticket);
    return BERYL_OK;
}

/* ---- waiting --------------------------------------------------------------------------------- */

beryl_status opencl_poll(device *head, device_ticket *done, beryl_error *error) {
    opencl *d = (opencl *)head;
    beryl_status status = look(d, error);
    *done = d->done;
    return status;
}

beryl_status opencl_wait(device *head, device_ticket ticket, beryl_error *error) {
    opencl *d = (opencl *)head;
    beryl_status status = look(d, error);
    while (!status && d->done < ticket) {
        int32_t code = d->f.WaitForEvents(1, &d->tickets[ticket % OPENCL_TICKETS]);
        /* -14: the event failed, which look tells better */
        if (code && code != -14) status = opencl_check(d, code, "wait", error);
        if (!status) status = look(d, error);
    }
    return status;
}

beryl_status opencl_fetched(device *head, device_ticket ticket, uint32_t n, const void **data,
                            size_t *size, beryl_error *error) {
    opencl *d = (opencl *)head;
    beryl_status status = look(d, error);
    if (status) return status;
    return driver_readback_fetched(&d->readbacks, ticket, d->done, n, data, size, error);
}

void opencl_fetch_drop(device *head, device_ticket ticket) {
    driver_readback_drop(&((opencl *)head)->readbacks, ticket);
}

beryl_status opencl_stamps(device *head, device_ticket ticket, uint64_t *ns, uint32_t *n_stamp,
                           beryl_error *error) {
    opencl *d = (opencl *)head;
    uint32_t capacity = *n_stamp;
    *n_stamp = 0;
    const driver_readback *r = NULL;
    beryl_status status = look(d, error);
    if (!status) status = driver_readback_done(&d->readbacks, ticket, d->done, &r, error);
    if (status) return status;
    uint64_t first = 0, at;
    for (uint32_t i = 0; i < r->n_stamp && i < capacity; i++) {
        int32_t code =
            d->f.GetEventProfilingInfo(r->stamps[i], OPENCL_PROFILE_END, sizeof at, &at, NULL);
        status = opencl_check(d, code, "stamps", error);
        if (status) return status;
        if (!i) first = at;
        ns[i] = at > first ? at - first : 0;
        (*n_stamp)++;
    }
    return BERYL_OK;
}

void opencl_drain(device *head) {
    opencl *d = (opencl *)head;
    driver_compiler_stop(&d->compiler);
    /* lost or not: reads may still be on their way into memory that goes now */
    if (d->queue) d->f.Finish(d->queue);
}
