/* device.c - ids, and the checks that every backend shares.
 *
 * Owns the pools behind the ids and the statistics.
 * Refuses stale ids, ranges outside a buffer, wrong alignment, a buffer bound for reading and for
 * writing in one dispatch, groups and programs above the device's limits, bindings whose buffer was
 * dropped. The one idea: a command list is checked whole before a backend sees any of it, so a
 * backend only translates, and the dummy device refuses exactly what a real one would.
 */
#include "device/device.h"
#include "base/build.h"
#include "base/error.h"
#include "base/file.h"

#include <stdio.h>
#include <string.h>

enum {
    INDEX_BITS = 18, /* 262,143 things of a kind alive at once, 16,384 generations of each slot */
    INDEX_MAX = (1 << INDEX_BITS) - 1,
    GENERATION_MAX = (1 << (32 - INDEX_BITS)) - 1
};

/* ---- ids ---------------------------------------------------------------------------------------
 */

void *device_pool_at(const device_pool *pool, uint32_t id) {
    uint32_t index = id & INDEX_MAX;
    if (!index || index > pool->count) return NULL;
    const struct device_pool_slot *slot = &pool->slots[index - 1];
    return slot->generation == id >> INDEX_BITS ? slot->item : NULL;
}

/* A zeroed item with an id, or NULL: no memory or too many. */
static void *pool_add(base_heap *heap, device_pool *pool, size_t size, uint32_t *id) {
    if (!pool->free && pool->count == pool->capacity) {
        uint32_t capacity = pool->capacity ? pool->capacity * 2 : 32;
        if (capacity > INDEX_MAX) capacity = INDEX_MAX;
        if (capacity == pool->capacity) return NULL;
        void *slots = base_heap_resize(heap, pool->slots, pool->capacity * sizeof *pool->slots,
                                       capacity * sizeof *pool->slots);
        if (!slots) return NULL;
        pool->slots = slots;
        pool->capacity = capacity;
    }
    void *item = base_heap_take(heap, size);
    if (!item) return NULL;
    uint32_t index = pool->free;
    if (index) {
        pool->free = pool->slots[index - 1].next;
    } else {
        index = ++pool->count;
        pool->slots[index - 1].generation = 0;
    }
    pool->slots[index - 1].item = item;
    pool->alive++;
    *id = pool->slots[index - 1].generation << INDEX_BITS | index;
    return item;
}

static void pool_remove(base_heap *heap, device_pool *pool, uint32_t id, size_t size) {
    struct device_pool_slot *slot = &pool->slots[(id & INDEX_MAX) - 1];
    base_heap_give(heap, slot->item, size);
    slot->item = NULL;
    pool->alive--;
    if (slot->generation == GENERATION_MAX) return; /* an id is never given twice */
    slot->generation++;
    slot->next = pool->free;
    pool->free = id & INDEX_MAX;
}

void device_stats_bytes(device *d, int64_t delta) {
    d->stats.buffer_bytes += (uint64_t)delta;
    if (d->stats.buffer_bytes > d->stats.buffer_bytes_peak)
        d->stats.buffer_bytes_peak = d->stats.buffer_bytes;
}

/* ---- devices --------------------------------------------------------------------------------- */

static void *enter(device *d) {
    return BUILD_HAS_C_TEXTS && d->backend->enter ? d->backend->enter(d) : NULL;
}

static void leave(device *d, void *own) {
    if (BUILD_HAS_C_TEXTS && d->backend->leave) d->backend->leave(d, own);
}

static void pool_fini(device *d, device_pool *pool, size_t size) {
    for (uint32_t i = 0; i < pool->count; i++)
        if (pool->slots[i].item) base_heap_give(d->heap, pool->slots[i].item, size);
    base_heap_give(d->heap, pool->slots, pool->capacity * sizeof *pool->slots);
    *pool = (device_pool){0};
}

