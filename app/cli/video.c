/* video.c - frames of a video file, by ffmpeg, where it is on the machine.
 *
 * The programs are started without a shell; the path is given as "file:PATH", so that it is neither
 * an option nor another protocol, and files alone are opened. What they write is bounded and
 * checked; a run that takes too long is ended. */
#define _GNU_SOURCE /* environ */
#include "media.h"

#include "base/error.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIDE = 1280, SECONDS = 120, SAID_MAX = 512, NO_PROGRAM = 127 };

typedef struct child {
    pid_t pid;
    int out, err;
    char said[SAID_MAX]; /* the end of what it wrote to standard error */
    size_t n_said;
} child;

static void close_pair(int pair[2]) {
    for (int i = 0; i < 2; i++)
        if (pair[i] >= 0) close(pair[i]);
}

/* 0, or errno. */
static int child_start(child *c, char *const *arguments) {
    int out[2] = {-1, -1}, err[2] = {-1, -1};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none;
    *c = (child){.out = -1, .err = -1};
    if (pipe(out) || pipe(err)) {
        const int cause = errno;
        close_pair(out);
        return cause;
    }
    for (int i = 0; i < 2; i++) {
        fcntl(out[i], F_SETFD, FD_CLOEXEC);
        fcntl(err[i], F_SETFD, FD_CLOEXEC);
    }
    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setsigmask(&attributes, &none);
    int cause = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    if (!cause) cause = posix_spawn_file_actions_adddup2(&files, out[1], 1);
    if (!cause) cause = posix_spawn_file_actions_adddup2(&files, err[1], 2);
    if (!cause)
        cause = posix_spawnp(&c->pid, arguments[0], &files, &attributes, arguments, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    close(out[1]);
    close(err[1]);
    c->out = out[0];
    c->err = err[0];
    if (!cause) return 0;
    close(c->out);
    close(c->err);
    return cause;
}

/* Keeps the last bytes. False: the end. */
static bool child_listen(child *c) {
    char piece[SAID_MAX / 2];
    const ssize_t n = read(c->err, piece, sizeof piece);
    if (n < 0) return errno == EINTR;
    if (!n) return false;
    const size_t room = SAID_MAX - 1 - c->n_said, more = (size_t)n;
    if (more > room) {
        memmove(c->said, c->said + (more - room), c->n_said - (more - room));
        c->n_said -= more - room;
    }
    memcpy(c->said + c->n_said, piece, more);
    c->n_said += more;
    c->said[c->n_said] = 0;
    return true;
}

static const char *last_line(child *c) {
    while (c->n_said && (c->said[c->n_said - 1] == '\n' || c->said[c->n_said - 1] == '\r'))
        c->said[--c->n_said] = 0;
    const char *line = strrchr(c->said, '\n');
    return line ? line + 1 : c->said;
}

/* Everything that it writes, up to `most` bytes, and its end. */
static beryl_status child_run(cli *c, char *const *arguments, size_t most, base_text *text,
                              beryl_error *error) {
    child p;
    const double end = base_time() + SECONDS;
    const int cause = child_start(&p, arguments);
    if (cause == ENOENT)
        return base_fail(error, BERYL_UNSUPPORTED, "videos need %s (Debian: ffmpeg)", arguments[0]);
    if (cause)
        return base_fail(error, BERYL_IO, "%s cannot be started: %s", arguments[0],
                         strerror(cause));
    bool out = true, err = true, stopped = false;
    beryl_status status = BERYL_OK;
    char piece[1 << 16];
    while ((out || err) && !status) {
        struct pollfd of[2] = {{.fd = out ? p.out : -1, .events = POLLIN},
                               {.fd = err ? p.err : -1, .events = POLLIN}};
        const int n = poll(of, 2, 100);
        if (of[0].revents) {
            const ssize_t got = read(p.out, piece, sizeof piece);
            if (got > 0) base_text_add(text, piece, (size_t)got);
            else if (!got || errno != EINTR) out = false;
        }
        if (n > 0 && of[1].revents) err = child_listen(&p);
        if (text->size > most)
            status = base_fail(error, BERYL_BAD_FILE, "%s writes too much", arguments[0]);
        else if (text->failed) status = base_no_memory(error);
        else if (base_time() > end)
            status = base_fail(error, BERYL_IO, "%s took longer than %d s", arguments[0], SECONDS);
        else if ((stopped = cli_interrupted()))
            status = base_fail(error, BERYL_CANCELLED, "cancelled");
    }
    (void)c;
    if (status) kill(p.pid, SIGKILL);
    close(p.out);
    close(p.err);
    int code = 0;
    while (waitpid(p.pid, &code, 0) < 0 && errno == EINTR) {}
    if (status) return status;
    if (WIFEXITED(code) && WEXITSTATUS(code) == NO_PROGRAM)
        return base_fail(error, BERYL_UNSUPPORTED, "videos need %s (Debian: ffmpeg)", arguments[0]);
    if (WIFEXITED(code) && !WEXITSTATUS(code)) return BERYL_OK;
    const char *line = last_line(&p);
    return base_fail(error, BERYL_BAD_FILE, "%s: %.200s", arguments[0], *line ? line : "it failed");
}

/* A number of a head "P6 width height 255"; 0: none. */
static uint32_t ppm_number(const base_text *t, size_t *at) {
    uint32_t x = 0;
    while (*at < t->size && (t->data[*at] == ' ' || t->data[*at] == '\n')) ++*at;
    for (; *at < t->size && t->data[*at] >= '0' && t->data[*at] <= '9' && x < 100000; ++*at)
        x = x * 10 + (uint32_t)(t->data[*at] - '0');
    return x;
}

/* Pictures one after the other, all of one size, packed in place. */
static beryl_status split(base_text *t, video *out, beryl_error *error) {
    size_t at = 0, to = 0;
    while (at < t->size && out->n < BERYL_VIDEO_FRAMES) {
        const bool begins = t->size - at > 2 && t->data[at] == 'P' && t->data[at + 1] == '6';
        at += 2;
        const uint32_t width = begins ? ppm_number(t, &at) : 0,
                       height = begins ? ppm_number(t, &at) : 0,
                       most = begins ? ppm_number(t, &at) : 0;
        const size_t n = (size_t)width * height * 3;
        if (!n || width > SIDE || height > SIDE || most != 255 || at >= t->size ||
            t->size - ++at < n || (out->n && (width != out->width || height != out->height)))
            return base_fail(error, BERYL_BAD_FILE, "ffmpeg's pictures cannot be read");
        memmove(t->data + to, t->data + at, n);
        out->width = width;
        out->height = height;
        out->n++;
        at += n;
        to += n;
    }
    return out->n ? BERYL_OK : base_fail(error, BERYL_BAD_FILE, "a video without pictures");
}

beryl_status video_read(cli *c, const char *path, video *out, beryl_error *error) {
    base_text file, text;
    char filter[200];
    *out = (video){0};
    base_text_init(&file, &c->heap);
    base_text_init(&text, &c->heap);
    base_text_print(&file, "file:%s", path);
    char *const probe[] = {"ffprobe",
                           "-v",
                           "error",
                           "-protocol_whitelist",
                           "file,pipe",
                           "-show_entries",
                           "format=duration",
                           "-of",
                           "default=nw=1:nk=1",
                           file.data,
                           NULL};
    beryl_status status =
        file.failed ? base_no_memory(error) : child_run(c, probe, 4096, &text, error);
    double seconds = 0;
    if (!status && text.size) seconds = strtod(text.data, NULL);
    if (!(seconds > 0 && seconds < 1e6)) seconds = 1; /* not told, as of a pipe's recording */
    const double every = seconds > BERYL_VIDEO_FRAMES ? seconds / BERYL_VIDEO_FRAMES : 1;
    snprintf(filter, sizeof filter,
             "fps=1/%.6f,scale=w='min(%d,iw)':h='min(%d,ih)':force_original_aspect_ratio=decrease",
             every, SIDE, SIDE);
    char *const decode[] = {"ffmpeg",     "-v",   "error",     "-nostdin", "-protocol_whitelist",
                            "file,pipe",  "-i",   file.data,   "-map",     "0:v:0",
                            "-vf",        filter, "-frames:v", "32",       "-f",
                            "image2pipe", "-c:v", "ppm",       "-",        NULL};
    base_text_clear(&text);
    if (!status)
        status =
            child_run(c, decode, (size_t)BERYL_VIDEO_FRAMES * (SIDE * SIDE * 3 + 32), &text, error);
    if (!status) status = split(&text, out, error);
    for (uint32_t i = 0; i < out->n; i++) out->times[i] = i * every;
    if (!status) {
        out->rgb = (uint8_t *)base_text_take(&text, &out->size);
        if (!out->rgb) status = base_no_memory(error);
    }
    base_text_fini(&text);
    base_text_fini(&file);
    return status;
}

void video_fini(cli *c, video *v) {
    base_heap_give(&c->heap, v->rgb, v->rgb ? v->size + 1 : 0);
    *v = (video){0};
}
