/* store.c - where weights and states lie, and how they get there. Everything that will not fit
 * is refused in store_layout, before a byte is allocated. */
#include "graph/store.h"
#include "base/build.h"
#include "base/error.h"
#include "base/file.h"
#include "base/thread.h"

#include <stdatomic.h>
#include <string.h>

enum {
    TENSOR_ALIGN = 256,
    IN_PLACE_BYTES = 64 << 20, /* of the file, in one step, where no stage has to hold them */
    PORTION_MAX = 32,
    PACK_THREADS = 8,
    PACK_ALONE_BYTES = 1 << 20,   /* less is not worth a thread */
    PACK_PIECE_BYTES = 256 << 10, /* read, and packed while the processor's cache has them */
    /* in one step, where one thread does all: so that its cache has them until they are staged */
    ALONE_BYTES = 1 << 20,
};

/* bytes a second that a thread reads at least where the system has them in memory */
static const double CACHED_RATE = 1e9;

static uint64_t align_up(uint64_t n, uint64_t to) {
    return (n + to - 1) / to * to;
}

static uint64_t row_count(const store_tensor *t) {
    uint64_t n = 1;
    for (uint32_t i = 0; i + 1 < t->rank; i++) n *= t->dim[i];
    return n;
}

static uint32_t row_size(const store_tensor *t) {
    return t->rank ? t->dim[t->rank - 1] : 1;
}

beryl_status store_init(graph_store *s, base_heap *heap, device *d, const beryl_source *sources,
                        uint32_t n_source, beryl_error *error) {
    (void)error;
    *s = (graph_store){.heap = heap, .device = d, .sources = sources, .n_source = n_source};
    base_arena_init(&s->arena, heap);
    return BERYL_OK;
}

void store_fini(graph_store *s) {
    if (!s->heap) return;
    for (size_t i = 0; i < s->programs.count; i++)
        device_program_drop(s->device, s->programs.data[i].id);
    for (size_t i = 0; i < s->buffers.count; i++)
        if (s->buffers.data[i].id.id) device_buffer_drop(s->device, s->buffers.data[i].id);
    for (size_t i = 0; i < s->tensors.count; i++) {
        store_tensor *t = &s->tensors.data[i];
        if (t->host) base_heap_give(s->heap, t->host, (size_t)store_state_bytes(s, (uint32_t)i));
    }
    base_vec_fini(s->heap, &s->programs);
    base_vec_fini(s->heap, &s->buffers);
    base_vec_fini(s->heap, &s->tensors);
    base_heap_give(s->heap, s->window, s->window_size);
    base_arena_fini(&s->arena);
    *s = (graph_store){0};
}

static uint32_t tensor_add(graph_store *s, const char *name, base_type type, uint32_t rank,
                           const uint32_t *dim, uint32_t group) {
    char *copy = base_arena_text(&s->arena, name, strlen(name));
    store_tensor *t = copy && rank <= STORE_RANK_MAX ? base_vec_add(s->heap, &s->tensors) : NULL;
    if (!t) return UINT32_MAX;
    t->name = copy;
    t->type = type;
    t->rank = (uint8_t)rank;
    memcpy(t->dim, dim, rank * sizeof *dim);
    t->group = group;
    t->scale = UINT32_MAX;
    return (uint32_t)(s->tensors.count - 1);
}

uint32_t store_add_weight(graph_store *s, const char *name, base_type type, uint32_t rank,
                          const uint32_t *dim, uint32_t group, uint32_t file, uint64_t file_offset,
                          bool on_host) {
    uint32_t index = tensor_add(s, name, type, rank, dim, group);
    if (index == UINT32_MAX) return index;
    store_tensor *t = &s->tensors.data[index];
    t->file = file;
    t->file_offset = file_offset;
    t->file_bytes = base_type_row_bytes(type, row_size(t)) * row_count(t);
    t->on_host = on_host;
    return index;
}

uint32_t store_add_state(graph_store *s, const char *name, base_type type, uint32_t rank,
                         const uint32_t *dim, uint32_t group) {
    uint32_t index = tensor_add(s, name, type, rank, dim, group);
    if (index != UINT32_MAX) s->tensors.data[index].is_state = true;
    return index;
}

uint64_t store_state_bytes(const graph_store *s, uint32_t index) {
    const store_tensor *t = &s->tensors.data[index];
    return align_up(base_type_row_bytes(t->type, row_size(t)) * row_count(t), 4);
}

/* ---- layout ---------------------------------------------------------------------------------- */

