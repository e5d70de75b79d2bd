/* gguf_test.c - the GGUF reader on right files, on every kind of wrong file, with slow sources and
 * without memory. */
#include "base/file.h"
#include "base/thread.h"
#include "format/gguf.h"
#include "gguf_make.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- helpers */

/* A heap that counts what it lives on and fails at its n-th call (0: never). */
typedef struct trap {
    base_heap heap;
    uint64_t calls, fail_at;
} trap;

static void *trap_resize(void *user, void *memory, size_t old_size, size_t new_size) {
    trap *self = user;
    (void)old_size;
    if (new_size && ++self->calls == self->fail_at) return NULL;
    if (new_size) return realloc(memory, new_size);
    free(memory);
    return NULL;
}

static void trap_init(trap *self, uint64_t fail_at) {
    *self = (trap){.fail_at = fail_at};
    base_heap_init(&self->heap, &(beryl_allocator){trap_resize, self});
}

/* A source that answers only every second call. Counts closes. */
typedef struct slow {
    const uint8_t *data;
    size_t size;
    bool asked;
    uint64_t offset;
    void *to;
    size_t n;
    int n_close, n_pending;
    bool broken;  /* reads fail */
    bool changed; /* a repeated call came with other arguments */
} slow;

static beryl_status slow_read(void *user, uint64_t offset, void *to, size_t size) {
    slow *self = user;
    if (self->broken) return BERYL_IO;
    if (!self->asked) {
        self->asked = true;
        self->offset = offset, self->to = to, self->n = size;
        self->n_pending++;
        return BERYL_PENDING;
    }
    if (self->offset != offset || self->to != to || self->n != size) self->changed = true;
    self->asked = false;
    if (offset > self->size || size > self->size - offset) return BERYL_IO;
    memcpy(to, self->data + offset, size);
    return BERYL_OK;
}

static void slow_close(void *user) {
    ((slow *)user)->n_close++;
}

static beryl_source slow_source(slow *self) {
    return (beryl_source){.size = self->size, .user = self, .read = slow_read, .close = slow_close};
}

/* The first value of an F32 tensor; 0: there is none. */
static float first_value(const format_gguf *g, const char *name) {
    const format_gguf_tensor *x = g ? format_gguf_tensor_find(g, name) : NULL;
    const beryl_source *source = x ? format_gguf_source(g, x->file) : NULL;
    float value = 0;
    if (!x || source->read(source->user, x->offset, &value, sizeof value)) return 0;
    return value;
}

static beryl_status finish(format_gguf *g, beryl_error *error) {
    beryl_status status;
    int steps = 0;
    while ((status = format_gguf_step(g, error)) == BERYL_PENDING && steps++ < 1000) {}
    return status;
}

/* Opens bytes; *g is NULL unless OK. */
static beryl_status open_bytes(base_heap *heap, const void *data, size_t size, format_gguf **g,
                               beryl_error *error) {
    beryl_source source = base_source_of_memory(data, size);
    beryl_status status = format_gguf_open(heap, &source, 1, g, error);
    if (!status) status = finish(*g, error);
    if (status) {
        format_gguf_close(*g);
        *g = NULL;
    }
    return status;
}

/* Takes the maker's file; expects `status` and `part` in the message. */
static void expect(test *t, gguf_make *m, beryl_status want, const char *part) {
    trap heap;
    trap_init(&heap, 0);
    size_t size = 0;
    uint8_t *file = gguf_make_take(m, &size);
    format_gguf *g = NULL;
    beryl_error error = {0};
    beryl_status status = open_bytes(&heap.heap, file, size, &g, &error);
    CHECK_TEXT(t, beryl_status_name(status), beryl_status_name(want));
    if (part && !strstr(error.message, part))
        test_fail(t, __FILE__, __LINE__, "\"%s\" is not in \"%s\"", part, error.message);
    CHECK(t, !status || (int)error.code == (int)status);
    format_gguf_close(g);
    CHECK_INT(t, heap.heap.bytes, 0);
    free(file);
}

static void make_small(gguf_make *m) {
    static const char *const tokens[] = {"<pad>", "a\xe2\x96\x81", "", "b"};
    gguf_make_string(m, "general.architecture", "gemma4");
    gguf_make_u32(m, "gemma4.block_count", 2);
    gguf_make_f32(m, "gemma4.rope.freq_base", 1e6f);
    gguf_make_array(m, "gemma4.feed_forward_length", FORMAT_GGUF_I32, 2, (int32_t[]){64, 128}, 8);
    gguf_make_array(m, "gemma4.attention.sliding_window_pattern", FORMAT_GGUF_BOOL, 2,
                    (uint8_t[]){1, 0}, 2);
    gguf_make_strings(m, "tokenizer.ggml.tokens", tokens, 4);
    gguf_make_array(m, "tokenizer.ggml.token_type", FORMAT_GGUF_I32, 4, (int32_t[]){3, 1, 1, 1},
                    16);
    gguf_make_bool(m, "tokenizer.ggml.add_bos_token", false);
    gguf_make_tensor(m, "output_norm.weight", 0, 1, (uint64_t[]){4}, (float[]){1, 2, 3, 4}, 16);
    gguf_make_tensor(m, "blk.0.attn_q.weight", 8, 2, (uint64_t[]){64, 3}, NULL, 204);
    gguf_make_tensor(m, "blk.0.ffn_down_exps.weight", 12, 3, (uint64_t[]){256, 2, 2}, NULL, 576);
}

/* ---- right files */

static void check_small(test *t, format_gguf *g) {
    beryl_error error = {0};
    CHECK_INT(t, format_gguf_n_pair(g), 8);
    CHECK_INT(t, format_gguf_n_tensor(g), 3);
    base_view text = {0};
    CHECK_INT(t, format_gguf_get_string(g, "general.architecture", &text, &error), BERYL_OK);
    CHECK(t, base_view_equal(text, BASE_VIEW("gemma4")));
    uint32_t n = 0;
    CHECK_INT(t, format_gguf_get_u32(g, "gemma4.block_count", &n, &error), BERYL_OK);
    CHECK_INT(t, n, 2);
    const format_gguf_tensor *x = format_gguf_tensor_find(g, "blk.0.ffn_down_exps.weight");
    CHECK(t, x != NULL);
    if (!x) return;
    CHECK_INT(t, x->type, TYPE_Q4_K);
    CHECK_INT(t, x->gguf_type, 12);
    CHECK_INT(t, x->n_dim, 3);
    CHECK_INT(t, x->ne[0], 256);
    CHECK_INT(t, x->ne[1], 2);
    CHECK_INT(t, x->ne[2], 2);
    CHECK_INT(t, x->ne[3], 1);
    CHECK_INT(t, x->size, 576);
    CHECK_INT(t, x->offset % 32, 0);
    CHECK(t, format_gguf_tensor_find(g, "blk.1.attn_q.weight") == NULL);
    CHECK_INT(t, format_gguf_data_size(g), 16 + 204 + 576);
    CHECK_INT(t, format_gguf_parameters(g), 4 + 192 + 1024);
}

