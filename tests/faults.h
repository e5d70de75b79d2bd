/* faults.h - the system's calls that the library makes, made to fail at the n-th of them, cut
 * short, or put off until something else has happened.
 *
 *     faults_kind kind = {.calls = FAULTS_READ, .error = EIO};
 *     faults_begin(&kind, 3, NULL); // the fourth read fails
 *     status = ...;
 *     if (faults_end() == 0) ...; // there were fewer
 *
 * Only calls that the program itself is linked with are met: drivers and the C library's own go
 * by. Linux alone. */
#ifndef TESTS_FAULTS_H
#define TESTS_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

enum { /* what may be made to fail. What frees (unlink, munmap) has no use for a failure */
       FAULTS_OPEN = 1,
       FAULTS_READ = 2,
       FAULTS_WRITE = 4,
       FAULTS_SYNC = 8,
       FAULTS_CLOSE = 16, /* it is closed, but says that something went wrong */
       FAULTS_NAME = 32,  /* rename, mkdir, fchmod ... */
       FAULTS_LOOK = 64,  /* stat, access, readlink */
       FAULTS_MAP = 128,
       FAULTS_LOAD = 256,    /* dlopen */
       FAULTS_START = 512,   /* posix_spawn */
       FAULTS_FOLDER = 1024, /* opendir, readdir */
       FAULTS_STREAM = 2048, /* fread, fwrite ... */
       FAULTS_ALL = 4095,
       FAULTS_STEP = 4096 /* no call: faults_step */
};

typedef struct faults_kind {
    const char *name;
    unsigned calls; /* which count, and may fail */
    int error;      /* errno; 0: none, the call is made */
    bool lasting;   /* from the n-th call on */
    bool cut;       /* reads and writes do half of what was asked for, at least a byte */
    bool harmless;  /* for who judges: everything has to go as without */
    void (*instead)(void *user); /* called before the n-th call is made */
} faults_kind;

/* Can anything be met here? */
bool faults_work(void);
void faults_begin(const faults_kind *kind, uint64_t n, void *user);
/* How many calls were met, and how many counted; any thread may have made them. */
uint64_t faults_end(uint64_t *n_call);
/* A moment at which the test would like to be met, though no call is made. */
void faults_step(void);
/* The call that was met first, "pread64"; good until the next begin. */
const char *faults_where(void);

#endif
