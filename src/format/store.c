/* store.c - names to files: built-in model, paths, Beryl's folder, Ollama's manifests and blobs.
 *
 * Owns nothing beyond a call. Refuses names and digests outside a narrow grammar, manifests above 1
 * MiB, and models whose manifest asks for what we do not do (an adapter), since leaving it out
 * would give wrong answers. The one idea: each place is a function that answers OK, NOT_FOUND (look
 * further) or a real error. */
#include "format/store.h"

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "format/gguf.h"

#include <stdio.h>
#include <string.h>

enum { MANIFEST_MAX = 1 << 20, PARAMS_MAX = 1 << 16, CONFIG_MAX = 1 << 20, ROOTS = 3 };

#define OLLAMA_HOST "registry.ollama.ai" /* the folder that a name without a host means */
#define OLLAMA_NAMESPACE "library"

static beryl_status no_memory(beryl_error *error) {
    return base_fail(error, BERYL_NO_MEMORY, "no memory to look for a model");
}

static bool is_file(base_arena *arena, const char *path, bool *failed) {
    if (!base_file_exists(path)) return false;
    const char *inside = base_arena_print(arena, "%s/.", path); /* there only if path is a folder */
    if (!inside) *failed = true;
    return inside && !base_file_exists(inside);
}

static bool text_ends(const char *text, const char *tail) {
    return base_view_ends(base_view_of(text), base_view_of(tail));
}

typedef struct projector_search {
    base_arena *arena;
    base_view name; /* of the model, without ".gguf" */
    const char *best;
    size_t alike; /* bytes that best shares with name */
    bool failed;
} projector_search;

static void projector_entry(void *user, const char *name, bool is_folder) {
    projector_search *s = user;
    const char *rest = name + 6;
    if (is_folder || strncmp(name, "mmproj", 6) || !text_ends(name, ".gguf")) return;
    if (*rest == '-' || *rest == '_' || *rest == '.') rest++;
    size_t alike = 0;
    while (alike < s->name.size && rest[alike] == s->name.data[alike]) alike++;
    if (s->best && alike <= s->alike) return;
    s->best = base_arena_text(s->arena, name, strlen(name));
    s->failed |= !s->best;
    s->alike = alike;
}

/* "x.gguf" with the towers of a split model beside it. A folder that cannot be read has none. */
static beryl_status projector_beside(base_arena *arena, format_model *found, beryl_error *error) {
    const size_t size = strlen(found->path);
    if (!text_ends(found->path, ".gguf") || text_ends(found->path, ".mmproj.gguf")) return BERYL_OK;
    bool failed = false;
    const char *path = base_arena_print(arena, "%.*s.mmproj.gguf", (int)(size - 5), found->path);
    if (!path) return no_memory(error);
    if (is_file(arena, path, &failed)) found->projector = path;
    if (failed || found->projector) return failed ? no_memory(error) : BERYL_OK;
    const char *slash = strrchr(found->path, '/');
    const size_t n_folder = slash ? (size_t)(slash - found->path) : 0;
    const char *name = slash ? slash + 1 : found->path,
               *folder = slash ? base_arena_text(arena, n_folder ? found->path : "/",
                                                 n_folder ? n_folder : 1)
                               : ".";
    projector_search search = {.arena = arena, .name = {name, strlen(name) - 5}};
    if (!folder || !strncmp(name, "mmproj", 6)) return folder ? BERYL_OK : no_memory(error);
    if (base_folder_list(arena->heap, folder, projector_entry, &search, NULL) == BERYL_NO_MEMORY ||
        search.failed)
        return no_memory(error);
    if (!search.best) return BERYL_OK;
    found->projector =
        slash ? base_arena_print(arena, "%.*s%s", (int)n_folder + 1, found->path, search.best)
              : search.best;
    return found->projector ? BERYL_OK : no_memory(error);
}

/* ---- the built-in model */

