/* store.c - where weights and states lie, and how they get there. Everything that will not fit is refused in
 * store_layout, before a byte is allocated. */
#include "graph/store.h"
#include "base/error.h"
#include "base/file.h"
#include "base/thread.h"

#include <string.h>

enum {
    TENSOR_ALIGN = 256,
    IN_PLACE_BYTES = 64 << 20,    /* of the file, in one step, where no stage has to hold them */
    PACK_THREADS = 4,
    PACK_ALONE_BYTES = 1 << 20,   /* less is not worth a thread */
    PACK_PIECE_BYTES = 256 << 10, /* read, and packed while the processor's cache has them */
};

static const double CACHED_RATE = 1e9; /* bytes a second that a thread reads at least where the system has them in memory */

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

static store_kernels kernels_wanted(void) {
#ifndef __wasm__
    const char *choice = base_environment("BERYL_KERNELS");
    if (choice) return !strcmp(choice, "generated") ? STORE_KERNELS_GENERATED : !strcmp(choice, "written") ? STORE_KERNELS_WRITTEN : STORE_KERNELS_UNKNOWN;
#endif
    return STORE_KERNELS_BEST;
}

beryl_status store_init(graph_store *s, base_heap *heap, device *d, const beryl_source *sources, uint32_t n_source,
                        beryl_error *error) {
    (void)error;
    *s = (graph_store){.heap = heap, .device = d, .kernels = kernels_wanted(), .sources = sources, .n_source = n_source};
    base_arena_init(&s->arena, heap);
    return BERYL_OK;
}

