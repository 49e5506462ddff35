/*
 * prefix_evict.c: room in the cells, and entries by number.
 *
 * Only the memory knows what a step lacks, cells or states, and in which group. So it is asked, one
 * retained sequence is evicted, and it is asked again; unless all of them together could not give what
 * is missing. Those whose cells are all held by others too give nothing: they are passed over as
 * long as there are others.
 *
 * What is evicted is stored first. If that fails it is lost: room was asked for, and who asked is
 * waiting.
 */
#include "prefix_library.h"

#include "error.h"

void cl_prefix_evict(cellar_library *library, cl_prefix_entry *entry)
{
    if (entry->seq < 0) return;
    bool is_stored = entry->blob || entry->file > 0;
    if (!is_stored) (void)cl_prefix_store_keep(library, entry);
    cl_prefix_entries_leave(library, entry, CL_PREFIX_CELLS);
    library->counts.n_evicted++;
    (void)cl_prefix_entries_settle(library, entry, true);
}

/* Would evicting it set something free? */
static bool gives_room(const cellar_library *library, const cl_prefix_entry *entry)
{
    cellar_sequence_info info;
    return cellar_get_sequence(library->memory, entry->seq, &info, NULL) == CELLAR_OK &&
           info.n_cells > info.n_shared;
}

static bool is_of_pool(const cellar_library *library, const cl_prefix_entry *entry, uint32_t pool)
{
    return pool == UINT32_MAX || cl_memory_pool_of(library->memory, entry->seq) == pool;
}

/* Evict the retained sequence that was not used for longest. False: there is none. */
static bool evict_oldest(cellar_library *library, uint32_t pool)
{
    cl_prefix_entry *oldest = NULL, *entry;
    uint64_t after = 0;
    while ((entry = cl_prefix_entries_oldest(library, CL_PREFIX_CELLS, after, UINT64_MAX))) {
        after = entry->last_used;
        if (!is_of_pool(library, entry, pool)) continue;
        if (!oldest) oldest = entry;
        if (!gives_room(library, entry)) continue;
        oldest = entry;
        break;
    }
    if (!oldest) return false;
    cl_prefix_evict(library, oldest);
    return true;
}

/* At most so many cells or states of one group would be set free if all that may go went. */
static uint64_t count_evictable(const cellar_library *library, uint32_t pool)
{
    uint64_t n = 0, after = 0;
    cl_prefix_entry *entry;
    while ((entry = cl_prefix_entries_oldest(library, CL_PREFIX_CELLS, after, UINT64_MAX))) {
        after = entry->last_used;
        if (is_of_pool(library, entry, pool)) n += entry->n_ready;
    }
    return n;
}

bool cl_prefix_evict_for(cellar_library *library, uint32_t pool, int64_t missing)
{
    if (missing > 0 && count_evictable(library, pool) < (uint64_t)missing) return false;
    return evict_oldest(library, pool);
}

static cellar_status check_idle(const cellar_library *library, cellar_error *error)
{
    if (!library) CL_FAIL(error, CELLAR_INVALID, -1, "library is NULL");
    return cl_memory_check_idle(library->memory, error);
}

/* The pool that all of a batch's sequences live in; UINT32_MAX: several. */
static uint32_t pool_of_batch(const cellar_memory *memory, const cellar_batch *batch)
{
    if (memory->config.n_pools == 1) return 0;
    if (!batch->seqs) return cl_memory_pool_of(memory, 0);
    uint32_t n = batch->seq_begin ? batch->seq_begin[batch->n_tokens] : batch->n_tokens;
    uint32_t pool = cl_memory_pool_of(memory, batch->seqs[0]);
    for (uint32_t i = 1; i < n; i++)
        if (cl_memory_pool_of(memory, batch->seqs[i]) != pool) return UINT32_MAX;
    return pool;
}

/* Are there more tokens than cells? Then the memory has not looked at the batch either. */
static bool can_never_fit(const cellar_memory *memory, uint32_t n_tokens)
{
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        const cl_group *group = &memory->groups[g];
        uint64_t n = 0;
        for (uint32_t p = 0; p < group->sequences.cells.n_pools; p++)
            n += group->sequences.cells.pools[p].n;
        bool keeps_all = group->kind == CELLAR_LAYER_ATTENTION && !cl_group_has_window(group);
        if (keeps_all && n_tokens > n) return true;
    }
    return false;
}

