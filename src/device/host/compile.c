/* compile.c - the C compiler and programs.
 *
 * A program's text is compiled to a shared library by the system's own compiler (cc, gcc or clang,
 * the first that PATH has; no shell) and loaded. Its key is a hash of the text and of everything
 * else that the result depends on: compiler, options, processor. Jobs, their workers and the cache
 * are those of device/driver; closing the device ends the compilers that run.
 *
 * Refuses relative folders of PATH: what lies in the current folder is not a compiler.
 */
#define _GNU_SOURCE /* P_PID, environ, posix_spawn_file_actions_addfchdir_np */
#include "device/host/host.h"
#include "base/error.h"
#include "base/file.h"
#include "device/driver/folder.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { TOLD_MAX = 64 << 10, LIBRARY_MAX = 64 << 20, NAME_ROOM = 40, ENTRY_MAX = 200 };

/* As the text's own file is called in the compiler's messages. */
#define TEXT_NAME "kernel.c"
static const char first_line[] = "#line 1 \"" TEXT_NAME "\"\n";

/* Texts come optimised and as vectors: what a compiler's higher levels look for costs them twice
 * the time and finds nothing. No fused multiply-add but where the text says so: the same numbers as
 * everywhere. Mathematics without errno and without traps is the same numbers too, and can be
 * vectorised. */
static const char *const options[] = {"-x", "c", "-std=gnu11", "-O1", "-ftree-vectorize",
                                      "-fpeel-loops",
#if defined __x86_64__ || defined __i386__
                                      "-march=native",
                                      /* as the texts' own vectors: what is stored by halves is
                                       * slow to load whole */
                                      "-mprefer-vector-width=512",
#else
                                      "-mcpu=native",
#endif
                                      "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
                                      "-shared", "-fPIC", "-pipe", "-w"};
enum { N_OPTION = sizeof options / sizeof *options };

/* ---- the compiler ---------------------------------------------------------------------------- */

static uint64_t mix_text(uint64_t hash, const char *text) {
    return base_hash(text, strlen(text) + 1, hash);
}

static uint64_t identity_of(const char *path, const struct stat *about) {
    const int64_t facts[] = {(int64_t)about->st_size, (int64_t)about->st_mtime,
                             (int64_t)about->st_ino};
    uint64_t hash = mix_text(base_hash(facts, sizeof facts, 1), path);
    for (int i = 0; i < N_OPTION; i++) hash = mix_text(hash, options[i]);
    /* -march=native: a home that two machines share must not share kernels */
    char text[8192];
    FILE *file = fopen("/proc/cpuinfo", "re");
    if (file) {
        while (fgets(text, sizeof text, file)) {
            if (*text == '\n') break; /* the first processor says it */
            if (!strncmp(text, "model", 5) || !strncmp(text, "flags", 5) ||
                !strncmp(text, "Features", 8) || !strncmp(text, "CPU", 3) ||
                !strncmp(text, "vendor", 6) || !strncmp(text, "stepping", 8))
                hash = mix_text(hash, text);
        }
        fclose(file);
    }
    return hash;
}

static bool find_in(const char *folder, size_t size, const char *name, host_compiler *compiler) {
    struct stat about;
    const int n = snprintf(compiler->path, sizeof compiler->path, "%.*s/%s",
                           size > 1024 ? 1024 : (int)size, folder, name);
    if (n < 0 || (size_t)n >= sizeof compiler->path || size > 1024) return false;
    if (stat(compiler->path, &about) || !S_ISREG(about.st_mode) || access(compiler->path, X_OK))
        return false;
    compiler->identity = identity_of(compiler->path, &about);
    return true;
}

