/* device.c - choosing a device, ids, and the checks that every backend shares.
 *
 * Owns the list of backends, the grammar of --device, the pools behind the ids and the statistics.
 * Refuses stale ids, ranges outside a buffer, wrong alignment, a buffer bound for reading and for
 * writing in one dispatch, groups and programs above the device's limits, bindings whose buffer was
 * dropped. The one idea: a command list is checked whole before a backend sees any of it, so a
 * backend only translates, and the dummy device refuses exactly what a real one would.
 */
#include "device/device.h"
#include "base/error.h"
#include "base/file.h"

#include <stdio.h>
#include <string.h>

enum {
    INDEX_BITS = 18, /* 262,143 things of a kind alive at once, 16,384 generations of each slot */
    INDEX_MAX = (1 << INDEX_BITS) - 1,
    GENERATION_MAX = (1 << (32 - INDEX_BITS)) - 1
};

static const device_backend *const backends[] = {
#define X(name) &device_##name,
    DEVICE_BACKENDS(X)
#undef X
};
enum { N_BACKEND = sizeof backends / sizeof backends[0] };

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

/* ---- what is switched off -----------------------------------------------------------------------
 */

/* The words of BERYL_CAPS. BAD_INPUT names one that there is not: a device that kept what was to be
 * switched off would make a test say nothing. */
static beryl_status mask_read(device_mask *mask, beryl_error *error) {
    *mask = (device_mask){0};
    const struct {
        const char *word;
        bool *to;
    } words[] = {{"no-f16", &mask->no_f16},
                 {"no-subgroups", &mask->no_subgroups},
                 {"no-dot", &mask->no_dot},
                 {"no-timestamps", &mask->no_timestamps},
                 {"checked", &mask->checked},
                 {"min", &mask->min},
                 {"hard", &mask->hard}};
    const char *at = base_environment("BERYL_CAPS");
    while (at && *at) {
        size_t size = strcspn(at, ", "), i = 0;
        const size_t n = sizeof words / sizeof *words;
        while (i < n && !base_view_equal((base_view){at, size}, base_view_of(words[i].word))) i++;
        if (i < n) *words[i].to = true;
        if (i == n && size)
            return base_fail(error, BERYL_BAD_INPUT,
                             "BERYL_CAPS has no word \"%.*s\": there are no-f16, no-subgroups, "
                             "no-dot, no-timestamps, checked, min and hard",
                             size > 40 ? 40 : (int)size, at);
        at += size + (at[size] != 0);
    }
    if (mask->min) mask->no_f16 = mask->no_subgroups = mask->no_dot = true;
    return BERYL_OK;
}

static uint32_t least32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}
static uint64_t least64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static void mask_apply(const device_mask *mask, device_caps *caps) {
    if (mask->hard && caps->kind == DEVICE_SOFTWARE) { /* tests: the forms that GPUs get, in software */
        caps->kind = DEVICE_INTEGRATED;
        caps->compute_units = 8;
        caps->dot_i8 = true; /* all WGSL has it */
    }
    if (mask->no_f16) caps->f16 = false;
    if (mask->no_subgroups) caps->subgroups = false, caps->subgroup_size = 0;
    if (mask->no_dot) caps->dot_i8 = false;
    if (mask->no_timestamps) caps->timestamps = false;
    if (!mask->min) return;
    caps->workgroup_invocations = least32(caps->workgroup_invocations, 256);
    caps->workgroup_size[0] = least32(caps->workgroup_size[0], 256);
    caps->workgroup_size[1] = least32(caps->workgroup_size[1], 256);
    caps->workgroup_size[2] = least32(caps->workgroup_size[2], 64);
    caps->workgroup_bytes = least32(caps->workgroup_bytes, 16 << 10);
    caps->storage_max = least32(caps->storage_max, 8);
    caps->binding_max = least64(caps->binding_max, 128 << 20);
    caps->buffer_max = least64(caps->buffer_max, 256 << 20);
}

