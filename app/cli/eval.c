/* eval.c - runs an ONNX file once: inputs from NumPy files or archives of them, outputs to an
 * archive.
 *
 * Refuses NumPy files in Fortran order, of big-endian numbers and of other types than Beryl's. An
 * archive is a zip whose parts are stored as they are, of at most 4 GiB.
 * https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html */
#include "base/file.h"
#include "onnx.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { RANK_MAX = 10 };

typedef struct array {
    const char *name;
    beryl_type type;
    uint32_t rank, dim[RANK_MAX];
    char *file; /* [file_size], owned */
    size_t file_size;
    size_t at, size, end; /* the numbers; the end of the NumPy file that they are in */
} array;

/* As NumPy names them. BF16 has no name there: raw bytes. */
static const struct {
    beryl_type type;
    const char *descr, *name;
    uint32_t bytes;
} types[] = {
    {BERYL_TYPE_F32, "<f4", "F32", 4},   {BERYL_TYPE_F16, "<f2", "F16", 2},
    {BERYL_TYPE_F64, "<f8", "F64", 8},   {BERYL_TYPE_I8, "|i1", "I8", 1},
    {BERYL_TYPE_I16, "<i2", "I16", 2},   {BERYL_TYPE_I32, "<i4", "I32", 4},
    {BERYL_TYPE_I64, "<i8", "I64", 8},   {BERYL_TYPE_U8, "|u1", "U8", 1},
    {BERYL_TYPE_U16, "<u2", "U16", 2},   {BERYL_TYPE_U32, "<u4", "U32", 4},
    {BERYL_TYPE_BOOL, "|b1", "BOOL", 1}, {BERYL_TYPE_BF16, "|V2", "BF16", 2},
};
enum { TYPE_COUNT = sizeof types / sizeof *types };

static size_t type_row(beryl_type type) {
    size_t i = 0;
    while (i + 1 < TYPE_COUNT && types[i].type != type) i++;
    return i;
}

/* ---- NumPy files ----------------------------------------------------------------------------- */

/* What follows "'key':" in the header; NULL: it has no such key. */
static const char *after_key(const char *head, const char *key) {
    const char *at = strstr(head, key);
    if (!at) return NULL;
    at += strlen(key);
    return at + strspn(at, " ");
}

static const char *npy_shape(array *a, const char *at) {
    uint64_t n = types[type_row(a->type)].bytes;
    if (*at++ != '(') return "no shape";
    while (at += strspn(at, " ,"), *at && *at != ')') {
        char *end;
        if (*at < '0' || *at > '9' || a->rank == RANK_MAX) return "a shape that is not read";
        const unsigned long long size = strtoull(at, &end, 10);
        if (size > INT32_MAX || (size && n > ((uint64_t)1 << 40) / size))
            return "a shape that is too large";
        a->dim[a->rank++] = (uint32_t)size;
        n *= size;
        at = end;
    }
    if (!*at) return "a header that is cut off";
    a->size = (size_t)n;
    return a->size == a->end - a->at ? NULL : "not as many bytes as its shape needs";
}

/* Of what lies from a->at to a->end. What is wrong; NULL: nothing. */
static const char *npy_read(array *a) {
    char head[1024];
    const unsigned char *f = (const unsigned char *)a->file + a->at;
    if (a->end - a->at < 12 || memcmp(f, "\x93NUMPY", 6) || (f[6] != 1 && f[6] != 2 && f[6] != 3))
        return "no NumPy file";
    size_t n = f[8] | (size_t)f[9] << 8;
    if (f[6] != 1) n |= (size_t)f[10] << 16 | (size_t)f[11] << 24;
    a->at += f[6] == 1 ? 10 : 12;
    if (n >= sizeof head || n > a->end - a->at) return "a header that is too long";
    memcpy(head, a->file + a->at, n);
    head[n] = 0;
    a->at += n;
    const char *descr = after_key(head, "'descr':"), *order = after_key(head, "'fortran_order':"),
               *shape = after_key(head, "'shape':");
    if (!descr || !order || !shape) return "a header that is not read";
    if (strncmp(order, "False", 5)) return "in Fortran order, which is not read";
    for (size_t i = 0; i < TYPE_COUNT; i++)
        if (*descr == '\'' && !strncmp(descr + 1, types[i].descr, 3) && descr[4] == '\'') {
            a->type = types[i].type;
            return npy_shape(a, shape);
        }
    return "of a type that is not read";
}

