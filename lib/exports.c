/*
 * exports.c: where tokens go and which cells they may look at, for engines that keep K and V in
 * tensors of their own: streams, rows, page tables, row moves. (Masks: exports_mask.c.)
 *
 * Cells are rows. What a dense engine needs beside their numbers is how many of them its kernels
 * have to walk: n_kv, the distance from a pool's first cell to its last held one. It is found by
 * going down the free map from the pool's end. Page tables follow the runs: a run is consecutive
 * cells, so it is whole pages but for its ends. Nothing here writes anything but the caller's
 * arrays, and these only once it is sure that the call succeeds.
 */
#include "exports.h"

#include <string.h>

#include "error.h"

/* ---- what is asked about --------------------------------------------------------------------- */

static cellar_status check_layer(const cellar_memory *memory, uint32_t layer, cellar_error *error)
{
    CL_TRY(cl_memory_check(memory, error));
    if (layer >= memory->n_layers)
        CL_FAIL(error, CELLAR_INVALID, layer, "layer %u: the memory has %u", layer,
                memory->n_layers);
    if (memory->layers[layer].kind != CELLAR_LAYER_ATTENTION)
        CL_FAIL(error, CELLAR_INVALID, layer, "layer %u does not attend: it has no exports", layer);
    return CELLAR_OK;
}

cellar_status cl_exports_open(const cellar_memory *memory, uint32_t ubatch, uint32_t layer,
                              cl_export *out, cellar_error *error)
{
    CL_TRY(check_layer(memory, layer, error));
    const cl_step *step = &memory->step;
    if (!step->is_open) CL_FAIL(error, CELLAR_INVALID, -1, "no step is open");
    if (ubatch >= step->n_ubatches)
        CL_FAIL(error, CELLAR_INVALID, ubatch, "micro-batch %u: the step has %u", ubatch,
                step->n_ubatches);
    const cl_layer *its = &memory->layers[layer];
    *out = (cl_export){memory,
                       step,
                       its,
                       &memory->groups[its->group],
                       ubatch,
                       cl_step_first(step, ubatch),
                       cl_step_count(step, ubatch)};
    return CELLAR_OK;
}

/* ---- streams --------------------------------------------------------------------------------- */

#define POOLS_AT_ONCE 16384u /* a map of them takes 2 KiB of the stack */

static uint32_t pool_of(const cl_export *export, uint32_t token)
{
    if (export->group->sequences.cells.n_pools == 1) return 0;
    return export->step->members[cl_exports_member(export, token)].pool;
}

/* The first token from `from` on that lies in another pool than `from` does. */
static uint32_t end_of_pool(const cl_export *export, uint32_t from)
{
    uint32_t end = export->first + export->n_tokens, pool = pool_of(export, from);
    while (from < end && pool_of(export, from) == pool)
        from++;
    return from;
}

/* Do the tokens of each pool lie together? */
static bool are_together(const cl_export *export)
{
    uint32_t n_pools = export->group->sequences.cells.n_pools;
    uint32_t end = export->first + export->n_tokens;
    uint64_t met[POOLS_AT_ONCE / 64];
    for (uint32_t base = 0; base < n_pools && n_pools > 1; base += POOLS_AT_ONCE) {
        memset(met, 0, sizeof met);
        for (uint32_t token = export->first; token < end; token = end_of_pool(export, token)) {
            uint32_t pool = pool_of(export, token) - base;
            if (pool >= POOLS_AT_ONCE) continue;
            if (met[pool / 64] >> (pool % 64) & 1) return false;
            met[pool / 64] |= UINT64_C(1) << (pool % 64);
        }
    }
    return true;
}

static uint32_t first_of_pool(const cl_cells *cells, uint32_t pool)
{
    return cells->pools[pool].first_block * CL_BLOCK;
}

static uint32_t cells_of_pool(const cl_cells *cells, uint32_t pool)
{
    return (cells->pools[pool].end_block - cells->pools[pool].first_block) * CL_BLOCK;
}

