/*
 * session_lists.h: who is saved, and the run lists of all of it: SEQUENCES.
 *
 * A selection names the sequences, in the order of their names, and the checkpoints that they have, in the
 * order in which they are first named: the order of the file, and the order in which cells get their
 * numbers.
 */
#ifndef CL_SESSION_LISTS_H
#define CL_SESSION_LISTS_H

#include "memory.h"
#include "session_map.h"
#include "session_sink.h"

typedef struct cl_selection {
    const cellar_memory *memory;
    int64_t *sequences;    /* [n_sequences] names, rising */
    uint32_t *checkpoints; /* [n_checkpoints] slots, in the order of the file */
    uint32_t *numbers;     /* [memory->checkpoints.n] a slot's place in `checkpoints` */
    uint32_t n_sequences, capacity, n_checkpoints;
} cl_selection;

/*
 * The sequences given, or all. CELLAR_NOT_FOUND (error->at: the sequence), CELLAR_INVALID,
 * CELLAR_NO_MEMORY; then nothing is held.
 */
cellar_status cl_selection_make(cl_selection *selection, const cellar_memory *memory,
                                const cellar_seq *sequences, uint32_t n_sequences, cl_alloc *alloc,
                                cellar_error *error);
void cl_selection_free(cl_selection *selection, cl_alloc *alloc);

/* The place of a sequence; n_sequences: it is not selected. */
uint32_t cl_selection_find(const cl_selection *selection, cellar_seq seq);

/* Number the cells of one group. known as for cl_session_map_make. */
cellar_status cl_selection_map(const cl_selection *selection, uint32_t group,
                               const cl_known_cells *known, cl_session_map *map, cl_alloc *alloc,
                               cellar_error *error);

/* SEQUENCES; maps [n_groups]. */
void cl_selection_put(const cl_selection *selection, const cl_session_map *maps, cl_sink *sink);

#endif /* CL_SESSION_LISTS_H */
