/* faults.c - see faults.h. The linker puts __wrap_NAME in the place of NAME (-Wl,--wrap=NAME;
 * the Makefile reads their names from the lines that begin with CALL), and __real_NAME is the
 * function itself. */
#ifdef __linux__
#define _GNU_SOURCE
#endif
#include "faults.h"

#include <stddef.h>

#ifndef __linux__

bool faults_work(void) {
    return false;
}
void faults_begin(const faults_kind *kind, uint64_t n, void *user) {
    (void)kind, (void)n, (void)user;
}
uint64_t faults_end(uint64_t *n_call) {
    if (n_call) *n_call = 0;
    return 0;
}
const char *faults_where(void) {
    return "";
}
void faults_step(void) {}

#else

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define WRAPPED(name) __wrap_##name
#define REAL(name) __real_##name

static struct {
    atomic_bool on;
    const faults_kind *kind;
    uint64_t at;
    void *user;
    atomic_uint_fast64_t n_call, n_hit;
    _Atomic(const char *) where;
} state;

bool faults_work(void) {
    return true;
}

void faults_begin(const faults_kind *kind, uint64_t n, void *user) {
    state.kind = kind;
    state.at = n;
    state.user = user;
    atomic_store(&state.n_call, 0);
    atomic_store(&state.n_hit, 0);
    atomic_store(&state.where, "");
    atomic_store(&state.on, true);
}

uint64_t faults_end(uint64_t *n_call) {
    atomic_store(&state.on, false);
    if (n_call) *n_call = atomic_load(&state.n_call);
    return atomic_load(&state.n_hit);
}

const char *faults_where(void) {
    return atomic_load(&state.where);
}

/* Is this call the one? */
static bool met(unsigned call, const char *name) {
    if (!atomic_load(&state.on) || !(state.kind->calls & call)) return false;
    const uint64_t n = atomic_fetch_add(&state.n_call, 1);
    if (n != state.at && !(state.kind->lasting && n > state.at)) return false;
    if (!atomic_fetch_add(&state.n_hit, 1)) atomic_store(&state.where, name);
    if (!state.kind->instead) return true;
    atomic_store(&state.on, false); /* its own calls do not count */
    state.kind->instead(state.user);
    atomic_store(&state.on, true);
    return true;
}

void faults_step(void) {
    met(FAULTS_STEP, "step");
}

static bool fails(unsigned call, const char *name) {
    const bool hit = met(call, name) && state.kind->error;
    if (hit) errno = state.kind->error;
    return hit;
}

/* The same for what moves bytes: *size becomes less where the call is cut short. */
static bool moves(unsigned call, const char *name, size_t *size) {
    if (!met(call, name)) return false;
    if (state.kind->cut && *size > 1) *size /= 2;
    if (state.kind->error) errno = state.kind->error;
    return state.kind->error != 0;
}

