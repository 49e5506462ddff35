/*
 * session_file.h: plain files: read, replaced as a whole, appended to.
 *
 * The only place in the library that knows of files. A path names a plain file in a folder: the
 * folder is opened, and everything else happens relative to it and follows no link, so nobody can
 * change in between what a name means. Links, folders, pipes and devices are refused.
 *
 * Replacing: a temporary file beside it is written, synced, renamed over the old one, and the folder
 * synced. Until the rename the old file stands, whatever happens; a process that is killed leaves
 * its temporary file, which the next save of the same file removes.
 *
 * Appending keeps to docs/session-format.md: what is there stays untouched until what is new is on
 * the disk and a commit record says so.
 *
 * Reading is by calls and not by a mapping: who cuts a file short meanwhile makes a read fail, not the
 * process; and setting up the pages of a mapping, each used once, takes longer than copying them (three
 * times as long for the whole load on the virtual machine where it was measured).
 *
 * Failures are CELLAR_IO with the step, the reason of the system and the path, but for those named
 * below.
 */
#ifndef CL_SESSION_FILE_H
#define CL_SESSION_FILE_H

#include "cellar.h"
#include "kernels.h"
#include "session_format.h"

/*
 * Which file it was, and in which state: enough to know it again before something is appended. The
 * checksum of an index covers those of all sections, so it stands for all that the file holds.
 */
typedef struct cl_file_identity {
    bool is_known; /* false: the rest means nothing */
    uint64_t device, inode;
    uint32_t index_checksum;
    cl_session_commit commit; /* the one that counts */
    unsigned char header[CL_SESSION_HEADER];
} cl_file_identity;

struct cl_place; /* files.h */

/* ---- reading --------------------------------------------------------------------------------- */

/* A file that is open for reading. */
typedef struct cl_file_source {
    int file;
    uint64_t size, device, inode;
} cl_file_source;

/* CELLAR_NOT_FOUND; CELLAR_INVALID: no plain file, or no name that a file can have. */
cellar_status cl_file_open(const char *path, cl_file_source *out, cellar_error *error);

/* The same of a name in a folder that is open. */
cellar_status cl_file_open_at(const struct cl_place *at, cl_file_source *out, cellar_error *error);

void cl_file_close(int file); /* of a source; < 0 is allowed */

/* Reads it while it is open; several threads may do so at once. */
cellar_reader cl_file_reader(const cl_file_source *source);

/* What a source is, whose commit record that counts is `commit`, read and checked. */
void cl_file_identify(const cl_file_source *source, const cl_session_commit *commit,
                      cl_file_identity *out);

/* ---- replacing ------------------------------------------------------------------------------- */

/*
 * Writes the whole of a file, in large pieces: each is a call of the system. A failure of the writer
 * is reported by who called.
 */
typedef cellar_status cl_file_fill(void *context, const cellar_writer *writer, cellar_error *error);

/*
 * Put what `fill` writes in the place of a file, or leave the file as it is. identity (may be NULL):
 * what the file is now. *n_written (may be NULL): its bytes. CELLAR_INVALID as above; what `fill`
 * returns. One failure comes too late to leave the old file: that of syncing the folder. The message
 * says so.
 */
cellar_status cl_file_replace(const char *path, cl_file_fill *fill, void *context,
                              cl_file_identity *identity, uint64_t *n_written, cellar_error *error);

/* The same of a name in a folder that is open. */
cellar_status cl_file_replace_at(const struct cl_place *at, cl_file_fill *fill, void *context,
                                 cl_file_identity *identity, uint64_t *n_written,
                                 cellar_error *error);

/* If this is the name of a temporary file that a killed process left: remove it. */
void cl_file_clear_temporary(const struct cl_place *at);

/* ---- appending ------------------------------------------------------------------------------- */

/*
 * Writes what is new, from byte commit->length of the file on. *commit is the one that counts; on
 * success it is the next one, but for its generation.
 */
typedef cellar_status cl_file_add(void *context, const cellar_writer *writer,
                                  cl_session_commit *commit, cellar_error *error);

/*
 * Append what `add` writes to the file that *identity describes, and commit it; *identity is then
 * the new state. CELLAR_MISMATCH: there is no file, or another one, or in another state: it was not
 * touched. CELLAR_BUSY: another process is appending. Whatever fails, the old session stands; if it
 * is not certain which one the disk has, *identity is unknown afterwards.
 */
cellar_status cl_file_append(const char *path, const cl_kernels *kernels, cl_file_add *add,
                             void *context, cl_file_identity *identity, uint64_t *n_written,
                             cellar_error *error);

#endif /* CL_SESSION_FILE_H */
