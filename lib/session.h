/*
 * session.h: what the files of sessions share: a session in memory, and who turns what into bytes.
 *
 *     session_sink.c     bytes on their way to a writer, and their checksum
 *     session_map.c      which cells of the memory are which cells of the file (writing)
 *     session_notes.c    notes and facts; written, read, compared
 *     session_model.c    MODEL: facts, groups and layers; written (session_model_read.c: read, compared)
 *     session_lists.c    SEQUENCES: run lists of sequences and checkpoints; written
 *     session_rows.c     ROWS: copied and converted, both ways
 *     session_stream.c   ROWS: read and summed, on their way into memory
 *     session_write.c    a whole session, from front to back
 *     session_open.c     header, index, notes, logs: checked
 *     session_check.c    CELLS and SEQUENCES: read and held against each other
 *     session_questions.c   what a session is, asked of it
 *     session_load.c     into a memory: its own files are in session_load.h
 *     session_file.c     files of sessions: read, replaced, appended to (files.c: the system's calls)
 *     session_disk.c     saved to and opened by a path
 *     session_journal.c  saving what was added (session_journal_state.c: what is remembered for it)
 *
 * Reading is two things: what is in memory after cl_session_open (everything but rows, checked against
 * each other), and rows, which are checked and copied section by section.
 */
#ifndef CL_SESSION_H
#define CL_SESSION_H

#include "memory.h"
#include "session_format.h"

/* ---- where bytes come from ------------------------------------------------------------------- */

/* All of a session's bytes: at an address, or through a reader. */
typedef struct cl_bytes {
    const unsigned char *address; /* NULL: only through the reader */
    cellar_reader reader;
    bool is_shared; /* several threads may use the reader at once */
    uint64_t size;
} cl_bytes;

/*
 * n bytes at offset (inside the size): in place if they have an address, else read into `buffer` [n].
 * NULL: the reader failed.
 */
const unsigned char *cl_bytes_get(const cl_bytes *bytes, uint64_t offset, size_t n,
                                  unsigned char *buffer);

/* ---- a session in memory --------------------------------------------------------------------- */

/* A list of runs over cells of the file, of one group. */
typedef struct cl_saved_list {
    int32_t lost;  /* behind the last lost position; of a sequence's states: where it began */
    bool has_gaps; /* some of its lost positions are where sinks belong */
    uint32_t n_runs;
    cl_run *runs; /* into cellar_session.runs */
} cl_saved_list;

typedef struct cl_saved_mark {
    int32_t position;
    uint32_t checkpoint;
} cl_saved_mark;

typedef struct cl_saved_checkpoint {
    int32_t position;
    cl_saved_list *lists; /* [n_groups] */
} cl_saved_checkpoint;

typedef struct cl_saved_sequence {
    cellar_seq seq;
    cl_saved_list *lists; /* [n_groups] */
    cl_saved_mark *marks;
    uint32_t n_marks, n_tokens;
    cellar_token *tokens; /* [n_tokens] its log */
} cl_saved_sequence;

/* Cells of a group that a CELLS and a ROWS section hold. */
typedef struct cl_saved_cells {
    uint32_t first, count;
    int32_t *stored_pos, *token; /* [count] */
    cl_point *points;            /* [count] or NULL */
    cl_session_entry rows;
} cl_saved_cells;

typedef struct cl_saved_group {
    cellar_layer_kind kind;
    cellar_window window;
    bool has_points;
    uint32_t n_sections;
    cl_saved_cells *sections; /* [n_sections] ascending, disjoint */
    uint64_t n_cells;         /* over all sections */
    uint64_t cell_bytes;      /* of one cell's rows */
} cl_saved_group;

/* MODEL, decoded. */
typedef struct cl_saved_model {
    uint32_t n_facts, n_groups, n_layers;
    cellar_note *facts;     /* [n_facts] */
    cl_saved_group *groups; /* [n_groups] */
    cellar_layer *layers;   /* [n_layers] factors and state sizes included */
    int32_t *layer_groups;  /* [n_layers] */
    void *numbers;          /* the layers' factors and state sizes */
    size_t numbers_bytes;
} cl_saved_model;

struct cellar_session {
    cl_alloc alloc;
    cl_bytes bytes;
    int file; /* of session_file.c; -1: none */
    cl_session_commit commit;
    bool is_journal;
    uint32_t n_entries;
    cl_session_entry *entries;
    cl_saved_model model;
    uint32_t n_notes, n_sequences, n_checkpoints;
    cellar_note *notes;
    cl_saved_sequence *sequences;
    cl_saved_checkpoint *checkpoints;
    cl_run *runs;         /* [n_runs] of all lists */
    cl_saved_list *lists; /* [n_lists] of all sequences and checkpoints */
    cl_saved_mark *marks; /* [n_marks] of all sequences */
    size_t n_runs, n_lists, n_marks;
    cl_kernels kernels; /* for checksums */
};

/* The sequence of a name; NULL: there is none (session_questions.c). */
const cl_saved_sequence *cl_session_find(const cellar_session *session, cellar_seq seq);

/* ---- reading it ------------------------------------------------------------------------------- */

/*
 * A section's bytes, its checksum compared: in place, or read into a block that *held then has (to be
 * given to cl_session_put_section). CELLAR_CORRUPT, CELLAR_IO, CELLAR_NO_MEMORY.
 */
typedef struct cl_section {
    const unsigned char *bytes;
    size_t size;
    void *held; /* NULL: in place */
} cl_section;

cellar_status cl_session_get_section(const cellar_session *session, cl_alloc *alloc,
                                     const cl_session_entry *entry, cl_section *out,
                                     cellar_error *error);
/* The same without allocating: what has no address is read into buffer [length]. */
cellar_status cl_session_read_section(const cellar_session *session, const cl_session_entry *entry,
                                      unsigned char *buffer, const unsigned char **out,
                                      cellar_error *error);
void cl_session_put_section(cl_alloc *alloc, cl_section *section);

/* CELLS and SEQUENCES of a session whose MODEL is known (session_check.c). */
cellar_status cl_session_read_cells(cellar_session *session, cellar_error *error);
cellar_status cl_session_read_lists(cellar_session *session, cellar_error *error);
void cl_session_free_lists(cellar_session *session);

/* Open what lies at `bytes`; the file, if there is one (-1: none), is the session's from then on. */
cellar_status cl_session_open(const cl_bytes *bytes, int file, const cellar_allocator *allocator,
                              cellar_session **out, cellar_error *error);

#endif /* CL_SESSION_H */
