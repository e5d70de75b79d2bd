/* cached.c - the small JSON files of Beryl's cache folder that hold what is known of an adapter:
 * what the check of its kernels found (check.c), what tuning found (tuned.c). Each names its
 * key, so that one of another adapter, driver or version is told from one that is damaged. */
#include "base/error.h"
#include "base/file.h"
#include "engine/engine.h"

#include <stdio.h>
#include <string.h>

enum { FILE_MAX = 1 << 20 };

void engine_adapter_key(const beryl_engine *e, char key[17]) {
    const device_caps *caps = device_caps_of(e->device);
    uint64_t hash = base_hash(BERYL_VERSION, sizeof BERYL_VERSION, 1);
    hash = base_hash(caps->backend, strlen(caps->backend), hash);
    hash = base_hash(caps->name, strlen(caps->name), hash);
    hash = base_hash(caps->driver, strlen(caps->driver), hash);
    hash = base_hash(&caps->compiler, sizeof caps->compiler, hash);
    snprintf(key, 17, "%016llx", (unsigned long long)hash);
}

char *engine_cache_path(base_arena *arena, const char *kind, const char *key) {
    const char *cache = base_environment("XDG_CACHE_HOME"), *home = base_environment("HOME");
    const char *slash = kind ? "/" : "", *dash = kind ? "-" : "", *end = kind ? ".json" : "";
    if (!kind) kind = key = "";
    if (cache && *cache == '/')
        return base_arena_print(arena, "%s/beryl%s%s%s%s%s", cache, slash, kind, dash, key, end);
    return home && *home == '/' ? base_arena_print(arena, "%s/.cache/beryl%s%s%s%s%s", home, slash,
                                                   kind, dash, key, end)
                                : NULL;
}

const base_json *engine_cache_read(beryl_engine *e, base_arena *arena, const char *path,
                                   const char *key) {
    char *text = NULL;
    size_t size = 0;
    base_json *root = NULL;
    if (!path || !base_file_exists(path)) return NULL;
    const char *own = base_file_read(&e->heap, path, FILE_MAX, &text, &size, NULL) == BERYL_OK
                          ? base_arena_text(arena, text, size)
                          : NULL;
    base_heap_give(&e->heap, text, text ? size + 1 : 0);
    const base_json *same = own && base_json_parse(arena, own, size, &root, NULL) == BERYL_OK
                                ? base_json_find(root, "key")
                                : NULL;
    const bool whole = same && same->kind == JSON_STRING;
    if (whole && base_view_equal(same->text, base_view_of(key))) return root;
    base_log(&e->log, BERYL_LOG_WARNING, "%s is %s: it is ignored", path,
             whole ? "of another device" : "damaged");
    return NULL;
}

void engine_cache_begin(const beryl_engine *e, const char *key, base_text *text) {
    const device_caps *caps = device_caps_of(e->device);
    base_text_print(
        text,
        "{\"key\":\"%s\",\"version\":\"" BERYL_VERSION "\",\"backend\":\"%s\",\"adapter\":", key,
        caps->backend);
    base_json_write_string(text, caps->name, strlen(caps->name));
    base_text_print(text, ",\"driver\":");
    base_json_write_string(text, caps->driver, strlen(caps->driver));
}

beryl_status engine_cache_folder(base_arena *arena, beryl_error *error) {
    const char *folder = engine_cache_path(arena, NULL, NULL);
    beryl_error why = {0};
    if (!folder)
        return base_fail(error, BERYL_IO,
                         "what is found cannot be kept: neither $XDG_CACHE_HOME nor $HOME is set");
    const beryl_status status = base_folder_make(folder, &why);
    return status == BERYL_OK
               ? status
               : base_fail(error, status, "what is found cannot be kept: %s", why.message);
}

beryl_status engine_cache_keep(base_arena *arena, const char *kind, const char *key,
                               const base_text *text, beryl_error *error) {
    const beryl_status status = engine_cache_folder(arena, error);
    const char *path = status == BERYL_OK ? engine_cache_path(arena, kind, key) : NULL;
    if (status == BERYL_OK && (text->failed || !path)) return base_no_memory(error);
    return status == BERYL_OK ? base_file_write(path, text->data, text->size, error) : status;
}
