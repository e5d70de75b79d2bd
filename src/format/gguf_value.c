/* gguf_value.c - typed reading of keys.
 *
 * Owns conversions from what a file stores to what a caller asks for. Refuses another kind and a
 * value that does not fit, naming the key; never rounds an integer and never hands out a float that
 * is not finite. The one idea: every number goes through one reader (number_at), so scalars, array
 * elements and whole arrays obey the same rules. */
#include "format/gguf.h"

#include "base/error.h"
#include "base/json.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

const char *format_gguf_kind_name(format_gguf_kind kind) {
    switch (kind) {
#define X(name, text, bytes) \
    case FORMAT_GGUF_##name: return text;
        FORMAT_GGUF_KIND_LIST(X)
#undef X
    case FORMAT_GGUF_KIND_COUNT: break;
    }
    return "unknown";
}

/* A stored number: integers as sign and bits, so that all of i64 and u64 fits. */
typedef struct number {
    enum { NUMBER_NONE, NUMBER_SIGNED, NUMBER_UNSIGNED, NUMBER_FLOAT, NUMBER_BOOL } kind;
    int64_t i;  /* SIGNED */
    uint64_t u; /* UNSIGNED, BOOL */
    double f;   /* FLOAT */
} number;

static uint64_t load(const uint8_t *data, uint32_t n) {
    uint64_t value = 0;
    for (uint32_t i = 0; i < n; i++) value |= (uint64_t)data[i] << 8 * i;
    return value;
}

static number number_signed(uint64_t bits, uint32_t n) {
    uint64_t sign = UINT64_C(1) << (8 * n - 1);
    uint64_t extended = n == 8 ? bits : (bits ^ sign) - sign;
    int64_t value;
    memcpy(&value, &extended, sizeof value);
    return (number){.kind = NUMBER_SIGNED, .i = value};
}

/* Element `index` (inside the array; a scalar stands for all). NONE: the pair holds no numbers. */
static number number_at(const format_gguf_pair *pair, uint64_t index) {
    if (!pair->is_array) index = 0;
    switch (pair->kind) {
    case FORMAT_GGUF_U8: return (number){.kind = NUMBER_UNSIGNED, .u = pair->data[index]};
    case FORMAT_GGUF_U16:
        return (number){.kind = NUMBER_UNSIGNED, .u = load(pair->data + 2 * index, 2)};
    case FORMAT_GGUF_U32:
        return (number){.kind = NUMBER_UNSIGNED, .u = load(pair->data + 4 * index, 4)};
    case FORMAT_GGUF_U64:
        return (number){.kind = NUMBER_UNSIGNED, .u = load(pair->data + 8 * index, 8)};
    case FORMAT_GGUF_I8: return number_signed(pair->data[index], 1);
    case FORMAT_GGUF_I16: return number_signed(load(pair->data + 2 * index, 2), 2);
    case FORMAT_GGUF_I32: return number_signed(load(pair->data + 4 * index, 4), 4);
    case FORMAT_GGUF_I64: return number_signed(load(pair->data + 8 * index, 8), 8);
    case FORMAT_GGUF_BOOL: return (number){.kind = NUMBER_BOOL, .u = pair->data[index]};
    case FORMAT_GGUF_F32: {
        uint32_t bits = (uint32_t)load(pair->data + 4 * index, 4);
        float value;
        memcpy(&value, &bits, sizeof value);
        return (number){.kind = NUMBER_FLOAT, .f = (double)value};
    }
    case FORMAT_GGUF_F64: {
        uint64_t bits = load(pair->data + 8 * index, 8);
        number n = {.kind = NUMBER_FLOAT};
        memcpy(&n.f, &bits, sizeof n.f);
        return n;
    }
    case FORMAT_GGUF_STRING:
    case FORMAT_GGUF_ARRAY:
    case FORMAT_GGUF_KIND_COUNT: break;
    }
    return (number){.kind = NUMBER_NONE};
}

/* What a caller asks for. The range of an integer is [least, most]; unsigned where least is 0. */
typedef struct wanted {
    enum { WANT_INTEGER, WANT_FLOAT, WANT_BOOL } kind;
    const char *text;
    int64_t least;
    uint64_t most;
    double f_max; /* FLOAT: largest magnitude */
} wanted;

