/* safetensors.c - the header, checked; no byte of data is read. */
#include "format/safetensors.h"
#include "base/error.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>

enum { PREFIX = 8, HEADER_MAX = 64 << 20 };

typedef struct reading {
    const uint8_t *data; /* after the header */
    size_t size;
    beryl_error *error;
} reading;

static beryl_status bad(const reading *r, const base_json *at, base_view name, const char *why) {
    return base_fail_at(r->error, BERYL_BAD_FILE, PREFIX + at->at, "tensor '%.*s': %s",
                        (int)(name.size < 200 ? name.size : 200), name.data, why);
}

/* A whole number of at most 2^53. */
static bool whole(const base_json *j, uint64_t *out) {
    if (!j || j->kind != JSON_NUMBER || !(j->number >= 0 && j->number <= 9007199254740992.0))
        return false;
    *out = (uint64_t)j->number;
    return (double)*out == j->number;
}

static bool type_of(base_view text, base_type *type) {
    static const base_type types[] = {TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_I32, TYPE_I16};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (base_view_equal(text, base_view_of(base_type_name(types[i])))) {
            *type = types[i];
            return true;
        }
    return false;
}

static beryl_status read_tensor(const reading *r, const base_json *j, format_safetensor *t) {
    const base_json *type = base_json_find(j, "dtype"), *shape = base_json_find(j, "shape"),
                    *offsets = base_json_find(j, "data_offsets");
    *t = (format_safetensor){.name = j->key};
    if (!type || type->kind != JSON_STRING || !shape || shape->kind != JSON_ARRAY || !offsets ||
        offsets->kind != JSON_ARRAY || offsets->n_child != 2)
        return bad(r, j, j->key, "no dtype, shape and data_offsets");
    if (!type_of(type->text, &t->type))
        return base_fail_at(r->error, BERYL_UNSUPPORTED, PREFIX + type->at,
                            "tensor '%.*s' is %.*s: F32, F16, BF16, I32 and I16 are read",
                            (int)(j->key.size < 200 ? j->key.size : 200), j->key.data,
                            (int)(type->text.size < 20 ? type->text.size : 20), type->text.data);
    if (shape->n_child < 1 || shape->n_child > SAFETENSORS_RANK_MAX)
        return bad(r, shape, j->key, "1 to 10 dimensions are read");
    uint64_t n = base_type_block_bytes(t->type), begin, end;
    for (const base_json *d = shape->child; d; d = d->next) {
        uint64_t size;
        if (!whole(d, &size) || size == 0 || size > UINT32_MAX || n > UINT64_MAX / size)
            return bad(r, d, j->key, "a dimension that cannot be");
        t->dim[t->n_dim++] = (uint32_t)size;
        n *= size;
    }
    if (!whole(offsets->child, &begin) || !whole(offsets->child->next, &end) || end < begin ||
        !base_range_inside(begin, end - begin, r->size))
        return bad(r, offsets, j->key, "its bytes are not inside the file");
    if (n != end - begin) return bad(r, offsets, j->key, "its bytes are not those of its shape");
    t->data = r->data + begin;
    t->size = (size_t)n;
    return BERYL_OK;
}

static int by_place(const void *a, const void *b) {
    const format_safetensor *x = *(const format_safetensor *const *)a,
                            *y = *(const format_safetensor *const *)b;
    return x->data < y->data ? -1 : x->data > y->data;
}

static int by_name(const void *a, const void *b) {
    const base_view x = (*(const format_safetensor *const *)a)->name,
                    y = (*(const format_safetensor *const *)b)->name;
    const int order = memcmp(x.data, y.data, x.size < y.size ? x.size : y.size);
    return order ? order : (x.size > y.size) - (x.size < y.size);
}

/* No byte belongs to two tensors, and no name. */
static beryl_status check_alone(base_arena *arena, const format_safetensors *s,
                                beryl_error *error) {
    const format_safetensor **order = base_arena_take(arena, s->n + 1, sizeof *order);
    if (!order) return base_no_memory(error);
    for (size_t i = 0; i < s->n; i++) order[i] = &s->tensors[i];
    for (int pass = 0; pass < 2; pass++) {
        qsort(order, s->n, sizeof *order, pass ? by_name : by_place);
        for (size_t i = 1; i < s->n; i++) {
            const format_safetensor *a = order[i - 1], *b = order[i];
            if (pass ? base_view_equal(a->name, b->name) : a->size > (size_t)(b->data - a->data))
                return base_fail(error, BERYL_BAD_FILE, "tensor '%.*s' %s '%.*s'",
                                 (int)(a->name.size < 150 ? a->name.size : 150), a->name.data,
                                 pass ? "stands twice:" : "lies over",
                                 (int)(b->name.size < 150 ? b->name.size : 150), b->name.data);
        }
    }
    return BERYL_OK;
}

beryl_status format_safetensors_read(base_arena *arena, const void *data, size_t size,
                                     format_safetensors *out, beryl_error *error) {
    uint64_t length = 0;
    *out = (format_safetensors){0};
    if (size < PREFIX + 2)
        return base_fail(error, BERYL_BAD_FILE, "a safetensors file of %zu bytes", size);
    for (int i = PREFIX; i-- > 0;) length = length << 8 | ((const uint8_t *)data)[i];
    if (length > size - PREFIX || length > HEADER_MAX)
        return base_fail(error, BERYL_BAD_FILE,
                         "not a safetensors file: a header of %llu bytes in a file of %zu",
                         (unsigned long long)length, size);
    const char *text = (const char *)data + PREFIX;
    base_json *json;
    beryl_error why = {0};
    beryl_status status = base_json_parse(arena, text, (size_t)length, &json, &why);
    if (status == BERYL_NO_MEMORY) return base_fail(error, status, "%s", why.message);
    if (status != BERYL_OK || json->kind != JSON_OBJECT)
        return base_fail_at(error, BERYL_BAD_FILE, PREFIX + why.at,
                            "a safetensors header that is no JSON object: %.300s", why.message);
    const reading r = {(const uint8_t *)text + length, size - PREFIX - (size_t)length, error};
    out->tensors = base_arena_take(arena, json->n_child + 1, sizeof *out->tensors);
    if (!out->tensors) return base_no_memory(error);
    for (const base_json *j = json->child; status == BERYL_OK && j; j = j->next) {
        if (base_view_equal(j->key, BASE_VIEW("__metadata__"))) out->metadata = j;
        else status = read_tensor(&r, j, &out->tensors[out->n++]);
    }
    return status == BERYL_OK ? check_alone(arena, out, error) : status;
}

base_view format_safetensors_text(const format_safetensors *s, const char *key) {
    const base_json *j = s->metadata ? base_json_find(s->metadata, key) : NULL;
    return j && j->kind == JSON_STRING ? j->text : (base_view){"", 0};
}
