/*
 * session_journal.h: what a journal remembers of its file.
 *
 * Enough to say of everything that is to be saved whether the file has it already: which cells are which
 * of the file, and the stamps they had when that was so; the bytes of MODEL and NOTES; logs. All of it is
 * of one state of the file (its identity). What a new state will be is put together beside the old one
 * and takes its place when the file has been written, so a failure changes nothing.
 */
#ifndef CL_SESSION_JOURNAL_H
#define CL_SESSION_JOURNAL_H

#include "session_file.h"
#include "session_write.h"

/* Bytes on the heap. */
typedef struct cl_block {
    unsigned char *bytes;
    size_t size;
} cl_block;

/* The log of a sequence, as the file has it. */
typedef struct cl_known_log {
    cellar_seq seq;
    uint32_t part; /* of its sections in the index */
    uint32_t n_tokens;
    const cellar_token *tokens; /* into cl_file_content.tokens */
} cl_known_log;

/* What the file has beside cells. */
typedef struct cl_file_content {
    cl_block model, notes;     /* notes empty: there is no such section */
    cl_session_entry *entries; /* [n_entries] of the index */
    cl_known_log *logs;        /* [n_logs] by the names of their sequences, rising */
    cellar_token *tokens;      /* [n_tokens] of all logs */
    uint32_t n_entries, n_logs;
    uint32_t n_parts; /* sequences that the file has: the bound of `part` */
    size_t n_tokens;
} cl_file_content;

/* Which cells of a group the file has. */
typedef struct cl_file_cells {
    const cl_cells *cells; /* of the memory */
    uint32_t *numbers;     /* [n] of the file; CL_NO_FILE_CELL: none */
    uint64_t *stamps;      /* [n_stamps] when that was so */
    uint32_t n, n_stamps;  /* what is behind is not in the file */
    uint32_t next;         /* numbers from here on are free */
} cl_file_cells;

struct cellar_journal {
    cellar_memory *memory;
    cl_alloc alloc; /* the memory's allocator, with a count of its own */
    char *path;
    size_t path_bytes;
    cl_file_identity identity; /* unknown: nothing of what follows counts */
    cl_file_content content;
    cl_file_cells cells[CL_MAX_GROUPS];
};

/* ---- cells --------------------------------------------------------------------------------------- */

/* What a map has to know of a group. */
cl_known_cells cl_file_cells_known(const cl_file_cells *cells);

/* Room for all cells that the memory has now. False: no memory; nothing changed. */
bool cl_file_cells_reserve(cl_file_cells *cells, cl_alloc *alloc);

/*
 * The file has nothing; and then: it has these cells, those of them that are held, as they are now. There
 * is room.
 */
void cl_file_cells_forget(cl_file_cells *cells, uint32_t next);
void cl_file_cells_add(cl_file_cells *cells, const cl_span *spans, uint32_t n);
void cl_file_cells_free(cl_file_cells *cells, cl_alloc *alloc);

/* ---- the rest ------------------------------------------------------------------------------------ */

void cl_file_content_free(cl_file_content *content, cl_alloc *alloc);

/*
 * MODEL, NOTES and logs as they will be when what `saving` has is saved. False: no memory; nothing is
 * held.
 */
bool cl_file_content_make(cl_file_content *content, const cl_saving *saving, cl_alloc *alloc);

/* Room for the entries; filled in when they are known. False: no memory. */
bool cl_file_content_reserve(cl_file_content *content, uint32_t n_entries, cl_alloc *alloc);

/*
 * All of it from a session that was loaded. False: no memory, or its MODEL is not what the memory would
 * write (rows were converted): nothing is held.
 */
bool cl_file_content_read(cl_file_content *content, const cellar_memory *memory,
                          const cellar_session *session, const cellar_load_options *options,
                          cl_alloc *alloc);

bool cl_block_equal(const cl_block *a, const cl_block *b);

/* The log of a sequence; NULL: the file has no such sequence. */
const cl_known_log *cl_file_content_find(const cl_file_content *content, cellar_seq seq);

#endif /* CL_SESSION_JOURNAL_H */