void device_close(device *d) {
    if (!d) return;
    const device_backend *backend = d->backend;
    void *own = enter(d);
    if (backend->drain) backend->drain(d);
    for (uint32_t i = 0; i < d->bindings.count; i++)
        if (d->bindings.slots[i].item) backend->bindings_drop(d, d->bindings.slots[i].item);
    for (uint32_t i = 0; i < d->programs.count; i++)
        if (d->programs.slots[i].item) backend->program_drop(d, d->programs.slots[i].item);
    for (uint32_t i = 0; i < d->buffers.count; i++)
        if (d->buffers.slots[i].item) backend->buffer_drop(d, d->buffers.slots[i].item);
    pool_fini(d, &d->bindings, backend->bindings_bytes);
    pool_fini(d, &d->programs, backend->program_bytes);
    pool_fini(d, &d->buffers, backend->buffer_bytes);
    leave(d, own);
    backend->close(d);
}

const device_caps *device_caps_of(const device *d) {
    return &d->caps;
}

bool device_is_processor(const device_caps *caps) {
    return caps->kind == DEVICE_SOFTWARE || caps->kind == DEVICE_HOST;
}

bool device_is_compiled(const device_caps *caps) {
    return caps->kind == DEVICE_HOST || (caps->kind == DEVICE_SOFTWARE &&
                                         caps->languages & DEVICE_LANGUAGE_BIT(DEVICE_OPENCL_C));
}

bool device_makes_vectors(const device_caps *caps) {
    return device_is_processor(caps) && !device_is_compiled(caps);
}

const char *device_language_name(device_language language) {
    switch (language) {
    case DEVICE_WGSL: return "WGSL";
    case DEVICE_CUDA_C: return "CUDA C";
    case DEVICE_HIP_C: return "HIP C";
    case DEVICE_OPENCL_C: return "OpenCL C";
    case DEVICE_C: return "C";
    case DEVICE_IR: return "kernel IR";
    }
    return "no language";
}

void device_cache_forgo(device *d) {
    d->no_cache = true;
}

void device_stats_of(const device *d, device_stats *stats) {
    *stats = d->stats;
    stats->buffers = d->buffers.alive;
    stats->programs = d->programs.alive;
    stats->bindings = d->bindings.alive;
}

/* ---- buffers --------------------------------------------------------------------------------- */

/* source NULL: memory of the device's own. */
static beryl_status make_buffer(device *d, const beryl_source *source, uint64_t offset,
                                uint64_t size, const char *label, device_buffer *out,
                                beryl_error *error) {
    if (size > d->caps.buffer_max)
        return base_fail(error, BERYL_NO_DEVICE_MEMORY,
                         "buffer %s of %llu bytes is above the device's largest, %llu", label,
                         (unsigned long long)size, (unsigned long long)d->caps.buffer_max);
    uint32_t id;
    device_buffer_item *item = pool_add(d->heap, &d->buffers, d->backend->buffer_bytes, &id);
    if (!item) return base_fail(error, BERYL_NO_MEMORY, "out of memory for buffer %s", label);
    item->size = (size + 3) & ~(uint64_t)3;
    void *own = enter(d);
    beryl_status status = source
                              ? d->backend->buffer_map(d, item, source, offset, size, label, error)
                              : d->backend->buffer_make(d, item, label, error);
    leave(d, own);
    if (status) {
        pool_remove(d->heap, &d->buffers, id, d->backend->buffer_bytes);
        return status;
    }
    d->stats.objects++;
    device_stats_bytes(d, (int64_t)item->size);
    *out = (device_buffer){id};
    return BERYL_OK;
}

beryl_status device_buffer_make(device *d, uint64_t size, const char *label, device_buffer *out,
                                beryl_error *error) {
    *out = (device_buffer){0};
    if (!label) label = "buffer";
    if (!size) return base_fail(error, BERYL_MISUSE, "buffer %s has no bytes", label);
    return make_buffer(d, NULL, 0, size, label, out, error);
}

beryl_status device_buffer_map(device *d, const beryl_source *source, uint64_t offset,
                               uint64_t size, const char *label, device_buffer *out,
                               beryl_error *error) {
    *out = (device_buffer){0};
    if (!label) label = "buffer";
    if (!d->backend->buffer_map)
        return base_fail(error, BERYL_UNSUPPORTED, "buffer %s: %s has no memory behind files",
                         label, d->caps.name);
    if (!source || !source->read || !size || !base_range_inside(offset, size, source->size))
        return base_fail(error, BERYL_MISUSE, "buffer %s: [%llu, +%llu) of a source of %llu bytes",
                         label, (unsigned long long)offset, (unsigned long long)size,
                         (unsigned long long)(source ? source->size : 0));
    return make_buffer(d, source, offset, size, label, out, error);
}

