/* webgpu.c - adapters, opening and closing a device, and errors made into statuses.
 *
 * Owns the instance while devices are looked for, and the device and its queue afterwards. Refuses
 * to look anywhere but at Vulkan (Metal on macOS): on machines without a display the library would
 * otherwise try OpenGL, at length.
 *
 * Errors: no error scopes, since a device has one stack of them for all threads. Instead the
 * callback for uncaptured errors, which wgpu calls on the very thread whose call failed and before
 * that call returns, stores the text in that thread's own `webgpu_fault`: a compile worker and the
 * owner never see each other's errors and need no lock around their calls.
 */
#include "device/webgpu/webgpu.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>

typedef struct driver_state {
    base_heap *heap;      /* borrowed */
    const beryl_log *log; /* borrowed */
    webgpu_functions f;
    WGPUInstance instance;
    webgpu_adapter *adapters; // [capacity], n used, best first; owned
    uint32_t n, capacity;
} driver_state;

WGPUStringView webgpu_text(const char *text) {
    return (WGPUStringView){text, text ? strlen(text) : 0};
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void on_error(WGPUDevice const *which, WGPUErrorType type, WGPUStringView message,
                     void *user1, void *user2) {
    (void)which, (void)user2;
    webgpu *d = user1;
    webgpu_fault *fault = &d->fault;
    pthread_t self = pthread_self();
    base_lock_enter(d->lock);
    for (uint32_t i = 0; i < d->n_worker; i++)
        if (d->workers[i].running && pthread_equal(d->workers[i].self, self))
            fault = &d->workers[i].fault;
    base_lock_leave(d->lock);
    if (fault->count++) return;
    fault->type = type;
    size_t size = message.data ? message.length : 0;
    if (size == WGPU_STRLEN) size = strlen(message.data);
    if (size >= sizeof fault->text) size = sizeof fault->text - 1;
    if (size) memcpy(fault->text, message.data, size);
    fault->text[size] = 0;
}

static void on_lost(WGPUDevice const *which, WGPUDeviceLostReason reason, WGPUStringView message,
                    void *user1, void *user2) {
    (void)which, (void)reason, (void)message, (void)user2;
    webgpu *d = user1;
    atomic_store(&d->lost, true);
}

beryl_status webgpu_lost(const webgpu *d, beryl_error *error) {
    if (!atomic_load(&d->lost)) return BERYL_OK;
    return base_fail(error, BERYL_DEVICE_LOST, "the device %s was lost; it has to be opened again",
                     d->head.caps.name);
}

void webgpu_begin(webgpu *d) {
    d->fault.count = 0;
}

beryl_status webgpu_end(webgpu *d, const char *what, beryl_error *error) {
    beryl_status status = webgpu_lost(d, error);
    if (status || !d->fault.count) return status;
    status = webgpu_fault_fail(&d->fault, what, NULL, 0, 0, error);
    base_log(d->head.log, BERYL_LOG_DEBUG, "%s: %s", what, d->fault.text);
    return status;
}

/* Appends a line without its margins and its box-drawing characters (U+2500 to U+257F). */
static size_t add_line(char *to, size_t at, size_t room, const char *line, size_t size) {
    size_t begin = at;
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)line[i];
        if (c == 0xe2 && i + 2 < size &&
            ((unsigned char)line[i + 1] == 0x94 || (unsigned char)line[i + 1] == 0x95)) {
            i += 2;
            continue;
        }
        if (c < ' ') c = ' ';
        if (c == ' ' && (at == begin || to[at - 1] == ' ')) continue;
        if (at == begin && at && at + 3 < room) to[at++] = ';', to[at++] = ' ';
        if (at + 1 < room) to[at++] = (char)c;
    }
    while (at > begin && to[at - 1] == ' ') at--;
    return at;
}

static uint64_t place_in(const char *text, const char *source, size_t source_size,
                         size_t enable_size) {
    const char *mark = strstr(text, "wgsl:");
    unsigned line = 0, column = 0;
    if (!source || !mark || sscanf(mark, "wgsl:%u:%u", &line, &column) != 2 || !line || !column)
        return 0;
    size_t at = 0;
    while (--line && at < source_size) {
        const char *end = memchr(source + at, '\n', source_size - at);
        if (!end) return 0;
        at = (size_t)(end - source) + 1;
    }
    at += column - 1;
    return at >= enable_size && at - enable_size <= source_size ? at - enable_size : 0;
}