/* One behind the last held cell of a pool; where it begins if it holds none. */
static uint32_t end_of_held(const cl_cells *cells, uint32_t pool)
{
    const cl_pool *its = &cells->pools[pool];
    for (uint32_t block = its->end_block; block-- > its->first_block;) {
        if (cells->pool_of[block] != pool) continue;
        uint32_t first = block * CL_BLOCK;
        uint32_t taken = ~(uint32_t)(cells->free_map[first / 64] >> (first % 64));
        /* Cells at the end of a pool that do not count are never free, but nobody holds them. */
        for (uint32_t i = CL_BLOCK; taken && i-- > 0;)
            if (taken >> i & 1 && cells->refs[first + i] > 0) return first + i + 1;
    }
    return its->first_block * CL_BLOCK;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t cells_of_largest_pool(const cl_cells *cells)
{
    uint32_t largest = 0;
    for (uint32_t pool = 0; pool < cells->n_pools; pool++)
        largest = larger(largest, cells_of_pool(cells, pool));
    return largest;
}

/*
 * Cells of the step that a later micro-batch has given up again are held by nobody, but its earlier
 * ones look at them.
 */
static void cover_step(const cl_export *export, cl_export_streams *streams)
{
    const cl_group *group = export->group;
    if (!group->reuses_cells) return;
    for (uint32_t token = 0; token < export->step->n_tokens; token++) {
        uint32_t first = 0;
        if (!streams->is_whole)
            first = first_of_pool(&group->sequences.cells, pool_of(export, token));
        streams->cover = larger(streams->cover, group->cells_of[token] + 1 - first);
    }
}

void cl_exports_streams(const cl_export *export, cl_export_streams *streams)
{
    const cl_cells *cells = &export->group->sequences.cells;
    uint32_t end = export->first + export->n_tokens;
    *streams = (cl_export_streams){.is_whole = !are_together(export)};
    if (streams->is_whole) {
        streams->n = 1;
        streams->limit = cells->n;
        for (uint32_t pool = 0; pool < cells->n_pools; pool++)
            streams->cover = larger(streams->cover, end_of_held(cells, pool));
        cover_step(export, streams);
        return;
    }
    streams->limit = cells_of_largest_pool(cells);
    for (uint32_t token = export->first; token < end; token = end_of_pool(export, token)) {
        uint32_t pool = pool_of(export, token);
        streams->cover = larger(streams->cover,
                                end_of_held(cells, pool) - first_of_pool(cells, pool));
        streams->n++;
    }
    cover_step(export, streams);
}

uint32_t cl_exports_first_cell(const cl_export *export, const cl_export_streams *streams,
                               uint32_t n_kv, uint32_t token)
{
    const cl_cells *cells = &export->group->sequences.cells;
    if (streams->is_whole) return 0;
    /* A small pool at the end: n_kv cells must not reach past the last row of the engine's tensors. */
    return smaller(first_of_pool(cells, pool_of(export, token)), cells->n - n_kv);
}

static uint32_t pad_to(uint32_t n, uint32_t pad, uint32_t limit)
{
    uint64_t padded = ((uint64_t)n + pad - 1) / pad * pad;
    return padded < limit ? (uint32_t)padded : limit;
}

static cellar_status check_extent(uint32_t pad, const cellar_extent *extent, cellar_error *error)
{
    if (!extent) CL_FAIL(error, CELLAR_INVALID, -1, "extent is NULL");
    if (pad == 0) CL_FAIL(error, CELLAR_INVALID, 0, "pad is 0: give 1 for no padding");
    return CELLAR_OK;
}

static cellar_stream stream_at(const cl_export *export, const cl_export_streams *streams,
                               uint32_t n_kv, uint32_t token)
{
    const cl_cells *cells = &export->group->sequences.cells;
    if (streams->is_whole) return (cellar_stream){0, 0, cells->n, 0, export->n_tokens};
    uint32_t pool = pool_of(export, token);
    return (cellar_stream){pool, cl_exports_first_cell(export, streams, n_kv, token),
                           cells_of_pool(cells, pool), token - export->first,
                           end_of_pool(export, token) - token};
}

cellar_status cellar_export_extent(const cellar_memory *memory, uint32_t ubatch, uint32_t layer,
                                   uint32_t pad, cellar_extent *extent, cellar_stream *streams,
                                   uint32_t capacity, cellar_error *error)
{
    cl_export export;
    cl_export_streams its;
    CL_TRY(cl_exports_open(memory, ubatch, layer, &export, error));
    CL_TRY(check_extent(pad, extent, error));
    if (capacity > 0 && !streams)
        CL_FAIL(error, CELLAR_INVALID, capacity, "streams is NULL, and there is room for %u",
                capacity);
    cl_exports_streams(&export, &its);
    if (capacity > 0 && its.n > capacity)
        CL_FAIL(error, CELLAR_INVALID, its.n, "there are %u streams, and room for %u", its.n,
                capacity);
    *extent = (cellar_extent){its.n, pad_to(its.cover, pad, its.limit)};
    uint32_t token = export.first;
    for (uint32_t i = 0; i < its.n && capacity > 0; i++) {
        streams[i] = stream_at(&export, &its, extent->n_kv, token);
        token += streams[i].n_tokens;
    }
    return CELLAR_OK;
}

cellar_status cellar_export_largest(const cellar_memory *memory, uint32_t layer, uint32_t pad,
                                    cellar_extent *extent, cellar_error *error)
{
    CL_TRY(check_layer(memory, layer, error));
    CL_TRY(check_extent(pad, extent, error));
    const cl_cells *cells = &memory->groups[memory->layers[layer].group].sequences.cells;
    cellar_split split = memory->rules.split;
    uint32_t n_streams = smaller(cells->n_pools, memory->rules.n_ubatch);
    bool is_scattered = split == CELLAR_SPLIT_SIMPLE && cells->n_pools > 1;
    *extent = (cellar_extent){split == CELLAR_SPLIT_BY_SEQUENCE ? 1 : n_streams,
                              is_scattered ? cells->n : cells_of_largest_pool(cells)};
    return CELLAR_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

cellar_status cellar_export_rows(const cellar_memory *memory, uint32_t ubatch, uint32_t layer,
                                 int64_t *rows, cellar_error *error)
{
    cl_export export;
    CL_TRY(cl_exports_open(memory, ubatch, layer, &export, error));
    if (!rows) CL_FAIL(error, CELLAR_INVALID, -1, "rows is NULL");
    for (uint32_t i = 0; i < export.n_tokens; i++)
        rows[i] = export.group->cells_of[export.first + i];
    return CELLAR_OK;
}

cellar_status cellar_export_elements(const cellar_memory *memory, uint32_t ubatch, uint32_t layer,
                                     int64_t *elements, cellar_error *error)
{
    cl_export export;
    CL_TRY(cl_exports_open(memory, ubatch, layer, &export, error));
    if (!elements) CL_FAIL(error, CELLAR_INVALID, -1, "elements is NULL");
    if (export.layer->v_in_k)
        CL_FAIL(error, CELLAR_INVALID, layer, "layer %u keeps no V: it is part of K", layer);
    int64_t n_cells = export.group->sequences.cells.n;
    int64_t n = (int64_t) export.layer->n_kv_heads * export.layer->v_size;
    for (uint32_t i = 0; i < export.n_tokens; i++, elements += n)
        for (int64_t j = 0, at = export.group->cells_of[export.first + i]; j < n;
             j++, at += n_cells)
            elements[j] = at;
    return CELLAR_OK;
}

/* ---- what a sequence holds ------------------------------------------------------------------- */

/* How many pending cells there are up to and with this one, which stands at `pos`. */
static uint32_t count_pending(const cl_runs *pending, cellar_pos pos, uint32_t cell)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < pending->n; i++) {
        const cl_run *run = &pending->items[i];
        uint32_t in_run = cell - run->cell; /* huge when the cell lies before */
        bool is_here = run->pos <= pos && pos <= cl_run_last(run) && in_run < run->len;
        if (is_here) return n + in_run + 1;
        n += run->len;
    }
    return n;
}

