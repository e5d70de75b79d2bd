/* cache_test.c - the cache of compiled kernels: what is kept, who else could change it, disks
 * without room, compilers and processes that are killed, and many that start at once. */
#define _GNU_SOURCE /* setenv, symlink, mount */
#include "host_rig.h"

#include "base/file.h"
#include "base/thread.h"
#include "device/host/host.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/mount.h>
#endif

/* ---- what is kept ---------------------------------------------------------------------------- */

static void write_byte(test *t, const char *path, long at, int value) {
    FILE *file = fopen(path, "r+b");
    CHECK(t, file);
    if (!file) return;
    CHECK(t, !fseek(file, at, at < 0 ? SEEK_END : SEEK_SET) && fputc(value, file) != EOF);
    fclose(file);
}

static void test_kept(test *t) {
    host_away a;
    char path[700] = "", other[720];
    struct stat before = {0}, after = {0};
    if (test_case(t, "host/compiled-once-for-all-devices")) {
        host_away_begin(t, &a, "once");
        host_rig_check(t, 0, NULL);
        if (host_rig_count("XDG_CACHE_HOME", "beryl/host", path, sizeof path) >= 0) {
            CHECK_INT(t, host_rig_count("XDG_CACHE_HOME", "beryl/host", NULL, 0), 1);
            CHECK(t, !stat(path, &before) && (before.st_mode & 0777) == 0600);
            setenv("PATH", "/usr/bin:/bin", 1);
            host_rig_check(t, 0, NULL);
            CHECK(t, !stat(path, &after) && before.st_ino == after.st_ino);
            CHECK_INT(t, host_rig_count("TMPDIR", "", NULL, 0), 0);
        }
        host_away_end(&a);
    }
    if (test_case(t, "host/damaged-cache-is-passed-over")) {
        host_away_begin(t, &a, "damaged");
        host_rig_check(t, 0, NULL);
        const int n = host_rig_count("XDG_CACHE_HOME", "beryl/host", path, sizeof path);
        for (int i = 0; i < 4 && n == 1; i++) {
            CHECK(t, !stat(path, &before));
            if (i == 0) write_byte(t, path, before.st_size / 2, 0x5a);
            if (i == 1) CHECK(t, !truncate(path, before.st_size / 2));
            if (i == 2) CHECK(t, !truncate(path, 0));
            if (i == 3) write_byte(t, path, -1, 0x5a);
            host_rig_check(t, 1, "damaged");
            host_rig_check(t, 0, NULL); /* it was written anew */
        }
        host_away_end(&a);
    }
    if (test_case(t, "host/unsafe-cache-is-passed-over")) {
        host_away_begin(t, &a, "unsafe");
        host_rig_check(t, 0, NULL);
        const int n = host_rig_count("XDG_CACHE_HOME", "beryl/host", path, sizeof path);
        if (n == 1) {
            CHECK(t, !chmod(path, 0666));
            host_rig_check(t, 1, "nobody else can write");
            host_rig_check(t, 0, NULL);
            snprintf(other, sizeof other, "%s.other", path);
            CHECK(t, !rename(path, other) && !symlink(other, path));
            host_rig_check(t, 1, "nobody else can write");
            snprintf(path, sizeof path, "%s/beryl/host", getenv("XDG_CACHE_HOME"));
            CHECK(t, !chmod(path, 0777));
            host_rig_check(t, 1, "host can be written by others");
            CHECK(t, !chmod(path, 0700));
        }
        CHECK_INT(t, host_rig_count("TMPDIR", "", NULL, 0), 0);
        host_away_end(&a);
    }
    if (test_case(t, "host/old-files-are-removed")) {
        host_away_begin(t, &a, "old");
        host_rig_check(t, 0, NULL);
        if (host_rig_count("XDG_CACHE_HOME", "beryl/host", path, sizeof path) == 1) {
            static const char *const names[] = {"12-0x1-1.part", "12-0x1-2.part", "0123.so",
                                                "4567.so"};
            static const long days[] = {2, 0, 61, 59};
            for (int i = 0; i < 4; i++) {
                snprintf(other, sizeof other, "%s/beryl/host/%s", getenv("XDG_CACHE_HOME"),
                         names[i]);
                CHECK_INT(t, base_file_write(other, "x", 1, NULL), BERYL_OK);
                struct timespec then[2] = {{.tv_sec = time(NULL) - days[i] * 86400}};
                then[1] = then[0];
                CHECK(t, !utimensat(AT_FDCWD, other, then, 0));
            }
            host_rig_check(t, 0, NULL);
            CHECK_INT(t, host_rig_count("XDG_CACHE_HOME", "beryl/host", NULL, 0), 3);
        }
        host_away_end(&a);
    }
    if (test_case(t, "host/kernels-that-cannot-be-kept-are-one-warning")) {
        host_away_begin(t, &a, "nowhere");
        setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
        host_rig_check(t, 1, "compiled kernels are not kept");
        host_away_end(&a);
    }
    if (test_case(t, "host/no-cache-leaves-nothing")) {
        rig r;
        host_away_begin(t, &a, "none");
        if (rig_open(t, &r, "host")) {
            device_cache_forgo(r.d);
            CHECK_INT(t, host_rig_run(t, &r, 4), 7);
            rig_close(t, &r);
        }
        CHECK_INT(t, host_rig_count("XDG_CACHE_HOME", "beryl", NULL, 0), -1);
        CHECK_INT(t, host_rig_count("TMPDIR", "", NULL, 0), 0);
        host_away_end(&a);
    }
}

