/* compile.c - the C compiler, its workers, and programs.
 *
 * A program's text is compiled to a shared library by the system's own compiler (cc, gcc or clang,
 * the first that PATH has; no shell) and loaded. Its key is a hash of the text and of everything
 * else that the result depends on: compiler, options, processor. Jobs and their workers are those
 * of device/driver; closing the device ends the compilers that run.
 *
 * Refuses relative folders of PATH: what lies in the current folder is not a compiler.
 */
#define _GNU_SOURCE /* P_PID, environ */
#include "device/host/host.h"
#include "base/error.h"
#include "base/file.h"

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

enum { TOLD_MOST = 64 << 10, PATH_ROOM = 640, ENTRY_MOST = 200 };

/* As the text's own file is called in the compiler's messages. */
#define TEXT_NAME "kernel.c"
static const char first_line[] = "#line 1 \"" TEXT_NAME "\"\n";

/* No fused multiply-add but where the text says so: the same numbers as everywhere. Mathematics
 * without errno and without traps is the same numbers too, and can be vectorised. */
static const char *const options[] = {"-x",
                                      "c",
                                      "-std=gnu11",
                                      "-O3",
#if defined __x86_64__ || defined __i386__
                                      "-march=native",
                                      "-mprefer-vector-width=512", /* as the texts' own vectors: what is stored by halves is slow to load whole */
#else
                                      "-mcpu=native",
#endif
                                      "-ffp-contract=off",
                                      "-fno-math-errno",
                                      "-fno-trapping-math",
                                      "-shared",
                                      "-fPIC",
                                      "-pipe",
                                      "-w"};
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
                     "no C compiler was found: PATH has neither cc nor gcc nor clang");
}

static void key_of(const host *d, const driver_job *job, char key[HOST_KEY]) {
    uint64_t half[2] = {d->cc.identity, ~d->cc.identity};
    for (int i = 0; i < 2; i++) {
        half[i] = mix_text(half[i], job->entry);
        half[i] = base_hash(job->source, job->source_size, half[i]);
    }
    snprintf(key, HOST_KEY, "%016llx%016llx", (unsigned long long)half[0],
             (unsigned long long)half[1]);
}

/* ---- running it ------------------------------------------------------------------------------ */

/* Waits for the end before taking the pid, so that it is nobody else's while others read it. */
static bool wait_for(host *d, pid_t *running, pid_t pid) {
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

/* The compiler on its own: nothing to read, what it says in a file, no signal from the terminal. */
static bool run_compiler(host *d, const char *source, const char *output, const char *told) {
    const char *arguments[N_OPTION + 6];
    int n = 0;
    arguments[n++] = d->cc.path;
    for (int i = 0; i < N_OPTION; i++) arguments[n++] = options[i];
    arguments[n++] = source;
    arguments[n++] = "-o";
    arguments[n++] = output;
    arguments[n++] = "-lm";
    arguments[n] = NULL;

    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, usual;
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGINT);
    sigaddset(&usual, SIGTERM);
    sigaddset(&usual, SIGPIPE);
    sigaddset(&usual, SIGCHLD);
    if (posix_spawn_file_actions_init(&files)) return false;
    if (posix_spawnattr_init(&attributes)) {
        posix_spawn_file_actions_destroy(&files);
        return false;
    }
    pid_t pid = 0, *running = NULL;
    bool good =
        !posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0) &&
        !posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0) &&
        !posix_spawn_file_actions_addopen(&files, 2, told, O_WRONLY | O_CREAT | O_EXCL, 0600) &&
        !posix_spawnattr_setpgroup(&attributes, 0) &&
        !posix_spawnattr_setsigmask(&attributes, &none) &&
        !posix_spawnattr_setsigdefault(&attributes, &usual) &&
        !posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                                   POSIX_SPAWN_SETSIGDEF);
    if (good) {
        base_lock_enter(d->compile_lock); /* whoever closes the device sees all that run */
        for (int i = 0; i < HOST_COMPILE_MAX && !running; i++)
            if (!d->pids[i]) running = &d->pids[i];
        good = running && !d->no_compile &&
               !posix_spawn(&pid, d->cc.path, &files, &attributes,
                            (char *const *)(uintptr_t)arguments, environ);
        if (good) *running = pid;
        base_lock_leave(d->compile_lock);
    }
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return good && wait_for(d, running, pid);
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

static bool load(driver_job *job, host_code *code, const char *path, beryl_error *error) {
    char name[ENTRY_MOST + 32];
    uint32_t (*scratch_bytes)(void);
    code->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!code->handle) {
        const char *why = dlerror();
        base_fail(error, BERYL_DEVICE, "%s: %s", job->label, why ? why : "cannot be loaded");
        return false;
    }
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