beryl_status host_compiler_find(host_compiler *compiler, beryl_error *error) {
    static const char *const names[] = {"cc", "gcc", "clang"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (const char *at = base_environment("PATH"); at && *at;) {
            const size_t size = strcspn(at, ":");
            if (*at == '/' && find_in(at, size, names[i], compiler)) return BERYL_OK;
            at += size + (at[size] != 0);
        }
    return base_fail(error, BERYL_NO_DEVICE,
                     "no C compiler was found: PATH has neither cc nor gcc nor clang (apt install "
                     "gcc libc6-dev, or the like)");
}

static driver_cache_key key_of(const host *d, const driver_job *job) {
    driver_cache_key key = {{0}};
    driver_cache_key_add(&key, &d->cc.identity, sizeof d->cc.identity);
    driver_cache_key_add(&key, job->entry, job->entry_size);
    driver_cache_key_add(&key, job->source, job->source_size);
    return key;
}

/* ---- running it ------------------------------------------------------------------------------ */

/* Waits for the end before taking the pid, so that it is nobody else's while others read it. */
static bool wait_for(host *d, pid_t *running) {
    const pid_t pid = *running;
    siginfo_t info;
    int result, status = 0;
    do result = waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
    while (result < 0 && errno == EINTR);
    base_lock_enter(d->compile_lock);
    *running = 0;
    base_lock_leave(d->compile_lock);
    do result = waitpid(pid, &status, 0);
    while (result < 0 && errno == EINTR);
    /* a program that ignores its children is not told how they ended: the output shows it */
    return result < 0 ? errno == ECHILD : WIFEXITED(status) && !WEXITSTATUS(status);
}

/* Ours, but for the compiler's own temporary files (to lie where it works) and for its language. */
static bool is_replaced(const char *variable) {
    return !strncmp(variable, "TMPDIR=", 7) || !strncmp(variable, "LC_ALL=", 7);
}

static char **environment_take(base_heap *heap, size_t *room) {
    static char folder[] = "TMPDIR=.", words[] = "LC_ALL=C";
    size_t n = 0, used = 0;
    while (environ && environ[n]) n++;
    *room = (n + 3) * sizeof(char *);
    char **list = base_heap_take(heap, *room);
    for (size_t i = 0; list && i < n; i++)
        if (!is_replaced(environ[i])) list[used++] = environ[i];
    if (list) list[used] = folder, list[used + 1] = words;
    return list;
}

typedef enum ran { RAN_WELL, RAN_BADLY, RAN_NOT /* job->error is set */ } ran;

/* Starts the compiler: nothing to read, what it says into `told`, no signal from the terminal. It
 * works in `folder`, so its files need no path. 0 or an errno. */
static int start_compiler(host *d, int folder, int told, char *const *arguments, char *const *with,
                          pid_t **running) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, usual;
    pid_t pid = 0;
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGINT);
    sigaddset(&usual, SIGTERM);
    sigaddset(&usual, SIGPIPE);
    sigaddset(&usual, SIGCHLD);
    int cause = posix_spawn_file_actions_init(&files);
    if (cause) return cause;
    cause = posix_spawnattr_init(&attributes);
    if (cause) {
        posix_spawn_file_actions_destroy(&files);
        return cause;
    }
    const short flags = POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
    cause = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    if (!cause) cause = posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    if (!cause) cause = posix_spawn_file_actions_adddup2(&files, told, 2);
    if (!cause) cause = posix_spawn_file_actions_addfchdir_np(&files, folder);
    if (!cause) cause = posix_spawnattr_setpgroup(&attributes, 0);
    if (!cause) cause = posix_spawnattr_setsigmask(&attributes, &none);
    if (!cause) cause = posix_spawnattr_setsigdefault(&attributes, &usual);
    if (!cause) cause = posix_spawnattr_setflags(&attributes, flags);
    if (!cause) {
        base_lock_enter(d->compile_lock); /* whoever closes the device sees all that run */
        for (int i = 0; i < HOST_COMPILE_MAX && !*running; i++)
            if (!d->pids[i]) *running = &d->pids[i];
        cause = !*running || d->no_compile
                    ? ECANCELED
                    : posix_spawn(&pid, d->cc.path, &files, &attributes, arguments, with);
        if (!cause) **running = pid;
        base_lock_leave(d->compile_lock);
    }
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return cause;
}

