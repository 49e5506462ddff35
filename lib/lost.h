/*
 * lost.h: the positions that a sequence has lost behind a window.
 *
 *     lost   {pos 4, len 60} {pos 90, len 2}       positions 4..63, 90 and 91
 *
 * A window group gives up cells that have fallen out of sight, the oldest first; which positions that
 * were is kept, so that every question has an exact answer. It is a set, written as a list of runs whose
 * cell is their position and whose shift is 0, so that neighbours which touch become one: most sequences
 * need one run, however much they have lost. Removing, moving, dividing and copying ranges do to the set
 * what they do to the positions. Pure functions on the list; calls that can make it longer need room that
 * was reserved before.
 */
#ifndef CL_LOST_H
#define CL_LOST_H

#include "runs.h"

/* Behind the last lost position; 0: none is lost. */
static inline int64_t cl_lost_end(const cl_runs *lost)
{
    return lost->n > 0 ? (int64_t)cl_run_last(&lost->items[lost->n - 1]) + 1 : 0;
}

/* The smallest lost position that is at least p; INT64_MAX: there is none. */
int64_t cl_lost_next(const cl_runs *lost, int64_t p);

/* Is a position of [p0, p1) lost? */
static inline bool cl_lost_any(const cl_runs *lost, int64_t p0, int64_t p1)
{
    return cl_lost_next(lost, p0) < p1;
}

/* A removal and then a move have room if the list has room for as many runs as this in all. */
static inline uint64_t cl_lost_room(const cl_runs *lost)
{
    return lost->n > 0 ? 2 * (uint64_t)lost->n + 6 : 0;
}

/* [p0, p1) is lost, or no longer; room for one more run. */
void cl_lost_add(cl_runs *lost, int64_t p0, int64_t p1);
void cl_lost_remove(cl_runs *lost, int64_t p0, int64_t p1);

/* Those in [p0, p1) move by delta (below 0 they are forgotten), or are divided. */
void cl_lost_shift(cl_runs *lost, int64_t p0, int64_t p1, int64_t delta);
void cl_lost_divide(cl_runs *lost, int64_t p0, int64_t p1, int64_t divisor);

/* [p0, p1) of `to` becomes that of `from`; room for from->n + 1 more runs. */
void cl_lost_copy(cl_runs *to, const cl_runs *from, int64_t p0, int64_t p1);

#endif /* CL_LOST_H */
