/* snapshot.c - a session to a file and back, bit for bit.
 *
 * The file: header, tokens, then for each layer with caches of its own the keys' and the values' rows: all of them on global
 * layers, the last window's on sliding ones, in the order of positions, as the device has them (Q8_0: quants, then scales).
 * It is tied to the model by a hash of its header, size and a sample of every tensor, and to cache type, precision
 * and kind of layout. Every length in it follows from the header and is checked against the file's size before use. */
#include "base/error.h"
#include "base/file.h"
#include "engine/session.h"

#include <string.h>

static const char magic[8] = "BERYLSES";
enum { SNAPSHOT_VERSION = 1 };

typedef struct snapshot_header { /* 64 bytes, little-endian as all machines that we build for */
    char magic[8];
    uint32_t version, kv_type, precision, on_device;
    uint64_t model_hash;
    uint64_t n_token, n_fed;
    uint64_t hash; /* of the header with 0 here, then of everything behind it */
    uint64_t reserved;
} snapshot_header;

typedef struct part { /* one contiguous piece of a state */
    uint32_t state;
    uint64_t offset, size;
} part;

typedef struct snapshot {
    beryl_engine *engine;
    base_vec(part) parts;
    size_t next;           /* part being read or written */
    uint64_t done_of_part; /* bytes of it */
    device_ticket ticket;
    size_t ticket_size;
    char *data;            /* the file's bytes */
    size_t size, at;
    char path[1024];
} snapshot;

/* ---- which pieces ------------------------------------------------------------------------------------------ */

static bool add_rows(snapshot *n, uint32_t state, uint32_t slot, uint32_t row, uint32_t count) {
    cache_range ranges[2];
    uint32_t n_range = count ? engine_cache_ranges(n->engine, state, slot, row, count, ranges) : 0;
    for (uint32_t i = 0; i < n_range; i++) {
        part *p = base_vec_add(&n->engine->heap, &n->parts);
        if (!p) return false;
        *p = (part){state, ranges[i].offset, ranges[i].size};
    }
    return true;
}

/* Positions [first, first + count) of a cache of `rows` rows, as one or two runs of rows. */
static bool add_positions(snapshot *n, uint32_t state, uint32_t slot, uint32_t rows, uint64_t first, uint32_t count) {
    uint32_t row = (uint32_t)(first % rows), head = count < rows - row ? count : rows - row;
    return add_rows(n, state, slot, row, head) && add_rows(n, state, slot, 0, count - head);
}

static beryl_status list_parts(snapshot *n, uint32_t slot, uint64_t n_fed, uint64_t *bytes, beryl_error *error) {
    const gemma4_model *m = &n->engine->model;
    for (uint32_t l = 0; l < m->config.n_layer; l++) {
        const gemma4_layer *layer = &m->layers[l];
        if (!layer->owner) continue;
        uint64_t count = layer->sliding && n_fed > m->config.window ? m->config.window : n_fed;
        uint32_t rows = layer->sliding ? m->ring : m->context;
        if (!add_positions(n, layer->k_cache, slot, rows, n_fed - count, (uint32_t)count) ||
            !add_positions(n, layer->v_cache, slot, rows, n_fed - count, (uint32_t)count))
            return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    }
    *bytes = 0;
    for (size_t i = 0; i < n->parts.count; i++) *bytes += n->parts.data[i].size;
    return BERYL_OK;
}

static uint64_t hash_of(const char *data, size_t size) {
    snapshot_header h;
    memcpy(&h, data, sizeof h);
    h.hash = 0;
    return base_hash(data + sizeof h, size - sizeof h, base_hash(&h, sizeof h, 0));
}

static void snapshot_close(beryl_task *task) {
    snapshot *n = task->state;
    base_heap *heap = &task->engine->heap;
    base_vec_fini(heap, &n->parts);
    base_heap_give(heap, n->data, n->size);
    base_heap_give(heap, n, sizeof *n);
}

static beryl_status snapshot_open(beryl_session *s, const char *path, beryl_status (*step)(beryl_task *), beryl_task **out, beryl_error *error) {
    if (!s || !path || !out) return base_fail(error, BERYL_MISUSE, "a snapshot needs a session, a path and a place for the task");
    *out = NULL;
    if (s->task) return base_fail(error, BERYL_MISUSE, "another task is running on this session");
    if (strlen(path) >= sizeof ((snapshot *)0)->path) return base_fail(error, BERYL_BAD_INPUT, "the path is too long");
    snapshot *n = base_heap_take(&s->engine->heap, sizeof *n);
    if (!n) return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    n->engine = s->engine;
    memcpy(n->path, path, strlen(path) + 1);
    beryl_status status = task_open(s->engine, s, step, out, error);
    if (status != BERYL_OK) {
        base_heap_give(&s->engine->heap, n, sizeof *n);
        return status;
    }
    (*out)->state = n;
    (*out)->close = snapshot_close;
    return BERYL_OK;
}