beryl_status webgpu_fault_fail(const webgpu_fault *fault, const char *what, const char *source,
                               size_t source_size, size_t enable_size, beryl_error *error) {
    static const char *const skipped[] = {"Validation Error", "Caused by:", "In wgpu"};
    char line[sizeof fault->text];
    size_t at = 0;
    for (const char *text = fault->text; *text;) {
        size_t size = strcspn(text, "\n"), margin = strspn(text, " ");
        bool skip = margin >= size;
        for (size_t i = 0; !skip && i < sizeof skipped / sizeof skipped[0]; i++)
            skip = !strncmp(text + margin, skipped[i], strlen(skipped[i]));
        if (!skip) at = add_line(line, at, sizeof line, text, size);
        text += size + (text[size] != 0);
    }
    line[at] = 0;
    /* what wgpu nests deeper than it looks is reported as a mistake of ours, with this text */
    if (fault->type == WGPUErrorType_OutOfMemory || strstr(fault->text, "Not enough memory left"))
        return base_fail(error, BERYL_NO_DEVICE_MEMORY, "%s: out of device memory", what);
    return base_fail_at(error, BERYL_DEVICE,
                        place_in(fault->text, source, source_size, enable_size), "%s: %s", what,
                        line);
}

/* ---- adapters -------------------------------------------------------------------------------- */

static void copy_view(char *to, size_t room, WGPUStringView view) {
    size_t size = view.data ? view.length : 0;
    if (size == WGPU_STRLEN) size = strlen(view.data);
    if (size >= room) size = room - 1;
    if (size) memcpy(to, view.data, size);
    to[size] = 0;
}

static bool has(const driver_state *s, WGPUAdapter adapter, uint32_t feature) {
    return s->f.AdapterHasFeature(adapter, (WGPUFeatureName)feature) != 0;
}

static void caps_of(const driver_state *s, WGPUAdapter adapter, device_caps *caps) {
    WGPUAdapterInfo info = {0};
    WGPULimits limits = {0};
    s->f.AdapterGetInfo(adapter, &info);
    s->f.AdapterGetLimits(adapter, &limits);
    char version[96];
    *caps = (device_caps){0};
    copy_view(caps->name, sizeof caps->name, info.device);
    copy_view(caps->driver, sizeof caps->driver, info.vendor);
    copy_view(version, sizeof version, info.description);
    size_t used = strlen(caps->driver);
    if (version[0])
        snprintf(caps->driver + used, sizeof caps->driver - used, "%s%s", used ? " " : "", version);
    caps->vendor = info.vendorID;
    caps->kind = info.adapterType == WGPUAdapterType_DiscreteGPU ? DEVICE_DISCRETE
                 : info.adapterType == WGPUAdapterType_CPU       ? DEVICE_SOFTWARE
                                                                 : DEVICE_INTEGRATED;
    s->f.AdapterInfoFreeMembers(info);
    caps->f16 = has(s, adapter, WGPUFeatureName_ShaderF16);
    caps->subgroups = has(s, adapter, WGPUNativeFeature_Subgroup);
    caps->timestamps = has(s, adapter, WGPUFeatureName_TimestampQuery);
    caps->dot_i8 =
        caps->kind != DEVICE_SOFTWARE; /* everybody takes the function, software only imitates it */
    caps->workgroup_bytes = limits.maxComputeWorkgroupStorageSize;
    caps->workgroup_invocations = limits.maxComputeInvocationsPerWorkgroup;
    caps->workgroup_size[0] = limits.maxComputeWorkgroupSizeX;
    caps->workgroup_size[1] = limits.maxComputeWorkgroupSizeY;
    caps->workgroup_size[2] = limits.maxComputeWorkgroupSizeZ;
    caps->groups_max = limits.maxComputeWorkgroupsPerDimension;
    caps->in_order = true;
    caps->storage_max = limits.maxStorageBuffersPerShaderStage;
    if (caps->storage_max > limits.maxBindingsPerBindGroup)
        caps->storage_max = limits.maxBindingsPerBindGroup;
    if (caps->storage_max > DEVICE_BINDING_MAX) caps->storage_max = DEVICE_BINDING_MAX;
    caps->binding_max = limits.maxStorageBufferBindingSize & ~UINT64_C(3);
    caps->buffer_max = limits.maxBufferSize & ~UINT64_C(3);
    if (caps->binding_max > caps->buffer_max) caps->binding_max = caps->buffer_max;
    caps->align_binding =
        limits.minStorageBufferOffsetAlignment ? limits.minStorageBufferOffsetAlignment : 256;
    /* Mesa's software rasteriser ends a thread's loops after about this many rounds, without a word
     */
    caps->loop_max = strstr(caps->name, "llvmpipe") ? 65000 : 0;
}

