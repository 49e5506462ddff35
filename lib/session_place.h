/*
 * session_place.h: where the cells of a file land in a pool of a group.
 *
 *     lists       runs over cells of the file, clipped to what is wanted of them
 *     cells       the distinct ones, in the order of their numbers
 *     spans       file cells 0..37 -> cells 320..351, 64..69      none leaves a block of memory
 *
 * First everything that some list needs is added, then cells are chosen and taken, then lists are told in
 * cells of the memory. Cells that are taken here count once; the caller lets them go again when the
 * lists that hold them are in place, or when it gives up.
 */
#ifndef CL_SESSION_PLACE_H
#define CL_SESSION_PLACE_H

#include "session.h"
#include "session_map.h"

/* Which part of a list is wanted: positions from `from` on, and sinks below it. */
typedef struct cl_wanted_part {
    int64_t from;
    uint32_t n_sinks;
} cl_wanted_part;

typedef struct cl_landing {
    cl_group *group;
    uint32_t pool;
    int64_t *wanted; /* [n_wanted] intervals of file cells: first << 32 | how many */
    cl_span *
        spans; /* [n] where they went, rising in the numbers of file cells; made by cl_landing_take */
    uint32_t n_wanted, wanted_capacity, n, capacity;
    uint32_t n_cells; /* wanted in all; valid after cl_landing_sort */
    bool is_taken;
} cl_landing;

/* Add what is wanted of a list. False: no memory. */
bool cl_landing_add(cl_landing *landing, const cl_saved_list *list, const cl_wanted_part *part,
                    cl_alloc *alloc);

/* Sort and join what was added: each cell is wanted once then. */
void cl_landing_sort(cl_landing *landing);

/* Choose and take cells; the pool has as many free. CELLAR_NO_MEMORY: as before. */
cellar_status cl_landing_take(cl_landing *landing, cl_alloc *alloc, cellar_error *error);

/* Let go of the cells that were taken: once each. */
void cl_landing_release(cl_landing *landing);
void cl_landing_free(cl_landing *landing, cl_alloc *alloc);

/* Append what is wanted of a list, told in cells of the memory, to `out`. False: no memory. */
bool cl_landing_tell(const cl_landing *landing, const cl_saved_list *list,
                     const cl_wanted_part *part, cl_runs *out, cl_alloc *alloc);

/*
 * Where cells [first, first + n) of the file went: stretches that cover all of them in order, those that were
 * not wanted with cell CL_NO_CELL. Room for 2n + 1. *at: a span at or before `first`, for the next call.
 */
uint32_t cl_landing_find(const cl_landing *landing, uint32_t first, uint32_t n, uint32_t *at,
                         cl_stretch *out);

#endif /* CL_SESSION_PLACE_H */