static beryl_status progress(beryl_task *task, const char *what, uint64_t done, uint64_t total) {
    beryl_status status = task_put(task, (beryl_event){.kind = BERYL_EVENT_PROGRESS, .what = what, .done = done, .total = total, .token = -1}, NULL, 0);
    return status == BERYL_OK ? BERYL_EVENT : status;
}

/* ---- saving ---------------------------------------------------------------------------------------------------- */

static snapshot_header header_of(const beryl_session *s) {
    const beryl_engine *e = s->engine;
    snapshot_header h = {.version = SNAPSHOT_VERSION, .kv_type = e->kv_type, .precision = e->options.precision, .on_device = e->device != NULL,
                         .model_hash = e->model_hash, .n_token = s->tokens.count, .n_fed = s->n_fed};
    memcpy(h.magic, magic, sizeof h.magic);
    return h;
}

static beryl_status save_begin(snapshot *n, beryl_session *s, beryl_error *error) {
    uint64_t bytes;
    beryl_status status = list_parts(n, s->slot, s->n_fed, &bytes, error);
    if (status != BERYL_OK) return status;
    snapshot_header h = header_of(s);
    size_t tokens = s->tokens.count * sizeof(int32_t);
    n->size = (size_t)(sizeof h + tokens + bytes);
    n->data = base_heap_take(&n->engine->heap, n->size);
    if (!n->data) {
        n->size = 0;
        return base_fail(error, BERYL_NO_MEMORY, "out of host memory: a snapshot of %llu bytes", (unsigned long long)bytes);
    }
    memcpy(n->data, &h, sizeof h);
    if (tokens) memcpy(n->data + sizeof h, s->tokens.data, tokens);
    n->at = sizeof h + tokens;
    return BERYL_OK;
}

static beryl_status save_step(beryl_task *task) {
    snapshot *n = task->state;
    beryl_engine *e = task->engine;
    beryl_status status = BERYL_OK;
    if (task_is_cancelled(task)) return base_fail(&task->error, BERYL_CANCELLED, "cancelled");
    if (!n->data) status = save_begin(n, task->session, &task->error);
    if (status != BERYL_OK) return status;
    if (n->next == n->parts.count) {
        uint64_t hash = hash_of(n->data, n->size);
        memcpy(n->data + offsetof(snapshot_header, hash), &hash, sizeof hash);
        return base_file_write(n->path, n->data, n->size, &task->error);
    }
    const part *p = &n->parts.data[n->next];
    uint64_t offset = p->offset + n->done_of_part;
    if (!n->ticket_size) {
        uint64_t left = p->size - n->done_of_part;
        size_t size = (size_t)(left < STORE_READ_MAX ? left : STORE_READ_MAX);
        status = store_state_read(&e->store, p->state, offset, size, &n->ticket, &task->error);
        if (status != BERYL_OK) return status; /* PENDING: every readback is busy, nothing was begun */
        n->ticket_size = size;
    }
    const void *data;
    status = store_state_read_step(&e->store, p->state, offset, n->ticket, &data, &task->error);
    if (status != BERYL_OK) return status;
    memcpy(n->data + n->at, data, n->ticket_size);
    if (e->device) device_fetch_drop(e->device, n->ticket);
    n->at += n->ticket_size;
    n->done_of_part += n->ticket_size;
    n->ticket_size = 0;
    if (n->done_of_part == p->size) n->next++, n->done_of_part = 0;
    return progress(task, "saving the session", n->at, n->size);
}

beryl_status beryl_session_save(beryl_session *s, const char *path, beryl_task **task, beryl_error *error) {
    return snapshot_open(s, path, save_step, task, error);
}

/* ---- restoring -------------------------------------------------------------------------------------------------- */

static beryl_status refuse(snapshot *n, beryl_status code, const char *what, beryl_error *error) {
    return base_fail(error, code, "'%.300s': %s", n->path, what);
}

