/*
 * runs.h: one list of runs, the whole of what a sequence is.
 *
 *     positions   0 1 2 3 4 5 6 7 8 9           runs   {pos 0, cell 40, len 6, shift  0}
 *     cells      40 .. .. .. .. 45 7 8 9 10            {pos 6, cell  7, len 4, shift -3}
 *
 * A run says: cells cell..cell+len-1 stand at positions pos, pos+step, ... in this sequence,
 * `shift` away from where their keys were rotated. The list is sorted by position, disjoint (but
 * for tokens that share a position: step 0), and maximal: two neighbours that could be one are one.
 * Everything here is pure arithmetic on the list; nobody counts cells. Calls that add runs need
 * room that was reserved before, so that editing cannot fail.
 */
#ifndef CL_RUNS_H
#define CL_RUNS_H

#include "alloc.h"

/* 16 bytes. */
typedef struct cl_run {
    int32_t pos;       /* of the first cell; >= 0 */
    uint32_t cell;     /* the first of `len` consecutive cells */
    uint32_t len : 31; /* >= 1 */
    uint32_t step : 1; /* 1; or 0: the cells share one position. A run of one cell has step 1 */
    int32_t shift;     /* pos - stored_pos, the same for every cell of the run */
} cl_run;

typedef struct cl_runs {
    cl_run *items;
    uint32_t n, capacity;
} cl_runs;

/* Set the length; 31 bits are enough because a memory has at most 2^30 cells. */
static inline void cl_run_set_len(cl_run *run, uint32_t len)
{
    run->len = len & 0x7fffffffu;
}

/* Position of the last cell. */
static inline int32_t cl_run_last(const cl_run *run)
{
    return run->step ? run->pos + (int32_t)(run->len - 1) : run->pos;
}

/* Make room for n runs in all. */
bool cl_runs_reserve(cl_runs *runs, cl_alloc *alloc, uint64_t n);
void cl_runs_free(cl_runs *runs, cl_alloc *alloc);

/* The first run that ends at or after `pos`; n when there is none. O(log n). */
uint32_t cl_runs_find(const cl_runs *runs, int64_t pos);

/*
 * Make a boundary at `pos`: returns the index of the first run that begins at or after it,
 * splitting a run in two if need be (room for one more). `pos` may lie outside the list.
 */
uint32_t cl_runs_cut(cl_runs *runs, int64_t pos);

/* Remove runs [first, last). */
void cl_runs_erase(cl_runs *runs, uint32_t first, uint32_t last);

/* Insert n runs before index `at` (room for n more); `from` is not part of the list. */
void cl_runs_insert(cl_runs *runs, uint32_t at, const cl_run *from, uint32_t n);

/* Add a run behind the last one, joined with it if they touch (room for one more). */
void cl_runs_append(cl_runs *runs, cl_run run);

/* Join runs at - 1 and `at` if both exist and touch; returns whether they were joined. */
bool cl_runs_join(cl_runs *runs, uint32_t at);

/*
 * Make the list maximal again after an edit at index `at`. A cut can leave a run of one cell, which
 * may touch its other neighbour too where tokens share a position; so three places are looked at.
 */
void cl_runs_mend(cl_runs *runs, uint32_t at);

/* Whether b continues a: the two can be one run. */
bool cl_run_touches(const cl_run *a, const cl_run *b);

/* Do two lists have the same cells at the same positions? Shifts are not compared. */
bool cl_runs_equal(const cl_runs *a, const cl_runs *b);

/*
 * The part of a run that lies in [p0, p1): false if none. Bounds are 64-bit so that "to the end"
 * can be written as INT64_MAX.
 */
bool cl_run_clip(const cl_run *run, int64_t p0, int64_t p1, cl_run *out);

#endif /* CL_RUNS_H */
