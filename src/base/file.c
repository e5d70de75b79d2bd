/* file.c - files, sources, folders, the environment.
 *
 * One of the three places that may call the system (POSIX files). wasm has no files: there
 * JavaScript keeps a few small texts by name, and all else but the memory source is refused.
 * Names of files come from users, so each refusal names the file. */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#include "base/file.h"
#include "base/error.h"

#include <string.h>

bool base_range_inside(uint64_t offset, uint64_t size, uint64_t total) {
    return offset <= total && size <= total - offset;
}

/* ---- memory as a source: user is the first byte */

static beryl_status memory_read(void *user, uint64_t offset, void *to, size_t size) {
    if (size) memcpy(to, (const char *)user + offset, size);
    return BERYL_OK;
}

beryl_source base_source_of_memory(const void *data, size_t size) {
    /* Only the function above sees `user`, and it does not write. */
    return (beryl_source){.size = size, .user = (void *)(uintptr_t)data, .read = memory_read};
}

static beryl_status fail_read(const char *name, beryl_status status, uint64_t at,
                              beryl_error *error) {
    return base_fail_at(error, status, at, "reading %.300s failed: %s", name,
                        beryl_status_text(status));
}

#ifdef __wasm__

static beryl_status refuse(const char *path, beryl_error *error) {
    return base_fail(error, BERYL_UNSUPPORTED, "%s: this build has no files; give a source instead",
                     path);
}

beryl_status base_source_open_file(base_heap *heap, const char *path, beryl_source *source,
                                   beryl_error *error) {
    (void)heap;
    *source = (beryl_source){0};
    return refuse(path, error);
}

bool base_source_is_file(const beryl_source *source) {
    (void)source;
    return false;
}

void base_source_expect(const beryl_source *source, uint64_t offset, uint64_t size) {
    (void)source, (void)offset, (void)size;
}

beryl_status base_source_fail(const beryl_source *source, const char *name, beryl_status status,
                              uint64_t at, beryl_error *error) {
    (void)source;
    return fail_read(name, status, at, error);
}

/* Small texts that JavaScript keeps from visit to visit, by name: what lies in the cache folder
 * elsewhere. */
__attribute__((import_module("beryl"), import_name("kept_read"))) uint32_t
/* its size; UINT32_MAX: none */
base_kept_read(const char *path, uint32_t path_size, char *to, uint32_t room);
__attribute__((import_module("beryl"), import_name("kept_write"))) uint32_t
/* 1: kept */
base_kept_write(const char *path, uint32_t path_size, const void *data, uint32_t size);

beryl_status base_file_read(base_heap *heap, const char *path, size_t limit, char **data,
                            size_t *size, beryl_error *error) {
    const uint32_t path_size = (uint32_t)strlen(path), n = base_kept_read(path, path_size, NULL, 0);
    *data = NULL;
    *size = 0;
    if (n == UINT32_MAX) return base_fail(error, BERYL_NOT_FOUND, "%s is not kept here", path);
    if (n > limit) return base_fail(error, BERYL_BAD_INPUT, "%s: longer than the limit", path);
    *data = base_heap_take(heap, (size_t)n + 1);
    if (!*data) return base_fail(error, BERYL_NO_MEMORY, "%s: out of memory", path);
    base_kept_read(path, path_size, *data, n);
    *size = n;
    return BERYL_OK;
}

beryl_status base_file_write(const char *path, const void *data, size_t size, beryl_error *error) {
    if (size <= UINT32_MAX &&
        base_kept_write(path, (uint32_t)strlen(path), data, (uint32_t)size) == 1)
        return BERYL_OK;
    return refuse(path, error);
}

beryl_status base_sink_open_file(base_heap *heap, const beryl_log *log, const char *path,
                                 beryl_sink *sink, beryl_error *error) {
    (void)heap, (void)log;
    *sink = (beryl_sink){0};
    return refuse(path, error);
}

bool base_file_exists(const char *path) {
    return base_kept_read(path, (uint32_t)strlen(path), NULL, 0) != UINT32_MAX;
}

beryl_status base_folder_make(const char *path, beryl_error *error) { /* names need none */
    (void)path, (void)error;
    return BERYL_OK;
}