static const wanted want_u32 = {WANT_INTEGER, "an unsigned 32-bit integer", 0, UINT32_MAX, 0};
static const wanted want_i32 = {WANT_INTEGER, "a 32-bit integer", INT32_MIN, INT32_MAX, 0};
static const wanted want_u64 = {WANT_INTEGER, "an unsigned integer", 0, UINT64_MAX, 0};
static const wanted want_i64 = {WANT_INTEGER, "an integer", INT64_MIN, INT64_MAX, 0};
static const wanted want_f32 = {WANT_FLOAT, "a finite number", 0, 0, (double)FLT_MAX};
static const wanted want_f64 = {WANT_FLOAT, "a finite number", 0, 0, DBL_MAX};
static const wanted want_bool = {WANT_BOOL, "true or false", 0, 1, 0};

/* Leaves the value in the field for its kind: u and i for integers, f for floats, u for bools. */
static bool number_fits(number *n, const wanted *want) {
    switch (want->kind) {
    case WANT_FLOAT: return n->kind == NUMBER_FLOAT && isfinite(n->f) && fabs(n->f) <= want->f_max;
    case WANT_INTEGER:
    case WANT_BOOL:
        if (n->kind == NUMBER_BOOL && want->kind != WANT_BOOL) return false;
        if (n->kind == NUMBER_SIGNED && n->i < 0) {
            if (n->i < want->least) return false;
            n->u = 0;
            return true;
        }
        if (n->kind == NUMBER_SIGNED) n->u = (uint64_t)n->i;
        if (n->kind == NUMBER_FLOAT || n->kind == NUMBER_NONE || n->u > want->most) return false;
        if (n->u <= INT64_MAX) n->i = (int64_t)n->u;
        return true;
    }
    return false;
}

static const char *kind_text(const format_gguf_pair *pair) {
    return format_gguf_kind_name(pair->kind);
}

static beryl_status missing(const char *key, beryl_error *error) {
    return base_fail(error, BERYL_NOT_FOUND, "the file has no key \"%s\"", key);
}

static beryl_status get(const format_gguf *g, const char *key, bool element, uint64_t index,
                        const wanted *want, number *out, beryl_error *error) {
    const format_gguf_pair *pair = format_gguf_find(g, key);
    if (!pair) return missing(key, error);
    if (pair->is_array && !element) {
        return base_fail(error, BERYL_BAD_FILE, "key \"%s\" is an array of %s, not %s", key,
                         kind_text(pair), want->text);
    }
    if (pair->is_array && index >= pair->count) {
        return base_fail(error, BERYL_BAD_FILE,
                         "key \"%s\" has %" PRIu64 " values, number %" PRIu64 " is missing", key,
                         pair->count, index);
    }
    *out = number_at(pair, index);
    if (!number_fits(out, want)) {
        return base_fail(error, BERYL_BAD_FILE, "key \"%s\" (%s%s, value %" PRIu64 ") is not %s",
                         key, pair->is_array ? "array of " : "", kind_text(pair), index,
                         want->text);
    }
    return BERYL_OK;
}

beryl_status format_gguf_get_u32(const format_gguf *g, const char *key, uint32_t *out,
                                 beryl_error *error) {
    number n;
    beryl_status status = get(g, key, false, 0, &want_u32, &n, error);
    if (!status) *out = (uint32_t)n.u;
    return status;
}

beryl_status format_gguf_get_i32(const format_gguf *g, const char *key, int32_t *out,
                                 beryl_error *error) {
    number n;
    beryl_status status = get(g, key, false, 0, &want_i32, &n, error);
    if (!status) *out = (int32_t)n.i;
    return status;
}

beryl_status format_gguf_get_u64(const format_gguf *g, const char *key, uint64_t *out,
                                 beryl_error *error) {
    number n;
    beryl_status status = get(g, key, false, 0, &want_u64, &n, error);
    if (!status) *out = n.u;
    return status;
}

beryl_status format_gguf_get_i64(const format_gguf *g, const char *key, int64_t *out,
                                 beryl_error *error) {
    number n;
    beryl_status status = get(g, key, false, 0, &want_i64, &n, error);
    if (!status) *out = n.i;
    return status;
}

beryl_status format_gguf_get_f32(const format_gguf *g, const char *key, float *out,
                                 beryl_error *error) {
    number n;
    beryl_status status = get(g, key, false, 0, &want_f32, &n, error);
    if (!status) *out = (float)n.f;
    return status;
}

beryl_status format_gguf_get_f64(const format_gguf *g, const char *key, double *out,
                                 beryl_error *error) {
    number n;
    beryl_status status = get(g, key, false, 0, &want_f64, &n, error);
    if (!status) *out = n.f;
    return status;
}

