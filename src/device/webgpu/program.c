/* program.c - layouts, compiling on worker threads, and bind groups.
 *
 * Layouts are explicit and shared: one for each number of bindings and set of written ones, so that
 * bindings made for one program serve all with the same shape. Compiling goes through jobs. A job
 * outlives its program when that is dropped in the middle of a compile: nothing waits for a
 * compiler but closing the device.
 */
#define _POSIX_C_SOURCE 200809L /* sysconf */
#include "device/webgpu/webgpu.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { DROPPED_UNFREED = 64 };

/* ---- layouts --------------------------------------------------------------------------------- */

static WGPUBindGroupLayout make_group_layout(webgpu *d, uint32_t n, uint32_t written) {
    WGPUBindGroupLayoutEntry entries[DEVICE_BINDING_MAX];
    memset(entries, 0, sizeof entries);
    for (uint32_t i = 0; i < n; i++) {
        entries[i].binding = i;
        entries[i].visibility = WGPUShaderStage_Compute;
        entries[i].buffer.type = written >> i & 1 ? WGPUBufferBindingType_Storage
                                                  : WGPUBufferBindingType_ReadOnlyStorage;
    }
    WGPUBindGroupLayoutDescriptor desc = {
        .label = webgpu_text("bindings"), .entryCount = n, .entries = entries};
    d->head.stats.objects++;
    return d->f.DeviceCreateBindGroupLayout(d->device, &desc);
}

static WGPUBindGroupLayout make_param_layout(webgpu *d) {
    WGPUBindGroupLayoutEntry entry = {0};
    entry.visibility = WGPUShaderStage_Compute;
    entry.buffer = (WGPUBufferBindingLayout){.type = WGPUBufferBindingType_Uniform,
                                             .hasDynamicOffset = true,
                                             .minBindingSize = DEVICE_PARAM_MAX};
    WGPUBindGroupLayoutDescriptor desc = {
        .label = webgpu_text("params"), .entryCount = 1, .entries = &entry};
    d->head.stats.objects++;
    return d->f.DeviceCreateBindGroupLayout(d->device, &desc);
}

static WGPUPipelineLayout make_pipeline_layout(webgpu *d, WGPUBindGroupLayout group, bool params) {
    WGPUBindGroupLayout groups[2] = {group, d->param_layout};
    WGPUPipelineLayoutDescriptor desc = {.label = webgpu_text("layout"),
                                         .bindGroupLayoutCount = params ? 2 : 1,
                                         .bindGroupLayouts = groups};
    d->head.stats.objects++;
    return d->f.DeviceCreatePipelineLayout(d->device, &desc);
}

static webgpu_layout *find_layout(webgpu *d, uint32_t n_binding, uint32_t written) {
    for (size_t i = 0; i < d->layouts.count; i++)
        if (d->layouts.data[i].n_binding == n_binding && d->layouts.data[i].written == written)
            return &d->layouts.data[i];
    return NULL;
}

/* Kept even where a part is invalid: the error was told, and invalid handles are harmless. */
static beryl_status get_layout(webgpu *d, uint32_t n_binding, uint32_t written, bool params,
                               WGPUPipelineLayout *out, beryl_error *error) {
    webgpu_layout *layout = find_layout(d, n_binding, written);
    webgpu_begin(d);
    if (!layout) {
        layout = base_vec_add(d->head.heap, &d->layouts);
        if (!layout) return base_fail(error, BERYL_NO_MEMORY, "out of memory for a layout");
        layout->n_binding = n_binding;
        layout->written = written;
        layout->group = make_group_layout(d, n_binding, written);
    }
    if (params && !d->param_layout) d->param_layout = make_param_layout(d);
    if (!layout->pipeline[params])
        layout->pipeline[params] = make_pipeline_layout(d, layout->group, params);
    *out = layout->pipeline[params];
    return webgpu_end(d, "layout", error);
}

/* ---- compiling ------------------------------------------------------------------------------- */

static void job_free(webgpu *d, webgpu_job *job) {
    if (job->pipeline) d->f.ComputePipelineRelease(job->pipeline);
    base_heap_give(d->head.heap, job->source, job->source_size);
    base_heap_give(d->head.heap, job->entry, job->entry_size);
    base_heap_give(d->head.heap, job->told, job->told_size);
    base_heap_give(d->head.heap, job, sizeof *job);
}

