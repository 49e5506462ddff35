/*
 * report.c: fill in a cellar_error.
 *
 * Messages often quote what a file says (a key, a name). So that a hostile file cannot drive the
 * terminal on which the message ends up, report() replaces every character that is not printable by
 * '?', after formatting: no caller has to remember it. A message that is too long is cut at a whole
 * character and ends in "...".
 */
#include "report.h"

#include <stdarg.h>
#include <stdio.h>

#include "safe_text.h"

/*
 * Replace what is not printable, in place. What is valid stays whole, so the length does not
 * change.
 */
static void make_printable(char *text)
{
    const size_t length = strlen(text);
    size_t used = 0;
    for (size_t at = 0; at < length; at += used)
        if (!safe_text_is_printable(safe_text_decode(text + at, length - at, &used)))
            memset(text + at, '?', used);
}

/* The text did not fit: end it in "...", without leaving half a character before the dots. */
static void mark_as_cut(char *text, size_t size)
{
    size_t end = size - 4;
    while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80)
        end--;
    memcpy(text + end, "...", 4);
}

cellar_status report(cellar_error *error, cellar_status status, int64_t at, const char *format, ...)
{
    if (error == NULL) return status;
    char message[sizeof error->message];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (length < 0)
        message[0] = '\0';
    else if ((size_t)length >= sizeof message)
        mark_as_cut(message, sizeof message);
    make_printable(message);
    error->status = status;
    error->at = at;
    memcpy(error->message, message, strlen(message) + 1);
    return status;
}
