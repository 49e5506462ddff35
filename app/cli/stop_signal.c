/*
 * stop_signal.c: the handler of stop_signal.h.
 *
 * A handler can only talk to the program through a variable of the whole process; this is the one. Nothing
 * fails: where a handler cannot be set, the signal ends the program as it always did.
 */
#define _POSIX_C_SOURCE 200809L

#include "cli/stop_signal.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t caught_signal; /* 0: none */

static void on_signal(int number)
{
    caught_signal = number;
}

void stop_signal_catch(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND}, before;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
            sigaction(signals[i], &action, NULL);
        }
    }
}

int stop_signal_caught(void)
{
    return caught_signal;
}
