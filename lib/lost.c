/*
 * lost.c: a set of positions as a list of runs.
 *
 * What moves is first copied behind the list, then cut out and added again piece by piece; so moving needs
 * room for the list twice.
 */
#include "lost.h"

#include <assert.h>
#include <string.h>

static cl_run make_run(int64_t p0, int64_t p1)
{
    cl_run run = {.pos = (int32_t)p0, .cell = (uint32_t)p0, .len = 1, .step = 1, .shift = 0};
    cl_run_set_len(&run, (uint32_t)(p1 - p0));
    return run;
}

int64_t cl_lost_next(const cl_runs *lost, int64_t p)
{
    uint32_t i = cl_runs_find(lost, p);
    if (i == lost->n) return INT64_MAX;
    return lost->items[i].pos > p ? lost->items[i].pos : p;
}

void cl_lost_add(cl_runs *lost, int64_t p0, int64_t p1)
{
    if (p0 >= p1) return;
    /* Runs [first, last) overlap the new one or touch it. */
    uint32_t first = cl_runs_find(lost, p0 - 1), last = first;
    while (last < lost->n && lost->items[last].pos <= p1)
        last++;
    if (first < last) {
        int64_t end = (int64_t)cl_run_last(&lost->items[last - 1]) + 1;
        if (lost->items[first].pos < p0) p0 = lost->items[first].pos;
        if (end > p1) p1 = end;
        cl_runs_erase(lost, first, last);
    }
    cl_run run = make_run(p0, p1);
    cl_runs_insert(lost, first, &run, 1);
}

void cl_lost_remove(cl_runs *lost, int64_t p0, int64_t p1)
{
    if (p0 >= p1 || !cl_lost_any(lost, p0, p1)) return;
    uint32_t first = cl_runs_cut(lost, p0);
    uint32_t last = p1 == INT64_MAX ? lost->n : cl_runs_cut(lost, p1);
    cl_runs_erase(lost, first, last);
}

/* Cut out [p0, p1) and add it again, moved by delta, or divided where divisor is not 0. */
static void move(cl_runs *lost, cl_run *room, int64_t p0, int64_t p1, int64_t delta,
                 int64_t divisor)
{
    uint32_t n = 0;
    for (uint32_t i = cl_runs_find(lost, p0); i < lost->n; i++)
        if (cl_run_clip(&lost->items[i], p0, p1, &room[n])) n++;
    cl_lost_remove(lost, p0, p1);
    for (uint32_t i = 0; i < n; i++) {
        int64_t first = room[i].pos, last = cl_run_last(&room[i]);
        first = divisor ? first / divisor : first + delta;
        last = divisor ? last / divisor : last + delta;
        cl_lost_add(lost, first > 0 ? first : 0, last + 1);
    }
}

void cl_lost_shift(cl_runs *lost, int64_t p0, int64_t p1, int64_t delta)
{
    if (!cl_lost_any(lost, p0, p1)) return;
    assert(lost->capacity >= 2 * (uint64_t)lost->n + 4);
    move(lost, lost->items + lost->n + 2, p0, p1, delta, 0);
}

void cl_lost_divide(cl_runs *lost, int64_t p0, int64_t p1, int64_t divisor)
{
    if (!cl_lost_any(lost, p0, p1)) return;
    assert(lost->capacity >= 2 * (uint64_t)lost->n + 4);
    move(lost, lost->items + lost->n + 2, p0, p1, 0, divisor);
}

void cl_lost_copy(cl_runs *to, const cl_runs *from, int64_t p0, int64_t p1)
{
    cl_lost_remove(to, p0, p1);
    cl_run part;
    for (uint32_t i = cl_runs_find(from, p0); i < from->n; i++)
        if (cl_run_clip(&from->items[i], p0, p1, &part))
            cl_lost_add(to, part.pos, cl_run_last(&part) + 1LL);
}
