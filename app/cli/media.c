/* media.c - see media.h. */
#include "media.h"

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

#include <string.h>

static const char *const part_names[] = {"", "image", "audio", "video"};
enum { CLIP = 480000, RATE = 16000 };

void media_init(media_store *s, cli *c, beryl_engine *engine) {
    *s = (media_store){.c = c, .engine = engine};
}

void media_fini(media_store *s) {
    for (size_t i = 0; i < s->items.count; i++) {
        media_item *item = &s->items.data[i];
        beryl_media_close(item->media);
        base_heap_give(&s->c->heap, item->path, strlen(item->path) + 1);
    }
    base_vec_fini(&s->c->heap, &s->items);
}

/* The file's name is put before what went wrong. */
static void name_file(beryl_error *error, const char *path) {
    char text[sizeof error->message];
    if (!*error->message) return;
    snprintf(text, sizeof text, "%.200s: %.*s", path, (int)(sizeof text - 210), error->message);
    memcpy(error->message, text, sizeof text);
}

static media_item *find(const media_store *s, beryl_media_kind kind, base_view hash,
                        const char *path, uint64_t from) {
    for (size_t i = s->items.count; i--;) {
        media_item *item = &s->items.data[i];
        if (item->kind == kind && item->from == from &&
            (hash.size ? base_view_equal(hash, base_view_of(item->hash))
                       : !strcmp(item->path, path)))
            return item;
    }
    return NULL;
}

static beryl_status encode(media_store *s, const beryl_media_desc *desc, beryl_media **out,
                           beryl_error *error) {
    beryl_task *task = NULL;
    beryl_status status = beryl_media_open(s->engine, desc, out, error);
    if (!status) status = beryl_media_encode(*out, &task, error);
    if (!status) {
        status = cli_task_run(s->c, task, NULL, NULL);
        const beryl_error *cause = beryl_task_error(task);
        if (status && cause) *error = *cause;
    }
    beryl_task_close(task);
    return status;
}

/* A file's media, encoded unless its content is there; *item is borrowed until the next. */
static beryl_status take(media_store *s, beryl_media_kind kind, const char *path, const char *data,
                         size_t size, uint64_t from, media_item **item, beryl_error *error) {
    const cli *c = s->c;
    media_item fresh = {.kind = kind, .from = from};
    snprintf(fresh.hash, sizeof fresh.hash, "%016llx",
             (unsigned long long)base_hash(data, size, kind));
    *item = find(s, kind, base_view_of(fresh.hash), NULL, from);
    if (*item) return BERYL_OK;
    beryl_media_desc desc = {.size = sizeof desc,
                             .kind = kind,
                             .budget = args_count(&c->args, FLAG_BUDGET, 0),
                             .resized = args_has(&c->args, FLAG_RESIZED),
                             .file = data,
                             .file_size = size,
                             .from = from,
                             .part = true};
    video film = {0};
    beryl_status status = BERYL_OK;
    if (kind == BERYL_VIDEO) {
        status = video_read(s->c, path, &film, error);
        desc.rgb = film.rgb;
        desc.width = film.width;
        desc.height = film.height;
        desc.n_frame = film.n;
        desc.times = film.times;
        desc.budget = 0;
        desc.resized = false;
    }
    if (!status) status = encode(s, &desc, &fresh.media, error);
    video_fini(s->c, &film);
    const size_t n_path = strlen(path) + 1;
    if (!status) {
        fresh.path = base_heap_take(&s->c->heap, n_path);
        *item = fresh.path ? base_vec_add(&s->c->heap, &s->items) : NULL;
        if (!*item) status = base_no_memory(error);
    }
    if (status) {
        base_heap_give(&s->c->heap, fresh.path, n_path);
        beryl_media_close(fresh.media);
        return status;
    }
    memcpy(fresh.path, path, n_path);
    **item = fresh;
    return BERYL_OK;
}

