/* readback.c - picks, grows and finds the blocks of results.
 *
 * The best fitting free block is taken; where none is free, the oldest whose submit is done and at
 * least four such submits back, as the interface promises. Small blocks grow all at once, so that
 * replaying a list with two submits in flight makes nothing later.
 */
#include "device/driver/readback.h"
#include "base/error.h"

enum { LEAST = 4096, EAGER = 4 << 20, KEPT_SUBMITS = 4 };

static bool is_free(const driver_readback *r, device_ticket done) {
    return !r->ticket && r->until <= done;
}

static driver_readback *pick(driver_readbacks *all, device_ticket done, uint64_t bytes) {
    driver_readback *best = NULL, *oldest = NULL;
    for (int i = 0; i < DEVICE_READBACK_MAX; i++) {
        driver_readback *r = &all->items[i];
        if (is_free(r, done)) {
            bool better = !best || (r->capacity >= bytes
                                        ? best->capacity < bytes || r->capacity < best->capacity
                                        : r->capacity > best->capacity && best->capacity < bytes);
            if (better) best = r;
        } else if (r->ticket && (!oldest || r->number < oldest->number)) {
            oldest = r;
        }
    }
    if (best) return best;
    if (!oldest || oldest->until > done || all->n - oldest->number < KEPT_SUBMITS) return NULL;
    oldest->ticket = 0;
    return oldest;
}

static void *take(driver_readbacks *all, size_t size, beryl_error *error) {
    if (all->take) return all->take(all->device, size, error);
    void *memory = base_heap_take(all->device->heap, size);
    if (!memory) base_fail(error, BERYL_NO_MEMORY, "out of memory for results");
    return memory;
}

static void give(driver_readbacks *all, void *memory, size_t size) {
    if (all->give) all->give(all->device, memory, size);
    else base_heap_give(all->device->heap, memory, size);
}

static beryl_status grow(driver_readbacks *all, driver_readback *r, uint64_t bytes,
                         beryl_error *error) {
    if (r->capacity >= bytes) return BERYL_OK;
    uint64_t capacity = LEAST;
    while (capacity < bytes && capacity < UINT64_MAX / 2) capacity *= 2;
    if (capacity > SIZE_MAX / 2) return base_fail(error, BERYL_NO_MEMORY, "fetches without end");
    if (r->memory) {
        give(all, r->memory, (size_t)r->capacity);
        device_stats_bytes(all->device, -(int64_t)r->capacity);
    }
    r->capacity = 0;
    r->memory = take(all, (size_t)capacity, error);
    if (!r->memory) return error && error->code ? error->code : BERYL_NO_DEVICE_MEMORY;
    r->capacity = capacity;
    all->device->stats.objects++;
    device_stats_bytes(all->device, (int64_t)capacity);
    return BERYL_OK;
}

beryl_status driver_readback_take(driver_readbacks *all, const device_submit_desc *desc,
                                  device_ticket done, bool stamps, driver_readback **out,
                                  beryl_error *error) {
    *out = NULL;
    uint64_t bytes = 0;
    size_t n_fetch = 0;
    uint32_t n_stamp = 0;
    for (size_t i = 0; i < desc->n_command; i++) {
        const device_command *c = &desc->commands[i];
        if (c->kind == DEVICE_STAMP && stamps) n_stamp++;
        if (c->kind != DEVICE_FETCH) continue;
        if (c->fetch.size > UINT64_MAX / 4 - bytes)
            return base_fail(error, BERYL_MISUSE, "too many fetches");
        bytes += (c->fetch.size + 15) & ~UINT64_C(15);
        n_fetch++;
    }
    if (!n_fetch && !n_stamp) return BERYL_OK;
    driver_readback *r = pick(all, done, bytes);
    if (!r) return BERYL_PENDING;
    base_heap *heap = all->device->heap;
    for (int i = 0; i < DEVICE_READBACK_MAX; i++) {
        driver_readback *each = &all->items[i];
        size_t have = each->fetches.count;
        if (n_fetch > have && !base_vec_reserve(heap, &each->fetches, n_fetch - have))
            return base_fail(error, BERYL_NO_MEMORY, "out of memory for a submit");
        bool grows = each == r || (is_free(each, done) && bytes <= EAGER);
        beryl_error why = {0};
        beryl_status status = grows && bytes ? grow(all, each, bytes, &why) : BERYL_OK;
        if (status && error) *error = why;
        if (status) return status;
    }
    if (n_stamp > r->stamp_capacity) {
        void *events = base_heap_resize(heap, r->stamps, r->stamp_capacity * sizeof *r->stamps,
                                        n_stamp * sizeof *r->stamps);
        if (!events) return base_fail(error, BERYL_NO_MEMORY, "out of memory for stamps");
        r->stamps = events;
        while (r->stamp_capacity < n_stamp) r->stamps[r->stamp_capacity++] = NULL;
    }
    r->fetches.count = 0;
    r->n_stamp = n_stamp;
    uint64_t at = 0;
    for (size_t i = 0; i < desc->n_command; i++) {
        if (desc->commands[i].kind != DEVICE_FETCH) continue;
        r->fetches.data[r->fetches.count++] = (driver_span){at, desc->commands[i].fetch.size};
        at += (desc->commands[i].fetch.size + 15) & ~UINT64_C(15);
    }
    *out = r;
    return BERYL_OK;
}

void driver_readback_begin(driver_readbacks *all, driver_readback *r, device_ticket ticket) {
    r->ticket = r->until = ticket;
    r->number = all->n++;
}

driver_readback *driver_readback_find(driver_readbacks *all, device_ticket ticket) {
    for (int i = 0; i < DEVICE_READBACK_MAX; i++)
        if (ticket && all->items[i].ticket == ticket) return &all->items[i];
    return NULL;
}

beryl_status driver_readback_done(driver_readbacks *all, device_ticket ticket, device_ticket done,
                                  const driver_readback **out, beryl_error *error) {
    *out = driver_readback_find(all, ticket);
    if (!*out)
        return base_fail(error, BERYL_MISUSE, "ticket %llu has no results (dropped?)",
                         (unsigned long long)ticket);
    return (*out)->until > done ? BERYL_PENDING : BERYL_OK;
}

beryl_status driver_readback_fetched(driver_readbacks *all, device_ticket ticket,
                                     device_ticket done, uint32_t n, const void **data,
                                     size_t *size, beryl_error *error) {
    const driver_readback *r;
    const beryl_status status = driver_readback_done(all, ticket, done, &r, error);
    if (status) return status;
    if (n >= r->fetches.count)
        return base_fail(error, BERYL_MISUSE, "fetch %u of ticket %llu, which has %zu", n,
                         (unsigned long long)ticket, r->fetches.count);
    *data = r->memory + r->fetches.data[n].at;
    *size = (size_t)r->fetches.data[n].size;
    return BERYL_OK;
}

void driver_readback_drop(driver_readbacks *all, device_ticket ticket) {
    driver_readback *r = driver_readback_find(all, ticket);
    if (r) r->ticket = 0; /* the memory itself stays taken until the device is past `until` */
}

void driver_readbacks_fini(driver_readbacks *all) {
    for (int i = 0; i < DEVICE_READBACK_MAX; i++) {
        driver_readback *r = &all->items[i];
        if (r->memory) {
            give(all, r->memory, (size_t)r->capacity);
            device_stats_bytes(all->device, -(int64_t)r->capacity);
        }
        base_vec_fini(all->device->heap, &r->fetches);
        base_heap_give(all->device->heap, r->stamps, r->stamp_capacity * sizeof *r->stamps);
        *r = (driver_readback){0};
    }
}
