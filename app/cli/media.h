/* media.h - pictures, sound and video of the program: files read once, encoded by the model, and
 * named in a conversation's messages by path and content. */
#ifndef CLI_MEDIA_H
#define CLI_MEDIA_H

#include "chat.h"

typedef struct media_item {
    char hash[17]; /* of the file's bytes, as in messages */
    char *path;    /* owned */
    uint64_t from; /* of a clip: samples at 16 kHz */
    beryl_media_kind kind;
    beryl_media *media;
} media_item;

typedef struct media_store {
    cli *c;
    beryl_engine *engine;
    base_vec(media_item) items;
} media_store;

void media_init(media_store *s, cli *c, beryl_engine *engine);
void media_fini(media_store *s); /* before the engine is closed */
/* A file, read and encoded with a progress bar: its parts of a message are appended, {"type",
 * "path", "hash", "tokens"}, clips with "from", with commas between. What is longer than a clip
 * becomes several, and that is told. BERYL_IO without a message: reported. */
beryl_status media_add(media_store *s, beryl_media_kind kind, const char *path, base_text *parts,
                       beryl_error *error);
beryl_media_kind media_flag_kind(args_flag flag);
/* --image, --audio and --video, in their order. */
beryl_status media_add_flags(media_store *s, base_text *parts, beryl_error *error);
/* Gives the session what a prompt of the conversation names; files not met yet are read. */
beryl_status media_give(media_store *s, beryl_session *session, const conversation *v,
                        beryl_error *error);
/* Gives the session what these parts name. */
beryl_status media_give_parts(media_store *s, beryl_session *session, const base_text *parts,
                              beryl_error *error);
/* The paths that a line consists of, as terminals drop them: quoted, with backslashes, as file://.
 * Each is of a file that is there, of a kind that its name tells. Calls `each` for them in order
 * (NULL: none) and gives their number; 0: the line is something else. */
size_t media_line(const char *line,
                  void (*each)(void *user, beryl_media_kind kind, const char *path), void *user);
/* A path as one types it, unquoted, "~/" in the home folder. False: too long. */
bool media_path(const char *typed, char *to, size_t size);

/* Frames of a video, [n, height, width, 3], by ffmpeg: one a second, or 32 evenly spread. Given
 * back by video_fini. */
typedef struct video {
    uint8_t *rgb;
    size_t size;
    uint32_t n, width, height;
    double times[BERYL_VIDEO_FRAMES];
} video;
beryl_status video_read(cli *c, const char *path, video *out, beryl_error *error);
void video_fini(cli *c, video *v);

#endif