/* ---- choosing ------------------------------------------------------------------------------- */

typedef struct candidate {
    device_caps caps;
    uint32_t backend; /* index into backends */
    bool usable;
    char why_not[200];
} candidate;

typedef struct candidates {
    base_heap *heap;          /* borrowed */
    void *drivers[N_BACKEND]; /* NULL: did not start */
    base_vec(candidate) list; /* best first */
} candidates;

static void text_copy(char *to, size_t size, const char *from) {
    size_t n = strlen(from);
    if (n >= size) n = size - 1;
    memcpy(to, from, n);
    to[n] = 0;
}

/* The order in which a choice looks at them. The processor as such is some three times as fast as
 * what imitates a GPU on it. */
enum { RANK_GPU, RANK_HOST, RANK_SOFTWARE, RANK_MEMORY, RANK_UNUSABLE };

static int rank_of(const candidate *c) {
    if (!c->usable) return RANK_UNUSABLE;
    if (!c->caps.languages) return RANK_MEMORY;
    if (!device_is_processor(&c->caps)) return RANK_GPU;
    return c->caps.kind == DEVICE_HOST ? RANK_HOST : RANK_SOFTWARE;
}

static bool add_candidate(candidates *all, uint32_t backend, const device_caps *caps,
                          const char *why_not) {
    candidate *c = base_vec_add(all->heap, &all->list);
    if (!c) return false;
    if (caps) c->caps = *caps;
    text_copy(c->caps.backend, sizeof c->caps.backend, backends[backend]->name);
    c->backend = backend;
    c->usable = !why_not;
    text_copy(c->why_not, sizeof c->why_not, why_not ? why_not : "");
    /* stable: within a rank backends keep their order, and their own devices theirs */
    candidate moved = *c;
    size_t at = all->list.count - 1;
    for (; at > 0 && rank_of(&all->list.data[at - 1]) > rank_of(&moved); at--)
        all->list.data[at] = all->list.data[at - 1];
    all->list.data[at] = moved;
    return true;
}

static void candidates_fini(candidates *all) {
    for (uint32_t i = 0; i < N_BACKEND; i++)
        if (all->drivers[i]) backends[i]->stop(all->drivers[i]);
    base_vec_fini(all->heap, &all->list);
}

/* only: a backend's index, or N_BACKEND for all that are not hidden. stop: looks no further once
 * there is a GPU (to start another driver may take a second): none of a later backend goes before it. */
static beryl_status candidates_init(candidates *all, base_heap *heap, const beryl_log *log,
                                    uint32_t only, bool stop, beryl_error *error) {
    *all = (candidates){.heap = heap};
    for (uint32_t i = 0; i < N_BACKEND; i++) {
        if (stop && all->list.count && rank_of(&all->list.data[0]) == RANK_GPU) break;
        if (only < N_BACKEND ? i != only : backends[i]->hidden) continue;
        beryl_error why = {0};
        bool room = true;
        all->drivers[i] = backends[i]->start(heap, log, &why);
        if (!all->drivers[i]) {
            if (why.code == BERYL_NO_MEMORY) goto no_memory;
            room = add_candidate(all, i, NULL, why.message);
        } else {
            uint32_t n = backends[i]->count(all->drivers[i]);
            for (uint32_t k = 0; k < n && room; k++) {
                device_caps caps = {0};
                const char *why_not = NULL;
                backends[i]->describe(all->drivers[i], k, &caps, &why_not);
                caps.index = k;
                caps.languages = backends[i]->languages;
                room = add_candidate(all, i, &caps, why_not);
            }
            if (!n) room = add_candidate(all, i, NULL, "no adapter found");
        }
        if (!room) goto no_memory;
    }
    return BERYL_OK;
no_memory:
    candidates_fini(all);
    return base_fail(error, BERYL_NO_MEMORY, "out of memory while looking for devices");
}

