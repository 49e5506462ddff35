/*
 * session_fetch.c: the rows of a session into the cells that were found for them.
 *
 * Section by section, each through a stream that sums it on its way (session_stream.h): that it was damaged
 * is known when its rows are in their cells, and these are nobody's until all sections were found good.
 * A section that lands in several pools is read for each of them. The memory's workers take sections in turns: who copies what changes nothing, for every section lands
 * in cells of its own, nobody's yet. Each has what it needs for itself, and everything is allocated
 * before they begin. Of several failures the one of the first section is reported, however they ran.
 *
 * Rows that go through calls of the caller's (a store, a reader) are copied by the calling thread alone:
 * nothing promises that those may be called by several at once.
 */
#include "session_load.h"

#include "error.h"
#include "session_rows.h"

/* What one worker has for itself. */
typedef struct copier {
    cl_row_reader reader;
    cl_stream stream;
    uint32_t *at;         /* [n_parts] where it is in each landing */
    size_t buffer_bytes;  /* of the stream; 0: the session has an address */
    cellar_status status; /* of the section where it stopped */
    uint32_t section;
    cellar_error error;
} copier;

typedef struct copying {
    const cl_load *load;
    uint32_t group;
    bool only_checks;
    copier *copiers; /* [n] */
    uint32_t n;
    uint64_t section_bytes; /* of the largest section that is wanted */
} copying;

/* ---- one section ----------------------------------------------------------------------------- */

static bool is_wanted(const cl_landing *landing, const cl_saved_cells *cells)
{
    uint32_t low = 0, high = landing->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (landing->spans[middle].file + landing->spans[middle].len <= cells->first)
            low = middle + 1;
        else
            high = middle;
    }
    return low < landing->n && landing->spans[low].file < cells->first + cells->count;
}

static bool is_wanted_somewhere(const cl_load *load, uint32_t group, const cl_saved_cells *cells)
{
    for (uint32_t p = 0; p < load->n_parts; p++)
        if (is_wanted(&load->landings[group * load->n_parts + p], cells)) return true;
    return false;
}

/* What cells [at, at + n) of a section stand for goes to where they land. */
static void label(const cl_landing *landing, const cl_saved_cells *from, uint32_t at,
                  const cl_stretch *stretches, uint32_t n)
{
    cl_cells *cells = &landing->group->sequences.cells;
    for (uint32_t s = 0; s < n; at += stretches[s++].len)
        for (uint32_t i = 0; i < stretches[s].len && stretches[s].cell != CL_NO_CELL; i++) {
            uint32_t cell = stretches[s].cell + i;
            cells->stored_pos[cell] = from->stored_pos[at + i];
            cells->token[cell] = from->token[at + i];
            if (cells->points)
                cells->points[cell] = from->points ? from->points[at + i] : (cl_point){0, 0};
        }
}

static cellar_status copy_section(copier *own, const cl_landing *landing,
                                  const cl_saved_cells *cells, uint32_t *at)
{
    const uint32_t tile = cl_rows_tile(landing->group->kind);
    cl_stretch stretches[2 * CL_SESSION_TILE + 1];
    cl_stream_begin(&own->stream, &cells->rows);
    for (uint32_t i = 0; i < cells->count && !own->stream.has_failed; i += tile) {
        uint32_t n = cells->count - i < tile ? cells->count - i : tile;
        uint32_t n_stretches = cl_landing_find(landing, cells->first + i, n, at, stretches);
        if (!cl_rows_get(&own->reader, &own->stream, stretches, n_stretches) &&
            !own->stream.has_failed)
            CL_FAIL(&own->error, CELLAR_IO, cells->first + i,
                    "a store of group %u did not take the rows of a session",
                    landing->group->index);
        label(landing, cells, i, stretches, n_stretches);
    }
    return cl_stream_end(&own->stream, &cells->rows, &own->error);
}

static cellar_status do_section(const copying *c, copier *own, const cl_saved_cells *cells)
{
    const cl_load *load = c->load;
    if (c->only_checks) {
        cl_stream_begin(&own->stream, &cells->rows);
        return cl_stream_end(&own->stream, &cells->rows, &own->error);
    }
    for (uint32_t p = 0; p < load->n_parts; p++) {
        const cl_landing *landing = &load->landings[c->group * load->n_parts + p];
        if (landing->is_taken && is_wanted(landing, cells))
            CL_TRY(copy_section(own, landing, cells, &own->at[p]));
    }
    return CELLAR_OK;
}

/* A cellar_task: every n-th section. */
static void do_part(void *argument, uint32_t part, uint32_t n)
{
    const copying *c = argument;
    const cl_saved_group *group = &c->load->session->model.groups[c->group];
    copier *own = &c->copiers[part];
    for (uint32_t i = part; i < group->n_sections && own->status == CELLAR_OK; i += n) {
        if (!is_wanted_somewhere(c->load, c->group, &group->sections[i])) continue;
        own->section = i;
        own->status = do_section(c, own, &group->sections[i]);
    }
}

