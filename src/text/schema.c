/* schema.c - writes JSON values and tool declarations as Gemma 4's chat format has them.
 *
 * Owns the order of keys, the look of numbers and the reading of JSON schemas. Refuses what the
 * published template could not render. The one idea: it follows the template of 2026-07-09 key by
 * key, since the model has seen nothing else.
 */
#include "text/render.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 64
#define QUOTE "<|\"|>"

/* ---- places and messages --------------------------------------------------------------------- */

static size_t place_write(const text_place *at, char *to, size_t room) {
    size_t n = at->up ? place_write(at->up, to, room) : 0;
    if (at->key.data) {
        if (n && n + 1 < room) to[n++] = '.';
        for (size_t i = 0; i < at->key.size && n + 1 < room; i++)
            to[n++] = (uint8_t)at->key.data[i] < ' ' ? '?' : at->key.data[i];
        return n;
    }
    char digits[24];
    size_t k = sizeof digits, index = at->index;
    digits[--k] = ']';
    do digits[--k] = (char)('0' + index % 10);
    while (index /= 10);
    digits[--k] = '[';
    for (; k < sizeof digits && n + 1 < room; k++) to[n++] = digits[k];
    return n;
}

bool text_refuse(text_renderer *r, const text_place *at, const char *what) {
    char where[200];
    size_t n = at ? place_write(at, where, sizeof where) : 0;
    where[n] = 0;
    r->status = base_fail(r->error, BERYL_BAD_INPUT, "the conversation%s%s: %s", n ? ", " : "",
                          where, what);
    return false;
}

bool text_check_keys(text_renderer *r, const base_json *object, const text_place *at,
                     const char *known) {
    for (const base_json *p = object->child; p; p = p->next) {
        bool is_known = false;
        for (const char *word = known; *word && !is_known; word += strspn(word, ", ")) {
            size_t n = strcspn(word, ",");
            is_known = base_view_equal(p->key, (base_view){word, n});
            word += n;
        }
        if (is_known) continue;
        char what[240];
        text_place at_key = {at, p->key, 0};
        snprintf(what, sizeof what, "an unknown key; known are %s", known);
        return text_refuse(r, &at_key, what);
    }
    return true;
}

bool text_no_memory(text_renderer *r) {
    r->status = base_fail(r->error, BERYL_NO_MEMORY, "no memory for the prompt");
    return false;
}

static bool put(text_renderer *r, text_chunk_kind kind, base_view text, const base_json *part) {
    if (r->status) return false;
    if (!text.size) return true;
    text_chunk *chunk = base_vec_add(r->arena->heap, &r->chunks);
    if (!chunk) return text_no_memory(r);
    *chunk = (text_chunk){kind, text, part};
    r->size += text.size;
    return true;
}

bool text_put_template(text_renderer *r, const char *literal) {
    return put(r, TEXT_CHUNK_TEMPLATE, base_view_of(literal), NULL);
}

bool text_put_content(text_renderer *r, base_view text) {
    return put(r, TEXT_CHUNK_CONTENT, text, NULL);
}

bool text_put_media(text_renderer *r, text_chunk_kind kind, const base_json *part) {
    text_special_name name = kind == TEXT_CHUNK_IMAGE   ? TEXT_SPECIAL_IMAGE_SOFT
                             : kind == TEXT_CHUNK_AUDIO ? TEXT_SPECIAL_AUDIO_SOFT
                                                        : TEXT_SPECIAL_VIDEO_SOFT;
    return put(r, kind, base_view_of(text_special_literal(name)), part);
}

static bool put_quoted(text_renderer *r, base_view text) {
    return text_put_template(r, QUOTE) && text_put_content(r, text) && text_put_template(r, QUOTE);
}

bool text_is_absent(const base_json *value) {
    return !value || value->kind == JSON_NULL;
}