/* On any thread; fault is that thread's own. */
static bool compile(webgpu *d, webgpu_job *job, webgpu_fault *fault) {
    if (webgpu_lost(d, &job->error)) return false;
    WGPUShaderSourceWGSL text = {.chain.sType = WGPUSType_ShaderSourceWGSL,
                                 .code = {job->source, job->source_size}};
    WGPUShaderModuleDescriptor desc = {.nextInChain = &text.chain,
                                       .label = webgpu_text(job->label)};
    fault->count = 0;
    WGPUShaderModule module = job->trusted
                                  ? d->f.DeviceCreateShaderModuleTrusted(d->device, &desc, 0)
                                  : d->f.DeviceCreateShaderModule(d->device, &desc);
    if (module && !fault->count) {
        WGPUComputePipelineDescriptor pipeline = {
            .label = webgpu_text(job->label),
            .layout = job->layout,
            .compute = {.module = module, .entryPoint = {job->entry, job->entry_size}},
        };
        job->pipeline = d->f.DeviceCreateComputePipeline(d->device, &pipeline);
    }
    if (module) d->f.ShaderModuleRelease(module);
    if (job->pipeline && !fault->count && !atomic_load(&d->lost)) return true;
    if (job->pipeline) d->f.ComputePipelineRelease(job->pipeline);
    job->pipeline = NULL;
    if (webgpu_lost(d, &job->error)) return false;
    if (!fault->count) {
        base_fail(&job->error, BERYL_DEVICE, "%s: the compiler gave nothing", job->label);
    } else {
        webgpu_fault_fail(fault, job->label, job->source, job->source_size, job->enable_size,
                          &job->error);
        job->told_size =
            strlen(fault->text) + 1; /* the log hook is called on the owner's thread alone */
        job->told = base_heap_take(d->head.heap, job->told_size);
        if (job->told) memcpy(job->told, fault->text, job->told_size);
        else job->told_size = 0;
    }
    return false;
}

static void work(void *user) {
    webgpu_worker *worker = user;
    webgpu *d = worker->device;
    base_lock_enter(d->lock);
    worker->self = pthread_self();
    worker->running = true;
    for (;;) {
        while (!d->first && !d->closing) base_lock_sleep(d->lock);
        if (d->closing) break;
        webgpu_job *job = d->first;
        d->first = job->next;
        if (!d->first) d->last = NULL;
        job->next = NULL;
        job->state = WEBGPU_COMPILING;
        base_lock_leave(d->lock);
        bool ok = compile(d, job, &worker->fault);
        base_lock_enter(d->lock);
        job->state = ok ? WEBGPU_READY : WEBGPU_FAILED;
        if (!job->orphan) continue;
        base_lock_leave(d->lock);
        job_free(d, job);
        base_lock_enter(d->lock);
    }
    worker->running = false;
    base_lock_leave(d->lock);
}

/* One more worker while jobs wait: most programs come in one burst. No thread to be had: compiled
 * at once. */
static void job_start(webgpu *d, webgpu_job *job) {
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t most = processors > WEBGPU_WORKER_MAX ? WEBGPU_WORKER_MAX
                    : processors > 2               ? (uint32_t)processors - 1
                                                   : 1;
    base_lock_enter(d->lock);
    bool busy = d->first || !d->n_worker;
    uint32_t at = d->n_worker;
    base_lock_leave(d->lock);
    if (busy && at < most) {
        webgpu_worker *worker = &d->workers[at];
        worker->device = d;
        base_lock_enter(d->lock);
        d->n_worker = at + 1;
        base_lock_leave(d->lock);
        worker->thread = base_thread_open(d->head.heap, work, worker);
        if (!worker->thread) {
            base_lock_enter(d->lock);
            d->n_worker = at;
            base_lock_leave(d->lock);
        }
    }
    if (!d->n_worker) {
        job->state = compile(d, job, &d->fault) ? WEBGPU_READY : WEBGPU_FAILED;
        return;
    }
    base_lock_enter(d->lock);
    if (d->last) d->last->next = job;
    else d->first = job;
    d->last = job;
    base_lock_wake(d->lock);
    base_lock_leave(d->lock);
}

void webgpu_workers_stop(webgpu *d) {
    base_lock_enter(d->lock);
    d->closing = true;
    base_lock_wake(d->lock);
    base_lock_leave(d->lock);
    for (uint32_t i = 0; i < d->n_worker; i++) base_thread_close(d->workers[i].thread);
    d->n_worker = 0;
}

/* ---- programs -------------------------------------------------------------------------------- */

beryl_status webgpu_program_make(device *head, device_program_item *item,
                                 const device_program_desc *desc, beryl_error *error) {
    webgpu *d = (webgpu *)head;
    beryl_status status = webgpu_lost(d, error);
    if (status) return status;
    WGPUPipelineLayout layout = NULL;
    status = get_layout(d, item->n_binding, item->written, item->param_bytes > 0, &layout, error);
    if (status) return status;
    /* on the program's own first line, so that the compiler's line numbers stay right */
    static const char enable_f16[] = "enable f16; ";
    const char *entry = desc->entry ? desc->entry : "main";
    size_t enable_size = desc->uses_f16 ? sizeof enable_f16 - 1 : 0;
    if (desc->source_size > SIZE_MAX - enable_size)
        return base_fail(error, BERYL_MISUSE, "a program without end");
    webgpu_job *job = base_heap_take(head->heap, sizeof *job);
    if (!job) return base_fail(error, BERYL_NO_MEMORY, "out of memory for program %s", item->label);
    job->source_size = desc->source_size + enable_size;
    job->enable_size = enable_size;
    job->entry_size = strlen(entry);
    job->source = base_heap_take(head->heap, job->source_size);
    job->entry =
        job->source && job->entry_size ? base_heap_take(head->heap, job->entry_size) : NULL;
    if (!job->entry) {
        if (!job->source) job->source_size = 0;
        job->entry_size = 0;
        job_free(d, job);
        return base_fail(error, BERYL_NO_MEMORY, "out of memory for program %s", item->label);
    }
    memcpy(job->source, enable_f16, enable_size);
    memcpy(job->source + enable_size, desc->source, desc->source_size);
    memcpy(job->entry, entry, job->entry_size);
    memcpy(job->label, item->label, sizeof job->label);
    job->layout = layout;
    job->trusted = desc->trusted && !d->mask.checked;
    ((webgpu_program *)item)->job = job;
    job_start(d, job);
    return BERYL_OK;
}

