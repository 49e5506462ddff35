/*
 * session_place.c: cells of a file, given cells of a pool.
 *
 * While lists are added a landing is a number of intervals; sorting makes them distinct and rising. Cells
 * are then asked of placement.c for all of them at once, so a session that was one run in another memory
 * is one run here where there is a stretch for it; intervals and stretches are cut where either ends, and at
 * the blocks of memory.
 */
#include "session_place.h"

#include "error.h"
#include "sort.h"

/* ---- what is wanted -------------------------------------------------------------------------- */

/* An interval as one number that sorts by its first cell: both parts have 31 bits. */
static int64_t interval(uint32_t file, uint32_t len)
{
    return (int64_t)((uint64_t)file << 32 | len);
}

static uint32_t first_of(int64_t item)
{
    return (uint32_t)((uint64_t)item >> 32);
}

static uint32_t end_of(int64_t item)
{
    return first_of(item) + (uint32_t)item;
}

/* Let an interval reach to the end of another; false: there is a gap between them, or it begins before. */
static bool extend(int64_t *last, int64_t next)
{
    if (first_of(next) < first_of(*last) || first_of(next) > end_of(*last)) return false;
    if (end_of(next) > end_of(*last))
        *last = interval(first_of(*last), end_of(next) - first_of(*last));
    return true;
}

static bool add(cl_landing *landing, int64_t item, cl_alloc *alloc)
{
    /* Lists pass over cells in order: most runs go on where one ended. */
    if (landing->n_wanted > 0 && extend(&landing->wanted[landing->n_wanted - 1], item)) return true;
    void *wanted = landing->wanted;
    bool ok = cl_alloc_reserve(alloc, CELLAR_BYTES_SCRATCH, &wanted, &landing->wanted_capacity,
                               landing->n_wanted + 1ull, sizeof *landing->wanted);
    landing->wanted = wanted;
    if (ok) landing->wanted[landing->n_wanted++] = item;
    return ok;
}

/* The two parts of a run that may be wanted: among the sinks, and from the window on. */
static uint32_t clip(const cl_run *run, const cl_wanted_part *part, cl_run out[2])
{
    uint32_t n = 0;
    int64_t sinks = part->n_sinks < part->from ? part->n_sinks : part->from;
    if (sinks > 0) n += cl_run_clip(run, 0, sinks, &out[n]);
    n += cl_run_clip(run, part->from > 0 ? part->from : 0, INT64_MAX, &out[n]);
    return n;
}

bool cl_landing_add(cl_landing *landing, const cl_saved_list *list, const cl_wanted_part *part,
                    cl_alloc *alloc)
{
    for (uint32_t i = 0; i < list->n_runs; i++) {
        cl_run parts[2];
        uint32_t n = clip(&list->runs[i], part, parts);
        for (uint32_t k = 0; k < n; k++)
            if (!add(landing, interval(parts[k].cell, parts[k].len), alloc)) return false;
    }
    return true;
}

void cl_landing_sort(cl_landing *landing)
{
    int64_t *wanted = landing->wanted;
    uint32_t n = 0;
    cl_sort(wanted, landing->n_wanted);
    landing->n_cells = 0;
    for (uint32_t i = 0; i < landing->n_wanted; i++)
        if (n == 0 || !extend(&wanted[n - 1], wanted[i])) wanted[n++] = wanted[i];
    landing->n_wanted = n;
    for (uint32_t i = 0; i < n; i++)
        landing->n_cells += (uint32_t)wanted[i];
}

/* ---- cells ----------------------------------------------------------------------------------- */

/* Intervals and stretches, cut where either ends and at blocks. Returns how many spans that makes. */
static uint32_t cut_spans(const cl_landing *landing, const cl_stretch *stretches, cl_span *out)
{
    uint32_t n = 0, used = 0;
    for (uint32_t i = 0; i < landing->n_wanted; i++) {
        cl_span rest = {.len = (uint32_t)landing->wanted[i], .file = first_of(landing->wanted[i])};
        while (rest.len > 0) {
            uint32_t cell = stretches->cell + used, left = stretches->len - used;
            uint32_t in_block = CL_BLOCK - cell % CL_BLOCK;
            uint32_t len = rest.len < left ? rest.len : left;
            if (len > in_block) len = in_block;
            if (out) out[n] = (cl_span){.cell = cell, .len = len, .file = rest.file};
            n++;
            rest.file += len;
            rest.len -= len;
            used += len;
            if (used < stretches->len) continue;
            stretches++;
            used = 0;
        }
    }
    return n;
}