static beryl_status find_built_in(base_arena *arena, format_model *found, beryl_error *error) {
    char folder[2048];
    const char *places[4];
    size_t n = 0;
    if (base_program_folder(folder, sizeof folder)) {
        char *last = strrchr(folder, '/');
        if (last) *last = 0; /* the folder above, without "..", since people are shown the path */
        places[n++] = base_arena_print(arena, "%s/share/beryl/models/default.gguf", folder);
        places[n++] =
            base_arena_print(arena, "%s/models/default.gguf", folder); /* build/ of a source tree */
    }
#ifdef BERYL_DATADIR
    places[n++] = BERYL_DATADIR "/models/default.gguf";
#endif
    places[n++] = "models/default.gguf";
    bool failed = false;
    for (size_t i = 0; i < n; i++) {
        if (!places[i]) return no_memory(error);
        if (is_file(arena, places[i], &failed)) {
            *found = (format_model){.name = "default", .path = places[i], .source = "built-in"};
            return BERYL_OK;
        }
    }
    if (failed) return no_memory(error);
    return base_fail(error, BERYL_NOT_FOUND,
                     "the built-in model is not installed (looked for %.300s); run make install, "
                     "or name a model",
                     places[0]);
}

/* ---- Beryl's own folder */

/* NULL without an error: there is no such folder to name. */
static beryl_status own_folder(base_arena *arena, const char **folder, beryl_error *error) {
    const char *models = base_environment("BERYL_MODELS"),
               *data = base_environment("XDG_DATA_HOME"), *home = base_environment("HOME");
    *folder = NULL;
    if (!models && !data && !home) return BERYL_OK;
    *folder = models ? base_arena_print(arena, "%s", models)
              : data ? base_arena_print(arena, "%s/beryl/models", data)
                     : base_arena_print(arena, "%s/.local/share/beryl/models", home);
    return *folder ? BERYL_OK : no_memory(error);
}

/* A letter, digit or underscore, then those and characters of `also`; never "..". */
static bool is_plain(base_view text, size_t most, const char *also) {
    if (!text.size || text.size > most || !base_is_word(text.data[0])) return false;
    for (size_t i = 1; i < text.size; i++) {
        char c = text.data[i];
        if (!base_is_word(c) && (!c || !strchr(also, c))) return false;
        if (c == '.' && text.data[i - 1] == '.') return false;
    }
    return true;
}

typedef struct parts_search {
    base_arena *arena;
    const char *name;
    char *file; /* the first part of NAME, as the folder has it; NULL: not met */
    bool failed;
} parts_search;

static void parts_entry(void *user, const char *name, bool is_folder) {
    parts_search *s = user;
    unsigned no = 0, count = 0;
    size_t stem = is_folder ? 0 : format_gguf_part_stem(name, &no, &count);
    if (s->file || !stem || no != 1 || strlen(s->name) != stem || memcmp(name, s->name, stem))
        return;
    s->file = base_arena_text(s->arena, name, strlen(name));
    s->failed |= !s->file;
}

static beryl_status find_own(base_arena *arena, const char *name, format_model *found,
                             beryl_error *error) {
    const char *folder = NULL, *path = NULL;
    beryl_status status = own_folder(arena, &folder, error);
    if (status || !folder || !is_plain(base_view_of(name), 200, "._-+"))
        return status ? status : BERYL_NOT_FOUND;
    static const char *const tails[] = {"", ".gguf"};
    bool failed = false;
    for (int i = 0; i < 2; i++) {
        path = base_arena_print(arena, "%s/%s%s", folder, name, tails[i]);
        if (!path) return no_memory(error);
        if (is_file(arena, path, &failed)) goto known;
    }
    parts_search search = {.arena = arena, .name = name};
    status = base_folder_list(arena->heap, folder, parts_entry, &search, NULL);
    if (status == BERYL_NO_MEMORY || search.failed || failed) return no_memory(error);
    if (!search.file) return BERYL_NOT_FOUND;
    path = base_arena_print(arena, "%s/%s", folder, search.file);
    if (!path) return no_memory(error);
known:
    *found = (format_model){
        .name = base_arena_text(arena, name, strlen(name)), .path = path, .source = "beryl"};
    return found->name ? projector_beside(arena, found, error) : no_memory(error);
}

/* ---- Ollama's store */

typedef struct ollama_name {
    base_view host, space, model, tag; /* borrowed from the name, or the defaults */
} ollama_name;

/* [host[:port]/][namespace/]model[:tag]. Each part becomes one folder or file name, so each has its
 * grammar. */
