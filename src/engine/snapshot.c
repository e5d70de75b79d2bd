/* snapshot.c - a session to a sink and back from a source, bit for bit.
 *
 * The bytes: header, tokens, then for each layer with caches of its own the keys' and the
 * values' rows: all of them on global layers, the last window's on sliding ones, in the order of
 * positions, as the device has them (Q8_0: quants, then scales); last a hash. It is tied to the
 * model by a hash of its header, size and a sample of every tensor, and to cache type, precision,
 * adapters and kind of layout. Every length in it follows from the header and is checked against
 * the size of the whole before use. It goes through one piece of memory in both directions, however
 * long the session is; so damage in the rows is found only after they were restored, and the
 * session then holds nothing. */
#include "base/error.h"
#include "base/file.h"
#include "engine/session.h"

#include <string.h>

static const char magic[8] = "BERYLSES";
enum {
    SNAPSHOT_VERSION = 2,
    PIECE_BYTES = 4 << 20 /* rows are hashed in such pieces: part of the format */
};

typedef struct snapshot_header { /* 64 bytes, little-endian as all machines that we build for */
    char magic[8];
    uint32_t version, kv_type, precision, on_device;
    uint64_t model_hash;
    uint64_t n_token, n_fed;
    uint64_t hash;     /* of the header with 0 here, then of the tokens */
    uint64_t adapters; /* which were on; 0: none */
} snapshot_header;

typedef struct part { /* one contiguous piece of a state */
    uint32_t state;
    uint64_t offset, size;
} part;

typedef struct snapshot {
    beryl_engine *engine;
    beryl_sink sink;     /* saving; write NULL: closed */
    beryl_source source; /* restoring; read NULL: closed */
    char *name;          /* [name_size] as in messages, owned */
    size_t name_size;
    snapshot_header header;
    bool begun; /* header and tokens are done */
    base_vec(part) parts;
    size_t next;           /* part being read or written */
    uint64_t done_of_part; /* bytes of it */
    device_ticket ticket;
    size_t ticket_size;
    char *piece;             // [piece_size], owned
    size_t piece_size, held; /* held: bytes of it that the sink still has to take */
    uint64_t at, size;       /* bytes done, of all */
    uint64_t hash;           /* of everything so far */
} snapshot;

/* ---- which pieces ---------------------------------------------------------------------------- */

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
static bool add_positions(snapshot *n, uint32_t state, uint32_t slot, uint32_t rows, uint64_t first,
                          uint32_t count) {
    uint32_t row = (uint32_t)(first % rows), head = count < rows - row ? count : rows - row;
    return add_rows(n, state, slot, row, head) && add_rows(n, state, slot, 0, count - head);
}

static beryl_status list_parts(snapshot *n, uint32_t slot, uint64_t n_fed, uint64_t *bytes,
                               beryl_error *error) {
    const gemma4_model *m = &n->engine->model;
    for (uint32_t l = 0; l < m->config.n_layer; l++) {
        const gemma4_layer *layer = &m->layers[l];
        if (!layer->owner) continue;
        uint64_t count = layer->sliding && n_fed > m->config.window ? m->config.window : n_fed;
        uint32_t rows = layer->sliding ? m->ring : m->context;
        if (!add_positions(n, layer->k_cache, slot, rows, n_fed - count, (uint32_t)count) ||
            !add_positions(n, layer->v_cache, slot, rows, n_fed - count, (uint32_t)count))
            return base_no_memory(error);
    }
    *bytes = 0;
    for (size_t i = 0; i < n->parts.count; i++) *bytes += n->parts.data[i].size;
    return BERYL_OK;
}

/* Of the head: header and tokens. */
static uint64_t hash_of(const snapshot_header *header, const void *tokens) {
    snapshot_header h = *header;
    h.hash = 0;
    return base_hash(tokens, (size_t)h.n_token * sizeof(int32_t), base_hash(&h, sizeof h, 0));
}