static cellar_status place(cl_landing *landing, cl_stretch *stretches, cl_alloc *alloc,
                           cellar_error *error)
{
    cl_cells *cells = &landing->group->sequences.cells;
    cl_request request = {UINT32_MAX, landing->pool, CL_NO_CELL, landing->n_cells};
    uint32_t n_stretches = cl_placement_choose(cells, &request, stretches);
    uint32_t n = cut_spans(landing, stretches, NULL), capacity = 0;
    void *spans = NULL;
    if (!cl_alloc_reserve(alloc, CELLAR_BYTES_SCRATCH, &spans, &capacity, n, sizeof(cl_span)))
        return cl_error_no_memory(error, "placing a session", n * sizeof(cl_span));
    (void)cut_spans(landing, stretches, spans);
    landing->spans = spans;
    landing->n = n;
    landing->capacity = capacity;
    for (uint32_t s = 0; s < n_stretches; s++)
        cl_cells_take(cells, stretches[s].cell, stretches[s].len, 1);
    landing->is_taken = true;
    return CELLAR_OK;
}

cellar_status cl_landing_take(cl_landing *landing, cl_alloc *alloc, cellar_error *error)
{
    if (landing->n_cells == 0) return CELLAR_OK;
    size_t bytes = landing->n_cells * sizeof(cl_stretch); /* of cells that there are */
    cl_stretch *stretches = cl_alloc_get(alloc, CELLAR_BYTES_SCRATCH, bytes);
    if (!stretches) return cl_error_no_memory(error, "placing a session", bytes);
    cellar_status status = place(landing, stretches, alloc, error);
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, stretches, bytes);
    return status;
}

void cl_landing_release(cl_landing *landing)
{
    for (uint32_t i = 0; i < landing->n && landing->is_taken; i++)
        cl_cells_release(&landing->group->sequences.cells, landing->spans[i].cell,
                         landing->spans[i].len);
    landing->is_taken = false;
}

void cl_landing_free(cl_landing *landing, cl_alloc *alloc)
{
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, landing->spans,
                 landing->capacity * sizeof *landing->spans);
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, landing->wanted,
                 landing->wanted_capacity * sizeof *landing->wanted);
    *landing = (cl_landing){.group = landing->group, .pool = landing->pool};
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* The span that holds a cell of the file, which is wanted. */
static const cl_span *find_span(const cl_landing *landing, uint32_t file)
{
    uint32_t low = 0, high = landing->n;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (landing->spans[middle].file <= file)
            low = middle;
        else
            high = middle;
    }
    return &landing->spans[low];
}

static bool tell_run(const cl_landing *landing, cl_run run, cl_runs *out, cl_alloc *alloc)
{
    const cl_span *span = find_span(landing, run.cell);
    for (uint32_t rest = run.len; rest > 0; span++) {
        uint32_t skip = run.cell - span->file, n = span->len - skip;
        if (n > rest) n = rest;
        cl_run part = run;
        part.cell = span->cell + skip;
        cl_run_set_len(&part, n);
        if (n == 1) part.step = 1;
        if (!cl_runs_reserve(out, alloc, out->n + 1ull)) return false;
        cl_runs_append(out, part);
        run.cell += n;
        if (run.step) run.pos += (int32_t)n;
        rest -= n;
    }
    return true;
}

bool cl_landing_tell(const cl_landing *landing, const cl_saved_list *list,
                     const cl_wanted_part *part, cl_runs *out, cl_alloc *alloc)
{
    for (uint32_t i = 0; i < list->n_runs; i++) {
        cl_run parts[2];
        uint32_t n = clip(&list->runs[i], part, parts);
        for (uint32_t k = 0; k < n; k++)
            if (!tell_run(landing, parts[k], out, alloc)) return false;
    }
    return true;
}

uint32_t cl_landing_find(const cl_landing *landing, uint32_t first, uint32_t n, uint32_t *at,
                         cl_stretch *out)
{
    uint32_t n_out = 0, end = first + n;
    while (*at < landing->n && landing->spans[*at].file + landing->spans[*at].len <= first)
        (*at)++;
    for (uint32_t i = *at; first < end; i++) {
        const cl_span *span = i < landing->n ? &landing->spans[i] : NULL;
        uint32_t begin = span && span->file < end ? span->file : end;
        if (begin > first) {
            out[n_out++] = (cl_stretch){CL_NO_CELL, begin - first};
            first = begin;
        }
        if (!span || first >= end) break;
        uint32_t skip = first - span->file, len = span->len - skip;
        if (len > end - first) len = end - first;
        out[n_out++] = (cl_stretch){span->cell + skip, len};
        first += len;
    }
    return n_out;
}
