/* run.c - lists of commands and the threads that run them.
 *
 * A submit becomes a list: addresses instead of ids, cut into waves. Commands of a wave touch
 * nothing in common that one of them writes, so their tasks (workgroups, pieces of a copy) are
 * taken side by side; between waves is a barrier. The one idea: a wave is over when its tasks are
 * done, not when all threads have come by, so a thread that the system holds up delays nobody.
 *
 * Lists are run one after another, and recycled with all their room: replaying a list that has run
 * before allocates nothing. Threads look for the next task for a moment before they sleep, since
 * waking one costs more than most kernels; where looking did not pay (the processor has other
 * things to do), the moment becomes shorter. How long a program's workgroups take is measured, so
 * that nothing is divided that would cost more to hand over than to do.
 */
#include "device/host/bounds.h"
#include "base/error.h"

#include <errno.h>
#include <string.h>

enum {
    COPY_PIECE = 256 << 10, /* bytes of a copy or fill that are one task */
    PIECES_A_THREAD = 4,    /* a dispatch is divided so often for each thread, where it can be */
    WAVE_MAX = 32,          /* commands; each is compared with all ranges before it */
    LISTS_EAGER = 4,        /* made at once: lists in flight, and the one being made */
    PIECE_NS = 15000,       /* no piece of a dispatch is shorter than this, if it is known */
    PIECE_MAX = 1 << 20,    /* workgroups, where not even the division gives more */
    SPIN_MIN = 16,          /* looks before sleeping: at least, */
    SPIN_MAX = 2048,        /* at most, */
    SPIN_FIRST = 256,       /* and in the beginning */
    WRITE_EAGER = 64 << 10, /* bytes of writes that every list has room for once there was one */
    WRITE_MAX = 32 << 20,   /* bytes that wait for a submit; more go as a list of their own */
    WRITE_KEPT = 1 << 20    /* room for writes that a list keeps */
};

