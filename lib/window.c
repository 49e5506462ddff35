/*
 * window.c: how `lost` follows the operations on a sequence.
 *
 * `lost` stands for a set of missing positions that lies somewhere in [0, lost). Each function returns a
 * bound for that set after the operation.
 */
#include "window.h"

int64_t cl_window_rewind_min(const cellar_window *window, int64_t lost)
{
    if (lost <= (int64_t)window->n_sinks) return 0;
    int64_t size = window->size;
    switch (window->kind) {
    case CELLAR_WINDOW_STANDARD:
        return lost + size - 1;
    case CELLAR_WINDOW_CHUNKED:
        return (lost + size - 1) / size * size;
    case CELLAR_WINDOW_SYMMETRIC:
        return lost + size / 2;
    default:
        return 0;
    }
}

int64_t cl_window_lost_remove(int64_t lost, int64_t p0, int64_t p1)
{
    return p0 < lost && p1 >= lost ? p0 : lost;
}

int64_t cl_window_lost_shift(int64_t lost, int64_t p0, int64_t p1, int64_t delta)
{
    if (lost <= p0) return lost; /* what moves is all there */
    int64_t end = p1 < lost ? p1 : lost, moved = end + delta;
    int64_t stays = p1 < lost ? lost : p0; /* of what lies below p0 or from p1 on */
    int64_t bound = moved > stays ? moved : stays;
    return bound > 0 ? bound : 0;
}

int64_t cl_window_lost_divide(int64_t lost, int64_t p0, int64_t p1, int64_t divisor)
{
    if (lost <= p0) return lost;
    int64_t end = p1 < lost ? p1 : lost, moved = (end - 1) / divisor + 1;
    int64_t stays = p1 < lost ? lost : p0;
    return moved > stays ? moved : stays;
}

int64_t cl_window_lost_copy(int64_t to_lost, int64_t from_lost, int64_t p0, int64_t p1)
{
    int64_t kept = cl_window_lost_remove(to_lost, p0, p1);
    int64_t copied = from_lost > p0 ? (from_lost < p1 ? from_lost : p1) : 0;
    return kept > copied ? kept : copied;
}
