/*
 * support_folder.h: a folder of its own for a test of files, and what is written there.
 *
 *     cmocka_unit_test_setup_teardown(test, folder_set_up, folder_tear_down)
 *
 * Setting up makes the folder; tearing down removes what lies in it and fails if a descriptor was
 * left open. Names are relative to the folder.
 */
#ifndef SUPPORT_FOLDER_H
#define SUPPORT_FOLDER_H

#include <stddef.h>

#include "cellar.h"

extern char folder_name[64]; /* its path */

int folder_set_up(void **state);
int folder_tear_down(void **state);

const char *folder_path(const char *name);

/* Run f (or NULL) for every name; how many there are. */
unsigned folder_for_each(void (*f)(const char *name, void *context), void *context);
void folder_remove(const char *name, void *context);
void folder_expect_names(unsigned n);

void folder_make_file(const char *name, const void *bytes, size_t size);
/* Through cl_file_open; for free(). */
unsigned char *folder_read(const char *name, size_t *size);
void folder_expect_bytes(const char *name, const void *bytes, size_t size);
void folder_expect_text(const char *name, const char *text);

/* A status that was returned, its error, and what they must be: `text` is part of the message. */
void folder_expect_failure(const cellar_error *error, cellar_status got, cellar_status expected,
                           const char *text);

/* Bytes that are written in pieces. */
typedef struct folder_content {
    const unsigned char *bytes;
    size_t size, piece;   /* piece 0: all at once */
    cellar_status status; /* returned at the end */
    int signal;           /* raised at the end; 0: none */
    void (*at_end)(void); /* called before, or NULL */
} folder_content;

folder_content folder_text(const char *text);

/* A cl_file_fill. */
cellar_status folder_fill(void *content, const cellar_writer *writer, cellar_error *error);

/* cl_file_replace; and the same where it must succeed. */
cellar_status folder_replace(const char *path, const folder_content *content, cellar_error *error);
void folder_save_text(const char *name, const char *text);

/* For free(). Always the same. */
unsigned char *folder_random_bytes(size_t size);

#endif /* SUPPORT_FOLDER_H */
