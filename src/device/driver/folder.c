/* folder.c - see folder.h. Refuses whatever another user could change, and says which folder it is.
 */
#define _GNU_SOURCE /* O_PATH */
#define _FILE_OFFSET_BITS 64
#include "device/driver/folder.h"
#include "base/error.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_ROOM = 4096, LINKS_MAX = 16 };

#ifdef O_PATH /* a folder may be passed through without being readable */
enum { PASS = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };
#else
enum { PASS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };
#endif

static bool is_trusted(const struct stat *about) {
    return about->st_uid == 0 || about->st_uid == geteuid();
}

static bool others_write(const struct stat *about) {
    return about->st_mode & (S_IWGRP | S_IWOTH);
}

int driver_openat(int folder, const char *name, int flags, unsigned mode) {
    int file;
    do file = openat(folder, name, flags | O_CLOEXEC, mode);
    while (file < 0 && errno == EINTR);
    return file;
}

/* ---- the way to a folder --------------------------------------------------------------------- */

typedef struct walk {
    int at;               /* the folder reached; -1: failed */
    bool make;            /* what is missing */
    int n_link;           /* links followed so far */
    char path[PATH_ROOM]; /* of `at`, for messages */
    char rest[PATH_ROOM]; /* what is still to be gone */
    beryl_error *error;
} walk;

static void fail(walk *w, beryl_status code, const char *why) {
    base_fail(w->error, code, "%.300s %s", w->path, why);
    if (w->at >= 0) close(w->at);
    w->at = -1;
}

static void fail_errno(walk *w, const char *what) {
    const int cause = errno;
    base_fail(w->error, cause == ENOENT || cause == ENOTDIR ? BERYL_NOT_FOUND : BERYL_IO,
              "%.300s %s: %s", w->path, what, strerror(cause));
    if (w->at >= 0) close(w->at);
    w->at = -1;
}

/* May the walk stand in this folder? last: may files be taken from it? */
static void check(walk *w, bool last) {
    struct stat about;
    if (fstat(w->at, &about)) fail_errno(w, "cannot be looked at");
    else if (!is_trusted(&about)) fail(w, BERYL_BAD_FILE, "belongs to another user");
    else if (others_write(&about) && (last || !(about.st_mode & S_ISVTX)))
        fail(w, BERYL_BAD_FILE, "can be written by others (chmod go-w forbids it)");
}

static void enter(walk *w, const char *name) {
    const int next = driver_openat(w->at, name, PASS, 0);
    if (next < 0) {
        fail_errno(w, "cannot be opened");
        return;
    }
    close(w->at);
    w->at = next;
}

static void begin(walk *w) {
    if (w->at >= 0) close(w->at);
    snprintf(w->path, sizeof w->path, "/");
    w->at = driver_openat(AT_FDCWD, "/", PASS, 0);
    if (w->at < 0) fail_errno(w, "cannot be opened");
    else check(w, false);
}

static bool append(char *path, const char *name) {
    const size_t size = strlen(path), more = strlen(name);
    const bool slash = size && path[size - 1] != '/';
    if (size + slash + more >= PATH_ROOM) return false;
    if (slash) path[size] = '/';
    memcpy(path + size + slash, name, more + 1);
    return true;
}

/* Puts what a link stands for before the rest of the way. */
static void follow(walk *w, const char *name, const struct stat *about) {
    char target[PATH_ROOM];
    const ssize_t n = readlinkat(w->at, name, target, sizeof target - 1);
    target[n > 0 ? n : 0] = 0;
    const char *why = n <= 0                     ? "cannot be followed"
                      : !is_trusted(about)       ? "is another user's link"
                      : ++w->n_link > LINKS_MAX  ? "leads through too many links"
                      : !append(target, w->rest) ? "leads to too long a path"
                                                 : NULL;
    if (why) {
        append(w->path, name);
        fail(w, BERYL_BAD_FILE, why);
        return;
    }
    memcpy(w->rest, target, strlen(target) + 1);
    if (target[0] == '/') begin(w);
}