void device_buffer_drop(device *d, device_buffer buffer) {
    device_buffer_item *item = device_pool_at(&d->buffers, buffer.id);
    if (!item) return;
    for (uint32_t i = 0; i < d->bindings.count; i++) {
        device_bindings_item *bindings = d->bindings.slots[i].item;
        for (uint32_t k = 0; bindings && k < bindings->n_binding; k++)
            if (bindings->ranges[k].buffer == item)
                bindings->ranges[k].buffer = NULL, bindings->broken = true;
    }
    device_stats_bytes(d, -(int64_t)item->size);
    void *own = enter(d);
    d->backend->buffer_drop(d, item);
    leave(d, own);
    pool_remove(d->heap, &d->buffers, buffer.id, d->backend->buffer_bytes);
}

beryl_status device_settle(device *d, beryl_error *error) {
    return d->backend->settle ? d->backend->settle(d, error) : BERYL_OK;
}

/* [offset, offset + size) of a live buffer, multiples of 4; NULL and an error otherwise. */
static device_buffer_item *range_of(device *d, device_buffer buffer, uint64_t offset, uint64_t size,
                                    const char *what, beryl_error *error) {
    device_buffer_item *item = device_pool_at(&d->buffers, buffer.id);
    if (!item) base_fail(error, BERYL_MISUSE, "%s: no such buffer (dropped?)", what);
    else if ((offset | size) & 3)
        base_fail(error, BERYL_MISUSE, "%s: offset %llu and size %llu are not multiples of 4", what,
                  (unsigned long long)offset, (unsigned long long)size);
    else if (!base_range_inside(offset, size, item->size))
        base_fail(error, BERYL_MISUSE, "%s: [%llu, +%llu) lies outside a buffer of %llu bytes",
                  what, (unsigned long long)offset, (unsigned long long)size,
                  (unsigned long long)item->size);
    else return item;
    return NULL;
}

beryl_status device_write(device *d, device_buffer buffer, uint64_t offset, const void *data,
                          size_t size, beryl_error *error) {
    device_buffer_item *item = range_of(d, buffer, offset, size, "write", error);
    if (!item) return BERYL_MISUSE;
    if (d->staged) return base_fail(error, BERYL_MISUSE, "write between a stage and its commit");
    if (!size) return BERYL_OK;
    void *own = enter(d);
    beryl_status status = d->backend->write(d, item, offset, data, size, error);
    leave(d, own);
    return status;
}

void *device_buffer_memory(device *d, device_buffer buffer) {
    device_buffer_item *item = device_pool_at(&d->buffers, buffer.id);
    return item && d->backend->memory ? d->backend->memory(d, item) : NULL;
}

uint64_t device_buffer_handle(device *d, device_buffer buffer) {
    const device_buffer_item *item = device_pool_at(&d->buffers, buffer.id);
    return item && d->backend->handle ? d->backend->handle(item) : 0;
}

size_t device_stage_max(const device *d) {
    return d->backend->stage_max(d);
}

beryl_status device_stage(device *d, size_t size, void **memory, beryl_error *error) {
    *memory = NULL;
    d->staged = 0;
    if (!d->backend->stage_max(d))
        return base_fail(error, BERYL_UNSUPPORTED, "%s takes no bytes", d->caps.name);
    if (!size || size > d->backend->stage_max(d))
        return base_fail(error, BERYL_MISUSE, "stage: %zu bytes; 1 to %zu are possible", size,
                         d->backend->stage_max(d));
    void *own = enter(d);
    beryl_status status = d->backend->stage(d, size, memory, error);
    leave(d, own);
    if (!status) d->staged = size;
    return status;
}

beryl_status device_stage_commit(device *d, device_buffer buffer, uint64_t offset, size_t size,
                                 beryl_error *error) {
    if (!d->staged || size > d->staged)
        return base_fail(error, BERYL_MISUSE, "commit of %zu bytes, staged are %zu", size,
                         d->staged);
    device_buffer_item *item = range_of(d, buffer, offset, size, "commit", error);
    if (!item) return BERYL_MISUSE;
    d->staged = 0;
    void *own = enter(d);
    beryl_status status = d->backend->stage_commit(d, item, offset, size, error);
    leave(d, own);
    return status;
}