static void stop(void *user) {
    driver_state *s = user;
    for (uint32_t i = 0; i < s->n; i++) s->f.AdapterRelease(s->adapters[i].handle);
    base_heap_give(s->heap, s->adapters, s->capacity * sizeof *s->adapters);
    if (s->instance) s->f.InstanceRelease(s->instance);
    base_heap_give(s->heap, s, sizeof *s);
}

static beryl_status find_adapters(driver_state *s, WGPUInstanceBackend backends,
                                  beryl_error *error) {
    WGPUInstanceEnumerateAdapterOptions options = {.backends = backends};
    size_t n = s->f.InstanceEnumerateAdapters(s->instance, &options, NULL);
    if (!n) return base_fail(error, BERYL_NO_DEVICE, "%s", webgpu_drivers_missing());
    /* the second call writes as many as there are by then: leave room for some that were plugged in
     */
    size_t room = (n + 16) * sizeof(WGPUAdapter);
    WGPUAdapter *found = base_heap_take(s->heap, room);
    s->adapters = found ? base_heap_take(s->heap, n * sizeof *s->adapters) : NULL;
    if (!s->adapters) {
        base_heap_give(s->heap, found, found ? room : 0);
        return base_fail(error, BERYL_NO_MEMORY, "out of memory while looking for adapters");
    }
    s->capacity = (uint32_t)n;
    size_t n_found = s->f.InstanceEnumerateAdapters(s->instance, &options, found);
    for (; n_found > n; n_found--) s->f.AdapterRelease(found[n_found - 1]);
    for (size_t i = 0; i < n_found; i++) {
        webgpu_adapter adapter = {.handle = found[i]};
        caps_of(s, found[i], &adapter.caps);
        size_t at = i; /* the better kinds first, otherwise as found */
        for (; at > 0 && s->adapters[at - 1].caps.kind > adapter.caps.kind; at--)
            s->adapters[at] = s->adapters[at - 1];
        s->adapters[at] = adapter;
        s->n++;
    }
    base_heap_give(s->heap, found, room);
    webgpu_drivers_keep();
    webgpu_facts(s->adapters, s->n);
    return BERYL_OK;
}

static void *start(base_heap *heap, const beryl_log *log, beryl_error *error) {
    driver_state *s = base_heap_take(heap, sizeof *s);
    if (!s) {
        base_fail(error, BERYL_NO_MEMORY, "out of memory");
        return NULL;
    }
    s->heap = heap;
    s->log = log;
    if (webgpu_library_open(&s->f, error)) goto fail;
#ifdef __APPLE__
    WGPUInstanceBackend backends = WGPUInstanceBackend_Metal;
#else
    WGPUInstanceBackend backends = WGPUInstanceBackend_Vulkan;
#endif
    WGPUInstanceExtras extras = {.chain.sType = (WGPUSType)WGPUSType_InstanceExtras,
                                 .backends = backends};
    WGPUInstanceDescriptor desc = {.nextInChain = &extras.chain};
    s->instance = webgpu_instance_make(&s->f, &desc);
    if (!s->instance) {
        base_fail(error, BERYL_NO_DEVICE, "wgpu-native gives no instance");
        goto fail;
    }
    if (find_adapters(s, backends, error)) goto fail;
    return s;
fail:
    stop(s);
    return NULL;
}

static uint32_t count(void *user) {
    return ((driver_state *)user)->n;
}

static void describe(void *user, uint32_t index, device_caps *caps, const char **why_not) {
    const driver_state *s = user;
    *caps = s->adapters[index].caps;
    *why_not = caps->storage_max < 8 ? "fewer than 8 storage buffers a program" : NULL;
}

/* ---- opening and closing --------------------------------------------------------------------- */

typedef struct request {
    WGPUDevice device;
    bool ended;
    char why[300];
} request;

static void on_device(WGPURequestDeviceStatus status, WGPUDevice opened, WGPUStringView message,
                      void *user1, void *user2) {
    (void)user2;
    request *r = user1;
    r->ended = true;
    if (status == WGPURequestDeviceStatus_Success) r->device = opened;
    else copy_view(r->why, sizeof r->why, message);
}