/* Into the entry `name`, or where it leads. */
static void step(walk *w, const char *name) {
    struct stat about;
    bool there = !fstatat(w->at, name, &about, AT_SYMLINK_NOFOLLOW);
    if (there && S_ISLNK(about.st_mode)) {
        follow(w, name, &about);
        return;
    }
    const int folder = w->at;
    if (!append(w->path, name)) {
        fail(w, BERYL_BAD_FILE, "has too long a path");
        return;
    }
    if (!there && errno == ENOENT && w->make && mkdirat(folder, name, 0700) && errno != EEXIST) {
        fail_errno(w, "cannot be made");
        return;
    }
    enter(w, name);
}

int driver_folder_open(const char *path, bool make, beryl_error *error) {
    walk w = {.at = -1, .make = make, .error = error};
    if (*path != '/' || strlen(path) >= sizeof w.rest) {
        base_fail(error, BERYL_BAD_FILE, "%.300s is no absolute path, or too long", path);
        return -1;
    }
    snprintf(w.rest, sizeof w.rest, "%s", path);
    begin(&w);
    while (w.at >= 0) {
        char name[NAME_MAX + 1];
        const char *from = w.rest + strspn(w.rest, "/");
        const size_t size = strcspn(from, "/");
        if (!size) break;
        if (size >= sizeof name) {
            fail(&w, BERYL_BAD_FILE, "has too long a name in it");
            break;
        }
        memcpy(name, from, size);
        name[size] = 0;
        memmove(w.rest, from + size, strlen(from + size) + 1);
        if (!strcmp(name, ".")) continue;
        step(&w, name);
        if (w.at >= 0) check(&w, false);
    }
    if (w.at >= 0) check(&w, true);
    if (w.at < 0) return -1;
    const int folder = driver_openat(w.at, ".", O_RDONLY | O_DIRECTORY, 0); /* to be listed too */
    if (folder < 0) fail_errno(&w, "cannot be opened");
    else close(w.at);
    return folder;
}

void driver_folder_each(int folder, void (*each)(void *user, int folder, const char *name),
                        void *user) {
    const int own = driver_openat(folder, ".", O_RDONLY | O_DIRECTORY, 0);
    DIR *list = own >= 0 ? fdopendir(own) : NULL;
    if (!list && own >= 0) close(own);
    for (struct dirent *entry; list && (entry = readdir(list));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            each(user, folder, entry->d_name);
    if (list) closedir(list);
}

/* ---- files ----------------------------------------------------------------------------------- */

int driver_file_open(int folder, const char *name, uint64_t *size, beryl_error *error) {
    struct stat about;
    const int file = driver_openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
    if (file < 0 && errno == ENOENT) {
        base_fail(error, BERYL_NOT_FOUND, "there is no %.200s", name);
        return -1;
    }
    const bool seen = file >= 0 && !fstat(file, &about);
    if (!seen && errno != ELOOP && errno != ENXIO && errno != EMLINK) {
        base_fail(error, BERYL_IO, "%.200s is not used: %s", name, strerror(errno));
        if (file >= 0) close(file);
        return -1;
    }
    if (seen && S_ISREG(about.st_mode) && is_trusted(&about) && !others_write(&about)) {
        *size = (uint64_t)about.st_size;
        return file;
    }
    if (file >= 0) close(file);
    base_fail(error, BERYL_BAD_FILE,
              "%.200s is not used: it has to be a file that nobody else can write", name);
    return -1;
}

bool driver_file_read(int file, void *to, uint64_t offset, size_t size) {
    for (size_t done = 0; done < size;) {
        const ssize_t n = pread(file, (char *)to + done, size - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

int driver_file_write(int file, const void *data, size_t size) {
    struct rlimit limit;
    const off_t at = lseek(file, 0, SEEK_CUR);
    if (at >= 0 && !getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur != RLIM_INFINITY &&
        (uint64_t)at + size > limit.rlim_cur)
        return EFBIG;
    for (size_t done = 0; done < size;) {
        const ssize_t n = write(file, (const char *)data + done, size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno;
        done += (size_t)n;
    }
    return 0;
}

int driver_file_make(int folder, const char *name, const void *const *parts, const size_t *sizes,
                     int n_part) {
    const int file = driver_openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (file < 0) return errno;
    int cause = 0;
    for (int i = 0; i < n_part && !cause; i++) cause = driver_file_write(file, parts[i], sizes[i]);
    if (close(file) && !cause) cause = errno;
    if (cause) unlinkat(folder, name, 0);
    return cause;
}