/* ---- archives, read: what is where says the directory at the end ----------------------------- */

enum { ZIP_LOCAL = 30, ZIP_ENTRY = 46, ZIP_END = 22, ZIP_COMMENT_MAX = 65535 };

static uint32_t number_at(const array *a, size_t at, uint32_t bytes) {
    uint32_t x = 0;
    for (uint32_t i = 0; i < bytes; i++) x |= (uint32_t)(unsigned char)a->file[at + i] << 8 * i;
    return x;
}

/* The part NAME.npy. What is wrong; NULL: nothing. */
static const char *part_find(array *a, const char *name, size_t n) {
    size_t end = a->file_size < ZIP_END ? 0 : a->file_size - ZIP_END + 1;
    const size_t least = end > ZIP_COMMENT_MAX ? end - ZIP_COMMENT_MAX : 0;
    while (end > least && number_at(a, end - 1, 4) != 0x06054b50) end--;
    if (end <= least) return "an archive without an end";
    const uint32_t count = number_at(a, end - 1 + 10, 2);
    size_t at = number_at(a, end - 1 + 16, 4);
    for (uint32_t i = 0; i < count; i++) {
        if (at > end || end - at < ZIP_ENTRY || number_at(a, at, 4) != 0x02014b50)
            return "an archive with a damaged directory";
        const size_t n_name = number_at(a, at + 28, 2), from = number_at(a, at + 42, 4),
                     size = number_at(a, at + 24, 4),
                     next =
                         ZIP_ENTRY + n_name + number_at(a, at + 30, 2) + number_at(a, at + 32, 2);
        if (next > end - at) return "an archive with a damaged directory";
        const char *own = a->file + at + ZIP_ENTRY;
        if (n_name == n + 4 && !memcmp(own, name, n) && !memcmp(own + n, ".npy", 4)) {
            if (number_at(a, at + 10, 2)) return "a part that is compressed, which is not read";
            if (from > end || end - from < ZIP_LOCAL) return "a part outside the archive";
            a->at = from + ZIP_LOCAL + number_at(a, from + 26, 2) + number_at(a, from + 28, 2);
            if (a->at > end || size > end - a->at) return "a part outside the archive";
            a->end = a->at + size;
            return NULL;
        }
        at += next;
    }
    return "no such part in the archive";
}

/* "NAME=FILE.npy", or an archive with NAME.npy. */
static int input_read(cli *c, const char *given, array *a) {
    const char *equals = strchr(given, '=');
    if (!equals || equals == given || !equals[1])
        return cli_usage(c, "--input takes NAME=FILE.npy, not '%s'", given);
    a->name = given;
    if (!(a->file = cli_read(c, equals + 1, &a->file_size))) return CLI_FAILED;
    a->end = a->file_size;
    const bool archived = a->file_size >= 4 && !memcmp(a->file, "PK\3\4", 4);
    const char *why = archived ? part_find(a, given, (size_t)(equals - given)) : NULL;
    if (!why) why = npy_read(a);
    return why ? cli_fail(c, "%s: %s", equals + 1, why) : CLI_OK;
}

/* ---- archives, written ----------------------------------------------------------------------- */