/* The cache's folder, or "" where this job has none. */
static void cache_folder(host *d, const driver_job *job, char *path, size_t size) {
    base_lock_enter(d->compile_lock);
    if (!d->folder_asked && !job->no_cache) {
        beryl_error warning = {0};
        d->folder_asked = true;
        host_cache_folder(d->head.heap, d->folder, sizeof d->folder, &warning);
        if (warning.code) driver_compiler_warn(&d->compiler, &warning);
    }
    snprintf(path, size, "%s", job->no_cache ? "" : d->folder);
    base_lock_leave(d->compile_lock);
}

static bool private_folder(host *d, driver_job *job, char *path, size_t size) {
    base_lock_enter(d->compile_lock);
    const bool made = d->private_folder[0] ||
                      host_private_folder(d->private_folder, sizeof d->private_folder, &job->error);
    snprintf(path, size, "%s", d->private_folder);
    base_lock_leave(d->compile_lock);
    return made;
}

static bool write_source(const driver_job *job, const char *path) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!file) {
        if (fd >= 0) close(fd);
        return false;
    }
    bool good = fwrite(first_line, sizeof first_line - 1, 1, file) == 1 &&
                fwrite(job->source, job->source_size, 1, file) == 1 && fputc('\n', file) != EOF;
    return !fclose(file) && good;
}

static bool fail_words(host *d, driver_job *job, const char *path) {
    char *told = NULL;
    size_t size = 0;
    base_file_read(d->head.heap, path, TOLD_MOST, &told, &size, NULL);
    driver_compile_fail(&d->compiler, job, told ? told : "", size);
    base_heap_give(d->head.heap, told, told ? size + 1 : 0);
    return false;
}

/* Compiles into `folder`, under a name of its own, and loads that; kept: leaves it as `path`. */
static bool compile_text(host *d, driver_job *job, host_code *code, const char *folder,
                         const char *path, const char *key, bool kept) {
    char source[PATH_ROOM], output[PATH_ROOM], told[PATH_ROOM];
    static const char *const ends[] = {".c", ".part", ".txt"};
    char *const names[] = {source, output, told};
    base_lock_enter(d->compile_lock);
    const unsigned long long number = ++d->n_file;
    base_lock_leave(d->compile_lock);
    for (int i = 0; i < 3; i++) {
        snprintf(names[i], PATH_ROOM, "%s/%ld-%p-%llu%s", folder, (long)getpid(), (void *)d, number,
                 ends[i]);
        unlink(names[i]); /* of a process that died, long ago */
    }
    bool good = write_source(job, source);
    if (!good) base_fail(&job->error, BERYL_IO, "%s: %s cannot be written", job->label, source);
    else if (!run_compiler(d, source, output, told) || access(output, R_OK))
        good = fail_words(d, job, told);
    const char *at = output;
    if (good && kept && host_cache_seal(d->head.heap, output, key, NULL) == BERYL_OK &&
        !rename(output, path))
        at = path;
    good = good && load(job, code, at, &job->error);
    for (int i = 0; i < 3; i++) unlink(names[i]); /* a library stays in memory */
    return good;
}

/* Looks into the cache, else compiles. */
static bool get_code(host *d, driver_job *job, host_code *code) {
    char folder[512], path[PATH_ROOM], key[HOST_KEY];
    key_of(d, job, key);
    cache_folder(d, job, folder, sizeof folder);
    if (folder[0]) {
        beryl_error why = {0};
        snprintf(path, sizeof path, "%s/%s.so", folder, key);
        const beryl_status status = host_cache_check(d->head.heap, path, key, &why);
        if (status == BERYL_NO_MEMORY) job->error = why;
        if (status == BERYL_NO_MEMORY) return false;
        if (status == BERYL_OK && load(job, code, path, &why)) return true;
        if (why.code) driver_compiler_warn(&d->compiler, &why);
    }
    const bool kept = folder[0] && !access(folder, W_OK);
    if (!kept && !private_folder(d, job, folder, sizeof folder)) return false;
    return compile_text(d, job, code, folder, path, key, kept);
}

bool host_compile(void *user, driver_job *job) {
    host *d = user;
    host_code *code = base_heap_take(d->head.heap, sizeof *code);
    if (!code) base_fail(&job->error, BERYL_NO_MEMORY, "out of memory for program %s", job->label);
    job->result[0] = code;
    return code && get_code(d, job, code);
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
    if (desc->entry && (!*desc->entry || strlen(desc->entry) > ENTRY_MOST))
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
