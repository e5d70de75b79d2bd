/* base_test.c - messages, heap, arena, vector, text, map, hash, threads, random numbers, files. */
#include "test.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/thread.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* An allocator that counts what is out and fails at one call: `left` further calls with a size
 * succeed. */
typedef struct limited {
    long left; /* < 0: no limit */
    long out;  /* blocks not yet given back */
    bool lied; /* an old size was not what was asked for */
} limited;

/* A size before each block, so that sizes given back can be judged. */
static void *limited_resize(void *user, void *memory, size_t old_size, size_t new_size) {
    limited *l = user;
    size_t *block = memory ? (size_t *)memory - 2 : NULL;
    if (memory && *block != old_size) l->lied = true;
    if (!new_size) {
        free(block);
        l->out -= block != NULL;
        return NULL;
    }
    if (l->left == 0) return NULL;
    if (l->left > 0) l->left--;
    size_t *next = realloc(block, new_size + 2 * sizeof *block);
    if (!next) return NULL;
    l->out += !block;
    *next = new_size;
    return next + 2;
}

static void heap_limited(base_heap *heap, limited *l, long left) {
    *l = (limited){.left = left};
    base_heap_init(heap, &(beryl_allocator){limited_resize, l});
}

static void check_all_given(test *t, const base_heap *heap, const limited *l) {
    CHECK_INT(t, l->out, 0);
    CHECK_INT(t, heap->bytes, 0);
    CHECK(t, !l->lied);
}

/* ---- messages */

static void keep_line(void *user, beryl_log_level level, const char *line) {
    snprintf(user, 2000, "%d %s", (int)level, line);
}

static void test_error(test *t) {
    beryl_error error = {0};
    if (test_case(t, "base/status-names-and-texts")) {
#define X(name, text) CHECK_TEXT(t, beryl_status_name(BERYL_##name), #name);
        BERYL_STATUS_LIST(X)
#undef X
        CHECK_TEXT(t, beryl_status_text(BERYL_CONTEXT_FULL), "the context is full");
        CHECK_TEXT(t, beryl_status_name((beryl_status)77), "UNKNOWN");
        CHECK_TEXT(t, beryl_version(), BERYL_VERSION);
    }
    if (test_case(t, "base/error-is-filled-and-optional")) {
        CHECK_INT(t, base_fail_at(&error, BERYL_BAD_FILE, 1ull << 40, "%s %d", "tensor", 7),
                  BERYL_BAD_FILE);
        CHECK_INT(t, error.code, BERYL_BAD_FILE);
        CHECK_INT(t, error.at, 1ll << 40);
        CHECK_TEXT(t, error.message, "tensor 7");
        CHECK_INT(t, base_fail(&error, BERYL_IO, "x"), BERYL_IO);
        CHECK_INT(t, error.at, 0);
        CHECK_INT(t, base_fail(NULL, BERYL_IO, "x"), BERYL_IO);
    }
    if (test_case(t, "base/error-is-one-line-of-utf8")) {
        base_fail(&error, BERYL_IO, "a\nb\x1b[31m\xff\xc3\xa9\x7f");
        CHECK_TEXT(t, error.message, "a?b?[31m?\xc3\xa9?");
        char many[600]; /* two-byte characters, so that one straddles the end */
        for (size_t i = 0; i < 598; i += 2) memcpy(many + i, "\xc3\xa9", 2);
        many[598] = 0;
        base_fail(&error, BERYL_IO, "x%s", many);
        CHECK_INT(t, strlen(error.message), 479);
        base_fail(&error, BERYL_IO, "%s", many);
        CHECK_INT(t, strlen(error.message), 478);
    }
    if (test_case(t, "base/log-goes-to-the-hook")) {
        char line[2000] = "";
        base_log(&(beryl_log){keep_line, line}, BERYL_LOG_INFO, "%d kB", 12);
        CHECK_TEXT(t, line, "2 12 kB");
        base_log(NULL, BERYL_LOG_INFO, "nobody");
        base_log(&(beryl_log){NULL, NULL}, BERYL_LOG_INFO, "nobody");
    }
}