/* A place of `bytes` in the newest buffer of the group, or in a new one. */
static beryl_status place(graph_store *s, uint32_t group, uint64_t bytes, uint32_t *buffer,
                          uint64_t *offset, beryl_error *error) {
    const device_caps *caps = device_caps_of(s->device);
    const uint64_t most = caps->buffer_max,
                   align = caps->align_binding > TENSOR_ALIGN ? caps->align_binding : TENSOR_ALIGN;
    for (size_t i = s->buffers.count; i-- > 0;) {
        struct store_buffer *b = &s->buffers.data[i];
        uint64_t start = align_up(b->size, align);
        if (b->group != group || start > most || bytes > most - start) continue;
        *buffer = (uint32_t)i;
        *offset = start;
        b->size = start + bytes;
        return BERYL_OK;
    }
    struct store_buffer *b = base_vec_add(s->heap, &s->buffers);
    if (!b) return base_fail(error, BERYL_NO_MEMORY, "out of host memory while placing tensors");
    *b = (struct store_buffer){.size = bytes, .group = group};
    *buffer = (uint32_t)(s->buffers.count - 1);
    *offset = 0;
    return BERYL_OK;
}

static beryl_status layout_weight(graph_store *s, store_tensor *t, beryl_error *error) {
    const device_caps *caps = device_caps_of(s->device);
    uint64_t rows = row_count(t),
             most = caps->binding_max < caps->buffer_max ? caps->binding_max : caps->buffer_max;
    graph_pack_layout whole;
    if (!graph_pack_layout_of(t->type, rows, row_size(t), &whole))
        return base_fail(error, BERYL_UNSUPPORTED,
                         "tensor '%s': %s with rows of %u is not supported on a device", t->name,
                         base_type_name(t->type), row_size(t));
    uint64_t per_row = (whole.bytes - whole.table_bytes + rows - 1) / rows + 1;
    uint64_t shards = whole.bytes <= most ? 1 : (whole.bytes + most - 1) / most;
    uint64_t rows_each = (rows + shards - 1) / shards;
    if (shards > 1) { /* padding of planes may push a shard over the limit: leave room for it */
        rows_each = (most - whole.table_bytes - 16 * (uint64_t)PACK_PLANE_MAX) / per_row;
        rows_each -= rows_each % 64 < rows_each ? rows_each % 64 : 0;
        shards = rows_each ? (rows + rows_each - 1) / rows_each : STORE_SHARD_MAX + 1;
    }
    if (shards > STORE_SHARD_MAX)
        return base_fail(error, BERYL_NO_DEVICE_MEMORY,
                         "tensor '%s' of %llu MB does not fit the device's bindings of %llu MB",
                         t->name, (unsigned long long)(whole.bytes >> 20),
                         (unsigned long long)(most >> 20));
    t->n_shard = (uint32_t)shards;
    for (uint32_t i = 0; i < t->n_shard; i++) {
        store_shard *shard = &t->shard[i];
        shard->row = (uint32_t)(i * rows_each);
        shard->n_row = (uint32_t)(rows - shard->row < rows_each ? rows - shard->row : rows_each);
        if (!graph_pack_layout_of(t->type, shard->n_row, row_size(t), &shard->layout))
            return base_fail(error, BERYL_UNSUPPORTED, "tensor '%s': %s", t->name,
                             base_type_name(t->type));
        beryl_status status =
            place(s, t->group, shard->layout.bytes, &shard->buffer, &shard->offset, error);
        if (status != BERYL_OK) return status;
        s->weight_bytes += shard->layout.bytes;
    }
    return BERYL_OK;
}

static beryl_status layout_state(graph_store *s, uint32_t index, beryl_error *error) {
    store_tensor *t = &s->tensors.data[index];
    uint64_t bytes = store_state_bytes(s, index);
    uint64_t most = device_caps_of(s->device)->binding_max;
    if (bytes > most)
        return base_fail(error, BERYL_NO_DEVICE_MEMORY,
                         "'%s' needs %llu MB in one piece, the device binds %llu MB at most: use a "
                         "smaller --context or --kv f16|q8",
                         t->name, (unsigned long long)(bytes >> 20),
                         (unsigned long long)(most >> 20));
    t->n_shard = 1;
    t->shard[0].n_row = (uint32_t)row_count(t);
    s->state_bytes += bytes;
    return place(s, t->group, bytes, &t->shard[0].buffer, &t->shard[0].offset, error);
}

static beryl_status check_file(const graph_store *s, const store_tensor *t, beryl_error *error) {
    if (t->is_state) return BERYL_OK;
    if (t->file >= s->n_source || t->file_bytes == 0 ||
        !base_range_inside(t->file_offset, t->file_bytes, s->sources[t->file].size))
        return base_fail_at(error, BERYL_BAD_FILE, t->file_offset,
                            "tensor '%s' lies outside its file", t->name);
    return BERYL_OK;
}

