/*
 * window.h: the arithmetic of sliding windows: what a query sees, and what it misses.
 *
 * A window group gives up cells that have fallen out of the window, the oldest first; lost.h keeps which
 * positions that were. A sequence can go on at n if nothing that a query at n sees is lost. Sinks are not
 * given up, but a shift or a division can bring a gap to where sinks belong: then nothing goes on behind
 * it. Pure functions, tested alone.
 */
#ifndef CL_WINDOW_H
#define CL_WINDOW_H

#include "lost.h"

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

/* Is something lost that a query at q sees? What stands at q or behind it is not its past. */
bool cl_window_misses(const cellar_window *window, const cl_runs *lost, int64_t q);

/*
 * q if a query there misses nothing; else a smaller position, below which is the largest one where that is
 * so, or which is it.
 */
int64_t cl_window_go_back(const cellar_window *window, const cl_runs *lost, int64_t q);

/* The last position at which a query sees a key at k, or would if it is seen at all; INT64_MAX: always. */
int64_t cl_window_horizon(const cellar_window *window, int64_t k);

#endif /* CL_WINDOW_H */
