/*
 * session_load.c: a session into a memory.
 *
 * The order of work is what keeps a failed load invisible: understand the options, compare the models, find
 * room and take free cells (nobody's yet), prepare lists and reserve what they go into, copy rows section by
 * section and compare each checksum (session_fetch.c); and only then, when nothing can fail any more, put the lists in place
 * (session_commit.c). Whatever goes wrong before, cells and slots are let go of again.
 *
 * One exception needs care: where a window group lacked room, old cells of other sequences were given up.
 * They can be given back until rows are written over them, so then all rows are checked before the first
 * is copied. (If a store of the caller's fails after that, they are gone; what any next token sees is not.)
 */
#include "session_load.h"

#include "checked.h"
#include "error.h"
#include "session_model.h"
#include "sort.h"

/* ---- options --------------------------------------------------------------------------------- */

static cellar_status check_options(const cellar_load_options *options, cellar_error *error)
{
    if (!options) CL_FAIL(error, CELLAR_INVALID, -1, "options is NULL");
    if (options->struct_size != sizeof *options)
        CL_FAIL(error, CELLAR_INVALID, -1,
                "options.struct_size is %zu, not %zu: use cellar_load_options_init",
                options->struct_size, sizeof *options);
    if (options->n_sequences > 0 && !options->sequences)
        CL_FAIL(error, CELLAR_INVALID, -1, "options.n_sequences is %u, but sequences is NULL",
                options->n_sequences);
    if (options->as && !options->sequences)
        CL_FAIL(error, CELLAR_INVALID, -1, "options.as is given, but sequences is NULL");
    return CELLAR_OK;
}

static cellar_status choose(cl_load *load, const cellar_load_options *options, cellar_error *error)
{
    for (uint32_t i = 0; i < load->n_arrivals; i++) {
        cl_arrival *arrival = &load->arrivals[i];
        if (!options->sequences) {
            arrival->from = &load->session->sequences[i];
            arrival->as = arrival->from->seq;
            continue;
        }
        arrival->from = cl_session_find(load->session, options->sequences[i]);
        arrival->as = options->as ? options->as[i] : options->sequences[i];
        if (!arrival->from)
            CL_FAIL(error, CELLAR_NOT_FOUND, options->sequences[i],
                    "the session has no sequence %d", (int)options->sequences[i]);
        if (arrival->as < 0)
            CL_FAIL(error, CELLAR_INVALID, arrival->as, "%d is no name of a sequence",
                    (int)arrival->as);
    }
    return CELLAR_OK;
}

/* ---- pools ----------------------------------------------------------------------------------- */

/*
 * The pools that the names live in become parts; a name that comes twice is refused. order [n_arrivals] is
 * scratch.
 */
static cellar_status find_parts(cl_load *load, int64_t *order, cellar_error *error)
{
    for (uint32_t i = 0; i < load->n_arrivals; i++)
        order[i] = load->arrivals[i].as;
    cl_sort(order, load->n_arrivals);
    for (uint32_t i = 1; i < load->n_arrivals; i++)
        if (order[i] == order[i - 1])
            CL_FAIL(error, CELLAR_INVALID, order[i], "two sequences are to be loaded as %lld",
                    (long long)order[i]);
    for (uint32_t i = 0; i < load->n_arrivals; i++)
        order[i] = (int64_t)cl_memory_pool_of(load->memory, load->arrivals[i].as) << 32 | i;
    cl_sort(order, load->n_arrivals);
    for (uint32_t i = 0; i < load->n_arrivals; i++) {
        uint32_t pool = (uint32_t)(order[i] >> 32);
        if (load->n_parts == 0 || load->pools[load->n_parts - 1] != pool)
            load->pools[load->n_parts++] = pool;
        load->arrivals[(uint32_t)order[i]].part = load->n_parts - 1;
    }
    return CELLAR_OK;
}

/* ---- room for the load itself ---------------------------------------------------------------- */

/* Zeros; counted as scratch of the memory. */
static cellar_status take(cl_load *load, void **out, uint64_t n, size_t size, cellar_error *error)
{
    size_t bytes = 0;
    *out = NULL;
    if (n == 0) return CELLAR_OK;
    if (n <= SIZE_MAX && cl_checked_mul((size_t)n, size, &bytes))
        *out = cl_alloc_get(load->alloc, CELLAR_BYTES_SCRATCH, bytes);
    if (!*out) return cl_error_no_memory(error, "loading a session", bytes);
    memset(*out, 0, bytes);
    return CELLAR_OK;
}

static void put(cl_load *load, void *block, uint64_t n, size_t size)
{
    if (block) cl_alloc_put(load->alloc, CELLAR_BYTES_SCRATCH, block, (size_t)n * size);
}

static cellar_status take_arrivals(cl_load *load, const cellar_load_options *options,
                                   cellar_error *error)
{
    void *arrivals, *pools, *order;
    uint32_t n = options->sequences ? options->n_sequences : load->session->n_sequences;
    CL_TRY(take(load, &arrivals, n, sizeof *load->arrivals, error));
    load->arrivals = arrivals;
    load->n_arrivals = n;
    CL_TRY(take(load, &pools, n, sizeof *load->pools, error));
    load->pools = pools;
    CL_TRY(choose(load, options, error));
    CL_TRY(take(load, &order, n, sizeof(int64_t), error));
    cellar_status status = find_parts(load, order, error);
    put(load, order, n, sizeof(int64_t));
    return status;
}

