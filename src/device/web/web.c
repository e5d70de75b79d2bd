/* web.c - WebGPU as a browser has it, reached from WebAssembly.
 *
 * Collects what is to be done in a block of words (web.h) and hands it to JavaScript once a submit;
 * a block that is full goes earlier. Nothing waits: tickets, compiles and uploads are done when
 * JavaScript has written so into the shared words. Errors that the browser tells later (it has no
 * others) are kept there too and end every call from then on.
 *
 * Memory: one block, one window for uploads and the results of up to WEB_READBACK submits; none of
 * it grows in a step that has run before. Uploads are held back while the browser has more than
 * UPLOAD_MAX bytes of them.
 */
#include "device/web/web.h"
#include "base/build.h"
#include "base/error.h"
#include "base/json.h"

#include <string.h>

enum {
    STAGE_BYTES = 1 << 20, /* as a rule */
    STAGE_MAX = 4 << 20,
    STAGE_ALIGN = 16,
    UPLOAD_MAX = 16 << 20, /* upload.ts has room for them */
    WRITE_HERE_MAX = 64 << 10,
    READBACK_MIN = 1024,
    /* up to here all free readbacks grow at once: later submits make nothing */
    READBACK_EAGER = 64 << 10
};

#define IMPORT(name) __attribute__((import_module("beryl"), import_name(#name)))
#define EXPORT(name) __attribute__((export_name(#name)))

/* Facts of the device as JSON (caps_of reads them), the bytes of it; 0: there is none. */
IMPORT(gpu_facts) uint32_t web_gpu_facts(char *to, uint32_t size);
IMPORT(gpu_open) void web_gpu_open(web *self, web_shared *shared);
IMPORT(gpu_run) void web_gpu_run(const uint32_t *block, uint32_t n_word);

/* ok: 1, or 0 and why in shared.told. The program may have been dropped meanwhile. */
EXPORT(gpu_compiled) void web_gpu_compiled(web *self, uint32_t program, uint32_t ok);

/* ---- the block ------------------------------------------------------------------------------- */

static void flush(web *d) {
    if (d->n_word) web_gpu_run(d->block, (uint32_t)d->n_word);
    d->n_word = 0;
    d->stage_used = 0; /* JavaScript has copied what lay there */
}

/* Room for an operation of n words behind its number, which is at most the block's size. */
static uint32_t *put(web *d, web_op op, size_t n) {
    if (d->n_word + 1 + n > WEB_BLOCK) flush(d);
    uint32_t *words = d->block + d->n_word;
    d->n_word += 1 + n;
    *words = op;
    return words + 1;
}

static uint32_t *put64(uint32_t *words, uint64_t value) {
    words[0] = (uint32_t)value;
    words[1] = (uint32_t)(value >> 32);
    return words + 2;
}

static uint32_t address(const void *p) {
    return (uint32_t)(uintptr_t)p;
}

static beryl_status fault_of(const web *d, beryl_error *error) {
    const web_shared *s = &d->shared;
    const int size = (int)(s->text_size < WEB_TEXT ? s->text_size : WEB_TEXT);
    switch ((web_fault)s->fault) {
    case WEB_NO_FAULT: return BERYL_OK;
    case WEB_INVALID:
        return base_fail(error, BERYL_DEVICE, "%s: %.*s", d->head.caps.name, size, s->text);
    case WEB_NO_ROOM:
        return base_fail(error, BERYL_NO_DEVICE_MEMORY,
                         "out of device memory: a smaller context or model may fit (%.*s)", size,
                         s->text);
    case WEB_LOST: break;
    }
    return base_fail(error, BERYL_DEVICE_LOST, "the device was lost: %.*s", size, s->text);
}

/* ---- opening --------------------------------------------------------------------------------- */

typedef struct web_driver {
    base_heap *heap;      /* borrowed */
    const beryl_log *log; /* borrowed */
    device_caps caps;
} web_driver;

static double number_of(const base_json *facts, const char *key) {
    const base_json *value = base_json_find(facts, key);
    return value && value->kind == JSON_NUMBER && value->number > 0 ? value->number : 0;
}

