/* checkpoint_test.c - where a training stands, as a file (train/checkpoint.h): what is written is
 * read, and what is not that is refused by name. */
#include "train/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

enum { N = 2, VALUES = 6 };

typedef struct fixture {
    base_heap heap;
    base_arena arena;
    format_safetensor tensors[N];
    train_checkpoint checkpoint;
    base_text file;
} fixture;

static const float values[N][VALUES] = {{1, -2, 3, 4.5f, 0, 6}, {7, 8, 9, -0.0f, 1e-30f, 12}};

static void describe(fixture *f) {
    f->tensors[0] = (format_safetensor){
        .name = BASE_VIEW("a.value"), .type = TYPE_F32, .n_dim = 2, .dim = {2, 3}};
    f->tensors[1] = (format_safetensor){
        .name = BASE_VIEW("a.mean"), .type = TYPE_F32, .n_dim = 2, .dim = {3, 2}};
    f->checkpoint = (train_checkpoint){
        .path = "here", .steps = 9, .n_setting = 2, .n = N, .tensors = f->tensors};
    f->checkpoint.settings[0][0] = BASE_VIEW("rank");
    f->checkpoint.settings[0][1] = BASE_VIEW("4");
    f->checkpoint.settings[1][0] = BASE_VIEW("schedule");
    f->checkpoint.settings[1][1] = BASE_VIEW("cosine");
}

/* The file of `checkpoint` with these values. */
static void write(fixture *f, const float (*from)[VALUES]) {
    uint64_t hash = train_checkpoint_hash(&f->checkpoint);
    base_text_clear(&f->file);
    train_checkpoint_head(&f->checkpoint, &f->file);
    for (int i = 0; i < N; i++) {
        base_text_add(&f->file, (const char *)from[i], sizeof from[i]);
        hash = base_hash(from[i], sizeof from[i], hash);
    }
    base_text_add(&f->file, (const char *)&hash, sizeof hash);
}

static void begin(fixture *f) {
    *f = (fixture){0};
    base_heap_init(&f->heap, NULL);
    base_arena_init(&f->arena, &f->heap);
    base_text_init(&f->file, &f->heap);
    describe(f);
    f->checkpoint.progress = (train_progress){5, 5, 4, 1, 1.0 / 3};
    write(f, values);
}

static void end(test *t, fixture *f) {
    base_arena_fini(&f->arena);
    base_text_fini(&f->file);
    CHECK_INT(t, f->heap.bytes, 0);
}

/* From memory that ends where the file does, so that sanitizers find what is read beyond it. */
static beryl_status take(fixture *f, size_t size, beryl_error *error) {
    describe(f);
    char *copy = base_arena_take(&f->arena, size ? size : 1, 1);
    memcpy(copy, f->file.data, size);
    *error = (beryl_error){0};
    return train_checkpoint_read(&f->arena, copy, size, &f->checkpoint, error);
}

static void check_taken(test *t, const fixture *f) {
    const train_progress *p = &f->checkpoint.progress;
    CHECK_INT(t, p->step, 5);
    CHECK_INT(t, p->valid_step, 5);
    CHECK_INT(t, p->best_step, 4);
    CHECK_INT(t, p->n_worse, 1);
    CHECK(t, !(p->best_loss < 1.0 / 3 || p->best_loss > 1.0 / 3));
    for (int i = 0; i < N; i++)
        CHECK(t, f->tensors[i].size == sizeof values[i] &&
                     !memcmp(f->tensors[i].data, values[i], sizeof values[i]));
}

static void refused(test *t, fixture *f, beryl_status want, const char *needle) {
    beryl_error error;
    CHECK_INT(t, take(f, f->file.size, &error), want);
    if (!strstr(error.message, "here") || !strstr(error.message, needle))
        test_fail(t, __FILE__, __LINE__, "\"%s\" does not say \"%s\"", error.message, needle);
}

/* Replaces a text of the file by one of the same length. */
static void replace(test *t, fixture *f, const char *from, const char *to) {
    const size_t n = strlen(from);
    for (size_t i = 0; i + n <= f->file.size; i++)
        if (!memcmp(f->file.data + i, from, n)) {
            memcpy(f->file.data + i, to, n);
            return;
        }
    test_fail(t, __FILE__, __LINE__, "there is no '%s'", from);
}

