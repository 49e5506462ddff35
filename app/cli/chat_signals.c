/*
 * chat_signals.c: the handlers and the one place that waits, for chat_signals.h.
 *
 * A handler can only talk to the program through variables of the whole process; these two are all.
 * Calls are not restarted (no SA_RESTART), so a read that waits for a person ends with Ctrl-C.
 */
#define _POSIX_C_SOURCE 200809L

#include "cli/chat_signals.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/select.h>

#define PATIENCE 3 /* times that Ctrl-C is pressed in vain */

static volatile sig_atomic_t n_interrupts; /* since they were last forgotten */
static volatile sig_atomic_t ending;       /* SIGTERM or SIGHUP */

static void on_interrupt(int number)
{
    n_interrupts++;
    if (n_interrupts >= PATIENCE) {
        signal(number, SIG_DFL);
    }
}

static void on_ending(int number)
{
    ending = number;
    signal(number, SIG_DFL); /* the next one does it at once */
}

void chat_signals_catch(void)
{
    struct sigaction interrupt = {.sa_handler = on_interrupt};
    struct sigaction end = {.sa_handler = on_ending}, before;
    sigemptyset(&interrupt.sa_mask);
    sigemptyset(&end.sa_mask);
    sigaction(SIGINT, &interrupt, NULL);
    sigaction(SIGTERM, &end, NULL);
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
        sigaction(SIGHUP, &end, NULL); /* one that was ignored from the start (nohup) stays so */
    }
}

bool chat_signals_interrupted(void)
{
    return n_interrupts > 0 || ending != 0;
}

void chat_signals_forget(void)
{
    n_interrupts = 0;
}

int chat_signals_ending(void)
{
    return ending;
}

bool chat_signals_wait(int file)
{
    sigset_t ours, before;
    sigemptyset(&ours);
    sigaddset(&ours, SIGINT);
    sigaddset(&ours, SIGTERM);
    sigaddset(&ours, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &ours, &before);
    int n = -1;
    while (!chat_signals_interrupted()) {
        fd_set files;
        FD_ZERO(&files);
        FD_SET(file, &files);
        n = pselect(file + 1, &files, NULL, NULL, NULL, &before);
        if (n >= 0 || errno != EINTR) {
            break; /* there is something, or reading will say what is wrong */
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !chat_signals_interrupted();
}