static uint32_t number32(const base_json *facts, const char *key) {
    const double value = number_of(facts, key);
    return value < 4294967295.0 ? (uint32_t)value : UINT32_MAX;
}

static uint64_t number64(const base_json *facts, const char *key) {
    const double value = number_of(facts, key);
    return value < 9007199254740992.0 ? (uint64_t)value : UINT64_C(1) << 53;
}

static bool truth_of(const base_json *facts, const char *key) {
    const base_json *value = base_json_find(facts, key);
    return value && value->kind == JSON_TRUE;
}

static void text_of(const base_json *facts, const char *key, char *to, size_t room) {
    const base_json *value = base_json_find(facts, key);
    size_t size = value && value->kind == JSON_STRING ? value->text.size : 0;
    if (size >= room) size = room - 1;
    if (size) memcpy(to, value->text.data, size);
    to[size] = 0;
}

static void caps_of(const base_json *facts, device_caps *caps) {
    char kind[16];
    text_of(facts, "name", caps->name, sizeof caps->name);
    text_of(facts, "driver", caps->driver, sizeof caps->driver);
    text_of(facts, "kind", kind, sizeof kind);
    caps->kind = !strcmp(kind, "software")   ? DEVICE_SOFTWARE
                 : !strcmp(kind, "discrete") ? DEVICE_DISCRETE
                                             : DEVICE_INTEGRATED;
    caps->f16 = truth_of(facts, "f16");
    caps->dot_i8 = truth_of(facts, "dot");
    caps->timestamps = truth_of(facts, "timestamps");
    caps->subgroup_size = number32(facts, "subgroup");
    caps->subgroups = caps->subgroup_size > 0;
    caps->workgroup_bytes = number32(facts, "maxComputeWorkgroupStorageSize");
    caps->workgroup_invocations = number32(facts, "maxComputeInvocationsPerWorkgroup");
    caps->workgroup_size[0] = number32(facts, "maxComputeWorkgroupSizeX");
    caps->workgroup_size[1] = number32(facts, "maxComputeWorkgroupSizeY");
    caps->workgroup_size[2] = number32(facts, "maxComputeWorkgroupSizeZ");
    caps->groups_max = number32(facts, "maxComputeWorkgroupsPerDimension");
    caps->in_order = true;
    caps->storage_max = number32(facts, "maxStorageBuffersPerShaderStage");
    if (caps->storage_max > DEVICE_BINDING_MAX) caps->storage_max = DEVICE_BINDING_MAX;
    caps->binding_max = number64(facts, "maxStorageBufferBindingSize") & ~UINT64_C(3);
    caps->buffer_max = number64(facts, "maxBufferSize") & ~UINT64_C(3);
    if (caps->binding_max > caps->buffer_max) caps->binding_max = caps->buffer_max;
    caps->align_binding = number32(facts, "minStorageBufferOffsetAlignment");
    if (!caps->align_binding) caps->align_binding = 256;
    caps->loop_max = strstr(caps->name, "llvmpipe") ? 65000 : 0; /* see webgpu.c */
    caps->memory = number64(facts, "memory");
}

static void stop(void *user) {
    web_driver *driver = user;
    base_heap_give(driver->heap, driver, sizeof *driver);
}

static void *start(base_heap *heap, const beryl_log *log, beryl_error *error) {
    char *text = base_heap_take(heap, WEB_FACTS);
    web_driver *driver = base_heap_take(heap, sizeof *driver);
    base_arena arena;
    base_json *facts = NULL;
    beryl_status status =
        text && driver ? BERYL_OK : base_fail(error, BERYL_NO_MEMORY, "out of memory");
    base_arena_init(&arena, heap);
    if (status == BERYL_OK) {
        const uint32_t size = web_gpu_facts(text, WEB_FACTS);
        if (size == 0 || size > WEB_FACTS)
            status = base_fail(error, BERYL_NO_DEVICE, "no WebGPU device was given");
        else status = base_json_parse(&arena, text, size, &facts, error);
    }
    if (status == BERYL_OK) {
        driver->heap = heap;
        driver->log = log;
        caps_of(facts, &driver->caps);
    } else {
        base_heap_give(heap, driver, driver ? sizeof *driver : 0);
        driver = NULL;
    }
    base_arena_fini(&arena);
    base_heap_give(heap, text, text ? WEB_FACTS : 0);
    return driver;
}

