/* train_media.c - pictures and sound in a training's data: opened while the data is read, encoded
 * before the first pass, put in their places in each.
 *
 * One idea: towers are frozen, so what they make of a picture is computed once and kept in host
 * memory; then the towers leave the device. */
#include "base/build.h"
#include "base/error.h"
#include "base/file.h"
#include "engine/media.h"
#include "engine/towers.h"
#include "engine/train.h"

#include <string.h>

enum { FILE_MAX = 1 << 30 };

/* What was given under the name; NULL: nothing. */
static const beryl_media_desc *given_as(const beryl_train *t, const char *name, bool sound) {
    const beryl_train_options *o = &t->options;
    for (size_t i = 0; i < o->n_media; i++)
        if (!strcmp(o->media_names[i], name) && (o->media[i].kind == BERYL_SOUND) == sound)
            return &o->media[i];
    return NULL;
}

/* Of a file, as it is where `resized`, beside the data where its path is not absolute. */
static beryl_status open_file(beryl_train *t, const char *data, bool sound, bool resized,
                              const char *file, beryl_error *error) {
    beryl_engine *e = t->engine;
    const char *slash = data && file[0] != '/' ? strrchr(data, '/') : NULL;
    const size_t n_folder = slash ? (size_t)(slash + 1 - data) : 0;
    char *path = base_arena_print(&t->arena, "%.*s%s", (int)n_folder, data ? data : "", file);
    if (!path) return base_no_memory(error);
    const uint64_t source = base_hash(path, strlen(path), sound ? 5 : 3 + (uint64_t)resized);
    beryl_media *m = NULL;
    for (size_t i = 0; !m && i < t->media.count; i++)
        if (t->media.data[i]->source == source) (m = t->media.data[i])->users++;
    beryl_status status = BERYL_OK;
    if (!m) {
        const beryl_media_desc *given = given_as(t, file, sound);
        char *bytes = NULL;
        beryl_media_desc desc = {.kind = sound ? BERYL_SOUND : BERYL_PICTURE};
        if (given) desc = *given;
        else if (!BUILD_HAS_MEDIA_FILES)
            return base_fail(error, BERYL_BAD_INPUT, "'%.200s' was not given", file);
        else status = base_file_read(&e->heap, path, FILE_MAX, &bytes, &desc.file_size, error);
        if (status != BERYL_OK) return status;
        desc.size = sizeof desc;
        desc.resized = resized && !sound;
        if (bytes) desc.file = bytes;
        status = beryl_media_open(e, &desc, &m, error);
        if (bytes) base_heap_give(&e->heap, bytes, desc.file_size + 1);
        if (m) m->source = source;
    }
    if (status == BERYL_OK && !media_list_add(&e->heap, &t->media, m))
        status = base_no_memory(error);
    media_drop(m);
    return status;
}

beryl_status train_media_open(void *user, const train_medium *what, uint32_t *number,
                              uint32_t *n_soft, beryl_error *error) {
    const train_media_data *at = user;
    beryl_train *t = at->train;
    const base_json *path = what->place ? base_json_find(what->place->part, "path") : NULL;
    const char *file = what->file;
    beryl_status status = BERYL_OK;
    if (path && (path->kind != JSON_STRING || !path->text.size ||
                 memchr(path->text.data, 0, path->text.size)))
        status = base_fail_at(error, BERYL_BAD_INPUT, path->at, "path: must be the path of a file");
    else if (path && !(file = base_arena_text(&t->arena, path->text.data, path->text.size)))
        status = base_no_memory(error);
    else if (file) status = open_file(t, at->data, what->sound, !path, file, error);
    else status = media_held(t->engine, what->place, NULL, &t->media, error);
    if (status == BERYL_NOT_FOUND && !file)
        status = base_fail_at(error, BERYL_BAD_INPUT, what->place->part->at,
                              "the part at byte %zu holds no %s and has no path",
                              what->place->part->at, what->sound ? "sound" : "picture");
    if (status != BERYL_OK) return status;
    *number = (uint32_t)t->media.count - 1;
    *n_soft = t->media.data[*number]->n_soft;
    return BERYL_OK;
}

beryl_status train_media_place(beryl_train *t, beryl_error *error) {
    beryl_status status = BERYL_OK;
    for (size_t i = 0; status == BERYL_OK && i < t->media.count; i++)
        status = engine_tower_place(t->engine, t->media.data[i]->kind, error);
    return status;
}

beryl_status train_media_encode(beryl_train *t, beryl_task *task, media_encoding *c) {
    while (t->n_encoded < t->media.count) {
        if (!c->media) media_encode_begin(c, t->media.data[t->n_encoded]);
        const beryl_status status = media_encode_step(task, c);
        if (status != BERYL_OK) return status;
        media_encode_end(c);
        if (++t->n_encoded == t->media.count) engine_towers_leave(t->engine);
    }
    return BERYL_OK;
}

void train_media_put(const beryl_train *t, const gemma4_text *text, graph_exec *exec,
                     const train_row *row, uint32_t base) {
    if (!t->media.count) return;
    const size_t width = t->engine->model.config.n_embd;
    const gemma4_media way = engine_media_of(t->engine);
    int32_t *tokens = graph_exec_input(exec, text->tokens),
            *first = graph_exec_input(exec, text->first),
            *last = graph_exec_input(exec, text->last),
            *last_global = graph_exec_input(exec, text->last_global);
    float *soft = graph_exec_input(exec, text->soft);
    bool *is_soft = graph_exec_input(exec, text->is_soft);
    memset(is_soft + base, false, row->n * sizeof *is_soft);
    for (uint32_t i = 0; i < row->n_span; i++) {
        const train_span *span = &row->spans[i];
        const beryl_media *m = t->media.data[span->medium];
        const uint32_t begin = base + span->begin, end = begin + span->n;
        const bool whole = m->kind == BERYL_PICTURE && way >= GEMMA4_MEDIA_SLIDING,
                   all = whole && way == GEMMA4_MEDIA_ALL;
        memcpy(soft + begin * width, m->soft, span->n * width * sizeof *soft);
        for (uint32_t at = begin; at < end; at++) {
            tokens[at] = 0;
            is_soft[at] = true;
            if (whole) last[at] = (int32_t)end - 1;
            if (all) last_global[at] = (int32_t)end - 1;
            if (all && first[at] > (int32_t)begin) first[at] = (int32_t)begin;
        }
    }
}

beryl_status beryl_train_row_media(const beryl_train *t, uint32_t row, uint32_t i, uint32_t *begin,
                                   beryl_media **media, beryl_error *error) {
    if (!t || row >= t->data.n || !begin || !media)
        return base_fail(error, BERYL_MISUSE, "no such row, or no place for its media");
    const train_row *of = &t->data.rows[row];
    if (i >= of->n_span) return base_fail(error, BERYL_NOT_FOUND, "the row has no more media");
    *begin = of->spans[i].begin;
    *media = t->media.data[of->spans[i].medium];
    (*media)->users++;
    return BERYL_OK;
}

uint64_t train_media_digest(const beryl_train *t, const train_row *row, uint64_t hash) {
    for (uint32_t i = 0; i < row->n_span; i++) {
        const uint64_t content[] = {t->media.data[row->spans[i].medium]->hash, row->spans[i].begin};
        hash = base_hash(content, sizeof content, hash);
    }
    return hash;
}
