/* files_test.c - model files that are cut, rewritten and replaced while they are read and after,
 * and what of them is held in memory. The times of files are set back before they are opened, so
 * that every change is a later one. */
#define _POSIX_C_SOURCE 200809L
#include "base/file.h"
#include "graph/store.h"
#include "gguf_make.h"
#include "model.h"
#include "rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MODEL "e2b-q4_0.gguf"

/* ---- files ----------------------------------------------------------------------------------- */

typedef struct bytes {
    unsigned char *data; // [size], of malloc
    size_t size;
} bytes;

static bytes bytes_of(test *t, const char *name) {
    bytes b = {0};
    FILE *f = fopen(test_data(t, name), "rb");
    if (f && !fseek(f, 0, SEEK_END)) b.size = (size_t)ftell(f), rewind(f);
    b.data = malloc(b.size + 1);
    if (!b.data || !b.size || fread(b.data, 1, b.size, f) != b.size)
        test_fail(t, __FILE__, __LINE__, "%s", name);
    if (f) fclose(f);
    return b;
}

/* Writes a file of a minute ago. */
static void put(test *t, const char *path, bytes b) {
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = time(NULL) - 60}};
    beryl_error error;
    unlink(path);
    if (base_file_write(path, b.data, b.size, &error) || utimensat(AT_FDCWD, path, times, 0))
        test_fail(t, __FILE__, __LINE__, "%s", path);
}

/* In place, as `cp` does over a file that is there. */
static void overwrite(const char *path, uint64_t at, const void *data, size_t size) {
    const int fd = open(path, O_WRONLY);
    if (fd < 0 || pwrite(fd, data, size, (off_t)at) != (ssize_t)size) abort();
    close(fd);
}

/* Is any part of the file mapped into this process? */
static bool is_mapped(const char *path) {
    char line[1000];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && !found && fgets(line, sizeof line, maps)) found = strstr(line, path) != NULL;
    if (maps) fclose(maps);
    return found;
}

/* An allocator that does something to a file at its n-th call. */
typedef struct meddler {
    uint64_t calls, at; /* 0: never */
    const char *path;
    bool cut;
    bytes garbage; /* written over the file's beginning, where it is not cut */
    uint64_t offset, size;
} meddler;

static void *meddle(void *user, void *memory, size_t old_size, size_t new_size) {
    meddler *m = user;
    (void)old_size;
    if (new_size && __atomic_add_fetch(&m->calls, 1, __ATOMIC_RELAXED) == m->at) {
        if (m->cut && truncate(m->path, (off_t)m->size)) abort();
        if (!m->cut) overwrite(m->path, m->offset, m->garbage.data, m->garbage.size);
    }
    if (new_size) return realloc(memory, new_size);
    free(memory);
    return NULL;
}

/* ---- sources --------------------------------------------------------------------------------- */

static void check_failed(test *t, const beryl_source *s, const char *part) {
    char to[16];
    for (int again = 0; again < 2; again++) {
        beryl_error error = {0};
        const beryl_status status = s->read(s->user, 0, to, 4);
        CHECK_INT(t, status, BERYL_IO);
        base_source_fail(s, "it", status, 0, &error);
        CHECK_INT(t, error.code, BERYL_IO);
        if (!strstr(error.message, part) || !strstr(error.message, "changing"))
            test_fail(t, __FILE__, __LINE__, "%s", error.message);
    }
}