static cellar_status take_landings(cl_load *load, cellar_error *error)
{
    void *landings, *is_short, *checkpoints, *lists, *slots;
    uint64_t n = (uint64_t)load->n_groups * load->n_parts;
    uint64_t n_checkpoints = (uint64_t)load->n_parts * load->session->n_checkpoints;
    CL_TRY(take(load, &is_short, n, sizeof *load->is_short, error));
    load->is_short = is_short;
    CL_TRY(take(load, &checkpoints, n_checkpoints, sizeof *load->checkpoints, error));
    load->checkpoints = checkpoints;
    for (uint64_t c = 0; c < n_checkpoints; c++)
        load->checkpoints[c] = (cl_arriving_checkpoint){.slot = CL_NO_CHECKPOINT};
    load->n_lists = n_checkpoints * load->n_groups +
                    (uint64_t)load->n_arrivals * (2ull * load->n_groups + 1);
    CL_TRY(take(load, &lists, load->n_lists, sizeof *load->lists, error));
    load->lists = lists;
    for (uint64_t c = 0; c < n_checkpoints; c++)
        load->checkpoints[c].lists = load->lists + c * load->n_groups;
    uint64_t n_slots = (uint64_t)load->n_arrivals * (load->n_groups + 1);
    CL_TRY(take(load, &slots, n_slots, sizeof *load->slots, error));
    load->slots = slots;
    for (uint64_t i = 0; i < n_slots; i++)
        load->slots[i] = CL_NO_SLOT;
    for (uint32_t i = 0; i < load->n_arrivals; i++) {
        size_t at = (size_t)i * (load->n_groups + 1);
        load->arrivals[i].slots = load->slots + at;
        load->arrivals[i].lists = load->lists + n_checkpoints * load->n_groups +
                                  (size_t)i * (2 * (size_t)load->n_groups + 1);
        load->arrivals[i].lost = load->arrivals[i].lists + load->n_groups + 1;
    }
    CL_TRY(take(load, &landings, n, sizeof *load->landings, error));
    load->landings = landings;
    for (uint32_t g = 0; g < load->n_groups; g++)
        for (uint32_t p = 0; p < load->n_parts; p++) {
            cl_group *group = &load->memory->groups[g];
            load->landings[g * load->n_parts + p] = (cl_landing){
                .group = group, .pool = group->sequences.rule.n_pools == 1 ? 0 : load->pools[p]};
        }
    return CELLAR_OK;
}

static void free_load(cl_load *load)
{
    uint64_t n = (uint64_t)load->n_groups * load->n_parts;
    for (uint64_t i = 0; i < n && load->landings; i++)
        cl_landing_free(&load->landings[i], load->alloc);
    for (uint64_t i = 0; i < load->n_lists && load->lists; i++)
        cl_runs_free(&load->lists[i], load->alloc);
    put(load, load->landings, n, sizeof *load->landings);
    put(load, load->slots, (uint64_t)load->n_arrivals * (load->n_groups + 1), sizeof *load->slots);
    put(load, load->lists, load->n_lists, sizeof *load->lists);
    put(load, load->checkpoints, (uint64_t)load->n_parts * load->session->n_checkpoints,
        sizeof *load->checkpoints);
    put(load, load->is_short, n, sizeof *load->is_short);
    put(load, load->pools, load->n_arrivals, sizeof *load->pools);
    put(load, load->arrivals, load->n_arrivals, sizeof *load->arrivals);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static cellar_status run(cl_load *load, const cellar_load_options *options, cellar_error *error)
{
    CL_TRY(take_arrivals(load, options, error));
    CL_TRY(take_landings(load, error));
    cellar_status status = cl_load_make_room(load, error);
    if (status == CELLAR_OK) status = cl_load_prepare(load, error);
    if (status == CELLAR_OK) status = cl_load_copy_rows(load, error);
    if (status == CELLAR_OK) {
        cl_load_commit(load);
    } else {
        cl_load_abandon(load);
        cl_load_give_back(load);
    }
    return status;
}

static void tell_listener(const cl_load *load, cl_load_listener *listener, void *context)
{
    for (uint32_t g = 0; g < load->n_groups; g++)
        for (uint32_t p = 0; p < load->n_parts; p++) {
            const cl_landing *landing = &load->landings[g * load->n_parts + p];
            listener(context, g, landing->spans, landing->n);
        }
}

cellar_status cellar_load_session(cellar_memory *memory, const cellar_session *session,
                                  const cellar_load_options *options, cellar_error *error)
{
    return cl_load_session(memory, session, options, NULL, NULL, error);
}

cellar_status cl_load_session(cellar_memory *memory, const cellar_session *session,
                              const cellar_load_options *options, cl_load_listener *listener,
                              void *context, cellar_error *error)
{
    CL_TRY(cl_memory_check(memory, error));
    CL_TRY(cl_memory_check_idle(memory, error));
    CL_TRY(cl_memory_check_moves(memory, error));
    if (!session) CL_FAIL(error, CELLAR_INVALID, -1, "session is NULL");
    CL_TRY(check_options(options, error));
    CL_TRY(cl_model_compare(&session->model, memory, options, error));
    cl_load load = {.memory = memory,
                    .session = session,
                    .alloc = &memory->alloc,
                    .n_groups = memory->n_groups};
    cellar_status status = run(&load, options, error);
    if (status == CELLAR_OK && listener) tell_listener(&load, listener, context);
    free_load(&load);
    return status;
}
