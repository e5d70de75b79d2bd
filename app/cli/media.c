/* media.c - pictures and sound of the command line: files read, decoded, encoded by the model. */
#include "cli.h"

#include "base/error.h"
#include "picture.h"

#include <string.h>

/* ".png" and the like decide nothing: the bytes do. */
static beryl_status open_picture(cli *c, beryl_engine *engine, const void *data, size_t size,
                                 beryl_media **out, beryl_error *error) {
    const args *a = &c->args;
    picture p;
    beryl_status status = picture_read(&c->heap, data, size, &p, error);
    if (status) return status;
    const beryl_media_desc desc = {.size = sizeof desc,
                                   .kind = BERYL_PICTURE,
                                   .rgb = p.rgb,
                                   .width = p.width,
                                   .height = p.height,
                                   .budget = args_count(a, FLAG_BUDGET, 0),
                                   .resized = args_has(a, FLAG_RESIZED)};
    status = beryl_media_open(engine, &desc, out, error);
    picture_free(&c->heap, &p);
    return status;
}

static beryl_status open_sound(beryl_engine *engine, const void *data, size_t size,
                               beryl_media **out, beryl_error *error) {
    const beryl_media_desc desc = {
        .size = sizeof desc, .kind = BERYL_SOUND, .wav = data, .wav_size = size};
    return beryl_media_open(engine, &desc, out, error);
}

/* The file's name is put before what went wrong. */
static void name_file(beryl_error *error, const char *path) {
    char text[sizeof error->message];
    snprintf(text, sizeof text, "%.200s: %.*s", path, (int)(sizeof text - 210), error->message);
    memcpy(error->message, text, sizeof text);
}

static beryl_status encode(cli *c, beryl_engine *engine, args_flag flag, const char *path,
                           beryl_media **out, beryl_error *error) {
    size_t size = 0;
    char *data = cli_read(c, path, &size);
    if (!data) return BERYL_IO; /* reported */
    beryl_task *task = NULL;
    beryl_status status = flag == FLAG_AUDIO ? open_sound(engine, data, size, out, error)
                                             : open_picture(c, engine, data, size, out, error);
    base_heap_give(&c->heap, data, size + 1);
    if (!status) status = beryl_media_encode(*out, &task, error);
    if (!status) {
        status = cli_task_run(c, task, NULL, NULL);
        const beryl_error *cause = beryl_task_error(task);
        if (status && cause) *error = *cause;
    }
    beryl_task_close(task);
    if (status && status != BERYL_CANCELLED) name_file(error, path);
    return status;
}

beryl_status cli_media_give(cli *c, beryl_engine *engine, beryl_session *session,
                            beryl_error *error) {
    const args *a = &c->args;
    beryl_media *media[ARGS_MEDIA_MAX] = {0};
    beryl_status status = BERYL_OK;
    for (size_t i = 0; !status && i < a->n_media; i++)
        status = encode(c, engine, a->media[i].flag, a->media[i].path, &media[i], error);
    if (!status && a->n_media) status = beryl_session_media(session, media, a->n_media, error);
    for (size_t i = 0; i < a->n_media; i++) beryl_media_close(media[i]);
    return status;
}