static void check_refused(test *t) {
    static const struct {
        const char *from, *to, *needle;
        beryl_status status;
    } changes[] = {
        {"training-1", "training-2", "another version", BERYL_BAD_FILE},
        {"\"rank\":\"4\"", "\"rank\":\"8\"", "its rank is 8, and here it is 4", BERYL_BAD_INPUT},
        {"\"schedule\"", "\"Schedule\"", "its schedule is missing", BERYL_BAD_INPUT},
        {"\"step\":\"5\"", "\"step\":\"x\"", "its step is no number", BERYL_BAD_FILE},
        {"\"step\":\"5\"", "\"step\":\"-\"", "its step is no number", BERYL_BAD_FILE},
        {"\"best_step\":\"4\"", "\"best_Step\":\"4\"", "best_step is no number", BERYL_BAD_FILE},
        {"\"0.33333333", "\"x.33333333", "its best_loss is no number", BERYL_BAD_FILE},
        {"a.value", "b.value", "has 'b.value' where 'a.value' is due", BERYL_BAD_INPUT},
        {"[2,3]", "[6,1]", "'a.value' has another shape", BERYL_BAD_INPUT},
        {"\"hash\"", "\"hush\"", "'hush' where 'hash' is due", BERYL_BAD_INPUT},
        {"F32", "U32", "I32 and I16 are read", BERYL_UNSUPPORTED},
        {"\"step\":\"5\"", "\"step\":\"6\"", "damaged", BERYL_BAD_FILE},
    };
    fixture f;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        begin(&f);
        replace(t, &f, changes[i].from, changes[i].to);
        refused(t, &f, changes[i].status, changes[i].needle);
        end(t, &f);
    }
    /* whole files, of something that cannot be */
    begin(&f);
    float bad[N][VALUES];
    memcpy(bad, values, sizeof bad);
    bad[1][3] = INFINITY;
    write(&f, (const float(*)[VALUES])bad);
    refused(t, &f, BERYL_BAD_FILE, "a value of 'a.mean' is no number");
    end(t, &f);
    begin(&f);
    f.checkpoint.progress.step = 10;
    write(&f, values);
    refused(t, &f, BERYL_BAD_FILE, "its step cannot be");
    end(t, &f);
}

/* Every byte changed in three ways: refused with a line, or nothing of what is taken changes. */
static void check_damage(test *t) {
    fixture f;
    begin(&f);
    const size_t size = f.file.size;
    for (size_t i = 0; i < 3 * size && !test_failed(t); i++) {
        static const char flips[] = {1, 0x20, (char)0x80};
        beryl_error error;
        f.file.data[i / 3] ^= flips[i % 3];
        const beryl_status status = take(&f, size, &error);
        if (!status) check_taken(t, &f);
        else CHECK(t, strstr(error.message, "here"));
        if (i / 3 >= size - 8 - sizeof values) CHECK_INT(t, status, BERYL_BAD_FILE);
        if (test_failed(t)) test_fail(t, __FILE__, __LINE__, "byte %zu", i / 3);
        f.file.data[i / 3] ^= flips[i % 3];
        base_arena_fini(&f.arena);
        base_arena_init(&f.arena, &f.heap);
    }
    for (size_t n = 0; n < size && !test_failed(t); n++) {
        beryl_error error;
        CHECK_INT(t, take(&f, n, &error), BERYL_BAD_FILE);
        CHECK(t, strstr(error.message, "here"));
    }
    end(t, &f);
}

void test_checkpoint(test *t) {
    if (test_case(t, "checkpoint/read-as-written")) {
        fixture f;
        beryl_error error;
        begin(&f);
        CHECK_INT(t, take(&f, f.file.size, &error), BERYL_OK);
        check_taken(t, &f);
        end(t, &f);
    }
    if (test_case(t, "checkpoint/nothing-measured")) {
        fixture f;
        beryl_error error;
        begin(&f);
        f.checkpoint.progress = (train_progress){.step = 1, .best_loss = (double)NAN};
        write(&f, values);
        CHECK_INT(t, take(&f, f.file.size, &error), BERYL_OK);
        CHECK(t, isnan(f.checkpoint.progress.best_loss));
        end(t, &f);
    }
    if (test_case(t, "checkpoint/refused-by-name")) check_refused(t);
    if (test_case(t, "checkpoint/damage-is-found")) check_damage(t);
}