/* Of tensors from `first` on. */
static beryl_status layout_from(graph_store *s, uint32_t first, uint64_t memory,
                                beryl_error *error) {
    beryl_status status = BERYL_OK;
    for (uint32_t i = first; status == BERYL_OK && i < s->tensors.count; i++) {
        store_tensor *t = &s->tensors.data[i];
        status = check_file(s, t, error);
        if (status != BERYL_OK) break;
        if (!s->device && t->is_state) s->state_bytes += store_state_bytes(s, i);
        if (s->device && t->on_host) continue;
        if (s->device)
            status = t->is_state ? layout_state(s, i, error) : layout_weight(s, t, error);
        if (!t->is_state) s->upload_total += t->file_bytes;
    }
    if (status == BERYL_OK && s->device && memory == 0) memory = device_caps_of(s->device)->memory;
    if (status == BERYL_OK && s->device && memory && s->weight_bytes + s->state_bytes > memory)
        return base_fail(error, BERYL_NO_DEVICE_MEMORY,
                         "needs %llu MB of device memory (weights %llu, cache %llu) and %llu may "
                         "be used: try a smaller --context, "
                         "--kv f16|q8 or a smaller file",
                         (unsigned long long)((s->weight_bytes + s->state_bytes) >> 20),
                         (unsigned long long)(s->weight_bytes >> 20),
                         (unsigned long long)(s->state_bytes >> 20),
                         (unsigned long long)(memory >> 20));
    return status;
}

beryl_status store_layout(graph_store *s, uint64_t memory, beryl_error *error) {
    return layout_from(s, 0, memory, error);
}

static beryl_status window_reserve(graph_store *s, size_t size, beryl_error *error) {
    if (size <= s->window_size) return BERYL_OK;
    void *window = base_heap_resize(s->heap, s->window, s->window_size, size);
    if (!window)
        return base_fail(error, BERYL_NO_MEMORY, "out of host memory: a window of %zu bytes", size);
    s->window = window;
    s->window_size = size;
    return BERYL_OK;
}

/* The planes that are the same for all rows. */
static beryl_status write_tables(graph_store *s, uint32_t first, beryl_error *error) {
    for (size_t i = first; i < s->tensors.count; i++) {
        const store_tensor *t = &s->tensors.data[i];
        for (uint32_t n = 0; n < t->n_shard; n++) {
            const store_shard *shard = &t->shard[n];
            const graph_pack_layout *layout = &shard->layout;
            if (!layout->table_bytes) continue;
            beryl_status status = window_reserve(s, layout->table_bytes, error);
            if (status != BERYL_OK) return status;
            base_type_table(t->type, s->window);
            status = device_write(s->device, s->buffers.data[shard->buffer].id,
                                  shard->offset + layout->offset[layout->n_plane - 1], s->window,
                                  layout->table_bytes, error);
            if (status != BERYL_OK) return status;
        }
    }
    return BERYL_OK;
}

/* Tensors from `first` on, buffers from `buffer` on. */
static beryl_status make_from(graph_store *s, uint32_t first, size_t buffer, beryl_error *error) {
    if (!s->device) {
        for (uint32_t i = first; i < s->tensors.count; i++) {
            store_tensor *t = &s->tensors.data[i];
            if (!t->is_state) continue;
            uint64_t bytes = store_state_bytes(s, i);
            t->host = bytes <= SIZE_MAX ? base_heap_take(s->heap, (size_t)bytes) : NULL;
            if (!t->host)
                return base_fail(error, BERYL_NO_MEMORY,
                                 "out of host memory: '%s' needs %llu bytes", t->name,
                                 (unsigned long long)bytes);
        }
        return BERYL_OK;
    }
    for (size_t i = buffer; i < s->buffers.count; i++) {
        struct store_buffer *b = &s->buffers.data[i];
        b->size = align_up(b->size, 16);
        beryl_status status = device_buffer_make(s->device, b->size, "store", &b->id, error);
        if (status != BERYL_OK) return status;
    }
    return write_tables(s, first, error);
}

beryl_status store_make(graph_store *s, beryl_error *error) {
    return make_from(s, 0, 0, error);
}

/* ---- what comes and goes --------------------------------------------------------------------- */

void store_cut(graph_store *s, const store_mark *mark) {
    for (size_t i = mark->buffer; i < s->buffers.count; i++)
        if (s->buffers.data[i].id.id) device_buffer_drop(s->device, s->buffers.data[i].id);
    for (size_t i = mark->tensor; i < s->tensors.count; i++)
        base_heap_give(s->heap, s->tensors.data[i].host,
                       s->tensors.data[i].host ? (size_t)store_state_bytes(s, (uint32_t)i) : 0);
    s->buffers.count = mark->buffer;
    s->tensors.count = mark->tensor;
    s->weight_bytes = mark->weight_bytes;
    s->state_bytes = mark->state_bytes;
}