static void test_sources(test *t) {
    const bytes digits = {(unsigned char *)(uintptr_t) "0123456789", 10};
    base_heap heap;
    beryl_error error;
    beryl_source s;
    char path[600], other[600], to[16];
    base_heap_init(&heap, NULL);
    snprintf(path, sizeof path, "%s/changing", test_scratch(t));
    snprintf(other, sizeof other, "%s/other", test_scratch(t));
    if (test_case(t, "files/source-of-a-file-that-is-cut-or-grows")) {
        for (int grows = 0; grows < 2; grows++) {
            put(t, path, digits);
            CHECK_INT(t, base_source_open_file(&heap, path, &s, &error), BERYL_OK);
            CHECK_INT(t, s.read(s.user, 0, to, 10), BERYL_OK);
            CHECK(t, !truncate(path, grows ? 11 : 5));
            check_failed(t, &s,
                         grows ? "was written to while in use: it had 10 bytes and has 11"
                               : "was cut short while in use: it had 10 bytes and has 5");
            s.close(s.user);
        }
    }
    if (test_case(t, "files/source-of-a-file-that-is-rewritten")) {
        put(t, path, digits);
        CHECK_INT(t, base_source_open_file(&heap, path, &s, &error), BERYL_OK);
        overwrite(path, 9, "x", 1);
        check_failed(t, &s, "was written to while in use");
        s.close(s.user);
    }
    if (test_case(t, "files/source-of-a-file-that-is-replaced-or-removed-stays")) {
        put(t, path, digits);
        put(t, other, (bytes){(unsigned char *)(uintptr_t) "abcdef", 6});
        CHECK_INT(t, base_source_open_file(&heap, path, &s, &error), BERYL_OK);
        CHECK(t, !rename(other, path));
        CHECK(t, s.read(s.user, 0, to, 10) == BERYL_OK && !memcmp(to, "0123456789", 10));
        CHECK(t, !unlink(path));
        CHECK(t, s.read(s.user, 5, to, 5) == BERYL_OK && !memcmp(to, "56789", 5));
        s.close(s.user);
    }
    CHECK_INT(t, heap.bytes, 0);
}

/* ---- heads ----------------------------------------------------------------------------------- */

static beryl_status open_head(base_heap *heap, const char *path, size_t *n_pair,
                              beryl_error *error) {
    format_gguf *g = NULL;
    beryl_status status = format_gguf_open_path(heap, path, &g, error);
    while (status == BERYL_OK && (status = format_gguf_step(g, error)) == BERYL_PENDING) {}
    *n_pair = status == BERYL_OK ? format_gguf_n_pair(g) : 0;
    format_gguf_close(g);
    return status;
}

/* 300 keys, of which the file counts two. */
static bytes many_keys(void) {
    gguf_make m = {0};
    bytes b;
    for (int i = 0; i < 300; i++) {
        char key[16];
        snprintf(key, sizeof key, "key.%d", i);
        gguf_make_u32(&m, key, 1);
    }
    b.data = gguf_make_take(&m, &b.size);
    memset(b.data + 16, 0, 8); /* the number of keys */
    b.data[16] = 2;
    return b;
}

/* Answers any range of a file of 1 TiB, whose first key is longer than any head may be. */
static beryl_status endless_read(void *user, uint64_t offset, void *to, size_t size) {
    static const unsigned char head[32] = {'G', 'G', 'U', 'F', 3, [16] = 1, [24] = 5};
    unsigned char start[64] = {0};
    *(uint64_t *)user += size;
    memset(to, 0, size);
    memcpy(start, head, sizeof head);
    memcpy(start + 32, "a.key\10\0\0\0\0\0\0\40", 13); /* a string of 512 MiB */
    if (offset < sizeof start)
        memcpy(to, start + offset,
               size < sizeof start - offset ? size : sizeof start - (size_t)offset);
    return BERYL_OK;
}

