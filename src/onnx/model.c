/* model.c - protobuf, as far as ONNX files need it: messages are read where they lie.
 *
 * Owns the check of every length. A message is walked twice: once to count what repeats, once to
 * take it, so that no array grows. Refuses groups, numbers of more than 10 bytes, fields that reach
 * outside their message and messages nested too deeply. */
#include "onnx/model.h"
#include "base/error.h"
#include "base/file.h"

#include <string.h>

typedef struct field {
    uint32_t number, wire; /* wire: 0 varint, 1 of 8 bytes, 2 of a length, 5 of 4 bytes */
    uint64_t value;
    base_view bytes;
} field;

typedef struct reading {
    base_arena *arena;
    const char *file;
    beryl_error *error;
    uint32_t depth;
    bool failed;
} reading;

static bool fail(reading *r, beryl_status code, const char *at, const char *why) {
    if (!r->failed) base_fail_at(r->error, code, (uint64_t)(at - r->file), "ONNX file: %s", why);
    r->failed = true;
    return false;
}

static bool varint(base_view *from, uint64_t *value) {
    *value = 0;
    for (uint32_t i = 0; i < 10 && i < from->size; i++) {
        const uint64_t byte = (uint8_t)from->data[i];
        *value |= (byte & 127) << (7 * i);
        if (byte >> 7) continue;
        from->data += i + 1;
        from->size -= i + 1;
        return true;
    }
    return false;
}

static bool take(base_view *from, uint64_t size, base_view *out) {
    if (size > from->size) return false;
    *out = (base_view){from->data, (size_t)size};
    from->data += size;
    from->size -= (size_t)size;
    return true;
}

static bool field_next(base_view *from, field *f) {
    uint64_t key, size = 0;
    *f = (field){0};
    if (!varint(from, &key) || key >> 3 == 0 || key >> 32) return false;
    f->number = (uint32_t)(key >> 3);
    f->wire = key & 7;
    switch (f->wire) {
    case 0: return varint(from, &f->value);
    case 1: return take(from, 8, &f->bytes);
    case 2: return varint(from, &size) && take(from, size, &f->bytes);
    case 5: return take(from, 4, &f->bytes);
    default: return false;
    }
}

/* The next field of a message; false: its end, or broken (failed). */
static bool next(reading *r, base_view *from, field *f) {
    if (r->failed || !from->size) return false;
    const char *at = from->data;
    return field_next(from, f) || fail(r, BERYL_BAD_FILE, at, "a field that is broken or cut off");
}

static size_t count(reading *r, base_view message, uint32_t number) {
    size_t n = 0;
    field f;
    while (next(r, &message, &f)) n += f.number == number;
    return n;
}

static void *places(reading *r, const char *at, size_t n, size_t size) {
    if (!n && !r->failed) return (void *)(uintptr_t)r->file; /* of none no memory, but no failure */
    void *to = r->failed ? NULL : base_arena_take(r->arena, n, size);
    if (!to) fail(r, BERYL_NO_MEMORY, at, "out of host memory");
    return to;
}

typedef void read_fn(reading *r, base_view message, void *to);

/* All submessages of a number, as an array of structs of `size` bytes. */
static const void *messages(reading *r, base_view message, uint32_t number, size_t size,
                            read_fn *read, size_t *n) {
    *n = count(r, message, number);
    char *to = places(r, message.data, *n, size);
    if (!to) return *n = 0, NULL;
    if (++r->depth > ONNX_NESTED_MAX && *n)
        fail(r, BERYL_UNSUPPORTED, message.data, "graphs are nested more than 16 messages deep");
    field f;
    for (char *at = to; next(r, &message, &f);)
        if (f.number == number) {
            if (f.wire != 2) fail(r, BERYL_BAD_FILE, message.data, "a message is expected");
            else read(r, f.bytes, at), at += size;
        }
    r->depth--;
    return to;
}

static void read_text(reading *r, base_view message, void *to) {
    (void)r;
    *(base_view *)to = message;
}

/* Numbers of a field, packed or not: whole ones, or of 4 bytes each. */
static size_t numbers(reading *r, base_view message, uint32_t number, int64_t *whole, float *real) {
    size_t n = 0;
    field f;
    while (next(r, &message, &f)) {
        if (f.number != number) continue;
        const bool packed = f.wire == 2;
        if (f.wire == 0 || (f.wire == 5 && real)) {
            if (whole) whole[n] = (int64_t)f.value;
            if (real && f.wire == 5) memcpy(&real[n], f.bytes.data, 4);
            n++;
        } else if (packed && real) {
            if (f.bytes.size % 4) fail(r, BERYL_BAD_FILE, f.bytes.data, "numbers that are cut off");
            else memcpy(real + n, f.bytes.data, f.bytes.size);
            n += f.bytes.size / 4;
        } else {
            for (uint64_t value; packed && f.bytes.size; n++) {
                const char *at = f.bytes.data;
                if (!varint(&f.bytes, &value)) {
                    fail(r, BERYL_BAD_FILE, at, "a number that is cut off");
                    break;
                }
                if (whole) whole[n] = (int64_t)value;
            }
        }
    }
    return n;
}