store_mark store_mark_of(const graph_store *s) {
    return (store_mark){(uint32_t)s->tensors.count, (uint32_t)s->buffers.count, s->weight_bytes,
                        s->state_bytes};
}

beryl_status store_extend(graph_store *s, const store_mark *mark, uint64_t memory,
                          beryl_error *error) {
    beryl_status status = layout_from(s, mark->tensor, memory, error);
    if (status == BERYL_OK) status = make_from(s, mark->tensor, mark->buffer, error);
    if (status == BERYL_OK) store_upload_again(s, mark->tensor);
    return status;
}

void store_upload_again(graph_store *s, uint32_t first) {
    s->upload = (store_place){.tensor = first};
    s->upload_plane = 0;
    s->window_full = false;
    s->uploads++;
    for (size_t i = first; i < s->tensors.count; i++) s->tensors.data[i].host_done = 0;
}

/* ---- upload ---------------------------------------------------------------------------------- */

static beryl_status read_failed(const graph_store *s, uint32_t file, uint64_t offset,
                                beryl_status status, beryl_error *error) {
    return base_source_fail(&s->sources[file], "the model file", status, offset, error);
}

static beryl_status file_read(const graph_store *s, uint32_t file, uint64_t offset, void *to,
                              size_t size, beryl_error *error) {
    const beryl_source *source = &s->sources[file];
    beryl_status status = source->read(source->user, offset, to, size);
    return status == BERYL_OK || status == BERYL_PENDING
               ? status
               : read_failed(s, file, offset, status, error);
}

/* Rows of one shard that are read and packed together. */
typedef struct portion {
    const store_tensor *t;
    const store_shard *shard;
    uint64_t row, n_row; /* of the shard */
    /* first, into `rows`, or where that is NULL piece by piece into the thread's room */
    bool read;
    char *rows;               /* as the file has them */
    char *to[PACK_PLANE_MAX]; /* of the first row in each plane; NULL: not packed now */
    double waited;            /* seconds for reads */
    beryl_status status;
} portion;

typedef struct portions { /* what one step uploads, or a part of it */
    const graph_store *s;
    uint32_t n;
    _Atomic uint32_t next;
    portion items[PORTION_MAX];
} portions;

typedef struct packer { /* a thread */
    portions *all;
    char *room; /* for a piece */
} packer;

static uint64_t file_row_of(const store_tensor *t) {
    return base_type_row_bytes(t->type, row_size(t));
}

static uint64_t piece_rows(const portion *p) {
    const uint64_t row = file_row_of(p->t), n = row < PACK_PIECE_BYTES ? PACK_PIECE_BYTES / row : 1;
    return n < p->n_row ? n : p->n_row;
}

/* Of the first row, in the file. */
static uint64_t portion_at(const portion *p) {
    return p->t->file_offset + (p->shard->row + p->row) * file_row_of(p->t);
}

/* Of a plane's first row, in the buffer. */
static uint64_t plane_offset(const portion *p, uint32_t plane) {
    return p->shard->offset + p->shard->layout.offset[plane] +
           p->row * p->shard->layout.row_bytes[plane];
}

static void do_portion(const graph_store *s, portion *p, char *room) {
    const beryl_source *source = &s->sources[p->t->file];
    const uint64_t row = file_row_of(p->t), most = piece_rows(p), at = portion_at(p);
    for (uint64_t done = 0, n; done < p->n_row; done += n) {
        n = p->n_row - done < most ? p->n_row - done : most;
        char *rows = p->rows ? p->rows + done * row : room;
        if (p->read) {
            const double begun = base_time();
            p->status = source->read(source->user, at + done * row, rows, (size_t)(n * row));
            p->waited += base_time() - begun;
        }
        if (p->status != BERYL_OK) return;
        for (uint32_t i = 0; i < p->shard->layout.n_plane; i++)
            if (p->to[i])
                graph_pack_rows(p->t->type, row_size(p->t), n, rows, i,
                                p->to[i] + done * p->shard->layout.row_bytes[i]);
    }
}

static void do_portions(void *user) {
    const packer *w = user;
    for (uint32_t i; (i = atomic_fetch_add(&w->all->next, 1)) < w->all->n;)
        do_portion(w->all->s, &w->all->items[i], w->room);
}

/* Reading and splitting into planes are slower than the bus to a large GPU, and pages that are
 * touched first are cleared: several threads share the portions, the caller among them. */
