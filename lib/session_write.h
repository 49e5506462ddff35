/*
 * session_write.h: the parts of writing that a whole file and a journal share.
 *
 * A saving is everything that has to be known before the first byte is written: who is saved, which cells
 * get which numbers. Its sections are put into a sink one after the other, and noted in its entries.
 */
#ifndef CL_SESSION_WRITE_H
#define CL_SESSION_WRITE_H

#include "session.h"
#include "session_lists.h"
#include "session_sink.h"

typedef struct cl_saving {
    const cellar_memory *memory;
    const cellar_save_options *options;
    cl_alloc alloc; /* the memory's allocator; its own count, since the memory is not changed */
    cl_selection selection;
    const cellar_log *
        *logs; /* [selection.n_sequences] a sequence's, or NULL; NULL: there are none */
    cl_session_map maps[CL_MAX_GROUPS];
    uint32_t n_maps;
    cl_session_entry *entries; /* [n_entries] of the index, in order */
    uint32_t n_entries, capacity;
} cl_saving;

/*
 * Check the options and choose what is saved; maps are made by cl_saving_map. On failure nothing is held.
 * CELLAR_INVALID, CELLAR_BUSY, CELLAR_UNSUPPORTED, CELLAR_NOT_FOUND, CELLAR_NO_MEMORY.
 */
cellar_status cl_saving_open(cl_saving *saving, const cellar_memory *memory,
                             const cellar_save_options *options, cellar_error *error);
void cl_saving_close(cl_saving *saving);

/*
 * Number the cells of all groups, instead of what they were numbered before; known [n_groups], or NULL.
 * CELLAR_NO_MEMORY.
 */
cellar_status cl_saving_map(cl_saving *saving, const cl_known_cells *known, cellar_error *error);

/* ---- sections ---------------------------------------------------------------------------------- */

/* A section begins: align, and remember where. Then put its bytes, then end it. */
void cl_saving_begin_section(cl_sink *sink, cl_session_entry *entry, cl_session_kind kind,
                             uint32_t part, uint32_t first, uint32_t count);

/* Notes its length and checksum in the index. CELLAR_NO_MEMORY; CELLAR_IO: the sink has failed. */
cellar_status cl_saving_end_section(cl_saving *saving, cl_sink *sink, cl_session_entry *entry,
                                    cellar_error *error);

cellar_status cl_saving_put_model(cl_saving *saving, cl_sink *sink, cellar_error *error);
/* Nothing if there are none. */
cellar_status cl_saving_put_notes(cl_saving *saving, cl_sink *sink, cellar_error *error);
cellar_status cl_saving_put_sequences(cl_saving *saving, cl_sink *sink, cellar_error *error);

/* Tokens from..n of the log of a sequence (by its place). */
cellar_status cl_saving_put_log(cl_saving *saving, uint32_t sequence, uint32_t from, cl_sink *sink,
                                cellar_error *error);

/* CELLS and ROWS of the new cells of a group. CELLAR_IO: a store failed, or the sink. */
cellar_status cl_saving_put_cells(cl_saving *saving, uint32_t group, cl_sink *sink,
                                  cellar_error *error);

/* The index of all entries; *commit says where it is, and how long the file. */
cellar_status cl_saving_put_index(cl_saving *saving, cl_sink *sink, cl_session_commit *commit,
                                  cellar_error *error);

/* A header with two commit records (either may be NULL: unused). */
void cl_session_put_header(unsigned char header[CL_SESSION_HEADER], const cl_session_commit *a,
                           const cl_session_commit *b, const cl_kernels *kernels);

/* One commit record. */
void cl_session_put_commit(unsigned char record[CL_SESSION_COMMIT], const cl_session_commit *commit,
                           const cl_kernels *kernels);

/* ---- a whole session ----------------------------------------------------------------------------- */

/* Number the cells anew and find out how long the file will be. */
cellar_status cl_saving_measure(cl_saving *saving, cl_session_commit *measured,
                                cellar_error *error);
/* Write it, as it was measured. */
cellar_status cl_saving_write(cl_saving *saving, const cl_session_commit *measured,
                              const cellar_writer *writer, cellar_error *error);

#endif /* CL_SESSION_WRITE_H */