static uint32_t crc_of(uint32_t crc, const void *data, size_t size) {
    const unsigned char *at = data;
    crc = ~crc;
    for (size_t i = 0; i < size; i++) {
        crc ^= at[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static void number(base_text *to, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) base_text_add(to, (char[]){(char)(value >> 8 * i)}, 1);
}

/* What a local header and the directory say alike. */
static void part_facts(base_text *to, uint32_t crc, size_t size, size_t name) {
    number(to, 20, 2); /* version, flags, stored, time, date: 1980-01-01 */
    number(to, 0, 2), number(to, 0, 2), number(to, 0, 2), number(to, 33, 2);
    number(to, crc, 4), number(to, size, 4), number(to, size, 4);
    number(to, name, 2), number(to, 0, 2);
}

typedef struct archive {
    beryl_sink sink;
    base_text directory, head;
    uint64_t at;
    uint32_t n;
    beryl_status status;
} archive;

static void put(archive *z, const void *data, size_t size) {
    if (z->status == BERYL_OK && size) z->status = z->sink.write(z->sink.user, data, size);
    z->at += size;
}

static void part_add(archive *z, const char *name, beryl_type type, uint32_t rank,
                     const uint32_t *dim, const void *data, size_t size) {
    char npy[CLI_NPY_HEAD];
    const size_t head = cli_npy_head_make(npy, types[type_row(type)].descr, rank, dim),
                 n = strlen(name) + 4;
    const uint32_t crc = crc_of(crc_of(0, npy, head), data, size);
    const uint64_t begin = z->at;
    if (begin + head + size > UINT32_MAX - (1 << 16) || n > 1000) z->status = BERYL_UNSUPPORTED;
    base_text_clear(&z->head);
    number(&z->head, 0x04034b50, 4);
    part_facts(&z->head, crc, head + size, n);
    base_text_print(&z->head, "%s.npy", name);
    put(z, z->head.data, z->head.size);
    put(z, npy, head);
    put(z, data, size);
    number(&z->directory, 0x02014b50, 4);
    number(&z->directory, 20, 2);
    part_facts(&z->directory, crc, head + size, n);
    number(&z->directory, 0, 6), number(&z->directory, 0, 4); /* no comment, no attributes */
    number(&z->directory, begin, 4);
    base_text_print(&z->directory, "%s.npy", name);
    z->n++;
    if (z->head.failed || z->directory.failed) z->status = BERYL_NO_MEMORY;
}

static void archive_end(archive *z) {
    const uint64_t at = z->at;
    base_text_clear(&z->head);
    number(&z->head, 0x06054b50, 4);
    number(&z->head, 0, 4);
    number(&z->head, z->n, 2), number(&z->head, z->n, 2);
    number(&z->head, z->directory.size, 4), number(&z->head, at, 4), number(&z->head, 0, 2);
    put(z, z->directory.data, z->directory.size);
    put(z, z->head.data, z->head.size);
    if (z->head.failed) z->status = BERYL_NO_MEMORY;
}

/* ---- a run ----------------------------------------------------------------------------------- */

typedef struct evaluation {
    cli *c;
    cli_onnx model;
    array inputs[ARGS_TEXTS_MAX];
    size_t n_input;
    archive archive;
    beryl_error error;
} evaluation;

static beryl_status build(evaluation *e, const char *path) {
    beryl_onnx_input given[ARGS_TEXTS_MAX];
    base_text names;
    base_text_init(&names, &e->c->heap);
    for (size_t i = 0; i < e->n_input; i++) /* one after another, each ended by a zero */
        base_text_add(&names, e->inputs[i].name, strcspn(e->inputs[i].name, "=")),
            base_text_add(&names, "", 1);
    const char *name = names.data;
    for (size_t i = 0; !names.failed && i < e->n_input; name += strlen(name) + 1, i++)
        given[i] = (beryl_onnx_input){name, e->inputs[i].type, e->inputs[i].rank, e->inputs[i].dim,
                                      e->inputs[i].file + e->inputs[i].at};
    const beryl_onnx_options how = {.size = sizeof how, .inputs = given, .n_input = e->n_input};
    const beryl_status status =
        names.failed ? BERYL_NO_MEMORY : cli_onnx_open(e->c, path, how, &e->model, &e->error);
    base_text_fini(&names);
    return status;
}

static beryl_status set_inputs(evaluation *e) {
    beryl_port port;
    beryl_status status = BERYL_OK;
    bool used[ARGS_TEXTS_MAX] = {false};
    for (size_t i = 0; !status && beryl_graph_port(e->model.g, false, i, &port); i++) {
        array *a = NULL;
        for (size_t k = 0; k < e->n_input; k++)
            if (!strncmp(e->inputs[k].name, port.name, strlen(port.name)) &&
                e->inputs[k].name[strlen(port.name)] == '=')
                a = &e->inputs[k], used[k] = true;
        if (!a) {
            cli_fail(e->c, "input '%s' is not given: --input %s=FILE.npy", port.name, port.name);
            return BERYL_IO;
        }
        if (port.value && a->size)
            status = beryl_graph_set(e->model.g, port.value, a->file + a->at, a->size, &e->error);
        if (status == BERYL_MISUSE) status = BERYL_OK; /* nothing reads it */
    }
    for (size_t k = 0; !status && k < e->n_input; k++)
        if (!used[k]) {
            cli_fail(e->c, "the model has no input '%.*s'", (int)strcspn(e->inputs[k].name, "="),
                     e->inputs[k].name);
            return BERYL_IO;
        }
    return status;
}

static void output_print(const beryl_port *port) {
    term_print(stdout, port->name, strlen(port->name), true);
    printf("  %s [", types[type_row(port->type)].name);
    for (uint32_t i = 0; i < port->rank; i++) printf(i ? ", %u" : "%u", port->dims[i].size);
    puts("]");
}

static beryl_status read_outputs(evaluation *e, bool written) {
    beryl_port port;
    beryl_status status = BERYL_OK;
    for (size_t i = 0; !status && beryl_graph_port(e->model.g, true, i, &port); i++) {
        uint32_t dim[RANK_MAX];
        size_t size = types[type_row(port.type)].bytes;
        for (uint32_t d = 0; d < port.rank; d++) size *= dim[d] = port.dims[d].size;
        char *data = base_heap_take(&e->c->heap, size ? size : 1);
        if (!data) return BERYL_NO_MEMORY;
        if (port.value) status = beryl_graph_read(e->model.g, port.value, data, size, &e->error);
        if (!status && written) {
            part_add(&e->archive, port.name, port.type, port.rank, dim, data, size);
            status = e->archive.status;
        }
        base_heap_give(&e->c->heap, data, size ? size : 1);
        if (!status && !e->c->json) output_print(&port);
    }
    return status;
}

static beryl_status write_outputs(evaluation *e) {
    const char *path = args_text(&e->c->args, FLAG_EVAL_OUT);
    const beryl_log log = cli_log(e->c);
    archive *z = &e->archive;
    beryl_status status = BERYL_OK;
    if (!path) return read_outputs(e, false);
    base_text_init(&z->head, &e->c->heap);
    base_text_init(&z->directory, &e->c->heap);
    status = base_sink_open_file(&e->c->heap, &log, path, &z->sink, &e->error);
    if (!status) {
        status = read_outputs(e, true);
        if (!status) archive_end(z);
        if (!status) status = z->status;
        const beryl_status closed = z->sink.close(z->sink.user, status == BERYL_OK);
        if (!status) status = closed;
    }
    base_text_fini(&z->head);
    base_text_fini(&z->directory);
    return status;
}

static beryl_status run(evaluation *e) {
    beryl_status status = cli_onnx_compile(&e->model, &e->error);
    if (!status) status = set_inputs(e);
    return status ? status : cli_onnx_run(&e->model, &e->error);
}

int eval_main(cli *c) {
    evaluation *e = base_heap_take(&c->heap, sizeof *e);
    if (!e) return cli_no_memory(c);
    const char *path = c->args.positional[0];
    int code = CLI_OK;
    beryl_status status = BERYL_OK;
    e->c = c;
    for (size_t i = 0; !code && i < c->args.n_files; i++)
        code = input_read(c, c->args.files[i], &e->inputs[e->n_input++]);
    if (!code) status = build(e, path);
    if (!code && !status) status = run(e);
    if (!code && !status) status = write_outputs(e);
    if (!code && status == BERYL_IO && !*e->error.message) code = CLI_FAILED; /* told already */
    else if (!code) code = cli_report(c, status, &e->error);
    for (size_t i = 0; i < e->n_input; i++)
        if (e->inputs[i].file)
            base_heap_give(&c->heap, e->inputs[i].file, e->inputs[i].file_size + 1);
    cli_onnx_close(c, &e->model);
    base_heap_give(&c->heap, e, sizeof *e);
    return code;
}
