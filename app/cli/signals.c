/* signals.c - Ctrl-C: the one mutable state of the program.
 *
 * While a task runs, the handler cancels it (beryl_cancel may be called from a handler); at the
 * prompt it interrupts reading; else, and when pressed three times over one task, it ends the
 * program. */
#define _XOPEN_SOURCE 700
#include "cli.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <termios.h>
#include <unistd.h>

static _Atomic(beryl_task *) task_running;
static volatile sig_atomic_t task_interrupts, in_chat, interrupted;
static volatile sig_atomic_t echo_off;
static struct termios echo_saved; /* valid while echo_off */
static pthread_t main_thread;

static void interrupt_handle(int number) {
    int saved = errno;
    if (!pthread_equal(pthread_self(), main_thread)) {
        /* A worker of the device's driver got it: only the main thread may look at the task. */
        pthread_kill(main_thread, number);
        errno = saved;
        return;
    }
    interrupted = 1;
    beryl_task *task = atomic_load(&task_running);
    if (task) {
        if (++task_interrupts > 2) {
            if (echo_off) tcsetattr(0, TCSANOW, &echo_saved);
            _exit(CLI_FAILED);
        }
        beryl_cancel(task);
    } else if (!in_chat) {
        signal(number, SIG_DFL);
        raise(number); /* delivered when this handler returns */
    }
    errno = saved;
}

/* Reading the terminal must be interrupted; reading model files must not. */
static void interrupt_install(bool restart) {
    struct sigaction action = {.sa_handler = interrupt_handle,
                               .sa_flags = restart ? SA_RESTART : 0};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

void cli_signals_begin(void) {
    main_thread = pthread_self();
    interrupt_install(true);
}

void cli_task_begin(beryl_task *task) {
    task_interrupts = 0;
    atomic_store(&task_running, task);
}

void cli_task_end(void) {
    atomic_store(&task_running, NULL);
}

void cli_prompt_set(bool on) {
    interrupted = 0;
    in_chat = 1; /* from its first prompt on, Ctrl-C between prompt and answer ends neither */
    interrupt_install(!on);
}

bool cli_interrupted(void) {
    bool was = interrupted;
    interrupted = 0;
    return was;
}

void cli_echo_set(bool on) {
    if (on) {
        if (echo_off) tcsetattr(0, TCSADRAIN, &echo_saved);
        echo_off = 0;
    } else if (!echo_off && !tcgetattr(0, &echo_saved)) {
        struct termios quiet = echo_saved;
        quiet.c_lflag &= ~(tcflag_t)ECHO;
        echo_off = 1;
        tcsetattr(0, TCSADRAIN, &quiet);
    }
}