/* ---- programs and bindings ------------------------------------------------------------------- */

/* Compilers may end the process over text that is not UTF-8. */
static bool is_utf8(const char *text, size_t size) {
    for (size_t i = 0; i < size;) {
        unsigned char c = (unsigned char)text[i++];
        if (!c) return false;
        if (c < 0x80) continue;
        int more = c >= 0xc2 && c < 0xe0   ? 1
                   : c >= 0xe0 && c < 0xf0 ? 2
                   : c >= 0xf0 && c < 0xf5 ? 3
                                           : 0;
        if (!more || (size_t)more > size - i) return false;
        unsigned char next = (unsigned char)text[i];
        if ((c == 0xe0 && next < 0xa0) || (c == 0xed && next > 0x9f) ||
            (c == 0xf0 && next < 0x90) || (c == 0xf4 && next > 0x8f))
            return false;
        for (; more; more--, i++)
            if (((unsigned char)text[i] & 0xc0) != 0x80) return false;
    }
    return true;
}

static beryl_status check_program(const device *d, const device_program_desc *desc,
                                  const char *label, beryl_error *error) {
    const device_caps *caps = &d->caps;
    if ((unsigned int)desc->language >= DEVICE_LANGUAGE_COUNT)
        return base_fail(error, BERYL_MISUSE, "program %s: no such language", label);
    if (!(caps->languages & DEVICE_LANGUAGE_BIT(desc->language)))
        return base_fail(error, BERYL_UNSUPPORTED, "program %s is %s, which %s:%u does not compile",
                         label, device_language_name(desc->language), caps->backend, caps->index);
    if (!desc->source || !desc->source_size || !is_utf8(desc->source, desc->source_size))
        return base_fail(error, BERYL_MISUSE, "program %s: no text, or not UTF-8", label);
    if (desc->entry && !is_utf8(desc->entry, strlen(desc->entry)))
        return base_fail(error, BERYL_MISUSE, "program %s: the entry's name is not UTF-8", label);
    if (!desc->n_binding || desc->n_binding > DEVICE_BINDING_MAX ||
        desc->param_bytes > DEVICE_PARAM_MAX || (desc->param_bytes & 3))
        return base_fail(error, BERYL_MISUSE, "program %s: %u bindings, %u bytes of parameters",
                         label, desc->n_binding, desc->param_bytes);
    if (desc->n_binding > caps->storage_max)
        return base_fail(error, BERYL_UNSUPPORTED, "program %s: %u bindings, %s has %u", label,
                         desc->n_binding, caps->name, caps->storage_max);
    if (desc->uses_f16 && !caps->f16)
        return base_fail(error, BERYL_UNSUPPORTED, "program %s needs f16, which %s has not", label,
                         caps->name);
    if (desc->uses_subgroups && !caps->subgroups)
        return base_fail(error, BERYL_UNSUPPORTED, "program %s needs subgroups, which %s has not",
                         label, caps->name);
    uint64_t invocations = 1;
    bool fits = true;
    for (int i = 0; i < 3; i++) {
        uint32_t size = desc->workgroup[i] ? desc->workgroup[i] : 1;
        fits &= size <= caps->workgroup_size[i];
        invocations *= fits ? size : 1;
    }
    if (!fits || invocations > caps->workgroup_invocations)
        return base_fail(error, BERYL_UNSUPPORTED,
                         "program %s: workgroups of %u x %u x %u, %s allows %u", label,
                         desc->workgroup[0], desc->workgroup[1], desc->workgroup[2], caps->name,
                         caps->workgroup_invocations);
    return BERYL_OK;
}