static beryl_status piece_reserve(snapshot *n, size_t size, beryl_error *error) {
    if (size <= n->piece_size) return BERYL_OK;
    void *piece = base_heap_resize(&n->engine->heap, n->piece, n->piece_size, size);
    if (!piece)
        return base_fail(error, BERYL_NO_MEMORY, "out of host memory: %zu bytes of a snapshot",
                         size);
    n->piece = piece;
    n->piece_size = size;
    return BERYL_OK;
}

/* Bytes of the next piece of rows. */
static size_t next_size(const snapshot *n) {
    uint64_t left = n->parts.data[n->next].size - n->done_of_part;
    return (size_t)(left < PIECE_BYTES ? left : PIECE_BYTES);
}

static void move_on(snapshot *n, size_t size) {
    n->at += size;
    n->done_of_part += size;
    if (n->done_of_part == n->parts.data[n->next].size) n->next++, n->done_of_part = 0;
}

static void give_ends(const beryl_sink *sink, const beryl_source *source) {
    if (sink && sink->close) sink->close(sink->user, false);
    if (source && source->close) source->close(source->user);
}

static void snapshot_free(snapshot *n) {
    base_heap *heap = &n->engine->heap;
    base_vec_fini(heap, &n->parts);
    base_heap_give(heap, n->piece, n->piece_size);
    base_heap_give(heap, n->name, n->name_size);
    base_heap_give(heap, n, sizeof *n);
}

static void snapshot_close(beryl_task *task) {
    snapshot *n = task->state;
    give_ends(&n->sink, &n->source);
    snapshot_free(n);
}

/* ---- saving ---------------------------------------------------------------------------------- */

static snapshot_header header_of(const beryl_session *s) {
    const beryl_engine *e = s->engine;
    snapshot_header h = {.version = SNAPSHOT_VERSION,
                         .kv_type = e->kv_type,
                         .precision = e->options.precision,
                         .on_device = e->device != NULL,
                         .model_hash = e->model_hash,
                         .n_token = s->tokens.count,
                         .n_fed = s->n_fed,
                         .adapters = session_adapters_hash(s)};
    memcpy(h.magic, magic, sizeof h.magic);
    return h;
}

/* Header and tokens become the first piece. */
static beryl_status save_begin(snapshot *n, beryl_session *s, beryl_error *error) {
    uint64_t bytes;
    const size_t tokens = s->tokens.count * sizeof(int32_t), head = sizeof n->header + tokens;
    beryl_status status = list_parts(n, s->slot, s->n_fed, &bytes, error);
    if (status == BERYL_OK)
        status = piece_reserve(n, head > PIECE_BYTES ? head : PIECE_BYTES, error);
    if (status != BERYL_OK) return status;
    n->header = header_of(s);
    n->hash = n->header.hash = hash_of(&n->header, s->tokens.data);
    memcpy(n->piece, &n->header, sizeof n->header);
    if (tokens) memcpy(n->piece + sizeof n->header, s->tokens.data, tokens);
    n->size = head + bytes + sizeof n->hash;
    n->at = n->held = head;
    n->begun = true;
    return BERYL_OK;
}

static beryl_status save_end(beryl_task *task, snapshot *n) {
    if (task_settle(task) != BERYL_OK) return BERYL_CANCELLED;
    const beryl_sink sink = n->sink;
    n->sink = (beryl_sink){0};
    beryl_status status = sink.close ? sink.close(sink.user, true) : BERYL_OK;
    return status == BERYL_OK
               ? status
               : base_fail(&task->error, status,
                           "'%.300s': the session could not be written to its end", n->name);
}