static beryl_status on_threads(graph_store *s, portions *all, beryl_error *error) {
    packer packers[PACK_THREADS];
    base_thread *threads[PACK_THREADS] = {NULL};
    uint64_t room = 0, bytes = 0;
    double waited = 0;
    for (uint32_t i = 0; i < all->n; i++) {
        const portion *p = &all->items[i];
        const uint64_t row = file_row_of(p->t), piece = piece_rows(p) * row;
        if (p->read && !p->rows && piece > room) room = piece;
        bytes += p->n_row * row;
    }
    uint32_t n_thread = all->n < PACK_THREADS ? all->n : PACK_THREADS;
    if (bytes < PACK_ALONE_BYTES || room > STORE_WINDOW_BYTES / PACK_THREADS) n_thread = 1;
    beryl_status status = room ? window_reserve(s, (size_t)room * n_thread, error) : BERYL_OK;
    if (status != BERYL_OK) return status;
    for (uint32_t i = n_thread; i-- > 0;) {
        packers[i] = (packer){all, room ? (char *)s->window + i * room : NULL};
        threads[i] = i ? base_thread_open(s->heap, do_portions, &packers[i]) : NULL;
    }
    do_portions(&packers[0]);
    for (uint32_t i = 0; i < n_thread; i++) base_thread_close(threads[i]);
    for (uint32_t i = 0; i < all->n; i++) {
        const portion *p = &all->items[i];
        if (p->status != BERYL_OK)
            return read_failed(s, p->t->file, portion_at(p), p->status, error);
        waited += p->waited;
    }
    if (all->items[0].read) s->cached = waited * CACHED_RATE < (double)bytes;
    return BERYL_OK;
}

/* As many equal parts as there are threads for. */
static void split(const portion *whole, portions *parts) {
    const uint64_t each = (whole->n_row + PACK_THREADS - 1) / PACK_THREADS;
    for (uint64_t row = 0; row < whole->n_row; row += each) {
        portion *p = &parts->items[parts->n++];
        *p = *whole;
        p->row += row;
        p->n_row = whole->n_row - row < each ? whole->n_row - row : each;
        p->rows += row * file_row_of(p->t);
        for (uint32_t i = 0; i < p->shard->layout.n_plane; i++)
            if (p->to[i]) p->to[i] += row * p->shard->layout.row_bytes[i];
    }
}

/* Where the upload stands, moved on to the next rows that there are. false: there are none. */
static bool next_place(const graph_store *s, store_place *at) {
    for (; at->tensor < s->tensors.count; *at = (store_place){.tensor = at->tensor + 1}) {
        const store_tensor *t = &s->tensors.data[at->tensor];
        if (t->is_state || t->on_host) continue;
        if (at->shard < t->n_shard && at->row == t->shard[at->shard].n_row)
            at->shard++, at->row = 0;
        if (at->shard < t->n_shard) return true;
    }
    return false;
}

/* The rows from `at` on that go together, as a file has them. *in_place: into memory that can be
 * filled. */
static beryl_status portion_from(const graph_store *s, const store_place *at, portion *p,
                                 bool *in_place, beryl_error *error) {
    const store_tensor *t = &s->tensors.data[at->tensor];
    const store_shard *shard = &t->shard[at->shard];
    const uint64_t stage = device_stage_max(s->device);
    uint64_t most = stage < STORE_WINDOW_BYTES ? stage : STORE_WINDOW_BYTES,
             widest = file_row_of(t);
    for (uint32_t i = 0; i < shard->layout.n_plane; i++)
        if (shard->layout.row_bytes[i] > widest) widest = shard->layout.row_bytes[i];
    if (widest > most)
        return base_fail(error, BERYL_UNSUPPORTED, "tensor '%s' has rows of %llu bytes", t->name,
                         (unsigned long long)file_row_of(t));
    char *memory = device_buffer_memory(s->device, s->buffers.data[shard->buffer].id);
    if (memory && widest < IN_PLACE_BYTES / PACK_THREADS) most = IN_PLACE_BYTES / PACK_THREADS;
    const uint64_t alone = 4 * widest > ALONE_BYTES ? 4 * widest : ALONE_BYTES;
    if (BUILD_IS_MODULE && most > alone) most = alone;
    uint64_t n = most / widest;
    if (n > 4) n -= n % 4; /* so that every plane is cut at a multiple of 4 bytes */
    if (n > shard->n_row - at->row) n = shard->n_row - at->row;
    *p = (portion){.t = t, .shard = shard, .row = at->row, .n_row = n};
    *in_place = memory != NULL;
    for (uint32_t i = 0; memory && i < shard->layout.n_plane; i++)
        if (shard->layout.row_bytes[i]) p->to[i] = memory + plane_offset(p, i);
    return BERYL_OK;
}