static void test_right(test *t) {
    for (uint32_t version = 2; version <= 3; version++) {
        if (!test_case(t, "gguf/read-version-%u", version)) continue;
        trap heap;
        trap_init(&heap, 0);
        gguf_make m = {.version = version};
        make_small(&m);
        size_t size = 0;
        uint8_t *file = gguf_make_take(&m, &size);
        format_gguf *g = NULL;
        beryl_error error = {0};
        CHECK_INT(t, open_bytes(&heap.heap, file, size, &g, &error), BERYL_OK);
        if (g) {
            CHECK_INT(t, format_gguf_version(g), version);
            check_small(t, g);
            CHECK(t, first_value(g, "output_norm.weight") == 1);
        }
        format_gguf_close(g);
        CHECK_INT(t, heap.heap.bytes, 0);
        free(file);
    }
    if (test_case(t, "gguf/alignment-key")) {
        trap heap;
        trap_init(&heap, 0);
        gguf_make m = {.alignment = 256};
        gguf_make_u32(&m, "general.alignment", 256);
        gguf_make_tensor(&m, "a", 0, 1, (uint64_t[]){1}, (float[]){5}, 4);
        gguf_make_tensor(&m, "b", 0, 1, (uint64_t[]){1}, (float[]){6}, 4);
        size_t size = 0;
        uint8_t *file = gguf_make_take(&m, &size);
        format_gguf *g = NULL;
        CHECK_INT(t, open_bytes(&heap.heap, file, size, &g, NULL), BERYL_OK);
        if (g) {
            const format_gguf_tensor *b = format_gguf_tensor_find(g, "b");
            CHECK(t, b && b->offset == 512 && first_value(g, "b") == 6);
        }
        format_gguf_close(g);
        free(file);
    }
    if (test_case(t, "gguf/no-tensors-no-padding")) {
        gguf_make m = {0};
        gguf_make_string(&m, "k", "v");
        expect(t, &m, BERYL_OK, NULL);
        expect(t, &m, BERYL_OK, NULL); /* nothing at all but the 24 bytes */
    }
}

/* Every kind of value through every getter. */
static void test_values(test *t) {
    if (!test_case(t, "gguf/typed-access")) return;
    trap heap;
    trap_init(&heap, 0);
    gguf_make m = {0};
    gguf_make_scalar(&m, "u8", FORMAT_GGUF_U8, &(uint8_t){200}, 1);
    gguf_make_scalar(&m, "i8", FORMAT_GGUF_I8, &(int8_t){-5}, 1);
    gguf_make_scalar(&m, "u16", FORMAT_GGUF_U16, &(uint16_t){65535}, 2);
    gguf_make_scalar(&m, "i16", FORMAT_GGUF_I16, &(int16_t){-300}, 2);
    gguf_make_scalar(&m, "u32", FORMAT_GGUF_U32, &(uint32_t){4000000000u}, 4);
    gguf_make_scalar(&m, "i32", FORMAT_GGUF_I32, &(int32_t){64}, 4);
    gguf_make_scalar(&m, "u64", FORMAT_GGUF_U64, &(uint64_t){UINT64_MAX}, 8);
    gguf_make_scalar(&m, "i64", FORMAT_GGUF_I64, &(int64_t){INT64_MIN}, 8);
    gguf_make_f32(&m, "f32", 0.5f);
    gguf_make_scalar(&m, "f64", FORMAT_GGUF_F64, &(double){1e300}, 8);
    gguf_make_scalar(&m, "nan", FORMAT_GGUF_F32, &(uint32_t){0x7fc00000}, 4);
    gguf_make_bool(&m, "bool", true);
    gguf_make_scalar(&m, "bool2", FORMAT_GGUF_BOOL, &(uint8_t){2}, 1);
    gguf_make_string(&m, "string", "x");
    gguf_make_array(&m, "per_layer", FORMAT_GGUF_U32, 3, (uint32_t[]){7, 8, 9}, 12);
    gguf_make_array(&m, "floats", FORMAT_GGUF_F32, 2, (float[]){0.25f, -1}, 8);
    gguf_make_array(&m, "empty", FORMAT_GGUF_STRING, 0, NULL, 0);
    gguf_make_strings(&m, "words", (const char *const[]){"a", "", "bc"}, 3);
    size_t size = 0;
    uint8_t *file = gguf_make_take(&m, &size);
    format_gguf *g = NULL;
    beryl_error error = {0};
    CHECK_INT(t, open_bytes(&heap.heap, file, size, &g, &error), BERYL_OK);
    if (!g) return;
    uint32_t u = 1;
    int32_t i = 1;
    uint64_t ul = 1;
    int64_t l = 1;
    float f = 1;
    double d = 1;
    bool b = false;
    base_view v = {0};
    CHECK(t, !format_gguf_get_u32(g, "u8", &u, &error) && u == 200);
    CHECK(t, !format_gguf_get_u32(g, "u16", &u, &error) && u == 65535);
    CHECK(t, !format_gguf_get_u32(g, "u32", &u, &error) && u == 4000000000u);
    CHECK(t, !format_gguf_get_u32(g, "i32", &u, &error) && u == 64);
    CHECK_INT(t, format_gguf_get_u32(g, "i8", &u, &error), BERYL_BAD_FILE);
    CHECK_INT(t, format_gguf_get_u32(g, "u64", &u, &error), BERYL_BAD_FILE);
    CHECK_INT(t, format_gguf_get_u32(g, "f32", &u, &error), BERYL_BAD_FILE);
    CHECK_INT(t, format_gguf_get_u32(g, "bool", &u, &error), BERYL_BAD_FILE);
    CHECK_INT(t, format_gguf_get_u32(g, "string", &u, &error), BERYL_BAD_FILE);
    CHECK_INT(t, format_gguf_get_u32(g, "per_layer", &u, &error), BERYL_BAD_FILE);
    CHECK_INT(t, u, 64);
    CHECK_INT(t, format_gguf_get_u32(g, "none", &u, &error), BERYL_NOT_FOUND);
    CHECK(t, strstr(error.message, "\"none\"") != NULL);
    CHECK(t, !format_gguf_get_i32(g, "i8", &i, &error) && i == -5);
    CHECK(t, !format_gguf_get_i32(g, "i16", &i, &error) && i == -300);
    CHECK_INT(t, format_gguf_get_i32(g, "u32", &i, &error), BERYL_BAD_FILE);
    CHECK(t, !format_gguf_get_u64(g, "u64", &ul, &error) && ul == UINT64_MAX);
    CHECK_INT(t, format_gguf_get_u64(g, "i64", &ul, &error), BERYL_BAD_FILE);
    CHECK(t, !format_gguf_get_i64(g, "i64", &l, &error) && l == INT64_MIN);
    CHECK(t, !format_gguf_get_i64(g, "i16", &l, &error) && l == -300);
    CHECK_INT(t, format_gguf_get_i64(g, "u64", &l, &error), BERYL_BAD_FILE);
    CHECK(t, !format_gguf_get_f32(g, "f32", &f, &error) && f == 0.5f);
    CHECK_INT(t, format_gguf_get_f32(g, "f64", &f, &error), BERYL_BAD_FILE);
    CHECK_INT(t, format_gguf_get_f32(g, "nan", &f, &error), BERYL_BAD_FILE);
    CHECK_INT(t, format_gguf_get_f32(g, "u8", &f, &error), BERYL_BAD_FILE);
    CHECK(t, !format_gguf_get_f64(g, "f64", &d, &error) && d == 1e300);
    CHECK(t, !format_gguf_get_bool(g, "bool", &b, &error) && b);
    CHECK_INT(t, format_gguf_get_bool(g, "bool2", &b, &error), BERYL_BAD_FILE);
    CHECK_INT(t, format_gguf_get_bool(g, "i32", &b, &error), BERYL_BAD_FILE);
    CHECK(t, !format_gguf_get_string(g, "string", &v, &error) && v.size == 1 && v.data[0] == 'x');
    CHECK_INT(t, format_gguf_get_string(g, "words", &v, &error), BERYL_BAD_FILE);
    CHECK(t, !format_gguf_u32_at(g, "per_layer", 2, &u, &error) && u == 9);
    CHECK(t, !format_gguf_u32_at(g, "u8", 30, &u, &error) && u == 200);
    CHECK_INT(t, format_gguf_u32_at(g, "per_layer", 3, &u, &error), BERYL_BAD_FILE);
    CHECK(t, !format_gguf_f32_at(g, "floats", 1, &f, &error) && f == -1);
    CHECK(t, !format_gguf_i64_at(g, "per_layer", 0, &l, &error) && l == 7);
    CHECK(t, !format_gguf_u32_or(g, "none", 5, &u, &error) && u == 5);
    CHECK_INT(t, format_gguf_u32_or(g, "i8", 5, &u, &error), BERYL_BAD_FILE);
    CHECK(t, !format_gguf_f32_or(g, "none", 2, &f, &error) && f == 2);
    CHECK(t, !format_gguf_bool_or(g, "bool", false, &b, &error) && b);
    CHECK_INT(t, format_gguf_count(g, "per_layer"), 3);
    CHECK_INT(t, format_gguf_count(g, "u8"), 1);
    CHECK_INT(t, format_gguf_count(g, "none"), 0);
    base_arena arena;
    base_arena_init(&arena, &heap.heap);
    base_view *words = NULL;
    int32_t *ints = NULL;
    float *floats = NULL;
    size_t n = 0;
    CHECK(t, !format_gguf_strings(g, "words", &arena, &words, &n, &error) && n == 3);
    CHECK(t, words && words[1].size == 0 && base_view_equal(words[2], BASE_VIEW("bc")));
    CHECK(t, !format_gguf_strings(g, "empty", &arena, &words, &n, &error) && n == 0);
    CHECK_INT(t, format_gguf_strings(g, "string", &arena, &words, &n, &error), BERYL_BAD_FILE);
    CHECK_INT(t, format_gguf_strings(g, "per_layer", &arena, &words, &n, &error), BERYL_BAD_FILE);
    CHECK(t,
          !format_gguf_i32s(g, "per_layer", &arena, &ints, &n, &error) && n == 3 && ints[1] == 8);
    CHECK_INT(t, format_gguf_i32s(g, "words", &arena, &ints, &n, &error), BERYL_BAD_FILE);
    CHECK_INT(t, format_gguf_i32s(g, "floats", &arena, &ints, &n, &error), BERYL_BAD_FILE);
    CHECK(t, !format_gguf_f32s(g, "floats", &arena, &floats, &n, &error) && n == 2 &&
                 floats[0] == 0.25f);
    base_text out;
    base_text_init(&out, &heap.heap);
    for (size_t k = 0; k < format_gguf_n_pair(g); k++) {
        format_gguf_pair_write(format_gguf_pair_at(g, k), 2, &out);
        base_text_add(&out, " ", 1);
    }
    CHECK_TEXT(t, out.data,
               "200 -5 65535 -300 4000000000 64 18446744073709551615 -9223372036854775808 0.5 "
               "1.0000000000000001e+300 null true true \"x\" [7,8,\"...\"] [0.25,-1] [] "
               "[\"a\",\"\",\"...\"] ");
    base_text_fini(&out);
    base_arena_fini(&arena);
    format_gguf_close(g);
    CHECK_INT(t, heap.heap.bytes, 0);
    free(file);
}

