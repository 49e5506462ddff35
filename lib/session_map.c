/*
 * session_map.c: cut at every border, number by first appearance, join again.
 *
 * 1. The borders of all runs, sorted, cut the cells into intervals that every list holds whole or not at
 *    all.
 * 2. Lists are passed over in order; an interval that is met for the first time gets its place. A skip list
 *    (union and find) leads past those that have one, so a prefix that a thousand forks share is
 *    walked once.
 * 3. In the order of their places they become spans: with the number that is known of them, or the next
 *    free one; neighbours in both numberings are one span.
 * 4. Spans are sorted by cell, to be found again.
 */
#include "session_map.h"

#include <string.h>

#include "checked.h"
#include "error.h"
#include "sort.h"

/* What building takes beside the map. */
typedef struct builder {
    int64_t *borders;  /* [n + 1] interval i is cells borders[i] .. borders[i + 1] - 1 */
    uint32_t *met;     /* [n_met] intervals in the order in which they are met */
    uint32_t *next;    /* [n + 1] the next interval without a place, or on the way there */
    uint32_t n, n_met; /* intervals; of these, met */
    size_t n_runs;
} builder;

/* ---- 1. cutting ------------------------------------------------------------------------------ */

static bool get_room(builder *b, const cl_runs *const *lists, size_t n_lists, cl_alloc *alloc)
{
    for (size_t i = 0; i < n_lists; i++)
        b->n_runs += lists[i]->n;
    if (b->n_runs == 0) return true;
    size_t n = 2 * b->n_runs;
    if (n > UINT32_MAX - 1) return false;
    b->borders = cl_alloc_get(alloc, CELLAR_BYTES_SCRATCH, n * sizeof *b->borders);
    b->met = cl_alloc_get(alloc, CELLAR_BYTES_SCRATCH, n * sizeof *b->met);
    b->next = cl_alloc_get(alloc, CELLAR_BYTES_SCRATCH, n * sizeof *b->next);
    return b->borders && b->met && b->next;
}

static void put_room(builder *b, cl_alloc *alloc)
{
    size_t n = 2 * b->n_runs;
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, b->next, n * sizeof *b->next);
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, b->met, n * sizeof *b->met);
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, b->borders, n * sizeof *b->borders);
}

static void cut(builder *b, const cl_runs *const *lists, size_t n_lists)
{
    size_t n = 0, kept = 0;
    for (size_t i = 0; i < n_lists; i++)
        for (uint32_t r = 0; r < lists[i]->n; r++) {
            b->borders[n++] = lists[i]->items[r].cell;
            b->borders[n++] = (int64_t)lists[i]->items[r].cell + lists[i]->items[r].len;
        }
    cl_sort(b->borders, n);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || b->borders[i] != b->borders[kept - 1]) b->borders[kept++] = b->borders[i];
    b->n = n > 0 ? (uint32_t)kept - 1 : 0;
    for (uint32_t i = 0; n > 0 && i <= b->n; i++)
        b->next[i] = i;
}

/* ---- 2. meeting ------------------------------------------------------------------------------ */

static uint32_t find_interval(const builder *b, uint32_t cell)
{
    uint32_t low = 0, high = b->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (b->borders[middle] < (int64_t)cell)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The first interval from i on that was not met; n: none. */
static uint32_t find_unmet(builder *b, uint32_t i)
{
    while (b->next[i] != i) {
        b->next[i] = b->next[b->next[i]];
        i = b->next[i];
    }
    return i;
}

static void meet(builder *b, const cl_runs *const *lists, size_t n_lists)
{
    for (size_t l = 0; l < n_lists; l++)
        for (uint32_t r = 0; r < lists[l]->n; r++) {
            const cl_run *run = &lists[l]->items[r];
            int64_t end = (int64_t)run->cell + run->len;
            uint32_t i = find_unmet(b, find_interval(b, run->cell));
            for (; i < b->n && b->borders[i] < end; i = find_unmet(b, i)) {
                b->met[b->n_met++] = i;
                b->next[i] = i + 1;
            }
        }
}

/* ---- 3. numbering ---------------------------------------------------------------------------- */

static bool add_span(cl_session_map *map, cl_span span, cl_alloc *alloc)
{
    if (map->n > 0) {
        cl_span *last = &map->spans[map->n - 1];
        if (last->cell + last->len == span.cell && last->file + last->len == span.file &&
            (last->file >= map->first_new) == (span.file >= map->first_new)) {
            last->len += span.len;
            return true;
        }
    }
    void *spans = map->spans;
    bool ok = cl_alloc_reserve(alloc, CELLAR_BYTES_SCRATCH, &spans, &map->capacity, map->n + 1ull,
                               sizeof(cl_span));
    map->spans = spans;
    if (ok) map->spans[map->n++] = span;
    return ok;
}

/* An interval of which cells may be in the file already. */
static bool add_known(cl_session_map *map, cl_span whole, const cl_known_cells *known,
                      cl_alloc *alloc)
{
    for (uint32_t i = 0; i < whole.len; i++) {
        uint32_t file = known->file_cell(known->context, whole.cell + i);
        if (file == CL_NO_FILE_CELL)
            file = map->first_new + map->n_cells++;
        else
            map->n_known++;
        if (!add_span(map, (cl_span){whole.cell + i, 1, file}, alloc)) return false;
    }
    return true;
}

static bool number(cl_session_map *map, const builder *b, const cl_known_cells *known,
                   cl_alloc *alloc)
{
    map->first_new = known ? known->first_new : 0;
    for (uint32_t i = 0; i < b->n_met; i++) {
        uint32_t interval = b->met[i];
        cl_span span = {(uint32_t)b->borders[interval],
                        (uint32_t)(b->borders[interval + 1] - b->borders[interval]),
                        map->first_new + map->n_cells};
        bool ok = known ? add_known(map, span, known, alloc) : add_span(map, span, alloc);
        if (!ok) return false;
        if (!known) map->n_cells += span.len;
    }
    return true;
}

/* ---- 4. finding again ------------------------------------------------------------------------- */

static bool sort_spans(cl_session_map *map, cl_alloc *alloc)
{
    if (map->n == 0) return true;
    map->by_cell = cl_alloc_get(alloc, CELLAR_BYTES_SCRATCH, map->n * sizeof *map->by_cell);
    if (!map->by_cell) return false;
    for (uint32_t i = 0; i < map->n; i++)
        map->by_cell[i] = (int64_t)((uint64_t)map->spans[i].cell << 32 | i);
    cl_sort(map->by_cell, map->n);
    return true;
}

cellar_status cl_session_map_make(cl_session_map *map, const cl_runs *const *lists, size_t n_lists,
                                  const cl_known_cells *known, cl_alloc *alloc, cellar_error *error)
{
    builder b = {NULL, NULL, NULL, 0, 0, 0};
    memset(map, 0, sizeof *map);
    bool ok = get_room(&b, lists, n_lists, alloc);
    if (ok) {
        cut(&b, lists, n_lists);
        meet(&b, lists, n_lists);
        ok = number(map, &b, known, alloc) && sort_spans(map, alloc);
    }
    put_room(&b, alloc);
    if (ok) return CELLAR_OK;
    cl_session_map_free(map, alloc);
    return cl_error_no_memory(error, "the cells of a session", b.n_runs * sizeof(cl_span));
}

void cl_session_map_free(cl_session_map *map, cl_alloc *alloc)
{
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, map->by_cell, map->n * sizeof *map->by_cell);
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, map->spans, map->capacity * sizeof *map->spans);
    memset(map, 0, sizeof *map);
}