/* The portions of one step, and `at` behind them: as many as IN_PLACE_BYTES hold where they are
 * a file's and go into memory that can be filled in place, else one. */
static beryl_status collect(const graph_store *s, store_place *at, portions *all, bool *in_place,
                            beryl_error *error) {
    *all = (portions){.s = s};
    *in_place = false;
    for (uint64_t bytes = 0; all->n < PORTION_MAX && bytes < IN_PLACE_BYTES && next_place(s, at);) {
        portion *p = &all->items[all->n];
        bool now;
        beryl_status status = portion_from(s, at, p, &now, error);
        if (status != BERYL_OK) return all->n ? BERYL_OK : status;
        const bool together = now && base_source_is_file(&s->sources[p->t->file]);
        if (all->n && !together) break;
        p->read = together;
        *in_place = now;
        all->n++;
        at->row += (uint32_t)p->n_row;
        bytes += p->n_row * file_row_of(p->t);
        if (!together) break;
    }
    return BERYL_OK;
}

/* Begins to read what the next step needs, unless the system seems to have it: to ask for that
 * is not free either. */
static void expect(const graph_store *s, store_place at) {
    portions next;
    bool in_place;
    if (s->cached || collect(s, &at, &next, &in_place, NULL) != BERYL_OK) return;
    for (uint32_t i = 0; i < next.n; i++) {
        const portion *p = &next.items[i];
        base_source_expect(&s->sources[p->t->file], portion_at(p), p->n_row * file_row_of(p->t));
    }
}

/* Room for the rows, with them in it where they are no file's: in one read, however often the
 * device makes them wait. */
static beryl_status fill_window(graph_store *s, portion *p, beryl_error *error) {
    const size_t size = (size_t)(p->n_row * file_row_of(p->t));
    beryl_status status = window_reserve(s, size, error);
    p->rows = s->window;
    if (status != BERYL_OK || s->window_full || base_source_is_file(&s->sources[p->t->file]))
        return status;
    status = file_read(s, p->t->file, portion_at(p), s->window, size, error);
    s->window_full = status == BERYL_OK;
    return status;
}

/* Rows into the device's stages, plane by plane; the first plane's threads also read them, where
 * nobody has. PENDING: the stages are full. */
static beryl_status stage_planes(graph_store *s, portion *p, beryl_error *error) {
    const device_buffer buffer = s->buffers.data[p->shard->buffer].id;
    for (; s->upload_plane < p->shard->layout.n_plane; s->upload_plane++) {
        const uint32_t plane = s->upload_plane;
        if (!p->shard->layout.row_bytes[plane]) continue; /* it is there */
        /* planes are padded */
        const size_t used = (size_t)(p->n_row * p->shard->layout.row_bytes[plane]),
                     size = (used + 3) / 4 * 4;
        void *to;
        beryl_status status = device_stage(s->device, size, &to, error);
        if (status != BERYL_OK) return status;
        memset((char *)to + used, 0, size - used);
        portions parts = {.s = s};
        memset(p->to, 0, sizeof p->to);
        p->to[plane] = to;
        p->read = !s->window_full;
        split(p, &parts);
        status = on_threads(s, &parts, error);
        s->window_full = status == BERYL_OK;
        if (status == BERYL_OK)
            status = device_stage_commit(s->device, buffer, plane_offset(p, plane), size, error);
        else device_stage_commit(s->device, buffer, 0, 0, NULL);
        if (status != BERYL_OK) return status;
    }
    s->upload_plane = 0;
    return BERYL_OK;
}

static beryl_status upload_portions(graph_store *s, portions *all, bool in_place,
                                    beryl_error *error) {
    portion *first = &all->items[0];
    if (first->read) return on_threads(s, all, error);
    beryl_status status = fill_window(s, first, error);
    if (status != BERYL_OK) return status;
    if (!in_place) return stage_planes(s, first, error);
    portions parts = {.s = s};
    split(first, &parts);
    return on_threads(s, &parts, error);
}

/* ---- weights on the host --------------------------------------------------------------------- */