/* ---- who else could change it ---------------------------------------------------------------- */

/* The system's compiler, but while a file `evil` lies beside the script it adds 5 more. */
static void turncoat_compiler(test *t, const host_away *a, const char *name) {
    char script[5000];
    snprintf(script, sizeof script,
             "#!/bin/sh\nhere=${0%%/*}\nPATH='%s'\n"
             "for file; do case $file in *.c) [ ! -e \"$here/evil\" ] || sed -i 's/+ "
             "\\([0-9]*\\)u;/+ \\1u + 5u;/' \"$file\" ;; esac; done\n"
             "exec cc \"$@\"\n",
             a->path);
    host_rig_compiler(t, name, script);
}

static void set_evil(test *t, bool evil) {
    char path[700];
    snprintf(path, sizeof path, "%s/evil", getenv("PATH"));
    if (!evil) unlink(path);
    else CHECK_INT(t, base_file_write(path, "", 0, NULL), BERYL_OK);
}

/* Kernel n on a fresh device. */
static uint32_t run_fresh(test *t, uint32_t n, host_warnings *w) {
    rig r;
    beryl_log log;
    if (!host_rig_open(t, &r, &log, w)) return 0;
    const uint32_t y = host_rig_run(t, &r, n);
    rig_close(t, &r);
    return y;
}

/* A folder `part` over the cache, with wrong code in it that is sealed as right code is. Where
 * others could have put it there it is not loaded: `words`. NULL: it is, which shows that the
 * code is found. */
static void check_way(test *t, const char *part, int (*change)(const char *path),
                      const char *words) {
    host_away a;
    host_warnings w = {0};
    char path[700], cache[720];
    host_away_begin(t, &a, part);
    turncoat_compiler(t, &a, "turncoat");
    snprintf(path, sizeof path, "%s/over", getenv("XDG_CACHE_HOME"));
    snprintf(cache, sizeof cache, "%s/cache", path);
    CHECK(t, !mkdir(path, 0755));
    setenv("XDG_CACHE_HOME", cache, 1);
    set_evil(t, true);
    CHECK_INT(t, run_fresh(t, 4, &w), 12);
    set_evil(t, false);
    CHECK_INT(t, run_fresh(t, 4, &w), 12);
    CHECK_INT(t, w.n, 0);
    if (change(path)) {
        test_skip(t, "%s", strerror(errno));
    } else {
        CHECK_INT(t, run_fresh(t, 4, &w), words ? 7 : 12);
        CHECK_INT(t, w.n, words ? 1 : 0);
        if (words && !strstr(w.last, words))
            test_fail(t, __FILE__, __LINE__, "the warning is \"%s\"", w.last);
        CHECK_INT(t, host_rig_count("TMPDIR", "", NULL, 0), 0);
    }
    if (chown(path, geteuid(), (gid_t)-1)) (void)0; /* where it was somebody else's */
    host_away_end(&a);
}

