/*
 * terminal.c: a progress line, and what the terminal can do.
 *
 * The one idea: a line is drawn as carriage return, text cut to the width minus one (a full last column
 * would wrap), and "erase to the end of line"; so drawing over and erasing are the same operation.
 * What a caller wants shown may quote a file, so characters that drive a terminal become '?'.
 * Failing to draw is not an error of the program and is ignored.
 */
#define _DEFAULT_SOURCE /* struct winsize */

#include "terminal.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "safe_text.h"

enum { SHORTEST_PAUSE = 100 /* milliseconds between two drawings */ };

bool terminal_is_interactive(FILE *stream)
{
    if (!isatty(fileno(stream))) return false;
    const char *kind = getenv("TERM");
    return kind && *kind && strcmp(kind, "dumb") != 0;
}

uint32_t terminal_columns(FILE *stream)
{
    struct winsize size;
    if (ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
    if (size.ws_col < 20) return 20;
    return size.ws_col > 1000 ? 1000 : size.ws_col;
}

bool terminal_has_colour(FILE *stream)
{
    const char *refused = getenv("NO_COLOR");
    return !(refused && *refused) && terminal_is_interactive(stream);
}

/* Milliseconds of a clock that never jumps. */
static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* Write at most `columns` characters of the text, one column each. */
static void write_characters(FILE *stream, const char *text, uint32_t columns)
{
    size_t length = strlen(text);
    size_t used = 0;
    for (size_t at = 0; at < length && columns > 0; at += used, columns--) {
        if (safe_text_is_printable(safe_text_decode(text + at, length - at, &used))) {
            fwrite(text + at, 1, used, stream);
        } else {
            fputc('?', stream);
        }
    }
}

void terminal_write(FILE *stream, const char *bytes, size_t n)
{
    size_t used = 0;
    for (size_t at = 0; at < n; at += used) {
        const uint32_t code = safe_text_decode(bytes + at, n - at, &used);
        if (safe_text_is_printable(code) || code == '\n' || code == '\t') {
            fwrite(bytes + at, 1, used, stream);
        } else {
            fputc('?', stream);
        }
    }
}

progress_line progress_line_init(void)
{
    return (progress_line){.is_enabled = terminal_is_interactive(stderr)};
}

void progress_line_show(progress_line *line, const char *format, ...)
{
    if (!line->is_enabled) return;
    const int64_t time = now();
    if (line->is_visible && time - line->drawn < SHORTEST_PAUSE) return;

    char text[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0) return;

    fputc('\r', stderr);
    write_characters(stderr, text, terminal_columns(stderr) - 1);
    fputs("\x1b[K", stderr);
    fflush(stderr);
    line->is_visible = true;
    line->drawn = time;
}

void progress_line_erase(progress_line *line)
{
    if (!line->is_visible) return;
    fputs("\r\x1b[K", stderr);
    fflush(stderr);
    line->is_visible = false;
}