static uint32_t count(void *user) {
    (void)user;
    return 1;
}

static void describe(void *user, uint32_t index, device_caps *caps, const char **why_not) {
    (void)index;
    *caps = ((web_driver *)user)->caps;
    *why_not = caps->storage_max < 8 ? "fewer than 8 storage buffers a program" : NULL;
}

static void close_web(device *head) {
    web *d = (web *)head;
    base_heap *heap = head->heap;
    if (d->block) {
        put(d, WEB_CLOSE, 0);
        flush(d);
    }
    for (int i = 0; i < WEB_READBACK; i++) {
        base_heap_give(heap, d->readbacks[i].memory, d->readbacks[i].capacity);
        base_vec_fini(heap, &d->readbacks[i].fetches);
    }
    base_heap_give(heap, d->stage, d->stage_size);
    base_heap_give(heap, d->block, d->block ? WEB_BLOCK * sizeof *d->block : 0);
    base_heap_give(heap, d, sizeof *d);
}

static beryl_status open_web(void *user, const device_caps *caps, const device_mask *mask,
                             device **out, beryl_error *error) {
    (void)mask; /* JavaScript has left out what it was told to */
    const web_driver *driver = user;
    web *d = base_heap_take(driver->heap, sizeof *d);
    if (!d) return base_fail(error, BERYL_NO_MEMORY, "out of memory for a device");
    d->head.backend = &device_web;
    d->head.heap = driver->heap;
    d->head.log = driver->log;
    d->head.caps = *caps;
    d->block = base_heap_take(driver->heap, WEB_BLOCK * sizeof *d->block);
    if (!d->block) {
        close_web(&d->head);
        return base_fail(error, BERYL_NO_MEMORY, "out of memory for a device");
    }
    web_gpu_open(d, &d->shared);
    *out = &d->head;
    return BERYL_OK;
}

/* ---- buffers --------------------------------------------------------------------------------- */

static uint32_t handle_of(const web *d, device_buffer buffer) {
    return ((const web_buffer *)device_pool_at(&d->head.buffers, buffer.id))->handle;
}

static beryl_status buffer_make(device *head, device_buffer_item *item, const char *label,
                                beryl_error *error) {
    web *d = (web *)head;
    (void)label;
    beryl_status status = fault_of(d, error);
    if (status) return status;
    web_buffer *buffer = (web_buffer *)item;
    buffer->handle = ++d->handles;
    uint32_t *words = put(d, WEB_BUFFER_MAKE, 3);
    words[0] = buffer->handle;
    put64(words + 1, item->size);
    return BERYL_OK;
}

static uint64_t own_handle(const device_buffer_item *item) {
    return ((const web_buffer *)item)->handle;
}

static void buffer_drop(device *head, device_buffer_item *item) {
    *put((web *)head, WEB_BUFFER_DROP, 1) = ((web_buffer *)item)->handle;
}

static beryl_status settle(device *head, beryl_error *error) {
    web *d = (web *)head;
    const web_shared *s = &d->shared;
    beryl_status status = fault_of(d, error);
    if (status) return status;
    if (!d->settling) {
        d->settling = true;
        *put(d, WEB_SETTLE, 1) = (uint32_t)++d->n_settle;
        flush(d);
    }
    if (s->settled < d->n_settle) return BERYL_PENDING;
    d->settling = false;
    if (!s->full) return BERYL_OK;
    const int size = (int)(s->told_size < WEB_TEXT ? s->told_size : WEB_TEXT);
    return base_fail(error, BERYL_NO_DEVICE_MEMORY, "%.*s", size, s->told);
}

static void put_write(web *d, uint32_t handle, uint64_t offset, const void *data, size_t size) {
    uint32_t *words = put(d, WEB_WRITE, 5);
    words[0] = handle;
    put64(words + 1, offset);
    words[3] = address(data);
    words[4] = (uint32_t)size;
    d->sent += (double)size;
}