enum { SOMEBODY = 65534 };

static int give_away(const char *path) {
    return chown(path, SOMEBODY, (gid_t)-1);
}
static int open_to_group(const char *path) {
    return chmod(path, 0775);
}
static int open_to_all(const char *path) {
    return chmod(path, 0777);
}
static int make_sticky(const char *path) {
    return chmod(path, 01777);
}

/* The folder moves aside, and a link takes its place. */
static int link_to(const char *path, uid_t owner) {
    char aside[720];
    snprintf(aside, sizeof aside, "%s-aside", path);
    return rename(path, aside) || symlink(aside, path) || (owner && lchown(path, owner, (gid_t)-1));
}
static int make_link(const char *path) {
    return link_to(path, 0);
}
static int make_their_link(const char *path) {
    return link_to(path, SOMEBODY);
}
static int make_link_to_theirs(const char *path) {
    char aside[720];
    snprintf(aside, sizeof aside, "%s-aside", path);
    return link_to(path, 0) || chmod(aside, 0777);
}

static void test_ways(test *t) {
    static const struct {
        const char *name;
        int (*change)(const char *path);
        const char *words;
    } ways[] = {{"of-another-user", give_away, "over belongs to another user"},
                {"open-to-its-group", open_to_group, "over can be written by others"},
                {"open-to-all", open_to_all, "over can be written by others"},
                {"sticky-is-fine", make_sticky, NULL},
                {"own-link-is-fine", make_link, NULL},
                {"link-of-another-user", make_their_link, "over is another user's link"},
                {"link-to-what-is-open-to-all", make_link_to_theirs,
                 "over-aside can be written by others"}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (test_case(t, "cache/folder-above-%s", ways[i].name))
            check_way(t, ways[i].name, ways[i].change, ways[i].words);
}

/* Who owns a folder above could do this between any two steps. */
static void test_swapped(test *t) {
    host_away a;
    rig r;
    beryl_log log;
    host_warnings w = {0};
    char path[700], aside[720], file[1400], other[1400];
    if (test_case(t, "cache/folder-swapped-while-in-use-is-not-read")) {
        host_away_begin(t, &a, "swapped");
        turncoat_compiler(t, &a, "swapped-bin");
        set_evil(t, true);
        CHECK_INT(t, run_fresh(t, 6, &w), 14);
        set_evil(t, false);
        snprintf(path, sizeof path, "%s/beryl", getenv("XDG_CACHE_HOME"));
        snprintf(aside, sizeof aside, "%s-evil", path);
        CHECK(t, !rename(path, aside));
        if (host_rig_open(t, &r, &log, &w)) {
            CHECK_INT(t, host_rig_run(t, &r, 4), 7);
            snprintf(other, sizeof other, "%s-good", path);
            CHECK(t, !rename(path, other) && !rename(aside, path));
            CHECK_INT(t, host_rig_run(t, &r, 6), 9);
            CHECK_INT(t, w.n, 0);
            rig_close(t, &r);
        }
        host_away_end(&a);
    }
    if (test_case(t, "cache/file-of-another-user")) {
        host_away_begin(t, &a, "their-file");
        host_rig_check(t, 0, NULL);
        if (host_rig_count("XDG_CACHE_HOME", "beryl/host", file, sizeof file) == 1) {
            if (chown(file, SOMEBODY, (gid_t)-1)) test_skip(t, "%s", strerror(errno));
            else host_rig_check(t, 1, "nobody else can write");
        }
        host_away_end(&a);
    }
    if (test_case(t, "cache/pipe-as-file-does-not-hang")) {
        host_away_begin(t, &a, "pipe");
        host_rig_check(t, 0, NULL);
        if (host_rig_count("XDG_CACHE_HOME", "beryl/host", file, sizeof file) == 1) {
            CHECK(t, !unlink(file) && !mkfifo(file, 0600));
            host_rig_check(t, 1, "nobody else can write");
            host_rig_check(t, 0, NULL); /* it was replaced */
        }
        snprintf(path, sizeof path, "%s/beryl/lock", getenv("XDG_CACHE_HOME"));
        CHECK(t, !unlink(path) && !mkfifo(path, 0600) && !unlink(file));
        host_rig_check(t, 0, NULL);
        host_away_end(&a);
    }
}

/* ---- no room --------------------------------------------------------------------------------- */

static bool mount_small(test *t, const char *path) {
#ifdef __linux__
    if (!mount("none", path, "tmpfs", 0, "size=4k,mode=0700")) return true;
    test_skip(t, "a small file system cannot be mounted: %s", strerror(errno));
#else
    (void)path;
    test_skip(t, "a small file system is mounted on Linux alone");
#endif
    return false;
}

static void unmount(const char *path) {
#ifdef __linux__
    umount2(path, MNT_DETACH);
#else
    (void)path;
#endif
}

/* In a process of its own: the result, or 100 more than what the error is. */
static int in_child(test *t, int (*work)(test *t, const char *words), const char *words) {
    int status = 0;
    fflush(stdout);
    const pid_t child = fork();
    if (!child) _exit(work(t, words));
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
    return WEXITSTATUS(status);
}

static beryl_status open_and_run(uint32_t n, uint32_t *y, beryl_error *error) {
    const device_program_desc desc = host_rig_desc(host_rig_text(n));
    rig r = {0};
    device_program program;
    base_heap_init(&r.heap, NULL);
    beryl_status status = device_open(&r.heap, NULL, "host", &r.d, error);
    if (status) return status;
    status = device_program_make(r.d, &desc, &program, error);
    if (!status) status = rig_compiled(&r, program);
    if (status && !error->code) *error = r.error;
    device_close(r.d);
    *y = status ? 0 : n + 3;
    return status;
}

static int small_files(test *t, const char *words) {
    const struct rlimit limit = {4096, RLIM_INFINITY};
    uint32_t y;
    beryl_error error = {0};
    (void)t;
    setrlimit(RLIMIT_FSIZE, &limit);
    return open_and_run(4, &y, &error) && strstr(error.message, words) ? 0 : 1;
}

static int no_processes(test *t, const char *words) {
    const struct rlimit limit = {1, 1};
    uint32_t y;
    beryl_error error = {0};
    (void)t;
    if (setrlimit(RLIMIT_NPROC, &limit) || setuid(SOMEBODY)) return 2;
    return open_and_run(4, &y, &error) && strstr(error.message, words) ? 0 : 1;
}

static void test_room(test *t) {
    host_away a;
    char path[700];
    if (test_case(t, "cache/full-disk-under-the-cache")) {
        host_away_begin(t, &a, "full");
        snprintf(path, sizeof path, "%s/small", getenv("XDG_CACHE_HOME"));
        CHECK(t, !mkdir(path, 0700));
        if (mount_small(t, path)) {
            setenv("XDG_CACHE_HOME", path, 1);
            host_rig_check(t, 1, "No space left on device");
            CHECK_INT(t, host_rig_count("XDG_CACHE_HOME", "beryl/host", NULL, 0), 0);
            unmount(path);
        }
        host_away_end(&a);
    }
    if (test_case(t, "cache/full-disk-under-tmpdir")) {
        host_away_begin(t, &a, "full-tmp");
        if (mount_small(t, getenv("TMPDIR"))) {
            host_rig_check(t, 1, "No space left on device");
            CHECK_INT(t, host_rig_count("TMPDIR", "", NULL, 0), 0);
            host_rig_check(t, 0, NULL); /* it was kept nevertheless */
            unmount(getenv("TMPDIR"));
        }
        host_away_end(&a);
    }
    if (test_case(t, "cache/tmpdir-that-is-none")) {
        host_away_begin(t, &a, "no-tmp");
        setenv("TMPDIR", "/proc/nowhere", 1);
        host_rig_check(t, 1, "/proc/nowhere");
        host_away_end(&a);
    }
    if (test_case(t, "cache/limit-of-file-sizes-is-told")) {
        host_away_begin(t, &a, "small-files");
        CHECK_INT(t, in_child(t, small_files, "File too large"), 0);
        CHECK_INT(t, host_rig_count("TMPDIR", "", NULL, 0), 0);
        host_away_end(&a);
    }
    if (test_case(t, "cache/limit-of-processes-is-told")) {
        if (geteuid()) test_skip(t, "only root can become a user without processes");
        else CHECK_INT(t, in_child(t, no_processes, "ulimit -u"), 0);
    }
}

/* ---- compilers that are killed, processes at once -------------------------------------------- */

static void wait_for_file(test *t, const char *path) {
    const double began = base_time();
    while (!base_file_exists(path) && base_time() - began < 60) base_sleep(0.01);
    CHECK(t, base_file_exists(path));
}

static int compile_one(test *t, const char *words) {
    uint32_t y;
    beryl_error error = {0};
    (void)t, (void)words;
    return open_and_run(4, &y, &error) || y != 7;
}

static int compile_three(test *t, const char *words) {
    uint32_t y;
    beryl_error error = {0};
    (void)t, (void)words;
    for (uint32_t n = 1; n <= 3; n++)
        if (open_and_run(n, &y, &error)) return 1;
    return 0;
}

static pid_t spawn(test *t, int (*work)(test *t, const char *words)) {
    fflush(stdout);
    const pid_t child = fork();
    if (!child) _exit(work(t, NULL));
    CHECK(t, child > 0);
    return child;
}

static int end_of(pid_t child) {
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The first compiler leaves its files, says that it runs, and hangs; later ones compile. Each
 * adds a line to `count`. */
static void hanging_compiler(test *t, const host_away *a, const char *name) {
    char script[5000];
    snprintf(script, sizeof script,
             "#!/bin/sh\nhere=${0%%/*}\nPATH='%s'\necho >>\"$here/count\"\n"
             "if mkdir \"$here/first\" 2>/dev/null; then\n"
             "  echo x >\"$TMPDIR/cc1.s\"; mkdir \"$TMPDIR/cc\"; echo $$ >\"$here/pid\"\n"
             "  mv \"$here/pid\" \"$here/runs\"; exec sleep 100\nfi\nexec cc \"$@\"\n",
             a->path);
    host_rig_compiler(t, name, script);
}

/* What lies beside the compiler. */
static void beside(char path[700], const char *name) {
    snprintf(path, 700, "%s/%s", getenv("PATH"), name);
}

static void kill_compiler(test *t) {
    char path[700], text[40] = "";
    beside(path, "runs");
    FILE *file = fopen(path, "r");
    const long pid = file && fgets(text, sizeof text, file) ? strtol(text, NULL, 10) : 0;
    CHECK(t, pid > 1 && !kill((pid_t)-pid, SIGKILL));
    if (file) fclose(file);
}

static long lines_of(const char *name) {
    char path[700];
    struct stat about = {0};
    beside(path, name);
    return stat(path, &about) ? 0 : (long)about.st_size; /* a line is its end alone */
}

static void test_killed(test *t) {
    host_away a;
    rig r;
    device_program program;
    char path[700];
    if (test_case(t, "cache/killed-compiler-leaves-nothing")) {
        host_away_begin(t, &a, "killed");
        hanging_compiler(t, &a, "killed-bin");
        if (rig_open(t, &r, "host")) {
            const device_program_desc desc = host_rig_desc(host_rig_text(4));
            CHECK_INT(t, device_program_make(r.d, &desc, &program, &r.error), BERYL_OK);
            beside(path, "runs");
            wait_for_file(t, path);
            rig_close(t, &r);
        }
        CHECK_INT(t, host_rig_count("TMPDIR", "", NULL, 0), 0);
        host_away_end(&a);
    }
    if (test_case(t, "cache/what-a-killed-process-left-is-removed")) {
        host_away_begin(t, &a, "dead");
        hanging_compiler(t, &a, "dead-bin");
        const pid_t child = spawn(t, compile_one);
        beside(path, "runs");
        wait_for_file(t, path);
        CHECK(t, !kill(child, SIGKILL));
        CHECK_INT(t, end_of(child), -1);
        kill_compiler(t);
        CHECK_INT(t, host_rig_count("TMPDIR", "", NULL, 0), 1);
        CHECK_INT(t, in_child(t, compile_one, NULL), 0);
        CHECK_INT(t, host_rig_count("TMPDIR", "", NULL, 0), 0);
        host_away_end(&a);
    }
}

static void test_at_once(test *t) {
    enum { N = 12 };
    host_away a;
    pid_t children[N];
    char path[700], script[5000], threads[40];
    if (test_case(t, "cache/processes-that-start-at-once-compile-once")) {
        host_away_begin(t, &a, "at-once");
        snprintf(script, sizeof script,
                 "#!/bin/sh\necho >>\"${0%%/*}/count\"\nPATH='%s'\nsleep 0.3\nexec cc \"$@\"\n",
                 a.path);
        host_rig_compiler(t, "at-once-bin", script);
        for (int i = 0; i < N; i++) children[i] = spawn(t, compile_three);
        for (int i = 0; i < N; i++) CHECK_INT(t, end_of(children[i]), 0);
        CHECK_INT(t, lines_of("count"), 3);
        CHECK_INT(t, host_rig_count("XDG_CACHE_HOME", "beryl/host", NULL, 0), 3);
        host_away_end(&a);
    }
    if (test_case(t, "cache/threads-of-one-device-compile-once")) {
        rig r;
        device_program programs[2];
        host_away_begin(t, &a, "twice");
        host_rig_keep(threads, sizeof threads, "BERYL_THREADS");
        host_rig_put("BERYL_THREADS", "2"); /* and as many that compile */
        snprintf(script, sizeof script,
                 "#!/bin/sh\necho >>\"${0%%/*}/count\"\nPATH='%s'\nsleep 0.3\nexec cc \"$@\"\n",
                 a.path);
        host_rig_compiler(t, "twice-bin", script);
        if (rig_open(t, &r, "host")) {
            const device_program_desc desc = host_rig_desc(host_rig_text(4));
            for (int i = 0; i < 2; i++)
                CHECK_INT(t, device_program_make(r.d, &desc, &programs[i], &r.error), BERYL_OK);
            for (int i = 0; i < 2; i++) CHECK_INT(t, rig_compiled(&r, programs[i]), BERYL_OK);
            rig_close(t, &r);
        }
        CHECK_INT(t, lines_of("count"), 1);
        host_rig_put("BERYL_THREADS", threads);
        host_away_end(&a);
    }
    if (test_case(t, "cache/process-that-dies-while-it-compiles-holds-nobody-up")) {
        host_away_begin(t, &a, "dies");
        hanging_compiler(t, &a, "dies-bin");
        children[0] = spawn(t, compile_one);
        beside(path, "runs");
        wait_for_file(t, path);
        children[1] = spawn(t, compile_one);
        base_sleep(0.2);
        CHECK_INT(t, lines_of("count"), 1); /* it waits */
        CHECK(t, !kill(children[0], SIGKILL));
        CHECK_INT(t, end_of(children[1]), 0);
        CHECK_INT(t, end_of(children[0]), -1);
        CHECK_INT(t, lines_of("count"), 2);
        kill_compiler(t);
        host_away_end(&a);
    }
    if (test_case(t, "cache/closing-does-not-wait-for-another-process")) {
        rig r;
        device_program program;
        host_away_begin(t, &a, "waits");
        hanging_compiler(t, &a, "waits-bin");
        children[0] = spawn(t, compile_one);
        beside(path, "runs");
        wait_for_file(t, path);
        if (rig_open(t, &r, "host")) {
            const double began = base_time();
            const device_program_desc desc = host_rig_desc(host_rig_text(4));
            CHECK_INT(t, device_program_make(r.d, &desc, &program, &r.error), BERYL_OK);
            base_sleep(0.1);
            CHECK_INT(t, device_program_status(r.d, program, &r.error), BERYL_PENDING);
            rig_close(t, &r);
            CHECK(t, base_time() - began < 30);
        }
        kill_compiler(t);
        end_of(children[0]);
        host_away_end(&a);
    }
}

/* ---- code without sealed memory -------------------------------------------------------------- */

static void test_folder_code(test *t) {
    host_away a;
    rig r;
    char path[700];
    if (!test_case(t, "cache/code-from-a-folder")) return;
    host_away_begin(t, &a, "folder");
    if (rig_open(t, &r, "host")) {
        char *code = NULL;
        size_t size = 0;
        CHECK_INT(t, host_rig_run(t, &r, 4), 7);
        CHECK_INT(t, host_rig_count("XDG_CACHE_HOME", "beryl/host", path, sizeof path), 1);
        CHECK_INT(t, base_file_read(&r.heap, path, 1 << 20, &code, &size, &r.error), BERYL_OK);
        void *handle =
            code ? host_library_from_folder((host *)r.d, "scale", code, size, &r.error) : NULL;
        CHECK(t, handle && dlsym(handle, "scale"));
        if (handle) dlclose(handle);
        CHECK(t, !chmod(getenv("TMPDIR"), 0777));
        CHECK(t, code && !host_library_from_folder((host *)r.d, "scale", code, size, &r.error));
        CHECK(t, strstr(r.error.message, "can be written by others"));
        base_heap_give(&r.heap, code, code ? size + 1 : 0);
        rig_close(t, &r);
    }
    CHECK_INT(t, host_rig_count("TMPDIR", "", NULL, 0), 0);
    host_away_end(&a);
}

/* ---- what is told meanwhile ------------------------------------------------------------------ */

/* Compiles once a file `go` lies beside it. */
static void gated_compiler(test *t, const host_away *a, const char *name) {
    char script[5000];
    snprintf(script, sizeof script,
             "#!/bin/sh\nhere=${0%%/*}\nPATH='%s'\nwhile [ ! -e \"$here/go\" ]; do sleep "
             "0.05; done\n"
             "exec cc \"$@\" -O0\n",
             a->path);
    host_rig_compiler(t, name, script);
}

static void set_go(test *t, bool go) {
    char path[700];
    beside(path, "go");
    if (!go) unlink(path);
    else CHECK_INT(t, base_file_write(path, "", 0, NULL), BERYL_OK);
}

/* Runs a task to its end. It tells that kernels compile while the compiler waits, which is then
 * let go, till `until`. */
static bool check_told(test *t, beryl_task *task, const char *until) {
    beryl_event event;
    beryl_status status;
    bool told = false;
    uint64_t done = 0;
    while ((status = beryl_wait(task, &event)) == BERYL_EVENT) {
        if (event.kind != BERYL_EVENT_PROGRESS) continue;
        if (until && !strcmp(event.what, until)) set_go(t, false);
        if (strcmp(event.what, "compiling kernels") != 0) continue;
        CHECK(t, event.done < event.total && event.done >= done);
        done = event.done;
        if (!told) set_go(t, true);
        told = true;
    }
    if (status == BERYL_NO_DEVICE) test_skip(t, "%s", beryl_task_error(task)->message);
    else if (status) test_fail(t, __FILE__, __LINE__, "%s", beryl_task_error(task)->message);
    else CHECK(t, told);
    beryl_task_close(task);
    return status == BERYL_OK;
}

static void test_told(test *t) {
    host_away a;
    beryl_engine *engine = NULL;
    beryl_session *session = NULL;
    beryl_task *task = NULL;
    beryl_error error = {0};
    if (!test_case(t, "cache/compiling-is-told-while-loading-and-while-answering")) return;
    host_away_begin(t, &a, "progress");
    gated_compiler(t, &a, "progress-bin");
    const beryl_engine_options options = {
        .size = sizeof options, .model = test_data(t, "e2b-f32.gguf"), .device = "host"};
    const beryl_generate_options how = {
        .size = sizeof how, .greedy = true, .ignore_eos = true, .max_tokens = 2};
    const int32_t tokens[] = {2, 10, 11};
    if (beryl_engine_open(&options, &engine, &error) || beryl_engine_load(engine, &task, &error)) {
        test_fail(t, __FILE__, __LINE__, "%s", error.message);
        /* of the first plan; those for the answer come later */
    } else if (check_told(t, task, "checking kernels")) {
        CHECK_INT(t, beryl_session_open(engine, NULL, &session, &error), BERYL_OK);
        CHECK_INT(t, beryl_session_generate(session, tokens, 3, &how, &task, &error), BERYL_OK);
        check_told(t, task, NULL);
    }
    beryl_session_close(session);
    beryl_engine_close(engine);
    host_away_end(&a);
}

void test_cache(test *t);
void test_cache(test *t) {
    test_kept(t);
    test_ways(t);
    test_swapped(t);
    test_room(t);
    test_killed(t);
    test_at_once(t);
    test_folder_code(t);
    test_told(t);
}