/* What stands before, between and behind them stays as it was. */
static void test_forgotten(test *t) {
    enum { N = 5000 };
    static const char *many[N];
    static float scores[N];
    gguf_make m = {0};
    for (int i = 0; i < N; i++) many[i] = i % 2 ? "of two" : "x", scores[i] = (float)i;
    gguf_make_string(&m, "first", "stays");
    gguf_make_strings(&m, "merges", many, N);
    gguf_make_strings(&m, "few", many, 10);
    gguf_make_array(&m, "scores", FORMAT_GGUF_F32, N, scores, sizeof scores);
    gguf_make_strings(&m, "tokens", many, N);
    gguf_make_u32(&m, "last", 7);
    gguf_make_tensor(&m, "norm", 0, 1, (uint64_t[]){4}, NULL, 16);
    gguf_make_tensor(&m, "other", 0, 1, (uint64_t[]){8}, NULL, 32);
    trap heap;
    trap_init(&heap, 0);
    format_gguf *whole = NULL, *g = NULL;
    size_t size;
    uint8_t *file = gguf_make_take(&m, &size);
    CHECK_INT(t, open_bytes(&heap.heap, file, size, &whole, NULL), BERYL_OK);
    CHECK_INT(t, open_bytes(&heap.heap, file, size, &g, NULL), BERYL_OK);
    uint64_t hashes[2] = {0};
    const uint64_t before = heap.heap.bytes;
    static const char *const keys[] = {"scores", "merges", "few", "nowhere"};
    for (int i = 0; i < 4; i++) format_gguf_forget(g, keys[i]);
    CHECK_INT(t, before - heap.heap.bytes, N * 4 + N / 2 * (8 + 1 + 8 + 6));
    CHECK_INT(t, format_gguf_count(g, "merges"), N);
    for (size_t i = 0; i < format_gguf_n_pair(whole); i++) {
        const format_gguf_pair *a = format_gguf_pair_at(whole, i), *b = format_gguf_pair_at(g, i);
        char key[10] = "";
        memcpy(key, a->key.data, a->key.size);
        CHECK(t, base_view_equal(a->key, b->key) && a->count == b->count);
        CHECK(t, format_gguf_find(g, key) == b);
        CHECK(t, !b->data || (a->size == b->size && !memcmp(a->data, b->data, a->size)));
        CHECK_INT(t, b->data == NULL,
                  base_view_equal(a->key, BASE_VIEW("scores")) ||
                      base_view_equal(a->key, BASE_VIEW("merges")));
    }
    for (size_t i = 0; i < 2; i++) {
        const format_gguf_tensor *a = format_gguf_tensor_at(whole, i);
        const format_gguf_tensor *b = format_gguf_tensor_find(g, i ? "other" : "norm");
        CHECK(t, b && b->offset == a->offset && base_view_equal(a->name, b->name));
    }
    CHECK_INT(t, format_gguf_hash(whole, &hashes[0], NULL), BERYL_OK);
    CHECK_INT(t, format_gguf_hash(g, &hashes[1], NULL), BERYL_OK);
    CHECK(t, hashes[0] == hashes[1] && hashes[0]);
    format_gguf_close(whole);
    format_gguf_close(g);
    CHECK_INT(t, heap.heap.bytes, 0);
    free(file);
}