/* The next rows from the device into the piece. */
static beryl_status save_fetch(snapshot *n, beryl_error *error) {
    beryl_engine *e = n->engine;
    const part *p = &n->parts.data[n->next];
    const uint64_t offset = p->offset + n->done_of_part;
    beryl_status status = BERYL_OK;
    if (!n->ticket_size) {
        const size_t size = next_size(n);
        status = store_state_read(&e->store, p->state, offset, size, &n->ticket, error);
        /* PENDING: every readback is busy, nothing was begun */
        if (status != BERYL_OK) return status;
        n->ticket_size = size;
    }
    const void *data;
    status = store_state_read_step(&e->store, p->state, offset, n->ticket, &data, error);
    if (status != BERYL_OK) return status;
    memcpy(n->piece, data, n->ticket_size);
    if (e->device) device_fetch_drop(e->device, n->ticket);
    n->hash = base_hash(n->piece, n->ticket_size, n->hash);
    n->held = n->ticket_size;
    move_on(n, n->ticket_size);
    n->ticket_size = 0;
    return BERYL_OK;
}

static beryl_status save_step(beryl_task *task) {
    snapshot *n = task->state;
    beryl_status status = BERYL_OK;
    if (task_is_cancelled(task)) return base_fail(&task->error, BERYL_CANCELLED, "cancelled");
    if (!n->begun) {
        status = save_begin(n, task->session, &task->error);
    } else if (!n->held && n->next < n->parts.count) {
        status = save_fetch(n, &task->error);
    } else if (!n->held && n->at < n->size) {
        memcpy(n->piece, &n->hash, sizeof n->hash);
        n->held = sizeof n->hash;
        n->at += sizeof n->hash;
    } else if (!n->held) {
        return save_end(task, n);
    }
    if (status != BERYL_OK) return status;
    status = n->sink.write(n->sink.user, n->piece, n->held);
    if (status == BERYL_PENDING) return status;
    if (status != BERYL_OK)
        return base_fail(&task->error, status, "'%.300s': the session could not be written",
                         n->name);
    n->held = 0;
    return task_progress(task, "saving the session", n->at, n->size);
}

/* ---- restoring ------------------------------------------------------------------------------- */

static beryl_status refuse(const snapshot *n, beryl_status code, const char *what,
                           beryl_error *error) {
    return base_fail(error, code, "'%.300s': %s", n->name, what);
}

static beryl_status check_header(const snapshot *n, const beryl_session *s, beryl_error *error) {
    const beryl_engine *e = n->engine;
    const snapshot_header *h = &n->header, mine = header_of(s);
    if (memcmp(h->magic, magic, sizeof magic))
        return refuse(n, BERYL_BAD_FILE, "not a saved session", error);
    if (h->version != SNAPSHOT_VERSION)
        return refuse(n, BERYL_UNSUPPORTED, "saved by another version of Beryl", error);
    if (h->model_hash != mine.model_hash)
        return refuse(n, BERYL_BAD_INPUT, "saved with another model", error);
    if (h->kv_type != mine.kv_type)
        return refuse(n, BERYL_BAD_INPUT, "saved with another cache type: use the same --kv",
                      error);
    if (h->precision != mine.precision)
        return refuse(n, BERYL_BAD_INPUT, "saved with another --precision", error);
    if (h->adapters != mine.adapters)
        return refuse(n, BERYL_BAD_INPUT, "saved with other adapters than the session has", error);
    if (h->on_device != mine.on_device && h->kv_type == TYPE_Q8_0)
        return refuse(n, BERYL_BAD_INPUT,
                      "a q8 cache does not go between the reference device and others", error);
    if (h->n_fed > h->n_token) return refuse(n, BERYL_BAD_FILE, "damaged", error);
    /* the newest token need not be fed */
    if (h->n_fed > e->model.context || h->n_token > (uint64_t)e->model.context + 1)
        return refuse(n, BERYL_CONTEXT_FULL,
                      e->model.context < e->model.config.context_max
                          ? "more tokens than the context holds: use a larger --context"
                          : "more tokens than this model's context holds",
                      error);
    return BERYL_OK;
}

