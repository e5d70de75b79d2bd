/* gguf.c - opening: sources, heads, the two walks, split files, tables.
 *
 * Owns the sources, a copy of each head, and the tables. Refuses whatever cannot be proven to
 * lie inside its file, and limits what a head may cost (the constants below). The one idea:
 * head_walk is the only code that follows the layout. It runs once without storing anything, and
 * may ask for more bytes then; it runs a second time, over the same complete bytes, to fill
 * tables. Each byte of a head is read once, so that both walks see the same whatever happens to
 * the file. */
#include "format/gguf_inside.h"

#include "base/error.h"
#include "base/file.h"

#include <stdio.h>
#include <string.h>

enum {
    HEAD_FIRST = 1 << 18, /* bytes that are read at once, then 8 times as many */
    HEAD_USUAL = 1 << 24, /* up to here, which real heads do not exceed by much, then twice */
    HEAD_MAX = 1 << 28,   /* most bytes of the heads of all parts; real ones have about 16 MB */
    KEY_MAX = 65535,      /* bytes, as the format says */
    NAME_MOST = 64,
    PAIRS_MAX = 1 << 16,
    TENSORS_MAX = 1 << 20,
    PARTS_MAX = 4096,
    ALIGNMENT_MAX = 1 << 20,
    PAIR_MIN = 14,   /* bytes: length, one byte of key, kind, one byte of value */
    TENSOR_MIN = 33, /* bytes: length, one byte of name, n_dim, one dim, type, offset */
};

/* ---- reading the head --------------------------------------------------------------------------
 */

/* A cursor over the valid bytes of a head. It never moves beyond them: take() proves a range first.
 */
typedef struct cursor {
    const part *p;
    uint64_t at;
    uint64_t want; /* bytes needed from 0 on, set with BERYL_PENDING */
    bool any_type;
    beryl_error *error;
} cursor;

/* A key or name as it may be shown: short, without control characters. */
typedef struct shown {
    char text[72];
} shown;

static shown show(base_view view) {
    shown s;
    size_t n = view.size < 64 ? view.size : 64, i;
    for (i = 0; i < n; i++)
        s.text[i] = view.data[i] >= 0x20 && view.data[i] < 0x7f ? view.data[i] : '?';
    if (view.size > n) memcpy(s.text + i, "...", 3), i += 3;
    s.text[i] = 0;
    return s;
}