beryl_status base_folder_list(base_heap *heap, const char *path,
                              void (*each)(void *user, const char *name, bool is_folder),
                              void *user, beryl_error *error) {
    (void)heap, (void)each, (void)user;
    return refuse(path, error);
}

const char *base_environment(const char *name) {
    return strcmp(name, "XDG_CACHE_HOME") ? NULL : "/cache";
}

bool base_program_folder(char *path, size_t size) {
    (void)path, (void)size;
    return false;
}

#else

#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_ROOM = 4096 };

typedef struct cause_text {
    char text[128];
} cause_text;

static cause_text text_of(int cause) {
    cause_text t;
    if (strerror_r(cause, t.text, sizeof t.text))
        snprintf(t.text, sizeof t.text, "error %d", cause);
    return t;
}

static beryl_status fail_errno(beryl_error *error, const char *path, const char *what) {
    int cause = errno;
    beryl_status status = cause == ENOENT || cause == ENOTDIR ? BERYL_NOT_FOUND
                          : cause == ENOMEM                   ? BERYL_NO_MEMORY
                                                              : BERYL_IO;
    return base_fail(error, status, "%s: %s: %s", path, what, text_of(cause).text);
}

static beryl_status fail_memory(beryl_error *error, const char *path) {
    return base_fail(error, BERYL_NO_MEMORY, "%s: out of memory", path);
}