static beryl_status write_bytes(device *head, device_buffer_item *item, uint64_t offset,
                                const void *data, size_t size, beryl_error *error) {
    web *d = (web *)head;
    beryl_status status = fault_of(d, error);
    if (status) return status;
    const uint32_t handle = ((web_buffer *)item)->handle;
    if (size <= WRITE_HERE_MAX) {
        uint32_t *words = put(d, WEB_WRITE_HERE, 4 + size / 4);
        words[0] = handle;
        put64(words + 1, offset)[0] = (uint32_t)size;
        memcpy(words + 4, data, size);
        return BERYL_OK;
    }
    put_write(d, handle, offset, data, size);
    flush(d); /* the bytes are the caller's */
    return BERYL_OK;
}

static size_t stage_max(const device *head) {
    (void)head;
    return STAGE_MAX;
}

static bool stage_grow(web *d, size_t size) {
    if (size < STAGE_BYTES) size = STAGE_BYTES;
    if (size <= d->stage_size) return true;
    flush(d); /* what lies there is still to be copied */
    void *stage = base_heap_resize(d->head.heap, d->stage, d->stage_size, size);
    if (!stage) return false;
    d->stage = stage;
    d->stage_size = size;
    return true;
}

static beryl_status stage(device *head, size_t size, void **memory, beryl_error *error) {
    web *d = (web *)head;
    beryl_status status = fault_of(d, error);
    if (status) return status;
    if (!stage_grow(d, size)) return base_no_memory(error);
    if (d->stage_used + size > d->stage_size) flush(d);
    if (d->sent - d->shared.uploaded > UPLOAD_MAX) {
        put(d, WEB_FLUSH, 0);
        flush(d);
        return BERYL_PENDING;
    }
    d->stage_at = d->stage_used;
    *memory = d->stage + d->stage_at;
    return BERYL_OK;
}

static beryl_status stage_commit(device *head, device_buffer_item *item, uint64_t offset,
                                 size_t size, beryl_error *error) {
    web *d = (web *)head;
    beryl_status status = fault_of(d, error);
    if (status || !size) return status;
    put_write(d, ((web_buffer *)item)->handle, offset, d->stage + d->stage_at, size);
    d->stage_used = (d->stage_at + size + STAGE_ALIGN - 1) / STAGE_ALIGN * STAGE_ALIGN;
    if (d->stage_used > d->stage_size) d->stage_used = d->stage_size;
    return BERYL_OK;
}

/* ---- programs and bindings ------------------------------------------------------------------- */

static beryl_status program_make(device *head, device_program_item *item,
                                 const device_program_desc *desc, beryl_error *error) {
    web *d = (web *)head;
    beryl_status status = fault_of(d, error);
    if (status) return status;
    web_program *program = (web_program *)item;
    const char *entry = desc->entry ? desc->entry : "main";
    program->handle = ++d->handles;
    program->state = WEB_WAITING;
    uint32_t *words = put(d, WEB_PROGRAM_MAKE, 10);
    words[0] = program->handle;
    words[1] = item->n_binding;
    words[2] = item->written;
    words[3] = item->param_bytes > 0;
    words[4] = (uint32_t)desc->uses_f16 | (uint32_t)desc->uses_subgroups << 1;
    words[5] = address(desc->source);
    words[6] = (uint32_t)desc->source_size;
    words[7] = address(entry);
    words[8] = (uint32_t)strlen(entry);
    words[9] = address(item->label);
    flush(d); /* the text is the caller's */
    return BERYL_OK;
}

void web_gpu_compiled(web *d, uint32_t handle, uint32_t ok) {
    for (uint32_t i = 0; i < d->head.programs.count; i++) {
        web_program *program = d->head.programs.slots[i].item;
        if (!program || program->handle != handle) continue;
        program->state = ok ? WEB_READY : WEB_FAILED;
        const int size = (int)(d->shared.told_size < WEB_TEXT ? d->shared.told_size : WEB_TEXT);
        if (!ok)
            base_fail(&program->error, BERYL_DEVICE, "%s: %.*s", program->head.label, size,
                      d->shared.told);
    }
}