/* ---- heap and arena */

static void test_heap(test *t) {
    base_heap heap;
    limited l;
    if (test_case(t, "base/heap-counts")) {
        heap_limited(&heap, &l, -1);
        char *a = base_heap_take(&heap, 100), *b = base_heap_take(&heap, 0);
        CHECK(t, a && b && a[99] == 0);
        CHECK_INT(t, heap.bytes, 101);
        a = base_heap_resize(&heap, a, 100, 40);
        CHECK_INT(t, heap.bytes, 41);
        CHECK_INT(t, heap.bytes_peak, 101);
        base_heap_give(&heap, a, 40);
        base_heap_give(&heap, b, 0);
        base_heap_give(&heap, NULL, 5);
        CHECK_INT(t, heap.calls, 5);
        check_all_given(t, &heap, &l);
    }
    if (test_case(t, "base/heap-failing-resize-keeps-the-block")) {
        heap_limited(&heap, &l, 1);
        char *a = base_heap_take(&heap, 8);
        CHECK(t, a && !base_heap_resize(&heap, a, 8, 16));
        CHECK_INT(t, heap.bytes, 8);
        CHECK(t, !base_heap_take(&heap, 1) && !base_heap_take(&heap, SIZE_MAX));
        base_heap_give(&heap, a, 8);
        check_all_given(t, &heap, &l);
    }
    if (test_case(t, "base/heap-default-is-malloc")) {
        base_heap_init(&heap, NULL);
        void *a = base_heap_take(&heap, 3);
        CHECK(t, a != NULL);
        base_heap_give(&heap, a, 3);
        base_heap_init(&heap, &(beryl_allocator){NULL, &heap});
        a = base_heap_take(&heap, 3);
        CHECK(t, a != NULL);
        base_heap_give(&heap, a, 3);
        CHECK_INT(t, heap.bytes, 0);
    }
    if (test_case(t, "base/arena-aligned-zeroed-disjoint")) {
        heap_limited(&heap, &l, -1);
        base_arena arena;
        base_arena_init(&arena, &heap);
        base_random random = {1};
        unsigned char *blocks[300];
        size_t sizes[300];
        for (size_t i = 0; i < 300; i++) {
            sizes[i] = (size_t)(base_random_next(&random) % (i % 50 == 0 ? 20000 : 200));
            blocks[i] = base_arena_take(&arena, sizes[i], 1);
            CHECK(t, blocks[i] && (uintptr_t)blocks[i] % 16 == 0);
            for (size_t j = 0; j < sizes[i]; j++) CHECK(t, blocks[i][j] == 0);
            memset(blocks[i], (int)i & 255, sizes[i]);
        }
        for (size_t i = 0; i < 300; i++)
            for (size_t j = 0; j < sizes[i]; j++) CHECK_INT(t, blocks[i][j], i & 255);
        CHECK(t, heap.calls < 40);
        base_arena_fini(&arena);
        base_arena_fini(&arena);
        check_all_given(t, &heap, &l);
    }
    if (test_case(t, "base/arena-overflow-is-no-memory")) {
        heap_limited(&heap, &l, -1);
        base_arena arena;
        base_arena_init(&arena, &heap);
        CHECK(t, !base_arena_take(&arena, SIZE_MAX / 2 + 1, 2));
        CHECK(t, !base_arena_take(&arena, 1, SIZE_MAX));
        CHECK(t, !base_arena_take(&arena, SIZE_MAX, 1));
        CHECK(t, !base_arena_take(&arena, (size_t)PTRDIFF_MAX - 8, 1));
        CHECK(t, !base_arena_text(&arena, "x", SIZE_MAX));
        CHECK(t, base_arena_take(&arena, SIZE_MAX, 0) && base_arena_take(&arena, 0, SIZE_MAX));
        base_arena_fini(&arena);
        check_all_given(t, &heap, &l);
    }
    if (test_case(t, "base/arena-texts")) {
        heap_limited(&heap, &l, -1);
        base_arena arena;
        base_arena_init(&arena, &heap);
        CHECK_TEXT(t, base_arena_text(&arena, "gate and up", 4), "gate");
        CHECK_TEXT(t, base_arena_text(&arena, NULL, 0), "");
        CHECK_TEXT(t, base_arena_print(&arena, "blk.%d.%s", 12, "attn_q"), "blk.12.attn_q");
        const char *wide = base_arena_print(&arena, "%9000d", 1);
        CHECK(t, wide && strlen(wide) == 9000);
        base_arena_fini(&arena);
        check_all_given(t, &heap, &l);
    }
    if (test_case(t, "base/arena-survives-a-failed-call")) {
        heap_limited(&heap, &l, 1);
        base_arena arena;
        base_arena_init(&arena, &heap);
        char *first = base_arena_text(&arena, "kept", 4);
        CHECK(t, !base_arena_take(&arena, 1, 5000));
        CHECK(t, !base_arena_print(&arena, "%5000d", 1));
        CHECK(t, base_arena_take(&arena, 1, 16) != NULL);
        CHECK_TEXT(t, first, "kept");
        base_arena_fini(&arena);
        check_all_given(t, &heap, &l);
    }
}