static int open_retry(const char *path, int flags, mode_t mode) {
    int fd;
    do fd = open(path, flags | O_CLOEXEC, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* Reads up to size bytes; fewer only at the end of the file. offset < 0: from where the file
 * stands. -1: errno. */
static ssize_t read_fully(int fd, char *to, size_t size, off_t offset) {
    size_t done = 0;
    while (done < size) {
        size_t piece = size - done < 1u << 30 ? size - done : 1u << 30;
        ssize_t n = offset < 0 ? read(fd, to + done, piece)
                               : pread(fd, to + done, piece, offset + (off_t)done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        if (n == 0) break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

/* ---- a file as a source */

typedef struct file_state { /* by which a change is noticed */
    uint64_t size;
    int64_t seconds, nanoseconds; /* of the last change */
} file_state;

typedef struct source_file {
    base_heap *heap; /* borrowed */
    file_state opened;
    int fd;           /* owned */
    atomic_int cause; /* errno of a read that failed; 0: none has */
    size_t room;      /* bytes of all this */
    char path[];      /* NUL-terminated */
} source_file;

static file_state state_of(const struct stat *about) {
    file_state state = {.size = (uint64_t)about->st_size, .seconds = (int64_t)about->st_mtime};
#ifdef __APPLE__
    state.nanoseconds = (int64_t)about->st_mtimensec;
#else
    state.nanoseconds = (int64_t)about->st_mtim.tv_nsec;
#endif
    return state;
}

static bool state_equal(const file_state *a, const file_state *b) {
    return a->size == b->size && a->seconds == b->seconds && a->nanoseconds == b->nanoseconds;
}

/* The state is looked at after the bytes: a write changes the time before it changes them. */
static beryl_status file_read(void *user, uint64_t offset, void *to, size_t size) {
    source_file *file = user;
    struct stat about;
    if (!base_range_inside(offset, size, file->opened.size)) return BERYL_MISUSE;
    ssize_t n = read_fully(file->fd, to, size, (off_t)offset);
    if (n < 0 || fstat(file->fd, &about)) {
        atomic_store(&file->cause, errno);
        return BERYL_IO;
    }
    const file_state now = state_of(&about);
    return (size_t)n == size && state_equal(&now, &file->opened) ? BERYL_OK : BERYL_IO;
}

static void file_close(void *user) {
    source_file *file = user;
    close(file->fd);
    base_heap_give(file->heap, file, file->room);
}

bool base_source_is_file(const beryl_source *source) {
    return source->read == file_read;
}

void base_source_expect(const beryl_source *source, uint64_t offset, uint64_t size) {
#ifdef POSIX_FADV_WILLNEED
    if (base_source_is_file(source))
        posix_fadvise(((source_file *)source->user)->fd, (off_t)offset, (off_t)size,
                      POSIX_FADV_WILLNEED);
#else
    (void)source, (void)offset, (void)size;
#endif
}

beryl_status base_source_fail(const beryl_source *source, const char *name, beryl_status status,
                              uint64_t at, beryl_error *error) {
    if (!base_source_is_file(source) || status != BERYL_IO)
        return fail_read(name, status, at, error);
    source_file *file = source->user;
    struct stat about;
    if (!fstat(file->fd, &about)) {
        const file_state now = state_of(&about);
        if (now.size != file->opened.size)
            return base_fail_at(
                error, status, at,
                "%.300s was %s while in use: it had %llu bytes and has %llu now; "
                "open it again once it is whole",
                file->path, now.size < file->opened.size ? "cut short" : "written to",
                (unsigned long long)file->opened.size, (unsigned long long)now.size);
        if (!state_equal(&now, &file->opened))
            return base_fail_at(error, status, at,
                                "%.300s was written to while in use: the time of its last change "
                                "is another; open it again once it is whole",
                                file->path);
    }
    const int cause = atomic_load(&file->cause);
    if (!cause) return fail_read(file->path, status, at, error);
    return base_fail_at(error, status, at, "%.300s: cannot be read: %s", file->path,
                        text_of(cause).text);
}

/* Opens a regular file for reading and gives its state, or fails with everything closed. */
static beryl_status open_regular(const char *path, int *fd, file_state *state, beryl_error *error) {
    /* Without waiting, so that the name of a pipe is refused and does not hang. */
    *fd = open_retry(path, O_RDONLY | O_NONBLOCK, 0);
    if (*fd < 0) return fail_errno(error, path, "cannot be opened");
    struct stat about;
    beryl_status status = BERYL_OK;
    if (fstat(*fd, &about)) status = fail_errno(error, path, "cannot be read");
    else if (S_ISDIR(about.st_mode))
        status = base_fail(error, BERYL_BAD_INPUT, "%s is a folder, not a file", path);
    else if (!S_ISREG(about.st_mode))
        status = base_fail(error, BERYL_BAD_INPUT, "%s is not a regular file", path);
    else *state = state_of(&about);
    if (status) close(*fd);
    return status;
}

beryl_status base_source_open_file(base_heap *heap, const char *path, beryl_source *source,
                                   beryl_error *error) {
    *source = (beryl_source){0};
    int fd;
    file_state state = {0};
    beryl_status status = open_regular(path, &fd, &state, error);
    if (status) return status;
    const size_t room = sizeof(source_file) + strlen(path) + 1;
    source_file *file = base_heap_take(heap, room);
    if (!file) {
        close(fd);
        return fail_memory(error, path);
    }
    file->heap = heap;
    file->opened = state;
    file->fd = fd;
    file->room = room;
    memcpy(file->path, path, strlen(path) + 1);
    *source =
        (beryl_source){.size = state.size, .user = file, .read = file_read, .close = file_close};
    return BERYL_OK;
}

/* ---- whole files */

beryl_status base_file_read(base_heap *heap, const char *path, size_t limit, char **data,
                            size_t *size, beryl_error *error) {
    *data = NULL;
    *size = 0;
    int fd;
    file_state told = {0}; /* not relied on: system files tell a size of 0 */
    beryl_status status = open_regular(path, &fd, &told, error);
    if (status) return status;
    base_text text;
    base_text_init(&text, heap);
    for (;;) {
        char piece[16384]; /* [bytes] */
        ssize_t n = read_fully(fd, piece, sizeof piece, -1);
        if (n < 0) {
            status = fail_errno(error, path, "cannot be read");
            goto done;
        }
        if ((size_t)n > limit - text.size) {
            status = base_fail(error, BERYL_BAD_INPUT, "%s: longer than the limit of %zu bytes",
                               path, limit);
            goto done;
        }
        base_text_add(&text, piece, (size_t)n);
        if (text.failed || n == 0) break;
    }
    *data = base_text_take(&text, size);
    if (!*data) status = fail_memory(error, path);
done:
    base_text_fini(&text);
    close(fd);
    return status;
}

static bool write_fully(int fd, const char *from, size_t size) {
    while (size) {
        ssize_t n = write(fd, from, size < 1u << 30 ? size : 1u << 30);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return false;
        from += n;
        size -= (size_t)n;
    }
    return true;
}

/* A file being written. */
typedef struct writer {
    int fd;
    bool in_place;          /* no file of its own beside: /dev/stdout must not be replaced */
    char path[PATH_ROOM];   /* NUL-terminated */
    char beside[PATH_ROOM]; /* the same; empty where in_place */
} writer;

static int sync_retry(int fd) {
    int result;
    do result = fsync(fd);
    while (result && errno == EINTR);
    return result;
}

static beryl_status writer_open(writer *w, const char *path, beryl_error *error) {
    struct stat about;
    size_t size = strlen(path);
    if (size >= sizeof w->path)
        return base_fail(error, BERYL_BAD_INPUT, "%.100s...: the path is too long", path);
    memcpy(w->path, path, size + 1);
    w->fd = -1;
    w->beside[0] = 0;
    w->in_place = !stat(path, &about) && !S_ISREG(about.st_mode);
    if (w->in_place) {
        /* Without waiting: a pipe that nobody reads is refused and does not hang. */
        w->fd = open_retry(path, O_WRONLY | O_NONBLOCK, 0);
        if (w->fd >= 0) fcntl(w->fd, F_SETFL, fcntl(w->fd, F_GETFL) & ~O_NONBLOCK);
    } else {
        /* A name that nobody else takes: O_EXCL decides, so another try is all that a clash costs.
         */
        for (unsigned int try = 0; try < 100; try++) {
            int length =
                snprintf(w->beside, sizeof w->beside, "%s.%ld-%u.part", path, (long)getpid(), try);
            if (length < 0 || (size_t)length >= sizeof w->beside)
                return base_fail(error, BERYL_BAD_INPUT, "%.100s...: the path is too long", path);
            w->fd = open_retry(w->beside, O_WRONLY | O_CREAT | O_EXCL, 0666);
            if (w->fd >= 0 || errno != EEXIST) break;
        }
    }
    return w->fd < 0 ? fail_errno(error, path, "cannot be written") : BERYL_OK;
}

static beryl_status writer_add(writer *w, const void *data, size_t size, beryl_error *error) {
    return write_fully(w->fd, data, size) ? BERYL_OK
                                          : fail_errno(error, w->path, "cannot be written");
}

/* keep: everything was added, so the file takes its name; else it goes. */
static beryl_status writer_close(writer *w, bool keep, beryl_error *error) {
    beryl_status status = BERYL_OK;
    /* Without this a power cut after the rename may leave an empty file under the final name. */
    if (keep && !w->in_place && sync_retry(w->fd))
        status = fail_errno(error, w->path, "cannot be written");
    if (close(w->fd) && !status) status = fail_errno(error, w->path, "cannot be written");
    if (keep && !status && !w->in_place && rename(w->beside, w->path))
        status = fail_errno(error, w->path, "cannot be replaced");
    if ((status || !keep) && !w->in_place) unlink(w->beside);
    return status;
}

beryl_status base_file_write(const char *path, const void *data, size_t size, beryl_error *error) {
    writer w;
    beryl_status status = writer_open(&w, path, error);
    if (status) return status;
    status = writer_add(&w, data, size, error);
    beryl_status closed = writer_close(&w, !status, status ? NULL : error);
    return status ? status : closed;
}

/* ---- a file as a sink */

typedef struct file_sink {
    base_heap *heap;      /* borrowed */
    const beryl_log *log; /* borrowed */
    writer writer;
} file_sink;

static beryl_status file_sink_write(void *user, const void *data, size_t size) {
    file_sink *sink = user;
    beryl_error error = {0};
    beryl_status status = writer_add(&sink->writer, data, size, &error);
    if (status) base_log(sink->log, BERYL_LOG_ERROR, "%s", error.message);
    return status;
}

static beryl_status file_sink_close(void *user, bool whole) {
    file_sink *sink = user;
    beryl_error error = {0};
    beryl_status status = writer_close(&sink->writer, whole, &error);
    if (status) base_log(sink->log, BERYL_LOG_ERROR, "%s", error.message);
    base_heap_give(sink->heap, sink, sizeof *sink);
    return status;
}

beryl_status base_sink_open_file(base_heap *heap, const beryl_log *log, const char *path,
                                 beryl_sink *sink, beryl_error *error) {
    *sink = (beryl_sink){0};
    file_sink *file = base_heap_take(heap, sizeof *file);
    if (!file) return fail_memory(error, path);
    file->heap = heap;
    file->log = log;
    beryl_status status = writer_open(&file->writer, path, error);
    if (status) {
        base_heap_give(heap, file, sizeof *file);
        return status;
    }
    *sink = (beryl_sink){.user = file, .write = file_sink_write, .close = file_sink_close};
    return BERYL_OK;
}

bool base_file_exists(const char *path) {
    struct stat about;
    return !stat(path, &about);
}

/* ---- folders */

static bool is_folder(const char *path) {
    struct stat about;
    return !stat(path, &about) && S_ISDIR(about.st_mode);
}

beryl_status base_folder_make(const char *path, beryl_error *error) {
    char part[PATH_ROOM]; /* NUL-terminated: path up to one of its slashes */
    size_t size = strlen(path);
    if (!size)
        return base_fail(error, BERYL_BAD_INPUT, "a folder with an empty name cannot be made");
    if (size >= sizeof part)
        return base_fail(error, BERYL_BAD_INPUT, "%.100s...: the path is too long", path);
    for (size_t i = 1; i <= size; i++) {
        if (i < size && path[i] != '/') continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (!mkdir(part, 0700)) continue;
        int cause = errno;
        if (is_folder(part)) continue;
        errno = cause;
        if (errno == EEXIST)
            return base_fail(error, BERYL_IO, "%s is in the way: not a folder", part);
        return fail_errno(error, part, "the folder cannot be made");
    }
    return BERYL_OK;
}

typedef struct folder_entry {
    char *name; /* NUL-terminated, in the arena of the listing */
    bool is_folder;
} folder_entry;

static int entry_compare(const void *a, const void *b) {
    return strcmp(((const folder_entry *)a)->name, ((const folder_entry *)b)->name);
}

beryl_status base_folder_list(base_heap *heap, const char *path,
                              void (*each)(void *user, const char *name, bool is_folder),
                              void *user, beryl_error *error) {
    DIR *folder = opendir(path);
    if (!folder) return fail_errno(error, path, "the folder cannot be opened");
    beryl_status status = BERYL_OK;
    base_arena arena;
    base_arena_init(&arena, heap);
    base_vec(folder_entry) entries = {0};
    for (;;) {
        errno = 0;
        struct dirent *found = readdir(folder);
        if (!found) break;
        if (!strcmp(found->d_name, ".") || !strcmp(found->d_name, "..")) continue;
        struct stat about;
        bool folder_inside =
            !fstatat(dirfd(folder), found->d_name, &about, 0) && S_ISDIR(about.st_mode);
        folder_entry *entry = base_vec_add(heap, &entries);
        char *name = base_arena_text(&arena, found->d_name, strlen(found->d_name));
        if (!entry || !name) {
            status = fail_memory(error, path);
            goto done;
        }
        *entry = (folder_entry){name, folder_inside};
    }
    if (errno) {
        status = fail_errno(error, path, "the folder cannot be read");
        goto done;
    }
    if (entries.count) qsort(entries.data, entries.count, sizeof *entries.data, entry_compare);
    for (size_t i = 0; i < entries.count; i++)
        each(user, entries.data[i].name, entries.data[i].is_folder);
done:
    base_vec_fini(heap, &entries);
    base_arena_fini(&arena);
    closedir(folder);
    return status;
}

const char *base_environment(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

bool base_program_folder(char *path, size_t size) {
    if (!size) return false;
#ifdef __APPLE__
    uint32_t room = size < UINT32_MAX ? (uint32_t)size : UINT32_MAX;
    if (_NSGetExecutablePath(path, &room)) return false;
#else
    ssize_t n = readlink("/proc/self/exe", path, size - 1);
    if (n <= 0 || (size_t)n >= size - 1) return false; /* what fills all the room may be cut */
    path[n] = 0;
#endif
    char *slash = strrchr(path, '/');
    if (!slash) return false;
    *slash = 0;
    return true;
}

#endif