static beryl_status program_status(device *head, device_program_item *item, beryl_error *error) {
    const web_program *program = (const web_program *)item;
    beryl_status status = fault_of((web *)head, error);
    if (status) return status;
    if (program->state == WEB_WAITING) return BERYL_PENDING;
    if (program->state == WEB_FAILED) {
        if (error) *error = program->error;
        return program->error.code;
    }
    return BERYL_OK;
}

static void program_drop(device *head, device_program_item *item) {
    *put((web *)head, WEB_PROGRAM_DROP, 1) = ((web_program *)item)->handle;
}

static beryl_status bindings_make(device *head, device_bindings_item *item, beryl_error *error) {
    web *d = (web *)head;
    beryl_status status = fault_of(d, error);
    if (status) return status;
    web_bindings *bindings = (web_bindings *)item;
    bindings->handle = ++d->handles;
    uint32_t *words = put(d, WEB_BINDINGS_MAKE, 3 + 5 * (size_t)item->n_binding);
    words[0] = bindings->handle;
    words[1] = item->n_binding;
    words[2] = item->written;
    words += 3;
    for (uint32_t i = 0; i < item->n_binding; i++) {
        *words = ((web_buffer *)item->ranges[i].buffer)->handle;
        words = put64(put64(words + 1, item->ranges[i].offset), item->ranges[i].size);
    }
    return BERYL_OK;
}

static void bindings_drop(device *head, device_bindings_item *item) {
    *put((web *)head, WEB_BINDINGS_DROP, 1) = ((web_bindings *)item)->handle;
}

/* ---- results --------------------------------------------------------------------------------- */

static web_readback *pick_readback(web *d, size_t bytes) {
    web_readback *best = NULL, *oldest = NULL;
    for (int i = 0; i < WEB_READBACK; i++) {
        web_readback *r = &d->readbacks[i];
        if (r->ticket) {
            if (!oldest || r->number < oldest->number) oldest = r;
            continue;
        }
        if (r->state == WEB_WAITING) continue; /* dropped, but JavaScript still writes there */
        const bool fits = r->capacity >= bytes, best_fits = best && best->capacity >= bytes;
        if (!best || (fits ? !best_fits || r->capacity < best->capacity
                           : !best_fits && r->capacity > best->capacity))
            best = r;
    }
    if (best) return best;
    if (!oldest || oldest->state == WEB_WAITING || d->n_readback - oldest->number < 4) return NULL;
    oldest->ticket = 0;
    return oldest;
}

static bool readback_grow(web *d, web_readback *r, size_t bytes, size_t n_fetch) {
    size_t capacity = READBACK_MIN;
    while (capacity < bytes && capacity < SIZE_MAX / 4) capacity *= 2;
    const size_t have = r->fetches.count;
    if (n_fetch > have && !base_vec_reserve(d->head.heap, &r->fetches, n_fetch - have))
        return false;
    if (r->capacity >= bytes) return true;
    base_heap_give(d->head.heap, r->memory, r->capacity);
    r->capacity = 0;
    r->memory = base_heap_take(d->head.heap, capacity);
    if (r->memory) r->capacity = capacity;
    return r->memory != NULL;
}

static beryl_status take_readback(web *d, size_t bytes, size_t n_fetch, web_readback **out,
                                  beryl_error *error) {
    web_readback *r = *out = pick_readback(d, bytes);
    if (!r) return BERYL_PENDING;
    for (int i = 0; i < WEB_READBACK; i++) {
        web_readback *each = &d->readbacks[i];
        if (each != r && (bytes > READBACK_EAGER || each->ticket || each->state == WEB_WAITING))
            continue;
        if (!readback_grow(d, each, bytes, n_fetch))
            return base_fail(error, BERYL_NO_MEMORY, "out of memory for results of %zu bytes",
                             bytes);
    }
    r->fetches.count = 0;
    return BERYL_OK;
}