static uint32_t load_u32(const uint8_t *p) {
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t load_u64(const uint8_t *p) {
    return load_u32(p) | (uint64_t)load_u32(p + 4) << 32;
}

/* Moves over n bytes. BAD_FILE: they are not in the file; PENDING: not read yet. */
static beryl_status take(cursor *c, uint64_t n, const char *what, const uint8_t **out) {
    const part *p = c->p;
    if (n > p->source.size - c->at) {
        return base_fail_at(
            c->error, BERYL_BAD_FILE, c->at,
            "%s is cut short or damaged: %s needs %llu bytes at %llu, the file has %llu", p->name,
            what, (unsigned long long)n, (unsigned long long)c->at,
            (unsigned long long)p->source.size);
    }
    if (n > p->have - c->at) {
        c->want = c->at + n;
        return BERYL_PENDING;
    }
    *out = p->head + c->at;
    c->at += n;
    return BERYL_OK;
}

static beryl_status take_u32(cursor *c, const char *what, uint32_t *out) {
    const uint8_t *bytes = NULL;
    beryl_status status = take(c, 4, what, &bytes);
    if (!status) *out = load_u32(bytes);
    return status;
}

static beryl_status take_u64(cursor *c, const char *what, uint64_t *out) {
    const uint8_t *bytes = NULL;
    beryl_status status = take(c, 8, what, &bytes);
    if (!status) *out = load_u64(bytes);
    return status;
}

static beryl_status take_string(cursor *c, const char *what, base_view *out) {
    uint64_t size = 0;
    const uint8_t *bytes = NULL;
    beryl_status status = take_u64(c, what, &size);
    if (!status) status = take(c, size, what, &bytes);
    if (!status) *out = (base_view){(const char *)bytes, (size_t)size};
    return status;
}

/* A key or a tensor's name: 1 to `most` bytes, no NUL. */
static beryl_status take_name(cursor *c, const char *what, uint64_t most, base_view *out) {
    uint64_t at = c->at, size = 0;
    const uint8_t *bytes = NULL;
    beryl_status status = take_u64(c, what, &size);
    if (status) return status;
    if (size == 0 || size > most) {
        return base_fail_at(c->error, BERYL_BAD_FILE, at,
                            "%s is damaged: %s of %llu bytes at %llu (1 to %llu are allowed)",
                            c->p->name, what, (unsigned long long)size, (unsigned long long)at,
                            (unsigned long long)most);
    }
    status = take(c, size, what, &bytes);
    if (status) return status;
    *out = (base_view){(const char *)bytes, (size_t)size};
    if (memchr(bytes, 0, (size_t)size)) {
        return base_fail_at(c->error, BERYL_BAD_FILE, at,
                            "%s is damaged: %s at %llu has a NUL in it: \"%s\"", c->p->name, what,
                            (unsigned long long)at, show(*out).text);
    }
    return BERYL_OK;
}

static uint32_t kind_bytes(uint32_t kind) {
    static const uint8_t bytes[FORMAT_GGUF_KIND_COUNT] = {
#define X(name, text, size) size,
        FORMAT_GGUF_KIND_LIST(X)
#undef X
    };
    return bytes[kind];
}

static beryl_status take_kind(cursor *c, base_view key, uint32_t *kind) {
    uint64_t at = c->at;
    beryl_status status = take_u32(c, "a value's kind", kind);
    if (status) return status;
    if (*kind >= FORMAT_GGUF_KIND_COUNT) {
        return base_fail_at(c->error, BERYL_BAD_FILE, at,
                            "%s: key \"%s\" has the unknown value type %u", c->p->name,
                            show(key).text, *kind);
    }
    return BERYL_OK;
}

static beryl_status walk_pair(cursor *c, format_gguf_pair *pair) {
    uint32_t kind = 0;
    *pair = (format_gguf_pair){.count = 1};
    beryl_status status = take_name(c, "a key", KEY_MAX, &pair->key);
    if (!status) status = take_kind(c, pair->key, &kind);
    if (status) return status;
    if (kind == FORMAT_GGUF_ARRAY) {
        pair->is_array = true;
        uint64_t at = c->at;
        status = take_kind(c, pair->key, &kind);
        if (!status && kind == FORMAT_GGUF_ARRAY) {
            return base_fail_at(c->error, BERYL_UNSUPPORTED, at,
                                "%s: key \"%s\" is an array of arrays, which is not supported",
                                c->p->name, show(pair->key).text);
        }
        if (!status) status = take_u64(c, "an array's length", &pair->count);
        if (status) return status;
    }
    pair->kind = (format_gguf_kind)kind;
    uint64_t start = c->at, left = c->p->source.size - start;
    uint32_t each = kind_bytes(kind), least = each ? each : 8;
    if (pair->count > left / least) {
        return base_fail_at(
            c->error, BERYL_BAD_FILE, start,
            "%s is cut short or damaged: key \"%s\" claims %llu values, more than the file holds",
            c->p->name, show(pair->key).text, (unsigned long long)pair->count);
    }
    const uint8_t *bytes = NULL;
    if (each) {
        status = take(c, pair->count * each, "a value", &bytes);
        if (status) return status;
    } else {
        for (uint64_t i = 0; i < pair->count; i++) {
            base_view skipped;
            status = take_string(c, "a string", &skipped);
            if (status) return status;
        }
    }
    pair->data = c->p->head + start;
    pair->size = (size_t)(c->at - start);
    return BERYL_OK;
}

/* *offset is as stored: relative to the data. */
static beryl_status walk_tensor(cursor *c, format_gguf_tensor *tensor) {
    uint64_t at = c->at, blocks, elements = 1;
    *tensor = (format_gguf_tensor){.ne = {1, 1, 1, 1}};
    beryl_status status = take_name(c, "a tensor's name", NAME_MOST, &tensor->name);
    if (!status) status = take_u32(c, "a tensor's number of dimensions", &tensor->n_dim);
    if (status) return status;
    if (tensor->n_dim < 1 || tensor->n_dim > 4) {
        return base_fail_at(c->error, BERYL_BAD_FILE, at,
                            "%s: tensor \"%s\" has %u dimensions (1 to 4 are allowed)", c->p->name,
                            show(tensor->name).text, tensor->n_dim);
    }
    bool overflow = false;
    for (uint32_t i = 0; i < tensor->n_dim; i++) {
        status = take_u64(c, "a tensor's dimension", &tensor->ne[i]);
        if (status) return status;
        if (!tensor->ne[i]) {
            return base_fail_at(c->error, BERYL_BAD_FILE, at,
                                "%s: tensor \"%s\" has a dimension of 0", c->p->name,
                                show(tensor->name).text);
        }
        overflow |= __builtin_mul_overflow(elements, tensor->ne[i], &elements);
    }
    status = take_u32(c, "a tensor's type", &tensor->gguf_type);
    if (!status) status = take_u64(c, "a tensor's offset", &tensor->offset);
    if (status) return status;
    if (!base_type_from_gguf(tensor->gguf_type, &tensor->type)) {
        tensor->type = TYPE_COUNT;
        if (c->any_type && !overflow && elements <= INT64_MAX) return BERYL_OK;
        const char *type = base_type_gguf_name(tensor->gguf_type);
        if (!type) {
            return base_fail_at(c->error, BERYL_BAD_FILE, at,
                                "%s: tensor \"%s\" has the unknown type %u", c->p->name,
                                show(tensor->name).text, tensor->gguf_type);
        }
        return base_fail_at(c->error, BERYL_UNSUPPORTED, at,
                            "%s: tensor \"%s\" has the type %s, which is not supported", c->p->name,
                            show(tensor->name).text, type);
    }
    uint32_t block = base_type_block(tensor->type);
    if (tensor->ne[0] % block) {
        return base_fail_at(
            c->error, BERYL_BAD_FILE, at,
            "%s: tensor \"%s\" has rows of %llu values, not a multiple of the %u of a %s block",
            c->p->name, show(tensor->name).text, (unsigned long long)tensor->ne[0], block,
            base_type_name(tensor->type));
    }
    blocks = elements / block;
    overflow |= elements > INT64_MAX;
    overflow |= __builtin_mul_overflow(blocks, (uint64_t)base_type_block_bytes(tensor->type),
                                       &tensor->size);
    if (overflow || tensor->size > c->p->source.size) {
        return base_fail_at(c->error, BERYL_BAD_FILE, at,
                            "%s is cut short or damaged: tensor \"%s\" is larger than the file",
                            c->p->name, show(tensor->name).text);
    }
    return BERYL_OK;
}

static bool pair_integer(const format_gguf_pair *pair, uint64_t *out) {
    if (pair->is_array) return false;
    uint64_t value = 0;
    switch (pair->kind) {
    case FORMAT_GGUF_U8: value = pair->data[0]; break;
    case FORMAT_GGUF_U16: value = pair->data[0] | (uint64_t)pair->data[1] << 8; break;
    case FORMAT_GGUF_I32:
    case FORMAT_GGUF_U32: value = load_u32(pair->data); break;
    case FORMAT_GGUF_I64:
    case FORMAT_GGUF_U64: value = load_u64(pair->data); break;
    case FORMAT_GGUF_I8:
    case FORMAT_GGUF_I16:
    case FORMAT_GGUF_F32:
    case FORMAT_GGUF_F64:
    case FORMAT_GGUF_BOOL:
    case FORMAT_GGUF_STRING:
    case FORMAT_GGUF_ARRAY:
    case FORMAT_GGUF_KIND_COUNT: return false;
    }
    *out = value; /* a negative one comes out huge, and every use below has a small upper bound */
    return true;
}

/* Keys that the container itself needs. */
static beryl_status note_pair(cursor *c, part *p, const format_gguf_pair *pair) {
    uint64_t value = 0, most = 0, *to = NULL;
    if (base_view_equal(pair->key, BASE_VIEW("general.alignment"))) {
        if (!pair_integer(pair, &value) || value < 8 || value > ALIGNMENT_MAX ||
            (value & (value - 1))) {
            return base_fail_at(c->error, BERYL_BAD_FILE, c->at,
                                "%s: general.alignment must be a power of two from 8 to %d",
                                p->name, (int)ALIGNMENT_MAX);
        }
        p->alignment = (uint32_t)value;
        return BERYL_OK;
    }
    if (base_view_equal(pair->key, BASE_VIEW("split.no"))) {
        to = &p->split_no, most = PARTS_MAX - 1;
    } else if (base_view_equal(pair->key, BASE_VIEW("split.count"))) {
        to = &p->split_count, most = PARTS_MAX;
    } else if (base_view_equal(pair->key, BASE_VIEW("split.tensors.count"))) {
        to = &p->split_tensors, most = TENSORS_MAX;
        p->has_split_tensors = true;
    } else {
        return BERYL_OK;
    }
    if (!pair_integer(pair, &value) || value > most) {
        return base_fail_at(c->error, BERYL_BAD_FILE, c->at,
                            "%s: %s must be an integer from 0 to %llu", p->name,
                            show(pair->key).text, (unsigned long long)most);
    }
    *to = value;
    return BERYL_OK;
}

static beryl_status walk_start(cursor *c, part *p) {
    const uint8_t *magic = NULL;
    uint64_t n_tensor = 0, n_pair = 0;
    beryl_status status =
        p->source.size < 24 ? BERYL_BAD_FILE : take(c, 4, "the first bytes", &magic);
    if (status == BERYL_BAD_FILE) {
        return base_fail(c->error, status, "%s is no GGUF file: it has only %llu bytes", p->name,
                         (unsigned long long)p->source.size);
    }
    if (status) return status;
    if (memcmp(magic, "GGUF", 4))
        return base_fail(c->error, BERYL_BAD_FILE,
                         "%s is no GGUF file (it does not begin with \"GGUF\")", p->name);
    status = take_u32(c, "the version", &p->version);
    if (!status) status = take_u64(c, "the number of tensors", &n_tensor);
    if (!status) status = take_u64(c, "the number of keys", &n_pair);
    if (status) return status;
    if (p->version != 2 && p->version != 3) {
        if (p->version && !(p->version & 0xffff)) {
            return base_fail_at(
                c->error, BERYL_UNSUPPORTED, 4,
                "%s is a big-endian GGUF file, which is not supported; convert it to little-endian",
                p->name);
        }
        return base_fail_at(c->error, BERYL_UNSUPPORTED, 4,
                            "%s is GGUF version %u; versions 2 and 3 are supported", p->name,
                            p->version);
    }
    uint64_t left = p->source.size - c->at;
    if (n_pair > left / PAIR_MIN || n_tensor > (left - n_pair * PAIR_MIN) / TENSOR_MIN) {
        return base_fail_at(
            c->error, BERYL_BAD_FILE, 8,
            "%s is cut short or damaged: it claims %llu tensors and %llu keys, more than it holds",
            p->name, (unsigned long long)n_tensor, (unsigned long long)n_pair);
    }
    if (n_pair > PAIRS_MAX || n_tensor > TENSORS_MAX) {
        return base_fail_at(c->error, BERYL_UNSUPPORTED, 8,
                            "%s has %llu tensors and %llu keys; at most %d and %d are supported",
                            p->name, (unsigned long long)n_tensor, (unsigned long long)n_pair,
                            (int)TENSORS_MAX, (int)PAIRS_MAX);
    }
    p->n_pair = (uint32_t)n_pair;
    p->n_tensor = (uint32_t)n_tensor;
    return BERYL_OK;
}

static beryl_status store_pair(format_gguf *g, const part *p, const format_gguf_pair *pair,
                               beryl_error *error) {
    if (p != &g->parts.data[0])
        return BERYL_OK; /* further parts only repeat what the first one says */
    if (base_map_find(&g->pair_map, pair->key, NULL)) {
        return base_fail(error, BERYL_BAD_FILE, "%s has the key \"%s\" twice", p->name,
                         show(pair->key).text);
    }
    if (!base_map_set(&g->pair_map, pair->key, (uint32_t)g->pairs.count))
        return base_fail(error, BERYL_NO_MEMORY, "no memory for the keys of %s", p->name);
    g->pairs.data[g->pairs.count++] = *pair;
    return BERYL_OK;
}

static beryl_status store_tensor(format_gguf *g, const part *p, const format_gguf_tensor *tensor,
                                 beryl_error *error) {
    if (base_map_find(&g->tensor_map, tensor->name, NULL)) {
        return base_fail(error, BERYL_BAD_FILE, "%s has the tensor \"%s\" twice", p->name,
                         show(tensor->name).text);
    }
    if (!base_map_set(&g->tensor_map, tensor->name, (uint32_t)g->tensors.count)) {
        return base_fail(error, BERYL_NO_MEMORY, "no memory for the tensors of %s", p->name);
    }
    format_gguf_tensor *t = &g->tensors.data[g->tensors.count++];
    *t = *tensor;
    t->file = (uint32_t)g->n_parsed;
    t->offset += p->data; /* proven not to overflow by the first walk */
    uint64_t elements = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
    /* Tensors may share bytes, so a hostile sum may exceed any file: it saturates. */
    if (__builtin_add_overflow(g->data_size, t->size, &g->data_size)) g->data_size = UINT64_MAX;
    if (__builtin_add_overflow(g->parameters, elements, &g->parameters)) g->parameters = UINT64_MAX;
    return BERYL_OK;
}

/* Follows the whole head of part p. Without `fill` it proves it and sets the part's facts; with
 * `fill` it stores pairs and tensors, for which there is room. PENDING: *want bytes are needed. */
static beryl_status head_walk(format_gguf *g, part *p, bool fill, uint64_t *want,
                              beryl_error *error) {
    cursor c = {.p = p, .any_type = g->any_type, .error = error};
    uint64_t data_end = 0; /* of the tensor that reaches furthest, relative to the data */
    base_view furthest = {0};
    p->alignment = 32;
    beryl_status status = walk_start(&c, p);
    for (uint32_t i = 0; !status && i < p->n_pair; i++) {
        format_gguf_pair pair;
        status = walk_pair(&c, &pair);
        if (!status) status = note_pair(&c, p, &pair);
        if (!status && fill) status = store_pair(g, p, &pair, error);
    }
    for (uint32_t i = 0; !status && i < p->n_tensor; i++) {
        format_gguf_tensor tensor;
        uint64_t at = c.at, end = 0;
        status = walk_tensor(&c, &tensor);
        if (status) break;
        if (tensor.offset & (p->alignment - 1)) {
            return base_fail_at(
                error, BERYL_BAD_FILE, at,
                "%s: tensor \"%s\" lies at offset %llu, not a multiple of the alignment %u",
                p->name, show(tensor.name).text, (unsigned long long)tensor.offset, p->alignment);
        }
        if (__builtin_add_overflow(tensor.offset, tensor.size, &end) || end > p->source.size) {
            return base_fail_at(error, BERYL_BAD_FILE, at,
                                "%s is cut short or damaged: tensor \"%s\" lies outside the file",
                                p->name, show(tensor.name).text);
        }
        if (end > data_end) data_end = end, furthest = tensor.name;
        if (fill) status = store_tensor(g, p, &tensor, error);
    }
    if (status) {
        *want = c.want;
        return status;
    }
    p->end = c.at;
    p->data = (c.at + p->alignment - 1) / p->alignment * p->alignment;
    if (data_end && (p->data > p->source.size || data_end > p->source.size - p->data)) {
        return base_fail_at(error, BERYL_BAD_FILE, p->source.size,
                            "%s is cut short or damaged: tensor \"%s\" lies outside the file (it "
                            "ends at %llu, the file at %llu)",
                            p->name, show(furthest).text, (unsigned long long)(p->data + data_end),
                            (unsigned long long)p->source.size);
    }
    return BERYL_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Makes at least `want` bytes of the head valid; asks for many more, so that the walks stay linear
 * and the memory that growth leaves behind stays small. */
static beryl_status head_read(format_gguf *g, part *p, uint64_t want, beryl_error *error) {
    if (p->capacity < want) {
        uint64_t most = HEAD_MAX, capacity = HEAD_FIRST;
        while (capacity < want && capacity < most) capacity *= capacity < HEAD_USUAL ? 8 : 2;
        for (size_t i = 0; i < g->n_parsed; i++) most -= g->parts.data[i].capacity;
        if (capacity > p->source.size) capacity = p->source.size;
        if (want > most) {
            return base_fail(error, BERYL_UNSUPPORTED,
                             "%s has a head of more than %d MiB, which is not supported here",
                             p->name, (int)(HEAD_MAX >> 20));
        }
        if (capacity > most) capacity = most;
        uint8_t *head = base_heap_resize(g->heap, p->head, p->capacity, (size_t)capacity);
        if (!head)
            return base_fail(error, BERYL_NO_MEMORY, "no memory for the head of %s (%llu bytes)",
                             p->name, (unsigned long long)capacity);
        p->head = head;
        p->capacity = (size_t)capacity;
    }
    if (p->have < p->capacity) {
        beryl_status status = p->source.read(p->source.user, p->have, p->head + p->have,
                                             p->capacity - (size_t)p->have);
        if (status == BERYL_PENDING) return status;
        if (status) return base_source_fail(&p->source, p->name, status, p->have, error);
        p->have = p->capacity;
    }
    return BERYL_OK;
}

static beryl_status part_step(format_gguf *g, part *p, beryl_error *error) {
    uint64_t want = 0;
    beryl_status status = head_read(g, p,
                                    p->head               ? p->capacity
                                    : p->source.size < 24 ? 0
                                                          : 24,
                                    error);
    for (;;) {
        if (status) return status;
        status = head_walk(g, p, false, &want, error);
        if (status != BERYL_PENDING) break;
        status = head_read(g, p, want, error);
    }
    if (status) return status;
    if (p->end < p->capacity) { /* views come next, so the copy may move only now */
        uint8_t *head = base_heap_resize(g->heap, p->head, p->capacity, (size_t)p->end);
        if (head) p->head = head, p->capacity = (size_t)p->end, p->have = p->end;
    }
    bool first = p == &g->parts.data[0];
    if ((first && (!base_vec_reserve(g->heap, &g->pairs, p->n_pair) ||
                   !base_map_reserve(&g->pair_map, p->n_pair))) ||
        !base_vec_reserve(g->heap, &g->tensors, p->n_tensor) ||
        !base_map_reserve(&g->tensor_map, g->tensors.count + p->n_tensor)) {
        return base_fail(error, BERYL_NO_MEMORY, "no memory for the %u tensors and %u keys of %s",
                         p->n_tensor, p->n_pair, p->name);
    }
    return head_walk(g, p, true, &want, error);
}

size_t format_gguf_part_stem(const char *path, unsigned *no, unsigned *count) {
    enum { TAIL = 20 }; /* -00002-of-00003.gguf */
    size_t size = strlen(path);
    if (size <= TAIL) return 0;
    const char *tail = path + size - TAIL;
    if (tail[0] != '-' || memcmp(tail + 6, "-of-", 4) || strcmp(tail + 15, ".gguf")) return 0;
    unsigned value[2] = {0, 0};
    for (int i = 0; i < 5; i++) {
        if (tail[1 + i] < '0' || tail[1 + i] > '9' || tail[10 + i] < '0' || tail[10 + i] > '9')
            return 0;
        value[0] = value[0] * 10 + (unsigned)(tail[1 + i] - '0');
        value[1] = value[1] * 10 + (unsigned)(tail[10 + i] - '0');
    }
    *no = value[0];
    *count = value[1];
    return size - TAIL;
}

static void part_name(part *p, const char *path) {
    const char *name = path ? path : "the file";
    for (const char *c = name; *c; c++) {
        if ((*c == '/' || *c == '\\') && c[1]) name = c + 1;
    }
    snprintf(p->name, sizeof p->name, "%s", name);
}

/* After the first part of a split file: opens the others, which lie beside it. */
static beryl_status parts_open(format_gguf *g, uint64_t n, beryl_error *error) {
    unsigned no = 0, count = 0;
    size_t stem = format_gguf_part_stem(g->path, &no, &count);
    if (!stem || no != 1 || count != n) {
        return base_fail(error, BERYL_BAD_INPUT,
                         "%s is the first of %llu parts, but its name does not end in "
                         "-00001-of-%05llu.gguf, so that the others cannot be found",
                         g->parts.data[0].name, (unsigned long long)n, (unsigned long long)n);
    }
    if (!base_vec_reserve(g->heap, &g->parts, (size_t)n - 1))
        return base_fail(error, BERYL_NO_MEMORY, "no memory for %llu parts", (unsigned long long)n);
    char *path = base_heap_take(g->heap, g->path_size);
    if (!path) return base_fail(error, BERYL_NO_MEMORY, "no memory for a path");
    beryl_status status = BERYL_OK;
    for (unsigned i = 2; !status && i <= count; i++) {
        memcpy(path, g->path, stem);
        snprintf(path + stem, g->path_size - stem, "-%05u-of-%05u.gguf", i, count);
        beryl_source source = {0};
        status = base_source_open_file(g->heap, path, &source, error);
        if (status) break;
        part *p = &g->parts.data[g->parts.count++];
        *p = (part){.source = source};
        part_name(p, path);
    }
    base_heap_give(g->heap, path, g->path_size);
    return status;
}

/* The parts must say that they are what their order makes them. */
static beryl_status split_check(format_gguf *g, size_t index, beryl_error *error) {
    const part *first = &g->parts.data[0], *p = &g->parts.data[index];
    uint64_t count = first->split_count > 1 ? first->split_count : 1;
    if (index == 0 && count > 1 && p->split_no != 0) {
        unsigned no = 0, n = 0;
        size_t stem = g->path ? format_gguf_part_stem(p->name, &no, &n) : 0;
        if (stem) {
            return base_fail(
                error, BERYL_BAD_INPUT,
                "%s is part %llu of %llu; open the first part, %.*s-00001-of-%05u.gguf", p->name,
                (unsigned long long)p->split_no + 1, (unsigned long long)count, (int)stem, p->name,
                n);
        }
        return base_fail(error, BERYL_BAD_INPUT, "%s is part %llu of %llu; open the first part",
                         p->name, (unsigned long long)p->split_no + 1, (unsigned long long)count);
    }
    if (index == 0 && g->path && count > 1) {
        beryl_status status = parts_open(g, count, error);
        if (status) return status;
        first = p = &g->parts.data[0]; /* the vector may have moved */
    }
    if (g->parts.count != count) {
        return base_fail(error, BERYL_BAD_INPUT, "%s is one of %llu parts, but %zu were given",
                         first->name, (unsigned long long)count, g->parts.count);
    }
    if (index > 0 && (p->split_no != index || p->split_count != count)) {
        return base_fail(error, BERYL_BAD_FILE,
                         "%s says that it is part %llu of %llu, but stands in place %zu of %llu",
                         p->name, (unsigned long long)p->split_no + 1,
                         (unsigned long long)p->split_count, index + 1, (unsigned long long)count);
    }
    if (count > 1 && index + 1 == count && first->has_split_tensors &&
        first->split_tensors != g->tensors.count) {
        return base_fail(error, BERYL_BAD_FILE,
                         "%s says that the parts hold %llu tensors, but they hold %zu", first->name,
                         (unsigned long long)first->split_tensors, g->tensors.count);
    }
    return BERYL_OK;
}

static format_gguf *gguf_new(base_heap *heap) {
    format_gguf *g = base_heap_take(heap, sizeof *g);
    if (!g) return NULL;
    g->heap = heap;
    base_map_init(&g->pair_map, heap);
    base_map_init(&g->tensor_map, heap);
    return g;
}

beryl_status format_gguf_open(base_heap *heap, const beryl_source *sources, size_t n_source,
                              format_gguf **out, beryl_error *error) {
    *out = NULL;
    beryl_status status = BERYL_OK;
    format_gguf *g = NULL;
    if (n_source == 0 || n_source > PARTS_MAX) {
        status = base_fail(error, BERYL_MISUSE, "%zu sources were given for a GGUF file", n_source);
    } else if (!(g = gguf_new(heap)) || !base_vec_reserve(heap, &g->parts, n_source)) {
        status = base_fail(error, BERYL_NO_MEMORY, "no memory to open a GGUF file");
    }
    if (status) {
        for (size_t i = 0; i < n_source; i++) {
            if (sources[i].close) sources[i].close(sources[i].user);
        }
        format_gguf_close(g);
        return status;
    }
    for (size_t i = 0; i < n_source; i++) {
        part *p = &g->parts.data[g->parts.count++];
        *p = (part){.source = sources[i]};
        part_name(p, NULL);
        if (n_source > 1) snprintf(p->name, sizeof p->name, "part %zu", i + 1);
    }
    *out = g;
    return BERYL_OK;
}

beryl_status format_gguf_open_path(base_heap *heap, const char *path, format_gguf **out,
                                   beryl_error *error) {
    *out = NULL;
    beryl_source source = {0};
    beryl_status status = base_source_open_file(heap, path, &source, error);
    if (status) return status;
    format_gguf *g = NULL;
    status = format_gguf_open(heap, &source, 1, &g, error);
    if (status) return status;
    g->path_size = strlen(path) + 1;
    g->path = base_heap_take(heap, g->path_size);
    if (!g->path) {
        format_gguf_close(g);
        return base_fail(error, BERYL_NO_MEMORY, "no memory for a path");
    }
    memcpy(g->path, path, g->path_size);
    part_name(&g->parts.data[0], path);
    *out = g;
    return BERYL_OK;
}

beryl_status format_gguf_step(format_gguf *g, beryl_error *error) {
    while (!g->status && !g->ready) {
        size_t index = g->n_parsed;
        beryl_status status = part_step(g, &g->parts.data[index], &g->error);
        if (status == BERYL_PENDING) return status;
        if (!status) status = split_check(g, index, &g->error);
        g->status = status;
        if (!status) g->ready = ++g->n_parsed == g->parts.count;
        if (g->ready) gguf_listen(g);
    }
    if (g->status && error) *error = g->error;
    return g->status;
}

void format_gguf_any_type(format_gguf *g) {
    g->any_type = true;
}

/* What lay in `from`, of the first head, has moved. */
static void follow(format_gguf *g, base_view from, ptrdiff_t by) {
    for (size_t i = 0; i < g->pairs.count; i++) {
        format_gguf_pair *pair = &g->pairs.data[i];
        pair->key.data = base_moved(pair->key.data, from, by);
        pair->data = (const uint8_t *)base_moved((const char *)pair->data, from, by);
    }
    for (size_t i = 0; i < g->tensors.count; i++)
        g->tensors.data[i].name.data = base_moved(g->tensors.data[i].name.data, from, by);
    base_map_follow(&g->pair_map, from, by);
    base_map_follow(&g->tensor_map, from, by);
}

void format_gguf_forget(format_gguf *g, const char *key) {
    part *p = &g->parts.data[0];
    uint32_t index;
    if (!base_map_find(&g->pair_map, base_view_of(key), &index)) return;
    format_gguf_pair *pair = &g->pairs.data[index];
    const size_t by = pair->size, at = (size_t)(pair->data - p->head) + by;
    if (pair->count < FORMAT_GGUF_FORGET_MIN) return;
    gguf_hash_heads(g); /* as the file has them */
    memmove(p->head + at - by, p->head + at, (size_t)p->end - at);
    follow(g, (base_view){(char *)p->head + at, (size_t)p->end - at}, -(ptrdiff_t)by);
    pair->data = NULL;
    pair->size = 0;
    p->end -= by;
    const base_view before = {(char *)p->head, (size_t)p->end};
    uint8_t *head = base_heap_resize(g->heap, p->head, p->capacity, (size_t)p->end);
    if (!head) return;
    p->head = head;
    p->capacity = (size_t)p->end;
    follow(g, before, (ptrdiff_t)((uintptr_t)head - (uintptr_t)before.data));
}

void format_gguf_close(format_gguf *g) {
    if (!g) return;
    for (size_t i = 0; i < g->parts.count; i++) {
        part *p = &g->parts.data[i];
        base_heap_give(g->heap, p->head, p->capacity);
        if (p->source.close) p->source.close(p->source.user);
    }
    base_heap_give(g->heap, g->samples, g->samples ? g->tensors.count * sizeof *g->samples : 0);
    base_map_fini(&g->pair_map);
    base_map_fini(&g->tensor_map);
    base_vec_fini(g->heap, &g->pairs);
    base_vec_fini(g->heap, &g->tensors);
    base_vec_fini(g->heap, &g->parts);
    base_heap_give(g->heap, g->path, g->path_size);
    base_heap_give(g->heap, g, sizeof *g);
}

/* ---- what was found -------------------------------------------------------------------------- */

uint32_t format_gguf_version(const format_gguf *g) {
    return g->parts.data[0].version;
}

size_t format_gguf_n_file(const format_gguf *g) {
    return g->parts.count;
}

uint64_t format_gguf_size(const format_gguf *g) {
    uint64_t size = 0;
    for (size_t i = 0; i < g->parts.count; i++) size += g->parts.data[i].source.size;
    return size;
}

uint64_t format_gguf_data_size(const format_gguf *g) {
    return g->data_size;
}

uint64_t format_gguf_parameters(const format_gguf *g) {
    return g->parameters;
}

size_t format_gguf_n_pair(const format_gguf *g) {
    return g->pairs.count;
}

const format_gguf_pair *format_gguf_pair_at(const format_gguf *g, size_t index) {
    return &g->pairs.data[index];
}

const format_gguf_pair *format_gguf_find(const format_gguf *g, const char *key) {
    uint32_t index = 0;
    return base_map_find(&g->pair_map, base_view_of(key), &index) ? &g->pairs.data[index] : NULL;
}

size_t format_gguf_n_tensor(const format_gguf *g) {
    return g->tensors.count;
}

const format_gguf_tensor *format_gguf_tensor_at(const format_gguf *g, size_t index) {
    return &g->tensors.data[index];
}

const format_gguf_tensor *format_gguf_tensor_find(const format_gguf *g, const char *name) {
    uint32_t index = 0;
    return base_map_find(&g->tensor_map, base_view_of(name), &index) ? &g->tensors.data[index]
                                                                     : NULL;
}
