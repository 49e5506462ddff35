/*
 * chat_terminal.h: a pseudo-terminal with `cellar chat` on it, for chat_terminal.c.
 *
 *     terminal *t = terminal_open(arguments);
 *     terminal_expect(t, "main> ");             wait until it is seen
 *     terminal_type(t, "Hello\n");
 *     terminal_expect(t, "[");
 *     CHECK(terminal_number(t, " tokens reused") == 0);
 *     terminal_type(t, "\004");
 *     CHECK(terminal_close(t) == 0);            the exit code; the terminal is as it was
 *
 * What is seen is looked at from front to back: what was expected once is behind us. Whatever is not
 * as it should be ends the test with everything that was seen.
 */
#ifndef TESTS_CHAT_TERMINAL_H
#define TESTS_CHAT_TERMINAL_H

#include <stdbool.h>

typedef struct terminal terminal;

/* Run a test; false: something was not as it should be, and has been told. */
bool terminal_run(void (*test)(void));
_Noreturn void terminal_fail(const char *file, int line, const char *what);
#define CHECK(condition) ((condition) ? (void)0 : terminal_fail(__FILE__, __LINE__, #condition))

/* arguments of `cellar chat`, NULL at the end. */
terminal *terminal_open(const char *const *arguments);
void terminal_type(terminal *t, const char *keys);
void terminal_signal(terminal *t, int number);

/* Wait for a text, and go behind it. */
void terminal_expect(terminal *t, const char *text);
/* Wait for so many more bytes, whatever they are. */
void terminal_expect_more(terminal *t, int n);
/* Wait for the text; the number right before it. */
long terminal_number(terminal *t, const char *text);
bool terminal_has_seen_twice(const terminal *t, const char *text);

/* Wait for the program to end. Its exit code, or 128 and the signal that ended it. */
int terminal_close(terminal *t);

#endif /* TESTS_CHAT_TERMINAL_H */