static void test_sources(test *t) {
    gguf_make m = {0};
    make_small(&m);
    size_t size = 0;
    uint8_t *file = gguf_make_take(&m, &size);
    uint64_t whole_hash = 0;
    if (test_case(t, "gguf/hash")) {
        trap heap;
        trap_init(&heap, 0);
        format_gguf *g = NULL;
        CHECK_INT(t, open_bytes(&heap.heap, file, size, &g, NULL), BERYL_OK);
        CHECK(t, g && !format_gguf_hash(g, &whole_hash, NULL) && whole_hash);
        format_gguf_close(g);
        for (int which = 0; which < 3; which++) { /* a key, the middle of a tensor, a byte more */
            uint8_t *other = malloc(size + 1);
            if (!other) abort();
            memcpy(other, file, size);
            other[size] = 0;
            if (which == 0) other[24 + 8 + 20 + 4 + 8] ^= 1;
            if (which == 1) other[size - 288] ^= 1;
            uint64_t hash = 0;
            g = NULL;
            CHECK_INT(t, open_bytes(&heap.heap, other, size + (which == 2), &g, NULL), BERYL_OK);
            CHECK(t, g && !format_gguf_hash(g, &hash, NULL) && hash != whole_hash);
            format_gguf_close(g);
            free(other);
        }
        CHECK_INT(t, heap.heap.bytes, 0);
    }
    if (test_case(t, "gguf/forgotten-arrays-are-given-back")) test_forgotten(t);
    if (test_case(t, "gguf/source-that-answers-later")) {
        trap heap;
        trap_init(&heap, 0);
        slow source = {.data = file, .size = size};
        beryl_source s = slow_source(&source);
        format_gguf *g = NULL;
        beryl_error error = {0};
        CHECK_INT(t, format_gguf_open(&heap.heap, &s, 1, &g, &error), BERYL_OK);
        CHECK_INT(t, format_gguf_step(g, &error), BERYL_PENDING);
        CHECK_INT(t, finish(g, &error), BERYL_OK);
        check_small(t, g);
        uint64_t hash = 0, want = whole_hash;
        beryl_status status;
        while ((status = format_gguf_hash(g, &hash, &error)) == BERYL_PENDING) {}
        CHECK_INT(t, status, BERYL_OK);
        if (want) CHECK(t, hash == want);
        CHECK(t, source.n_pending >= 4 && !source.changed);
        format_gguf_close(g);
        CHECK_INT(t, source.n_close, 1);
        /* what was read of it for others is not asked for again */
        s = slow_source(&source);
        CHECK_INT(t, format_gguf_open(&heap.heap, &s, 1, &g, &error), BERYL_OK);
        CHECK_INT(t, finish(g, &error), BERYL_OK);
        const beryl_source *heard = format_gguf_source(g, 0);
        uint8_t *bytes = malloc(size);
        if (!bytes) abort();
        while ((status = heard->read(heard->user, 0, bytes, size)) == BERYL_PENDING) {}
        CHECK_INT(t, status, BERYL_OK);
        const int before = source.n_pending;
        CHECK_INT(t, format_gguf_hash(g, &hash, &error), BERYL_OK);
        CHECK(t, source.n_pending == before && (!want || hash == want));
        free(bytes);
        format_gguf_close(g);
        CHECK_INT(t, heap.heap.bytes, 0);
    }
    if (test_case(t, "gguf/head-copy-grows-to-its-size")) {
        gguf_make big = {0};
        enum { N = 60000 };
        gguf_make_array(&big, "tokenizer.ggml.tokens", FORMAT_GGUF_STRING, N, NULL, 0);
        for (int i = 0; i < N; i++) {
            gguf_bytes_u64(&big.pairs, 6);
            gguf_bytes_add(&big.pairs, "sixsix", 6);
        }
        gguf_make_tensor(&big, "w", 0, 2, (uint64_t[]){1024, 1024}, NULL, 4 << 20);
        size_t big_size = 0;
        uint8_t *bytes = gguf_make_take(&big, &big_size);
        trap heap;
        trap_init(&heap, 0);
        slow source = {.data = bytes, .size = big_size};
        beryl_source s = slow_source(&source);
        format_gguf *g = NULL;
        CHECK_INT(t, format_gguf_open(&heap.heap, &s, 1, &g, NULL), BERYL_OK);
        CHECK_INT(t, finish(g, NULL), BERYL_OK);
        base_arena arena;
        base_arena_init(&arena, &heap.heap);
        base_view *words = NULL;
        size_t n = 0;
        CHECK(t,
              !format_gguf_strings(g, "tokenizer.ggml.tokens", &arena, &words, &n, NULL) && n == N);
        CHECK(t, n == N && base_view_equal(words[N - 1], BASE_VIEW("sixsix")));
        base_arena_fini(&arena);
        CHECK(t, heap.heap.bytes <
                     N * 14 + 8192); /* the head, not the data and not the room it grew into */
        format_gguf_close(g);
        CHECK_INT(t, heap.heap.bytes, 0);
        CHECK(t, !source.changed);
        free(bytes);
    }
    if (test_case(t, "gguf/source-that-fails")) {
        trap heap;
        trap_init(&heap, 0);
        slow source = {.data = file, .size = size, .broken = true};
        beryl_source s = slow_source(&source);
        format_gguf *g = NULL;
        beryl_error error = {0};
        CHECK_INT(t, format_gguf_open(&heap.heap, &s, 1, &g, &error), BERYL_OK);
        CHECK_INT(t, finish(g, &error), BERYL_IO);
        CHECK_INT(t, finish(g, &error), BERYL_IO); /* sticky */
        CHECK(t, strstr(error.message, "reading") != NULL);
        format_gguf_close(g);
        CHECK_INT(t, source.n_close, 1);
        CHECK_INT(t, heap.heap.bytes, 0);
    }
    free(file);
}

/* ---- wrong files */