static void test_heads(test *t) {
    char path[600];
    snprintf(path, sizeof path, "%s/head.gguf", test_scratch(t));
    if (test_case(t, "files/keys-counted-anew-while-a-head-is-read")) {
        const uint64_t count = 300;
        bytes file = many_keys();
        uint64_t n = 0, n_read = 0, n_refused = 0;
        meddler m = {.path = path,
                     .garbage = {(unsigned char *)(uintptr_t)&count, sizeof count},
                     .offset = 16};
        do {
            base_heap heap;
            beryl_error error = {0};
            size_t n_pair;
            put(t, path, file);
            m.calls = 0;
            m.at = ++n;
            base_heap_init(&heap, &(beryl_allocator){meddle, &m});
            const beryl_status status = open_head(&heap, path, &n_pair, &error);
            if (status == BERYL_OK) CHECK_INT(t, n_pair, 2);
            else if (status != BERYL_IO || !strstr(error.message, "head.gguf was written to"))
                test_fail(t, __FILE__, __LINE__, "%s", error.message);
            n_read += status == BERYL_OK;
            n_refused += status != BERYL_OK;
            CHECK_INT(t, heap.bytes, 0);
        } while (m.calls >= n && n < 100);
        CHECK(t, n_read > 1 && n_refused > 1 && n < 100);
        free(file.data);
    }
    if (test_case(t, "files/head-that-claims-too-much-is-refused-before-it-is-read")) {
        base_heap heap;
        uint64_t n_read = 0;
        const beryl_source source = {
            .size = UINT64_C(1) << 40, .user = &n_read, .read = endless_read};
        format_gguf *g = NULL;
        beryl_error error = {0};
        base_heap_init(&heap, NULL);
        CHECK_INT(t, format_gguf_open(&heap, &source, 1, &g, &error), BERYL_OK);
        CHECK_INT(t, format_gguf_step(g, &error), BERYL_UNSUPPORTED);
        CHECK(t, strstr(error.message, "head of more than 256 MiB") != NULL);
        CHECK(t, n_read < 1 << 20 && heap.bytes_peak < 1 << 20);
        format_gguf_close(g);
    }
}

/* ---- models ---------------------------------------------------------------------------------- */

typedef struct loading {
    beryl_engine *engine;
    beryl_error error;
    bool mapped; /* the file was, at some step */
} loading;

static beryl_status load(loading *l, const char *path, const char *where, uint64_t memory,
                         meddler *m) {
    *l = (loading){0};
    beryl_engine_options options = {.size = sizeof options,
                                    .model = path,
                                    .device = where,
                                    .memory = memory,
                                    .no_cache = true,
                                    .context = 64};
    beryl_task *task = NULL;
    if (m) options.allocator = (beryl_allocator){meddle, m};
    beryl_status status = beryl_engine_open(&options, &l->engine, &l->error);
    if (status == BERYL_OK) status = beryl_engine_load(l->engine, &task, &l->error);
    if (status != BERYL_OK) return status;
    while ((status = beryl_task_step(task, NULL)) == BERYL_EVENT || status == BERYL_PENDING)
        l->mapped |= is_mapped(path);
    l->mapped |= is_mapped(path);
    if (status != BERYL_OK) l->error = *beryl_task_error(task);
    beryl_task_close(task);
    return status;
}

/* Loads anew for each call of the allocator at which the file changes: the first ones, then
 * fewer and fewer. */
static void check_changes(test *t, const char *path, bytes file, meddler *m, const char *part) {
    uint64_t n_failed = 0, n_good = 0;
    for (uint64_t n = 1; !test_failed(t); n += 1 + n / 2) {
        loading l;
        put(t, path, file);
        m->calls = 0;
        m->at = n;
        const beryl_status status = load(&l, path, "dummy", 0, m);
        beryl_engine_close(l.engine);
        if (status != BERYL_OK && (status != BERYL_IO || !strstr(l.error.message, part)) &&
            !(!n_failed && status == BERYL_BAD_FILE)) /* it was not open yet */
            test_fail(t, __FILE__, __LINE__, "at call %llu: %s: %s", (unsigned long long)n,
                      beryl_status_name(status), l.error.message);
        n_failed += status == BERYL_IO;
        n_good += status == BERYL_OK;
        if (m->calls < n) break;
    }
    CHECK(t, n_failed > 3 && n_good > 0);
}

static void test_loading(test *t, const char *path, bytes file) {
    if (test_case(t, "files/model-cut-while-it-loads")) {
        for (int i = 0; i < 2; i++) {
            meddler m = {.path = path, .cut = true, .size = i ? file.size / 2 : 100};
            check_changes(t, path, file, &m, "model.gguf was cut short while in use");
        }
    }
    if (test_case(t, "files/model-rewritten-while-it-loads")) {
        meddler m = {.path = path, .garbage = {malloc(file.size), file.size}};
        for (size_t i = 0; i < file.size; i++)
            m.garbage.data[i] = (unsigned char)(i * 37 + i / 251);
        check_changes(t, path, file, &m, "model.gguf was written to while in use");
        free(m.garbage.data);
    }
    if (test_case(t, "files/no-mapping-of-a-model")) {
        static const char *const devices[] = {"dummy", "reference"};
        CHECK(t, !is_mapped(path));
        for (int i = 0; i < 2; i++) {
            loading l;
            put(t, path, file);
            CHECK_INT(t, load(&l, path, devices[i], 0, NULL), BERYL_OK);
            CHECK(t, !l.mapped);
            beryl_engine_close(l.engine);
        }
    }
}