static bool ollama_parse(const char *name, ollama_name *out) {
    *out = (ollama_name){
        BASE_VIEW(OLLAMA_HOST), BASE_VIEW(OLLAMA_NAMESPACE), {0}, BASE_VIEW("latest")};
    base_view piece[3];
    size_t n = 0;
    for (const char *at = name;;) {
        const char *slash = strchr(at, '/');
        if (n == 3) return false;
        piece[n++] = (base_view){at, slash ? (size_t)(slash - at) : strlen(at)};
        if (!slash) break;
        at = slash + 1;
    }
    base_view last = piece[n - 1];
    const char *colon = last.size ? memchr(last.data, ':', last.size) : NULL;
    out->model = last;
    if (colon) {
        out->model.size = (size_t)(colon - last.data);
        out->tag = (base_view){colon + 1, last.size - out->model.size - 1};
    }
    if (n >= 2) out->space = piece[n - 2];
    if (n == 3) out->host = piece[0];
    return is_plain(out->host, 350, ".-:") && is_plain(out->space, 80, "-") &&
           is_plain(out->model, 80, ".-") && is_plain(out->tag, 80, ".-");
}

/* Roots that may exist, each once, in the order of search. */
static beryl_status ollama_roots(base_arena *arena, const char *roots[ROOTS], size_t *n,
                                 beryl_error *error) {
    const char *models = base_environment("OLLAMA_MODELS"), *home = base_environment("HOME");
    const char *candidates[ROOTS] = {models, NULL, "/usr/share/ollama/.ollama/models"};
    if (home && !(candidates[1] = base_arena_print(arena, "%s/.ollama/models", home)))
        return no_memory(error);
    *n = 0;
    for (size_t i = 0; i < ROOTS; i++) {
        bool known = !candidates[i];
        for (size_t k = 0; k < *n; k++) known |= !known && !strcmp(roots[k], candidates[i]);
        if (known) continue;
        roots[*n] = base_arena_text(arena, candidates[i], strlen(candidates[i]));
        if (!roots[(*n)++]) return no_memory(error);
    }
    return BERYL_OK;
}

