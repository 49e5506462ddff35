/*
 * relocate.h: held cells get other numbers, and nobody who holds them notices.
 *
 * A relocation is a list of moves: the rows of n held cells from `from` on go to n free cells from `to`
 * on, and every run that covers them, in every sequence and in every checkpoint, leads to the new place.
 * What a sequence holds, at which positions and with which shifts, stays the same; so does what
 * attention computes, bit for bit, because it does not depend on where cells lie.
 *
 * Two halves, as everywhere. cl_relocate_prepare copies the rows, which only writes free cells, and
 * reserves room in the lists; it can fail and leaves no trace. cl_relocate_do edits lists and counts and
 * cannot fail. Settling, compacting and resizing are plans of moves; this is the one place that moves.
 */
#ifndef CL_RELOCATE_H
#define CL_RELOCATE_H

#include "group.h"

typedef struct cl_relocation {
    uint32_t from, to, n;
} cl_relocation;

/* A growing list of moves; its memory is asked for with CELLAR_BYTES_STEP. */
typedef struct cl_relocations {
    cl_relocation *items;
    uint32_t n, capacity;
    uint32_t n_cells; /* sum of their n */
} cl_relocations;

/* Add a move. False: no memory. */
bool cl_relocations_add(cl_relocations *moves, cl_alloc *alloc, uint32_t from, uint32_t to,
                        uint32_t n);
void cl_relocations_free(cl_relocations *moves, cl_alloc *alloc);

/*
 * Copy the rows (or, when the engine keeps them, make room in the list of moves) and reserve. All
 * `from` cells are held, all `to` cells free, none appears twice, and no move leaves a pool; moves are
 * sorted here. CELLAR_NO_MEMORY, CELLAR_IO.
 */
cellar_status cl_relocate_prepare(cl_group *group, cl_relocations *moves, cellar_error *error);

/* Make the moves that were prepared. */
void cl_relocate_do(cl_group *group, const cl_relocations *moves);

/*
 * Every list of runs over a group's cells, by number: first those of sequences, by slot, then those of
 * checkpoints. NULL: none has this number now.
 */
uint32_t cl_relocate_count_lists(const cl_group *group);
cl_runs *cl_relocate_list(const cl_group *group, uint32_t list);

/* Room for n more moves in the list that waits for the engine. CELLAR_NO_MEMORY. */
cellar_status cl_relocate_reserve_moves(cl_group *group, uint64_t n, cellar_error *error);

/* Add one, into that room. */
void cl_relocate_add_move(cl_group *group, uint32_t from, uint32_t to, uint32_t n, cellar_pos turn);

#endif /* CL_RELOCATE_H */