void device_list(base_heap *heap, const beryl_log *log,
                 void (*each)(void *user, const device_caps *caps, const char *why_not),
                 void *user) {
    candidates all;
    if (candidates_init(&all, heap, log, N_BACKEND, false, NULL)) return;
    device_mask mask;
    beryl_error error = {0};
    bool known = mask_read(&mask, &error) == BERYL_OK;
    for (size_t i = 0; i < all.list.count; i++) {
        candidate *c = &all.list.data[i];
        if (known) mask_apply(&mask, &c->caps);
        each(user, &c->caps, !c->usable ? c->why_not : known ? NULL : error.message);
    }
    candidates_fini(&all);
}

static bool find_part(const char *text, base_view part) {
    size_t size = strlen(text);
    for (size_t at = 0; at + part.size <= size; at++) {
        size_t i = 0;
        while (i < part.size) {
            char a = text[at + i], b = part.data[i];
            if (a >= 'A' && a <= 'Z') a = (char)(a + 32);
            if (b >= 'A' && b <= 'Z') b = (char)(b + 32);
            if (a != b) break;
            i++;
        }
        if (i == part.size) return true;
    }
    return false;
}

static uint32_t backend_named(base_view name) {
    for (uint32_t i = 0; i < N_BACKEND; i++)
        if (base_view_equal(base_view_of(backends[i]->name), name)) return i;
    return N_BACKEND;
}

/* An index of at most 9 digits, or false. */
static bool parse_index(base_view text, uint32_t *index) {
    if (!text.size || text.size > 9) return false;
    *index = 0;
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') return false;
        *index = *index * 10 + (uint32_t)(text.data[i] - '0');
    }
    return true;
}

/* Words for the best device of a kind; DEVICE_ANY: it is none of them. */
typedef enum device_word { DEVICE_ANY, DEVICE_CPU, DEVICE_GPU, DEVICE_IMITATION } device_word;

static device_word word_of(base_view text) {
    if (base_view_equal(text, BASE_VIEW("cpu"))) return DEVICE_CPU;
    if (base_view_equal(text, BASE_VIEW("gpu"))) return DEVICE_GPU;
    return base_view_equal(text, BASE_VIEW("software")) ? DEVICE_IMITATION : DEVICE_ANY;
}

static bool word_fits(device_word word, const device_caps *caps) {
    switch (word) {
    case DEVICE_ANY: break;
    case DEVICE_CPU: return device_is_processor(caps);
    case DEVICE_GPU: return !device_is_processor(caps);
    case DEVICE_IMITATION: return caps->kind == DEVICE_SOFTWARE;
    }
    return false;
}

/* `rest`: what follows the backend, or all; named: a backend was. The list is best first, so the
 * first match is the best one. usable: of these alone, else of the others, where a backend that
 * could not start stands for all of its devices. */
static const candidate *choose(const candidates *all, base_view rest, bool named, bool usable) {
    uint32_t index = 0;
    const bool by_index = parse_index(rest, &index);
    const device_word word = word_of(rest);
    for (size_t i = 0; i < all->list.count; i++) {
        const candidate *c = &all->list.data[i];
        if (c->usable != usable || (!named && !c->caps.languages)) continue;
        if (!rest.size || !c->caps.name[0] || (by_index && c->caps.index == index) ||
            word_fits(word, &c->caps))
            return c;
    }
    if (by_index || word != DEVICE_ANY || !rest.size) return NULL;
    for (size_t i = 0; i < all->list.count; i++) {
        const candidate *c = &all->list.data[i];
        if (c->usable == usable && (named || c->caps.languages) && find_part(c->caps.name, rest))
            return c;
    }
    return NULL;
}

/* Why the processor itself is not usable, or NULL. */
static const char *host_why_not(const candidates *all) {
    for (size_t i = 0; i < all->list.count; i++) {
        const candidate *c = &all->list.data[i];
        if (!c->usable && !strcmp(c->caps.backend, "host")) return c->why_not;
    }
    return NULL;
}