/* "sha256:<64 hex>" to the path of its blob. *path NULL: the digest is not of that form. */
static beryl_status blob_path(base_arena *arena, const char *root, const base_json *layer,
                              const char **path, beryl_error *error) {
    const base_json *digest = base_json_find(layer, "digest");
    *path = NULL;
    if (!digest || digest->kind != JSON_STRING || digest->text.size != 71 ||
        !base_view_begins(digest->text, BASE_VIEW("sha256:")))
        return BERYL_OK;
    for (size_t i = 7; i < 71; i++) {
        char c = digest->text.data[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return BERYL_OK;
    }
    *path = base_arena_print(arena, "%s/blobs/sha256-%.64s", root, digest->text.data + 7);
    return *path ? BERYL_OK : no_memory(error);
}

static bool layer_is(const base_json *layer, const char *type) {
    const base_json *media = base_json_find(layer, "mediaType");
    base_view prefix = BASE_VIEW("application/vnd.ollama.image.");
    if (!media || media->kind != JSON_STRING || !base_view_begins(media->text, prefix))
        return false;
    base_view rest = {media->text.data + prefix.size, media->text.size - prefix.size};
    return base_view_equal(rest, base_view_of(type));
}

/* A small JSON object from a file, into the arena. */
static beryl_status object_read(base_arena *arena, const char *path, size_t most,
                                base_json **object, const char **text, beryl_error *error) {
    char *data = NULL;
    size_t size = 0;
    beryl_error cause = {0};
    beryl_status status = base_file_read(arena->heap, path, most, &data, &size, &cause);
    if (status) return base_fail(error, status, "%s", cause.message);
    char *copy = base_arena_text(arena, data, size);
    base_heap_give(arena->heap, data, size + 1);
    if (!copy) return no_memory(error);
    status = base_json_parse(arena, copy, size, object, &cause);
    if (status == BERYL_NO_MEMORY) return no_memory(error);
    if (!status && (*object)->kind != JSON_OBJECT) {
        status = BERYL_BAD_FILE;
        snprintf(cause.message, sizeof cause.message, "it is no JSON object");
    }
    if (status)
        return base_fail_at(error, BERYL_BAD_FILE, cause.at, "%s is damaged: %.200s", path,
                            cause.message);
    if (text) *text = copy;
    return BERYL_OK;
}

/* What a manifest names. Fields stay NULL where it has no such layer. */
typedef struct manifest {
    const char *model, *projector, *params, *config; /* paths of blobs */
    uint64_t size; /* of model and projector, as the manifest says */
    bool has_adapter, several_models;
} manifest;

static beryl_status manifest_read(base_arena *arena, const char *root, const char *path,
                                  manifest *out, beryl_error *error) {
    base_json *top = NULL;
    *out = (manifest){0};
    beryl_status status = object_read(arena, path, MANIFEST_MAX, &top, NULL, error);
    if (status) return status;
    const base_json *layers = base_json_find(top, "layers"),
                    *config = base_json_find(top, "config");
    if (!layers || layers->kind != JSON_ARRAY)
        return base_fail(error, BERYL_BAD_FILE, "%s is damaged: it has no layers", path);
    if (config && (status = blob_path(arena, root, config, &out->config, error))) return status;
    for (const base_json *layer = layers->child; layer; layer = layer->next) {
        bool is_model = layer_is(layer, "model"), is_projector = layer_is(layer, "projector");
        const char **to = is_model                    ? &out->model
                          : is_projector              ? &out->projector
                          : layer_is(layer, "params") ? &out->params
                                                      : NULL;
        out->has_adapter |= layer_is(layer, "adapter");
        if (!to) continue;
        out->several_models |= is_model && out->model;
        status = blob_path(arena, root, layer, to, error);
        if (status) return status;
        if (!*to)
            return base_fail(error, BERYL_BAD_FILE, "%s is damaged: a layer has no sha256 digest",
                             path);
        const base_json *size = base_json_find(layer, "size");
        if ((is_model || is_projector) && size && size->kind == JSON_NUMBER && size->number >= 0 &&
            size->number < 0x1p62)
            out->size += (uint64_t)size->number;
    }
    return BERYL_OK;
}

static beryl_status find_in_manifest(base_arena *arena, const char *root, const char *path,
                                     const char *name, format_model *found, beryl_error *error) {
    manifest m;
    bool failed = false;
    beryl_status status = manifest_read(arena, root, path, &m, error);
    if (status) return status;
    if (!m.model)
        return base_fail(error, BERYL_UNSUPPORTED,
                         "%s in Ollama's store holds no GGUF model, which alone is supported",
                         name);
    if (m.has_adapter)
        return base_fail(error, BERYL_UNSUPPORTED,
                         "%s in Ollama's store has an adapter, which is not supported", name);
    if (m.several_models)
        return base_fail(error, BERYL_UNSUPPORTED,
                         "%s in Ollama's store is in several files, which is not supported", name);
    const char *const needed[] = {m.model, m.projector, m.params};
    for (int i = 0; i < 3; i++) {
        if (needed[i] && !is_file(arena, needed[i], &failed) && !failed)
            return base_fail(
                error, BERYL_NOT_FOUND,
                "%s in Ollama's store is not complete, %s is missing; run: ollama pull %s", name,
                needed[i], name);
    }
    if (failed) return no_memory(error);
    *found = (format_model){.path = m.model, .projector = m.projector, .source = "ollama"};
    base_json *params = NULL;
    if (m.params &&
        (status = object_read(arena, m.params, PARAMS_MAX, &params, &found->params, error)))
        return status;
    found->name = base_arena_text(arena, name, strlen(name));
    return found->name ? BERYL_OK : no_memory(error);
}

/* *met: a manifest was found, so that its error is the answer. */
static beryl_status find_ollama(base_arena *arena, const char *name, format_model *found, bool *met,
                                beryl_error *error) {
    ollama_name n;
    if (!ollama_parse(name, &n)) return BERYL_NOT_FOUND;
    const char *roots[ROOTS];
    size_t n_root = 0;
    bool failed = false;
    beryl_status status = ollama_roots(arena, roots, &n_root, error);
    if (status) return status;
    for (size_t i = 0; i < n_root; i++) {
        const char *path =
            base_arena_print(arena, "%s/manifests/%.*s/%.*s/%.*s/%.*s", roots[i], (int)n.host.size,
                             n.host.data, (int)n.space.size, n.space.data, (int)n.model.size,
                             n.model.data, (int)n.tag.size, n.tag.data);
        if (!path) return no_memory(error);
        if (!is_file(arena, path, &failed)) continue;
        *met = true;
        return find_in_manifest(arena, roots[i], path, name, found, error);
    }
    return failed ? no_memory(error) : BERYL_NOT_FOUND;
}

/* ---- one name */

static beryl_status not_found(base_arena *arena, const char *name, beryl_error *error) {
    char shown[104]; /* the name is the user's: short, and no control characters into a terminal */
    size_t n = 0;
    for (; name[n] && n < 100; n++)
        shown[n] = (unsigned char)name[n] < 0x20 || name[n] == 0x7f ? '?' : name[n];
    memcpy(shown + n, name[n] ? "..." : "", name[n] ? 4 : 1);
    size_t size = strlen(name);
    if (name[0] == '/' || name[0] == '.' || (size > 5 && text_ends(name, ".gguf")))
        return base_fail(error, BERYL_NOT_FOUND,
                         "there is no file %s; give the path of a GGUF file", shown);
    const char *folder = NULL;
    ollama_name parsed;
    beryl_status status = own_folder(arena, &folder, error);
    if (status) return status;
    if (!ollama_parse(name, &parsed))
        return base_fail(
            error, BERYL_NOT_FOUND,
            "there is no file %s, and it is no model's name; give the path of a GGUF file", shown);
    return base_fail(error, BERYL_NOT_FOUND,
                     "no model %s: neither a file, nor in %.120s, nor in Ollama's store; there is "
                     "no download yet: give "
                     "the path of a GGUF file, put one into that folder, or run: ollama pull %s",
                     shown, folder ? folder : "Beryl's folder ($BERYL_MODELS is not set)", shown);
}

beryl_status format_store_find(base_arena *arena, const char *name, format_model *found,
                               beryl_error *error) {
    *found = (format_model){0};
    if (!name || !*name) return find_built_in(arena, found, error);
    bool failed = false, met = false;
    if (is_file(arena, name, &failed)) {
        found->name = found->path = base_arena_text(arena, name, strlen(name));
        found->source = "file";
        return found->path ? projector_beside(arena, found, error) : no_memory(error);
    }
    if (failed) return no_memory(error);
    beryl_status status = find_own(arena, name, found, error);
    if (status == BERYL_NOT_FOUND) status = find_ollama(arena, name, found, &met, error);
    if (status == BERYL_NOT_FOUND && !met)
        status = strcmp(name, "default") ? not_found(arena, name, error)
                                         : find_built_in(arena, found, error);
    if (status) *found = (format_model){0};
    return status;
}

/* ---- all names */

typedef struct lister {
    base_heap *heap;
    void (*each)(void *user, const beryl_model_info *model);
    void *user;
    beryl_error *error;
    beryl_status status; /* only NO_MEMORY ends a listing */
    const char *root;    /* Ollama's, or Beryl's folder */
    const char *path[5]; /* of the folders above: manifests, host, namespace, model */
    const char *names[4];
    int depth;
} lister;

/* 0: it cannot be opened. */
static uint64_t file_size(lister *l, const char *path) {
    beryl_source source = {0};
    beryl_status status =
        path ? base_source_open_file(l->heap, path, &source, NULL) : BERYL_NO_MEMORY;
    if (status == BERYL_NO_MEMORY) l->status = no_memory(l->error);
    if (status) return 0;
    if (source.close) source.close(source.user);
    return source.size;
}

static void own_entry(void *user, const char *file, bool is_folder) {
    lister *l = user;
    base_view name = base_view_of(file);
    if (l->status || is_folder || name.size <= 5 || !base_view_ends(name, BASE_VIEW(".gguf")))
        return;
    if (base_view_begins(name, BASE_VIEW("mmproj")) ||
        base_view_ends(name, BASE_VIEW(".mmproj.gguf")))
        return;
    unsigned no = 0, count = 0;
    size_t stem = format_gguf_part_stem(file, &no, &count);
    if (stem && no != 1) return;
    base_arena arena;
    base_arena_init(&arena, l->heap);
    const char *path = base_arena_print(&arena, "%s/%s", l->root, file);
    const char *shown = base_arena_text(&arena, file, stem ? stem : name.size - 5);
    if (!path || !shown) {
        l->status = no_memory(l->error);
    } else if (is_plain(base_view_of(shown), 200, "._-+")) {
        beryl_model_info info = {
            .name = shown, .path = path, .source = "beryl", .size = file_size(l, path)};
        for (unsigned i = 2; stem && i <= count && i < 1000; i++) {
            const char *part =
                base_arena_print(&arena, "%s/%s-%05u-of-%05u.gguf", l->root, shown, i, count);
            info.size += file_size(l, part);
        }
        if (!l->status) l->each(l->user, &info);
    }
    base_arena_fini(&arena);
}

static bool text_is_gemma(const base_json *value) {
    return value && value->kind == JSON_STRING && base_view_equal(value->text, BASE_VIEW("gemma4"));
}

/* Does the manifest's config say that this is a model which we could run? */
static bool is_gemma(lister *l, base_arena *arena, const char *config) {
    base_json *top = NULL;
    beryl_status status =
        config ? object_read(arena, config, CONFIG_MAX, &top, NULL, NULL) : BERYL_NOT_FOUND;
    if (status == BERYL_NO_MEMORY) l->status = no_memory(l->error);
    if (status) return false;
    if (text_is_gemma(base_json_find(top, "model_family"))) return true;
    const base_json *families = base_json_find(top, "model_families");
    for (const base_json *f = families && families->kind == JSON_ARRAY ? families->child : NULL; f;
         f = f->next)
        if (text_is_gemma(f)) return true;
    return false;
}

static void list_manifest(lister *l, base_arena *arena, const char *path) {
    manifest m;
    beryl_status status = manifest_read(arena, l->root, path, &m, NULL);
    if (status == BERYL_NO_MEMORY) l->status = no_memory(l->error);
    if (status || !m.model || m.has_adapter || m.several_models || !is_gemma(l, arena, m.config))
        return;
    bool is_host = !strcmp(l->names[0], OLLAMA_HOST),
         is_space = is_host && !strcmp(l->names[1], OLLAMA_NAMESPACE);
    const char *name = base_arena_print(arena, "%s%s%s%s%s:%s", is_host ? "" : l->names[0],
                                        is_host ? "" : "/", is_space ? "" : l->names[1],
                                        is_space ? "" : "/", l->names[2], l->names[3]);
    ollama_name parsed;
    if (!name) {
        l->status = no_memory(l->error);
    } else if (ollama_parse(name, &parsed)) {
        l->each(l->user, &(beryl_model_info){
                             .name = name, .path = m.model, .source = "ollama", .size = m.size});
    }
}

/* manifests/HOST/NAMESPACE/MODEL/TAG: four levels, and names only of the last one. */
static void ollama_entry(void *user, const char *name, bool is_folder) {
    lister *l = user;
    if (l->status || is_folder != (l->depth < 3)) return;
    base_arena arena;
    base_arena_init(&arena, l->heap);
    const char *path = base_arena_print(&arena, "%s/%s", l->path[l->depth], name);
    l->names[l->depth] = name;
    if (!path) {
        l->status = no_memory(l->error);
    } else if (l->depth == 3) {
        list_manifest(l, &arena, path);
    } else {
        l->path[++l->depth] = path;
        if (base_folder_list(l->heap, path, ollama_entry, l, NULL) == BERYL_NO_MEMORY)
            l->status = no_memory(l->error);
        l->depth--;
    }
    base_arena_fini(&arena);
}

beryl_status format_store_list(base_heap *heap,
                               void (*each)(void *user, const beryl_model_info *model), void *user,
                               beryl_error *error) {
    lister l = {.heap = heap, .each = each, .user = user, .error = error};
    base_arena arena;
    base_arena_init(&arena, heap);
    format_model found;
    const char *roots[ROOTS];
    size_t n_root = 0;
    beryl_status status = find_built_in(&arena, &found, NULL);
    if (status == BERYL_NO_MEMORY) l.status = no_memory(error);
    if (!status) {
        beryl_model_info info = {.name = found.name,
                                 .path = found.path,
                                 .source = found.source,
                                 .size = file_size(&l, found.path)};
        if (!l.status) each(user, &info);
    }
    if (!l.status) l.status = own_folder(&arena, &l.root, error);
    if (!l.status && l.root &&
        base_folder_list(heap, l.root, own_entry, &l, NULL) == BERYL_NO_MEMORY)
        l.status = no_memory(error);
    if (!l.status) l.status = ollama_roots(&arena, roots, &n_root, error);
    for (size_t i = 0; !l.status && i < n_root; i++) {
        l.root = roots[i];
        l.depth = 0;
        l.path[0] = base_arena_print(&arena, "%s/manifests", roots[i]);
        if (!l.path[0] ||
            base_folder_list(heap, l.path[0], ollama_entry, &l, NULL) == BERYL_NO_MEMORY)
            l.status = no_memory(error);
    }
    base_arena_fini(&arena);
    return l.status;
}
