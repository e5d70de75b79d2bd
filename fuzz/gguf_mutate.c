/* gguf_mutate.c - libFuzzer's mutator for GGUF files: besides changing bytes it gives fields
 * values that matter, and keeps a model whole while its shapes and types change (every use of a
 * size at once, offsets and data laid out anew), so that the engine behind the reader is
 * reached. Little-endian hosts. */
#include "base/types.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

enum {
    FIELD_MAX = 4096,
    TENSOR_MAX = 256,
    KIND_STRING = 8,
    KIND_ARRAY = 9,
    ELEMENT_MAX = 64,
    HEAD = 24
};

typedef struct field {
    size_t at;
    uint32_t width;
    bool is_value; /* of a key or of an array in one */
} field;

typedef struct tensor { /* places in the file */
    size_t begin, dims, type, end;
    uint32_t n_dim;
} tensor;

typedef struct walk {
    uint8_t *data;
    size_t size, at;
    bool failed;
    field fields[FIELD_MAX];
    size_t n_field;
    struct {
        size_t begin, end;
    } pairs[TENSOR_MAX];
    tensor tensors[TENSOR_MAX];
    size_t n_pair, n_tensor, data_at; /* data_at: where the tensors' heads end */
} walk;

static uint64_t get(const uint8_t *at, uint32_t width) {
    uint64_t value = 0;
    memcpy(&value, at, width);
    return value;
}

/* One field of the file. */
static uint64_t next(walk *w, uint32_t width) {
    if (w->failed || width > w->size - w->at) return w->failed = true, 0;
    if (w->n_field < FIELD_MAX) w->fields[w->n_field++] = (field){w->at, width, false};
    w->at += width;
    return get(w->data + w->at - width, width);
}

static void skip(walk *w, uint64_t size) {
    if (w->failed || size > w->size - w->at) w->failed = true;
    else w->at += (size_t)size;
}

static void walk_value(walk *w, uint64_t kind) {
    static const uint8_t widths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (kind == KIND_STRING) {
        skip(w, next(w, 8));
    } else if (kind == KIND_ARRAY) {
        const uint64_t of = next(w, 4), n = next(w, 8);
        if (of == KIND_ARRAY) w->failed = true;
        for (uint64_t i = 0; i < n && !w->failed; i++) {
            if (i < ELEMENT_MAX || of == KIND_STRING) walk_value(w, of);
            else skip(w, of < sizeof widths ? widths[of] : 0);
        }
    } else if (kind < sizeof widths) {
        next(w, widths[kind]);
        if (w->n_field) w->fields[w->n_field - 1].is_value = true;
    } else {
        w->failed = true;
    }
}

/* false: not a file that this can follow to its data. */
static bool walk_file(walk *w, uint8_t *data, size_t size) {
    memset(w, 0, sizeof *w);
    w->data = data;
    w->size = size;
    skip(w, 8);
    const uint64_t n_tensor = next(w, 8), n_pair = next(w, 8);
    if (n_tensor > TENSOR_MAX || n_pair > TENSOR_MAX) return false;
    for (; w->n_pair < n_pair && !w->failed; w->n_pair++) {
        w->pairs[w->n_pair].begin = w->at;
        skip(w, next(w, 8));
        walk_value(w, next(w, 4));
        w->pairs[w->n_pair].end = w->at;
    }
    for (; w->n_tensor < n_tensor && !w->failed; w->n_tensor++) {
        tensor *t = &w->tensors[w->n_tensor];
        t->begin = w->at;
        skip(w, next(w, 8));
        t->n_dim = (uint32_t)next(w, 4);
        t->dims = w->at;
        if (t->n_dim > 4) return false;
        for (uint32_t i = 0; i < t->n_dim; i++) next(w, 8);
        t->type = w->at;
        next(w, 4);
        next(w, 8);
        t->end = w->at;
    }
    w->data_at = w->at;
    return !w->failed;
}

static size_t align(size_t size) {
    return (size + 31) / 32 * 32;
}

/* Bytes of a tensor as its head has it now; SIZE_MAX: too many, or of no type. */
static size_t bytes_of(const walk *w, const tensor *t, size_t most) {
    base_type type;
    uint64_t n = 1;
    if (!base_type_from_gguf((uint32_t)get(w->data + t->type, 4), &type)) return SIZE_MAX;
    for (uint32_t i = 0; i < t->n_dim; i++) {
        const uint64_t size = get(w->data + t->dims + 8 * i, 8);
        if (size && n > most / size) return SIZE_MAX;
        n *= size;
    }
    const uint64_t bytes = n / base_type_block(type) * base_type_block_bytes(type);
    return bytes > most ? SIZE_MAX : (size_t)bytes;
}

/* Puts the tensors one behind the other; each keeps what it had, followed by the same again. 0:
 * no room. */