/* ---- vector, views, text */

static void test_text(test *t) {
    base_heap heap;
    limited l;
    if (test_case(t, "base/vec-grows-and-fails-whole")) {
        heap_limited(&heap, &l, 3);
        base_vec(uint32_t) v = {0};
        uint32_t n = 0;
        for (uint32_t *e; (e = base_vec_add(&heap, &v)); n++) {
            CHECK_INT(t, *e, 0);
            *e = n;
        }
        CHECK_INT(t, n, 32); /* 8, 16, 32, then the fourth call fails */
        CHECK(t, v.count == n && v.capacity == n);
        for (uint32_t i = 0; i < n; i++) CHECK_INT(t, v.data[i], i);
        CHECK(t, !base_vec_reserve(&heap, &v, SIZE_MAX));
        CHECK(t, !base_vec_reserve(&heap, &v, SIZE_MAX / 4));
        CHECK(t, base_vec_reserve(&heap, &v, 0));
        base_vec_fini(&heap, &v);
        base_vec_fini(&heap, &v);
        check_all_given(t, &heap, &l);
    }
    if (test_case(t, "base/views")) {
        base_view text = BASE_VIEW("token_embd.weight");
        CHECK(t,
              base_view_begins(text, BASE_VIEW("token")) && base_view_begins(text, BASE_VIEW("")));
        CHECK(t, base_view_ends(text, BASE_VIEW(".weight")) && base_view_ends(text, text));
        CHECK(t, !base_view_ends(BASE_VIEW("ight"), BASE_VIEW("weight")));
        CHECK(t, base_view_equal(base_view_of(NULL), (base_view){0}));
        CHECK(t, !base_view_equal(base_view_of("a"), base_view_of("b")));
    }
    if (test_case(t, "base/utf8-is-strict")) {
        static const struct {
            const char *bytes;
            size_t n;
            uint32_t code;
        } rows[] = {
            {"a", 1, 'a'},
            {"\xc3\xa9", 2, 0xe9},
            {"\xe2\x82\xac", 3, 0x20ac},
            {"\xf0\x9f\x98\x80", 4, 0x1f600},
            {"\xc0\x80", 0, 0},
            {"\xc1\xbf", 0, 0},
            {"\xe0\x9f\xbf", 0, 0},
            {"\xed\xa0\x80", 0, 0},
            {"\xed\x9f\xbf", 3, 0xd7ff},
            {"\xf4\x8f\xbf\xbf", 4, 0x10ffff},
            {"\xf4\x90\x80\x80", 0, 0},
            {"\xf5\x80\x80\x80", 0, 0},
            {"\xff", 0, 0},
            {"\x80", 0, 0},
            {"\xe2\x82", 0, 0},
            {"\xe2(\xa1", 0, 0},
            {"\xf0\x8f\xbf\xbf", 0, 0},
            {"", 0, 0},
        };
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            uint32_t code = 0;
            CHECK_INT(t, base_utf8(rows[i].bytes, strlen(rows[i].bytes), &code), rows[i].n);
            CHECK_INT(t, code, rows[i].code);
        }
        CHECK_INT(t, base_utf8("", 1, NULL), 1); /* NUL is a character */
    }
    if (test_case(t, "base/text-builds")) {
        heap_limited(&heap, &l, -1);
        base_text text;
        size_t size;
        base_text_init(&text, &heap);
        base_text_add(&text, "a\0b", 3);
        base_text_print(&text, "%s=%d", "x", 5);
        base_text_print(&text, "%1000d", 7);
        base_text_add_view(&text, BASE_VIEW("!"));
        base_text_add(&text, NULL, 0);
        CHECK(t, text.size == 1007 && !memcmp(text.data, "a\0bx=5", 6) && text.data[1007] == 0);
        char *taken = base_text_take(&text, &size);
        CHECK_INT(t, size, 1007);
        CHECK_INT(t, heap.bytes, 1008);
        base_heap_give(&heap, taken, size + 1);
        taken = base_text_take(&text, &size); /* nothing was added */
        CHECK_TEXT(t, taken, "");
        base_heap_give(&heap, taken, size + 1);
        base_text_add(&text, "abc", 3);
        base_text_clear(&text);
        CHECK_TEXT(t, text.data, "");
        base_text_fini(&text);
        check_all_given(t, &heap, &l);
    }
    if (test_case(t, "base/text-failure-sticks-at-every-call")) {
        for (long n = 0; n < 8; n++) {
            heap_limited(&heap, &l, n);
            base_text text;
            base_text_init(&text, &heap);
            for (int i = 0; i < 20; i++) base_text_print(&text, "%d,", i);
            base_text_add(&text, "end", 3);
            bool failed = text.failed;
            size_t size = 9;
            char *taken = base_text_take(&text, &size);
            CHECK(t, taken ? !failed && size == strlen(taken) : size == 0);
            CHECK(t, n < 5 || taken); /* four to grow, one to shrink */
            if (taken) base_heap_give(&heap, taken, size + 1);
            base_text_fini(&text);
            check_all_given(t, &heap, &l);
        }
    }
}