beryl_status device_program_make(device *d, const device_program_desc *desc, device_program *out,
                                 beryl_error *error) {
    *out = (device_program){0};
    const char *label =
        desc->label && is_utf8(desc->label, strlen(desc->label)) ? desc->label : "program";
    beryl_status status = check_program(d, desc, label, error);
    if (status) return status;
    uint32_t id;
    device_program_item *item = pool_add(d->heap, &d->programs, d->backend->program_bytes, &id);
    if (!item) return base_fail(error, BERYL_NO_MEMORY, "out of memory for program %s", label);
    item->n_binding = desc->n_binding;
    item->param_bytes = desc->param_bytes;
    for (uint32_t i = 0; i < desc->n_binding; i++)
        if (desc->access[i] == DEVICE_READ_WRITE) item->written |= UINT32_C(1) << i;
    for (int i = 0; i < 3; i++) item->workgroup[i] = desc->workgroup[i] ? desc->workgroup[i] : 1;
    snprintf(item->label, sizeof item->label, "%.*s", (int)sizeof item->label - 1, label);
    /* a cut in the middle of a character would not be UTF-8 any more */
    for (size_t n = strlen(item->label); n && !is_utf8(item->label, n);) item->label[--n] = 0;
    status = d->backend->program_make(d, item, desc, error);
    if (status) {
        pool_remove(d->heap, &d->programs, id, d->backend->program_bytes);
        return status;
    }
    d->stats.objects++;
    *out = (device_program){id};
    return BERYL_OK;
}

beryl_status device_program_status(device *d, device_program program, beryl_error *error) {
    device_program_item *item = device_pool_at(&d->programs, program.id);
    if (!item) return base_fail(error, BERYL_MISUSE, "no such program (dropped?)");
    void *own = enter(d);
    beryl_status status = d->backend->program_status(d, item, error);
    leave(d, own);
    return status;
}

void device_program_drop(device *d, device_program program) {
    device_program_item *item = device_pool_at(&d->programs, program.id);
    if (!item) return;
    void *own = enter(d);
    d->backend->program_drop(d, item);
    leave(d, own);
    pool_remove(d->heap, &d->programs, program.id, d->backend->program_bytes);
}

static beryl_status check_bindings(device *d, const device_program_item *program,
                                   const device_binding *bindings, device_bindings_item *item,
                                   beryl_error *error) {
    const char *label = program->label;
    for (uint32_t i = 0; i < program->n_binding; i++) {
        device_buffer_item *buffer = device_pool_at(&d->buffers, bindings[i].buffer.id);
        if (!buffer)
            return base_fail(error, BERYL_MISUSE, "%s: binding %u has no such buffer (dropped?)",
                             label, i);
        uint64_t offset = bindings[i].offset, size = bindings[i].size;
        if (!size && offset < buffer->size) size = buffer->size - offset;
        if (!size || (size & 3) || !base_range_inside(offset, size, buffer->size))
            return base_fail(error, BERYL_MISUSE,
                             "%s: binding %u, [%llu, +%llu), of a buffer of %llu bytes", label, i,
                             (unsigned long long)offset, (unsigned long long)size,
                             (unsigned long long)buffer->size);
        if (offset % d->caps.align_binding)
            return base_fail(error, BERYL_MISUSE,
                             "%s: binding %u begins at %llu, not at a multiple of %u", label, i,
                             (unsigned long long)offset, d->caps.align_binding);
        if (size > d->caps.binding_max)
            return base_fail(error, BERYL_MISUSE,
                             "%s: binding %u has %llu bytes, the device allows %llu", label, i,
                             (unsigned long long)size, (unsigned long long)d->caps.binding_max);
        item->ranges[i].buffer = buffer;
        item->ranges[i].offset = offset;
        item->ranges[i].size = size;
    }
    for (uint32_t i = 0; i < program->n_binding; i++) {
        for (uint32_t k = 0; k < i; k++) {
            bool one = program->written >> i & 1, other = program->written >> k & 1;
            if (item->ranges[i].buffer != item->ranges[k].buffer || (!one && !other)) continue;
            if (one != other)
                return base_fail(error, BERYL_MISUSE,
                                 "%s: bindings %u and %u read and write one buffer", label, k, i);
            if (item->ranges[i].offset < item->ranges[k].offset + item->ranges[k].size &&
                item->ranges[k].offset < item->ranges[i].offset + item->ranges[i].size)
                return base_fail(error, BERYL_MISUSE, "%s: bindings %u and %u write the same bytes",
                                 label, k, i);
        }
    }
    return BERYL_OK;
}

