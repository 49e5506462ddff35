/*
 * chat_terminal_driver.c: the pseudo-terminal of chat_terminal.h.
 *
 * The other side of the terminal stays open here, too, so that its settings can be compared before
 * and after. Bytes that come are filtered at once: escape sequences, carriage returns and backspaces go,
 * the rest is kept from beginning to end.
 */
#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE /* TIOCSCTTY, struct winsize */

#include "chat_terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define PATIENCE 300000 /* milliseconds without a byte: only a program that hangs takes as long */
#define GLANCE 100      /* between two looks at whether it has ended */

struct terminal {
    int ours, theirs;
    pid_t child; /* 0: it has ended, with `status` */
    int status;
    struct termios before;
    char *seen;             /* [n] */
    size_t n, capacity, at; /* what lies before `at` was expected already */
    int escape;             /* 0: none; 1: ESC was seen; 2: inside ESC [ */
};

static jmp_buf failed;
static terminal *current; /* of the test that runs */

/* ---- failing -------------------------------------------------------------------------------- */

static void give_back(terminal *t)
{
    if (t->child != 0) {
        kill(t->child, SIGKILL);
        waitpid(t->child, NULL, 0);
    }
    close(t->ours);
    close(t->theirs);
    free(t->seen);
    free(t);
    current = NULL;
}

bool terminal_run(void (*test)(void))
{
    if (setjmp(failed) == 0) {
        test();
        return true;
    }
    if (current != NULL) give_back(current);
    return false;
}

_Noreturn void terminal_fail(const char *file, int line, const char *what)
{
    printf("%s:%d: not so: %s\n", file, line, what);
    if (current != NULL) {
        const size_t from = current->n > 3000 ? current->n - 3000 : 0;
        printf("---- seen until then\n%.*s\n---- of this already expected: %zu bytes of %zu\n",
               (int)(current->n - from), current->seen + from, current->at - from,
               current->n - from);
    }
    longjmp(failed, 1);
}

#define MUST(condition) ((condition) ? (void)0 : terminal_fail(__FILE__, __LINE__, #condition))

/* ---- the program ---------------------------------------------------------------------------- */

