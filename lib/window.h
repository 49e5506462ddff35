/*
 * window.h: the arithmetic of sliding windows: what a query sees, and what a sequence has lost.
 *
 * A window group gives up cells that have fallen out of the window, the oldest first. What is gone is
 * remembered as one number a sequence, `lost`: positions below it may be missing (sinks are never).
 * The sequence can go on at n if nothing that a query at n sees lies below `lost`. Removing, moving
 * and copying ranges carry the number along; where it cannot be exact it errs on the side of more lost,
 * so the answer is never "yes" when something is missing. Pure functions, tested alone.
 */
#ifndef CL_WINDOW_H
#define CL_WINDOW_H

#include "cellar.h"

/* The smallest position (sinks apart) that a query at q sees, and that any later query does. */
static inline int64_t cl_window_first(const cellar_window *window, int64_t q)
{
    int64_t size = window->size;
    switch (window->kind) {
    case CELLAR_WINDOW_STANDARD:
        return q - size + 1 > 0 ? q - size + 1 : 0;
    case CELLAR_WINDOW_CHUNKED:
        return q / size * size;
    case CELLAR_WINDOW_SYMMETRIC:
        return q - size / 2 > 0 ? q - size / 2 : 0;
    default:
        return 0;
    }
}

/* The largest position that the window lets a query at q see; INT64_MAX: no limit. */
static inline int64_t cl_window_last(const cellar_window *window, int64_t q)
{
    return window->kind == CELLAR_WINDOW_SYMMETRIC ? q + window->size / 2 : INT64_MAX;
}

/* Does the window let a query at q see a key at k? (Causality is asked apart.) */
static inline bool cl_window_sees(const cellar_window *window, int64_t k, int64_t q)
{
    return (k >= cl_window_first(window, q) && k <= cl_window_last(window, q)) ||
           (window->kind != CELLAR_WINDOW_NONE && k < (int64_t)window->n_sinks);
}

/* Is something missing that a query at q sees, when positions below `lost` are? Its own is not. */
static inline bool cl_window_misses(const cellar_window *window, int64_t lost, int64_t q)
{
    int64_t first = cl_window_first(window, q);
    return lost > (int64_t)window->n_sinks && lost > first && first < q;
}

/* The smallest position at which a sequence that lost so much can go on; 0: everywhere. */
int64_t cl_window_rewind_min(const cellar_window *window, int64_t lost);

/* What is lost after [p0, p1) was removed; moved by delta; divided; replaced by another's. */
int64_t cl_window_lost_remove(int64_t lost, int64_t p0, int64_t p1);
int64_t cl_window_lost_shift(int64_t lost, int64_t p0, int64_t p1, int64_t delta);
int64_t cl_window_lost_divide(int64_t lost, int64_t p0, int64_t p1, int64_t divisor);
int64_t cl_window_lost_copy(int64_t to_lost, int64_t from_lost, int64_t p0, int64_t p1);

#endif /* CL_WINDOW_H */