beryl_status device_bindings_make(device *d, device_program program, const device_binding *bindings,
                                  uint32_t n, device_bindings *out, beryl_error *error) {
    *out = (device_bindings){0};
    const device_program_item *made_for = device_pool_at(&d->programs, program.id);
    if (!made_for) return base_fail(error, BERYL_MISUSE, "bindings for no such program (dropped?)");
    if (n != made_for->n_binding)
        return base_fail(error, BERYL_MISUSE, "%s: %u bindings, it has %u", made_for->label, n,
                         made_for->n_binding);
    uint32_t id;
    device_bindings_item *item = pool_add(d->heap, &d->bindings, d->backend->bindings_bytes, &id);
    if (!item)
        return base_fail(error, BERYL_NO_MEMORY, "out of memory for the bindings of %s",
                         made_for->label);
    item->n_binding = n;
    item->written = made_for->written;
    beryl_status status = check_bindings(d, made_for, bindings, item, error);
    if (!status) status = d->backend->bindings_make(d, item, error);
    if (status) {
        pool_remove(d->heap, &d->bindings, id, d->backend->bindings_bytes);
        return status;
    }
    d->stats.objects++;
    *out = (device_bindings){id};
    return BERYL_OK;
}

void device_bindings_drop(device *d, device_bindings bindings) {
    device_bindings_item *item = device_pool_at(&d->bindings, bindings.id);
    if (!item) return;
    d->backend->bindings_drop(d, item);
    pool_remove(d->heap, &d->bindings, bindings.id, d->backend->bindings_bytes);
}

/* ---- work ------------------------------------------------------------------------------------ */

static beryl_status check_dispatch(device *d, const device_submit_desc *desc, size_t at,
                                   beryl_error *error) {
    const device_command *c = &desc->commands[at];
    const device_program_item *program = device_pool_at(&d->programs, c->dispatch.program.id);
    if (!program)
        return base_fail(error, BERYL_MISUSE, "command %zu: no such program (dropped?)", at);
    const device_bindings_item *bindings = device_pool_at(&d->bindings, c->dispatch.bindings.id);
    if (!bindings)
        return base_fail(error, BERYL_MISUSE, "command %zu, %s: no such bindings (dropped?)", at,
                         program->label);
    if (bindings->n_binding != program->n_binding || bindings->written != program->written)
        return base_fail(error, BERYL_MISUSE,
                         "command %zu, %s: the bindings were made for another program", at,
                         program->label);
    if (bindings->broken)
        return base_fail(error, BERYL_MISUSE, "command %zu, %s: a bound buffer was dropped", at,
                         program->label);
    for (int i = 0; i < 3; i++)
        if (c->dispatch.groups[i] > d->caps.groups_max)
            return base_fail(error, BERYL_MISUSE,
                             "command %zu, %s: %u groups, a dimension has at most %u", at,
                             program->label, c->dispatch.groups[i], d->caps.groups_max);
    if (program->param_bytes &&
        (c->dispatch.param_offset % DEVICE_PARAM_ALIGN ||
         !base_range_inside(c->dispatch.param_offset, program->param_bytes, desc->param_bytes)))
        return base_fail(error, BERYL_MISUSE, "command %zu, %s: parameters at %u of %zu bytes", at,
                         program->label, c->dispatch.param_offset, desc->param_bytes);
    return BERYL_OK;
}

static beryl_status check_command(device *d, const device_submit_desc *desc, size_t at,
                                  beryl_error *error) {
    const device_command *c = &desc->commands[at];
    switch (c->kind) {
    case DEVICE_DISPATCH: return check_dispatch(d, desc, at, error);
    case DEVICE_COPY:
        if (!range_of(d, c->copy.from, c->copy.from_offset, c->copy.size, "copy from", error))
            return BERYL_MISUSE;
        if (!range_of(d, c->copy.to, c->copy.to_offset, c->copy.size, "copy to", error))
            return BERYL_MISUSE;
        if (c->copy.from.id == c->copy.to.id)
            return base_fail(error, BERYL_MISUSE, "command %zu: a copy inside one buffer", at);
        return BERYL_OK;
    case DEVICE_FILL:
        return range_of(d, c->fill.buffer, c->fill.offset, c->fill.size, "fill", error)
                   ? BERYL_OK
                   : BERYL_MISUSE;
    case DEVICE_FETCH:
        if (!range_of(d, c->fetch.buffer, c->fetch.offset, c->fetch.size, "fetch", error))
            return BERYL_MISUSE;
        if (!c->fetch.size)
            return base_fail(error, BERYL_MISUSE, "command %zu: a fetch of no bytes", at);
        return BERYL_OK;
    case DEVICE_STAMP: return BERYL_OK;
    }
    return base_fail(error, BERYL_MISUSE, "command %zu has no kind", at);
}

