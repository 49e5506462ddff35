/*
 * runs.c: finding, splitting and joining runs in one sorted array.
 *
 * A plain array: inserting in the middle moves 16 bytes a run, and lists are short because
 * sequences are placed in long stretches (placement.c).
 */
#include "runs.h"

#include <assert.h>
#include <string.h>

bool cl_runs_reserve(cl_runs *runs, cl_alloc *alloc, uint64_t n)
{
    void *items = runs->items;
    bool ok = cl_alloc_reserve(alloc, CELLAR_BYTES_RUNS, &items, &runs->capacity, n,
                               sizeof(cl_run));
    runs->items = items;
    return ok;
}

void cl_runs_free(cl_runs *runs, cl_alloc *alloc)
{
    cl_alloc_put(alloc, CELLAR_BYTES_RUNS, runs->items, runs->capacity * sizeof(cl_run));
    memset(runs, 0, sizeof *runs);
}

uint32_t cl_runs_find(const cl_runs *runs, int64_t pos)
{
    uint32_t low = 0, high = runs->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (cl_run_last(&runs->items[middle]) < pos)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint32_t cl_runs_cut(cl_runs *runs, int64_t pos)
{
    uint32_t i = cl_runs_find(runs, pos);
    if (i == runs->n || runs->items[i].pos >= pos) return i;
    /* Only a run of step 1 can begin before `pos` and end at or after it. */
    assert(runs->n < runs->capacity);
    cl_run *run = &runs->items[i];
    uint32_t kept = (uint32_t)(pos - run->pos);
    cl_run rest = *run;
    rest.pos += (int32_t)kept;
    rest.cell += kept;
    cl_run_set_len(&rest, rest.len - kept);
    cl_run_set_len(run, kept);
    cl_runs_insert(runs, i + 1, &rest, 1);
    return i + 1;
}

void cl_runs_erase(cl_runs *runs, uint32_t first, uint32_t last)
{
    if (first == last) return; /* the list may have no items at all */
    memmove(runs->items + first, runs->items + last, (runs->n - last) * sizeof(cl_run));
    runs->n -= last - first;
}

void cl_runs_insert(cl_runs *runs, uint32_t at, const cl_run *from, uint32_t n)
{
    if (n == 0) return;
    assert(runs->n + n <= runs->capacity);
    memmove(runs->items + at + n, runs->items + at, (runs->n - at) * sizeof(cl_run));
    memcpy(runs->items + at, from, n * sizeof(cl_run));
    runs->n += n;
}

bool cl_run_touches(const cl_run *a, const cl_run *b)
{
    if (a->cell + a->len != b->cell || a->shift != b->shift) return false;
    if (b->pos == cl_run_last(a) + 1) return (a->step || a->len == 1) && (b->step || b->len == 1);
    return b->pos == a->pos && (!a->step || a->len == 1) && (!b->step || b->len == 1);
}

/* b continues a: make a both. */
static void merge(cl_run *a, const cl_run *b)
{
    a->step = b->pos != a->pos;
    cl_run_set_len(a, a->len + b->len);
}

void cl_runs_append(cl_runs *runs, cl_run run)
{
    if (runs->n > 0 && cl_run_touches(&runs->items[runs->n - 1], &run)) {
        merge(&runs->items[runs->n - 1], &run);
        return;
    }
    assert(runs->n < runs->capacity);
    runs->items[runs->n++] = run;
}

bool cl_runs_join(cl_runs *runs, uint32_t at)
{
    if (at == 0 || at >= runs->n) return false;
    cl_run *a = &runs->items[at - 1], *b = &runs->items[at];
    if (!cl_run_touches(a, b)) return false;
    merge(a, b);
    cl_runs_erase(runs, at, at + 1);
    return true;
}

void cl_runs_mend(cl_runs *runs, uint32_t at)
{
    cl_runs_join(runs, at + 1);
    cl_runs_join(runs, at);
    if (at > 0) cl_runs_join(runs, at - 1);
}

/* Position of the i-th cell of a run. */
static int64_t pos_at(const cl_run *run, uint32_t i)
{
    return run->pos + (int64_t)(run->step ? i : 0);
}

bool cl_runs_equal(const cl_runs *a, const cl_runs *b)
{
    /*
     * Where tokens share a position the same cells can stand in two ways ({4, 5}{5} or {4}{5, 5}), both
     * maximal; so cells are compared, as many at once as both lists have in a run.
     */
    uint32_t i = 0, k = 0, in_a = 0, in_b = 0;
    while (i < a->n && k < b->n) {
        const cl_run *x = &a->items[i], *y = &b->items[k];
        if (pos_at(x, in_a) != pos_at(y, in_b) || x->cell + in_a != y->cell + in_b) return false;
        uint32_t left_a = x->len - in_a, left_b = y->len - in_b;
        uint32_t n = left_a < left_b ? left_a : left_b;
        if (x->step != y->step) n = 1;
        in_a = left_a == n ? 0 : in_a + n;
        in_b = left_b == n ? 0 : in_b + n;
        i += in_a == 0;
        k += in_b == 0;
    }
    return i == a->n && k == b->n;
}

bool cl_run_clip(const cl_run *run, int64_t p0, int64_t p1, cl_run *out)
{
    int64_t first = run->pos, last = cl_run_last(run);
    if (p0 >= p1 || last < p0 || first >= p1) return false;
    *out = *run;
    if (!run->step) return true;
    if (first < p0) {
        uint32_t dropped = (uint32_t)(p0 - first);
        out->pos += (int32_t)dropped;
        out->cell += dropped;
        cl_run_set_len(out, out->len - dropped);
    }
    if (last >= p1) cl_run_set_len(out, out->len - (uint32_t)(last - p1 + 1));
    return true;
}