static void lower32(uint32_t *limit, uint32_t most) {
    if (*limit > most) *limit = most;
}

static beryl_status request_device(const driver_state *s, WGPUAdapter adapter, webgpu *d,
                                   beryl_error *error) {
    const device_mask *mask = &d->mask;
    WGPULimits limits = {0};
    s->f.AdapterGetLimits(adapter, &limits);
    if (mask->min) {
        lower32(&limits.maxComputeInvocationsPerWorkgroup, 256);
        lower32(&limits.maxComputeWorkgroupSizeX, 256);
        lower32(&limits.maxComputeWorkgroupSizeY, 256);
        lower32(&limits.maxComputeWorkgroupSizeZ, 64);
        lower32(&limits.maxComputeWorkgroupStorageSize, 16 << 10);
        lower32(&limits.maxStorageBuffersPerShaderStage, 8);
        if (limits.maxStorageBufferBindingSize > 128 << 20)
            limits.maxStorageBufferBindingSize = 128 << 20;
    }
    WGPUFeatureName features[4];
    size_t n = 0;
    if (d->head.caps.f16 && !mask->no_f16) features[n++] = WGPUFeatureName_ShaderF16;
    if (d->head.caps.subgroups && !mask->no_subgroups)
        features[n++] = (WGPUFeatureName)WGPUNativeFeature_Subgroup;
    if (d->head.caps.timestamps && !mask->no_timestamps) {
        features[n++] = WGPUFeatureName_TimestampQuery;
        d->stamps_in_pass = has(s, adapter, WGPUNativeFeature_TimestampQueryInsidePasses);
        if (d->stamps_in_pass)
            features[n++] = (WGPUFeatureName)WGPUNativeFeature_TimestampQueryInsidePasses;
    }
    WGPUDeviceDescriptor desc = {
        .label = webgpu_text("beryl"),
        .requiredFeatureCount = n,
        .requiredFeatures = features,
        .requiredLimits = &limits,
        .deviceLostCallbackInfo = {.mode = WGPUCallbackMode_AllowProcessEvents,
                                   .callback = on_lost,
                                   .userdata1 = d},
        .uncapturedErrorCallbackInfo = {.callback = on_error, .userdata1 = d},
    };
    request r = {0};
    WGPURequestDeviceCallbackInfo info = {
        .mode = WGPUCallbackMode_AllowProcessEvents, .callback = on_device, .userdata1 = &r};
    s->f.AdapterRequestDevice(adapter, &desc, info);
    for (int i = 0; i < 1000 && !r.ended; i++) s->f.InstanceProcessEvents(s->instance);
    if (!r.device)
        return base_fail(error, BERYL_NO_DEVICE, "%s does not open: %s", d->head.caps.name,
                         r.why[0] ? r.why : "no answer");
    d->device = r.device;
    d->queue = s->f.DeviceGetQueue(d->device);
    return BERYL_OK;
}

/* Runs one tiny kernel, since the adapter's description does not tell. Trouble means: no subgroups.
 */