static void test_container(test *t) {
    gguf_make m = {0};
    if (test_case(t, "gguf/not-gguf")) {
        base_heap heap;
        base_heap_init(&heap, NULL);
        format_gguf *g = NULL;
        beryl_error error = {0};
        CHECK_INT(t,
                  open_bytes(&heap, "GGML\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24, &g, &error),
                  BERYL_BAD_FILE);
        CHECK(t, strstr(error.message, "no GGUF file") != NULL);
        CHECK_INT(t, open_bytes(&heap, "", 0, &g, &error), BERYL_BAD_FILE);
        CHECK_INT(t, format_gguf_open(&heap, NULL, 0, &g, &error), BERYL_MISUSE);
    }
    if (test_case(t, "gguf/version-1"))
        m.version = 1, expect(t, &m, BERYL_UNSUPPORTED, "version 1");
    if (test_case(t, "gguf/version-4"))
        m.version = 4, expect(t, &m, BERYL_UNSUPPORTED, "version 4");
    if (test_case(t, "gguf/big-endian"))
        m.version = 0x03000000, expect(t, &m, BERYL_UNSUPPORTED, "big-endian");
    if (test_case(t, "gguf/huge-counts")) {
        static const uint64_t counts[] = {1,         2,         1000, UINT32_MAX, UINT64_MAX / 14,
                                          INT64_MAX, UINT64_MAX};
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            gguf_make_string(&m, "a", "b");
            m.n_pair = counts[i] + 1 ? counts[i] + 1 : counts[i];
            expect(t, &m, BERYL_BAD_FILE, "the file");
            gguf_make_string(&m, "a", "b");
            m.n_tensor = counts[i];
            expect(t, &m, BERYL_BAD_FILE, "the file");
        }
    }
    if (test_case(t, "gguf/alignment-values")) {
        static const uint32_t wrong[] = {0, 1, 4, 24, 33, 1u << 21, UINT32_MAX};
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            gguf_make_u32(&m, "general.alignment", wrong[i]);
            expect(t, &m, BERYL_BAD_FILE, "alignment");
        }
        gguf_make_string(&m, "general.alignment", "32");
        expect(t, &m, BERYL_BAD_FILE, "alignment");
    }
}

static void test_keys(test *t) {
    gguf_make m = {0};
    if (test_case(t, "gguf/key-twice")) {
        gguf_make_u32(&m, "a.b", 1);
        gguf_make_u32(&m, "a.b", 1);
        expect(t, &m, BERYL_BAD_FILE, "\"a.b\" twice");
    }
    if (test_case(t, "gguf/key-empty"))
        gguf_make_u32(&m, "", 1), expect(t, &m, BERYL_BAD_FILE, "0 bytes");
    if (test_case(t, "gguf/key-with-nul")) {
        gguf_make_u32(&m, "abc", 1);
        m.pairs.data[9] = 0;
        expect(t, &m, BERYL_BAD_FILE, "NUL");
    }
    if (test_case(t, "gguf/key-longest")) {
        for (size_t n = 65535; n <= 65536; n++) {
            char *key = malloc(n + 1);
            if (!key) abort();
            memset(key, 'k', n), key[n] = 0;
            gguf_make_u32(&m, key, 1);
            expect(t, &m, n == 65535 ? BERYL_OK : BERYL_BAD_FILE,
                   n == 65535 ? NULL : "65536 bytes");
            free(key);
        }
    }
    if (test_case(t, "gguf/key-message-is-printable")) {
        trap heap;
        trap_init(&heap, 0);
        gguf_make_u32(&m, "\x1b[2Jx\ny", 1);
        gguf_make_u32(&m, "\x1b[2Jx\ny", 1);
        expect(t, &m, BERYL_BAD_FILE, "\"?[2Jx?y\"");
    }
    if (test_case(t, "gguf/key-length-overflows")) {
        static const uint64_t sizes[] = {100, INT64_MAX, UINT64_MAX - 8, UINT64_MAX};
        for (size_t i = 0; i < 4; i++) {
            gguf_make_u32(&m, "abc", 1);
            memcpy(m.pairs.data, &sizes[i], 8);
            expect(t, &m, BERYL_BAD_FILE, "the file");
            gguf_make_string(&m, "abc", "def");
            memcpy(m.pairs.data + 15, &sizes[i], 8);
            expect(t, &m, BERYL_BAD_FILE, "cut short");
        }
    }
    if (test_case(t, "gguf/value-kind-unknown")) {
        for (uint32_t kind = 13; kind; kind *= 2) {
            gguf_make_scalar(&m, "some.key", (format_gguf_kind)kind, "12345678", 8);
            expect(t, &m, BERYL_BAD_FILE, "some.key");
            gguf_make_array(&m, "some.key", (format_gguf_kind)kind, 1, "12345678", 8);
            expect(t, &m, BERYL_BAD_FILE, "unknown value type");
        }
    }
    if (test_case(t, "gguf/array-nested")) {
        gguf_make_array(&m, "deep", FORMAT_GGUF_ARRAY, 0, "12345678", 8);
        expect(t, &m, BERYL_UNSUPPORTED, "array of arrays");
    }
    if (test_case(t, "gguf/array-count-overflows")) {
        static const uint64_t counts[] = {3, UINT64_C(1) << 61, UINT64_C(1) << 62, INT64_MAX,
                                          UINT64_MAX};
        for (size_t i = 0; i < 5; i++) {
            gguf_make_array(&m, "list", FORMAT_GGUF_U64, counts[i], "12345678", 8);
            expect(t, &m, BERYL_BAD_FILE, "list");
            gguf_make_array(&m, "list", FORMAT_GGUF_STRING, counts[i], "\0\0\0\0\0\0\0", 8);
            expect(t, &m, BERYL_BAD_FILE, "list");
        }
    }
}

static void one_tensor(test *t, uint32_t type, uint32_t n_dim, const uint64_t *ne, uint64_t offset,
                       beryl_status want, const char *part) {
    gguf_make m = {0};
    gguf_make_tensor(&m, "first", 0, 1, (uint64_t[]){16}, NULL, 64);
    gguf_make_tensor_head(&m, "second", type, n_dim, ne, offset);
    expect(t, &m, want, part);
}