static ran run_compiler(host *d, driver_job *job, int folder, const char *source,
                        const char *output, int told) {
    const char *arguments[N_OPTION + 6];
    int n = 0;
    arguments[n++] = d->cc.path;
    for (int i = 0; i < N_OPTION; i++) arguments[n++] = options[i];
    arguments[n++] = source;
    arguments[n++] = "-o";
    arguments[n++] = output;
    arguments[n++] = "-lm";
    arguments[n] = NULL;
    size_t room;
    pid_t *running = NULL;
    char **with = environment_take(d->head.heap, &room);
    if (!with) {
        base_fail(&job->error, BERYL_NO_MEMORY, "out of memory for program %s", job->label);
        return RAN_NOT;
    }
    const int cause =
        start_compiler(d, folder, told, (char *const *)(uintptr_t)arguments, with, &running);
    base_heap_give(d->head.heap, with, room);
    if (!cause) return wait_for(d, running) ? RAN_WELL : RAN_BADLY;
    base_fail(&job->error, BERYL_DEVICE, "%s: the compiler %.200s cannot be started: %s%s",
              job->label, d->cc.path, strerror(cause),
              cause == EAGAIN ? " (more processes than this user may have: ulimit -u)" : "");
    return RAN_NOT;
}

void host_compilers_stop(host *d) {
    base_lock_enter(d->compile_lock);
    d->no_compile = true;
    for (int i = 0; i < HOST_COMPILE_MAX; i++)
        if (d->pids[i] > 0) kill(-d->pids[i], SIGKILL); /* it has a group of its own */
    base_lock_leave(d->compile_lock);
    driver_compiler_stop(&d->compiler);
}

/* ---- compiling ------------------------------------------------------------------------------- */

static bool load_library(void *user, driver_job *job, const driver_cache_key *key, const void *data,
                         size_t size, beryl_error *error) {
    host *d = user;
    host_code *code = job->result[0];
    char name[ENTRY_MAX + 32];
    uint32_t (*scratch_bytes)(void);
    code->handle = host_library_open(d, job->label, key, data, size, error);
    if (!code->handle) return false;
    /* POSIX has dlsym give functions as void *, which ISO C only converts through memory. */
    snprintf(name, sizeof name, "%s_scratch_bytes", job->entry);
    void *address = dlsym(code->handle, job->entry), *about = dlsym(code->handle, name);
    memcpy(&code->fn, &address, sizeof address);
    memcpy(&scratch_bytes, &about, sizeof about);
    if (address && about) {
        code->scratch = scratch_bytes();
        return true;
    }
    base_fail(error, BERYL_DEVICE, "%s: the text has no function %s", job->label,
              address ? name : job->entry);
    dlclose(code->handle);
    code->handle = NULL;
    return false;
}

static void fail_words(host *d, driver_job *job, int told) {
    struct stat about;
    const size_t size = fstat(told, &about)        ? 0
                        : about.st_size > TOLD_MAX ? TOLD_MAX
                                                   : (size_t)about.st_size;
    char *words = size ? base_heap_take(d->head.heap, size) : NULL;
    const bool read = words && driver_file_read(told, words, 0, size);
    driver_compile_fail(&d->compiler, job, read ? words : "", read ? size : 0);
    base_heap_give(d->head.heap, words, words ? size : 0);
}

/* What the compiler wrote. False: nothing (job->error is not set), or it cannot be read. */
static bool read_output(host *d, driver_job *job, int folder, const char *output, void **code,
                        size_t *size) {
    uint64_t all = 0;
    fchmodat(folder, output, 0600, 0); /* whatever the umask is */
    beryl_error why = {0};
    const int file = driver_file_open(folder, output, &all, &why);
    if (file < 0 && why.code != BERYL_NOT_FOUND)
        base_fail(&job->error, BERYL_IO, "%s: what the compiler made, %.200s", job->label,
                  why.message);
    if (file < 0) return false;
    *size = all <= LIBRARY_MAX ? (size_t)all : 0;
    *code = *size ? base_heap_take(d->head.heap, *size + 1) : NULL;
    errno = EIO; /* it has become shorter */
    const bool good = *code && driver_file_read(file, *code, 0, *size);
    if (*code && !good)
        base_fail(&job->error, BERYL_IO, "%s: what the compiler made cannot be read: %s",
                  job->label, strerror(errno));
    close(file);
    if (*size && !*code)
        base_fail(&job->error, BERYL_NO_MEMORY, "out of memory for program %s", job->label);
    if (!good) base_heap_give(d->head.heap, *code, *code ? *size + 1 : 0);
    return good;
}