/* ---- map and hash */

enum { KEYS = 50000 };

static void test_map(test *t) {
    base_heap heap;
    limited l;
    if (test_case(t, "base/map-many-keys")) {
        heap_limited(&heap, &l, -1);
        base_arena arena;
        base_map map;
        base_arena_init(&arena, &heap);
        base_map_init(&map, &heap);
        CHECK(t, !base_map_find(&map, BASE_VIEW("none"), NULL));
        for (uint32_t i = 0; i < KEYS; i++)
            CHECK(t, base_map_set(&map, base_view_of(base_arena_print(&arena, "%u", i)), i));
        CHECK(t, base_map_set(&map, (base_view){0}, 7) && base_map_set(&map, BASE_VIEW("a\0b"), 8));
        CHECK(t, base_map_set(&map, BASE_VIEW("123"), 9));
        CHECK_INT(t, map.count, KEYS + 2);
        uint32_t value, wrong = 0;
        for (uint32_t i = 0; i < KEYS; i++) {
            char key[16];
            snprintf(key, sizeof key, "%u", i);
            wrong += !base_map_find(&map, base_view_of(key), &value) || value != (i == 123 ? 9 : i);
            snprintf(key, sizeof key, "%u", i + KEYS);
            wrong += base_map_find(&map, base_view_of(key), NULL);
        }
        CHECK_INT(t, wrong, 0);
        CHECK(t, base_map_find(&map, BASE_VIEW(""), &value) && value == 7);
        CHECK(t, base_map_find(&map, BASE_VIEW("a\0b"), &value) && value == 8);
        CHECK(t, !base_map_find(&map, BASE_VIEW("a"), &value));
        base_map_fini(&map);
        base_arena_fini(&arena);
        check_all_given(t, &heap, &l);
    }
    if (test_case(t, "base/map-failed-growth-keeps-it")) {
        heap_limited(&heap, &l, 1);
        base_map map;
        base_map_init(&map, &heap);
        static const char keys[] = "abcdefghijklmnopqrstuvwxyz";
        uint32_t n = 0, value;
        while (base_map_set(&map, (base_view){keys + n, 1}, n)) n++;
        CHECK_INT(t, n, 12);
        CHECK_INT(t, map.count, 12);
        for (uint32_t i = 0; i < 26; i++) {
            bool found = base_map_find(&map, (base_view){keys + i, 1}, &value);
            CHECK(t, found == (i < n) && (!found || value == i));
        }
        CHECK(t, !base_map_reserve(&map, SIZE_MAX) && !base_map_reserve(&map, SIZE_MAX / 64));
        base_map_fini(&map);
        check_all_given(t, &heap, &l);
    }
    if (test_case(t, "base/map-reserve-then-no-allocation")) {
        heap_limited(&heap, &l, 1);
        base_map map;
        base_map_init(&map, &heap);
        CHECK(t, base_map_reserve(&map, 1000));
        char keys[1000][4];
        for (uint32_t i = 0; i < 1000; i++) {
            snprintf(keys[i], sizeof keys[i], "%u", i);
            CHECK(t, base_map_set(&map, base_view_of(keys[i]), i));
        }
        base_map_fini(&map);
        check_all_given(t, &heap, &l);
    }
    if (test_case(t, "base/hash-fixed-and-mixed")) {
        /* Stored: hashes go into session files and cache names, so they must never change. */
        char bytes[24];
        for (int i = 0; i < 24; i++) bytes[i] = (char)i;
        CHECK(t, base_hash(NULL, 0, 0) == 0x6b3c89e238a4996e);
        CHECK(t, base_hash(bytes, 15, 42) == 0x77f340b12838b72f);
        CHECK(t, base_hash(bytes, 24, 42) == 0x8d37a1763d77448c);
        int least = 64, most = 0;
        for (int bit = 0; bit < 24 * 8; bit++) {
            uint64_t before = base_hash(bytes, 24, 1);
            bytes[bit / 8] = (char)(bytes[bit / 8] ^ 1 << bit % 8);
            int changed = __builtin_popcountll(before ^ base_hash(bytes, 24, 1));
            bytes[bit / 8] = (char)(bytes[bit / 8] ^ 1 << bit % 8);
            if (changed < least) least = changed;
            if (changed > most) most = changed;
        }
        CHECK(t, least >= 16 && most <= 48);
        CHECK(t, base_hash(bytes, 8, 1) != base_hash(bytes, 8, 2) &&
                     base_hash(bytes, 0, 1) != base_hash("\0", 1, 1));
    }
}

