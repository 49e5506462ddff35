/*
 * main.c: find the command, run it, and see to it that its output arrived.
 *
 * Promises: exit code 0 means done and written. A full disk or a closed standard output is a failure (1)
 * with a message, not a success with missing text. A reader that went away (cellar run | head) ends the
 * program by a failed write instead of a signal, so that commands can tidy up, and without a message. A standard
 * stream that was closed by the caller is never taken over by a file that a command opens.
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "options.h"

/* Fill closed standard streams with something harmless: reading gives nothing, writing fails. */
static void keep_standard_streams(void)
{
    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++) {
        if (fcntl(stream, F_GETFD) == -1 && errno == EBADF) {
            // The lowest free number is this one: those below are open.
            if (open("/dev/null", O_RDONLY) != stream) _Exit(EXIT_CODE_FAILED);
        }
    }
}

/* Did the reader of a pipe go away? Asked anew, since the failed write may be long past. */
static bool is_reader_gone(void)
{
    struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

/* Write what is still buffered. `code`, or EXIT_CODE_FAILED if some of the output was lost. */
static int finish_output(int code)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    const int reason = errno; // 0: it failed earlier
    if (code != EXIT_CODE_OK) return code;
    if (!is_reader_gone()) {
        fprintf(stderr, "cellar: cannot write to standard output%s%s\n", reason ? ": " : "",
                reason ? strerror(reason) : "");
    }
    return EXIT_CODE_FAILED;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        fputs("Usage: cellar COMMAND [OPTIONS]\n"
              "Try 'cellar run -p \"Once upon a time\"' or 'cellar help'.\n",
              stderr);
        return EXIT_CODE_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "-h") == 0 || strcmp(name, "--help") == 0) name = "help";
    if (strcmp(name, "--version") == 0) name = "version";
    if (options_are_asked_for(name)) {
        command_list();
        return EXIT_CODE_OK;
    }
    if (name[0] == '-') {
        fprintf(stderr, "cellar: options come after the command, as in 'cellar run -n 100'\n"
                        "See 'cellar help'.\n");
        return EXIT_CODE_USAGE;
    }
    const command *chosen = command_find(name);
    if (!chosen) return command_unknown(name);

    // `cellar run --help` is `cellar help run`, wherever among the options it stands alone.
    if (argc == 3 && (strcmp(argv[2], "-h") == 0 || strcmp(argv[2], "--help") == 0)) {
        fputs(chosen->help, stdout);
        return EXIT_CODE_OK;
    }
    return chosen->run(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    keep_standard_streams();
    signal(SIGPIPE, SIG_IGN);
    return finish_output(dispatch(argc, argv));
}