static void put_part(const media_store *s, const media_item *item, base_text *parts) {
    json_out j;
    size_t n = 0;
    beryl_media_soft(item->media, NULL, &n, NULL);
    json_init(&j, &s->c->heap);
    json_open(&j, NULL, '{');
    json_text(&j, "type", part_names[item->kind]);
    json_text(&j, "path", item->path);
    json_text(&j, "hash", item->hash);
    if (item->from) json_integer(&j, "from", (int64_t)item->from);
    json_integer(&j, "tokens", (int64_t)n);
    json_close(&j, '}');
    if (parts->size) base_text_add(parts, ",", 1);
    base_text_add(parts, j.text.data, j.text.size);
    parts->failed |= j.text.failed;
    json_fini(&j);
}

/* What a video is told from is its path and size; ffmpeg reads it, not we. */
static char *read_file(media_store *s, beryl_media_kind kind, const char *path, size_t *size) {
    if (kind != BERYL_VIDEO) return cli_read(s->c, path, size);
    beryl_source source = {0};
    beryl_error error = {0};
    if (!strcmp(path, "-")) {
        cli_fail(s->c, "a video cannot come from standard input");
        return NULL;
    }
    if (base_source_open_file(&s->c->heap, path, &source, &error)) {
        cli_fail(s->c, "%s", error.message);
        return NULL;
    }
    const uint64_t bytes = source.size;
    char head[4096] = {0};
    const size_t n = bytes < sizeof head ? (size_t)bytes : sizeof head;
    const beryl_status status = source.read(source.user, bytes - n, head, n);
    if (source.close) source.close(source.user);
    if (status) cli_fail(s->c, "cannot read %s", path);
    *size = sizeof head + sizeof bytes;
    char *data = status ? NULL : base_heap_take(&s->c->heap, *size + 1);
    if (data) {
        memcpy(data, head, sizeof head);
        memcpy(data + sizeof head, &bytes, sizeof bytes);
    }
    return data;
}

beryl_status media_add(media_store *s, beryl_media_kind kind, const char *path, base_text *parts,
                       beryl_error *error) {
    size_t size = 0, n = 0;
    char *data = read_file(s, kind, path, &size);
    if (!data) return BERYL_IO; /* reported */
    beryl_status status = BERYL_OK;
    uint64_t from = 0, rest;
    do {
        media_item *item = NULL;
        status = take(s, kind, path, data, size, from, &item, error);
        if (status) break;
        put_part(s, item, parts);
        rest = beryl_media_rest(item->media);
        from += CLIP;
        n++;
    } while (rest);
    base_heap_give(&s->c->heap, data, size + 1);
    if (!status && n > 1)
        fprintf(stderr, "beryl: %s is longer than 30 s: cut into %zu clips\n", path, n);
    if (!status && parts->failed) status = base_no_memory(error);
    if (status && status != BERYL_CANCELLED) name_file(error, path);
    return status;
}

beryl_media_kind media_flag_kind(args_flag flag) {
    return flag == FLAG_AUDIO ? BERYL_SOUND : flag == FLAG_VIDEO ? BERYL_VIDEO : BERYL_PICTURE;
}

beryl_status media_add_flags(media_store *s, base_text *parts, beryl_error *error) {
    const args *a = &s->c->args;
    beryl_status status = BERYL_OK;
    for (size_t i = 0; !status && i < a->n_media; i++)
        status = media_add(s, media_flag_kind(a->media[i].flag), a->media[i].path, parts, error);
    return status;
}

/* ---- into prompts ---------------------------------------------------------------------------- */

typedef struct giving {
    media_store *store;
    base_vec(beryl_media *) media;
    beryl_status status;
    beryl_error *error;
} giving;