beryl_status webgpu_program_status(device *head, device_program_item *item, beryl_error *error) {
    webgpu *d = (webgpu *)head;
    webgpu_program *program = (webgpu_program *)item;
    beryl_status status = webgpu_lost(d, error);
    if (status || program->pipeline) return status;
    base_lock_enter(d->lock);
    webgpu_job_state state = program->job->state;
    base_lock_leave(d->lock);
    if (state == WEBGPU_WAITING || state == WEBGPU_COMPILING) return BERYL_PENDING;
    if (state == WEBGPU_FAILED) {
        webgpu_job *job = program->job;
        if (job->told) base_log(head->log, BERYL_LOG_DEBUG, "%s: %s", job->label, job->told);
        base_heap_give(head->heap, job->told, job->told_size);
        job->told = NULL, job->told_size = 0;
        if (error) *error = program->job->error;
        return program->job->error.code;
    }
    program->pipeline = program->job->pipeline;
    program->job->pipeline = NULL;
    job_free(d, program->job);
    program->job = NULL;
    return BERYL_OK;
}

void webgpu_program_drop(device *head, device_program_item *item) {
    webgpu *d = (webgpu *)head;
    webgpu_program *program = (webgpu_program *)item;
    webgpu_job *job = program->job;
    if (program->pipeline) d->f.ComputePipelineRelease(program->pipeline);
    /* wgpu frees what was released with the next submit. Where nobody submits, this one does. */
    if (++d->n_dropped % DROPPED_UNFREED == 0 && !atomic_load(&d->lost)) {
        d->f.QueueSubmitForIndex(d->queue, 0, NULL);
        d->f.DevicePoll(d->device, false, NULL);
    }
    if (!job) return;
    base_lock_enter(d->lock);
    if (job->state == WEBGPU_WAITING) {
        webgpu_job *before = NULL, *at = d->first;
        while (at && at != job) before = at, at = at->next;
        if (at && before) before->next = job->next;
        else if (at) d->first = job->next;
        if (d->last == job) d->last = before;
    }
    bool busy = job->state == WEBGPU_COMPILING;
    if (busy) job->orphan = true;
    base_lock_leave(d->lock);
    if (!busy) job_free(d, job);
}

void webgpu_programs_fini(webgpu *d) {
    for (size_t i = 0; i < d->layouts.count; i++) {
        webgpu_layout *layout = &d->layouts.data[i];
        if (layout->group) d->f.BindGroupLayoutRelease(layout->group);
        for (int k = 0; k < 2; k++)
            if (layout->pipeline[k]) d->f.PipelineLayoutRelease(layout->pipeline[k]);
    }
    if (d->param_layout) d->f.BindGroupLayoutRelease(d->param_layout);
    base_vec_fini(d->head.heap, &d->layouts);
}

/* ---- bindings -------------------------------------------------------------------------------- */

beryl_status webgpu_bindings_make(device *head, device_bindings_item *item, beryl_error *error) {
    webgpu *d = (webgpu *)head;
    beryl_status status = webgpu_lost(d, error);
    if (status) return status;
    WGPUBindGroupEntry entries[DEVICE_BINDING_MAX];
    memset(entries, 0, sizeof entries);
    for (uint32_t i = 0; i < item->n_binding; i++) {
        entries[i].binding = i;
        entries[i].buffer = ((webgpu_buffer *)item->ranges[i].buffer)->handle;
        entries[i].offset = item->ranges[i].offset;
        entries[i].size = item->ranges[i].size;
    }
    const webgpu_layout *layout =
        find_layout(d, item->n_binding, item->written); /* the program made it */
    WGPUBindGroupDescriptor desc = {.label = webgpu_text("bindings"),
                                    .layout = layout->group,
                                    .entryCount = item->n_binding,
                                    .entries = entries};
    webgpu_begin(d);
    WGPUBindGroup group = d->f.DeviceCreateBindGroup(d->device, &desc);
    status = webgpu_end(d, "bindings", error);
    if (!status) ((webgpu_bindings *)item)->group = group;
    else if (group) d->f.BindGroupRelease(group);
    return status;
}

void webgpu_bindings_drop(device *head, device_bindings_item *item) {
    webgpu *d = (webgpu *)head;
    if (((webgpu_bindings *)item)->group) d->f.BindGroupRelease(((webgpu_bindings *)item)->group);
}
