/*
 * chat_line.h: one line after the other from a person or a pipe.
 *
 * On a terminal that can do it a line is edited (libedit: arrows, Ctrl-A, Ctrl-R, the history of this
 * conversation); everywhere else bytes are read as they come, and nothing is written, no prompt and
 * no escape sequence. A line that ends in a backslash goes on in the next. Ctrl-C gives up the line.
 */
#ifndef APP_CHAT_LINE_H
#define APP_CHAT_LINE_H

#include <stdbool.h>
#include <stddef.h>

#include "cellar.h"

typedef enum chat_line_result {
    CHAT_LINE_TEXT,        /* a line, without its end */
    CHAT_LINE_INTERRUPTED, /* a signal came: chat_signals.h knows which; what was typed is gone */
    CHAT_LINE_END,         /* Ctrl-D, or the input has ended */
    CHAT_LINE_FAILED,      /* it cannot be read, or no memory */
} chat_line_result;

typedef struct chat_line chat_line;

/* Words that a tab may complete at the beginning of a line, NULL at the end; they must outlive it. */
cellar_status chat_line_open(const char *const *words, chat_line **out, cellar_error *error);
void chat_line_close(chat_line *line); /* NULL is allowed; the terminal is as before */

bool chat_line_is_edited(const chat_line *line);

/*
 * *text is valid until the next call, and ends with NUL behind its *n bytes. Of a line that was
 * interrupted only *n is told: how much had been typed.
 */
chat_line_result chat_line_read(chat_line *line, const char *prompt, const char **text, size_t *n);

#endif /* APP_CHAT_LINE_H */