/* No more numbers than bytes. */
static size_t most_numbers(reading *r, base_view message, uint32_t number, size_t size) {
    size_t n = 0;
    field f;
    while (next(r, &message, &f))
        if (f.number == number) n += f.wire == 2 ? f.bytes.size / size : 1;
    return n;
}

static void dims_take(reading *r, base_view message, uint32_t number, onnx_tensor *t) {
    const size_t most = most_numbers(r, message, number, 1);
    int64_t *dims = places(r, message.data, most, sizeof *dims);
    const size_t n = dims ? numbers(r, message, number, dims, NULL) : 0;
    if (n > ONNX_RANK_MAX) {
        fail(r, BERYL_UNSUPPORTED, message.data, "a tensor of more than 10 dimensions");
        return;
    }
    t->rank = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        if (dims[i] < 0 || dims[i] > INT32_MAX)
            fail(r, BERYL_BAD_FILE, message.data, "a tensor with a dimension that cannot be");
        t->dim[i] = (uint32_t)dims[i];
    }
}

static bool decimal(base_view text, uint64_t *value) {
    *value = 0;
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9' || *value > UINT64_MAX / 10 - 1) return false;
        *value = *value * 10 + (uint64_t)(text.data[i] - '0');
    }
    return text.size > 0;
}

static void read_place(reading *r, base_view message, onnx_tensor *t) {
    base_view key = {0}, value = {0};
    const char *at = message.data;
    field f;
    while (next(r, &message, &f)) {
        if (f.number == 1) key = f.bytes;
        if (f.number == 2) value = f.bytes;
    }
    bool fine = true;
    if (base_view_equal(key, BASE_VIEW("location"))) t->location = value;
    if (base_view_equal(key, BASE_VIEW("offset"))) fine = decimal(value, &t->offset);
    if (base_view_equal(key, BASE_VIEW("length"))) fine = decimal(value, &t->length);
    if (!fine) fail(r, BERYL_BAD_FILE, at, "an offset or length that is no number");
}

static void read_tensor(reading *r, base_view message, void *to) {
    onnx_tensor *t = to;
    base_view rest = message;
    t->typed = message;
    t->length = UINT64_MAX;
    field f;
    while (next(r, &rest, &f)) switch (f.number) {
        case 2: t->kind = (uint32_t)f.value; break;
        case 8: t->name = f.bytes; break;
        case 9: t->raw = f.bytes; break;
        case 13: read_place(r, f.bytes, t); break;
        case 14: t->outside = f.value == 1; break;
        default: break;
        }
    dims_take(r, message, 1, t);
    if (t->outside && !onnx_location_is_inside(t->location))
        fail(r, BERYL_BAD_FILE, message.data, "a tensor in a file outside the model's folder");
}

static void read_graph(reading *r, base_view message, void *to);

static void read_attribute(reading *r, base_view message, void *to) {
    onnx_attribute *a = to;
    base_view rest = message;
    field f;
    size_t n;
    while (next(r, &rest, &f)) switch (f.number) {
        case 1: a->name = f.bytes; break;
        case 2:
            if (f.wire == 5) memcpy(&a->number, f.bytes.data, 4);
            break;
        case 3: a->whole = (int64_t)f.value; break;
        case 4: a->text = f.bytes; break;
        case 20: a->kind = (uint32_t)f.value; break;
        case 21: a->reference = f.bytes; break;
        default: break;
        }
    a->tensor = messages(r, message, 5, sizeof(onnx_tensor), read_tensor, &n);
    if (!n) a->tensor = NULL;
    a->graph = messages(r, message, 6, sizeof(onnx_graph), read_graph, &n);
    if (!n) a->graph = NULL;
    if ((n = most_numbers(r, message, 7, 4)) > 0) {
        float *reals = places(r, message.data, n, sizeof *reals);
        if (reals) a->n = numbers(r, message, 7, NULL, reals);
        a->numbers = reals;
    } else if ((n = most_numbers(r, message, 8, 1)) > 0) {
        int64_t *wholes = places(r, message.data, n, sizeof *wholes);
        if (wholes) a->n = numbers(r, message, 8, wholes, NULL);
        a->wholes = wholes;
    }
}

