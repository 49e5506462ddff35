/*
 * check.h: the parts of cellar_check.
 *
 *   check.c        the tables, run lists, counts, pools, hints and claims of one set of sequences
 *   check_step.c   who else holds cells: checkpoints and the open step; what an abort gives back
 *
 * Each part returns CELLAR_CORRUPT with the place and the two figures that disagree. Nothing is
 * changed. `counted` is an array of a number for each cell: the holders found so far.
 */
#ifndef CL_CHECK_H
#define CL_CHECK_H

#include "memory.h"

/*
 * A stretch of cells, as a run or a pin says: inside the group, of one pool. `owner` is for the
 * message. The cells' counts are raised by one.
 */
cellar_status cl_check_run(const cl_cells *cells, const cl_run *run, uint32_t pool,
                           const char *owner, int64_t number, uint32_t *counted,
                           cellar_error *error);

/* Count what checkpoints and the open step hold in a group. */
cellar_status cl_check_count_others(const cellar_memory *memory, const cl_group *group,
                                    uint32_t *counted, cellar_error *error);

/* The bookkeeping of the open step in a group; of a group without a step: that nothing is left. */
cellar_status cl_check_step(const cellar_memory *memory, const cl_group *group,
                            cellar_error *error);

/* The slots of the checkpoints: those that are held are filled in, the others are empty. */
cellar_status cl_check_checkpoints(const cellar_memory *memory, cellar_error *error);

#endif /* CL_CHECK_H */