/* ---- after loading --------------------------------------------------------------------------- */

/* Greedy tokens of a new session, or why there are none. */
static beryl_status ask(beryl_engine *engine, model_answer *a, beryl_error *error) {
    static const int32_t prompt[] = {2, 10, 11, 12};
    const beryl_generate_options how = {
        .size = sizeof how, .greedy = true, .max_tokens = 6, .ignore_eos = true};
    beryl_session *s = NULL;
    beryl_task *task = NULL;
    beryl_event event;
    *a = (model_answer){0};
    beryl_status status = beryl_session_open(engine, NULL, &s, error);
    if (status == BERYL_OK)
        status =
            beryl_session_generate(s, prompt, sizeof prompt / sizeof *prompt, &how, &task, error);
    if (task) {
        while ((status = beryl_wait(task, &event)) == BERYL_EVENT) model_answer_add(a, &event);
        if (status != BERYL_OK) *error = *beryl_task_error(task);
        beryl_task_close(task);
    }
    beryl_session_close(s);
    return status;
}

/* So much memory that the per-layer-embedding table stays in the file. 0: the load failed. */
static uint64_t too_little(test *t, const char *path) {
    loading l;
    beryl_stats stats = {0};
    CHECK_INT(t, load(&l, path, "dummy", 0, NULL), BERYL_OK);
    beryl_engine_stats(l.engine, &stats);
    beryl_engine_close(l.engine);
    return stats.weight_bytes + stats.kv_bytes - 1;
}

enum { CUT, REWRITTEN, REPLACED, CHANGES };

static void change(test *t, const char *path, bytes file, int how) {
    if (how == CUT) CHECK(t, !truncate(path, (off_t)file.size / 3));
    if (how == REWRITTEN) overwrite(path, file.size - 4, "\1\2\3\4", 4);
    if (how == REPLACED) put(t, path, (bytes){file.data, 1000});
}

static void test_after(test *t, const char *path, bytes file) {
    loading l;
    model_answer before, after;
    beryl_error error = {0};
    if (test_case(t, "files/rows-that-stay-in-a-file-that-changes")) {
        static const char *const parts[CHANGES] = {"model.gguf was cut short while in use",
                                                   "model.gguf was written to while in use", NULL};
        put(t, path, file);
        const uint64_t memory = too_little(t, path);
        for (int how = 0; how < CHANGES; how++) {
            put(t, path, file);
            CHECK_INT(t, load(&l, path, "dummy", memory, NULL), BERYL_OK);
            CHECK_INT(t, ask(l.engine, &before, &error), BERYL_OK);
            change(t, path, file, how);
            for (int again = 0; again < 2; again++) {
                const beryl_status status = ask(l.engine, &after, &error);
                CHECK_INT(t, status, parts[how] ? BERYL_IO : BERYL_OK);
                if (parts[how] && !strstr(error.message, parts[how]))
                    test_fail(t, __FILE__, __LINE__, "%s", error.message);
            }
            CHECK(t, !is_mapped(path));
            beryl_engine_close(l.engine);
        }
    }
    if (test_case(t, "files/loaded-model-needs-its-file-no-more")) {
        for (int how = 0; how < CHANGES; how++) {
            put(t, path, file);
            CHECK_INT(t, load(&l, path, "reference", 0, NULL), BERYL_OK);
            CHECK_INT(t, ask(l.engine, &before, &error), BERYL_OK);
            change(t, path, file, how);
            CHECK_INT(t, ask(l.engine, &after, &error), BERYL_OK);
            CHECK(t, before.n_token == 6 && after.n_token == 6 &&
                         !memcmp(before.tokens, after.tokens, sizeof before.tokens));
            beryl_engine_close(l.engine);
        }
    }
}