/* ---- lists, told in cells of the file ---------------------------------------------------------- */

/* Runs that are being told: the last one may still grow. */
typedef struct teller {
    cl_run last;
    uint32_t n; /* runs, the last included */
    cl_file_run_visitor visitor;
    void *context;
} teller;

static void tell(teller *t, cl_run run)
{
    if (t->n > 0 && cl_run_touches(&t->last, &run)) {
        t->last.step = run.pos != t->last.pos;
        cl_run_set_len(&t->last, t->last.len + run.len);
        return;
    }
    if (t->n++ > 0 && t->visitor) t->visitor(t->context, &t->last);
    t->last = run;
}

/* {4}{5, 5} and {4, 5}{5} are the same tokens: a run takes what it can from the next one. */
static void tell_joined(teller *t, cl_run run)
{
    cl_run first = run;
    cl_run_set_len(&first, 1);
    first.step = 1;
    if (t->n == 0 || run.len == 1 || cl_run_touches(&t->last, &run) ||
        !cl_run_touches(&t->last, &first)) {
        tell(t, run);
        return;
    }
    tell(t, first);
    run.pos += (int32_t)run.step;
    run.cell++;
    cl_run_set_len(&run, run.len - 1);
    if (run.len == 1) run.step = 1;
    tell(t, run);
}

/* The span that a held cell lies in. */
static uint32_t find_span(const cl_session_map *map, uint32_t cell)
{
    uint32_t low = 0, high = map->n;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if ((uint32_t)((uint64_t)map->by_cell[middle] >> 32) <= cell)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void tell_run(const cl_session_map *map, const cl_run *run, teller *t)
{
    cl_run piece = *run;
    uint32_t done = 0;
    for (uint32_t at = find_span(map, run->cell); done < run->len; at++) {
        const cl_span *span = &map->spans[(uint32_t)map->by_cell[at]];
        uint32_t in_span = run->cell + done - span->cell;
        uint32_t some = span->len - in_span;
        if (some > run->len - done) some = run->len - done;
        piece.pos = run->pos + (int32_t)(run->step ? done : 0);
        piece.cell = span->file + in_span;
        piece.step = run->step || some == 1;
        cl_run_set_len(&piece, some);
        tell_joined(t, piece);
        done += some;
    }
}

uint32_t cl_session_map_visit(const cl_session_map *map, const cl_runs *list,
                              cl_file_run_visitor visitor, void *context)
{
    teller t = {.visitor = visitor, .context = context};
    for (uint32_t r = 0; r < list->n; r++)
        tell_run(map, &list->items[r], &t);
    if (t.n > 0 && visitor) visitor(context, &t.last);
    return t.n;
}

/* ---- walking over new cells --------------------------------------------------------------------- */

cl_span_walk cl_session_map_walk(const cl_session_map *map)
{
    return (cl_span_walk){map, 0, 0};
}

uint32_t cl_span_walk_next(cl_span_walk *walk, uint32_t most, uint32_t *cell)
{
    const cl_session_map *map = walk->map;
    while (walk->span < map->n && (walk->used == map->spans[walk->span].len ||
                                   map->spans[walk->span].file < map->first_new)) {
        walk->span++;
        walk->used = 0;
    }
    if (walk->span == map->n) return 0;
    const cl_span *span = &map->spans[walk->span];
    uint32_t some = span->len - walk->used;
    if (some > most) some = most;
    *cell = span->cell + walk->used;
    walk->used += some;
    return some;
}