static void test_tensors(test *t) {
    gguf_make m = {0};
    if (test_case(t, "gguf/tensor-range-outside-file")) {
        one_tensor(t, 0, 1, (uint64_t[]){8}, 32, BERYL_OK, NULL); /* tensors may share bytes */
        one_tensor(t, 0, 1, (uint64_t[]){9}, 32, BERYL_BAD_FILE, "\"second\" lies outside");
        one_tensor(t, 0, 1, (uint64_t[]){1}, 64, BERYL_BAD_FILE, "\"second\" lies outside");
        one_tensor(t, 0, 1, (uint64_t[]){1}, 1 << 20, BERYL_BAD_FILE, "\"second\" lies outside");
        one_tensor(t, 0, 1, (uint64_t[]){1}, UINT64_MAX - 31, BERYL_BAD_FILE,
                   "\"second\" lies outside");
        one_tensor(t, 0, 1, (uint64_t[]){8}, UINT64_MAX - 31, BERYL_BAD_FILE,
                   "\"second\" lies outside");
    }
    if (test_case(t, "gguf/tensor-offset-unaligned"))
        one_tensor(t, 0, 1, (uint64_t[]){1}, 4, BERYL_BAD_FILE, "alignment 32");
    if (test_case(t, "gguf/tensor-size-overflows")) {
        one_tensor(t, 0, 1, (uint64_t[]){UINT64_MAX}, 0, BERYL_BAD_FILE, "larger");
        one_tensor(t, 0, 1, (uint64_t[]){UINT64_C(1) << 62}, 0, BERYL_BAD_FILE, "larger");
        one_tensor(t, 0, 2, (uint64_t[]){UINT64_C(1) << 32, UINT64_C(1) << 32}, 0, BERYL_BAD_FILE,
                   "larger");
        one_tensor(t, 0, 4, (uint64_t[]){65536, 65536, 65536, 65536}, 0, BERYL_BAD_FILE, "larger");
        one_tensor(t, 12, 3, (uint64_t[]){256, UINT64_C(1) << 55, 2}, 0, BERYL_BAD_FILE, "larger");
        one_tensor(t, 24, 1, (uint64_t[]){INT64_MAX}, 0, BERYL_BAD_FILE, "larger");
    }
    if (test_case(t, "gguf/tensor-dimensions")) {
        one_tensor(t, 0, 1, (uint64_t[]){0}, 0, BERYL_BAD_FILE, "dimension of 0");
        one_tensor(t, 0, 3, (uint64_t[]){2, 0, 2}, 0, BERYL_BAD_FILE, "dimension of 0");
        one_tensor(t, 0, 0, (uint64_t[]){0}, 0, BERYL_BAD_FILE, "0 dimensions");
        one_tensor(t, 0, 5, (uint64_t[]){1, 1, 1, 1, 1}, 0, BERYL_BAD_FILE, "5 dimensions");
        one_tensor(t, 0, 4, (uint64_t[]){2, 2, 2, 2}, 0, BERYL_OK, NULL);
    }
    if (test_case(t, "gguf/tensor-rows-not-whole-blocks")) {
        one_tensor(t, 8, 1, (uint64_t[]){33}, 0, BERYL_BAD_FILE, "Q8_0 block");
        one_tensor(t, 14, 2, (uint64_t[]){128, 2}, 0, BERYL_BAD_FILE, "Q6_K block");
    }
    if (test_case(t, "gguf/tensor-type-unsupported-is-named")) {
        one_tensor(t, 41, 1, (uint64_t[]){256}, 0, BERYL_UNSUPPORTED,
                   "\"second\" has the type Q1_0");
        one_tensor(t, 9, 1, (uint64_t[]){32}, 0, BERYL_UNSUPPORTED, "Q8_1");
        one_tensor(t, 77, 1, (uint64_t[]){32}, 0, BERYL_BAD_FILE, "unknown type 77");
        one_tensor(t, UINT32_MAX, 1, (uint64_t[]){32}, 0, BERYL_BAD_FILE,
                   "unknown type 4294967295");
    }
    if (test_case(t, "gguf/tensor-names")) {
        gguf_make_tensor(&m, "x", 0, 1, (uint64_t[]){1}, NULL, 4);
        gguf_make_tensor(&m, "x", 0, 1, (uint64_t[]){1}, NULL, 4);
        expect(t, &m, BERYL_BAD_FILE, "\"x\" twice");
        gguf_make_tensor(&m, "", 0, 1, (uint64_t[]){1}, NULL, 4);
        expect(t, &m, BERYL_BAD_FILE, "0 bytes");
        gguf_make_tensor(&m, "ab", 0, 1, (uint64_t[]){1}, NULL, 4);
        m.tensors.data[8] = 0;
        expect(t, &m, BERYL_BAD_FILE, "NUL");
        char name[66] = {0};
        memset(name, 'n', 64);
        gguf_make_tensor(&m, name, 0, 1, (uint64_t[]){1}, NULL, 4);
        expect(t, &m, BERYL_OK, NULL);
        name[64] = 'n';
        gguf_make_tensor(&m, name, 0, 1, (uint64_t[]){1}, NULL, 4);
        expect(t, &m, BERYL_BAD_FILE, "65 bytes");
    }
}

static void test_hostile(test *t) {
    gguf_make m = {0};
    make_small(&m);
    size_t size = 0;
    uint8_t *file = gguf_make_take(&m, &size);
    if (test_case(t, "gguf/truncated-anywhere")) {
        trap heap;
        trap_init(&heap, 0);
        for (size_t cut = 0; cut < size; cut++) {
            uint8_t *copy = malloc(cut ? cut : 1);
            if (!copy) abort();
            memcpy(copy, file, cut);
            for (int at_once = 0; at_once < 2; at_once++) {
                slow source = {.data = copy, .size = cut};
                beryl_source s = at_once ? base_source_of_memory(copy, cut) : slow_source(&source);
                format_gguf *g = NULL;
                beryl_error error = {0};
                beryl_status status = format_gguf_open(&heap.heap, &s, 1, &g, &error);
                if (!status) status = finish(g, &error);
                if (status != BERYL_BAD_FILE || !error.message[0]) {
                    test_fail(t, __FILE__, __LINE__, "cut at %zu: %s %s", cut,
                              beryl_status_name(status), error.message);
                }
                format_gguf_close(g);
            }
            free(copy);
        }
        CHECK_INT(t, heap.heap.bytes, 0);
    }
    if (test_case(t, "gguf/byte-flips")) {
        trap heap;
        trap_init(&heap, 0);
        size_t n_ok = 0, head = size - 16 - 16 - 204 - 20 - 576; /* all but the tensors' data */
        uint8_t *copy = malloc(size);
        if (!copy) abort();
        for (size_t at = 0; at < head; at++) {
            for (int bit = 0; bit < 9; bit++) {
                memcpy(copy, file, size);
                copy[at] = (uint8_t)(bit < 8 ? file[at] ^ 1 << bit : 0xff);
                format_gguf *g = NULL;
                beryl_error error = {0};
                beryl_status status = open_bytes(&heap.heap, copy, size, &g, &error);
                if (status && status != BERYL_BAD_FILE && status != BERYL_UNSUPPORTED &&
                    status != BERYL_BAD_INPUT) {
                    test_fail(t, __FILE__, __LINE__, "flip at %zu: %s", at,
                              beryl_status_name(status));
                }
                CHECK(t, !status || error.message[0]);
                uint64_t hash = 0;
                n_ok += g != NULL;
                if (g) CHECK_INT(t, format_gguf_hash(g, &hash, &error), BERYL_OK);
                format_gguf_close(g);
            }
        }
        CHECK(t, n_ok > 0);
        CHECK_INT(t, heap.heap.bytes, 0);
        free(copy);
    }
    if (test_case(t, "gguf/allocator-fails-at-every-call")) {
        for (int at_once = 0; at_once < 2; at_once++) {
            uint64_t n = 0;
            bool hit = true; /* the n-th call took place, so there may be a later one */
            while (hit && ++n < 200) {
                trap heap;
                trap_init(&heap, n);
                slow source = {.data = file, .size = size};
                beryl_source s = at_once ? base_source_of_memory(file, size) : slow_source(&source);
                format_gguf *g = NULL;
                beryl_error error = {0};
                beryl_status status = format_gguf_open(&heap.heap, &s, 1, &g, &error);
                if (!status) status = finish(g, &error);
                if (!status) {
                    base_arena arena;
                    base_arena_init(&arena, &heap.heap);
                    base_view *words = NULL;
                    size_t n_word = 0;
                    status = format_gguf_strings(g, "tokenizer.ggml.tokens", &arena, &words,
                                                 &n_word, &error);
                    base_arena_fini(&arena);
                }
                CHECK(t, !status || (status == BERYL_NO_MEMORY && error.message[0]));
                format_gguf_close(g);
                CHECK_INT(t, heap.heap.bytes, 0);
                if (!at_once) CHECK_INT(t, source.n_close, 1);
                hit = heap.calls >= n;
            }
            CHECK(t, n > 6 && n < 200);
        }
    }
    free(file);
}