/* The next bytes of the source into the piece. */
static beryl_status take(snapshot *n, uint64_t at, size_t size, beryl_error *error) {
    if (!base_range_inside(at, size, n->size))
        return refuse(n, BERYL_BAD_FILE, "of another size than its header says", error);
    beryl_status status = piece_reserve(n, size, error);
    if (status != BERYL_OK || !size) return status;
    status = n->source.read(n->source.user, at, n->piece, size);
    if (status == BERYL_OK || status == BERYL_PENDING) return status;
    return base_source_fail(&n->source, n->name, status, at, error);
}

static beryl_status restore_begin(snapshot *n, beryl_session *s, beryl_error *error) {
    beryl_engine *e = n->engine;
    beryl_status status = BERYL_OK;
    if (!n->at) {
        n->size = n->source.size;
        if (n->size < sizeof n->header)
            return refuse(n, BERYL_BAD_FILE, "too short for a saved session", error);
        status = take(n, 0, sizeof n->header, error);
        if (status != BERYL_OK) return status;
        memcpy(&n->header, n->piece, sizeof n->header);
        n->at = sizeof n->header;
        status = check_header(n, s, error);
    }
    const size_t tokens = (size_t)n->header.n_token * sizeof(int32_t);
    if (status == BERYL_OK) status = take(n, n->at, tokens, error);
    if (status != BERYL_OK) return status;
    n->hash = hash_of(&n->header, n->piece);
    if (n->hash != n->header.hash) return refuse(n, BERYL_BAD_FILE, "damaged", error);
    uint64_t bytes = 0;
    status = list_parts(n, s->slot, n->header.n_fed, &bytes, error);
    if (status != BERYL_OK) return status;
    if (n->size != sizeof n->header + tokens + bytes + sizeof n->hash)
        return refuse(n, BERYL_BAD_FILE, "of another size than its header says", error);
    for (uint64_t i = 0; i < n->header.n_token; i++) {
        int32_t id;
        memcpy(&id, n->piece + i * sizeof id, sizeof id);
        if (id >= 0 && (uint32_t)id >= e->model.config.n_vocab) /* below 0: soft */
            return refuse(n, BERYL_BAD_FILE, "holds a token outside the vocabulary", error);
    }
    /* From here on the session's caches change: until the end it holds nothing. */
    s->tokens.count = s->n_fed = s->highest = s->saved_at = 0;
    if (!base_vec_reserve(&e->heap, &s->tokens, (size_t)n->header.n_token + 1))
        return base_no_memory(error);
    if (tokens) memcpy(s->tokens.data, n->piece, tokens); /* counted at the end */
    n->at += tokens;
    n->begun = true;
    return BERYL_OK;
}

static beryl_status restore_end(beryl_task *task, snapshot *n) {
    beryl_session *s = task->session;
    beryl_status status = take(n, n->at, sizeof n->hash, &task->error);
    if (status != BERYL_OK) return status;
    if (memcmp(&n->hash, n->piece, sizeof n->hash))
        return refuse(n, BERYL_BAD_FILE, "damaged", &task->error);
    if (task_settle(task) != BERYL_OK) return BERYL_CANCELLED;
    s->tokens.count = (size_t)n->header.n_token;
    s->n_fed = s->highest = (size_t)n->header.n_fed;
    /* rings hold no more than the window: as if so much more had been written */
    const gemma4_model *m = &n->engine->model;
    if (s->n_fed > m->config.window) s->highest += m->ring - m->config.window;
    return BERYL_OK;
}