cellar_status cellar_library_begin(cellar_library *library, const cellar_batch *batch,
                                   cellar_error *error)
{
    cellar_error lack = {0};
    CL_TRY(check_idle(library, error));
    for (;;) {
        cellar_status status = cellar_begin(library->memory, batch, &lack);
        bool is_hopeless = status == CELLAR_FULL && can_never_fit(library->memory, batch->n_tokens);
        if (status == CELLAR_FULL && !is_hopeless &&
            cl_prefix_evict_for(library, pool_of_batch(library->memory, batch), lack.at))
            continue;
        if (status != CELLAR_OK && error) *error = lack;
        return status;
    }
}

/* Cells that are missing in the group that lacks most. */
static uint32_t missing(const cellar_memory *memory, uint32_t pool, uint32_t n_cells)
{
    uint32_t most = 0;
    for (uint32_t g = 0; g < memory->n_groups; g++) {
        const cl_group *group = &memory->groups[g];
        if (group->kind == CELLAR_LAYER_RECURRENT || cl_group_has_window(group)) continue;
        uint32_t n_free = group->sequences.cells.pools[pool].n_free;
        if (n_free < n_cells && n_cells - n_free > most) most = n_cells - n_free;
    }
    return most;
}

cellar_status cellar_library_make_room(cellar_library *library, uint32_t pool, uint32_t n_cells,
                                       cellar_error *error)
{
    CL_TRY(check_idle(library, error));
    if (pool >= library->memory->config.n_pools)
        CL_FAIL(error, CELLAR_INVALID, pool, "pool %u: there are %u", pool,
                library->memory->config.n_pools);
    for (;;) {
        uint32_t n = missing(library->memory, pool, n_cells);
        if (n == 0) return CELLAR_OK;
        if (!evict_oldest(library, pool))
            CL_FAIL(error, CELLAR_FULL, n,
                    "%u of %u cells are missing: the rest is running or pinned", n, n_cells);
    }
}

/* ---- entries by number ------------------------------------------------------------------------- */

static cellar_status find_entry(const cellar_library *library, uint64_t number,
                                cl_prefix_entry **out, cellar_error *error)
{
    if (!library) CL_FAIL(error, CELLAR_INVALID, -1, "library is NULL");
    *out = cl_prefix_entries_numbered(library, number);
    if (!*out)
        CL_FAIL(error, CELLAR_NOT_FOUND, (int64_t)number, "the library has no entry %llu",
                (unsigned long long)number);
    return CELLAR_OK;
}

static cellar_status find_idle(const cellar_library *library, uint64_t number,
                               cl_prefix_entry **out, cellar_error *error)
{
    CL_TRY(find_entry(library, number, out, error));
    CL_TRY(cl_memory_check_idle(library->memory, error));
    if ((*out)->is_running)
        CL_FAIL_BECAUSE(error, CELLAR_REFUSED, CELLAR_REASON_NONE, (*out)->seq,
                        "entry %llu is running as sequence %d: retain or release it",
                        (unsigned long long)number, (int)(*out)->seq);
    return CELLAR_OK;
}

cellar_status cellar_library_evict(cellar_library *library, uint64_t entry, cellar_error *error)
{
    cl_prefix_entry *its;
    CL_TRY(find_idle(library, entry, &its, error));
    cl_prefix_evict(library, its);
    return CELLAR_OK;
}

cellar_status cellar_library_drop(cellar_library *library, uint64_t entry, cellar_error *error)
{
    cl_prefix_entry *its;
    CL_TRY(find_idle(library, entry, &its, error));
    if (its->file > 0 && !cl_prefix_folder_remove(&library->disk, its))
        CL_FAIL(error, CELLAR_IO, -1, "the file of entry %llu cannot be removed",
                (unsigned long long)entry);
    cl_prefix_entries_leave(library, its, CL_PREFIX_CELLS);
    cl_prefix_entries_leave(library, its, CL_PREFIX_RAM);
    (void)cl_prefix_entries_settle(library, its, false);
    return CELLAR_OK;
}

cellar_status cellar_library_pin(cellar_library *library, uint64_t entry, bool is_pinned,
                                 cellar_error *error)
{
    cl_prefix_entry *its;
    CL_TRY(find_entry(library, entry, &its, error));
    its->is_pinned = is_pinned;
    return CELLAR_OK;
}
