/*
 * files.h: the system's calls for files, as session_file.c needs them.
 *
 * A path becomes a place: its folder, open, and a name in it. Everything else happens relative to
 * that folder and follows no link in it, so nobody can change in between what the name means.
 * Interrupted calls are made again. Nothing here knows what is in a file.
 *
 * Failures are messages of one form: "cannot <step>: <reason of the system> (<path>)". CELLAR_IO,
 * but for reasons that say that the path is wrong (CELLAR_INVALID) or that there is no memory.
 */
#ifndef CL_FILES_H
#define CL_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "cellar.h"

/* ---- failures -------------------------------------------------------------------------------- */

/* The status that a number of errno stands for. */
cellar_status cl_files_status(int number);

/* A path as messages show it: its end, and *dots before it if that is not all. */
const char *cl_files_shown(const char *path, const char **dots);

cellar_status cl_files_fail(cellar_error *error, cellar_status status, const char *step,
                            const char *path, int number);

/* CELLAR_INVALID: it is no plain file. */
cellar_status cl_files_fail_kind(cellar_error *error, const char *path);

/* ---- names ----------------------------------------------------------------------------------- */

/* A file: its folder, open, and its name there. */
typedef struct cl_place {
    int folder;              /* to be closed */
    const char *path, *name; /* the path is the caller's, the name its end */
} cl_place;

/* The place of a path. A missing folder is `missing`. */
cellar_status cl_files_place(const char *path, cellar_status missing, cl_place *out,
                             cellar_error *error);

/* openat, with flags that make it safe: no link, no waiting for a pipe. < 0: errno says why. */
int cl_files_open_at(int folder, const char *name, int flags, mode_t mode);

/* Whether there is something, and that it is a plain file. */
cellar_status cl_files_look(const cl_place *at, bool *is_there, cellar_error *error);

/* Open what is there, a plain file; another kind is not even opened. *out < 0: it is missing. */
cellar_status cl_files_open(const cl_place *at, int flags, int *out, struct stat *info,
                            cellar_error *error);

/* Whether a name in the folder means the open file. */
bool cl_files_is_named(const cl_place *at, const char *name, int file);

/* Lock a file until it is closed. 0, or why not: EWOULDBLOCK: somebody else has locked it. */
int cl_files_lock(int file);

/* ---- reading and writing --------------------------------------------------------------------- */

/* size bytes at offset; false: errno says why. */
bool cl_files_read(int file, uint64_t offset, void *to, size_t size);

/* Cut a file to so many bytes. */
bool cl_files_cut(int file, uint64_t size);

/* Wait until it is on the disk. `whole`: its times too, not only what reading needs. */
bool cl_files_sync(int file, bool whole);

/* A file that is being written, from `at` on. */
typedef struct cl_output {
    int file;
    int failure; /* the first one, as errno has it; nothing is written after it */
    uint64_t at, n_written;
} cl_output;

/* Write now: a call of the system for each piece. false: out->failure says why. */
bool cl_files_write(cl_output *out, const void *bytes, size_t size);

/* The same as a writer; it is used while `out` stays where it is. */
cellar_writer cl_files_writer(cl_output *out);

/*
 * What became of an output. `status` is what the writer's user returned; a failure of the file goes
 * before it, for here it has a reason.
 */
cellar_status cl_files_end(const cl_output *out, cellar_status status, const char *path,
                           cellar_error *error);

#endif /* CL_FILES_H */