/* ---- a group --------------------------------------------------------------------------------- */

/* How many may work at the same time: not through stores of the caller (the first is our own). */
static uint32_t count_workers(const cl_load *load, uint32_t group)
{
    const cl_bytes *bytes = &load->session->bytes;
    const bool may = load->memory->n_stores == 1 && (bytes->address || bytes->is_shared) &&
                     load->session->model.groups[group].n_sections > 1;
    return may && load->memory->workers.n > 1 ? load->memory->workers.n : 1;
}

static uint64_t largest_section(const cl_load *load, uint32_t group)
{
    const cl_saved_group *saved = &load->session->model.groups[group];
    uint64_t largest = 0;
    for (uint32_t i = 0; i < saved->n_sections; i++)
        if (saved->sections[i].rows.length > largest &&
            is_wanted_somewhere(load, group, &saved->sections[i]))
            largest = saved->sections[i].rows.length;
    return largest;
}

static void close_copiers(copying *c)
{
    cl_alloc *alloc = c->load->alloc;
    for (uint32_t i = 0; i < c->n && c->copiers; i++) {
        copier *own = &c->copiers[i];
        cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, own->stream.buffer, own->buffer_bytes);
        cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, own->at, c->load->n_parts * sizeof *own->at);
        if (!c->only_checks) cl_row_reader_close(&own->reader, alloc);
    }
    cl_alloc_put(alloc, CELLAR_BYTES_SCRATCH, c->copiers, c->n * sizeof *c->copiers);
}

static cellar_status open_copier(const copying *c, copier *own, cellar_error *error)
{
    cl_alloc *alloc = c->load->alloc;
    const size_t places = c->load->n_parts * sizeof *own->at;
    if (!c->only_checks)
        CL_TRY(cl_row_reader_open(&own->reader, &c->load->session->model, c->load->memory, c->group,
                                  alloc, error));
    own->at = cl_alloc_get(alloc, CELLAR_BYTES_SCRATCH, places);
    if (!own->at) return cl_error_no_memory(error, "loading a session", places);
    memset(own->at, 0, places);
    own->stream = (cl_stream){.bytes = &c->load->session->bytes,
                              .kernels = &c->load->session->kernels};
    if (own->stream.bytes->address) return CELLAR_OK;
    own->buffer_bytes = cl_stream_size(c->section_bytes, own->reader.most_bytes);
    own->stream.size = own->buffer_bytes;
    own->stream.buffer = cl_alloc_get(alloc, CELLAR_BYTES_SCRATCH, own->buffer_bytes);
    if (own->stream.buffer) return CELLAR_OK;
    return cl_error_no_memory(error, "the rows of a session", own->buffer_bytes);
}

/* On failure too, close_copiers takes what there is. */
static cellar_status open_copiers(copying *c, cellar_error *error)
{
    const size_t bytes = c->n * sizeof *c->copiers;
    c->copiers = cl_alloc_get(c->load->alloc, CELLAR_BYTES_SCRATCH, bytes);
    if (!c->copiers) return cl_error_no_memory(error, "loading a session", bytes);
    memset(c->copiers, 0, bytes);
    for (uint32_t i = 0; i < c->n; i++)
        CL_TRY(open_copier(c, &c->copiers[i], error));
    return CELLAR_OK;
}

static cellar_status first_failure(const copying *c, cellar_error *error)
{
    const copier *first = NULL;
    for (uint32_t i = 0; i < c->n; i++) {
        const copier *own = &c->copiers[i];
        if (own->status != CELLAR_OK && (!first || own->section < first->section)) first = own;
    }
    if (!first) return CELLAR_OK;
    if (error) *error = first->error;
    return first->status;
}

static cellar_status do_group(const cl_load *load, uint32_t group, bool only_checks,
                              cellar_error *error)
{
    if (load->n_parts == 0) return CELLAR_OK; /* no sequences */
    const cellar_workers *workers = &load->memory->workers;
    copying c = {.load = load,
                 .group = group,
                 .only_checks = only_checks,
                 .n = count_workers(load, group),
                 .section_bytes = largest_section(load, group)};
    cellar_status status = open_copiers(&c, error);
    if (status == CELLAR_OK) {
        if (c.n > 1)
            workers->run(workers->context, do_part, &c);
        else
            do_part(&c, 0, 1);
        status = first_failure(&c, error);
    }
    close_copiers(&c);
    return status;
}

cellar_status cl_load_copy_rows(cl_load *load, cellar_error *error)
{
    for (uint32_t g = 0; g < load->n_groups && load->has_reclaimed; g++)
        CL_TRY(do_group(load, g, true, error));
    load->is_copying = true;
    for (uint32_t g = 0; g < load->n_groups; g++)
        CL_TRY(do_group(load, g, false, error));
    return CELLAR_OK;
}
