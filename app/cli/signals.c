/* signals.c - Ctrl-C, being told to end, and the terminal's echo: the one mutable state of the
 * program.
 *
 * No press is lost: each is given to the task that runs (beryl_cancel may be called from a
 * handler), or is kept for what comes next: the next task, which then ends at once, or the
 * prompt, which is cleared. Outside a chat, where nothing comes next or nothing runs, it ends
 * the program by the signal, once what was begun is put away (see cli_end_late); pressed a second
 * time there, or three times over one task, it ends the program at once. */
#define _XOPEN_SOURCE 700
#include "cli.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

static _Atomic(beryl_task *) task_running;
static atomic_bool unheard; /* a press that stopped nothing yet */
static volatile sig_atomic_t task_interrupts, in_chat, keeps;
static volatile sig_atomic_t puts_away, ending; /* see cli_end_late */
static volatile sig_atomic_t echo_off, has_modes;
static struct termios first_modes; /* of the terminal; valid while has_modes */
static pthread_t main_thread;

/* ---- the terminal ---------------------------------------------------------------------------- */

/* A job in the background would be stopped by a change of the terminal. */
static bool is_in_front(void) {
    return has_modes && tcgetpgrp(0) == getpgrp();
}

/* Off: what is typed is not shown but kept for the next prompt, or for the shell, so that it does
 * not mix with a progress line or an answer. A pager that reads what this program writes keeps its
 * own modes. */
static void echo_set(bool on) {
    struct stat out;
    struct termios modes;
    if (on == !echo_off || !is_in_front() || !isatty(2) || fstat(1, &out) || S_ISFIFO(out.st_mode))
        return;
    if (tcgetattr(0, &modes)) return;
    modes.c_lflag &= ~(tcflag_t)ECHO;
    if (on) modes.c_lflag |= first_modes.c_lflag & ECHO;
    echo_off = !on;
    tcsetattr(0, TCSANOW, &modes);
}

static void modes_restore(void) {
    if (is_in_front()) tcsetattr(0, TCSANOW, &first_modes);
}

/* By the signal, with the terminal as it was found. */
static void end_now(int number) {
    modes_restore();
    signal(number, SIG_DFL);
    raise(number); /* in the handler: delivered when that returns */
}

/* The same, after what was begun is put away; asked for a second time, at once. */
static void end_soon(int number) {
    if (ending || in_chat || !puts_away) end_now(number);
    else ending = number;
}

/* ---- SIGINT ---------------------------------------------------------------------------------- */

static void interrupt_handle(int number) {
    int saved = errno;
    if (!pthread_equal(pthread_self(), main_thread)) {
        /* A worker of the device's driver got it: only the main thread may look at the task. */
        pthread_kill(main_thread, number);
        errno = saved;
        return;
    }
    beryl_task *task = atomic_load(&task_running);
    if (task && ++task_interrupts > 2) {
        modes_restore();
        _exit(CLI_FAILED);
    }
    if (!task && !keeps) {
        end_soon(SIGINT);
    } else if (!task || !beryl_cancel(task)) {
        atomic_store(&unheard, true);
    }
    errno = saved;
}

void cli_chat_begin(void) {
    in_chat = keeps = 1;
}

void cli_keep_interrupts(void) {
    keeps = 1;
}

void cli_task_begin(beryl_task *task) {
    task_interrupts = 0;
    echo_set(false);
    atomic_store(&task_running, task); /* before the look: what comes after it finds the task */
    const bool late = atomic_exchange(&unheard, false);
    if ((late || ending) && !beryl_cancel(task) && late) atomic_store(&unheard, true);
}

void cli_task_end(void) {
    atomic_store(&task_running, NULL);
    echo_set(true);
    if (!keeps && atomic_exchange(&unheard, false)) end_soon(SIGINT);
}

bool cli_interrupted(void) {
    return atomic_exchange(&unheard, false) || ending;
}

/* Blocked from the look at what came to the wait for more, SIGINT cannot come between the two. */
int cli_key_read(char *byte) {
    sigset_t interrupts, before;
    fd_set input;
    int n = -1;
    sigemptyset(&interrupts);
    sigaddset(&interrupts, SIGINT);
    FD_ZERO(&input);
    FD_SET(0, &input);
    pthread_sigmask(SIG_BLOCK, &interrupts, &before);
    errno = EINTR;
    if (!atomic_load(&unheard)) n = pselect(1, &input, NULL, NULL, NULL, &before);
    int cause = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (n >= 0) return (int)read(0, byte, 1);
    errno = cause;
    return -1;
}

/* ---- SIGTERM, SIGHUP, SIGQUIT ---------------------------------------------------------------- */

static void end_handle(int number) {
    int saved = errno;
    beryl_task *task = atomic_load(&task_running);
    if (!pthread_equal(pthread_self(), main_thread)) {
        pthread_kill(main_thread, number);
    } else if (number == SIGQUIT) {
        end_now(number);
    } else {
        end_soon(number);
        if (task && ending) beryl_cancel(task);
    }
    errno = saved;
}

void cli_end_late(void) {
    puts_away = 1;
}

void cli_end_check(void) {
    if (ending) end_now(ending);
}

void cli_signals_begin(void) {
    static const int ends[] = {SIGTERM, SIGHUP, SIGQUIT};
    struct sigaction action = {.sa_handler = interrupt_handle, .sa_flags = SA_RESTART}, before;
    sigemptyset(&action.sa_mask);
    main_thread = pthread_self();
    has_modes = isatty(0) && !tcgetattr(0, &first_modes);
    sigaction(SIGINT, &action, NULL);
    action.sa_handler = end_handle;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) /* nohup stays nohup */
        if (!sigaction(ends[i], NULL, &before) && before.sa_handler != SIG_IGN)
            sigaction(ends[i], &action, NULL);
}