/* The next window of a weight. OK: it is all there; EVENT: progressed. */
static beryl_status host_weight_step(graph_store *s, uint32_t index, beryl_error *error) {
    store_tensor *t = &s->tensors.data[index];
    if (t->host_done == t->file_bytes) return BERYL_OK;
    const uint64_t room = store_state_bytes(s, index),
                   each = t->file_step ? t->file_bytes / t->dim[0] : t->file_bytes,
                   at = t->host_done % each, left = each - at;
    if (!t->host && room <= SIZE_MAX) t->host = base_heap_resize(s->heap, NULL, 0, (size_t)room);
    if (!t->host)
        return base_fail(error, BERYL_NO_MEMORY, "out of host memory: '%s' needs %llu bytes",
                         t->name, (unsigned long long)room);
    const size_t size = left < STORE_WINDOW_BYTES ? (size_t)left : STORE_WINDOW_BYTES;
    beryl_status status =
        file_read(s, t->file, t->file_offset + t->host_done / each * t->file_step + at,
                  (char *)t->host + t->host_done, size, error);
    if (status != BERYL_OK) return status;
    t->host_done += size;
    s->upload_done += size;
    return BERYL_EVENT;
}

static beryl_status host_step(graph_store *s, beryl_error *error) {
    beryl_status status = BERYL_OK;
    for (; s->upload.tensor < s->tensors.count; s->upload.tensor++) {
        if (s->tensors.data[s->upload.tensor].is_state) continue;
        status = host_weight_step(s, s->upload.tensor, error);
        if (status != BERYL_OK) return status;
    }
    return status;
}

beryl_status store_upload_step(graph_store *s, beryl_error *error) {
    portions all;
    bool in_place;
    if (!s->device) return host_step(s, error);
    store_place end = s->upload;
    beryl_status status = collect(s, &end, &all, &in_place, error);
    if (status != BERYL_OK) return status;
    if (!all.n) {
        s->upload = end;
        base_heap_give(s->heap, s->window, s->window_size);
        s->window = NULL;
        s->window_size = 0;
        return BERYL_OK;
    }
    if (!s->window_full) expect(s, end);
    status = upload_portions(s, &all, in_place, error);
    if (status != BERYL_OK) return status;
    s->upload = end;
    s->window_full = false;
    for (uint32_t i = 0; i < all.n; i++)
        s->upload_done += all.items[i].n_row * file_row_of(all.items[i].t);
    return BERYL_EVENT;
}

bool store_is_uploading(const graph_store *s) {
    store_place at = s->upload;
    return next_place(s, &at);
}

bool store_is_ahead(const graph_store *s, uint32_t index) {
    return index > s->upload.tensor && !s->tensors.data[index].on_host;
}

/* Rows of a shard, packed plane by plane into `room` behind them. */
static beryl_status write_portion(graph_store *s, const portion *p, char *room,
                                  beryl_error *error) {
    const device_buffer buffer = s->buffers.data[p->shard->buffer].id;
    beryl_status status = BERYL_OK;
    for (uint32_t plane = 0; status == BERYL_OK && plane < p->shard->layout.n_plane; plane++) {
        const size_t used = (size_t)(p->n_row * p->shard->layout.row_bytes[plane]),
                     size = (used + 3) / 4 * 4;
        if (!used) continue;
        memset(room + used, 0, size - used);
        graph_pack_rows(p->t->type, row_size(p->t), p->n_row, p->rows, plane, room);
        status = device_write(s->device, buffer, plane_offset(p, plane), room, size, error);
    }
    return status;
}

beryl_status store_write_rows(graph_store *s, uint32_t index, const beryl_source *source,
                              uint64_t at, uint64_t n, beryl_error *error) {
    const store_tensor *t = &s->tensors.data[index];
    const uint64_t row = file_row_of(t);
    uint64_t widest = row;
    for (uint32_t i = 0; i < t->shard[0].layout.n_plane; i++)
        if (t->shard[0].layout.row_bytes[i] > widest) widest = t->shard[0].layout.row_bytes[i];
    /* a piece of a plane ends at a whole word */
    const uint64_t most = widest < PACK_PIECE_BYTES / 4 ? PACK_PIECE_BYTES / widest / 4 * 4 : 4;
    const size_t size = (size_t)(most * row), room = (size_t)(most * widest) + 4;
    char *rows = base_heap_take(s->heap, size + room);
    beryl_status status = rows ? BERYL_OK : base_no_memory(error);
    for (uint32_t i = 0; i < t->n_shard && t->shard[i].row < n; i++) {
        const store_shard *shard = &t->shard[i];
        const uint64_t left = n - shard->row, end = left < shard->n_row ? left : shard->n_row;
        portion p = {.t = t, .shard = shard, .rows = rows};
        for (; status == BERYL_OK && p.row < end; p.row += p.n_row) {
            p.n_row = end - p.row < most ? end - p.row : most;
            status = source->read(source->user, at + (shard->row + p.row) * row, rows,
                                  (size_t)(p.n_row * row));
            if (status == BERYL_OK) status = write_portion(s, &p, rows + size, error);
        }
    }
    base_heap_give(s->heap, rows, rows ? size + room : 0);
    return status;
}