static void read_node(reading *r, base_view message, void *to) {
    onnx_node *n = to;
    base_view rest = message;
    field f;
    while (next(r, &rest, &f)) {
        if (f.number == 3) n->name = f.bytes;
        if (f.number == 4) n->op = f.bytes;
        if (f.number == 7) n->domain = f.bytes;
    }
    n->in = messages(r, message, 1, sizeof *n->in, read_text, &n->n_in);
    n->out = messages(r, message, 2, sizeof *n->out, read_text, &n->n_out);
    n->attributes = messages(r, message, 5, sizeof *n->attributes, read_attribute, &n->n_attribute);
}

static void read_dim(reading *r, base_view message, onnx_info *info) {
    int64_t size = -1;
    base_view name = {0};
    const char *at = message.data;
    field f;
    while (next(r, &message, &f)) {
        if (f.number == 1) size = (int64_t)f.value;
        if (f.number == 2) name = f.bytes;
    }
    if (info->rank == ONNX_RANK_MAX) {
        fail(r, BERYL_UNSUPPORTED, at, "a shape of more than 10 dimensions");
        return;
    }
    if (size < -1 || size > INT32_MAX)
        fail(r, BERYL_BAD_FILE, at, "a shape with a dimension that cannot be");
    info->dim[info->rank] = size;
    info->dim_name[info->rank++] = name;
}

static void read_info(reading *r, base_view message, void *to) {
    onnx_info *info = to;
    field f, type, part, dim;
    while (next(r, &message, &f)) {
        if (f.number == 1) info->name = f.bytes;
        if (f.number != 2 || f.wire != 2) continue;
        while (next(r, &f.bytes, &type)) {
            if (type.number != 1 || type.wire != 2) continue;
            while (next(r, &type.bytes, &part)) {
                if (part.number == 1) info->kind = (uint32_t)part.value;
                if (part.number != 2 || part.wire != 2) continue;
                info->shaped = true;
                while (next(r, &part.bytes, &dim))
                    if (dim.number == 1 && dim.wire == 2) read_dim(r, dim.bytes, info);
            }
        }
    }
}

static void read_graph(reading *r, base_view message, void *to) {
    onnx_graph *g = to;
    base_view rest = message;
    field f;
    while (next(r, &rest, &f)) {
        if (f.number == 2) g->name = f.bytes;
        if (f.number == 15)
            fail(r, BERYL_UNSUPPORTED, f.bytes.data, "sparse initializers are not read");
    }
    g->nodes = messages(r, message, 1, sizeof *g->nodes, read_node, &g->n_node);
    g->tensors = messages(r, message, 5, sizeof *g->tensors, read_tensor, &g->n_tensor);
    g->in = messages(r, message, 11, sizeof *g->in, read_info, &g->n_in);
    g->out = messages(r, message, 12, sizeof *g->out, read_info, &g->n_out);
}

static void read_import(reading *r, base_view message, void *to) {
    onnx_import *i = to;
    field f;
    while (next(r, &message, &f)) {
        if (f.number == 1) i->domain = f.bytes;
        if (f.number == 2) i->version = (int64_t)f.value;
    }
}

static void read_function(reading *r, base_view message, void *to) {
    onnx_function *n = to;
    base_view rest = message;
    field f;
    while (next(r, &rest, &f)) {
        if (f.number == 1) n->name = f.bytes;
        if (f.number == 10) n->domain = f.bytes;
    }
    n->in = messages(r, message, 4, sizeof *n->in, read_text, &n->n_in);
    n->out = messages(r, message, 5, sizeof *n->out, read_text, &n->n_out);
    n->nodes = messages(r, message, 7, sizeof *n->nodes, read_node, &n->n_node);
    n->imports = messages(r, message, 9, sizeof *n->imports, read_import, &n->n_import);
    n->usual = messages(r, message, 11, sizeof *n->usual, read_attribute, &n->n_usual);
}