static void relax(void) {
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

/* ---- running --------------------------------------------------------------------------------- */

static uint64_t clock_ns(void) {
    return (uint64_t)(base_time() * 1e9);
}

/* Looking paid, or it did not. */
static void learn(uint32_t *spin, bool paid) {
    if (paid && *spin < SPIN_MAX) *spin *= 2;
    if (!paid && *spin > SPIN_MIN) *spin /= 2;
}

static void run_tasks(const host_list *list, host_command *c, uint32_t at, uint32_t n,
                      unsigned char *scratch) {
    switch (c->kind) {
    case HOST_RUN: {
        host_bounds_set(list, c, scratch, true);
        const uint64_t began = clock_ns();
        c->run.fn(list->pointers.data + c->run.pointer,
                  list->params.count ? list->params.data + c->run.param : NULL, c->run.groups, at,
                  n, scratch);
        atomic_fetch_add_explicit(&c->spent, clock_ns() - began, memory_order_relaxed);
        host_bounds_set(list, c, scratch, false);
        break;
    }
    case HOST_COPY:
    case HOST_FILL: {
        const uint64_t from = (uint64_t)at * COPY_PIECE, left = c->copy.size - from,
                       most = (uint64_t)n * COPY_PIECE;
        const size_t size = (size_t)(left < most ? left : most);
        if (c->kind == HOST_COPY) memcpy(c->copy.to + from, c->copy.from + from, size);
        else memset(c->copy.to + from, 0, size);
        break;
    }
    case HOST_STAMP: *c->stamp = clock_ns(); break;
    }
}

/* Until the last tasks of a wave, which other threads have, are done. */
static void wait_wave(host *d, host_wave *wave, host_worker *worker) {
    if (!atomic_load_explicit(&wave->left, memory_order_acquire)) return;
    for (uint32_t i = 0; i < worker->wave_spin; i++) {
        relax();
        if (atomic_load_explicit(&wave->left, memory_order_acquire)) continue;
        learn(&worker->wave_spin, true);
        return;
    }
    learn(&worker->wave_spin, false);
    base_lock_enter(d->wave_lock);
    atomic_fetch_add(&d->n_wave_sleeper, 1); /* before the look at `left`: see run_wave */
    while (atomic_load(&wave->left)) base_lock_sleep(d->wave_lock);
    atomic_fetch_sub(&d->n_wave_sleeper, 1);
    base_lock_leave(d->wave_lock);
}

static void run_wave(host *d, host_list *list, host_wave *wave, host_worker *worker,
                     unsigned char *scratch) {
    for (size_t i = wave->first; i < wave->end; i++) {
        host_command *c = &list->commands.data[i];
        for (;;) {
            const uint32_t at = atomic_fetch_add_explicit(&c->next, c->piece, memory_order_relaxed);
            if (at >= c->total) break;
            const uint32_t n = c->total - at < c->piece ? c->total - at : c->piece;
            run_tasks(list, c, at, n, scratch);
            /* whoever sleeps has counted itself before it looked at `left`, or sees 0 */
            if (atomic_fetch_sub(&wave->left, n) != n || !atomic_load(&d->n_wave_sleeper)) continue;
            base_lock_enter(d->wave_lock);
            base_lock_wake(d->wave_lock);
            base_lock_leave(d->wave_lock);
        }
    }
    wait_wave(d, wave, worker);
}

static void run_list(host *d, host_list *list, host_worker *worker) {
    unsigned char *scratch =
        list->scratch ? list->scratch + worker->index * list->scratch_stride : NULL;
    for (size_t i = 0; i < list->waves.count; i++) {
        host_wave *wave = &list->waves.data[i];
        if (atomic_load_explicit(&wave->left, memory_order_acquire))
            run_wave(d, list, wave, worker, scratch);
    }
}

/* Inside the lock: the list has run, and the thread has left it. */
static void leave_list(host *d, host_list *list) {
    if (!list->done) {
        list->done = true;
        d->first = list->next;
        if (!d->first) d->last = NULL;
        atomic_store(&d->done_serial, list->serial);
        if (list->ticket) atomic_store(&d->done, list->ticket);
        base_lock_wake(d->lock);
    }
    if (--list->users) return;
    list->next = d->free_lists;
    d->free_lists = list;
}

/* For a moment: the next submit is often on its way. */
static void look_for_lists(host *d, host_worker *worker) {
    for (uint32_t i = 0; i < worker->list_spin; i++) {
        if (atomic_load_explicit(&d->sent, memory_order_relaxed) !=
            atomic_load_explicit(&d->done_serial, memory_order_relaxed)) {
            learn(&worker->list_spin, true);
            return;
        }
        relax();
    }
    learn(&worker->list_spin, false);
}

static void work(void *user) {
    host_worker *worker = user;
    host *d = worker->device;
    base_lock_enter(d->lock);
    for (;;) {
        if (!d->first && !d->closing) {
            base_lock_leave(d->lock);
            look_for_lists(d, worker);
            base_lock_enter(d->lock);
            d->n_idle++;
            while (!d->first && !d->closing) base_lock_sleep(d->lock);
            d->n_idle--;
        }
        host_list *list = d->first;
        if (!list && d->closing) break;
        if (!list) continue;
        list->users++;
        base_lock_leave(d->lock);
        run_list(d, list, worker);
        base_lock_enter(d->lock);
        leave_list(d, list);
    }
    base_lock_leave(d->lock);
}

beryl_status host_threads_start(host *d, beryl_error *error) {
    const uint32_t n = d->head.caps.compute_units;
    for (uint32_t i = 0; i < n; i++) {
        host_worker *worker = &d->workers[i];
        *worker = (host_worker){
            .device = d, .index = i, .wave_spin = SPIN_FIRST, .list_spin = SPIN_FIRST};
        errno = ENOMEM;
        worker->thread = base_thread_open(d->head.heap, work, worker);
        if (!worker->thread) {
            const int cause = errno;
            host_threads_stop(d);
            return base_fail(
                error, BERYL_NO_MEMORY, "thread %u of the processor's %u cannot be started: %s%s",
                i + 1, n, strerror(cause),
                cause == EAGAIN
                    ? " (more than this user may have: ulimit -u, or BERYL_THREADS for fewer)"
                    : "");
        }
        d->n_thread = i + 1;
    }
    return BERYL_OK;
}

void host_threads_stop(host *d) {
    base_lock_enter(d->lock);
    d->closing = true; /* what is in the queue is run first */
    base_lock_wake(d->lock);
    base_lock_leave(d->lock);
    for (uint32_t i = 0; i < d->n_thread; i++) base_thread_close(d->workers[i].thread);
    d->n_thread = 0;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void list_free(host *d, host_list *list) {
    base_heap *heap = d->head.heap;
    base_vec_fini(heap, &list->commands);
    base_vec_fini(heap, &list->waves);
    base_vec_fini(heap, &list->pointers);
    base_vec_fini(heap, &list->params);
    base_vec_fini(heap, &list->writes);
    base_vec_fini(heap, &list->bytes);
    base_heap_give(heap, list, sizeof *list);
}

void host_lists_fini(host *d) {
    for (host_list *list = d->free_lists, *next; list; list = next) {
        next = list->next;
        list_free(d, list);
    }
    if (d->making) list_free(d, d->making);
    base_vec_fini(d->head.heap, &d->ranges);
    d->free_lists = d->making = NULL;
}

#define LIST_ROOM(v, n) ((n) <= (v)->count || base_vec_reserve(heap, v, (n) - (v)->count))

/* Room for the most that a list ever had. */
static bool list_room(host *d, host_list *list) {
    base_heap *heap = d->head.heap;
    return LIST_ROOM(&list->commands, d->most.commands) &&
           LIST_ROOM(&list->waves, d->most.commands) &&
           LIST_ROOM(&list->pointers, d->most.pointers) &&
           LIST_ROOM(&list->params, d->most.params) && LIST_ROOM(&list->writes, d->most.writes) &&
           LIST_ROOM(&list->bytes, d->most.bytes);
}

/* How long the workgroups of a list that has run took. What held up a thread counts too: so longer
 * times are believed slowly. */
static void note_times(host *d, host_list *list) {
    for (size_t i = 0; i < list->commands.count; i++) {
        host_command *c = &list->commands.data[i];
        host_program *program =
            c->kind == HOST_RUN ? device_pool_at(&d->head.programs, c->run.program.id) : NULL;
        if (!program) continue;
        const double ns = (double)atomic_load_explicit(&c->spent, memory_order_relaxed) / c->total,
                     most = 1.1 * program->group_ns;
        program->group_ns = program->group_ns > 0 && ns > most ? most : ns;
    }
}

/* The list that the next submit will be, with room for what `most` says; so have the free ones. */
static beryl_status list_ready(host *d, bool grown, beryl_error *error) {
    base_heap *heap = d->head.heap;
    if (!d->making) {
        base_lock_enter(d->lock);
        host_list *list = d->free_lists;
        if (list) d->free_lists = list->next;
        base_lock_leave(d->lock);
        grown |= !list;
        for (int i = 0; i < LISTS_EAGER && !list; i++) {
            host_list *one = base_heap_take(heap, sizeof *one);
            if (!one) goto no_memory;
            d->head.stats.objects++;
            if (!d->making) d->making = one;
            else {
                base_lock_enter(d->lock);
                one->next = d->free_lists;
                d->free_lists = one;
                base_lock_leave(d->lock);
            }
        }
        if (list) d->making = list;
        list = d->making;
        note_times(d, list);
        list->next = NULL;
        list->ticket = 0;
        list->users = 0;
        list->done = false;
        list->commands.count = list->waves.count = list->pointers.count = list->params.count = 0;
        list->writes.count = list->bytes.count = 0;
        if (list->bytes.capacity > WRITE_KEPT) base_vec_fini(heap, &list->bytes);
    }
    if (!list_room(d, d->making)) goto no_memory;
    if (!grown) return BERYL_OK;
    bool room = true; /* the free ones are the owner's to grow: threads only add to them */
    base_lock_enter(d->lock);
    for (host_list *list = d->free_lists; list; list = list->next) room &= list_room(d, list);
    base_lock_leave(d->lock);
    if (room) return BERYL_OK;
no_memory:
    return base_fail(error, BERYL_NO_MEMORY, "out of memory for a list of commands");
}

static void list_send(host *d, device_ticket ticket) {
    host_list *list = d->making;
    d->making = NULL;
    for (size_t i = 0; i < list->writes.count; i++) list->writes.data[i].to->waiting = false;
    list->serial = ++d->serial;
    list->ticket = ticket;
    atomic_store(&d->sent, list->serial);
    base_lock_enter(d->lock);
    if (d->last) d->last->next = list;
    else d->first = list;
    d->last = list;
    if (d->n_idle) base_lock_wake(d->lock);
    base_lock_leave(d->lock);
}

/* ---- commands and waves ---------------------------------------------------------------------- */

static void wave_begin(host *d, host_list *list) {
    host_wave *wave = &list->waves.data[list->waves.count++];
    wave->first = wave->end = list->commands.count;
    atomic_store_explicit(&wave->left, 0, memory_order_relaxed);
    d->ranges.count = 0;
}

/* Notes what the command at hand touches; true: a command of the wave before it is in the way. */
static bool touch(host *d, size_t n_before, const void *at, uint64_t size, bool written) {
    const uintptr_t begin = (uintptr_t)at, end = begin + (uintptr_t)size;
    bool conflict = false;
    for (size_t i = 0; i < n_before && !conflict; i++) {
        const struct host_range *r = &d->ranges.data[i];
        conflict = begin < r->end && r->begin < end && (written || r->written);
    }
    d->ranges.data[d->ranges.count++] = (struct host_range){begin, end, written};
    return conflict;
}

/* The last command, whose ranges are those from n_before on, joins the wave or begins one. */
static void join_wave(host *d, host_list *list, size_t n_before, bool conflict) {
    host_command *c = &list->commands.data[list->commands.count];
    host_wave *wave = list->waves.count ? &list->waves.data[list->waves.count - 1] : NULL;
    if (!wave || conflict || list->commands.count - wave->first >= WAVE_MAX) {
        struct host_range mine[DEVICE_BINDING_MAX];
        const size_t n = d->ranges.count - n_before;
        if (n) memcpy(mine, d->ranges.data + n_before, n * sizeof *mine);
        wave_begin(d, list);
        if (n) memcpy(d->ranges.data, mine, n * sizeof *mine);
        d->ranges.count = n;
        wave = &list->waves.data[list->waves.count - 1];
    }
    atomic_store_explicit(&c->next, 0, memory_order_relaxed);
    atomic_store_explicit(&c->spent, 0, memory_order_relaxed);
    const uint64_t left = atomic_load_explicit(&wave->left, memory_order_relaxed);
    atomic_store_explicit(&wave->left, left + c->total, memory_order_relaxed);
    wave->end = ++list->commands.count;
}

static void add_copy(host *d, host_list *list, const unsigned char *from, unsigned char *to,
                     uint64_t size) {
    if (!size) return;
    const size_t before = d->ranges.count;
    host_command *c = &list->commands.data[list->commands.count];
    c->kind = from ? HOST_COPY : HOST_FILL;
    c->total = (uint32_t)((size + COPY_PIECE - 1) / COPY_PIECE);
    c->piece = 1;
    c->copy.from = from;
    c->copy.to = to;
    c->copy.size = size;
    bool conflict = touch(d, before, to, size, true);
    if (from) conflict |= touch(d, before, from, size, false);
    join_wave(d, list, before, conflict);
}

static void add_stamp(host *d, host_list *list, uint64_t *to) {
    host_command *c = &list->commands.data[list->commands.count];
    c->kind = HOST_STAMP;
    c->total = c->piece = 1;
    c->stamp = to;
    const size_t before = d->ranges.count;
    join_wave(d, list, before, true);
    d->ranges.data[d->ranges.count++] = (struct host_range){0, UINTPTR_MAX, true}; /* all wait */
}

/* Workgroups that a thread takes at a time. Small enough that `next` cannot wrap, however many
 * threads find nothing left. */
static uint32_t pieces_of(const host *d, const host_program *program, uint32_t total) {
    const uint32_t even = total / (d->n_thread * PIECES_A_THREAD);
    const double known = program->group_ns > 0 ? PIECE_NS / program->group_ns : 1;
    const uint32_t least = known < 1 ? 1 : known > PIECE_MAX ? PIECE_MAX : (uint32_t)known;
    return even > least ? even : least < total ? least : total;
}

static void add_dispatch(host *d, host_list *list, const device_command *command) {
    const host_program *program = device_pool_at(&d->head.programs, command->dispatch.program.id);
    const device_bindings_item *bindings =
        device_pool_at(&d->head.bindings, command->dispatch.bindings.id);
    const uint32_t *groups = command->dispatch.groups;
    const uint32_t total = groups[0] * groups[1] * groups[2];
    if (!total) return;
    const size_t before = d->ranges.count;
    host_command *c = &list->commands.data[list->commands.count];
    c->kind = HOST_RUN;
    c->total = total;
    c->piece = pieces_of(d, program, total);
    c->run.program = command->dispatch.program;
    c->run.fn = program->code.fn;
    c->run.pointer = list->pointers.count;
    c->run.param = program->head.param_bytes ? command->dispatch.param_offset / 4 : 0;
    memcpy(c->run.groups, groups, sizeof c->run.groups);
    bool conflict = false;
    for (uint32_t i = 0; i < bindings->n_binding; i++) {
        host_buffer *buffer = (host_buffer *)bindings->ranges[i].buffer;
        unsigned char *at = buffer->data + bindings->ranges[i].offset;
        buffer->last = d->serial + 1;
        list->pointers.data[list->pointers.count++] = at;
        conflict |= touch(d, before, at, bindings->ranges[i].size, bindings->written >> i & 1);
    }
    c->run.scratch = program->code.scratch;
    host_bounds_note(d, list, c, bindings);
    join_wave(d, list, before, conflict);
}

/* ---- writes ---------------------------------------------------------------------------------- */

/* The writes that wait, as the first commands of their list. */
static void add_writes(host *d, host_list *list) {
    d->ranges.count = 0;
    for (size_t i = 0; i < list->writes.count; i++) {
        const struct host_write *w = &list->writes.data[i];
        w->to->last = d->serial + 1;
        add_copy(d, list, list->bytes.data + w->at, w->to->data + w->offset, w->size);
    }
}

static bool raise(size_t *most, size_t n) {
    if (n <= *most) return false;
    *most = n;
    return true;
}

static bool ranges_reserve(host *d) {
    const size_t most = (WAVE_MAX + 1) * (DEVICE_BINDING_MAX + 1);
    return d->ranges.capacity >= most || base_vec_reserve(d->head.heap, &d->ranges, most);
}

static beryl_status flush_writes(host *d, beryl_error *error) {
    const bool grown = raise(&d->most.commands, d->most.writes);
    beryl_status status = list_ready(d, grown, error);
    if (!status && !ranges_reserve(d))
        status = base_fail(error, BERYL_NO_MEMORY, "out of memory for a write");
    if (status) return status;
    add_writes(d, d->making);
    list_send(d, 0);
    return BERYL_OK;
}

beryl_status host_write(device *head, device_buffer_item *item, uint64_t offset, const void *data,
                        size_t size, beryl_error *error) {
    host *d = (host *)head;
    host_buffer *buffer = (host_buffer *)item;
    beryl_status status = BERYL_OK;
    if (!d->most.bytes) { /* the first write of all: room for later ones that must wait */
        d->most.bytes = WRITE_EAGER;
        d->most.writes = 64;
        status = list_ready(d, true, error);
        if (status) d->most.bytes = d->most.writes = 0;
        if (status) return status;
    }
    if (!buffer->waiting && buffer->last <= atomic_load(&d->done_serial)) {
        memcpy(buffer->data + offset, data, size); /* nobody looks at it */
        return BERYL_OK;
    }
    if (d->making && d->making->bytes.count && size > WRITE_MAX - d->making->bytes.count)
        status = flush_writes(d, error);
    if (!status && !d->making) status = list_ready(d, false, error);
    if (status) return status;
    const bool grown = d->making->writes.count == d->most.writes;
    if (grown) d->most.writes *= 2;
    status = list_ready(d, grown, error);
    if (!status && !base_vec_reserve(head->heap, &d->making->bytes, size))
        status = base_fail(error, BERYL_NO_MEMORY, "out of memory for a write of %zu bytes", size);
    if (status) return status;
    host_list *list = d->making;
    list->writes.data[list->writes.count++] =
        (struct host_write){buffer, offset, list->bytes.count, size};
    memcpy(list->bytes.data + list->bytes.count, data, size);
    list->bytes.count += size;
    buffer->waiting = true;
    return BERYL_OK;
}

/* ---- submits --------------------------------------------------------------------------------- */

typedef struct needs {
    size_t commands, pointers;
    uint32_t scratch;
} needs;

/* What the list needs, and whether all its programs are compiled. */
static beryl_status count_needs(host *d, const device_submit_desc *desc, needs *n,
                                beryl_error *error) {
    for (size_t i = 0; i < desc->n_command; i++) {
        const device_command *c = &desc->commands[i];
        n->commands++;
        if (c->kind == DEVICE_DISPATCH) {
            host_program *program = device_pool_at(&d->head.programs, c->dispatch.program.id);
            const uint32_t *g = c->dispatch.groups;
            beryl_status status =
                program->code.fn ? BERYL_OK : host_program_status(&d->head, &program->head, error);
            if (status) return status;
            if ((uint64_t)g[0] * g[1] > INT32_MAX || (uint64_t)g[0] * g[1] * g[2] > INT32_MAX)
                return base_fail(error, BERYL_UNSUPPORTED,
                                 "%s: %u x %u x %u groups, the host runs fewer than 2^31",
                                 program->head.label, g[0], g[1], g[2]);
            n->pointers += program->head.n_binding * (1 + (size_t)HOST_BOUNDS);
            if (program->code.scratch > n->scratch) n->scratch = program->code.scratch;
        }
    }
    return BERYL_OK;
}

/* Each thread has memory for the largest kernel's lanes. */
static beryl_status ready_scratch(host *d, uint32_t size, beryl_error *error) {
    const size_t stride =
        ((size_t)size + HOST_ALIGN - 1) / HOST_ALIGN * HOST_ALIGN + HOST_GUARD_BYTES;
    if (stride <= d->scratch_stride) return BERYL_OK;
    size_t room = stride * d->n_thread;
    unsigned char *scratch = host_graves_reserve(d) ? host_pages_take(&room) : NULL;
    if (!scratch)
        return base_fail(error, BERYL_NO_MEMORY, "out of memory for the scratch of %u threads",
                         d->n_thread);
    host_grave_add(d, (host_grave){d->serial, d->scratch, NULL, d->scratch_room});
    device_stats_bytes(&d->head, (int64_t)room - (int64_t)d->scratch_room);
    d->head.stats.objects++;
    d->scratch = scratch;
    d->scratch_room = room;
    d->scratch_stride = stride;
    return BERYL_OK;
}

typedef struct results {       /* where the next ones of a submit go */
    driver_readback *readback; /* NULL: it has none */
    uint64_t *stamps;
    size_t n_fetch, n_stamp;
} results;

static void add_command(host *d, host_list *list, const device_command *c, results *r) {
    switch (c->kind) {
    case DEVICE_DISPATCH: add_dispatch(d, list, c); break;
    case DEVICE_COPY: {
        host_buffer *from = device_pool_at(&d->head.buffers, c->copy.from.id),
                    *to = device_pool_at(&d->head.buffers, c->copy.to.id);
        from->last = to->last = d->serial + 1;
        add_copy(d, list, from->data + c->copy.from_offset, to->data + c->copy.to_offset,
                 c->copy.size);
        break;
    }
    case DEVICE_FILL: {
        host_buffer *buffer = device_pool_at(&d->head.buffers, c->fill.buffer.id);
        buffer->last = d->serial + 1;
        add_copy(d, list, NULL, buffer->data + c->fill.offset, c->fill.size);
        break;
    }
    case DEVICE_FETCH: {
        host_buffer *buffer = device_pool_at(&d->head.buffers, c->fetch.buffer.id);
        buffer->last = d->serial + 1;
        add_copy(d, list, buffer->data + c->fetch.offset,
                 r->readback->memory + r->readback->fetches.data[r->n_fetch++].at, c->fetch.size);
        break;
    }
    case DEVICE_STAMP:
        if (d->head.caps.timestamps) add_stamp(d, list, &r->stamps[r->n_stamp++]);
        break;
    }
}

static beryl_status ready_results(host *d, const device_submit_desc *desc, results *r,
                                  beryl_error *error) {
    beryl_status status = driver_readback_take(&d->readbacks, desc, atomic_load(&d->done),
                                               d->head.caps.timestamps, &r->readback, error);
    if (status || !r->readback) return status;
    const size_t n = r->readback->n_stamp, which = (size_t)(r->readback - d->readbacks.items);
    for (int i = 0; i < DEVICE_READBACK_MAX && n; i++)
        if (d->stamps[i].capacity < n && !base_vec_reserve(d->head.heap, &d->stamps[i], n))
            return base_fail(error, BERYL_NO_MEMORY, "out of memory for stamps");
    r->stamps = d->stamps[which].data;
    return BERYL_OK;
}

beryl_status host_submit(device *head, const device_submit_desc *desc, device_ticket ticket,
                         beryl_error *error) {
    host *d = (host *)head;
    needs n = {.commands = d->most.writes}; /* each is a command of its list */
    results r = {0};
    host_graves_clear(d);
    beryl_status status = count_needs(d, desc, &n, error);
    if (status) return status;
    bool grown = raise(&d->most.commands, n.commands);
    grown |= raise(&d->most.pointers, n.pointers);
    grown |= raise(&d->most.params, desc->param_bytes / 4);
    status = list_ready(d, grown, error);
    if (!status && !ranges_reserve(d))
        status = base_fail(error, BERYL_NO_MEMORY, "out of memory for a submit");
    if (!status) status = ready_scratch(d, n.scratch, error);
    if (!status) status = ready_results(d, desc, &r, error);
    if (status) return status;

    host_list *list = d->making;
    if (desc->param_bytes) memcpy(list->params.data, desc->params, desc->param_bytes);
    list->params.count = desc->param_bytes / 4;
    list->scratch = d->scratch;
    list->scratch_stride = d->scratch_stride;
    add_writes(d, list);
    for (size_t i = 0; i < desc->n_command; i++) add_command(d, list, &desc->commands[i], &r);
    if (r.readback) driver_readback_begin(&d->readbacks, r.readback, ticket);
    list_send(d, ticket);
    return BERYL_OK;
}

beryl_status host_poll(device *head, device_ticket *done, beryl_error *error) {
    host *d = (host *)head;
    (void)error;
    host_graves_clear(d);
    *done = atomic_load(&d->done);
    return BERYL_OK;
}

beryl_status host_wait(device *head, device_ticket ticket, beryl_error *error) {
    host *d = (host *)head;
    (void)error;
    base_lock_enter(d->lock);
    while (atomic_load(&d->done) < ticket) base_lock_sleep(d->lock);
    base_lock_leave(d->lock);
    host_graves_clear(d);
    return BERYL_OK;
}