/* A session from `path`, which is cut after the first step. */
static beryl_status restore(beryl_engine *engine, const char *path, bool cut, beryl_error *error) {
    beryl_session *s = NULL;
    beryl_task *task = NULL;
    beryl_status status = beryl_session_open(engine, NULL, &s, error);
    if (status == BERYL_OK) status = beryl_session_restore(s, path, &task, error);
    if (task) {
        status = beryl_task_step(task, NULL);
        if (cut && truncate(path, 70)) abort();
        while (status == BERYL_EVENT || status == BERYL_PENDING)
            status = beryl_task_step(task, NULL);
        if (status != BERYL_OK) *error = *beryl_task_error(task);
        beryl_task_close(task);
    }
    beryl_session_close(s);
    return status;
}

/* A session of four tokens to `path`. */
static void save(test *t, beryl_engine *engine, const char *path) {
    beryl_session *s = model_session(t, engine);
    beryl_task *task = NULL;
    model_answer a;
    if (!s) return;
    model_generate(t, s, (const int32_t[]){2, 10, 11, 12}, 4, 2, NULL, &a);
    CHECK_INT(t, beryl_session_save(s, path, &task, NULL), BERYL_OK);
    if (task) CHECK_INT(t, model_finish(task, NULL, NULL), BERYL_OK);
    beryl_session_close(s);
}