beryl_status onnx_model_read(base_arena *arena, const void *data, size_t size, onnx_model *model,
                             beryl_error *error) {
    beryl_error why = {0};
    reading r = {.arena = arena, .file = data, .error = &why};
    const base_view file = {data, size};
    base_view rest = file;
    field f;
    size_t n;
    *model = (onnx_model){0};
    while (next(&r, &rest, &f)) {
        if (f.number == 1 && f.wire == 0) model->version = (int64_t)f.value;
        if (f.number == 2) model->producer = f.bytes;
    }
    model->imports = messages(&r, file, 8, sizeof *model->imports, read_import, &model->n_import);
    model->graph = messages(&r, file, 7, sizeof *model->graph, read_graph, &n);
    if (!r.failed && n != 1) fail(&r, BERYL_BAD_FILE, r.file, "there is no graph in it");
    model->functions =
        messages(&r, file, 25, sizeof *model->functions, read_function, &model->n_function);
    if (r.failed && error) *error = why;
    return r.failed ? why.code : BERYL_OK;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Of TensorProto.DataType: name, type, the field that holds numbers that are not raw. */
static const struct {
    const char *name;
    base_type type;
    uint32_t typed;
} kinds[] = {
    [1] = {"float", TYPE_F32, 4},
    [2] = {"uint8", TYPE_U8, 5},
    [3] = {"int8", TYPE_I8, 5},
    [4] = {"uint16", TYPE_U16, 5},
    [5] = {"int16", TYPE_I16, 5},
    [6] = {"int32", TYPE_I32, 5},
    [7] = {"int64", TYPE_I64, 7},
    [8] = {"string", TYPE_COUNT, 0},
    [9] = {"bool", TYPE_BOOL, 5},
    [10] = {"float16", TYPE_F16, 5},
    [11] = {"double", TYPE_F64, 10},
    [12] = {"uint32", TYPE_U32, 11},
    [13] = {"uint64", TYPE_COUNT, 0},
    [14] = {"complex64", TYPE_COUNT, 0},
    [15] = {"complex128", TYPE_COUNT, 0},
    [16] = {"bfloat16", TYPE_BF16, 5},
    [17] = {"float8e4m3fn", TYPE_COUNT, 0},
    [18] = {"float8e4m3fnuz", TYPE_COUNT, 0},
    [19] = {"float8e5m2", TYPE_COUNT, 0},
    [20] = {"float8e5m2fnuz", TYPE_COUNT, 0},
    [21] = {"uint4", TYPE_COUNT, 0},
    [22] = {"int4", TYPE_COUNT, 0},
    [23] = {"float4e2m1", TYPE_COUNT, 0},
};
enum { KIND_COUNT = sizeof kinds / sizeof *kinds };

bool onnx_type_of(uint32_t kind, base_type *type) {
    if (!kind || kind >= KIND_COUNT || kinds[kind].type == TYPE_COUNT) return false;
    *type = kinds[kind].type;
    return true;
}

uint32_t onnx_kind_of(base_type type) {
    for (uint32_t i = 1; i < KIND_COUNT; i++)
        if (kinds[i].type == type) return i;
    return 0;
}

const char *onnx_kind_name(uint32_t kind) {
    return kind < KIND_COUNT && kinds[kind].name ? kinds[kind].name : "no tensor";
}

bool onnx_location_is_inside(base_view location) {
    size_t part = 0; /* where it begins */
    if (!location.size || location.size > 1000) return false;
    for (size_t i = 0; i <= location.size; i++) {
        const char c = i < location.size ? location.data[i] : '/';
        if (c == '\\' || c == ':' || (unsigned char)c < 32) return false;
        if (c != '/') continue;
        const base_view name = {location.data + part, i - part};
        if (!name.size || base_view_equal(name, BASE_VIEW("..")) ||
            base_view_equal(name, BASE_VIEW(".")))
            return false;
        part = i + 1;
    }
    return true;
}

bool onnx_tensor_copy(const onnx_tensor *t, void *to, size_t size) {
    base_type type;
    if (!onnx_type_of(t->kind, &type)) return false;
    if (t->raw.size) {
        if (t->raw.size == size) memcpy(to, t->raw.data, size);
        return t->raw.size == size;
    }
    const uint32_t number = kinds[t->kind].typed, bytes = base_type_block_bytes(type);
    const bool fixed = number == 4 || number == 10;
    size_t n = 0;
    base_view rest = t->typed;
    field f;
    while (rest.size && field_next(&rest, &f)) {
        if (f.number != number) continue;
        if (f.wire == 0 && !fixed) {
            if (n + bytes > size) return false;
            memcpy((char *)to + n, &f.value, bytes);
            n += bytes;
        } else if (fixed) {
            if (f.bytes.size % bytes || f.bytes.size > size - n) return false;
            memcpy((char *)to + n, f.bytes.data, f.bytes.size);
            n += f.bytes.size;
        } else {
            for (uint64_t value; f.bytes.size; n += bytes) {
                if (!varint(&f.bytes, &value) || n + bytes > size) return false;
                memcpy((char *)to + n, &value, bytes);
            }
        }
    }
    return n == size;
}