beryl_status format_gguf_get_bool(const format_gguf *g, const char *key, bool *out,
                                  beryl_error *error) {
    number n;
    beryl_status status = get(g, key, false, 0, &want_bool, &n, error);
    if (!status) *out = n.u != 0;
    return status;
}

beryl_status format_gguf_u32_at(const format_gguf *g, const char *key, uint64_t index,
                                uint32_t *out, beryl_error *error) {
    number n;
    beryl_status status = get(g, key, true, index, &want_u32, &n, error);
    if (!status) *out = (uint32_t)n.u;
    return status;
}

beryl_status format_gguf_i64_at(const format_gguf *g, const char *key, uint64_t index, int64_t *out,
                                beryl_error *error) {
    number n;
    beryl_status status = get(g, key, true, index, &want_i64, &n, error);
    if (!status) *out = n.i;
    return status;
}

beryl_status format_gguf_f32_at(const format_gguf *g, const char *key, uint64_t index, float *out,
                                beryl_error *error) {
    number n;
    beryl_status status = get(g, key, true, index, &want_f32, &n, error);
    if (!status) *out = (float)n.f;
    return status;
}

beryl_status format_gguf_bool_at(const format_gguf *g, const char *key, uint64_t index, bool *out,
                                 beryl_error *error) {
    number n;
    beryl_status status = get(g, key, true, index, &want_bool, &n, error);
    if (!status) *out = n.u != 0;
    return status;
}

beryl_status format_gguf_u32_or(const format_gguf *g, const char *key, uint32_t fallback,
                                uint32_t *out, beryl_error *error) {
    if (format_gguf_find(g, key)) return format_gguf_get_u32(g, key, out, error);
    *out = fallback;
    return BERYL_OK;
}

beryl_status format_gguf_f32_or(const format_gguf *g, const char *key, float fallback, float *out,
                                beryl_error *error) {
    if (format_gguf_find(g, key)) return format_gguf_get_f32(g, key, out, error);
    *out = fallback;
    return BERYL_OK;
}

beryl_status format_gguf_bool_or(const format_gguf *g, const char *key, bool fallback, bool *out,
                                 beryl_error *error) {
    if (format_gguf_find(g, key)) return format_gguf_get_bool(g, key, out, error);
    *out = fallback;
    return BERYL_OK;
}

uint64_t format_gguf_count(const format_gguf *g, const char *key) {
    const format_gguf_pair *pair = format_gguf_find(g, key);
    return pair ? pair->count : 0;
}

/* The string whose length lies at *at; moves *at behind it. Opening has proven all lengths. */
base_view format_gguf_string_next(const void **at) {
    const char *text = (const char *)*at + 8;
    const size_t size = (size_t)load(*at, 8);
    *at = text + size;
    return (base_view){text, size};
}

beryl_status format_gguf_get_string(const format_gguf *g, const char *key, base_view *out,
                                    beryl_error *error) {
    const format_gguf_pair *pair = format_gguf_find(g, key);
    if (!pair) return missing(key, error);
    if (pair->is_array || pair->kind != FORMAT_GGUF_STRING) {
        return base_fail(error, BERYL_BAD_FILE, "key \"%s\" is %s%s, not a string", key,
                         pair->is_array ? "an array of " : "", kind_text(pair));
    }
    const void *at = pair->data;
    *out = format_gguf_string_next(&at);
    return BERYL_OK;
}

/* The array behind a key, or why there is none. Counts fit size_t, since the bytes are in memory.
 */
static beryl_status get_array(const format_gguf *g, const char *key, const char *what,
                              const format_gguf_pair **out, beryl_error *error) {
    const format_gguf_pair *pair = format_gguf_find(g, key);
    if (!pair) return missing(key, error);
    if (!pair->is_array)
        return base_fail(error, BERYL_BAD_FILE, "key \"%s\" is a single %s, not an array of %s",
                         key, kind_text(pair), what);
    *out = pair;
    return BERYL_OK;
}

beryl_status format_gguf_strings_at(const format_gguf *g, const char *key, const void **at,
                                    size_t *n, beryl_error *error) {
    const format_gguf_pair *pair = NULL;
    beryl_status status = get_array(g, key, "strings", &pair, error);
    if (status) return status;
    if (pair->kind != FORMAT_GGUF_STRING) {
        return base_fail(error, BERYL_BAD_FILE, "key \"%s\" is an array of %s, not of strings", key,
                         kind_text(pair));
    }
    *at = pair->data;
    *n = (size_t)pair->count;
    return BERYL_OK;
}