static beryl_status check_header(snapshot *n, const beryl_session *s, snapshot_header *h, beryl_error *error) {
    const beryl_engine *e = n->engine;
    if (n->size < sizeof *h) return refuse(n, BERYL_BAD_FILE, "too short for a saved session", error);
    memcpy(h, n->data, sizeof *h);
    snapshot_header mine = header_of(s);
    if (memcmp(h->magic, magic, sizeof magic)) return refuse(n, BERYL_BAD_FILE, "not a saved session", error);
    if (h->version != SNAPSHOT_VERSION) return refuse(n, BERYL_UNSUPPORTED, "saved by another version of Beryl", error);
    if (h->model_hash != mine.model_hash) return refuse(n, BERYL_BAD_INPUT, "saved with another model", error);
    if (h->kv_type != mine.kv_type) return refuse(n, BERYL_BAD_INPUT, "saved with another cache type: use the same --kv", error);
    if (h->precision != mine.precision) return refuse(n, BERYL_BAD_INPUT, "saved with another --precision", error);
    if (h->on_device != mine.on_device && h->kv_type == TYPE_Q8_0)
        return refuse(n, BERYL_BAD_INPUT, "a q8 cache does not go between the reference device and others", error);
    if (h->n_fed > h->n_token) return refuse(n, BERYL_BAD_FILE, "damaged", error);
    if (h->n_fed > e->model.context || h->n_token > (uint64_t)e->model.context + 1) /* the newest token need not be fed */
        return refuse(n, BERYL_CONTEXT_FULL, "more tokens than the context holds: use a larger --context", error);
    if (hash_of(n->data, n->size) != h->hash) return refuse(n, BERYL_BAD_FILE, "damaged", error);
    return BERYL_OK;
}

static beryl_status restore_begin(snapshot *n, beryl_session *s, snapshot_header *h, beryl_error *error) {
    beryl_engine *e = n->engine;
    beryl_status status = base_file_read(&e->heap, n->path, SIZE_MAX / 2, &n->data, &n->size, error);
    if (status != BERYL_OK) return status;
    n->size++; /* base_file_read's block has a NUL behind the bytes */
    size_t size = n->size - 1;
    n->size = size;
    status = check_header(n, s, h, error);
    n->size = size + 1;
    uint64_t bytes = 0;
    if (status == BERYL_OK) status = list_parts(n, s->slot, h->n_fed, &bytes, error);
    if (status != BERYL_OK) return status;
    if (size != sizeof *h + h->n_token * sizeof(int32_t) + bytes) return refuse(n, BERYL_BAD_FILE, "of another size than its header says", error);
    const char *tokens = n->data + sizeof *h;
    for (uint64_t i = 0; i < h->n_token; i++) {
        int32_t id;
        memcpy(&id, tokens + i * sizeof id, sizeof id);
        if (id < 0 || (uint32_t)id >= e->model.config.n_vocab) return refuse(n, BERYL_BAD_FILE, "holds a token outside the vocabulary", error);
    }
    if (!base_vec_reserve(&e->heap, &s->tokens, (size_t)h->n_token + 1)) return base_fail(error, BERYL_NO_MEMORY, "out of host memory");
    n->at = sizeof *h + (size_t)h->n_token * sizeof(int32_t);
    /* From here on the session's caches change: until the end it holds nothing. */
    s->tokens.count = s->n_fed = s->highest = s->saved_at = 0;
    return BERYL_OK;
}

static beryl_status restore_step(beryl_task *task) {
    snapshot *n = task->state;
    beryl_session *s = task->session;
    snapshot_header h;
    if (task_is_cancelled(task)) return base_fail(&task->error, BERYL_CANCELLED, "cancelled");
    if (!n->data) {
        beryl_status status = restore_begin(n, s, &h, &task->error);
        if (status != BERYL_OK) return status;
    }
    memcpy(&h, n->data, sizeof h);
    if (n->next == n->parts.count) {
        for (uint64_t i = 0; i < h.n_token; i++) memcpy(&s->tokens.data[i], n->data + sizeof h + i * sizeof(int32_t), sizeof(int32_t));
        s->tokens.count = (size_t)h.n_token;
        s->n_fed = s->highest = (size_t)h.n_fed;
        const gemma4_model *m = &task->engine->model; /* rings hold no more than the window: as if so much more had been written */
        if (s->n_fed > m->config.window) s->highest += m->ring - m->config.window;
        return BERYL_OK;
    }
    const part *p = &n->parts.data[n->next];
    uint64_t left = p->size - n->done_of_part;
    size_t size = (size_t)(left < STORE_READ_MAX ? left : STORE_READ_MAX);
    beryl_status status = store_state_write(&task->engine->store, p->state, p->offset + n->done_of_part, n->data + n->at, size, &task->error);
    if (status != BERYL_OK) return status;
    n->at += size;
    n->done_of_part += size;
    if (n->done_of_part == p->size) n->next++, n->done_of_part = 0;
    return progress(task, "restoring the session", n->at, n->size - 1);
}

beryl_status beryl_session_restore(beryl_session *s, const char *path, beryl_task **task, beryl_error *error) {
    return snapshot_open(s, path, restore_step, task, error);
}
