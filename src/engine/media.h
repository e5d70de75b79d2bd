/* media.h - media between the file that makes it (media.c) and those that place it in prompts
 * (places.c, attach.c). */
#ifndef ENGINE_MEDIA_H
#define ENGINE_MEDIA_H

#include "base/build.h"
#include "engine/engine.h"

/* Of a video; else 0. */
static inline uint32_t media_frames(const beryl_media *m) {
    return BUILD_HAS_MEDIA_FILES ? m->n_frame : 0;
}
/* A user less; after the last it is gone. NULL is fine. */
void media_drop(beryl_media *m);
bool media_is_encoded(const beryl_media *m);

struct engine_tower_plan;
/* A run of a tower's plan with one picture or clip, to be read back as value 0. */
beryl_status media_submit(const beryl_media *m, const struct engine_tower_plan *plan,
                          device_ticket *ticket, beryl_error *error);

typedef struct media_encoding { /* of a task */
    beryl_media *media;         /* NULL: none is encoded */
    uint32_t frame;             /* of a video: the one that is next */
    device_ticket ticket;
    bool submitted;
} media_encoding;

void media_encode_begin(media_encoding *c, beryl_media *m);
/* As a task's step: OK: it is encoded. */
beryl_status media_encode_step(beryl_task *task, media_encoding *c);
/* Waits for the device. One that encodes nothing is fine. */
void media_encode_end(media_encoding *c);

/* Of the pictures and clips of a prompt, in their order; users of each. */
void media_list_fini(base_heap *heap, media_list *list);
/* False: no memory. */
bool media_list_add(base_heap *heap, media_list *list, beryl_media *m);

/* Adds what a place of a conversation holds itself, opened; what the list or `before` has of the
 * same text is taken from there. NOT_FOUND, without a message: it holds none. */
beryl_status media_held(beryl_engine *e, const text_chunk *place, const session_spans *before,
                        media_list *list, beryl_error *error);
/* What stands in a conversation's places: media that its parts hold themselves, opened, and of what
 * the session was given the next for each part that holds none. What the session's prompt before
 * holds of it is taken from there, with its soft tokens. BAD_INPUT tells the part. */
beryl_status media_attached(beryl_session *s, const text_prompt *prompt, media_list *out,
                            beryl_error *error);

#endif