/* Programs compiled, and the place for results. */
static beryl_status prepare(web *d, const device_submit_desc *desc, web_readback **out,
                            uint32_t *n_stamp, beryl_error *error) {
    *out = NULL;
    *n_stamp = 0;
    uint64_t bytes = 0;
    size_t n_fetch = 0;
    for (size_t i = 0; i < desc->n_command; i++) {
        const device_command *c = &desc->commands[i];
        if (c->kind == DEVICE_DISPATCH) {
            web_program *program = device_pool_at(&d->head.programs, c->dispatch.program.id);
            beryl_status status = program->state == WEB_READY
                                      ? BERYL_OK
                                      : program_status(&d->head, &program->head, error);
            if (status) return status;
        } else if (c->kind == DEVICE_FETCH) {
            if (c->fetch.size > SIZE_MAX / 8 - bytes)
                return base_fail(error, BERYL_NO_MEMORY,
                                 "results of more than the module's memory");
            bytes += (c->fetch.size + 7) & ~UINT64_C(7);
            n_fetch++;
        } else if (c->kind == DEVICE_STAMP && d->head.caps.timestamps) {
            ++*n_stamp;
        }
    }
    if (!n_fetch && !*n_stamp) return BERYL_OK;
    beryl_status status =
        take_readback(d, (size_t)bytes + 8 * (size_t)*n_stamp, n_fetch, out, error);
    if (status) return status;
    (*out)->stamps_at = (size_t)bytes;
    (*out)->n_stamp = *n_stamp;
    return BERYL_OK;
}

static beryl_status find_readback(web *d, device_ticket ticket, web_readback **out,
                                  beryl_error *error) {
    *out = NULL;
    beryl_status status = fault_of(d, error);
    if (status) return status;
    for (int i = 0; i < WEB_READBACK; i++)
        if (d->readbacks[i].ticket == ticket) *out = &d->readbacks[i];
    if (!*out)
        return base_fail(error, BERYL_MISUSE, "ticket %llu has no results (dropped?)",
                         (unsigned long long)ticket);
    if ((*out)->state == WEB_WAITING) return BERYL_PENDING;
    if ((*out)->state == WEB_READY) return BERYL_OK;
    return base_fail(error, BERYL_DEVICE, "the results of ticket %llu could not be mapped",
                     (unsigned long long)ticket);
}

static beryl_status fetched(device *head, device_ticket ticket, uint32_t n, const void **data,
                            size_t *size, beryl_error *error) {
    web_readback *r;
    beryl_status status = find_readback((web *)head, ticket, &r, error);
    if (status) return status;
    if (n >= r->fetches.count)
        return base_fail(error, BERYL_MISUSE, "fetch %u of ticket %llu, which has %zu", n,
                         (unsigned long long)ticket, r->fetches.count);
    *data = r->memory + r->fetches.data[n].at;
    *size = r->fetches.data[n].size;
    return BERYL_OK;
}

static void fetch_drop(device *head, device_ticket ticket) {
    web *d = (web *)head;
    for (int i = 0; i < WEB_READBACK; i++)
        if (d->readbacks[i].ticket == ticket) d->readbacks[i].ticket = 0;
}

static beryl_status stamps(device *head, device_ticket ticket, uint64_t *ns, uint32_t *n_stamp,
                           beryl_error *error) {
    const uint32_t capacity = *n_stamp;
    *n_stamp = 0;
    web_readback *r;
    beryl_status status = find_readback((web *)head, ticket, &r, error);
    if (status) return status;
    uint64_t first = 0, now;
    for (uint32_t i = 0; i < r->n_stamp && i < capacity; i++) {
        memcpy(&now, r->memory + r->stamps_at + 8 * (size_t)i, 8);
        if (!i) first = now;
        ns[i] = now > first ? now - first : 0;
        ++*n_stamp;
    }
    return BERYL_OK;
}

/* ---- work ------------------------------------------------------------------------------------ */