/* ---- threads and random numbers */

typedef struct shared_count {
    base_heap *heap;
    base_lock *lock;
    int count, ready;
} shared_count;

static void count_up(void *user) {
    shared_count *s = user;
    base_lock_enter(s->lock);
    while (!s->ready) base_lock_sleep(s->lock);
    base_lock_leave(s->lock);
    for (int i = 0; i < 2000; i++) {
        void *memory = base_heap_take(s->heap, 16);
        base_lock_enter(s->lock);
        s->count++;
        base_lock_leave(s->lock);
        base_heap_give(s->heap, memory, 16);
    }
}

static void test_thread(test *t) {
    base_heap heap;
    limited l;
    if (test_case(t, "base/threads-share-lock-and-heap")) {
        base_heap_init(&heap, NULL);
        shared_count s = {.heap = &heap, .lock = base_lock_open(&heap)};
        base_thread *threads[4];
        for (int i = 0; i < 4; i++)
            CHECK(t, (threads[i] = base_thread_open(&heap, count_up, &s)) != NULL);
        base_lock_enter(s.lock);
        s.ready = 1;
        base_lock_wake(s.lock);
        base_lock_leave(s.lock);
        for (int i = 0; i < 4; i++) base_thread_close(threads[i]);
        base_lock_close(s.lock);
        base_lock_close(NULL);
        base_thread_close(NULL);
        CHECK_INT(t, s.count, 8000);
        CHECK_INT(t, heap.bytes, 0);
        CHECK_INT(t, heap.calls, 2 * (8000 + 4 + 1));
    }
    if (test_case(t, "base/threads-without-memory")) {
        heap_limited(&heap, &l, 0);
        CHECK(t, !base_lock_open(&heap) && !base_thread_open(&heap, count_up, NULL));
        check_all_given(t, &heap, &l);
    }
    if (test_case(t, "base/time-goes-on")) {
        double before = base_time();
        base_sleep(0.002);
        base_sleep(-1);
        CHECK(t, base_time() - before >= 0.002);
    }
    if (test_case(t, "base/threefry-published-vectors")) {
        /* Random123's kat_vectors, threefry2x32, 20 rounds. */
        static const uint32_t rows[][6] = {
            {0, 0, 0, 0, 0x6b200159, 0x99ba4efe},
            {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x1cb996fc, 0xbb002be7},
            {0x13198a2e, 0x03707344, 0x243f6a88, 0x85a308d3, 0xc4923a9c, 0x483df7a0},
        };
        for (size_t i = 0; i < 3; i++) {
            uint32_t out[2];
            base_threefry(rows[i], rows[i] + 2, out);
            CHECK(t, out[0] == rows[i][4] && out[1] == rows[i][5]);
        }
    }
    if (test_case(t, "base/random-numbers")) {
        /* Published splitmix64 numbers of seed 1234567. */
        base_random random = {1234567};
        CHECK(t, base_random_next(&random) == 6457827717110365317u);
        CHECK(t, base_random_next(&random) == 3203168211198807973u);
        double sum = 0;
        for (int i = 0; i < 10000; i++) {
            double unit = base_random_unit(&random);
            CHECK(t, unit >= 0 && unit < 1);
            sum += unit;
        }
        CHECK_NEAR(t, sum / 10000, 0.5, 0.015); /* five deviations of the mean */
        CHECK(t, base_random_seed() != base_random_seed());
    }
}

