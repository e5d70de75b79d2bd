/* kernels.c - the registry of hand-written WGSL: joins a kernel file, its options and its parts
 * into one text and tells what the text binds and which parameters it has.
 *
 * Works on lines and names alone and understands no WGSL beyond the few forms that kernels.h
 * fixes. First the file is expanded (parts put in, options set, comments dropped), then the
 * result is walked once more: bindings are numbered, the parameters of the parts join `Params`,
 * and everything the caller wants to know is noted. Parts may hold parts. */
#include "kernels/kernels.h"
#include "base/error.h"
#include "kernels_wgsl.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 5, INCLUDE_MAX = 24 };

typedef struct builder {
    const kernels_request *request;
    kernels_text *out;
    base_text text;        /* the expanded file */
    base_text part_params; /* lines "name: type,": of the parts */
    bool option_used[KERNELS_OPTION_MAX], part_used[KERNELS_PART_MAX];
    const char *included[INCLUDE_MAX]; /* texts without a prefix to vary: put in once */
    uint32_t n_included;
    beryl_error *error;
    beryl_status status;
} builder;

static beryl_status fail(builder *b, beryl_status status, const char *what, base_view name) {
    if (b->status == BERYL_OK)
        b->status = base_fail(b->error, status, "kernel '%s': %s '%.*s'", b->request->file, what,
                              (int)(name.size < 80 ? name.size : 80), name.data);
    return b->status;
}

static base_view file_text(base_view name) {
    for (size_t i = 0; i < kernels_wgsl_count; i++)
        if (base_view_equal(name, base_view_of(kernels_wgsl_files[i].name)))
            return (base_view){kernels_wgsl_files[i].text, kernels_wgsl_files[i].size};
    return (base_view){0};
}

/* ---- lines and names ------------------------------------------------------------------------- */

static base_view trim(base_view v) {
    while (v.size && (v.data[0] == ' ' || v.data[0] == '\t')) v.data++, v.size--;
    while (v.size &&
           (v.data[v.size - 1] == ' ' || v.data[v.size - 1] == '\t' || v.data[v.size - 1] == '\r'))
        v.size--;
    return v;
}

static base_view skip(base_view v, size_t n) {
    return trim((base_view){v.data + n, v.size - n});
}

/* Takes the first line off `text`; false: there is none. */
static bool line_take(base_view *text, base_view *line) {
    if (text->size == 0) return false;
    const char *end = memchr(text->data, '\n', text->size);
    line->data = text->data;
    line->size = end ? (size_t)(end - text->data) : text->size;
    const size_t used = line->size + (end ? 1 : 0);
    text->data += used;
    text->size -= used;
    return true;
}

static base_view name_at(base_view v) {
    size_t n = 0;
    while (n < v.size && base_is_word(v.data[n])) n++;
    return (base_view){v.data, n};
}

/* A line `//! word rest`: takes the rest. */
static bool is_directive(base_view line, const char *word, base_view *rest) {
    line = trim(line);
    if (!base_view_begins(line, BASE_VIEW("//! "))) return false;
    line = skip(line, 4);
    const base_view first = name_at(line);
    if (!base_view_equal(first, base_view_of(word))) return false;
    if (rest) *rest = skip(line, first.size);
    return true;
}

/* Bytes with every name that begins with PART_ renamed. */
static void put_renamed(base_text *out, base_view v, const char *prefix) {
    static const base_view mark = {"PART_", 5};
    for (size_t i = 0; i < v.size;) {
        if (!base_is_word(v.data[i])) {
            base_text_add(out, v.data + i++, 1);
            continue;
        }
        const base_view name = name_at((base_view){v.data + i, v.size - i});
        if (prefix && base_view_begins(name, mark)) {
            base_text_add(out, prefix, strlen(prefix));
            base_text_add(out, name.data + mark.size, name.size - mark.size);
        } else {
            base_text_add_view(out, name);
        }
        i += name.size;
    }
}

/* The line without its comment. */
static base_view code_of(base_view line) {
    for (size_t i = 0; i + 1 < line.size; i++)
        if (line.data[i] == '/' && line.data[i + 1] == '/') line.size = i;
    while (line.size && (line.data[line.size - 1] == ' ' || line.data[line.size - 1] == '\r'))
        line.size--;
    return line;
}

static void put_line(builder *b, base_view line, const char *prefix) {
    line = code_of(line);
    if (trim(line).size == 0) return;
    put_renamed(&b->text, line, prefix);
    base_text_add(&b->text, "\n", 1);
}

/* ---- expansion ------------------------------------------------------------------------------- */