/* ---- split files */

enum { N_PART = 3 };

static uint8_t *split_part(uint16_t no, uint16_t count, int32_t n_tensor, size_t *size) {
    gguf_make m = {0};
    char name[32];
    if (no == 0) gguf_make_string(&m, "general.architecture", "gemma4");
    gguf_make_scalar(&m, "split.no", FORMAT_GGUF_U16, &no, 2);
    gguf_make_scalar(&m, "split.count", FORMAT_GGUF_U16, &count, 2);
    gguf_make_scalar(&m, "split.tensors.count", FORMAT_GGUF_I32, &n_tensor, 4);
    for (int i = 0; i < no; i++) { /* the first part has none */
        snprintf(name, sizeof name, "t.%d.%d", no, i);
        gguf_make_tensor(&m, name, 0, 1, (uint64_t[]){1}, (float[]){(float)(10 * no + i)}, 4);
    }
    return gguf_make_take(&m, size);
}

static void write_file(test *t, const char *path, const void *data, size_t size) {
    beryl_error error = {0};
    if (base_file_write(path, data, size, &error))
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
}

static beryl_status open_path(base_heap *heap, const char *path, format_gguf **g,
                              beryl_error *error) {
    beryl_status status = format_gguf_open_path(heap, path, g, error);
    if (!status) status = finish(*g, error);
    if (status) format_gguf_close(*g), *g = NULL;
    return status;
}

static void test_split(test *t) {
    trap heap;
    char path[300];
    beryl_error error = {0};
    format_gguf *g = NULL;
    if (test_case(t, "gguf/split-by-path")) {
        trap_init(&heap, 0);
        for (uint16_t i = 0; i < N_PART; i++) {
            size_t size = 0;
            uint8_t *file = split_part(i, N_PART, 3, &size);
            snprintf(path, sizeof path, "%s/model-%05d-of-%05d.gguf", test_scratch(t), i + 1,
                     N_PART);
            write_file(t, path, file, size);
            free(file);
        }
        snprintf(path, sizeof path, "%s/model-00001-of-00003.gguf", test_scratch(t));
        CHECK_INT(t, open_path(&heap.heap, path, &g, &error), BERYL_OK);
        if (g) {
            CHECK_INT(t, format_gguf_n_file(g), 3);
            CHECK_INT(t, format_gguf_n_tensor(g), 3);
            const format_gguf_tensor *x = format_gguf_tensor_find(g, "t.2.1");
            CHECK(t, x && x->file == 2);
            CHECK(t, first_value(g, "t.2.1") == 21);
            uint64_t hash = 0;
            CHECK_INT(t, format_gguf_hash(g, &hash, &error), BERYL_OK);
        }
        format_gguf_close(g);
        snprintf(path, sizeof path, "%s/model-00002-of-00003.gguf", test_scratch(t));
        CHECK_INT(t, open_path(&heap.heap, path, &g, &error), BERYL_BAD_INPUT);
        CHECK(t, strstr(error.message, "open the first part, model-00001-of-00003.gguf") != NULL);
        remove(path);
        snprintf(path, sizeof path, "%s/model-00001-of-00003.gguf", test_scratch(t));
        CHECK_INT(t, open_path(&heap.heap, path, &g, &error), BERYL_NOT_FOUND);
        CHECK(t, strstr(error.message, "model-00002-of-00003.gguf") != NULL);
        CHECK_INT(t, heap.heap.bytes, 0);
        snprintf(path, sizeof path, "%s/renamed.gguf", test_scratch(t));
        size_t size = 0;
        uint8_t *file = split_part(0, N_PART, 3, &size);
        write_file(t, path, file, size);
        free(file);
        CHECK_INT(t, open_path(&heap.heap, path, &g, &error), BERYL_BAD_INPUT);
        CHECK(t, strstr(error.message, "-00001-of-00003.gguf") != NULL);
        CHECK_INT(t, heap.heap.bytes, 0);
    }
    if (test_case(t, "gguf/split-parts-must-fit")) {
        trap_init(&heap, 0);
        static const struct {
            uint16_t no[3], count[3];
            int32_t n_tensor;
            size_t n_given;
            beryl_status status;
        } rows[] = {
            {{0, 1, 2}, {3, 3, 3}, 3, 3, BERYL_OK},
            {{0, 1, 2}, {3, 3, 3}, 3, 2, BERYL_BAD_INPUT},
            {{0, 1, 2}, {3, 3, 3}, 3, 1, BERYL_BAD_INPUT},
            {{0, 2, 1}, {3, 3, 3}, 3, 3, BERYL_BAD_FILE},
            {{0, 1, 1}, {3, 3, 3}, 3, 3, BERYL_BAD_FILE},
            {{0, 1, 2}, {3, 4, 3}, 3, 3, BERYL_BAD_FILE},
            {{0, 1, 2}, {3, 3, 3}, 4, 3, BERYL_BAD_FILE},
            {{1, 0, 2}, {3, 3, 3}, 3, 3, BERYL_BAD_INPUT},
            {{0, 1, 2}, {0, 3, 3}, 3, 3, BERYL_BAD_INPUT},
            {{0, 1, 2}, {9999, 3, 3}, 3, 3, BERYL_BAD_FILE},
        };
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            beryl_source sources[3];
            slow slows[3];
            uint8_t *files[3];
            for (size_t i = 0; i < 3; i++) {
                slows[i] = (slow){0};
                files[i] =
                    split_part(rows[r].no[i], rows[r].count[i], rows[r].n_tensor, &slows[i].size);
                slows[i].data = files[i];
                sources[i] = slow_source(&slows[i]);
            }
            beryl_status status =
                format_gguf_open(&heap.heap, sources, rows[r].n_given, &g, &error);
            if (!status) status = finish(g, &error);
            if (status != rows[r].status) {
                test_fail(t, __FILE__, __LINE__, "row %zu: %s (%s)", r, beryl_status_name(status),
                          status ? error.message : "");
            }
            format_gguf_close(g);
            for (size_t i = 0; i < 3; i++) {
                CHECK_INT(t, slows[i].n_close, i < rows[r].n_given);
                free(files[i]);
            }
        }
        CHECK_INT(t, heap.heap.bytes, 0);
    }
}