/* A part that has a path; one that has none is the library's. */
static void give_part(void *user, const base_json *part) {
    giving *g = user;
    media_store *s = g->store;
    const base_json *type = base_json_find(part, "type"), *path = base_json_find(part, "path"),
                    *hash = base_json_find(part, "hash"), *from = base_json_find(part, "from");
    if (g->status || !path || path->kind != JSON_STRING) return;
    int kind = BERYL_VIDEO;
    while (kind && !base_view_equal(type->text, base_view_of(part_names[kind]))) kind--;
    if (!kind) return;
    char *name = base_heap_take(&s->c->heap, path->text.size + 1);
    const bool begins =
        from && from->kind == JSON_NUMBER && from->number > 0 && from->number < 1e15;
    const uint64_t begin = begins ? (uint64_t)from->number : 0;
    const base_view told = hash && hash->kind == JSON_STRING ? hash->text : (base_view){0};
    media_item *item = NULL;
    if (!name) {
        g->status = BERYL_NO_MEMORY;
        return;
    }
    memcpy(name, path->text.data, path->text.size);
    item = find(s, (beryl_media_kind)kind, told, name, begin);
    if (!item) {
        size_t size = 0;
        char *data = read_file(s, (beryl_media_kind)kind, name, &size);
        g->status = data ? take(s, (beryl_media_kind)kind, name, data, size, begin, &item, g->error)
                         : BERYL_IO;
        base_heap_give(&s->c->heap, data, data ? size + 1 : 0);
        if (g->status && g->status != BERYL_CANCELLED && data) name_file(g->error, name);
        if (!g->status && told.size && !base_view_equal(told, base_view_of(item->hash)))
            fprintf(stderr, "beryl: %s is not what it was when it was talked about\n", name);
        if (!g->status && !from && beryl_media_rest(item->media))
            fprintf(stderr, "beryl: %s is longer than 30 s: its first 30 s are taken\n", name);
    }
    base_heap_give(&s->c->heap, name, path->text.size + 1);
    if (g->status) return;
    beryl_media **to = base_vec_add(&s->c->heap, &g->media);
    if (to) *to = item->media;
    else g->status = BERYL_NO_MEMORY;
}

beryl_status media_give(media_store *s, beryl_session *session, const conversation *v,
                        beryl_error *error) {
    giving g = {.store = s, .error = error};
    if (!conversation_media(v, give_part, &g)) g.status = BERYL_NO_MEMORY;
    if (!g.status) g.status = beryl_session_media(session, g.media.data, g.media.count, error);
    base_vec_fini(&s->c->heap, &g.media);
    return g.status;
}

beryl_status media_give_parts(media_store *s, beryl_session *session, const base_text *parts,
                              beryl_error *error) {
    giving g = {.store = s, .error = error};
    base_arena arena;
    base_text list;
    base_json *root = NULL;
    base_arena_init(&arena, &s->c->heap);
    base_text_init(&list, &s->c->heap);
    base_text_print(&list, "[%.*s]", (int)parts->size, parts->data ? parts->data : "");
    g.status =
        list.failed ? BERYL_NO_MEMORY : base_json_parse(&arena, list.data, list.size, &root, error);
    for (const base_json *part = root ? root->child : NULL; part; part = part->next)
        give_part(&g, part);
    if (!g.status) g.status = beryl_session_media(session, g.media.data, g.media.count, error);
    base_vec_fini(&s->c->heap, &g.media);
    base_text_fini(&list);
    base_arena_fini(&arena);
    return g.status;
}

/* ---- paths that are typed or dropped --------------------------------------------------------- */