/* Takes the lines up to the directive's own `//! end` off `text`. */
static bool region_take(base_view *text, base_view *region) {
    region->data = text->data;
    base_view line;
    for (int depth = 1; line_take(text, &line);) {
        if (is_directive(line, "part", NULL) || is_directive(line, "options", NULL)) depth++;
        if (is_directive(line, "end", NULL) && --depth == 0) {
            region->size = (size_t)(line.data - region->data);
            return true;
        }
    }
    return false;
}

/* `const NAME: T = VALUE;` or `alias NAME = VALUE;` with the request's value if it has one. */
static void option_put(builder *b, base_view line, const char *prefix) {
    line = trim(code_of(line));
    if (line.size == 0) return;
    const base_view keyword = name_at(line);
    const base_view name = name_at(skip(line, keyword.size));
    const char *equals = memchr(line.data, '=', line.size);
    if (!equals || name.size == 0) {
        fail(b, BERYL_MISUSE, "no option in line", line);
        return;
    }
    base_text full; /* the name as it is after renaming */
    base_text_init(&full, b->text.heap);
    put_renamed(&full, name, prefix);
    const char *value = NULL;
    for (int i = 0; i < KERNELS_OPTION_MAX && b->request->options[i].name && !full.failed; i++) {
        if (strcmp(b->request->options[i].name, full.data)) continue;
        value = b->request->options[i].value;
        b->option_used[i] = true;
    }
    if (value) {
        put_renamed(&b->text, (base_view){line.data, (size_t)(equals - line.data)}, prefix);
        base_text_print(&b->text, "= %s;\n", value);
    } else {
        put_line(b, line, prefix);
    }
    if (full.failed) b->text.failed = true;
    base_text_fini(&full);
}

static void expand(builder *b, base_view text, const char *prefix, int depth);

static void part_put(builder *b, base_view name, base_view plain, const char *prefix, int depth) {
    bool replaced = false;
    for (int i = 0; i < KERNELS_PART_MAX && b->request->parts[i].name; i++) {
        const kernels_part *part = &b->request->parts[i];
        if (!base_view_equal(name, base_view_of(part->name))) continue;
        replaced = b->part_used[i] = true;
        const base_view file = file_text(base_view_of(part->file));
        if (!file.data) {
            fail(b, BERYL_NOT_FOUND, "no part file", base_view_of(part->file));
            return;
        }
        expand(b, file, part->prefix, depth + 1);
    }
    if (!replaced) expand(b, plain, prefix, depth + 1);
}

static void include_put(builder *b, base_view name, const char *prefix, int depth) {
    const base_view file = file_text(name);
    if (!file.data) {
        fail(b, BERYL_NOT_FOUND, "no such file:", name);
        return;
    }
    if (!strstr(file.data, "PART_")) {
        for (uint32_t i = 0; i < b->n_included; i++)
            if (b->included[i] == file.data) return;
        if (b->n_included < INCLUDE_MAX) b->included[b->n_included++] = file.data;
    }
    expand(b, file, prefix, depth + 1);
}

static void expand(builder *b, base_view text, const char *prefix, int depth) {
    if (depth > DEPTH_MAX) {
        fail(b, BERYL_MISUSE, "parts in parts at", base_view_of(b->request->file));
        return;
    }
    base_view line, rest, region;
    while (b->status == BERYL_OK && line_take(&text, &line)) {
        if (is_directive(line, "param", &rest)) {
            put_renamed(&b->part_params, rest, prefix);
            base_text_add(&b->part_params, "\n", 1);
        } else if (is_directive(line, "options", NULL)) {
            if (!region_take(&text, &region)) fail(b, BERYL_MISUSE, "no end of", trim(line));
            while (b->status == BERYL_OK && line_take(&region, &line)) option_put(b, line, prefix);
        } else if (is_directive(line, "include", &rest)) {
            include_put(b, name_at(rest), prefix, depth);
        } else if (is_directive(line, "part", &rest)) {
            if (!region_take(&text, &region)) fail(b, BERYL_MISUSE, "no end of", trim(line));
            else part_put(b, name_at(rest), region, prefix, depth);
        } else if (base_view_begins(trim(line), BASE_VIEW("//!"))) {
            fail(b, BERYL_MISUSE, "not known:", trim(line));
        } else {
            put_line(b, line, prefix);
        }
    }
}

/* ---- reflection ------------------------------------------------------------------------------ */

static bool name_copy(builder *b, char to[KERNELS_NAME_MAX], base_view name) {
    if (name.size == 0 || name.size >= KERNELS_NAME_MAX)
        return fail(b, BERYL_MISUSE, "a name not of 1 to 39 characters:", name), false;
    memcpy(to, name.data, name.size);
    to[name.size] = 0;
    return true;
}