/* The processor imitates a GPU since it is not usable as such: what that costs. */
static void warn_software(const candidates *all, const candidate *c, const beryl_log *log) {
    const char *why_not = rank_of(c) == RANK_SOFTWARE ? host_why_not(all) : NULL;
    if (why_not)
        base_log(log, BERYL_LOG_WARNING, "the processor imitates a GPU (%s), some five times slower than it could be: %s",
                 c->caps.name, why_not);
}

/* fit: what the choice means but is not usable; NULL: nothing that there is. */
static beryl_status refuse_choice(const candidates *all, const char *choice, const candidate *fit,
                                  beryl_error *error) {
    static const char *const kinds[] = {"discrete", "integrated", "software", "host"};
    if (fit)
        return base_fail(error, BERYL_NO_DEVICE, "%.40s is not usable: %s", choice, fit->why_not);
    base_text there;
    base_text_init(&there, all->heap);
    for (size_t i = 0; i < all->list.count; i++) {
        const candidate *c = &all->list.data[i];
        if (c->usable)
            base_text_print(&there, "%s%s:%u (%s, %s)", i ? ", " : "", c->caps.backend,
                            c->caps.index, c->caps.name, kinds[c->caps.kind]);
        else
            base_text_print(&there, "%s%s (not usable: %s)", i ? ", " : "", c->caps.backend,
                            c->why_not);
    }
    const char *list = there.data && !there.failed ? there.data : "none";
    beryl_status status;
    if (!choice || !*choice)
        status = base_fail(error, BERYL_NO_DEVICE, "no device was found: the processor needs a C compiler (apt install gcc "
                           "libc6-dev, or the like); device \"reference\" needs nothing and is slow; there is: %s", list);
    else if (word_of(base_view_of(choice)) == DEVICE_GPU)
        status = base_fail(error, BERYL_NO_DEVICE, "there is no GPU that can be used (--device gpu); there is: %s; and reference", list);
    else
        status = base_fail(error, BERYL_NO_DEVICE, "no device is called \"%.40s\"; there is: %s; and reference", choice, list);
    base_text_fini(&there);
    return status;
}

beryl_status device_open(base_heap *heap, const beryl_log *log, const char *choice, device **out,
                         beryl_error *error) {
    *out = NULL;
    base_view rest = base_view_of(choice);
    const bool best = !rest.size;
    const bool gpu = word_of(rest) == DEVICE_GPU;
    uint32_t only = backend_named(rest);
    if (only < N_BACKEND) {
        rest.size = 0;
    } else {
        const char *colon = rest.size ? memchr(rest.data, ':', rest.size) : NULL;
        base_view before = {rest.data, colon ? (size_t)(colon - rest.data) : 0};
        const uint32_t named = backend_named(before);
        if (named < N_BACKEND && colon[1]) { /* nothing behind the colon names nothing */
            only = named;
            rest = (base_view){colon + 1, rest.size - before.size - 1};
        }
    }
    device_mask mask;
    candidates all;
    beryl_status status = mask_read(&mask, error);
    if (!status) status = candidates_init(&all, heap, log, only, best || gpu, error);
    if (status) return status;
    const candidate *c = choose(&all, rest, only < N_BACKEND, true);
    if (!c) {
        const candidate *fit = best ? NULL : choose(&all, rest, only < N_BACKEND, false);
        status = refuse_choice(&all, choice, fit, error);
    } else {
        status =
            backends[c->backend]->open(all.drivers[c->backend], &c->caps, &mask, out, error);
        if (!status) {
            if (best) warn_software(&all, c, log);
            mask_apply(&mask, &(*out)->caps);
            base_log(log, BERYL_LOG_INFO, "device %s:%u: %s, %s", c->caps.backend, c->caps.index,
                     (*out)->caps.name, (*out)->caps.driver);
        }
    }
    candidates_fini(&all);
    return status;
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
    backend->close(d);
}

