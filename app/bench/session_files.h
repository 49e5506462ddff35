/*
 * session_files.h: the folder in which saving and loading are measured, and what files cost without sessions.
 *
 * The folder is made for one measurement and is removed with all that is in it, whatever happened meanwhile.
 * Plain reading and writing of as many bytes is what the disk and the system can do: what a session is
 * held against.
 */
#ifndef APP_BENCH_SESSION_FILES_H
#define APP_BENCH_SESSION_FILES_H

#include <stddef.h>

#include "cellar.h"

typedef struct session_files {
    char folder[480];              /* "": none was made */
    char session[512], plain[512]; /* in it */
} session_files;

/*
 * Make a folder in `parent` with room for `bytes`. CELLAR_IO, with the reason; also when the disk has not
 * that much. To be removed whatever is returned.
 */
cellar_status session_files_make(const char *parent, uint64_t bytes, session_files *out,
                                 cellar_error *error);

/* Remove the folder and what is in it. CELLAR_IO: something stayed, and the message says where. */
cellar_status session_files_remove(session_files *files, cellar_error *error);

/* The size of a file; CELLAR_IO. */
cellar_status session_files_size(const char *path, size_t *size, cellar_error *error);

/* Read or write as many bytes, 1 MiB at a time; what is written is a new file, and synced. CELLAR_IO. */
cellar_status session_files_read(const char *path, void *to, size_t size, cellar_error *error);
cellar_status session_files_write(const char *path, const void *from, size_t size,
                                  cellar_error *error);

/* Take a file out of the system's page cache, as far as the system does what it is asked. */
cellar_status session_files_drop(const char *path, cellar_error *error);

#endif /* APP_BENCH_SESSION_FILES_H */