/* Where it fails it gives `bad`. */
#define CALL(name, type, bad, call, parameters, arguments)      \
    type REAL(name) parameters;                                 \
    type WRAPPED(name) parameters;                              \
    type WRAPPED(name) parameters {                             \
        return fails(call, #name) ? bad : REAL(name) arguments; \
    }
/* Bytes: `size` may become less. */
#define CALL_MOVES(name, type, bad, call, parameters, arguments)       \
    type REAL(name) parameters;                                        \
    type WRAPPED(name) parameters;                                     \
    type WRAPPED(name) parameters {                                    \
        return moves(call, #name, &size) ? bad : REAL(name) arguments; \
    }
/* It is done, and then it says that it failed. */
#define CALL_DONE(name, type, bad, call, parameters, arguments) \
    type REAL(name) parameters;                                 \
    type WRAPPED(name) parameters;                              \
    type WRAPPED(name) parameters {                             \
        const bool failed = fails(call, #name);                 \
        const int why = errno;                                  \
        const type result = REAL(name) arguments;               \
        if (failed) errno = why;                                \
        return failed ? bad : result;                           \
    }
/* The mode is there only for a file that is made. */
#define CALL_OPEN(name, parameters, ...)                                                    \
    int REAL(name) parameters;                                                              \
    int WRAPPED(name) parameters;                                                           \
    int WRAPPED(name) parameters {                                                          \
        va_list rest;                                                                       \
        va_start(rest, flags);                                                              \
        const unsigned mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, unsigned) : 0; \
        va_end(rest);                                                                       \
        return fails(FAULTS_OPEN, #name) ? -1 : REAL(name)(__VA_ARGS__, flags, mode);       \
    }

CALL_OPEN(open, (const char *path, int flags, ...), path)
CALL_OPEN(open64, (const char *path, int flags, ...), path)
CALL_OPEN(openat, (int folder, const char *path, int flags, ...), folder, path)
CALL_OPEN(openat64, (int folder, const char *path, int flags, ...), folder, path)
/* Its last argument is a pointer, or a number that lies where a pointer would. */
#define CALL_CONTROL(name)                                                  \
    int REAL(name)(int fd, int what, ...);                                  \
    int WRAPPED(name)(int fd, int what, ...);                               \
    int WRAPPED(name)(int fd, int what, ...) {                              \
        va_list rest;                                                       \
        va_start(rest, what);                                               \
        void *with = va_arg(rest, void *);                                  \
        va_end(rest);                                                       \
        return fails(FAULTS_NAME, #name) ? -1 : REAL(name)(fd, what, with); \
    }
CALL_CONTROL(fcntl)
CALL_CONTROL(fcntl64)
CALL(fopen, FILE *, NULL, FAULTS_OPEN, (const char *path, const char *mode), (path, mode))
CALL(fopen64, FILE *, NULL, FAULTS_OPEN, (const char *path, const char *mode), (path, mode))
CALL(fdopen, FILE *, NULL, FAULTS_STREAM, (int fd, const char *mode), (fd, mode))
CALL(memfd_create, int, -1, FAULTS_OPEN, (const char *name, unsigned flags), (name, flags))
CALL(mkstemp, int, -1, FAULTS_OPEN, (char *path), (path))

CALL_MOVES(read, ssize_t, -1, FAULTS_READ, (int fd, void *to, size_t size), (fd, to, size))
CALL_MOVES(pread, ssize_t, -1, FAULTS_READ, (int fd, void *to, size_t size, off_t at),
           (fd, to, size, at))
CALL_MOVES(pread64, ssize_t, -1, FAULTS_READ, (int fd, void *to, size_t size, off64_t at),
           (fd, to, size, at))
CALL_MOVES(readlink, ssize_t, -1, FAULTS_LOOK, (const char *path, char *to, size_t size),
           (path, to, size))
CALL_MOVES(readlinkat, ssize_t, -1, FAULTS_LOOK,
           (int folder, const char *path, char *to, size_t size), (folder, path, to, size))
CALL_MOVES(write, ssize_t, -1, FAULTS_WRITE, (int fd, const void *from, size_t size),
           (fd, from, size))
CALL_MOVES(pwrite, ssize_t, -1, FAULTS_WRITE, (int fd, const void *from, size_t size, off_t at),
           (fd, from, size, at))
CALL_MOVES(pwrite64, ssize_t, -1, FAULTS_WRITE, (int fd, const void *from, size_t size, off64_t at),
           (fd, from, size, at))

CALL(fread, size_t, 0, FAULTS_STREAM, (void *to, size_t size, size_t n, FILE *file),
     (to, size, n, file))
CALL(fgets, char *, NULL, FAULTS_STREAM, (char *to, int size, FILE *file), (to, size, file))
CALL(fwrite, size_t, 0, FAULTS_STREAM, (const void *from, size_t size, size_t n, FILE *file),
     (from, size, n, file))
CALL(fputc, int, EOF, FAULTS_STREAM, (int c, FILE *file), (c, file))

CALL(fsync, int, -1, FAULTS_SYNC, (int fd), (fd))
CALL(fdatasync, int, -1, FAULTS_SYNC, (int fd), (fd))
CALL_DONE(close, int, -1, FAULTS_CLOSE, (int fd), (fd))
CALL_DONE(fclose, int, EOF, FAULTS_CLOSE, (FILE * file), (file))

CALL(rename, int, -1, FAULTS_NAME, (const char *from, const char *to), (from, to))
CALL(renameat, int, -1, FAULTS_NAME, (int a, const char *from, int b, const char *to),
     (a, from, b, to))
CALL(link, int, -1, FAULTS_NAME, (const char *from, const char *to), (from, to))
CALL(linkat, int, -1, FAULTS_NAME, (int a, const char *from, int b, const char *to, int flags),
     (a, from, b, to, flags))
CALL(mkdir, int, -1, FAULTS_NAME, (const char *path, mode_t mode), (path, mode))
CALL(mkdirat, int, -1, FAULTS_NAME, (int folder, const char *path, mode_t mode),
     (folder, path, mode))
CALL(mkdtemp, char *, NULL, FAULTS_NAME, (char *path), (path))
CALL(fchmod, int, -1, FAULTS_NAME, (int fd, mode_t mode), (fd, mode))
CALL(ftruncate, int, -1, FAULTS_NAME, (int fd, off_t size), (fd, size))
CALL(ftruncate64, int, -1, FAULTS_NAME, (int fd, off64_t size), (fd, size))
CALL(flock, int, -1, FAULTS_NAME, (int fd, int how), (fd, how))

CALL(stat, int, -1, FAULTS_LOOK, (const char *path, struct stat *about), (path, about))
CALL(stat64, int, -1, FAULTS_LOOK, (const char *path, struct stat64 *about), (path, about))
CALL(lstat, int, -1, FAULTS_LOOK, (const char *path, struct stat *about), (path, about))
CALL(lstat64, int, -1, FAULTS_LOOK, (const char *path, struct stat64 *about), (path, about))
CALL(fstat, int, -1, FAULTS_LOOK, (int fd, struct stat *about), (fd, about))
CALL(fstat64, int, -1, FAULTS_LOOK, (int fd, struct stat64 *about), (fd, about))
CALL(fstatat, int, -1, FAULTS_LOOK, (int folder, const char *path, struct stat *about, int flags),
     (folder, path, about, flags))
CALL(fstatat64, int, -1, FAULTS_LOOK,
     (int folder, const char *path, struct stat64 *about, int flags), (folder, path, about, flags))
CALL(access, int, -1, FAULTS_LOOK, (const char *path, int how), (path, how))
CALL(faccessat, int, -1, FAULTS_LOOK, (int folder, const char *path, int how, int flags),
     (folder, path, how, flags))
CALL(opendir, DIR *, NULL, FAULTS_FOLDER, (const char *path), (path))
CALL(fdopendir, DIR *, NULL, FAULTS_FOLDER, (int fd), (fd))
CALL(readdir, struct dirent *, NULL, FAULTS_FOLDER, (DIR * folder), (folder))
CALL(readdir64, struct dirent64 *, NULL, FAULTS_FOLDER, (DIR * folder), (folder))

CALL(mmap, void *, MAP_FAILED, FAULTS_MAP,
     (void *at, size_t size, int access, int flags, int fd, off_t from),
     (at, size, access, flags, fd, from))
CALL(mmap64, void *, MAP_FAILED, FAULTS_MAP,
     (void *at, size_t size, int access, int flags, int fd, off64_t from),
     (at, size, access, flags, fd, from))
CALL(dlopen, void *, NULL, FAULTS_LOAD, (const char *path, int how), (path, how))
CALL(posix_spawn, int, state.kind->error, FAULTS_START,
     (pid_t * pid, const char *path, const posix_spawn_file_actions_t *files,
      const posix_spawnattr_t *how, char *const *arguments, char *const *environment),
     (pid, path, files, how, arguments, environment))

#endif