/* `name: type` */
static void param_add(builder *b, base_text *to, base_view field) {
    field = trim(field);
    if (field.size == 0) return;
    const base_view name = name_at(field);
    base_view type = skip(field, name.size);
    if (type.size && type.data[0] == ':') type = skip(type, 1);
    type = name_at(type);
    kernels_text *k = b->out;
    const bool is_float = base_view_equal(type, BASE_VIEW("f32"));
    if (!is_float && !base_view_equal(type, BASE_VIEW("u32")) &&
        !base_view_equal(type, BASE_VIEW("i32"))) {
        fail(b, BERYL_MISUSE, "not a 32-bit parameter:", field);
    } else if (k->n_param == KERNELS_PARAM_MAX) {
        fail(b, BERYL_MISUSE, "too many parameters at", name);
    } else if (name_copy(b, k->params[k->n_param].name, name)) {
        if (kernels_param_find(k, k->params[k->n_param].name) >= 0)
            fail(b, BERYL_MISUSE, "a parameter twice:", name);
        k->params[k->n_param++].is_float = is_float;
        base_text_print(to, "    %s: %.*s,\n", k->params[k->n_param - 1].name, (int)type.size,
                        type.data);
    }
}

/* "a: u32, b: f32" over any lines */
static void params_add(builder *b, base_text *to, base_view fields) {
    while (fields.size) {
        size_t n = 0;
        while (n < fields.size && fields.data[n] != ',' && fields.data[n] != '\n') n++;
        param_add(b, to, (base_view){fields.data, n});
        n += n < fields.size;
        fields.data += n;
        fields.size -= n;
    }
}

/* The whole struct, the parts' parameters joined to its own. `text` begins at its line. */
static void params_put(builder *b, base_text *to, base_view *text) {
    const char *open = memchr(text->data, '{', text->size);
    const char *close = open ? memchr(open, '}', (size_t)(text->data + text->size - open)) : NULL;
    if (!close) {
        fail(b, BERYL_MISUSE, "no end of", BASE_VIEW("struct Params"));
        return;
    }
    base_text_print(to, "struct Params {\n");
    params_add(b, to, (base_view){open + 1, (size_t)(close - open - 1)});
    params_add(b, to, (base_view){b->part_params.data, b->part_params.size});
    base_text_print(to, "}\n");
    const size_t used = (size_t)(close + 1 - text->data);
    text->data += used;
    text->size -= used;
}

/* `@group(0) @binding(N) var<storage, ACCESS> NAME: ...;` */
static void binding_put(builder *b, base_text *to, base_view line) {
    kernels_text *k = b->out;
    const char *close = memchr(line.data, '>', line.size),
               *open = memchr(line.data, '<', line.size);
    const char *declared = strstr(line.data, "var<storage"); /* the text ends with NUL */
    if (!declared || declared >= line.data + line.size || !close || !open || open > close) {
        fail(b, BERYL_MISUSE, "not a storage binding:", trim(line));
        return;
    }
    if (k->n_binding == DEVICE_BINDING_MAX) {
        fail(b, BERYL_MISUSE, "too many bindings at", trim(line));
        return;
    }
    kernels_binding *binding = &k->bindings[k->n_binding];
    const base_view rest = skip((base_view){close, (size_t)(line.data + line.size - close)}, 1);
    if (!name_copy(b, binding->name, name_at(rest))) return;
    bool writes = false;
    for (const char *c = open; c + 10 <= close; c++) writes |= !memcmp(c, "read_write", 10);
    binding->access = writes ? DEVICE_READ_WRITE : DEVICE_READ;
    base_text_print(to, "@group(0) @binding(%u) ", (unsigned)k->n_binding++);
    base_text_add(to, declared, (size_t)(line.data + line.size - declared));
    base_text_add(to, "\n", 1);
}

/* A literal ("64u") or the name of a constant of the text whose value is one. 0: neither. */
static uint32_t size_of(base_view text, base_view value) {
    value = trim(value);
    if (value.size == 0) return 0;
    if (value.data[0] >= '0' && value.data[0] <= '9')
        return (uint32_t)strtoul(value.data, NULL, 10);
    base_view line;
    while (line_take(&text, &line)) {
        line = trim(line);
        if (!base_view_begins(line, BASE_VIEW("const "))) continue;
        const char *equals = memchr(line.data, '=', line.size);
        if (!base_view_equal(name_at(skip(line, 6)), value) || !equals) continue;
        return (uint32_t)strtoul(equals + 1, NULL, 10);
    }
    return 0;
}