/* ---- the fixtures */

static void test_fixtures(test *t) {
    static const struct {
        const char *name, *architecture;
        base_type embedding; /* of token_embd.weight, read from the file's entry */
        uint32_t n_layer;
    } rows[] = {
        {"e2b-f32.gguf", "gemma4", TYPE_F32, 0},
        {"e2b-q4km.gguf", "gemma4", TYPE_Q6_K, 0},
        {"e2b-q4_0.gguf", "gemma4", TYPE_COUNT, 0},
        {"moe-26b.gguf", "gemma4", TYPE_COUNT, 0},
        {"dense-31b.gguf", "gemma4", TYPE_COUNT, 0},
        {"e2b-mm.gguf", "gemma4", TYPE_COUNT, 0},
        {"e2b-mmproj.gguf", "gemma4", TYPE_COUNT, 0},
        {"e2b-mmproj.mmproj.gguf", "clip", TYPE_COUNT, 0},
        {"31b-vision.gguf", "gemma4", TYPE_COUNT, 0},
        {"e2b-f32.ref.gguf", "reference", TYPE_COUNT, 0},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        if (!test_case(t, "gguf/fixture-%s", rows[r].name)) continue;
        const char *path = test_data(t, rows[r].name);
        if (!base_file_exists(path)) {
            test_skip(t, "%s is not here", rows[r].name);
            continue;
        }
        trap heap;
        trap_init(&heap, 0);
        format_gguf *g = NULL;
        beryl_error error = {0};
        if (open_path(&heap.heap, path, &g, &error)) {
            test_fail(t, __FILE__, __LINE__, "%s", error.message);
            continue;
        }
        base_view architecture = {0};
        CHECK_INT(t, format_gguf_get_string(g, "general.architecture", &architecture, &error),
                  BERYL_OK);
        CHECK(t, base_view_equal(architecture, base_view_of(rows[r].architecture)));
        CHECK(t, format_gguf_n_tensor(g) > 0);
        CHECK(t, format_gguf_data_size(g) < format_gguf_size(g));
        uint64_t end = 0, hash = 0;
        for (size_t i = 0; i < format_gguf_n_tensor(g); i++) {
            const format_gguf_tensor *x = format_gguf_tensor_at(g, i);
            char name[80];
            snprintf(name, sizeof name, "%.*s", (int)x->name.size, x->name.data);
            CHECK(t, format_gguf_tensor_find(g, name) == x);
            if (x->offset + x->size > end) end = x->offset + x->size;
        }
        /* The last tensor reaches the end of the file: offsets and sizes are what the writer meant.
         */
        CHECK(t, end <= format_gguf_size(g) && format_gguf_size(g) - end < 32);
        CHECK_INT(t, format_gguf_hash(g, &hash, &error), BERYL_OK);
        if (!strcmp(rows[r].architecture, "gemma4")) {
            uint32_t n_layer = 0, ff = 0;
            bool sliding = false;
            CHECK_INT(t, format_gguf_get_u32(g, "gemma4.block_count", &n_layer, &error), BERYL_OK);
            for (uint32_t i = 0; i < n_layer; i++) {
                CHECK_INT(t, format_gguf_u32_at(g, "gemma4.feed_forward_length", i, &ff, &error),
                          BERYL_OK);
                CHECK_INT(t,
                          format_gguf_bool_at(g, "gemma4.attention.sliding_window_pattern", i,
                                              &sliding, &error),
                          BERYL_OK);
            }
            base_arena arena;
            base_arena_init(&arena, &heap.heap);
            base_view *tokens = NULL;
            int32_t *types = NULL;
            size_t n = 0, n_type = 0;
            CHECK_INT(t,
                      format_gguf_strings(g, "tokenizer.ggml.tokens", &arena, &tokens, &n, &error),
                      BERYL_OK);
            CHECK_INT(
                t,
                format_gguf_i32s(g, "tokenizer.ggml.token_type", &arena, &types, &n_type, &error),
                BERYL_OK);
            CHECK_INT(t, n_type, n);
            base_arena_fini(&arena);
            const format_gguf_tensor *x = format_gguf_tensor_find(g, "token_embd.weight");
            CHECK(t, x && x->ne[1] == n);
            if (x && rows[r].embedding != TYPE_COUNT) CHECK_INT(t, x->type, rows[r].embedding);
        }
        format_gguf_close(g);
        CHECK_INT(t, heap.heap.bytes, 0);
    }
}

/* A real file, cut, and with single bits of its head turned over: a clear error, or a file that
 * still holds together. */
static void test_fixture_copies(test *t) {
    if (!test_case(t, "gguf/fixture-cut-and-flipped")) return;
    trap heap;
    trap_init(&heap, 0);
    char *data = NULL;
    size_t size = 0, head = 0;
    beryl_error error = {0};
    format_gguf *g = NULL;
    if (base_file_read(&heap.heap, test_data(t, "e2b-q4_0.gguf"), 1 << 24, &data, &size, &error)) {
        test_skip(t, "%s", error.message);
        return;
    }
    CHECK_INT(t, open_bytes(&heap.heap, data, size, &g, &error), BERYL_OK);
    head = size;
    for (size_t i = 0; g && i < format_gguf_n_tensor(g); i++) {
        uint64_t offset = format_gguf_tensor_at(g, i)->offset;
        if (offset < head) head = (size_t)offset;
    }
    format_gguf_close(g);
    base_random random = {7};
    for (int i = 0; i < 100; i++) { /* half of the cuts in the head, half in the data */
        size_t cut = (size_t)(base_random_next(&random) % (i < 50 ? head : size));
        CHECK_INT(t, open_bytes(&heap.heap, data, cut, &g, &error), BERYL_BAD_FILE);
        format_gguf_close(g);
    }
    for (int i = 0; i < 300; i++) {
        size_t at = (size_t)(base_random_next(&random) % head);
        char bit = (char)(1 << base_random_next(&random) % 7);
        data[at] = (char)(data[at] ^ bit);
        error = (beryl_error){0};
        beryl_status status = open_bytes(&heap.heap, data, size, &g, &error);
        CHECK(t, !status || status == BERYL_BAD_FILE || status == BERYL_UNSUPPORTED);
        CHECK(t, !status || error.message[0]);
        format_gguf_close(g);
        data[at] = (char)(data[at] ^ bit);
    }
    base_heap_give(&heap.heap, data, size + 1);
    CHECK_INT(t, heap.heap.bytes, 0);
}

void test_gguf(test *t);
void test_gguf(test *t) {
    test_right(t);
    test_values(t);
    test_sources(t);
    test_container(t);
    test_keys(t);
    test_tensors(t);
    test_hostile(t);
    test_split(t);
    test_fixtures(t);
    test_fixture_copies(t);
}