static beryl_status restore_step(beryl_task *task) {
    snapshot *n = task->state;
    if (task_is_cancelled(task)) return base_fail(&task->error, BERYL_CANCELLED, "cancelled");
    beryl_status status = n->begun ? BERYL_OK : restore_begin(n, task->session, &task->error);
    if (status != BERYL_OK) return status;
    if (n->next == n->parts.count) return restore_end(task, n);
    const part *p = &n->parts.data[n->next];
    const size_t size = next_size(n);
    status = take(n, n->at, size, &task->error);
    if (status != BERYL_OK) return status;
    n->hash = base_hash(n->piece, size, n->hash);
    status = store_state_write(&n->engine->store, p->state, p->offset + n->done_of_part, n->piece,
                               size, &task->error);
    if (status != BERYL_OK) return status;
    move_on(n, size);
    return task_progress(task, "restoring the session", n->at, n->size);
}

/* ---- the calls ------------------------------------------------------------------------------- */

/* One of sink and source is given, and belongs to the task from here on. */
static beryl_status snapshot_open(beryl_session *s, const char *name, const beryl_sink *sink,
                                  const beryl_source *source, beryl_task **out,
                                  beryl_error *error) {
    base_heap *heap = &s->engine->heap;
    snapshot *n = NULL;
    beryl_status status = BERYL_OK;
    if (s->task) status = base_fail(error, BERYL_MISUSE, "another task is running on this session");
    if (status == BERYL_OK && !(n = base_heap_take(heap, sizeof *n)))
        status = base_no_memory(error);
    if (status == BERYL_OK) {
        n->engine = s->engine;
        n->name = base_heap_take(heap, strlen(name) + 1);
        if (n->name) memcpy(n->name, name, n->name_size = strlen(name) + 1);
        else status = base_no_memory(error);
    }
    if (status == BERYL_OK)
        status = task_open(s->engine, s, sink ? save_step : restore_step, out, error);
    if (status != BERYL_OK) {
        if (n) snapshot_free(n);
        give_ends(sink, source);
        return status;
    }
    if (sink) n->sink = *sink;
    if (source) n->source = *source;
    (*out)->state = n;
    (*out)->close = snapshot_close;
    return BERYL_OK;
}

static beryl_status check_call(const beryl_session *s, const void *end, beryl_task **task,
                               const char *call, beryl_error *error) {
    if (task) *task = NULL;
    if (s && end && task) return BERYL_OK;
    return base_fail(error, BERYL_MISUSE,
                     "%s needs a session, an end for the bytes and a place for the task", call);
}

beryl_status beryl_session_save_to(beryl_session *s, const beryl_sink *sink, beryl_task **task,
                                   beryl_error *error) {
    beryl_status status =
        check_call(s, sink && sink->write ? sink : NULL, task, "beryl_session_save_to", error);
    if (status == BERYL_OK) return snapshot_open(s, "the saved session", sink, NULL, task, error);
    give_ends(sink, NULL);
    return status;
}

beryl_status beryl_session_restore_from(beryl_session *s, const beryl_source *source,
                                        beryl_task **task, beryl_error *error) {
    beryl_status status = check_call(s, source && source->read ? source : NULL, task,
                                     "beryl_session_restore_from", error);
    if (status == BERYL_OK) return snapshot_open(s, "the saved session", NULL, source, task, error);
    give_ends(NULL, source);
    return status;
}

beryl_status beryl_session_save(beryl_session *s, const char *path, beryl_task **task,
                                beryl_error *error) {
    beryl_status status = check_call(s, path, task, "beryl_session_save", error);
    beryl_sink sink;
    if (status == BERYL_OK)
        status = base_sink_open_file(&s->engine->heap, &s->engine->log, path, &sink, error);
    return status == BERYL_OK ? snapshot_open(s, path, &sink, NULL, task, error) : status;
}

beryl_status beryl_session_restore(beryl_session *s, const char *path, beryl_task **task,
                                   beryl_error *error) {
    beryl_status status = check_call(s, path, task, "beryl_session_restore", error);
    beryl_source source;
    if (status == BERYL_OK) status = base_source_open_file(&s->engine->heap, path, &source, error);
    return status == BERYL_OK ? snapshot_open(s, path, NULL, &source, task, error) : status;
}