static void encode(web *d, const device_command *c, web_readback *r, size_t *at) {
    uint32_t *words;
    switch (c->kind) {
    case DEVICE_DISPATCH:
        if (!c->dispatch.groups[0] || !c->dispatch.groups[1] || !c->dispatch.groups[2]) break;
        words = put(d, WEB_DISPATCH, 6);
        words[0] = ((const web_program *)device_pool_at(&d->head.programs, c->dispatch.program.id))
                       ->handle;
        words[1] =
            ((const web_bindings *)device_pool_at(&d->head.bindings, c->dispatch.bindings.id))
                ->handle;
        words[2] = c->dispatch.param_offset;
        memcpy(words + 3, c->dispatch.groups, sizeof c->dispatch.groups);
        break;
    case DEVICE_COPY:
        if (!c->copy.size) break;
        words = put(d, WEB_COPY, 8);
        words[0] = handle_of(d, c->copy.from);
        words[1] = handle_of(d, c->copy.to);
        put64(put64(put64(words + 2, c->copy.from_offset), c->copy.to_offset), c->copy.size);
        break;
    case DEVICE_FILL:
        if (!c->fill.size) break;
        words = put(d, WEB_FILL, 5);
        words[0] = handle_of(d, c->fill.buffer);
        put64(put64(words + 1, c->fill.offset), c->fill.size);
        break;
    case DEVICE_FETCH:
        words = put(d, WEB_FETCH, 6);
        words[0] = handle_of(d, c->fetch.buffer);
        put64(put64(words + 1, c->fetch.offset), c->fetch.size)[0] = (uint32_t)*at;
        r->fetches.data[r->fetches.count++] = (struct web_span){*at, (size_t)c->fetch.size};
        *at += ((size_t)c->fetch.size + 7) & ~(size_t)7;
        break;
    case DEVICE_STAMP:
        if (d->head.caps.timestamps) put(d, WEB_STAMP, 0);
        break;
    }
}

static beryl_status submit(device *head, const device_submit_desc *desc, device_ticket ticket,
                           beryl_error *error) {
    web *d = (web *)head;
    web_readback *r = NULL;
    uint32_t n_stamp = 0;
    beryl_status status = fault_of(d, error);
    if (!status) status = prepare(d, desc, &r, &n_stamp, error);
    if (status) return status;
    uint32_t *words = put(d, WEB_BEGIN, 4);
    words[0] = address(desc->params);
    words[1] = (uint32_t)desc->param_bytes;
    words[2] = n_stamp;
    words[3] = r ? (uint32_t)(r->stamps_at + 8 * (size_t)n_stamp) : 0;
    size_t at = 0;
    for (size_t i = 0; i < desc->n_command; i++) encode(d, &desc->commands[i], r, &at);
    words = put(d, WEB_END, 4);
    words[0] = (uint32_t)ticket;
    words[1] = r ? address(&r->state) : 0;
    words[2] = r ? address(r->memory) : 0;
    words[3] = r ? (uint32_t)r->stamps_at : 0;
    if (r) {
        r->ticket = ticket;
        r->number = d->n_readback++;
        r->state = WEB_WAITING;
    }
    flush(d);
    return BERYL_OK;
}

static beryl_status poll(device *head, device_ticket *done, beryl_error *error) {
    const web *d = (const web *)head;
    *done = (device_ticket)d->shared.done;
    return fault_of(d, error);
}

/* There is no waiting here: JavaScript steps again once something has ended. */
static beryl_status wait(device *head, device_ticket ticket, beryl_error *error) {
    const web *d = (const web *)head;
    beryl_status status = fault_of(d, error);
    return status ? status : d->shared.done >= (double)ticket ? BERYL_OK : BERYL_PENDING;
}

const device_backend device_web = {
    .name = "web",
    .languages = DEVICE_LANGUAGE_BIT(DEVICE_WGSL),
    .buffer_bytes = sizeof(web_buffer),
    .program_bytes = sizeof(web_program),
    .bindings_bytes = sizeof(web_bindings),
    .start = start,
    .stop = stop,
    .count = count,
    .describe = describe,
    .open = open_web,
    .close = close_web,
    .buffer_make = buffer_make,
    .buffer_drop = buffer_drop,
    .handle = BUILD_IS_SMALL ? NULL : own_handle,
    .settle = settle,
    .write = write_bytes,
    .stage_max = stage_max,
    .stage = stage,
    .stage_commit = stage_commit,
    .program_make = program_make,
    .program_status = program_status,
    .program_drop = program_drop,
    .bindings_make = bindings_make,
    .bindings_drop = bindings_drop,
    .submit = submit,
    .poll = poll,
    .wait = wait,
    .fetched = fetched,
    .fetch_drop = fetch_drop,
    .stamps = stamps,
};