void store_fini(graph_store *s) {
    if (!s->heap) return;
    for (size_t i = 0; i < s->programs.count; i++) device_program_drop(s->device, s->programs.data[i].id);
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

static uint32_t tensor_add(graph_store *s, const char *name, base_type type, uint32_t rank, const uint32_t *dim, uint32_t group) {
    char *copy = base_arena_text(&s->arena, name, strlen(name));
    store_tensor *t = copy && rank <= 4 ? base_vec_add(s->heap, &s->tensors) : NULL;
    if (!t) return UINT32_MAX;
    t->name = copy;
    t->type = type;
    t->rank = (uint8_t)rank;
    memcpy(t->dim, dim, rank * sizeof *dim);
    t->group = group;
    t->scale = UINT32_MAX;
    return (uint32_t)(s->tensors.count - 1);
}

uint32_t store_add_weight(graph_store *s, const char *name, base_type type, uint32_t rank, const uint32_t *dim, uint32_t group,
                          uint32_t file, uint64_t file_offset, bool on_host) {
    uint32_t index = tensor_add(s, name, type, rank, dim, group);
    if (index == UINT32_MAX) return index;
    store_tensor *t = &s->tensors.data[index];
    t->file = file;
    t->file_offset = file_offset;
    t->file_bytes = base_type_row_bytes(type, row_size(t)) * row_count(t);
    t->on_host = on_host;
    return index;
}

uint32_t store_add_state(graph_store *s, const char *name, base_type type, uint32_t rank, const uint32_t *dim, uint32_t group) {
    uint32_t index = tensor_add(s, name, type, rank, dim, group);
    if (index != UINT32_MAX) s->tensors.data[index].is_state = true;
    return index;
}

uint64_t store_state_bytes(const graph_store *s, uint32_t index) {
    const store_tensor *t = &s->tensors.data[index];
    return align_up(base_type_row_bytes(t->type, row_size(t)) * row_count(t), 4);
}

/* ---- layout ----------------------------------------------------------------------------------------- */

/* A place of `bytes` in the newest buffer of the group, or in a new one. */
static beryl_status place(graph_store *s, uint32_t group, uint64_t bytes, uint32_t *buffer, uint64_t *offset, beryl_error *error) {
    const device_caps *caps = device_caps_of(s->device);
    const uint64_t most = caps->buffer_max, align = caps->align_binding > TENSOR_ALIGN ? caps->align_binding : TENSOR_ALIGN;
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
    uint64_t rows = row_count(t), most = caps->binding_max < caps->buffer_max ? caps->binding_max : caps->buffer_max;
    graph_pack_layout whole;
    if (!graph_pack_layout_of(t->type, rows, row_size(t), &whole))
        return base_fail(error, BERYL_UNSUPPORTED, "tensor '%s': %s with rows of %u is not supported on a device", t->name,
                         base_type_name(t->type), row_size(t));
    uint64_t per_row = (whole.bytes + rows - 1) / rows + 1;
    uint64_t shards = whole.bytes <= most ? 1 : (whole.bytes + most - 1) / most;
    uint64_t rows_each = (rows + shards - 1) / shards;
    if (shards > 1) { /* padding of planes may push a shard over the limit: leave room for it */
        rows_each = (most - 16 * (uint64_t)PACK_PLANE_MAX) / per_row;
        rows_each -= rows_each % 64 < rows_each ? rows_each % 64 : 0;
        shards = rows_each ? (rows + rows_each - 1) / rows_each : STORE_SHARD_MAX + 1;
    }
    if (shards > STORE_SHARD_MAX)
        return base_fail(error, BERYL_NO_DEVICE_MEMORY, "tensor '%s' of %llu MB does not fit the device's bindings of %llu MB", t->name,
                         (unsigned long long)(whole.bytes >> 20), (unsigned long long)(most >> 20));
    t->n_shard = (uint32_t)shards;
    for (uint32_t i = 0; i < t->n_shard; i++) {
        store_shard *shard = &t->shard[i];
        shard->row = (uint32_t)(i * rows_each);
        shard->n_row = (uint32_t)(rows - shard->row < rows_each ? rows - shard->row : rows_each);
        if (!graph_pack_layout_of(t->type, shard->n_row, row_size(t), &shard->layout))
            return base_fail(error, BERYL_UNSUPPORTED, "tensor '%s': %s", t->name, base_type_name(t->type));
        beryl_status status = place(s, t->group, shard->layout.bytes, &shard->buffer, &shard->offset, error);
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
                         "'%s' needs %llu MB in one piece, the device binds %llu MB at most: use a smaller --context or --kv f16|q8",
                         t->name, (unsigned long long)(bytes >> 20), (unsigned long long)(most >> 20));
    t->n_shard = 1;
    t->shard[0].n_row = (uint32_t)row_count(t);
    s->state_bytes += bytes;
    return place(s, t->group, bytes, &t->shard[0].buffer, &t->shard[0].offset, error);
}

static beryl_status check_file(const graph_store *s, const store_tensor *t, beryl_error *error) {
    if (t->is_state) return BERYL_OK;
    if (t->file >= s->n_source || t->file_bytes == 0 || !base_range_inside(t->file_offset, t->file_bytes, s->sources[t->file].size))
        return base_fail_at(error, BERYL_BAD_FILE, t->file_offset, "tensor '%s' lies outside its file", t->name);
    return BERYL_OK;
}

beryl_status store_layout(graph_store *s, uint64_t memory, beryl_error *error) {
    beryl_status status = BERYL_OK;
    for (uint32_t i = 0; status == BERYL_OK && i < s->tensors.count; i++) {
        store_tensor *t = &s->tensors.data[i];
        status = check_file(s, t, error);
        if (status != BERYL_OK) break;
        if (!s->device && t->is_state) s->state_bytes += store_state_bytes(s, i);
        if (s->device && t->on_host) continue;
        if (s->device) status = t->is_state ? layout_state(s, i, error) : layout_weight(s, t, error);
        if (!t->is_state) s->upload_total += t->file_bytes;
    }
    if (status == BERYL_OK && s->device && memory == 0) memory = device_caps_of(s->device)->memory;
    if (status == BERYL_OK && s->device && memory && s->weight_bytes + s->state_bytes > memory)
        return base_fail(error, BERYL_NO_DEVICE_MEMORY,
                         "needs %llu MB of device memory (weights %llu, cache %llu) and %llu may be used: try a smaller --context, "
                         "--kv f16|q8 or a smaller file",
                         (unsigned long long)((s->weight_bytes + s->state_bytes) >> 20), (unsigned long long)(s->weight_bytes >> 20),
                         (unsigned long long)(s->state_bytes >> 20), (unsigned long long)(memory >> 20));
    return status;
}

beryl_status store_make(graph_store *s, beryl_error *error) {
    if (!s->device) {
        for (uint32_t i = 0; i < s->tensors.count; i++) {
            store_tensor *t = &s->tensors.data[i];
            if (!t->is_state) continue;
            uint64_t bytes = store_state_bytes(s, i);
            t->host = bytes <= SIZE_MAX ? base_heap_take(s->heap, (size_t)bytes) : NULL;
            if (!t->host) return base_fail(error, BERYL_NO_MEMORY, "out of host memory: '%s' needs %llu bytes", t->name, (unsigned long long)bytes);
        }
        return BERYL_OK;
    }
    for (size_t i = 0; i < s->buffers.count; i++) {
        struct store_buffer *b = &s->buffers.data[i];
        b->size = align_up(b->size, 16);
        beryl_status status = device_buffer_make(s->device, b->size, "store", &b->id, error);
        if (status != BERYL_OK) return status;
    }
    return BERYL_OK;
}

/* ---- upload ------------------------------------------------------------------------------------------ */

static beryl_status read_failed(const graph_store *s, uint32_t file, uint64_t offset, beryl_status status, beryl_error *error) {
    return base_source_fail(&s->sources[file], "the model file", status, offset, error);
}

static beryl_status file_read(const graph_store *s, uint32_t file, uint64_t offset, void *to, size_t size, beryl_error *error) {
    const beryl_source *source = &s->sources[file];
    beryl_status status = source->read(source->user, offset, to, size);
    return status == BERYL_OK || status == BERYL_PENDING ? status : read_failed(s, file, offset, status, error);
}

static beryl_status window_reserve(graph_store *s, size_t size, beryl_error *error) {
    if (size <= s->window_size) return BERYL_OK;
    void *window = base_heap_resize(s->heap, s->window, s->window_size, size);
    if (!window) return base_fail(error, BERYL_NO_MEMORY, "out of host memory: a window of %zu bytes", size);
    s->window = window;
    s->window_size = size;
    return BERYL_OK;
}

/* Rows of one tensor for one thread: read, where there is a source, and packed into the planes that have a place. */
typedef struct portion {
    const beryl_source *source;
    uint64_t at;                     /* of the first row in the source */
    base_type type;
    uint64_t k, n_row;
    const graph_pack_layout *layout;
    char *rows;                      /* as the file has them: all, or where `piecewise` room for a piece */
    bool piecewise;
    char *to[PACK_PLANE_MAX];        /* of the first row in each plane; NULL: not packed now */
    double waited;                   /* seconds for reads */
    beryl_status status;
} portion;

static uint64_t piece_rows(uint64_t file_row) {
    return file_row < PACK_PIECE_BYTES ? PACK_PIECE_BYTES / file_row : 1;
}

static void do_portion(void *user) {
    portion *p = user;
    const uint64_t row = base_type_row_bytes(p->type, p->k), most = piece_rows(row);
    for (uint64_t done = 0, n; done < p->n_row; done += n) {
        n = p->n_row - done < most ? p->n_row - done : most;
        char *rows = p->rows + (p->piecewise ? 0 : done * row);
        if (p->source) {
            const double begun = base_time();
            p->status = p->source->read(p->source->user, p->at + done * row, rows, (size_t)(n * row));
            p->waited += base_time() - begun;
        }
        if (p->status != BERYL_OK) return;
        for (uint32_t i = 0; i < p->layout->n_plane; i++)
            if (p->to[i]) graph_pack_rows(p->type, p->k, n, rows, i, p->to[i] + done * p->layout->row_bytes[i]);
    }
}

/* Reading and splitting into planes are slower than the bus to a large GPU: several threads share the rows. Without a
 * thread the caller does its rows itself. */
static beryl_status on_threads(graph_store *s, const portion *all) {
    portion parts[PACK_THREADS];
    base_thread *threads[PACK_THREADS] = {NULL};
    const uint64_t file_row = base_type_row_bytes(all->type, all->k), piece = piece_rows(file_row) * file_row;
    const bool alone = all->n_row * file_row < PACK_ALONE_BYTES || piece > STORE_WINDOW_BYTES / PACK_THREADS;
    const uint64_t each = alone ? all->n_row : (all->n_row + PACK_THREADS - 1) / PACK_THREADS;
    beryl_status status = BERYL_OK;
    double waited = 0;
    uint32_t n = 0;
    for (uint64_t row = 0; row < all->n_row; row += each, n++) {
        portion *p = &parts[n];
        *p = *all;
        p->n_row = all->n_row - row < each ? all->n_row - row : each;
        p->at += row * file_row;
        p->rows += all->piecewise ? n * piece : row * file_row;
        for (uint32_t i = 0; i < all->layout->n_plane; i++)
            if (p->to[i]) p->to[i] += row * all->layout->row_bytes[i];
        threads[n] = row + each < all->n_row ? base_thread_open(s->heap, do_portion, p) : NULL;
        if (!threads[n]) do_portion(p);
    }
    for (uint32_t i = 0; i < n; i++) {
        base_thread_close(threads[i]);
        if (parts[i].status != BERYL_OK) status = parts[i].status;
        waited += parts[i].waited;
    }
    if (all->source) s->cached = waited * CACHED_RATE < (double)(all->n_row * file_row);
    return status;
}

/* Where the upload stands, moved on to the next rows that there are. false: there are none. */
static bool next_place(const graph_store *s, store_place *at) {
    for (; at->tensor < s->tensors.count; *at = (store_place){.tensor = at->tensor + 1}) {
        const store_tensor *t = &s->tensors.data[at->tensor];
        if (t->is_state || t->on_host) continue;
        if (at->shard < t->n_shard && at->row == t->shard[at->shard].n_row) at->shard++, at->row = 0;
        if (at->shard < t->n_shard) return true;
    }
    return false;
}

/* The rows of one step. */
typedef struct upload {
    const store_tensor *t;
    const store_shard *shard;
    const beryl_source *source;
    char *memory;         /* the buffer's own, to be filled in place; NULL: it is out of reach */
    uint64_t n, file_row; /* rows, and bytes of one in the file */
    uint64_t at;          /* of the first in the file */
} upload;

static beryl_status plan_step(const graph_store *s, upload *u, beryl_error *error) {
    const store_tensor *t = &s->tensors.data[s->upload.tensor];
    const store_shard *shard = &t->shard[s->upload.shard];
    const uint64_t file_row = base_type_row_bytes(t->type, row_size(t)), stage = device_stage_max(s->device);
    *u = (upload){.t = t, .shard = shard, .source = &s->sources[t->file], .file_row = file_row,
                  .memory = device_buffer_memory(s->device, s->buffers.data[shard->buffer].id)};
    uint64_t widest = file_row, most = stage < STORE_WINDOW_BYTES ? stage : STORE_WINDOW_BYTES;
    for (uint32_t p = 0; p < shard->layout.n_plane; p++)
        if (shard->layout.row_bytes[p] > widest) widest = shard->layout.row_bytes[p];
    if (widest > most) return base_fail(error, BERYL_UNSUPPORTED, "tensor '%s' has rows of %llu bytes", t->name, (unsigned long long)file_row);
    if (u->memory && base_source_is_file(u->source)) most = IN_PLACE_BYTES;
    u->n = most / widest;
    if (u->n > 4) u->n -= u->n % 4; /* so that every plane is cut at a multiple of 4 bytes */
    if (u->n > shard->n_row - s->upload.row) u->n = shard->n_row - s->upload.row;
    u->at = t->file_offset + ((uint64_t)shard->row + s->upload.row) * file_row;
    return BERYL_OK;
}

static portion portion_of(const upload *u) {
    return (portion){.at = u->at, .type = u->t->type, .k = row_size(u->t), .n_row = u->n, .layout = &u->shard->layout};
}

/* Of a plane's rows, from the beginning of the buffer. */
static uint64_t plane_offset(const graph_store *s, const upload *u, uint32_t plane) {
    return u->shard->offset + u->shard->layout.offset[plane] + s->upload.row * u->shard->layout.row_bytes[plane];
}

/* The rows of a source that is no file, in one read, once, however often the device makes them wait. */
static beryl_status fill_window(graph_store *s, const upload *u, beryl_error *error) {
    const size_t size = (size_t)(u->n * u->file_row);
    beryl_status status = window_reserve(s, size, error);
    if (status != BERYL_OK || s->window_full || base_source_is_file(u->source)) return status;
    status = file_read(s, u->t->file, u->at, s->window, size, error);
    s->window_full = status == BERYL_OK;
    return status;
}

/* Rows into the device's stages, plane by plane; the first plane's threads also read them, where nobody has. PENDING: the
 * stages are full. */
static beryl_status stage_planes(graph_store *s, const upload *u, beryl_error *error) {
    const device_buffer buffer = s->buffers.data[u->shard->buffer].id;
    for (; s->upload_plane < u->shard->layout.n_plane; s->upload_plane++) {
        const uint32_t p = s->upload_plane;
        const size_t used = (size_t)(u->n * u->shard->layout.row_bytes[p]), size = (used + 3) / 4 * 4; /* planes are padded */
        void *to;
        beryl_status status = device_stage(s->device, size, &to, error);
        if (status != BERYL_OK) return status;
        memset((char *)to + used, 0, size - used);
        portion all = portion_of(u);
        all.source = s->window_full ? NULL : u->source;
        all.rows = s->window;
        all.to[p] = to;
        status = on_threads(s, &all);
        if (status != BERYL_OK) {
            device_stage_commit(s->device, buffer, 0, 0, NULL);
            return read_failed(s, u->t->file, u->at, status, error);
        }
        s->window_full = true;
        status = device_stage_commit(s->device, buffer, plane_offset(s, u, p), size, error);
        if (status != BERYL_OK) return status;
    }
    s->upload_plane = 0;
    return BERYL_OK;
}

/* Rows into memory that can be filled in place. Those of a file go through a piece of memory that stays in the cache. */
static beryl_status place_planes(graph_store *s, const upload *u, beryl_error *error) {
    portion all = portion_of(u);
    all.source = s->window_full ? NULL : u->source;
    all.piecewise = !s->window_full;
    all.rows = s->window;
    for (uint32_t p = 0; p < u->shard->layout.n_plane; p++) all.to[p] = u->memory + plane_offset(s, u, p);
    beryl_status status = on_threads(s, &all);
    return status == BERYL_OK ? status : read_failed(s, u->t->file, u->at, status, error);
}

static beryl_status upload_rows(graph_store *s, const upload *u, beryl_error *error) {
    const bool pieces = u->memory && base_source_is_file(u->source);
    beryl_status status = pieces ? window_reserve(s, (size_t)(piece_rows(u->file_row) * u->file_row * PACK_THREADS), error) : fill_window(s, u, error);
    if (status != BERYL_OK) return status;
    return u->memory ? place_planes(s, u, error) : stage_planes(s, u, error);
}

/* ---- weights on the host ------------------------------------------------------------------------------- */

/* The next window of a weight. OK: it is all there; EVENT: progressed. */
static beryl_status host_weight_step(graph_store *s, uint32_t index, beryl_error *error) {
    store_tensor *t = &s->tensors.data[index];
    if (t->host_done == t->file_bytes) return BERYL_OK;
    const uint64_t room = store_state_bytes(s, index), left = t->file_bytes - t->host_done;
    if (!t->host) t->host = room <= SIZE_MAX ? base_heap_resize(s->heap, NULL, 0, (size_t)room) : NULL;
    if (!t->host) return base_fail(error, BERYL_NO_MEMORY, "out of host memory: '%s' needs %llu bytes", t->name, (unsigned long long)room);
    const size_t size = left < STORE_WINDOW_BYTES ? (size_t)left : STORE_WINDOW_BYTES;
    beryl_status status = file_read(s, t->file, t->file_offset + t->host_done, (char *)t->host + t->host_done, size, error);
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

/* What is read next, as much as a step of it: to ask for what the system has anyway takes longer than one thinks. */
static void expect(const graph_store *s, const store_place *next, uint64_t most) {
    const store_tensor *t = &s->tensors.data[next->tensor];
    const uint64_t row = base_type_row_bytes(t->type, row_size(t)), first = ((uint64_t)t->shard[next->shard].row + next->row) * row, left = t->file_bytes - first;
    base_source_expect(&s->sources[t->file], t->file_offset + first, left < most ? left : most);
}

beryl_status store_upload_step(graph_store *s, beryl_error *error) {
    upload u;
    if (!s->device) return host_step(s, error);
    if (!next_place(s, &s->upload)) {
        base_heap_give(s->heap, s->window, s->window_size);
        s->window = NULL;
        s->window_size = 0;
        return BERYL_OK;
    }
    beryl_status status = plan_step(s, &u, error);
    if (status != BERYL_OK) return status;
    store_place next = s->upload;
    next.row += (uint32_t)u.n;
    if (next_place(s, &next) && !s->window_full && !s->cached) expect(s, &next, u.memory ? IN_PLACE_BYTES : STORE_WINDOW_BYTES);
    status = upload_rows(s, &u, error);
    if (status != BERYL_OK) return status;
    s->upload = next;
    s->window_full = false;
    s->upload_done += u.n * u.file_row;
    return BERYL_EVENT;
}

beryl_status store_host_weight(graph_store *s, uint32_t index, const void **data, beryl_error *error) {
    beryl_status status;
    while ((status = host_weight_step(s, index, error)) == BERYL_EVENT) {}
    *data = s->tensors.data[index].host;
    return status;
}

beryl_status store_read_elements(graph_store *s, uint32_t index, uint64_t from, uint32_t n, float *out, beryl_error *error) {
    const store_tensor *t = &s->tensors.data[index];
    const uint64_t block = base_type_block(t->type), block_bytes = base_type_block_bytes(t->type);
    if (from % block || n % block || !base_range_inside(from, n, row_count(t) * row_size(t)))
        return base_fail(error, BERYL_MISUSE, "%u elements from %llu of '%s'", n, (unsigned long long)from, t->name);
    const uint64_t at = from / block * block_bytes;
    const size_t size = (size_t)(n / block * block_bytes);
    const void *bytes;
    beryl_status status;
    if (!s->device) {
        status = store_host_weight(s, index, &bytes, error);
        if (status == BERYL_OK) bytes = (const char *)bytes + at;
    } else {
        status = window_reserve(s, size, error);
        s->window_full = false;
        bytes = s->window;
        if (status == BERYL_OK) status = file_read(s, t->file, t->file_offset + at, s->window, size, error);
    }
    if (status == BERYL_OK) base_dequantise(t->type, bytes, out, n);
    return status;
}

/* ---- states for snapshots ------------------------------------------------------------------------------ */

static beryl_status check_state(const graph_store *s, uint32_t index, uint64_t offset, size_t size, beryl_error *error) {
    if (index >= s->tensors.count || !s->tensors.data[index].is_state || size == 0 || size > STORE_READ_MAX || (s->device && (size % 4 || offset % 4)) ||
        !base_range_inside(offset, size, store_state_bytes(s, index)))
        return base_fail(error, BERYL_MISUSE, "a range outside a state");
    return BERYL_OK;
}

beryl_status store_state_read(graph_store *s, uint32_t index, uint64_t offset, size_t size, device_ticket *ticket, beryl_error *error) {
    *ticket = 0;
    beryl_status status = check_state(s, index, offset, size, error);
    if (status != BERYL_OK || !s->device) return status;
    const store_shard *shard = &s->tensors.data[index].shard[0];
    device_command command = {.kind = DEVICE_FETCH, .fetch = {s->buffers.data[shard->buffer].id, shard->offset + offset, size}};
    return device_submit(s->device, &(device_submit_desc){.commands = &command, .n_command = 1}, ticket, error);
}

beryl_status store_state_read_step(graph_store *s, uint32_t index, uint64_t offset, device_ticket ticket, const void **data, beryl_error *error) {
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

beryl_status store_state_write(graph_store *s, uint32_t index, uint64_t offset, const void *from, size_t size, beryl_error *error) {
    beryl_status status = check_state(s, index, offset, size, error);
    if (status != BERYL_OK) return status;
    store_tensor *t = &s->tensors.data[index];
    if (!s->device) {
        memcpy((char *)t->host + offset, from, size);
        return BERYL_OK;
    }
    return device_write(s->device, s->buffers.data[t->shard[0].buffer].id, t->shard[0].offset + offset, from, size, error);
}