bool text_is_true(const base_json *value) {
    if (!value) return false;
    switch (value->kind) {
    case JSON_NULL:
    case JSON_FALSE: return false;
    case JSON_TRUE: return true;
    case JSON_NUMBER: return value->number < 0 || value->number > 0;
    case JSON_STRING: return value->text.size;
    case JSON_ARRAY:
    case JSON_OBJECT: return value->child;
    }
    return false;
}

static bool too_deep(const text_place *at) {
    size_t depth = 0;
    for (; at; at = at->up) depth++;
    return depth >
           4 * DEPTH_MAX; /* base_json allows 64 levels; a level is at most three places here */
}

/* ---- members in order ------------------------------------------------------------------------ */

typedef struct member {
    const base_json *value;
    size_t order; /* of its key's first appearance */
} member;

static int fold(char c) {
    return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : (uint8_t)c;
}

/* By the key's bytes, or without regard to ASCII case as the template sorts (beyond ASCII, case
 * counts); then by appearance. */
static bool comes_after(const member *a, const member *b, bool folded) {
    base_view x = a->value->key, y = b->value->key;
    for (size_t i = 0; i < x.size && i < y.size; i++) {
        int left = folded ? fold(x.data[i]) : (uint8_t)x.data[i],
            right = folded ? fold(y.data[i]) : (uint8_t)y.data[i];
        if (left != right) return left > right;
    }
    return x.size != y.size ? x.size > y.size : a->order > b->order;
}

static void members_sort(member *members, size_t n, bool folded) {
    for (size_t begin = n / 2, end = n; end > 1;) { /* heap sort */
        if (begin) {
            begin--;
        } else {
            member last = members[--end];
            members[end] = members[0];
            members[0] = last;
        }
        for (size_t i = begin, child; (child = 2 * i + 1) < end; i = child) {
            if (child + 1 < end && comes_after(&members[child + 1], &members[child], folded))
                child++;
            if (!comes_after(&members[child], &members[i], folded)) break;
            member one = members[i];
            members[i] = members[child];
            members[child] = one;
        }
    }
}

/* The members by key. Of equal keys the last value counts, at the first one's place. NULL: no
 * memory. */