beryl_status format_gguf_strings(const format_gguf *g, const char *key, base_arena *arena,
                                 base_view **out, size_t *n, beryl_error *error) {
    const void *at = NULL;
    size_t count = 0;
    beryl_status status = format_gguf_strings_at(g, key, &at, &count, error);
    if (status) return status;
    base_view *views = base_arena_take(arena, count ? count : 1, sizeof *views); // [count]
    if (!views)
        return base_fail(error, BERYL_NO_MEMORY, "no memory for the %zu strings of \"%s\"", count,
                         key);
    for (size_t i = 0; i < count; i++) views[i] = format_gguf_string_next(&at);
    *out = views;
    *n = count;
    return BERYL_OK;
}

static beryl_status bad_element(const format_gguf_pair *pair, const char *key, size_t index,
                                const wanted *want, beryl_error *error) {
    return base_fail(error, BERYL_BAD_FILE, "key \"%s\" (array of %s): value %zu is not %s", key,
                     kind_text(pair), index, want->text);
}

beryl_status format_gguf_i32s(const format_gguf *g, const char *key, base_arena *arena,
                              int32_t **out, size_t *n, beryl_error *error) {
    const format_gguf_pair *pair = NULL;
    beryl_status status = get_array(g, key, "integers", &pair, error);
    if (status) return status;
    size_t count = (size_t)pair->count;
    int32_t *values = base_arena_take(arena, count ? count : 1, sizeof *values); // [count]
    if (!values)
        return base_fail(error, BERYL_NO_MEMORY, "no memory for the %zu values of \"%s\"", count,
                         key);
    for (size_t i = 0; i < count; i++) {
        number v = number_at(pair, i);
        if (!number_fits(&v, &want_i32)) return bad_element(pair, key, i, &want_i32, error);
        values[i] = (int32_t)v.i;
    }
    *out = values;
    *n = count;
    return BERYL_OK;
}

beryl_status format_gguf_f32s(const format_gguf *g, const char *key, base_arena *arena, float **out,
                              size_t *n, beryl_error *error) {
    const format_gguf_pair *pair = NULL;
    beryl_status status = get_array(g, key, "numbers", &pair, error);
    if (status) return status;
    size_t count = (size_t)pair->count;
    float *values = base_arena_take(arena, count ? count : 1, sizeof *values); // [count]
    if (!values)
        return base_fail(error, BERYL_NO_MEMORY, "no memory for the %zu values of \"%s\"", count,
                         key);
    for (size_t i = 0; i < count; i++) {
        number v = number_at(pair, i);
        if (!number_fits(&v, &want_f32)) return bad_element(pair, key, i, &want_f32, error);
        values[i] = (float)v.f;
    }
    *out = values;
    *n = count;
    return BERYL_OK;
}

static void write_number(number v, bool is_f32, base_text *out) {
    switch (v.kind) {
    case NUMBER_SIGNED: base_text_print(out, "%" PRId64, v.i); break;
    case NUMBER_UNSIGNED: base_text_print(out, "%" PRIu64, v.u); break;
    case NUMBER_BOOL: base_text_print(out, v.u ? "true" : "false"); break;
    case NUMBER_FLOAT: /* JSON has no infinities */
        if (isfinite(v.f)) {
            base_text_print(out, "%.*g", is_f32 ? 9 : 17, v.f);
        } else {
            base_text_print(out, "null");
        }
        break;
    case NUMBER_NONE: base_text_print(out, "null"); break;
    }
}

void format_gguf_pair_write(const format_gguf_pair *pair, size_t most, base_text *out) {
    const void *at = pair->data;
    if (pair->is_array) base_text_add(out, "[", 1);
    uint64_t i;
    for (i = 0; i < pair->count && (!pair->is_array || i < most); i++) {
        if (i) base_text_add(out, ",", 1);
        if (pair->kind == FORMAT_GGUF_STRING) {
            base_view text = format_gguf_string_next(&at);
            base_json_write_string(out, text.data, text.size);
        } else {
            write_number(number_at(pair, i), pair->kind == FORMAT_GGUF_F32, out);
        }
    }
    if (i < pair->count) base_text_print(out, "%s\"...\"", i ? "," : "");
    if (pair->is_array) base_text_add(out, "]", 1);
}
