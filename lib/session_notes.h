/*
 * session_notes.h: lists of named values: notes, and facts about the model.
 *
 * Both are written, read and compared alike. A list that was read is one block of memory, with names that
 * end with NUL.
 */
#ifndef CL_SESSION_NOTES_H
#define CL_SESSION_NOTES_H

#include "session_sink.h"

/* Names and values as cellar_note says, no name twice? `what`: "note" or "fact". CELLAR_INVALID,
 * CELLAR_NO_MEMORY. */
cellar_status cl_notes_check(const cellar_note *notes, uint32_t n, const char *what,
                             cl_alloc *alloc, cellar_error *error);

/* A count, then the notes. */
void cl_notes_put(cl_sink *sink, const cellar_note *notes, uint32_t n);

/*
 * Read such a list; `base` is where the cursor's first byte `begin` lies in the file. CELLAR_CORRUPT
 * (error->at: offset), CELLAR_NO_MEMORY. On success *notes is the caller's (NULL if there are none).
 */
cellar_status cl_notes_read(cl_cursor *cursor, const unsigned char *begin, uint64_t base,
                            const char *what, cl_alloc *alloc, cellar_note **notes, uint32_t *n,
                            cellar_error *error);
void cl_notes_free(cellar_note *notes, uint32_t n, cl_alloc *alloc);

/* CELLAR_MISMATCH unless both have the same names with the same values, in whatever order. */
cellar_status cl_notes_compare(const cellar_note *saved, uint32_t n_saved,
                               const cellar_note *wanted, uint32_t n_wanted, cellar_error *error);

#endif /* CL_SESSION_NOTES_H */