cl_export_held cl_exports_held(const cl_export *export, uint32_t member, uint32_t n_segments)
{
    const cl_step *step = export->step;
    const cl_group *group = export->group;
    const cl_participant *participant = &group->participants[member];
    cl_export_held held = {&group->sequences.table.items[participant->slot].runs,
                           &participant->pending, 0};
    const cellar_segment *segments = step->segments + step->segment_begin[export->ubatch];
    for (uint32_t s = n_segments; s-- > 0;) {
        uint32_t token = export->first + segments[s].first;
        if (!cl_exports_has_member(step, token, member)) continue;
        token += segments[s].n_tokens - 1;
        held.n_pending = count_pending(held.pending, step->positions[token],
                                       group->cells_of[token]);
        break;
    }
    return held;
}

/* ---- shifts ---------------------------------------------------------------------------------- */

/* The first run that a token sees whose keys are rotated for another position; NULL: none. */
static const cl_run *find_shifted(const cl_export *export, uint32_t token)
{
    const cl_group *group = export->group;
    const cl_participant *participant = &group->participants[cl_exports_member(export, token)];
    const cl_runs *runs = &group->sequences.table.items[participant->slot].runs;
    int64_t first = cl_window_first(&group->window, export->step->positions[token]);
    uint32_t i = 0;
    for (; i < runs->n && runs->items[i].pos < (int64_t)group->window.n_sinks; i++)
        if (runs->items[i].shift != 0) return &runs->items[i];
    uint32_t seen = cl_runs_find(runs, first);
    for (i = larger(i, seen); i < runs->n; i++)
        if (runs->items[i].shift != 0) return &runs->items[i];
    return NULL;
}

