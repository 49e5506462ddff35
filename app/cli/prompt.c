/*
 * prompt.c: read the prompt from the command line, a file or standard input.
 *
 * A stream is read to its end into a buffer that doubles, up to a bound, because a pipe does not
 * say how long it is. A failed read is a failure, not a short prompt.
 */
#define _POSIX_C_SOURCE 200809L

#include "cli/prompt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "report.h"

#define MAX_LENGTH ((size_t)1 << 30)

static cellar_status grow(prompt *out, size_t *capacity, const char *name, cellar_error *error)
{
    if (out->length > MAX_LENGTH) {
        return report(error, CELLAR_INVALID, -1, "%.80s: longer than %zu bytes", name, MAX_LENGTH);
    }
    size_t larger = *capacity == 0 ? 4096 : 2 * *capacity;
    char *text = realloc(out->text, larger);
    if (text == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "%.80s: no memory for %zu bytes", name, larger);
    }
    out->text = text;
    *capacity = larger;
    return CELLAR_OK;
}

static cellar_status read_stream(FILE *stream, const char *name, prompt *out, cellar_error *error)
{
    size_t capacity = 0;
    cellar_status status = CELLAR_OK;
    while (status == CELLAR_OK && !feof(stream)) {
        if (out->length == capacity && (status = grow(out, &capacity, name, error)) != CELLAR_OK) {
            break;
        }
        errno = 0;
        out->length += fread(out->text + out->length, 1, capacity - out->length, stream);
        if (ferror(stream)) {
            status = report(error, CELLAR_IO, (int64_t)out->length, "%.80s: %s", name,
                            strerror(errno));
        }
    }
    return status;
}

static void drop_line_end(prompt *p)
{
    if (p->length > 0 && p->text[p->length - 1] == '\n') {
        p->length--;
        if (p->length > 0 && p->text[p->length - 1] == '\r') {
            p->length--;
        }
    }
}

static cellar_status copy_text(const char *text, prompt *out, cellar_error *error)
{
    out->length = strlen(text);
    out->text = malloc(out->length + 1);
    if (out->text == NULL) {
        return report(error, CELLAR_NO_MEMORY, -1, "no memory for a prompt of %zu bytes",
                      out->length);
    }
    memcpy(out->text, text, out->length);
    return CELLAR_OK;
}

static cellar_status read_file(const char *path, prompt *out, cellar_error *error)
{
    if (strcmp(path, "-") == 0) {
        return read_stream(stdin, "standard input", out, error);
    }
    FILE *stream = fopen(path, "rb");
    if (stream == NULL) {
        return report(error, CELLAR_IO, -1, "%.80s: %s", path, strerror(errno));
    }
    cellar_status status = read_stream(stream, path, out, error);
    fclose(stream);
    return status;
}

cellar_status prompt_read_exactly(const char *text, const char *path, prompt *out,
                                  cellar_error *error)
{
    *out = (prompt){.text = NULL};
    cellar_status status = text != NULL ? copy_text(text, out, error)
                                        : read_file(path != NULL ? path : "-", out, error);
    if (status != CELLAR_OK) {
        prompt_free(out);
    }
    return status;
}

cellar_status prompt_read(const char *text, const char *path, prompt *out, cellar_error *error)
{
    *out = (prompt){.text = NULL};
    cellar_status status;
    bool is_default = false;
    if (text != NULL) {
        status = copy_text(text, out, error);
    } else if (path != NULL) {
        status = read_file(path, out, error);
        drop_line_end(out);
    } else if (isatty(STDIN_FILENO)) {
        status = CELLAR_OK;
        is_default = true;
    } else {
        status = read_stream(stdin, "standard input", out, error);
        drop_line_end(out);
        is_default = status == CELLAR_OK && out->length == 0;
    }
    if (is_default) {
        prompt_free(out);
        status = copy_text(PROMPT_DEFAULT, out, error);
        out->is_default = true;
    }
    if (status != CELLAR_OK) {
        prompt_free(out);
    }
    return status;
}

void prompt_free(prompt *p)
{
    free(p->text);
    *p = (prompt){.text = NULL};
}
