/*
 * support_folder.c: a folder of its own for a test of files, and what is written there.
 *
 * Failures of the folder itself are failures of the test (cmocka). Paths are in a few static buffers
 * in turn, so several may be used in one call.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "support_folder.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "error.h"
#include "session_file.h"

char folder_name[64];

static int descriptors; /* open when the test began */

/* ---- the folder ------------------------------------------------------------------------------ */

static int count_descriptors(void)
{
    int n = 0;
    for (int i = 0; i < 256; i++)
        n += fcntl(i, F_GETFD) != -1;
    return n;
}

int folder_set_up(void **state)
{
    (void)state;
    strcpy(folder_name, "/tmp/cellar-test-XXXXXX");
    if (!mkdtemp(folder_name)) return -1;
    descriptors = count_descriptors();
    return 0;
}

unsigned folder_for_each(void (*f)(const char *name, void *context), void *context)
{
    unsigned n = 0;
    DIR *stream = opendir(folder_name);
    assert_non_null(stream);
    for (struct dirent *entry; (entry = readdir(stream));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        n++;
        if (f) f(entry->d_name, context);
    }
    closedir(stream);
    return n;
}

const char *folder_path(const char *name)
{
    static char paths[4][512];
    static unsigned turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder_name, name);
    return path;
}

void folder_remove(const char *name, void *context)
{
    (void)context;
    if (unlink(folder_path(name)) != 0) rmdir(folder_path(name));
}

int folder_tear_down(void **state)
{
    (void)state;
    const int left = count_descriptors();
    folder_for_each(folder_remove, NULL);
    rmdir(folder_name);
    if (left != descriptors) print_error("%d descriptors are left open\n", left - descriptors);
    return left == descriptors ? 0 : -1;
}

void folder_expect_names(unsigned n)
{
    assert_int_equal(folder_for_each(NULL, NULL), n);
}

void folder_make_file(const char *name, const void *bytes, size_t size)
{
    const int file = open(folder_path(name), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(file >= 0 && write(file, bytes, size) == (ssize_t)size);
    close(file);
}

unsigned char *folder_read(const char *name, size_t *size)
{
    cl_file_source source;
    cellar_error error = {.message = ""};
    const cellar_status status = cl_file_open(folder_path(name), &source, &error);
    if (status != CELLAR_OK) fail_msg("%s: %s", name, error.message);
    const cellar_reader reader = cl_file_reader(&source);
    unsigned char *bytes = malloc((size_t)reader.size + 1);
    assert_non_null(bytes);
    assert_true(reader.read(reader.context, 0, bytes, (size_t)reader.size));
    assert_false(reader.read(reader.context, reader.size, bytes + reader.size, 1)); /* its end */
    cl_file_close(source.file);
    *size = (size_t)reader.size;
    return bytes;
}

void folder_expect_bytes(const char *name, const void *bytes, size_t size)
{
    size_t found_size;
    unsigned char *found = folder_read(name, &found_size);
    assert_int_equal(found_size, size);
    assert_memory_equal(found, bytes, size);
    free(found);
}

void folder_expect_failure(const cellar_error *error, cellar_status got, cellar_status expected,
                           const char *text)
{
    if (got != expected || error->status != expected || !strstr(error->message, text))
        fail_msg("status %d, \"%s\"; must be %d with \"%s\"", got, error->message, expected, text);
}

/* ---- what is written ------------------------------------------------------------------------- */

cellar_status folder_fill(void *context, const cellar_writer *writer, cellar_error *error)
{
    const folder_content *c = context;
    for (size_t at = 0; at < c->size;) {
        const size_t rest = c->size - at, n = c->piece && c->piece < rest ? c->piece : rest;
        if (!writer->write(writer->context, c->bytes + at, n))
            CL_FAIL(error, CELLAR_IO, -1, "the writer failed");
        at += n;
    }
    if (c->at_end) c->at_end();
    if (c->signal) raise(c->signal);
    if (c->status != CELLAR_OK) CL_FAIL(error, c->status, 7, "a reason of its own");
    return CELLAR_OK;
}

cellar_status folder_replace(const char *path, const folder_content *c, cellar_error *error)
{
    folder_content copy = *c;
    return cl_file_replace(path, folder_fill, &copy, NULL, NULL, error);
}

folder_content folder_text(const char *text)
{
    return (folder_content){.bytes = (const unsigned char *)text, .size = strlen(text)};
}

void folder_save_text(const char *name, const char *text)
{
    const folder_content c = folder_text(text);
    cellar_error error = {.message = ""};
    if (folder_replace(folder_path(name), &c, &error) != CELLAR_OK) fail_msg("%s", error.message);
}

void folder_expect_text(const char *name, const char *text)
{
    folder_expect_bytes(name, text, strlen(text));
}

unsigned char *folder_random_bytes(size_t size)
{
    unsigned char *bytes = malloc(size);
    assert_non_null(bytes);
    uint32_t x = 1;
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)((x = x * 1664525 + 1013904223) >> 24);
    return bytes;
}