/* False: job->error is set, or *cause says what the folder lacks. */
static bool compile_in(host *d, driver_job *job, const host_work *work, void **code, size_t *size,
                       int *cause) {
    static const char *const ends[] = {".c", ".part", ".txt"};
    char names[3][NAME_ROOM];
    base_lock_enter(d->compile_lock);
    const unsigned long long number = ++d->n_file;
    base_lock_leave(d->compile_lock);
    for (int i = 0; i < 3; i++) snprintf(names[i], NAME_ROOM, "%llu%s", number, ends[i]);
    const void *const parts[] = {first_line, job->source, "\n"};
    bool good = false;
    *cause = driver_file_make(work->folder, names[0], parts,
                              (const size_t[]){sizeof first_line - 1, job->source_size, 1}, 3);
    if (*cause) return false;
    const int told = driver_openat(work->folder, names[2], O_RDWR | O_CREAT | O_EXCL, 0600);
    if (told < 0) *cause = errno;
    const ran how =
        told < 0 ? RAN_NOT : run_compiler(d, job, work->folder, names[0], names[1], told);
    if (how == RAN_WELL) good = read_output(d, job, work->folder, names[1], code, size);
    if (how != RAN_NOT && !good && !job->error.code) *cause = host_work_room(work);
    if (how != RAN_NOT && !good && !job->error.code && !*cause) fail_words(d, job, told);
    if (told >= 0) close(told);
    for (int i = 0; i < 3; i++) unlinkat(work->folder, names[i], 0);
    return good;
}

static bool make_library(void *user, driver_job *job, void **code, size_t *size) {
    host *d = user;
    for (;;) {
        int cause = 0;
        const host_work *work = host_work_get(d, &job->error);
        if (!work) return false;
        if (compile_in(d, job, work, code, size, &cause)) return true;
        if (!cause) return false;
        host_work_leave(d, work, cause);
    }
}

bool host_compile(void *user, driver_job *job) {
    static const driver_maker maker = {make_library, load_library};
    host *d = user;
    const driver_cache_key key = key_of(d, job);
    job->result[0] = base_heap_take(d->head.heap, sizeof(host_code));
    if (job->result[0]) return driver_compile_kept(&d->compiler, job, &key, &maker);
    base_fail(&job->error, BERYL_NO_MEMORY, "out of memory for program %s", job->label);
    return false;
}

void host_discard(void *user, driver_job *job) {
    host *d = user;
    host_code *code = job->result[0];
    if (code && code->handle) dlclose(code->handle);
    base_heap_give(d->head.heap, code, code ? sizeof *code : 0);
    job->result[0] = NULL;
}

/* ---- programs -------------------------------------------------------------------------------- */

beryl_status host_program_make(device *head, device_program_item *item,
                               const device_program_desc *desc, beryl_error *error) {
    host *d = (host *)head;
    if (desc->entry && (!*desc->entry || strlen(desc->entry) > ENTRY_MAX))
        return base_fail(error, BERYL_MISUSE,
                         "program %s: its entry has no name, or a very long one", item->label);
    if (!host_graves_reserve(d))
        return base_fail(error, BERYL_NO_MEMORY, "out of memory for program %s", item->label);
    return driver_job_make(&d->compiler, item, desc, head->no_cache, &((host_program *)item)->job,
                           error);
}

beryl_status host_program_status(device *head, device_program_item *item, beryl_error *error) {
    host *d = (host *)head;
    host_program *program = (host_program *)item;
    if (!program->job) return BERYL_OK;
    const beryl_status status = driver_job_status(&d->compiler, program->job, error);
    if (status) return status;
    host_code *code = program->job->result[0];
    program->code = *code;
    code->handle = NULL; /* the program's from here on */
    driver_job_drop(&d->compiler, program->job);
    program->job = NULL;
    return BERYL_OK;
}

void host_program_drop(device *head, device_program_item *item) {
    host *d = (host *)head;
    host_program *program = (host_program *)item;
    if (program->code.handle)
        host_grave_add(d, (host_grave){d->serial, NULL, program->code.handle, 0});
    driver_job_drop(&d->compiler, program->job);
}