static size_t lay_out(walk *w, const size_t *had, size_t max_size) {
    const size_t from = align(w->data_at);
    size_t size = from;
    uint8_t *out = calloc(1, max_size);
    if (!out || from > w->size) return free(out), 0;
    for (size_t i = 0; i < w->n_tensor; i++) {
        const tensor *t = &w->tensors[i];
        const uint64_t offset = get(w->data + t->type + 4, 8), moved = size - from;
        const size_t bytes = bytes_of(w, t, max_size);
        if (bytes > max_size - size || offset > w->size - from || had[i] > w->size - from - offset)
            return free(out), 0;
        for (size_t k = 0; k < bytes && had[i]; k++)
            out[size + k] = w->data[from + offset + k % had[i]];
        memcpy(w->data + t->type + 4, &moved, sizeof moved);
        size += bytes;
        if (align(size) > max_size) return free(out), 0;
        size = align(size);
    }
    memcpy(out, w->data, w->data_at);
    memcpy(w->data, out, size);
    free(out);
    return size;
}

static uint64_t interesting(unsigned draw, uint64_t value) {
    static const uint64_t values[] = {
        0,          1,          2,         3,          4,          5,          7,
        8,          16,         31,        32,         33,         64,         255,
        256,        257,        4096,      1 << 16,    1 << 20,    INT32_MAX,  1ULL << 31,
        UINT32_MAX, 1ULL << 32, INT64_MAX, 1ULL << 63, UINT64_MAX, 0x7FC00000, 0x3F800000};
    const unsigned n = sizeof values / sizeof *values;
    if (draw % (n + 6) < n) return values[draw % (n + 6)];
    const uint64_t near[] = {
        value + 1,       value - 1, value * 2, value / 2, value ^ 1ULL << (draw >> 8) % 64,
        (draw >> 8) % 80};
    return near[draw % (n + 6) - n];
}

static void set_field(walk *w, unsigned draw) {
    const field *f = &w->fields[draw % w->n_field];
    const uint64_t value = interesting((unsigned)rand(), get(w->data + f->at, f->width));
    memcpy(w->data + f->at, &value, f->width);
}

/* One size becomes another wherever it stands: in tensors and in keys. */
static void resize(walk *w) {
    const tensor *t = &w->tensors[(unsigned)rand() % w->n_tensor];
    if (!t->n_dim) return;
    const uint64_t old = get(w->data + t->dims + 8 * ((unsigned)rand() % t->n_dim), 8);
    const uint64_t sizes[] = {1,       2,       3,  old - 1, old + 1,
                              old * 2, old / 2, 32, 64,      (unsigned)rand() % 100};
    const uint64_t value = sizes[(unsigned)rand() % (sizeof sizes / sizeof *sizes)];
    for (size_t i = 0; i < w->n_field; i++) {
        const field *f = &w->fields[i];
        const bool is_size =
            f->width == 8 ? f->at >= w->tensors[0].begin : f->width == 4 && f->is_value;
        if (is_size && get(w->data + f->at, f->width) == old && old > 1)
            memcpy(w->data + f->at, &value, f->width);
    }
}

static void retype(walk *w) {
    static const int ids[] = {
#define X(name, text, id, ...) id,
        BASE_TYPE_LIST(X)
#undef X
    };
    int id;
    do id = ids[(unsigned)rand() % TYPE_COUNT];
    while (id < 0);
    memcpy(w->data + w->tensors[(unsigned)rand() % w->n_tensor].type, &id, 4);
}

/* A pair or a tensor less; what is behind it moves up by whole alignments, so that the data
 * stays where offsets say. */
static size_t drop(walk *w, size_t size) {
    const bool pair = w->n_pair && (!w->n_tensor || rand() % 2);
    if (!pair && !w->n_tensor) return size;
    const size_t i = (size_t)rand() % (pair ? w->n_pair : w->n_tensor);
    const size_t begin = pair ? w->pairs[i].begin : w->tensors[i].begin,
                 end = pair ? w->pairs[i].end : w->tensors[i].end;
    const size_t from = align(w->data_at), to = align(w->data_at - (end - begin));
    const uint64_t n = (pair ? w->n_pair : w->n_tensor) - 1;
    memcpy(w->data + (pair ? 16 : 8), &n, sizeof n);
    memmove(w->data + begin, w->data + end, w->data_at - end);
    if (from > size) return size - (end - begin);
    memmove(w->data + to, w->data + from, size - from);
    return size - (from - to);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    static walk w; /* a fuzzer is a program */
    size_t had[TENSOR_MAX];
    srand(seed);
    const unsigned how = (unsigned)rand() % 8;
    if (how < 2 || size < HEAD || !walk_file(&w, data, size) || !w.n_tensor)
        return LLVMFuzzerMutate(data, size, max_size);
    if (how < 4) return set_field(&w, (unsigned)rand()), size;
    if (how == 4) return drop(&w, size);
    uint8_t *before = malloc(size);
    if (!before) abort();
    memcpy(before, data, size);
    for (size_t i = 0; i < w.n_tensor; i++) {
        had[i] = bytes_of(&w, &w.tensors[i], max_size);
        if (had[i] == SIZE_MAX) had[i] = 0;
    }
    if (how == 7) retype(&w);
    else resize(&w);
    size_t made = lay_out(&w, had, max_size);
    if (!made) {
        memcpy(data, before, size);
        set_field(&w, (unsigned)rand());
        made = size;
    }
    free(before);
    return made;
}