const device_caps *device_caps_of(const device *d) {
    return &d->caps;
}

bool device_is_processor(const device_caps *caps) {
    return caps->kind == DEVICE_SOFTWARE || caps->kind == DEVICE_HOST;
}

bool device_is_compiled(const device_caps *caps) {
    return caps->kind == DEVICE_HOST || (caps->kind == DEVICE_SOFTWARE && caps->languages & DEVICE_LANGUAGE_BIT(DEVICE_OPENCL_C));
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

void device_backend_names(uint32_t languages, char *to, size_t size) {
    size_t at = 0;
    to[0] = 0;
    for (uint32_t i = 0; i < N_BACKEND && at < size; i++) {
        const device_backend *b = backends[i];
        if (b->hidden || !(b->languages & languages)) continue;
        at += (size_t)snprintf(to + at, size - at, "%s%s", at ? ", " : "", b->name);
    }
}

void device_forgo(device *d, bool f16, bool subgroups, bool dot) {
    mask_apply(&(device_mask){.no_f16 = f16, .no_subgroups = subgroups, .no_dot = dot}, &d->caps);
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

/* ---- buffers -------------------------------------------------------------------------------- */

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
    beryl_status status =
        source ? d->backend->buffer_map(d, item, source, offset, size, label, error)
               : d->backend->buffer_make(d, item, label, error);
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
    d->backend->buffer_drop(d, item);
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
    return size ? d->backend->write(d, item, offset, data, size, error) : BERYL_OK;
}

void *device_buffer_memory(device *d, device_buffer buffer) {
    device_buffer_item *item = device_pool_at(&d->buffers, buffer.id);
    return item && d->backend->memory ? d->backend->memory(d, item) : NULL;
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
    beryl_status status = d->backend->stage(d, size, memory, error);
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
    return d->backend->stage_commit(d, item, offset, size, error);
}

/* ---- programs and bindings ------------------------------------------------------------------ */

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
    text_copy(item->label, sizeof item->label, label);
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
    return d->backend->program_status(d, item, error);
}

void device_program_drop(device *d, device_program program) {
    device_program_item *item = device_pool_at(&d->programs, program.id);
    if (!item) return;
    d->backend->program_drop(d, item);
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

/* ---- work ----------------------------------------------------------------------------------- */

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
    beryl_status status = d->backend->submit(d, desc, d->last + 1, error);
    if (status) return status;
    d->last++;
    d->stats.submits++;
    d->stats.dispatches += n_dispatch;
    if (ticket) *ticket = d->last;
    return BERYL_OK;
}

beryl_status device_poll(device *d, device_ticket *done, beryl_error *error) {
    device_ticket ignored;
    return d->backend->poll(d, done ? done : &ignored, error);
}

/* Tickets are given out in order, so one above the last was never given. */
static beryl_status check_ticket(const device *d, device_ticket ticket, beryl_error *error) {
    if (ticket && ticket <= d->last) return BERYL_OK;
    return base_fail(error, BERYL_MISUSE, "no such ticket: %llu of %llu",
                     (unsigned long long)ticket, (unsigned long long)d->last);
}

beryl_status device_wait(device *d, device_ticket ticket, beryl_error *error) {
    beryl_status status = check_ticket(d, ticket, error);
    return status ? status : d->backend->wait(d, ticket, error);
}

beryl_status device_fetched(device *d, device_ticket ticket, uint32_t n, const void **data,
                            size_t *size, beryl_error *error) {
    *data = NULL;
    *size = 0;
    beryl_status status = check_ticket(d, ticket, error);
    return status ? status : d->backend->fetched(d, ticket, n, data, size, error);
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
    return status ? status : d->backend->stamps(d, ticket, ns, n_stamp, error);
}