static void test_saved(test *t, const char *path, bytes file) {
    if (test_case(t, "files/saved-session-cut-while-it-is-restored")) {
        char saved[620];
        loading l;
        beryl_error error = {0};
        snprintf(saved, sizeof saved, "%s.session", path);
        put(t, path, file);
        CHECK_INT(t, load(&l, path, "reference", 0, NULL), BERYL_OK);
        save(t, l.engine, saved);
        CHECK_INT(t, restore(l.engine, saved, false, &error), BERYL_OK);
        CHECK_INT(t, restore(l.engine, saved, true, &error), BERYL_IO);
        if (!strstr(error.message, "model.gguf.session was cut short while in use"))
            test_fail(t, __FILE__, __LINE__, "%s", error.message);
        beryl_engine_close(l.engine);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* All tensors' places to the first one's, and the file cut behind the largest. */
static void share_bytes(test *t, const char *path, bytes *file) {
    base_heap heap;
    format_gguf *g = NULL;
    beryl_error error;
    uint64_t first = UINT64_MAX, most = 0;
    base_heap_init(&heap, NULL);
    beryl_status status = format_gguf_open_path(&heap, path, &g, &error);
    while (status == BERYL_OK && (status = format_gguf_step(g, &error)) == BERYL_PENDING) {}
    CHECK_INT(t, status, BERYL_OK);
    for (size_t i = 0; status == BERYL_OK && i < format_gguf_n_tensor(g); i++) {
        const format_gguf_tensor *x = format_gguf_tensor_at(g, i);
        if (x->offset < first) first = x->offset;
        if (x->size > most) most = x->size;
        /* name, n_dim, ne, type, offset */
        for (size_t at = 0; at + x->name.size + 48 < file->size && at < first; at++) {
            if (memcmp(file->data + at, x->name.data, x->name.size) != 0 ||
                file->data[at - 8] != x->name.size)
                continue;
            memset(file->data + at + x->name.size + 4 + 8 * x->n_dim + 4, 0, 8);
            break;
        }
    }
    format_gguf_close(g);
    file->size = (size_t)(first + most);
    /* positive numbers, for the factors of the rotations */
    memset(file->data + first, 0x3f, (size_t)most);
}

/* A weight of a sparse file to the device: what the process grows by, at most, in bytes. */
static uint64_t upload_growth(test *t, rig *r, const char *path, uint32_t rows) {
    beryl_source source;
    graph_store store;
    uint64_t most = 0;
    CHECK_INT(t, base_source_open_file(&r->heap, path, &source, &r->error), BERYL_OK);
    if (test_failed(t)) return 0;
    const uint64_t before = rig_process_now().bytes;
    CHECK_INT(t, store_init(&store, &r->heap, r->d, &source, 1, &r->error), BERYL_OK);
    store_add_weight(&store, "w", TYPE_Q8_0, 2, (uint32_t[]){rows, 4096}, 0, 0, 64, false);
    beryl_status status = store_layout(&store, 0, &r->error);
    if (status == BERYL_OK) status = store_make(&store, &r->error);
    while (status == BERYL_OK && (status = store_upload_step(&store, &r->error)) == BERYL_EVENT) {
        const uint64_t now = rig_process_now().bytes;
        if (now > before && now - before > most) most = now - before;
        status = BERYL_OK;
        if (store.upload_done == store.upload_total) break;
    }
    CHECK_INT(t, status, BERYL_OK);
    store_fini(&store);
    source.close(source.user);
    return most;
}

/* ---- uploads --------------------------------------------------------------------------------- */

typedef struct slow {
    const unsigned char *data;
    bool asked;
} slow; /* answers every second call */

static beryl_status slow_read(void *user, uint64_t offset, void *to, size_t size) {
    slow *s = user;
    s->asked = !s->asked;
    if (s->asked) return BERYL_PENDING;
    memcpy(to, s->data + offset, size);
    return BERYL_OK;
}

/* Several steps of one tensor, several tensors in one step, rows that no thread shares, planes
 * that end within a word. */
static const struct {
    base_type type;
    uint32_t rows, k;
} uploads[] = {
    {TYPE_F32, 1, 1536},     {TYPE_Q8_0, 9001, 2048}, {TYPE_F16, 3, 33},
    {TYPE_Q4_K, 2049, 1536}, {TYPE_Q6_K, 513, 1024},  {TYPE_F32, 1, 7},
    {TYPE_F32, 5000, 1024},
};
enum { N_UPLOAD = sizeof uploads / sizeof *uploads };

static uint64_t upload_bytes(int i) {
    return base_type_row_bytes(uploads[i].type, uploads[i].k) * uploads[i].rows;
}

static void check_planes(test *t, rig *r, const store_tensor *w, const unsigned char *file,
                         const device_buffer *buffers) {
    enum { PIECE = 4 << 20 };
    const uint64_t row = base_type_row_bytes(w->type, w->dim[1]);
    unsigned char *got = malloc(PIECE);
    for (uint32_t i = 0; i < w->n_shard && !test_failed(t); i++) {
        const store_shard *shard = &w->shard[i];
        for (uint32_t p = 0; p < shard->layout.n_plane && !test_failed(t); p++) {
            const size_t size = (size_t)shard->layout.row_bytes[p] * shard->n_row;
            unsigned char *want = calloc(1, size + 4);
            if (!want || !got) abort();
            graph_pack_rows(w->type, w->dim[1], shard->n_row,
                            file + w->file_offset + shard->row * row, p, want);
            for (size_t at = 0; at < size && !test_failed(t); at += PIECE) {
                const size_t n = size - at < PIECE ? (size - at + 3) / 4 * 4 : PIECE;
                const device_command fetch =
                    rig_range(DEVICE_FETCH, buffers[shard->buffer],
                              shard->offset + shard->layout.offset[p] + at, n);
                device_ticket ticket;
                CHECK_INT(t, rig_submit(r, &fetch, 1, NULL, 0, &ticket), BERYL_OK);
                CHECK_INT(t, rig_take(r, ticket, 0, got, n), BERYL_OK);
                if (memcmp(got, want + at, n) != 0)
                    test_fail(t, __FILE__, __LINE__, "%s: plane %u from byte %zu",
                              base_type_name(w->type), p, at);
            }
            free(want);
        }
    }
    free(got);
}

static void check_upload(test *t, rig *r, const beryl_source *source, const unsigned char *file) {
    graph_store store;
    device_buffer buffers[32];
    uint64_t at = 64;
    CHECK_INT(t, store_init(&store, &r->heap, r->d, source, 1, &r->error), BERYL_OK);
    for (int i = 0; i < N_UPLOAD; at += upload_bytes(i++))
        store_add_weight(&store, "w", uploads[i].type, 2,
                         (uint32_t[]){uploads[i].rows, uploads[i].k}, (uint32_t)i % 3, 0, at,
                         false);
    beryl_status status = store_layout(&store, 0, &r->error);
    if (status == BERYL_OK) status = store_make(&store, &r->error);
    while (status == BERYL_OK && (status = store_upload_step(&store, &r->error)) != BERYL_OK) {
        device_ticket done;
        if (status == BERYL_PENDING || status == BERYL_EVENT)
            status = device_poll(r->d, &done, &r->error);
    }
    CHECK_INT(t, status, BERYL_OK);
    CHECK_INT(t, store.upload_done, store.upload_total);
    CHECK(t, !store.window && store.buffers.count < 32);
    for (size_t i = 0; i < store.buffers.count && i < 32; i++)
        buffers[i] = store.buffers.data[i].id;
    for (size_t i = 0; i < store.tensors.count && !test_failed(t); i++)
        check_planes(t, r, &store.tensors.data[i], file, buffers);
    store_fini(&store);
}

static void test_uploads(test *t, const char *path) {
    static const char *const devices[] = {"host", "software"};
    uint64_t size = 64, state = 7;
    for (int i = 0; i < N_UPLOAD; i++) size += upload_bytes(i);
    for (int i = 0; i < 2; i++) {
        rig r;
        if (!test_case(t, "files/uploads-of-files-and-slow-sources-on-%s", devices[i]) ||
            !rig_open(t, &r, devices[i]))
            continue;
        bytes b = {malloc((size_t)size + 8), (size_t)size};
        if (!b.data) abort();
        for (size_t k = 0; k < b.size; k += 8)
            state = state * 6364136223846793005u + 1442695040888963407u,
            memcpy(b.data + k, &state, 8);
        slow s = {.data = b.data};
        beryl_source source = {.size = size, .user = &s, .read = slow_read};
        check_upload(t, &r, &source, b.data);
        put(t, path, b);
        CHECK_INT(t, base_source_open_file(&r.heap, path, &source, &r.error), BERYL_OK);
        check_upload(t, &r, &source, b.data);
        source.close(source.user);
        free(b.data);
        rig_close(t, &r);
    }
}

static void test_memory(test *t, const char *path, bytes file) {
    rig r;
    if (test_case(t, "files/tensors-in-one-place-are-refused")) {
        static const char *const devices[] = {"dummy", "reference"};
        bytes small = {malloc(file.size), file.size};
        memcpy(small.data, file.data, file.size);
        put(t, path, small);
        share_bytes(t, path, &small);
        put(t, path, small);
        for (int i = 0; i < 2; i++) {
            loading l;
            CHECK_INT(t, load(&l, path, devices[i], 0, NULL), BERYL_BAD_FILE);
            if (!strstr(l.error.message, "several lie in one place"))
                test_fail(t, __FILE__, __LINE__, "%s", l.error.message);
            beryl_engine_close(l.engine);
        }
        free(small.data);
    }
    if (test_case(t, "files/weights-are-in-memory-once") && rig_open(t, &r, "host")) {
        enum { ROWS = 32 << 10 }; /* of 4,352 bytes in the file and on the device */
        const uint64_t size = UINT64_C(4352) * ROWS;
        put(t, path, (bytes){file.data, 64});
        CHECK(t, !truncate(path, (off_t)(64 + size)));
        const uint64_t grown = upload_growth(t, &r, path, ROWS);
        if (!rig_process_now().bytes) test_skip(t, "this system does not tell what is resident");
        else if (grown < size / 2 || grown > size + STORE_WINDOW_BYTES + (16 << 20))
            test_fail(t, __FILE__, __LINE__, "%llu MB for weights of %llu",
                      (unsigned long long)(grown >> 20), (unsigned long long)(size >> 20));
        rig_close(t, &r);
    }
}

void test_files(test *t) {
    char path[600];
    bytes file = bytes_of(t, MODEL);
    snprintf(path, sizeof path, "%s/model.gguf", test_scratch(t));
    test_sources(t);
    test_heads(t);
    test_loading(t, path, file);
    test_after(t, path, file);
    test_saved(t, path, file);
    test_uploads(t, path);
    test_memory(t, path, file);
    free(file.data);
}