static _Noreturn void become_program(int theirs, const char *const *arguments)
{
    char path[4096];
    char *all[32] = {NULL};
    size_t n = 0;
    snprintf(path, sizeof path, "%s/cellar", getenv("OUT"));
    all[n++] = path;
    all[n++] = (char *)(uintptr_t) "chat";
    for (; *arguments != NULL && n < 31; arguments++) {
        all[n++] = (char *)(uintptr_t)*arguments;
    }
    setsid();
    ioctl(theirs, TIOCSCTTY, 0);
    dup2(theirs, STDIN_FILENO);
    dup2(theirs, STDOUT_FILENO);
    dup2(theirs, STDERR_FILENO);
    setenv("TERM", "xterm", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    unsetenv("NO_COLOR");
    execv(path, all);
    _exit(127);
}

terminal *terminal_open(const char *const *arguments)
{
    terminal *t = calloc(1, sizeof *t);
    MUST(t != NULL);
    t->ours = posix_openpt(O_RDWR | O_NOCTTY);
    MUST(t->ours >= 0 && grantpt(t->ours) == 0 && unlockpt(t->ours) == 0);
    t->theirs = open(ptsname(t->ours), O_RDWR | O_NOCTTY);
    MUST(t->theirs >= 0 && tcgetattr(t->theirs, &t->before) == 0);
    const struct winsize size = {.ws_row = 40, .ws_col = 100};
    ioctl(t->theirs, TIOCSWINSZ, &size);
    fcntl(t->ours, F_SETFD, FD_CLOEXEC);
    current = t;
    t->child = fork();
    MUST(t->child >= 0);
    if (t->child == 0) become_program(t->theirs, arguments);
    return t;
}

static bool look(terminal *t, int milliseconds);

/*
 * Ctrl-D means the end of a line editor's input only when it comes after the editor has made the terminal
 * its own, which libedit does after it has shown its prompt. Before, the terminal itself takes it in.
 */
static void wait_for_editor(terminal *t)
{
    struct termios now;
    for (int waited = 0; waited < PATIENCE; waited += GLANCE) {
        MUST(tcgetattr(t->theirs, &now) == 0);
        if (!(now.c_lflag & ICANON)) return;
        (void)look(t, GLANCE);
    }
    terminal_fail("Ctrl-D", 0, "the terminal is never the editor's");
}

void terminal_type(terminal *t, const char *keys)
{
    if (keys[0] == '\004') wait_for_editor(t);
    const size_t n = strlen(keys);
    for (size_t at = 0; at < n;) {
        const ssize_t written = write(t->ours, keys + at, n - at);
        MUST(written > 0 || errno == EINTR);
        at += written > 0 ? (size_t)written : 0;
    }
}

void terminal_signal(terminal *t, int number)
{
    MUST(kill(t->child, number) == 0);
}

/* ---- what is seen --------------------------------------------------------------------------- */

static void take_byte(terminal *t, char byte)
{
    if (t->escape == 1) {
        t->escape = byte == '[' ? 2 : 0;
    } else if (t->escape == 2) {
        t->escape = byte >= 0x40 && byte <= 0x7e ? 0 : 2;
    } else if (byte == '\033') {
        t->escape = 1;
    } else if (byte != '\r' && byte != '\b' && byte != '\a') {
        t->seen[t->n++] = byte;
    }
}

/* Take what is there; false: nothing came for so many milliseconds. */
static bool look(terminal *t, int milliseconds)
{
    char bytes[4096];
    struct pollfd file = {.fd = t->ours, .events = POLLIN};
    if (poll(&file, 1, milliseconds) <= 0) return false;
    const ssize_t n = read(t->ours, bytes, sizeof bytes);
    if (t->capacity - t->n < sizeof bytes + 1) {
        t->capacity = 2 * t->capacity + sizeof bytes + 1;
        char *larger = realloc(t->seen, t->capacity);
        MUST(larger != NULL);
        t->seen = larger;
    }
    for (ssize_t i = 0; i < n; i++) {
        take_byte(t, bytes[i]);
    }
    t->seen[t->n] = '\0';
    return n > 0;
}

static bool has_ended(terminal *t)
{
    if (t->child != 0 && waitpid(t->child, &t->status, WNOHANG) == t->child) {
        t->child = 0;
    }
    return t->child == 0;
}

/* Wait for more to be seen. */
static void need_more(terminal *t, const char *for_what)
{
    for (int waited = 0; waited < PATIENCE; waited += GLANCE) {
        const bool is_last = has_ended(t); /* asked first: what it wrote can still be read */
        if (look(t, is_last ? 0 : GLANCE)) return;
        if (is_last) terminal_fail(for_what, 0, "the program has ended");
    }
    terminal_fail(for_what, 0, "it is never seen");
}

static const char *find(const terminal *t, const char *text)
{
    return t->n > t->at ? strstr(t->seen + t->at, text) : NULL;
}

void terminal_expect(terminal *t, const char *text)
{
    const char *found;
    while ((found = find(t, text)) == NULL) {
        need_more(t, text);
    }
    t->at = (size_t)(found - t->seen) + strlen(text);
}

void terminal_expect_more(terminal *t, int n)
{
    while (t->n - t->at < (size_t)n) {
        need_more(t, "more");
    }
    t->at += (size_t)n;
}

long terminal_number(terminal *t, const char *text)
{
    const size_t from = t->at;
    terminal_expect(t, text);
    size_t begin = t->at - strlen(text);
    while (begin > from && t->seen[begin - 1] >= '0' && t->seen[begin - 1] <= '9') {
        begin--;
    }
    MUST(t->seen[begin] >= '0' && t->seen[begin] <= '9');
    return strtol(t->seen + begin, NULL, 10);
}

bool terminal_has_seen_twice(const terminal *t, const char *text)
{
    const char *first = t->n > 0 ? strstr(t->seen, text) : NULL;
    return first != NULL && strstr(first + 1, text) != NULL;
}

int terminal_close(terminal *t)
{
    int waited = 0;
    while (!has_ended(t)) { /* read on, so that it is not held up by a full terminal */
        waited = look(t, GLANCE) ? 0 : waited + GLANCE;
        if (waited >= PATIENCE) terminal_fail("the end", 0, "the program does not end");
    }
    struct termios after;
    MUST(tcgetattr(t->theirs, &after) == 0);
    MUST(after.c_lflag == t->before.c_lflag && after.c_iflag == t->before.c_iflag);
    const int status = t->status;
    give_back(t);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
