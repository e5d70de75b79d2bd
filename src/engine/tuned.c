/* tuned.c - the file of what tuning found on an adapter: forms of products, by the class of the
 * product.
 *
 * One JSON file an adapter, driver and version of Beryl, in the cache folder. What is in it
 * comes from outside: every number is checked against what a form can be, so the worst that a
 * file can do is choose a slow one; a damaged file, or one of another adapter, is passed over
 * with a warning. */
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "engine/engine.h"

#include <stdio.h>
#include <string.h>

#ifndef __wasm__

#include "ir/tune.h"

enum {
    FILE_MAX = 1 << 20,
    FORMS_MAX = 1024,
    WG_MAX = 1024,
    LANES_MAX = 128,
    ROWS_MAX = 8,
    DEPTH_MAX = 8,
    GROUPS_MAX = 65535,
    N_X_MAX = 32,
    SUMS_MAX = 64
};

/* The numbers of a form, with the most that each may be. */
#define FORM_LIST(X)    \
    X(wg, WG_MAX)       \
    X(lanes, LANES_MAX) \
    X(rows, ROWS_MAX) X(depth, DEPTH_MAX) X(groups, GROUPS_MAX) X(n_x, N_X_MAX)

char *engine_schedules_path(base_arena *arena) {
    const char *folder = engine_cache_path(arena, NULL, NULL);
    return folder ? base_arena_print(arena, "%s/schedules.txt", folder) : NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool number_of(const base_json *object, const char *key, double most, double *out) {
    const base_json *value = base_json_find(object, key);
    if (!value || value->kind != JSON_NUMBER || !(value->number >= 0 && value->number <= most))
        return false;
    *out = value->number;
    return true;
}

static bool count_of(const base_json *object, const char *key, uint32_t most, uint32_t *out) {
    double x;
    if (!number_of(object, key, most, &x)) return false;
    *out = (uint32_t)x;
    return (double)*out == x;
}

static bool text_of(const base_json *object, const char *key, base_view *out) {
    const base_json *value = base_json_find(object, key);
    if (!value || value->kind != JSON_STRING) return false;
    *out = value->text;
    return true;
}

static bool read_form(const base_json *object, engine_tuned *t) {
    base_view role, type, precision;
    uint32_t apart;
    *t = (engine_tuned){.form.form.tuned = true};
    if (object->kind != JSON_OBJECT || !text_of(object, "role", &role) ||
        !text_of(object, "type", &type) || !text_of(object, "precision", &precision))
        return false;
    if (!role.size || role.size >= sizeof t->role || memchr(role.data, 0, role.size)) return false;
    memcpy(t->role, role.data, role.size);
    while (t->type < TYPE_COUNT && !base_view_equal(type, base_view_of(base_type_name(t->type))))
        t->type++;
    t->exact = base_view_equal(precision, BASE_VIEW("exact"));
    if (t->type == TYPE_COUNT || (!t->exact && !base_view_equal(precision, BASE_VIEW("fast"))))
        return false;
    const base_json *shape = base_json_find(object, "shape"),
                    *size = shape && shape->kind == JSON_ARRAY ? shape->child : NULL;
    for (int i = 0; i < 3; i++, size = size->next) {
        if (!size || size->kind != JSON_NUMBER ||
            !(size->number >= 1 && size->number <= UINT32_MAX))
            return false;
        t->dim[i] = (uint32_t)size->number;
    }
    lower_form *f = &t->form.form;
#define X(name, most) \
    if (!count_of(object, #name, most, &f->name)) return false;
    FORM_LIST(X)
#undef X
    if (size || !count_of(object, "vectors", UINT32_MAX, &t->n) ||
        !count_of(object, "apart", LOWER_SEPARATE_NO, &apart))
        return false;
    if ((f->wg & (f->wg - 1)) || (f->lanes & (f->lanes - 1)) || f->rows * f->n_x > SUMS_MAX)
        return false;
    if (!number_of(object, "before_us", 1e12, &t->before) ||
        !number_of(object, "after_us", 1e12, &t->after))
        return false;
    f->apart = (lower_separate)apart;
    t->form.key = lower_tuned_key_of(t->role, t->type, t->dim, t->n, t->exact);
    return true;
}

/* false: bad entries, or all of it. */
static bool read_forms(beryl_engine *e, const base_json *root) {
    const base_json *list = base_json_find(root, "products");
    if (root->kind != JSON_OBJECT || !list || list->kind != JSON_ARRAY) return false;
    bool good = true;
    for (const base_json *object = list->child; object; object = object->next) {
        engine_tuned one, *t = NULL;
        bool fits = e->tuned.count < FORMS_MAX && read_form(object, &one);
        for (size_t i = 0; fits && i < e->tuned.count; i++)
            fits = e->tuned.data[i].form.key != one.form.key;
        if (fits) t = base_vec_add(&e->heap, &e->tuned);
        if (t) *t = one;
        good &= fits;
    }
    return good;
}

void engine_tuned_use(beryl_engine *e, bool use) {
    base_heap_give(&e->heap, e->tuned_forms, e->n_tuned_forms * sizeof *e->tuned_forms);
    e->n_tuned_forms = use ? e->tuned.count : 0;
    e->tuned_forms = e->n_tuned_forms
                         ? base_heap_take(&e->heap, e->n_tuned_forms * sizeof *e->tuned_forms)
                         : NULL;
    if (!e->tuned_forms) e->n_tuned_forms = 0; /* no memory: as chosen */
    e->store.tuned = e->tuned_forms;
    e->store.schedules = use ? e->schedules : NULL;
    e->store.n_tuned = 0;
    /* what was searched in vain is not for the lowering */
    for (size_t i = 0; i < e->n_tuned_forms; i++)
        if (e->tuned.data[i].form.form.wg)
            e->tuned_forms[e->store.n_tuned++] = e->tuned.data[i].form;
}

static void forget(beryl_engine *e) {
    e->tuned.count = 0;
    ir_cache_close(e->schedules);
    e->schedules = e->store.schedules = NULL;
}

void engine_tuned_close(beryl_engine *e) {
    engine_tuned_use(e, false);
    forget(e);
    base_vec_fini(&e->heap, &e->tuned);
}

void engine_tuned_recall(beryl_engine *e) {
    forget(e);
    if (!e->device || e->options.no_cache) return;
    char key[17];
    base_arena arena;
    base_arena_init(&arena, &e->heap);
    const char *schedules = engine_schedules_path(&arena);
    /* no memory: without */
    if (schedules && base_file_exists(schedules))
        e->schedules = ir_cache_open(&e->heap, schedules, &e->log);
    engine_adapter_key(e, key);
    const char *path = engine_cache_path(&arena, "tune", key);
    const base_json *root = engine_cache_read(e, &arena, path, key);
    if (root && !read_forms(e, root))
        base_log(&e->log, BERYL_LOG_WARNING, "%s is damaged: its bad entries are ignored", path);
    base_arena_fini(&arena);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void thousandths(base_text *text, const char *key, double x) {
    const uint64_t n = x > 0 ? (uint64_t)(1e3 * x + 0.5) : 0;
    base_text_print(text, ",\"%s\":%llu.%03u", key, (unsigned long long)(n / 1000),
                    (unsigned)(n % 1000));
}

static void write_form(base_text *text, const engine_tuned *t) {
    const lower_form *f = &t->form.form;
    base_text_print(text, "{\"role\":");
    base_json_write_string(text, t->role, strlen(t->role));
    base_text_print(text,
                    ",\"type\":\"%s\",\"shape\":[%u,%u,%u],\"vectors\":%u,\"precision\":\"%s\"",
                    base_type_name(t->type), t->dim[0], t->dim[1], t->dim[2], t->n,
                    t->exact ? "exact" : "fast");
#define X(name, most) base_text_print(text, ",\"" #name "\":%u", f->name);
    FORM_LIST(X)
#undef X
    base_text_print(text, ",\"apart\":%d", (int)f->apart);
    thousandths(text, "before_us", t->before);
    thousandths(text, "after_us", t->after);
    base_text_add(text, "}", 1);
}

beryl_status engine_tuned_keep(const beryl_engine *e, beryl_error *error) {
    char key[17];
    base_arena arena;
    base_text text;
    base_arena_init(&arena, (base_heap *)(uintptr_t)&e->heap);
    base_text_init(&text, (base_heap *)(uintptr_t)&e->heap);
    engine_adapter_key(e, key);
    engine_cache_begin(e, key, &text);
    base_text_print(&text, ",\"products\":[");
    for (size_t i = 0; i < e->tuned.count; i++) {
        base_text_add(&text, i ? ",\n" : "\n", i ? 2 : 1);
        write_form(&text, &e->tuned.data[i]);
    }
    base_text_print(&text, "\n]}\n");
    const beryl_status status = engine_cache_keep(&arena, "tune", key, &text, error);
    base_text_fini(&text);
    base_arena_fini(&arena);
    return status;
}

/* ---- all files ------------------------------------------------------------------------------- */

typedef struct listing {
    base_heap *heap;
    const char *folder;
    bool (*each)(void *user, const beryl_tuned_info *);
    void *user;
    beryl_status status;
    beryl_error *error;
} listing;

static const char *copy_text(base_arena *arena, const base_json *root, const char *key) {
    base_view text;
    const char *copy =
        root && text_of(root, key, &text) ? base_arena_text(arena, text.data, text.size) : "";
    return copy ? copy : "";
}

static void count_forms(const base_json *root, beryl_tuned_info *info) {
    const base_json *list =
        root && root->kind == JSON_OBJECT ? base_json_find(root, "products") : NULL;
    base_view key;
    engine_tuned unused;
    info->damaged = !list || list->kind != JSON_ARRAY || !text_of(root, "key", &key);
    for (const base_json *p = info->damaged ? NULL : list->child; p; p = p->next)
        if (read_form(p, &unused)) info->n_product++;
        else info->damaged = true;
}

static bool count_schedules(base_heap *heap, const char *path, beryl_tuned_info *info) {
    ir_cache *cache = ir_cache_open(heap, path, NULL);
    bool other_version = false;
    if (cache) info->n_product = ir_cache_count(cache, &info->damaged, &other_version);
    info->adapter = other_version ? "schedules of all devices by another version of Beryl"
                                  : "schedules of all devices";
    ir_cache_close(cache);
    return cache != NULL;
}

/* A damaged one is listed too, so that it can be deleted. */
static void list_file(void *user, const char *name, bool is_folder) {
    listing *l = user;
    const base_view given = base_view_of(name);
    /* of all devices, a line each */
    const bool schedules = base_view_equal(given, BASE_VIEW("schedules.txt"));
    if (is_folder || l->status != BERYL_OK ||
        (!schedules && !(base_view_begins(given, BASE_VIEW("tune-")) &&
                         base_view_ends(given, BASE_VIEW(".json")))))
        return;
    char *text = NULL;
    size_t size = 0;
    base_json *root = NULL;
    base_arena arena;
    base_arena_init(&arena, l->heap);
    const char *path = base_arena_print(&arena, "%s/%s", l->folder, name);
    if (path && !schedules &&
        base_file_read(l->heap, path, FILE_MAX, &text, &size, NULL) == BERYL_OK &&
        base_json_parse(&arena, text, size, &root, NULL) != BERYL_OK)
        root = NULL;
    beryl_tuned_info info = {path,
                             copy_text(&arena, root, "backend"),
                             copy_text(&arena, root, "adapter"),
                             copy_text(&arena, root, "driver"),
                             0,
                             false};
    if (!schedules) count_forms(root, &info);
    if (!path || (schedules && !count_schedules(l->heap, path, &info)))
        l->status = base_no_memory(l->error);
    else if (!l->each(l->user, &info) && remove(path))
        l->status = base_fail(l->error, BERYL_IO, "cannot delete %s", path);
    base_heap_give(l->heap, text, text ? size + 1 : 0);
    base_arena_fini(&arena);
}

beryl_status beryl_tuned(bool (*each)(void *user, const beryl_tuned_info *), void *user,
                         beryl_error *error) {
    if (!each) return base_fail(error, BERYL_MISUSE, "beryl_tuned needs a function to call");
    base_heap heap;
    base_arena arena;
    base_heap_init(&heap, NULL);
    base_arena_init(&arena, &heap);
    listing l = {.heap = &heap,
                 .folder = engine_cache_path(&arena, NULL, NULL),
                 .each = each,
                 .user = user,
                 .error = error};
    beryl_status status =
        l.folder ? base_folder_list(&heap, l.folder, list_file, &l, error) : BERYL_OK;
    if (status == BERYL_NOT_FOUND) status = BERYL_OK; /* nothing was ever kept */
    base_arena_fini(&arena);
    return status == BERYL_OK ? l.status : status;
}

#endif
