/*
 * window.c: what a query misses when positions are lost.
 *
 * What a query sees begins ever later as it moves on (sinks apart), so the last lost position decides from
 * where on nothing is missed, and the first lost one that a query sees how far it has to go back.
 */
#include "window.h"

/* The first lost position that a query at q sees and that is not behind it; INT64_MAX: there is none. */
static int64_t first_missed(const cellar_window *window, const cl_runs *lost, int64_t q)
{
    int64_t sink = cl_lost_next(lost, 0);
    if (sink < (int64_t)window->n_sinks && sink < q) return sink;
    int64_t missed = cl_lost_next(lost, cl_window_first(window, q));
    return missed < q ? missed : INT64_MAX;
}

bool cl_window_misses(const cellar_window *window, const cl_runs *lost, int64_t q)
{
    return lost->n > 0 && first_missed(window, lost, q) != INT64_MAX;
}

int64_t cl_window_go_back(const cellar_window *window, const cl_runs *lost, int64_t q)
{
    int64_t missed = lost->n > 0 ? first_missed(window, lost, q) : INT64_MAX;
    return missed < q ? missed : q; /* all between see it, too */
}

int64_t cl_window_horizon(const cellar_window *window, int64_t k)
{
    int64_t size = window->size;
    if (window->kind == CELLAR_WINDOW_NONE || k < (int64_t)window->n_sinks) return INT64_MAX;
    if (window->kind == CELLAR_WINDOW_STANDARD) return k + size - 1;
    return window->kind == CELLAR_WINDOW_CHUNKED ? k / size * size + size - 1 : k + size / 2;
}