/* ---- files */

static void keep_names(void *user, const char *name, bool is_folder) {
    base_text_print(user, "%s%s ", name, is_folder ? "/" : "");
}

static const char *scratch_path(test *t, char path[300], const char *name) {
    snprintf(path, 300, "%s/%s", test_scratch(t), name);
    return path;
}

static void test_source(test *t) {
    char path[300];
    base_heap heap;
    limited l;
    beryl_error error;
    beryl_source source;
    if (test_case(t, "base/range-inside")) {
        CHECK(t, base_range_inside(0, 0, 0) && base_range_inside(3, 2, 5) &&
                     base_range_inside(5, 0, 5));
        CHECK(t, !base_range_inside(3, 3, 5) && !base_range_inside(6, 0, 5));
        CHECK(t, !base_range_inside(UINT64_MAX, 2, 5) && !base_range_inside(2, UINT64_MAX, 5));
    }
    if (test_case(t, "base/source-of-memory")) {
        char to[3];
        source = base_source_of_memory("abcdef", 6);
        CHECK_INT(t, source.size, 6);
        CHECK(t, source.read(source.user, 2, to, 3) == BERYL_OK && !memcmp(to, "cde", 3));
        CHECK(t, !source.close && !base_source_is_file(&source));
        source = base_source_of_memory(NULL, 0);
        CHECK(t, source.read(source.user, 0, NULL, 0) == BERYL_OK);
    }
    if (test_case(t, "base/source-of-file")) {
        heap_limited(&heap, &l, -1);
        char to[4];
        CHECK_INT(t, base_file_write(scratch_path(t, path, "source"), "0123456789", 10, &error),
                  BERYL_OK);
        CHECK_INT(t, base_source_open_file(&heap, path, &source, &error), BERYL_OK);
        CHECK_INT(t, source.size, 10);
        CHECK(t, source.read(source.user, 6, to, 4) == BERYL_OK && !memcmp(to, "6789", 4));
        CHECK(t, source.read(source.user, 7, to, 4) == BERYL_MISUSE);
        CHECK(t, source.read(source.user, UINT64_MAX, to, 2) == BERYL_MISUSE);
        CHECK(t, base_source_is_file(&source));
        source.close(source.user);
        check_all_given(t, &heap, &l);
    }
    if (test_case(t, "base/source-of-an-empty-file")) {
        heap_limited(&heap, &l, -1);
        CHECK_INT(t, base_file_write(scratch_path(t, path, "empty"), NULL, 0, &error), BERYL_OK);
        CHECK_INT(t, base_source_open_file(&heap, path, &source, &error), BERYL_OK);
        CHECK(t, source.size == 0 && source.read(source.user, 0, NULL, 0) == BERYL_OK);
        source.close(source.user);
        check_all_given(t, &heap, &l);
    }
    if (test_case(t, "base/source-refuses")) {
        heap_limited(&heap, &l, -1);
        CHECK_INT(t,
                  base_source_open_file(&heap, scratch_path(t, path, "missing"), &source, &error),
                  BERYL_NOT_FOUND);
        CHECK(t, strstr(error.message, "missing") && !source.close);
        CHECK_INT(t, base_source_open_file(&heap, test_scratch(t), &source, &error),
                  BERYL_BAD_INPUT);
        CHECK_INT(t, base_source_open_file(&heap, "/dev/null", &source, &error), BERYL_BAD_INPUT);
        CHECK_INT(t, base_file_write(scratch_path(t, path, "source"), "x", 1, NULL), BERYL_OK);
        l.left = 0;
        CHECK_INT(t, base_source_open_file(&heap, path, &source, &error), BERYL_NO_MEMORY);
        check_all_given(t, &heap, &l);
    }
}