beryl_status store_host_weight(graph_store *s, uint32_t index, const void **data,
                               beryl_error *error) {
    beryl_status status;
    while ((status = host_weight_step(s, index, error)) == BERYL_EVENT) {}
    *data = s->tensors.data[index].host;
    return status;
}

/* Bytes of a weight in the window. The reference functions ask for row after row: what follows is
 * read with the first. */
static beryl_status window_read(graph_store *s, uint32_t index, uint64_t at, size_t size,
                                const void **bytes, beryl_error *error) {
    const store_tensor *t = &s->tensors.data[index];
    const uint64_t left = t->file_bytes - at;
    uint64_t n = s->device || size > PACK_PIECE_BYTES ? size : PACK_PIECE_BYTES;
    if (n > left) n = left;
    beryl_status status = BERYL_OK;
    if (s->device || s->read.tensor != index || at < s->read.at || at + size > s->read.end) {
        s->window_full = false;
        s->read.end = 0;
        status = window_reserve(s, (size_t)n, error);
        if (status == BERYL_OK)
            status = file_read(s, t->file, t->file_offset + at, s->window, (size_t)n, error);
        if (status == BERYL_OK) s->read = (struct store_window){index, at, at + n};
    }
    *bytes = (const char *)s->window + (at - s->read.at);
    return status;
}

beryl_status store_read_elements(graph_store *s, uint32_t index, uint64_t from, uint32_t n,
                                 float *out, beryl_error *error) {
    const store_tensor *t = &s->tensors.data[index];
    const uint64_t block = base_type_block(t->type), block_bytes = base_type_block_bytes(t->type);
    if (from % block || n % block || !base_range_inside(from, n, row_count(t) * row_size(t)))
        return base_fail(error, BERYL_MISUSE, "%u elements from %llu of '%s'", n,
                         (unsigned long long)from, t->name);
    const uint64_t at = from / block * block_bytes;
    const void *bytes = (const char *)t->host + at;
    beryl_status status = BERYL_OK;
    if (s->device || t->host_done < t->file_bytes)
        status = window_read(s, index, at, (size_t)(n / block * block_bytes), &bytes, error);
    if (status == BERYL_OK) base_dequantise(t->type, bytes, out, n);
    return status;
}

/* ---- states for snapshots -------------------------------------------------------------------- */

static beryl_status check_state(const graph_store *s, uint32_t index, uint64_t offset, size_t size,
                                beryl_error *error) {
    if (index >= s->tensors.count || !s->tensors.data[index].is_state || size == 0 ||
        size > STORE_READ_MAX || (s->device && (size % 4 || offset % 4)) ||
        !base_range_inside(offset, size, store_state_bytes(s, index)))
        return base_fail(error, BERYL_MISUSE, "a range outside a state");
    return BERYL_OK;
}

beryl_status store_state_read(graph_store *s, uint32_t index, uint64_t offset, size_t size,
                              device_ticket *ticket, beryl_error *error) {
    *ticket = 0;
    beryl_status status = check_state(s, index, offset, size, error);
    if (status != BERYL_OK || !s->device) return status;
    const store_shard *shard = &s->tensors.data[index].shard[0];
    device_command command = {
        .kind = DEVICE_FETCH,
        .fetch = {s->buffers.data[shard->buffer].id, shard->offset + offset, size}};
    return device_submit(s->device, &(device_submit_desc){.commands = &command, .n_command = 1},
                         ticket, error);
}

beryl_status store_state_read_step(graph_store *s, uint32_t index, uint64_t offset,
                                   device_ticket ticket, const void **data, beryl_error *error) {
    *data = NULL;
    if (!s->device) {
        *data = (const char *)s->tensors.data[index].host + offset;
        return BERYL_OK;
    }
    device_ticket done;
    size_t size;
    beryl_status status = device_poll(s->device, &done, error);
    if (status != BERYL_OK) return status;
    if (done < ticket) return BERYL_PENDING;
    return device_fetched(s->device, ticket, 0, data, &size, error);
}

beryl_status store_state_write(graph_store *s, uint32_t index, uint64_t offset, const void *from,
                               size_t size, beryl_error *error) {
    beryl_status status = check_state(s, index, offset, size, error);
    if (status != BERYL_OK) return status;
    store_tensor *t = &s->tensors.data[index];
    if (!s->device) {
        memcpy((char *)t->host + offset, from, size);
        return BERYL_OK;
    }
    return device_write(s->device, s->buffers.data[t->shard[0].buffer].id,
                        t->shard[0].offset + offset, from, size, error);
}