static beryl_status measure_subgroups(webgpu *d, beryl_error *error) {
    static const char text[] =
        "@group(0) @binding(0) var<storage, read_write> size: array<u32>;\n"
        "@compute @workgroup_size(64)\n"
        "fn main(@builtin(subgroup_size) lanes: u32, @builtin(local_invocation_index) at: u32) {\n"
        "    if (at == 0u) { size[0] = lanes; }\n"
        "}\n";
    device *head = &d->head;
    device_buffer buffer = {0};
    device_program program = {0};
    device_bindings bindings = {0};
    device_ticket ticket = 0;
    uint32_t lanes = 0;
    const void *data = NULL;
    size_t size = 0;
    device_program_desc desc = {.source = text,
                                .source_size = sizeof text - 1,
                                .label = "subgroup size",
                                .n_binding = 1,
                                .access = {DEVICE_READ_WRITE},
                                .workgroup = {64, 1, 1},
                                .uses_subgroups = true};
    beryl_status status = device_buffer_make(head, 256, "subgroup size", &buffer, NULL);
    if (!status) status = device_program_make(head, &desc, &program, NULL);
    if (!status)
        while ((status = device_program_status(head, program, NULL)) == BERYL_PENDING)
            base_sleep(2e-4);
    if (!status)
        status = device_bindings_make(head, program, &(device_binding){.buffer = buffer}, 1,
                                      &bindings, NULL);
    device_command list[2] = {{.kind = DEVICE_DISPATCH}, {.kind = DEVICE_FETCH}};
    list[0].dispatch.program = program;
    list[0].dispatch.bindings = bindings;
    for (int i = 0; i < 3; i++) list[0].dispatch.groups[i] = 1;
    list[1].fetch.buffer = buffer;
    list[1].fetch.size = 4;
    if (!status)
        status = device_submit(head, &(device_submit_desc){.commands = list, .n_command = 2},
                               &ticket, NULL);
    if (!status) status = device_wait(head, ticket, NULL);
    if (!status) status = device_fetched(head, ticket, 0, &data, &size, NULL);
    if (!status && size == 4) memcpy(&lanes, data, 4);
    device_fetch_drop(head, ticket);
    device_bindings_drop(head, bindings);
    device_program_drop(head, program);
    device_buffer_drop(head, buffer);
    bool sane = lanes >= 2 && lanes <= 128 && !(lanes & (lanes - 1));
    head->caps.subgroups = sane;
    head->caps.subgroup_size = sane ? lanes : 0;
    head->stats.submits = head->stats.dispatches = 0;
    if (status == BERYL_NO_MEMORY) return base_fail(error, status, "out of memory for a device");
    if (!sane)
        base_log(head->log, BERYL_LOG_WARNING, "%s: subgroups do not work, going without",
                 head->caps.name);
    return webgpu_lost(d, error);
}

static void close_device(device *head) {
    webgpu *d = (webgpu *)head;
    webgpu_buffers_fini(d);
    webgpu_programs_fini(d);
    if (d->queue) d->f.QueueRelease(d->queue);
    if (d->device) d->f.DeviceRelease(d->device);
    base_lock_close(d->lock);
    base_heap_give(head->heap, d, sizeof *d);
}

static beryl_status open_device(void *user, const device_caps *caps, const device_mask *mask,
                                device **out, beryl_error *error) {
    const driver_state *s = user;
    webgpu *d = base_heap_take(s->heap, sizeof *d);
    if (!d) return base_fail(error, BERYL_NO_MEMORY, "out of memory for a device");
    d->head.backend = &device_webgpu;
    d->head.heap = s->heap;
    d->head.log = s->log;
    d->f = s->f;
    d->mask = *mask;
    d->head.caps = *caps;
    beryl_status status = BERYL_OK;
    d->lock = base_lock_open(s->heap);
    if (!d->lock) status = base_fail(error, BERYL_NO_MEMORY, "out of memory for a device");
    if (!status) status = request_device(s, s->adapters[caps->index].handle, d, error);
    if (status) {
        close_device(&d->head);
        return status;
    }
    d->stamp_ns = d->f.QueueGetTimestampPeriod(d->queue);
    d->head.caps.timestamps = d->head.caps.timestamps && !mask->no_timestamps && d->stamp_ns > 0;
    if (mask->no_subgroups) d->head.caps.subgroups = false;
    if (d->head.caps.subgroups) status = measure_subgroups(d, error);
    if (status) device_close(&d->head);
    else *out = &d->head;
    return status;
}

const device_backend device_webgpu = {
    .name = "webgpu",
    .languages = DEVICE_LANGUAGE_BIT(DEVICE_WGSL),
    .buffer_bytes = sizeof(webgpu_buffer),
    .program_bytes = sizeof(webgpu_program),
    .bindings_bytes = sizeof(webgpu_bindings),
    .start = start,
    .stop = stop,
    .count = count,
    .describe = describe,
    .open = open_device,
    .close = close_device,
    .drain = webgpu_drain,
    .buffer_make = webgpu_buffer_make,
    .buffer_drop = webgpu_buffer_drop,
    .handle = webgpu_handle,
    .write = webgpu_write,
    .stage_max = webgpu_stage_max,
    .stage = webgpu_stage_take,
    .stage_commit = webgpu_stage_commit,
    .program_make = webgpu_program_make,
    .program_status = webgpu_program_status,
    .program_drop = webgpu_program_drop,
    .bindings_make = webgpu_bindings_make,
    .bindings_drop = webgpu_bindings_drop,
    .submit = webgpu_submit,
    .poll = webgpu_poll,
    .wait = webgpu_wait,
    .fetched = webgpu_fetched,
    .fetch_drop = webgpu_fetch_drop,
    .stamps = webgpu_stamps,
};