beryl_status device_submit(device *d, const device_submit_desc *desc, device_ticket *ticket,
                           beryl_error *error) {
    if (ticket) *ticket = 0;
    if ((desc->n_command && !desc->commands) || (desc->param_bytes && !desc->params) ||
        desc->param_bytes > (UINT32_C(1) << 30) || (desc->param_bytes & 3))
        return base_fail(error, BERYL_MISUSE,
                         "a command list without its memory, or with %zu bytes of parameters",
                         desc->param_bytes);
    if (d->staged) return base_fail(error, BERYL_MISUSE, "submit between a stage and its commit");
    uint64_t n_dispatch = 0, n_stamp = 0;
    for (size_t i = 0; i < desc->n_command; i++) {
        beryl_status status = check_command(d, desc, i, error);
        if (status) return status;
        n_dispatch += desc->commands[i].kind == DEVICE_DISPATCH;
        n_stamp += desc->commands[i].kind == DEVICE_STAMP;
    }
    if (n_stamp > DEVICE_STAMP_MAX)
        return base_fail(error, BERYL_MISUSE, "%llu stamps in one submit, at most %d",
                         (unsigned long long)n_stamp, DEVICE_STAMP_MAX);
    void *own = enter(d);
    beryl_status status = d->backend->submit(d, desc, d->last + 1, error);
    leave(d, own);
    if (status) return status;
    d->last++;
    d->stats.submits++;
    d->stats.dispatches += n_dispatch;
    if (ticket) *ticket = d->last;
    return BERYL_OK;
}

beryl_status device_poll(device *d, device_ticket *done, beryl_error *error) {
    device_ticket ignored;
    void *own = enter(d);
    beryl_status status = d->backend->poll(d, done ? done : &ignored, error);
    leave(d, own);
    return status;
}

/* Tickets are given out in order, so one above the last was never given. */
static beryl_status check_ticket(const device *d, device_ticket ticket, beryl_error *error) {
    if (ticket && ticket <= d->last) return BERYL_OK;
    return base_fail(error, BERYL_MISUSE, "no such ticket: %llu of %llu",
                     (unsigned long long)ticket, (unsigned long long)d->last);
}

beryl_status device_wait(device *d, device_ticket ticket, beryl_error *error) {
    beryl_status status = check_ticket(d, ticket, error);
    if (status) return status;
    void *own = enter(d);
    status = d->backend->wait(d, ticket, error);
    leave(d, own);
    return status;
}

beryl_status device_fetched(device *d, device_ticket ticket, uint32_t n, const void **data,
                            size_t *size, beryl_error *error) {
    *data = NULL;
    *size = 0;
    beryl_status status = check_ticket(d, ticket, error);
    if (status) return status;
    void *own = enter(d);
    status = d->backend->fetched(d, ticket, n, data, size, error);
    leave(d, own);
    return status;
}

void device_fetch_drop(device *d, device_ticket ticket) {
    if (ticket && ticket <= d->last) d->backend->fetch_drop(d, ticket);
}

beryl_status device_stamps(device *d, device_ticket ticket, uint64_t *ns, uint32_t *n_stamp,
                           beryl_error *error) {
    beryl_status status = check_ticket(d, ticket, error);
    if (!status && !d->caps.timestamps)
        status = base_fail(error, BERYL_UNSUPPORTED, "%s has no timestamps", d->caps.name);
    if (status) *n_stamp = 0;
    if (status) return status;
    void *own = enter(d);
    status = d->backend->stamps(d, ticket, ns, n_stamp, error);
    leave(d, own);
    return status;
}
