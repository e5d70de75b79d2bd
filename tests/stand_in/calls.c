/* calls.c - what a stand-in driver keeps of its calls: how many, which shall fail, what was made
 * and not dropped. */
#include "calls.h"
#include "stand_in.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* A driver has no handle, so this is the process's. */
static struct {
    pthread_mutex_t lock;
    uint64_t alive;
    char fail[64];
    uint32_t fail_after, fail_times;
    int fail_code;
    struct {
        const char *name;
        uint64_t n;
    } calls[128];
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

#define API __attribute__((visibility("default")))

int stand_in_fails(const char *name) {
    int code = 0;
    pthread_mutex_lock(&state.lock);
    if (state.fail[0] && !strncmp(name, state.fail, strlen(state.fail))) {
        if (state.fail_after) state.fail_after--;
        else if (state.fail_times) state.fail_times--, code = state.fail_code;
    }
    pthread_mutex_unlock(&state.lock);
    return code;
}

int stand_in_enter_call(const char *name) {
    pthread_mutex_lock(&state.lock);
    for (size_t i = 0; i < sizeof state.calls / sizeof *state.calls; i++) {
        if (!state.calls[i].name) state.calls[i].name = name;
        if (strcmp(state.calls[i].name, name)) continue;
        state.calls[i].n++;
        break;
    }
    pthread_mutex_unlock(&state.lock);
    return stand_in_fails(name);
}

void stand_in_count(int64_t n) {
    __atomic_fetch_add(&state.alive, (uint64_t)n, __ATOMIC_RELAXED);
}

API void stand_in_fail(const char *call, uint32_t after, uint32_t times, int code) {
    pthread_mutex_lock(&state.lock);
    snprintf(state.fail, sizeof state.fail, "%s", call ? call : "");
    state.fail_after = after;
    state.fail_times = times;
    state.fail_code = code;
    pthread_mutex_unlock(&state.lock);
}

API uint64_t stand_in_calls(const char *call) {
    uint64_t n = 0;
    pthread_mutex_lock(&state.lock);
    for (size_t i = 0; i < sizeof state.calls / sizeof *state.calls && state.calls[i].name; i++)
        if (!strncmp(state.calls[i].name, call, strlen(call))) n += state.calls[i].n;
    pthread_mutex_unlock(&state.lock);
    return n;
}

API uint64_t stand_in_alive(void) {
    return __atomic_load_n(&state.alive, __ATOMIC_RELAXED);
}