cellar_status cl_exports_check_shifts(const cl_export *export, cellar_error *error)
{
    if (export->memory->ropes[export->layer->rope].n_pairs == 0) return CELLAR_OK;
    /* Later tokens of a sequence see no more of its past than its first one does. */
    uint32_t last = UINT32_MAX, end = export->first + export->n_tokens;
    for (uint32_t token = export->first; token < end; token++) {
        uint32_t member = cl_exports_member(export, token);
        if (member == last) continue;
        last = member;
        const cl_run *run = find_shifted(export, token);
        if (!run) continue;
        cellar_seq seq = export->step->members[member].id;
        CL_FAIL_BECAUSE(error, CELLAR_REFUSED, CELLAR_REASON_SHIFTED, run->pos,
                        "sequence %d: keys from position %d on are rotated for %d positions "
                        "before: abort, call cellar_settle, apply its moves, and begin again",
                        (int)seq, (int)run->pos, (int)run->shift);
    }
    return CELLAR_OK;
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* Pages of one segment while its runs are walked. */
typedef struct paging {
    uint32_t page_size;
    int64_t first, sinks_end; /* seen: positions from `first` on, and those below sinks_end */
    uint32_t n_pages;         /* of this segment so far */
    uint32_t page, fill;      /* the page being filled, and how many of its cells are there */
    bool is_broken, is_seen;  /* of that page: cells are missing before `fill`; some are seen */
    int32_t broken_at;        /* a position in it */
    uint32_t *indices;        /* where to write; NULL: only count */
} paging;

/* The page is complete, or the sequence goes on elsewhere. False: it is needed, but not whole. */
static bool close_page(paging *p, bool is_last)
{
    bool is_whole = !p->is_broken && (p->fill == p->page_size || is_last);
    bool is_seen = p->is_seen && p->fill > 0;
    if (is_seen && !is_whole) return false;
    if (is_seen) {
        if (p->indices) p->indices[p->n_pages] = p->page;
        p->n_pages++;
    }
    p->is_broken = p->is_seen = false;
    if (!is_last) p->fill = 0;
    return true;
}

/* How many cells of a run can be passed over: whole pages of which nothing is seen. */
static uint32_t count_unseen(const paging *p, const cl_run *run)
{
    if (run->pos >= p->first || run->pos < p->sinks_end) return 0;
    int64_t n = run->len;
    if (run->step && p->first - run->pos < n) n = p->first - run->pos;
    return (uint32_t)n / p->page_size * p->page_size;
}

/* Move the beginning of a run by n cells. */
static void advance(cl_run *run, uint32_t n)
{
    run->cell += n;
    if (run->step) run->pos += (int32_t)n;
    cl_run_set_len(run, run->len - n);
}

static bool add_run(paging *p, cl_run run)
{
    while (run.len > 0) {
        uint32_t offset = run.cell % p->page_size;
        bool goes_on = p->fill > 0 && offset == p->fill && run.cell / p->page_size == p->page;
        if (!goes_on) {
            if (!close_page(p, false)) return false;
            if (offset == 0) advance(&run, count_unseen(p, &run));
            if (run.len == 0) break;
            p->page = run.cell / p->page_size;
            p->fill = run.cell % p->page_size;
            p->is_broken = p->fill > 0;
        }
        uint32_t n = smaller(run.len, p->page_size - p->fill);
        int64_t last = run.step ? run.pos + (int64_t)n - 1 : run.pos;
        if (last >= p->first || run.pos < p->sinks_end) p->is_seen = true;
        if (p->is_seen) p->broken_at = run.pos;
        p->fill += n;
        advance(&run, n);
        if (p->fill == p->page_size && run.len > 0 && !close_page(p, false)) return false;
    }
    return true;
}

/* The pages of one segment, *last_length cells in the last of them. False: not whole, in order. */
static bool page_segment(const cl_export *export, uint32_t segment, paging *p,
                         uint32_t *last_length)
{
    const cl_step *step = export->step;
    uint32_t n_segments = step->segment_begin[export->ubatch + 1] -
                          step->segment_begin[export->ubatch];
    uint32_t token = export->first +
                     step->segments[step->segment_begin[export->ubatch] + segment].first;
    cl_export_held held = cl_exports_held(export, cl_exports_member(export, token),
                                          export->layer->is_causal ? segment + 1 : n_segments);
    p->first = cl_window_first(&export->group->window, step->positions[token]);
    p->sinks_end = export->group->window.n_sinks;
    for (uint32_t i = 0; i < held.runs->n; i++)
        if (!add_run(p, held.runs->items[i])) return false;
    for (uint32_t i = 0; i < held.pending->n && held.n_pending > 0; i++) {
        cl_run run = held.pending->items[i];
        cl_run_set_len(&run, smaller(run.len, held.n_pending));
        held.n_pending -= run.len;
        if (!add_run(p, run)) return false;
    }
    *last_length = p->fill;
    return close_page(p, true);
}

/* Count the pages of all segments, or, when the arrays are given, write them. */
static cellar_status page_segments(const cl_export *export, uint32_t page_size, uint32_t *indptr,
                                   uint32_t *indices, uint32_t *last_length, uint64_t *n_pages,
                                   cellar_error *error)
{
    const cl_step *step = export->step;
    uint32_t begin = step->segment_begin[export->ubatch];
    uint32_t n_segments = step->segment_begin[export->ubatch + 1] - begin;
    *n_pages = 0;
    for (uint32_t s = 0; s < n_segments; s++) {
        paging p = {.page_size = page_size, .indices = indices ? indices + *n_pages : NULL};
        uint32_t length;
        if (!page_segment(export, s, &p, &length))
            CL_FAIL_BECAUSE(error, CELLAR_REFUSED, CELLAR_REASON_SCATTERED, p.broken_at,
                            "sequence %d does not fill whole pages of %u cells near position %d: "
                            "use a page size of 1, or cellar_compact between steps",
                            (int)step->segments[begin + s].seq, page_size, (int)p.broken_at);
        if (indices) {
            indptr[s] = (uint32_t)*n_pages;
            last_length[s] = length;
        }
        *n_pages += p.n_pages;
    }
    if (indices) indptr[n_segments] = (uint32_t)*n_pages;
    return CELLAR_OK;
}

cellar_status cellar_export_pages(const cellar_memory *memory, uint32_t ubatch, uint32_t layer,
                                  uint32_t page_size, uint32_t *indptr, uint32_t *indices,
                                  uint32_t capacity, uint32_t *last_length, cellar_error *error)
{
    cl_export export;
    uint64_t n_pages;
    CL_TRY(cl_exports_open(memory, ubatch, layer, &export, error));
    if (!indptr || !last_length || (!indices && capacity > 0))
        CL_FAIL(error, CELLAR_INVALID, -1, "indptr, indices or last_length is NULL");
    uint32_t n_cells = export.group->sequences.cells.n;
    if (page_size == 0 || n_cells % page_size != 0)
        CL_FAIL(error, CELLAR_INVALID, page_size, "the %u cells are not whole pages of %u cells",
                n_cells, page_size);
    CL_TRY(cl_exports_check_shifts(&export, error));
    CL_TRY(page_segments(&export, page_size, NULL, NULL, NULL, &n_pages, error));
    if (n_pages > capacity || n_pages > UINT32_MAX)
        CL_FAIL(error, CELLAR_INVALID, (int64_t)n_pages, "there are %llu pages, and room for %u",
                (unsigned long long)n_pages, capacity);
    return page_segments(&export, page_size, indptr, indices, last_length, &n_pages, error);
}

/* ---- moves ----------------------------------------------------------------------------------- */

cellar_status cellar_visit_moves(const cellar_memory *memory, cellar_move_visitor visitor,
                                 void *context, cellar_error *error)
{
    CL_TRY(cl_memory_check(memory, error));
    if (!visitor) CL_FAIL(error, CELLAR_INVALID, -1, "visitor is NULL");
    for (uint32_t i = 0; i < memory->moves.n; i++)
        if (!visitor(context, &memory->moves.items[i])) break;
    return CELLAR_OK;
}

cellar_status cellar_confirm_moves(cellar_memory *memory, cellar_error *error)
{
    CL_TRY(cl_memory_check(memory, error));
    memory->moves.n = 0;
    return CELLAR_OK;
}