static member *members_take(text_renderer *r, const base_json *object, size_t *n) {
    member *members = base_arena_take(r->arena, object->n_child + 1, sizeof *members);
    size_t count = 0, kept = 0;
    if (!members) {
        text_no_memory(r);
        return NULL;
    }
    for (const base_json *value = object->child; value && count < object->n_child;
         value = value->next, count++)
        members[count] = (member){value, count};
    members_sort(members, count, false);
    for (size_t i = 0; i < count; i++) {
        if (kept && base_view_equal(members[kept - 1].value->key, members[i].value->key))
            members[kept - 1].value = members[i].value;
        else members[kept++] = members[i];
    }
    members_sort(members, kept, true);
    *n = kept;
    return members;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* A float as Python prints it: the fewest digits that give the same double, exponents below -4 and
 * from 16 on. */
static bool put_float(text_renderer *r, double value) {
    char digits[32], raw[48];
    int n = 0, exponent = 0;
    base_text print;
    base_text_init(&print, r->arena->heap);
    for (int precision = 0; precision < 17; precision++) {
        base_text_clear(&print);
        base_text_print(&print, "%.*e", precision, value < 0 ? -value : value);
        if (print.failed || print.size >= sizeof raw) break;
        memcpy(raw, print.data, print.size + 1);
        double back = strtod(raw, NULL);
        if (!(back < value || back > value) || !(back < -value || back > -value)) break;
    }
    bool fine = !print.failed && print.size < sizeof raw;
    base_text_fini(&print);
    if (!fine) return text_no_memory(r);
    const char *p = raw;
    for (; *p && *p != 'e'; p++) /* the point may be a comma, as the program's locale has it */
        if (*p >= '0' && *p <= '9' && n < 20) digits[n++] = *p;
    if (*p) exponent = atoi(p + 1);
    while (n > 1 && digits[n - 1] == '0') n--;
    char *text = base_arena_take(r->arena, 64, 1);
    if (!text) return text_no_memory(r);
    size_t k = 0;
    if (value < 0 || (!(value > 0) && signbit(value))) text[k++] = '-';
    if (exponent < -4 || exponent >= 16) {
        text[k++] = digits[0];
        if (n > 1) text[k++] = '.';
        for (int i = 1; i < n; i++) text[k++] = digits[i];
        text[k++] = 'e';
        text[k++] = exponent < 0 ? '-' : '+';
        unsigned left = (unsigned)(exponent < 0 ? -exponent : exponent);
        if (left >= 100) text[k++] = (char)('0' + left / 100);
        text[k++] = (char)('0' + left / 10 % 10);
        text[k++] = (char)('0' + left % 10);
    } else {
        int point = exponent + 1; /* digits before the point */
        if (point <= 0) text[k++] = '0';
        for (int i = 0; i < point; i++) text[k++] = i < n ? digits[i] : '0';
        text[k++] = '.';
        for (int i = point; i < 0; i++) text[k++] = '0';
        for (int i = point > 0 ? point : 0; i < n; i++) text[k++] = digits[i];
        if (point >= n) text[k++] = '0';
    }
    return text_put_content(r, (base_view){text, k});
}

static bool put_number(text_renderer *r, const base_json *value) {
    base_view text = value->text;
    for (size_t i = 0; i < text.size; i++)
        if (text.data[i] == '.' || text.data[i] == 'e' || text.data[i] == 'E')
            return put_float(r, value->number);
    return base_view_equal(text, BASE_VIEW("-0")) ? text_put_template(r, "0")
                                                  : text_put_content(r, text);
}

bool text_render_value(text_renderer *r, const base_json *value, bool quoted,
                       const text_place *at) {
    if (text_is_absent(value)) return text_put_template(r, "null");
    if (too_deep(at)) return text_refuse(r, at, "nested too deeply");
    switch (value->kind) {
    case JSON_NULL:
    case JSON_FALSE: return text_put_template(r, "false");
    case JSON_TRUE: return text_put_template(r, "true");
    case JSON_NUMBER: return put_number(r, value);
    case JSON_STRING: return put_quoted(r, value->text);
    case JSON_OBJECT:
        return text_put_template(r, "{") && text_render_members(r, value, quoted, at) &&
               text_put_template(r, "}");
    case JSON_ARRAY: break;
    }
    size_t index = 0;
    if (!text_put_template(r, "[")) return false;
    for (const base_json *element = value->child; element; element = element->next) {
        text_place at_element = {at, {0}, index};
        if (index++ && !text_put_template(r, ",")) return false;
        if (!text_render_value(r, element, quoted, &at_element)) return false;
    }
    return text_put_template(r, "]");
}

bool text_render_members(text_renderer *r, const base_json *object, bool quoted,
                         const text_place *at) {
    size_t n;
    const member *members = members_take(r, object, &n);
    if (!members) return false;
    for (size_t i = 0; i < n; i++) {
        const base_json *value = members[i].value;
        text_place at_value = {at, value->key, 0};
        if (i && !text_put_template(r, ",")) return false;
        if (!(quoted ? put_quoted(r, value->key) : text_put_content(r, value->key))) return false;
        if (!text_put_template(r, ":") || !text_render_value(r, value, quoted, &at_value))
            return false;
    }
    return true;
}

/* ---- schemas --------------------------------------------------------------------------------- */

static base_view upper(text_renderer *r, base_view text) {
    char *copy = base_arena_text(r->arena, text.data, text.size);
    if (!copy) {
        text_no_memory(r);
        return (base_view){"", 0};
    }
    for (size_t i = 0; i < text.size; i++)
        if (copy[i] >= 'a' && copy[i] <= 'z') copy[i] = (char)(copy[i] - ('a' - 'A'));
    return (base_view){copy, text.size};
}

/* The type's name in capitals; of a list of names what Python's str gives, as the template has it.
 */
static bool type_upper(text_renderer *r, const base_json *type, const text_place *at,
                       base_view *out) {
    text_place at_type = {at, BASE_VIEW("type"), 0};
    *out = (base_view){"", 0};
    if (text_is_absent(type)) return true;
    if (type->kind == JSON_STRING) {
        *out = upper(r, type->text);
        return !r->status;
    }
    if (type->kind != JSON_ARRAY)
        return text_refuse(r, &at_type, "must be text or a list of texts");
    base_text list;
    base_text_init(&list, r->arena->heap);
    base_text_add(&list, "[", 1);
    bool fine = true;
    for (const base_json *name = type->child; name && fine; name = name->next) {
        fine = name->kind == JSON_STRING;
        for (size_t i = 0; fine && i < name->text.size; i++) {
            char c = name->text.data[i];
            fine = c >= ' ' && c < 127 && c != '\'' && c != '\\';
        }
        if (name != type->child) base_text_add(&list, ", ", 2);
        base_text_add(&list, "'", 1);
        if (fine) base_text_add_view(&list, name->text);
        base_text_add(&list, "'", 1);
    }
    base_text_add(&list, "]", 1);
    if (fine && !list.failed) *out = upper(r, (base_view){list.data, list.size});
    bool failed = list.failed;
    base_text_fini(&list);
    if (failed) return text_no_memory(r);
    if (!fine) return text_refuse(r, &at_type, "must be text or a list of plain names");
    return !r->status;
}

static bool comma(text_renderer *r, bool *wanted) {
    bool put_it = *wanted;
    *wanted = true;
    return !put_it || text_put_template(r, ",");
}

/* name:"text" */
static bool put_text_of(text_renderer *r, const char *label, const base_json *value,
                        const text_place *at, const char *key) {
    text_place at_value = {at, base_view_of(key), 0};
    if (value && value->kind != JSON_STRING && value->kind != JSON_NULL)
        return text_refuse(r, &at_value, "must be text");
    return text_put_template(r, label) &&
           put_quoted(r, text_is_absent(value) ? (base_view){"", 0} : value->text);
}

static bool put_required(text_renderer *r, const base_json *required, const text_place *at) {
    text_place at_list = {at, BASE_VIEW("required"), 0};
    if (!text_put_template(r, "required:[")) return false;
    if (!text_is_absent(required) && required->kind != JSON_ARRAY)
        return text_refuse(r, &at_list, "must be a list of names");
    for (const base_json *name = text_is_absent(required) ? NULL : required->child; name;
         name = name->next) {
        if (name->kind != JSON_STRING) return text_refuse(r, &at_list, "must be a list of names");
        if (name != required->child && !text_put_template(r, ",")) return false;
        if (!put_quoted(r, name->text)) return false;
    }
    return text_put_template(r, "]");
}

static bool properties_render(text_renderer *r, const base_json *properties, bool filtered,
                              const text_place *at);

static bool items_render(text_renderer *r, const base_json *items, const text_place *at) {
    size_t n;
    bool more = false;
    const member *members = members_take(r, items, &n);
    if (!members) return false;
    for (size_t i = 0; i < n; i++) {
        const base_json *value = members[i].value;
        text_place at_value = {at, value->key, 0};
        if (value->kind == JSON_NULL) continue;
        if (!comma(r, &more)) return false;
        if (base_view_equal(value->key, BASE_VIEW("properties"))) {
            if (!text_put_template(r, "properties:{")) return false;
            if (value->kind == JSON_OBJECT && !properties_render(r, value, false, &at_value))
                return false;
            if (!text_put_template(r, "}")) return false;
        } else if (base_view_equal(value->key, BASE_VIEW("required"))) {
            if (!put_required(r, value, at)) return false;
        } else if (base_view_equal(value->key, BASE_VIEW("type")) && value->kind == JSON_STRING) {
            base_view name = upper(r, value->text);
            if (!text_put_template(r, "type:") || !put_quoted(r, name)) return false;
        } else if (base_view_equal(value->key, BASE_VIEW("type"))) {
            bool other = false;
            if (value->kind != JSON_ARRAY)
                return text_refuse(r, &at_value, "must be text or a list of texts");
            if (!text_put_template(r, "type:[")) return false;
            for (const base_json *name = value->child; name; name = name->next) {
                if (name->kind != JSON_STRING)
                    return text_refuse(r, &at_value, "must be text or a list of texts");
                if (!comma(r, &other) || !put_quoted(r, upper(r, name->text))) return false;
            }
            if (!text_put_template(r, "]")) return false;
        } else if (!text_put_content(r, value->key) || !text_put_template(r, ":") ||
                   !text_render_value(r, value, true, &at_value)) {
            return false;
        }
    }
    return true;
}

static bool property_render(text_renderer *r, const base_json *schema, const text_place *at) {
    const base_json *description = base_json_find(schema, "description"),
                    *options = base_json_find(schema, "enum"),
                    *items = base_json_find(schema, "items"),
                    *properties = base_json_find(schema, "properties"),
                    *required = base_json_find(schema, "required");
    text_place at_enum = {at, BASE_VIEW("enum"), 0}, at_items = {at, BASE_VIEW("items"), 0},
               at_properties = {at, BASE_VIEW("properties"), 0};
    bool more = false;
    base_view type;
    if (!type_upper(r, base_json_find(schema, "type"), at, &type)) return false;
    if (text_is_true(description)) {
        more = true;
        if (!put_text_of(r, "description:", description, at, "description")) return false;
    }
    if (base_view_equal(type, BASE_VIEW("STRING")) && text_is_true(options)) {
        if (!comma(r, &more) || !text_put_template(r, "enum:") ||
            !text_render_value(r, options, true, &at_enum))
            return false;
    } else if (base_view_equal(type, BASE_VIEW("ARRAY")) && text_is_true(items) &&
               items->kind == JSON_OBJECT) {
        if (!comma(r, &more) || !text_put_template(r, "items:{") ||
            !items_render(r, items, &at_items))
            return false;
        if (!text_put_template(r, "}")) return false;
    }
    if (text_is_true(base_json_find(schema, "nullable")) &&
        (!comma(r, &more) || !text_put_template(r, "nullable:true")))
        return false;
    if (base_view_equal(type, BASE_VIEW("OBJECT"))) {
        bool own =
            properties &&
            properties->kind == JSON_OBJECT; /* else the schema's other keys pass for properties */
        if (!comma(r, &more) || !text_put_template(r, "properties:{")) return false;
        if (!properties_render(r, own ? properties : schema, !own, own ? &at_properties : at))
            return false;
        if (!text_put_template(r, "}")) return false;
        if (text_is_true(required) && (!comma(r, &more) || !put_required(r, required, at)))
            return false;
    }
    return comma(r, &more) && text_put_template(r, "type:") && put_quoted(r, type) &&
           text_put_template(r, "}");
}

static bool properties_render(text_renderer *r, const base_json *properties, bool filtered,
                              const text_place *at) {
    static const char *const standard[] = {"description", "type", "properties", "required",
                                           "nullable"};
    static const base_json nothing = {.kind = JSON_OBJECT};
    size_t n;
    bool more = false;
    if (too_deep(at)) return text_refuse(r, at, "nested too deeply");
    const member *members = members_take(r, properties, &n);
    if (!members) return false;
    for (size_t i = 0; i < n; i++) {
        const base_json *value = members[i].value;
        text_place at_value = {at, value->key, 0};
        bool skipped = false;
        for (size_t k = 0; filtered && k < sizeof standard / sizeof *standard; k++)
            if (base_view_equal(value->key, base_view_of(standard[k]))) skipped = true;
        if (skipped) continue;
        if (!comma(r, &more) || !text_put_content(r, value->key) || !text_put_template(r, ":{"))
            return false;
        if (!property_render(r, value->kind == JSON_OBJECT ? value : &nothing, &at_value))
            return false;
    }
    return true;
}

static bool tool_render(text_renderer *r, const base_json *tool, const text_place *at) {
    const base_json *function = base_json_find(tool, "function");
    text_place at_function = {at, BASE_VIEW("function"), 0},
               at_name = {&at_function, BASE_VIEW("name"), 0},
               at_parameters = {&at_function, BASE_VIEW("parameters"), 0},
               at_properties = {&at_parameters, BASE_VIEW("properties"), 0},
               at_response = {&at_function, BASE_VIEW("response"), 0};
    if (tool->kind == JSON_OBJECT && !text_check_keys(r, tool, at, "function, type")) return false;
    if (!function || function->kind != JSON_OBJECT)
        return text_refuse(r, &at_function, "must be an object");
    if (!text_check_keys(r, function, &at_function,
                         "name, description, parameters, response, strict"))
        return false;
    const base_json *name = base_json_find(function, "name"),
                    *parameters = base_json_find(function, "parameters"),
                    *response = base_json_find(function, "response");
    base_view type;
    if (!name || name->kind != JSON_STRING) return text_refuse(r, &at_name, "must be text");
    if (!text_put_template(r, "<|tool>declaration:") || !text_put_content(r, name->text) ||
        !text_put_template(r, "{"))
        return false;
    if (!put_text_of(r, "description:", base_json_find(function, "description"), &at_function,
                     "description"))
        return false;
    if (text_is_true(parameters)) {
        if (parameters->kind != JSON_OBJECT)
            return text_refuse(r, &at_parameters, "must be an object");
        const base_json *properties = base_json_find(parameters, "properties"),
                        *required = base_json_find(parameters, "required");
        if (!text_put_template(r, ",parameters:{")) return false;
        if (text_is_true(properties)) {
            if (properties->kind != JSON_OBJECT)
                return text_refuse(r, &at_properties, "must be an object");
            if (!text_put_template(r, "properties:{") ||
                !properties_render(r, properties, false, &at_properties))
                return false;
            if (!text_put_template(r, "},")) return false;
        }
        if (text_is_true(required) &&
            (!put_required(r, required, &at_parameters) || !text_put_template(r, ",")))
            return false;
        if (!type_upper(r, base_json_find(parameters, "type"), &at_parameters, &type)) return false;
        /* without a type the template leaves the brace open */
        if (type.size &&
            (!text_put_template(r, "type:") || !put_quoted(r, type) || !text_put_template(r, "}")))
            return false;
    }
    if (response) {
        if (response->kind != JSON_OBJECT) return text_refuse(r, &at_response, "must be an object");
        const base_json *description = base_json_find(response, "description");
        if (!text_put_template(r, ",response:{")) return false;
        if (text_is_true(description) &&
            (!put_text_of(r, "description:", description, &at_response, "description") ||
             !text_put_template(r, ",")))
            return false;
        if (!type_upper(r, base_json_find(response, "type"), &at_response, &type)) return false;
        if (base_view_equal(type, BASE_VIEW("OBJECT")) &&
            (!text_put_template(r, "type:") || !put_quoted(r, type) || !text_put_template(r, "}")))
            return false;
    }
    return text_put_template(r, "}<tool|>");
}

bool text_render_tools(text_renderer *r, const base_json *tools, const text_place *at) {
    size_t index = 0;
    for (const base_json *tool = tools->child; tool; tool = tool->next) {
        text_place at_tool = {at, {0}, index++};
        if (!tool_render(r, tool, &at_tool)) return false;
    }
    return true;
}
