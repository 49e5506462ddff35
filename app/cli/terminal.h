/*
 * terminal.h: talk to a person on a terminal, and to nobody where there is none.
 *
 * A progress line is drawn on standard error over itself and erased when it is done: only on a terminal
 * that can do it, at most ten times a second, never wider than the terminal. Everywhere else (a file, a
 * pipe, TERM=dumb) all of this prints nothing, so callers need no test of their own.
 */
#ifndef APP_TERMINAL_H
#define APP_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Is the stream a terminal that understands escape sequences? */
bool terminal_is_interactive(FILE *stream);

/* Columns of the terminal behind the stream, 20..1000; 80 where that is not known. */
uint32_t terminal_columns(FILE *stream);

/* May text be coloured? An interactive terminal, and NO_COLOR (https://no-color.org) not set. */
bool terminal_has_colour(FILE *stream);

/*
 * Write text that somebody else made: what could drive a terminal becomes '?', but line ends and tabs.
 */
void terminal_write(FILE *stream, const char *bytes, size_t n);

typedef struct progress_line {
    bool is_enabled; /* standard error is a terminal */
    bool is_visible; /* something stands on the line */
    int64_t drawn;   /* when, in milliseconds of a steady clock */
} progress_line;

progress_line progress_line_init(void);

/* Draw the text, unless the last drawing was under a tenth of a second ago. The first shows at once. */
void progress_line_show(progress_line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Take the line away; the cursor is then at the start of an empty line. Nothing shown: no effect. */
void progress_line_erase(progress_line *line);

#endif /* APP_TERMINAL_H */