static void workgroup_note(builder *b, base_view text) {
    static const char mark[] = "@workgroup_size(";
    const char *at = strstr(text.data, mark), *end = at ? strchr(at, ')') : NULL;
    if (!end) {
        fail(b, BERYL_MISUSE, "no workgroup size in", base_view_of(b->request->file));
        return;
    }
    at += sizeof mark - 1;
    for (int i = 0; i < 3; i++) {
        b->out->workgroup[i] = 1;
        if (at >= end) continue;
        const char *comma = memchr(at, ',', (size_t)(end - at)), *stop = comma ? comma : end;
        b->out->workgroup[i] = size_of(text, (base_view){at, (size_t)(stop - at)});
        if (!b->out->workgroup[i])
            fail(b, BERYL_MISUSE,
                 "a workgroup size that is no number:", (base_view){at, (size_t)(stop - at)});
        at = stop + 1;
    }
}

static void features_note(kernels_text *k, base_view text) {
    for (size_t i = 0; i < text.size;) {
        const base_view name = name_at((base_view){text.data + i, text.size - i});
        k->uses_f16 |= base_view_equal(name, BASE_VIEW("f16"));
        k->uses_subgroups |= base_view_begins(name, BASE_VIEW("subgroup"));
        k->uses_dot |= base_view_begins(name, BASE_VIEW("dot4"));
        i += name.size ? name.size : 1;
    }
}

static void reflect(builder *b, base_text *to) {
    base_view text = {b->text.data, b->text.size}, line;
    while (b->status == BERYL_OK && text.size) {
        base_view after = text;
        line_take(&after, &line);
        if (base_view_begins(trim(line), BASE_VIEW("struct Params"))) {
            params_put(b, to, &text);
        } else {
            if (base_view_begins(trim(line), BASE_VIEW("@group(0)"))) {
                binding_put(b, to, line);
            } else if (trim(line).size) {
                base_text_add_view(to, line);
                base_text_add(to, "\n", 1);
            }
            text = after;
        }
    }
    if (b->status == BERYL_OK && b->part_params.size && b->out->n_param == 0)
        fail(b, BERYL_MISUSE, "parts with parameters but no struct Params in",
             base_view_of(b->request->file));
}

beryl_status kernels_build(base_arena *arena, const kernels_request *request, kernels_text *out,
                           beryl_error *error) {
    builder b = {.request = request, .out = out, .error = error};
    base_text final;
    memset(out, 0, sizeof *out);
    base_text_init(&b.text, arena->heap);
    base_text_init(&b.part_params, arena->heap);
    base_text_init(&final, arena->heap);
    const base_view file = file_text(base_view_of(request->file));
    if (!file.data) fail(&b, BERYL_NOT_FOUND, "no such file:", base_view_of(request->file));
    else expand(&b, file, NULL, 0);
    if (b.text.failed || b.part_params.failed)
        fail(&b, BERYL_NO_MEMORY, "no memory for", base_view_of(request->file));
    for (int i = 0; i < KERNELS_OPTION_MAX && request->options[i].name; i++)
        if (!b.option_used[i])
            fail(&b, BERYL_NOT_FOUND, "no such option:", base_view_of(request->options[i].name));
    for (int i = 0; i < KERNELS_PART_MAX && request->parts[i].name; i++)
        if (!b.part_used[i])
            fail(&b, BERYL_NOT_FOUND, "no such part:", base_view_of(request->parts[i].name));
    if (b.status == BERYL_OK) reflect(&b, &final);
    if (b.status == BERYL_OK && !final.failed) {
        workgroup_note(&b, (base_view){final.data, final.size});
        features_note(out, (base_view){final.data, final.size});
        out->text = base_arena_text(arena, final.data, final.size);
        out->size = final.size;
        out->hash = base_hash(final.data, final.size, 0);
    }
    if (b.status == BERYL_OK && !out->text)
        fail(&b, BERYL_NO_MEMORY, "no memory for", base_view_of(request->file));
    base_text_fini(&final);
    base_text_fini(&b.part_params);
    base_text_fini(&b.text);
    return b.status;
}

int kernels_binding_find(const kernels_text *k, const char *name) {
    for (uint32_t i = 0; i < k->n_binding; i++)
        if (!strcmp(k->bindings[i].name, name)) return (int)i;
    return -1;
}

int kernels_param_find(const kernels_text *k, const char *name) {
    for (uint32_t i = 0; i < k->n_param; i++)
        if (!strcmp(k->params[i].name, name)) return (int)i;
    return -1;
}