static int hex(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The next word, as a shell reads it; NULL: an open quote, too long. */
static const char *word_next(const char *at, char *to, size_t size) {
    size_t n = 0;
    char quote = 0;
    while (*at == ' ' || *at == '\t' || *at == '\n') at++;
    for (; *at && (quote || (*at != ' ' && *at != '\t' && *at != '\n')); at++) {
        char c = *at;
        if (c == quote) {
            quote = 0;
            continue;
        }
        if (!quote && (c == '\'' || c == '"')) {
            quote = c;
            continue;
        }
        if (c == '\\' && quote != '\'' && at[1]) c = *++at;
        if (n + 1 >= size) return NULL;
        to[n++] = c;
    }
    to[n] = 0;
    return quote ? NULL : at;
}

/* "file://HOST/a%20b" and "~/a", in place. */
static bool path_plain(char *path, size_t size) {
    const char *home = base_environment("HOME");
    char *at = path;
    if (!strncmp(path, "file://", 7)) {
        const char *from = strchr(path + 7, '/');
        if (!from) return false;
        for (; *from; from++) {
            const int high = *from == '%' ? hex(from[1]) : -1, low = high < 0 ? -1 : hex(from[2]);
            const char c = low < 0 ? *from : (char)(high * 16 + low);
            if (!c) return false;
            *at++ = c;
            if (low >= 0) from += 2;
        }
        *at = 0;
    } else if (path[0] == '~' && path[1] == '/' && home) {
        const size_t n = strlen(path + 1) + 1, more = strlen(home);
        if (n + more > size) return false;
        memmove(path + more, path + 1, n);
        memcpy(path, home, more);
    }
    return true;
}

bool media_path(const char *typed, char *to, size_t size) {
    const size_t n = strlen(typed);
    if (n + 1 > size) return false;
    memcpy(to, typed, n + 1);
    if (path_plain(to, size) && base_file_exists(to)) return true; /* as it is */
    const char *end = word_next(typed, to, size);
    if (!end || end[strspn(end, " \t\n")]) {
        memcpy(to, typed, n + 1);
        return path_plain(to, size);
    }
    return path_plain(to, size);
}

/* 0: its name tells no kind. */
static int kind_by_name(const char *path) {
    static const struct {
        const char *end;
        beryl_media_kind kind;
    } ends[] = {{"png", BERYL_PICTURE},  {"jpg", BERYL_PICTURE}, {"jpeg", BERYL_PICTURE},
                {"webp", BERYL_PICTURE}, {"gif", BERYL_PICTURE}, {"bmp", BERYL_PICTURE},
                {"wav", BERYL_SOUND},    {"flac", BERYL_SOUND},  {"mp3", BERYL_SOUND},
                {"ogg", BERYL_SOUND},    {"oga", BERYL_SOUND},   {"opus", BERYL_SOUND},
                {"aiff", BERYL_SOUND},   {"mp4", BERYL_VIDEO},   {"mkv", BERYL_VIDEO},
                {"webm", BERYL_VIDEO},   {"mov", BERYL_VIDEO},   {"avi", BERYL_VIDEO},
                {"m4v", BERYL_VIDEO}};
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < sizeof ends / sizeof *ends; i++) {
        const char *a = dot + 1, *b = ends[i].end;
        while (*a && (*a | 0x20) == *b) a++, b++;
        if (!*a && !*b) return (int)ends[i].kind;
    }
    return 0;
}

enum { PATH_SIZE = 4096 };

static bool is_media(char *path) {
    return path_plain(path, PATH_SIZE) && kind_by_name(path) && base_file_exists(path);
}

size_t media_line(const char *line,
                  void (*each)(void *user, beryl_media_kind kind, const char *path), void *user) {
    char path[PATH_SIZE];
    size_t n = strlen(line);
    while (n && (line[n - 1] == ' ' || line[n - 1] == '\n')) n--;
    if (n < PATH_SIZE) { /* one path with blanks, as it is */
        memcpy(path, line, n);
        path[n] = 0;
        if (is_media(path)) {
            if (each) each(user, (beryl_media_kind)kind_by_name(path), path);
            return 1;
        }
    }
    for (int pass = 0; pass < 2; pass++) {
        n = 0;
        for (const char *at = line; (at = word_next(at, path, sizeof path)) && *path; n++) {
            if (!is_media(path)) return 0;
            if (pass && each) each(user, (beryl_media_kind)kind_by_name(path), path);
        }
        if (!each) break;
    }
    return n;
}