static void test_file(test *t) {
    char path[300], *data;
    size_t size;
    base_heap heap;
    limited l;
    beryl_error error;
    if (test_case(t, "base/file-write-then-read")) {
        heap_limited(&heap, &l, -1);
        static char big[100000];
        for (size_t i = 0; i < sizeof big; i++) big[i] = (char)(i * 7);
        CHECK_INT(t, base_file_write(scratch_path(t, path, "big"), "old", 3, &error), BERYL_OK);
        CHECK_INT(t, base_file_write(path, big, sizeof big, &error), BERYL_OK);
        CHECK(t, base_file_exists(path));
        CHECK_INT(t, base_file_read(&heap, path, sizeof big, &data, &size, &error), BERYL_OK);
        CHECK(t, data && size == sizeof big && !memcmp(data, big, size) && data[size] == 0);
        base_heap_give(&heap, data, size + 1);
        CHECK_INT(t, base_file_read(&heap, path, sizeof big - 1, &data, &size, &error),
                  BERYL_BAD_INPUT);
        for (long n = 0; n < 3; n++) {
            l.left = n;
            CHECK_INT(t, base_file_read(&heap, path, sizeof big, &data, &size, &error),
                      BERYL_NO_MEMORY);
            CHECK(t, !data);
        }
        check_all_given(t, &heap, &l);
    }
    if (test_case(t, "base/file-refuses")) {
        heap_limited(&heap, &l, -1);
        scratch_path(t, path, "no/such/file");
        CHECK_INT(t, base_file_read(&heap, path, 10, &data, &size, &error), BERYL_NOT_FOUND);
        CHECK_INT(t, base_file_read(&heap, test_scratch(t), 10, &data, &size, &error),
                  BERYL_BAD_INPUT);
        CHECK_INT(t, base_file_write(path, "x", 1, &error), BERYL_NOT_FOUND);
        CHECK(t, !base_file_exists(path));
        static char longest[6000];
        memset(longest, 'a', sizeof longest - 1);
        CHECK_INT(t, base_file_write(longest, "x", 1, &error), BERYL_BAD_INPUT);
        CHECK_INT(t, base_file_write(test_scratch(t), "x", 1, &error), BERYL_IO);
        CHECK_INT(t, base_file_write("/dev/null", "x", 1, &error),
                  BERYL_OK); /* written, not replaced */
        CHECK(t, base_source_open_file(&heap, "/dev/null", &(beryl_source){0}, NULL) ==
                     BERYL_BAD_INPUT);
        check_all_given(t, &heap, &l);
    }
    if (test_case(t, "base/pipe-is-refused-and-not-waited-for")) {
        heap_limited(&heap, &l, -1);
        scratch_path(t, path, "named-pipe");
        CHECK(t, !mkfifo(path, 0600));
        CHECK_INT(t, base_file_read(&heap, path, 10, &data, &size, &error), BERYL_BAD_INPUT);
        CHECK(t, strstr(error.message, "not a regular file"));
        CHECK_INT(t, base_file_write(path, "x", 1, &error), BERYL_IO);
        check_all_given(t, &heap, &l);
    }
    if (test_case(t, "base/folder-make-and-list")) {
        base_text names;
        heap_limited(&heap, &l, -1);
        base_text_init(&names, &heap);
        CHECK_INT(t, base_folder_make(scratch_path(t, path, "folder/b//deep/"), &error), BERYL_OK);
        CHECK_INT(t, base_folder_make(path, &error), BERYL_OK);
        CHECK_INT(t, base_file_write(scratch_path(t, path, "folder/c"), "", 0, &error), BERYL_OK);
        CHECK_INT(t, base_file_write(scratch_path(t, path, "folder/a"), "", 0, &error), BERYL_OK);
        CHECK_INT(t, base_folder_make(scratch_path(t, path, "folder/a/x"), &error), BERYL_IO);
        CHECK(t, strstr(error.message, "folder/a is in the way"));
        CHECK_INT(t, base_folder_make("", &error), BERYL_BAD_INPUT);
        scratch_path(t, path, "folder");
        CHECK_INT(t, base_folder_list(&heap, path, keep_names, &names, &error), BERYL_OK);
        CHECK_TEXT(t, names.data, "a b/ c "); /* nothing half-written is left beside them */
        base_text_fini(&names);
        for (long n = 0; n < 2; n++) {
            l.left = n;
            CHECK_INT(t, base_folder_list(&heap, path, keep_names, &names, &error),
                      BERYL_NO_MEMORY);
        }
        l.left = -1;
        scratch_path(t, path, "folder/none");
        CHECK_INT(t, base_folder_list(&heap, path, keep_names, &names, &error), BERYL_NOT_FOUND);
        check_all_given(t, &heap, &l);
    }
    if (test_case(t, "base/environment")) {
        CHECK(t, base_environment("PATH") != NULL);
        CHECK(t, !base_environment("BERYL_NO_SUCH_VARIABLE"));
    }
}

void test_base(test *t);
void test_base(test *t) {
    test_error(t);
    test_heap(t);
    test_text(t);
    test_map(t);
    test_thread(t);
    test_source(t);
    test_file(t);
}
